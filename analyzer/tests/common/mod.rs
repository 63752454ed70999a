//! Samples as frames, and analyses of them.
#![allow(dead_code, unreachable_pub, missing_docs)]

use rdmascope_analyzer::env::Options;
use rdmascope_analyzer::exchange::Exchange;
use rdmascope_analyzer::keys::Keyring;
use rdmascope_analyzer::op::At;
use rdmascope_analyzer::pipeline::{FrameMeta, Pipeline};
use rdmascope_analyzer::report::{Report, Sink};
use rdmascope_capture::{OpenOptions, Source};
use rdmascope_dissector::trace::{Off, Trace};
use std::path::PathBuf;

/// One frame of a sample.
#[derive(Clone, Debug)]
pub struct Frame {
    pub meta: FrameMeta,
    pub bytes: Vec<u8>,
}

/// The folder of all samples.
pub fn samples() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../samples")
}

/// The file of a sample: `smb-roce`, or `probes/t1_nocm`.
pub fn path(name: &str) -> PathBuf {
    match name.split_once('/') {
        Some(_) => samples().join(format!("{name}.pcap")),
        None => samples().join(name).join(format!("{name}.pcap")),
    }
}

/// Every capture in a folder and its folders, in order.
pub fn captures(folder: &std::path::Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(captures(&path));
        } else if path.extension().is_some_and(|extension| extension == "pcap" || extension == "pcapng") {
            found.push(path);
        }
    }
    found.sort();
    found
}

pub fn frames(name: &str) -> Vec<Frame> {
    frames_of(&path(name))
}

/// The frames of a file, up to where it is damaged.
pub fn frames_of(path: &std::path::Path) -> Vec<Frame> {
    let mut capture = rdmascope_capture::open(path.to_str().unwrap(), OpenOptions::default()).unwrap();
    let mut frames = Vec::new();
    while let Ok(Some(record)) = capture.next() {
        let meta = FrameMeta {
            number: frames.len() as u64 + 1,
            time_ns: record.time_ns,
            link_type: record.link_type,
            wire_len: record.wire_len,
            interface: record.interface,
        };
        frames.push(Frame { meta, bytes: record.bytes.to_vec() });
    }
    frames
}

/// All results of an analysis.
#[derive(Clone, Debug, Default)]
pub struct Collected {
    pub exchanges: Vec<Exchange>,
    pub credits: Vec<(u32, At, [Option<i64>; 2])>,
    pub payloads: Vec<(String, u64, Vec<u8>)>,
}

impl Sink for Collected {
    fn exchange(&mut self, exchange: &Exchange) {
        self.exchanges.push(exchange.clone());
    }
    fn credits(&mut self, connection: u32, at: At, held: [Option<i64>; 2]) {
        self.credits.push((connection, at, held));
    }
    fn payload(&mut self, exchange: &Exchange, offset: u64, bytes: &[u8]) {
        self.payloads.push((exchange.file.as_deref().unwrap_or("").to_string(), offset, bytes.to_vec()));
    }
}

pub fn analyze_frames(frames: &[Frame]) -> (Report, Collected) {
    analyze_with(frames, &mut Off)
}

pub fn analyze_with<T: Trace>(frames: &[Frame], t: &mut T) -> (Report, Collected) {
    let options = Options { payloads: true, ..Options::default() };
    let mut pipeline = Pipeline::with_sink(options, Collected::default());
    for frame in frames {
        pipeline.frame(&frame.meta, &frame.bytes, t);
    }
    pipeline.finish()
}

pub fn analyze(name: &str) -> (Report, Collected) {
    analyze_frames(&frames(name))
}

/// The keys that came with a sample, from its `keys.txt`, or none.
pub fn keyring(name: &str) -> Keyring {
    let mut keyring = Keyring::new();
    let path = samples().join(format!("{name}/keys.txt"));
    if let Ok(text) = std::fs::read_to_string(&path) {
        keyring.add_file(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    }
    keyring
}

/// Ids of the findings, with their counts.
pub fn ids(report: &Report) -> Vec<(&'static str, u64)> {
    report.findings.ranked().iter().map(|f| (f.rule.id(), f.count)).collect()
}

pub const SAMPLES: &[&str] = &[
    "smb-iwarp",
    "smb-iwarp-crc",
    "smb-iwarp-loss",
    "smb-iwarp-credits8",
    "smb-iwarp-negotiate-only",
    "smb-iwarp-encryption-fails",
    "smb-iwarp-sign",
    "smb-iwarp-multichannel",
    "smb-tcp-seal",
    "smb-roce",
    "smb-roce-loss",
    "smb-roce-credits4",
    "smb-roce-smb302",
    "smb-roce-negotiate-refused",
    "nfs-iwarp-v42",
    "nfs-roce-v42",
    "nfs-roce-v3",
];

pub const PROBES: &[&str] = &[
    "c1_overrun",
    "cnp",
    "fp_zero20",
    "i1_445",
    "i1_5445",
    "i1_9000",
    "i2_nompa",
    "i3_v2",
    "i4_packed",
    "i5_split",
    "i6_ddpseg",
    "i7_legacy_ird",
    "n1_nocm",
    "n2_cm",
    "n3_lost",
    "t14_transform",
    "t1_nocm",
    "t2_cm",
    "t3_multipkt",
    "t4_frag",
    "t4b_frag2qp",
    "t4c_lost",
    "t4d_retx",
    "t5_hdr",
    "t6_err",
];
