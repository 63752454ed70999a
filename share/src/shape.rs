//! Shapes of headers. Frames of the same connection with the same kind of packet have the same shape, so that knowledge
//! about the first holds for the others, and their fields need not be reported one by one.
//!
//! A [`Shape`] consists of the header bytes, with zeros for fields that vary from packet to packet without effect:
//! sequence numbers, identifications, correct lengths, memory addresses, checksums. A [`Plan`] is the knowledge about
//! the first frame of a shape. Only completely captured RoCEv2 packets of reliable connections and TCP segments, on
//! Ethernet, have a shape.

use crate::sums::Fix;
use rdmascope_dissector::field::Def;
use rdmascope_dissector::frame::LinkType;
use rdmascope_dissector::wire::ib::bth::Opcode;
use rdmascope_dissector::wire::ib::icrc::LEN as ICRC;
use rdmascope_dissector::wire::udp::ROCE_V2;
use std::ops::Range;

/// Limit of header bytes that are compared.
const HEADERS_MAX: usize = 128;
/// Limit of shapes.
const SLOTS: usize = 1 << 11;
/// UDP port of RoCEv2.
const ROCE: [u8; 2] = ROCE_V2.to_be_bytes();
/// The first opcode after those of reliable connections.
const RELIABLE_END: u8 = 0x20;

/// Shape of a frame's headers; see the module.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    bytes: [u8; HEADERS_MAX],
    /// Bytes that vary from frame to frame, one bit each.
    varies: u128,
    header: usize,
    tail: usize,
    has_payload: bool,
}

/// Offset that holds for frames of one shape with different lengths.
#[derive(Clone, Copy, Debug)]
enum Offset {
    FromStart(usize),
    FromEnd(usize),
}

impl Offset {
    fn at(self, length: usize) -> usize {
        match self {
            Self::FromStart(at) => at,
            Self::FromEnd(behind) => length - behind,
        }
    }
}

/// Knowledge about the bytes of a frame.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    /// Kept bytes.
    pub(crate) kept: Vec<Range<usize>>,
    /// Replaced bytes with their replacement; `None` for zeros.
    pub(crate) replaced: Vec<(Range<usize>, Option<Vec<u8>>)>,
    /// Runs of bytes that lie inside a field which other fields describe.
    pub(crate) inside: Vec<(Range<usize>, Def)>,
    /// Checksums to recompute.
    pub(crate) fixes: Vec<Fix>,
}

/// Knowledge about all frames of a shape.
#[derive(Debug)]
pub(crate) struct Plan {
    kept: Vec<(Offset, Offset)>,
    replaced: Vec<(usize, Vec<u8>)>,
    inside: Vec<(Offset, Offset, Def)>,
    fixes: Vec<Fix>,
}

impl Shape {
    /// The shape of a frame, if it has one.
    pub(crate) fn of(link_type: LinkType, bytes: &[u8], wire_len: u32) -> Option<Self> {
        if link_type != LinkType::ETHERNET || wire_len as usize != bytes.len() {
            return None;
        }
        let mut at = 14;
        let mut ethertype = [*bytes.get(12)?, *bytes.get(13)?];
        if ethertype == [0x81, 0] {
            ethertype = [*bytes.get(16)?, *bytes.get(17)?];
            at = 18;
        }
        let mut varies = Varies(0);
        let ip = bytes.get(at..)?;
        let stated = |place: usize| ip.get(place..)?.first_chunk().map(|b| usize::from(u16::from_be_bytes(*b)));
        let protocol = match ethertype {
            // no options, no fragment
            [8, 0] if ip.len() >= 20 && ip[0] == 0x45 && ip[6] & 0x3f == 0 && ip[7] == 0 && stated(2)? == ip.len() => {
                varies.add(at + 2..at + 6);
                varies.add(at + 10..at + 12);
                at += 20;
                ip[9]
            }
            [0x86, 0xdd] if ip.len() >= 40 && ip[0] >> 4 == 6 && stated(4)? + 40 == ip.len() => {
                varies.add(at + 4..at + 6);
                at += 40;
                ip[6]
            }
            _ => return None,
        };
        let i = bytes.get(at..)?;
        let (header, tail) = match protocol {
            17 => {
                let [_, _, to @ .., l, m, s, t, opcode, flags, _, _, _, q, r, u, _, _, _, _] = i.first_chunk::<20>()?;
                if *to != ROCE
                    || usize::from(u16::from_be_bytes([*l, *m])) != i.len()
                    || *opcode >= RELIABLE_END
                    || [*q, *r, *u] <= [0, 0, 1]
                {
                    return None;
                }
                varies.add(at + 4..at + 6);
                // a missing checksum is another shape
                if [*s, *t] != [0; 2] {
                    varies.add(at + 6..at + 8);
                }
                varies.add(at + 17..at + 20);
                let length = usize::from(Opcode(*opcode).row()?.length);
                let behind = at + 20;
                match *opcode {
                    // RETH, ImmDt, IETH, and the MSN of an AETH
                    0x03 | 0x05 | 0x06 | 0x09..=0x0c | 0x16 | 0x17 => varies.add(behind..behind + length),
                    0x0d | 0x0f | 0x10 | 0x11 => varies.add(behind + 1..behind + length),
                    _ => {}
                }
                (behind + length, usize::from(flags >> 4 & 3) + ICRC)
            }
            6 => {
                let fixed = i.first_chunk::<20>()?;
                let length = usize::from(fixed[12] >> 4) * 4;
                let options = i.get(20..length)?;
                varies.add(at + 4..at + 12);
                varies.add(at + 14..at + 18);
                // only timestamps
                if options.len() == 12 && options.starts_with(&[1, 1, 8, 10]) {
                    varies.add(at + 24..at + 32);
                }
                (at + length, 0)
            }
            _ => return None,
        };
        let has_payload = match (header + tail).cmp(&bytes.len()) {
            std::cmp::Ordering::Less => true,
            std::cmp::Ordering::Equal => false,
            std::cmp::Ordering::Greater => return None,
        };
        let mut shape = Self { bytes: [0; HEADERS_MAX], varies: varies.0, header, tail, has_payload };
        shape.bytes.get_mut(..header)?.copy_from_slice(&bytes[..header]);
        varies.each(|at| shape.bytes[at] = 0);
        Some(shape)
    }

