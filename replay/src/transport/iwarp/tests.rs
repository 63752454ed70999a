//! Two ends in virtual time, and ends that misbehave.

use super::*;
use proptest::prelude::*;

/// An initiator and a responder, and the stream between them.
struct Pair {
    now: Time,
    ends: [Endpoint; 2],
    /// Number of bytes handed over at a time.
    step: usize,
}

impl Pair {
    fn new(initiator: Config, responder: Config) -> Self {
        Self { now: 0, ends: [Endpoint::initiator(0, initiator), Endpoint::responder(0, responder)], step: usize::MAX }
    }

    fn drive(&mut self) {
        loop {
            let mut moved = false;
            for from in 0..2 {
                while let Some(bytes) = self.ends[from].poll_transmit() {
                    moved = true;
                    for piece in bytes.chunks(self.step) {
                        self.ends[1 - from].handle_bytes(self.now, piece);
                    }
                }
            }
            if !moved {
                return;
            }
        }
    }

    fn events(&mut self, end: usize) -> Vec<Event> {
        std::iter::from_fn(|| self.ends[end].poll_event()).collect()
    }

    fn established(initiator: Config, responder: Config) -> Self {
        let mut pair = Self::new(initiator, responder);
        pair.drive();
        for end in 0..2 {
            let events = pair.events(end);
            assert!(matches!(events[..], [Event::Established { .. }]), "{events:?}");
        }
        pair
    }
}

fn configs() -> Vec<(Config, Config)> {
    let base = Config { mulpdu: 1000, ..Config::default() };
    let mut all = Vec::new();
    for revision in [1, 2] {
        for (crc, peer_crc) in [(true, true), (false, false), (true, false)] {
            for (markers, peer_markers) in [(false, false), (true, false), (false, true), (true, true)] {
                all.push((
                    Config { revision, crc, markers, ..base.clone() },
                    Config { crc: peer_crc, markers: peer_markers, legacy_depths: false, ..base.clone() },
                ));
            }
        }
    }
    all
}

#[test]
fn everything_arrives_under_every_agreement() {
    for (initiator, responder) in configs() {
        let agreement = format!("{initiator:?} {responder:?}");
        let mut pair = Pair::established(initiator, responder);
        let message: Vec<u8> = (0..5000u32).map(|n| n as u8).collect();
        for from in 0..2 {
            let to = 1 - from;
            let sink = pair.ends[to].register(vec![0; 20_000], Rights::REMOTE_WRITE).unwrap();
            let source = pair.ends[to].register(message.repeat(10), Rights::REMOTE_READ).unwrap();
            let own = pair.ends[from].register(vec![0; 50_000], Rights::LOCAL).unwrap();
            pair.ends[from].write(sink.key, sink.offset + 3, &message).unwrap();
            let ids = [0u32, 20_000, 49_999].map(|at| {
                let end = &mut pair.ends[from];
                end.read(
                    own.key,
                    own.offset + u64::from(at),
                    source.key,
                    source.offset + u64::from(at),
                    (50_000 - at).min(20_000),
                )
                .unwrap()
            });
            pair.ends[from].send(&message, Some(sink.key), true).unwrap();
            pair.ends[from].send(b"", None, false).unwrap();
            pair.step = 777;
            pair.drive();
            let events = pair.events(to);
            assert_eq!(
                events[0],
                Event::Received { message: message.clone(), invalidated: Some(sink.key) },
                "{agreement}"
            );
            assert_eq!(events[1], Event::Received { message: Vec::new(), invalidated: None });
            assert_eq!(pair.events(from), ids.map(|id| Event::ReadDone { id }));
            assert_eq!(pair.ends[to].deregister(sink.key).unwrap()[3..5003], message);
            let read = pair.ends[from].deregister(own.key).unwrap();
            assert_eq!((&read[..40_000], read[49_999]), (&message.repeat(8)[..], message[4999]));
        }
    }
}

#[test]
fn the_stream_may_come_byte_by_byte() {
    let config = Config { markers: true, ..Config::default() };
    let mut pair = Pair::new(config.clone(), config);
    pair.step = 1;
    pair.drive();
    pair.ends[0].send(&[9; 3000], None, false).unwrap();
    pair.drive();
    assert!(pair.events(1).contains(&Event::Received { message: vec![9; 3000], invalidated: None }));
}

