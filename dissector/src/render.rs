//! Values as text, in two renderings.
//!
//! *show* is what programs read: `tshark -T json`, `-T ek`, `-T pdml` and `-T fields` print a value so (Wireshark 4.6),
//! a [`Style`] each. *label* is what people read: the line of the detail pane, with names of values and bits drawn in
//! place.
//!
//! Text from the network is a stranger's. [`show_into`] gives it as it is, and each output escapes it by its own rules
//! ([`json_string`], [`xml_text`], [`escape`]). A label is escaped already: nothing in it can command a terminal or
//! turn the direction of writing.

use crate::address::dotted_text;
use crate::calendar::date_of;
pub use crate::digits::decimal;
use crate::digits::{eight_digits, four_digits};
use crate::fault::{Fault, FaultKind};
use crate::field::{Base, Def, FieldDef, Kind};
use crate::text::{HEX_PAIRS, escape_char, is_plain};
pub use crate::text::{escape, escaped, is_unsafe};
use crate::trace::{Node, NodeValue, Tree, Utf8Writer};
use crate::wire::smb2::spnego;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;
use core::ops::Range;

/// A value as an observer keeps it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Stored<'a> {
    /// Nothing: a subtree or a marker.
    None,
    /// Unsigned integers, booleans, frame numbers, the bits of a [`Kind::Double`].
    U(u64),
    /// Signed integers.
    I(i64),
    /// Runs of bytes, and text in its encoding on the wire.
    Bytes(&'a [u8]),
    /// Text, decoded or computed.
    Text(&'a str),
    /// Seconds and nanoseconds, see [`crate::trace::Value::Time`].
    Time(i64, u32),
}

/// For whom a value is shown. They differ as Wireshark's outputs do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// `-T json`: booleans 1 and 0, times in ISO 8601 with `Z`.
    Json,
    /// `-T ek`: booleans true and false, all integers decimal, times as in JSON.
    Ek,
    /// `-T fields`: booleans True and False, times with `+0000`, bytes without colons.
    Fields,
    /// `-T pdml`: as fields, but bytes with colons.
    Pdml,
}

impl Tree {
    /// The value of a node. A subtree of kind `Bytes` has the bytes that it covers.
    pub fn stored(&self, node: &Node) -> Stored<'_> {
        match node.value {
            NodeValue::None if node.def.kind == Kind::Bytes => Stored::Bytes(self.covered(node)),
            NodeValue::None => Stored::None,
            NodeValue::U(v) => Stored::U(v),
            NodeValue::I(v) => Stored::I(v),
            NodeValue::Time(s, n) => Stored::Time(s, n),
            NodeValue::Bytes | NodeValue::Apart(..) => Stored::Bytes(self.value_bytes(node)),
            NodeValue::Text(..) => Stored::Text(core::str::from_utf8(self.value_bytes(node)).unwrap_or("")),
        }
    }

    /// True if the node at `index` has children.
    pub fn has_children(&self, index: usize) -> bool {
        self.nodes.get(index + 1).is_some_and(|next| next.depth > self.nodes[index].depth)
    }
}

/// True if a value is text from the capture, which the output has to escape. All else is plain ASCII without quotes.
pub fn is_text(def: &FieldDef, value: Stored<'_>) -> bool {
    match value {
        Stored::Text(_) => true,
        Stored::Bytes(_) => matches!(def.kind, Kind::Str | Kind::Utf16),
        _ => false,
    }
}

/// Appends the value for programs to read. Text is not escaped here (see [`is_text`]); bytes invalid in its encoding
/// become U+FFFD.
pub fn show_into(out: &mut Vec<u8>, def: &FieldDef, value: Stored<'_>, style: Style) {
    match value {
        Stored::None => {}
        Stored::U(v) => show_unsigned(out, def, v, style),
        Stored::I(v) => {
            if v < 0 {
                out.push(b'-');
            }
            decimal(out, v.unsigned_abs());
        }
        Stored::Time(seconds, nanos) if def.kind == Kind::AbsTime => absolute(out, def, seconds, nanos, style),
        Stored::Time(seconds, nanos) => seconds_and_nanos(out, seconds, nanos),
        Stored::Text(text) => out.extend_from_slice(text.as_bytes()),
        Stored::Bytes(bytes) => run_of_bytes(out, def, bytes, style),
    }
}

/// Appends an IPv4 address.
#[inline]
pub fn show_ipv4(out: &mut Vec<u8>, address: [u8; 4]) {
    let (text, len) = dotted_text(address);
    let end = out.len() + len;
    out.extend_from_slice(&text);
    out.truncate(end);
}

