//! Hosts: the pairs of hosts that communicated, and the traffic of each. Only connections that pass the filter count.
//!
//! ```text
//! ── conversations ─────────────────────────────────────────────────────────────────────────────
//!  client             server            connections  requests  failed         ▸           ◂  sent again    lasted
//!  192.0.2.2          192.0.2.1                   2       412       9     96 kB      1.2 MB           0    10.2 s
//! ── endpoints ─────────────────────────────────────────────────────────────────────────────────
//!  address            role              connections                        sent    received
//!  192.0.2.1          server                      2                      1.2 MB       96 kB
//! ```

use super::draw::{Line, Page};
use super::keys::Action;
use super::model::Model;
use super::screen::{Change, Request, Screen};
use super::time::{bytes, grouped, span};
use ratatui::buffer::Buffer;
use rdmascope_analyzer::report::{Connection, address};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// State of the view.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    page: Page,
}

/// Totals of a pair of hosts, or of one host.
#[derive(Clone, Copy, Debug, Default)]
struct Row {
    connections: u64,
    requests: u64,
    failed: u64,
    /// Bytes in frames, from the first host and to it.
    bytes: [u64; 2],
    again: u64,
    first: i64,
    last: i64,
    /// True if it was seen as a client, as a server, in an unknown role.
    roles: [bool; 3],
}

impl Row {
    fn add(&mut self, c: &Connection, from: usize) {
        if self.connections == 0 {
            (self.first, self.last) = (c.first.time, c.last.time);
        }
        self.connections += 1;
        for command in &c.commands {
            self.requests += command.count;
            self.failed += command.errors + command.unanswered;
        }
        let sent = c.throughput.iter().fold([0; 2], |s: [u64; 2], (_, a, b)| [s[0] + a, s[1] + b]);
        self.bytes[0] += sent[from];
        self.bytes[1] += sent[1 - from];
        self.again += c.health.retransmissions;
        (self.first, self.last) = (self.first.min(c.first.time), self.last.max(c.last.time));
        self.roles[if c.client_known { from } else { 2 }] = true;
    }

    fn role(&self) -> &'static str {
        match self.roles {
            [true, false, false] => "client",
            [false, true, false] => "server",
            [true, true, _] => "client and server",
            _ => "not known",
        }
    }
}

/// Rows by their key, those with most bytes first.
fn sorted<K: Ord>(rows: BTreeMap<K, Row>) -> Vec<(K, Row)> {
    let mut rows: Vec<(K, Row)> = rows.into_iter().collect();
    rows.sort_by_key(|(_, row)| Reverse(row.bytes[0].saturating_add(row.bytes[1])));
    rows
}

fn conversations(model: &Model) -> Vec<([String; 2], Row)> {
    let mut rows: BTreeMap<[String; 2], Row> = BTreeMap::new();
    for c in model.connections() {
        rows.entry([0, 1].map(|i| address(&c.peers[i].address))).or_default().add(c, 0);
    }
    sorted(rows)
}

fn endpoints(model: &Model) -> Vec<(String, Row)> {
    let mut rows: BTreeMap<String, Row> = BTreeMap::new();
    for c in model.connections() {
        for from in [0, 1] {
            rows.entry(address(&c.peers[from].address)).or_default().add(c, from);
        }
    }
    sorted(rows)
}

/// Columns of an address with four numbers.
const ADDRESS: usize = 17;
/// Columns of the other cells if there is room for all of them, and of the margins.
const NUMBERS: usize = 77;

