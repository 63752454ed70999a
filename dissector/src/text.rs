//! Words for people: text of strangers made safe for a terminal, and numbers, durations and sizes in one form
//! everywhere.
//!
//! Findings, reports, the terminal UI and error messages all read this file, so that one time has one unit and no name
//! from the network reaches a terminal by a way of its own.
//!
//! ```
//! use rdmascope_dissector::text::{Bytes, Elapsed, Escaped, Grouped};
//! assert_eq!(format!("{}", Escaped("a\u{1b}[2Jb\u{202e}c")), "a\\x1b[2Jb\\u{202e}c");
//! assert_eq!(format!("{} of {} in {}", Grouped(1_234), Bytes(16_800), Elapsed(413_000)), "1,234 of 16.8 kB in 0.41 ms");
//! ```

use alloc::string::String;
use core::fmt::{self, Display, Formatter, Write};

/// The two hexadecimal digits of each byte.
pub(crate) static HEX_PAIRS: [[u8; 2]; 256] = {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut pairs = [[0; 2]; 256];
    let mut b = 0;
    while b < 256 {
        pairs[b] = [DIGITS[b >> 4], DIGITS[b & 0x0f]];
        b += 1;
    }
    pairs
};

/// True if a character must not reach a terminal or a report unescaped: control characters, and characters that change
/// the direction of writing, break lines, or are invisible.
pub const fn is_unsafe(c: char) -> bool {
    matches!(c,
        '\0'..='\x1f' | '\x7f'..='\u{9f}' | '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Writes one character so that it is safe on a terminal: `\x1b`, `\u{202e}`, `\n` stand for those that would act.
pub fn escape_char(out: &mut impl Write, c: char) -> fmt::Result {
    match c {
        ' '..='~' => out.write_char(c),
        '\n' => out.write_str("\\n"),
        '\r' => out.write_str("\\r"),
        '\t' => out.write_str("\\t"),
        c if !is_unsafe(c) => out.write_char(c),
        c if u32::from(c) < 0x100 => write!(out, "\\x{:02x}", u32::from(c)),
        c => write!(out, "\\u{{{:x}}}", u32::from(c)),
    }
}

/// Text of a stranger, safe on a terminal when it is displayed.
#[derive(Clone, Copy, Debug)]
pub struct Escaped<'a>(pub &'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if is_plain(self.0) {
            return f.write_str(self.0);
        }
        self.0.chars().try_for_each(|c| escape_char(f, c))
    }
}

/// True if text is printable ASCII throughout, as most is.
pub(crate) fn is_plain(text: &str) -> bool {
    text.bytes().all(|b| matches!(b, 0x20..=0x7e))
}

/// Appends text so that it is safe on a terminal.
pub fn escape(out: &mut String, text: &str) {
    // a String takes whatever is written to it
    let _ = write!(out, "{}", Escaped(text));
}

/// The same, as a new string.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    escape(&mut out, text);
    out
}

/// How often something happened: `once`, `twice`, `3 times`.
#[derive(Clone, Copy, Debug)]
pub struct Times(pub u64);

impl Display for Times {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            1 => f.write_str("once"),
            2 => f.write_str("twice"),
            n => write!(f, "{} times", Grouped(n)),
        }
    }
}

/// A number with its thousands apart: `130,560`.
#[derive(Clone, Copy, Debug)]
pub struct Grouped(pub u64);

impl Display for Grouped {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.0 < 1000 {
            return write!(f, "{}", self.0);
        }
        Self(self.0 / 1000).fmt(f)?;
        write!(f, ",{:03}", self.0 % 1000)
    }
}

/// A duration in ns, in the unit that fits: `850 ns`, `42 µs`, `0.41 ms`, `212 ms`, `22.1 s`, `4 min 3 s`,
/// `2 h 5 min`, `3 d 4 h`.
///
/// From 0.1 ms to 1 s the unit is ms, so that latencies under one another compare at a glance.
#[derive(Clone, Copy, Debug)]
pub struct Elapsed(pub i64);

impl Display for Elapsed {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.0 < 0 {
            f.write_char('-')?;
        }
        let ns = self.0.unsigned_abs();
        let value = ns as f64;
        match ns {
            0 => f.write_char('0'),
            1..1_000 => write!(f, "{ns} ns"),
            1_000..100_000 => write!(f, "{} µs", TwoDigits(value / 1e3)),
            100_000..999_500_000 => write!(f, "{} ms", TwoDigits(value / 1e6)),
            999_500_000..120_000_000_000 => write!(f, "{} s", ThreeDigits(value / 1e9)),
            120_000_000_000..7_200_000_000_000 => {
                write!(f, "{} min {} s", ns / 60_000_000_000, ns / 1_000_000_000 % 60)
            }
            7_200_000_000_000..172_800_000_000_000 => {
                write!(f, "{} h {} min", ns / 3_600_000_000_000, ns / 60_000_000_000 % 60)
            }
            _ => write!(f, "{} d {} h", ns / 86_400_000_000_000, ns / 3_600_000_000_000 % 24),
        }
    }
}

