//! The payload of one READ or WRITE put together from RDMA or inline bytes, with a map of the holes.

use crate::exchange::Exchange;
use crate::sink::Sink;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use sha2::{Digest, Sha256};

/// Bytes of one payload put together at most.
pub(crate) const PAYLOAD_MAX: u64 = 16 << 20;
/// Bytes that a piece takes besides its own, about.
pub(crate) const PIECE: usize = 64;

/// One payload. It takes as much memory as was captured of it, however long it is said to be.
#[derive(Clone, Debug, Default)]
pub(crate) struct Payload {
    /// Pieces by their offset in bytes. They do not overlap; they may touch.
    pieces: BTreeMap<u64, Vec<u8>>,
    given_up: bool,
}

impl Payload {
    /// Bytes of memory that it holds, about.
    pub(crate) fn held(&self) -> usize {
        self.pieces.values().map(|piece| piece.capacity() + PIECE).sum()
    }

    /// Gives back its memory: what was captured of it, and what is still to come, stays a hole.
    pub(crate) fn give_up(&mut self) {
        (self.pieces, self.given_up) = (BTreeMap::new(), true);
    }

    /// Adds the captured bytes of a piece at `offset` in the payload. Bytes that were not captured stay a hole; of
    /// bytes that come twice the later ones stay.
    pub(crate) fn put(&mut self, offset: u64, bytes: &[u8]) {
        let Some(end) = offset.checked_add(bytes.len() as u64).filter(|end| *end <= PAYLOAD_MAX && !self.given_up)
        else {
            return;
        };
        let (mut at, mut rest) = (offset, bytes);
        while !rest.is_empty() {
            let before = self.pieces.range_mut(..=at).next_back().map(|(from, piece)| ((at - from) as usize, piece));
            if let Some((place, piece)) = before
                && place < piece.len()
            {
                let n = rest.len().min(piece.len() - place);
                piece[place..place + n].copy_from_slice(&rest[..n]);
                (at, rest) = (at + n as u64, &rest[n..]);
                continue;
            }
            let next = self.pieces.range(at..end).next().map_or(end, |(from, _)| *from);
            let (new, later) = rest.split_at((next - at) as usize);
            match self.pieces.range_mut(..=at).next_back() {
                // pieces come in order nearly always
                Some((from, piece)) if from + piece.len() as u64 == at => piece.extend_from_slice(new),
                _ => drop(self.pieces.insert(at, new.to_vec())),
            }
            (at, rest) = (next, later);
        }
    }

    /// Bytes that are not there of the first `length`.
    pub(crate) fn holes(&self, length: u64) -> u64 {
        let have: u64 = self.pieces.range(..length).map(|(from, piece)| (piece.len() as u64).min(length - from)).sum();
        length - have
    }

    /// Gives all of its first `length` bytes to `change`, which may change their values but not their number. `None` if
    /// they are not all there.
    pub(crate) fn change<R>(&mut self, length: u64, change: impl FnOnce(&mut Vec<u8>) -> R) -> Option<R> {
        if length == 0 || self.holes(length) > 0 {
            return None;
        }
        let mut whole = Vec::with_capacity(length as usize);
        core::mem::take(&mut self.pieces).into_values().for_each(|piece| whole.extend_from_slice(&piece));
        whole.truncate(length as usize);
        let result = change(&mut whole);
        self.pieces.insert(0, whole);
        Some(result)
    }

    /// The exchange is complete, or never will be; its payload has `length` bytes. They go to the sink; their hash, if
    /// the payload is whole, goes into the row.
    pub(crate) fn finish(&self, exchange: &mut Exchange, length: u64, sink: &mut dyn Sink) {
        let holes = self.holes(length);
        let pieces = || {
            self.pieces
                .range(..length)
                .map(|(from, piece)| (*from, &piece[..piece.len().min((length - from) as usize)]))
        };
        if holes > 0 {
            exchange.payload_holes = Some(holes);
        } else if length > 0 {
            let mut hash = Sha256::new();
            pieces().for_each(|(_, piece)| hash.update(piece));
            exchange.sha256 = Some(hash.finalize().into());
        }
        let base = exchange.offset.unwrap_or(0);
        for (from, piece) in pieces() {
            sink.payload(exchange, base.saturating_add(from), piece);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn holes_are_known() {
        let mut payload = Payload::default();
        payload.put(0, &[1; 10]);
        payload.put(20, &[2; 10]);
        assert_eq!(payload.holes(30), 10);
        payload.put(5, &[3; 20]);
        assert_eq!((payload.holes(30), payload.holes(31)), (0, 1));
        payload.put(u64::MAX, &[1]);
        payload.put(PAYLOAD_MAX, &[1]);
        assert_eq!(payload.holes(31), 1);
        assert_eq!((payload.change(31, |_| ()), payload.change(0, |_| ())), (None, None));
        let expected = [vec![1; 5], vec![3; 20], vec![2; 5]].concat();
        assert_eq!(payload.change(30, |bytes| bytes.clone()), Some(expected));
        assert_eq!(payload.change(12, |bytes| bytes.len()), Some(12));
    }

    #[test]
    fn a_byte_far_out_costs_a_byte() {
        let mut payload = Payload::default();
        payload.put(PAYLOAD_MAX - 1, &[1]);
        assert_eq!(payload.pieces.values().map(Vec::capacity).max(), Some(1));
        assert_eq!(payload.holes(PAYLOAD_MAX), PAYLOAD_MAX - 1);
    }

    #[test]
    fn a_payload_that_was_given_up_is_a_hole_and_takes_no_memory() {
        let mut payload = Payload::default();
        payload.put(0, &[1; 1000]);
        assert!((1000..2000).contains(&payload.held()));
        payload.give_up();
        payload.put(1000, &[1; 1000]);
        assert_eq!((payload.held(), payload.holes(2000)), (0, 2000));
    }

    #[test]
    fn pieces_in_any_order_that_overlap_in_any_way_make_the_whole() {
        let mut state = 1u32;
        let mut random = |below: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) % below
        };
        for _ in 0..200 {
            let (mut payload, mut model) = (Payload::default(), [None; 64]);
            for value in 0..12u8 {
                let from = random(64);
                let len = random(64 - from + 1);
                payload.put(u64::from(from), &vec![value; len as usize]);
                model[from as usize..(from + len) as usize].fill(Some(value));
            }
            let mut seen = [None; 64];
            for (from, piece) in &payload.pieces {
                for (at, byte) in (*from as usize..).zip(piece) {
                    assert!(seen[at].replace(*byte).is_none(), "pieces overlap");
                }
            }
            assert_eq!(seen, model);
            assert_eq!(payload.holes(64), model.iter().filter(|b| b.is_none()).count() as u64);
        }
    }
}
