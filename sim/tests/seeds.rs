//! Seeds: nobody innocent is blamed, what could be seen is named, and what is counted is what was.

use rdmascope_sim::judge::Kind;
use rdmascope_sim::plan::{Carrier, Overrides};
use rdmascope_sim::run;

fn wrong(seeds: std::ops::Range<u64>, overrides: &Overrides, kinds: &[Kind]) -> Vec<String> {
    let mut out = Vec::new();
    for seed in seeds {
        let run = run(seed, overrides);
        for p in run.verdict.problems.iter().filter(|p| kinds.contains(&p.kind)) {
            out.push(format!("seed {seed}, {}: {:?} {}", run.plan.line(), p.kind, p.text));
        }
    }
    out
}

#[test]
fn nobody_innocent_is_blamed() {
    let wrong = wrong(1..201, &Overrides::default(), &[Kind::FalseBlame]);
    assert!(wrong.is_empty(), "{} problems; run one again with: rdmascope-sim --seed N --explain\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn what_is_counted_is_what_was() {
    let overrides = Overrides { fault: Some(None), whole: true, ..Overrides::default() };
    let wrong = wrong(1..101, &overrides, &[Kind::Count]);
    assert!(wrong.is_empty(), "{} problems\n{}", wrong.len(), wrong.join("\n"));
}

/// Seeds that once showed something that is not true: blame of somebody innocent, a wrong number, a wrong time.
#[test]
fn what_was_mended_stays_mended() {
    const SEEDS: &[u64] = &[
        // a Read that went out again without need, a Response that was overtaken, a NAK that came before what it asked for
        58987, 89889, 93772, 107061, 109107, 125207, 136358, 143697, 211433, 230447, 248263,
        // a server that nobody heard any more, or that had not got the request
        57268, 78901, 90346, 111878, 124925, 152359,
        // damaged packets, where nothing was known yet of the capture's checksums, or clocks differ, or frames are cut
        126086, 136556, 173515, 174579, 192031, 212378, 224302, 244276, // who had gone for good reason
        20809, 26052, 189557, // a segment that only the capture missed
        112503, // Responses at the end of a Read; a reply by another clock; a request that went out again for want of SACK
        6270, 11131, 41465, 9506, 27069, 32625, 2838, 12720, 13100, // a wait for credits in the middle of a message
        17802, 19003, 23111, 59253,
    ];
    let kinds = [Kind::FalseBlame, Kind::Count, Kind::Time];
    let wrong: Vec<_> = SEEDS.iter().flat_map(|seed| wrong(*seed..*seed + 1, &Overrides::default(), &kinds)).collect();
    assert!(wrong.is_empty(), "{} problems\n{}", wrong.len(), wrong.join("\n"));
}

/// The simulator itself: a seed gives the same twice, and conversations without a fault end with all requests answered.
#[test]
fn a_seed_is_the_same_every_time() {
    for carrier in [Carrier::Roce, Carrier::Iwarp] {
        let overrides = Overrides { carrier: Some(carrier), fault: Some(None), whole: true };
        for seed in 1..11 {
            let (a, b) = (run(seed, &overrides), run(seed, &overrides));
            assert_eq!(a.world.truth.sent.len(), b.world.truth.sent.len());
            assert!(a.records.iter().zip(&b.records).all(|(a, b)| a.bytes == b.bytes && a.time == b.time));
            if a.world.truth.happened.is_empty() && a.plan.not_ready.iter().all(Vec::is_empty) {
                let open = a.world.truth.requests.iter().filter(|r| r.done.is_none()).count();
                assert_eq!(open, 0, "seed {seed} {carrier:?}");
                assert!(a.world.hosts[0].session && !a.world.truth.runaway);
            }
        }
    }
}
