//! rdmascope as a source of captures in Wireshark, tested as an ordinary user: listed, configured, captures, stops.
//! Under root, everything runs as user nobody, because Wireshark ignores the folder named for root. Without tshark the
//! test says so on stderr; with `CI` set it fails.
#![cfg(target_os = "linux")]

mod common;

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Time limit for anything that must happen, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Held by a test that captures from the loopback interface: what another one sends there would be captured too.
static LOOPBACK: Mutex<()> = Mutex::new(());

/// The loopback interface, for one test alone.
fn loopback() -> MutexGuard<'static, ()> {
    LOOPBACK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A folder that everybody may read, with the program in it and a folder of Wireshark's with a link to that.
struct Folder {
    folder: tempfile::TempDir,
}

impl Folder {
    fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("rdmascope").tempdir_in("/tmp").unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        common::copy_program(Path::new(env!("CARGO_BIN_EXE_rdmascope")), &folder.path().join("rdmascope"));
        fs::create_dir(folder.path().join("extcap")).unwrap();
        symlink(folder.path().join("rdmascope"), folder.path().join("extcap/rdmascope-extcap")).unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A command, run by an ordinary user.
    fn command(&self, program: &str) -> Command {
        if is_root() {
            return self.ordinary(&[program]);
        }
        self.here(Command::new(program))
    }

    /// A tshark that may capture, run by an ordinary user. Only root can start it.
    fn capturing_tshark(&self) -> Command {
        self.ordinary(&["--inh-caps=+net_raw", "--ambient-caps=+net_raw", "tshark"])
    }

    fn ordinary(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).args(arguments);
        self.here(command)
    }

    fn here(&self, mut command: Command) -> Command {
        command
            .env("WIRESHARK_EXTCAP_DIR", self.path("extcap"))
            .env("HOME", self.folder.path())
            .current_dir(self.folder.path());
        command
    }

    fn rdmascope(&self, arguments: &[&str]) -> Output {
        self.command(self.path("extcap/rdmascope-extcap").to_str().unwrap()).args(arguments).output().unwrap()
    }
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|o| o.stdout == b"0\n")
}

/// Only root can give an ordinary user the capability that capturing needs.
fn can_give_capabilities() -> bool {
    let root = is_root();
    if !root {
        eprintln!("NOT TESTED: only root can give the capability to capture");
    }
    root
}

/// Output and messages of a tshark that captured; `None` if the machine did not allow it.
fn captured(child: Child) -> Option<(String, String)> {
    let output = child.wait_with_output().unwrap();
    let (lines, said) =
        (String::from_utf8_lossy(&output.stdout).into_owned(), String::from_utf8_lossy(&output.stderr).into_owned());
    if said.contains("ermission") || said.contains("CAP_NET_RAW") {
        assert!(std::env::var_os("CI").is_none(), "{said}");
        eprintln!("NOT TESTED: this machine does not let capabilities through: {said}");
        return None;
    }
    Some((lines, said))
}

fn tshark() -> bool {
    let there = Command::new("tshark").arg("--version").output().is_ok_and(|o| o.status.success());
    if !there {
        assert!(std::env::var_os("CI").is_none(), "tshark is not installed");
        eprintln!("NOT TESTED: tshark is not installed");
    }
    there
}

fn sample() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../samples/probes/t1_nocm.pcap")
}

fn ends(child: &mut Child) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        if child.try_wait().unwrap().is_some() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill().unwrap();
    false
}

#[test]
fn wireshark_gets_interfaces_and_their_options() {
    let place = Folder::new();
    let interfaces = text(&place.rdmascope(&["--extcap-interfaces", "--extcap-version=4.6"]));
    assert!(interfaces.starts_with("extcap {version="), "{interfaces}");
    assert!(
        interfaces.contains("interface {value=rdmascope-lo}")
            && interfaces.contains("interface {value=rdmascope-follow}"),
        "{interfaces}"
    );
    let config = text(&place.rdmascope(&["--extcap-interface=rdmascope-lo", "--extcap-config"]));
    assert!(
        config.lines().count() == 6
            && config.contains("{call=--headers-only}")
            && config.contains("{call=--decapsulate}"),
        "{config}"
    );
    assert!(
        text(&place.rdmascope(&["--extcap-interface", "rdmascope-lo", "--extcap-dlts"])).starts_with("dlt {number=")
    );
    assert_eq!(text(&place.rdmascope(&["--extcap-interface=rdmascope-lo", "--extcap-capture-filter=rdma"])), "");
    assert_ne!(
        text(&place.rdmascope(&["--extcap-interface=rdmascope-lo", "--extcap-capture-filter=no such thing"])),
        ""
    );
    let neither = place.rdmascope(&[]);
    assert_eq!(neither.status.code(), Some(2));
}

