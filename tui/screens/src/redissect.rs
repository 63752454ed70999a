//! Frames again: their lines, their trees, and whether a filter passes them, made on demand.
//!
//! The dissection of a frame depends on earlier frames of its connection, so these are fed to a [`Pipeline`] again,
//! without an observer, up to the wanted frame. Up to [`EXACT_MAX`] frames that is all of them, and the result is the
//! same as reading from the start. Of a longer past, only the first [`HEAD`] frames (handshake and negotiation) and the
//! last [`EXACT_MAX`] are fed. This bounds the time, but state from the frames in between (an open file's name, a
//! credit balance) may be missing. [`Detail::is_exact`] says which it was, and so does the screen. The pipeline keeps
//! its position, so that continuing from there costs nothing.

use super::index::Index;
use super::loader::Shared;
use super::search::Needle;
use rdmascope_analyzer::env::Options;
use rdmascope_analyzer::pipeline::{FrameMeta, Pipeline};
use rdmascope_capture::{Access, Existing, Interface, PcapngWriter, Problem, RandomAccess, Section, WholeFile};
use rdmascope_dissector::extract::{Extractor, Need, Slot};
use rdmascope_dissector::field::Def;
use rdmascope_dissector::filter::Filter;
use rdmascope_dissector::frame::{self, Addr};
use rdmascope_dissector::render::{escaped, value_label};
use rdmascope_dissector::trace::{Line, Off, Pair, Trace, Tree};
use rdmascope_report::dissection::{self, Before};
use rdmascope_report::output::spreadsheet_safe;
use std::collections::HashSet;
use std::io::{Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

/// Frames of the past that are always fed again.
pub(crate) const EXACT_MAX: usize = 200_000;
/// Frames of a longer past's beginning.
const HEAD: usize = 512;
/// Divisor of the length of a row's past if rows are far from each other.
const FAR: usize = 20;

/// Some frames, by their places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    Range(Range<u32>),
    These(Vec<u32>),
}

impl Which {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Range(range) => range.len(),
            Self::These(places) => places.len(),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        let (range, places): (_, &[u32]) = match self {
            Self::Range(range) => (range.clone(), &[]),
            Self::These(places) => (0..0, places),
        };
        range.chain(places.iter().copied()).map(|i| i as usize)
    }

    /// Some of them, by their order.
    fn part(&self, part: Range<usize>) -> Self {
        match self {
            Self::Range(range) => Self::Range(range.start + part.start as u32..range.start + part.end as u32),
            Self::These(places) => Self::These(places[part].to_vec()),
        }
    }

    fn is_ascending(&self) -> bool {
        match self {
            Self::Range(_) => true,
            Self::These(places) => places.is_sorted(),
        }
    }
}

/// The ends of a frame that was fed, and a name for it if no layer has one; or the reason for which it could not be
/// read.
pub(crate) type Fed = Result<(Addr, Addr, &'static str), String>;

/// Progress callback of a long task: called with the number of steps done; returns false to cancel.
pub(crate) type Progress<'p> = &'p mut dyn FnMut(usize) -> bool;

/// Error text of a task that was cancelled.
pub(crate) const GIVEN_UP: &str = "given up";

/// Result of saving frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Saved {
    pub(crate) frames: u64,
    /// Frames of a live capture that are no longer kept.
    pub(crate) gone: u64,
}

/// Reason for which a file was not written. An existing file is unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NotWritten {
    /// The file exists, and replacing it was not allowed.
    Exists,
    Because(String),
}

impl From<rdmascope_capture::Error> for NotWritten {
    fn from(e: rdmascope_capture::Error) -> Self {
        if matches!(e.problem(), Problem::Exists) { Self::Exists } else { Self::Because(e.to_string()) }
    }
}

impl From<String> for NotWritten {
    fn from(text: String) -> Self {
        Self::Because(text)
    }
}

impl From<&str> for NotWritten {
    fn from(text: &str) -> Self {
        Self::Because(text.to_owned())
    }
}

