//! Sequence: the messages of one connection over time. Packets of one transfer are one arrow.
//!
//! ```text
//!   client 192.0.2.2                                   server 192.0.2.1
//!  f 640  0.000 ms ──SMB2 READ big.bin 0+65536──────────────────────▶
//!  f 641  0.211 ms ◀───────────────────────RDMA WRITE First  ×64 ────
//!  f 705  0.588 ms ◀──READ reply OK 65536────────────────────────────
//! ```

use super::draw::{Cursor, put, put_right, scrollbar, wrap};
use super::index::Entry;
use super::io;
use super::keys::Action;
use super::model::{Model, SCAN_STEP};
use super::screen::{Change, Request, Screen, listed};
use super::time::{Format, grouped, span};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use rdmascope_analyzer::env::Layer;
use rdmascope_analyzer::exchange::Exchange;
use rdmascope_analyzer::op::End;
use rdmascope_report::report::answer::whose;
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

/// State of the view.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    pub(crate) list: Cursor,
    arrows: Vec<Arrow>,
    /// The connection they are of.
    of: Vec<u32>,
    scanned: usize,
    in_filter: bool,
    /// The place of a frame whose arrow will be selected.
    goal: Option<u32>,
    /// Summary of the request, if the view shows only one.
    why: Option<Why>,
}

/// Distribution of the time of one request.
#[derive(Clone, Debug)]
struct Why {
    title: String,
    /// The arrow after the longest gap, and the gap in ns.
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

    /// The lines at the bottom about the request, if the view shows only one.
    fn foot(&self, model: &Model) -> Vec<String> {
        let body = model.body();
        let Some(why) = &self.why else { return Vec::new() };
        let mut lines = wrap(&format!("{}. {}", why.title, why.verdict), usize::from(body.width.saturating_sub(2)));
        lines.truncate(usize::from(body.height / 2).max(1));
        lines
    }

    /// Number of arrows that the screen has room for.
    fn page(&self, model: &Model) -> usize {
        usize::from(model.body().height).saturating_sub(1 + self.foot(model).len().max(1))
    }

    /// The place up to which frames were looked at.
    fn scanned_upto(&self, model: &Model) -> usize {
        match self.scanned.checked_sub(1) {
            None => 0,
            Some(_) if self.in_filter && self.scanned >= model.filter.found.len() && model.filter.done => usize::MAX,
            Some(last) if self.in_filter => model.filter.found.get(last).map_or(0, |place| *place as usize + 1),
            Some(_) => self.scanned,
        }
    }
}

/// True if a frame continues the transfer of the one before it in its direction.
fn continues(before: &Entry, entry: &Entry) -> bool {
    let rdma = |e: &Entry| e.layer() <= Layer::Rdma || e.layer() == Layer::Mpa;
    let same = |a: &Entry, b: &Entry| match (a.opcode().and_then(|o| o.row()), b.opcode().and_then(|o| o.row())) {
        (Some(x), Some(y)) => x.verb == y.verb,
        (None, None) => true,
        _ => false,
    };
    rdma(before)
        && rdma(entry)
        && before.exchange == entry.exchange
        && !before.sent_before()
        && !entry.sent_before()
        && same(before, entry)
}

