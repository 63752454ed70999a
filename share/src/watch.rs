//! Listens to decoding, and knows of each field which bytes of which frames it was read from.
//!
//! Fields of a message that was put together lie in a buffer of the analysis. Its bytes came from frames before: payloads that were told
//! as such (`infiniband.payload`, `smb_direct.data_message.data`, …), or a stretch of a TCP stream. They are found again by what they
//! are: the pieces, one behind the other, must be the message byte by byte.

use crate::compress;
use crate::mapping::Mapping;
use crate::sums::{Fix, Ip};
use crate::tally::{Blanked, Counts, Extra, Options, Payload};
use crate::window::{Blank, Span, Window};
use hashbrown::HashMap;
use rdmascope_dissector::field::{Def, FieldDef, Kind, Privacy, id_of};
use rdmascope_dissector::trace::{Trace, Value};
use rdmascope_dissector::wire::ib::icrc::Cover;
use rdmascope_dissector::wire::smb2;
use std::collections::VecDeque;

/// Pieces remembered of two hosts at most.
const PIECES_MAX: usize = 1 << 16;
/// Pieces looked at for one message at most.
const LOOKED_AT_MAX: usize = 1 << 12;
/// Places of a stream at which a message may seem to begin that are followed.
const FOLLOWED_MAX: usize = 64;
/// Frames after which what is only remembered of frames that left is forgotten.
const FORGET: u64 = 1 << 14;
/// Pairs of hosts, and streams, remembered at most.
const FLOWS_MAX: usize = 1 << 14;
/// Segments that lie over one place of a stream that are looked at.
const OVERLAPS_MAX: usize = 256;
/// Bytes of a segment at most.
const SEGMENT_MAX: i64 = 1 << 16;
/// Stretch of a stream that is searched for where a message begins, in bytes.
const PROBE: usize = 24;
/// What is said of names in compressed messages that are zeros, since others would not fit.
const NAMES_COMPRESSED: &str = "names in compressed messages";
/// The decoder's word for an invariant CRC that is right.
const GOOD: u64 = 1;
/// What contents become, mostly.
const ZEROS: [u8; 1 << 14] = [0; 1 << 14];
/// What was compressed, as the analysis names it.
const DECOMPRESSED: &str = "Decompressed SMB2";
/// A marker of MPA, a record mark of RPC, a length of SMB over TCP: what is taken out of a stream on the way up.
const TAKEN_OUT: usize = 4;

mod id {
    use super::id_of;
    pub(super) const IP_VERSION: u32 = id_of("ip.version");
    pub(super) const IP6_VERSION: u32 = id_of("ipv6.version");
    pub(super) const IP_SRC: u32 = id_of("ip.src");
    pub(super) const IP_DST: u32 = id_of("ip.dst");
    pub(super) const IP6_SRC: u32 = id_of("ipv6.src");
    pub(super) const IP6_DST: u32 = id_of("ipv6.dst");
    pub(super) const SGID: u32 = id_of("infiniband.grh.sgid");
    pub(super) const DGID: u32 = id_of("infiniband.grh.dgid");
    pub(super) const GRH_VERSION: u32 = id_of("infiniband.grh.ipver");
    pub(super) const LRH_LANE: u32 = id_of("infiniband.lrh.vl");
    pub(super) const SLID: u32 = id_of("infiniband.lrh.slid");
    pub(super) const DLID: u32 = id_of("infiniband.lrh.dlid");
    pub(super) const DEST_QP: u32 = id_of("infiniband.bth.destqp");
    pub(super) const PSN: u32 = id_of("infiniband.bth.psn");
    pub(super) const ICRC: u32 = id_of("infiniband.invariant.crc");
    pub(super) const ICRC_STATUS: u32 = id_of("rdmascope.icrc.status");
    pub(super) const VCRC: u32 = id_of("infiniband.variant.crc");
    pub(super) const IP_CHECKSUM: u32 = id_of("ip.checksum");
    pub(super) const TCP_CHECKSUM: u32 = id_of("tcp.checksum");
    pub(super) const UDP_CHECKSUM: u32 = id_of("udp.checksum");
    pub(super) const ICMP_CHECKSUM: u32 = id_of("icmp.checksum");
    pub(super) const ICMP6_CHECKSUM: u32 = id_of("icmpv6.checksum");
    pub(super) const SRC_PORT: u32 = id_of("tcp.srcport");
    pub(super) const DST_PORT: u32 = id_of("tcp.dstport");
    pub(super) const SEQ: u32 = id_of("tcp.seq_raw");
    pub(super) const SEQ_ALONE: u32 = id_of("tcp.seq");
    pub(super) const TCP_PAYLOAD: u32 = id_of("tcp.payload");
    pub(super) const IB_PAYLOAD: u32 = id_of("infiniband.payload");
    pub(super) const RDMAP_DATA: u32 = id_of("rdmascope.iwarp_rdma.data");
    pub(super) const SMBD_DATA: u32 = id_of("rdmascope.smb_direct.data_message.data");
    pub(super) const ULPDU_LENGTH: u32 = id_of("iwarp_mpa.ulpdulength");
    pub(super) const MPA_CRC: u32 = id_of("iwarp_mpa.crc");
    pub(super) const MPA_CRC_CHECK: u32 = id_of("iwarp_mpa.crc_check");
    pub(super) const DDP_OFFSET: u32 = id_of("iwarp_ddp.mo");
    pub(super) const SMB2: u32 = id_of("smb2");
    pub(super) const COMMAND: u32 = id_of("smb2.cmd");
    pub(super) const STRUCTURE_SIZE: u32 = id_of("smb2.buffer_code");
    pub(super) const RPC: u32 = id_of("rpc");
    pub(super) const SMB_DIRECT: u32 = id_of("smb_direct");
    pub(super) const RPC_RDMA: u32 = id_of("rpcordma");
    pub(super) const ENCRYPTED: u32 = id_of("smb2.header.transform.enc_data");
    pub(super) const COMPRESSED: u32 = id_of("rdmascope.smb2.header.comp_transform");
}

