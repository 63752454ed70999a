//! What the tests and the benchmark of this crate share: captures to read, and what an analysis says of them.
#![allow(dead_code, unreachable_pub)]

use rdmascope_analyzer::exchange::Exchange;
use rdmascope_analyzer::pipeline::{FrameMeta, Pipeline};
use rdmascope_analyzer::report::{Report, Sink};
use rdmascope_capture::{OpenOptions, Source, open};
use rdmascope_dissector::field::Privacy;
use rdmascope_dissector::frame::LinkType;
use rdmascope_dissector::trace::{NodeValue, Tree};
use rdmascope_share::{Anonymizer, Frame, Mapping, Options, Tally};
use rdmascope_sim::plan::{Overrides, Protocol};
use std::path::{Path, PathBuf};

pub const KEY: &[u8] = b"for tests";

#[derive(Clone)]
pub struct Record {
    pub time_ns: i64,
    pub link_type: LinkType,
    pub wire_len: u32,
    pub interface: u32,
    pub bytes: Vec<u8>,
}

impl Record {
    pub fn frame(&self) -> Frame<'_> {
        let Self { time_ns, link_type, wire_len, interface, ref bytes } = *self;
        Frame { time_ns, link_type, wire_len, interface, bytes }
    }
}

/// All samples, or the captures below the folder that the environment variable CAPTURES names; of those the ones with
/// SAMPLE in their path.
pub fn samples() -> Vec<PathBuf> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for path in std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()) {
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|e| e == "pcap" || e == "pcapng") {
                found.push(path);
            }
        }
    }
    let own = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../samples");
    let mut found = Vec::new();
    walk(&std::env::var_os("CAPTURES").map_or_else(own, PathBuf::from), &mut found);
    let wanted = std::env::var("SAMPLE").unwrap_or_default();
    found.retain(|path| path.display().to_string().contains(&wanted));
    found.sort();
    assert!(!found.is_empty());
    found
}

/// The numbers that the environment variable SEEDS asks for as `from..to`, or these.
pub fn seeds(otherwise: std::ops::Range<u64>) -> std::ops::Range<u64> {
    std::env::var("SEEDS").map_or(otherwise, |asked| {
        let (from, to) = asked.split_once("..").expect("SEEDS=from..to");
        from.parse().unwrap()..to.parse().unwrap()
    })
}

/// The capture of a run of the simulator, of SMB Direct.
pub fn simulated(seed: u64) -> Vec<Record> {
    let record = |r: &rdmascope_sim::observer::Record| Record {
        time_ns: r.time,
        link_type: LinkType::ETHERNET,
        wire_len: r.length,
        interface: r.interface,
        bytes: r.bytes.clone(),
    };
    let smb = Overrides { protocol: Some(Protocol::Smb), ..Overrides::default() };
    rdmascope_sim::run(seed, &smb).records.iter().map(record).collect()
}

pub fn read(path: &Path) -> Vec<Record> {
    let mut source = open(path, OpenOptions::new()).unwrap();
    let mut records = Vec::new();
    while matches!(source.advance(), Ok(true)) {
        let r = source.record();
        let (time_ns, link_type, wire_len, interface) = (r.time_ns, r.link_type, r.wire_len, r.interface);
        records.push(Record { time_ns, link_type, wire_len, interface, bytes: r.bytes.to_vec() });
    }
    records
}

pub fn anonymized(records: &[Record], options: Options) -> (Vec<Record>, Tally) {
    let mut anonymizer = Anonymizer::new(Options { key: KEY.to_vec(), ..options });
    let mut out = Vec::new();
    for r in records {
        anonymizer.frame(r.clone(), &r.frame(), |r, bytes| out.push(Record { bytes: bytes.to_vec(), ..r }));
    }
    let tally = anonymizer.finish(|r, bytes| out.push(Record { bytes: bytes.to_vec(), ..r }));
    (out, tally)
}

/// The requests of an analysis.
#[derive(Default)]
pub struct Rows(pub Vec<Exchange>);

impl Sink for Rows {
    fn exchange(&mut self, exchange: &Exchange) {
        self.0.push(exchange.clone());
    }
}

pub fn analyzed(records: &[Record], mut each: impl FnMut(usize, &Tree)) -> (Report, Vec<Exchange>) {
    let mut pipeline = Pipeline::with_sink(Default::default(), Rows::default());
    let mut tree = Tree::new();
    for (n, r) in records.iter().enumerate() {
        let meta = FrameMeta {
            number: n as u64 + 1,
            time_ns: r.time_ns,
            link_type: r.link_type,
            wire_len: r.wire_len,
            interface: r.interface,
        };
        tree.begin(&r.bytes);
        pipeline.frame(&meta, &r.bytes, &mut tree);
        each(n, &tree);
    }
    let (report, rows) = pipeline.finish();
    (report, rows.0)
}

