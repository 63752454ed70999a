//! Constructs RoCEv2 packets from the reports of a card: a card does not show its frames.
//!
//! | in the file | origin |
//! | --- | --- |
//! | queue pairs, path MTU, PSNs of the first packets | queried from the card when the connection was set up |
//! | addresses, ports, depths, private data | the communication manager |
//! | our Sends, RDMA Writes and RDMA Reads | posted work requests |
//! | the peer's Sends | completions of receives |
//! | acknowledgements, answers to our reads, NAKs | completions of posted work requests |
//! | the peer's RDMA Writes and Reads in our memory | derived from the reply (see [`Card::answered`]), with a comment that says so |
//! | Ethernet addresses, IP identifications, communication identifiers | made up |
//! | losses, retransmissions, congestion, the time on the wire | missing: the card does not report them |
//!
//! The reply of a READ is reported after the RDMA Writes that it covers. Therefore completions are held until the
//! layers above have read the messages that they brought.

use crate::transport::roce::cm::{self, Offer};
use crate::transport::roce::packet::{self, DETH, MASK_24 as PSN_MASK, PORT, Path, opcode, part, reth};
use crate::transport::{Handle, Time};
use crate::wire::{ETHERNET, Wire, addresses, frame, udp_checksum};
use rdmascope_dissector::trace::Off;
use rdmascope_dissector::wire::ib::bth::{Bth, DEFAULT_P_KEY, Opcode};
use rdmascope_dissector::wire::ib::ext::{ACK, NAK, aeth_bytes};
use rdmascope_dissector::wire::ib::icrc::{self, Cover};
use rdmascope_dissector::wire::ib::mad::QP1;
use rdmascope_dissector::wire::ip::UDP;
use rdmascope_dissector::wire::smb2::{Command, Header, NtStatus, read_write};
use rdmascope_verbs::{Numbers, What};
use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

/// Maximum number of requests that wait for their replies.
const GRANTS_MAX: usize = 65_536;

const FIRST: &str = "Made by rdmascope from what its RDMA card reported, which shows no frames: messages, memory, \
    keys, queue pairs and their order are \
                     those of the connection. Times are those of posting and completion. Retransmissions and \
                     congestion are not seen.";
const WORKED_OUT: &str =
    "Worked out from the reply, as the card shows no such operation: the peer's RDMA in our memory.";

/// Values that identify a connection.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    /// The device: its name.
    pub(crate) device: String,
    pub(crate) numbers: Numbers,
    /// Our address and port, and the peer's.
    pub(crate) addresses: [SocketAddr; 2],
    /// Responder resources and initiator depth, ours and the peer's.
    pub(crate) depths: [(u8, u8); 2],
    /// Ours and the peer's.
    pub(crate) private_data: [Vec<u8>; 2],
    pub(crate) we_connected: bool,
}

/// One end.
#[derive(Debug)]
struct Side {
    qp: u32,
    /// Of its next request.
    psn: u32,
    /// Messages of the other end that it has completed, 24 bits.
    msn: u32,
    comm_id: u32,
    /// IP identification of its next packet.
    id: u16,
}

/// One of our requests that was not acknowledged yet.
#[derive(Clone, Copy, Debug)]
struct Open {
    first: u32,
    last: u32,
    is_read: bool,
}

/// A reported operation.
#[derive(Debug)]
enum Occurrence {
    Card(What),
    /// The peer wrote into our memory, or read it (`wrote` false).
    WorkedOut {
        wrote: bool,
        key: u32,
        offset: u64,
        data: Vec<u8>,
    },
}

/// Kind of a message.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Send {
        invalidate: Option<u32>,
        solicited: bool,
    },
    Write {
        key: u32,
        offset: u64,
        whole: u32,
    },
    /// The answer to a read.
    Response {
        msn: u32,
    },
}

