//! Runs every input that a fuzzer kept through the functions of `fuzz/fuzz_targets/`, without libFuzzer. Each is also
//! cut short and damaged in ways that are the same in every run, so that this test finds something even if no fuzzer
//! runs.

use rdmascope_analyzer::fuzzing as analyzer;
use rdmascope_capture::fuzzing as capture;
use rdmascope_dissector::fuzzing as dissector;
use rdmascope_replay::fuzzing as replay;
use rdmascope_share::fuzzing as share;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Function that a fuzzer calls with its bytes.
type Target = fn(&[u8]);

/// The fuzz targets, by the names of their files in `fuzz/fuzz_targets/` and of their folders in `fuzz/corpus/`.
const TARGETS: &[(&str, Target)] = &[
    ("anonymize", share::fuzz_anonymize),
    ("canaries", |data| _ = share::fuzz_canaries(data)),
    ("capture_file", capture::fuzz_capture_file),
    ("create_contexts", dissector::fuzz_create_contexts),
    ("decompress", dissector::fuzz_decompress),
    ("endpoint", replay::fuzz_endpoint),
    ("filter", dissector::fuzz_filter),
    ("frame", dissector::fuzz_frame),
    ("iwarp", dissector::fuzz_iwarp),
    ("iwarp_receiver", replay::fuzz_iwarp_receiver),
    ("kerberos", replay::fuzz_kerberos),
    ("key_file", analyzer::fuzz_key_file),
    ("mad", dissector::fuzz_mad),
    ("peer", replay::fuzz_peer),
    ("pipeline", analyzer::fuzz_pipeline),
    ("roce_cm", replay::fuzz_roce_cm),
    ("roce_receiver", replay::fuzz_roce_receiver),
    ("rpc_nfs", dissector::fuzz_rpc_nfs),
    ("rpcrdma", dissector::fuzz_rpcrdma),
    ("smb2", dissector::fuzz_smb2),
    ("smb_session", analyzer::fuzz_smb_session),
    ("smbd", dissector::fuzz_smbd),
    ("spnego", dissector::fuzz_spnego),
    ("tcp_flow", analyzer::fuzz_tcp_flow),
];

/// Bytes of all seeds together, so that the repository stays small.
const MOST_BYTES: u64 = 2 << 20;

/// Damaged copies of each input.
const DAMAGED: usize = 24;

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package lies in the workspace").join("fuzz")
}

/// Names of the entries of a folder; `.rs` taken off.
fn names(folder: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    entries
        .map(|entry| entry.expect("a folder entry").file_name().to_string_lossy().trim_end_matches(".rs").to_owned())
        .collect()
}

fn inputs(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = fuzz().join("corpus").join(target);
    let read = |name: &String| {
        let path = folder.join(name);
        let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        (path, bytes)
    };
    names(&folder).iter().map(read).collect()
}

/// Numbers that look random and are the same in every run (xorshift64).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit.max(1) as u64) as usize
    }
}

/// Copies of `input`: cut, with bits flipped, with a field overwritten by an extreme, with a piece taken out or
/// doubled.
fn damaged(input: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15 ^ input.len() as u64);
    (0..DAMAGED).map(move |n| {
        let mut bytes = input.to_vec();
        let at = numbers.below(bytes.len());
        let end = (at + 1 + numbers.below(16)).min(bytes.len());
        match n % 5 {
            0 => bytes.truncate(at),
            1 => bytes.iter_mut().skip(at).step_by(97).for_each(|byte| *byte ^= 1 << (n % 8)),
            2 => bytes.iter_mut().skip(at).take(4).for_each(|byte| *byte = 0xff),
            3 if at < end => drop(bytes.drain(at..end)),
            _ if at < end => bytes.extend_from_within(at..end),
            _ => {}
        }
        bytes
    })
}

#[test]
fn every_target_has_its_file_its_seeds_and_its_place_here() {
    let here: BTreeSet<String> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(names(&fuzz().join("fuzz_targets")), here);
    assert_eq!(names(&fuzz().join("corpus")), here);
    let manifest = std::fs::read_to_string(fuzz().join("Cargo.toml")).expect("fuzz/Cargo.toml is text");
    for (name, _) in TARGETS {
        assert!(
            manifest.contains(&format!("name = \"{name}\"\npath = \"fuzz_targets/{name}.rs\"")),
            "{name} is not in fuzz/Cargo.toml"
        );
        assert!(!inputs(name).is_empty(), "{name} has no seeds");
    }
}

/// A function for fuzzers without a target would be forgotten.
#[test]
fn every_function_for_fuzzers_is_a_target() {
    let root = fuzz().join("..");
    let mut found = BTreeSet::new();
    for krate in ["dissector", "analyzer", "capture", "replay", "share"] {
        let text = std::fs::read_to_string(root.join(krate).join("src/fuzzing.rs")).unwrap_or_default();
        found.extend(text.split("pub fn fuzz_").skip(1).filter_map(|rest| rest.split('(').next()).map(str::to_owned));
    }
    assert_eq!(found, TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect());
}

#[test]
fn the_seeds_are_small() {
    let total: u64 = TARGETS.iter().flat_map(|(name, _)| inputs(name)).map(|(_, bytes)| bytes.len() as u64).sum();
    assert!(total < MOST_BYTES, "{total} bytes");
}

#[test]
fn no_input_makes_a_target_panic() {
    for (name, target) in TARGETS {
        for (path, bytes) in inputs(name) {
            // Shown only if the test fails: the last line names the input.
            println!("{}", path.display());
            target(&bytes);
            damaged(&bytes).for_each(|bytes| target(&bytes));
        }
    }
}
