//! Observer of the decoder that maps every field to the bytes of frames from which it was read.
//!
//! Fields of a reassembled message lie in a buffer of the analysis. Its bytes came from earlier frames: from payloads
//! that were reported (`infiniband.payload`, `smb_direct.data_message.data`, …), or from a TCP stream. They are found
//! by content: the concatenated pieces must equal the message byte by byte.

use crate::batch::Blanker;
use crate::block::{Span, With};
use crate::compress;
use crate::mapping::Mapping;
use crate::shape::{Shape, Shapes};
use crate::sums::{Fix, Ip};
use crate::tally::{Counts, Extra, Options, Payload, Replaced};
use crate::window::Window;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use rdmascope_dissector::field::{Def, FieldDef, Kind, Privacy, id_of};
use rdmascope_dissector::frame::{Body, Check, Packet};
use rdmascope_dissector::trace::{Trace, Value};
use rdmascope_dissector::wire::ib::icrc::Cover;
use rdmascope_dissector::wire::iwarp::mpa;
use rdmascope_dissector::wire::smb2;
use std::collections::VecDeque;

/// Limit of pieces kept for two hosts.
const PIECES_MAX: usize = 1 << 16;
/// Limit of passes over the pieces for one message.
const PASSES: usize = 6;
/// Limit of pieces compared with one message.
const LOOKED_AT_MAX: usize = 1 << 12;
/// Limit of candidate offsets in a stream where a message may begin.
const FOLLOWED_MAX: usize = 64;
/// Interval in frames at which knowledge about frames that left is removed.
const FORGET: u64 = 1 << 14;
/// Limit of pairs of hosts, and of streams.
const FLOWS_MAX: usize = 1 << 14;
/// Limit of overlapping segments that are compared.
const OVERLAPS_MAX: usize = 256;
/// Limit of a segment's length in bytes.
const SEGMENT_MAX: i64 = 1 << 16;
/// Bytes of a message that are searched for in a stream to find its beginning.
const PROBE: usize = 24;
/// Name in the report for names in compressed messages that became zeros, because their replacements did not fit.
const NAMES_COMPRESSED: &str = "names in compressed messages";
/// The decoder's value for a correct invariant CRC.
const GOOD: u64 = 1;
/// The analysis's name for a decompressed message.
const DECOMPRESSED: &str = "Decompressed SMB2";
/// Length, DDP control and RDMAP control of an FPDU, RFC 5044 section 3.
const FPDU_HEADER: usize = 4;
/// The ULPDU length alone. It is kept even if no FPDU follows, because zeros there would look like another FPDU.
const FPDU_LENGTH: usize = 2;
/// Length of an MPA marker, an RPC record mark and the length field of SMB over TCP, which framing removes from a
/// stream.
const TAKEN_OUT: usize = 4;

/// Declares the fields that [`Watch::structure`] and its caller use: a constant for each, and a list of all.
macro_rules! ids {
    ($($name:ident = $field:literal;)*) => {
        mod id {
            use super::id_of;
            $(pub(super) const $name: u32 = id_of($field);)*
            pub(super) const ALL: &[u32] = &[$($name),*];
        }
    };
}

ids! {
    IP_VERSION = "ip.version";
    IP6_VERSION = "ipv6.version";
    IP_SRC = "ip.src";
    IP_DST = "ip.dst";
    IP6_SRC = "ipv6.src";
    IP6_DST = "ipv6.dst";
    SGID = "infiniband.grh.sgid";
    DGID = "infiniband.grh.dgid";
    GRH_VERSION = "infiniband.grh.ipver";
    LRH_LANE = "infiniband.lrh.vl";
    SLID = "infiniband.lrh.slid";
    DLID = "infiniband.lrh.dlid";
    OPCODE = "infiniband.bth.opcode";
    DEST_QP = "infiniband.bth.destqp";
    PSN = "infiniband.bth.psn";
    ICRC = "infiniband.invariant.crc";
    ICRC_STATUS = "rdmascope.icrc.status";
    VCRC = "infiniband.variant.crc";
    IP_CHECKSUM = "ip.checksum";
    TCP_CHECKSUM = "tcp.checksum";
    UDP_CHECKSUM = "udp.checksum";
    ICMP_CHECKSUM = "icmp.checksum";
    ICMP6_CHECKSUM = "icmpv6.checksum";
    SRC_PORT = "tcp.srcport";
    DST_PORT = "tcp.dstport";
    SEQ = "tcp.seq_raw";
    SEQ_ALONE = "tcp.seq";
    TCP_PAYLOAD = "tcp.payload";
    IB_PAYLOAD = "infiniband.payload";
    RDMAP_DATA = "rdmascope.iwarp_rdma.data";
    SMBD_DATA = "rdmascope.smb_direct.data_message.data";
    ULPDU_LENGTH = "iwarp_mpa.ulpdulength";
    MPA_CRC = "iwarp_mpa.crc";
    MPA_CRC_CHECK = "iwarp_mpa.crc_check";
    DDP_OFFSET = "iwarp_ddp.mo";
    EOL = "tcp.options.eol";
    SMB2 = "smb2";
    COMMAND = "smb2.cmd";
    STRUCTURE_SIZE = "smb2.buffer_code";
    RPC = "rpc";
    SMB_DIRECT = "smb_direct";
    RPC_RDMA = "rpcordma";
    UNKNOWN = "smb2.unknown";
    ENCRYPTED = "smb2.header.transform.enc_data";
    COMPRESSED = "rdmascope.smb2.header.comp_transform";
}

/// True if a field may describe the packet itself; false if it certainly does not.
fn may_be_structure(id: u32) -> bool {
    STRUCTURE[id as usize % STRUCTURE_BITS / 64] >> (id % 64) & 1 == 1
}

/// Number of bits in [`STRUCTURE`].
const STRUCTURE_BITS: usize = 1 << 12;

/// Bit set of [`id::ALL`], by the lowest bits of the ids.
const STRUCTURE: [u64; STRUCTURE_BITS / 64] = {
    let mut set = [0; STRUCTURE_BITS / 64];
    let mut i = 0;
    while i < id::ALL.len() {
        let bit = id::ALL[i] as usize % STRUCTURE_BITS;
        set[bit / 64] |= 1 << (bit % 64);
        i += 1;
    }
    set
};

/// Structure sizes of each SMB2 command, \[MS-SMB2\] 2.2.3 to 2.2.38: request, reply, and others.
const STRUCTURES: [&[u64]; 19] = [
    &[36, 65],
    &[25, 9],
    &[4],
    &[9, 16],
    &[4],
    &[57, 89],
    &[24, 60],
    &[24, 4],
    &[49, 17],
    &[49, 17],
    &[48, 4],
    &[57, 49],
    &[4],
    &[4],
    &[33, 9],
    &[32, 9],
    &[41, 9],
    &[33, 2],
    &[24, 36, 44],
];
/// Bytes of an SMB2 header up to the end of its flags, \[MS-SMB2\] 2.2.1; none of them identifies anybody.
const FLAGS_END: usize = 20;
/// Up to this many zero bytes after a message are padding.
const PADDING_MAX: usize = 8;
/// Replacement for other bytes there, which must not look like padding.
const NO_PADDING: [u8; PADDING_MAX] = [0xff; PADDING_MAX];
/// Structure size of an ERROR reply.
const STRUCTURE_OF_ERROR: u64 = 9;

