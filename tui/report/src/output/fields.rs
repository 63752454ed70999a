//! `-T fields -e FIELD…`: a line per frame with the values of the named fields, for awk, spreadsheets and scripts; with
//! `-T json` and `-T ek` an object per frame, in which each field of the frame is an array of its values.

use super::Index;
use super::marks::Marks;
use super::times::Times;
use crate::dissection::{Dissected, FrameAddress};
use crate::fields::field;
use crate::zone::Zone;
use anyhow::{Result, bail};
use rdmascope_dissector::extract::{Extractor, Need, Occurs, Slot};
use rdmascope_dissector::field::{Base, Def, Kind};
use rdmascope_dissector::registry::Registry;
use rdmascope_dissector::render::{
    Stored, Style, decimal, escaped, is_text, is_unsafe, json_string, seconds_and_nanos, show, show_into, show_ipv4,
    show_unsigned,
};
use rdmascope_dissector::wire::frame_fields;
use std::borrow::Cow;

/// Options of `-E`. Keys and values are tshark's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    header: bool,
    bom: bool,
    separator: char,
    aggregator: char,
    occurrence: Occurrence,
    quote: Option<char>,
    escape: bool,
    /// Text that a spreadsheet would take for a formula gets an apostrophe before it.
    no_formulas: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Occurrence {
    First,
    Last,
    All,
}

impl Default for Options {
    /// tshark's.
    fn default() -> Self {
        Self {
            header: false,
            bom: false,
            separator: '\t',
            aggregator: ',',
            occurrence: Occurrence::All,
            quote: None,
            escape: true,
            no_formulas: false,
        }
    }
}

impl Options {
    /// Options for CSV, RFC 4180; several values of a field are put in one cell with semicolons between them.
    pub fn csv() -> Self {
        Self { header: true, separator: ',', aggregator: ';', quote: Some('"'), no_formulas: true, ..Self::default() }
    }

    /// Reads `key=value` pairs; one argument may have several, separated by commas.
    pub fn with(self, arguments: &[String]) -> Result<Self> {
        let mut o = self;
        for argument in arguments {
            let mut rest = argument.as_str();
            while !rest.is_empty() {
                let Some((key, value)) = rest.split_once('=') else { bail!("-E wants key=value, not \"{rest}\"") };
                // the comma may be a value itself: separator=, and aggregator=,
                let first = value.chars().next().map_or(0, char::len_utf8);
                let end = value[first..].find(',').map_or(value.len(), |i| first + i);
                o.set(key, &value[..end])?;
                rest = value[end..].strip_prefix(',').unwrap_or("");
            }
        }
        Ok(o)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        let yes = || match value {
            "y" => Ok(true),
            "n" => Ok(false),
            _ => bail!("-E {key} must be y or n, not \"{value}\""),
        };
        let character = || -> Result<char> {
            let mut chars = value.chars();
            Ok(match (value, chars.next(), chars.next()) {
                ("/t", ..) => '\t',
                ("/s", ..) => ' ',
                (_, Some(c), None) => c,
                _ => bail!("-E {key} is /t, /s or one character, not \"{value}\""),
            })
        };
        match key {
            "header" => self.header = yes()?,
            "bom" => self.bom = yes()?,
            "escape" => self.escape = yes()?,
            "separator" => self.separator = character()?,
            "aggregator" => self.aggregator = character()?,
            "occurrence" => {
                self.occurrence = match value {
                    "f" => Occurrence::First,
                    "l" => Occurrence::Last,
                    "a" => Occurrence::All,
                    _ => bail!("-E occurrence is f (first), l (last) or a (all), not \"{value}\""),
                }
            }
            "quote" => {
                self.quote = match value {
                    "d" => Some('"'),
                    "s" => Some('\''),
                    "n" => None,
                    _ => bail!("-E quote is d (double), s (single) or n (none), not \"{value}\""),
                }
            }
            _ => bail!(
                "-E has no key \"{key}\"; there are header, separator, occurrence, aggregator, quote, escape and bom"
            ),
        }
        Ok(())
    }
}