/// Text of one frame in the list.
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
    /// True if all of the past was looked at.
    pub(crate) is_exact: bool,
    /// Reason for which there is nothing to show.
    pub(crate) error: Option<String>,
}

/// Feeds frames again.
pub(crate) struct Redissector {
    shared: Shared,
    version: u64,
    restarts: u64,
    inputs: Vec<RandomAccess>,
    /// The interfaces of each input.
    interfaces: Vec<Vec<Interface>>,
    pipeline: Pipeline,
    /// Connections whose frames the pipeline got; `None` for all.
    knows: Option<HashSet<u32>>,
    /// The next frame that it can take.
    next: usize,
    exact: bool,
    first_ns: i64,
    /// [`EXACT_MAX`], but for tests.
    pub(super) exact_max: usize,
}

fn new_pipeline(shared: &Shared) -> Pipeline {
    Pipeline::new(Options { slowest_max: 0, ..Options::clone(&shared.options) })
}

impl Redissector {
    pub(crate) fn new(shared: Shared) -> Self {
        let pipeline = new_pipeline(&shared);
        Self {
            shared,
            version: 0,
            restarts: 0,
            inputs: Vec::new(),
            interfaces: Vec::new(),
            pipeline,
            knows: None,
            next: 0,
            exact: true,
            first_ns: 0,
            exact_max: EXACT_MAX,
        }
    }

