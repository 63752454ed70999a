//! Packets of InfiniBand and RoCE to their connection: one of queue pairs whose packets were seen before, or a new one.

use super::networks::Tag;
use super::table::{ConnectionEnd, Flow, QpKey, Slot, Stray};
use super::{FrameMeta, Pipeline, pairing};
use crate::connection::ConnectionState;
use crate::connection::facts::Listener;
use crate::context;
use crate::env::Layer;
use crate::finding::{Blame, Certainty, Rule, Site};
use crate::op::{At, End};
use crate::series::{Trouble, Volume};
use crate::sink::Sink;
use crate::summary::{Handshake, Peer, Transport};
use alloc::boxed::Box;
use rdmascope_dissector::fault::FaultKind;
use rdmascope_dissector::frame::{Body, Carrier, Check, IbPacket, Packet};
use rdmascope_dissector::trace::Trace;
use rdmascope_dissector::wire::ib::bth::{self, Opcode, Service};

/// The largest path MTU, in bytes (IBA volume 1, 9.8.1).
pub(super) const MTU_MAX: u32 = 4096;
/// Bytes of a message from which on it is hardly the same as another by chance.
const STRAY_MIN: usize = 64;
/// Packets after which it is not sent again.
const STRAY_LATE: i32 = 1024;
/// Bytes of it that are compared.
const STRAY_HEAD: usize = 256;
/// Packets with a wrong invariant CRC on one connection after which all of them are thought to have it.
const UNFINISHED: u64 = 4;

impl Pipeline<dyn Sink> {
    /// Several packets that a system had not cut yet when they were captured: each as if it had come by itself, as it
    /// will to its receiver.
    #[cold]
    pub(super) fn joined_packets<T: Trace>(
        &mut self,
        meta: &FrameMeta,
        packet: &Packet<'_>,
        first: &IbPacket<'_>,
        t: &mut T,
    ) {
        let datagram = first.length() as u64 + first.behind.len() as u64 + u64::from(packet.cut);
        let headers = u64::from(packet.carried.unwrap_or(meta.wire_len)).saturating_sub(datagram);
        let alone = IbPacket { behind: &[], ..*first };
        for ib in core::iter::once(alone).chain(first.joined(packet.cut)) {
            let length = u32::try_from(headers + ib.length() as u64).unwrap_or(u32::MAX);
            let carried = packet.carried.map(|_| length);
            self.ib(meta.at(), length, &Packet { body: Body::Ib(ib), carried, ..*packet }, &ib, t);
        }
    }

    /// A packet that is longer than any path MTU and was cut short, or whose ICRC is not that of its whole: several
    /// packets in one, which cannot be separated. Nothing is reported about them.
    #[cold]
    fn inseparable(&mut self, at: At, packet: &Packet<'_>, ib: &IbPacket<'_>) {
        if packet.cut == 0 {
            let site = Site { connection: None, frame: at.frame, time_ns: at.time };
            let length = ib.payload_length;
            let text = format_args!("{length} bytes were captured as one packet, before they were cut into several");
            self.env.report(Rule::CaptureCut, Blame::Capture, site, Certainty::Certain, text);
        }
    }

