//! Text to tokens. A word is a field name or an unquoted literal: which of the two, the parser decides by the place.

use super::Error;
use alloc::string::String;
use alloc::{format, vec};
use core::ops::Range;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    /// Letters, digits and what addresses, numbers and times are made of.
    Word,
    /// In quotes; escapes resolved. Bytes, since `"\xff"` is one byte.
    Quoted(vec::Vec<u8>),
    /// One byte in single quotes: a number beside numbers.
    Char(u8),
    /// `${field}` or `$field`: the span is the field's.
    Reference,
    Open,
    Close,
    OpenBrace,
    CloseBrace,
    /// A slice, taken whole: its characters mean something else elsewhere.
    Slice,
    Comma,
    Ampersand,
    Plus,
    Minus,
    Star,
    Slash,
    Percent,
    /// `#`
    Layer,
    /// `@`
    Raw,
    /// `..`
    Range,
    And,
    Or,
    Xor,
    Not,
    Equal,
    NotEqual,
    AllEqual,
    AnyNotEqual,
    Greater,
    Less,
    GreaterEqual,
    LessEqual,
    Contains,
    Matches,
    In,
    Any,
    All,
    End,
}

/// A token and where it stands.
#[derive(Clone, Debug)]
pub(super) struct Lexed {
    pub(super) token: Token,
    pub(super) span: Range<usize>,
}

pub(super) struct Lexer<'t> {
    text: &'t str,
    at: usize,
}

const fn is_word(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b':' | b'-' | b'@' | b'?') || b >= 0x80
}

/// True if a word continues with `next`, which is an operator elsewhere: the `/` of an address's prefix, the `+` of a
/// time zone.
fn goes_on(word: &[u8], next: u8) -> bool {
    let is_address = || word.contains(&b':') || word[0].is_ascii_digit() && word.contains(&b'.');
    match next {
        b'/' => is_address() && !word.contains(&b'/'),
        b'+' => word[0].is_ascii_digit() && word.contains(&b':') && (word.contains(&b'T') || word.contains(&b'-')),
        _ => false,
    }
}

