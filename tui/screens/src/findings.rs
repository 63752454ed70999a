//! Findings, the most important first; below, the selected one: what happened, why, what to do, and where.
//!
//! ```text
//!  ✗ SMBD-NEG-RSP-FRAGSIZE  server  ×6   f 23    offered MaxFragmentedSize 130,560; at least 131,072 is required
//!  ! RC-RETRANSMIT          network ×11  f 311   11 packets were retransmitted
//! ── SMBD-NEG-RSP-FRAGSIZE ─────────────────────────── [MS-SMBD] 3.1.5.7 ──
//!  The server offered too small a MaxFragmentedSize
//!  cause   …
//!  do      …
//!  frames  23  41  58 …        ◂ ▸ choose, Enter goes there
//! ```

use super::digest::Found;
use super::draw::{self, Cell, Column, Cursor, Table, column, number, put, rule, wrap};
use super::keys::Action;
use super::model::Model;
use super::screen::{Change, Request, Screen};
use super::theme::sign;
use super::time::grouped;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use rdmascope_analyzer::finding::{Certainty, Finding};
use rdmascope_analyzer::rules::Severity;
use rdmascope_dissector::render::escaped;
use rdmascope_report::report::{Headline, certainty_text};

/// Frames of the selected finding that are shown in its line.
const FRAMES_SHOWN: usize = 8;

/// State of the view.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    pub(crate) list: Cursor,
    /// Index of the chosen frame among those of the selected finding.
    occurrence: usize,
}

/// Columns of a list of findings.
pub(crate) const COLUMNS: [Column; 7] = [
    column("", 1),
    column("finding", 24),
    column("by", 7).from(90),
    column("sure", 7).from(110),
    number("times", 6),
    number("frame", 8),
    column("what happened", 0),
];

/// Certainty of a finding, in a word.
fn sure(certainty: Certainty) -> &'static str {
    match certainty {
        Certainty::Certain => "certain",
        Certainty::IfNothingWasMissed => "likely",
        Certainty::Guess => "guess",
    }
}

fn layout(model: &Model) -> [Rect; 2] {
    let body = model.body();
    let below = (body.height * 3 / 5).clamp(8, 18).min(body.height.saturating_sub(4));
    [Rect { height: body.height - below, ..body }, Rect { y: body.y + body.height - below, height: below, ..body }]
}

/// The row of a finding.
pub(crate) fn cells(model: &Model, finding: &Found) -> Vec<Cell> {
    let theme = &model.theme;
    let style = theme.severity(finding.severity);
    let times = if finding.count > 1 { format!("×{}", grouped(finding.count)) } else { String::new() };
    vec![
        (sign(finding.severity).to_owned(), style),
        (finding.rule.id().to_owned(), style),
        (finding.by.name().to_owned(), theme.text),
        (
            sure(finding.certainty).to_owned(),
            if finding.certainty == Certainty::Certain { theme.text } else { theme.faint },
        ),
        (times, theme.text),
        (finding.frame.to_string(), theme.text),
        (escaped(&finding.text), theme.text),
    ]
}

/// The finding as a sentence, which names the side to blame.
pub(crate) fn sentence(finding: &Finding) -> String {
    use rdmascope_analyzer::finding::Blame;
    let text = escaped(&finding.text);
    match finding.by {
        // an event that is not the action of a side
        _ if text.starts_with(char::is_uppercase) => text,
        Blame::Client => format!("The client {text}"),
        Blame::Server => format!("The server {text}"),
        // these texts begin with their subject
        Blame::Network | Blame::Capture | Blame::Unknown => {
            let mut chars = text.chars();
            chars.next().map_or_else(String::new, |c| c.to_uppercase().chain(chars).collect())
        }
    }
}

/// For an export: heads, then rows.
pub(crate) fn rows(model: &Model) -> Vec<Vec<String>> {
    let heads = ["id", "severity", "certainty", "by", "connection", "frame", "count", "text", "spec"]
        .map(str::to_owned)
        .to_vec();
    std::iter::once(heads).chain(model.found.iter().map(export)).collect()
}

/// For an export: a row.
pub(crate) fn export(f: &Found) -> Vec<String> {
    vec![
        f.rule.id().to_owned(),
        f.severity.name().to_owned(),
        f.certainty.name().to_owned(),
        f.by.name().to_owned(),
        f.connections.iter().map(u32::to_string).collect::<Vec<_>>().join(" "),
        f.frame.to_string(),
        f.count.to_string(),
        escaped(&f.text),
        f.rule.row().spec.to_owned(),
    ]
}

