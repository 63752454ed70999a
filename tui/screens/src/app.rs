//! What the screen is about, and how it changes: [`update`] takes a message and says what is to be done in the world. It does no I/O,
//! knows no clock, and the screen is made from [`App`] alone ([`super::view`]).

mod narrow;
mod nothing_lost;

use super::config::Keep;
use super::credits_log::CreditsLog;
use super::digest::{Digest, Joined};
use super::exchanges::Exchanges;
use super::index::Index;
use super::keys::{Action, Keys};
use super::loader::{Counted, LiveFacts, News};
use super::replay::{Detail, Text, Which};
use super::screen::{Change, States};
use super::sort::{By, Sorted};
use super::statistics::Sums;
use super::theme::{self, Depth, Theme};
use super::views::View;
use super::{frames, io, order, prompt, sequence, time};
use ratatui::crossterm::event::{KeyEvent, KeyEventKind, MouseButton, MouseEvent, MouseEventKind};
use ratatui::layout::Rect;
use rdmascope_analyzer::exchange::Exchange;
use rdmascope_analyzer::finding::Finding;
use rdmascope_analyzer::op::End;
use rdmascope_analyzer::report::Connection;
use rdmascope_analyzer::rules::Rule;
use rdmascope_capture::Progress;
use rdmascope_dissector::field::Def;
use rdmascope_dissector::registry::Registry;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

/// The smallest screen.
pub(crate) const SMALLEST: (u16, u16) = (60, 18);
/// Lines of frames kept at most; more than any screen shows.
const TEXTS_MAX: usize = 4_000;
/// Frames of a request that are shown to explain its time.
const WHY_MAX: usize = 5_000;
/// Slowest requests that pass a filter.
const SLOWEST_MAX: usize = 20;
/// Frames looked at in one step while narrowing to a connection.
pub(crate) const SCAN_STEP: usize = 150_000;

/// What happened.
#[derive(Debug)]
pub(crate) enum Msg {
    Key(KeyEvent),
    Mouse(MouseEvent),
    Paste(String),
    Resize(u16, u16),
    News(Box<News>),
    /// Lines of frames, for the columns of this generation.
    Texts(u64, Vec<Text>),
    Detail(Box<Detail>),
    /// Frames that a filter of this generation passes, and how many were looked at; whether that was all.
    Found {
        generation: u64,
        frames: Vec<u32>,
        looked: usize,
        done: bool,
    },
    /// Rows of I/O or memory, made from so many exchanges.
    Ordered {
        table: View,
        generation: u64,
        version: usize,
        rows: Vec<order::Row>,
    },
    /// Keys of so many frames were read.
    Sorting {
        generation: u64,
        looked: usize,
    },
    Sorted {
        generation: u64,
        sorted: Sorted,
    },
    /// The frame (place) that was searched for, and whether it lies on the other side of where the search began.
    Hit(Option<(u32, bool)>),
    /// A long work has done so many of all.
    Working(&'static str, usize, usize),
    /// Something was saved, or not.
    Done(Result<String, String>),
    /// Something stands where this is to be written.
    Exists(Box<Write>),
    /// Go on with what takes several steps.
    Continue,
    Quit,
    Suspend,
    Redraw,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Effect {
    Quit,
    Suspend,
    Redraw,
    /// There is more to do, after what else came: [`Msg::Continue`].
    Continue,
    /// To the clipboard of the terminal.
    Copy(String),
    /// Lines of frames, by place, with these columns.
    Texts {
        generation: u64,
        frames: Vec<usize>,
        columns: Vec<Def>,
    },
    Detail(usize),
    Filter {
        generation: u64,
        text: String,
    },
    /// The rows of I/O or memory in ascending order of a column, of all connections or of some.
    Order {
        table: View,
        generation: u64,
        by: usize,
        followed: Option<Vec<u32>>,
        /// Only what has one of these frames (places, ascending), where there is a filter.
        passing: Option<Vec<u32>>,
        /// Of what is there: to be told with the answer.
        version: usize,
    },
    /// These frames (ascending) by a key.
    Sort {
        generation: u64,
        by: By,
        frames: Which,
    },
    /// Sorting of an older generation than this is to end.
    EndSort(u64),
    /// The first of these frames (or the last, where not `forward`) that has this; where none has, of the frames on the other side of
    /// the row from which the search began.
    Find {
        text: String,
        frames: [Which; 2],
        forward: bool,
    },
    /// A file is to be written.
    Write(Write),
    /// All is to be read again: with the keys in this file, or of another capture.
    Reopen(Reopen),
    /// A live capture is to let frames pass, or to go on.
    Pause(bool),
    /// A live capture is to begin anew.
    Restart,
    /// Reading may go on up to so many frames; with 0 it ends.
    ReadUpTo(u64),
    /// Saving, exporting, searching is to end.
    GiveUp,
    /// Something is to be remembered for the next time.
    Keep(Keep),
}

/// What is to be read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reopen {
    /// The same with these keys, in place of those given before.
    WithKeys(PathBuf),
    /// Another capture.
    Capture(PathBuf),
}

/// A file to be written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Write {
    pub(crate) path: PathBuf,
    pub(crate) what: Output,
    /// Whether what stands there may go.
    pub(crate) replace: bool,
}

