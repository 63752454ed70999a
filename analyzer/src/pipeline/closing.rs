//! The end of connections: what they held back is analysed, and their results go to the report.

use super::Pipeline;
use super::table::Flow;
use crate::connection::facts::{self, Listener};
use crate::finding::{Blame, Certainty, Finding, Rule, Severity};
use crate::op::{At, End};
use crate::outcome::Success;
use crate::report;
use crate::rules::Group;
use crate::sink::Sink;
use alloc::vec::Vec;
use hashbrown::HashSet;
use rdmascope_dissector::trace::Off;

/// Connections that are added up together.
const FOLD: usize = 64;

/// True if a finding about what peers sent may only show that the capture has them in another order.
fn rests_on_order(finding: &Finding) -> bool {
    let is_of_a_protocol = matches!(
        finding.rule.row().group,
        Group::Negotiate
            | Group::Credits
            | Group::Data
            | Group::Memory
            | Group::Smb2
            | Group::RpcRdma
            | Group::KnownBug
    );
    let is_of_ddp = matches!(finding.rule, Rule::DdpMsn | Rule::DdpOverlap);
    let is_loss = finding.rule == Rule::CaptureLoss;
    let is_one = is_of_a_protocol || is_of_ddp;
    finding.certainty != Certainty::Certain && (is_one && finding.by != Blame::Capture || is_loss)
}

impl<S: Sink> Pipeline<S> {
    /// For an analysis without an end: drops connections that were ended `closed_after` ns before `now`, and of those
    /// without a frame for `idle_after` ns. (One that speaks again is found again, as one whose handshake was not
    /// seen.)
    pub fn expire(&mut self, now: i64, closed_after: i64, idle_after: i64) {
        self.inner().drop_old(now, closed_after, idle_after);
    }
}

impl Pipeline<dyn Sink> {
    fn drop_old(&mut self, now: i64, closed_after: i64, idle_after: i64) {
        let elsewhere = self.shard.as_ref().map(|shard| shard.last).unwrap_or_default();
        let at = self.capture.last.unwrap_or_default().max(elsewhere);
        for slot in 0..self.table.end() {
            let Some(s) = self.table.get(slot) else { continue };
            let age = now.saturating_sub(s.connection.last.time);
            let is_over = s.connection.closed.is_some() || s.connection.opening.rejected.is_some();
            if age > idle_after {
                self.connections_evicted += u64::from(!is_over);
                self.close(slot, at);
            } else if is_over && age > closed_after {
                self.close(slot, at);
            }
        }
    }

    /// Another connection has the numbers of one that is open from here on: its end was not captured, nor what came
    /// before it.
    #[cold]
    pub(super) fn end_unseen(&mut self, slot: u32, at: At) {
        let Some(s) = self.table.get_mut(slot).filter(|s| s.connection.closed.is_none()) else { return };
        End::BOTH.into_iter().for_each(|end| s.connection.gap(&mut self.env, at, end));
    }

    /// A connection ends, or is not followed any more: its results go to the report.
    pub(super) fn close(&mut self, slot: u32, at: At) {
        let Some(mut gone) = self.table.remove(slot) else { return };
        if let Some(key) = gone.qp_keys[0] {
            self.halves.remove(&key, slot);
        }
        let again = self.requests.sent_again(slot);
        self.requests.forget(slot);
        if gone.is_phantom() {
            // nobody has such a connection: what was found on it is the damage
            let id = Some(gone.connection.id);
            self.env.findings.retain(|f| f.connection != id);
            return;
        }
        // the packets that it held back are not its last one
        gone.connection.is_unchecked = false;
        let mut listener = Listener { connection: &mut gone.connection, env: &mut self.env };
        match &mut gone.flow {
            Flow::Ib(flow) => flow.finish(at, &mut listener),
            Flow::Tcp(flow) => flow.finish(at, &self.tcp, &mut Off, &mut listener),
        }
        listener.settle(i64::MAX);
        let unseen = End::BOTH.map(|end| match &gone.flow {
            Flow::Ib(flow) => flow.is_unseen(end),
            Flow::Tcp(flow) => flow.is_unseen(end),
        });
        if let Some(shard) = &mut self.shard {
            shard.closes(self.env.now, self.env.lost_by_capture);
        }
        facts::add_vanished(&gone.connection, unseen, at, &mut |finding| self.env.findings.add(finding));
        gone.connection.finish(&mut self.env, at, unseen);
        // the cost of losses is known now
        let view = gone.flow.loss_view();
        if view.copies_known != [false; 2] {
            // what was told of each until then is told of all at once
            let id = Some(gone.connection.id);
            self.env.findings.retain(|f| (f.rule, f.connection) != (Rule::RcDuplicate, id));
        }
        facts::add_losses(&gone.connection, &view, &mut |finding| self.env.findings.add(finding));
        let is_out_of_order = view.is_out_of_order(facts::packets(&gone.connection));
        if is_out_of_order {
            let id = Some(gone.connection.id);
            let more = "; but the capture has packets of this connection out of order";
            self.env.findings.lower_all(|f| f.connection == id && rests_on_order(f), Severity::Note, more);
        }
        self.unanswered_management(&gone.connection, again);
        let mut connection = gone.connection.summary();
        // frames lost at the very end show nowhere, but for those of TCP, where the end itself is numbered: a capture
        // that lost others may have lost these
        let is_numbered = gone.connection.is_over_tcp() && connection.closed.is_some();
        connection.progress.missed |= self.env.has_lost() && !is_numbered || is_out_of_order;
        let mut seems_open = false;
        if is_out_of_order {
            // requests whose replies stand before them seem to be open, as do those that really are
            let progress = &mut connection.progress;
            seems_open = progress.left.0 > 0 || progress.oldest_open.is_some() || progress.unfinished != [None; 2];
            (progress.left, progress.unfinished, progress.oldest_open) = Default::default();
        }
        crate::outcome::conclude(&mut connection, &mut self.env.findings, at);
        if let Some(outcome) = connection.outcome.as_mut().filter(|o| seems_open && o.success == Success::Yes) {
            outcome.success = Success::Unknown;
        }
        if self.done.len() >= self.env.options.report_max && !self.env.options.fold {
            self.done_dropped += 1;
            return;
        }
        self.done.push(connection);
        if self.done.len() >= self.env.options.report_max + FOLD {
            self.fold();
        }
    }

    /// Adds up as many as one analysis would have, of those that ended in several.
    pub(super) fn fold_joined(&mut self) {
        if self.env.options.fold && self.done.len() >= self.env.options.report_max + FOLD {
            self.done.sort_by_key(|connection| connection.last);
            while self.done.len() >= self.env.options.report_max + FOLD {
                self.fold();
            }
        }
    }

    /// Adds the oldest of those that ended up, and forgets them.
    #[cold]
    fn fold(&mut self) {
        let old: Vec<report::Connection> = self.done.drain(..FOLD).collect();
        let mut ids: HashSet<u32> = old.iter().map(|c| c.id).collect();
        for connection in &old {
            self.folded.add(connection, false);
            self.env.sink.forgotten(connection.id);
        }
        // and the halves that became theirs
        self.joined.forget(&mut ids, |half| self.env.sink.forgotten(half));
        self.env.findings.forget_connections(|id| ids.contains(&id));
        for session in &mut self.env.sessions {
            session.connections.retain(|id| !ids.contains(id));
        }
        self.env.sessions.retain(|session| !session.connections.is_empty());
    }
}
