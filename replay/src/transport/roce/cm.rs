//! The communication manager's messages (IBA volume 1, 12.6 and annex A11), and the handling of one connection's
//! messages (12.9): sending, retransmission, and repeated answers if one was lost.
//!
//! ```text
//! active   REQ ─▶ … ◀─ REP   RTU ─▶                  either   DREQ ─▶ … ◀─ DREP
//! passive        ◀─ REJ, ◀─ MRA: wait
//! ```

use super::packet::{MASK_24, later};
use crate::transport::Time;
use rdmascope_dissector::wire::ib::cm::{
    AlternatePath, Attribute, DisconnectHead, DisconnectReplyHead, IpCm, PrimaryPath, ReadyHead, ReceiptHead,
    RejectHead, RejectReason, ReplyHead, RequestHead, RequestIds, ServiceId, datagram, timeout_nanos,
};
use rdmascope_dissector::wire::ib::mad::{self, Mad};
use std::net::IpAddr;

/// Bytes of private data that a REQ with the addresses of annex A11 has room for.
pub const PRIVATE_DATA: usize = 56;

/// Values of one end in its REQ or REP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Local communication ID.
    pub comm_id: u32,
    /// Queue pair number, 24 bits.
    pub qp: u32,
    /// First PSN that the other end is to use.
    pub starting_psn: u32,
    /// Number of RDMA Reads that it answers at a time.
    pub responder_resources: u8,
    /// Maximum number of its outstanding RDMA Reads.
    pub initiator_depth: u8,
    /// Number of times that the other end retries after an RNR NAK; 7 for ever.
    pub rnr_retry: u8,
    /// GUID of the channel adapter.
    pub guid: u64,
}

/// Further values of a REQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// Values of the active side.
    pub offer: Offer,
    /// Address and port of the active side.
    pub source: (IpAddr, u16),
    /// Address and service port of the passive side.
    pub destination: (IpAddr, u16),
    /// Bytes of payload in a packet.
    pub path_mtu: u16,
    /// The partition.
    pub p_key: u16,
    /// Number of times that the other end is to retransmit unacknowledged packets.
    pub retry_count: u8,
    /// Timeout for an acknowledgement: 4.096 µs times 2 to this power.
    pub ack_timeout: u8,
    /// Time that the communication managers wait for each other, in the same code.
    pub cm_timeout: u8,
    /// Number of retries of the communication managers.
    pub cm_retries: u8,
    /// The consumer's.
    pub private_data: &'a [u8],
}

/// The code of a path MTU: 1 for 256 bytes to 5 for 4096.
pub(crate) const fn mtu_code(path_mtu: u16) -> u8 {
    (path_mtu.ilog2() as u8).saturating_sub(7)
}

/// A REQ.
pub(crate) fn request(request: &Request<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(mad::LEN);
    let gids = [request.source.0, request.destination.0].map(crate::wire::octets);
    RequestIds { local_comm_id: request.offer.comm_id, reserved: [0; 4] }.emit(&mut out);
    out.extend_from_slice(&ServiceId::of_tcp(request.destination.1).0.to_be_bytes());
    RequestHead {
        local_ca_guid: request.offer.guid,
        reserved: [0; 4],
        local_q_key: 0,
        local_qpn: request.offer.qp,
        responder_resources: request.offer.responder_resources,
        local_eecn: 0,
        initiator_depth: request.offer.initiator_depth,
        remote_eecn: 0,
        // reliable connection, end-to-end flow control as the other end likes
        service: request.cm_timeout << 3 | 1,
        starting_psn: request.offer.starting_psn,
        retries: request.cm_timeout << 3 | request.retry_count & 7,
        p_key: request.p_key,
        mtu: mtu_code(request.path_mtu) << 4 | request.offer.rnr_retry & 7,
        cm: request.cm_retries << 4,
        local_lid: 0xffff,
        remote_lid: 0xffff,
    }
    .emit(&mut out);
    out.extend_from_slice(&gids[0]);
    out.extend_from_slice(&gids[1]);
    PrimaryPath { flow: 0, traffic_class: 0, hop_limit: 64, level: 0, timeout: request.ack_timeout << 3 }
        .emit(&mut out);
    AlternatePath {
        local_lid: 0,
        remote_lid: 0,
        local_gid: [0; 16],
        remote_gid: [0; 16],
        flow: 0,
        traffic_class: 0,
        hop_limit: 0,
        level: 0,
        timeout: 0,
    }
    .emit(&mut out);
    let v6 = request.source.0.is_ipv6();
    IpCm { version: 0, ip: if v6 { 6 } else { 4 } << 4, source_port: request.source.1 }.emit(&mut out);
    for mut address in gids {
        if !v6 {
            address[..12].fill(0);
        }
        out.extend_from_slice(&address);
    }
    out.extend_from_slice(request.private_data);
    datagram(Attribute::CONNECT_REQUEST, request.offer.comm_id.into(), &out)
}

