//! Walking allocates nothing per record. A test binary of its own, since it counts every allocation of the process.

#[path = "../../dissector/tests/counting/mod.rs"]
mod counting;

use counting::allocations;
use std::io::Cursor;

use rdmascope_capture::{
    CaptureFile, Interface, LinkType, MergedSource, PcapWriter, PcapngWriter, Record, Section, Source, StreamSource,
};

const FRAMES: u64 = 10_000;

fn pcap() -> Vec<u8> {
    let mut w = PcapWriter::new(Vec::new(), "pcap", LinkType::ETHERNET, 65535, true).unwrap();
    for i in 0..FRAMES {
        w.write(&Record::new(i as i64, 0, LinkType::ETHERNET, 90, &[1; 90])).unwrap();
    }
    w.finish().unwrap()
}

fn pcapng() -> Vec<u8> {
    let mut w = PcapngWriter::new(Vec::new(), "pcapng", &Section::default()).unwrap();
    w.add_interface(&Interface::new(LinkType::ETHERNET)).unwrap();
    for i in 0..FRAMES {
        w.write_with_comments(&Record::new(i as i64, 0, LinkType::ETHERNET, 90, &[1; 90]), &["a comment"]).unwrap();
    }
    w.finish().unwrap()
}

/// Allocations of `walk` after its first record.
fn during(mut next: impl FnMut() -> bool) -> u64 {
    assert!(next());
    let before = allocations();
    let mut records = 1;
    while next() {
        records += 1;
    }
    assert_eq!(records % FRAMES, 0);
    allocations() - before
}

#[test]
fn walking_allocates_nothing_per_record() {
    for file in [pcap(), pcapng()] {
        let whole = CaptureFile::from_bytes(file.clone(), "whole").unwrap();
        let mut records = whole.records();
        assert_eq!(during(|| records.next().is_some_and(|r| !r.unwrap().bytes.is_empty())), 0, "a whole file");

        let mut stream = StreamSource::new(Cursor::new(file.clone()), "stream");
        assert_eq!(during(|| stream.next().unwrap().is_some()), 0, "a stream");

        let mut options = StreamSource::new(Cursor::new(file.clone()), "stream");
        assert_eq!(
            during(|| options.next().unwrap().is_some_and(|r| r.comments().count() < 2)),
            0,
            "a stream, looking at comments"
        );

        let two = [(); 2].map(|()| StreamSource::new(Cursor::new(file.clone()), "merged"));
        let mut merged = MergedSource::new(two);
        assert_eq!(during(|| merged.next().unwrap().is_some()), 0, "two merged");
    }
}
