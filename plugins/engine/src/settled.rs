//! Knowledge about frames that only later frames give: findings with their final certainty and text, sessions,
//! episodes. Taken from a report, which is made on demand if more frames came.

use rdmascope_analyzer::finding::{Blame, Certainty, Rule, Severity};
use rdmascope_analyzer::report::Report;
use rdmascope_dissector::text::Elapsed;
use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

/// A finding of the report.
#[derive(Clone, Debug)]
pub(crate) struct Late {
    pub(crate) rule: Rule,
    pub(crate) severity: Severity,
    pub(crate) certainty: Certainty,
    pub(crate) by: Blame,
    pub(crate) text: String,
    pub(crate) frame: u64,
    /// True if it has more frames than are reported.
    has_more: bool,
}

/// A session of a connection, and the connection's number among its channels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Channel {
    pub(crate) session: u64,
    pub(crate) channel: u32,
    pub(crate) of: u32,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Settled {
    pub(crate) findings: Vec<Late>,
    /// Frame and index in `findings`, in order.
    by_frame: Vec<(u64, u32)>,
    /// Findings by rule, side, and the connection's number in the analysis, whatever their frames.
    by_key: HashMap<(Rule, Blame, u32), u32>,
    /// Findings without a connection.
    of_none: HashMap<(Rule, Blame), u32>,
    channels: HashMap<u32, Vec<Channel>>,
    episodes: Vec<(u64, u32, String)>,
    pub(crate) text: String,
}

impl Settled {
    pub(crate) fn of(report: &Report) -> Self {
        let mut settled = Self::default();
        let followed: HashMap<u32, &[u32]> = report.connections.iter().map(|c| (c.id, &c.followed_as[..])).collect();
        for finding in report.findings.iter() {
            let place = settled.findings.len() as u32;
            settled.by_frame.extend(finding.frames.iter().map(|frame| (*frame, place)));
            match finding.connection {
                Some(id) => {
                    for as_number in followed.get(&id).copied().unwrap_or_default() {
                        settled.by_key.insert((finding.rule, finding.by, *as_number), place);
                    }
                }
                None => {
                    settled.of_none.insert((finding.rule, finding.by), place);
                }
            }
            settled.findings.push(Late {
                rule: finding.rule,
                severity: finding.severity,
                certainty: finding.certainty,
                by: finding.by,
                text: finding.text.clone(),
                frame: finding.frame,
                has_more: finding.frames.omitted() > 0,
            });
        }
        settled.by_frame.sort_unstable();
        settled.by_frame.dedup();
        let mut counted: HashSet<(u64, u32)> = HashSet::new();
        for (session, connections) in &report.sessions {
            for (n, id) in connections.iter().enumerate() {
                for as_number in followed.get(id).copied().unwrap_or_default() {
                    if counted.insert((*session, *as_number)) {
                        let channel =
                            Channel { session: *session, channel: n as u32 + 1, of: connections.len() as u32 };
                        settled.channels.entry(*as_number).or_default().push(channel);
                    }
                }
            }
        }
        for connection in &report.connections {
            for episode in connection.episodes.list.iter().filter(|e| !e.is_a_guess()) {
                let lasted = episode.lasted(connection.last.time);
                let cause = episode.cause.key().replace('_', " ");
                let mut text = format!("{}, {cause}, {}", episode.kind.name(), Elapsed(lasted));
                if episode.requests > 0 {
                    let _ = write!(text, "; {} requests waited {}", episode.requests, Elapsed(episode.cost));
                }
                for as_number in &connection.followed_as {
                    settled.episodes.push((episode.begin.frame, *as_number, text.clone()));
                }
            }
        }
        settled.episodes.sort_unstable();
        settled.text = text(report);
        settled
    }

    /// The findings with this frame.
    pub(crate) fn at(&self, frame: u64) -> impl Iterator<Item = &Late> {
        let from = self.by_frame.partition_point(|(number, _)| *number < frame);
        self.by_frame[from..]
            .iter()
            .take_while(move |(number, _)| *number == frame)
            .filter_map(|(_, n)| self.findings.get(*n as usize))
    }

    /// The final form of a finding that was reported in a frame of this connection.
    pub(crate) fn of_frame(&self, frame: u64, rule: Rule, by: Blame, connection: Option<u32>) -> Option<&Late> {
        let here = self.at(frame).find(|late| late.rule == rule && late.by == by);
        here.or_else(|| {
            let key = connection.and_then(|id| self.by_key.get(&(rule, by, id)));
            // of frames beyond the limit of the list it is unknown whether they belong to it
            key.or_else(|| self.of_none.get(&(rule, by)))
                .and_then(|n| self.findings.get(*n as usize))
                .filter(|late| late.has_more)
        })
    }

    pub(crate) fn channels(&self, connection: u32) -> &[Channel] {
        self.channels.get(&connection).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn episodes(&self, frame: u64, connection: u32) -> impl Iterator<Item = &str> {
        let from = self.episodes.partition_point(|(number, ..)| *number < frame);
        let here = self.episodes[from..].iter().take_while(move |(number, ..)| *number == frame);
        here.filter(move |(_, id, _)| *id == connection).map(|(.., text)| &**text)
    }
}

/// The report as text: connections, sessions, findings, the most important first.
fn text(report: &Report) -> String {
    let mut out = String::new();
    let capture = &report.capture;
    let _ = writeln!(
        out,
        "{} frames, {} connections, {} findings",
        capture.frames,
        report.connections.len(),
        report.findings.ranked().len()
    );
    out.push_str("\n# Connections\n");
    for connection in &report.connections {
        let [a, b] = connection.peers.map(|peer| format!("{}:{}", peer.address, peer.port));
        let (id, handshake) = (connection.id, connection.first.frame);
        let requests: u64 = connection.commands.iter().map(|c| c.count).sum();
        let _ = writeln!(
            out,
            "frame {handshake:<8} connection {id}: {a} and {b}, {requests} requests, {} retransmissions",
            connection.health.retransmissions
        );
    }
    out.push_str("\n# Sessions\n");
    if report.sessions.is_empty() {
        out.push_str("no SMB session was seen\n");
    }
    for (session, connections) in &report.sessions {
        let ids: Vec<String> = connections.iter().map(u32::to_string).collect();
        let first = report.connections.iter().find(|c| connections.contains(&c.id)).map_or(0, |c| c.first.frame);
        let _ = writeln!(out, "frame {first:<8} session {session:#018x}: connections {}", ids.join(", "));
    }
    out.push_str("\n# Findings\n");
    for finding in report.findings.ranked() {
        let row = finding.rule.row();
        let (severity, certainty, times) = (finding.severity.name(), finding.certainty.name(), finding.count);
        let _ = writeln!(out, "frame {:<8} {severity:6} {} ({certainty}), {times} times", finding.frame, row.id);
        let _ = writeln!(out, "    {} {}", report.sentence(finding), row.spec);
    }
    out
}
