//! Reasons that decoding stopped: the bytes ended, or they contradict themselves. A `Fault` never judges the peer (a
//! finding of the analyzer does): it says only that these bytes could not be read further.

use crate::field::Def;
use core::fmt;

/// Reason that a decoder stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The input ended before the field did. Cut by the capture or by the sender: the caller knows which.
    Short,
    /// A length, offset or count in the input points outside of it, or contradicts another one.
    Length,
    /// A value for which there is no decoding.
    Value,
    /// Nested deeper, or repeated more often, than the decoder follows.
    Limit,
}

/// Decoding stopped here. Small and `Copy`: it travels in every parser's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Kind of fault.
    pub kind: FaultKind,
    /// The field that was being read; `None` where a nom combinator failed without naming one.
    pub def: Option<Def>,
    /// Bytes the field wanted (0 where that is not the trouble).
    pub needed: u32,
    /// Bytes there were.
    pub available: u32,
    /// True if an observer was notified already: once, by the innermost scope.
    pub reported: bool,
    at: usize,
}

/// Result of every parser: the rest of the input and the value, or the fault.
pub type PResult<'a, O> = nom::IResult<&'a [u8], O, Fault>;

impl Fault {
    /// `field` wanted `needed` bytes and the input, which is `at`, has fewer.
    #[cold]
    pub fn short(def: Option<Def>, at: &[u8], needed: usize) -> Self {
        Self::new(FaultKind::Short, def, at, needed)
    }

    /// `field`, a length or offset, points outside of the input.
    #[cold]
    pub fn length(def: Def, at: &[u8], needed: usize) -> Self {
        Self::new(FaultKind::Length, Some(def), at, needed)
    }

    /// `field` has a value that cannot be decoded.
    #[cold]
    pub fn value(def: Def, at: &[u8]) -> Self {
        Self::new(FaultKind::Value, Some(def), at, 0)
    }

    /// Too deep or too many.
    #[cold]
    pub fn limit(def: Def, at: &[u8]) -> Self {
        Self::new(FaultKind::Limit, Some(def), at, 0)
    }

    #[cold]
    fn new(kind: FaultKind, def: Option<Def>, at: &[u8], needed: usize) -> Self {
        let clamp = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Self { kind, def, needed: clamp(needed), available: clamp(at.len()), reported: false, at: at.as_ptr().addr() }
    }

    /// Offset of the fault from the start of `base`, the bytes that were being decoded; `None` where it happened in
    /// other bytes (a reassembled message).
    pub fn offset_in(&self, base: &[u8]) -> Option<usize> {
        self.offset_from(base.as_ptr().addr(), base.len())
    }

    /// The same, of bytes that lay at `base`.
    pub(crate) fn offset_from(&self, base: usize, len: usize) -> Option<usize> {
        self.at.checked_sub(base).filter(|o| *o <= len)
    }

    /// This fault as a nom error that ends parsing.
    pub fn fail<'a, O>(self) -> PResult<'a, O> {
        Err(nom::Err::Error(self))
    }
}

impl<'a> nom::error::ParseError<&'a [u8]> for Fault {
    fn from_error_kind(input: &'a [u8], kind: nom::error::ErrorKind) -> Self {
        let kind = if kind == nom::error::ErrorKind::Eof { FaultKind::Short } else { FaultKind::Value };
        Self::new(kind, None, input, 0)
    }
    fn append(_: &'a [u8], _: nom::error::ErrorKind, other: Self) -> Self {
        other
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.def.map_or("data", |d| d.label);
        match self.kind {
            FaultKind::Short if self.needed > 0 => {
                write!(f, "{name}: {} bytes needed, {} left", self.needed, self.available)
            }
            FaultKind::Short => write!(f, "{name}: the bytes end here"),
            FaultKind::Length if self.needed > 0 => {
                write!(f, "{name}: points {} bytes far, {} are there", self.needed, self.available)
            }
            FaultKind::Length => write!(f, "{name}: points outside of the message"),
            FaultKind::Value => write!(f, "{name}: no decoding for this value"),
            FaultKind::Limit => write!(f, "{name}: nested or repeated beyond what is decoded"),
        }
    }
}

/// The fault inside a nom error. Decoders of captured bytes never ask for more: `Incomplete` is a fault without a
/// field.
pub fn fault_of(error: nom::Err<Fault>) -> Fault {
    match error {
        nom::Err::Error(f) | nom::Err::Failure(f) => f,
        nom::Err::Incomplete(_) => {
            Fault { kind: FaultKind::Short, def: None, needed: 0, available: 0, reported: false, at: 0 }
        }
    }
}

/// The outcome of a checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Check {
    /// Right.
    Good,
    /// Wrong.
    Bad,
    /// Not checked: the frame was cut, or checking was switched off, or there is none.
    #[default]
    Unchecked,
}
