//! How fast captures are anonymized, in time of one core where the system tells it: `cargo bench -p rdmascope-share --
//! FILE…`, or without a file the larger samples.

#[path = "../tests/common/mod.rs"]
mod common;

use common::read;
use rdmascope_share::{Anonymizer, Options, Payload};
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

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
        files = ["smb-roce", "smb-iwarp", "nfs-roce-v42"]
            .iter()
            .map(|name| samples.join(format!("{name}/{name}.pcap")))
            .collect();
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
                    anonymizer.frame((), &r.frame(), |(), bytes| {
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
            println!(
                "{shown}, payload {name}: {:.0} MB/s, {:.0} frames/s ({frames} frames, {mb:.1} MB)",
                mb / best,
                frames / best
            );
        }
    }
}