    fn is(&self, other: &Self) -> bool {
        (self.header, self.tail, self.has_payload, self.varies)
            == (other.header, other.tail, other.has_payload, other.varies)
            && self.bytes[..self.header] == other.bytes[..other.header]
    }

    fn slot(&self) -> usize {
        let (words, _) = self.bytes.as_chunks::<8>();
        let used = &words[..self.header.div_ceil(8).min(words.len())];
        let start = self.tail as u64 | u64::from(self.has_payload) << 8;
        let mixed = used
            .iter()
            .fold(start, |n, word| (n.rotate_left(5) ^ u64::from_le_bytes(*word)).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        (mixed >> 40) as usize % SLOTS
    }

    /// The place of an offset in frames of other lengths; `None` if it depends on the payload.
    fn place(&self, at: usize, length: usize) -> Option<Offset> {
        if at <= self.header {
            Some(Offset::FromStart(at))
        } else {
            (at + self.tail >= length).then_some(Offset::FromEnd(length - at))
        }
    }

    /// Knowledge about all frames of this shape, from that about one of `length` bytes; `None` if it depends on bytes
    /// that vary.
    pub(crate) fn plan(&self, length: usize, notes: Notes) -> Option<Plan> {
        let mut plan = Plan { kept: Vec::new(), replaced: Vec::new(), inside: Vec::new(), fixes: notes.fixes };
        for range in notes.kept {
            plan.kept.push((self.place(range.start, length)?, self.place(range.end, length)?));
        }
        for (range, with) in notes.replaced {
            if range.end > self.header || Varies(self.varies).has_any(range.clone()) {
                return None;
            }
            plan.replaced.push((range.start, with.unwrap_or_else(|| vec![0; range.len()])));
        }
        for (range, def) in notes.inside {
            plan.inside.push((self.place(range.start, length)?, self.place(range.end, length)?, def));
        }
        let is_header = |fix: &Fix| match fix {
            Fix::Icrc { at, .. } => at + ICRC == length,
            Fix::Ip { .. } | Fix::Transport { .. } => true,
            Fix::Vcrc { .. } => false,
        };
        plan.fixes.iter().all(is_header).then_some(plan)
    }
}

impl Plan {
    /// Kept bytes of a frame of this length.
    pub(crate) fn kept(&self, length: usize) -> impl Iterator<Item = Range<usize>> {
        self.kept.iter().map(move |(from, to)| from.at(length)..to.at(length))
    }

    /// Replaced bytes: offset, and replacement.
    pub(crate) fn replaced(&self) -> impl Iterator<Item = (usize, &[u8])> {
        self.replaced.iter().map(|(at, with)| (*at, &with[..]))
    }

    /// Runs inside a field which other fields describe.
    pub(crate) fn inside(&self, length: usize) -> impl Iterator<Item = (Range<usize>, Def)> {
        self.inside.iter().map(move |(from, to, def)| (from.at(length)..to.at(length), *def))
    }

