//! State of the capture as read so far, and the selection that is shown. Views only read it; the application changes
//! it.

use super::credits_log::CreditsLog;
use super::digest::{Digest, Joined, Sums};
use super::exchanges::Exchanges;
use super::index::Index;
use super::keys::Keys;
use super::loader::{Counted, LiveFacts};
use super::redissect::{Detail, Text, Which};
use super::sort::{By, Sorted};
use super::theme::{self, Depth, Theme};
use super::time;
use super::views::View;
use ratatui::layout::Rect;
use rdmascope_analyzer::exchange::Exchange;
use rdmascope_analyzer::op::End;
use rdmascope_analyzer::report::Connection;
use rdmascope_capture::Progress;
use rdmascope_dissector::field::Def;
use rdmascope_dissector::registry::Registry;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// The smallest screen.
pub(crate) const SMALLEST: (u16, u16) = (60, 18);
/// Frames looked at in one step while narrowing to a connection.
pub(crate) const SCAN_STEP: usize = 150_000;

/// The display filter.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filter {
    pub(crate) text: String,
    pub(crate) generation: u64,
    /// Frames that pass, by place.
    pub(crate) found: Vec<u32>,
    pub(crate) looked: usize,
    pub(crate) done: bool,
    /// Connections of these frames, by the numbers under which they are followed.
    pub(crate) connections: BTreeSet<u32>,
    /// Frames that had been found when the views were last made for them.
    pub(crate) chosen: usize,
}

impl Filter {
    /// True if one of these frames passes, counted from 1.
    pub(crate) fn has_frame(&self, number: u64) -> bool {
        u32::try_from(number)
            .ok()
            .and_then(|n| n.checked_sub(1))
            .is_some_and(|place| self.found.binary_search(&place).is_ok())
    }

    pub(crate) fn is_on(&self) -> bool {
        !self.text.is_empty()
    }
}

/// Sort order of the frame list.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sorting {
    pub(crate) by: By,
    /// True if the greatest is first.
    pub(crate) down: bool,
    pub(crate) generation: u64,
    /// True if the order was requested.
    pub(crate) asked: bool,
    /// Frames whose keys were read.
    pub(crate) looked: usize,
    pub(crate) sorted: Option<Sorted>,
}

impl Sorting {
    pub(crate) fn is_on(&self) -> bool {
        self.by != By::Number || self.down
    }

    /// True if it is wished and not there yet.
    pub(crate) fn is_under_way(&self) -> bool {
        self.is_on() && self.sorted.is_none()
    }

    /// The frames are others now.
    pub(crate) fn outdated(&mut self) {
        *self = Self { by: self.by, down: self.down, generation: self.generation + 1, ..Self::default() };
    }
}

/// A connection to which all is narrowed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Followed {
    /// The numbers under which it is followed by the analysis.
    pub(crate) ids: Vec<u32>,
}

/// A line that reports an action or an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) text: String,
    pub(crate) is_error: bool,
}

