//! Two ends in virtual time: over a network that loses, copies, delays, damages and marks, and ends that misbehave.

use super::packet::PORT;
use super::*;
use crate::transport::memory::Rights;
use proptest::prelude::*;
use rdmascope_dissector::wire::ib::ext::{ACK, aeth_bytes};
use std::collections::BTreeMap;

/// xorshift64.
#[derive(Clone, Debug)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// True if it happens, of 1000 times so often.
    fn chance(&mut self, of_1000: u64) -> bool {
        self.next() % 1000 < of_1000
    }
}

/// Disturbances of the network, as chances of 1000 per datagram.
#[derive(Clone, Copy, Debug, Default)]
struct Impairments {
    lose: u64,
    copy: u64,
    delay: u64,
    damage: u64,
    mark: u64,
}

struct OnTheWay {
    to: usize,
    marked: bool,
    source_port: u16,
    bytes: Vec<u8>,
}

struct Net {
    now: Time,
    ends: Vec<Endpoint>,
    weather: Impairments,
    random: Random,
    /// By the time of arrival, and the order of leaving.
    on_the_way: BTreeMap<(Time, u64), OnTheWay>,
    left: u64,
    /// The datagrams that were lost on purpose: of those that left, by number.
    lost: Vec<u64>,
    delivered: u64,
    /// Events of both ends, in order.
    events: [Vec<Event>; 2],
    /// True if events are read at once.
    reading: bool,
    config: Config,
}

fn paths() -> [Path; 2] {
    let [a, b] = ["192.0.2.1", "192.0.2.2"].map(|a| a.parse().unwrap());
    [Path { local: a, remote: b, source_port: 0xc001 }, Path { local: b, remote: a, source_port: 0xc002 }]
}

fn numbers(end: u32, psn: u32) -> Numbers {
    Numbers { qp: 0x11 + end, comm_id: 0x1000 + end, psn }
}

impl Net {
    fn new(client: Config, server: Config, weather: Impairments, seed: u64) -> Self {
        let first = Endpoint::connect(0, client, paths()[0], numbers(0, 0xff_fff0), 40_000, 445, b"hello");
        Self {
            now: 0,
            ends: vec![first],
            weather,
            random: Random(seed | 1),
            on_the_way: BTreeMap::new(),
            left: 0,
            lost: Vec::new(),
            delivered: 0,
            events: [Vec::new(), Vec::new()],
            reading: true,
            config: server,
        }
    }

    fn transmit(&mut self) {
        for from in 0..self.ends.len() {
            let source_port = self.ends[from].path().source_port;
            let mut bytes = Vec::new();
            while let Some(leaving) = self.ends[from].poll_transmit(self.now, &mut bytes) {
                assert_eq!(leaving.length, bytes.len());
                let mut datagram = std::mem::take(&mut bytes);
                self.left += 1;
                let w = self.weather;
                if self.random.chance(w.lose) || self.lost.contains(&self.left) {
                    continue;
                }
                if self.random.chance(w.damage) {
                    // once in 2^15 times the check cannot detect it: that is excluded here
                    let whole = datagram.clone();
                    let path = self.ends[from].path();
                    while Check::default().received(path.local, path.remote, source_port, &datagram).is_some() {
                        datagram.clone_from(&whole);
                        let at = self.random.next() as usize % datagram.len();
                        datagram[at] ^= 1 << (self.random.next() % 8);
                    }
                }
                for copy in 0..1 + u64::from(self.random.chance(w.copy)) {
                    let late = if self.random.chance(w.delay) { self.random.next() % 300_000 } else { 0 };
                    let at = self.now + 5_000 + (late + copy * 1000) as i64;
                    let marked = self.random.chance(w.mark);
                    self.on_the_way.insert(
                        (at, self.left * 2 + copy),
                        OnTheWay { to: 1 - from, marked, source_port, bytes: datagram.clone() },
                    );
                }
            }
        }
    }

    fn deliver(&mut self, datagram: &OnTheWay) {
        self.delivered += 1;
        if datagram.to == 1 && self.ends.len() == 1 {
            // as a listener does it
            let path = paths()[1];
            let whole =
                Check::default().received(path.remote, path.local, datagram.source_port, &datagram.bytes).is_some();
            if let Some((Addressed::Service { port, .. }, mad)) = addressed(&datagram.bytes).filter(|_| whole) {
                assert_eq!(port, Some(445));
                self.ends
                    .push(Endpoint::accept(self.now, self.config.clone(), paths()[1], numbers(1, 5), mad).unwrap());
            }
            return;
        }
        self.ends[datagram.to].handle_datagram(self.now, datagram.source_port, datagram.marked, &datagram.bytes);
    }

    fn read(&mut self) {
        for end in 0..self.ends.len() {
            while self.reading
                && let Some(event) = self.ends[end].poll_event()
            {
                self.events[end].push(event);
            }
        }
    }

