//! The display filter language of Wireshark 4.6 (wireshark-filter(4)).
//!
//! ```text
//! smb2.cmd == "Read" && ip.src in {192.0.2.0/24, fe80::1} && !(frame.len > 1000) || eth.src[0:3] == 52:54:00
//! ```
//!
//! * `==` `!=` `>` `<` `>=` `<=` (`eq ne gt lt ge le`), `contains`, `matches` (or `~`, a regular expression that
//!   ignores case), `in {…}` and `not in {…}`, `&&` `||` `^^` `!` (`and or xor not`), parentheses.
//! * A field may be there several times in a frame: a test is true if any of its values passes it. `!=` is the
//!   exception, as in Wireshark since 4.0: *all* values differ (`!==` is "any differs", `===` is "all are equal").
//!   `any` and `all` in front of a test say which it is: `any tcp.port != 445`.
//! * A test of a field that is not there is false, whatever the test; `!(smb2.cmd == 8)` is true there. `count(field)`
//!   is 0.
//! * `f not in {…}` is true where the field is there and `f in {…}` is false.
//! * Numbers and times are computed with by `+ - * / %`, bits by `&`, in groups `{ }`: `{ip.len + 14} == frame.len`.
//! * Slices `[offset:length]` `[first-last]` `[n]` `[:n]` `[n:]` `[a,b]`; layers `ip.addr#2` `ip.addr#[1-2]` (of the
//!   frame's layers of that protocol); `@field`, the bytes that the field covers; `.name` is a field and `:name` a
//!   value where the two could be confused.
//! * Functions: `len count lower upper string vals dec hex float double abs max min`.
//! * `${field}` is the value in the frame that is selected ([`Filter::refer`]); `${name:argument;…}` and
//!   `$name(argument, …)` are macros ([`Registry::define`]).
//! * Literals follow the type of the field: numbers (decimal, `0x`, `0b`, octal with a leading 0, `'c'`), names of
//!   values, `aa:bb:cc`, addresses with `/prefix`, GUIDs, times (`"2026-11-21 07:56:08.5+01:00"` or seconds), strings
//!   in quotes with `\n \" \\ \x41`.
//! * A protocol or field that only Wireshark has is never there; [`Filter::absent`] names those.
//!
//! [`Filter::parse`] checks every name and type against the [`Registry`]; an [`Error`] has the place and draws it.
//! Evaluation needs only an [`Extractor`]: [`Filter::bind`] asks it for the fields, [`Filter::matches`] reads them.

mod complete;
mod eval;
mod lexer;
mod literal;
mod macros;
mod parser;

pub use complete::{Suggestion, SuggestionKind, closest, complete};

use crate::extract::{Extractor, Need, Slot};
use crate::field::Def;
use crate::registry::Registry;
use crate::text::escape;
use crate::trace::Tree;
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
    wants: Vec<Want>,
    /// Slots of `wants` in the bound extractor, in the same order.
    slots: Vec<Slot>,
    references: Vec<Reference>,
    absent: Vec<String>,
}

/// A field that a filter looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Want {
    def: Def,
    need: Need,
    /// Its bytes are looked at, not its value.
    raw: bool,
    /// The layers of its values are looked at.
    layers: bool,
}

/// A field of the selected frame that a filter refers to.
#[derive(Clone, Debug)]
struct Reference {
    def: Def,
    values: Vec<Literal>,
}

/// An error in a filter, and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The bytes of the text that are wrong; empty at a place where something is missing.
    pub span: Range<usize>,
    /// The error, as a sentence that needs no picture.
    pub message: String,
    /// Name that was probably meant.
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

    /// The message, the text it is about, and a caret under the place. Several lines, without a newline at the end;
    /// safe on a terminal.
    pub fn render(&self, text: &str) -> String {
        const SHOWN: usize = 100;
        let mut out = String::new();
        escape(&mut out, &alloc::format!("{self}"));
        // of a long filter, the part around the place
        let from = text[..self.span.start].char_indices().rev().nth(SHOWN / 2).map_or(0, |(i, _)| i);
        let upto = text[self.span.start..].char_indices().nth(SHOWN).map_or(text.len(), |(i, _)| self.span.start + i);
        let part = |range: Range<usize>| {
            let mut s = String::new();
            escape(&mut s, text.get(range).unwrap_or(""));
            s
        };
        let (before, at, after) = (
            part(from..self.span.start),
            part(self.span.start..self.span.end.min(upto)),
            part(self.span.end.min(upto)..upto),
        );
        let _ = write!(out, "\n  {before}{at}{after}\n  ");
        out.extend(core::iter::repeat_n(' ', before.chars().count()));
        out.extend(core::iter::repeat_n('^', at.chars().count().max(1)));
        out
    }
}

