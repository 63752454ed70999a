//! Frames: the list, the fields of the selected one, and its bytes. Selecting a field shows its bytes, and the reverse.
//!
//! ```text
//!  No.   Time       Source      Destination  Protocol    Len  Info
//!  640   1.204331   192.0.2.2   192.0.2.1    SMB2        274  Read Request Off:0 Len:65536
//!  641   1.204542   192.0.2.1   192.0.2.2    InfiniBand 1082  RC - RDMA WRITE First
//! ── fields ──────────────────────────────── frame 640 ──
//!  ▸ InfiniBand
//!  ▾ SMB2 (Server Message Block Protocol version 2)
//!      Message ID: 41
//! ── bytes ──────────────────────────────── 274 bytes ──
//!  0040  fe 53 4d 42 40 00 01 00  …  .SMB@...
//! ```

use super::app::{App, Cursor, Effect, columns_changed};
use super::draw::{self, put, put_cell, rule};
use super::keys::Action;
use super::replay::Detail;
use super::screen::{Change, Screen};
use super::sort::By;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use rdmascope_dissector::field::Kind;
use rdmascope_dissector::filter::Filter;
use rdmascope_dissector::render::{self, Stored, fault_label, is_hidden, label};
use rdmascope_dissector::trace::{Node, Tree};
use std::collections::HashSet;

/// Protocols that are closed until opened: what is below RDMA is rarely what one looks for.
const CLOSED: [&str; 12] = ["frame", "eth", "vlan", "sll", "ip", "ipv6", "udp", "tcp", "erf", "null", "raw", "iwarp_mpa"];

/// Where the keys go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Pane {
    #[default]
    List,
    Fields,
    Bytes,
}

/// What is shown.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    pub(crate) list: Cursor,
    pub(crate) pane: Pane,
    pub(crate) maximized: bool,
    pub(crate) fields: Cursor,
    /// Subtrees, by the id of their field, that are not as they are by themselves.
    turned: HashSet<u32>,
    /// Nodes that are shown.
    rows: Vec<u32>,
    /// The byte that is selected in the bytes.
    byte: usize,
    /// First row of bytes.
    bytes_top: usize,
}

/// List, fields, bytes, each with a line for its head.
fn layout(app: &App) -> [Rect; 3] {
    let body = app.body();
    let none = Rect { height: 0, ..body };
    if app.states.frames.maximized {
        return match app.states.frames.pane {
            Pane::List => [body, none, none],
            Pane::Fields => [none, body, none],
            Pane::Bytes => [none, none, body],
        };
    }
    if body.width >= 150 {
        let list = body.height / 2;
        let bytes = 76;
        let below = Rect { y: body.y + list, height: body.height - list, ..body };
        return [
            Rect { height: list, ..body },
            Rect { width: below.width.saturating_sub(bytes + 1), ..below },
            Rect { x: (below.x + below.width).saturating_sub(bytes), width: bytes, ..below },
        ];
    }
    let bytes = (body.height / 5).max(4);
    let list = body.height.saturating_sub(bytes) / 2;
    [
        Rect { height: list, ..body },
        Rect { y: body.y + list, height: body.height.saturating_sub(bytes + list), ..body },
        Rect { y: (body.y + body.height).saturating_sub(bytes), height: bytes, ..body },
    ]
}

/// Rows of the list that fit.
pub(crate) fn page(app: &App) -> usize {
    usize::from(layout(app)[0].height.saturating_sub(1))
}

/// Which pane is at a place of the screen.
pub(crate) fn pane_at(app: &App, x: u16, y: u16) -> Option<Pane> {
    let areas = layout(app);
    [Pane::List, Pane::Fields, Pane::Bytes].into_iter().zip(areas).find(|(_, a)| a.contains((x, y).into())).map(|(p, _)| p)
}

fn per_row(area: Rect) -> usize {
    if area.width >= 73 { 16 } else { 8 }
}

fn is_open(state: &State, node: &Node) -> bool {
    let closed = node.depth == 0 && CLOSED.contains(&node.def.name);
    closed == state.turned.contains(&node.def.id)
}

