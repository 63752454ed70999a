//! Layers that were written before. Of ten fields of a capture some seven (addresses, flags, lengths, what is reserved)
//! say what the same field said in an earlier frame between the same addresses. Where a layer has the fields of an
//! earlier one, the texts of those that say the same are copied, in as few pieces as possible; of the others, only the
//! value is written if the rest of the text does not depend on it. Comparing a field takes about a tenth of the
//! instructions of writing it.

use super::marks::{Marks, is_counted};
use rdmascope_dissector::field::Def;
use rdmascope_dissector::frame::Addr;
use rdmascope_dissector::trace::{Node, NodeValue, Tree};
use std::ops::Range;

/// The depths around a node, counted from its layer: one step down is always 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Levels {
    /// Of the node before; 0 for a layer's first.
    pub before: u8,
    /// Its own.
    pub own: u8,
    /// Of the next node; 0 for a layer's last.
    pub next: u8,
}

/// A form of output that writes nodes one after the other, so that the text of each depends on nothing but the node, its
/// [`Levels`], and the bytes that it covers.
pub(super) trait Pieces {
    /// True if the text says where in the frame a node lies.
    const PLACES: bool;

    /// Appends the text of a node. Returns where in `out` the value stands, as [`Pieces::value`] writes it, if there is
    /// one and the rest of the text does not depend on it.
    fn piece(
        &mut self,
        out: &mut Vec<u8>,
        tree: &Tree,
        index: usize,
        levels: Levels,
        marks: &mut Marks,
    ) -> Option<Range<usize>>;

    /// Appends the value of a node.
    fn value(&mut self, out: &mut Vec<u8>, tree: &Tree, node: &Node);

    /// What the text depends on.
    fn depends(&self, node: &Node) -> Depends;

    /// The bytes that the text shows of a node without a value. `parent`: other nodes follow below it.
    fn shown<'t>(&self, tree: &'t Tree, node: &Node, parent: bool) -> &'t [u8];
}

/// What the text of a node depends on, beside its definition and where it lies.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Depends {
    /// Nothing.
    Nothing,
    /// Its value, or the bytes that it covers.
    Value,
    /// Something else, too.
    More,
}

impl Levels {
    /// True if other nodes follow below this one.
    #[inline]
    pub(super) fn is_parent(self) -> bool {
        self.next > self.own
    }

    /// Those around the next node of a layer, which is `nodes`.
    #[inline]
    fn advance(&mut self, nodes: &[Node], index: usize) {
        (self.before, self.own) = (self.own, self.next);
        self.next = nodes.get(index + 1).map_or(0, |next| next.depth.min(self.own.saturating_add(1)));
    }
}

/// The layers that are kept.
#[derive(Clone, Default)]
pub(super) struct Kept {
    /// In sets, in which a layer may have any place. Empty until the first frame.
    layers: Vec<Layer>,
    /// The place in its set that the next new layer takes.
    next: usize,
}

/// The fields of a layer, and their text.
#[derive(Clone, Default)]
struct Layer {
    /// What it was found by: [`likeness`]. 0 before the first.
    likeness: u64,
    /// The names of the sources that fields may lie in.
    sources: Vec<&'static str>,
    fields: Vec<Field>,
    /// Bytes that [`Field::bytes`] counts in.
    bytes: Vec<u8>,
    text: Vec<u8>,
    /// How often it was copied, and how often it is copied at least before another frame's takes its place.
    copied: u32,
    patience: u32,
}

/// A node, as far as its text depends on it.
#[derive(Clone)]
struct Field {
    def: Def,
    value: u64,
    place: Place,
    /// Where its bytes begin: those of its value, then those of its note.
    bytes: u32,
    /// Where its text ends, and where the value stands in it: nowhere if that is empty.
    text: u32,
    value_text: (u32, u32),
    note_len: u32,
    value_len: u8,
    levels: Levels,
    kind: Kind,
}

