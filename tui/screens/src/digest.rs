//! A report, with derived data that the views need, made in the loader's thread: a screen may have to show thousands of
//! connections and findings within 16 ms.

use super::time::Format;
use rdmascope_analyzer::finding::Finding;
use rdmascope_analyzer::report::{Connection, Health, Rdma, Report, address};
use rdmascope_analyzer::roots::{self, roots};
use rdmascope_analyzer::rules::{Rule, Severity};
use rdmascope_analyzer::stats::Commands;
use rdmascope_report::report::words::Clock;
use rdmascope_report::report::{Headline, Ignore, answer, headline_of, ignored_text, take_ignored};
use std::collections::{HashMap, HashSet};
use std::ops::Deref;
use std::sync::Arc;

/// A finding, with those of the same rule and side on other connections.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    first: Finding,
    /// The outcome of the connections that failed because of it, as a sentence.
    pub(crate) title: Option<String>,
    /// Consequences of the finding: rule and count.
    pub(crate) effects: Vec<(Rule, u64)>,
    /// On all of them.
    pub(crate) count: u64,
    /// The first frames, ascending.
    pub(crate) frames: Vec<u64>,
    pub(crate) connections: Vec<u32>,
}

impl std::ops::Deref for Found {
    type Target = Finding;

    fn deref(&self) -> &Finding {
        &self.first
    }
}

/// Totals over the shown connections.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sums {
    pub(crate) commands: Commands,
    pub(crate) health: Health,
    rdma: Rdma,
}

impl Sums {
    pub(crate) fn of<'c>(connections: impl Iterator<Item = &'c Connection>) -> Self {
        let mut sums = Self::default();
        for connection in connections {
            connection.commands.iter().for_each(|command| sums.commands.join(command));
            sums.health.join(&connection.health);
            sums.rdma.join(&connection.rdma);
        }
        sums
    }

    /// Remote keys: advertised, invalidated by the peer, and operations outside the advertised memory.
    pub(crate) fn keys(&self) -> (u64, u64, u64) {
        (self.rdma.keys_advertised, self.rdma.keys_invalidated_remotely, self.rdma.outside_advertised)
    }
}

/// The two ends of a connection, client first.
pub(crate) fn ends(connection: &Connection) -> String {
    let port = |at: usize| match connection.peers[at].port {
        0 => String::new(),
        p => format!(":{p}"),
    };
    let arrow = if connection.client_known { "→" } else { "↔" };
    format!("{} {arrow} {}{}", address(&connection.peers[0].address), address(&connection.peers[1].address), port(1))
}

/// Findings, those of one cause joined; the most important first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Joined {
    rows: Arc<Vec<Found>>,
    counts: [usize; 3],
}

impl Deref for Joined {
    type Target = [Found];

    fn deref(&self) -> &[Found] {
        &self.rows
    }
}

impl Joined {
    /// Findings by their causes, as in a report; consequences of another finding have no row of their own.
    fn new(report: &Report, ranked: &[&Finding]) -> Self {
        let start = report.capture.first.map_or(0, |at| at.time);
        let mut counts = [0; 3];
        let mut rows = Vec::new();
        for root in roots::of(report, ranked) {
            let Some(first) = root.findings.first() else { continue };
            counts[root.severity as usize] += 1;
            let mut first =
                Finding { severity: root.severity, certainty: root.certainty, text: root.text(), ..(*first).clone() };
            first.frame = root.frames.first().copied().unwrap_or(first.frame);
            let title = root.fatal.is_some().then(|| root.title(start));
            let effects = root.effects.iter().map(|e| (e.rule, e.count)).collect();
            rows.push(Found {
                first,
                title,
                effects,
                count: root.count,
                frames: root.frames,
                connections: root.connections,
            });
        }
        Self { rows: Arc::new(rows), counts }
    }

    /// Number of findings of a severity.
    pub(crate) fn count(&self, severity: Severity) -> usize {
        self.counts[severity as usize]
    }
}

