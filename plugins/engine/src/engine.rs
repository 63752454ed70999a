//! Frames in, facts out: an analysis that stores its results, so that those of earlier frames can be read again in any
//! order.

use crate::facts::{self, Facts, Item, Writer};
use crate::link::guess;
use crate::settled::{Late, Settled};
use rdmascope_analyzer::env::Options as Analysis;
use rdmascope_analyzer::exchange::Exchange;
use rdmascope_analyzer::finding::{Blame, Rule};
use rdmascope_analyzer::keys::Keyring;
use rdmascope_analyzer::messages::known::Known;
use rdmascope_analyzer::notes::Layer;
use rdmascope_analyzer::op::End;
use rdmascope_analyzer::pipeline::{FrameMeta, Pipeline};
use rdmascope_analyzer::sink::Sink;
use rdmascope_dissector::frame::{self, Body, LinkType};
use rdmascope_dissector::text::Elapsed;
use rdmascope_dissector::wire::rpc::Memo;
use rdmascope_dissector::wire::smb2::RequestMemo;
use rdmascope_dissector::wire::tcp::Segment;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::{self, Write as _};

/// Options of an engine.
#[derive(Clone, Debug)]
pub struct Options {
    /// Limit of stored bytes of facts and messages. Facts about frames beyond it are returned once.
    pub memory_max: u64,
    /// The part of `memory_max` for reassembled messages; the oldest are dropped first.
    pub messages_max: u64,
    /// Keys and passwords, as in a key file of `rdmascope --keys`.
    pub keys: String,
    /// True to verify the checksums of RoCE and MPA.
    pub check_crc: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { memory_max: 4 << 30, messages_max: 64 << 20, keys: String::new(), check_crc: true }
    }
}

/// A frame, as the caller passes it.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Number from 1, ascending.
    pub number: u64,
    /// ns since the Unix epoch.
    pub time_ns: i64,
    /// LINKTYPE of pcap files; `None` to guess it from the bytes.
    pub link_type: Option<u16>,
    /// Its length on the wire, in bytes.
    pub wire_len: u32,
    /// Its captured bytes.
    pub bytes: &'a [u8],
}

/// Reason for a missing answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// This frame was not fed.
    Unknown,
    /// The facts of this frame were not stored: the memory limit was reached.
    NotKept,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "this frame was not fed",
            Self::NotKept => "the analysis of this frame was dropped: memory_max was reached",
        })
    }
}

impl std::error::Error for Error {}

/// Counters of an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Frames that were fed.
    pub frames: u64,
    /// Number of the last one.
    pub last: u64,
    /// Bytes stored.
    pub memory: u64,
    /// Frames without stored facts, because there was no room.
    pub not_kept: u64,
    /// Messages that were dropped, because there was no room.
    pub messages_dropped: u64,
}

/// Result of an exchange.
#[derive(Clone, Copy, Debug)]
struct Done {
    connection: u32,
    command: &'static str,
    request: u64,
    reply: u64,
    /// In ns.
    latency: i64,
    owner: Option<(&'static str, i64)>,
}

/// Memory of an exchange.
const DONE: u64 = 96;

/// Limit of the slowest requests in the report.
const SLOWEST: usize = 100;

/// The slowest requests.
fn slowest<'e>(done: impl Iterator<Item = (&'e u64, &'e Done)>) -> String {
    let mut list: Vec<(&u64, &Done)> = done.collect();
    list.sort_unstable_by_key(|(id, done)| (std::cmp::Reverse(done.latency), **id));
    let mut out = format!("\n# Requests by time\n{} requests were answered", list.len());
    out.push_str(if list.len() > SLOWEST { "; those that took longest:\n" } else { "\n" });
    for (_, done) in list.iter().take(SLOWEST) {
        let Done { connection, command, request, reply, latency, owner } = done;
        let latency = Elapsed(*latency).to_string();
        let _ = write!(out, "frame {request:<8} {latency:>10}  {command}, connection {connection}, reply in {reply}");
        if let Some((owner, time)) = owner {
            let _ = write!(out, "; {}: {}", owner.replace('_', " "), Elapsed(*time));
        }
        out.push('\n');
    }
    out
}

