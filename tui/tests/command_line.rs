//! The binary from outside: its messages and exit status on errors, and the correctness of its output formats.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

fn rdmascope(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rdmascope"))
        .args(arguments)
        .env_remove("NO_COLOR")
        .output()
        .expect("the binary runs")
}

fn sample() -> String {
    common::samples().join("smb-roce/smb-roce.pcap").display().to_string()
}

/// A folder of this test, removed afterwards.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        // tests run side by side, and two may choose one name
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("rdmascope-{name}-{}-{count}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder for the test");
        Self(path)
    }
    fn file(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.0.join(name);
        fs::write(&path, bytes).expect("a file for the test");
        path.display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Exit status 2, nothing on stdout, and one line on stderr that holds `words`.
fn refused(arguments: &[&str], words: &str) {
    let output = rdmascope(arguments);
    let stderr = String::from_utf8(output.stderr).expect("stderr is UTF-8");
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
    assert_eq!(stderr.lines().count(), 1, "{arguments:?}: one line is enough: {stderr}");
    assert!(stderr.starts_with("rdmascope: ") && stderr.contains(words), "{arguments:?}: {stderr}");
    assert!(output.stdout.is_empty(), "{arguments:?}: nothing is shown");
}

fn text(arguments: &[&str]) -> String {
    let output = rdmascope(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.is_empty(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("output is UTF-8")
}

#[test]
fn wrong_input_is_one_clear_line_and_status_2() {
    let folder = Folder::new("wrong");
    let (words, empty) = (folder.file("notes.txt", b"these are words\n"), folder.file("empty.pcap", b""));
    let directory = folder.0.display().to_string();
    refused(&["dissect", "/nowhere/at/all.pcap"], "/nowhere/at/all.pcap: no such file");
    refused(&["dissect", &directory], "is a directory");
    refused(&["dissect", &words], "not a capture file");
    refused(&["dissect", &empty], "is empty");
    // if the new file cannot be made, the message names it
    refused(
        &["export", "annotated", &sample(), "/nowhere/at/all.pcapng"],
        "/nowhere/at/all.pcapng: cannot be written: No such file",
    );
    if cfg!(not(feature = "parquet")) {
        refused(&["export", "parquet", &sample(), &directory], "built without Parquet");
    }
    // a name that would act on a terminal does not
    refused(&["dissect", "/nowhere/\x1b[31m.pcap"], "no such file");
    let stderr = rdmascope(&["dissect", "/nowhere/\x1b[31m.pcap"]).stderr;
    assert!(!stderr.contains(&0x1b));
}

#[test]
fn no_permission() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new("permission");
    let path = folder.file("secret.pcap", &fs::read(sample()).expect("the sample"));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).expect("a mode");
    if fs::File::open(&path).is_ok() {
        eprintln!("NOT TESTED: root may read everything");
        return;
    }
    refused(&["dissect", &path], "permission denied");
}

#[test]
fn wrong_use_is_one_clear_line_and_status_2() {
    let sample = sample();
    refused(&["dissect"], "<FILE>");
    refused(&["disect", &sample], "disect");
    refused(&["dissect", &sample, "-T", "xml"], "json");
    refused(&["dissect", &sample, "-c", "many"], "many");
    refused(&["dissect", &sample, "--frobnicate"], "--frobnicate");
    refused(&["dissect", &sample, "-T", "fields"], "-e FIELD");
    refused(&["dissect", &sample, "-e", "frame.number"], "-T fields, csv, json or ek");
    refused(
        &["dissect", &sample, "-T", "fields", "-e", "frame.numbr"],
        "unknown field \"frame.numbr\"; did you mean frame.number?",
    );
    refused(
        &["dissect", &sample, "-T", "fields", "-e", "frame.number", "-E", "header=perhaps"],
        "header must be y or n",
    );
    refused(&["dissect", &sample, "-T", "ek", "-x"], "-x");
    refused(&["dissect", &sample, "-T", "json", "-V"], "-V is the tree of -T text");
    refused(&["fields", "no.such"], "no.such");
    refused(&["explain", "SMBD-NEG-FRIST"], "did you mean SMBD-NEG-FIRST?");
}

#[test]
fn errors_name_the_help_of_their_command() {
    for command in [&["analyze"][..], &["dissect"], &["export", "annotated"], &["probe"], &["replay"]] {
        refused(&[command, &["--frobnicate"]].concat(), &format!("(see rdmascope {} --help)", command.join(" ")));
    }
    let sample = sample();
    for (arguments, words) in [
        (
            &["analyze", "--format", "xml", &sample][..],
            "[possible values: text, json, html]; a similar value exists: 'html' (see rdmascope analyze --help)",
        ),
        (&["--color", "never", "analyze", "--format", "xml"], "(see rdmascope analyze --help)"),
        (&["dissect", &sample, "-T", "jsn"], "a similar value exists: 'json' (see rdmascope dissect --help)"),
        (&["dissect", &sample, "-c", "abc"], "a whole number is expected (see rdmascope dissect --help)"),
        (
            &["dissect", &sample, "-c", "-1"],
            "'-1' for '-c': the number must not be negative (see rdmascope dissect --help)",
        ),
        (
            &["dissect", "-D"],
            "rdmascope: -D: dissect reads files; rdmascope capture -D lists interfaces (see rdmascope dissect --help)",
        ),
        (&["dissect", &sample, "-f", "udp"], "rdmascope capture has -f (see rdmascope dissect --help)"),
        (&["analyze", &sample, "-Z"], "rdmascope: unexpected argument '-Z' found (see rdmascope analyze --help)"),
        (&["capture", "-c", "0"], "0 is not 1 or more (see rdmascope capture --help)"),
        (&["replay", &sample, "--to", "host", "--dscp", "64"], "64 is not from 0 to 63 (see rdmascope replay --help)"),
        (&["peer", "--fault", "nosuch"], "there is no such fault; --list-faults lists all (see rdmascope peer --help)"),
        (&["peer", "--listen", "foo"], "ADDRESS:PORT with a number for an address is expected"),
        (&["nosuch"], "(see rdmascope --help)"),
    ] {
        refused(arguments, words);
    }
}

/// Without a verb, files are analyzed: standard input too, and one that does not exist is missing, and no verb.
#[test]
fn a_file_in_place_of_a_verb_is_analyzed() {
    refused(&["nosuch.pcap"], "rdmascope: nosuch.pcap: no such file");
    refused(&["/nowhere/nosuch"], "/nowhere/nosuch: no such file");
    let sample = sample();
    let report = text(&[&sample]);
    assert_eq!(report, text(&["analyze", &sample]));
    let piped = Command::new(env!("CARGO_BIN_EXE_rdmascope"))
        .arg("-")
        .stdin(fs::File::open(&sample).expect("the sample"))
        .output()
        .expect("the binary runs");
    let said = String::from_utf8_lossy(&piped.stderr).into_owned();
    assert!(piped.status.success(), "{said}");
    let verdict = |report: &str| report.lines().find(|line| line.contains("problems found")).map(str::to_owned);
    assert_eq!(verdict(&String::from_utf8_lossy(&piped.stdout)), verdict(&report));
}

/// An error about an output does not read as one about the captures, and names only what the user named.
#[test]
fn outputs_that_cannot_be_written_are_told_by_their_own_names() {
    let folder = Folder::new("outputs");
    let directory = folder.0.display().to_string();
    let sample = sample();
    refused(&["analyze", &sample, "-o", &directory], ": cannot be written: is a directory");
    let output = rdmascope(&["analyze", &sample, "-o", "/nowhere/at/all.txt"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert_eq!(said, "rdmascope: /nowhere/at/all.txt: cannot be written: No such file or directory (os error 2)\n");
}

#[test]
fn options_without_effect_are_mentioned() {
    let output = rdmascope(&["analyze", "--exchanges", &sample()]);
    assert!(output.status.success() && !output.stdout.is_empty());
    assert_eq!(String::from_utf8_lossy(&output.stderr), "rdmascope: --exchanges and --credits need --format json\n");
}

/// What an encrypted session needs is said until it is given.
#[test]
fn a_sealed_capture_says_how_it_is_decrypted() {
    let folder = common::samples().join("smb-tcp-seal");
    let [capture, keys] = ["smb-tcp-seal.pcap", "keys.txt"].map(|name| folder.join(name).display().to_string());
    assert!(text(&["analyze", &capture]).contains("--keys FILE decrypts them"));
    assert!(!text(&["analyze", &capture, "--keys", &keys]).contains("--keys FILE"));
}

#[test]
fn each_capture_source_is_listed_once() {
    let listed = String::from_utf8(rdmascope(&["capture", "-D"]).stdout).expect("output is UTF-8");
    let names: Vec<&str> =
        listed.lines().filter(|l| !l.starts_with(' ')).filter_map(|l| l.split_whitespace().next()).collect();
    let distinct: std::collections::BTreeSet<&str> = names.iter().copied().collect();
    assert!(names.contains(&"lo") && distinct.len() == names.len(), "{listed}");
}

#[test]
fn a_wrong_filter_is_drawn_with_a_caret() {
    let sample = sample();
    for (filter, expected) in [
        (
            "smb_direct.credits.grantd == 1",
            "rdmascope: filter: unknown field \"smb_direct.credits.grantd\"; did you mean \
                smb_direct.credits.granted?\n  \
            smb_direct.credits.grantd == 1\n  ^^^^^^^^^^^^^^^^^^^^^^^^^\n",
        ),
        (
            "frame.number == x",
            "rdmascope: filter: \"x\" is not a number for frame.number\n  frame.number == x\n                  ^\n",
        ),
    ] {
        let output = rdmascope(&["dissect", &sample, "-Y", filter]);
        assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(2), expected));
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn a_damaged_capture_is_exported_up_to_the_damage() {
    let folder = Folder::new("exported");
    let whole = fs::read(sample()).expect("the sample");
    let capture = folder.file("cut.pcap", &whole[..whole.len() / 2]);
    let out = folder.0.join("annotated.pcapng").display().to_string();
    let output = rdmascope(&["export", "annotated", &capture, &out]);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), stderr.lines().count()), (Some(2), 1), "{stderr}");
    assert!(stderr.contains("the part before was written") && stderr.contains("damaged at byte"), "{stderr}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("frames, "));
    // the new one is complete
    assert!(text(&["dissect", &out]).lines().count() > 100);
}

#[test]
fn help_that_cannot_be_written_is_an_error() {
    for arguments in [&["--help"][..], &["--version"], &["analyze", "--help"]] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
        let output = Command::new(env!("CARGO_BIN_EXE_rdmascope"))
            .args(arguments)
            .stdout(full)
            .output()
            .expect("the binary runs");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), stderr.lines().count()), (Some(2), 1), "{stderr}");
        assert!(stderr.contains("standard output cannot be written"), "{stderr}");
    }
    assert!(text(&["help", "analyze"]).contains("Usage: rdmascope analyze"));
}

