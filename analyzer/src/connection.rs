//! One connection: a thin shell around its layers. A flow below it (queue pairs or TCP) tells operations in order; they go to the layer
//! that they concern, and what a layer makes of them goes up.
//!
//! ```text
//!   flow ─┬─ RDMA Write, Read ─▶ memory ───── Delivery ───▶ upper    which exchange the bytes are of
//!         └─ Send, TCP bytes ──▶ messages ─── Message ────▶ upper    SMB2; RPC and NFS
//! ```
//!
//! Layers do not see the shell, nor each other's fields. What all of them need of the frame at hand is one
//! [`FrameContext`]; what a report says of them they tell themselves, as plain data.

use crate::context::{self, About, FrameContext};
use crate::env::Env;
use crate::finding::{Certainty, Rule};
use crate::flow::waits::{Cause, Waits};
use crate::memory::Memory;
use crate::messages::Messages;
use crate::messages::smbd::Smbd;
use crate::missed::{Missed, Rests};
use crate::op::{At, End, RdmaOp, StreamBytes, Verb};
use crate::report::{self, Handshake, Health, Negotiated, Peer, Progress, Protocol, Smb, Transport};
use crate::roles::Roles;
use crate::series::{Series, Trouble, Volume};
use crate::sink::Sink;
use crate::stats::Commands;
use crate::upper::Upper;
use alloc::string::String;
use core::fmt;
use rdmascope_dissector::trace::Trace;
use rdmascope_dissector::wire::ib::cm::RpcRdmaPrivate;

pub use crate::notes::{FIELDS, f};

/// One connection above its flow.
#[derive(Debug, Default)]
pub struct Connection {
    /// Its number, from 1.
    pub id: u32,
    /// What carries it.
    pub transport: Option<Transport>,
    /// Its ends.
    pub peers: [Peer; 2],
    /// Which end is the client.
    pub roles: Roles,
    /// How the two directions were tied together.
    pub handshake: Handshake,
    /// The first frame.
    pub first: At,
    /// The last frame.
    pub last: At,
    /// Who ended it, and how.
    pub closed: Option<(Option<End>, &'static str, At)>,
    /// Why it was rejected.
    pub rejected: Option<String>,
    /// When the connection was established: by an MPA Reply or a CM REP; where there is no RDMA, by a SYN with ACK.
    pub established: Option<At>,
    /// Whether the MPA Request was answered with something else than an MPA Reply.
    pub spoke_otherwise: bool,
    /// What was not seen of it.
    pub missed: Missed,
    /// The mirror sessions that its frames came through.
    pub mirrors: crate::mirror::Set,
    /// Counters of the wire.
    pub health: Health,
    /// Most Reads that each end may have outstanding, where the handshake said so.
    pub read_depth: [Option<u32>; 2],
    pub(crate) read_depths: [Option<(u32, u32)>; 2],
    /// Of the MPA Request.
    pub(crate) mpa_revision: Option<u8>,
    /// Bytes in frames over time.
    pub throughput: Series<Volume>,
    /// Retransmissions and their like over time.
    pub trouble: Series<Trouble>,
    /// What held it up below.
    pub(crate) waits: Waits,
    /// The first packet whose invariant CRC was not right.
    pub icrc_first_bad: Option<At>,
    memory: Memory,
    messages: Messages,
    upper: Upper,
}

/// What a connection lends to one call: the context, and its layers from the lowest up.
type Parts<'c, S> = (FrameContext<'c, S>, &'c mut Memory, &'c mut Messages, &'c mut Upper);

impl Connection {
    /// A connection of which the first frame was just seen.
    pub fn new(transport: Transport, first: At) -> Self {
        Self { transport: Some(transport), first, last: first, ..Self::default() }
    }

    /// What it carries.
    pub fn protocol(&self) -> Protocol {
        self.messages.protocol()
    }

