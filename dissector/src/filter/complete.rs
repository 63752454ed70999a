//! Completion: suggestions for the word at the cursor.

use super::Function;
use super::lexer::{Lexer, Token};
use crate::field::Kind;
use crate::registry::Registry;
use alloc::borrow::Cow;
use alloc::format;
use alloc::vec::Vec;
use core::ops::Range;

/// Suggestions at most.
const MOST: usize = 200;

/// Something that could stand at the cursor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suggestion {
    /// Text to insert.
    pub text: Cow<'static, str>,
    /// The bytes of the text that it takes the place of.
    pub replace: Range<usize>,
    /// Kind of suggestion.
    pub kind: SuggestionKind,
    /// Explanation: the label of a field, the number of a name.
    pub detail: Cow<'static, str>,
}

/// Kind of a suggestion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SuggestionKind {
    /// A field or protocol.
    Field,
    /// A comparison.
    Relation,
    /// A name of a value of the field before.
    Value,
    /// `&&` and its like.
    Connective,
    /// A function.
    Function,
}

/// Suggestions for `cursor` (a byte offset; within a character it counts as before it), best first.
pub fn complete(text: &str, cursor: usize, registry: &Registry) -> Vec<Suggestion> {
    let mut cursor = cursor.min(text.len());
    while !text.is_char_boundary(cursor) {
        cursor -= 1;
    }
    let before = &text[..cursor];
    let mut tokens: Vec<(Token, Range<usize>)> = Vec::new();
    let mut lexer = Lexer::new(before);
    let mut in_set = false;
    // an input that cannot be lexed (a string still open) ends with the cursor in it
    let mut broken = None;
    loop {
        match lexer.next(in_set) {
            Ok(l) if l.token == Token::End => break,
            Ok(l) => {
                in_set = match l.token {
                    Token::OpenBrace => true,
                    Token::CloseBrace => false,
                    _ => in_set,
                };
                tokens.push((l.token, l.span));
            }
            Err(e) => {
                broken = Some(e.span.start);
                break;
            }
        }
    }
    // the token that the cursor touches is the one being typed
    let typed = match (broken, tokens.last()) {
        (Some(start), _) => start..cursor,
        (None, Some((token, span)))
            if span.end == cursor && (*token == Token::Word || is_keyword(&before[span.clone()])) =>
        {
            let span = span.clone();
            tokens.pop();
            span
        }
        _ => cursor..cursor,
    };
    // the whole word is replaced, including its part behind the cursor
    let rest = text[cursor..]
        .find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-')))
        .unwrap_or(text.len() - cursor);
    let replace = if broken.is_some() { typed.start..text.len() } else { typed.start..cursor + rest };
    let prefix = before[typed].trim_start_matches(['"', '\'']);
    let mut out = Vec::new();
    let field_before = |back: usize| {
        let (token, span) = tokens.len().checked_sub(back).and_then(|i| tokens.get(i))?;
        if *token == Token::Word { registry.find(&before[span.clone()]) } else { None }
    };
    let mut say = |text: Cow<'static, str>, kind, detail: Cow<'static, str>| {
        if out.len() < MOST {
            out.push(Suggestion { text, replace: replace.clone(), kind, detail });
        }
    };
    match tokens.last().map(|(t, _)| t) {
        Some(
            Token::Equal | Token::NotEqual | Token::AllEqual | Token::AnyNotEqual | Token::Contains | Token::Matches,
        ) => {
            values(field_before(2), prefix, &mut say);
        }
        Some(Token::OpenBrace | Token::Comma) if in_set => {
            let opening = tokens.iter().rposition(|(t, _)| *t == Token::OpenBrace).unwrap_or(0);
            values(field_before(tokens.len() - opening + 2), prefix, &mut say);
        }
        Some(Token::Word | Token::Slice) => {
            let def = field_before(1);
            let is_field = def.is_some()
                && !matches!(tokens.len().checked_sub(2).and_then(|i| tokens.get(i)), Some((Token::Equal, _)));
            if is_field && prefix.is_empty() {
                let searched = def.is_some_and(|d| {
                    matches!(d.kind, Kind::Bytes | Kind::Str | Kind::Utf16 | Kind::Protocol | Kind::None)
                        || !d.values.is_empty()
                });
                let relations: &[(&str, &str)] = &[
                    ("==", "any value equals"),
                    ("!=", "no value equals"),
                    (">", "greater"),
                    ("<", "less"),
                    (">=", "greater or equal"),
                    ("<=", "less or equal"),
                    ("in", "one of {…}"),
                ];
                relations.iter().for_each(|(t, d)| say((*t).into(), SuggestionKind::Relation, (*d).into()));
                if searched {
                    say("contains".into(), SuggestionKind::Relation, "has this part".into());
                    say("matches".into(), SuggestionKind::Relation, "regular expression, ignores case".into());
                }
            }
            connectives(prefix, &mut say);
        }
        Some(Token::Quoted(_) | Token::Close | Token::CloseBrace) => connectives(prefix, &mut say),
        _ => fields(registry, prefix, &mut say),
    }
    out
}