/// Writes one connection of a card.
#[derive(Debug)]
pub(crate) struct Card {
    pub(super) wire: Wire,
    interface: u32,
    ends: [(IpAddr, u16); 2],
    /// Ours and the peer's.
    sides: [Side; 2],
    mtu: usize,
    open: VecDeque<Open>,
    held: VecDeque<(Time, Occurrence)>,
    /// By request: the memory that has its answer.
    grants: HashMap<u64, Vec<Handle>>,
    client: usize,
    /// Of the next management datagram.
    mad_psn: u32,
    over: bool,
}

impl Card {
    /// A connection, with the handshake of the communication manager, as if it had come all at once at `now` (ns since
    /// 1970).
    pub(crate) fn new(wire: Wire, known: &Known, now: Time) -> Self {
        let n = &known.numbers;
        let link = if n.ethernet { "RoCE" } else { "InfiniBand, recorded as RoCEv2 packets" };
        let description = format!(
            "Made by rdmascope from what RDMA card {} reported of our own connections ({link}); no frame here was \
                captured",
            known.device
        );
        let (interface, number) = wire.open(&format!("rdmascope verbs {}", known.device), &description);
        let side = |at: usize, qp, psn| Side { qp, psn, msn: 0, comm_id: number << 1 | at as u32, id: 0 };
        let mut card = Self {
            wire,
            interface,
            ends: addresses(known.addresses[0], known.addresses[1]),
            sides: [side(0, n.qp, n.psn), side(1, n.peer_qp, n.peer_psn)],
            mtu: n.path_mtu.clamp(256, 4096) as usize,
            open: VecDeque::new(),
            held: VecDeque::new(),
            grants: HashMap::new(),
            client: usize::from(!known.we_connected),
            mad_psn: 0,
            over: false,
        };
        card.handshake(now, known);
        card
    }

    /// Holds an operation of the card. It is written when [`Card::release`] is called: then all messages before it were
    /// read.
    pub(crate) fn hold(&mut self, at: Time, what: What) {
        self.held.push_back((at, Occurrence::Card(what)));
    }

    /// Writes the held operations.
    pub(crate) fn release(&mut self) {
        while let Some((at, occurrence)) = self.held.pop_front() {
            self.record(at, occurrence);
        }
    }

    /// Records that we ended the connection, if it has not ended yet.
    pub(crate) fn closed(&mut self, now: Time) {
        self.release();
        self.record(now, Occurrence::Card(What::Disconnected { by_peer: false }));
    }

    /// Request `id` (its MessageId) grants the peer access to our memory.
    pub(crate) fn granted(&mut self, id: u64, memory: &[Handle]) {
        if self.grants.len() < GRANTS_MAX {
            self.grants.insert(id, memory.to_vec());
        }
    }

    /// Handles the decrypted reply to a request. If it says that data went by RDMA, the operation is reported before
    /// the message with the reply: the count is taken from the reply, and the bytes from our memory as it is now, by
    /// `peek`.
    pub(crate) fn answered(&mut self, now: Time, reply: &[u8], peek: impl Fn(u32, u32) -> Option<Vec<u8>>) {
        let Ok((_, header)) = Header::parse(reply, &mut Off) else { return };
        let Some(memory) = self.grants.remove(&header.message_id) else { return };
        let body = &reply[Header::LEN.min(reply.len())..];
        let (wrote, mut left) = match header.command {
            Command::READ => {
                (true, read_write::ReadResponseFixed::parse(body, &mut Off).map_or(0, |(_, r)| r.data_remaining))
            }
            Command::WRITE => {
                (false, read_write::WriteResponseFixed::parse(body, &mut Off).map_or(0, |(_, r)| r.count))
            }
            _ => return,
        };
        if header.status() != NtStatus::SUCCESS {
            return;
        }
        let place = self
            .held
            .iter()
            .position(|(_, occurrence)| matches!(occurrence, Occurrence::Card(What::Received { .. })))
            .unwrap_or(self.held.len());
        let at = self.held.get(place).map_or(now, |(at, _)| *at);
        let mut occurrences = Vec::new();
        for handle in memory {
            let Some(data) = peek(handle.key, left.min(handle.length)).filter(|data| !data.is_empty()) else { break };
            left -= data.len() as u32;
            occurrences.push((at, Occurrence::WorkedOut { wrote, key: handle.key, offset: handle.offset, data }));
        }
        for occurrence in occurrences.into_iter().rev() {
            self.held.insert(place, occurrence);
        }
    }

