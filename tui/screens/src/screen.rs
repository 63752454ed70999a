//! What a view is: a file with a [`Screen`], and a row of [`screens!`]. [`App`] routes keys, clicks and what is saved to the one that is shown;
//! nothing else asks which view it is.
//!
//! ```text
//!   key, click ─▶ App ─▶ act, click ─▶ state of the view, effects
//!   App, read only ────▶ draw, row, export
//! ```

use super::app::{App, Cursor, Effect, Found};
use super::keys::Action;
use super::{credits, findings, frames, io, memory, overview, sequence, statistics};
use ratatui::buffer::Buffer;
use rdmascope_analyzer::exchange::Exchange;

/// A view. What it shows is in [`App`]; drawing only reads.
pub(crate) trait Screen: Sync {
    /// Keys of its own that the last line names, with a word for each.
    fn hints(&self) -> &'static [(Action, &'static str)];

    /// Makes its lists anew where they are out of date.
    fn prepare(&self, _app: &mut App) {}

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

    /// Everything that is saved of it: heads, then rows. Of frames the worker makes the lines.
    fn export(&self, app: &App) -> Vec<Vec<String>>;
}

/// The views: each a row.
macro_rules! screens {
    ($($view:ident $name:literal $short:literal $screen:expr;)+) => {
        /// The views, in the order of their keys.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub(crate) enum View {
            #[default]
            $($view,)+
        }

        impl View {
            pub(crate) const ALL: &[Self] = &[$(Self::$view),+];

            pub(crate) const fn name(self) -> &'static str {
                match self {
                    $(Self::$view => $name,)+
                }
            }

            /// Where there is little room.
            pub(crate) const fn short_name(self) -> &'static str {
                match self {
                    $(Self::$view => $short,)+
                }
            }

            pub(crate) fn screen(self) -> &'static dyn Screen {
                match self {
                    $(Self::$view => &$screen,)+
                }
            }
        }
    };
}

screens! {
    Overview "Overview" "Over" overview::Overview;
    Frames "Frames" "Frames" frames::Frames;
    Io "I/O" "I/O" io::Io;
    Credits "Credits" "Credits" credits::Credits;
    Sequence "Sequence" "Seq" sequence::Sequence;
    Memory "Memory" "Mem" memory::Memory;
    Findings "Findings" "Find" findings::Findings;
    Statistics "Statistics" "Stats" statistics::Statistics;
}

impl View {
    /// The view so many steps on, around.
    pub(crate) fn step(self, by: usize) -> Self {
        Self::ALL[(self as usize + by) % Self::ALL.len()]
    }
}

/// Heads, and every row of a list.
pub(crate) fn listed(screen: &dyn Screen, app: &App, heads: &[&str]) -> Vec<Vec<String>> {
    let heads = heads.iter().map(|h| (*h).to_owned()).collect();
    std::iter::once(heads).chain((0..screen.len(app)).map(|at| screen.row(app, at)).filter(|row| !row.is_empty())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::TABLE;

    #[test]
    fn each_view_has_a_key_hints_and_names_of_its_own() {
        for (i, view) in View::ALL.iter().enumerate() {
            assert_eq!(TABLE.iter().filter(|b| b.action == Action::View(*view)).count(), 1, "{view:?}");
            assert!(!view.screen().hints().is_empty() && view.short_name().len() <= view.name().len(), "{view:?}");
            assert!(View::ALL[..i].iter().all(|v| v.name() != view.name() && v.short_name() != view.short_name()), "{view:?}");
            assert_eq!(view.step(1).step(View::ALL.len() - 1), *view);
        }
    }
}