    pub(super) fn ib<T: Trace>(&mut self, at: At, wire_len: u32, packet: &Packet<'_>, ib: &IbPacket<'_>, t: &mut T) {
        self.env.layer(Layer::Ib);
        // where its invariant CRC is wrong, a packet was damaged: its sender sent another one
        if packet.fault.is_some() && ib.icrc != Check::Bad {
            self.short(at, packet, ib);
        }
        let row = Opcode(ib.bth.opcode).row();
        let service = row.map(|r| r.service);
        if service == Some(Service::Congestion) {
            self.env.layer(Layer::Cnp);
            return self.congestion(at, packet, ib);
        }
        if service == Some(Service::Ud) || ib.bth.dest_qp <= 1 {
            self.datagram(at, packet, ib, t);
            return;
        }
        let Some(row) = row else { return self.unassigned(at, packet, ib) };
        self.env.layer(Layer::Rdma);
        if ib.payload_length > MTU_MAX && (packet.cut > 0 || ib.icrc == Check::Bad) {
            return self.inseparable(at, packet, ib);
        }
        let key = self.key(packet, ib.bth.dest_qp);
        let mut place = match self.table.by_qp(&key).or_else(|| self.intended(&key, ib, row)) {
            Some(place) => place,
            None => self.new_flow(at, key, packet, ib, row),
        };
        let Some(mut slot) = self.table.used(place.slot) else { return };
        if is_questionable(slot, place.end, row, ib) {
            place = self.reconsider(at, place, key, packet, ib, row);
            let Some(found) = self.table.used(place.slot) else { return };
            slot = found;
        }
        if slot.is_header_damaged(packet.header, ib.icrc) && ib.icrc == Check::Unchecked {
            return t.info(format_args!("IP header checksum wrong: passed over"));
        }
        let connection = &mut slot.connection;
        self.env.frame.place = Some((connection.id, place.end));
        self.env.frame.hosts = Some((packet.src, packet.dst));
        if let Some(back) = connection.goes_back(at) {
            self.env.set_back(connection.id, at, back);
        }
        connection.last = at;
        connection.captured(place.end, at);
        connection.carried(place.end, at, packet, &self.pauses);
        connection.mirrors.add(self.env.frame.mirror);
        let mut volume = Volume::default();
        volume.0[place.end.index()] = u64::from(wire_len);
        connection.throughput.add(at.time, volume);
        // where all are wrong, the capture has them as they were before the adapter finished them
        connection.is_unchecked = match ib.icrc {
            Check::Good => false,
            Check::Unchecked => true,
            Check::Bad => connection.health.icrc_bad < UNFINISHED,
        };
        match ib.icrc {
            Check::Good | Check::Unchecked => {}
            Check::Bad => {
                connection.health.icrc_bad += 1;
                connection.icrc_first_bad.get_or_insert(at);
            }
        }
        let Flow::Ib(flow) = &mut slot.flow else { return };
        let mut listener = Listener { connection, env: &mut self.env };
        if listener.connection.missed.has_lost() {
            listener.settle(at.time);
        }
        let copies = listener.connection.health.duplicates;
        flow.packet(at, place.end, ib, t, &mut listener);
        if listener.connection.health.duplicates == copies {
            listener.connection.network.packet(at, place.end, packet.carried.unwrap_or(wire_len), packet, ib);
            if packet.ecn == 3 {
                let connection = listener.connection.id;
                listener.connection.health.ecn_marked += 1;
                listener.connection.trouble.add(at.time, Trouble::CONGESTION);
                self.congestion_met(at, connection);
            }
        }
        self.count_memory(at, place.slot);
    }

    /// A packet was marked on its way.
    #[cold]
    fn congestion_met(&mut self, at: At, connection: u32) {
        let site = Site { connection: Some(connection), frame: at.frame, time_ns: at.time };
        let text = format_args!("packets carry the mark of congestion (ECN CE)");
        self.env.report(Rule::RcEcn, Blame::Network, site, Certainty::Certain, text);
    }

    /// The key of a packet to a queue pair.
    #[inline]
    fn key(&self, packet: &Packet<'_>, qp: u32) -> QpKey {
        QpKey { src: packet.src, dst: packet.dst, qp, network: self.networks.of(packet) }
    }

    /// An opcode that is not assigned: of its sender, or of damage. It may be newer than the table.
    #[cold]
    fn unassigned(&mut self, at: At, packet: &Packet<'_>, ib: &IbPacket<'_>) {
        if ib.icrc == Check::Bad {
            let key = self.key(packet, ib.bth.dest_qp);
            if let Some(slot) = self.table.find_qp(&key).and_then(|place| self.table.get_mut(place.slot)) {
                slot.connection.health.icrc_bad += 1;
                slot.connection.icrc_first_bad.get_or_insert(at);
            }
            return;
        }
        let (mut connection, mut by) = (None, Blame::Unknown);
        if Opcode(ib.bth.opcode).is_connected() {
            let key = self.key(packet, ib.bth.dest_qp);
            let place = self.table.find_qp(&key);
            if let Some((end, slot)) = place.and_then(|place| Some((place.end, self.table.get_mut(place.slot)?)))
                && let Flow::Ib(flow) = &mut slot.flow
            {
                flow.passes(at, end, ib.bth.psn);
                (connection, by) = (Some(slot.connection.id), context::blame(&slot.connection.roles, end));
            }
        }
        let site = Site { connection, frame: at.frame, time_ns: at.time };
        let text = format_args!("sent an opcode that is not assigned: {:#04x}", ib.bth.opcode);
        self.env.report(Rule::BugRxe4c6f86d, by, site, Certainty::Guess, text);
    }

