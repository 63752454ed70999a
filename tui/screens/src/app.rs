//! State changes of the application: [`update`] takes a message and returns the effects to carry out. It routes keys
//! and clicks to the view that is shown and does what that view requests. It does no I/O and reads no clock. The screen
//! is drawn from [`App`] alone ([`super::view`]).

mod narrow;
mod nothing_lost;
mod popup;

use super::config::Keep;
use super::credits_log::CreditsLog;
use super::digest::Sums;
use super::exchanges::Exchanges;
use super::index::Index;
use super::keys::{Action, Keys};
use super::loader::News;
use super::model::{Filter, Followed, Model, SCAN_STEP};
use super::order::Rows;
use super::redissect::{Detail, Text, Which};
use super::screen::{Change, Request, Screen, Table};
use super::sort::{By, Sorted};
use super::states::States;
use super::theme::{self, Theme};
use super::views::View;
use super::{frames, io, order, prompt, redissect, sequence, tabs, time};
use ratatui::crossterm::event::{KeyEvent, KeyEventKind, MouseButton, MouseEvent, MouseEventKind};
use rdmascope_analyzer::exchange::Exchange;
use rdmascope_dissector::field::Def;
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

/// Maximum number of lines of frames that are kept; more than any screen shows.
const TEXTS_MAX: usize = 4_000;
/// Frames of a request that are shown to explain its time.
const WHY_MAX: usize = 5_000;
/// Slowest requests that pass a filter.
const SLOWEST_MAX: usize = 20;
/// An event.
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
    /// Ordered rows of I/O or memory, made from `version` exchanges.
    Ordered {
        table: View,
        generation: u64,
        version: usize,
        rows: Vec<order::Row>,
    },
    /// Number of frames whose keys were read.
    Sorting {
        generation: u64,
        looked: usize,
    },
    Sorted {
        generation: u64,
        sorted: Sorted,
    },
    /// The frame (place) that the search found, and whether the search had to wrap around.
    Hit(Option<(u32, bool)>),
    /// Messages of a connection: a title, and the lines.
    Content(String, Vec<String>),
    /// Progress of a long task: its name, the number of steps done, and of all steps.
    Working(&'static str, usize, usize),
    /// The result of saving something.
    Done(Result<String, String>),
    /// The file to be written exists already.
    Exists(Box<Write>),
    /// Continue a task that takes several steps.
    Continue,
    Quit,
    Suspend,
    Redraw,
}

/// A side effect, to be carried out outside of the application.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Effect {
    Quit,
    Suspend,
    Redraw,
    /// There is more to do after the messages that arrived meanwhile: [`Msg::Continue`].
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
        rows: &'static Rows,
        generation: u64,
        by: usize,
        followed: Option<Vec<u32>>,
        /// Limits the rows to requests with one of these frames (places, ascending), if a filter is active.
        passing: Option<Vec<u32>>,
        /// Version of the exchanges; it is returned with the answer.
        version: usize,
    },
    /// These frames (ascending) by a key.
    Sort {
        generation: u64,
        by: By,
        frames: Which,
    },
    /// Ends all sorting of an older generation than this.
    EndSort(u64),
    /// Asks for the messages of a connection, by the numbers under which it is followed, with its title and the
    /// client's address.
    Content {
        ids: Vec<u32>,
        title: String,
        client: String,
    },
    /// Finds the first of these frames (or the last, if not `forward`) that matches. If none does, the frames on the
    /// other side of the search's start are searched.
    Find {
        text: String,
        frames: [Which; 2],
        forward: bool,
    },
    /// Writes a file.
    Write(Write),
    /// Reads everything again: with the keys in this file, or from another capture.
    Reopen(Reopen),
    /// Pauses or resumes a live capture.
    Pause(bool),
    /// Restarts a live capture.
    Restart,
    /// Lets reading continue up to this number of frames; 0 ends it.
    ReadUpTo(u64),
    /// Cancels saving, exporting or searching.
    GiveUp,
    /// Stores something for the next session.
    Keep(Keep),
}

