//! Rules of RC queue pairs. IBA volume 1, 9.7 (reliable service), 9.9 (errors); A17 (RoCEv2).

use super::Listener;
use crate::connection::f;
use crate::devices::Measure;
use crate::episodes::{Cause, Episode, Kind, sequence_of_psn};
use crate::finding::{Blame, Certainty, Finding, Rule, Severity};
use crate::flow::ib::{IbFact, IbSink, JUMP_MAX, Operation, Why};
use crate::flow::restart::NEAR;
use crate::messages::smbd::Smbd;
use crate::missed::{RESPONSE, Rests};
use crate::op::{At, End, Gap, Part, RdmaOp, Verb};
use crate::rules::Group;
use crate::series::Trouble;
use crate::stats::wait_of_timer;
use rdmascope_dissector::trace::{Trace, Value};

/// NAK codes of a packet out of sequence, an invalid request, a remote access error, and an error of the responder
/// itself (IBA table 61).
const SEQUENCE: u8 = 0;
const INVALID_REQUEST: u8 = 1;
const REMOTE_ACCESS: u8 = 2;
const OPERATION: u8 = 3;

/// Beginning of the text about packet numbers that jump.
pub(crate) const JUMPED: &str = "packet numbers jump";

/// Cause of an RNR NAK of a request that takes no receive.
const BUSY: &str = "The receiver's adapter could not serve the request yet: a page of the memory was not there (on-demand \
    paging), or its queue of Reads was full";

/// Cause of a NAK with this code (IBA volume 1, 9.7.5.2.4); `is_unseen`: the capture shows nothing wrong with the request.
const fn why_refused(code: u8, is_unseen: bool) -> Option<&'static str> {
    Some(match (code, is_unseen) {
        (INVALID_REQUEST, false) => {
            "The message is longer than the buffer that its receiver posted, too many Reads are outstanding, or an opcode \
                is out of order"
        }
        (INVALID_REQUEST, true) => {
            "The receiver knows why: a buffer that is shorter than the message, a limit of Reads, or an operation that \
                its queue pair does not allow"
        }
        (REMOTE_ACCESS, false) => "The key, the range or the rights are wrong (see the RDMA-KEY findings)",
        (REMOTE_ACCESS, true) => {
            "The receiver knows why: memory that it took back before its peer was done, or rights that the wire does \
                not show"
        }
        (OPERATION, _) => "The responder failed while it carried out a valid request: its adapter or driver says more",
        _ => return None,
    })
}

