//! XDR, RFC 4506, read from a stream out of which data items may have been taken: big-endian words, counted bytes
//! padded to a multiple of four, counted lists.
//!
//! RPC-over-RDMA moves large items of a message on their own (RFC 8166 3.4: *reduced* data items). What remains inline
//! still has their length word, and neither their bytes nor their padding:
//!
//! ```text
//! call   … count │ ░░░░ in a read chunk, whose position says where ░░░░ │ next item …
//! reply  … count │ ░░░░ in the n-th write chunk, for the n-th item that may be reduced ░░░░ │ next item …
//! ```
//!
//! [`Xdr`] keeps both books, so that decoders read such a message as if it were whole. In the tree a reduced item
//! stands at the place it was taken from, with a link to the memory that holds it.

use crate::fault::Fault;
use crate::field::Def;
use crate::leaf;
use crate::trace::{Trace, Value};
use crate::wire::rpcrdma::{Chunk, Chunks, Reads, RpcRdma, Segment, Writes};

/// Result of reading an XDR item.
pub type Read<O> = Result<O, Fault>;

fields! {
    /// Fields that XDR itself puts between those of the protocols, and places of reduced items.
    pub mod f ["RFC 4506 4"] {
        LENGTH: U32 = "rpc.opaque_length", "length", dec;
        FILL: Bytes as Keep = "rpc.fill_bytes", "fill bytes";
        COUNT: U32 = "rdmascope.xdr.count", "count", dec;
        ARRAY_LENGTH: U32 = "rpc.array.len", "num", dec;
        FOLLOWS: Bool = "rpc.value_follows", "Value Follows";
        REDUCED: Str = "rdmascope.reduced", "Reduced data item";
        REDUCED_CHUNK: U32 = "rdmascope.reduced.chunk", "Chunk", dec;
        REDUCED_POSITION: U32 = "rdmascope.reduced.position", "Position in XDR", dec;
        REDUCED_HANDLE: U32 = "rdmascope.reduced.handle", "RDMA handle", hex;
        REDUCED_OFFSET: U64 = "rdmascope.reduced.offset", "RDMA offset", hex;
        REDUCED_LENGTH: U32 = "rdmascope.reduced.length", "RDMA length", dec;
        UNDECODED: Bytes = "rdmascope.xdr.undecoded", "Bytes not decoded";
    }
}

/// The bytes of an RPC message, and the chunks with the items taken out of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stream<'a> {
    /// The inline bytes of the message, in one piece.
    pub bytes: &'a [u8],
    /// The read list of the header that came with a call. Segments at position 0, which are the message itself, are
    /// skipped.
    pub reads: Reads<'a>,
    /// The write list of the header that came with a reply.
    pub writes: Writes<'a>,
}

impl<'a> Stream<'a> {
    /// A message that is whole: from TCP, or reassembled.
    pub fn whole(bytes: &'a [u8]) -> Self {
        Self { bytes, ..Self::default() }
    }

    /// The payload stream of a Send.
    pub const fn inline(header: &RpcRdma<'a>) -> Self {
        Self { bytes: header.payload, reads: header.reads, writes: header.writes }
    }

    /// A message that was not in the Send, but in a Position-Zero Read chunk or the reply chunk, of which these are the
    /// bytes.
    pub const fn long(header: &RpcRdma<'a>, bytes: &'a [u8]) -> Self {
        Self { bytes, reads: header.reads, writes: header.writes }
    }
}

/// Segments of a read list at most whose chunks are looked for in any order. Longer lists are taken to be in order.
const UNSORTED_MAX: usize = 256;

/// A counted run of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Opaque<'a> {
    /// The count that the stream has.
    pub length: u32,
    /// The bytes; empty where they are in a chunk.
    pub bytes: &'a [u8],
    /// True if they are in a chunk.
    pub reduced: bool,
}

