//! Frames again: their lines, their trees, and whether a filter passes them, made when somebody looks.
//!
//! What a frame says depends on the frames before it on its connection, so these are fed to a [`Pipeline`] again, without an
//! observer, up to the frame that is wanted. Up to [`EXACT_MAX`] frames that is all of them and the result is what reading from the start gives.
//! Of a longer past, the first [`HEAD`] frames (handshake and negotiation) and the last [`EXACT_MAX`] are fed: time is bounded, and what was
//! decided in between (an open file's name, a credit balance) may be missing. [`Detail::is_exact`] says which it was, and so does the screen.
//! The pipeline stays where it was, so that going on from there costs nothing.

use super::index::Index;
use super::loader::Shared;
use rdmascope_analyzer::env::Options;
use rdmascope_analyzer::pipeline::{FrameMeta, Pipeline};
use rdmascope_capture::{Interface, PcapngWriter, RandomAccess, Record, Section};
use rdmascope_dissector::field::Def;
use rdmascope_dissector::filter::Filter;
use rdmascope_dissector::frame::{self, Addr, Body};
use rdmascope_dissector::probe::{Need, Probe, Slot};
use rdmascope_dissector::render::{escaped, value_label};
use rdmascope_dissector::trace::{Line, Off, Pair, Trace, Tree};
use rdmascope_dissector::wire::frame_fields::{self, FrameInfo};
use std::collections::HashSet;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::Ordering;

/// Frames of the past that are always fed again.
pub(crate) const EXACT_MAX: usize = 200_000;
/// Frames of a longer past's beginning.
const HEAD: usize = 512;
/// By how much the past of a row is shorter where rows are far from each other.
const FAR: usize = 20;

/// What the list shows of one frame.
#[derive(Clone, Debug, Default)]
pub(crate) struct Text {
    /// From 1.
    pub(crate) number: u64,
    pub(crate) src: String,
    pub(crate) dst: String,
    pub(crate) protocol: &'static str,
    /// Escaped.
    pub(crate) info: String,
    pub(crate) faulty: bool,
    /// Values of the columns that the user chose.
    pub(crate) cells: Vec<String>,
}

/// Everything about one frame.
#[derive(Clone, Debug, Default)]
pub(crate) struct Detail {
    /// From 1; 0 for none.
    pub(crate) number: u64,
    pub(crate) tree: Tree,
    /// Whether all of the past was looked at.
    pub(crate) is_exact: bool,
    /// Why there is nothing to show.
    pub(crate) error: Option<String>,
}

/// Feeds frames again.
pub(crate) struct Replayer {
    shared: Shared,
    version: u64,
    inputs: Vec<RandomAccess>,
    pipeline: Pipeline,
    /// Connections that the pipeline knows; `None` for all.
    knows: Option<HashSet<u32>>,
    /// The next frame that it can take.
    next: usize,
    exact: bool,
    first_ns: i64,
    /// [`EXACT_MAX`], but for tests.
    pub(super) exact_max: usize,
}

fn new_pipeline() -> Pipeline {
    Pipeline::new(Options { slowest_max: 0, ..Options::default() })
}

impl Replayer {
    pub(crate) fn new(shared: Shared) -> Self {
        Self {
            shared,
            version: 0,
            inputs: Vec::new(),
            pipeline: new_pipeline(),
            knows: None,
            next: 0,
            exact: true,
            first_ns: 0,
            exact_max: EXACT_MAX,
        }
    }

    /// Gets ready for frames `wanted` (ascending): afterwards the pipeline has seen what comes before the first of them.
    fn seek(&mut self, index: &Index, wanted: &[usize], most: usize) {
        self.refresh();
        let (Some(first), Some(last)) = (wanted.first().copied(), wanted.last().copied()) else { return };
        self.first_ns = index.at(0).map_or(0, |e| e.time);
        let connections: HashSet<u32> = wanted.iter().filter_map(|i| index.at(*i)).map(|e| e.connection).collect();
        let known = self.knows.as_ref().is_none_or(|knows| connections.iter().all(|c| knows.contains(c)));
        if known && self.next <= first && first - self.next <= most {
            self.feed_until(index, first);
            return;
        }
        self.pipeline = new_pipeline();
        self.next = 0;
        self.exact = true;
        if last < most {
            self.knows = None;
            self.feed_until(index, first);
            return;
        }
        let mut past: Vec<usize> = index
            .from(0)
            .take(first)
            .filter(|(_, e)| connections.contains(&e.connection) && e.connection != 0 || e.concerns_all())
            .map(|(i, _)| i)
            .collect();
        if past.len() > most + HEAD {
            past.drain(HEAD..past.len() - most);
            self.exact = false;
        }
        self.knows = Some(connections);
        for i in past {
            // what cannot be read again is told when it is looked at
            let _ = self.feed(index, i, &mut Off);
        }
        self.next = first;
    }