/// What is written into a file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Output {
    /// Frames, as pcapng.
    Frames(Which),
    /// The lines of frames, with these columns.
    Lines(Which, Vec<Def>),
    /// A table: heads, then rows.
    Table(Vec<Vec<String>>),
}

/// A place in a list, and the first row that is on the screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cursor {
    pub(crate) at: usize,
    pub(crate) top: usize,
}

impl Cursor {
    /// Moves within `len` rows of which `page` are shown.
    pub(crate) fn moved(&mut self, action: Action, len: usize, page: usize) {
        let last = len.saturating_sub(1);
        let leap = page.saturating_sub(1).max(1);
        self.at = match action {
            Action::Up => self.at.saturating_sub(1),
            Action::Down => self.at + 1,
            Action::PageUp => self.at.saturating_sub(leap),
            Action::PageDown => self.at + leap,
            Action::First => 0,
            Action::Last => last,
            _ => self.at,
        }
        .min(last);
        self.show(len, page);
    }

    /// Brings the row to the screen.
    pub(crate) fn show(&mut self, len: usize, page: usize) {
        let page = page.max(1);
        self.at = self.at.min(len.saturating_sub(1));
        if self.at < self.top {
            self.top = self.at;
        } else if self.at >= self.top + page {
            self.top = self.at + 1 - page;
        }
        self.top = self.top.min(len.saturating_sub(page));
    }

    /// Goes somewhere far, and shows what is around it.
    pub(crate) fn jump(&mut self, to: usize, len: usize, page: usize) {
        self.at = to.min(len.saturating_sub(1));
        if self.at < self.top || self.at >= self.top + page.max(1) {
            self.top = self.at.saturating_sub(page / 2);
        }
        self.show(len, page);
    }
}

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
    connections: BTreeSet<u32>,
    /// Frames that had been found when the views were last made for them.
    chosen: usize,
}

impl Filter {
    /// Whether one of these frames passes, counted from 1.
    pub(crate) fn has_frame(&self, number: u64) -> bool {
        u32::try_from(number).ok().and_then(|n| n.checked_sub(1)).is_some_and(|place| self.found.binary_search(&place).is_ok())
    }

    pub(crate) fn is_on(&self) -> bool {
        !self.text.is_empty()
    }
}

/// A finding, with those of the same rule and side on other connections.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(super) first: Finding,
    /// What became of the connections that failed because of it, as a sentence.
    pub(crate) title: Option<String>,
    /// What followed from it: rule and how often.
    pub(crate) effects: Vec<(Rule, u64)>,
    /// On all of them.
    pub(crate) count: u64,
    /// The first frames, ascending.
    pub(crate) frames: Vec<u64>,
    pub(crate) connections: Vec<u32>,
}

impl std::ops::Deref for Found {
    type Target = Finding;

    fn deref(&self) -> &Finding {
        &self.first
    }
}

/// By what the frame list is sorted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sorting {
    pub(crate) by: By,
    /// Whether the greatest is first.
    pub(crate) down: bool,
    pub(crate) generation: u64,
    /// Whether it was asked for.
    asked: bool,
    /// Frames whose keys were read.
    pub(crate) looked: usize,
    pub(crate) sorted: Option<Sorted>,
}

impl Sorting {
    pub(crate) fn is_on(&self) -> bool {
        self.by != By::Number || self.down
    }

    /// Whether it is wished and not there yet.
    pub(crate) fn is_under_way(&self) -> bool {
        self.is_on() && self.sorted.is_none()
    }

    /// The frames are others now.
    fn outdated(&mut self) {
        *self = Self { by: self.by, down: self.down, generation: self.generation + 1, ..Self::default() };
    }
}

