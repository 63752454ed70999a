//! I/O: one row a request and its reply; below, the selected one in full: memory it advertised, RDMA it caused, where its time went, its frames.
//!
//! ```text
//!  time      command  file            offset  length  moved    how     status   latency  credit│server│rdma│wire
//!  1.204331  READ     big.bin              0   65536  65,536   rdma    OK       0.59 ms  ░░▒▒▒▒▓▓▓▓▓
//! ── READ big.bin ─────────────────────────────────────── exchange 12 ──
//!  request   frame 640          reply frame 705      0.59 ms
//!  key 0x1a2b  address 0x7f00…  64.0 kB
//!  RDMA Write  1 operation, 64 frames, 65,536 B   frames 641 … 704
//!  credit ░ 0   server ▒ 0.21 ms   rdma ▓ 0.38 ms   wire █ 0.00 ms
//!  frames  640 641 … 705       ◂ ▸ choose one, Enter goes there
//! ```

use super::app::{App, Cursor, Effect};
use super::draw::{self, Cell, Column, Table, column, number, put, rule};
use super::keys::Action;
use super::order::Order;
use super::screen::{Change, Screen, listed};
use super::time::{grouped, span};
use super::views::View;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use rdmascope_analyzer::episodes::time::{Behind, Owner};
use rdmascope_analyzer::exchange::{Channel, Exchange, Family};
use rdmascope_dissector::wire::smb2::NtStatus;
use std::cmp::Ordering;

/// What is shown.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    pub(crate) list: Cursor,
    pub(crate) order: Order,
    in_detail: bool,
    detail_top: usize,
    /// Which of the frames of the selected exchange.
    chosen: usize,
    /// These frames, of the exchange with this id, found among so many frames.
    frames: (u64, usize, Vec<u64>),
}

/// Frames of an exchange that are shown.
const FRAMES_MAX: usize = 200;

