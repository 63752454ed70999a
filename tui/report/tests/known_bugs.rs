//! New bugs of a file (`--rules`) are found alike by any number of threads, and in an analysis that has no end.

use rdmascope_analyzer::env::Options;
use rdmascope_analyzer::rules::Rule;
use rdmascope_capture::{CaptureFile, OpenOptions, Source, open};
use rdmascope_report::analysis::{self, Analysis, Run};
use rdmascope_report::fields::registry;
use rdmascope_report::input::open_all;
use rdmascope_report::known_bugs::{KnownBugs, Search};
use rdmascope_report::live::monitor::Monitor;
use rdmascope_report::report::{Collector, ReportData, Wanted, json};
use std::path::{Path, PathBuf};

/// Conditions on a frame, on the frame before, on no connection, and on reassembled messages.
const CONDITIONS: [&str; 5] = [
    "smb2.cmd == 3 || nfs.opcode",
    "frame.time_delta > 0.0001 && frame.len > 100",
    "arp || icmp",
    "smb2.msg_id == 3 || rpcordma.xid",
    "tcp",
];

fn give() {
    let mut text = "format = 1\n".to_owned();
    for (n, when) in CONDITIONS.iter().enumerate() {
        text += &format!(
            "[[bug]]\nid = \"BUG-NEW-{n}\"\nseverity = \"warn\"\nspec = \"RFC 1\"\ntitle = \"Bug {n}.\"\nsays = \"It \
                says.\"\n\
             causes = [\"A cause\"]\ncure = \"A cure.\"\nproduct = \"Linux\"\nwhen = \"{when}\"\nby = \"client\"\n"
        );
    }
    let bugs = KnownBugs::read(&text, &registry()).unwrap_or_else(|e| panic!("{e}\n{text}"));
    assert!(bugs.give() && Search::new().is_some_and(|search| search.is_by_connection()));
}

fn samples() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../samples");
    let within =
        |path: PathBuf| std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    let mut found: Vec<PathBuf> = within(folder).into_iter().filter(|path| path.is_dir()).flat_map(within).collect();
    found.retain(|path| path.extension().is_some_and(|e| e == "pcap" || e == "pcapng"));
    found.sort();
    assert!(found.len() > 20);
    found
}

fn said(analysis: Analysis<Collector>) -> String {
    json::render(&ReportData::new(analysis).0).unwrap()
}

// the file applies to the whole process: one test
#[test]
fn new_bugs_are_found_alike_whatever_the_threads_and_without_an_end() {
    give();
    let given: Vec<Rule> = Rule::all().filter(|rule| rule.id().starts_with("BUG-NEW-")).collect();
    let mut found = [0_u64; CONDITIONS.len()];
    let mut shared = 0;
    for path in samples() {
        let run = |threads| Run { options: Options::default(), threads, small: 0, filter: None, frames: u64::MAX };
        let (names, wanted) = (|| vec![path.display().to_string()], Wanted { exchanges: false, credits: false });
        let input = || open_all(std::slice::from_ref(&path)).unwrap();
        let alone = analysis::run(input(), names(), run(1), Collector::new(wanted));
        let counts: Vec<u64> = given.iter().map(|rule| alone.report.findings.occurrences(*rule)).collect();
        found.iter_mut().zip(&counts).for_each(|(sum, n)| *sum += n);
        let alone = said(alone);
        for threads in [2, 5] {
            let file = CaptureFile::open(&path).unwrap();
            if let Some(analysis) = analysis::run_in_shards(&file, &names(), &run(threads), &Collector::new(wanted)) {
                shared += 1;
                assert_eq!(alone, said(analysis), "{} by {threads} threads", path.display());
            }
            let chosen = analysis::run_in_parts(input(), names(), run(threads), Collector::new(wanted));
            assert_eq!(alone, said(chosen), "{} by {threads} threads", path.display());
        }
        for threads in [1, 3] {
            let mut source = open(&path, OpenOptions::new()).unwrap();
            let mut monitor = Monitor::new(Options::default(), Collector::new(wanted), &[], threads);
            while matches!(source.advance(), Ok(true)) {
                monitor.frame(&source.record(), source.interfaces());
            }
            let findings = monitor.standing().findings;
            let live: Vec<u64> = given.iter().map(|rule| findings.occurrences(*rule)).collect();
            assert_eq!(counts, live, "{} by {threads} threads", path.display());
        }
    }
    assert!(shared > 20 && found.iter().all(|n| *n > 0), "{shared}: {found:?}");
}
