//! Sequence: who sent what when, on one connection. Packets of one transfer are one arrow.
//!
//! ```text
//!   client 192.0.2.2                                   server 192.0.2.1
//!  f 640  0.000 ms ──SMB2 READ big.bin 0+65536──────────────────────▶
//!  f 641  0.211 ms ◀───────────────────────RDMA WRITE First  ×64 ────
//!  f 705  0.588 ms ◀──READ reply OK 65536────────────────────────────
//! ```

use super::app::{App, Cursor, Effect, SCAN_STEP};
use super::draw::{put, put_right, scrollbar};
use super::index::Entry;
use super::keys::Action;
use super::screen::{Change, Screen, listed};
use super::time::{grouped, span};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use rdmascope_analyzer::env::Layer;
use rdmascope_analyzer::exchange::Exchange;
use rdmascope_analyzer::op::End;
use unicode_width::UnicodeWidthStr;

/// One arrow: frames of one direction that belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Arrow {
    /// Place of its first frame.
    first: u32,
    last: u32,
    frames: u32,
    from_client: bool,
    bytes: u64,
}

/// What is shown.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    pub(crate) list: Cursor,
    arrows: Vec<Arrow>,
    /// The connection they are of.
    of: Vec<u32>,
    scanned: usize,
    in_filter: bool,
    /// The place of a frame whose arrow is to be selected.
    goal: Option<u32>,
    /// What it is about, where it is of one request.
    why: Option<Why>,
}

/// Where the time of one request went.
#[derive(Clone, Debug)]
struct Why {
    title: String,
    /// The arrow behind the longest gap, and the gap in ns.
    longest: Option<(usize, i64)>,
    /// In words.
    verdict: String,
}

impl State {
    pub(crate) fn reset(&mut self) {
        *self = Self { goal: self.goal, ..Self::default() };
    }

    /// Selects the arrow of a frame, by its place.
    pub(crate) fn look_for(&mut self, place: usize) {
        self.goal = u32::try_from(place).ok();
    }

    /// The place up to which frames were looked at.
    fn scanned_upto(&self, app: &App) -> usize {
        match self.scanned.checked_sub(1) {
            None => 0,
            Some(_) if self.in_filter && self.scanned >= app.filter.found.len() && app.filter.done => usize::MAX,
            Some(last) if self.in_filter => app.filter.found.get(last).map_or(0, |place| *place as usize + 1),
            Some(_) => self.scanned,
        }
    }
}

/// Whether a frame goes on with what the one before it in its direction began.
fn continues(before: &Entry, entry: &Entry) -> bool {
    let rdma = |e: &Entry| e.layer() <= Layer::Rdma || e.layer() == Layer::Mpa;
    let same = |a: &Entry, b: &Entry| match (a.opcode().and_then(|o| o.row()), b.opcode().and_then(|o| o.row())) {
        (Some(x), Some(y)) => x.verb == y.verb,
        (None, None) => true,
        _ => false,
    };
    rdma(before) && rdma(entry) && before.exchange == entry.exchange && !before.sent_before() && !entry.sent_before() && same(before, entry)
}

/// Looks at frames that came since.
pub(crate) fn extend(app: &mut App) {
    if app.states.sequence.why.is_some() {
        return;
    }
    let Some(of) = app.subject().map(|c| c.followed_as.clone()) else { return app.states.sequence.reset() };
    if app.states.sequence.of != of || app.states.sequence.in_filter != app.filter.is_on() {
        app.states.sequence.reset();
        app.states.sequence.in_filter = app.filter.is_on();
        app.states.sequence.of = of;
    }
    let mut state = std::mem::take(&mut app.states.sequence);
    let clients: Vec<(u32, End)> = state.of.iter().map(|id| (*id, app.client_end(*id))).collect();
    let mut add = |place: usize, entry: &Entry| {
        let Some((_, client)) = clients.iter().find(|(id, _)| *id == entry.connection) else { return };
        if entry.is_acknowledgment() {
            return;
        }
        let from_client = entry.by() == *client;
        let place = place as u32;
        if let Some(arrow) = state.arrows.last_mut()
            && arrow.from_client == from_client
            && app.index.at(arrow.last as usize).is_some_and(|before| continues(before, entry))
        {
            arrow.last = place;
            arrow.frames += 1;
            arrow.bytes += u64::from(entry.wire_len);
        } else {
            state.arrows.push(Arrow { first: place, last: place, frames: 1, from_client, bytes: entry.wire_len.into() });
        }
    };
    if app.filter.is_on() {
        let upto = app.filter.found.len().min(state.scanned + SCAN_STEP);
        for place in app.filter.found.get(state.scanned..upto).unwrap_or(&[]) {
            if let Some(entry) = app.index.at(*place as usize) {
                add(*place as usize, entry);
            }
        }
        state.scanned = upto;
    } else {
        let upto = app.index.len().min(state.scanned + SCAN_STEP);
        for (place, entry) in app.index.from(state.scanned).take_while(|(i, _)| *i < upto) {
            add(place, entry);
        }
        state.scanned = upto;
    }
    app.states.sequence = state;
    // the frame from which one came, as soon as its arrow is there
    if let Some(place) = app.states.sequence.goal
        && (app.states.sequence.scanned_upto(app) > place as usize)
    {
        app.states.sequence.goal = None;
        let at = app.states.sequence.arrows.partition_point(|a| a.first <= place).saturating_sub(1);
        let (len, page) = (app.states.sequence.arrows.len(), page(app));
        app.states.sequence.list.jump(at, len, page);
    }
}