/// Kind of data about machines and files that a kept field reveals.
fn extra(def: Def) -> Option<Extra> {
    const MEMORY: [u32; 15] = [
        id_of("infiniband.reth.va"),
        id_of("infiniband.reth.r_key"),
        id_of("infiniband.ieth"),
        id_of("iwarp_ddp.stag"),
        id_of("iwarp_ddp.tagged_offset"),
        id_of("rdmascope.iwarp_rdma.term.stag"),
        id_of("rdmascope.iwarp_rdma.term.tagged_offset"),
        id_of("iwarp_rdma.sinkstag"),
        id_of("iwarp_rdma.sinkto"),
        id_of("iwarp_rdma.srcstag"),
        id_of("iwarp_rdma.srcto"),
        id_of("iwarp_rdma.inval_stag"),
        id_of("rpcordma.rdma_handle"),
        id_of("rpcordma.rdma_offset"),
        id_of("smb2.buffer_descriptor.token"),
    ];
    const OFFSET: u32 = id_of("smb2.buffer_descriptor.offset");
    const SIZES: [u32; 7] = [
        id_of("smb2.eof"),
        id_of("smb2.allocation_size"),
        id_of("nfs.fattr3.size"),
        id_of("nfs.fattr3.used"),
        id_of("nfs.wcc_attr.size"),
        id_of("nfs.fattr4.size"),
        id_of("nfs.fattr4.space_used"),
    ];
    const TIMES: [u32; 10] = [
        id_of("nfs.atime.sec"),
        id_of("nfs.atime.nsec"),
        id_of("nfs.mtime.sec"),
        id_of("nfs.mtime.nsec"),
        id_of("nfs.ctime.sec"),
        id_of("nfs.ctime.nsec"),
        id_of("nfs.dtime.sec"),
        id_of("nfs.dtime.nsec"),
        id_of("nfs.nfstime4.seconds"),
        id_of("nfs.nfstime4.nseconds"),
    ];
    if MEMORY.contains(&def.id) || def.id == OFFSET {
        Some(Extra::Memory)
    } else if SIZES.contains(&def.id) {
        Some(Extra::Size)
    } else if def.kind == Kind::AbsTime || TIMES.contains(&def.id) {
        Some(Extra::Time)
    } else {
        None
    }
}

/// Buffer that fields point into: the frame, or a reassembled message.
#[derive(Debug)]
struct Source {
    base: usize,
    length: usize,
    /// Origin of each part of the buffer, in order. Parts of unknown origin are missing.
    from: Vec<(usize, Span)>,
    /// The compressed message that this buffer was decompressed from.
    compressed: Option<Box<Compressed>>,
}

/// A compressed message, and its place in frames.
#[derive(Debug)]
struct Compressed {
    message: Vec<u8>,
    spans: Spans,
}

/// Spans whose concatenation is a run of bytes; mostly one.
#[derive(Clone, Debug)]
enum Spans {
    None,
    One(Span),
    More(Vec<Span>),
}

impl std::ops::Deref for Spans {
    type Target = [Span];
    fn deref(&self) -> &[Span] {
        match self {
            Self::None => &[],
            Self::One(span) => std::slice::from_ref(span),
            Self::More(spans) => spans,
        }
    }
}

/// A host address of up to 16 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Host {
    bytes: [u8; 16],
    length: u8,
}

impl Host {
    fn new(address: &[u8]) -> Self {
        let mut host = Self { length: address.len().min(16) as u8, ..Self::default() };
        host.bytes[..usize::from(host.length)].copy_from_slice(&address[..usize::from(host.length)]);
        host
    }
}

/// A payload that may be part of a reassembled message.
#[derive(Debug)]
struct Piece {
    spans: Spans,
    length: usize,
    /// Its queue pair and its ports.
    queue: (u64, (u16, u16)),
    serial: u64,
    /// True if a message was reassembled from it.
    used: bool,
    /// True for the payload of a packet, false for that of a message.
    is_packet: bool,
}

/// Fragments of datagrams by hosts and identification: offset and place of each payload.
type Fragments = HashMap<(Host, Host, u32), Vec<(u32, Span)>>;

/// One direction of a TCP connection.
#[derive(Debug, Default)]
struct Stream {
    /// Segments by stream offset.
    segments: VecDeque<(i64, Span)>,
    /// Offset of the last reported segment, from which the next one's offset is extended to 64 bits.
    last: i64,
    /// Offset at which the next message should begin.
    next: Option<i64>,
    /// Offset of an FPDU that was not reported yet.
    fpdu: Option<i64>,
    /// Offset after the last reported FPDU.
    next_fpdu: Option<i64>,
}

/// The hosts and ports of the current packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Flow {
    from: Host,
    to: Host,
    ports: (u16, u16),
}

impl Flow {
    /// The opposite direction.
    fn back(self) -> Self {
        Self { from: self.to, to: self.from, ports: (self.ports.1, self.ports.0) }
    }

    fn hosts(&self) -> (Host, Host) {
        if self.from <= self.to { (self.from, self.to) } else { (self.to, self.from) }
    }
}

/// The headers of the current packet.
#[derive(Clone, Copy, Debug, Default)]
struct Headers {
    flow: Flow,
    ip: Option<Ip>,
    lrh: Option<usize>,
    grh: Option<usize>,
    bth: Option<usize>,
    queue: u64,
    psn: u64,
    seq: u32,
    /// Stream offset of the TCP payload, and its place in the frame.
    stream: Option<(i64, Span)>,
    /// Addresses of the FPDU's beginning and of its ULPDU's end.
    fpdu: (usize, usize),
    is_rdma: bool,
    /// The current SMB2 command, and whether its body has another structure size: then it is data that only begins like
    /// an SMB2 header.
    command: u64,
    is_other: bool,
}

impl Headers {
    fn place(&self) -> (u64, (u16, u16)) {
        (self.queue, self.flow.ports)
    }
}

/// The observer; see the module.
pub(crate) struct Watch<M> {
    pub(crate) window: Window<M>,
    pub(crate) mapping: Mapping,
    pub(crate) counts: Counts,
    options: Options,
    /// True if the options replace data that is kept by default.
    drops: bool,
    frame: u64,
    sources: Vec<Source>,
    headers: Headers,
    pieces: HashMap<(Host, Host), VecDeque<Piece>>,
    streams: HashMap<Flow, Stream>,
    /// Payloads of the first and the last packet with a PSN, by direction, queue pair and PSN.
    packets: HashMap<(Flow, u64, u64), (Span, Span)>,
    fragments: Fragments,
    /// Addresses of the bytes kept last. Adjacent fields are joined and recorded together.
    kept: (usize, usize),
    /// The last reported compressed message.
    compressed: Option<Box<Compressed>>,
    serial: u64,
    /// Shapes of headers that were reported, with the knowledge about frames of each shape.
    shapes: Shapes<Known>,
}

/// Knowledge about all frames of one shape, besides its plan.
struct Known {
    headers: Headers,
    replaced: Replaced,
}

impl<M> Watch<M> {
    pub(crate) fn new(options: Options, limit: usize) -> Self {
        Self {
            window: Window::new(limit),
            mapping: Mapping::new(&options.key),
            counts: Counts::default(),
            drops: !options.drop.is_empty(),
            options,
            frame: 0,
            sources: Vec::new(),
            headers: Headers::default(),
            pieces: HashMap::new(),
            streams: HashMap::new(),
            packets: HashMap::new(),
            fragments: HashMap::new(),
            kept: (0, 0),
            compressed: None,
            serial: 0,
            shapes: Shapes::default(),
        }
    }

