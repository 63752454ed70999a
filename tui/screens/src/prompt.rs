//! The line at the bottom in which one types: filter, search, frame number, file name, column.
//!
//! ```text
//!  smb2.cmd            Command            ◂ what could stand here; Up and Down choose, Tab takes
//!  smb2.credit.charge  Credit Charge
//!  unknown field "smb2.cm"; did you mean smb2.cmd?
//! filter: smb2.cm█
//! ```

use super::draw::{clear, put};
use super::model::Model;
use super::search;
use super::time::grouped;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::Rect;
use rdmascope_dissector::filter::{Error, Filter, Suggestion, SuggestionKind, complete};
use rdmascope_dissector::registry::Registry;
use unicode_width::UnicodeWidthStr;

/// Maximum number of suggestions on the screen.
const SUGGESTIONS: usize = 8;

/// The purpose of a prompt.
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
    pub(crate) suggestions: Vec<Suggestion>,
    pub(crate) chosen: Option<usize>,
    error: Option<Error>,
    history: Vec<String>,
    /// Number of steps back in the history.
    pub(crate) back: usize,
    /// Text before going back in the history.
    draft: String,
    /// Hint that explains the prompt.
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
                // a complete word needs no suggestion
                self.suggestions.retain(|s| self.text.get(s.replace.clone()) != Some(&*s.text));
                rank(&mut self.suggestions, &self.history);
            }
            Kind::Column => {
                // a column is a field: the same suggestions as at the beginning of a filter
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

    pub(crate) fn take_suggestion(&mut self, registry: &Registry) {
        let Some(s) = self.suggestions.get(self.chosen.unwrap_or(0)).cloned() else { return };
        self.text.replace_range(s.replace.clone(), &s.text);
        self.cursor = s.replace.start + s.text.len();
        self.changed(registry);
    }

    pub(crate) fn recall(&mut self, older: bool, registry: &Registry) {
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
    pub(crate) fn edit(&mut self, key: KeyEvent, registry: &Registry) -> bool {
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

pub(crate) fn filter(model: &Model) -> Box<Prompt> {
    let mut prompt = Prompt::new(Kind::Filter, &model.filter.text);
    prompt.history.clone_from(&model.history);
    prompt.changed(&model.registry);
    Box::new(prompt)
}

pub(crate) fn search(model: &Model) -> Box<Prompt> {
    let mut prompt = Prompt::new(Kind::Search, "");
    prompt.about = search::HELP.to_owned();
    if !model.search.is_empty() {
        let again = rdmascope_dissector::render::escaped(&model.search);
        prompt.about = format!("{}   Enter searches for \"{again}\" again", search::HELP);
    }
    Box::new(prompt)
}

pub(crate) fn goto() -> Box<Prompt> {
    Box::new(Prompt::new(Kind::Goto, ""))
}

pub(crate) fn keys() -> Box<Prompt> {
    let mut prompt = Prompt::new(Kind::Keys, "");
    prompt.about = "keys and passwords, as for --keys; they replace those given before".to_owned();
    Box::new(prompt)
}

pub(crate) fn open(model: &Model) -> Box<Prompt> {
    let mut prompt = Prompt::new(Kind::Open, "");
    prompt.history.clone_from(&model.recent);
    if !model.recent.is_empty() {
        prompt.about = "Up has the captures opened before".to_owned();
    }
    Box::new(prompt)
}

pub(crate) fn column(model: &Model) -> Box<Prompt> {
    let mut prompt = Prompt::new(Kind::Column, "");
    prompt.about =
        "a field and its position (smb2.msg_id 1); the same field again removes it, an empty line removes all"
            .to_owned();
    // existing columns can be recalled, to be moved or removed
    prompt.history = model.columns.iter().map(|def| def.name.to_owned()).collect();
    Box::new(prompt)
}

/// The frames that are saved, as text.
fn frames(model: &Model) -> String {
    let of = |n: usize, which: &str| {
        let frames = if n == 1 { "frame" } else { "frames" };
        format!("{}{which} {frames}", grouped(n as u64))
    };
    match (model.marks.len(), model.shown.as_ref()) {
        (0, None) if model.index.len() == 1 => of(1, ""),
        (0, None) => format!("all {}", of(model.index.len(), "")),
        (0, Some(shown)) => of(shown.len(), " shown"),
        (marked, _) => of(marked, " marked"),
    }
}

/// A name for an output that is not that of the capture: `trace-frames.pcapng` of `trace.pcap.gz`.
fn file_name(model: &Model, what: &str, extension: &str) -> String {
    let mut stem = model.title.as_str();
    for known in [".gz", ".zst", ".lz4", ".pcapng", ".pcap", ".cap"] {
        stem = stem.strip_suffix(known).unwrap_or(stem);
    }
    let stem: String =
        stem.chars().map(|c| if c.is_control() || matches!(c, '/' | ' ' | ',') { '-' } else { c }).collect();
    format!("{stem}-{what}.{extension}")
}

pub(crate) fn save(model: &Model) -> Box<Prompt> {
    let what = if model.marks.is_empty() { "frames" } else { "marked" };
    let mut prompt = Prompt::new(Kind::Save, &file_name(model, what, "pcapng"));
    prompt.about = format!("{}, as pcapng", frames(model));
    Box::new(prompt)
}

pub(crate) fn export(model: &Model) -> Box<Prompt> {
    let name = model.view.name().to_lowercase().replace('/', "");
    let mut prompt = Prompt::new(Kind::Export, &file_name(model, &name, "csv"));
    prompt.about = "rows of this view; .csv has commas, anything else tabs".to_owned();
    Box::new(prompt)
}

/// Draws the prompt and the suggestions above it.
pub(crate) fn draw(model: &Model, prompt: &Prompt, buf: &mut Buffer) {
    let theme = &model.theme;
    let (width, height) = model.size;
    let bottom = height - 1;
    clear(buf, Rect { x: 0, y: bottom, width, height: 1 });
    let label = prompt.label();
    let x = put(buf, 0, bottom, width, label, theme.key);
    // of a long line, the part around the cursor
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
    let complaint = model.note.as_ref().filter(|note| note.is_error);
    let is_empty = prompt.text.trim().is_empty();
    let escaped = rdmascope_dissector::render::escaped;
    if let Some(e) = prompt.error.as_ref().filter(|_| !is_empty) {
        above(&escaped(&e.to_string()), theme.error);
    } else if let Some(note) = complaint {
        // the prompt is drawn over the line of the notes
        above(&escaped(&note.text), theme.error);
    } else if !prompt.about.is_empty() {
        above(&prompt.about, theme.faint);
    } else if prompt.error.is_none() && prompt.kind == Kind::Filter && !is_empty {
        above("✓ Enter filters", theme.good);
    }
    let first = prompt.chosen.map_or(0, |c| c.saturating_sub(SUGGESTIONS - 1));
    let seen: Vec<(usize, &Suggestion)> = prompt.suggestions.iter().enumerate().skip(first).take(SUGGESTIONS).collect();
    let widest = seen.iter().map(|(_, s)| s.text.chars().count()).max().unwrap_or(0).min(usize::from(width) / 2);
    for (i, s) in seen.into_iter().rev() {
        let style = if prompt.chosen == Some(i) { theme.selected } else { theme.text };
        above(&format!("{:widest$}  {}", s.text, s.detail), style);
    }
}
