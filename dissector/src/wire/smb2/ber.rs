//! A reader of BER and DER, X.690, as far as SPNEGO needs it: definite lengths up to four bytes, one byte of tag. It
//! does not descend by itself, so nothing nests deeper than its caller asks.

use alloc::vec::Vec;

/// One element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Element<'a> {
    /// Class, constructed bit and number.
    pub(super) tag: u8,
    /// Its contents.
    pub(super) contents: &'a [u8],
    /// Bytes behind it.
    pub(super) rest: &'a [u8],
}

pub(super) const OCTET_STRING: u8 = 0x04;
pub(super) const OID: u8 = 0x06;
pub(super) const ENUMERATED: u8 = 0x0a;
pub(super) const GENERAL_STRING: u8 = 0x1b;
pub(super) const SEQUENCE: u8 = 0x30;
/// `[APPLICATION 0]`: the GSS-API token.
pub(super) const APPLICATION_0: u8 = 0x60;
/// `[n]`, constructed.
pub(super) const fn context(n: u8) -> u8 {
    0xa0 | n
}

/// The element that `i` begins with. Contents that go past the end of `i` are cut there.
pub(super) fn element(i: &[u8]) -> Option<Element<'_>> {
    let (&tag, i) = i.split_first()?;
    let (&first, i) = i.split_first()?;
    let (length, i) = match first {
        0..=0x7f => (usize::from(first), i),
        0x81..=0x84 => {
            let (bytes, i) = i.split_at_checked(usize::from(first & 0x7f))?;
            (bytes.iter().fold(0, |n: usize, b| n << 8 | usize::from(*b)), i)
        }
        // indefinite, or longer than any message
        _ => return None,
    };
    let (contents, rest) = i.split_at(length.min(i.len()));
    Some(Element { tag, contents, rest })
}

/// The contents of the element that `i` begins with, where its tag is `tag`.
pub(super) fn contents(i: &[u8], tag: u8) -> Option<&[u8]> {
    element(i).filter(|e| e.tag == tag).map(|e| e.contents)
}

/// An element of DER: tag, length, and contents that come in parts. At most 65,535 bytes of these, as a security buffer
/// has.
pub(super) fn emit(tag: u8, contents: &[&[u8]]) -> Vec<u8> {
    let length: usize = contents.iter().map(|part| part.len()).sum();
    let mut out = Vec::with_capacity(length + 4);
    out.push(tag);
    match length {
        0..=0x7f => out.push(length as u8),
        0x80..=0xff => out.extend_from_slice(&[0x81, length as u8]),
        _ => {
            out.push(0x82);
            out.extend_from_slice(&(length as u16).to_be_bytes());
        }
    }
    contents.iter().for_each(|part| out.extend_from_slice(part));
    out
}

/// An object identifier that writes itself with dots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Oid<'a>(pub(super) &'a [u8]);

impl core::fmt::Display for Oid<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let (mut value, mut first) = (0u64, true);
        for byte in self.0 {
            value = value << 7 | u64::from(byte & 0x7f);
            if byte & 0x80 != 0 {
                continue;
            }
            if first {
                let top = (value / 40).min(2);
                write!(f, "{top}.{}", value - 40 * top)?;
            } else {
                write!(f, ".{value}")?;
            }
            (value, first) = (0, false);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn lengths_and_identifiers() {
        assert_eq!(element(&[4, 2, 7, 8, 9]).map(|e| (e.contents, e.rest)), Some((&[7, 8][..], &[9][..])));
        assert_eq!(element(&[4, 0x82, 0, 1, 7]).map(|e| e.contents), Some(&[7][..]));
        assert_eq!(element(&[4, 9, 7]).map(|e| e.contents), Some(&[7][..]), "cut");
        assert!(
            element(&[4, 0x80, 0, 0]).is_none()
                && element(&[4, 0x85, 0, 0, 0, 0, 1]).is_none()
                && element(&[4]).is_none()
        );
        assert_eq!(format!("{}", Oid(&[0x2b, 6, 1, 5, 5, 2])), "1.3.6.1.5.5.2");
        assert_eq!(format!("{}", Oid(&[0x2b, 6, 1, 4, 1, 0x82, 0x37, 2, 2, 0x0a])), "1.3.6.1.4.1.311.2.2.10");
        assert_eq!(format!("{}", Oid(&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 1, 2, 2])), "1.2.840.113554.1.2.2");
        assert_eq!(format!("{}", Oid(&[0xff; 40])), "");
    }
}
