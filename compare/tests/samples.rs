//! Samples held against each other: what differs is named first, and where nothing does nothing is said.

use rdmascope_analyzer::pipeline::{FrameMeta, Pipeline};
use rdmascope_analyzer::report::Report;
use rdmascope_analyzer::rules::Group;
use rdmascope_capture::{OpenOptions, Source, open};
use rdmascope_compare::diff::Diff;
use rdmascope_compare::expect::{self, Expectations};
use rdmascope_compare::profile::{Profile, Profiler};
use rdmascope_dissector::frame::LinkType;
use rdmascope_dissector::trace::Off;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

struct Record {
    time_ns: i64,
    link_type: LinkType,
    wire_len: u32,
    bytes: Vec<u8>,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../samples")
}

fn samples() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(folder())
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.is_dir())
        .flat_map(|p| std::fs::read_dir(p).unwrap().map(|e| e.unwrap().path()).collect::<Vec<_>>())
        .filter(|p| p.extension().is_some_and(|e| e == "pcap" || e == "pcapng"))
        .collect();
    found.sort();
    assert!(found.len() > 20);
    found
}

fn read(path: &Path) -> Vec<Record> {
    let mut source = open(path, OpenOptions::new()).unwrap();
    let mut records = Vec::new();
    while matches!(source.advance(), Ok(true)) {
        let r = source.record();
        records.push(Record {
            time_ns: r.time_ns,
            link_type: r.link_type,
            wire_len: r.wire_len,
            bytes: r.bytes.to_vec(),
        });
    }
    records
}

/// The profile, the report, and the connection of each frame in the analysis.
fn analyzed(records: &[Record]) -> (Profile, Report, Vec<Option<u32>>) {
    let mut pipeline = Pipeline::with_sink(Default::default(), Profiler::default());
    let mut places = Vec::new();
    for (n, r) in records.iter().enumerate() {
        let meta = FrameMeta {
            number: n as u64 + 1,
            time_ns: r.time_ns,
            link_type: r.link_type,
            wire_len: r.wire_len,
            interface: 0,
        };
        pipeline.frame(&meta, &r.bytes, &mut Off);
        let place = pipeline.facts().place.map(|(id, _)| id);
        places.push(place);
        for (frame, _) in pipeline.earlier().to_vec() {
            places[frame as usize - 1] = places[frame as usize - 1].or(place);
        }
    }
    let (report, heard) = pipeline.finish();
    (Profile::new(&report, heard), report, places)
}

fn profile(name: &str) -> Profile {
    beside(name, name)
}

fn beside(name: &str, capture: &str) -> Profile {
    analyzed(&read(&folder().join(format!("{name}/{capture}.pcap")))).0
}

#[test]
fn nothing_differs_of_a_capture_and_itself() {
    for path in samples() {
        let records = read(&path);
        let diff = Diff::new(&analyzed(&records).0, &analyzed(&records).0);
        assert!(diff.differences.is_empty() && diff.text().is_empty(), "{}: {}", path.display(), diff.sentence());
    }
}

#[test]
fn nothing_differs_where_only_the_order_of_connections_does() {
    let mut shuffled = 0;
    for path in samples() {
        let records = read(&path);
        let (before, report, places) = analyzed(&records);
        // connections that know of each other have an order; so have those that say why there is no RDMA
        let is_joined = report.sessions.iter().any(|(_, channels)| channels.len() > 1);
        let is_path = report.findings.iter().any(|f| f.connection.is_none() || f.rule.row().group == Group::Path);
        if report.connections.len() < 2 || is_joined || is_path || places.iter().any(Option::is_none) {
            continue;
        }
        let of: HashMap<u32, u32> =
            report.connections.iter().flat_map(|c| c.followed_as.iter().map(|id| (*id, c.id))).collect();
        let mut groups: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (frame, place) in places.iter().enumerate() {
            groups.entry(place.and_then(|id| of.get(&id).copied()).unwrap_or(0)).or_default().push(frame);
        }
        // the last connection first, each behind the one before
        let mut now = records[0].time_ns;
        let mut other = Vec::new();
        for frames in groups.values().rev() {
            let begins = records[frames[0]].time_ns;
            for frame in frames {
                let r = &records[*frame];
                other.push(Record { time_ns: now + (r.time_ns - begins), bytes: r.bytes.clone(), ..*r });
            }
            now = other.last().map_or(now, |r: &Record| r.time_ns) + 1_000_000;
        }
        let diff = Diff::new(&before, &analyzed(&other).0);
        assert!(diff.differences.is_empty(), "{}: {}", path.display(), diff.text());
        shuffled += 1;
    }
    assert!(shuffled > 0, "no sample has connections that can be shuffled");
}