/// A number of bytes in about three digits, by powers of ten: `16.8 kB`.
#[derive(Clone, Copy, Debug)]
pub struct Bytes(pub u64);

impl Display for Bytes {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 5] = ["kB", "MB", "GB", "TB", "PB"];
        if self.0 < 1000 {
            return write!(f, "{} B", self.0);
        }
        let mut value = self.0 as f64 / 1000.0;
        let mut unit = 0;
        while value >= 999.5 && unit + 1 < UNITS.len() {
            value /= 1000.0;
            unit += 1;
        }
        write!(f, "{} {}", ThreeDigits(value), UNITS[unit])
    }
}

/// A positive number with two significant digits at least, and two decimals at most.
struct TwoDigits(f64);

impl Display for TwoDigits {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let decimals = if self.0 < 0.995 {
            2
        } else if self.0 < 9.95 {
            1
        } else {
            0
        };
        write!(f, "{:.decimals$}", self.0)
    }
}

/// The same with three.
struct ThreeDigits(f64);

impl Display for ThreeDigits {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let decimals = if self.0 < 9.995 {
            2
        } else if self.0 < 99.95 {
            1
        } else {
            0
        };
        write!(f, "{:.decimals$}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use proptest::prelude::*;

    #[test]
    fn what_a_terminal_obeys_or_hides_is_drawn() {
        assert_eq!(escaped("a\u{1b}[2Jb\u{202e}c\n\u{9b}\x7f"), "a\\x1b[2Jb\\u{202e}c\\n\\x9b\\x7f");
        assert_eq!(
            escaped("\u{61c}\u{ad}\u{180e}\u{e0000}\u{e0041}\u{e007f}"),
            "\\u{61c}\\xad\\u{180e}\\u{e0000}\\u{e0041}\\u{e007f}"
        );
        assert_eq!(escaped("größe 文件 it's \"C:\\x\""), "größe 文件 it's \"C:\\x\"");
    }

    #[test]
    fn numbers_are_grouped() {
        let shown = [0, 12, 999, 1000, 130_560, 1_234_567, 1_000_001].map(|n| Grouped(n).to_string());
        assert_eq!(shown, ["0", "12", "999", "1,000", "130,560", "1,234,567", "1,000,001"]);
        assert_eq!(Grouped(u64::MAX).to_string(), "18,446,744,073,709,551,615");
    }

    #[test]
    fn sizes_have_three_digits() {
        let sizes = [0, 999, 1000, 16_800, 99_960, 131_072, 999_400, 999_600, 1_500_000_000, u64::MAX];
        let shown =
            ["0 B", "999 B", "1.00 kB", "16.8 kB", "100 kB", "131 kB", "999 kB", "1.00 MB", "1.50 GB", "18447 PB"];
        assert_eq!(sizes.map(|n| Bytes(n).to_string()), shown);
    }

    #[test]
    fn durations_have_a_unit_that_fits() {
        let shown = [
            (0, "0"),
            (850, "850 ns"),
            (4_200, "4.2 µs"),
            (42_000, "42 µs"),
            (410_000, "0.41 ms"),
            (999_999, "1.0 ms"),
            (3_120_000, "3.1 ms"),
            (212_000_000, "212 ms"),
            (999_600_000, "1.00 s"),
            (22_140_000_000, "22.1 s"),
            (243_000_000_000, "4 min 3 s"),
            (7_500_000_000_000, "2 h 5 min"),
            (172_799_000_000_000, "47 h 59 min"),
            (172_800_000_000_000, "2 d 0 h"),
            (273_600_000_000_000, "3 d 4 h"),
            (-3_120_000, "-3.1 ms"),
        ];
        for (ns, text) in shown {
            assert_eq!(Elapsed(ns).to_string(), text, "{ns}");
        }
        assert!(Elapsed(i64::MIN).to_string().ends_with(" h"));
    }

    proptest! {
        #[test]
        fn escaped_text_commands_no_terminal(text in any::<String>()) {
            let out = escaped(&text);
            prop_assert!(!out.chars().any(|c| is_unsafe(c) || c.is_control()));
        }
    }
}