    fn record(&mut self, now: Time, occurrence: Occurrence) {
        match occurrence {
            Occurrence::Card(What::Sent { message, invalidate, solicited }) => {
                let open = self.message(now, 0, Kind::Send { invalidate, solicited }, &message, &[]);
                self.open.push_back(open);
            }
            Occurrence::Card(What::Wrote { key, offset, data }) => {
                let open = self.message(now, 0, Kind::Write { key, offset, whole: data.len() as u32 }, &data, &[]);
                self.open.push_back(open);
            }
            Occurrence::Card(What::Asked { key, offset, length }) => {
                let open = self.ask(now, 0, key, offset, length, &[]);
                self.open.push_back(open);
            }
            Occurrence::Card(What::Done { read }) => {
                let Some(open) = self.open.pop_front() else { return };
                let msn = self.complete(1);
                match read {
                    Some(data) => self.answer(now, 1, open, msn, &data),
                    // its bytes were not captured, and are not made up
                    None if open.is_read => {}
                    None => self.acknowledge(now, 1, open.last, ACK, msn),
                }
            }
            Occurrence::Card(What::Refused(code)) => {
                if let Some(open) = self.open.pop_front() {
                    let msn = self.sides[1].msn;
                    self.acknowledge(now, 1, open.first, NAK | code & 0x1f, msn);
                }
            }
            Occurrence::Card(What::Received { message, invalidated }) => {
                let open =
                    self.message(now, 1, Kind::Send { invalidate: invalidated, solicited: false }, &message, &[]);
                let msn = self.complete(0);
                self.acknowledge(now, 0, open.last, ACK, msn);
            }
            Occurrence::Card(What::Disconnected { by_peer }) => self.disconnect(now, by_peer),
            Occurrence::WorkedOut { wrote: true, key, offset, data } => {
                self.message(now, 1, Kind::Write { key, offset, whole: data.len() as u32 }, &data, &[WORKED_OUT]);
                // the acknowledgement of the reply covers this one too
                self.complete(0);
            }
            Occurrence::WorkedOut { wrote: false, key, offset, data } => {
                let open = self.ask(now, 1, key, offset, data.len() as u32, &[WORKED_OUT]);
                let msn = self.complete(0);
                self.answer(now, 0, open, msn, &data);
            }
        }
    }

    // ---- messages

    /// One more message was completed by `end`.
    fn complete(&mut self, end: usize) -> u32 {
        let side = &mut self.sides[end];
        side.msn = (side.msn + 1) & PSN_MASK;
        side.msn
    }

    /// A Send or RDMA Write of `from`, in packets of the path MTU.
    fn message(&mut self, now: Time, from: usize, kind: Kind, bytes: &[u8], comments: &[&str]) -> Open {
        let first = self.sides[from].psn;
        let next = self.packets(now, from, first, kind, bytes, comments);
        self.sides[from].psn = next;
        Open { first, last: next.wrapping_sub(1) & PSN_MASK, is_read: false }
    }

    /// An RDMA Read Request; its answer has as many sequence numbers as packets.
    fn ask(&mut self, now: Time, from: usize, key: u32, offset: u64, length: u32, comments: &[&str]) -> Open {
        let first = self.sides[from].psn;
        let count = (length as usize).div_ceil(self.mtu).max(1) as u32;
        let next = first.wrapping_add(count) & PSN_MASK;
        self.sides[from].psn = next;
        let head = self.bth(1 - from, Opcode::RC_RDMA_READ_REQUEST, first, true, false);
        self.packet(now, from, head, &reth(key, offset, length), &[], comments);
        Open { first, last: next.wrapping_sub(1) & PSN_MASK, is_read: true }
    }