/// What the report says, without addresses and names: the same before and after.
fn said(report: &Report, rows: &[Exchange], name: &mut impl FnMut(&str) -> String) -> Vec<String> {
    let mut capture = report.capture.clone();
    // addresses of devices
    capture.paused = Default::default();
    let mut lines = vec![format!("{capture:?}")];
    for c in &report.connections {
        let mut c = c.clone();
        for peer in &mut c.peers {
            peer.address = Default::default();
        }
        c.outcome = None;
        // addresses and identifiers again
        (c.smb.setup.guids, c.smb.setup.interfaces, c.nfs) = Default::default();
        for file in c.smb.open.iter_mut().chain(&mut c.smb.opened) {
            *file = name(file).into();
        }
        lines.push(format!("{c:#?}"));
    }
    for f in report.findings.iter() {
        lines.push(format!(
            "{:?} {:?} {:?} {:?} {:?} {} {:?}",
            f.rule, f.severity, f.certainty, f.connection, f.by, f.count, f.frames
        ));
    }
    for row in rows {
        let mut row = row.clone();
        row.file = row.file.map(|file| name(&file).into());
        // those of NFS are new ones
        row.session = row.session.filter(|id| id[..8] == [0; 8]);
        lines.push(format!("{row:?}"));
    }
    let mut known = Vec::new();
    lines.join("\n").lines().map(|line| counted(line, &mut known)).collect()
}

/// The line with a count instead of each number that stands for handles and names: they are others, and are the same
/// where they were the same.
fn counted(line: &str, known: &mut Vec<String>) -> String {
    let mut parts = line.split("about: ");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (number, rest) = part.split_at(part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len()));
        let count = known.iter().position(|other| other == number).unwrap_or_else(|| {
            known.push(number.to_owned());
            known.len() - 1
        });
        text.push_str(&format!("about: #{count}{rest}"));
    }
    text
}

/// The parts of two lines that differ.
fn parts(a: &str, b: &str) -> String {
    let differing: Vec<String> =
        a.split(", ").zip(b.split(", ")).filter(|(a, b)| a != b).take(6).map(|(a, b)| format!("{a} → {b}")).collect();
    differing.join("; ")
}

/// Fields whose values follow from replaced bytes.
fn follows(name: &str) -> bool {
    name.contains("checksum")
        || name.contains("crc")
        || name.contains("hash")
        || name.starts_with("rdmascope.")
        || name.starts_with("nt.sid")
}

/// What is not the same after anonymizing: fields that lie elsewhere or have another value though they are kept, and
/// what the report says otherwise.
pub fn differences(shown: &str, before: &[Record]) -> Vec<String> {
    let (after, tally) = anonymized(before, Options::default());
    assert_eq!(before.len(), after.len());
    if std::env::var("TALLY").is_ok() {
        eprintln!("{shown}: {tally:?}");
    }
    let mut trees = Vec::new();
    let (report, rows) = analyzed(before, |_, tree| trees.push(tree.clone()));
    let mut differ = Vec::new();
    let (report_after, rows_after) = analyzed(&after, |n, tree| {
        let old = &trees[n];
        let shape = |t: &Tree| t.nodes.iter().map(|n| (n.def.name, n.source, n.offset, n.len)).collect::<Vec<_>>();
        let (a, b) = (shape(old), shape(tree));
        if a != b {
            let at = a.iter().zip(&b).position(|(a, b)| a != b).unwrap_or(a.len().min(b.len()));
            differ.push(format!("{shown} frame {}: {:?} became {:?}", n + 1, a.get(at), b.get(at)));
            return;
        }
        for (x, y) in old.nodes.iter().zip(&tree.nodes) {
            let keeps = x.def.privacy == Privacy::Keep && !follows(x.def.name) && x.len > 0;
            let same = match x.value {
                NodeValue::U(_) | NodeValue::I(_) | NodeValue::Time(..) => x.value == y.value,
                NodeValue::Bytes => old.value_bytes(x) == tree.value_bytes(y),
                _ => true,
            };
            if keeps && !same {
                differ.push(format!("{shown} frame {}: {} at {} has another value", n + 1, x.def.name, x.offset));
            }
        }
    });
    differ.truncate(if std::env::var("SAMPLE").is_ok() { 40 } else { 4 });
    let mut mapping = Mapping::new(KEY);
    let (was, is) =
        (said(&report, &rows, &mut |f| mapping.name(f)), said(&report_after, &rows_after, &mut |f| f.to_owned()));
    differ
        .extend(was.iter().zip(&is).filter(|(a, b)| a != b).take(3).map(|(a, b)| format!("{shown}: {}", parts(a, b))));
    if was.len() != is.len() {
        differ.push(format!("{shown}: {} lines became {}", was.len(), is.len()));
    }
    differ
}
