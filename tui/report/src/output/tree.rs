//! `-V`: every field of a frame, one per line, with its bytes.
//!
//! ```text
//! InfiniBand [42+20]
//!     Base Transport Header [42+12]
//!         Opcode: Reliable Connection (RC) - Acknowledge (17) [42+1]
//! ```
//! Bytes that are not the frame's (a message put together from several) are named: `[Reassembled SMB Direct 0+105]`.

use super::kept::{Depends, Kept, Levels, Pieces};
use super::marks::Marks;
use super::{paint, styled, styled_with};
use crate::dissection::Dissected;
use rdmascope_dissector::render::{decimal, fault_label, label_into, value_label_into};
use rdmascope_dissector::trace::{Node, Tree};
use std::ops::Range;

/// Frames with all their fields, as text.
#[derive(Clone, Default)]
pub struct Trees {
    kept: Kept,
    line: String,
    /// Subtrees that end with a fault and are still open: depth, fault.
    open: Vec<(u8, usize)>,
    seen: Vec<bool>,
}

impl Trees {
    /// Appends a frame.
    pub fn frame(&mut self, out: &mut Vec<u8>, d: &Dissected, tree: &Tree, color: bool, marks: &mut Marks) {
        if !color && tree.faults.is_empty() {
            self.kept.frame(out, tree, [d.src, d.dst], &mut Lines { color }, marks, |_, _| {});
            out.push(b'\n');
            return;
        }
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
            Lines { color }.piece(out, tree, index, Levels::default(), marks);
        }
        self.close(out, 0, d, tree, color);
        for i in 0..tree.faults.len() {
            self.fault(out, 0, i, d, tree, color);
        }
        out.push(b'\n');
    }

    /// Number of layers whose lines are kept.
    #[cfg(test)]
    pub(super) fn kept_layers(&self) -> usize {
        self.kept.kept()
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

/// Appends the line of a node. Returns what [`label_into`] does.
fn line_into(out: &mut Vec<u8>, tree: &Tree, index: usize, color: bool) -> Option<Range<usize>> {
    let node = tree.nodes.get(index)?;
    indent(out, node.depth);
    let style = if node.depth == 0 { paint::HEADING } else { anstyle::Style::new() };
    let mut value = None;
    styled_with(out, style, color, |out| value = label_into(out, tree, index));
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
    value
}

fn source_name(node: &Node, tree: &Tree) -> &'static str {
    tree.sources().get(usize::from(node.source)).map_or("", |source| source.name)
}

/// Lines of nodes.
struct Lines {
    color: bool,
}

impl Pieces for Lines {
    const PLACES: bool = true;

    fn piece(
        &mut self,
        out: &mut Vec<u8>,
        tree: &Tree,
        index: usize,
        _: Levels,
        marks: &mut Marks,
    ) -> Option<Range<usize>> {
        let node = &tree.nodes[index];
        if node.def.hidden {
            return None;
        }
        let from = out.len();
        let value = line_into(out, tree, index, self.color);
        marks.written(out, from, node.def, &node.value);
        value
    }

    #[inline]
    fn value(&mut self, out: &mut Vec<u8>, tree: &Tree, node: &Node) {
        value_label_into(out, node.def, tree.stored(node));
    }

    fn depends(&self, node: &Node) -> Depends {
        if node.def.hidden { Depends::Nothing } else { Depends::Value }
    }

    /// A line does not show the bytes of a node without a value.
    fn shown<'t>(&self, _: &'t Tree, _: &Node, _: bool) -> &'t [u8] {
        &[]
    }
}

fn indent(out: &mut Vec<u8>, depth: u8) {
    out.resize(out.len() + 4 * usize::from(depth), b' ');
}
