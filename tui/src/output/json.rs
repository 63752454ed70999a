//! `-T json`: one array of frames, as tshark writes it. Written straight from the tree; no JSON value is ever built.
//!
//! * A layer or subtree is an object under its name. A field that has both a value and children (flags and their bits) is
//!   two keys: `"smb_direct.flags": "0x0001"` and `"smb_direct.flags_tree": {…}`.
//! * A name that occurs several times among the same siblings is repeated, as tshark repeats it; most readers keep the last.
//!   With `--no-duplicate-keys` such a key is there once, and its value is an array, also as in tshark.
//! * Where decoding stopped, `_ws.malformed` (`_ws.short` where the capture cut the frame) says why.

use super::{Index, faults};
use crate::dissection::Dissected;
use rdmascope_dissector::field::Kind;
use rdmascope_dissector::render::{Stored, Style, json_string, json_value};
use rdmascope_dissector::trace::{Kept, Node, Tree};

pub(crate) struct Json {
    index: Index,
    unique: bool,
    any: bool,
    /// Whether the object at each depth was opened and has no key yet.
    stack: Vec<u8>,
}

/// Depth of indentation of a layer's key.
const LAYER: usize = 8;

const SPACES: &[u8; 128] = &[b' '; 128];

fn line(out: &mut Vec<u8>, indent: usize) {
    out.push(b'\n');
    out.extend_from_slice(&SPACES[..indent.min(128)]);
}

impl Json {
    pub(crate) fn new(unique: bool) -> Self {
        Self { index: Index::new(), unique, any: false, stack: Vec::new() }
    }

    pub(crate) fn begin(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"[");
    }

    pub(crate) fn end(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(if self.any { b"\n]\n" } else { b"]\n" });
    }

    pub(crate) fn frame(&mut self, out: &mut Vec<u8>, d: &Dissected, tree: &Tree) {
        out.extend_from_slice(if self.any { b",\n  {\n    \"_index\": \"" } else { b"\n  {\n    \"_index\": \"" });
        self.any = true;
        out.extend_from_slice(self.index.of(d.time_ns));
        out.extend_from_slice(b"\",\n    \"_type\": \"doc\",\n    \"_score\": null,\n    \"_source\": {\n      \"layers\": {");
        let mut first = true;
        if self.unique {
            let top: Vec<usize> = children(tree, None);
            first = top.is_empty();
            object(out, tree, &top, LAYER);
        } else {
            self.nodes(out, tree);
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

    /// All nodes in order, opening and closing objects as the depth changes.
    fn nodes(&mut self, out: &mut Vec<u8>, tree: &Tree) {
        self.stack.clear();
        let mut indent = LAYER;
        let mut fresh = true;
        let nodes = &tree.nodes;
        for (i, node) in nodes.iter().enumerate() {
            // close what this node is not inside of
            while self.stack.last().is_some_and(|depth| *depth >= node.depth) {
                self.stack.pop();
                indent -= 2;
                line(out, indent);
                out.push(b'}');
                fresh = false;
            }
            if !fresh {
                out.push(b',');
            }
            fresh = false;
            out.reserve(256);
            line(out, indent);
            let parent = nodes.get(i + 1).is_some_and(|next| next.depth > node.depth);
            if !parent {
                key(out, node.def.name, "");
                value(out, tree, node);
                continue;
            }
            if has_value(node) {
                key(out, node.def.name, "");
                value(out, tree, node);
                out.push(b',');
                line(out, indent);
                key(out, node.def.name, "_tree");
            } else {
                key(out, node.def.name, "");
            }
            out.push(b'{');
            self.stack.push(node.depth);
            indent += 2;
            fresh = true;
        }
        while self.stack.pop().is_some() {
            indent -= 2;
            line(out, indent);
            out.push(b'}');
        }
    }
}

fn key(out: &mut Vec<u8>, name: &str, suffix: &str) {
    out.push(b'"');
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(suffix.as_bytes());
    out.extend_from_slice(b"\": ");
}

/// Whether the node shows a value of its own beside its children.
pub(super) fn has_value(node: &Node) -> bool {
    !matches!(node.value, Kept::None) || node.def.kind == Kind::Bytes
}

fn value(out: &mut Vec<u8>, tree: &Tree, node: &Node) {
    out.push(b'"');
    match node.value {
        // the most common by far
        Kept::U(v) => rdmascope_dissector::render::show_into(out, node.def, Stored::U(v), Style::Json),
        _ => json_value(out, node.def, tree.stored(node), Style::Json),
    }
    out.push(b'"');
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

/// The members of an object, each key once.
fn object(out: &mut Vec<u8>, tree: &Tree, members: &[usize], indent: usize) {
    // by name, then in order of appearance; groups again by their first member
    let mut sorted: Vec<usize> = members.to_vec();
    sorted.sort_by_key(|i| (tree.nodes[*i].def.id, *i));
    let mut groups: Vec<&[usize]> = sorted.chunk_by(|a, b| tree.nodes[*a].def.id == tree.nodes[*b].def.id).collect();
    groups.sort_by_key(|g| g[0]);
    let mut fresh = true;
    let comma = |out: &mut Vec<u8>, fresh: &mut bool| {
        if !*fresh {
            out.push(b',');
        }
        *fresh = false;
        line(out, indent);
    };
    for group in groups {
        let name = tree.nodes[group[0]].def.name;
        let values: Vec<usize> = group.iter().copied().filter(|i| has_value(&tree.nodes[*i]) || !tree.has_children(*i)).collect();
        let parents: Vec<usize> = group.iter().copied().filter(|i| tree.has_children(*i)).collect();
        if !values.is_empty() {
            comma(out, &mut fresh);
            key(out, name, "");
            list(out, &values, indent, &mut |out, i, _| value(out, tree, &tree.nodes[i]));
        }
        if !parents.is_empty() {
            comma(out, &mut fresh);
            key(out, name, if values.is_empty() { "" } else { "_tree" });
            list(out, &parents, indent, &mut |out, i, indent| {
                out.push(b'{');
                object(out, tree, &children(tree, Some(i)), indent + 2);
                line(out, indent);
                out.push(b'}');
            });
        }
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
