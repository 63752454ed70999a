//! Overview: the worst problem first, with cause and cure; then connections, findings and the slowest I/O.
//!
//! ```text
//!  ✗ The server offered MaxFragmentedSize 130,560; at least 131,072 is required           frame 23, 6 times
//!    cause  ksmbd derives it from its receive size × credits …
//!    do     raise smbd_max_receive_size on the client …                    e explains, Enter goes to the frame
//! ── connections ─────────────────────────────────────────────────────────────────────────────────────
//!  192.0.2.2 → 192.0.2.1  SMB Direct RoCEv2  established  ▂▃▇▅▂  credits 171/254  !5
//! ── findings ─────────────────────────────────────────────────────────────────────────────────────────
//!  ! RC-RETRANSMIT   ×11   f 311  11 packets were retransmitted
//! ── slowest I/O ──────────────────────────────────────────────────────────────────────────────────────
//!  12.4 ms  WRITE  w1.bin @32768 8192 B   ░▒▒▒▓▓▓▓▓▓
//! ```

use super::digest::{Found, ends};
use super::draw::{self, Column, Cursor, Table, column, number, put, put_right, rule, wrap};
use super::keys::Action;
use super::model::Model;
use super::screen::{Change, Request, Screen};
use super::theme::sign;
use super::time::{bytes, grouped, span, sparkline};
use super::views::View;
use super::{findings, io};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use rdmascope_analyzer::exchange::Exchange;
use rdmascope_analyzer::report::{Connection, Protocol, Transport};
use rdmascope_analyzer::rules::Severity;
use rdmascope_report::report::words::Tone;

/// The pane that has the focus.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Pane {
    Top,
    #[default]
    Connections,
    Findings,
    Slowest,
}

/// State of the view.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    pane: Pane,
    /// True if the user chose a connection; until then it is the busiest.
    chosen: bool,
    connections: Cursor,
    findings: Cursor,
    slowest: Cursor,
}

fn carrier(connection: &Connection) -> String {
    let transport = connection.transport.map_or("?", Transport::name);
    match connection.protocol {
        Protocol::Unknown => transport.to_owned(),
        p => format!("{} {transport}", p.name()),
    }
}

fn queue_pairs(connection: &Connection) -> String {
    let qp = |at: usize| connection.peers[at].qp.map_or_else(|| "?".to_owned(), |q| format!("{q:#x}"));
    match connection.peers.iter().any(|p| p.qp.is_some()) {
        true => format!("QP {}↔{}", qp(0), qp(1)),
        false => String::new(),
    }
}

/// Bytes on the wire, both ways, a second.
fn rate(connection: &Connection) -> String {
    let all: u64 = connection.throughput.iter().map(|(_, a, b)| a + b).sum();
    let lasted = connection.last.time.saturating_sub(connection.first.time).max(1);
    format!("{}/s", bytes((u128::from(all) * 1_000_000_000 / lasted as u128) as u64))
}

/// The state, as text.
fn standing(model: &Model, connection: &Connection) -> (String, Style) {
    let theme = &model.theme;
    if let Some(reason) = &connection.rejected {
        return (format!("rejected: {reason}"), theme.error);
    }
    match connection.closed {
        Some((by, how, _)) => {
            let by = match by {
                Some(0) => "client, ",
                Some(_) => "server, ",
                None => "",
            };
            // an end without an answer to the first message was not a good one
            let refused = connection.sides.iter().any(|s| s.messages == 0);
            (format!("{by}{how}"), if refused { theme.warn } else { theme.text })
        }
        None => ("open".to_owned(), theme.good),
    }
}