/// Form of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// A line, with a separator between the fields.
    Line,
    /// An element of a JSON array.
    Json,
    /// Two lines of JSON, for Elasticsearch's bulk API.
    Ek,
}

/// A column that `-e` names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Field(Slot),
    /// `frame.time_delta_displayed`.
    SinceShown,
    /// Columns of the frame's line, `_ws.col.…`.
    Number,
    Time,
    Source,
    Destination,
    Protocol(Slot),
    Length,
}

/// End of a time of day in UTC.
const UTC: &str = "+0000";

/// Prefix of the names of columns of the frame's line.
const COLUMN: &str = "_ws.col.";

/// A field that depends on the frames that were shown before: `-e` knows it, a filter does not.
const SINCE_SHOWN: &str = "frame.time_delta_displayed";

/// The columns of tshark's line, by the names that they have today and had before 4.6.
fn column(name: &str, registry: &Registry, extractor: &mut Extractor) -> Result<Column> {
    if name == SINCE_SHOWN {
        return Ok(Column::SinceShown);
    }
    let Some(key) = name.strip_prefix(COLUMN) else {
        return Ok(Column::Field(extractor.want(field(name, registry)?, Need::Value)));
    };
    Ok(match key.to_ascii_lowercase().as_str() {
        "number" | "no." => Column::Number,
        "time" | "cls_time" | "rel_time" => Column::Time,
        "source" | "def_src" | "unres_src" => Column::Source,
        "destination" | "def_dst" | "unres_dst" => Column::Destination,
        "protocol" => Column::Protocol(extractor.want(frame_fields::f::COL_PROTOCOL, Need::Value)),
        "length" | "packet_length" => Column::Length,
        "info" => Column::Field(extractor.want(frame_fields::f::COL_INFO, Need::Value)),
        _ => bail!(
            "unknown column \"{name}\"; there are number, time, def_src, def_dst, protocol, packet_length and info"
        ),
    })
}

/// Frames in the form of `-T fields` and `-T csv`, and of `-T json` and `-T ek` if fields are named.
#[derive(Clone)]
pub struct Fields {
    layout: Layout,
    index: Index,
    /// True if a frame was written.
    any: bool,
    options: Options,
    columns: Vec<Column>,
    times: Times,
    /// Local time, in which times of day are written.
    zone: Zone,
    /// Time of the last two frames shown.
    shown: [Option<i64>; 2],
    names: Vec<String>,
    separator: Vec<u8>,
    aggregator: Vec<u8>,
}

impl Fields {
    /// Makes the extractor extract these fields.
    pub fn new(
        options: Options,
        names: &[&str],
        registry: &Registry,
        extractor: &mut Extractor,
        is_terminal: bool,
        times: Times,
    ) -> Result<Self> {
        let columns = names.iter().map(|name| column(name, registry, extractor)).collect::<Result<Vec<_>>>()?;
        // no option may let text from the network control a terminal
        let options = Options { escape: options.escape || is_terminal, ..options };
        let bytes = |c: char| c.to_string().into_bytes();
        Ok(Self {
            layout: Layout::Line,
            index: Index::new(),
            any: false,
            separator: bytes(options.separator),
            aggregator: if options.escape && options.quote.is_none() && options.aggregator == options.separator {
                vec![b'\\', options.separator as u8]
            } else {
                bytes(options.aggregator)
            },
            names: names.iter().map(|n| (*n).to_owned()).collect(),
            columns,
            times,
            zone: Zone::local(),
            shown: [None; 2],
            options,
        })
    }

    /// In this form. JSON has escapes of its own.
    pub fn with(mut self, layout: Layout) -> Self {
        self.layout = layout;
        if layout != Layout::Line {
            self.options =
                Options { escape: false, quote: None, occurrence: self.options.occurrence, ..Options::default() };
        }
        self
    }

    /// True if the output does not depend on the frames shown before.
    pub fn is_alone(&self) -> bool {
        let is_of_order = self.times.is_of_order() && self.columns.contains(&Column::Time);
        self.layout == Layout::Line && !is_of_order && !self.columns.contains(&Column::SinceShown)
    }