/// A report, digested.
#[derive(Debug, Default)]
pub(crate) struct Digest {
    report: Report,
    /// The report with the findings that were left out, if there were some.
    whole: Option<Report>,
    /// Place in the report's connections by the number under which one is followed.
    places: HashMap<u32, usize>,
    /// Findings, ranked.
    ranked: Vec<Finding>,
    /// Number of findings that were left out as asked, in a sentence.
    pub(crate) ignored: Option<String>,
    /// The same by number.
    skipped: Vec<(Ignore, u64)>,
    /// The time that requests waited, and for what, as text: with times since the first frame, and of the day.
    answers: [Option<String>; 2],
    /// All of them, joined.
    pub(crate) found: Joined,
    /// By the report's number of a connection, the worst that was found on it.
    worst: HashMap<u32, Severity>,
    busiest: Option<usize>,
    /// Of all connections.
    pub(crate) sums: Arc<Sums>,
}

impl Deref for Digest {
    type Target = Report;

    fn deref(&self) -> &Report {
        &self.report
    }
}

impl Digest {
    pub(crate) fn new(mut report: Report, ignore: &[Ignore]) -> Self {
        let before = if ignore.is_empty() { None } else { Some(report.clone()) };
        let skipped = take_ignored(&mut report, ignore);
        let whole = before.filter(|before| before.findings.len() > report.findings.len());
        let ignored = ignored_text(&skipped);
        let ranked: Vec<Finding> = report.findings.ranked().into_iter().cloned().collect();
        let mut worst: HashMap<u32, Severity> = HashMap::new();
        for f in &ranked {
            if let Some(connection) = f.connection {
                let known = worst.entry(connection).or_insert(f.severity);
                *known = f.severity.max(*known);
            }
        }
        let activity = |c: &Connection| (c.sides[0].messages + c.sides[1].messages, c.rdma.reads + c.rdma.writes);
        let busiest =
            (0..report.connections.len()).max_by_key(|i| (activity(&report.connections[*i]), std::cmp::Reverse(*i)));
        Self {
            places: report
                .connections
                .iter()
                .enumerate()
                .flat_map(|(i, c)| c.followed_as.iter().map(move |id| (*id, i)))
                .collect(),
            found: Joined::new(&report, &ranked.iter().collect::<Vec<_>>()),
            sums: Arc::new(Sums::of(report.connections.iter())),
            ignored,
            skipped,
            answers: [Clock::Relative, Clock::Utc].map(|clock| answer::text_by(&clock, &report)),
            ranked,
            worst,
            busiest,
            report,
            whole,
        }
    }

    /// The time that requests waited, and for what, as text with times of this form.
    pub(crate) fn answer(&self, time: Format) -> Option<&str> {
        let is_of_day = matches!(time, Format::Clock | Format::Date);
        self.answers[usize::from(is_of_day)].as_deref()
    }

    /// First sentence of the report; ✓ only if everything could be judged. `is_whole` is false if reading ended early.
    pub(crate) fn headline(&self, is_whole: bool) -> Headline {
        headline_of(&self.report, &self.skipped, false, is_whole, &roots(&self.report))
    }

    /// The report with all of its findings.
    pub(crate) fn whole(&self) -> &Report {
        self.whole.as_ref().unwrap_or(&self.report)
    }

    /// The place of a connection in the report, by the number under which it is followed.
    pub(crate) fn place(&self, followed_as: u32) -> Option<usize> {
        self.places.get(&followed_as).copied()
    }

    /// The connection with this number in the report.
    pub(crate) fn numbered(&self, id: u32) -> Option<&Connection> {
        // numbers are places, counted from 1
        self.report.connections.get((id as usize).checked_sub(1)?).filter(|c| c.id == id)
    }

    /// The place of the connection with the most messages.
    pub(crate) fn busiest(&self) -> Option<usize> {
        self.busiest
    }

    /// The worst that was found on a connection, by the report's number for it.
    pub(crate) fn worst(&self, connection: u32) -> Option<Severity> {
        self.worst.get(&connection).copied()
    }

    /// Findings on these connections (the report's numbers) and those on no connection.
    pub(crate) fn found_on(&self, connections: &HashSet<u32>, passes: impl Fn(&Finding) -> bool) -> Joined {
        let is_here = |f: &&Finding| f.connection.is_none_or(|c| connections.contains(&c)) && passes(f);
        let here: Vec<&Finding> = self.ranked.iter().filter(is_here).collect();
        Joined::new(&self.report, &here)
    }
}
