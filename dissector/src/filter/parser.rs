//! Tokens to tests, checked against the registry.
//!
//! ```text
//! filter  := [or] END
//! or      := xor { "||" xor }        xor := and { "^^" and }        and := not { "&&" not }
//! not     := "!" not | "(" or ")" | test
//! test    := [any|all] operand [ relation operand { relation operand } | contains operand | matches string | [not] in set ]
//! operand := item [ "&" item ]       item := field [slice] | function "(" operand ")" | literal
//! set     := "{" literal [".." literal] { "," literal [".." literal] } "}"
//! ```

use super::lexer::{Lexed, Lexer, Token, lossy};
use super::literal::{Raw, class_of, literal};
use super::{Class, DEPTH_MAX, End, Error, Function, Literal, Op, Operand, Part, TEXT_MAX, Test, closest};
use crate::field::{Def, Kind};
use crate::probe::Need;
use crate::registry::Registry;
use crate::render::escaped;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;

pub(super) struct Parser<'t> {
    text: &'t str,
    lexer: Lexer<'t>,
    peeked: Option<Lexed>,
    in_set: bool,
    depth: usize,
    registry: &'t Registry,
    pub(super) wants: Vec<(Def, Need)>,
}

/// One side of a test, before it is known what it is compared with.
#[derive(Clone)]
enum Side {
    /// A field, or what is computed from one.
    Typed { operand: Operand, class: Class, def: Option<Def>, span: Range<usize> },
    /// A literal.
    Raw { text: Vec<u8>, quoted: bool, span: Range<usize> },
}

impl Side {
    fn span(&self) -> Range<usize> {
        match self {
            Self::Typed { span, .. } | Self::Raw { span, .. } => span.clone(),
        }
    }
}

fn describe(class: Class) -> &'static str {
    match class {
        Class::Number => "a number",
        Class::Real => "a real number",
        Class::Text => "text",
        Class::Bytes => "a run of bytes",
        Class::Ipv4 => "an IPv4 address",
        Class::Ipv6 => "an IPv6 address",
        Class::Absolute => "a time",
        Class::Relative => "a duration",
    }
}

impl<'t> Parser<'t> {
    pub(super) fn new(text: &'t str, registry: &'t Registry) -> Result<Self, Error> {
        if text.len() > TEXT_MAX {
            return Err(Error::new(0..0, format!("the filter is {} bytes long, {TEXT_MAX} at most are read", text.len())));
        }
        Ok(Self { text, lexer: Lexer::new(text), peeked: None, in_set: false, depth: 0, registry, wants: Vec::new() })
    }

    pub(super) fn filter(&mut self) -> Result<Test, Error> {
        if self.peek()?.token == Token::End {
            return Ok(Test::Always);
        }
        let test = self.or()?;
        let last = self.next()?;
        match last.token {
            Token::End => Ok(test),
            Token::Close => Err(Error::new(last.span, "this ) closes nothing".into())),
            Token::Equal | Token::NotEqual | Token::Greater | Token::Less | Token::Contains | Token::Matches | Token::In => {
                Err(Error::new(last.span.clone(), format!("{} needs a field on its left", &self.text[last.span])))
            }
            _ => Err(Error::new(last.span, "expected && or || before this".into())),
        }
    }

    fn peek(&mut self) -> Result<&Lexed, Error> {
        let lexed = match self.peeked.take() {
            Some(l) => l,
            None => self.lexer.next(self.in_set)?,
        };
        Ok(self.peeked.insert(lexed))
    }

    fn next(&mut self) -> Result<Lexed, Error> {
        match self.peeked.take() {
            Some(l) => Ok(l),
            None => self.lexer.next(self.in_set),
        }
    }

    fn take(&mut self, token: &Token) -> Result<bool, Error> {
        let found = self.peek()?.token == *token;
        if found {
            self.peeked = None;
        }
        Ok(found)
    }

    fn deeper<O>(&mut self, span: Range<usize>, parse: impl FnOnce(&mut Self) -> Result<O, Error>) -> Result<O, Error> {
        if self.depth >= DEPTH_MAX {
            return Err(Error::new(span, format!("nested deeper than {DEPTH_MAX}")));
        }
        self.depth += 1;
        let o = parse(self);
        self.depth -= 1;
        o
    }

    fn chain(
        &mut self,
        token: &Token,
        inner: impl Fn(&mut Self) -> Result<Test, Error>,
        join: impl FnOnce(Vec<Test>) -> Test,
    ) -> Result<Test, Error> {
        let first = inner(self)?;
        if self.peek()?.token != *token {
            return Ok(first);
        }
        let mut tests = alloc::vec![first];
        while self.take(token)? {
            tests.push(inner(self)?);
        }
        Ok(join(tests))
    }