/// Sizes of the structures of each SMB2 command, \[MS-SMB2\] 2.2.3 to 2.2.38: request, reply, and others.
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
/// Bytes of a header of SMB2 up to the end of its flags, \[MS-SMB2\] 2.2.1: none of them gives anything away.
const FLAGS_END: usize = 20;
/// That of an ERROR reply.
const STRUCTURE_OF_ERROR: u64 = 9;

/// What a field that is kept tells of machines and files.
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

/// Bytes that fields lie in: the frame, or a message put together.
#[derive(Debug)]
struct Source {
    base: usize,
    length: usize,
    /// Where each stretch of it came from, in order; nothing where that is not known.
    from: Vec<(usize, Span)>,
    /// The compressed message that it was read from.
    compressed: Option<Box<Compressed>>,
}

/// A compressed message, and where it stands.
#[derive(Debug)]
struct Compressed {
    message: Vec<u8>,
    spans: Spans,
}

/// Stretches of frames, one behind the other: mostly one.
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

/// A host by its address, of up to 16 bytes.
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

/// A payload that a message may be put together from.
#[derive(Debug)]
struct Piece {
    spans: Spans,
    length: usize,
    /// Of which queue pair, or ports, it is.
    queue: (u64, (u16, u16)),
    serial: u64,
    /// A message was put together of it.
    used: bool,
    /// It is the payload of a packet, not of a message.
    is_packet: bool,
}

/// By hosts and identification: the offsets of the fragments of a datagram, and where their payloads are.
type Fragments = HashMap<(Host, Host, u32), Vec<(u32, Span)>>;

/// One direction of a TCP connection.
#[derive(Debug, Default)]
struct Stream {
    /// Segments by place in the stream.
    segments: VecDeque<(i64, Span)>,
    /// Where the last segment that was told began, for what comes next.
    last: i64,
    /// Where the next message is to begin.
    next: Option<i64>,
}

/// The two hosts and ports of the packet at hand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Way {
    from: Host,
    to: Host,
    ports: (u16, u16),
}

impl Way {
    /// The other direction.
    fn back(self) -> Self {
        Self { from: self.to, to: self.from, ports: (self.ports.1, self.ports.0) }
    }

    fn hosts(&self) -> (Host, Host) {
        if self.from <= self.to { (self.from, self.to) } else { (self.to, self.from) }
    }
}