    /// One step of time. False if nothing more happens.
    fn step(&mut self) -> bool {
        self.transmit();
        let timer = self.ends.iter().filter_map(Endpoint::poll_timeout).min();
        let arrival = self.on_the_way.keys().next().map(|(at, _)| *at);
        let Some(next) = [timer, arrival].into_iter().flatten().min() else { return false };
        self.now = self.now.max(next);
        if arrival == Some(next)
            && let Some((_, datagram)) = self.on_the_way.pop_first()
        {
            self.deliver(&datagram);
        }
        for end in &mut self.ends {
            if end.poll_timeout().is_some_and(|at| self.now >= at) {
                end.handle_timeout(self.now);
            }
        }
        self.read();
        true
    }

    fn run(&mut self, until: impl Fn(&Self) -> bool) {
        for _ in 0..400_000 {
            if until(self) || !self.step() {
                return;
            }
        }
        let counters: Vec<_> = self.ends.iter().map(Endpoint::counters).collect();
        panic!("no end after {} datagrams at {} ns: {counters:?}", self.left, self.now);
    }

    fn established(&mut self) {
        self.run(|net| net.ends.len() == 2 && net.ends.iter().all(Endpoint::is_established));
        assert!(self.ends.iter().all(Endpoint::is_established), "{:?}", self.events);
    }

    fn quiet(&mut self) {
        self.run(|net| net.on_the_way.is_empty() && net.ends.iter().all(Endpoint::is_quiet));
    }

    fn closed(&self, end: usize) -> Option<&Closed> {
        match self.events[end].last() {
            Some(Event::Closed(why)) => Some(why),
            _ => None,
        }
    }
}

fn config(path_mtu: u16) -> Config {
    Config { path_mtu, ..Config::default() }
}

fn bytes(length: usize, seed: u64) -> Vec<u8> {
    let mut random = Random(seed * 2 + 1);
    (0..length).map(|_| random.next() as u8).collect()
}

/// Traffic in both directions; every byte is compared.
fn traffic(net: &mut Net, operations: u64) {
    let mut expected = [Vec::new(), Vec::new()];
    let mut regions = Vec::new();
    for n in 0..operations {
        for end in 0..2 {
            let other = 1 - end;
            let length = [0, 1, 700, 4096, 9001, 70_000][(n as usize + end) % 6];
            let data = bytes(length, n + 1);
            match (n + end as u64) % 3 {
                0 => {
                    net.ends[end].send(&data, None, false).unwrap();
                    expected[other].push(Event::Received { message: data, invalidated: None, immediate: None });
                }
                1 => {
                    let target = net.ends[other].register(vec![0xee; length + 20], Rights::REMOTE_WRITE).unwrap();
                    net.ends[end].write(target.key, target.offset + 10, &data, None).unwrap();
                    regions.push((other, target.key, 10, data));
                }
                _ => {
                    let source = net.ends[other].register(data.clone(), Rights::REMOTE_READ).unwrap();
                    let sink = net.ends[end].register(vec![0xee; length + 20], Rights::LOCAL).unwrap();
                    net.ends[end].read(sink.key, sink.offset + 10, source.key, source.offset, length as u32).unwrap();
                    regions.push((end, sink.key, 10, data));
                }
            }
        }
    }
    net.quiet();
    assert_eq!((net.closed(0), net.closed(1)), (None, None));
    for (end, expected) in expected.iter().enumerate() {
        let received: Vec<_> =
            net.events[end].iter().filter(|event| matches!(event, Event::Received { .. })).cloned().collect();
        assert!(received == *expected, "{} messages, and {} were sent", received.len(), expected.len());
        let reads: Vec<_> = net.events[end]
            .iter()
            .filter_map(|e| if let Event::ReadDone { id } = e { Some(*id) } else { None })
            .collect();
        assert_eq!(reads, (1..=reads.len() as u64).collect::<Vec<_>>(), "reads are done in their order");
    }
    for (end, key, at, data) in regions {
        let region = net.ends[end].deregister(key).unwrap();
        assert!(region[at..at + data.len()] == data, "{} bytes", data.len());
        assert!(region[..at].iter().chain(&region[at + data.len()..]).all(|b| *b == 0xee), "written outside");
    }
}

fn ended(net: &mut Net) {
    let now = net.now;
    net.ends[0].close(now);
    net.run(|net| net.ends.iter().all(Endpoint::is_over));
    assert_eq!((net.closed(0), net.closed(1)), (Some(&Closed::ByUs), Some(&Closed::ByPeer)));
}

#[test]
fn everything_arrives_at_every_path_mtu() {
    for mtu in [256, 512, 1024, 2048, 4096] {
        let mut net = Net::new(config(mtu), config(4096), Impairments::default(), 1);
        net.established();
        let Event::Established { private_data } = &net.events[1][0] else { panic!() };
        assert!(private_data.starts_with(b"hello") && private_data[5..].iter().all(|b| *b == 0));
        assert_eq!(net.ends[1].path_mtu(), mtu);
        traffic(&mut net, 12);
        for end in &net.ends {
            let Counters {
                cnps_sent: 0,
                cnps_received: 0,
                retransmitted: 0,
                duplicates: 0,
                gaps: 0,
                bad_crc: 0,
                foreign: 0,
            } = end.counters()
            else {
                panic!("{mtu}: {:?}", end.counters())
            };
        }
        ended(&mut net);
    }
}