/// Shows the frames (places) of one request alone, with those at the ends of what held it up: the longest gap between
/// them, and whose most of the time was.
pub(crate) fn explain(state: &mut State, model: &Model, exchange: &Exchange, mut frames: Vec<u32>) {
    let client = model.client_end(exchange.connection);
    let ends = io::episode(model, exchange).into_iter().flat_map(|e| [Some(e.begin), e.end]).flatten();
    frames.extend(ends.filter_map(|at| u32::try_from(at.frame.checked_sub(1)?).ok()));
    frames.sort_unstable();
    frames.dedup();
    let arrows: Vec<Arrow> = frames
        .iter()
        .filter_map(|place| Some((*place, model.index.at(*place as usize)?)))
        .map(|(place, e)| Arrow {
            first: place,
            last: place,
            frames: 1,
            from_client: e.by() == client,
            bytes: e.wire_len.into(),
        })
        .collect();
    let time = |arrow: &Arrow| model.index.at(arrow.first as usize).map_or(0, |e| e.time);
    let longest = (1..arrows.len())
        .map(|i| (i, time(&arrows[i]).saturating_sub(time(&arrows[i - 1]))))
        .max_by_key(|(i, gap)| (*gap, usize::MAX - i));
    let file = exchange.shown_file();
    let took = exchange.latency().map_or_else(|| "was never answered".to_owned(), |l| format!("took {}", span(l)));
    let title = format!("{}{}{file} {took}", exchange.command, if file.is_empty() { "" } else { " " });
    let mut verdict: Vec<String> = largest_part(exchange).into_iter().collect();
    verdict.extend(io::behind(model, exchange).map(|what| format!("What held it up: {what}.")));
    verdict.push(match longest {
        None => "Only one of its frames is known: there is no gap to measure.".to_owned(),
        Some((at, gap)) => {
            let [before, behind] = [at - 1, at].map(|i| arrows[i].first + 1);
            format!("The longest gap: {} between frames {before} and {behind}.", span(gap))
        }
    });
    let goal = longest.map_or(0, |(at, _)| at);
    *state = State { arrows, why: Some(Why { title, longest, verdict: verdict.join(" ") }), ..State::default() };
    let (len, page) = (state.arrows.len(), state.page(model));
    state.list.jump(goal, len, page);
}

/// The owner of most of the time of a request, as a sentence; `None` without a reply.
fn largest_part(exchange: &Exchange) -> Option<String> {
    let (owner, ns) = exchange.time.largest()?;
    let share = i128::from(ns) * 100 / i128::from(exchange.time.sum().max(1));
    Some(format!("The largest part, {} ({} %), was {}.", span(ns), share.clamp(0, 100), whose(owner)))
}

