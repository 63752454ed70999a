//! The line at the bottom in which one types: filter, search, frame number, file name, column. And the keys of everything that lies
//! over a view.
//!
//! ```text
//!  smb2.cmd            Command            ◂ what could stand here; Up and Down choose, Tab takes
//!  smb2.credit.charge  Credit Charge
//!  unknown field "smb2.cm"; did you mean smb2.cmd?
//! filter: smb2.cm█
//! ```

use super::app::{Answer, App, Effect, Output, Popup, Question, Reopen, selected_frame};
use super::config::Keep;
use super::draw::put;
use super::frames::{self, Part};
use super::keys::{Action, Context, bindings};
use super::replay::Which;
use super::search::{self, Needle};
use super::time::grouped;
use super::views::View;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::Rect;
use rdmascope_dissector::filter::{Error, Filter, Suggestion, SuggestionKind, complete};
use rdmascope_dissector::registry::Registry;
use unicode_width::UnicodeWidthStr;

/// Suggestions on the screen at most.
const SUGGESTIONS: usize = 8;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Filter,
    Search,
    Goto,
    Column,
    Save,
    Export,
    Keys,
    Open,
}

/// A line that is being typed.
#[derive(Clone, Debug)]
pub(crate) struct Prompt {
    pub(crate) kind: Kind,
    pub(crate) text: String,
    /// Bytes before the cursor.
    pub(crate) cursor: usize,
    suggestions: Vec<Suggestion>,
    chosen: Option<usize>,
    error: Option<Error>,
    history: Vec<String>,
    /// How far back in the history.
    back: usize,
    /// What was typed before going back.
    draft: String,
    /// What the line is about.
    about: String,
}

/// Fields that people filter by.
const COMMON: [&str; 23] = [
    "smb2.cmd",
    "smb2.nt_status",
    "smb2.filename",
    "smb2.msg_id",
    "smb2.credits.granted",
    "smb_direct.credits.granted",
    "smb_direct.credits.requested",
    "rdmascope.exchange.time",
    "rdmascope.exchange.file",
    "rdmascope.exchange.command",
    "rdmascope.connection",
    "rdmascope.finding",
    "rdmascope.retransmission",
    "infiniband.bth.opcode",
    "infiniband.bth.psn",
    "infiniband.bth.destqp",
    "ip.addr",
    "ip.src",
    "ip.dst",
    "tcp.port",
    "rpc.xid",
    "nfs.status",
    "frame.number",
];

/// Fields in the order in which they are of use: those used before, those that people filter by, then the short ones.
fn rank(suggestions: &mut [Suggestion], history: &[String]) {
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    suggestions.sort_by_cached_key(|s| {
        if s.kind != SuggestionKind::Field {
            return (0, 0, 0, 0);
        }
        let used = history.iter().filter(|filter| filter.split(|c| !is_word(c)).any(|word| word == s.text)).count();
        let common = COMMON.iter().position(|name| *name == s.text).unwrap_or(COMMON.len());
        (usize::MAX - used, common, s.text.matches('.').count(), s.text.len())
    });
}

impl Prompt {
    fn new(kind: Kind, text: &str) -> Self {
        Self {
            kind,
            text: text.to_owned(),
            cursor: text.len(),
            suggestions: Vec::new(),
            chosen: None,
            error: None,
            history: Vec::new(),
            back: 0,
            draft: String::new(),
            about: String::new(),
        }
    }