    /// Begins a new frame.
    pub(crate) fn begin(&mut self, meta: M, bytes: &[u8]) {
        self.note_kept();
        self.frame = self.window.push(meta, bytes);
        self.headers = Headers::default();
        self.compressed = None;
        let whole = Span { frame: self.frame, at: 0, length: bytes.len() as u32 };
        self.sources.truncate(1);
        match self.sources.first_mut() {
            Some(frame) => (frame.base, frame.length, frame.from[0]) = (bytes.as_ptr().addr(), bytes.len(), (0, whole)),
            None => {
                let from = vec![(0, whole)];
                self.sources.push(Source { base: bytes.as_ptr().addr(), length: bytes.len(), from, compressed: None });
            }
        }
        // knowledge that only serves to find pieces costs memory too
        if self.frame.is_multiple_of(FORGET) {
            let oldest = self.window.oldest();
            self.pieces.retain(|_, pieces| {
                pieces.retain(|p| p.spans.iter().all(|s| s.frame >= oldest));
                !pieces.is_empty()
            });
            for stream in self.streams.values_mut() {
                stream.segments.retain(|(_, s)| s.frame >= oldest);
            }
        }
        if self.pieces.len() > FLOWS_MAX {
            self.pieces.clear();
        }
        if self.streams.len() > FLOWS_MAX {
            self.streams.clear();
        }
        if self.packets.len() > PIECES_MAX {
            let oldest = self.window.oldest();
            self.packets.retain(|_, (_, last)| last.frame >= oldest);
            if self.packets.len() > PIECES_MAX {
                self.packets.clear();
            }
        }
        if self.fragments.len() > FLOWS_MAX {
            self.fragments.clear();
        }
    }

    /// True if headers of this shape were reported before.
    pub(crate) fn knows(&self, shape: &Shape) -> bool {
        self.shapes.find(shape).is_some()
    }

    /// Remembers what the current frame's headers showed, for later frames of its shape.
    pub(crate) fn learn(&mut self, shape: Shape, length: usize, before: &Replaced) {
        self.note_kept();
        let Some(plan) = shape.plan(length, self.window.notes_of_newest()) else { return };
        let headers = Headers { psn: 0, seq: 0, stream: None, ..self.headers };
        self.shapes.add(shape, plan, Known { headers, replaced: self.counts.replaced_since(before) });
    }

    /// Treats the current frame as if its headers were reported: a plan for its shape is known.
    pub(crate) fn recall(&mut self, shape: &Shape, packet: &Packet<'_>) {
        let Some((_, plan, known)) = self.shapes.find(shape) else { return };
        self.headers = known.headers;
        self.counts.replaced_again(&known.replaced);
        match &packet.body {
            Body::Ib(ib) => {
                self.window.follow_plan(plan, ib.icrc == Check::Good);
                self.headers.psn = u64::from(ib.bth.psn);
                if !ib.payload.is_empty() {
                    self.piece(self.locate(ib.payload), ib.payload.len(), true);
                    self.again(ib.payload);
                }
            }
            Body::Tcp(segment) => {
                self.window.follow_plan(plan, false);
                self.headers.seq = segment.seq;
                if !segment.payload.is_empty() {
                    self.segment(segment.payload);
                }
            }
            _ => {}
        }
    }

    /// Records the payload of an IP fragment.
    pub(crate) fn fragment(&mut self, id: u32, offset: u32, payload: &[u8]) {
        let spans = self.locate(payload);
        let known = self.fragments.entry((self.headers.flow.from, self.headers.flow.to, id)).or_default();
        if known.len() < 1 << 10 {
            known.extend(spans.iter().map(|span| (offset, *span)));
        }
    }

    /// Place in frames of bytes that a decoder reported; empty if unknown.
    #[inline]
    fn locate(&self, bytes: &[u8]) -> Spans {
        self.locate_at(bytes.as_ptr().addr(), bytes.len())
    }

    #[inline]
    fn locate_at(&self, address: usize, length: usize) -> Spans {
        let end = address.saturating_add(length);
        if let [frame] = &self.sources[..] {
            let is_here = length > 0 && address >= frame.base && end <= frame.base + frame.length;
            let span = Span { frame: self.frame, at: address.wrapping_sub(frame.base) as u32, length: length as u32 };
            return if is_here { Spans::One(span) } else { Spans::None };
        }
        match self.sources.iter().rev().find(|s| address >= s.base && end <= s.base + s.length) {
            Some(source) => source.locate(address - source.base, length),
            None => Spans::None,
        }
    }

    fn in_frame(&self, bytes: &[u8]) -> Option<usize> {
        match self.locate(bytes)[..] {
            [span] if span.frame == self.frame && span.length as usize == bytes.len() => Some(span.at as usize),
            _ => None,
        }
    }

    #[inline]
    fn keep(&mut self, bytes: &[u8]) {
        let (begins, length) = (bytes.as_ptr().addr(), bytes.len());
        let (from, to) = self.kept;
        if (from..=to).contains(&begins) {
            self.kept.1 = to.max(begins + length);
            return;
        }
        self.note_kept();
        self.kept = (begins, begins + length);
    }

    /// Records the kept bytes. Called before a buffer at these addresses changes.
    pub(crate) fn note_kept(&mut self) {
        let (from, to) = std::mem::take(&mut self.kept);
        if let [frame] = &self.sources[..] {
            if from >= frame.base && to <= frame.base + frame.length {
                self.window.keep_newest(from - frame.base, to - from);
            }
            return;
        }
        let Some(source) = self.sources.iter().rev().find(|s| from >= s.base && to <= s.base + s.length) else {
            return;
        };
        for span in source.known(from - source.base, to - from).1.iter() {
            self.window.keep(*span);
        }
    }

    fn replace(&mut self, privacy: Privacy, bytes: &[u8], with: With<'_>) {
        if self.put(bytes, with) {
            self.counts.replaced(privacy, bytes.len());
        }
    }

    /// Replaces bytes. Returns true if some of them were not replaced before.
    fn put(&mut self, bytes: &[u8], with: With<'_>) -> bool {
        let (mut done, mut any) = (0, false);
        for span in self.locate(bytes).iter() {
            let end = done + span.length as usize;
            any |= self.window.replace(*span, with.part(done..end));
            done = end;
        }
        any
    }

    /// Replaces data that is kept by default, if the options say so. Returns true if they do.
    fn dropped(&mut self, def: Def, bytes: &[u8], value: &Value<'_>) -> bool {
        let Some(kind) = extra(def).filter(|kind| self.options.drop.contains(kind)) else { return false };
        let mut made = bytes.to_vec();
        let big = |bytes: &[u8]| bytes.iter().fold(0u64, |n, b| n << 8 | u64::from(*b));
        let number = if let Value::U(n) = value { *n } else { big(bytes) };
        // descriptors of SMB2 are little-endian, everything below is big-endian
        let is_big = big(bytes) == number;
        match (kind, bytes.len()) {
            (Extra::Memory, 4) => {
                let key = self.mapping.remote_key(number as u32);
                made.copy_from_slice(&if is_big { key.to_be_bytes() } else { key.to_le_bytes() });
            }
            (Extra::Memory, 8) => {
                let address = self.mapping.memory(number);
                made.copy_from_slice(&if is_big { address.to_be_bytes() } else { address.to_le_bytes() });
            }
            _ => made.fill(0),
        }
        if self.put(bytes, With::Bytes(&made)) {
            self.counts.dropped(kind, bytes.len());
        }
        true
    }