pub(crate) const COLUMNS: [Column; 13] = [
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

fn layout(app: &App) -> [Rect; 2] {
    let body = app.body();
    let below = (body.height / 3).clamp(7, 14).min(body.height.saturating_sub(4));
    [Rect { height: body.height - below, ..body }, Rect { y: body.y + body.height - below, height: below, ..body }]
}

/// How a column has two rows.
pub(crate) fn compare((a, _): (&Exchange, u8), (b, _): (&Exchange, u8), by: usize) -> Ordering {
    match by {
        1 => a.command.cmp(b.command),
        2 => a.file.cmp(&b.file),
        3 => a.offset.cmp(&b.offset),
        4 => a.length.cmp(&b.length),
        5 => a.bytes_moved.cmp(&b.bytes_moved),
        6 => a.channel.name().cmp(b.channel.name()),
        7 => (a.failed, a.status).cmp(&(b.failed, b.status)),
        8 => a.latency().cmp(&b.latency()),
        9 => a.split().server.cmp(&b.split().server),
        10..=12 => a.connection.cmp(&b.connection),
        _ => Ordering::Equal,
    }
    .then(a.request.cmp(&b.request))
    .then(a.id.cmp(&b.id))
}

/// Looks for the frames of the selected exchange, where that was not done yet.
pub(crate) fn prepare(app: &mut App) {
    let Some(e) = selected(app) else { return };
    // what was answered has all its frames
    let among = if e.reply_end.is_some() { 0 } else { app.index.len() };
    if (app.states.io.frames.0, app.states.io.frames.1) != (e.id, among) {
        let found = (e.id, among, frames_of(app, e, FRAMES_MAX));
        if app.states.io.frames.0 != found.0 {
            app.states.io.chosen = 0;
        }
        app.states.io.frames = found;
    }
}

pub(crate) fn page(app: &App) -> usize {
    usize::from(layout(app)[0].height.saturating_sub(1))
}

fn exchange(app: &App, row: usize) -> Option<&Exchange> {
    app.exchanges.at(app.states.io.order.row(row)?.0 as usize)
}

pub(crate) fn selected(app: &App) -> Option<&Exchange> {
    exchange(app, app.states.io.list.at)
}

/// Whether the user selected an exchange.
pub(crate) fn is_chosen(app: &App) -> bool {
    app.states.io.list.at > 0 || app.states.io.in_detail || app.states.io.order.by != 0
}

/// The frame that the selected exchange leads to.
pub(crate) fn selected_frame(app: &App) -> Option<u64> {
    let e = selected(app)?;
    let chosen = app.states.io.frames.2.get(app.states.io.chosen).filter(|_| app.states.io.in_detail && app.states.io.frames.0 == e.id);
    Some(chosen.copied().unwrap_or(e.request.frame))
}

pub(crate) fn act(app: &mut App, action: Action) -> Vec<Effect> {
    match action {
        Action::NextPane | Action::PreviousPane => app.states.io.in_detail = !app.states.io.in_detail,
        Action::Open => {
            if let Some(frame) = selected_frame(app) {
                return app.go_to_frame(frame);
            }
        }
        // what takes long is looked for from its long end
        Action::Sort => {
            let by = (app.states.io.order.by + 1) % COLUMNS.len();
            app.sort_table(View::Io, by, by >= 3, &COLUMNS);
        }
        Action::SortReverse => app.sort_table(View::Io, app.states.io.order.by, !app.states.io.order.down, &COLUMNS),
        Action::Left if app.states.io.in_detail => app.states.io.chosen = app.states.io.chosen.saturating_sub(1),
        Action::Right if app.states.io.in_detail => {
            app.states.io.chosen = (app.states.io.chosen + 1).min(app.states.io.frames.2.len().saturating_sub(1));
        }
        Action::Up | Action::Down | Action::PageUp | Action::PageDown if app.states.io.in_detail => {
            let most = selected(app).map_or(0, |e| lines(app, e).len()).saturating_sub(1);
            let mut cursor = Cursor { at: app.states.io.detail_top, top: 0 };
            cursor.moved(action, most + 1, 6);
            app.states.io.detail_top = cursor.at;
        }
        _ => {
            let (len, page) = (app.states.io.order.len(), page(app));
            app.states.io.list.moved(action, len, page);
            (app.states.io.detail_top, app.states.io.chosen) = (0, 0);
        }
    }
    Vec::new()
}

pub(crate) fn click(app: &mut App, x: u16, y: u16) {
    let [list, below] = layout(app);
    if let Some(by) = draw::head_at(&COLUMNS, list, x, y) {
        let order = &app.states.io.order;
        let down = if order.by == by { !order.down } else { by >= 3 };
        return app.sort_table(View::Io, by, down, &COLUMNS);
    }
    app.states.io.in_detail = y >= below.y;
    if y > list.y && y < below.y {
        let row = app.states.io.list.top + usize::from(y - list.y - 1);
        if row < app.states.io.order.len() {
            app.states.io.list.at = row;
        }
    }
}

/// The status of a reply, in words.
pub(crate) fn status(exchange: &Exchange) -> String {
    match (exchange.status, exchange.reply) {
        (_, None) => "no reply".to_owned(),
        (None | Some(0), _) => "OK".to_owned(),
        (Some(status), _) if exchange.family == Family::Smb2 => {
            NtStatus(status).name().map_or_else(|| format!("{status:#010x}"), |n| n.trim_start_matches("STATUS_").to_owned())
        }
        (Some(status), _) => {
            use rdmascope_dissector::wire::nfs::{v3, v4};
            // version 4 goes on where version 3 ends
            let name = v3::Status(status).name().or_else(|| v4::Status(status).name());
            name.map_or_else(|| format!("status {status}"), str::to_owned)
        }
    }
}

/// How an owner of time is drawn.
const fn sign(owner: Owner) -> char {
    match owner {
        Owner::Server => '▒',
        Owner::Rdma => '▓',
        Owner::Wire => '█',
        Owner::Recovery => '×',
        Owner::Credit => '░',
        Owner::Rnr | Owner::Pause => '‖',
        Owner::Client | Owner::SendQueue => '·',
        Owner::Unknown => '?',
    }
}

/// Whose its time was, as a bar.
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

fn cells(app: &App, e: &Exchange) -> Vec<Cell> {
    let theme = &app.theme;
    let style = if e.failed {
        theme.error
    } else if e.reply.is_none() || e.retransmissions > 0 {
        theme.warn
    } else {
        theme.text
    };
    let optional = |v: Option<u64>| v.map_or_else(String::new, grouped);
    let moved = if e.bytes_moved > 0 { grouped(e.bytes_moved) } else { String::new() };
    let [connection, client, server] = hosts(app, e);
    let how = if e.bytes_moved == 0 && e.channel == Channel::Inline { "" } else { how(e.channel) };
    vec![
        (app.time.show(e.request.time, app.first_time(), app.first_time()), theme.text),
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
pub(crate) fn hosts(app: &App, e: &Exchange) -> [Cell; 3] {
    let theme = &app.theme;
    let Some(connection) = app.connection(e.connection) else { return [const { String::new() }; 3].map(|empty| (empty, theme.text)) };
    let [client, server] = connection.peers.map(|p| rdmascope_analyzer::report::address(&p.address));
    [(connection.id.to_string(), theme.faint), (client, theme.client), (server, theme.server)]
}

const fn how(channel: Channel) -> &'static str {
    match channel {
        Channel::Inline => "inline",
        Channel::Rdma => "RDMA",
        Channel::RdmaInvalidate => "RDMA+inv",
        Channel::RdmaTransform => "RDMA+enc",
    }
}

/// What it waited for longest, where that was not its own server.
fn behind(app: &App, e: &Exchange) -> Option<Vec<(String, Style)>> {
    let theme = &app.theme;
    let text = match e.behind? {
        Behind::Exchange(id) => format!("request {id}"),
        Behind::Episode(id) => {
            let episode = app.connection(e.connection)?.episodes.list.iter().find(|episode| episode.id == id)?;
            let from = episode.by.map_or("", |by| if by.index() == 0 { " of the client's packets" } else { " of the server's packets" });
            let lasted = episode.end.map_or_else(|| "not over".to_owned(), |end| span(end.time.saturating_sub(episode.begin.time)));
            let frames = episode.end.map_or_else(
                || format!("from frame {}", episode.begin.frame),
                |end| format!("frames {} to {}", episode.begin.frame, end.frame),
            );
            format!("{}{from}, {frames}, {lasted}", episode.kind.name())
        }
    };
    Some(vec![("behind  ".into(), theme.faint), (text, theme.warn)])
}

/// The exchange in full.
fn lines(app: &App, e: &Exchange) -> Vec<Vec<(String, Style)>> {
    let theme = &app.theme;
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
    out.extend(behind(app, e));
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
                span(moved.last.time - moved.first.time)
            );
            out.push(vec![("moved   ".into(), theme.faint), (text, theme.rdma)]);
        }
    }
    if e.retransmissions > 0 {
        out.push(vec![
            ("again   ".into(), theme.faint),
            (format!("{} packets of its connection went out again meanwhile", e.retransmissions), theme.warn),
        ]);
    }
    let width = usize::from(app.size.0).saturating_sub(10);
    let mut line = vec![("frames  ".to_owned(), theme.faint)];
    let mut used = 0;
    let frames: &[u64] = if app.states.io.frames.0 == e.id { &app.states.io.frames.2 } else { &[] };
    for (i, frame) in frames.iter().enumerate() {
        let text = frame.to_string();
        if used + text.len() + 1 > width {
            out.push(std::mem::replace(&mut line, vec![("        ".to_owned(), theme.faint)]));
            used = 0;
        }
        used += text.len() + 1;
        let is_chosen = app.states.io.in_detail && i == app.states.io.chosen;
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
pub(crate) fn frames_of(app: &App, e: &Exchange, most: usize) -> Vec<u64> {
    /// Frames looked at: an exchange that goes on for longer has more than one can read.
    const LOOK_MAX: usize = 200_000;
    let from = e.request.frame.saturating_sub(1) as usize;
    let upto = e.reply_end.map_or(app.index.len() as u64, |at| at.frame) as usize;
    let id = u32::try_from(e.id).unwrap_or(u32::MAX);
    let ends = [e.request.frame, e.request_end.frame, e.reply.map_or(0, |r| r.frame), e.reply_end.map_or(0, |r| r.frame)];
    app.index
        .from(from)
        .take(upto.saturating_sub(from).min(LOOK_MAX))
        // the first pieces of a message were not known to belong to it
        .filter(|(i, entry)| entry.connection == e.connection && (entry.exchange == id || ends.contains(&(*i as u64 + 1))))
        .map(|(i, _)| i as u64 + 1)
        .take(most)
        .collect()
}

pub(crate) fn draw(app: &App, buf: &mut Buffer) {
    let [list, below] = layout(app);
    let theme = &app.theme;
    let len = app.states.io.order.len();
    let shape = Table {
        columns: &COLUMNS,
        len,
        cursor: app.states.io.list,
        focused: !app.states.io.in_detail,
        sorted: Some((app.states.io.order.by, app.states.io.order.down)),
    };
    draw::table(buf, list, theme, &shape, |row| exchange(app, row).map_or_else(Vec::new, |e| cells(app, e)));
    if len == 0 {
        let text = match app.done && app.states.io.order.is_made() {
            false => "Reading …",
            true if app.filter.is_on() || app.followed.is_some() => "No request of what is shown.",
            true => "No SMB2 or NFS request was seen.",
        };
        put(buf, list.x + 2, list.y + 1, list.width, text, theme.faint);
    }
    let about = match app.exchanges_dropped {
        0 => format!("{} of {}", (app.states.io.list.at + 1).min(len), grouped(len as u64)),
        dropped => format!("{} of {}, {} more not kept", app.states.io.list.at + 1, grouped(len as u64), grouped(dropped)),
    };
    let Some(e) = selected(app) else {
        rule(buf, below, below.y, "exchange", &about, theme, app.states.io.in_detail);
        return;
    };
    rule(buf, below, below.y, format!("{} {}", e.command, e.shown_file()).trim_end(), &about, theme, app.states.io.in_detail);
    for (line, pieces) in lines(app, e).iter().skip(app.states.io.detail_top).take(usize::from(below.height - 1)).enumerate() {
        let pieces: Vec<(&str, Style)> = pieces.iter().map(|(t, s)| (t.as_str(), *s)).collect();
        draw::spans(buf, below.x + 1, below.y + 1 + line as u16, below.width - 2, &pieces);
    }
}

/// For an export: the heads.
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
    "credit_ns",
    "server_ns",
    "rdma_ns",
    "wire_ns",
];

