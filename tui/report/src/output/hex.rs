//! `-x`: bytes, sixteen to a line, of the frame and of everything reassembled in it.

use super::{paint, styled};
use rdmascope_dissector::trace::Tree;
use std::io::Write;

/// Appends the bytes of a frame, and of everything reassembled from it.
pub fn frame(out: &mut Vec<u8>, tree: &Tree, color: bool) {
    let several = tree.sources().len() > 1;
    for source in tree.sources() {
        if several {
            let mut heading = Vec::new();
            let _ = write!(heading, "{} ({} bytes):", source.name, source.bytes.len());
            styled(out, paint::HEADING, color, &heading);
            out.push(b'\n');
        }
        dump(out, &source.bytes);
        out.push(b'\n');
    }
}

fn dump(out: &mut Vec<u8>, bytes: &[u8]) {
    let digits = if bytes.len() > 0x1_0000 { 8 } else { 4 };
    for (row, line) in bytes.chunks(16).enumerate() {
        let _ = write!(out, "{:0digits$x}  ", row * 16);
        for i in 0..16 {
            match line.get(i) {
                Some(b) => {
                    let _ = write!(out, "{b:02x} ");
                }
                None => out.extend_from_slice(b"   "),
            }
        }
        out.extend_from_slice(b"  ");
        out.extend(line.iter().map(|b| if matches!(b, 0x20..=0x7e) { *b } else { b'.' }));
        out.push(b'\n');
    }
}