/// Where a node lies, in as few numbers as can be compared at once.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Place {
    /// Offset and length, where the text says them.
    range: u64,
    /// Source, depth, and whether it was computed.
    rank: u64,
}

impl Place {
    #[inline(always)]
    fn of<P: Pieces>(node: &Node) -> Self {
        Self {
            range: if P::PLACES { u64::from(node.offset) | u64::from(node.len) << 32 } else { 0 },
            rank: u64::from(node.source) | u64::from(node.generated) << 32 | u64::from(node.depth) << 40,
        }
    }
}

/// What the value of a [`Field`] is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    None,
    Unsigned,
    Signed,
    /// Bytes of a node that has no value.
    Shown,
    Bytes,
    Text,
    /// Not compared: the value is written each time.
    Time,
    /// Not compared: nothing of it is in the text.
    Nothing,
    /// Not compared: the text is written each time.
    Other,
}

/// What a node and a [`Field`] have in common.
enum Likeness {
    /// The text.
    Text,
    /// The text but for the value.
    AllButValue,
    /// Perhaps the definition.
    Definition,
}

impl Kept {
    /// Number of layers that are kept, a power of two, and of those in a set.
    const SIZE: usize = 1024;
    const SET: usize = 8;

    /// Appends the texts of a frame's nodes. `start` appends what is in front of each layer.
    pub(super) fn frame<P: Pieces>(
        &mut self,
        out: &mut Vec<u8>,
        tree: &Tree,
        between: [Addr; 2],
        pieces: &mut P,
        marks: &mut Marks,
        mut start: impl FnMut(&mut Vec<u8>, usize),
    ) {
        if self.layers.is_empty() {
            self.layers.resize(Self::SIZE, Layer::default());
        }
        let between = between.map(number_of);
        let mut from = 0;
        while from < tree.nodes.len() {
            let (len, likeness) = likeness::<P>(&tree.nodes[from..], between);
            start(out, from);
            let set = likeness as usize % (Self::SIZE / Self::SET) * Self::SET;
            let set = &mut self.layers[set..set + Self::SET];
            match set.iter_mut().find(|layer| layer.likeness == likeness) {
                Some(layer) => {
                    if !layer.copy(out, tree, from..from + len, pieces, marks) {
                        layer.keep(out, tree, from..from + len, pieces, marks);
                    }
                }
                None => {
                    self.next = (self.next + 1) % Self::SET;
                    let place = set.iter().position(|layer| layer.likeness == 0).unwrap_or(self.next);
                    let layer = &mut set[place];
                    (layer.likeness, layer.patience) = (likeness, 0);
                    layer.keep(out, tree, from..from + len, pieces, marks);
                }
            }
            from += len;
        }
    }

    /// Number of layers that are kept.
    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        self.layers.iter().filter(|layer| !layer.fields.is_empty()).count()
    }
}

/// Length of the layer that begins with the first of these nodes, and a number that layers have in common which have the
/// same fields and may have the same values. The first layers of a frame are full of its addresses.
fn likeness<P: Pieces>(nodes: &[Node], between: [u64; 2]) -> (usize, u64) {
    const ADDRESSES: u32 = 64;
    let first = &nodes[0];
    let (mut len, mut fields) = (1, definition_of(first));
    for node in &nodes[1..] {
        if node.depth == 0 {
            break;
        }
        len += 1;
        fields = fields.rotate_left(7) ^ definition_of(node);
    }
    let [from, to] = if first.offset.saturating_add(first.len) <= ADDRESSES { between } else { [0; 2] };
    let covered = if P::PLACES { u64::from(first.len) } else { 0 };
    let parts = [from, to, fields, covered << 32 | len as u64];
    (len, parts.iter().fold(0u64, |hash, part| (hash ^ part).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)))
}

/// A number that is the same for the same definition.
#[inline(always)]
fn definition_of(node: &Node) -> u64 {
    std::ptr::from_ref(node.def).addr() as u64
}

