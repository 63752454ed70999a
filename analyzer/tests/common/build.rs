//! Conversations made by our own encoders: messages of a client and a server, as frames with checksums that are right.
//!
//! Everything a [`Conversation`] sends is well-formed unless the caller makes it wrong on purpose. Packets follow each
//! other in steps of 10 microseconds, and every request packet is acknowledged.
#![allow(dead_code, unreachable_pub, missing_docs)]

use crate::common::Frame;
use rdmascope_analyzer::pipeline::FrameMeta;
use rdmascope_dissector::frame::LinkType;
use rdmascope_dissector::wire::ib::bth::{Bth, Opcode};
use rdmascope_dissector::wire::ib::cm::{
    self, Attribute, DisconnectHead, ReadyHead, RejectHead, ReplyHead, RequestHead, RequestIds, ServiceId,
};
use rdmascope_dissector::wire::ib::ext::{self, Reth, aeth_bytes, deth_bytes};
use rdmascope_dissector::wire::ib::icrc::{Cover, invariant};
use rdmascope_dissector::wire::ib::mad::{QP1, QP1_KEY};
use rdmascope_dissector::wire::ip::{TCP, UDP, checksum};
use rdmascope_dissector::wire::iwarp::ddp::{Buffer, Ddp, Untagged};
use rdmascope_dissector::wire::iwarp::mpa::{Startup, emit_fpdu};
use rdmascope_dissector::wire::iwarp::rdmap;
use rdmascope_dissector::wire::rpcrdma::{self, ReadSegment, Segment};
use rdmascope_dissector::wire::smb2::encode;
use rdmascope_dissector::wire::smb2::error::ErrorFixed;
use rdmascope_dissector::wire::smb2::header::{Command, Header, flags};
use rdmascope_dissector::wire::smb2::negotiate::{Dialect, NegotiateRequestFixed};
use rdmascope_dissector::wire::smb2::read_write::{
    ReadRequestFixed, ReadResponseFixed, WriteRequestFixed, WriteResponseFixed,
};
use rdmascope_dissector::wire::smbd::{BufferDescriptorV1, DataTransfer, NegotiateRequest, NegotiateResponse};
use rdmascope_dissector::wire::udp::ROCE_V2;

/// The end that connects.
pub const C: usize = 0;
/// The end that listens.
pub const S: usize = 1;

const STEP: i64 = 10_000;
pub const MILLISECOND: i64 = 1_000_000;
pub const SECOND: i64 = 1_000_000_000;

pub const UD_SEND: u8 = Opcode::UD_SEND_ONLY.0;
pub const WRITE_ONLY: u8 = Opcode::RC_RDMA_WRITE_ONLY.0;
pub const READ_REQUEST: u8 = Opcode::RC_RDMA_READ_REQUEST.0;
pub const ACK: u8 = Opcode::RC_ACKNOWLEDGE.0;

pub struct Conversation {
    pub frames: Vec<Frame>,
    /// Number of the connection between the two hosts, from 0: its queue pairs, communication ids and TCP port follow
    /// from that.
    pub number: u8,
    /// Number of connections beside it.
    others: u8,
    /// Bytes of the path MTU.
    pub mtu: usize,
    /// UDP source port of both ends.
    pub port: u16,
    /// True for RoCE version 1.
    pub version1: bool,
    /// Maximum segment size in the SYNs of TCP.
    pub mss: Option<u16>,
    /// Window scale in the SYN of each end.
    pub scales: [Option<u8>; 2],
    pub now: i64,
    /// PSN of the next request.
    pub psn: [u32; 2],
    message_id: u64,
    /// Sequence number of the next byte.
    pub seq: [u32; 2],
    msn: [u32; 2],
    /// True if Sends go over iWARP.
    pub iwarp: bool,
    /// True if IP says that congestion was experienced.
    pub marked: bool,
    /// True if the SYNs of TCP agree on ECN.
    pub ecn: bool,
    /// TCP port of the client.
    pub client_port: u16,
    /// Communication id of the client.
    pub comm: u32,
    /// Reads that the client answers at a time.
    pub responder_resources: u8,
    /// Credits in the reply to SMB2 NEGOTIATE.
    pub smb2_credits: u16,
    pub dialect: u16,
    /// Transforms of data that RDMA moves to which the server's NEGOTIATE reply agrees, in dialect 0x0311.
    pub transforms: &'static [u16],
    /// SecurityMode of the server.
    pub security_mode: u8,
    pub first_data: bool,
    pub crc: bool,
    /// TSval and TSecr of TCP segments.
    pub timestamps: Option<(u32, u32)>,
}