/// Observer of complete exchanges.
#[derive(Clone, Debug, Default)]
struct Exchanges {
    done: HashMap<u64, Done>,
    max: usize,
}

impl Sink for Exchanges {
    fn exchange(&mut self, exchange: &Exchange) {
        if let Some(end) = exchange.reply_end
            && self.done.len() < self.max
        {
            let owner = exchange.time.largest().map(|(owner, time)| (owner.name(), time));
            let done = Done {
                connection: exchange.connection,
                command: exchange.command,
                request: exchange.request.frame,
                reply: end.frame,
                latency: end.since(exchange.request),
                owner,
            };
            self.done.insert(exchange.id, done);
        }
    }
}

/// Place of the facts of a frame.
#[derive(Clone, Copy, Debug)]
struct Entry {
    number: u64,
    /// Their end; they begin where those of the previous frame end.
    end: u64,
}

/// Memory of an entry.
const ENTRY: u64 = size_of::<Entry>() as u64;

/// Messages of one frame that are not contiguous in it.
#[derive(Debug, Default)]
struct Apart {
    by_frame: BTreeMap<u64, Vec<Vec<u8>>>,
    bytes: u64,
    dropped: u64,
}

impl Apart {
    fn keep(&mut self, number: u64, messages: Vec<Vec<u8>>, max: u64) {
        self.bytes += messages.iter().map(|m| m.len() as u64).sum::<u64>();
        self.by_frame.insert(number, messages);
        while self.bytes > max
            && let Some((oldest, _)) = self.by_frame.first_key_value()
        {
            let oldest = *oldest;
            self.dropped += 1;
            self.forget(oldest);
        }
    }

    fn forget(&mut self, number: u64) {
        if let Some(gone) = self.by_frame.remove(&number) {
            self.bytes -= gone.iter().map(|m| m.len() as u64).sum::<u64>();
        }
    }
}

/// One analysis of one capture. See the [crate](crate).
#[derive(Debug)]
pub struct Engine {
    pipeline: Pipeline<Exchanges>,
    options: Options,
    facts: Facts,
    /// The buffer that is returned.
    out: Writer,
    link: LinkType,
    kept: Vec<u8>,
    frames: Vec<Entry>,
    not_kept: u64,
    apart: Apart,
    /// For each connection and sender: true if a reader that counts every copy reassembles the next message wrongly.
    misled: HashMap<u32, [bool; 2]>,
    /// TCP connections already reported to carry MPA.
    mpa: HashSet<u32>,
    settled: Option<(u64, bool, Settled)>,
    /// Exchanges that are complete only if the capture ends here.
    last_exchanges: HashMap<u64, Done>,
    names: Names,
}

/// Fields that are added or changed later.
#[derive(Debug)]
struct Names {
    connection: u16,
    exchange: u16,
    finding: u16,
    id: u16,
    severity: u16,
    section: u16,
    by: u16,
    certainty: u16,
    text: u16,
    reply: u16,
    owner: u16,
    owner_time: u16,
    session: u16,
    channel: u16,
    channels: u16,
    episode: u16,
    cnp: u16,
}

impl Names {
    fn new() -> Self {
        let of = |name: &str| facts::field(&format!("rdmascope.{name}"));
        Self {
            connection: of("connection"),
            exchange: of("exchange"),
            finding: of("finding"),
            id: of("finding.id"),
            severity: of("finding.severity"),
            section: of("finding.section"),
            by: of("finding.by"),
            certainty: of("finding.certainty"),
            text: of("finding.text"),
            reply: of("exchange.reply"),
            owner: of("exchange.owner"),
            owner_time: of("exchange.owner.time"),
            session: of("session"),
            channel: of("session.channel"),
            channels: of("session.channels"),
            episode: of("episode"),
            cnp: of("cnp"),
        }
    }
}

