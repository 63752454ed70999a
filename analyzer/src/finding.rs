//! Findings: bytes that were decoded well and break a rule, or show trouble. Each has an event, a side to blame and a
//! certainty.
//!
//! The rules themselves are rows in [`crate::rules`]. [`Findings`] collects occurrences: those of one rule on one
//! connection by one side are counted together, so that a capture with a million retransmissions makes one finding.

use crate::op::{At, End};
use crate::rejected;
pub use crate::rules::{Group, Row, Rule, Severity};
use crate::stored::{Reader, Stored, Writer, stored, stored_enum};
use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cmp::{Ordering, Reverse};
use core::fmt::{self, Write};
use core::ops::Deref;

/// Certainty of a finding. Ordered: `Certain` is the greatest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Certainty {
    /// Inferred: from timing, from the shape of data, from connections tied together by guess.
    Guess,
    /// True unless the capture lost, or began after, something that would explain it.
    IfNothingWasMissed,
    /// Follows from bytes that are in the capture.
    Certain,
}

impl Certainty {
    /// Name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Certainty::Guess => "guess",
            Certainty::IfNothingWasMissed => "if_nothing_was_missed",
            Certainty::Certain => "certain",
        }
    }
}

/// The side to blame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Blame {
    /// The side that opened the connection.
    Client,
    /// The side that accepted the connection.
    Server,
    /// The network between the two.
    Network,
    /// The capture, not the traffic.
    Capture,
    /// Cannot be known.
    Unknown,
}

impl Blame {
    /// The side as the subject of a sentence; `None` for what is no side.
    const fn side(self) -> Option<&'static str> {
        match self {
            Self::Client => Some("the client"),
            Self::Server => Some("the server"),
            Self::Unknown => Some("one of the two sides"),
            Self::Network | Self::Capture => None,
        }
    }

    /// Name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Blame::Client => "client",
            Blame::Server => "server",
            Blame::Network => "network",
            Blame::Capture => "capture",
            Blame::Unknown => "unknown",
        }
    }
}

/// Told of every rule that is broken.
pub trait RuleSink {
    /// `by` broke `rule`; `text` says how, in one clause.
    fn broken(&mut self, rule: Rule, by: End, certainty: Certainty, text: fmt::Arguments<'_>);
}

/// Place of an occurrence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// Id of the connection, if there is one.
    pub connection: Option<u32>,
    /// Number of the frame, from 1.
    pub frame: u64,
    /// Time of the frame, nanoseconds in the capture's own epoch.
    pub time_ns: i64,
}

/// The frame numbers of a finding, each once, in the order in which they were reported. Derefs to a slice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frames {
    numbers: Vec<u64>,
    /// The time of each, nanoseconds in the capture's own epoch.
    times: Vec<i64>,
    omitted: u64,
}

impl Frames {
    /// More frames than these are counted, not kept.
    pub const CAPACITY: usize = 1024;

    /// Frames that found no room; one that was reported twice may count twice.
    pub fn omitted(&self) -> u64 {
        self.omitted
    }

    /// The frames with their times.
    pub fn at(&self) -> impl Iterator<Item = At> {
        self.numbers.iter().zip(&self.times).map(|(&frame, &time)| At { frame, time })
    }

    /// Time of one of these frames.
    pub fn time_of(&self, frame: u64) -> Option<i64> {
        self.at().find(|at| at.frame == frame).map(|at| at.time)
    }

    /// Takes in those of another part of the capture, or of the other direction; each part has its own in order.
    pub(crate) fn join(&mut self, part: &Frames) {
        let mut all: Vec<At> = self.at().chain(part.at()).collect();
        all.sort_unstable_by_key(|at| at.frame);
        all.dedup_by_key(|at| at.frame);
        let omitted = all.len().saturating_sub(Self::CAPACITY) as u64;
        all.truncate(Self::CAPACITY);
        self.omitted = self.omitted.saturating_add(part.omitted).saturating_add(omitted);
        (self.numbers, self.times) = all.iter().map(|at| (at.frame, at.time)).unzip();
    }

    /// Takes a frame out.
    pub(crate) fn remove(&mut self, frame: u64) {
        if let Some(place) = self.numbers.iter().position(|&known| known == frame) {
            self.numbers.remove(place);
            self.times.remove(place);
        }
    }

    pub(crate) fn push(&mut self, At { frame, time }: At) {
        // Nearly always the last or a later one.
        let is_new = self.numbers.last().is_none_or(|&last| last < frame) || !self.numbers.contains(&frame);
        if !is_new {
            return;
        }
        if self.numbers.len() < Self::CAPACITY {
            self.numbers.push(frame);
            self.times.push(time);
        } else {
            self.omitted = self.omitted.saturating_add(1);
        }
    }
}

impl Deref for Frames {
    type Target = [u64];

    fn deref(&self) -> &[u64] {
        &self.numbers
    }
}