/// The rows of fields, after something was opened or closed.
fn rebuild(app: &mut App) {
    let mut rows = Vec::new();
    if let Some(detail) = &app.detail {
        let mut hidden_below: Option<u8> = None;
        for (i, node) in detail.tree.nodes.iter().enumerate() {
            if hidden_below.is_some_and(|depth| node.depth > depth) {
                continue;
            }
            hidden_below = None;
            if is_hidden(node.def) {
                continue;
            }
            rows.push(i as u32);
            if detail.tree.has_children(i) && !is_open(&app.states.frames, node) {
                hidden_below = Some(node.depth);
            }
        }
    }
    app.states.frames.rows = rows;
}

/// A frame's fields came.
pub(crate) fn detail_came(app: &mut App, detail: Box<Detail>) {
    // the field that was selected stays selected, where the new frame has it
    let before = selected_node(app).map(|n| (n.def.id, app.states.frames.fields));
    app.detail = Some(detail);
    rebuild(app);
    let tree = app.detail.as_ref().map(|d| &d.tree);
    let found = before.and_then(|(id, _)| {
        let tree = tree?;
        app.states.frames.rows.iter().position(|r| tree.nodes.get(*r as usize).is_some_and(|n| n.def.id == id))
    });
    // else what the frame is about: its last protocol
    let last = tree.and_then(|tree| {
        app.states.frames.rows.iter().rposition(|r| {
            tree.nodes.get(*r as usize).is_some_and(|n| n.depth == 0 && n.def.kind == Kind::Protocol && n.def.name != "rdmascope")
        })
    });
    let at = found.or(last).unwrap_or(0);
    let (len, page) = (app.states.frames.rows.len(), fields_page(app));
    if found.is_none() {
        app.states.frames.fields = Cursor { at, top: at };
    }
    app.states.frames.fields.jump(at, len, page);
    show_bytes(app);
}

fn fields_page(app: &App) -> usize {
    usize::from(layout(app)[1].height.saturating_sub(1))
}

fn selected_node(app: &App) -> Option<&Node> {
    let tree = &app.detail.as_ref()?.tree;
    tree.nodes.get(*app.states.frames.rows.get(app.states.frames.fields.at)? as usize)
}

/// Brings the bytes of the selected field to the screen.
fn show_bytes(app: &mut App) {
    let Some(node) = selected_node(app) else { return };
    let (offset, len) = (node.offset as usize, node.len as usize);
    if app.states.frames.pane != Pane::Bytes {
        app.states.frames.byte = offset;
    }
    let area = layout(app)[2];
    let (row, page) = (app.states.frames.byte / per_row(area), usize::from(area.height.saturating_sub(1)).max(1));
    let last = (offset + len).saturating_sub(1) / per_row(area);
    if row < app.states.frames.bytes_top || last.min(row + page - 1) >= app.states.frames.bytes_top + page {
        app.states.frames.bytes_top = row;
    }
}

/// The innermost field that covers the selected byte becomes the selected one.
fn field_of_byte(app: &mut App) {
    let Some(detail) = &app.detail else { return };
    let source = selected_node(app).map_or(0, |n| n.source);
    let byte = app.states.frames.byte as u32;
    let covers =
        |n: &Node| n.source == source && !n.generated && n.len > 0 && n.offset <= byte && byte < n.offset + n.len && !is_hidden(n.def);
    let best =
        detail.tree.nodes.iter().enumerate().filter(|(_, n)| covers(n)).min_by_key(|(i, n)| (n.len, std::cmp::Reverse((n.depth, *i))));
    let Some((found, _)) = best else { return };
    // open what it lies in
    let mut depth = detail.tree.nodes[found].depth;
    let mut open = Vec::new();
    for (i, n) in detail.tree.nodes[..found].iter().enumerate().rev() {
        if n.depth < depth {
            depth = n.depth;
            if !is_open(&app.states.frames, &detail.tree.nodes[i]) {
                open.push(n.def.id);
            }
        }
    }
    for id in open {
        if !app.states.frames.turned.remove(&id) {
            app.states.frames.turned.insert(id);
        }
    }
    rebuild(app);
    if let Some(at) = app.states.frames.rows.iter().position(|r| *r as usize == found) {
        let (len, page) = (app.states.frames.rows.len(), fields_page(app));
        app.states.frames.fields.jump(at, len, page);
    }
    show_bytes(app);
}

