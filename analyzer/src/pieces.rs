//! Frames that a message was put together from. The names are Wireshark's if it has some; RoCE and InfiniBand have none
//! there.

use alloc::vec::Vec;
use rdmascope_dissector::field::{Def, Fields};
use rdmascope_dissector::fields;
use rdmascope_dissector::trace::{Trace, Value};

fields! {
    /// Fragments of SMB Direct.
    pub mod smb_direct ["[MS-SMBD] 3.1.5.8"] {
        FRAGMENTS: None = "smb_direct.fragments", "Reassembled SMB Direct Fragments";
        FRAGMENT: FrameNum = "smb_direct.fragment", "SMB Direct Fragment";
        COUNT: U32 = "smb_direct.fragment.count", "Fragment count", dec;
        LENGTH: U32 = "smb_direct.reassembled.length", "Reassembled SMB Direct length", dec;
        REASSEMBLED_IN: FrameNum = "smb_direct.reassembled_in", "Reassembled PDU in frame";
    }
}

fields! {
    /// Segments of a Send over iWARP.
    pub mod iwarp_send ["RFC 5041 5.2.1"] {
        FRAGMENTS: None = "iwarp_rdma.send.fragments", "Reassembled iWARP Send fragments";
        FRAGMENT: FrameNum = "iwarp_rdma.send.fragment", "iWARP Send fragment";
        COUNT: U32 = "iwarp_rdma.send.fragment.count", "iWARP Send fragment count", dec;
        LENGTH: U32 = "iwarp_rdma.send.reassembled.length", "Reassembled Send length", dec;
        REASSEMBLED_IN: FrameNum = "iwarp_rdma.send.reassembled_in", "Reassembled iWARP Send in frame";
    }
}

fields! {
    /// Packets of a Send over RoCE or InfiniBand. These are ours.
    pub mod ib_send ["rdmascope"] {
        FRAGMENTS: None = "rdmascope.send.fragments", "Send put together";
        FRAGMENT: FrameNum = "rdmascope.send.fragment", "Packet of the Send";
        COUNT: U32 = "rdmascope.send.fragment.count", "Packets of the Send", dec;
        LENGTH: U32 = "rdmascope.send.reassembled.length", "Length of the Send", dec;
        REASSEMBLED_IN: FrameNum = "rdmascope.send.reassembled_in", "Send put together in frame";
    }
}

fields! {
    /// Fragments of an IPv4 datagram.
    pub mod ipv4 ["RFC 791 3.2"] {
        FRAGMENTS: Bytes = "ip.fragments", "IPv4 Fragments";
        FRAGMENT: FrameNum = "ip.fragment", "IPv4 Fragment";
        COUNT: U32 = "ip.fragment.count", "Fragment count", dec;
        LENGTH: U32 = "ip.reassembled.length", "Reassembled IPv4 length", dec;
        REASSEMBLED_IN: FrameNum = "ip.reassembled_in", "Reassembled IPv4 in frame";
    }
}

fields! {
    /// Fragments of an IPv6 datagram.
    pub mod ipv6 ["RFC 8200 4.5"] {
        FRAGMENTS: None = "ipv6.fragments", "IPv6 Fragments";
        FRAGMENT: FrameNum = "ipv6.fragment", "IPv6 Fragment";
        COUNT: U32 = "ipv6.fragment.count", "Fragment count", dec;
        LENGTH: U32 = "ipv6.reassembled.length", "Reassembled IPv6 length", dec;
        REASSEMBLED_IN: FrameNum = "ipv6.reassembled.in", "Reassembled IPv6 in frame";
    }
}

fields! {
    /// TCP segments of what is framed above: an FPDU, an SMB2 message, an RPC record.
    pub mod tcp ["RFC 9293 3.4"] {
        FRAGMENTS: None = "tcp.segments", "Reassembled TCP Segments";
        FRAGMENT: FrameNum = "tcp.segment", "TCP Segment";
        COUNT: U32 = "tcp.segment.count", "Segment count", dec;
        LENGTH: U32 = "tcp.reassembled.length", "Reassembled TCP length", dec;
        REASSEMBLED_IN: FrameNum = "tcp.reassembled_in", "Reassembled PDU in frame";
    }
}

/// Those that are ours.
pub const OURS: &[Def] = <ib_send::All as Fields>::FIELDS;