/// Congestion notifications, and nothing of a connection: no rule is broken, but nothing worked either.
#[test]
fn a_capture_without_a_connection_gets_no_check_mark() {
    let capture = common::samples().join("probes/cnp.pcap").display().to_string();
    let text = text(&["analyze", &capture]);
    assert!(text.contains("– No problems found in the captured frames. 1 note.") && !text.contains('✓'), "{text}");
}

#[test]
fn a_full_disk_is_an_error_and_a_closed_pipe_is_not() {
    let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
    let output = Command::new(env!("CARGO_BIN_EXE_rdmascope"))
        .args(["dissect", &sample()])
        .stdout(Stdio::from(full))
        .output()
        .expect("the binary runs");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), stderr.lines().count()), (Some(2), 1), "{stderr}");
    assert!(stderr.contains("standard output cannot be written") && stderr.contains("No space left"), "{stderr}");

    let mut child = Command::new(env!("CARGO_BIN_EXE_rdmascope"))
        .args(["dissect", &sample(), "-V"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!((output.status.code(), output.stderr), (Some(0), Vec::new()));
}

#[test]
fn a_damaged_file_gives_what_is_before_the_damage() {
    let folder = Folder::new("damaged");
    let bytes = fs::read(sample()).expect("the sample");
    let cut = folder.file("cut.pcap", &bytes[..1000]);
    let output = rdmascope(&["dissect", &cut]);
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stdout.lines().count() > 3 && stderr.lines().count() == 1 && stderr.contains("damaged at byte"),
        "{stdout}{stderr}"
    );
    let whole: String = text(&["dissect", &sample()]);
    assert!(whole.starts_with(&*stdout), "the frames before the damage are as in the whole file");
    // JSON stays JSON
    let json = rdmascope(&["dissect", &cut, "-T", "json"]);
    assert_eq!(
        serde_json::from_slice::<serde_json::Value>(&json.stdout).expect("JSON").as_array().map(Vec::len),
        Some(stdout.lines().count())
    );
}