    fn or(&mut self) -> Result<Test, Error> {
        self.chain(&Token::Or, Self::xor, Test::Or)
    }

    fn xor(&mut self) -> Result<Test, Error> {
        self.chain(&Token::Xor, Self::and, Test::Xor)
    }

    fn and(&mut self) -> Result<Test, Error> {
        self.chain(&Token::And, Self::not, Test::And)
    }

    fn not(&mut self) -> Result<Test, Error> {
        let Lexed { token, span } = self.peek()?.clone();
        match token {
            Token::Not => {
                self.peeked = None;
                Ok(Test::Not(Box::new(self.deeper(span, Self::not)?)))
            }
            Token::Open => {
                self.peeked = None;
                let test = self.deeper(span.clone(), Self::or)?;
                if !self.take(&Token::Close)? {
                    let here = self.peek()?.clone();
                    return Err(match here.token {
                        Token::End => Error::new(span, "this ( is never closed".into()),
                        _ => Error::new(here.span, "expected &&, || or ) before this".into()),
                    });
                }
                Ok(test)
            }
            _ => self.test(),
        }
    }

    fn test(&mut self) -> Result<Test, Error> {
        let all = match self.peek()?.token {
            Token::Any => {
                self.peeked = None;
                false
            }
            Token::All => {
                self.peeked = None;
                true
            }
            _ => false,
        };
        let left = self.operand()?;
        let Lexed { token, span } = self.peek()?.clone();
        match token {
            Token::Contains => {
                self.peeked = None;
                let right = self.operand()?;
                self.contains(all, left, right)
            }
            Token::Matches => {
                self.peeked = None;
                let right = self.operand()?;
                self.matches(all, left, right)
            }
            Token::In => {
                self.peeked = None;
                self.set(all, left)
            }
            Token::Not => {
                self.peeked = None;
                if !self.take(&Token::In)? {
                    return Err(Error::new(span, "expected && or || before this".into()));
                }
                Ok(Test::Not(Box::new(self.set(all, left)?)))
            }
            _ => match relation(&token) {
                Some(_) => self.relations(all, left),
                None => self.presence(left),
            },
        }
    }

    /// `a == b`, and `1 < a < 10`, which is two tests.
    fn relations(&mut self, all: bool, left: Side) -> Result<Test, Error> {
        let (mut left, mut tests) = (left, Vec::new());
        while let Some((op, every)) = relation(&self.peek()?.token) {
            self.peeked = None;
            let right = self.operand()?;
            tests.push(self.compare(op, every || all, left, right.clone())?);
            left = right;
        }
        Ok(if tests.len() == 1 { tests.remove(0) } else { Test::And(tests) })
    }

    fn presence(&mut self, side: Side) -> Result<Test, Error> {
        if !matches!(side, Side::Typed { operand: Operand::Field(_), .. }) {
            self.need_value(&side);
        }
        match side {
            Side::Typed { operand: Operand::Field(at), .. } => Ok(Test::Present(at)),
            Side::Typed { operand, .. } => Ok(Test::Truthy(operand)),
            Side::Raw { text, quoted: false, span } => Err(self.unknown(&text, span)),
            Side::Raw { quoted: true, span, .. } => {
                Err(Error::new(span, "text alone is no test; expected a field and a comparison".into()))
            }
        }
    }

    /// The error for a word that stands where a field has to.
    fn unknown(&self, word: &[u8], span: Range<usize>) -> Error {
        let word = lossy(word);
        let suggestion = closest(&word, self.registry.all().iter().map(|d| d.name)).map(Into::into);
        Error { span, message: format!("unknown field \"{}\"", escaped(&word)), suggestion }
    }

    fn operand(&mut self) -> Result<Side, Error> {
        let left = self.item()?;
        if self.peek()?.token != Token::Ampersand {
            return Ok(left);
        }
        let Side::Typed { operand, class: Class::Number, span, def, .. } = left else {
            return Err(Error::new(left.span(), "& needs a field with a number on its left".into()));
        };
        self.peeked = None;
        let mask = match self.item()? {
            Side::Typed { operand, class: Class::Number, .. } => operand,
            Side::Raw { text, quoted, span } => Operand::Literal(literal(&Raw { text: &text, quoted, span }, Class::Number, None, false)?),
            other => return Err(Error::new(other.span(), "& needs a number on its right".into())),
        };
        // the result is a number without names, of the width of the field
        let def = def.filter(|d| d.values.is_empty());
        Ok(Side::Typed { operand: Operand::Mask(Box::new(operand), Box::new(mask)), class: Class::Number, def, span })
    }