/// Shows the frames (places) of one request alone: which gap between them was the longest, and who was waited for.
pub(crate) fn explain(app: &mut App, exchange: &Exchange, frames: Vec<u32>) {
    let client = app.client_end(exchange.connection);
    let arrows: Vec<Arrow> = frames
        .iter()
        .filter_map(|place| Some((*place, app.index.at(*place as usize)?)))
        .map(|(place, e)| Arrow { first: place, last: place, frames: 1, from_client: e.by() == client, bytes: e.wire_len.into() })
        .collect();
    let time = |arrow: &Arrow| app.index.at(arrow.first as usize).map_or(0, |e| e.time);
    let longest =
        (1..arrows.len()).map(|i| (i, time(&arrows[i]).saturating_sub(time(&arrows[i - 1])))).max_by_key(|(i, gap)| (*gap, usize::MAX - i));
    let file = exchange.shown_file();
    let took = exchange.latency().map_or_else(|| "was never answered".to_owned(), |l| format!("took {}", span(l)));
    let title = format!("{}{}{file} {took}", exchange.command, if file.is_empty() { "" } else { " " });
    let verdict = match longest {
        None => "One frame of it is known: there is no gap to measure.".to_owned(),
        Some((at, gap)) => {
            let (before, behind) = (&arrows[at - 1], &arrows[at]);
            let share = exchange
                .latency()
                .filter(|l| *l > 0)
                .map_or_else(String::new, |l| format!(" ({} %)", (i128::from(gap) * 100 / i128::from(l)).clamp(0, 100)));
            let again = app.index.at(behind.first as usize).is_some_and(|e| e.sent_before());
            let side = if behind.from_client { "client" } else { "server" };
            let who = if again {
                "then a packet went out again: loss or its recovery on the network".to_owned()
            } else {
                format!("waiting for the {side}")
            };
            format!("The longest gap: {}{share} between frames {} and {}, {who}.", span(gap), before.first + 1, behind.first + 1)
        }
    };
    let goal = longest.map_or(0, |(at, _)| at);
    app.states.sequence = State { arrows, why: Some(Why { title, longest, verdict }), ..State::default() };
    let (len, page) = (app.states.sequence.arrows.len(), page(app));
    app.states.sequence.list.jump(goal, len, page);
}

/// Whether there are frames that were not looked at yet.
fn is_behind(app: &App) -> bool {
    let all = if app.filter.is_on() { app.filter.found.len() } else { app.index.len() };
    app.states.sequence.why.is_none() && !app.states.sequence.of.is_empty() && app.states.sequence.scanned < all
}

fn page(app: &App) -> usize {
    usize::from(app.body().height.saturating_sub(2))
}

/// The frames whose lines are on the screen.
pub(crate) fn visible_frames(app: &App) -> Vec<usize> {
    app.states.sequence.arrows.iter().skip(app.states.sequence.list.top).take(page(app)).map(|a| a.first as usize).collect()
}

pub(crate) fn selected_frame(app: &App) -> Option<u64> {
    app.states.sequence.arrows.get(app.states.sequence.list.at).map(|a| u64::from(a.first) + 1)
}

pub(crate) fn act(app: &mut App, action: Action) -> Vec<Effect> {
    if action == Action::Open {
        return selected_frame(app).map_or_else(Vec::new, |frame| app.go_to_frame(frame));
    }
    let (len, page) = (app.states.sequence.arrows.len(), page(app));
    app.states.sequence.list.moved(action, len, page);
    Vec::new()
}

