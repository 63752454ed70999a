//! Live capture in network namespaces of the tests' own: two ends of a virtual cable, frames of a sample sent into one
//! and captured at the other.
//!
//! Each test runs this binary again under `unshare`, which needs root or a system that lets users have namespaces, and
//! `ip` of iproute2. Without these it says so, and fails under CI.
#![cfg(target_os = "linux")]

use rdmascope_capture::live::send::Sender;
use rdmascope_capture::live::{self, Options};
use rdmascope_capture::{Capture, OpenOptions, Source, open};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

const BINARY: &str = env!("CARGO_BIN_EXE_rdmascope");
const INSIDE: &str = "RDMASCOPE_TEST_INSIDE";
/// Machines that build are slow.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs `test` of the name `name` in namespaces of its own, with a cable from `va` to `vb`.
fn in_namespace(name: &str, test: impl Fn()) {
    if std::env::var_os(INSIDE).is_some() {
        ip("link set lo up");
        cable();
        test();
        return;
    }
    let is_root = Command::new("id").arg("-u").output().is_ok_and(|o| o.stdout == b"0\n");
    let namespaces: &[&str] = if is_root { &["--net", "--mount"] } else { &["--map-root-user", "--net", "--mount"] };
    let can = Command::new("unshare")
        .args(namespaces)
        .args(["ip", "link", "add", "va", "type", "veth", "peer", "name", "vb"])
        .output();
    if !can.as_ref().is_ok_and(|o| o.status.success()) {
        let what = format!("NOT TESTED: {name} needs root, or namespaces for users, and iproute2 ({can:?})");
        assert!(std::env::var_os("CI").is_none(), "{what}");
        eprintln!("{what}");
        return;
    }
    let exe = std::env::current_exe().unwrap();
    let output = Command::new("unshare")
        .args(namespaces)
        .arg(exe)
        .args(["--exact", name, "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

fn ip(arguments: &str) {
    let output = Command::new("ip").args(arguments.split_whitespace()).output().unwrap();
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

fn cable() {
    // no addresses: only the frames of this test pass
    std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").unwrap();
    ip("link add va mtu 9000 type veth peer name vb mtu 9000");
    ip("link set va up");
    ip("link set vb up");
}

fn sample(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../samples/{name}/{name}.pcap"))
}

fn frames_of(mut capture: Capture) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    while let Some(record) = capture.next().unwrap() {
        frames.push(record.bytes.to_vec());
    }
    frames
}

fn frames(path: &Path) -> Vec<Vec<u8>> {
    frames_of(open(path, OpenOptions::new()).unwrap_or_else(|e| panic!("{e}")))
}

/// Number of whole frames in a file that is still being written.
fn written(path: &Path) -> usize {
    let Ok(mut capture) = open(path, OpenOptions::new()) else { return 0 };
    let mut n = 0;
    while let Ok(Some(_)) = capture.next() {
        n += 1;
    }
    n
}

/// Sends frames once.
fn send(interface: &str, frames: &[Vec<u8>], per_second: f64) {
    let sender = Sender::open(interface).unwrap();
    let begun = Instant::now();
    for (n, frame) in frames.iter().enumerate() {
        while begun.elapsed().as_secs_f64() * per_second < n as f64 {
            std::thread::sleep(Duration::from_micros(20));
        }
        while sender.send(&[frame]).unwrap() == 0 {}
    }
}

/// The program while it runs.
struct Running {
    child: Child,
    lines: Receiver<String>,
    said: String,
}

impl Running {
    fn start(arguments: &[&str]) -> Self {
        Self::of(Command::new(BINARY).args(arguments))
    }

    fn of(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (tx, lines) = channel();
        std::thread::spawn(move || stderr.lines().map_while(Result::ok).for_each(|l| drop(tx.send(l))));
        Self { child, lines, said: String::new() }
    }

    /// Waits for a line on stderr.
    fn says(&mut self, text: &str) -> String {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            if let Ok(line) = self.lines.recv_timeout(Duration::from_millis(100)) {
                self.said.push_str(&line);
                self.said.push('\n');
                if line.contains(text) {
                    return line;
                }
            }
        }
        panic!("\"{text}\" was not said, but:\n{}", self.said);
    }

    /// Waits until all of these texts were printed, in any order.
    fn says_all(&mut self, texts: &[&str]) {
        let begun = Instant::now();
        while !texts.iter().all(|text| self.said.contains(text)) {
            assert!(begun.elapsed() < PATIENCE, "not all of {texts:?} was said, but:\n{}", self.said);
            if let Ok(line) = self.lines.recv_timeout(Duration::from_millis(100)) {
                self.said.push_str(&line);
                self.said.push('\n');
            }
        }
    }

    fn signal(&self, name: &str) {
        assert!(
            Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status().unwrap().success()
        );
    }

    /// Waits for its end. Returns the status and the output.
    fn ends(mut self) -> (ExitStatus, String, String) {
        let mut out = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        let status = self.child.wait().unwrap();
        // until the other end is closed
        while let Ok(line) = self.lines.recv_timeout(PATIENCE) {
            self.said.push_str(&line);
            self.said.push('\n');
        }
        (status, out, self.said)
    }

    fn ends_by(self, signal: &str) -> (ExitStatus, String, String) {
        self.signal(signal);
        self.ends()
    }
}

/// Waits until `done`.
fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < PATIENCE, "{what} did not happen");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    // the program may write there as any user
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    folder
}

