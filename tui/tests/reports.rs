//! `rdmascope analyze` from outside: its output for every sample is stored beside the sample, and its JSON keeps its
//! keys. `UPDATE=1 cargo test -p rdmascope --test reports` writes the expectations anew; review the difference.

mod site;

use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn samples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../samples")
}

/// Runs `rdmascope analyze` in a folder.
fn analyze(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rdmascope"))
        .arg("analyze")
        .args(arguments)
        .current_dir(folder)
        .env_remove("COLUMNS")
        .env_remove("NO_COLOR")
        .output()
        .expect("the binary runs")
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("reports are UTF-8")
}

fn json(folder: &Path, arguments: &[&str]) -> Value {
    let output = analyze(folder, &[arguments, &["--format", "json"]].concat());
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{arguments:?}: {e}: {}", String::from_utf8_lossy(&output.stderr)))
}

/// Folders with a capture of their own name.
fn folders() -> Vec<(PathBuf, String)> {
    let mut found: Vec<(PathBuf, String)> = fs::read_dir(samples())
        .expect("samples are there")
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let capture = format!("{}.pcap", path.file_name()?.to_str()?);
            path.join(&capture).is_file().then_some((path, capture))
        })
        .collect();
    found.sort();
    found
}

#[test]
fn every_sample_reads_as_its_expectation() {
    let update = std::env::var_os("UPDATE").is_some_and(|v| v == "1");
    let folders = folders();
    assert!(folders.len() >= 8, "samples are missing: {folders:?}");
    let mut wrong = Vec::new();
    for (folder, capture) in folders {
        for (form, expectation) in [("text", "analyze.txt"), ("json", "analyze.json")] {
            let keys: &[&str] = if folder.join("keys.txt").is_file() { &["--keys", "keys.txt"] } else { &[] };
            let output = analyze(&folder, &[&[&*capture, "--format", form], keys].concat());
            assert!(output.status.success(), "{capture}: {}", String::from_utf8_lossy(&output.stderr));
            let (got, path) = (text(&output), folder.join(expectation));
            if update {
                fs::write(&path, &got).expect("expectations can be written");
            } else if fs::read_to_string(&path).ok().as_deref() != Some(&got) {
                wrong.push(path);
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "these differ; look at `UPDATE=1 cargo test -p rdmascope --test reports` and git diff: {wrong:#?}"
    );
}

#[test]
fn threads_do_not_change_the_report() {
    for (folder, capture) in folders() {
        let one = analyze(&folder, &[&capture, "--threads", "1", "--format", "json"]);
        for threads in ["2", "3"] {
            assert_eq!(
                text(&analyze(&folder, &[&capture, "--threads", threads, "--format", "json"])),
                text(&one),
                "{capture}, {threads} threads"
            );
        }
    }
}

/// The keys of the contract, each with its path; `[]` means the items of an array.
const KEYS: &str = "
schema rdmascope inputs capture connections findings
inputs[]: path frames bytes first last begun ended link_types
capture: frames dissected undecoded cut lost_by_capture
connections[]: id transport protocol client server qp first_frame last_frame handshake closed_by negotiated smb \
messages credits rdma transport_health exchanges
connections[].qp: client server
connections[].negotiated: max_send_size_client max_send_size_server max_receive_size_client max_receive_size_server \
max_fragmented_size_client max_fragmented_size_server max_read_write_size status
connections[].smb: dialect sessions signed encrypted
connections[].messages: client server fragmented fragments keepalives empty
connections[].credits.client: requested_max granted_total spent_total held_min held_last stalls stalled_time overruns
connections[].credits.server: requested_max granted_total spent_total held_min held_last stalls stalled_time overruns
connections[].rdma: reads read_bytes writes write_bytes keys_advertised keys_invalidated_remotely outside_advertised
connections[].transport_health: retransmissions naks rnr_naks sequence_gaps duplicates icrc_bad crc_bad ecn_marked cnps
connections[].exchanges[]: command count errors bytes latency
connections[].exchanges[].latency: min median p99 max
findings[]: id severity certainty connection frame time by title text spec causes action count frames frames_omitted
connections[].exchange_list[]: id command frame_request frame_reply status file offset length channel descriptors rdma \
latency wait_for_credit bytes_moved sha256
connections[].exchange_list[].descriptors[]: offset token length
connections[].exchange_list[].rdma[]: kind frames bytes
connections[].credit_timeline[]: frame time client_held server_held
";

/// Every path of an object in a value.
fn paths(value: &Value, at: &str, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let path = if at.is_empty() { key.clone() } else { format!("{at}.{key}") };
                into.insert(path.clone());
                paths(value, &path, into);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| paths(item, &format!("{at}[]"), into)),
        _ => {}
    }
}

