//! Definition of a view: a file whose `State` is a [`Screen`], and a row of [`views!`](super::views). The application
//! routes keys, clicks and exports to the view that is shown. A view reads the [`Model`] and changes only its own
//! state; for anything else it returns a [`Request`].
//!
//! ```text
//!   key, click ─▶ act, click ─▶ state of the view, requests ─▶ application ─▶ model
//!   model, read only ─────────▶ draw, row, export
//! ```

use super::digest::Found;
use super::draw::{Column, Cursor};
use super::keys::Action;
use super::model::Model;
use super::order::{Order, Rows};
use super::sort::By;
use ratatui::buffer::Buffer;
use rdmascope_analyzer::exchange::Exchange;

/// A request of a view to the application.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Request {
    /// To show a frame, by its number from 1, in the frame list.
    GoToFrame(u64),
    /// To narrow everything to a connection, by the number under which it is followed, or to widen it again.
    Follow(Option<u32>),
    /// To set the filter.
    FilterBy(String),
    /// To sort the frame list by a key; whether the greatest is first.
    SortFrames(By, bool),
    /// To stay at the end of the frame list while it grows, or not to.
    StayAtEnd(bool),
    /// To report an action.
    Say(String),
    /// To report an error.
    Complain(String),
}

/// The part of the selection that is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Value,
    Row,
    Bytes,
    Filter,
}

/// A table of requests, or of their parts.
pub(crate) struct Table<'a> {
    pub(crate) order: &'a mut Order,
    pub(crate) cursor: &'a mut Cursor,
    /// Description of its rows and their comparison.
    pub(crate) rows: &'static Rows,
    /// From this column on, sorting begins with the greatest values: long durations are of more interest.
    pub(crate) greatest_first_from: usize,
}

