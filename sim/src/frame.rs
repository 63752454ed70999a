//! Frames on the wire, written field by field. The simulator never reads them: the meaning of a packet goes with it
//! ([`crate::packet::Body`]), so that the truth does not depend on a decoder.

use rdmascope_dissector::wire::ib::cm::{DisconnectHead, ReplyHead, RequestHead, RequestIds};
use rdmascope_dissector::wire::ib::icrc::{Cover, invariant};
use rdmascope_dissector::wire::ib::mad::Mad;
use rdmascope_dissector::wire::iwarp::mpa;

/// The end that connects.
pub const CLIENT: usize = 0;
/// The end that listens.
pub const SERVER: usize = 1;

/// Queue pairs of the two ends.
pub const QP: [u32; 2] = [0x11, 0x12];
const COMM: [u32; 2] = [0xc0_0001, 0xd0_0002];
/// The client's port of a TCP connection.
pub const PORT: u16 = 40_000;

/// A service, as a connection to it is set up.
#[derive(Clone, Debug)]
pub struct Service {
    /// Port of the server.
    pub port: u16,
    /// Private data of the request and of the reply.
    pub private: [Vec<u8>; 2],
}

/// Fields of an IP header besides addresses.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ip {
    /// Identification.
    pub id: u16,
    /// ECN field: 2 for a packet that can be marked, 3 for a marked one.
    pub ecn: u8,
}

/// An Ethernet frame from one end to the other.
pub fn ethernet(by: usize, ethertype: u16, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![2, 0, 0, 0, 0, 2 - by as u8, 2, 0, 0, 0, 0, 1 + by as u8];
    out.extend(ethertype.to_be_bytes());
    out.extend_from_slice(payload);
    out.resize(out.len().max(60), 0);
    out
}

fn checksum(parts: &[&[u8]]) -> u16 {
    let word = |w: &[u8]| u32::from(w[0]) << 8 | w.get(1).map_or(0, |b| u32::from(*b));
    let mut sum: u32 = parts.iter().flat_map(|p| p.chunks(2)).map(word).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

fn ipv4(by: usize, protocol: u8, ip: Ip, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![0x45, ip.ecn];
    out.extend((20 + payload.len() as u16).to_be_bytes());
    out.extend(ip.id.to_be_bytes());
    out.extend([0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 1 + by as u8, 10, 0, 0, 2 - by as u8]);
    let sum = checksum(&[&out]);
    out[10..12].copy_from_slice(&sum.to_be_bytes());
    out.extend_from_slice(payload);
    out
}

/// The fields of a base transport header that differ.
#[derive(Clone, Copy, Debug)]
pub struct Bth {
    /// Opcode.
    pub opcode: u8,
    /// Queue pair that it is for.
    pub qp: u32,
    /// Sequence number.
    pub psn: u32,
    /// True if an acknowledgment is requested.
    pub ack: bool,
}

/// A RoCEv2 packet.
pub fn roce(by: usize, ip: Ip, bth: Bth, extensions: &[u8], payload: &[u8]) -> Vec<u8> {
    let padding = (4 - payload.len() % 4) % 4;
    let mut udp = vec![0xc0, 1 + by as u8, 0x12, 0xb7];
    udp.extend(((8 + 12 + extensions.len() + payload.len() + padding + 4) as u16).to_be_bytes());
    udp.extend([0, 0, bth.opcode, 0x40 | (padding as u8) << 4, 0xff, 0xff]);
    udp.extend((bth.qp & 0xff_ffff).to_be_bytes());
    udp.extend((u32::from(bth.ack) << 31 | bth.psn & 0xff_ffff).to_be_bytes());
    udp.extend_from_slice(extensions);
    udp.extend_from_slice(payload);
    udp.resize(udp.len() + padding + 4, 0);
    let mut packet = ipv4(by, 17, ip, &udp);
    let end = packet.len() - 4;
    let icrc = invariant(Cover::Ipv4, &packet[..end]).expect("the headers are all there");
    packet[end..].copy_from_slice(&icrc.to_le_bytes());
    ethernet(by, 0x0800, &packet)
}

/// An RDMA extended transport header.
pub fn reth(key: u32, address: u64, length: u32) -> Vec<u8> {
    [&address.to_be_bytes()[..], &key.to_be_bytes(), &length.to_be_bytes()].concat()
}

/// An acknowledgment extended transport header.
pub fn aeth(syndrome: u8, msn: u32) -> [u8; 4] {
    let [_, a, b, c] = msn.to_be_bytes();
    [syndrome, a, b, c]
}

/// Messages of connection management.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cm {
    /// ConnectRequest.
    Request,
    /// ConnectReply.
    Reply,
    /// ReadyToUse.
    Ready,
    /// DisconnectRequest.
    Disconnect,
    /// DisconnectReply.
    Disconnected,
}

