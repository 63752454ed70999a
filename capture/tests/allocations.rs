//! Walking allocates nothing per record. A test binary of its own, since it counts every allocation of the process.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::Cursor;

use rdmascope_capture::{CaptureFile, Interface, LinkType, MergedSource, PcapWriter, PcapngWriter, Record, Section, Source, StreamSource};

struct Counter;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: everything is passed on to the system's allocator; only a counter is kept beside it.
unsafe impl GlobalAlloc for Counter {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|n| n.set(n.get() + 1));
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTER: Counter = Counter;

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
    let before = ALLOCATIONS.get();
    let mut records = 1;
    while next() {
        records += 1;
    }
    assert_eq!(records % FRAMES, 0);
    ALLOCATIONS.get() - before
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
        assert_eq!(during(|| options.next().unwrap().is_some_and(|r| r.comments().count() < 2)), 0, "a stream, looking at comments");

        let two = [(); 2].map(|()| StreamSource::new(Cursor::new(file.clone()), "merged"));
        let mut merged = MergedSource::new(two);
        assert_eq!(during(|| merged.next().unwrap().is_some()), 0, "two merged");
    }
}