/// The sections, from the top: the worst, connections, findings, slowest.
fn layout(model: &Model) -> [Rect; 4] {
    let body = model.body();
    let top = (top_lines(model, body.width).len() as u16).min(body.height * 9 / 20).max(1);
    let rest = body.height.saturating_sub(top);
    let narrow = |n: usize| n.min(1000) as u16;
    let (connections, findings) = (narrow(model.connection_count()), narrow(model.found.len()));
    let slowest = narrow(slowest(model).len());
    // each part gets the space it needs, at least two rows and its heading; the rest goes to the connections
    let third = (rest / 3).max(3);
    let slow = (slowest + 1).clamp(2, third);
    let found = (findings + 1).clamp(2, third.max(rest.saturating_sub(slow + connections + 2)));
    // the rest shows credits; after that, more of the slowest requests
    let over = rest.saturating_sub(slow + found + connections + 2 + 16);
    let slow = slow + over.min((slowest + 1).saturating_sub(slow));
    let conns = rest.saturating_sub(slow + found);
    let mut y = body.y;
    [top, conns, found, slow].map(|height| {
        let area = Rect { y, height, ..body };
        y += height;
        area
    })
}

/// The slowest exchanges that are shown.
fn slowest(model: &Model) -> Vec<&Exchange> {
    let ids: Option<Vec<u32>> = model.followed.as_ref().map(|_| model.connections().map(|c| c.id).collect());
    let all = if model.filter.is_on() { &model.slowest } else { &model.report.slowest };
    let mut seen: Vec<(u32, u64)> = Vec::new();
    // requests of one compound have one frame and one time
    let is_first = |e: &&Exchange| {
        let message = (e.connection, e.request.frame);
        let is_first = !seen.contains(&message);
        seen.push(message);
        is_first
    };
    all.iter().filter(|e| ids.as_ref().is_none_or(|ids| ids.contains(&e.connection))).filter(is_first).collect()
}

/// The worst finding, as text.
fn top_lines(model: &Model, width: u16) -> Vec<(String, String, Style)> {
    let theme = &model.theme;
    let findings = &model.found;
    let width = usize::from(width.saturating_sub(11));
    let mut lines = Vec::new();
    // why not all could be read, in full
    if let Some(error) = &model.error {
        for (i, line) in wrap(&rdmascope_dissector::render::escaped(error), width + 7).into_iter().enumerate() {
            lines.push((if i == 0 { "✗".to_owned() } else { String::new() }, line, theme.error));
        }
    }
    // the answer first: how long requests waited, and for what
    if model.done
        && let Some(answer) = model.report.answer(model.time)
    {
        for line in wrap(answer, width + 7) {
            lines.push((String::new(), line, theme.upper));
        }
    }
    let Some(worst) = findings.iter().find(|f| f.severity > Severity::Note) else {
        let headline = model.report.headline(model.error.is_none());
        let text = match (model.done, findings.len()) {
            (false, _) if !model.grows => "Reading …".to_owned(),
            (false, _) if model.index.len() == 0 => "No frame so far.".to_owned(),
            (false, 0) => "No problems found so far.".to_owned(),
            (false, 1) => "No problems found so far. 1 note.".to_owned(),
            (false, n) => format!("No problems found so far. {n} notes."),
            (true, 0) if model.filter.is_on() => "No problems found in the frames that pass the filter.".to_owned(),
            (true, _) => headline.text,
        };
        let sign = if model.done || model.error.is_some() { headline.mark } else { "…" };
        let style = match headline.tone {
            _ if model.error.is_some() => theme.text,
            Tone::Bad => theme.error,
            Tone::Strong if model.done => theme.text,
            _ => theme.good,
        };
        for (i, line) in wrap(&text, width + 7).into_iter().enumerate() {
            lines.push((if i == 0 { sign.to_owned() } else { String::new() }, line, style));
        }
        if let Some(ignored) = &model.report.ignored {
            lines.push((String::new(), ignored.clone(), theme.faint));
        }
        return lines;
    };
    let style = theme.severity(worst.severity);
    let times = match (worst.count, worst.connections.len()) {
        (0 | 1, _) => format!("  (frame {})", worst.frame),
        (n, 0 | 1) => format!("  ({} times, first in frame {})", grouped(n), worst.frame),
        (n, connections) => {
            format!("  ({} times on {connections} connections, first in frame {})", grouped(n), worst.frame)
        }
    };
    // a small screen has room for only one of the two: the advice
    let title = worst.title.as_deref().filter(|_| model.body().height >= 18);
    let mut top = title.map_or_else(Vec::new, |title| wrap(title, width + 7));
    top.extend(wrap(&format!("{}.{times}", findings::sentence(worst)), width + 7));
    for (i, line) in top.into_iter().enumerate() {
        lines.push((if i == 0 { sign(worst.severity).to_owned() } else { String::new() }, line, style));
    }
    if let Some(cause) = worst.causes().first() {
        for (i, line) in wrap(cause, width).into_iter().enumerate() {
            lines.push((if i == 0 { "  cause".to_owned() } else { String::new() }, line, theme.text));
        }
    }
    for (i, line) in wrap(worst.cure(), width).into_iter().enumerate() {
        lines.push((if i == 0 { "  do".to_owned() } else { String::new() }, line, theme.good));
    }
    lines
}

