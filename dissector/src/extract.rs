//! An observer that keeps only requested values: for the display filter, the columns and `-T fields -e`.
//!
//! Ask with [`Extractor::want`] before the first frame and get a [`Slot`]. Then, frame by frame: [`Extractor::begin`],
//! decode, [`Trace::end`], and read [`Extractor::values`]. A field nobody wants costs one look at a bit; once the buffers
//! have grown to the largest frame, nothing is allocated.

use crate::fault::{Fault, FaultKind};
use crate::field::{Def, FieldSet, Kind};
use crate::frame_fields;
use crate::render::{Piece, Stored, pieces};
use crate::trace::{LAYERS_MAX, LayerText, Line, NodeValue, Trace, Tree, Value, write_layers};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicUsize, Ordering};

/// Handle of a requested field, for reading its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slot(u16);

/// Extent to which a field is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// Its presence alone.
    Presence,
    /// The value of the field.
    Value,
    /// Its value and, of a protocol or subtree, the bytes that it covers.
    Bytes,
}

const NONE: u32 = u32::MAX;

/// Fields that say that decoding stopped.
const FAULT_FIELDS: [Def; 5] = {
    use frame_fields::f;
    [f::MALFORMED, f::SHORT, f::EXPERT, f::EXPERT_MESSAGE, f::EXPERT_SEVERITY]
};

/// Fields of the frame's line, in the order of [`Line`]'s.
const LINE_FIELDS: [Def; 2] = [frame_fields::f::COL_PROTOCOL, frame_fields::f::COL_INFO];

/// Values of one frame that are kept at most.
const HITS_MAX: usize = 1 << 20;

#[derive(Clone, Copy, Debug)]
struct Entry {
    id: u32,
    slot: u16,
}

impl Entry {
    const EMPTY: Self = Self { id: 0, slot: u16::MAX };
}

#[derive(Clone, Copy, Debug)]
struct Wanted {
    def: Def,
    need: Need,
    first: u32,
    last: u32,
    count: u32,
    /// The entry that keeps the bytes of this one's field as they lie in the frame; [`NO_SLOT`] for none.
    raw: u16,
    /// True if this is such an entry. It is never found by the field's number.
    is_raw: bool,
}

const NO_SLOT: u16 = u16::MAX;

#[derive(Clone, Copy, Debug)]
struct Hit {
    def: Def,
    next: u32,
    /// See [`Extractor::want_layers`].
    layer: u16,
    value: Found,
}

/// As [`NodeValue`], with all runs of bytes in [`Extractor::data`].
#[derive(Clone, Copy, Debug)]
enum Found {
    None,
    U(u64),
    I(i64),
    Time(i64, u32),
    /// As many bytes as the number says: an address.
    Few([u8; FEW], u8),
    Bytes(u32, u32),
    Text(u32, u32),
}

/// See [`Found::Few`].
const FEW: usize = 8;

/// What was found of declared sets, by their addresses: those are constants, which do not move. The lowest bit is the
/// answer.
#[derive(Debug)]
struct Sets(Box<[AtomicUsize; Self::LEN]>);

impl Sets {
    const LEN: usize = 512;

    fn place(&self, fields: &'static FieldSet) -> (&AtomicUsize, usize) {
        let address = core::ptr::from_ref(fields).addr();
        (&self.0[address / size_of::<FieldSet>() % Self::LEN], address)
    }

    #[inline]
    fn find(&self, fields: &'static FieldSet) -> Option<bool> {
        let (place, address) = self.place(fields);
        let known = place.load(Ordering::Relaxed);
        (known & !1 == address).then_some(known & 1 == 1)
    }

    fn keep(&self, fields: &'static FieldSet, wants: bool) {
        let (place, address) = self.place(fields);
        place.store(address | usize::from(wants), Ordering::Relaxed);
    }
}

impl Default for Sets {
    fn default() -> Self {
        Self(Box::new(core::array::from_fn(|_| AtomicUsize::new(0))))
    }
}

impl Clone for Sets {
    fn clone(&self) -> Self {
        Self(Box::new(core::array::from_fn(|n| AtomicUsize::new(self.0[n].load(Ordering::Relaxed)))))
    }
}

