//! The facts about one frame, as one flat buffer. All numbers are little-endian.
//!
//! ```text
//!  head   u16 layout (1) │ u8 layer │ u8 flags │ u32 number of items
//!  item   u16 field │ u8 kind │ u8 depth │ u32 length │ value of that length
//! ```
//!
//! `field` is an index into [`fields`]; `depth` nests items as a tree in pre-order. `kind` tells the type of the value;
//! with [`PLACED`] the value begins with u32 offset and u32 length of the bytes in the frame from which the item was
//! read. Other items were computed.

use rdmascope_analyzer::{connection, pieces};
use rdmascope_dissector::field::{Base, Def, FieldDef, FieldSet, Kind, OURS, Privacy, id_of};
use rdmascope_dissector::registry::{DECLARED, Registry};
use rdmascope_dissector::trace::{Trace, Value};
use rdmascope_dissector::wire::iwarp::mpa::Enhanced;
use rdmascope_dissector::wire::smb2::rdma_channel::{CryptoTransformFixed, RdmaTransformFixed};
use std::collections::HashSet;
use std::fmt::Write as _;
use std::sync::LazyLock;

/// The layout that this file describes.
pub const LAYOUT: u16 = 1;
/// Bytes of the head.
pub const HEAD: usize = 8;
/// Bytes of an item before its value.
pub const ITEM: usize = 8;

/// No value: a subtree, or a field whose presence is its value.
pub const NONE: u8 = 0;
/// u64.
pub const UNSIGNED: u8 = 1;
/// i64.
pub const SIGNED: u8 = 2;
/// Bytes.
pub const BYTES: u8 = 3;
/// Text in UTF-8, unescaped.
pub const TEXT: u8 = 4;
/// i64 seconds, u32 nanoseconds to be added.
pub const TIME: u8 = 5;
/// A message that is not contiguous in the frame: u32 number in the frame, u32 1 if a reader that counts every copy and
/// ignores gaps reassembled it wrongly.
pub const APART: u8 = 6;
/// Added to the kind of an item that was read from the frame.
pub const PLACED: u8 = 0x80;

/// Flag: the packet is a retransmission.
pub const AGAIN: u8 = 1;
/// Flag: the first TCP segment of its connection in which MPA framing was found.
pub const MPA: u8 = 2;
/// Flag: a TCP segment that opens a connection.
pub const SYN: u8 = 4;
/// Flag: findings are as they are at the end of the frames fed.
pub const SETTLED: u8 = 8;
/// Flag: there is a finding among the items.
pub const FINDING: u8 = 16;
/// Flag: something is in the frame that Wireshark leaves undecoded.
pub const DECODED: u8 = 32;
/// Flag: there are items besides messages.
pub const HAS_FACTS: u8 = 64;
/// Flag: a TCP segment with payload, to or from port 5445, on whose connection MPA framing was not found yet.
pub const NO_MPA: u8 = 128;

/// Fields besides those of the analysis: for later results, and for frames that other programs do not decode.
static MORE: [FieldDef; 8] = [
    more("rdmascope.exchange.reply", "Answered in frame", Kind::FrameNum, Base::None),
    more("rdmascope.exchange.owner", "Most of that time was", Kind::Str, Base::None),
    more("rdmascope.exchange.owner.time", "Its part", Kind::RelTime, Base::None),
    more("rdmascope.session", "SMB session", Kind::U64, Base::Hex),
    more("rdmascope.session.channel", "Channel of the session", Kind::U32, Base::Dec),
    more("rdmascope.session.channels", "Channels of the session", Kind::U32, Base::Dec),
    more("rdmascope.episode", "Held the connection up", Kind::Str, Base::None),
    more("rdmascope.cnp", "Congestion notification for queue pair", Kind::U32, Base::Hex),
];

const fn more(name: &'static str, label: &'static str, kind: Kind, base: Base) -> FieldDef {
    let (spec, privacy) = ("rdmascope", Privacy::Keep);
    FieldDef { name, id: id_of(name), label, kind, base, mask: 0, width: 0, values: &[], spec, privacy, hidden: false }
}