/// Any number that is the same for the same address.
fn number_of(address: Addr) -> u64 {
    match address {
        Addr::None => 0,
        Addr::V4(v4) => u64::from(u32::from_le_bytes(v4)),
        Addr::V6(v6) => v6.as_chunks::<8>().0.iter().fold(0, |sum, half| sum ^ u64::from_le_bytes(*half)),
        Addr::Lid(lid) => u64::from(lid),
        Addr::Mac([a, b, c, d, e, f]) => u64::from_le_bytes([a, b, c, d, e, f, 0, 0]),
    }
}

impl Layer {
    /// The most fields and bytes of text of a layer that is kept.
    const FIELDS: usize = 256;
    const TEXT: usize = 1 << 13;
    /// Bounds of [`Layer::patience`]: it doubles each time, as the next one may be no more alike.
    const LEAST: u32 = 8;
    const MOST: u32 = 64;

    /// Writes nodes, and keeps what was written.
    fn keep<P: Pieces>(
        &mut self,
        out: &mut Vec<u8>,
        tree: &Tree,
        range: Range<usize>,
        pieces: &mut P,
        marks: &mut Marks,
    ) {
        self.sources.clear();
        self.fields.clear();
        self.bytes.clear();
        self.text.clear();
        self.copied = 0;
        self.patience = (self.patience * 2).clamp(Self::LEAST, Self::MOST);
        let (begin, many) = (out.len(), range.len() > Self::FIELDS);
        let nodes = &tree.nodes[range.clone()];
        let mut levels = Levels::default();
        for (at, node) in nodes.iter().enumerate() {
            levels.advance(nodes, at);
            let value = pieces.piece(out, tree, range.start + at, levels, marks);
            if !many {
                let in_text = |at: usize| (at - begin) as u32;
                let value_text = value.map_or((0, 0), |place| (in_text(place.start), in_text(place.end)));
                let text = (in_text(out.len()), value_text);
                self.fields.push(Field::of(node, tree, pieces, levels, &mut self.bytes, text));
            }
        }
        match out.get(begin..) {
            Some(text) if text.len().max(self.bytes.len()) <= Self::TEXT => self.text.extend_from_slice(text),
            // and its memory is given back
            _ => *self = Self { likeness: self.likeness, ..Self::default() },
        }
        self.sources.extend(tree.sources().iter().map(|source| source.name));
    }

    /// Copies what is kept, and writes the nodes that say something else. Appends nothing and returns false if the layer
    /// has other fields, whatever their values are.
    fn copy<P: Pieces>(
        &mut self,
        out: &mut Vec<u8>,
        tree: &Tree,
        range: Range<usize>,
        pieces: &mut P,
        marks: &mut Marks,
    ) -> bool {
        let nodes = &tree.nodes[range.clone()];
        if self.fields.len() != nodes.len() || !self.sources.iter().eq(tree.sources().iter().map(|source| &source.name))
        {
            return false;
        }
        let (begin, marks_begin) = (out.len(), marks.places.len());
        let (mut copied, mut end, mut others) = (0, 0, 0);
        for (at, (node, field)) in nodes.iter().zip(&self.fields).enumerate() {
            match field.compare(node, tree, pieces, &self.bytes) {
                Likeness::Text => {}
                Likeness::AllButValue => {
                    out.extend_from_slice(&self.text[copied..field.value_text.0 as usize]);
                    copied = field.value_text.1 as usize;
                    pieces.value(out, tree, node);
                }
                Likeness::Definition if field.is_of::<P>(node) => {
                    out.extend_from_slice(&self.text[copied..end]);
                    copied = field.text as usize;
                    others += 1;
                    pieces.piece(out, tree, range.start + at, field.levels, marks);
                }
                Likeness::Definition => {
                    out.truncate(begin);
                    marks.places.truncate(marks_begin);
                    return false;
                }
            }
            end = field.text as usize;
        }
        out.extend_from_slice(&self.text[copied..end]);
        // another frame may be more like the next ones
        self.copied = self.copied.saturating_add(1);
        if others * 4 > nodes.len() && self.copied >= self.patience {
            self.fields.clear();
        }
        true
    }
}