#[test]
fn invalidation_and_immediate_data_arrive() {
    let mut net = Net::new(config(1024), config(1024), Impairments::default(), 1);
    net.established();
    let region = net.ends[1].register(vec![0; 5000], Rights::REMOTE_WRITE).unwrap();
    net.ends[0].write(region.key, region.offset, &[7; 3000], Some(0x0102_0304)).unwrap();
    net.ends[0].send(&[1; 2000], Some(region.key), true).unwrap();
    net.ends[0].send_with_immediate(&[2; 10], 0xdead_beef).unwrap();
    net.quiet();
    assert_eq!(
        net.events[1][1..],
        [
            Event::Received { message: vec![], invalidated: None, immediate: Some(0x0102_0304) },
            Event::Received { message: vec![1; 2000], invalidated: Some(region.key), immediate: None },
            Event::Received { message: vec![2; 10], invalidated: None, immediate: Some(0xdead_beef) },
        ]
    );
    // an invalidated region cannot be accessed any more
    net.ends[0].write(region.key, region.offset, &[8; 10], None).unwrap();
    net.run(|net| net.closed(0).is_some() && net.closed(1).is_some());
    assert_eq!(net.closed(0), Some(&Closed::Refused(NakCode::REMOTE_ACCESS_ERROR)));
    assert!(matches!(net.closed(1), Some(Closed::Violation(NakCode::REMOTE_ACCESS_ERROR, _))));
    assert_eq!(net.ends[1].deregister(region.key).unwrap()[..3000], [7; 3000]);
}

#[test]
fn every_lost_management_datagram_is_sent_again() {
    for lost in 1..=6 {
        let mut net = Net::new(config(1024), config(1024), Impairments::default(), 1);
        net.lost = vec![lost];
        net.established();
        net.ends[0].send(b"after", None, false).unwrap();
        net.ends[1].send(b"after", None, false).unwrap();
        net.quiet();
        let after = Event::Received { message: b"after".to_vec(), invalidated: None, immediate: None };
        assert!(net.events.iter().all(|events| events.contains(&after)), "{lost}");
        net.lost.push(net.left + 1);
        ended(&mut net);
    }
}

#[test]
fn a_missing_peer_is_reported_after_all_retries() {
    let mut net = Net::new(
        Config { cm_retries: 3, ..config(1024) },
        config(1024),
        Impairments { lose: 1000, ..Impairments::default() },
        1,
    );
    net.run(|net| net.closed(0).is_some());
    assert_eq!(net.closed(0), Some(&Closed::NoAnswer));
    assert!((4.0..5.0).contains(&(net.now as f64 / 1.073e9)), "4 times the CM's timeout: {}", net.now);
    net.transmit();
    assert_eq!(net.left, 5, "4 REQs, and a REJ that says that we gave up");
}

#[test]
fn a_refusal_names_its_reason() {
    let mut net = Net::new(config(4096), config(1024), Impairments::default(), 1);
    let mut out = Vec::new();
    net.ends[0].poll_transmit(0, &mut out).unwrap();
    let mad = addressed(&out).unwrap().1.to_vec();
    let reason = Endpoint::accept(0, config(1024), paths()[1], numbers(1, 5), &mad).unwrap_err();
    assert_eq!(reason, RejectReason::PATH_MTU);
    let reject = Endpoint::rejection(&paths()[1], &mad, reason);
    net.ends[0].handle_datagram(1, paths()[1].source_port, false, &reject);
    net.read();
    assert_eq!(net.closed(0), Some(&Closed::Rejected(RejectReason::PATH_MTU)));
    assert!(net.ends[0].is_over());
}

#[test]
fn a_peer_that_falls_silent_is_given_up() {
    let mut net = Net::new(config(1024), config(1024), Impairments::default(), 1);
    net.established();
    net.weather.lose = 1000;
    let begun = net.now;
    net.ends[0].send(&[1; 3000], None, false).unwrap();
    net.run(|net| net.closed(0).is_some());
    assert_eq!(net.closed(0), Some(&Closed::Retries));
    // the first time, twice it, and then six times four times it
    let waited = (net.now - begun) as u64 / timeout_nanos(17);
    assert_eq!(waited, 1 + 2 + 6 * 4);
}