/// The capture to read next.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reopen {
    /// The same capture with these keys, which replace earlier ones.
    WithKeys(PathBuf),
    /// Another capture.
    Capture(PathBuf),
}

/// A file to be written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Write {
    pub(crate) path: PathBuf,
    pub(crate) what: Output,
    /// True if an existing file may be replaced.
    pub(crate) replace: bool,
}

/// The content of an output file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Output {
    /// Frames, as pcapng.
    Frames(Which),
    /// The lines of frames, with these columns.
    Lines(Which, Vec<Def>),
    /// A table: heads, then rows.
    Table(Vec<Vec<String>>),
}

/// A popup over the view.
#[derive(Clone, Debug)]
pub(crate) enum Popup {
    Help(usize),
    /// Title, lines, first line shown.
    Text(String, Vec<String>, usize),
    Prompt(Box<prompt::Prompt>),
    /// A choice of what to copy.
    Copy,
    /// Names of columns to sort by.
    SortBy(Vec<String>),
    Question(Box<Question>),
}

/// A question; it stays until it is answered or cancelled with `Esc`.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    pub(crate) title: &'static str,
    pub(crate) lines: Vec<String>,
    pub(crate) answers: Vec<(char, &'static str, Answer)>,
}

/// The effect of an answer.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Do(Vec<Effect>),
    /// Asks for the name of a file for the frames.
    Save,
}

/// State of the whole application: the model, the views, and popups.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) model: Model,
    /// Number of frames of a live capture that are in a file, and the number after the current save.
    saved: usize,
    saving: Option<usize>,
    pub(crate) came_from: Vec<View>,
    texts_generation: u64,
    texts_asked: Vec<usize>,
    detail_asked: Option<usize>,
    pub(crate) popup: Option<Popup>,
    /// The file that is shown, if it does not grow: then its marks are kept.
    pub(crate) path: Option<PathBuf>,
    /// True if [`Msg::Continue`] was requested.
    continuing: bool,
    /// State of each view.
    pub(crate) states: States,
}

impl App {
    pub(crate) fn new(title: String, keys: Keys, theme: theme::Name) -> Self {
        Self {
            model: Model::new(title, keys, theme),
            came_from: Vec::new(),
            saved: 0,
            saving: None,
            texts_generation: 0,
            texts_asked: Vec::new(),
            detail_asked: None,
            popup: None,
            path: None,
            continuing: false,
            states: States::default(),
        }
    }

    /// Shows another view that the user chose: credit plot and sequence then show the selection of the former view.
    pub(crate) fn turn_to(&mut self, view: View) {
        let screen = self.screen();
        if self.states.of(view).is_about_a_selection() && view != self.model.view && screen.is_chosen() {
            let frame = screen.selected_frame(&self.model).filter(|_| screen.is_at_a_frame());
            if self.model.followed.is_none() {
                self.model.about = screen
                    .selected_connection(&self.model)
                    .filter(|id| self.model.connection(*id).is_some())
                    .or(self.model.about);
            }
            let place = frame.and_then(|n| usize::try_from(n).ok()).and_then(|n| n.checked_sub(1));
            let entry = place.and_then(|i| self.model.index.at(i));
            if let (Some(place), Some(entry), Some(subject)) = (place, entry, self.model.subject())
                && subject.followed_as.contains(&entry.connection)
            {
                let time = entry.time;
                for view in View::ALL {
                    self.states.of_mut(*view).look_at(place, time);
                }
            }
        }
        self.go(view);
    }

    // ── Actions of views ────────────────────────────────────────────────────────────────────────────────────────────

    /// Goes to another view; `Esc` comes back.
    pub(crate) fn go(&mut self, view: View) {
        if self.model.view != view {
            self.came_from.retain(|v| *v != view);
            self.came_from.push(self.model.view);
            self.model.view = view;
        }
    }