/// A rule that was broken, once or several times in the same way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The rule that was broken.
    pub rule: Rule,
    /// The rule's own severity, or one changed by the circumstances. The greatest of all occurrences.
    pub severity: Severity,
    /// The greatest of all occurrences.
    pub certainty: Certainty,
    /// Id of the connection, if there is one.
    pub connection: Option<u32>,
    /// First frame, from 1.
    pub frame: u64,
    /// Time of the first frame, nanoseconds in the capture's own epoch.
    pub time_ns: i64,
    /// Time of the last frame.
    pub last_time_ns: i64,
    /// The side that did it.
    pub by: Blame,
    /// The first occurrence as text, for example "offered MaxFragmentedSize 130,560; at least 131,072 is required".
    pub text: String,
    /// Occurrences.
    pub count: u64,
    /// Frames of the occurrences.
    pub frames: Frames,
    /// Cause of this occurrence, if it is known better than the usual causes of the rule.
    pub why: Option<&'static str>,
}

impl Finding {
    /// One occurrence of `rule`, with the rule's own severity.
    pub fn new(rule: Rule, by: Blame, site: Site, certainty: Certainty, text: impl Into<String>) -> Self {
        let mut frames = Frames::default();
        frames.push(At { frame: site.frame, time: site.time_ns });
        Finding {
            rule,
            severity: rule.row().severity,
            certainty,
            connection: site.connection,
            frame: site.frame,
            time_ns: site.time_ns,
            last_time_ns: site.time_ns,
            by,
            text: text.into(),
            count: 1,
            frames,
            why: None,
        }
    }

    /// The first occurrence as a whole sentence. If the text is only a predicate, `subject` is put in front of it;
    /// without one, the side that did it: "The client".
    pub fn sentence(&self, subject: Option<&str>) -> String {
        let Some(side) = self.by.side() else { return sentence(&self.text) };
        if is_predicate(&self.text) {
            sentence(&format!("{} {}", subject.unwrap_or(side), self.text))
        } else {
            sentence(&self.text)
        }
    }

    /// Possible causes: of this occurrence, or the usual ones of the rule.
    pub fn causes(&self) -> Vec<&'static str> {
        self.why.map_or_else(|| self.rule.row().causes.to_vec(), |why| alloc::vec![why])
    }

    /// Advice to whoever looks into it.
    pub fn cure(&self) -> &'static str {
        match self.why {
            Some(RESET_BETWEEN) => LOOK_BETWEEN,
            why => why.and_then(rejected::cure).unwrap_or_else(|| cure(self.rule, self.by)),
        }
    }

    /// The same with the cause of this case.
    #[must_use]
    pub fn with_why(mut self, why: Option<&'static str>) -> Self {
        self.why = why;
        self
    }

    /// The same with more frames of the same occurrence.
    #[must_use]
    pub fn with_frames(mut self, frames: impl IntoIterator<Item = At>) -> Self {
        for at in frames {
            self.frames.push(at);
        }
        self
    }

    /// The same with another severity than the rule's.
    #[must_use]
    pub fn with_severity(mut self, severity: Severity) -> Self {
        self.severity = severity;
        self
    }

    fn key(&self) -> Key {
        (self.rule, self.connection, self.by)
    }

    fn merge(&mut self, severity: Severity, certainty: Certainty, frame: u64, time_ns: i64, count: u64) {
        self.severity = self.severity.max(severity);
        self.certainty = self.certainty.max(certainty);
        self.count = self.count.saturating_add(count);
        self.last_time_ns = self.last_time_ns.max(time_ns);
        self.frames.push(At { frame, time: time_ns });
    }

    /// The same finding in another part of the capture: both have their frames in the order of the capture.
    fn join(&mut self, part: Finding) {
        self.severity = self.severity.max(part.severity);
        self.certainty = self.certainty.max(part.certainty);
        self.count = self.count.saturating_add(part.count);
        self.last_time_ns = self.last_time_ns.max(part.last_time_ns);
        self.frames.join(&part.frames);
        if part.frame < self.frame {
            (self.frame, self.time_ns, self.text) = (part.frame, part.time_ns, part.text);
        }
    }

    /// Order of importance: severity, certainty, count; among equals the earlier one comes first.
    fn rank(&self, other: &Finding) -> Ordering {
        let key = |finding: &Finding| {
            let first = (finding.time_ns, finding.frame, finding.rule, finding.connection, finding.by);
            (Reverse(finding.severity), Reverse(finding.certainty), Reverse(finding.count), first)
        };
        key(self).cmp(&key(other))
    }
}

/// Advice for packets to a silent end that were not delivered: it never saw them.
const ON_THE_WAY: &str = "Look at the device that reported the packets, and at what lies between it and the silent host: \
    rules of firewalls, routes, time to live. That host never saw the packets.";

/// Cause of a reset that neither end sent, and advice about it.
pub(crate) const RESET_BETWEEN: &str = "A firewall or a load balancer in the path ended the connection: it had forgotten \
    it, or a rule forbids it";
const LOOK_BETWEEN: &str = "Look at the firewalls and load balancers between the two, at the time of this frame: their \
    logs, their rules, and how long they keep an idle connection.";

