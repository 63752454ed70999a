//! Lists the tests of this workspace that are left out on this machine, and why: `cargo test -p rdmascope --test
//! left_out`. It has no harness, so that its output is shown. If `CI` is set, it fails when a test is left out.

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

/// A program that some tests need.
struct Need {
    name: &'static str,
    is_there: fn() -> bool,
    get: &'static str,
    /// Files of tests, and the parts of them that are left out.
    tests: &'static [(&'static str, &'static str)],
}

const NEEDS: &[Need] = &[
    Need {
        name: "tshark",
        is_there: || runs("tshark", &["--version"]),
        get: "apt-get install tshark",
        tests: &[
            ("tui/tests/common/mod.rs", "wireshark_fields, wireshark_values: names, kinds and values of fields"),
            ("tui/tests/export.rs", "annotated captures, read by tshark"),
            ("tui/tests/extcap.rs", "our sources in Wireshark's list of interfaces"),
            ("tui/tests/wireshark_plugin.rs", "the Lua plugin"),
            (
                "share/tests/tshark.rs",
                "tshark finds the same fields in a capture before and after it is made anonymous",
            ),
        ],
    },
    Need {
        name: "sharkd",
        is_there: || runs("sharkd", &["-h"]),
        get: "apt-get install wireshark-common",
        tests: &[("tui/tests/wireshark_plugin.rs", "a file that is loaded again, as a window does it")],
    },
    Need {
        name: "the newest tshark",
        is_there: || runs("interop/newest-tshark", &["--ready"]),
        get: "interop/newest-tshark --get",
        tests: &[
            ("tui/tests/tshark_habits.rs", "options and outputs as tshark 4.6 has them"),
            ("tui/tests/wireshark_filters.rs", "display filters as Wireshark 4.6 has them"),
        ],
    },
    Need {
        name: "tmux",
        is_there: || runs("tmux", &["-V"]),
        get: "apt-get install tmux",
        tests: &[
            ("tui/tests/tmux.rs", "the terminal UI in a real terminal"),
            ("tui/tests/live.rs", "the terminal UI while capturing"),
        ],
    },
    Need {
        name: "chromium",
        is_there: || ["chromium", "chromium-browser", "google-chrome"].iter().any(|name| runs(name, &["--version"])),
        get: "apt-get install chromium",
        tests: &[("tui/tests/html.rs", "the HTML report in a browser")],
    },
    Need {
        name: "root",
        is_there: || Command::new("id").arg("-u").output().is_ok_and(|o| o.stdout == b"0\n"),
        get: "run the tests as root, in a virtual machine or a container that you may lose",
        tests: &[
            ("tui/tests/live.rs", "giving up root; without namespaces for users, live capture"),
            ("tui/tests/extcap.rs", "capture without root by a capability"),
        ],
    },
    Need {
        name: "network namespaces (unshare and ip)",
        is_there: || {
            ["--map-root-user", "--mount"].iter().any(|as_whom| runs("unshare", &["--net", as_whom, "ip", "link"]))
        },
        get: "apt-get install util-linux iproute2, and as root, or where users may have namespaces",
        tests: &[("tui/tests/live.rs", "live capture from a cable of its own")],
    },
    Need {
        name: "cc",
        is_there: || runs("cc", &["--version"]),
        get: "apt-get install gcc",
        tests: &[
            ("plugins/engine/tests/interface.rs", "the engine's interface from C"),
            ("tui/tests/wireshark_plugin.rs", "the plugin beside an engine of another version"),
        ],
    },
    Need {
        name: "python3",
        is_there: || runs("python3", &["--version"]),
        get: "apt-get install python3",
        tests: &[("plugins/engine/tests/interface.rs", "the engine's interface from Python")],
    },
    Need {
        name: "cc with libibverbs-dev and librdmacm-dev",
        is_there: || runs("cc", &["--version"]) && Path::new("/usr/include/infiniband/verbs.h").is_file(),
        get: "apt-get install gcc libibverbs-dev librdmacm-dev",
        tests: &[
            ("capture/tests/card.rs", "capture from a card, played by a library"),
            ("capture/verbs/tests/common/mod.rs", "what libibverbs is called with, played by a library"),
            ("capture/verbs/tests/layout.rs", "structures, held against the headers"),
            ("replay/tests/verbs.rs", "both ends over RDMA cards, played by a library"),
        ],
    },
    Need {
        name: "python3 with jsonschema-rs",
        is_there: || runs("python3", &["-c", "import jsonschema_rs"]),
        get: "pip install jsonschema-rs; .ci/run has an environment of its own for it",
        tests: &[("tui/tests/reports.rs", "JSON, held to its schema by a validator that is not ours")],
    },
];

