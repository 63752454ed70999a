//! One file per form of output. All are made from the same tree or probe; what they share is here.

pub mod ek;
pub mod fields;
pub mod hex;
pub mod json;
pub mod lines;
pub mod pdml;
pub mod summary;
pub mod tree;

use anstyle::{AnsiColor, Style};
use rdmascope_dissector::fault::FaultKind;
use rdmascope_dissector::render;
use rdmascope_dissector::trace::Tree;

/// Colours by meaning. All of them can be read on a light and on a dark ground, and none says what the text does not say too.
pub mod paint {
    use super::{AnsiColor, Style};

    const fn of(color: AnsiColor) -> Style {
        Style::new().fg_color(Some(anstyle::Color::Ansi(color)))
    }
    /// What went wrong.
    pub const WRONG: Style = of(AnsiColor::Red).bold();
    /// What is less important.
    pub const FAINT: Style = Style::new().dimmed();
    /// A heading, the beginning of a layer.
    pub const HEADING: Style = Style::new().bold();
    /// File and procedure calls: SMB2, NFS.
    pub const CALLS: Style = of(AnsiColor::Green);
    /// The layer that carries them: SMB Direct, RPC-over-RDMA.
    pub const CARRIER: Style = of(AnsiColor::Cyan);
    /// RDMA itself.
    pub const RDMA: Style = of(AnsiColor::Magenta);
}

/// Appends `text` in a style, or as it is.
pub fn styled(out: &mut Vec<u8>, style: Style, color: bool, text: &[u8]) {
    use std::io::Write;
    if color {
        let _ = write!(out, "{style}");
        out.extend_from_slice(text);
        let _ = write!(out, "{style:#}");
    } else {
        out.extend_from_slice(text);
    }
}

/// The day of a time, as Wireshark names the index of its JSON: `packets-2026-11-21`.
#[derive(Clone)]
pub(crate) struct Index {
    day: i64,
    text: Vec<u8>,
}

impl Index {
    /// Before the first frame.
    pub(crate) fn new() -> Self {
        Self { day: i64::MIN, text: Vec::new() }
    }

    /// The index of a frame captured at `time_ns`; made anew only where the day changes.
    pub(crate) fn of(&mut self, time_ns: i64) -> &[u8] {
        let day = time_ns.div_euclid(86_400_000_000_000);
        if day != self.day {
            self.day = day;
            let def = rdmascope_dissector::wire::frame_fields::f::TIME;
            let date = render::show(def, render::Stored::Time(day * 86_400, 0), render::Style::Json);
            self.text = format!("packets-{}", date.split('T').next().unwrap_or("")).into_bytes();
        }
        &self.text
    }
}

/// What the faults of a frame are told as: the field's name and the reason. Missing bytes of a frame that the capture cut
/// are Wireshark's `_ws.short`, all else is `_ws.malformed`.
pub fn faults(tree: &Tree, cut: bool) -> impl Iterator<Item = (&'static str, String)> + '_ {
    tree.faults.iter().map(move |(fault, ..)| {
        let name = if fault.kind == FaultKind::Short && cut { "_ws.short" } else { "_ws.malformed" };
        (name, fault.to_string())
    })
}
