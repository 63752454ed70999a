//! Entry points of the fuzz targets: arbitrary bytes in, no panic, bounded cost.

use crate::keys::cipher::{HEADER_LEN, session_id};
use crate::keys::{
    CipherId, ConnectionCrypto, Dialect, Direction, Key, Keyring, Keys, SessionCrypto, SignatureCheck, SigningAlgorithm,
};
use crate::pipeline::{FrameMeta, Pipeline};
use crate::report::Quiet;
use alloc::string::String;
use alloc::vec::Vec;
use rdmascope_dissector::frame::LinkType;
use rdmascope_dissector::trace::{Off, Tree};

/// The text of a key file.
pub fn fuzz_key_file(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Err(error) = Keyring::new().add_file(&text) {
        assert!(error.line >= 1 && error.line <= text.lines().count());
    }
}

/// A session whose negotiated values the first two bytes choose. Messages follow, each after a byte for its direction
/// and a length of 16 bits: SESSION_SETUP up to the first that is empty, then messages that the session encrypts or
/// signs.
pub fn fuzz_smb_session(data: &[u8]) {
    const DIALECTS: [Dialect; 4] = [Dialect::SMB_2_1, Dialect::SMB_3_0, Dialect::SMB_3_0_2, Dialect::SMB_3_1_1];
    let Some((&[choice, algorithms], mut rest)) = data.split_first_chunk() else { return };
    let mut keyring = Keyring::new();
    keyring.add_password(None, "labpass");
    keyring.add_session(
        1,
        Keys { session_key: Some(Key::of([1; 16])), client_to_server: Some(Key::of([2; 32])), ..Keys::default() },
    );
    let mut connection = ConnectionCrypto::new();
    if choice & 0x80 == 0 {
        let (cipher, signing) = (CipherId(u16::from(algorithms & 0x0f)), SigningAlgorithm(u16::from(algorithms >> 4)));
        connection.negotiate_request(&[]);
        connection.negotiate_response(&[], DIALECTS[usize::from(choice & 3)], Some(cipher), Some(signing));
    }
    let mut session = SessionCrypto::new(&connection);
    let mut output = Vec::new();
    while let Some((&[direction, low, high], after)) = rest.split_first_chunk() {
        let len = usize::from(u16::from_le_bytes([low, high])).min(after.len());
        let (message, after) = after.split_at(len);
        rest = after;
        match (session.is_established(), direction & 1) {
            (false, _) if message.is_empty() => session.establish(1, &keyring),
            (false, 0) => session.request(message, message, &keyring),
            (false, _) => {
                session.response(message, if direction & 2 == 0 { 0xc000_0016 } else { 0 }, 1, message, &keyring)
            }
            (true, _) => {
                let way = if direction & 1 == 0 { Direction::ToServer } else { Direction::ToClient };
                if session.decrypt(way, message, &mut output).is_ok() {
                    assert!(session_id(message).is_some() && output.len() <= message.len() - HEADER_LEN);
                } else {
                    assert!(output.is_empty());
                }
                assert!(session.verify(message) != SignatureCheck::Verified || message.len() >= 64);
            }
        }
    }
}

/// Frames of a capture through the whole pipeline, without an observer and with a tree: both must find the same. The
/// first byte chooses the link type; each frame has its length (two bytes, little-endian), the time since the one
/// before it (a power of two, in ns) and the number of bytes cut off.
pub fn fuzz_pipeline(data: &[u8]) {
    const LINKS: [LinkType; 4] = [LinkType::ETHERNET, LinkType::INFINIBAND, LinkType::RAW, LinkType::ERF];
    let Some((&choice, mut rest)) = data.split_first() else { return };
    let mut tree = Tree::new();
    let (mut without, mut with) = (Pipeline::<Quiet>::default(), Pipeline::<Quiet>::default());
    let mut meta = FrameMeta {
        number: 0,
        time_ns: 0,
        link_type: LINKS[usize::from(choice) % LINKS.len()],
        wire_len: 0,
        interface: 0,
    };
    while let Some((&[low, high, step, cut], behind)) = rest.split_first_chunk() {
        let (bytes, behind) = behind.split_at(usize::from(u16::from_le_bytes([low, high])).min(behind.len()));
        rest = behind;
        meta.number += 1;
        meta.time_ns = meta.time_ns.wrapping_add(1 << (step % 64));
        meta.wire_len = bytes.len() as u32 + u32::from(cut);
        without.frame(&meta, bytes, &mut Off);
        tree.begin(bytes);
        with.frame(&meta, bytes, &mut tree);
    }
    let ((without, _), (with, _)) = (without.finish(), with.finish());
    assert_eq!(without.findings.ranked(), with.findings.ranked());
    assert_eq!(without.connections.len(), with.connections.len());
    for finding in &without.findings {
        assert!(finding.count > 0 && !finding.text.is_empty(), "{finding:?}");
        assert!(finding.frames.iter().all(|&frame| frame <= meta.number), "{finding:?} of {} frames", meta.number);
    }
}