    /// A packet whose headers, padding and ICRC are longer than it is.
    #[cold]
    fn short(&mut self, at: At, packet: &Packet<'_>, ib: &IbPacket<'_>) {
        if packet.cut > 0 || packet.fault.is_none_or(|f| f.kind != FaultKind::Length) {
            return;
        }
        let site = Site { connection: None, frame: at.frame, time_ns: at.time };
        // a datagram to a queue pair that nobody has need not be of RoCE
        let is_known = self.table.find_qp(&self.key(packet, ib.bth.dest_qp)).is_some() || ib.bth.dest_qp <= 1;
        self.env.report(
            Rule::BugCve202646043,
            Blame::Unknown,
            site,
            if is_known { Certainty::Certain } else { Certainty::Guess },
            format_args!("sent a packet shorter than its padding and ICRC"),
        );
    }

    fn congestion(&mut self, at: At, packet: &Packet<'_>, ib: &IbPacket<'_>) {
        let key = self.key(packet, ib.bth.dest_qp);
        let mut site = Site { connection: None, frame: at.frame, time_ns: at.time };
        if let Some((end, slot)) = self.table.find_qp(&key).and_then(|p| Some((p.end, self.table.get_mut(p.slot)?))) {
            if let Flow::Ib(flow) = &mut slot.flow {
                let connection = &mut slot.connection;
                let mut listener = Listener { connection, env: &mut self.env };
                if flow.is_copy(at, end, ib, &mut listener) {
                    return;
                }
            }
            slot.connection.health.cnps += 1;
            slot.connection.trouble.add(at.time, Trouble::CNP);
            slot.connection.network.notified(at, end, packet);
            slot.connection.slowed(end.peer(), at);
            site.connection = Some(slot.connection.id);
        }
        let qp = ib.bth.dest_qp;
        self.env.report(
            Rule::RcCnp,
            Blame::Network,
            site,
            Certainty::Certain,
            format_args!("queue pair {qp:#x} was asked to slow down"),
        );
    }

    /// The first packet of a flow.
    #[cold]
    fn new_flow(
        &mut self,
        at: At,
        key: QpKey,
        packet: &Packet<'_>,
        ib: &IbPacket<'_>,
        row: &bth::Row,
    ) -> ConnectionEnd {
        if let Some(slot) = self.halves.partner(&self.table, &self.env.options.pins, &key, ib, row, true) {
            self.join_flow(slot, key);
            if let Some(s) = self.table.get_mut(slot) {
                s.tags[1] = Some(Tag::of(packet));
            }
            return ConnectionEnd { slot, end: End::B };
        }
        self.requests.heard(packet.src, packet.dst);
        // a flow that begins at its first message looks no different from one that began long ago; the protocol may
        // know better
        let mut connection = ConnectionState::new(carrier(ib), at);
        connection.peers[0].address = packet.src;
        connection.peers[1] = Peer { address: packet.dst, port: 0, qp: Some(key.qp) };
        let slot = self.insert(at, connection, Flow::Ib(Box::default()));
        self.doubt_addresses(slot, packet.header, ib.icrc);
        let place = ConnectionEnd { slot, end: End::A };
        self.table.add_qp(key, place);
        if let Some(s) = self.table.get_mut(slot) {
            s.half = true;
            s.tags[0] = Some(Tag::of(packet));
        }
        self.halves.add(&key, slot);
        self.may_be_stray(at, &key, slot, ib, row);
        place
    }

    /// The connection of a damaged packet to a queue pair that nobody has, whose number may be what is damaged: the one
    /// between its hosts that is to send its PSN next, and otherwise has right CRCs.
    #[cold]
    fn intended(&self, key: &QpKey, ib: &IbPacket<'_>, row: &bth::Row) -> Option<ConnectionEnd> {
        if ib.icrc != Check::Bad || !row.is_request() {
            return None;
        }
        self.table.to_send(key, ib.bth.psn).find(|(place, flow)| flow.is_dropped(place.end)).map(|(place, _)| place)
    }

