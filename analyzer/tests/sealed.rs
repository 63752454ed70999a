//! Signed and encrypted sessions, opened with the password of the account that the captures were made with.

mod common;

use common::*;
use rdmascope_analyzer::env::Options;
use rdmascope_analyzer::keys::Keyring;
use rdmascope_analyzer::pipeline::Pipeline;
use rdmascope_analyzer::report::Report;
use rdmascope_dissector::trace::{Off, Trace, Tree};

fn keyring(text: &str) -> Keyring {
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
) -> (Report, Kept) {
    let mut pipeline = Pipeline::with_sink(Options { keyring: keyring(keys), ..Options::default() }, Kept::default());
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
        let wrong: Vec<_> =
            report.findings.iter().filter(|f| f.rule.id() == "SMB2-SIGNATURE").map(|f| (f.frame, &f.text, f.count)).collect();
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
    let mut pipeline = Pipeline::with_sink(Options { keyring: keyring(PASSWORD), ..Options::default() }, Kept::default());
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
