//! I/O: one row per request and its reply; below, the selected one in full: the memory it advertised, its RDMA
//! operations, its time by owner, its frames.
//!
//! ```text
//!  time      command  file            offset  length  moved    how     status   latency  time spent in
//!  1.204331  READ     big.bin              0   65536  65,536   rdma    OK       0.59 ms  ░░▒▒▒▒▓▓▓▓▓
//! ── READ big.bin ─────────────────────────────────────── exchange 12 ──
//!  request   frame 640          reply frame 705      0.59 ms
//!  key 0x1a2b  address 0x7f00…  64.0 kB
//!  RDMA Write  1 operation, 64 frames, 65,536 B   frames 641 … 704
//!  credit ░ 0   server ▒ 0.21 ms   rdma ▓ 0.38 ms   wire █ 0.00 ms
//!  frames  640 641 … 705       ◂ ▸ choose one, Enter goes there
//! ```

use super::draw::{self, Cell, Column, Cursor, Table, column, number, put, rule};
use super::keys::Action;
use super::model::Model;
use super::order::{Order, Rows};
use super::screen::{Request, Screen, Table as Sortable, listed};
use super::time::{grouped, span};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use rdmascope_analyzer::episodes::Episode;
use rdmascope_analyzer::episodes::time::{Behind, Owner, Time};
use rdmascope_analyzer::exchange::{DataPath, Exchange, Status};
use std::cmp::{Ordering, Reverse};

/// State of the view.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    pub(crate) list: Cursor,
    pub(crate) order: Order,
    in_detail: bool,
    detail_top: usize,
    /// Index of the chosen frame among those of the selected exchange.
    chosen: usize,
    /// The frames of the exchange with this id, found among this number of frames.
    frames: (u64, usize, Vec<u64>),
}

/// Frames of an exchange that are shown.
const FRAMES_MAX: usize = 200;

pub(crate) static COLUMNS: [Column; 13] = [
    number("time", 11),
    column("command", 14),
    column("file", 0),
    number("offset", 11).from(100),
    number("length", 9).from(90),
    number("moved", 9).from(76),
    column("how", 8).from(125),
    column("status", 18).from(110),
    number("latency", 9),
    column("time spent in", 16).from(77),
    number("#", 5).from(84),
    column("client", 15).from(118),
    column("server", 15).from(140),
];

fn layout(model: &Model) -> [Rect; 2] {
    let body = model.body();
    let below = (body.height / 3).clamp(7, 14).min(body.height.saturating_sub(4));
    [Rect { height: body.height - below, ..body }, Rect { y: body.y + body.height - below, height: below, ..body }]
}

/// One row a request.
static ROWS: Rows = Rows { count: |_| 1, compare };

/// Compares two rows by a column.
fn compare((a, _): (&Exchange, u8), (b, _): (&Exchange, u8), by: usize) -> Ordering {
    match by {
        1 => a.command.cmp(b.command),
        2 => a.file.cmp(&b.file),
        3 => a.offset.cmp(&b.offset),
        4 => a.length.cmp(&b.length),
        5 => a.bytes_moved.cmp(&b.bytes_moved),
        6 => a.channel.name().cmp(b.channel.name()),
        7 => (a.failed, a.status).cmp(&(b.failed, b.status)),
        8 => a.latency().cmp(&b.latency()),
        9 => a.time.of(Owner::Server).cmp(&b.time.of(Owner::Server)),
        10..=12 => a.connection.cmp(&b.connection),
        _ => Ordering::Equal,
    }
    .then(a.request.cmp(&b.request))
    .then(a.id.cmp(&b.id))
}

pub(crate) fn page(model: &Model) -> usize {
    usize::from(layout(model)[0].height.saturating_sub(1))
}

fn exchange<'a>(state: &State, model: &'a Model, row: usize) -> Option<&'a Exchange> {
    model.exchanges.at(state.order.row(row)?.0 as usize)
}

pub(crate) fn selected<'a>(state: &State, model: &'a Model) -> Option<&'a Exchange> {
    exchange(state, model, state.list.at)
}

/// The status of a reply, as text.
pub(crate) fn status(exchange: &Exchange) -> String {
    match (exchange.status, exchange.reply) {
        (_, None) => "no reply".to_owned(),
        (None | Some(0), _) => "OK".to_owned(),
        (Some(status), _) => Status(exchange.family, status).to_string().trim_start_matches("STATUS_").to_owned(),
    }
}