/// The fields of this file that Wireshark has too.
pub const FIELDS: [&[Def]; 5] = [
    <smb_direct::All as Fields>::FIELDS,
    <iwarp_send::All as Fields>::FIELDS,
    <ipv4::All as Fields>::FIELDS,
    <ipv6::All as Fields>::FIELDS,
    <tcp::All as Fields>::FIELDS,
];

/// Kind of a reassembled message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assembly {
    /// An SMB2 message of fragments of SMB Direct.
    SmbDirect,
    /// A Send over iWARP.
    IwarpSend,
    /// A Send over RoCE or InfiniBand.
    IbSend,
    /// An IPv4 datagram of fragments.
    Ipv4,
    /// An IPv6 datagram of fragments.
    Ipv6,
    /// A message framed above TCP, of segments.
    Tcp,
}

impl Assembly {
    /// Fragments, one of them, their number, the length of all, and the frame in which they were put together.
    const fn fields(self) -> [Def; 5] {
        match self {
            Self::SmbDirect => {
                use smb_direct::*;
                [FRAGMENTS, FRAGMENT, COUNT, LENGTH, REASSEMBLED_IN]
            }
            Self::IwarpSend => {
                use iwarp_send::*;
                [FRAGMENTS, FRAGMENT, COUNT, LENGTH, REASSEMBLED_IN]
            }
            Self::IbSend => {
                use ib_send::*;
                [FRAGMENTS, FRAGMENT, COUNT, LENGTH, REASSEMBLED_IN]
            }
            Self::Ipv4 => {
                use ipv4::*;
                [FRAGMENTS, FRAGMENT, COUNT, LENGTH, REASSEMBLED_IN]
            }
            Self::Ipv6 => {
                use ipv6::*;
                [FRAGMENTS, FRAGMENT, COUNT, LENGTH, REASSEMBLED_IN]
            }
            Self::Tcp => {
                use tcp::*;
                [FRAGMENTS, FRAGMENT, COUNT, LENGTH, REASSEMBLED_IN]
            }
        }
    }

    /// The field of a fragment that names the frame in which the message became whole.
    pub const fn reassembled_in(self) -> Def {
        self.fields()[4]
    }

    /// Shows the pieces of a message of `length` bytes, in the frame that made it whole.
    pub fn show<T: Trace>(self, pieces: &Pieces, length: u32, t: &mut T) {
        let [all, one, count, bytes, _] = self.fields();
        let at: &[u8] = &[];
        t.open(all, at);
        for frame in &pieces.frames {
            t.field(one, at, 0, Value::U(*frame));
        }
        t.field(count, at, 0, Value::U(pieces.count.into()));
        t.field(bytes, at, 0, Value::U(length.into()));
        t.close(at);
    }
}

/// Frames of the pieces of one message, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pieces {
    frames: Vec<u64>,
    count: u32,
}

impl Pieces {
    /// Frames kept at most: of more pieces the first are known.
    const MAX: usize = 1024;

    /// A message begins.
    #[inline]
    pub fn clear(&mut self) {
        self.frames.clear();
        self.count = 0;
    }

    /// The next piece.
    #[inline]
    pub fn add(&mut self, frame: u64) {
        self.count = self.count.saturating_add(1);
        if self.frames.len() < Self::MAX {
            self.frames.push(frame);
        }
    }

    /// Adds the next piece, if it is of another frame than the one before.
    #[inline]
    pub fn add_frame(&mut self, frame: u64) {
        if self.frames.last() != Some(&frame) {
            self.add(frame);
        }
    }

    /// The pieces, if they are of more than one frame.
    #[inline]
    pub fn several(&self) -> Option<&Self> {
        (self.count > 1).then_some(self)
    }

    /// Gives back the memory.
    pub fn release(&mut self) {
        *self = Self::default();
    }

    /// Their frames, the first 1024 of them.
    pub fn frames(&self) -> &[u64] {
        &self.frames
    }

    /// Number of pieces.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Bytes of memory that it holds.
    pub fn held(&self) -> usize {
        self.frames.capacity() * size_of::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_more_pieces_than_are_kept_the_first_are_known_and_all_are_counted() {
        let mut pieces = Pieces::default();
        (1..=3000).for_each(|frame| pieces.add(frame));
        assert_eq!((pieces.frames().len(), pieces.frames()[0], pieces.count()), (Pieces::MAX, 1, 3000));
        assert!(pieces.held() >= Pieces::MAX * 8);
        pieces.clear();
        assert_eq!((pieces.frames().len(), pieces.count()), (0, 0));
    }
}
