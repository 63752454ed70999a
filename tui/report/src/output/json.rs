//! `-T json`: one array of frames, as tshark writes it. Written straight from the tree; no JSON value is ever built.
//!
//! * A layer or subtree is an object under its name. A field that has both a value and children (flags and their bits)
//!   is two keys: `"smb_direct.flags": "0x0001"` and `"smb_direct.flags_tree": {…}`.
//! * A name that occurs several times among the same siblings is repeated, as tshark repeats it; most readers keep the
//!   last. With `--no-duplicate-keys` such a key is there once, and its value is an array, also as in tshark.
//! * A subtree that is no field in Wireshark has its text for a key: [`super::shape`].
//! * `-T jsonraw` has the bytes of each field in place of its value, `-T json -x` both: `"ip.ttl_raw": ["40", 22, 1, 0,
//!   4, 0]` are the bytes, their place and length, the mask, the number of the field's type, and which of the frame's
//!   sources they lie in.
//! * Where decoding stopped, `_ws.malformed` (`_ws.short` where the capture cut the frame) says why.

use super::kept::{Depends, Kept, Levels, Pieces};
use super::marks::Marks;
use super::shape::Shape;
use super::{Index, faults, put};
use crate::dissection::Dissected;
use rdmascope_dissector::field::{Def, Kind};
use rdmascope_dissector::render::{Style, decimal, hex_bytes, json_string, json_value, show_unsigned};
use rdmascope_dissector::trace::{Node, NodeValue, Tree};
use std::io::Write;
use std::ops::Range;

/// Parts of a field that are written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// Values of fields (`-T json`).
    Values,
    /// Bytes of fields (`-T jsonraw`).
    Raw,
    /// Values and bytes (`-T json -x`).
    Both,
}

/// Frames in the form of `-T json`.
#[derive(Clone)]
pub struct Json {
    index: Index,
    unique: bool,
    what: What,
    any: bool,
    keys: Keys,
    kept: Kept,
}

/// Depth of indentation of a layer's key.
const LAYER: usize = 8;

/// The end of an object: a new line, and spaces, of which as many as needed are taken.
const NEW_LINE: &[u8; 129] = &{
    let mut text = [b' '; 129];
    text[0] = b'\n';
    text
};

fn line(out: &mut Vec<u8>, indent: usize) {
    const MOST: usize = 32;
    match NEW_LINE.first_chunk::<MOST>() {
        Some(text) if indent < MOST => put(out, text, 1 + indent),
        _ => out.extend_from_slice(&NEW_LINE[..1 + indent.min(128)]),
    }
}

/// The text in front of a value. It depends only on the field and its depth, so it is made once and then copied.
#[derive(Clone)]
struct Keys {
    keys: Vec<Key>,
    /// The neighbouring place that was overwritten last.
    place: usize,
}

#[derive(Clone, Copy)]
struct Key {
    /// [`FieldDef::id`](rdmascope_dissector::field::FieldDef::id).
    id: u32,
    indent: u8,
    tree: bool,
    /// Length of the text; 0 if no key is remembered.
    len: u8,
    /// `,\n        "udp.port": "` or, for a subtree in addition to a value, `,\n        "udp.flags_tree": {`.
    text: [u8; Keys::TEXT],
}

impl Keys {
    /// Number of keys that are remembered, a power of two: far more than one capture has fields.
    const SIZE: usize = 2048;
    /// Number of keys that may share a place, a power of two; of more, the latest stay.
    const WAYS: usize = 8;
    /// Number of bytes of a key that are copied without a check of its length; and the maximum length of a key that is
    /// remembered.
    const MOSTLY: usize = 64;
    const TEXT: usize = 128;

    fn new() -> Self {
        Self { keys: vec![Key { id: 0, indent: 0, tree: false, len: 0, text: [0; Self::TEXT] }; Self::SIZE], place: 0 }
    }

    /// Appends the key of a field, up to the beginning of its value; without the comma in front if it is the first of
    /// its object.
    #[inline]
    fn put(&mut self, out: &mut Vec<u8>, def: Def, indent: usize, tree: bool, first: bool) {
        let at = (def.id as usize).wrapping_add(indent << 3 | usize::from(tree)) % Self::SIZE;
        let is = |key: &Key| key.id == def.id && usize::from(key.indent) == indent && key.tree == tree && key.len > 0;
        let key = match &self.keys[at] {
            key if is(key) => key,
            _ => match (1..Self::WAYS).map(|way| &self.keys[at ^ way]).find(|key| is(key)) {
                Some(key) => key,
                None => return self.make(out, at, def, indent, tree, first),
            },
        };
        let (skipped, len) = (usize::from(first), usize::from(key.len));
        if let (Some(text), true) = (key.text[skipped..].first_chunk::<{ Self::MOSTLY }>(), len <= Self::MOSTLY) {
            return put(out, text, len - skipped);
        }
        out.extend_from_slice(&key.text[skipped..len]);
    }

