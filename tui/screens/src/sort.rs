//! Sorting of frames. Time and length are in a frame's index entry; every other key is read from the file again, in a
//! separate thread that reports its progress and can be stopped. While it reads, keys take 12 bytes per frame, plus
//! each distinct text once; afterwards the order takes 4 bytes per frame, as long as the list is sorted.

use super::index::Index;
use super::redissect::{EXACT_MAX, Redissector, Which};
use rdmascope_dissector::extract::{Extractor, Need, Slot};
use rdmascope_dissector::field::Def;
use rdmascope_dissector::frame::Addr;
use rdmascope_dissector::render::{Stored, value_label};
use rdmascope_dissector::trace::{Line, Off};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::hash::Hash;

/// A sort key of frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum By {
    /// The order of the capture.
    #[default]
    Number,
    Time,
    Source,
    Destination,
    Protocol,
    Length,
    Info,
    /// A column that the user chose.
    Field(Def),
}

impl By {
    /// The columns that are always there, in their order.
    pub(crate) const USUAL: [Self; 7] =
        [Self::Number, Self::Time, Self::Source, Self::Destination, Self::Protocol, Self::Length, Self::Info];

    /// The head of its column.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Number => "No.",
            Self::Time => "Time",
            Self::Source => "Source",
            Self::Destination => "Destination",
            Self::Protocol => "Protocol",
            Self::Length => "Len",
            Self::Info => "Info",
            Self::Field(def) => def.name,
        }
    }
}

/// Frames in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sorted {
    /// Places, ascending by their key; those without one are at the end.
    rows: Vec<u32>,
    /// Number of frames that have a key.
    keyed: usize,
    /// True if some texts are sorted by their beginning alone.
    pub(crate) is_rough: bool,
}

impl Sorted {
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// The place of the frame in a row. Frames without a key are the last ones either way.
    pub(crate) fn at(&self, row: usize, down: bool) -> Option<u32> {
        let row = if down && row < self.keyed { self.keyed - 1 - row } else { row };
        self.rows.get(row).copied()
    }

    /// The row of a frame.
    pub(crate) fn row_of(&self, place: u32, down: bool) -> Option<usize> {
        let at = self.rows.iter().position(|p| *p == place)?;
        Some(if down && at < self.keyed { self.keyed - 1 - at } else { at })
    }
}

/// A frame without a key.
const NONE: u64 = u64::MAX;
/// Bytes of different texts that are kept while sorting; from then on their beginnings have to do.
const TEXTS_MAX: usize = 512 << 20;
/// Memory of an entry in the list of texts besides its text, in bytes.
const OVERHEAD: usize = 64;
/// Characters of such a beginning.
const BEGINNING: usize = 16;
/// Keys that are sorted at once, between two looks at whether anybody still waits.
const RUN: usize = 1 << 18;

/// Different values, numbered as they come.
struct Dictionary<V> {
    numbers: HashMap<V, u32>,
    bytes: usize,
    is_rough: bool,
}

impl<V: Hash + Eq + Ord + Clone> Dictionary<V> {
    fn new() -> Self {
        Self { numbers: HashMap::new(), bytes: 0, is_rough: false }
    }

    fn number(&mut self, value: V) -> u64 {
        let next = self.numbers.len() as u32;
        u64::from(*self.numbers.entry(value).or_insert(next))
    }

    /// By number, the rank.
    fn ranks(self) -> Vec<u32> {
        let mut sorted: Vec<(V, u32)> = self.numbers.into_iter().collect();
        sorted.sort_unstable();
        let mut ranks = vec![0; sorted.len()];
        for (rank, (_, number)) in sorted.iter().enumerate() {
            ranks[*number as usize] = rank as u32;
        }
        ranks
    }
}

impl Dictionary<Box<str>> {
    fn text(&mut self, text: &str) -> u64 {
        if let Some(number) = self.numbers.get(text) {
            return u64::from(*number);
        }
        let mut text = text;
        if self.bytes > TEXTS_MAX {
            self.is_rough = true;
            text = text.char_indices().nth(BEGINNING).map_or(text, |(at, _)| &text[..at]);
            if let Some(number) = self.numbers.get(text) {
                return u64::from(*number);
            }
            // there is an end to everything
            if self.bytes > TEXTS_MAX * 2 {
                return NONE;
            }
        }
        self.bytes += text.len() + OVERHEAD;
        self.number(text.into())
    }
}