fn rdmascope(arguments: &[&str]) -> Output {
    Command::new(BINARY).args(arguments).output().unwrap()
}

#[test]
fn what_passes_is_written_as_it_was_and_a_signal_ends_it() {
    in_namespace("what_passes_is_written_as_it_was_and_a_signal_ends_it", || {
        let folder = folder();
        let sent = frames(&sample("smb-roce"));
        for (signal, sockets) in [("INT", "1"), ("TERM", "2")] {
            let path = folder.path().join("t.pcapng");
            let mut running = Running::start(&[
                "capture",
                "-i",
                "vb",
                "-f",
                "everything",
                "--sockets",
                sockets,
                "--force",
                "-w",
                path.to_str().unwrap(),
            ]);
            running.says("capturing from vb");
            send("va", &sent, 20_000.0);
            let (status, _, said) = running.ends_by(signal);
            assert!(status.success(), "{said}");
            let mut capture = open(&path, OpenOptions::new()).unwrap();
            let (mut got, mut time) = (Vec::new(), 0);
            while let Some(record) = capture.next().unwrap() {
                assert!(record.time_ns >= time, "frames of several sockets are in order");
                time = record.time_ns;
                assert_eq!(record.packet_flags(), Some(1), "all came in");
                got.push(record.bytes.to_vec());
            }
            assert!(got == sent, "{} of {} frames: {said}", got.len(), sent.len());
            let counted = capture.metadata().interfaces[0].statistics.unwrap();
            assert_eq!((counted.received, counted.dropped_by_os), (Some(sent.len() as u64), Some(0)));
            assert!(said.contains(" frames captured") && said.contains("dropped 0 by the kernel"), "{said}");
        }
    });
}

#[cfg(feature = "libpcap")]
#[test]
fn libpcap_sees_the_same() {
    in_namespace("libpcap_sees_the_same", || {
        let folder = folder();
        let path = folder.path().join("t.pcapng");
        let sent = frames(&sample("smb-roce"));
        let mut running =
            Running::start(&["capture", "--libpcap", "-i", "vb", "-f", "roce", "-w", path.to_str().unwrap()]);
        running.says("through libpcap");
        send("va", &sent, 20_000.0);
        // an idle interface does not keep it from ending
        let wanted = sent.iter().filter(|f| f[12..14] == [8, 0] && f[23] == 17).count();
        until("all frames in the file", || written(&path) >= wanted);
        let (status, _, said) = running.ends_by("INT");
        assert!(status.success(), "{said}");
        let roce = |f: &&Vec<u8>| f[12..14] == [8, 0] && f[23] == 17;
        let expected: Vec<Vec<u8>> = sent.iter().filter(roce).cloned().collect();
        assert!(frames(&path) == expected, "{said}");
        let missing = rdmascope(&["capture", "--libpcap", "-i", "no-such-if"]);
        assert!(missing.status.code() == Some(2) && String::from_utf8_lossy(&missing.stderr).contains("libpcap: "));
    });
}