#[test]
fn the_first_sentence_names_what_was_changed() {
    for (a, b, named) in [
        ("smb-roce", "smb-roce-credits4", "credits that the"),
        ("smb-roce", "smb-roce-sign", "messages are signed"),
        ("smb-roce", "smb-roce-loss", "lost"),
        ("smb-iwarp", "smb-iwarp-credits8", "credits that the"),
        ("smb-iwarp", "smb-iwarp-sign", "messages are signed"),
        ("smb-iwarp", "smb-iwarp-loss", "lost"),
        ("nfs-roce-v3", "nfs-roce-v42", "version of NFS: 4 instead of 3"),
        ("smb-roce", "smb-roce-smb302", "dialect: 3.0.2 instead of 3.1.1"),
    ] {
        let diff = Diff::new(&profile(a), &profile(b));
        assert!(diff.sentence().contains(named), "{a} and {b}: {}", diff.sentence());
        let back = Diff::new(&profile(b), &profile(a));
        assert!(!back.differences.is_empty(), "{b} and {a}");
    }
}

#[test]
fn time_is_divided_by_owner() {
    let diff = Diff::new(&profile("smb-iwarp"), &profile("smb-iwarp-credits8"));
    let text = diff.text();
    assert!(text.contains("Time by owner") && text.contains("send queue"), "{text}");
}

#[test]
fn what_is_written_of_a_sample_is_read_again_and_holds_for_it_in_every_form() {
    for path in samples() {
        let shown = path.display();
        let profile = analyzed(&read(&path)).0;
        let written = Expectations::write(&profile);
        let read = Expectations::read(&written).unwrap_or_else(|e| panic!("{shown}: {e}\n{written}"));
        let verdicts = read.check(&profile);
        let failed: Vec<_> = verdicts.iter().filter(|v| !v.holds).collect();
        assert!(failed.is_empty() && !verdicts.is_empty(), "{shown}: {failed:?}");
        assert!(expect::text(&verdicts).starts_with("All "), "{shown}");
        assert_eq!(expect::tap(&verdicts).matches("\nok ").count(), verdicts.len(), "{shown}");
        assert!(expect::junit(&verdicts).contains("failures=\"0\""), "{shown}");
        assert_eq!(
            expect::sarif(&verdicts, "x.pcap")["runs"][0]["results"].as_array().map(Vec::len),
            Some(0),
            "{shown}"
        );
    }
}

#[test]
fn what_held_before_a_loss_does_not_hold_with_it() {
    let good = Expectations::read(&Expectations::write(&profile("smb-roce"))).unwrap();
    let failed: Vec<String> =
        good.check(&profile("smb-roce-loss")).into_iter().filter(|v| !v.holds).map(|v| v.expected).collect();
    assert!(failed.iter().any(|e| e.starts_with("transport.")), "{failed:?}");
    let signed = good.check(&profile("smb-roce-sign"));
    assert!(signed.iter().any(|v| !v.holds && v.expected.starts_with("agreed.signing")), "{signed:?}");
}

#[test]
fn another_kernel_is_named_first_and_what_comes_of_it_after_that() {
    let (old, new) = (profile("nfs-roce-v42"), beside("nfs-roce-v42", "nfs-roce-v42-linux72"));
    let diff = Diff::new(&old, &new);
    let told = diff.sentence();
    let first = "In B, the client is Linux 7.2.12+deb14-amd64 (before: Linux 6.12.117+deb12-amd64); \
                 credits that the server grants: 128 instead of 64; ";
    assert!(told.starts_with(first), "{told}");
    let text = diff.text();
    assert!(text.contains("GET_DIR_DELEGATION  0 → 2"), "{text}");
    assert!(Diff::new(&new, &old).sentence().starts_with("In B, the client is Linux 6.12"));
}