    fn item(&mut self) -> Result<Side, Error> {
        let Lexed { token, span } = self.next()?;
        match token {
            Token::Quoted(text) => Ok(Side::Raw { text, quoted: true, span }),
            Token::Word => {
                let word = &self.text[span.clone()];
                if let Some(def) = self.registry.find(word) {
                    return self.field(def, span);
                }
                if self.peek()?.token == Token::Open {
                    return self.call(word, span);
                }
                if self.peek()?.token == Token::Slice {
                    return Err(self.unknown(word.as_bytes(), span));
                }
                Ok(Side::Raw { text: word.as_bytes().to_vec(), quoted: false, span })
            }
            Token::End => Err(Error::new(span, "the filter ends here; expected a field or a value".into())),
            _ => Err(Error::new(span.clone(), format!("expected a field or a value instead of {}", escaped(&self.text[span])))),
        }
    }

    fn want(&mut self, def: Def, need: Need) -> u16 {
        let at = self.wants.iter().position(|(d, _)| *d == def).unwrap_or_else(|| {
            self.wants.push((def, need));
            self.wants.len() - 1
        });
        self.wants[at].1 = self.wants[at].1.max(need);
        at as u16
    }

    /// What it takes to look at the value of a field.
    fn need_value(&mut self, side: &Side) {
        fn walk(operand: &Operand, wants: &mut [(Def, Need)]) {
            match operand {
                Operand::Field(at) => {
                    let (def, need) = &mut wants[usize::from(*at)];
                    let value = if matches!(def.kind, Kind::None | Kind::Protocol) { Need::Bytes } else { Need::Value };
                    *need = (*need).max(value);
                }
                Operand::Slice(inner, _) | Operand::Name(inner) => walk(inner, wants),
                // counting needs no value
                Operand::Call(function, inner) if *function != Function::Count => walk(inner, wants),
                Operand::Mask(a, b) => {
                    walk(a, wants);
                    walk(b, wants);
                }
                Operand::Call(..) | Operand::Literal(_) => {}
            }
        }
        if let Side::Typed { operand, .. } = side {
            walk(operand, &mut self.wants);
        }
    }

    fn field(&mut self, def: Def, span: Range<usize>) -> Result<Side, Error> {
        let operand = Operand::Field(self.want(def, Need::Presence));
        let class = class_of(def.kind);
        if self.peek()?.token != Token::Slice {
            return Ok(Side::Typed { operand, class, def: Some(def), span });
        }
        let slice = self.next()?.span;
        let class = match class {
            Class::Text => Class::Text,
            Class::Bytes | Class::Ipv4 | Class::Ipv6 => Class::Bytes,
            other => return Err(Error::new(slice, format!("{} is {} and has no parts to slice", def.name, describe(other)))),
        };
        let parts = self.parts(slice.clone())?;
        let side = Side::Typed { operand: Operand::Slice(Box::new(operand), parts), class, def: None, span: span.start..slice.end };
        self.need_value(&side);
        Ok(side)
    }

    fn parts(&self, span: Range<usize>) -> Result<Vec<Part>, Error> {
        let inside = &self.text[span.start + 1..span.end - 1];
        let wrong = || Error::new(span.clone(), "a slice is [offset:length], [first-last], [n], [:n] or [n:]".into());
        let integer = |t: &str| t.trim().parse::<i32>().ok().map(i64::from);
        inside
            .split(',')
            .map(|part| {
                let part = part.trim();
                if let Some((start, len)) = part.split_once(':') {
                    let start = if start.trim().is_empty() { Some(0) } else { integer(start) };
                    let len = len.trim();
                    let end = if len.is_empty() { Some(End::Open) } else { len.parse::<u32>().ok().map(|n| End::Length(u64::from(n))) };
                    return Some(Part { start: start?, end: end? });
                }
                // the sign of the first number is not the dash of a range
                match part.get(1..).and_then(|rest| rest.find('-')) {
                    Some(dash) => Some(Part { start: integer(&part[..=dash])?, end: End::Last(integer(&part[dash + 2..])?) }),
                    None => integer(part).map(|start| Part { start, end: End::Length(1) }),
                }
            })
            .collect::<Option<Vec<_>>>()
            .ok_or_else(wrong)
    }