    fn feed_until(&mut self, index: &Index, upto: usize) {
        for i in self.next..upto {
            let relevant = match (&self.knows, index.at(i)) {
                (None, Some(_)) => true,
                (Some(knows), Some(e)) => knows.contains(&e.connection) && e.connection != 0 || e.concerns_all(),
                (_, None) => false,
            };
            if relevant {
                let _ = self.feed(index, i, &mut Off);
            }
        }
        self.next = self.next.max(upto);
    }

    fn refresh(&mut self) {
        let again = self.shared.again.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if again.version != self.version {
            self.version = again.version;
            self.inputs = again.inputs.clone();
        }
    }

    /// Feeds one frame. Returns its ends and what it is called where no layer says more.
    fn feed<T: Trace>(&mut self, index: &Index, i: usize, t: &mut T) -> Result<(Addr, Addr, &'static str), String> {
        self.feed_from(index, i, t, |_, _| {})
    }

    fn feed_from<T: Trace>(
        &mut self,
        index: &Index,
        i: usize,
        t: &mut T,
        begin: impl FnOnce(&mut T, &[u8]),
    ) -> Result<(Addr, Addr, &'static str), String> {
        let entry = index.at(i).ok_or("no such frame")?;
        let (input, offset) = entry.place();
        let access = self.inputs.get_mut(input).ok_or("frames of this input cannot be read again")?;
        let record = access.record_at(offset).map_err(|e| e.to_string())?;
        let number = i as u64 + 1;
        begin(t, record.bytes);
        if T::ON {
            let previous = i.checked_sub(1).and_then(|before| index.at(before)).map(|e| e.time);
            tell(&record, number, self.first_ns, previous, t);
        }
        self.pipeline.number_from(entry.connection, u64::from(entry.exchange));
        let options = self.pipeline.decode_options();
        let packet = frame::decode(record.link_type, record.bytes, record.wire_len, &options, t);
        let (src, dst) = (packet.src, packet.dst);
        let name = match packet.body {
            Body::Other(name) => name,
            Body::Tcp(_) => "TCP",
            Body::Udp(..) => "UDP",
            Body::Ib(_) => "InfiniBand",
            Body::Pause(_) => "Pause",
            Body::Fragment(_) => "IP fragment",
        };
        let meta =
            FrameMeta { number, time_ns: entry.time, link_type: record.link_type, wire_len: record.wire_len, interface: record.interface };
        self.pipeline.packet(&meta, &packet, t);
        t.end();
        Ok((src, dst, name))
    }

    /// The lines of some frames (places, ascending), with the values of `columns`.
    pub(crate) fn texts(&mut self, wanted: &[usize], columns: &[Def]) -> Vec<Text> {
        let index = self.shared.index();
        let mut out = Vec::with_capacity(wanted.len());
        // rows far from each other each have a past of their own: a shorter one then has to do
        let span = wanted.last().copied().unwrap_or(0) - wanted.first().copied().unwrap_or(0);
        let most = if span > self.exact_max { self.exact_max / FAR } else { self.exact_max };
        let mut line = Line::default();
        let mut probe = Probe::new();
        let slots: Vec<Slot> = columns.iter().map(|def| probe.want(def, Need::Value)).collect();
        for (n, &i) in wanted.iter().enumerate() {
            match (span > self.exact_max, n) {
                (true, _) => self.seek(&index, &wanted[n..=n], most),
                (false, 0) => self.seek(&index, wanted, most),
                (false, _) => self.feed_until(&index, i),
            }
            line.begin();
            probe.begin();
            let fed = self.feed(&index, i, &mut Pair(&mut line, &mut probe));
            self.next = i + 1;
            out.push(match fed {
                Ok((src, dst, name)) => Text {
                    number: i as u64 + 1,
                    src: address(&src),
                    dst: address(&dst),
                    protocol: if line.protocol.is_empty() { name } else { line.protocol },
                    info: escaped(&line.info),
                    faulty: line.faults > 0,
                    cells: slots.iter().map(|slot| cell(&probe, *slot)).collect(),
                },
                Err(e) => Text { number: i as u64 + 1, info: escaped(&e), faulty: true, ..Text::default() },
            });
        }
        out
    }