pub(crate) fn act(app: &mut App, action: Action) -> Vec<Effect> {
    match (action, app.states.frames.pane) {
        (Action::NextPane, pane) => {
            app.states.frames.pane = match pane {
                Pane::List => Pane::Fields,
                Pane::Fields => Pane::Bytes,
                Pane::Bytes => Pane::List,
            }
        }
        (Action::PreviousPane, pane) => {
            app.states.frames.pane = match pane {
                Pane::List => Pane::Bytes,
                Pane::Fields => Pane::List,
                Pane::Bytes => Pane::Fields,
            }
        }
        (Action::Maximize, _) => {
            app.states.frames.maximized = !app.states.frames.maximized;
            let (len, page) = (app.row_count(), page(app));
            app.states.frames.list.show(len, page);
        }
        (Action::Open, Pane::List) => app.states.frames.pane = Pane::Fields,
        (Action::ExpandAll, _) => {
            let Some(detail) = &app.detail else { return Vec::new() };
            let parents: Vec<(u32, bool)> = (0..detail.tree.nodes.len())
                .filter(|i| detail.tree.has_children(*i))
                .map(|i| (detail.tree.nodes[i].def.id, is_open(&app.states.frames, &detail.tree.nodes[i])))
                .collect();
            let close = parents.iter().all(|(_, open)| *open);
            let mut seen = HashSet::new();
            for (id, open) in parents {
                if open == close && seen.insert(id) && !app.states.frames.turned.remove(&id) {
                    app.states.frames.turned.insert(id);
                }
            }
            rebuild(app);
            let (len, page) = (app.states.frames.rows.len(), fields_page(app));
            app.states.frames.fields.show(len, page);
        }
        (Action::Sort, _) => {
            let all = sorts(app);
            let at = all.iter().position(|by| *by == app.sorting.by).unwrap_or(0);
            let by = all[(at + 1) % all.len()];
            return app.sort_frames(by, false);
        }
        (Action::SortReverse, _) => return app.sort_frames(app.sorting.by, !app.sorting.down),
        (_, Pane::List) => {
            let (len, page) = (app.row_count(), page(app));
            app.states.frames.list.moved(action, len, page);
            app.tailing = app.grows && app.states.frames.list.at + 1 >= len;
        }
        (Action::Open | Action::Left | Action::Right, Pane::Fields) => turn(app, action),
        (_, Pane::Fields) => {
            let (len, page) = (app.states.frames.rows.len(), fields_page(app));
            app.states.frames.fields.moved(action, len, page);
            show_bytes(app);
        }
        (_, Pane::Bytes) => {
            let area = layout(app)[2];
            let row = per_row(area);
            let page = usize::from(area.height.saturating_sub(1)).max(1) * row;
            let Some(len) = source_len(app) else { return Vec::new() };
            let byte = app.states.frames.byte;
            app.states.frames.byte = match action {
                Action::Left => byte.saturating_sub(1),
                Action::Right => byte + 1,
                Action::Up => byte.checked_sub(row).unwrap_or(byte),
                Action::Down if byte + row < len => byte + row,
                Action::PageUp => byte.saturating_sub(page),
                Action::PageDown => byte + page,
                Action::First => 0,
                Action::Last => len,
                _ => byte,
            }
            .min(len.saturating_sub(1));
            field_of_byte(app);
        }
    }
    Vec::new()
}

fn source_len(app: &App) -> Option<usize> {
    let source = selected_node(app).map_or(0, |n| n.source);
    app.detail.as_ref()?.tree.sources().get(usize::from(source)).map(|s| s.bytes.len())
}

