//! Nanoseconds a frame, peeled without an observer: what live capture and the analyzer pay for each.
#![allow(missing_docs)]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use etherparse::PacketBuilder;
use rdmascope_dissector::frame::{self, LinkType, Options};
use rdmascope_dissector::trace::{Off, Tree};
use rdmascope_dissector::wire::ib::icrc::{self, Cover};
use std::hint::black_box;

/// A RoCEv2 frame with this BTH opcode, extension headers and payload, and a right ICRC.
fn roce(opcode: u8, body: &[u8]) -> Vec<u8> {
    let mut ib = vec![opcode, 0x40, 0xff, 0xff, 0, 0, 0, 0x12, 0x80, 0, 0, 7];
    ib.extend_from_slice(body);
    ib.extend_from_slice(&[0; 4]);
    let mut frame = Vec::new();
    PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
        .ipv4([192, 0, 2, 1], [192, 0, 2, 2], 64)
        .udp(49152, 4791)
        .write(&mut frame, &ib)
        .unwrap();
    let end = frame.len() - 4;
    let crc = icrc::invariant(Cover::Ipv4, &frame[14..end]).unwrap();
    frame[end..].copy_from_slice(&crc.to_le_bytes());
    frame
}

fn tcp(payload: usize) -> Vec<u8> {
    let mut frame = Vec::new();
    PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
        .ipv4([192, 0, 2, 1], [192, 0, 2, 2], 64)
        .tcp(46466, 5445, 1, 65535)
        .ack(2)
        .options(&[etherparse::TcpOptionElement::Timestamp(1, 2)])
        .unwrap()
        .write(&mut frame, &vec![0x55; payload])
        .unwrap();
    frame
}

fn decode(c: &mut Criterion) {
    let cases = [
        ("roce ack", roce(0x11, &[0x1f, 0, 0, 1])),
        ("roce send 128", roce(0x04, &[0x5a; 128])),
        ("roce write 1024", roce(0x06, &[0x5a; 16 + 1024])),
        ("roce write 4096", roce(0x06, &[0x5a; 16 + 4096])),
        ("tcp ack", tcp(0)),
        ("tcp 1400", tcp(1400)),
    ];
    let mut group = c.benchmark_group("decode");
    for (name, frame) in &cases {
        let wire_len = frame.len() as u32;
        group.throughput(Throughput::Elements(1));
        group.bench_function(*name, |b| {
            b.iter(|| frame::decode(LinkType::ETHERNET, black_box(frame), wire_len, &Options::default(), &mut Off))
        });
    }
    let no_crc = Options { check_crc: false, ..Options::default() };
    let wire_len = cases[2].1.len() as u32;
    group.bench_function("roce write 1024, ICRC not checked", |b| {
        b.iter(|| frame::decode(LinkType::ETHERNET, black_box(&cases[2].1), wire_len, &no_crc, &mut Off));
    });
    let mut tree = Tree::new();
    group.bench_function("roce write 1024, with a tree", |b| {
        b.iter(|| {
            tree.begin(&cases[2].1);
            frame::decode(LinkType::ETHERNET, black_box(&cases[2].1), wire_len, &Options::default(), &mut tree).cut
        });
    });
    group.finish();
}

criterion_group! { name = benches; config = Criterion::default().warm_up_time(std::time::Duration::from_millis(300)).measurement_time(std::time::Duration::from_secs(1)); targets = decode }
criterion_main!(benches);