impl<'t> Lexer<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { text, at: 0 }
    }

    /// The next token. `in_set` makes `..` end a word, as in `{1..5}`.
    pub(super) fn next(&mut self, in_set: bool) -> Result<Lexed, Error> {
        let bytes = self.text.as_bytes();
        while bytes.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
        let start = self.at;
        let Some(first) = bytes.get(start).copied() else { return Ok(Lexed { token: Token::End, span: start..start }) };
        const SYMBOLS: &[(&str, Token)] = &[
            ("===", Token::AllEqual),
            ("!==", Token::AnyNotEqual),
            ("==", Token::Equal),
            ("!=", Token::NotEqual),
            ("~=", Token::AnyNotEqual),
            (">=", Token::GreaterEqual),
            ("<=", Token::LessEqual),
            ("&&", Token::And),
            ("||", Token::Or),
            ("^^", Token::Xor),
            (">", Token::Greater),
            ("<", Token::Less),
            ("!", Token::Not),
            ("~", Token::Matches),
            ("&", Token::Ampersand),
            ("(", Token::Open),
            (")", Token::Close),
            ("{", Token::OpenBrace),
            ("}", Token::CloseBrace),
            (",", Token::Comma),
            ("+", Token::Plus),
            ("-", Token::Minus),
            ("*", Token::Star),
            ("/", Token::Slash),
            ("%", Token::Percent),
            ("#", Token::Layer),
            ("@", Token::Raw),
        ];
        if in_set && self.text[start..].starts_with("..") {
            self.at += 2;
            return Ok(Lexed { token: Token::Range, span: start..self.at });
        }
        if let Some((symbol, token)) = SYMBOLS.iter().find(|(s, _)| self.text[start..].starts_with(s)) {
            self.at += symbol.len();
            return Ok(Lexed { token: token.clone(), span: start..self.at });
        }
        if first == b'[' {
            let Some(len) = self.text[start..].find(']') else {
                return Err(Error::new(start..self.text.len(), "the slice has no closing ]".into()));
            };
            self.at += len + 1;
            return Ok(Lexed { token: Token::Slice, span: start..self.at });
        }
        if first == b'"' || first == b'\'' {
            let quoted = self.quoted(first, false)?;
            return Ok(match quoted {
                Lexed { token: Token::Quoted(text), span } if first == b'\'' && text.len() == 1 => {
                    Lexed { token: Token::Char(text[0]), span }
                }
                other => other,
            });
        }
        if first == b'$' {
            return self.reference();
        }
        if matches!(first, b'r' | b'R') && bytes.get(start + 1) == Some(&b'"') {
            self.at += 1;
            return self.quoted(b'"', true);
        }
        if !is_word(first) {
            let c = self.text[start..].chars().next().unwrap_or('?');
            let hint = if c == '=' { "; equality is ==" } else { "" };
            return Err(Error::new(start..start + c.len_utf8(), format!("{c:?} means nothing here{hint}")));
        }
        while bytes
            .get(self.at)
            .copied()
            .is_some_and(|b| is_word(b) || self.at > start && goes_on(&bytes[start..self.at], b))
        {
            if in_set && bytes[self.at..].starts_with(b"..") {
                break;
            }
            self.at += 1;
        }
        let word = &self.text[start..self.at];
        const KEYWORDS: &[(&str, Token)] = &[
            ("and", Token::And),
            ("or", Token::Or),
            ("xor", Token::Xor),
            ("not", Token::Not),
            ("eq", Token::Equal),
            ("any_eq", Token::Equal),
            ("ne", Token::NotEqual),
            ("all_ne", Token::NotEqual),
            ("all_eq", Token::AllEqual),
            ("any_ne", Token::AnyNotEqual),
            ("gt", Token::Greater),
            ("lt", Token::Less),
            ("ge", Token::GreaterEqual),
            ("le", Token::LessEqual),
            ("contains", Token::Contains),
            ("matches", Token::Matches),
            ("bitwise_and", Token::Ampersand),
            ("bitand", Token::Ampersand),
            ("in", Token::In),
            ("any", Token::Any),
            ("all", Token::All),
        ];
        let keyword = KEYWORDS.iter().find(|(k, _)| word.eq_ignore_ascii_case(k)).map(|(_, t)| t.clone());
        Ok(Lexed { token: keyword.unwrap_or(Token::Word), span: start..self.at })
    }

    /// `${field}` or `$field`.
    fn reference(&mut self) -> Result<Lexed, Error> {
        let start = self.at;
        let rest = &self.text[start + 1..];
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
        let braced = rest.strip_prefix('{');
        let name = braced.unwrap_or(rest);
        let from = start + 1 + usize::from(braced.is_some());
        let len = name.find(|c| !is_name(c)).unwrap_or(name.len());
        let wrong = || {
            Error::new(start..(from + len).min(self.text.len()), "a reference to the selected frame is ${field}".into())
        };
        if len == 0 || braced.is_some() && !name[len..].starts_with('}') {
            return Err(wrong());
        }
        self.at = from + len + usize::from(braced.is_some());
        Ok(Lexed { token: Token::Reference, span: from..from + len })
    }

    /// A string, from its opening quote on. `raw` leaves backslashes alone.
    fn quoted(&mut self, quote: u8, raw: bool) -> Result<Lexed, Error> {
        let bytes = self.text.as_bytes();
        let start = self.at;
        let mut out = vec::Vec::new();
        self.at += 1;
        loop {
            let Some(b) = bytes.get(self.at).copied() else {
                return Err(Error::new(start..self.text.len(), "the string has no closing quote".into()));
            };
            self.at += 1;
            if b == quote {
                return Ok(Lexed { token: Token::Quoted(out), span: start..self.at });
            }
            if b != b'\\' || raw {
                out.push(b);
                continue;
            }
            let at = self.at - 1;
            let rest = &self.text[self.at..];
            let Some(c) = rest.chars().next() else {
                return Err(Error::new(start..self.text.len(), "the string has no closing quote".into()));
            };
            self.at += c.len_utf8();
            let mut digits = |n: usize, radix: u32| -> Result<u32, Error> {
                let text =
                    self.text.get(self.at..self.at + n).filter(|t| t.bytes().all(|b| char::from(b).is_digit(radix)));
                match text.and_then(|t| u32::from_str_radix(t, radix).ok()) {
                    Some(v) => {
                        self.at += n;
                        Ok(v)
                    }
                    None => Err(Error::new(at..self.at, format!("\\{c} wants {n} hexadecimal digits"))),
                }
            };
            match c {
                'n' => out.push(b'\n'),
                'r' => out.push(b'\r'),
                't' => out.push(b'\t'),
                'a' => out.push(7),
                'b' => out.push(8),
                'f' => out.push(12),
                'v' => out.push(11),
                '0' => out.push(0),
                '\\' | '"' | '\'' => out.push(c as u8),
                'x' => out.push(digits(2, 16)? as u8),
                'u' | 'U' => {
                    let v = digits(if c == 'u' { 4 } else { 8 }, 16)?;
                    let Some(c) = char::from_u32(v) else {
                        return Err(Error::new(at..self.at, "no such character".into()));
                    };
                    out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                }
                // left as it stands, so that regular expressions need no doubled backslashes
                _ => {
                    out.push(b'\\');
                    out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                }
            }
        }
    }
}

/// Text of a string token, which may hold bytes that are not UTF-8.
pub(super) fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
