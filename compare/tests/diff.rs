//! Compares profiles that differ in one thing: `diff` names it and nothing else.

use rdmascope_compare::diff::{Diff, Kind};
use rdmascope_compare::profile::{Paths, Profile, Requests};

/// READs of these lengths within the messages and by RDMA, and how many round trips each takes.
fn reads(inline: (u32, u32), rdma: (u32, u32), trips: i64) -> Profile {
    let mut profile = Profile { frames: 10_000, ..Profile::default() };
    profile.paths.insert("READ", Paths { inline: Some(inline), rdma: Some(rdma) });
    let mut requests = Requests { count: 200, bytes: 200 * 65_536, by_rdma: 200, ..Requests::default() };
    for n in 0..200 {
        requests.latency.add(1_000_000 + n * 1000);
        requests.trips.add(trips);
    }
    profile.requests.insert(("READ", Some(65_536)), requests);
    profile
}

#[test]
fn another_length_from_which_payload_goes_by_rdma_is_named_first() {
    let (a, b) = (reads((1, 4095), (4096, 65_536), 1), reads((1, 1023), (1024, 65_536), 1));
    let diff = Diff::new(&a, &b);
    assert_eq!(diff.sentence(), "In B, READ goes by RDMA from 1,024 bytes on (before: from 4,096).");
    assert_eq!((diff.differences.len(), diff.differences[0].kind), (1, Kind::Threshold));
    assert!(diff.text().contains("from 4,096 bytes, not 4,095 → from 1,024 bytes, not 1,023"), "{}", diff.text());
    // lengths that leave open where the line is, and one that does not decide alone, say nothing
    for other in [reads((1, 2048), (8192, 65_536), 1), reads((1, 4095), (4095, 65_536), 1)] {
        assert!(Diff::new(&a, &other).differences.is_empty());
    }
    assert!(Diff::new(&a, &Profile { paths: Default::default(), ..a.clone() }).differences.is_empty());
}

#[test]
fn more_round_trips_of_a_request_are_told_with_their_number() {
    let (a, b) = (reads((1, 4095), (4096, 65_536), 1), reads((1, 4095), (4096, 65_536), 3));
    let diff = Diff::new(&a, &b);
    assert_eq!(diff.sentence(), "In B, READ, 4 to 64 KiB takes 3.0 round trips each (before: 1.0).");
    assert_eq!((diff.differences.len(), diff.differences[0].kind), (1, Kind::Trips));
    assert!(diff.differences[0].test.is_some_and(|test| test.p < 0.01 && test.effect > 0.9));
    assert!(Diff::new(&b, &a).sentence().contains("takes 1.0 round trips each (before: 3.0)"));
    // a few that need one more are no difference
    let mut few = a.clone();
    let requests = few.requests.get_mut(&("READ", Some(65_536))).unwrap();
    (0..3).for_each(|_| requests.trips.add(2));
    assert!(Diff::new(&a, &few).differences.is_empty());
}
