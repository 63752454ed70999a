//! Mirrored frames out of the tunnels that mirrors put them into: ERSPAN types I to III (draft-foschiano-erspan) and
//! Ethernet or IP in GRE (RFC 2784, 2890), VXLAN (RFC 7348), GENEVE (RFC 8926), in IPv4 or IPv6.
//!
//! ```text
//! Ethernet · VLAN · IP · GRE · ERSPAN │ Ethernet · IP · UDP 4791 · BTH …       what is right of the line is kept
//!                                     │ the mirror's session: an interface of its own in the capture, eth0/erspan2:7@192.0.2.1
//! ```
//!
//! Only the outermost tunnel is removed: a tunnel inside of it was on the mirrored wire. A mirror that cuts frames does
//! not report their length: the length on the wire is then that of the IP datagram inside. Fragments of a tunnel are
//! left unchanged.

use std::collections::HashMap;
use std::net::IpAddr;

use rdmascope_dissector::frame::{self, Addr, Inside, TunnelKind};

use crate::LinkType;
use crate::metadata::Interface;
use crate::record::Record;

/// Maximum number of sessions with an interface of their own; further ones share one for each link type.
const SESSIONS_MAX: usize = 256;

/// Source of a mirrored frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mirror {
    /// The tunnel.
    pub kind: TunnelKind,
    /// ERSPAN session (0 for type I, which has none), GRE key, VXLAN or GENEVE network identifier.
    pub id: u32,
    /// The tunnel's sender: the switch or host that mirrors.
    pub from: IpAddr,
}

/// The frame inside of a tunnel, with its length on the wire, and the source of the mirror. `None` if there is no
/// tunnel, if its payload is neither Ethernet nor IP, or if not even its header was captured.
pub fn decapsulate<'a>(record: &Record<'a>) -> Option<(Record<'a>, Mirror)> {
    let Inside { tunnel, from, link_type, bytes, wire_len } =
        frame::inside(record.link_type, record.bytes, record.wire_len)?;
    let least = if link_type == LinkType::ETHERNET { 14 } else { 20 };
    if bytes.len() < least {
        return None;
    }
    let from = match from {
        Addr::V4(address) => IpAddr::from(address),
        Addr::V6(address) => IpAddr::from(address),
        _ => return None,
    };
    let record = Record { wire_len, link_type, bytes, options: &[], ..*record };
    Some((record, Mirror { kind: tunnel.kind, id: tunnel.id, from }))
}

/// Takes frames out of their tunnels, and gives every session an interface of its own, whose name and description
/// identify the mirror.
#[derive(Debug, Default)]
pub struct Decapsulator {
    interfaces: Vec<Interface>,
    /// Numbers of the source's interfaces.
    plain: Vec<u32>,
    sessions: HashMap<(u32, LinkType, Option<Mirror>), u32>,
}

impl Decapsulator {
    /// Begins with the interfaces that the source has, under their numbers.
    pub fn new(interfaces: &[Interface]) -> Decapsulator {
        let mut decapsulator = Decapsulator::default();
        decapsulator.describe(interfaces);
        decapsulator
    }