    /// Shows a frame (by its number) in the frame list. If a filter hides it, the filter is removed.
    pub(crate) fn go_to_frame(&mut self, number: u64) -> Vec<Effect> {
        let Some(place) =
            usize::try_from(number).ok().and_then(|n| n.checked_sub(1)).filter(|p| *p < self.model.index.len())
        else {
            let len = self.model.index.len();
            self.model.complain(format!("there is no frame {number}; they go from 1 to {}", time::grouped(len as u64)));
            return Vec::new();
        };
        let mut effects = Vec::new();
        if self.model.frame_at(self.model.row_of(place)) != Some(place) {
            effects = self.show_everything();
            self.model.say(format!("frame {number} was hidden; all frames are shown again"));
        }
        self.go(View::Frames);
        let (row, len, page) =
            (self.model.row_of(place), self.model.row_count(), frames::page(&self.states.frames, &self.model));
        self.states.frames.list.jump(row, len, page);
        self.model.tailing = false;
        effects
    }

    /// Selects the row of a frame.
    fn show_place(&mut self, place: usize) {
        let (row, len, page) =
            (self.model.row_of(place), self.model.row_count(), frames::page(&self.states.frames, &self.model));
        self.states.frames.list.jump(row, len, page);
    }

    /// The view that is shown.
    pub(crate) fn screen(&self) -> &dyn Screen {
        self.states.of(self.model.view)
    }

    /// Carries out the requests of a view.
    pub(super) fn carry_out(&mut self, requests: Vec<Request>) -> Vec<Effect> {
        let mut effects = Vec::new();
        for request in requests {
            match request {
                Request::GoToFrame(number) => effects.extend(self.go_to_frame(number)),
                Request::Follow(id) => self.follow(id),
                Request::FilterBy(text) => effects.extend(self.filter_by(&text)),
                Request::SortFrames(by, down) => effects.extend(self.sort_frames(by, down)),
                Request::StayAtEnd(stays) => self.model.tailing = stays,
                Request::Say(text) => self.model.say(text),
                Request::Complain(text) => self.model.complain(text),
            }
        }
        effects
    }

    /// Takes ordered rows of I/O or memory.
    fn ordered(&mut self, table: View, generation: u64, version: usize, rows: Vec<order::Row>) {
        let screen = self.states.of_mut(table);
        let page = screen.page(&self.model);
        let Some(Table { order, cursor, .. }) = screen.table() else { return };
        // the first row stays the first row
        let selected = order.row(cursor.at).filter(|_| cursor.at > 0);
        if order.came(generation, version, rows) {
            if let Some(at) = selected.and_then(|row| order.find(row)) {
                // the selected row also stays at its position on the screen
                cursor.top = (cursor.top + at).saturating_sub(cursor.at);
                cursor.at = at;
            }
            cursor.jump(cursor.at, order.len(), page);
        }
    }

