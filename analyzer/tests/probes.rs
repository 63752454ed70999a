//! The crafted captures: one oddity each.

mod common;

use common::*;
use rdmascope_analyzer::finding::Certainty;
use rdmascope_analyzer::report::Protocol;

fn probe(name: &str) -> (rdmascope_analyzer::report::Report, Collected) {
    analyze(&format!("probes/{name}"))
}

fn has(report: &rdmascope_analyzer::report::Report, id: &str) -> bool {
    report.findings.iter().any(|f| f.rule.id() == id)
}

#[test]
fn without_a_handshake_requests_and_replies_are_matched_and_timed() {
    for (name, command) in
        [("t1_nocm", "READ"), ("n1_nocm", "READ"), ("i2_nompa", "ECHO"), ("n2_cm", "READ"), ("t2_cm", "READ")]
    {
        let (report, kept) = probe(name);
        assert_eq!(report.connections.len(), 1, "{name}");
        let row =
            kept.exchanges.iter().find(|e| e.command == command).unwrap_or_else(|| panic!("{name}: no {command}"));
        assert!(row.latency().is_some_and(|l| l > 0), "{name}: {row:?}");
        if command == "READ" {
            assert_eq!((row.bytes_moved, row.writes.bytes, row.writes.frames), (4096, 4096, 4), "{name}");
            assert!(row.sha256.is_some(), "{name}");
        }
    }
}

#[test]
fn a_retransmitted_fragment_counts_once() {
    let (report, kept) = probe("t4d_retx");
    let write = kept.exchanges.iter().find(|e| e.command == "WRITE").unwrap();
    assert_eq!(write.length, Some(2000));
    let (_, offset, bytes) = kept.payloads.iter().find(|(..)| true).expect("the payload is inline");
    assert_eq!((*offset, bytes.len(), bytes.iter().all(|b| *b == b'W')), (0, 2000, true));
    assert!(has(&report, "RC-RETRANSMIT"), "{:?}", ids(&report));
    assert!(!has(&report, "SMBD-FRAG-REMAINING"));
}

#[test]
fn a_lost_fragment_does_not_swallow_the_next_message() {
    let (report, kept) = probe("t4c_lost");
    assert!(!kept.exchanges.iter().any(|e| e.command == "WRITE"), "the WRITE is not whole");
    assert!(kept.exchanges.iter().any(|e| e.command == "ECHO"));
    // one thing happened, and one finding reports it
    assert!(has(&report, "RC-GAP") && !has(&report, "CAPTURE-LOSS"), "{:?}", ids(&report));
    assert!(
        report.findings.iter().filter(|f| f.rule.id().starts_with("SMBD-")).all(|f| f.certainty != Certainty::Certain),
        "{:?}",
        ids(&report)
    );
}

#[test]
fn broken_rules_do_not_hide_the_protocol() {
    let (report, _) = probe("t5_hdr");
    assert_eq!(report.connections[0].protocol, Protocol::SmbDirect);
    assert!(has(&report, "SMBD-FLAGS"), "{:?}", ids(&report));
    // data that comes first is no violation if one direction only was captured
    assert!(!has(&report, "SMBD-NEG-FIRST"), "{:?}", ids(&report));
    assert_eq!(
        report.capture.dissected.iter().find(|(p, _)| *p == "InfiniBand" || *p == "RDMA"),
        None,
        "every frame is SMB Direct"
    );
}

#[test]
fn credit_overruns_and_naks_are_reported() {
    let (report, _) = probe("c1_overrun");
    let overrun = report.findings.iter().find(|f| f.rule.id() == "SMBD-CREDIT-OVERRUN").unwrap();
    assert_eq!((overrun.by.name(), overrun.certainty), ("client", Certainty::IfNothingWasMissed));
    let (report, _) = probe("t6_err");
    for id in ["RC-NAK", "RC-RNR"] {
        assert!(has(&report, id), "{id} of {:?}", ids(&report));
    }
}

#[test]
fn congestion_notifications_are_named() {
    let (report, _) = probe("cnp");
    assert!(has(&report, "RC-CNP"));
}

#[test]
fn twenty_zero_bytes_are_not_smb_direct() {
    let (report, _) = probe("fp_zero20");
    assert_eq!(report.connections[0].protocol, Protocol::Unknown);
}

#[test]
fn a_hole_in_rdma_is_a_hole_in_the_payload() {
    let (report, kept) = probe("n3_lost");
    let read = kept.exchanges.iter().find(|e| e.command == "READ").unwrap();
    assert_eq!((read.sha256, read.payload_holes.is_some_and(|h| h >= 1024)), (None, true), "{read:?}");
    assert!(has(&report, "RC-GAP"));
}

#[test]
fn mpa_is_found_on_any_port() {
    for name in ["i1_445", "i1_5445", "i1_9000", "i3_v2", "i4_packed", "i5_split", "i6_ddpseg", "i7_legacy_ird"] {
        let (report, kept) = probe(name);
        assert_eq!(report.connections[0].protocol, Protocol::SmbDirect, "{name}");
        assert!(!kept.exchanges.is_empty(), "{name}");
        assert_eq!(report.connections[0].health.crc_bad, 0, "{name}");
    }
}

#[test]
fn an_rdma_transform_is_judged() {
    let (report, kept) = probe("t14_transform");
    assert_eq!(kept.exchanges.len(), 2);
    assert!(report.findings.iter().any(|f| f.rule.id().starts_with("SMB2-TRANSFORM-")), "{:?}", ids(&report));
}
