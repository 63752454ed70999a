//! The structure of the workspace: allowed dependencies between crates, `no_std`, places of unsafe code, and the oldest
//! toolchain. It is read from `cargo metadata` and from the sources, so that the drawing in the README stays true.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Each crate, and the crates of ours on which it may depend. Dependencies point down only.
const LAYERS: &[(&str, &[&str])] = &[
    ("rdmascope-dissector", &[]),
    ("rdmascope-analyzer", &["rdmascope-dissector"]),
    ("rdmascope-verbs", &[]),
    ("rdmascope-capture", &["rdmascope-dissector", "rdmascope-verbs"]),
    ("rdmascope-replay", &["rdmascope-dissector", "rdmascope-analyzer", "rdmascope-capture", "rdmascope-verbs"]),
    ("rdmascope-plugins", &["rdmascope-dissector", "rdmascope-analyzer", "rdmascope-capture", "rdmascope-engine"]),
    ("rdmascope-engine", &["rdmascope-dissector", "rdmascope-analyzer"]),
    (
        "rdmascope-report",
        &["rdmascope-dissector", "rdmascope-analyzer", "rdmascope-capture", "rdmascope-replay", "rdmascope-plugins"],
    ),
    ("rdmascope-share", &["rdmascope-dissector", "rdmascope-analyzer"]),
    ("rdmascope-compare", &["rdmascope-dissector", "rdmascope-analyzer"]),
    ("rdmascope-screens", &["rdmascope-dissector", "rdmascope-analyzer", "rdmascope-capture", "rdmascope-report"]),
    ("rdmascope-sim", &["rdmascope-dissector", "rdmascope-analyzer", "rdmascope-replay"]),
    (
        "rdmascope",
        &[
            "rdmascope-dissector",
            "rdmascope-analyzer",
            "rdmascope-capture",
            "rdmascope-verbs",
            "rdmascope-replay",
            "rdmascope-plugins",
            "rdmascope-report",
            "rdmascope-screens",
            "rdmascope-share",
            "rdmascope-compare",
        ],
    ),
];

/// Crates in which a clock, a file or a socket is a compile error.
const NO_STD: &[&str] = &["rdmascope-dissector", "rdmascope-analyzer"];

/// Places in the workspace in which unsafe code is allowed, with the reason.
const UNSAFE: &[(&str, &str)] = &[
    ("capture/src/mapped.rs", "maps regular files"),
    ("capture/src/system.rs", "gives back pages of mapped files, and prefetches them"),
    ("capture/src/live", "packet sockets and their rings"),
    ("capture/verbs", "calls libibverbs and librdmacm"),
    ("plugins/engine/src/c.rs", "is called by C"),
    ("plugins/engine/src/lua.rs", "is called by Lua, and calls it"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package lies in the workspace").to_path_buf()
}

fn metadata() -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline", "--manifest-path"])
        .arg(root().join("Cargo.toml"))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo metadata writes JSON")
}

/// Packages of the workspace by name.
fn packages(metadata: &Value) -> BTreeMap<&str, &Value> {
    let packages = metadata["packages"].as_array().expect("packages");
    packages.iter().map(|package| (package["name"].as_str().expect("name"), package)).collect()
}

/// Root source files of a package's library and binaries.
fn roots(package: &Value) -> impl Iterator<Item = &str> {
    let shipped = |target: &&Value| {
        target["kind"].as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind == "lib" || kind == "bin"))
    };
    package["targets"]
        .as_array()
        .expect("targets")
        .iter()
        .filter(shipped)
        .map(|target| target["src_path"].as_str().expect("src_path"))
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// True if the file has this inner attribute on a line of its own.
fn has_attribute(path: &str, attribute: &str) -> bool {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{path}: {e}"));
    text.lines().any(|line| line.trim() == attribute)
}

/// Crates on the same layer that the tests of a crate use: they supply captures to analyze.
const BESIDE: &[(&str, &str)] = &[
    ("rdmascope-analyzer", "rdmascope-capture"),
    ("rdmascope-share", "rdmascope-capture"),
    ("rdmascope-share", "rdmascope-sim"),
    ("rdmascope-compare", "rdmascope-capture"),
    ("rdmascope-engine", "rdmascope-capture"),
];

#[test]
fn dependencies_point_down_only() {
    let metadata = metadata();
    let packages = packages(&metadata);
    for (name, package) in &packages {
        let Some((_, allowed)) = LAYERS.iter().find(|(layer, _)| layer == name) else {
            panic!("{name} has no place in LAYERS");
        };
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            let ours = dependency["name"].as_str().expect("name");
            // Tests may use crates below or beside, but never those above.
            let beside = dependency["kind"] == "dev" && BESIDE.contains(&(*name, ours));
            if packages.contains_key(ours) && ours != *name && !beside {
                assert!(allowed.contains(&ours), "{name} depends on {ours}");
            }
        }
    }
    for must in ["rdmascope-dissector", "rdmascope-analyzer", "rdmascope-capture", "rdmascope-plugins", "rdmascope"] {
        assert!(packages.contains_key(must), "{must} is not in the workspace");
    }
}

#[test]
fn decoding_and_analysis_have_no_clock_and_no_files() {
    let metadata = metadata();
    let packages = packages(&metadata);
    for name in NO_STD {
        for root in roots(packages[name]) {
            assert!(has_attribute(root, "#![no_std]"), "{root} is not no_std");
        }
    }
}

