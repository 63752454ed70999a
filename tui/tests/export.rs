//! `rdmascope export`, from outside.
#![allow(missing_docs)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn sample(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../samples").join(name).join(format!("{name}.pcap"))
}

fn rdmascope(args: &[&std::ffi::OsStr]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rdmascope")).args(args).output().unwrap()
}

fn seq(last: u32) -> Vec<u8> {
    (1..=last).flat_map(|n| format!("{n}\n").into_bytes()).collect()
}

#[test]
fn payloads_are_written_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let into = folder.path().join("files");
    let out = rdmascope(&["export".as_ref(), "payloads".as_ref(), sample("smb-roce").as_ref(), into.as_ref()]);
    assert!(out.status.success(), "{out:?}");
    assert_eq!(std::fs::read(into.join("w1.bin")).unwrap(), seq(100_000)[..98_304]);
    assert_eq!(std::fs::read(into.join("hello.txt")).unwrap(), b"hello\n");
    assert_eq!(std::fs::read(into.join("big.bin")).unwrap()[..131_072], seq(1_500_000)[..131_072]);
    // folders that were listed are no files
    let into_nfs = folder.path().join("nfs");
    let out = rdmascope(&["export".as_ref(), "payloads".as_ref(), sample("nfs-roce-v3").as_ref(), into_nfs.as_ref()]);
    assert!(out.status.success(), "{out:?}");
    let mut names: Vec<_> =
        std::fs::read_dir(&into_nfs).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, ["unnamed-connection-3", "w1.bin"]);
    let again = rdmascope(&["export".as_ref(), "payloads".as_ref(), sample("smb-roce").as_ref(), into.as_ref()]);
    assert_eq!(again.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&again.stderr).contains("is not empty"));
}

#[test]
fn an_annotated_capture_has_the_same_frames_and_their_comments() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("annotated.pcapng");
    let name = "smb-roce-negotiate-refused";
    let out = rdmascope(&["export".as_ref(), "annotated".as_ref(), sample(name).as_ref(), output.as_ref()]);
    assert!(out.status.success(), "{out:?}");
    use rdmascope_capture::{OpenOptions, Source, open};
    let mut before = open(sample(name), OpenOptions::new()).unwrap();
    let mut after = open(&output, OpenOptions::new()).unwrap();
    let mut said = 0;
    while let Some(record) = before.next().unwrap() {
        let copy = after.next().unwrap().expect("as many frames");
        assert_eq!((copy.bytes, copy.time_ns, copy.wire_len), (record.bytes, record.time_ns, record.wire_len));
        said += copy.comments().filter(|c| c.contains("SMBD-NEG-RSP-FRAGSIZE")).count();
    }
    assert!(after.next().unwrap().is_none());
    assert_eq!(said, 6);
}

#[test]
fn frames_that_a_filter_passes_keep_their_comments() {
    let folder = tempfile::tempdir().unwrap();
    let [annotated, passed] = ["annotated.pcapng", "passed.pcapng"].map(|name| folder.path().join(name));
    let name = "smb-roce-negotiate-refused";
    let out = rdmascope(&["export".as_ref(), "annotated".as_ref(), sample(name).as_ref(), annotated.as_ref()]);
    assert!(out.status.success(), "{out:?}");
    let out = rdmascope(&["dissect".as_ref(), annotated.as_ref(), "-w".as_ref(), passed.as_ref()]);
    assert!(out.status.success(), "{out:?}");
    use rdmascope_capture::{OpenOptions, Source, open};
    let comments = |path: &Path| {
        let (mut source, mut all) = (open(path, OpenOptions::new()).unwrap(), Vec::new());
        while let Some(record) = source.next().unwrap() {
            all.push(record.comments().map(|c| c.to_string()).collect::<Vec<_>>());
        }
        all
    };
    assert!(comments(&annotated).iter().any(|of_a_frame| !of_a_frame.is_empty()));
    assert_eq!(comments(&passed), comments(&annotated));
}

#[test]
fn tshark_reads_the_comments() {
    let Ok(version) = Command::new("tshark").arg("--version").output() else {
        assert!(std::env::var_os("CI").is_none(), "tshark is missing");
        eprintln!("NOT TESTED: tshark is missing");
        return;
    };
    assert!(version.status.success());
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("annotated.pcapng");
    let out = rdmascope(&["export".as_ref(), "annotated".as_ref(), sample("smb-roce-loss").as_ref(), output.as_ref()]);
    assert!(out.status.success(), "{out:?}");
    let listed = Command::new("tshark")
        .arg("-r")
        .arg(&output)
        .args(["-Y", "frame.comment contains \"RC-RETRANSMIT\"", "-T", "fields", "-e", "frame.number"])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&listed.stdout).split_whitespace().collect::<Vec<_>>(), ["665", "800", "945"]);
}

#[test]
fn the_plugin_is_installed_with_its_engine_tried_and_removed() {
    use rdmascope_plugins::wireshark::engine_file;
    let folder = tempfile::tempdir().unwrap();
    let run = |what: &str| {
        rdmascope(&[
            "export".as_ref(),
            "wireshark".as_ref(),
            what.as_ref(),
            "--dir".as_ref(),
            folder.path().as_os_str(),
        ])
    };
    let output = run("--install");
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}");
    let (plugins, source) = (folder.path().join("plugins"), folder.path().join("extcap/rdmascope-extcap"));
    assert!(
        plugins.join("rdmascope.lua").is_file() && plugins.join(engine_file()).is_file() && source.is_symlink(),
        "{said}"
    );
    assert_eq!(std::fs::read_dir(&plugins).unwrap().count(), 2, "nothing is left of the attempt");
    if std::process::Command::new("tshark").arg("--version").output().is_ok_and(|o| o.status.success()) {
        assert!(said.contains("loads both, and analyzes"), "{said}");
    } else {
        assert!(said.contains("No tshark was found"), "{said}");
    }
    let output = run("--remove");
    assert_eq!(String::from_utf8(output.stdout).unwrap().lines().count(), 3);
    assert!(output.status.success() && !source.is_symlink());
    assert_eq!(std::fs::read_dir(&plugins).unwrap().count(), 0);
    assert!(String::from_utf8(run("--remove").stdout).unwrap().contains("Nothing"));
}