    /// Returns the frame inside, on its session's interface; a frame without a tunnel is unchanged. `interfaces` are
    /// those of the source. This may add to [`Decapsulator::interfaces`], into which the frame's `interface` is an
    /// index.
    pub fn frame<'a>(&mut self, record: Record<'a>, interfaces: &[Interface]) -> Record<'a> {
        self.describe(interfaces);
        let Some((inner, mirror)) = decapsulate(&record) else {
            let interface = self.plain.get(record.interface as usize).copied().unwrap_or(record.interface);
            return Record { interface, ..record };
        };
        let own = (record.interface, inner.link_type, Some(mirror));
        let interface = match self.sessions.get(&own) {
            Some(number) => *number,
            None if self.sessions.len() < SESSIONS_MAX => self.begin(own, interfaces),
            None => {
                let shared = (record.interface, inner.link_type, None);
                self.sessions.get(&shared).copied().unwrap_or_else(|| self.begin(shared, interfaces))
            }
        };
        Record { interface, ..inner }
    }

    /// The interfaces of the source and those of sessions, in the order in which they appeared.
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    fn describe(&mut self, interfaces: &[Interface]) {
        for interface in interfaces.get(self.plain.len()..).unwrap_or(&[]) {
            self.plain.push(self.interfaces.len() as u32);
            self.interfaces.push(interface.clone());
        }
    }

    fn begin(&mut self, session: (u32, LinkType, Option<Mirror>), interfaces: &[Interface]) -> u32 {
        let (number, link_type, mirror) = session;
        let of = interfaces.get(number as usize).cloned().unwrap_or_else(|| Interface::new(link_type));
        let base = of.name.as_deref().unwrap_or("mirror");
        let (name, description) = match mirror {
            Some(Mirror { kind, id, from }) => {
                let (key, name, what) = (kind.key(), kind.name(), kind.id_name());
                let session = if what.is_empty() { String::new() } else { format!(" {what} {id}") };
                (
                    format!("{base}/{key}:{id}@{from}"),
                    format!("Mirrored by {from}, {name}{session}, received on {base}"),
                )
            }
            None => (format!("{base}/others"), format!("Mirrored by further sessions, received on {base}")),
        };
        let interface =
            Interface { link_type, name: Some(name), description: Some(description), statistics: None, ..of };
        let made = self.interfaces.len() as u32;
        self.interfaces.push(interface);
        self.sessions.insert(session, made);
        made
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Ethernet, IPv4, UDP 4791, ten bytes.
    fn inner() -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
        frame.extend(ipv4(17, &[0xc0, 0, 0x12, 0xb7, 0, 18, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10], [10, 0, 0, 1]));
        frame
    }

    fn ipv4(protocol: u8, payload: &[u8], from: [u8; 4]) -> Vec<u8> {
        let mut out = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, protocol, 0, 0];
        out[2..4].copy_from_slice(&(20 + payload.len() as u16).to_be_bytes());
        out.extend(from);
        out.extend([192, 0, 2, 99]);
        out.extend(payload);
        out
    }

    fn ethernet(kind: u16, payload: &[u8]) -> Vec<u8> {
        [&[6; 12][..], &kind.to_be_bytes(), payload].concat()
    }

    fn udp(port: u16, payload: &[u8]) -> Vec<u8> {
        [&[0x11, 0x11][..], &port.to_be_bytes(), &(8 + payload.len() as u16).to_be_bytes(), &[0, 0], payload].concat()
    }

    const SWITCH: [u8; 4] = [192, 0, 2, 1];

    /// Kind, session, link type of the payload, frame, payload.
    type Case = (TunnelKind, u32, LinkType, Vec<u8>, Vec<u8>);

    fn tunnels() -> Vec<Case> {
        let inner = inner();
        let outer = |protocol, payload: &[u8]| ethernet(0x0800, &ipv4(protocol, payload, SWITCH));
        let gre = |head: &[u8], rest: &[u8]| outer(47, &[head, rest].concat());
        let ip = inner[14..].to_vec();
        vec![
            (TunnelKind::Erspan1, 0, LinkType::ETHERNET, gre(&[0, 0, 0x88, 0xbe], &inner), inner.clone()),
            (
                TunnelKind::Erspan2,
                7,
                LinkType::ETHERNET,
                gre(&[0x10, 0, 0x88, 0xbe, 0, 0, 0, 9, 0x10, 0, 0, 7, 0, 0, 0, 0], &inner),
                inner.clone(),
            ),
            (
                TunnelKind::Erspan3,
                0x3ff,
                LinkType::ETHERNET,
                gre(
                    &[
                        0x10, 0, 0x22, 0xeb, 0, 0, 0, 9, 0x20, 0, 3, 0xff, 0, 0, 0, 1, 0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7,
                        8,
                    ],
                    &inner,
                ),
                inner.clone(),
            ),
            (
                TunnelKind::Erspan3,
                2,
                LinkType::RAW,
                gre(&[0x10, 0, 0x22, 0xeb, 0, 0, 0, 9, 0x20, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0x08, 0], &ip),
                ip.clone(),
            ),
            (TunnelKind::Gre, 5, LinkType::ETHERNET, gre(&[0x20, 0, 0x65, 0x58, 0, 0, 0, 5], &inner), inner.clone()),
            (TunnelKind::Gre, 0, LinkType::RAW, gre(&[0, 0, 0x08, 0], &ip), ip.clone()),
            (
                TunnelKind::Vxlan,
                0x1234,
                LinkType::ETHERNET,
                outer(17, &udp(4789, &[&[8, 0, 0, 0, 0, 0x12, 0x34, 0][..], &inner].concat())),
                inner.clone(),
            ),
            (
                TunnelKind::Geneve,
                0x77,
                LinkType::ETHERNET,
                outer(17, &udp(6081, &[&[1, 0, 0x65, 0x58, 0, 0, 0x77, 0, 1, 2, 3, 4][..], &inner].concat())),
                inner.clone(),
            ),
        ]
    }

    fn ethernet_record(bytes: &[u8]) -> Record<'_> {
        Record::new(1, 0, LinkType::ETHERNET, bytes.len() as u32, bytes)
    }

    #[test]
    fn every_tunnel_is_taken_off() {
        for (kind, id, link_type, outer, inner) in tunnels() {
            let (record, mirror) = decapsulate(&ethernet_record(&outer)).unwrap_or_else(|| panic!("{kind:?} {id}"));
            assert_eq!(mirror, Mirror { kind, id, from: IpAddr::from(SWITCH) });
            assert_eq!(
                (record.link_type, record.bytes, record.wire_len, record.time_ns),
                (link_type, &inner[..], inner.len() as u32, 1)
            );
        }
    }

    #[test]
    fn a_tag_padding_and_ipv6_do_not_matter() {
        let (.., outer, inner) = tunnels().swap_remove(1);
        let mut tagged = [&outer[..12], &[0x81, 0, 0, 100], &outer[12..]].concat();
        tagged.extend([0; 30]);
        assert_eq!(decapsulate(&ethernet_record(&tagged)).unwrap().0.bytes, inner);
        // as Linux sends it: destination options before GRE
        let mut six = vec![0x60, 0, 0, 0, 0, 0, 60, 64];
        six.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        six.extend([0; 16]);
        six.extend([47, 0, 4, 1, 4, 1, 0, 0]);
        six.extend(&outer[34..]);
        let length = six.len() as u16 - 40;
        six[4..6].copy_from_slice(&length.to_be_bytes());
        let outer = ethernet(0x86dd, &six);
        let (record, mirror) = decapsulate(&ethernet_record(&outer)).unwrap();
        assert_eq!((record.bytes, mirror.from.to_string().as_str(), mirror.id), (&inner[..], "2001:db8::1", 7));
    }

    #[test]
    fn a_frame_that_was_cut_keeps_its_length() {
        for (kind, _, _, outer, inner) in tunnels() {
            // by the capture
            let record = Record { bytes: &outer[..outer.len() - 5], ..ethernet_record(&outer) };
            let (cut, _) = decapsulate(&record).unwrap();
            assert_eq!((cut.bytes, cut.wire_len), (&inner[..inner.len() - 5], inner.len() as u32), "{kind:?}");
            // by the mirror, whose datagram then is shorter
            let mut short = outer[..outer.len() - 5].to_vec();
            let length = (short.len() - 14) as u16;
            short[16..18].copy_from_slice(&length.to_be_bytes());
            let (cut, _) = decapsulate(&ethernet_record(&short)).unwrap();
            assert_eq!((cut.bytes, cut.wire_len), (&inner[..inner.len() - 5], inner.len() as u32), "{kind:?}");
        }
    }

    #[test]
    fn what_is_in_no_tunnel_stays() {
        let plain = inner();
        assert_eq!(decapsulate(&ethernet_record(&plain)), None);
        let source = [Interface::new(LinkType::ETHERNET)];
        let mut decapsulator = Decapsulator::new(&source);
        assert_eq!(decapsulator.frame(ethernet_record(&plain), &source), ethernet_record(&plain));
        assert_eq!(decapsulator.interfaces().len(), 1);
        // a fragment of a tunnel
        let (.., mut outer, _) = tunnels().swap_remove(1);
        outer[20] = 0x20;
        assert_eq!(decapsulate(&ethernet_record(&outer)), None);
        // PPTP's GRE, MPLS in GRE
        for head in [[0x30, 1, 0x88, 0x0b], [0, 0, 0x88, 0x47]] {
            assert_eq!(
                decapsulate(&ethernet_record(&ethernet(0x0800, &ipv4(47, &[&head[..], &plain].concat(), SWITCH)))),
                None
            );
        }
    }

    #[test]
    fn a_tunnel_in_a_tunnel_was_on_the_wire() {
        let (.., vxlan, _) = tunnels().swap_remove(6);
        let mirrored = ethernet(0x0800, &ipv4(47, &[&[0, 0, 0x88, 0xbe][..], &vxlan].concat(), SWITCH));
        let (record, mirror) = decapsulate(&ethernet_record(&mirrored)).unwrap();
        assert_eq!((record.bytes, mirror.kind), (&vxlan[..], TunnelKind::Erspan1));
    }

    #[test]
    fn sessions_have_interfaces() {
        let eth0 = Interface { name: Some("eth0".to_owned()), snap_len: 100, ..Interface::new(LinkType::ETHERNET) };
        let mut source = vec![eth0.clone()];
        let mut decapsulator = Decapsulator::new(&source);
        let all = tunnels();
        let numbers: Vec<u32> = all
            .iter()
            .chain(&all)
            .map(|(.., outer, _)| decapsulator.frame(ethernet_record(outer), &source).interface)
            .collect();
        assert_eq!(numbers, (1..=8).chain(1..=8).collect::<Vec<_>>());
        let second = &decapsulator.interfaces()[2];
        assert_eq!(second.name.as_deref(), Some("eth0/erspan2:7@192.0.2.1"));
        assert_eq!(second.description.as_deref(), Some("Mirrored by 192.0.2.1, ERSPAN II session 7, received on eth0"));
        assert_eq!((decapsulator.interfaces()[4].link_type, second.snap_len), (LinkType::RAW, 100));
        // an interface that the source described later
        source.push(Interface { name: Some("eth1".to_owned()), ..eth0 });
        let plain = inner();
        let record = Record { interface: 1, ..ethernet_record(&plain) };
        assert_eq!(decapsulator.frame(record, &source).interface, 9);
        assert_eq!(decapsulator.interfaces()[9].name.as_deref(), Some("eth1"));
    }

    #[test]
    fn sessions_do_not_grow_without_end() {
        let source = [Interface::new(LinkType::ETHERNET)];
        let mut decapsulator = Decapsulator::new(&source);
        let (.., mut outer, _) = tunnels().swap_remove(6);
        for vni in 0..10_000u16 {
            outer[47..49].copy_from_slice(&vni.to_be_bytes());
            decapsulator.frame(ethernet_record(&outer), &source);
        }
        assert_eq!(decapsulator.interfaces().len(), 1 + SESSIONS_MAX + 1);
        assert_eq!(decapsulator.interfaces().last().unwrap().name.as_deref(), Some("mirror/others"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken(which in 0usize..8, at in 0usize..120, value: u8, len in 0usize..200, extra in 0u32..100) {
            let (.., mut outer, _) = tunnels().swap_remove(which);
            if let Some(byte) = outer.get_mut(at) {
                *byte = value;
            }
            outer.truncate(len);
            for link_type in [LinkType::ETHERNET, LinkType::RAW, LinkType::LINUX_SLL, LinkType::LINUX_SLL2] {
                let record = Record::new(1, 0, link_type, outer.len() as u32 + extra, &outer);
                if let Some((inner, _)) = decapsulate(&record) {
                    prop_assert!(inner.bytes.len() <= outer.len() && inner.bytes.len() <= inner.wire_len as usize);
                }
            }
        }
    }
}
