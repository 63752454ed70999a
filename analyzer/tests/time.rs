//! Owners of a request's time: the parts add up to the latency of every request of every capture, whole or with frames
//! missing.

mod common;

use common::*;
use rdmascope_analyzer::episodes::time::{Behind, Owner};
use rdmascope_analyzer::report::Report;

fn check(name: &str, report: &Report, kept: &Collected) {
    let (mut answered, mut polls) = (0, 0);
    for e in &kept.exchanges {
        let Some(latency) = e.latency() else {
            assert_eq!(e.time.sum(), 0, "{name}: exchange {} has no reply", e.id);
            continue;
        };
        answered += 1;
        polls += u64::from(e.is_poll());
        assert_eq!(e.time.sum(), latency.max(0), "{name}: exchange {} {}", e.id, e.command);
        assert!(e.time.parts().all(|(_, part)| part > 0), "{name}: exchange {}: {:?}", e.id, e.time);
        if let Some(Behind::Episode(id)) = e.behind {
            let connection = report.connections.iter().find(|c| c.followed_as.contains(&e.connection)).unwrap();
            let known = connection.episodes.list.iter().any(|episode| episode.id == id);
            assert!(known || connection.episodes.omitted > 0, "{name}: exchange {} is behind episode {id}", e.id);
        }
    }
    let counted: u64 = report.connections.iter().flat_map(|c| &c.commands).map(|row| row.latency.count()).sum();
    assert_eq!(
        counted + polls,
        answered,
        "{name}: every answered request has a latency, but those that waited for something to happen"
    );
    for c in &report.connections {
        let cost: i64 = c.episodes.sums.iter().map(|sum| sum.cost).sum();
        let all: i64 = c.commands.iter().map(|row| row.time.sum()).sum();
        assert!(cost <= all, "{name}: episodes cost {cost} of {all} ns");
        for e in &c.episodes.list {
            assert!(e.end.is_none_or(|end| end.time > e.begin.time), "{name}: {e:?}");
        }
    }
}

/// Every sample, every capture of the folder `CAPTURES`, and those of a corpus beside the repository, where there is
/// one.
fn all() -> Vec<std::path::PathBuf> {
    let folders =
        [Some(samples()), Some(samples().join("../../shared/corpus")), std::env::var_os("CAPTURES").map(Into::into)];
    folders.iter().flatten().flat_map(|folder| captures(folder)).collect()
}

#[test]
fn the_parts_of_every_request_add_up_to_its_latency() {
    let all = all();
    assert!(SAMPLES.len() + PROBES.len() < all.len());
    for path in all {
        let (name, frames) = (path.display().to_string(), frames_of(&path));
        let (report, kept) = analyze_frames(&frames);
        check(&name, &report, &kept);
        // every 7th frame lost, a late start, an early end, one direction's worth of clock trouble
        let part: Vec<Frame> =
            frames.iter().enumerate().filter(|(n, _)| n % 7 != 3).map(|(_, frame)| frame.clone()).collect();
        let (report, kept) = analyze_frames(&part);
        check(&format!("{name} without every 7th frame"), &report, &kept);
        let (report, kept) = analyze_frames(&frames[frames.len() / 3..]);
        check(&format!("{name} from a third on"), &report, &kept);
        let back: Vec<Frame> = (0i64..)
            .zip(&frames)
            .map(|(n, frame)| {
                let mut frame = frame.clone();
                frame.meta.time_ns -= (n % 5) * 3_000_000;
                frame
            })
            .collect();
        let (report, kept) = analyze_frames(&back);
        check(&format!("{name} with a clock that goes back"), &report, &kept);
    }
}

#[test]
fn what_a_recovery_held_up_is_not_the_servers() {
    let (report, kept) = analyze("smb-roce-loss");
    let slow: Vec<_> = kept.exchanges.iter().filter(|e| e.latency().is_some_and(|l| l > 300_000_000)).collect();
    assert!(!slow.is_empty());
    for e in slow {
        // a fragment that was lost before the capture point is seen only when it comes again: that time has no owner
        let owner = e.time.largest().map(|(owner, _)| owner);
        assert!(
            matches!(owner, Some(Owner::Recovery | Owner::Unknown)),
            "exchange {} {}: {:?}",
            e.id,
            e.command,
            e.time
        );
        assert!(matches!(e.behind, Some(Behind::Episode(_))));
    }
    assert!(report.connections.iter().any(|c| c.time.of(Owner::Recovery) > 0));
}

/// pcapng can give a frame any time. The reports of such captures say little, but there is one.
#[test]
fn times_of_any_size_and_order_are_borne() {
    const TIMES: [i64; 9] =
        [0, i64::MAX, i64::MIN, -1, 1, i64::MIN / 2 - 1, i64::MAX / 2 + 1, i64::MAX - 1, i64::MIN + 1];
    let probes = PROBES.iter().map(|name| format!("probes/{name}"));
    for name in SAMPLES.iter().map(|name| name.to_string()).chain(probes) {
        let frames = frames(&name);
        let count = frames.len();
        let jump = frames.len() / 3;
        let with_times = |time: &dyn Fn(usize, i64) -> i64| {
            let frames = frames.iter().enumerate().map(|(n, frame)| {
                let mut frame = frame.clone();
                frame.meta.time_ns = time(n, frame.meta.time_ns);
                frame
            });
            let (report, _) = analyze_frames(&frames.collect::<Vec<_>>());
            assert_eq!(report.capture.frames, count as u64, "{name}");
        };
        // each frame anywhere; a third at one end of time and the rest at the other; there and back
        with_times(&|n, _| TIMES[n * 7 % TIMES.len()]);
        with_times(&|n, time| if n < jump { i64::MIN + n as i64 } else { i64::MAX - (time % 1_000_000_007).abs() });
        with_times(&|n, time| if n / 10 % 2 == 0 { time } else { i64::MIN });
    }
}