/// Advice for a capture whose order is not that of the wire.
const ONE_CLOCK: &str = "Capture both directions at one point, or move the times of one of the files (editcap -t) before \
    they are merged. An interface with several queues captures in order with one (ethtool -L).";

/// Advice to whoever looks into a finding of a rule for which this side is to blame.
pub fn cure(rule: Rule, by: Blame) -> &'static str {
    match (rule, by) {
        (Rule::PeerSilent, Blame::Network) => ON_THE_WAY,
        (Rule::RcReorder | Rule::TcpReorder, Blame::Capture) => ONE_CLOCK,
        _ => rule.row().cure,
    }
}

/// With a capital first letter and a full stop at its end.
pub fn sentence(text: &str) -> String {
    // names that are written small wherever they stand
    const SMALL: [&str; 6] = ["ksmbd", "cifs.ko", "nfsd", "siw", "rxe", "smbd"];
    let mut chars = text.chars();
    let Some(first) = chars.next() else { return String::new() };
    let mut out: String = if SMALL.iter().any(|name| text.starts_with(name)) {
        first.to_string()
    } else {
        first.to_uppercase().collect()
    };
    out.push_str(chars.as_str());
    if !out.ends_with(['.', '!', '?', '…']) {
        out.push('.');
    }
    out
}

/// True if a text begins with a verb, as "offered …" and "did not answer …" do, and not with its subject.
fn is_predicate(text: &str) -> bool {
    const OTHERS: [&str; 18] = [
        "a", "an", "the", "its", "one", "two", "no", "some", "both", "bytes", "packets", "packet", "frames",
        "segments", "queue", "part", "other", "another",
    ];
    let first = text.split(' ').next().unwrap_or_default();
    !OTHERS.contains(&first)
        && first.starts_with(|c: char| c.is_ascii_lowercase())
        && first.chars().all(|c| c.is_ascii_lowercase())
}

type Key = (Rule, Option<u32>, Blame);

/// Collects findings, bounded in number.
///
/// ```
/// use rdmascope_analyzer::finding::*;
/// let mut findings = Findings::default();
/// for frame in [9, 12] {
///     let site = Site { connection: Some(1), frame, time_ns: 0 };
///     findings.report(Rule::RcRnr, Blame::Server, site, Certainty::Certain, format_args!("RNR NAK, timer {} ms", 0.64));
/// }
/// assert_eq!(findings.ranked()[0].count, 2);
/// assert_eq!(findings.ranked()[0].frames[..], [9, 12]);
/// ```
#[derive(Clone, Debug)]
pub struct Findings {
    kept: Vec<Finding>,
    index: BTreeMap<Key, usize>,
    by_severity: [usize; 3],
    limit: usize,
    dropped: u64,
    /// By place in [`Rule::all`]: all occurrences, whatever became of the findings.
    occurrences: Vec<u64>,
}

impl Default for Findings {
    fn default() -> Self {
        Self::new(Self::LIMIT)
    }
}

impl Findings {
    /// Distinct findings that [`Findings::default`] keeps.
    pub const LIMIT: usize = 4096;

    /// Keeps at most `limit` distinct findings. When it is full, a new finding takes the place of the last of a lower
    /// severity; if there is none, it is dropped and counted.
    pub fn new(limit: usize) -> Self {
        Findings {
            kept: Vec::new(),
            index: BTreeMap::new(),
            by_severity: [0; 3],
            limit,
            dropped: 0,
            occurrences: Vec::new(),
        }
    }

    /// An occurrence of `rule` with the rule's own severity. `text` is only formatted if the finding is new.
    pub fn report(&mut self, rule: Rule, by: Blame, site: Site, certainty: Certainty, text: fmt::Arguments<'_>) {
        let _ = self.report_as(rule.row().severity, rule, by, site, certainty, text);
    }

    /// The same with a severity of its own. Returns the finding if it is new.
    pub fn report_as(
        &mut self,
        severity: Severity,
        rule: Rule,
        by: Blame,
        site: Site,
        certainty: Certainty,
        text: fmt::Arguments<'_>,
    ) -> Option<&Finding> {
        self.count(rule, 1);
        let key = (rule, site.connection, by);
        if let Some(&at) = self.index.get(&key) {
            self.merge(at, severity, certainty, site.frame, site.time_ns, 1);
            return None;
        }
        if !self.has_room_for(severity) {
            self.dropped += 1;
            return None;
        }
        self.insert(Finding::new(rule, by, site, certainty, text.to_string()).with_severity(severity));
        self.index.get(&key).map(|&at| &self.kept[at])
    }

    /// Adds a finding that was made elsewhere, with all its occurrences.
    pub fn add(&mut self, finding: Finding) {
        self.count(finding.rule, finding.count);
        self.take(finding);
    }

    /// Number of times that a rule was broken, dropped findings included.
    pub fn occurrences(&self, rule: Rule) -> u64 {
        self.occurrences.get(rule.place()).copied().unwrap_or(0)
    }