/// Protocols that Wireshark does not decode everywhere, by the beginning of their field names.
const OTHERS: [&str; 10] = [
    "smb_direct",
    "rdmascope.smb_direct",
    "rdmascope.smb2.rdma_transform",
    "rdmascope.smb2.rdma_crypto_transform",
    "rdmascope.smb2.rdma_v1_descriptor",
    "smb2.buffer_descriptor.",
    "iwarp_mpa.enhanced",
    "iwarp_mpa.legacy",
    "rdmascope.iwarp_mpa.enhanced",
    "rdmascope.iwarp_mpa.legacy",
];
/// Subtrees of them that are always reported.
const SUBTREES: [&str; 3] = ["rdmascope.smb2.rdma_transform", "iwarp_mpa.enhanced", "iwarp_mpa.legacy"];
/// The headers of those.
const HEADERS: [Def; 3] = [RdmaTransformFixed::NODE, CryptoTransformFixed::NODE, Enhanced::NODE];

/// Not reported: the payload of a packet is visible in the frame, and the packets of a Send need no subtree.
const LEFT_OUT: [&str; 2] = ["rdmascope.data", "rdmascope.send.fragments"];

/// True if a field comes from the analysis, and not from a protocol (one of `protocols`) in which Wireshark lacks it.
fn is_analysis(def: Def, protocols: &HashSet<&str>) -> bool {
    let Some(rest) = def.name.strip_prefix(OURS) else { return def.name == "rdmascope" };
    let Some((first, _)) = rest.split_once('.') else { return true };
    def.name == "rdmascope.rpc.procedure" || !protocols.contains(first)
}

/// True if a field is added where Wireshark does not decode.
pub fn is_of_others(name: &str) -> bool {
    OTHERS.iter().any(|other| name.starts_with(other))
}

fn is_of_smb_direct(def: Def) -> bool {
    def.name.strip_prefix(OURS).unwrap_or(def.name).starts_with("smb_direct")
}

struct Table {
    defs: Vec<Def>,
    /// Open-addressed by id: index into `defs`, and when it is reported.
    slots: Vec<(u32, u16, Scope)>,
    mask: u32,
    /// A bit for each id in `slots`, by its lower bits. Most fields of a frame are not in it, and these few bytes stay
    /// in the cache.
    known: [u64; KNOWN],
    smb_direct: Named,
    smb2: Named,
    analysis: u32,
    mpa: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// An empty slot.
    Empty,
    /// Always.
    Always,
    /// Always, with everything inside.
    Subtree,
    /// Only inside such a subtree.
    Inside,
}

/// Number of words of [`Table::known`].
const KNOWN: usize = 64;

#[derive(Clone, Copy)]
struct Named {
    id: u32,
    field: u16,
}

impl Table {
    fn new() -> Self {
        let registry = Registry::of(DECLARED.iter().copied().chain([connection::FIELDS, pieces::OURS]));
        // the text before the first dot is looked up, because every program waits for this at its start
        let protocols: HashSet<&str> = registry.all().iter().filter_map(|d| d.name.split('.').next()).collect();
        let mut defs: Vec<Def> = registry
            .all()
            .iter()
            .copied()
            .filter(|def| !LEFT_OUT.contains(&def.name) && (is_analysis(def, &protocols) || is_of_others(def.name)))
            .collect();
        defs.extend(MORE.iter());
        let smb2 = registry.find("smb2").unwrap_or(&MORE[0]);
        defs.push(smb2);
        let size = (defs.len() * 4).next_power_of_two();
        let mut table = Self {
            slots: vec![(0, 0, Scope::Empty); size],
            mask: size as u32 - 1,
            known: [0; KNOWN],
            smb_direct: Named { id: id_of("smb_direct"), field: 0 },
            smb2: Named { id: smb2.id, field: defs.len() as u16 - 1 },
            analysis: id_of("rdmascope"),
            mpa: id_of("iwarp_mpa"),
            defs,
        };
        for (n, def) in table.defs.iter().enumerate() {
            let scope = match def.name {
                name if SUBTREES.contains(&name) || name == "rdmascope.finding" => Scope::Subtree,
                name if is_of_others(name) => Scope::Inside,
                name if name.starts_with("rdmascope.") => Scope::Always,
                _ => Scope::Inside,
            };
            if def.name == "smb_direct" {
                table.smb_direct.field = n as u16;
            }
            table.known[def.id as usize / 64 % KNOWN] |= 1 << (def.id % 64);
            let mut at = def.id & table.mask;
            while table.slots[at as usize].2 != Scope::Empty {
                at = (at + 1) & table.mask;
            }
            table.slots[at as usize] = (def.id, n as u16, scope);
        }
        table
    }