#[test]
fn without_receives_the_sender_waits() {
    let mut net = Net::new(config(1024), Config { receives: 2, ..config(1024) }, Impairments::default(), 1);
    net.established();
    net.reading = false;
    for n in 0..5u8 {
        net.ends[0].send(&[n; 2000], None, false).unwrap();
    }
    for _ in 0..200 {
        net.step();
    }
    assert!(!net.ends[0].is_quiet(), "two of five were taken");
    net.reading = true;
    net.quiet();
    let expected: Vec<_> =
        (0..5u8).map(|n| Event::Received { message: vec![n; 2000], invalidated: None, immediate: None }).collect();
    assert_eq!(net.events[1][1..], expected);
    // and not forever, if that was negotiated
    let mut net =
        Net::new(config(1024), Config { receives: 0, rnr_retry: 3, ..config(1024) }, Impairments::default(), 1);
    net.established();
    net.ends[0].send(&[1; 10], None, false).unwrap();
    net.run(|net| net.closed(0).is_some());
    assert_eq!(net.closed(0), Some(&Closed::RnrRetries));
}

#[test]
fn what_was_not_given_cannot_be_reached() {
    let cases: [(Rights, i64, u32, bool); 6] = [
        (Rights::REMOTE_WRITE, 90, 11, true),
        (Rights::REMOTE_WRITE, -1, 5, true),
        (Rights::REMOTE_READ, 0, 5, true),
        (Rights::LOCAL, 0, 5, true),
        (Rights::REMOTE_WRITE, 0, 5, false),
        (Rights::REMOTE_READ, 90, 3000, false),
    ];
    for (rights, at, length, write) in cases {
        let mut net = Net::new(config(1024), config(1024), Impairments::default(), 1);
        net.established();
        let region = net.ends[1].register(vec![0x77; 100], rights).unwrap();
        let offset = region.offset.wrapping_add_signed(at);
        if write {
            net.ends[0].write(region.key, offset, &vec![1; length as usize], None).unwrap();
        } else {
            let sink = net.ends[0].register(vec![0; 4096], Rights::LOCAL).unwrap();
            net.ends[0].read(sink.key, sink.offset, region.key, offset, length).unwrap();
        }
        net.run(|net| net.closed(0).is_some() && net.closed(1).is_some());
        assert_eq!(net.closed(0), Some(&Closed::Refused(NakCode::REMOTE_ACCESS_ERROR)), "{rights:?} {at} {length}");
        assert_eq!(net.ends[1].deregister(region.key).unwrap(), [0x77; 100]);
    }
}

#[test]
fn no_more_reads_are_outstanding_than_were_agreed() {
    let client = Config { initiator_depth: 8, read_max: 1024, ..config(1024) };
    let mut net = Net::new(client, Config { responder_resources: 3, ..config(1024) }, Impairments::default(), 1);
    net.established();
    net.quiet();
    let source = net.ends[1].register(bytes(20_000, 2), Rights::REMOTE_READ).unwrap();
    let sink = net.ends[0].register(vec![0; 20_000], Rights::LOCAL).unwrap();
    net.ends[0].read(sink.key, sink.offset, source.key, source.offset, 20_000).unwrap();
    net.transmit();
    let asked = |net: &Net| {
        net.on_the_way.values().filter(|d| Packet::parse(&d.bytes).unwrap().row.verb == Verb::ReadRequest).count()
    };
    assert_eq!(asked(&net), 3);
    net.quiet();
    assert!(net.ends[0].deregister(sink.key).unwrap() == bytes(20_000, 2));
    // and a peer that requests more is refused
    let before = packet::reth(source.key, source.offset, 10);
    let now = net.now;
    for psn in 25..30u32 {
        let bth = Bth { ack: 0x80, ..Bth::new(Opcode::RC_RDMA_READ_REQUEST, 0x12, psn) };
        let mut datagram = Vec::new();
        packet::emit(&paths()[0], bth, &before, &[], &mut datagram);
        net.ends[1].handle_datagram(now, paths()[0].source_port, false, &datagram);
    }
    net.read();
    assert!(matches!(net.closed(1), Some(Closed::Violation(NakCode::INVALID_REQUEST, _))), "{:?}", net.closed(1));
}

/// A Read that comes once more is answered from memory that may be gone by then: whoever invalidated the key has the
/// answer. A first Read whose memory goes is refused.
#[test]
fn a_read_that_comes_again_is_not_refused_when_its_memory_goes() {
    for (times, expected) in [(1, Some(Syndrome::Nak(NakCode::REMOTE_OPERATIONAL_ERROR))), (2, None)] {
        let mut net = Net::new(config(1024), config(1024), Impairments::default(), 1);
        net.established();
        net.quiet();
        let source = net.ends[1].register(bytes(5000, 2), Rights::REMOTE_READ).unwrap();
        let asked = Bth { ack: 0x80, ..Bth::new(Opcode::RC_RDMA_READ_REQUEST, 0x12, 5) };
        let mut datagram = Vec::new();
        packet::emit(&paths()[0], asked, &packet::reth(source.key, source.offset, 5000), &[], &mut datagram);
        let (now, mut out) = (net.now, Vec::new());
        for time in 1..=times {
            net.ends[1].handle_datagram(now, paths()[0].source_port, false, &datagram);
            let packets = if time == times { 2 } else { 5 };
            for _ in 0..packets {
                out.clear();
                net.ends[1].poll_transmit(now, &mut out).unwrap();
                assert_eq!(Packet::parse(&out).unwrap().row.verb, Verb::ReadResponse, "asked {time} of {times} times");
            }
        }
        net.ends[1].deregister(source.key).unwrap();
        out.clear();
        let answer = net.ends[1].poll_transmit(now, &mut out).and_then(|_| Packet::parse(&out)?.ext.syndrome());
        assert_eq!(answer, expected, "asked {times} times");
        // and the connection goes on
        let next = Bth { ack: 0x80, ..Bth::new(Opcode::RC_SEND_ONLY, 0x12, 10) };
        assert_eq!(answered(&mut net, next, &[], &[1; 10]), Some(Syndrome::Ack { credits: None }));
    }
}

