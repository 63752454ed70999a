//! `-T pdml`: Packet Details Markup Language, the XML that Wireshark writes: `proto` and `field` elements with offset
//! (`pos`), length (`size`), value for programs (`show`), for people (`showname`), and as bytes (`value`).

use super::faults;
use super::marks::Marks;
use super::shape::Shape;
use crate::dissection::Dissected;
use rdmascope_dissector::field::Kind;
use rdmascope_dissector::render::{
    Style, decimal, hex_bytes, is_text, label, seconds_and_nanos, show, show_into, xml_text,
};
use rdmascope_dissector::trace::{NodeValue, Tree};
use std::io::Write;

/// Frames in the form of `-T pdml`.
#[derive(Clone, Default)]
pub struct Pdml {
    line: String,
    open: Vec<(u8, bool)>,
}

impl Pdml {
    /// Opens the document.
    pub fn begin(out: &mut Vec<u8>, file: &str) {
        out.extend_from_slice(b"<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<pdml version=\"0\" creator=\"rdmascope/");
        out.extend_from_slice(env!("CARGO_PKG_VERSION").as_bytes());
        out.extend_from_slice(b"\" capture_file=\"");
        xml_text(out, file);
        out.extend_from_slice(b"\">\n");
    }

    /// Closes the document.
    pub fn end(out: &mut Vec<u8>) {
        out.extend_from_slice(b"</pdml>\n");
    }

    /// Appends a frame.
    pub fn frame(&mut self, out: &mut Vec<u8>, d: &Dissected, tree: &Tree, shape: &Shape, marks: &mut Marks) {
        out.extend_from_slice(b"<packet>\n");
        let size = d.cap_len;
        let _ = writeln!(out, "  <proto name=\"geninfo\" pos=\"0\" showname=\"General information\" size=\"{size}\">");
        for (name, shown, value) in [
            ("num", "Number", d.number),
            ("len", "Frame Length", u64::from(d.wire_len)),
            ("caplen", "Captured Length", u64::from(d.cap_len)),
        ] {
            let _ = writeln!(
                out,
                "    <field name=\"{name}\" pos=\"0\" show=\"{value}\" showname=\"{shown}\" value=\"{value:x}\" \
                    size=\"{size}\"/>"
            );
        }
        out.extend_from_slice(b"    <field name=\"timestamp\" pos=\"0\" show=\"");
        let def = rdmascope_dissector::wire::frame_fields::f::TIME;
        let stored = rdmascope_dissector::render::Stored::Time(
            d.time_ns.div_euclid(1_000_000_000),
            d.time_ns.rem_euclid(1_000_000_000) as u32,
        );
        show_into(out, def, stored, Style::Pdml);
        out.extend_from_slice(b"\" showname=\"Captured Time\" value=\"");
        seconds_and_nanos(out, d.time_ns.div_euclid(1_000_000_000), d.time_ns.rem_euclid(1_000_000_000) as u32);
        let _ = writeln!(out, "\" size=\"{size}\"/>\n  </proto>");
        self.nodes(out, tree, shape, marks);
        for (name, why) in faults(tree, d.is_cut()) {
            let _ = write!(out, "  <proto name=\"{name}\" showname=\"");
            xml_text(out, &why);
            out.extend_from_slice(b"\" size=\"0\" pos=\"0\"/>\n");
        }
        out.extend_from_slice(b"</packet>\n\n");
    }

    fn nodes(&mut self, out: &mut Vec<u8>, tree: &Tree, shape: &Shape, marks: &mut Marks) {
        self.open.clear();
        for (i, node) in tree.nodes.iter().enumerate() {
            self.close(out, node.depth);
            let from = out.len();
            let proto = node.def.kind == Kind::Protocol;
            indent(out, node.depth);
            out.extend_from_slice(if proto { b"<proto name=\"" } else { b"<field name=\"" });
            let key = shape.key(tree, i);
            if let Some((label, note)) = key {
                out.extend_from_slice(b"\" show=\"");
                xml_text(out, label);
                xml_text(out, note);
            } else {
                out.extend_from_slice(node.def.name.as_bytes());
                out.extend_from_slice(b"\" showname=\"");
                self.line.clear();
                label(&mut self.line, tree, i);
                // the brackets around computed values belong to the detail pane
                let text = if node.generated && node.def.kind != Kind::Protocol {
                    self.line.trim_start_matches('[').trim_end_matches(']')
                } else {
                    &self.line
                };
                xml_text(out, text);
            }
            if node.def.hidden {
                out.extend_from_slice(b"\" hide=\"yes");
            }
            let size = if node.generated { 0 } else { node.len };
            out.extend_from_slice(b"\" size=\"");
            decimal(out, u64::from(size));
            out.extend_from_slice(b"\" pos=\"");
            decimal(out, u64::from(node.offset));
            out.push(b'"');
            let stored = tree.stored(node);
            if !proto {
                if key.is_none() {
                    out.extend_from_slice(b" show=\"");
                    if is_text(node.def, stored) {
                        xml_text(out, &show(node.def, stored, Style::Pdml));
                    } else {
                        show_into(out, node.def, stored, Style::Pdml);
                    }
                    out.push(b'"');
                }
                if size > 0 {
                    out.extend_from_slice(b" value=\"");
                    match node.value {
                        NodeValue::U(v) if node.def.mask != 0 => {
                            let _ = write!(out, "{v:X}\" unmaskedvalue=\"");
                        }
                        _ => {}
                    }
                    hex_bytes(out, tree.covered(node), None);
                    out.push(b'"');
                }
            }
            marks.written(out, from, node.def, &node.value);
            if tree.has_children(i) {
                self.open.push((node.depth, proto));
                out.extend_from_slice(b">\n");
            } else {
                out.extend_from_slice(b"/>\n");
            }
        }
        self.close(out, 0);
    }

    fn close(&mut self, out: &mut Vec<u8>, depth: u8) {
        while let Some((at, proto)) = self.open.pop_if(|(at, _)| *at >= depth) {
            indent(out, at);
            out.extend_from_slice(if proto { b"</proto>\n" } else { b"</field>\n" });
        }
    }
}

fn indent(out: &mut Vec<u8>, depth: u8) {
    out.resize(out.len() + 2 + 2 * usize::from(depth), b' ');
}
