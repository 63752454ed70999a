//! The way from a TCP segment to an RDMA operation: segments of one FPDU of 1400 bytes, with and without CRC, and FPDUs
//! that straddle segments.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rdmascope_analyzer::flow::iwarp::{FlowFact, FlowSink, Options, StreamBytes, TcpFlow};
use rdmascope_analyzer::op::{At, End, RdmaOp};
use rdmascope_dissector::frame::Segment;
use rdmascope_dissector::trace::{Off, Trace};
use rdmascope_dissector::wire::iwarp::{mpa, rdmap};

#[derive(Default)]
struct Sum(u64);

impl FlowSink for Sum {
    fn op<T: Trace>(&mut self, op: &RdmaOp<'_>, _: &mut T) {
        self.0 += u64::from(op.length);
    }
    fn fact(&mut self, _: At, _: End, _: FlowFact<'_>) {}
    fn bytes<T: Trace>(&mut self, bytes: &StreamBytes<'_>, _: &mut T) {
        self.0 += bytes.bytes.len() as u64;
    }
}

const SEGMENTS: usize = 1000;

fn bench(c: &mut Criterion) {
    let mut group = c.benchmark_group("segment to operation");
    group.throughput(Throughput::Elements(SEGMENTS as u64));
    for (name, crc, shift) in [("aligned, no CRC", false, 0), ("aligned, CRC", true, 0), ("straddling, CRC", true, 500)]
    {
        let (mut bytes, mut ulpdu) = (Vec::new(), Vec::new());
        rdmap::tagged(rdmap::Opcode::WRITE, true, 9, 0, &[8; 1380]).emit(&mut ulpdu);
        for _ in 0..=SEGMENTS {
            mpa::emit_fpdu(&ulpdu, crc, &mut bytes);
        }
        let size = mpa::fpdu_len(ulpdu.len() as u16);
        let (mut flow, mut sum, options) = (TcpFlow::new(), Sum::default(), Options::default());
        let (mut seq, mut frame) = (0_u32, 0);
        let mut next = |bytes: &[u8], by: End, seq: u32| {
            frame += 1;
            let segment = Segment {
                src_port: 1 + by.index() as u16,
                dst_port: 2 - by.index() as u16,
                seq,
                ack: 0,
                flags: 0x10,
                window: 9,
                payload: bytes,
                payload_length: bytes.len() as u32,
                ..Segment::default()
            };
            flow.segment(At { frame, time: 0 }, by, &segment, &options, &mut Off, &mut sum);
        };
        for (by, key) in [(End::A, mpa::REQUEST_KEY), (End::B, mpa::REPLY_KEY)] {
            next(&[&key[..], &[if crc { 0x40 } else { 0 }, 1, 0, 0]].concat(), by, 0);
        }
        seq += 20;
        next(&bytes[..shift], End::A, seq);
        seq += shift as u32;
        group.bench_function(name, |b| {
            b.iter(|| {
                for n in 0..SEGMENTS {
                    next(black_box(&bytes[shift + n * size..shift + (n + 1) * size]), End::A, seq);
                    seq = seq.wrapping_add(size as u32);
                }
            });
        });
    }
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
