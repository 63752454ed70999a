//! A line per frame: number, seconds since the first frame, source, destination, protocol, length, and what it says.
//!
//! ```text
//!    62  11.383631    192.0.2.2 → 192.0.2.1    SMB2 190 GetInfo Request
//! ```

use super::{paint, styled};
use crate::dissection::{Dissected, Shown};
use anstyle::Style;
use rdmascope_dissector::render::{decimal, is_unsafe};
use std::io::Write;

/// Columns as wide as an IPv4 address; a longer one shifts the rest of its own line only.
const ADDRESS: usize = 15;

/// Writes the lines.
pub struct Lines {
    color: bool,
    protocol: usize,
    buffer: Vec<u8>,
}

impl Lines {
    /// Coloured or not.
    pub fn new(color: bool) -> Self {
        Self { color, protocol: 8, buffer: Vec::new() }
    }

    /// Appends the line of a frame.
    pub fn frame(&mut self, out: &mut Vec<u8>, d: &Dissected, protocol: &str, info: &str, faults: bool) {
        let protocol = if protocol.is_empty() { d.other } else { protocol };
        let start = out.len();
        right(out, 5, |o| decimal(o, d.number));
        out.push(b' ');
        right(out, 11, |o| seconds(o, d.relative_ns));
        out.push(b' ');
        self.buffer.clear();
        // writing to a vector cannot fail
        let _ = write!(self.buffer, "{}", Shown(d.src));
        let pad = ADDRESS.saturating_sub(self.buffer.len());
        out.resize(out.len() + pad, b' ');
        out.extend_from_slice(&self.buffer);
        out.extend_from_slice(" → ".as_bytes());
        let at = out.len();
        let _ = write!(out, "{}", Shown(d.dst));
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
        // a frame that says nothing leaves no spaces behind
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
        "InfiniBand" | "RRoCE" | "RoCE" | "MPA" | "DDP" | "RDMAP" | "DDP/RDMA" | "iWARP" | "CM" | "InfiniBand CM" => paint::RDMA,
        _ => paint::FAINT,
    }
}

/// What `write` appends, aligned to the right of `width` columns.
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

/// Seconds with six decimals; the rest of a nanosecond clock is in `frame.time_relative`.
fn seconds(out: &mut Vec<u8>, ns: i64) {
    if ns < 0 {
        out.push(b'-');
    }
    let micros = ns.unsigned_abs() / 1000;
    decimal(out, micros / 1_000_000);
    out.push(b'.');
    let mut rest = micros % 1_000_000;
    let mut digits = [b'0'; 6];
    for d in digits.iter_mut().rev() {
        *d += (rest % 10) as u8;
        rest /= 10;
    }
    out.extend_from_slice(&digits);
}

fn escaped(out: &mut Vec<u8>, text: &str) {
    if text.chars().any(is_unsafe) {
        out.extend_from_slice(rdmascope_dissector::render::escaped(text).as_bytes());
    } else {
        out.extend_from_slice(text.as_bytes());
    }
}
