//! What the screen is about, and how it changes: [`update`] takes a message and says what is to be done in the world. It does no I/O,
//! knows no clock, and the screen is made from [`App`] alone ([`super::view`]).

use super::credits_log::CreditsLog;
use super::index::Index;
use super::keys::{Action, Keys};
use super::loader::{EXCHANGES_MAX, LiveFacts, News};
use super::replay::{Detail, Text};
use super::theme::{self, Theme};
use super::{credits, findings, frames, io, memory, overview, prompt, sequence, statistics, time};
use ratatui::crossterm::event::{KeyEvent, KeyEventKind, MouseButton, MouseEvent, MouseEventKind};
use ratatui::layout::Rect;
use rdmascope_analyzer::exchange::Exchange;
use rdmascope_analyzer::finding::Finding;
use rdmascope_analyzer::op::End;
use rdmascope_analyzer::report::{Connection, Report};
use rdmascope_capture::Progress;
use rdmascope_dissector::field::Def;
use rdmascope_dissector::registry::Registry;
use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

/// The smallest screen.
pub(crate) const SMALLEST: (u16, u16) = (60, 18);
/// Lines of frames kept at most; more than any screen shows.
const TEXTS_MAX: usize = 20_000;
/// Frames looked at in one step while narrowing to a connection.
pub(crate) const SCAN_STEP: usize = 150_000;

/// The views, in the order of their keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum View {
    #[default]
    Overview,
    Frames,
    Io,
    Credits,
    Sequence,
    Memory,
    Findings,
    Statistics,
}

impl View {
    pub(crate) const ALL: [Self; 8] =
        [Self::Overview, Self::Frames, Self::Io, Self::Credits, Self::Sequence, Self::Memory, Self::Findings, Self::Statistics];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Overview => "Overview",
            Self::Frames => "Frames",
            Self::Io => "I/O",
            Self::Credits => "Credits",
            Self::Sequence => "Sequence",
            Self::Memory => "Memory",
            Self::Findings => "Findings",
            Self::Statistics => "Statistics",
        }
    }

    /// Where there is little room.
    pub(crate) const fn short_name(self) -> &'static str {
        match self {
            Self::Overview => "Over",
            Self::Sequence => "Seq",
            Self::Memory => "Mem",
            Self::Findings => "Find",
            Self::Statistics => "Stats",
            _ => self.name(),
        }
    }

    fn step(self, by: usize) -> Self {
        Self::ALL[(self as usize + by) % Self::ALL.len()]
    }
}

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
    /// The frame (place) that was searched for.
    Hit(Option<u32>),
    /// Something was saved, or not.
    Done(Result<String, String>),
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
    /// The first of these frames (or the last, where not `forward`) whose line has this text.
    Find {
        text: String,
        frames: Vec<u32>,
        forward: bool,
    },
    Save {
        path: PathBuf,
        frames: Vec<u32>,
    },
    /// The lines of frames.
    ExportFrames {
        path: PathBuf,
        frames: Vec<u32>,
        columns: Vec<Def>,
    },
    /// A table: heads, then rows.
    ExportTable {
        path: PathBuf,
        rows: Vec<Vec<String>>,
    },
    KeepHistory(Vec<String>),
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
}

impl Filter {
    pub(crate) fn is_on(&self) -> bool {
        !self.text.is_empty()
    }
}

/// A finding, with those of the same rule, side and words on other connections.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    first: Finding,
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

