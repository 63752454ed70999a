//! Parsers for integers and runs of bytes, with nom's form and result: one bounds check each, nothing generic. nom's
//! own integer parsers cost several times as much on the hot path.
//!
//! The functions of [`read`] are the same, with a field named: they tell the observer, and their fault names the field.

use crate::fault::{Fault, PResult};

macro_rules! leaves {
    ($($(#[$doc:meta])* $name:ident -> $ty:ty, $len:literal, $b:ident => $e:expr;)+) => { $(
        $(#[$doc])*
        #[inline(always)]
        pub fn $name(i: &[u8]) -> PResult<'_, $ty> {
            match i.split_first_chunk::<$len>() {
                Some(($b, rest)) => Ok((rest, $e)),
                None => Fault::short(None, i, $len).fail(),
            }
        }
    )+ };
}

leaves! {
    /// One byte.
    u8 -> u8, 1, b => b[0];
    /// 16 bits, little-endian.
    le16 -> u16, 2, b => u16::from_le_bytes(*b);
    /// 32 bits, little-endian.
    le32 -> u32, 4, b => u32::from_le_bytes(*b);
    /// 64 bits, little-endian.
    le64 -> u64, 8, b => u64::from_le_bytes(*b);
    /// 16 bits, big-endian.
    be16 -> u16, 2, b => u16::from_be_bytes(*b);
    /// 24 bits, big-endian.
    be24 -> u32, 3, b => u32::from_be_bytes([0, b[0], b[1], b[2]]);
    /// 24 bits, little-endian.
    le24 -> u32, 3, b => u32::from_le_bytes([b[0], b[1], b[2], 0]);
    /// 32 bits, big-endian.
    be32 -> u32, 4, b => u32::from_be_bytes(*b);
    /// 48 bits, big-endian.
    be48 -> u64, 6, b => u64::from_be_bytes([0, 0, b[0], b[1], b[2], b[3], b[4], b[5]]);
    /// 64 bits, big-endian.
    be64 -> u64, 8, b => u64::from_be_bytes(*b);
    /// 32 bits, big-endian, signed.
    bei32 -> i32, 4, b => i32::from_be_bytes(*b);
    /// 64 bits, big-endian, signed.
    bei64 -> i64, 8, b => i64::from_be_bytes(*b);
    /// 64 bits, little-endian, signed.
    lei64 -> i64, 8, b => i64::from_le_bytes(*b);
}

/// Exactly `n` bytes.
#[inline]
pub fn take(i: &[u8], n: usize) -> PResult<'_, &[u8]> {
    match i.split_at_checked(n) {
        Some((taken, rest)) => Ok((rest, taken)),
        None => Fault::short(None, i, n).fail(),
    }
}

/// Exactly `N` bytes, as an array.
#[inline(always)]
pub fn array<const N: usize>(i: &[u8]) -> PResult<'_, [u8; N]> {
    match i.split_first_chunk::<N>() {
        Some((b, rest)) => Ok((rest, *b)),
        None => Fault::short(None, i, N).fail(),
    }
}

/// The same parsers, with the field they read: `read::le16(&COUNT, i, t)`.
pub mod read {
    use super::{Fault, PResult};
    use crate::field::Def;
    use crate::trace::{Trace, Value};

    macro_rules! reads {
        ($($name:ident -> $ty:ty, $len:literal, $value:ident;)+) => { $(
            #[doc = concat!("See [`super::", stringify!($name), "`].")]
            #[inline]
            pub fn $name<'a, T: Trace>(def: Def, i: &'a [u8], t: &mut T) -> PResult<'a, $ty> {
                match super::$name(i) {
                    Ok((rest, v)) => { t.field(def, i, $len, Value::$value(v.into())); Ok((rest, v)) }
                    Err(_) => Fault::short(Some(def), i, $len).fail(),
                }
            }
        )+ };
    }

    reads! {
        u8 -> u8, 1, U;
        le16 -> u16, 2, U;
        le32 -> u32, 4, U;
        le64 -> u64, 8, U;
        be16 -> u16, 2, U;
        be24 -> u32, 3, U;
        le24 -> u32, 3, U;
        be32 -> u32, 4, U;
        be48 -> u64, 6, U;
        be64 -> u64, 8, U;
        bei32 -> i32, 4, I;
        bei64 -> i64, 8, I;
        lei64 -> i64, 8, I;
    }

    /// `n` bytes of any of the kinds that are runs of bytes: `Bytes`, `Str`, `Utf16`, addresses, GUIDs.
    #[inline]
    pub fn bytes<'a, T: Trace>(def: Def, n: usize, i: &'a [u8], t: &mut T) -> PResult<'a, &'a [u8]> {
        match i.split_at_checked(n) {
            Some((taken, rest)) => {
                t.field(def, i, n, Value::Bytes(taken));
                Ok((rest, taken))
            }
            None => Fault::short(Some(def), i, n).fail(),
        }
    }

    /// `N` bytes, as an array.
    #[inline]
    pub fn array<'a, const N: usize, T: Trace>(def: Def, i: &'a [u8], t: &mut T) -> PResult<'a, [u8; N]> {
        match i.split_first_chunk::<N>() {
            Some((b, rest)) => {
                t.field(def, i, N, Value::Bytes(b));
                Ok((rest, *b))
            }
            None => Fault::short(Some(def), i, N).fail(),
        }
    }
}
