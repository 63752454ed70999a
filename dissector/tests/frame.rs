//! Frames of every link layer, tunnel and transport, put together byte by byte or by etherparse, and what they decode
//! to. The invariant CRCs are computed here, from the rules of the specification, without the code under test.

use etherparse::{IpNumber, NetSlice, PacketBuilder, SlicedPacket, TransportSlice};
use proptest::prelude::*;
use rdmascope_dissector::fault::FaultKind;
use rdmascope_dissector::frame::{
    self, Addr, Body, Carrier, Check, IbPacket, LinkType, Options, Packet, Segment, TunnelKind,
};
use rdmascope_dissector::trace::{Off, Tree};

// ---- building ----

const V4: [u8; 8] = [192, 0, 2, 1, 192, 0, 2, 2];

fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for b in bytes {
        crc ^= u32::from(*b);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 };
        }
    }
    !crc
}

/// Places of the fields that the CRC treats as ones.
#[derive(Clone, Copy)]
enum Net {
    V4,
    V6,
}

fn bth(opcode: u8, pad: u8) -> Vec<u8> {
    vec![opcode, 0x40 | pad << 4, 0xff, 0xff, 0, 0, 0, 0x12, 0x80, 0x12, 0x34, 0x56]
}

fn ip(net: Net, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    match net {
        Net::V4 => {
            out.extend_from_slice(&[0x45, 0xb9]);
            out.extend_from_slice(&(20 + payload.len() as u16).to_be_bytes());
            out.extend_from_slice(&[0x12, 0x34, 0x40, 0, 63, protocol, 0xab, 0xcd]);
            out.extend_from_slice(&V4);
        }
        Net::V6 => {
            out.extend_from_slice(&[0x6b, 0x92, 0x34, 0x56]);
            out.extend_from_slice(&(payload.len() as u16).to_be_bytes());
            out.extend_from_slice(&[protocol, 63]);
            out.extend_from_slice(&[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
            out.extend_from_slice(&[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
        }
    }
    out.extend_from_slice(payload);
    out
}

fn udp(port: u16, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![0xc0, 0];
    out.extend_from_slice(&port.to_be_bytes());
    out.extend_from_slice(&(8 + payload.len() as u16).to_be_bytes());
    out.extend_from_slice(&[0xbe, 0xef]);
    out.extend_from_slice(payload);
    out
}

fn ethernet(ethertype: u16, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    out.extend_from_slice(&ethertype.to_be_bytes());
    out.extend_from_slice(payload);
    out
}

/// A RoCEv2 datagram with a right ICRC.
fn roce(net: Net, opcode: u8, body: &[u8]) -> Vec<u8> {
    let pad = (4 - body.len() % 4) % 4;
    let mut ib = bth(opcode, pad as u8);
    ib.extend_from_slice(body);
    ib.extend(std::iter::repeat_n(0, pad));
    let mut datagram = ip(net, 17, &udp(4791, &[&ib[..], &[0; 4]].concat()));
    let end = datagram.len() - 4;
    let mut covered = vec![0xff; 8];
    covered.extend_from_slice(&datagram[..end]);
    let header = match net {
        Net::V4 => {
            for n in [1, 8, 10, 11] {
                covered[8 + n] = 0xff;
            }
            20
        }
        Net::V6 => {
            covered[8] |= 0x0f;
            for n in [1, 2, 3, 7] {
                covered[8 + n] = 0xff;
            }
            40
        }
    };
    for n in [6, 7, 8 + 4] {
        covered[8 + header + n] = 0xff;
    }
    datagram[end..].copy_from_slice(&crc32(&covered).to_le_bytes());
    datagram
}

/// A native packet, with or without a GRH, with right checksums.
fn native(global: bool, body: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x20, 0x10 | if global { 3 } else { 2 }, 0, 7, 0, 0, 0, 9];
    let after = 12 + body.len() + 4;
    if global {
        packet.extend_from_slice(&[0x6a, 0xbc, 0xde, 0xf1]);
        packet.extend_from_slice(&(after as u16).to_be_bytes());
        packet.extend_from_slice(&[0x1b, 5]);
        packet.extend_from_slice(&[0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        packet.extend_from_slice(&[0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
    }
    packet.extend_from_slice(&bth(0x04, 0));
    packet.extend_from_slice(body);
    let words = (packet.len() + 4) / 4;
    packet[4..6].copy_from_slice(&(words as u16).to_be_bytes());
    let mut covered = packet.clone();
    covered[0] |= 0xf0;
    let at = if global {
        covered[8] |= 0x0f;
        for n in [9, 10, 11, 15] {
            covered[n] = 0xff;
        }
        48
    } else {
        8
    };
    covered[at + 4] = 0xff;
    packet.extend_from_slice(&crc32(&covered).to_le_bytes());
    let mut vcrc = u16::MAX;
    for b in &packet {
        vcrc ^= u16::from(*b);
        for _ in 0..8 {
            vcrc = if vcrc & 1 == 1 { (vcrc >> 1) ^ 0xd008 } else { vcrc >> 1 };
        }
    }
    packet.extend_from_slice(&(!vcrc).to_le_bytes());
    packet
}

/// RoCE version 1: a GRH and what follows, right behind Ethernet.
fn roce_v1(body: &[u8]) -> Vec<u8> {
    let native = native(true, body);
    let mut packet = native[8..native.len() - 6].to_vec();
    let mut covered = vec![0xff; 8];
    covered.extend_from_slice(&packet);
    covered[8] |= 0x0f;
    for n in [9, 10, 11, 15, 8 + 40 + 4] {
        covered[n] = 0xff;
    }
    packet.extend_from_slice(&crc32(&covered).to_le_bytes());
    ethernet(0x8915, &packet)
}

fn hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
}

// ---- decoding ----

/// Decodes with both observers, which must agree, and checks the shape of the tree.
fn decode_as(link: LinkType, bytes: &[u8], wire_len: usize) -> (Packet<'_>, Tree) {
    let options = Options::default();
    let packet = frame::decode(link, bytes, wire_len as u32, &options, &mut Off);
    let mut tree = Tree::new();
    tree.begin(bytes);
    let same = frame::decode(link, bytes, wire_len as u32, &options, &mut tree);
    // a header that is read at once does not name the field that was short
    let all = |packet: &Packet<'_>| format!("{:?}", Packet { fault: None, ..*packet });
    assert_eq!(all(&packet), all(&same));
    assert_eq!(packet.fault.map(|f| f.kind), same.fault.map(|f| f.kind));
    assert!(packet.fault.is_none() || !tree.faults.is_empty(), "a fault is told");
    let mut open: Vec<(u8, u32, u32)> = Vec::new();
    for node in &tree.nodes {
        assert!((node.offset + node.len) as usize <= bytes.len(), "{} leaves the frame", node.def.name);
        open.retain(|(depth, ..)| *depth < node.depth);
        if let (Some((_, start, end)), false) = (open.last(), node.generated) {
            assert!(*start <= node.offset && node.offset + node.len <= *end, "{} leaves its parent", node.def.name);
        }
        if !node.generated {
            open.push((node.depth, node.offset, node.offset + node.len));
        }
    }
    (packet, tree)
}

fn decode(bytes: &[u8]) -> (Packet<'_>, Tree) {
    decode_as(LinkType::ETHERNET, bytes, bytes.len())
}

fn ib<'a>(packet: &Packet<'a>) -> IbPacket<'a> {
    match packet.body {
        Body::Ib(ib) => ib,
        other => panic!("{other:?}, fault {:?}", packet.fault),
    }
}

fn tcp<'a>(packet: &Packet<'a>) -> Segment<'a> {
    match packet.body {
        Body::Tcp(segment) => segment,
        other => panic!("{other:?}, fault {:?}", packet.fault),
    }
}

// ---- captures of Linux's Soft-RoCE ----

const ACK: &str = "525400000002525400000001080045000030dd1c40004011d99cc0000201c0000202eb1a12b7001c00001100ffff00000012008dd26b1f000001d818c4cc";

#[test]
fn a_captured_acknowledgment_decodes_and_its_crc_is_right() {
    let bytes = hex(ACK);
    let (packet, tree) = decode(&bytes);
    let ib = ib(&packet);
    assert_eq!((packet.src, packet.dst), (Addr::V4([192, 0, 2, 1]), Addr::V4([192, 0, 2, 2])));
    assert_eq!(ib.carrier, Carrier::RoceV2 { src_port: 60186 });
    assert_eq!((ib.bth.opcode, ib.bth.dest_qp, ib.bth.psn, ib.icrc), (0x11, 0x12, 9_294_443, Check::Good));
    assert_eq!((ib.ext.aeth, ib.ext.msn(), ib.payload_length), (Some(0x1f00_0001), Some(1), 0));
    assert_eq!((tree.protocol, tree.info.as_str()), ("RRoCE", "RC Acknowledge QP=0x000012 PSN=9294443, ACK MSN=1"));
    assert_eq!(tree.number("infiniband.invariant.crc"), Some(0xd818_c4cc));
    assert_eq!(tree.number("rdmascope.icrc.status"), Some(1));
    let roots: Vec<&str> = tree.nodes.iter().filter(|n| n.depth == 0).map(|n| n.def.name).collect();
    assert_eq!(roots, ["eth", "ip", "udp", "infiniband"]);
}

/// Without an observer, such a frame is decoded at once; whatever is changed in it, the result is that of all steps.
#[test]
fn every_bit_of_a_frame_and_every_length_of_it_counts_with_and_without_an_observer() {
    let write = [&[0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 7, 0, 0, 0, 60][..], &[0x5a; 60]].concat();
    let header = [0x9c, 0x40, 0x14, 0xd5, 0, 0, 1, 0, 0, 0, 2, 0, 0x80, 0x18, 1, 0, 0xbe, 0xef, 0, 0];
    let stamps = [1, 1, 8, 10, 0, 0, 0, 7, 0, 0, 0, 9];
    let segment = ip(Net::V4, 6, &[&header[..], &stamps, b"payload"].concat());
    let write = ethernet(0x0800, &with_checksum(roce(Net::V4, 0x0a, &write)));
    for frame in [hex(ACK), write, ethernet(0x0800, &with_checksum(segment))] {
        let (packet, _) = decode(&frame);
        assert_eq!((packet.header, packet.fault), (Check::Good, None));
        let is_right = |packet: &Packet<'_>| match packet.body {
            Body::Ib(ib) => ib.icrc == Check::Good,
            Body::Tcp(segment) => segment.payload == b"payload",
            _ => false,
        };
        assert!(is_right(&packet));
        for bit in 0..frame.len() * 8 {
            let mut changed = frame.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            decode(&changed);
        }
        for length in 0..frame.len() {
            decode_as(LinkType::ETHERNET, &frame[..length], frame.len());
            decode(&frame[..length]);
        }
        let trailer = [&frame[..], &[0; 9]].concat();
        assert!(is_right(&decode(&trailer).0));
        decode_as(LinkType::ETHERNET, &frame, frame.len() + 9);
    }
}

#[test]
fn the_crc_covers_all_but_what_routers_change() {
    let bytes = hex(ACK);
    for at in 14..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 0x01;
        let (packet, _) = decode(&changed);
        let Body::Ib(ib) = packet.body else { continue };
        // ToS, TTL, the two checksums, resv8 of the BTH
        let ignored = [15, 22, 24, 25, 40, 41, 46].contains(&at);
        if ib.icrc != Check::Unchecked {
            assert_eq!(ib.icrc == Check::Good, ignored, "byte {at}");
        }
    }
    let unchecked = Options { check_crc: false, ..Options::default() };
    assert_eq!(
        ib(&frame::decode(LinkType::ETHERNET, &bytes, bytes.len() as u32, &unchecked, &mut Off)).icrc,
        Check::Unchecked
    );
}