/// The loaded data and the state of the display.
#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) title: String,
    pub(crate) keys: Keys,
    pub(crate) theme: Theme,
    pub(crate) registry: Arc<Registry>,
    pub(crate) size: (u16, u16),
    // the loaded data
    pub(crate) index: Index,
    pub(crate) report: Arc<Digest>,
    pub(crate) exchanges: Exchanges,
    pub(crate) exchanges_dropped: u64,
    pub(crate) credits_log: CreditsLog,
    pub(crate) progress: Progress,
    pub(crate) done: bool,
    /// True if nothing was read: everything came from the index of an earlier time.
    pub(crate) is_kept: bool,
    pub(crate) grows: bool,
    /// True if frames come from interfaces.
    pub(crate) is_live: bool,
    /// True if a live capture is paused.
    pub(crate) is_paused: bool,
    pub(crate) error: Option<String>,
    /// State of a live capture.
    pub(crate) live: Option<LiveFacts>,
    /// Changes of RDMA device counters, if the file has them.
    pub(crate) hardware: Vec<Counted>,
    /// Findings that are shown.
    pub(crate) found: Joined,
    /// Sums over the connections that are shown.
    pub(crate) sums: Arc<Sums>,
    /// Places in the report of the connections that are shown; `None` for all.
    pub(crate) chosen: Option<Vec<usize>>,
    /// Of the requests that a filter passes, the slowest.
    pub(crate) slowest: Vec<Exchange>,
    // the selection that is shown
    pub(crate) view: View,
    pub(crate) filter: Filter,
    pub(crate) followed: Option<Followed>,
    /// The frames that are shown, by place; `None` for all.
    pub(crate) shown: Option<Vec<u32>>,
    /// Number of frames checked for `shown`.
    pub(crate) scanned: usize,
    pub(crate) sorting: Sorting,
    /// The connection of the row from which the user came to the credit plot or the sequence, by the number under which
    /// it is followed.
    pub(crate) about: Option<u32>,
    /// A long task: its name, the number of steps done, and of all steps.
    pub(crate) working: Option<(&'static str, usize, usize)>,
    pub(crate) marks: BTreeSet<u32>,
    pub(crate) time: time::Format,
    pub(crate) columns: Vec<Def>,
    pub(crate) texts: HashMap<u64, Text>,
    pub(crate) detail: Option<Box<Detail>>,
    pub(crate) search: String,
    pub(crate) note: Option<Note>,
    pub(crate) history: Vec<String>,
    /// Captures opened before, the last one last.
    pub(crate) recent: Vec<String>,
    /// True if the view stays at the end of a growing file.
    pub(crate) tailing: bool,
}

impl Model {
    pub(crate) fn new(title: String, keys: Keys, theme: theme::Name) -> Self {
        Self {
            title,
            keys,
            theme: Theme::new(theme, Depth::Sixteen),
            registry: Arc::new(rdmascope_report::fields::registry()),
            size: (80, 24),
            index: Index::default(),
            report: Arc::default(),
            exchanges: Exchanges::default(),
            exchanges_dropped: 0,
            credits_log: CreditsLog::default(),
            progress: Progress::default(),
            done: false,
            is_kept: false,
            grows: false,
            is_live: false,
            is_paused: false,
            error: None,
            live: None,
            hardware: Vec::new(),
            found: Joined::default(),
            sums: Arc::default(),
            chosen: None,
            slowest: Vec::new(),
            view: View::Overview,
            filter: Filter::default(),
            followed: None,
            shown: None,
            scanned: 0,
            sorting: Sorting::default(),
            about: None,
            working: None,
            marks: BTreeSet::new(),
            time: time::Format::default(),
            columns: Vec::new(),
            texts: HashMap::new(),
            detail: None,
            search: String::new(),
            note: None,
            history: Vec::new(),
            recent: Vec::new(),
            tailing: false,
        }
    }

    /// Area of a view: the screen without title, tabs and bottom line.
    pub(crate) fn body(&self) -> Rect {
        let (width, height) = self.size;
        Rect { x: 0, y: 2, width, height: height.saturating_sub(3) }
    }

    /// Rows of the frame list.
    pub(crate) fn row_count(&self) -> usize {
        self.shown.as_ref().map_or(self.index.len(), Vec::len)
    }

    /// The place of the frame in a row.
    pub(crate) fn frame_at(&self, row: usize) -> Option<usize> {
        // frames that came after the sorting are placed behind
        let sorted = self.sorting.sorted.as_ref().and_then(|s| s.at(row, self.sorting.down));
        match (sorted, &self.shown) {
            (Some(place), _) => Some(place as usize),
            (None, Some(shown)) => shown.get(row).map(|i| *i as usize),
            (None, None) => (row < self.index.len()).then_some(row),
        }
    }