/// Keeps the values of wanted fields. See the [module](self).
#[derive(Clone, Debug)]
pub struct Extractor {
    /// Open-addressed, a power of two long, at most a quarter full.
    table: Vec<Entry>,
    mask: u32,
    wanted: Vec<Wanted>,
    set: FieldSet,
    /// Which of the sets that may meet it do.
    sets: Sets,
    hits: Vec<Hit>,
    data: Vec<u8>,
    /// True if only values are wanted: nothing depends on subtrees, and no bytes of their own are kept of a field.
    is_flat: bool,
    depth: u32,
    /// Open subtrees whose bytes are wanted: depth, hit, address where they begin.
    open: Vec<(u32, u32, usize)>,
    layers: Vec<Def>,
    wants_layers: Option<Slot>,
    wants_faults: bool,
    last_fault: Option<Fault>,
    /// Protocols that are open, where layers are counted: depth, and the how-manieth of its name it is.
    layer_stack: Option<Vec<(u32, u16)>>,
    layer_counts: Vec<(u32, u16)>,
    /// Protocol and text of the frame's line; `None` unless a field needs them.
    line: Option<Line>,
}

impl Default for Extractor {
    fn default() -> Self {
        Self::new()
    }
}

impl Extractor {
    /// Wants nothing yet.
    pub fn new() -> Self {
        Self {
            table: alloc::vec![Entry::EMPTY; 1],
            mask: 0,
            wanted: Vec::new(),
            set: FieldSet::default(),
            sets: Sets::default(),
            hits: Vec::new(),
            data: Vec::new(),
            is_flat: true,
            depth: 0,
            open: Vec::new(),
            layers: Vec::new(),
            wants_layers: None,
            wants_faults: false,
            last_fault: None,
            layer_stack: None,
            layer_counts: Vec::new(),
            line: None,
        }
    }

    /// Asks for a field from now on. Asking twice gives the same slot.
    pub fn want(&mut self, def: Def, need: Need) -> Slot {
        if let Some(i) = self.wanted.iter().position(|w| w.def == def && !w.is_raw) {
            self.wanted[i].need = self.wanted[i].need.max(need);
            self.rebuild();
            return Slot(i as u16);
        }
        assert!(self.wanted.len() < usize::from(u16::MAX), "a filter is too short to name so many fields");
        let slot = Slot(self.wanted.len() as u16);
        self.wanted.push(Wanted { def, need, first: NONE, last: NONE, count: 0, raw: NO_SLOT, is_raw: false });
        if def.id == frame_fields::f::PROTOCOLS.id {
            self.wants_layers = Some(slot);
        }
        self.wants_faults |= FAULT_FIELDS.iter().any(|d| d.id == def.id);
        if LINE_FIELDS.iter().any(|d| d.id == def.id) {
            self.line.get_or_insert_default();
        }
        self.set = self.set.with(def.id);
        self.sets = Sets::default();
        self.rebuild();
        slot
    }

    /// Asks for the bytes that a field covers in its frame, whatever its value is: what `@` means in a filter.
    pub fn want_raw(&mut self, def: Def) -> Slot {
        let Slot(of) = self.want(def, Need::Presence);
        if self.wanted[usize::from(of)].raw != NO_SLOT {
            return Slot(self.wanted[usize::from(of)].raw);
        }
        assert!(self.wanted.len() < usize::from(u16::MAX), "a filter is too short to name so many fields");
        let slot = self.wanted.len() as u16;
        self.wanted[usize::from(of)].raw = slot;
        self.wanted.push(Wanted {
            def,
            need: Need::Bytes,
            first: NONE,
            last: NONE,
            count: 0,
            raw: NO_SLOT,
            is_raw: true,
        });
        self.rebuild();
        Slot(slot)
    }

    /// Asks for the layer of each value: the how-manieth of the frame's layers of its protocol it lies in, from 1. With
    /// a tunnel a frame has two layers of IP.
    pub fn want_layers(&mut self) {
        self.layer_stack.get_or_insert_default();
        self.is_flat = false;
    }