/// A connection to which all is narrowed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Followed {
    /// The numbers under which it is followed by the analysis.
    pub(crate) ids: Vec<u32>,
}

/// A line that tells what was done or what is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) text: String,
    pub(crate) is_error: bool,
}

/// What lies over the view.
#[derive(Clone, Debug)]
pub(crate) enum Popup {
    Help(usize),
    /// Title, lines, first line shown.
    Text(String, Vec<String>, usize),
    Prompt(Box<prompt::Prompt>),
    /// What to copy.
    Copy,
    /// Names of columns to sort by.
    SortBy(Vec<String>),
    Question(Box<Question>),
}

/// A question, which only an answer to it (or `Esc`) ends.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    pub(crate) title: &'static str,
    pub(crate) lines: Vec<String>,
    pub(crate) answers: Vec<(char, &'static str, Answer)>,
}

/// What an answer does.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Do(Vec<Effect>),
    /// Asks for the name of a file for the frames.
    Save,
}

/// Everything.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) title: String,
    pub(crate) keys: Keys,
    pub(crate) theme: Theme,
    pub(crate) registry: Arc<Registry>,
    pub(crate) size: (u16, u16),
    // what was loaded
    pub(crate) index: Index,
    pub(crate) report: Arc<Digest>,
    pub(crate) exchanges: Exchanges,
    pub(crate) exchanges_dropped: u64,
    pub(crate) credits_log: CreditsLog,
    pub(crate) progress: Progress,
    pub(crate) done: bool,
    pub(crate) grows: bool,
    /// Whether frames come from interfaces.
    pub(crate) is_live: bool,
    /// Whether a live capture lets frames pass just now.
    pub(crate) is_paused: bool,
    /// Frames of a live capture that are in a file; and those that will be when the work at hand is done.
    saved: usize,
    saving: Option<usize>,
    pub(crate) error: Option<String>,
    /// What is to be said of a live capture.
    pub(crate) live: Option<LiveFacts>,
    /// What RDMA devices counted, where the file has it.
    pub(crate) hardware: Vec<Counted>,
    /// Findings that are shown.
    pub(crate) found: Joined,
    /// Sums over the connections that are shown.
    pub(crate) sums: Arc<Sums>,
    /// Places in the report of the connections that are shown; `None` for all.
    chosen: Option<Vec<usize>>,
    /// Of the requests that a filter passes, the slowest.
    pub(crate) slowest: Vec<Exchange>,
    // what is shown of it
    pub(crate) view: View,
    pub(crate) came_from: Vec<View>,
    pub(crate) filter: Filter,
    pub(crate) followed: Option<Followed>,
    /// The frames that are shown, by place; `None` for all.
    pub(crate) shown: Option<Vec<u32>>,
    /// Up to where frames were looked at for `shown`.
    pub(crate) scanned: usize,
    pub(crate) sorting: Sorting,
    /// The connection of the row from which one came to the credit plot or the sequence, by the number under which it is followed.
    pub(crate) about: Option<u32>,
    /// A long work: what it does, how much of how much is done.
    pub(crate) working: Option<(&'static str, usize, usize)>,
    pub(crate) marks: BTreeSet<u32>,
    pub(crate) time: time::Format,
    pub(crate) columns: Vec<Def>,
    pub(crate) texts: HashMap<u64, Text>,
    texts_generation: u64,
    texts_asked: Vec<usize>,
    pub(crate) detail: Option<Box<Detail>>,
    detail_asked: Option<usize>,
    pub(crate) search: String,
    pub(crate) popup: Option<Popup>,
    pub(crate) note: Option<Note>,
    pub(crate) history: Vec<String>,
    /// Captures opened before, the last one last.
    pub(crate) recent: Vec<String>,
    /// The file that is shown, where it is one that does not grow: its marks are kept.
    pub(crate) path: Option<PathBuf>,
    /// Keep at the end of a file that grows.
    pub(crate) tailing: bool,
    /// Whether [`Msg::Continue`] was asked for.
    continuing: bool,
    /// What each view has of its own.
    pub(crate) states: States,
}

