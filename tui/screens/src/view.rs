//! The screen, drawn from the state alone: title, tabs, the view, the bottom line, and popups.
//!
//! ```text
//! rdmascope  smb-roce-loss.pcap  1,134 frames  ▓▓▓▓▓▓░░░░ 61 %                                  ? help
//!  1 Overview  2 Frames  3 I/O  4 Credits  5 Sequence  6 Memory  7 Findings ✗2 !5  8 Statistics
//!  …
//! filter smb2.cmd == 8   214 of 1,134 frames                        / filter  e explain  q quit
//! ```

use super::app::{App, Popup};
use super::draw::{clear, put, put_right, text_rows};
use super::keys::{Action, Context, bindings};
use super::model::SMALLEST;
use super::prompt;
use super::tabs::tabs;
use super::time::grouped;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use rdmascope_dissector::render::escaped;

/// Draws everything.
pub(crate) fn draw(app: &App, buf: &mut Buffer) {
    let (width, height) = app.model.size;
    if width < SMALLEST.0 || height < SMALLEST.1 {
        let text = format!("The terminal is {width}×{height}; at least {}×{} is needed.", SMALLEST.0, SMALLEST.1);
        for (i, line) in super::draw::wrap(&text, usize::from(width)).iter().enumerate() {
            put(buf, 0, i as u16, width, line, app.model.theme.text);
        }
        return;
    }
    title(app, buf);
    for (view, x, text) in tabs(&app.model, &app.states) {
        let style = if view == app.model.view { app.model.theme.tab_active } else { app.model.theme.tab };
        put(buf, x, 1, width.saturating_sub(x), &text, style);
    }
    app.screen().draw(&app.model, buf);
    bottom(app, buf);
    match &app.popup {
        Some(Popup::Prompt(p)) => prompt::draw(&app.model, p, buf),
        Some(Popup::Help(top)) => help(app, *top, buf),
        Some(Popup::Text(title, lines, top)) => window(app, title, lines, *top, buf),
        Some(Popup::Copy) => {
            let lines = ["v  the value of the field", "r  the row", "b  the bytes", "f  the filter that selects it"]
                .map(str::to_owned);
            window(app, "copy", &lines, 0, buf);
        }
        Some(Popup::SortBy(names)) => {
            let lines: Vec<String> =
                (b'a'..=b'z').zip(names).map(|(key, name)| format!("{}  {name}", char::from(key))).collect();
            window(app, "sort by", &lines, 0, buf);
        }
        Some(Popup::Question(question)) => {
            let mut lines = question.lines.clone();
            lines.push(String::new());
            lines.extend(question.answers.iter().map(|(key, word, _)| format!("  {key}  {word}")));
            window(app, question.title, &lines, 0, buf);
        }
        None => {}
    }
}

fn title(app: &App, buf: &mut Buffer) {
    let theme = &app.model.theme;
    let width = app.model.size.0;
    let help = format!("{} help", app.model.keys.first(Action::Help));
    let room = width.saturating_sub(help.chars().count() as u16 + 2);
    let x = put(buf, 0, 0, room, "rdmascope", theme.title);
    let x = put(buf, x + 2, 0, (room.saturating_sub(x + 2)) * 3 / 5, &escaped(&app.model.title), theme.text);
    let frames = format!("{} frames", grouped(app.model.index.len() as u64));
    let x = put(buf, x + 2, 0, room.saturating_sub(x + 2), &frames, theme.text);
    let state = match (&app.model.error, app.model.done, app.model.progress.total) {
        (Some(error), ..) => format!("✗ {}", escaped(error)),
        (None, true, _) if app.model.is_kept => "from its index".to_owned(),
        (None, true, _) => String::new(),
        (None, false, _) if app.model.grows => live(app),
        (None, false, Some(total)) if total > 0 => {
            let tenths = (app.model.progress.done.saturating_mul(10) / total).min(10) as usize;
            format!(
                "{}{} {} %",
                "▓".repeat(tenths),
                "░".repeat(10 - tenths),
                (app.model.progress.done.saturating_mul(100) / total).min(100)
            )
        }
        _ => "● reading".to_owned(),
    };
    let lost = app.model.live.as_ref().is_some_and(|l| l.dropped > 0 || l.note.is_some());
    let style = if app.model.error.is_some() || lost { theme.error } else { theme.good };
    put(buf, x + 2, 0, room.saturating_sub(x + 2), &state, style);
    put_right(buf, 0, 0, width - 1, &help, theme.key);
}

/// State of a live capture, as text.
fn live(app: &App) -> String {
    let Some(live) = &app.model.live else { return "● live".to_owned() };
    let state = if app.model.is_paused { "‖ stopped" } else { "● live" };
    let mut text = format!("{state}, {} dropped", grouped(live.dropped));
    if let Some(note) = &live.note {
        text.push_str(&format!("; {}", escaped(note)));
    }
    text
}