    /// Everything about one frame, by its place.
    pub(crate) fn detail(&mut self, i: usize) -> Detail {
        let index = self.shared.index();
        self.seek(&index, &[i], self.exact_max);
        let mut tree = Tree::new();
        tree.begin(&[]);
        // the tree finds offsets by address: it begins with the very bytes that are decoded
        let fed = self.feed_from(&index, i, &mut tree, Tree::begin);
        self.next = i + 1;
        Detail { number: i as u64 + 1, tree, is_exact: self.exact, error: fed.err().map(|e| escaped(&e)) }
    }

    /// Reads all frames again and tells which a filter passes. `found` gets frames (places) in batches, with how far it is, and says
    /// whether to go on; where the loader is not done, `more` waits and says whether to go on.
    pub(crate) fn filter(&mut self, filter: &mut Filter, found: &mut dyn FnMut(Vec<u32>, usize) -> bool, more: &mut dyn FnMut() -> bool) {
        self.pipeline = new_pipeline();
        self.knows = None;
        self.exact = true;
        let mut probe = Probe::new();
        filter.bind(&mut probe);
        let mut next = 0;
        let mut batch = Vec::new();
        loop {
            // asked before the index is taken: then that is all there is
            let finished = self.shared.finished.load(Ordering::Acquire);
            let index = self.shared.index();
            self.refresh();
            self.first_ns = index.at(0).map_or(0, |e| e.time);
            while next < index.len() {
                probe.begin();
                if self.feed(&index, next, &mut probe).is_ok() && filter.matches(&probe) {
                    batch.push(next as u32);
                }
                next += 1;
                if next % 4096 == 0 && !found(std::mem::take(&mut batch), next) {
                    return;
                }
            }
            if !found(std::mem::take(&mut batch), next) || finished || !more() {
                return;
            }
        }
    }

    /// The first of these frames (ascending places), or the last, whose line has a text; capitals do not matter.
    pub(crate) fn find(&mut self, text: &str, frames: &[u32], forward: bool) -> Option<u32> {
        let needle = text.to_lowercase();
        let has = |t: &Text| {
            [&t.info, &t.src, &t.dst].into_iter().any(|s| s.to_lowercase().contains(&needle)) || t.protocol.to_lowercase().contains(&needle)
        };
        let place = |t: &Text| t.number as u32 - 1;
        let mut batches: Vec<&[u32]> = frames.chunks(1000).collect();
        if !forward {
            batches.reverse();
        }
        for batch in batches {
            let places: Vec<usize> = batch.iter().map(|i| *i as usize).collect();
            let texts = self.texts(&places, &[]);
            let hit = if forward { texts.iter().find(|t| has(t)) } else { texts.iter().rev().find(|t| has(t)) };
            if let Some(hit) = hit {
                return Some(place(hit));
            }
        }
        None
    }

    /// Writes frames as pcapng. Returns how many.
    pub(crate) fn save(&mut self, path: &Path, frames: &mut dyn Iterator<Item = usize>) -> Result<u64, String> {
        self.refresh();
        let index = self.shared.index();
        let section = Section { application: Some(concat!("rdmascope ", env!("CARGO_PKG_VERSION")).into()), ..Section::default() };
        let mut writer = PcapngWriter::create(path, &section).map_err(|e| e.to_string())?;
        let mut interfaces: Vec<(usize, u32, u32)> = Vec::new();
        let mut written = 0;
        for i in frames {
            let Some(entry) = index.at(i) else { continue };
            let (input, offset) = entry.place();
            let access = self.inputs.get_mut(input).ok_or("frames of this input cannot be read again")?;
            let record = access.record_at(offset).map_err(|e| e.to_string())?;
            let (interface, link_type) = (record.interface, record.link_type);
            let known = interfaces.iter().find(|(n, i, _)| (*n, *i) == (input, interface)).map(|(.., number)| *number);
            let number = match known {
                Some(number) => number,
                None => {
                    // as the capture describes it, name and all
                    let described = access.interfaces().get(interface as usize).filter(|i| i.link_type == link_type).cloned();
                    let number =
                        writer.add_interface(&described.unwrap_or_else(|| Interface::new(link_type))).map_err(|e| e.to_string())?;
                    interfaces.push((input, interface, number));
                    number
                }
            };
            let mut record = access.record_at(offset).map_err(|e| e.to_string())?;
            record.interface = number;
            writer.write(&record).map_err(|e| e.to_string())?;
            written += 1;
        }
        writer.finish().map_err(|e| e.to_string())?;
        Ok(written)
    }

