//! Two ends, the link between them, and a tap on it, in virtual time.

use crate::end::{End, Request};
use crate::frame;
use crate::packet::{Body, Packet};
use crate::random::Random;
use crate::transport::{Class, MICROSECOND, Time};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// Effects of a link on packets of one direction on one side of the tap; chances of 10,000.
#[derive(Clone, Copy, Debug, Default)]
pub struct Trouble {
    /// The packet is lost.
    pub lose: u64,
    /// It is delivered twice.
    pub copy: u64,
    /// It is delayed.
    pub delay: u64,
    /// Duration of the delay, in ns.
    pub delay_by: Time,
    /// A bit of it is changed.
    pub damage: u64,
    /// It gets a congestion mark.
    pub mark: u64,
}

impl Trouble {
    /// True if it does anything but mark.
    pub fn is_any(&self) -> bool {
        self.lose + self.copy + self.delay + self.damage > 0
    }
}

/// The link.
#[derive(Clone, Debug)]
pub struct Link {
    /// Transmission time of 1,000 bytes, in ns.
    pub pace: Time,
    /// ns from each end to the tap.
    pub distance: [Time; 2],
    /// Effects by sending end, before and behind the tap.
    pub trouble: [[Trouble; 2]; 2],
    /// A period in which nothing passes, by direction; before the tap or behind it.
    pub cut: Option<(usize, Time, Time, bool)>,
    /// Nothing leaves an end in this time; it waits.
    pub pause: Option<(usize, Time, Time)>,
}

/// An effect of the link on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// It was lost.
    Lost,
    /// It was delivered twice.
    Copied,
    /// It was delivered late by this time in ns, compared to those around it.
    Late(Time),
    /// A bit of it was changed.
    Damaged,
    /// It got a congestion mark.
    Marked,
}

/// An effect of the link on one packet.
#[derive(Clone, Copy, Debug)]
pub struct LinkEvent {
    /// Its time.
    pub time: Time,
    /// Number of the packet.
    pub id: u64,
    /// Number of the end that sent it.
    pub from: usize,
    /// Its purpose.
    pub class: Class,
    /// The effect.
    pub what: What,
    /// True if it happened behind the tap.
    pub behind: bool,
}

/// A packet that an end sent.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// Its number.
    pub id: u64,
    /// Number of the end that sent it.
    pub from: usize,
    /// Its time.
    pub time: Time,
    /// Its purpose.
    pub class: Class,
    /// True if it is a retransmission.
    pub again: bool,
    /// Time at which its receiver had all of it, if it did.
    pub came: Option<Time>,
}

/// A packet as it passed the tap.
#[derive(Clone, Debug)]
pub struct Tapped {
    /// Its time.
    pub time: Time,
    /// Its number; 0 of a pause frame.
    pub id: u64,
    /// Number of the end that sent it.
    pub from: usize,
    /// The frame, with all changes made before the tap.
    pub frame: Vec<u8>,
}

/// Everything that happened.
#[derive(Debug, Default)]
pub struct Truth {
    /// Packets by number, from 1.
    pub sent: Vec<Sent>,
    /// Effects of the link.
    pub happened: Vec<LinkEvent>,
    /// Packets that passed the tap, in order.
    pub tapped: Vec<Tapped>,
    /// Pause frames that passed the tap, in order.
    pub pauses: Vec<Tapped>,
    /// Requests of the client, in order.
    pub requests: Vec<Request>,
    /// Time of the end.
    pub end: Time,
    /// True if the simulation did not end by itself.
    pub runaway: bool,
}

impl Truth {
    /// Everything that passed the tap, in order.
    pub fn passed(&self) -> Vec<Tapped> {
        let mut all: Vec<Tapped> = self.tapped.iter().chain(&self.pauses).cloned().collect();
        all.sort_by_key(|tapped| tapped.time);
        all
    }
}