    fn label(&self) -> &'static str {
        match self.kind {
            Kind::Filter => "filter: ",
            Kind::Search => "search: ",
            Kind::Goto => "go to frame: ",
            Kind::Column => "column: ",
            Kind::Save => "save frames to: ",
            Kind::Export => "export to: ",
            Kind::Keys => "key file: ",
            Kind::Open => "open: ",
        }
    }

    /// Looks at the text again after it changed.
    fn changed(&mut self, registry: &Registry) {
        self.chosen = None;
        self.error = None;
        self.suggestions.clear();
        match self.kind {
            Kind::Filter => {
                self.error = Filter::parse(&self.text, registry).err();
                self.suggestions = complete(&self.text, self.cursor, registry);
                // a whole word needs no help
                self.suggestions.retain(|s| self.text.get(s.replace.clone()) != Some(&*s.text));
                rank(&mut self.suggestions, &self.history);
            }
            Kind::Column => {
                // a column is a field: what stands at the beginning of a filter
                self.suggestions = complete(&self.text, self.cursor, registry);
                self.suggestions.retain(|s| s.text != self.text && registry.find(&s.text).is_some());
                rank(&mut self.suggestions, &self.history);
            }
            _ => {}
        }
    }

    pub(crate) fn paste(&mut self, text: &str, registry: &Registry) {
        let line: String = text.chars().filter(|c| !c.is_control()).collect();
        self.text.insert_str(self.cursor, &line);
        self.cursor += line.len();
        self.changed(registry);
    }

    fn take_suggestion(&mut self, registry: &Registry) {
        let Some(s) = self.suggestions.get(self.chosen.unwrap_or(0)).cloned() else { return };
        self.text.replace_range(s.replace.clone(), &s.text);
        self.cursor = s.replace.start + s.text.len();
        self.changed(registry);
    }

    fn recall(&mut self, older: bool, registry: &Registry) {
        if self.back == 0 {
            self.draft.clone_from(&self.text);
        }
        self.back = if older { (self.back + 1).min(self.history.len()) } else { self.back.saturating_sub(1) };
        self.text = match self.back {
            0 => self.draft.clone(),
            n => self.history[self.history.len() - n].clone(),
        };
        self.cursor = self.text.len();
        self.changed(registry);
        self.suggestions.clear();
    }

    fn before(&self) -> usize {
        self.text[..self.cursor].char_indices().next_back().map_or(0, |(i, _)| i)
    }

    fn after(&self) -> usize {
        self.text[self.cursor..].chars().next().map_or(self.cursor, |c| self.cursor + c.len_utf8())
    }

    /// Edits. Returns whether the key was one that edits.
    fn edit(&mut self, key: KeyEvent, registry: &Registry) -> bool {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('u') if control => {
                self.text.replace_range(..self.cursor, "");
                self.cursor = 0;
            }
            KeyCode::Char('k') if control => self.text.truncate(self.cursor),
            KeyCode::Char('w') if control => {
                let kept = self.text[..self.cursor].trim_end();
                let start = kept.rfind(|c: char| c.is_whitespace()).map_or(0, |i| i + 1);
                self.text.replace_range(start..self.cursor, "");
                self.cursor = start;
            }
            KeyCode::Char('a') if control => self.cursor = 0,
            KeyCode::Char('e') if control => self.cursor = self.text.len(),
            KeyCode::Char(c) if !control && !key.modifiers.contains(KeyModifiers::ALT) => {
                self.text.insert(self.cursor, c);
                self.cursor += c.len_utf8();
            }
            KeyCode::Backspace => {
                let start = self.before();
                self.text.replace_range(start..self.cursor, "");
                self.cursor = start;
            }
            KeyCode::Delete => {
                let end = self.after();
                self.text.replace_range(self.cursor..end, "");
            }
            KeyCode::Left => self.cursor = self.before(),
            KeyCode::Right => self.cursor = self.after(),
            KeyCode::Home => self.cursor = 0,
            KeyCode::End => self.cursor = self.text.len(),
            _ => return false,
        }
        self.changed(registry);
        true
    }
}

pub(crate) fn filter(app: &App) -> Popup {
    let mut prompt = Prompt::new(Kind::Filter, &app.filter.text);
    prompt.history.clone_from(&app.history);
    prompt.changed(&app.registry);
    Popup::Prompt(Box::new(prompt))
}

pub(crate) fn search(app: &App) -> Popup {
    let mut prompt = Prompt::new(Kind::Search, "");
    prompt.about = search::HELP.to_owned();
    if !app.search.is_empty() {
        let again = rdmascope_dissector::render::escaped(&app.search);
        prompt.about = format!("{}   Enter searches for \"{again}\" again", search::HELP);
    }
    Popup::Prompt(Box::new(prompt))
}