// ---- carriers ----

#[test]
fn every_carrier_has_its_crc() {
    let body: Vec<u8> = (0..100).collect();
    for net in [Net::V4, Net::V6] {
        for length in [0, 1, 2, 3, 4, 31, 100] {
            let ethertype = if matches!(net, Net::V4) { 0x0800 } else { 0x86dd };
            let bytes = ethernet(ethertype, &roce(net, 0x04, &body[..length]));
            let (packet, _) = decode(&bytes);
            let ib = ib(&packet);
            assert_eq!((ib.icrc, ib.payload, ib.payload_length), (Check::Good, &body[..length], length as u32));
            assert_eq!((packet.cut, packet.fault, packet.dscp, packet.ecn), (0, None, 0x2e, 1));
        }
    }
    let bytes = roce_v1(&body);
    let (packet, tree) = decode(&bytes);
    assert_eq!((ib(&packet).carrier, ib(&packet).icrc, ib(&packet).payload), (Carrier::RoceV1, Check::Good, &body[..]));
    assert_eq!((packet.dscp, packet.ecn, tree.protocol), (0xab >> 2, 3, "RoCE"));

    for global in [false, true] {
        let bytes = native(global, &body);
        let (packet, tree) = decode_as(LinkType::INFINIBAND, &bytes, bytes.len());
        assert_eq!(
            (ib(&packet).carrier, ib(&packet).icrc, ib(&packet).payload),
            (Carrier::Infiniband, Check::Good, &body[..])
        );
        assert_eq!(tree.number("rdmascope.vcrc.status"), Some(1));
        assert_eq!(packet.src == Addr::Lid(9) && packet.dst == Addr::Lid(7), !global);
        assert_eq!(packet.cut, 0);
        let mut damaged = bytes.clone();
        damaged[30] ^= 1;
        let (packet, tree) = decode_as(LinkType::INFINIBAND, &damaged, damaged.len());
        assert_eq!((ib(&packet).icrc, tree.number("rdmascope.vcrc.status")), (Check::Bad, Some(0)));
        // without the VCRC, as some cards give it
        let (packet, tree) = decode_as(LinkType::INFINIBAND, &bytes[..bytes.len() - 2], bytes.len() - 2);
        assert_eq!((ib(&packet).icrc, tree.number("infiniband.variant.crc"), packet.fault), (Check::Good, None, None));
    }
}