    /// The fields that are wanted.
    pub fn wanted(&self) -> impl Iterator<Item = Def> + '_ {
        self.wanted.iter().map(|wanted| wanted.def)
    }

    /// True if protocol and text of the frame's line are wanted.
    pub fn wants_line(&self) -> bool {
        self.line.is_some()
    }

    /// True if one of the fields of a declared set is wanted.
    #[inline]
    fn surely_wants(&self, fields: &'static FieldSet) -> bool {
        self.sets.find(fields).unwrap_or_else(|| self.look_for(fields))
    }

    #[cold]
    fn look_for(&self, fields: &'static FieldSet) -> bool {
        let wants = fields.fields().any(|def| self.lookup(def.id).is_some());
        self.sets.keep(fields, wants);
        wants
    }

    fn rebuild(&mut self) {
        let size = (self.wanted.len() * 4).next_power_of_two();
        self.table.clear();
        self.table.resize(size, Entry::EMPTY);
        self.mask = size as u32 - 1;
        for (slot, wanted) in self.wanted.iter().enumerate().filter(|(_, w)| !w.is_raw) {
            let mut at = wanted.def.id & self.mask;
            while self.table[at as usize].slot != u16::MAX {
                at = (at + 1) & self.mask;
            }
            self.table[at as usize] = Entry { id: wanted.def.id, slot: slot as u16 };
        }
        let has_layers = self.wants_layers.is_some() || self.layer_stack.is_some();
        let has_bytes = |w: &Wanted| w.is_raw || w.need >= Need::Bytes || w.def.kind == Kind::Bytes;
        self.is_flat = !has_layers && !self.wanted.iter().any(has_bytes);
    }

    /// The field of a slot.
    pub fn def(&self, slot: Slot) -> Def {
        self.wanted[usize::from(slot.0)].def
    }

    /// Forgets the frame before.
    pub fn begin(&mut self) {
        if !self.hits.is_empty() {
            for w in &mut self.wanted {
                (w.first, w.last, w.count) = (NONE, NONE, 0);
            }
        }
        self.hits.clear();
        self.data.clear();
        self.open.clear();
        self.layers.clear();
        self.depth = 0;
        if let Some(stack) = &mut self.layer_stack {
            stack.clear();
            self.layer_counts.clear();
        }
        if let Some(line) = &mut self.line {
            line.begin();
        }
    }

    /// True if the field of a slot was there.
    #[inline]
    pub fn has(&self, slot: Slot) -> bool {
        self.wanted[usize::from(slot.0)].first != NONE
    }

    /// Number of occurrences of the field.
    #[inline]
    pub fn count(&self, slot: Slot) -> usize {
        self.wanted[usize::from(slot.0)].count as usize
    }

    /// Its first value, with the declaration it came from.
    #[inline]
    pub fn first(&self, slot: Slot) -> Option<(Def, Stored<'_>)> {
        self.hits.get(self.wanted[usize::from(slot.0)].first as usize).map(|hit| self.stored(hit))
    }

    /// Whether it occurs, with its first value and the declaration that came from.
    #[inline(always)]
    pub fn occurrence(&self, slot: Slot) -> Occurs<'_> {
        let wanted = &self.wanted[usize::from(slot.0)];
        let Some(hit) = self.hits.get(wanted.first as usize) else { return Occurs::Never };
        let (def, value) = self.stored(hit);
        if wanted.count == 1 { Occurs::Once(def, value) } else { Occurs::More(def, value) }
    }

    /// Its values in order of appearance, each with the declaration it came from (a name may be declared in several
    /// messages).
    pub fn values(&self, slot: Slot) -> Values<'_> {
        Values { extractor: self, next: self.wanted[usize::from(slot.0)].first }
    }

    /// The same, each with the number of its layer (0 outside of all protocols), where [`Extractor::want_layers`] asked
    /// for it.
    pub fn values_with_layers(&self, slot: Slot) -> impl Iterator<Item = (u16, Def, Stored<'_>)> {
        let mut values = self.values(slot);
        core::iter::from_fn(move || {
            let layer = self.hits.get(values.next as usize)?.layer;
            values.next().map(|(def, value)| (layer, def, value))
        })
    }

    /// Hands out every number that is kept, to be changed.
    pub fn change(&mut self, mut change: impl FnMut(Def, &mut u64)) {
        for hit in &mut self.hits {
            if let Found::U(number) = &mut hit.value {
                change(hit.def, number);
            }
        }
    }

    /// Bytes that are kept of the frame.
    pub fn bytes(&self) -> usize {
        size_of_val(self.hits.as_slice()) + self.data.len()
    }

    /// Begins a frame and takes the values from a tree instead of from decoding.
    pub fn load(&mut self, tree: &Tree) {
        self.begin();
        for node in &tree.nodes {
            if self.layer_stack.is_some() {
                self.leaves_layers(u32::from(node.depth));
                if node.def.kind == Kind::Protocol {
                    self.depth = u32::from(node.depth);
                    self.enters_layer(node.def);
                }
            }
            let Some(slot) = self.lookup(node.def.id) else { continue };
            if self.wanted[usize::from(slot)].raw != NO_SLOT {
                self.keep_raw(slot, node.def, tree.covered(node));
            }
            match tree.stored(node) {
                Stored::U(v) => self.keep(slot, node.def, Value::U(v)),
                Stored::I(v) => self.keep(slot, node.def, Value::I(v)),
                Stored::Time(seconds, nanos) => self.keep(slot, node.def, Value::Time { seconds, nanos }),
                Stored::Bytes(b) if node.value != NodeValue::None => self.keep(slot, node.def, Value::Bytes(b)),
                Stored::Text(text) => self.keep(slot, node.def, Value::Str(text)),
                Stored::None | Stored::Bytes(_) => {
                    self.subtree(slot, node.def, tree.covered(node));
                }
            }
        }
        if self.wants_faults {
            for (fault, ..) in &tree.faults {
                self.keep_fault(fault);
            }
        }
        if let Some(line) = &mut self.line {
            line.protocol = tree.protocol;
            line.info.push_str(&tree.info);
            self.keep_line();
        }
    }

    fn enters_layer(&mut self, def: Def) {
        let Some(stack) = &mut self.layer_stack else { return };
        let count = match self.layer_counts.iter_mut().find(|(id, _)| *id == def.id) {
            Some((_, count)) => {
                *count = count.saturating_add(1);
                *count
            }
            None => {
                self.layer_counts.push((def.id, 1));
                1
            }
        };
        stack.push((self.depth, count));
    }

    /// Forgets the protocols that are not above `depth`.
    fn leaves_layers(&mut self, depth: u32) {
        if let Some(stack) = &mut self.layer_stack {
            while stack.pop_if(|(at, _)| *at >= depth).is_some() {}
        }
    }

    fn keep_raw(&mut self, of: u16, def: Def, bytes: &[u8]) {
        let start = self.data.len() as u32;
        self.data.extend_from_slice(bytes);
        self.push(self.wanted[usize::from(of)].raw, def, Found::Bytes(start, bytes.len() as u32));
    }

    fn keep_line(&mut self) {
        let Some(line) = self.line.take() else { return };
        for (def, text) in LINE_FIELDS.into_iter().zip([line.protocol, &line.info]) {
            if let Some(slot) = self.lookup(def.id)
                && !text.is_empty()
            {
                self.keep(slot, def, Value::Str(text));
            }
        }
        self.line = Some(line);
    }

    /// The wanted slot of a field.
    #[inline(always)]
    fn lookup(&self, id: u32) -> Option<u16> {
        let mut at = id & self.mask;
        loop {
            let entry = self.table[at as usize];
            if entry.slot == u16::MAX {
                return None;
            }
            if entry.id == id {
                return Some(entry.slot);
            }
            at = (at + 1) & self.mask;
        }
    }

    #[inline]
    fn push(&mut self, slot: u16, def: Def, value: Found) {
        if self.hits.len() >= HITS_MAX {
            return;
        }
        let hit = self.hits.len() as u32;
        let wanted = &mut self.wanted[usize::from(slot)];
        if wanted.first == NONE {
            wanted.first = hit;
        } else {
            self.hits[wanted.last as usize].next = hit;
        }
        wanted.last = hit;
        wanted.count += 1;
        let layer = self.layer_stack.as_ref().and_then(|s| s.last()).map_or(0, |(_, layer)| *layer);
        self.hits.push(Hit { def, next: NONE, layer, value });
    }

    fn need(&self, slot: u16) -> Need {
        self.wanted[usize::from(slot)].need
    }

    /// A field that may be wanted.
    #[inline(never)]
    fn found(&mut self, def: Def, at: &[u8], len: usize, value: Value<'_>) {
        let Some(slot) = self.lookup(def.id) else { return };
        let Wanted { need, raw, .. } = self.wanted[usize::from(slot)];
        if let (Value::U(number), true, NO_SLOT) = (value, need > Need::Presence, raw) {
            return self.push(slot, def, Found::U(number));
        }
        if raw != NO_SLOT {
            self.keep_raw(slot, def, at.get(..len).unwrap_or(at));
        }
        self.keep(slot, def, value);
    }

    /// The same of a number, where nothing else is kept of a field.
    #[inline(never)]
    fn found_number(&mut self, def: Def, number: u64) {
        let Some(slot) = self.lookup(def.id) else { return };
        let is_kept = self.need(slot) > Need::Presence;
        self.push(slot, def, if is_kept { Found::U(number) } else { Found::None });
    }

    /// The same of an address of `N` bytes.
    #[inline(never)]
    fn found_few(&mut self, def: Def, few: [u8; FEW], len: u8) {
        let Some(slot) = self.lookup(def.id) else { return };
        let is_kept = self.need(slot) > Need::Presence;
        self.push(slot, def, if is_kept { Found::Few(few, len) } else { Found::None });
    }

    /// A protocol that is noted, or a subtree that may be wanted.
    #[inline(never)]
    fn opened(&mut self, def: Def, at: &[u8]) {
        if self.wants_layers.is_some() && def.kind == Kind::Protocol && self.layers.len() < LAYERS_MAX {
            self.layers.push(def);
        }
        if self.layer_stack.is_some() && def.kind == Kind::Protocol {
            self.enters_layer(def);
        }
        if let Some(slot) = self.lookup(def.id) {
            if self.wanted[usize::from(slot)].raw != NO_SLOT {
                let hit = self.hits.len() as u32;
                self.keep_raw(slot, def, at);
                self.open.push((self.depth, hit, at.as_ptr().addr()));
            }
            if let Some(hit) = self.subtree(slot, def, at) {
                self.open.push((self.depth, hit, at.as_ptr().addr()));
            }
        }
    }

    fn keep(&mut self, slot: u16, def: Def, value: Value<'_>) {
        if self.need(slot) == Need::Presence {
            return self.push(slot, def, Found::None);
        }
        let start = self.data.len() as u32;
        let value = match value {
            Value::None => Found::None,
            Value::U(v) => Found::U(v),
            Value::I(v) => Found::I(v),
            Value::Time { seconds, nanos } => Found::Time(seconds, nanos),
            Value::Text(args) => {
                let _ = Utf8Writer(&mut self.data).write_fmt(args);
                Found::Text(start, self.data.len() as u32 - start)
            }
            Value::Str(text) => {
                self.data.extend_from_slice(text.as_bytes());
                Found::Text(start, text.len() as u32)
            }
            Value::Bytes(bytes) if matches!(def.kind, Kind::Str | Kind::Utf16) => {
                let data = &mut self.data;
                pieces(def.kind, bytes, &mut |piece| {
                    let c = match piece {
                        Piece::Char(c) => c,
                        Piece::Byte(_) | Piece::Surrogate(_) => char::REPLACEMENT_CHARACTER,
                    };
                    data.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                });
                Found::Text(start, self.data.len() as u32 - start)
            }
            Value::Bytes(bytes) => {
                self.data.extend_from_slice(bytes);
                Found::Bytes(start, bytes.len() as u32)
            }
        };
        self.push(slot, def, value);
    }

    /// Keeps a subtree; gives the hit whose length is to be set when it closes.
    fn subtree(&mut self, slot: u16, def: Def, at: &[u8]) -> Option<u32> {
        let need = self.need(slot);
        if need < Need::Bytes && !(need == Need::Value && def.kind == Kind::Bytes) {
            self.push(slot, def, Found::None);
            return None;
        }
        let start = self.data.len() as u32;
        self.data.extend_from_slice(at);
        self.push(slot, def, Found::Bytes(start, at.len() as u32));
        Some(self.hits.len() as u32 - 1)
    }

    #[inline(always)]
    fn stored<'s>(&'s self, hit: &'s Hit) -> (Def, Stored<'s>) {
        let range = |start: u32, len: u32| &self.data[start as usize..(start + len) as usize];
        let value = match &hit.value {
            Found::None => Stored::None,
            Found::U(v) => Stored::U(*v),
            Found::I(v) => Stored::I(*v),
            Found::Time(s, n) => Stored::Time(*s, *n),
            Found::Few(bytes, len) => Stored::Bytes(&bytes[..usize::from(*len)]),
            Found::Bytes(start, len) => Stored::Bytes(range(*start, *len)),
            Found::Text(start, len) => Stored::Text(core::str::from_utf8(range(*start, *len)).unwrap_or("")),
        };
        (hit.def, value)
    }

    fn set_len(&mut self, hit: u32, len: usize) {
        if let Some(Hit { value: Found::Bytes(_, n), .. }) = self.hits.get_mut(hit as usize) {
            *n = (*n).min(len as u32);
        }
    }

    fn keep_fault(&mut self, fault: &Fault) {
        let def = if fault.kind == FaultKind::Short { frame_fields::f::SHORT } else { frame_fields::f::MALFORMED };
        for def in [def, frame_fields::f::MALFORMED] {
            if let Some(slot) = self.lookup(def.id) {
                self.keep(slot, def, Value::Text(format_args!("{fault}")));
            }
            if def == frame_fields::f::MALFORMED {
                break;
            }
        }
        let expert = frame_fields::f::EXPERT;
        if let Some(slot) = self.lookup(expert.id) {
            self.keep(slot, expert, Value::None);
        }
        if let Some(slot) = self.lookup(frame_fields::f::EXPERT_MESSAGE.id) {
            self.keep(slot, frame_fields::f::EXPERT_MESSAGE, Value::Text(format_args!("{fault}")));
        }
        if let Some(slot) = self.lookup(frame_fields::f::EXPERT_SEVERITY.id) {
            self.keep(slot, frame_fields::f::EXPERT_SEVERITY, Value::U(crate::frame_fields::ERROR));
        }
    }

    fn closes(&mut self, len_from: impl Fn(usize) -> Option<usize>) {
        self.depth = self.depth.saturating_sub(1);
        self.leaves_layers(self.depth);
        while let Some((depth, hit, start)) = self.open.last().copied().filter(|(depth, ..)| *depth >= self.depth) {
            self.open.pop();
            if depth == self.depth
                && let Some(len) = len_from(start)
            {
                self.set_len(hit, len);
            }
        }
    }
}