impl Screen for State {
    fn hints(&self) -> &'static [(Action, &'static str)] {
        &[(Action::Open, "frame"), (Action::Explain, "explain"), (Action::Follow, "follow")]
    }

    /// Numbers of errors and warnings.
    fn badge(&self, model: &Model) -> String {
        [(Severity::Error, '✗'), (Severity::Warn, '!')]
            .into_iter()
            .map(|(severity, mark)| (model.found.count(severity), mark))
            .filter(|(count, _)| *count > 0)
            .map(|(count, mark)| format!(" {mark}{count}"))
            .collect()
    }

    fn draw(&self, model: &Model, buf: &mut Buffer) {
        let [list, below] = layout(model);
        let theme = &model.theme;
        let findings = &model.found;
        let shape = Table { columns: &COLUMNS, len: findings.len(), cursor: self.list, focused: true, sorted: None };
        draw::table(buf, list, theme, &shape, |row| findings.get(row).map_or_else(Vec::new, |f| cells(model, f)));
        let Some(finding) = findings.get(self.list.at) else {
            let Headline { mark, text, .. } = model.report.headline(model.error.is_none());
            let text = if model.done { format!("{mark} {text}") } else { "Reading …".to_owned() };
            put(buf, list.x + 2, list.y + 1, list.width, &text, theme.good);
            if let Some(ignored) = &model.report.ignored {
                put(buf, list.x + 2, list.y + 2, list.width, ignored, theme.faint);
            }
            return;
        };
        let row = finding.rule.row();
        rule(buf, below, below.y, row.id, row.spec, theme, true);
        let width = usize::from(below.width.saturating_sub(12));
        let mut lines: Vec<(&str, String, Style)> = Vec::new();
        let mut say = |head: &'static str, text: &str, style: Style| {
            for (i, line) in wrap(text, width).into_iter().enumerate() {
                lines.push((if i == 0 { head } else { "" }, line, style));
            }
        };
        if let Some(title) = &finding.title {
            say("outcome", title, theme.severity(finding.severity));
        }
        say("what", &sentence(finding), theme.severity(finding.severity));
        say("means", row.title, theme.text);
        if finding.certainty != Certainty::Certain {
            say("sure", certainty_text(finding.certainty), theme.faint);
        }
        if !finding.effects.is_empty() {
            let many = |n: u64| if n > 1 { format!(" ×{}", grouped(n)) } else { String::new() };
            let list: Vec<String> =
                finding.effects.iter().map(|(rule, n)| format!("{}{}", rule.id(), many(*n))).collect();
            say("with it", &list.join(", "), theme.text);
        }
        if finding.connections.len() > 1 {
            say("on", &format!("{} connections", finding.connections.len()), theme.text);
        }
        if let Some(cause) = finding.causes().first() {
            say("cause", cause, theme.text);
        }
        say("do", finding.cure(), theme.good);
        let height = usize::from(below.height.saturating_sub(2));
        for (line, (head, text, style)) in lines.iter().take(height).enumerate() {
            let y = below.y + 1 + line as u16;
            put(buf, below.x + 1, y, 8, head, theme.faint);
            put(buf, below.x + 9, y, below.width - 10, text, *style);
        }
        let y = below.y + below.height - 1;
        let mut x = put(buf, below.x + 1, y, 8, "frames", theme.faint).max(below.x + 9);
        // those around the chosen one
        let from = self.occurrence.saturating_sub(FRAMES_SHOWN - 1);
        for (i, frame) in finding.frames.iter().enumerate().skip(from).take(FRAMES_SHOWN) {
            let style = if i == self.occurrence { theme.selected } else { theme.text };
            x = put(buf, x, y, below.right().saturating_sub(x + 1), &format!(" {frame} "), style);
        }
        if finding.count as usize > finding.frames.len().min(from + FRAMES_SHOWN) {
            x = put(buf, x, y, below.right().saturating_sub(x + 1), " …", theme.faint);
        }
        let hint = format!("  ◂ ▸ choose, {} goes there", model.keys.first(Action::Open));
        let short = format!("  {} goes there", model.keys.first(Action::Open));
        let room = below.right().saturating_sub(x + 1);
        put(buf, x, y, room, if hint.chars().count() > usize::from(room) { &short } else { &hint }, theme.faint);
    }

    fn act(&mut self, model: &Model, action: Action) -> Vec<Request> {
        match action {
            Action::Open => {
                if let Some(frame) = self.selected_frame(model) {
                    return vec![Request::GoToFrame(frame)];
                }
            }
            Action::Left => self.occurrence = self.occurrence.saturating_sub(1),
            Action::Right => {
                let last = self.selected_finding(model).map_or(0, |f| f.frames.len().saturating_sub(1));
                self.occurrence = (self.occurrence + 1).min(last);
            }
            _ => {
                let (len, page) = (model.found.len(), usize::from(layout(model)[0].height.saturating_sub(1)));
                self.list.moved(action, len, page);
                self.occurrence = 0;
            }
        }
        Vec::new()
    }

    fn click(&mut self, model: &Model, _: u16, y: u16) -> Vec<Request> {
        let [list, below] = layout(model);
        if y > list.y && y < below.y {
            let row = self.list.top + usize::from(y - list.y - 1);
            if row < model.found.len() {
                self.list.at = row;
                self.occurrence = 0;
            }
        }
        Vec::new()
    }

    fn selected_frame(&self, model: &Model) -> Option<u64> {
        let finding = self.selected_finding(model)?;
        finding.frames.get(self.occurrence).copied().or(Some(finding.frame))
    }

    /// The connection of the selected finding, by the number under which it is followed.
    fn selected_connection(&self, model: &Model) -> Option<u32> {
        let id = self.selected_finding(model)?.connection?;
        model.report.numbered(id)?.followed_as.first().copied()
    }

    fn selected_finding(&self, model: &Model) -> Option<Found> {
        model.found.get(self.list.at).cloned()
    }

    fn is_chosen(&self) -> bool {
        true
    }

    fn cursor(&mut self) -> Option<&mut Cursor> {
        Some(&mut self.list)
    }

    fn len(&self, model: &Model) -> usize {
        model.found.len()
    }

    fn row(&self, model: &Model, at: usize) -> Vec<String> {
        model.found.get(at).map_or_else(Vec::new, export)
    }

    fn export(&self, model: &Model) -> Vec<Vec<String>> {
        rows(model)
    }

    fn changed(&mut self, change: Change) {
        if change == Change::Restarted {
            *self = State::default();
        }
    }
}
