//! One capture seen again behind a router, in another VLAN, in a tunnel, under other addresses, from later on: the
//! packets are known again, the losses are found, and what was changed is told.

use rdmascope_analyzer::pipeline::{FrameMeta, Pipeline};
use rdmascope_capture::{OpenOptions, Source, open};
use rdmascope_compare::points::{Change, Comparison, Hop, Point, Timed};
use rdmascope_dissector::frame::{self, LinkType};
use rdmascope_dissector::trace::Off;
use rdmascope_dissector::wire::ib::icrc::{self, Cover};
use std::path::Path;

/// ns that the second clock is ahead.
const AHEAD: i64 = 3_000_000_000;
/// ns that a packet takes from one point to the other.
const DELAY: i64 = 20_000;
const ETHERNET: usize = 14;
const CLIENT: [u8; 4] = [192, 0, 2, 2];
const SERVER: [u8; 4] = [192, 0, 2, 1];
/// The client's address behind the router.
const OUTSIDE: [u8; 4] = [203, 0, 113, 9];

#[derive(Clone)]
struct Record {
    time_ns: i64,
    link_type: LinkType,
    bytes: Vec<u8>,
}

impl Record {
    /// The IPv4 header and what follows.
    fn ip(&mut self) -> Option<&mut [u8]> {
        let is_v4 = self.bytes.get(12..14) == Some(&[8, 0]) && self.bytes.len() >= ETHERNET + 28;
        is_v4.then(|| &mut self.bytes[ETHERNET..])
    }

    fn is_from(&self, address: [u8; 4]) -> bool {
        self.bytes.get(12..14) == Some(&[8, 0]) && self.bytes.get(26..30) == Some(&address)
    }
}

fn sample(name: &str) -> Vec<Record> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../samples/{name}/{name}.pcap"));
    let mut source = open(&path, OpenOptions::new()).unwrap();
    let mut records = Vec::new();
    while matches!(source.advance(), Ok(true)) {
        let r = source.record();
        records.push(Record { time_ns: r.time_ns, link_type: r.link_type, bytes: r.bytes.to_vec() });
    }
    records
}

fn point(records: &[Record]) -> Point {
    let mut pipeline = Pipeline::with_sink(Default::default(), Point::default());
    let decode = pipeline.decode_options();
    for (n, r) in records.iter().enumerate() {
        let wire_len = r.bytes.len() as u32;
        let meta =
            FrameMeta { number: n as u64 + 1, time_ns: r.time_ns, link_type: r.link_type, wire_len, interface: 0 };
        let mut hop = Hop::default();
        let packet = frame::decode(r.link_type, &r.bytes, wire_len, &decode, &mut hop);
        pipeline.sink().packet(meta.number, meta.time_ns, &packet, &hop, &r.bytes);
        pipeline.packet(&meta, &packet, &mut Off);
    }
    let (report, mut point) = pipeline.finish();
    point.findings(&report);
    point
}

/// What a point at the server sees: each packet as `change` makes it, and those of `lost` (frames of the first point,
/// by number) not at all.
fn at_the_server(records: &[Record], lost: &[u64], change: impl Fn(&mut Record)) -> Vec<Record> {
    let mut seen = Vec::new();
    for (n, record) in records.iter().enumerate() {
        if lost.contains(&(n as u64 + 1)) {
            continue;
        }
        let mut there = record.clone();
        there.time_ns += AHEAD + if record.is_from(CLIENT) { DELAY } else { -DELAY };
        change(&mut there);
        seen.push(there);
    }
    seen.sort_by_key(|r| r.time_ns);
    seen
}

/// ns before a packet at which a copy of it is sent that is lost.
const BEFORE: i64 = 30_000;