    #[inline]
    fn find(&self, id: u32) -> Option<(u16, Scope)> {
        if self.known[id as usize / 64 % KNOWN] & (1 << (id % 64)) == 0 {
            return None;
        }
        let mut at = id & self.mask;
        loop {
            let (found, field, scope) = self.slots[at as usize];
            if scope == Scope::Empty {
                return None;
            }
            if found == id {
                return Some((field, scope));
            }
            at = (at + 1) & self.mask;
        }
    }
}

static TABLE: LazyLock<Table> = LazyLock::new(Table::new);

/// All fields of items. An item names its index in this list, which is the same in all engines of a version.
pub fn fields() -> &'static [Def] {
    &TABLE.defs
}

/// The index of a field.
pub(crate) fn field(name: &str) -> u16 {
    TABLE.find(id_of(name)).map_or(u16::MAX, |(field, _)| field)
}

/// True if a field is a message: those that Wireshark decodes need not be shown.
pub(crate) fn is_message(field: u16) -> bool {
    let table = &*TABLE;
    field == table.smb_direct.field || field == table.smb2.field
}

/// One fact about a frame.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Item<'a> {
    /// Its index in [`fields`].
    pub field: u16,
    /// [`NONE`] or one of the kinds after it; without [`PLACED`].
    pub kind: u8,
    /// Depth in the tree, from 0.
    pub depth: u8,
    /// Offset and length in the frame, if it was read there.
    pub place: Option<(u32, u32)>,
    /// The value.
    pub value: &'a [u8],
}

impl Item<'_> {
    /// The value as a number.
    pub fn number(&self) -> u64 {
        self.value.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }

    /// The second part of the value of [`TIME`], and both of [`APART`].
    pub fn words(&self) -> (u32, u32) {
        let word = |at: usize| self.value.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes);
        match self.kind {
            TIME => (word(8), 0),
            _ => (word(0), word(4)),
        }
    }

    /// The value as text, if it is text.
    pub fn text(&self) -> &str {
        std::str::from_utf8(self.value).unwrap_or("")
    }
}

/// The flags of a buffer of facts.
pub fn flags(facts: &[u8]) -> u8 {
    facts.get(3).copied().unwrap_or(0)
}

/// The items of a buffer of facts. They end at its end, or at the first invalid one.
pub fn items(facts: &[u8]) -> impl Iterator<Item = Item<'_>> {
    let mut rest = facts.get(HEAD..).unwrap_or_default();
    std::iter::from_fn(move || {
        let (head, behind) = rest.split_first_chunk::<ITEM>()?;
        let length = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
        let (value, behind) = behind.split_at_checked(length)?;
        rest = behind;
        let (place, value) = match (head[2] & PLACED != 0, value.split_first_chunk::<8>()) {
            (true, Some((place, value))) => {
                let [a, b, c, d, e, f, g, h] = *place;
                (Some((u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]))), value)
            }
            _ => (None, value),
        };
        Some(Item {
            field: u16::from_le_bytes([head[0], head[1]]),
            kind: head[2] & !PLACED,
            depth: head[3],
            place,
            value,
        })
    })
}

/// Writes a buffer of facts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Writer {
    out: Vec<u8>,
    items: u32,
    /// True if there are items besides messages.
    has_facts: bool,
}

impl Writer {
    pub(crate) fn begin(&mut self) {
        self.out.clear();
        self.out.extend_from_slice(&[0; HEAD]);
        self.items = 0;
        self.has_facts = false;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items == 0
    }

    pub(crate) fn finish(&mut self, layer: u8, flags: u8) -> &[u8] {
        let [a, b] = LAYOUT.to_le_bytes();
        let [c, d, e, f] = self.items.to_le_bytes();
        let flags = flags | if self.has_facts { HAS_FACTS } else { 0 };
        self.out[..HEAD].copy_from_slice(&[a, b, layer, flags, c, d, e, f]);
        &self.out
    }

