//! Frames on the wire, encoded with the dissector's layouts. The simulator never parses them: the meaning of a packet
//! goes with it ([`crate::packet::Body`]), so that the truth does not depend on a decoder.

use rdmascope_dissector::wire::ib::bth::{Bth, Opcode};
use rdmascope_dissector::wire::ib::cm::{
    self, AlternatePath, Attribute, DisconnectHead, DisconnectReplyHead, IpCm, PrimaryPath, ReadyHead, ReplyHead,
    RequestHead, RequestIds, ServiceId,
};
use rdmascope_dissector::wire::ib::ext::{Reth, deth_bytes};
use rdmascope_dissector::wire::ib::icrc::{self, Cover, invariant};
use rdmascope_dissector::wire::ib::mad::{QP1, QP1_KEY};
use rdmascope_dissector::wire::ip::{TCP, UDP, checksum};
use rdmascope_dissector::wire::iwarp::mpa;
use rdmascope_dissector::wire::link::pause::Cbfc;
use rdmascope_dissector::wire::udp::ROCE_V2;

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
    /// Type of service. Its low bits are the ECN field: 2 for a packet that can be marked, 3 for a marked one.
    pub tos: u8,
}

/// An Ethernet frame from one end to the other.
pub fn ethernet(by: usize, ethertype: u16, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![2, 0, 0, 0, 0, 2 - by as u8, 2, 0, 0, 0, 0, 1 + by as u8];
    out.extend(ethertype.to_be_bytes());
    out.extend_from_slice(payload);
    out.resize(out.len().max(60), 0);
    out
}

/// Renews the checksum of the IPv4 header at the beginning of `ip`.
pub fn renew_checksum(ip: &mut [u8]) {
    ip[10..12].fill(0);
    let sum = checksum(&[&ip[..20]]);
    ip[10..12].copy_from_slice(&sum);
}

fn ipv4(by: usize, protocol: u8, ip: Ip, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![0x45, ip.tos];
    out.extend((20 + payload.len() as u16).to_be_bytes());
    out.extend(ip.id.to_be_bytes());
    out.extend([0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 1 + by as u8, 10, 0, 0, 2 - by as u8]);
    renew_checksum(&mut out);
    out.extend_from_slice(payload);
    out
}

/// Bytes of the Ethernet header.
const ETHERNET: usize = 14;
/// Bytes before a datagram of RoCEv2: Ethernet, IPv4, UDP.
pub const HEADERS: usize = ETHERNET + 20 + 8;
/// UDP source port of the client; that of the server is the next one.
const SOURCE_PORTS: u16 = 0xc001;
/// The flag of a packet on the primary path (MigReq).
const MIGRATED: u8 = 0x40;

/// A RoCEv2 packet.
pub fn roce(by: usize, ip: Ip, head: Bth, extensions: &[u8], payload: &[u8]) -> Vec<u8> {
    let padded = payload.len().next_multiple_of(4);
    let mut datagram = Vec::with_capacity(Bth::LEN + extensions.len() + padded + icrc::LEN);
    Bth { bits: MIGRATED, ..head }.padded(payload.len()).emit(&mut datagram);
    datagram.extend_from_slice(extensions);
    datagram.extend_from_slice(payload);
    datagram.resize(datagram.len() + padded - payload.len() + icrc::LEN, 0);
    let mut frame = udp(by, ip, SOURCE_PORTS + by as u16, &datagram);
    let end = HEADERS + datagram.len() - icrc::LEN;
    let icrc = invariant(Cover::Ipv4, &frame[ETHERNET..end]).expect("the headers are all there");
    frame[end..end + icrc::LEN].copy_from_slice(&icrc.to_le_bytes());
    frame
}

/// A RoCEv2 packet that is complete but for the headers around it.
pub fn udp(by: usize, ip: Ip, source_port: u16, datagram: &[u8]) -> Vec<u8> {
    let mut udp = Vec::with_capacity(8 + datagram.len());
    udp.extend(source_port.to_be_bytes());
    udp.extend(ROCE_V2.to_be_bytes());
    udp.extend((8 + datagram.len() as u16).to_be_bytes());
    udp.extend([0, 0]);
    udp.extend_from_slice(datagram);
    ethernet(by, 0x0800, &ipv4(by, UDP, ip, &udp))
}