impl Field {
    fn of<P: Pieces>(
        node: &Node,
        tree: &Tree,
        pieces: &P,
        levels: Levels,
        bytes: &mut Vec<u8>,
        text: (u32, (u32, u32)),
    ) -> Self {
        let start = bytes.len() as u32;
        let mut run = |kind, run: &[u8]| match u8::try_from(run.len()) {
            Ok(len) => {
                bytes.extend_from_slice(run);
                (kind, 0, len)
            }
            Err(_) => (Kind::Other, 0, 0),
        };
        let (mut kind, value, value_len) = match node.value {
            NodeValue::None => match pieces.shown(tree, node, levels.is_parent()) {
                [] => (Kind::None, 0, 0),
                shown => run(Kind::Shown, shown),
            },
            NodeValue::U(v) => (Kind::Unsigned, v, 0),
            NodeValue::I(v) => (Kind::Signed, v.cast_unsigned(), 0),
            NodeValue::Bytes | NodeValue::Apart(..) => run(Kind::Bytes, tree.value_bytes(node)),
            NodeValue::Text(..) => run(Kind::Text, tree.value_bytes(node)),
            NodeValue::Time(..) => (Kind::Time, 0, 0),
        };
        let note = tree.note_bytes(node);
        let note_len = u8::try_from(note.len()).unwrap_or(0);
        bytes.extend_from_slice(&note[..usize::from(note_len)]);
        if usize::from(note_len) < note.len() {
            kind = Kind::Other;
        }
        match pieces.depends(node) {
            Depends::Nothing => kind = Kind::Nothing,
            Depends::Value if is_counted(node.def) => kind = Kind::Other,
            Depends::Value => {}
            Depends::More => kind = Kind::Other,
        }
        Self {
            def: node.def,
            value,
            place: Place::of::<P>(node),
            bytes: start,
            text: text.0,
            value_text: text.1,
            note_len: note_len.into(),
            value_len,
            levels,
            kind,
        }
    }

    /// True if a node is this field, whatever its value is. Where all nodes of a layer are, their levels are the same.
    fn is_of<P: Pieces>(&self, node: &Node) -> bool {
        const GENERATED: u64 = 1 << 32;
        std::ptr::eq(self.def, node.def) && self.place.rank | GENERATED == Place::of::<P>(node).rank | GENERATED
    }

    /// What the text of a node has in common with that of this field.
    #[inline(always)]
    fn compare<P: Pieces>(&self, node: &Node, tree: &Tree, pieces: &P, bytes: &[u8]) -> Likeness {
        if !std::ptr::eq(self.def, node.def) || self.place != Place::of::<P>(node) || self.note_len != node.note.1 {
            return Likeness::Definition;
        }
        match node.value {
            // nearly all are numbers without a note
            NodeValue::U(v) if self.note_len == 0 && self.kind == Kind::Unsigned => {
                if self.value == v {
                    Likeness::Text
                } else {
                    self.all_but_value()
                }
            }
            _ => self.compare_any(node, tree, pieces, bytes),
        }
    }