impl Default for Conversation {
    fn default() -> Self {
        Self {
            frames: Vec::new(),
            number: 0,
            others: 0,
            mtu: 1024,
            port: 0xc001,
            version1: false,
            mss: None,
            scales: [None; 2],
            now: 1_700_000_000 * SECOND,
            psn: [100, 200],
            message_id: 0,
            seq: [1000, 2000],
            msn: [1, 1],
            iwarp: false,
            marked: false,
            ecn: false,
            client_port: 40_000,
            comm: 0xc0,
            responder_resources: 16,
            smb2_credits: 64,
            dialect: 0x0311,
            transforms: &[1, 2],
            security_mode: 1,
            first_data: true,
            crc: true,
            timestamps: None,
        }
    }
}

/// The Negotiate Request of a client that is well.
pub fn request() -> NegotiateRequest {
    NegotiateRequest {
        min_version: 0x0100,
        max_version: 0x0100,
        reserved: 0,
        credits_requested: 255,
        preferred_send_size: 8136,
        max_receive_size: 8136,
        max_fragmented_size: 131_072,
    }
}

/// The Negotiate Response of a server that is well.
pub fn response() -> NegotiateResponse {
    NegotiateResponse {
        min_version: 0x0100,
        max_version: 0x0100,
        negotiated_version: 0x0100,
        reserved: 0,
        credits_requested: 255,
        credits_granted: 255,
        status: 0,
        max_read_write_size: 1 << 20,
        preferred_send_size: 8136,
        max_receive_size: 8136,
        max_fragmented_size: 131_072,
    }
}

/// A data transfer message without data.
pub fn empty(granted: u16) -> DataTransfer {
    DataTransfer {
        credits_requested: 255,
        credits_granted: granted,
        flags: 0,
        reserved: 0,
        remaining_data_length: 0,
        data_offset: 0,
        data_length: 0,
    }
}

/// The header of one that carries `length` bytes.
pub fn carrying(granted: u16, length: usize, remaining: usize) -> DataTransfer {
    DataTransfer {
        data_offset: 24,
        data_length: length as u32,
        remaining_data_length: remaining as u32,
        ..empty(granted)
    }
}

pub fn descriptor(key: u32, length: u32) -> BufferDescriptorV1 {
    BufferDescriptorV1 { offset: address(key), token: key, length }
}

/// Address of the memory of a key.
pub fn address(key: u32) -> u64 {
    0x1_0000_0000 + u64::from(key) * 0x1_0000
}

pub fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_be_bytes()).collect()
}

pub fn segment(handle: u32, length: u32) -> Segment {
    Segment { handle, length, offset: address(handle) }
}

pub fn read_segment(position: u32, handle: u32, length: u32) -> ReadSegment {
    ReadSegment { position, handle, length, offset: address(handle) }
}

/// A call of NFSv3 NULL.
pub fn null_call(xid: u32) -> Vec<u8> {
    words(&[xid, 0, 2, 100_003, 3, 0, 0, 0, 0, 0])
}

/// Its reply.
pub fn null_reply(xid: u32) -> Vec<u8> {
    words(&[xid, 1, 0, 0, 0, 0])
}

/// An RPC-over-RDMA header with its lists.
#[derive(Clone)]
pub struct Rpc<'a> {
    pub xid: u32,
    pub version: u32,
    pub credits: u32,
    pub proc: u32,
    pub reads: Vec<ReadSegment>,
    pub writes: Vec<Vec<Segment>>,
    pub reply: Option<Vec<Segment>>,
    pub payload: &'a [u8],
}

impl<'a> Rpc<'a> {
    pub fn msg(xid: u32, payload: &'a [u8]) -> Self {
        Self { xid, version: 1, credits: 32, proc: 0, reads: Vec::new(), writes: Vec::new(), reply: None, payload }
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        rpcrdma::Fixed { xid: self.xid, version: self.version, credits: self.credits, proc: self.proc }.emit(&mut out);
        if self.proc == 2 {
            out.extend(words(&[4, 1024]));
        }
        rpcrdma::emit_lists(&self.reads, &self.writes, self.reply.as_deref(), &mut out);
        out.extend_from_slice(self.payload);
        out
    }
}

impl Conversation {
    /// Another conversation between the same two hosts after this one: `make` sets its parameters and its messages.
    pub fn beside(&mut self, make: impl FnOnce(&mut Self)) {
        self.others += 1;
        let number = self.others;
        let mut other = Self { number, now: self.now + MILLISECOND, comm: 0xc0 + u32::from(number), ..Self::default() };
        make(&mut other);
        self.now = other.now;
        for mut frame in other.frames {
            frame.meta.number = self.frames.len() as u64 + 1;
            self.frames.push(frame);
        }
    }

