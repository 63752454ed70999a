//! Findings, what matters first; below, the selected one: what happened, why, what to do, and where.
//!
//! ```text
//!  ✗ SMBD-NEG-RSP-FRAGSIZE  server  ×6   f 23    offered MaxFragmentedSize 130,560; at least 131,072 is required
//!  ! RC-RETRANSMIT          network ×11  f 311   11 packets went out again
//! ── SMBD-NEG-RSP-FRAGSIZE ─────────────────────────── [MS-SMBD] 3.1.5.7 ──
//!  The server offered too small a MaxFragmentedSize
//!  cause   …
//!  do      …
//!  frames  23  41  58 …        ◂ ▸ choose, Enter goes there
//! ```

use super::app::{App, Cursor, Effect, Found};
use super::draw::{self, Cell, Column, Table, column, number, put, rule, wrap};
use super::keys::Action;
use super::screen::{Change, Screen};
use super::theme::sign;
use super::time::grouped;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use rdmascope_analyzer::finding::{Certainty, Finding};
use rdmascope_dissector::render::escaped;

/// Frames of the selected finding that stand in its line.
const FRAMES_SHOWN: usize = 8;

/// What is shown.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    pub(crate) list: Cursor,
    /// Which of the frames of the selected finding.
    occurrence: usize,
}

/// Columns of a list of findings.
pub(crate) const COLUMNS: [Column; 6] =
    [column("", 1), column("finding", 24), column("by", 7).from(90), number("times", 6), number("frame", 8), column("what happened", 0)];

fn layout(app: &App) -> [Rect; 2] {
    let body = app.body();
    let below = (body.height * 3 / 5).clamp(8, 18).min(body.height.saturating_sub(4));
    [Rect { height: body.height - below, ..body }, Rect { y: body.y + body.height - below, height: below, ..body }]
}

pub(crate) fn selected(app: &App) -> Option<Found> {
    app.found.get(app.states.findings.list.at).cloned()
}

pub(crate) fn selected_frame(app: &App) -> Option<u64> {
    let finding = selected(app)?;
    finding.frames.get(app.states.findings.occurrence).copied().or(Some(finding.frame))
}

/// The connection of the selected finding, by the number under which it is followed.
pub(crate) fn selected_connection(app: &App) -> Option<u32> {
    let id = selected(app)?.connection?;
    app.report.numbered(id)?.followed_as.first().copied()
}

pub(crate) fn act(app: &mut App, action: Action) -> Vec<Effect> {
    match action {
        Action::Open => {
            if let Some(frame) = selected_frame(app) {
                return app.go_to_frame(frame);
            }
        }
        Action::Left => app.states.findings.occurrence = app.states.findings.occurrence.saturating_sub(1),
        Action::Right => {
            let last = selected(app).map_or(0, |f| f.frames.len().saturating_sub(1));
            app.states.findings.occurrence = (app.states.findings.occurrence + 1).min(last);
        }
        _ => {
            let (len, page) = (app.found.len(), usize::from(layout(app)[0].height.saturating_sub(1)));
            app.states.findings.list.moved(action, len, page);
            app.states.findings.occurrence = 0;
        }
    }
    Vec::new()
}

pub(crate) fn click(app: &mut App, _: u16, y: u16) {
    let [list, below] = layout(app);
    if y > list.y && y < below.y {
        let row = app.states.findings.list.top + usize::from(y - list.y - 1);
        if row < app.found.len() {
            app.states.findings.list.at = row;
            app.states.findings.occurrence = 0;
        }
    }
}

/// The row of a finding.
pub(crate) fn cells(app: &App, finding: &Found) -> Vec<Cell> {
    let theme = &app.theme;
    let style = theme.severity(finding.severity);
    let times = if finding.count > 1 { format!("×{}", grouped(finding.count)) } else { String::new() };
    vec![
        (sign(finding.severity).to_owned(), style),
        (finding.rule.id().to_owned(), style),
        (finding.by.name().to_owned(), theme.text),
        (times, theme.text),
        (finding.frame.to_string(), theme.text),
        (escaped(&finding.text), theme.text),
    ]
}

/// Who did it, and what happened, as a sentence.
pub(crate) fn sentence(finding: &Finding) -> String {
    use rdmascope_analyzer::finding::Blame;
    let text = escaped(&finding.text);
    match finding.by {
        // what happened to something, and not what somebody did
        _ if text.starts_with(char::is_uppercase) => text,
        Blame::Client => format!("The client {text}"),
        Blame::Server => format!("The server {text}"),
        // these begin with what they are about
        Blame::Network | Blame::Capture | Blame::Unknown => {
            let mut chars = text.chars();
            chars.next().map_or_else(String::new, |c| c.to_uppercase().chain(chars).collect())
        }
    }
}

