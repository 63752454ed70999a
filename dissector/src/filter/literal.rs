//! Literals by the type of the field that they stand beside.

use super::lexer::lossy;
use super::{Class, Error, Literal, closest};
use crate::calendar::days_of;
use crate::field::{FieldDef, Kind};
use crate::render::{Stored, Style, show};
use crate::text::escaped;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;

/// Class of literals that values of a kind can be compared with.
pub(super) fn class_of(kind: Kind) -> Class {
    match kind {
        k if k.is_unsigned() || k.is_signed() || matches!(k, Kind::Bool | Kind::FrameNum) => Class::Number,
        Kind::Double => Class::Real,
        Kind::Str | Kind::Utf16 => Class::Text,
        Kind::Ipv4 => Class::Ipv4,
        Kind::Ipv6 => Class::Ipv6,
        Kind::AbsTime => Class::Absolute,
        Kind::RelTime => Class::Relative,
        _ => Class::Bytes,
    }
}

/// Notation of a literal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Bare,
    /// In double quotes, or several characters in single ones.
    Quoted,
    /// One byte in single quotes: a number beside numbers.
    Char,
}

/// A literal as it stands in the filter.
pub(super) struct Raw<'r> {
    /// The word, or the text within the quotes.
    pub(super) text: &'r [u8],
    pub(super) form: Form,
    pub(super) span: Range<usize>,
}

impl Raw<'_> {
    fn is_quoted(&self) -> bool {
        self.form != Form::Bare
    }
}

impl Literal {
    /// The value that a frame has.
    pub(super) fn of(def: &FieldDef, stored: Stored<'_>) -> Option<Self> {
        Some(match stored {
            Stored::None => return None,
            Stored::U(v) if def.kind == Kind::Double => Self::Real(f64::from_bits(v)),
            Stored::U(v) => Self::U(v),
            Stored::I(v) => Self::I(v),
            Stored::Bytes(_) if class_of(def.kind) == Class::Text => Self::Text(show(def, stored, Style::Pdml)),
            Stored::Bytes(b) => Self::Bytes(b.to_vec()),
            Stored::Text(t) => Self::Text(t.into()),
            Stored::Time(s, n) => Self::Time(s, n),
        })
    }
}

/// From so many digits on, what stands beside bytes is no number but bytes in hexadecimal.
const DIGITS_OF_BYTES: usize = 8;

/// Reads a literal for `def`, or for a computed value of class `class` without a field. `loose` takes a word that is
/// not hexadecimal for text, which is what people mean behind `contains`. `ahead` is the local time zone:
/// [`Registry::set_local_time`](crate::registry::Registry::set_local_time).
pub(super) fn literal(
    raw: &Raw<'_>,
    class: Class,
    def: Option<&FieldDef>,
    loose: bool,
    ahead: fn(i64) -> i32,
) -> Result<Literal, Error> {
    let text = lossy(raw.text);
    let what = def.map_or_else(String::new, |d| format!(" for {}", d.name));
    let refuse = |kind: &str| Err(Error::new(raw.span.clone(), format!("\"{}\" is not {kind}{what}", escaped(&text))));
    let form = match def.map(|d| d.kind) {
        Some(k @ (Kind::Ether | Kind::Guid | Kind::Eui64)) => Some(k),
        _ => None,
    };
    match class {
        Class::Text => Ok(Literal::Text(text)),
        // it is compared with a field that is in no frame
        Class::Any => Ok(Literal::Bytes(Vec::new())),
        Class::Number => {
            if let (Form::Char, [c]) = (raw.form, raw.text) {
                return Ok(Literal::U(u64::from(*c)));
            }
            if let Some(v) = named(def, &text) {
                return Ok(Literal::U(v));
            }
            match number(&text) {
                Some(v) if !raw.is_quoted() || def.is_none_or(|d| d.values.is_empty()) => in_range(v, def, raw),
                _ => match def.filter(|d| {
                    !d.values.is_empty() && (raw.is_quoted() || !text.starts_with(|c: char| c.is_ascii_digit()))
                }) {
                    Some(d) => {
                        let message = format!("\"{}\" is not among the names of {}'s values", escaped(&text), d.name);
                        let suggestion = closest(&text, d.values.iter().map(|(_, n)| *n)).map(|n| format!("{n:?}"));
                        Err(Error { span: raw.span.clone(), message, suggestion })
                    }
                    None => refuse("a number"),
                },
            }
        }
        Class::Real => text.parse::<f64>().map_or_else(|_| refuse("a number"), |v| Ok(Literal::Real(v))),
        Class::Ipv4 => match address::<4>(&text, |t| t.parse::<core::net::Ipv4Addr>().ok().map(|a| a.octets())) {
            Some(l) => Ok(l),
            None => refuse("an IPv4 address"),
        },
        Class::Ipv6 => match address::<16>(&text, |t| t.parse::<core::net::Ipv6Addr>().ok().map(|a| a.octets())) {
            Some(l) => Ok(l),
            None => refuse("an IPv6 address"),
        },
        Class::Absolute => match absolute(&text, ahead) {
            Some((s, n)) => Ok(Literal::Time(s, n)),
            None => refuse("a time (\"2026-11-21 07:56:08.5\", or seconds since 1970)"),
        },
        Class::Relative => match seconds(&text) {
            Some((s, n)) => Ok(Literal::Time(s, n)),
            None => refuse("a number of seconds"),
        },
        Class::Bytes => {
            if form == Some(Kind::Guid)
                && let Some(b) = guid(&text)
            {
                return Ok(Literal::Bytes(b));
            }
            // a number is one byte, as in eth.src[0] == 82; as many digits as these are a run of bytes
            if raw.form == Form::Bare
                && form.is_none()
                && let Some(value) = number(&text).filter(|_| text.len() < DIGITS_OF_BYTES || text.contains(['x', 'X']))
            {
                return match u8::try_from(value) {
                    Ok(byte) => Ok(Literal::Bytes(alloc::vec![byte])),
                    Err(_) => refuse("a byte, as a number is beside bytes (a run of bytes is aa:bb:cc)"),
                };
            }
            match (raw.is_quoted(), hex(&text)) {
                (true, hex) if form.is_some() => match hex {
                    Some(b) => Ok(Literal::Bytes(b)),
                    None => refuse(if form == Some(Kind::Guid) { "a GUID" } else { "an address" }),
                },
                (true, _) => Ok(Literal::Bytes(raw.text.to_vec())),
                (false, Some(b)) => Ok(Literal::Bytes(b)),
                (false, None) if loose => Ok(Literal::Bytes(raw.text.to_vec())),
                (false, None) if form == Some(Kind::Guid) => refuse("a GUID"),
                (false, None) => refuse("a run of bytes (aa:bb:cc, or text in quotes)"),
            }
        }
    }
}