pub(crate) fn goto() -> Popup {
    Popup::Prompt(Box::new(Prompt::new(Kind::Goto, "")))
}

pub(crate) fn keys() -> Popup {
    let mut prompt = Prompt::new(Kind::Keys, "");
    prompt.about = "keys and passwords, as of --keys; they take the place of those given before".to_owned();
    Popup::Prompt(Box::new(prompt))
}

pub(crate) fn open(app: &App) -> Popup {
    let mut prompt = Prompt::new(Kind::Open, "");
    prompt.history.clone_from(&app.recent);
    if !app.recent.is_empty() {
        prompt.about = "Up has the captures opened before".to_owned();
    }
    Popup::Prompt(Box::new(prompt))
}

pub(crate) fn column(app: &App) -> Popup {
    let mut prompt = Prompt::new(Kind::Column, "");
    prompt.about = "a field and its place (smb2.msg_id 1); the same field again takes it away, nothing takes all away".to_owned();
    // those that are there can be called back, to be moved or taken away
    prompt.history = app.columns.iter().map(|def| def.name.to_owned()).collect();
    Popup::Prompt(Box::new(prompt))
}

fn count(app: &App) -> (usize, &'static str) {
    match (app.marks.len(), app.shown.as_ref()) {
        (0, None) => (app.index.len(), "all"),
        (0, Some(shown)) => (shown.len(), "shown"),
        (marked, _) => (marked, "marked"),
    }
}

/// A name for an output that is not that of the capture: `trace-frames.pcapng` of `trace.pcap.gz`.
fn file_name(app: &App, what: &str, extension: &str) -> String {
    let mut stem = app.title.as_str();
    for known in [".gz", ".zst", ".lz4", ".pcapng", ".pcap", ".cap"] {
        stem = stem.strip_suffix(known).unwrap_or(stem);
    }
    let stem: String = stem.chars().map(|c| if c.is_control() || matches!(c, '/' | ' ' | ',') { '-' } else { c }).collect();
    format!("{stem}-{what}.{extension}")
}

pub(crate) fn save(app: &App) -> Popup {
    let (n, which) = count(app);
    let what = if app.marks.is_empty() { "frames" } else { "marked" };
    let mut prompt = Prompt::new(Kind::Save, &file_name(app, what, "pcapng"));
    prompt.about = format!("{} {which} {}, as pcapng", grouped(n as u64), if n == 1 { "frame" } else { "frames" });
    Popup::Prompt(Box::new(prompt))
}

pub(crate) fn export(app: &App) -> Popup {
    let name = app.view.name().to_lowercase().replace('/', "");
    let mut prompt = Prompt::new(Kind::Export, &file_name(app, &name, "csv"));
    prompt.about = "rows of this view; .csv has commas, anything else tabs".to_owned();
    Popup::Prompt(Box::new(prompt))
}

/// A key, while something lies over the view.
pub(crate) fn key(app: &mut App, popup: Popup, key: KeyEvent) -> Vec<Effect> {
    let action = app.keys.action(key);
    let control_c = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    match popup {
        Popup::Prompt(prompt) if key.code == KeyCode::Esc || control_c => {
            let _ = prompt;
            Vec::new()
        }
        Popup::Prompt(prompt) => prompt_key(app, prompt, key),
        Popup::Copy => copy_key(app, key),
        Popup::SortBy(names) => match key.code {
            KeyCode::Char(c) if c.is_ascii_lowercase() && usize::from(c as u8 - b'a') < names.len() => {
                app.view.screen().sort_by(app, usize::from(c as u8 - b'a'))
            }
            _ => Vec::new(),
        },
        Popup::Question(question) => answer(app, question, key),
        Popup::Help(top) | Popup::Text(_, _, top) => {
            let len = match &popup {
                Popup::Text(_, lines, _) => lines.len(),
                _ => bindings().count() + Context::ALL.len() * 2,
            };
            let page = usize::from(app.size.1.saturating_sub(4)).max(1);
            let last = len.saturating_sub(page);
            let top = match action {
                Some(Action::Up) => top.saturating_sub(1),
                Some(Action::Down) => (top + 1).min(last),
                Some(Action::PageUp) => top.saturating_sub(page),
                Some(Action::PageDown) => (top + page).min(last),
                Some(Action::First) => 0,
                Some(Action::Last) => last,
                Some(Action::Suspend) => {
                    app.popup = Some(popup);
                    return vec![Effect::Suspend];
                }
                _ => return Vec::new(),
            };
            app.popup = Some(match popup {
                Popup::Text(title, lines, _) => Popup::Text(title, lines, top),
                _ => Popup::Help(top),
            });
            Vec::new()
        }
    }
}

