//! `-V`: every field of a frame, one per line, with its bytes.
//!
//! ```text
//! InfiniBand [42+20]
//!     Base Transport Header [42+12]
//!         Opcode: Reliable Connection (RC) - Acknowledge (17) [42+1]
//! ```
//! Bytes that are not the frame's (a message put together from several) are named: `[Reassembled SMB Direct 0+105]`.

use super::marks::Marks;
use super::{paint, put, styled, styled_with};
use crate::dissection::Dissected;
use rdmascope_dissector::render::{decimal, fault_label, label_into};
use rdmascope_dissector::trace::{Node, NodeValue, Tree};

/// Frames with all their fields, as text.
#[derive(Clone, Default)]
pub struct Trees {
    lines: Lines,
    line: String,
    /// Subtrees that end with a fault and are still open: depth, fault.
    open: Vec<(u8, usize)>,
    seen: Vec<bool>,
}

impl Trees {
    /// Appends a frame.
    pub fn frame(&mut self, out: &mut Vec<u8>, d: &Dissected, tree: &Tree, color: bool, marks: &mut Marks) {
        self.open.clear();
        self.seen.clear();
        self.seen.resize(tree.faults.len(), false);
        for (index, node) in tree.nodes.iter().enumerate() {
            // asked here, as it is not inlined
            if !self.open.is_empty() {
                self.close(out, node.depth, d, tree, color);
            }
            if node.fault > 0 {
                self.open.push((node.depth, usize::from(node.fault) - 1));
            }
            if node.def.hidden {
                continue;
            }
            let from = out.len();
            if color {
                line_into(out, tree, index, color);
            } else {
                self.lines.line_into(out, tree, index);
            }
            marks.written(out, from, node.def, &node.value);
        }
        self.close(out, 0, d, tree, color);
        for i in 0..tree.faults.len() {
            self.fault(out, 0, i, d, tree, color);
        }
        out.push(b'\n');
    }

    /// Ends the subtrees that reach at least as deep as `depth`.
    fn close(&mut self, out: &mut Vec<u8>, depth: u8, d: &Dissected, tree: &Tree, color: bool) {
        while let Some((at, fault)) = self.open.pop_if(|(at, _)| *at >= depth) {
            self.fault(out, at.saturating_add(1), fault, d, tree, color);
        }
    }

    fn fault(&mut self, out: &mut Vec<u8>, depth: u8, index: usize, d: &Dissected, tree: &Tree, color: bool) {
        let (Some((fault, ..)), Some(seen)) = (tree.faults.get(index), self.seen.get_mut(index)) else { return };
        if core::mem::replace(seen, true) {
            return;
        }
        self.line.clear();
        fault_label(&mut self.line, fault, d.is_cut());
        indent(out, depth);
        styled(out, paint::WRONG, color, self.line.as_bytes());
        out.push(b'\n');
    }
}

/// Appends the line of a node.
fn line_into(out: &mut Vec<u8>, tree: &Tree, index: usize, color: bool) {
    let Some(node) = tree.nodes.get(index) else { return };
    indent(out, node.depth);
    let style = if node.depth == 0 { paint::HEADING } else { anstyle::Style::new() };
    styled_with(out, style, color, |out| label_into(out, tree, index));
    if !node.generated {
        styled_with(out, paint::FAINT, color, |out| {
            out.extend_from_slice(b" [");
            if node.source > 0 {
                out.extend_from_slice(source_name(node, tree).as_bytes());
                out.push(b' ');
            }
            decimal(out, u64::from(node.offset));
            out.push(b'+');
            decimal(out, u64::from(node.len));
            out.push(b']');
        });
    }
    out.push(b'\n');
}

fn source_name(node: &Node, tree: &Tree) -> &'static str {
    tree.sources().get(usize::from(node.source)).map_or("", |source| source.name)
}

/// Lines that were written before. Of ten lines of a capture some seven (addresses, flags, lengths, what is reserved)
/// say what an earlier frame said in the same place: copying one takes a fifth of the instructions of writing it.
#[derive(Clone, Default)]
struct Lines {
    /// Each line has one place, which the latest one takes. Empty until the first line.
    lines: Vec<Line>,
}

/// A line, and all that it depends on.
#[derive(Clone)]
struct Line {
    place: Place,
    len: u8,
    text: [u8; Line::TEXT],
}

/// What the text of a line depends on.
#[derive(Clone, PartialEq, Eq, Default)]
struct Place {
    /// The address of the field's definition; 0 where no line is kept.
    def: usize,
    /// The address of the source's name, which `source_len` belongs to; 0 for the frame's own bytes.
    source: usize,
    offset: u32,
    len: u32,
    value: u128,
    depth: u8,
    generated: bool,
    /// Whether the value is none, a number, a signed one, or bytes.
    kind: u8,
    source_len: u8,
}

impl Place {
    /// What the line of a node depends on, and where that line is kept. `None` if it is not: the node has text of its own,
    /// or a value that hardly ever comes again.
    #[inline]
    fn of(node: &Node, tree: &Tree) -> Option<(Self, usize)> {
        let (kind, value) = match node.value {
            NodeValue::None => (0, 0),
            NodeValue::U(v) => (1, u128::from(v)),
            NodeValue::I(v) => (2, u128::from(v.cast_unsigned())),
            NodeValue::Bytes => {
                let covered = tree.covered(node);
                if covered.len() != node.len as usize {
                    return None;
                }
                let mut bytes = [0; 16];
                bytes.get_mut(..covered.len())?.copy_from_slice(covered);
                (3, u128::from_le_bytes(bytes))
            }
            NodeValue::Apart(..) | NodeValue::Text(..) | NodeValue::Time(..) => return None,
        };
        if node.note.1 > 0 {
            return None;
        }
        let source = if node.source > 0 { source_name(node, tree) } else { "" };
        let place = Self {
            def: std::ptr::from_ref(node.def).addr(),
            source: if node.source > 0 { source.as_ptr().addr() } else { 0 },
            offset: node.offset,
            len: node.len,
            value,
            depth: node.depth,
            generated: node.generated,
            kind,
            source_len: u8::try_from(source.len()).ok()?,
        };
        let index = place.index(node.def.id);
        Some((place, index))
    }

