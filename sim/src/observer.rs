//! Captures of the traffic: never more than passed the tap, often less, and not always in order.

use crate::frame;
use crate::random::Random;
use crate::transport::{MICROSECOND, MILLISECOND, Time};
use crate::world::Tapped;

/// A frame of a capture.
#[derive(Clone, Debug)]
pub struct Record {
    /// Its time in ns, by the capture's clock.
    pub time: Time,
    /// The captured bytes.
    pub bytes: Vec<u8>,
    /// Its length on the wire.
    pub length: u32,
    /// The interface.
    pub interface: u32,
    /// Number of the end that sent it.
    pub from: usize,
}

/// Ways of capturing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Observer {
    /// The whole traffic.
    Whole,
    /// The traffic after this fraction, in thousandths.
    Late(u64),
    /// The traffic up to this fraction, in thousandths.
    Early(u64),
    /// Loses this number of 10,000 frames.
    Lossy(u64),
    /// Captures this number of bytes of each frame.
    Snap(usize),
    /// Captures one direction.
    OneWay(usize),
    /// Captures each frame twice, with this distance in ns; with `true`, the second time behind a router.
    Twice(Time, bool),
    /// Captures frames that a mirror sends through a VXLAN tunnel.
    Tunnel,
    /// Captures with a clock of this resolution, in ns.
    Coarse(Time),
    /// Captures each direction on an interface of its own; the clock of the second is wrong by this number of ns.
    Two(Time),
    /// Swaps this number of 1,000 frames with their neighbour, if it is within 1 ms.
    Swapped(u64),
    /// Captures with times that are late by up to this number of ns; frames are in the order of these times.
    Jitter(Time),
}

impl Observer {
    /// The observer of a seed.
    pub fn any(random: &mut Random) -> Self {
        if random.chance(2, 5) {
            return Self::Whole;
        }
        match random.below(11) {
            0 => Self::Late(random.below(1000)),
            1 => Self::Early(random.below(1000)),
            2 => Self::Lossy(random.pick(&[10, 50, 100, 500])),
            3 => Self::Snap(random.pick(&[64, 96, 128, 256, 512])),
            4 => Self::OneWay(random.below(2) as usize),
            5 => Self::Twice(
                random.pick(&[
                    MICROSECOND,
                    10 * MICROSECOND,
                    50 * MICROSECOND,
                    500 * MICROSECOND,
                    MILLISECOND,
                    5 * MILLISECOND,
                    10 * MILLISECOND,
                ]),
                random.chance(1, 3),
            ),
            6 => Self::Tunnel,
            7 => Self::Coarse(random.pick(&[MICROSECOND, 10 * MICROSECOND, MILLISECOND])),
            8 => Self::Two(random.pick(&[0, 5 * MICROSECOND, -5 * MICROSECOND, 100 * MICROSECOND, -100 * MICROSECOND])),
            9 => Self::Swapped(random.pick(&[5, 20, 50])),
            _ => Self::Jitter(random.pick(&[5 * MICROSECOND, 50 * MICROSECOND])),
        }
    }

