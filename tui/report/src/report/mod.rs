//! The results of an analysis, prepared for a reader: equal findings of several connections are joined, connections get
//! an outcome, and the important ones are chosen. The formats [`text`], [`json`] and [`html`] only arrange the result.

pub mod answer;
pub mod html;
pub mod json;
pub mod ladder;
pub mod schema;
pub mod sessions;
pub mod summary;
pub mod text;
pub mod words;

use crate::analysis::{Analysis, InputSummary};
use rdmascope_analyzer::exchange::{Exchange, Family, Status};
use rdmascope_analyzer::finding::{Blame, Certainty, Finding, Rule, Severity};
use rdmascope_analyzer::op::{At, End};
use rdmascope_analyzer::outcome::{Ending, Outcome, Success};
use rdmascope_analyzer::report::{self as analyzed, Connection, Handshake, Parts, Protocol, Report, Sink, Transport};
use rdmascope_analyzer::roots;
use rdmascope_analyzer::session::{self, Session};
use rdmascope_dissector::filter::closest;
use rdmascope_dissector::wire::smb2::negotiate::Dialect;
use std::collections::HashMap;
use std::fmt;
use words::{Tone, and, count, duration, grouped};

/// Maximum number of rows of `--exchanges` and points of `--credits`, over all connections.
const DETAILS_MAX: u64 = 2_000_000;

/// Pairs of command and status counted per connection.
const FAILURES_MAX: usize = 256;

/// One analysis, ready to be shown.
#[derive(Debug, Default)]
pub struct ReportData {
    /// Findings of the analyzer.
    pub report: Report,
    /// Summary of each input.
    pub inputs: Vec<InputSummary>,
    /// Number of frames that the capturing machine reports as lost.
    pub lost_frames: u64,
    /// Counters of RDMA devices while it was captured.
    pub hardware: rdmascope_capture::Hardware,
    /// The display filter and how many frames it passes.
    pub filter: Option<(String, u64)>,
    /// Sessions and mounts over their connections.
    pub sessions: Vec<Session>,
    /// By place in [`Report::connections`].
    pub details: Vec<Detail>,
    /// The optional parts that were requested with `--exchanges` and `--credits`.
    pub wanted: Wanted,
    /// Rows and points that found no room.
    pub details_dropped: u64,
    /// Findings to be ignored, with the number of occurrences.
    pub ignored: Vec<(Ignore, u64)>,
    /// The manual with a page for every finding, if its address is known.
    pub manual: Option<Manual>,
}

/// Address of the manual; it ends with a slash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manual(String);

impl Manual {
    /// An address that a browser opens: `https:`, `http:` or `file:`.
    ///
    /// # Errors
    /// A description of the problem with the address.
    pub fn parse(text: &str) -> Result<Self, String> {
        let scheme = ["https://", "http://", "file:///"].iter().find(|scheme| text.starts_with(**scheme));
        let rest = scheme.and_then(|scheme| text.strip_prefix(scheme));
        match rest {
            None | Some("") => {
                Err("is not an address such as https://host/rdmascope or file:///usr/share/doc/rdmascope".to_owned())
            }
            Some(rest) if rest.contains(|c: char| c.is_control() || c.is_whitespace() || "\"'<>?#".contains(c)) => {
                Err("has a character that the address of a folder has not".to_owned())
            }
            Some(_) => Ok(Self(format!("{}/", text.trim_end_matches('/')))),
        }
    }

    /// The page of a finding.
    pub fn page(&self, rule: Rule) -> String {
        format!("{}findings/{}.html", self.0, rule.id())
    }
}

/// Findings that the user knows about and does not want to see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ignore {
    /// The rule.
    pub rule: Rule,
    /// The side to blame; `None`: any side.
    pub by: Option<Blame>,
}

impl Ignore {
    /// Parses `ID` or `ID:SIDE`, where a side is client, server, network, capture or unknown.
    ///
    /// # Errors
    /// If the rule or the side is not known.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (id, side) = text.split_once(':').map_or((text, None), |(id, side)| (id, Some(side)));
        let rule = Rule::from_id(id).ok_or_else(|| match closest(id, Rule::all().map(|rule| rule.id())) {
            Some(near) => format!("{id} is not a rule; did you mean {near}?"),
            None => format!("{id} is not a rule; rdmascope explain lists all"),
        })?;
        let side_of = |name: &str| SIDES.into_iter().find(|b| b.name().eq_ignore_ascii_case(name));
        let by = match side {
            None => None,
            Some(name) => Some(
                side_of(name)
                    .ok_or_else(|| format!("{name} is none of client, server, network, capture and unknown"))?,
            ),
        };
        Ok(Self { rule, by })
    }

    fn covers(&self, finding: &Finding) -> bool {
        self.is_about(finding.rule, finding.by)
    }

    fn is_about(&self, rule: Rule, by: Blame) -> bool {
        rule == self.rule && self.by.is_none_or(|mine| mine == by)
    }
}

impl fmt::Display for Ignore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.by {
            Some(by) => write!(f, "{}:{}", self.rule.id(), by.name()),
            None => f.write_str(self.rule.id()),
        }
    }
}

/// Sides that can be to blame for a finding.
const SIDES: [Blame; 5] = [Blame::Client, Blame::Server, Blame::Network, Blame::Capture, Blame::Unknown];

/// Lists that are made only on request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted {
    /// Each request.
    pub exchanges: bool,
    /// Credits after each message.
    pub credits: bool,
}

