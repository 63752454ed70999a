//! Observers of a decoder. Every decoder is generic over a [`Trace`]; there is no second parser for display.
//!
//! | observer | keeps |
//! | --- | --- |
//! | [`Off`] | nothing, and compiles to nothing |
//! | [`Tree`] | a flat list in pre-order of every field: definition, source, offset, length, depth, value |
//!
//! A decoder says where a field lies by passing the input *at* the field: observers that want an offset subtract the
//! start of the current source. Bytes that are not in the frame (a reassembled message, decrypted text) are a source of
//! their own, announced with [`Trace::source`].

use crate::address::{dotted, with_colons};
use crate::digits::decimal;
use crate::fault::{Fault, FaultKind, PResult, fault_of};
use crate::field::{Def, FieldSet, Kind};
use crate::frame_fields;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::{self, Write};

/// A value on its way from a decoder to an observer. Borrowed; observers copy what they keep.
#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    /// A subtree or a field whose presence is all there is to know.
    None,
    /// Unsigned integers, booleans (0 or 1), frame numbers, the bits of a [`Kind::Double`].
    U(u64),
    /// Signed integers.
    I(i64),
    /// Every kind that is a run of bytes, and text in its encoding on the wire.
    Bytes(&'a [u8]),
    /// Text that was computed, not copied from the wire.
    Text(fmt::Arguments<'a>),
    /// The same, written already: nothing has to be formatted.
    Str(&'a str),
    /// Absolute (since the Unix epoch) or relative time.
    Time {
        /// Whole seconds, may be negative.
        seconds: i64,
        /// 0 to 999,999,999, counted forward from `seconds`.
        nanos: u32,
    },
}

/// Text of a layer for the frame's line, not written yet: its header, and how to write it.
#[derive(Clone, Copy, Debug)]
pub struct LayerText {
    header: [u8; Self::LEN],
    write: WriteHeader,
}

/// Writes a header of a layer, which the bytes begin with.
pub type WriteHeader = fn(&[u8; LayerText::LEN], &mut fmt::Formatter<'_>) -> fmt::Result;

impl LayerText {
    /// Bytes of the longest header: that of IPv6.
    pub const LEN: usize = 40;

    /// The text of `header`. `write` gets zeros behind it.
    #[inline]
    pub fn new<const N: usize>(header: &[u8; N], write: WriteHeader) -> Self {
        const { assert!(N <= Self::LEN) };
        let mut bytes = [0; Self::LEN];
        bytes[..N].copy_from_slice(header);
        Self { header: bytes, write }
    }
}

impl fmt::Display for LayerText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (self.write)(&self.header, f)
    }
}

/// An observer of decoding. All methods but `field`, `open` and `close` have empty defaults.
pub trait Trace {
    /// True if anything is kept. Decoders skip work that only feeds the observer where it is `false`.
    const ON: bool;

    /// True if one of these fields may be kept. If none is, a decoder need not report them, and so may be as fast as
    /// for [`Off`]; it still reports subtrees, faults and the frame's line.
    #[inline(always)]
    fn wants(&self, _fields: &'static FieldSet) -> bool {
        Self::ON
    }

    /// True if this field may be kept: a decoder need not compute the value of one that is not.
    #[inline(always)]
    fn keeps(&self, _def: Def) -> bool {
        Self::ON
    }

    /// A field of `len` bytes that begins at the start of `at`. `len` 0 marks a value that was computed, not read.
    fn field(&mut self, def: Def, at: &[u8], len: usize, value: Value<'_>);

    /// `len` bytes at the start of `at` were read, and no field shows them.
    #[inline(always)]
    fn unshown(&mut self, _at: &[u8], _len: usize) {}

    /// Opens a subtree that begins at the start of `at`; fields that follow are inside, until [`Trace::close`].
    /// Use [`scope`], which cannot forget to close.
    fn open(&mut self, def: Def, at: &[u8]);

    /// Closes the innermost subtree. It ends where `rest`, the input not yet consumed, begins.
    fn close(&mut self, rest: &[u8]);

    /// Closes the innermost subtree after a fault: it ends where its last field does.
    fn abort(&mut self) {}

    /// Fields that follow are children of the last field (bits of a flags field). Ends with [`Trace::up`].
    fn down(&mut self) {}

    /// Ends what [`Trace::down`] began.
    fn up(&mut self) {}

    /// Adds to the label of the innermost open subtree: `"Read chunk list"` becomes `"Read chunk list (2 segments)"`.
    fn label(&mut self, _text: fmt::Arguments<'_>) {}

    /// The same, of parts: for the labels that every frame has.
    fn label_parts(&mut self, _parts: &[LabelPart<'_>]) {}

    /// The protocol that the frame's line names, as in `"SMB2"`. Each layer says its own; the last one stands.
    fn protocol(&mut self, _name: &'static str) {}

    /// Text for the frame's line about the layer named last. Several are joined with `", "`.
    fn info(&mut self, _text: fmt::Arguments<'_>) {}

    /// The same for a layer that nearly always carries another one, whose text then stands: an observer need not write
    /// this before it knows that none does.
    #[inline]
    fn layer_info(&mut self, text: LayerText) {
        self.info(format_args!("{text}"));
    }

    /// Decoding stopped. Called by [`scope`].
    fn fault(&mut self, _fault: &Fault) {}

    /// Fields that follow lie in `bytes`, not in the frame, until [`Trace::end_source`]. Sources nest.
    fn source(&mut self, _name: &'static str, _bytes: &[u8]) {}

    /// Ends what [`Trace::source`] began.
    fn end_source(&mut self) {}

    /// The frame is decoded: no more calls follow for it. Observers fill in the values known only now.
    fn end(&mut self) {}
}

/// Two observers that get the same calls.
#[derive(Debug)]
pub struct Pair<'a, A, B>(pub &'a mut A, pub &'a mut B);

impl<A: Trace, B: Trace> Trace for Pair<'_, A, B> {
    const ON: bool = A::ON || B::ON;
    #[inline]
    fn wants(&self, fields: &'static FieldSet) -> bool {
        self.0.wants(fields) || self.1.wants(fields)
    }
    #[inline]
    fn keeps(&self, def: Def) -> bool {
        self.0.keeps(def) || self.1.keeps(def)
    }
    #[inline]
    fn field(&mut self, def: Def, at: &[u8], len: usize, value: Value<'_>) {
        self.0.field(def, at, len, value);
        self.1.field(def, at, len, value);
    }
    #[inline]
    fn unshown(&mut self, at: &[u8], len: usize) {
        self.0.unshown(at, len);
        self.1.unshown(at, len);
    }
    #[inline]
    fn open(&mut self, def: Def, at: &[u8]) {
        self.0.open(def, at);
        self.1.open(def, at);
    }
    #[inline]
    fn close(&mut self, rest: &[u8]) {
        self.0.close(rest);
        self.1.close(rest);
    }
    fn abort(&mut self) {
        self.0.abort();
        self.1.abort();
    }
    #[inline]
    fn down(&mut self) {
        self.0.down();
        self.1.down();
    }
    #[inline]
    fn up(&mut self) {
        self.0.up();
        self.1.up();
    }
    fn label(&mut self, text: fmt::Arguments<'_>) {
        self.0.label(text);
        self.1.label(text);
    }
    fn label_parts(&mut self, parts: &[LabelPart<'_>]) {
        self.0.label_parts(parts);
        self.1.label_parts(parts);
    }
    fn protocol(&mut self, name: &'static str) {
        self.0.protocol(name);
        self.1.protocol(name);
    }
    fn info(&mut self, text: fmt::Arguments<'_>) {
        self.0.info(text);
        self.1.info(text);
    }
    fn layer_info(&mut self, text: LayerText) {
        self.0.layer_info(text);
        self.1.layer_info(text);
    }
    fn fault(&mut self, fault: &Fault) {
        self.0.fault(fault);
        self.1.fault(fault);
    }
    fn source(&mut self, name: &'static str, bytes: &[u8]) {
        self.0.source(name, bytes);
        self.1.source(name, bytes);
    }
    fn end_source(&mut self) {
        self.0.end_source();
        self.1.end_source();
    }
    fn end(&mut self) {
        self.0.end();
        self.1.end();
    }
}

/// Keeps the frame's line: protocol and text. Reused from frame to frame, it stops allocating. The line is whole after
/// [`Trace::end`].
#[derive(Clone, Debug, Default)]
pub struct Line {
    /// The protocol of the layer that spoke last.
    pub protocol: &'static str,
    /// Text of that layer.
    pub info: String,
    /// Number of faults.
    pub faults: u32,
    /// The next text of that layer, until it is known that it stands.
    waiting: Option<LayerText>,
}

impl Line {
    /// Forgets the frame before.
    pub fn begin(&mut self) {
        self.protocol = "";
        self.info.clear();
        self.faults = 0;
        self.waiting = None;
    }

    /// The text that waits stands: something comes behind it, or the end.
    #[inline]
    fn write_waiting(&mut self) {
        if let Some(text) = self.waiting.take() {
            note_info(&mut self.info, format_args!("{text}"));
        }
    }
}

impl Trace for Line {
    const ON: bool = true;
    #[inline(always)]
    fn wants(&self, _: &'static FieldSet) -> bool {
        false
    }
    #[inline(always)]
    fn keeps(&self, _: Def) -> bool {
        false
    }
    #[inline(always)]
    fn field(&mut self, _: Def, _: &[u8], _: usize, _: Value<'_>) {}
    #[inline(always)]
    fn open(&mut self, _: Def, _: &[u8]) {}
    #[inline(always)]
    fn close(&mut self, _: &[u8]) {}
    fn protocol(&mut self, name: &'static str) {
        if self.protocol == name {
            self.write_waiting();
        }
        self.waiting = None;
        note_protocol(&mut self.protocol, &mut self.info, name);
    }
    fn info(&mut self, text: fmt::Arguments<'_>) {
        self.write_waiting();
        note_info(&mut self.info, text);
    }
    fn layer_info(&mut self, text: LayerText) {
        self.write_waiting();
        self.waiting = Some(text);
    }
    fn fault(&mut self, _: &Fault) {
        self.faults += 1;
    }
    #[inline]
    fn end(&mut self) {
        self.write_waiting();
    }
}

fn note_protocol(protocol: &mut &'static str, info: &mut String, name: &'static str) {
    if *protocol != name {
        *protocol = name;
        info.clear();
    } else if !info.is_empty() {
        info.push_str("; ");
    }
}

fn note_info(info: &mut String, text: fmt::Arguments<'_>) {
    if !info.is_empty() && !info.ends_with(' ') {
        info.push_str(", ");
    }
    let _ = info.write_fmt(text);
}

/// Runs `decode` inside a subtree `def`. Closes it at the end of the consumed bytes or, after a fault, behind the last
/// field that could be read, and reports the fault to the observer once.
#[inline]
pub fn scope<'a, T: Trace, O>(
    def: Def,
    i: &'a [u8],
    t: &mut T,
    decode: impl FnOnce(&'a [u8], &mut T) -> PResult<'a, O>,
) -> PResult<'a, O> {
    if !T::ON {
        return decode(i, t);
    }
    t.open(def, i);
    // what was decoded may be large: it stays where it is
    let mut result = decode(i, t);
    match &mut result {
        Ok((rest, _)) => t.close(rest),
        Err(e) => stopped(e, t),
    }
    result
}

/// Reports the fault that ends a subtree, unless one within did.
#[cold]
fn stopped<T: Trace>(error: &mut nom::Err<Fault>, t: &mut T) {
    let fault = report(error.clone(), t);
    t.abort();
    *error = nom::Err::Error(fault);
}

/// Reports the fault of a part, unless that was done: for one whose neighbours are read all the same.
#[cold]
pub(crate) fn report<T: Trace>(error: nom::Err<Fault>, t: &mut T) -> Fault {
    let mut fault = fault_of(error);
    if !fault.reported {
        t.fault(&fault);
        fault.reported = true;
    }
    fault
}

/// Keeps nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Off;

impl Trace for Off {
    const ON: bool = false;
    #[inline(always)]
    fn field(&mut self, _: Def, _: &[u8], _: usize, _: Value<'_>) {}
    #[inline(always)]
    fn open(&mut self, _: Def, _: &[u8]) {}
    #[inline(always)]
    fn close(&mut self, _: &[u8]) {}
}

/// A value kept in a [`Tree`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeValue {
    /// No value.
    None,
    /// See [`Value::U`].
    U(u64),
    /// See [`Value::I`].
    I(i64),
    /// The bytes at the node's offset.
    Bytes,
    /// Bytes that are not at the node's offset (a value put together from several places): a range of [`Tree::text`].
    Apart(u32, u32),
    /// Computed text: a range of [`Tree::text`].
    Text(u32, u32),
    /// See [`Value::Time`].
    Time(i64, u32),
}

/// One field or subtree of a [`Tree`].
#[derive(Clone, Copy, Debug)]
pub struct Node {
    /// The field.
    pub def: Def,
    /// Index in [`Tree::sources`] of the bytes in which the offset counts; 0 is the frame.
    pub source: u16,
    /// 0 for a protocol of the frame.
    pub depth: u8,
    /// True if it was computed rather than read.
    pub generated: bool,
    /// Bytes from the start of the source.
    pub offset: u32,
    /// Length in bytes.
    pub len: u32,
    /// The value.
    pub value: NodeValue,
    /// Text added to the label: a range of [`Tree::text`].
    pub note: (u32, u32),
    /// The fault that ended this subtree: an index into [`Tree::faults`] plus 1, 0 for none.
    pub fault: u16,
}

/// Bytes that fields lie in.
#[derive(Clone, Debug, Default)]
pub struct Source {
    /// `"Frame"`, `"Reassembled SMB Direct"`, …
    pub name: &'static str,
    /// A copy of the bytes.
    pub bytes: Vec<u8>,
    base: usize,
}

/// A part of a label ([`Trace::label_parts`]).
#[derive(Clone, Copy, Debug)]
pub enum LabelPart<'a> {
    /// Text.
    Text(&'a str),
    /// A number, in decimal.
    Number(u64),
    /// An IPv4 address.
    V4([u8; 4]),
    /// A MAC address.
    Mac([u8; 6]),
}

impl LabelPart<'_> {
    #[inline]
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Text(text) => out.extend_from_slice(text.as_bytes()),
            Self::Number(number) => decimal(out, *number),
            Self::V4(address) => dotted(*address, |text| out.extend_from_slice(text)),
            Self::Mac(address) => with_colons(*address, |text| out.extend_from_slice(text)),
        }
    }
}

/// How much a [`Tree`] keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Detail {
    /// Fields: outputs for programs show no texts.
    Fields,
    /// Fields, and what is added to the labels of subtrees.
    Labels,
    /// Fields, labels and the frame's line.
    #[default]
    Line,
}

/// Keeps every field of one frame: the detail pane, JSON, and all exports are made from it. Reused from frame to frame,
/// it stops allocating.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    /// Pre-order: the children of a node are the nodes of greater depth that follow it.
    pub nodes: Vec<Node>,
    /// Computed text that nodes refer to.
    pub text: Vec<u8>,
    /// Faults in order, each with the source current at the time and the offset in it.
    pub faults: Vec<(Fault, u16, u32)>,
    /// The protocol of the frame's line.
    pub protocol: &'static str,
    /// The text of the frame's line.
    pub info: String,
    /// What it keeps: texts cost as much to write as all fields.
    pub detail: Detail,
    sources: Vec<Source>,
    used: usize,
    stack: Vec<u16>,
    /// The source at the top of the stack: its index, where its bytes lie, and their number.
    innermost: (u16, usize, usize),
    open: Vec<u32>,
    depth: u8,
    /// Protocols in the order in which they began, for `frame.protocols`.
    layers: Vec<Def>,
}

impl Tree {
    /// Limit of nodes in one frame: further ones are not kept, and a fault says so.
    pub const NODES_MAX: usize = 1 << 20;

    /// An empty tree; [`Tree::begin`] gives it a frame.
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets everything and begins a frame of these bytes.
    pub fn begin(&mut self, frame: &[u8]) {
        self.nodes.clear();
        self.text.clear();
        self.faults.clear();
        self.protocol = "";
        self.info.clear();
        self.used = 0;
        self.stack.clear();
        self.open.clear();
        self.depth = 0;
        self.layers.clear();
        self.push_source("Frame", frame);
    }

    /// The frame and every other source that fields of it lie in.
    pub fn sources(&self) -> &[Source] {
        &self.sources[..self.used]
    }

    /// The bytes of its source that a node covers.
    pub fn covered(&self, node: &Node) -> &[u8] {
        let bytes = self.sources().get(usize::from(node.source)).map_or(&[][..], |s| &s.bytes);
        let start = (node.offset as usize).min(bytes.len());
        &bytes[start..start.saturating_add(node.len as usize).min(bytes.len())]
    }

    /// The bytes of a node's value, for the kinds that are runs of bytes, and of its text, for computed text.
    pub fn value_bytes(&self, node: &Node) -> &[u8] {
        match node.value {
            NodeValue::Apart(start, len) | NodeValue::Text(start, len) => self.range(start, len),
            _ => self.covered(node),
        }
    }

    /// Text that [`Trace::label`] added to a node's label.
    pub fn note(&self, node: &Node) -> &str {
        if node.note.1 == 0 { "" } else { core::str::from_utf8(self.note_bytes(node)).unwrap_or("") }
    }

    /// The same, as UTF-8.
    #[inline]
    pub fn note_bytes(&self, node: &Node) -> &[u8] {
        self.range(node.note.0, node.note.1)
    }

    /// The nodes of a name, in order of appearance.
    pub fn all(&self, name: &str) -> impl Iterator<Item = &Node> {
        let id = crate::field::id_of(name);
        self.nodes.iter().filter(move |n| n.def.id == id)
    }

    /// The first number of a name.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.all(name).find_map(|n| match n.value {
            NodeValue::U(v) => Some(v),
            _ => None,
        })
    }

    fn range(&self, start: u32, len: u32) -> &[u8] {
        &self.text[start as usize..(start + len) as usize]
    }

    fn push_source(&mut self, name: &'static str, bytes: &[u8]) {
        if self.used == self.sources.len() {
            self.sources.push(Source::default());
        }
        let source = &mut self.sources[self.used];
        source.name = name;
        source.bytes.clear();
        source.bytes.extend_from_slice(bytes);
        source.base = bytes.as_ptr().addr();
        let index = u16::try_from(self.used).unwrap_or(u16::MAX);
        self.stack.push(index);
        self.used += 1;
        self.enters(index);
    }

    /// A source is the innermost one now.
    fn enters(&mut self, index: u16) {
        if let Some(source) = self.sources.get(usize::from(index)) {
            self.innermost = (index, source.base, source.bytes.len());
        }
    }

    /// Source and offset of `at`: in the current source or, where a decoder went back, in an enclosing one.
    #[inline(always)]
    fn locate(&self, at: &[u8]) -> (u16, u32) {
        let addr = at.as_ptr().addr();
        let (source, base, len) = self.innermost;
        match addr.checked_sub(base).filter(|offset| *offset <= len) {
            Some(offset) => (source, u32::try_from(offset).unwrap_or(u32::MAX)),
            None => self.look_for(addr),
        }
    }

    #[cold]
    fn look_for(&self, addr: usize) -> (u16, u32) {
        for &s in self.stack.iter().rev() {
            let source = &self.sources[usize::from(s)];
            if let Some(offset) = addr.checked_sub(source.base).filter(|o| *o <= source.bytes.len()) {
                return (s, u32::try_from(offset).unwrap_or(u32::MAX));
            }
        }
        (self.stack.last().copied().unwrap_or(0), 0)
    }

    fn keep(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> (u32, u32) {
        let start = self.text.len();
        write(&mut self.text);
        (start as u32, (self.text.len() - start) as u32)
    }

    /// Source and offset of `at`, if that is in the innermost source and there is room for another node.
    #[inline(always)]
    fn at_hand(&self, at: &[u8]) -> Option<(u16, u32)> {
        let (source, base, len) = self.innermost;
        let offset = at.as_ptr().addr().wrapping_sub(base);
        let has_room = self.nodes.len() < Self::NODES_MAX && self.nodes.len() != self.nodes.capacity();
        (has_room && offset <= len).then(|| (source, u32::try_from(offset).unwrap_or(u32::MAX)))
    }

    /// Appends a node that lies there.
    // inlined: a value that is passed in memory and copied at once makes the processor wait
    #[inline(always)]
    fn push(&mut self, def: Def, (source, offset): (u16, u32), len: usize, value: NodeValue) {
        self.nodes.push(Node {
            def,
            source,
            depth: self.depth,
            generated: len == 0,
            offset,
            len: u32::try_from(len).unwrap_or(u32::MAX),
            value,
            note: (0, 0),
            fault: 0,
        });
    }

    /// The same in any source, after making room for another node; `None` if there may be no more.
    #[cold]
    #[inline(never)]
    fn elsewhere(&mut self, def: Def, at: &[u8]) -> Option<(u16, u32)> {
        if self.nodes.len() < Self::NODES_MAX {
            self.nodes.reserve(1);
            return Some(self.locate(at));
        }
        // what is missing behind it is told once
        if self.faults.last().is_none_or(|(fault, ..)| fault.kind != FaultKind::Limit) {
            self.faults.push((Fault::limit(def, at), 0, 0));
        }
        None
    }

    /// A field with a number.
    #[inline(never)]
    fn number_field(&mut self, def: Def, at: &[u8], len: usize, number: u64) {
        match self.at_hand(at) {
            Some(place) => self.push(def, place, len, NodeValue::U(number)),
            None => self.number_elsewhere(def, at, len, number),
        }
    }

    /// The same in another source, or where there is no room.
    #[cold]
    #[inline(never)]
    fn number_elsewhere(&mut self, def: Def, at: &[u8], len: usize, number: u64) {
        if let Some(place) = self.elsewhere(def, at) {
            self.push(def, place, len, NodeValue::U(number));
        }
    }

    /// A field with text.
    #[inline(never)]
    fn text_field(&mut self, def: Def, at: &[u8], len: usize, text: &str) {
        let Some(place) = self.at_hand(at).or_else(|| self.elsewhere(def, at)) else { return };
        let (start, n) = self.keep(|kept| kept.extend_from_slice(text.as_bytes()));
        self.push(def, place, len, NodeValue::Text(start, n));
    }

    /// A field with any value.
    #[inline(never)]
    fn any_field(&mut self, def: Def, at: &[u8], len: usize, value: Value<'_>) {
        let Some(place) = self.at_hand(at).or_else(|| self.elsewhere(def, at)) else { return };
        let kept = match value {
            Value::None => NodeValue::None,
            Value::U(v) => NodeValue::U(v),
            Value::I(v) => NodeValue::I(v),
            Value::Time { seconds, nanos } => NodeValue::Time(seconds, nanos),
            Value::Bytes(b) if b.as_ptr() == at.as_ptr() && b.len() == len => NodeValue::Bytes,
            Value::Bytes(b) => {
                let (start, n) = self.keep(|text| text.extend_from_slice(b));
                NodeValue::Apart(start, n)
            }
            Value::Text(args) => {
                let (start, n) = self.keep(|text| {
                    let _ = Utf8Writer(text).write_fmt(args);
                });
                NodeValue::Text(start, n)
            }
            Value::Str(text) => return self.text_field(def, at, len, text),
        };
        self.push(def, place, len, kept);
        if matches!(kept, NodeValue::Bytes) && len == 0 && matches!(def.kind, Kind::Bytes | Kind::Str | Kind::Utf16) {
            // an empty run of bytes was read, not computed
            if let Some(n) = self.nodes.last_mut() {
                n.generated = false;
            }
        }
    }

    /// Adds to the label of the innermost open subtree.
    #[inline(always)]
    fn add_to_label(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let Some(at) = self.open.last().map(|n| *n as usize).filter(|n| *n < self.nodes.len()) else { return };
        // subtrees unknown to Wireshark are keyed by their label in JSON
        if self.detail == Detail::Fields
            && !(self.nodes[at].def.kind == Kind::None && self.nodes[at].def.name.starts_with(crate::field::OURS))
        {
            return;
        }
        let before = self.nodes[at].note;
        let (start, len) = self.keep(|kept| {
            kept.extend_from_within(before.0 as usize..(before.0 + before.1) as usize);
            write(kept);
        });
        self.nodes[at].note = (start, len);
    }

    fn end_of(&self, from: usize) -> u32 {
        let source = self.nodes[from].source;
        self.nodes[from..]
            .iter()
            .filter(|n| n.source == source)
            .map(|n| n.offset.saturating_add(n.len))
            .max()
            .unwrap_or(0)
    }
}

/// Protocols of one frame that `frame.protocols` names at most.
pub(crate) const LAYERS_MAX: usize = 64;

/// The name under which the analysis shows what it knows of a frame: no protocol that is in it.
const GENERATED: &str = "rdmascope";

/// The names of protocols with colons between them, as in `eth:ip:udp`; the frame itself is not among them.
pub(crate) fn write_layers(layers: &[Def], text: &mut Vec<u8>) {
    let mut before = frame_fields::f::PROTOCOL;
    for def in layers.iter().filter(|d| d.id != frame_fields::f::PROTOCOL.id && d.name != GENERATED) {
        if def.id == before.id {
            continue;
        }
        if before.id != frame_fields::f::PROTOCOL.id {
            text.push(b':');
        }
        text.extend_from_slice(def.name.as_bytes());
        before = def;
    }
}

/// Text is written to bytes.
pub(crate) struct Utf8Writer<'v>(pub(crate) &'v mut Vec<u8>);
impl Write for Utf8Writer<'_> {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        self.0.extend_from_slice(s.as_bytes());
        Ok(())
    }
}