/// Character with which an owner of time is drawn.
const fn sign(owner: Owner) -> char {
    match owner {
        Owner::Server => '▒',
        Owner::Rdma => '▓',
        Owner::Wire => '█',
        Owner::Recovery => '×',
        Owner::Credit => '░',
        Owner::Rnr => '!',
        Owner::Pause => '‖',
        Owner::Client => '·',
        Owner::SendQueue => '»',
        Owner::Unknown => '?',
    }
}

/// The characters of [`bar`] with the owners of the time of these requests: the largest parts, as many as fit.
pub(crate) fn legend<'e>(of: impl IntoIterator<Item = &'e Exchange>, width: usize) -> String {
    let mut sum = Time::default();
    of.into_iter().for_each(|e| sum += &e.time);
    let mut parts: Vec<(Owner, i64)> = sum.parts().collect();
    parts.sort_by_key(|(_, ns)| Reverse(*ns));
    let mut out = String::new();
    for (owner, _) in parts {
        let between = if out.is_empty() { "" } else { "  " };
        let part = format!("{between}{} {}", sign(owner), owner.name());
        if out.chars().count() + part.chars().count() > width {
            break;
        }
        out.push_str(&part);
    }
    out
}

/// The time of a request by owner, as a bar.
pub(crate) fn bar(exchange: &Exchange, width: usize) -> String {
    let all = exchange.time.sum();
    if all <= 0 {
        return String::new();
    }
    let mut out = String::new();
    let (mut so_far, mut drawn) = (0_i128, 0);
    for (owner, ns) in exchange.time.parts() {
        so_far += i128::from(ns);
        let upto = (so_far * width as i128 / i128::from(all)) as usize;
        out.extend(std::iter::repeat_n(sign(owner), upto.saturating_sub(drawn)));
        drawn = upto.max(drawn);
    }
    out
}

fn cells(model: &Model, e: &Exchange) -> Vec<Cell> {
    let theme = &model.theme;
    let style = if e.failed {
        theme.error
    } else if e.reply.is_none() || e.retransmissions > 0 {
        theme.warn
    } else {
        theme.text
    };
    let optional = |v: Option<u64>| v.map_or_else(String::new, grouped);
    let moved = if e.bytes_moved > 0 { grouped(e.bytes_moved) } else { String::new() };
    let [connection, client, server] = hosts(model, e);
    let how = if e.bytes_moved == 0 && e.channel == DataPath::Inline { "" } else { how(e.channel) };
    vec![
        (model.time.show(e.request.time, model.first_time(), model.first_time()), theme.text),
        (e.command.to_owned(), style),
        (e.shown_file(), theme.text),
        (optional(e.offset), theme.text),
        (optional(e.length.map(u64::from)), theme.text),
        (moved, theme.text),
        (how.to_owned(), theme.rdma),
        (status(e), style),
        (e.latency().map_or_else(|| "–".to_owned(), span), theme.text),
        (bar(e, 16), theme.client),
        connection,
        client,
        server,
    ]
}

/// The connection of a request, and its ends.
pub(crate) fn hosts(model: &Model, e: &Exchange) -> [Cell; 3] {
    let theme = &model.theme;
    let Some(connection) = model.connection(e.connection) else {
        return [const { String::new() }; 3].map(|empty| (empty, theme.text));
    };
    let [client, server] = connection.peers.map(|p| rdmascope_analyzer::report::address(&p.address));
    [(connection.id.to_string(), theme.faint), (client, theme.client), (server, theme.server)]
}

const fn how(channel: DataPath) -> &'static str {
    match channel {
        DataPath::Inline => "inline",
        DataPath::Rdma => "RDMA",
        DataPath::RdmaInvalidate => "RDMA+inv",
        DataPath::RdmaTransform => "RDMA+enc",
    }
}

/// The episode that it waited for longest, if it was one.
pub(crate) fn episode<'a>(model: &'a Model, e: &Exchange) -> Option<&'a Episode> {
    let Behind::Episode(id) = e.behind? else { return None };
    model.connection(e.connection)?.episodes.list.iter().find(|episode| episode.id == id)
}