#[test]
fn lines_filters_and_counts() {
    let sample = sample();
    let all = text(&["dissect", &sample]);
    assert_eq!(all.lines().count(), 1079);
    assert!(!all.contains('\x1b'), "no colours into a file");
    assert!(text(&["dissect", &sample, "-c", "3", "--color", "always"]).contains("\x1b["));
    assert_eq!(text(&["dissect", &sample, "-c", "5"]).lines().count(), 5);
    assert_eq!(text(&["dissect", &sample, "-c", "0"]), "");
    let some = text(&["dissect", &sample, "-Y", "frame.number in {24, 26, 9000}"]);
    assert!(
        some.lines().count() == 2 && some.contains("NegotiateRequest") && some.contains("NegotiateResponse"),
        "{some}"
    );
    for (filter, form) in
        [("smb_direct && !smb2", "text"), ("smb_direct && !smb2", "ek"), ("smb_direct && !smb2", "fields")]
    {
        let mut arguments = vec!["dissect", &sample, "-Y", filter, "-T", form];
        if form == "fields" {
            arguments.extend(["-e", "frame.number"]);
        }
        let lines = text(&arguments).lines().count();
        assert!(lines > 50, "{form}: {lines}");
        assert_eq!(
            lines,
            text(&["dissect", &sample, "-Y", filter]).lines().count() * if form == "ek" { 2 } else { 1 },
            "{form}"
        );
    }
}

#[test]
fn csv_is_a_table_with_a_header() {
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../samples/probes/t6_err.pcap");
    let sample = sample.to_str().unwrap();
    let table = text(&["dissect", "-T", "csv", sample]);
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), 309);
    assert!(lines[0].starts_with("frame.number,frame.time_epoch,frame.len,"), "{}", lines[0]);
    assert!(lines.iter().all(|line| line.split(',').count() == 14), "cells have no commas here");
    assert!(table.contains("\"RC-RNR\""));
    let named = text(&["dissect", "-T", "csv", "-e", "frame.number", "-E", "separator=/t", sample, "-c", "2"]);
    assert_eq!(named, "frame.number\n\"1\"\n\"2\"\n");
}

#[test]
fn fields_print_as_tshark_prints_them() {
    let sample = sample();
    let arguments = [
        "dissect",
        &sample,
        "-Y",
        "frame.number == 26",
        "-T",
        "fields",
        "-e",
        "frame.number",
        "-e",
        "ip.addr",
        "-e",
        "infiniband.bth.se",
        "-e",
        "infiniband.bth",
    ];
    let with = |options: &[&str]| text(&[&arguments[..], options].concat());
    assert_eq!(with(&[]), "26\t192.0.2.1,192.0.2.2\tFalse\t0400ffff00000012809b1efb\n");
    assert_eq!(
        with(&["-E", "header=y,separator=;,occurrence=l,quote=d"]),
        "frame.number;ip.addr;infiniband.bth.se;infiniband.bth\n\"26\";\"192.0.2.2\";\"False\";\"0400ffff00000012809b1efb\"\n"
    );
}

#[test]
fn trees_show_fields_with_their_bytes() {
    let tree = text(&["dissect", &sample(), "-V", "-Y", "frame.number == 24"]);
    for line in [
        "Frame 24: 78 bytes on the wire, 78 captured [0+78]",
        "InfiniBand [42+36]",
        "        MaxReceiveSize: ",
        "[Frame Number: 24]",
    ] {
        assert!(tree.contains(line), "{line} is missing in\n{tree}");
    }
    let hex = text(&["dissect", &sample(), "-x", "-Y", "frame.number == 24"]);
    assert!(hex.contains("0000  52 54 00 00 00 01 52 54"), "{hex}");
}

#[test]
fn json_is_json_with_and_without_repeated_keys() {
    let sample = sample();
    let value = |arguments: &[&str]| serde_json::from_str::<serde_json::Value>(&text(arguments)).expect("JSON");
    let json = value(&["dissect", &sample, "-T", "json"]);
    let frames = json.as_array().expect("an array");
    assert_eq!(frames.len(), 1079);
    let request = &frames[23]["_source"]["layers"];
    assert_eq!(request["smb_direct"]["smb_direct.negotiate_request"]["smb_direct.credits.requested"], "255");
    assert_eq!(request["frame"]["frame.number"], "24");
    let unique = value(&["dissect", &sample, "-T", "json", "--no-duplicate-keys", "-Y", "frame.number == 24"]);
    assert_eq!(unique[0]["_source"]["layers"]["ip"]["ip.addr"], serde_json::json!(["192.0.2.2", "192.0.2.1"]));
    assert_eq!(value(&["dissect", &sample, "-T", "json", "-Y", "frame.number == 0"]), serde_json::json!([]));
    assert_eq!(value(&["dissect", &sample, "-s", "-T", "json"])["frames"], 1079);
}