#[test]
fn acknowledgements_of_packets_in_a_row_are_one() {
    let mut net = Net::new(config(1024), config(1024), Impairments::default(), 1);
    net.established();
    net.quiet();
    let left = net.left;
    for n in 0..50u8 {
        net.ends[0].send(&[n; 10], None, false).unwrap();
    }
    // all arrive before the other end answers
    let mut out = Vec::new();
    let now = net.now;
    while let Some(leaving) = net.ends[0].poll_transmit(now, &mut out) {
        let datagram = out.split_off(out.len() - leaving.length);
        net.ends[1].handle_datagram(now, paths()[0].source_port, false, &datagram);
    }
    net.quiet();
    assert_eq!(net.left, left + 1, "one acknowledgement for all");
    assert!(net.ends[0].is_quiet());
}

#[test]
fn marks_of_congestion_slow_the_sender_down() {
    let mut net = Net::new(config(1024), config(1024), Impairments { mark: 1000, ..Impairments::default() }, 1);
    net.established();
    let target = net.ends[1].register(vec![0; 1 << 20], Rights::REMOTE_WRITE).unwrap();
    let data = bytes(1 << 20, 9);
    net.ends[0].write(target.key, target.offset, &data, None).unwrap();
    net.run(|net| net.ends[0].rate().is_some());
    net.quiet();
    assert!(net.ends[1].counters().cnps_sent > 3 && net.ends[0].counters().cnps_received > 3);
    assert!(net.ends[1].deregister(target.key).unwrap() == data);
    assert_eq!(net.ends[0].counters().retransmitted, 0);
    // without marks it recovers, and is at the line rate in the end
    let slow = net.ends[0].rate().unwrap();
    assert!(slow < net.config.line_rate / 2, "{slow}");
    net.weather.mark = 0;
    let mut rates = vec![slow];
    while let Some(rate) = {
        net.now += 10_000_000;
        net.ends[0].send(&[1; 100], None, false).unwrap();
        net.quiet();
        net.ends[0].rate()
    } {
        assert!(rate >= rates[rates.len() - 1], "it falls without a mark");
        rates.push(rate);
        assert!(net.now < 120_000_000_000, "{rate} after two minutes");
    }
    assert!(rates.len() > 3, "not at once: {rates:?}");
}

/// A datagram of the peer with the next number, at our queue pair.
fn request(opcode: Opcode, to: usize) -> Vec<u8> {
    let mut datagram = Vec::new();
    let psn = if to == 1 { 5 } else { 0xff_fff0 };
    let bth = Bth { ack: 0x80, ..Bth::new(opcode, 0x11 + to as u32, psn) };
    packet::emit(&paths()[1 - to], bth, &[], &[1; 10], &mut datagram);
    datagram
}