#[test]
fn a_hangup_begins_a_new_file_and_rings_keep_the_newest() {
    in_namespace("a_hangup_begins_a_new_file_and_rings_keep_the_newest", || {
        let folder = folder();
        let path = folder.path().join("t.pcapng");
        let sent = frames(&sample("smb-roce"));
        let files = || {
            let mut all: Vec<PathBuf> = std::fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().path()).collect();
            all.sort();
            all
        };
        let mut running = Running::start(&["capture", "-i", "vb", "-f", "everything", "-w", path.to_str().unwrap()]);
        running.says("capturing from vb");
        send("va", &sent, 20_000.0);
        until("writing", || std::fs::metadata(&path).is_ok_and(|m| m.len() > 1000));
        running.signal("HUP");
        until("a second file", || files().len() == 2);
        send("va", &sent, 20_000.0);
        let (status, _, said) = running.ends_by("INT");
        assert!(status.success(), "{said}");
        let all = files();
        let got: Vec<usize> = all.iter().map(|p| frames(p).len()).collect();
        assert_eq!((got.len(), got.iter().sum::<usize>()), (2, 2 * sent.len()), "{said}");
        all.iter().for_each(|p| std::fs::remove_file(p).unwrap());

        let limits = ["-b", "filesize:0.05", "-b", "files:3", "-a", "packets:600"];
        let mut running = Running::start(
            &[&["capture", "-i", "vb", "-f", "everything", "-w", path.to_str().unwrap()][..], &limits].concat(),
        );
        running.says("capturing from vb");
        send("va", &sent, 20_000.0);
        send("va", &sent, 20_000.0);
        send("va", &sent, 20_000.0);
        let (status, _, said) = running.ends();
        assert!(status.success() && said.contains("600 frames written to "), "{said}");
        let all = files();
        assert_eq!(all.len(), 3, "{all:?}");
        for path in &all {
            assert!(!frames(path).is_empty());
        }
    });
}

/// An interface with several queues gets a socket for each thread that analyzes, and the report is the same.
#[test]
fn an_interface_with_several_queues_is_analyzed_through_several_sockets() {
    in_namespace("an_interface_with_several_queues_is_analyzed_through_several_sockets", || {
        ip(
            "link add qa mtu 9000 numtxqueues 4 numrxqueues 4 type veth peer name qb mtu 9000 numtxqueues 4 numrxqueues 4",
        );
        ip("link set qa up");
        ip("link set qb up");
        let sent = frames(&sample("smb-roce"));
        let mut live =
            Running::start(&["analyze", "-i", "qb", "-f", "everything", "--format", "json", "--threads", "3"]);
        live.says("capturing from qb");
        // with the protocol that they are bound to: 3 is all
        let packet = std::fs::read_to_string("/proc/self/net/packet").unwrap();
        let bound = packet.lines().filter(|line| line.split_whitespace().nth(3) == Some("0003")).count();
        assert_eq!(bound, 3, "{packet}");
        send("qa", &sent, 20_000.0);
        let (status, out, said) = live.ends_by("INT");
        assert!(status.success(), "{said}");
        let file = rdmascope(&["analyze", sample("smb-roce").to_str().unwrap(), "--format", "json"]);
        assert_eq!(connections(out.as_bytes()), connections(&file.stdout));
    });
}