impl Listener<'_> {
    /// True if an end was seen to break a rule that its peer's device, or what stands above it, may answer with a NAK.
    fn is_at_fault(&self, end: End) -> bool {
        let (id, by) = (Some(self.connection.id), self.blame(end));
        let is_refused = |f: &Finding| {
            // of RPC-over-RDMA, a device knows only the length of what it is sent
            let is_of_requests =
                matches!(f.rule.row().group, Group::Transport | Group::Memory | Group::Data | Group::KnownBug)
                    || f.rule == Rule::RpcrdmaInline;
            f.connection == id && f.by == by && f.severity == Severity::Error && is_of_requests && f.rule != Rule::RcNak
        };
        self.connection.is_stray(end) || self.env.findings.iter().any(is_refused)
    }

    /// The cause of a finding of this connection.
    fn because(&mut self, rule: Rule, by: Blame, why: Option<&'static str>) {
        self.env.findings.because(rule, Some(self.connection.id), by, why);
    }

    /// A receiver asks for packets again, of which the capture has none.
    #[cold]
    fn asked_for_unseen(&mut self, at: At, psn: u32) {
        let text = format_args!(
            "packets from PSN {psn} on were asked for again: lost on the way to their receiver, or overtaken"
        );
        self.wire(at, Rule::RcRetransmit, Blame::Network, Certainty::Guess, text);
    }

    /// A receiver was not ready. It is to blame, unless the sender sent more than it was allowed to.
    #[cold]
    fn not_ready(&mut self, at: At, by: End, (timer, psn): (u8, u32), of: Option<Operation>) {
        let takes_receive = of.is_some_and(|of| of.takes_receive);
        let is_excused = takes_receive && self.had_no_credit(by.peer());
        // what the sender had outstanding is not known where the capture lacks some of it
        let is_unknown = takes_receive && self.connection.missed.anything();
        let (blame, certainty) = match (is_excused, is_unknown) {
            (true, _) => (Blame::Unknown, Certainty::Guess),
            (false, true) => (self.blame(by), Certainty::IfNothingWasMissed),
            (false, false) => (self.blame(by), Certainty::Certain),
        };
        let wait = f64::from(rdmascope_dissector::wire::ib::ext::rnr_timer(timer)) / 1000.0;
        let what = match of.map(|of| of.verb) {
            Some(Verb::Send | Verb::SendInvalidate) => "Send",
            Some(Verb::Write) if takes_receive => "RDMA Write with immediate data",
            Some(Verb::Write) => "RDMA Write",
            Some(Verb::ReadRequest) => "RDMA Read",
            _ => "request",
        };
        let (fault, asked) = match (is_excused, takes_receive) {
            (true, _) => ("no receive was posted for", "its sender was asked"),
            (false, true) => ("had no receive posted for", "asked its peer"),
            (false, false) => ("was not ready for", "asked its peer"),
        };
        let text = format_args!("{fault} the {what} at PSN {psn}; {asked} to wait {wait:.2} ms");
        self.wire(at, Rule::RcRnr, blame, certainty, text);
        if !takes_receive {
            self.because(Rule::RcRnr, blame, Some(BUSY));
        }
        if takes_receive && !is_excused {
            self.granted_without_receive(at, by, blame);
        }
    }

    /// An end sent again what its receiver had not been ready for, `kept` ns behind the RNR NAK that asked it to wait for
    /// `asked` ns: what it took far beyond that is its own time. If that is as long as a timer, what it sent before may have
    /// been lost.
    fn sent_late(&mut self, at: At, by: End, asked: i64, kept: i64) {
        const TIMES: i64 = 8;
        const BEYOND: i64 = 50_000_000;
        if kept < asked.saturating_mul(TIMES).max(asked.saturating_add(BEYOND)) {
            return;
        }
        let episodes = &mut self.connection.episodes;
        let under_way = [Kind::Rnr, Kind::Recovery].into_iter().find(|kind| episodes.under_way(*kind, by).is_some());
        let Some(whole) = under_way.and_then(|kind| episodes.under_way(kind, by).copied()) else { return };
        let begin = At { time: at.time.saturating_sub(kept).saturating_add(asked), ..whole.begin };
        episodes.end(whole.kind, by, begin, |_| {});
        let kind = if wait_of_timer(kept, false).is_some() { Kind::Recovery } else { Kind::Idle };
        let (cause, sequence) = (Cause::SentLate, whole.sequence);
        episodes.add(Episode { kind, cause, by: Some(by), begin, end: Some(at), sequence, ..Episode::default() });
        // it goes on until the packet has been taken
        let Episode { kind, packets, .. } = whole;
        episodes.add(Episode { kind, by: Some(by), begin: at, sequence, packets, ..Episode::default() });
    }

    /// True if an end sent more than it had credits for.
    fn had_no_credit(&self, sender: End) -> bool {
        let (id, by) = (Some(self.connection.id), self.blame(sender));
        let overran = |f: &Finding| {
            let is_overrun =
                matches!(f.rule, Rule::SmbdCreditOverrun | Rule::RpcrdmaCreditOverrun | Rule::RpcrdmaCreditFirst);
            f.connection == id && f.by == by && is_overrun
        };
        let is_overrun = |smbd: &Smbd| smbd.link.side(sender).overruns > 0;
        // that a call was one too many is reported once no reply can stand behind it that came before it
        self.connection.smbd().is_some_and(is_overrun)
            || self.connection.is_beyond_credits(sender)
            || self.env.findings.iter().any(overran)
    }

    /// An SMB Direct peer was not ready for a Send that was covered by a credit it had granted.
    fn granted_without_receive(&mut self, at: At, by: End, blame: Blame) {
        let Some(sender) = self.connection.smbd().map(|s| *s.link.side(by.peer())) else { return };
        if sender.overruns > 0 || sender.credits.known().is_none() || sender.granted_total == 0 {
            return;
        }
        let text = format_args!("granted a credit but had no receive posted for the Send that used it");
        if blame == Blame::Server {
            self.wire(at, Rule::BugCve202631538, blame, Certainty::Guess, text);
        }
        self.wire(at, Rule::BugCve202631539, blame, Certainty::Guess, text);
    }
}

