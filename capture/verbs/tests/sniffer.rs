//! The sniffer against the stand-in library.

mod common;

use rdmascope_verbs::{Clock, Error, Sniffer, SnifferOptions, Verbs};
use std::time::Duration;

/// Time limit for anything that must happen, even on a busy machine.
const WITHIN: Duration = Duration::from_secs(60);

fn verbs() -> Option<Verbs> {
    common::standin().map(|folder| Verbs::load_from(folder).unwrap())
}

fn open(device: &str) -> Option<Result<Sniffer, Error>> {
    let options = SnifferOptions { packets: 4, packet_bytes: 2048, ..SnifferOptions::default() };
    verbs().map(|verbs| Sniffer::open(verbs, device, options))
}

/// Error message on opening a device; `None` if this cannot be tested here.
fn refusal(device: &str) -> Option<String> {
    open(device).map(|result| result.unwrap_err().to_string())
}

#[test]
fn a_library_that_is_not_there_is_named_with_its_package() {
    let folder = tempfile::tempdir().unwrap();
    let e = Verbs::load_from(folder.path()).unwrap_err().to_string();
    assert!(e.starts_with("no RDMA here: libibverbs.so.1 cannot be loaded"), "{e}");
    assert!(e.ends_with("apt install libibverbs1 librdmacm1 ibverbs-providers"), "{e}");
    assert!(!e.contains('\n'), "{e}");
}

#[test]
fn devices_are_listed() {
    let Some(verbs) = verbs() else { return };
    let devices = verbs.devices().unwrap();
    assert_eq!(devices.len(), 9);
    assert_eq!((devices[0].name.as_str(), devices[0].node.as_str(), devices[0].iwarp), ("card0", "uverbs0", false));
    let abilities = verbs.abilities("card0").unwrap();
    assert_eq!(
        (abilities.ports, abilities.windows, abilities.responder_resources, abilities.initiator_depth),
        (1, true, 16, 8)
    );
    assert!(!verbs.abilities("plain0").unwrap().windows);
    assert!(verbs.port("card0", 1).unwrap().active && verbs.port("old0", 1).unwrap().ethernet);
}

#[test]
fn each_refusal_says_what_is_missing() {
    let Some(e) = refusal("nosuch0") else { return };
    assert!(e.starts_with("there is no RDMA device \"nosuch0\"; there is card0, counter0"), "{e}");
    let e = refusal("nocap0").unwrap();
    assert!(e.starts_with("nocap0: needs CAP_NET_RAW"), "{e}");
    let e = refusal("noraw0").unwrap();
    assert!(e.starts_with("noraw0: its driver has no RAW_PACKET queue pairs (Operation not supported"), "{e}");
    for device in ["noflow0", "old0"] {
        let e = refusal(device).unwrap();
        assert!(e.starts_with(&format!("{device}: its driver refuses a sniffer flow (Operation not supported")), "{e}");
    }
    let e = refusal("closed0").unwrap();
    assert!(
        e.starts_with("closed0 cannot be opened: Permission denied") && e.contains("/dev/infiniband/uverbs7"),
        "{e}"
    );
    let options = SnifferOptions { port: 2, ..SnifferOptions::default() };
    let e = Sniffer::open(verbs().unwrap(), "card0", options).unwrap_err().to_string();
    assert_eq!(e, "card0 has no port 2; it has 1");
}

#[test]
fn packets_come_in_order_with_the_clock_of_the_card() {
    for (device, clock) in [("card0", Clock::Card), ("counter0", Clock::CardCounter), ("plain0", Clock::System)] {
        let Some(sniffer) = open(device) else { return };
        let mut sniffer = sniffer.unwrap();
        assert_eq!(sniffer.clock(), clock, "{device}");
        assert!(sniffer.is_ethernet());
        // more than there are buffers, so that they are posted again
        for n in (0u8..10).filter(|n| *n != 6) {
            let packet = sniffer.next(WITHIN).unwrap().unwrap_or_else(|| panic!("{device}: packet {n}"));
            assert_eq!(packet.bytes.len(), 60 + 100 * usize::from(n), "{device}");
            assert!(packet.bytes.iter().all(|b| *b == n), "{device}: packet {n}");
            let came = 1_700_000_000_000_000_000 + i64::from(n) * 1_000_000;
            match clock {
                Clock::Card => assert_eq!(packet.time_ns, came),
                // by way of the system's clock, which the card's is years ahead of: as exact as a busy machine reads
                // both
                Clock::CardCounter => {
                    assert!((packet.time_ns - came).abs() < 10_000_000_000, "{} for {came}", packet.time_ns)
                }
                Clock::System => assert!(packet.time_ns > came),
            }
        }
        assert!(sniffer.next(Duration::from_millis(20)).unwrap().is_none(), "{device}");
        let statistics = sniffer.statistics();
        assert_eq!((statistics.received, statistics.too_long, statistics.out_of_buffer), (9, 1, None), "{device}");
    }
}

#[test]
fn a_driver_that_breaks_off_is_reported() {
    let Some(sniffer) = open("broken0") else { return };
    let mut sniffer = sniffer.unwrap();
    let mut received = 0;
    let e = loop {
        match sniffer.next(WITHIN) {
            Ok(Some(_)) => received += 1,
            Ok(None) => panic!("silence"),
            Err(e) => break e.to_string(),
        }
    };
    assert!(received <= 3);
    assert_eq!(e, "broken0: receiving failed: stand-in status (21)");
}