/// Datagrams before segmentation by the adapter: several packets end to end under one header.
fn joined(net: Net, datagrams: &[Vec<u8>]) -> Vec<u8> {
    let header = if matches!(net, Net::V4) { 28 } else { 48 };
    let packets: Vec<u8> = datagrams.iter().flat_map(|datagram| &datagram[header..]).copied().collect();
    ethernet(if matches!(net, Net::V4) { 0x0800 } else { 0x86dd }, &ip(net, 17, &udp(4791, &packets)))
}

#[test]
fn packets_that_a_host_had_not_cut_yet_are_taken_apart() {
    let bodies: [Vec<u8>; 3] = [100u8, 100, 41].map(|length| (0..length).collect());
    for net in [Net::V4, Net::V6] {
        let pieces: Vec<Vec<u8>> = bodies.iter().map(|body| roce(net, 0x04, body)).collect();
        let bytes = joined(net, &pieces);
        let (packet, tree) = decode(&bytes);
        let first = ib(&packet);
        let all: Vec<IbPacket<'_>> = std::iter::once(first).chain(first.joined(packet.cut)).collect();
        assert_eq!(all.iter().map(|ib| ib.payload).collect::<Vec<_>>(), bodies.each_ref().map(|body| &body[..]));
        assert!(all.iter().all(|ib| ib.icrc == Check::Good && ib.payload.len() == ib.payload_length as usize));
        assert_eq!(tree.nodes.iter().filter(|n| n.def.name == "infiniband" && n.depth == 0).count(), 3);
        assert!(tree.info.ends_with("3 packets captured as one datagram"), "{}", tree.info);

        // of a cut datagram no CRC covers the whole, and these all have one number: nothing tells them apart
        let (packet, _) = decode_as(LinkType::ETHERNET, &bytes[..bytes.len() - 30], bytes.len());
        assert!(ib(&packet).behind.is_empty() && ib(&packet).icrc == Check::Unchecked && packet.cut == 30);

        // damage is no other packet, and neither is what only looks like one
        for at in [50, 120, 200] {
            let mut damaged = joined(net, &pieces);
            damaged[if matches!(net, Net::V4) { at } else { at + 20 }] ^= 0x10;
            let (packet, _) = decode(&damaged);
            assert!(ib(&packet).behind.is_empty() && ib(&packet).icrc == Check::Bad, "byte {at}");
        }
    }
    // one alone is never taken apart
    let alone = ethernet(
        0x0800,
        &roce(Net::V4, 0x04, &joined(Net::V4, &[roce(Net::V4, 0x04, b"four"), roce(Net::V4, 0x04, b"more")])),
    );
    let (packet, _) = decode(&alone);
    assert!(ib(&packet).behind.is_empty());
}

#[test]
fn padding_trailers_and_check_sequences_are_no_payload() {
    let bytes = ethernet(0x0800, &roce(Net::V4, 0x11, &[0x1f, 0, 0, 1]));
    let vlan = ethernet(0x8100, &[&[0x60, 5, 8, 0][..], &roce(Net::V4, 0x11, &[0x1f, 0, 0, 1])].concat());
    let v1 = roce_v1(&[1; 8]);
    for mut bytes in [bytes, vlan, v1] {
        bytes.extend_from_slice(&[0; 22]);
        let (packet, _) = decode(&bytes);
        assert_eq!((ib(&packet).icrc, packet.cut, packet.fault), (Check::Good, 0, None));
        // the wire had four bytes more that nobody captured: a check sequence
        let (packet, _) = decode_as(LinkType::ETHERNET, &bytes, bytes.len() + 4);
        assert_eq!((ib(&packet).icrc, packet.cut), (Check::Good, 0));
    }
}

#[test]
fn link_layers_lead_to_the_same_packet() {
    let datagram = roce(Net::V4, 0x04, b"four");
    let datagram6 = roce(Net::V6, 0x04, b"four");
    let tags = |kinds: &[u16]| {
        let mut out = Vec::new();
        for (n, kind) in kinds.iter().enumerate() {
            out.extend_from_slice(&kind.to_be_bytes());
            out.extend_from_slice(&(0x6000 + 100 + n as u16).to_be_bytes());
        }
        [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1][..], &out, &[8, 0], &datagram].concat()
    };
    let erf = |kind: u8, extensions: usize, frame: &[u8]| {
        let mut out = vec![0; 8];
        out.extend_from_slice(&[kind | if extensions > 0 { 0x80 } else { 0 }, 4]);
        out.extend_from_slice(&(16 + 8 * extensions as u16 + 2 + frame.len() as u16).to_be_bytes());
        out.extend_from_slice(&[0, 7]);
        out.extend_from_slice(&(frame.len() as u16).to_be_bytes());
        for n in (0..extensions).rev() {
            out.extend_from_slice(&[4 | if n > 0 { 0x80 } else { 0 }, 0, 0, 0, 0, 0, 0, 0]);
        }
        if kind == 2 || kind == 11 {
            out.extend_from_slice(&[0, 0]);
        }
        // records end on a multiple of 8
        [&out, frame, &[0; 5]].concat()
    };
    let whole = ethernet(0x0800, &datagram);
    let mpls = [&[0, 1, 0, 64][..], &[0, 2, 1, 64], &datagram].concat();
    let control_word = [&[0, 2, 1, 64][..], &[0; 4], &whole].concat();
    let sll = [&[0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0, 8, 0][..], &datagram].concat();
    let sll2 = [&[8, 0, 0, 0, 0, 0, 0, 3, 0, 1, 4, 6, 2, 0, 0, 0, 0, 1, 0, 0][..], &datagram].concat();
    let sll_llc = {
        let inside = [&[0xaa, 0xaa, 3, 0, 0, 0, 8, 0][..], &datagram].concat();
        [&[0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0, 0, 4][..], &inside].concat()
    };
    let snap = {
        let inside = [&[0xaa, 0xaa, 3, 0, 0, 0, 8, 0][..], &datagram].concat();
        ethernet(inside.len() as u16, &inside)
    };
    let cases: Vec<(&str, LinkType, Vec<u8>)> = vec![
        ("raw", LinkType::RAW, datagram.clone()),
        ("raw 6", LinkType::IPV6, datagram6.clone()),
        ("null", LinkType::NULL, [&2u32.to_le_bytes()[..], &datagram].concat()),
        ("null, the other byte order", LinkType::NULL, [&30u32.to_be_bytes()[..], &datagram6].concat()),
        ("loop", LinkType::LOOP, [&24u32.to_be_bytes()[..], &datagram6].concat()),
        ("cooked LLC", LinkType::LINUX_SLL, sll_llc),
        ("cooked", LinkType::LINUX_SLL, sll),
        ("cooked 2", LinkType::LINUX_SLL2, sll2),
        ("ERF", LinkType::ERF, erf(2, 0, &whole)),
        ("ERF with extensions", LinkType::ERF, erf(2, 3, &whole)),
        ("ERF with a color", LinkType::ERF, erf(11, 0, &whole)),
        ("ERF InfiniBand", LinkType::ERF, erf(21, 1, &native(true, b"four"))),
        ("VLAN", LinkType::ETHERNET, tags(&[0x8100])),
        ("five tags", LinkType::ETHERNET, tags(&[0x88a8, 0x9100, 0x8100, 0x88a8, 0x8100])),
        ("MPLS", LinkType::ETHERNET, ethernet(0x8847, &mpls)),
        ("Ethernet over MPLS", LinkType::ETHERNET, ethernet(0x8848, &control_word)),
        ("SNAP", LinkType::ETHERNET, snap),
    ];
    for (name, link, bytes) in cases {
        let (packet, tree) = decode_as(link, &bytes, bytes.len());
        let found = ib(&packet);
        assert_eq!(
            (found.bth.psn, found.payload, found.icrc, packet.fault, packet.cut),
            (0x12_3456, &b"four"[..], Check::Good, None, 0),
            "{name}"
        );
        match name {
            "VLAN" => assert_eq!(
                (packet.vlan, tree.number("vlan.id"), tree.number("vlan.priority")),
                (Some(100), Some(100), Some(3))
            ),
            "five tags" => assert_eq!((packet.vlan, tree.number("ieee8021ad.id")), (Some(104), Some(100))),
            "MPLS" => assert_eq!((tree.number("mpls.label"), tree.all("mpls.label").count()), (Some(16), 2)),
            "ERF" => assert_eq!((tree.number("erf.lctr"), tree.number("erf.color")), (Some(7), None)),
            "ERF with a color" => assert_eq!((tree.number("erf.lctr"), tree.number("erf.color")), (None, Some(7))),
            "ERF with extensions" => assert_eq!(tree.all("erf.ehdr.types").count(), 3),
            _ => assert_eq!(packet.vlan, None, "{name}"),
        }
        for n in 0..bytes.len() {
            decode_as(link, &bytes[..n], bytes.len());
        }
    }
}