#[test]
fn ek_is_json_by_lines() {
    let text = text(&["dissect", &sample(), "-T", "ek", "-c", "200"]);
    let lines: Vec<serde_json::Value> =
        text.lines().map(|l| serde_json::from_str(l).expect("a line of JSON")).collect();
    assert_eq!(lines.len(), 400);
    assert_eq!(lines[46]["index"]["_index"], "packets-2026-11-21");
    assert_eq!(lines[47]["layers"]["udp"]["udp_udp_dstport"], "4791");
}

/// Tags open and close in order, attributes are quoted, and no control character is in it.
#[test]
fn pdml_is_well_formed() {
    let text = text(&["dissect", &sample(), "-T", "pdml"]);
    assert!(!text.chars().any(|c| c.is_control() && c != '\n'));
    let mut open: Vec<&str> = Vec::new();
    for tag in text.split('<').skip(1) {
        let (inside, after) = tag.split_once('>').expect("a tag ends");
        assert!(after.trim().is_empty(), "text between tags: {after}");
        if inside.starts_with('?') {
            continue;
        }
        if let Some(name) = inside.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name));
            continue;
        }
        assert_eq!(inside.matches('"').count() % 2, 0, "{inside}");
        if !inside.ends_with('/') {
            open.push(inside.split(' ').next().expect("a name"));
        }
    }
    assert!(open.is_empty() && text.matches("<packet>").count() == 1079);
}

#[test]
fn several_files_are_merged_and_standard_input_is_read() {
    let (roce, iwarp) = (sample(), common::samples().join("smb-iwarp/smb-iwarp.pcap").display().to_string());
    let both = text(&["dissect", &roce, &iwarp, "-T", "fields", "-e", "frame.number", "-e", "frame.time_epoch"]);
    let times: Vec<&str> = both.lines().filter_map(|l| l.split('\t').nth(1)).collect();
    assert_eq!(times.len(), 1079 + 748);
    assert!(times.is_sorted());
    let child = Command::new(env!("CARGO_BIN_EXE_rdmascope"))
        .args(["dissect", "-", "-c", "4"])
        .stdin(fs::File::open(&roce).expect("the sample"))
        .output()
        .expect("the binary runs");
    assert_eq!(String::from_utf8_lossy(&child.stdout), text(&["dissect", &roce, "-c", "4"]));
}

#[test]
fn lists_of_fields_and_findings_help_and_completions() {
    let fields = text(&["fields", "smb_direct.credits"]);
    assert!(
        fields.contains("F\tCreditsGranted\tsmb_direct.credits.granted\tFT_UINT16\tsmb_direct\tBASE_DEC\t0x0\t"),
        "{fields}"
    );
    let all = text(&["fields"]);
    assert!(all.contains("P\tInfiniBand\tinfiniband\n"));
    // those of the analysis are filters as well, and are listed like them
    assert!(all.contains("F\tRule\trdmascope.finding.id\tFT_STRING\trdmascope\t"));
    assert!(
        all.contains("\trdmascope.credits.client\t") && all.contains("\trdmascope.exchange.time\tFT_RELATIVE_TIME\t")
    );
    assert!(text(&["explain"]).lines().count() > 20);
    assert!(text(&["explain", "smbd-neg-first"]).contains("What to do"));
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(text(&["completions", shell]).contains("dissect"), "{shell}");
    }
    let help = text(&["dissect", "--help"]);
    assert!(help.contains("Examples:") && help.contains("display filter"));
    let output = rdmascope(&[]);
    assert!(output.status.code() == Some(2) && String::from_utf8_lossy(&output.stderr).contains("Usage:"));
    let folder = Folder::new("man");
    text(&["man", &folder.0.display().to_string()]);
    assert!(Path::new(&folder.0.join("rdmascope-dissect.1")).exists());
}

/// Two queue pairs without a captured handshake: paired by their traffic, or by an option, rightly or wrongly.
#[test]
fn a_pair_of_queue_pairs_can_be_pinned() {
    let capture = common::samples().join("probes/t1_nocm.pcap").display().to_string();
    let connections = |pin: &[&str]| -> Vec<(String, serde_json::Value)> {
        let output = rdmascope(&[&["analyze", "--format", "json", &capture], pin].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let connections = report["connections"].as_array().expect("a list");
        connections.iter().map(|c| (c["handshake"].as_str().unwrap_or_default().to_owned(), c["qp"].clone())).collect()
    };
    let both = serde_json::json!({"client": 0x11, "server": 0x22});
    assert_eq!(connections(&[]), [("inferred".to_owned(), both.clone())]);
    assert_eq!(connections(&["--pin", "0x11=34"]), [("pinned".to_owned(), both.clone())]);
    assert_eq!(connections(&["--pin", "0x22=0x11"]), [("pinned".to_owned(), both)], "in whatever order");
    assert_eq!(
        connections(&["--pin", "0x11=0x99"]).len(),
        2,
        "what is said by hand is believed: 0x22 belongs to another"
    );
    refused(&["analyze", &capture, "--pin", "0x11"], "--pin");
}

#[test]
fn no_output_takes_the_place_of_an_input_or_of_another_file_unasked() {
    let folder = Folder::new("outputs");
    let frames = fs::read(sample()).expect("the sample");
    let capture = folder.file("capture.pcap", &frames);
    let hard = folder.0.join("hard.pcap");
    fs::hard_link(&capture, &hard).expect("a link");
    let hard = hard.display().to_string();
    let mine = folder.file("mine", b"mine");
    for arguments in [
        &["analyze", &capture, "-o"][..],
        &["analyze", "--format", "html", &capture, "-o"],
        &["export", "annotated", &capture],
    ] {
        for force in [&[][..], &["--force"]] {
            for output in [&capture, &hard] {
                refused(&[arguments, &[output], force].concat(), "is an input; give the output another name");
            }
        }
        refused(&[arguments, &[&mine]].concat(), "mine: exists already; --force replaces it");
        assert_eq!(
            (fs::read(&capture).unwrap(), fs::read(&mine).unwrap()),
            (frames.clone(), b"mine".to_vec()),
            "{arguments:?}"
        );
    }
    refused(&["export", "wireshark", "-o", &mine], "exists already");
    // a failed command leaves the existing file, and nothing beside it
    let words = folder.file("words", b"these are words\n");
    refused(&["analyze", &words, "--force", "-o", &mine], "not a capture file");
    assert_eq!(fs::read(&mine).unwrap(), b"mine");
    text(&["analyze", &capture, "--force", "-o", &mine]);
    assert!(fs::read_to_string(&mine).unwrap().contains("frames"));
    let mut names: Vec<_> =
        fs::read_dir(&folder.0).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, ["capture.pcap", "hard.pcap", "mine", "words"]);
}

