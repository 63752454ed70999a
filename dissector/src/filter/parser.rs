//! Tokens to tests, checked against the registry.
//!
//! ```text
//! filter  := [or] END
//! or      := xor { "||" xor }        xor := and { "^^" and }        and := not { "&&" not }
//! not     := "!" not | "(" or ")" | test
//! test    := [any|all] operand [ relation operand { relation operand } | contains operand | matches string | [not] in set ]
//! operand := sum { "&" sum }         sum := product { "+"|"-" product }     product := signed { "*"|"/"|"%" signed }
//! signed  := "-" signed | item [slice]
//! item    := ["@"] field ["#" layers] | function "(" operand {"," operand} ")" | "{" operand "}" | "${" field "}" | literal
//! set     := "{" operand [".." operand] { "," operand [".." operand] } "}"
//! ```

use super::lexer::{Lexed, Lexer, Token, lossy};
use super::literal::{Form, Raw, class_of, literal, number};
use super::{
    Arithmetic, Class, DEPTH_MAX, Error, Function, Op, Operand, Part, Reference, SliceEnd, TEXT_MAX, Test, Want,
    closest,
};
use crate::extract::Need;
use crate::field::{Def, Kind};
use crate::registry::Registry;
use crate::text::escaped;
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
    pub(super) wants: Vec<Want>,
    pub(super) references: Vec<Reference>,
    pub(super) absent: Vec<String>,
}

/// One side of a test, before the other side decides its type.
#[derive(Clone)]
enum Side {
    /// A field, or a value computed from one.
    Typed { operand: Operand, class: Class, def: Option<Def>, span: Range<usize> },
    /// A literal.
    Raw { text: Vec<u8>, form: Form, span: Range<usize> },
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
        Class::Any => "absent",
    }
}