#[test]
fn tshark_lists_captures_and_stops() {
    if !tshark() {
        return;
    }
    let place = Folder::new();
    let listed = text(&place.command("tshark").arg("-D").output().unwrap());
    assert!(listed.contains("rdmascope-lo") && listed.contains("rdmascope-follow"), "{listed}");

    // a capture that grows
    let growing = place.path("growing.pcap");
    let whole = fs::read(sample()).unwrap();
    let (first, rest) = whole.split_at(24 + 16 + 20);
    let mut file = File::create(&growing).unwrap();
    file.write_all(first).unwrap();
    fs::set_permissions(&growing, fs::Permissions::from_mode(0o644)).unwrap();
    let option = format!("extcap.rdmascope_follow.path:{}", growing.display());
    let mut child = place
        .command("tshark")
        .args([
            "-i",
            "rdmascope-follow",
            "-o",
            &option,
            "-c",
            "12",
            "-l",
            "-T",
            "fields",
            "-e",
            "frame.number",
            "-e",
            "smb_direct.credits.requested",
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // the rest is written when the beginning was read
    let begun = Instant::now();
    let is_read = || {
        Command::new("pgrep")
            .args(["-f", growing.to_str().unwrap()])
            .output()
            .unwrap()
            .stdout
            .split(|b| *b == b'\n')
            .count()
            > 2
    };
    while !is_read() && begun.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(50));
    }
    file.write_all(rest).unwrap();
    drop(file);
    assert!(ends(&mut child), "tshark did not stop at 12 frames");
    let output = child.wait_with_output().unwrap();
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(lines.lines().count(), 12, "{lines}\n{}", String::from_utf8_lossy(&output.stderr));
    let left = Command::new("pgrep").args(["-f", growing.to_str().unwrap()]).output().unwrap();
    assert!(left.stdout.is_empty(), "still running: {}", String::from_utf8_lossy(&left.stdout));
}