/// The frames of a pair of hosts, in both directions, come through one socket, and those of many pairs through all.
#[test]
fn sockets_of_an_interface_share_the_hosts() {
    in_namespace("sockets_of_an_interface_share_the_hosts", || {
        let sent = frames(&sample("smb-roce"));
        let roce = |frame: &&Vec<u8>| frame.len() > 60 && frame[12..14] == [8, 0] && frame[23] == 17;
        // the kernel looks at no checksum of IP
        let between = |host: u8| -> Vec<Vec<u8>> {
            let moved = |frame: &Vec<u8>| {
                let mut frame = frame.clone();
                frame[29] ^= host;
                frame[33] ^= host << 1;
                frame
            };
            sent.iter().filter(roce).take(40).map(moved).collect()
        };
        // an interface with one queue, by default
        for (hosts, most, of, by_queues) in [(1..=1, 1, 4, false), (1..=60, 4, 4, false), (1..=4, 1, 1, true)] {
            let mut options = Options::new();
            (options.filter, options.sockets, options.by_queues) = ("roce".parse().unwrap(), 4, by_queues);
            let mut source = live::open(&["vb".to_owned()], &options, Arc::default()).unwrap();
            let frames: Vec<Vec<u8>> = hosts.flat_map(between).collect();
            send("va", &frames, 50_000.0);
            let (mut seen, mut last) = (Vec::new(), 0);
            until("all frames came", || {
                while source.advance().unwrap() {
                    assert!(source.record().time_ns >= last, "by time, whichever socket they come through");
                    last = source.record().time_ns;
                    seen.push(source.record().bytes.to_vec());
                }
                seen.len() >= frames.len()
            });
            assert!(seen == frames);
            let counted = source.counters_of_inputs();
            let busy = counted.iter().filter(|(_, counters)| counters.delivered > 0).count();
            assert_eq!((counted.len(), busy), (of, most), "{counted:?}");
        }
    });
}

#[test]
fn an_interface_may_go_down_and_away_and_come_again() {
    in_namespace("an_interface_may_go_down_and_away_and_come_again", || {
        // several sockets share the interface, and give way to one when another takes its place
        for sockets in ["1", "3"] {
            let folder = folder();
            let path = folder.path().join("t.pcapng");
            let sent = frames(&sample("smb-roce"));
            let how = ["-f", "everything", "--sockets", sockets, "-w", path.to_str().unwrap()];
            let mut running = Running::start(&[&["capture", "-i", "vb"][..], &how].concat());
            running.says("capturing from vb");
            send("va", &sent, 20_000.0);
            ip("link set vb down");
            running.says("vb: the interface went down");
            ip("link set vb up");
            running.says("vb: the interface is up");
            send("va", &sent, 20_000.0);
            // frames in a ring are read before the socket moves
            until("two times the frames in the file", || written(&path) >= 2 * sent.len());
            for _ in 0..2 {
                ip("link del va");
                running.says("vb: the interface is gone");
                cable();
                running.says("vb: the interface is up");
            }
            send("va", &sent, 20_000.0);
            let (status, _, said) = running.ends_by("INT");
            assert!(status.success(), "{said}");
            assert_eq!(frames(&path).len(), 3 * sent.len(), "{said}");
        }
    });
}

#[test]
fn a_full_disk_is_reported_and_what_was_written_is_kept() {
    in_namespace("a_full_disk_is_reported_and_what_was_written_is_kept", || {
        let folder = folder();
        let disk = folder.path().join("small");
        std::fs::create_dir(&disk).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=300k", "none", disk.to_str().unwrap()])
            .status()
            .unwrap();
        assert!(mounted.success());
        let path = disk.join("t.pcapng");
        let sent = frames(&sample("smb-roce"));
        let mut running = Running::start(&["capture", "-i", "vb", "-f", "everything", "-w", path.to_str().unwrap()]);
        running.says("capturing from vb");
        for _ in 0..20 {
            send("va", &sent, 50_000.0);
        }
        let (status, _, said) = running.ends();
        assert_eq!(status.code(), Some(2), "{said}");
        assert!(said.contains("the disk is full"), "{said}");
        let mut capture = open(&path, OpenOptions::new()).unwrap();
        let mut n = 0usize;
        while let Some(record) = capture.next().unwrap() {
            assert!(record.bytes == sent[n % sent.len()]);
            n += 1;
        }
        assert!(n > sent.len() / 4, "{n}");
        assert!(said.contains(&format!("; {n} frames kept")) || n > 999, "{n}: {said}");
        assert!(capture.metadata().interfaces[0].statistics.is_some());
    });
}