/// Details of one connection beyond the analyzer's own report.
#[derive(Clone, Debug, Default)]
pub struct Detail {
    /// The last request.
    pub last: Option<Brief>,
    /// Failed requests: command, status, how many; the most frequent first.
    pub failures: Vec<(&'static str, String, u64)>,
    /// With `--exchanges`, every one.
    pub exchanges: Vec<Exchange>,
    /// With `--credits`: the place, and the credits of client and server.
    pub timeline: Vec<(At, Option<i64>, Option<i64>)>,
}

/// A request in a few words.
#[derive(Clone, Debug)]
pub struct Brief {
    /// MessageId or XID.
    pub id: u64,
    /// Its command or procedure.
    pub command: &'static str,
    /// The protocol that it belongs to.
    pub family: Family,
    /// When it was sent.
    pub request: At,
    /// When it was answered.
    pub reply: Option<At>,
    /// Status of the reply.
    pub status: Option<u32>,
    /// True if that is an error.
    pub failed: bool,
}

impl Brief {
    fn of(exchange: &Exchange) -> Self {
        Self {
            id: exchange.id,
            command: exchange.command,
            family: exchange.family,
            request: exchange.request,
            reply: exchange.reply_end,
            status: exchange.status,
            failed: exchange.failed,
        }
    }
}

/// Collects data from an analysis that the reports need in addition to the analyzer's report.
#[derive(Debug, Default)]
pub struct Collector {
    wanted: Wanted,
    by_connection: HashMap<u32, Collected>,
    kept: u64,
    dropped: u64,
}

#[derive(Debug, Default)]
struct Collected {
    last: Option<Brief>,
    failures: HashMap<(&'static str, Family, u32), u64>,
    exchanges: Vec<Exchange>,
    credits: Vec<(At, [Option<i64>; 2])>,
}

impl Collector {
    /// Makes a collector for the requested lists.
    pub fn new(wanted: Wanted) -> Self {
        Self { wanted, ..Self::default() }
    }

    fn has_room(&mut self) -> bool {
        let has_room = self.kept < DETAILS_MAX;
        *(if has_room { &mut self.kept } else { &mut self.dropped }) += 1;
        has_room
    }
}

impl Sink for Collector {
    fn exchange(&mut self, exchange: &Exchange) {
        let keep = self.wanted.exchanges && self.has_room();
        if self.by_connection.len() >= analyzed_connections_max()
            && !self.by_connection.contains_key(&exchange.connection)
        {
            return;
        }
        let heard = self.by_connection.entry(exchange.connection).or_default();
        if heard.last.as_ref().is_none_or(|last| last.id < exchange.id) {
            heard.last = Some(Brief::of(exchange));
        }
        if let Some(code) = exchange.status.filter(|_| exchange.failed) {
            let key = (exchange.command, exchange.family, code);
            if heard.failures.len() < FAILURES_MAX || heard.failures.contains_key(&key) {
                *heard.failures.entry(key).or_default() += 1;
            }
        }
        if keep {
            heard.exchanges.push(exchange.clone());
        }
    }

    fn forgotten(&mut self, connection: u32) {
        self.by_connection.remove(&connection);
    }

    fn credits(&mut self, connection: u32, at: At, held: [Option<i64>; 2]) {
        if !self.wanted.credits || !self.has_room() {
            return;
        }
        self.by_connection.entry(connection).or_default().credits.push((at, held));
    }
}

impl Parts for Collector {
    fn part(&self) -> Self {
        Self::new(self.wanted)
    }

    fn join(&mut self, part: Self) -> bool {
        self.by_connection.extend(part.by_connection);
        self.kept += part.kept;
        self.dropped += part.dropped;
        self.dropped == 0 && self.kept <= DETAILS_MAX && self.by_connection.len() < analyzed_connections_max()
    }

    fn exchange_numbers(&mut self, each: &mut dyn FnMut(&mut u64)) {
        for heard in self.by_connection.values_mut() {
            heard.last.iter_mut().for_each(|last| each(&mut last.id));
            heard.exchanges.iter_mut().flat_map(Exchange::numbers).for_each(&mut *each);
        }
    }
}

/// Connections of which the last request is remembered: ten times those that a report has.
const fn analyzed_connections_max() -> usize {
    100_000
}

impl ReportData {
    /// Prepares an analysis, reduced to the part that the filter chose.
    pub fn new(analysis: Analysis<Collector>) -> (Self, Option<rdmascope_capture::Error>) {
        let Analysis { mut report, mut sink, inputs, lost_frames, hardware, selection, error } = analysis;
        let mut filter = None;
        if let Some(selection) = selection {
            let chosen: Vec<u32> =
                report.connections.iter().filter(|c| selection.has_connection(&c.followed_as)).map(|c| c.id).collect();
            report.connections.retain(|c| chosen.contains(&c.id));
            report.findings.retain(|f| selection.has_finding(f, f.connection.is_some_and(|id| chosen.contains(&id))));
            // the slowest of all need not be among those that it passes
            let number = |id: u32| report.connections.iter().find(|c| c.followed_as.contains(&id)).map_or(0, |c| c.id);
            report.slowest =
                selection.slowest.iter().map(|e| Exchange { connection: number(e.connection), ..e.clone() }).collect();
            report.sessions.retain(|(_, channels)| channels.iter().any(|id| chosen.contains(id)));
            report.paths.retain(|path| path.connections.iter().any(|id| chosen.contains(id)));
            for heard in sink.by_connection.values_mut() {
                heard.exchanges.retain(|e| selection.has_exchange(e));
            }
            filter = Some((selection.text, selection.frames));
        }
        let sessions = session::sessions(&report);
        // a session id that appears again on a later connection is a new session with an old number
        let spans: HashMap<u32, (At, At)> = report.connections.iter().map(|c| (c.id, (c.first, c.last))).collect();
        for (_, channels) in &mut report.sessions {
            let overlaps = |a: &u32, b: &u32| {
                a != b && spans.get(a).zip(spans.get(b)).is_some_and(|(a, b)| a.0 < b.1 && b.0 < a.1)
            };
            let all = channels.clone();
            channels.retain(|a| all.len() == 1 || all.iter().any(|b| overlaps(a, b)));
        }
        let details = report
            .connections
            .iter()
            .map(|connection| {
                let mut detail = Detail::default();
                for id in &connection.followed_as {
                    let Some(heard) = sink.by_connection.remove(id) else { continue };
                    if let Some(last) = heard.last
                        && detail.last.as_ref().is_none_or(|l| l.id < last.id)
                    {
                        detail.last = Some(last);
                    }
                    detail.failures.extend(
                        heard
                            .failures
                            .into_iter()
                            .map(|((command, family, code), n)| (command, status(family, code), n)),
                    );
                    detail.exchanges.extend(heard.exchanges);
                    let client = connection.client_end.unwrap_or(End::A).index();
                    detail
                        .timeline
                        .extend(heard.credits.into_iter().map(|(at, held)| (at, held[client], held[1 - client])));
                }
                detail.failures.sort_by(|a, b| b.2.cmp(&a.2).then_with(|| (a.0, &a.1).cmp(&(b.0, &b.1))));
                detail.exchanges.sort_by_key(|e| e.id);
                for exchange in &mut detail.exchanges {
                    exchange.connection = connection.id;
                }
                detail.timeline.sort_by_key(|(at, ..)| *at);
                detail
            })
            .collect();
        let (wanted, details_dropped) = (sink.wanted, sink.dropped);
        (
            Self {
                sessions,
                report,
                inputs,
                lost_frames,
                hardware,
                filter,
                details,
                wanted,
                details_dropped,
                ignored: Vec::new(),
                manual: None,
            },
            error,
        )
    }