/// The same, as a string.
pub fn show(def: &FieldDef, value: Stored<'_>, style: Style) -> String {
    let mut out = Vec::new();
    show_into(&mut out, def, value, style);
    into_string(out)
}

/// [`show_into`] for [`Stored::U`].
#[inline]
pub fn show_unsigned(out: &mut Vec<u8>, def: &FieldDef, v: u64, style: Style) {
    match (def.kind, style) {
        (Kind::Bool, Style::Json) => out.push(if v != 0 { b'1' } else { b'0' }),
        (Kind::Bool, Style::Ek) => out.extend_from_slice(if v != 0 { b"true" } else { b"false" }),
        (Kind::Bool, Style::Fields | Style::Pdml) => out.extend_from_slice(if v != 0 { b"True" } else { b"False" }),
        (Kind::Double, _) => double(out, v),
        (_, Style::Ek) => decimal(out, v),
        // Wireshark has octal numbers only in its labels
        _ if def.base == Base::Oct => decimal(out, v),
        _ => number(out, def, v),
    }
}

#[cold]
fn double(out: &mut Vec<u8>, bits: u64) {
    let mut text = String::new();
    let _ = write!(text, "{}", f64::from_bits(bits));
    out.extend_from_slice(text.as_bytes());
}

/// An integer in its first base.
#[inline]
fn number(out: &mut Vec<u8>, def: &FieldDef, v: u64) {
    match def.base {
        Base::Hex | Base::HexDec => hexadecimal(out, v, def.kind.bits() / 4),
        Base::Oct => octal(out, v),
        Base::None | Base::Dec | Base::DecHex => decimal(out, v),
    }
}

/// Appends `v` in hexadecimal with `0x` and at least `digits` digits.
#[inline]
pub fn hexadecimal(out: &mut Vec<u8>, v: u64, digits: u32) {
    let used = (64 - v.leading_zeros()).div_ceil(4).max(1);
    let n = used.max(digits.min(16)) as usize;
    let pair = |byte: usize| HEX_PAIRS[(v >> (8 * byte)) as usize & 0xff];
    match n {
        2 => {
            let [a, b] = pair(0);
            out.extend_from_slice(&[b'0', b'x', a, b]);
        }
        4 => {
            let ([a, b], [c, d]) = (pair(1), pair(0));
            out.extend_from_slice(&[b'0', b'x', a, b, c, d]);
        }
        8 => {
            let ([a, b], [c, d], [e, f], [g, h]) = (pair(3), pair(2), pair(1), pair(0));
            out.extend_from_slice(&[b'0', b'x', a, b, c, d, e, f, g, h]);
        }
        _ => {
            let mut buffer = *b"0x0000000000000000";
            for i in 0..n {
                buffer[1 + n - i] = HEX_PAIRS[(v >> (4 * i)) as usize & 0x0f][1];
            }
            out.extend_from_slice(&buffer[..2 + n]);
        }
    }
}

fn octal(out: &mut Vec<u8>, v: u64) {
    let mut text = String::new();
    let _ = write!(text, "0{v:o}");
    out.extend_from_slice(if v == 0 { b"0" } else { text.as_bytes() });
}

/// Appends bytes as two digits each, with `separator` between them.
pub fn hex_bytes(out: &mut Vec<u8>, bytes: &[u8], separator: Option<u8>) {
    let Some(separator) = separator else {
        out.reserve(bytes.len() * 2);
        for b in bytes {
            out.extend_from_slice(&HEX_PAIRS[usize::from(*b)]);
        }
        return;
    };
    let start = out.len();
    out.resize(start + 3 * bytes.len(), separator);
    for (text, byte) in out[start..].as_chunks_mut::<3>().0.iter_mut().zip(bytes) {
        [text[0], text[1]] = HEX_PAIRS[usize::from(*byte)];
    }
    // no separator behind the last
    out.truncate(out.len() - usize::from(!bytes.is_empty()));
}