/// The headers of the packet at hand.
#[derive(Debug, Default)]
struct Headers {
    way: Way,
    ip: Option<Ip>,
    lrh: Option<usize>,
    grh: Option<usize>,
    queue: u64,
    psn: u64,
    seq: u32,
    /// Where the payload of the TCP segment begins in the stream.
    stream: Option<(i64, Span)>,
    /// Address at which the FPDU begins, and at which its ULPDU ends.
    fpdu: (usize, usize),
    is_rdma: bool,
    /// The SMB2 command at hand, and whether what followed its header was not it: a piece of something else that only begins like one.
    command: u64,
    is_other: bool,
}

impl Headers {
    fn place(&self) -> (u64, (u16, u16)) {
        (self.queue, self.way.ports)
    }
}

/// What listens.
pub(crate) struct Watch<M> {
    pub(crate) window: Window<M>,
    pub(crate) mapping: Mapping,
    pub(crate) counts: Counts,
    options: Options,
    frame: u64,
    sources: Vec<Source>,
    headers: Headers,
    pieces: HashMap<(Host, Host), VecDeque<Piece>>,
    streams: HashMap<Way, Stream>,
    /// The first and the last packet of a queue pair with a PSN: where their payloads are.
    packets: HashMap<(Way, u64, u64), (Span, Span)>,
    fragments: Fragments,
    /// Addresses of what was kept last: fields lie one behind the other, and are noted together.
    kept: (usize, usize),
    /// The compressed message that was told last.
    compressed: Option<Box<Compressed>>,
    serial: u64,
}

impl<M> Watch<M> {
    pub(crate) fn new(options: Options, limit: usize) -> Self {
        Self {
            window: Window::new(limit),
            mapping: Mapping::new(&options.key),
            counts: Counts::default(),
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
        }
    }

    /// A new frame, of these bytes.
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
        // what is only remembered to find pieces again costs memory too
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

    /// The payload of a fragment of an IP datagram, and the header that the datagram gets.
    pub(crate) fn fragment(&mut self, id: u32, offset: u32, payload: &[u8]) {
        let spans = self.locate(payload);
        let known = self.fragments.entry((self.headers.way.from, self.headers.way.to, id)).or_default();
        if known.len() < 1 << 10 {
            known.extend(spans.iter().map(|span| (offset, *span)));
        }
    }

    /// Where these bytes, told by a decoder, lie in frames; empty where that is not known.
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

    /// Notes what was kept; before the bytes at these addresses are others.
    pub(crate) fn note_kept(&mut self) {
        let (from, to) = std::mem::take(&mut self.kept);
        if let [frame] = &self.sources[..] {
            if from >= frame.base && to <= frame.base + frame.length {
                self.window.keep_newest(from - frame.base, to - from);
            }
            return;
        }
        let Some(source) = self.sources.iter().rev().find(|s| from >= s.base && to <= s.base + s.length) else { return };
        for span in source.known(from - source.base, to - from).1.iter() {
            self.window.keep(*span);
        }
    }

    fn replace(&mut self, privacy: Privacy, bytes: &[u8], with: &[u8]) {
        if self.put(bytes, with) {
            self.counts.replaced(privacy, bytes.len());
        }
    }

    /// Puts others in the place of bytes: whether any were not replaced before.
    fn put(&mut self, bytes: &[u8], with: &[u8]) -> bool {
        let (mut done, mut any) = (0, false);
        for span in self.locate(bytes).iter() {
            let end = (done + span.length as usize).min(with.len());
            any |= self.window.replace(*span, &with[done..end]);
            done = end;
        }
        any
    }