/// Only an answer, or `Esc`, ends a question.
fn answer(app: &mut App, question: Box<Question>, key: KeyEvent) -> Vec<Effect> {
    let control_c = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    // a second Ctrl-C means it
    let quits = control_c && question.title == "quit";
    let chosen = question.answers.iter().find(|(c, ..)| key.code == KeyCode::Char(*c) || quits && *c == 'q').map(|(.., a)| a.clone());
    match chosen {
        Some(Answer::Do(effects)) => effects,
        Some(Answer::Save) => {
            app.popup = Some(save(app));
            Vec::new()
        }
        None if key.code == KeyCode::Esc && question.title != "a large capture" => Vec::new(),
        None => {
            app.popup = Some(Popup::Question(question));
            Vec::new()
        }
    }
}

fn copy_key(app: &mut App, key: KeyEvent) -> Vec<Effect> {
    let part = match key.code {
        KeyCode::Char('v') => Part::Value,
        KeyCode::Char('r' | 'y') => Part::Row,
        KeyCode::Char('b') => Part::Bytes,
        KeyCode::Char('f') => Part::Filter,
        _ => return Vec::new(),
    };
    let text = match (app.view, part) {
        (View::Frames, _) => frames::copied(app, part),
        (view, Part::Row) => view.screen().selected_row(app).map(|row| row.join("\t")),
        (_, Part::Filter) => selected_frame(app).map(|n| format!("frame.number == {n}")),
        _ => None,
    };
    match text {
        Some(text) => {
            app.say(format!("copied {}", text.chars().take(60).collect::<String>()));
            vec![Effect::Copy(text)]
        }
        None => {
            app.complain("there is nothing of that kind here");
            Vec::new()
        }
    }
}

fn prompt_key(app: &mut App, mut prompt: Box<Prompt>, key: KeyEvent) -> Vec<Effect> {
    let registry = app.registry.clone();
    match key.code {
        KeyCode::Tab => prompt.take_suggestion(&registry),
        KeyCode::Down if !prompt.suggestions.is_empty() && prompt.back == 0 => {
            let last = prompt.suggestions.len() - 1;
            prompt.chosen = Some(prompt.chosen.map_or(0, |c| (c + 1).min(last)));
        }
        KeyCode::Up if prompt.chosen.is_some() => prompt.chosen = prompt.chosen.and_then(|c| c.checked_sub(1)),
        KeyCode::Up => prompt.recall(true, &registry),
        KeyCode::Down => prompt.recall(false, &registry),
        KeyCode::Enter if prompt.chosen.is_some() => prompt.take_suggestion(&registry),
        KeyCode::Enter => return entered(app, prompt),
        _ => drop(prompt.edit(key, &registry)),
    }
    app.popup = Some(Popup::Prompt(prompt));
    Vec::new()
}