    /// Connections that are not kept one by one any more: their findings stay, without their numbers.
    pub fn forget_connections(&mut self, is_gone: impl Fn(u32) -> bool) {
        let (gone, rest): (Vec<Finding>, Vec<Finding>) =
            core::mem::take(&mut self.kept).into_iter().partition(|finding| finding.connection.is_some_and(&is_gone));
        self.kept = rest;
        self.retain(|_| true);
        for finding in gone {
            self.take(Finding { connection: None, ..finding });
        }
    }

    /// Lowers the severity of a finding that is less than it seemed, and adds `more` to its text.
    pub fn lower(
        &mut self,
        rule: Rule,
        connection: Option<u32>,
        by: Blame,
        severity: Severity,
        more: fmt::Arguments<'_>,
    ) {
        let Some(&at) = self.index.get(&(rule, connection, by)) else { return };
        let finding = &mut self.kept[at];
        if finding.severity <= severity {
            return;
        }
        self.by_severity[finding.severity as usize] -= 1;
        self.by_severity[severity as usize] += 1;
        finding.severity = severity;
        let more = more.to_string();
        if !finding.text.ends_with(&more) {
            finding.text.push_str(&more);
        }
    }

    /// The same for all findings that are so.
    pub fn lower_all(&mut self, is_less: impl Fn(&Finding) -> bool, severity: Severity, more: &str) {
        let found = self.kept.iter().filter(|f| f.severity > severity && is_less(f));
        for (rule, connection, by) in found.map(|f| (f.rule, f.connection, f.by)).collect::<Vec<_>>() {
            self.lower(rule, connection, by, severity, format_args!("{more}"));
        }
    }

    /// Gives a finding a text about all its occurrences, if they are that many: others would not be in it.
    pub fn retell(&mut self, rule: Rule, connection: Option<u32>, by: Blame, count: u64, text: fmt::Arguments<'_>) {
        let Some(&at) = self.index.get(&(rule, connection, by)) else { return };
        let finding = &mut self.kept[at];
        if finding.count == count {
            finding.text = text.to_string();
        }
    }

    /// Adds the cause of a finding.
    pub fn because(&mut self, rule: Rule, connection: Option<u32>, by: Blame, why: Option<&'static str>) {
        let Some(&at) = self.index.get(&(rule, connection, by)) else { return };
        let finding = &mut self.kept[at];
        // of several occurrences each may have its own
        finding.why = why.filter(|why| finding.count == 1 || finding.why == Some(why));
    }

    /// Blames the network for what an end did, whose text gets that end as its subject. False if there is no such
    /// finding, or one of the network already.
    pub fn acquit(&mut self, rule: Rule, connection: Option<u32>, by: Blame) -> bool {
        let key = (rule, connection, Blame::Network);
        if self.index.contains_key(&key) {
            return false;
        }
        let Some(at) = self.index.remove(&(rule, connection, by)) else { return false };
        let finding = &mut self.kept[at];
        if let Some(side) = by.side() {
            finding.text = format!("{side} {}", finding.text);
        }
        finding.by = Blame::Network;
        self.index.insert(key, at);
        true
    }

    /// Adds the consequence to the text of a finding.
    pub fn add_to(&mut self, rule: Rule, connection: Option<u32>, by: Blame, more: &str) {
        let Some(&at) = self.index.get(&(rule, connection, by)) else { return };
        let finding = &mut self.kept[at];
        if !finding.text.ends_with(more) {
            finding.text.push_str(more);
        }
    }

    /// These findings are guesses, as far as they are not certain.
    pub fn weaken(&mut self, is_weak: impl Fn(&Finding) -> bool) {
        for finding in &mut self.kept {
            if finding.certainty == Certainty::IfNothingWasMissed && is_weak(finding) {
                finding.certainty = Certainty::Guess;
            }
        }
    }

    /// Makes findings guesses, even if a frame alone breaks the rule: it may be none of the protocol.
    pub fn doubt(&mut self, is_it: impl Fn(&Finding) -> bool) {
        self.kept.iter_mut().filter(|f| is_it(f)).for_each(|finding| finding.certainty = Certainty::Guess);
    }

    /// Makes findings in possibly damaged frames guesses, even if the frame alone breaks the rule.
    pub fn weaken_bytes(&mut self, connection: u32, rule: Rule, by: Blame) {
        self.doubt(|f| (f.connection, f.rule, f.by) == (Some(connection), rule, by));
    }

    /// Takes over the occurrences that `other` counted and did not keep: these are its findings, merged again.
    pub fn with_losses_of(mut self, other: &Findings) -> Self {
        self.dropped = self.dropped.saturating_add(other.dropped);
        self.occurrences.clone_from(&other.occurrences);
        self
    }