impl App {
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
            grows: false,
            is_live: false,
            is_paused: false,
            saved: 0,
            saving: None,
            error: None,
            live: None,
            hardware: Vec::new(),
            found: Joined::default(),
            sums: Arc::default(),
            chosen: None,
            slowest: Vec::new(),
            view: View::Overview,
            came_from: Vec::new(),
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
            texts_generation: 0,
            texts_asked: Vec::new(),
            detail: None,
            detail_asked: None,
            search: String::new(),
            popup: None,
            note: None,
            history: Vec::new(),
            recent: Vec::new(),
            path: None,
            tailing: false,
            continuing: false,
            states: States::default(),
        }
    }

    // ── What views ask ──────────────────────────────────────────────────────────────────────────────────────────────

    /// Where a view draws: without title, tabs and the line at the bottom.
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
        // frames that came after the sorting stand behind
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

    /// Another view that the user chose: credit plot and sequence are about what was selected before.
    pub(crate) fn turn_to(&mut self, view: View) {
        let screen = self.view.screen();
        if view.screen().is_about_a_selection() && view != self.view && screen.is_chosen(self) {
            let frame = screen.selected_frame(self).filter(|_| screen.is_at_a_frame(self));
            if self.followed.is_none() {
                self.about = screen.selected_connection(self).filter(|id| self.connection(*id).is_some()).or(self.about);
            }
            let place = frame.and_then(|n| usize::try_from(n).ok()).and_then(|n| n.checked_sub(1));
            let entry = place.and_then(|i| self.index.at(i));
            if let (Some(place), Some(entry), Some(subject)) = (place, entry, self.subject())
                && subject.followed_as.contains(&entry.connection)
            {
                let time = entry.time;
                for view in View::ALL {
                    view.screen().look_at(self, place, time);
                }
            }
        }
        self.go(view);
    }

    // ── What views do ───────────────────────────────────────────────────────────────────────────────────────────────

    /// Another view; `Esc` comes back.
    pub(crate) fn go(&mut self, view: View) {
        if self.view != view {
            self.came_from.retain(|v| *v != view);
            self.came_from.push(self.view);
            self.view = view;
        }
    }

    /// Shows a frame (by its number) in the frame list; where a filter hides it, the filter goes.
    pub(crate) fn go_to_frame(&mut self, number: u64) -> Vec<Effect> {
        let Some(place) = usize::try_from(number).ok().and_then(|n| n.checked_sub(1)).filter(|p| *p < self.index.len()) else {
            let len = self.index.len();
            self.complain(format!("there is no frame {number}; they go from 1 to {}", time::grouped(len as u64)));
            return Vec::new();
        };
        let mut effects = Vec::new();
        if self.frame_at(self.row_of(place)) != Some(place) {
            effects = self.show_everything();
            self.say(format!("frame {number} was hidden; all frames are shown again"));
        }
        self.go(View::Frames);
        let (row, len, page) = (self.row_of(place), self.row_count(), frames::page(self));
        self.states.frames.list.jump(row, len, page);
        self.tailing = false;
        effects
    }

    /// Selects the row of a frame.
    fn show_place(&mut self, place: usize) {
        let (row, len, page) = (self.row_of(place), self.row_count(), frames::page(self));
        self.states.frames.list.jump(row, len, page);
    }

    /// Sorts I/O or memory.
    pub(crate) fn sort_table(&mut self, table: View, by: usize, down: bool, columns: &[super::draw::Column]) {
        let Some((order, cursor)) = table.screen().table(self) else { return };
        let row = order.row(cursor.at).filter(|_| cursor.at > 0);
        order.sort(by, down);
        if let Some(at) = row.and_then(|row| order.find(row)) {
            cursor.at = at;
        }
        let down = if down { ", the greatest first" } else { "" };
        self.say(format!("sorted by {}{down}", columns[by].title));
        self.show_row(table);
    }

    /// Brings the selected row of I/O or memory to the screen.
    fn show_row(&mut self, table: View) {
        let page = table.screen().page(self);
        let Some((order, cursor)) = table.screen().table(self) else { return };
        let len = order.len();
        cursor.jump(cursor.at, len, page);
    }

    /// Rows of I/O or memory came.
    fn ordered(&mut self, table: View, generation: u64, version: usize, rows: Vec<order::Row>) {
        let Some((order, cursor)) = table.screen().table(self) else { return };
        // the first row stays the first row
        let selected = order.row(cursor.at).filter(|_| cursor.at > 0);
        if order.came(generation, version, rows) {
            if let Some(at) = selected.and_then(|row| order.find(row)) {
                // and the selected one stays where it is on the screen
                cursor.top = (cursor.top + at).saturating_sub(cursor.at);
                cursor.at = at;
            }
            self.show_row(table);
        }
    }

    /// What the screen needs and is not there.
    fn wants(&mut self) -> Vec<Effect> {
        let mut effects = Vec::new();
        let scanning = self.is_scanning();
        let table = self.view;
        // what passes grows as well
        let version = self.exchanges.places().end + self.filter.found.len();
        if let Some((order, _)) = table.screen().table(self) {
            let by = order.by;
            if let Some(generation) = order.wish(version) {
                let followed = self.followed.as_ref().map(|f| f.ids.clone());
                let passing = self.filter.is_on().then(|| self.filter.found.clone());
                effects.push(Effect::Order { table, generation, by, followed, passing, version });
            }
        }
        // what is sorted is all there is; of what has no end, what there is by now
        let is_all = self.filter_is_done() && !scanning && (self.done || self.grows);
        if self.sorting.is_under_way() && !self.sorting.asked && is_all {
            self.sorting.asked = true;
            effects.push(Effect::Sort { generation: self.sorting.generation, by: self.sorting.by, frames: self.frames_shown() });
        }
        let extending = self.view.screen().is_behind(self);
        if (scanning || extending) && !self.continuing {
            self.continuing = true;
            effects.push(Effect::Continue);
        }
        let wanted = self.view.screen().frames_shown(self);
        let mut missing: Vec<usize> = wanted.into_iter().filter(|i| !self.texts.contains_key(&(*i as u64 + 1))).collect();
        missing.sort_unstable();
        if !missing.is_empty() && self.texts_asked != missing {
            self.texts_asked.clone_from(&missing);
            let columns = self.columns.clone();
            effects.push(Effect::Texts { generation: self.texts_generation, frames: missing, columns });
        }
        if self.view == View::Frames
            && let Some(place) = self.frame_at(self.states.frames.list.at)
            && self.detail.as_ref().is_none_or(|d| d.number != place as u64 + 1)
            && self.detail_asked != Some(place)
        {
            self.detail_asked = Some(place);
            effects.push(Effect::Detail(place));
        }
        effects
    }

    fn news(&mut self, news: News) -> Vec<Effect> {
        let effects = if news.restarted { self.restarted() } else { Vec::new() };
        if let Some(read) = news.asks {
            self.popup = Some(Popup::Question(Box::new(Question {
                title: "a large capture",
                lines: vec![
                    format!("{} frames were read, and there are more.", time::grouped(read)),
                    format!("Each takes 32 bytes of memory; so far {}.", time::bytes(self.index.bytes() as u64)),
                ],
                answers: vec![
                    ('g', "go on, and ask again after as many", Answer::Do(vec![Effect::ReadUpTo(read.saturating_mul(2))])),
                    ('s', "stop here", Answer::Do(vec![Effect::ReadUpTo(0)])),
                ],
            })));
        }
        let had = self.index.len();
        let at_end = self.tailing || self.states.frames.list.at + 1 >= self.row_count();
        self.index = news.index;
        self.exchanges = news.exchanges;
        if let Some(live) = news.live {
            if live.hardware != self.live.as_ref().map_or(&[][..], |l| &l.hardware[..]) {
                self.changed(Change::Sums);
            }
            self.live = Some(live);
        }
        if !news.hardware.is_empty() {
            self.hardware = news.hardware;
            self.changed(Change::Sums);
        }
        self.exchanges_dropped = news.exchanges_dropped;
        for (connection, point) in news.credits {
            self.credits_log.add(connection, point);
        }
        self.progress = news.progress;
        self.done = news.done;
        if let Some(error) = news.error {
            self.error = Some(error);
        }
        if let Some(report) = news.report {
            self.report = report;
            self.choose();
        }
        self.scan();
        if self.grows && at_end && had > 0 && self.index.len() > had && self.tailing {
            let (len, page) = (self.row_count(), frames::page(self));
            self.states.frames.list.moved(Action::Last, len, page);
        }
        effects
    }

    /// Remembers the marks of a file.
    fn keep_marks(&self) -> Vec<Effect> {
        self.path.iter().map(|path| Effect::Keep(Keep::Marks(path.clone(), self.marks.iter().copied().collect()))).collect()
    }

    /// Tells the views that what they show changed.
    pub(super) fn changed(&mut self, change: Change) {
        for view in View::ALL {
            view.screen().changed(self, change);
        }
    }

    fn resized(&mut self, width: u16, height: u16) {
        self.size = (width, height);
        self.changed(Change::Sums);
        let (len, page) = (self.row_count(), frames::page(self));
        self.states.frames.list.show(len, page);
    }
}