/// Replies are not decoded here.
struct Nothing;

impl Known for Nothing {
    fn smb2(&mut self, _message_id: u64) -> Option<RequestMemo> {
        None
    }

    fn rpc(&mut self, _xid: u32) -> Option<Memo> {
        None
    }
}

impl Engine {
    /// An engine for one capture.
    ///
    /// # Errors
    /// The keys cannot be read. The error names the line and never its content.
    pub fn new(options: Options) -> Result<Self, String> {
        let mut keyring = Keyring::new();
        keyring.add_file(&options.keys).map_err(|e| format!("keys: {e}"))?;
        let analysis = Analysis { keyring, check_crc: options.check_crc, ..Analysis::default() };
        let max = usize::try_from(options.memory_max / 4 / DONE).unwrap_or(usize::MAX);
        Ok(Self {
            pipeline: Pipeline::with_sink(analysis, Exchanges { done: HashMap::new(), max }),
            options,
            facts: Facts::default(),
            out: Writer::default(),
            link: LinkType::ETHERNET,
            kept: Vec::new(),
            frames: Vec::new(),
            not_kept: 0,
            apart: Apart::default(),
            misled: HashMap::new(),
            mpa: HashSet::new(),
            settled: None,
            last_exchanges: HashMap::new(),
            names: Names::new(),
        })
    }

    /// The facts about a frame. For a frame that was fed before: the stored ones, with later knowledge.
    ///
    /// # Errors
    /// The frame was skipped before, or its facts were not stored.
    pub fn frame(&mut self, frame: &Frame<'_>) -> Result<&[u8], Error> {
        if self.frames.last().is_some_and(|last| frame.number <= last.number) {
            return self.facts(frame.number);
        }
        let Frame { number, time_ns, wire_len, bytes, .. } = *frame;
        let link_type = match frame.link_type {
            Some(link) => LinkType(link),
            None => guess(bytes, wire_len, self.link),
        };
        self.link = link_type;
        self.facts.begin(bytes, false);
        let options = self.pipeline.decode_options();
        let packet = frame::decode(link_type, bytes, wire_len, &options, &mut self.facts);
        self.pipeline.packet(
            &FrameMeta { number, time_ns, link_type, wire_len, interface: 0 },
            &packet,
            &mut self.facts,
        );
        if packet.cut > 0 {
            self.facts.leave_smb2();
        }
        self.facts.finish_smb2();
        let made = self.pipeline.facts();
        let (mut flags, trouble) = (0, self.facts.has_trouble);
        match &packet.body {
            Body::Tcp(segment) => {
                flags |= self.mpa_of(segment, made.place);
                flags |= if segment.flags & 2 != 0 { facts::SYN } else { 0 };
            }
            Body::Ib(ib) if made.layer == Layer::Cnp => {
                self.facts.writer.number(self.names.cnp, 0, ib.bth.dest_qp.into());
                self.facts.has_decoded = true;
            }
            _ => {}
        }
        let is_misled = self.misled(made.place, trouble);
        for (on, flag) in [
            (made.retransmission, facts::AGAIN),
            (self.facts.has_finding, facts::FINDING),
            (self.facts.has_decoded || is_misled, facts::DECODED),
        ] {
            flags |= if on { flag } else { 0 };
        }
        let messages = std::mem::take(&mut self.facts.apart);
        if !messages.is_empty() {
            self.apart.keep(number, messages, self.options.messages_max);
        }
        let is_empty = self.facts.writer.is_empty() && flags == 0;
        let least = if self.facts.has_smb_direct { Layer::SmbDirect } else { Layer::Other };
        let layer = made.layer.max(least) as u8;
        let encoded = self.facts.writer.finish(layer, flags);
        let has_room =
            self.kept.len() as u64 + (self.frames.len() as u64 + 1) * ENTRY + encoded.len() as u64 + self.apart.bytes
                <= self.options.memory_max / 4 * 3;
        if !has_room {
            self.not_kept += 1;
        } else if !is_empty {
            self.kept.extend_from_slice(encoded);
        }
        // each frame has an entry, even without room for facts: 16 bytes
        let end = self.kept.len() as u64 | if has_room { 0 } else { NO_ROOM };
        self.frames.push(Entry { number, end });
        Ok(encoded)
    }

