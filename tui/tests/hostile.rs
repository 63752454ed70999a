//! Captures made to attack their readers: names that are terminal commands, markup, formulas or ways out of a folder,
//! in every output. The names of files in a sample are replaced, byte for byte, by others of the same length.

mod common;

use rdmascope_dissector::render::is_unsafe;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Seven characters each, as `big.bin` has them.
const NAMES: [&str; 10] = [
    "\x1b[31mAB",
    "\u{9b}31m\u{90}\u{9d}z",
    "\u{202e}ab\u{2066}cd\x07",
    "\r\nabc\r\n",
    "../../x",
    "..\\..\\x",
    "/etc/ab",
    "<script",
    "'\"&<>]]",
    "=1+2;A\n",
];

/// Characters that are not seen, or that turn text around, beyond those of the oldest lists: seven units of UTF-16
/// each.
const HIDDEN: [&str; 2] = ["\u{61c}a\u{ad}b\u{180e}cd", "\u{e0001}a\u{e0041}\u{e007f}"];

/// The same in seven bytes of UTF-8.
const HIDDEN_UTF8: [&str; 2] = ["\u{61c}\u{ad}\u{180e}", "\u{e0041}\u{202e}"];

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn rdmascope(arguments: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_rdmascope")).args(arguments).output().expect("the binary runs");
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

fn text(arguments: &[&str]) -> String {
    String::from_utf8(rdmascope(arguments).stdout).expect("output is UTF-8")
}

/// The sample, with another name in place of `big.bin`.
fn renamed(sample: &str, encode: impl Fn(&str) -> Vec<u8>, name: &str, folder: &Path) -> String {
    let mut bytes = fs::read(common::samples().join(sample).join(format!("{sample}.pcap"))).expect("the sample");
    let (old, new) = (encode("big.bin"), encode(name));
    assert_eq!(old.len(), new.len(), "{name:?}");
    let places: Vec<usize> = (0..bytes.len() - old.len()).filter(|at| bytes[*at..].starts_with(&old)).collect();
    assert!(!places.is_empty());
    for at in places {
        bytes[at..at + new.len()].copy_from_slice(&new);
    }
    let path = folder.join("hostile.pcap");
    fs::write(&path, bytes).expect("a file for the test");
    path.display().to_string()
}

/// No character that a terminal obeys, or that turns a line around.
fn harmless(what: &str, text: &str) {
    without(what, text, |c| c.is_control() || is_unsafe(c));
}

/// The same for data formats: names are unchanged, except for characters that a terminal obeys.
fn harmless_data(what: &str, text: &str) {
    without(what, text, char::is_control);
}

fn without(what: &str, text: &str, is_bad: impl Fn(char) -> bool) {
    let bad = text.char_indices().find(|(_, c)| *c != '\n' && *c != '\t' && is_bad(*c));
    if let Some((at, c)) = bad {
        let from = text[..at].rfind('\n').map_or(0, |n| n + 1);
        panic!("{what}: {c:?} in {:?}", text[from..].lines().next().unwrap_or_default());
    }
}

fn all_outputs(capture: &str, folder: &Path, what: &str) {
    for arguments in [
        &["analyze", capture][..],
        &["analyze", capture, "--format", "html"],
        &["analyze", capture, "--format", "json", "--exchanges"],
        &["dissect", capture],
        &["dissect", capture, "-V"],
        &["dissect", capture, "-x", "-c", "300"],
        &["dissect", capture, "-T", "fields", "-e", "smb2.filename", "-e", "nfs.name"],
    ] {
        harmless(&format!("{what} {arguments:?}"), &text(arguments));
    }
    for arguments in [
        &["dissect", capture, "-T", "json"][..],
        &["dissect", capture, "-T", "ek"],
        &["dissect", capture, "-T", "pdml"],
    ] {
        harmless_data(&format!("{what} {arguments:?}"), &text(arguments));
    }
    if what.starts_with("SMB") {
        harmless(what, &text(&["replay", capture, "--plan"]));
    }
    // a name may hold a line's end there, within quotes
    harmless_data(&format!("{what} CSV"), &text(&["dissect", capture, "-T", "csv"]).replace("\r\n", "\n"));
    let page = text(&["analyze", capture, "--format", "html"]);
    assert!(!page.contains("<script\"") && !page.contains("<script<"), "{what}: markup from a name");

    let place = folder.join("in/it");
    fs::create_dir_all(place.parent().unwrap()).unwrap();
    harmless(what, &text(&["export", "payloads", capture, &place.display().to_string()]));
    let mut inside = 0;
    let mut folders = vec![place.clone()];
    while let Some(at) = folders.pop() {
        for entry in fs::read_dir(&at).unwrap().map(Result::unwrap) {
            harmless(what, &entry.file_name().to_string_lossy());
            let kind = entry.file_type().unwrap();
            assert!(kind.is_dir() || kind.is_file());
            if kind.is_dir() { folders.push(entry.path()) } else { inside += 1 }
        }
    }
    assert!(inside > 0, "{what}: nothing was written");
    // the capture and the folder, and in that the folder named: nothing got out
    assert_eq!(fs::read_dir(folder).unwrap().count(), 2, "{what}");
    assert_eq!(fs::read_dir(folder.join("in")).unwrap().count(), 1, "{what}");
    assert!(!Path::new("/etc/ab").exists());
    fs::remove_dir_all(&place).unwrap();
}

#[test]
fn names_act_on_nobody() {
    let folder = Folder(std::env::temp_dir().join(format!("rdmascope-hostile-{}", std::process::id())));
    fs::create_dir_all(&folder.0).expect("a folder for the test");
    for name in NAMES.into_iter().chain(HIDDEN) {
        let utf16 = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let capture = renamed("smb-roce", utf16, name, &folder.0);
        all_outputs(&capture, &folder.0, &format!("SMB {name:?}"));
    }
    for name in NAMES {
        // one byte a character: those beyond ASCII are no UTF-8 then
        let bytes = |text: &str| text.chars().map(|c| c as u32 as u8).collect();
        let capture = renamed("nfs-iwarp-v42", bytes, name, &folder.0);
        all_outputs(&capture, &folder.0, &format!("NFS {name:?}"));
    }
    for name in HIDDEN_UTF8 {
        let capture = renamed("nfs-iwarp-v42", |text| text.as_bytes().to_vec(), name, &folder.0);
        all_outputs(&capture, &folder.0, &format!("NFS {name:?}"));
    }
}

/// Frames of 218 bytes, each an SMB2 WRITE of 8 MiB of one byte, compressed as a pattern ([MS-SMB2] 2.2.42.2.2), on so
/// many connections by turns.
#[cfg(target_os = "linux")]
fn patterns(frames: u32, connections: u8) -> Vec<u8> {
    const HEADER: usize = 64;
    const REQUEST: usize = 48;
    const WHOLE: u32 = 8 << 20;
    let data = WHOLE - (HEADER + REQUEST) as u32;
    let mut write = [&b"\xfeSMB"[..], &64u16.to_le_bytes()].concat();
    write.extend([0, 1, 0, 0, 0, 0, 9, 0, 1, 0]);
    write.resize(HEADER, 0);
    write.extend([&49u16.to_le_bytes()[..], &((HEADER + REQUEST) as u16).to_le_bytes(), &data.to_le_bytes()].concat());
    write.resize(HEADER + REQUEST, 0);
    let mut smb = [&b"\xfcSMB"[..], &WHOLE.to_le_bytes()].concat();
    // not compressed: the headers; Pattern_V1: the data
    smb.extend([&[0, 0, 1, 0][..], &(write.len() as u32).to_le_bytes(), &write].concat());
    smb.extend([&[4, 0, 0, 0, 8, 0, 0, 0, b'A', 0, 0, 0][..], &data.to_le_bytes()].concat());
    let framed = [&(smb.len() as u32).to_be_bytes()[..], &smb].concat();
    let mut capture = [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 1 << 18, 1].map(u32::to_le_bytes).concat();
    for n in 0..frames {
        let (connection, sent) =
            ((n % u32::from(connections)) as u8, (n / u32::from(connections)) * framed.len() as u32);
        let mut frame = [[2; 12].as_slice(), &[8, 0, 0x45, 0], &(40 + framed.len() as u16).to_be_bytes()].concat();
        // the checksums are absent, as a card that computes them leaves them
        frame.extend(
            [&[0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1 + connection, 10, 0, 1, 1][..], &[0xc3, 0x50, 0x01, 0xbd]]
                .concat(),
        );
        frame.extend(
            [&(1000 + sent).to_be_bytes()[..], &[0, 0, 0, 1, 0x50, 0x18, 0xff, 0xff, 0, 0, 0, 0], &framed].concat(),
        );
        let length = (frame.len() as u32).to_le_bytes();
        capture.extend(
            [&(n / 100_000).to_le_bytes()[..], &(n % 100_000 * 10).to_le_bytes(), &length, &length, &frame].concat(),
        );
    }
    capture
}

/// What grows when it is decompressed does not wait in memory until it is written: by sheets (one connection), by texts
/// (eight), and by one thread.
#[test]
#[cfg(target_os = "linux")]
fn what_grows_when_it_is_decompressed_does_not_fill_the_memory() {
    use std::io::Read;
    const MOST_KIB: u64 = 700 << 10;
    const READ: u64 = 1400 << 20;
    let folder = Folder(std::env::temp_dir().join(format!("rdmascope-patterns-{}", std::process::id())));
    fs::create_dir_all(&folder.0).expect("a folder for the test");
    let capture = folder.0.join("patterns.pcap").display().to_string();
    for (connections, threads) in [(1, "2"), (8, "2"), (8, "1")] {
        fs::write(&capture, patterns(40_000, connections)).expect("a file for the test");
        let arguments = ["dissect", &capture, "--threads", threads, "-T", "fields", "-e", "smb2.write_data"];
        let mut child = Command::new(env!("CARGO_BIN_EXE_rdmascope"))
            .args(arguments)
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let mut output = child.stdout.take().expect("a pipe");
        let mut begin = [0; 64];
        output.read_exact(&mut begin).expect("output");
        assert_eq!(begin, [b'4', b'1'].repeat(32)[..], "the data as hex");
        let read = std::io::copy(&mut (&mut output).take(READ), &mut std::io::sink()).expect("output");
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).expect("it still writes");
        drop(output);
        child.wait().expect("it ends");
        let peak =
            status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().split(' ').next()?.parse::<u64>().ok());
        assert!(
            read == READ && peak.is_some_and(|kib| kib < MOST_KIB),
            "{connections} connections, {threads} threads: {peak:?} KiB for {read} bytes"
        );
    }
}