    fn field(&mut self, def: Def, bytes: &[u8], value: &Value<'_>) {
        let privacy = def.privacy;
        if privacy == Privacy::Keep && self.headers.is_other && def.id != id::STRUCTURE_SIZE {
            return;
        }
        if privacy == Privacy::Keep && self.drops && self.dropped(def, bytes, value) {
            return;
        }
        if def.id == id::UNKNOWN && bytes.len() <= PADDING_MAX {
            return self.replace(Privacy::Data, bytes, With::Bytes(&NO_PADDING[..bytes.len()]));
        }
        match privacy {
            Privacy::Keep => return self.keep(bytes),
            Privacy::Inside | Privacy::Ber => {
                for span in self.locate(bytes).iter() {
                    self.window.inside(*span, def);
                }
                if privacy == Privacy::Ber {
                    self.ber(bytes, 0);
                }
                return;
            }
            kept if self.options.keep.contains(&kept) => return self.keep(bytes),
            // text converted from other bytes, which other fields describe
            Privacy::Name
                if !is_utf16(def, bytes) && matches!(value, Value::Text(_)) && std::str::from_utf8(bytes).is_err() =>
            {
                return;
            }
            _ => {}
        }
        // pseudorandom bytes cannot be compressed again
        let is_zeroed = privacy == Privacy::Data && (self.options.payload == Payload::Zero || self.is_compressed());
        if is_zeroed {
            return self.replace(privacy, bytes, With::Zeros);
        }
        let (mut small, mut large) = ([0; 64], Vec::new());
        let made = match small.get_mut(..bytes.len()) {
            Some(made) => {
                made.copy_from_slice(bytes);
                made
            }
            None => {
                large.extend_from_slice(bytes);
                &mut large[..]
            }
        };
        match privacy {
            Privacy::Mac => self.mapping.mac(made),
            Privacy::Address => self.mapping.address(made),
            Privacy::Name if is_utf16(def, bytes) => self.mapping.name16(made),
            Privacy::Name => self.mapping.name8(made),
            Privacy::Sid => self.mapping.sid(made),
            // user numbers are XDR integers, big-endian
            Privacy::User => self.mapping.user(made, true),
            Privacy::Data => self.mapping.stream(bytes, made),
            Privacy::Secret => self.mapping.secret(bytes, made),
            Privacy::Id | Privacy::Keep | Privacy::Inside | Privacy::Ber => self.mapping.id(made),
        }
        self.replace(privacy, bytes, With::Bytes(made));
    }

    /// True if the current buffers include a decompressed message.
    fn is_compressed(&self) -> bool {
        self.sources.iter().any(|s| s.compressed.is_some())
    }

    /// Compresses a changed message again and replaces the original with it.
    fn compress(&mut self, from: &Compressed) {
        let mut blanker =
            Blanker { stream: self.mapping.streams(), payload: Payload::Zero, blanked: &mut self.counts.blanked };
        let (plain, flat, zeroed) = self.window.pop_scratch(&mut blanker);
        let again = |plain: &[u8]| compress::again(&from.message, plain).filter(|_| !from.spans.is_empty());
        let made = again(&plain).or_else(|| {
            // the new names may be harder to compress; zeros fit more often
            let made = again(&flat)?;
            self.counts.blanked.add(NAMES_COMPRESSED, zeroed);
            Some(made)
        });
        let Some(made) = made else {
            self.counts.compressed += 1;
            return;
        };
        self.counts.recompressed += 1;
        let mut done = 0;
        for span in from.spans.iter() {
            let end = (done + span.length as usize).min(made.len());
            self.window.replace(*span, With::Bytes(&made[done..end]));
            done = end;
        }
    }

    /// Keeps tags and lengths of BER, and contents that the protocol defines.
    fn ber(&mut self, mut i: &[u8], depth: u8) {
        while let [tag, length, rest @ ..] = i {
            let (header, length) = match length {
                ..=0x7f => (2, usize::from(*length)),
                0x81..=0x84 => {
                    let bytes = usize::from(*length & 0x7f);
                    let Some(value) = rest.get(..bytes) else { return };
                    (2 + bytes, value.iter().fold(0, |n, b| n << 8 | usize::from(*b)))
                }
                _ => return,
            };
            let Some(contents) = i.get(header..).and_then(|c| c.get(..length)) else { return };
            self.keep(&i[..header]);
            match tag {
                // constructed
                _ if tag & 0x20 != 0 && depth < 8 => self.ber(contents, depth + 1),
                // object identifiers and enumerations
                0x06 | 0x0a => self.keep(contents),
                _ => {}
            }
            i = &i[header + length..];
        }
    }

    /// Handles fields that describe the packet itself: addresses, places of checksums, payload.
    #[inline(never)]
    fn structure(&mut self, def: Def, bytes: &[u8], value: &Value<'_>) {
        let number = if let Value::U(n) = value { *n } else { 0 };
        match def.id {
            id::IP_VERSION | id::IP6_VERSION => {
                self.headers.ip = self.in_frame(bytes).map(|start| Ip { start, is_v6: def.id == id::IP6_VERSION });
                (self.headers.lrh, self.headers.grh) = (None, None);
            }
            id::IP_SRC | id::IP6_SRC | id::SGID | id::SLID => self.headers.flow.from = Host::new(bytes),
            id::IP_DST | id::IP6_DST | id::DGID | id::DLID => self.headers.flow.to = Host::new(bytes),
            id::GRH_VERSION => self.headers.grh = self.in_frame(bytes),
            id::LRH_LANE => self.headers.lrh = self.in_frame(bytes),
            id::OPCODE => self.headers.bth = self.in_frame(bytes),
            id::DEST_QP => (self.headers.queue, self.headers.is_rdma) = (number, true),
            id::PSN => self.headers.psn = number,
            id::ICRC => {
                let Some(at) = self.in_frame(bytes) else { return };
                let Headers { lrh, grh, ip, bth, .. } = self.headers;
                let cover = match (lrh, grh, ip) {
                    (Some(start), Some(_), _) => (Cover::LrhGrh, start),
                    (Some(start), None, _) => (Cover::Lrh, start),
                    (None, Some(start), _) => (Cover::Grh, start),
                    (None, None, Some(ip)) => (if ip.is_v6 { Cover::Ipv6 } else { Cover::Ipv4 }, ip.start),
                    _ => return,
                };
                self.window.fix(
                    self.frame,
                    Fix::Icrc { cover: cover.0, start: cover.1, bth: bth.unwrap_or(0), at, is_good: false },
                );
            }
            id::VCRC => {
                if let (Some(at), Some(start)) = (self.in_frame(bytes), self.headers.lrh) {
                    self.window.fix(self.frame, Fix::Vcrc { start, at });
                }
            }
            id::IP_CHECKSUM => {
                if let Some(ip) = self.headers.ip {
                    self.window.fix(self.frame, Fix::Ip { start: ip.start });
                }
            }
            id::TCP_CHECKSUM => self.transport(bytes, 16, 6),
            id::UDP_CHECKSUM => self.transport(bytes, 6, 17),
            id::ICMP_CHECKSUM => self.transport(bytes, 2, 1),
            id::ICMP6_CHECKSUM => self.transport(bytes, 2, 58),
            id::SRC_PORT => self.headers.flow.ports.0 = number as u16,
            id::DST_PORT => (self.headers.flow.ports.1, self.headers.stream) = (number as u16, None),
            id::SEQ | id::SEQ_ALONE if bytes.len() == 4 => {
                self.headers.seq = bytes.first_chunk().map_or(0, |b| u32::from_be_bytes(*b));
            }
            id::TCP_PAYLOAD => self.segment(bytes),
            id::IB_PAYLOAD => {
                self.piece(self.locate(bytes), bytes.len(), true);
                self.again(bytes);
            }
            id::RDMAP_DATA => self.piece(self.locate(bytes), bytes.len(), false),
            id::SMBD_DATA => {
                self.piece(self.locate(bytes), bytes.len(), false);
                // the first fragment of a message that may never be complete: its header at least is reported
                if bytes.starts_with(&smb2::header::PROTOCOL_ID) {
                    let _ = smb2::Header::parse(bytes, self);
                }
            }
            id::ULPDU_LENGTH => {
                let start = bytes.as_ptr().addr();
                self.headers.fpdu = (start, start.saturating_add(2).saturating_add(number as usize));
                self.headers.is_rdma = true;
                self.fpdu(bytes, number as u16);
            }
            id::SMB_DIRECT | id::RPC_RDMA => self.headers.is_rdma = true,
            id::ENCRYPTED => self.counts.sealed += 1,
            id::COMMAND => (self.headers.command, self.headers.is_other) = (number, false),
            id::STRUCTURE_SIZE => {
                let known = usize::try_from(self.headers.command).ok().and_then(|command| STRUCTURES.get(command));
                self.headers.is_other =
                    number != STRUCTURE_OF_ERROR && known.is_some_and(|sizes| !sizes.contains(&number));
            }
            _ => {}
        }
    }