    /// Appends the end of the output, if the format has one.
    pub fn end(&self, out: &mut Vec<u8>) {
        if self.layout == Layout::Json {
            out.extend_from_slice(if self.any { b"\n]\n" } else { b"]\n" });
        }
    }

    /// Appends the header of the output, if there is one.
    pub fn begin(&self, out: &mut Vec<u8>) {
        match self.layout {
            Layout::Line => {}
            Layout::Json => return out.push(b'['),
            Layout::Ek => return,
        }
        if self.options.bom {
            out.extend_from_slice("\u{feff}".as_bytes());
        }
        if self.options.header {
            out.extend_from_slice(self.names.join(&self.options.separator.to_string()).as_bytes());
            out.push(b'\n');
        }
    }

    /// Appends a frame.
    pub fn frame(&mut self, out: &mut Vec<u8>, d: &Dissected, extractor: &Extractor, marks: &mut Marks) {
        self.shown = [self.shown[1], Some(d.time_ns)];
        match self.layout {
            Layout::Line => {}
            Layout::Json | Layout::Ek => return self.object(out, d, extractor, marks),
        }
        for i in 0..self.columns.len() {
            if i > 0 {
                separate(out, &self.separator);
            }
            match self.columns[i] {
                Column::Field(slot) => self.values(out, extractor, slot, marks),
                Column::Protocol(slot) if extractor.has(slot) => self.values(out, extractor, slot, marks),
                // the first frame shown has none
                Column::SinceShown if self.shown[0].is_none() => {}
                column => {
                    self.quote(out);
                    self.column(out, column, d);
                    self.quote(out);
                }
            }
        }
        out.push(b'\n');
    }

    /// The text of a column that is no field.
    fn column(&mut self, text: &mut Vec<u8>, column: Column, d: &Dissected) {
        match column {
            Column::Number => text.extend_from_slice(d.number.to_string().as_bytes()),
            Column::Time => self.times.write(text, d),
            Column::SinceShown => {
                let since = self.shown[0].map_or(0, |before| d.time_ns.saturating_sub(before));
                seconds_and_nanos(text, since.div_euclid(1_000_000_000), since.rem_euclid(1_000_000_000) as u32);
            }
            Column::Source => text.extend_from_slice(FrameAddress(d.src).to_string().as_bytes()),
            Column::Destination => text.extend_from_slice(FrameAddress(d.dst).to_string().as_bytes()),
            Column::Length => text.extend_from_slice(d.wire_len.to_string().as_bytes()),
            Column::Protocol(_) | Column::Field(_) => text.extend_from_slice(d.other.as_bytes()),
        }
    }

    /// A frame as an object. All values are texts, as those of a line are.
    fn object(&mut self, out: &mut Vec<u8>, d: &Dissected, extractor: &Extractor, marks: &mut Marks) {
        let is_json = self.layout == Layout::Json;
        let day = String::from_utf8_lossy(self.index.of(d.time_ns)).into_owned();
        if is_json {
            let comma = if self.any { "," } else { "" };
            let head = format!(
                "{comma}\n  {{\n    \"_index\": \"{day}\",\n    \"_score\": null,\n    \"_source\": \
                    {{\n      \"layers\": {{"
            );
            out.extend_from_slice(head.as_bytes());
        } else {
            let milliseconds = d.time_ns.div_euclid(1_000_000).max(0);
            let head =
                format!("{{\"index\":{{\"_index\":\"{day}\"}}}}\n{{\"timestamp\":\"{milliseconds}\",\"layers\":{{");
            out.extend_from_slice(head.as_bytes());
        }
        self.any = true;
        let mut is_first = true;
        for i in 0..self.columns.len() {
            let values = self.texts(d, extractor, self.columns[i], marks);
            if values.is_empty() {
                continue;
            }
            if !std::mem::take(&mut is_first) {
                out.push(b',');
            }
            let name = match (self.names[i].starts_with(COLUMN), is_json) {
                (true, true) => self.names[i].to_ascii_lowercase(),
                (true, false) => self.names[i].to_ascii_lowercase().replace('.', "_"),
                (false, true) => self.names[i].clone(),
                (false, false) => self.names[i].replace('.', "_"),
            };
            out.extend_from_slice(if is_json { b"\n        \"" } else { b"\"" });
            json_string(out, &name);
            out.extend_from_slice(if is_json { b"\": [" } else { b"\":[" });
            for (n, value) in values.iter().enumerate() {
                if n > 0 {
                    out.push(b',');
                }
                out.extend_from_slice(if is_json { b"\n          \"" } else { b"\"" });
                json_string(out, value);
                out.push(b'"');
            }
            out.extend_from_slice(if is_json { b"\n        ]" } else { b"]" });
        }
        out.extend_from_slice(match (is_json, is_first) {
            (false, _) => b"}}\n",
            (true, true) => b"}\n    }\n  }",
            (true, false) => b"\n      }\n    }\n  }",
        });
    }