/// Opens or closes the selected subtree.
fn turn(app: &mut App, action: Action) {
    let Some(detail) = &app.detail else { return };
    let Some(index) = app.states.frames.rows.get(app.states.frames.fields.at).map(|r| *r as usize) else { return };
    let Some(node) = detail.tree.nodes.get(index).copied() else { return };
    let (parent, open) = (detail.tree.has_children(index), is_open(&app.states.frames, &node));
    // the number of another frame leads there
    if action == Action::Open
        && node.def.kind == Kind::FrameNum
        && let Stored::U(number) = detail.tree.stored(&node)
    {
        let _ = app.go_to_frame(number);
        return;
    }
    if action == Action::Left && (!parent || !open) {
        // to the subtree it lies in
        let up =
            app.states.frames.rows[..app.states.frames.fields.at].iter().rposition(|r| detail.tree.nodes[*r as usize].depth < node.depth);
        if let Some(at) = up {
            let (len, page) = (app.states.frames.rows.len(), fields_page(app));
            app.states.frames.fields.jump(at, len, page);
        }
        show_bytes(app);
        return;
    }
    if !parent || (action == Action::Right && open) {
        return;
    }
    if !app.states.frames.turned.remove(&node.def.id) {
        app.states.frames.turned.insert(node.def.id);
    }
    rebuild(app);
    let (len, page) = (app.states.frames.rows.len(), fields_page(app));
    app.states.frames.fields.show(len, page);
}

pub(crate) fn click(app: &mut App, x: u16, y: u16) -> Vec<Effect> {
    let areas = layout(app);
    let Some(pane) = pane_at(app, x, y) else { return Vec::new() };
    app.states.frames.pane = pane;
    match pane {
        // a head sorts by its column
        Pane::List if y == areas[0].y => {
            let columns = columns(app, areas[0], &rows(app, areas[0]));
            if let Some((by, ..)) = columns.into_iter().find(|(_, _, from, width)| *from <= x && x <= from + width) {
                let down = app.sorting.by == by && !app.sorting.down;
                return app.sort_frames(by, down);
            }
        }
        Pane::List if y > areas[0].y => {
            let row = app.states.frames.list.top + usize::from(y - areas[0].y - 1);
            if row < app.row_count() {
                app.states.frames.list.at = row;
            }
        }
        Pane::Fields if y > areas[1].y => {
            let row = app.states.frames.fields.top + usize::from(y - areas[1].y - 1);
            if row < app.states.frames.rows.len() {
                if app.states.frames.fields.at == row {
                    turn(app, Action::Open);
                }
                app.states.frames.fields.at = row.min(app.states.frames.rows.len().saturating_sub(1));
                show_bytes(app);
            }
        }
        Pane::Bytes if y > areas[2].y => {
            let row = app.states.frames.bytes_top + usize::from(y - areas[2].y - 1);
            let per_row = per_row(areas[2]);
            let column = usize::from(x.saturating_sub(areas[2].x + 7));
            let column = column.saturating_sub(usize::from(column > per_row * 3 / 2)) / 3;
            let byte = row * per_row + column;
            if column < per_row && source_len(app).is_some_and(|len| byte < len) {
                app.states.frames.byte = byte;
                field_of_byte(app);
            }
        }
        _ => {}
    }
    Vec::new()
}

/// The filter that selects the selected field's value.
pub(crate) fn selected_filter(app: &App) -> Option<String> {
    let detail = app.detail.as_ref()?;
    let node = selected_node(app)?;
    let text = literal(&detail.tree, node)
        .map(|value| format!("{} == {value}", node.def.name))
        .filter(|f| Filter::parse(f, &app.registry).is_ok());
    text.or_else(|| Some(node.def.name.to_owned()).filter(|f| Filter::parse(f, &app.registry).is_ok()))
}

/// A value as the filter language writes it.
fn literal(tree: &Tree, node: &Node) -> Option<String> {
    let stored = tree.stored(node);
    let shown = render::show(node.def, stored, render::Style::Pdml);
    match stored {
        Stored::None => None,
        Stored::U(v) if node.def.kind == Kind::Bool => Some(u64::from(v != 0).to_string()),
        Stored::U(_) | Stored::I(_) => Some(shown),
        Stored::Bytes(b) if b.is_empty() || b.len() > 256 => None,
        Stored::Bytes(_) if !render::is_text(node.def, stored) => Some(shown),
        Stored::Bytes(_) | Stored::Text(_) => Some(format!("\"{}\"", shown.replace('\\', "\\\\").replace('"', "\\\""))),
        Stored::Time(..) if node.def.kind == Kind::AbsTime => Some(format!("\"{}\"", shown.replace('T', " ").trim_end_matches("+0000"))),
        Stored::Time(..) => Some(shown),
    }
}

/// What a copy takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Value,
    Row,
    Bytes,
    Filter,
}

