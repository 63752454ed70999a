//! Credits: the number of messages that each end could still send, over time, with stalls marked; beside them the
//! credits of SMB2 or RPC. The cursor leads to the frame.
//!
//! ```text
//!  192.0.2.2 → 192.0.2.1   client held 171…255   server held 240…254   stalls 1 (3.2 ms)
//!  255┤⠉⠉⠉⠉⠉⠑⢄⠊⠉⠉⠉⠉⠉⠉⠑⢄⣀⠔⠊⠉⠉⠉⠉⠉        ── client  ── server  ── SMB2
//!     │               │
//!    0┤               │ ▂▂ stall
//!     └0.000────────────────────────────────10.204 s
//! ── 1.204331 s, frame 640 ──── client 255  server 254  SMB2 31
//! ```

use super::credits_log::Point;
use super::draw::{Dots, put, put_right, rule};
use super::keys::Action;
use super::model::Model;
use super::screen::{Change, Request, Screen};
use super::time::{grouped, seconds, span};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use rdmascope_analyzer::report::{Connection, Protocol};

/// State of the view.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    /// First and last time shown; `None` for all.
    pub(crate) window: Option<(i64, i64)>,
    /// Time of the cursor; `None` in the middle.
    pub(crate) cursor: Option<i64>,
}

impl State {
    /// Moves the cursor to a time, and the window with it.
    pub(crate) fn look_at(&mut self, time: i64) {
        self.cursor = Some(time);
        if let Some((from, upto)) = self.window
            && !(from..=upto).contains(&time)
        {
            let start = time.saturating_sub(upto.saturating_sub(from) / 2);
            self.window = Some((start, start.saturating_add(upto.saturating_sub(from))));
        }
    }
}

/// Columns left of the plot.
const AXIS: u16 = 8;

fn plot(model: &Model) -> Rect {
    let body = model.body();
    Rect {
        x: body.x + AXIS,
        y: body.y + 2,
        width: body.width.saturating_sub(AXIS + 1),
        height: body.height.saturating_sub(5),
    }
}

/// The points of a connection, and the places in a point of the client's, the server's and the upper layer's credits.
fn points_of<'a>(model: &'a Model, connection: &Connection) -> (&'a [Point], [usize; 3]) {
    let id = connection.followed_as.first().copied().unwrap_or(0);
    let client = model.client_end(id).index();
    (model.credits_log.of(id), [client, 1 - client, 2])
}

/// The time from the first to the last of a connection's points.
fn whole(points: &[Point]) -> (i64, i64) {
    let (first, last) = (points.first().map_or(0, |p| p.time), points.last().map_or(0, |p| p.time));
    (first, last.max(first.saturating_add(1)))
}

fn window(state: &State, points: &[Point]) -> (i64, i64) {
    state.window.unwrap_or_else(|| whole(points))
}

fn cursor(state: &State, points: &[Point]) -> i64 {
    let (from, upto) = window(state, points);
    state.cursor.unwrap_or(from.saturating_add(upto.saturating_sub(from) / 2)).clamp(from, upto)
}

/// The last point at or before a time.
fn point_at(points: &[Point], time: i64) -> Option<&Point> {
    let after = points.partition_point(|p| p.time <= time);
    points.get(after.saturating_sub(1))
}

/// A small plot of a connection, for the overview.
pub(crate) fn draw_small(model: &Model, connection: &Connection, buf: &mut Buffer, area: Rect) {
    let theme = &model.theme;
    let (points, places) = points_of(model, connection);
    let ends = points.iter().any(|p| p.held(places[0]).is_some());
    let which: &[(usize, Style)] =
        if ends { &[(places[1], theme.server), (places[0], theme.client)] } else { &[(places[2], theme.upper)] };
    if points.is_empty() || area.width <= AXIS + 1 || area.height < 2 {
        put(buf, area.x + 3, area.y, area.width.saturating_sub(4), "no message with credits", theme.faint);
        return;
    }
    let inside = Rect { x: area.x + AXIS, width: area.width - AXIS - 1, ..area };
    let most = draw_lines(model, points, which, ends, buf, inside, whole(points));
    for (row, value) in [(0, most), (area.height - 1, 0)] {
        put_right(buf, area.x, area.y + row, AXIS - 1, &format!("{}┤", grouped(value.unsigned_abs())), theme.faint);
    }
}

/// The panels: the ends' credits, and below them those of the layer above, which may be many more.
fn panels(area: Rect, lower: bool, upper: bool) -> [Rect; 2] {
    let none = Rect { height: 0, ..area };
    match (lower, upper) {
        (true, true) => {
            let below = (area.height / 3).max(3);
            [Rect { height: area.height - below, ..area }, Rect { y: area.bottom() - below, height: below, ..area }]
        }
        (false, true) => [none, area],
        _ => [area, none],
    }
}

