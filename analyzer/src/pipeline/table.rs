//! Table of the connections that are followed: finds each by the headers of a packet, and knows the one that has been
//! idle longest.

use super::networks::Tag;
use crate::connection::ConnectionState;
use crate::flow::ib::IbFlow;
use crate::flow::iwarp::TcpFlow;
use crate::flow::losses::LossView;
use crate::op::{At, End};
use alloc::boxed::Box;
use alloc::vec::Vec;
use hashbrown::HashMap;
use rdmascope_dissector::frame::{Addr, Check};

/// One direction between two queue pairs: a packet names only the receiver's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct QpKey {
    pub(super) src: Addr,
    pub(super) dst: Addr,
    /// Queue pair of the receiver.
    pub(super) qp: u32,
    /// Of several with the same addresses.
    pub(super) network: u16,
}

/// Queue pairs that are found without a search: a power of two.
const CACHED: usize = 128;

impl QpKey {
    /// The hosts, the lower address first, and the network.
    fn hosts(&self) -> (Addr, Addr, u16) {
        (self.src.min(self.dst), self.src.max(self.dst), self.network)
    }

    /// Its place among those. Numbers of queue pairs are given in turn, or at random; those of both ends may well be
    /// the same.
    #[inline]
    fn cached_at(&self) -> usize {
        let last = match (&self.src, &self.dst) {
            (Addr::V4(src), Addr::V4(dst)) => u32::from(src[3]) ^ u32::from(dst[3]) << 1,
            _ => 0,
        };
        let mixed = (self.qp ^ last << 24).wrapping_mul(0x9e37_79b1);
        (mixed >> 25) as usize & (CACHED - 1)
    }
}

/// Address and port.
pub(super) type TcpEnd = (Addr, u16);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct TcpKey {
    low: TcpEnd,
    high: TcpEnd,
    /// Of several with the same addresses.
    network: u16,
}

impl TcpKey {
    fn of(a: TcpEnd, b: TcpEnd, network: u16) -> Self {
        let (low, high) = if a <= b { (a, b) } else { (b, a) };
        Self { low, high, network }
    }
}

/// A connection of the table, and one of its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ConnectionEnd {
    pub(super) slot: u32,
    pub(super) end: End,
}

/// Transport of a connection.
#[derive(Clone, Debug)]
pub(super) enum Flow {
    Ib(Box<IbFlow>),
    Tcp(Box<TcpFlow>),
}

impl Flow {
    /// Outcome of its packets.
    pub(super) fn loss_view(&self) -> LossView<'_> {
        match self {
            Self::Ib(flow) => flow.loss_view(),
            Self::Tcp(flow) => flow.loss_view(),
        }
    }
}

/// A packet that may be of a connection although it went to another queue pair, of which nothing else is known.
#[derive(Clone, Debug)]
pub(super) struct Stray {
    pub(super) at: At,
    /// End of the connection that sent it.
    pub(super) end: End,
    pub(super) psn: u32,
    pub(super) opcode: u8,
    /// Bytes of its payload.
    pub(super) length: u32,
    /// The first of them.
    pub(super) head: Vec<u8>,
    /// The queue pair that it names.
    pub(super) qp: u32,
    /// True if its invariant CRC was checked, and is right.
    pub(super) is_checked: bool,
    /// The connection that it was taken for, and its number.
    pub(super) taken_for: (u32, u32),
}

/// A connection that is followed.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub(super) connection: ConnectionState,
    pub(super) flow: Flow,
    /// Keys under which it is found, by the end that sends.
    pub(super) qp_keys: [Option<QpKey>; 2],
    tcp_key: Option<TcpKey>,
    /// By sender: VLAN and overlay of its part of the handshake, or of its first packet.
    pub(super) tags: [Option<Tag>; 2],
    /// True if only one direction is known.
    pub(super) half: bool,
    /// Packets that were examined to find its other direction.
    pub(super) tries: u32,
    /// By sender: true if its side of the handshake may be damaged.
    pub(super) is_doubtful: [bool; 2],
    /// IP headers of it whose checksum is right, and wrong.
    pub(super) headers: [u32; 2],
    /// A packet that another queue pair got, and that may be of this connection.
    pub(super) stray: Option<Box<Stray>>,
    /// The frame at which it came into the table.
    pub(super) born: u64,
    /// Bytes of memory that it held after its last packet.
    held: usize,
}