/// A reader of one stream, with its observer.
pub struct Xdr<'a, 'r, T: Trace> {
    /// The input that is left, of the innermost [`Xdr::within`].
    pub i: &'a [u8],
    /// The observer.
    pub t: &'r mut T,
    /// Bytes of the message, and of these the bytes behind the innermost `within`.
    total: usize,
    behind: usize,
    /// Bytes that were taken out before here, in segments, and the padding that would have gone with them.
    removed: u64,
    padding: u64,
    /// The read list; without the chunks that were passed, if it is in the order of positions.
    reads: Reads<'a>,
    is_sorted: bool,
    /// Position of the next read chunk; beyond any position where there is none.
    next_position: u64,
    reads_passed: u32,
    /// Write chunks not yet matched. Empty in calls: there the write list is an offer.
    writes: Chunks<'a>,
    writes_passed: u32,
    /// The first boolean that is neither 0 nor 1.
    odd: Option<(Def, u32)>,
}

impl<'a, 'r, T: Trace> Xdr<'a, 'r, T> {
    /// Reads a stream from its start. The chunks of a call are its read list; the chunks of a reply its write list,
    /// which come into play with [`Xdr::reply`].
    pub fn new(stream: &Stream<'a>, t: &'r mut T) -> Self {
        let mut x = Self {
            i: stream.bytes,
            t,
            total: stream.bytes.len(),
            behind: 0,
            removed: 0,
            padding: 0,
            reads: stream.reads,
            is_sorted: stream.reads.len() > UNSORTED_MAX || stream.reads.iter().is_sorted_by_key(|s| s.position),
            next_position: u64::MAX,
            reads_passed: 0,
            writes: Chunks::default(),
            writes_passed: 0,
            odd: None,
        };
        x.next_read(1);
        x
    }

    /// Says that the message is a reply, whose data may be in the chunks of this write list.
    pub fn reply(&mut self, writes: Writes<'a>) {
        self.writes = writes.iter();
        self.next_position = u64::MAX;
    }

    /// Bytes from the start of the message, as if nothing had been taken out (and chunks had no padding).
    pub fn position(&self) -> u64 {
        (self.total - self.behind - self.i.len()) as u64 + self.removed
    }

    /// Goes on to the next read chunk whose position is not before `from`. The list may have its chunks in any order.
    fn next_read(&mut self, from: u64) {
        let position = |reads: &Reads<'a>| reads.iter().next().map(|s| u64::from(s.position));
        while self.is_sorted && position(&self.reads).is_some_and(|position| position < from) {
            self.reads.next_chunk();
        }
        let next = if self.is_sorted {
            position(&self.reads)
        } else {
            self.reads.iter().map(|s| u64::from(s.position)).filter(|position| *position >= from).min()
        };
        self.next_position = next.unwrap_or(u64::MAX);
    }