fn run_of_bytes(out: &mut Vec<u8>, def: &FieldDef, bytes: &[u8], style: Style) {
    match def.kind {
        Kind::Str | Kind::Utf16 => {
            pieces(def.kind, bytes, &mut |piece| {
                let c = match piece {
                    Piece::Char(c) => c,
                    Piece::Byte(_) | Piece::Surrogate(_) => char::REPLACEMENT_CHARACTER,
                };
                out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            });
        }
        Kind::Ipv4 => match <[u8; 4]>::try_from(bytes) {
            Ok(address) => show_ipv4(out, address),
            Err(_) => hex_bytes(out, bytes, Some(b':')),
        },
        Kind::Ipv6 => match <[u8; 16]>::try_from(bytes) {
            Ok(b) => {
                let mut text = String::new();
                let _ = write!(text, "{}", core::net::Ipv6Addr::from(b));
                out.extend_from_slice(text.as_bytes());
            }
            Err(_) => hex_bytes(out, bytes, Some(b':')),
        },
        Kind::Guid if bytes.len() == 16 => guid(out, bytes),
        Kind::Bytes if style == Style::Fields => hex_bytes(out, bytes, None),
        _ => hex_bytes(out, bytes, Some(b':')),
    }
}

fn guid(out: &mut Vec<u8>, b: &[u8]) {
    let groups: [&[u8]; 5] = [
        &[b[3], b[2], b[1], b[0]],
        &[b[5], b[4]],
        &[b[7], b[6]],
        &[b[8], b[9]],
        &[b[10], b[11], b[12], b[13], b[14], b[15]],
    ];
    for (i, group) in groups.iter().enumerate() {
        if i > 0 {
            out.push(b'-');
        }
        hex_bytes(out, group, None);
    }
}

/// Appends `v` in decimal with at least two, four or nine `digits`.
fn padded(out: &mut Vec<u8>, v: u64, digits: u32) {
    match (v, digits) {
        (0..100, 2) => {
            let [_, _, a, b] = four_digits(v);
            out.extend_from_slice(&[a, b]);
        }
        (0..10_000, 4) => out.extend_from_slice(&four_digits(v)),
        (0..1_000_000_000, 9) => {
            let [a, b, c, d, e, f, g, h] = eight_digits(v % 100_000_000);
            out.extend_from_slice(&[b'0' + (v / 100_000_000) as u8, a, b, c, d, e, f, g, h]);
        }
        _ => decimal(out, v),
    }
}

fn clock(out: &mut Vec<u8>, second_of_day: u64, nanos: u32) {
    padded(out, second_of_day / 3600, 2);
    out.push(b':');
    padded(out, second_of_day / 60 % 60, 2);
    out.push(b':');
    padded(out, second_of_day % 60, 2);
    out.push(b'.');
    padded(out, u64::from(nanos), 9);
}

/// Appends seconds with nine decimals: `11.383631000`, `-0.500000000`.
pub fn seconds_and_nanos(out: &mut Vec<u8>, seconds: i64, nanos: u32) {
    // -0.5 s is kept as -1 s and 500,000,000 ns
    let (negative, whole, nanos) = match (seconds < 0, nanos) {
        (true, 0) => (true, seconds.unsigned_abs(), 0),
        (true, n) => (true, seconds.unsigned_abs() - 1, 1_000_000_000_u32.saturating_sub(n)),
        (false, n) => (false, seconds.unsigned_abs(), n),
    };
    if negative {
        out.push(b'-');
    }
    decimal(out, whole);
    out.push(b'.');
    padded(out, u64::from(nanos), 9);
}

fn absolute(out: &mut Vec<u8>, def: &FieldDef, seconds: i64, nanos: u32, style: Style) {
    // Wireshark shows this one field as a number to all but JSON, so that scripts can subtract
    if matches!(style, Style::Fields | Style::Pdml) && def.id == crate::wire::frame_fields::f::TIME_EPOCH.id {
        seconds_and_nanos(out, seconds, nanos);
        return;
    }
    let (year, month, day) = date_of(seconds.div_euclid(86_400));
    if year < 0 {
        out.push(b'-');
    }
    padded(out, year.unsigned_abs(), 4);
    out.push(b'-');
    padded(out, u64::from(month), 2);
    out.push(b'-');
    padded(out, u64::from(day), 2);
    out.push(b'T');
    clock(out, seconds.rem_euclid(86_400) as u64, nanos);
    out.extend_from_slice(match style {
        Style::Json | Style::Ek => b"Z".as_slice(),
        Style::Fields | Style::Pdml => b"+0000",
    });
}

/// One unit of decoded text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece {
    /// A character.
    Char(char),
    /// A byte that is not UTF-8, or half a unit of UTF-16 at the end.
    Byte(u8),
    /// Half of a surrogate pair without the other half.
    Surrogate(u16),
}

