//! Properties that hold for every input: no panic, termination, all records before a cut, and that written captures can
//! be read.

use std::io::{Cursor, Write};

use proptest::collection::vec;
use proptest::prelude::*;
use rdmascope_capture::fuzzing::fuzz_capture_file;
use rdmascope_capture::{
    CaptureFile, Interface, LinkType, PcapWriter, PcapngWriter, Problem, Record, Section, Source, StreamSource,
};

/// A frame to write.
#[derive(Debug, Clone, PartialEq)]
struct Frame {
    time_ns: i64,
    interface: u32,
    wire_len: u32,
    bytes: Vec<u8>,
    comments: Vec<String>,
}

fn frames(interfaces: u32) -> impl Strategy<Value = Vec<Frame>> {
    let frame = (0..i64::MAX, 0..interfaces, any::<u32>(), vec(any::<u8>(), 0..80), vec("[^\0]{1,9}", 0..3));
    let frame = frame.prop_map(|(time_ns, interface, wire_len, bytes, comments)| Frame {
        time_ns,
        interface,
        wire_len,
        bytes,
        comments,
    });
    vec(frame, 0..12)
}

const LINK_TYPES: [LinkType; 3] = [LinkType::ETHERNET, LinkType::INFINIBAND, LinkType::LINUX_SLL2];

fn pcapng(frames: &[Frame]) -> Vec<u8> {
    let mut w = PcapngWriter::new(Vec::new(), "written", &Section::default()).unwrap();
    for link_type in LINK_TYPES {
        w.add_interface(&Interface::new(link_type)).unwrap();
    }
    for f in frames {
        let comments: Vec<&str> = f.comments.iter().map(String::as_str).collect();
        let record = Record::new(f.time_ns, f.interface, LINK_TYPES[f.interface as usize], f.wire_len, &f.bytes);
        w.write_with_comments(&record, &comments).unwrap();
    }
    w.finish().unwrap()
}

fn pcap(frames: &[Frame]) -> Vec<u8> {
    let mut w = PcapWriter::new(Vec::new(), "written", LinkType::ETHERNET, 65535, true).unwrap();
    for f in frames {
        w.write(&Record::new(f.time_ns % (1 << 32), 0, LinkType::ETHERNET, f.wire_len, &f.bytes)).unwrap();
    }
    w.finish().unwrap()
}

/// Offsets and ends of the records of a whole file.
fn ends(file: &[u8]) -> Vec<u64> {
    let whole = CaptureFile::from_bytes(file.to_vec(), "whole").unwrap();
    let mut records = whole.records();
    let mut ends = Vec::new();
    while let Some(record) = records.next() {
        record.unwrap();
        ends.push(records.offset());
    }
    ends
}

/// Reads a stream to its end: how many records, and the error.
fn count(bytes: &[u8]) -> (usize, Option<Problem2>) {
    let mut stream = StreamSource::new(Cursor::new(bytes.to_vec()), "cut");
    let mut n = 0;
    loop {
        match stream.advance() {
            Ok(true) => n += 1,
            Ok(false) => return (n, None),
            Err(e) => return (n, Some((e.offset(), matches!(e.problem(), Problem::Empty | Problem::NotCapture(_))))),
        }
    }
}

/// Offset of an error, and whether the file is not a capture at all.
type Problem2 = (Option<u64>, bool);

