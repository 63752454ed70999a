//! DDP, Direct Data Placement: RFC 5041. Big-endian. One segment is the ULPDU of one FPDU.
//!
//! ```text
//! tagged   T|L|rsvd|DV  RsvdULP(1)  STag(4)  TO(8)              into registered memory
//! untagged T|L|rsvd|DV  RsvdULP(5)  QN(4)  MSN(4)  MO(4)        into the next buffer of a queue
//! ```
//!
//! The RsvdULP bytes are the upper layer's: [`super::rdmap`].

use crate::fault::PResult;
use crate::field::FieldSet;
use crate::leaf::read;
use crate::trace::{Off, Trace, scope};
use alloc::vec::Vec;

fields! {
    /// The protocol and what is not a fixed header.
    pub mod f ["RFC 5041 4"] {
        PROTOCOL: Protocol = "iwarp_ddp_rdmap", "iWARP Direct Data Placement and Remote Direct Memory Access Protocol";
        HEADER: None = "iwarp_ddp", "DDP header";
        RESERVED_ULP: Bytes = "iwarp_ddp.rsvdulp", "Reserved for use by the ULP";
    }
}

header! {
    /// Opens every segment.
    pub struct Control [NODE = "iwarp_ddp.control_field", "DDP control field", "RFC 5041 4.1"] {
        flags: u8 = "_", "Control", hex, bits {
            tagged: bool & 0x80 = "iwarp_ddp.tagged_flag", "Tagged flag";
            /// The last segment of its message.
            last: bool & 0x40 = "iwarp_ddp.last_flag", "Last flag";
            reserved: u8 & 0x3c = "iwarp_ddp.rsvd", "Reserved", hex;
            /// 1.
            version: u8 & 0x03 = "iwarp_ddp.dv", "DDP protocol version", dec;
        };
    }
}

header! {
    /// Place of the bytes in registered memory.
    pub struct Tagged [NODE = "iwarp_ddp.tagged", "Tagged buffer model", "RFC 5041 4.2"] {
        stag: be32 = "iwarp_ddp.stag", "(Data Sink) Steering Tag", hex;
        /// Offset of the first byte of this segment.
        offset: be64 = "iwarp_ddp.tagged_offset", "(Data Sink) Tagged offset", hex;
    }
}

header! {
    /// Queue and buffer that the bytes are for.
    pub struct Untagged [NODE = "iwarp_ddp.untagged", "Untagged buffer model", "RFC 5041 4.3"] {
        /// 0 Sends, 1 Read Requests, 2 Terminate, 3 Atomic Responses.
        queue: be32 = "iwarp_ddp.qn", "Queue number", dec;
        /// Counts the messages of a queue, from 1.
        msn: be32 = "iwarp_ddp.msn", "Message sequence number", dec;
        /// Offset of the first byte of this segment.
        offset: be32 = "iwarp_ddp.mo", "Message offset", dec;
    }
}

/// Buffer model of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buffer {
    /// Into registered memory.
    Tagged(Tagged),
    /// Into the next buffer of a queue.
    Untagged(Untagged),
}

/// A DDP segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ddp<'a> {
    /// Flags and version.
    pub control: Control,
    /// The first byte of RsvdULP.
    pub ulp: u8,
    /// The other four of an untagged segment; 0 in a tagged one.
    pub ulp_word: u32,
    /// Target of the payload.
    pub buffer: Buffer,
    /// Captured part of the payload.
    pub payload: &'a [u8],
}