fn named(def: Option<&FieldDef>, text: &str) -> Option<u64> {
    let def = def?;
    if let Some((v, _)) = def.values.iter().find(|(_, name)| name.eq_ignore_ascii_case(text)) {
        return Some(*v);
    }
    if def.kind != Kind::Bool {
        return None;
    }
    [("true", 1), ("false", 0)].iter().find(|(n, _)| n.eq_ignore_ascii_case(text)).map(|(_, v)| *v)
}

/// Decimal, hexadecimal with `0x`, binary with `0b`, octal with a leading 0; a sign.
pub(super) fn number(text: &str) -> Option<i128> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let lower = |p: &str| digits.strip_prefix(p).or_else(|| digits.strip_prefix(p.to_ascii_uppercase().as_str()));
    let (digits, radix) = match (lower("0x"), lower("0b")) {
        (Some(d), _) => (d, 16),
        (_, Some(d)) => (d, 2),
        _ if digits.len() > 1 && digits.starts_with('0') => (digits, 8),
        _ => (digits, 10),
    };
    if digits.starts_with(['-', '+']) {
        return None;
    }
    let v = i128::from(u64::from_str_radix(digits, radix).ok()?);
    Some(if negative { -v } else { v })
}

fn in_range(v: i128, def: Option<&FieldDef>, raw: &Raw<'_>) -> Result<Literal, Error> {
    let Some(def) = def else {
        return Ok(u64::try_from(v).map_or(Literal::I(i64::try_from(v).unwrap_or(i64::MIN)), Literal::U));
    };
    let bits = match def.kind {
        Kind::Bool | Kind::FrameNum => 64,
        k => k.bits(),
    };
    let (least, most) = if def.kind.is_signed() {
        (-(1_i128 << (bits - 1)), (1_i128 << (bits - 1)) - 1)
    } else {
        (0, (1_i128 << bits) - 1)
    };
    if v < 0 && least == 0 && v >= -(1_i128 << 63) {
        // no value is negative, and any is greater
        return Ok(Literal::I(v as i64));
    }
    if v < least || v > most {
        return Err(Error::new(
            raw.span.clone(),
            format!("{v} does not fit {}, which has {bits} bits ({least} to {most})", def.name),
        ));
    }
    Ok(if def.kind.is_signed() { Literal::I(v as i64) } else { Literal::U(v as u64) })
}

fn address<const N: usize>(text: &str, parse: impl Fn(&str) -> Option<[u8; N]>) -> Option<Literal> {
    let Some((address, prefix)) = text.split_once('/') else { return parse(text).map(|a| Literal::Bytes(a.to_vec())) };
    let prefix = prefix.parse::<u32>().ok().filter(|p| *p as usize <= 8 * N)?;
    Some(Literal::Net(parse(address)?.to_vec(), prefix))
}