    /// The segments of the next read chunk.
    fn next_segments(&self) -> impl Iterator<Item = Segment> + Clone + use<'a, T> {
        let position = self.next_position as u32;
        let behind = self.reads.iter().take_while(|s| s.position == position).count();
        // of a list in order, only the first ones are looked at
        self.reads.at(position).take(if self.is_sorted { behind } else { usize::MAX })
    }

    /// Position of the first read chunk that was not met, where no item begins.
    pub fn unread(&self) -> Option<u32> {
        u32::try_from(self.next_position).ok()
    }

    /// True if a write chunk that has bytes belongs to none of the items read.
    pub fn is_unmatched(&self) -> bool {
        self.writes.clone().any(|chunk| chunk.length() > 0)
    }

    /// Runs `decode` inside a subtree. See [`crate::trace::scope`].
    #[inline]
    pub fn scope<O>(&mut self, def: Def, decode: impl FnOnce(&mut Self) -> Read<O>) -> Read<O> {
        if !T::ON {
            return decode(self);
        }
        self.t.open(def, self.i);
        match decode(self) {
            Ok(o) => {
                self.t.close(self.i);
                Ok(o)
            }
            Err(mut fault) => {
                if !fault.reported {
                    self.t.fault(&fault);
                    fault.reported = true;
                }
                self.t.abort();
                Err(fault)
            }
        }
    }

    /// Runs `decode` on the next `length` bytes alone. Bytes that it leaves are reported as undecoded; a fault in them
    /// is reported too, and reading continues behind them: the bytes of the outer message are complete.
    ///
    /// # Errors
    /// If fewer than `length` bytes are left, after `decode` has had them.
    pub fn within(&mut self, def: Def, length: usize, decode: impl FnOnce(&mut Self) -> Read<()>) -> Read<()> {
        let (inner, after) = self.i.split_at(length.min(self.i.len()));
        let short = (inner.len() < length).then(|| Fault::short(Some(def), self.i, length));
        self.i = inner;
        self.behind += after.len();
        let result = self.scope(def, |x| {
            decode(x)?;
            x.undecoded();
            Ok(())
        });
        self.i = after;
        self.behind -= after.len();
        match (result, short) {
            (Err(fault), Some(_)) => Err(fault),
            (_, Some(fault)) => Err(fault),
            _ => Ok(()),
        }
    }

    /// Tells all that is left as bytes that nobody decodes.
    pub fn undecoded(&mut self) {
        if !self.i.is_empty() {
            self.rest(f::UNDECODED);
        }
    }

    /// Everything that is left, as one field.
    pub fn rest(&mut self, def: Def) -> &'a [u8] {
        let rest = self.i;
        if T::ON {
            self.t.field(def, rest, rest.len(), Value::Bytes(rest));
        }
        self.i = &rest[rest.len()..];
        rest
    }

    /// An unsigned integer.
    #[inline]
    pub fn u32(&mut self, def: Def) -> Read<u32> {
        match leaf::be32(self.i) {
            Ok((rest, v)) => {
                self.t.field(def, self.i, 4, Value::U(v.into()));
                self.i = rest;
                Ok(v)
            }
            Err(_) => Err(Fault::short(Some(def), self.i, 4)),
        }
    }

    /// A signed integer.
    #[inline]
    pub fn i32(&mut self, def: Def) -> Read<i32> {
        match leaf::bei32(self.i) {
            Ok((rest, v)) => {
                self.t.field(def, self.i, 4, Value::I(v.into()));
                self.i = rest;
                Ok(v)
            }
            Err(_) => Err(Fault::short(Some(def), self.i, 4)),
        }
    }

    /// An unsigned hyper integer.
    #[inline]
    pub fn u64(&mut self, def: Def) -> Read<u64> {
        match leaf::be64(self.i) {
            Ok((rest, v)) => {
                self.t.field(def, self.i, 8, Value::U(v));
                self.i = rest;
                Ok(v)
            }
            Err(_) => Err(Fault::short(Some(def), self.i, 8)),
        }
    }

    /// A boolean: whatever is not 0 is true.
    #[inline]
    pub fn bool(&mut self, def: Def) -> Read<bool> {
        match leaf::be32(self.i) {
            Ok((rest, v)) => {
                self.t.field(def, self.i, 4, Value::U((v != 0).into()));
                self.i = rest;
                Ok(self.is_true(def, v))
            }
            Err(_) => Err(Fault::short(Some(def), self.i, 4)),
        }
    }

    /// The same, shown as the number that it is.
    #[inline]
    pub fn bool_number(&mut self, def: Def) -> Read<bool> {
        let v = self.u32(def)?;
        Ok(self.is_true(def, v))
    }

    /// Takes note of a value that a boolean does not have (RFC 4506 4.3, 4.4).
    #[inline]
    fn is_true(&mut self, def: Def, v: u32) -> bool {
        if v > 1 {
            self.odd.get_or_insert((def, v));
        }
        v != 0
    }

    /// The first boolean so far that is neither 0 nor 1, and its value.
    pub const fn odd(&self) -> Option<(Def, u32)> {
        self.odd
    }

    /// A word of flags, with its bits below it.
    #[inline]
    pub fn flags(&mut self, def: Def, bits: &[Def]) -> Read<u32> {
        let at = self.i;
        let v = self.u32(def)?;
        if T::ON {
            self.bits(at, 4, v.into(), bits);
        }
        Ok(v)
    }

    /// The bits of `value`, which lies in the `length` bytes at `at`, as children of the last field.
    pub fn bits(&mut self, at: &[u8], length: usize, value: u64, bits: &[Def]) {
        self.t.down();
        for def in bits.iter().filter(|d| d.mask != 0) {
            self.t.field(def, at, length, Value::U((value & def.mask) >> def.mask.trailing_zeros()));
        }
        self.t.up();
    }

    /// The next word, without reading it.
    pub fn peek(&self) -> Option<u32> {
        leaf::be32(self.i).ok().map(|(_, v)| v)
    }

    /// A computed value: something that is known from elsewhere.
    #[inline]
    pub fn known(&mut self, def: Def, value: impl Into<u64>) {
        if T::ON {
            self.t.field(def, self.i, 0, Value::U(value.into()));
        }
    }

    /// Bytes whose number is fixed, and their padding.
    pub fn fixed(&mut self, def: Def, length: usize) -> Read<&'a [u8]> {
        let Some((bytes, rest)) = self.i.split_at_checked(length) else {
            return Err(Fault::short(Some(def), self.i, length));
        };
        self.t.field(def, self.i, length, Value::Bytes(bytes));
        self.i = rest;
        self.pad(length)?;
        Ok(bytes)
    }

    /// Reads the bytes that pad `length` bytes to a multiple of four.
    pub fn pad(&mut self, length: usize) -> Read<()> {
        let n = length.wrapping_neg() & 3;
        let Some((bytes, rest)) = self.i.split_at_checked(n) else {
            return Err(Fault::short(Some(f::FILL), self.i, n));
        };
        if T::ON && n > 0 {
            self.t.field(f::FILL, self.i, n, Value::Bytes(bytes));
        }
        self.i = rest;
        Ok(())
    }

    /// A counted run of bytes, or a string: `def` covers its count and padding, which are its children.
    pub fn opaque(&mut self, def: Def) -> Read<&'a [u8]> {
        self.item(def, false).map(|o| o.bytes)
    }

    /// The same, for an item that the protocol allows to be taken out of replies (RFC 8267).
    pub fn eligible(&mut self, def: Def) -> Read<Opaque<'a>> {
        self.item(def, true)
    }

    fn item(&mut self, def: Def, eligible: bool) -> Read<Opaque<'a>> {
        let at = self.i;
        let Ok((rest, length)) = leaf::be32(at) else {
            return Err(Fault::short(Some(f::LENGTH), at, 4));
        };
        self.i = rest;
        if let Some(reduced) = self.reduced(def, at, length, eligible) {
            return Ok(reduced);
        }
        let n = length as usize;
        let padded = n.checked_next_multiple_of(4);
        let Some((bytes, after)) = rest.split_at_checked(n) else {
            self.t.field(f::LENGTH, at, 4, Value::U(length.into()));
            return Err(Fault::short(Some(def), rest, n));
        };
        if T::ON {
            self.t.field(def, at, 4 + padded.unwrap_or(n).min(rest.len()), Value::Bytes(bytes));
            self.t.down();
            self.t.field(f::LENGTH, at, 4, Value::U(length.into()));
        }
        self.i = after;
        let filled = self.pad(n);
        if T::ON {
            self.t.up();
        }
        filled?;
        Ok(Opaque { length, bytes, reduced: false })
    }

    /// The item whose count was just read, if its bytes are in a chunk. They are not in the stream then, nor is their
    /// padding.
    fn reduced(&mut self, def: Def, at: &'a [u8], length: u32, eligible: bool) -> Option<Opaque<'a>> {
        let position = self.position();
        if self.next_position == position || self.next_position == position + self.padding {
            let (position, segments) = (self.next_position, self.next_segments());
            let taken: u64 = segments.clone().map(|s| u64::from(s.length)).sum();
            self.trace_reduced(def, at, length, "read", self.reads_passed, Some(position as u32), segments);
            self.removed += taken;
            self.padding += taken.wrapping_neg() & 3;
            self.reads_passed += 1;
            self.next_read(position + 1);
            return Some(Opaque { length, bytes: &[], reduced: true });
        }
        if !eligible {
            return None;
        }
        let chunk: Chunk<'a> = self.writes.next()?;
        let index = self.writes_passed;
        self.writes_passed += 1;
        // a chunk of which nothing was written was not used: the item stands inline
        if chunk.length() == 0 {
            return None;
        }
        self.trace_reduced(def, at, length, "write", index, None, chunk.segments());
        self.removed += chunk.length();
        Some(Opaque { length, bytes: &[], reduced: true })
    }

    #[allow(clippy::too_many_arguments)]
    fn trace_reduced(
        &mut self,
        def: Def,
        at: &'a [u8],
        length: u32,
        list: &str,
        index: u32,
        position: Option<u32>,
        segments: impl Iterator<Item = Segment> + Clone,
    ) {
        if !T::ON {
            return;
        }
        let t = &mut *self.t;
        t.field(f::LENGTH, at, 4, Value::U(length.into()));
        let Some(first) = segments.clone().next() else { return };
        let (name, count) = (def.label, segments.clone().count());
        if count == 1 {
            t.field(
                f::REDUCED,
                self.i,
                0,
                Value::Text(format_args!(
                    "{name} in {list} chunk {index}, {} bytes at {:#x} key {:#010x}",
                    first.length, first.offset, first.handle
                )),
            );
        } else {
            let bytes: u64 = segments.clone().map(|s| u64::from(s.length)).sum();
            t.field(
                f::REDUCED,
                self.i,
                0,
                Value::Text(format_args!(
                    "{name} in {list} chunk {index}, {bytes} bytes in {count} segments from {:#x} key {:#010x}",
                    first.offset, first.handle
                )),
            );
        }
        t.down();
        t.field(f::REDUCED_CHUNK, self.i, 0, Value::U(index.into()));
        if let Some(position) = position {
            t.field(f::REDUCED_POSITION, self.i, 0, Value::U(position.into()));
        }
        for segment in segments {
            t.field(f::REDUCED_HANDLE, self.i, 0, Value::U(segment.handle.into()));
            t.field(f::REDUCED_OFFSET, self.i, 0, Value::U(segment.offset));
            t.field(f::REDUCED_LENGTH, self.i, 0, Value::U(segment.length.into()));
        }
        t.up();
    }

    /// A counted list. Every element must take at least a word, so that a count beyond the bytes ends with them.
    pub fn list(&mut self, count: Def, mut element: impl FnMut(&mut Self, u32) -> Read<()>) -> Read<u32> {
        let n = self.u32(count)?;
        for index in 0..n {
            let before = self.i.len();
            element(self, index)?;
            if self.i.len() == before {
                return Err(Fault::limit(count, self.i));
            }
        }
        Ok(n)
    }

    /// An optional item, and the linked lists that are made of them: `true` before each element, `false` at the end.
    pub fn chain(&mut self, mut element: impl FnMut(&mut Self) -> Read<()>) -> Read<u32> {
        let mut n = 0;
        while self.bool(f::FOLLOWS)? {
            element(self)?;
            n += 1;
        }
        Ok(n)
    }
}

