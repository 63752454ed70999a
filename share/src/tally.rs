//! How to anonymize, and what was done.

use rdmascope_dissector::field::Privacy;
use std::collections::BTreeMap;

/// What becomes of contents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Payload {
    /// Zeros.
    #[default]
    Zero,
    /// Bytes that the same contents always become: hashes of payloads that went alike still compare.
    Stream,
}

/// How to anonymize.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The key of the mapping: with the same one the same names become the same ones.
    pub key: Vec<u8>,
    /// What becomes of contents.
    pub payload: Payload,
    /// What is kept as it is.
    pub keep: Vec<Privacy>,
    /// What is replaced though it is kept otherwise.
    pub drop: Vec<Extra>,
}

/// What is kept unless somebody asks: it tells of machines and files, and an analysis needs it or may miss it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Extra {
    /// Remote keys and memory addresses: one for one, so that an analysis ties them together as before. Addresses keep their lower 32 bits.
    Memory,
    /// Times of files and hosts: zeros.
    Time,
    /// Sizes of files: zeros.
    Size,
}

impl Extra {
    /// The word of command lines and reports.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Time => "time",
            Self::Size => "size",
        }
    }
}

/// What is counted while listening.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) replaced: BTreeMap<Privacy, (u64, u64)>,
    pub(crate) dropped: BTreeMap<Extra, (u64, u64)>,
    pub(crate) untraced: BTreeMap<&'static str, (u64, u64)>,
    pub(crate) sealed: u64,
    pub(crate) compressed: u64,
    pub(crate) sums: u64,
}

impl Counts {
    pub(crate) fn replaced(&mut self, privacy: Privacy, bytes: usize) {
        let (times, all) = self.replaced.entry(privacy).or_default();
        *times += 1;
        *all += bytes as u64;
    }

    pub(crate) fn untraced(&mut self, name: &'static str, bytes: usize) {
        let (times, all) = self.untraced.entry(name).or_default();
        *times += 1;
        *all += bytes as u64;
    }
}

/// What was done.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Frames.
    pub frames: u64,
    /// By kind: values that were replaced, and their bytes.
    pub replaced: Vec<(Privacy, u64, u64)>,
    /// The same for what was replaced because somebody asked.
    pub dropped: Vec<(Extra, u64, u64)>,
    /// By the field that holds them: runs of bytes that no field claims and that were blanked, and their bytes. Zeros are not counted.
    pub blanked: Vec<(&'static str, u64, u64)>,
    /// Messages put together whose bytes were not found in the frames, by what they were, and their bytes: they are blanked there.
    pub untraced: Vec<(&'static str, u64, u64)>,
    /// Encrypted messages: blanked.
    pub sealed: u64,
    /// Compressed messages: blanked.
    pub compressed: u64,
    /// Checksums of datagrams in fragments, which were not made anew.
    pub sums: u64,
}