/// The capture with some packets of the client sent once more before, which are to be lost, and the frames of these: a
/// few requests, or TCP segments with data, of the second half.
fn with_losses(records: &[Record]) -> (Vec<Record>, Vec<u64>) {
    let is_request = |r: &Record| r.bytes[23] == 17 && r.bytes[36..38] == [0x12, 0xb7] && r.bytes[42] < 0x0d;
    let is_data = |r: &Record| r.bytes[23] == 6 && r.bytes.len() > 100;
    let fits = |r: &&Record| r.is_from(CLIENT) && r.bytes.len() >= 54 && (is_request(r) || is_data(r));
    let mut all: Vec<(bool, Record)> = records.iter().map(|record| (false, record.clone())).collect();
    for record in records.iter().skip(records.len() / 2).filter(fits).step_by(30).take(4) {
        let mut copy = record.clone();
        copy.time_ns -= BEFORE;
        let ip = copy.ip().unwrap();
        ip[4] ^= 0x40;
        sums(ip);
        if ip[9] == 17 {
            crc(ip);
        }
        all.push((true, copy));
    }
    all.sort_by_key(|(_, record)| record.time_ns);
    let lost = all.iter().zip(1..).filter(|((is_lost, _), _)| *is_lost).map(|(_, n)| n).collect();
    (all.into_iter().map(|(_, record)| record).collect(), lost)
}

fn sum(bytes: &[u8]) -> u32 {
    bytes.chunks(2).map(|b| u32::from(b[0]) << 8 | b.get(1).map_or(0, |b| u32::from(*b))).sum()
}

fn folded(mut sum: u32) -> [u8; 2] {
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    (!(sum as u16)).to_be_bytes()
}

/// Makes the checksums of an IPv4 datagram anew, as a router does.
fn sums(ip: &mut [u8]) {
    ip[10..12].fill(0);
    let header = folded(sum(&ip[..20]));
    ip[10..12].copy_from_slice(&header);
    let length = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
    if ip[9] == 6 && length >= 40 {
        ip[36..38].fill(0);
        let pseudo = sum(&ip[12..20]) + 6 + (length as u32 - 20);
        let made = folded(pseudo + sum(&ip[20..length]));
        ip[36..38].copy_from_slice(&made);
    }
}

/// A router: the client has another address, and TCP another port; packets have one hop less.
fn translate(record: &mut Record) {
    let (is_from, Some(ip)) = (record.is_from(CLIENT), record.ip()) else { return };
    let (address, port) = if is_from { (12, 20) } else { (16, 22) };
    if ip[address..address + 4] != CLIENT {
        return;
    }
    ip[address..address + 4].copy_from_slice(&OUTSIDE);
    ip[8] -= 1;
    if ip[9] == 6 {
        let moved = u16::from_be_bytes([ip[port], ip[port + 1]]) ^ 0x2000;
        ip[port..port + 2].copy_from_slice(&moved.to_be_bytes());
    }
    sums(ip);
}

/// The same by something that knows of RoCE, and makes the invariant CRC anew.
fn translate_roce(record: &mut Record) {
    translate(record);
    let Some(ip) = record.ip().filter(|ip| ip[9] == 17) else { return };
    crc(ip);
}

/// Makes the invariant CRC of a RoCEv2 packet anew.
fn crc(ip: &mut [u8]) {
    let length = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
    if let Some(crc) = ip.get(..length - 4).and_then(|covered| icrc::invariant(Cover::Ipv4, covered)) {
        ip[length - 4..length].copy_from_slice(&crc.to_le_bytes());
    }
}

fn tag(record: &mut Record) {
    record.bytes.splice(12..12, [0x81, 0x00, 0x60, 0x2a]);
}

/// VXLAN with the network identifier 7.
fn tunnel(record: &mut Record) {
    let inner = std::mem::take(&mut record.bytes);
    let udp = inner.len() + 16;
    let mut ip = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    ip[2..4].copy_from_slice(&(udp as u16 + 20).to_be_bytes());
    sums(&mut ip);
    record.bytes = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0].to_vec();
    record.bytes.extend(ip);
    record.bytes.extend([0xc0, 0, 0x12, 0xb5]);
    record.bytes.extend((udp as u16).to_be_bytes());
    record.bytes.extend([0, 0, 8, 0, 0, 0, 0, 0, 7, 0]);
    record.bytes.extend(inner);
}