/// Joins findings that say the same, in the order of the first of each.
fn joined<'f>(findings: impl Iterator<Item = &'f Finding>) -> Vec<Found> {
    /// Frames of one that can be gone to.
    const FRAMES: usize = 24;
    let mut out: Vec<Found> = Vec::new();
    let mut places: HashMap<(rdmascope_analyzer::rules::Rule, &str, &str), usize> = HashMap::new();
    for f in findings {
        let at = *places.entry((f.rule, f.by.name(), &f.text)).or_insert_with(|| {
            out.push(Found { first: f.clone(), count: 0, frames: Vec::new(), connections: Vec::new() });
            out.len() - 1
        });
        let found = &mut out[at];
        found.count += f.count;
        found.connections.extend(f.connection);
        found.frames.extend(f.frames.iter());
    }
    for found in &mut out {
        found.frames.sort_unstable();
        found.frames.truncate(FRAMES);
        found.first.frame = found.frames.first().copied().unwrap_or(found.first.frame);
    }
    out
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
    pub(crate) report: Arc<Report>,
    pub(crate) exchanges: Vec<Exchange>,
    pub(crate) exchanges_dropped: u64,
    pub(crate) credits_log: CreditsLog,
    pub(crate) progress: Progress,
    pub(crate) done: bool,
    pub(crate) grows: bool,
    pub(crate) error: Option<String>,
    /// What is to be said of a live capture.
    pub(crate) live: Option<LiveFacts>,
    /// Place in the report's connections by the number under which one is followed.
    pub(crate) places: HashMap<u32, usize>,
    /// Findings, ranked.
    pub(crate) ranked: Vec<Finding>,
    /// Those that are shown, joined where they say the same.
    pub(crate) found: Vec<Found>,
    // what is shown of it
    pub(crate) view: View,
    pub(crate) came_from: Vec<View>,
    pub(crate) filter: Filter,
    pub(crate) followed: Option<Followed>,
    /// The frames that are shown, by place; `None` for all.
    pub(crate) shown: Option<Vec<u32>>,
    /// Up to where frames were looked at for `shown`.
    pub(crate) scanned: usize,
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
    /// Keep at the end of a file that grows.
    pub(crate) tailing: bool,
    /// Whether [`Msg::Continue`] was asked for.
    continuing: bool,
    pub(crate) overview: overview::State,
    pub(crate) frames: frames::State,
    pub(crate) io: io::State,
    pub(crate) credits: credits::State,
    pub(crate) sequence: sequence::State,
    pub(crate) memory: memory::State,
    pub(crate) findings: findings::State,
    pub(crate) statistics: statistics::State,
}

