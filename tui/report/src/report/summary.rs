//! The counts of `dissect -s` as one object, for programs.

use super::schema::{Named, document, object};
use crate::output::summary::{Row, Summary};

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
    struct Root {
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

/// Appends the counts as one object, a line.
pub fn render(summary: &Summary, out: &mut Vec<u8>) {
    let (Row { frames, bytes, malformed, cut }, rows) = summary.counts();
    let of = |(name, row): (&'static str, Row)| {
        (name, Counts { frames: row.frames, bytes: row.bytes, malformed: row.malformed, cut: row.cut })
    };
    let root = Root { frames, bytes, malformed, cut, protocols: Named(rows.map(of).collect()) };
    // writing to a vector cannot fail
    if serde_json::to_writer(&mut *out, &root).is_ok() {
        out.push(b'\n');
    }
}

/// The JSON Schema of what [`render`] writes.
pub fn schema() -> serde_json::Value {
    document::<Root>("rdmascope dissect -s -T json")
}
