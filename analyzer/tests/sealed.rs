//! Signed and encrypted sessions, opened with the password of the account that the captures were made with.

mod common;

use common::*;
use rdmascope_analyzer::env::Options;
use rdmascope_analyzer::keys::Keyring;
use rdmascope_analyzer::pipeline::Pipeline;
use rdmascope_analyzer::report::Report;
use rdmascope_dissector::trace::{Off, Trace, Tree};

fn keys(text: &str) -> Keyring {
    let mut keyring = Keyring::new();
    keyring.add_file(text).unwrap();
    keyring
}

fn analyze_with_keys<T: Trace>(
    name: &str,
    keys: &str,
    t: &mut T,
    mut each: impl FnMut(u64, &mut T),
    mut begin: impl FnMut(&[u8], &mut T),
) -> (Report, Collected) {
    let mut pipeline =
        Pipeline::with_sink(Options { keyring: self::keys(keys), ..Options::default() }, Collected::default());
    for frame in frames(name) {
        begin(&frame.bytes, t);
        pipeline.frame(&frame.meta, &frame.bytes, t);
        each(frame.meta.number, t);
    }
    pipeline.finish()
}

const PASSWORD: &str = "user=labuser password=labpass\n";

#[test]
fn signatures_verify_with_the_password() {
    for name in ["smb-roce", "smb-roce-smb302", "smb-iwarp"] {
        let (report, _) = analyze_with_keys(name, PASSWORD, &mut Off, |_, _| {}, |_, _| {});
        let wrong: Vec<_> = report
            .findings
            .iter()
            .filter(|f| f.rule.id() == "SMB2-SIGNATURE")
            .map(|f| (f.frame, &f.text, f.count))
            .collect();
        assert!(wrong.is_empty(), "{name}: {wrong:?}");
        let verified: u64 = report.connections.iter().map(|c| c.smb.verified).sum();
        assert!(verified >= 4, "{name}: {verified} signatures verified");
    }
}

#[test]
fn a_changed_byte_is_a_wrong_signature() {
    let mut frames = frames("smb-roce");
    // the last signed message: its last byte
    let signed = |bytes: &[u8]| {
        let at = bytes.windows(4).position(|w| w == b"\xfeSMB")?;
        (bytes[at + 16] & 0x08 != 0).then_some(at)
    };
    let (frame, at) = frames.iter().enumerate().rev().find_map(|(n, f)| Some((n, signed(&f.bytes)?))).unwrap();
    frames[frame].bytes[at + 66] ^= 0x55;
    // the packet's own CRC is of the byte as it was: with it, the packet would be one that was damaged on the way
    let mut pipeline = Pipeline::with_sink(
        Options { keyring: keys(PASSWORD), check_crc: false, ..Options::default() },
        Collected::default(),
    );
    for frame in &frames {
        pipeline.frame(&frame.meta, &frame.bytes, &mut Off);
    }
    let (report, _) = pipeline.finish();
    assert!(report.findings.iter().any(|f| f.rule.id() == "SMB2-SIGNATURE"), "frame {}: {:?}", frame + 1, ids(&report));
}

#[test]
fn a_wrong_password_verifies_nothing_and_blames_nobody() {
    let (report, _) = analyze_with_keys("smb-roce", "user=labuser password=wrong\n", &mut Off, |_, _| {}, |_, _| {});
    assert_eq!(report.connections.iter().map(|c| c.smb.verified).sum::<u64>(), 0);
    assert!(!report.findings.iter().any(|f| f.rule.id() == "SMB2-SIGNATURE"));
}

