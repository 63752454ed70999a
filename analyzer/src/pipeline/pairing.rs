//! Pairing of two directions of queue pairs to one connection, if their handshake was not captured.
//!
//! A packet names only the receiver's queue pair. Two flows of opposite direction between the same hosts are one
//! connection if one acknowledges the PSNs of the other, or uses memory that the other advertised, or if there is no
//! other choice, or if the user says so (a pin).

use super::table::{Flow, QpKey, Slot, Table};
use crate::op::End;
use alloc::vec::Vec;
use hashbrown::HashMap;
use rdmascope_dissector::frame::{Addr, IbPacket};
use rdmascope_dissector::wire::ib::bth::Row;

/// Halves of connections remembered per pair of hosts at most.
const HALVES_MAX: usize = 64;
/// Packets of an unpaired flow that are examined to find its other direction.
pub(super) const TRIES_MAX: u32 = 512;

/// Connections of which only one direction is known, by sender and receiver of that direction.
#[derive(Clone, Debug, Default)]
pub(super) struct Halves {
    by_hosts: HashMap<(Addr, Addr), Vec<u32>>,
}

impl Halves {
    /// A connection of which this direction is known.
    pub(super) fn add(&mut self, key: &QpKey, slot: u32) {
        let halves = self.by_hosts.entry((key.src, key.dst)).or_default();
        if halves.len() < HALVES_MAX {
            halves.push(slot);
        }
    }

    /// A connection is whole now, or gone; it was known by this direction.
    pub(super) fn remove(&mut self, key: &QpKey, slot: u32) {
        let hosts = (key.src, key.dst);
        if let Some(halves) = self.by_hosts.get_mut(&hosts) {
            halves.retain(|s| *s != slot);
            if halves.is_empty() {
                self.by_hosts.remove(&hosts);
            }
        }
    }

    /// The half connection whose other direction is the flow of a packet, if that can be known. `alone_will_do`: it is
    /// the flow's first packet, and the only half there is may be the one.
    pub(super) fn partner(
        &self,
        table: &Table,
        pins: &[(u32, u32)],
        key: &QpKey,
        packet: &IbPacket<'_>,
        row: &Row,
        alone_will_do: bool,
    ) -> Option<u32> {
        let halves = self.by_hosts.get(&(key.dst, key.src))?;
        let is_there = |s: &&Slot| s.half && s.qp_keys[0].is_some_and(|k| k.network == key.network);
        let candidates = halves.iter().filter_map(|slot| Some((*slot, table.get(*slot).filter(is_there)?)));
        let qp_of = |s: &Slot| s.qp_keys[0].map(|k| k.qp);
        if is_pinned(pins, key.qp) {
            return candidates
                .into_iter()
                .find(|(_, s)| qp_of(s).is_some_and(|qp| pinned(pins, key.qp, qp)))
                .map(|(slot, _)| slot);
        }
        let mut free = candidates.filter(|(_, s)| qp_of(s).is_some_and(|qp| !is_pinned(pins, qp)));
        if !row.is_request() {
            // it answers: the PSN is one of the requester's
            let psn = packet.bth.psn;
            return only(free.filter(|(_, s)| matches!(&s.flow, Flow::Ib(flow) if flow.may_acknowledge(End::A, psn))));
        }
        if let Some(reth) = packet.ext.reth {
            let advertised = free.clone().filter(|(_, s)| s.connection.advertised(End::A, reth.r_key));
            if let Some(slot) = only(advertised) {
                return Some(slot);
            }
        }
        if alone_will_do { only(free.by_ref()) } else { None }
    }
}

/// The one there is; none if there are several.
fn only<'t>(mut found: impl Iterator<Item = (u32, &'t Slot)>) -> Option<u32> {
    let (slot, _) = found.next()?;
    found.next().is_none().then_some(slot)
}

/// True if the user said that two queue pairs belong together.
pub(super) fn pinned(pins: &[(u32, u32)], a: u32, b: u32) -> bool {
    pins.iter().any(|pin| *pin == (a, b) || *pin == (b, a))
}

fn is_pinned(pins: &[(u32, u32)], qp: u32) -> bool {
    pins.iter().any(|(a, b)| *a == qp || *b == qp)
}