    /// Removes ignored findings: they are counted, but not shown and not used for the verdict.
    pub fn ignore(&mut self, what: &[Ignore]) {
        self.ignored = take_ignored(&mut self.report, what);
    }

    /// Time of the first frame, ns since the Unix epoch.
    pub fn start(&self) -> i64 {
        self.report.capture.first.map_or(0, |at| at.time)
    }

    /// From the first frame to the last, ns.
    pub fn length(&self) -> i64 {
        self.report.capture.last.map_or(0, |at| at.time.saturating_sub(self.start()))
    }

    /// The connection with this number.
    pub fn connection(&self, id: u32) -> Option<&Connection> {
        self.report.connections.iter().find(|c| c.id == id)
    }

    /// The connections that a reader is interested in: all but TCP connections that carry no storage.
    pub fn storage(&self) -> impl Iterator<Item = (&Connection, &Detail)> {
        self.report.connections.iter().zip(&self.details).filter(|(c, _)| is_storage(c))
    }

    /// Other connections: how many.
    pub fn others(&self) -> usize {
        self.report.connections.iter().filter(|c| !is_storage(c)).count()
    }

    /// Carriers and contents of the storage connections, in a few words each.
    pub fn kinds(&self) -> Vec<&'static str> {
        let mut kinds = Vec::new();
        let has_rdma = self.storage().any(|(c, _)| c.transport != Some(Transport::Tcp));
        // if there is RDMA, the calls that prepare a mount over TCP do not name the capture: NFS itself over TCP does
        let is_named = |c: &Connection| {
            !has_rdma || c.transport != Some(Transport::Tcp) || c.protocol != Protocol::Rpc || carries_nfs(c)
        };
        let shown = || self.storage().map(|(c, _)| c).filter(|c| is_named(c));
        let carriers = shown().filter_map(|c| c.transport).map(Transport::name);
        let contents = shown().map(|c| c.protocol).filter(|p| *p != Protocol::Unknown).map(Protocol::name);
        for kind in carriers.collect::<Vec<_>>().into_iter().chain(contents) {
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        kinds
    }

    /// Findings by their causes, the most important first.
    pub fn entries(&self) -> Vec<Entry<'_>> {
        roots::roots(&self.report)
    }

    /// The gravest of these; a connection that failed is an error, if that is no guess.
    pub fn worst(&self) -> Option<Severity> {
        let findings = self.entries().iter().map(|e| e.severity).max();
        let failed = surely_failed(&self.report, &self.ignored);
        findings.max((failed > 0).then_some(Severity::Error))
    }

    /// True if every input was read to its end.
    pub fn is_whole(&self) -> bool {
        self.inputs.iter().all(|input| input.error.is_none())
    }

    /// Number of connections that failed, that cannot be judged, and that have an outcome at all.
    pub fn outcomes(&self) -> [u64; 3] {
        outcomes(&self.report)
    }

    /// If connections or unfinished messages were dropped to stay within a limit: a message about it, with advice.
    pub(crate) fn let_go(&self) -> Option<String> {
        let connections = match self.forgotten("connections") {
            0 => None,
            1 => Some("1 connection was".to_owned()),
            n => Some(format!("{} connections were", grouped(n))),
        };
        let connections = connections.map(|who| {
            format!(
                "{who} dropped to stay within a limit: what each had open is lost, and one that goes on counts as \
                another. --max-connections and --memory raise the limits."
            )
        });
        let messages = match self.forgotten("unfinished messages") {
            0 => None,
            n => Some(format!(
                "Unfinished messages were dropped {} to stay within the memory limit: their contents are missing. \
                    --memory raises the \
                limit.",
                words::times(n)
            )),
        };
        let all: Vec<String> = connections.into_iter().chain(messages).collect();
        (!all.is_empty()).then(|| all.join(" "))
    }

    /// Number of entries that were dropped to stay within limits.
    pub(crate) fn forgotten(&self, what: &str) -> u64 {
        self.report.capture.dropped.iter().filter(|(name, _)| *name == what).map(|(_, n)| n).sum()
    }