/// The text of a part of what is selected.
pub(crate) fn copied(app: &App, part: Part) -> Option<String> {
    let detail = app.detail.as_ref();
    let node = selected_node(app);
    match part {
        Part::Value => {
            let (detail, node) = (detail?, node?);
            let stored = detail.tree.stored(node);
            let mut out = String::new();
            match stored {
                Stored::None => label(&mut out, &detail.tree, *app.states.frames.rows.get(app.states.frames.fields.at)? as usize),
                _ => out = render::escaped(&render::show(node.def, stored, render::Style::Fields)),
            }
            Some(out)
        }
        Part::Row if app.states.frames.pane != Pane::List => {
            let mut out = String::new();
            label(&mut out, &detail?.tree, *app.states.frames.rows.get(app.states.frames.fields.at)? as usize);
            Some(out)
        }
        Part::Row => {
            let place = app.frame_at(app.states.frames.list.at)?;
            Some(row_text(app, app.states.frames.list.at, place).join("\t"))
        }
        Part::Bytes => {
            let (detail, node) = (detail?, node?);
            let bytes =
                if app.states.frames.pane == Pane::List { &detail.tree.sources().first()?.bytes[..] } else { detail.tree.covered(node) };
            Some(bytes.iter().map(|b| format!("{b:02x}")).collect())
        }
        Part::Filter => selected_filter(app),
    }
}

/// The cells of a row: number, time, source, destination, protocol, length, info, and the chosen columns.
fn row_text(app: &App, row: usize, place: usize) -> Vec<String> {
    let entry = app.index.at(place).copied().unwrap_or_default();
    let previous = row.checked_sub(1).and_then(|r| app.frame_at(r)).and_then(|p| app.index.at(p)).map_or(entry.time, |e| e.time);
    let time = app.time.show(entry.time, app.first_time(), previous);
    let mut cells = vec![(place + 1).to_string(), time];
    match app.texts.get(&(place as u64 + 1)) {
        Some(text) => {
            cells.extend([text.src.clone(), text.dst.clone(), text.protocol.to_owned(), entry.wire_len.to_string(), text.info.clone()]);
            cells.extend(text.cells.iter().cloned());
        }
        None => {
            // what the index knows, until the line is made
            let client = app.client_end(entry.connection);
            let ends = app.connection(entry.connection).map(|c| c.peers.map(|p| rdmascope_analyzer::report::address(&p.address)));
            let [client_at, server_at] = ends.unwrap_or_default();
            let (src, dst) = if entry.by() == client { (client_at, server_at) } else { (server_at, client_at) };
            let info = entry.opcode().and_then(|o| o.row()).map_or_else(String::new, |r| r.to_string());
            cells.extend([src, dst, entry.layer().name().to_owned(), entry.wire_len.to_string(), info]);
        }
    }
    cells
}

pub(crate) fn draw(app: &App, buf: &mut Buffer) {
    let [list, fields, bytes] = layout(app);
    draw_list(app, buf, list);
    if fields.height > 0 {
        draw_fields(app, buf, fields);
    }
    if bytes.height > 0 {
        draw_bytes(app, buf, bytes);
    }
    if list.width >= 150 && fields.height > 0 && bytes.height > 0 {
        for y in fields.y..fields.y + fields.height {
            put(buf, fields.x + fields.width, y, 1, "│", app.theme.faint);
        }
    }
}

/// By what the list can be sorted: the columns in the order in which they stand.
pub(crate) fn sorts(app: &App) -> Vec<By> {
    let chosen = app.columns.iter().map(|def| By::Field(def));
    let [usual @ .., info] = By::USUAL;
    usual.into_iter().chain(chosen).chain([info]).collect()
}

/// Columns of the terminal that what a frame says has at least.
const INFO_MIN: u16 = 18;

/// A row of the list: which, the place of its frame, its cells.
type Row = (usize, usize, Vec<String>);

/// The rows that fit.
fn rows(app: &App, area: Rect) -> Vec<Row> {
    let page = usize::from(area.height.saturating_sub(1));
    let top = app.states.frames.list.top;
    (top..top + page).filter_map(|row| app.frame_at(row).map(|place| (row, place, row_text(app, row, place)))).collect()
}

