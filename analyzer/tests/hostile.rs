//! Captures that are made to cost time, or to make numbers overflow.

#[path = "common/build.rs"]
mod build;
mod common;

use build::*;
use common::*;
use rdmascope_dissector::wire::ib::bth::Opcode;
use rdmascope_dissector::wire::iwarp::rdmap;
use rdmascope_dissector::wire::smbd::BufferDescriptorV1;
use std::time::{Duration, Instant};

/// Time limit for work of a second, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Pieces with holes between them cost about what pieces without holes cost.
#[test]
fn a_payload_of_many_holes_takes_no_longer_than_its_pieces() {
    const PIECES: u32 = 200_000;
    const LENGTH: u32 = 8 << 20;
    // in order, in the other order, and each far from the one before
    let orders: [fn(u32) -> u32; 3] = [|n| n, |n| PIECES - 1 - n, |n| n * 7919 % PIECES];
    for order in orders {
        let mut c = Conversation::default();
        c.smb();
        let header = c.smb2_read(1, LENGTH, &[descriptor(5, LENGTH)]);
        for n in 0..PIECES {
            let reth = Conversation::reth(5, address(5) + u64::from(order(n)) * 40, 8);
            c.requested(S, Opcode::RC_RDMA_WRITE_ONLY, &reth, &[b'w'; 8]);
        }
        c.reply(&header, 0, &Conversation::read_body(LENGTH));
        let begun = Instant::now();
        let (_, kept) = analyze_frames(&c.frames);
        assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
        let read = kept.exchanges.iter().find(|e| e.command == "READ").expect("a READ");
        assert_eq!(read.payload_holes, Some(u64::from(LENGTH - 8 * PIECES)));
    }
}

/// Sums and differences of addresses, offsets and lengths may leave the 64 bits.
#[test]
fn addresses_and_lengths_of_any_size_are_borne() {
    const ENDS: [u64; 8] = [0, 1, u32::MAX as u64, 1 << 32, i64::MAX as u64, 1 << 63, u64::MAX - 1023, u64::MAX];
    const LENGTHS: [u32; 5] = [0, 1, 1024, i32::MAX as u32, u32::MAX];
    for offset in ENDS {
        for length in LENGTHS {
            let described = BufferDescriptorV1 { offset, token: 5, length };
            let places = [
                offset,
                offset.wrapping_sub(1),
                offset.wrapping_add(u64::from(length)),
                offset ^ (1 << 63),
                0,
                u64::MAX,
            ];
            let mut c = Conversation::default();
            c.smb();
            let read = c.smb2_read(1, length, &[described]);
            for at in places {
                for said in [8, 0, u32::MAX] {
                    c.requested(S, Opcode::RC_RDMA_WRITE_ONLY, &Conversation::reth(5, at, said), &[b'w'; 8]);
                }
            }
            c.reply(&read, 0, &Conversation::read_body(length));
            let write = c.smb2_write(length, &[described]);
            for at in places {
                for said in [8, 0, u32::MAX] {
                    let psn = c.psn[S];
                    c.psn[S] += 1;
                    c.roce(S, READ_REQUEST, psn, &Conversation::reth(5, at, said), &[]);
                    c.read_response(C, psn, 8);
                }
            }
            c.reply(&write, 0, &Conversation::write_body(length));
            let (report, _) = analyze_frames(&c.frames);
            assert_eq!(report.capture.frames, c.frames.len() as u64, "{offset:#x} {length}");

            let mut c = Conversation::default();
            c.smb_iwarp();
            let read = c.smb2_read(1, length, &[described]);
            for at in places {
                c.fpdu(S, &Conversation::tagged(rdmap::Opcode::WRITE, 5, at, &[b'w'; 8]));
            }
            c.reply(&read, 0, &Conversation::read_body(length));
            let (report, _) = analyze_frames(&c.frames);
            assert_eq!(report.capture.frames, c.frames.len() as u64, "iWARP, {offset:#x} {length}");
        }
    }
}
