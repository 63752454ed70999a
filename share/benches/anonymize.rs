//! How fast captures are anonymized, in time of one core where the system tells it: `cargo bench -p rdmascope-share -- FILE…`, or without a file the larger samples.

use rdmascope_capture::{OpenOptions, Source, open};
use rdmascope_dissector::frame::LinkType;
use rdmascope_share::{Anonymizer, Frame, Options, Payload};
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

struct Record {
    time_ns: i64,
    link_type: LinkType,
    wire_len: u32,
    interface: u32,
    bytes: Vec<u8>,
}

fn read(path: &Path) -> Vec<Record> {
    let mut source = open(path, OpenOptions::new()).expect("the capture can be read");
    let mut records = Vec::new();
    while matches!(source.advance(), Ok(true)) {
        let r = source.record();
        let (time_ns, link_type, wire_len, interface) = (r.time_ns, r.link_type, r.wire_len, r.interface);
        records.push(Record { time_ns, link_type, wire_len, interface, bytes: r.bytes.to_vec() });
    }
    records
}

/// Time that this thread has had a core; on systems that do not tell, time on the clock.
fn now(begun: Instant) -> Duration {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let ns = told.and_then(|text| text.split(' ').next()?.parse().ok());
    ns.map_or_else(|| begun.elapsed(), Duration::from_nanos)
}

fn main() {
    let start = Instant::now();
    let mut files: Vec<PathBuf> =
        std::env::args_os().skip(1).filter(|a| !a.to_string_lossy().starts_with('-')).map(PathBuf::from).collect();
    if files.is_empty() {
        let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../samples");
        files = ["smb-roce", "smb-iwarp", "nfs-roce-v42"].iter().map(|name| samples.join(format!("{name}/{name}.pcap"))).collect();
    }
    for path in files {
        let records = read(&path);
        let bytes: usize = records.iter().map(|r| r.bytes.len()).sum();
        for (name, payload) in [("zeros", Payload::Zero), ("stream", Payload::Stream)] {
            // the best of three: what else runs on the machine only makes it slower
            let mut best = f64::INFINITY;
            for _ in 0..3 {
                let begun = now(start);
                let mut anonymizer = Anonymizer::new(Options { key: b"key".to_vec(), payload, ..Options::default() });
                for r in &records {
                    let frame =
                        Frame { time_ns: r.time_ns, link_type: r.link_type, wire_len: r.wire_len, interface: r.interface, bytes: &r.bytes };
                    anonymizer.frame((), &frame, |(), bytes| {
                        black_box(bytes);
                    });
                }
                black_box(anonymizer.finish(|(), bytes| {
                    black_box(bytes);
                }));
                best = best.min((now(start) - begun).as_secs_f64());
            }
            let (mb, frames) = (bytes as f64 / 1e6, records.len() as f64);
            let shown = path.file_name().unwrap_or_default().to_string_lossy();
            println!("{shown}, payload {name}: {:.0} MB/s, {:.0} frames/s ({frames} frames, {mb:.1} MB)", mb / best, frames / best);
        }
    }
}
