//! Text as SMB2 carries it: UTF-16, little-endian, not always well-formed.

use crate::text::escape_char;
use core::fmt;

/// UTF-16 bytes that write themselves: a lone surrogate or half a unit becomes U+FFFD, and characters that a terminal
/// would obey or hide are escaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Utf16<'a>(pub &'a [u8]);

impl<'a> Utf16<'a> {
    /// The characters; invalid UTF-16 becomes U+FFFD.
    pub fn chars(self) -> impl Iterator<Item = char> + 'a {
        let units = self.0.chunks(2).map(|c| match c {
            [low, high] => u16::from_le_bytes([*low, *high]),
            _ => 0xfffd,
        });
        char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER))
    }

    /// Up to the first NUL, without it.
    pub fn until_nul(self) -> Self {
        let end = self.0.chunks_exact(2).position(|c| c == [0, 0]).map_or(self.0.len(), |n| 2 * n);
        Self(&self.0[..end])
    }
}

impl fmt::Display for Utf16<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // printable ASCII, as most names are, goes out in pieces
        let (mut rest, mut piece) = (self.0, [0; 64]);
        loop {
            let plain = |unit: &[u8]| matches!(unit, [b' '..=b'~', 0]);
            let units = rest.chunks_exact(2).take_while(|unit| plain(unit)).zip(&mut piece);
            let count = units.map(|(unit, to)| *to = unit[0]).count();
            if count == 0 {
                return Self(rest).chars().try_for_each(|c| escape_char(f, c));
            }
            f.write_str(core::str::from_utf8(&piece[..count]).unwrap_or_default())?;
            rest = &rest[2 * count..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn lone_surrogates_and_odd_bytes_survive() {
        assert_eq!(format!("{}", Utf16(&[b'a', 0, 0x00, 0xd8, b'b', 0, b'c'])), "a\u{fffd}b\u{fffd}");
        assert_eq!(format!("{}", Utf16(&[0x3d, 0xd8, 0x00, 0xde])), "\u{1f600}");
        assert_eq!(format!("{}", Utf16(&[0x1b, 0, b'x', 0])), "\\x1bx");
        let long: alloc::vec::Vec<u8> = [b'n', 0].repeat(150).into_iter().chain([0x1b, 0, b'x']).collect();
        assert_eq!(format!("{}", Utf16(&long)), "n".repeat(150) + "\\x1b\u{fffd}");
        assert_eq!(format!("{}", Utf16(&[0x1c, 0x06, b'x', 0])), "\\u{61c}x");
        assert_eq!(Utf16(&[b'a', 0, 0, 0, b'b', 0]).until_nul().0, [b'a', 0]);
    }
}