    fn qp(&self, end: usize) -> u32 {
        [0x11, 0x12][end] + 0x10 * u32::from(self.number)
    }

    /// Communication ids of both ends.
    fn comms(&self) -> [u32; 2] {
        [self.comm, 0xd0 + u32::from(self.number)]
    }

    fn tcp_ports(&self) -> [u16; 2] {
        [self.client_port + u16::from(self.number), 5445]
    }

    // ── Frames ──────────────────────────────────────────────────────────────────────────────────────────────────────

    pub fn wait(&mut self, ns: i64) {
        self.now += ns;
    }

    pub fn frame(&mut self, bytes: Vec<u8>) {
        self.now += STEP;
        let meta = FrameMeta {
            number: self.frames.len() as u64 + 1,
            time_ns: self.now,
            link_type: LinkType::ETHERNET,
            wire_len: bytes.len() as u32,
            interface: 0,
        };
        self.frames.push(Frame { meta, bytes });
    }

    /// The last frame once more, now.
    pub fn again(&mut self) {
        let bytes = self.frames.last().expect("a frame").bytes.clone();
        self.frame(bytes);
    }

    fn ethernet(by: usize, ethertype: u16) -> Vec<u8> {
        let mut out = vec![2, 0, 0, 0, 0, 2 - by as u8, 2, 0, 0, 0, 0, 1 + by as u8];
        out.extend(ethertype.to_be_bytes());
        out
    }

    fn ipv4(&self, by: usize, protocol: u8, payload: &[u8]) -> Vec<u8> {
        let mut ip = vec![0x45, if self.marked { 3 } else { 2 }];
        ip.extend((20 + payload.len() as u16).to_be_bytes());
        ip.extend([0, 0, 0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 1 + by as u8, 10, 0, 0, 2 - by as u8]);
        let sum = checksum(&[&ip]);
        ip[10..12].copy_from_slice(&sum);
        ip.extend_from_slice(payload);
        ip
    }

    /// The global route header of RoCE version 1, and its payload.
    fn grh(by: usize, payload: &[u8]) -> Vec<u8> {
        let mut out = vec![0x60, 0, 0, 0];
        out.extend((payload.len() as u16).to_be_bytes());
        out.extend([0x1b, 64]);
        for host in [1 + by as u8, 2 - by as u8] {
            out.extend([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, host]);
        }
        out.extend_from_slice(payload);
        out
    }

    /// The bytes of one RoCE packet.
    pub fn packet(&self, by: usize, opcode: u8, dest_qp: u32, psn: u32, extensions: &[u8], payload: &[u8]) -> Vec<u8> {
        let padding = (4 - payload.len() % 4) % 4;
        let mut udp = Vec::new();
        if !self.version1 {
            udp.extend(self.port.to_be_bytes());
            udp.extend(ROCE_V2.to_be_bytes());
            udp.extend(((8 + Bth::LEN + extensions.len() + payload.len() + padding + 4) as u16).to_be_bytes());
            udp.extend([0, 0]);
        }
        let ack = if opcode < Opcode::RC_RDMA_READ_RESPONSE_FIRST.0 { 0x80 } else { 0 };
        Bth { bits: 0x40, ack, ..Bth::new(Opcode(opcode), dest_qp, psn) }.padded(payload.len()).emit(&mut udp);
        udp.extend_from_slice(extensions);
        udp.extend_from_slice(payload);
        udp.resize(udp.len() + padding, 0);
        // the ICRC counts for the length that IP says
        udp.extend([0; 4]);
        let (mut ip, cover) =
            if self.version1 { (Self::grh(by, &udp), Cover::Grh) } else { (self.ipv4(by, UDP, &udp), Cover::Ipv4) };
        let end = ip.len() - 4;
        let icrc = invariant(cover, &ip[..end]).expect("the headers are all there");
        ip[end..].copy_from_slice(&icrc.to_le_bytes());
        let mut frame = Self::ethernet(by, if self.version1 { 0x8915 } else { 0x0800 });
        frame.extend(ip);
        frame
    }

    pub fn roce(&mut self, by: usize, opcode: u8, psn: u32, extensions: &[u8], payload: &[u8]) {
        let frame = self.packet(by, opcode, self.qp(1 - by), psn, extensions, payload);
        self.frame(frame);
    }

    /// The other end acknowledges the packets of `by` up to `psn`, with a syndrome.
    pub fn acknowledge(&mut self, by: usize, psn: u32, syndrome: u8) {
        self.roce(1 - by, ACK, psn, &aeth_bytes(syndrome, 1), &[]);
    }