/// Bytes of a quantum of a pause.
const QUANTUM: Time = 512 / 8;
/// Quanta that a pause frame asks for: the most there are.
const QUANTA: u16 = u16::MAX;

enum Event {
    Tap(Packet),
    Arrive(Packet),
}

/// Two ends and their link.
pub struct World {
    /// Client and server.
    pub hosts: [Box<dyn End>; 2],
    link: Link,
    random: Random,
    queue: BinaryHeap<Reverse<(Time, u64)>>,
    events: BTreeMap<u64, Event>,
    sequence: u64,
    free: [Time; 2],
    last: [[Time; 2]; 2],
    /// Record of everything that happened.
    pub truth: Truth,
}

const STEPS_MAX: u32 = 400_000;
/// Maximum duration of a conversation.
const TIME_MAX: Time = 200 * crate::transport::SECOND;

impl World {
    /// Makes a world in its initial state.
    pub fn new(hosts: [Box<dyn End>; 2], link: Link, random: Random) -> Self {
        Self {
            hosts,
            link,
            random,
            queue: BinaryHeap::new(),
            events: BTreeMap::new(),
            sequence: 0,
            free: [0; 2],
            last: [[0; 2]; 2],
            truth: Truth::default(),
        }
    }

    /// Runs the conversation from the first packet to the last.
    pub fn run(&mut self) {
        let mut now = 0;
        self.hosts[0].transport_mut().open(now);
        for step in 0.. {
            let mut wake: Option<Time> = None;
            for me in [0, 1] {
                self.hosts[me].turn(now, &mut self.truth.requests);
                if self.free[me] <= now
                    && !self.is_paused(me, now)
                    && let Some(out) = self.hosts[me].transport_mut().poll_transmit(now)
                {
                    let bytes = out.frame.len() as Time;
                    let left = now + (bytes * self.link.pace / 1000).max(1);
                    self.free[me] = left;
                    let id = self.truth.sent.len() as u64 + 1;
                    self.truth.sent.push(Sent {
                        id,
                        from: me,
                        time: left,
                        class: out.class,
                        again: out.again,
                        came: None,
                    });
                    let packet = Packet { id, from: me, frame: out.frame, body: out.body, damaged: false };
                    self.carry(left, packet, false);
                }
                let mut next = self.hosts[me].poll_timeout();
                if self.free[me] > now {
                    next = Some(next.map_or(self.free[me], |n| n.min(self.free[me])));
                }
                if let Some((of, _, to)) = self.link.pause
                    && of == me
                    && self.is_paused(me, now)
                {
                    next = Some(next.map_or(to, |n| n.min(to)));
                }
                wake = [wake, next].into_iter().flatten().min();
            }
            let arrives = self.queue.peek().map(|Reverse((at, _))| *at);
            let Some(next) = [wake, arrives].into_iter().flatten().min() else { break };
            if step > STEPS_MAX || next > TIME_MAX {
                self.truth.runaway = true;
                break;
            }
            now = next.max(now + i64::from(arrives.is_none_or(|a| a > now)));
            while let Some(Reverse((at, key))) = self.queue.peek().copied()
                && at <= now
            {
                self.queue.pop();
                match self.events.remove(&key) {
                    Some(Event::Tap(packet)) => {
                        self.truth.tapped.push(Tapped {
                            time: at,
                            id: packet.id,
                            from: packet.from,
                            frame: packet.frame.clone(),
                        });
                        self.carry(at, packet, true);
                    }
                    Some(Event::Arrive(packet)) if !packet.damaged || matches!(packet.body, Body::Bytes) => {
                        if !packet.damaged {
                            self.truth.sent[packet.id as usize - 1].came.get_or_insert(at);
                        }
                        self.hosts[1 - packet.from].transport_mut().handle(at, &packet);
                        // its effects are handled before the next packet
                        self.hosts[1 - packet.from].turn(at, &mut self.truth.requests);
                    }
                    _ => {}
                }
            }
        }
        self.truth.end = now;
        self.pause();
    }

