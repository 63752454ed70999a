//! Output formats, one file each. All are made from the same tree or extractor; shared code is here.

pub mod ek;
pub mod fields;
pub mod follow;
pub mod hex;
pub mod json;
mod kept;
pub mod lines;
pub mod marks;
pub mod pdml;
pub mod shape;
pub mod summary;
pub mod taps;
pub mod times;
pub mod tree;

use anstyle::{AnsiColor, Style};
use rdmascope_dissector::fault::FaultKind;
use rdmascope_dissector::render;
use rdmascope_dissector::text::is_unsafe;
use rdmascope_dissector::trace::Tree;
use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};
use std::borrow::Cow;
use std::io::{self, Write};

/// Colours by meaning. All of them can be read on a light and on a dark background, and none carries information that
/// the text does not have.
pub mod paint {
    use super::{AnsiColor, Style};

    const fn of(color: AnsiColor) -> Style {
        Style::new().fg_color(Some(anstyle::Color::Ansi(color)))
    }
    /// Style of errors.
    pub const WRONG: Style = of(AnsiColor::Red).bold();
    /// Style of less important text.
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

/// Appends `text`, in a style if `color` is set.
pub fn styled(out: &mut Vec<u8>, style: Style, color: bool, text: &[u8]) {
    styled_with(out, style, color, |out| out.extend_from_slice(text));
}

/// The same with text that `write` appends.
#[inline]
pub fn styled_with(out: &mut Vec<u8>, style: Style, color: bool, write: impl FnOnce(&mut Vec<u8>)) {
    use std::io::Write;
    if color {
        let _ = write!(out, "{style}");
    }
    write(out);
    if color {
        let _ = write!(out, "{style:#}");
    }
}

/// Appends the first `len` bytes of `text`. Copies all of it, which needs no loop, and then truncates.
#[inline(always)]
pub(crate) fn put<const N: usize>(out: &mut Vec<u8>, text: &[u8; N], len: usize) {
    let end = out.len() + len;
    out.extend_from_slice(text);
    out.truncate(end);
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

    /// The index of a frame captured at `time_ns`; made again only if the day changes.
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

/// The faults of a frame, as field name and reason. Bytes that are missing because the capture cut the frame are
/// Wireshark's `_ws.short`; every other fault is `_ws.malformed`.
pub fn faults(tree: &Tree, cut: bool) -> impl Iterator<Item = (&'static str, String)> + '_ {
    tree.faults.iter().map(move |(fault, ..)| {
        let name = if fault.kind == FaultKind::Short && cut { "_ws.short" } else { "_ws.malformed" };
        (name, fault.to_string())
    })
}

/// A value as indented JSON. Characters that a terminal would obey or hide are written as escapes such as `\u202e`,
/// which mean the same to every reader of JSON.
pub fn pretty_json(value: &impl Serialize) -> serde_json::Result<String> {
    let mut out = Vec::new();
    value.serialize(&mut Serializer::with_formatter(&mut out, Visible(PrettyFormatter::new())))?;
    Ok(String::from_utf8_lossy(&out).into_owned())
}

/// Writes characters for which [`is_unsafe`] is true as escapes, and leaves the rest to the inner formatter.
struct Visible(PrettyFormatter<'static>);

impl Formatter for Visible {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, out: &mut W, fragment: &str) -> io::Result<()> {
        let mut rest = fragment;
        while let Some((at, c)) = rest.char_indices().find(|(_, c)| is_unsafe(*c)) {
            out.write_all(&rest.as_bytes()[..at])?;
            for unit in c.encode_utf16(&mut [0; 2]) {
                write!(out, "\\u{unit:04x}")?;
            }
            rest = &rest[at + c.len_utf8()..];
        }
        out.write_all(rest.as_bytes())
    }

    fn begin_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.begin_array(out)
    }

    fn end_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_array(out)
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_array_value(out, first)
    }

    fn end_array_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_array_value(out)
    }

    fn begin_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.begin_object(out)
    }

    fn end_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_object(out)
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_object_key(out, first)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.begin_object_value(out)
    }

    fn end_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_object_value(out)
    }
}

/// A cell that no spreadsheet takes for a formula: text that begins with `=`, `+`, `-` or `@` and is no number gets an
/// apostrophe before it.
pub fn spreadsheet_safe(cell: &str) -> Cow<'_, str> {
    if cell.starts_with(['=', '+', '-', '@']) && cell.parse::<f64>().is_err() {
        format!("'{cell}").into()
    } else {
        cell.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_shows_what_a_terminal_would_obey_and_means_the_same() {
        let value = vec!["a\u{9b}31m\u{202e}b\x7f\"\\\n", "\u{e0041}größe"];
        let text = pretty_json(&value).unwrap();
        assert!(!text.chars().any(|c| c != '\n' && is_unsafe(c)), "{text:?}");
        assert!(
            text.contains("\\u009b31m\\u202eb\\u007f\\\"\\\\\\n") && text.contains("\\udb40\\udc41größe"),
            "{text}"
        );
        assert_eq!(serde_json::from_str::<Vec<String>>(&text).unwrap(), value);
        let plain = serde_json::json!({"a": [1, 2, {"b": null}], "c": "text", "d": [], "e": {}});
        assert_eq!(pretty_json(&plain).unwrap(), serde_json::to_string_pretty(&plain).unwrap());
    }

    #[test]
    fn no_cell_is_a_formula() {
        let shown = ["=1+2", "+a", "-x", "@SUM(A1)", "-1.5", "+3", "a=b", ""].map(spreadsheet_safe);
        assert_eq!(shown, ["'=1+2", "'+a", "'-x", "'@SUM(A1)", "-1.5", "+3", "a=b", ""]);
    }
}