    /// A request of one packet, which is acknowledged.
    pub fn requested(&mut self, by: usize, opcode: Opcode, extensions: &[u8], payload: &[u8]) {
        let psn = self.psn[by];
        self.psn[by] += 1;
        self.roce(by, opcode.0, psn, extensions, payload);
        self.acknowledge(by, psn, ext::ACK);
    }

    // ── Operations ──────────────────────────────────────────────────────────────────────────────────────────────────

    pub fn send(&mut self, by: usize, message: &[u8]) {
        if self.iwarp {
            return self.iwarp_send(by, message);
        }
        let count = message.chunks(self.mtu).count().max(1);
        if count == 1 {
            return self.requested(by, Opcode::RC_SEND_ONLY, &[], message);
        }
        for (n, part) in message.chunks(self.mtu).enumerate() {
            let opcode = match n {
                0 => Opcode::RC_SEND_FIRST,
                n if n + 1 == count => Opcode::RC_SEND_LAST,
                _ => Opcode::RC_SEND_MIDDLE,
            };
            self.requested(by, opcode, &[], part);
        }
    }

    pub fn send_invalidate(&mut self, by: usize, message: &[u8], key: u32) {
        self.requested(by, Opcode::RC_SEND_ONLY_INVALIDATE, &key.to_be_bytes(), message);
    }

    pub fn reth(key: u32, address: u64, length: u32) -> Vec<u8> {
        let mut out = Vec::new();
        Reth { virtual_address: address, r_key: key, dma_length: length }.emit(&mut out);
        out
    }

    /// An RDMA Write to the beginning of the memory of a key.
    pub fn write(&mut self, by: usize, key: u32, length: u32) {
        let reth = Self::reth(key, address(key), length);
        let bytes = vec![b'w'; length as usize];
        let count = bytes.chunks(self.mtu).count();
        for (n, part) in bytes.chunks(self.mtu).enumerate() {
            let (opcode, extensions): (_, &[u8]) = match (n, count) {
                (0, 1) => (Opcode::RC_RDMA_WRITE_ONLY, &reth),
                (0, _) => (Opcode::RC_RDMA_WRITE_FIRST, &reth),
                (n, count) if n + 1 == count => (Opcode::RC_RDMA_WRITE_LAST, &[]),
                _ => (Opcode::RC_RDMA_WRITE_MIDDLE, &[]),
            };
            self.requested(by, opcode, extensions, part);
        }
    }

    /// A Read Request of no more than the MTU. Returns its PSN.
    pub fn read_request(&mut self, by: usize, key: u32, length: u32) -> u32 {
        assert!(length as usize <= self.mtu);
        let psn = self.psn[by];
        self.psn[by] += 1;
        self.roce(by, READ_REQUEST, psn, &Self::reth(key, address(key), length), &[]);
        psn
    }

    /// The Response to it.
    pub fn read_response(&mut self, by: usize, psn: u32, length: u32) {
        self.roce(
            by,
            Opcode::RC_RDMA_READ_RESPONSE_ONLY.0,
            psn,
            &aeth_bytes(ext::ACK, 1),
            &vec![b'r'; length as usize],
        );
    }

    pub fn read(&mut self, by: usize, key: u32, length: u32) {
        let psn = self.read_request(by, key, length);
        self.read_response(1 - by, psn, length);
    }

    // ── Connection management ───────────────────────────────────────────────────────────────────────────────────────

    fn mad(&mut self, by: usize, attribute: Attribute, body: &[u8]) {
        let frame = self.packet(by, UD_SEND, QP1, 1, &deth_bytes(QP1_KEY, QP1), &cm::datagram(attribute, 1, body));
        self.frame(frame);
    }

    pub fn cm_request(&mut self, port: u16) {
        let mut out = Vec::new();
        RequestIds { local_comm_id: self.comm, reserved: [0; 4] }.emit(&mut out);
        out.extend(ServiceId::of_tcp(port).0.to_be_bytes());
        RequestHead {
            local_ca_guid: 1,
            reserved: [0; 4],
            local_q_key: 0,
            local_qpn: self.qp(C),
            responder_resources: self.responder_resources,
            local_eecn: 0,
            initiator_depth: 16,
            remote_eecn: 0,
            service: 0,
            starting_psn: self.psn[S],
            retries: 7,
            p_key: 0xffff,
            mtu: if self.mtu == 4096 { 0x50 } else { 0x30 },
            cm: 0xf0,
            local_lid: 0,
            remote_lid: 0,
        }
        .emit(&mut out);
        // GIDs, both paths; then the versions and the port of the RDMA-CM
        out.resize(140, 0);
        out.extend([0, 0x40, 0xc0, 0x00]);
        self.mad(C, Attribute::CONNECT_REQUEST, &out);
    }