    /// Takes in the findings of another part of the same capture, of other connections. A finding of both parts has no
    /// connection; its text is that of the first occurrence. Returns true if there was room for all; otherwise the
    /// parts are not the same as the whole.
    pub(crate) fn join(&mut self, part: Findings) -> bool {
        self.dropped = self.dropped.saturating_add(part.dropped);
        for (rule, n) in Rule::all().zip(&part.occurrences) {
            self.count(rule, *n);
        }
        for finding in part.kept {
            if let Some(&at) = self.index.get(&finding.key()) {
                let kept = &mut self.kept[at];
                self.by_severity[kept.severity as usize] -= 1;
                kept.join(finding);
                self.by_severity[kept.severity as usize] += 1;
            } else if self.kept.len() < self.limit {
                self.insert(finding);
            } else {
                self.dropped = self.dropped.saturating_add(finding.count);
            }
        }
        self.dropped == 0
    }

    fn count(&mut self, rule: Rule, n: u64) {
        let place = rule.place();
        if self.occurrences.len() <= place {
            self.occurrences.resize(Rule::ALL.len().max(place + 1), 0);
        }
        if let Some(count) = self.occurrences.get_mut(place) {
            *count = count.saturating_add(n);
        }
    }

    fn take(&mut self, finding: Finding) {
        if let Some(&at) = self.index.get(&finding.key()) {
            self.merge(at, finding.severity, finding.certainty, finding.frame, finding.time_ns, finding.count);
            let kept = &mut self.kept[at];
            kept.last_time_ns = kept.last_time_ns.max(finding.last_time_ns);
            finding.frames.at().for_each(|at| kept.frames.push(at));
            let frames = &mut kept.frames;
            frames.omitted = frames.omitted.saturating_add(finding.frames.omitted);
        } else if self.has_room_for(finding.severity) {
            self.insert(finding);
        } else {
            self.dropped = self.dropped.saturating_add(finding.count);
        }
    }

    /// All, as they came.
    pub fn iter(&self) -> core::slice::Iter<'_, Finding> {
        self.kept.iter()
    }

    /// All findings, the most important first: by severity, then certainty, then count, then time.
    pub fn ranked(&self) -> Vec<&Finding> {
        let mut ranked: Vec<&Finding> = self.kept.iter().collect();
        ranked.sort_by(|a, b| a.rank(b));
        ranked
    }

    /// The greatest severity there is; `None` without findings.
    pub fn worst(&self) -> Option<Severity> {
        Severity::ALL.iter().copied().rev().find(|&severity| self.by_severity[severity as usize] > 0)
    }

    /// Distinct findings of this severity.
    pub fn count_of(&self, severity: Severity) -> usize {
        self.by_severity[severity as usize]
    }

    /// Keeps only those for which `keep` is true; the others are not counted as dropped.
    pub fn retain(&mut self, keep: impl FnMut(&Finding) -> bool) {
        self.kept.retain(keep);
        self.index = self.kept.iter().enumerate().map(|(at, finding)| (finding.key(), at)).collect();
        self.by_severity = [0; 3];
        for finding in &self.kept {
            self.by_severity[finding.severity as usize] += 1;
        }
    }

    /// Distinct findings.
    pub fn len(&self) -> usize {
        self.kept.len()
    }

    /// True if nothing was found.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Occurrences that found no room, or lost it to something worse.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    fn merge(&mut self, at: usize, severity: Severity, certainty: Certainty, frame: u64, time_ns: i64, count: u64) {
        let finding = &mut self.kept[at];
        let before = finding.severity;
        finding.merge(severity, certainty, frame, time_ns, count);
        self.by_severity[before as usize] -= 1;
        self.by_severity[finding.severity as usize] += 1;
    }

    fn has_room_for(&self, severity: Severity) -> bool {
        self.kept.len() < self.limit || self.by_severity[..severity as usize].iter().any(|&count| count > 0)
    }

    /// `has_room_for` said yes. Each eviction raises a severity, so that the search is made at most twice per place.
    fn insert(&mut self, finding: Finding) {
        self.by_severity[finding.severity as usize] += 1;
        if self.kept.len() < self.limit {
            self.index.insert(finding.key(), self.kept.len());
            self.kept.push(finding);
            return;
        }
        let least = self.kept.iter().map(|kept| kept.severity).min().unwrap_or(Severity::Note);
        let Some(at) = self.kept.iter().rposition(|kept| kept.severity == least) else { return };
        self.index.insert(finding.key(), at);
        let evicted = core::mem::replace(&mut self.kept[at], finding);
        self.index.remove(&evicted.key());
        self.by_severity[evicted.severity as usize] -= 1;
        self.dropped = self.dropped.saturating_add(evicted.count);
    }
}

impl<'a> IntoIterator for &'a Findings {
    type Item = &'a Finding;
    type IntoIter = core::slice::Iter<'a, Finding>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl Extend<Finding> for Findings {
    fn extend<I: IntoIterator<Item = Finding>>(&mut self, findings: I) {
        for finding in findings {
            self.add(finding);
        }
    }
}