    /// Number of findings of each severity, equal ones counted once: errors, warnings, notes.
    pub fn tally(entries: &[Entry<'_>]) -> [u64; 3] {
        let of = |severity| entries.iter().filter(|e| e.severity == severity).count() as u64;
        [of(Severity::Error), of(Severity::Warn), of(Severity::Note)]
    }
}

/// Number of connections that failed, if that is no guess, and for no reason that is ignored.
fn surely_failed(report: &Report, ignored: &[(Ignore, u64)]) -> u64 {
    let is_ignored =
        |o: &Outcome| o.cause.is_some_and(|(rule, by)| ignored.iter().any(|(ignore, _)| ignore.is_about(rule, by)));
    let is_one = |o: &&Outcome| o.failed() && o.certainty > Certainty::Guess && !is_ignored(o);
    report.connections.iter().filter_map(|c| c.outcome.as_ref()).filter(is_one).count() as u64
}

fn outcomes(report: &Report) -> [u64; 3] {
    let of = |wanted: fn(Success) -> bool| {
        let all = report.connections.iter().filter_map(|c| c.outcome.as_ref());
        all.filter(|o| wanted(o.success)).count() as u64
    };
    [of(|s| s == Success::No), of(|s| s == Success::Unknown), of(|_| true)]
}

/// True if something cannot be judged: the beginning or the end of a connection was not seen, there is no connection
/// that has an outcome, or something was dropped to stay within a limit.
pub fn is_partial(report: &Report) -> bool {
    // a failure that is only a guess may be none
    let is_guess = |o: &Outcome| o.failed() && o.certainty == Certainty::Guess;
    let is_unknown = |c: &Connection| c.outcome.as_ref().is_some_and(|o| o.success == Success::Unknown || is_guess(o));
    report.connections_dropped > 0
        || report.capture.dropped.iter().any(|(_, n)| *n > 0)
        || report.connections.iter().all(|c| c.outcome.is_none())
        || report.connections.iter().any(is_unknown)
}

/// Messages of connections with storage that are encrypted and could not be read.
pub fn unread(report: &Report) -> u64 {
    report.connections.iter().filter(|c| is_storage(c)).flat_map(|c| c.smb.sealed).map(|(n, _)| n).sum()
}

/// A report without errors and warnings, in a sentence. The mark is ✓ only if everything could be judged, else –.
/// `is_whole` is false if reading ended before the end of an input.
pub fn all_clear(report: &Report, is_whole: bool) -> (&'static str, String) {
    let frames = match is_whole && report.capture.unknown_link.is_none() {
        false => " in the frames that could be read",
        true if is_partial(report) => " in the captured frames",
        true => "",
    };
    match unread(report) {
        0 => (if frames.is_empty() { "✓" } else { "–" }, format!("No problems found{frames}.")),
        n => (
            "–",
            format!("No problems found{frames}, but {} could not be read (--keys).", count(n, "encrypted message")),
        ),
    }
}

/// Takes ignored findings out of a report. Returns the number of each.
pub fn take_ignored(report: &mut Report, what: &[Ignore]) -> Vec<(Ignore, u64)> {
    let mut ignored: Vec<(Ignore, u64)> = what.iter().map(|ignore| (*ignore, 0)).collect();
    if what.is_empty() {
        return ignored;
    }
    report.findings.retain(|finding| match ignored.iter_mut().find(|(ignore, _)| ignore.covers(finding)) {
        Some((_, count)) => {
            *count += 1;
            false
        }
        None => true,
    });
    ignored
}

/// Number of findings that were ignored, in a sentence: "Ignored as asked: 3 findings (RC-CNP 2, SMB2-ERROR:server 1)."
pub fn ignored_text(ignored: &[(Ignore, u64)]) -> Option<String> {
    let all: u64 = ignored.iter().map(|(_, n)| n).sum();
    let list: Vec<String> = ignored.iter().map(|(ignore, n)| format!("{ignore} {}", grouped(*n))).collect();
    (!list.is_empty()).then(|| format!("Ignored as asked: {} ({}).", count(all, "finding"), list.join(", ")))
}

/// First sentence of a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Headline {
    /// ✗, !, ✓, or – if no verdict is possible.
    pub mark: &'static str,
    /// Color of the headline.
    pub tone: Tone,
    /// Whole sentences: how many connections failed, how many findings there are.
    pub text: String,
    /// Number of connections that cannot be judged, as text, if that matters.
    pub unjudged: Option<String>,
}

/// How many frames could be decoded, in a few words; `None` if there are none.
pub(crate) fn decoded(data: &ReportData) -> Option<String> {
    let capture = &data.report.capture;
    match (capture.unknown_link, capture.undecoded) {
        _ if capture.frames == 0 => None,
        (Some((link, n)), _) if n == capture.frames => Some(format!("no frame decoded: link type {link} is not known")),
        (Some((link, n)), _) => Some(format!("{} of unknown link type {link} not decoded", count(n, "frame"))),
        (None, 0) => Some("all frames decoded".to_owned()),
        (None, n) => Some(format!("{} of followed connections not decoded", count(n, "frame"))),
    }
}

/// First sentence of a report; ✓ only if every connection reached its purpose and nothing was dropped.
pub fn headline(data: &ReportData, entries: &[Entry<'_>]) -> Headline {
    headline_of(&data.report, &data.ignored, data.filter.is_some(), data.is_whole(), entries)
}

/// The same of a report alone: what was ignored in it, whether a filter chose its part, and whether every input was read to its end.
pub fn headline_of(
    report: &Report,
    ignored: &[(Ignore, u64)],
    is_filtered: bool,
    is_whole: bool,
    entries: &[Entry<'_>],
) -> Headline {
    let [errors, warnings, notes] = ReportData::tally(entries);
    let [failed, unknown, all] = outcomes(report);
    let start = report.capture.first.map_or(0, |at| at.time);
    // of a failure that is a guess, the finding says so
    let surely = surely_failed(report, ignored);
    let is_ignored = surely < surely_failed(report, &[]);
    let noted = if notes > 0 { format!(" {}.", count(notes, "note")) } else { String::new() };
    let (mark, tone, text) = if !report.connections.iter().any(is_storage) && entries.is_empty() {
        let text = match (report.capture.frames, report.capture.unknown_link) {
            (0, _) => "The capture has no frames.".to_owned(),
            (all, Some((link, n))) if n == all => {
                format!("No frame could be decoded: link type {link} is not known.")
            }
            _ if is_filtered => "No storage over RDMA in the frames that pass the filter.".to_owned(),
            (_, Some(_)) => "No storage over RDMA in the frames that could be decoded.".to_owned(),
            _ => "No storage over RDMA in this capture.".to_owned(),
        };
        ("–", Tone::Strong, text)
    } else if errors > 0 || surely > 0 {
        let found: Vec<String> = [(errors, "error"), (warnings, "warning")]
            .into_iter()
            .filter(|(n, _)| *n > 0)
            .map(|(n, what)| count(n, what))
            .collect();
        let found = if found.is_empty() { String::new() } else { format!(" {}.", found.join(", ")) };
        let outcome = match (surely, all) {
            (0, _) => String::new(),
            (1, 1) => "The connection failed.".to_owned(),
            (n, all) => format!("{} of {} failed.", grouped(n), count(all, "connection")),
        };
        ("✗", Tone::Bad, format!("{outcome}{found}{noted}").trim_start().to_owned())
    } else if warnings > 0 {
        ("!", Tone::Warn, format!("No errors. {}.{noted}", count(warnings, "warning")))
    } else {
        let (mark, text) = match is_filtered {
            // what is wrong elsewhere is not in this report
            true => ("–", "No problems found in what passes the filter.".to_owned()),
            false if is_ignored => ("–", "No problems found besides what is ignored.".to_owned()),
            false => all_clear(report, is_whole),
        };
        (mark, if mark == "✓" { Tone::Good } else { Tone::Strong }, format!("{text}{noted}"))
    };
    let unjudged = (unknown > 0 && failed == 0 && errors == 0).then(|| match all {
        1 => match report
            .connections
            .iter()
            .filter_map(|c| c.outcome.as_ref())
            .find(|o| matches!(o.ending, Ending::Waiting { .. }))
        {
            Some(waiting) => format!("The connection cannot be judged: {}.", lowered(&waiting.sentence(start))),
            None => format!("The connection cannot be judged: {}.", unseen(report, true)),
        },
        all => {
            let unseen = unseen(report, false);
            format!("{} of {} cannot be judged: {unseen}.", grouped(unknown), count(all, "connection"))
        }
    });
    // without errors and warnings, the headline itself says so
    let unread = Some(unread(report)).filter(|n| *n > 0 && matches!(mark, "✗" | "!"));
    let unjudged =
        unjudged.or(unread.map(|n| format!("{} could not be read (--keys).", count(n, "encrypted message"))));
    Headline { mark, tone, text, unjudged }
}

/// What is not there of the connection that cannot be judged, or of those, as a clause.
fn unseen(report: &Report, is_one: bool) -> &'static str {
    let is_unknown = |c: &&Connection| c.outcome.as_ref().is_some_and(|o| o.success == Success::Unknown);
    let has_both_ends = |c: &Connection| c.handshake == Handshake::Seen && c.closed.is_some();
    let are_there = report.connections.iter().filter(is_unknown).all(has_both_ends);
    match (are_there, report.capture.cut > 0, is_one) {
        (false, _, true) => "its beginning or its end is not in the capture",
        (false, _, false) => "their beginning or end is not in the capture",
        (true, true, true) => "its frames were cut short in the capture",
        (true, true, false) => "their frames were cut short in the capture",
        (true, false, true) => "a part of it is not in the capture",
        (true, false, false) => "a part of them is not in the capture",
    }
}

/// A sentence as a clause.
fn lowered(sentence: &str) -> String {
    let mut rest = sentence.chars();
    let first = rest.next().map(|first| first.to_lowercase());
    first.into_iter().flatten().chain(rest).collect()
}

/// True if a connection carries storage, or may: RDMA of any kind, SMB2, RPC.
pub fn is_storage(connection: &Connection) -> bool {
    connection.transport != Some(Transport::Tcp)
        || connection.protocol != Protocol::Unknown
        || connection.outcome.is_some()
}

/// True if a connection carries calls of NFS other than NULL, which only asks whether somebody is there.
fn carries_nfs(connection: &Connection) -> bool {
    connection.nfs.version > 0 && connection.commands.iter().any(|c| !matches!(c.name, "" | "NULL"))
}

/// True if a connection ended before a single request was made on it.
pub fn came_to_nothing(connection: &Connection) -> bool {
    let is_rdma = connection.transport.is_some_and(Transport::is_rdma);
    is_rdma
        && connection.commands.is_empty()
        && !connection.smb.encrypted
        && (connection.closed.is_some() || connection.rejected.is_some())
}

/// One cause, with its consequences.
pub use rdmascope_analyzer::roots::Root as Entry;

/// What happened as a sentence that names the side to blame: of several connections on the one where it was seen most,
/// among those where it is gravest.
pub fn sentence(entry: &Entry<'_>, data: &ReportData) -> String {
    if entry.counts_failures() {
        return words::sentence(&entry.text());
    }
    let most = entry.findings.iter().rev().max_by_key(|f| (f.severity, f.certainty, f.count));
    let Some(most) = most else { return String::new() };
    let sentence = data.report.sentence(most);
    // a sentence that counts what it is about counts that of one connection
    let more = entry.count.saturating_sub(most.count);
    match sentence.strip_suffix('.') {
        Some(clause) if more > 0 && most.count > 0 && sentence.starts_with(&format!("{} ", grouped(most.count))) => {
            let others = count((entry.connections.len() as u64).saturating_sub(1), "other connection");
            format!("{clause}; {} more on {others}.", grouped(more))
        }
        _ => sentence,
    }
}

/// Text on how far a finding can be trusted; empty if it is certain.
pub const fn certainty_text(certainty: Certainty) -> &'static str {
    match certainty {
        Certainty::Certain => "",
        Certainty::IfNothingWasMissed => "Likely (assumes the capture is complete).",
        Certainty::Guess => "A guess, from the shape of the traffic.",
    }
}

/// Consequences of an entry, by rule; empty if there are none.
pub fn effects(entry: &Entry<'_>) -> String {
    let list: Vec<String> = entry
        .effects
        .iter()
        .map(|e| {
            let many = if e.count > 1 { format!(" ×{}", grouped(e.count)) } else { String::new() };
            format!("{}{many}", e.rule.id())
        })
        .collect();
    if list.is_empty() { String::new() } else { format!("With it: {}.", list.join(", ")) }
}

/// The part that a filter chose: "Filter smb2: 1,204 frames, 1 connection, 2 findings."
pub(crate) fn filtered(data: &ReportData) -> Option<String> {
    let (filter, frames) = data.filter.as_ref()?;
    let connections = count(data.report.connections.len() as u64, "connection");
    let findings = count(data.report.findings.len() as u64, "finding");
    Some(format!("Filter {}: {}, {connections}, {findings}.", shown(filter), count(*frames, "frame")))
}

/// The findings that were ignored.
pub(crate) fn ignored(data: &ReportData) -> Option<String> {
    ignored_text(&data.ignored)
}

/// The word for an end.
pub const fn side(end: usize) -> &'static str {
    if end == 0 { "client" } else { "server" }
}