impl Trace for Tree {
    const ON: bool = true;

    // a value that is known at compile time need not be passed in memory
    #[inline(always)]
    fn field(&mut self, def: Def, at: &[u8], len: usize, value: Value<'_>) {
        match value {
            Value::U(number) => self.number_field(def, at, len, number),
            Value::Str(text) => self.text_field(def, at, len, text),
            other => self.any_field(def, at, len, other),
        }
    }

    fn open(&mut self, def: Def, at: &[u8]) {
        if def.kind == Kind::Protocol && self.layers.len() < LAYERS_MAX {
            self.layers.push(def);
        }
        self.open.push(self.nodes.len() as u32);
        if let Some(place) = self.at_hand(at).or_else(|| self.elsewhere(def, at)) {
            self.push(def, place, 0, NodeValue::None);
        }
        self.depth = self.depth.saturating_add(1);
    }

    fn close(&mut self, rest: &[u8]) {
        self.depth = self.depth.saturating_sub(1);
        let Some(at) = self.open.pop().map(|n| n as usize).filter(|n| *n < self.nodes.len()) else { return };
        let (source, end) = self.locate(rest);
        let end = if source == self.nodes[at].source { end.max(self.nodes[at].offset) } else { self.end_of(at) };
        let node = &mut self.nodes[at];
        node.len = end - node.offset;
        node.generated = false;
    }