/// One message, and what is to be done about it.
pub(crate) fn update(app: &mut App, msg: Msg) -> Vec<Effect> {
    let mut effects = match msg {
        Msg::Key(key) if key.kind == KeyEventKind::Release => Vec::new(),
        Msg::Key(key) => {
            app.note = None;
            match app.popup.take() {
                Some(popup) => prompt::key(app, popup, key),
                None => app.keys.action(key).map_or_else(Vec::new, |action| act(app, action)),
            }
        }
        Msg::Paste(text) => {
            if let Some(Popup::Prompt(prompt)) = &mut app.popup {
                prompt.paste(&text, &app.registry);
            }
            Vec::new()
        }
        Msg::Mouse(mouse) => self::mouse(app, mouse),
        Msg::Resize(width, height) => {
            app.resized(width, height);
            Vec::new()
        }
        Msg::News(news) => app.news(*news),
        Msg::Texts(generation, texts) => {
            if generation == app.texts_generation {
                if app.texts.len() > TEXTS_MAX {
                    app.texts.clear();
                }
                app.texts.extend(texts.into_iter().map(|t| (t.number, t)));
            }
            app.texts_asked.clear();
            Vec::new()
        }
        Msg::Detail(detail) => {
            app.detail_asked = None;
            frames::detail_came(app, detail);
            Vec::new()
        }
        Msg::Found { generation, frames, looked, done } => {
            if generation == app.filter.generation {
                let had = app.filter.connections.len();
                let (index, filter) = (&app.index, &mut app.filter);
                filter.connections.extend(frames.iter().filter_map(|i| index.at(*i as usize)).map(|e| e.connection).filter(|c| *c != 0));
                filter.found.extend(frames);
                filter.looked = looked;
                filter.done = done;
                app.scan();
                if done || app.filter.connections.len() != had || app.filter.found.len() > app.filter.chosen * 2 {
                    app.choose();
                }
                let (len, page) = (app.row_count(), frames::page(app));
                app.states.frames.list.show(len, page);
            }
            Vec::new()
        }
        Msg::Ordered { table, generation, version, rows } => {
            app.ordered(table, generation, version, rows);
            Vec::new()
        }
        Msg::Sorting { generation, looked } => {
            if generation == app.sorting.generation {
                app.sorting.looked = looked;
            }
            Vec::new()
        }
        Msg::Sorted { generation, sorted } => {
            if generation == app.sorting.generation {
                let place = app.frame_at(app.states.frames.list.at).filter(|_| app.states.frames.list.at > 0);
                if sorted.is_rough {
                    app.say("too many different texts to compare whole: some are sorted by their beginning");
                }
                app.sorting.sorted = Some(sorted);
                if let Some(place) = place {
                    app.show_place(place);
                }
            }
            Vec::new()
        }
        Msg::Working(what, done, all) => {
            app.working = Some((what, done, all));
            Vec::new()
        }
        Msg::Hit(Some((place, wrapped))) => {
            app.working = None;
            let effects = app.go_to_frame(u64::from(place) + 1);
            if wrapped {
                app.say("the search went on from the other end");
            }
            effects
        }
        Msg::Hit(None) => {
            app.working = None;
            let text = rdmascope_dissector::render::escaped(&app.search);
            app.complain(format!("\"{text}\" was not found"));
            Vec::new()
        }
        Msg::Exists(write) => {
            app.working = None;
            let name = rdmascope_dissector::render::escaped(&write.path.display().to_string());
            app.popup = Some(Popup::Question(Box::new(Question {
                title: "overwrite",
                lines: vec![format!("{name} exists already.")],
                answers: vec![('o', "overwrite it", Answer::Do(vec![Effect::Write(Write { replace: true, ..*write })]))],
            })));
            Vec::new()
        }
        Msg::Done(Ok(text)) => {
            app.working = None;
            app.saved = app.saving.take().map_or(app.saved, |n| n.max(app.saved));
            app.say(text);
            Vec::new()
        }
        Msg::Done(Err(text)) => {
            app.working = None;
            app.saving = None;
            app.complain(text);
            Vec::new()
        }
        Msg::Continue => {
            app.continuing = false;
            app.scan();
            Vec::new()
        }
        Msg::Quit => vec![Effect::Quit],
        Msg::Suspend => vec![Effect::Suspend],
        Msg::Redraw => vec![Effect::Redraw],
    };
    prepare(app);
    effects.extend(app.wants());
    effects
}

