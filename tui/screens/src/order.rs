//! The order of the rows of I/O and memory. A separate thread makes it from the loader's results: a quarter of a
//! million exchanges cannot be sorted between two screens.

use super::draw::Cursor;
use super::exchanges::Exchanges;
use rdmascope_analyzer::exchange::Exchange;
use std::cmp::Ordering;

/// A row: the place of an exchange, and which of its descriptors.
pub(crate) type Row = (u32, u8);

/// A row in a comparison: an exchange, and the index of its row.
type RowOf<'e> = (&'e Exchange, u8);

/// Description of the rows of a table.
#[derive(Debug)]
pub(crate) struct Rows {
    /// Number of rows of an exchange.
    pub(crate) count: fn(&Exchange) -> u8,
    /// Compares two rows by a column.
    pub(crate) compare: fn(RowOf<'_>, RowOf<'_>, usize) -> Ordering,
}

/// Each table has one static instance.
impl PartialEq for Rows {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

/// By which column a table is sorted, and its rows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Order {
    pub(crate) by: usize,
    /// True if the greatest is first.
    pub(crate) down: bool,
    /// Ascending.
    rows: Vec<Row>,
    /// Version of the data from which the rows were made.
    version: usize,
    /// Generation of the requested order; below, that of the pending request and that of the rows.
    generation: u64,
    asked: Option<u64>,
    made: Option<u64>,
}

impl Order {
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(crate) fn row(&self, at: usize) -> Option<Row> {
        let at = if self.down { self.rows.len().checked_sub(at + 1)? } else { at };
        self.rows.get(at).copied()
    }

    /// Position of a row.
    pub(crate) fn find(&self, row: Row) -> Option<usize> {
        let at = self.rows.iter().position(|r| *r == row)?;
        Some(if self.down { self.rows.len() - 1 - at } else { at })
    }

    /// All rows as they are shown.
    #[cfg(test)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = Row> {
        (0..self.len()).filter_map(|at| self.row(at))
    }

    /// Another column, or the same the other way round.
    pub(crate) fn sort(&mut self, by: usize, down: bool) {
        if self.by != by {
            self.generation += 1;
        }
        (self.by, self.down) = (by, down);
    }

    /// Sorts by a column, and keeps the selected row selected and visible. Returns a message about it.
    pub(crate) fn sort_table(
        &mut self,
        cursor: &mut Cursor,
        page: usize,
        by: usize,
        down: bool,
        title: &str,
    ) -> String {
        let row = self.row(cursor.at).filter(|_| cursor.at > 0);
        self.sort(by, down);
        if let Some(at) = row.and_then(|row| self.find(row)) {
            cursor.at = at;
        }
        cursor.jump(cursor.at, self.len(), page);
        format!("sorted by {title}{}", if down { ", the greatest first" } else { "" })
    }

    /// Marks the rows as out of date, because other exchanges are to be shown.
    pub(crate) fn outdated(&mut self) {
        self.rows = Vec::new();
        self.made = None;
        self.generation += 1;
    }

    /// True if the rows match the latest request.
    pub(crate) fn is_made(&self) -> bool {
        self.made == Some(self.generation)
    }

    /// Returns the generation of the request to send for exchanges of this version, if one is due.
    pub(crate) fn due(&mut self, version: usize) -> Option<u64> {
        let is_due = !self.is_made() || self.version != version;
        (is_due && self.asked.is_none()).then(|| {
            self.asked = Some(self.generation);
            self.generation
        })
    }

    /// Takes the answer to a request. Returns false if it is out of date.
    pub(crate) fn came(&mut self, generation: u64, version: usize, rows: Vec<Row>) -> bool {
        self.asked = None;
        if generation != self.generation {
            return false;
        }
        (self.rows, self.version, self.made) = (rows, version, Some(generation));
        true
    }
}

/// True if a request has one of these frames (places, ascending) among those by which it is known: its own, its
/// reply's, first and last of its RDMA.
pub(crate) fn passes(e: &Exchange, frames: &[u32]) -> bool {
    let moved = [&e.reads, &e.writes].into_iter().filter(|m| m.frames > 0).flat_map(|m| [m.first, m.last]);
    let ends = [e.request, e.request_end].into_iter().chain(e.reply).chain(e.reply_end);
    ends.chain(moved).any(|at| {
        u32::try_from(at.frame).ok().and_then(|n| n.checked_sub(1)).is_some_and(|p| frames.binary_search(&p).is_ok())
    })
}

/// The rows of a table in ascending order of a column, of all connections or of those with these numbers, all or those
/// with one of these frames.
pub(crate) fn make(
    table: &Rows,
    exchanges: &Exchanges,
    by: usize,
    followed: Option<&[u32]>,
    passing: Option<&[u32]>,
) -> Vec<Row> {
    let of_shown = |e: &Exchange| followed.is_none_or(|ids| ids.contains(&e.connection));
    let shown = exchanges.iter().filter(|(_, e)| of_shown(e) && passing.is_none_or(|frames| passes(e, frames)));
    let mut rows: Vec<Row> = shown.flat_map(|(place, e)| (0..(table.count)(e)).map(move |row| (place, row))).collect();
    // stable: sorting nearly ordered rows is fast
    rows.sort_by(|a, b| match (exchanges.at(a.0 as usize), exchanges.at(b.0 as usize)) {
        (Some(x), Some(y)) => (table.compare)((x, a.1), (y, b.1), by),
        _ => a.cmp(b),
    });
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wished_is_asked_for_once_and_again_when_it_is_old() {
        let mut order = Order::default();
        let first = order.due(3).unwrap();
        assert!(order.due(3).is_none());
        order.sort(2, true);
        assert!(!order.came(first, 3, vec![(0, 0)]), "the wish is another one by now");
        let second = order.due(3).unwrap();
        assert!(order.came(second, 3, vec![(2, 0), (0, 0), (1, 0)]));
        assert!(order.due(3).is_none() && order.due(4).is_some());
        assert_eq!(
            (order.row(0), order.row(2), order.row(3), order.find((2, 0))),
            (Some((1, 0)), Some((2, 0)), None, Some(2))
        );
        order.sort(2, false);
        assert!(order.is_made() && order.row(0) == Some((2, 0)));
    }
}