fn every_prefix_gives_the_records_before_the_cut(file: &[u8], boundaries: &[u64]) {
    let ends = ends(file);
    for cut in 0..file.len() {
        let (records, error) = count(&file[..cut]);
        let whole = ends.iter().filter(|end| **end <= cut as u64).count();
        assert_eq!(records, whole, "cut at {cut}");
        let at_boundary = boundaries.contains(&(cut as u64)) || ends.contains(&(cut as u64));
        match error {
            None => assert!(at_boundary, "cut at {cut} went unnoticed"),
            Some((offset, no_capture)) => {
                assert!(!at_boundary, "cut at {cut} between records is none");
                assert!(no_capture == (cut < 4), "cut at {cut}");
                let last = ends.iter().copied().filter(|end| *end <= cut as u64).max().unwrap_or(0);
                assert!(no_capture || offset.is_some_and(|o| o >= last && o <= cut as u64), "cut at {cut}: {offset:?}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_end_without_panic(bytes in vec(any::<u8>(), 0..400), magic in 0..8usize) {
        let magics: [&[u8]; 8] = [
            b"", b"\xd4\xc3\xb2\xa1\x02\0\x04\0", b"\xa1\xb2\x3c\x4d\0\x02\0\x04", b"\x0a\x0d\x0d\x0a\x1c\0\0\0\x4d\x3c\x2b\x1a\x01\0",
            b"\x1f\x8b\x08\0", b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18", b"\x34\xcd\xb2\xa1\x02\0\x04\0",
        ];
        fuzz_capture_file(&[magics[magic], &bytes].concat());
    }

    #[test]
    fn a_valid_file_with_some_bytes_changed_ends_without_panic(
        frames in frames(3), changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6), form in 0..5,
    ) {
        let mut file = match form {
            0 => pcap(&frames),
            1 => pcapng(&frames),
            2 => compress::gzip(&pcap(&frames)),
            3 => compress::zstd(&pcapng(&frames)),
            _ => compress::lz4(&pcap(&frames)),
        };
        for (at, byte) in changes {
            let at = at.index(file.len());
            file[at] = byte;
        }
        fuzz_capture_file(&file);
    }

    #[test]
    fn what_is_written_as_pcapng_is_read(frames in frames(3)) {
        let file = pcapng(&frames);
        let mut stream = StreamSource::new(Cursor::new(file), "written");
        for f in &frames {
            let r = stream.next().unwrap().unwrap();
            let read = Frame {
                time_ns: r.time_ns,
                interface: r.interface,
                wire_len: r.wire_len,
                bytes: r.bytes.to_vec(),
                comments: r.comments().map(|c| c.into_owned()).collect(),
            };
            prop_assert_eq!(&read, f);
            prop_assert_eq!(r.link_type, LINK_TYPES[f.interface as usize]);
        }
        prop_assert!(stream.next().unwrap().is_none());
    }

    #[test]
    fn what_is_written_as_pcap_is_read(frames in frames(1)) {
        let file = CaptureFile::from_bytes(pcap(&frames), "written").unwrap();
        let read: Vec<_> = file.records().map(|r| r.unwrap()).map(|r| (r.time_ns, r.wire_len, r.bytes)).collect();
        let written: Vec<_> = frames.iter().map(|f| (f.time_ns % (1 << 32), f.wire_len, &f.bytes[..])).collect();
        prop_assert_eq!(read, written);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_cut_pcap_file_gives_what_came_before(frames in frames(1)) {
        every_prefix_gives_the_records_before_the_cut(&pcap(&frames), &[24]);
    }

    #[test]
    fn a_cut_pcapng_file_gives_what_came_before(frames in frames(3)) {
        // The section header has 28 bytes, and each interface 28 (with the resolution of its clock).
        every_prefix_gives_the_records_before_the_cut(&pcapng(&frames), &[28, 56, 84, 112]);
    }

    #[test]
    fn a_cut_compressed_file_gives_no_other_records(frames in frames(1), form in 0..3) {
        let plain = pcap(&frames);
        let file = match form {
            0 => compress::gzip(&plain),
            1 => compress::zstd(&plain),
            _ => compress::lz4(&plain),
        };
        for cut in 0..file.len() {
            let mut stream = StreamSource::new(Cursor::new(file[..cut].to_vec()), "cut");
            let mut records = frames.iter();
            let error = loop {
                match stream.next() {
                    Ok(Some(r)) => prop_assert_eq!(Some(r.bytes), records.next().map(|f| &f.bytes[..])),
                    Ok(None) => break None,
                    Err(e) => break Some(e),
                }
            };
            prop_assert!(error.is_some(), "cut at {cut} of {} went unnoticed, form {form}", file.len());
        }
    }
}

mod compress {
    use super::*;

    pub(super) fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut w = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        w.write_all(bytes).unwrap();
        w.finish().unwrap()
    }

    pub(super) fn zstd(bytes: &[u8]) -> Vec<u8> {
        ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
    }

    pub(super) fn lz4(bytes: &[u8]) -> Vec<u8> {
        let mut w = lz4_flex::frame::FrameEncoder::new(Vec::new());
        w.write_all(bytes).unwrap();
        w.finish().unwrap()
    }
}