/// `aa:bb`, `aa-bb`, `aa.bb`, `aabb`, `0xaabb`, `a`.
fn hex(text: &str) -> Option<Vec<u8>> {
    let byte = |t: &str| {
        (matches!(t.len(), 1 | 2) && t.bytes().all(|b| b.is_ascii_hexdigit()))
            .then(|| u8::from_str_radix(t, 16).ok())
            .flatten()
    };
    let text = text.strip_suffix(':').unwrap_or(text);
    // 5254.0000.0001
    if let Some(separator) = ['.', ':'].into_iter().find(|s| text.contains(*s))
        && text.split(separator).all(|group| group.len() == 4 && group.is_ascii())
    {
        return text.split(separator).flat_map(|group| [byte(&group[..2]), byte(&group[2..])]).collect();
    }
    if let Some(separator) = [':', '-', '.'].into_iter().find(|s| text.contains(*s)) {
        return text.split(separator).map(byte).collect();
    }
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")).unwrap_or(text);
    if digits.len() < 3 {
        return byte(digits).map(|b| alloc::vec![b]);
    }
    if !digits.is_ascii() || !digits.len().is_multiple_of(2) {
        return None;
    }
    (0..digits.len()).step_by(2).map(|i| byte(&digits[i..i + 2])).collect()
}

/// A GUID in the order of the wire: the first three groups are little-endian there.
fn guid(text: &str) -> Option<Vec<u8>> {
    let text = text.strip_prefix('{').and_then(|t| t.strip_suffix('}')).unwrap_or(text);
    let groups: Vec<&str> = text.split('-').collect();
    if groups.iter().map(|g| g.len()).ne([8, 4, 4, 4, 12]) {
        return None;
    }
    let mut b: Vec<u8> = groups.iter().map(|g| hex(g)).collect::<Option<Vec<_>>>()?.concat();
    b.get_mut(0..4)?.reverse();
    b.get_mut(4..6)?.reverse();
    b.get_mut(6..8)?.reverse();
    Some(b)
}

/// A decimal number of seconds, of either sign, as seconds and nanoseconds counted forward.
fn seconds(text: &str) -> Option<(i64, u32)> {
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |t| (true, t));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let plain = |t: &str| t.bytes().all(|b| b.is_ascii_digit());
    if (whole.is_empty() && fraction.is_empty()) || !plain(whole) || !plain(fraction) || fraction.len() > 9 {
        return None;
    }
    let whole: i64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let nanos = nanos(fraction)?;
    Some(match (negative, nanos) {
        (false, n) => (whole, n),
        (true, 0) => (-whole, 0),
        (true, n) => (-whole - 1, 1_000_000_000 - n),
    })
}

fn nanos(fraction: &str) -> Option<u32> {
    if fraction.is_empty() {
        return Some(0);
    }
    if fraction.len() > 9 || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    Some(fraction.parse::<u32>().ok()? * 10_u32.pow(9 - fraction.len() as u32))
}

/// `2026-11-21T07:56:08.5Z`, `2026-11-21 07:56`, `Nov 21, 2026 07:56:08`, without a zone in local time; or seconds
/// since 1970.
fn absolute(text: &str, ahead: fn(i64) -> i32) -> Option<(i64, u32)> {
    if let Some(t) = seconds(text) {
        return Some(t);
    }
    let (text, east) = zone(text.trim());
    let (year, month, day, clock) = if text.starts_with(|c: char| c.is_ascii_alphabetic()) {
        const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
        let mut words = text.split_ascii_whitespace();
        let month = words.next()?.get(..3)?.to_ascii_lowercase();
        let month = MONTHS.iter().position(|m| *m == month)? as u32 + 1;
        let day = words.next()?.trim_end_matches(',').parse().ok()?;
        (words.next()?.parse().ok()?, month, day, words.next().unwrap_or(""))
    } else {
        let (date, clock) = text.split_once(['T', ' ']).unwrap_or((text, ""));
        let mut parts = date.splitn(3, '-');
        (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?, parts.next()?.parse().ok()?, clock.trim())
    };
    if !(1..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, ""));
    let mut hms = [0_i64; 3];
    for (i, part) in clock.split(':').filter(|p| !p.is_empty()).enumerate() {
        *hms.get_mut(i)? = part.parse().ok().filter(|v| (0..if i == 0 { 24 } else { 61 }).contains(v))?;
    }
    let midnight = days_of(year, month, day)?.checked_mul(86_400)?;
    let clock = midnight.checked_add(hms[0] * 3600 + hms[1] * 60 + hms[2])?;
    let east = east.unwrap_or_else(|| {
        let here = |seconds: i64| i64::from(ahead(seconds));
        here(clock.saturating_sub(here(clock)))
    });
    Some((clock.checked_sub(east)?, nanos(fraction)?))
}