    /// Flags about MPA on a segment's connection, if they were not reported before.
    fn mpa_of(&mut self, segment: &Segment<'_>, place: Option<(u32, End)>) -> u8 {
        let connection = place.map_or(0, |(connection, _)| connection);
        match self.facts.has_mpa {
            true if self.mpa.len() >= MPA_MAX => facts::MPA,
            true if self.mpa.insert(connection) => facts::MPA,
            false
                if segment.payload_length > 0
                    && (segment.src_port == SMB_DIRECT_PORT || segment.dst_port == SMB_DIRECT_PORT)
                    && !self.mpa.contains(&connection) =>
            {
                facts::NO_MPA
            }
            _ => 0,
        }
    }

    /// True if a reader that counts every copy reassembles the SMB2 message that ends in the current frame wrongly.
    fn misled(&mut self, place: Option<(u32, End)>, trouble: bool) -> bool {
        let (Some((connection, sender)), true) = (place, trouble || self.facts.ended.is_some()) else { return false };
        if trouble && self.misled.len() < MISLED_MAX {
            self.misled.insert(connection, [true; 2]);
        }
        let (Some(reassembled), Some(misled)) = (self.facts.ended, self.misled.get_mut(&connection)) else {
            return false;
        };
        let was = std::mem::take(&mut misled[sender.index()]);
        if was && reassembled {
            self.facts.mark_apart();
        }
        was && reassembled
    }

    fn kept(&self, number: u64) -> Result<&[u8], Error> {
        let first = self.frames.first().ok_or(Error::Unknown)?.number;
        // frame numbers usually have no gaps
        let direct = usize::try_from(number.wrapping_sub(first))
            .ok()
            .filter(|at| self.frames.get(*at).is_some_and(|e| e.number == number));
        let at = match direct {
            Some(at) => at,
            None => self.frames.binary_search_by_key(&number, |e| e.number).map_err(|_| Error::Unknown)?,
        };
        let end = self.frames[at].end;
        if end & NO_ROOM != 0 {
            return Err(Error::NotKept);
        }
        let begin = at.checked_sub(1).map_or(0, |before| self.frames[before].end & !NO_ROOM);
        Ok(&self.kept[begin as usize..end as usize])
    }

    /// The facts about a frame that was fed, with later knowledge.
    ///
    /// # Errors
    /// The frame was not fed, or its facts were not stored.
    pub fn facts(&mut self, number: u64) -> Result<&[u8], Error> {
        let mut out = std::mem::take(&mut self.out);
        let (layer, flags) = match self.kept(number) {
            Ok(encoded) => self.compose(number, encoded, &mut out),
            Err(e) => {
                self.out = out;
                return Err(e);
            }
        };
        self.out = out;
        Ok(self.out.finish(layer, flags))
    }