/// The Terminate of a responder that receives one segment.
fn complaint(segment: &Ddp<'_>, rights: Rights) -> String {
    let mut pair = Pair::established(Config::default(), Config::default());
    let region = pair.ends[1].register(vec![0; 64], rights).unwrap();
    let mut bytes = Vec::new();
    let buffer = match segment.buffer {
        // key 1 means the region, an offset is relative to it
        Buffer::Tagged(t) if t.stag == 1 => {
            Buffer::Tagged(Tagged { stag: region.key, offset: region.offset.wrapping_add(t.offset) })
        }
        other => other,
    };
    Ddp { buffer, ..*segment }.emit(&mut bytes);
    pair.ends[0].transmit_segment(&bytes);
    pair.drive();
    let [Event::Closed(Closed::Violation(ours))] = &pair.events(1)[..] else { panic!("not refused: {segment:?}") };
    let [Event::Closed(Closed::Terminated(theirs))] = &pair.events(0)[..] else { panic!("not told") };
    assert_eq!((ours.layer, ours.error_type, ours.code), (theirs.layer, theirs.error_type, theirs.code));
    assert!(pair.ends[1].memory().bytes(region.key).unwrap().iter().all(|b| *b == 0), "written outside");
    theirs.to_string()
}

#[test]
fn violations_end_with_a_terminate_that_names_them() {
    let tagged = |opcode: Opcode, stag, offset| rdmap::tagged(opcode, true, stag, offset, &[5; 8]);
    let untagged = |opcode: Opcode, queue, msn, offset| Ddp {
        buffer: Buffer::Untagged(Untagged { queue, msn, offset }),
        ..rdmap::untagged(opcode, true, msn, offset, 0, &[5; 8])
    };
    let w = Rights::REMOTE_WRITE;
    let cases = [
        (tagged(Opcode::WRITE, 0, 0), w, "DDP: Tagged Buffer Error: Invalid STag"),
        (tagged(Opcode::WRITE, 1, 57), w, "DDP: Tagged Buffer Error: Base or bounds violation"),
        (tagged(Opcode::WRITE, 1, u64::MAX), w, "DDP: Tagged Buffer Error: Base or bounds violation"),
        (tagged(Opcode::WRITE, 1, 0), Rights::REMOTE_READ, "RDMA: Remote Protection Error: Access rights violation"),
        (tagged(Opcode::WRITE, 1, 0), Rights::LOCAL, "DDP: Tagged Buffer Error: Invalid STag"),
        (tagged(Opcode::READ_RESPONSE, 1, 0), w, "RDMA: Remote Operation Error: Unexpected OpCode"),
        (untagged(Opcode::SEND, 0, 2, 0), w, "DDP: Untagged Buffer Error: Invalid MSN - MSN range is not valid"),
        (untagged(Opcode::SEND, 0, 1, 8), w, "DDP: Untagged Buffer Error: Invalid MO"),
        (untagged(Opcode::SEND, 3, 1, 0), w, "DDP: Untagged Buffer Error: Invalid QN"),
        (untagged(Opcode::SEND, 1, 1, 0), w, "RDMA: Remote Operation Error: Unexpected OpCode"),
        (untagged(Opcode::SEND_INVALIDATE, 0, 1, 0), w, "RDMA: Remote Protection Error: STag cannot be Invalidated"),
        (untagged(Opcode(0xf), 0, 1, 0), w, "RDMA: Remote Operation Error: Unexpected OpCode"),
    ];
    for (segment, rights, expected) in cases {
        assert_eq!(complaint(&segment, rights), expected);
    }
}