#[cfg(test)]
mod tests {
    use super::super::table::ConnectionEnd;
    use super::*;
    use crate::connection::ConnectionState;
    use crate::flow::ib::IbFlow;
    use alloc::boxed::Box;
    use rdmascope_dissector::frame::{Carrier, Check};
    use rdmascope_dissector::wire::ib::bth::{Bth, Opcode};
    use rdmascope_dissector::wire::ib::ext::Extensions;

    const HOSTS: [Addr; 2] = [Addr::V4([10, 0, 0, 1]), Addr::V4([10, 0, 0, 2])];

    fn key(from: usize, qp: u32) -> QpKey {
        QpKey { src: HOSTS[from], dst: HOSTS[1 - from], qp, network: 0 }
    }

    fn packet(opcode: Opcode, psn: u32) -> IbPacket<'static> {
        IbPacket {
            carrier: Carrier::RoceV2 { src_port: 0xc001 },
            bth: Bth::new(opcode, 0, psn),
            ext: Extensions::default(),
            payload: &[],
            payload_length: 0,
            icrc: Check::Unchecked,
            behind: &[],
            ip_id: 0,
        }
    }

    /// Halves of host 0 to host 1, each with the next PSN of its requests.
    fn halves(of: &[(u32, u32)]) -> (Table, Halves, Vec<u32>) {
        let (mut table, mut halves) = (Table::default(), Halves::default());
        let slots = of.iter().map(|(qp, next)| {
            let mut flow = IbFlow::default();
            flow.starts_at(End::A, *next);
            let slot = table.insert(1, ConnectionState::default(), Flow::Ib(Box::new(flow)));
            table.add_qp(key(0, *qp), ConnectionEnd { slot, end: End::A });
            table.get_mut(slot).unwrap().half = true;
            halves.add(&key(0, *qp), slot);
            slot
        });
        let slots = slots.collect();
        (table, halves, slots)
    }

    fn partner(
        t: &Table,
        h: &Halves,
        pins: &[(u32, u32)],
        from: usize,
        qp: u32,
        p: &IbPacket<'_>,
        alone: bool,
    ) -> Option<u32> {
        h.partner(t, pins, &key(from, qp), p, Opcode(p.bth.opcode).row().unwrap(), alone)
    }

    #[test]
    fn the_only_half_will_do_for_a_first_packet_of_the_other_direction() {
        let (table, halves, slots) = halves(&[(7, 100)]);
        let send = packet(Opcode::RC_SEND_ONLY, 5);
        assert_eq!(partner(&table, &halves, &[], 1, 8, &send, true), Some(slots[0]));
        assert_eq!(partner(&table, &halves, &[], 1, 8, &send, false), None, "later packets need a reason");
        assert_eq!(partner(&table, &halves, &[], 0, 8, &send, true), None, "the same direction");
    }

    #[test]
    fn among_several_an_acknowledgment_tells() {
        let (table, halves, slots) = halves(&[(7, 100), (9, 5000)]);
        assert_eq!(partner(&table, &halves, &[], 1, 8, &packet(Opcode::RC_SEND_ONLY, 5), true), None);
        let ack = |psn| packet(Opcode::RC_ACKNOWLEDGE, psn);
        assert_eq!(partner(&table, &halves, &[], 1, 8, &ack(99), false), Some(slots[0]));
        assert_eq!(partner(&table, &halves, &[], 1, 8, &ack(4999), false), Some(slots[1]));
        assert_eq!(partner(&table, &halves, &[], 1, 8, &ack(77_777), false), None);
    }

    #[test]
    fn a_pin_goes_before_everything() {
        let (table, mut halves, slots) = halves(&[(7, 100), (9, 5000)]);
        let ack = packet(Opcode::RC_ACKNOWLEDGE, 99);
        assert_eq!(partner(&table, &halves, &[(8, 9)], 1, 8, &ack, false), Some(slots[1]));
        // the only one that is left to those without a pin
        assert_eq!(partner(&table, &halves, &[(9, 3)], 1, 8, &packet(Opcode::RC_SEND_ONLY, 1), true), Some(slots[0]));
        halves.remove(&key(0, 9), slots[1]);
        assert_eq!(partner(&table, &halves, &[(8, 9)], 1, 8, &ack, false), None);
    }
}