/// Needs that CI meets in another way: with an environment made for it, or with a feature.
const ELSEWHERE: &[&str] = &["python3 with jsonschema-rs"];

fn runs(program: &str, arguments: &[&str]) -> bool {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let program = if program.contains('/') { root.join(program) } else { program.into() };
    Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|s| s.success())
}

/// Programs that are on every system that can compile this.
const EVERYWHERE: &[&str] = &["cargo", "rustc", "git", "sh", "kill", "sleep", "id", "true", "cat", "cp"];

/// Programs that a test names, and the needs that they imply. Those after `mount` are available with namespaces or
/// root.
const STANDS_FOR: &[(&str, &str)] = &[
    ("unshare", "network namespaces"),
    ("ip", "network namespaces"),
    ("mount", "network namespaces"),
    ("setpriv", "root"),
    ("pgrep", "tshark"),
];

/// Files whose tests leave something out for another reason than that a program is missing.
const OTHER_REASONS: &[(&str, &str)] = &[("tui/tests/command_line.rs", "root may read what it is forbidden to")];

/// Tests that run a program which may be missing, or report that they left something out, and that no row of NEEDS has.
fn untold(root: &Path) -> Vec<String> {
    let list = Command::new("git").args(["ls-files", "*/tests/*.rs"]).current_dir(root).output();
    let Some(list) = list.ok().filter(|output| output.status.success()) else { return Vec::new() };
    let mut untold = Vec::new();
    for file in String::from_utf8_lossy(&list.stdout).lines().filter(|file| !file.ends_with("left_out.rs")) {
        let Ok(text) = std::fs::read_to_string(root.join(file)) else { continue };
        for program in text.split("Command::new(\"").skip(1).filter_map(|rest| rest.split('"').next()) {
            let stands = STANDS_FOR.iter().find(|(name, _)| *name == program).map_or(program, |(_, need)| need);
            let told =
                |need: &&Need| need.name.starts_with(stands) && need.tests.iter().any(|(named, _)| *named == file);
            if !EVERYWHERE.contains(&program) && !NEEDS.iter().any(|need| told(&need)) {
                untold.push(format!("{file} runs {program}"));
            }
        }
        let is_named = NEEDS.iter().flat_map(|need| need.tests).any(|(named, _)| *named == file)
            || OTHER_REASONS.iter().any(|(named, _)| *named == file);
        if text.contains("NOT TESTED") && !is_named {
            untold.push(format!("{file} leaves something out"));
        }
    }
    untold.sort();
    untold.dedup();
    untold
}

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let untold = untold(&root);
    assert!(
        untold.is_empty(),
        "say in NEEDS what is left out where the program is missing:\n  {}",
        untold.join("\n  ")
    );
    for (file, what) in NEEDS.iter().flat_map(|need| need.tests) {
        assert!(root.join(file).is_file(), "{file} ({what}) is gone: change NEEDS");
    }
    let missing: Vec<&Need> = NEEDS.iter().filter(|need| !(need.is_there)()).collect();
    if missing.is_empty() {
        println!("\nNothing is left out: all that tests use is there.");
        return ExitCode::SUCCESS;
    }
    println!("\nLEFT OUT on this machine:");
    for need in &missing {
        println!("  {} is missing ({})", need.name, need.get);
        for (file, what) in need.tests {
            println!("    {file}: {what}");
        }
    }
    let is_ci = std::env::var_os("CI").is_some();
    let fails = is_ci && missing.iter().any(|need| !ELSEWHERE.contains(&need.name));
    if fails { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