/// A signed number so that it sorts among unsigned ones.
const fn signed(v: i64) -> u64 {
    v as u64 ^ 1 << 63
}

/// Keys are read: of how many frames, and whether to go on.
pub(crate) type Progress<'p> = &'p mut dyn FnMut(usize) -> bool;

/// Sorts frames (ascending places). `None` if `progress` returned false.
pub(crate) fn sort(redissector: &mut Redissector, by: By, frames: &Which, progress: Progress<'_>) -> Option<Sorted> {
    let index = redissector.index();
    let (keys, is_rough) = match by {
        By::Number => (frames.iter().map(|i| i as u64).collect(), false),
        By::Time => (from_index(&index, frames, |e| signed(e.time)), false),
        By::Length => (from_index(&index, frames, |e| e.wire_len.into()), false),
        By::Source | By::Destination => addresses(redissector, &index, by, frames, progress)?,
        By::Protocol | By::Info => texts(redissector, by, frames, progress)?,
        By::Field(def) => values(redissector, def, frames, progress)?,
    };
    let keyed = keys.iter().filter(|k| **k != NONE).count();
    let places: Vec<u32> = frames.iter().map(|i| i as u32).collect();
    let rows = ordered(&keys, &places, &mut || progress(places.len()))?;
    Some(Sorted { rows, keyed, is_rough })
}

fn from_index(index: &Index, frames: &Which, key: impl Fn(&super::index::Entry) -> u64) -> Vec<u64> {
    frames.iter().map(|i| index.at(i).map_or(NONE, &key)).collect()
}

/// Ranks in place of numbers.
fn ranked<V: Hash + Eq + Ord + Clone>(mut keys: Vec<u64>, dictionary: Dictionary<V>) -> (Vec<u64>, bool) {
    let is_rough = dictionary.is_rough;
    let ranks = dictionary.ranks();
    for key in keys.iter_mut().filter(|k| **k != NONE) {
        *key = u64::from(ranks[*key as usize]);
    }
    (keys, is_rough)
}

/// Addresses need only the frame itself, not the frames before it.
fn addresses(
    redissector: &mut Redissector,
    index: &Index,
    by: By,
    frames: &Which,
    progress: Progress<'_>,
) -> Option<(Vec<u64>, bool)> {
    let mut keys = Vec::with_capacity(frames.len());
    let mut dictionary: Dictionary<Addr> = Dictionary::new();
    for (n, i) in frames.iter().enumerate() {
        if n % 4096 == 0 && !progress(n) {
            return None;
        }
        keys.push(match redissector.ends(index, i) {
            Some((src, dst)) => match if by == By::Source { src } else { dst } {
                Addr::None => NONE,
                address => dictionary.number(address),
            },
            None => NONE,
        });
    }
    Some(ranked(keys, dictionary))
}

fn texts(redissector: &mut Redissector, by: By, frames: &Which, progress: Progress<'_>) -> Option<(Vec<u64>, bool)> {
    let mut keys = Vec::with_capacity(frames.len());
    let mut dictionary: Dictionary<Box<str>> = Dictionary::new();
    let mut line = Line::default();
    let whole = redissector.walk(frames, EXACT_MAX, &mut line, Line::begin, &mut |line, _, fed| {
        let text = match fed {
            Ok((.., name)) if by == By::Protocol && line.protocol.is_empty() => name,
            _ if by == By::Protocol => line.protocol,
            _ => &line.info,
        };
        keys.push(dictionary.text(text));
        keys.len() % 4096 != 0 || progress(keys.len())
    });
    whole.then(|| ranked(keys, dictionary))
}