#[test]
fn a_read_of_what_was_not_granted_is_refused() {
    for (rights, offset, expected) in [
        (Rights::REMOTE_WRITE, 0, "RDMA: Remote Protection Error: Access rights violation"),
        (Rights::REMOTE_READ, 1, "RDMA: Remote Protection Error: Base or bounds violation"),
    ] {
        let mut pair = Pair::established(Config::default(), Config::default());
        let theirs = pair.ends[1].register(vec![0; 64], rights).unwrap();
        let ours = pair.ends[0].register(vec![0; 64], Rights::LOCAL).unwrap();
        pair.ends[0].read(ours.key, ours.offset, theirs.key, theirs.offset + offset, 64).unwrap();
        pair.drive();
        let [Event::Closed(Closed::Terminated(t))] = &pair.events(0)[..] else { panic!("not refused") };
        assert_eq!(t.to_string(), expected);
    }
}

#[test]
fn a_bad_crc_and_a_message_too_long_end_it() {
    let mut pair = Pair::established(Config::default(), Config { receive_max: 100, ..Config::default() });
    pair.ends[0].transmit_bytes(&[0, 1, 0, 0, 0, 0, 0, 0]);
    pair.drive();
    let events = pair.events(1);
    assert!(matches!(&events[..], [Event::Closed(Closed::Violation(t))] if (t.layer, t.code) == (2, 2)), "{events:?}");
    let mut pair = Pair::established(Config::default(), Config { receive_max: 100, ..Config::default() });
    pair.ends[0].send(&[0; 101], None, false).unwrap();
    pair.drive();
    assert!(
        matches!(&pair.events(1)[..], [Event::Closed(Closed::Violation(t))] if (t.layer, t.error_type, t.code) == (1, 2, 5))
    );
}

#[test]
fn a_peer_that_says_nothing_or_nonsense_is_given_up() {
    let mut silent = Endpoint::responder(0, Config::default());
    let deadline = silent.poll_timeout().unwrap();
    silent.handle_timeout(deadline - 1);
    assert_eq!(silent.poll_event(), None);
    silent.handle_timeout(deadline);
    assert_eq!(silent.poll_event(), Some(Event::Closed(Closed::Timeout)));
    assert_eq!(silent.poll_timeout(), None);
    let mut http = Endpoint::responder(0, Config::default());
    http.handle_bytes(0, b"GET / HTTP/1.1\r\n");
    assert!(matches!(http.poll_event(), Some(Event::Closed(Closed::NotMpa(_)))));
    let mut refused = Endpoint::initiator(0, Config::default());
    refused.handle_bytes(0, b"MPA ID Rep Frame\x20\x01\0\0");
    assert_eq!(refused.poll_event(), Some(Event::Closed(Closed::Rejected)));
}

#[test]
fn reads_wait_for_the_depth_of_the_peer() {
    let mut pair = Pair::established(Config::default(), Config { ird: 1, ..Config::default() });
    let theirs = pair.ends[1].register(vec![3; 64], Rights::REMOTE_READ).unwrap();
    let ours = pair.ends[0].register(vec![0; 64], Rights::LOCAL).unwrap();
    for n in 0..8 {
        pair.ends[0].read(ours.key, ours.offset + n * 8, theirs.key, theirs.offset, 8).unwrap();
    }
    assert_eq!(pair.ends[0].reading.len(), 1);
    pair.drive();
    assert_eq!(pair.events(0).len(), 8);
    assert_eq!(pair.ends[0].memory().bytes(ours.key).unwrap(), [3; 64]);
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic_and_write_nowhere(
        bytes in proptest::collection::vec(any::<u8>(), 0..300), framed in any::<bool>(), started in any::<bool>(), step in 1usize..50,
    ) {
        let mut end = Endpoint::responder(0, Config { crc: false, ..Config::default() });
        let region = end.register(vec![0; 64], Rights::REMOTE_WRITE).unwrap();
        if started {
            end.handle_bytes(0, b"MPA ID Req Frame\0\x01\0\0");
        }
        let mut stream = Vec::new();
        if framed { mpa::emit_fpdu(&bytes, false, &mut stream) } else { stream = bytes }
        for piece in stream.chunks(step) {
            end.handle_bytes(0, piece);
        }
        while end.poll_transmit().is_some() {}
        while end.poll_event().is_some() {}
        prop_assert!(end.memory().bytes(region.key).unwrap().iter().all(|b| *b == 0));
    }
}
