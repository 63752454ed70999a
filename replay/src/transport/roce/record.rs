//! The datagrams of one of our connections, in constructed frames. Ethernet addresses and the time to live are made up;
//! so are, for received packets, the UDP checksum and the class, which a socket does not report (that of our own
//! packets of the same kind is used). All other fields from the identification on are those of the wire.

use super::CNP_DSCP;
use super::packet::{Hidden, Outside, PORT};
use crate::transport::Time;
use crate::wire::{Ip, Wire, addresses, frame_with, udp_checksum};
use rdmascope_dissector::trace::Off;
use rdmascope_dissector::wire::ib::bth::{Bth, Opcode};
use rdmascope_dissector::wire::ib::mad::QP1;
use rdmascope_dissector::wire::ip::UDP;
use std::net::{IpAddr, SocketAddr};

const DESCRIPTION: &str = "Our own RoCEv2 connections: the datagrams, in synthetic frames";

/// Writes one connection.
#[derive(Debug)]
pub(super) struct Packets {
    pub(super) wire: Wire,
    interface: u32,
    /// Ours and the peer's.
    ends: [(IpAddr, u16); 2],
    /// The type of service of our packets.
    tos: u8,
}

impl Packets {
    pub(super) fn new(wire: Wire, local: IpAddr, remote: IpAddr, tos: u8) -> Self {
        let (interface, _) = wire.open("rdmascope roce", DESCRIPTION);
        let ends = addresses(SocketAddr::new(local, PORT), SocketAddr::new(remote, PORT));
        Self { wire, interface, ends, tos }
    }

    /// A datagram that we sent.
    pub(super) fn sent(&self, now: Time, source_port: u16, tos: u8, datagram: &[u8]) {
        self.packet(now, 0, source_port, Ip { tos, ..Ip::default() }, datagram, None);
    }

    /// Records a received datagram.
    pub(super) fn received(&self, now: Time, outside: &Outside, hidden: Hidden, datagram: &[u8]) {
        let Outside { source_port, congested, header } = *outside;
        let (ip, checksum) = match header {
            Some(header) => {
                let Hidden { identification, fragmentable } = header.hidden;
                (Ip { id: identification, tos: header.tos, ttl: header.ttl, fragmentable }, Some(header.checksum))
            }
            None => {
                let tos = self.class(datagram) | if congested { 3 } else { 0 };
                let ip = Ip { id: hidden.identification, tos, fragmentable: hidden.fragmentable, ..Ip::default() };
                // its checksum is unknown: on IPv4 it is optional
                (ip, self.ends[0].0.is_ipv4().then_some(0))
            }
        };
        self.packet(now, 1, source_port, ip, datagram, checksum);
    }

    /// The class that we would give a packet of this kind.
    fn class(&self, datagram: &[u8]) -> u8 {
        match Bth::parse(datagram, &mut Off) {
            Ok((_, bth)) if bth.dest_qp == QP1 => 0,
            Ok((_, bth)) if bth.opcode == Opcode::CNP.0 => CNP_DSCP << 2,
            _ => self.tos,
        }
    }

    /// Without a checksum, one is made.
    fn packet(&self, now: Time, from: usize, source_port: u16, ip: Ip, datagram: &[u8], checksum: Option<u16>) {
        let mut udp = Vec::with_capacity(8 + datagram.len());
        udp.extend_from_slice(&source_port.to_be_bytes());
        udp.extend_from_slice(&PORT.to_be_bytes());
        udp.extend_from_slice(&((8 + datagram.len()) as u16).to_be_bytes());
        udp.extend_from_slice(&[0; 2]);
        udp.extend_from_slice(datagram);
        let sum = checksum.map_or_else(|| udp_checksum(&self.ends, from, &udp), u16::to_be_bytes);
        udp[6..8].copy_from_slice(&sum);
        let frame = frame_with(&self.ends, from, UDP, ip, &udp);
        self.wire.frame(self.interface, now, &frame, &[]);
    }
}
