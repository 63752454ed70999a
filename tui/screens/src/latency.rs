//! Latency: every answered request by when it was sent and how long it took, as a map. A brush takes a part of it, and
//! all views show its requests alone.
//!
//! ```text
//!  requests 1,204   half within 0.52 ms, 99 % within 11 ms, the slowest 12.4 ms
//!  16.4 ms┤           ░
//!         │           ▒
//!  1.02 ms┤   ░▒▓▓▒░░ ░
//!   128 µs┤░▒▓█▓▒░
//!         └────────────────────────────────────
//!          0.000000          10.2 s            10.201337 s
//! ── 3.204 … 3.221 s ── 14 requests of 1.02 to 1.22 ms ──
//! ```

use super::draw::{put, put_right, rule, spans};
use super::keys::Action;
use super::model::Model;
use super::order;
use super::screen::{Change, Request, Screen};
use super::time::{grouped, seconds, span};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use rdmascope_analyzer::exchange::Exchange;
use rdmascope_analyzer::latency::Latency;

/// Number of columns of the stored map, independent of the screen.
const COLUMNS: usize = 512;
/// Rows of it: four for each doubling of the latency, in ns.
const ROWS: usize = 64 * 4;
/// Requests that are looked at in one step.
const STEP: usize = 100_000;
/// Columns of the screen left of the map.
const AXIS: u16 = 9;

/// The requests, counted.
#[derive(Clone, Debug)]
struct Map {
    /// Time at the left, in ns since the Unix epoch, and the ns of a column.
    start: i64,
    width: i64,
    counts: Vec<u32>,
    /// Places of requests that were looked at; requests that pass the filter when it was made.
    scanned: usize,
    passing: usize,
    /// All requests, and the rows between which they are.
    all: Latency,
    total: u64,
    rows: std::ops::Range<usize>,
    /// The longest latency in ns.
    slowest: i64,
}

impl Map {
    fn new(start: i64, width: i64, from: usize) -> Self {
        let counts = vec![0; COLUMNS * ROWS];
        Self {
            start,
            width: width.max(1),
            counts,
            scanned: from,
            passing: 0,
            all: Latency::default(),
            total: 0,
            rows: 0..1,
            slowest: 0,
        }
    }

    /// The column of a time, if it has one.
    fn column(&self, time: i64) -> Option<usize> {
        usize::try_from(time.checked_sub(self.start)?.div_euclid(self.width)).ok()
    }

    fn add(&mut self, time: i64, latency: i64, grows: bool) {
        // a growing capture: every two columns become one
        while grows && self.column(time).is_some_and(|c| c >= COLUMNS) {
            for row in self.counts.chunks_mut(COLUMNS) {
                for column in 0..COLUMNS / 2 {
                    row[column] = row[column * 2].saturating_add(row[column * 2 + 1]);
                }
                row[COLUMNS / 2..].fill(0);
            }
            self.width = self.width.saturating_mul(2);
        }
        if let Some(column) = self.column(time).filter(|c| *c < COLUMNS) {
            let row = row_of(latency);
            let count = &mut self.counts[row * COLUMNS + column];
            *count = count.saturating_add(1);
            self.all.add(latency);
            self.rows =
                if self.total == 0 { row..row + 1 } else { self.rows.start.min(row)..self.rows.end.max(row + 1) };
            self.total += 1;
            self.slowest = self.slowest.max(latency);
        }
    }

    /// Requests in some columns and rows.
    fn count(&self, columns: std::ops::Range<usize>, rows: std::ops::Range<usize>) -> u64 {
        rows.map(|row| self.counts[row * COLUMNS..][columns.clone()].iter().map(|c| u64::from(*c)).sum::<u64>()).sum()
    }
}

/// The row of a latency in ns: its highest bit, and the two bits after it.
fn row_of(latency: i64) -> usize {
    let v = u64::try_from(latency).unwrap_or(0).max(4);
    let bits = 63 - v.leading_zeros() as usize;
    bits * 4 + ((v >> (bits - 2)) & 3) as usize
}

/// The least latency of a row, in ns.
fn latency_of(row: usize) -> i64 {
    let (bits, quarter) = (row / 4, row % 4);
    if bits < 2 {
        return 0;
    }
    if bits >= 63 {
        return i64::MAX;
    }
    ((4 + quarter as i64) << (bits - 2)).max(0)
}