/// 0x0311 as "SMB 3.1.1".
pub fn dialect(code: u16) -> String {
    Dialect(code).name().map_or_else(|| format!("SMB dialect {code:#06x}"), ToOwned::to_owned)
}

/// Protocols of a connection: "SMB 3.1.1 over SMB Direct over RoCEv2".
pub fn stack(connection: &Connection) -> String {
    let mut layers = Vec::new();
    match connection.protocol {
        Protocol::SmbDirect => {
            layers.extend(connection.smb.dialect.map(dialect));
            layers.push("SMB Direct".to_owned());
        }
        Protocol::RpcRdma => {
            if connection.commands.iter().any(|c| !c.name.is_empty()) {
                layers.push("NFS".to_owned());
            }
            layers.push("RPC-over-RDMA".to_owned());
        }
        Protocol::Smb2 => layers.push(connection.smb.dialect.map_or("SMB2".to_owned(), dialect)),
        Protocol::Rpc => layers.push("RPC".to_owned()),
        Protocol::Unknown => layers.push("nothing known".to_owned()),
    }
    layers.extend(connection.transport.map(|t| t.name().to_owned()));
    layers.join(" over ")
}

/// Both ends by address, the client first: "192.0.2.2 → 192.0.2.1".
pub fn ends(connection: &Connection) -> String {
    let [client, server] = connection.peers.map(|p| analyzed::address(&p.address));
    let arrow = if connection.client_known { "→" } else { "–" };
    format!("{client} {arrow} {server}")
}