#[test]
fn a_queue_pair_takes_and_gives_what_its_state_lets_it() {
    let give = |net: &mut Net, to: usize, bytes: &[u8]| {
        let (now, port) = (net.now, paths()[1 - to].source_port);
        net.ends[to].handle_datagram(now, port, false, bytes);
    };
    let mut net = Net::new(config(1024), config(1024), Impairments::default(), 1);
    // Init: packets for the queue pair are dropped silently, nothing can be posted
    assert_eq!(net.ends[0].state(), State::Initialized);
    net.transmit();
    give(&mut net, 0, &request(Opcode::RC_SEND_ONLY, 0));
    assert_eq!((net.ends[0].poll_transmit(0, &mut Vec::new()), net.ends[0].poll_event()), (None, None));
    assert_eq!(net.ends[0].counters().foreign, 1);
    assert_eq!(net.ends[0].send(b"no", None, false), Err(OpError::NotEstablished));
    // RTR: a request counts as an RTU; before that, nothing can be posted
    net.run(|net| net.ends.len() == 2);
    assert_eq!(net.ends[1].state(), State::ReadyToReceive);
    assert_eq!(net.ends[1].send(b"no", None, false), Err(OpError::NotEstablished));
    give(&mut net, 1, &request(Opcode::RC_SEND_ONLY, 1));
    assert_eq!(net.ends[1].state(), State::ReadyToSend);
    assert!(matches!(net.ends[1].poll_event(), Some(Event::Established { .. })));
    let message = Event::Received { message: vec![1; 10], invalidated: None, immediate: None };
    assert_eq!(net.ends[1].poll_event(), Some(message));

    let mut net = Net::new(config(1024), config(1024), Impairments::default(), 1);
    net.established();
    net.quiet();
    // RTS: both
    assert_eq!((net.ends[0].state(), net.ends[1].state()), (State::ReadyToSend, State::ReadyToSend));
    net.ends[0].send(b"yes", None, false).unwrap();
    net.quiet();
    // Error: the refusal is still sent, received packets are dropped, nothing can be posted, posted operations fail
    net.ends[1].send(&[3; 100], None, false).unwrap();
    give(&mut net, 1, &request(Opcode::RC_SEND_MIDDLE, 1));
    let mut stale = Vec::new();
    let bth = Bth { ack: 0x80, ..Bth::new(Opcode::RC_SEND_MIDDLE, 0x12, 6) };
    packet::emit(&paths()[0], bth, &[], &[1; 10], &mut stale);
    give(&mut net, 1, &stale);
    assert_eq!(net.ends[1].state(), State::Error);
    assert_eq!(net.ends[1].send(b"no", None, false), Err(OpError::NotEstablished));
    let before = net.ends[1].counters();
    give(&mut net, 1, &stale);
    assert_eq!(net.ends[1].counters(), before, "dropped");
    // Reset: both know that it is over, and nothing is answered
    net.run(|net| net.ends.iter().all(Endpoint::is_over));
    assert_eq!((net.ends[0].state(), net.ends[1].state()), (State::Reset, State::Reset));
    give(&mut net, 1, &stale);
    let now = net.now;
    assert_eq!(net.ends[1].poll_transmit(now, &mut Vec::new()), None);
    assert!(
        matches!(net.closed(0), Some(Closed::Refused(NakCode::INVALID_REQUEST) | Closed::ByPeer)),
        "{:?}",
        net.closed(0)
    );
}

#[test]
fn the_whole_crc_is_checked_where_the_header_is_seen() {
    use super::packet::{Header, Outside};
    let mut net = Net::new(config(1024), config(1024), Impairments::default(), 1);
    net.established();
    net.quiet();
    let mut datagram = request(Opcode::RC_SEND_ONLY, 1);
    Check::default().renumber(&mut datagram, 0x1234);
    let header = |identification| {
        let hidden = Hidden { identification, fragmentable: false };
        Outside {
            source_port: paths()[0].source_port,
            congested: false,
            header: Some(Header { hidden, tos: 0, ttl: 64, checksum: 0 }),
        }
    };
    let now = net.now;
    assert_eq!(net.ends[1].handle_outside(now, &header(0x1235), &datagram), None);
    assert_eq!(net.ends[1].counters().bad_crc, 1);
    assert_eq!(
        net.ends[1].handle_outside(now, &header(0x1234), &datagram).map(|hidden| hidden.identification),
        Some(0x1234)
    );
    assert!(net.ends[1].poll_event().is_some());
}

#[test]
fn who_connects_refuses_an_answer_with_each_reason() {
    for row in fault::FAULTS.iter().filter(|row| row.name.starts_with("cm-reject-")) {
        let fault: PacketFault = row.name.parse().unwrap();
        let reason = Faults::new(fault, 1).unwrap().rejects().unwrap();
        let mut net =
            Net::new(Config { fault: Some((fault, 1)), ..config(1024) }, config(1024), Impairments::default(), 1);
        net.run(|net| net.closed(1).is_some());
        assert_eq!(
            (net.closed(0), net.closed(1)),
            (Some(&Closed::ByUs), Some(&Closed::Rejected(reason))),
            "{}",
            row.name
        );
        assert!(net.ends.iter().all(Endpoint::is_over));
    }
}

#[test]
fn a_receipt_gives_the_answer_more_time() {
    let mut net =
        Net::new(Config { cm_timeout: 10, cm_retries: 0, ..config(1024) }, config(1024), Impairments::default(), 1);
    let mut out = Vec::new();
    net.ends[0].poll_transmit(0, &mut out).unwrap();
    let receipt = Endpoint::receipt(&paths()[1], addressed(&out).unwrap().1).unwrap();
    let before = net.ends[0].poll_timeout().unwrap();
    assert!(net.ends[0].handle_datagram(1, paths()[1].source_port, false, &receipt).is_some());
    let after = net.ends[0].poll_timeout().unwrap();
    assert!(after - before >= timeout_nanos(19) as i64, "{before} {after}");
    net.ends[0].handle_timeout(before);
    net.read();
    assert_eq!(net.closed(0), None);
    net.ends[0].handle_timeout(after);
    net.read();
    assert_eq!(net.closed(0), Some(&Closed::NoAnswer));
}