fn entered(app: &mut App, prompt: Box<Prompt>) -> Vec<Effect> {
    let text = prompt.text.trim().to_owned();
    match prompt.kind {
        Kind::Filter => {
            if let Err(e) = Filter::parse(&text, &app.registry) {
                app.complain(e.to_string());
                app.popup = Some(Popup::Prompt(prompt));
                return Vec::new();
            }
            // every view obeys it; who looks at none yet wants to see the frames
            if !text.is_empty() && app.view == View::Overview {
                app.go(View::Frames);
            }
            app.filter_by(&text)
        }
        Kind::Search => {
            if let Err(e) = Needle::parse(&text, &app.registry) {
                app.complain(e);
                app.popup = Some(Popup::Prompt(prompt));
                return Vec::new();
            }
            if !text.is_empty() {
                app.search = text;
            }
            search_again(app, true)
        }
        Kind::Goto => match text.replace([',', '_'], "").parse::<u64>() {
            Ok(number) => app.go_to_frame(number),
            Err(_) => {
                app.complain(format!("\"{text}\" is not the number of a frame"));
                Vec::new()
            }
        },
        Kind::Column => {
            if let Err(e) = frames::set_column(app, &text) {
                app.complain(e);
                return Vec::new();
            }
            vec![Effect::Keep(Keep::Columns(app.columns.iter().map(|def| def.name.to_owned()).collect()))]
        }
        Kind::Save | Kind::Export | Kind::Keys | Kind::Open if text.is_empty() => {
            app.complain("a file needs a name");
            Vec::new()
        }
        Kind::Keys => vec![Effect::Reopen(Reopen::WithKeys(text.into()))],
        Kind::Open => vec![Effect::Reopen(Reopen::Capture(text.into()))],
        Kind::Save => app.write(text.into(), Output::Frames(chosen_frames(app))),
        Kind::Export if app.view == View::Frames => app.write(text.into(), Output::Lines(listed_frames(app, true), app.columns.clone())),
        Kind::Export => app.write(text.into(), Output::Table(app.view.screen().export(app))),
    }
}

/// Marked frames, else shown ones, in the order of the capture.
fn chosen_frames(app: &App) -> Which {
    if !app.marks.is_empty() {
        return Which::These(app.marks.iter().map(|n| n - 1).collect());
    }
    app.frames_shown()
}

/// The frames of the list in its order; where that is wished and there are any, the marked ones alone, in the order of the capture.
fn listed_frames(app: &App, marked: bool) -> Which {
    if marked && !app.marks.is_empty() {
        return chosen_frames(app);
    }
    match &app.sorting.sorted {
        Some(_) => Which::These((0..app.row_count()).filter_map(|row| app.frame_at(row)).map(|place| place as u32).collect()),
        None => app.frames_shown(),
    }
}

/// Goes to the next row that has what is searched for, from the other end on where there is none.
pub(crate) fn search_again(app: &mut App, forward: bool) -> Vec<Effect> {
    if app.search.is_empty() {
        app.complain("nothing was searched for yet");
        return Vec::new();
    }
    let needle = match Needle::parse(&app.search, &app.registry) {
        Ok(needle) => needle,
        Err(e) => {
            app.complain(e);
            return Vec::new();
        }
    };
    if app.view == View::Frames {
        let from = app.states.frames.list.at;
        // the row itself is looked at last
        let frames = match listed_frames(app, false) {
            Which::These(mut before) => {
                let after = before.split_off((from + usize::from(forward)).min(before.len()));
                if forward { [Which::These(after), Which::These(before)] } else { [Which::These(before), Which::These(after)] }
            }
            Which::Range(all) => {
                let middle = (from as u32 + u32::from(forward)).min(all.end);
                if forward {
                    [Which::Range(middle..all.end), Which::Range(0..middle)]
                } else {
                    [Which::Range(0..middle), Which::Range(middle..all.end)]
                }
            }
        };
        return vec![Effect::Find { text: app.search.clone(), frames, forward }];
    }
    let Needle::Has(pattern) = needle else {
        app.complain(format!("bytes and filters are searched for in frames: key {}", app.keys.first(Action::View(View::Frames))));
        return Vec::new();
    };
    let screen = app.view.screen();
    let len = screen.len(app);
    let Some(at) = screen.cursor(app).map(|cursor| cursor.at.min(len.saturating_sub(1))) else {
        app.complain("this view has no list to search");
        return Vec::new();
    };
    let has = |row: &usize| pattern.is_in(&screen.row(app, *row).join(" "));
    let found = if forward { (at + 1..len).chain(0..len.min(at + 1)).find(has) } else { (0..at).rev().chain((at..len).rev()).find(has) };
    match found {
        Some(row) => {
            let wrapped = if forward { row <= at } else { row >= at };
            if let Some(cursor) = screen.cursor(app) {
                cursor.jump(row, len, 5);
            }
            if wrapped {
                app.say("the search went on from the other end");
            }
        }
        None => app.complain(format!("\"{}\" was not found", rdmascope_dissector::render::escaped(&app.search))),
    }
    Vec::new()
}