/// A time without its zone, and how many seconds the zone is ahead of UTC, if it has one: `Z`, `UTC`, `+02:00`,
/// `-0500`.
fn zone(text: &str) -> (&str, Option<i64>) {
    if let Some(rest) = ["Z", "UTC", "GMT"].iter().find_map(|z| text.strip_suffix(z)) {
        return (rest.trim_end(), Some(0));
    }
    // the date has dashes too: a zone stands behind the clock
    let Some(at) = text.rfind(['+', '-']).filter(|at| text[..*at].contains(':')) else { return (text, None) };
    let (rest, offset) = text.split_at(at);
    let digits: String = offset[1..].chars().filter(|c| *c != ':').collect();
    match (digits.len(), digits.parse::<i64>()) {
        (4, Ok(v)) if v % 100 < 60 && v / 100 < 24 => {
            let seconds = (v / 100) * 3600 + (v % 100) * 60;
            (rest.trim_end(), Some(if offset.starts_with('-') { -seconds } else { seconds }))
        }
        _ => (text, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_all_their_forms() {
        let cases = [
            ("10", Some(10)),
            ("0x1F", Some(31)),
            ("010", Some(8)),
            ("0b101", Some(5)),
            ("-3", Some(-3)),
            ("08", None),
            ("1e3", None),
            ("--1", None),
        ];
        for (text, value) in cases {
            assert_eq!(number(text), value, "{text}");
        }
    }

    #[test]
    fn a_number_beside_bytes_is_one_of_them() {
        let read = |text: &str| {
            let raw = Raw { text: text.as_bytes(), form: Form::Bare, span: 0..text.len() };
            [true, false].map(|loose| match literal(&raw, Class::Bytes, None, loose, |_| 0) {
                Ok(Literal::Bytes(bytes)) => Some(bytes),
                _ => None,
            })
        };
        for (text, expected) in [
            ("83", Some(alloc::vec![83])),
            ("0x53", Some(alloc::vec![0x53])),
            ("053", Some(alloc::vec![43])),
            ("256", None),
            ("0x0600", None),
            ("fe", Some(alloc::vec![0xfe])),
            ("53:4d", Some(alloc::vec![0x53, 0x4d])),
            ("00000000", Some(alloc::vec![0; 4])),
        ] {
            assert_eq!(read(text), [expected.clone(), expected], "{text}");
        }
    }

    #[test]
    fn times_in_all_their_forms() {
        let expected = Some((1_795_247_768, 500_000_000));
        let utc = |_| 0;
        for text in ["2026-11-21 07:56:08.5", "2026-11-21T07:56:08.500Z", "Nov 21, 2026 07:56:08.5", "1795247768.5"] {
            assert_eq!(absolute(text, utc), expected, "{text}");
        }
        for text in ["2026-11-21T09:56:08.5+02:00", "2026-11-21 02:56:08.5 -0500", "2026-11-21 07:56:08.5 UTC"] {
            assert_eq!(absolute(text, utc), expected, "{text}");
        }
        // an hour ahead, two in summer
        let local = |seconds| if (1_774_746_000..1_792_890_000).contains(&seconds) { 7200 } else { 3600 };
        for text in ["2026-11-21 08:56:08.5", "2026-11-21T07:56:08.5Z", "2026-11-21 09:56:08.5+0200", "1795247768.5"] {
            assert_eq!(absolute(text, local), expected, "{text}");
        }
        assert_eq!(absolute("2026-07-01 02:00", local), absolute("2026-07-01 00:00 UTC", local));
        assert_eq!(seconds("-0.25"), Some((-1, 750_000_000)));
        assert_eq!(seconds("x"), None);
        assert_eq!(absolute("2026-13-01", utc), None);
        assert_eq!(absolute("2026-11-21 25:00", utc), None);
    }

    #[test]
    fn bytes_and_guids() {
        assert_eq!(hex("52:54:00"), Some(alloc::vec![0x52, 0x54, 0]));
        assert_eq!(hex("5254"), Some(alloc::vec![0x52, 0x54]));
        assert_eq!(hex("5254.0000.0001"), hex("52:54:00:00:00:01"));
        assert_eq!(hex("525"), None);
        assert_eq!(hex("xx"), None);
        assert_eq!(
            guid("01020304-0506-0708-090a-0b0c0d0e0f10").unwrap(),
            [4, 3, 2, 1, 6, 5, 8, 7, 9, 10, 11, 12, 13, 14, 15, 16]
        );
    }
}
