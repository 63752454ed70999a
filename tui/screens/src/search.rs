//! Search patterns: a text, a regular expression, bytes, or a display filter.
//!
//! | input | matches |
//! | --- | --- |
//! | `tree connect` | rows with this text, in any case |
//! | `~lock.*DENIED` | rows with this regular expression |
//! | `#fe 53 4d 42` | frames with these bytes |
//! | `=smb2.cmd == 8` | frames that pass this filter |

use rdmascope_dissector::filter::Filter;
use rdmascope_dissector::registry::Registry;
use regex::Regex;

/// Help text of the prompt.
pub(crate) const HELP: &str = "text   ~regular expression   #hex bytes   =filter";

/// A pattern that is compared with the text of a row.
#[derive(Clone, Debug)]
pub(crate) enum Pattern {
    /// Lower-case.
    Text(String),
    Regex(Regex),
}

impl Pattern {
    pub(crate) fn is_in(&self, text: &str) -> bool {
        match self {
            Self::Text(needle) => text.to_lowercase().contains(needle),
            Self::Regex(regex) => regex.is_match(text),
        }
    }
}

/// A search pattern.
pub(crate) enum Needle {
    /// Rows whose text has it.
    Has(Pattern),
    /// Frames that pass it.
    Passes(Box<Filter>),
}

impl Needle {
    /// Parses the input.
    ///
    /// # Errors
    /// The problem with it, in one line.
    pub(crate) fn parse(text: &str, registry: &Registry) -> Result<Self, String> {
        if let Some(pattern) = text.strip_prefix('~') {
            let regex = regex::RegexBuilder::new(pattern).case_insensitive(true).build();
            let why = |e: regex::Error| {
                e.to_string().lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned()
            };
            return regex
                .map(|regex| Self::Has(Pattern::Regex(regex)))
                .map_err(|e| format!("regular expression: {}", why(e)));
        }
        let filter = match (text.strip_prefix('#'), text.strip_prefix('=')) {
            (Some(digits), _) => {
                let digits: String = digits.chars().filter(|c| !matches!(c, ' ' | ':' | '-' | '.')).collect();
                if digits.is_empty() || digits.len() % 2 == 1 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
                    return Err("bytes are pairs of hex digits, such as #fe 53 4d 42".to_owned());
                }
                let pairs: Vec<&str> = (0..digits.len()).step_by(2).map(|at| &digits[at..at + 2]).collect();
                // one byte alone would be read as a number
                match pairs.as_slice() {
                    [one] => format!("frame contains \"\\x{one}\""),
                    pairs => format!("frame contains {}", pairs.join(":")),
                }
            }
            (_, Some(filter)) => filter.to_owned(),
            _ => return Ok(Self::Has(Pattern::Text(text.to_lowercase()))),
        };
        Filter::parse(&filter, registry)
            .map(|filter| Self::Passes(Box::new(filter)))
            .map_err(|e| format!("filter: {e}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_typed_says_what_is_searched_for() {
        let registry = rdmascope_report::fields::registry();
        let parse = |text| Needle::parse(text, &registry);
        assert!(
            matches!(parse("Tree Connect"), Ok(Needle::Has(p)) if p.is_in("a TREE CONNECT Request") && !p.is_in("tree"))
        );
        assert!(
            matches!(parse("~^read .*off:0$"), Ok(Needle::Has(p)) if p.is_in("Read Request Off:0") && !p.is_in("a Read Off:0"))
        );
        assert!(matches!(parse("#fe 53:4d42"), Ok(Needle::Passes(f)) if f.text() == "frame contains fe:53:4d:42"));
        assert!(matches!(parse("#0a"), Ok(Needle::Passes(_))));
        assert!(matches!(parse("=smb2.cmd == 8"), Ok(Needle::Passes(_))));
        for wrong in ["~(", "#f", "#xy", "#", "=smb2.cmd =="] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