/// Active filters, sorting and marks, and tasks in progress, as text.
fn standing(app: &App) -> String {
    let percent = |done: usize, all: usize| format!("{} %", done.min(all) * 100 / all.max(1));
    let mut parts = Vec::new();
    if let Some((what, done, all)) = app.model.working {
        parts.push(format!("{what} {}, {} ends it", percent(done, all), app.model.keys.first(Action::Back)));
    }
    if app.screen().lists_frames() && app.model.sorting.is_under_way() {
        let name = app.model.sorting.by.name();
        parts.push(if app.model.done || app.model.grows {
            format!(
                "sorting by {name} {}, {} ends it",
                percent(app.model.sorting.looked, app.model.row_count()),
                app.model.keys.first(Action::Back)
            )
        } else {
            format!("sorted by {name} when all is read")
        });
    } else if app.screen().lists_frames() && app.model.sorting.is_on() {
        parts.push(format!("sorted by {}", app.model.sorting.by.name()));
    }
    if app.model.filter.is_on() {
        let mut text = format!(
            "filter {}   {} of {} frames",
            escaped(&app.model.filter.text),
            grouped(app.model.row_count() as u64),
            grouped(app.model.index.len() as u64)
        );
        if !app.model.filter.done {
            text.push_str(&format!(", {}", percent(app.model.filter.looked, app.model.index.len())));
        }
        parts.push(text);
    }
    if app.model.followed.is_some()
        && let Some(c) = app.model.subject()
    {
        parts.push(format!("connection {} alone", c.id));
    }
    if !app.model.marks.is_empty() {
        parts.push(format!("{} marked", app.model.marks.len()));
    }
    parts.join("   ")
}

fn bottom(app: &App, buf: &mut Buffer) {
    let theme = &app.model.theme;
    let (width, height) = app.model.size;
    let y = height - 1;
    if let Some(note) = &app.model.note {
        put(buf, 0, y, width, &escaped(&note.text), if note.is_error { theme.error } else { theme.good });
        return;
    }
    let left = standing(app);
    let end = put(buf, 0, y, width, &left, theme.mark);
    let hints = app.screen().hints();
    let common: &[(Action, &str)] = &[(Action::Filter, "filter"), (Action::Export, "export"), (Action::Quit, "quit")];
    let mut pieces = Vec::new();
    for (action, word) in hints.iter().chain(common) {
        if *action == Action::Follow && app.model.followed.is_some() {
            pieces.push((app.model.keys.first(Action::Everything), "all"));
        } else {
            pieces.push((app.model.keys.first(*action), *word));
        }
    }
    let len = |pieces: &[(String, &str)]| {
        pieces.iter().map(|(k, w)| k.chars().count() + w.chars().count() + 3).sum::<usize>() as u16
    };
    // the last ones are the same everywhere and go first
    let room = width.saturating_sub(if left.is_empty() { 0 } else { end + 2 });
    while len(&pieces) > room && pieces.len() > 1 {
        let at = pieces.len() - 2;
        pieces.remove(at);
    }
    if len(&pieces) > room {
        return;
    }
    let mut x = width - len(&pieces);
    for (key, word) in pieces {
        x = put(buf, x, y, width.saturating_sub(x), &key, theme.key);
        x = put(buf, x + 1, y, width.saturating_sub(x + 1), word, theme.faint) + 2;
    }
}

/// A window in the middle.
fn window(app: &App, title: &str, lines: &[String], top: usize, buf: &mut Buffer) {
    let theme = &app.model.theme;
    let (width, height) = app.model.size;
    let (inner, broken) = text_rows((width, height), title, lines);
    let rows = (broken.len() as u16).min(height - 4);
    let area = Rect { x: (width - inner - 2) / 2, y: (height - rows - 2) / 2, width: inner + 2, height: rows + 2 };
    clear(buf, area);
    let across = "─".repeat(usize::from(inner));
    put(buf, area.x, area.y, area.width, &format!("┌{across}┐"), theme.faint);
    put(buf, area.x, area.bottom() - 1, area.width, &format!("└{across}┘"), theme.faint);
    put(buf, area.x + 2, area.y, inner, &format!(" {title} "), theme.heading);
    let more = broken.len().saturating_sub(usize::from(rows));
    let top = top.min(more);
    for line in 0..rows {
        let y = area.y + 1 + line;
        put(buf, area.x, y, 1, "│", theme.faint);
        put(buf, area.right() - 1, y, 1, "│", theme.faint);
        if let Some(text) = broken.get(top + usize::from(line)) {
            let is_heading = !text.starts_with(' ')
                && !text.is_empty()
                && !matches!(title, "copy" | "sort by")
                && line + top as u16 > 0;
            put(buf, area.x + 2, y, inner - 2, text, if is_heading { theme.heading } else { theme.text });
        }
    }
    let hint = if more > 0 {
        format!(" {} {} more, Esc closes ", app.model.keys.first(Action::Up), app.model.keys.first(Action::Down))
    } else {
        " Esc closes ".to_owned()
    };
    put_right(buf, area.x, area.bottom() - 1, area.width - 2, &hint, theme.faint);
}

/// The key table, as help.
fn help(app: &App, top: usize, buf: &mut Buffer) {
    let mut lines = Vec::new();
    for context in Context::ALL {
        lines.push(context.title().to_owned());
        for binding in bindings().filter(|b| b.context == context) {
            lines.push(format!("  {:<16} {}", app.model.keys.of(binding.action), binding.help));
        }
        lines.push(String::new());
    }
    lines.pop();
    window(app, "keys", &lines, top, buf);
}

#[cfg(test)]
mod tests {
    use crate::draw::broken;

    #[test]
    fn what_is_broken_stands_where_it_belongs() {
        assert_eq!(broken("  - one two three", 12), ["  - one two", "    three"]);
        assert_eq!(broken("  F1   what it does", 16), ["  F1   what it", "       does"]);
        assert_eq!(broken("one two three", 10), ["one two", "  three"]);
        assert_eq!(broken("  one two", 20), ["  one two"]);
        assert!(broken(&format!("  {}", "x".repeat(100)), 10).iter().all(|l| l.len() <= 10));
    }
}