#[test]
fn tshark_captures_from_an_interface() {
    if !can_give_capabilities() || !tshark() {
        return;
    }
    let _alone = loopback();
    let place = Folder::new();
    let mut child = place
        .capturing_tshark()
        .args(["-i", "rdmascope-lo", "-c", "3", "-T", "fields", "-e", "infiniband.bth.destqp"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // an RC Send to queue pair 0x11
    let mut packet = vec![4, 0, 0xff, 0xff, 0, 0, 0, 0x11, 0, 0, 0, 1];
    packet.resize(32, 0);
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() && begun.elapsed() < PATIENCE {
        socket.send_to(&packet, "127.0.0.1:4791").unwrap();
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(ends(&mut child), "tshark did not stop at 3 frames");
    let Some((lines, said)) = captured(child) else { return };
    assert_eq!(lines, "0x000011\n0x000011\n0x000011\n", "{said}");
    assert!(!said.contains("panicked"), "{said}");
}

/// An RC Send to a queue pair, on RoCEv2, as Ethernet carries it.
fn roce(queue_pair: u8) -> Vec<u8> {
    let mut packet = vec![
        2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, 60, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
    ];
    packet.extend([0xc0, 0, 0x12, 0xb7, 0, 40, 0, 0, 4, 0, 0xff, 0xff, 0, 0, 0, queue_pair, 0, 0, 0, 1]);
    packet.resize(14 + 60, 0);
    packet
}

#[test]
fn mirrored_frames_come_without_their_tunnel_under_their_session() {
    if !can_give_capabilities() || !tshark() {
        return;
    }
    let _alone = loopback();
    let place = Folder::new();
    let mut child = place
        .capturing_tshark()
        .args([
            "-i",
            "rdmascope-lo",
            "-f",
            "tunnels",
            "-o",
            "extcap.rdmascope_lo.decapsulate:true",
            "-c",
            "8",
            "-T",
            "fields",
        ])
        .args([
            "-e",
            "frame.interface_name",
            "-e",
            "infiniband.bth.destqp",
            "-e",
            "frame.protocols",
            "-e",
            "frame.len",
            "-e",
            "frame.cap_len",
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // two sessions of a mirror that uses VXLAN; the second cuts its frames
    let mirrored = |session: u8, inner: &[u8]| [&[8, 0, 0, 0, 0, 0, session, 0], inner].concat();
    let packets = [mirrored(7, &roce(0x11)), mirrored(9, &roce(0x12)[..60])];
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() && begun.elapsed() < PATIENCE {
        for packet in &packets {
            socket.send_to(packet, "127.0.0.1:4789").unwrap();
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(ends(&mut child), "tshark did not stop at 8 frames");
    let Some((lines, said)) = captured(child) else { return };
    assert_eq!(lines.lines().count(), 8, "{lines}{said}");
    for line in lines.lines() {
        let whole = line.starts_with("lo/vxlan:7@127.0.0.1\t0x000011\teth:ethertype:ip:udp:infiniband")
            && line.ends_with("\t74\t74");
        let cut = line.starts_with("lo/vxlan:9@127.0.0.1\t0x000012\teth:ethertype:ip:udp:infiniband")
            && line.ends_with("\t74\t60");
        assert!(whole || cut, "{lines}{said}");
    }
    assert!(lines.contains("vxlan:7") && lines.contains("vxlan:9"), "{lines}");
}

#[test]
fn a_capture_that_runs_is_an_interface() {
    let root = Command::new("id").arg("-u").output().is_ok_and(|o| o.stdout == b"0\n");
    if !root || !tshark() {
        eprintln!("NOT TESTED: only root can capture");
        return;
    }
    let _alone = loopback();
    let place = Folder::new();
    let file = place.path("running.pcapng");
    let mut running = Command::new(place.path("rdmascope"))
        .args(["capture", "--quiet", "--user", "nobody", "-i", "lo", "-f", "udp port 4791", "-b", "duration:2", "-w"])
        .arg(&file)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let name = format!("rdmascope-running-{}", running.id());
    let begun = Instant::now();
    let listed = loop {
        let listed = text(&place.command("tshark").arg("-D").output().unwrap());
        if listed.contains(&name) || begun.elapsed() > PATIENCE || running.try_wait().unwrap().is_some() {
            break listed;
        }
    };
    if running.try_wait().unwrap().is_some() {
        let said = String::from_utf8_lossy(&running.wait_with_output().unwrap().stderr).into_owned();
        assert!(std::env::var_os("CI").is_none(), "{said}");
        eprintln!("NOT TESTED: this machine lets nobody capture: {said}");
        return;
    }
    assert!(listed.lines().any(|l| l.contains(&name) && l.contains("running capture of lo into")), "{listed}");
    let mut child = place
        .command("tshark")
        .args(["-i", &name, "-c", "40", "-T", "fields", "-e", "infiniband.bth.destqp"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // longer than one file of the series
    let packet = roce(0x11)[42..].to_vec();
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() && begun.elapsed() < PATIENCE {
        socket.send_to(&packet, "127.0.0.1:4791").unwrap();
        std::thread::sleep(Duration::from_millis(100));
    }
    let stopped = ends(&mut child);
    let _ = Command::new("kill").arg(running.id().to_string()).status();
    let _ = running.wait();
    let output = child.wait_with_output().unwrap();
    let (lines, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(stopped && lines.lines().filter(|l| *l == "0x000011").count() == 40, "{lines}{said}");
    let files = fs::read_dir(place.folder.path())
        .unwrap()
        .flatten()
        .filter(|e| e.file_name().to_string_lossy().starts_with("running_"));
    assert!(files.count() > 1, "one file was enough for 40 frames");
}

#[test]
fn without_permission_the_reason_is_reported() {
    let place = Folder::new();
    let fifo = place.path("fifo");
    assert!(place.command("mkfifo").arg(&fifo).status().unwrap().success());
    let argument = format!("--fifo={}", fifo.display());
    // this is not tested for a user who may capture
    let interfaces = text(&place.rdmascope(&["--extcap-interfaces"]));
    if !interfaces.contains("CAP_NET_RAW") {
        eprintln!("NOT TESTED: this user may capture");
        return;
    }
    let output = place.rdmascope(&["--capture", "--extcap-interface=rdmascope-lo", &argument]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && said.contains("CAP_NET_RAW"), "{said}");
}