impl Filter {
    /// Parses and checks a filter. Empty text (or only spaces) passes every frame.
    pub fn parse(text: &str, registry: &Registry) -> Result<Self, Error> {
        let expanded = macros::expand(text, registry)?;
        let parse = |text: &str| -> Result<Self, Error> {
            let mut parser = parser::Parser::new(text, registry)?;
            let root = parser.filter()?;
            let parser::Parser { wants, references, absent, .. } = parser;
            Ok(Self { text: String::new(), root, wants, slots: Vec::new(), references, absent })
        };
        let mut filter = match &expanded {
            None => parse(text)?,
            // a place in the expanded text is no place in the text that was written
            Some(expanded) => parse(expanded).map_err(|e| Error {
                span: 0..text.len(),
                message: alloc::format!("{}, in what the macros stand for: {expanded}", e.message),
                suggestion: e.suggestion,
            })?,
        };
        filter.text = text.into();
        Ok(filter)
    }

    /// Names in it that Wireshark has and that are not known here: each is taken for absent from every frame.
    pub fn absent(&self) -> &[String] {
        &self.absent
    }

    /// Takes the values of the fields it refers to (`${field}`) from a frame. Until then they have none, and
    /// comparisons with them are false.
    pub fn refer(&mut self, tree: &Tree) {
        for reference in &mut self.references {
            reference.values.clear();
            let nodes = tree.nodes.iter().filter(|n| n.def.id == reference.def.id);
            reference.values.extend(nodes.filter_map(|node| Literal::of(node.def, tree.stored(node))));
        }
    }

    /// The text it was parsed from.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The fields it looks at.
    pub fn fields(&self) -> impl Iterator<Item = Def> + '_ {
        self.wants.iter().map(|w| w.def)
    }

    /// The number of the last frame that can pass, where the filter says so, as `frame.number == 7` does: nothing
    /// behind it need be read.
    pub fn last_frame(&self) -> Option<u64> {
        self.last(&self.root)
    }

    /// Number of the first frame that can pass, if the filter limits `frame.number` from below.
    pub fn first_frame(&self) -> Option<u64> {
        self.first(&self.root)
    }

    /// True if the operand is the field `frame.number`.
    fn is_number(&self, operand: &Operand) -> bool {
        matches!(operand, Operand::Field(i) if self.wants.get(usize::from(*i)).is_some_and(|w| w.def.name == "frame.number" && !w.raw))
    }

    fn first(&self, test: &Test) -> Option<u64> {
        match test {
            Test::And(tests) => tests.iter().filter_map(|test| self.first(test)).max(),
            Test::Or(tests) => tests.iter().map(|test| self.first(test)).collect::<Option<Vec<_>>>()?.into_iter().min(),
            Test::Compare { op: Op::Eq | Op::Ge, left, right, .. } if self.is_number(left) => value(right),
            Test::Compare { op: Op::Gt, left, right, .. } if self.is_number(left) => {
                Some(value(right)?.saturating_add(1))
            }
            Test::In { not: false, left, set, .. } if self.is_number(left) => {
                set.iter().map(|(first, _)| value(first)).collect::<Option<Vec<_>>>()?.into_iter().min()
            }
            _ => None,
        }
    }

    fn last(&self, test: &Test) -> Option<u64> {
        let is_number = |operand| self.is_number(operand);
        match test {
            Test::And(tests) => tests.iter().filter_map(|test| self.last(test)).min(),
            Test::Or(tests) => tests.iter().map(|test| self.last(test)).collect::<Option<Vec<_>>>()?.into_iter().max(),
            Test::Compare { op: Op::Eq | Op::Le, left, right, .. } if is_number(left) => value(right),
            Test::Compare { op: Op::Lt, left, right, .. } if is_number(left) => Some(value(right)?.saturating_sub(1)),
            Test::In { not: false, left, set, .. } if is_number(left) => set
                .iter()
                .map(|(first, last)| value(last.as_ref().unwrap_or(first)))
                .collect::<Option<Vec<_>>>()?
                .into_iter()
                .max(),
            _ => None,
        }
    }

    /// Asks an extractor for the fields. An extractor may serve several filters; a filter is bound to one extractor,
    /// the last.
    pub fn bind(&mut self, extractor: &mut Extractor) {
        if self.wants.iter().any(|w| w.layers) {
            extractor.want_layers();
        }
        self.slots = self
            .wants
            .iter()
            .map(|w| if w.raw { extractor.want_raw(w.def) } else { extractor.want(w.def, w.need) })
            .collect();
    }

    /// True if the frame that the extractor saw passes. The extractor is the one the filter is bound to.
    #[inline]
    pub fn matches(&self, extractor: &Extractor) -> bool {
        self.root.eval(&eval::Context::new(extractor, &self.slots, &self.references))
    }
}