/// Lists that a view shows, where they are out of date.
fn prepare(app: &mut App) {
    app.view.screen().prepare(app);
}

/// Columns changed: lines have to be made anew.
pub(crate) fn columns_changed(app: &mut App) {
    app.texts.clear();
    app.texts_asked.clear();
    app.texts_generation += 1;
}

/// What an action does.
pub(crate) fn act(app: &mut App, action: Action) -> Vec<Effect> {
    match action {
        Action::Quit => return app.or_ask("quit", "quit without saving", 'q', Effect::Quit),
        Action::Pause | Action::Restart if !app.is_live => app.complain("this is not a live capture"),
        Action::Pause => {
            app.is_paused = !app.is_paused;
            app.say(if app.is_paused { "stopped; the same key goes on" } else { "going on" });
            return vec![Effect::Pause(app.is_paused)];
        }
        Action::Restart => return app.or_ask("begin anew", "begin anew without saving", 'r', Effect::Restart),
        Action::Suspend => return vec![Effect::Suspend],
        Action::Redraw => return vec![Effect::Redraw],
        Action::Help => app.popup = Some(Popup::Help(0)),
        Action::View(view) => app.turn_to(view),
        Action::NextView => app.turn_to(app.view.step(1)),
        Action::PreviousView => app.turn_to(app.view.step(View::ALL.len() - 1)),
        Action::Theme => {
            app.theme = Theme::new(app.theme.name.next(), app.theme.depth);
            app.changed(Change::Sums);
            app.say(app.theme.name.word());
            return vec![Effect::Keep(Keep::Theme(app.theme.name))];
        }
        Action::TimeFormat => {
            app.time = app.time.next();
            app.say(app.time.word());
        }
        Action::Filter => app.popup = Some(prompt::filter(app)),
        Action::Search => app.popup = Some(prompt::search(app)),
        Action::Goto => app.popup = Some(prompt::goto()),
        Action::Columns => app.popup = Some(prompt::column(app)),
        Action::Save => app.popup = Some(prompt::save(app)),
        Action::Export => app.popup = Some(prompt::export(app)),
        Action::Keys | Action::OpenFile if app.is_live => app.complain("not while frames are captured: give --keys at the start"),
        Action::Keys => app.popup = Some(prompt::keys()),
        Action::OpenFile => app.popup = Some(prompt::open(app)),
        Action::Copy => app.popup = Some(Popup::Copy),
        Action::Everything => return app.show_everything(),
        Action::Follow => {
            let id = app.view.screen().selected_connection(app);
            app.follow(id);
        }
        Action::Explain => explain(app),
        Action::Why => why(app),
        Action::SortBy => {
            let names = app.view.screen().sorts(app);
            if names.is_empty() {
                app.complain("this view has no columns to sort by");
            } else {
                app.popup = Some(Popup::SortBy(names));
            }
        }
        Action::Mark => return mark(app),
        Action::Unmark => {
            app.marks.clear();
            app.say("no frame is marked any more");
            return app.keep_marks();
        }
        Action::NextMark | Action::PreviousMark => return to_mark(app, action == Action::NextMark),
        Action::SearchNext | Action::SearchPrevious => return prompt::search_again(app, action == Action::SearchNext),
        Action::Back => {
            if app.working.is_some() {
                return vec![Effect::GiveUp];
            }
            if let Some(effects) = app.view.screen().back(app) {
                return effects;
            }
            if let Some(view) = app.came_from.pop() {
                app.view = view;
            }
        }
        Action::FilterBySelected | Action::FilterAnd | Action::FilterOr | Action::FilterNot => {
            if let Some(text) = frames::selected_filter(app) {
                return app.filter_by(&joined(&app.filter.text, &text, action));
            }
            app.complain("no field is selected: choose one in the fields of a frame");
        }
        _ => {
            return app.view.screen().act(app, action);
        }
    }
    Vec::new()
}