impl App {
    pub(crate) fn new(title: String, keys: Keys, theme: theme::Name) -> Self {
        Self {
            title,
            keys,
            theme: Theme::new(theme),
            registry: Arc::new(crate::cli::registry()),
            size: (80, 24),
            index: Index::default(),
            report: Arc::default(),
            exchanges: Vec::new(),
            exchanges_dropped: 0,
            credits_log: CreditsLog::default(),
            progress: Progress::default(),
            done: false,
            grows: false,
            error: None,
            live: None,
            places: HashMap::new(),
            ranked: Vec::new(),
            found: Vec::new(),
            view: View::Overview,
            came_from: Vec::new(),
            filter: Filter::default(),
            followed: None,
            shown: None,
            scanned: 0,
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
            tailing: false,
            continuing: false,
            overview: overview::State::default(),
            frames: frames::State::default(),
            io: io::State::default(),
            credits: credits::State::default(),
            sequence: sequence::State::default(),
            memory: memory::State::default(),
            findings: findings::State::default(),
            statistics: statistics::State::default(),
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
        match &self.shown {
            Some(shown) => shown.get(row).map(|i| *i as usize),
            None => (row < self.index.len()).then_some(row),
        }
    }

    /// The row that has a frame, or the next one that there is.
    pub(crate) fn row_of(&self, place: usize) -> usize {
        match &self.shown {
            Some(shown) => shown.partition_point(|i| (*i as usize) < place).min(shown.len().saturating_sub(1)),
            None => place.min(self.index.len().saturating_sub(1)),
        }
    }

    /// A connection by the number under which it is followed.
    pub(crate) fn connection(&self, followed_as: u32) -> Option<&Connection> {
        self.places.get(&followed_as).and_then(|i| self.report.connections.get(*i))
    }

    /// Which end of a connection is shown as the client.
    pub(crate) fn client_end(&self, followed_as: u32) -> End {
        let Some(connection) = self.connection(followed_as) else { return End::A };
        let client = connection.client_end.unwrap_or(End::A);
        // what was followed as a half of its own counted its ends from itself
        if connection.followed_as.first() == Some(&followed_as) { client } else { client.peer() }
    }

    /// The connection that credit plot and sequence are about: the followed one, else that of the selected frame, else the busiest.
    pub(crate) fn subject(&self) -> Option<&Connection> {
        if let Some(followed) = &self.followed {
            return followed.ids.iter().find_map(|id| self.connection(*id));
        }
        self.report
            .connections
            .iter()
            .max_by_key(|c| (c.sides[0].messages + c.sides[1].messages, c.rdma.reads + c.rdma.writes, std::cmp::Reverse(c.id)))
    }

    /// Whether a thing of this connection is to be shown.
    pub(crate) fn concerns(&self, followed_as: u32) -> bool {
        self.followed.as_ref().is_none_or(|f| f.ids.contains(&followed_as))
    }

    /// Connections that are shown.
    pub(crate) fn connections(&self) -> impl Iterator<Item = &Connection> {
        self.report.connections.iter().filter(|c| c.followed_as.first().is_some_and(|id| self.concerns(*id)))
    }

    /// Makes the list of shown findings anew.
    fn choose_findings(&mut self) {
        let ids: Option<Vec<u32>> = self.followed.as_ref().map(|_| self.connections().map(|c| c.id).collect());
        self.found = joined(self.ranked.iter().filter(|f| ids.as_ref().is_none_or(|ids| f.connection.is_none_or(|c| ids.contains(&c)))));
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
        self.frames.list.jump(row, len, page);
        self.tailing = false;
        effects
    }

    /// Neither filter nor followed connection.
    pub(crate) fn show_everything(&mut self) -> Vec<Effect> {
        let place = self.frame_at(self.frames.list.at);
        self.followed = None;
        let effects = self.filter_by("");
        if let Some(place) = place {
            let (row, len, page) = (self.row_of(place), self.row_count(), frames::page(self));
            self.frames.list.jump(row, len, page);
        }
        effects
    }

    /// Narrows everything to a connection, or widens again where it is the one already.
    pub(crate) fn follow(&mut self, followed_as: Option<u32>) {
        let Some(connection) = followed_as.and_then(|id| self.connection(id)) else {
            self.complain("this row belongs to no connection");
            return;
        };
        let followed = Followed { ids: connection.followed_as.clone() };
        let id = connection.id;
        if self.followed.as_ref() == Some(&followed) {
            self.followed = None;
            self.say("all connections again");
        } else {
            self.followed = Some(followed);
            self.say(format!("connection {id} alone; {} shows all again", self.keys.first(Action::Everything)));
        }
        self.narrow();
    }

    /// Sets the filter. The frames that pass come later.
    pub(crate) fn filter_by(&mut self, text: &str) -> Vec<Effect> {
        self.filter = Filter { text: text.trim().to_owned(), generation: self.filter.generation + 1, ..Filter::default() };
        self.narrow();
        let mut effects = vec![Effect::Filter { generation: self.filter.generation, text: self.filter.text.clone() }];
        if self.filter.is_on() {
            let text = self.filter.text.clone();
            self.history.retain(|h| *h != text);
            self.history.push(text);
            effects.push(Effect::KeepHistory(self.history.clone()));
        }
        effects
    }

    /// Makes the list of shown frames anew.
    fn narrow(&mut self) {
        let place = self.frame_at(self.frames.list.at);
        self.scanned = 0;
        self.shown = (self.filter.is_on() || self.followed.is_some()).then(Vec::new);
        self.io.rows = None;
        self.memory.rows = None;
        self.sequence.reset();
        self.statistics.outdated();
        self.credits.window = None;
        self.choose_findings();
        self.scan();
        if let Some(place) = place {
            let (row, len, page) = (self.row_of(place), self.row_count(), frames::page(self));
            self.frames.list.jump(row, len, page);
        }
    }

    /// Looks at frames that came since, for the list of shown ones.
    fn scan(&mut self) {
        let Some(mut shown) = self.shown.take() else { return };
        if self.filter.is_on() {
            let found = &self.filter.found[self.scanned.min(self.filter.found.len())..];
            shown.extend(found.iter().filter(|i| self.index.at(**i as usize).is_some_and(|e| self.concerns(e.connection))));
            self.scanned = self.filter.found.len();
        } else {
            let upto = self.index.len().min(self.scanned + SCAN_STEP);
            let new = self.index.from(self.scanned).take_while(|(i, _)| *i < upto).filter(|(_, e)| self.concerns(e.connection));
            shown.extend(new.map(|(i, _)| i as u32));
            self.scanned = upto;
        }
        self.shown = Some(shown);
    }

    /// What the screen needs and is not there.
    fn wants(&mut self) -> Vec<Effect> {
        let mut effects = Vec::new();
        let scanning = self.shown.is_some() && !self.filter.is_on() && self.scanned < self.index.len();
        let extending = self.view == View::Sequence && sequence::is_behind(self);
        if (scanning || extending) && !self.continuing {
            self.continuing = true;
            effects.push(Effect::Continue);
        }
        let wanted: Vec<usize> = match self.view {
            View::Frames => {
                let page = frames::page(self);
                (self.frames.list.top..self.frames.list.top + page).filter_map(|row| self.frame_at(row)).collect()
            }
            View::Sequence => sequence::visible_frames(self),
            _ => Vec::new(),
        };
        let missing: Vec<usize> = wanted.into_iter().filter(|i| !self.texts.contains_key(&(*i as u64 + 1))).collect();
        if !missing.is_empty() && self.texts_asked != missing {
            self.texts_asked.clone_from(&missing);
            let columns = self.columns.clone();
            effects.push(Effect::Texts { generation: self.texts_generation, frames: missing, columns });
        }
        if self.view == View::Frames
            && let Some(place) = self.frame_at(self.frames.list.at)
            && self.detail.as_ref().is_none_or(|d| d.number != place as u64 + 1)
            && self.detail_asked != Some(place)
        {
            self.detail_asked = Some(place);
            effects.push(Effect::Detail(place));
        }
        effects
    }

    fn news(&mut self, news: News) {
        let had = self.index.len();
        let at_end = self.tailing || self.frames.list.at + 1 >= self.row_count();
        self.index = news.index;
        self.exchanges.extend(news.exchanges);
        if let Some(live) = news.live {
            // a capture without an end: the oldest give way
            if self.exchanges.len() > EXCHANGES_MAX {
                self.exchanges.drain(..EXCHANGES_MAX / 4);
                self.io.rows = None;
                self.memory.rows = None;
            }
            if live.hardware != self.live.as_ref().map_or(&[][..], |l| &l.hardware[..]) {
                self.statistics.outdated();
            }
            self.live = Some(live);
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
            self.places = report.connections.iter().enumerate().flat_map(|(i, c)| c.followed_as.iter().map(move |id| (*id, i))).collect();
            self.ranked = report.findings.ranked().into_iter().cloned().collect();
            self.report = report;
            self.statistics.outdated();
            self.choose_findings();
            if self.done || self.exchanges.len() < 20_000 {
                self.io.rows = None;
                self.memory.rows = None;
            }
        }
        self.scan();
        if self.grows && at_end && had > 0 && self.index.len() > had && self.tailing {
            let (len, page) = (self.row_count(), frames::page(self));
            self.frames.list.moved(Action::Last, len, page);
        }
    }

    fn resized(&mut self, width: u16, height: u16) {
        self.size = (width, height);
        self.statistics.outdated();
        let (len, page) = (self.row_count(), frames::page(self));
        self.frames.list.show(len, page);
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
        Msg::News(news) => {
            app.news(*news);
            Vec::new()
        }
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
                app.filter.found.extend(frames);
                app.filter.looked = looked;
                app.filter.done = done;
                app.scan();
                let (len, page) = (app.row_count(), frames::page(app));
                app.frames.list.show(len, page);
            }
            Vec::new()
        }
        Msg::Hit(Some(place)) => app.go_to_frame(u64::from(place) + 1),
        Msg::Hit(None) => {
            let text = rdmascope_dissector::render::escaped(&app.search);
            app.complain(format!("\"{text}\" was not found"));
            Vec::new()
        }
        Msg::Done(Ok(text)) => {
            app.say(text);
            Vec::new()
        }
        Msg::Done(Err(text)) => {
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
    match app.view {
        View::Io => io::prepare(app),
        View::Memory => memory::prepare(app),
        View::Sequence => sequence::extend(app),
        View::Statistics => statistics::prepare(app),
        _ => {}
    }
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
        Action::Quit => return vec![Effect::Quit],
        Action::Suspend => return vec![Effect::Suspend],
        Action::Redraw => return vec![Effect::Redraw],
        Action::Help => app.popup = Some(Popup::Help(0)),
        Action::View(view) => app.go(view),
        Action::NextView => app.go(app.view.step(1)),
        Action::PreviousView => app.go(app.view.step(View::ALL.len() - 1)),
        Action::Theme => {
            app.theme = Theme::new(app.theme.name.next());
            app.statistics.outdated();
            app.say(app.theme.name.word());
        }
        Action::TimeFormat => {
            app.time = app.time.next();
            app.say(app.time.word());
        }
        Action::Filter => app.popup = Some(prompt::filter(app)),
        Action::Search => app.popup = Some(prompt::search(app)),
        Action::Goto => app.popup = Some(prompt::goto()),
        Action::Columns => app.popup = Some(prompt::column()),
        Action::Save => app.popup = Some(prompt::save(app)),
        Action::Export => app.popup = Some(prompt::export(app)),
        Action::Copy => app.popup = Some(Popup::Copy),
        Action::Everything => return app.show_everything(),
        Action::Follow => {
            let id = selected_connection(app);
            app.follow(id);
        }
        Action::Explain => explain(app),
        Action::Mark => mark(app),
        Action::Unmark => {
            app.marks.clear();
            app.say("no frame is marked any more");
        }
        Action::NextMark | Action::PreviousMark => return to_mark(app, action == Action::NextMark),
        Action::SearchNext | Action::SearchPrevious => return prompt::search_again(app, action == Action::SearchNext),
        Action::Back => {
            if app.frames.maximized && app.view == View::Frames {
                app.frames.maximized = false;
            } else if let Some(view) = app.came_from.pop() {
                app.view = view;
            }
        }
        Action::FilterBySelected => {
            if let Some(text) = frames::selected_filter(app) {
                return app.filter_by(&text);
            }
            app.complain("no field is selected: choose one in the fields of a frame");
        }
        _ => {
            return match app.view {
                View::Overview => overview::act(app, action),
                View::Frames => frames::act(app, action),
                View::Io => io::act(app, action),
                View::Credits => credits::act(app, action),
                View::Sequence => sequence::act(app, action),
                View::Memory => memory::act(app, action),
                View::Findings => findings::act(app, action),
                View::Statistics => statistics::act(app, action),
            };
        }
    }
    Vec::new()
}