pub(crate) fn draw(app: &App, buf: &mut Buffer) {
    let [list, below] = layout(app);
    let theme = &app.theme;
    let findings = &app.found;
    let shape = Table { columns: &COLUMNS, len: findings.len(), cursor: app.states.findings.list, focused: true, sorted: None };
    draw::table(buf, list, theme, &shape, |row| findings.get(row).map_or_else(Vec::new, |f| cells(app, f)));
    let Some(finding) = findings.get(app.states.findings.list.at) else {
        let text = if app.done { "✓ No problems found." } else { "Reading …" };
        put(buf, list.x + 2, list.y + 1, list.width, text, theme.good);
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
    match finding.certainty {
        Certainty::Certain => {}
        Certainty::IfNothingWasMissed => say("sure", "if the capture missed nothing that would explain it", theme.faint),
        Certainty::Guess => say("sure", "a guess, from timing or from the shape of the data", theme.faint),
    }
    if !finding.effects.is_empty() {
        let many = |n: u64| if n > 1 { format!(" ×{}", grouped(n)) } else { String::new() };
        let list: Vec<String> = finding.effects.iter().map(|(rule, n)| format!("{}{}", rule.id(), many(*n))).collect();
        say("with it", &list.join(", "), theme.text);
    }
    if finding.connections.len() > 1 {
        say("on", &format!("{} connections", finding.connections.len()), theme.text);
    }
    if let Some(cause) = row.causes.first() {
        say("cause", cause, theme.text);
    }
    say("do", row.cure, theme.good);
    let height = usize::from(below.height.saturating_sub(2));
    for (line, (head, text, style)) in lines.iter().take(height).enumerate() {
        let y = below.y + 1 + line as u16;
        put(buf, below.x + 1, y, 8, head, theme.faint);
        put(buf, below.x + 9, y, below.width - 10, text, *style);
    }
    let y = below.y + below.height - 1;
    let mut x = put(buf, below.x + 1, y, 8, "frames", theme.faint).max(below.x + 9);
    // those around the chosen one
    let from = app.states.findings.occurrence.saturating_sub(FRAMES_SHOWN - 1);
    for (i, frame) in finding.frames.iter().enumerate().skip(from).take(FRAMES_SHOWN) {
        let style = if i == app.states.findings.occurrence { theme.selected } else { theme.text };
        x = put(buf, x, y, below.right().saturating_sub(x + 1), &format!(" {frame} "), style);
    }
    if finding.count as usize > finding.frames.len().min(from + FRAMES_SHOWN) {
        x = put(buf, x, y, below.right().saturating_sub(x + 1), " …", theme.faint);
    }
    let hint = format!("  ◂ ▸ choose, {} goes there", app.keys.first(Action::Open));
    let short = format!("  {} goes there", app.keys.first(Action::Open));
    let room = below.right().saturating_sub(x + 1);
    put(buf, x, y, room, if hint.chars().count() > usize::from(room) { &short } else { &hint }, theme.faint);
}

/// For an export: heads, then rows.
pub(crate) fn rows(app: &App) -> Vec<Vec<String>> {
    let heads = ["id", "severity", "certainty", "by", "connection", "frame", "count", "text", "spec"].map(str::to_owned).to_vec();
    std::iter::once(heads).chain(app.found.iter().map(export)).collect()
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

/// The view.
pub(crate) struct Findings;

impl Screen for Findings {
    fn hints(&self) -> &'static [(Action, &'static str)] {
        &[(Action::Open, "frame"), (Action::Explain, "explain"), (Action::Follow, "follow")]
    }

    fn draw(&self, app: &App, buf: &mut Buffer) {
        draw(app, buf);
    }

    fn act(&self, app: &mut App, action: Action) -> Vec<Effect> {
        act(app, action)
    }

    fn click(&self, app: &mut App, x: u16, y: u16) -> Vec<Effect> {
        click(app, x, y);
        Vec::new()
    }

    fn selected_frame(&self, app: &App) -> Option<u64> {
        selected_frame(app)
    }

    fn selected_connection(&self, app: &App) -> Option<u32> {
        selected_connection(app)
    }

    fn selected_finding(&self, app: &App) -> Option<Found> {
        selected(app)
    }

    fn is_chosen(&self, _: &App) -> bool {
        true
    }

    fn cursor<'a>(&self, app: &'a mut App) -> Option<&'a mut Cursor> {
        Some(&mut app.states.findings.list)
    }

    fn len(&self, app: &App) -> usize {
        app.found.len()
    }

    fn row(&self, app: &App, at: usize) -> Vec<String> {
        app.found.get(at).map_or_else(Vec::new, export)
    }

    fn export(&self, app: &App) -> Vec<Vec<String>> {
        rows(app)
    }

    fn changed(&self, app: &mut App, change: Change) {
        if change == Change::Restarted {
            app.states.findings = State::default();
        }
    }
}