#[test]
fn without_permission_it_says_what_is_missing_and_how_to_grant_it() {
    let missing = rdmascope(&["capture", "-i", "no-such-if"]);
    let said = String::from_utf8_lossy(&missing.stderr);
    assert_eq!(missing.status.code(), Some(2));
    assert!(
        said.starts_with("rdmascope: no-such-if: no such interface; there are ") && said.lines().count() == 1,
        "{said}"
    );
    in_namespace("without_permission_it_says_what_is_missing_and_how_to_grant_it", || {
        // the root of a user namespace has no other users
        let no_raw = Command::new("setpriv")
            .args(["--bounding-set", "-net_raw", "--inh-caps", "-net_raw", BINARY, "capture", "-i", "vb"])
            .output()
            .unwrap();
        let nobody = Command::new("setpriv")
            .args(["--reuid", "65534", "--clear-groups", "--no-new-privs", BINARY, "capture", "-i", "vb"])
            .output()
            .unwrap();
        let unreadable = String::from_utf8_lossy(&nobody.stderr).contains("failed to execute");
        for output in [no_raw].into_iter().chain((!unreadable).then_some(nobody)) {
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{said}");
            assert!(
                said.contains("capturing needs CAP_NET_RAW")
                    && said.contains("setcap cap_net_raw+ep ")
                    && said.lines().count() == 1,
                "{said}"
            );
        }
        let listed =
            Command::new("setpriv").args(["--bounding-set", "-net_raw", BINARY, "capture", "-D"]).output().unwrap();
        let said = String::from_utf8_lossy(&listed.stdout);
        assert!(said.lines().any(|l| l.starts_with("vb ") && l.contains("needs CAP_NET_RAW")), "{said}");
    });
}

#[test]
fn root_is_given_up_once_the_interface_is_open() {
    in_namespace("root_is_given_up_once_the_interface_is_open", || {
        let mapped = std::fs::read_to_string("/proc/self/uid_map").unwrap().split_whitespace().nth(2) != Some("1");
        if !mapped {
            let what = "NOT TESTED: giving up root needs root that is real";
            assert!(std::env::var_os("CI").is_none(), "{what}");
            return eprintln!("{what}");
        }
        let folder = folder();
        let path = folder.path().join("t.pcapng");
        let mut running = Running::start(&[
            "capture",
            "-i",
            "vb",
            "-f",
            "everything",
            "--user",
            "nobody",
            "-w",
            path.to_str().unwrap(),
        ]);
        running.says("root was given up for nobody");
        let status = std::fs::read_to_string(format!("/proc/{}/status", running.child.id())).unwrap();
        assert!(status.lines().any(|l| l == "Uid:\t65534\t65534\t65534\t65534"), "{status}");
        assert!(status.lines().any(|l| l == "CapPrm:\t0000000000000000"), "{status}");
        assert!(status.lines().any(|l| l == "NoNewPrivs:\t1"), "{status}");
        // it continues when the interface goes down
        ip("link set vb down");
        running.says("went down");
        ip("link set vb up");
        running.says("is up");
        let sent = frames(&sample("smb-roce"));
        send("va", &sent, 20_000.0);
        let (status, _, said) = running.ends_by("INT");
        assert!(status.success() && frames(&path).len() == sent.len(), "{said}");
        let refused = rdmascope(&["capture", "-i", "vb", "--user", "no-such-user"]);
        assert!(
            refused.status.code() == Some(2) && String::from_utf8_lossy(&refused.stderr).contains("there is no user")
        );
    });
}

#[test]
fn tags_that_the_kernel_took_out_are_put_back() {
    in_namespace("tags_that_the_kernel_took_out_are_put_back", || {
        let folder = folder();
        let path = folder.path().join("t.pcapng");
        let sent = frames(&sample("smb-roce"));
        let mut running =
            Running::start(&["capture", "-i", "vb", "-f", "vlan 5 and roce", "-w", path.to_str().unwrap()]);
        running.says("capturing from vb");
        let tagged = |f: &Vec<u8>, id: u8| [&f[..12], &[0x81, 0, 0, id], &f[12..]].concat();
        let on_vlan = |id: u8| sent.iter().map(|f| tagged(f, id)).collect::<Vec<_>>();
        // on arrival the kernel removes a tag, whoever added it
        send("va", &on_vlan(5), 20_000.0);
        send("va", &on_vlan(6), 20_000.0);
        send("va", &sent, 20_000.0);
        let (status, _, said) = running.ends_by("INT");
        assert!(status.success(), "{said}");
        let got = frames(&path);
        let roce = |f: &&Vec<u8>| f[12..14] == [8, 0] && f[23] == 17;
        let expected: Vec<Vec<u8>> = sent.iter().filter(roce).map(|f| tagged(f, 5)).collect();
        assert!(got == expected, "{} of {}: {said}", got.len(), expected.len());
    });
}