/// The request or episode that it waited for longest, if that was not its own server.
pub(crate) fn behind(model: &Model, e: &Exchange) -> Option<String> {
    Some(match e.behind? {
        Behind::Exchange(id) => format!("request {id}"),
        Behind::Episode(_) => {
            let episode = episode(model, e)?;
            let from = episode
                .by
                .map_or("", |by| if by.index() == 0 { " of the client's packets" } else { " of the server's packets" });
            let lasted = episode
                .end
                .map_or_else(|| "not over".to_owned(), |end| span(end.time.saturating_sub(episode.begin.time)));
            let frames = episode.end.map_or_else(
                || format!("from frame {}", episode.begin.frame),
                |end| format!("frames {} to {}", episode.begin.frame, end.frame),
            );
            format!("{}{from}, {frames}, {lasted}", episode.kind.name())
        }
    })
}

/// The exchange in full.
fn lines(state: &State, model: &Model, e: &Exchange) -> Vec<Vec<(String, Style)>> {
    let theme = &model.theme;
    let mut out = Vec::new();
    let reply = match (e.reply, e.latency()) {
        (Some(reply), Some(latency)) => format!("frame {}   {}   after {}", reply.frame, status(e), span(latency)),
        _ => "never seen".to_owned(),
    };
    let pending = if e.pending { "   (an interim reply came first)" } else { "" };
    out.push(vec![
        ("request ".into(), theme.faint),
        (format!("frame {}   ", e.request.frame), theme.client),
        ("reply ".into(), theme.faint),
        (format!("{reply}{pending}"), if e.failed { theme.error } else { theme.server }),
    ]);
    let mut time = vec![("time    ".into(), theme.faint)];
    for (owner, ns) in e.time.parts() {
        let style = if matches!(owner, Owner::Server | Owner::Rdma | Owner::Wire) { theme.text } else { theme.warn };
        time.push((format!("{} {} {}   ", sign(owner), owner.name(), span(ns)), style));
    }
    if e.wait_for_credit > 0 {
        time.push((format!("before it, waiting for a credit {}", span(e.wait_for_credit)), theme.warn));
    }
    out.push(time);
    out.extend(behind(model, e).map(|text| vec![("behind  ".into(), theme.faint), (text, theme.warn)]));
    for d in e.descriptors.iter().take(e.descriptor_count as usize) {
        out.push(vec![
            ("memory  ".into(), theme.faint),
            (format!("key {:#010x}", d.token), theme.upper),
            (format!("  address {:#x}  {} B", d.offset, grouped(d.length.into())), theme.text),
        ]);
    }
    if e.descriptor_count as usize > e.descriptors.len() {
        out.push(vec![
            ("        ".into(), theme.faint),
            (format!("and {} more", e.descriptor_count as usize - e.descriptors.len()), theme.faint),
        ]);
    }
    for (name, moved) in [("RDMA Read by the server", &e.reads), ("RDMA Write by the server", &e.writes)] {
        if moved.frames > 0 {
            let text = format!(
                "{name}: {} operations, {} frames, {} B, frames {} to {}, {}",
                moved.operations,
                moved.frames,
                grouped(moved.bytes),
                moved.first.frame,
                moved.last.frame,
                span(moved.last.time.saturating_sub(moved.first.time))
            );
            out.push(vec![("moved   ".into(), theme.faint), (text, theme.rdma)]);
        }
    }
    if e.retransmissions > 0 {
        out.push(vec![
            ("again   ".into(), theme.faint),
            (format!("{} packets of its connection were sent again meanwhile", e.retransmissions), theme.warn),
        ]);
    }
    let width = usize::from(model.size.0).saturating_sub(10);
    let mut line = vec![("frames  ".to_owned(), theme.faint)];
    let mut used = 0;
    let frames: &[u64] = if state.frames.0 == e.id { &state.frames.2 } else { &[] };
    for (i, frame) in frames.iter().enumerate() {
        let text = frame.to_string();
        if used + text.len() + 1 > width {
            out.push(std::mem::replace(&mut line, vec![("        ".to_owned(), theme.faint)]));
            used = 0;
        }
        used += text.len() + 1;
        let is_chosen = state.in_detail && i == state.chosen;
        line.push((text, if is_chosen { theme.selected } else { theme.text }));
        line.push((" ".to_owned(), theme.text));
    }
    if frames.len() == FRAMES_MAX {
        line.push(("…".to_owned(), theme.faint));
    }
    out.push(line);
    out
}