    /// Whether a remote key was advertised by an end.
    pub fn advertised(&self, owner: End, key: u32) -> bool {
        self.memory.find(owner, key).is_some()
    }

    /// SMB Direct, where it is that.
    pub fn smbd(&self) -> Option<&Smbd> {
        self.messages.smbd()
    }

    /// What its ports are for: a hint that decides nothing alone.
    fn port_hint(&self) -> Protocol {
        match self.peers.map(|p| p.port) {
            [445 | 5445, _] | [_, 445 | 5445] => Protocol::SmbDirect,
            [20049, _] | [_, 20049] => Protocol::RpcRdma,
            _ => Protocol::Unknown,
        }
    }

    /// What NFS said in the private data of the handshake (RFC 8797), by end A and B.
    pub fn rpc_rdma_private(&mut self, private: [Option<RpcRdmaPrivate>; 2]) {
        self.messages.rpc_rdma_private(private);
    }

    fn parts<'c, S>(&'c mut self, env: &'c mut Env<S>, at: At, sender: Option<End>) -> Parts<'c, S> {
        let about = About {
            id: self.id,
            transport: self.transport,
            protocol: self.messages.protocol(),
            opening_seen: self.handshake == Handshake::Seen,
            established: self.established,
            port_hint: self.port_hint(),
            retransmissions: self.health.retransmissions,
        };
        let Self { roles, missed, memory, messages, upper, .. } = self;
        (FrameContext { at, sender, about, roles, missed, env }, memory, messages, upper)
    }

    /// `by` broke a rule of its flow at `at`.
    pub fn report<S: Sink>(&mut self, env: &mut Env<S>, at: At, rule: Rule, by: End, rests: Rests, text: fmt::Arguments<'_>) {
        self.parts(env, at, Some(by)).0.report(rule, by, rests, text);
    }

    /// A packet of an end was captured.
    #[inline]
    pub fn captured(&mut self, by: End) {
        self.missed.captured(by);
    }

    /// Everything that `by` sent up to here is known: findings that waited for it are told.
    #[inline]
    fn seen<S: Sink>(&mut self, env: &mut Env<S>, by: End, at: At) {
        let Self { id, roles, missed, .. } = self;
        missed.seen(by, at, |evidence| evidence.report(env, *id, roles, Certainty::IfNothingWasMissed));
    }

    /// How long an end of SMB Direct waited for credits, in ns.
    fn stalled(&self, by: End) -> i64 {
        self.messages.smbd().map_or(0, |smbd| smbd.link.side(by).stalled_time)
    }

    /// SMB2's exchanges by command, and RPC's.
    pub fn commands(&self) -> (Option<&Commands>, Option<&Commands>) {
        self.upper.commands()
    }

    /// An operation, in the receiver's order.
    pub fn op<T: Trace, S: Sink>(&mut self, env: &mut Env<S>, op: &RdmaOp<'_>, t: &mut T) {
        env.sink.op(self.id, op);
        if op.verb != Verb::ReadResponse {
            // responses are numbered by whom they answer: they say nothing of what their sender sent besides
            self.seen(env, op.by, op.at);
        }
        let stalled = self.stalled(op.by);
        let (mut cx, memory, messages, upper) = self.parts(env, op.at, Some(op.by));
        match op.verb {
            Verb::Send | Verb::SendInvalidate => {
                let tail = messages.send(&mut cx, memory, op, t, &mut |cx, memory, message, t| upper.message(cx, memory, message, t));
                if tail {
                    upper.missed();
                }
                let waited = self.stalled(op.by).saturating_sub(stalled);
                self.waits.add(Cause::Credit, op.at.time.saturating_sub(waited), op.at.time);
            }
            Verb::Write => {
                if let Some(delivery) = memory.write(&mut cx, op, t) {
                    upper.delivered(&mut cx, &delivery, op);
                    messages.delivered(&delivery, op);
                }
            }
            Verb::ReadRequest => {
                if let Some(delivery) = memory.read_request(&mut cx, op, t) {
                    upper.asked(&mut cx, &delivery, op);
                }
            }
            Verb::ReadResponse => {
                if let Some(delivery) = memory.read_response(op) {
                    upper.delivered(&mut cx, &delivery, op);
                    messages.delivered(&delivery, op);
                }
            }
            Verb::Atomic | Verb::Terminate => {}
        }
    }