const CONNECTIONS: [Column; 9] = [
    number("#", 5),
    column("connection", 0),
    column("carries", 18).from(72),
    column("queue pairs", 17).from(120),
    number("messages", 13),
    column("credits", 13).from(100),
    column("traffic", 12).from(110),
    number("rate", 10).from(130),
    column("ended by", 14),
];

fn draw_connections(state: &State, model: &Model, buf: &mut Buffer, area: Rect) {
    let theme = &model.theme;
    let len = model.connection_count();
    let capture = &model.report.capture;
    let lasted = capture.first.zip(capture.last).map_or(0, |(a, b)| b.time.saturating_sub(a.time));
    let about = format!("{} frames, {}, {}", grouped(capture.frames), bytes(capture.bytes), span(lasted));
    let title = match len {
        1 => "1 connection".to_owned(),
        n => format!("{} connections", grouped(n as u64)),
    };
    rule(buf, area, area.y, &title, &about, theme, state.pane == Pane::Connections);
    if area.height < 2 {
        return;
    }
    let below = Rect { y: area.y + 1, height: area.height - 1, ..area };
    let cursor = state.connections;
    let shape = Table { columns: &CONNECTIONS, len, cursor, focused: state.pane == Pane::Connections, sorted: None };
    draw::table(buf, below, theme, &shape, |row| {
        let Some(c) = model.connection_at(row) else { return Vec::new() };
        let worst = model.report.worst(c.id);
        let (state, style) = standing(model, c);
        let volume: Vec<u64> = c.throughput.iter().map(|(_, a, b)| a + b).collect();
        let held = |at: usize| c.sides[at].held_last.map_or_else(|| "?".to_owned(), |h| h.to_string());
        let credits = if c.sides.iter().any(|s| s.held_last.is_some()) {
            format!("{} / {}", held(0), held(1))
        } else {
            String::new()
        };
        vec![
            (c.id.to_string(), worst.map_or(theme.text, |s| theme.severity(s))),
            (ends(c), theme.text),
            (carrier(c), theme.client),
            (queue_pairs(c), theme.faint),
            (format!("▸{} ◂{}", c.sides[0].messages, c.sides[1].messages), theme.text),
            (credits, theme.text),
            (sparkline(&volume, 12), theme.server),
            (rate(c), theme.text),
            (state, style),
        ]
    });
    // if there is room, the credits of the selected connection
    let used = len.clamp(1, 1000) as u16 + 1;
    if below.height > used + 5
        && let Some(connection) = model.connection_at(cursor.at)
    {
        let y = below.y + used;
        let height = (below.height - used).min(16);
        let title = format!("credits of connection {}", connection.id);
        let about = format!("{} shows more", model.keys.first(Action::View(View::Credits)));
        rule(buf, Rect { y, height: 1, ..below }, y, &title, &about, theme, false);
        super::credits::draw_small(model, connection, buf, Rect { y: y + 1, height: height - 1, ..below });
    }
    if len == 0 {
        let text = if model.done { "No RDMA or SMB connection was seen." } else { "none so far" };
        put(buf, below.x + 3, below.y + 1, below.width, text, theme.faint);
    }
}