/// Text of an arrow.
fn words(model: &Model, arrow: &Arrow) -> String {
    let entry = model.index.at(arrow.first as usize).copied().unwrap_or_default();
    let opcode = entry.opcode().and_then(|o| o.row()).map_or_else(String::new, |r| r.to_string());
    let mut text = match model.texts.get(&(u64::from(arrow.first) + 1)) {
        // of a handshake the message, without its encapsulation
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

fn selected_gap(state: &State, model: &Model) -> Option<i64> {
    let at = state.list.at;
    let arrow = state.arrows.get(at)?;
    let before = state.arrows.get(at.checked_sub(1)?)?;
    Some(model.index.at(arrow.first as usize)?.time.saturating_sub(model.index.at(before.first as usize)?.time))
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
pub(crate) fn export(state: &State, model: &Model, row: usize) -> Vec<String> {
    let Some(arrow) = state.arrows.get(row) else { return Vec::new() };
    let entry = model.index.at(arrow.first as usize).copied().unwrap_or_default();
    vec![
        (arrow.first + 1).to_string(),
        (arrow.last + 1).to_string(),
        arrow.frames.to_string(),
        super::time::seconds(entry.time.saturating_sub(model.first_time())),
        if arrow.from_client { "client" } else { "server" }.to_owned(),
        arrow.bytes.to_string(),
        words(model, arrow),
    ]
}

impl Screen for State {
    fn hints(&self) -> &'static [(Action, &'static str)] {
        &[(Action::Open, "frame"), (Action::TimeFormat, "time"), (Action::Follow, "follow")]
    }

    /// Processes new frames.
    fn prepare(&mut self, model: &Model) {
        if self.why.is_some() {
            return;
        }
        let Some(of) = model.subject().map(|c| c.followed_as.clone()) else { return self.reset() };
        if self.of != of || self.in_filter != model.filter.is_on() {
            self.reset();
            self.in_filter = model.filter.is_on();
            self.of = of;
        }
        let clients: Vec<(u32, End)> = self.of.iter().map(|id| (*id, model.client_end(*id))).collect();
        let arrows = &mut self.arrows;
        let mut add = |place: usize, entry: &Entry| {
            let Some((_, client)) = clients.iter().find(|(id, _)| *id == entry.connection) else { return };
            if entry.is_acknowledgment() {
                return;
            }
            let from_client = entry.by() == *client;
            let place = place as u32;
            if let Some(arrow) = arrows.last_mut()
                && arrow.from_client == from_client
                && model.index.at(arrow.last as usize).is_some_and(|before| continues(before, entry))
            {
                arrow.last = place;
                arrow.frames += 1;
                arrow.bytes += u64::from(entry.wire_len);
            } else {
                arrows.push(Arrow { first: place, last: place, frames: 1, from_client, bytes: entry.wire_len.into() });
            }
        };
        if model.filter.is_on() {
            let upto = model.filter.found.len().min(self.scanned + SCAN_STEP);
            for place in model.filter.found.get(self.scanned..upto).unwrap_or(&[]) {
                if let Some(entry) = model.index.at(*place as usize) {
                    add(*place as usize, entry);
                }
            }
            self.scanned = upto;
        } else {
            let upto = model.index.len().min(self.scanned + SCAN_STEP);
            for (place, entry) in model.index.from(self.scanned).take_while(|(i, _)| *i < upto) {
                add(place, entry);
            }
            self.scanned = upto;
        }
        // the frame from which the user came, as soon as its arrow exists
        if let Some(place) = self.goal
            && (self.scanned_upto(model) > place as usize)
        {
            self.goal = None;
            let at = self.arrows.partition_point(|a| a.first <= place).saturating_sub(1);
            let (len, page) = (self.arrows.len(), self.page(model));
            self.list.jump(at, len, page);
        }
    }

    /// True if there are frames that were not looked at yet.
    fn is_behind(&self, model: &Model) -> bool {
        let all = if model.filter.is_on() { model.filter.found.len() } else { model.index.len() };
        self.why.is_none() && !self.of.is_empty() && self.scanned < all
    }

    fn draw(&self, model: &Model, buf: &mut Buffer) {
        let body = model.body();
        let theme = &model.theme;
        let Some(connection) = model.subject() else {
            put(buf, body.x + 2, body.y + 1, body.width, "There is no connection.", theme.faint);
            return;
        };
        let number_width = (model.index.len().max(1).ilog10() as u16 + 1).max(4);
        let time_width = if self.why.is_some() { Format::Delta } else { model.time }.width();
        let left = body.x + 1 + number_width + 1 + time_width + 2;
        let right = body.right().saturating_sub(3);
        let width = right.saturating_sub(left);
        let [client, server] = connection.peers.map(|p| rdmascope_analyzer::report::address(&p.address));
        put(buf, left, body.y, width, &format!("client {client}"), theme.client);
        put_right(buf, left, body.y, width, &format!("server {server}"), theme.server);
        put_right(buf, body.x + 1, body.y, number_width, "f", theme.faint);
        let page = self.page(model);
        let arrows = &self.arrows;
        let top = self.list.top;
        let base = model.first_time();
        for (line, arrow) in arrows.iter().skip(top).take(page).enumerate() {
            let y = body.y + 1 + line as u16;
            let entry = model.index.at(arrow.first as usize).copied().unwrap_or_default();
            let before = (top + line)
                .checked_sub(1)
                .and_then(|i| arrows.get(i))
                .and_then(|a| model.index.at(a.first as usize))
                .map_or(entry.time, |e| e.time);
            put_right(buf, body.x + 1, y, number_width, &(arrow.first + 1).to_string(), theme.faint);
            let why = self.why.as_ref();
            let is_longest = why.and_then(|w| w.longest).is_some_and(|(at, _)| at == top + line);
            // for one request, the gaps are of interest
            let shown = if why.is_some() {
                format!("+{}", span(entry.time.saturating_sub(before)))
            } else {
                model.time.show(entry.time, base, before)
            };
            put_right(
                buf,
                body.x + 2 + number_width,
                y,
                time_width,
                &shown,
                if is_longest { theme.error } else { theme.text },
            );
            let text = words(model, arrow);
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
            if top + usize::from(y - body.y - 1) == self.list.at {
                buf.set_style(Rect { x: body.x, y, width: body.width, height: 1 }, theme.selected);
            }
        }
        if arrows.is_empty() {
            let text = if model.done { "No frame of this connection is shown." } else { "Reading …" };
            put(buf, left, body.y + 1, width, text, theme.faint);
        }
        scrollbar(buf, Rect { y: body.y + 1, height: page as u16, ..body }, top, arrows.len(), theme);
        if self.why.is_some() {
            let lines = self.foot(model);
            let first = body.bottom().saturating_sub(lines.len() as u16);
            for (y, line) in (first..).zip(&lines) {
                put(buf, body.x + 1, y, body.width - 2, line, theme.heading);
            }
            return;
        }
        let about = match (arrows.get(self.list.at), selected_gap(self, model)) {
            (Some(arrow), Some(gap)) => {
                let from = model.index.at(arrow.first as usize).map_or(0, |e| e.time);
                let upto = model.index.at(arrow.last as usize).map_or(0, |e| e.time);
                let lasted = if arrow.frames > 1 {
                    format!("   took {}", span(upto.saturating_sub(from)))
                } else {
                    String::new()
                };
                format!("{} after the arrow above{lasted}", span(gap))
            }
            _ => String::new(),
        };
        let hint = format!("{} of {}   {about}", (self.list.at + 1).min(arrows.len()), grouped(arrows.len() as u64));
        put(buf, body.x + 1, body.bottom() - 1, body.width - 2, &hint, theme.faint);
    }

    fn act(&mut self, model: &Model, action: Action) -> Vec<Request> {
        if action == Action::Open {
            return self.selected_frame(model).map_or_else(Vec::new, |frame| vec![Request::GoToFrame(frame)]);
        }
        let (len, page) = (self.arrows.len(), self.page(model));
        self.list.moved(action, len, page);
        Vec::new()
    }

    fn click(&mut self, model: &Model, _: u16, y: u16) -> Vec<Request> {
        let body = model.body();
        if y > body.y {
            let row = self.list.top + usize::from(y - body.y - 1);
            if row < self.arrows.len() {
                self.list.at = row;
            }
        }
        Vec::new()
    }

    fn selected_frame(&self, _: &Model) -> Option<u64> {
        self.arrows.get(self.list.at).map(|a| u64::from(a.first) + 1)
    }

    fn is_chosen(&self) -> bool {
        self.list.at > 0
    }

    /// The frames whose lines are on the screen.
    fn frames_shown(&self, model: &Model) -> Vec<usize> {
        self.arrows.iter().skip(self.list.top).take(self.page(model)).map(|a| a.first as usize).collect()
    }

    fn cursor(&mut self) -> Option<&mut Cursor> {
        Some(&mut self.list)
    }

    fn len(&self, _: &Model) -> usize {
        self.arrows.len()
    }

    fn row(&self, model: &Model, at: usize) -> Vec<String> {
        export(self, model, at)
    }

    fn export(&self, model: &Model) -> Vec<Vec<String>> {
        listed(self, model, HEADS)
    }

    fn changed(&mut self, change: Change) {
        if change == Change::Narrowed {
            self.reset();
        }
    }

    fn is_about_a_selection(&self) -> bool {
        true
    }

    fn look_at(&mut self, place: usize, _time: i64) {
        self.look_for(place);
    }

    fn back(&mut self, _: &Model) -> Option<Vec<Request>> {
        // shows the whole connection again, and Esc also returns to the view before
        if self.why.is_some() {
            *self = State::default();
        }
        None
    }
}
