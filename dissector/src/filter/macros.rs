//! Macros: `${name:argument;argument}`, or `$name(argument, argument)`. Their text stands in the [`Registry`] and takes
//! the arguments at `$1`, `$2` and so on. All are put in before the filter is parsed.

use super::{Error, TEXT_MAX};
use crate::registry::Registry;
use crate::text::escaped;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Macros within macros, at most.
const DEPTH_MAX: usize = 8;

/// The text with all macros put in; `None` where it has none.
pub(super) fn expand(text: &str, registry: &Registry) -> Result<Option<String>, Error> {
    if !text.contains('$') {
        return Ok(None);
    }
    let mut current = String::from(text);
    for _ in 0..DEPTH_MAX {
        let Some(next) = once(&current, registry).map_err(|e| Error { span: 0..text.len(), ..e })? else {
            return Ok((current != text).then_some(current));
        };
        if next.len() > TEXT_MAX {
            return Err(Error::new(
                0..text.len(),
                format!("with its macros the filter is longer than {TEXT_MAX} bytes"),
            ));
        }
        current = next;
    }
    Err(Error::new(0..text.len(), format!("macros are nested deeper than {DEPTH_MAX}")))
}

/// One round: `None` where nothing was put in.
fn once(text: &str, registry: &Registry) -> Result<Option<String>, Error> {
    let (mut out, mut rest, mut found) = (String::new(), text, false);
    let mut quote = None;
    while let Some(at) = rest.find(['$', '"', '\'', '\\']) {
        let (before, here) = rest.split_at(at);
        out.push_str(before);
        let mut chars = here.chars();
        let c = chars.next().unwrap_or('$');
        let mut taken = c.len_utf8();
        match (c, quote) {
            ('\\', Some(_)) => taken += chars.next().map_or(0, char::len_utf8),
            ('"' | '\'', None) => quote = Some(c),
            (q, Some(open)) if q == open => quote = None,
            ('$', None) => {
                if let Some((name, arguments, len)) = call(here) {
                    match registry.macro_text(name) {
                        Some(body) => {
                            put(&mut out, body, &arguments, name)?;
                            found = true;
                            rest = &here[len..];
                            continue;
                        }
                        // a name alone may be a field of the selected frame
                        None if arguments.is_empty() => {}
                        None => return Err(Error::new(0..0, format!("there is no macro \"{}\"", escaped(name)))),
                    }
                }
            }
            _ => {}
        }
        out.push_str(&here[..taken]);
        rest = &here[taken..];
    }
    out.push_str(rest);
    Ok(found.then_some(out))
}

/// Name, arguments and length of the macro call that `text` begins with. A name alone in braces may be a field instead.
fn call(text: &str) -> Option<(&str, Vec<&str>, usize)> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if let Some(inside) = text.strip_prefix("${") {
        let end = inside.find('}')?;
        let (name, arguments) = match inside[..end].split_once(':') {
            Some((name, arguments)) => (name, arguments.split(';').map(str::trim).collect()),
            None => (&inside[..end], Vec::new()),
        };
        return name.chars().all(is_name).then_some((name, arguments, end + 3));
    }
    let inside = text.strip_prefix('$')?;
    let open = inside.find(|c| !is_name(c))?;
    let arguments = inside[open..].strip_prefix('(')?;
    let end = arguments.find(')')?;
    let list = arguments[..end].split(',').map(str::trim).collect();
    (open > 0).then_some((&inside[..open], list, 1 + open + 1 + end + 1))
}

fn put(out: &mut String, body: &str, arguments: &[&str], name: &str) -> Result<(), Error> {
    let mut rest = body;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let digits = rest[at + 1..].find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len() - at - 1);
        let (number, after) = rest[at + 1..].split_at(digits);
        match number.parse::<usize>() {
            Err(_) => out.push('$'),
            Ok(n) => match n.checked_sub(1).and_then(|i| arguments.get(i)) {
                Some(argument) if out.len() + argument.len() <= TEXT_MAX => out.push_str(argument),
                Some(_) => {
                    return Err(Error::new(
                        0..0,
                        format!("with its macros the filter is longer than {TEXT_MAX} bytes"),
                    ));
                }
                None => {
                    return Err(Error::new(0..0, format!("the macro {} takes {n} arguments or more", escaped(name))));
                }
            },
        }
        rest = after;
    }
    out.push_str(rest);
    Ok(())
}