    /// Its name in tables.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::Late(_) => "begins late",
            Self::Early(_) => "ends early",
            Self::Lossy(_) => "loses frames",
            Self::Snap(_) => "cuts frames",
            Self::OneWay(_) => "one direction",
            Self::Twice(..) => "every frame twice",
            Self::Tunnel => "tunnel",
            Self::Coarse(_) => "coarse clock",
            Self::Two(_) => "two interfaces",
            Self::Swapped(_) => "neighbours swapped",
            Self::Jitter(_) => "jitter",
        }
    }

    /// True if every packet is captured once, complete and in order.
    pub fn sees_all(&self) -> bool {
        matches!(self, Self::Whole | Self::Tunnel | Self::Coarse(_) | Self::Two(0)) || matches!(self, Self::Twice(..))
    }

    /// The capture.
    pub fn look(&self, tapped: &[Tapped], random: &mut Random) -> Vec<Record> {
        let count = tapped.len() as u64;
        let all = tapped.iter().map(|t| Record {
            time: t.time + EPOCH,
            bytes: t.frame.clone(),
            length: t.frame.len() as u32,
            interface: 0,
            from: t.from,
        });
        match *self {
            Self::Whole => all.collect(),
            Self::Late(part) => all.skip((count * part / 1000) as usize).collect(),
            Self::Early(part) => all.take((count * part / 1000) as usize).collect(),
            Self::Lossy(chance) => all.filter(|_| !random.chance(chance, 10_000)).collect(),
            Self::Snap(length) => all
                .map(|mut r| {
                    r.bytes.truncate(length);
                    r
                })
                .collect(),
            Self::OneWay(from) => all.filter(|r| r.from == from).collect(),
            Self::Twice(gap, hop) => {
                let first: Vec<_> = all.collect();
                // a pause frame stays on its link
                let second = first.iter().zip(tapped).filter(|(_, t)| t.id > 0).map(|(r, _)| {
                    let mut r = Record { time: r.time + gap, ..r.clone() };
                    if hop {
                        route(&mut r.bytes);
                    }
                    r
                });
                let mut out: Vec<_> = first.iter().cloned().chain(second).collect();
                out.sort_by_key(|r| r.time);
                out
            }
            Self::Tunnel => all
                .map(|mut r| {
                    r.bytes = vxlan(&r.bytes);
                    r.length = r.bytes.len() as u32;
                    r
                })
                .collect(),
            Self::Coarse(unit) => all.map(|r| Record { time: r.time / unit * unit, ..r }).collect(),
            Self::Two(skew) => {
                let mut out: Vec<_> = all
                    .map(|r| Record {
                        interface: r.from as u32,
                        time: r.time + if r.from == 1 { skew } else { 0 },
                        ..r
                    })
                    .collect();
                out.sort_by_key(|r| r.time);
                out
            }
            Self::Swapped(chance) => {
                let mut out: Vec<_> = all.collect();
                let mut at = 0;
                while at + 1 < out.len() {
                    // queues of an adapter are emptied one after the other, but none waits for long
                    if random.chance(chance, 1000) && out[at + 1].time - out[at].time <= MILLISECOND {
                        let times = (out[at].time, out[at + 1].time);
                        out.swap(at, at + 1);
                        (out[at].time, out[at + 1].time) = times;
                        at += 1;
                    }
                    at += 1;
                }
                out
            }
            Self::Jitter(most) => {
                let mut out: Vec<_> = all.map(|r| Record { time: r.time + random.within(0, most), ..r }).collect();
                out.sort_by_key(|r| r.time);
                out
            }
        }
    }
}

/// The first packet's time, in ns since 1970.
pub const EPOCH: Time = 1_700_000_000_000_000_000;

/// Changes a frame as a router does.
fn route(frame: &mut [u8]) {
    if frame[12..14] == [8, 0] {
        frame[5] ^= 0x40;
        frame[22] -= 1;
        frame::renew_checksum(&mut frame[14..34]);
    }
}

/// Ethernet, IPv4, UDP and VXLAN around a frame.
fn vxlan(inner: &[u8]) -> Vec<u8> {
    let mut out = vec![2, 0, 0, 0, 9, 1, 2, 0, 0, 0, 9, 2, 8, 0, 0x45, 0];
    out.extend((20 + 8 + 8 + inner.len() as u16).to_be_bytes());
    out.extend([0, 0, 0, 0, 64, 17, 0, 0, 192, 168, 0, 1, 192, 168, 0, 2, 0xd0, 0, 0x12, 0xb5]);
    out.extend((8 + 8 + inner.len() as u16).to_be_bytes());
    out.extend([0, 0, 8, 0, 0, 0, 0, 0, 42, 0]);
    frame::renew_checksum(&mut out[14..34]);
    out.extend_from_slice(inner);
    out
}

/// A capture as a pcapng file, with times in ns.
pub fn pcapng(records: &[Record]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut block = |kind: u32, body: &[u8]| {
        let length = (12 + body.len().next_multiple_of(4)) as u32;
        out.extend(kind.to_le_bytes());
        out.extend(length.to_le_bytes());
        out.extend_from_slice(body);
        out.resize(out.len().next_multiple_of(4), 0);
        out.extend(length.to_le_bytes());
    };
    block(0x0a0d_0d0a, &[&0x1a2b_3c4d_u32.to_le_bytes()[..], &[1, 0, 0, 0], &[0xff; 8]].concat());
    for _ in 0..=records.iter().map(|r| r.interface).max().unwrap_or(0) {
        // Ethernet; if_tsresol 9
        block(1, &[1, 0, 0, 0, 0, 0, 0, 0, 9, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
    }
    for r in records {
        let time = r.time as u64;
        let mut body = Vec::new();
        for word in [r.interface, (time >> 32) as u32, time as u32, r.bytes.len() as u32, r.length] {
            body.extend(word.to_le_bytes());
        }
        body.extend_from_slice(&r.bytes);
        block(6, &body);
    }
    out
}
