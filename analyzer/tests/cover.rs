//! Promises of the trees of frames, over every sample: ranges lie in their source and nest, every byte of a frame is
//! reported by some field, and every prefix of a frame gives the fields that are there.

mod common;

use common::*;
use rdmascope_analyzer::env::Options;
use rdmascope_analyzer::pipeline::Pipeline;
use rdmascope_dissector::extract::{Extractor, Need};
use rdmascope_dissector::frame;
use rdmascope_dissector::registry::Registry;
use rdmascope_dissector::trace::{NodeValue, Off, Tree};

/// Ranges lie in their source, and those of children in their parents' if both lie in the same bytes.
fn check_ranges(name: &str, number: u64, tree: &Tree) {
    let mut parents: Vec<usize> = Vec::new();
    for (index, node) in tree.nodes.iter().enumerate() {
        let source = &tree.sources()[usize::from(node.source)];
        let end = node.offset as usize + node.len as usize;
        assert!(
            end <= source.bytes.len(),
            "{name} {number}: {} ends at {end} of {}",
            node.def.name,
            source.bytes.len()
        );
        parents.truncate(usize::from(node.depth));
        if let Some(parent) =
            parents.last().map(|p| &tree.nodes[*p]).filter(|p| p.source == node.source && p.len > 0 && node.len > 0)
        {
            let inside = node.offset >= parent.offset && end <= (parent.offset + parent.len) as usize;
            assert!(
                inside,
                "{name} {number}: {} {}+{} is outside of {} {}+{}",
                node.def.name, node.offset, node.len, parent.def.name, parent.offset, parent.len
            );
        }
        parents.push(index);
    }
}

/// Bytes of the frame that no field with a value reports.
fn uncovered(tree: &Tree) -> Vec<usize> {
    let mut told = vec![false; tree.sources()[0].bytes.len()];
    for node in tree.nodes.iter().filter(|n| n.source == 0 && n.value != NodeValue::None) {
        told[node.offset as usize..(node.offset + node.len) as usize].fill(true);
    }
    told.iter().enumerate().filter(|(_, told)| !**told).map(|(at, _)| at).collect()
}

#[test]
fn ranges_nest_and_cover_every_byte() {
    for name in SAMPLES.iter().map(|n| n.to_string()).chain(PROBES.iter().map(|p| format!("probes/{p}"))) {
        let mut pipeline = Pipeline::default();
        let mut tree = Tree::new();
        for frame in frames(&name) {
            tree.begin(&frame.bytes);
            pipeline.frame(&frame.meta, &frame.bytes, &mut tree);
            check_ranges(&name, frame.meta.number, &tree);
            // ARP, LLDP and the like are named, not decoded; the padding of an Ethernet frame has no owner
            if tree.protocol.is_empty() || !tree.nodes.iter().any(|n| matches!(n.def.name, "infiniband" | "tcp")) {
                continue;
            }
            let left = uncovered(&tree);
            let padding = left.iter().all(|at| *at >= 34 && frame.bytes.len() <= 60);
            assert!(left.is_empty() || padding, "{name} frame {}: nothing tells bytes {left:?}", frame.meta.number);
        }
    }
}

/// A filter or a screen that looks at frames while they are analyzed changes nothing in the results.
#[test]
fn observing_changes_no_result() {
    let registry = Registry::new();
    for name in SAMPLES.iter().map(|n| n.to_string()).chain(PROBES.iter().map(|p| format!("probes/{p}"))) {
        let frames = frames(&name);
        let results = |observe: &mut dyn FnMut(&mut Pipeline<Collected>, &Frame)| {
            let mut pipeline = Pipeline::with_sink(Options::default(), Collected::default());
            frames.iter().for_each(|frame| observe(&mut pipeline, frame));
            let (report, kept) = pipeline.finish();
            (format!("{:?}", report.findings.ranked()), format!("{:?}", kept.exchanges))
        };
        let (mut tree, mut extractor) = (Tree::new(), Extractor::new());
        for field in ["smb2.cmd", "nfs.status", "infiniband.bth.psn", "iwarp_ddp", "_ws.col.info"] {
            extractor.want(registry.find(field).expect("a field"), Need::Value);
        }
        let unseen = results(&mut |pipeline, frame| pipeline.frame(&frame.meta, &frame.bytes, &mut Off));
        let filtered = results(&mut |pipeline, frame| {
            extractor.begin();
            pipeline.frame(&frame.meta, &frame.bytes, &mut extractor);
        });
        let shown = results(&mut |pipeline, frame| {
            tree.begin(&frame.bytes);
            pipeline.frame(&frame.meta, &frame.bytes, &mut tree);
        });
        assert!(unseen == filtered && unseen == shown, "{name}");
    }
}

#[test]
fn every_prefix_of_a_frame_gives_the_fields_that_are_there() {
    let options = frame::Options::default();
    for name in SAMPLES {
        // every 11th frame: the samples repeat themselves
        for sample in frames(name).iter().step_by(11) {
            for length in 0..sample.bytes.len() {
                let cut = &sample.bytes[..length];
                let mut tree = Tree::new();
                tree.begin(cut);
                let packet = frame::decode(sample.meta.link_type, cut, sample.meta.wire_len, &options, &mut tree);
                let quiet = frame::decode(sample.meta.link_type, cut, sample.meta.wire_len, &options, &mut Off);
                assert_eq!(
                    packet.fault.is_some(),
                    quiet.fault.is_some(),
                    "{name} {} cut at {length}",
                    sample.meta.number
                );
                assert!(
                    length < 14 || tree.number("eth.type").is_some(),
                    "{name} {} cut at {length}",
                    sample.meta.number
                );
                check_ranges(name, sample.meta.number, &tree);
            }
        }
    }
}