impl Listener<'_> {
    /// The packet numbers of an end jump. What was missed was missed of both, whether or not the numbers of the other
    /// show that.
    #[cold]
    fn jumped(&mut self, at: At) {
        self.connection.health.sequence_gaps += 1;
        End::BOTH.into_iter().for_each(|end| self.connection.gap(self.env, at, end));
        self.connection.distrust();
        let text = format_args!(
            "{JUMPED}: more than {JUMP_MAX} packets were not captured, or other connections use the queue pairs"
        );
        self.wire(at, Rule::CaptureLoss, Blame::Capture, Certainty::Guess, text);
    }
}

impl IbSink for Listener<'_> {
    fn op<T: Trace>(&mut self, op: &RdmaOp<'_>, t: &mut T) {
        self.connection.op(self.env, op, t);
    }

    fn fact(&mut self, at: At, by: End, fact: IbFact) {
        let health = &mut self.connection.health;
        let sure = Certainty::Certain;
        match fact {
            IbFact::SequenceGap { .. } => health.sequence_gaps += 1,
            IbFact::Retransmission { of } => {
                if let Some(episode) = self.connection.episodes.under_way(Kind::Recovery, by) {
                    episode.repeated += 1;
                }
                health.retransmissions += 1;
                self.connection.trouble.add(at.time, Trouble::RETRANSMISSION);
                self.env.frame.retransmission = true;
                self.env.frame.copy_of = of;
            }
            IbFact::Duplicate => {
                health.duplicates += 1;
                self.wire(
                    at,
                    Rule::RcDuplicate,
                    Blame::Capture,
                    Certainty::Guess,
                    format_args!("the same packet is in the capture twice"),
                );
            }
            IbFact::MayBeCopies => self.connection.before_copies = health.retransmissions,
            IbFact::WereCopies => self.connection.were_copies(),
            IbFact::Misplaced => {
                self.env.frame.is_misplaced = true;
                self.connection.is_out_of_order = true;
                self.env.weaken(self.connection.id);
            }
            IbFact::BeganLate => {
                self.connection.missed.late();
                self.connection.missed.gap(by, at);
                self.connection.unseen(by);
            }
            IbFact::Jumped => self.jumped(at),
            IbFact::Found(packets) => self.found(by, packets),
            IbFact::Damaged => self.env.frame.is_damaged = true,
            IbFact::FollowedDamaged => {
                self.connection.followed_damaged = true;
                self.connection.gap(self.env, at, by);
            }
            IbFact::Doubtful => self.connection.is_unchecked = true,
            IbFact::Recovering { since, psn, kind, is_gap } => {
                let (sequence, packets) = (Some(sequence_of_psn(psn)), u32::from(!is_gap));
                self.connection.episodes.add(Episode {
                    kind,
                    by: Some(by),
                    begin: since,
                    sequence,
                    packets,
                    ..Episode::default()
                });
            }
            IbFact::Recovered { ended, over } => {
                for kind in [Kind::Recovery, Kind::Rnr] {
                    let change = |e: &mut Episode| {
                        (e.cause, e.packets, e.repeated, e.bytes) =
                            (ended.cause, ended.packets, ended.repeated, ended.bytes);
                        e.trigger = ended.trigger;
                    };
                    match self.connection.episodes.under_way(kind, by) {
                        Some(episode) if over => change(episode),
                        _ => self.connection.episodes.end(kind, by, at, change),
                    }
                }
            }
            IbFact::NotRecovering => {
                [Kind::Recovery, Kind::Rnr].into_iter().for_each(|kind| self.connection.episodes.retract(kind, by, at))
            }
            IbFact::Measured(measure) => {
                if let Measure::Rnr { asked, kept } = measure {
                    self.sent_late(at, by, asked, kept);
                }
                self.connection.ends[by.index()].device.measured(measure);
            }
            IbFact::Version(version) => {
                let blame = self.blame(by);
                self.wire(
                    at,
                    Rule::RcVersion,
                    blame,
                    sure,
                    format_args!("sent transport header version {version}; there is only 0"),
                );
            }
            IbFact::Partition { expected, got } => {
                let blame = self.blame(by);
                let text = format_args!("sent P_Key {got:#06x} on a connection in partition {expected:#06x}");
                self.wire(at, Rule::RcPKey, blame, Certainty::IfNothingWasMissed, text);
            }
            IbFact::OutOfOrder { verb, part, open } => {
                let blame = self.blame(by);
                let state = if open { "inside another message" } else { "of a message that had not begun" };
                self.wire(
                    at,
                    Rule::RcOpcode,
                    blame,
                    Certainty::IfNothingWasMissed,
                    format_args!("sent a {verb:?} {part:?} {state}"),
                );
            }
            IbFact::RoundTrip(took) => self.connection.episodes.round_trip(by, took),
            IbFact::RecentRoundTrip(took) => self.connection.episodes.recent_round_trip_is(by, took),
            IbFact::Silent(found) => self.silence(by, &found),
            IbFact::ResponsesMissed(count) => {
                self.connection.missed.gap(by, at);
                self.env.lost_by_capture += u64::from(count);
                let gap = Gap { at, by, count, receiver_had_them: true, is_asked: false };
                self.connection.missed.lost(at.time, &gap, RESPONSE);
            }
            IbFact::ResponsesGarbled(_) => self.connection.missed.gap(by, at),
            IbFact::Gap(gap) | IbFact::Garbled(gap) => {
                match fact {
                    IbFact::Garbled(_) => self.hole(&gap, "packet"),
                    _ => self.lost(at, &gap, "packet"),
                }
                if at.frame > gap.at.frame && at.frame != u64::MAX {
                    // packets behind it are known from here on only, and so are their requests
                    End::BOTH.into_iter().for_each(|end| self.connection.missed.gap(end, at));
                }
                if gap.count > NEAR.unsigned_abs() {
                    self.connection.distrust();
                }
            }
            IbFact::Nak { code, psn } => {
                health.naks += 1;
                self.connection.trouble.add(at.time, Trouble::NAK);
                if let Some(episode) = self.connection.episodes.under_way(Kind::Recovery, by.peer()) {
                    episode.packets = episode.packets.max(1);
                }
                // a sequence error asks for lost packets: it is part of those losses
                let doer = match code {
                    SEQUENCE if self.connection.missed.is_absent(by.peer()) => return self.asked_for_unseen(at, psn),
                    SEQUENCE => return,
                    // the responder could not fulfil a valid request
                    OPERATION => by,
                    _ => by.peer(),
                };
                self.connection.broke_off(by, at);
                let name = rdmascope_dissector::wire::ib::ext::NakCode(code);
                // only its receiver knows the reason of a NAK for a request in which nothing wrong is seen
                let unseen = match code {
                    OPERATION => None,
                    REMOTE_ACCESS => {
                        (!self.connection.is_stray(by.peer())).then_some("no access outside advertised memory")
                    }
                    _ => (!self.is_at_fault(by.peer())).then_some("nothing wrong with it"),
                };
                if let Some(unseen) = unseen {
                    let text = format_args!("the request at PSN {psn} was refused, though {unseen} was seen: {name}");
                    self.wire(at, Rule::RcNak, Blame::Unknown, Certainty::Guess, text);
                    return self.because(Rule::RcNak, Blame::Unknown, why_refused(code, true));
                }
                let blame = self.blame(doer);
                let certainty = Certainty::IfNothingWasMissed;
                if doer == by {
                    self.wire(
                        at,
                        Rule::RcNak,
                        blame,
                        certainty,
                        format_args!("answered the request at PSN {psn} with a NAK: {name}"),
                    );
                } else {
                    self.wire(
                        at,
                        Rule::RcNak,
                        blame,
                        certainty,
                        format_args!("sent a request at PSN {psn} that was refused: {name}"),
                    );
                }
                self.because(Rule::RcNak, blame, why_refused(code, false));
            }
            IbFact::RnrNak { timer, psn, of } => {
                health.rnr_naks += 1;
                self.connection.trouble.add(at.time, Trouble::NAK);
                self.not_ready(at, by, (timer, psn), of);
            }
            IbFact::OtherLength { said, sent, part } => {
                let (blame, is_alone) = (self.blame(by), part == Part::Only);
                let certainty = if is_alone { sure } else { Certainty::IfNothingWasMissed };
                let more = if sent > said && !part.ends() { " and more" } else { "" };
                let text = format_args!("sent a Write of {said} bytes, by its RETH, with {sent} bytes{more}");
                self.wire(at, Rule::RcLength, blame, certainty, text);
            }
            IbFact::ReadNotEnded(part) => {
                let text = format_args!("sent the last packet of the answer to a Read as a {part:?}");
                self.wire(at, Rule::RcOpcode, self.blame(by), Certainty::IfNothingWasMissed, text);
            }
            IbFact::OtherReadLength { asked, came } => {
                let text = format_args!("answered a Read of {asked} bytes with {came}");
                self.wire(at, Rule::RcLength, self.blame(by), Certainty::IfNothingWasMissed, text);
            }
            IbFact::BeyondMtu { length } => {
                let text = format_args!("sent a packet with {length} bytes of payload; the largest path MTU is 4096");
                self.wire(at, Rule::RcLength, self.blame(by), sure, text);
            }
            IbFact::AckedUnsent { psn, beyond, count } => {
                let blame = self.blame(by);
                let certainty = Certainty::IfNothingWasMissed;
                if count == 1 {
                    let text = format_args!(
                        "acknowledged PSN {psn}, {beyond} beyond the last packet of its peer, and then fewer packets"
                    );
                    return self.wire(at, Rule::RcAckUnsent, blame, certainty, text);
                }
                let text = format_args!(
                    "acknowledged packets that its peer had not sent, {count} times; at the end PSN {psn}, {beyond} \
                        beyond the last one"
                );
                self.wire(at, Rule::RcAckUnsent, blame, certainty, text);
            }
            IbFact::WrongNumber { psn, right } => {
                let blame = self.blame(by);
                let text =
                    format_args!("sent a packet with PSN {psn}, and the same again with {right}, which came next");
                self.wire(at, Rule::RcPsn, blame, Certainty::IfNothingWasMissed, text);
            }
            IbFact::WrongQueuePair { qp, is_checked } => {
                let blame = self.blame(by);
                // unchecked, it may have been damaged on its way
                let certainty = if is_checked { Certainty::IfNothingWasMissed } else { Certainty::Guess };
                let right = self.connection.peers[by.peer().index()].qp.unwrap_or_default();
                let text = format_args!("sent a packet to queue pair {qp:#x}, and then the same one to {right:#x}");
                self.wire(at, Rule::RcDestQp, blame, certainty, text);
            }
            IbFact::ReadsOutstanding(count) => {
                if let Some(limit) = self.connection.opening.read_depth[by.index()].filter(|limit| count <= *limit) {
                    self.connection.reads(by, at, count, limit);
                }
            }
            IbFact::ReadsAnswered { asked, outstanding } => {
                // not before they are answered: a Read whose Responses the capture lost would be outstanding for ever
                let Some(limit) = self.connection.opening.read_depth[by.index()].filter(|limit| outstanding > *limit)
                else {
                    return;
                };
                let text = format_args!("has {outstanding} RDMA Reads outstanding; {limit} were agreed");
                self.connection.report(self.env, asked, Rule::RdmaReadDepth, by, Rests::LEDGER.of(by), text);
            }
        }
    }

    #[inline]
    fn sequence(&mut self, by: End, sequence: u32) {
        self.connection.ends[by.index()].sequence = Some(sequence);
    }

    #[inline]
    fn acknowledged(&mut self, at: At, by: End, sequence: u32, is_ack: bool) {
        if is_ack {
            self.connection.ends[by.peer().index()].device.acknowledged(sequence >> 8);
        }
        self.connection.acknowledged(self.env, at, by, sequence);
    }

    fn again(&mut self, at: At, by: End, sequence: u32, why: Why) {
        self.connection.again(by, at, sequence, false, why != Why::Timer, why != Why::Asked);
    }

    fn show<T: Trace>(&mut self, verb: Verb, part: Part, bytes: &[u8], t: &mut T) {
        let def = match (self.env.frame.is_damaged, self.env.frame.retransmission) {
            (true, _) => f::DAMAGED,
            (_, true) => f::RETRANSMISSION,
            _ => f::HELD,
        };
        t.field(def, bytes, 0, Value::None);
        self.show_late(verb, part, bytes, t);
    }

    fn show_late<T: Trace>(&mut self, verb: Verb, part: Part, bytes: &[u8], t: &mut T) {
        if !matches!(verb, Verb::Send | Verb::SendInvalidate) || part != Part::Only {
            return;
        }
        // shown, without being counted
        let exchanges = self.connection.show(bytes, t);
        exchanges.into_iter().flatten().for_each(|id| self.env.frame.belongs(id, 0));
    }

    fn is_shown(&self, by: End, verb: Verb, part: Part, bytes: &[u8]) -> bool {
        // see `show`
        matches!(verb, Verb::Send | Verb::SendInvalidate) && part == Part::Only && self.connection.is_shown(by, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::ConnectionState;
    use crate::context::alone;
    use crate::env::{Env, Options};
    use crate::flow::recovery::HELD_BACK;
    use crate::op::Placement;
    use crate::roles::Source;
    use crate::summary::Transport;
    use alloc::string::ToString;
    use alloc::vec::Vec;
    use rdmascope_dissector::trace::{Off, Tree};

    fn at(frame: u64) -> At {
        At { frame, time: (frame as i64).saturating_mul(1_000_000) }
    }

    /// A connection after some facts about an end, and the findings. End A is its client.
    fn told(by: End, facts: &[(u64, IbFact)]) -> (ConnectionState, Vec<(Rule, Blame)>) {
        let (connection, found) = findings(by, facts);
        (connection, found.into_iter().map(|f| (f.rule, f.by)).collect())
    }

    fn findings(by: End, facts: &[(u64, IbFact)]) -> (ConnectionState, Vec<Finding>) {
        let mut connection = ConnectionState::new(Transport::RoceV2, at(1));
        connection.roles.learn(End::A, Source::Port);
        connection.opening.read_depth[by.index()] = Some(4);
        let mut env = Env::new(Options::default(), alone::Listener::default());
        for (frame, fact) in facts {
            Listener { connection: &mut connection, env: &mut env }.fact(at(*frame), by, *fact);
        }
        Listener { connection: &mut connection, env: &mut env }.settle(i64::MAX);
        let found = env.findings.iter().cloned().collect();
        (connection, found)
    }

    /// A call of NFS's procedure NULL, or its reply.
    fn null(is_reply: bool) -> Vec<u8> {
        let rpc: &[u32] = if is_reply { &[7, 1, 0, 0, 0, 0] } else { &[7, 0, 2, 100_003, 3, 0, 0, 0, 0, 0] };
        [7, 1, 32, 0, 0, 0, 0].iter().chain(rpc).flat_map(|word: &u32| word.to_be_bytes()).collect()
    }

    /// A Send of these bytes.
    fn send(at: At, by: End, bytes: &[u8]) -> RdmaOp<'_> {
        RdmaOp {
            at,
            by,
            verb: Verb::Send,
            part: Part::Only,
            placement: Placement::Queue { offset: 0 },
            message_length: None,
            invalidate: None,
            immediate: None,
            solicited: false,
            length: bytes.len() as u32,
            bytes,
            in_frame: true,
            read: 0,
        }
    }

    #[test]
    fn which_copy_of_a_reply_counts() {
        const SEQUENCE: u32 = 9 << 8;
        // the reply goes out again so many ns later; `spoke`: its receiver has sent something since
        let counts_again = |why: Why, after: i64, spoke: bool| {
            let mut connection = ConnectionState::new(Transport::RoceV2, at(1));
            connection.roles.learn(End::A, Source::Handshake);
            let mut env = Env::new(Options::default(), alone::Listener::default());
            let mut flow = Listener { connection: &mut connection, env: &mut env };
            flow.op(&send(at(2), End::A, &null(false)), &mut Off);
            flow.sequence(End::B, SEQUENCE);
            flow.op(&send(at(3), End::B, &null(true)), &mut Off);
            if spoke {
                flow.op(
                    &RdmaOp { verb: Verb::Write, placement: Placement::Unknown, ..send(at(4), End::A, &[]) },
                    &mut Off,
                );
            }
            let again = At { frame: 5, time: at(3).time + after };
            flow.again(again, End::B, SEQUENCE, why);
            flow.acknowledged(at(9), End::B, SEQUENCE, true);
            let [exchange] = &env.sink.0[..] else { panic!("one request was answered") };
            assert_eq!(exchange.reply_seen.is_some(), exchange.reply_end == Some(again));
            exchange.reply_end == Some(again)
        };
        let long = 3_000_000;
        assert_eq!([Why::Timer, Why::Asked, Why::AskedBefore].map(|why| counts_again(why, long, false)), [true; 3]);
        // who goes on speaking had it, unless it asked for it
        assert_eq!(
            [Why::Timer, Why::Asked, Why::AskedBefore].map(|why| counts_again(why, long, true)),
            [false, true, true]
        );
        // so soon, nobody has waited for an acknowledgment: the copy was on its way, unless it was asked for and had
        // not come
        assert_eq!(
            [Why::Timer, Why::Asked, Why::AskedBefore].map(|why| counts_again(why, HELD_BACK, false)),
            [false, true, false]
        );
        assert_eq!(
            [Why::Timer, Why::Asked, Why::AskedBefore].map(|why| counts_again(why, HELD_BACK + 1, false)),
            [true; 3]
        );
    }

    #[test]
    fn a_send_alone_is_shown_when_it_comes_late() {
        let mut connection = ConnectionState::new(Transport::RoceV2, at(1));
        let mut env = Env::new(Options::default(), alone::Listener::default());
        let mut flow = Listener { connection: &mut connection, env: &mut env };
        let bytes = null(false);
        flow.op(&send(at(2), End::A, &bytes), &mut Off);
        let mut is_shown = |verb: Verb, part: Part| {
            let mut tree = Tree::new();
            tree.begin(&bytes);
            flow.show_late(verb, part, &bytes, &mut tree);
            let is_there = tree.all("rpcordma.xid").next().is_some();
            assert_eq!(flow.is_shown(End::A, verb, part, &bytes), is_there);
            is_there
        };
        assert_eq!(
            [Verb::Send, Verb::SendInvalidate, Verb::Write].map(|verb| is_shown(verb, Part::Only)),
            [true, true, false]
        );
        assert_eq!([Part::First, Part::Middle, Part::Last].map(|part| is_shown(Verb::Send, part)), [false; 3]);
    }

    #[test]
    fn reads_up_to_the_agreed_depth_and_beyond() {
        let answered = |outstanding: u32| told(End::A, &[(9, IbFact::ReadsAnswered { asked: at(2), outstanding })]).1;
        assert_eq!([answered(4), answered(5)], [Vec::new(), [(Rule::RdmaReadDepth, Blame::Client)].into()]);
        // with as many as may be outstanding, it waits for an answer
        let is_full = |count: u32| {
            let mut ceiling = told(End::A, &[(9, IbFact::ReadsOutstanding(count))]).0.ends[0].reads;
            ceiling.free(at(10));
            ceiling.used(at(11)).is_some()
        };
        assert_eq!([3, 4, 5].map(is_full), [false, true, false], "more than that says nothing of a limit");
    }

    #[test]
    fn who_is_to_blame_for_a_nak() {
        let nak = |code: u8| told(End::B, &[(9, IbFact::Nak { code, psn: 7 })]).1;
        let blamed = |by: Blame| alloc::vec![(Rule::RcNak, by)];
        assert_eq!(nak(0), [(Rule::RcRetransmit, Blame::Network)], "nothing of its peer was captured");
        assert_eq!(
            [nak(1), nak(2), nak(3), nak(4)],
            [Blame::Unknown, Blame::Unknown, Blame::Server, Blame::Unknown].map(blamed)
        );
        let text = |code: u8| {
            findings(End::B, &[(9, IbFact::Nak { code, psn: 7 })]).1.pop().map(|f| f.text).unwrap_or_default()
        };
        assert!(
            text(1).starts_with("the request at PSN 7 was refused, though nothing wrong with it was seen: "),
            "{}",
            text(1)
        );
        assert!(text(3).starts_with("answered the request at PSN 7 with a NAK: "), "{}", text(3));
    }

    #[test]
    fn who_is_to_blame_for_a_receiver_that_is_not_ready() {
        let of = |verb: Verb, takes_receive: bool| Some(Operation { verb, takes_receive });
        let found = |of: Option<Operation>, overruns: bool| {
            let mut connection = ConnectionState::new(Transport::RoceV2, at(1));
            connection.roles.learn(End::A, Source::Port);
            End::BOTH.into_iter().for_each(|end| connection.missed.captured(end, At::default()));
            let mut env = Env::new(Options::default(), alone::Listener::default());
            let mut flow = Listener { connection: &mut connection, env: &mut env };
            if overruns {
                let text = format_args!("sent a Send without a credit");
                flow.wire(at(8), Rule::SmbdCreditOverrun, Blame::Client, Certainty::Certain, text);
            }
            flow.fact(at(9), End::B, IbFact::RnrNak { timer: 1, psn: 7, of });
            let found = env.findings.iter().find(|f| f.rule == Rule::RcRnr).expect("it was not ready");
            (found.by, found.certainty, found.text.split(';').next().unwrap_or_default().to_string())
        };
        let sure = |text: &str| (Blame::Server, Certainty::Certain, text.to_string());
        assert_eq!(found(of(Verb::Send, true), false), sure("had no receive posted for the Send at PSN 7"));
        assert_eq!(found(of(Verb::Write, false), false), sure("was not ready for the RDMA Write at PSN 7"));
        assert_eq!(found(of(Verb::ReadRequest, false), true), sure("was not ready for the RDMA Read at PSN 7"));
        assert_eq!(found(None, false), sure("was not ready for the request at PSN 7"));
        let excused = (Blame::Unknown, Certainty::Guess, "no receive was posted for the Send at PSN 7".to_string());
        assert_eq!(found(of(Verb::Send, true), true), excused);
    }

    #[test]
    fn a_request_whose_fault_was_seen_is_refused_for_it() {
        let mut connection = ConnectionState::new(Transport::RoceV2, at(1));
        connection.roles.learn(End::A, Source::Port);
        let mut env = Env::new(Options::default(), alone::Listener::default());
        let mut flow = Listener { connection: &mut connection, env: &mut env };
        flow.fact(at(8), End::A, IbFact::OutOfOrder { verb: Verb::Send, part: Part::Middle, open: false });
        flow.fact(at(9), End::B, IbFact::Nak { code: 1, psn: 7 });
        let found = env.findings.iter().find(|f| f.rule == Rule::RcNak).expect("it was refused");
        assert_eq!((found.by, found.certainty), (Blame::Client, Certainty::IfNothingWasMissed));
        assert!(found.text.starts_with("sent a request at PSN 7 that was refused: "), "{}", found.text);
    }

    #[test]
    fn a_loss_is_a_guess_where_packets_stand_far_from_their_place() {
        let certainty = |found: u32| {
            let mut connection = ConnectionState::new(Transport::RoceV2, at(1));
            let mut env = Env::new(Options::default(), alone::Listener::default());
            let mut flow = Listener { connection: &mut connection, env: &mut env };
            let gap =
                |frame: u64| Gap { at: at(frame), by: End::A, count: 1, receiver_had_them: true, is_asked: false };
            flow.fact(at(2), End::A, IbFact::Gap(gap(2)));
            flow.settle(at(9).time);
            (0..found).for_each(|_| flow.fact(at(9), End::A, IbFact::Found(1)));
            connection.finish(&mut env, at(10), [false; 2]);
            env.findings.iter().map(|f| f.certainty).collect::<Vec<_>>()
        };
        assert_eq!([certainty(0), certainty(1)], [[Certainty::Certain], [Certainty::Guess]]);
    }

    #[test]
    fn what_rests_on_packets_that_were_damaged_is_a_guess() {
        let certainty = |facts: &[IbFact]| {
            let mut connection = ConnectionState::new(Transport::RoceV2, at(1));
            let mut env = Env::new(Options::default(), alone::Listener::default());
            connection.is_unchecked = true;
            let mut flow = Listener { connection: &mut connection, env: &mut env };
            flow.fact(at(2), End::A, IbFact::OtherLength { said: 4, sent: 8, part: Part::Only });
            flow.connection.is_unchecked = false;
            facts.iter().for_each(|fact| flow.fact(at(3), End::A, *fact));
            connection.finish(&mut env, at(9), [false; 2]);
            let is_whole = connection.missed.is_whole(Rests::since(at(2)).of(End::A));
            (env.findings.iter().map(|f| f.certainty).next(), is_whole)
        };
        assert_eq!(certainty(&[]), (Some(Certainty::Certain), true));
        assert_eq!(certainty(&[IbFact::FollowedDamaged]), (Some(Certainty::Guess), false));
    }

    /// Behind a jump of the packet numbers, nothing rests on what came before it.
    #[test]
    fn a_jump_of_the_packet_numbers_is_a_hole_of_both_ends() {
        let (connection, found) = findings(End::B, &[(5, IbFact::Jumped)]);
        let is_whole = |frame: u64| End::BOTH.map(|end| connection.missed.is_whole(Rests::since(at(frame)).of(end)));
        assert_eq!((is_whole(4), is_whole(6)), ([false; 2], [true; 2]));
        assert!(connection.health.is_troubled());
        let found: Vec<_> = found.iter().map(|f| (f.rule, f.by, f.certainty)).collect();
        assert_eq!(found, [(Rule::CaptureLoss, Blame::Capture, Certainty::Guess)]);
    }

    #[test]
    fn packets_behind_a_gap_are_known_from_the_frame_that_shows_it() {
        let is_whole = |frame: u64| {
            let gap = IbFact::Gap(Gap { at: at(5), by: End::B, count: 1, receiver_had_them: true, is_asked: false });
            let (connection, found) = told(End::B, &[(frame, gap)]);
            assert_eq!(found, [(Rule::CaptureLoss, Blame::Capture)]);
            connection.missed.is_whole(Rests::since(at(5)).of(End::A))
        };
        // the last is the end of the capture
        assert_eq!([is_whole(4), is_whole(5), is_whole(6), is_whole(u64::MAX)], [true, true, false, true]);
    }
}