/// The number (from 1) of the frame that the selected row is about.
pub(crate) fn selected_frame(app: &App) -> Option<u64> {
    match app.view {
        View::Frames => app.frame_at(app.frames.list.at).map(|p| p as u64 + 1),
        View::Overview => overview::selected_frame(app),
        View::Io => io::selected(app).map(|e| e.request.frame),
        View::Credits => credits::selected_frame(app),
        View::Sequence => sequence::selected_frame(app),
        View::Memory => memory::selected_frame(app),
        View::Findings => findings::selected_frame(app),
        View::Statistics => None,
    }
}

/// The connection that the selected row is about, by the number under which it is followed.
fn selected_connection(app: &App) -> Option<u32> {
    match app.view {
        View::Overview => overview::selected_connection(app),
        View::Io => io::selected(app).map(|e| e.connection),
        View::Findings => findings::selected_connection(app),
        View::Credits | View::Statistics => app.subject().and_then(|c| c.followed_as.first().copied()),
        _ => {
            let place = usize::try_from(selected_frame(app)?).ok()?.checked_sub(1)?;
            app.index.at(place).map(|e| e.connection).filter(|c| *c != 0)
        }
    }
}

fn explain(app: &mut App) {
    let finding = match app.view {
        View::Findings => findings::selected(app),
        View::Overview => overview::selected_finding(app),
        _ => selected_frame(app).and_then(|n| app.found.iter().find(|f| f.frames.contains(&n))).cloned(),
    };
    match finding.or_else(|| app.found.first().cloned()) {
        Some(finding) => {
            let text = rdmascope_analyzer::finding::explain(finding.rule);
            let mut lines = vec![rdmascope_dissector::render::escaped(&finding.text), String::new()];
            lines.extend(text.lines().map(str::to_owned));
            app.popup = Some(Popup::Text(finding.rule.id().to_owned(), lines, 0));
        }
        None => app.complain("there is no finding to explain"),
    }
}

