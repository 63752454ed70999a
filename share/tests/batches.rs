//! Several threads make the new frames, in any order: the bytes and the counts are the same.

mod common;

use common::{KEY, Record, read, samples, simulated};
use rdmascope_share::{Anonymizer, FrameBatch, NewFrames, Options, Payload};
use std::sync::Mutex;

/// A limit so small that there are many batches, and messages that span them.
const HELD: usize = 32 << 10;

fn anonymizer(payload: Payload) -> Anonymizer<()> {
    Anonymizer::with_limit(Options { key: KEY.to_vec(), payload, ..Options::default() }, HELD)
}

/// The new frames and the counts.
type Result = (Vec<Vec<u8>>, String);

fn one_by_one(records: &[Record], payload: Payload) -> Result {
    let mut anonymizer = anonymizer(payload);
    let mut out = Vec::new();
    for record in records {
        anonymizer.frame((), &record.frame(), |(), bytes| out.push(bytes.to_vec()));
    }
    let tally = anonymizer.finish(|(), bytes| out.push(bytes.to_vec()));
    (out, format!("{tally:?}"))
}

/// Takes all batches first; then several threads make the last ones first.
fn by_threads(records: &[Record], payload: Payload, threads: usize) -> Result {
    let mut anonymizer = anonymizer(payload);
    let mut batches = Vec::new();
    for record in records {
        anonymizer.hold((), &record.frame());
        batches.extend(std::iter::from_fn(|| anonymizer.next_batch()));
    }
    anonymizer.end();
    batches.extend(std::iter::from_fn(|| anonymizer.next_batch()));
    assert!(batches.len() > 1 || records.len() < 100, "there is nothing to share");
    let waiting: Mutex<Vec<(usize, FrameBatch<()>)>> = Mutex::new(batches.into_iter().enumerate().collect());
    let done: Mutex<Vec<(usize, NewFrames<()>)>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let next = waiting.lock().unwrap().pop();
                    let Some((n, batch)) = next else { break };
                    done.lock().unwrap().push((n, batch.make()));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap();
    done.sort_by_key(|(n, _)| *n);
    let mut out = Vec::new();
    for (_, mut made) in done {
        made.frames(|(), bytes| out.push(bytes.to_vec()));
        anonymizer.give_back(made);
    }
    (out, format!("{:?}", anonymizer.tally()))
}

fn holds(shown: &str, records: &[Record]) {
    for payload in [Payload::Zero, Payload::Stream] {
        let alone = one_by_one(records, payload);
        assert_eq!(alone.0.len(), records.len(), "{shown}");
        for threads in 1..=3 {
            let made = by_threads(records, payload, threads);
            assert!(alone == made, "{shown}: other bytes or counts with {threads} threads, {payload:?}");
        }
    }
}

#[test]
fn samples_come_out_the_same_with_any_number_of_threads() {
    for path in samples() {
        holds(&path.display().to_string(), &read(&path));
    }
}

#[test]
fn simulated_captures_come_out_the_same_with_any_number_of_threads() {
    for seed in 0..40 {
        holds(&format!("seed {seed}"), &simulated(seed));
    }
}
