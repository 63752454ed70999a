//! Findings and counters of the lower layers: the rules of RC queue pairs and of TCP, MPA, DDP and RDMAP.
//!
//! ```text
//!   IbFlow  ─ IbFact ───▶ ib.rs    ─┐
//!   TcpFlow ─ FlowFact ─▶ iwarp.rs ─┴▶ findings, Health, missed packets      operations go up as they are
//! ```

mod ib;
mod iwarp;
mod losses;

use crate::connection::ConnectionState;
use crate::env::Env;
use crate::episodes::{Episode, Kind};
use crate::finding::{Blame, Certainty, Rule, Site};
use crate::flow::losses::Unanswered;
use crate::missed::{Lost, RESPONSE};
use crate::op::{At, End, Gap};
use core::fmt;

pub(crate) use ib::JUMPED;
pub use losses::{add_losses, add_vanished, packets};

/// A connection and everything it reports to, as a flow sees them.
pub struct Listener<'c> {
    /// The connection.
    pub connection: &'c mut ConnectionState,
    /// The environment that it reports to.
    pub env: &'c mut Env,
}

impl Listener<'_> {
    pub(super) fn wire(&mut self, at: At, rule: Rule, by: Blame, certainty: Certainty, text: fmt::Arguments<'_>) {
        let site = Site { connection: Some(self.connection.id), frame: at.frame, time_ns: at.time };
        if self.connection.is_unchecked
            && let Some(end) = End::BOTH.into_iter().find(|end| self.blame(*end) == by)
        {
            self.connection.missed.unchecked(rule, end);
        }
        self.env.report(rule, by, site, certainty, text);
    }

    /// Blame for an end: client or server, or unknown while that is not sure.
    pub(super) fn blame(&self, end: End) -> Blame {
        crate::context::blame(&self.connection.roles, end)
    }

    /// `by` sent the same again and again, and nothing came back.
    fn silence(&mut self, by: End, found: &Unanswered) {
        let (begin, end, repeated) = (found.from, Some(found.to), found.times);
        self.connection.episodes.add(Episode {
            kind: Kind::Silence,
            by: Some(by),
            begin,
            end,
            repeated,
            ..Episode::default()
        });
    }

    /// The content of a stretch is not known: packets, or bytes of the stream.
    fn hole(&mut self, gap: &Gap, unit: &'static str) {
        let heard = self.connection.ends[gap.by.index()].last_op;
        if heard != At::default() {
            // the receiver had them: the capture did not
            let (kind, by, end, packets) =
                (Kind::Gap, Some(gap.by), Some(gap.at), if unit == "packet" { gap.count } else { 0 });
            self.connection.episodes.add(Episode { kind, by, begin: heard, end, packets, ..Episode::default() });
        }
        self.connection.gap(self.env, gap.at, gap.by);
    }

    /// A stretch that will not come any more.
    fn lost(&mut self, at: At, gap: &Gap, unit: &'static str) {
        self.hole(gap, unit);
        if gap.receiver_had_them {
            self.env.lost_by_capture += self.packets(gap.count);
            self.connection.missed.lost(at.time, gap, unit);
        } else if !gap.is_asked {
            let count = Many(gap.count.into(), unit);
            let text = format_args!("{count} never came: lost by the capture, or on the wire and not repaired");
            self.wire(gap.at, Rule::RcGap, Blame::Unknown, Certainty::Guess, text);
        }
    }

    /// Packets or bytes of `by` that the capture seemed to have lost came after all.
    #[cold]
    fn found(&mut self, by: End, count: u32) {
        let came = self.connection.missed.found(by, count);
        self.env.lost_by_capture = self.env.lost_by_capture.saturating_sub(self.packets(came));
    }

    /// So many packets, or at least as many as so many bytes of TCP were in: one.
    fn packets(&self, count: u32) -> u64 {
        if self.connection.is_over_tcp() { count.min(1).into() } else { count.into() }
    }

    /// Reports what the capture lost, if it did not come in the time by which the frames of a capture may be out of
    /// order.
    #[cold]
    pub fn settle(&mut self, now: i64) {
        while let Some(Lost { at, count, unit, .. }) = self.connection.missed.settled(now) {
            let (missing, were) = (Many(count.into(), unit), if count == 1 { "was" } else { "were" });
            match unit {
                _ if count == 0 => {}
                RESPONSE => {
                    let text = format_args!("{missing} of Reads that the requester received {were} not captured");
                    self.wire(at, Rule::CaptureLoss, Blame::Capture, Certainty::IfNothingWasMissed, text);
                }
                _ => {
                    let text = format_args!("{missing} acknowledged by the receiver {were} not captured");
                    self.wire(at, Rule::CaptureLoss, Blame::Capture, Certainty::Certain, text);
                    let (all, times) = self.connection.uncaptured;
                    let (all, times) = (all + u64::from(count), times + 1);
                    self.connection.uncaptured = (all, times);
                    if times > 1 {
                        let all = Many(all, unit);
                        let text =
                            format_args!("{all} acknowledged by the receiver were not captured, at {times} places");
                        let id = Some(self.connection.id);
                        self.env.findings.retell(Rule::CaptureLoss, id, Blame::Capture, times, text);
                    }
                }
            }
        }
    }
}

