//! The display filter language, Wireshark's (wireshark-filter(4)).
//!
//! ```text
//! smb2.cmd == "Read" && ip.src in {192.0.2.0/24, fe80::1} && !(frame.len > 1000) || eth.src[0:3] == 52:54:00
//! ```
//!
//! * `==` `!=` `>` `<` `>=` `<=` (`eq ne gt lt ge le`), `contains`, `matches` (or `~`, a regular expression that ignores
//!   case), `in {…}`, `&`, slices `[offset:length]` `[first-last]` `[n]` `[:n]` `[n:]`, `&&` `||` `^^` `!` (`and or xor
//!   not`), parentheses, `any` and `all` before a field, `len count lower upper string` as functions.
//! * A field may be there several times in a frame: a test is true if any of its values passes it. `!=` is the exception, as in
//!   Wireshark since 4.0: *all* values differ (`!==` is "any differs", `===` is "all are equal").
//! * A test of a field that is not there is false, whatever the test; `!(smb2.cmd == 8)` is true there.
//! * Literals follow the type of the field: numbers (decimal, `0x`, octal with a leading 0, negative), names of values, `aa:bb:cc`, addresses with
//!   `/prefix`, GUIDs, times (`"2026-11-21 07:56:08.5"` or seconds), strings in quotes with `\n \" \\ \x41`.
//!
//! [`Filter::parse`] checks every name and type against the [`Registry`]; an [`Error`] has the place and draws it.
//! Evaluation needs only a [`Probe`]: [`Filter::bind`] asks it for the fields, [`Filter::matches`] reads them.

mod complete;
mod eval;
mod lexer;
mod literal;
mod parser;

pub use complete::{Suggestion, SuggestionKind, closest, complete};

use crate::field::Def;
use crate::probe::{Need, Probe, Slot};
use crate::registry::Registry;
use crate::render::escape;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;
use core::ops::Range;

/// Longest filter, in bytes.
pub const TEXT_MAX: usize = 64 * 1024;
/// Deepest nesting of parentheses, negations and functions.
pub const DEPTH_MAX: usize = 64;

/// A filter that was checked.
#[derive(Clone, Debug)]
pub struct Filter {
    text: String,
    root: Test,
    wants: Vec<(Def, Need)>,
    /// Where a bound probe keeps each of `wants`.
    slots: Vec<Slot>,
}

/// What is wrong with a filter, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The bytes of the text that are wrong; empty at a place where something is missing.
    pub span: Range<usize>,
    /// What is wrong, in words that need no picture.
    pub message: String,
    /// What may have been meant.
    pub suggestion: Option<String>,
}

impl core::fmt::Display for Error {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(&self.message)?;
        match &self.suggestion {
            Some(s) => write!(f, "; did you mean {s}?"),
            None => Ok(()),
        }
    }
}

impl core::error::Error for Error {}

impl Error {
    pub(crate) fn new(span: Range<usize>, message: String) -> Self {
        Self { span, message, suggestion: None }
    }

    /// The message, the text it is about, and a caret under the place. Several lines, without a newline at the end; safe on a terminal.
    pub fn render(&self, text: &str) -> String {
        const SHOWN: usize = 100;
        let mut out = String::new();
        escape(&mut out, &alloc::format!("{self}"));
        // of a long filter, what is around the place
        let from = text[..self.span.start].char_indices().rev().nth(SHOWN / 2).map_or(0, |(i, _)| i);
        let upto = text[self.span.start..].char_indices().nth(SHOWN).map_or(text.len(), |(i, _)| self.span.start + i);
        let part = |range: Range<usize>| {
            let mut s = String::new();
            escape(&mut s, text.get(range).unwrap_or(""));
            s
        };
        let (before, at, after) =
            (part(from..self.span.start), part(self.span.start..self.span.end.min(upto)), part(self.span.end.min(upto)..upto));
        let _ = write!(out, "\n  {before}{at}{after}\n  ");
        out.extend(core::iter::repeat_n(' ', before.chars().count()));
        out.extend(core::iter::repeat_n('^', at.chars().count().max(1)));
        out
    }
}

impl Filter {
    /// Parses and checks a filter. Empty text (or only spaces) passes every frame.
    pub fn parse(text: &str, registry: &Registry) -> Result<Self, Error> {
        let mut parser = parser::Parser::new(text, registry)?;
        let root = parser.filter()?;
        Ok(Self { text: text.into(), root, wants: parser.wants, slots: Vec::new() })
    }

    /// The text it was parsed from.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The fields it looks at.
    pub fn fields(&self) -> impl Iterator<Item = Def> + '_ {
        self.wants.iter().map(|(def, _)| *def)
    }

    /// Asks a probe for the fields. A probe may serve several filters; a filter is bound to one probe, the last.
    pub fn bind(&mut self, probe: &mut Probe) {
        self.slots = self.wants.iter().map(|(def, need)| probe.want(def, *need)).collect();
    }

    /// Whether the frame that the probe saw passes. The probe is the one the filter is bound to.
    #[inline]
    pub fn matches(&self, probe: &Probe) -> bool {
        self.root.eval(&eval::Context { probe, slots: &self.slots })
    }
}

/// A test, with its operands checked to fit.
#[derive(Clone, Debug)]
enum Test {
    /// The empty filter.
    Always,
    Present(u16),
    /// A number that is not 0, bytes or text that are not empty.
    Truthy(Operand),
    Compare {
        op: Op,
        /// Whether all pairs of values have to pass, not any.
        all: bool,
        left: Operand,
        right: Operand,
    },
    Contains {
        all: bool,
        left: Operand,
        right: Operand,
    },
    Matches {
        all: bool,
        left: Operand,
        regex: Box<regex::bytes::Regex>,
    },
    In {
        all: bool,
        left: Operand,
        set: Vec<(Literal, Option<Literal>)>,
    },
    And(Vec<Test>),
    Or(Vec<Test>),
    Xor(Vec<Test>),
    Not(Box<Test>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Eq,
    Ne,
    Gt,
    Lt,
    Ge,
    Le,
}

/// What a test looks at.
#[derive(Clone, Debug)]
enum Operand {
    /// An index into [`Filter::wants`], and the class of its values.
    Field(u16),
    Slice(Box<Operand>, Vec<Part>),
    Mask(Box<Operand>, Box<Operand>),
    Call(Function, Box<Operand>),
    /// The name that a field's number has.
    Name(Box<Operand>),
    Literal(Literal),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Function {
    Len,
    Count,
    Lower,
    Upper,
    Text,
}

impl Function {
    const ALL: [(&'static str, Self, &'static str); 5] = [
        ("len", Self::Len, "length of text or bytes, in bytes"),
        ("count", Self::Count, "how often the field is in the frame"),
        ("lower", Self::Lower, "text in lower case"),
        ("upper", Self::Upper, "text in upper case"),
        ("string", Self::Text, "the value as text"),
    ];
}

/// One part of a slice. Negative offsets count from the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    start: i64,
    end: End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Length(u64),
    /// The offset of the last element.
    Last(i64),
    Open,
}

/// A literal in the form of the values it is compared with.
#[derive(Clone, Debug, PartialEq)]
enum Literal {
    U(u64),
    I(i64),
    Real(f64),
    Bytes(Vec<u8>),
    /// An address of which only the first bits count.
    Net(Vec<u8>, u32),
    Text(String),
    Time(i64, u32),
}

/// What values can be compared with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Number,
    Real,
    Text,
    Bytes,
    Ipv4,
    Ipv6,
    Absolute,
    Relative,
}

#[cfg(test)]
mod tests;