#[test]
fn unsafe_code_stands_only_where_it_is_listed() {
    let root = root();
    let metadata = metadata();
    for (name, package) in packages(&metadata) {
        let may = UNSAFE.iter().any(|(path, _)| {
            package["manifest_path"].as_str().is_some_and(|manifest| {
                let folder = Path::new(manifest).parent().expect("a manifest lies in a folder");
                root.join(path).starts_with(folder)
            })
        });
        for source in roots(package) {
            let forbids = has_attribute(source, "#![forbid(unsafe_code)]");
            let denies = has_attribute(source, "#![deny(unsafe_code)]");
            assert!(forbids || (may && denies), "{name}: {source} neither forbids unsafe code nor is listed in UNSAFE");
        }
    }
    let mut files = Vec::new();
    for (name, _) in LAYERS {
        let folder = match *name {
            "rdmascope" => "tui",
            // below it
            "rdmascope-report" | "rdmascope-screens" | "rdmascope-engine" => continue,
            name => name.trim_start_matches("rdmascope-"),
        };
        sources(&root.join(folder), &mut files);
    }
    assert!(files.len() > 20, "found only {} source files", files.len());
    // Spelled in two parts, or this file would find itself.
    let allowance = concat!("allow(unsafe", "_code");
    for file in files {
        let text = std::fs::read_to_string(&file).expect("a source file is text");
        let listed = UNSAFE
            .iter()
            .any(|(path, _)| file.starts_with(root.join(path)) || file == root.join(path).with_extension("rs"));
        assert!(
            listed || !text.contains(allowance),
            "{} allows unsafe code and is not listed in UNSAFE",
            file.display()
        );
    }
}

/// The promised oldest toolchain must not be newer than the one that runs the tests.
#[test]
fn this_toolchain_is_not_older_than_promised() {
    let output = Command::new(env!("CARGO")).arg("--version").output().expect("cargo runs");
    let version = String::from_utf8(output.stdout).expect("a version is text");
    let minor = |version: &str| -> u32 {
        let mut parts = version.split(['.', '-', '+']);
        assert_eq!(parts.next(), Some("1"), "{version}");
        parts.next().and_then(|minor| minor.parse().ok()).unwrap_or_else(|| panic!("no minor version in {version}"))
    };
    let ours = minor(version.split(' ').nth(1).expect("cargo VERSION"));
    let metadata = metadata();
    let promised: BTreeSet<&str> =
        packages(&metadata).values().map(|package| package["rust_version"].as_str().expect("rust-version")).collect();
    assert_eq!(promised.len(), 1, "the crates promise different toolchains: {promised:?}");
    assert!(promised.iter().all(|promise| minor(promise) <= ours), "{promised:?} is promised, this is {version}");
}

/// Links between our own pages lead to existing files.
#[test]
fn pages_lead_to_files_that_exist() {
    let root = root();
    let output = Command::new("git").args(["ls-files", "*.md"]).current_dir(&root).output().expect("git runs");
    let pages: Vec<PathBuf> =
        String::from_utf8(output.stdout).expect("paths are text").lines().map(|l| root.join(l)).collect();
    assert!(pages.len() > 8, "only {} pages", pages.len());
    let mut wrong = Vec::new();
    for page in pages {
        let text = std::fs::read_to_string(&page).expect("a page");
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let target = link.split('#').next().unwrap_or_default();
            if !target.is_empty() && !target.contains("://") && !page.parent().expect("a folder").join(target).exists()
            {
                wrong.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The promised toolchain is the oldest that the dependencies allow; that our own code needs no newer one, Clippy's
/// `incompatible_msrv` holds.
#[test]
fn the_promised_toolchain_is_what_dependencies_ask_for() {
    let said = Command::new("rustc").arg("-vV").output().expect("rustc runs");
    let said = String::from_utf8(said.stdout).expect("text");
    let host = said.lines().find_map(|line| line.strip_prefix("host: ")).expect("a host");
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--offline", "--filter-platform", host, "--manifest-path"])
        .arg(root().join("Cargo.toml"))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo metadata writes JSON");
    let minor = |version: &str| version.split('.').nth(1).and_then(|minor| minor.parse::<u32>().ok()).unwrap_or(0);
    let (mut ours, mut theirs) = (0, (0, String::new()));
    for package in metadata["packages"].as_array().expect("packages") {
        let Some(version) = package["rust_version"].as_str() else { continue };
        if package["source"].is_null() {
            ours = minor(version);
        } else {
            theirs = theirs.max((minor(version), package["name"].to_string()));
        }
    }
    assert!(theirs.0 > 80, "no dependency says what it needs");
    assert_eq!(ours, theirs.0, "rust-version in Cargo.toml; {} asks for 1.{}", theirs.1, theirs.0);
}

/// `interop/run` goes on in a network namespace that has no way out: all packages and programs are there before.
#[test]
fn interop_asks_for_all_packages_while_there_is_a_network() {
    let script = std::fs::read_to_string(root().join("interop/run")).expect("interop/run");
    let (before, inside) = script.split_once("exec env INTEROP_INSIDE=1").expect("the line that makes the namespace");
    for word in ["need ", "build", "cargo ", "apt-get ", "debootstrap "] {
        let asks = |text: &str| {
            text.lines().any(|line| line.trim_start().starts_with(word) || line.contains(&format!("|| {word}")))
        };
        assert!(!asks(inside), "{word}");
    }
    // each case whose functions use a program asks for it: the names of those over RoCE all begin alike
    for (program, condition) in
        [("tshark", "\" roce\" ]] || need tshark"), ("\"$SESSION\"", "\" session \"|\" probe \"|\" roce\"|\" verbs \"")]
    {
        assert!(inside.contains(program) && before.contains(condition), "{program}");
    }
}