fn lines(model: &Model) -> Vec<Line> {
    let theme = &model.theme;
    let room = usize::from(model.size.0).saturating_sub(NUMBERS) / 2;
    let wide = room >= ADDRESS;
    // full IPv6 addresses if there is room for them
    let width = room.clamp(ADDRESS, 40);
    let [count, size] = if wide { [12, 11] } else { [8, 9] };
    let counted = if wide { "connections" } else { "conn." };
    let mut out = vec![Line::Head("conversations".to_owned())];
    let mut head = format!("{:<width$}{:<width$}{counted:>count$}", "client", "server");
    head.push_str(&format!("{:>10}{:>8}{:>size$}{:>size$}", "requests", "failed", "▸", "◂"));
    if wide {
        head.push_str(&format!("{:>12}{:>11}", "sent again", "lasted"));
    }
    out.push(Line::Pieces(vec![(head, theme.faint)]));
    let rows = conversations(model);
    if rows.is_empty() {
        out.push(Line::Pieces(vec![("no connection was seen".to_owned(), theme.faint)]));
    }
    let cut = |text: &str| text.chars().take(width - 1).collect::<String>();
    for ([client, server], row) in rows {
        let mut pieces = vec![
            (format!("{:<width$}", cut(&client)), theme.client),
            (format!("{:<width$}", cut(&server)), theme.server),
            (format!("{:>count$}{:>10}", grouped(row.connections), grouped(row.requests)), theme.text),
            (format!("{:>8}", grouped(row.failed)), if row.failed > 0 { theme.error } else { theme.faint }),
            (format!("{:>size$}", bytes(row.bytes[0])), theme.client),
            (format!("{:>size$}", bytes(row.bytes[1])), theme.server),
        ];
        if wide {
            pieces.push((format!("{:>12}", grouped(row.again)), if row.again > 0 { theme.warn } else { theme.faint }));
            pieces.push((format!("{:>11}", span(row.last.saturating_sub(row.first))), theme.text));
        }
        out.push(Line::Pieces(pieces));
    }
    out.push(Line::Head("endpoints".to_owned()));
    // in the columns of the conversations
    let sent = 18 + size;
    let head =
        format!("{:<width$}{:<width$}{counted:>count$}{:>sent$}{:>size$}", "address", "role", "sent", "received");
    out.push(Line::Pieces(vec![(head, theme.faint)]));
    for (host, row) in endpoints(model) {
        let style = if row.roles[0] { theme.client } else { theme.server };
        out.push(Line::Pieces(vec![
            (format!("{:<width$}", cut(&host)), style),
            (format!("{:<width$}{:>count$}", row.role(), grouped(row.connections)), theme.text),
            (format!("{:>sent$}{:>size$}", bytes(row.bytes[0]), bytes(row.bytes[1])), theme.text),
        ]));
    }
    out
}

impl Screen for State {
    fn hints(&self) -> &'static [(Action, &'static str)] {
        &[(Action::PageDown, "page")]
    }

    fn prepare(&mut self, model: &Model) {
        if self.page.is_outdated() {
            let lines = lines(model);
            self.page.set(lines);
        }
    }

    fn draw(&self, model: &Model, buf: &mut Buffer) {
        self.page.draw(buf, model.body(), &model.theme);
    }

    fn act(&mut self, model: &Model, action: Action) -> Vec<Request> {
        let height = model.body().height;
        self.page.turn(action, height);
        Vec::new()
    }

    fn selected_connection(&self, model: &Model) -> Option<u32> {
        model.subject().and_then(|c| c.followed_as.first().copied())
    }

    fn changed(&mut self, _change: Change) {
        self.page.outdated();
    }

    fn export(&self, model: &Model) -> Vec<Vec<String>> {
        let heads = [
            "client",
            "server",
            "connections",
            "requests",
            "failed",
            "client_bytes",
            "server_bytes",
            "sent_again",
            "ns",
        ];
        let mut out = vec![heads.map(str::to_owned).to_vec()];
        out.extend(conversations(model).into_iter().map(|([client, server], r)| {
            let numbers =
                [r.connections, r.requests, r.failed, r.bytes[0], r.bytes[1], r.again, r.last.abs_diff(r.first)];
            [client, server].into_iter().chain(numbers.iter().map(u64::to_string)).collect()
        }));
        out
    }
}
