//! `-s`: instead of frames, a table of protocols: how many frames name each in their line, and how many bytes these had
//! on the wire.

use crate::dissection::Dissected;
use std::collections::BTreeMap;
use std::io::Write;

/// Counts of frames.
#[derive(Clone, Copy, Debug, Default)]
pub struct Row {
    /// Frames.
    pub frames: u64,
    /// Their bytes on the wire.
    pub bytes: u64,
    /// Those with something that could not be decoded.
    pub malformed: u64,
    /// Those that the capture cut short.
    pub cut: u64,
}

impl Row {
    fn add(&mut self, d: &Dissected, faults: bool) {
        self.frames += 1;
        self.bytes += u64::from(d.wire_len);
        self.malformed += u64::from(faults && !d.is_cut());
        self.cut += u64::from(d.is_cut());
    }
}

/// The counts of `-s`.
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
            let _ =
                writeln!(out, "{name:<20} {:>12} {:>16} {:>10} {:>10}", row.frames, row.bytes, row.malformed, row.cut);
        }
    }

    /// The counts of all frames, and by protocol.
    pub fn counts(&self) -> (Row, impl Iterator<Item = (&'static str, Row)>) {
        (self.all, self.rows.iter().map(|(name, row)| (*name, *row)))
    }
}