/// A part of the map: columns and rows of [`Map`].
#[derive(Clone, Debug, PartialEq, Eq)]
struct Cell {
    columns: std::ops::Range<usize>,
    rows: std::ops::Range<usize>,
}

/// State of the view.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    map: Option<Map>,
    /// The shown time, if it is not all: begin and end, in ns.
    window: Option<(i64, i64)>,
    /// The cursor: column and row of the screen's map, counted from the left and from the bottom.
    at: (u16, u16),
    /// Position at which a selection with the mouse began.
    brush: Option<(u16, u16)>,
}

fn plot(model: &Model) -> Rect {
    let body = model.body();
    Rect {
        x: body.x + AXIS,
        y: body.y + 1,
        width: body.width.saturating_sub(AXIS + 1).max(1),
        height: body.height.saturating_sub(4).max(1),
    }
}

/// Time from the first request to the last frame read, in ns.
fn whole(model: &Model) -> Option<(i64, i64)> {
    let first = model.exchanges.iter().find(|(_, e)| e.reply_end.is_some()).map(|(_, e)| e.request.time)?;
    // requests are in the order of their ends
    let from = first.min(model.exchanges.iter().take(256).map(|(_, e)| e.request.time).min().unwrap_or(first));
    let last = model.index.len().checked_sub(1).and_then(|last| model.index.at(last)).map_or(from, |e| e.time);
    Some((from, last.max(from.saturating_add(1))))
}

/// Number of rows of the map in one row of the screen, and the first row.
fn scale(map: &Map, height: u16) -> (usize, usize) {
    let rows = &map.rows;
    (rows.start, rows.len().div_ceil(usize::from(height).max(1)).max(1))
}

/// Rows of the screen that the map takes.
fn height(map: &Map, area: Rect) -> u16 {
    let (_, step) = scale(map, area.height);
    (map.rows.len().div_ceil(step) as u16).clamp(1, area.height)
}

/// Columns of the map that have been reached.
fn reached(state: &State, model: &Model, map: &Map) -> usize {
    let last = state.window.or_else(|| whole(model)).map_or(0, |(_, last)| last);
    map.column(last).map_or(1, |c| c + 1).clamp(1, COLUMNS)
}

/// The part of the map for a rectangle of the screen. Corners as column from the left and row from the bottom.
fn cell(state: &State, model: &Model, map: &Map, (x1, y1): (u16, u16), (x2, y2): (u16, u16)) -> Cell {
    let area = plot(model);
    let (first, step) = scale(map, area.height);
    let columns = reached(state, model, map);
    let width = usize::from(area.width);
    let left = usize::from(x1.min(x2)) * columns / width;
    let right = ((usize::from(x1.max(x2)) + 1) * columns).div_ceil(width);
    let bottom = first + usize::from(y1.min(y2)) * step;
    let top = first + (usize::from(y1.max(y2)) + 1) * step;
    Cell { columns: left..right.clamp(left + 1, COLUMNS), rows: bottom.min(ROWS - 1)..top.min(ROWS) }
}

fn keep_inside(state: &mut State, model: &Model) {
    let area = plot(model);
    if let Some(map) = &state.map {
        let rows = height(map, area);
        let inside = |(x, y): (u16, u16)| (x.min(area.width - 1), y.min(rows - 1));
        (state.at, state.brush) = (inside(state.at), state.brush.map(inside));
    }
}

/// The brush, or the cell of the cursor.
fn chosen<'a>(state: &'a State, model: &Model) -> Option<(&'a Map, Cell)> {
    let map = state.map.as_ref()?;
    Some((map, cell(state, model, map, state.brush.unwrap_or(state.at), state.at)))
}

/// The requests of a cell, the slowest first.
fn slowest<'a>(model: &'a Model, map: &Map, cell: &Cell) -> Option<&'a Exchange> {
    model
        .exchanges
        .iter()
        .map(|(_, e)| e)
        .filter(|e| model.concerns(e.connection) && (!model.filter.is_on() || order::passes(e, &model.filter.found)))
        .filter_map(|e| Some((e.latency()?, e)))
        .filter(|(latency, e)| {
            cell.rows.contains(&row_of(*latency))
                && map.column(e.request.time).is_some_and(|c| cell.columns.contains(&c))
        })
        .max_by_key(|(latency, _)| *latency)
        .map(|(_, e)| e)
}