    /// The first packet to a queue pair may be one of a connection that is known, and that is to send its PSN next: if
    /// that sends it again, to its own queue pair, it was. Messages of SMB2 and RPC have numbers of their own, so that
    /// two are hardly the same by chance.
    fn may_be_stray(&mut self, at: At, key: &QpKey, slot: u32, ib: &IbPacket<'_>, row: &bth::Row) {
        let is_message = matches!(row.verb, bth::Verb::Send) && row.is_first();
        if !is_message || ib.icrc == Check::Bad || ib.payload.len() < STRAY_MIN {
            return;
        }
        let Some((into, _)) = self.table.to_send(key, ib.bth.psn).next() else { return };
        let Some(id) = self.table.get(slot).map(|slot| slot.connection.id) else { return };
        let Some(into_slot) = self.table.get_mut(into.slot) else { return };
        into_slot.stray = Some(Box::new(Stray {
            at,
            end: into.end,
            psn: ib.bth.psn,
            opcode: ib.bth.opcode,
            length: ib.payload_length,
            head: ib.payload[..ib.payload.len().min(STRAY_HEAD)].to_vec(),
            qp: key.qp,
            is_checked: ib.icrc == Check::Good,
            taken_for: (slot, id),
        }));
    }

    /// A connection sends the PSN of a packet that another queue pair got. If it is the same packet, and that queue pair
    /// got nothing else, the first one was sent to the wrong one: its receiver drops it silently.
    fn settle_stray(&mut self, place: ConnectionEnd, ib: &IbPacket<'_>) {
        let Some(slot) = self.table.get_mut(place.slot) else { return };
        let ahead = |s: &Stray| crate::flow::psn::ahead(ib.bth.psn, s.psn);
        if slot.stray.take_if(|s| s.end == place.end && !(-STRAY_LATE..STRAY_LATE).contains(&ahead(s))).is_some() {
            return;
        }
        let Some(stray) = slot.stray.take_if(|s| s.end == place.end && ahead(s) == 0 && ib.icrc != Check::Bad) else {
            return;
        };
        let is_same =
            (stray.opcode, stray.length) == (ib.bth.opcode, ib.payload_length) && ib.payload.starts_with(&stray.head);
        let (ghost, id) = stray.taken_for;
        let after = crate::flow::psn::add(stray.psn, 1);
        let is_alone = |s: &Slot| {
            s.half && s.connection.id == id && matches!(&s.flow, Flow::Ib(flow) if flow.is_next(End::A, after))
        };
        if !is_same || !self.table.get(ghost).is_some_and(is_alone) {
            return;
        }
        if let Some(gone) = self.table.remove(ghost) {
            if let Some(key) = gone.qp_keys[0] {
                self.halves.remove(&key, ghost);
            }
            let into = self.table.get(place.slot).map_or(id, |slot| slot.connection.id);
            self.joined.add(id, into);
        }
        let Some(Slot { connection, flow: Flow::Ib(flow), .. }) = self.table.get_mut(place.slot) else { return };
        let mut listener = Listener { connection, env: &mut self.env };
        flow.was_misaddressed(place.end, (stray.at, stray.psn, stray.qp), stray.is_checked, &mut listener);
    }

    /// The first packet of a connection: where its IP header is damaged, its addresses may be those of nobody.
    #[cold]
    pub(super) fn doubt_addresses(&mut self, slot: u32, header: Check, packet: Check) {
        if let Some(s) = self.table.get_mut(slot) {
            s.is_doubtful = [header == Check::Bad && packet == Check::Bad; 2];
        }
    }