    /// Where its line is kept. Made of nothing that differs from run to run, as addresses do.
    #[inline]
    fn index(&self, field: u32) -> usize {
        // odd numbers without a pattern: any will do
        const FACTORS: [u64; 3] = [0x9e37_79b9_7f4a_7c15, 0xc2b2_ae3d_27d4_eb4f, 0x1656_67b1_9e37_79f9];
        let value = self.value as u64 ^ (self.value >> 64) as u64;
        let offset = u64::from(self.offset) ^ u64::from(self.source_len) << 32;
        let sum = u64::from(field).wrapping_mul(FACTORS[0])
            ^ value.wrapping_mul(FACTORS[1])
            ^ offset.wrapping_mul(FACTORS[2]);
        (sum >> 40) as usize % Lines::SIZE
    }
}

impl Line {
    /// The longest line that is kept.
    const TEXT: usize = 128;

    #[inline]
    fn put(&self, out: &mut Vec<u8>) {
        const MOSTLY: usize = 64;
        let len = usize::from(self.len);
        match self.text.first_chunk::<MOSTLY>() {
            Some(text) if len <= MOSTLY => put(out, text, len),
            _ => put(out, &self.text, len),
        }
    }
}

impl Lines {
    /// Number of lines that are kept, a power of two: they fit into the second-level cache.
    const SIZE: usize = 1024;

    /// Appends the line of a node, without colours.
    #[inline]
    fn line_into(&mut self, out: &mut Vec<u8>, tree: &Tree, index: usize) {
        let Some((place, at)) = tree.nodes.get(index).and_then(|node| Place::of(node, tree)) else {
            return line_into(out, tree, index, false);
        };
        if let Some(line) = self.lines.get(at).filter(|line| line.place == place) {
            return line.put(out);
        }
        let from = out.len();
        line_into(out, tree, index, false);
        self.keep(place, at, &out[from..]);
    }

    fn keep(&mut self, place: Place, at: usize, text: &[u8]) {
        if text.len() > Line::TEXT {
            return;
        }
        if self.lines.is_empty() {
            self.lines.resize(Self::SIZE, Line { place: Place::default(), len: 0, text: [0; Line::TEXT] });
        }
        let line = &mut self.lines[at];
        (line.place, line.len) = (place, text.len() as u8);
        line.text[..text.len()].copy_from_slice(text);
    }
}

fn indent(out: &mut Vec<u8>, depth: u8) {
    out.resize(out.len() + 4 * usize::from(depth), b' ');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::streams::f::TCP_STREAM;
    use rdmascope_analyzer::connection::f::{CONNECTION, EXCHANGE};
    use rdmascope_dissector::trace::{Trace, Value};

    /// Nodes over these bytes, each of which differs from the first in one thing.
    fn tree(bytes: &[u8]) -> Tree {
        let mut tree = Tree::new();
        tree.begin(bytes);
        for name in ["Reassembled", "Decrypted"] {
            tree.source(name, bytes);
            tree.end_source();
        }
        tree.field(EXCHANGE, &bytes[2..], 2, Value::U(7));
        let first = tree.nodes[0];
        tree.text.extend_from_slice(b", with a note");
        let note = (0, 13);
        let values = [
            NodeValue::None,
            NodeValue::U(8),
            NodeValue::U(7 << 40),
            NodeValue::I(7),
            NodeValue::I(-7),
            NodeValue::Bytes,
            NodeValue::Apart(2, 2),
            NodeValue::Text(2, 2),
            NodeValue::Time(7, 0),
        ];
        tree.nodes.extend(values.map(|value| Node { value, ..first }));
        let bytes = Node { value: NodeValue::Bytes, ..first };
        tree.nodes.extend([16, 17].map(|len| Node { len, ..bytes }));
        // behind the end of the source
        tree.nodes.extend([60, 63, 64].map(|offset| Node { offset, len: 8, ..bytes }));
        tree.nodes.extend([
            Node { def: CONNECTION, ..first },
            Node { def: TCP_STREAM, ..first },
            Node { source: 1, ..first },
            Node { source: 2, ..first },
            Node { depth: 1, ..first },
            Node { depth: 40, ..first },
            Node { generated: true, ..first },
            Node { offset: 3, ..first },
            Node { len: 1, ..first },
            Node { note, ..first },
        ]);
        tree
    }

    #[test]
    fn a_line_that_is_kept_is_the_line_that_would_be_written() {
        let mut lines = Lines::default();
        let mut others: Vec<u8> = (0..64).collect();
        let trees = [tree(&others), {
            others.reverse();
            tree(&others)
        }];
        for round in 0..3000 {
            let mut tree = trees[round % 2].clone();
            // so many numbers that lines take each other's place
            tree.nodes.push(Node { value: NodeValue::U(round as u64 / 3), ..tree.nodes[0] });
            for index in 0..tree.nodes.len() {
                let (mut kept, mut anew) = (Vec::new(), Vec::new());
                lines.line_into(&mut kept, &tree, index);
                line_into(&mut anew, &tree, index, false);
                assert_eq!(String::from_utf8_lossy(&kept), String::from_utf8_lossy(&anew), "round {round}");
            }
        }
        assert!(lines.lines.iter().filter(|line| line.len > 0).count() > Lines::SIZE / 3, "lines are kept");
    }
}
