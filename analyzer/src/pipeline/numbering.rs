//! The numbers of a report: small and in the order of the first frames, whatever was joined, evicted or dropped on the
//! way.

use crate::env::Session;
use crate::finding::{Finding, Findings};
use crate::report::Connection;
use alloc::vec::Vec;
use hashbrown::{HashMap, HashSet};

/// Connections that turned out to be one half of another, and which one: by the numbers under which they were followed.
#[derive(Clone, Debug, Default)]
pub(super) struct Joined {
    into: HashMap<u32, u32>,
}

impl Joined {
    /// One connection became part of another.
    pub(super) fn add(&mut self, half: u32, into: u32) {
        self.into.insert(half, into);
    }

    /// Takes in the connections that were joined in another part of the capture.
    pub(super) fn join(&mut self, part: Joined) {
        self.into.extend(part.into);
    }

    /// Forgets the halves that became part of these connections, and emits their numbers, which are added to `ids`.
    pub(super) fn forget(&mut self, ids: &mut HashSet<u32>, mut emit: impl FnMut(u32)) {
        loop {
            let halves: Vec<u32> =
                self.into.iter().filter(|(_, into)| ids.contains(*into)).map(|(half, _)| *half).collect();
            if halves.is_empty() {
                return;
            }
            for half in halves {
                self.into.remove(&half);
                emit(half);
                ids.insert(half);
            }
        }
    }

    /// Sorts connections by their first frames and numbers them.
    pub(super) fn number(&self, connections: &mut [Connection]) -> Numbers<'_> {
        connections.sort_by_key(|c| (c.first, c.id));
        let mut of = HashMap::new();
        for (index, connection) in connections.iter_mut().enumerate() {
            of.insert(connection.id, index as u32 + 1);
            connection.id = index as u32 + 1;
        }
        let numbers = Numbers { joined: self, of };
        for half in self.into.keys() {
            if let Some(connection) = numbers.of(*half).and_then(|id| connections.get_mut(id as usize - 1)) {
                connection.followed_as.push(*half);
            }
        }
        for connection in connections {
            // the map has no order
            if let Some((_, halves)) = connection.followed_as.split_first_mut() {
                halves.sort_unstable();
            }
        }
        numbers
    }
}

/// The numbers of a report, by those under which connections were followed.
pub(super) struct Numbers<'j> {
    joined: &'j Joined,
    of: HashMap<u32, u32>,
}

impl Numbers<'_> {
    /// The number of a connection; `None` if it is not in the report.
    pub(super) fn of(&self, followed_as: u32) -> Option<u32> {
        let mut id = followed_as;
        while let Some(into) = self.joined.into.get(&id) {
            id = *into;
        }
        self.of.get(&id).copied()
    }

    /// Findings by the numbers of the report, in the order of their first frames.
    pub(super) fn findings<'f>(&self, of: impl Iterator<Item = &'f Finding>) -> Findings {
        let numbered = |finding: &Finding| Finding {
            connection: finding.connection.and_then(|id| self.of(id)),
            ..finding.clone()
        };
        let mut all: Vec<Finding> = of.map(numbered).collect();
        all.sort_by_key(|f| (f.frame, f.connection, f.rule, f.by));
        let mut findings = Findings::default();
        all.into_iter().for_each(|finding| findings.add(finding));
        findings
    }

    /// Sessions with the connections that carry them, by the numbers of the report.
    pub(super) fn sessions(&self, of: Vec<Session>) -> Vec<(u64, Vec<u32>)> {
        let channels = |ids: Vec<u32>| {
            let mut channels: Vec<u32> = ids.into_iter().filter_map(|id| self.of(id)).collect();
            channels.sort_unstable();
            channels.dedup();
            channels
        };
        of.into_iter().map(|session| (session.id, channels(session.connections))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::At;
    use alloc::vec;

    fn connection(id: u32, frame: u64) -> Connection {
        Connection { id, followed_as: vec![id], first: At { frame, time: frame as i64 }, ..Connection::default() }
    }

    #[test]
    fn connections_are_numbered_by_their_first_frames_and_halves_go_with_the_whole() {
        let mut joined = Joined::default();
        joined.add(2, 9);
        joined.add(5, 2);
        let mut connections = vec![connection(9, 30), connection(4, 10), connection(7, 20)];
        let numbers = joined.number(&mut connections);
        assert_eq!([4, 7, 9, 2, 5, 8].map(|id| numbers.of(id)), [Some(1), Some(2), Some(3), Some(3), Some(3), None]);
        assert_eq!(
            numbers.sessions(vec![Session { id: 77, first: 1, connections: vec![5, 4, 9, 8] }]),
            [(77, vec![1, 3])]
        );
        let mut followed = connections[2].followed_as.clone();
        followed.sort_unstable();
        assert_eq!((connections[2].id, followed), (3, vec![2, 5, 9]));
    }

    #[test]
    fn what_became_part_of_a_forgotten_connection_is_forgotten_with_it() {
        let mut joined = Joined::default();
        joined.add(2, 9);
        joined.add(5, 2);
        joined.add(6, 8);
        let (mut ids, mut told) = (HashSet::from_iter([9]), Vec::new());
        joined.forget(&mut ids, |half| told.push(half));
        assert_eq!((told, ids.len(), joined.into.len()), (vec![2, 5], 3, 1));
    }
}
