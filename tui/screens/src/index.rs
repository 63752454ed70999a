//! Index entry of every frame: 32 bytes, in chunks that the loader seals and all other threads share.
//!
//! ```text
//!   time 8 │ input 1, offset 7 │ connection 4 │ exchange 4 │ wire length 4 │ layer 1, opcode 1, flags 1, spare 1
//! ```
//! All else is had by reading the frame from the file again ([`super::redissect`]).

use rdmascope_analyzer::env::Layer;
use rdmascope_analyzer::op::End;
use rdmascope_analyzer::pipeline::FrameFacts;
use rdmascope_dissector::wire::ib::bth::Opcode;
use std::sync::Arc;

/// Frames of a sealed chunk.
pub(crate) const CHUNK: usize = 1 << 14;

/// One frame.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Entry {
    /// ns since the Unix epoch.
    pub(crate) time: i64,
    place: u64,
    /// The number under which the analysis follows its connection; 0 for none.
    pub(crate) connection: u32,
    /// The exchange; 0 for none.
    pub(crate) exchange: u32,
    /// Bytes on the wire.
    pub(crate) wire_len: u32,
    layer: u8,
    opcode: u8,
    flags: u8,
    _spare: u8,
}

/// Bytes of an entry.
pub(crate) const ENTRY_BYTES: usize = 32;

const _: () = assert!(size_of::<Entry>() == ENTRY_BYTES);

const FROM_B: u8 = 1;
const SENT_BEFORE: u8 = 2;
const HAS_OPCODE: u8 = 4;
const NO_PAYLOAD: u8 = 8;
const WHOLE_NEEDED: u8 = 16;
/// Not kept any more.
const GONE: u8 = 128;

/// Kind of a frame, from its own bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Kind {
    /// InfiniBand, with its opcode.
    Ib(u8),
    /// A TCP segment, and whether it has payload.
    Tcp(bool),
    /// A fragment of an IP datagram: it can only be decoded with all others.
    Fragment,
    /// Something else.
    #[default]
    Other,
}

impl Entry {
    /// `input` counts the files of the command line from 0.
    pub(crate) fn new(time: i64, input: usize, offset: u64, wire_len: u32, kind: Kind, facts: &FrameFacts) -> Self {
        let (connection, end) = facts.place.map_or((0, End::A), |(id, end)| (id, end));
        let mut flags = if end == End::B { FROM_B } else { 0 };
        if facts.retransmission {
            flags |= SENT_BEFORE;
        }
        let mut opcode = 0;
        match kind {
            Kind::Ib(code) => {
                flags |= HAS_OPCODE;
                opcode = code;
            }
            Kind::Tcp(false) => flags |= NO_PAYLOAD,
            Kind::Fragment => flags |= WHOLE_NEEDED,
            Kind::Tcp(true) | Kind::Other => {}
        }
        Self {
            time,
            place: (input as u64) << 56 | offset & 0x00ff_ffff_ffff_ffff,
            connection,
            exchange: u32::try_from(facts.exchange).unwrap_or(u32::MAX),
            wire_len,
            layer: facts.layer as u8,
            opcode,
            flags,
            _spare: 0,
        }
    }

    /// As bytes, in the order of the drawing.
    pub(crate) fn to_bytes(self) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        let numbers = [self.connection, self.exchange, self.wire_len].map(u32::to_le_bytes);
        let small = [self.layer, self.opcode, self.flags, self._spare];
        let parts = [&self.time.to_le_bytes()[..], &self.place.to_le_bytes(), numbers.as_flattened(), &small];
        bytes.iter_mut().zip(parts.into_iter().flatten()).for_each(|(to, from)| *to = *from);
        bytes
    }

    /// From [`Entry::to_bytes`].
    pub(crate) fn from_bytes(bytes: &[u8; ENTRY_BYTES]) -> Self {
        let part = |at: usize| -> [u8; 4] { std::array::from_fn(|i| bytes[at + i]) };
        let long =
            |at: usize| u64::from(u32::from_le_bytes(part(at))) | u64::from(u32::from_le_bytes(part(at + 4))) << 32;
        let [layer, opcode, flags, _spare] = part(28);
        Self {
            time: long(0) as i64,
            place: long(8),
            connection: u32::from_le_bytes(part(16)),
            exchange: u32::from_le_bytes(part(20)),
            wire_len: u32::from_le_bytes(part(24)),
            layer,
            opcode,
            flags,
            _spare,
        }
    }

    /// Assigns it to a connection. An entry that is no longer kept does not change.
    fn belongs(&mut self, connection: u32, end: End) {
        if self.flags & GONE == 0 {
            self.connection = connection;
            self.flags = if end == End::B { self.flags | FROM_B } else { self.flags & !FROM_B };
        }
    }

    /// The number of the file, and the offset in it.
    pub(crate) fn place(&self) -> (usize, u64) {
        ((self.place >> 56) as usize, self.place & 0x00ff_ffff_ffff_ffff)
    }

    /// The highest layer that was decoded.
    pub(crate) fn layer(&self) -> Layer {
        Layer::ALL.get(usize::from(self.layer)).copied().unwrap_or_default()
    }

    /// The end of the connection that sent it.
    pub(crate) fn by(&self) -> End {
        if self.flags & FROM_B != 0 { End::B } else { End::A }
    }

    /// True if it is a retransmission.
    pub(crate) fn sent_before(&self) -> bool {
        self.flags & SENT_BEFORE != 0
    }

    /// The InfiniBand opcode.
    pub(crate) fn opcode(&self) -> Option<Opcode> {
        (self.flags & HAS_OPCODE != 0).then_some(Opcode(self.opcode))
    }

    /// True if it only acknowledges.
    pub(crate) fn is_acknowledgment(&self) -> bool {
        self.opcode().is_some_and(|o| o.0 == 0x11) || self.flags & NO_PAYLOAD != 0 && self.connection != 0
    }

    /// True if other frames may need it, on any connection: handshakes, fragments of datagrams.
    pub(crate) fn concerns_all(&self) -> bool {
        self.layer() == Layer::Cm || self.flags & WHOLE_NEEDED != 0
    }
}