#[test]
fn a_port_where_mpa_is_found_is_captured_from_then_on() {
    in_namespace("a_port_where_mpa_is_found_is_captured_from_then_on", || {
        let folder = folder();
        let path = folder.path().join("t.pcapng");
        let mut sent = frames(&sample("smb-iwarp"));
        for frame in sent.iter_mut().filter(|f| f.len() > 40 && f[12..14] == [8, 0] && f[23] == 6) {
            for at in [34, 36] {
                if frame[at..at + 2] == 5445u16.to_be_bytes() {
                    frame[at..at + 2].copy_from_slice(&9999u16.to_be_bytes());
                }
            }
        }
        let mut running =
            Running::start(&["capture", "-i", "vb", "--metrics", "0", "--no-crc", "-w", path.to_str().unwrap()]);
        running.says("metrics at");
        let shake = sent.iter().position(|f| f.windows(16).any(|w| w == b"MPA ID Rep Frame")).unwrap() + 1;
        send("va", &sent[..shake], 20_000.0);
        running.says("an MPA handshake on TCP port 9999");
        send("va", &sent[shake..], 20_000.0);
        let (status, _, said) = running.ends_by("INT");
        assert!(status.success(), "{said}");
        let on_port = |f: &&Vec<u8>| {
            f[12..14] == [8, 0] && f[23] == 6 && (f[34..36] == [0x27, 0x0f] || f[36..38] == [0x27, 0x0f])
        };
        let expected = sent[shake..].iter().filter(on_port).count();
        let got = frames(&path).iter().filter(|f| on_port(f) && !f.windows(8).any(|w| w == b"MPA ID R")).count();
        assert_eq!(got, expected, "{said}");
    });
}

/// The report as JSON, without values that differ between a capture and its repetition.
fn connections(report: &[u8]) -> serde_json::Value {
    let mut report: serde_json::Value = serde_json::from_slice(report).unwrap();
    let connections = report["connections"].take();
    serde_json::Value::Array(
        connections
            .as_array()
            .unwrap()
            .iter()
            .map(|c| {
                let commands: Vec<_> = c["exchanges"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|e| serde_json::json!([e["command"], e["count"], e["errors"], e["bytes"]]))
                    .collect();
                serde_json::json!([
                    c["client"],
                    c["server"],
                    c["protocol"],
                    c["messages"],
                    c["negotiated"],
                    c["rdma"],
                    c["credits"]["client"]["spent_total"],
                    commands
                ])
            })
            .collect(),
    )
}

#[test]
fn live_analysis_says_what_analysis_of_the_file_says() {
    in_namespace("live_analysis_says_what_analysis_of_the_file_says", || {
        for name in ["smb-roce", "smb-iwarp", "nfs-roce-v42", "nfs-iwarp-v42"] {
            let sent = frames(&sample(name));
            let folder = folder();
            let path = folder.path().join("headers.pcapng");
            let mut headers = Running::start(&[
                "capture",
                "-i",
                "vb",
                "-f",
                "everything",
                "--headers-only",
                "-w",
                path.to_str().unwrap(),
            ]);
            headers.says("capturing from vb");
            let lives = ["1", "3"].map(|threads| {
                let how = ["-f", "everything", "--every", "100ms", "--format", "json", "--threads", threads];
                let mut live = Running::start(&[&["analyze", "-i", "vb"][..], &how].concat());
                live.says("capturing from vb");
                live
            });
            send("va", &sent, 2_000.0);
            let file = connections(&rdmascope(&["analyze", sample(name).to_str().unwrap(), "--format", "json"]).stdout);
            for mut live in lives {
                live.says_all(&["Z connection ", "Z all: "]);
                let (status, out, said) = live.ends_by("INT");
                assert!(status.success(), "{said}");
                // a program that reads the report has it alone
                let (lines, report) = (said, out);
                assert!(lines.lines().any(|l| l.contains("Z connection 1 192.0.2.2 → 192.0.2.1")), "{lines}");
                assert!(lines.lines().any(|l| l.contains("Z all: ")), "{lines}");
                assert_eq!(connections(report.as_bytes()), file, "{name}");
            }
            // a capture without bulk data has the same results except for bulk data
            let (status, _, said) = headers.ends_by("INT");
            assert!(status.success(), "{said}");
            let cut = rdmascope(&["analyze", path.to_str().unwrap(), "--format", "json"]);
            assert_eq!(connections(&cut.stdout), file, "{name}: headers only");
            let (whole, less) = (
                std::fs::metadata(sample(name)).unwrap().len(),
                frames(&path).iter().map(Vec::len).sum::<usize>() as u64,
            );
            assert!(less < whole, "{name}: {less} of {whole} bytes");
        }
    });
}

