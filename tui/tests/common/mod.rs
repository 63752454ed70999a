//! Shared by the tests against tshark: finding it, the list of known differences, and the samples.
#![allow(dead_code, unreachable_pub)]

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The folder of the workspace.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package lies in the workspace").to_path_buf()
}

/// The folder of the samples.
pub fn samples() -> PathBuf {
    root().join("samples")
}

/// Runs tshark in `folder`. `RDMASCOPE_TSHARK` names another one (a command with its arguments, separated by spaces).
/// Without tshark, prints a message and returns `None`; if CI is set, that is a failure.
pub fn tshark(folder: &Path, arguments: &[&str]) -> Option<Output> {
    let command = std::env::var("RDMASCOPE_TSHARK").unwrap_or_else(|_| "tshark".into());
    let mut words = command.split_whitespace();
    let program = words.next().expect("RDMASCOPE_TSHARK is empty");
    match Command::new(program).args(words).args(arguments).current_dir(folder).env("TZ", "UTC").output() {
        Ok(output) => {
            assert!(output.status.success(), "tshark {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
            Some(output)
        }
        Err(e) => {
            let message = format!("NOT TESTED: {command} does not run ({e}); it is in Debian's package tshark");
            assert!(std::env::var_os("CI").is_none_or(|v| v != "true"), "{message}");
            eprintln!("{message}");
            None
        }
    }
}

/// A line of `samples/wireshark-differences.txt`.
#[derive(Debug)]
pub struct Difference {
    pub name: String,
    pub what: String,
    pub reason: String,
}

/// The intended differences from Wireshark, by field and kind of difference (`kind`, `base`, `mask`, `meaning`, `value`).
pub fn differences() -> HashMap<(String, String), Difference> {
    let path = samples().join("wireshark-differences.txt");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut known = HashMap::new();
    for (number, line) in text.lines().enumerate().filter(|(_, l)| !l.trim().is_empty() && !l.starts_with('#')) {
        let mut words = line.splitn(3, char::is_whitespace);
        let (Some(name), Some(what), Some(reason)) = (words.next(), words.next(), words.next()) else {
            panic!("line {}: a name, what differs, and the reason are expected: {line}", number + 1);
        };
        assert!(
            ["kind", "base", "mask", "meaning", "value", "layer"].contains(&what),
            "line {}: what differs is kind, base, mask, meaning, value or layer",
            number + 1
        );
        assert!(reason.trim().len() > 10, "line {}: a reason is expected", number + 1);
        let key = (name.to_owned(), what.to_owned());
        let difference = Difference { name: name.into(), what: what.into(), reason: reason.trim().into() };
        assert!(known.insert(key, difference).is_none(), "line {}: listed twice", number + 1);
    }
    known
}

/// True if Wireshark has a field of this name.
pub fn wireshark_has(name: &str) -> bool {
    use std::collections::HashSet;
    use std::sync::OnceLock;
    static NAMES: OnceLock<HashSet<String>> = OnceLock::new();
    let names = NAMES.get_or_init(|| {
        let output = tshark(&samples(), &["-G", "fields"]).expect("tshark ran a moment ago");
        String::from_utf8_lossy(&output.stdout)
            .lines()
            .filter_map(|l| l.split('\t').nth(2))
            .map(str::to_owned)
            .collect()
    });
    names.contains(name)
}

/// Makes a file or folder readable by everybody: the newest tshark runs as user nobody if it was installed by root.
pub fn open_to_all(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let mode = if path.is_dir() { 0o755 } else { 0o644 };
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("permissions");
}

/// Copies a program that is to be run. Another process does it: if this one wrote the copy itself, a program that
/// another test starts meanwhile would hold the copy open for writing, and running it would fail with "Text file busy".
pub fn copy_program(from: &Path, to: &Path) {
    let copied = Command::new("cp").args([from, to]).status().expect("cp runs");
    assert!(copied.success(), "{} was not copied", from.display());
}