/// The list in which the keys go, for a search.
pub(crate) fn cursor(state: &mut State) -> &mut Cursor {
    match state.pane {
        Pane::Findings | Pane::Top => &mut state.findings,
        Pane::Slowest => &mut state.slowest,
        Pane::Connections => {
            state.chosen = true;
            &mut state.connections
        }
    }
}

/// For an export: heads, then rows.
pub(crate) fn rows(model: &Model) -> Vec<Vec<String>> {
    let heads = [
        "connection",
        "ends",
        "carries",
        "queue_pairs",
        "messages_client",
        "messages_server",
        "first_frame",
        "last_frame",
        "state",
    ];
    std::iter::once(heads.map(str::to_owned).to_vec()).chain(model.connections().map(|c| export(model, c))).collect()
}

fn export(model: &Model, c: &Connection) -> Vec<String> {
    vec![
        c.id.to_string(),
        ends(c),
        carrier(c),
        queue_pairs(c),
        c.sides[0].messages.to_string(),
        c.sides[1].messages.to_string(),
        c.first.frame.to_string(),
        c.last.frame.to_string(),
        standing(model, c).0,
    ]
}

impl Screen for State {
    fn hints(&self) -> &'static [(Action, &'static str)] {
        &[(Action::NextPane, "pane"), (Action::Open, "go"), (Action::Follow, "follow"), (Action::Explain, "explain")]
    }

    fn is_filtered(&self) -> bool {
        false
    }

    /// The busiest connection is the selected one until the user selects another.
    fn prepare(&mut self, model: &Model) {
        let count = model.connection_count();
        let page = usize::from(layout(model)[1].height.saturating_sub(2));
        let at = if model.shows_all_connections() { model.report.busiest().unwrap_or(0) } else { 0 };
        let cursor = &mut self.connections;
        if self.chosen {
            cursor.show(count, page);
        } else {
            cursor.jump(at, count, page);
        }
    }

    fn draw(&self, model: &Model, buf: &mut Buffer) {
        let theme = &model.theme;
        let [top, conns, found, slow] = layout(model);
        let pane = self.pane;
        let lines = top_lines(model, top.width);
        for (i, (head, text, style)) in lines.iter().take(usize::from(top.height)).enumerate() {
            let y = top.y + i as u16;
            let is_sentence =
                head.chars().count() == 1 || (head.is_empty() && *style != theme.text && *style != theme.good);
            let indent = if is_sentence { 3 } else { 10 };
            put(buf, top.x + 1, y, 8, head, if head.starts_with(' ') { theme.faint } else { *style });
            let width = top.width.saturating_sub(indent + 1);
            let is_cut = i + 1 == usize::from(top.height) && lines.len() > i + 1;
            let end = put(buf, top.x + indent, y, width, text, *style);
            if is_cut {
                put(buf, end.min(top.right().saturating_sub(3)), y, 2, " …", *style);
            }
            if pane == Pane::Top && i == 0 {
                buf.set_style(Rect { x: top.x, y, width: top.width, height: 1 }, theme.selected);
            }
        }
        draw_connections(self, model, buf, conns);
        let findings_shown = &model.found;
        let count = |s: Severity| model.found.count(s);
        let about = format!("✗ {}   ! {}   · {}", count(Severity::Error), count(Severity::Warn), count(Severity::Note));
        let about =
            model.report.ignored.as_ref().map_or_else(|| about.clone(), |ignored| format!("{about}   {ignored}"));
        rule(buf, found, found.y, "findings", &about, theme, pane == Pane::Findings);
        for line in 0..usize::from(found.height.saturating_sub(1)) {
            let at = self.findings.top + line;
            let Some(finding) = findings_shown.get(at) else { break };
            let y = found.y + 1 + line as u16;
            let cells = findings::cells(model, finding);
            put(buf, found.x + 1, y, 1, &cells[0].0, cells[0].1);
            put(buf, found.x + 3, y, 24, &cells[1].0, cells[1].1);
            put_right(buf, found.x + 28, y, 6, &cells[4].0, cells[4].1);
            let x = put(buf, found.x + 36, y, 10, &format!("f {}", cells[5].0), theme.faint);
            let x = x.max(found.x + 43) + 1;
            put(buf, x, y, found.right().saturating_sub(x + 1), &findings::sentence(finding), theme.text);
            if pane == Pane::Findings && at == self.findings.at {
                buf.set_style(Rect { x: found.x, y, width: found.width, height: 1 }, theme.selected);
            }
        }
        if findings_shown.is_empty() {
            put(
                buf,
                found.x + 3,
                found.y + 1,
                found.width,
                if model.done { "none" } else { "none so far" },
                theme.faint,
            );
        }
        let list = slowest(model);
        let legend = io::legend(list.iter().copied(), usize::from(slow.width).saturating_sub(18));
        rule(buf, slow, slow.y, "slowest I/O", &legend, theme, pane == Pane::Slowest);
        for line in 0..usize::from(slow.height.saturating_sub(1)) {
            let at = self.slowest.top + line;
            let Some(e) = list.get(at) else { break };
            let y = slow.y + 1 + line as u16;
            put_right(buf, slow.x + 1, y, 9, &e.latency().map_or_else(String::new, span), theme.text);
            let x = put(buf, slow.x + 12, y, 16, e.command, if e.failed { theme.error } else { theme.text })
                .max(slow.x + 24)
                + 1;
            let mut what = e.shown_file();
            if let Some(offset) = e.offset {
                what.push_str(&format!(" @{offset}"));
            }
            if let Some(length) = e.length {
                what.push_str(&format!(" {} B", grouped(length.into())));
            }
            let width = 24.min(slow.width / 4);
            let bar_x = slow.right().saturating_sub(width + 14);
            put(buf, x, y, bar_x.saturating_sub(x + 1), &what, theme.text);
            put(buf, bar_x, y, width, &io::bar(e, usize::from(width)), theme.client);
            put_right(buf, slow.right().saturating_sub(13), y, 12, &format!("f {}", e.request.frame), theme.faint);
            if pane == Pane::Slowest && at == self.slowest.at {
                buf.set_style(Rect { x: slow.x, y, width: slow.width, height: 1 }, theme.selected);
            }
        }
        if list.is_empty() {
            put(
                buf,
                slow.x + 3,
                slow.y + 1,
                slow.width,
                if model.done { "no request with a reply" } else { "none so far" },
                theme.faint,
            );
        }
    }

    fn act(&mut self, model: &Model, action: Action) -> Vec<Request> {
        const PANES: [Pane; 4] = [Pane::Top, Pane::Connections, Pane::Findings, Pane::Slowest];
        let areas = layout(model);
        let step = |by: usize| PANES[(self.pane as usize + by) % 4];
        match action {
            Action::NextPane => self.pane = step(1),
            Action::PreviousPane => self.pane = step(3),
            Action::Open => match self.pane {
                Pane::Connections => {
                    let id = self.selected_connection(model);
                    return vec![Request::Follow(id)];
                }
                _ => {
                    if let Some(frame) = self.selected_frame(model) {
                        return vec![Request::GoToFrame(frame)];
                    }
                }
            },
            _ => {
                let pane = self.pane;
                let page = |at: usize, heads: u16| usize::from(areas[at].height.saturating_sub(heads));
                let (connections, found, slow) = (model.connection_count(), model.found.len(), slowest(model).len());
                match pane {
                    Pane::Top => {}
                    Pane::Connections => {
                        self.chosen = true;
                        self.connections.moved(action, connections, page(1, 2));
                    }
                    Pane::Findings => self.findings.moved(action, found, page(2, 1)),
                    Pane::Slowest => self.slowest.moved(action, slow, page(3, 1)),
                }
            }
        }
        Vec::new()
    }

    fn click(&mut self, model: &Model, _: u16, y: u16) -> Vec<Request> {
        let areas = layout(model);
        let row = |at: usize, heads: u16, top: usize| usize::from(y.saturating_sub(areas[at].y + heads)) + top;
        if y < areas[1].y {
            self.pane = Pane::Top;
        } else if y < areas[2].y {
            self.pane = Pane::Connections;
            self.chosen = true;
            self.connections.at = row(1, 2, self.connections.top).min(model.connection_count().saturating_sub(1));
        } else if y < areas[3].y {
            self.pane = Pane::Findings;
            self.findings.at = row(2, 1, self.findings.top).min(model.found.len().saturating_sub(1));
        } else {
            self.pane = Pane::Slowest;
            self.slowest.at = row(3, 1, self.slowest.top).min(slowest(model).len().saturating_sub(1));
        }
        Vec::new()
    }

    fn selected_frame(&self, model: &Model) -> Option<u64> {
        match self.pane {
            Pane::Top | Pane::Findings => self.selected_finding(model).map(|f| f.frame),
            Pane::Connections => model.connection_at(self.connections.at).map(|c| c.first.frame),
            Pane::Slowest => slowest(model).get(self.slowest.at).map(|e| e.request.frame),
        }
    }

    fn selected_connection(&self, model: &Model) -> Option<u32> {
        let by_id = |id: u32| model.report.numbered(id).and_then(|c| c.followed_as.first().copied());
        match self.pane {
            Pane::Connections => model.connection_at(self.connections.at).and_then(|c| c.followed_as.first().copied()),
            Pane::Top | Pane::Findings => self.selected_finding(model).and_then(|f| f.connection).and_then(by_id),
            Pane::Slowest => slowest(model).get(self.slowest.at).and_then(|e| by_id(e.connection)),
        }
    }

    /// The slow request that is selected, under the number by which its connection is followed.
    fn selected_exchange(&self, model: &Model) -> Option<Exchange> {
        let e = (self.pane == Pane::Slowest).then(|| slowest(model).get(self.slowest.at).copied()).flatten()?;
        let known = model.exchanges.iter().find(|(_, known)| known.id == e.id).map(|(_, known)| known.clone());
        known.or_else(|| {
            Some(Exchange {
                connection: model.report.numbered(e.connection)?.followed_as.first().copied()?,
                ..e.clone()
            })
        })
    }

    fn selected_finding(&self, model: &Model) -> Option<Found> {
        let at = if self.pane == Pane::Findings { self.findings.at } else { 0 };
        model.found.get(at).cloned()
    }

    fn is_chosen(&self) -> bool {
        true
    }

    fn is_at_a_frame(&self) -> bool {
        self.pane != Pane::Connections
    }

    fn cursor(&mut self) -> Option<&mut Cursor> {
        Some(cursor(self))
    }

    /// Number of rows of the pane.
    fn len(&self, model: &Model) -> usize {
        match self.pane {
            Pane::Findings | Pane::Top => model.found.len(),
            Pane::Slowest => slowest(model).len(),
            Pane::Connections => model.connection_count(),
        }
    }

    /// One of them, as text.
    fn row(&self, model: &Model, at: usize) -> Vec<String> {
        match self.pane {
            Pane::Findings | Pane::Top => model.found.get(at).map_or_else(Vec::new, findings::export),
            Pane::Slowest => slowest(model).get(at).map_or_else(Vec::new, |e| {
                vec![
                    e.request.frame.to_string(),
                    e.command.to_owned(),
                    e.shown_file(),
                    e.latency().map_or_else(String::new, |l| l.to_string()),
                ]
            }),
            Pane::Connections => model.connection_at(at).map_or_else(Vec::new, |c| export(model, c)),
        }
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