#[test]
fn the_keys_of_the_contract_are_there() {
    let folder = samples().join("smb-roce");
    let report = json(&folder, &["smb-roce.pcap", "--exchanges", "--credits"]);
    let mut found = BTreeSet::new();
    paths(&report, "", &mut found);
    for line in KEYS.lines().filter(|l| !l.is_empty()) {
        let (at, keys) = line.split_once(": ").map_or(("", line), |(at, keys)| (at, keys));
        for key in keys.split(' ') {
            let path = if at.is_empty() { key.to_owned() } else { format!("{at}.{key}") };
            assert!(found.contains(&path), "{path} is missing");
        }
    }
    let without = json(&folder, &["smb-roce.pcap"]);
    assert!(
        without["connections"][0].get("exchange_list").is_none()
            && without["connections"][0].get("credit_timeline").is_none()
    );
}

#[test]
fn values_have_the_types_of_the_contract() {
    let report = json(&samples().join("smb-roce"), &["smb-roce.pcap", "--exchanges"]);
    let is_seconds = |v: &Value| v.is_f64();
    let connection = &report["connections"][0];
    assert_eq!(connection["id"], 1);
    assert_eq!(connection["transport"], "rocev2");
    assert_eq!(connection["protocol"], "smb_direct");
    assert_eq!((&report["schema"], &report["inputs"][0]["first"]), (&2.into(), &0.0.into()));
    assert!(
        report["capture"]["begun"].as_str().is_some_and(|d| d.len() == 30 && d.ends_with('Z')),
        "{}",
        report["capture"]
    );
    let descriptor = report
        .pointer("/connections/0/exchange_list")
        .and_then(|rows| rows.as_array()?.iter().find_map(|r| r["descriptors"].get(0).cloned()));
    assert!(descriptor.is_some_and(|d| d["offset"].as_str().is_some_and(|s| s.len() == 18 && s.starts_with("0x"))));
    let finding = &report["findings"][0];
    assert!(
        finding["text"].as_str().is_some_and(|t| t.ends_with('.') && t.starts_with(char::is_uppercase)),
        "{finding}"
    );
    assert!(finding["action"].as_str().is_some_and(|t| !t.is_empty()) && finding["causes"].is_array(), "{finding}");
    assert!(is_seconds(&report["findings"][0]["time"]));
    assert!(is_seconds(&connection["exchanges"][0]["latency"]["median"]));
    assert!(
        connection["exchange_list"]
            .as_array()
            .is_some_and(|rows| rows.iter().any(|r| r["sha256"].as_str().is_some_and(|s| s.len() == 64)))
    );
}

#[test]
fn a_refused_negotiation_names_the_size_the_rule_and_the_server() {
    let report = json(&samples().join("smb-roce-negotiate-refused"), &["smb-roce-negotiate-refused.pcap"]);
    let first = &report["findings"][0];
    assert_eq!((&first["id"], &first["by"]), (&"SMBD-NEG-RSP-FRAGSIZE".into(), &"server".into()));
    assert!(first["text"].as_str().is_some_and(|t| t.contains("130,560") && t.contains("131,072")), "{first}");
    assert!(first["spec"].as_str().is_some_and(|s| s.contains("[MS-SMBD] 3.1.5.7")), "{first}");
    let output = analyze(&samples().join("smb-roce-negotiate-refused"), &["smb-roce-negotiate-refused.pcap"]);
    let text = text(&output);
    assert!(text.contains("The client hung up during SMB Direct negotiation: 6 of 6 connections."), "{text}");
    assert!(text.contains("this is why the mount failed"), "{text}");
}