/// A filter for the replies of a cell's requests.
fn filter(model: &Model, map: &Map, cell: &Cell) -> String {
    let at = |column: usize| {
        map.start.saturating_add(map.width.saturating_mul(column as i64)).saturating_sub(model.first_time())
    };
    let decimal = |ns: i64| format!("{}.{:09}", ns.max(0) / 1_000_000_000, ns.max(0) % 1_000_000_000);
    // a request belongs to the time at which it was sent, and the filter is about its reply
    let (from, upto) = (at(cell.columns.start), at(cell.columns.end));
    let (least, most) = (latency_of(cell.rows.start), latency_of(cell.rows.end));
    format!(
        "rdmascope.exchange.time >= {} && rdmascope.exchange.time < {} && frame.time_relative - \
            rdmascope.exchange.time >= {} && \
        frame.time_relative - rdmascope.exchange.time < {}",
        decimal(least),
        decimal(most),
        decimal(from),
        decimal(upto),
    )
}

/// Characters by number of requests: one, few, many, most.
const SHADES: [&str; 4] = ["░", "▒", "▓", "█"];

/// Draws the axis below the map: the times, and the selection.
fn legend(state: &State, model: &Model, map: &Map, cell: &Cell, buf: &mut Buffer, y: u16) {
    let (body, theme, area) = (model.body(), &model.theme, plot(model));
    let at = |column: usize| {
        map.start.saturating_add(map.width.saturating_mul(column as i64)).saturating_sub(model.first_time())
    };
    let columns = reached(state, model, map);
    put(buf, area.x, y, area.width, &"─".repeat(usize::from(area.width)), theme.faint);
    put(buf, area.x, y, area.width, &format!("{} ", seconds(at(0))), theme.faint);
    put_right(buf, area.x, y, area.width, &format!(" {} s", seconds(at(columns))), theme.faint);
    let count = map.count(cell.columns.clone(), cell.rows.clone());
    let title = format!("sent {} … {} s", seconds(at(cell.columns.start)), seconds(at(cell.columns.end)));
    let line = Rect { y: y + 1, height: 1, ..body };
    rule(buf, line, y + 1, &title, "", theme, state.brush.is_some());
    let range =
        format!("took {} to {}", span(latency_of(cell.rows.start)), span(latency_of(cell.rows.end).min(map.slowest)));
    let word = if count == 1 { "request" } else { "requests" };
    let pieces: [(&str, Style); 2] = [(&format!("{} {word} ", grouped(count)), theme.text), (&range, theme.text)];
    spans(buf, body.x + 1, y + 2, body.width - 2, &pieces);
}

