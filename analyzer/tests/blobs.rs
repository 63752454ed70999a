//! Bytes that the specifications name and nothing decodes: counted per capture, over every layer.

mod common;

use common::*;
use rdmascope_analyzer::env::Options;
use rdmascope_analyzer::pipeline::Pipeline;
use rdmascope_dissector::trace::Tree;
use std::collections::BTreeMap;

/// Fields of bytes that were not decoded. Contents of files, ciphertext, random numbers and padding are none.
const BLOBS: &[&str] = &[
    "smb2.unknown",
    "rdmascope.data",
    "rdmascope.xdr.undecoded",
    "rdmascope.rpc.body",
    "rdmascope.smb2.body.data",
    "rdmascope.smb_direct.trailing",
];

#[test]
fn nothing_ends_as_an_undecoded_blob() {
    let mut all = BTreeMap::new();
    for name in SAMPLES {
        let mut pipeline = Pipeline::new(Options { keyring: keyring(name), ..Options::default() });
        let mut tree = Tree::new();
        let (mut blobs, mut faults) = (BTreeMap::new(), Vec::new());
        for frame in frames(name) {
            tree.begin(&frame.bytes);
            pipeline.frame(&frame.meta, &frame.bytes, &mut tree);
            for blob in BLOBS {
                let n = tree.all(blob).filter(|n| n.len > 0).count();
                if n > 0 {
                    *blobs.entry(*blob).or_insert(0) += n;
                }
            }
            faults.extend(tree.faults.iter().map(|(fault, ..)| (frame.meta.number, fault.to_string())));
        }
        println!("{name}: {} blobs {blobs:?}, {} faults", blobs.values().sum::<usize>(), faults.len());
        all.insert(*name, (blobs, faults));
    }
    let bad: Vec<_> = all.iter().filter(|(_, (blobs, faults))| !blobs.is_empty() || !faults.is_empty()).collect();
    assert!(bad.is_empty(), "{bad:#?}");
}

#[test]
fn the_blobs_are_fields_that_exist() {
    let registry = rdmascope_dissector::registry::Registry::new();
    for blob in BLOBS {
        let ours = rdmascope_analyzer::connection::FIELDS.iter().any(|f| f.name == *blob);
        assert!(ours || registry.find(blob).is_some(), "{blob}");
    }
}