    /// The pause frames of the receiver of packets that are stopped: it renews its pause before it is over, and takes
    /// it back in the end. They pass the tap as long before they arrive as the way to the sender takes.
    fn pause(&mut self) {
        let Some((of, from, to)) = self.link.pause else { return };
        let lasts = (Time::from(QUANTA) * QUANTUM * self.link.pace / 1000).max(2);
        let asks = (0..).map(|n| from + n * lasts / 2).take_while(|time| *time < to).map(|time| (time, QUANTA));
        for (arrives, quanta) in asks.chain([(to, 0)]) {
            let time = arrives - self.link.distance[of];
            if time <= self.truth.end {
                self.truth.pauses.push(Tapped { time, id: 0, from: 1 - of, frame: frame::pause(1 - of, quanta) });
            }
        }
    }

    fn is_paused(&self, me: usize, now: Time) -> bool {
        self.link.pause.is_some_and(|(of, from, to)| of == me && (from..to).contains(&now))
    }

    fn push(&mut self, at: Time, event: Event) {
        self.sequence += 1;
        self.queue.push(Reverse((at, self.sequence)));
        self.events.insert(self.sequence, event);
    }

    fn happen(&mut self, time: Time, packet: &Packet, what: What, behind: bool) {
        let class = self.truth.sent[packet.id as usize - 1].class;
        self.truth.happened.push(LinkEvent { time, id: packet.id, from: packet.from, class, what, behind });
    }

    /// Sends a packet over one side of the tap: from the sender to it, or from it to the receiver.
    fn carry(&mut self, now: Time, mut packet: Packet, behind: bool) {
        let from = packet.from;
        let side = usize::from(behind);
        let trouble = self.link.trouble[from][side];
        if let Some((of, begin, end, side)) = self.link.cut
            && of == from
            && side == behind
            && (begin..end).contains(&now)
        {
            return self.happen(now, &packet, What::Lost, behind);
        }
        let hit = |random: &mut Random, chance: u64| chance > 0 && random.chance(chance, 10_000);
        if hit(&mut self.random, trouble.lose) {
            return self.happen(now, &packet, What::Lost, behind);
        }
        if hit(&mut self.random, trouble.damage) && !packet.damaged && packet.frame.len() > 66 {
            // after the headers that switches read, and not the byte of the BTH that they may change: its CRC excludes
            // it
            let at = 46 + self.random.below(packet.frame.len() as u64 - 46 - 4) as usize;
            let at = if at == 46 && !matches!(packet.body, Body::Tcp(_)) { 47 } else { at };
            packet.frame[at] ^= 1 << self.random.below(8);
            packet.damaged = true;
            self.happen(now, &packet, What::Damaged, behind);
        }
        if hit(&mut self.random, trouble.mark) && packet.frame.len() > 34 && packet.frame[15] & 3 == 2 && !behind {
            packet.frame[15] |= 1;
            frame::renew_checksum(&mut packet.frame[14..34]);
            self.happen(now, &packet, What::Marked, behind);
        }
        let distance = self.link.distance[if behind { 1 - from } else { from }];
        let mut at = now + distance;
        let late = hit(&mut self.random, trouble.delay);
        if late {
            at += trouble.delay_by;
            self.happen(now, &packet, What::Late(trouble.delay_by), behind);
        } else {
            at = at.max(self.last[from][side]);
            self.last[from][side] = at;
        }
        let make = |packet: Packet| if behind { Event::Arrive(packet) } else { Event::Tap(packet) };
        if hit(&mut self.random, trouble.copy) {
            self.happen(now, &packet, What::Copied, behind);
            self.push(at + 2 * MICROSECOND, make(packet.clone()));
            self.last[from][side] = self.last[from][side].max(at + 2 * MICROSECOND);
        }
        self.push(at, make(packet));
    }
}