/// A view, with its state.
pub(crate) trait Screen {
    /// Keys of its own that the last line names, with a word for each.
    fn hints(&self) -> &'static [(Action, &'static str)];

    /// Rebuilds its lists if they are out of date.
    fn prepare(&mut self, _model: &Model) {}

    /// True if there is more that it has not looked at yet: [`Screen::prepare`] is called again.
    fn is_behind(&self, _model: &Model) -> bool {
        false
    }

    /// Draws it into [`Model::body`].
    fn draw(&self, model: &Model, buf: &mut Buffer);

    /// Carries out an action whose meaning depends on the view.
    fn act(&mut self, model: &Model, action: Action) -> Vec<Request>;

    /// A click into it.
    fn click(&mut self, _model: &Model, _x: u16, _y: u16) -> Vec<Request> {
        Vec::new()
    }

    /// The number (from 1) of the frame that the selected row is about.
    fn selected_frame(&self, _model: &Model) -> Option<u64> {
        None
    }

    /// The connection that the selected row is about, by the number under which it is followed.
    fn selected_connection(&self, model: &Model) -> Option<u32> {
        let place = usize::try_from(self.selected_frame(model)?).ok()?.checked_sub(1)?;
        model.index.at(place).map(|e| e.connection).filter(|c| *c != 0)
    }

    /// The request that the selected row is about.
    fn selected_exchange(&self, model: &Model) -> Option<Exchange> {
        let place = usize::try_from(self.selected_frame(model)?).ok()?.checked_sub(1)?;
        let id = u64::from(model.index.at(place)?.exchange);
        model.exchanges.iter().find(|(_, e)| id != 0 && e.id == id).map(|(_, e)| e.clone())
    }

    /// The finding that the selected row is about.
    fn selected_finding(&self, model: &Model) -> Option<Found> {
        self.selected_frame(model).and_then(|n| model.found.iter().find(|f| f.frames.contains(&n))).cloned()
    }

    /// True if the user selected something in it: the initial position in a list does not count.
    fn is_chosen(&self) -> bool {
        false
    }

    /// True if the selection is one frame, and not a connection as a whole.
    fn is_at_a_frame(&self) -> bool {
        true
    }

    /// True if its rows are the frames of the capture: search, sorting and saving are about frames then, and a worker
    /// makes their lines.
    fn lists_frames(&self) -> bool {
        false
    }

    /// True if a filter chooses what it shows. From another one, setting a filter leads to the frames.
    fn is_filtered(&self) -> bool {
        true
    }

    /// What its tab tells beside its name.
    fn badge(&self, _model: &Model) -> String {
        String::new()
    }

    /// The frame (its place) of which every field is shown.
    fn detailed(&self, _model: &Model) -> Option<usize> {
        None
    }

    /// The selected row was marked, or is no longer.
    fn marked(&mut self, _model: &Model) {}

    /// Frames (places) whose lines it shows.
    fn frames_shown(&self, _model: &Model) -> Vec<usize> {
        Vec::new()
    }

    /// The columns of its [`Screen::table`].
    fn columns(&self) -> &'static [Column] {
        &[]
    }

    /// Names of the columns by which it can be sorted.
    fn sorts(&self, _model: &Model) -> Vec<String> {
        self.columns().iter().map(|column| column.title.to_owned()).collect()
    }

    /// Sorts by a column; if the rows are already sorted by it, reverses the order.
    fn sort_by(&mut self, model: &Model, column: usize) -> Vec<Request> {
        let (page, head) = (self.page(model), self.columns().get(column));
        let (Some(table), Some(head)) = (self.table(), head) else { return Vec::new() };
        let down = if table.order.by == column { !table.order.down } else { column >= table.greatest_first_from };
        vec![Request::Say(table.order.sort_table(table.cursor, page, column, down, head.title))]
    }

    /// Sorts by the next column, or the other way round by the same.
    fn sort_on(&mut self, model: &Model, action: Action) -> Vec<Request> {
        let count = self.columns().len().max(1);
        let by = self.table().map_or(0, |table| table.order.by);
        self.sort_by(model, if action == Action::Sort { (by + 1) % count } else { by })
    }

    /// The place in its list, for a search.
    fn cursor(&mut self) -> Option<&mut Cursor> {
        None
    }

    /// Rows of its list.
    fn len(&self, _model: &Model) -> usize {
        0
    }

    /// One of them, as text.
    fn row(&self, _model: &Model, _at: usize) -> Vec<String> {
        Vec::new()
    }

    /// The selected row, as text.
    fn selected_row(&mut self, model: &Model) -> Option<Vec<String>> {
        let at = self.cursor()?.at;
        Some(self.row(model, at)).filter(|row| !row.is_empty())
    }

    /// A part of the selection, as text. `None` if there is nothing of that kind.
    fn copied(&mut self, model: &Model, part: Part) -> Option<String> {
        match part {
            Part::Row => self.selected_row(model).map(|row| row.join("\t")),
            Part::Filter => self.selected_frame(model).map(|n| format!("frame.number == {n}")),
            Part::Value | Part::Bytes => None,
        }
    }

    /// Called when the shown data changed: results derived from it are out of date.
    fn changed(&mut self, change: Change) {
        let Some(table) = self.table() else { return };
        match change {
            Change::Sums => {}
            Change::Narrowed => table.order.outdated(),
            Change::Restarted => *table.cursor = Cursor::default(),
        }
    }

    /// `Esc`: closes what is open in the view. `None` if nothing is.
    fn back(&mut self, _model: &Model) -> Option<Vec<Request>> {
        None
    }

    /// The pointer is here and the wheel is about to turn.
    fn point(&mut self, _model: &Model, _x: u16, _y: u16) {}

    /// True if it is about the connection and the frame that were selected in the view before.
    fn is_about_a_selection(&self) -> bool {
        false
    }

    /// It is turned to from a frame (its place and time in ns) of the connection that it is about.
    fn look_at(&mut self, _place: usize, _time: i64) {}

    /// Its rows and their order, if it is a table of requests or of their parts.
    fn table(&mut self) -> Option<Table<'_>> {
        None
    }

    /// Rows of its list that are on the screen.
    fn page(&self, _model: &Model) -> usize {
        1
    }

    /// Everything that is saved of it: heads, then rows. Of frames the worker makes the lines.
    fn export(&self, model: &Model) -> Vec<Vec<String>>;
}

/// A change of the data that the views show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Sums, findings, the size of the screen or its colours.
    Sums,
    /// The frames that are shown: another filter, another connection followed.
    Narrowed,
    /// Everything: the capture was restarted.
    Restarted,
}

/// Heads, and every row of a list.
pub(crate) fn listed(screen: &dyn Screen, model: &Model, heads: &[&str]) -> Vec<Vec<String>> {
    let heads = heads.iter().map(|h| (*h).to_owned()).collect();
    std::iter::once(heads)
        .chain((0..screen.len(model)).map(|at| screen.row(model, at)).filter(|row| !row.is_empty()))
        .collect()
}