/// How often a field occurs in a frame, and its first value with the declaration that this came from.
#[derive(Clone, Copy, Debug)]
pub enum Occurs<'p> {
    /// Not at all.
    Never,
    /// Once.
    Once(Def, Stored<'p>),
    /// More than once.
    More(Def, Stored<'p>),
}

/// The values of one slot in one frame.
#[derive(Clone, Debug)]
pub struct Values<'p> {
    extractor: &'p Extractor,
    next: u32,
}

impl<'p> Iterator for Values<'p> {
    type Item = (Def, Stored<'p>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let hit = self.extractor.hits.get(self.next as usize)?;
        self.next = hit.next;
        Some(self.extractor.stored(hit))
    }
}

struct Utf8Writer<'v>(&'v mut Vec<u8>);
impl Write for Utf8Writer<'_> {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        self.0.extend_from_slice(s.as_bytes());
        Ok(())
    }
}

impl Trace for Extractor {
    const ON: bool = true;

    #[inline(always)]
    fn wants(&self, fields: &'static FieldSet) -> bool {
        self.set.meets(fields) && self.surely_wants(fields)
    }

    #[inline(always)]
    fn keeps(&self, def: Def) -> bool {
        self.set.may_have(def.id) && self.lookup(def.id).is_some()
    }

