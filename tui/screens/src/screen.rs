//! What a view is: a file with a [`Screen`], and a row of [`views!`]. [`App`] routes keys, clicks and what is saved to the one that is shown;
//! nothing else asks which view it is.
//!
//! ```text
//!   key, click ─▶ App ─▶ act, click ─▶ state of the view, effects
//!   App, read only ────▶ draw, row, export
//! ```

use super::app::{App, Cursor, Effect, Found};
use super::keys::Action;
use super::order::Order;
use super::views::{View, views};
use ratatui::buffer::Buffer;
use rdmascope_analyzer::exchange::Exchange;

/// A view. What it shows is in [`App`]; drawing only reads.
pub(crate) trait Screen: Sync {
    /// Keys of its own that the last line names, with a word for each.
    fn hints(&self) -> &'static [(Action, &'static str)];

    /// Makes its lists anew where they are out of date.
    fn prepare(&self, _app: &mut App) {}

    /// Whether there is more that it has not looked at yet: [`Screen::prepare`] is called again.
    fn is_behind(&self, _app: &App) -> bool {
        false
    }

    /// Draws it into [`App::body`].
    fn draw(&self, app: &App, buf: &mut Buffer);

    /// Does what an action that is not everywhere the same means here.
    fn act(&self, app: &mut App, action: Action) -> Vec<Effect>;

    /// A click into it.
    fn click(&self, _app: &mut App, _x: u16, _y: u16) -> Vec<Effect> {
        Vec::new()
    }

    /// The number (from 1) of the frame that the selected row is about.
    fn selected_frame(&self, _app: &App) -> Option<u64> {
        None
    }

    /// The connection that the selected row is about, by the number under which it is followed.
    fn selected_connection(&self, app: &App) -> Option<u32> {
        let place = usize::try_from(self.selected_frame(app)?).ok()?.checked_sub(1)?;
        app.index.at(place).map(|e| e.connection).filter(|c| *c != 0)
    }

    /// The request that the selected row is about.
    fn selected_exchange(&self, app: &App) -> Option<Exchange> {
        let place = usize::try_from(self.selected_frame(app)?).ok()?.checked_sub(1)?;
        let id = u64::from(app.index.at(place)?.exchange);
        app.exchanges.iter().find(|(_, e)| id != 0 && e.id == id).map(|(_, e)| e.clone())
    }

    /// The finding that the selected row is about.
    fn selected_finding(&self, app: &App) -> Option<Found> {
        self.selected_frame(app).and_then(|n| app.found.iter().find(|f| f.frames.contains(&n))).cloned()
    }

    /// Whether the user selected something in it: a list that nobody moved in says nothing.
    fn is_chosen(&self, _app: &App) -> bool {
        false
    }

    /// Whether what is selected is at one frame, and not a connection as a whole.
    fn is_at_a_frame(&self, _app: &App) -> bool {
        true
    }

    /// Frames (places) whose lines it shows.
    fn frames_shown(&self, _app: &App) -> Vec<usize> {
        Vec::new()
    }

    /// Names of the columns by which it can be sorted.
    fn sorts(&self, _app: &App) -> Vec<String> {
        Vec::new()
    }

    /// Sorts by one of them: the other way round where it is sorted by it already.
    fn sort_by(&self, _app: &mut App, _column: usize) -> Vec<Effect> {
        Vec::new()
    }

    /// The place in its list, for a search.
    fn cursor<'a>(&self, _app: &'a mut App) -> Option<&'a mut Cursor> {
        None
    }

    /// Rows of its list.
    fn len(&self, _app: &App) -> usize {
        0
    }

    /// One of them, as text.
    fn row(&self, _app: &App, _at: usize) -> Vec<String> {
        Vec::new()
    }

    /// The selected row, as text.
    fn selected_row(&self, app: &mut App) -> Option<Vec<String>> {
        let at = self.cursor(app)?.at;
        Some(self.row(app, at)).filter(|row| !row.is_empty())
    }

    /// What it shows changed: what it made of it before is out of date.
    fn changed(&self, _app: &mut App, _change: Change) {}

    /// `Esc`: closes what is open in it, where something is.
    fn back(&self, _app: &mut App) -> Option<Vec<Effect>> {
        None
    }

    /// The pointer is here and the wheel is about to turn.
    fn point(&self, _app: &mut App, _x: u16, _y: u16) {}

    /// Whether it is about the connection and the frame that were selected in the view before.
    fn is_about_a_selection(&self) -> bool {
        false
    }

    /// It is turned to from a frame (its place and time in ns) of the connection that it is about.
    fn look_at(&self, _app: &mut App, _place: usize, _time: i64) {}

    /// The order of its rows and the place in them, where it is a table of requests or of what belongs to them.
    fn table<'a>(&self, _app: &'a mut App) -> Option<(&'a mut Order, &'a mut Cursor)> {
        None
    }

    /// Rows of its list that are on the screen.
    fn page(&self, _app: &App) -> usize {
        1
    }

    /// Everything that is saved of it: heads, then rows. Of frames the worker makes the lines.
    fn export(&self, app: &App) -> Vec<Vec<String>>;
}

/// What changed of what the views show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Sums, findings, the size of the screen or its colours.
    Sums,
    /// The frames that are shown: another filter, another connection followed.
    Narrowed,
    /// Everything: the capture began anew.
    Restarted,
}

macro_rules! screens {
    ($($view:ident $file:ident $name:literal $short:literal $key:literal $help:literal;)+) => {
        /// What each view has of its own: where the user is in it, how it is sorted, what it made ready for the screen.
        #[derive(Debug, Default)]
        pub(crate) struct States {
            $(pub(crate) $file: super::$file::State,)+
        }

        impl View {
            pub(crate) fn screen(self) -> &'static dyn Screen {
                match self {
                    $(Self::$view => &super::$file::$view,)+
                }
            }
        }
    };
}

views!(screens);

/// Heads, and every row of a list.
pub(crate) fn listed(screen: &dyn Screen, app: &App, heads: &[&str]) -> Vec<Vec<String>> {
    let heads = heads.iter().map(|h| (*h).to_owned()).collect();
    std::iter::once(heads).chain((0..screen.len(app)).map(|at| screen.row(app, at)).filter(|row| !row.is_empty())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::bindings;

    #[test]
    fn each_view_has_a_key_hints_and_names_of_its_own() {
        for (i, view) in View::ALL.iter().enumerate() {
            assert_eq!(bindings().filter(|b| b.action == Action::View(*view)).count(), 1, "{view:?}");
            assert!(!view.screen().hints().is_empty() && view.short_name().len() <= view.name().len(), "{view:?}");
            assert!(View::ALL[..i].iter().all(|v| v.name() != view.name() && v.short_name() != view.short_name()), "{view:?}");
            assert_eq!(view.step(1).step(View::ALL.len() - 1), *view);
        }
    }
}
