//! `-T ek`: two lines of JSON per frame, for Elasticsearch's bulk API. Layers are flat: `"udp_udp_srcport": "4791"`,
//! and a field that occurs several times is an array. Each field is prefixed with its protocol in Wireshark. `text` has
//! the subtrees that are not fields there.

use super::marks::Marks;
use super::shape::Shape;
use super::{Index, faults};
use crate::dissection::Dissected;
use crate::output::json::has_value;
use rdmascope_dissector::field::{Def, Kind};
use rdmascope_dissector::render::{Style, decimal, json_string, json_value};
use rdmascope_dissector::trace::Tree;
use std::ops::Range;

/// Frames in the form of `-T ek`.
#[derive(Clone)]
pub struct Ek {
    index: Index,
    /// Fields of the layer being written: id, node.
    fields: Vec<(u32, usize)>,
    groups: Vec<(usize, usize, usize)>,
}

impl Default for Ek {
    fn default() -> Self {
        Self::new()
    }
}

impl Ek {
    /// Before the first frame.
    pub fn new() -> Self {
        Self { index: Index::new(), fields: Vec::new(), groups: Vec::new() }
    }

    /// Appends a frame.
    pub fn frame(&mut self, out: &mut Vec<u8>, d: &Dissected, tree: &Tree, shape: &Shape, marks: &mut Marks) {
        out.extend_from_slice(b"{\"index\":{\"_index\":\"");
        out.extend_from_slice(self.index.of(d.time_ns));
        out.extend_from_slice(b"\"}}\n{\"timestamp\":\"");
        decimal(out, u64::try_from(d.time_ns / 1_000_000).unwrap_or(0));
        out.extend_from_slice(b"\",\"layers\":{");
        let mut tops: Vec<(usize, usize)> = Vec::new();
        for (i, node) in tree.nodes.iter().enumerate().filter(|(_, n)| n.depth == 0) {
            if let Some(last) = tops.last_mut() {
                last.1 = i;
            }
            let _ = node;
            tops.push((i, tree.nodes.len()));
        }
        // a layer that occurs again (IP in a tunnel) is put beside the first, in an array
        let mut sorted = tops.clone();
        sorted.sort_by_key(|(i, _)| (tree.nodes[*i].def.id, *i));
        let mut layers: Vec<&[(usize, usize)]> =
            sorted.chunk_by(|a, b| tree.nodes[a.0].def.id == tree.nodes[b.0].def.id).collect();
        layers.sort_by_key(|l| l[0].0);
        let mut fresh = true;
        for layer in layers {
            comma(out, &mut fresh);
            out.push(b'"');
            underscored(out, tree.nodes[layer[0].0].def.name);
            out.extend_from_slice(b"\":");
            if layer.len() > 1 {
                out.push(b'[');
            }
            for (n, (from, to)) in layer.iter().enumerate() {
                if n > 0 {
                    out.push(b',');
                }
                self.layer(out, tree, shape, marks, *from..*to);
            }
            if layer.len() > 1 {
                out.push(b']');
            }
        }
        for (name, why) in faults(tree, d.is_cut()).take(1) {
            comma(out, &mut fresh);
            out.push(b'"');
            underscored(out, name);
            out.extend_from_slice(b"\":\"");
            json_string(out, &why);
            out.push(b'"');
        }
        out.extend_from_slice(b"}}\n");
    }

    fn layer(
        &mut self,
        out: &mut Vec<u8>,
        tree: &Tree,
        shape: &Shape,
        marks: &mut Marks,
        Range { start: from, end: to }: Range<usize>,
    ) {
        self.fields.clear();
        self.groups.clear();
        // a layer that is a field itself (a trailer) is its own only field
        let first = if tree.has_children(from) || !has_value(&tree.nodes[from]) { from + 1 } else { from };
        for (i, node) in tree.nodes[..to].iter().enumerate().skip(first) {
            if has_value(node) {
                self.fields.push((node.def.id, i));
            }
        }
        self.fields.sort_unstable();
        let mut start = 0;
        for same in self.fields.chunk_by(|a, b| a.0 == b.0) {
            self.groups.push((same[0].1, start, start + same.len()));
            start += same.len();
        }
        self.groups.sort_unstable();
        out.push(b'{');
        let mut fresh = true;
        for (at, start, end) in &self.groups {
            comma(out, &mut fresh);
            out.push(b'"');
            underscored(out, if shape.is_short() { tree.nodes[from].def.name } else { protocol(tree.nodes[*at].def) });
            out.push(b'_');
            underscored(out, tree.nodes[*at].def.name);
            out.extend_from_slice(b"\":");
            let several = end - start > 1;
            if several {
                out.push(b'[');
            }
            for (n, (_, i)) in self.fields[*start..*end].iter().enumerate() {
                if n > 0 {
                    out.push(b',');
                }
                let node = &tree.nodes[*i];
                let quoted = node.def.kind != Kind::Bool;
                if quoted {
                    out.push(b'"');
                }
                let start = out.len();
                json_value(out, node.def, tree.stored(node), Style::Ek);
                marks.written(out, start, node.def, &node.value);
                if quoted {
                    out.push(b'"');
                }
            }
            if several {
                out.push(b']');
            }
        }
        let texts: Vec<(&str, &str)> = (from + 1..to).filter_map(|i| shape.key(tree, i)).collect();
        if !texts.is_empty() {
            comma(out, &mut fresh);
            out.extend_from_slice(b"\"text\":");
            for (n, (label, note)) in texts.iter().enumerate() {
                out.extend_from_slice(if n > 0 {
                    b",\""
                } else if texts.len() > 1 {
                    b"[\""
                } else {
                    b"\""
                });
                json_string(out, label);
                json_string(out, note);
                out.push(b'"');
            }
            if texts.len() > 1 {
                out.push(b']');
            }
        }
        out.push(b'}');
    }
}

/// The protocol that Wireshark counts a field to: the first part of its name, but for these.
fn protocol(def: Def) -> &'static str {
    const OTHER: [(&str, &str); 7] = [
        ("nt.", "smb"),
        ("iwarp_rdma", "iwarp_ddp_rdmap"),
        ("iwarp_ddp", "iwarp_ddp_rdmap"),
        ("ipv6.routing.", "ipv6.routing"),
        ("ipv6.hopopts.", "ipv6.hopopts"),
        ("ipv6.fraghdr.", "ipv6.fraghdr"),
        ("ipv6.dstopts.", "ipv6.dstopts"),
    ];
    OTHER
        .iter()
        .find(|(prefix, _)| def.name.starts_with(prefix))
        .map_or_else(|| def.protocol(), |(_, protocol)| protocol)
}

fn comma(out: &mut Vec<u8>, fresh: &mut bool) {
    if !*fresh {
        out.push(b',');
    }
    *fresh = false;
}

fn underscored(out: &mut Vec<u8>, name: &str) {
    out.extend(name.bytes().map(|b| if b == b'.' { b'_' } else { b }));
}
