//! Entry points of the fuzz targets: arbitrary bytes, no panic, bounded cost.

use crate::compress;
use crate::{Anonymizer, Frame, Options, Payload, Tally};
use rdmascope_dissector::frame::LinkType;
use rdmascope_dissector::wire::ib::bth::{Bth, Opcode};
use rdmascope_dissector::wire::ib::icrc::{self, Cover, LEN as ICRC};
use rdmascope_dissector::wire::ip::{TCP, UDP, checksum};
use rdmascope_dissector::wire::smb2::compression::{self, Algorithm};
use rdmascope_dissector::wire::udp::ROCE_V2;

/// Anonymizes arbitrary frames: the same number of frames comes out, in the same order and of the same lengths. The
/// layout is that of `fuzz_pipeline`: the first byte chooses the link type; each frame has its length (two bytes,
/// little-endian), the time since the previous one (a power of two, in ns) and the number of bytes that the capture cut
/// off.
pub fn fuzz_anonymize(data: &[u8]) {
    const LINKS: [LinkType; 4] = [LinkType::ETHERNET, LinkType::INFINIBAND, LinkType::RAW, LinkType::ERF];
    let Some((&choice, mut rest)) = data.split_first() else { return };
    let payload = if choice & 0x80 == 0 { Payload::Zero } else { Payload::Stream };
    // a small limit: frames leave while messages are reassembled
    let mut anonymizer = Anonymizer::with_limit(Options { key: vec![choice], payload, ..Options::default() }, 16 << 10);
    let (mut sent, mut came, mut time_ns) = (Vec::new(), Vec::new(), 0i64);
    while let Some((&[low, high, step, cut], behind)) = rest.split_first_chunk() {
        let (bytes, behind) = behind.split_at(usize::from(u16::from_le_bytes([low, high])).min(behind.len()));
        rest = behind;
        time_ns = time_ns.wrapping_add(1 << (step % 40));
        let link_type = LINKS[usize::from(choice & 0x7f) % LINKS.len()];
        let frame = Frame { time_ns, link_type, wire_len: bytes.len() as u32 + u32::from(cut), interface: 0, bytes };
        anonymizer.frame(sent.len(), &frame, |n, bytes| came.push((n, bytes.len())));
        sent.push(bytes.len());
    }
    let frames = sent.len() as u64;
    let tally = anonymizer.finish(|n, bytes| came.push((n, bytes.len())));
    assert_eq!(tally.frames, frames);
    assert_eq!(came, sent.into_iter().enumerate().collect::<Vec<_>>());
}

/// A name, contents, a GUID and hardware addresses that must not remain.
const NAME: &str = "Zq7CanaryNameWkvX";
const CONTENTS: &[u8] = b"\x8e\x11canary contents\xfe\xa7 of one file\x93";
const GUID: [u8; 16] = [0xd3, 0x1f, 0x8a, 0x62, 0xb9, 0x4e, 0xc7, 0x45, 0xa6, 0x93, 0x7d, 0xe1, 0x58, 0x0c, 0xf4, 0x2b];
const MACS: [[u8; 6]; 2] = [[0x02, 0xe7, 0x5b, 0x91, 0xc3, 0x4d], [0x02, 0x8d, 0x36, 0xfa, 0x17, 0xb2]];
/// Source and destination of the datagrams.
const ADDRESSES: [[u8; 4]; 2] = [[203, 0, 113, 77], [198, 51, 100, 55]];
/// Length of a part of them that must not remain.
const PIECE: usize = 12;

/// Numbers from arbitrary bytes, then zeros.
struct Choices<'a>(std::slice::Iter<'a, u8>);

impl Choices<'_> {
    fn next(&mut self) -> u8 {
        self.0.next().copied().unwrap_or(0)
    }

    fn one_in(&mut self, n: u8) -> bool {
        self.next() % n == 1
    }
}