/// Holds what is found to what was done; the comparison for what is special.
fn held(name: &str, change: impl Fn(&mut Record)) -> Comparison {
    let (records, lost) = with_losses(&sample(name));
    assert_eq!(lost.len(), 4, "{name}");
    let mut requests: Vec<Timed> = Vec::new();
    let (here, there) = (point(&records), point(&at_the_server(&records, &lost, change)));
    let found = Comparison::telling(&here, &there, |timed| requests.push(*timed));
    let clock = found.clock.unwrap_or_else(|| panic!("{name}: nothing in common"));
    assert!(clock.both_ways && !clock.uneven, "{name}: {clock:?}");
    assert!((clock.offset - AHEAD as f64).abs() <= clock.uncertainty + 1.0, "{name}: {clock:?}");
    assert_eq!((found.ways[0].lost.1.clone(), found.ways[1].lost.0), (lost, 0), "{name}: {}", found.text(["a", "b"]));
    assert_eq!((found.ways[0].unseen.0, found.ways[1].unseen.0), (0, 0), "{name}");
    for (way, delay) in found.ways.iter().map(|w| (w, w.delay.quantile(0.5).unwrap())) {
        assert!(way.matched > 100 && (delay - DELAY).abs() as f64 <= clock.uncertainty + 500.0, "{name}: {delay} ns");
    }
    assert!(requests.len() > 20, "{name}: {} requests", requests.len());
    for timed in &requests {
        assert!((timed.first - timed.second - 2 * DELAY).abs() <= 1, "{name}: {timed:?}");
        assert!(timed.server <= timed.second, "{name}: {timed:?}");
    }
    found
}

/// True if a value is changed on the way to the server.
fn has_change(found: &Comparison, what: &'static str, was: &str, is: &str) -> bool {
    found.changes.contains_key(&Change { way: 0, what, was: was.to_owned(), is: is.to_owned() })
}

/// What is told of packets that are sent as `mark` makes them, and that `change` changes on the way to either side.
fn told(name: &str, mark: impl Fn(&mut Record), change: impl Fn(&mut Record)) -> String {
    let mut sent = sample(name);
    sent.iter_mut().for_each(mark);
    let arrives = |is_here: bool| {
        let mut seen = sent.clone();
        for record in seen.iter_mut().filter(|r| r.is_from(CLIENT) != is_here) {
            change(record);
        }
        seen
    };
    let found = Comparison::new(&point(&arrives(true)), &point(&at_the_server(&arrives(false), &[], |_| {})));
    let text = found.text(["client", "server"]);
    let told = text.split("\n\n").find_map(|part| part.strip_prefix("Changed on the way\n")).unwrap_or_default();
    // how many packets there are of each is the sample's
    told.lines().map(|line| line.split(" (").next().unwrap_or_default().trim()).collect::<Vec<_>>().join("\n")
}

/// Writes the byte of an IPv4 header that has DSCP and ECN.
fn class(record: &mut Record, dscp: u8, ecn: u8) {
    if let Some(ip) = record.ip() {
        ip[1] = dscp << 2 | ecn;
        sums(ip);
    }
}

#[test]
fn nothing_is_changed_where_nothing_was() {
    for name in ["smb-roce", "smb-iwarp"] {
        let found = held(name, |_| {});
        assert!(found.changes.is_empty(), "{name}: {:?}", found.changes);
    }
}

#[test]
fn address_translation_is_reported_and_no_obstacle() {
    for name in ["smb-iwarp", "nfs-iwarp-v42"] {
        let found = held(name, translate);
        assert!(has_change(&found, "source address", "192.0.2.2", "203.0.113.9"), "{name}: {:?}", found.changes);
        assert!(
            found.changes.keys().any(|change| change.what == "source port") && has_change(&found, "TTL", "64", "63"),
            "{name}"
        );
    }
}