/// Draws lines (places in a point, styles) as dots. Returns the greatest value.
fn draw_lines(
    model: &Model,
    points: &[Point],
    which: &[(usize, Style)],
    stalls: bool,
    buf: &mut Buffer,
    area: Rect,
    (from, upto): (i64, i64),
) -> i64 {
    // the value at the beginning of the window is included
    let first = points.partition_point(|p| p.time < from).saturating_sub(1);
    let last = points.partition_point(|p| p.time <= upto);
    let seen = &points[first..last.max(first)];
    let most = seen.iter().flat_map(|p| which.iter().filter_map(|(w, _)| p.held(*w))).max().unwrap_or(1).max(1);
    let (width, height) = (usize::from(area.width) * 2, usize::from(area.height) * 4);
    if width == 0 || height == 0 {
        return most;
    }
    let mut dots = Dots::new(area.width, area.height);
    let column_of = |time: i64| {
        ((i128::from(time.saturating_sub(from)).max(0) * (width as i128 - 1))
            / i128::from(upto.saturating_sub(from).max(1))) as usize
    };
    let row_of = |v: i64| height - 1 - (v.clamp(0, most) as usize * (height - 1)) / most as usize;
    for (place, style) in which.iter().copied() {
        // for each column of dots, the range of the line in it: however many points there are, each dot is set once
        let mut spans: Vec<Option<(usize, usize)>> = vec![None; width];
        let widen = |span: &mut Option<(usize, usize)>, y: usize| {
            *span = Some(span.map_or((y, y), |(a, b)| (a.min(y), b.max(y))))
        };
        let mut before: Option<(usize, usize)> = None;
        for point in seen {
            let Some(held) = point.held(place) else { continue };
            let (x, y) = (column_of(point.time).min(width - 1), row_of(held));
            let (px, py) = before.unwrap_or((x, y));
            spans[px..=x.max(px)].iter_mut().for_each(|span| widen(span, py));
            widen(&mut spans[x], y);
            before = Some((x, y));
        }
        if let Some((px, py)) = before {
            let end = column_of(points.last().map_or(upto, |p| p.time).min(upto)).min(width - 1);
            spans[px..=end.max(px)].iter_mut().for_each(|span| widen(span, py));
        }
        for (x, span) in spans.into_iter().enumerate() {
            if let Some((top, bottom)) = span {
                (top..=bottom).for_each(|y| dots.set(x, y, style));
            }
        }
    }
    dots.draw(buf, area.x, area.y);
    // periods in which an end had none left
    let mut since: Option<i64> = None;
    // before the first grant there was nothing to run out of
    let mut had = vec![false; which.len()];
    for point in seen {
        let mut out = false;
        for ((place, _), had) in which.iter().zip(&mut had) {
            match point.held(*place) {
                Some(held) if held > 0 => *had = stalls,
                Some(_) => out |= *had,
                None => {}
            }
        }
        match (out, since) {
            (true, None) => since = Some(point.time.max(from)),
            (false, Some(begun)) => {
                stall(model, buf, area, column_of(begun) / 2, column_of(point.time) / 2);
                since = None;
            }
            _ => {}
        }
    }
    if let Some(begun) = since {
        stall(model, buf, area, column_of(begun) / 2, usize::from(area.width) - 1);
    }
    most
}

fn stall(model: &Model, buf: &mut Buffer, area: Rect, from: usize, upto: usize) {
    for x in from..=upto.min(usize::from(area.width) - 1) {
        put(buf, area.x + x as u16, area.y + area.height - 1, 1, "▄", model.theme.error);
    }
}

/// For an export: heads, then rows.
pub(crate) fn rows(model: &Model) -> Vec<Vec<String>> {
    let mut out = vec![["time", "frame", "client", "server", "upper"].map(str::to_owned).to_vec()];
    if let Some(connection) = model.subject() {
        let (points, places) = points_of(model, connection);
        out.extend(points.iter().map(|p| export(model, p, places)));
    }
    out
}

fn export(model: &Model, p: &Point, places: [usize; 3]) -> Vec<String> {
    let mut row = vec![seconds(p.time.saturating_sub(model.first_time())), p.frame.to_string()];
    row.extend(places.iter().map(|w| p.held(*w).map_or_else(String::new, |v| v.to_string())));
    row
}

