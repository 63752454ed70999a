//! The report, at the end and meanwhile.

use super::Pipeline;
use crate::connection::facts;
use crate::env::{Layer, Session};
use crate::finding::{Certainty, Findings};
use crate::path::Attempt;
use crate::report::{Report, silence};
use crate::rpcbind::Registrations;
use crate::sink::Sink;
use crate::{audit, failing, path, report, slower};
use alloc::vec::Vec;

impl<S: Sink> Pipeline<S> {
    /// The report as it would be if the capture ended here, but without results that need the end (requests without a
    /// reply). For live views; its cost grows with the number of connections.
    pub fn snapshot(&self) -> Report {
        self.shown().so_far()
    }

    /// Frames so far, without the counts by protocol.
    pub fn capture(&self) -> report::Capture {
        self.shown().counted()
    }

    /// The capture is over. Nothing may be fed any more.
    pub fn finish(mut self) -> (Report, S) {
        let report = self.inner().end();
        (report, self.env.sink)
    }
}

impl Pipeline<dyn Sink> {
    fn so_far(&self) -> Report {
        let open = self.table.iter().map(|slot| slot.connection.summary());
        let mut capture = self.capture.clone();
        capture.lost_by_capture = self.env.lost_by_capture;
        let connections = self.done.iter().cloned().chain(open).collect();
        let mut report = self.assemble(connections, capture, self.env.slowest.clone(), self.env.sessions.clone());
        let attempts: Vec<Attempt> = self.requests.attempts().collect();
        report.paths = path::paths(&report, &attempts, &self.unreachable);
        report
    }

    pub(super) fn counted(&self) -> report::Capture {
        report::Capture {
            lost_by_capture: self.env.lost_by_capture,
            undecoded: self.env.undecoded,
            dropped: self.dropped(),
            ..self.capture.clone()
        }
    }

    fn dropped(&self) -> Vec<(&'static str, u64)> {
        let dropped = [
            ("connections", self.connections_evicted),
            ("unfinished messages", self.messages_forgotten),
            ("requests", self.env.requests_dropped),
            ("IP datagrams", self.datagrams.dropped),
            ("findings", self.env.findings.dropped()),
        ];
        dropped.into_iter().filter(|(_, n)| *n > 0).collect()
    }

    fn end(&mut self) -> Report {
        let at = self.capture.last.unwrap_or_default();
        for slot in self.table.by_age() {
            self.close(slot, at);
        }
        let attempts: Vec<Attempt> = self.requests.attempts().collect();
        for request in self.requests.take_all() {
            self.unanswered_request(at, &request);
        }
        let damaged = self.damaged.take_all();
        self.damaged_datagrams(&damaged);
        self.report(&attempts)
    }

    fn report(&mut self, attempts: &[Attempt]) -> Report {
        let connections = core::mem::take(&mut self.done);
        let capture = core::mem::take(&mut self.capture);
        let slowest = core::mem::take(&mut self.env.slowest);
        let sessions = core::mem::take(&mut self.env.sessions);
        let mut report = self.assemble(connections, capture, slowest, sessions);
        path::conclude(&mut report, attempts, &self.unreachable);
        silence::conclude(&mut report, &self.unreachable);
        failing::conclude(&mut report);
        audit::conclude(&mut report);
        slower::conclude(&mut report);
        report
    }

    /// Puts a report together, with numbers that are small and in order.
    fn assemble(
        &self,
        mut connections: Vec<report::Connection>,
        mut capture: report::Capture,
        mut slowest: Vec<crate::exchange::Exchange>,
        sessions: Vec<Session>,
    ) -> Report {
        let numbers = self.joined.number(&mut connections);
        let findings = {
            // findings that open connections report when they end
            let mut open = Findings::default();
            self.table.iter().for_each(|slot| {
                facts::add_losses(&slot.connection, &slot.flow.loss_view(), &mut |finding| open.add(finding))
            });
            let mut findings =
                numbers.findings(self.env.findings.iter().chain(open.iter())).with_losses_of(&self.env.findings);
            if !self.env.weakened.is_empty() {
                let weakened: Vec<u32> = self.env.weakened.iter().filter_map(|id| numbers.of(*id)).collect();
                // they rest on the order of packets
                findings.weaken(|finding| finding.connection.is_some_and(|id| weakened.contains(&id)));
                let outcomes = connections.iter_mut().filter(|c| weakened.contains(&c.id));
                outcomes.filter_map(|c| c.outcome.as_mut()).for_each(|outcome| outcome.certainty = Certainty::Guess);
            }
            findings
        };
        capture.lost_by_capture = self.env.lost_by_capture;
        capture.undecoded = self.env.undecoded;
        capture.dissected =
            Layer::ALL.iter().map(|l| (l.name(), self.layers[*l as usize])).filter(|(_, n)| *n > 0).collect();
        capture.dropped = self.dropped();
        let listed = connections.iter().flat_map(|c| &c.smb.setup.interfaces);
        capture.paused.listed(listed.map(|interface| interface.link_speed));
        for exchange in &mut slowest {
            exchange.connection = numbers.of(exchange.connection).unwrap_or(0);
        }
        let sessions = numbers.sessions(sessions);
        let (connections_dropped, folded) = (self.done_dropped, self.folded.clone());
        let known = connections.iter().filter(|c| !c.nfs.rpcbind.is_empty());
        let known = known.map(|c| Registrations {
            client: c.peers[0].address,
            server: c.peers[1].address,
            rpcbind: c.nfs.rpcbind.clone(),
        });
        let rpcbind = known.chain(self.rpcbind.registrations().iter().cloned()).collect();
        Report {
            capture,
            connections,
            connections_dropped,
            folded,
            findings,
            slowest,
            sessions,
            paths: Vec::new(),
            rpcbind,
        }
    }
}