/// Draws the line and what is above it.
pub(crate) fn draw(app: &App, prompt: &Prompt, buf: &mut Buffer) {
    let theme = &app.theme;
    let (width, height) = app.size;
    let bottom = height - 1;
    clear(buf, Rect { x: 0, y: bottom, width, height: 1 });
    let label = prompt.label();
    let x = put(buf, 0, bottom, width, label, theme.key);
    // of a long line, what is around the cursor
    let room = usize::from(width.saturating_sub(x + 1)).max(1);
    let before = UnicodeWidthStr::width(&prompt.text[..prompt.cursor]);
    let skip = before.saturating_sub(room.saturating_sub(1));
    let mut start = 0;
    while UnicodeWidthStr::width(&prompt.text[..start]) < skip {
        start += prompt.text[start..].chars().next().map_or(1, char::len_utf8);
    }
    let shown = rdmascope_dissector::render::escaped(&prompt.text[start..]);
    put(buf, x, bottom, width - x, &shown, theme.text);
    if let Some(error) = &prompt.error {
        let from = prompt.text.get(start..error.span.start).map_or(0, UnicodeWidthStr::width) as u16;
        let len = prompt.text.get(error.span.clone()).map_or(1, UnicodeWidthStr::width).max(1) as u16;
        let area = Rect { x: x + from, y: bottom, width: len, height: 1 }.intersection(buf.area);
        buf.set_style(area, theme.error);
    }
    let cursor = x + (before - UnicodeWidthStr::width(&prompt.text[..start])) as u16;
    buf.set_style(Rect { x: cursor.min(width - 1), y: bottom, width: 1, height: 1 }, theme.selected);
    let mut y = bottom;
    let mut above = |text: &str, style| {
        if y > 2 {
            y -= 1;
            clear(buf, Rect { x: 0, y, width, height: 1 });
            put(buf, 1, y, width - 1, text, style);
        }
        y
    };
    match &prompt.error {
        Some(e) if !prompt.text.trim().is_empty() => drop(above(&rdmascope_dissector::render::escaped(&e.to_string()), theme.error)),
        _ if !prompt.about.is_empty() => drop(above(&prompt.about, theme.faint)),
        None if prompt.kind == Kind::Filter && !prompt.text.trim().is_empty() => drop(above("✓ Enter filters", theme.good)),
        _ => {}
    }
    let first = prompt.chosen.map_or(0, |c| c.saturating_sub(SUGGESTIONS - 1));
    let seen: Vec<(usize, &Suggestion)> = prompt.suggestions.iter().enumerate().skip(first).take(SUGGESTIONS).collect();
    let widest = seen.iter().map(|(_, s)| s.text.chars().count()).max().unwrap_or(0).min(usize::from(width) / 2);
    for (i, s) in seen.into_iter().rev() {
        let style = if prompt.chosen == Some(i) { theme.selected } else { theme.text };
        above(&format!("{:widest$}  {}", s.text, s.detail), style);
    }
}

pub(crate) fn clear(buf: &mut Buffer, area: Rect) {
    let area = area.intersection(buf.area);
    for y in area.top()..area.bottom() {
        for x in area.left()..area.right() {
            buf[(x, y)].reset();
        }
    }
}