#[test]
fn an_encrypted_request_is_read_with_the_password() {
    let mut tree = Tree::new();
    let mut found = Vec::new();
    let (report, kept) = analyze_with_keys(
        "smb-iwarp-encryption-fails",
        PASSWORD,
        &mut tree,
        |number, tree| {
            if tree.sources().iter().any(|s| s.name == "Decrypted SMB2") {
                found.push((number, tree.number("smb2.cmd")));
            }
        },
        |bytes, tree| tree.begin(bytes),
    );
    assert_eq!(found.len(), 8, "one request of each of eight mounts: {found:?}");
    assert!(found.iter().all(|(_, command)| *command == Some(3)), "TREE_CONNECT: {found:?}");
    assert_eq!(kept.exchanges.iter().filter(|e| e.command == "TREE_CONNECT").count(), 8);
    assert!(report.connections.iter().all(|c| c.smb.encrypted || c.smb.sessions.is_empty()));
    let (_, sealed) = analyze("smb-iwarp-encryption-fails");
    assert!(!sealed.exchanges.iter().any(|e| e.command == "TREE_CONNECT"), "without a key it stays closed");
}

/// Keys that the client printed of a session mounted with `seal`: everything after its set-up opens, and so the files
/// are known.
#[test]
fn a_sealed_session_is_read_with_the_keys_that_the_client_prints() {
    let printed = std::fs::read_to_string(samples().join("smb-tcp-seal/keys.txt")).unwrap();
    let mut tree = Tree::new();
    let (mut sealed, mut opened) = (0, 0);
    let (report, kept) = analyze_with_keys(
        "smb-tcp-seal",
        &printed,
        &mut tree,
        |_, tree| {
            sealed += tree.all("smb2.header.transform.signature").count();
            opened += tree.sources().iter().filter(|s| s.name == "Decrypted SMB2").count();
        },
        |bytes, tree| tree.begin(bytes),
    );
    assert!(sealed > 300, "{sealed}");
    assert_eq!(opened, sealed, "each opens");
    assert!(report.connections.iter().all(|c| c.smb.encrypted));
    let read: Vec<_> =
        kept.exchanges.iter().filter(|e| e.command == "READ" && e.file.as_deref() == Some("big.bin")).collect();
    assert_eq!(read.iter().map(|e| e.bytes_moved).sum::<u64>(), 3 * 65_536);
    assert!(!report.findings.iter().any(|f| f.rule.id() == "SMB2-SIGNATURE"));
    let (closed, without) = analyze("smb-tcp-seal");
    assert!(without.exchanges.iter().all(|e| e.command != "READ"), "without keys it stays closed");
    assert!(closed.connections.iter().all(|c| c.smb.encrypted), "and is said to be encrypted");
}

/// Every signature of a session mounted with `sign` is right, but those of READ replies without data: ksmbd signs a
/// length with them.
#[test]
fn a_signed_session_verifies_but_for_what_ksmbd_signs_otherwise() {
    let (report, kept) = analyze_with_keys("smb-iwarp-sign", PASSWORD, &mut Off, |_, _| {}, |_, _| {});
    let wrong: Vec<_> = report.findings.iter().filter(|f| f.rule.id() == "SMB2-SIGNATURE").collect();
    let ended = kept.exchanges.iter().filter(|e| e.command == "READ" && e.status == Some(0xc000_0011)).count() as u64;
    assert!(ended > 0);
    assert_eq!(wrong.iter().map(|f| f.count).sum::<u64>(), ended, "{wrong:?}");
    assert!(wrong.iter().all(|f| f.text.contains("signature includes its length")), "{wrong:?}");
    let verified: u64 = report.connections.iter().map(|c| c.smb.verified).sum();
    assert!(verified > 200, "{verified}");
}

/// The second connection is bound to the session of the first and has a signing key of its own.
#[test]
fn both_channels_of_a_session_verify() {
    let (report, _) = analyze_with_keys("smb-iwarp-multichannel", PASSWORD, &mut Off, |_, _| {}, |_, _| {});
    assert_eq!(report.connections.len(), 2);
    assert_eq!(report.connections[0].smb.sessions, report.connections[1].smb.sessions);
    for c in report.connections {
        assert!(c.smb.verified >= 2, "{}", c.smb.verified);
    }
    assert!(!report.findings.iter().any(|f| f.rule.id() == "SMB2-SIGNATURE"));
}
