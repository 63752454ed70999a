//! Runs of the simulator, anonymized: connections with losses, damage, faults and gaps of the capture. The analysis says the same of them.

mod common;

use common::{Record, differences};
use rdmascope_dissector::frame::LinkType;
use rdmascope_sim::plan::Overrides;

/// The first seeds; the environment variable SEEDS asks for `from..to`.
const SEEDS: std::ops::Range<u64> = 0..200;

#[test]
fn the_analysis_of_simulated_captures_says_the_same_of_them_anonymized() {
    let asked = std::env::var("SEEDS").ok();
    let seeds = asked.map_or(SEEDS, |asked| {
        let (from, to) = asked.split_once("..").expect("SEEDS=from..to");
        from.parse().unwrap()..to.parse().unwrap()
    });
    let mut wrong = Vec::new();
    for seed in seeds {
        let run = rdmascope_sim::run(seed, &Overrides::default());
        let record = |r: &rdmascope_sim::observer::Record| Record {
            time_ns: r.time,
            link_type: LinkType::ETHERNET,
            wire_len: r.length,
            interface: r.interface,
            bytes: r.bytes.clone(),
        };
        let records: Vec<Record> = run.records.iter().map(record).collect();
        wrong.extend(differences(&format!("seed {seed}"), &records));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
