//! RDMA cards as a place of a live source, with the stand-in for libibverbs that the tests of `rdmascope-verbs` use.
#![cfg(target_os = "linux")]

use rdmascope_capture::Source;
use rdmascope_capture::live::{self, Filter};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

/// A folder with the stand-in. If it cannot be built, prints a message and returns `None`; under CI that is a failure.
fn standin() -> Option<tempfile::TempDir> {
    let headers =
        Path::new("/usr/include/infiniband/verbs.h").exists() && Path::new("/usr/include/rdma/rdma_cma.h").exists();
    if !headers || !Command::new("cc").arg("--version").output().is_ok_and(|o| o.status.success()) {
        let what = "NOT TESTED: cc, libibverbs-dev and librdmacm-dev are needed";
        assert!(std::env::var_os("CI").is_none(), "{what}");
        eprintln!("{what}");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("verbs/tests/standin.c");
    let library = folder.path().join("libibverbs.so.1");
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-pthread", "-o"])
        .arg(&library)
        .arg(source)
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    std::os::unix::fs::symlink(&library, folder.path().join("librdmacm.so.1")).unwrap();
    Some(folder)
}

fn open(folder: &Path, name: &str, filter: &str) -> rdmascope_capture::Result<live::LiveSource> {
    let mut options = live::Options::new();
    options.verbs = Some(folder.to_owned());
    options.filter = filter.parse::<Filter>().unwrap();
    live::open(&[name.to_owned()], &options, Arc::default())
}

#[test]
fn a_card_is_a_place_like_any_other() {
    let Some(folder) = standin() else { return };
    let mut source = open(folder.path(), "card0", "everything").unwrap();
    let mut lengths = Vec::new();
    while lengths.len() < 9 && source.advance().unwrap() {
        let record = source.record();
        lengths.push(record.bytes.len());
        assert_eq!(record.wire_len as usize, record.bytes.len());
    }
    // the seventh is one that the card does not deliver
    assert_eq!(lengths, [60, 160, 260, 360, 460, 560, 760, 860, 960]);
    assert_eq!(source.counters()[0].delivered, 9);
    assert!(
        source.interfaces()[0].comments[0].contains("times are the card's"),
        "{:?}",
        source.interfaces()[0].comments
    );
    // none is left, and this is noticed by waiting, not by polling
    assert!(!source.advance().unwrap());
    // packets of zeros and the like are no RDMA
    let mut none = open(folder.path(), "card0", "rdma").unwrap();
    assert!(!none.advance().unwrap());
}

#[test]
fn limits_of_a_card_are_reported_in_its_words() {
    let Some(folder) = standin() else { return };
    for (name, says) in [
        ("nocap0", "needs CAP_NET_RAW"),
        ("noraw0", "no RAW_PACKET queue pairs"),
        ("card0:2", "has no port 2"),
        ("card0:x", "not a port"),
    ] {
        let e = open(folder.path(), name, "rdma").unwrap_err().to_string();
        assert!(e.starts_with(name) && e.contains(says), "{e}");
        // the device is named once
        assert_eq!(e.matches(&format!("{name}: ")).count(), 1, "{e}");
    }
}