fn utf16(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

/// An SMB2 request: its header, \[MS-SMB2\] 2.2.1.2, and a body.
fn request(command: u16, id: u8, body: &[u8]) -> Vec<u8> {
    let mut made = b"\xfeSMB\x40\0\x01\0\0\0\0\0".to_vec();
    made.extend_from_slice(&command.to_le_bytes());
    made.extend_from_slice(&[
        1, 0, 0, 0, 0, 0, 0, 0, 0, 0, id, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0,
    ]);
    made.resize(64, 0);
    made.extend_from_slice(body);
    made
}

/// A TREE_CONNECT, CREATE, WRITE or NEGOTIATE request that contains one of them.
fn secret(id: u8, luck: &mut Choices<'_>) -> Vec<u8> {
    let path = utf16(&format!("\\\\{NAME}\\{NAME}"));
    let length = |bytes: &[u8]| (bytes.len() as u16).to_le_bytes();
    match luck.next() % 4 {
        0 => request(3, id, &[&[9, 0, 0, 0, 72, 0][..], &length(&path), &path].concat()),
        1 => {
            let name = utf16(&format!("{NAME}.docx"));
            let mut body = [0; 56];
            (body[0], body[4], body[44]) = (57, 2, 120);
            body[46..48].copy_from_slice(&length(&name));
            request(5, id, &[&body[..], &name].concat())
        }
        3 => {
            let mut body = [0; 38];
            (body[0], body[2], body[4], body[36], body[37]) = (36, 1, 1, 0x11, 3);
            body[12..28].copy_from_slice(&GUID);
            request(0, id, &body)
        }
        _ => {
            let data = CONTENTS.repeat(1 + usize::from(luck.next() % 40));
            let mut body = [0; 48];
            (body[0], body[2]) = (49, 112);
            body[16..32].copy_from_slice(&GUID);
            body[4..8].copy_from_slice(&(data.len() as u32).to_le_bytes());
            request(9, id, &[&body[..], &data].concat())
        }
    }
}

/// The message, perhaps compressed.
fn wrapped(plain: Vec<u8>, luck: &mut Choices<'_>) -> Vec<u8> {
    let algorithm = match luck.next() % 8 {
        1 => Algorithm::LZ77,
        2 => Algorithm::LZNT1,
        3 => Algorithm::LZ4,
        _ => return plain,
    };
    let offset = usize::from(luck.next()) % 65;
    let mut made = compression::PROTOCOL_ID.to_vec();
    made.extend_from_slice(&((plain.len() - offset) as u32).to_le_bytes());
    made.extend_from_slice(&algorithm.0.to_le_bytes());
    made.extend_from_slice(&[0; 2]);
    made.extend_from_slice(&(offset as u32).to_le_bytes());
    made.extend_from_slice(&plain[..offset]);
    made.extend(compress::plainly(algorithm, &plain[offset..]));
    made
}

/// An Ethernet frame with a datagram from the client to the server.
fn datagram(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut ip = vec![0x45, 0];
    ip.extend_from_slice(&(20 + payload.len() as u16).to_be_bytes());
    ip.extend_from_slice(&[0, 1, 0x40, 0, 64, protocol, 0, 0]);
    ip.extend_from_slice(ADDRESSES.as_flattened());
    let sum = checksum(&[&ip]);
    ip[10..12].copy_from_slice(&sum);
    [MACS.as_flattened(), &[8, 0], &ip, payload].concat()
}

fn segment(seq: u32, flags: u8, data: &[u8]) -> Vec<u8> {
    let mut tcp = vec![0x30, 0x39, 0x01, 0xbd];
    tcp.extend_from_slice(&seq.to_be_bytes());
    tcp.extend_from_slice(&[0, 0, 0, 1, 0x50, flags, 1, 0, 0, 0, 0, 0]);
    tcp.extend_from_slice(data);
    // with the pseudo-header
    let length = (tcp.len() as u16).to_be_bytes();
    let sum = checksum(&[ADDRESSES.as_flattened(), &[0, TCP], &length, &tcp]);
    tcp[16..18].copy_from_slice(&sum);
    datagram(TCP, &tcp)
}

/// A RoCEv2 Send with its invariant CRC.
fn packet(opcode: Opcode, psn: u32, payload: &[u8]) -> Vec<u8> {
    let padded = payload.len().next_multiple_of(4);
    let mut udp = vec![0xc0, 0];
    udp.extend_from_slice(&ROCE_V2.to_be_bytes());
    udp.extend_from_slice(&((8 + Bth::LEN + padded + ICRC) as u16).to_be_bytes());
    udp.extend_from_slice(&[0; 2]);
    Bth { ack: 0x80, ..Bth::new(opcode, 0x11, psn) }.padded(payload.len()).emit(&mut udp);
    udp.extend_from_slice(payload);
    udp.resize(udp.len() + padded - payload.len() + ICRC, 0);
    let mut frame = datagram(UDP, &udp);
    let at = frame.len() - ICRC;
    if let Some(crc) = icrc::invariant(Cover::Ipv4, &frame[14..at]) {
        frame[at..].copy_from_slice(&crc.to_le_bytes());
    }
    frame
}

/// Anonymizes messages with names, contents, GUIDs and addresses, no part of which may remain. They go over TCP or over
/// SMB Direct on RoCE, some compressed, split at any offset into segments, fragments and packets, some of which are
/// repeated, reordered or missing.
pub fn fuzz_canaries(data: &[u8]) -> Tally {
    let mut luck = Choices(data.iter());
    let by_tcp = luck.one_in(2);
    let payload = if luck.one_in(2) { Payload::Stream } else { Payload::Zero };
    let mut frames = Vec::new();
    let (mut seq, mut psn) = (1000_u32, 1_u32);
    if by_tcp {
        frames.push(segment(seq - 1, 2, &[]));
    }
    for id in 0..1 + luck.next() % 4 {
        let message = wrapped(secret(id, &mut luck), &mut luck);
        if by_tcp {
            let mut rest = &[&(message.len() as u32).to_be_bytes()[..], &message].concat()[..];
            while !rest.is_empty() {
                let (now, after) = rest.split_at((1 + usize::from(luck.next()) * 6).min(rest.len()));
                frames.push(segment(seq, 0x18, now));
                (seq, rest) = (seq + now.len() as u32, after);
            }
            continue;
        }
        let mut rest = &message[..];
        while !rest.is_empty() {
            let (now, after) = rest.split_at((16 + usize::from(luck.next()) * 8).min(rest.len()));
            // a data transfer message, [MS-SMBD] 2.2.3
            let mut sent = vec![10, 0, 1, 0, 0, 0, 0, 0];
            sent.extend_from_slice(&(after.len() as u32).to_le_bytes());
            sent.extend_from_slice(&[24, 0, 0, 0]);
            sent.extend_from_slice(&(now.len() as u32).to_le_bytes());
            sent.extend_from_slice(&[0; 4]);
            sent.extend_from_slice(now);
            let parts: Vec<&[u8]> = sent.chunks(256 << (luck.next() % 3)).collect();
            for (n, part) in parts.iter().enumerate() {
                let opcode = match (n, n + 1 == parts.len()) {
                    (0, true) => Opcode::RC_SEND_ONLY,
                    (0, false) => Opcode::RC_SEND_FIRST,
                    (_, false) => Opcode::RC_SEND_MIDDLE,
                    (_, true) => Opcode::RC_SEND_LAST,
                };
                frames.push(packet(opcode, psn, part));
                psn += 1;
            }
            rest = after;
        }
    }
    let mut order: Vec<usize> = Vec::new();
    for n in 0..frames.len() {
        match luck.next() % 16 {
            1 => {}
            2 => order.extend([n, n]),
            3 => order.insert(order.len().saturating_sub(1), n),
            _ => order.push(n),
        }
    }
    let options = Options { key: vec![luck.next()], payload, ..Options::default() };
    // with a small limit in one of eight cases
    let mut anonymizer =
        if luck.one_in(8) { Anonymizer::with_limit(options, 2 << 10) } else { Anonymizer::new(options) };
    let mut made: Vec<Vec<u8>> = Vec::new();
    for (n, place) in order.iter().enumerate() {
        let bytes = &frames[*place];
        let (wire_len, link_type) = (bytes.len() as u32, LinkType::ETHERNET);
        let frame = Frame { time_ns: n as i64 * 1000, link_type, wire_len, interface: 0, bytes };
        anonymizer.frame((), &frame, |(), bytes| made.push(bytes.to_vec()));
    }
    let tally = anonymizer.finish(|(), bytes| made.push(bytes.to_vec()));
    let big: Vec<u8> = NAME.encode_utf16().flat_map(u16::to_be_bytes).collect();
    let turned: Vec<u8> = GUID.iter().rev().copied().collect();
    // the first three parts of a GUID are numbers, which some write in the other byte order
    let mut mixed = GUID;
    mixed[..4].reverse();
    mixed[4..6].reverse();
    mixed[6..8].reverse();
    for (frame, place) in made.iter().zip(&order) {
        assert_eq!(frame.len(), frames[*place].len());
        for address in [26..30, 30..34] {
            assert_ne!(frame.get(address.clone()), frames[*place].get(address), "an address is left");
        }
    }
    for canary in [NAME.as_bytes(), &utf16(NAME), &big, CONTENTS, &GUID, &turned, &mixed, &MACS[0], &MACS[1]] {
        for piece in canary.windows(PIECE.min(canary.len())) {
            // the comparison of the first byte is fast and excludes most
            let left = made.iter().position(|frame| frame.windows(piece.len()).any(|w| w[0] == piece[0] && w == piece));
            assert!(
                left.is_none(),
                "{piece:02x?} is left in frame {left:?} of {}: {:02x?}\n{tally:?}",
                made.len(),
                left.map(|n| (&made[n], &frames[order[n]]))
            );
        }
    }
    tally
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn seeds() -> Vec<Vec<u8>> {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/pipeline");
        std::fs::read_dir(folder).unwrap().map(|entry| std::fs::read(entry.unwrap().path()).unwrap()).collect()
    }

    /// Number of cases: `PROPTEST_CASES`, or the given one.
    fn cases(otherwise: u32) -> u32 {
        std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(otherwise)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: cases(500), failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn no_canary_is_left_however_it_is_cut_and_compressed(luck in proptest::collection::vec(any::<u8>(), 0..120)) {
            fuzz_canaries(&luck);
        }
    }

    #[test]
    fn a_first_fragment_behind_others_keeps_nothing() {
        fuzz_canaries(&[
            162, 0, 11, 80, 0, 203, 81, 0, 0, 8, 0, 0, 49, 0, 0, 0, 8, 0, 44, 0, 20, 16, 0, 0, 249, 0, 10, 0, 0, 242,
        ]);
    }

    #[test]
    fn canaries_are_found_as_names_and_contents_and_compressed_again() {
        // over TCP, zeros, one message; then its kind and its compression
        for kind in 0..4 {
            let blanked = |tally: &Tally| tally.blanked.iter().map(|(_, _, bytes)| bytes).sum::<u64>();
            let plain = fuzz_canaries(&[1, 0, 0, kind, 0, 0, 250, 250, 250]);
            assert!(plain.replaced.iter().any(|(_, times, _)| *times > 0) && blanked(&plain) == 0, "{kind}: {plain:?}");
            for algorithm in 1..4 {
                // contents take one more number: their length
                let luck: &[u8] =
                    if kind == 2 { &[1, 0, 0, kind, 9, algorithm, 0] } else { &[1, 0, 0, kind, algorithm, 0] };
                let tally = fuzz_canaries(&[luck, &[250; 8]].concat());
                assert_eq!((tally.recompressed, tally.compressed), (1, 0), "{kind} {algorithm}: {tally:?}");
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: cases(200), failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn captures_that_are_damaged_come_out_whole(seed in 0..1000usize, at in 0..5000usize, bits in any::<u8>(), cut in 0..5000usize) {
            let all = seeds();
            let mut bytes = all[seed % all.len()].clone();
            fuzz_anonymize(&bytes);
            let length = bytes.len();
            bytes[at % length] ^= bits;
            fuzz_anonymize(&bytes);
            bytes.truncate(cut.max(1));
            fuzz_anonymize(&bytes);
        }
    }
}