/// Queue pairs or ports of both ends: "QP 0x11↔0x12", "port 40112→5445".
pub fn handles(connection: &Connection) -> String {
    let qp = |end: usize| connection.peers[end].qp.map_or("?".to_owned(), |qp| format!("{qp:#x}"));
    match connection.transport {
        Some(Transport::Iwarp | Transport::Tcp) => {
            let port = |end: usize| match connection.peers[end].port {
                0 => "?".to_owned(),
                port => port.to_string(),
            };
            format!("port {}→{}", port(0), port(1))
        }
        _ => format!("QP {}↔{}", qp(0), qp(1)),
    }
}

/// The side that ended a connection, and how it ended: "closed by the client (DREQ)"; "open at the end" if no side did.
pub fn ending(connection: &Connection) -> String {
    if let Some(reason) = &connection.rejected {
        return format!("rejected: {}", shown(reason));
    }
    match connection.closed {
        None => "open at the end".to_owned(),
        Some((by, how, _)) => {
            let verb = if how == "RST" { "reset" } else { "closed" };
            match by {
                Some(end) => format!("{verb} by {} ({how})", connection.the(end)),
                None => format!("{verb} ({how})"),
            }
        }
    }
}

/// Status of a reply by its name.
pub fn status(family: Family, code: u32) -> String {
    Status(family, code).to_string()
}

/// The last request of a connection that did not end well, and the events after it; `None` if all is well.
pub fn last_words(connection: &Connection, detail: &Detail) -> Option<String> {
    let last = detail.last.as_ref()?;
    let is_usual = matches!(
        last.command,
        "LOGOFF" | "TREE_DISCONNECT" | "CLOSE" | "ECHO" | "DESTROY_SESSION" | "DESTROY_CLIENTID" | "UMNT"
    );
    let sealed = connection.smb.sealed.iter().map(|(n, _)| n).sum::<u64>();
    let is_well = !last.failed && last.reply.is_some() && sealed == 0 && (is_usual || requests(connection) > FEW);
    if is_well || connection.protocol == Protocol::Rpc || connection.closed.is_none() && last.reply.is_some() {
        return None;
    }
    let mut text = format!("{} (frame {}) ", last.command, grouped(last.request.frame));
    match (last.reply, last.status) {
        (None, _) => text.push_str("was not answered"),
        (Some(at), Some(code)) if last.failed => {
            text.push_str(&format!("failed with {} (frame {})", status(last.family, code), grouped(at.frame)));
        }
        (Some(at), _) => text.push_str(&format!("was answered (frame {})", grouped(at.frame))),
    }
    let mut before = last.reply.unwrap_or(last.request);
    let newest = connection.smb.sealed.iter().filter_map(|(_, at)| *at).max();
    if sealed > 0 && newest.is_none_or(|newest| newest > before) {
        let of = |end: usize| match connection.smb.sealed[end] {
            (0, _) => format!("nothing whole from the {}", side(end)),
            (n, at) => {
                let frame = at.map_or(String::new(), |at| {
                    format!(" ({}frame {})", if n > 1 { "last " } else { "" }, grouped(at.frame))
                });
                format!("{} from the {}{frame}", count(n, "encrypted message"), side(end))
            }
        };
        text.push_str(&format!("; then {} and {}", of(0), of(1)));
        before = connection.smb.sealed.iter().filter_map(|(_, at)| *at).fold(before, At::max);
    }
    if let Some((end, at)) = connection.progress.broken_off {
        // whoever closes it then only cleans up
        let after = duration(at.time.saturating_sub(before.time));
        text.push_str(&format!(
            "; the {} broke the connection off {after} later (frame {})",
            side(end),
            grouped(at.frame)
        ));
    } else if let Some((by, how, at)) = connection.closed {
        let after = duration(at.time.saturating_sub(before.time));
        let frame = grouped(at.frame);
        text.push_str(&match (by, how) {
            (Some(end), "RST") => format!("; the {} reset the connection {after} later (frame {frame})", side(end)),
            (Some(end), _) => format!("; the {} hung up {after} later (frame {frame})", side(end)),
            (None, _) => format!("; the connection was closed {after} later (frame {frame})"),
        });
    }
    Some(text)
}