/// A rule in plain text, wrapped at 79 columns: severity, title, requirement of the document, causes, cure.
pub fn explain(rule: Rule) -> String {
    let row = rule.row();
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(out, "{}   {}   {}\n", row.id, row.severity.name(), row.group.title());
    paragraph(&mut out, "  ", "  ", row.title);
    section(&mut out, &["The rule (", row.spec, ")"].concat());
    paragraph(&mut out, "  ", "  ", row.says);
    section(&mut out, "Usual causes");
    for cause in row.causes {
        paragraph(&mut out, "  - ", "    ", cause);
    }
    section(&mut out, "What to do");
    paragraph(&mut out, "  ", "  ", row.cure);
    if !row.documented.is_empty() {
        section(&mut out, "As documented in");
        for document in row.documented {
            paragraph(&mut out, "  - ", "    ", document);
        }
    }
    if !row.hits.product.is_empty() {
        section(&mut out, "Versions hit");
        paragraph(&mut out, "  ", "  ", &row.hits.to_string());
    }
    out
}

fn section(out: &mut String, heading: &str) {
    out.push('\n');
    paragraph(out, "", "  ", heading);
}

/// Adds `text`, broken between words before column 80; `first` begins the first line, `rest` the others.
fn paragraph(out: &mut String, first: &str, rest: &str, text: &str) {
    const WIDTH: usize = 79;
    let mut line = first.to_owned();
    let mut is_empty = true;
    for word in text.split(' ') {
        if !is_empty && line.len() + 1 + word.len() > WIDTH {
            out.push_str(&line);
            out.push('\n');
            line.clear();
            line.push_str(rest);
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(word);
        is_empty = false;
    }
    out.push_str(&line);
    out.push('\n');
}

stored_enum!(Certainty { Guess, IfNothingWasMissed, Certain });
stored_enum!(Blame { Client, Server, Network, Capture, Unknown });
stored!(Frames { numbers, times, omitted });
stored!(Finding { rule, severity, certainty, connection, frame, time_ns, last_time_ns, by, text, count, frames, why });

impl Stored for Findings {
    fn store(&self, out: &mut Writer) {
        self.kept.store(out);
        (self.limit, self.dropped).store(out);
        self.occurrences.store(out);
    }

    fn restore(from: &mut Reader<'_>) -> Option<Self> {
        let kept = Stored::restore(from)?;
        let (limit, dropped) = Stored::restore(from)?;
        let mut findings = Self { kept, dropped, occurrences: Stored::restore(from)?, ..Self::new(limit) };
        // this makes the index
        findings.retain(|_| true);
        Some(findings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::vec;

    fn site(connection: u32, frame: u64) -> Site {
        Site { connection: Some(connection), frame, time_ns: frame as i64 * 1000 }
    }

    fn report(findings: &mut Findings, rule: Rule, connection: u32, frame: u64) {
        findings.report(
            rule,
            Blame::Client,
            site(connection, frame),
            Certainty::Certain,
            format_args!("frame {frame}"),
        );
    }

    #[test]
    fn the_same_rule_connection_and_side_is_one_finding() {
        let mut findings = Findings::default();
        for frame in 1..=20 {
            report(&mut findings, Rule::SmbdFlags, 1, frame);
        }
        report(&mut findings, Rule::SmbdFlags, 2, 30);
        findings.report(Rule::SmbdFlags, Blame::Server, site(1, 31), Certainty::Certain, format_args!("other side"));
        assert_eq!(findings.len(), 3);
        let first = findings.iter().next().unwrap();
        assert_eq!((first.count, first.frame, first.text.as_str()), (20, 1, "frame 1"));
        assert_eq!((first.time_ns, first.last_time_ns), (1000, 20_000));
        assert_eq!((first.frames.first(), first.frames.len() as u64 + first.frames.omitted()), (Some(&1), 20));
        assert_eq!(findings.dropped(), 0);
    }

    #[test]
    fn parts_of_a_capture_come_to_what_the_whole_would_have_found() {
        let (mut whole, mut parts) = (Findings::default(), [Findings::default(), Findings::default()]);
        for frame in 1..=3000 {
            let part = &mut parts[(frame % 7 % 2) as usize];
            let site = Site { connection: None, frame, time_ns: frame as i64 };
            for findings in [&mut whole, &mut *part] {
                findings.report(Rule::RcPfc, Blame::Network, site, Certainty::Certain, format_args!("frame {frame}"));
            }
            let connection = 1 + (frame % 7 % 2) as u32;
            report(&mut whole, Rule::SmbdFlags, connection, frame);
            report(part, Rule::SmbdFlags, connection, frame);
        }
        let [mut joined, other] = parts;
        assert!(joined.join(other));
        assert_eq!(joined.ranked(), whole.ranked());
        assert_eq!(joined.occurrences(Rule::RcPfc), 3000);
        assert_eq!((joined.len(), joined.count_of(Severity::Warn)), (whole.len(), whole.count_of(Severity::Warn)));
    }

    #[test]
    fn parts_without_room_for_all_of_them_say_so() {
        let (mut one, mut other) = (Findings::new(1), Findings::new(1));
        report(&mut one, Rule::SmbdFlags, 1, 1);
        report(&mut other, Rule::SmbdFlags, 2, 2);
        assert!(!one.join(other));
    }

    #[test]
    fn what_is_not_retained_is_gone() {
        let mut findings = Findings::default();
        for connection in 1..=3 {
            report(&mut findings, Rule::SmbdFlags, connection, 10);
        }
        report(&mut findings, Rule::RcNak, 2, 11);
        findings.retain(|f| f.connection == Some(2));
        assert_eq!((findings.len(), findings.count_of(Severity::Warn), findings.dropped()), (2, 1, 0));
        report(&mut findings, Rule::RcNak, 2, 12);
        report(&mut findings, Rule::SmbdFlags, 1, 13);
        assert_eq!((findings.len(), findings.iter().map(|f| f.count).sum::<u64>()), (3, 4));
    }

    #[test]
    fn forgotten_connections_leave_what_was_found_on_them() {
        let mut findings = Findings::new(4);
        for connection in 1..=3 {
            report(&mut findings, Rule::SmbdFlags, connection, 10 + u64::from(connection));
        }
        findings.forget_connections(|id| id < 3);
        let mut left: Vec<(Option<u32>, u64)> = findings.iter().map(|f| (f.connection, f.count)).collect();
        left.sort();
        assert_eq!(left, [(None, 2), (Some(3), 1)]);
        for connection in 4..=20 {
            report(&mut findings, Rule::SmbdFlags, connection, 50);
        }
        assert_eq!(
            (findings.len(), findings.occurrences(Rule::SmbdFlags), findings.occurrences(Rule::RcNak)),
            (4, 20, 0)
        );
    }

    #[test]
    fn frames_are_kept_up_to_a_limit_and_the_rest_counted() {
        let mut findings = Findings::default();
        let most = Frames::CAPACITY as u64;
        for frame in 1..=most + 5 {
            report(&mut findings, Rule::SmbdFlags, 1, frame);
        }
        let finding = findings.iter().next().unwrap();
        assert!(finding.frames.iter().copied().eq(1..=most));
        assert_eq!((finding.frames.omitted(), finding.count), (5, most + 5));
        assert!(finding.frames.at().all(|at| at.time == at.frame as i64 * 1000), "each has its time");
        assert_eq!((finding.frames.time_of(most), finding.frames.time_of(most + 1)), (Some(most as i64 * 1000), None));
    }

    #[test]
    fn predicates_get_their_subject() {
        let said = |by, text: &str| {
            let site = Site { connection: None, frame: 7, time_ns: 0 };
            Finding::new(Rule::RcNak, by, site, Certainty::Certain, text).sentence(None)
        };
        assert_eq!(said(Blame::Server, "offered 1 byte"), "The server offered 1 byte.");
        assert_eq!(said(Blame::Client, "did not answer"), "The client did not answer.");
        assert_eq!(said(Blame::Unknown, "has no credit"), "One of the two sides has no credit.");
        assert_eq!(said(Blame::Network, "a packet went out again"), "A packet went out again.");
        assert_eq!(said(Blame::Client, "RDMA-CM REQ was rejected"), "RDMA-CM REQ was rejected.");
        assert_eq!(said(Blame::Server, "the invariant CRC is wrong"), "The invariant CRC is wrong.");
        assert_eq!(said(Blame::Server, "DataOffset 3 is not a multiple of 8"), "DataOffset 3 is not a multiple of 8.");
    }

    #[test]
    fn two_occurrences_in_one_frame_name_it_once() {
        let mut findings = Findings::default();
        report(&mut findings, Rule::RcNak, 1, 7);
        report(&mut findings, Rule::RcNak, 1, 7);
        assert_eq!(findings.iter().next().unwrap().frames[..], [7]);
        assert_eq!(findings.iter().next().unwrap().count, 2);
    }

    #[test]
    fn merging_keeps_the_worst_and_the_surest() {
        let mut findings = Findings::default();
        findings.report_as(Severity::Note, Rule::RcNak, Blame::Client, site(1, 1), Certainty::Guess, format_args!("a"));
        assert_eq!(findings.worst(), Some(Severity::Note));
        findings.report(Rule::RcNak, Blame::Client, site(1, 2), Certainty::IfNothingWasMissed, format_args!("b"));
        let finding = findings.iter().next().unwrap();
        assert_eq!((finding.severity, finding.certainty), (Severity::Error, Certainty::IfNothingWasMissed));
        assert_eq!((findings.count_of(Severity::Note), findings.count_of(Severity::Error)), (0, 1));
        findings.report_as(Severity::Note, Rule::RcNak, Blame::Client, site(1, 3), Certainty::Guess, format_args!("c"));
        assert_eq!(findings.iter().next().unwrap().severity, Severity::Error);
    }

    #[test]
    fn what_matters_comes_first() {
        let mut findings = Findings::default();
        report(&mut findings, Rule::SmbdFragCost, 1, 1);
        report(&mut findings, Rule::SmbdCreditStall, 1, 2);
        report(&mut findings, Rule::SmbdCreditOverrun, 2, 9);
        report(&mut findings, Rule::SmbdCreditOverrun, 1, 3);
        findings.report(Rule::RcRnr, Blame::Server, site(1, 1), Certainty::Guess, format_args!(""));
        for frame in 20..25 {
            report(&mut findings, Rule::SmbdFragRemaining, 1, frame);
        }
        let order: Vec<(Rule, u64)> = findings.ranked().iter().map(|finding| (finding.rule, finding.frame)).collect();
        let expected = vec![
            (Rule::SmbdFragRemaining, 20),
            (Rule::SmbdCreditOverrun, 3),
            (Rule::SmbdCreditOverrun, 9),
            (Rule::RcRnr, 1),
            (Rule::SmbdCreditStall, 2),
            (Rule::SmbdFragCost, 1),
        ];
        assert_eq!(order, expected);
        assert_eq!(findings.worst(), Some(Severity::Error));
    }

    #[test]
    fn a_full_collection_counts_what_it_drops() {
        let mut findings = Findings::new(3);
        for connection in 0..10 {
            report(&mut findings, Rule::SmbdFragCost, connection, 1);
        }
        assert_eq!((findings.len(), findings.dropped()), (3, 7));
        // Those that are kept go on counting.
        report(&mut findings, Rule::SmbdFragCost, 0, 2);
        assert_eq!((findings.iter().next().unwrap().count, findings.dropped()), (2, 7));
    }

    #[test]
    fn something_worse_finds_room_in_a_full_collection() {
        let mut findings = Findings::new(3);
        for connection in 0..3 {
            report(&mut findings, Rule::SmbdFragCost, connection, 1);
        }
        for connection in 0..5 {
            report(&mut findings, Rule::SmbdCreditOverrun, connection, 2);
        }
        assert_eq!(findings.len(), 3);
        assert_eq!(findings.count_of(Severity::Error), 3);
        assert_eq!(findings.count_of(Severity::Note), 0);
        assert_eq!(findings.dropped(), 3 + 2);
        // The index still leads to the right places.
        for connection in 0..3 {
            report(&mut findings, Rule::SmbdCreditOverrun, connection, 3);
        }
        assert!(findings.iter().all(|finding| finding.count == 2 && finding.rule == Rule::SmbdCreditOverrun));
        assert_eq!(findings.index.len(), 3);
        // A limit of nothing keeps nothing.
        let mut none = Findings::new(0);
        report(&mut none, Rule::SmbdCreditOverrun, 1, 1);
        assert_eq!((none.len(), none.dropped(), none.worst()), (0, 1, None));
    }

    #[test]
    fn findings_made_elsewhere_merge_with_all_their_occurrences() {
        let mut here = Findings::default();
        let mut there = Findings::default();
        report(&mut here, Rule::RcRnr, 1, 1);
        report(&mut there, Rule::RcRnr, 1, 4);
        report(&mut there, Rule::RcRnr, 1, 5);
        here.extend(there.iter().cloned());
        let finding = here.iter().next().unwrap();
        assert_eq!(
            (here.len(), finding.count, &finding.frames[..], finding.last_time_ns),
            (1, 3, &[1, 4, 5][..], 5000)
        );
        assert!(finding.frames.at().map(|at| at.time).eq([1000, 4000, 5000]));
    }

    #[test]
    fn an_explanation_fits_a_terminal_and_leaves_nothing_out() {
        for &rule in Rule::ALL {
            let row = rule.row();
            let text = explain(rule);
            assert!(text.starts_with(row.id));
            assert!(text.lines().all(|line| line.len() <= 79 && line.trim_end() == line), "{text}");
            let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
            for part in [row.title, row.says, row.cure, row.spec, &row.hits.to_string(), row.severity.name()]
                .iter()
                .chain(row.causes)
            {
                assert!(flat.contains(part), "{}: {part}", row.id);
            }
        }
    }

    #[test]
    fn an_explanation_reads_like_this() {
        let expected = "\
SMBD-NEG-RSP-FRAGSIZE   error   SMB Direct negotiation

  The server offers a MaxFragmentedSize below 131,072 bytes.

The rule ([MS-SMBD] 3.1.5.7)
  MaxFragmentedSize must be at least 131,072; otherwise the client must
  terminate the connection.

Usual causes
  - ksmbd derives it from its receive size and receive credits (half their
    product), and adopts the client's send size as its receive size: 255
    credits of 1024 bytes make 130,560
  - The server's own limit was tuned down

What to do
  Raise the client's send size (Linux: /proc/fs/cifs/smbd_max_send_size,
  default 1364) or the server's receive credits, then connect again.
";
        assert_eq!(explain(Rule::SmbdNegRspFragsize), expected);
        assert!(explain(Rule::BugCve202539943).contains(&format!("\nVersions hit\n  {}", "Linux ksmbd 5.15")));
    }
}