/// Decodes a run of bytes as text of its kind, piece by piece. Nothing is lost: invalid bytes are reported as they are.
pub fn pieces(kind: Kind, bytes: &[u8], emit: &mut impl FnMut(Piece)) {
    if kind == Kind::Utf16 {
        let (units, odd) = bytes.as_chunks::<2>();
        for unit in char::decode_utf16(units.iter().map(|u| u16::from_le_bytes(*u))) {
            emit(match unit {
                Ok(c) => Piece::Char(c),
                Err(e) => Piece::Surrogate(e.unpaired_surrogate()),
            });
        }
        odd.iter().for_each(|b| emit(Piece::Byte(*b)));
        return;
    }
    for chunk in bytes.utf8_chunks() {
        chunk.valid().chars().for_each(|c| emit(Piece::Char(c)));
        chunk.invalid().iter().for_each(|b| emit(Piece::Byte(*b)));
    }
}

fn escape_piece(out: &mut impl Write, piece: Piece) {
    // memory takes whatever is written to it
    let _ = match piece {
        Piece::Char(c) => escape_char(out, c),
        Piece::Byte(b) => write!(out, "\\x{b:02x}"),
        Piece::Surrogate(s) => write!(out, "\\u{{{s:x}}}"),
    };
}

/// Appends the inside of a JSON string: quotes, backslashes, control characters and what turns the direction of writing
/// are escaped.
pub fn json_string(out: &mut Vec<u8>, text: &str) {
    let bytes = text.as_bytes();
    if bytes.iter().all(|b| matches!(b, 0x20..=0x7e) && *b != b'"' && *b != b'\\') {
        out.extend_from_slice(bytes);
        return;
    }
    text.chars().for_each(|c| json_char(out, c));
}

fn json_char(out: &mut Vec<u8>, c: char) {
    match c {
        '"' => out.extend_from_slice(b"\\\""),
        '\\' => out.extend_from_slice(b"\\\\"),
        '\n' => out.extend_from_slice(b"\\n"),
        '\r' => out.extend_from_slice(b"\\r"),
        '\t' => out.extend_from_slice(b"\\t"),
        c if is_unsafe(c) => {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let mut text = String::new();
                let _ = write!(text, "\\u{unit:04x}");
                out.extend_from_slice(text.as_bytes());
            }
        }
        c => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
    }
}

/// Appends a value as the inside of a JSON string. Half a surrogate pair becomes U+FFFD, which every reader accepts.
pub fn json_value(out: &mut Vec<u8>, def: &FieldDef, value: Stored<'_>, style: Style) {
    match value {
        Stored::Text(text) => json_string(out, text),
        Stored::Bytes(bytes) if matches!(def.kind, Kind::Str | Kind::Utf16) => {
            pieces(def.kind, bytes, &mut |piece| match piece {
                Piece::Char(c) => json_char(out, c),
                Piece::Byte(_) | Piece::Surrogate(_) => json_char(out, char::REPLACEMENT_CHARACTER),
            })
        }
        _ => show_into(out, def, value, style),
    }
}