/// Requests that make a connection worth a block of its own.
pub const FEW: u64 = 12;

/// Requests on a connection.
pub fn requests(connection: &Connection) -> u64 {
    connection.commands.iter().map(|c| c.count).sum()
}

/// Connections by number, as text.
pub fn numbers(ids: &[u32]) -> String {
    let shown: Vec<String> = ids.iter().take(8).map(|id| id.to_string()).collect();
    match ids.len() {
        0 => String::new(),
        1 => format!("connection {}", shown[0]),
        n if n > 8 => format!("{} ({} …)", count(n as u64, "connection"), shown.join(", ")),
        _ => format!("connections {}", and(&shown)),
    }
}

/// Text from the network, safe for a terminal.
pub fn shown(text: &str) -> String {
    rdmascope_analyzer::exchange::escaped(text)
}

pub use answer::owners;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::{self, Run};
    use crate::fields::registry;
    use crate::input::open_all;
    use rdmascope_analyzer::env::Options;
    use rdmascope_analyzer::finding::{Blame, Site};
    use rdmascope_analyzer::outcome::{Closing, Purpose, Stage};
    use rdmascope_analyzer::rules::Rule;
    use rdmascope_dissector::filter::Filter;

    #[test]
    fn alike_findings_of_several_connections_are_one() {
        let mut data = ReportData::default();
        for (connection, frame) in [(2, 30), (1, 20), (3, 40)] {
            let site = Site { connection: Some(connection), frame, time_ns: frame as i64 };
            data.report.findings.report(
                Rule::SmbdFlags,
                Blame::Client,
                site,
                Certainty::Certain,
                format_args!("set undefined flags"),
            );
        }
        let site = Site { connection: Some(1), frame: 50, time_ns: 50 };
        data.report.findings.report(
            Rule::SmbdFlags,
            Blame::Server,
            site,
            Certainty::Guess,
            format_args!("set undefined flags"),
        );
        let entries = data.entries();
        assert_eq!(entries.len(), 2);
        assert_eq!(
            (entries[0].count, entries[0].frames.as_slice(), entries[0].connections.as_slice()),
            (3, &[20, 30, 40][..], &[1, 2, 3][..])
        );
        assert_eq!(entries[0].first.frame, 20);
        assert!(certainty_text(entries[0].certainty).is_empty() && !certainty_text(entries[1].certainty).is_empty());
        assert_eq!(ReportData::tally(&entries), [0, 2, 0]);
    }

    #[test]
    fn encrypted_messages_take_the_check_mark_away() {
        let clear_if = |is_whole: bool, sealed: [u64; 2]| {
            let mut connection = Connection { transport: Some(Transport::Iwarp), ..Connection::default() };
            connection.smb.sealed = sealed.map(|n| (n, None));
            let report = Report { connections: vec![connection], ..Report::default() };
            all_clear(&report, is_whole)
        };
        let clear = |sealed| clear_if(true, sealed);
        // no connection has an outcome here
        let told = |text: &str| ("–", text.to_owned());
        assert_eq!(clear([0, 0]), told("No problems found in the captured frames."));
        let one = "No problems found in the captured frames, but 1 encrypted message could not be read (--keys).";
        assert_eq!(clear([1, 0]), told(one));
        assert_eq!(clear([171, 171]).1, one.replace("1 encrypted message", "342 encrypted messages"));
        assert_eq!(clear_if(false, [0, 0]), told("No problems found in the frames that could be read."));
    }

    fn of_sample(name: &str, filter: Option<&str>) -> Analysis<Collector> {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../samples/{name}/{name}.pcap"));
        let filter = filter.map(|text| Filter::parse(text, &registry()).unwrap());
        let run = Run { options: Options::default(), threads: 1, small: 0, filter, frames: u64::MAX };
        let input = open_all(std::slice::from_ref(&path)).unwrap();
        analysis::run(input, vec![path.display().to_string()], run, Collector::new(Wanted::default()))
    }

    #[test]
    fn a_filter_chooses_among_all_requests() {
        let analysis = of_sample("smb-roce", Some("smb2.cmd == 9"));
        // none of them is among the slowest of all
        assert!(analysis.report.slowest.iter().all(|e| e.command != "WRITE"));
        let (data, error) = ReportData::new(analysis);
        let slowest = &data.report.slowest;
        assert!(error.is_none() && slowest.len() == 10, "{}", slowest.len());
        assert!(slowest.iter().all(|e| e.command == "WRITE" && data.connection(e.connection).is_some()));
        assert!(slowest.is_sorted_by(|a, b| a.latency() >= b.latency()));
    }

    #[test]
    fn a_connection_that_was_asked_for_in_vain_has_failed() {
        let data = ReportData::new(of_sample("smb-iwarp-firewall-drop", None)).0;
        let outcome = data.report.connections[0].outcome.as_ref().unwrap();
        assert_eq!(
            (outcome.ending, outcome.success, outcome.certainty),
            (Ending::NoTransport, Success::No, Certainty::Guess)
        );
        // a guess: the warning about the path says so
        let told = headline(&data, &data.entries());
        assert!(told.unjudged.is_none() && told.text.starts_with("No errors. 1 warning."), "{told:?}");
        assert_eq!(data.worst(), Some(Severity::Warn));
    }

    /// A report of one connection that reached its purpose.
    fn of_a_good_connection() -> ReportData {
        let outcome = Outcome {
            purpose: Purpose::SmbDirect,
            reached: Stage::Work,
            ending: Ending::Closed,
            success: Success::Yes,
            by: None,
            closed_by: Some(0),
            closing: Closing::Closed,
            at: At::default(),
            waited: 0,
            certainty: Certainty::IfNothingWasMissed,
            cause: None,
        };
        let mut data = ReportData::default();
        data.report.connections.push(Connection {
            id: 1,
            transport: Some(Transport::Iwarp),
            outcome: Some(outcome),
            ..Connection::default()
        });
        data.details.push(Detail::default());
        data
    }

    #[test]
    fn an_input_that_could_not_be_read_to_its_end_is_not_clear() {
        let mut data = of_a_good_connection();
        data.inputs = vec![InputSummary::default()];
        let mark = |data: &ReportData| headline(data, &data.entries()).mark;
        assert_eq!(mark(&data), "✓");
        data.inputs.push(InputSummary { error: Some("the file is cut short".to_owned()), ..InputSummary::default() });
        assert_eq!(mark(&data), "–");
        assert_eq!(headline(&data, &data.entries()).text, "No problems found in the frames that could be read.");
    }

    #[test]
    fn what_is_judged_is_what_is_counted() {
        let mut data = of_a_good_connection();
        let report = |data: &mut ReportData, rule: Rule, by: Blame| {
            let site = Site { connection: Some(1), frame: 1, time_ns: 0 };
            data.report.findings.report(rule, by, site, Certainty::Certain, format_args!("did something"));
        };
        assert_eq!(data.worst(), None);
        // an error that is the consequence of a warning is no error of its own
        report(&mut data, Rule::RcRetransmit, Blame::Network);
        report(&mut data, Rule::RcNak, Blame::Network);
        let [errors, warnings, _] = ReportData::tally(&data.entries());
        assert_eq!((errors, warnings), (0, 1), "{:?}", data.entries());
        assert_eq!(data.worst(), Some(Severity::Warn));
        // what it made fail is an error
        let outcome = data.report.connections[0].outcome.as_mut().unwrap();
        (outcome.success, outcome.cause) = (Success::No, Some((Rule::RcRetransmit, Blame::Network)));
        assert_eq!(data.worst(), Some(Severity::Error));
        assert_eq!(headline(&data, &data.entries()).text, "The connection failed. 1 warning.");
        data.report.connections[0].outcome.as_mut().unwrap().certainty = Certainty::Guess;
        assert_eq!(data.worst(), Some(Severity::Warn));
        // known ones do not count
        data.ignore(&[Ignore { rule: Rule::RcRetransmit, by: None }, Ignore { rule: Rule::RcNak, by: None }]);
        assert_eq!(data.worst(), None);
    }

    #[test]
    fn findings_that_are_known_are_counted_and_not_judged() {
        let mut data = ReportData::default();
        for (rule, by, frame) in
            [(Rule::RcCnp, Blame::Network, 1), (Rule::SmbdFlags, Blame::Client, 2), (Rule::SmbdFlags, Blame::Server, 3)]
        {
            let site = Site { connection: Some(1), frame, time_ns: 0 };
            data.report.findings.report(rule, by, site, Certainty::Certain, format_args!("did something"));
        }
        assert_eq!(ignored(&data), None);
        let what: Vec<Ignore> =
            ["rc-cnp", "SMBD-FLAGS:server", "RC-ECN"].iter().map(|text| Ignore::parse(text).unwrap()).collect();
        data.ignore(&what);
        assert_eq!(ignored(&data).unwrap(), "Ignored as asked: 2 findings (RC-CNP 1, SMBD-FLAGS:server 1, RC-ECN 0).");
        let left: Vec<_> = data.report.findings.iter().map(|f| (f.rule, f.by)).collect();
        assert_eq!(
            (left, data.report.findings.worst()),
            (vec![(Rule::SmbdFlags, Blame::Client)], Some(Severity::Warn))
        );
        assert!(Ignore::parse("NOTHING-OF-THE-KIND").unwrap_err().contains("explain"));
        assert_eq!(Ignore::parse("RC-CPN").unwrap_err(), "RC-CPN is not a rule; did you mean RC-CNP?");
        assert!(Ignore::parse("RC-CNP:nobody").unwrap_err().contains("client, server"));
    }

    #[test]
    fn connections_are_listed_up_to_eight() {
        assert_eq!(numbers(&[3]), "connection 3");
        assert_eq!(numbers(&[1, 2, 3]), "connections 1, 2 and 3");
        assert_eq!(numbers(&(1..=9).collect::<Vec<_>>()), "9 connections (1, 2, 3, 4, 5, 6, 7, 8 …)");
    }

    #[test]
    fn dialects_have_names() {
        assert_eq!([0x0311, 0x0302, 0x0299].map(dialect), ["SMB 3.1.1", "SMB 3.0.2", "SMB dialect 0x0299"]);
    }

    #[test]
    fn the_address_of_the_manual_is_one() {
        for (text, page) in [
            ("https://host/rdmascope", "https://host/rdmascope/findings/RC-CNP.html"),
            ("file:///usr/share/doc/rdmascope//", "file:///usr/share/doc/rdmascope/findings/RC-CNP.html"),
        ] {
            assert_eq!(Manual::parse(text).unwrap().page(Rule::from_id("RC-CNP").unwrap()), page);
        }
        for text in [
            "",
            "host",
            "https://",
            "javascript:alert(1)",
            "https://host/\"><b>",
            "https://host/a b",
            "https://host/\x1b[2J",
        ] {
            assert!(Manual::parse(text).is_err(), "{text}");
        }
    }
}
