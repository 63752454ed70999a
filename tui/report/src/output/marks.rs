//! Positions, within a text, of numbers that are counted over the whole capture: connections, exchanges and streams. A
//! worker that writes the frames of its own connections knows only its own count. It writes that count and marks the
//! position; the correct number is filled in when the texts are put in order.

use crate::streams;
use rdmascope_analyzer::connection::f;
use rdmascope_dissector::field::Def;
use rdmascope_dissector::render::decimal;
use rdmascope_dissector::trace::{NodeValue, Tree};

/// True if a field is a number that is counted over the whole capture.
pub fn is_counted(def: Def) -> bool {
    [f::CONNECTION, f::EXCHANGE, streams::f::TCP_STREAM].iter().any(|counted| counted.id == def.id)
}

/// A number in a text that is still a worker's own count.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    /// Offset of its first digit; it has [`DIGITS`] of them.
    pub at: usize,
    /// The field of this number.
    pub def: Def,
    /// The worker's own count.
    pub number: u64,
}

/// Digits of a number that will be filled in.
pub const DIGITS: usize = 19;
/// Value that is added to it so that it has [`DIGITS`] digits and differs from all other numbers of a frame.
const ADDED: u64 = 1 << 62;

/// The numbers of a text that will be filled in.
#[derive(Debug, Default)]
pub struct Marks {
    /// In the order of the text.
    pub places: Vec<Mark>,
    wanted: bool,
}

impl Marks {
    /// For a text in which numbers are filled in later. Use [`Marks::default`] for a text whose numbers are final.
    pub fn wanted() -> Self {
        Self { places: Vec::new(), wanted: true }
    }

    /// Changes the counted numbers of a tree so that they can be found in its text.
    pub fn prepare(tree: &mut Tree) {
        for node in &mut tree.nodes {
            if let NodeValue::U(number) = &mut node.value
                && is_counted(node.def)
            {
                Self::prepare_one(number);
            }
        }
    }

    /// Does the same for one number.
    pub fn prepare_one(number: &mut u64) {
        *number |= ADDED;
    }

    /// Called when the value of a field was written: the text from `from` on has it.
    #[inline]
    pub fn written(&mut self, out: &[u8], from: usize, def: Def, value: &NodeValue) {
        if let (true, NodeValue::U(number)) = (self.wanted, value)
            && is_counted(def)
        {
            self.find(out, from, def, *number);
        }
    }

    /// The same of a number.
    #[inline]
    pub fn number(&mut self, out: &[u8], from: usize, def: Def, number: u64) {
        if self.wanted && is_counted(def) {
            self.find(out, from, def, number);
        }
    }

    #[cold]
    fn find(&mut self, out: &[u8], from: usize, def: Def, number: u64) {
        let mut digits = Vec::with_capacity(DIGITS);
        decimal(&mut digits, number);
        let mut at = from;
        while let Some(rest) = out.get(at..)
            && let Some(next) = rest.iter().position(|byte| *byte == digits[0])
        {
            at += next;
            if out[at..].starts_with(&digits) {
                self.places.push(Mark { at, def, number: number & !ADDED });
                at += DIGITS;
            } else {
                at += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_place_of_a_number_is_marked() {
        let mut number = 7;
        Marks::prepare_one(&mut number);
        let text = format!("4 before {number}, 46{number}4");
        let mut marks = Marks::wanted();
        marks.written(text.as_bytes(), 2, f::EXCHANGE, &NodeValue::U(number));
        let places: Vec<_> = marks.places.iter().map(|mark| (mark.at, mark.number)).collect();
        assert_eq!(places, [(9, 7), (9 + DIGITS + 4, 7)]);
        assert!(marks.places.iter().all(|mark| text[mark.at..mark.at + DIGITS] == number.to_string()));
        let mut none = Marks::default();
        none.written(text.as_bytes(), 0, f::EXCHANGE, &NodeValue::U(number));
        assert!(none.places.is_empty(), "nothing is to be filled in");
    }

    #[test]
    fn every_number_has_as_many_digits() {
        for mut number in [0, 1, u64::from(u32::MAX), (1 << 56) - 1, (1 << 62) - 1] {
            Marks::prepare_one(&mut number);
            assert_eq!(number.to_string().len(), DIGITS);
        }
    }
}