#[test]
fn failing_mounts_say_where_they_end() {
    let text = text(&analyze(&samples().join("smb-iwarp-encryption-fails"), &["smb-iwarp-encryption-fails.pcap"]));
    assert!(text.contains("SESSION_SETUP (frame 37) was answered (frame 39)"), "{text}");
    assert!(text.contains("1 encrypted message from the client (frame 43)"), "{text}");
    assert!(text.contains("8 of 8 connections failed"), "{text}");
}

#[test]
fn exit_status_tells_of_findings() {
    let (bad, good) = (samples().join("smb-roce-negotiate-refused"), samples().join("nfs-roce-v3"));
    let status = |folder: &Path, capture: &str, on: &str| analyze(folder, &[capture, "--fail-on", on]).status.code();
    assert_eq!(status(&bad, "smb-roce-negotiate-refused.pcap", "error"), Some(1));
    assert_eq!(status(&good, "nfs-roce-v3.pcap", "error"), Some(0));
    assert_eq!(status(&good, "nfs-roce-v3.pcap", "note"), Some(1));
    assert_eq!(analyze(&bad, &["smb-roce-negotiate-refused.pcap"]).status.code(), Some(0));
}

#[test]
fn findings_that_are_known_are_left_out_and_counted() {
    let folder = samples().join("nfs-roce-v3");
    let whole = json(&folder, &["nfs-roce-v3.pcap"]);
    assert!(whole.get("ignored").is_none());
    let ids: Vec<&str> =
        whole["findings"].as_array().expect("an array").iter().filter_map(|f| f["id"].as_str()).collect();
    let list = ids.join(",");
    let arguments = ["nfs-roce-v3.pcap", "--ignore", list.as_str(), "--fail-on", "note"];
    let output = analyze(&folder, &arguments);
    assert_eq!(output.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&output.stdout).contains("Ignored as asked: "));
    let report = json(&folder, &["nfs-roce-v3.pcap", "--ignore", ids[0]]);
    assert_eq!(
        (&report["ignored"][0]["what"], &report["ignored"][0]["findings"]),
        (&Value::from(ids[0]), &Value::from(1))
    );
    assert_eq!(report["findings"].as_array().map(Vec::len), Some(ids.len() - 1));
    assert_eq!(analyze(&folder, &["nfs-roce-v3.pcap", "--ignore", "RC-NOTHING"]).status.code(), Some(2));
}