    /// Requests data that the screen needs and does not have.
    fn wants(&mut self) -> Vec<Effect> {
        let mut effects = Vec::new();
        let scanning = self.model.is_scanning();
        let table = self.model.view;
        // the number of passing frames grows as well
        let version = self.model.exchanges.places().end + self.model.filter.found.len();
        if let Some(Table { order, rows, .. }) = self.states.of_mut(table).table() {
            let by = order.by;
            if let Some(generation) = order.due(version) {
                let followed = self.model.followed.as_ref().map(|f| f.ids.clone());
                let passing = self.model.filter.is_on().then(|| self.model.filter.found.clone());
                effects.push(Effect::Order { table, rows, generation, by, followed, passing, version });
            }
        }
        // all frames are sorted; of a growing capture, those that are there now
        let is_all = self.model.filter_is_done() && !scanning && (self.model.done || self.model.grows);
        if self.model.sorting.is_under_way() && !self.model.sorting.asked && is_all {
            self.model.sorting.asked = true;
            effects.push(Effect::Sort {
                generation: self.model.sorting.generation,
                by: self.model.sorting.by,
                frames: self.model.frames_shown(),
            });
        }
        let extending = self.screen().is_behind(&self.model);
        if (scanning || extending) && !self.continuing {
            self.continuing = true;
            effects.push(Effect::Continue);
        }
        let wanted = self.screen().frames_shown(&self.model);
        let mut missing: Vec<usize> =
            wanted.into_iter().filter(|i| !self.model.texts.contains_key(&(*i as u64 + 1))).collect();
        missing.sort_unstable();
        if !missing.is_empty() && self.texts_asked != missing {
            self.texts_asked.clone_from(&missing);
            let columns = self.model.columns.clone();
            effects.push(Effect::Texts { generation: self.texts_generation, frames: missing, columns });
        }
        if let Some(place) = self.screen().detailed(&self.model)
            && self.model.detail.as_ref().is_none_or(|d| d.number != place as u64 + 1)
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
                    format!("Each takes 32 bytes of memory; so far {}.", time::bytes(self.model.index.bytes() as u64)),
                ],
                answers: vec![
                    (
                        'g',
                        "go on, and ask again after the same number",
                        Answer::Do(vec![Effect::ReadUpTo(read.saturating_mul(2))]),
                    ),
                    ('s', "stop here", Answer::Do(vec![Effect::ReadUpTo(0)])),
                ],
            })));
        }
        let had = self.model.index.len();
        let at_end = self.model.tailing || self.states.frames.list.at + 1 >= self.model.row_count();
        self.model.index = news.index;
        self.model.exchanges = news.exchanges;
        if let Some(live) = news.live {
            if live.hardware != self.model.live.as_ref().map_or(&[][..], |l| &l.hardware[..]) {
                self.changed(Change::Sums);
            }
            self.model.live = Some(live);
        }
        if !news.hardware.is_empty() {
            self.model.hardware = news.hardware;
            self.changed(Change::Sums);
        }
        self.model.exchanges_dropped = news.exchanges_dropped;
        if let Some(credits) = news.kept {
            self.model.credits_log = credits;
            self.model.is_kept = true;
        }
        for (connection, point) in news.credits {
            self.model.credits_log.add(connection, point);
        }
        self.model.progress = news.progress;
        self.model.done = news.done;
        if let Some(error) = news.error {
            self.model.error = Some(error);
        }
        if let Some(report) = news.report {
            self.model.report = report;
            self.choose();
        }
        self.scan();
        if self.model.grows && at_end && had > 0 && self.model.index.len() > had && self.model.tailing {
            let (len, page) = (self.model.row_count(), frames::page(&self.states.frames, &self.model));
            self.states.frames.list.moved(Action::Last, len, page);
        }
        effects
    }

    /// Remembers the marks of a file.
    fn keep_marks(&self) -> Vec<Effect> {
        self.path
            .iter()
            .map(|path| Effect::Keep(Keep::Marks(path.clone(), self.model.marks.iter().copied().collect())))
            .collect()
    }

    /// Tells the views that their data changed.
    pub(super) fn changed(&mut self, change: Change) {
        for view in View::ALL {
            self.states.of_mut(*view).changed(change);
        }
    }

    fn resized(&mut self, width: u16, height: u16) {
        self.model.size = (width, height);
        self.changed(Change::Sums);
        let (len, page) = (self.model.row_count(), frames::page(&self.states.frames, &self.model));
        self.states.frames.list.show(len, page);
    }
}