    /// The same for values and notes of all kinds.
    #[inline(never)]
    fn compare_any(&self, node: &Node, tree: &Tree, pieces: &impl Pieces, bytes: &[u8]) -> Likeness {
        let start = self.bytes as usize;
        let end = start + usize::from(self.value_len);
        if self.note_len > 0 && bytes[end..end + self.note_len as usize] != *tree.note_bytes(node) {
            return Likeness::Definition;
        }
        let is_same = match (self.kind, node.value) {
            (Kind::Nothing, _) => true,
            (Kind::Unsigned, NodeValue::U(v)) => self.value == v,
            (Kind::Signed, NodeValue::I(v)) => self.value == v.cast_unsigned(),
            (Kind::None, NodeValue::None) => {
                if !pieces.shown(tree, node, self.levels.is_parent()).is_empty() {
                    return Likeness::Definition;
                }
                true
            }
            (Kind::Shown, NodeValue::None) => bytes[start..end] == *pieces.shown(tree, node, self.levels.is_parent()),
            (Kind::Bytes, NodeValue::Bytes | NodeValue::Apart(..)) | (Kind::Text, NodeValue::Text(..)) => {
                bytes[start..end] == *tree.value_bytes(node)
            }
            (Kind::Time, NodeValue::Time(..)) => false,
            _ => return Likeness::Definition,
        };
        if is_same { Likeness::Text } else { self.all_but_value() }
    }

