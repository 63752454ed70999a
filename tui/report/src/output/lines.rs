//! A line per frame: number, seconds since the first frame, source, destination, protocol, length, and info text.
//!
//! ```text
//!    62  11.383631    192.0.2.2 → 192.0.2.1    SMB2 190 GetInfo Request
//! ```

use super::times::Times;
use super::{paint, styled};
use crate::dissection::{Dissected, FrameAddress};
use anstyle::Style;
use rdmascope_dissector::render::{decimal, xml_text};
use rdmascope_dissector::text::Escaped;
use std::io::Write;

/// Columns as wide as an IPv4 address; a longer one shifts the rest of its own line only.
const ADDRESS: usize = 15;

/// Separator of columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// Spaces.
    #[default]
    Text,
    /// Tabs: `-T tabs`.
    Tabs,
    /// XML: `-T psml`.
    Psml,
}

/// Writes the lines.
#[derive(Clone)]
pub struct Lines {
    color: bool,
    form: Form,
    times: Times,
    protocol: usize,
    buffer: Vec<u8>,
}

impl Lines {
    /// Coloured or not.
    pub fn new(color: bool) -> Self {
        Self { color, form: Form::Text, times: Times::default(), protocol: 8, buffer: Vec::new() }
    }

    /// With other times, in another form.
    pub fn with(mut self, times: Times, form: Form) -> Self {
        self.color &= form == Form::Text;
        Self { times, form, ..self }
    }

    /// True if a line depends on earlier frames only through the width of its columns.
    pub fn is_alone(&self) -> bool {
        !self.times.is_of_order()
    }

    /// Columns of the protocol so far.
    pub fn width(&self) -> usize {
        self.protocol
    }

    /// Sets the width of the protocol column, as after earlier lines.
    pub fn set_width(&mut self, width: usize) {
        self.protocol = width;
    }

    /// The line of a frame is written elsewhere.
    pub fn widen(&mut self, d: &Dissected, protocol: &str) {
        if self.form == Form::Text {
            let protocol = if protocol.is_empty() { d.other } else { protocol };
            self.protocol = self.protocol.max(protocol.len()).min(16);
        }
    }

    /// Text before the first line.
    pub fn begin(&self, out: &mut Vec<u8>) {
        if self.form != Form::Psml {
            return;
        }
        out.extend_from_slice(b"<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<psml version=\"0\" creator=\"rdmascope/");
        out.extend_from_slice(env!("CARGO_PKG_VERSION").as_bytes());
        out.extend_from_slice(b"\">\n<structure>\n");
        for column in ["No.", "Time", "Source", "Destination", "Protocol", "Length", "Info"] {
            // writing to a vector cannot fail
            let _ = writeln!(out, "<section>{column}</section>");
        }
        out.extend_from_slice(b"</structure>\n\n");
    }

    /// Text after the last line.
    pub fn end(&self, out: &mut Vec<u8>) {
        if self.form == Form::Psml {
            out.extend_from_slice(b"</psml>\n");
        }
    }

    fn columns(&mut self, out: &mut Vec<u8>, d: &Dissected, protocol: &str, info: &str) {
        let mut time = Vec::new();
        self.times.write(&mut time, d);
        let texts = [
            d.number.to_string(),
            String::from_utf8_lossy(&time).into_owned(),
            FrameAddress(d.src).to_string(),
            FrameAddress(d.dst).to_string(),
            protocol.to_owned(),
            d.wire_len.to_string(),
            info.to_owned(),
        ];
        if self.form == Form::Psml {
            out.extend_from_slice(b"<packet>\n");
            for text in texts {
                out.extend_from_slice(b"<section>");
                xml_text(out, &text);
                out.extend_from_slice(b"</section>\n");
            }
            out.extend_from_slice(b"</packet>\n\n");
            return;
        }
        for (n, text) in texts.iter().enumerate() {
            if n > 0 {
                out.push(b'\t');
            }
            escaped(out, text);
        }
        out.push(b'\n');
    }

    /// Appends the line of a frame.
    pub fn frame(&mut self, out: &mut Vec<u8>, d: &Dissected, protocol: &str, info: &str, faults: bool) {
        let protocol = if protocol.is_empty() { d.other } else { protocol };
        if self.form != Form::Text {
            return self.columns(out, d, protocol, info);
        }
        let start = out.len();
        right(out, 5, |o| decimal(o, d.number));
        out.push(b' ');
        right(out, 11, |o| self.times.write(o, d));
        out.push(b' ');
        self.buffer.clear();
        // writing to a vector cannot fail
        let _ = write!(self.buffer, "{}", FrameAddress(d.src));
        let pad = ADDRESS.saturating_sub(self.buffer.len());
        out.resize(out.len() + pad, b' ');
        out.extend_from_slice(&self.buffer);
        out.extend_from_slice(" → ".as_bytes());
        let at = out.len();
        let _ = write!(out, "{}", FrameAddress(d.dst));
        let written = out.len() - at;
        out.resize(out.len() + ADDRESS.saturating_sub(written) + 1, b' ');
        self.protocol = self.protocol.max(protocol.len()).min(16);
        let style = if self.color { style_of(protocol) } else { Style::new() };
        if self.color {
            let _ = write!(out, "{style}");
        }
        out.extend_from_slice(protocol.as_bytes());
        out.resize(out.len() + self.protocol.saturating_sub(protocol.len()) + 1, b' ');
        right(out, 5, |o| decimal(o, u64::from(d.wire_len)));
        out.push(b' ');
        escaped(out, info);
        if self.color {
            let _ = write!(out, "{style:#}");
        }
        if faults {
            out.push(b' ');
            styled(out, paint::WRONG, self.color, if d.is_cut() { b"[Cut by the capture]" } else { b"[Malformed]" });
        }
        // a frame without info leaves no spaces at the end
        while out.len() > start && out.last() == Some(&b' ') {
            out.pop();
        }
        out.push(b'\n');
    }
}

fn style_of(protocol: &str) -> Style {
    match protocol {
        "SMB2" | "NFS" | "RPC" | "MOUNT" => paint::CALLS,
        "SMB-Direct" | "RPC-over-RDMA" | "RPCoRDMA" => paint::CARRIER,
        "InfiniBand" | "RRoCE" | "RoCE" | "MPA" | "DDP" | "RDMAP" | "DDP/RDMA" | "iWARP" | "CM" | "InfiniBand CM" => {
            paint::RDMA
        }
        _ => paint::FAINT,
    }
}

/// Appends the output of `write`, aligned to the right of `width` columns.
fn right(out: &mut Vec<u8>, width: usize, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    write(out);
    let written = out.len() - start;
    if written < width {
        let pad = width - written;
        out.resize(out.len() + pad, b' ');
        out[start..].rotate_right(pad);
    }
}

fn escaped(out: &mut Vec<u8>, text: &str) {
    // writing to a vector cannot fail
    let _ = write!(out, "{}", Escaped(text));
}
