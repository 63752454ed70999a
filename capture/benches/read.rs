//! Reading speed of captures in GB/s, for frames of 90 and 1,500 bytes and 64 KiB, from a mapped temporary file, from
//! memory, and as a stream.

use std::hint::black_box;
use std::io::Write;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use rdmascope_capture::{
    CaptureFile, Interface, LinkType, OpenOptions, PcapWriter, PcapngWriter, Record, Section, Source, open,
};

const TOTAL: usize = 256 << 20;

fn pcap(frame: &[u8]) -> Vec<u8> {
    let mut w = PcapWriter::new(Vec::with_capacity(TOTAL * 2), "pcap", LinkType::ETHERNET, 262_144, true).unwrap();
    for i in 0..TOTAL / (frame.len() + 16) {
        w.write(&Record::new(i as i64, 0, LinkType::ETHERNET, frame.len() as u32, frame)).unwrap();
    }
    w.finish().unwrap()
}

fn pcapng(frame: &[u8]) -> Vec<u8> {
    let mut w = PcapngWriter::new(Vec::with_capacity(TOTAL * 2), "pcapng", &Section::default()).unwrap();
    w.add_interface(&Interface::new(LinkType::ETHERNET)).unwrap();
    for i in 0..TOTAL / (frame.len() + 32) {
        w.write(&Record::new(i as i64, 0, LinkType::ETHERNET, frame.len() as u32, frame)).unwrap();
    }
    w.finish().unwrap()
}

/// Sums the values that a consumer reads first, so that the compiler cannot remove a step.
fn look(sum: u64, record: &Record<'_>) -> u64 {
    sum.wrapping_add(record.time_ns as u64).wrapping_add(record.bytes.len() as u64)
}

fn read(c: &mut Criterion) {
    for (format, make) in [("pcap", pcap as fn(&[u8]) -> Vec<u8>), ("pcapng", pcapng)] {
        let mut group = c.benchmark_group(format);
        group.sample_size(20);
        for len in [90, 1500, 65536] {
            let bytes = make(&vec![0xa5; len]);
            group.throughput(Throughput::Bytes(bytes.len() as u64));
            let mut file = tempfile::NamedTempFile::new().unwrap();
            file.write_all(&bytes).unwrap();

            let whole = CaptureFile::from_bytes(bytes, "memory").unwrap();
            group.bench_function(BenchmarkId::new("memory", len), |b| {
                b.iter(|| black_box(whole.records().fold(0, |sum, r| look(sum, &r.unwrap()))));
            });
            for (how, mmap) in [("mapped", true), ("stream", false)] {
                group.bench_function(BenchmarkId::new(how, len), |b| {
                    b.iter(|| {
                        let mut capture = open(file.path(), OpenOptions::new().mmap(mmap)).unwrap();
                        let mut sum = 0;
                        while let Some(record) = capture.next().unwrap() {
                            sum = look(sum, &record);
                        }
                        black_box(sum)
                    });
                });
            }
        }
        group.finish();
    }
}

criterion_group!(benches, read);
criterion_main!(benches);