/// This number of packets on these connections: a million with `RDMASCOPE_ROCE_PACKETS=1000000 cargo test -p
/// rdmascope-replay --lib packets_of`.
#[test]
fn packets_of_every_weather_come_to_the_right_end() {
    let wanted = std::env::var("RDMASCOPE_ROCE_PACKETS").ok().and_then(|n| n.parse().ok()).unwrap_or(20_000u64);
    let (mut left, mut again, mut lost, mut seed) = (0, 0, 0, 0u64);
    while left < wanted {
        seed += 1;
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let weather = Impairments {
            lose: random.next() % 60,
            copy: random.next() % 60,
            delay: random.next() % 100,
            damage: random.next() % 20,
            mark: random.next() % 50,
        };
        let ends = [0, 1].map(|_| Config { ack_timeout: 13, cm_timeout: 10, ..config(256 << (random.next() % 5)) });
        let [client, server] = ends;
        let server = Config { path_mtu: 4096, ..server };
        let mut net = Net::new(client, server, weather, seed);
        net.established();
        traffic(&mut net, 8);
        let counters = net.ends.iter().map(Endpoint::counters);
        again += counters.map(|c| c.retransmitted).sum::<u64>();
        lost += net.left.saturating_sub(net.delivered);
        net.weather = Impairments::default();
        ended(&mut net);
        assert_eq!((net.ends[0].state(), net.ends[1].state()), (State::Reset, State::Reset));
        left += net.left;
    }
    println!("{left} packets in {seed} connections, {lost} or more of them lost, {again} sent again");
    assert!(again > 0 && lost > 0);
}

/// The answer of an established responder to one datagram.
fn answered(net: &mut Net, bth: Bth, extensions: &[u8], payload: &[u8]) -> Option<Syndrome> {
    let mut datagram = Vec::new();
    packet::emit(&paths()[0], bth, extensions, payload, &mut datagram);
    let now = net.now;
    net.ends[1].handle_datagram(now, paths()[0].source_port, false, &datagram);
    let mut out = Vec::new();
    net.ends[1].poll_transmit(now, &mut out)?;
    Packet::parse(&out)?.ext.syndrome()
}

#[test]
fn what_breaks_a_rule_is_refused_with_its_code() {
    let head = |opcode: Opcode, psn| Bth { ack: 0x80, ..Bth::new(opcode, 0x12, psn) };
    let nak = |code| Some(Syndrome::Nak(code));
    let cases: [(Bth, usize, Option<Syndrome>); 9] = [
        (head(Opcode::RC_SEND_ONLY, 5), 10, Some(Syndrome::Ack { credits: None })),
        (head(Opcode::RC_SEND_ONLY, 4), 10, Some(Syndrome::Ack { credits: None })),
        (head(Opcode::RC_SEND_ONLY, 6), 10, nak(NakCode::PSN_SEQUENCE_ERROR)),
        (head(Opcode::RC_SEND_MIDDLE, 5), 1024, nak(NakCode::INVALID_REQUEST)),
        (head(Opcode::RC_SEND_FIRST, 5), 1000, nak(NakCode::INVALID_REQUEST)),
        (head(Opcode::RC_SEND_ONLY, 5), 1025, nak(NakCode::INVALID_REQUEST)),
        (head(Opcode::UC_SEND_ONLY, 5), 10, None),
        (Bth { p_key: 0x1234, ..head(Opcode::RC_SEND_ONLY, 5) }, 10, None),
        (Bth { dest_qp: 0x99, ..head(Opcode::RC_SEND_ONLY, 5) }, 10, None),
    ];
    for (bth, length, expected) in cases {
        let mut net = Net::new(config(1024), config(1024), Impairments::default(), 1);
        net.established();
        net.quiet();
        assert_eq!(answered(&mut net, bth, &[], &vec![0; length]), expected, "{bth:?}");
    }
}

#[test]
fn an_acknowledgement_of_what_was_not_sent_is_nothing() {
    let mut net = Net::new(config(1024), config(1024), Impairments::default(), 1);
    net.established();
    net.quiet();
    for psn in [5 + 100, 0x80_0000, 4] {
        let mut datagram = Vec::new();
        let bth = Bth::new(Opcode::RC_ACKNOWLEDGE, 0x11, psn);
        packet::emit(&paths()[1], bth, &aeth_bytes(ACK, 1), &[], &mut datagram);
        let now = net.now;
        assert!(net.ends[0].handle_datagram(now, paths()[1].source_port, false, &datagram).is_some());
    }
    traffic(&mut net, 3);
    assert_eq!(PORT, 4791);
}