fn values(redissector: &mut Redissector, def: Def, frames: &Which, progress: Progress<'_>) -> Option<(Vec<u64>, bool)> {
    let mut keys = Vec::with_capacity(frames.len());
    let mut dictionary: Dictionary<Box<str>> = Dictionary::new();
    let mut are_texts = false;
    let mut extractor = Extractor::new();
    let slot: Slot = extractor.want(def, Need::Value);
    let mut text = String::new();
    let whole = redissector.walk(frames, EXACT_MAX, &mut extractor, Extractor::begin, &mut |extractor, _, _| {
        keys.push(match extractor.values(slot).next() {
            None | Some((_, Stored::None)) => NONE,
            Some((_, Stored::U(v))) => v.min(NONE - 1),
            Some((_, Stored::I(v))) => signed(v).min(NONE - 1),
            Some((_, Stored::Time(seconds, nanos))) => {
                signed(seconds.saturating_mul(1_000_000_000).saturating_add(nanos.into())).min(NONE - 1)
            }
            Some((def, value)) => {
                are_texts = true;
                text.clear();
                value_label(&mut text, def, value);
                dictionary.text(&text)
            }
        });
        keys.len() % 4096 != 0 || progress(keys.len())
    });
    whole.then(|| if are_texts { ranked(keys, dictionary) } else { (keys, false) })
}

/// The places, ascending by their keys; of equal ones the first is first. In runs, so that it can be given up.
fn ordered(keys: &[u64], places: &[u32], goes_on: &mut dyn FnMut() -> bool) -> Option<Vec<u32>> {
    let mut order: Vec<u32> = (0..keys.len() as u32).collect();
    for run in order.chunks_mut(RUN) {
        if !goes_on() {
            return None;
        }
        run.sort_unstable_by_key(|i| (keys[*i as usize], *i));
    }
    let mut runs: Vec<_> = order.chunks(RUN).map(|run| run.iter().copied()).collect();
    let key = |i: u32| (keys[i as usize], i);
    let mut heads: BinaryHeap<_> =
        runs.iter_mut().enumerate().filter_map(|(n, run)| run.next().map(|i| Reverse((key(i), n)))).collect();
    let mut rows = Vec::with_capacity(keys.len());
    while let Some(Reverse(((_, i), n))) = heads.pop() {
        rows.push(places[i as usize]);
        if rows.len() % RUN == 0 && !goes_on() {
            return None;
        }
        if let Some(next) = runs[n].next() {
            heads.push(Reverse((key(next), n)));
        }
    }
    Some(rows)
}

impl Redissector {
    /// The addresses of a frame.
    fn ends(&mut self, index: &Index, place: usize) -> Option<(Addr, Addr)> {
        self.decoded(index, place, &mut Off)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_merged_and_equal_keys_keep_their_order() {
        let n = RUN * 2 + 77;
        let keys: Vec<u64> = (0..n as u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 50).collect();
        let places: Vec<u32> = (0..n as u32).map(|i| i * 2).collect();
        let rows = ordered(&keys, &places, &mut || true).unwrap();
        assert_eq!(rows.len(), n);
        assert!(rows.is_sorted_by_key(|p| (keys[*p as usize / 2], *p)));
        let mut left = 3;
        let given_up = ordered(&keys, &places, &mut || {
            left -= 1;
            left > 0
        });
        assert!(given_up.is_none());
    }

    #[test]
    fn what_has_no_key_is_last_either_way() {
        let sorted = Sorted { rows: vec![5, 7, 9, 1, 2], keyed: 3, is_rough: false };
        let rows = |down| (0..5).filter_map(|r| sorted.at(r, down)).collect::<Vec<_>>();
        assert_eq!((rows(false), rows(true)), (vec![5, 7, 9, 1, 2], vec![9, 7, 5, 1, 2]));
        for down in [false, true] {
            assert!((0..5).all(|r| sorted.row_of(sorted.at(r, down).unwrap(), down) == Some(r)));
        }
        assert_eq!((sorted.at(5, true), sorted.row_of(8, false)), (None, None));
    }

    #[test]
    fn ranks_are_in_the_order_of_what_they_stand_for() {
        let mut dictionary: Dictionary<Box<str>> = Dictionary::new();
        let keys = ["b", "a", "c", "a"].map(|t| dictionary.text(t)).to_vec();
        assert_eq!(ranked(keys, dictionary), (vec![1, 0, 2, 0], false));
        assert!(signed(-1) < signed(0) && signed(i64::MIN) < signed(i64::MAX));
    }
}