    fn abort(&mut self) {
        self.depth = self.depth.saturating_sub(1);
        let Some(at) = self.open.pop().map(|n| n as usize).filter(|n| *n < self.nodes.len()) else { return };
        let end = self.end_of(at);
        let fault = self.faults.len().min(usize::from(u16::MAX)) as u16;
        let node = &mut self.nodes[at];
        node.len = end - node.offset;
        node.generated = false;
        node.fault = fault;
    }

    fn down(&mut self) {
        self.depth = self.depth.saturating_add(1);
    }

    fn up(&mut self) {
        self.depth = self.depth.saturating_sub(1);
    }

    fn label(&mut self, text: fmt::Arguments<'_>) {
        self.add_to_label(|kept| _ = Utf8Writer(kept).write_fmt(text));
    }

    fn label_parts(&mut self, parts: &[LabelPart<'_>]) {
        self.add_to_label(|kept| parts.iter().for_each(|part| part.write(kept)));
    }

    fn protocol(&mut self, name: &'static str) {
        if self.detail == Detail::Line {
            note_protocol(&mut self.protocol, &mut self.info, name);
        }
    }

    fn info(&mut self, text: fmt::Arguments<'_>) {
        if self.detail == Detail::Line {
            note_info(&mut self.info, text);
        }
    }

    fn fault(&mut self, fault: &Fault) {
        let source = self.stack.last().copied().unwrap_or(0);
        let offset = self.sources.get(usize::from(source)).and_then(|s| fault_offset(fault, s)).unwrap_or(0);
        self.faults.push((*fault, source, offset));
    }

    fn source(&mut self, name: &'static str, bytes: &[u8]) {
        self.push_source(name, bytes);
    }

    fn end_source(&mut self) {
        if self.stack.len() > 1 {
            self.stack.pop();
            if let Some(index) = self.stack.last().copied() {
                self.enters(index);
            }
        }
    }

    fn end(&mut self) {
        // the field is among the first of the frame's own, or it was not reported at all
        let Some(at) = self.nodes.iter().take(24).position(|n| n.def.id == frame_fields::f::PROTOCOLS.id) else {
            return;
        };
        let layers = core::mem::take(&mut self.layers);
        let (start, len) = self.keep(|text| write_layers(&layers, text));
        self.layers = layers;
        self.nodes[at].value = NodeValue::Text(start, len);
    }
}

fn fault_offset(fault: &Fault, source: &Source) -> Option<u32> {
    fault.offset_from(source.base, source.bytes.len()).and_then(|o| u32::try_from(o).ok())
}