    /// The values of a column, as texts.
    fn texts(&mut self, d: &Dissected, extractor: &Extractor, column: Column, marks: &mut Marks) -> Vec<String> {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let slot = match column {
            Column::Field(slot) => slot,
            Column::Protocol(slot) if extractor.has(slot) => slot,
            Column::SinceShown if self.shown[0].is_none() => return Vec::new(),
            column => {
                let mut one = Vec::new();
                self.column(&mut one, column, d);
                return vec![text(one)];
            }
        };
        let occurrence = self.options.occurrence;
        let mut each = |(def, value): (Def, Stored<'_>)| {
            let mut one = Vec::new();
            self.value(&mut one, def, value, marks);
            text(one)
        };
        let values = extractor.values(slot);
        match occurrence {
            Occurrence::First => values.take(1).map(each).collect(),
            Occurrence::Last => values.last().map(&mut each).into_iter().collect(),
            Occurrence::All => values.map(each).collect(),
        }
    }

    #[inline(always)]
    fn values(&self, out: &mut Vec<u8>, extractor: &Extractor, slot: Slot, marks: &mut Marks) {
        let (def, value) = match extractor.occurrence(slot) {
            Occurs::Never => return,
            Occurs::Once(def, value) => (def, value),
            Occurs::More(..) if self.options.occurrence != Occurrence::First => {
                return self.several(out, extractor, slot, marks);
            }
            Occurs::More(def, value) => (def, value),
        };
        match (value, self.options.quote) {
            // what nearly all columns are
            (Stored::U(number), None) if is_plain_number(def) => {
                let from = out.len();
                decimal(out, number);
                marks.number(out, from, def, number);
            }
            (Stored::Bytes(&[a, b, c, d]), None) if def.kind == Kind::Ipv4 => show_ipv4(out, [a, b, c, d]),
            (value, _) => {
                self.quote(out);
                self.value(out, def, value, marks);
                self.quote(out);
            }
        }
    }

    /// The last of several values of a field, or all of them.
    #[inline(never)]
    fn several(&self, out: &mut Vec<u8>, extractor: &Extractor, slot: Slot, marks: &mut Marks) {
        let passed_over = if self.options.occurrence == Occurrence::Last { extractor.count(slot) - 1 } else { 0 };
        self.quote(out);
        for (n, (def, value)) in extractor.values(slot).skip(passed_over).enumerate() {
            if n > 0 {
                separate(out, &self.aggregator);
            }
            self.value(out, def, value, marks);
        }
        self.quote(out);
    }

    /// A time of day in the local zone, with the zone's offset; that of a frame in UTC too.
    fn clock(&self, out: &mut Vec<u8>, def: Def, seconds: i64, nanos: u32) {
        let name = frame_fields::f::TIME_EPOCH.name;
        let ahead =
            if [name, frame_fields::f::TIME_UTC.name].contains(&def.name) { 0 } else { self.zone.offset(seconds) };
        show_into(out, def, Stored::Time(seconds.saturating_add(ahead.into()), nanos), Style::Fields);
        if def.name == name {
            return;
        }
        out.truncate(out.len().saturating_sub(UTC.len()));
        if def.name == frame_fields::f::TIME_UTC.name {
            return out.push(b'Z');
        }
        let minutes = ahead.unsigned_abs() / 60;
        let sign = if ahead < 0 { '-' } else { '+' };
        out.extend_from_slice(format!("{sign}{:02}{:02}", minutes / 60, minutes % 60).as_bytes());
    }