/// All frames so far. Cheap to clone: the chunks are shared.
#[derive(Clone, Debug, Default)]
pub(crate) struct Index {
    chunks: Arc<Vec<Arc<[Entry]>>>,
    len: usize,
}

impl Index {
    /// Of chunks that were sealed; the last may have fewer entries than the others. `None` if another has.
    pub(crate) fn of_chunks(chunks: Vec<Arc<[Entry]>>) -> Option<Self> {
        let (last, others) = chunks.split_last().map_or((0, &[][..]), |(last, others)| (last.len(), others));
        let len = others.len() * CHUNK + last;
        (last <= CHUNK && others.iter().all(|chunk| chunk.len() == CHUNK))
            .then(|| Self { chunks: Arc::new(chunks), len })
    }

    /// The sealed chunks, in order.
    pub(crate) fn chunks(&self) -> impl Iterator<Item = &[Entry]> {
        self.chunks.iter().map(|chunk| &chunk[..])
    }

    /// Number of frames.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// A frame by its place, counted from 0.
    pub(crate) fn at(&self, place: usize) -> Option<&Entry> {
        self.chunks.get(place / CHUNK)?.get(place % CHUNK)
    }

    /// Frames from `from` on, with their places.
    pub(crate) fn from(&self, from: usize) -> impl Iterator<Item = (usize, &Entry)> {
        let first = from / CHUNK;
        // entries that are no longer kept are skipped
        let kept = |(_, chunk): &(usize, &Arc<[Entry]>)| chunk.first().is_none_or(|e| e.flags & GONE == 0);
        self.chunks.iter().enumerate().skip(first).filter(kept).flat_map(move |(c, chunk)| {
            let skip = if c == first { from % CHUNK } else { 0 };
            chunk.iter().enumerate().skip(skip).map(move |(i, e)| (c * CHUNK + i, e))
        })
    }

    /// Bytes that the index takes.
    pub(crate) fn bytes(&self) -> usize {
        self.len * size_of::<Entry>() + self.chunks.len() * size_of::<Arc<[Entry]>>()
    }
}

/// Makes an [`Index`], frame by frame.
#[derive(Debug, Default)]
pub(crate) struct Builder {
    sealed: Vec<Arc<[Entry]>>,
    tail: Vec<Entry>,
    /// Number of sealed chunks that are kept, and a placeholder for the others; `None` if all are kept.
    last: Option<(usize, Arc<[Entry]>)>,
    /// Facts learnt later about frames in sealed chunks: place, connection, end. Each chunk is rebuilt for all of them
    /// at once.
    learnt: Vec<(usize, u32, End)>,
}

impl Builder {
    /// Keeps the first chunk and the last `chunks`, and only places for those between: for a capture without an end.
    pub(crate) fn rolling(chunks: usize) -> Self {
        let gone = Entry { place: u64::MAX >> 8, flags: GONE, ..Entry::default() };
        Self { last: Some((chunks, vec![gone; CHUNK].into())), ..Self::default() }
    }