/// Frames with a wrong IP header checksum after which an address is thought to be right all the same: something on the
/// way rewrites headers.
const REWRITTEN: u32 = 3;

impl Slot {
    /// Counts the IP header of a packet, whose own checksum or CRC is `packet`. Returns true if it is damaged: its
    /// length says nothing. Where that is so of many headers of a connection, or of all, the checksums say nothing.
    #[inline]
    pub(super) fn is_header_damaged(&mut self, header: Check, packet: Check) -> bool {
        match header {
            Check::Unchecked => false,
            Check::Good => {
                self.headers[0] = self.headers[0].saturating_add(1);
                false
            }
            Check::Bad => {
                self.headers[1] = self.headers[1].saturating_add(1);
                let [good, bad] = self.headers;
                match packet {
                    // it covers addresses and length
                    Check::Good => false,
                    Check::Bad => good >= bad,
                    Check::Unchecked => good / 8 >= bad,
                }
            }
        }
    }

    /// True if there is no sign of it but a frame or two with damaged headers: their addresses are wrong.
    pub(super) fn is_phantom(&self) -> bool {
        let [good, bad] = self.headers;
        good == 0 && (1..REWRITTEN).contains(&bad) && self.is_doubtful == [true; 2]
    }

    #[inline]
    fn holds(&mut self) -> usize {
        let flow = match &self.flow {
            Flow::Ib(flow) => flow.held(),
            Flow::Tcp(flow) => flow.held(),
        };
        flow + self.connection.held()
    }
}

/// Connections between two hosts that are looked through for that of a packet to an unknown queue pair, at most.
const WHOLE_MAX: usize = 64;
/// No slot.
const NONE: u32 = u32::MAX;

/// The neighbours of a slot in the order of use.
#[derive(Clone, Copy, Debug)]
struct Links {
    newer: u32,
    older: u32,
}

/// Slots in the order in which they were used last: a list through a table.
#[derive(Clone, Debug)]
struct UseOrder {
    links: Vec<Links>,
    newest: u32,
    oldest: u32,
}

impl Default for UseOrder {
    fn default() -> Self {
        Self { links: Vec::new(), newest: NONE, oldest: NONE }
    }
}

impl UseOrder {
    /// A slot that is not in the list was used.
    fn add(&mut self, slot: u32) {
        if self.links.len() <= slot as usize {
            self.links.resize(slot as usize + 1, Links { newer: NONE, older: NONE });
        }
        self.links[slot as usize] = Links { newer: NONE, older: self.newest };
        match self.links.get_mut(self.newest as usize) {
            Some(before) => before.newer = slot,
            None => self.oldest = slot,
        }
        self.newest = slot;
    }

    fn remove(&mut self, slot: u32) {
        let Links { newer, older } = self.links[slot as usize];
        match self.links.get_mut(newer as usize) {
            Some(l) => l.older = older,
            None => self.newest = older,
        }
        match self.links.get_mut(older as usize) {
            Some(l) => l.newer = newer,
            None => self.oldest = newer,
        }
    }

    #[inline]
    fn touch(&mut self, slot: u32) {
        if self.newest != slot {
            self.remove(slot);
            self.add(slot);
        }
    }
}