/// The columns: what they have, which cell of a row, from where, how wide.
fn columns(app: &App, area: Rect, rows: &[Row]) -> Vec<(By, usize, u16, u16)> {
    let widest = |column: usize, least: usize, most: usize| {
        rows.iter().filter_map(|(.., cells)| cells.get(column)).map(|c| c.chars().count()).max().unwrap_or(0).clamp(least, most) as u16
    };
    let narrow = area.width < 100;
    let number = widest(0, 4, 12).max(app.index.len().max(1).ilog10() as u16 + 1);
    let address = if narrow { 15 } else { 25 };
    let usual = [number, widest(1, 8, 26), widest(2, 6, address), widest(3, 11, address), widest(4, 8, 13), widest(5, 3, 8)];
    let mut widths: Vec<(usize, u16)> = usual.into_iter().enumerate().collect();
    // the chosen columns stand before what the frame says
    widths.extend(app.columns.iter().enumerate().map(|(i, def)| (7 + i, widest(7 + i, def.name.len().min(16), 24))));
    let used = |widths: &[(usize, u16)]| widths.iter().filter(|(_, w)| *w > 0).map(|(_, w)| w + 1).sum::<u16>() + 2;
    // what the frame says is what one reads: the others make room for it
    for missed in [5, 3, 2, 1] {
        if used(&widths) + INFO_MIN > area.width {
            widths[missed].1 = 0;
        }
    }
    widths.push((6, area.width.saturating_sub(used(&widths) + 1).max(8)));
    let mut x = area.x + 2;
    let end = area.x + area.width;
    sorts(app)
        .into_iter()
        .zip(widths)
        .filter(|(_, (_, width))| *width > 0)
        .map(|(by, (cell, width))| {
            let (from, width) = (x, width.min(end.saturating_sub(x)));
            x += width + 1;
            (by, cell, from, width)
        })
        .collect()
}

fn draw_list(app: &App, buf: &mut Buffer, area: Rect) {
    if area.height == 0 {
        return;
    }
    let theme = &app.theme;
    let top = app.states.frames.list.top;
    let rows = rows(app, area);
    let columns = columns(app, area, &rows);
    for &(by, cell, x, width) in &columns {
        let is_sorted = by == app.sorting.by && app.sorting.is_on();
        let arrow = if is_sorted { draw::arrow(app.sorting.down) } else { "" };
        put_cell(buf, x, area.y, width, &format!("{}{arrow}", by.name()), theme.faint, matches!(cell, 0 | 1 | 5));
    }
    for (line, (row, place, cells)) in rows.iter().enumerate() {
        let y = area.y + 1 + line as u16;
        let text = app.texts.get(&(*place as u64 + 1));
        let entry = app.index.at(*place).copied().unwrap_or_default();
        let style = if text.is_some_and(|t| t.faulty) {
            theme.error
        } else if entry.sent_before() {
            theme.warn
        } else if entry.is_acknowledgment() {
            theme.faint
        } else {
            theme.text
        };
        if app.marks.contains(&(*place as u32 + 1)) {
            put(buf, area.x, y, 1, "●", theme.mark);
        }
        for &(_, c, x, width) in &columns {
            let Some(cell) = cells.get(c) else { continue };
            let style = if c == 4 && style == theme.text { theme.protocol(cell) } else { style };
            put_cell(buf, x, y, width, cell, style, matches!(c, 0 | 1 | 5));
        }
        if *row == app.states.frames.list.at {
            let style = if app.states.frames.pane == Pane::List { theme.selected } else { theme.selected_elsewhere };
            buf.set_style(Rect { x: area.x, y, width: area.width, height: 1 }, style);
        }
    }
    if rows.is_empty() {
        let text = match (app.filter.is_on() || app.followed.is_some(), app.done && app.filter_is_done()) {
            (true, true) => "No frame passes the filter.",
            (false, true) => "There are no frames.",
            _ => "Reading …",
        };
        put(buf, area.x + 2, area.y + 1, area.width, text, theme.faint);
    }
    draw::scrollbar(buf, Rect { y: area.y + 1, height: area.height - 1, ..area }, top, app.row_count(), theme);
}