    /// The row that has a frame, or, in the order of the capture, the next one that there is.
    pub(crate) fn row_of(&self, place: usize) -> usize {
        let row = match &self.shown {
            Some(shown) => shown.partition_point(|i| (*i as usize) < place).min(shown.len().saturating_sub(1)),
            None => place.min(self.index.len().saturating_sub(1)),
        };
        match &self.sorting.sorted {
            Some(sorted) if row < sorted.len() => sorted.row_of(place as u32, self.sorting.down).unwrap_or(0),
            _ => row,
        }
    }

    /// The frames of the list in the order of the capture.
    pub(crate) fn frames_shown(&self) -> Which {
        match &self.shown {
            Some(shown) => Which::These(shown.clone()),
            None => Which::Range(0..self.index.len() as u32),
        }
    }

    /// The time of the first frame.
    pub(crate) fn first_time(&self) -> i64 {
        self.index.at(0).map_or(0, |e| e.time)
    }

    pub(crate) fn say(&mut self, text: impl Into<String>) {
        self.note = Some(Note { text: text.into(), is_error: false });
    }

    pub(crate) fn complain(&mut self, text: impl Into<String>) {
        self.note = Some(Note { text: text.into(), is_error: true });
    }

    /// A connection by the number under which it is followed.
    pub(crate) fn connection(&self, followed_as: u32) -> Option<&Connection> {
        self.report.connections.get(self.report.place(followed_as)?)
    }

    /// The end of a connection that is shown as the client.
    pub(crate) fn client_end(&self, followed_as: u32) -> End {
        let Some(connection) = self.connection(followed_as) else { return End::A };
        let client = connection.client_end.unwrap_or(End::A);
        // a connection first followed as a separate half counted its ends from itself
        if connection.followed_as.first() == Some(&followed_as) { client } else { client.peer() }
    }

    /// The connection that credit plot and sequence show: the followed one, else that of the row from which the user
    /// came, else the busiest.
    pub(crate) fn subject(&self) -> Option<&Connection> {
        if let Some(followed) = &self.followed {
            return followed.ids.iter().find_map(|id| self.connection(*id));
        }
        let chosen = self.about.and_then(|id| self.connection(id));
        let busiest =
            self.report.busiest().filter(|busiest| self.chosen.as_ref().is_none_or(|places| places.contains(busiest)));
        let place = busiest
            .or_else(|| self.chosen.as_ref().and_then(|places| places.first().copied()))
            .or(self.report.busiest());
        chosen.or_else(|| self.report.connections.get(place?))
    }

    /// True if items of this connection are shown.
    pub(crate) fn concerns(&self, followed_as: u32) -> bool {
        self.followed.as_ref().is_none_or(|f| f.ids.contains(&followed_as))
    }

    /// Connections that are shown.
    pub(crate) fn connections(&self) -> impl Iterator<Item = &Connection> {
        let all = if self.chosen.is_none() { self.report.connections.as_slice() } else { &[] };
        all.iter().chain(self.chosen.iter().flatten().filter_map(|i| self.report.connections.get(*i)))
    }

    /// Number of connections that are shown.
    pub(crate) fn connection_count(&self) -> usize {
        self.chosen.as_ref().map_or(self.report.connections.len(), Vec::len)
    }

    /// One of these.
    pub(crate) fn connection_at(&self, row: usize) -> Option<&Connection> {
        let place = self.chosen.as_ref().map_or(Some(row), |places| places.get(row).copied());
        self.report.connections.get(place?)
    }

    /// True if connections are all shown.
    pub(crate) fn shows_all_connections(&self) -> bool {
        self.chosen.is_none()
    }

    /// True if there are frames that were not looked at yet for the list of shown ones.
    pub(crate) fn is_scanning(&self) -> bool {
        self.shown.is_some()
            && self.scanned < if self.filter.is_on() { self.filter.found.len() } else { self.index.len() }
    }

    /// True if the filter looked at all frames.
    pub(crate) fn filter_is_done(&self) -> bool {
        !self.filter.is_on() || self.filter.done
    }
}