#[cfg(test)]
#[allow(unreachable_pub, dead_code)]
mod tests {
    use super::*;
    use crate::fault::FaultKind;
    use crate::header::Vec;
    use crate::trace::{NodeValue, Off, Tree};
    use crate::wire::rpcrdma;

    fields! {
        /// Of the tests.
        pub mod toy ["RFC 0000"] {
            NODE: None = "toy", "Toy";
            WORD: U32 = "toy.word", "Word", dec;
            DATA: Bytes = "toy.data", "data";
            NAME: Str = "toy.name", "Name";
        }
    }

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|w| w.to_be_bytes()).collect()
    }

    #[test]
    fn strings_cover_their_count_and_padding() {
        let mut bytes = words(&[5]);
        bytes.extend(b"hello\0\0\0");
        bytes.extend(words(&[7]));
        let mut tree = Tree::new();
        tree.begin(&bytes);
        let mut x = Xdr::new(&Stream::whole(&bytes), &mut tree);
        assert_eq!((x.opaque(toy::NAME).unwrap(), x.u32(toy::WORD).unwrap(), x.i.len()), (&b"hello"[..], 7, 0));
        let node = *tree.all("toy.name").next().unwrap();
        assert_eq!((node.offset, node.len, tree.value_bytes(&node)), (0, 12, &b"hello"[..]));
        let fill = tree.all("rpc.fill_bytes").next().unwrap();
        assert_eq!((fill.offset, fill.len, fill.depth), (9, 3, node.depth + 1));
        for n in 0..12 {
            let stream = Stream::whole(&bytes[..n]);
            assert!(Xdr::new(&stream, &mut Off).opaque(toy::NAME).is_err());
        }
    }

    #[test]
    fn a_boolean_that_is_neither_0_nor_1_is_true_and_remembered() {
        let bytes = words(&[0, 1, 3, 2]);
        let mut off = Off;
        let mut x = Xdr::new(&Stream::whole(&bytes), &mut off);
        assert_eq!((x.bool(toy::WORD).unwrap(), x.bool_number(toy::WORD).unwrap(), x.odd()), (false, true, None));
        assert!(x.bool_number(toy::WORD).unwrap() && x.bool(toy::WORD).unwrap());
        assert_eq!(x.odd().map(|(def, value)| (def.name, value)), Some(("toy.word", 3)), "the first");
    }

    #[test]
    fn a_count_beyond_the_bytes_costs_only_the_bytes() {
        let bytes = words(&[u32::MAX, 1, 2, 3]);
        let mut seen = 0;
        let stream = Stream::whole(&bytes);
        let fault = Xdr::new(&stream, &mut Off)
            .list(toy::WORD, |x, _| {
                seen += 1;
                x.u32(toy::WORD).map(drop)
            })
            .unwrap_err();
        assert_eq!((seen, fault.kind), (4, FaultKind::Short));
        let fault = Xdr::new(&stream, &mut Off).list(toy::WORD, |_, _| Ok(())).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Limit);
    }

    #[test]
    fn items_in_read_chunks_are_found_by_their_position() {
        // as sent: word, count 5 (data in a chunk), word, count 4 (data in a chunk), word
        let inline = words(&[1, 5, 2, 4, 3]);
        for (second, what) in [(20, "positions count the padding"), (17, "positions count the bytes of the chunk")] {
            let segments = [
                rpcrdma::ReadSegment { position: 8, handle: 0xa, length: 3, offset: 0x1000 },
                rpcrdma::ReadSegment { position: 8, handle: 0xb, length: 2, offset: 0x2000 },
                rpcrdma::ReadSegment { position: second + 4, handle: 0xc, length: 4, offset: 0x3000 },
            ];
            let mut message = words(&[9, 1, 1, 0]);
            rpcrdma::emit_reads(&segments, &mut message);
            message.extend(words(&[0, 0, 0]));
            message.extend(&inline);
            let (_, header) = RpcRdma::parse(&message, &mut Off).unwrap();
            let mut tree = Tree::new();
            tree.begin(&message);
            let mut x = Xdr::new(&Stream::inline(&header), &mut tree);
            assert_eq!(x.u32(toy::WORD).unwrap(), 1);
            assert_eq!(x.opaque(toy::DATA).unwrap(), b"", "{what}");
            assert_eq!(x.u32(toy::WORD).unwrap(), 2, "{what}");
            assert_eq!(x.item(toy::DATA, false).unwrap(), Opaque { length: 4, bytes: &[], reduced: true }, "{what}");
            assert_eq!(x.u32(toy::WORD).unwrap(), 3, "{what}");
            assert_eq!(tree.all("rdmascope.reduced").count(), 2);
            let node = *tree.all("rdmascope.reduced").next().unwrap();
            assert!(matches!(node.value, NodeValue::Text(..)) && node.generated);
            let text = core::str::from_utf8(tree.value_bytes(&node)).unwrap();
            assert_eq!(text, "data in read chunk 0, 5 bytes in 2 segments from 0x1000 key 0x0000000a");
            assert_eq!(tree.number("rdmascope.reduced.position"), Some(8));
            assert_eq!(tree.all("rdmascope.reduced.handle").count(), 3);
        }
    }

    #[test]
    fn read_chunks_may_stand_in_any_order() {
        // word, count 8 (data in a chunk), word, count 4 (data in a chunk)
        let inline = words(&[1, 8, 2, 4]);
        let segment = |position, length| rpcrdma::ReadSegment { position, handle: 0xa, length, offset: 0x1000 };
        let (message, first, second) = (segment(0, 28), segment(8, 8), segment(24, 4));
        for list in [[message, first, second], [second, message, first], [second, first, message]] {
            let mut bytes = Vec::new();
            rpcrdma::emit_reads(&list, &mut bytes);
            let stream = Stream { bytes: &inline, reads: Reads::of(&bytes), ..Stream::default() };
            let mut off = Off;
            let mut x = Xdr::new(&stream, &mut off);
            assert_eq!((x.u32(toy::WORD).unwrap(), x.unread()), (1, Some(8)));
            assert_eq!(x.item(toy::DATA, false).unwrap(), Opaque { length: 8, bytes: &[], reduced: true });
            assert_eq!((x.u32(toy::WORD).unwrap(), x.unread()), (2, Some(24)));
            assert_eq!(x.item(toy::DATA, false).unwrap(), Opaque { length: 4, bytes: &[], reduced: true });
            assert_eq!((x.position(), x.unread()), (28, None), "{list:?}");
        }
    }

    #[test]
    fn items_in_write_chunks_are_matched_in_order() {
        let mut message = words(&[9, 1, 1, 0, 0]);
        rpcrdma::emit_chunk(&[Segment { handle: 0xa, length: 65536, offset: 0x1000 }], &mut message);
        rpcrdma::emit_chunk(&[Segment { handle: 0xb, length: 0, offset: 0x2000 }], &mut message);
        message.extend(words(&[0, 0]));
        // count of a reduced item, word, count and bytes of an item that stayed inline, item that is not eligible
        message.extend(words(&[65536, 7, 4, 0x6162_6364, 4, 0x6566_6768]));
        let (_, header) = RpcRdma::parse(&message, &mut Off).unwrap();
        let mut tree = Tree::new();
        tree.begin(&message);
        let mut x = Xdr::new(&Stream::inline(&header), &mut tree);
        x.reply(header.writes);
        assert_eq!(x.eligible(toy::DATA).unwrap(), Opaque { length: 65536, bytes: &[], reduced: true });
        assert_eq!(x.u32(toy::WORD).unwrap(), 7);
        assert_eq!(x.eligible(toy::DATA).unwrap(), Opaque { length: 4, bytes: b"abcd", reduced: false });
        assert_eq!(x.opaque(toy::DATA).unwrap(), b"efgh");
        assert!(x.i.is_empty());
        let node = *tree.all("rdmascope.reduced").next().unwrap();
        assert_eq!(tree.value_bytes(&node), b"data in write chunk 0, 65536 bytes at 0x1000 key 0x0000000a");
    }

    #[test]
    fn what_is_wrong_within_stays_within() {
        let bytes = words(&[1, 99, 2]);
        let mut tree = Tree::new();
        tree.begin(&bytes);
        let mut x = Xdr::new(&Stream::whole(&bytes), &mut tree);
        assert_eq!(x.u32(toy::WORD).unwrap(), 1);
        x.within(toy::NODE, 4, |x| x.opaque(toy::DATA).map(drop)).unwrap();
        assert_eq!((x.u32(toy::WORD).unwrap(), x.position()), (2, 12));
        assert_eq!(tree.faults.len(), 1);
        let fault = Xdr::new(&Stream::whole(&bytes), &mut Off)
            .within(toy::NODE, 13, |x| x.u32(toy::WORD).map(drop))
            .unwrap_err();
        assert_eq!(fault.needed, 13);
    }
}