    fn answer(&mut self, now: Time, from: usize, open: Open, msn: u32, bytes: &[u8]) {
        self.packets(now, from, open.first, Kind::Response { msn }, bytes, &[]);
    }

    /// Writes the packets of a message, the first of which has this sequence number. Returns the number after the last.
    fn packets(&mut self, now: Time, from: usize, first: u32, kind: Kind, bytes: &[u8], comments: &[&str]) -> u32 {
        let count = bytes.len().div_ceil(self.mtu).max(1);
        let mut psn = first;
        for n in 0..count {
            let piece = &bytes[n * self.mtu..bytes.len().min((n + 1) * self.mtu)];
            let last = n + 1 == count;
            let opcode = opcode(kind.into(), part(n as u64, count as u64));
            let ext = match kind {
                Kind::Send { invalidate: Some(key), .. } if last => key.to_be_bytes().to_vec(),
                Kind::Write { key, offset, whole } if n == 0 => reth(key, offset, whole),
                Kind::Response { msn } if n == 0 || last => aeth_bytes(ACK, msn).to_vec(),
                _ => Vec::new(),
            };
            let solicited = last && matches!(kind, Kind::Send { solicited: true, .. });
            let asks = last && !matches!(kind, Kind::Response { .. });
            let head = self.bth(1 - from, opcode, psn, asks, solicited);
            self.packet(now, from, head, &ext, piece, if n == 0 { comments } else { &[] });
            psn = psn.wrapping_add(1) & PSN_MASK;
        }
        psn
    }

    fn acknowledge(&mut self, now: Time, from: usize, psn: u32, syndrome: u8, msn: u32) {
        let head = self.bth(1 - from, Opcode::RC_ACKNOWLEDGE, psn, false, false);
        self.packet(now, from, head, &aeth_bytes(syndrome, msn), &[], &[]);
    }

    /// A header to an end's queue pair.
    fn bth(&self, to: usize, opcode: Opcode, psn: u32, asks: bool, solicited: bool) -> Bth {
        Bth { bits: u8::from(solicited) << 7, ack: u8::from(asks) << 7, ..Bth::new(opcode, self.sides[to].qp, psn) }
    }

    fn packet(&mut self, now: Time, from: usize, mut head: Bth, ext: &[u8], payload: &[u8], comments: &[&str]) {
        let pad = payload.len().next_multiple_of(4) - payload.len();
        head.bits |= (pad as u8) << 4;
        let mut udp = Vec::with_capacity(8 + Bth::LEN + ext.len() + payload.len() + 8);
        // the source port spreads connections over paths
        let port = Path::source_port(self.sides[0].qp, self.sides[1].qp);
        udp.extend_from_slice(&port.to_be_bytes());
        udp.extend_from_slice(&PORT.to_be_bytes());
        udp.extend_from_slice(&[0; 4]);
        head.emit(&mut udp);
        udp.extend_from_slice(ext);
        udp.extend_from_slice(payload);
        udp.resize(udp.len() + pad + 4, 0);
        let length = (udp.len() as u16).to_be_bytes();
        udp[4..6].copy_from_slice(&length);
        let id = self.sides[from].id;
        self.sides[from].id = id.wrapping_add(1);
        let v6 = self.ends[0].0.is_ipv6();
        let mut bytes = frame(&self.ends, from, UDP, id, &udp);
        let (cover, at) = if v6 { (Cover::Ipv6, ETHERNET + 40) } else { (Cover::Ipv4, ETHERNET + 20) };
        let end = bytes.len() - 4;
        if let Some(crc) = icrc::invariant(cover, &bytes[ETHERNET..end]) {
            bytes[end..].copy_from_slice(&crc.to_le_bytes());
        }
        if v6 {
            // IPv4 does without; the invariant CRC does not cover it
            let sum = udp_checksum(&self.ends, from, &bytes[at..]);
            bytes[at + 6..at + 8].copy_from_slice(&sum);
        }
        self.wire.frame(self.interface, now, &bytes, comments);
    }

