//! The active verbs, as a user runs them, on loopback: `peer` serves, `replay` and `probe` send requests, and `analyze`
//! checks the recorded traffic.

mod common;

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

fn rdmascope(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rdmascope"))
        .args(arguments)
        .env_remove("RDMASCOPE_PASSWORD")
        .output()
        .expect("the binary runs")
}

fn sample(name: &str) -> String {
    common::samples().join(name).join(format!("{name}.pcap")).display().to_string()
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).expect("a report")).expect("JSON")
}

/// A peer that ends with the test.
struct Peer(Child, String);

impl Peer {
    fn new(arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rdmascope"));
        command.args(["peer", "--listen", "127.0.0.1:0"]).args(arguments).env_remove("RDMASCOPE_PASSWORD");
        Self::of(command)
    }

    fn with_password(password: &str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rdmascope"));
        command.args(["peer", "--listen", "127.0.0.1:0"]).env("RDMASCOPE_PASSWORD", password);
        Self::of(command)
    }

    fn of(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the binary runs");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
        let address = line.trim().strip_prefix("listening on ").and_then(|l| l.split(',').next());
        let address = address.unwrap_or_else(|| panic!("{line}")).to_owned();
        Self(child, address)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn findings(wire: &Path) -> Vec<String> {
    let output = rdmascope(&["analyze", "--format", "json", &wire.display().to_string()]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(report["connections"].as_array().is_some_and(|c| !c.is_empty()));
    report["findings"].as_array().expect("a list").iter().map(|f| f["id"].as_str().expect("an id").to_owned()).collect()
}

#[test]
fn a_sample_is_done_again_on_our_peer() {
    let peer = Peer::new(&[]);
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["smb-iwarp", "smb-roce"] {
        let (wire, report) = (folder.path().join(format!("{name}.pcapng")), folder.path().join(format!("{name}.json")));
        let (wire_path, report_path) = (wire.display().to_string(), report.display().to_string());
        let output = rdmascope(&["replay", &sample(name), "--to", &peer.1, "-w", &wire_path, "--report", &report_path]);
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{said}{}", String::from_utf8_lossy(&output.stderr));
        assert!(said.contains("0 differ") && said.contains("same, contents too"), "{said}");
        let report = json(&report);
        assert!(
            report["differ"] == 0
                && report["done"].as_u64().is_some_and(|n| n > 40)
                && report["breaches"] == serde_json::json!([])
        );
        assert!(
            ["faster", "slower"].contains(&report["verdict"].as_str().unwrap_or_default()),
            "{}",
            report["verdict"]
        );
        let said = findings(&wire);
        // requests that failed in the recording too, and reads without RDMA
        let known = ["SMB2-ERROR", "SMBD-FRAG-COST", "SMB2-SLOW"];
        assert!(said.iter().all(|id| known.contains(&&id[..])), "{said:?}");
    }
}

/// The same over RoCEv2 in user space, with lost packets; and the client's report of wrong packets.
#[cfg(target_os = "linux")]
#[test]
fn a_sample_is_done_again_over_rocev2() {
    // an address of the loopback network that no other test has
    let process = std::process::id();
    let host = format!("127.{}.{}.{}", 128 | process >> 14 & 0x3f, process >> 6 & 0xff, (process & 0x3f) << 2 | 1);
    let folder = tempfile::tempdir().expect("a folder");
    let wire = folder.path().join("wire.pcapng");
    let serving = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rdmascope"));
        command
            .args(["peer", "--transport", "roce", "--listen", &format!("{host}:0")])
            .args(more)
            .env_remove("RDMASCOPE_PASSWORD");
        Peer::of(command)
    };
    for fault in [&[][..], &["--fault", "lose@1/50", "--fault-seed", "3"]] {
        let peer = serving(fault);
        let path = wire.display().to_string();
        let output =
            rdmascope(&["replay", &sample("smb-roce"), "--to", &peer.1, "--transport", "roce", "--force", "-w", &path]);
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{said}{}", String::from_utf8_lossy(&output.stderr));
        assert!(said.contains("0 differ") && said.contains("same, contents too"), "{said}");
        let known = ["SMB2-ERROR", "SMBD-FRAG-COST", "SMB2-SLOW"];
        let said = findings(&wire);
        // packets that are lost on purpose, or late on a busy machine, are retransmitted
        assert!(said.iter().all(|id| known.contains(&&id[..]) || id.starts_with("RC-")), "{said:?}");
        assert!(!said.iter().any(|id| id == "RC-ICRC"), "{said:?}");
    }
    // packets of another class, which must not be marked
    let peer = serving(&[]);
    let path = wire.display().to_string();
    let class = ["--dscp", "46", "--no-ecn"];
    let output = rdmascope(
        &[&["replay", &sample("smb-roce"), "--to", &peer.1, "--transport", "roce", "--force", "-w", &path], &class[..]]
            .concat(),
    );
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value =
        serde_json::from_slice(&rdmascope(&["analyze", "--format", "json", &path]).stdout).expect("JSON");
    let network = &report["connections"][0]["network"]["by"]["client"];
    // those of the communication manager have none
    let codes: Vec<_> = network["dscp"].as_array().expect("a list").iter().map(|row| row["value"].as_u64()).collect();
    assert!(codes.contains(&Some(46)) && codes.iter().all(|code| [Some(0), Some(46)].contains(code)), "{network}");
    assert_eq!((&network["ecn"]["ect_0"], &network["ecn"]["ect_1"]), (&0.into(), &0.into()), "{network}");
    assert_eq!(
        rdmascope(&["replay", &sample("smb-roce"), "--to", &peer.1, "--dscp", "46"]).status.code(),
        Some(2),
        "not over iWARP"
    );
    // the port is that of one process
    drop(peer);
    let peer = serving(&["--fault", "nak-access@4"]);
    let output = rdmascope(&["replay", &sample("smb-roce"), "--to", &peer.1, "--transport", "roce"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && said.contains("NAK Remote Access Error"), "{said}");
    assert_eq!(rdmascope(&["peer", "--fault", "lose@"]).status.code(), Some(2));
    assert_eq!(
        rdmascope(&["peer", "--fault", "lose@3", "--listen", "127.0.0.1:0"]).status.code(),
        Some(2),
        "not over iWARP"
    );
}

#[test]
fn a_fault_is_named_and_the_client_says_what_it_met() {
    let listed = rdmascope(&["peer", "--list-faults"]);
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(listed.lines().count() > 25 && listed.contains("wrong-key"), "{listed}");
    assert_eq!(rdmascope(&["peer", "--fault", "no-such-fault"]).status.code(), Some(2));
    let folder = tempfile::tempdir().expect("a folder");
    // the exit status of `analyze --fail-on error`, and its first finding
    let judged = |wire: &str| {
        let output = rdmascope(&["analyze", "--fail-on", "error", "--format", "json", wire]);
        let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let first = &report["findings"][0];
        (output.status.code(), first["id"].clone(), first["by"].clone())
    };
    let faults = [
        ("wrong-key", "Invalid STag", "RDMA-KEY-UNKNOWN"),
        ("bad-lengths", "SMBD-DATA-LENGTH", "SMBD-DATA-LENGTH"),
        ("reject", "MPA Reply", "MPA-REJECT"),
        ("die", "closed the connection", "CM-DISCONNECT"),
    ];
    for (fault, words, rule) in faults {
        let wires = ["client", "server"].map(|end| folder.path().join(format!("{fault}-{end}")).display().to_string());
        let peer = Peer::new(&["--fault", fault, "-w", &wires[1]]);
        let output = rdmascope(&["replay", &sample("smb-iwarp"), "--to", &peer.1, "-w", &wires[0]]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && said.contains(words), "{fault}: {said}");
        // the peer writes its recording when it is idle
        let expected = (Some(1), Value::from(rule), Value::from("server"));
        let begun = std::time::Instant::now();
        while judged(&wires[1]) != expected && begun.elapsed() < std::time::Duration::from_secs(60) {
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        for wire in &wires {
            assert_eq!(judged(wire), expected, "{fault}, {wire}");
        }
    }
    let wires = ["client", "server"].map(|end| folder.path().join(end).display().to_string());
    let peer = Peer::new(&["-w", &wires[1]]);
    let output = rdmascope(&["replay", &sample("smb-iwarp"), "--to", &peer.1, "-w", &wires[0]]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(judged(&wires[0]).0, Some(0));
}

/// Replays a sample encrypted and signed. With the password, `analyze` sees that every byte moved by RDMA equals the
/// recorded one.
#[test]
fn a_sample_is_done_again_encrypted_and_signed() {
    let folder = tempfile::tempdir().expect("a folder");
    let keys = folder.path().join("keys");
    std::fs::write(&keys, "user=me password=secret\n").expect("written");
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rdmascope"));
        command.args(arguments).env("RDMASCOPE_PASSWORD", "secret").output().expect("the binary runs")
    };
    let peer = Peer::with_password("secret");
    for how in ["--encrypt", "--sign"] {
        let wire = folder.path().join(format!("wire{how}.pcapng")).display().to_string();
        let output = run(&["replay", &sample("smb-iwarp"), "--to", &peer.1, "--user", "me", how, "-w", &wire]);
        assert_eq!(output.status.code(), Some(0), "{how}: {}", String::from_utf8_lossy(&output.stderr));
        let output = run(&["analyze", "--format", "json", "--exchanges", "--keys", &keys.display().to_string(), &wire]);
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let said: Vec<&Value> = report["findings"].as_array().expect("a list").iter().map(|f| &f["id"]).collect();
        assert!(
            said.iter()
                .all(|id| ["SMB2-ERROR", "SMB2-SLOW", "SMBD-FRAG-COST"].contains(&id.as_str().unwrap_or_default())),
            "{how}: {said:?}"
        );
        let rows = report["connections"][0]["exchange_list"].as_array().expect("a list");
        let hashed = rows.iter().filter(|e| e["command"] == "READ" && e["sha256"].is_string()).count();
        assert!(hashed >= 4, "{how}: {hashed}");
    }
    let guests = Peer::new(&[]);
    let output = run(&["replay", &sample("smb-iwarp"), "--to", &guests.1, "--user", "me", "--encrypt"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && said.contains("has no keys for the session"), "{said}");
}

/// The capture that a peer writes of all its connections has the same content as those of its clients.
#[test]
fn a_peer_keeps_its_wire_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let kept = folder.path().join("peer.pcapng");
    let peer = Peer::new(&["-w", &kept.display().to_string()]);
    let wires = ["one", "two"].map(|name| folder.path().join(name).display().to_string());
    for wire in &wires {
        let output = rdmascope(&["replay", &sample("smb-iwarp"), "--to", &peer.1, "-w", wire]);
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    }
    // it may be ended at any time: its recording is written when it is idle
    let report = |path: &str| -> Vec<Value> {
        let output = rdmascope(&["analyze", "--format", "json", path]);
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let told = |c: &Value| {
            serde_json::json!([
                c["port"],
                c["closed_by"],
                c["messages"],
                c["rdma"],
                c["failures"],
                c["credits"]["client"]["spent_total"]
            ])
        };
        report["connections"].as_array().expect("a list").iter().map(told).collect()
    };
    let ours: Vec<Value> = wires.iter().flat_map(|wire| report(wire)).collect();
    let begun = std::time::Instant::now();
    while report(&kept.display().to_string()) != ours && begun.elapsed() < std::time::Duration::from_secs(120) {
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    drop(peer);
    assert_eq!((report(&kept.display().to_string()), ours.len()), (ours, 2));
}

/// A peer that is to end by a signal, and what it said until then.
#[cfg(target_os = "linux")]
struct Ending(Child, String);

#[cfg(target_os = "linux")]
impl Ending {
    fn new(arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rdmascope"));
        command.arg("peer").args(arguments).env_remove("RDMASCOPE_PASSWORD");
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary runs");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
        let address = line.trim().strip_prefix("listening on ").and_then(|l| l.split(',').next());
        Self(child, address.unwrap_or_else(|| panic!("{line}")).to_owned())
    }

    /// Exit status and errors after a signal.
    fn end(self, signal: &str) -> (Option<i32>, String) {
        let sent = Command::new("kill").args([signal, &self.0.id().to_string()]).status().expect("kill");
        assert!(sent.success());
        let output = self.0.wait_with_output().expect("it ends");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// Number of frames of a capture; `None` if it cannot be read.
#[cfg(target_os = "linux")]
fn frames(path: &str) -> Option<usize> {
    let output = rdmascope(&["dissect", path]);
    output.status.success().then(|| output.stdout.iter().filter(|byte| **byte == b'\n').count())
}

/// The recording of a peer is a capture from the beginning, has the frames of refused handshakes while the peer runs,
/// and is whole after a signal. At its end the peer says how often its fault acted.
#[cfg(target_os = "linux")]
#[test]
fn a_peer_writes_its_recording_as_it_goes_and_ends_in_order() {
    let process = std::process::id();
    let host = format!("127.{}.{}.{}", 64 | process >> 14 & 0x3f, process >> 6 & 0xff, (process & 0x3f) << 2 | 2);
    let folder = tempfile::tempdir().expect("a folder");
    let listen = format!("{host}:0");
    for (fault, signal, told) in [
        ("cm-reject-consumer", "-INT", "fault cm-reject-consumer@1- acted once in 1 connection"),
        ("short-response", "-TERM", "fault short-response@2 never acted in 1 connection"),
    ] {
        let kept = folder.path().join(format!("{fault}.pcapng")).display().to_string();
        let peer = Ending::new(&["--transport", "roce", "--listen", &listen, "--fault", fault, "-w", &kept]);
        assert_eq!(frames(&kept), Some(0), "{fault}");
        let output = rdmascope(&["replay", &sample("smb-roce"), "--to", &peer.1, "--transport", "roce"]);
        let refused = fault == "cm-reject-consumer";
        assert_eq!(
            output.status.code(),
            Some(if refused { 2 } else { 0 }),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let begun = std::time::Instant::now();
        let least = if refused { 2 } else { 100 };
        while frames(&kept).is_none_or(|n| n < least) && begun.elapsed() < std::time::Duration::from_secs(120) {
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        assert!(frames(&kept).is_some_and(|n| n >= least), "{fault}: {:?}", frames(&kept));
        let (status, said) = peer.end(signal);
        assert!(status == Some(0) && said.contains(told), "{fault}: {status:?} {said}");
        if refused {
            let lines = String::from_utf8_lossy(&rdmascope(&["dissect", &kept]).stdout).into_owned();
            assert!(lines.contains("ConnectRequest") && lines.contains("ConnectReject"), "{lines}");
        }
    }
    // recordings of both ends are of one session: their sequence numbers are the same
    let wires = ["client", "server"].map(|name| folder.path().join(name).display().to_string());
    let peer = Ending::new(&["--listen", &listen, "-w", &wires[1]]);
    let output = rdmascope(&["replay", &sample("smb-iwarp"), "--to", &peer.1, "-w", &wires[0]]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let (status, said) = peer.end("-INT");
    assert!(status == Some(0) && !said.contains("fault"), "{status:?} {said}");
    let compared = rdmascope(&["compare", &wires[0], &wires[1], "--format", "json"]);
    let compared: Value = serde_json::from_slice(&compared.stdout).expect("JSON");
    let matched = |way: usize| compared["ways"][way]["matched"].as_u64().unwrap_or(0);
    assert!(matched(0) > 20 && matched(1) > 20, "{compared}");
    // both have the clock of this machine, and times are those before a packet is sent and after it is received
    let clock = &compared["clock"];
    let (drift, unsure) = (clock["drift_ppm"].as_f64(), clock["drift_uncertainty_ppm"].as_f64());
    assert!(unsure.is_none_or(|unsure| drift.is_some_and(|drift| drift.abs() <= unsure)), "{clock}");
    // a thread that is interrupted between the two takes a time late: then the times are said to contradict each other
    let within = |offset: f64, unsure: f64| offset.abs() <= unsure;
    let is_uneven = clock["uneven"].as_bool().unwrap_or(false);
    let offset = [&clock["offset"], &clock["uncertainty"]].map(|value| value.as_f64().unwrap_or(0.0));
    assert!(is_uneven || within(offset[0], offset[1]), "{clock}");
    // a wrong CRC needs one
    let kept = folder.path().join("crc.pcapng").display().to_string();
    let peer = Ending::new(&["--listen", "127.0.0.1:0", "--fault", "bad-crc", "-w", &kept]);
    let output = rdmascope(&["replay", &sample("smb-iwarp"), "--to", &peer.1]);
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
    let (status, said) = peer.end("-INT");
    assert!(status == Some(0) && said.contains("fault bad-crc acted once in 1 connection"), "{status:?} {said}");
    let found = findings(Path::new(&kept));
    assert!(found.contains(&"MPA-CRC".to_owned()) && !found.contains(&"DDP-MSN".to_owned()), "{found:?}");
    // a client that is connected is told
    let kept = folder.path().join("open.pcapng").display().to_string();
    let peer = Ending::new(&["--listen", "127.0.0.1:0", "--fault", "stall", "-w", &kept]);
    let address = peer.1.clone();
    let client = std::thread::spawn(move || rdmascope(&["replay", &sample("smb-iwarp"), "--to", &address]));
    let begun = std::time::Instant::now();
    while frames(&kept).is_none_or(|n| n < 20) && begun.elapsed() < std::time::Duration::from_secs(120) {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let (status, said) = peer.end("-INT");
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("fault stall acted once in 1 connection"), "{said}");
    assert_eq!(client.join().expect("the client").status.code(), Some(2));
}

#[test]
fn the_probe_passes_our_peer_and_keeps_the_wire_of_what_fails() {
    let peer = Peer::new(&[]);
    let output = rdmascope(&["probe", &peer.1, "--case", "BVT_", "--allow-writes", "--format", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stdout));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let cases = report["cases"].as_array().expect("a list");
    // an anonymous session has no keys to encrypt with
    let expected = |name: &Value| if name.as_str().is_some_and(|n| n.contains("Transform")) { "n/a" } else { "pass" };
    assert!(cases.len() >= 9 && cases.iter().all(|c| c["verdict"] == expected(&c["case"])), "{report}");
    let spec = |verdict| cases.iter().find(|c| c["verdict"] == verdict).map(|c| c["spec"].as_str().unwrap_or_default());
    assert_eq!((spec("pass"), spec("n/a")), (Some("[MS-SMBD] 3.1.5.6"), Some("[MS-SMB2] 3.3.5.12")));
    let folder = tempfile::tempdir().expect("a folder");
    let wire = folder.path().join("failing.pcapng");
    let peer = Peer::new(&["--fault", "small-fragments"]);
    let output = rdmascope(&["probe", &peer.1, "--case", "SmbdNegotiate_Basic", "-w", &wire.display().to_string()]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.code() == Some(1) && said.contains("MaxFragmentedSize"), "{said}");
    assert!(findings(&wire).contains(&"SMBD-NEG-RSP-FRAGSIZE".to_owned()), "{:?}", findings(&wire));
}