/// All connections that are followed.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    slots: Vec<Option<Box<Slot>>>,
    free: Vec<u32>,
    open: usize,
    peak: usize,
    /// Bytes of memory that all connections hold, and the most there were.
    held: usize,
    held_most: usize,
    order: UseOrder,
    qps: HashMap<QpKey, ConnectionEnd>,
    tcps: HashMap<TcpKey, u32>,
    /// Connections of which both queue pairs are known, by hosts (the lower address first) and network, the newest last.
    whole: HashMap<(Addr, Addr, u16), Vec<u32>>,
    /// Queue pairs of the last packets, each at the place that its number gives.
    cached: Vec<Option<(QpKey, ConnectionEnd)>>,
    /// The TCP connection of the packet before: one of its ends, the other, its network, its place.
    cached_tcp: Option<(TcpEnd, TcpEnd, u16, u32)>,
}

impl Table {
    /// Connections in it.
    pub(super) fn len(&self) -> usize {
        self.open
    }

    /// The most there were in it at one time.
    pub(super) fn peak(&self) -> usize {
        self.peak
    }

    /// Bytes of memory that all of them hold.
    pub(super) fn held(&self) -> usize {
        self.held
    }

    /// The most there were at one time.
    pub(super) fn held_most(&self) -> usize {
        self.held_most
    }

    /// Counts the memory of a connection after a packet.
    #[inline]
    pub(super) fn count_memory(&mut self, slot: u32) {
        let Some(s) = self.slots.get_mut(slot as usize).and_then(Option::as_deref_mut) else { return };
        let now = s.holds();
        self.held = self.held.saturating_sub(s.held).saturating_add(now);
        s.held = now;
        self.held_most = self.held_most.max(self.held);
    }

    /// Connections that hold at least `least` bytes, the idlest first.
    pub(super) fn heavy(&self, least: usize) -> Vec<u32> {
        let mut all = Vec::new();
        let mut at = self.order.oldest;
        while let Some(s) = self.get(at) {
            if s.held >= least {
                all.push(at);
            }
            at = self.order.links[at as usize].newer;
        }
        all
    }

    /// Places of connections, in the order in which they came.
    pub(super) fn by_age(&self) -> Vec<u32> {
        let aged = self.slots.iter().enumerate().filter_map(|(n, slot)| Some((slot.as_deref()?, n as u32)));
        let mut all: Vec<(u64, u32, u32)> = aged.map(|(slot, n)| (slot.born, slot.connection.id, n)).collect();
        all.sort_unstable();
        all.into_iter().map(|(.., n)| n).collect()
    }

    /// Takes in the connections of another part of the capture that has ended: no packet finds them.
    pub(super) fn join(&mut self, part: Table) {
        // each part had its most at a time of its own: together they had no more than this
        self.held_most = self.held_most.saturating_add(part.held_most);
        self.held = self.held.saturating_add(part.held);
        for slot in part.slots.into_iter().flatten() {
            self.place(slot);
        }
    }

    /// One more than the greatest slot.
    pub(super) fn end(&self) -> u32 {
        self.slots.len() as u32
    }

    /// The connection of a slot.
    pub(super) fn get(&self, slot: u32) -> Option<&Slot> {
        self.slots.get(slot as usize)?.as_deref()
    }

    /// The same, to change.
    pub(super) fn get_mut(&mut self, slot: u32) -> Option<&mut Slot> {
        self.slots.get_mut(slot as usize)?.as_deref_mut()
    }

    /// The same for a packet of it: it is the one used last.
    #[inline]
    pub(super) fn used(&mut self, slot: u32) -> Option<&mut Slot> {
        let found = self.slots.get_mut(slot as usize)?.as_deref_mut()?;
        self.order.touch(slot);
        Some(found)
    }