    // ---- the communication manager

    fn handshake(&mut self, now: Time, known: &Known) {
        let (client, server) = (self.client, 1 - self.client);
        let offer = |at: usize, rnr_retry| Offer {
            comm_id: self.sides[at].comm_id,
            qp: self.sides[at].qp,
            starting_psn: self.sides[1 - at].psn,
            responder_resources: known.depths[at].0,
            initiator_depth: known.depths[at].1,
            rnr_retry,
            guid: 0,
        };
        let request = cm::request(&cm::Request {
            offer: offer(client, 6),
            source: self.ends[client],
            destination: self.ends[server],
            path_mtu: self.mtu as u16,
            p_key: DEFAULT_P_KEY,
            retry_count: 7,
            ack_timeout: 19,
            cm_timeout: 20,
            cm_retries: 15,
            private_data: &known.private_data[client],
        });
        let reply = cm::reply(&offer(server, 6), self.sides[client].comm_id, &known.private_data[server]);
        let (ours, theirs) = (self.sides[client].comm_id, self.sides[server].comm_id);
        self.datagram(now, client, &request, &[FIRST]);
        self.datagram(now, server, &reply, &[]);
        self.datagram(now, client, &cm::ready(ours, theirs, ours.into()), &[]);
    }

    fn disconnect(&mut self, now: Time, by_peer: bool) {
        if std::mem::replace(&mut self.over, true) {
            return;
        }
        let from = usize::from(by_peer);
        let (local, remote) = (self.sides[from].comm_id, self.sides[1 - from].comm_id);
        let transaction = self.sides[self.client].comm_id.into();
        self.datagram(now, from, &cm::disconnect(local, remote, self.sides[1 - from].qp, transaction), &[]);
        // our end answers; whether the peer's does, is unknown
        if by_peer {
            self.datagram(now, 0, &cm::disconnect_reply(remote, local, transaction), &[]);
        }
    }

    /// A message of the communication manager.
    fn datagram(&mut self, now: Time, from: usize, mad: &[u8], comments: &[&str]) {
        let head = Bth::new(Opcode::UD_SEND_ONLY, QP1, self.mad_psn);
        self.mad_psn = (self.mad_psn + 1) & PSN_MASK;
        self.packet(now, from, head, &DETH, mad, comments);
    }
}

