//! Memory: every remote key that a request advertised, what the peer did with it, and how its life ended.
//!
//! ```text
//!  advertised  key         address            length   used     by      for         ended           file
//!  1.204331    0x00001a2b  0x7f3a00001000     65,536   65,536   READ    write       invalidated     big.bin
//! ```

use super::app::{App, Cursor, Effect};
use super::draw::{self, Cell, Column, Table, column, number, put};
use super::keys::Action;
use super::order::Order;
use super::screen::{Change, Screen, listed};
use super::time::grouped;
use super::views::View;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use rdmascope_analyzer::exchange::{Channel, Exchange};
use std::cmp::Ordering;

/// What is shown.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    pub(crate) list: Cursor,
    pub(crate) order: Order,
}

pub(crate) const COLUMNS: [Column; 13] = [
    number("advertised", 11),
    column("key", 10),
    column("address", 18).from(100),
    number("length", 10),
    number("used", 10),
    column("the peer", 9),
    column("command", 10).from(95),
    column("ended", 22),
    number("frame", 8).from(110),
    column("file", 0).from(100),
    number("#", 5).from(90),
    column("client", 15).from(118),
    column("server", 15).from(140),
];

/// Descriptors of an exchange that are known.
pub(crate) fn descriptors(e: &Exchange) -> usize {
    e.descriptors.len().min(e.descriptor_count as usize)
}

/// How a column has two rows.
pub(crate) fn compare((x, a): (&Exchange, u8), (y, b): (&Exchange, u8), by: usize) -> Ordering {
    let (p, q) = (&x.descriptors[usize::from(a)], &y.descriptors[usize::from(b)]);
    match by {
        1 => p.token.cmp(&q.token),
        2 => p.offset.cmp(&q.offset),
        3 => p.length.cmp(&q.length),
        4 => used_of(x, a.into()).cmp(&used_of(y, b.into())),
        5 => peer_does(x).cmp(peer_does(y)),
        6 => x.command.cmp(y.command),
        7 => (x.reply_end, x.channel.name()).cmp(&(y.reply_end, y.channel.name())),
        9 => x.file.cmp(&y.file),
        10..=12 => x.connection.cmp(&y.connection),
        _ => Ordering::Equal,
    }
    .then(x.request.cmp(&y.request))
    .then(a.cmp(&b))
}

/// Where the table is.
fn area(app: &App) -> Rect {
    let body = app.body();
    Rect { height: body.height - 1, ..body }
}

pub(crate) fn page(app: &App) -> usize {
    usize::from(app.body().height.saturating_sub(2))
}

fn row(app: &App, row: usize) -> Option<(&Exchange, usize)> {
    let (exchange, descriptor) = app.states.memory.order.row(row)?;
    Some((app.exchanges.at(exchange as usize)?, usize::from(descriptor)))
}

pub(crate) fn selected_frame(app: &App) -> Option<u64> {
    row(app, app.states.memory.list.at).map(|(e, _)| e.request.frame)
}

pub(crate) fn act(app: &mut App, action: Action) -> Vec<Effect> {
    match action {
        Action::Open => {
            if let Some(frame) = selected_frame(app) {
                return app.go_to_frame(frame);
            }
        }
        Action::Sort => app.sort_table(View::Memory, (app.states.memory.order.by + 1) % COLUMNS.len(), false, &COLUMNS),
        Action::SortReverse => app.sort_table(View::Memory, app.states.memory.order.by, !app.states.memory.order.down, &COLUMNS),
        _ => {
            let (len, page) = (app.states.memory.order.len(), page(app));
            app.states.memory.list.moved(action, len, page);
        }
    }
    Vec::new()
}

pub(crate) fn click(app: &mut App, x: u16, y: u16) {
    if let Some(by) = draw::head_at(&COLUMNS, area(app), x, y) {
        let order = &app.states.memory.order;
        return app.sort_table(View::Memory, by, order.by == by && !order.down, &COLUMNS);
    }
    let body = app.body();
    if y > body.y {
        let row = app.states.memory.list.top + usize::from(y - body.y - 1);
        if row < app.states.memory.order.len() {
            app.states.memory.list.at = row;
        }
    }
}

/// Bytes of the exchange that went through its descriptors.
fn used(e: &Exchange) -> u64 {
    e.reads.bytes + e.writes.bytes
}

fn peer_does(e: &Exchange) -> &'static str {
    match (e.reads.frames > 0, e.writes.frames > 0) {
        (true, true) => "both",
        (true, false) => "reads",
        (false, true) => "writes",
        (false, false) => "nothing",
    }
}

fn ended(e: &Exchange) -> String {
    match (e.reply_end, e.channel) {
        (None, _) => "never".to_owned(),
        (Some(at), Channel::RdmaInvalidate) => format!("invalidated, f {}", at.frame),
        (Some(at), _) => format!("with reply, f {}", at.frame),
    }
}