    /// Prepares for the frames `wanted` (ascending): afterwards the pipeline has processed the frames before the first
    /// of them.
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
        self.pipeline = new_pipeline(&self.shared);
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
            // errors on reading are reported when the frame is shown
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
        if again.restarts != self.restarts {
            self.restarts = again.restarts;
            (self.pipeline, self.knows, self.next, self.exact) = (new_pipeline(&self.shared), None, 0, true);
        }
        if again.version != self.version {
            self.version = again.version;
            self.inputs = again.inputs.clone();
            self.interfaces = self.inputs.iter().map(|i| i.interfaces().to_vec()).collect();
        }
    }

    /// All frames so far.
    pub(super) fn index(&self) -> Index {
        self.shared.index()
    }

    /// Feeds these frames (ascending places) to an observer, for which `begin` is called before each. Frames before and
    /// between are fed without it; of a gap of more than `far` frames, only its end and handshakes. `each` is called
    /// after each frame, and returns false to stop. Returns true if it was not stopped.
    pub(super) fn walk<T: Trace>(
        &mut self,
        frames: &Which,
        far: usize,
        t: &mut T,
        begin: impl Fn(&mut T),
        each: &mut dyn FnMut(&T, usize, Fed) -> bool,
    ) -> bool {
        let index = self.shared.index();
        self.refresh();
        self.first_ns = index.at(0).map_or(0, |e| e.time);
        self.pipeline = new_pipeline(&self.shared);
        (self.next, self.knows, self.exact) = (0, None, true);
        for i in frames.iter() {
            let near = i.saturating_sub(far);
            if self.next < near {
                for (past, _) in
                    index.from(self.next).take_while(|(past, _)| *past < near).filter(|(_, e)| e.concerns_all())
                {
                    let _ = self.feed(&index, past, &mut Off);
                }
                (self.next, self.exact) = (near, false);
            }
            self.feed_until(&index, i);
            begin(t);
            let fed = self.feed(&index, i, t);
            self.next = i + 1;
            if !each(t, i, fed) {
                return false;
            }
        }
        true
    }

    /// Passes the tree of each of these frames (ascending places) on connections with these numbers to `each`, which
    /// returns false to stop.
    pub(super) fn trees(&mut self, frames: &Which, ids: &[u32], each: &mut dyn FnMut(&Tree, usize, Fed) -> bool) {
        let index = self.shared.index();
        self.refresh();
        self.first_ns = index.at(0).map_or(0, |e| e.time);
        self.pipeline = new_pipeline(&self.shared);
        (self.next, self.knows, self.exact) = (0, Some(ids.iter().copied().collect()), true);
        let mut tree = Tree::new();
        for i in frames.iter() {
            self.feed_until(&index, i);
            tree.begin(&[]);
            let fed = self.feed_from(&index, i, &mut tree, Tree::begin);
            self.next = i + 1;
            if !each(&tree, i, fed) {
                return;
            }
        }
    }

    /// Decodes a frame by itself. Returns its ends.
    pub(super) fn decoded<T: Trace>(&mut self, index: &Index, i: usize, t: &mut T) -> Option<(Addr, Addr)> {
        if self.inputs.is_empty() {
            self.refresh();
        }
        let (input, offset) = index.at(i)?.place();
        let record = self.inputs.get_mut(input)?.record_at(offset).ok()?;
        let options = frame::Options { check_crc: false, ..self.pipeline.decode_options() };
        let packet = frame::decode(record.link_type, record.bytes, record.wire_len, &options, t);
        Some((packet.src, packet.dst))
    }

    /// Feeds one frame.
    fn feed<T: Trace>(&mut self, index: &Index, i: usize, t: &mut T) -> Fed {
        self.feed_from(index, i, t, |_, _| {})
    }

    fn feed_from<T: Trace>(&mut self, index: &Index, i: usize, t: &mut T, begin: impl FnOnce(&mut T, &[u8])) -> Fed {
        let entry = index.at(i).ok_or("no such frame")?;
        let (input, offset) = entry.place();
        let access = self.inputs.get_mut(input).ok_or("frames of this input cannot be read again")?;
        let record = access.record_at(offset).map_err(|e| e.to_string())?;
        let number = i as u64 + 1;
        begin(t, record.bytes);
        if T::ON {
            let previous_ns = i.checked_sub(1).and_then(|before| index.at(before)).map_or(0, |e| e.time);
            let interfaces = self.interfaces.get(input).map_or(&[][..], Vec::as_slice);
            dissection::trace(&record, interfaces, Before { number, first_ns: self.first_ns, previous_ns }, t);
        }
        self.pipeline.number_from(entry.connection, u64::from(entry.exchange));
        let options = self.pipeline.decode_options();
        let packet = frame::decode(record.link_type, record.bytes, record.wire_len, &options, t);
        let (src, dst) = (packet.src, packet.dst);
        let name = packet.body.name();
        let meta = FrameMeta {
            number,
            time_ns: entry.time,
            link_type: record.link_type,
            wire_len: record.wire_len,
            interface: record.interface,
        };
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
        let mut extractor = Extractor::new();
        let slots: Vec<Slot> = columns.iter().map(|def| extractor.want(def, Need::Value)).collect();
        for (n, &i) in wanted.iter().enumerate() {
            match (span > self.exact_max, n) {
                (true, _) => self.seek(&index, &wanted[n..=n], most),
                (false, 0) => self.seek(&index, wanted, most),
                (false, _) => self.feed_until(&index, i),
            }
            line.begin();
            extractor.begin();
            let fed = self.feed(&index, i, &mut Pair(&mut line, &mut extractor));
            self.next = i + 1;
            out.push(text(i, fed, &line, &extractor, &slots));
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

    /// Reads all frames again and finds those that a filter passes. `found` gets frames (places) in batches, with the
    /// progress, and returns false to stop. While the loader is not done, `more` waits and returns false to stop.
    pub(crate) fn filter(
        &mut self,
        filter: &mut Filter,
        found: &mut dyn FnMut(Vec<u32>, usize) -> bool,
        more: &mut dyn FnMut() -> bool,
    ) {
        self.pipeline = new_pipeline(&self.shared);
        self.knows = None;
        self.exact = true;
        let mut extractor = Extractor::new();
        filter.bind(&mut extractor);
        let mut next = 0;
        let mut batch = Vec::new();
        loop {
            // checked before the index is taken: then the index is complete
            let finished = self.shared.finished.load(Ordering::Acquire);
            let index = self.shared.index();
            self.refresh();
            self.first_ns = index.at(0).map_or(0, |e| e.time);
            while next < index.len() {
                extractor.begin();
                if self.feed(&index, next, &mut extractor).is_ok() && filter.matches(&extractor) {
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

    /// The first of these frames, or the last, that matches. `Err` if it was cancelled.
    pub(crate) fn find(
        &mut self,
        needle: &mut Needle,
        frames: &Which,
        forward: bool,
        progress: Progress<'_>,
    ) -> Result<Option<u32>, String> {
        /// Number of frames that are searched together when going backwards, each time from the front.
        const BATCH: usize = 20_000;
        let mut looked = 0;
        let mut hit = None;
        // in another order than that of the capture, all have to be looked at
        let mut hits = (!frames.is_ascending()).then(HashSet::new);
        let mut goes_on = true;
        let (mut line, mut extractor, empty) = (Line::default(), Extractor::new(), Extractor::new());
        if let Needle::Passes(filter) = needle {
            filter.bind(&mut extractor);
        }
        let mut both = Pair(&mut line, &mut extractor);
        let begin = |both: &mut Pair<'_, Line, Extractor>| {
            both.0.begin();
            both.1.begin();
        };
        let mut look = |redissector: &mut Self, part: &Which, far: usize, hit: &mut Option<u32>| {
            redissector.walk(part, far, &mut both, begin, &mut |both, i, fed| {
                let has = match needle {
                    Needle::Passes(filter) => fed.is_ok() && filter.matches(both.1),
                    Needle::Has(pattern) => {
                        let text = text(i, fed, both.0, &empty, &[]);
                        [&*text.info, &*text.src, &*text.dst, text.protocol].into_iter().any(|s| pattern.is_in(s))
                    }
                };
                if has {
                    match &mut hits {
                        Some(hits) => drop(hits.insert(i)),
                        None => *hit = Some(i as u32),
                    }
                }
                looked += 1;
                goes_on = looked % 1024 != 0 || progress(looked);
                goes_on && (hit.is_none() || !forward)
            });
            goes_on
        };
        if let Which::These(places) = frames
            && !frames.is_ascending()
        {
            let mut ascending = places.clone();
            ascending.sort_unstable();
            if !look(self, &Which::These(ascending), self.exact_max, &mut hit) {
                return Err(GIVEN_UP.to_owned());
            }
            let is_hit = |i: &&u32| hits.as_ref().is_some_and(|hits| hits.contains(&(**i as usize)));
            return Ok(if forward { places.iter().find(is_hit) } else { places.iter().rev().find(is_hit) }.copied());
        }
        if forward {
            if !look(self, frames, self.exact_max, &mut hit) {
                return Err(GIVEN_UP.to_owned());
            }
            return Ok(hit);
        }
        let mut end = frames.len();
        while end > 0 && hit.is_none() {
            let start = end.saturating_sub(BATCH);
            if !look(self, &frames.part(start..end), self.exact_max / FAR, &mut hit) {
                return Err(GIVEN_UP.to_owned());
            }
            end = start;
        }
        Ok(hit)
    }

    /// Writes frames as pcapng.
    pub(crate) fn save(
        &mut self,
        path: &Path,
        frames: &Which,
        existing: Existing,
        progress: Progress<'_>,
    ) -> Result<Saved, NotWritten> {
        self.refresh();
        let index = self.shared.index();
        let section = Section {
            application: Some(concat!("rdmascope ", env!("CARGO_PKG_VERSION")).into()),
            ..Section::default()
        };
        let file = WholeFile::create(path, &self.shared.files(), existing, Access::Private)?;
        let mut writer = PcapngWriter::new(file, path, &section)?;
        let mut interfaces: Vec<(usize, u32, u32)> = Vec::new();
        let (mut saved, mut looked) = (Saved::default(), 0_usize);
        for i in frames.iter() {
            if looked.is_multiple_of(4096) && !progress(looked) {
                return Err(GIVEN_UP.into());
            }
            looked += 1;
            let Some(entry) = index.at(i) else { continue };
            let (input, offset) = entry.place();
            let access = self.inputs.get_mut(input).ok_or("frames of this input cannot be read again")?;
            let record = match access.record_at(offset) {
                Ok(record) => record,
                // frames of a live capture that the window no longer has
                Err(e) if matches!(e.problem(), Problem::NoLongerKept) => {
                    saved.gone += 1;
                    continue;
                }
                Err(e) => return Err(e.into()),
            };
            let (interface, link_type) = (record.interface, record.link_type);
            let known = interfaces.iter().find(|(n, i, _)| (*n, *i) == (input, interface)).map(|(.., number)| *number);
            let number = match known {
                Some(number) => number,
                None => {
                    // as the capture describes it, name and all
                    let described =
                        access.interfaces().get(interface as usize).filter(|i| i.link_type == link_type).cloned();
                    let number = writer.add_interface(&described.unwrap_or_else(|| Interface::new(link_type)))?;
                    interfaces.push((input, interface, number));
                    number
                }
            };
            let mut record = access.record_at(offset)?;
            record.interface = number;
            writer.write(&record)?;
            saved.frames += 1;
        }
        writer.finish()?.finish()?;
        Ok(saved)
    }

    /// Writes the lines of frames as CSV or text, in the order in which they are given. Returns how many.
    pub(crate) fn export(
        &mut self,
        path: &Path,
        frames: &Which,
        columns: &[Def],
        existing: Existing,
        progress: Progress<'_>,
    ) -> Result<u64, NotWritten> {
        let failed = |e: std::io::Error| NotWritten::Because(format!("{}: {e}", path.display()));
        let mut head: Vec<String> =
            ["frame", "time", "source", "destination", "protocol", "length", "info"].map(str::to_owned).to_vec();
        head.extend(columns.iter().map(|d| d.name.to_owned()));
        let mut out = std::io::BufWriter::new(WholeFile::create(path, &self.shared.files(), existing, Access::Umask)?);
        write_row(&mut out, is_csv(path), &head).map_err(failed)?;
        if frames.is_ascending() {
            self.write_lines(&mut out, path, frames, columns, &mut |_, _| {}, progress)?;
            finish(out, path)?;
            return Ok(frames.len() as u64);
        }
        // lines are made in the order of the capture, stored, and then written in the requested order
        let Which::These(places) = frames else { return Err("these frames have no order".into()) };
        let mut ascending = places.clone();
        ascending.sort_unstable();
        let mut aside = std::io::BufWriter::new(rdmascope_capture::temporary_file().map_err(failed)?);
        let mut pieces: Vec<(u64, u32)> = Vec::with_capacity(ascending.len());
        let which = Which::These(ascending);
        let mut begin = 0;
        let mut wrote = |len: usize, _: usize| {
            pieces.push((begin, len as u32));
            begin += len as u64;
        };
        self.write_lines(&mut aside, path, &which, columns, &mut wrote, progress)?;
        let mut lines = aside.into_inner().map_err(|e| failed(e.into_error()))?;
        let Which::These(ascending) = which else { return Ok(0) };
        let mut line = Vec::new();
        for (n, place) in places.iter().enumerate() {
            if n % 4096 == 0 && !progress(places.len()) {
                return Err(GIVEN_UP.into());
            }
            let Some((begin, len)) = ascending.binary_search(place).ok().and_then(|at| pieces.get(at)).copied() else {
                continue;
            };
            line.resize(len as usize, 0);
            lines.seek(SeekFrom::Start(begin)).and_then(|_| lines.read_exact(&mut line)).map_err(failed)?;
            out.write_all(&line).map_err(failed)?;
        }
        finish(out, path)?;
        Ok(places.len() as u64)
    }

    /// Writes the lines of frames (ascending places), and reports the length of each.
    fn write_lines(
        &mut self,
        out: &mut impl Write,
        path: &Path,
        frames: &Which,
        columns: &[Def],
        wrote: &mut dyn FnMut(usize, usize),
        progress: Progress<'_>,
    ) -> Result<(), String> {
        let (csv, index) = (is_csv(path), self.shared.index());
        let first = index.at(0).map_or(0, |e| e.time);
        let mut extractor = Extractor::new();
        let slots: Vec<Slot> = columns.iter().map(|def| extractor.want(def, Need::Value)).collect();
        let mut failed = None;
        let mut row = Vec::new();
        let mut done = 0;
        let mut line = Line::default();
        let mut both = Pair(&mut line, &mut extractor);
        let begin = |both: &mut Pair<'_, Line, Extractor>| {
            both.0.begin();
            both.1.begin();
        };
        let whole = self.walk(frames, self.exact_max, &mut both, begin, &mut |both, i, fed| {
            let text = text(i, fed, both.0, both.1, &slots);
            let entry = index.at(i).copied().unwrap_or_default();
            let mut cells = vec![
                text.number.to_string(),
                super::time::seconds(entry.time.saturating_sub(first)),
                text.src,
                text.dst,
                text.protocol.to_owned(),
                entry.wire_len.to_string(),
                text.info,
            ];
            cells.extend(text.cells);
            row.clear();
            let written = write_row(&mut row, csv, &cells).and_then(|()| out.write_all(&row));
            wrote(row.len(), i);
            done += 1;
            match written {
                Err(e) => failed = Some(format!("{}: {e}", path.display())),
                Ok(()) => return done % 1024 != 0 || progress(done),
            }
            false
        });
        match failed {
            Some(e) => Err(e),
            None if !whole => Err(GIVEN_UP.to_owned()),
            None => Ok(()),
        }
    }
}

/// The line of a frame that was fed to these observers.
fn text(i: usize, fed: Fed, line: &Line, extractor: &Extractor, slots: &[Slot]) -> Text {
    let number = i as u64 + 1;
    match fed {
        Ok((src, dst, name)) => Text {
            number,
            src: address(&src),
            dst: address(&dst),
            protocol: if line.protocol.is_empty() { name } else { line.protocol },
            info: escaped(&line.info),
            faulty: line.faults > 0,
            cells: slots.iter().map(|slot| cell(extractor, *slot)).collect(),
        },
        Err(e) => Text { number, info: escaped(&e), faulty: true, ..Text::default() },
    }
}

/// True if a path ends with the extension of comma-separated values.
pub(crate) fn is_csv(path: &Path) -> bool {
    path.extension().is_some_and(|e| e.eq_ignore_ascii_case("csv"))
}

/// One row: as RFC 4180 has it, or separated by tabs.
pub(crate) fn write_row(out: &mut impl Write, csv: bool, cells: &[String]) -> std::io::Result<()> {
    if !csv {
        return writeln!(out, "{}", cells.join("\t"));
    }
    let mut row = csv::WriterBuilder::new().terminator(csv::Terminator::CRLF).from_writer(out);
    row.write_record(cells.iter().map(|c| spreadsheet_safe(c).into_owned()))?;
    row.flush()
}

fn cell(extractor: &Extractor, slot: Slot) -> String {
    let mut out = String::new();
    for (n, (def, value)) in extractor.values(slot).take(8).enumerate() {
        if n > 0 {
            out.push_str(", ");
        }
        value_label(&mut out, def, value);
    }
    out
}

pub(super) fn address(addr: &Addr) -> String {
    if *addr == Addr::None { String::new() } else { rdmascope_analyzer::report::address(addr) }
}

/// Gives a file its final name after all buffered data is written.
fn finish(out: std::io::BufWriter<WholeFile>, path: &Path) -> Result<(), NotWritten> {
    let file = out.into_inner().map_err(|e| format!("{}: {}", path.display(), e.error()))?;
    Ok(file.finish()?)
}

/// Writes a table, heads first, as CSV or with tabs; never onto one of `inputs`. Returns how many rows without the
/// heads.
pub(crate) fn export_table(
    path: &Path,
    rows: &[Vec<String>],
    inputs: &[PathBuf],
    existing: Existing,
) -> Result<u64, NotWritten> {
    let mut out = std::io::BufWriter::new(WholeFile::create(path, inputs, existing, Access::Umask)?);
    rows.iter()
        .try_for_each(|row| write_row(&mut out, is_csv(path), row))
        .map_err(|e| format!("{}: {e}", path.display()))?;
    finish(out, path)?;
    Ok(rows.len().saturating_sub(1) as u64)
}
