//! The payload of one READ or WRITE put together from RDMA or inline bytes, with a map of what is missing.

use crate::env::Env;
use crate::exchange::Exchange;
use crate::report::Sink;
use alloc::vec::Vec;
use sha2::{Digest, Sha256};

/// Bytes of one payload put together at most.
pub const PAYLOAD_MAX: u64 = 16 << 20;

/// One payload.
#[derive(Clone, Debug, Default)]
pub struct Payload {
    bytes: Vec<u8>,
    /// What is there: ranges from–to, apart and ascending.
    have: Vec<(u64, u64)>,
}

impl Payload {
    /// What was captured of a piece at `offset` in the payload. What was not captured stays a hole.
    pub fn put(&mut self, offset: u64, bytes: &[u8]) {
        let Some(end) = offset.checked_add(bytes.len() as u64).filter(|end| *end <= PAYLOAD_MAX) else { return };
        if bytes.is_empty() {
            return;
        }
        if (self.bytes.len() as u64) < end {
            self.bytes.resize(end as usize, 0);
        }
        self.bytes[offset as usize..end as usize].copy_from_slice(bytes);
        self.add(offset, end);
    }

    /// Bytes that are not there of the first `length`.
    pub fn holes(&self, length: u64) -> u64 {
        let have: u64 = self.have.iter().map(|(from, to)| (*to).min(length).saturating_sub(*from)).sum();
        length - have.min(length)
    }

    /// Gives all of its first `length` bytes to `change`, to change what they are and not how many. `None` where they are not all there.
    pub fn change<R>(&mut self, length: u64, change: impl FnOnce(&mut Vec<u8>) -> R) -> Option<R> {
        if length == 0 || self.holes(length) > 0 || length > self.bytes.len() as u64 {
            return None;
        }
        self.bytes.truncate(length as usize);
        Some(change(&mut self.bytes))
    }

    /// The exchange is complete, or never will be; its payload has `length` bytes. They go to whoever listens and its hash, where it is whole, into the row.
    pub fn seal<S: Sink>(&self, exchange: &mut Exchange, length: u64, env: &mut Env<S>) {
        let holes = self.holes(length);
        if holes > 0 {
            exchange.payload_holes = Some(holes);
        } else if length > 0 && length <= self.bytes.len() as u64 {
            exchange.sha256 = Some(Sha256::digest(&self.bytes[..length as usize]).into());
        }
        let base = exchange.offset.unwrap_or(0);
        for (from, to) in &self.have {
            let to = (*to).min(length);
            if *from < to {
                env.sink.payload(exchange, base.saturating_add(*from), &self.bytes[*from as usize..to as usize]);
            }
        }
    }

    fn add(&mut self, from: u64, to: u64) {
        // pieces come in order nearly always
        if let Some(last) = self.have.last_mut().filter(|last| last.0 <= from && from <= last.1) {
            last.1 = last.1.max(to);
            return;
        }
        let (mut from, mut to) = (from, to);
        self.have.retain(|(f, t)| {
            let apart = *t < from || to < *f;
            if !apart {
                from = from.min(*f);
                to = to.max(*t);
            }
            apart
        });
        let place = self.have.partition_point(|(f, _)| *f < from);
        self.have.insert(place, (from, to));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_are_known() {
        let mut payload = Payload::default();
        payload.put(0, &[1; 10]);
        payload.put(20, &[2; 10]);
        assert_eq!(payload.holes(30), 10);
        payload.put(5, &[3; 20]);
        assert_eq!((payload.holes(30), payload.have.as_slice()), (0, &[(0, 30)][..]));
        payload.put(u64::MAX, &[1]);
        payload.put(PAYLOAD_MAX, &[1]);
        assert_eq!(payload.holes(31), 1);
        assert_eq!((payload.change(31, |_| ()), payload.change(0, |_| ())), (None, None));
        assert_eq!(payload.change(12, |bytes| bytes.len()), Some(12));
    }
}