impl Ddp<'_> {
    /// Length of a tagged header.
    pub const TAGGED_LEN: usize = 14;
    /// Length of an untagged header.
    pub const UNTAGGED_LEN: usize = 18;

    /// Length of this header.
    pub const fn header_len(&self) -> usize {
        match self.buffer {
            Buffer::Tagged(_) => Self::TAGGED_LEN,
            Buffer::Untagged(_) => Self::UNTAGGED_LEN,
        }
    }

    /// Encodes header and payload at the end of `out`. The tagged flag is taken from `buffer`.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let tagged = matches!(self.buffer, Buffer::Tagged(_));
        out.push((self.control.flags & 0x7f) | if tagged { 0x80 } else { 0 });
        out.push(self.ulp);
        match self.buffer {
            Buffer::Tagged(b) => b.emit(out),
            Buffer::Untagged(b) => {
                out.extend_from_slice(&self.ulp_word.to_be_bytes());
                b.emit(out);
            }
        }
        out.extend_from_slice(self.payload);
    }
}

/// Decodes the header of a segment in a subtree; the payload is all that follows it.
#[inline]
pub fn parse<'a, T: Trace>(i: &'a [u8], t: &mut T) -> PResult<'a, Ddp<'a>> {
    scope(f::HEADER, i, t, |i, t| {
        const SET: FieldSet = f::SET.and(Control::SET).and(Tagged::SET).and(Untagged::SET);
        if T::ON && !t.wants(&SET) {
            return fields(i, &mut Off);
        }
        fields(i, t)
    })
}

#[inline(always)]
fn fields<'a, T: Trace>(i: &'a [u8], t: &mut T) -> PResult<'a, Ddp<'a>> {
    let (i, control) = Control::parse(i, t)?;
    if control.tagged() {
        let (i, ulp) = read::bytes(f::RESERVED_ULP, 1, i, t)?;
        let (payload, buffer) = Tagged::parse(i, t)?;
        return Ok((payload, Ddp { control, ulp: ulp[0], ulp_word: 0, buffer: Buffer::Tagged(buffer), payload }));
    }
    let (i, ulp) = read::array::<5, T>(f::RESERVED_ULP, i, t)?;
    let (payload, buffer) = Untagged::parse(i, t)?;
    let ulp_word = u32::from_be_bytes([ulp[1], ulp[2], ulp[3], ulp[4]]);
    Ok((payload, Ddp { control, ulp: ulp[0], ulp_word, buffer: Buffer::Untagged(buffer), payload }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Tree;

    const SEND: &[u8] = &[0x41, 0x44, 0, 0, 0x12, 0x34, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 8, 0xaa, 0xbb];
    const WRITE: &[u8] = &[0xc1, 0x40, 0, 0, 0xab, 0xcd, 0, 0, 0, 1, 0, 0, 0x10, 0, 9];

    #[test]
    fn both_models_read_back() {
        let (_, send) = parse(SEND, &mut Off).unwrap();
        assert!(send.control.last() && !send.control.tagged());
        assert_eq!(
            (send.control.version(), send.ulp, send.ulp_word, send.payload),
            (1, 0x44, 0x1234, &[0xaa, 0xbb][..])
        );
        assert_eq!(send.buffer, Buffer::Untagged(Untagged { queue: 0, msn: 5, offset: 8 }));
        let (_, write) = parse(WRITE, &mut Off).unwrap();
        assert_eq!(write.buffer, Buffer::Tagged(Tagged { stag: 0xabcd, offset: 0x1_0000_1000 }));
        for bytes in [SEND, WRITE] {
            let mut out = Vec::new();
            parse(bytes, &mut Off).unwrap().1.emit(&mut out);
            assert_eq!(out, bytes);
        }
    }

    #[test]
    fn every_prefix_gives_its_fields_and_a_fault() {
        for (bytes, len) in [(SEND, 18), (WRITE, 14)] {
            for n in 0..len {
                let mut tree = Tree::new();
                tree.begin(&bytes[..n]);
                assert!(parse(&bytes[..n], &mut tree).is_err());
                assert_eq!((tree.faults.len(), tree.number("iwarp_ddp.dv").is_some()), (1, n >= 1));
                assert!(tree.nodes.iter().all(|node| (node.offset + node.len) as usize <= n));
            }
        }
    }
}