/// For an export: a row.
pub(crate) fn export(app: &App, row: usize) -> Vec<String> {
    let Some(e) = exchange(app, row) else { return Vec::new() };
    let optional = |v: Option<u64>| v.map_or_else(String::new, |v| v.to_string());
    let split = e.split();
    vec![
        e.id.to_string(),
        app.connection(e.connection).map_or(0, |c| c.id).to_string(),
        e.request.frame.to_string(),
        optional(e.reply.map(|r| r.frame)),
        super::time::seconds(e.request.time - app.first_time()),
        e.command.to_owned(),
        e.shown_file(),
        optional(e.offset),
        optional(e.length.map(u64::from)),
        e.bytes_moved.to_string(),
        e.channel.name().to_owned(),
        status(e),
        e.latency().map_or_else(String::new, |l| l.to_string()),
        split.credit.to_string(),
        split.server.to_string(),
        split.rdma.to_string(),
        split.wire.to_string(),
    ]
}

/// The view.
pub(crate) struct Io;

impl Screen for Io {
    fn hints(&self) -> &'static [(Action, &'static str)] {
        &[(Action::Open, "frame"), (Action::Why, "why"), (Action::SortBy, "sort"), (Action::Follow, "follow")]
    }

    fn prepare(&self, app: &mut App) {
        prepare(app);
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

    fn selected_connection(&self, app: &App) -> Option<u32> {
        selected(app).map(|e| e.connection)
    }

    fn selected_exchange(&self, app: &App) -> Option<Exchange> {
        selected(app).cloned()
    }

    fn is_chosen(&self, app: &App) -> bool {
        is_chosen(app)
    }

    fn sorts(&self, _: &App) -> Vec<String> {
        COLUMNS.iter().map(|c| c.title.to_owned()).collect()
    }

    fn sort_by(&self, app: &mut App, column: usize) -> Vec<Effect> {
        if column < COLUMNS.len() {
            let order = &app.states.io.order;
            // what takes long is looked for from its long end
            let down = if order.by == column { !order.down } else { COLUMNS[column].right && column > 0 };
            app.sort_table(View::Io, column, down, &COLUMNS);
        }
        Vec::new()
    }

    fn cursor<'a>(&self, app: &'a mut App) -> Option<&'a mut Cursor> {
        Some(&mut app.states.io.list)
    }

    fn len(&self, app: &App) -> usize {
        app.states.io.order.len()
    }

    fn row(&self, app: &App, at: usize) -> Vec<String> {
        export(app, at)
    }

    fn export(&self, app: &App) -> Vec<Vec<String>> {
        listed(self, app, HEADS)
    }

    fn changed(&self, app: &mut App, change: Change) {
        match change {
            Change::Sums => {}
            Change::Narrowed => app.states.io.order.outdated(),
            Change::Restarted => app.states.io.list = Cursor::default(),
        }
    }

    fn table<'a>(&self, app: &'a mut App) -> Option<(&'a mut Order, &'a mut Cursor)> {
        let state = &mut app.states.io;
        Some((&mut state.order, &mut state.list))
    }

    fn page(&self, app: &App) -> usize {
        page(app)
    }
}