#[test]
fn a_capture_that_is_damaged_before_its_first_frame_gives_an_empty_report_with_the_damage() {
    let folder = Folder::new("damaged");
    let frames = fs::read(sample()).expect("the sample");
    for (name, bytes) in [("header.pcap", &frames[..10]), ("record.pcap", &frames[..30])] {
        let capture = folder.file(name, bytes);
        let output = rdmascope(&["analyze", "--format", "json", &capture]);
        assert_eq!(output.status.code(), Some(2));
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let error = report["inputs"][0]["error"].as_str().expect("the damage");
        assert!(error.contains("the file ends inside a p"), "{error}");
        assert_eq!((&report["capture"]["frames"], &report["connections"]), (&0.into(), &serde_json::json!([])));
    }
}

#[test]
fn an_interrupt_of_a_pipe_gives_the_report_of_what_came() {
    use std::io::Write;
    let frames = fs::read(sample()).expect("the sample");
    let mut child = Command::new(env!("CARGO_BIN_EXE_rdmascope"))
        .args(["analyze", "-", "--format", "json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut input = child.stdin.take().expect("a pipe");
    // more than a pipe holds: once all is written, it listens for signals and reads
    input.write_all(&frames[..frames.len() / 2]).expect("it reads");
    input.flush().expect("it reads");
    let interrupted = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill");
    assert!(interrupted.success());
    // the pipe stays open: it is the interrupt that ends it
    let output = child.wait_with_output().expect("it ends");
    drop(input);
    assert!(output.status.success(), "{output:?}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(report["capture"]["frames"].as_u64().is_some_and(|n| n > 0), "{}", report["capture"]);
    assert!(report["inputs"][0]["error"].is_null());
    assert!(String::from_utf8_lossy(&output.stderr).contains("interrupted"));
}

/// Threads make the new frames in batches of several MiB.
#[test]
fn anonymize_writes_the_same_with_any_number_of_threads() {
    const HEADER: usize = 24;
    let folder = Folder::new("anonymize");
    let frames = fs::read(common::samples().join("smb-iwarp/smb-iwarp.pcap")).expect("the sample");
    let mut long = frames[..HEADER].to_vec();
    while long.len() < 10 << 20 {
        long.extend_from_slice(&frames[HEADER..]);
    }
    let (capture, key) = (folder.file("long.pcap", &long), folder.file("key", b"of this test"));
    let made = |threads: &str, payload: &str| {
        let out = folder.0.join(format!("{threads}-{payload}.pcapng"));
        let output = out.display().to_string();
        let told =
            text(&["anonymize", &capture, &output, "--key-file", &key, "--threads", threads, "--payload", payload]);
        let counts = told.split_once(": ").map(|(_, counts)| counts.to_owned());
        (fs::read(&out).expect("its output"), counts)
    };
    for payload in ["zero", "stream"] {
        let alone = made("1", payload);
        assert!(alone.0.len() > 10 << 20);
        for threads in ["2", "3"] {
            assert!(alone == made(threads, payload), "{threads} threads, --payload {payload}");
        }
    }
}

/// True if the process has given up gaining privileges, which is part of confining itself.
#[cfg(target_os = "linux")]
fn is_confined(id: u32) -> bool {
    fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default().lines().any(|line| line == "NoNewPrivs:\t1")
}

#[test]
#[cfg(target_os = "linux")]
fn what_only_reads_captures_confines_itself_before_it_reads_one() {
    let folder = Folder::new("confined");
    let place = |name: &str| folder.0.join("not/there/yet").join(name).display().to_string();
    let (copy, objects, files) =
        (folder.0.join("copy.pcapng").display().to_string(), format!("smb,{}", place("objects")), place("files"));
    let commands: &[&[&str]] = &[
        &["analyze", "-"],
        &["dissect", "-"],
        &["dissect", "-", "--export-objects", &objects],
        &["anonymize", "-", &copy],
        &["compare", "-", "-"],
        &["diff", "-", "-"],
        &["export", "payloads", "-", &files],
    ];
    if is_confined(std::process::id()) {
        println!("NOT TRIED: this process may gain no privileges, and so none that it starts");
        return;
    }
    for command in commands {
        // nothing is ever sent: it waits for the capture's first byte
        let mut child = Command::new(env!("CARGO_BIN_EXE_rdmascope"))
            .args(*command)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the binary runs");
        let confined = loop {
            if is_confined(child.id()) {
                break true;
            }
            if child.try_wait().expect("the child can be asked").is_some() {
                break false;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        };
        let _ = child.kill();
        let _ = child.wait();
        assert!(confined, "{command:?} ends unconfined");
    }
    // output into a folder that does not exist yet
    text(&["export", "payloads", &sample(), &files]);
    assert!(fs::read_dir(&files).expect("the folder was made").next().is_some());
}

/// If connections had to be left out, the verdict says so and does not report success.
#[test]
fn a_limit_that_was_reached_is_told_at_the_verdict() {
    let capture = common::samples().join("nfs-tcp-nconnect/nfs-tcp-nconnect.pcap").display().to_string();
    let said = text(&["analyze", "--color", "never", "--max-connections", "2", &capture]);
    let verdict: Vec<&str> = said.lines().take(10).collect();
    assert!(verdict.iter().any(|line| line.contains("connections were dropped to stay within a limit")), "{verdict:?}");
    assert!(verdict.iter().all(|line| !line.contains('\u{2713}')), "{verdict:?}");
    let report: serde_json::Value =
        serde_json::from_str(&text(&["analyze", "--format", "json", "--max-connections", "2", &capture]))
            .expect("JSON");
    assert!(report["dropped"]["connections_not_reported"].as_u64() > Some(0), "{}", report["dropped"]);
}

/// Every request of a compound is an exchange of its frame, and its connection is listed once.
#[test]
fn each_request_of_a_compound_is_an_exchange_of_its_frame() {
    let fields = ["-T", "fields", "-e", "rdmascope.exchange.command", "-e", "rdmascope.connection"];
    let said = text(&[&["dissect", &sample(), "-Y", "frame.number == 136"], &fields[..]].concat());
    assert_eq!(said, "CREATE,QUERY_INFO,CLOSE\t1\n");
}

/// A request of a handle has the name of its file, as its reply has.
#[test]
fn requests_and_replies_have_the_name_of_their_file() {
    let filter = "rdmascope.exchange.file == \"w1.bin\" && smb2.cmd == 9";
    let said = text(&["dissect", &sample(), "-Y", filter, "-T", "fields", "-e", "smb2.flags.response"]);
    let (requests, replies) = (said.matches("False").count(), said.matches("True").count());
    assert!(requests == replies && requests > 0, "{requests} requests, {replies} replies: {said}");
}

/// What is to be ignored does not fail by the connection that it ended either.
#[test]
fn what_is_ignored_fails_nothing() {
    let refused =
        common::samples().join("smb-roce-negotiate-refused/smb-roce-negotiate-refused.pcap").display().to_string();
    let run = |ignore: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rdmascope"));
        let output = command.args(["analyze", &refused, "--fail-on", "note"]).args(ignore).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (code, said) = run(&[]);
    assert!(code == Some(1) && said.contains("failed"), "{said}");
    let (code, said) = run(&["--ignore", "SMBD-NEG-RSP-FRAGSIZE,CM-REJECT"]);
    assert!(code == Some(0) && said.contains("No problems found besides what is ignored"), "{said}");
}

/// A peer whose password is empty or no text does not let everybody in: it does not begin.
#[cfg(unix)]
#[test]
fn a_password_that_is_none_lets_nobody_in() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    for (password, words) in [(&b""[..], "is empty"), (b"\xff\xfe", "is not UTF-8")] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rdmascope"));
        let output = command
            .args(["peer", "--listen", "127.0.0.1:0"])
            .env("RDMASCOPE_PASSWORD", OsStr::from_bytes(password))
            .output();
        let output = output.expect("the binary runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && said.contains(words) && output.stdout.is_empty(), "{said}");
    }
}

#[test]
fn the_version_is_told_by_the_flag_of_tshark_too() {
    assert_eq!(text(&["-v"]), text(&["--version"]));
}

/// The time of the capture is shown beside the verdict; findings have the time of day, in the requested zone.
#[test]
fn the_verdict_has_absolute_times_in_the_zone_asked_for() {
    let capture = common::samples().join("smb-roce-credits4/smb-roce-credits4.pcap");
    for (arguments, captured, found) in [
        (&[][..], "Captured 2026-11-21 08:09:19 to 08:09:41 UTC", ", 08:09:35"),
        (&["-t", "u"], "Captured 2026-11-21 08:09:19 to 08:09:41 UTC", ", 08:09:35"),
        (&["-t", "a"], "Captured 2026-11-21 09:09:19 to 09:09:41 UTC+01:00", ", 09:09:35"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rdmascope"));
        let output = command
            .args(["analyze", "--color", "never"])
            .args(arguments)
            .arg(&capture)
            .env("TZ", "Europe/Berlin")
            .output();
        let said = String::from_utf8(output.expect("the binary runs").stdout).expect("output is UTF-8");
        assert_eq!(said.lines().nth(1), Some(captured), "{arguments:?}");
        assert!(said.contains(found), "{arguments:?}: {said}");
    }
}

/// A share that guests may write to is not opened to other hosts by chance.
#[test]
fn guests_of_other_hosts_write_only_where_that_is_said() {
    let folder = Folder::new("guests");
    let share = folder.0.display().to_string();
    let arguments = ["peer", "--listen", "0.0.0.0:0", "--share", &share, "--allow-writes"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_rdmascope"));
    let output = command.args(arguments).env_remove("RDMASCOPE_PASSWORD").output().expect("the binary runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.code() == Some(2) && said.contains("--yes-guests-may-write") && said.contains(&share),
        "{said}"
    );
    assert!(output.stdout.is_empty() && said.lines().count() == 1, "{said}");
}

/// Cases that can use up a server's connections are skipped with `--gentle`, and the probe ends if a server accepts no
/// more connections.
#[test]
fn a_probe_is_kind_to_servers_and_notices_one_that_is_gone() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port").port();
    let (host, case) = (format!("127.0.0.1:{port}"), "SmbdNegotiate_UncompletedMessage");
    let gentle = text(&["probe", &host, "--gentle", "--case", case]);
    assert!(gentle.starts_with("n/a") && gentle.contains("--no-gentle"), "{gentle}");
    let gone = rdmascope(&["probe", &host, "--case", "SmbdDataTransfer_*"]);
    let said = String::from_utf8_lossy(&gone.stdout).into_owned();
    // no case was tried: none failed
    assert_eq!((gone.status.code(), said.as_str()), (Some(2), ""));
    let said = String::from_utf8_lossy(&gone.stderr).into_owned();
    assert!(said.contains("cannot connect to 127.0.0.1:"), "{said}");
}

/// A filter that names numbers of frames ends reading early, and has what is before them only passed over: the output
/// is that of looking at every frame.
#[test]
fn frames_by_their_numbers_are_those_of_the_whole_capture() {
    const FORMATS: &[&[&str]] = &[
        &["-V"],
        &[
            "-T",
            "fields",
            "-e",
            "frame.number",
            "-e",
            "tcp.stream",
            "-e",
            "tcp.seq",
            "-e",
            "rdmascope.exchange",
            "-e",
            "_ws.col.info",
        ],
        &["-T", "json"],
        &["-x"],
        &[],
    ];
    let folders = fs::read_dir(common::samples()).expect("the samples").flatten().map(|entry| entry.path());
    let captures =
        folders.filter(|path| path.is_dir()).flat_map(|folder| fs::read_dir(folder).expect("a folder").flatten());
    let is_capture = |path: &PathBuf| path.extension().is_some_and(|e| e == "pcap" || e == "pcapng");
    let mut captures: Vec<PathBuf> = captures.map(|entry| entry.path()).filter(is_capture).collect();
    captures.sort();
    let mut seen = 0;
    for (i, capture) in captures.iter().enumerate() {
        let path = capture.to_str().expect("UTF-8");
        let numbers = rdmascope(&["dissect", path, "-T", "fields", "-e", "frame.number"]).stdout;
        let frames = numbers.iter().filter(|byte| **byte == b'\n').count();
        for (n, format) in [FORMATS[i % FORMATS.len()], FORMATS[(i + 1) % FORMATS.len()]].into_iter().enumerate() {
            let first = 1 + frames * (2 * n + 1 + i % 5) / 10;
            let last = (first + 30).min(frames);
            let narrow = format!("frame.number in {{{first}..{last}}}");
            // says the same, but not where it begins and ends
            let wide = format!("!(frame.number < {first}) && !(frame.number > {last})");
            let [narrow, wide] = [narrow, wide]
                .map(|filter| rdmascope(&[&["dissect", path, "-Y", &filter][..], format].concat()).stdout);
            assert!(narrow == wide, "{path} {format:?} {first} to {last}:\n{}", String::from_utf8_lossy(&narrow));
            seen += narrow.len();
        }
    }
    assert!(captures.len() > 40 && seen > 100_000, "{} captures, {seen} bytes", captures.len());
}

/// How often each finding was seen, by severity and rule.
type Counted = BTreeMap<(String, String), u64>;

/// Findings of `analyze` by severity and rule, with their occurrences, and their frames.
fn found(path: &str) -> (Counted, BTreeSet<(String, u64)>) {
    let report: serde_json::Value = serde_json::from_str(&text(&["analyze", "--format", "json", path])).expect("JSON");
    let (mut counts, mut frames) = (BTreeMap::new(), BTreeSet::new());
    for finding in report["findings"].as_array().expect("a list") {
        let word = |key: &str| finding[key].as_str().expect("a word").to_owned();
        *counts.entry((word("severity"), word("id"))).or_default() += finding["count"].as_u64().expect("a count");
        let of = finding["frames"].as_array().expect("frames").iter().filter_map(serde_json::Value::as_u64);
        frames.extend(of.map(|frame| (word("id"), frame)));
    }
    (counts, frames)
}

/// The rows of `-z expert` in the same form.
fn expert(table: &str) -> BTreeMap<(String, String), u64> {
    let mut severity = "";
    let mut counts = BTreeMap::new();
    for line in table.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["Errors", _] => severity = "error",
            ["Warns", _] => severity = "warn",
            ["Notes", _] => severity = "note",
            [n, id, ..] => {
                if let Ok(n) = n.parse::<u64>() {
                    *counts.entry((severity.to_owned(), id.to_owned())).or_default() += n;
                }
            }
            _ => {}
        }
    }
    counts
}

/// Also those that only the end of a capture shows, or makes milder; with -2, frames have them too.
#[test]
fn dissect_has_the_findings_of_analyze() {
    for name in
        ["smb-roce-loss", "smb-iwarp-multichannel", "smb-iwarp-loss", "nfs-roce-v42", "nfs-roce-fallback", "smb-roce"]
    {
        let path = common::samples().join(format!("{name}/{name}.pcap")).display().to_string();
        let (counts, frames) = found(&path);
        assert_eq!(expert(&text(&["dissect", "-q", "-z", "expert", &path])), counts, "{name}");
        let fields = ["dissect", "-2", "-T", "fields", "-e", "frame.number", "-e", "rdmascope.finding.id", &path];
        let mut shown = BTreeSet::new();
        for line in text(&fields).lines() {
            let (frame, ids) = line.split_once('\t').expect("two columns");
            let ids = ids.split(',').filter(|id| !id.is_empty());
            shown.extend(ids.map(|id| (id.to_owned(), frame.parse().expect("a number"))));
        }
        assert_eq!(shown, frames, "{name}");
    }
}

#[test]
fn the_expert_table_goes_by_severity_and_filter() {
    let path = common::samples().join("smb-roce-loss/smb-roce-loss.pcap").display().to_string();
    let rows = |argument: &str| expert(&text(&["dissect", "-q", "-z", argument, &path]));
    let all = rows("expert");
    assert!(all.keys().any(|(severity, _)| severity == "warn") && all.keys().any(|(severity, _)| severity == "note"));
    let mut grave = all.clone();
    grave.retain(|(severity, _), _| severity != "note");
    assert_eq!(rows("expert,warn"), grave);
    assert_eq!((rows("expert,note"), rows("expert,chat,infiniband || ip || ipv6")), (all.clone(), all));
    let one = rows("expert,warn,frame.number == 1");
    assert!(one.is_empty(), "{one:?}");
}

#[test]
fn times_of_rpc_are_told_apart_by_program_and_named() {
    let table = |name: &str| {
        let path = common::samples().join(format!("{name}/{name}.pcap")).display().to_string();
        text(&["dissect", "-q", "-z", "rpc,srt", &path])
    };
    let v3 = table("nfs-roce-v3");
    let names: Vec<&str> =
        v3.lines().filter(|line| line.starts_with("    ")).filter_map(|line| line.get(7..30)).map(str::trim).collect();
    for name in ["NULL", "GETATTR", "MOUNT MNT", "MOUNT UMNT", "NFSACL GETACL"] {
        assert_eq!(names.iter().filter(|n| **n == name).count(), 1, "{name}: {v3}");
    }
    assert!(names.iter().all(|name| name.parse::<u64>().is_err()), "{v3}");
    // the names of compounds are those of the analysis
    assert!(table("nfs-roce-v42").contains("ACCESS"));
}

#[test]
fn a_capture_of_an_unknown_link_type_is_not_called_decoded() {
    let folder = Folder::new("link");
    let mut bytes = fs::read(sample()).expect("the sample");
    bytes[20..24].copy_from_slice(&[0xff, 0xff, 0, 0]);
    let path = folder.file("link.pcap", &bytes);
    let report = text(&["analyze", &path]);
    for words in ["no frame decoded: link type 65535 is not known", "No frame could be decoded: link type 65535"] {
        assert!(report.contains(words) && !report.contains("all frames decoded"), "{report}");
    }
    let page = text(&["analyze", "--format", "html", &path]);
    assert!(page.contains("no frame decoded: link type 65535 is not known"));
    let json: serde_json::Value = serde_json::from_str(&text(&["analyze", "--format", "json", &path])).expect("JSON");
    assert_eq!(json["capture"]["unknown_link"], serde_json::json!({"link_type": 65535, "frames": 1079}));
    let verdict = json["verdict"]["text"].as_str().expect("text");
    assert!(verdict.starts_with("No frame could be decoded"), "{verdict}");
    let known: serde_json::Value =
        serde_json::from_str(&text(&["analyze", "--format", "json", &sample()])).expect("JSON");
    assert!(known["capture"].get("unknown_link").is_none());
}

#[test]
fn analyze_takes_what_fingers_type_for_tshark() {
    let sample = sample();
    let whole = text(&["analyze", &sample]);
    assert_eq!(text(&["analyze", "-q", "-n", "-2", "-r", &sample]), whole);
    assert_eq!(text(&["analyze", "-c", "1079", &sample]), whole);
    assert!(text(&["analyze", "-c", "100", &sample]).contains(" 100 frames"));
    for verb in ["analyze", "dissect"] {
        refused(&[verb, "-H", "/nowhere/hosts", &sample], "No such file");
        refused(&[verb, "-N", "/nowhere/hosts", &sample], "No such file");
        refused(&[verb, "-", "-"], "- is given twice");
    }
}

#[test]
fn live_options_and_pins_without_effect_are_mentioned() {
    let sample = sample();
    for (arguments, words) in [
        (&["--every", "10s"][..], "--every, --metrics and -a are for live captures (-i)"),
        (&["-a", "duration:3"], "--every, --metrics and -a are for live captures (-i)"),
        (&["--pin", "0x999=0x998"], "--pin 0x999=0x998 had no effect: no connection has these queue pairs"),
    ] {
        let output = rdmascope(&[&["analyze", &sample], arguments].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && said.contains(words) && said.lines().count() == 1, "{said}");
    }
}

#[test]
fn the_cases_of_the_probe_are_listed_as_json_too() {
    let list: serde_json::Value = serde_json::from_str(&text(&["probe", "--list", "--format", "json"])).expect("JSON");
    let lines = text(&["probe", "--list"]);
    let cases = list.as_array().expect("a list");
    assert_eq!(cases.len(), lines.lines().count());
    assert!(cases.iter().zip(lines.lines()).all(|(case, line)| line.starts_with(case["case"].as_str().unwrap_or("?"))));
}

/// The times of the first sentences are those of the rest.
#[test]
fn the_first_sentences_have_the_requested_times() {
    let path = common::samples().join("smb-roce-firewall-drop/smb-roce-firewall-drop.pcap").display().to_string();
    let answer = |kind: &str| {
        let report = text(&["analyze", "-t", kind, &path]).replace("\n ", " ");
        let at = report.find("Requests waited").expect("the answer");
        report[at..].split("Without them").next().unwrap_or_default().trim().to_owned()
    };
    assert!(answer("u").ends_with("all after 10:14:15."), "{}", answer("u"));
    let relative = answer("r");
    assert!(relative.ends_with(" s.") && !relative.contains(':'), "{relative}");
    assert!(answer("e").contains("all after 1795342"), "{}", answer("e"));
}

/// A report names NFS over TCP if its verdict is about that.
#[test]
fn the_head_names_what_went_on_over_tcp() {
    let head = |name: &str| {
        let path = common::samples().join(format!("{name}/{name}.pcap")).display().to_string();
        text(&["analyze", &path]).lines().next().unwrap_or_default().to_owned()
    };
    assert!(head("nfs-roce-fallback").contains("RoCEv2, TCP, NFS/RDMA, RPC"), "{}", head("nfs-roce-fallback"));
    assert!(head("nfs-roce-v3").contains("RoCEv2, NFS/RDMA   "), "{}", head("nfs-roce-v3"));
}

#[test]
fn no_line_of_a_report_is_wider_than_asked_for() {
    for name in ["nfs-tcp-nconnect", "smb-tcp-seal", "smb-roce-loss"] {
        let path = common::samples().join(format!("{name}/{name}.pcap"));
        let output = Command::new(env!("CARGO_BIN_EXE_rdmascope"))
            .args(["analyze", "--color", "never"])
            .arg(path)
            .env("COLUMNS", "80")
            .output()
            .expect("the binary runs");
        let said = String::from_utf8(output.stdout).expect("output is UTF-8");
        let wide: Vec<&str> = said.lines().filter(|line| line.chars().count() > 80).collect();
        assert!(wide.is_empty(), "{name}: {wide:#?}");
    }
}