    fn transport(&mut self, bytes: &[u8], field: usize, protocol: u8) {
        match (self.in_frame(bytes), self.headers.ip) {
            (Some(at), Some(ip)) if at >= field => {
                self.window.fix(self.frame, Fix::Transport { ip, start: at - field, at, protocol });
            }
            _ => self.counts.sums += 1,
        }
    }

    /// Records the payload of an untagged DDP segment, which follows the offset field.
    fn untagged(&mut self, at: &[u8]) {
        let begins = at.as_ptr().addr().saturating_add(4);
        // an FPDU may be cut short
        let source = self.sources.iter().rev().find(|s| (s.base..s.base + s.length).contains(&begins));
        let ends = source.map_or(begins, |s| self.headers.fpdu.1.min(s.base + s.length));
        let length = ends.saturating_sub(begins);
        let spans = self.locate_at(begins, length);
        self.piece(spans, length, true);
    }

    fn piece(&mut self, spans: Spans, length: usize, is_packet: bool) {
        if length == 0 || !spans.first().is_some_and(Span::is_in_frame) {
            return;
        }
        self.serial += 1;
        let (serial, oldest, queue) = (self.serial, self.window.oldest(), self.headers.place());
        let pieces = self.pieces.entry(self.headers.flow.hosts()).or_default();
        while pieces.front().is_some_and(|p| pieces.len() >= PIECES_MAX || p.spans.iter().any(|s| s.frame < oldest)) {
            pieces.pop_front();
        }
        pieces.push_back(Piece { spans, length, queue, serial, used: false, is_packet });
    }

    /// Links a packet to earlier ones with the same PSN: retransmissions, or copies in the capture.
    fn again(&mut self, bytes: &[u8]) {
        let Some(at) = self.in_frame(bytes) else { return };
        let span = Span { frame: self.frame, at: at as u32, length: bytes.len() as u32 };
        let key = (self.headers.flow, self.headers.queue, self.headers.psn);
        let (first, last) = match self.packets.entry(key) {
            Entry::Vacant(place) => {
                place.insert((span, span));
                return;
            }
            Entry::Occupied(mut known) => {
                let (first, last) = *known.get();
                if last.length != span.length {
                    known.insert((span, span));
                    return;
                }
                // so that the first one receives the knowledge about all others
                let first = if first.frame < self.window.oldest() { last } else { first };
                known.insert((first, span));
                (first, last)
            }
        };
        if last != span {
            self.window.same(last, span);
        }
        if first != last {
            self.window.same(first, span);
        }
    }

    fn segment(&mut self, bytes: &[u8]) {
        let [span] = self.locate(bytes)[..] else { return };
        let oldest = self.window.oldest();
        let stream = self.streams.entry(self.headers.flow).or_default();
        let begins = stream.last + i64::from(self.headers.seq.wrapping_sub(stream.last as u32) as i32);
        stream.last = begins;
        while stream.segments.front().is_some_and(|(_, s)| s.frame < oldest || stream.segments.len() >= PIECES_MAX) {
            stream.segments.pop_front();
        }
        let ends = begins + i64::from(span.length);
        for (other, before) in stream.over(begins, ends) {
            let from = begins.max(*other);
            let length = ends.min(other + i64::from(before.length)) - from;
            if length > 0 {
                let part = |start: i64, s: Span| Span {
                    frame: s.frame,
                    at: s.at + (from - start) as u32,
                    length: length as u32,
                };
                self.window.same(part(*other, *before), part(begins, span));
            }
        }
        let place = stream.segments.iter().rposition(|(other, _)| *other <= begins).map_or(0, |n| n + 1);
        stream.segments.insert(place, (begins, span));
        let has_header = stream.fpdu.is_some_and(|at| at + FPDU_HEADER as i64 > begins && at < ends);
        self.headers.stream = Some((begins, span));
        if has_header {
            self.fpdu_header(self.headers.flow);
        }
    }

    /// Notes that a message on TCP begins here, after its length field.
    fn message(&mut self, at: &[u8]) {
        if self.headers.is_rdma {
            return;
        }
        let Some(first) = self.locate(&at[..at.len().min(1)]).first().copied().filter(Span::is_in_frame) else {
            return;
        };
        let place = |stream: &Stream| {
            stream.segments.iter().rev().find_map(|(begins, s)| {
                (s.frame == first.frame && (s.at..s.at + s.length).contains(&first.at))
                    .then(|| begins + i64::from(first.at - s.at))
            })
        };
        let flow = self.headers.flow;
        let found =
            [flow, flow.back()].into_iter().find_map(|flow| Some((flow, self.streams.get(&flow).and_then(place)?)));
        let Some((stream, begins)) = found.and_then(|(flow, begins)| Some((self.streams.get_mut(&flow)?, begins)))
        else {
            return;
        };
        let head = begins - TAKEN_OUT as i64;
        if stream.next.is_some_and(|next| head < next) {
            return;
        }
        let spans = stream.spans(head, TAKEN_OUT);
        let bytes: Vec<u8> = spans.iter().filter_map(|s| self.window.old(*s)).flatten().copied().collect();
        let Ok(word) = <[u8; 4]>::try_from(bytes) else { return };
        let length = u32::from_be_bytes(word) & 0x7fff_ffff;
        stream.next = Some(begins + i64::from(length.min(1 << 24)));
        for span in spans {
            self.window.keep(span);
        }
    }

    /// Origin of a reassembled message's bytes.
    fn origin(&mut self, name: &str, bytes: &[u8]) -> Vec<(usize, Span)> {
        match name {
            "Decrypted SMB2" => Vec::new(),
            DECOMPRESSED => vec![(0, self.window.push_scratch(bytes))],
            "Reassembled IP datagram" => self.of_fragments(bytes),
            "Reassembled FPDU" => self.of_stream(bytes, true),
            "Reassembled MPA frame" | "Reassembled TCP" => self.of_stream(bytes, false),
            _ => {
                // packets and messages may contain the same bytes
                let of_packets = match name {
                    "Reassembled SMB Direct" => Some(false),
                    "Reassembled Send" => Some(true),
                    _ => None,
                };
                let found = self.of_pieces(bytes, of_packets);
                if found.is_empty() { self.of_stream(bytes, false) } else { found }
            }
        }
    }

    fn of_fragments(&self, bytes: &[u8]) -> Vec<(usize, Span)> {
        let hosts = (self.headers.flow.from, self.headers.flow.to);
        let mut found = Vec::new();
        for ((from, to, _), parts) in &self.fragments {
            if (*from, *to) != hosts {
                continue;
            }
            let mut these = Vec::new();
            for (offset, span) in parts {
                let at = *offset as usize;
                if bytes.get(at..).and_then(|b| b.get(..span.length as usize)) == self.window.old(*span) {
                    these.push((at, *span));
                }
            }
            if these.iter().map(|(_, s)| s.length as usize).sum::<usize>() >= bytes.len() {
                these.sort_unstable_by_key(|(at, _)| *at);
                found = these;
            }
        }
        found
    }