pub(crate) fn click(app: &mut App, _: u16, y: u16) {
    let body = app.body();
    if y > body.y {
        let row = app.states.sequence.list.top + usize::from(y - body.y - 1);
        if row < app.states.sequence.arrows.len() {
            app.states.sequence.list.at = row;
        }
    }
}

/// What an arrow says.
fn words(app: &App, arrow: &Arrow) -> String {
    let entry = app.index.at(arrow.first as usize).copied().unwrap_or_default();
    let opcode = entry.opcode().and_then(|o| o.row()).map_or_else(String::new, |r| r.to_string());
    let mut text = match app.texts.get(&(u64::from(arrow.first) + 1)) {
        // of a handshake what it says, and not in what it is packed
        Some(t) if arrow.frames == 1 && entry.layer() == Layer::Cm => {
            t.info.split_once(", CM ").map_or_else(|| t.info.clone(), |(_, what)| format!("CM {what}"))
        }
        Some(t) if arrow.frames == 1 && !t.info.is_empty() => format!("{} {}", t.protocol, t.info),
        _ if opcode.is_empty() => entry.layer().name().to_owned(),
        _ => opcode,
    };
    if arrow.frames > 1 {
        text.push_str(&format!("  ×{} frames, {} B", grouped(arrow.frames.into()), grouped(arrow.bytes)));
    }
    if entry.sent_before() {
        text.push_str("  (again)");
    }
    text
}

pub(crate) fn draw(app: &App, buf: &mut Buffer) {
    let body = app.body();
    let theme = &app.theme;
    let Some(connection) = app.subject() else {
        put(buf, body.x + 2, body.y + 1, body.width, "There is no connection.", theme.faint);
        return;
    };
    let number_width = (app.index.len().max(1).ilog10() as u16 + 1).max(4);
    let time_width = 11;
    let left = body.x + 1 + number_width + 1 + time_width + 2;
    let right = body.right().saturating_sub(3);
    let width = right.saturating_sub(left);
    let [client, server] = connection.peers.map(|p| rdmascope_analyzer::report::address(&p.address));
    put(buf, left, body.y, width, &format!("client {client}"), theme.client);
    put_right(buf, left, body.y, width, &format!("server {server}"), theme.server);
    put_right(buf, body.x + 1, body.y, number_width, "f", theme.faint);
    let page = page(app);
    let arrows = &app.states.sequence.arrows;
    let top = app.states.sequence.list.top;
    let base = app.first_time();
    for (line, arrow) in arrows.iter().skip(top).take(page).enumerate() {
        let y = body.y + 1 + line as u16;
        let entry = app.index.at(arrow.first as usize).copied().unwrap_or_default();
        let before = (top + line)
            .checked_sub(1)
            .and_then(|i| arrows.get(i))
            .and_then(|a| app.index.at(a.first as usize))
            .map_or(entry.time, |e| e.time);
        put_right(buf, body.x + 1, y, number_width, &(arrow.first + 1).to_string(), theme.faint);
        let why = app.states.sequence.why.as_ref();
        let is_longest = why.and_then(|w| w.longest).is_some_and(|(at, _)| at == top + line);
        // of one request, the gaps are what one looks for
        let shown =
            if why.is_some() { format!("+{}", span(entry.time.saturating_sub(before))) } else { app.time.show(entry.time, base, before) };
        put_right(buf, body.x + 2 + number_width, y, time_width, &shown, if is_longest { theme.error } else { theme.text });
        let text = words(app, arrow);
        let style = if entry.sent_before() {
            theme.warn
        } else if arrow.from_client {
            theme.client
        } else {
            theme.server
        };
        let room = usize::from(width.saturating_sub(6));
        let text: String = fitted(&text, room);
        let len = UnicodeWidthStr::width(text.as_str());
        let rest = usize::from(width).saturating_sub(len + 4);
        let line = if arrow.from_client {
            format!("──{text}{}▶", "─".repeat(rest + 1))
        } else {
            format!("◀──{text}{}", "─".repeat(rest + 1))
        };
        put(buf, left, y, width, &line, style);
        let texts_are_dim = theme.faint;
        put(buf, left.saturating_sub(1), y, 1, "│", texts_are_dim);
        put(buf, right, y, 1, "│", texts_are_dim);
        if top + usize::from(y - body.y - 1) == app.states.sequence.list.at {
            buf.set_style(Rect { x: body.x, y, width: body.width, height: 1 }, theme.selected);
        }
    }
    if arrows.is_empty() {
        let text = if app.done { "No frame of this connection is shown." } else { "Reading …" };
        put(buf, left, body.y + 1, width, text, theme.faint);
    }
    scrollbar(buf, Rect { y: body.y + 1, height: body.height - 2, ..body }, top, arrows.len(), theme);
    let about = match (arrows.get(app.states.sequence.list.at), selected_gap(app)) {
        (Some(arrow), Some(gap)) => {
            let from = app.index.at(arrow.first as usize).map_or(0, |e| e.time);
            let upto = app.index.at(arrow.last as usize).map_or(0, |e| e.time);
            let lasted = if arrow.frames > 1 { format!("   took {}", span(upto - from)) } else { String::new() };
            format!("{} after the arrow above{lasted}", span(gap))
        }
        _ => String::new(),
    };
    if let Some(why) = &app.states.sequence.why {
        let text = format!("{}. {}", why.title, why.verdict);
        put(buf, body.x + 1, body.bottom() - 1, body.width - 2, &text, theme.heading);
        return;
    }
    let hint = format!("{} of {}   {about}", (app.states.sequence.list.at + 1).min(arrows.len()), grouped(arrows.len() as u64));
    put(buf, body.x + 1, body.bottom() - 1, body.width - 2, &hint, theme.faint);
}