/// The frames of an exchange, by number: the first `most`.
pub(crate) fn frames_of(model: &Model, e: &Exchange, most: usize) -> Vec<u64> {
    /// Maximum number of frames to search: a longer exchange has more frames than anyone can read.
    const LOOK_MAX: usize = 200_000;
    let from = e.request.frame.saturating_sub(1) as usize;
    let upto = e.reply_end.map_or(model.index.len() as u64, |at| at.frame) as usize;
    let id = u32::try_from(e.id).unwrap_or(u32::MAX);
    let ends =
        [e.request.frame, e.request_end.frame, e.reply.map_or(0, |r| r.frame), e.reply_end.map_or(0, |r| r.frame)];
    model
        .index
        .from(from)
        .take(upto.saturating_sub(from).min(LOOK_MAX))
        // the first pieces of a message were not known to belong to it
        .filter(|(i, entry)| {
            entry.connection == e.connection && (entry.exchange == id || ends.contains(&(*i as u64 + 1)))
        })
        .map(|(i, _)| i as u64 + 1)
        .take(most)
        .collect()
}

/// For an export: the heads. Behind the latency, the time that the request waited for a credit before it was sent, and
/// the latency by owner, in the order of [`Owner::ALL`].
pub(crate) const HEADS: &[&str] = &[
    "exchange",
    "connection",
    "frame",
    "reply_frame",
    "time",
    "command",
    "file",
    "offset",
    "length",
    "moved",
    "how",
    "status",
    "latency_ns",
    "before_ns",
    "client_ns",
    "credit_ns",
    "send_queue_ns",
    "wire_ns",
    "recovery_ns",
    "rnr_ns",
    "pause_ns",
    "rdma_ns",
    "server_ns",
    "unknown_ns",
];

