//! Packets that a mirror shows twice, told from packets that were sent twice.
//!
//! Spec: RFC 6864 (IP identification). What a host sends again is a new datagram, with another identification where it has one at all;
//! a copy that a mirror port made is the same datagram, and follows soon.

use crate::op::At;

/// Packets of one direction that are remembered.
const REMEMBERED: usize = 16;
/// A copy follows its original within so many µs, where identification and contents are the same.
const SAME_DATAGRAM: u32 = 10_000;
/// The same, where datagrams have no identification.
const SAME_CONTENTS: u32 = 20;
/// The same, where nothing was asked for again: no timeout of a sender is so short.
const SAME_CONTENTS_CALM: u32 = 500;

/// The last packets of one direction.
#[derive(Clone, Copy, Debug)]
pub struct Copies {
    last: [Seen; REMEMBERED],
    /// How many there are, and above that where the next goes.
    next: u8,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    number: u32,
    mark: u32,
    /// µs, the lower 32 bits.
    time: u32,
    /// The frame, the lower 32 bits.
    frame: u32,
}

impl Default for Copies {
    fn default() -> Self {
        Self { last: [Seen { number: 0, mark: 0, time: 0, frame: 0 }; REMEMBERED], next: 0 }
    }
}

/// What a datagram and its copy have in common: the IP identification, and what else tells contents apart.
pub fn mark(ip_id: u16, contents: u16) -> u32 {
    u32::from(ip_id) << 16 | u32::from(contents)
}

impl Copies {
    /// Remembers a packet with this sequence number.
    #[inline]
    pub fn add(&mut self, at: At, number: u32, mark: u32) {
        self.last[usize::from(self.next) % REMEMBERED] = Seen { number, mark, time: micros(at), frame: at.frame as u32 };
        // beyond all places the numbers go round above them
        self.next = if usize::from(self.next) == 2 * REMEMBERED - 1 { REMEMBERED as u8 } else { self.next + 1 };
    }

    /// The last frame before `at` in which a packet with this sequence number stood.
    pub fn frame_of(&self, at: At, number: u32) -> Option<u64> {
        let known = &self.last[..usize::from(self.next).min(REMEMBERED)];
        let ago = known.iter().filter(|seen| seen.number == number).map(|seen| (at.frame as u32).wrapping_sub(seen.frame)).min()?;
        at.frame.checked_sub(ago.into()).filter(|_| ago > 0)
    }

    /// Whether a packet is the copy of one of the last. `calm`: nobody asked for it again, and it is sent again after a timeout only.
    pub fn has(&self, at: At, number: u32, mark: u32, calm: bool) -> bool {
        let within = match (mark >> 16, calm) {
            (0, false) => SAME_CONTENTS,
            (0, true) => SAME_CONTENTS_CALM,
            _ => SAME_DATAGRAM,
        };
        let known = &self.last[..usize::from(self.next).min(REMEMBERED)];
        known.iter().any(|seen| (seen.number, seen.mark) == (number, mark) && micros(at).wrapping_sub(seen.time) <= within)
    }
}

/// Packets of a direction that must have been seen before a mirror is recognised.
const ENOUGH: u64 = 8;

/// Whether a mirror shows every packet twice: about half of what both directions sent stands in the capture again. Recovery repeats packets
/// of one direction, and never all of them. `of` and `again` by direction.
pub fn is_mirrored(of: [u64; 2], again: [u64; 2]) -> bool {
    of.iter().sum::<u64>() >= 2 * ENOUGH && of.iter().zip(again).all(|(of, again)| *of >= ENOUGH / 2 && again * 20 >= of * 9)
}

fn micros(at: At) -> u32 {
    (at.time / 1000) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(time: i64) -> At {
        At { frame: 1, time }
    }

    #[test]
    fn a_mirror_shows_both_directions_twice() {
        assert!(is_mirrored([200, 40], [100, 19]));
        assert!(!is_mirrored([200, 40], [100, 2]), "one direction repeats itself");
        assert!(!is_mirrored([200, 40], [80, 20]), "not all of it");
        assert!(!is_mirrored([8, 6], [4, 3]), "too few to tell");
    }

    #[test]
    fn a_copy_is_the_same_datagram_soon_after() {
        let mut copies = Copies::default();
        assert!(!copies.has(at(0), 0, 0, false), "nothing was seen");
        copies.add(at(1_000), 7, mark(500, 9));
        assert!(copies.has(at(2_000_000), 7, mark(500, 9), false));
        assert!(!copies.has(at(2_000_000), 7, mark(501, 9), false), "sent again");
        assert!(!copies.has(at(2_000_000), 7, mark(500, 8), false), "other contents");
        assert!(!copies.has(at(20_000_000), 7, mark(500, 9), false), "too late");
        copies.add(at(1_000), 8, mark(0, 9));
        assert!(
            copies.has(at(5_000), 8, mark(0, 9), false) && !copies.has(at(50_000), 8, mark(0, 9), false),
            "without an identification only time tells"
        );
        assert!(
            copies.has(at(50_000), 8, mark(0, 9), true) && !copies.has(at(900_000), 8, mark(0, 9), true),
            "and whether it was asked for"
        );
        for n in 100..116 {
            copies.add(at(2_000), n, mark(500, 9));
        }
        assert!(!copies.has(at(3_000), 7, mark(500, 9), false), "forgotten");
    }
}