    pub fn cm_reply(&mut self) {
        let mut out = Vec::new();
        ReplyHead {
            local_comm_id: self.comms()[S],
            remote_comm_id: self.comm,
            local_q_key: 0,
            local_qpn: self.qp(S),
            reserved0: [0; 1],
            local_eecn: 0,
            reserved1: [0; 1],
            starting_psn: self.psn[C],
            reserved2: [0; 1],
            responder_resources: 16,
            initiator_depth: 16,
            flow: 0,
            retries: 0xe0,
            local_ca_guid: 2,
        }
        .emit(&mut out);
        self.mad(S, Attribute::CONNECT_REPLY, &out);
    }

    pub fn cm_reject(&mut self) {
        self.cm_reject_for(8);
    }

    /// A REJ with a reason.
    pub fn cm_reject_for(&mut self, reason: u16) {
        let mut out = Vec::new();
        RejectHead { local_comm_id: 0, remote_comm_id: self.comm, what: 0, length: 0, reason }.emit(&mut out);
        self.mad(S, Attribute::CONNECT_REJECT, &out);
    }

    /// The same of either end, after a REP.
    pub fn cm_reject_by(&mut self, by: usize, reason: u16) {
        let mut out = Vec::new();
        let ids = self.comms();
        RejectHead { local_comm_id: ids[by], remote_comm_id: ids[1 - by], what: 0, length: 0, reason }.emit(&mut out);
        self.mad(by, Attribute::CONNECT_REJECT, &out);
    }

    pub fn cm_ready(&mut self, by: usize) {
        let mut out = Vec::new();
        let ids = self.comms();
        ReadyHead { local_comm_id: ids[by], remote_comm_id: ids[1 - by] }.emit(&mut out);
        self.mad(by, Attribute::READY_TO_USE, &out);
    }

    pub fn cm_disconnect(&mut self, by: usize) {
        let mut out = Vec::new();
        let ids = self.comms();
        DisconnectHead {
            local_comm_id: ids[by],
            remote_comm_id: ids[1 - by],
            remote_qpn: self.qp(1 - by),
            reserved: [0; 1],
        }
        .emit(&mut out);
        self.mad(by, Attribute::DISCONNECT_REQUEST, &out);
    }

    /// REQ and REP.
    pub fn connect(&mut self, port: u16) {
        self.cm_request(port);
        self.cm_reply();
    }

    // ── SMB Direct ──────────────────────────────────────────────────────────────────────────────────────────────────

    pub fn smbd_request(&mut self, request: NegotiateRequest) {
        let mut out = Vec::new();
        request.emit(&mut out);
        self.send(C, &out);
    }

    pub fn smbd_response(&mut self, response: NegotiateResponse) {
        let mut out = Vec::new();
        response.emit(&mut out);
        self.send(S, &out);
    }

    /// A connection and its negotiation.
    pub fn negotiate(&mut self, request: NegotiateRequest, response: NegotiateResponse) {
        self.connect(445);
        self.smbd_request(request);
        self.smbd_response(response);
    }

    /// A data transfer message, its data at the offset 24 whatever the header says.
    pub fn data(&mut self, by: usize, header: DataTransfer, data: &[u8]) {
        let message = Self::framed(header, data);
        self.send(by, &message);
    }

    pub fn framed(header: DataTransfer, data: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        header.emit(&mut out);
        if !data.is_empty() {
            out.resize(24, 0);
            out.extend_from_slice(data);
        }
        out
    }

    /// The grant of a message: many with the client's first, so that the server can speak, then one for one.
    fn grant(&mut self, by: usize) -> u16 {
        if by == C && core::mem::take(&mut self.first_data) { 200 } else { 1 }
    }

    /// An SMB2 message in one piece.
    pub fn message(&mut self, by: usize, message: &[u8]) {
        let granted = self.grant(by);
        self.data(by, carrying(granted, message.len(), 0), message);
    }

    /// The same, the Send invalidating a key.
    pub fn message_invalidating(&mut self, by: usize, message: &[u8], key: u32) {
        let granted = self.grant(by);
        let message = Self::framed(carrying(granted, message.len(), 0), message);
        self.send_invalidate(by, &message, key);
    }