impl From<Kind> for packet::Kind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Send { invalidate, .. } => Self::Send { invalidate: invalidate.is_some(), immediate: false },
            Kind::Write { .. } => Self::Write { immediate: false },
            Kind::Response { .. } => Self::Response,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdmascope_analyzer::env::Options;
    use rdmascope_analyzer::op::{End, Placement, RdmaOp, Verb};
    use rdmascope_analyzer::pipeline::{FrameMeta, Pipeline};
    use rdmascope_analyzer::report::{Handshake, Report, Sink};
    use rdmascope_capture::CaptureFile;
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct SharedBuffer(Arc<Mutex<Vec<u8>>>);

    impl Write for SharedBuffer {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// Sender, verb, key and offset of the memory, the invalidated key, and the bytes of all packets.
    type Op = (End, Verb, Option<(u32, u64)>, Option<u32>, Vec<u8>);

    #[derive(Default)]
    struct Ops(Vec<Op>);

    impl Sink for Ops {
        fn op(&mut self, _: u32, op: &RdmaOp<'_>) {
            if op.part.begins() {
                let place = match op.placement {
                    Placement::Memory { key, address } => Some((key, address)),
                    _ => None,
                };
                self.0.push((op.by, op.verb, place, None, Vec::new()));
            }
            let last = self.0.last_mut().unwrap();
            last.3 = last.3.or(op.invalidate);
            last.4.extend_from_slice(op.bytes);
        }
    }

    fn known(us: &str, peer: &str, we_connected: bool, path_mtu: u32) -> Known {
        Known {
            device: "card0".into(),
            numbers: Numbers { qp: 0x11, peer_qp: 0x12, psn: 0xff_fffe, peer_psn: 7, path_mtu, ethernet: true },
            addresses: [us.parse().unwrap(), peer.parse().unwrap()],
            depths: [(16, 8), (4, 2)],
            private_data: [Vec::new(), b"theirs".to_vec()],
            we_connected,
        }
    }

    /// Analyzes the capture of a card's operations.
    fn analyzed(known: &Known, what: impl FnOnce(&mut Card)) -> (Report, Ops, Vec<String>) {
        let kept = SharedBuffer::default();
        let wire = Wire::new(Box::new(kept.clone()), "wire").unwrap();
        let mut card = Card::new(wire.clone(), known, 1_700_000_000_000_000_000);
        what(&mut card);
        card.closed(1_700_000_000_001_000_000);
        wire.flush().unwrap();
        let file = CaptureFile::from_bytes(std::mem::take(&mut *kept.0.lock().unwrap()), "wire").unwrap();
        let mut pipeline = Pipeline::with_sink(Options::default(), Ops::default());
        let (mut number, mut comments) = (0, Vec::new());
        for record in file.records() {
            let record = record.unwrap();
            number += 1;
            comments.extend(record.comments().map(|c| format!("{number}: {c}")));
            let (time_ns, link_type, wire_len, interface) =
                (record.time_ns, record.link_type, record.wire_len, record.interface);
            pipeline.frame(&FrameMeta { number, time_ns, link_type, wire_len, interface }, record.bytes, &mut Off);
        }
        let (report, ops) = pipeline.finish();
        (report, ops, comments)
    }

    #[test]
    fn operations_read_back_over_both_families_in_both_roles() {
        let bytes = |n: usize| (0..n).map(|n| (n % 251) as u8).collect::<Vec<_>>();
        for (us, peer) in [
            ("192.0.2.1:40000", "192.0.2.2:4420"),
            ("[2001:db8::1]:40000", "[2001:db8::2]:4420"),
            ("192.0.2.1:1", "[2001:db8::2]:2"),
        ] {
            for (we_connected, mtu) in [(true, 1024), (false, 1024), (true, 4096), (false, 256)] {
                let known = known(us, peer, we_connected, mtu);
                let (report, ops, comments) = analyzed(&known, |card| {
                    card.hold(5, What::Sent { message: bytes(3001), invalidate: None, solicited: true });
                    card.hold(6, What::Done { read: None });
                    card.hold(7, What::Wrote { key: 9, offset: 1 << 40, data: bytes(2048) });
                    card.hold(7, What::Asked { key: 10, offset: 77, length: 5000 });
                    card.hold(8, What::Sent { message: Vec::new(), invalidate: Some(11), solicited: false });
                    card.hold(9, What::Done { read: None });
                    card.hold(9, What::Done { read: Some(bytes(5000)) });
                    card.hold(9, What::Done { read: None });
                    card.hold(10, What::Received { message: bytes(1), invalidated: Some(12) });
                    card.hold(10, What::Wrote { key: 13, offset: 0, data: bytes(10) });
                    card.hold(11, What::Refused(2));
                });
                let [connection] = &report.connections[..] else {
                    panic!("{us}: {} connections", report.connections.len())
                };
                assert_eq!(connection.handshake, Handshake::Seen);
                let health = connection.health;
                let wrong = (health.icrc_bad, health.sequence_gaps, health.retransmissions, health.duplicates);
                assert_eq!((wrong, health.naks), ((0, 0, 0, 0), 1), "{us} {mtu}");
                assert_eq!(
                    connection.closed.map(|(by, how, _)| (by, how)),
                    Some((Some(usize::from(!we_connected)), "DREQ"))
                );
                // the client is End::A
                let (ours, theirs) = if we_connected { (End::A, End::B) } else { (End::B, End::A) };
                let expected = [
                    (ours, Verb::Send, None, None, bytes(3001)),
                    (ours, Verb::Write, Some((9, 1 << 40)), None, bytes(2048)),
                    (ours, Verb::ReadRequest, Some((10, 77)), None, Vec::new()),
                    (ours, Verb::SendInvalidate, None, Some(11), Vec::new()),
                    (theirs, Verb::ReadResponse, Some((10, 77)), None, bytes(5000)),
                    (theirs, Verb::SendInvalidate, None, Some(12), bytes(1)),
                    (ours, Verb::Write, Some((13, 0)), None, bytes(10)),
                ];
                assert_eq!(ops.0, expected, "{us} {mtu}");
                assert_eq!(comments, [format!("1: {FIRST}")]);
            }
        }
    }

    #[test]
    fn what_the_peer_did_in_our_memory_stands_before_the_reply() {
        let reply = |command: Command, id, status: u32, count: u32| {
            let mut bytes = Vec::new();
            let flags = 1;
            Header { status_or_channel_sequence: status, flags, ..Header::request(command, id) }.emit(&mut bytes);
            // the count is data_remaining of one, and count of the other
            let at = bytes.len() + if command == Command::READ { 8 } else { 4 };
            bytes.resize(bytes.len() + 17, 0);
            bytes[at..at + 4].copy_from_slice(&count.to_le_bytes());
            bytes
        };
        let known = known("192.0.2.1:40000", "192.0.2.2:445", true, 1024);
        let (_, ops, comments) = analyzed(&known, |card| {
            let memory = |key| Handle { key, offset: 4096, length: 1500 };
            card.granted(1, &[memory(21), memory(22)]);
            card.granted(2, &[memory(23)]);
            card.granted(3, &[memory(24)]);
            card.hold(1, What::Sent { message: b"asks".to_vec(), invalidate: None, solicited: false });
            for n in 0..3 {
                card.hold(2, What::Received { message: vec![n], invalidated: None });
            }
            let peek = |key: u32, length: u32| Some(vec![key as u8; length as usize]);
            card.answered(3, &reply(Command::READ, 1, 0, 2000), peek);
            card.answered(3, &reply(Command::WRITE, 2, 0, 1200), peek);
            // a failed request moved nothing that we know of, and a reply without a request is ignored
            card.answered(3, &reply(Command::READ, 3, 0xc000_0022, 100), peek);
            card.answered(3, &reply(Command::READ, 4, 0, 100), peek);
            card.answered(3, &reply(Command::READ, 1, 0, 2000), peek);
            card.answered(3, b"no SMB2", peek);
        });
        let seen: Vec<_> = ops.0.iter().map(|(by, verb, place, _, bytes)| (*by, *verb, *place, bytes.len())).collect();
        let at = |key| Some((key, 4096));
        assert_eq!(
            seen,
            [
                (End::A, Verb::Send, None, 4),
                (End::B, Verb::Write, at(21), 1500),
                (End::B, Verb::Write, at(22), 500),
                (End::B, Verb::ReadRequest, at(23), 0),
                (End::A, Verb::ReadResponse, at(23), 1200),
                (End::B, Verb::Send, None, 1),
                (End::B, Verb::Send, None, 1),
                (End::B, Verb::Send, None, 1),
            ]
        );
        assert!(ops.0[1].4.iter().all(|b| *b == 21) && ops.0[4].4.iter().all(|b| *b == 23));
        assert_eq!(comments.iter().filter(|c| c.contains("Worked out")).count(), 3);
    }
}
