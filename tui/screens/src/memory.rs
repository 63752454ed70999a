//! Memory: every remote key that a request advertised, its use by the peer, and the end of its validity.
//!
//! ```text
//!  advertised  key         address            length   used     by      for         ended           file
//!  1.204331    0x00001a2b  0x7f3a00001000     65,536   65,536   READ    write       invalidated     big.bin
//! ```

use super::draw::{self, Cell, Column, Cursor, Table, column, number, put};
use super::keys::Action;
use super::model::Model;
use super::order::{Order, Rows};
use super::screen::{Request, Screen, Table as Sortable, listed};
use super::time::grouped;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use rdmascope_analyzer::exchange::{DataPath, Exchange};
use std::cmp::Ordering;

/// State of the view.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    pub(crate) list: Cursor,
    pub(crate) order: Order,
}

pub(crate) static COLUMNS: [Column; 13] = [
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

/// One row a descriptor.
static ROWS: Rows = Rows { count: |e| u8::try_from(descriptors(e)).unwrap_or(u8::MAX), compare };

/// Compares two rows by a column.
fn compare((x, a): (&Exchange, u8), (y, b): (&Exchange, u8), by: usize) -> Ordering {
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

/// Position of the table.
fn area(model: &Model) -> Rect {
    let body = model.body();
    Rect { height: body.height - 1, ..body }
}

pub(crate) fn page(model: &Model) -> usize {
    usize::from(model.body().height.saturating_sub(2))
}

fn row<'a>(state: &State, model: &'a Model, row: usize) -> Option<(&'a Exchange, usize)> {
    let (exchange, descriptor) = state.order.row(row)?;
    Some((model.exchanges.at(exchange as usize)?, usize::from(descriptor)))
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
        (Some(at), DataPath::RdmaInvalidate) => format!("invalidated, f {}", at.frame),
        (Some(at), _) => format!("with reply, f {}", at.frame),
    }
}

/// Bytes of a descriptor that were used: if several descriptors share a transfer, they are filled in their order.
fn used_of(e: &Exchange, descriptor: usize) -> u64 {
    let before: u64 = e.descriptors[..descriptor].iter().map(|d| u64::from(d.length)).sum();
    used(e).saturating_sub(before).min(e.descriptors[descriptor].length.into())
}

fn cells(model: &Model, e: &Exchange, descriptor: usize) -> Vec<Cell> {
    let theme = &model.theme;
    let d = &e.descriptors[descriptor];
    let style = if e.reply.is_none() { theme.warn } else { theme.text };
    let used = used_of(e, descriptor);
    let [connection, client, server] = super::io::hosts(model, e);
    vec![
        (model.time.show(e.request.time, model.first_time(), model.first_time()), theme.text),
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

/// For an export: the heads.
pub(crate) const HEADS: &[&str] =
    &["frame", "time", "key", "address", "length", "used", "peer", "command", "ended", "file"];

impl Screen for State {
    fn hints(&self) -> &'static [(Action, &'static str)] {
        &[(Action::Open, "frame"), (Action::SortBy, "sort")]
    }

    fn draw(&self, model: &Model, buf: &mut Buffer) {
        let body = model.body();
        let theme = &model.theme;
        let len = self.order.len();
        let order = &self.order;
        let shape = Table {
            columns: &draw::timed(COLUMNS, model.time.width()),
            len,
            cursor: self.list,
            focused: true,
            sorted: Some((order.by, order.down)),
        };
        draw::table(buf, area(model), theme, &shape, |at| {
            row(self, model, at).map_or_else(Vec::new, |(e, d)| cells(model, e, d))
        });
        let (keys, invalidated, outside) = model.sums.keys();
        if len == 0 {
            let text = match (model.done && order.is_made(), keys) {
                (false, _) => "Reading …".to_owned(),
                (true, 0) if model.filter.is_on() => "No request that passes the filter advertised memory.".to_owned(),
                (true, 0) => "No request advertised memory: all data travelled inside messages.".to_owned(),
                (true, 1) if model.filter.is_on() => "The only key does not pass the filter.".to_owned(),
                (true, keys) if model.filter.is_on() => {
                    format!("None of the {} keys passes the filter.", grouped(keys))
                }
                (true, _) => "The requests that advertised the keys are not in the capture.".to_owned(),
            };
            put(buf, body.x + 2, body.y + 1, body.width, &text, theme.faint);
        }
        // of a request the first descriptors are known, and of those without a request in the capture none
        let listed =
            if len as u64 == keys { String::new() } else { format!(", {} of them listed", grouped(len as u64)) };
        let text =
            format!("{} keys advertised{listed}, {} invalidated by the peer, ", grouped(keys), grouped(invalidated));
        let outside_text = format!("{} uses outside of them", grouped(outside));
        let style = if outside > 0 { theme.error } else { theme.faint };
        draw::spans(
            buf,
            body.x + 1,
            body.y + body.height - 1,
            body.width - 2,
            &[(&text, theme.faint), (&outside_text, style)],
        );
    }

    fn act(&mut self, model: &Model, action: Action) -> Vec<Request> {
        match action {
            Action::Open => {
                if let Some(frame) = self.selected_frame(model) {
                    return vec![Request::GoToFrame(frame)];
                }
            }
            Action::Sort | Action::SortReverse => return self.sort_on(model, action),
            _ => {
                let (len, page) = (self.order.len(), page(model));
                self.list.moved(action, len, page);
            }
        }
        Vec::new()
    }

    fn click(&mut self, model: &Model, x: u16, y: u16) -> Vec<Request> {
        if let Some(by) = draw::head_at(&draw::timed(COLUMNS, model.time.width()), area(model), x, y) {
            return self.sort_by(model, by);
        }
        let body = model.body();
        if y > body.y {
            let row = self.list.top + usize::from(y - body.y - 1);
            if row < self.order.len() {
                self.list.at = row;
            }
        }
        Vec::new()
    }

    fn selected_frame(&self, model: &Model) -> Option<u64> {
        row(self, model, self.list.at).map(|(e, _)| e.request.frame)
    }

    fn is_chosen(&self) -> bool {
        self.list.at > 0
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
        let Some((e, d)) = row(self, model, at) else { return Vec::new() };
        let descriptor = &e.descriptors[d];
        vec![
            e.request.frame.to_string(),
            super::time::seconds(e.request.time.saturating_sub(model.first_time())),
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

    fn export(&self, model: &Model) -> Vec<Vec<String>> {
        listed(self, model, HEADS)
    }

    fn table(&mut self) -> Option<Sortable<'_>> {
        Some(Sortable {
            order: &mut self.order,
            cursor: &mut self.list,
            rows: &ROWS,
            greatest_first_from: COLUMNS.len(),
        })
    }

    fn page(&self, model: &Model) -> usize {
        page(model)
    }
}