impl Screen for State {
    fn hints(&self) -> &'static [(Action, &'static str)] {
        &[(Action::Open, "frame"), (Action::Why, "why"), (Action::SortBy, "sort"), (Action::Follow, "follow")]
    }

    /// Looks for the frames of the selected exchange, if that was not done yet.
    fn prepare(&mut self, model: &Model) {
        let Some(e) = selected(self, model) else { return };
        // an answered exchange has all its frames
        let among = if e.reply_end.is_some() { 0 } else { model.index.len() };
        if (self.frames.0, self.frames.1) != (e.id, among) {
            let found = (e.id, among, frames_of(model, e, FRAMES_MAX));
            if self.frames.0 != found.0 {
                self.chosen = 0;
            }
            self.frames = found;
        }
    }

    fn draw(&self, model: &Model, buf: &mut Buffer) {
        let [list, below] = layout(model);
        let theme = &model.theme;
        let len = self.order.len();
        let shape = Table {
            columns: &draw::timed(COLUMNS, model.time.width()),
            len,
            cursor: self.list,
            focused: !self.in_detail,
            sorted: Some((self.order.by, self.order.down)),
        };
        draw::table(buf, list, theme, &shape, |row| {
            exchange(self, model, row).map_or_else(Vec::new, |e| cells(model, e))
        });
        if len == 0 {
            let text = match model.done && self.order.is_made() {
                false => "Reading …",
                true if model.filter.is_on() || model.followed.is_some() => "No request in the frames shown.",
                true => "No SMB2 or NFS request was seen.",
            };
            put(buf, list.x + 2, list.y + 1, list.width, text, theme.faint);
        }
        let about = match model.exchanges_dropped {
            0 => format!("{} of {}", (self.list.at + 1).min(len), grouped(len as u64)),
            dropped => format!("{} of {}, {} more not kept", self.list.at + 1, grouped(len as u64), grouped(dropped)),
        };
        let Some(e) = selected(self, model) else {
            rule(buf, below, below.y, "exchange", &about, theme, self.in_detail);
            return;
        };
        rule(
            buf,
            below,
            below.y,
            format!("{} {}", e.command, e.shown_file()).trim_end(),
            &about,
            theme,
            self.in_detail,
        );
        for (line, pieces) in
            lines(self, model, e).iter().skip(self.detail_top).take(usize::from(below.height - 1)).enumerate()
        {
            let pieces: Vec<(&str, Style)> = pieces.iter().map(|(t, s)| (t.as_str(), *s)).collect();
            draw::spans(buf, below.x + 1, below.y + 1 + line as u16, below.width - 2, &pieces);
        }
    }

    fn act(&mut self, model: &Model, action: Action) -> Vec<Request> {
        match action {
            Action::NextPane | Action::PreviousPane => self.in_detail = !self.in_detail,
            Action::Open => {
                if let Some(frame) = self.selected_frame(model) {
                    return vec![Request::GoToFrame(frame)];
                }
            }
            Action::Sort | Action::SortReverse => return self.sort_on(model, action),
            Action::Left if self.in_detail => self.chosen = self.chosen.saturating_sub(1),
            Action::Right if self.in_detail => {
                self.chosen = (self.chosen + 1).min(self.frames.2.len().saturating_sub(1));
            }
            Action::Up | Action::Down | Action::PageUp | Action::PageDown if self.in_detail => {
                let most = selected(self, model).map_or(0, |e| lines(self, model, e).len()).saturating_sub(1);
                let mut cursor = Cursor { at: self.detail_top, top: 0 };
                cursor.moved(action, most + 1, 6);
                self.detail_top = cursor.at;
            }
            _ => {
                let (len, page) = (self.order.len(), page(model));
                self.list.moved(action, len, page);
                (self.detail_top, self.chosen) = (0, 0);
            }
        }
        Vec::new()
    }

    fn click(&mut self, model: &Model, x: u16, y: u16) -> Vec<Request> {
        let [list, below] = layout(model);
        if let Some(by) = draw::head_at(&draw::timed(COLUMNS, model.time.width()), list, x, y) {
            return self.sort_by(model, by);
        }
        self.in_detail = y >= below.y;
        if y > list.y && y < below.y {
            let row = self.list.top + usize::from(y - list.y - 1);
            if row < self.order.len() {
                self.list.at = row;
            }
        }
        Vec::new()
    }

    /// The frame that the selected exchange leads to.
    fn selected_frame(&self, model: &Model) -> Option<u64> {
        let e = selected(self, model)?;
        let chosen = self.frames.2.get(self.chosen).filter(|_| self.in_detail && self.frames.0 == e.id);
        Some(chosen.copied().unwrap_or(e.request.frame))
    }

    fn selected_connection(&self, model: &Model) -> Option<u32> {
        selected(self, model).map(|e| e.connection)
    }

    fn selected_exchange(&self, model: &Model) -> Option<Exchange> {
        selected(self, model).cloned()
    }

    /// True if the user selected an exchange.
    fn is_chosen(&self) -> bool {
        self.list.at > 0 || self.in_detail || self.order.by != 0
    }

    fn columns(&self) -> &'static [Column] {
        &COLUMNS
    }

    fn cursor(&mut self) -> Option<&mut Cursor> {
        Some(&mut self.list)
    }

    fn len(&self, _: &Model) -> usize {
        self.order.len()
    }

    /// For an export: a row.
    fn row(&self, model: &Model, at: usize) -> Vec<String> {
        let Some(e) = exchange(self, model, at) else { return Vec::new() };
        let optional = |v: Option<u64>| v.map_or_else(String::new, |v| v.to_string());
        let mut row = vec![
            e.id.to_string(),
            model.connection(e.connection).map_or(0, |c| c.id).to_string(),
            e.request.frame.to_string(),
            optional(e.reply.map(|r| r.frame)),
            super::time::seconds(e.request.time.saturating_sub(model.first_time())),
            e.command.to_owned(),
            e.shown_file(),
            optional(e.offset),
            optional(e.length.map(u64::from)),
            e.bytes_moved.to_string(),
            e.channel.name().to_owned(),
            status(e),
            e.latency().map_or_else(String::new, |l| l.to_string()),
            e.wait_for_credit.to_string(),
        ];
        row.extend(e.time.0.iter().map(i64::to_string));
        row
    }

    fn export(&self, model: &Model) -> Vec<Vec<String>> {
        listed(self, model, HEADS)
    }

    fn table(&mut self) -> Option<Sortable<'_>> {
        Some(Sortable { order: &mut self.order, cursor: &mut self.list, rows: &ROWS, greatest_first_from: 3 })
    }

    fn page(&self, model: &Model) -> usize {
        page(model)
    }
}