    fn quote(&self, out: &mut Vec<u8>) {
        if let Some(q) = self.options.quote {
            out.push(q as u8);
        }
    }

    fn value(&self, out: &mut Vec<u8>, def: Def, v: Stored<'_>, marks: &mut Marks) {
        match (v, def.kind) {
            (Stored::Text(text), Kind::Protocol) => self.write_text(out, text),
            (_, Kind::Protocol) => out.extend_from_slice(def.name.as_bytes()),
            (_, Kind::None) => out.push(b'1'),
            (Stored::U(number), _) => {
                let from = out.len();
                show_unsigned(out, def, number, Style::Fields);
                marks.number(out, from, def, number);
            }
            (Stored::Time(seconds, nanos), Kind::AbsTime) => self.clock(out, def, seconds, nanos),
            (Stored::Text(text), _) => self.write_text(out, text),
            _ if is_text(def, v) => self.write_text(out, &show(def, v, Style::Fields)),
            _ => show_into(out, def, v, Style::Fields),
        }
    }

    /// Text from the capture, with what it has of the format's own characters escaped.
    fn write_text(&self, out: &mut Vec<u8>, text: &str) {
        if self.options.no_formulas && matches!(super::spreadsheet_safe(text), Cow::Owned(_)) {
            out.push(b'\'');
        }
        let options = &self.options;
        // if values are not in quotes, a separator inside of one is escaped
        let separates = |c: char| options.escape && options.quote.is_none() && c == options.separator;
        let special = |c: char| c == '\\' || is_unsafe(c) || options.quote == Some(c) || separates(c);
        if !text.contains(special) {
            return out.extend_from_slice(text.as_bytes());
        }
        for c in text.chars() {
            let mut buffer = [0; 4];
            let c_text: &str = c.encode_utf8(&mut buffer);
            if separates(c) && !c.is_control() {
                out.push(b'\\');
                out.extend_from_slice(c_text.as_bytes());
            } else if self.options.quote == Some(c) {
                // as in CSV: a quote inside of quotes is doubled
                out.extend_from_slice(c_text.as_bytes());
                out.extend_from_slice(c_text.as_bytes());
            } else if self.options.escape && c == '\\' {
                out.extend_from_slice(b"\\\\");
            } else if self.options.escape && is_unsafe(c) {
                out.extend_from_slice(escaped(c_text).as_bytes());
            } else {
                out.extend_from_slice(c_text.as_bytes());
            }
        }
    }
}

/// True if [`show`] gives a number of this field as decimal digits and nothing else.
#[inline(always)]
fn is_plain_number(def: Def) -> bool {
    def.base == Base::Dec && (def.kind.is_unsigned() || def.kind == Kind::FrameNum)
}

/// Appends a separator: nearly always one byte.
#[inline]
fn separate(out: &mut Vec<u8>, separator: &[u8]) {
    match separator {
        [byte] => out.push(*byte),
        bytes => out.extend_from_slice(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Options> {
        Options::default().with(&arguments.iter().map(|a| (*a).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn options_may_stand_alone_or_together() {
        let together = parse(&["header=y,separator=,,occurrence=f,quote=d"]).unwrap();
        let alone = parse(&["header=y", "separator=,", "occurrence=f", "quote=d"]).unwrap();
        assert_eq!(together, alone);
        assert_eq!((together.separator, together.header, together.quote), (',', true, Some('"')));
        assert_eq!(parse(&["separator=/s"]).unwrap().separator, ' ');
        for wrong in ["header", "header=maybe", "separator=ab", "quote=x", "occurrence=2", "colour=red"] {
            assert!(parse(&[wrong]).is_err(), "{wrong}");
        }
    }
}