// ---- tunnels ----

#[test]
fn tunnels_are_looked_into() {
    let inner = ethernet(0x0800, &roce(Net::V4, 0x04, b"four"));
    let datagram = roce(Net::V6, 0x04, b"four");
    let gre = |flags: u16, protocol: u16, fields: &[u8], inner: &[u8]| {
        ip(Net::V4, 47, &[&flags.to_be_bytes()[..], &protocol.to_be_bytes(), fields, inner].concat())
    };
    let erspan2 = [&[0, 0, 0, 9][..], &[0x10, 7, 0x04, 0x2a], &[0, 0, 0, 3]].concat();
    let erspan3 = |last: u8, more: &[u8]| {
        [&[0, 0, 0, 9][..], &[0x20, 7, 0x00, 0x2b], &[0, 0, 0, 1], &[0, 2], &[0, last], more].concat()
    };
    let geneve = |options: &[u8], protocol: u16, inner: &[u8]| {
        let head =
            [&[(options.len() / 4) as u8, 0][..], &protocol.to_be_bytes(), &[0, 0, 77, 0], options, inner].concat();
        ip(Net::V6, 17, &udp(6081, &head))
    };
    let vxlan =
        |port: u16, inner: &[u8]| ip(Net::V4, 17, &udp(port, &[&[8, 0, 0, 0, 0, 0, 42, 0][..], inner].concat()));
    type Case = (&'static str, u16, Vec<u8>, TunnelKind, u32, bool);
    let cases: Vec<Case> = vec![
        ("GRE of IP", 0x0800, gre(0, 0x86dd, &[], &datagram), TunnelKind::Gre, 0, false),
        (
            "GRE with all fields",
            0x0800,
            gre(0xb000, 0x6558, &[1, 2, 0, 0, 0, 0, 0, 5, 0, 0, 0, 1], &inner),
            TunnelKind::Gre,
            5,
            false,
        ),
        ("ERSPAN I", 0x0800, gre(0, 0x88be, &[], &inner), TunnelKind::Erspan1, 0, false),
        ("ERSPAN II", 0x0800, gre(0x1000, 0x88be, &erspan2, &inner), TunnelKind::Erspan2, 0x2a, true),
        ("ERSPAN III", 0x0800, gre(0x1000, 0x22eb, &erspan3(0, &[]), &inner), TunnelKind::Erspan3, 0x2b, false),
        (
            "ERSPAN III with subheader",
            0x0800,
            gre(0x1000, 0x22eb, &erspan3(1, &[0x0c, 0, 0, 1, 0, 0, 0, 2]), &inner),
            TunnelKind::Erspan3,
            0x2b,
            false,
        ),
        ("VXLAN", 0x0800, vxlan(4789, &inner), TunnelKind::Vxlan, 42, false),
        ("VXLAN of Linux", 0x0800, vxlan(8472, &inner), TunnelKind::Vxlan, 42, false),
        ("GENEVE", 0x86dd, geneve(&[], 0x6558, &inner), TunnelKind::Geneve, 77, false),
        (
            "GENEVE with options",
            0x86dd,
            geneve(&[1, 2, 3, 1, 9, 9, 9, 9, 1, 2, 4, 0], 0x86dd, &datagram),
            TunnelKind::Geneve,
            77,
            false,
        ),
        ("IP in IP", 0x0800, ip(Net::V4, 41, &datagram), TunnelKind::Ip, 0, false),
        ("VXLAN in VXLAN", 0x0800, vxlan(4789, &ethernet(0x0800, &vxlan(4789, &inner))), TunnelKind::Vxlan, 42, false),
    ];
    for (name, ethertype, outer, kind, id, truncated) in cases {
        let bytes = ethernet(ethertype, &outer);
        let (packet, tree) = decode(&bytes);
        let tunnel = packet.tunnel.unwrap_or_else(|| panic!("{name}: {:?}", packet.fault));
        assert_eq!((tunnel.kind, tunnel.id, tunnel.truncated), (kind, id, truncated), "{name}");
        let found = ib(&packet);
        assert_eq!(
            (found.icrc, found.payload, packet.cut, packet.fault),
            (Check::Good, &b"four"[..], 0, None),
            "{name}"
        );
        match name {
            "GENEVE with options" => assert_eq!(tree.all("geneve.option").count(), 2),
            "ERSPAN III with subheader" => {
                assert_eq!(tree.number("erspan.platid"), Some(3));
                assert!(tree.all("erspan.platid").all(|node| node.depth == 1), "it is one of ERSPAN's fields");
            }
            "ERSPAN II" => assert_eq!(packet.vlan, Some(7)),
            _ => {}
        }
        // what is taken out of the tunnel is what was looked into
        let inside = |n: usize| frame::inside(LinkType::ETHERNET, &bytes[..n], bytes.len() as u32);
        let whole = inside(bytes.len());
        assert_eq!(whole.is_some(), kind != TunnelKind::Ip, "{name}");
        if let Some(whole) = whole {
            assert_eq!(
                (whole.tunnel.kind, whole.tunnel.id, whole.wire_len as usize),
                (kind, id, whole.bytes.len()),
                "{name}"
            );
            assert!(matches!(whole.from, Addr::V4(_) | Addr::V6(_)), "{name}");
            let (same, _) = decode_as(whole.link_type, whole.bytes, whole.bytes.len());
            assert_eq!((same.src, same.dst, ib(&same).icrc), (packet.src, packet.dst, Check::Good), "{name}");
            assert_eq!(same.tunnel.is_some(), name == "VXLAN in VXLAN");
        }
        for n in 0..bytes.len() {
            decode_as(LinkType::ETHERNET, &bytes[..n], bytes.len());
            // however much was captured, its length on the wire is known
            if let Some(cut) = inside(n) {
                assert_eq!(Some(cut.wire_len), whole.map(|whole| whole.wire_len), "{name} {n}");
            }
        }
    }
}

#[test]
fn nesting_ends() {
    let mut bytes = ethernet(0x0800, &roce(Net::V4, 0x04, b"four"));
    for _ in 0..8 {
        bytes = ethernet(0x0800, &ip(Net::V4, 17, &udp(4789, &[&[8, 0, 0, 0, 0, 0, 42, 0][..], &bytes].concat())));
    }
    assert_eq!(ib(&decode(&bytes).0).icrc, Check::Good);
    bytes = ethernet(0x0800, &ip(Net::V4, 17, &udp(4789, &[&[8, 0, 0, 0, 0, 0, 42, 0][..], &bytes].concat())));
    assert_eq!(decode(&bytes).0.fault.map(|f| f.kind), Some(FaultKind::Limit));
    let tags = ethernet(0x8100, &[0, 1, 0x81, 0].repeat(40));
    assert_eq!(decode(&tags).0.fault.map(|f| f.kind), Some(FaultKind::Limit));
    let labels = ethernet(0x8847, &[0, 1, 0, 64].repeat(40));
    assert_eq!(decode(&labels).0.fault.map(|f| f.kind), Some(FaultKind::Limit));
    let extensions = ethernet(0x86dd, &ip(Net::V6, 60, &[60, 0, 1, 4, 0, 0, 0, 0].repeat(40)));
    assert_eq!(decode(&extensions).0.fault.map(|f| f.kind), Some(FaultKind::Limit));
}

// ---- what was cut ----

#[test]
fn what_the_capture_cut_is_counted() {
    let body: Vec<u8> = (0..200).collect();
    let bytes = ethernet(0x0800, &with_checksum(roce(Net::V4, 0x06, &[&[7; 16][..], &body].concat())));
    let headers = 14 + 20 + 8 + 12 + 16;
    for n in 0..bytes.len() {
        let (packet, _) = decode_as(LinkType::ETHERNET, &bytes[..n], bytes.len());
        assert_eq!(packet.cut as usize, bytes.len() - n, "{n}");
        if let Body::Ib(ib) = packet.body {
            assert_eq!((ib.icrc, ib.payload_length, ib.bth.psn), (Check::Unchecked, 200, 0x12_3456), "{n}");
            assert_eq!(ib.payload, &body[..n.saturating_sub(headers).min(200)]);
            assert_eq!(ib.ext.reth.is_some(), n >= headers);
            assert_eq!(packet.fault.is_some(), n < headers);
        } else {
            assert!(n < 14 + 20 + 8 + 12 && packet.fault.is_some(), "{n}");
        }
        // the mirror cut it, and so the capture does not know
        if n >= 34 {
            assert_eq!(decode(&bytes[..n]).0.cut as usize, bytes.len() - n, "{n}");
        }
    }
}

/// A UDP length beyond the IP datagram is a wrong length, and not a sign of bytes that the capture has not.
/// Fields are part of their protocol.
#[test]
fn a_udp_payload_that_nobody_reads_is_udp_s() {
    for net in [Net::V4, Net::V6] {
        let bytes = ethernet(if matches!(net, Net::V4) { 0x0800 } else { 0x86dd }, &ip(net, 17, &udp(9, b"abc")));
        let (packet, tree) = decode(&bytes);
        assert!(matches!(packet.body, Body::Udp(0xc000, 9, b"abc")), "{:?}", packet.body);
        assert_eq!(tree.all("udp.payload").map(|node| (node.depth, node.len)).collect::<Vec<_>>(), [(1, 3)]);
    }
}

#[test]
fn a_udp_length_beyond_its_datagram_is_damage() {
    let mut bytes = ethernet(0x0800, &roce(Net::V4, 0x04, &[5; 64]));
    bytes[14 + 20 + 4] |= 0x08;
    let (packet, tree) = decode(&bytes);
    assert_eq!((packet.cut, ib(&packet).icrc, ib(&packet).payload_length), (0, Check::Bad, 64));
    assert_eq!(tree.faults.len(), 1);
    // also where the capture cut the packet
    let (packet, _) = decode_as(LinkType::ETHERNET, &bytes[..80], bytes.len());
    assert_eq!((packet.cut as usize, ib(&packet).icrc, ib(&packet).payload_length), (bytes.len() - 80, Check::Bad, 64));
}

/// Writes the checksum of the IPv4 header at the beginning of a datagram.
fn with_checksum(mut datagram: Vec<u8>) -> Vec<u8> {
    datagram[10..12].fill(0);
    let sum: u32 = datagram[..20].chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    datagram[10..12].copy_from_slice(&(!(folded as u16)).to_be_bytes());
    datagram
}

#[test]
fn the_checksum_of_an_ip_header_is_checked() {
    let good = with_checksum(ip(Net::V4, 17, &udp(5000, b"data")));
    let check = |datagram: &[u8]| decode(&ethernet(0x0800, datagram)).0.header;
    assert_eq!(check(&good), Check::Good);
    let mut bad = good.clone();
    bad[8] ^= 1;
    assert_eq!(check(&bad), Check::Bad);
    bad[10..12].fill(0);
    assert_eq!(check(&bad), Check::Unchecked, "left to the adapter");
    assert_eq!(check(&ip(Net::V6, 17, &udp(5000, b"data"))), Check::Unchecked);
}

/// Bytes that were never on the wire are not missing: a length that says so, in a header whose checksum is wrong, is
/// damaged.
#[test]
fn a_length_in_a_damaged_ip_header_cuts_nothing() {
    let mut datagram = with_checksum(roce(Net::V4, 0x04, &[5; 64]));
    datagram[2] |= 0x04;
    let bytes = ethernet(0x0800, &datagram);
    let (packet, _) = decode(&bytes);
    assert!(matches!(packet.body, Body::Other("IPv4")), "{:?}", packet.body);
    assert_eq!((packet.cut, packet.fault.map(|f| f.kind)), (0, Some(FaultKind::Length)));
    // where the checksum is right, a mirror may have cut the datagram behind what UDP has of it
    let bytes = ethernet(0x0800, &with_checksum(datagram));
    let (packet, _) = decode(&bytes);
    assert_eq!((packet.cut, ib(&packet).icrc), (0, Check::Unchecked));
}

#[test]
fn a_packet_shorter_than_its_padding_is_one_of_its_queue_pair() {
    let mut datagram = roce(Net::V4, 0x04, &[]);
    datagram[20 + 8 + 1] |= 0x30;
    let bytes = ethernet(0x0800, &datagram);
    let (packet, _) = decode(&bytes);
    assert_eq!((ib(&packet).bth.psn, ib(&packet).payload_length), (0x12_3456, 0));
    assert_eq!(packet.fault.map(|f| f.kind), Some(FaultKind::Length));
}

#[test]
fn an_unknown_opcode_keeps_its_payload() {
    let bytes = ethernet(0x0800, &roce(Net::V4, 0x15, b"what is this"));
    let (packet, tree) = decode(&bytes);
    assert_eq!((ib(&packet).payload, ib(&packet).icrc, packet.fault), (&b"what is this"[..], Check::Good, None));
    assert_eq!(tree.info, "Unknown opcode 0x15 QP=0x000012 PSN=1193046");
    let bytes = ethernet(0x0800, &roce(Net::V4, 0x81, &[0; 16]));
    assert_eq!(decode(&bytes).1.info, "CNP QP=0x000012 PSN=1193046");
}

// ---- fragments ----

#[test]
fn fragments_are_given_to_the_caller_and_decode_when_whole() {
    let whole = roce(Net::V4, 0x04, &[9; 64]);
    let mut first = whole[..20 + 48].to_vec();
    first[2..4].copy_from_slice(&68u16.to_be_bytes());
    first[6..8].copy_from_slice(&0x2000u16.to_be_bytes());
    let bytes = ethernet(0x0800, &first);
    let Body::Fragment(fragment) = decode(&bytes).0.body else { panic!() };
    assert_eq!((fragment.id, fragment.protocol, fragment.offset, fragment.more), (0x1234, 17, 0, true));
    assert_eq!((fragment.header.len(), fragment.payload), (20, &whole[20..68]));

    let mut last = [&whole[..20], &whole[68..]].concat();
    let length = last.len() as u16;
    last[2..4].copy_from_slice(&length.to_be_bytes());
    last[6..8].copy_from_slice(&6u16.to_be_bytes());
    let bytes = ethernet(0x0800, &last);
    let Body::Fragment(fragment) = decode(&bytes).0.body else { panic!() };
    assert_eq!((fragment.offset, fragment.more, fragment.payload), (48, false, &whole[68..]));

    // put together under the header of a fragment: its length is not believed, and so the CRC not checked
    let together = [&fragment.header, &whole[20..]].concat();
    let mut tree = Tree::new();
    tree.begin(frame::ip_payload(&together));
    let packet = frame::decode_ip(&together, &Options::default(), &mut tree);
    assert_eq!((ib(&packet).payload, ib(&packet).icrc), (&[9; 64][..], Check::Unchecked));
    assert_eq!((ib(&packet).ip_id, packet.ttl), (0x1234, 63));
    // the header was told with the fragment; places count from the payload
    assert_eq!(tree.nodes.first().map(|node| (node.def.name, node.offset)), Some(("udp", 0)));
    assert!(tree.nodes.iter().all(|node| !node.def.name.starts_with("ip.")));
    let packet = frame::decode_ip(&whole, &Options::default(), &mut Off);
    assert_eq!((ib(&packet).payload, ib(&packet).icrc), (&[9; 64][..], Check::Good));

    let whole = roce(Net::V6, 0x04, &[9; 64]);
    let bytes = ethernet(
        0x86dd,
        &ip(Net::V6, 60, &[&[44, 0, 1, 4, 0, 0, 0, 0][..], &[17, 0, 0, 1, 1, 2, 3, 4], &whole[40..80]].concat()),
    );
    let Body::Fragment(fragment) = decode(&bytes).0.body else { panic!() };
    assert_eq!(fragment.payload, &whole[40..80]);
    let mut together = [&fragment.header, &whole[40..]].concat();
    tree.begin(frame::ip_payload(&together));
    let packet = frame::decode_ip(&together, &Options::default(), &mut tree);
    assert_eq!((ib(&packet).payload, packet.ttl), (&[9; 64][..], 63));
    assert_eq!(tree.nodes.first().map(|node| (node.def.name, node.offset)), Some(("udp", 0)));
    let length = (whole.len() - 40) as u16;
    together[4..6].copy_from_slice(&length.to_be_bytes());
    assert_eq!(ib(&frame::decode_ip(&together, &Options::default(), &mut Off)).icrc, Check::Good);

    let v6 = ip(Net::V6, 44, &[&[17, 0, 0, 0x29, 1, 2, 3, 4][..], &[5; 16]].concat());
    let bytes = ethernet(0x86dd, &v6);
    let (packet, tree) = decode(&bytes);
    let Body::Fragment(fragment) = packet.body else { panic!() };
    assert_eq!((fragment.id, fragment.protocol, fragment.offset, fragment.more), (0x0102_0304, 17, 40, true));
    assert_eq!(
        (fragment.header.len(), fragment.payload, tree.number("ipv6.fraghdr.more")),
        (40, &[5; 16][..], Some(1))
    );
}

#[test]
fn extension_headers_lead_to_the_transport() {
    let segment = &[0, 80, 1, 187, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 1, 0, 0, 0, 0, 0, b'h', b'i'][..];
    let options = |next: u8| [next, 0, 1, 4, 0, 0, 0, 0];
    let chain = [
        &options(43)[..],
        &options(51),
        &[44, 2, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 7, 7, 7, 7],
        &[60, 0, 0, 0, 0, 0, 0, 9],
        &options(6),
        segment,
    ]
    .concat();
    let bytes = ethernet(0x86dd, &ip(Net::V6, 0, &chain));
    let (packet, tree) = decode(&bytes);
    assert_eq!((tcp(&packet).payload, packet.fault), (&b"hi"[..], None));
    for name in ["ipv6.hopopts", "ipv6.routing", "ah", "ipv6.fraghdr", "ipv6.dstopts"] {
        assert_eq!(tree.all(name).count(), 1, "{name}");
    }
    // AH over IPv4, and IPv4 options
    let ah = [&[6, 4, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2][..], &[7; 12], segment].concat();
    let mut v4 = ip(Net::V4, 51, &ah);
    v4[0] = 0x47;
    v4.splice(20..20, [7, 7, 4, 0, 0, 0, 0, 1]);
    let length = v4.len() as u16;
    v4[2..4].copy_from_slice(&length.to_be_bytes());
    let bytes = ethernet(0x0800, &v4);
    let (packet, tree) = decode(&bytes);
    assert_eq!((tcp(&packet).payload, tree.number("ip.hdr_len"), packet.fault), (&b"hi"[..], Some(28), None));
    assert_eq!(tree.all("ip.opt.type").count(), 2);
}

/// Whatever stands between IP and UDP, the transport header begins behind it.
#[test]
fn a_queue_pair_is_read_behind_every_header() {
    let options = |next: u8| [next, 0, 1, 4, 0, 0, 0, 0].to_vec();
    let ah = |next: u8| [&[next, 4, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2][..], &[7; 12]].concat();
    let whole = |net: Net, protocol: u8, before: &[u8]| {
        let datagram = roce(net, 0x04, b"four");
        let at = if matches!(net, Net::V4) { 20 } else { 40 };
        ip(net, protocol, &[before, &datagram[at..]].concat())
    };
    let with_options = {
        let mut datagram = whole(Net::V4, 17, &[]);
        datagram[0] = 0x47;
        datagram.splice(20..20, [7, 7, 4, 0, 0, 0, 0, 1]);
        let length = datagram.len() as u16;
        datagram[2..4].copy_from_slice(&length.to_be_bytes());
        datagram
    };
    let cases = [
        ("nothing", 0x0800, whole(Net::V4, 17, &[])),
        ("options", 0x0800, with_options),
        ("AH", 0x0800, whole(Net::V4, 51, &ah(17))),
        ("two AH", 0x0800, whole(Net::V4, 51, &[ah(51), ah(17)].concat())),
        ("nothing", 0x86dd, whole(Net::V6, 17, &[])),
        ("hop-by-hop options", 0x86dd, whole(Net::V6, 0, &options(17))),
        ("destination options", 0x86dd, whole(Net::V6, 60, &options(17))),
        ("routing", 0x86dd, whole(Net::V6, 43, &options(17))),
        ("an atomic fragment", 0x86dd, whole(Net::V6, 44, &[17, 0, 0, 0, 0, 0, 0, 9])),
        ("AH", 0x86dd, whole(Net::V6, 51, &ah(17))),
    ];
    for (name, ethertype, datagram) in cases {
        let bytes = ethernet(ethertype, &datagram);
        let (packet, tree) = decode(&bytes);
        let found = ib(&packet);
        assert_eq!((found.bth.dest_qp, found.bth.psn, found.payload), (0x12, 0x12_3456, &b"four"[..]), "{name}");
        let at = bytes.len() as u32 - 4 - 4 - 12;
        assert_eq!(tree.all("infiniband.bth").next().map(|node| node.offset), Some(at), "{name}");
        assert_ne!(found.icrc, Check::Bad, "{name}");
    }
}

// ---- flow control ----

#[test]
fn pause_frames_say_which_priorities_wait() {
    let plain = ethernet(0x8808, &[&[0, 1, 0x12, 0x34][..], &[0; 42]].concat());
    let Body::Pause(pause) = decode(&plain).0.body else { panic!() };
    assert_eq!((pause.source, pause.priorities, pause.quanta), ([2, 0, 0, 0, 0, 1], 0xff, 0x1234));
    let pfc = ethernet(
        0x8808,
        &[&[1, 1, 0, 0x18][..], &[0xff, 0xff, 0, 0, 0, 0, 0, 7, 0, 9, 0, 0, 0, 0, 0, 0], &[0; 26]].concat(),
    );
    let (packet, tree) = decode(&pfc);
    let Body::Pause(pause) = packet.body else { panic!() };
    assert_eq!((pause.priorities, pause.quanta), (0x18, 9), "only enabled priorities count");
    assert_eq!((tree.number("macc.cbfc.enbv.c3"), tree.number("macc.cbfc.pause_time.c0")), (Some(1), Some(0xffff)));
    let other = ethernet(0x8808, &[0, 2, 0, 0]);
    assert_eq!(decode(&other).0.fault.map(|f| f.kind), Some(FaultKind::Value));
}

// ---- TCP ----

#[test]
fn tcp_options_are_read_and_wrong_lengths_are_reported() {
    let options = [2, 4, 5, 180, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 1, 3, 3, 7, 5, 10, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0];
    let head =
        [&[0x15, 0x45, 0xb5, 0x82, 1, 2, 3, 4, 5, 6, 7, 8, 0xd0, 0x12, 0x20, 0, 0, 0, 0, 0][..], &options, b"data"]
            .concat();
    let bytes = ethernet(0x0800, &ip(Net::V4, 6, &head));
    let (packet, tree) = decode(&bytes);
    let segment = tcp(&packet);
    assert_eq!((segment.src_port, segment.dst_port, segment.seq, segment.ack), (5445, 46466, 0x0102_0304, 0x0506_0708));
    assert_eq!(
        (segment.mss, segment.window_scale, segment.sack_count, segment.flags, segment.window),
        (Some(1460), Some(7), 1, 0x12, 0x2000)
    );
    assert_eq!((segment.payload, segment.payload_length), (&b"data"[..], 4));
    assert_eq!(tree.info, "5445 → 46466 [SYN, ACK] Seq=16909060 Ack=84281096 Win=8192 Len=4");
    assert_eq!(tree.number("tcp.options.sack.count"), Some(1));
    assert_eq!((tree.number("tcp.options.sack_re"), tree.number("tcp.options.timestamp.tsecr")), (Some(4), Some(2)));
    assert_eq!(
        (tree.number("tcp.hdr_len"), tree.number("tcp.flags"), tree.number("tcp.len")),
        (Some(52), Some(0x012), Some(4))
    );

    // the capture cut options off
    let decoded = |length: usize| {
        let options = frame::Options::default();
        let packet = frame::decode(LinkType::ETHERNET, &bytes[..length], bytes.len() as u32, &options, &mut Off);
        (tcp(&packet).are_options_cut, tcp(&packet).timestamps)
    };
    let behind = bytes.len() - 4;
    assert_eq!(
        [behind, behind - 1, behind - 20].map(decoded),
        [(false, Some((1, 2))), (true, Some((1, 2))), (true, None)]
    );

    // an option of length 0, one that points out of the header: the segment is there all the same
    for lie in [[2, 0], [2, 200]] {
        let mut bytes = bytes.clone();
        bytes[54..56].copy_from_slice(&lie);
        let (packet, _) = decode(&bytes);
        assert_eq!((tcp(&packet).payload, packet.fault.map(|f| f.kind)), (&b"data"[..], Some(FaultKind::Length)));
    }
    // cut in the options
    let (packet, _) = decode_as(LinkType::ETHERNET, &bytes[..60], bytes.len());
    assert_eq!((tcp(&packet).payload_length, tcp(&packet).payload, packet.cut), (4, &[][..], bytes.len() as u32 - 60));
    assert!(packet.fault.is_some());
}

// ---- etherparse as oracle ----

fn agrees_with_etherparse(bytes: &[u8]) {
    let Ok(theirs) = SlicedPacket::from_ethernet(bytes) else { return };
    let (ours, _) = decode(bytes);
    match &theirs.net {
        Some(NetSlice::Ipv4(v4)) => {
            let header = v4.header();
            assert_eq!((ours.src, ours.dst), (Addr::V4(header.source()), Addr::V4(header.destination())));
            assert_eq!((ours.dscp, ours.ecn), (header.dcp().value(), header.ecn().value()));
            if header.is_fragmenting_payload() {
                assert!(matches!(ours.body, Body::Fragment(_)));
                return;
            }
        }
        Some(NetSlice::Ipv6(v6)) => {
            let header = v6.header();
            assert_eq!((ours.src, ours.dst), (Addr::V6(header.source()), Addr::V6(header.destination())));
            if v6.is_payload_fragmented() {
                assert!(matches!(ours.body, Body::Fragment(_)));
                return;
            }
        }
        _ => return,
    }
    match theirs.transport {
        Some(TransportSlice::Tcp(slice)) => {
            let segment = tcp(&ours);
            assert_eq!((segment.src_port, segment.dst_port), (slice.source_port(), slice.destination_port()));
            assert_eq!(
                (segment.seq, segment.ack, segment.window),
                (slice.sequence_number(), slice.acknowledgment_number(), slice.window_size())
            );
            assert_eq!((segment.flags & 0x02 != 0, segment.flags & 0x10 != 0), (slice.syn(), slice.ack()));
            assert_eq!(segment.payload, slice.payload());
        }
        Some(TransportSlice::Udp(slice)) if ![4789, 4791, 6081, 8472].contains(&slice.destination_port()) => {
            let Body::Udp(source, destination, payload) = ours.body else { panic!("{:?}", ours.body) };
            assert_eq!(
                (source, destination, payload),
                (slice.source_port(), slice.destination_port(), slice.payload())
            );
        }
        _ => {}
    }
}

fn build(v6: bool, tags: u8, stream: bool, payload: &[u8]) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let (source, destination) = ([0x20; 16], [0x21; 16]);
    let id = |n: u16| n.try_into().unwrap();
    let builder = match (tags, v6) {
        (0, false) => builder.ipv4([192, 0, 2, 1], [192, 0, 2, 2], 64),
        (0, true) => builder.ipv6(source, destination, 64),
        (1, false) => builder.single_vlan(id(7)).ipv4([192, 0, 2, 1], [192, 0, 2, 2], 64),
        (1, true) => builder.single_vlan(id(7)).ipv6(source, destination, 64),
        (_, false) => builder.double_vlan(id(7), id(8)).ipv4([192, 0, 2, 1], [192, 0, 2, 2], 64),
        (_, true) => builder.double_vlan(id(7), id(8)).ipv6(source, destination, 64),
    };
    let mut out = Vec::new();
    if stream {
        let options =
            [etherparse::TcpOptionElement::MaximumSegmentSize(1460), etherparse::TcpOptionElement::WindowScale(7)];
        builder
            .tcp(46466, 5445, 0xdead_beef, 1024)
            .ack(5)
            .psh()
            .options(&options)
            .unwrap()
            .write(&mut out, payload)
            .unwrap();
    } else {
        builder.udp(1000, 2000).write(&mut out, payload).unwrap();
    }
    out
}