    /// All of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter().filter_map(|slot| slot.as_deref())
    }

    /// All of them, to change.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Slot> {
        self.slots.iter_mut().filter_map(|slot| slot.as_deref_mut())
    }

    /// The one without a packet for the longest time.
    pub(super) fn idlest(&self) -> Option<u32> {
        Some(self.order.oldest).filter(|slot| *slot != NONE)
    }

    /// Takes a connection in. It is found once it has keys.
    pub(super) fn insert(&mut self, born: u64, connection: ConnectionState, flow: Flow) -> u32 {
        let (is_doubtful, headers) = ([false; 2], [0; 2]);
        let (qp_keys, tcp_key, tags, half, tries, held) = ([None; 2], None, [None; 2], false, 0, 0);
        self.place(Box::new(Slot {
            connection,
            flow,
            qp_keys,
            tcp_key,
            tags,
            half,
            tries,
            is_doubtful,
            headers,
            stray: None,
            born,
            held,
        }))
    }

    fn place(&mut self, slot: Box<Slot>) -> u32 {
        self.open += 1;
        self.peak = self.peak.max(self.open);
        let at = match self.free.pop() {
            Some(free) => {
                self.slots[free as usize] = Some(slot);
                free
            }
            None => {
                self.slots.push(Some(slot));
                self.slots.len() as u32 - 1
            }
        };
        self.order.add(at);
        at
    }

    /// Takes a connection out, and its keys.
    pub(super) fn remove(&mut self, slot: u32) -> Option<Box<Slot>> {
        let gone = self.slots.get_mut(slot as usize)?.take()?;
        self.free.push(slot);
        self.open -= 1;
        self.order.remove(slot);
        self.held = self.held.saturating_sub(gone.held);
        self.forget_cached();
        if let [Some(key), Some(_)] = gone.qp_keys
            && let Some(list) = self.whole.get_mut(&key.hosts())
        {
            list.retain(|other| *other != slot);
            if list.is_empty() {
                self.whole.remove(&key.hosts());
            }
        }
        for key in gone.qp_keys.into_iter().flatten() {
            if self.qps.get(&key).is_some_and(|p| p.slot == slot) {
                self.qps.remove(&key);
            }
        }
        if let Some(key) = gone.tcp_key {
            self.tcps.remove(&key);
            self.cached_tcp = None;
        }
        Some(gone)
    }

    /// Place of the connection of a queue pair.
    #[inline(always)]
    pub(super) fn by_qp(&mut self, key: &QpKey) -> Option<ConnectionEnd> {
        match self.cached.get(key.cached_at()) {
            Some(Some((known, place))) if known == key => Some(*place),
            _ => self.look_up(key),
        }
    }

    fn look_up(&mut self, key: &QpKey) -> Option<ConnectionEnd> {
        let place = *self.qps.get(key)?;
        if self.cached.is_empty() {
            self.cached.resize(CACHED, None);
        }
        self.cached[key.cached_at()] = Some((*key, place));
        Some(place)
    }

    fn forget_cached(&mut self) {
        self.cached.fill(None);
    }

    /// Place of the connection of a queue pair, for a key that comes rarely.
    pub(super) fn find_qp(&self, key: &QpKey) -> Option<ConnectionEnd> {
        self.qps.get(key).copied()
    }

    /// Of the newest connections between the hosts of a packet of which both queue pairs are known, those that are to send
    /// this PSN next: the end that sends in the packet's direction, and the flow.
    pub(super) fn to_send(&self, key: &QpKey, psn: u32) -> impl Iterator<Item = (ConnectionEnd, &IbFlow)> {
        self.whole.get(&key.hosts()).into_iter().flatten().rev().filter_map(move |slot| {
            let s = self.get(*slot)?;
            let sends = |end: &End| s.qp_keys[end.index()].is_some_and(|k| (k.src, k.dst) == (key.src, key.dst));
            let end = End::BOTH.into_iter().find(sends)?;
            let Flow::Ib(flow) = &s.flow else { return None };
            flow.is_next(end, psn).then_some((ConnectionEnd { slot: *slot, end }, &**flow))
        })
    }

    /// From now on packets of a queue pair belong to this place.
    pub(super) fn add_qp(&mut self, key: QpKey, place: ConnectionEnd) {
        if let Some(slot) = self.get_mut(place.slot) {
            slot.qp_keys[place.end.index()] = Some(key);
            if slot.qp_keys[place.end.peer().index()].is_some() {
                let list = self.whole.entry(key.hosts()).or_default();
                list.retain(|other| *other != place.slot);
                if list.len() >= WHOLE_MAX {
                    list.remove(0);
                }
                list.push(place.slot);
            }
        }
        self.qps.insert(key, place);
        if let Some(cached) = self.cached.get_mut(key.cached_at()) {
            *cached = None;
        }
    }

    /// The connection of two TCP ports.
    #[inline]
    pub(super) fn by_tcp(&mut self, from: TcpEnd, to: TcpEnd, network: u16) -> Option<u32> {
        match self.cached_tcp {
            Some((a, b, n, slot)) if n == network && ((a == from && b == to) || (a == to && b == from)) => Some(slot),
            _ => {
                let slot = self.tcps.get(&TcpKey::of(from, to, network)).copied()?;
                self.cached_tcp = Some((from, to, network, slot));
                Some(slot)
            }
        }
    }

    /// From now on segments between two TCP ports belong here.
    pub(super) fn add_tcp(&mut self, from: TcpEnd, to: TcpEnd, network: u16, slot: u32) {
        let key = TcpKey::of(from, to, network);
        if let Some(s) = self.get_mut(slot) {
            s.tcp_key = Some(key);
        }
        self.tcps.insert(key, slot);
        self.cached_tcp = Some((from, to, network, slot));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(qp: u32) -> QpKey {
        QpKey { src: Addr::V4([10, 0, 0, 1]), dst: Addr::V4([10, 0, 0, 2]), qp, network: 0 }
    }

    fn insert(table: &mut Table, qp: u32) -> u32 {
        let slot = table.insert(1, ConnectionState::default(), Flow::Ib(Box::default()));
        table.add_qp(key(qp), ConnectionEnd { slot, end: End::A });
        slot
    }

    #[test]
    fn the_idlest_is_the_one_without_a_packet_for_the_longest_time() {
        let mut table = Table::default();
        assert_eq!(table.idlest(), None);
        let slots: Vec<u32> = (0..4).map(|qp| insert(&mut table, qp)).collect();
        assert_eq!(table.idlest(), Some(slots[0]));
        for used in [0, 2, 0, 1] {
            table.used(slots[used]);
        }
        assert_eq!(table.idlest(), Some(slots[3]));
        table.remove(slots[3]);
        assert_eq!(table.idlest(), Some(slots[2]));
        let again = insert(&mut table, 9);
        table.used(slots[2]);
        let order: Vec<u32> =
            core::iter::from_fn(|| table.idlest().inspect(|slot| drop(table.remove(*slot)))).collect();
        assert_eq!((order, table.len()), (alloc::vec![slots[0], slots[1], again, slots[2]], 0));
    }

    #[test]
    fn what_is_removed_is_not_found_any_more() {
        let mut table = Table::default();
        let slot = insert(&mut table, 7);
        assert_eq!(table.by_qp(&key(7)), Some(ConnectionEnd { slot, end: End::A }));
        let ports = ((Addr::V4([10, 0, 0, 1]), 999), (Addr::V4([10, 0, 0, 2]), 5445));
        let tcp = table.insert(1, ConnectionState::default(), Flow::Tcp(Box::default()));
        table.add_tcp(ports.0, ports.1, 0, tcp);
        assert_eq!(
            [(1, 0, 0), (0, 1, 0), (0, 1, 7)].map(|(a, b, network)| table.by_tcp(
                [ports.0, ports.1][a],
                [ports.0, ports.1][b],
                network
            )),
            [Some(tcp), Some(tcp), None]
        );
        table.remove(slot);
        table.remove(tcp);
        assert_eq!((table.by_qp(&key(7)), table.by_tcp(ports.0, ports.1, 0), table.len()), (None, None, 0));
        // a key that went to another connection stays there
        let (old, new) = (insert(&mut table, 7), table.insert(1, ConnectionState::default(), Flow::Ib(Box::default())));
        table.add_qp(key(7), ConnectionEnd { slot: new, end: End::B });
        table.remove(old);
        assert_eq!(table.by_qp(&key(7)), Some(ConnectionEnd { slot: new, end: End::B }));
    }
}
