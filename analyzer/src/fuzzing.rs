//! Entry points of the fuzz targets: arbitrary bytes in, no panic, bounded cost.

use crate::keys::cipher::{HEADER_LEN, session_id};
use crate::keys::{CipherId, ConnectionCrypto, Dialect, Direction, Key, Keyring, Keys, SessionCrypto, SigningAlgorithm, Verdict};
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

/// A session whose negotiated values the first two bytes choose. Messages follow, each after a byte for its direction and a length of
/// 16 bits: SESSION_SETUP up to the first that is empty, then what the session encrypts or signs.
pub fn fuzz_smb_session(data: &[u8]) {
    const DIALECTS: [Dialect; 4] = [Dialect::SMB_2_1, Dialect::SMB_3_0, Dialect::SMB_3_0_2, Dialect::SMB_3_1_1];
    let Some((&[choice, algorithms], mut rest)) = data.split_first_chunk() else { return };
    let mut keyring = Keyring::new();
    keyring.add_password(None, "labpass");
    keyring.add_session(1, Keys { session_key: Some(Key::of([1; 16])), client_to_server: Some(Key::of([2; 32])), ..Keys::default() });
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
            (false, _) => session.response(message, if direction & 2 == 0 { 0xc000_0016 } else { 0 }, 1, message, &keyring),
            (true, _) => {
                let way = if direction & 1 == 0 { Direction::ToServer } else { Direction::ToClient };
                if session.decrypt(way, message, &mut output).is_ok() {
                    assert!(session_id(message).is_some() && output.len() <= message.len() - HEADER_LEN);
                } else {
                    assert!(output.is_empty());
                }
                assert!(session.verify(message) != Verdict::Verified || message.len() >= 64);
            }
        }
    }
}

/// Frames of a capture through the whole pipeline, without an observer and with a tree: both must find the same. The first byte
/// chooses the link type; each frame has its length (two bytes, little-endian), the time since the one before it (a power of two,
/// in ns) and how much of it was cut off.
pub fn fuzz_pipeline(data: &[u8]) {
    const LINKS: [LinkType; 4] = [LinkType::ETHERNET, LinkType::INFINIBAND, LinkType::RAW, LinkType::ERF];
    let Some((&choice, mut rest)) = data.split_first() else { return };
    let mut tree = Tree::new();
    let (mut without, mut with) = (Pipeline::<Quiet>::default(), Pipeline::<Quiet>::default());
    let mut meta = FrameMeta { number: 0, time_ns: 0, link_type: LINKS[usize::from(choice) % LINKS.len()], wire_len: 0, interface: 0 };
    while let Some((&[low, high, step, cut], behind)) = rest.split_first_chunk() {
        let (bytes, behind) = behind.split_at(usize::from(u16::from_le_bytes([low, high])).min(behind.len()));
        rest = behind;
        meta.number += 1;
        meta.time_ns = meta.time_ns.wrapping_add(1 << (step % 40));
        meta.wire_len = bytes.len() as u32 + u32::from(cut);
        without.frame(&meta, bytes, &mut Off);
        tree.begin(bytes);
        with.frame(&meta, bytes, &mut tree);
    }
    let ((without, _), (with, _)) = (without.finish(), with.finish());
    assert_eq!(without.findings.ranked(), with.findings.ranked());
    assert_eq!(without.connections.len(), with.connections.len());
    for finding in &without.findings {
        assert!(finding.count >= finding.frames.len() as u64 && !finding.text.is_empty(), "{finding:?}");
        assert!(finding.frames.iter().all(|&frame| frame <= meta.number), "{finding:?} of {} frames", meta.number);
    }
}