    fn call(&mut self, name: &str, span: Range<usize>) -> Result<Side, Error> {
        let Some((_, function, _)) = Function::ALL.iter().find(|(n, ..)| name.eq_ignore_ascii_case(n)) else {
            let suggestion = closest(name, Function::ALL.iter().map(|(n, ..)| *n)).map(Into::into);
            return Err(Error { span, message: format!("unknown function \"{}\"", escaped(name)), suggestion });
        };
        self.peeked = None;
        let inner = self.deeper(span.clone(), Self::operand)?;
        let closing = self.next()?;
        if closing.token != Token::Close {
            return Err(Error::new(closing.span, "expected the ) of the function".into()));
        }
        let span = span.start..closing.span.end;
        if *function != Function::Count {
            self.need_value(&inner);
        }
        let Side::Typed { operand, class, span: at, .. } = inner else {
            let Side::Raw { text, span, .. } = inner else { unreachable!("a side is typed or raw") };
            return Err(self.unknown(&text, span));
        };
        let fits = match function {
            Function::Len => matches!(class, Class::Text | Class::Bytes),
            Function::Lower | Function::Upper => class == Class::Text,
            Function::Count => matches!(operand, Operand::Field(_)),
            Function::Text => true,
        };
        if !fits {
            return Err(Error::new(at, format!("{name}() cannot be applied to {}", describe(class))));
        }
        let class = match function {
            Function::Len | Function::Count => Class::Number,
            Function::Lower | Function::Upper | Function::Text => Class::Text,
        };
        Ok(Side::Typed { operand: Operand::Call(*function, Box::new(operand)), class, def: None, span })
    }

    /// The other side of a comparison with a typed one.
    fn beside(&mut self, side: Side, class: Class, def: Option<Def>, beside: &Range<usize>, loose: bool) -> Result<Operand, Error> {
        self.need_value(&side);
        match side {
            Side::Typed { operand, class: other, span, .. } => {
                let fits = class == other
                    || matches!((class, other), (Class::Number | Class::Real, Class::Number | Class::Real))
                    || matches!((class, other), (Class::Bytes, Class::Ipv4 | Class::Ipv6) | (Class::Ipv4 | Class::Ipv6, Class::Bytes));
                if !fits {
                    let left = escaped(&self.text[beside.clone()]);
                    let right = escaped(&self.text[span.clone()]);
                    return Err(Error::new(span, format!("{left} is {} and {right} is {}", describe(class), describe(other))));
                }
                Ok(operand)
            }
            Side::Raw { text, quoted, span } => literal(&Raw { text: &text, quoted, span }, class, def, loose).map(Operand::Literal),
        }
    }

    fn compare(&mut self, op: Op, all: bool, left: Side, right: Side) -> Result<Test, Error> {
        self.need_value(&left);
        let (op, left, right) = match (&left, &right) {
            (Side::Typed { .. }, _) => (op, left, right),
            (Side::Raw { .. }, Side::Typed { .. }) => {
                self.need_value(&right);
                let mirrored = match op {
                    Op::Gt => Op::Lt,
                    Op::Lt => Op::Gt,
                    Op::Ge => Op::Le,
                    Op::Le => Op::Ge,
                    same => same,
                };
                (mirrored, right, left)
            }
            (Side::Raw { text, span, quoted }, Side::Raw { .. }) => {
                return Err(if *quoted {
                    Error::new(span.clone(), "there is no field in this comparison".into())
                } else {
                    self.unknown(text, span.clone())
                });
            }
        };
        let Side::Typed { operand, class, def, span } = left else { unreachable!("the left side is typed by now") };
        let right = self.beside(right, class, def, &span, false)?;
        if class == Class::Real
            && let Operand::Literal(Literal::U(_) | Literal::I(_)) = right
        {
            unreachable!("a literal beside a real number is real");
        }
        Ok(Test::Compare { op, all, left: operand, right })
    }

    /// Numbers are searched by their names.
    fn searched(&mut self, verb: &str, side: Side) -> Result<(Operand, Class, Range<usize>), Error> {
        self.need_value(&side);
        match side {
            Side::Typed { operand, class: class @ (Class::Text | Class::Bytes), span, .. } => Ok((operand, class, span)),
            Side::Typed { operand, def: Some(def), span, .. } if !def.values.is_empty() => {
                Ok((Operand::Name(Box::new(operand)), Class::Text, span))
            }
            Side::Typed { class, span, .. } => {
                let what = escaped(&self.text[span.clone()]);
                Err(Error::new(span, format!("{verb} searches text or bytes, and {what} is {}", describe(class))))
            }
            Side::Raw { text, quoted: false, span } => Err(self.unknown(&text, span)),
            Side::Raw { span, .. } => Err(Error::new(span, format!("{verb} needs a field on its left"))),
        }
    }