/// Bytes of a Connect Request before the private data, and of the part of that which the RDMA-CM has.
const REQUEST: usize = 140;
const IP_CM: usize = 36;

/// A message of connection management; `psn` are the first of both ends, `mtu` the code of the path MTU.
pub fn cm(by: usize, ip: Ip, what: Cm, psn: [u32; 2], mtu: u8, service: &Service) -> Vec<u8> {
    let mut body = Vec::new();
    let attribute_id = match what {
        Cm::Request => {
            RequestIds { local_comm_id: COMM[0], reserved: [0; 4] }.emit(&mut body);
            body.extend((0x0106_0000 | u64::from(service.port)).to_be_bytes());
            RequestHead {
                local_ca_guid: 1,
                reserved: [0; 4],
                local_q_key: 0,
                local_qpn: QP[0],
                responder_resources: 16,
                local_eecn: 0,
                initiator_depth: 16,
                remote_eecn: 0,
                service: 0,
                starting_psn: psn[1],
                retries: 7,
                p_key: 0xffff,
                mtu: mtu << 4,
                cm: 0xf0,
                local_lid: 0,
                remote_lid: 0,
            }
            .emit(&mut body);
            body.resize(REQUEST, 0);
            body.extend([0, 0x40, 0xc0, 0x00]);
            body.resize(REQUEST + IP_CM, 0);
            body.extend(&service.private[CLIENT]);
            0x10
        }
        Cm::Reply => {
            ReplyHead {
                local_comm_id: COMM[1],
                remote_comm_id: COMM[0],
                local_q_key: 0,
                local_qpn: QP[1],
                reserved0: [0; 1],
                local_eecn: 0,
                reserved1: [0; 1],
                starting_psn: psn[0],
                reserved2: [0; 1],
                responder_resources: 16,
                initiator_depth: 16,
                flow: 0,
                retries: 0xe0,
                local_ca_guid: 2,
            }
            .emit(&mut body);
            body.extend(&service.private[SERVER]);
            0x13
        }
        Cm::Ready | Cm::Disconnected => {
            body.extend(COMM[by].to_be_bytes());
            body.extend(COMM[1 - by].to_be_bytes());
            if what == Cm::Ready { 0x14 } else { 0x16 }
        }
        Cm::Disconnect => {
            DisconnectHead { local_comm_id: COMM[by], remote_comm_id: COMM[1 - by], remote_qpn: QP[1 - by], reserved: [0; 1] }
                .emit(&mut body);
            0x15
        }
    };
    let mut mad = Vec::new();
    let transaction_id = if matches!(what, Cm::Disconnect | Cm::Disconnected) { 2 } else { 1 };
    Mad {
        base_version: 1,
        class: 7,
        class_version: 2,
        method: 3,
        status: 0,
        class_specific: 0,
        transaction_id,
        attribute_id,
        reserved: [0; 2],
        attribute_modifier: 0,
    }
    .emit(&mut mad);
    mad.extend_from_slice(&body);
    mad.resize(256, 0);
    roce(by, ip, Bth { opcode: 0x64, qp: 1, psn: 1, ack: false }, &[0x80, 1, 0, 0, 0, 0, 0, 1], &mad)
}