/// The filter at hand, and one that an action joins to it.
fn joined(old: &str, new: &str, action: Action) -> String {
    // what is joined looser than the joint goes into parentheses
    let closed = |text: &str| {
        if text.contains("||") || text.contains("&&") || text.contains(" or ") || text.contains(" and ") {
            format!("({text})")
        } else {
            text.to_owned()
        }
    };
    match action {
        Action::FilterAnd if !old.is_empty() => format!("{} && {}", closed(old), closed(new)),
        Action::FilterOr if !old.is_empty() => format!("{} || {}", closed(old), closed(new)),
        Action::FilterNot if !old.is_empty() => format!("{} && !({new})", closed(old)),
        Action::FilterNot => format!("!({new})"),
        _ => new.to_owned(),
    }
}

/// The sequence of just the frames of the selected request, with its gaps measured.
fn why(app: &mut App) {
    let Some(exchange) = app.view.screen().selected_exchange(app) else {
        return app.complain("this row belongs to no request");
    };
    let frames: Vec<u32> = io::frames_of(app, &exchange, WHY_MAX).into_iter().filter_map(|n| u32::try_from(n - 1).ok()).collect();
    app.about = Some(exchange.connection);
    app.go(View::Sequence);
    sequence::explain(app, &exchange, frames);
}