/// The value of an integer literal.
fn value(operand: &Operand) -> Option<u64> {
    if let Operand::Literal(Literal::U(n)) = operand { Some(*n) } else { None }
}

/// A test, with its operands checked to fit.
#[derive(Clone, Debug)]
enum Test {
    /// The empty filter.
    Always,
    Present(u16),
    /// There is a value.
    Exists(Operand),
    /// A value that is not 0, nor all zero bytes, nor empty.
    Truthy(Operand),
    Compare {
        op: Op,
        /// True if all pairs of values have to pass, not any.
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
        /// `not in`: there is a value, and the test without `not` fails.
        not: bool,
        left: Operand,
        set: Vec<(Operand, Option<Operand>)>,
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

/// Operand of a test.
#[derive(Clone, Debug)]
enum Operand {
    /// An index into [`Filter::wants`].
    Field(u16),
    /// The same, of some layers only.
    Layers(u16, Vec<Part>),
    /// An index into [`Filter::references`].
    Reference(u16),
    Slice(Box<Operand>, Vec<Part>),
    Arithmetic(Arithmetic, Box<Operand>, Box<Operand>),
    Negative(Box<Operand>),
    Call(Function, Vec<Operand>),
    /// The name that a field's number has.
    Name(Box<Operand>),
    Literal(Literal),
    /// A field that is in no frame.
    Absent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arithmetic {
    And,
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Function {
    Len,
    Count,
    Lower,
    Upper,
    Text,
    Names,
    Decimal,
    Hexadecimal,
    Real,
    Absolute,
    Greatest,
    Least,
}

impl Function {
    const ALL: [(&'static str, Self, &'static str); 13] = [
        ("len", Self::Len, "length of text or bytes, in bytes"),
        ("count", Self::Count, "how often the field is in the frame"),
        ("lower", Self::Lower, "text in lower case"),
        ("upper", Self::Upper, "text in upper case"),
        ("string", Self::Text, "the value as text"),
        ("vals", Self::Names, "the name that the value has"),
        ("dec", Self::Decimal, "the number as decimal text"),
        ("hex", Self::Hexadecimal, "the number as hexadecimal text"),
        ("float", Self::Real, "the number as a real one"),
        ("double", Self::Real, "the number as a real one"),
        ("abs", Self::Absolute, "the number without its sign"),
        ("max", Self::Greatest, "the greatest of all values"),
        ("min", Self::Least, "the least of all values"),
    ];
}

/// One part of a slice. Negative offsets count from the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    start: i64,
    end: SliceEnd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SliceEnd {
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

/// Class of values that can be compared with each other.
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
    /// Class of absent fields: they can be compared with anything.
    Any,
}

#[cfg(test)]
mod tests;
