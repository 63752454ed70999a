//! Following iWARP allocates nothing per segment once it is warm. A test binary of its own, since it counts every
//! allocation of the process.

#[path = "../../dissector/tests/counting/mod.rs"]
mod counting;

use counting::allocations;
use rdmascope_analyzer::flow::iwarp::{FlowFact, FlowSink, Options, StreamBytes, TcpFlow};
use rdmascope_analyzer::op::{At, End, RdmaOp};
use rdmascope_dissector::frame::Segment;
use rdmascope_dissector::trace::{Off, Trace};
use rdmascope_dissector::wire::iwarp::{mpa, rdmap};

#[derive(Default)]
struct Count {
    ops: u64,
    facts: u64,
}

impl FlowSink for Count {
    fn op<T: Trace>(&mut self, _: &RdmaOp<'_>, _: &mut T) {
        self.ops += 1;
    }
    fn fact(&mut self, _: At, _: End, fact: FlowFact<'_>) {
        self.facts +=
            u64::from(!matches!(fact, FlowFact::ReadsOutstanding(_) | FlowFact::Assembled(_) | FlowFact::BeganLate));
    }
    fn bytes<T: Trace>(&mut self, _: &StreamBytes<'_>, _: &mut T) {
        panic!("it is MPA");
    }
}

fn segment(by: End, seq: u32, payload: &[u8]) -> Segment<'_> {
    Segment {
        src_port: 1 + by.index() as u16,
        dst_port: 2 - by.index() as u16,
        seq,
        ack: 0,
        flags: 0x18,
        window: 9,
        payload,
        payload_length: payload.len() as u32,
        ..Segment::default()
    }
}

/// Sends, Writes, Reads and their Responses, with CRCs; cut into segments of `size` bytes, or one an FPDU.
fn run(size: Option<usize>, markers: bool) {
    let mut fpdus: Vec<Vec<u8>> = Vec::new();
    let mut position = 0;
    for n in 0..400_u32 {
        let mut request = Vec::new();
        rdmap::ReadRequest { sink_stag: n, sink_offset: 0, size: 1, source_stag: 1, source_offset: 2 }
            .emit(&mut request);
        for ddp in [
            rdmap::untagged(rdmap::Opcode::SEND, true, 1 + n, 0, 0, &[7; 200]),
            rdmap::tagged(rdmap::Opcode::WRITE, true, 9, 4096 * u64::from(n), &[8; 1400]),
            rdmap::untagged(rdmap::Opcode::READ_REQUEST, true, 1 + n, 0, 0, &request),
        ] {
            let (mut ulpdu, mut out) = (Vec::new(), Vec::new());
            ddp.emit(&mut ulpdu);
            if markers {
                position = mpa::emit_fpdu_with_markers(&ulpdu, true, position, &mut out);
            } else {
                mpa::emit_fpdu(&ulpdu, true, &mut out);
            }
            fpdus.push(out);
        }
    }
    let segments: Vec<Vec<u8>> = match size {
        None => fpdus,
        Some(size) => fpdus.concat().chunks(size).map(<[u8]>::to_vec).collect(),
    };
    let answers: Vec<Vec<u8>> = (0..400_u32)
        .map(|n| {
            let (mut ulpdu, mut out) = (Vec::new(), Vec::new());
            rdmap::tagged(rdmap::Opcode::READ_RESPONSE, true, n, 0, &[1]).emit(&mut ulpdu);
            mpa::emit_fpdu(&ulpdu, true, &mut out);
            out
        })
        .collect();
    let (mut flow, mut count, options) = (TcpFlow::new(), Count::default(), Options::default());
    let startup = |reply: bool| {
        let key = if reply { mpa::REPLY_KEY } else { mpa::REQUEST_KEY };
        [&key[..], &[if markers && reply { 0xc0 } else { 0x40 }, 1, 0, 0]].concat()
    };
    let (mut seq, mut frame) = ([1000, 2000_u32], 0);
    let mut next = |flow: &mut TcpFlow, count: &mut Count, by: End, bytes: &[u8]| {
        frame += 1;
        // the time in which copies of a mirror are looked for, at the beginning of a connection, ends in the first
        // quarter
        flow.segment(
            At { frame, time: frame as i64 * 100_000 },
            by,
            &segment(by, seq[by.index()], bytes),
            &options,
            &mut Off,
            count,
        );
        seq[by.index()] = seq[by.index()].wrapping_add(bytes.len() as u32);
    };
    next(&mut flow, &mut count, End::A, &startup(false));
    next(&mut flow, &mut count, End::B, &startup(true));
    let (mut before, mut answered) = (0, 0);
    for (n, bytes) in segments.iter().enumerate() {
        if n == segments.len() / 4 {
            before = allocations();
        }
        next(&mut flow, &mut count, End::A, bytes);
        // well behind the requests
        if answered + 9 < n * 400 / segments.len() {
            next(&mut flow, &mut count, End::B, &answers[answered]);
            answered += 1;
        }
    }
    assert_eq!(allocations() - before, 0, "in segments of {size:?}");
    assert_eq!((count.ops, count.facts), (1200 + answered as u64, 2), "in segments of {size:?}");
}

#[test]
fn following_allocates_nothing_per_segment() {
    for markers in [false, true] {
        run(None, markers);
        run(Some(1448), markers);
        run(Some(61), markers);
    }
}