/// Appends text for XML, in an attribute or between tags. Characters that XML 1.0 has not at all are written as `\x1b`.
pub fn xml_text(out: &mut Vec<u8>, text: &str) {
    if is_plain(text) && !text.bytes().any(|b| matches!(b, b'&' | b'<' | b'>' | b'"' | b'\'')) {
        return out.extend_from_slice(text.as_bytes());
    }
    for c in text.chars() {
        match c {
            '&' => out.extend_from_slice(b"&amp;"),
            '<' => out.extend_from_slice(b"&lt;"),
            '>' => out.extend_from_slice(b"&gt;"),
            '"' => out.extend_from_slice(b"&quot;"),
            '\'' => out.extend_from_slice(b"&#x27;"),
            '\u{fffe}' | '\u{ffff}' => out.extend_from_slice("\u{fffd}".as_bytes()),
            c if is_unsafe(c) => {
                let mut text = String::new();
                let _ = escape_char(&mut text, c);
                out.extend_from_slice(text.as_bytes());
            }
            c => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
}

/// Bytes of a value of kind `Bytes` that a label shows.
const BYTES_IN_A_LABEL: usize = 36;
/// Characters of a text that a label shows.
const CHARS_IN_A_LABEL: usize = 240;

/// Appends the value as people read it: `RC - SEND Only (4)`, `0x0012`, `"hello"`'s text escaped.
pub fn value_label(out: &mut String, def: &FieldDef, value: Stored<'_>) {
    with_bytes(out, |out| value_label_into(out, def, value));
}

/// Lends the memory of a string to what writes UTF-8.
fn with_bytes(out: &mut String, write: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = core::mem::take(out).into_bytes();
    write(&mut bytes);
    *out = into_string(bytes);
}

/// [`value_label`], as UTF-8.
pub fn value_label_into(out: &mut Vec<u8>, def: &FieldDef, value: Stored<'_>) {
    match value {
        Stored::None => {}
        Stored::I(v) => match u64::try_from(v).ok().and_then(|v| def.value_name(v)) {
            Some(name) => named(out, name, |out| signed(out, v)),
            None => signed(out, v),
        },
        Stored::U(v) if def.kind == Kind::Bool => {
            out.extend_from_slice(def.value_name(v).unwrap_or(if v != 0 { "True" } else { "False" }).as_bytes());
        }
        Stored::U(v) => match def.value_name(v) {
            Some(name) => named(out, name, |out| number(out, def, v)),
            None => match (def.kind, def.base) {
                (Kind::Double, _) => double(out, v),
                (_, Base::DecHex) => {
                    decimal(out, v);
                    in_brackets(out, |out| hexadecimal(out, v, 1));
                }
                (_, Base::HexDec) => {
                    number(out, def, v);
                    in_brackets(out, |out| decimal(out, v));
                }
                _ => number(out, def, v),
            },
        },
        Stored::Time(seconds, nanos) if def.id == crate::wire::frame_fields::f::TIME_EPOCH.id => {
            seconds_and_nanos(out, seconds, nanos)
        }
        Stored::Time(seconds, nanos) if def.kind == Kind::AbsTime => {
            const MONTHS: [&str; 12] =
                ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
            let (year, month, day) = date_of(seconds.div_euclid(86_400));
            out.extend_from_slice(MONTHS[(month as usize - 1) % 12].as_bytes());
            out.extend_from_slice(if day < 10 { b"  " } else { b" " });
            decimal(out, u64::from(day));
            out.extend_from_slice(b", ");
            signed(out, year);
            out.push(b' ');
            clock(out, seconds.rem_euclid(86_400) as u64, nanos);
            out.extend_from_slice(b" UTC");
        }
        Stored::Time(seconds, nanos) => {
            seconds_and_nanos(out, seconds, nanos);
            out.extend_from_slice(b" seconds");
        }
        Stored::Text(text) => {
            if text.len() <= CHARS_IN_A_LABEL && is_plain(text) {
                out.extend_from_slice(text.as_bytes());
            } else {
                text_label(out, text.chars().map(Piece::Char));
            }
            if let Some(name) = spnego::mechanism_field(def).then(|| spnego::mechanism_name(text)).flatten() {
                in_brackets(out, |out| out.extend_from_slice(name.as_bytes()));
            }
        }
        Stored::Bytes(bytes) => match def.kind {
            Kind::Str | Kind::Utf16 => {
                // no character takes more than four bytes: nothing beyond the limit is decoded
                let head = &bytes[..bytes.len().min(4 * CHARS_IN_A_LABEL + 4)];
                if def.kind == Kind::Str
                    && head.len() <= CHARS_IN_A_LABEL
                    && head.iter().all(|b| matches!(b, 0x20..=0x7e))
                {
                    return out.extend_from_slice(head);
                }
                let mut decoded = Vec::new();
                pieces(def.kind, head, &mut |piece| decoded.push(piece));
                text_label(out, decoded.into_iter());
            }
            Kind::Bytes => {
                hex_bytes(out, &bytes[..bytes.len().min(BYTES_IN_A_LABEL)], None);
                if bytes.len() > BYTES_IN_A_LABEL {
                    out.extend_from_slice("…".as_bytes());
                    in_brackets(out, |out| {
                        decimal(out, bytes.len() as u64);
                        out.extend_from_slice(b" bytes");
                    });
                }
            }
            _ => run_of_bytes(out, def, bytes, Style::Pdml),
        },
    }
}

/// A name, and its value in brackets behind it.
fn named(out: &mut Vec<u8>, name: &str, value: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(name.as_bytes());
    in_brackets(out, value);
}

fn in_brackets(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(b" (");
    write(out);
    out.push(b')');
}

fn signed(out: &mut Vec<u8>, v: i64) {
    if v < 0 {
        out.push(b'-');
    }
    decimal(out, v.unsigned_abs());
}

/// Text as a label shows it: escaped, and not longer than [`CHARS_IN_A_LABEL`].
fn text_label(out: &mut Vec<u8>, text: impl Iterator<Item = Piece>) {
    for (i, piece) in text.enumerate() {
        if i == CHARS_IN_A_LABEL {
            return out.extend_from_slice("…".as_bytes());
        }
        escape_piece(&mut Utf8Writer(out), piece);
    }
}

/// Appends the line of the detail pane for the node at `index`: `Opcode: RC - SEND Only (4)`, `.... ...1 = Reply: Set`.
/// Computed values stand in square brackets.
pub fn label(out: &mut String, tree: &Tree, index: usize) {
    with_bytes(out, |out| _ = label_into(out, tree, index));
}

/// [`label`], as UTF-8. Returns where in `out` the value stands, as [`value_label_into`] writes it, if there is one and
/// nothing else in the line depends on it.
pub fn label_into(out: &mut Vec<u8>, tree: &Tree, index: usize) -> Option<Range<usize>> {
    let node = tree.nodes.get(index)?;
    let generated = node.generated && !matches!(node.def.kind, Kind::Protocol);
    if generated {
        out.push(b'[');
    }
    let mut has_bits = false;
    if node.def.mask != 0
        && let NodeValue::U(v) = node.value
    {
        bits(out, node.def, v);
        out.extend_from_slice(b" = ");
        has_bits = true;
    }
    out.extend_from_slice(node.def.label.as_bytes());
    let mut place = None;
    // a subtree over bytes has nothing to add to its fields
    if node.value != NodeValue::None {
        out.extend_from_slice(b": ");
        let from = out.len();
        value_label_into(out, node.def, tree.stored(node));
        place = (!has_bits).then_some(from..out.len());
    }
    let note = tree.note(node);
    if is_plain(note) {
        out.extend_from_slice(note.as_bytes());
    } else {
        note.chars().for_each(|c| escape_piece(&mut Utf8Writer(out), Piece::Char(c)));
    }
    if generated {
        out.push(b']');
    }
    place
}

/// The four characters of four bits, by their mask (the higher half of the index) and their value.
static FOUR_BITS: [[u8; 4]; 256] = {
    let mut texts = [[b'.'; 4]; 256];
    let mut at = 0;
    while at < 256 {
        let mut bit = 0;
        while bit < 4 {
            if (at >> 4) & (8 >> bit) != 0 {
                texts[at][bit] = if at & (8 >> bit) != 0 { b'1' } else { b'0' };
            }
            bit += 1;
        }
        at += 1;
    }
    texts
};

/// The bits of a masked field in their integer: `.... ...1`.
fn bits(out: &mut Vec<u8>, def: Def, value: u64) {
    let width = match (def.width, def.kind.bits()) {
        (0, 0) => 8,
        (0, kind) => kind,
        (width, _) => u32::from(width).min(64),
    };
    let placed = value << def.mask.trailing_zeros();
    let fours = width.div_ceil(4);
    for four in (0..fours).rev() {
        let part = |bits: u64| (bits >> (4 * four)) as usize & 0x0f;
        let text = &FOUR_BITS[part(def.mask) << 4 | part(placed)];
        // an integer whose width is no multiple of four begins with fewer
        let skipped = if four + 1 == fours { (4 * fours - width) as usize } else { 0 };
        out.extend_from_slice(&text[skipped..]);
        if four > 0 {
            out.push(b' ');
        }
    }
}

/// Appends why decoding stopped, as a line of the detail pane. `cut` says that the capture has fewer bytes of the frame
/// than there were on the wire, which explains a fault of missing bytes.
pub fn fault_label(out: &mut String, fault: &Fault, cut: bool) {
    let _ = match (fault.kind, cut) {
        (FaultKind::Short, true) => write!(out, "[Cut by the capture: {fault}]"),
        _ => write!(out, "[Malformed: {fault}]"),
    };
}

fn into_string(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned())
}

#[cfg(test)]
#[allow(unreachable_pub, dead_code)]
mod tests {
    use super::*;
    use crate::trace::{Trace, Value};
    use proptest::prelude::*;
    use std::format;
    use std::string::ToString;
    use std::vec;

    fields! {
        /// One of each kind.
        pub mod k ["test"] {
            DEC: U32 = "k.dec", "Dec", dec;
            HEX: U32 = "k.hex", "Hex", hex;
            HEX24: U24 = "k.hex24", "Hex", hex;
            DECHEX: U16 = "k.dechex", "DecHex", dechex;
            HEXDEC: U16 = "k.hexdec", "HexDec", hexdec;
            OCT: U16 = "k.oct", "Oct", oct;
            NAMED: U8 = "k.named", "Opcode", dec, values &[(4, "RC - SEND Only")];
            FLAG: Bool & 0x01 / 8 = "k.flag", "Reply";
            BARE: Bool & 0x4000 / 16 = "k.bare", "Bare";
            SIGNED: I32 = "k.signed", "Signed", dec;
            BYTES: Bytes = "k.bytes", "Bytes";
            STR: Str = "k.str", "Str";
            WIDE: Utf16 = "k.wide", "Wide";
            V4: Ipv4 = "k.v4", "V4";
            V6: Ipv6 = "k.v6", "V6";
            MAC: Ether = "k.mac", "Mac";
            ID: Guid = "k.id", "Id";
            WHEN: AbsTime = "k.when", "When";
            LONG: RelTime = "k.long", "Long";
            REAL: Double = "k.real", "Real";
            SUB: None = "k.sub", "Sub";
        }
    }

    static NAMED_FLAG: FieldDef = FieldDef {
        name: "k.named_flag",
        id: crate::field::id_of("k.named_flag"),
        label: "Reply",
        kind: Kind::Bool,
        base: Base::None,
        mask: 1,
        width: 8,
        values: &[(0, "Not set"), (1, "Set")],
        spec: "test",
        privacy: crate::field::Privacy::Keep,
        hidden: false,
    };

    fn all(def: Def, v: Stored<'_>) -> [String; 4] {
        [Style::Json, Style::Ek, Style::Fields, Style::Pdml].map(|s| show(def, v, s))
    }

    #[test]
    fn values_are_shown_as_tshark_shows_them() {
        assert_eq!(all(k::DEC, Stored::U(9_294_453)), ["9294453"; 4]);
        assert_eq!(all(k::HEX, Stored::U(4)), ["0x00000004", "4", "0x00000004", "0x00000004"]);
        assert_eq!(show(k::HEX24, Stored::U(0x12), Style::Json), "0x000012");
        assert_eq!(show(k::HEXDEC, Stored::U(4), Style::Json), "0x0004");
        assert_eq!(show(k::DECHEX, Stored::U(4), Style::Json), "4");
        assert_eq!(show(k::OCT, Stored::U(0o644), Style::Json), "420");
        assert_eq!(all(k::FLAG, Stored::U(1)), ["1", "true", "True", "True"]);
        assert_eq!(show(k::SIGNED, Stored::I(-5), Style::Json), "-5");
        assert_eq!(all(k::BYTES, Stored::Bytes(&[1, 0xab])), ["01:ab", "01:ab", "01ab", "01:ab"]);
        assert_eq!(show(k::V4, Stored::Bytes(&[192, 0, 2, 1]), Style::Json), "192.0.2.1");
        let v6 = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        assert_eq!(show(k::V6, Stored::Bytes(&v6), Style::Fields), "fe80::1");
        assert_eq!(show(k::MAC, Stored::Bytes(&[0x52, 0x54, 0, 0, 0, 1]), Style::Fields), "52:54:00:00:00:01");
        let id = [1, 0, 0, 0, 2, 0, 3, 0, 4, 5, 6, 7, 8, 9, 10, 11];
        assert_eq!(show(k::ID, Stored::Bytes(&id), Style::Json), "00000001-0002-0003-0405-060708090a0b");
        let when = Stored::Time(1_795_247_768, 861_934_000);
        assert_eq!(show(k::WHEN, when, Style::Json), "2026-11-21T07:56:08.861934000Z");
        assert_eq!(show(k::WHEN, when, Style::Fields), "2026-11-21T07:56:08.861934000+0000");
        assert_eq!(show(crate::wire::frame_fields::f::TIME_EPOCH, when, Style::Fields), "1795247768.861934000");
        let mut label = String::new();
        value_label(&mut label, crate::wire::frame_fields::f::TIME_EPOCH, when);
        assert_eq!(label, "1795247768.861934000");
        assert_eq!(show(k::LONG, Stored::Time(11, 383_631_000), Style::Json), "11.383631000");
        assert_eq!(show(k::LONG, Stored::Time(-1, 500_000_000), Style::Json), "-0.500000000");
        assert_eq!(show(k::REAL, Stored::U(0.25_f64.to_bits()), Style::Json), "0.25");
        assert_eq!(show(k::WIDE, Stored::Bytes(&[0x61, 0, 0x00, 0xd8, 0x62, 0]), Style::Json), "a\u{fffd}b");
    }

    fn labelled(def: Def, value: Value<'_>, len: usize) -> String {
        let bytes = vec![0u8; 64];
        let mut tree = Tree::new();
        tree.begin(&bytes);
        tree.field(def, &bytes, len, value);
        let mut out = String::new();
        label(&mut out, &tree, 0);
        out
    }

    #[test]
    fn labels_are_lines_of_the_detail_pane() {
        assert_eq!(labelled(k::NAMED, Value::U(4), 1), "Opcode: RC - SEND Only (4)");
        assert_eq!(labelled(k::NAMED, Value::U(9), 1), "Opcode: 9");
        assert_eq!(labelled(&NAMED_FLAG, Value::U(1), 1), ".... ...1 = Reply: Set");
        assert_eq!(labelled(k::BARE, Value::U(0), 2), ".0.. .... .... .... = Bare: False");
        assert_eq!(labelled(k::OCT, Value::U(0o644), 2), "Oct: 0644");
        assert_eq!(labelled(k::DECHEX, Value::U(16), 2), "DecHex: 16 (0x10)");
        assert_eq!(labelled(k::HEXDEC, Value::U(16), 2), "HexDec: 0x0010 (16)");
        assert_eq!(labelled(k::LONG, Value::Time { seconds: 0, nanos: 5 }, 0), "[Long: 0.000000005 seconds]");
        assert_eq!(
            labelled(k::WHEN, Value::Time { seconds: 0, nanos: 0 }, 8),
            "When: Jan  1, 1970 00:00:00.000000000 UTC"
        );
        assert_eq!(labelled(k::BYTES, Value::Bytes(&[0; 64]), 64), format!("Bytes: {}… (64 bytes)", "00".repeat(36)));
        assert_eq!(labelled(k::SUB, Value::None, 4), "Sub");
        assert_eq!(labelled(k::STR, Value::Bytes(b"a\x1b[31mb\xff"), 3), "Str: a\\x1b[31mb\\xff");
        assert_eq!(
            labelled(k::WIDE, Value::Bytes(&[0x2e, 0x20, 0x00, 0xd8, 0x61]), 3),
            "Wide: \\u{202e}\\u{d800}\\x61"
        );
    }

    #[test]
    fn a_cut_frame_is_not_called_malformed() {
        let fault = Fault::short(Some(k::DEC), &[1], 4);
        let mut out = String::new();
        fault_label(&mut out, &fault, false);
        assert_eq!(out, "[Malformed: Dec: 4 bytes needed, 1 left]");
        out.clear();
        fault_label(&mut out, &fault, true);
        assert_eq!(out, "[Cut by the capture: Dec: 4 bytes needed, 1 left]");
    }

    #[test]
    fn bytes_of_every_length_are_shown() {
        for n in 0..40usize {
            let bytes: Vec<u8> = (0..n).map(|i| (i * 37 + 5) as u8).collect();
            let digits: Vec<String> = bytes.iter().map(|b| format!("{b:02x}")).collect();
            for (separator, between) in [(None, ""), (Some(b':'), ":"), (Some(b'-'), "-")] {
                let mut out = b"before ".to_vec();
                hex_bytes(&mut out, &bytes, separator);
                assert_eq!(String::from_utf8(out).unwrap(), format!("before {}", digits.join(between)));
            }
        }
    }

    proptest! {
        #[test]
        fn escaped_text_commands_no_terminal(text in any::<String>(), bytes in any::<Vec<u8>>()) {
            let mut out = escaped(&text);
            for def in [k::STR, k::WIDE] {
                value_label(&mut out, def, Stored::Bytes(&bytes));
            }
            prop_assert!(!out.chars().any(is_unsafe));
            prop_assert!(!out.chars().any(char::is_control));
        }

        #[test]
        fn json_strings_and_xml_are_clean(text in any::<String>()) {
            let (mut json, mut xml) = (Vec::new(), Vec::new());
            json_string(&mut json, &text);
            xml_text(&mut xml, &text);
            prop_assert!(!json.iter().any(|b| *b < 0x20));
            prop_assert!(!xml.iter().any(|b| *b < 0x20 || *b == b'<' || *b == b'"'));
        }

        #[test]
        fn numbers_print_as_std_prints_them(v in any::<u64>(), small in 0u64..1000, digits in 0u32..16) {
            for v in [v, small] {
                let (mut dec, mut hex, mut wide) = (Vec::new(), Vec::new(), Vec::new());
                decimal(&mut dec, v);
                hexadecimal(&mut hex, v, digits);
                padded(&mut wide, v, 9);
                prop_assert_eq!(String::from_utf8(dec).unwrap(), v.to_string());
                prop_assert_eq!(String::from_utf8(hex).unwrap(), format!("0x{v:0w$x}", w = digits as usize));
                prop_assert_eq!(String::from_utf8(wide).unwrap(), format!("{v:09}"));
            }
        }
    }
}