    /// The pieces that a message was reassembled from. Several may have the same bytes: the best fit is taken.
    fn of_pieces(&mut self, bytes: &[u8], of_packets: Option<bool>) -> Vec<(usize, Span)> {
        let hosts = self.headers.flow.hosts();
        let Some(pieces) = self.pieces.get(&hosts) else { return Vec::new() };
        let fits = [Fit::Best, Fit::OtherQueue, Fit::Used, Fit::Any].into_iter();
        let found = fits.flat_map(|fit| [(fit, false), (fit, true)]).find_map(|(fit, is_forward)| {
            let may = |piece: &Piece| self.fits(piece, fit, of_packets);
            if is_forward { self.forward(pieces, bytes, may) } else { self.backward(pieces, bytes, may) }
        });
        let Some((found, used)) = found else { return Vec::new() };
        let newest = used.iter().max().copied().unwrap_or(0);
        let oldest = used.iter().min().copied().unwrap_or(0);
        for piece in self.pieces.get_mut(&hosts).into_iter().flatten().rev().skip_while(|p| p.serial > newest) {
            if piece.serial < oldest {
                break;
            }
            piece.used |= used.contains(&piece.serial);
        }
        found
    }

    fn fits(&self, piece: &Piece, fit: Fit, of_packets: Option<bool>) -> bool {
        let is_kind = of_packets.is_none_or(|wanted| wanted == piece.is_packet);
        match fit {
            Fit::Best => is_kind && !piece.used && piece.queue == self.headers.place(),
            // a packet of the other side may end the wait for one that the capture missed
            Fit::OtherQueue => is_kind && !piece.used,
            Fit::Used => is_kind,
            Fit::Any => true,
        }
    }

    /// Matches pieces from the end of the message backwards, in several passes for pieces out of order.
    fn backward(&self, pieces: &VecDeque<Piece>, bytes: &[u8], may: impl Fn(&Piece) -> bool) -> Option<Pieces> {
        let mut left = bytes.len();
        let (mut found, mut used) = (Vec::new(), Vec::new());
        for _ in 0..PASSES {
            let before = left;
            for piece in pieces.iter().rev().take(LOOKED_AT_MAX) {
                if left == 0 {
                    break;
                }
                // a piece may extend past the end of the message, where padding was removed
                let Some(start) = left.checked_sub(piece.length) else { continue };
                if !may(piece) || used.contains(&piece.serial) || !self.is(piece, &bytes[start..left]) {
                    continue;
                }
                used.push(piece.serial);
                let mut at = left;
                for span in piece.spans.iter().rev() {
                    at -= span.length as usize;
                    found.push((at, *span));
                }
                left = start;
            }
            if left == 0 {
                found.reverse();
                return Some((found, used));
            }
            if left == before {
                break;
            }
        }
        None
    }

    /// Matches pieces from the beginning. If a short capture ended a message, later bytes may look like its end.
    fn forward(&self, pieces: &VecDeque<Piece>, bytes: &[u8], may: impl Fn(&Piece) -> bool) -> Option<Pieces> {
        let begins =
            |piece: &Piece, at: usize| bytes.get(at..at + piece.length).is_some_and(|part| self.is(piece, part));
        let nearest = pieces.iter().enumerate().rev().take(LOOKED_AT_MAX);
        for (n, _) in nearest.filter(|(_, piece)| may(piece) && begins(piece, 0)).take(FOLLOWED_MAX) {
            let (mut found, mut used, mut at) = (Vec::new(), Vec::new(), 0);
            for piece in pieces.iter().skip(n).take(LOOKED_AT_MAX).filter(|piece| may(piece)) {
                if !begins(piece, at) {
                    continue;
                }
                used.push(piece.serial);
                for span in piece.spans.iter() {
                    found.push((at, *span));
                    at += span.length as usize;
                }
                if at == bytes.len() {
                    return Some((found, used));
                }
            }
        }
        None
    }

    fn is(&self, piece: &Piece, bytes: &[u8]) -> bool {
        let mut rest = bytes;
        for span in piece.spans.iter() {
            let Some((mine, after)) = rest.split_at_checked(span.length as usize) else { return false };
            if self.window.old(*span) != Some(mine) {
                return false;
            }
            rest = after;
        }
        rest.is_empty()
    }

    /// Finds a message in the current stream, with the bytes that framing removed, or in the opposite stream, whose
    /// segments wait for acknowledgments of this one.
    fn of_stream(&mut self, bytes: &[u8], is_fpdu: bool) -> Vec<(usize, Span)> {
        let flow = self.headers.flow;
        // it ends in this segment, or in a later one that was held back: so it does not begin long before
        let near = self.headers.stream.map(|(begins, s)| begins + i64::from(s.length));
        let flows = [(flow, near), (flow.back(), None)];
        let streams = || flows.iter().filter_map(|(flow, near)| Some((self.streams.get(flow)?, *near)));
        // first where an FPDU is expected: others may begin with the same bytes
        let awaited = |stream: &Stream| {
            is_fpdu.then_some(stream.next_fpdu?).and_then(|at| stream.follow(&self.window, at, bytes))
        };
        let found = streams().find_map(|(stream, _)| awaited(stream));
        let found = found.or_else(|| streams().find_map(|(stream, near)| stream.search(&self.window, near, bytes)));
        let Some((found, taken_out)) = found else { return Vec::new() };
        for (_, taken_out) in &taken_out {
            self.window.keep(*taken_out);
        }
        found
    }
}

/// Conditions for a piece to fit a message, from the strictest: same queue pair and unused; unused; of the wanted kind;
/// any.
#[derive(Clone, Copy, Debug)]
enum Fit {
    Best,
    OtherQueue,
    Used,
    Any,
}

/// Offsets in a message with the origin of each part, and the serial numbers of the pieces.
type Pieces = (Vec<(usize, Span)>, Vec<u64>);

/// Offsets in a message with the origin of each part, and the bytes that framing removed between them.
type Followed = (Vec<(usize, Span)>, Vec<(usize, Span)>);

impl Stream {
    /// Notes the end of an FPDU.
    fn fpdu_ends(&mut self, at: i64) {
        (self.fpdu, self.next_fpdu) = (Some(at), Some(at));
    }

    /// Places of `length` bytes of the stream from `begins` on; empty if some are missing.
    fn spans(&self, begins: i64, length: usize) -> Vec<Span> {
        let (mut at, end) = (begins, begins + length as i64);
        let mut found = Vec::new();
        let from = self.segments.partition_point(|(start, s)| start + i64::from(s.length) <= begins);
        for (start, span) in self.segments.iter().skip(from).take(LOOKED_AT_MAX) {
            if at >= end || *start > at {
                break;
            }
            let stop = end.min(start + i64::from(span.length));
            if stop > at {
                found.push(Span { frame: span.frame, at: span.at + (at - start) as u32, length: (stop - at) as u32 });
                at = stop;
            }
        }
        if at < end { Vec::new() } else { found }
    }

    /// Searches for `bytes`, which end near the offset `near`, if that is known.
    fn search<M>(&self, window: &Window<M>, near: Option<i64>, bytes: &[u8]) -> Option<Followed> {
        let probe = &bytes[..bytes.len().min(PROBE)];
        let reach = (bytes.len() as i64).saturating_mul(2).saturating_add(1 << 17);
        let from = near.map_or(i64::MIN, |near| near.saturating_sub(reach));
        let after = self.segments.partition_point(|(begins, s)| begins + i64::from(s.length) < from);
        let mut followed = 0;
        for (begins, span) in self.segments.iter().skip(after).rev().take(LOOKED_AT_MAX) {
            let Some(old) = window.old(*span) else { continue };
            for at in (0..old.len()).rev() {
                let whole = &old[at..];
                let common = whole.len().min(probe.len());
                if whole[..common] != probe[..common] {
                    continue;
                }
                followed += 1;
                if followed > FOLLOWED_MAX {
                    return None;
                }
                if let Some(found) = self.follow(window, begins + at as i64, bytes) {
                    return Some(found);
                }
            }
        }
        None
    }