impl Screen for State {
    fn hints(&self) -> &'static [(Action, &'static str)] {
        &[
            (Action::ZoomIn, "zoom"),
            (Action::ZoomAll, "all"),
            (Action::NextPane, "next stall"),
            (Action::Open, "frame"),
            (Action::Follow, "follow"),
        ]
    }

    fn draw(&self, model: &Model, buf: &mut Buffer) {
        let body = model.body();
        let theme = &model.theme;
        let Some(connection) = model.subject() else {
            put(buf, body.x + 2, body.y + 1, body.width, "There is no connection.", theme.faint);
            return;
        };
        let (points, places) = points_of(model, connection);
        let title = format!("{}  {}", super::digest::ends(connection), connection.protocol.name());
        let upper = if connection.protocol == Protocol::SmbDirect { "SMB2" } else { "RPC" };
        put(buf, body.x + 1, body.y, body.width - 2, &title, theme.heading);
        let known = places.map(|w| points.iter().any(|p| p.held(w).is_some()));
        if known == [false; 3] {
            let text = if points.is_empty() {
                "No message with credits was seen on this connection."
            } else {
                "Credits granted before the capture began are not known, so the number left is not known either."
            };
            put(buf, body.x + 2, body.y + 2, body.width - 2, text, theme.faint);
            return;
        }
        let mut x = body.x + 1;
        for (i, (name, style)) in
            [("client", theme.client), ("server", theme.server), (upper, theme.upper)].into_iter().enumerate()
        {
            if !known[i] {
                continue;
            }
            let (least, most) =
                points.iter().filter_map(|p| p.held(places[i])).fold((i64::MAX, 0), |(a, b), v| (a.min(v), b.max(v)));
            let text = format!("── {name} {least}…{most}   ");
            x = put(buf, x, body.y + 1, body.right().saturating_sub(x), &text, style);
        }
        let sides = &connection.sides;
        let stalls = sides[0].stalls + sides[1].stalls;
        let text = match stalls {
            0 => "no stall".to_owned(),
            n => format!(
                "{} stalls, {} in total, the longest {}",
                grouped(n),
                span(sides[0].stalled_time.saturating_add(sides[1].stalled_time)),
                span(sides[0].stall_longest.max(sides[1].stall_longest))
            ),
        };
        put(
            buf,
            x,
            body.y + 1,
            body.right().saturating_sub(x),
            &text,
            if stalls > 0 { theme.error } else { theme.faint },
        );
        let area = plot(model);
        let (from, upto) = window(self, points);
        let [ends, above] = panels(area, known[0] || known[1], known[2]);
        for (panel, which) in [
            (ends, &[(places[1], theme.server), (places[0], theme.client)][..]),
            (above, &[(places[2], theme.upper)][..]),
        ] {
            if panel.height == 0 {
                continue;
            }
            // SMB2 and RPC have no credits left whenever only one request is allowed
            let stalls = which.len() > 1;
            let most = draw_lines(model, points, which, stalls, buf, panel, (from, upto));
            let middle = panel.height / 2;
            for (row, value) in
                [(0, most), (middle, most - most * i64::from(middle) / i64::from(panel.height)), (panel.height - 1, 0)]
            {
                put_right(
                    buf,
                    body.x,
                    panel.y + row,
                    AXIS - 1,
                    &format!("{}┤", grouped(value.unsigned_abs())),
                    theme.faint,
                );
            }
        }
        let y = area.y + area.height;
        let base = model.first_time();
        let line = "─".repeat(usize::from(area.width));
        put(buf, area.x, y, area.width, &line, theme.faint);
        put(buf, area.x, y, area.width, &format!("{} ", seconds(from.saturating_sub(base))), theme.faint);
        put_right(buf, area.x, y, area.width, &format!(" {} s", seconds(upto.saturating_sub(base))), theme.faint);
        let middle = format!(" {} ", span(upto.saturating_sub(from)));
        put(
            buf,
            area.x + area.width / 2 - (middle.chars().count() as u16 / 2).min(area.width / 2),
            y,
            area.width / 2,
            &middle,
            theme.faint,
        );
        // the cursor
        let time = cursor(self, points);
        let at = area.x
            + ((i128::from(time.saturating_sub(from)) * i128::from(area.width.saturating_sub(1)))
                / i128::from(upto.saturating_sub(from).max(1))) as u16;
        for row in area.y..area.y + area.height {
            buf.set_style(Rect { x: at, y: row, width: 1, height: 1 }, theme.selected);
        }
        if let Some(point) = point_at(points, time) {
            let y = y + 1;
            rule(
                buf,
                Rect { y, height: 1, ..body },
                y,
                &format!("{} s   frame {}", seconds(point.time.saturating_sub(base)), point.frame),
                "",
                theme,
                true,
            );
            let mut x = body.x + 1;
            for (i, (name, style)) in
                [("client", theme.client), ("server", theme.server), (upper, theme.upper)].into_iter().enumerate()
            {
                if let Some(held) = point.held(places[i]) {
                    x = put(buf, x, y + 1, body.right().saturating_sub(x), &format!("{name} {held}   "), style);
                }
            }
        }
    }

    fn act(&mut self, model: &Model, action: Action) -> Vec<Request> {
        let Some(connection) = model.subject() else { return Vec::new() };
        let (points, places) = points_of(model, connection);
        if points.is_empty() {
            return Vec::new();
        }
        let (all_from, all_upto) = whole(points);
        let (from, upto) = window(self, points);
        let at = cursor(self, points);
        let columns = i64::from(plot(model).width.max(2)) * 2;
        let step = (upto.saturating_sub(from) / columns).max(1);
        let zoom = |factor: i64, divisor: i64| {
            let length = (upto.saturating_sub(from).saturating_mul(factor) / divisor)
                .clamp(1000, all_upto.saturating_sub(all_from).max(1000));
            let share = (i128::from(length) * i128::from(at.saturating_sub(from))
                / i128::from(upto.saturating_sub(from).max(1))) as i64;
            let start = at.saturating_sub(share).clamp(all_from, all_upto.saturating_sub(length).max(all_from));
            (start, start.saturating_add(length).min(all_upto).max(start.saturating_add(1)))
        };
        let moved = match action {
            Action::Left => Some(at.saturating_sub(step)),
            Action::Right => Some(at.saturating_add(step)),
            // to the next and previous change, which a column may hide
            Action::Down => points.get(points.partition_point(|p| p.time <= at)).map(|p| p.time),
            Action::Up => {
                points.partition_point(|p| p.time < at).checked_sub(1).and_then(|i| points.get(i)).map(|p| p.time)
            }
            Action::PageUp => Some(at.saturating_sub(upto.saturating_sub(from) / 2)),
            Action::PageDown => Some(at.saturating_add(upto.saturating_sub(from) / 2)),
            Action::First => Some(all_from),
            Action::Last => Some(all_upto),
            // to the next stall
            Action::NextPane => points
                .iter()
                .find(|p| p.time > at && places[..2].iter().any(|w| p.held(*w).is_some_and(|v| v <= 0)))
                .map(|p| p.time),
            _ => None,
        };
        match action {
            Action::ZoomIn => self.window = Some(zoom(1, 2)),
            Action::ZoomOut => {
                let new = zoom(2, 1);
                self.window = (new.1.saturating_sub(new.0) < all_upto.saturating_sub(all_from)).then_some(new);
            }
            Action::ZoomAll => self.window = None,
            Action::Open => {
                if let Some(frame) = self.selected_frame(model) {
                    return vec![Request::GoToFrame(frame)];
                }
            }
            Action::NextPane if moved.is_none() => {
                return vec![Request::Say("no credits ran out after the cursor".to_owned())];
            }
            _ => {}
        }
        if let Some(time) = moved {
            let time = time.clamp(all_from, all_upto);
            self.cursor = Some(time);
            // the window follows
            if self.window.is_some() && !(from..=upto).contains(&time) {
                let length = upto.saturating_sub(from);
                let start =
                    time.saturating_sub(length / 2).clamp(all_from, all_upto.saturating_sub(length).max(all_from));
                self.window = Some((start, start.saturating_add(length)));
            }
        }
        Vec::new()
    }

    fn click(&mut self, model: &Model, x: u16, y: u16) -> Vec<Request> {
        let area = plot(model);
        if !area.contains((x, y).into()) {
            return Vec::new();
        }
        let Some(connection) = model.subject() else { return Vec::new() };
        let (points, _) = points_of(model, connection);
        let (from, upto) = window(self, points);
        self.cursor = Some(from.saturating_add(
            ((i128::from(upto.saturating_sub(from)) * i128::from(x - area.x)) / i128::from(area.width.max(1))) as i64,
        ));
        Vec::new()
    }

    fn selected_frame(&self, model: &Model) -> Option<u64> {
        let (points, _) = points_of(model, model.subject()?);
        point_at(points, cursor(self, points)).map(|p| u64::from(p.frame))
    }

    fn selected_connection(&self, model: &Model) -> Option<u32> {
        model.subject().and_then(|c| c.followed_as.first().copied())
    }

    fn is_chosen(&self) -> bool {
        self.cursor.is_some()
    }

    /// For a copy: the point at the cursor.
    fn selected_row(&mut self, model: &Model) -> Option<Vec<String>> {
        let (points, places) = points_of(model, model.subject()?);
        point_at(points, cursor(self, points)).map(|p| export(model, p, places))
    }

    fn export(&self, model: &Model) -> Vec<Vec<String>> {
        rows(model)
    }

    fn changed(&mut self, change: Change) {
        match change {
            Change::Sums => {}
            Change::Narrowed => self.window = None,
            Change::Restarted => *self = State::default(),
        }
    }

    fn is_about_a_selection(&self) -> bool {
        true
    }

    fn look_at(&mut self, _place: usize, time: i64) {
        self.look_at(time);
    }
}
