//! Faults that a transport can make in its own packets: a column of its row, each fault one row in it.

use super::KINDS;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts how often a fault acted, over all connections. Copies are the same counter.
#[derive(Clone, Debug, Default)]
pub struct Tally(Arc<AtomicU64>);

impl Tally {
    /// Counts one more.
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Number of times so far.
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A kind of fault.
#[derive(Clone, Copy, Debug)]
pub struct FaultRow {
    /// Its name, for a command line.
    pub name: &'static str,
    /// Description of the fault, as a predicate of the peer.
    pub text: &'static str,
    /// Reaction that the specification requires from the other end.
    pub expected: &'static str,
    /// Packets that it happens to unless others are named.
    pub when: When,
}

/// The matching packets to which the fault applies: only packets after the setup count, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// The n-th matching packet, from 1.
    Nth(u64),
    /// To this one and all later ones.
    From(u64),
    /// To one of this number of packets, at random.
    OneIn(u64),
}

/// A fault and when: `lose@3`, `lose@3-`, `lose@1/100`. Without `@`, the row's own.
#[derive(Clone, Copy, Debug)]
pub struct PacketFault {
    /// Kind of fault.
    pub row: &'static FaultRow,
    /// Packets that it happens to.
    pub when: When,
}

/// An error in the text of a [`PacketFault`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// No such row.
    #[error("no packet fault \"{0}\"")]
    Name(String),
    /// Neither `N`, `N-` nor `1/N`.
    #[error("@ must be followed by N, N- or 1/N, not by \"{0}\"")]
    When(String),
}

impl FromStr for PacketFault {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let (name, when) = text.split_once('@').map_or((text, None), |(name, when)| (name, Some(when)));
        let mut rows = KINDS.iter().flat_map(|kind| kind.faults);
        let row = rows.find(|row| row.name == name).ok_or_else(|| ParseError::Name(name.to_owned()))?;
        let Some(when) = when else { return Ok(Self { row, when: row.when }) };
        let number = |text: &str| text.parse().ok().filter(|n: &u64| *n > 0);
        let parsed = match (when.strip_prefix("1/"), when.strip_suffix('-')) {
            (Some(n), _) => number(n).map(When::OneIn),
            (None, Some(n)) => number(n).map(When::From),
            (None, None) => number(when).map(When::Nth),
        };
        Ok(Self { row, when: parsed.ok_or_else(|| ParseError::When(when.to_owned()))? })
    }
}

impl fmt::Display for PacketFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.row.name)?;
        match self.when {
            When::Nth(n) => write!(f, "@{n}"),
            When::From(n) => write!(f, "@{n}-"),
            When::OneIn(n) => write!(f, "@1/{n}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_read_back() {
        let rows = || KINDS.iter().flat_map(|kind| kind.faults);
        let mut names: Vec<&str> = rows().map(|row| row.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), rows().count());
        for row in rows() {
            for when in ["", "@1", "@7-", "@1/100"] {
                let fault: PacketFault = format!("{}{when}", row.name).parse().unwrap();
                assert_eq!(fault.to_string().parse::<PacketFault>().unwrap().when, fault.when);
            }
        }
        assert!(matches!("nothing@1".parse::<PacketFault>(), Err(ParseError::Name(_))));
        let name = rows().next().expect("a fault").name;
        for wrong in ["", "0", "x", "1/0", "-1"] {
            assert!(matches!(format!("{name}@{wrong}").parse::<PacketFault>(), Err(ParseError::When(_))), "{wrong}");
        }
    }
}
