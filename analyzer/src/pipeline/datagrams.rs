//! IP fragments put together: RFC 791 3.2, RFC 8200 4.5. The first copy of a fragment counts.

use crate::pieces::Pieces;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use rdmascope_dissector::frame::{Addr, IpFragment};

/// Datagrams put together at the same time at most.
const DATAGRAMS_MAX: usize = 256;
/// Fragments of one datagram at most.
const FRAGMENTS_MAX: usize = 128;

/// Source, destination, identification, protocol.
type Key = (Addr, Addr, u32, u8);

#[derive(Clone, Debug, Default)]
struct Datagram {
    key: Key,
    /// The IP header of the first fragment.
    header: Vec<u8>,
    /// Offset and bytes.
    parts: Vec<(u32, Vec<u8>)>,
    /// Bytes of the whole, once the last fragment came.
    length: Option<u32>,
    have: u32,
    /// Frame of each part.
    frames: Vec<(u32, u64)>,
}

/// A datagram that is whole.
#[derive(Clone, Debug, Default)]
pub(super) struct Whole {
    /// The header of its first fragment, and its payload.
    pub(super) bytes: Vec<u8>,
    /// Bytes of payload.
    pub(super) length: u32,
    /// Frames that it was put together from.
    pub(super) pieces: Pieces,
}

/// Datagrams of which fragments are missing, the oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Datagrams {
    open: VecDeque<Datagram>,
    /// Datagrams given up because there were too many.
    pub(super) dropped: u64,
}

impl Datagrams {
    /// Takes a fragment. Returns the datagram that it completes.
    pub(super) fn take(&mut self, frame: u64, src: Addr, dst: Addr, fragment: &IpFragment<'_>) -> Option<Whole> {
        let key = (src, dst, fragment.id, fragment.protocol);
        let index = match self.open.iter().position(|d| d.key == key) {
            Some(index) => index,
            None => {
                if self.open.len() >= DATAGRAMS_MAX {
                    self.open.pop_front();
                    self.dropped += 1;
                }
                self.open.push_back(Datagram { key, ..Datagram::default() });
                self.open.len() - 1
            }
        };
        let datagram = &mut self.open[index];
        if fragment.offset == 0 {
            datagram.header = fragment.header.to_vec();
        }
        let end = fragment.offset.saturating_add(fragment.payload.len() as u32);
        if end > u32::from(u16::MAX) {
            return None;
        }
        if !fragment.more {
            datagram.length = Some(end);
        }
        if !datagram.parts.iter().any(|(offset, _)| *offset == fragment.offset) && datagram.parts.len() < FRAGMENTS_MAX
        {
            datagram.have += fragment.payload.len() as u32;
            datagram.parts.push((fragment.offset, fragment.payload.to_vec()));
            datagram.frames.push((fragment.offset, frame));
        }
        if datagram.length != Some(datagram.have) || datagram.header.is_empty() {
            return None;
        }
        self.open.remove(index)?.whole()
    }
}

impl Datagram {
    /// `None` if fragments overlap.
    fn whole(mut self) -> Option<Whole> {
        self.parts.sort_by_key(|(offset, _)| *offset);
        let mut bytes = self.header;
        let mut expected = 0;
        for (offset, part) in &self.parts {
            if *offset != expected {
                return None;
            }
            expected += part.len() as u32;
            bytes.extend_from_slice(part);
        }
        self.frames.sort_by_key(|(offset, _)| *offset);
        let mut pieces = Pieces::default();
        self.frames.iter().for_each(|(_, frame)| pieces.add(*frame));
        Some(Whole { bytes, length: expected, pieces })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use rdmascope_dissector::frame::{self, Body, LinkType};
    use rdmascope_dissector::trace::Off;

    const HOSTS: [Addr; 2] = [Addr::V4([10, 0, 0, 1]), Addr::V4([10, 0, 0, 2])];

    /// Takes one fragment. Returns the payload of the datagram that it completes.
    fn take(datagrams: &mut Datagrams, id: u16, offset: u16, payload: &[u8], more: bool) -> Option<Vec<u8>> {
        let mut bytes = vec![0x45, 0];
        bytes.extend((20 + payload.len() as u16).to_be_bytes());
        bytes.extend(id.to_be_bytes());
        bytes.extend(((offset / 8) | (u16::from(more) << 13)).to_be_bytes());
        bytes.extend([64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        bytes.extend_from_slice(payload);
        let packet = frame::decode(LinkType::RAW, &bytes, bytes.len() as u32, &frame::Options::default(), &mut Off);
        let Body::Fragment(fragment) = packet.body else { panic!("no fragment") };
        datagrams.take(1 + u64::from(offset), HOSTS[0], HOSTS[1], &fragment).map(|whole| {
            let mut frames = whole.pieces.frames().to_vec();
            assert_eq!((whole.length as usize, frames.len() as u32), (whole.bytes.len() - 20, whole.pieces.count()));
            frames.sort_unstable();
            assert_eq!(frames, whole.pieces.frames(), "in the order of the datagram");
            whole.bytes[20..].to_vec()
        })
    }

    #[test]
    fn fragments_may_come_in_any_order_and_twice() {
        let pieces = [(0, &b"aaaaaaaa"[..], true), (8, b"bbbbbbbb", true), (16, b"cc", false)];
        for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2], [2, 0, 1]] {
            let mut datagrams = Datagrams::default();
            let mut whole = Vec::new();
            for index in order {
                let (offset, payload, more) = pieces[index];
                whole.extend(take(&mut datagrams, 1, offset, payload, more));
                if whole.is_empty() {
                    // a copy adds nothing, and neither does a fragment of another datagram
                    assert_eq!(take(&mut datagrams, 1, offset, payload, more), None);
                    assert_eq!(take(&mut datagrams, 2, 800, payload, true), None);
                }
            }
            assert_eq!(whole, [b"aaaaaaaabbbbbbbbcc".to_vec()], "{order:?}");
        }
    }

    #[test]
    fn fragments_that_overlap_or_reach_too_far_make_nothing() {
        let mut datagrams = Datagrams::default();
        // as many bytes as there should be, but 8 of them twice and 8 not at all
        let pieces = [(0, [1; 16], true), (8, [2; 16], true), (32, [3; 16], false)];
        assert_eq!(
            pieces.map(|(offset, bytes, more)| take(&mut datagrams, 1, offset, &bytes, more)),
            [None, None, None]
        );
        assert_eq!(take(&mut datagrams, 3, 65_528, &[0; 100], false), None);
    }

    #[test]
    fn the_oldest_is_given_up_when_there_are_too_many() {
        let mut datagrams = Datagrams::default();
        for id in 0..1000 {
            assert_eq!(take(&mut datagrams, id, 0, b"aaaaaaaa", true), None);
        }
        assert_eq!((datagrams.open.len(), datagrams.dropped), (DATAGRAMS_MAX, 1000 - DATAGRAMS_MAX as u64));
        assert_eq!(take(&mut datagrams, 0, 8, b"b", false), None);
        assert_eq!(take(&mut datagrams, 999, 8, b"b", false), Some(b"aaaaaaaab".to_vec()));
    }
}