    #[cold]
    fn make(&mut self, out: &mut Vec<u8>, at: usize, def: Def, indent: usize, tree: bool, first: bool) {
        let mut text = vec![b','];
        line(&mut text, indent);
        key(&mut text, def.name, if tree { "_tree" } else { "" });
        text.push(if tree { b'{' } else { b'"' });
        if let (true, Ok(indent), Ok(len)) = (text.len() <= Self::TEXT, u8::try_from(indent), u8::try_from(text.len()))
        {
            // the former key moves to a neighbouring place, where it is still found
            self.place = self.place % (Self::WAYS - 1) + 1;
            let other =
                (1..Self::WAYS).map(|way| at ^ way).find(|way| self.keys[*way].len == 0).unwrap_or(at ^ self.place);
            self.keys[other] = self.keys[at];
            let key = &mut self.keys[at];
            (key.id, key.indent, key.tree, key.len) = (def.id, indent, tree, len);
            key.text[..text.len()].copy_from_slice(&text);
        }
        out.extend_from_slice(&text[usize::from(first)..]);
    }
}

impl Json {
    /// `unique`: members of one name become an array.
    pub fn new(unique: bool, what: What) -> Self {
        Self { index: Index::new(), unique, what, any: false, keys: Keys::new(), kept: Kept::default() }
    }

    /// Opens the array.
    pub fn begin(out: &mut Vec<u8>) {
        out.extend_from_slice(b"[");
    }

    /// Closes the array.
    pub fn end(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(if self.any { b"\n]\n" } else { b"]\n" });
    }

    /// Sets whether the next frame is the first one of the array.
    pub fn is_first(&mut self, first: bool) {
        self.any = !first;
    }

    /// Appends a frame.
    pub fn frame(&mut self, out: &mut Vec<u8>, d: &Dissected, tree: &Tree, shape: &Shape, marks: &mut Marks) {
        out.extend_from_slice(if self.any { b",\n  {\n    \"_index\": \"" } else { b"\n  {\n    \"_index\": \"" });
        self.any = true;
        out.extend_from_slice(self.index.of(d.time_ns));
        out.extend_from_slice(b"\",\n    \"_score\": null,\n    \"_source\": {\n      \"layers\": {");
        let mut first = true;
        if self.unique || self.what != What::Values {
            let top: Vec<usize> = children(tree, None);
            first = top.is_empty();
            Members { tree, shape, unique: self.unique, what: self.what }.object(out, marks, &top, LAYER);
        } else {
            let mut layers = Layers { keys: &mut self.keys, shape };
            self.kept.frame(out, tree, [d.src, d.dst], &mut layers, marks, |out, index| {
                if index > 0 {
                    out.push(b',');
                }
            });
            first &= tree.nodes.is_empty();
        }
        let cut = d.is_cut();
        for (name, why) in faults(tree, cut) {
            if !first {
                out.push(b',');
            }
            first = false;
            line(out, LAYER);
            key(out, name, "");
            out.push(b'"');
            json_string(out, &why);
            out.push(b'"');
        }
        out.extend_from_slice(b"\n      }\n    }\n  }");
    }
}

/// Writes nodes in order, opening and closing objects as the depth changes.
struct Layers<'a> {
    keys: &'a mut Keys,
    shape: &'a Shape,
}

