//! The few shapes that all views are made of. Only rows that are seen are made.

use super::keys::Action;
use super::theme::Theme;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use unicode_width::UnicodeWidthStr;

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

    /// Moves to a distant row, and shows its surroundings.
    pub(crate) fn jump(&mut self, to: usize, len: usize, page: usize) {
        self.at = to.min(len.saturating_sub(1));
        if self.at < self.top || self.at >= self.top + page.max(1) {
            self.top = self.at.saturating_sub(page / 2);
        }
        self.show(len, page);
    }
}

/// Writes text at a position, cut to `width`. Returns its end.
pub(crate) fn put(buf: &mut Buffer, x: u16, y: u16, width: u16, text: &str, style: Style) -> u16 {
    if width == 0 || !buf.area.contains((x, y).into()) {
        return x;
    }
    let fits = UnicodeWidthStr::width(text) <= usize::from(width);
    let (end, _) = buf.set_stringn(x, y, text, usize::from(width), style);
    if !fits && end > x {
        buf.set_stringn(end - 1, y, "…", 1, style);
    }
    end
}

/// Text that ends at the right edge of `width`.
pub(crate) fn put_right(buf: &mut Buffer, x: u16, y: u16, width: u16, text: &str, style: Style) {
    let len = u16::try_from(UnicodeWidthStr::width(text)).unwrap_or(u16::MAX);
    let skip = width.saturating_sub(len);
    put(buf, x + skip, y, width - skip, text, style);
}

/// Text at the left, or at the right edge.
pub(crate) fn put_cell(buf: &mut Buffer, x: u16, y: u16, width: u16, text: &str, style: Style, right: bool) {
    if right {
        put_right(buf, x, y, width, text, style);
    } else {
        put(buf, x, y, width, text, style);
    }
}

/// Pieces of text one after another.
pub(crate) fn spans(buf: &mut Buffer, x: u16, y: u16, width: u16, pieces: &[(&str, Style)]) -> u16 {
    let end = x.saturating_add(width);
    let mut at = x;
    for (text, style) in pieces {
        at = put(buf, at, y, end.saturating_sub(at), text, *style);
    }
    at
}

/// A line across with a title in it: `── title ─────`.
pub(crate) fn rule(buf: &mut Buffer, area: Rect, y: u16, title: &str, right: &str, theme: &Theme, focused: bool) {
    let line = "─".repeat(usize::from(area.width));
    put(buf, area.x, y, area.width, &line, theme.faint);
    let style = if focused { theme.heading } else { theme.text };
    put(buf, area.x + 1, y, area.width.saturating_sub(2), &format!(" {title} "), style);
    if !right.is_empty() {
        let text = format!(" {right} ");
        let len = UnicodeWidthStr::width(text.as_str()) as u16;
        let used = UnicodeWidthStr::width(title) as u16 + 4;
        if used + len < area.width {
            put(buf, area.x + area.width - len - 1, y, len, &text, theme.faint);
        }
    }
}

/// Words on lines of at most `width` columns; one line at least.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let lines = rdmascope_report::report::words::wrap_hard(text, width.max(8));
    if lines.is_empty() { vec![String::new()] } else { lines }
}

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    pub(crate) title: &'static str,
    /// Width in columns of the terminal; 0 for the remaining space.
    pub(crate) width: u16,
    pub(crate) right: bool,
    /// Minimum width of the table in which the column is shown.
    pub(crate) from: u16,
}

/// A column.
pub(crate) const fn column(title: &'static str, width: u16) -> Column {
    Column { title, width, right: false, from: 0 }
}

/// A column of numbers.
pub(crate) const fn number(title: &'static str, width: u16) -> Column {
    Column { title, width, right: true, from: 0 }
}

impl Column {
    /// Only in a table at least so wide.
    pub(crate) const fn from(self, from: u16) -> Self {
        Self { from, ..self }
    }
}

/// A cell.
pub(crate) type Cell = (String, Style);

/// Minimum width of a flexible column; optional columns are left out to reach it.
const FLEXIBLE_MIN: u16 = 22;

/// Layout and state of a table.
pub(crate) struct Table<'t> {
    pub(crate) columns: &'t [Column],
    pub(crate) len: usize,
    pub(crate) cursor: Cursor,
    pub(crate) focused: bool,
    /// Column by which it is sorted, and whether the greatest is first.
    pub(crate) sorted: Option<(usize, bool)>,
}

/// Columns of which the first is a time, which takes so many columns of the terminal.
pub(crate) fn timed<const N: usize>(mut columns: [Column; N], width: u16) -> [Column; N] {
    if let Some(time) = columns.first_mut() {
        time.width = width;
    }
    columns
}