    /// Segments that overlap the range from `begins` to `ends`, newest first.
    fn over(&self, begins: i64, ends: i64) -> impl Iterator<Item = &(i64, Span)> {
        let behind = self.segments.partition_point(|(start, _)| *start < ends);
        let near = self.segments.iter().take(behind).rev().take(OVERLAPS_MAX);
        near.take_while(move |(start, _)| start + SEGMENT_MAX > begins)
            .filter(move |(start, s)| start + i64::from(s.length) > begins)
    }

    /// Matches `bytes` with the stream from `begins` on. Four bytes at a time may be skipped, which framing removed. Of
    /// several segments with the same offset, some of which may be damaged, the one that matches longest is taken.
    fn follow<M>(&self, window: &Window<M>, begins: i64, bytes: &[u8]) -> Option<Followed> {
        let (mut found, mut taken_out): Followed = (Vec::new(), Vec::new());
        let (mut at, mut done) = (begins, 0);
        while done < bytes.len() {
            let rest = &bytes[done..];
            let best = self.over(at, at + 1).filter_map(|(start, span)| {
                let offset = u32::try_from(at - start).ok()?;
                let old = window.old(*span)?.get(offset as usize..)?;
                // usually the whole segment matches
                let common = old.len().min(rest.len());
                let same = if old[..common] == rest[..common] {
                    common
                } else {
                    old.iter().zip(rest).take_while(|(a, b)| a == b).count()
                };
                Some(Span { frame: span.frame, at: span.at + offset, length: same as u32 })
            });
            // of equal matches the first in the stream, as it was sent
            match best.max_by_key(|span| span.length) {
                Some(span) if span.length > 0 => {
                    found.push((done, span));
                    (at, done) = (at + i64::from(span.length), done + span.length as usize);
                }
                // other bytes stand here
                _ if taken_out.last().is_some_and(|(place, _)| *place == done) => return None,
                _ => {
                    let spans = self.spans(at, TAKEN_OUT);
                    if spans.is_empty() {
                        return None;
                    }
                    taken_out.extend(spans.into_iter().map(|span| (done, span)));
                    at += TAKEN_OUT as i64;
                }
            }
        }
        Some((found, taken_out))
    }
}

impl Source {
    /// Origin of a range, if all of it is known.
    #[inline]
    fn locate(&self, at: usize, length: usize) -> Spans {
        // a value of partly known origin would be only partly replaced
        match self.known(at, length) {
            (known, spans) if known == length => spans,
            _ => Spans::None,
        }
    }

    /// Origin of the known parts of a range, and the number of bytes in them.
    #[inline]
    fn known(&self, at: usize, length: usize) -> (usize, Spans) {
        let part = |start: usize, span: Span, from: usize, to: usize| Span {
            frame: span.frame,
            at: span.at + (from - start) as u32,
            length: (to - from) as u32,
        };
        let end = at + length;
        let first = match &self.from[..] {
            [_] => 0,
            from => from.partition_point(|(start, span)| start + span.length as usize <= at),
        };
        match self.from.get(first) {
            None => return (0, Spans::None),
            Some((start, span)) if at >= *start && end <= start + span.length as usize => {
                return if length == 0 { (0, Spans::None) } else { (length, Spans::One(part(*start, *span, at, end))) };
            }
            _ => {}
        }
        let mut found = Vec::new();
        let mut done = 0;
        for (start, span) in &self.from[first..] {
            if *start >= end {
                break;
            }
            let (a, b) = (at.max(*start), end.min(start + span.length as usize));
            if a < b {
                found.push(part(*start, *span, a, b));
                done += b - a;
            }
        }
        (done, Spans::More(found))
    }
}

/// Offset of `part` in `whole`, if it is a part of that.
fn offset(whole: &[u8], part: &[u8]) -> Option<usize> {
    let before = part.as_ptr().addr().checked_sub(whole.as_ptr().addr())?;
    (before + part.len() <= whole.len()).then_some(before)
}

/// True if an FPDU may begin with these bytes: DDP version 1, RDMAP version 0 or 1, a defined opcode.
fn begins_fpdu(bytes: &[u8]) -> bool {
    matches!(bytes, [_, _, ddp, rdmap] if ddp & 0x3f == 0x01 && rdmap & 0xb0 == 0 && rdmap & 0x0f <= 0x0b)
}

/// True if text is UTF-16: reported as such, or converted from it.
fn is_utf16(def: &FieldDef, bytes: &[u8]) -> bool {
    def.kind == Kind::Utf16
        || bytes.len() >= 2
            && bytes.len().is_multiple_of(2)
            && bytes.chunks_exact(2).any(|b| b[1] == 0)
            && bytes.chunks_exact(2).all(|b| b[0] != 0)
}

impl<M> Trace for Watch<M> {
    const ON: bool = true;

    fn field(&mut self, def: Def, at: &[u8], len: usize, value: Value<'_>) {
        let bytes = &at[..len.min(at.len())];
        if bytes.is_empty() {
            if def.id == id::ICRC_STATUS && matches!(value, Value::U(GOOD)) {
                self.window.icrc_is_good();
            }
            return;
        }
        let is_structure = may_be_structure(def.id);
        // most fields are protocol numbers and nothing else
        if def.privacy == Privacy::Keep
            && !is_structure
            && !self.headers.is_other
            && !self.drops
            && !matches!(value, Value::Bytes(_))
        {
            return self.keep(bytes);
        }
        // if the value is only a part of the field, the bytes before it are the protocol's, such as the length of a
        // string
        let bytes = match value {
            Value::Bytes(part) if !part.is_empty() && part.len() < bytes.len() => match offset(bytes, part) {
                Some(before) => {
                    self.keep(&bytes[..before]);
                    part
                }
                None => bytes,
            },
            _ => bytes,
        };
        if is_structure {
            self.structure(def, bytes, &value);
            match def.id {
                id::DDP_OFFSET => self.untagged(at),
                id::MPA_CRC | id::MPA_CRC_CHECK => self.crc(bytes),
                _ => {}
            }
        }
        self.field(def, bytes, &value);
    }

    fn unshown(&mut self, at: &[u8], len: usize) {
        self.keep(&at[..len.min(at.len())]);
    }

    fn open(&mut self, def: Def, at: &[u8]) {
        if !may_be_structure(def.id) {
            return;
        }
        self.headers.is_other &= def.id != id::SMB2;
        match def.id {
            id::SMB2 | id::RPC => {
                if def.id == id::SMB2 && at.len() < FLAGS_END {
                    // cut in the middle of a kept field, the beginning of which an analysis may use
                    self.keep(at);
                }
                self.message(at);
            }
            id::SMB_DIRECT | id::RPC_RDMA => self.headers.is_rdma = true,
            // end of the option list: zeros behind it would be further ends of the list
            id::EOL if at.get(1).is_some_and(|byte| *byte != 0) => {
                self.put(&at[1..2], With::Bytes(&[0xff]));
            }
            id::COMPRESSED => {
                // a second one in the same frame: the first could not be read
                self.counts.compressed += u64::from(self.compressed.is_some());
                self.compressed = Some(Box::new(Compressed { message: at.to_vec(), spans: self.locate(at) }));
            }
            _ => {}
        }
    }

    fn close(&mut self, _: &[u8]) {}