impl Pieces for Layers<'_> {
    const PLACES: bool = false;

    fn piece(
        &mut self,
        out: &mut Vec<u8>,
        tree: &Tree,
        index: usize,
        levels: Levels,
        marks: &mut Marks,
    ) -> Option<Range<usize>> {
        let node = &tree.nodes[index];
        debug_assert_eq!(node.depth, levels.own, "no step down is more than 1");
        close(out, levels.own..levels.before);
        let indent = LAYER + 2 * usize::from(levels.own);
        // the comma between layers stands already
        let first = levels.own > levels.before || levels.own == 0;
        let valued = !levels.is_parent() || is_valued(node);
        match if node.def.kind == Kind::None { self.shape.key(tree, index) } else { None } {
            None => self.keys.put(out, node.def, indent, false, first),
            Some(text) => {
                if !first {
                    out.push(b',');
                }
                line(out, indent);
                text_key(out, text);
                out.push(b'"');
            }
        }
        let mut place = None;
        if valued {
            let from = out.len();
            marked_value(out, tree, node, marks);
            place = Some(from..out.len() - 1);
        }
        if levels.is_parent() {
            if valued {
                self.keys.put(out, node.def, indent, true, false);
            } else if let Some(quote) = out.last_mut() {
                *quote = b'{';
            }
        }
        if levels.next == 0 {
            close(out, 0..levels.own);
        }
        place
    }

    #[inline]
    fn value(&mut self, out: &mut Vec<u8>, tree: &Tree, node: &Node) {
        value(out, tree, node);
    }

    /// A subtree that is no field may have a text of the frame for its key.
    fn depends(&self, node: &Node) -> Depends {
        if node.def.kind == Kind::None { Depends::More } else { Depends::Value }
    }

    #[inline]
    fn shown<'t>(&self, tree: &'t Tree, node: &Node, parent: bool) -> &'t [u8] {
        if parent && !is_valued(node) { &[] } else { shown(tree, node) }
    }
}

/// Closes the objects at these depths, from within.
fn close(out: &mut Vec<u8>, levels: Range<u8>) {
    for level in levels.rev() {
        line(out, LAYER + 2 * usize::from(level));
        out.push(b'}');
    }
}

fn key(out: &mut Vec<u8>, name: &str, suffix: &str) {
    out.push(b'"');
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(suffix.as_bytes());
    out.extend_from_slice(b"\": ");
}

/// True if the node shows a value of its own beside its children.
pub(super) fn has_value(node: &Node) -> bool {
    !matches!(node.value, NodeValue::None) || node.def.kind == Kind::Bytes
}

/// The same in JSON, in which a TCP option is a protocol that has its bytes as a value.
fn is_valued(node: &Node) -> bool {
    has_value(node) || node.def.kind == Kind::Protocol && node.def.name.starts_with("tcp.options.")
}

/// Appends a value and the closing quote.
#[inline]
fn marked_value(out: &mut Vec<u8>, tree: &Tree, node: &Node, marks: &mut Marks) {
    let from = out.len();
    value(out, tree, node);
    marks.written(out, from, node.def, &node.value);
    out.push(b'"');
}

/// Appends a value.
#[inline]
fn value(out: &mut Vec<u8>, tree: &Tree, node: &Node) {
    match node.value {
        // the most common by far
        NodeValue::U(v) => show_unsigned(out, node.def, v, Style::Json),
        NodeValue::None => hex_bytes(out, shown(tree, node), Some(b':')),
        _ => json_value(out, node.def, tree.stored(node), Style::Json),
    }
}

/// The bytes that are shown of a node without a value: those of a run of bytes, and of a protocol within another one.
fn shown<'t>(tree: &'t Tree, node: &Node) -> &'t [u8] {
    match node.def.kind {
        Kind::Bytes => tree.covered(node),
        Kind::Protocol if node.depth > 0 => tree.covered(node),
        _ => &[],
    }
}

/// The indices of the children of a node, or of the layers.
fn children(tree: &Tree, of: Option<usize>) -> Vec<usize> {
    let (from, depth) = of.map_or((0, 0), |at| (at + 1, tree.nodes[at].depth.saturating_add(1)));
    let mut found = Vec::new();
    for (i, node) in tree.nodes.iter().enumerate().skip(from) {
        if node.depth < depth {
            break;
        }
        if node.depth == depth {
            found.push(i);
        }
    }
    found
}

/// A key that is the text of a subtree.
fn text_key(out: &mut Vec<u8>, (label, note): (&str, &str)) {
    out.push(b'"');
    json_string(out, label);
    json_string(out, note);
    out.extend_from_slice(b"\": ");
}

/// Writes objects whose keys are gathered, or that have the bytes of fields.
struct Members<'a> {
    tree: &'a Tree,
    shape: &'a Shape,
    unique: bool,
    what: What,
}

