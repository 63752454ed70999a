//! A report, and what the views need of it, made in the loader's thread: a screen may have thousands of connections and findings to tell
//! of, and 16 ms.

use super::app::Found;
use super::statistics::Sums;
use rdmascope_analyzer::finding::Finding;
use rdmascope_analyzer::report::{Connection, Report};
use rdmascope_analyzer::rules::{Rule, Severity};
use std::collections::{HashMap, HashSet};
use std::ops::Deref;
use std::sync::Arc;

/// Frames of one finding that can be gone to.
const FRAMES: usize = 24;

/// Findings that say the same are one; what matters first.
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
    /// Joins findings that say the same, in the order of the first of each.
    fn new<'f>(findings: impl Iterator<Item = &'f Finding>) -> Self {
        let mut rows: Vec<Found> = Vec::new();
        let mut places: HashMap<(Rule, &str, &str), usize> = HashMap::new();
        for f in findings {
            let at = *places.entry((f.rule, f.by.name(), &f.text)).or_insert_with(|| {
                rows.push(Found { first: f.clone(), count: 0, frames: Vec::new(), connections: Vec::new() });
                rows.len() - 1
            });
            let found = &mut rows[at];
            found.count += f.count;
            found.connections.extend(f.connection);
            found.frames.extend(f.frames.iter());
        }
        let mut counts = [0; 3];
        for found in &mut rows {
            found.frames.sort_unstable();
            found.frames.truncate(FRAMES);
            found.first.frame = found.frames.first().copied().unwrap_or(found.first.frame);
            counts[found.severity as usize] += 1;
        }
        Self { rows: Arc::new(rows), counts }
    }

    /// How many of a severity.
    pub(crate) fn count(&self, severity: Severity) -> usize {
        self.counts[severity as usize]
    }
}

/// A report, digested.
#[derive(Debug, Default)]
pub(crate) struct Digest {
    report: Report,
    /// Place in the report's connections by the number under which one is followed.
    places: HashMap<u32, usize>,
    /// Findings, ranked.
    ranked: Vec<Finding>,
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
    pub(crate) fn new(report: Report) -> Self {
        let ranked: Vec<Finding> = report.findings.ranked().into_iter().cloned().collect();
        let mut worst: HashMap<u32, Severity> = HashMap::new();
        for f in &ranked {
            if let Some(connection) = f.connection {
                let known = worst.entry(connection).or_insert(f.severity);
                *known = f.severity.max(*known);
            }
        }
        let activity = |c: &Connection| (c.sides[0].messages + c.sides[1].messages, c.rdma.reads + c.rdma.writes);
        let busiest = (0..report.connections.len()).max_by_key(|i| (activity(&report.connections[*i]), std::cmp::Reverse(*i)));
        Self {
            places: report.connections.iter().enumerate().flat_map(|(i, c)| c.followed_as.iter().map(move |id| (*id, i))).collect(),
            found: Joined::new(ranked.iter()),
            sums: Arc::new(Sums::of(report.connections.iter())),
            ranked,
            worst,
            busiest,
            report,
        }
    }

    /// The place of a connection in the report, by the number under which it is followed.
    pub(crate) fn place(&self, followed_as: u32) -> Option<usize> {
        self.places.get(&followed_as).copied()
    }

    /// The same of the connection that the report gives this number.
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

    /// What was found on these connections (the report's numbers) and on none.
    pub(crate) fn found_on(&self, connections: &HashSet<u32>, passes: impl Fn(&Finding) -> bool) -> Joined {
        Joined::new(self.ranked.iter().filter(|f| f.connection.is_none_or(|c| connections.contains(&c)) && passes(f)))
    }
}
