//! Known bugs as a file: written, changed, and added to.

mod common;

use std::process::{Command, Output};

fn rdmascope(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rdmascope")).args(arguments).output().expect("the binary runs")
}

fn said(arguments: &[&str]) -> String {
    let output = rdmascope(arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("output is text")
}

const NEW: &str = "format = 1\n[[bug]]\nid = \"BUG-CVE-2031-1\"\nseverity = \"warn\"\nspec = \"[MS-SMB2] 2.2.9; \
    CVE-2031-1\"\n\
    title = \"A TREE_CONNECT: an unfixed server of 2031 falls over.\"\nsays = \"A tree connect is harmless.\"\ncauses \
    = [\"A client that mounts\"]\n\
    cure = \"Update the server's kernel.\"\nproduct = \"Linux ksmbd\"\nsince = \"6.12\"\nfixed = [\"6.12.200\"]\n\
    when = \"smb2.cmd == 3 && smb2.flags.response == 0\"\nby = \"client\"\n";

#[test]
fn a_file_that_was_written_says_what_is_built_in() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bugs.toml").display().to_string();
    said(&["rules", "--write", &file]);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), said(&["rules", "--write", "-"]));
    assert_eq!(said(&["rules", "--rules", &file]), said(&["rules"]));
    assert_eq!(said(&["explain", "BUG-CVE-2025-39943", "--rules", &file]), said(&["explain", "BUG-CVE-2025-39943"]));
    assert_eq!(rdmascope(&["rules", "--write", &file]).status.code(), Some(2), "nothing is overwritten unasked");
}

#[test]
fn bugs_of_a_kernel_version_are_listed() {
    let old = said(&["rules", "--kernel", "6.12.40-amd64"]);
    let (affected, perhaps) = old.split_once("Perhaps affected").unwrap();
    assert!(
        affected.starts_with("Affected\n")
            && affected.contains("BUG-CVE-2025-39943")
            && perhaps.contains("BUG-KSMBD-EARLY-DATA"),
        "{old}"
    );
    assert!(!said(&["rules", "--kernel", "6.12.49"]).contains("BUG-CVE-2025-39943"));
    assert_eq!(rdmascope(&["rules", "--kernel", "new"]).status.code(), Some(2));
}

#[test]
fn a_new_bug_is_found_explained_and_expected() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bugs.toml").display().to_string();
    std::fs::write(&file, NEW).unwrap();
    let sample = common::samples().join("smb-roce/smb-roce.pcap").display().to_string();
    let frames: Vec<u64> = said(&[
        "dissect",
        &sample,
        "-Y",
        "smb2.cmd == 3 && smb2.flags.response == 0",
        "-T",
        "fields",
        "-e",
        "frame.number",
    ])
    .lines()
    .map(|line| line.parse().unwrap())
    .collect();
    assert!(!frames.is_empty());
    for threads in ["1", "3"] {
        let json: serde_json::Value = serde_json::from_str(&said(&[
            "analyze",
            &sample,
            "--rules",
            &file,
            "--format",
            "json",
            "--threads",
            threads,
        ]))
        .unwrap();
        let finding = json["findings"]
            .as_array()
            .unwrap()
            .iter()
            .find(|f| f["id"] == "BUG-CVE-2031-1")
            .expect("the new bug is found");
        let told: Vec<u64> = finding["frames"].as_array().unwrap().iter().map(|f| f.as_u64().unwrap()).collect();
        assert_eq!(
            (told, finding["by"].as_str(), finding["severity"].as_str()),
            (frames.clone(), Some("client"), Some("warn"))
        );
        assert!(finding["connection"].is_u64(), "{finding}");
    }
    assert!(said(&["analyze", &sample, "--rules", &file]).contains("BUG-CVE-2031-1"));
    assert!(!said(&["analyze", &sample]).contains("BUG-CVE-2031-1"));
    let explained = said(&["explain", "BUG-CVE-2031-1", "--rules", &file]);
    assert!(explained.contains("Linux ksmbd 6.12 and later. Fixed in 6.12.200."), "{explained}");
    assert!(said(&["rules", "--rules", &file, "--write", "-"]).contains("when = \"smb2.cmd == 3"));
    let expect = folder.path().join("expect.toml").display().to_string();
    std::fs::write(&expect, "findings.BUG-CVE-2031-1 = 0\n").unwrap();
    let output = rdmascope(&["analyze", &sample, "--rules", &file, "--expect", &expect]);
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn errors_of_a_file_are_reported_in_one_line_with_their_place() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bugs.toml").display().to_string();
    std::fs::write(&file, NEW.replace("6.12.200", "6.x")).unwrap();
    let output = rdmascope(&["rules", "--rules", &file]);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), error.lines().count()), (Some(2), 1), "{error}");
    assert!(error.contains("bugs.toml is not a file of known bugs: line 12: "), "{error}");
}