/// Segments of one TCP connection, each after a head of 8 bytes: kind, position, length. A few of the kinds put a piece
/// of well-formed MPA in its place, so that the following bytes are read as FPDUs.
pub fn fuzz_tcp_flow(data: &[u8]) {
    use crate::flow::iwarp::{FlowFact, FlowSink, Options, StreamBytes, TcpFlow};
    use crate::op::{At, End, RdmaOp};
    use rdmascope_dissector::frame::Segment;
    use rdmascope_dissector::trace::{Off, Trace, Tree};
    use rdmascope_dissector::wire::iwarp::{mpa, rdmap};

    #[derive(Default)]
    struct Sum(u64);
    impl FlowSink for Sum {
        fn op<T: Trace>(&mut self, op: &RdmaOp<'_>, _: &mut T) {
            assert!(op.bytes.len() <= op.length as usize);
            self.0 = self.0.wrapping_mul(31).wrapping_add(u64::from(op.length) ^ u64::from(op.read));
        }
        fn fact(&mut self, at: At, _: End, _: FlowFact<'_>) {
            self.0 = self.0.wrapping_mul(33).wrapping_add(at.frame);
        }
        fn bytes<T: Trace>(&mut self, bytes: &StreamBytes<'_>, _: &mut T) {
            self.0 = self.0.wrapping_mul(37).wrapping_add(bytes.bytes.len() as u64);
        }
    }

    let options = Options { hold_limit: 8 << 10, check_crc: true, reads_limit: 16 };
    let (mut seen, mut unseen) = ((TcpFlow::new(), Sum::default()), (TcpFlow::new(), Sum::default()));
    let (mut tree, mut made, mut next) = (Tree::new(), Vec::new(), [1000_u32, u32::MAX - 500]);
    let (mut rest, mut frame) = (data, 0);
    while let Some((&[kind, flags, seq, window, cut, far, low, high], after)) = rest.split_first_chunk() {
        let (payload, after) = after.split_at((usize::from(u16::from_le_bytes([low, high])) & 0x7ff).min(after.len()));
        (rest, frame) = (after, frame + 1);
        made.clear();
        match kind >> 1 & 7 {
            1 => {
                made.extend_from_slice(if kind & 1 == 0 { &mpa::REQUEST_KEY } else { &mpa::REPLY_KEY });
                made.extend_from_slice(&[seq & 0xf0, 1, 0, 0]);
            }
            2 | 3 => {
                let mut ulpdu = Vec::new();
                let opcode = rdmap::Opcode(seq & 0xf);
                let last = window & 1 == 0;
                if opcode.is_tagged() == Some(true) {
                    rdmap::tagged(opcode, last, u32::from(cut), u64::from(far), payload).emit(&mut ulpdu);
                } else {
                    rdmap::untagged(opcode, last, u32::from(cut), u32::from(far), 0, payload).emit(&mut ulpdu);
                }
                mpa::emit_fpdu(&ulpdu, seq & 0x10 == 0, &mut made);
            }
            _ => made.extend_from_slice(payload),
        }
        let by = if kind & 1 == 0 { End::A } else { End::B };
        // most segments come next; the others near it, or anywhere
        let expected = next[by.index()];
        let at_seq = match kind >> 4 {
            0..=9 => expected,
            10 | 11 => expected.wrapping_add(u32::from(far)),
            12 | 13 => expected.wrapping_sub(u32::from(far)),
            14 => expected.wrapping_add(u32::from(far) << 16),
            _ => u32::from_be_bytes([seq, window, cut, far]),
        };
        let cut = if kind >> 1 & 7 == 4 { u32::from(cut) } else { 0 };
        let segment = Segment {
            src_port: 1 + u16::from(kind & 1),
            dst_port: 2 - u16::from(kind & 1),
            seq: at_seq,
            ack: next[by.peer().index()].wrapping_add(if flags & 0x40 != 0 { u32::from(far) } else { 0 }),
            flags: if flags < 0x20 { flags } else { 0x10 },
            window: u16::from(window),
            payload: &made,
            payload_length: made.len() as u32 + cut,
            ..Segment::default()
        };
        next[by.index()] =
            at_seq.wrapping_add(segment.payload_length).wrapping_add(u32::from(flags & 2 != 0 && flags < 0x20));
        let at = At { frame, time: frame as i64 * 1_000_000 };
        tree.begin(&made);
        seen.0.segment(at, by, &segment, &options, &mut tree, &mut seen.1);
        unseen.0.segment(at, by, &segment, &options, &mut Off, &mut unseen.1);
        assert_eq!(seen.1.0, unseen.1.0, "observing changes nothing");
        assert!(seen.0.memory() < 2 << 20);
    }
    unseen.0.finish(At { frame, time: 0 }, &options, &mut Off, &mut unseen.1);
}