/// The direction of what an end sends, if it is sure which end is the client.
fn way(connection: &ConnectionState, by: End) -> Option<&'static str> {
    let client = connection.roles.sure_client()?;
    Some(if client == by { "from the client to the server" } else { "from the server to the client" })
}

/// A number with its noun: "1 packet", "3 packets".
pub(super) struct Many(pub u64, pub &'static str);

impl fmt::Display for Many {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(n, unit) = self;
        write!(f, "{n} {unit}{}", if *n == 1 { "" } else { "s" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::alone;
    use crate::env::Options;
    use crate::summary::Transport;
    use alloc::string::String;
    use alloc::vec::Vec;

    fn at(frame: u64) -> At {
        At { frame, time: frame as i64 * 1_000_000 }
    }

    /// Kind, begin, end and packets of an episode.
    type Lasted = (Kind, At, Option<At>, u32);

    /// Episodes and texts of what end B sent and the capture does not have. `heard`: when B had sent something.
    fn gap(unit: &'static str, count: u32, heard: At) -> (Vec<Lasted>, Vec<String>) {
        let mut connection = ConnectionState::new(Transport::RoceV2, at(1));
        let mut env = Env::new(Options::default(), alone::Listener::default());
        connection.ends[End::B.index()].last_op = heard;
        let mut listener = Listener { connection: &mut connection, env: &mut env };
        listener.lost(at(6), &Gap { at: at(5), by: End::B, count, receiver_had_them: true, is_asked: false }, unit);
        listener.settle(i64::MAX);
        let episodes = connection.episodes.iter().map(|e| (e.kind, e.begin, e.end, e.packets)).collect();
        (episodes, env.findings.iter().map(|f| f.text.clone()).collect())
    }

    #[test]
    fn what_the_capture_lost_is_told_in_all() {
        let mut connection = ConnectionState::new(Transport::RoceV2, at(1));
        let mut env = Env::new(Options::default(), crate::context::alone::Listener::default());
        let mut listener = Listener { connection: &mut connection, env: &mut env };
        for (ms, by, count) in [(5, End::A, 13), (6, End::B, 27)] {
            let gap = Gap { at: at(ms), by, count, receiver_had_them: true, is_asked: false };
            listener.lost(at(ms), &gap, "packet");
        }
        listener.settle(i64::MAX);
        let told: Vec<(u64, String)> = env.findings.iter().map(|f| (f.count, f.text.clone())).collect();
        assert_eq!(told, [(2, "40 packets acknowledged by the receiver were not captured, at 2 places".into())]);
    }

    #[test]
    fn a_gap_lasts_since_its_sender_was_heard() {
        let (episodes, texts) = gap("packet", 3, at(2));
        assert_eq!(
            (episodes, texts),
            (
                [(Kind::Gap, at(2), Some(at(5)), 3)].into(),
                ["3 packets acknowledged by the receiver were not captured".into()].into()
            )
        );
        // of bytes, the packets are not known
        let (episodes, texts) = gap("byte", 1, at(2));
        assert_eq!(
            (episodes, texts),
            (
                [(Kind::Gap, at(2), Some(at(5)), 0)].into(),
                ["1 byte acknowledged by the receiver was not captured".into()].into()
            )
        );
        // it had not been heard before
        assert_eq!(gap("packet", 3, At::default()).0, []);
        assert_eq!(gap(RESPONSE, 1, at(2)).1, ["1 Response of Reads that the requester received was not captured"]);
    }
}