    fn compose(&self, number: u64, encoded: &[u8], out: &mut Writer) -> (u8, u8) {
        let names = &self.names;
        out.begin();
        let settled = self.settled.as_ref().map(|(.., settled)| settled);
        let mut connection = None;
        let mut findings: Vec<[Item<'_>; 6]> = Vec::new();
        let mut list = facts::items(encoded).peekable();
        while let Some(item) = list.next() {
            if item.field == names.finding {
                let mut parts = [item; 6];
                while let Some(part) = list.next_if(|part| part.depth > item.depth) {
                    let places = [names.id, names.severity, names.section, names.by, names.certainty, names.text];
                    if let Some(place) = places.iter().position(|field| *field == part.field) {
                        parts[place] = part;
                    }
                }
                findings.push(parts);
                continue;
            }
            out.copy(&item);
            if item.field == names.connection {
                connection = Some(item.number() as u32);
            } else if item.field == names.exchange {
                self.exchange(item.number(), number, item.depth, out);
            }
        }
        let mut is_finding = !findings.is_empty();
        let mut flags = facts::flags(encoded) & !(facts::FINDING | facts::HAS_FACTS);
        if let Some(settled) = settled {
            flags |= facts::SETTLED;
            if let Some(connection) = connection {
                for channel in settled.channels(connection) {
                    out.number(names.session, 0, channel.session);
                    out.number(names.channel, 0, channel.channel.into());
                    out.number(names.channels, 0, channel.of.into());
                }
                settled
                    .episodes(number, connection)
                    .for_each(|text| out.text(names.episode, 0, format_args!("{text}")));
            }
            is_finding = self.findings(number, connection, settled, &findings, out);
        } else {
            findings.iter().for_each(|finding| self.copy_finding(finding, out));
        }
        flags |= if is_finding { facts::FINDING } else { 0 };
        (encoded.get(2).copied().unwrap_or(0), flags)
    }

    /// A finding as it was reported with its frame.
    fn copy_finding(&self, parts: &[Item<'_>; 6], out: &mut Writer) {
        out.item(self.names.finding, facts::NONE, 0, None, &[]);
        parts.iter().for_each(|part| out.copy(part));
    }

    /// True if the settled findings are final for this frame: the capture had ended, and included it.
    fn is_over(&self, number: u64) -> bool {
        let last = |fed: u64| self.frames.get((fed as usize).checked_sub(1)?).map(|entry| entry.number);
        self.settled.as_ref().is_some_and(|(fed, at_end, _)| *at_end && last(*fed).is_some_and(|last| number <= last))
    }

    /// The final findings: those of the frame that did not hold are left out, and later ones follow. Before the end,
    /// findings without further knowledge stay as they were reported.
    fn findings(
        &self,
        number: u64,
        connection: Option<u32>,
        settled: &Settled,
        told: &[[Item<'_>; 6]],
        out: &mut Writer,
    ) -> bool {
        let is_over = self.is_over(number);
        let mut shown: Vec<(Rule, Blame)> = Vec::new();
        for parts in told {
            let [id, _, _, by, _, text] = parts;
            let (Some(rule), Some(by)) = (Rule::from_id(id.text()), blame(by.text())) else { continue };
            if let Some(late) = settled.of_frame(number, rule, by, connection) {
                let text = if late.frame == number && !shown.contains(&(rule, by)) { &late.text } else { text.text() };
                self.finding(late, format_args!("{text}"), out);
            } else if is_over {
                continue;
            } else {
                self.copy_finding(parts, out);
            }
            shown.push((rule, by));
        }
        for late in settled.at(number) {
            if !shown.contains(&(late.rule, late.by)) {
                let Late { frame, text, .. } = late;
                match *frame == number {
                    true => self.finding(late, format_args!("{text}"), out),
                    false => self.finding(late, format_args!("did so again; in frame {frame}: {text}"), out),
                }
                shown.push((late.rule, late.by));
            }
        }
        !shown.is_empty()
    }

    fn finding(&self, late: &Late, text: fmt::Arguments<'_>, out: &mut Writer) {
        let (names, row) = (&self.names, late.rule.row());
        out.item(names.finding, facts::NONE, 0, None, &[]);
        for (field, word) in [
            (names.id, row.id),
            (names.severity, late.severity.name()),
            (names.section, row.spec),
            (names.by, late.by.name()),
            (names.certainty, late.certainty.name()),
        ] {
            out.text(field, 1, format_args!("{word}"));
        }
        out.text(names.text, 1, text);
    }

    fn exchange(&self, id: u64, number: u64, depth: u8, out: &mut Writer) {
        let done = self.last_exchanges.get(&id).or_else(|| self.exchanges().get(&id));
        let Some(done) = done else { return };
        if done.request == number {
            out.number(self.names.reply, depth, done.reply);
        }
        if (done.request == number || done.reply == number)
            && let Some((owner, time)) = done.owner
        {
            out.text(self.names.owner, depth, format_args!("{owner}"));
            out.time(self.names.owner_time, depth, time);
        }
    }

    fn exchanges(&self) -> &HashMap<u64, Done> {
        &self.pipeline.listener().done
    }

    /// Settles findings, sessions and episodes as if no more frames came; with `at_end` also as if the capture had
    /// ended, so that open requests are unanswered. More frames may follow, and it can be called again.
    pub fn settle(&mut self, at_end: bool) {
        let fed = self.frames.len() as u64;
        if self.settled.as_ref().is_some_and(|(frames, was, _)| (*frames, *was) == (fed, at_end)) {
            return;
        }
        // the report is made from a copy, so that the analysis can go on
        let mine = std::mem::take(self.pipeline.sink());
        let mut settled = if at_end {
            let mut copy = self.pipeline.clone();
            copy.sink().max = mine.max;
            let (report, last) = copy.finish();
            self.last_exchanges = last.done;
            Settled::of(&report)
        } else {
            self.last_exchanges.clear();
            Settled::of(&self.pipeline.snapshot())
        };
        let late = self.last_exchanges.iter().filter(|(id, _)| !mine.done.contains_key(id));
        settled.text.push_str(&slowest(mine.done.iter().chain(late)));
        *self.pipeline.sink() = mine;
        self.settled = Some((fed, at_end, settled));
    }

    /// Number of frames at the last [`Engine::settle`].
    pub fn settled(&self) -> u64 {
        self.settled.as_ref().map_or(0, |(frames, ..)| *frames)
    }

    /// The report as text, as of the last [`Engine::settle`]; empty before it.
    pub fn report(&self) -> &str {
        self.settled.as_ref().map_or("", |(.., settled)| &settled.text)
    }

    /// A message of a frame that is not contiguous in it, by its number in [`facts::APART`].
    pub fn message(&self, number: u64, index: u32) -> Option<&[u8]> {
        self.apart.by_frame.get(&number)?.get(index as usize).map(Vec::as_slice)
    }

    /// Drops the messages of a frame.
    pub fn forget(&mut self, number: u64) {
        self.apart.forget(number);
    }

    /// The facts about an SMB Direct message; places are offsets in it.
    pub fn smb_direct(&mut self, message: &[u8]) -> &[u8] {
        self.facts.begin(message, true);
        rdmascope_analyzer::smbd::show(message, &mut Nothing, &mut self.facts);
        self.facts.writer.finish(Layer::SmbDirect as u8, 0)
    }

    /// The counters.
    pub fn status(&self) -> Status {
        Status {
            frames: self.frames.len() as u64,
            last: self.frames.last().map_or(0, |last| last.number),
            memory: self.kept.len() as u64
                + self.frames.len() as u64 * ENTRY
                + self.apart.bytes
                + self.exchanges().len() as u64 * DONE,
            not_kept: self.not_kept,
            messages_dropped: self.apart.dropped,
        }
    }
}

/// In [`Entry::end`]: no facts of this frame are stored.
const NO_ROOM: u64 = 1 << 63;
/// Limit of connections stored as wrongly reassembled by other readers.
const MISLED_MAX: usize = 4096;
/// Limit of connections stored as MPA; on others it is reported for each segment.
const MPA_MAX: usize = 1 << 16;
/// Port of SMB Direct over iWARP, \[MS-SMBD\] 1.9.
const SMB_DIRECT_PORT: u16 = 5445;

fn blame(name: &str) -> Option<Blame> {
    [Blame::Client, Blame::Server, Blame::Network, Blame::Capture, Blame::Unknown]
        .into_iter()
        .find(|b| b.name() == name)
}