impl Screen for State {
    fn hints(&self) -> &'static [(Action, &'static str)] {
        &[(Action::Brush, "brush"), (Action::Open, "filter by it"), (Action::ZoomIn, "zoom"), (Action::ZoomAll, "all")]
    }

    /// Makes the map, or continues it.
    fn prepare(&mut self, model: &Model) {
        let Some((first, last)) = whole(model) else { return };
        let places = model.exchanges.places();
        let mut map = match self.map.take() {
            // more frames pass the filter: all is counted again when it is done
            Some(map) if !model.filter.is_on() || map.passing == model.filter.found.len() => map,
            _ => {
                let (from, upto) = self.window.unwrap_or((first, last));
                let width = upto.saturating_sub(from) / COLUMNS as i64 + 1;
                Map { passing: model.filter.found.len(), ..Map::new(from, width, places.start) }
            }
        };
        let grows = self.window.is_none();
        let upto = places.end.min(map.scanned.max(places.start) + STEP);
        for place in map.scanned.max(places.start)..upto {
            let Some(e) = model.exchanges.at(place) else { continue };
            if let Some(latency) = e.latency()
                && model.concerns(e.connection)
                && (!model.filter.is_on() || order::passes(e, &model.filter.found))
            {
                map.add(e.request.time, latency, grows);
            }
        }
        map.scanned = upto;
        self.map = Some(map);
        keep_inside(self, model);
    }

    fn is_behind(&self, model: &Model) -> bool {
        self.map.as_ref().is_some_and(|m| m.scanned < model.exchanges.places().end)
    }

    fn draw(&self, model: &Model, buf: &mut Buffer) {
        let body = model.body();
        let theme = &model.theme;
        let Some(map) = self.map.as_ref().filter(|m| m.total > 0) else {
            let text = match (self.is_behind(model), model.done, model.filter.is_on()) {
                (false, true, false) => "No request was answered in this capture.",
                (false, true, true) => "No request that passes the filter was answered.",
                _ => "Reading …",
            };
            put(buf, body.x + 2, body.y + 1, body.width.saturating_sub(2), text, theme.faint);
            return;
        };
        // of few, 99 % are all
        let most = map.all.p99().map_or_else(String::new, |ns| format!("99 % within {}, ", span(ns)));
        let head = format!(
            "{} requests   half within {}, {most}the slowest {}",
            grouped(map.total),
            map.all.quantile(500).map_or_else(String::new, span),
            span(map.slowest)
        );
        put(buf, body.x + 1, body.y, body.width - 2, &head, theme.heading);
        let area = plot(model);
        let rows = height(map, area);
        let (first, step) = scale(map, area.height);
        let cells: Vec<(u16, u16, u64)> = (0..rows)
            .flat_map(|y| (0..area.width).map(move |x| (x, y)))
            .map(|(x, y)| {
                let cell = cell(self, model, map, (x, y), (x, y));
                (x, y, map.count(cell.columns, cell.rows))
            })
            .collect();
        let greatest = cells.iter().map(|(.., n)| *n).max().unwrap_or(1).max(1);
        for (x, y, n) in cells.into_iter().filter(|(.., n)| *n > 0) {
            // by its logarithm: one request among thousands is seen
            let shade =
                if n == 1 { 0 } else { (n.ilog2() as usize * 3).div_ceil(greatest.ilog2().max(1) as usize).min(3) };
            let style = if shade == 3 { theme.upper } else { theme.text };
            put(buf, area.x + x, area.y + rows - 1 - y, 1, SHADES[shade], style);
        }
        for y in 0..rows {
            let is_labelled = y % 4 == 0 || y == rows - 1;
            let label = if is_labelled {
                format!("{}┤", span(latency_of(first + usize::from(y) * step)))
            } else {
                "│".to_owned()
            };
            put_right(buf, body.x, area.y + rows - 1 - y, AXIS, &label, theme.faint);
        }
        if let Some((_, chosen)) = chosen(self, model) {
            let corner = self.brush.unwrap_or(self.at);
            for y in corner.1.min(self.at.1)..=corner.1.max(self.at.1) {
                let x = corner.0.min(self.at.0);
                let width = corner.0.max(self.at.0) - x + 1;
                buf.set_style(Rect { x: area.x + x, y: area.y + rows - 1 - y, width, height: 1 }, theme.selected);
            }
            legend(self, model, map, &chosen, buf, area.y + rows);
        }
    }

    fn act(&mut self, model: &Model, action: Action) -> Vec<Request> {
        let area = plot(model);
        let Some(map) = &self.map else { return Vec::new() };
        let rows = height(map, area);
        let (columns, start, width) = (reached(self, model, map) as i64, map.start, map.width);
        let (x, y) = self.at;
        match action {
            Action::Left => self.at.0 = x.saturating_sub(1),
            Action::Right => self.at.0 = x + 1,
            Action::Up => self.at.1 = y + 1,
            Action::Down => self.at.1 = y.saturating_sub(1),
            Action::PageUp => self.at.0 = x.saturating_sub(area.width / 4),
            Action::PageDown => self.at.0 = x + area.width / 4,
            Action::First => self.at.0 = 0,
            Action::Last => self.at.0 = area.width,
            // to the slowest of this column, and of all
            Action::NextPane => self.at.1 = rows - 1,
            Action::Brush => {
                self.brush = match self.brush {
                    Some(_) => None,
                    None => Some(self.at),
                };
                if self.brush.is_some() {
                    let word = model.keys.first(Action::Open);
                    return vec![Request::Say(format!("a brush: move to widen it, {word} filters by it"))];
                }
                return Vec::new();
            }
            Action::ZoomIn | Action::ZoomOut => {
                let length = columns.saturating_mul(width);
                let at = start.saturating_add((i128::from(length) * i128::from(x) / i128::from(area.width)) as i64);
                let length = if action == Action::ZoomIn { length / 2 } else { length.saturating_mul(2) }.max(1000);
                let Some((first, last)) = whole(model) else { return Vec::new() };
                let from = at.saturating_sub(length / 2).max(first);
                let upto = from.saturating_add(length).min(last);
                let all = from <= first && upto >= last;
                *self = State { window: (!all).then_some((from, upto)), at: (area.width / 2, y), ..State::default() };
                return Vec::new();
            }
            Action::ZoomAll => {
                *self = State { at: (x, y), ..State::default() };
                return Vec::new();
            }
            Action::Open => {
                let Some((map, cell)) = chosen(self, model) else { return Vec::new() };
                if map.count(cell.columns.clone(), cell.rows.clone()) == 0 {
                    return vec![Request::Complain("no request is there".to_owned())];
                }
                if self.brush.is_none() {
                    // one cell: its slowest request, as its frame
                    let frame = slowest(model, map, &cell).map(|e| e.request.frame);
                    return frame.map_or_else(Vec::new, |frame| vec![Request::GoToFrame(frame)]);
                }
                let new = filter(model, map, &cell);
                let text = if model.filter.is_on() { format!("({}) && {new}", model.filter.text) } else { new };
                self.brush = None;
                return vec![Request::FilterBy(text)];
            }
            _ => {}
        }
        keep_inside(self, model);
        Vec::new()
    }

    fn click(&mut self, model: &Model, x: u16, y: u16) -> Vec<Request> {
        let area = plot(model);
        let Some(map) = &self.map else { return Vec::new() };
        let bottom = area.y + height(map, area);
        if (area.x..area.right()).contains(&x) && (area.y..bottom).contains(&y) {
            self.at = (x - area.x, bottom - 1 - y);
        }
        Vec::new()
    }

    fn back(&mut self, _: &Model) -> Option<Vec<Request>> {
        self.brush.take().map(|_| Vec::new())
    }

    fn changed(&mut self, change: Change) {
        match change {
            Change::Sums => {}
            Change::Narrowed => self.map = None,
            Change::Restarted => *self = State::default(),
        }
    }

    fn selected_exchange(&self, model: &Model) -> Option<Exchange> {
        let (map, cell) = chosen(self, model)?;
        slowest(model, map, &cell).cloned()
    }

    fn selected_frame(&self, model: &Model) -> Option<u64> {
        self.selected_exchange(model).map(|e| e.request.frame)
    }

    fn selected_connection(&self, model: &Model) -> Option<u32> {
        self.selected_exchange(model).map(|e| e.connection)
    }

    fn is_chosen(&self) -> bool {
        self.at != (0, 0)
    }

    fn export(&self, model: &Model) -> Vec<Vec<String>> {
        let mut out =
            vec![["from", "upto", "least_latency", "greatest_latency", "requests"].map(str::to_owned).to_vec()];
        let Some(map) = &self.map else { return out };
        let at = |column: usize| {
            map.start.saturating_add(map.width.saturating_mul(column as i64)).saturating_sub(model.first_time())
        };
        for column in 0..COLUMNS {
            for row in 0..ROWS {
                let count = map.counts[row * COLUMNS + column];
                if count > 0 {
                    let times = [at(column), at(column + 1), latency_of(row), latency_of(row + 1)];
                    out.push(
                        times
                            .iter()
                            .map(|ns| format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000))
                            .chain([count.to_string()])
                            .collect(),
                    );
                }
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_holds_the_latencies_between_its_bounds() {
        for ns in [4, 5, 7, 8, 9, 1000, 1023, 1024, 1_000_000, 999_999_999, i64::MAX / 3] {
            let row = row_of(ns);
            assert!(
                latency_of(row) <= ns && ns < latency_of(row + 1),
                "{ns}: {} {}",
                latency_of(row),
                latency_of(row + 1)
            );
        }
        assert!(row_of(i64::MAX) < ROWS && row_of(-5) < ROWS);
    }

    #[test]
    fn a_map_that_grows_loses_no_request() {
        let mut map = Map::new(0, 1, 0);
        for time in 0..10_000 {
            map.add(time, time * 100, true);
        }
        assert_eq!(map.count(0..COLUMNS, 0..ROWS), 10_000);
        assert_eq!(map.total, 10_000);
        let median = map.all.quantile(500).unwrap();
        assert!((490_000..=510_000).contains(&median), "{median}");
    }
}
