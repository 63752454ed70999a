//! The same files through pcap-parser, a reader by other hands: the frames must be the same.

use std::io::Cursor;

use pcap_parser::traits::{PcapNGPacketBlock, PcapReaderIterator};
use pcap_parser::{Block, LegacyPcapReader, PcapBlockOwned, PcapError, PcapNGReader};
use proptest::collection::vec;
use proptest::prelude::*;
use rdmascope_capture::{CaptureFile, Interface, LinkType, PcapngWriter, Record, Section};

/// Seconds, fraction in the file's units, wire length, bytes.
type Frame = (u32, u32, u32, Vec<u8>);

fn frames() -> impl Strategy<Value = Vec<Frame>> {
    vec((any::<u32>(), 0..1_000_000u32, any::<u32>(), vec(any::<u8>(), 0..200)), 0..40)
}

fn legacy_file(frames: &[Frame], big_endian: bool, magic: u32) -> Vec<u8> {
    let word = |v: u32| if big_endian { v.to_be_bytes() } else { v.to_le_bytes() };
    let version = if big_endian { [0, 2, 0, 4] } else { [2, 0, 4, 0] };
    let mut file = [word(magic), version, [0; 4], [0; 4], word(65535), word(1)].concat();
    for (seconds, fraction, wire_len, bytes) in frames {
        file.extend([word(*seconds), word(*fraction), word(bytes.len() as u32), word(*wire_len)].concat());
        file.extend(bytes);
    }
    file
}

/// Frames as pcap-parser reads them.
fn by_the_other(mut reader: impl PcapReaderIterator) -> Vec<Frame> {
    let mut frames = Vec::new();
    loop {
        match reader.next() {
            Ok((len, block)) => {
                match block {
                    PcapBlockOwned::Legacy(b) => {
                        frames.push((b.ts_sec, b.ts_usec, b.origlen, b.data[..b.caplen as usize].to_vec()))
                    }
                    PcapBlockOwned::NG(Block::EnhancedPacket(b)) => {
                        frames.push((b.ts_high, b.ts_low, b.origlen, b.packet_data().to_vec()));
                    }
                    _ => {}
                }
                reader.consume(len);
            }
            Err(PcapError::Eof) => return frames,
            Err(PcapError::Incomplete(_)) => reader.refill().unwrap(),
            Err(e) => panic!("{e:?}"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn pcap_of_both_byte_orders_and_units(frames in frames(), big_endian: bool, nanoseconds: bool) {
        let magic = if nanoseconds { 0xa1b2_3c4d } else { 0xa1b2_c3d4 };
        let unit = if nanoseconds { 1 } else { 1000 };
        let file = legacy_file(&frames, big_endian, magic);
        let theirs = by_the_other(LegacyPcapReader::new(1 << 16, Cursor::new(file.clone())).unwrap());
        let whole = CaptureFile::from_bytes(file, "test").unwrap();
        let ours: Vec<_> = whole.records().map(|r| r.unwrap()).map(|r| (r.time_ns, r.wire_len, r.bytes.to_vec())).collect();
        let theirs: Vec<_> = theirs.into_iter().map(|(s, f, w, b)| (i64::from(s) * 1_000_000_000 + i64::from(f) * unit, w, b)).collect();
        prop_assert_eq!(ours, theirs);
    }

    #[test]
    fn pcapng_as_written_here(frames in frames()) {
        let mut w = PcapngWriter::new(Vec::new(), "written", &Section::default()).unwrap();
        w.add_interface(&Interface::new(LinkType::ETHERNET)).unwrap();
        for (seconds, fraction, wire_len, bytes) in &frames {
            let time = i64::from(*seconds) << 20 | i64::from(*fraction);
            w.write_with_comments(&Record::new(time, 0, LinkType::ETHERNET, *wire_len, bytes), &["a comment"]).unwrap();
        }
        let file = w.finish().unwrap();
        let theirs = by_the_other(PcapNGReader::new(1 << 16, Cursor::new(file.clone())).unwrap());
        let whole = CaptureFile::from_bytes(file, "test").unwrap();
        let ours: Vec<_> = whole.records().map(|r| r.unwrap()).map(|r| (r.time_ns, r.wire_len, r.bytes.to_vec())).collect();
        let theirs: Vec<_> = theirs.into_iter().map(|(h, l, w, b)| (i64::from(h) << 32 | i64::from(l), w, b)).collect();
        prop_assert_eq!(ours, theirs);
    }
}
