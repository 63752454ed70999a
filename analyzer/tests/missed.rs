//! What the observer missed is held against nobody: captures that begin late, lose frames, have one direction only or cut their frames
//! short find no error against client or server, above a guess, that the complete capture does not find.

mod common;

use common::*;
use rdmascope_analyzer::finding::{Blame, Certainty, Finding};
use rdmascope_analyzer::report::Report;
use rdmascope_analyzer::rules::Severity;
use rdmascope_dissector::frame;
use rdmascope_dissector::trace::Off;
use std::collections::BTreeSet;

/// Errors against a peer that are more than a guess.
fn blames(report: &Report) -> impl Iterator<Item = &Finding> {
    report
        .findings
        .iter()
        .filter(|f| f.severity == Severity::Error && f.certainty > Certainty::Guess && matches!(f.by, Blame::Client | Blame::Server))
}

/// Probes that were made with errors which only a part of their frames shows: t6_err is nothing but errors; in the others packets are
/// missing from the beginning, behind which a credit is spent that nobody granted.
const BROKEN: &[&str] = &["t6_err", "t2_cm", "i4_packed"];

/// The frames of a sample, and what is found in all of them.
struct Whole {
    name: String,
    frames: Vec<Frame>,
    found: BTreeSet<(&'static str, Blame)>,
}

impl Whole {
    fn all() -> impl Iterator<Item = Self> {
        let probes = PROBES.iter().filter(|name| !BROKEN.contains(name)).map(|name| format!("probes/{name}"));
        SAMPLES.iter().map(|name| name.to_string()).chain(probes).map(|name| {
            let frames = frames(&name);
            let found = blames(&analyze_frames(&frames).0).map(|f| (f.rule.id(), f.by)).collect();
            Self { name, frames, found }
        })
    }

    /// What a part of the frames finds besides.
    fn besides(&self, part: &[Frame], what: &str, wrong: &mut Vec<String>) {
        let (report, _) = analyze_frames(part);
        for finding in blames(&report).filter(|f| !self.found.contains(&(f.rule.id(), f.by))) {
            let (id, by, frame, text) = (finding.rule.id(), finding.by.name(), finding.frame, &finding.text);
            wrong.push(format!("{}, {what}: {id} by {by} in frame {frame}: {text}", self.name));
        }
    }
}

fn nothing(wrong: &[String]) {
    assert!(wrong.is_empty(), "{} findings\n{}", wrong.len(), wrong.join("\n"));
}

/// A generator that gives the same numbers everywhere (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[test]
fn a_capture_that_begins_late_blames_nobody() {
    // every frame takes minutes: a stride that visits other frames in every sample, and all of them with CUTS=all
    let all = std::env::var_os("CUTS").is_some_and(|v| v == "all");
    let mut wrong = Vec::new();
    for (index, whole) in Whole::all().enumerate() {
        let step = if all { 1 } else { whole.frames.len() / 24 + 1 + index % 3 };
        for start in (1..whole.frames.len()).step_by(step) {
            whole.besides(&whole.frames[start..], &format!("begun with frame {}", start + 1), &mut wrong);
        }
    }
    nothing(&wrong);
}

#[test]
fn a_capture_that_loses_frames_blames_nobody() {
    let mut wrong = Vec::new();
    for whole in Whole::all() {
        for (per_mille, seeds) in [(1, 2), (10, 4), (50, 4)] {
            for seed in 1..=seeds {
                let mut random = Random(seed * 1000 + per_mille);
                let kept: Vec<Frame> = whole.frames.iter().filter(|_| random.next() % 1000 >= per_mille).cloned().collect();
                if kept.len() < whole.frames.len() {
                    whole.besides(&kept, &format!("{per_mille} of 1000 lost, seed {seed}"), &mut wrong);
                }
            }
        }
    }
    nothing(&wrong);
}

#[test]
fn a_capture_of_one_direction_blames_nobody() {
    let mut wrong = Vec::new();
    for whole in Whole::all() {
        let options = frame::Options::default();
        let source = |f: &Frame| frame::decode(f.meta.link_type, &f.bytes, f.meta.wire_len, &options, &mut Off).src;
        let sources: Vec<_> = whole.frames.iter().map(source).collect();
        let mut told: Vec<_> = sources.clone();
        told.sort();
        told.dedup();
        for one in told {
            let of = whole.frames.iter().zip(&sources).filter(|(_, src)| **src == one).map(|(f, _)| f.clone());
            whole.besides(&of.collect::<Vec<_>>(), &format!("only what {one:?} sent"), &mut wrong);
        }
    }
    nothing(&wrong);
}

#[test]
fn a_capture_that_cuts_frames_short_blames_nobody() {
    let mut wrong = Vec::new();
    for whole in Whole::all() {
        for snap in [60, 80, 100, 128, 160, 192, 256, 512, 1024] {
            let cut = whole.frames.iter().map(|f| Frame { meta: f.meta, bytes: f.bytes[..f.bytes.len().min(snap)].to_vec() });
            whole.besides(&cut.collect::<Vec<_>>(), &format!("{snap} bytes of a frame"), &mut wrong);
        }
    }
    nothing(&wrong);
}

/// Client and server of a connection of NFS, whose handshake was not seen, are not exchanged: what is not known is said to be.
#[test]
fn client_and_server_are_not_exchanged() {
    for name in ["nfs-roce-v42", "nfs-roce-v3", "smb-roce"] {
        let whole = frames(name);
        let client = analyze_frames(&whole).0.connections[0].peers[0].address;
        for start in (1..whole.len()).step_by(whole.len() / 60 + 1) {
            let (report, _) = analyze_frames(&whole[start..]);
            for connection in report.connections.iter().filter(|c| c.client_known) {
                assert_eq!(connection.peers[0].address, client, "{name}, begun with frame {}", start + 1);
            }
        }
    }
}