    #[inline(always)]
    fn field(&mut self, def: Def, at: &[u8], len: usize, value: Value<'_>) {
        if self.set.may_have(def.id) {
            match value {
                Value::U(number) if self.is_flat => self.found_number(def, number),
                Value::Bytes(&[a, b, c, d]) if self.is_flat && def.kind == Kind::Ipv4 => {
                    self.found_few(def, [a, b, c, d, 0, 0, 0, 0], 4);
                }
                _ => self.found(def, at, len, value),
            }
        }
    }

    #[inline(always)]
    fn open(&mut self, def: Def, at: &[u8]) {
        if self.is_flat {
            if self.set.may_have(def.id) {
                self.opened(def, at);
            }
            return;
        }
        // protocols are noted where layers are asked for, whether they are wanted themselves or not
        let is_noted = def.kind == Kind::Protocol && (self.wants_layers.is_some() || self.layer_stack.is_some());
        if is_noted || self.set.may_have(def.id) {
            self.opened(def, at);
        }
        self.depth += 1;
    }

    #[inline(always)]
    fn close(&mut self, rest: &[u8]) {
        if self.is_flat {
            return;
        }
        if self.open.is_empty() && self.layer_stack.is_none() {
            self.depth = self.depth.saturating_sub(1);
        } else {
            let end = rest.as_ptr().addr();
            self.closes(|start| end.checked_sub(start));
        }
    }