    #[inline]
    pub(crate) fn push(&mut self, entry: Entry) {
        self.tail.push(entry);
        if self.tail.len() == CHUNK {
            self.sealed.push(self.tail.as_slice().into());
            self.tail.clear();
            if let Some((most, gone)) = &self.last
                && let Some(oldest) = self.sealed.len().checked_sub(most + 1).filter(|at| *at > 0)
            {
                self.sealed[oldest] = gone.clone();
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.sealed.len() * CHUNK + self.tail.len()
    }

    /// A frame turned out to belong to a connection.
    pub(crate) fn belongs(&mut self, place: usize, connection: u32, end: End) {
        match place.checked_sub(self.sealed.len() * CHUNK) {
            Some(at) => {
                if let Some(entry) = self.tail.get_mut(at) {
                    entry.belongs(connection, end);
                }
            }
            None => self.learnt.push((place, connection, end)),
        }
    }

    /// Returns the index so far. Copies the unsealed chunk, the chunks of frames about which something was learnt
    /// since, and the list of the others.
    pub(crate) fn index(&mut self) -> Index {
        self.learnt.sort_unstable_by_key(|(place, ..)| *place);
        for learnt in self.learnt.chunk_by(|a, b| a.0 / CHUNK == b.0 / CHUNK) {
            let Some(chunk) = learnt.first().and_then(|(place, ..)| self.sealed.get_mut(place / CHUNK)) else {
                continue;
            };
            let mut entries = chunk.to_vec();
            for (place, connection, end) in learnt {
                entries[place % CHUNK].belongs(*connection, *end);
            }
            *chunk = entries.into();
        }
        self.learnt.clear();
        let mut chunks = Vec::with_capacity(self.sealed.len() + 1);
        chunks.extend(self.sealed.iter().cloned());
        if !self.tail.is_empty() {
            chunks.push(self.tail.as_slice().into());
        }
        Index { chunks: Arc::new(chunks), len: self.len() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(time: i64) -> Entry {
        Entry::new(
            time,
            2,
            1 << 40,
            100,
            Kind::Ib(0x11),
            &FrameFacts { place: Some((7, End::B)), exchange: 9, ..FrameFacts::default() },
        )
    }

    #[test]
    fn an_entry_keeps_what_it_was_given() {
        let e = entry(5);
        assert_eq!(
            (e.place(), e.connection, e.exchange, e.by(), e.is_acknowledgment()),
            ((2, 1 << 40), 7, 9, End::B, true)
        );
        let again = Entry::from_bytes(&e.to_bytes());
        assert_eq!(format!("{again:?}"), format!("{e:?}"));
        assert_eq!(Entry::from_bytes(&std::array::from_fn(|i| i as u8)).to_bytes(), std::array::from_fn(|i| i as u8));
    }

    #[test]
    fn a_rolling_index_keeps_the_first_and_the_last() {
        let mut builder = Builder::rolling(2);
        for i in 0..(6 * CHUNK as i64 + 5) {
            builder.push(entry(i));
        }
        let index = builder.index();
        assert_eq!(index.len(), 6 * CHUNK + 5);
        assert_eq!((index.at(3).unwrap().time, index.at(5 * CHUNK).unwrap().time), (3, 5 * CHUNK as i64));
        let gone = index.at(2 * CHUNK).unwrap();
        assert_eq!((gone.time, gone.connection, gone.place()), (0, 0, (0, (1 << 56) - 1)));
        assert_eq!(index.from(0).count(), 3 * CHUNK + 5);
        assert_eq!(index.from(2 * CHUNK).next().unwrap().0, 4 * CHUNK);
    }

    #[test]
    fn what_is_learnt_later_stands_in_its_frame() {
        let mut builder = Builder::default();
        for i in 0..(CHUNK as i64 + 10) {
            builder.push(Entry::new(i, 0, 0, 60, Kind::Other, &FrameFacts::default()));
        }
        let before = builder.index();
        builder.belongs(3, 7, End::B);
        builder.belongs(CHUNK + 2, 8, End::A);
        builder.belongs(10 * CHUNK, 9, End::A);
        let index = builder.index();
        assert_eq!(
            (before.at(3).unwrap().connection, index.at(3).unwrap().connection, index.at(3).unwrap().by()),
            (0, 7, End::B)
        );
        assert_eq!((index.at(CHUNK + 2).unwrap().connection, index.at(CHUNK + 2).unwrap().by()), (8, End::A));
        assert_eq!(index.from(0).filter(|(_, e)| e.connection != 0).count(), 2);
    }

    #[test]
    fn chunks_are_one_list() {
        let mut builder = Builder::default();
        for i in 0..(2 * CHUNK as i64 + 10) {
            builder.push(entry(i));
        }
        let index = builder.index();
        assert_eq!(index.len(), 2 * CHUNK + 10);
        for at in [0, CHUNK - 1, CHUNK, 2 * CHUNK + 9] {
            assert_eq!(index.at(at).unwrap().time, at as i64);
            assert_eq!(index.from(at).next().unwrap().0, at);
        }
        assert!(index.at(2 * CHUNK + 10).is_none());
        assert_eq!(index.from(CHUNK + 3).count(), CHUNK + 7);
        assert!(index.bytes() <= 33 * index.len());
    }
}