impl<'t> Parser<'t> {
    pub(super) fn new(text: &'t str, registry: &'t Registry) -> Result<Self, Error> {
        if text.len() > TEXT_MAX {
            return Err(Error::new(
                0..0,
                format!("the filter is {} bytes long, {TEXT_MAX} at most are read", text.len()),
            ));
        }
        Ok(Self {
            text,
            lexer: Lexer::new(text),
            peeked: None,
            in_set: false,
            depth: 0,
            registry,
            wants: Vec::new(),
            references: Vec::new(),
            absent: Vec::new(),
        })
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
            Token::Equal
            | Token::NotEqual
            | Token::Greater
            | Token::Less
            | Token::Contains
            | Token::Matches
            | Token::In => {
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
        let quantifier = match self.peek()?.token {
            Token::Any => Some(false),
            Token::All => Some(true),
            _ => None,
        };
        if quantifier.is_some() {
            self.peeked = None;
        }
        let all = quantifier.unwrap_or(false);
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
                self.set(all, false, left)
            }
            Token::Not => {
                self.peeked = None;
                if !self.take(&Token::In)? {
                    return Err(Error::new(span, "expected && or || before this".into()));
                }
                self.set(all, true, left)
            }
            _ => match relation(&token) {
                Some(_) => self.relations(quantifier, left),
                None => self.presence(left),
            },
        }
    }

    /// `a == b`, and `1 < a < 10`, which is two tests.
    fn relations(&mut self, quantifier: Option<bool>, left: Side) -> Result<Test, Error> {
        let (mut left, mut tests) = (left, Vec::new());
        while let Some((op, every)) = relation(&self.peek()?.token) {
            self.peeked = None;
            let right = self.operand()?;
            tests.push(self.compare(op, quantifier.unwrap_or(every), left, right.clone())?);
            left = right;
        }
        Ok(if tests.len() == 1 { tests.remove(0) } else { Test::And(tests) })
    }

    fn presence(&mut self, side: Side) -> Result<Test, Error> {
        let plain = matches!(side, Side::Typed { operand: Operand::Field(_) | Operand::Layers(..), .. });
        if !plain {
            self.need_value(&side);
        }
        match side {
            Side::Typed { operand: Operand::Field(at), .. } => Ok(Test::Present(at)),
            Side::Typed { operand: operand @ (Operand::Layers(..) | Operand::Slice(..)), .. } => {
                Ok(Test::Exists(operand))
            }
            Side::Typed { operand, .. } => Ok(Test::Truthy(operand)),
            Side::Raw { text, form: Form::Bare, span } => Err(self.unknown(&text, span)),
            Side::Raw { span, .. } => {
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
        let here = self.peek()?.span.clone();
        self.deeper(here, |p| p.operators(&[(Token::Ampersand, Arithmetic::And)], Self::sum))
    }

    fn sum(&mut self) -> Result<Side, Error> {
        self.operators(&[(Token::Plus, Arithmetic::Add), (Token::Minus, Arithmetic::Subtract)], Self::product)
    }

    fn product(&mut self) -> Result<Side, Error> {
        const OPERATORS: &[(Token, Arithmetic)] = &[
            (Token::Star, Arithmetic::Multiply),
            (Token::Slash, Arithmetic::Divide),
            (Token::Percent, Arithmetic::Remainder),
        ];
        self.operators(OPERATORS, Self::signed)
    }

    fn operators(
        &mut self,
        operators: &[(Token, Arithmetic)],
        inner: impl Fn(&mut Self) -> Result<Side, Error>,
    ) -> Result<Side, Error> {
        let mut left = inner(self)?;
        let mut length = 0;
        loop {
            let Lexed { token, span } = self.peek()?.clone();
            let Some((_, operator)) = operators.iter().find(|(t, _)| *t == token) else { return Ok(left) };
            self.peeked = None;
            length += 1;
            if length > DEPTH_MAX {
                return Err(Error::new(span, format!("more than {DEPTH_MAX} operators in a row")));
            }
            let right = inner(self)?;
            left = self.combine(*operator, left, right, span)?;
        }
    }

    fn signed(&mut self) -> Result<Side, Error> {
        let Lexed { token, span } = self.peek()?.clone();
        if token != Token::Minus {
            return self.sliced();
        }
        self.peeked = None;
        match self.deeper(span.clone(), Self::signed)? {
            Side::Raw { text, form: Form::Bare, span: at } => {
                let mut negative = alloc::vec![b'-'];
                match text.split_first() {
                    Some((b'-', rest)) => negative = rest.to_vec(),
                    _ => negative.extend_from_slice(&text),
                }
                Ok(Side::Raw { text: negative, form: Form::Bare, span: span.start..at.end })
            }
            Side::Typed {
                operand,
                class: class @ (Class::Number | Class::Real | Class::Relative | Class::Any),
                span: at,
                ..
            } => Ok(Side::Typed {
                operand: Operand::Negative(Box::new(operand)),
                class,
                def: None,
                span: span.start..at.end,
            }),
            other => Err(Error::new(other.span(), "- needs a number behind it".into())),
        }
    }

    /// Two sides and the operator between them.
    fn combine(&mut self, operator: Arithmetic, left: Side, right: Side, at: Range<usize>) -> Result<Side, Error> {
        use Class::{Absolute, Any, Bytes, Ipv4, Ipv6, Number, Real, Relative};
        self.need_value(&left);
        self.need_value(&right);
        let span = left.span().start..right.span().end;
        let sign = &self.text[at.clone()];
        let (l, r) = match (left, right) {
            (Side::Raw { text: l, span: l_at, .. }, Side::Raw { text: r, .. }) => {
                return match constant(operator, &lossy(&l), &lossy(&r)) {
                    Some(text) => Ok(Side::Raw { text: text.into_bytes(), form: Form::Bare, span }),
                    None => Err(self.unknown(&l, l_at)),
                };
            }
            (Side::Typed { operand, class, .. }, raw @ Side::Raw { .. }) => {
                let right = self.operand_beside(operator, class, &raw)?;
                ((operand, class), right)
            }
            (raw @ Side::Raw { .. }, Side::Typed { operand, class, .. }) => {
                let left = self.operand_beside(operator, class, &raw)?;
                (left, (operand, class))
            }
            (Side::Typed { operand: l, class: lc, .. }, Side::Typed { operand: r, class: rc, .. }) => {
                ((l, lc), (r, rc))
            }
        };
        let class = match (operator, l.1, r.1) {
            (_, Any, other) | (_, other, Any) => Some(other),
            (Arithmetic::And, Number, Number) => Some(Number),
            (Arithmetic::And, a @ (Bytes | Ipv4 | Ipv6), Bytes | Ipv4 | Ipv6) => Some(a),
            (Arithmetic::And, ..) => None,
            (_, Number, Number) => Some(Number),
            (_, Number | Real, Number | Real) => Some(Real),
            (Arithmetic::Add | Arithmetic::Subtract, Absolute, Relative) | (Arithmetic::Add, Relative, Absolute) => {
                Some(Absolute)
            }
            (Arithmetic::Add | Arithmetic::Subtract, Relative, Relative)
            | (Arithmetic::Subtract, Absolute, Absolute) => Some(Relative),
            (Arithmetic::Multiply | Arithmetic::Divide, Relative, Number | Real)
            | (Arithmetic::Multiply, Number | Real, Relative) => Some(Relative),
            _ => None,
        };
        let Some(class) = class else {
            let message = format!("{sign} cannot be applied to {} and {}", describe(l.1), describe(r.1));
            return Err(Error::new(span, message));
        };
        let operand = if l.1 == Any || r.1 == Any {
            Operand::Absent
        } else {
            Operand::Arithmetic(operator, Box::new(l.0), Box::new(r.0))
        };
        Ok(Side::Typed { operand, class, def: None, span })
    }

    /// A literal beside an operator whose other operand is of `class`.
    fn operand_beside(&self, operator: Arithmetic, class: Class, side: &Side) -> Result<(Operand, Class), Error> {
        let Side::Raw { text, form, span } = side else { unreachable!("a typed side needs no class") };
        let raw = Raw { text, form: *form, span: span.clone() };
        let candidates: &[Class] = match (operator, class) {
            (Arithmetic::Add | Arithmetic::Subtract, Class::Absolute) => &[Class::Relative, Class::Absolute],
            (Arithmetic::Multiply | Arithmetic::Divide, Class::Relative) => &[Class::Number, Class::Real],
            (_, Class::Number) if operator != Arithmetic::And => &[Class::Number, Class::Real],
            _ => core::slice::from_ref(&class),
        };
        let mut first = None;
        for candidate in candidates {
            match literal(&raw, *candidate, None, false, self.registry.ahead()) {
                Ok(literal) => return Ok((Operand::Literal(literal), *candidate)),
                Err(e) => first = first.or(Some(e)),
            }
        }
        Err(first.unwrap_or_else(|| Error::new(span.clone(), "expected a number".into())))
    }

    /// An item, and the parts taken of it.
    fn sliced(&mut self) -> Result<Side, Error> {
        let mut side = self.item()?;
        while self.peek()?.token == Token::Slice && matches!(side, Side::Typed { .. }) {
            let slice = self.next()?.span;
            self.need_value(&side);
            let Side::Typed { operand, class, span, .. } = side else { unreachable!("checked above") };
            let class = match class {
                Class::Text | Class::Any => class,
                Class::Bytes | Class::Ipv4 | Class::Ipv6 => Class::Bytes,
                other => {
                    let what = escaped(&self.text[span]);
                    return Err(Error::new(slice, format!("{what} is {} and has no parts to slice", describe(other))));
                }
            };
            let parts = self.parts(slice.clone())?;
            side = Side::Typed {
                operand: Operand::Slice(Box::new(operand), parts),
                class,
                def: None,
                span: span.start..slice.end,
            };
        }
        Ok(side)
    }

    fn item(&mut self) -> Result<Side, Error> {
        let Lexed { token, span } = self.next()?;
        match token {
            Token::Quoted(text) => Ok(Side::Raw { text, form: Form::Quoted, span }),
            Token::Char(c) => Ok(Side::Raw { text: alloc::vec![c], form: Form::Char, span }),
            Token::Raw => {
                let name = self.next()?;
                let word = &self.text[name.span.clone()];
                match (name.token, self.registry.find(word)) {
                    (Token::Word, Some(def)) => self.field(def, span.start..name.span.end, true),
                    (Token::Word, None) if self.registry.is_wiresharks(word) => Ok(self.not_there(word, name.span)),
                    _ => Err(self.unknown(word.as_bytes(), name.span)),
                }
            }
            Token::Reference => {
                let name = &self.text[span.clone()];
                let Some(def) = self.registry.find(name) else {
                    return if self.registry.is_wiresharks(name) {
                        Ok(self.not_there(name, span))
                    } else {
                        Err(self.unknown(name.as_bytes(), span))
                    };
                };
                self.references.push(Reference { def, values: Vec::new() });
                let operand = Operand::Reference((self.references.len() - 1) as u16);
                Ok(Side::Typed { operand, class: class_of(def.kind), def: None, span })
            }
            Token::OpenBrace => {
                let in_set = core::mem::replace(&mut self.in_set, false);
                let inner = self.operand()?;
                let closing = self.next()?;
                self.in_set = in_set;
                match (closing.token, inner) {
                    (Token::CloseBrace, Side::Typed { operand, class, def, .. }) => {
                        Ok(Side::Typed { operand, class, def, span: span.start..closing.span.end })
                    }
                    (Token::CloseBrace, raw) => Ok(raw),
                    (Token::End, _) => Err(Error::new(span, "this { is never closed".into())),
                    _ => Err(Error::new(closing.span, "expected the } of the group before this".into())),
                }
            }
            Token::Word => {
                let word = &self.text[span.clone()];
                // a colon in front says that a value follows, a dot that a field does
                if let Some(value) = word.strip_prefix(':').filter(|v| !v.is_empty() && !v.starts_with(':')) {
                    return Ok(Side::Raw { text: value.as_bytes().to_vec(), form: Form::Bare, span });
                }
                let name = word.strip_prefix('.').unwrap_or(word);
                if let Some(def) = self.registry.find(name) {
                    return self.field(def, span, false);
                }
                let after = self.peek()?.token.clone();
                if after == Token::Open {
                    return self.call(word, span);
                }
                if self.registry.is_wiresharks(name) {
                    self.layers()?;
                    return Ok(self.not_there(name, span));
                }
                if after == Token::Slice || after == Token::Layer {
                    return Err(self.unknown(word.as_bytes(), span));
                }
                Ok(Side::Raw { text: word.as_bytes().to_vec(), form: Form::Bare, span })
            }
            Token::End => Err(Error::new(span, "the filter ends here; expected a field or a value".into())),
            _ => Err(Error::new(
                span.clone(),
                format!("expected a field or a value instead of {}", escaped(&self.text[span])),
            )),
        }
    }

    /// A field that is known but decoded in no frame.
    fn not_there(&mut self, name: &str, span: Range<usize>) -> Side {
        if !self.absent.iter().any(|a| a == name) {
            self.absent.push(name.into());
        }
        Side::Typed { operand: Operand::Absent, class: Class::Any, def: None, span }
    }

    fn want(&mut self, def: Def, raw: bool, layers: bool) -> u16 {
        let found = self.wants.iter().position(|w| w.def == def && w.raw == raw && w.layers == layers);
        let at = found.unwrap_or_else(|| {
            self.wants.push(Want { def, need: Need::Presence, raw, layers });
            self.wants.len() - 1
        });
        at as u16
    }

    /// Requests the value of each field in the operand, instead of its presence.
    fn need_value(&mut self, side: &Side) {
        fn walk(operand: &Operand, wants: &mut [Want]) {
            match operand {
                Operand::Field(at) | Operand::Layers(at, _) => {
                    let Want { def, need, .. } = &mut wants[usize::from(*at)];
                    let value = if matches!(def.kind, Kind::None | Kind::Protocol) { Need::Bytes } else { Need::Value };
                    *need = (*need).max(value);
                }
                Operand::Slice(inner, _) | Operand::Name(inner) | Operand::Negative(inner) => walk(inner, wants),
                // counting needs no value
                Operand::Call(Function::Count, _) | Operand::Literal(_) | Operand::Reference(_) | Operand::Absent => {}
                Operand::Call(_, arguments) => arguments.iter().for_each(|a| walk(a, wants)),
                Operand::Arithmetic(_, a, b) => {
                    walk(a, wants);
                    walk(b, wants);
                }
            }
        }
        if let Side::Typed { operand, .. } = side {
            walk(operand, &mut self.wants);
        }
    }

    /// A field, its bytes where `raw`, and the layers that it is taken from.
    fn field(&mut self, def: Def, span: Range<usize>, raw: bool) -> Result<Side, Error> {
        // the value of a protocol, a subtree or a byte string is its bytes
        let raw = raw && !matches!(def.kind, Kind::Protocol | Kind::None);
        let class = if raw { Class::Bytes } else { class_of(def.kind) };
        let shown = if raw { None } else { Some(def) };
        let Some((parts, end)) = self.layers()? else {
            return Ok(Side::Typed { operand: Operand::Field(self.want(def, raw, false)), class, def: shown, span });
        };
        let operand = Operand::Layers(self.want(def, raw, true), parts);
        Ok(Side::Typed { operand, class, def: shown, span: span.start..end })
    }

    /// `#2` or `#[1-2]`, and where it ends.
    fn layers(&mut self) -> Result<Option<(Vec<Part>, usize)>, Error> {
        if !self.take(&Token::Layer)? {
            return Ok(None);
        }
        let Lexed { token, span } = self.next()?;
        let number = self.text[span.clone()].parse::<i32>();
        let parts = match (token, number) {
            (Token::Slice, _) => self.parts(span.clone())?,
            (Token::Word, Ok(n)) => alloc::vec![Part { start: i64::from(n), end: SliceEnd::Length(1) }],
            _ => return Err(Error::new(span, "# is followed by the number of a layer, or by [1-2]".into())),
        };
        if parts.iter().any(|p| p.start == 0) {
            return Err(Error::new(span, "layers are counted from 1, or from -1 backwards".into()));
        }
        Ok(Some((parts, span.end)))
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
                    let end = if len.is_empty() {
                        Some(SliceEnd::Open)
                    } else {
                        len.parse::<u32>().ok().map(|n| SliceEnd::Length(u64::from(n)))
                    };
                    return Some(Part { start: start?, end: end? });
                }
                // the sign of the first number is not the dash of a range
                match part.get(1..).and_then(|rest| rest.find('-')) {
                    Some(dash) => {
                        Some(Part { start: integer(&part[..=dash])?, end: SliceEnd::Last(integer(&part[dash + 2..])?) })
                    }
                    None => integer(part).map(|start| Part { start, end: SliceEnd::Length(1) }),
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
        let mut arguments = alloc::vec![self.operand()?];
        let several = matches!(function, Function::Greatest | Function::Least);
        while several && self.take(&Token::Comma)? {
            arguments.push(self.operand()?);
        }
        let closing = self.next()?;
        if closing.token != Token::Close {
            return Err(Error::new(closing.span, "expected the ) of the function".into()));
        }
        let span = span.start..closing.span.end;
        if *function != Function::Count {
            arguments.iter().for_each(|a| self.need_value(a));
        }
        // literals take the class of the first argument that has one
        let typed = arguments.iter().find_map(|a| match a {
            Side::Typed { class, def, .. } => Some((*class, *def)),
            Side::Raw { .. } => None,
        });
        let Some((class, def)) = typed else {
            let Side::Raw { text, span, .. } = &arguments[0] else { unreachable!("none is typed") };
            return Err(self.unknown(text, span.clone()));
        };
        let at = arguments[0].span();
        let mut operands = Vec::new();
        let mut joined = class;
        for argument in arguments {
            match argument {
                Side::Typed { operand, class: other, span, .. } => {
                    joined = match (joined, other) {
                        (a, b) if a == b => a,
                        (Class::Any, b) | (b, Class::Any) => b,
                        (Class::Number | Class::Real, Class::Number | Class::Real) => Class::Real,
                        (a, b) => {
                            return Err(Error::new(
                                span,
                                format!("{name}() takes {} and not {}", describe(a), describe(b)),
                            ));
                        }
                    };
                    operands.push(operand);
                }
                Side::Raw { text, form, span } => {
                    operands.push(Operand::Literal(literal(
                        &Raw { text: &text, form, span },
                        class,
                        None,
                        false,
                        self.registry.ahead(),
                    )?));
                }
            }
        }
        let is_field = matches!(operands[0], Operand::Field(_) | Operand::Layers(..) | Operand::Absent);
        let is_number = matches!(class, Class::Number | Class::Real | Class::Any);
        let fits = match function {
            Function::Len => matches!(class, Class::Text | Class::Bytes | Class::Ipv4 | Class::Ipv6 | Class::Any),
            Function::Lower | Function::Upper => matches!(class, Class::Text | Class::Any),
            Function::Count => is_field,
            Function::Names => class == Class::Any || def.is_some_and(|d| !d.values.is_empty()),
            Function::Decimal | Function::Hexadecimal => matches!(class, Class::Number | Class::Any),
            Function::Real => is_number || matches!(class, Class::Relative | Class::Absolute),
            Function::Absolute => is_number || class == Class::Relative,
            Function::Text => true,
            Function::Greatest | Function::Least => {
                is_number || matches!(class, Class::Relative | Class::Absolute | Class::Text)
            }
        };
        if !fits {
            return Err(match (function, def) {
                (Function::Names, Some(def)) => Error::new(at, format!("the values of {} have no names", def.name)),
                (Function::Count, _) => Error::new(at, "count() counts a field".into()),
                _ => Error::new(at, format!("{name}() cannot be applied to {}", describe(class))),
            });
        }
        if *function == Function::Names {
            let operand = Operand::Name(Box::new(operands.swap_remove(0)));
            return Ok(Side::Typed { operand, class: Class::Text, def: None, span });
        }
        let class = match function {
            Function::Len | Function::Count => Class::Number,
            Function::Lower
            | Function::Upper
            | Function::Text
            | Function::Names
            | Function::Decimal
            | Function::Hexadecimal => Class::Text,
            Function::Real => Class::Real,
            Function::Absolute | Function::Greatest | Function::Least => joined,
        };
        Ok(Side::Typed { operand: Operand::Call(*function, operands), class, def: None, span })
    }

    /// The other side of a comparison with a typed one.
    fn beside(
        &mut self,
        side: Side,
        class: Class,
        def: Option<Def>,
        beside: &Range<usize>,
        loose: bool,
    ) -> Result<Operand, Error> {
        self.need_value(&side);
        match side {
            Side::Typed { operand, class: other, span, .. } => {
                let fits = class == other
                    || class == Class::Any
                    || other == Class::Any
                    || matches!((class, other), (Class::Number | Class::Real, Class::Number | Class::Real))
                    || matches!(
                        (class, other),
                        (Class::Bytes, Class::Ipv4 | Class::Ipv6) | (Class::Ipv4 | Class::Ipv6, Class::Bytes)
                    );
                if !fits {
                    let left = escaped(&self.text[beside.clone()]);
                    let right = escaped(&self.text[span.clone()]);
                    return Err(Error::new(
                        span,
                        format!("{left} is {} and {right} is {}", describe(class), describe(other)),
                    ));
                }
                Ok(operand)
            }
            Side::Raw { text, form, span } => {
                literal(&Raw { text: &text, form, span }, class, def, loose, self.registry.ahead())
                    .map(Operand::Literal)
            }
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
            (Side::Raw { text, span, form }, Side::Raw { .. }) => {
                return Err(match form {
                    Form::Bare => self.unknown(text, span.clone()),
                    Form::Quoted | Form::Char => {
                        Error::new(span.clone(), "there is no field in this comparison".into())
                    }
                });
            }
        };
        let Side::Typed { operand, class, def, span } = left else { unreachable!("the left side is typed by now") };
        let right = self.beside(right, class, def, &span, false)?;
        Ok(Test::Compare { op, all, left: operand, right })
    }

    /// Numbers are searched by their names.
    fn searched(&mut self, verb: &str, side: Side) -> Result<(Operand, Class, Range<usize>), Error> {
        self.need_value(&side);
        match side {
            Side::Typed { operand, class: class @ (Class::Text | Class::Bytes | Class::Any), span, .. } => {
                Ok((operand, class, span))
            }
            Side::Typed { operand, def: Some(def), span, .. } if !def.values.is_empty() => {
                Ok((Operand::Name(Box::new(operand)), Class::Text, span))
            }
            Side::Typed { class, span, .. } => {
                let what = escaped(&self.text[span.clone()]);
                Err(Error::new(span, format!("{verb} searches text or bytes, and {what} is {}", describe(class))))
            }
            Side::Raw { text, form: Form::Bare, span } => Err(self.unknown(&text, span)),
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
            // limits for the cost of building and keeping a pattern
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

    fn set(&mut self, all: bool, not: bool, left: Side) -> Result<Test, Error> {
        self.need_value(&left);
        let Side::Typed { operand, class, def, span } = left else {
            let Side::Raw { text, span, .. } = left else { unreachable!("a side is typed or raw") };
            return Err(self.unknown(&text, span));
        };
        let brace = self.next()?;
        if brace.token != Token::OpenBrace {
            return Err(Error::new(brace.span, "in needs a set: in {1, 2..5}".into()));
        }
        self.in_set = true;
        let set = self.elements(class, def, &span, &brace.span);
        self.in_set = false;
        Ok(Test::In { all, not, left: operand, set: set? })
    }

    fn elements(
        &mut self,
        class: Class,
        def: Option<Def>,
        beside: &Range<usize>,
        brace: &Range<usize>,
    ) -> Result<Vec<(Operand, Option<Operand>)>, Error> {
        let mut set = Vec::new();
        loop {
            let first = self.element(class, def, beside, brace)?;
            let last = if self.take(&Token::Range)? { Some(self.element(class, def, beside, brace)?) } else { None };
            set.push((first, last));
            let after = self.next()?;
            match after.token {
                Token::CloseBrace => return Ok(set),
                // Wireshark took spaces between elements for a long time; now it requires a comma
                Token::Comma => {}
                Token::End => return Err(Error::new(brace.clone(), "this { is never closed".into())),
                _ => return Err(Error::new(after.span, "expected a comma or } before this".into())),
            }
        }
    }

    fn element(
        &mut self,
        class: Class,
        def: Option<Def>,
        beside: &Range<usize>,
        brace: &Range<usize>,
    ) -> Result<Operand, Error> {
        let Lexed { token, span } = self.peek()?.clone();
        match token {
            Token::End => Err(Error::new(brace.clone(), "this { is never closed".into())),
            Token::CloseBrace => Err(Error::new(span, "a set has at least one element".into())),
            _ => {
                let side = self.operand()?;
                self.beside(side, class, def, beside, false)
            }
        }
    }
}

/// Two numbers and the operator between them, computed.
fn constant(operator: Arithmetic, left: &str, right: &str) -> Option<String> {
    if let (Some(l), Some(r)) = (number(left), number(right)) {
        let v = match operator {
            Arithmetic::And => Some(l & r),
            Arithmetic::Add => l.checked_add(r),
            Arithmetic::Subtract => l.checked_sub(r),
            Arithmetic::Multiply => l.checked_mul(r),
            Arithmetic::Divide => l.checked_div(r),
            Arithmetic::Remainder => l.checked_rem(r),
        };
        return v.map(|v| format!("{v}"));
    }
    let (l, r) = (left.parse::<f64>().ok()?, right.parse::<f64>().ok()?);
    let v = match operator {
        Arithmetic::And => return None,
        Arithmetic::Add => l + r,
        Arithmetic::Subtract => l - r,
        Arithmetic::Multiply => l * r,
        Arithmetic::Divide => l / r,
        Arithmetic::Remainder => l % r,
    };
    v.is_finite().then(|| format!("{v}"))
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
