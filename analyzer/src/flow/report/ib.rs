//! Rules of RC queue pairs. IBA volume 1, 9.7 (reliable service), 9.9 (errors); A17 (RoCEv2).

use super::Listener;
use crate::connection::{Connection, f};
use crate::env::Env;
use crate::finding::{Blame, Certainty, Rule, Severity, Site};
use crate::flow::ib::{IbFact, IbSink};
use crate::op::{At, End, Part, RdmaOp, Verb};
use crate::report::{Protocol, Sink};
use crate::series::Trouble;
use crate::smbd;
use rdmascope_dissector::trace::{Trace, Value};

/// Wrong invariant CRCs: damage where most are right, an unfinished checksum where none is.
pub fn icrc<S: Sink>(connection: &Connection, env: &mut Env<S>) {
    let Some(first) = connection.icrc_first_bad else { return };
    let (bad, good) = (connection.health.icrc_bad, connection.icrc_good);
    let site = Site { connection: Some(connection.id), frame: first.frame, time_ns: first.time };
    if good == 0 {
        let text =
            format_args!("no packet of {bad} has a right invariant CRC: captured before the adapter wrote it, or changed on the way");
        env.report_as(Severity::Note, Rule::RcIcrc, Blame::Capture, site, Certainty::Guess, text);
    } else {
        let all = bad + good;
        env.report(
            Rule::RcIcrc,
            Blame::Network,
            site,
            Certainty::Certain,
            format_args!("{bad} of {all} packets have a wrong invariant CRC"),
        );
    }
}

impl<S: Sink> Listener<'_, S> {
    /// An SMB Direct peer was not ready for a Send that was covered by a credit it had granted.
    fn granted_in_vain(&mut self, at: At, by: End, blame: Blame) {
        let Some(sender) = self.connection.smbd.as_ref().map(|s| *s.link.side(by.peer())) else { return };
        if sender.overruns > 0 || sender.credits.known().is_none() || sender.granted_total == 0 {
            return;
        }
        let text = format_args!("granted a credit and had no receive posted for the Send that used it");
        if blame == Blame::Server {
            self.wire(at, Rule::BugCve202631538, blame, Certainty::Guess, text);
        }
        self.wire(at, Rule::BugCve202631539, blame, Certainty::Guess, text);
    }
}

impl<S: Sink> IbSink for Listener<'_, S> {
    fn op<T: Trace>(&mut self, op: &RdmaOp<'_>, t: &mut T) {
        self.connection.op(self.env, op, t);
    }

    fn fact(&mut self, at: At, by: End, fact: IbFact) {
        let health = &mut self.connection.health;
        let sure = Certainty::Certain;
        match fact {
            IbFact::SequenceGap { missing } => {
                health.sequence_gaps += 1;
                self.wire(
                    at,
                    Rule::RcGap,
                    Blame::Network,
                    Certainty::IfNothingWasMissed,
                    format_args!("packets missing before this one: {missing}"),
                );
            }
            IbFact::Retransmission => {
                health.retransmissions += 1;
                self.connection.trouble.add(at.time, Trouble::RETRANSMISSION);
                self.env.retransmission = true;
                self.wire(at, Rule::RcRetransmit, Blame::Network, sure, format_args!("a packet went out again"));
            }
            IbFact::Duplicate => {
                health.duplicates += 1;
                self.wire(
                    at,
                    Rule::RcDuplicate,
                    Blame::Capture,
                    Certainty::Guess,
                    format_args!("the same packet stands in the capture twice"),
                );
            }
            IbFact::Reordered => {
                self.wire(
                    at,
                    Rule::RcReorder,
                    Blame::Network,
                    Certainty::IfNothingWasMissed,
                    format_args!("packets came in another order than they were sent"),
                );
            }
            IbFact::Gap(gap) => self.lost(&gap),
            IbFact::Nak { code, psn } => {
                health.naks += 1;
                self.connection.trouble.add(at.time, Trouble::NAK);
                let name = rdmascope_dissector::wire::ib::ext::NakCode(code);
                // a sequence error is the network's doing; the others are earned by the request
                let blame = if code == 0 { Blame::Network } else { self.connection.court(self.env, at).blame(by.peer()) };
                self.wire(at, Rule::RcNak, blame, sure, format_args!("{name} at PSN {psn}"));
            }
            IbFact::RnrNak { timer, psn } => {
                health.rnr_naks += 1;
                self.connection.trouble.add(at.time, Trouble::NAK);
                let blame = self.connection.court(self.env, at).blame(by);
                let wait = f64::from(rdmascope_dissector::wire::ib::ext::rnr_timer(timer)) / 1000.0;
                self.wire(
                    at,
                    Rule::RcRnr,
                    blame,
                    sure,
                    format_args!("had no receive posted for the Send at PSN {psn}; asked for {wait:.2} ms of patience"),
                );
                self.granted_in_vain(at, by, blame);
            }
            IbFact::ReadsOutstanding(count) => {
                let Some(limit) = self.connection.read_depth[by.index()].filter(|limit| count > *limit) else { return };
                let certainty = self.connection.certainty();
                let blame = self.connection.court(self.env, at).blame(by);
                self.wire(
                    at,
                    Rule::RdmaReadDepth,
                    blame,
                    certainty,
                    format_args!("has {count} RDMA Reads outstanding; {limit} were agreed"),
                );
            }
        }
    }

    fn show<T: Trace>(&mut self, verb: Verb, part: Part, bytes: &[u8], t: &mut T) {
        let def = if self.env.retransmission { f::RETRANSMISSION } else { f::HELD };
        t.field(def, bytes, 0, Value::None);
        if !matches!(verb, Verb::Send | Verb::SendInvalidate) || part != Part::Only {
            return;
        }
        // shown as what it is, without being counted
        match self.connection.protocol {
            Protocol::SmbDirect => smbd::show(bytes, t),
            Protocol::RpcRdma => crate::rpcrdma::show(bytes, t),
            _ => {}
        }
    }
}