    /// Checksums to recompute in a frame of this length; `is_good` if the decoder verified its invariant CRC.
    pub(crate) fn fixes(&self, length: usize, is_good: bool) -> impl Iterator<Item = Fix> {
        self.fixes.iter().map(move |fix| match *fix {
            Fix::Icrc { cover, start, bth, .. } => Fix::Icrc { cover, start, bth, at: length - ICRC, is_good },
            other => other,
        })
    }
}

/// Set of header bytes, one bit each.
#[derive(Clone, Copy)]
struct Varies(u128);

impl Varies {
    fn bits(range: Range<usize>) -> u128 {
        let (from, to) = (range.start.min(HEADERS_MAX), range.end.min(HEADERS_MAX));
        let below = |at: usize| if at < HEADERS_MAX { (1_u128 << at) - 1 } else { u128::MAX };
        below(to) & !below(from)
    }

    fn add(&mut self, range: Range<usize>) {
        self.0 |= Self::bits(range);
    }

    fn has_any(self, range: Range<usize>) -> bool {
        self.0 & Self::bits(range) != 0
    }

    fn each(self, mut each: impl FnMut(usize)) {
        let mut left = self.0;
        while left != 0 {
            each(left.trailing_zeros() as usize);
            left &= left - 1;
        }
    }
}

/// Shapes, each with its plan and other knowledge.
pub(crate) struct Shapes<T>(Vec<Option<Box<(Shape, Plan, T)>>>);

impl<T> Default for Shapes<T> {
    fn default() -> Self {
        Self((0..SLOTS).map(|_| None).collect())
    }
}

impl<T> Shapes<T> {
    pub(crate) fn find(&self, shape: &Shape) -> Option<&(Shape, Plan, T)> {
        self.0[shape.slot()].as_deref().filter(|(known, ..)| known.is(shape))
    }

    pub(crate) fn add(&mut self, shape: Shape, plan: Plan, what: T) {
        self.0[shape.slot()] = Some(Box::new((shape, plan, what)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: usize = 14 + 20 + 8 + 12;

    /// A Send of RoCEv2; no sum in it is right.
    fn packet(psn: u8, payload: usize) -> Vec<u8> {
        let udp = (8 + 12 + payload + ICRC) as u16;
        let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
        bytes.extend((20 + udp).to_be_bytes());
        bytes.extend([0, psn, 0x40, 0, 64, 17, psn, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0xc0, 0, 0x12, 0xb7]);
        bytes.extend(udp.to_be_bytes());
        bytes.extend([0, 0, 4, 0, 0xff, 0xff, 0, 0, 0, 17, 0x80, 0, 0, psn]);
        bytes.extend(vec![psn; payload + ICRC]);
        bytes
    }

    fn shape(bytes: &[u8]) -> Option<Shape> {
        Shape::of(LinkType::ETHERNET, bytes, bytes.len() as u32)
    }

    fn notes(length: usize) -> Notes {
        Notes {
            kept: vec![12..HEADER, length - ICRC..length],
            replaced: vec![(0..12, Some(vec![7; 12]))],
            ..Notes::default()
        }
    }

    #[test]
    fn packets_of_one_connection_have_one_shape_whatever_their_numbers_and_lengths() {
        let one = shape(&packet(1, 40)).unwrap();
        assert!(one.is(&shape(&packet(9, 100)).unwrap()) && one.slot() == shape(&packet(9, 100)).unwrap().slot());
        assert!(!one.is(&shape(&packet(1, 0)).unwrap()), "without a payload, none is told");
        let is_other = |at: usize| {
            let mut other = packet(1, 40);
            other[at] ^= 1;
            shape(&other).is_none_or(|other| !one.is(&other))
        };
        // addresses, DSCP, time to live, ports, opcode, padding, queue pair, lengths that do not fit
        assert!([0, 7, 15, 22, 29, 33, 34, 37, 42, 43, 49, 17, 39].into_iter().all(is_other));
        let whole = packet(1, 40);
        assert!(Shape::of(LinkType::ETHERNET, &whole, whole.len() as u32 + 1).is_none(), "cut by the capture");
        assert!(shape(&[&whole[..], &[0]].concat()).is_none() && shape(&whole[..50]).is_none() && shape(&[]).is_none());
    }

    #[test]
    fn what_is_known_moves_with_the_end_of_a_frame() {
        let first = packet(1, 40);
        let plan = shape(&first).unwrap().plan(first.len(), notes(first.len())).unwrap();
        let length = packet(2, 100).len();
        assert_eq!(plan.kept(length).collect::<Vec<_>>(), [12..HEADER, length - ICRC..length]);
        assert_eq!(plan.replaced().collect::<Vec<_>>(), [(0, &[7; 12][..])]);
    }

    #[test]
    fn what_hangs_on_what_differs_is_no_plan() {
        let first = packet(1, 40);
        let plan = |notes: Notes| shape(&first).unwrap().plan(first.len(), notes);
        assert!(plan(notes(first.len())).is_some());
        let psn = Notes { replaced: vec![(HEADER - 3..HEADER, None)], ..Notes::default() };
        let payload = Notes { kept: vec![0..2, HEADER + 4..HEADER + 8], ..Notes::default() };
        assert!(plan(psn).is_none() && plan(payload).is_none());
    }
}
