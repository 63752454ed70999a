//! Every sample, anonymized: the analysis says the same of it, its fields lie where they lay, and no name is left in its bytes.

use rdmascope_analyzer::exchange::Exchange;
use rdmascope_analyzer::pipeline::{FrameMeta, Pipeline};
use rdmascope_analyzer::report::{Report, Sink};
use rdmascope_capture::{OpenOptions, Source, open};
use rdmascope_dissector::field::Privacy;
use rdmascope_dissector::frame::LinkType;
use rdmascope_dissector::trace::{NodeValue, Tree};
use rdmascope_share::{Anonymizer, Extra, Frame, Mapping, Options, Tally};
use std::path::{Path, PathBuf};

const KEY: &[u8] = b"for tests";

#[derive(Clone)]
struct Record {
    time_ns: i64,
    link_type: LinkType,
    wire_len: u32,
    interface: u32,
    bytes: Vec<u8>,
}

fn samples() -> Vec<PathBuf> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        let mut entries: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
        entries.sort();
        for path in entries {
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|e| e == "pcap" || e == "pcapng") {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    walk(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../samples"), &mut found);
    let wanted = std::env::var("SAMPLE").unwrap_or_default();
    found.retain(|path| path.display().to_string().contains(&wanted));
    assert!(!found.is_empty());
    found
}

fn read(path: &Path) -> Vec<Record> {
    let mut source = open(path, OpenOptions::new()).unwrap();
    let mut records = Vec::new();
    while matches!(source.advance(), Ok(true)) {
        let r = source.record();
        let (time_ns, link_type, wire_len, interface) = (r.time_ns, r.link_type, r.wire_len, r.interface);
        records.push(Record { time_ns, link_type, wire_len, interface, bytes: r.bytes.to_vec() });
    }
    records
}

fn anonymized(records: &[Record]) -> (Vec<Record>, Tally) {
    anonymized_as(records, Options::default())
}

fn anonymized_as(records: &[Record], options: Options) -> (Vec<Record>, Tally) {
    let mut anonymizer = Anonymizer::new(Options { key: KEY.to_vec(), ..options });
    let mut out = Vec::new();
    for r in records {
        let frame = Frame { time_ns: r.time_ns, link_type: r.link_type, wire_len: r.wire_len, interface: r.interface, bytes: &r.bytes };
        anonymizer.frame(r.clone(), &frame, |r, bytes| out.push(Record { bytes: bytes.to_vec(), ..r }));
    }
    let tally = anonymizer.finish(|r, bytes| out.push(Record { bytes: bytes.to_vec(), ..r }));
    (out, tally)
}

#[derive(Default)]
struct Rows(Vec<Exchange>);
impl Sink for Rows {
    fn exchange(&mut self, exchange: &Exchange) {
        self.0.push(exchange.clone());
    }
}

fn analyzed(records: &[Record], mut each: impl FnMut(usize, &Tree)) -> (Report, Vec<Exchange>) {
    let mut pipeline = Pipeline::with_sink(Default::default(), Rows::default());
    let mut tree = Tree::new();
    for (n, r) in records.iter().enumerate() {
        let meta =
            FrameMeta { number: n as u64 + 1, time_ns: r.time_ns, link_type: r.link_type, wire_len: r.wire_len, interface: r.interface };
        tree.begin(&r.bytes);
        pipeline.frame(&meta, &r.bytes, &mut tree);
        each(n, &tree);
    }
    let (report, rows) = pipeline.finish();
    (report, rows.0)
}

/// What the report says, without addresses and names: the same before and after.
fn said(report: &Report, rows: &[Exchange], name: &mut impl FnMut(&str) -> String) -> Vec<String> {
    let mut lines = vec![format!("{:?}", report.capture)];
    for c in &report.connections {
        let mut c = c.clone();
        for peer in &mut c.peers {
            peer.address = Default::default();
        }
        c.outcome = None;
        // addresses and identifiers again
        (c.smb.setup.guids, c.smb.setup.interfaces, c.nfs) = Default::default();
        lines.push(format!("{c:#?}"));
    }
    for f in report.findings.iter() {
        lines.push(format!("{:?} {:?} {:?} {:?} {:?} {} {:?}", f.rule, f.severity, f.certainty, f.connection, f.by, f.count, f.frames));
    }
    for row in rows {
        let mut row = row.clone();
        row.file = row.file.map(|file| name(&file).into());
        lines.push(format!("{row:?}"));
    }
    lines.join("\n").lines().map(str::to_owned).collect()
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

/// Samples that were made by hand to be wrong, of which the analysis reads bytes that no field tells of: those are blanked, and it says
/// less.
const SAYS_LESS: &[&str] = &[
    // the results of a call that is not there
    "n3_lost.pcap",
    // a transform that is cut short
    "t14_transform.pcap",
];

#[test]
fn the_analysis_of_every_sample_says_the_same_of_it_anonymized() {
    let mut wrong = Vec::new();
    for path in samples() {
        if SAYS_LESS.iter().any(|name| path.ends_with(name)) {
            continue;
        }
        let before = read(&path);
        let (after, tally) = anonymized(&before);
        assert_eq!(before.len(), after.len());
        let shown = path.file_name().unwrap().to_string_lossy().into_owned();
        if std::env::var("TALLY").is_ok() {
            eprintln!("{shown}: {tally:?}");
        }
        let mut trees = Vec::new();
        let (report, rows) = analyzed(&before, |_, tree| trees.push(tree.clone()));
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
        wrong.extend(differ.into_iter().take(if std::env::var("SAMPLE").is_ok() { 40 } else { 4 }));
        let mut mapping = Mapping::new(KEY);
        let (was, is) = (said(&report, &rows, &mut |f| mapping.name(f)), said(&report_after, &rows_after, &mut |f| f.to_owned()));
        let other: Vec<_> = was.iter().zip(&is).filter(|(a, b)| a != b).take(3).map(|(a, b)| format!("{shown}: {}", parts(a, b))).collect();
        wrong.extend(other);
        if was.len() != is.len() {
            wrong.push(format!("{shown}: {} lines became {}", was.len(), is.len()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn no_name_no_address_and_no_contents_are_left() {
    for path in samples() {
        let before = read(&path);
        let (after, _) = anonymized(&before);
        let mut secrets: Vec<Vec<u8>> = Vec::new();
        let mut mapping = Mapping::new(KEY);
        analyzed(&before, |_, tree| {
            for node in &tree.nodes {
                let bytes = tree.value_bytes(node);
                let changes = |made: &[u8]| made != bytes && made.iter().zip(bytes).filter(|(a, b)| a != b).count() >= 4;
                match node.def.privacy {
                    Privacy::Name => {
                        let text = String::from_utf8_lossy(bytes).replace('\0', "");
                        for part in text.split(|c: char| !c.is_alphanumeric()).filter(|p| p.len() >= 6) {
                            let made = mapping.name(part);
                            if made != part {
                                secrets.push(part.as_bytes().to_vec());
                                secrets.push(part.encode_utf16().flat_map(u16::to_le_bytes).collect());
                                secrets.push(part.encode_utf16().flat_map(u16::to_be_bytes).collect());
                            }
                        }
                    }
                    Privacy::Address if bytes.len() == 16 => {
                        let mut made = bytes.to_vec();
                        mapping.address(&mut made);
                        if changes(&made) {
                            secrets.push(bytes.to_vec());
                        }
                    }
                    // of contents a piece that is not the same everywhere
                    Privacy::Data if bytes.len() >= 24 => {
                        let distinct: std::collections::BTreeSet<u8> = bytes[..24].iter().copied().collect();
                        if distinct.len() >= 6 {
                            secrets.push(bytes[..24].to_vec());
                        }
                    }
                    Privacy::Mac | Privacy::Id | Privacy::Secret if bytes.len() >= 6 => {
                        let mut made = bytes.to_vec();
                        if node.def.privacy == Privacy::Mac {
                            mapping.mac(&mut made)
                        } else {
                            mapping.id(&mut made)
                        }
                        let distinct: std::collections::BTreeSet<u8> = bytes.iter().copied().collect();
                        if changes(&made) && distinct.len() >= 4 {
                            secrets.push(bytes.to_vec());
                            // and in the other byte order
                            if bytes.len() >= 8 {
                                secrets.push(bytes.iter().rev().copied().collect());
                            }
                        }
                    }
                    _ => {}
                }
            }
        });
        secrets.sort();
        secrets.dedup();
        // one walk over the bytes: secrets by their first four
        let mut by_start: std::collections::HashMap<[u8; 4], Vec<&[u8]>> = std::collections::HashMap::new();
        for secret in &secrets {
            by_start.entry([secret[0], secret[1], secret[2], secret[3]]).or_default().push(secret);
        }
        for record in &after {
            for at in 0..record.bytes.len() {
                let Some(start) = record.bytes[at..].first_chunk::<4>() else { break };
                for secret in by_start.get(start).into_iter().flatten() {
                    let text = String::from_utf8_lossy(secret);
                    assert!(!record.bytes[at..].starts_with(secret), "{}: {text:?} is still there", path.display());
                }
            }
        }
    }
}

#[test]
fn memory_that_is_exchanged_and_times_that_are_dropped_change_no_finding() {
    for name in ["smb-roce.pcap", "smb-iwarp.pcap", "nfs-roce-v3.pcap", "nfs-iwarp-v42.pcap"] {
        let path = samples().into_iter().find(|p| p.ends_with(name));
        let Some(before) = path.map(|path| read(&path)) else { continue };
        let (after, tally) = anonymized_as(&before, Options { drop: vec![Extra::Memory, Extra::Time], ..Options::default() });
        let dropped = |kind: Extra| tally.dropped.iter().find(|(k, ..)| *k == kind).map_or(0, |(_, times, _)| *times);
        assert!(dropped(Extra::Memory) > 10 && dropped(Extra::Time) > 0 && dropped(Extra::Size) == 0, "{name}: {:?}", tally.dropped);
        let keys = |records: &[Record]| {
            let mut keys = std::collections::BTreeSet::new();
            analyzed(records, |_, tree| {
                let is_key = |n: &str| {
                    matches!(n, "infiniband.reth.r_key" | "iwarp_ddp.stag" | "rpcordma.rdma_handle" | "smb2.buffer_descriptor.token")
                };
                keys.extend(tree.nodes.iter().filter(|n| is_key(n.def.name)).filter_map(|n| match n.value {
                    NodeValue::U(key) if key != 0 => Some(key),
                    _ => None,
                }));
            });
            keys
        };
        let (was, is) = (keys(&before), keys(&after));
        assert!(!was.is_empty() && was.len() == is.len() && was.is_disjoint(&is), "{name}: {was:x?} became {is:x?}");
        let said = |records: &[Record]| {
            let (report, rows) = analyzed(records, |_, _| {});
            let findings: Vec<String> =
                report.findings.iter().map(|f| format!("{:?} {:?} {} {:?}", f.rule, f.certainty, f.count, f.frames)).collect();
            let moved: Vec<(u64, u64, Option<i64>)> = rows.iter().map(|r| (r.bytes_moved, r.rdma_bytes(), r.latency())).collect();
            (findings, moved)
        };
        assert_eq!(said(&before), said(&after), "{name}");
    }
}