/// Each fault of the table at one end: the other end must tolerate it, or end the connection for the expected reason.
#[test]
fn every_packet_fault_is_done_and_comes_to_what_it_has_to() {
    for row in &fault::FAULTS {
        let fault: PacketFault = row.name.parse().unwrap();
        let faulty = Config { fault: Some((fault, 7)), retry_count: 3, rnr_retry: 3, cm_retries: 2, ..config(1024) };
        let mut net = Net::new(
            Config { retry_count: 3, rnr_retry: 3, cm_retries: 2, ..config(1024) },
            faulty,
            Impairments::default(),
            1,
        );
        if let Some(reason) = Faults::new(fault, 1).unwrap().rejects() {
            let mut out = Vec::new();
            net.ends[0].poll_transmit(0, &mut out).unwrap();
            let refused = Endpoint::accept(0, net.config, paths()[1], numbers(1, 5), addressed(&out).unwrap().1);
            assert_eq!(refused.unwrap_err(), reason, "{}", row.name);
            continue;
        }
        net.run(|net| net.closed(0).is_some() || net.ends.len() == 2 && net.ends.iter().all(Endpoint::is_established));
        if net.closed(0).is_none() && net.ends[0].is_established() && net.ends[1].is_established() {
            let source = net.ends[1].register(bytes(20_000, 3), Rights::REMOTE_READ).unwrap();
            let sink = net.ends[0].register(vec![0; 20_000], Rights::LOCAL).unwrap();
            for n in 0..6u8 {
                net.ends[0].send(&[n; 3000], None, false).unwrap();
                net.ends[1].send(&[n; 3000], None, false).unwrap();
            }
            net.ends[0].read(sink.key, sink.offset, source.key, source.offset, 20_000).unwrap();
            net.run(|net| {
                net.closed(0).is_some() || net.on_the_way.is_empty() && net.ends.iter().all(Endpoint::is_quiet)
            });
            if net.closed(0).is_none() && matches!(row.name, "no-ack" | "ack-unsent") {
                // the answer to the read acknowledged all packets before it
                net.ends[0].send(b"once more", None, false).unwrap();
                net.run(|net| net.closed(0).is_some());
            }
            if net.closed(0).is_none() {
                let messages =
                    |end: usize| net.events[end].iter().filter(|e| matches!(e, Event::Received { .. })).count();
                assert_eq!((messages(0), messages(1)), (6, 6), "{}", row.name);
                assert!(net.ends[0].deregister(sink.key).unwrap() == bytes(20_000, 3), "{}", row.name);
            }
        }
        let ended = match row.name {
            "nak-invalid" => Some(Closed::Refused(NakCode::INVALID_REQUEST)),
            "nak-access" => Some(Closed::Refused(NakCode::REMOTE_ACCESS_ERROR)),
            "nak-rd" => Some(Closed::Refused(NakCode::INVALID_RD_REQUEST)),
            "nak-operation" => Some(Closed::Refused(NakCode::REMOTE_OPERATIONAL_ERROR)),
            "rnr" => Some(Closed::RnrRetries),
            "no-ack" | "ack-unsent" => Some(Closed::Retries),
            "short-response" | "long-response" => {
                Some(Closed::BadResponse("it does not have the length that was asked for"))
            }
            "cm-silent" | "cm-wrong-id" => Some(Closed::NoAnswer),
            "cm-disconnect" => Some(Closed::ByPeer),
            _ => None,
        };
        assert_eq!(net.closed(0), ended.as_ref(), "{}", row.name);
        assert!(net.ends[1].faults_done() > 0, "{} was not done", row.name);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn whatever_the_network_does_every_byte_arrives_once(
        seed in any::<u64>(), lose in 0u64..60, copy in 0u64..100, delay in 0u64..100, damage in 0u64..30, mark in 0u64..100, mtu in 8u32..=12,
    ) {
        let weather = Impairments { lose, copy, delay, damage, mark };
        let fast = Config { ack_timeout: 13, cm_timeout: 10, ..config(1 << mtu) };
        let mut net = Net::new(Config { retry_count: 7, ..fast.clone() }, fast, weather, seed);
        net.established();
        traffic(&mut net, 6);
        net.weather = Impairments::default();
        ended(&mut net);
    }

    #[test]
    fn any_datagram_is_borne(datagrams in proptest::collection::vec((any::<[u8; 12]>(), proptest::collection::vec(any::<u8>(), 0..80)), 1..20)) {
        let mut net = Net::new(config(256), config(256), Impairments::default(), 1);
        net.established();
        let region = net.ends[1].register(vec![0x55; 64], Rights::REMOTE_READ).unwrap();
        for (head, rest) in datagrams {
            let mut bytes = [&head[..], &rest].concat();
            // half of them are for this queue pair, and for its next packet
            if head[11] & 1 == 0 {
                bytes[0] &= 0x1f;
                bytes[1] = 0;
                bytes[2..8].copy_from_slice(&[0xff, 0xff, 0, 0, 0, 0x12]);
                bytes[8..12].copy_from_slice(&[0x80, 0, 0, 5]);
            }
            packet::finish(&paths()[0], 0, &mut bytes);
            let now = net.now;
            net.ends[1].handle_datagram(now, paths()[0].source_port, false, &bytes);
            let mut out = Vec::new();
            while net.ends[1].poll_transmit(now, &mut out).is_some() {}
            net.ends[1].handle_timeout(now + 1);
        }
        prop_assert_eq!(net.ends[1].memory().bytes(region.key).unwrap(), [0x55; 64]);
    }
}