    /// The place of a packet whose place so far is in question: see [`is_questionable`].
    #[cold]
    fn reconsider(
        &mut self,
        at: At,
        mut place: ConnectionEnd,
        key: QpKey,
        packet: &Packet<'_>,
        ib: &IbPacket<'_>,
        row: &bth::Row,
    ) -> ConnectionEnd {
        if row.is_request() && self.table.get(place.slot).is_some_and(|s| s.stray.is_some()) {
            self.settle_stray(place, ib);
        }
        if self.table.get(place.slot).is_some_and(|s| is_in_doubt(s, place.end, ib)) {
            self.distrust(place.slot);
            place = match self.table.by_qp(&key) {
                Some(place) => place,
                None => self.new_flow(at, key, packet, ib, row),
            };
        }
        if self.table.get(place.slot).is_some_and(|s| may_be_reused(s, place.end, row, ib)) {
            if self.is_reused(at, place, &key, ib, row) {
                self.end_reused(place.slot, at);
                self.end_unseen(place.slot, at);
                self.close(place.slot, at);
                place = self.new_flow(at, key, packet, ib, row);
            } else if let Some(Slot { flow: Flow::Ib(flow), .. }) = self.table.get_mut(place.slot) {
                flow.belongs(at, place.end, ib);
            }
        }
        if self.table.get(place.slot).is_some_and(is_to_pair) {
            place = self.try_pair(place, key, ib, row);
        }
        place
    }

    /// A flow becomes the other direction of a half connection.
    fn join_flow(&mut self, slot: u32, key: QpKey) {
        self.table.add_qp(key, ConnectionEnd { slot, end: End::B });
        let Some(s) = self.table.get_mut(slot) else { return };
        s.half = false;
        s.connection.peers[0].qp = Some(key.qp);
        if let Some(other) = s.qp_keys[0] {
            if pairing::pinned(&self.env.options.pins, key.qp, other.qp) {
                s.connection.opening.handshake = Handshake::Pinned;
            }
            self.halves.remove(&other, slot);
        }
    }

    /// Checks again if an unpaired flow belongs to another one.
    #[cold]
    fn try_pair(&mut self, place: ConnectionEnd, key: QpKey, ib: &IbPacket<'_>, row: &bth::Row) -> ConnectionEnd {
        if let Some(slot) = self.table.get_mut(place.slot) {
            slot.tries += 1;
        }
        let into = self.halves.partner(&self.table, &self.env.options.pins, &key, ib, row, false);
        let Some(into) = into.filter(|s| *s != place.slot) else { return place };
        let Some(mut gone) = self.table.remove(place.slot) else { return place };
        self.halves.remove(&key, place.slot);
        self.join_flow(into, key);
        if let Some(slot) = self.table.get_mut(into) {
            if let (Flow::Ib(mine), Flow::Ib(theirs)) = (&mut slot.flow, &mut gone.flow) {
                mine.adopt(End::B, theirs, End::A);
            }
            slot.tags[1] = gone.tags[0];
            slot.connection.adopt(End::B, &mut gone.connection, End::A);
            self.joined.add(gone.connection.id, slot.connection.id);
        }
        ConnectionEnd { slot: into, end: End::B }
    }
}

/// True if a packet may be one of another connection than the one of its addresses and queue pair so far.
#[inline]
fn is_questionable(slot: &Slot, by: End, row: &bth::Row, ib: &IbPacket<'_>) -> bool {
    slot.stray.is_some() || is_to_pair(slot) || is_in_doubt(slot, by, ib) || may_be_reused(slot, by, row, ib)
}

/// True if a connection began with a packet whose addresses may be damaged, and this one, undamaged, may not be of it.
#[inline]
fn is_in_doubt(slot: &Slot, by: End, ib: &IbPacket<'_>) -> bool {
    slot.is_doubtful[by.index()] && ib.icrc == Check::Good && slot.connection.opening.rdma_opened.is_some()
}

/// True if a packet of an end may not be one of its connection: see [`Pipeline::is_reused`].
#[inline]
fn may_be_reused(slot: &Slot, by: End, row: &bth::Row, ib: &IbPacket<'_>) -> bool {
    let Flow::Ib(flow) = &slot.flow else { return false };
    flow.is_doubtful(by, row.is_request(), ib.bth.psn) && ib.icrc != Check::Bad
}

/// True if the other direction of a flow is looked for.
#[inline]
fn is_to_pair(slot: &Slot) -> bool {
    slot.half && slot.tries < pairing::TRIES_MAX
}

/// The transport of a packet.
pub(super) fn carrier(ib: &IbPacket<'_>) -> Transport {
    match ib.carrier {
        Carrier::RoceV2 { .. } => Transport::RoceV2,
        Carrier::RoceV1 => Transport::RoceV1,
        Carrier::Infiniband => Transport::Infiniband,
    }
}