fn scrape(address: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
    text
}

#[test]
fn metrics_are_served_while_frames_pass() {
    in_namespace("metrics_are_served_while_frames_pass", || {
        let folder = folder();
        let counters = folder.path().join("mlx5_0/ports/1/hw_counters");
        std::fs::create_dir_all(&counters).unwrap();
        std::fs::write(counters.join("out_of_sequence"), "17\n").unwrap();
        let mut running = Running::start(&[
            "capture",
            "-i",
            "vb",
            "-f",
            "everything",
            "--metrics",
            "0",
            "--rdma-root",
            folder.path().to_str().unwrap(),
        ]);
        let line = running.says("metrics at");
        let address = line.split("http://").nth(1).unwrap().split('/').next().unwrap().to_owned();
        assert!(address.starts_with("127.0.0.1:"), "{address}");
        let sent = frames(&sample("smb-roce"));
        send("va", &sent, 20_000.0);
        let frames_line = format!("rdmascope_frames_total {}", sent.len());
        until("counting all frames", || scrape(&address).lines().any(|l| l == frames_line));
        let page = scrape(&address);
        for line in [
            "rdmascope_connections_total{transport=\"rocev2\",protocol=\"smb_direct\"} 1",
            "rdmascope_capture_dropped_frames_total{interface=\"vb\",by=\"kernel\"} 0",
            "rdmascope_findings_total{id=\"CM-REJECT\",severity=\"warn\"} 1",
            "rdmascope_rdma_hw_counter{device=\"mlx5_0\",port=\"1\",counter=\"out_of_sequence\"} 17",
        ] {
            assert!(page.lines().any(|l| l == line), "{line}\n{page}");
        }
        // every name on the dashboard is on the page
        let dashboard =
            std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../plugins/metrics/dashboard.json"))
                .unwrap();
        for name in
            dashboard.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).filter(|w| w.starts_with("rdmascope_"))
        {
            // one that nothing open has a value for still has its head
            let is_there = [format!("\n{name}{{"), format!("\n{name} "), format!("\n# TYPE {name} ")]
                .iter()
                .any(|t| page.contains(t));
            assert!(is_there, "{name}\n{page}");
        }
        let (status, _, said) = running.ends_by("INT");
        assert!(status.success(), "{said}");
    });
}