    /// Writes the lines of frames as CSV or text. Returns how many.
    pub(crate) fn export(&mut self, path: &Path, frames: &[usize], columns: &[Def]) -> Result<u64, String> {
        let csv = is_csv(path);
        let index = self.shared.index();
        let mut out = std::io::BufWriter::new(std::fs::File::create(path).map_err(|e| format!("{}: {e}", path.display()))?);
        let first = index.at(0).map_or(0, |e| e.time);
        let mut head: Vec<String> = ["frame", "time", "source", "destination", "protocol", "length", "info"].map(str::to_owned).to_vec();
        head.extend(columns.iter().map(|d| d.name.to_owned()));
        let mut failed = write_row(&mut out, csv, &head).err();
        for batch in frames.chunks(1000) {
            for text in self.texts(batch, columns) {
                let entry = index.at(text.number as usize - 1).copied().unwrap_or_default();
                let mut row = vec![
                    text.number.to_string(),
                    super::time::seconds(entry.time - first),
                    text.src,
                    text.dst,
                    text.protocol.to_owned(),
                    entry.wire_len.to_string(),
                    text.info,
                ];
                row.extend(text.cells);
                failed = failed.or(write_row(&mut out, csv, &row).err());
            }
        }
        match failed.or(out.flush().err()) {
            Some(e) => Err(format!("{}: {e}", path.display())),
            None => Ok(frames.len() as u64),
        }
    }
}

/// Whether a path asks for comma-separated values.
pub(crate) fn is_csv(path: &Path) -> bool {
    path.extension().is_some_and(|e| e.eq_ignore_ascii_case("csv"))
}

/// One row: as RFC 4180 has it, or separated by tabs.
pub(crate) fn write_row(out: &mut impl Write, csv: bool, cells: &[String]) -> std::io::Result<()> {
    for (i, cell) in cells.iter().enumerate() {
        if i > 0 {
            out.write_all(if csv { b"," } else { b"\t" })?;
        }
        if csv && cell.contains([',', '"', '\n', '\r']) {
            write!(out, "\"{}\"", cell.replace('"', "\"\""))?;
        } else {
            out.write_all(cell.as_bytes())?;
        }
    }
    out.write_all(if csv { b"\r\n" } else { b"\n" })
}

fn tell<T: Trace>(record: &Record<'_>, number: u64, first_ns: i64, previous_ns: Option<i64>, t: &mut T) {
    let info = FrameInfo {
        number,
        time_ns: record.has_time().then_some(record.time_ns),
        first_ns,
        previous_ns,
        wire_len: record.wire_len,
        interface: None,
        interface_name: None,
    };
    frame_fields::tell(&info, record.comments(), record.bytes, t);
}

fn cell(probe: &Probe, slot: Slot) -> String {
    let mut out = String::new();
    for (n, (def, value)) in probe.values(slot).take(8).enumerate() {
        if n > 0 {
            out.push_str(", ");
        }
        value_label(&mut out, def, value);
    }
    out
}

fn address(addr: &Addr) -> String {
    if *addr == Addr::None { String::new() } else { rdmascope_analyzer::report::address(addr) }
}

/// Writes a table, heads first, as CSV or with tabs. Returns how many rows without the heads.
pub(crate) fn export_table(path: &Path, rows: &[Vec<String>]) -> Result<u64, String> {
    let write = || -> std::io::Result<()> {
        let mut out = std::io::BufWriter::new(std::fs::File::create(path)?);
        rows.iter().try_for_each(|row| write_row(&mut out, is_csv(path), row))?;
        out.flush()
    };
    write().map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(rows.len().saturating_sub(1) as u64)
}