/// The number (from 1) of the frame that the selected row is about.
pub(crate) fn selected_frame(app: &App) -> Option<u64> {
    app.view.screen().selected_frame(app)
}

fn explain(app: &mut App) {
    let finding = app.view.screen().selected_finding(app);
    match finding.or_else(|| app.found.first().cloned()) {
        Some(finding) => {
            let text = rdmascope_analyzer::finding::explain(finding.rule);
            let mut lines = vec![rdmascope_dissector::render::escaped(&finding.text), String::new()];
            // paragraphs are broken anew, for this screen
            for line in text.lines() {
                let goes_on = line.starts_with("  ") && !line.starts_with("  - ");
                match lines.last_mut().filter(|last| goes_on && last.starts_with(' ')) {
                    Some(last) => {
                        last.push(' ');
                        last.push_str(line.trim_start());
                    }
                    None => lines.push(line.to_owned()),
                }
            }
            app.popup = Some(Popup::Text(finding.rule.id().to_owned(), lines, 0));
        }
        None => app.complain("there is no finding to explain"),
    }
}

fn mark(app: &mut App) -> Vec<Effect> {
    let Some(number) = selected_frame(app).and_then(|n| u32::try_from(n).ok()) else { return Vec::new() };
    if !app.marks.remove(&number) {
        app.marks.insert(number);
    }
    let marked = app.marks.len();
    app.say(format!("{marked} marked"));
    if app.view == View::Frames && app.states.frames.pane == frames::Pane::List {
        let (len, page) = (app.row_count(), frames::page(app));
        app.states.frames.list.moved(Action::Down, len, page);
    }
    app.keep_marks()
}

fn to_mark(app: &mut App, forward: bool) -> Vec<Effect> {
    let here = selected_frame(app).and_then(|n| u32::try_from(n).ok()).unwrap_or(0);
    let found = if forward {
        app.marks.range(here + 1..).next().or_else(|| app.marks.first())
    } else {
        app.marks.range(..here).next_back().or_else(|| app.marks.last())
    };
    match found.copied() {
        Some(number) => app.go_to_frame(number.into()),
        None => {
            app.complain(format!("no frame is marked; {} marks one", app.keys.first(Action::Mark)));
            Vec::new()
        }
    }
}

fn mouse(app: &mut App, mouse: MouseEvent) -> Vec<Effect> {
    let action = match mouse.kind {
        MouseEventKind::ScrollUp => Action::Up,
        MouseEventKind::ScrollDown => Action::Down,
        MouseEventKind::Down(MouseButton::Left) => return click(app, mouse.column, mouse.row),
        _ => return Vec::new(),
    };
    let mut effects = Vec::new();
    for _ in 0..3 {
        match app.popup.take() {
            Some(Popup::Help(top)) => app.popup = Some(Popup::Help(if action == Action::Up { top.saturating_sub(1) } else { top + 1 })),
            Some(Popup::Text(title, lines, top)) => {
                let top = if action == Action::Up { top.saturating_sub(1) } else { (top + 1).min(lines.len().saturating_sub(1)) };
                app.popup = Some(Popup::Text(title, lines, top));
            }
            Some(other) => app.popup = Some(other),
            None => {
                app.view.screen().point(app, mouse.column, mouse.row);
                effects.extend(act(app, action));
            }
        }
    }
    effects
}

fn click(app: &mut App, x: u16, y: u16) -> Vec<Effect> {
    if app.popup.is_some() {
        if !matches!(app.popup, Some(Popup::Prompt(_) | Popup::Question(_))) {
            app.popup = None;
        }
        return Vec::new();
    }
    if y == 1 {
        if let Some(view) = super::view::tab_at(app, x) {
            app.turn_to(view);
        }
        return Vec::new();
    }
    app.view.screen().click(app, x, y)
}
