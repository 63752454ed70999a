//! `-s`: instead of frames, a table of protocols: how many frames name each in their line, and how many bytes these had on the wire.

use crate::dissection::Dissected;
use crate::report::schema::{Named, document, object};
use std::collections::BTreeMap;
use std::io::Write;

#[derive(Default)]
struct Row {
    frames: u64,
    bytes: u64,
    malformed: u64,
    cut: u64,
}

impl Row {
    fn add(&mut self, d: &Dissected, faults: bool) {
        self.frames += 1;
        self.bytes += u64::from(d.wire_len);
        self.malformed += u64::from(faults && !d.is_cut());
        self.cut += u64::from(d.is_cut());
    }
}

/// What `-s` counts.
#[derive(Default)]
pub struct Summary {
    rows: BTreeMap<&'static str, Row>,
    all: Row,
}

impl Summary {
    /// Counts a frame.
    pub fn frame(&mut self, d: &Dissected, protocol: &'static str, faults: bool) {
        let name = if protocol.is_empty() { d.other } else { protocol };
        self.rows.entry(name).or_default().add(d, faults);
        self.all.add(d, faults);
    }

    /// Appends the counts as text.
    pub fn text(&self, out: &mut Vec<u8>) {
        let _ = writeln!(out, "{:<20} {:>12} {:>16} {:>10} {:>10}", "Protocol", "Frames", "Bytes", "Malformed", "Cut");
        let mut rows: Vec<_> = self.rows.iter().collect();
        rows.sort_by_key(|(_, row)| std::cmp::Reverse(row.frames));
        for (name, row) in rows.into_iter().chain([(&"all", &self.all)]) {
            let _ = writeln!(out, "{name:<20} {:>12} {:>16} {:>10} {:>10}", row.frames, row.bytes, row.malformed, row.cut);
        }
    }

    /// Appends the counts as one object.
    pub fn json(&self, out: &mut Vec<u8>) {
        let of = |row: &Row| Counts { frames: row.frames, bytes: row.bytes, malformed: row.malformed, cut: row.cut };
        let protocols = Named(self.rows.iter().map(|(name, row)| (*name, of(row))).collect());
        let Counts { frames, bytes, malformed, cut } = of(&self.all);
        // writing to a vector cannot fail
        if serde_json::to_writer(&mut *out, &Report { frames, bytes, malformed, cut, protocols }).is_ok() {
            out.push(b'\n');
        }
    }
}

/// The JSON Schema of what [`Summary::json`] writes.
pub fn schema() -> serde_json::Value {
    document::<Report>("rdmascope dissect -s -T json")
}

object! {
    /// Counts of frames.
    struct Counts {
        /// Frames.
        frames: u64,
        /// Their bytes on the wire.
        bytes: u64,
        /// Those with something that could not be decoded.
        malformed: u64,
        /// Those that the capture cut short.
        cut: u64,
    }
}

object! {
    /// Counts of all frames, and by protocol.
    struct Report {
        /// Frames.
        frames: u64,
        /// Their bytes on the wire.
        bytes: u64,
        /// Those with something that could not be decoded.
        malformed: u64,
        /// Those that the capture cut short.
        cut: u64,
        /// The same by the protocol that the line of a frame names.
        protocols: Named<Counts>,
    }
}