#[test]
fn etherparse_s_packets_decode_whole() {
    for v6 in [false, true] {
        for tags in 0..3 {
            for stream in [false, true] {
                let bytes = build(v6, tags, stream, b"payload");
                let (packet, _) = decode(&bytes);
                assert_eq!((packet.fault, packet.cut), (None, 0));
                assert_eq!(packet.vlan, [None, Some(7), Some(8)][usize::from(tags)]);
                let found = match packet.body {
                    Body::Tcp(s) => s.payload,
                    Body::Udp(1000, 2000, payload) => payload,
                    other => panic!("{other:?}"),
                };
                assert_eq!(found, b"payload");
                agrees_with_etherparse(&bytes);
            }
        }
    }
    assert_eq!(IpNumber::UDP.0, 17);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Packets damaged in a few places: where etherparse reads one, it must be the same one.
    #[test]
    fn damaged_packets_are_read_as_etherparse_reads_them(
        v6: bool, tags in 0u8..3, stream: bool,
        payload in proptest::collection::vec(any::<u8>(), 0..40),
        damage in proptest::collection::vec((14usize..90, any::<u8>()), 0..3),
        trailer in 0usize..8,
    ) {
        let mut bytes = build(v6, tags, stream, &payload);
        bytes.extend(std::iter::repeat_n(0, trailer));
        for (at, value) in damage {
            if let Some(b) = bytes.get_mut(at) { *b = value; }
        }
        agrees_with_etherparse(&bytes);
    }

    /// Anything at all, of any link type: no panic, a tree inside of its bytes, the same packet with and without it.
    #[test]
    fn anything_decodes(link in prop::sample::select(vec![0u16, 1, 12, 101, 108, 113, 197, 228, 229, 247, 276, 999]), bytes in proptest::collection::vec(any::<u8>(), 0..300), more in 0usize..100) {
        decode_as(LinkType(link), &bytes, bytes.len() + more);
    }

    /// Real packets with a few bytes changed go deeper.
    #[test]
    fn damaged_frames_decode(which in 0usize..6, damage in proptest::collection::vec((0usize..200, any::<u8>()), 0..6), keep in 0usize..300) {
        let inner = ethernet(0x0800, &roce(Net::V4, 0x13, &[3; 40]));
        let (link, mut bytes) = match which {
            0 => (LinkType::ETHERNET, inner),
            1 => (LinkType::ETHERNET, ethernet(0x86dd, &roce(Net::V6, 0x64, &[3; 40]))),
            2 => (LinkType::ETHERNET, ethernet(0x0800, &ip(Net::V4, 17, &udp(4789, &[&[8, 0, 0, 0, 0, 0, 42, 0][..], &inner].concat())))),
            3 => (LinkType::INFINIBAND, native(true, &[3; 40])),
            4 => (LinkType::ETHERNET, roce_v1(&[3; 40])),
            _ => (LinkType::ETHERNET, build(false, 1, true, &[3; 40])),
        };
        for (at, value) in damage {
            if let Some(b) = bytes.get_mut(at) { *b = value; }
        }
        let wire_len = bytes.len();
        bytes.truncate(keep);
        decode_as(link, &bytes, wire_len);
    }
}

#[test]
fn a_native_packet_shorter_than_its_own_header_stays_inside_of_itself() {
    let mut bytes = [0; 20];
    bytes[1] = 0x54;
    bytes[4] = 24;
    let (packet, tree) = decode_as(LinkType::INFINIBAND, &bytes, bytes.len());
    assert!(matches!(packet.body, Body::Other("InfiniBand")), "{packet:?}");
    assert!(tree.nodes.iter().any(|n| n.def.name == "infiniband.lrh.pktlen"));
    assert!(
        !tree.nodes.iter().any(|n| n.def.name == "rdmascope.vcrc.status"),
        "there is no telling where a CRC would be"
    );
}