    /// What a node has in common with this field whose value is another one.
    #[inline(always)]
    fn all_but_value(&self) -> Likeness {
        if self.value_text == (0, 0) { Likeness::Definition } else { Likeness::AllButValue }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::json::{Json, What};
    use crate::output::shape::Shape;
    use crate::output::tree::Trees;
    use crate::streams::f::TCP_STREAM;
    use crate::{dissection::Dissected, output::marks::DIGITS};
    use rdmascope_analyzer::connection::f::{CONNECTION, EXCHANGE};
    use rdmascope_dissector::trace::{Trace, Value};
    use rdmascope_dissector::wire::{ib::cm, ip};

    /// A layer with a node of each kind of value.
    fn tree(bytes: &[u8]) -> Tree {
        let mut tree = Tree::new();
        tree.begin(bytes);
        for name in ["Reassembled", "Decrypted"] {
            tree.source(name, bytes);
            tree.end_source();
        }
        tree.open(ip::f::PROTOCOL, bytes);
        tree.field(ip::f::TTL, &bytes[2..], 2, Value::U(7));
        let first = tree.nodes[1];
        tree.text.extend_from_slice(bytes);
        let values = [
            NodeValue::None,
            NodeValue::U(7 << 40),
            NodeValue::I(-7),
            NodeValue::Bytes,
            NodeValue::Apart(2, 2),
            NodeValue::Text(2, 24),
            NodeValue::Time(7, 0),
        ];
        tree.nodes.extend(values.map(|value| Node { value, ..first }));
        let bytes = Node { value: NodeValue::Bytes, ..first };
        let none = Node { value: NodeValue::None, ..first };
        tree.nodes.extend([
            Node { def: EXCHANGE, ..first },
            Node { def: CONNECTION, ..first },
            Node { def: TCP_STREAM, ..first },
            Node { def: ip::f::SRC, len: 4, ..bytes },
            // behind the end of the source
            Node { offset: 60, len: 8, ..bytes },
            // nodes without a value: a parent, what is below it, and two that are none
            Node { def: cm::f::RESERVED, ..none },
            Node { def: ip::f::PROTOCOL, depth: 2, ..none },
            Node { depth: 3, ..first },
            Node { depth: 2, ..first },
            Node { def: ip::f::PROTOCOL, ..none },
            Node { def: cm::f::RESERVED, ..none },
            Node { source: 1, ..first },
            Node { note: (0, 13), ..first },
            first,
        ]);
        tree
    }

    /// The same tree with one thing changed, of which its text may tell.
    fn changed(tree: &Tree, step: usize, others: &Tree) -> Tree {
        let mut tree = tree.clone();
        let last = tree.nodes.len() - 1;
        let node = &mut tree.nodes[1 + step % last];
        let offset = node.offset;
        match step / last % 12 {
            0 => {}
            1 => node.value = NodeValue::U(step as u64),
            2 => node.value = NodeValue::I(-7),
            3 => node.value = NodeValue::None,
            4 => node.value = NodeValue::Text(3, 4),
            5 => node.value = NodeValue::Apart(3, 24),
            6 => node.offset = offset + 1,
            7 => node.len += 1,
            8 => node.source ^= 2,
            9 => node.note = (5, 3),
            10 => node.generated = !node.generated,
            _ => (tree.nodes[last].def, tree.nodes[last].depth) = (TCP_STREAM, 2),
        }
        if step.is_multiple_of(3) {
            // other bytes in the same places
            let mut other = others.clone();
            other.nodes.clone_from(&tree.nodes);
            return other;
        }
        tree
    }

    #[test]
    fn what_is_copied_is_what_would_be_written() {
        let mut bytes: Vec<u8> = (b'!'..b'!' + 64).collect();
        let forwards = tree(&bytes);
        bytes.reverse();
        let backwards = tree(&bytes);
        let d = Dissected {
            number: 1,
            relative_ns: 0,
            delta_ns: 0,
            time_ns: 0,
            wire_len: 64,
            cap_len: 64,
            src: Addr::V4([10, 0, 0, 1]),
            dst: Addr::None,
            other: "",
        };
        let (shape, new) = (Shape::new(false), || (Json::new(false, What::Values), Trees::default()));
        let (mut json, mut trees) = new();
        json.is_first(true);
        for step in 0..12 * 40 * 3 {
            let mut tree = changed(&forwards, step, &backwards);
            Marks::prepare(&mut tree);
            let (mut anew, mut lines) = new();
            anew.is_first(step == 0);
            let (mut marks, mut fresh) = (Marks::wanted(), Marks::wanted());
            let (mut a, mut b) = (Vec::new(), Vec::new());
            json.frame(&mut a, &d, &tree, &shape, &mut marks);
            anew.frame(&mut b, &d, &tree, &shape, &mut fresh);
            assert_eq!(String::from_utf8_lossy(&a), String::from_utf8_lossy(&b), "step {step}");
            trees.frame(&mut a, &d, &tree, false, &mut marks);
            lines.frame(&mut b, &d, &tree, false, &mut fresh);
            assert_eq!(String::from_utf8_lossy(&a), String::from_utf8_lossy(&b), "step {step}");
            // each counted number is found in what is copied, too
            let of = |marks: &Marks| marks.places.iter().map(|m| (m.at, m.def.id, m.number)).collect::<Vec<_>>();
            assert_eq!(of(&marks), of(&fresh), "step {step}");
            assert!(marks.places.iter().all(|m| a[m.at..m.at + DIGITS].iter().all(u8::is_ascii_digit)));
        }
        assert!(trees.kept_layers() > 0, "layers are kept");
    }

    #[test]
    fn layers_of_many_fields_or_much_text_are_not_kept() {
        let bytes = [0; 64];
        for (fields, kept) in [(Layer::FIELDS - 1, true), (Layer::FIELDS, false)] {
            let mut tree = tree(&bytes);
            tree.nodes.truncate(2);
            let field = tree.nodes[1];
            tree.nodes.resize(1 + fields, field);
            let mut layers = Kept::default();
            Counted::default().frame(&mut layers, &tree, 0);
            assert_eq!(layers.kept() > 0, kept, "{fields}");
        }
        let mut layers = Kept::default();
        Counted { width: Layer::TEXT, ..Counted::default() }.frame(&mut layers, &tree(&bytes), 0);
        assert_eq!(layers.kept(), 0);
    }

    #[test]
    fn only_fields_that_say_something_else_are_written() {
        let bytes: Vec<u8> = (0..64).collect();
        let mut tree = tree(&bytes);
        let (mut layers, mut pieces) = (Kept::default(), Counted::default());
        // counted numbers and times are written each time
        let always = tree.nodes.iter().filter(|n| matches!(n.value, NodeValue::Time(..)) || is_counted(n.def)).count();
        assert_eq!(pieces.frame(&mut layers, &tree, 0), tree.nodes.len());
        assert_eq!(pieces.frame(&mut layers, &tree, 0), always);
        // bytes that are not at its offset, and a number where there was none
        for (node, value) in [(5, NodeValue::Apart(3, 2)), (2, NodeValue::U(8))] {
            let before = std::mem::replace(&mut tree.nodes[node].value, value);
            assert_eq!(pieces.frame(&mut layers, &tree, 0), always + 1, "{value:?}");
            tree.nodes[node].value = before;
            assert_eq!(pieces.frame(&mut layers, &tree, 0), always, "{before:?}");
        }
        // another address has a layer of its own
        assert_eq!(pieces.frame(&mut layers, &tree, 1), tree.nodes.len());
        assert_eq!(pieces.frame(&mut layers, &tree, 0), always);
        assert_eq!(layers.kept(), 2);
        // what is mostly something else is copied a few times, and then takes the place
        let mut other = tree.clone();
        for node in &mut other.nodes {
            node.offset += 1;
        }
        let most: Vec<_> = (0..12).map(|_| pieces.frame(&mut layers, &other, 0)).collect();
        assert_eq!((most[0], most[11]), (other.nodes.len(), always), "{most:?}");
    }

    #[test]
    fn a_full_set_makes_room_for_the_next_layer() {
        let bytes: Vec<u8> = (0..64).collect();
        let mut tree = tree(&bytes);
        let (mut layers, mut pieces) = (Kept::default(), Counted::default());
        for _ in 0..2 {
            for source in 0..4 * Kept::SIZE as u32 {
                tree.nodes[2].value = NodeValue::U(source.into());
                pieces.frame(&mut layers, &tree, source);
                assert!(layers.kept() <= Kept::SIZE);
                let written = pieces.frame(&mut layers, &tree, source);
                assert!(written < tree.nodes.len() / 2, "the layer that came last is kept: {written} for {source}");
            }
        }
        assert!(layers.kept() > Kept::SIZE / 2, "{}", layers.kept());
    }

    /// Writes what each node says, and counts how many it wrote.
    #[derive(Default)]
    struct Counted {
        written: usize,
        /// Bytes that each text has at least.
        width: usize,
    }

    impl Counted {
        /// Writes a frame, compares it with one that was written anew, and returns the number of nodes that were written.
        fn frame(&mut self, layers: &mut Kept, tree: &Tree, source: u32) -> usize {
            let between = [Addr::V4(source.to_le_bytes()), Addr::None];
            let (mut text, mut anew) = (Vec::new(), Vec::new());
            self.written = 0;
            layers.frame(&mut text, tree, between, self, &mut Marks::default(), |_, _| {});
            let mut other = Self { width: self.width, written: 0 };
            Kept::default().frame(&mut anew, tree, between, &mut other, &mut Marks::default(), |_, _| {});
            assert_eq!(String::from_utf8_lossy(&text), String::from_utf8_lossy(&anew));
            assert_eq!(other.written, tree.nodes.len());
            self.written
        }
    }

    impl Pieces for Counted {
        const PLACES: bool = true;

        fn piece(
            &mut self,
            out: &mut Vec<u8>,
            tree: &Tree,
            index: usize,
            levels: Levels,
            _: &mut Marks,
        ) -> Option<Range<usize>> {
            let (node, from) = (&tree.nodes[index], out.len());
            let Levels { before, own, next } = levels;
            let says =
                format!("{:x} {} {:?} {before}{own}{next}\n", node.def.id & 0xff, node.offset, tree.stored(node));
            out.extend_from_slice(says.as_bytes());
            out.resize(out.len().max(from + self.width), b' ');
            self.written += 1;
            None
        }

        fn value(&mut self, _: &mut Vec<u8>, _: &Tree, _: &Node) {
            unreachable!("no piece tells of a value")
        }

        fn depends(&self, _: &Node) -> Depends {
            Depends::Value
        }

        fn shown<'t>(&self, _: &'t Tree, _: &Node, _: bool) -> &'t [u8] {
            &[]
        }
    }
}
