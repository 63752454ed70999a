//! Keys of popups: the prompt, questions, help, and the choices of what to copy or to sort by.

use super::*;
use crate::draw::text_rows;
use crate::keys::{Context, bindings};
use crate::prompt::{Kind, Prompt};
use crate::screen::Part;
use crate::search::Needle;
use ratatui::crossterm::event::{KeyCode, KeyModifiers};
use rdmascope_dissector::filter::Filter as Parsed;

/// Handles a key while a popup is open.
pub(super) fn key(app: &mut App, popup: Popup, key: KeyEvent) -> Vec<Effect> {
    let action = app.model.keys.action(key);
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
                let requests = app.states.of_mut(app.model.view).sort_by(&app.model, usize::from(c as u8 - b'a'));
                app.carry_out(requests)
            }
            _ => Vec::new(),
        },
        Popup::Question(question) => answer(app, question, key),
        Popup::Help(top) | Popup::Text(_, _, top) => {
            let len = match &popup {
                Popup::Text(title, lines, _) => text_rows(app.model.size, title, lines).1.len(),
                _ => bindings().count() + Context::ALL.len() * 2,
            };
            let page = usize::from(app.model.size.1.saturating_sub(4)).max(1);
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
    let chosen = question
        .answers
        .iter()
        .find(|(c, ..)| key.code == KeyCode::Char(*c) || quits && *c == 'q')
        .map(|(.., a)| a.clone());
    match chosen {
        Some(Answer::Do(effects)) => effects,
        Some(Answer::Save) => {
            app.popup = Some(Popup::Prompt(prompt::save(&app.model)));
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
    let text = app.states.of_mut(app.model.view).copied(&app.model, part);
    match text {
        Some(text) => {
            app.model.say(format!("copied {}", text.chars().take(60).collect::<String>()));
            vec![Effect::Copy(text)]
        }
        None => {
            app.model.complain("there is nothing of that kind here");
            Vec::new()
        }
    }
}

fn prompt_key(app: &mut App, mut prompt: Box<Prompt>, key: KeyEvent) -> Vec<Effect> {
    let registry = app.model.registry.clone();
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
            if let Err(e) = Parsed::parse(&text, &app.model.registry) {
                app.model.complain(e.to_string());
                app.popup = Some(Popup::Prompt(prompt));
                return Vec::new();
            }
            if !text.is_empty() && !app.screen().is_filtered() {
                app.go(View::Frames);
            }
            app.filter_by(&text)
        }
        Kind::Search => {
            if let Err(e) = Needle::parse(&text, &app.model.registry) {
                app.model.complain(e);
                app.popup = Some(Popup::Prompt(prompt));
                return Vec::new();
            }
            if !text.is_empty() {
                app.model.search = text;
            }
            search_again(app, true)
        }
        Kind::Goto => match text.replace([',', '_'], "").parse::<u64>() {
            Ok(number) => app.go_to_frame(number),
            Err(_) => {
                app.model.complain(format!("\"{text}\" is not the number of a frame"));
                Vec::new()
            }
        },
        Kind::Column => {
            if let Err(e) = app.set_column(&text) {
                app.model.complain(e);
                return Vec::new();
            }
            vec![Effect::Keep(Keep::Columns(app.model.columns.iter().map(|def| def.name.to_owned()).collect()))]
        }
        Kind::Save | Kind::Export | Kind::Keys | Kind::Open if text.is_empty() => {
            app.model.complain("a file needs a name");
            Vec::new()
        }
        Kind::Keys => vec![Effect::Reopen(Reopen::WithKeys(text.into()))],
        Kind::Open => vec![Effect::Reopen(Reopen::Capture(text.into()))],
        Kind::Save => app.write(text.into(), Output::Frames(chosen_frames(app))),
        Kind::Export if app.screen().lists_frames() => {
            app.write(text.into(), Output::Lines(listed_frames(app, true), app.model.columns.clone()))
        }
        Kind::Export => app.write(text.into(), Output::Table(app.screen().export(&app.model))),
    }
}

/// Marked frames, else shown ones, in the order of the capture.
fn chosen_frames(app: &App) -> Which {
    if !app.model.marks.is_empty() {
        return Which::These(app.model.marks.iter().map(|n| n - 1).collect());
    }
    app.model.frames_shown()
}

/// The frames of the list in its order. With `marked`, only the marked ones if there are any, in the order of the
/// capture.
fn listed_frames(app: &App, marked: bool) -> Which {
    if marked && !app.model.marks.is_empty() {
        return chosen_frames(app);
    }
    match &app.model.sorting.sorted {
        Some(_) => Which::These(
            (0..app.model.row_count()).filter_map(|row| app.model.frame_at(row)).map(|place| place as u32).collect(),
        ),
        None => app.model.frames_shown(),
    }
}

/// Goes to the next matching row, and wraps around if there is none.
pub(super) fn search_again(app: &mut App, forward: bool) -> Vec<Effect> {
    if app.model.search.is_empty() {
        app.model.complain("nothing was searched for yet");
        return Vec::new();
    }
    let needle = match Needle::parse(&app.model.search, &app.model.registry) {
        Ok(needle) => needle,
        Err(e) => {
            app.model.complain(e);
            return Vec::new();
        }
    };
    if app.screen().lists_frames() {
        let from = app.states.frames.list.at;
        // the row itself is looked at last
        let frames = match listed_frames(app, false) {
            Which::These(mut before) => {
                let after = before.split_off((from + usize::from(forward)).min(before.len()));
                if forward {
                    [Which::These(after), Which::These(before)]
                } else {
                    [Which::These(before), Which::These(after)]
                }
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
        return vec![Effect::Find { text: app.model.search.clone(), frames, forward }];
    }
    let Needle::Has(pattern) = needle else {
        app.model.complain(format!(
            "bytes and filters are searched for in frames: key {}",
            app.model.keys.first(Action::View(View::Frames))
        ));
        return Vec::new();
    };
    let model = &app.model;
    let screen = app.states.of_mut(model.view);
    let len = screen.len(model);
    let Some(at) = screen.cursor().map(|cursor| cursor.at.min(len.saturating_sub(1))) else {
        app.model.complain("this view has no list to search");
        return Vec::new();
    };
    let has = |row: &usize| pattern.is_in(&screen.row(model, *row).join(" "));
    let found = if forward {
        (at + 1..len).chain(0..len.min(at + 1)).find(has)
    } else {
        (0..at).rev().chain((at..len).rev()).find(has)
    };
    match found {
        Some(row) => {
            let wrapped = if forward { row <= at } else { row >= at };
            if let Some(cursor) = screen.cursor() {
                cursor.jump(row, len, 5);
            }
            if wrapped {
                app.model.say("the search went on from the other end");
            }
        }
        None => {
            app.model.complain(format!("\"{}\" was not found", rdmascope_dissector::render::escaped(&app.model.search)))
        }
    }
    Vec::new()
}