    /// Adds an item and returns its offset.
    pub(crate) fn item(&mut self, field: u16, kind: u8, depth: u8, place: Option<(u32, u32)>, value: &[u8]) -> usize {
        let at = self.head(field, kind, depth, place);
        self.out.extend_from_slice(value);
        self.ends(at);
        at
    }

    pub(crate) fn text(&mut self, field: u16, depth: u8, text: std::fmt::Arguments<'_>) {
        let at = self.head(field, TEXT, depth, None);
        let _ = self.write_fmt(text);
        self.ends(at);
    }

    pub(crate) fn number(&mut self, field: u16, depth: u8, number: u64) {
        self.item(field, UNSIGNED, depth, None, &number.to_le_bytes());
    }

    pub(crate) fn time(&mut self, field: u16, depth: u8, ns: i64) {
        const SECOND: i64 = 1_000_000_000;
        self.seconds(field, depth, None, ns.div_euclid(SECOND), ns.rem_euclid(SECOND) as u32);
    }

    fn seconds(&mut self, field: u16, depth: u8, place: Option<(u32, u32)>, seconds: i64, nanos: u32) {
        let at = self.head(field, TIME, depth, place);
        self.out.extend_from_slice(&seconds.to_le_bytes());
        self.out.extend_from_slice(&nanos.to_le_bytes());
        self.ends(at);
    }

    pub(crate) fn copy(&mut self, item: &Item<'_>) {
        self.item(item.field, item.kind, item.depth, item.place, item.value);
    }

    fn head(&mut self, field: u16, kind: u8, depth: u8, place: Option<(u32, u32)>) -> usize {
        let at = self.out.len();
        let [a, b] = field.to_le_bytes();
        let placed = if place.is_some() { PLACED } else { 0 };
        self.out.extend_from_slice(&[a, b, kind | placed, depth, 0, 0, 0, 0]);
        if let Some((offset, length)) = place {
            self.out.extend_from_slice(&offset.to_le_bytes());
            self.out.extend_from_slice(&length.to_le_bytes());
        }
        self.items += 1;
        self.has_facts |= !is_message(field);
        at
    }

    fn ends(&mut self, at: usize) {
        let length = (self.out.len() - at - ITEM) as u32;
        self.out[at + 4..at + 8].copy_from_slice(&length.to_le_bytes());
    }

    /// Sets the end, in the frame, of the item at an offset, if it has a place.
    fn reaches(&mut self, at: usize, end: u32) {
        if self.out[at + 2] & PLACED != 0
            && let Some(place) = self.out.get_mut(at + ITEM..at + ITEM + 8)
        {
            let offset = u32::from_le_bytes([place[0], place[1], place[2], place[3]]);
            place[4..].copy_from_slice(&end.saturating_sub(offset).to_le_bytes());
        }
    }
}

impl Writer {
    fn mark_apart(&mut self, field: u16) {
        let mut at = HEAD;
        while let Some(head) = self.out.get(at..at + ITEM) {
            let is_it = head[..2] == field.to_le_bytes() && head[2] == APART;
            let length = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
            if is_it && length == 8 {
                self.out[at + ITEM + 4] = 1;
            }
            at += ITEM + length;
        }
    }
}

impl std::fmt::Write for Writer {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.out.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

/// Limit of the depth.
const DEPTH_MAX: usize = 64;
/// Limit of items of one frame.
const ITEMS_MAX: u32 = 4096;

/// An observer that writes facts. Reused for all frames, it soon allocates nothing.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    pub(crate) writer: Writer,
    /// For each open subtree, the offset of its item, if it is reported.
    open: Vec<Option<usize>>,
    depth: u8,
    /// Address and length of the frame.
    frame: (usize, usize),
    /// True to report every field: these bytes are decoded alone.
    alone: bool,
    pub(crate) has_decoded: bool,
    pub(crate) has_finding: bool,
    /// True if the packet is a retransmission or came too early.
    pub(crate) has_trouble: bool,
    /// True if there is an SMB Direct message, also in a packet that came too early or again.
    pub(crate) has_smb_direct: bool,
    /// True if MPA was seen.
    pub(crate) has_mpa: bool,
    /// The open subtree of the current SMB Direct message, and its item.
    smb_direct: Option<(usize, usize)>,
    /// The place of the current SMB2 message in the frame, or its number among those apart.
    smb2: Option<Whole>,
    smb2_open: u32,
    /// Number of open sources.
    sources: Vec<From>,
    /// Messages that are not contiguous in the frame.
    pub(crate) apart: Vec<Vec<u8>>,
    /// True if a whole SMB2 message ended; true if it was reassembled from fragments.
    pub(crate) ended: Option<bool>,
}