    fn contains(&mut self, all: bool, left: Side, right: Side) -> Result<Test, Error> {
        let (left, class, span) = self.searched("contains", left)?;
        let right = self.beside(right, class, None, &span, true)?;
        Ok(Test::Contains { all, left, right })
    }

    fn matches(&mut self, all: bool, left: Side, right: Side) -> Result<Test, Error> {
        let (left, class, _) = self.searched("matches", left)?;
        let Side::Raw { text, span, .. } = right else {
            return Err(Error::new(right.span(), "matches needs a regular expression in quotes on its right".into()));
        };
        let mut pattern = String::new();
        for chunk in text.utf8_chunks() {
            pattern.push_str(chunk.valid());
            chunk.invalid().iter().for_each(|b| pattern.push_str(&format!("\\x{b:02x}")));
        }
        let built = regex::bytes::RegexBuilder::new(&pattern)
            .case_insensitive(true)
            .unicode(class == Class::Text)
            // bounds on what a pattern may cost to build and to keep
            .size_limit(1 << 20)
            .dfa_size_limit(1 << 20)
            .nest_limit(64)
            .build();
        match built {
            Ok(regex) => Ok(Test::Matches { all, left, regex: Box::new(regex) }),
            Err(e) => {
                let why = format!("{e}");
                let why = why.lines().rev().find_map(|l| l.strip_prefix("error: ")).unwrap_or("too large");
                Err(Error::new(span, format!("not a regular expression: {}", escaped(why))))
            }
        }
    }

    fn set(&mut self, all: bool, left: Side) -> Result<Test, Error> {
        self.need_value(&left);
        let Side::Typed { operand, class, def, .. } = left else {
            let Side::Raw { text, span, .. } = left else { unreachable!("a side is typed or raw") };
            return Err(self.unknown(&text, span));
        };
        let brace = self.next()?;
        if brace.token != Token::OpenBrace {
            return Err(Error::new(brace.span, "in needs a set: in {1, 2..5}".into()));
        }
        self.in_set = true;
        let set = self.elements(class, def, &brace.span);
        self.in_set = false;
        Ok(Test::In { all, left: operand, set: set? })
    }

    fn elements(&mut self, class: Class, def: Option<Def>, brace: &Range<usize>) -> Result<Vec<(Literal, Option<Literal>)>, Error> {
        let mut set = Vec::new();
        loop {
            let first = self.element(class, def, brace)?;
            let last = if self.take(&Token::Range)? { Some(self.element(class, def, brace)?) } else { None };
            set.push((first, last));
            let after = self.next()?;
            match after.token {
                Token::CloseBrace => return Ok(set),
                // Wireshark took spaces between elements for a long time; a comma is what it wants now
                Token::Comma => {}
                Token::End => return Err(Error::new(brace.clone(), "this { is never closed".into())),
                _ => return Err(Error::new(after.span, "expected a comma or } before this".into())),
            }
        }
    }

    fn element(&mut self, class: Class, def: Option<Def>, brace: &Range<usize>) -> Result<Literal, Error> {
        let Lexed { token, span } = self.next()?;
        match token {
            Token::Quoted(text) => literal(&Raw { text: &text, quoted: true, span }, class, def, false),
            Token::Word => literal(&Raw { text: self.text[span.clone()].as_bytes(), quoted: false, span: span.clone() }, class, def, false),
            Token::End => Err(Error::new(brace.clone(), "this { is never closed".into())),
            Token::CloseBrace => Err(Error::new(span, "a set has at least one element".into())),
            _ => Err(Error::new(span, "expected a value".into())),
        }
    }
}

/// The relation of a token, and whether all pairs have to pass.
fn relation(token: &Token) -> Option<(Op, bool)> {
    Some(match token {
        Token::Equal => (Op::Eq, false),
        Token::NotEqual => (Op::Ne, true),
        Token::AllEqual => (Op::Eq, true),
        Token::AnyNotEqual => (Op::Ne, false),
        Token::Greater => (Op::Gt, false),
        Token::Less => (Op::Lt, false),
        Token::GreaterEqual => (Op::Ge, false),
        Token::LessEqual => (Op::Le, false),
        _ => return None,
    })
}
