//! Anonymizes every sample: its analysis gives the same result, its fields keep their places, and no name remains in
//! its bytes.

mod common;

use common::{KEY, Record, analyzed, anonymized, differences, read, samples};
use rdmascope_analyzer::finding::Rule;
use rdmascope_dissector::field::Privacy;
use rdmascope_dissector::trace::NodeValue;
use rdmascope_share::{Extra, Mapping, Options};

#[test]
fn the_analysis_of_every_sample_says_the_same_of_it_anonymized() {
    let mut wrong = Vec::new();
    for path in samples() {
        wrong.extend(differences(&path.file_name().unwrap().to_string_lossy(), &read(&path)));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn no_name_no_address_and_no_contents_are_left() {
    for path in samples() {
        let before = read(&path);
        let (after, _) = anonymized(&before, Options::default());
        let mut secrets: Vec<Vec<u8>> = Vec::new();
        let mut mapping = Mapping::new(KEY);
        analyzed(&before, |_, tree| {
            for node in &tree.nodes {
                let bytes = tree.value_bytes(node);
                let changes =
                    |made: &[u8]| made != bytes && made.iter().zip(bytes).filter(|(a, b)| a != b).count() >= 4;
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
                    // a part of the contents that is not repetitive
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
        // one pass over the bytes: secrets by their first four
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
        let (after, tally) =
            anonymized(&before, Options { drop: vec![Extra::Memory, Extra::Time], ..Options::default() });
        let dropped = |kind: Extra| tally.dropped.iter().find(|(k, ..)| *k == kind).map_or(0, |(_, times, _)| *times);
        assert!(
            dropped(Extra::Memory) > 10 && dropped(Extra::Time) > 0 && dropped(Extra::Size) == 0,
            "{name}: {:?}",
            tally.dropped
        );
        let keys = |records: &[Record]| {
            let mut keys = std::collections::BTreeSet::new();
            analyzed(records, |_, tree| {
                let is_key = |n: &str| {
                    matches!(
                        n,
                        "infiniband.reth.r_key"
                            | "iwarp_ddp.stag"
                            | "rpcordma.rdma_handle"
                            | "smb2.buffer_descriptor.token"
                    )
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
            // what follows from the numbers of the keys changes with them
            let others = report.findings.iter().filter(|f| f.rule != Rule::RdmaKeyPredictable);
            let findings: Vec<String> =
                others.map(|f| format!("{:?} {:?} {} {:?}", f.rule, f.certainty, f.count, f.frames)).collect();
            let moved: Vec<(u64, u64, Option<i64>)> =
                rows.iter().map(|r| (r.bytes_moved, r.rdma_bytes(), r.latency())).collect();
            (findings, moved)
        };
        assert_eq!(said(&before), said(&after), "{name}");
    }
}