/// Origin of bytes that are not in the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    /// An SMB2 message that was reassembled from fragments and ends in the frame.
    Fragments,
    /// A Send that was reassembled from packets or segments.
    Packets,
    /// Decrypted or decompressed data, and the like.
    Other,
}

#[derive(Clone, Copy, Debug)]
enum Whole {
    Frame(u32, u32),
    Apart(u32),
}

impl Facts {
    /// Begins a frame; with `alone` it is a single message, which is reported completely.
    pub(crate) fn begin(&mut self, bytes: &[u8], alone: bool) {
        self.writer.begin();
        self.open.clear();
        self.depth = 0;
        self.frame = (bytes.as_ptr() as usize, bytes.len());
        self.alone = alone;
        (self.has_decoded, self.has_finding, self.has_trouble) = (false, false, false);
        (self.has_smb_direct, self.has_mpa) = (false, false);
        (self.smb_direct, self.smb2, self.smb2_open, self.ended) = (None, None, 0, None);
        self.sources.clear();
        self.apart.clear();
    }

    fn offset(&self, at: &[u8]) -> Option<u32> {
        let offset = (at.as_ptr() as usize).checked_sub(self.frame.0)?;
        (offset <= self.frame.1).then_some(offset as u32)
    }

    fn is_inside(&self) -> bool {
        self.alone || self.depth > 0
    }

    /// Ends the current SMB2 message.
    pub(crate) fn finish_smb2(&mut self) {
        let field = TABLE.smb2.field;
        match self.smb2.take() {
            Some(Whole::Frame(from, to)) => {
                self.ended.get_or_insert(false);
                self.writer.item(field, NONE, 0, Some((from, to.saturating_sub(from))), &[]);
            }
            Some(Whole::Apart(number)) => {
                let value = u64::from(number).to_le_bytes();
                self.writer.item(field, APART, 0, None, &value);
            }
            None => {}
        }
    }

    /// A message that was not captured completely is not reported.
    pub(crate) fn leave_smb2(&mut self) {
        self.smb2 = None;
    }

    /// Marks the messages apart in this frame as wrongly reassembled by other readers.
    pub(crate) fn mark_apart(&mut self) {
        self.writer.mark_apart(TABLE.smb2.field);
    }

    fn keep_apart(&mut self, bytes: &[u8]) -> u32 {
        self.apart.push(bytes.to_vec());
        self.apart.len() as u32 - 1
    }
}

impl Trace for Facts {
    const ON: bool = true;

    #[inline]
    fn wants(&self, fields: &'static FieldSet) -> bool {
        self.is_inside() || fields.fields().next().is_some_and(|first| HEADERS.contains(&first))
    }

    #[inline]
    fn field(&mut self, def: Def, at: &[u8], len: usize, value: Value<'_>) {
        let Some((field, scope)) = TABLE.find(def.id) else { return };
        if self.alone && !is_of_smb_direct(def) {
            return;
        }
        if !(scope == Scope::Always || self.is_inside()) || self.writer.items >= ITEMS_MAX {
            return;
        }
        let place = if len > 0 { self.offset(at).map(|offset| (offset, len as u32)) } else { None };
        let depth = self.depth;
        let writer = &mut self.writer;
        match value {
            Value::None => {
                self.has_trouble |=
                    matches!(def.name, "rdmascope.retransmission" | "rdmascope.early" | "rdmascope.damaged");
                writer.item(field, NONE, depth, place, &[]);
            }
            Value::U(v) => {
                writer.item(field, UNSIGNED, depth, place, &v.to_le_bytes());
            }
            Value::I(v) => {
                writer.item(field, SIGNED, depth, place, &v.to_le_bytes());
            }
            Value::Bytes(bytes) => {
                writer.item(field, BYTES, depth, place, bytes);
            }
            Value::Text(text) => writer.text(field, depth, text),
            Value::Str(text) => writer.text(field, depth, format_args!("{text}")),
            Value::Time { seconds, nanos } => writer.seconds(field, depth, place, seconds, nanos),
        }
    }