#[test]
fn what_devices_counted_stands_in_the_file_and_in_the_report() {
    in_namespace("what_devices_counted_stands_in_the_file_and_in_the_report", || {
        let folder = folder();
        let counters = folder.path().join("mlx5_0/ports/1/hw_counters");
        std::fs::create_dir_all(&counters).unwrap();
        std::fs::write(counters.join("out_of_sequence"), "17\n").unwrap();
        std::fs::write(counters.join("lost_ack"), "3\n").unwrap();
        let (path, root) = (folder.path().join("t.pcapng"), folder.path().to_str().unwrap());
        let mut running = Running::start(&["capture", "-i", "vb", "-w", path.to_str().unwrap(), "--rdma-root", root]);
        running.says("capturing from");
        send("va", &frames(&sample("smb-roce")), 20_000.0);
        std::fs::write(counters.join("out_of_sequence"), "42\n").unwrap();
        let (status, _, said) = running.ends_by("INT");
        assert!(status.success(), "{said}");
        let output = Command::new(BINARY).args(["analyze", "--format", "json"]).arg(&path).output().unwrap();
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let [counter] = report["hardware"].as_array().unwrap().as_slice() else { panic!("{}", report["hardware"]) };
        assert_eq!(
            (&counter["device"], &counter["counter"], &counter["increase"]),
            (&"mlx5_0".into(), &"out_of_sequence".into(), &25.into())
        );
        let text = Command::new(BINARY).arg("analyze").arg(&path).output().unwrap();
        let text = String::from_utf8_lossy(&text.stdout);
        assert!(
            text.contains("RDMA device counters that grew during the capture: mlx5_0/1 out_of_sequence +25."),
            "{text}"
        );
        // the same of an analysis while frames pass
        let mut running = Running::start(&["analyze", "-i", "vb", "--format", "json", "--rdma-root", root]);
        running.says("capturing from");
        std::fs::write(counters.join("lost_ack"), "4\n").unwrap();
        send("va", &frames(&sample("smb-roce"))[..50], 5_000.0);
        let (_, out, said) = running.ends_by("INT");
        let report: serde_json::Value = serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {out} {said}"));
        assert_eq!(
            (&report["hardware"][0]["counter"], &report["hardware"][0]["increase"]),
            (&"lost_ack".into(), &1.into())
        );
    });
}

#[test]
fn the_terminal_shows_frames_as_they_pass() {
    in_namespace("the_terminal_shows_frames_as_they_pass", || {
        if Command::new("tmux").arg("-V").output().is_err() {
            assert!(std::env::var_os("CI").is_none(), "NOT TESTED: tmux is missing");
            return eprintln!("NOT TESTED: tmux is missing");
        }
        let socket = format!("rdmascope-live-{}", std::process::id());
        let tmux = |arguments: &[&str]| {
            Command::new("tmux").args(["-L", &socket, "-f", "/dev/null"]).args(arguments).output().unwrap()
        };
        let run = format!("env TERM=xterm-256color {BINARY} tui -i vb -f everything");
        assert!(tmux(&["new-session", "-d", "-x", "130", "-y", "40", &run]).status.success());
        let screen = || String::from_utf8_lossy(&tmux(&["capture-pane", "-p"]).stdout).into_owned();
        until("the screen", || screen().contains("● live"));
        let sent = frames(&sample("smb-roce"));
        send("va", &sent, 5_000.0);
        until("the frames", || screen().contains("0 dropped") && screen().contains("192.0.2.2"));
        tmux(&["send-keys", "2"]);
        until("a frame's line", || screen().contains("SMB2"));
        // while stopped it drops frames; then it continues
        let shown = || screen().lines().next().unwrap_or_default().to_owned();
        let count = || -> u32 {
            let title = shown();
            let words: Vec<&str> = title.split_whitespace().collect();
            let at = words
                .iter()
                .position(|word| *word == "frames")
                .unwrap_or_else(|| panic!("no number of frames: {title}"));
            words[at - 1].replace(',', "").parse().unwrap()
        };
        // switching views: earlier frames are drawn by then
        let redraw = || {
            for (key, heading) in [("3", "command"), ("2", "Protocol")] {
                tmux(&["send-keys", key]);
                until(heading, || screen().contains(heading));
            }
        };
        until("all frames", || count() as usize >= sent.len());
        tmux(&["send-keys", "p"]);
        until("that it stopped", || shown().contains("stopped"));
        let before = count();
        send("va", &sent[..50], 5_000.0);
        redraw();
        // the thread that waits for frames may take one before it sees the switch
        assert!(count() <= before + 1, "{before}: {}", shown());
        tmux(&["send-keys", "p"]);
        until("that it goes on", || shown().contains("● live"));
        let before = count();
        // the thread that waits for frames passes over those that come before it sees the switch
        until("more frames", || {
            send("va", &sent[..50], 5_000.0);
            count() > before
        });
        ip("link set vb down");
        until("the state of the interface", || screen().contains("went down"));
        tmux(&["send-keys", "q"]);
        until("the question", || screen().contains("captured frames are not saved."));
        tmux(&["send-keys", "q"]);
        until("the end", || !tmux(&["has-session"]).status.success());
    });
}