/// Where several descriptors share what was used, the parts of it in their order.
fn used_of(e: &Exchange, descriptor: usize) -> u64 {
    let before: u64 = e.descriptors[..descriptor].iter().map(|d| u64::from(d.length)).sum();
    used(e).saturating_sub(before).min(e.descriptors[descriptor].length.into())
}

fn cells(app: &App, e: &Exchange, descriptor: usize) -> Vec<Cell> {
    let theme = &app.theme;
    let d = &e.descriptors[descriptor];
    let style = if e.reply.is_none() { theme.warn } else { theme.text };
    let used = used_of(e, descriptor);
    let [connection, client, server] = super::io::hosts(app, e);
    vec![
        (app.time.show(e.request.time, app.first_time(), app.first_time()), theme.text),
        (format!("{:#010x}", d.token), theme.upper),
        (format!("{:#x}", d.offset), theme.text),
        (grouped(d.length.into()), theme.text),
        (grouped(used), if used == 0 { theme.faint } else { theme.text }),
        (peer_does(e).to_owned(), theme.rdma),
        (e.command.to_owned(), theme.text),
        (ended(e), style),
        (e.request.frame.to_string(), theme.text),
        (e.shown_file(), theme.text),
        connection,
        client,
        server,
    ]
}

pub(crate) fn draw(app: &App, buf: &mut Buffer) {
    let body = app.body();
    let theme = &app.theme;
    let len = app.states.memory.order.len();
    let order = &app.states.memory.order;
    let shape = Table { columns: &COLUMNS, len, cursor: app.states.memory.list, focused: true, sorted: Some((order.by, order.down)) };
    draw::table(buf, area(app), theme, &shape, |at| row(app, at).map_or_else(Vec::new, |(e, d)| cells(app, e, d)));
    if len == 0 {
        let text =
            if app.done && order.is_made() { "No request advertised memory: everything went inside of messages." } else { "Reading …" };
        put(buf, body.x + 2, body.y + 1, body.width, text, theme.faint);
    }
    let (keys, invalidated, outside) = app.sums.keys();
    // of a request the first descriptors are known, and of those without a request in the capture none
    let listed = if len as u64 == keys { String::new() } else { format!(", {} of them listed", grouped(len as u64)) };
    let text = format!("{} keys advertised{listed}, {} invalidated by the peer, ", grouped(keys), grouped(invalidated));
    let outside_text = format!("{} uses outside of them", grouped(outside));
    let style = if outside > 0 { theme.error } else { theme.faint };
    draw::spans(buf, body.x + 1, body.y + body.height - 1, body.width - 2, &[(&text, theme.faint), (&outside_text, style)]);
}

/// For an export: the heads.
pub(crate) const HEADS: &[&str] = &["frame", "time", "key", "address", "length", "used", "peer", "command", "ended", "file"];

/// For an export: a row.
pub(crate) fn export(app: &App, at: usize) -> Vec<String> {
    let Some((e, d)) = row(app, at) else { return Vec::new() };
    let descriptor = &e.descriptors[d];
    vec![
        e.request.frame.to_string(),
        super::time::seconds(e.request.time - app.first_time()),
        format!("{:#010x}", descriptor.token),
        format!("{:#x}", descriptor.offset),
        descriptor.length.to_string(),
        used_of(e, d).to_string(),
        peer_does(e).to_owned(),
        e.command.to_owned(),
        ended(e),
        e.shown_file(),
    ]
}

/// The view.
pub(crate) struct Memory;

impl Screen for Memory {
    fn hints(&self) -> &'static [(Action, &'static str)] {
        &[(Action::Open, "frame"), (Action::SortBy, "sort")]
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
        app.states.memory.list.at > 0
    }

    fn sorts(&self, _: &App) -> Vec<String> {
        COLUMNS.iter().map(|c| c.title.to_owned()).collect()
    }

    fn sort_by(&self, app: &mut App, column: usize) -> Vec<Effect> {
        if column < COLUMNS.len() {
            let order = &app.states.memory.order;
            app.sort_table(View::Memory, column, order.by == column && !order.down, &COLUMNS);
        }
        Vec::new()
    }

    fn cursor<'a>(&self, app: &'a mut App) -> Option<&'a mut Cursor> {
        Some(&mut app.states.memory.list)
    }

    fn len(&self, app: &App) -> usize {
        app.states.memory.order.len()
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
            Change::Narrowed => app.states.memory.order.outdated(),
            Change::Restarted => app.states.memory.list = Cursor::default(),
        }
    }

    fn table<'a>(&self, app: &'a mut App) -> Option<(&'a mut Order, &'a mut Cursor)> {
        let state = &mut app.states.memory;
        Some((&mut state.order, &mut state.list))
    }

    fn page(&self, app: &App) -> usize {
        page(app)
    }
}