#[test]
fn other_addresses_are_no_obstacle_on_roce_whether_the_invariant_crc_was_made_anew_or_not() {
    for change in [translate, translate_roce] {
        let found = held("smb-roce", change);
        assert!(has_change(&found, "source address", "192.0.2.2", "203.0.113.9"), "{:?}", found.changes);
    }
}

#[test]
fn a_vlan_is_reported_and_no_obstacle() {
    for name in ["smb-roce", "smb-iwarp"] {
        let found = held(name, tag);
        assert!(
            has_change(&found, "VLAN", "none", "42") && has_change(&found, "VLAN priority", "none", "3"),
            "{name}: {:?}",
            found.changes
        );
    }
}

#[test]
fn a_tunnel_is_reported_and_no_obstacle() {
    for name in ["smb-roce", "smb-iwarp"] {
        let found = held(name, tunnel);
        assert!(has_change(&found, "tunnel", "none", "VXLAN VNI 7"), "{name}: {:?}", found.changes);
    }
}

/// GRE with these flags and this protocol, and what stands behind them.
fn gre(record: &mut Record, head: &[u8], inner: Vec<u8>) {
    let length = (20 + head.len() + inner.len()) as u16;
    let mut ip = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 47, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    ip[2..4].copy_from_slice(&length.to_be_bytes());
    sums(&mut ip);
    record.bytes = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0].to_vec();
    record.bytes.extend(ip);
    record.bytes.extend(head);
    record.bytes.extend(inner);
}

#[test]
fn gre_and_mirrors_are_reported_and_no_obstacle() {
    // what carries IPv4, a key and Ethernet, ERSPAN II in VLAN 5, ERSPAN III
    let with_key = [0x20, 0, 0x65, 0x58, 0, 0, 0, 7];
    let erspan2 = [0x10, 0, 0x88, 0xbe, 0, 0, 0, 1, 0x10, 5, 0, 9, 0, 0, 0, 0];
    let erspan3 = [0x10, 0, 0x22, 0xeb, 0, 0, 0, 1, 0x20, 5, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0];
    let cases: [(&[u8], &str); 4] = [
        (&[0, 0, 8, 0], "GRE"),
        (&with_key, "GRE key 7"),
        (&erspan2, "ERSPAN II session 9"),
        (&erspan3, "ERSPAN III session 9"),
    ];
    for name in ["smb-roce", "smb-iwarp"] {
        for (head, said) in cases {
            let found = held(name, |record| {
                let inner = std::mem::take(&mut record.bytes);
                match inner.get(ETHERNET..).filter(|_| head.len() == 4) {
                    Some(ip) if inner[12..14] == [8, 0] => gre(record, head, ip.to_vec()),
                    _ => gre(record, head, inner),
                }
            });
            assert!(has_change(&found, "tunnel", "none", said), "{name}: {:?}", found.changes);
            assert!(found.changes.keys().all(|change| change.what == "tunnel"), "{name}: {:?}", found.changes);
        }
    }
}

#[test]
fn marks_that_are_rewritten_or_bleached_are_told_with_the_direction() {
    let both = |what: &str| format!("client → server\n{what}\nserver → client\n{what}");
    for name in ["smb-roce", "smb-iwarp"] {
        let mark = |record: &mut Record| class(record, 26, 2);
        assert_eq!(told(name, mark, |record| class(record, 0, 2)), both("DSCP 26 → 0: bleached"), "{name}");
        assert_eq!(told(name, mark, |record| class(record, 46, 2)), both("DSCP 26 → 46"), "{name}");
        assert_eq!(told(name, mark, |record| class(record, 26, 0)), both("ECN 2 → 0: bleached"), "{name}");
        assert_eq!(told(name, mark, |record| class(record, 26, 3)), both("ECN 2 → 3: congestion"), "{name}");
        let one_way = |record: &mut Record| {
            if record.is_from(SERVER) {
                class(record, 0, 2);
            }
        };
        assert_eq!(told(name, mark, one_way), "server → client\nDSCP 26 → 0: bleached", "{name}");
        let hops = |record: &mut Record| {
            if let Some(ip) = record.ip() {
                ip[8] = ip[8].saturating_sub(3);
                sums(ip);
            }
        };
        assert_eq!(told(name, |_| {}, hops), both("TTL 64 → 61"), "{name}");
    }
}

