//! Work of each of several workers that share the connections of a capture, one after the other on this thread:
//! `cargo run --release -p rdmascope-analyzer --example split -- 8 trace.pcap`
//!
//! A machine with that many cores is not needed: workers have nothing in common while frames come, so the time that the
//! busiest takes alone is what all of them take, but for the walk through the file. Prints frames, bytes and CPU time
//! of each, and the largest share of the work.

use rdmascope_analyzer::env::Options;
use rdmascope_analyzer::pipeline::{FrameMeta, Pipeline, Route, Router};
use rdmascope_analyzer::sink::Quiet;
use rdmascope_capture::{CaptureFile, Record};
use rdmascope_dissector::trace::Off;
use std::error::Error;
use std::time::{Duration, Instant};

/// Number of runs; the best counts.
const RUNS: usize = 5;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [workers, path] = arguments.as_slice() else { return Err("give the number of workers and a capture".into()) };
    let workers: usize = workers.parse()?;
    let file = CaptureFile::open(path)?;
    let records: Vec<Record<'_>> = file.records().collect::<Result<_, _>>()?;
    let meta = |n: usize, r: &Record<'_>| FrameMeta {
        number: n as u64 + 1,
        time_ns: r.time_ns,
        link_type: r.link_type,
        wire_len: r.wire_len,
        interface: r.interface,
    };
    let frames: Vec<(FrameMeta, &[u8])> = records.iter().enumerate().map(|(n, r)| (meta(n, r), r.bytes)).collect();
    let started = Instant::now();
    let mut shares: Vec<Vec<(FrameMeta, &[u8])>> = vec![Vec::new(); workers];
    let mut router = Router::new(workers, Pipeline::new(Options::default()).decode_options());
    for (meta, bytes) in &frames {
        let Route { shard, datagram, .. } = router.route(meta, bytes);
        if datagram.is_some() {
            return Err("the capture has fragments of IP datagrams".into());
        }
        shares[shard].push((*meta, bytes));
    }
    let routed = started.elapsed();
    let alone = timed(&frames, 0, 1);
    println!(
        "one worker: {} frames, {:.1} ms; telling whose frame each is: {:.1} ms",
        frames.len(),
        ms(alone),
        ms(routed)
    );
    let each: Vec<Duration> = shares.iter().enumerate().map(|(shard, frames)| timed(frames, shard, workers)).collect();
    for (shard, (took, frames)) in each.iter().zip(&shares).enumerate() {
        let bytes: usize = frames.iter().map(|(_, bytes)| bytes.len()).sum();
        println!("worker {shard}: {} frames, {bytes} bytes, {:.1} ms", frames.len(), ms(*took));
    }
    let (most, all) = (each.iter().max().copied().unwrap_or_default(), each.iter().sum::<Duration>());
    let share = ms(most) / ms(all).max(f64::MIN_POSITIVE);
    println!("largest share: {share:.3} (1/{:.2}); all together {:.1} ms", 1.0 / share, ms(all));
    Ok(())
}

/// Time that one worker takes for its frames.
fn timed(frames: &[(FrameMeta, &[u8])], shard: usize, of: usize) -> Duration {
    let run = || {
        let mut pipeline = Pipeline::shard(Options::default(), Quiet, shard, of);
        let started = Instant::now();
        for (meta, bytes) in frames {
            pipeline.frame(meta, bytes, &mut Off);
        }
        started.elapsed()
    };
    (0..RUNS).map(|_| run()).min().unwrap_or_default()
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
