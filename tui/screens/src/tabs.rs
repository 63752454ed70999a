//! The line of tabs: views, positions, texts.

use super::model::Model;
use super::states::States;
use super::views::View;
use unicode_width::UnicodeWidthStr;

/// The tabs: view, position, text.
pub(crate) fn tabs(model: &Model, states: &States) -> Vec<(View, u16, String)> {
    let label = |view: View, length: usize| {
        let mut name: String = match length {
            0 => view.name().to_owned(),
            1 => view.short_name().to_owned(),
            2 => view.short_name().chars().take(3).collect(),
            _ => view.short_name().chars().filter(|c| c.is_alphabetic()).take(2).collect(),
        };
        name.push_str(&states.of(view).badge(model));
        format!(" {} {name} ", view.key().first().copied().unwrap_or_default())
    };
    let lay = |length: usize| {
        let mut x = 0;
        let tabs: Vec<_> = View::ALL
            .iter()
            .copied()
            .map(|view| {
                let text = label(view, length);
                let at = x;
                x += UnicodeWidthStr::width(text.as_str()) as u16;
                (view, at, text)
            })
            .collect();
        (x <= model.size.0).then_some(tabs)
    };
    (0..4).find_map(lay).unwrap_or_default()
}

/// The view whose tab is at a column.
pub(crate) fn tab_at(model: &Model, states: &States, x: u16) -> Option<View> {
    tabs(model, states)
        .into_iter()
        .rev()
        .find(|(_, at, _)| *at <= x)
        .filter(|(_, at, text)| x < at + UnicodeWidthStr::width(text.as_str()) as u16)
        .map(|(v, ..)| v)
}