fn draw_fields(app: &App, buf: &mut Buffer, area: Rect) {
    let theme = &app.theme;
    let Some(detail) = &app.detail else {
        rule(buf, area, area.y, "fields", "", theme, app.states.frames.pane == Pane::Fields);
        return;
    };
    let tree = &detail.tree;
    let about = if detail.is_exact { format!("frame {}", detail.number) } else { format!("frame {}, long past left out", detail.number) };
    rule(buf, area, area.y, "fields", &about, theme, app.states.frames.pane == Pane::Fields);
    if let Some(error) = &detail.error {
        put(buf, area.x + 1, area.y + 1, area.width - 1, error, theme.error);
        return;
    }
    let page = usize::from(area.height - 1);
    let mut text = String::new();
    for line in 0..page {
        let row = app.states.frames.fields.top + line;
        let Some(index) = app.states.frames.rows.get(row).map(|r| *r as usize) else { break };
        let node = &tree.nodes[index];
        let y = area.y + 1 + line as u16;
        let indent = (u16::from(node.depth) * 2).min(area.width / 2);
        let sign = match (tree.has_children(index), is_open(&app.states.frames, node)) {
            (true, true) => "▾",
            (true, false) => "▸",
            _ => " ",
        };
        text.clear();
        label(&mut text, tree, index);
        if node.fault > 0
            && let Some((fault, ..)) = tree.faults.get(usize::from(node.fault) - 1)
        {
            text.push_str("  ");
            fault_label(&mut text, fault, false);
        }
        let style = if node.fault > 0 {
            theme.error
        } else if node.depth == 0 {
            theme.heading
        } else if node.generated {
            theme.upper
        } else {
            theme.text
        };
        put(buf, area.x + 1 + indent, y, 1, sign, theme.faint);
        put(buf, area.x + 3 + indent, y, area.width.saturating_sub(indent + 4), &text, style);
        if row == app.states.frames.fields.at {
            let style = if app.states.frames.pane == Pane::Fields { theme.selected } else { theme.selected_elsewhere };
            buf.set_style(Rect { x: area.x, y, width: area.width, height: 1 }, style);
        }
    }
    draw::scrollbar(
        buf,
        Rect { y: area.y + 1, height: area.height - 1, ..area },
        app.states.frames.fields.top,
        app.states.frames.rows.len(),
        theme,
    );
}

fn draw_bytes(app: &App, buf: &mut Buffer, area: Rect) {
    let theme = &app.theme;
    let node = selected_node(app);
    let source = node.map_or(0, |n| usize::from(n.source));
    let Some(source) = app.detail.as_ref().and_then(|d| d.tree.sources().get(source)) else {
        rule(buf, area, area.y, "bytes", "", theme, app.states.frames.pane == Pane::Bytes);
        return;
    };
    let name = node.map_or("", |n| n.def.name);
    let about = match node.filter(|n| n.len > 0) {
        Some(n) => format!("{name} {}+{}", n.offset, n.len),
        None => format!("{} bytes", source.bytes.len()),
    };
    let title = if source.name == "Frame" { "bytes".to_owned() } else { format!("bytes: {}", source.name) };
    rule(buf, area, area.y, &title, &about, theme, app.states.frames.pane == Pane::Bytes);
    let per_row = per_row(area);
    let range = node.map_or(0..0, |n| n.offset as usize..n.offset as usize + n.len as usize);
    for line in 0..usize::from(area.height - 1) {
        let start = (app.states.frames.bytes_top + line) * per_row;
        let Some(bytes) = source.bytes.get(start..(start + per_row).min(source.bytes.len())).filter(|b| !b.is_empty()) else { break };
        let y = area.y + 1 + line as u16;
        put(buf, area.x + 1, y, 5, &format!("{start:04x}"), theme.faint);
        for (i, byte) in bytes.iter().enumerate() {
            let gap = u16::from(i >= per_row / 2 && per_row == 16);
            let x = area.x + 7 + i as u16 * 3 + gap;
            let text_x = area.x + 7 + per_row as u16 * 3 + 2 + i as u16;
            let mut style = if range.contains(&(start + i)) { theme.field } else { theme.text };
            if app.states.frames.pane == Pane::Bytes && start + i == app.states.frames.byte {
                style = theme.mark.patch(theme.field);
            }
            put(buf, x, y, area.right().saturating_sub(x), &format!("{byte:02x}"), style);
            let shown = if matches!(byte, 0x20..=0x7e) { char::from(*byte) } else { '·' };
            put(
                buf,
                text_x,
                y,
                area.right().saturating_sub(text_x),
                shown.encode_utf8(&mut [0; 4]),
                if range.contains(&(start + i)) { theme.field } else { theme.faint },
            );
        }
    }
}