/// An RDMA extended transport header.
pub fn reth(key: u32, address: u64, length: u32) -> Vec<u8> {
    let mut out = Vec::with_capacity(Reth::LEN);
    Reth { virtual_address: address, r_key: key, dma_length: length }.emit(&mut out);
    out
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

/// Bytes of a Connect Request before the private data: identifiers, service, head, two GIDs, both paths.
const REQUEST: usize = RequestIds::LEN + 8 + RequestHead::LEN + 2 * 16 + PrimaryPath::LEN + AlternatePath::LEN;
/// Bytes of the RDMA-CM's part of the private data: versions and port, two addresses.
const IP_CM: usize = IpCm::LEN + 2 * 16;

/// A message of connection management; `psn` are the first of both ends, `mtu` the code of the path MTU.
pub fn cm(by: usize, ip: Ip, what: Cm, psn: [u32; 2], mtu: u8, service: &Service) -> Vec<u8> {
    let mut body = Vec::new();
    let attribute = match what {
        Cm::Request => {
            RequestIds { local_comm_id: COMM[0], reserved: [0; 4] }.emit(&mut body);
            body.extend(ServiceId::of_tcp(service.port).0.to_be_bytes());
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
            IpCm { version: 0, ip: 0x40, source_port: 0xc000 }.emit(&mut body);
            body.resize(REQUEST + IP_CM, 0);
            body.extend(&service.private[CLIENT]);
            Attribute::CONNECT_REQUEST
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
            Attribute::CONNECT_REPLY
        }
        Cm::Ready => {
            ReadyHead { local_comm_id: COMM[by], remote_comm_id: COMM[1 - by] }.emit(&mut body);
            Attribute::READY_TO_USE
        }
        Cm::Disconnect => {
            DisconnectHead {
                local_comm_id: COMM[by],
                remote_comm_id: COMM[1 - by],
                remote_qpn: QP[1 - by],
                reserved: [0; 1],
            }
            .emit(&mut body);
            Attribute::DISCONNECT_REQUEST
        }
        Cm::Disconnected => {
            DisconnectReplyHead { local_comm_id: COMM[by], remote_comm_id: COMM[1 - by] }.emit(&mut body);
            Attribute::DISCONNECT_REPLY
        }
    };
    let transaction_id = if matches!(what, Cm::Disconnect | Cm::Disconnected) { 2 } else { 1 };
    let datagram = cm::datagram(attribute, transaction_id, &body);
    roce(by, ip, Bth::new(Opcode::UD_SEND_ONLY, QP1, 1), &deth_bytes(QP1_KEY, QP1), &datagram)
}

/// The fields of a TCP segment.
#[derive(Clone, Debug, Default)]
pub struct Tcp {
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgment number.
    pub ack: u32,
    /// Of [`rdmascope_dissector::wire::tcp::flags`].
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
    let pseudo = [10, 0, 0, 1 + by as u8, 10, 0, 0, 2 - by as u8, 0, TCP, (tcp.len() >> 8) as u8, tcp.len() as u8];
    let sum = checksum(&[&pseudo, &tcp]);
    tcp[16..18].copy_from_slice(&sum);
    ethernet(by, 0x0800, &ipv4(by, TCP, ip, &tcp))
}

/// The MPA Request or Reply, revision 1.
pub fn mpa_startup(reply: bool, crc: bool, private: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let private_data_length = private.len() as u16;
    mpa::Startup { reply, crc, revision: 1, private_data_length, private_data: private, ..mpa::Startup::default() }
        .emit(&mut out);
    out
}

/// A priority flow control frame: `quanta` of 512 bit times for priority 0, that of packets without a mark; 0 to go on.
pub fn pause(by: usize, quanta: u16) -> Vec<u8> {
    let mut out = vec![1, 0x80, 0xc2, 0, 0, 1, 2, 0, 0, 0, 0, 1 + by as u8, 0x88, 0x08, 0x01, 0x01];
    Cbfc { enable: 1, t0: quanta, t1: 0, t2: 0, t3: 0, t4: 0, t5: 0, t6: 0, t7: 0 }.emit(&mut out);
    out.resize(60, 0);
    out
}
