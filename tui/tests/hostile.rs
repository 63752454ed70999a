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

/// Characters that are not seen, or that turn text around, beyond those of the oldest lists: seven units of UTF-16 each.
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
    for arguments in [&["dissect", capture, "-T", "json"][..], &["dissect", capture, "-T", "ek"], &["dissect", capture, "-T", "pdml"]] {
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