    /// An SMB2 message in pieces of `size` bytes.
    pub fn fragments(&mut self, by: usize, message: &[u8], size: usize) {
        let mut left = message.len();
        for part in message.chunks(size) {
            left -= part.len();
            let granted = self.grant(by);
            self.data(by, carrying(granted, part.len(), left), part);
        }
    }

    // ── SMB2 ────────────────────────────────────────────────────────────────────────────────────────────────────────

    pub fn header(&mut self, command: Command) -> Header {
        let message_id = self.message_id;
        self.message_id += 1;
        Header { credits: 16, ..Header::request(command, message_id) }
    }

    /// The bytes of a reply to the request with this header.
    pub fn reply_bytes(request: &Header, status: u32, credits: u16, body: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        Header { status_or_channel_sequence: status, flags: flags::RESPONSE, credits, ..*request }.emit(&mut out);
        out.extend_from_slice(body);
        out
    }

    pub fn reply(&mut self, request: &Header, status: u32, body: &[u8]) {
        let bytes = Self::reply_bytes(request, status, 1, body);
        self.message(S, &bytes);
    }

    pub fn error_body() -> Vec<u8> {
        let mut out = Vec::new();
        ErrorFixed { structure_size: 9, context_count: 0, reserved: 0, byte_count: 0 }.emit(&mut out);
        out.push(0);
        out
    }

    /// Body of the answer to a READ over RDMA.
    pub fn read_body(length: u32) -> Vec<u8> {
        let mut out = Vec::new();
        ReadResponseFixed {
            structure_size: 17,
            data_offset: 80,
            reserved: [0; 1],
            data_length: 0,
            data_remaining: length,
            flags: 0,
        }
        .emit(&mut out);
        out.push(0);
        out
    }

    pub fn write_body(count: u32) -> Vec<u8> {
        let mut out = Vec::new();
        WriteResponseFixed {
            structure_size: 17,
            reserved: [0; 2],
            count,
            remaining: 0,
            channel_info_offset: 0,
            channel_info_length: 0,
        }
        .emit(&mut out);
        out
    }

    /// SMB2 NEGOTIATE and its reply.
    pub fn smb2_negotiate(&mut self) {
        let header = self.header(Command::NEGOTIATE);
        let fixed = NegotiateRequestFixed {
            structure_size: 36,
            dialect_count: 0,
            security_mode: 1,
            security_mode_high: [0; 1],
            reserved: [0; 2],
            capabilities: 0,
            client_guid: [1; 16],
            contexts_or_start_time: 0,
        };
        // the client offers what it is to be given, if there is such a dialect
        let asked = Some(Dialect(self.dialect)).filter(|dialect| dialect.0 != 0x0302 && dialect.name().is_some());
        let offered: Vec<Dialect> = core::iter::once(Dialect(0x0302)).chain(asked).collect();
        let request = encode::negotiate(&header, fixed, &offered, &[]);
        self.message(C, &request);
        let contexts = self.dialect == 0x0311 && !self.transforms.is_empty();
        let mut body = vec![65, 0, self.security_mode, 0];
        body.extend(self.dialect.to_le_bytes());
        body.extend([u8::from(contexts), 0]);
        body.extend([2; 16]);
        // SMB2_GLOBAL_CAP_LARGE_MTU
        body.extend([4, 0, 0, 0]);
        (0..3).for_each(|_| body.extend((1_u32 << 20).to_le_bytes()));
        body.extend([0; 16]);
        // no token
        body.extend([128, 0, 0, 0, if contexts { 128 } else { 0 }, 0, 0, 0]);
        if contexts {
            let count = self.transforms.len() as u8;
            body.extend([7, 0, 8 + 2 * count, 0, 0, 0, 0, 0, count, 0, 0, 0, 0, 0, 0, 0]);
            self.transforms.iter().for_each(|id| body.extend(id.to_le_bytes()));
        }
        let reply = Self::reply_bytes(&header, 0, self.smb2_credits, &body);
        self.message(S, &reply);
    }

    /// Everything up to the first request.
    pub fn smb(&mut self) {
        self.negotiate(request(), response());
        self.smb2_negotiate();
    }

    pub fn echo_request(&mut self) -> Header {
        let header = self.header(Command::ECHO);
        self.message(C, &encode::empty(&header));
        header
    }

    pub fn echo(&mut self) {
        let header = self.echo_request();
        self.reply(&header, 0, &[4, 0, 0, 0]);
    }