    fn abort(&mut self) {
        // the field that is missing would have begun where the last one ended
        let fault = self.last_fault;
        self.closes(|start| fault.and_then(|f| f.offset_from(start, u32::MAX as usize)));
    }

    fn fault(&mut self, fault: &Fault) {
        self.last_fault = Some(*fault);
        if self.wants_faults {
            self.keep_fault(fault);
        }
    }

    #[inline]
    fn protocol(&mut self, name: &'static str) {
        if let Some(line) = &mut self.line {
            line.protocol(name);
        }
    }

    #[inline]
    fn info(&mut self, text: fmt::Arguments<'_>) {
        if let Some(line) = &mut self.line {
            line.info(text);
        }
    }

    #[inline]
    fn layer_info(&mut self, text: LayerText) {
        if let Some(line) = &mut self.line {
            line.layer_info(text);
        }
    }

    fn end(&mut self) {
        if let Some(line) = &mut self.line {
            line.end();
            self.keep_line();
        }
        let Some(slot) = self.wants_layers else { return };
        let first = self.wanted[usize::from(slot.0)].first;
        let Some(hit) = self.hits.get_mut(first as usize) else { return };
        let start = self.data.len();
        write_layers(&self.layers, &mut self.data);
        hit.value = Found::Text(start as u32, (self.data.len() - start) as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;
    use crate::render::{Style, show};
    use crate::wire::smbd;
    use std::string::String;

    // [MS-SMBD] 4.1
    const REQUEST: [u8; 20] = [0, 1, 0, 1, 0, 0, 10, 0, 0, 4, 0, 0, 0, 4, 0, 0, 0, 0, 2, 0];

    fn shown(extractor: &Extractor, slot: Slot) -> Vec<String> {
        extractor.values(slot).map(|(def, v)| show(def, v, Style::Fields)).collect()
    }

    #[test]
    fn keeps_what_is_wanted_and_nothing_else() {
        let mut extractor = Extractor::new();
        let max = extractor.want(smbd::NegotiateRequest::max_receive_size, Need::Value);
        let presence = extractor.want(smbd::f::PROTOCOL, Need::Presence);
        let bytes = extractor.want(smbd::NegotiateRequest::NODE, Need::Bytes);
        let missing = extractor.want(smbd::f::DATA, Need::Value);
        for _ in 0..3 {
            extractor.begin();
            smbd::parse_negotiate_request(&REQUEST, &mut extractor).unwrap();
            assert_eq!(shown(&extractor, max), ["1024"]);
            assert!(extractor.has(presence) && !extractor.has(missing));
            assert_eq!(extractor.values(bytes).map(|(_, v)| v).collect::<Vec<_>>(), [Stored::Bytes(&REQUEST)]);
            assert_eq!(extractor.hits.len(), 3);
        }
    }

    #[test]
    fn a_set_is_wanted_if_it_has_a_wanted_field_and_not_if_it_only_seems_to() {
        static SETS: [FieldSet; 3] = [
            crate::wire::tcp::f::SET,
            crate::wire::iwarp::mpa::f::SET,
            smbd::DataTransfer::SET.and(smbd::NegotiateRequest::SET).and(smbd::f::SET),
        ];
        let mut seemed = 0;
        for def in Registry::new().all().iter().copied() {
            let mut extractor = Extractor::new();
            extractor.want(smbd::NegotiateResponse::NODE, Need::Presence);
            assert!(SETS.iter().all(|set| !extractor.wants(set)));
            extractor.want(def, Need::Presence);
            for set in &SETS {
                let has = set.fields().any(|of| of.id == def.id);
                // the second time it is known
                assert_eq!([extractor.wants(set), extractor.wants(set), extractor.clone().wants(set)], [has; 3]);
                seemed += usize::from(extractor.set.meets(set) && !has);
            }
        }
        assert!(seemed > 100, "{seemed}");
    }

    // Ethernet, IPv4, TCP without data
    static FRAME: [u8; 54] = [
        2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 2, 0, 40, 0, 7, 0x40, 0, 64, 6, 0, 0, 192, 0, 2, 1, 192, 0, 2,
        2, 0xc0, 0, 20, 69, 0, 0, 0, 9, 0, 0, 0, 8, 0x50, 0x18, 1, 0, 0, 0, 0, 0,
    ];

    /// The frame, and an FPDU with an RDMAP Send.
    fn decode_some<T: Trace>(t: &mut T) {
        const FPDU: [u8; 26] =
            [0, 20, 0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0xaa, 0xbb, 1, 2, 3, 4];
        crate::frame::decode(crate::frame::LinkType::ETHERNET, &FRAME, 54, &crate::frame::Options::default(), t);
        t.source("FPDU", &FPDU);
        let (_, fpdu) = crate::wire::iwarp::mpa::parse_fpdu(&FPDU, crate::wire::iwarp::mpa::Crc::Unused, t).unwrap();
        crate::wire::iwarp::rdmap::parse(fpdu.ulpdu, t).unwrap();
        t.end_source();
    }

    #[test]
    fn headers_that_nobody_wants_are_passed_over_and_no_others() {
        let mut tree = Tree::new();
        tree.begin(&FRAME);
        decode_some(&mut tree);
        assert!(tree.nodes.len() > 60, "{}", tree.nodes.len());
        for node in &tree.nodes {
            let mut extractors = [Extractor::new(), Extractor::new()];
            let slots = extractors.each_mut().map(|extractor| extractor.want(node.def, Need::Value));
            extractors[0].load(&tree);
            extractors[1].begin();
            decode_some(&mut extractors[1]);
            let [loaded, decoded] = [0, 1].map(|i| shown(&extractors[i], slots[i]));
            assert_eq!(loaded, decoded, "{}", node.def.name);
        }
    }

    /// The line is told by decoders that report no field, too.
    #[test]
    fn the_line_does_not_depend_on_the_fields_that_are_wanted() {
        use crate::frame::{LinkType, Options, decode};
        let with = |at: usize, bytes: &[u8]| {
            let mut frame = FRAME;
            frame[at..at + bytes.len()].copy_from_slice(bytes);
            frame
        };
        // as it is, an EtherType that nobody knows, IPv4 with an unknown protocol, a TCP header that is cut short
        let mut frames = Vec::from([FRAME.to_vec(), with(12, &[0x12, 0x34]).to_vec(), with(23, &[99]).to_vec()]);
        frames.push(FRAME[..40].to_vec());
        for frame in frames {
            let (mut tree, mut line, mut extractor) = (Tree::new(), Line::default(), Extractor::new());
            let slots = LINE_FIELDS.map(|def| extractor.want(def, Need::Value));
            tree.begin(&frame);
            extractor.begin();
            let (options, length) = (Options::default(), frame.len() as u32);
            decode(LinkType::ETHERNET, &frame, length, &options, &mut tree);
            decode(LinkType::ETHERNET, &frame, length, &options, &mut line);
            decode(LinkType::ETHERNET, &frame, length, &options, &mut extractor);
            extractor.end();
            line.end();
            assert_eq!(tree.info.is_empty(), frame.len() < FRAME.len());
            assert_eq!((line.protocol, &line.info), (tree.protocol, &tree.info));
            assert_eq!(line.faults as usize, tree.faults.len());
            assert_eq!(slots.map(|slot| shown(&extractor, slot).concat()), [tree.protocol, tree.info.as_str()]);
        }
    }

    #[test]
    fn what_is_wanted_may_be_kept() {
        let mut extractor = Extractor::new();
        let mut passed_over = 0;
        for def in Registry::new().all().iter().copied() {
            extractor.want(def, Need::Presence);
            assert!(extractor.keeps(def), "{}", def.name);
            let mut other = Extractor::new();
            other.want(def, Need::Presence);
            passed_over += usize::from(!other.keeps(smbd::f::DATA));
        }
        assert!(passed_over > 1000, "{passed_over}");
    }

    #[test]
    fn a_subtree_ends_where_it_closes() {
        let mut longer = REQUEST.to_vec();
        longer.extend_from_slice(&[9, 9]);
        let mut extractor = Extractor::new();
        let slot = extractor.want(smbd::NegotiateRequest::NODE, Need::Bytes);
        extractor.begin();
        smbd::parse_negotiate_request(&longer, &mut extractor).unwrap();
        assert_eq!(extractor.values(slot).next().unwrap().1, Stored::Bytes(&REQUEST));
    }

    #[test]
    fn faults_can_be_asked_for() {
        let mut extractor = Extractor::new();
        let slot = extractor.want(frame_fields::f::MALFORMED, Need::Value);
        extractor.begin();
        smbd::parse_negotiate_request(&REQUEST[..7], &mut extractor).unwrap_err();
        assert_eq!(shown(&extractor, slot), ["CreditsRequested: 2 bytes needed, 1 left"]);
    }
}