    /// Bytes in order of a TCP connection that is not iWARP.
    pub fn stream<T: Trace, S: Sink>(&mut self, env: &mut Env<S>, piece: &StreamBytes<'_>, t: &mut T) {
        self.seen(env, piece.by, piece.at);
        let (mut cx, memory, messages, upper) = self.parts(env, piece.at, Some(piece.by));
        if piece.missing > 0 {
            upper.missed();
        }
        messages.stream(&mut cx, memory, piece, t, &mut |cx, memory, message, t| upper.message(cx, memory, message, t));
    }

    /// Whether all that a Send completes is shown with [`Connection::show`].
    pub fn is_shown(&self, by: End, bytes: &[u8]) -> bool {
        self.messages.is_shown(by, bytes)
    }

    /// A Send that is shown without being counted: it was sent before, or is held back.
    pub fn show<T: Trace>(&self, bytes: &[u8], t: &mut T) {
        self.messages.show(bytes, t);
    }

    /// Packets of `by` are missing before `at`.
    pub fn gap<S: Sink>(&mut self, env: &mut Env<S>, at: At, by: End) {
        let (mut cx, _, messages, upper) = self.parts(env, at, Some(by));
        messages.gap(&mut cx, by);
        upper.missed();
    }

    /// The connection ends, or the capture does. `unseen` says of each end whether its peer acknowledged more than was captured.
    pub fn finish<S: Sink>(&mut self, env: &mut Env<S>, at: At, unseen: [bool; 2]) {
        let closed = self.closed;
        let by = closed.and_then(|(by, ..)| by);
        let end = closed.map_or(at, |(_, _, at)| at);
        for by in End::BOTH.into_iter().filter(|by| unseen[by.index()]) {
            self.gap(env, At { frame: u64::MAX, time: end.time }, by);
        }
        let (mut cx, memory, messages, upper) = self.parts(env, end, None);
        memory.finish(&mut cx, end);
        messages.finish(&mut cx, by);
        upper.finish(&mut cx, end, closed.is_some());
        let Self { id, roles, missed, .. } = self;
        let certainty = context::at_the_end(env);
        missed.finish(|evidence| evidence.report(env, *id, roles, certainty));
    }