/// A REP to the REQ of `remote_comm_id`.
pub(crate) fn reply(offer: &Offer, remote_comm_id: u32, private_data: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(mad::LEN);
    ReplyHead {
        local_comm_id: offer.comm_id,
        remote_comm_id,
        local_q_key: 0,
        local_qpn: offer.qp,
        reserved0: [0],
        local_eecn: 0,
        reserved1: [0],
        starting_psn: offer.starting_psn,
        reserved2: [0],
        responder_resources: offer.responder_resources,
        initiator_depth: offer.initiator_depth,
        flow: 1,
        retries: offer.rnr_retry << 5,
        local_ca_guid: offer.guid,
    }
    .emit(&mut out);
    out.extend_from_slice(private_data);
    datagram(Attribute::CONNECT_REPLY, remote_comm_id.into(), &out)
}

/// An RTU.
pub(crate) fn ready(local_comm_id: u32, remote_comm_id: u32, transaction_id: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(ReadyHead::LEN);
    ReadyHead { local_comm_id, remote_comm_id }.emit(&mut out);
    datagram(Attribute::READY_TO_USE, transaction_id, &out)
}

/// An MRA of a REQ.
pub(crate) fn receipt(local_comm_id: u32, remote_comm_id: u32, service_timeout: u8, transaction_id: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(ReceiptHead::LEN);
    ReceiptHead { local_comm_id, remote_comm_id, what: 0, timeout: service_timeout << 3 }.emit(&mut out);
    datagram(Attribute::MSG_RCPT_ACK, transaction_id, &out)
}

/// A DREQ.
pub(crate) fn disconnect(local_comm_id: u32, remote_comm_id: u32, remote_qpn: u32, transaction_id: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(DisconnectHead::LEN);
    DisconnectHead { local_comm_id, remote_comm_id, remote_qpn, reserved: [0] }.emit(&mut out);
    datagram(Attribute::DISCONNECT_REQUEST, transaction_id, &out)
}

/// A DREP.
pub(crate) fn disconnect_reply(local_comm_id: u32, remote_comm_id: u32, transaction_id: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(DisconnectReplyHead::LEN);
    DisconnectReplyHead { local_comm_id, remote_comm_id }.emit(&mut out);
    datagram(Attribute::DISCONNECT_REPLY, transaction_id, &out)
}

/// A REJ of a REQ (`of_reply` false) or a REP.
pub(crate) fn reject(
    local_comm_id: u32,
    remote_comm_id: u32,
    of_reply: bool,
    reason: RejectReason,
    transaction_id: u64,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(mad::LEN);
    RejectHead { local_comm_id, remote_comm_id, what: u8::from(of_reply) << 6, length: 0, reason: reason.0 }
        .emit(&mut out);
    datagram(Attribute::CONNECT_REJECT, transaction_id, &out)
}

/// The transaction of a management datagram; 0 if it has none.
pub(crate) fn transaction(payload: &[u8]) -> u64 {
    Mad::parse(payload, &mut rdmascope_dissector::trace::Off).map_or(0, |(_, mad)| mad.transaction_id)
}

/// A message that waits for its answer, and is retransmitted until that comes.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    pub(super) mad: Vec<u8>,
    left: u8,
    every: u64,
    pub(super) deadline: Time,
}

impl Waiting {
    pub(super) fn new(now: Time, mad: Vec<u8>, timeout_code: u8, retries: u8) -> Self {
        let every = timeout_nanos(timeout_code);
        Self { mad, left: retries, every, deadline: later(now, every) }
    }

    /// An MRA: the other end has received the message, and requests more time.
    pub(super) fn extend(&mut self, now: Time, timeout_code: u8) {
        self.deadline = later(now, timeout_nanos(timeout_code).saturating_add(self.every));
    }

    /// Checks the deadline. `Some(true)` if the message is to be sent again, `Some(false)` if it was sent often enough,
    /// `None` if it is not due.
    pub(super) fn due(&mut self, now: Time) -> Option<bool> {
        if now < self.deadline {
            return None;
        }
        if self.left == 0 {
            return Some(false);
        }
        self.left -= 1;
        self.deadline = later(now, self.every);
        Some(true)
    }
}

/// A number of 24 bits that a queue pair may have: 0 and 1 are the managers'.
pub(crate) const fn queue_pair(random: u32) -> u32 {
    match random & MASK_24 {
        n @ 0..=1 => n + 0x10,
        n => n,
    }
}