/// The fields of a TCP segment.
#[derive(Clone, Debug, Default)]
pub struct Tcp {
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgment number.
    pub ack: u32,
    /// FIN 1, SYN 2, RST 4, PSH 8, ACK 16.
    pub flags: u8,
    /// As the header has it.
    pub window: u16,
    /// Options; a multiple of four bytes.
    pub options: Vec<u8>,
}

/// A TCP segment to or from a port of the server.
pub fn tcp(by: usize, port: u16, ip: Ip, head: &Tcp, payload: &[u8]) -> Vec<u8> {
    let ports = [PORT, port];
    let mut tcp = Vec::new();
    tcp.extend(ports[by].to_be_bytes());
    tcp.extend(ports[1 - by].to_be_bytes());
    tcp.extend(head.seq.to_be_bytes());
    tcp.extend(head.ack.to_be_bytes());
    tcp.extend([((20 + head.options.len()) as u8 / 4) << 4, head.flags]);
    tcp.extend(head.window.to_be_bytes());
    tcp.extend([0; 4]);
    tcp.extend_from_slice(&head.options);
    tcp.extend_from_slice(payload);
    let pseudo = [10, 0, 0, 1 + by as u8, 10, 0, 0, 2 - by as u8, 0, 6, (tcp.len() >> 8) as u8, tcp.len() as u8];
    let sum = checksum(&[&pseudo, &tcp]);
    tcp[16..18].copy_from_slice(&sum.to_be_bytes());
    ethernet(by, 0x0800, &ipv4(by, 6, ip, &tcp))
}

/// The MPA Request or Reply, revision 1.
pub fn mpa_startup(reply: bool, crc: bool, private: &[u8]) -> Vec<u8> {
    let mut out = if reply { b"MPA ID Rep Frame".to_vec() } else { b"MPA ID Req Frame".to_vec() };
    out.extend([if crc { 0x40 } else { 0 }, 1, 0, private.len() as u8]);
    out.extend_from_slice(private);
    out
}

/// An FPDU: its length, the segment, padding and CRC.
pub fn fpdu(ulpdu: &[u8], crc: bool, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend((ulpdu.len() as u16).to_be_bytes());
    out.extend_from_slice(ulpdu);
    out.resize(start + (2 + ulpdu.len()).next_multiple_of(4), 0);
    let value = if crc { mpa::crc(&out[start..]) } else { 0 };
    out.extend(value.to_le_bytes());
}

/// A DDP segment for a queue.
pub fn untagged(opcode: u8, last: bool, word: u32, queue: u32, msn: u32, offset: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![if last { 0x41 } else { 0x01 }, 0x40 | opcode];
    [word, queue, msn, offset].iter().for_each(|w| out.extend(w.to_be_bytes()));
    out.extend_from_slice(payload);
    out
}

/// A DDP segment for memory.
pub fn tagged(opcode: u8, last: bool, key: u32, offset: u64, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![if last { 0xc1 } else { 0x81 }, 0x40 | opcode];
    out.extend(key.to_be_bytes());
    out.extend(offset.to_be_bytes());
    out.extend_from_slice(payload);
    out
}

/// A priority flow control frame: `quanta` of 512 bit times for priority 3, 0 to go on.
pub fn pause(by: usize, quanta: u16) -> Vec<u8> {
    let mut out = vec![1, 0x80, 0xc2, 0, 0, 1, 2, 0, 0, 0, 0, 1 + by as u8, 0x88, 0x08, 0x01, 0x01, 0, 8];
    (0..8).for_each(|class| out.extend(if class == 3 { quanta } else { 0 }.to_be_bytes()));
    out.resize(60, 0);
    out
}