#[test]
fn the_priority_of_a_tag_is_told_where_it_is_rewritten_and_where_the_tag_is_new() {
    let both = |what: &str| format!("client → server\n{what}\nserver → client\n{what}");
    let priority = |record: &mut Record| record.bytes[14] &= 0x1f;
    for name in ["smb-roce", "smb-iwarp"] {
        // a tag hides the address from the helpers of this test: packets of both sides are known by it before
        let mut client = sample(name);
        client.iter_mut().for_each(tag);
        let mut server = at_the_server(&sample(name), &[], tag);
        server.iter_mut().for_each(priority);
        let found = Comparison::new(&point(&client), &point(&server));
        assert!(has_change(&found, "VLAN priority", "3", "0"), "{name}: {:?}", found.changes);
        assert!(found.text(["a", "b"]).contains("VLAN priority 3 → 0: bleached"), "{name}");
        assert_eq!(told(name, |_| {}, tag), both("VLAN none → 42\nVLAN priority none → 3"), "{name}");
    }
}

#[test]
fn all_at_once_are_no_obstacle() {
    let found = held("smb-iwarp", |record| {
        translate(record);
        tag(record);
        tunnel(record);
    });
    assert!(found.changes.len() >= 6, "{:?}", found.changes);
}

#[test]
fn captures_that_begin_late_or_end_early_lose_nothing_by_it() {
    for name in ["smb-roce", "smb-iwarp", "nfs-roce-v42"] {
        let (records, lost) = with_losses(&sample(name));
        let there = at_the_server(&records, &lost, |_| {});
        let (late, early) = (&there[there.len() * 2 / 5..], &records[..records.len() * 9 / 10]);
        let found = Comparison::new(&point(early), &point(late));
        let wanted: Vec<u64> = lost.iter().copied().filter(|n| *n < early.len() as u64 - 20).collect();
        assert_eq!(
            (found.ways[0].lost.1.clone(), found.ways[1].lost.0),
            (wanted, 0),
            "{name}: {}",
            found.text(["a", "b"])
        );
        assert_eq!((found.ways[0].unseen.0, found.ways[1].unseen.0), (0, 0), "{name}");
        assert!(found.ways.iter().all(|w| w.matched > 50), "{name}");
        let clock = found.clock.unwrap();
        assert!((clock.offset - AHEAD as f64).abs() <= clock.uncertainty + 1.0, "{name}: {clock:?}");
    }
}

#[test]
fn who_is_first_does_not_matter() {
    let records = sample("smb-roce");
    let (client, server) = (point(&records), point(&at_the_server(&records, &[], |_| {})));
    let (mut one, mut other) = (Vec::new(), Vec::new());
    Comparison::telling(&client, &server, |t| one.push((t.frames[0], t.client, t.server)));
    Comparison::telling(&server, &client, |t| other.push((t.frames[1], t.client, t.server)));
    other.sort_unstable();
    one.sort_unstable();
    assert!(one.len() > 50 && one == other);
    assert!(sample("smb-roce").iter().any(|r| r.is_from(SERVER)));
}

/// Handshakes look the same each time: two conversations of the same hosts have some packets in common.
#[test]
fn captures_of_different_conversations_are_not_compared() {
    for [here, there] in [["smb-roce", "smb-roce-loss"], ["nfs-roce-v42", "nfs-roce-v3"]] {
        let found = Comparison::new(&point(&sample(here)), &point(&sample(there)));
        assert!((1..32).contains(&found.chance) && found.clock.is_none(), "{here}, {there}: {}", found.chance);
        let text = found.text(["a", "b"]);
        assert!(text.contains("are of different conversations") && !text.contains("lost"), "{text}");
        assert!(found.ways.iter().all(|way| (way.matched, way.lost.0, way.missed.0) == (0, 0, 0)), "{here}, {there}");
    }
}