    /// A READ over RDMA of `length` bytes; `channel` 1, or 2 to have the first key invalidated.
    pub fn smb2_read(&mut self, channel: u32, length: u32, descriptors: &[BufferDescriptorV1]) -> Header {
        let header = Header { credit_charge: length.div_ceil(65_536).max(1) as u16, ..self.header(Command::READ) };
        let fixed = ReadRequestFixed {
            structure_size: 49,
            padding: 80,
            flags: 0,
            length,
            offset: 0,
            file_id: [7; 16],
            minimum_count: 0,
            channel,
            remaining_bytes: 0,
            channel_info_offset: 0,
            channel_info_length: 0,
        };
        self.message(C, &encode::read(&header, fixed, descriptors));
        header
    }

    fn write_fixed(channel: u32, remaining_bytes: u32) -> WriteRequestFixed {
        WriteRequestFixed {
            structure_size: 49,
            data_offset: 0,
            length: 0,
            offset: 0,
            file_id: [7; 16],
            channel,
            remaining_bytes,
            channel_info_offset: 0,
            channel_info_length: 0,
            flags: 0,
        }
    }

    /// A WRITE over RDMA.
    pub fn smb2_write(&mut self, length: u32, descriptors: &[BufferDescriptorV1]) -> Header {
        let header = self.header(Command::WRITE);
        self.message(C, &encode::write(&header, Self::write_fixed(1, length), descriptors, &[]));
        header
    }

    /// A WRITE with its data inline, in pieces of `size` bytes, and its reply.
    pub fn smb2_write_inline(&mut self, length: usize, size: usize) {
        let header = self.header(Command::WRITE);
        let message = encode::write(&header, Self::write_fixed(0, 0), &[], &vec![b'd'; length]);
        self.fragments(C, &message, size);
        self.reply(&header, 0, &Self::write_body(length as u32));
    }

    /// A WRITE whose channel information is an RDMA transform.
    pub fn smb2_write_transform(&mut self, transform: &[u8]) -> Header {
        let header = self.header(Command::WRITE);
        let mut out = Vec::new();
        header.emit(&mut out);
        WriteRequestFixed {
            channel_info_offset: 112,
            channel_info_length: transform.len() as u16,
            ..Self::write_fixed(3, 1024)
        }
        .emit(&mut out);
        out.extend_from_slice(transform);
        self.message(C, &out);
        header
    }

    /// A READ over RDMA with all that belongs to it.
    pub fn rdma_read(&mut self, key: u32) {
        let header = self.smb2_read(1, 1024, &[descriptor(key, 1024)]);
        self.write(S, key, 1024);
        self.reply(&header, 0, &Self::read_body(1024));
    }

    // ── RPC-over-RDMA ───────────────────────────────────────────────────────────────────────────────────────────────

    /// A connection of NFS with one call and its reply, which grants 32 credits.
    pub fn nfs(&mut self) {
        self.connect(20049);
        self.null(1);
    }

    pub fn null(&mut self, xid: u32) {
        self.send(C, &Rpc::msg(xid, &null_call(xid)).bytes());
        self.send(S, &Rpc::msg(xid, &null_reply(xid)).bytes());
    }

    // ── iWARP ───────────────────────────────────────────────────────────────────────────────────────────────────────

    pub fn segment(&mut self, by: usize, seq: u32, flags: u8, window: u16, payload: &[u8]) {
        let ports = self.tcp_ports();
        let mut options = Vec::new();
        if flags & 2 != 0 {
            if let Some(mss) = self.mss {
                options.extend([2, 4]);
                options.extend(mss.to_be_bytes());
            }
            options.extend(self.scales[by].into_iter().flat_map(|shift| [1, 3, 3, shift]));
        }
        if let Some((value, echo)) = self.timestamps {
            options.extend([1, 1, 8, 10]);
            options.extend(value.to_be_bytes());
            options.extend(echo.to_be_bytes());
        }
        let mut tcp = Vec::new();
        tcp.extend(ports[by].to_be_bytes());
        tcp.extend(ports[1 - by].to_be_bytes());
        tcp.extend(seq.to_be_bytes());
        tcp.extend(self.seq[1 - by].to_be_bytes());
        tcp.extend([0x50 + 4 * options.len() as u8, flags]);
        tcp.extend(window.to_be_bytes());
        tcp.extend([0; 4]);
        tcp.extend(options);
        tcp.extend_from_slice(payload);
        self.tcp_frame(by, tcp);
    }

    /// A segment with its checksum, to which `seq` and the like were written already.
    pub fn tcp_frame(&mut self, by: usize, mut tcp: Vec<u8>) {
        let pseudo = [10, 0, 0, 1 + by as u8, 10, 0, 0, 2 - by as u8, 0, TCP, (tcp.len() >> 8) as u8, tcp.len() as u8];
        tcp[16..18].copy_from_slice(&[0, 0]);
        let sum = checksum(&[&pseudo, &tcp]);
        tcp[16..18].copy_from_slice(&sum);
        let mut frame = Self::ethernet(by, 0x0800);
        frame.extend(self.ipv4(by, TCP, &tcp));
        self.frame(frame);
    }