fn mark(app: &mut App) {
    let Some(number) = selected_frame(app).and_then(|n| u32::try_from(n).ok()) else { return };
    if !app.marks.remove(&number) {
        app.marks.insert(number);
    }
    let marked = app.marks.len();
    app.say(format!("{marked} marked"));
    if app.view == View::Frames && app.frames.pane == frames::Pane::List {
        let (len, page) = (app.row_count(), frames::page(app));
        app.frames.list.moved(Action::Down, len, page);
    }
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
                // the pane under the pointer is the one that turns
                if app.view == View::Frames
                    && let Some(pane) = frames::pane_at(app, mouse.column, mouse.row)
                {
                    app.frames.pane = pane;
                }
                effects.extend(act(app, action));
            }
        }
    }
    effects
}

fn click(app: &mut App, x: u16, y: u16) -> Vec<Effect> {
    if app.popup.is_some() {
        if !matches!(app.popup, Some(Popup::Prompt(_))) {
            app.popup = None;
        }
        return Vec::new();
    }
    if y == 1 {
        if let Some(view) = super::view::tab_at(app, x) {
            app.go(view);
        }
        return Vec::new();
    }
    match app.view {
        View::Overview => overview::click(app, x, y),
        View::Frames => frames::click(app, x, y),
        View::Io => io::click(app, x, y),
        View::Credits => credits::click(app, x, y),
        View::Sequence => sequence::click(app, x, y),
        View::Memory => memory::click(app, x, y),
        View::Findings => findings::click(app, x, y),
        View::Statistics => {}
    }
    Vec::new()
}
