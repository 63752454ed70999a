//! Options of an anonymization, and counts of its results.

use rdmascope_dissector::field::Privacy;

/// Replacement of contents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Payload {
    /// Zeros.
    #[default]
    Zero,
    /// Pseudorandom bytes that are equal for equal contents, so that hashes of equal payloads still match.
    Stream,
}

/// Options of an anonymization.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Key of the mapping. With the same key, equal names have equal replacements.
    pub key: Vec<u8>,
    /// Replacement of contents.
    pub payload: Payload,
    /// Kinds of data that are kept.
    pub keep: Vec<Privacy>,
    /// Kinds of data that are replaced although they are kept by default.
    pub drop: Vec<Extra>,
}

/// Data that is kept by default: it reveals something about machines and files, but an analysis may need it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Extra {
    /// Remote keys and memory addresses. They are mapped one to one, so an analysis still matches them. Addresses keep
    /// their lower 32 bits.
    Memory,
    /// Times of files and hosts. They become zeros.
    Time,
    /// Sizes of files. They become zeros.
    Size,
}

impl Extra {
    /// Its name in command lines and reports.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Time => "time",
            Self::Size => "size",
        }
    }
}

/// Blanked bytes by the field that contains them: number of runs, and of bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Blanked(Vec<(&'static str, u64, u64)>);

impl Blanked {
    pub(crate) fn add(&mut self, name: &'static str, bytes: usize) {
        // there are few names, and usually the same one repeats
        let place = match self.0.iter().position(|(known, ..)| *known == name) {
            Some(place) => place,
            None => {
                self.0.push((name, 0, 0));
                self.0.len() - 1
            }
        };
        let (_, times, all) = &mut self.0[place];
        *times += 1;
        *all += bytes as u64;
        if place > 0 {
            self.0.swap(place, place - 1);
        }
    }

    /// Adds the counts of another.
    pub(crate) fn join(&mut self, other: &Self) {
        for (name, times, bytes) in &other.0 {
            match self.0.iter_mut().find(|(known, ..)| known == name) {
                Some((_, all_times, all)) => (*all_times, *all) = (*all_times + times, *all + bytes),
                None => self.0.push((name, *times, *bytes)),
            }
        }
    }

    /// Rows with the most bytes first.
    pub(crate) fn rows(mut self) -> Vec<(&'static str, u64, u64)> {
        self.0.sort_unstable_by_key(|(name, _, bytes)| (std::cmp::Reverse(*bytes), *name));
        self.0
    }
}

/// Replaced values by kind: number, and bytes.
pub(crate) type Replaced = [(u64, u64); KINDS.len()];

/// Counts of what the observer replaced.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    replaced: Replaced,
    dropped: [(u64, u64); EXTRAS.len()],
    pub(crate) untraced: std::collections::BTreeMap<&'static str, (u64, u64)>,
    pub(crate) blanked: Blanked,
    pub(crate) sealed: u64,
    pub(crate) compressed: u64,
    pub(crate) recompressed: u64,
    pub(crate) sums: u64,
}

/// All kinds, in the order of their numbers.
const KINDS: [Privacy; 11] = [
    Privacy::Keep,
    Privacy::Inside,
    Privacy::Ber,
    Privacy::Mac,
    Privacy::Address,
    Privacy::Name,
    Privacy::Id,
    Privacy::Sid,
    Privacy::User,
    Privacy::Secret,
    Privacy::Data,
];
const EXTRAS: [Extra; 3] = [Extra::Memory, Extra::Time, Extra::Size];

fn more(counts: &mut (u64, u64), bytes: usize) {
    *counts = (counts.0 + 1, counts.1 + bytes as u64);
}

fn rows<K: Copy>(kinds: &[K], counts: &[(u64, u64)]) -> Vec<(K, u64, u64)> {
    kinds
        .iter()
        .zip(counts)
        .filter(|(_, (times, _))| *times > 0)
        .map(|(kind, (times, bytes))| (*kind, *times, *bytes))
        .collect()
}

impl Counts {
    #[inline]
    pub(crate) fn replaced(&mut self, privacy: Privacy, bytes: usize) {
        more(&mut self.replaced[privacy as usize], bytes);
    }

    /// Counts so far.
    pub(crate) fn replaced_so_far(&self) -> Replaced {
        self.replaced
    }

    /// Counts since then.
    pub(crate) fn replaced_since(&self, before: &Replaced) -> Replaced {
        let mut since = self.replaced;
        for (now, before) in since.iter_mut().zip(before) {
            *now = (now.0 - before.0, now.1 - before.1);
        }
        since
    }

    /// Adds these counts.
    pub(crate) fn replaced_again(&mut self, more: &Replaced) {
        for (now, more) in self.replaced.iter_mut().zip(more) {
            *now = (now.0 + more.0, now.1 + more.1);
        }
    }

    pub(crate) fn dropped(&mut self, kind: Extra, bytes: usize) {
        more(&mut self.dropped[kind as usize], bytes);
    }

    pub(crate) fn untraced(&mut self, name: &'static str, bytes: usize) {
        more(self.untraced.entry(name).or_default(), bytes);
    }

    /// The counts for a capture of `frames` frames.
    pub(crate) fn tally(self, frames: u64) -> Tally {
        Tally {
            frames,
            replaced: rows(&KINDS, &self.replaced),
            dropped: rows(&EXTRAS, &self.dropped),
            blanked: self.blanked.rows(),
            untraced: self.untraced.into_iter().map(|(name, (times, bytes))| (name, times, bytes)).collect(),
            sealed: self.sealed,
            compressed: self.compressed,
            recompressed: self.recompressed,
            sums: self.sums,
        }
    }
}

/// Counts of replaced, blanked and dropped data.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Number of frames.
    pub frames: u64,
    /// Replaced values by kind: number, and bytes.
    pub replaced: Vec<(Privacy, u64, u64)>,
    /// The same for values that were replaced on request.
    pub dropped: Vec<(Extra, u64, u64)>,
    /// Blanked bytes that no field claims, by the field that contains them: number of runs, and of bytes. Zeros are not
    /// counted.
    pub blanked: Vec<(&'static str, u64, u64)>,
    /// Reassembled messages whose bytes were not found in frames, by kind: number, and bytes. Their bytes are blanked.
    pub untraced: Vec<(&'static str, u64, u64)>,
    /// Encrypted messages, which are blanked.
    pub sealed: u64,
    /// Compressed messages that are blanked, because they could not be decompressed or did not fit after replacement.
    pub compressed: u64,
    /// Compressed messages that were decompressed, changed and compressed again.
    pub recompressed: u64,
    /// Checksums of fragmented datagrams, which were not recomputed.
    pub sums: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_counted_under_their_own_names() {
        for (place, kind) in KINDS.into_iter().enumerate() {
            assert_eq!(kind as usize, place);
        }
        for (place, kind) in EXTRAS.into_iter().enumerate() {
            assert_eq!(kind as usize, place);
        }
        let mut counts = Counts::default();
        counts.replaced(Privacy::Name, 5);
        counts.dropped(Extra::Size, 8);
        (0..3).for_each(|_| counts.blanked.add("b", 1));
        counts.blanked.add("a", 7);
        let tally = counts.tally(1);
        assert_eq!((tally.replaced, tally.dropped), (vec![(Privacy::Name, 1, 5)], vec![(Extra::Size, 1, 8)]));
        assert_eq!(tally.blanked, [("a", 1, 7), ("b", 3, 3)]);
    }
}