/// Adds a column at a place (counted from 1; at the end where none is given), moves it, or takes it away where it stands there already;
/// without a name all go.
pub(crate) fn set_column(app: &mut App, text: &str) -> Result<(), String> {
    let mut words = text.split_whitespace();
    match words.next() {
        None => app.columns.clear(),
        Some(name) => {
            let def = app.registry.find(name).ok_or_else(|| format!("there is no field \"{name}\""))?;
            let place = words.next().map(|word| word.parse::<usize>().map_err(|_| format!("\"{word}\" is not a place: 1 is the first")));
            let place = place.transpose()?;
            let before = app.columns.iter().position(|c| c.name == def.name);
            if let Some(at) = before {
                app.columns.remove(at);
            }
            match (before, place) {
                (Some(_), None) => {}
                (_, place) => app.columns.insert(place.map_or(app.columns.len(), |p| p.saturating_sub(1).min(app.columns.len())), def),
            }
        }
    }
    app.sort_by_shown_columns();
    columns_changed(app);
    Ok(())
}

impl App {
    /// A list that is sorted by a column that went is in the order of the capture again.
    fn sort_by_shown_columns(&mut self) {
        if !sorts(self).contains(&self.sorting.by) {
            self.sort_frames(By::Number, false);
        }
    }

    pub(super) fn filter_is_done(&self) -> bool {
        !self.filter.is_on() || self.filter.done
    }
}

/// The view.
pub(crate) struct Frames;

impl Screen for Frames {
    fn hints(&self) -> &'static [(Action, &'static str)] {
        &[(Action::NextPane, "pane"), (Action::Goto, "go to"), (Action::Mark, "mark"), (Action::Follow, "follow"), (Action::Sort, "sort")]
    }

    fn draw(&self, app: &App, buf: &mut Buffer) {
        draw(app, buf);
    }

    fn act(&self, app: &mut App, action: Action) -> Vec<Effect> {
        act(app, action)
    }

    fn click(&self, app: &mut App, x: u16, y: u16) -> Vec<Effect> {
        click(app, x, y)
    }

    fn selected_frame(&self, app: &App) -> Option<u64> {
        app.frame_at(app.states.frames.list.at).map(|p| p as u64 + 1)
    }

    fn is_chosen(&self, app: &App) -> bool {
        app.states.frames.list.at > 0
    }

    fn frames_shown(&self, app: &App) -> Vec<usize> {
        let top = app.states.frames.list.top;
        (top..top + page(app)).filter_map(|row| app.frame_at(row)).collect()
    }

    fn sorts(&self, app: &App) -> Vec<String> {
        sorts(app).iter().map(|by| by.name().to_owned()).collect()
    }

    fn sort_by(&self, app: &mut App, column: usize) -> Vec<Effect> {
        let Some(by) = sorts(app).get(column).copied() else { return Vec::new() };
        let down = by == app.sorting.by && !app.sorting.down;
        app.sort_frames(by, down)
    }

    fn export(&self, _: &App) -> Vec<Vec<String>> {
        Vec::new()
    }

    fn changed(&self, app: &mut App, change: Change) {
        if change == Change::Restarted {
            app.states.frames.list = Cursor::default();
        }
    }

    fn back(&self, app: &mut App) -> Option<Vec<Effect>> {
        if app.sorting.is_under_way() {
            app.say("not sorted");
            return Some(app.sort_frames(By::Number, false));
        }
        std::mem::take(&mut app.states.frames.maximized).then(Vec::new)
    }

    fn point(&self, app: &mut App, x: u16, y: u16) {
        // the pane under the pointer is the one that turns
        if let Some(pane) = pane_at(app, x, y) {
            app.states.frames.pane = pane;
        }
    }

    fn page(&self, app: &App) -> usize {
        page(app)
    }
}