/// Positions of the columns that fit: index, left edge, width.
fn placed(columns: &[Column], area: Rect) -> Vec<(usize, u16, u16)> {
    let mut shown: Vec<usize> = (0..columns.len()).filter(|i| columns[*i].from <= area.width).collect();
    let flexible = shown.iter().filter(|i| columns[**i].width == 0).count() as u16;
    let room =
        |shown: &[usize]| area.width.saturating_sub(shown.iter().map(|i| columns[*i].width + 1).sum::<u16>() + 1);
    // optional columns are left out, the least important first, until the flexible ones are wide enough
    while flexible > 0 && room(&shown) / flexible < FLEXIBLE_MIN {
        let first = shown
            .iter()
            .copied()
            .filter(|i| columns[*i].from > 0 && columns[*i].width > 0)
            .max_by_key(|i| columns[*i].from);
        match first {
            Some(first) => shown.retain(|i| *i != first),
            None => break,
        }
    }
    let rest = room(&shown) / flexible.max(1);
    let mut x = area.x + 1;
    shown
        .into_iter()
        .map(|i| {
            let width = if columns[i].width == 0 { rest } else { columns[i].width };
            let width = width.min((area.x + area.width).saturating_sub(x));
            let from = x;
            x += width + 1;
            (i, from, width)
        })
        .collect()
}

/// The column whose head is at a place of the screen.
pub(crate) fn head_at(columns: &[Column], area: Rect, x: u16, y: u16) -> Option<usize> {
    placed(columns, area)
        .into_iter()
        .find(|(_, from, width)| y == area.y && *from <= x && x <= from + width)
        .map(|(i, ..)| i)
}

/// Arrow in the heading of the column by which a table is sorted.
pub(crate) const fn arrow(down: bool) -> &'static str {
    if down { "▾" } else { "▴" }
}

/// Draws a table: heads in the first line of `area`, rows below. `row` makes a row's cells, one for each column.
pub(crate) fn table(
    buf: &mut Buffer,
    area: Rect,
    theme: &Theme,
    table: &Table<'_>,
    mut row: impl FnMut(usize) -> Vec<Cell>,
) {
    if area.height == 0 || area.width < 4 {
        return;
    }
    let placed = placed(table.columns, area);
    for &(i, x, width) in &placed {
        let column = &table.columns[i];
        let sorted = table.sorted.filter(|(at, _)| *at == i).map_or("", |(_, down)| arrow(down));
        put_cell(buf, x, area.y, width, &format!("{}{sorted}", column.title), theme.faint, column.right);
    }
    let page = usize::from(area.height - 1);
    for line in 0..page {
        let at = table.cursor.top + line;
        if at >= table.len {
            break;
        }
        let y = area.y + 1 + line as u16;
        let cells = row(at);
        for &(i, x, width) in &placed {
            if let Some((text, style)) = cells.get(i) {
                put_cell(buf, x, y, width, text, *style, table.columns[i].right);
            }
        }
        if at == table.cursor.at {
            let style = if table.focused { theme.selected } else { theme.selected_elsewhere };
            buf.set_style(Rect { x: area.x, y, width: area.width, height: 1 }, style);
        }
    }
    scrollbar(buf, Rect { y: area.y + 1, height: area.height - 1, ..area }, table.cursor.top, table.len, theme);
}

/// Draws the position of the page in a long list.
pub(crate) fn scrollbar(buf: &mut Buffer, area: Rect, top: usize, len: usize, theme: &Theme) {
    let page = usize::from(area.height);
    if len <= page || page == 0 {
        return;
    }
    let at = ((top as u128 * (page as u128 - 1) + (len - page) as u128 / 2) / (len - page).max(1) as u128) as u16;
    put(buf, area.x + area.width - 1, area.y + at.min(area.height - 1), 1, "▐", theme.faint);
}

/// A line of a page that is read and not chosen from.
#[derive(Clone, Debug)]
pub(crate) enum Line {
    Head(String),
    Pieces(Vec<(String, Style)>),
}

/// A scrollable page of lines, for a view without rows to select.
#[derive(Clone, Debug, Default)]
pub(crate) struct Page {
    top: usize,
    /// The lines; `None` if they must be made.
    lines: Option<Vec<Line>>,
}

impl Page {
    /// Something that is on the page changed.
    pub(crate) fn outdated(&mut self) {
        self.lines = None;
    }

    /// True if its lines have to be made.
    pub(crate) fn is_outdated(&self) -> bool {
        self.lines.is_none()
    }

    pub(crate) fn set(&mut self, lines: Vec<Line>) {
        self.lines = Some(lines);
    }

    pub(crate) fn turn(&mut self, action: Action, height: u16) {
        let (len, page) = (self.lines.as_ref().map_or(0, Vec::len), usize::from(height));
        let mut cursor = Cursor { at: self.top, top: 0 };
        cursor.moved(action, len.saturating_sub(page) + 1, page);
        self.top = cursor.at;
    }

