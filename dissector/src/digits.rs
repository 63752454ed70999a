//! Decimal numbers as bytes, without formatting.

use alloc::vec::Vec;

const DIGITS: &[u8; 200] = b"00010203040506070809101112131415161718192021222324252627282930313233343536373839404142434445464748495051525354555657585960616263646566676869707172737475767778798081828384858687888990919293949596979899";

/// Appends the first `len` of eight bytes: copies all of them, which takes no loop, and truncates the excess.
#[inline(always)]
fn put(out: &mut Vec<u8>, bytes: [u8; 8], len: usize) {
    let end = out.len() + len;
    out.extend_from_slice(&bytes);
    out.truncate(end);
}

/// Four digits of a number below 10,000.
#[inline(always)]
pub(crate) fn four_digits(v: u64) -> [u8; 4] {
    let (high, low) = ((v / 100) as usize * 2, (v % 100) as usize * 2);
    [DIGITS[high], DIGITS[high + 1], DIGITS[low], DIGITS[low + 1]]
}

/// Eight digits of a number below 100,000,000.
#[inline(always)]
pub(crate) fn eight_digits(v: u64) -> [u8; 8] {
    let ([a, b, c, d], [e, f, g, h]) = (four_digits(v / 10_000), four_digits(v % 10_000));
    [a, b, c, d, e, f, g, h]
}

/// Appends `v` in decimal.
#[inline]
pub fn decimal(out: &mut Vec<u8>, v: u64) {
    match v {
        0..10 => out.push(b'0' + v as u8),
        10..10_000 => {
            let digits = u32::from_le_bytes(four_digits(v));
            // the first digit is the lowest byte: zeros in front are shifted out
            let zeros = (digits ^ 0x3030_3030).trailing_zeros() / 8;
            put(out, u64::from(digits >> (8 * zeros)).to_le_bytes(), 4 - zeros as usize);
        }
        10_000..100_000_000 => {
            let digits = u64::from_le_bytes(eight_digits(v));
            let zeros = (digits ^ 0x3030_3030_3030_3030).trailing_zeros() / 8;
            put(out, (digits >> (8 * zeros)).to_le_bytes(), 8 - zeros as usize);
        }
        _ => {
            decimal(out, v / 100_000_000);
            out.extend_from_slice(&eight_digits(v % 100_000_000));
        }
    }
}
