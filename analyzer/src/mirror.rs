//! Mirror sessions and tunnels that frames came through: ERSPAN, GRE, VXLAN, GENEVE. A mirror is part of the capture:
//! it may cut frames, and it may show a packet twice.
//!
//! Spec: draft-foschiano-erspan, RFC 2890, RFC 7348, RFC 8926.
//!
//! ```text
//!   frame ─▶ Mirrors::count ─▶ a bit of a Set ─▶ the connection's own Set ─▶ "ERSPAN II session 17"
//! ```

use crate::stored::stored;
use alloc::vec::Vec;
use rdmascope_dissector::frame::{Tunnel, TunnelKind};

/// Mirror sessions distinguished at most: as many as a [`Set`] has bits.
pub const MIRRORS_MAX: usize = 64;

/// One mirror session, or one tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mirror {
    /// Kind of encapsulation of the frames.
    pub kind: TunnelKind,
    /// ERSPAN session, VXLAN or GENEVE network identifier, GRE key; 0 if there is none.
    pub session: u32,
    /// Frames that came through it.
    pub frames: u64,
    /// Frames that the mirror cut short.
    pub truncated: u64,
}

/// Some of [`Mirrors`], by their places in the list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Set(u64);

impl Set {
    /// Takes another's in.
    #[inline]
    pub fn add(&mut self, other: Set) {
        self.0 |= other.0;
    }

    /// The same in a list in which each has another place. Those without one there are left out.
    #[must_use]
    pub(crate) fn moved(self, to: &[u8]) -> Set {
        let places = self.places().filter_map(|n| to.get(n)).filter(|place| usize::from(**place) < MIRRORS_MAX);
        Set(places.fold(0, |bits, place| bits | 1 << place))
    }

    /// Places in the list, lowest first.
    pub fn places(self) -> impl Iterator<Item = usize> {
        (0..MIRRORS_MAX).filter(move |n| self.0 >> n & 1 == 1)
    }
}

/// All mirror sessions of a capture, in the order of their first frames.
#[derive(Clone, Debug, Default)]
pub struct Mirrors {
    list: Vec<Mirror>,
    /// The first frame of each.
    firsts: Vec<u64>,
    last: usize,
    /// Frames of sessions that found no room in the list.
    pub others: u64,
}

impl Mirrors {
    /// The sessions.
    pub fn list(&self) -> &[Mirror] {
        &self.list
    }

    /// Those of a set.
    pub fn of(&self, set: Set) -> impl Iterator<Item = &Mirror> {
        set.places().filter_map(|n| self.list.get(n))
    }

    /// The lists of parts of one capture, as one list, and the place in it of each session of each part. False if there
    /// are too many: then the last ones are not in it, and their frames are counted together.
    pub(crate) fn join(parts: &[&Mirrors]) -> (Mirrors, Vec<Vec<u8>>, bool) {
        let mut all: Vec<(u64, Mirror)> =
            parts.iter().flat_map(|p| p.firsts.iter().copied().zip(p.list.iter().copied())).collect();
        all.sort_by_key(|(first, _)| *first);
        let mut joined = Mirrors { others: parts.iter().map(|part| part.others).sum(), ..Mirrors::default() };
        for (first, mirror) in all {
            let is_full = joined.list.len() == MIRRORS_MAX;
            match joined.list.iter_mut().find(|m| (m.kind, m.session) == (mirror.kind, mirror.session)) {
                Some(known) => {
                    known.frames += mirror.frames;
                    known.truncated += mirror.truncated;
                }
                None if is_full => joined.others += mirror.frames,
                None => {
                    joined.list.push(mirror);
                    joined.firsts.push(first);
                }
            }
        }
        let place = |m: &Mirror| {
            let place = joined.list.iter().position(|k| (k.kind, k.session) == (m.kind, m.session));
            place.unwrap_or(MIRRORS_MAX) as u8
        };
        let places = parts.iter().map(|p| p.list.iter().map(place).collect()).collect();
        let is_whole = joined.others == 0;
        (joined, places, is_whole)
    }

    /// Counts a frame, by its number. The session it came through is in the set; none if there are too many of them.
    pub fn count(&mut self, tunnel: &Tunnel, frame: u64) -> Set {
        let is_this = |m: &Mirror| m.kind == tunnel.kind && m.session == tunnel.id;
        let place = match self.list.get(self.last).is_some_and(is_this) {
            true => Some(self.last),
            false => self.list.iter().position(is_this),
        };
        let place = match place {
            Some(place) => place,
            None if self.list.len() == MIRRORS_MAX => {
                self.others += 1;
                return Set::default();
            }
            None => {
                self.list.push(Mirror { kind: tunnel.kind, session: tunnel.id, frames: 0, truncated: 0 });
                self.firsts.push(frame);
                self.list.len() - 1
            }
        };
        self.last = place;
        self.list[place].frames += 1;
        self.list[place].truncated += u64::from(tunnel.truncated);
        Set(1 << place)
    }
}

stored!(Mirror { kind, session, frames, truncated });
stored!(Set { 0 });
stored!(Mirrors { list, firsts, last, others });

#[cfg(test)]
mod tests {
    use super::*;

    fn tunnel(id: u32, truncated: bool) -> Tunnel {
        Tunnel { kind: TunnelKind::Erspan2, id, truncated }
    }

    #[test]
    fn sessions_are_counted_apart() {
        let mut mirrors = Mirrors::default();
        let mut seen = Set::default();
        for (id, truncated) in [(17, false), (18, true), (17, true), (17, false)] {
            seen.add(mirrors.count(&tunnel(id, truncated), 1));
        }
        let counted: Vec<_> = mirrors.list().iter().map(|m| (m.session, m.frames, m.truncated)).collect();
        assert_eq!(counted, [(17, 3, 1), (18, 1, 1)]);
        assert_eq!(mirrors.of(seen).map(|m| m.session).collect::<Vec<_>>(), [17, 18]);
        assert_eq!(seen.places().collect::<Vec<_>>(), [0, 1]);
    }

    #[test]
    fn too_many_sessions_are_counted_together() {
        let mut mirrors = Mirrors::default();
        for id in 0..100 {
            assert_eq!(mirrors.count(&tunnel(id, false), 1) == Set::default(), id >= 64);
        }
        assert_eq!((mirrors.list().len(), mirrors.others), (64, 36));
    }
}