    /// An acknowledgment with SACK blocks.
    pub fn tcp_sack(&mut self, by: usize, ack: u32, blocks: &[(u32, u32)]) {
        let ports = self.tcp_ports();
        let mut tcp = Vec::new();
        tcp.extend(ports[by].to_be_bytes());
        tcp.extend(ports[1 - by].to_be_bytes());
        tcp.extend(self.seq[by].to_be_bytes());
        tcp.extend(ack.to_be_bytes());
        tcp.extend([0x50 + 0x10 + 0x20 * blocks.len() as u8, 0x10, 0xff, 0xff, 0, 0, 0, 0]);
        tcp.extend([1, 1, 5, 2 + 8 * blocks.len() as u8]);
        blocks.iter().for_each(|(l, r)| tcp.extend([l.to_be_bytes(), r.to_be_bytes()].concat()));
        self.tcp_frame(by, tcp);
    }

    /// The sequence number of the next byte of an end.
    pub fn next_seq(&self, by: usize) -> u32 {
        self.seq[by]
    }

    /// Bytes of the stream, in one segment, which is acknowledged.
    pub fn bytes(&mut self, by: usize, bytes: &[u8]) {
        let seq = self.seq[by];
        self.seq[by] += bytes.len() as u32;
        self.segment(by, seq, 0x18, 0xffff, bytes);
        self.tcp_ack(1 - by, 0xffff);
    }

    pub fn tcp_ack(&mut self, by: usize, window: u16) {
        let seq = self.seq[by];
        self.segment(by, seq, 0x10, window, &[]);
    }

    pub fn tcp_reset(&mut self, by: usize) {
        let seq = self.seq[by];
        self.segment(by, seq, 0x14, 0, &[]);
    }

    pub fn tcp_open(&mut self) {
        self.iwarp = true;
        let [c, s] = self.seq;
        let [asked, agreed] = if self.ecn { [0xc0, 0x40] } else { [0; 2] };
        self.segment(C, c, 0x02 | asked, 0xffff, &[]);
        self.seq[C] += 1;
        self.segment(S, s, 0x12 | agreed, 0xffff, &[]);
        self.seq[S] += 1;
        self.tcp_ack(C, 0xffff);
    }

    pub fn startup(reply: bool) -> Startup<'static> {
        Startup { reply, crc: true, revision: 1, ..Startup::default() }
    }

    pub fn mpa(&mut self, startup: Startup<'_>) {
        let mut out = Vec::new();
        Startup { private_data_length: startup.private_data.len() as u16, ..startup }.emit(&mut out);
        self.bytes(usize::from(startup.reply), &out);
    }

    /// TCP and MPA, with CRCs.
    pub fn iwarp(&mut self) {
        self.tcp_open();
        self.mpa(Self::startup(false));
        self.mpa(Self::startup(true));
    }

    pub fn fpdu(&mut self, by: usize, ulpdu: &[u8]) {
        let mut out = Vec::new();
        emit_fpdu(ulpdu, self.crc, &mut out);
        self.bytes(by, &out);
    }

    /// A segment of a queue.
    pub fn untagged(opcode: rdmap::Opcode, last: bool, queue: u32, msn: u32, offset: u32, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let segment = rdmap::untagged(opcode, last, msn, offset, 0, payload);
        // which may be the wrong queue
        Ddp { buffer: Buffer::Untagged(Untagged { queue, msn, offset }), ..segment }.emit(&mut out);
        out
    }

    /// A segment for memory.
    pub fn tagged(opcode: rdmap::Opcode, stag: u32, offset: u64, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        rdmap::tagged(opcode, true, stag, offset, payload).emit(&mut out);
        out
    }

    fn iwarp_send(&mut self, by: usize, message: &[u8]) {
        let msn = self.msn[by];
        self.msn[by] += 1;
        self.fpdu(by, &Self::untagged(rdmap::Opcode::SEND, true, 0, msn, 0, message));
    }

    /// The same on a new connection, whose messages are numbered anew.
    pub fn again_iwarp(&mut self) {
        (self.msn, self.first_data, self.message_id) = ([1, 1], true, 0);
        self.smb_iwarp();
    }

    /// SMB Direct's negotiation, over iWARP.
    pub fn smb_iwarp(&mut self) {
        self.iwarp();
        self.smbd_request(request());
        self.smbd_response(response());
    }
}