/// Handles one message. Returns the effects to carry out.
pub(crate) fn update(app: &mut App, msg: Msg) -> Vec<Effect> {
    let mut effects = match msg {
        Msg::Key(key) if key.kind == KeyEventKind::Release => Vec::new(),
        Msg::Key(key) => {
            app.model.note = None;
            match app.popup.take() {
                Some(popup) => popup::key(app, popup, key),
                None => app.model.keys.action(key).map_or_else(Vec::new, |action| act(app, action)),
            }
        }
        Msg::Paste(text) => {
            if let Some(Popup::Prompt(prompt)) = &mut app.popup {
                prompt.paste(&text, &app.model.registry);
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
                if app.model.texts.len() > TEXTS_MAX {
                    app.model.texts.clear();
                }
                app.model.texts.extend(texts.into_iter().map(|t| (t.number, t)));
            }
            app.texts_asked.clear();
            Vec::new()
        }
        Msg::Detail(detail) => {
            app.detail_asked = None;
            frames::detail_came(&mut app.states.frames, &mut app.model, detail);
            Vec::new()
        }
        Msg::Found { generation, frames, looked, done } => {
            if generation == app.model.filter.generation {
                let had = app.model.filter.connections.len();
                let (index, filter) = (&app.model.index, &mut app.model.filter);
                filter.connections.extend(
                    frames.iter().filter_map(|i| index.at(*i as usize)).map(|e| e.connection).filter(|c| *c != 0),
                );
                filter.found.extend(frames);
                filter.looked = looked;
                filter.done = done;
                app.scan();
                if done
                    || app.model.filter.connections.len() != had
                    || app.model.filter.found.len() > app.model.filter.chosen * 2
                {
                    app.choose();
                }
                let (len, page) = (app.model.row_count(), frames::page(&app.states.frames, &app.model));
                app.states.frames.list.show(len, page);
            }
            Vec::new()
        }
        Msg::Ordered { table, generation, version, rows } => {
            app.ordered(table, generation, version, rows);
            Vec::new()
        }
        Msg::Sorting { generation, looked } => {
            if generation == app.model.sorting.generation {
                app.model.sorting.looked = looked;
            }
            Vec::new()
        }
        Msg::Sorted { generation, sorted } => {
            if generation == app.model.sorting.generation {
                let place = app.model.frame_at(app.states.frames.list.at).filter(|_| app.states.frames.list.at > 0);
                if sorted.is_rough {
                    app.model
                        .say("too many different texts to compare in full: some are sorted by their first characters");
                }
                app.model.sorting.sorted = Some(sorted);
                if let Some(place) = place {
                    app.show_place(place);
                }
            }
            Vec::new()
        }
        Msg::Working(what, done, all) => {
            app.model.working = Some((what, done, all));
            Vec::new()
        }
        Msg::Hit(Some((place, wrapped))) => {
            app.model.working = None;
            let effects = app.go_to_frame(u64::from(place) + 1);
            if wrapped {
                app.model.say("the search went on from the other end");
            }
            effects
        }
        Msg::Content(title, lines) => {
            app.model.working = None;
            if lines.is_empty() {
                app.model.complain("no SMB2 or RPC message was put together on this connection");
            } else {
                app.popup = Some(Popup::Text(title, lines, 0));
            }
            Vec::new()
        }
        Msg::Hit(None) => {
            app.model.working = None;
            let text = rdmascope_dissector::render::escaped(&app.model.search);
            app.model.complain(format!("\"{text}\" was not found"));
            Vec::new()
        }
        Msg::Exists(write) => {
            app.model.working = None;
            let name = rdmascope_dissector::render::escaped(&write.path.display().to_string());
            app.popup = Some(Popup::Question(Box::new(Question {
                title: "overwrite",
                lines: vec![format!("{name} exists already.")],
                answers: vec![(
                    'o',
                    "overwrite it",
                    Answer::Do(vec![Effect::Write(Write { replace: true, ..*write })]),
                )],
            })));
            Vec::new()
        }
        Msg::Done(Ok(text)) => {
            app.model.working = None;
            app.saved = app.saving.take().map_or(app.saved, |n| n.max(app.saved));
            app.model.say(text);
            Vec::new()
        }
        Msg::Done(Err(text)) => {
            app.model.working = None;
            app.saving = None;
            app.model.complain(text);
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

/// Updates the lists of the current view if they are out of date.
fn prepare(app: &mut App) {
    app.states.of_mut(app.model.view).prepare(&app.model);
}

/// Columns changed: lines have to be made again.
pub(crate) fn columns_changed(app: &mut App) {
    app.model.texts.clear();
    app.texts_asked.clear();
    app.texts_generation += 1;
}

/// Carries out an action.
pub(crate) fn act(app: &mut App, action: Action) -> Vec<Effect> {
    match action {
        Action::Quit => return app.or_ask("quit", "quit without saving", 'q', Effect::Quit),
        Action::Pause | Action::Restart if !app.model.is_live => app.model.complain("this is not a live capture"),
        Action::Pause => {
            app.model.is_paused = !app.model.is_paused;
            app.model.say(if app.model.is_paused { "stopped; the same key continues" } else { "going on" });
            return vec![Effect::Pause(app.model.is_paused)];
        }
        Action::Restart => return app.or_ask("begin anew", "restart without saving", 'r', Effect::Restart),
        Action::Suspend => return vec![Effect::Suspend],
        Action::Redraw => return vec![Effect::Redraw],
        Action::Help => app.popup = Some(Popup::Help(0)),
        Action::View(view) => app.turn_to(view),
        Action::NextView => app.turn_to(app.model.view.step(1)),
        Action::PreviousView => app.turn_to(app.model.view.step(View::ALL.len() - 1)),
        Action::Theme => {
            app.model.theme = Theme::new(app.model.theme.name.next(), app.model.theme.depth);
            app.changed(Change::Sums);
            app.model.say(app.model.theme.name.word());
            return vec![Effect::Keep(Keep::Theme(app.model.theme.name))];
        }
        Action::TimeFormat => {
            app.model.time = app.model.time.next();
            app.model.say(app.model.time.word());
        }
        Action::Filter => app.popup = Some(Popup::Prompt(prompt::filter(&app.model))),
        Action::Search => app.popup = Some(Popup::Prompt(prompt::search(&app.model))),
        Action::Goto => app.popup = Some(Popup::Prompt(prompt::goto())),
        Action::Columns => app.popup = Some(Popup::Prompt(prompt::column(&app.model))),
        Action::Save => app.popup = Some(Popup::Prompt(prompt::save(&app.model))),
        Action::Export => app.popup = Some(Popup::Prompt(prompt::export(&app.model))),
        Action::Keys | Action::OpenFile if app.model.is_live => {
            app.model.complain("not during a live capture: give --keys at the start")
        }
        Action::Keys => app.popup = Some(Popup::Prompt(prompt::keys())),
        Action::OpenFile => app.popup = Some(Popup::Prompt(prompt::open(&app.model))),
        Action::Copy => app.popup = Some(Popup::Copy),
        Action::Everything => return app.show_everything(),
        Action::Follow => {
            let id = app.screen().selected_connection(&app.model);
            app.follow(id);
        }
        Action::Content => return content(app),
        Action::Explain => explain(app),
        Action::Why => why(app),
        Action::SortBy => {
            let names = app.screen().sorts(&app.model);
            if names.is_empty() {
                app.model.complain("this view has no columns to sort by");
            } else {
                app.popup = Some(Popup::SortBy(names));
            }
        }
        Action::Mark => return mark(app),
        Action::Unmark => {
            app.model.marks.clear();
            app.model.say("all marks are removed");
            return app.keep_marks();
        }
        Action::NextMark | Action::PreviousMark => return to_mark(app, action == Action::NextMark),
        Action::SearchNext | Action::SearchPrevious => return popup::search_again(app, action == Action::SearchNext),
        Action::Back => {
            if app.model.working.is_some() {
                return vec![Effect::GiveUp];
            }
            if let Some(requests) = app.states.of_mut(app.model.view).back(&app.model) {
                return app.carry_out(requests);
            }
            if let Some(view) = app.came_from.pop() {
                app.model.view = view;
            }
        }
        Action::FilterBySelected | Action::FilterAnd | Action::FilterOr | Action::FilterNot => {
            if let Some(text) = frames::selected_filter(&app.states.frames, &app.model) {
                return app.filter_by(&joined(&app.model.filter.text, &text, action));
            }
            app.model.complain("no field is selected: choose one in the fields of a frame");
        }
        _ => {
            let requests = app.states.of_mut(app.model.view).act(&app.model, action);
            return app.carry_out(requests);
        }
    }
    Vec::new()
}

/// Joins the current filter and another one, as an action says.
fn joined(old: &str, new: &str, action: Action) -> String {
    // operands that contain operators are put in parentheses
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

/// Requests the messages of the selected row's connection, else of the followed one.
fn content(app: &mut App) -> Vec<Effect> {
    let selected = app.screen().selected_connection(&app.model).and_then(|id| app.model.connection(id));
    let Some(connection) = selected.or_else(|| app.model.subject()) else {
        app.model.complain("this row belongs to no connection");
        return Vec::new();
    };
    let [client, server] = [0, 1].map(|end| redissect::address(&connection.peers[end].address));
    let title = format!("connection {}: {client} ▸ {server}", connection.id);
    vec![Effect::Content { ids: connection.followed_as.clone(), title, client }]
}

/// The sequence of just the frames of the selected request, with its gaps measured.
fn why(app: &mut App) {
    let Some(exchange) = app.screen().selected_exchange(&app.model) else {
        return app.model.complain("this row belongs to no request");
    };
    let frames: Vec<u32> =
        io::frames_of(&app.model, &exchange, WHY_MAX).into_iter().filter_map(|n| u32::try_from(n - 1).ok()).collect();
    app.model.about = Some(exchange.connection);
    app.go(View::Sequence);
    sequence::explain(&mut app.states.sequence, &app.model, &exchange, frames);
}

/// The number (from 1) of the frame that the selected row is about.
pub(crate) fn selected_frame(app: &App) -> Option<u64> {
    app.screen().selected_frame(&app.model)
}

fn explain(app: &mut App) {
    let finding = app.screen().selected_finding(&app.model);
    match finding.or_else(|| app.model.found.first().cloned()) {
        Some(finding) => {
            let text = rdmascope_analyzer::finding::explain(finding.rule);
            let mut lines = vec![rdmascope_dissector::render::escaped(&finding.text), String::new()];
            // paragraphs are wrapped again, for this screen
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
        None => app.model.complain("there is no finding to explain"),
    }
}

fn mark(app: &mut App) -> Vec<Effect> {
    let Some(number) = selected_frame(app).and_then(|n| u32::try_from(n).ok()) else { return Vec::new() };
    if !app.model.marks.remove(&number) {
        app.model.marks.insert(number);
    }
    let marked = app.model.marks.len();
    app.model.say(format!("{marked} marked"));
    app.states.of_mut(app.model.view).marked(&app.model);
    app.keep_marks()
}

fn to_mark(app: &mut App, forward: bool) -> Vec<Effect> {
    let here = selected_frame(app).and_then(|n| u32::try_from(n).ok()).unwrap_or(0);
    let found = if forward {
        app.model.marks.range(here + 1..).next().or_else(|| app.model.marks.first())
    } else {
        app.model.marks.range(..here).next_back().or_else(|| app.model.marks.last())
    };
    match found.copied() {
        Some(number) => app.go_to_frame(number.into()),
        None => {
            app.model.complain(format!("no frame is marked; {} marks one", app.model.keys.first(Action::Mark)));
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
            Some(Popup::Help(top)) => {
                app.popup = Some(Popup::Help(if action == Action::Up { top.saturating_sub(1) } else { top + 1 }))
            }
            Some(Popup::Text(title, lines, top)) => {
                let top = if action == Action::Up {
                    top.saturating_sub(1)
                } else {
                    (top + 1).min(lines.len().saturating_sub(1))
                };
                app.popup = Some(Popup::Text(title, lines, top));
            }
            Some(other) => app.popup = Some(other),
            None => {
                app.states.of_mut(app.model.view).point(&app.model, mouse.column, mouse.row);
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
        if let Some(view) = tabs::tab_at(&app.model, &app.states, x) {
            app.turn_to(view);
        }
        return Vec::new();
    }
    let requests = app.states.of_mut(app.model.view).click(&app.model, x, y);
    app.carry_out(requests)
}