type Say<'s> = &'s mut dyn FnMut(Cow<'static, str>, SuggestionKind, Cow<'static, str>);

fn is_keyword(word: &str) -> bool {
    word.bytes().all(|b| b.is_ascii_alphabetic())
}

fn connectives(prefix: &str, say: Say<'_>) {
    for (text, detail) in [("&&", "both"), ("||", "either"), ("and", "both"), ("or", "either")] {
        if text.starts_with(prefix) {
            say(text.into(), SuggestionKind::Connective, detail.into());
        }
    }
}

fn values(def: Option<crate::field::Def>, prefix: &str, say: Say<'_>) {
    let Some(def) = def else { return };
    let lower = prefix.to_ascii_lowercase();
    for (v, name) in def.values {
        if name.to_ascii_lowercase().contains(&lower) {
            say(format!("{name:?}").into(), SuggestionKind::Value, format!("{v}").into());
        }
    }
    if def.kind == Kind::Bool && def.values.is_empty() {
        for (name, v) in [("true", "1"), ("false", "0")] {
            if name.starts_with(&lower) {
                say(name.into(), SuggestionKind::Value, v.into());
            }
        }
    }
}

fn fields(registry: &Registry, prefix: &str, say: Say<'_>) {
    // names that continue the prefix first, then those that have it anywhere
    for def in registry.starting_with(prefix) {
        say(def.name.into(), SuggestionKind::Field, def.label.into());
    }
    if prefix.is_empty() {
        return;
    }
    for (name, _, detail) in Function::ALL {
        if name.starts_with(prefix) {
            say(format!("{name}(").into(), SuggestionKind::Function, detail.into());
        }
    }
    for def in registry.all().iter().filter(|d| !d.name.starts_with(prefix) && d.name.contains(prefix)) {
        say(def.name.into(), SuggestionKind::Field, def.label.into());
    }
}

/// Of `names`, the one that differs least from `word`, if it differs by little. Case does not count.
pub fn closest<'n>(word: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    /// Nobody mistypes longer words than these, and the cost is quadratic.
    const LONGEST: usize = 64;
    let word: Vec<u8> = word.bytes().map(|b| b.to_ascii_lowercase()).collect();
    if word.len() < 2 || word.len() > LONGEST {
        return None;
    }
    let limit = (word.len() / 3).clamp(1, 4);
    let mut best: Option<(usize, &str)> = None;
    for name in names {
        if name.len() > LONGEST || name.len().abs_diff(word.len()) > limit {
            continue;
        }
        let distance = distance(&word, name.as_bytes());
        if distance <= limit && best.is_none_or(|(d, _)| distance < d) {
            best = Some((distance, name));
        }
    }
    best.map(|(_, name)| name)
}

/// Insertions, deletions, substitutions and swaps of neighbours that lead from one to the other.
fn distance(a: &[u8], b: &[u8]) -> usize {
    let width = b.len() + 1;
    let (mut before, mut last, mut row) =
        (alloc::vec![0; width], (0..width).collect::<Vec<_>>(), alloc::vec![0; width]);
    for (i, x) in a.iter().enumerate() {
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let y = &y.to_ascii_lowercase();
            row[j + 1] = (last[j] + usize::from(x != y)).min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *x == b[j - 1].to_ascii_lowercase() && a[i - 1] == *y {
                row[j + 1] = row[j + 1].min(before[j - 1] + 1);
            }
        }
        core::mem::swap(&mut before, &mut last);
        core::mem::swap(&mut last, &mut row);
    }
    last[b.len()]
}
