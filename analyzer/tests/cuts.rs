//! Captures begin late, end early, lose, double and swap frames: nothing panics, and a certain finding is never
//! something that the whole capture does not have.

mod common;

use common::*;
use rdmascope_analyzer::finding::Certainty;
use rdmascope_analyzer::report::Report;
use std::collections::BTreeSet;

/// Findings by id. A cut capture may say less, and may be unsure of more. It may be certain of a finding that is a
/// guess in the whole one: with packets damaged or sent again, findings in frames without a right checksum are guesses,
/// and the cut can take just those packets away.
fn found(report: &Report) -> BTreeSet<&'static str> {
    report.findings.iter().map(|f| f.rule.id()).collect()
}

/// Rules that a damaged capture may report for certain besides: they say that it is damaged.
const OF_THE_DAMAGE: &[&str] = &["RC-RETRANSMIT", "RC-GAP", "TCP-LOSS", "CAPTURE-LOSS", "CAPTURE-CLOCK"];

fn check(name: &str, what: &str, at: usize, frames: &[Frame], whole: &BTreeSet<&'static str>) {
    let (report, _) = analyze_frames(frames);
    let new: Vec<_> = report
        .findings
        .iter()
        .filter(|f| {
            f.certainty == Certainty::Certain && !whole.contains(f.rule.id()) && !OF_THE_DAMAGE.contains(&f.rule.id())
        })
        .map(|f| (f.rule.id(), f.frame, f.text.clone()))
        .collect();
    assert!(new.is_empty(), "{name}, {what} at frame {at}: {new:?}");
}

fn cuts(name: &str, step: usize) {
    let frames = frames(name);
    let (report, _) = analyze_frames(&frames);
    let whole = found(&report);
    for at in (0..frames.len()).step_by(step) {
        check(name, "cut", at + 1, &frames[..at], &whole);
        check(name, "begun", at + 1, &frames[at..], &whole);
        let mut removed = frames.clone();
        removed.remove(at);
        check(name, "removed", at + 1, &removed, &whole);
        let mut doubled = frames.clone();
        doubled.insert(at, frames[at].clone());
        check(name, "doubled", at + 1, &doubled, &whole);
        if at + 1 < frames.len() {
            let mut swapped = frames.clone();
            swapped.swap(at, at + 1);
            check(name, "swapped", at + 1, &swapped, &whole);
        }
    }
}

#[test]
fn probes_survive_every_cut() {
    for name in PROBES.iter().filter(|n| **n != "t6_err") {
        cuts(&format!("probes/{name}"), 1);
    }
}

#[test]
fn captures_survive_cuts() {
    // every frame takes minutes: a stride that visits other frames in every sample, and all of them with CUTS=all
    let all = std::env::var_os("CUTS").is_some_and(|v| v == "all");
    for (index, name) in SAMPLES.iter().enumerate() {
        cuts(name, if all { 1 } else { 23 + index });
    }
}

/// The handshake has the first numbers of both sides: a first packet that the capture lost is missed, from either side.
#[test]
fn lost_first_packets_are_missed() {
    let whole = frames("smb-roce");
    let lost = |without: Option<u64>| {
        let kept: Vec<Frame> = whole
            .iter()
            .filter(|f| Some(f.meta.number) != without)
            .map(|f| Frame { meta: f.meta, bytes: f.bytes.clone() })
            .collect();
        analyze_frames(&kept)
            .0
            .findings
            .iter()
            .filter(|f| matches!(f.rule.id(), "CAPTURE-LOSS" | "RC-GAP"))
            .map(|f| f.text.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(lost(None), [""; 0]);
    // the Negotiate Request of SMB Direct, and the Response
    for first in [24, 26] {
        let said = lost(Some(first));
        let is_told = |text: &String| text.starts_with("1 packet acknowledged by the receiver was not captured");
        assert!(said.len() == 1 && is_told(&said[0]), "frame {first}: {said:?}");
    }
}
