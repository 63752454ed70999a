//! Strangers are the judges: the ledger against the client kernel's own counters, payloads against the files' contents,
//! retransmissions against the frames that are known to be sent again.

mod common;

use common::*;
use rdmascope_analyzer::env::{Layer, Options};
use rdmascope_analyzer::finding::{Certainty, Severity};
use rdmascope_analyzer::pipeline::Pipeline;
use rdmascope_analyzer::rules::Rule;
use rdmascope_dissector::trace::Off;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

fn sha(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// The output of `seq 1 last`.
fn seq(last: u32) -> Vec<u8> {
    (1..=last).flat_map(|n| format!("{n}\n").into_bytes()).collect()
}

/// A number in hexadecimal behind `label` in the kernel's text.
fn kernel(text: &str, label: &str) -> i64 {
    let at = text.find(label).unwrap_or_else(|| panic!("{label} is not in the kernel's text"));
    let word: String = text[at + label.len()..].trim_start().chars().take_while(char::is_ascii_hexdigit).collect();
    i64::from_str_radix(&word, 16).unwrap()
}

#[test]
fn the_ledger_holds_the_credits_that_the_kernel_says_it_holds() {
    for name in ["smb-roce", "smb-roce-credits4", "smb-roce-smb302", "smb-iwarp", "smb-iwarp-credits8"] {
        let text = std::fs::read_to_string(path(name).with_file_name("kernel.txt")).unwrap();
        let (report, kept) = analyze(name);
        let connection = report.connections.iter().find(|c| c.negotiated.status == Some(0)).unwrap();
        let client = connection.client_end.unwrap();
        // the counters of the kernel are from after the last file operation (of a file that does not exist) and before
        // the unmount
        let last_work = kept
            .exchanges
            .iter()
            .filter(|e| e.file.as_deref() == Some("nosuchfile"))
            .map(|e| e.request_end)
            .max()
            .unwrap();
        let closing = kept
            .exchanges
            .iter()
            .map(|e| e.request)
            .filter(|at| *at > last_work)
            .min()
            .expect("the unmount is in the capture");
        let held = kept.credits.iter().rfind(|(_, at, _)| *at < closing).unwrap().2[client.index()];
        assert_eq!(held, Some(kernel(&text, "send_credits:")), "{name}: credits the client holds");
        assert_eq!(
            kernel(&text, "max_send_size:"),
            i64::from(connection.negotiated.max_send_size[0].unwrap()),
            "{name}"
        );
        assert_eq!(
            kernel(&text, "max_receive_size:"),
            i64::from(connection.negotiated.max_receive_size[0].unwrap()),
            "{name}"
        );
        assert_eq!(
            kernel(&text, "max_fragmented_recv_size:"),
            i64::from(connection.negotiated.max_fragmented_size[0].unwrap()),
            "{name}"
        );
        assert_eq!(
            kernel(&text, "max_fragmented_send_size:"),
            i64::from(connection.negotiated.max_fragmented_size[1].unwrap()),
            "{name}"
        );
    }
}

#[test]
fn payloads_are_the_files_contents() {
    let big = seq(1_500_000);
    let w1 = &seq(100_000)[..98_304];
    let lines = seq(20_000);
    for name in [
        "smb-iwarp",
        "smb-iwarp-crc",
        "smb-iwarp-loss",
        "smb-iwarp-credits8",
        "smb-roce",
        "smb-roce-loss",
        "smb-roce-credits4",
        "smb-roce-smb302",
    ] {
        let (_, kept) = analyze(name);
        let reads: Vec<_> = kept.exchanges.iter().filter(|e| e.command == "READ" && !e.failed).collect();
        let mut checked = BTreeMap::new();
        for read in &reads {
            let (offset, length) = (read.offset.unwrap() as usize, read.bytes_moved as usize);
            let file = read.file.as_deref().unwrap_or_default();
            let expected = match file {
                "big.bin" => &big[offset..offset + length],
                "lines.txt" => &lines[offset..offset + length],
                "hello.txt" => &b"hello\n"[offset..offset + length],
                other => panic!("{name}: READ of {other:?}"),
            };
            assert_eq!(
                read.sha256,
                Some(sha(expected)),
                "{name}: {file} at {offset}, {length} bytes, {:?}",
                read.channel
            );
            *checked.entry(file.to_string()).or_insert(0) += length;
        }
        assert_eq!(checked.get("big.bin"), Some(&131_072), "{name}: 128 KiB of big.bin");
        let mut written = vec![0; w1.len()];
        let mut have = 0;
        for (file, offset, bytes) in kept.payloads.iter().filter(|(file, ..)| file == "w1.bin") {
            let at = *offset as usize;
            written[at..at + bytes.len()].copy_from_slice(bytes);
            have += bytes.len();
            let _ = file;
        }
        assert_eq!((have, sha(&written)), (w1.len(), sha(w1)), "{name}: w1.bin");
    }
}

#[test]
fn nfs_payloads_are_the_files_contents() {
    let big = seq(1_500_000);
    let w1 = &seq(100_000)[..98_304];
    for name in ["nfs-roce-v3", "nfs-roce-v42", "nfs-iwarp-v42"] {
        let (_, kept) = analyze(name);
        let mut seen = 0;
        for read in kept
            .exchanges
            .iter()
            .filter(|e| e.command == "READ" && e.length.is_some_and(|l| l >= 4096) && e.bytes_moved >= 4096)
        {
            let (offset, length) = (read.offset.unwrap() as usize, read.bytes_moved as usize);
            if read.sha256 == Some(sha(&big[offset..offset + length])) {
                seen += length;
            }
        }
        assert!(seen >= 131_072, "{name}: {seen} bytes of big.bin");
        let mut written = vec![0; w1.len()];
        let mut have = 0;
        for write in kept.exchanges.iter().filter(|e| e.command == "WRITE") {
            let (offset, length) = (write.offset.unwrap() as usize, write.bytes_moved as usize);
            if offset + length <= w1.len() && write.sha256 == Some(sha(&w1[offset..offset + length])) {
                written[offset..offset + length].copy_from_slice(&w1[offset..offset + length]);
                have += length;
            }
        }
        assert!(have >= w1.len() && written == w1, "{name}: {have} bytes of w1.bin");
    }
}

#[test]
fn a_refused_negotiation_is_the_first_finding() {
    let (report, _) = analyze("smb-roce-negotiate-refused");
    let first = report.findings.ranked()[0];
    assert_eq!(first.rule.id(), "SMBD-NEG-RSP-FRAGSIZE");
    assert_eq!(first.rule.row().spec, "[MS-SMBD] 3.1.5.7");
    assert_eq!((first.severity, first.certainty, first.by.name()), (Severity::Error, Certainty::Certain, "server"));
    assert!(first.text.contains("130,560") && first.text.contains("131,072"), "{}", first.text);
    assert_eq!(
        report.findings.iter().filter(|f| f.rule.id() == "SMBD-NEG-RSP-FRAGSIZE").map(|f| f.count).sum::<u64>(),
        6
    );
    assert_eq!(report.connections.len(), 6);
    assert!(report.connections.iter().all(|c| c.closed.is_some_and(|(by, how, _)| by == Some(0) && how == "DREQ")));
}

#[test]
fn an_encrypted_mount_fails_because_of_an_unfinished_message() {
    let (report, kept) = analyze("smb-iwarp-encryption-fails");
    let roots = rdmascope_analyzer::roots::roots(&report);
    assert_eq!(
        (roots[0].rule, roots[0].fatal.as_ref().map(|f| (f.ended, f.of))),
        (Rule::BugKsmbdSealedLength, Some((8, 8)))
    );
    assert_eq!(
        roots.iter().filter(|r| r.severity == Severity::Error).count(),
        1,
        "what follows from it stands under it"
    );
    let sealed: Vec<_> = report.findings.iter().filter(|f| f.rule.id() == "BUG-KSMBD-SEALED-LENGTH").collect();
    assert_eq!(sealed.iter().map(|f| f.count).sum::<u64>(), 8, "eight mounts");
    assert!(sealed.iter().all(|f| f.by.name() == "server"));
    // the last exchange that could be read before each of them is the session setup
    for finding in sealed {
        let last = kept
            .exchanges
            .iter()
            .filter(|e| e.reply_end.is_some_and(|r| r.frame < finding.frame))
            .max_by_key(|e| e.reply_end)
            .unwrap();
        assert_eq!(last.command, "SESSION_SETUP");
    }
    // the clients hung up at once: the unfinished message is no violation
    assert!(!ids(&report).iter().any(|(id, _)| *id == "SMBD-FRAG-REMAINING"));
}

#[test]
fn retransmissions_are_the_frames_that_went_out_again() {
    let (report, _) = analyze("smb-roce-loss");
    let finding = report.findings.iter().find(|f| f.rule.id() == "RC-RETRANSMIT").unwrap();
    assert_eq!((finding.count, &finding.frames[..]), (3, &[665, 800, 945][..]));
    let (report, _) = analyze("smb-roce");
    assert!(!ids(&report).iter().any(|(id, _)| id.starts_with("RC-")), "{:?}", ids(&report));
}

#[test]
fn healthy_captures_have_no_error() {
    for name in SAMPLES.iter().filter(|n| {
        !["refused", "encryption", "negotiate-only", "iwarp-sign", "multichannel"]
            .iter()
            .any(|failed| n.contains(failed))
    }) {
        let (report, _) = analyze(name);
        let errors: Vec<_> =
            report.findings.iter().filter(|f| f.severity == Severity::Error).map(|f| (f.rule.id(), &f.text)).collect();
        assert!(errors.is_empty(), "{name}: {errors:?}");
        assert_eq!((report.capture.undecoded, report.capture.lost_by_capture), (0, 0), "{name}");
        assert!(report.connections.iter().all(|c| c.health.icrc_bad == 0 && c.health.crc_bad == 0), "{name}");
    }
}

/// A request counts the packets retransmitted while it was open; if there were none, its count is 0.
#[test]
fn requests_count_what_went_out_again_meanwhile() {
    for (name, lossy) in [("smb-roce-loss", true), ("smb-iwarp-loss", true), ("smb-roce", false)] {
        let (report, kept) = analyze(name);
        let all: u64 = report.connections.iter().map(|c| c.health.retransmissions).sum();
        let most = kept.exchanges.iter().map(|e| u64::from(e.retransmissions)).max().unwrap_or(0);
        assert!(most <= all, "{name}: {most} of {all}");
        assert_eq!(most > 0, lossy, "{name}: {most} of {all}");
    }
}

#[test]
fn handshakes_belong_to_their_connections() {
    for (name, messages) in
        [("smb-roce", 5), ("smb-roce-loss", 5), ("nfs-roce-v3", 5), ("smb-roce-negotiate-refused", 30)]
    {
        let mut pipeline = Pipeline::new(Options::default());
        let mut handshake = Vec::new();
        let mut places = BTreeMap::new();
        for frame in frames(name) {
            pipeline.frame(&frame.meta, &frame.bytes, &mut Off);
            let facts = pipeline.facts();
            if facts.layer == Layer::Cm {
                handshake.push(frame.meta.number);
            }
            if let Some(place) = facts.place {
                places.insert(frame.meta.number, place);
                places.extend(pipeline.earlier().iter().map(|(number, end)| (*number, (place.0, *end))));
            }
        }
        let (report, _) = pipeline.finish();
        // a REQ that was rejected never became a connection
        let rejected: u64 = report.findings.iter().filter(|f| f.rule == Rule::CmReject).map(|f| f.count).sum();
        let placed: Vec<_> = handshake.iter().filter_map(|number| places.get(number)).collect();
        assert_eq!((placed.len(), handshake.len()), (messages, messages + 2 * rejected as usize), "{name}");
        for (connection, _) in placed {
            assert!(report.connections.iter().any(|c| c.followed_as.contains(connection)), "{name}");
        }
    }
}