    /// What is kept unless somebody asks: whether it was asked for.
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
        if self.put(bytes, &made) {
            self.counts.dropped(kind, bytes.len());
        }
        true
    }

    fn field(&mut self, def: Def, bytes: &[u8], value: &Value<'_>) {
        let privacy = def.privacy;
        if privacy == Privacy::Keep && self.headers.is_other && def.id != id::STRUCTURE_SIZE {
            return;
        }
        if privacy == Privacy::Keep && !self.options.drop.is_empty() && self.dropped(def, bytes, value) {
            return;
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
            // text that was made of other bytes, which other fields tell of
            Privacy::Name if !is_utf16(def, bytes) && matches!(value, Value::Text(_)) && std::str::from_utf8(bytes).is_err() => return,
            _ => {}
        }
        // a stream cannot be compressed again
        let is_zeroed = privacy == Privacy::Data && (self.options.payload == Payload::Zero || self.is_compressed());
        if let Some(zeros) = ZEROS.get(..bytes.len()).filter(|_| is_zeroed) {
            return self.replace(privacy, bytes, zeros);
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
            // numbers of users are XDR's
            Privacy::User => self.mapping.user(made, true),
            Privacy::Data if is_zeroed => made.fill(0),
            Privacy::Data => self.mapping.stream(bytes, made),
            Privacy::Id | Privacy::Secret | Privacy::Keep | Privacy::Inside | Privacy::Ber => self.mapping.id(made),
        }
        self.replace(privacy, bytes, made);
    }

    /// Whether what is told was compressed.
    fn is_compressed(&self) -> bool {
        self.sources.iter().any(|s| s.compressed.is_some())
    }

    /// Puts what became of a compressed message into its place.
    fn compress(&mut self, from: &Compressed) {
        let mut blanker = Blanker { mapping: &self.mapping, payload: Payload::Zero, blanked: &mut self.counts.blanked };
        let (plain, flat, zeroed) = self.window.lift(&mut blanker);
        let again = |plain: &[u8]| compress::again(&from.message, plain).filter(|_| !from.spans.is_empty());
        let made = again(&plain).or_else(|| {
            // names that are harder to compress than the old ones: zeros in their place fit sooner
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
            self.window.replace(*span, &made[done..end]);
            done = end;
        }
    }

    /// Tags and lengths of BER are the protocol's; contents are not.
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

    /// What fields say of the packet itself: who sends it, where its sums stand, what is its payload.
    fn structure(&mut self, def: Def, bytes: &[u8], value: &Value<'_>) {
        let number = if let Value::U(n) = value { *n } else { 0 };
        match def.id {
            id::IP_VERSION | id::IP6_VERSION => {
                self.headers.ip = self.in_frame(bytes).map(|start| Ip { start, is_v6: def.id == id::IP6_VERSION });
                (self.headers.lrh, self.headers.grh) = (None, None);
            }
            id::IP_SRC | id::IP6_SRC | id::SGID | id::SLID => self.headers.way.from = Host::new(bytes),
            id::IP_DST | id::IP6_DST | id::DGID | id::DLID => self.headers.way.to = Host::new(bytes),
            id::GRH_VERSION => self.headers.grh = self.in_frame(bytes),
            id::LRH_LANE => self.headers.lrh = self.in_frame(bytes),
            id::DEST_QP => (self.headers.queue, self.headers.is_rdma) = (number, true),
            id::PSN => self.headers.psn = number,
            id::ICRC => {
                let Some(at) = self.in_frame(bytes) else { return };
                let Headers { lrh, grh, ip, .. } = self.headers;
                let cover = match (lrh, grh, ip) {
                    (Some(start), Some(_), _) => (Cover::LrhGrh, start),
                    (Some(start), None, _) => (Cover::Lrh, start),
                    (None, Some(start), _) => (Cover::Grh, start),
                    (None, None, Some(ip)) => (if ip.is_v6 { Cover::Ipv6 } else { Cover::Ipv4 }, ip.start),
                    _ => return,
                };
                self.window.fix(self.frame, Fix::Icrc { cover: cover.0, start: cover.1, at, is_good: false });
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
            id::SRC_PORT => self.headers.way.ports.0 = number as u16,
            id::DST_PORT => (self.headers.way.ports.1, self.headers.stream) = (number as u16, None),
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
                // the first fragment of a message that may never be whole: its header at least is told
                if bytes.starts_with(&smb2::header::PROTOCOL_ID) {
                    let _ = smb2::Header::parse(bytes, self);
                }
            }
            id::ULPDU_LENGTH => {
                let start = bytes.as_ptr().addr();
                self.headers.fpdu = (start, start.saturating_add(2).saturating_add(number as usize));
                self.headers.is_rdma = true;
            }
            id::SMB_DIRECT | id::RPC_RDMA => self.headers.is_rdma = true,
            id::ENCRYPTED => self.counts.sealed += 1,
            id::COMMAND => (self.headers.command, self.headers.is_other) = (number, false),
            id::STRUCTURE_SIZE => {
                let known = usize::try_from(self.headers.command).ok().and_then(|command| STRUCTURES.get(command));
                self.headers.is_other = number != STRUCTURE_OF_ERROR && known.is_some_and(|sizes| !sizes.contains(&number));
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

    /// The payload of an untagged DDP segment begins behind its offset field.
    fn untagged(&mut self, at: &[u8]) {
        let begins = at.as_ptr().addr().saturating_add(4);
        let length = self.headers.fpdu.1.saturating_sub(begins);
        let spans = self.locate_at(begins, length);
        self.piece(spans, length, true);
    }

    fn piece(&mut self, spans: Spans, length: usize, is_packet: bool) {
        if length == 0 || !spans.first().is_some_and(Span::is_in_frame) {
            return;
        }
        self.serial += 1;
        let (serial, oldest, queue) = (self.serial, self.window.oldest(), self.headers.place());
        let pieces = self.pieces.entry(self.headers.way.hosts()).or_default();
        while pieces.front().is_some_and(|p| pieces.len() >= PIECES_MAX || p.spans.iter().any(|s| s.frame < oldest)) {
            pieces.pop_front();
        }
        pieces.push_back(Piece { spans, length, queue, serial, used: false, is_packet });
    }

    /// A packet that has been there before, or stands in the capture twice.
    fn again(&mut self, bytes: &[u8]) {
        let Some(at) = self.in_frame(bytes) else { return };
        let span = Span { frame: self.frame, at: at as u32, length: bytes.len() as u32 };
        let key = (self.headers.way, self.headers.queue, self.headers.psn);
        let (first, last) = self.packets.get(&key).copied().filter(|(_, last)| last.length == span.length).unwrap_or((span, span));
        if last != span {
            self.window.same(last, span);
        }
        // so that the first one learns of all others
        let first = if first.frame < self.window.oldest() { last } else { first };
        if first != last {
            self.window.same(first, span);
        }
        self.packets.insert(key, (first, span));
    }

    fn segment(&mut self, bytes: &[u8]) {
        let [span] = self.locate(bytes)[..] else { return };
        let oldest = self.window.oldest();
        let stream = self.streams.entry(self.headers.way).or_default();
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
                let part = |start: i64, s: Span| Span { frame: s.frame, at: s.at + (from - start) as u32, length: length as u32 };
                self.window.same(part(*other, *before), part(begins, span));
            }
        }
        let place = stream.segments.iter().rposition(|(other, _)| *other <= begins).map_or(0, |n| n + 1);
        stream.segments.insert(place, (begins, span));
        self.headers.stream = Some((begins, span));
    }

    /// A message on TCP begins here, behind its length.
    fn message(&mut self, at: &[u8]) {
        if self.headers.is_rdma {
            return;
        }
        let Some(first) = self.locate(&at[..at.len().min(1)]).first().copied().filter(Span::is_in_frame) else { return };
        let place = |stream: &Stream| {
            stream.segments.iter().rev().find_map(|(begins, s)| {
                (s.frame == first.frame && (s.at..s.at + s.length).contains(&first.at)).then(|| begins + i64::from(first.at - s.at))
            })
        };
        let way = self.headers.way;
        let found = [way, way.back()].into_iter().find_map(|way| Some((way, self.streams.get(&way).and_then(place)?)));
        let Some((stream, begins)) = found.and_then(|(way, begins)| Some((self.streams.get_mut(&way)?, begins))) else { return };
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

    /// Where a message that was put together came from.
    fn origin(&mut self, name: &str, bytes: &[u8]) -> Vec<(usize, Span)> {
        match name {
            "Decrypted SMB2" => Vec::new(),
            DECOMPRESSED => vec![(0, self.window.lay(bytes))],
            "Reassembled IP datagram" => self.of_fragments(bytes),
            "Reassembled FPDU" | "Reassembled MPA frame" | "Reassembled TCP" => self.of_stream(bytes),
            _ => {
                // the same bytes may stand in packets and in messages
                let of_packets = match name {
                    "Reassembled SMB Direct" => Some(false),
                    "Reassembled Send" => Some(true),
                    _ => None,
                };
                let found = self.of_pieces(bytes, of_packets);
                if found.is_empty() { self.of_stream(bytes) } else { found }
            }
        }
    }

    fn of_fragments(&self, bytes: &[u8]) -> Vec<(usize, Span)> {
        let hosts = (self.headers.way.from, self.headers.way.to);
        let header = if bytes.first().is_some_and(|b| b >> 4 == 6) { 40 } else { usize::from(bytes.first().map_or(0, |b| b & 0x0f)) * 4 };
        let mut found = Vec::new();
        for ((from, to, _), parts) in &self.fragments {
            if (*from, *to) != hosts {
                continue;
            }
            let mut these = Vec::new();
            for (offset, span) in parts {
                let at = header + *offset as usize;
                if bytes.get(at..).and_then(|b| b.get(..span.length as usize)) == self.window.old(*span) {
                    these.push((at, *span));
                }
            }
            if these.iter().map(|(_, s)| s.length as usize).sum::<usize>() + header >= bytes.len() {
                these.sort_unstable_by_key(|(at, _)| *at);
                found = these;
            }
        }
        found
    }

    /// From the end on: the piece that ends it, the one before, … A few passes, for those that came in another order.
    fn of_pieces(&mut self, bytes: &[u8], of_packets: Option<bool>) -> Vec<(usize, Span)> {
        let hosts = self.headers.way.hosts();
        let queue = self.headers.place();
        let Some(pieces) = self.pieces.get(&hosts) else { return Vec::new() };
        let mut left = bytes.len();
        let mut found = Vec::new();
        let mut used = Vec::new();
        // those of this queue pair first: others may say the same
        for pass in 0..6 {
            let before = left;
            for piece in pieces.iter().rev().take(LOOKED_AT_MAX) {
                if left == 0 {
                    break;
                }
                // the piece may go on behind the end, where padding was cut off
                let Some(start) = left.checked_sub(piece.length) else { continue };
                let is_other = piece.used || piece.queue != queue || of_packets.is_some_and(|wanted| wanted != piece.is_packet);
                if (pass < 2 && is_other) || used.contains(&piece.serial) || !self.is(piece, &bytes[start..left]) {
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
            if left == 0 || (pass >= 2 && left == before) {
                break;
            }
        }
        if left > 0 {
            return Vec::new();
        }
        let newest = used.iter().max().copied().unwrap_or(0);
        let oldest = used.iter().min().copied().unwrap_or(0);
        for piece in self.pieces.get_mut(&hosts).into_iter().flatten().rev().skip_while(|p| p.serial > newest) {
            if piece.serial < oldest {
                break;
            }
            piece.used |= used.contains(&piece.serial);
        }
        found.reverse();
        found
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

    /// A stretch of the stream at hand, with what was taken out of it; or of the stream the other way, whose segments wait for acknowledgments
    /// of this one.
    fn of_stream(&mut self, bytes: &[u8]) -> Vec<(usize, Span)> {
        let way = self.headers.way;
        // it ends in this segment, or in a later one that was held back; so it does not begin long before
        let near = self.headers.stream.map(|(begins, s)| begins + i64::from(s.length));
        for (way, near) in [(way, near), (way.back(), None)] {
            if let Some((found, taken_out)) = self.streams.get(&way).and_then(|stream| stream.search(&self.window, near, bytes)) {
                for (_, taken_out) in &taken_out {
                    self.window.keep(*taken_out);
                }
                return found;
            }
        }
        Vec::new()
    }
}

/// Stretches of a message with where they came from, and what was taken out of the stream between them.
type Followed = (Vec<(usize, Span)>, Vec<(usize, Span)>);

impl Stream {
    /// The bytes of the stream from `begins` on.
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

    /// `bytes`, which end near a place, where that is known.
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

    /// Segments that have bytes from `begins` to `ends`, the last one first.
    fn over(&self, begins: i64, ends: i64) -> impl Iterator<Item = &(i64, Span)> {
        let behind = self.segments.partition_point(|(start, _)| *start < ends);
        let near = self.segments.iter().take(behind).rev().take(OVERLAPS_MAX);
        near.take_while(move |(start, _)| start + SEGMENT_MAX > begins).filter(move |(start, s)| start + i64::from(s.length) > begins)
    }

    /// `bytes`, from `begins` on; four bytes at a time may stand between that are not among them. Of a place that came more than once, perhaps
    /// damaged, that which goes on longest.
    fn follow<M>(&self, window: &Window<M>, begins: i64, bytes: &[u8]) -> Option<Followed> {
        let (mut found, mut taken_out): Followed = (Vec::new(), Vec::new());
        let (mut at, mut done) = (begins, 0);
        while done < bytes.len() {
            let rest = &bytes[done..];
            let best = self.over(at, at + 1).filter_map(|(start, span)| {
                let offset = u32::try_from(at - start).ok()?;
                let old = window.old(*span)?.get(offset as usize..)?;
                // mostly all of it
                let common = old.len().min(rest.len());
                let same = if old[..common] == rest[..common] { common } else { old.iter().zip(rest).take_while(|(a, b)| a == b).count() };
                Some(Span { frame: span.frame, at: span.at + offset, length: same as u32 })
            });
            // of equal ones that which was first in the stream, as it was sent
            match best.max_by_key(|span| span.length) {
                Some(span) if span.length > 0 => {
                    found.push((done, span));
                    (at, done) = (at + i64::from(span.length), done + span.length as usize);
                }
                // it is something else that stands here
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
    /// Where all of it came from.
    #[inline]
    fn locate(&self, at: usize, length: usize) -> Spans {
        // a value that is only partly where it is known from would be torn
        match self.known(at, length) {
            (known, spans) if known == length => spans,
            _ => Spans::None,
        }
    }

    /// Where that came from of which it is known, and how many bytes these are.
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

/// Where `part` begins in `whole`, where it lies in it.
fn offset(whole: &[u8], part: &[u8]) -> Option<usize> {
    let before = part.as_ptr().addr().checked_sub(whole.as_ptr().addr())?;
    (before + part.len() <= whole.len()).then_some(before)
}

/// Whether text is UTF-16: told as such, or made of it.
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
        // where the value is only a part of the field, what is around it is the protocol's: the length of a string
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
        self.structure(def, bytes, &value);
        if def.id == id::DDP_OFFSET {
            self.untagged(at);
        }
        if matches!(def.id, id::MPA_CRC | id::MPA_CRC_CHECK) {
            self.crc(bytes);
        }
        self.field(def, bytes, &value);
    }

    fn unshown(&mut self, at: &[u8], len: usize) {
        self.keep(&at[..len.min(at.len())]);
    }

    fn open(&mut self, def: Def, at: &[u8]) {
        self.headers.is_other &= def.id != id::SMB2;
        match def.id {
            id::SMB2 | id::RPC => {
                if def.id == id::SMB2 && at.len() < FLAGS_END {
                    // cut in the middle of a field that gives nothing away, of which an analysis may use the beginning
                    self.keep(at);
                }
                self.message(at);
            }
            id::SMB_DIRECT | id::RPC_RDMA => self.headers.is_rdma = true,
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
    /// The frame was told. A compressed message that nobody could read is blanked.
    pub(crate) fn end_frame(&mut self) {
        self.note_kept();
        self.counts.compressed += u64::from(self.compressed.take().is_some());
    }
}

impl<M> Watch<M> {
    /// The CRC of the FPDU at hand.
    fn crc(&mut self, bytes: &[u8]) {
        let (start, end) = (self.headers.fpdu.0, bytes.as_ptr().addr());
        let Some(source) = self.sources.iter().rev().find(|s| start >= s.base && end.saturating_add(4) <= s.base + s.length) else {
            return;
        };
        let Some(length) = end.checked_sub(start).filter(|_| bytes.len() == 4) else { return };
        let over = source.locate(start - source.base, length);
        let at = source.locate(end - source.base, 4);
        if over.is_empty() || at.is_empty() {
            return;
        }
        // markers are covered too: they stand where the stream goes on and the FPDU does not
        let mut whole: Vec<Span> = Vec::with_capacity(over.len());
        let way = self.headers.way;
        let streams = [self.streams.get(&way), self.streams.get(&way.back())];
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
                    let ends = before.map_or(begins, |(begins, p)| begins + i64::from(last.at - p.at) + i64::from(last.length));
                    let between = (begins - ends).clamp(0, TAKEN_OUT as i64) as u32;
                    // of a marker, part may begin this segment, and the rest ends the one before
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
    }
}

/// Fills what no field claims, and keeps count.
pub(crate) struct Blanker<'a> {
    pub(crate) mapping: &'a Mapping,
    pub(crate) payload: Payload,
    pub(crate) blanked: &'a mut Blanked,
}

impl Blank for Blanker<'_> {
    fn blank(&mut self, inside: Option<Def>, was: &[u8], to: &mut [u8]) {
        if self.payload == Payload::Stream && inside.is_some() {
            self.mapping.stream(was, to);
        } else {
            to.fill(0);
        }
        if was.iter().any(|b| *b != 0) {
            self.blanked.add(inside.map_or("outside of any field", |def| def.name), was.len());
        }
    }
}