    pub(crate) fn draw(&self, buf: &mut Buffer, area: Rect, theme: &Theme) {
        let lines = self.lines.as_deref().unwrap_or(&[]);
        let top = self.top.min(lines.len().saturating_sub(1));
        for (i, line) in lines.iter().skip(top).take(usize::from(area.height)).enumerate() {
            let y = area.y + i as u16;
            match line {
                Line::Head(title) => rule(buf, Rect { y, height: 1, ..area }, y, title, "", theme, true),
                Line::Pieces(pieces) => {
                    let pieces: Vec<(&str, Style)> = pieces.iter().map(|(t, s)| (t.as_str(), *s)).collect();
                    spans(buf, area.x + 1, y, area.width.saturating_sub(2), &pieces);
                }
            }
        }
        scrollbar(buf, area, top, lines.len(), theme);
        if lines.is_empty() {
            put(buf, area.x + 1, area.y, area.width, "Reading …", theme.faint);
        }
    }
}

/// Makes a part of the screen empty.
pub(crate) fn clear(buf: &mut Buffer, area: Rect) {
    let area = area.intersection(buf.area);
    for y in area.top()..area.bottom() {
        for x in area.left()..area.right() {
            buf[(x, y)].reset();
        }
    }
}

/// Dots, two across and four down in each character.
pub(crate) struct Dots {
    width: usize,
    height: usize,
    cells: Vec<(u8, Style)>,
}

impl Dots {
    pub(crate) fn new(width: u16, height: u16) -> Self {
        let (width, height) = (usize::from(width), usize::from(height));
        Self { width, height, cells: vec![(0, Style::new()); width * height] }
    }

    /// A dot; the origin is at the top left.
    pub(crate) fn set(&mut self, x: usize, y: usize, style: Style) {
        const BITS: [[u8; 2]; 4] = [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]];
        if x / 2 >= self.width || y / 4 >= self.height {
            return;
        }
        let cell = &mut self.cells[y / 4 * self.width + x / 2];
        cell.0 |= BITS[y % 4][x % 2];
        cell.1 = style;
    }

    pub(crate) fn draw(&self, buf: &mut Buffer, x: u16, y: u16) {
        for (i, (bits, style)) in self.cells.iter().enumerate().filter(|(_, (bits, _))| *bits != 0) {
            let symbol = char::from_u32(0x2800 + u32::from(*bits)).unwrap_or(' ');
            put(
                buf,
                x + (i % self.width) as u16,
                y + (i / self.width) as u16,
                1,
                symbol.encode_utf8(&mut [0; 4]),
                *style,
            );
        }
    }
}

/// Maximum width of a window: longer lines are hard to read.
const TEXT_MAX: u16 = 84;
/// Maximum number of lines in a text whose lines are wrapped.
const BROKEN_MAX: usize = 4096;

/// Wraps a line. Continuation lines are aligned with its beginning, or with the text behind its key.
pub(crate) fn broken(line: &str, width: usize) -> Vec<String> {
    if UnicodeWidthStr::width(line) <= width {
        return vec![line.to_owned()];
    }
    let lead = line.len() - line.trim_start_matches(' ').len();
    let lead = if line[lead..].starts_with("- ") { lead + 2 } else { lead };
    let column = line[lead..].find("  ").filter(|_| lead > 0).map(|at| {
        let gap = &line[lead + at..];
        lead + at + gap.len() - gap.trim_start_matches(' ').len()
    });
    let (head, rest) = line.split_at(column.filter(|at| *at < width / 2 && line[..*at].is_ascii()).unwrap_or(lead));
    let indent = head.len().max(2);
    let pieces = wrap(rest, width.saturating_sub(indent));
    pieces
        .iter()
        .enumerate()
        .map(|(i, piece)| if i == 0 { format!("{head}{piece}") } else { format!("{:indent$}{piece}", "") })
        .collect()
}

/// The rows of a text in a popup, and their width. Lines that are too wide for the screen are wrapped.
pub(crate) fn text_rows((width, _): (u16, u16), title: &str, lines: &[String]) -> (u16, Vec<String>) {
    let widest =
        lines.iter().map(|l| UnicodeWidthStr::width(l.as_str())).max().unwrap_or(0).max(title.chars().count() + 4)
            as u16;
    let inner = (widest + 2).min(TEXT_MAX).min(width - 4);
    let rows = match lines.len() > BROKEN_MAX {
        // of a long text only the visible part is used; it is cut if it is too wide
        true => lines.to_vec(),
        false => lines.iter().flat_map(|l| broken(l, usize::from(inner) - 2)).collect(),
    };
    (inner, rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_words_are_broken_and_nothing_is_lost() {
        let text = "one two threeeeeeeeeeeeeeeeeeeeeee four";
        let lines = wrap(text, 10);
        assert!(lines.iter().all(|l| l.chars().count() <= 10), "{lines:?}");
        assert_eq!(lines.concat().replace(' ', ""), text.replace(' ', ""));
    }
}