    /// What goes into the report.
    pub fn summary(&self) -> report::Connection {
        let client = self.roles.client_or_first();
        let by_role = |end: End| usize::from(end != client);
        let messages = self.messages.summary();
        let upper = self.upper.summary();
        let mut sides = paired(client, messages.sides);
        if !messages.counted {
            for (side, count) in sides.iter_mut().zip(paired(client, upper.messages)) {
                side.messages = count;
            }
        }
        let Negotiated { max_send_size, max_receive_size, max_fragmented_size, .. } = messages.negotiated;
        let mut last = [None; 2];
        let credit_story = messages.credits.into_iter().filter_map(|(time, held)| {
            let held = paired(client, held);
            // stretches without messages hold what was held before
            last = [held[0].or(last[0]), held[1].or(last[1])];
            Some((time, last[0]?, last[1]?))
        });
        let progress = Progress {
            connected: self.established.is_some() || self.protocol() != Protocol::Unknown,
            missed: self.missed.anything(),
            spoke_otherwise: self.spoke_otherwise,
            negotiation: messages.negotiation,
            last_sent: paired(client, messages.last_sent),
            dry: paired(client, messages.dry),
            oldest_open: upper.commands.oldest_open(),
        };
        report::Connection {
            id: self.id,
            followed_as: alloc::vec![self.id],
            transport: self.transport,
            protocol: self.protocol(),
            peers: paired(client, self.peers),
            client_known: self.roles.sure_client().is_some(),
            client_end: self.roles.client(),
            first: self.first,
            last: self.last,
            handshake: self.handshake,
            closed: self.closed.map(|(by, how, at)| (by.map(by_role), how, at)),
            rejected: self.rejected.clone(),
            negotiated: Negotiated {
                max_send_size: paired(client, max_send_size),
                max_receive_size: paired(client, max_receive_size),
                max_fragmented_size: paired(client, max_fragmented_size),
                ..messages.negotiated
            },
            smb: Smb { sealed: paired(client, upper.smb.sealed), ..upper.smb },
            sides,
            credit_story: credit_story.collect(),
            rdma: self.memory.summary(),
            health: self.health,
            mirrors: self.mirrors,
            commands: upper.commands.rows().to_vec(),
            failures: upper.commands.failures().to_vec(),
            progress,
            outcome: None,
            throughput: self
                .throughput
                .points()
                .map(|(time, volume)| (time, paired(client, volume.0)))
                .map(|(t, [c, s])| (t, c, s))
                .collect(),
            trouble: self.trouble.points().map(|(time, trouble)| (time, trouble.0)).filter(|(_, n)| *n != [0; 3]).collect(),
        }
    }

    /// Takes over the other half of a connection whose directions were first taken for two.
    pub fn adopt(&mut self, by: End, from: &mut Self, from_end: End) {
        let swapped = by != from_end;
        self.peers[by.index()].address = from.peers[from_end.index()].address;
        self.roles.adopt(by, &from.roles, from_end);
        self.first = self.first.min(from.first);
        self.last = self.last.max(from.last);
        self.health.join(&from.health);
        let volumes = from.throughput.points().map(|(time, Volume([a, b]))| (time, Volume(if swapped { [b, a] } else { [a, b] })));
        self.throughput.merge(volumes);
        self.trouble.merge(from.trouble.points());
        self.icrc_first_bad = match (self.icrc_first_bad, from.icrc_first_bad) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        self.mirrors.add(from.mirrors);
        self.missed.adopt(by, &mut from.missed, from_end);
        self.memory.adopt(by, &mut from.memory, from_end);
        self.messages.adopt(by, &mut from.messages, from_end);
        self.upper.adopt(by, &mut from.upper, from_end);
    }
}

/// What is by end A and B, by client and server.
fn paired<P>(client: End, [a, b]: [P; 2]) -> [P; 2] {
    match client {
        End::A => [a, b],
        End::B => [b, a],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn at(frame: u64, time: i64) -> At {
        At { frame, time }
    }

    #[test]
    fn a_late_pairing_keeps_what_the_other_half_counted() {
        let mut whole = Connection { id: 1, first: at(5, 50_000_000), last: at(9, 90_000_000), ..Connection::default() };
        whole.throughput.add(50_000_000, Volume([100, 0]));
        let mut half = Connection { id: 2, first: at(2, 20_000_000), last: at(8, 80_000_000), ..Connection::default() };
        half.throughput.add(20_000_000, Volume([7, 0]));
        half.trouble.add(30_000_000, Trouble::NAK);
        (half.icrc_first_bad, half.health.icrc_bad) = (Some(at(4, 0)), 1);
        whole.adopt(End::B, &mut half, End::A);
        let report = whole.summary();
        let volumes: Vec<_> = report.throughput.iter().filter(|(_, a, b)| a + b > 0).copied().collect();
        assert_eq!(volumes, [(20_000_000, 0, 7), (volumes[1].0, 100, 0)]);
        assert_eq!((report.first.frame, report.last.frame, report.trouble.len()), (2, 9, 1));
        assert_eq!((whole.icrc_first_bad.map(|at| at.frame), report.health.icrc_bad), (Some(4), 1));
    }
}