impl Members<'_> {
    /// Writes the members of an object; with `unique`, each key only once.
    fn object(&self, out: &mut Vec<u8>, marks: &mut Marks, members: &[usize], indent: usize) {
        let tree = self.tree;
        let key_of = |i: usize| (tree.nodes[i].def.id, self.shape.key(tree, i));
        let mut sorted: Vec<usize> = members.to_vec();
        let mut groups: Vec<&[usize]> = if self.unique {
            // by name, then in order of appearance; groups again by their first member
            sorted.sort_by_key(|i| (key_of(*i), *i));
            sorted.chunk_by(|a, b| key_of(*a) == key_of(*b)).collect()
        } else {
            sorted.chunks(1).collect()
        };
        groups.sort_by_key(|g| g[0]);
        let mut fresh = true;
        let mut next = |out: &mut Vec<u8>| {
            if !fresh {
                out.push(b',');
            }
            fresh = false;
            line(out, indent);
        };
        for group in groups {
            let name = tree.nodes[group[0]].def.name;
            let text = self.shape.key(tree, group[0]);
            let values: Vec<usize> =
                group.iter().copied().filter(|i| is_valued(&tree.nodes[*i]) || !tree.has_children(*i)).collect();
            let parents: Vec<usize> = group.iter().copied().filter(|i| tree.has_children(*i)).collect();
            if self.what != What::Values && text.is_none() {
                next(out);
                key(out, name, "_raw");
                list(out, group, indent, &mut |out, i, _| raw(out, tree, &tree.nodes[i]));
            }
            if !values.is_empty() && (self.what != What::Raw || text.is_some()) {
                next(out);
                match text {
                    Some(text) => text_key(out, text),
                    None => key(out, name, ""),
                }
                list(out, &values, indent, &mut |out, i, _| {
                    out.push(b'"');
                    marked_value(out, tree, &tree.nodes[i], marks);
                });
            }
            if !parents.is_empty() {
                next(out);
                match text {
                    Some(text) => text_key(out, text),
                    None => key(out, name, if values.is_empty() { "" } else { "_tree" }),
                }
                list(out, &parents, indent, &mut |out, i, indent| {
                    out.push(b'{');
                    self.object(out, marks, &children(tree, Some(i)), indent + 2);
                    line(out, indent);
                    out.push(b'}');
                });
            }
        }
    }
}

/// The bytes of a field: digits, place, length, mask, number of the type, number of the source.
fn raw(out: &mut Vec<u8>, tree: &Tree, node: &Node) {
    out.extend_from_slice(b"[\"");
    match node.value {
        NodeValue::U(v) if node.def.mask != 0 => {
            let _ = write!(out, "{v:X}");
        }
        _ if node.generated => {}
        _ => hex_bytes(out, tree.covered(node), None),
    }
    out.push(b'"');
    let len = if node.generated { 0 } else { node.len };
    for number in
        [u64::from(node.offset), u64::from(len), node.def.mask, type_number(node.def.kind), u64::from(node.source)]
    {
        out.extend_from_slice(b", ");
        decimal(out, number);
    }
    out.push(b']');
}

/// Number of a field type in Wireshark 4.6.
fn type_number(kind: Kind) -> u64 {
    match kind {
        Kind::None => 0,
        Kind::Protocol => 1,
        Kind::Bool => 2,
        Kind::U8 => 4,
        Kind::U16 => 5,
        Kind::U24 => 6,
        Kind::U32 => 7,
        Kind::U40 => 8,
        Kind::U48 => 9,
        Kind::U56 => 10,
        Kind::U64 => 11,
        Kind::I8 => 12,
        Kind::I16 => 13,
        Kind::I32 => 15,
        Kind::I64 => 19,
        Kind::Double => 23,
        Kind::AbsTime => 24,
        Kind::RelTime => 25,
        Kind::Str | Kind::Utf16 => 26,
        Kind::Ether => 29,
        Kind::Bytes => 30,
        Kind::Ipv4 => 32,
        Kind::Ipv6 => 33,
        Kind::FrameNum => 35,
        Kind::Guid => 36,
        Kind::Eui64 => 38,
    }
}

fn list(out: &mut Vec<u8>, items: &[usize], indent: usize, write: &mut dyn FnMut(&mut Vec<u8>, usize, usize)) {
    if let [only] = items {
        return write(out, *only, indent);
    }
    out.push(b'[');
    for (n, item) in items.iter().enumerate() {
        if n > 0 {
            out.push(b',');
        }
        line(out, indent + 2);
        write(out, *item, indent + 2);
    }
    line(out, indent);
    out.push(b']');
}
/// The JSON Schema of `-T json`, also with `-x`, `-e` and other names.
pub fn schema() -> serde_json::Value {
    // two fields of TCP have such a name of their own, which the bytes of two others share with -x
    const RAW: &str = r"^(?!tcp\.(seq|ack)_raw$).*_raw$";
    const EITHER: &str = r"^tcp\.(seq|ack)_raw$";
    let text = || serde_json::json!({"type": "string"});
    let either = || serde_json::json!({"anyOf": [text(), {"$ref": "#/$defs/raw"}]});
    let values = serde_json::json!({
        "type": "object",
        "patternProperties": {
            RAW: {"$ref": "#/$defs/raw"},
            EITHER: {"anyOf": [text(), {"$ref": "#/$defs/raw"}, {"type": "array", "items": either()}]},
        },
        "additionalProperties": of_layer(&[text()]),
    });
    frames(
        "rdmascope dissect -T json",
        "Frames, as tshark writes them. A key that occurs several times is repeated, unless --no-duplicate-keys is \
            given.",
        values,
    )
}