fn selected_gap(app: &App) -> Option<i64> {
    let at = app.states.sequence.list.at;
    let arrow = app.states.sequence.arrows.get(at)?;
    let before = app.states.sequence.arrows.get(at.checked_sub(1)?)?;
    Some(app.index.at(arrow.first as usize)?.time - app.index.at(before.first as usize)?.time)
}

fn fitted(text: &str, room: usize) -> String {
    if UnicodeWidthStr::width(text) <= room {
        return text.to_owned();
    }
    let mut out = String::new();
    let mut width = 0;
    for c in text.chars() {
        width += unicode_width::UnicodeWidthChar::width(c).unwrap_or(0);
        if width >= room {
            break;
        }
        out.push(c);
    }
    out.push('…');
    out
}

/// For an export: the heads.
pub(crate) const HEADS: &[&str] = &["frame", "last_frame", "frames", "time", "from", "bytes", "what"];

/// For an export: a row.
pub(crate) fn export(app: &App, row: usize) -> Vec<String> {
    let Some(arrow) = app.states.sequence.arrows.get(row) else { return Vec::new() };
    let entry = app.index.at(arrow.first as usize).copied().unwrap_or_default();
    vec![
        (arrow.first + 1).to_string(),
        (arrow.last + 1).to_string(),
        arrow.frames.to_string(),
        super::time::seconds(entry.time - app.first_time()),
        if arrow.from_client { "client" } else { "server" }.to_owned(),
        arrow.bytes.to_string(),
        words(app, arrow),
    ]
}

/// The view.
pub(crate) struct Sequence;

impl Screen for Sequence {
    fn hints(&self) -> &'static [(Action, &'static str)] {
        &[(Action::Open, "frame"), (Action::TimeFormat, "time"), (Action::Follow, "follow")]
    }

    fn prepare(&self, app: &mut App) {
        extend(app);
    }

    fn is_behind(&self, app: &App) -> bool {
        is_behind(app)
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

    fn is_chosen(&self, app: &App) -> bool {
        app.states.sequence.list.at > 0
    }

    fn frames_shown(&self, app: &App) -> Vec<usize> {
        visible_frames(app)
    }

    fn cursor<'a>(&self, app: &'a mut App) -> Option<&'a mut Cursor> {
        Some(&mut app.states.sequence.list)
    }

    fn len(&self, app: &App) -> usize {
        app.states.sequence.arrows.len()
    }

    fn row(&self, app: &App, at: usize) -> Vec<String> {
        export(app, at)
    }

    fn export(&self, app: &App) -> Vec<Vec<String>> {
        listed(self, app, HEADS)
    }

    fn changed(&self, app: &mut App, change: Change) {
        if change == Change::Narrowed {
            app.states.sequence.reset();
        }
    }

    fn is_about_a_selection(&self) -> bool {
        true
    }

    fn look_at(&self, app: &mut App, place: usize, _time: i64) {
        app.states.sequence.look_for(place);
    }

    fn back(&self, app: &mut App) -> Option<Vec<Effect>> {
        // what was narrowed to a request is wide again, and Esc goes on to the view before
        if app.states.sequence.why.is_some() {
            app.states.sequence = State::default();
        }
        None
    }
}