#[test]
fn a_filter_limits_what_is_reported() {
    let folder = samples().join("smb-roce-negotiate-refused");
    let report = json(&folder, &["smb-roce-negotiate-refused.pcap", "-Y", "frame.number == 39"]);
    let ids: Vec<&Value> = report["connections"].as_array().expect("an array").iter().map(|c| &c["id"]).collect();
    assert_eq!(ids, [2]);
    assert_eq!(report["filter"]["frames"], 1);
    assert!(
        report["findings"].as_array().expect("an array").iter().all(|f| f["connection"] == 2),
        "{}",
        report["findings"]
    );
    assert_eq!(report["capture"]["frames"], 102);
    let output = analyze(&folder, &["smb-roce-negotiate-refused.pcap", "-Y", "frame.nonsense == 1"]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_damaged_capture_is_analysed_up_to_the_damage() {
    let folder = tempfile::tempdir().expect("a folder");
    let whole = fs::read(samples().join("smb-roce/smb-roce.pcap")).expect("the sample");
    fs::write(folder.path().join("cut.pcap"), &whole[..whole.len() / 2]).expect("a file");
    let mut seen = Vec::new();
    for threads in ["1", "2"] {
        let output = analyze(folder.path(), &["cut.pcap", "--threads", threads, "--format", "json"]);
        assert_eq!(output.status.code(), Some(2));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(said.lines().count(), 1, "{said}");
        let report: Value = serde_json::from_slice(&output.stdout).expect("a report all the same");
        assert!(report["inputs"][0]["error"].as_str().is_some_and(|e| said.contains(e)), "{said}");
        assert!(report["capture"]["frames"].as_u64().is_some_and(|n| n > 100));
        seen.push(report);
    }
    assert_eq!(seen[0], seen[1]);
}

#[test]
fn several_captures_are_merged() {
    let folder = samples();
    let report = json(&folder, &["smb-roce/smb-roce.pcap", "smb-iwarp/smb-iwarp.pcap"]);
    let frames: Vec<&Value> = report["inputs"].as_array().expect("an array").iter().map(|i| &i["frames"]).collect();
    assert_eq!(frames, [1079, 748]);
    assert_eq!(report["capture"]["frames"], 1079 + 748);
}

#[test]
fn reports_go_into_files_and_fit_the_width() {
    let folder = tempfile::tempdir().expect("a folder");
    let capture = samples().join("smb-roce-loss/smb-roce-loss.pcap");
    let out = folder.path().join("report.txt");
    let output = analyze(folder.path(), &[capture.to_str().expect("a path"), "-o", out.to_str().expect("a path")]);
    assert!(output.status.success() && output.stdout.is_empty());
    let report = fs::read_to_string(&out).expect("the report");
    assert!(report.lines().all(|l| l.chars().count() <= 120), "{report}");
    let missing = analyze(folder.path(), &[capture.to_str().expect("a path"), "-o", "no/such/folder/report.txt"]);
    assert_eq!(missing.status.code(), Some(2));
    for columns in [60, 80, 100] {
        let output = Command::new(env!("CARGO_BIN_EXE_rdmascope"))
            .arg("analyze")
            .arg(&capture)
            .env("COLUMNS", columns.to_string())
            .output()
            .expect("it runs");
        for line in text(&output).lines() {
            assert!(line.chars().count() <= columns, "{columns}: {line}");
        }
    }
}

#[test]
fn colours_come_when_asked_for() {
    let folder = samples().join("smb-roce");
    assert!(!text(&analyze(&folder, &["smb-roce.pcap"])).contains('\u{1b}'));
    assert!(text(&analyze(&folder, &["smb-roce.pcap", "--color", "always"])).contains('\u{1b}'));
}

/// An independent check of the tests of `rdmascope schema`: a Python program with another validator.
#[test]
fn every_report_keeps_to_its_schema() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/schema.py");
    let has_validator =
        Command::new("python3").args(["-c", "import jsonschema_rs"]).output().is_ok_and(|o| o.status.success());
    if !has_validator {
        // CI runs the script by itself, in an environment that has one
        eprintln!("SKIPPED: python3 has no jsonschema-rs: pip install jsonschema-rs");
        return;
    }
    let output =
        Command::new("python3").arg(script).arg(env!("CARGO_BIN_EXE_rdmascope")).output().expect("python3 runs");
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Bytes read and written of each share that moved any, from the client's `/proc/fs/cifs/Stats`.
fn counted(folder: &Path) -> Vec<(u64, u64)> {
    let stats = fs::read_to_string(folder.join("client.txt")).expect("client.txt is text");
    let number =
        |line: &str, what: &str| -> Option<u64> { line.split(what).nth(1)?.split_whitespace().next()?.parse().ok() };
    let mut shares: Vec<_> = stats
        .lines()
        .filter_map(|line| Some((number(line, "Bytes read:")?, number(line, "Bytes written:")?)))
        .collect();
    shares.retain(|moved| *moved != (0, 0));
    assert!(!shares.is_empty(), "nothing in {}", folder.display());
    shares.sort_unstable();
    shares
}

#[test]
fn sessions_moved_what_the_client_counted() {
    let (mut compared, mut mixed) = (0, 0);
    for (folder, capture) in folders().into_iter().filter(|(folder, _)| folder.join("client.txt").is_file()) {
        let report = json(&folder, &[&capture]);
        let sessions = report["sessions"].as_array().expect("sessions");
        let mut moved: Vec<_> =
            sessions.iter().map(|s| ["bytes_read", "bytes_written"].map(|key| s[key].as_u64().unwrap())).collect();
        moved.retain(|bytes| *bytes != [0, 0]);
        moved.sort_unstable();
        assert_eq!(
            moved.into_iter().map(|[read, written]| (read, written)).collect::<Vec<_>>(),
            counted(&folder),
            "{capture}"
        );
        // and a session has the sum of its channels
        let mut carried: Vec<&str> = Vec::new();
        for session in sessions {
            let channels = session["channels"].as_array().expect("channels");
            for key in ["bytes_read", "bytes_written", "requests"] {
                let sum: u64 = channels.iter().map(|c| c[key].as_u64().unwrap()).sum();
                assert_eq!(session[key].as_u64(), Some(sum), "{capture}: {key}");
            }
            let busy = channels.iter().filter(|c| c["bytes_read"].as_u64() > Some(0));
            carried.extend(busy.filter_map(|c| c["transport"].as_str()));
        }
        mixed += u32::from(carried.contains(&"tcp") && carried.iter().any(|t| *t != "tcp"));
        compared += 1;
    }
    assert!(compared >= 12 && mixed > 0, "{compared} {mixed}");
}

#[test]
fn the_first_finding_says_why_it_is_not_rdma() {
    let causes = [
        ("smb-tcp-dialect", "SMB-PATH-DIALECT"),
        ("smb-tcp-server-dialect", "SMB-PATH-DIALECT"),
        ("smb-tcp-no-multichannel", "SMB-PATH-CLIENT"),
        ("smb-tcp-multichannel-off", "SMB-PATH-SERVER"),
        ("smb-tcp-rdma-not-tried", "SMB-PATH-TRY"),
        ("smb-samba-capability-rdma", "SMB-PATH-TRY"),
        ("smb-tcp-no-rdma-interface", "SMB-PATH-INTERFACE"),
        ("smb-tcp-bridge", "SMB-PATH-INTERFACE"),
        ("smb-tcp-ksmbd-no-smbdirect", "SMB-PATH-INTERFACE"),
        ("smb-roce-firewall-reject", "SMB-PATH-REFUSED"),
        ("smb-iwarp-firewall-reject", "SMB-PATH-REFUSED"),
        ("smb-samba-rdma-refused", "SMB-PATH-REFUSED"),
        ("smb-roce-firewall-drop", "SMB-PATH-SILENT"),
        ("smb-iwarp-firewall-drop", "SMB-PATH-SILENT"),
        ("nfs-iwarp-not-listening", "NFS-PATH-REFUSED"),
        ("nfs-roce-not-listening", "NFS-PATH-REFUSED"),
        ("nfs-roce-firewall-drop", "NFS-PATH-SILENT"),
        ("smb-tcp-other-subnet", "SMB-PATH-ADDRESS"),
        ("nfs-tcp-rpcbind-rdma", "NFS-PATH-TCP"),
    ];
    for (name, cause) in causes {
        let report = json(&samples().join(name), &[&format!("{name}.pcap")]);
        if report["findings"][0]["severity"] == "note" {
            let page = text(&analyze(&samples().join(name), &[&format!("{name}.pcap")]));
            let first = page.lines().find(|line| line.starts_with(" · ")).unwrap_or_default();
            assert!(first.contains(cause), "{name}: {first}");
        } else {
            // a consequence of another finding is not a cause
            let first = report["findings"].as_array().unwrap().iter().find(|f| f["root"].is_null());
            assert_eq!(first.unwrap()["id"], cause, "{name}");
        }
        let first_no = report["paths"][0]["rungs"].as_array().unwrap().iter().find(|r| r["state"] == "no");
        assert!(first_no.is_some() && report["paths"][0]["carried"] == "tcp", "{name}");
    }
    let later = [
        ("smb-iwarp-fallback", "SMB-PATH-FALLBACK"),
        ("smb-roce-link-down", "SMB-PATH-FALLBACK"),
        ("nfs-roce-fallback", "NFS-PATH-FALLBACK"),
        ("smb-roce-sign", "SMB-PATH-INLINE"),
    ];
    for (name, cause) in later {
        let report = json(&samples().join(name), &[&format!("{name}.pcap")]);
        let warnings = report["findings"].as_array().unwrap().iter().filter(|f| f["severity"] == "warn");
        assert!(warnings.into_iter().any(|f| f["id"] == cause), "{name}");
    }
}