    fn source(&mut self, name: &'static str, bytes: &[u8]) {
        self.note_kept();
        let from = self.origin(name, bytes);
        if from.is_empty() && !bytes.is_empty() && !name.starts_with("Dec") {
            self.counts.untraced(name, bytes.len());
        }
        let compressed = if name == DECOMPRESSED { self.compressed.take() } else { None };
        self.sources.push(Source { base: bytes.as_ptr().addr(), length: bytes.len(), from, compressed });
    }

    fn end_source(&mut self) {
        self.note_kept();
        self.headers.is_other = false;
        if self.sources.len() > 1
            && let Some(from) = self.sources.pop().and_then(|source| source.compressed)
        {
            self.compress(&from);
        }
    }
}

impl<M> Watch<M> {
    /// Ends the frame. A compressed message that could not be read is blanked.
    pub(crate) fn end_frame(&mut self) {
        self.note_kept();
        self.counts.compressed += u64::from(self.compressed.take().is_some());
    }
}

impl<M> Watch<M> {
    /// Records the CRC of the current FPDU.
    fn crc(&mut self, bytes: &[u8]) {
        let (start, end) = (self.headers.fpdu.0, bytes.as_ptr().addr());
        let Some(source) =
            self.sources.iter().rev().find(|s| start >= s.base && end.saturating_add(4) <= s.base + s.length)
        else {
            return;
        };
        let Some(length) = end.checked_sub(start).filter(|_| bytes.len() == 4) else { return };
        let over = source.locate(start - source.base, length);
        let at = source.locate(end - source.base, 4);
        if over.is_empty() || at.is_empty() {
            return;
        }
        if let (Spans::One(over), Spans::One(at)) = (&over, &at)
            && over.frame == at.frame
            && over.at + over.length == at.at
        {
            self.window.crc_behind(*over);
            return self.next_fpdu(*at);
        }
        // the CRC covers markers too: they lie in the stream between two parts of the FPDU
        let mut whole: Vec<Span> = Vec::with_capacity(over.len());
        let flow = self.headers.flow;
        let streams = [self.streams.get(&flow), self.streams.get(&flow.back())];
        let payload = |span: &Span| {
            let mut segments = streams.iter().flatten().flat_map(|s| s.segments.iter().rev());
            segments.find(|(_, p)| p.frame == span.frame && (p.at..p.at + p.length).contains(&span.at))
        };
        for span in over.iter().chain(at.iter()) {
            match whole.last_mut() {
                Some(last) if last.frame == span.frame && span.at >= last.at + last.length => {
                    last.length = span.at + span.length - last.at;
                }
                Some(last) => {
                    let (here, before) = (payload(span), payload(last));
                    let begins = here.map_or(0, |(begins, p)| begins + i64::from(span.at - p.at));
                    let ends = before
                        .map_or(begins, |(begins, p)| begins + i64::from(last.at - p.at) + i64::from(last.length));
                    let between = (begins - ends).clamp(0, TAKEN_OUT as i64) as u32;
                    // a marker may begin at the end of the previous segment and end in this one
                    let mine = here.map_or(0, |(_, p)| span.at - p.at).min(between);
                    last.length += between - mine;
                    whole.push(Span { at: span.at - mine, length: span.length + mine, ..*span });
                }
                None => whole.push(*span),
            }
        }
        // the CRC itself is at the end
        let mut cut = 4;
        while cut > 0
            && let Some(last) = whole.last_mut()
        {
            let now = last.length.min(cut);
            last.length -= now;
            cut -= now;
            if last.length == 0 {
                whole.pop();
            }
        }
        self.window.crc(whole, at.to_vec());
        if let Some(last) = at.last() {
            self.next_fpdu(*last);
        }
    }

    /// Notes the beginning of an FPDU. If it is cut, its CRC, which would give the beginning of the next one, may never
    /// come.
    fn fpdu(&mut self, at: &[u8], ulpdu_length: u16) {
        let (begins, length) = (at.as_ptr().addr(), mpa::fpdu_len(ulpdu_length));
        if self
            .sources
            .iter()
            .rev()
            .find(|s| (s.base..s.base + s.length).contains(&begins))
            .is_some_and(|s| begins + length <= s.base + s.length)
        {
            return;
        }
        let Some(first) = self.locate(&at[..at.len().min(1)]).first().copied() else { return };
        let flow = self.headers.flow;
        let place = |begins: i64, p: &Span| {
            (p.frame == first.frame && (p.at..p.at + p.length).contains(&first.at))
                .then(|| begins + i64::from(first.at - p.at))
        };
        let here = self.headers.stream.and_then(|(begins, p)| place(begins, &p));
        let in_stream = |stream: &Stream| stream.segments.iter().rev().find_map(|(begins, p)| place(*begins, p));
        let found = match here {
            Some(begins) => Some((flow, begins)),
            None => [flow, flow.back()]
                .into_iter()
                .find_map(|flow| Some((flow, self.streams.get(&flow).and_then(in_stream)?))),
        };
        if let Some((flow, begins)) = found
            && let Some(stream) = self.streams.get_mut(&flow)
        {
            stream.fpdu_ends(begins + length as i64);
        }
    }

    /// Notes the end of an FPDU. The next one may never be complete and so never be reported, but an analysis checks
    /// its header.
    fn next_fpdu(&mut self, crc: Span) {
        let flow = self.headers.flow;
        // usually it is in the current segment
        if let Some((begins, p)) = self.headers.stream
            && p.frame == crc.frame
            && (p.at..p.at + p.length).contains(&crc.at)
        {
            let ends = begins + i64::from(crc.at - p.at) + i64::from(crc.length);
            if let Some(stream) = self.streams.get_mut(&flow) {
                stream.fpdu_ends(ends);
                // and so is the next header
                let header = Span { frame: p.frame, at: crc.at + crc.length, length: FPDU_HEADER as u32 };
                if header.at + header.length <= p.at + p.length {
                    stream.fpdu = None;
                    let is_header = self.window.old(header).is_some_and(begins_fpdu);
                    self.window.keep(if is_header { header } else { Span { length: FPDU_LENGTH as u32, ..header } });
                    return;
                }
            }
            return self.fpdu_header(flow);
        }
        for flow in [flow, flow.back()] {
            let Some(stream) = self.streams.get_mut(&flow) else { continue };
            let mut segments = stream.segments.iter().rev();
            if let Some((begins, p)) =
                segments.find(|(_, p)| p.frame == crc.frame && (p.at..p.at + p.length).contains(&crc.at))
            {
                stream.fpdu_ends(begins + i64::from(crc.at - p.at) + i64::from(crc.length));
                return self.fpdu_header(flow);
            }
        }
    }

    /// Keeps the length and control fields of the expected FPDU, once all of them were captured.
    fn fpdu_header(&mut self, flow: Flow) {
        let Some((begins, spans)) =
            self.streams.get(&flow).and_then(|s| s.fpdu.map(|at| (at, s.spans(at, FPDU_HEADER))))
        else {
            return;
        };
        if spans.is_empty() {
            return;
        }
        let bytes: Vec<u8> = spans.iter().filter_map(|s| self.window.old(*s)).flatten().copied().collect();
        if bytes.len() < FPDU_HEADER {
            return;
        }
        let mut kept = if begins_fpdu(&bytes) { FPDU_HEADER } else { FPDU_LENGTH };
        for span in spans {
            let length = (span.length as usize).min(kept);
            self.window.keep(Span { length: length as u32, ..span });
            kept -= length;
        }
        if let Some(stream) = self.streams.get_mut(&flow).filter(|s| s.fpdu == Some(begins)) {
            stream.fpdu = None;
        }
    }
}