    fn open(&mut self, def: Def, at: &[u8]) {
        let mut item = None;
        self.has_mpa |= def.id == TABLE.mpa;
        if def.id == TABLE.smb_direct.id && !self.alone {
            self.finish_smb2();
            let field = TABLE.smb_direct.field;
            let item = match self.offset(at) {
                Some(offset) => self.writer.item(field, NONE, 0, Some((offset, at.len() as u32)), &[]),
                None => {
                    let number = self.keep_apart(at);
                    self.writer.item(field, APART, 0, None, &u64::from(number).to_le_bytes())
                }
            };
            self.has_smb_direct = true;
            self.smb_direct = Some((self.open.len(), item));
        } else if def.id == TABLE.smb2.id && self.has_smb_direct && !self.alone {
            let source = self.sources.last().copied();
            if self.smb2_open == 0 && self.smb2.is_none_or(|whole| matches!(whole, Whole::Frame(..))) {
                match (self.offset(at), source, self.smb2) {
                    (Some(_), None, Some(Whole::Frame(..))) => {}
                    (Some(from), None, _) => self.smb2 = Some(Whole::Frame(from, from)),
                    (None, Some(From::Packets), None) => self.smb2 = Some(Whole::Apart(self.keep_apart(at))),
                    _ => {}
                }
            }
            self.smb2_open = self.open.len() as u32 + 1;
        } else if def.id != TABLE.analysis
            && self.writer.items < ITEMS_MAX
            && self.open.len() < DEPTH_MAX
            && let Some((field, how)) = TABLE.find(def.id)
            && (self.is_inside() || how == Scope::Subtree)
            && (!self.alone || is_of_smb_direct(def))
        {
            let place = self.offset(at).filter(|_| !at.is_empty()).map(|offset| (offset, 0));
            item = Some(self.writer.item(field, NONE, self.depth, place, &[]));
            self.depth += 1;
            match def.name {
                "rdmascope.finding" => self.has_finding = true,
                _ => self.has_decoded = true,
            }
        }
        self.open.push(item);
    }

    fn close(&mut self, rest: &[u8]) {
        let end = self.offset(rest);
        self.closes(end);
    }

    fn abort(&mut self) {
        let end = self.frame.1 as u32;
        self.closes(Some(end));
    }

    fn down(&mut self) {
        self.depth += u8::from(self.is_inside());
    }

    fn up(&mut self) {
        self.depth = self.depth.saturating_sub(1);
    }

    fn source(&mut self, name: &'static str, bytes: &[u8]) {
        let from = match name {
            "Reassembled SMB Direct" => From::Fragments,
            "Reassembled Send" | "Reassembled FPDU" | "Reassembled MPA frame" | "Reassembled IP datagram" => {
                From::Packets
            }
            _ => From::Other,
        };
        if from == From::Fragments && !self.alone {
            self.finish_smb2();
            self.smb2 = Some(Whole::Apart(self.keep_apart(bytes)));
            self.ended = Some(true);
        }
        self.sources.push(from);
    }

    fn end_source(&mut self) {
        self.sources.pop();
    }
}

impl Facts {
    fn closes(&mut self, end: Option<u32>) {
        let Some(item) = self.open.pop() else { return };
        if let Some(at) = item {
            self.depth = self.depth.saturating_sub(1);
            if let Some(end) = end {
                self.writer.reaches(at, end);
            }
        }
        if let Some((level, item)) = self.smb_direct
            && level == self.open.len()
        {
            self.smb_direct = None;
            if let Some(end) = end {
                self.writer.reaches(item, end);
            }
        }
        if self.smb2_open == self.open.len() as u32 + 1 {
            self.smb2_open = 0;
            if let (Some(Whole::Frame(from, to)), Some(end)) = (self.smb2, end) {
                self.smb2 = Some(Whole::Frame(from, to.max(end)));
            }
        }
    }
}