/// The JSON Schema of `-T jsonraw`.
pub fn schema_of_raw() -> serde_json::Value {
    let why = serde_json::json!({"type": "string", "description": "Why decoding stopped."});
    let values = serde_json::json!({
        "type": "object",
        "properties": {"_ws.malformed": why, "_ws.short": why},
        "patternProperties": {"_raw$": {"$ref": "#/$defs/raw"}},
        "additionalProperties": of_layer(&[]),
    });
    frames("rdmascope dissect -T jsonraw", "Frames with the bytes of each field, as tshark writes them.", values)
}

/// A value of a layer, once or, without duplicate keys, as often as it occurs.
fn of_layer(values: &[serde_json::Value]) -> serde_json::Value {
    let one: Vec<_> = values.iter().cloned().chain([serde_json::json!({"$ref": "#/$defs/layer"})]).collect();
    let any: Vec<_> =
        one.iter().cloned().chain([serde_json::json!({"type": "array", "items": {"anyOf": one}})]).collect();
    serde_json::json!({"anyOf": any})
}

/// The schema of an array of frames whose layers are `layer`.
fn frames(title: &str, text: &str, layer: serde_json::Value) -> serde_json::Value {
    let number = || serde_json::json!({"type": "integer", "minimum": 0});
    let raw = serde_json::json!({
        "type": "array",
        "description": "A field's bytes in hexadecimal; their place in the source, and length; mask; number of the \
            field's type; source.",
        "prefixItems": [{"type": "string", "pattern": "^[0-9A-Fa-f]*$"}, number(), number(), number(), number(), number()],
        "items": false, "minItems": 6,
    });
    serde_json::json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, "type": "array", "description": text,
        "items": {
            "type": "object", "additionalProperties": false, "required": ["_index", "_source"], "description": "A frame.",
            "properties": {
                "_index": {"type": "string", "pattern": "^packets-[0-9]{4}-[0-9]{2}-[0-9]{2}$", "description": "packets- and the day of the frame."},
                "_type": {"const": "doc", "description": "Always doc."},
                "_score": {"type": "null", "description": "Always null."},
                "_source": {
                    "type": "object", "additionalProperties": false, "required": ["layers"], "description": "What is in it.",
                    "properties": {"layers": {"$ref": "#/$defs/layer", "description": "Layers by name."}},
                },
            },
        },
        "$defs": {
            "layer": layer,
            "raw": {"anyOf": [
                raw,
                {"type": "array", "items": raw, "minItems": 1, "description": "Without duplicate keys: of each field \
                    of this name."},
            ]},
        },
    })
}

/// The JSON Schema of each line of `-T ek`.
pub fn schema_of_ek() -> serde_json::Value {
    let one = serde_json::json!([{"type": "string"}, {"type": "boolean"}, {"type": "null"}, {"$ref": "#/$defs/layer"}]);
    let mut any = one.clone();
    if let serde_json::Value::Array(kinds) = &mut any {
        kinds.push(serde_json::json!({"type": "array", "items": {"anyOf": one}}));
    }
    serde_json::json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema", "title": "rdmascope dissect -T ek", "description": "A line: by turns an action, and a frame.",
        "anyOf": [
            {
                "type": "object", "additionalProperties": false, "required": ["index"], "description": "The action of \
                    the bulk API.",
                "properties": {"index": {
                    "type": "object", "additionalProperties": false, "required": ["_index"], "description": "Where the \
                        frame goes.",
                    "properties": {"_index": {"type": "string", "pattern": "^packets-[0-9]{4}-[0-9]{2}-[0-9]{2}$", "description": "packets- and the day of the frame."}},
                }},
            },
            {
                "type": "object", "additionalProperties": false, "required": ["timestamp", "layers"], "description": "A frame.",
                "properties": {
                    "timestamp": {"type": "string", "pattern": "^[0-9]+$", "description": "Milliseconds since 1970."},
                    "layers": {"$ref": "#/$defs/layer", "description": "Layers by name; fields with the layer's name \
                        before theirs, and _ for a dot."},
                },
            },
        ],
        "$defs": {"layer": {"type": "object", "additionalProperties": {"anyOf": any}}},
    })
}
