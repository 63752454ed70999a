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

use super::draw::{self, Cursor, put, put_cell, rule};
use super::keys::Action;
use super::model::Model;
use super::redissect::Detail;
use super::screen::{Change, Part, Request, Screen};
use super::sort::By;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use rdmascope_dissector::field::Kind;
use rdmascope_dissector::filter::Filter;
use rdmascope_dissector::render::{self, Stored, fault_label, label};
use rdmascope_dissector::trace::{Node, Tree};
use std::collections::HashSet;

/// Protocols that are closed until the user opens them: layers below RDMA are rarely of interest.
const CLOSED: [&str; 12] =
    ["frame", "eth", "vlan", "sll", "ip", "ipv6", "udp", "tcp", "erf", "null", "raw", "iwarp_mpa"];

/// The pane that has the focus.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Pane {
    #[default]
    List,
    Fields,
    Bytes,
}

/// State of the view.
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
fn layout(state: &State, model: &Model) -> [Rect; 3] {
    let body = model.body();
    let none = Rect { height: 0, ..body };
    if state.maximized {
        return match state.pane {
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
pub(crate) fn page(state: &State, model: &Model) -> usize {
    usize::from(layout(state, model)[0].height.saturating_sub(1))
}

/// The pane at a position of the screen.
pub(crate) fn pane_at(state: &State, model: &Model, x: u16, y: u16) -> Option<Pane> {
    let areas = layout(state, model);
    [Pane::List, Pane::Fields, Pane::Bytes]
        .into_iter()
        .zip(areas)
        .find(|(_, a)| a.contains((x, y).into()))
        .map(|(p, _)| p)
}

fn per_row(area: Rect) -> usize {
    if area.width >= 73 { 16 } else { 8 }
}

fn is_open(state: &State, node: &Node) -> bool {
    let closed = node.depth == 0 && CLOSED.contains(&node.def.name);
    closed == state.turned.contains(&node.def.id)
}

/// The rows of fields, after something was opened or closed.
fn rebuild(state: &mut State, model: &Model) {
    let mut rows = Vec::new();
    if let Some(detail) = &model.detail {
        let mut hidden_below: Option<u8> = None;
        for (i, node) in detail.tree.nodes.iter().enumerate() {
            if hidden_below.is_some_and(|depth| node.depth > depth) {
                continue;
            }
            hidden_below = None;
            if node.def.hidden {
                continue;
            }
            rows.push(i as u32);
            if detail.tree.has_children(i) && !is_open(state, node) {
                hidden_below = Some(node.depth);
            }
        }
    }
    state.rows = rows;
}

/// Takes a frame's fields.
pub(crate) fn detail_came(state: &mut State, model: &mut Model, detail: Box<Detail>) {
    // the selected field stays selected, if the new frame has it
    let before = selected_node(state, model).map(|n| n.def.id);
    model.detail = Some(detail);
    let model = &*model;
    rebuild(state, model);
    let tree = model.detail.as_ref().map(|d| &d.tree);
    let found = before.and_then(|id| {
        let tree = tree?;
        state.rows.iter().position(|r| tree.nodes.get(*r as usize).is_some_and(|n| n.def.id == id))
    });
    // otherwise the last protocol of the frame
    let last = tree.and_then(|tree| {
        state.rows.iter().rposition(|r| {
            tree.nodes
                .get(*r as usize)
                .is_some_and(|n| n.depth == 0 && n.def.kind == Kind::Protocol && n.def.name != "rdmascope")
        })
    });
    let at = found.or(last).unwrap_or(0);
    let (len, page) = (state.rows.len(), fields_page(state, model));
    if found.is_none() {
        state.fields = Cursor { at, top: at };
    }
    state.fields.jump(at, len, page);
    show_bytes(state, model);
}

fn fields_page(state: &State, model: &Model) -> usize {
    usize::from(layout(state, model)[1].height.saturating_sub(1))
}

fn selected_node<'a>(state: &State, model: &'a Model) -> Option<&'a Node> {
    let tree = &model.detail.as_ref()?.tree;
    tree.nodes.get(*state.rows.get(state.fields.at)? as usize)
}

/// Brings the bytes of the selected field to the screen.
fn show_bytes(state: &mut State, model: &Model) {
    let Some(node) = selected_node(state, model) else { return };
    let (offset, len) = (node.offset as usize, node.len as usize);
    if state.pane != Pane::Bytes {
        state.byte = offset;
    }
    let area = layout(state, model)[2];
    let (row, page) = (state.byte / per_row(area), usize::from(area.height.saturating_sub(1)).max(1));
    let last = (offset + len).saturating_sub(1) / per_row(area);
    if row < state.bytes_top || last.min(row + page - 1) >= state.bytes_top + page {
        state.bytes_top = row;
    }
}

/// The innermost field that covers the selected byte becomes the selected one.
fn field_of_byte(state: &mut State, model: &Model) {
    let Some(detail) = &model.detail else { return };
    let source = selected_node(state, model).map_or(0, |n| n.source);
    let byte = state.byte as u32;
    let covers = |n: &Node| {
        n.source == source && !n.generated && n.len > 0 && n.offset <= byte && byte < n.offset + n.len && !n.def.hidden
    };
    let best = detail
        .tree
        .nodes
        .iter()
        .enumerate()
        .filter(|(_, n)| covers(n))
        .min_by_key(|(i, n)| (n.len, std::cmp::Reverse((n.depth, *i))));
    let Some((found, _)) = best else { return };
    // open the subtrees that contain it
    let mut depth = detail.tree.nodes[found].depth;
    let mut open = Vec::new();
    for (i, n) in detail.tree.nodes[..found].iter().enumerate().rev() {
        if n.depth < depth {
            depth = n.depth;
            if !is_open(state, &detail.tree.nodes[i]) {
                open.push(n.def.id);
            }
        }
    }
    for id in open {
        if !state.turned.remove(&id) {
            state.turned.insert(id);
        }
    }
    rebuild(state, model);
    if let Some(at) = state.rows.iter().position(|r| *r as usize == found) {
        let (len, page) = (state.rows.len(), fields_page(state, model));
        state.fields.jump(at, len, page);
    }
    show_bytes(state, model);
}

fn source_len(state: &State, model: &Model) -> Option<usize> {
    let source = selected_node(state, model).map_or(0, |n| n.source);
    model.detail.as_ref()?.tree.sources().get(usize::from(source)).map(|s| s.bytes.len())
}

/// Opens or closes the selected subtree.
fn turn(state: &mut State, model: &Model, action: Action) -> Vec<Request> {
    let Some(detail) = &model.detail else { return Vec::new() };
    let Some(index) = state.rows.get(state.fields.at).map(|r| *r as usize) else { return Vec::new() };
    let Some(node) = detail.tree.nodes.get(index).copied() else { return Vec::new() };
    let (parent, open) = (detail.tree.has_children(index), is_open(state, &node));
    // the number of another frame leads there
    if action == Action::Open
        && node.def.kind == Kind::FrameNum
        && let Stored::U(number) = detail.tree.stored(&node)
    {
        return vec![Request::GoToFrame(number)];
    }
    if action == Action::Left && (!parent || !open) {
        // to its parent
        let up = state.rows[..state.fields.at].iter().rposition(|r| detail.tree.nodes[*r as usize].depth < node.depth);
        if let Some(at) = up {
            let (len, page) = (state.rows.len(), fields_page(state, model));
            state.fields.jump(at, len, page);
        }
        show_bytes(state, model);
        return Vec::new();
    }
    if !parent || (action == Action::Right && open) {
        return Vec::new();
    }
    if !state.turned.remove(&node.def.id) {
        state.turned.insert(node.def.id);
    }
    rebuild(state, model);
    let (len, page) = (state.rows.len(), fields_page(state, model));
    state.fields.show(len, page);
    Vec::new()
}

/// The filter that selects the selected field's value.
pub(crate) fn selected_filter(state: &State, model: &Model) -> Option<String> {
    let detail = model.detail.as_ref()?;
    let node = selected_node(state, model)?;
    let text = literal(&detail.tree, node)
        .map(|value| format!("{} == {value}", node.def.name))
        .filter(|f| Filter::parse(f, &model.registry).is_ok());
    text.or_else(|| Some(node.def.name.to_owned()).filter(|f| Filter::parse(f, &model.registry).is_ok()))
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
        Stored::Time(..) if node.def.kind == Kind::AbsTime => {
            Some(format!("\"{}\"", shown.replace('T', " ").trim_end_matches("+0000")))
        }
        Stored::Time(..) => Some(shown),
    }
}

/// The text of the selected part.
fn copied(state: &State, model: &Model, part: Part) -> Option<String> {
    let detail = model.detail.as_ref();
    let node = selected_node(state, model);
    match part {
        Part::Value => {
            let (detail, node) = (detail?, node?);
            let stored = detail.tree.stored(node);
            let mut out = String::new();
            match stored {
                Stored::None => label(&mut out, &detail.tree, *state.rows.get(state.fields.at)? as usize),
                _ => out = render::escaped(&render::show(node.def, stored, render::Style::Fields)),
            }
            Some(out)
        }
        Part::Row if state.pane != Pane::List => {
            let mut out = String::new();
            label(&mut out, &detail?.tree, *state.rows.get(state.fields.at)? as usize);
            Some(out)
        }
        Part::Row => {
            let place = model.frame_at(state.list.at)?;
            Some(row_text(model, state.list.at, place).join("\t"))
        }
        Part::Bytes => {
            let (detail, node) = (detail?, node?);
            let bytes = if state.pane == Pane::List {
                &detail.tree.sources().first()?.bytes[..]
            } else {
                detail.tree.covered(node)
            };
            Some(bytes.iter().map(|b| format!("{b:02x}")).collect())
        }
        Part::Filter => selected_filter(state, model),
    }
}

/// The cells of a row: number, time, source, destination, protocol, length, info, and the chosen columns.
fn row_text(model: &Model, row: usize, place: usize) -> Vec<String> {
    let entry = model.index.at(place).copied().unwrap_or_default();
    let previous = row
        .checked_sub(1)
        .and_then(|r| model.frame_at(r))
        .and_then(|p| model.index.at(p))
        .map_or(entry.time, |e| e.time);
    let time = model.time.show(entry.time, model.first_time(), previous);
    let mut cells = vec![(place + 1).to_string(), time];
    match model.texts.get(&(place as u64 + 1)) {
        Some(text) => {
            cells.extend([
                text.src.clone(),
                text.dst.clone(),
                text.protocol.to_owned(),
                entry.wire_len.to_string(),
                text.info.clone(),
            ]);
            cells.extend(text.cells.iter().cloned());
        }
        None => {
            // until the line is made, use the data of the index
            let client = model.client_end(entry.connection);
            let ends = model
                .connection(entry.connection)
                .map(|c| c.peers.map(|p| rdmascope_analyzer::report::address(&p.address)));
            let [client_at, server_at] = ends.unwrap_or_default();
            let (src, dst) = if entry.by() == client { (client_at, server_at) } else { (server_at, client_at) };
            let info = entry.opcode().and_then(|o| o.row()).map_or_else(String::new, |r| r.to_string());
            cells.extend([src, dst, entry.layer().name().to_owned(), entry.wire_len.to_string(), info]);
        }
    }
    cells
}

/// Keys by which the list can be sorted, in the order of the columns.
pub(crate) fn sorts(model: &Model) -> Vec<By> {
    let chosen = model.columns.iter().map(|def| By::Field(def));
    let [usual @ .., info] = By::USUAL;
    usual.into_iter().chain(chosen).chain([info]).collect()
}

/// Minimum width of the info column.
const INFO_MIN: u16 = 18;

/// A row of the list: which, the place of its frame, its cells.
type Row = (usize, usize, Vec<String>);

/// The rows that fit.
fn rows(state: &State, model: &Model, area: Rect) -> Vec<Row> {
    let page = usize::from(area.height.saturating_sub(1));
    let top = state.list.top;
    (top..top + page)
        .filter_map(|row| model.frame_at(row).map(|place| (row, place, row_text(model, row, place))))
        .collect()
}

/// The columns: sort key, index of the cell in a row, left edge, width.
fn columns(model: &Model, area: Rect, rows: &[Row]) -> Vec<(By, usize, u16, u16)> {
    let widest = |column: usize, least: usize, most: usize| {
        rows.iter()
            .filter_map(|(.., cells)| cells.get(column))
            .map(|c| c.chars().count())
            .max()
            .unwrap_or(0)
            .clamp(least, most) as u16
    };
    let narrow = area.width < 100;
    let number = widest(0, 4, 12).max(model.index.len().max(1).ilog10() as u16 + 1);
    let address = if narrow { 15 } else { 25 };
    let usual =
        [number, widest(1, 8, 26), widest(2, 6, address), widest(3, 11, address), widest(4, 8, 13), widest(5, 3, 8)];
    let mut widths: Vec<(usize, u16)> = usual.into_iter().enumerate().collect();
    // the chosen columns are placed before the info column
    widths.extend(model.columns.iter().enumerate().map(|(i, def)| (7 + i, widest(7 + i, def.name.len().min(16), 24))));
    let used = |widths: &[(usize, u16)]| widths.iter().filter(|(_, w)| *w > 0).map(|(_, w)| w + 1).sum::<u16>() + 2;
    // the info column is the most important: the others make room for it
    for missed in [5, 3, 2, 1] {
        if used(&widths) + INFO_MIN > area.width {
            widths[missed].1 = 0;
        }
    }
    widths.push((6, area.width.saturating_sub(used(&widths) + 1).max(8)));
    let mut x = area.x + 2;
    let end = area.x + area.width;
    sorts(model)
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

fn draw_list(state: &State, model: &Model, buf: &mut Buffer, area: Rect) {
    if area.height == 0 {
        return;
    }
    let theme = &model.theme;
    let top = state.list.top;
    let rows = rows(state, model, area);
    let columns = columns(model, area, &rows);
    for &(by, cell, x, width) in &columns {
        let is_sorted = by == model.sorting.by && model.sorting.is_on();
        let arrow = if is_sorted { draw::arrow(model.sorting.down) } else { "" };
        put_cell(buf, x, area.y, width, &format!("{}{arrow}", by.name()), theme.faint, matches!(cell, 0 | 1 | 5));
    }
    for (line, (row, place, cells)) in rows.iter().enumerate() {
        let y = area.y + 1 + line as u16;
        let text = model.texts.get(&(*place as u64 + 1));
        let entry = model.index.at(*place).copied().unwrap_or_default();
        let style = if text.is_some_and(|t| t.faulty) {
            theme.error
        } else if entry.sent_before() {
            theme.warn
        } else if entry.is_acknowledgment() {
            theme.faint
        } else {
            theme.text
        };
        if model.marks.contains(&(*place as u32 + 1)) {
            put(buf, area.x, y, 1, "●", theme.mark);
        }
        for &(_, c, x, width) in &columns {
            let Some(cell) = cells.get(c) else { continue };
            let style = if c == 4 && style == theme.text { theme.protocol(cell) } else { style };
            put_cell(buf, x, y, width, cell, style, matches!(c, 0 | 1 | 5));
        }
        if *row == state.list.at {
            let style = if state.pane == Pane::List { theme.selected } else { theme.selected_elsewhere };
            buf.set_style(Rect { x: area.x, y, width: area.width, height: 1 }, style);
        }
    }
    if rows.is_empty() {
        let text = match (model.filter.is_on() || model.followed.is_some(), model.done && model.filter_is_done()) {
            (true, true) => "No frame passes the filter.",
            (false, true) => "There are no frames.",
            _ => "Reading …",
        };
        put(buf, area.x + 2, area.y + 1, area.width, text, theme.faint);
    }
    draw::scrollbar(buf, Rect { y: area.y + 1, height: area.height - 1, ..area }, top, model.row_count(), theme);
}

fn draw_fields(state: &State, model: &Model, buf: &mut Buffer, area: Rect) {
    let theme = &model.theme;
    let Some(detail) = &model.detail else {
        rule(buf, area, area.y, "fields", "", theme, state.pane == Pane::Fields);
        return;
    };
    let tree = &detail.tree;
    let about = if detail.is_exact {
        format!("frame {}", detail.number)
    } else {
        format!("frame {}, no longer kept", detail.number)
    };
    rule(buf, area, area.y, "fields", &about, theme, state.pane == Pane::Fields);
    if let Some(error) = &detail.error {
        put(buf, area.x + 1, area.y + 1, area.width - 1, error, theme.error);
        return;
    }
    let page = usize::from(area.height - 1);
    let mut text = String::new();
    for line in 0..page {
        let row = state.fields.top + line;
        let Some(index) = state.rows.get(row).map(|r| *r as usize) else { break };
        let node = &tree.nodes[index];
        let y = area.y + 1 + line as u16;
        let indent = (u16::from(node.depth) * 2).min(area.width / 2);
        let sign = match (tree.has_children(index), is_open(state, node)) {
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
        if row == state.fields.at {
            let style = if state.pane == Pane::Fields { theme.selected } else { theme.selected_elsewhere };
            buf.set_style(Rect { x: area.x, y, width: area.width, height: 1 }, style);
        }
    }
    draw::scrollbar(
        buf,
        Rect { y: area.y + 1, height: area.height - 1, ..area },
        state.fields.top,
        state.rows.len(),
        theme,
    );
}

fn draw_bytes(state: &State, model: &Model, buf: &mut Buffer, area: Rect) {
    let theme = &model.theme;
    let node = selected_node(state, model);
    let source = node.map_or(0, |n| usize::from(n.source));
    let Some(source) = model.detail.as_ref().and_then(|d| d.tree.sources().get(source)) else {
        rule(buf, area, area.y, "bytes", "", theme, state.pane == Pane::Bytes);
        return;
    };
    let name = node.map_or("", |n| n.def.name);
    let about = match node.filter(|n| n.len > 0) {
        Some(n) => format!("{name} {}+{}", n.offset, n.len),
        None => format!("{} bytes", source.bytes.len()),
    };
    let title = if source.name == "Frame" { "bytes".to_owned() } else { format!("bytes: {}", source.name) };
    rule(buf, area, area.y, &title, &about, theme, state.pane == Pane::Bytes);
    let per_row = per_row(area);
    let range = node.map_or(0..0, |n| n.offset as usize..n.offset as usize + n.len as usize);
    for line in 0..usize::from(area.height - 1) {
        let start = (state.bytes_top + line) * per_row;
        let Some(bytes) = source.bytes.get(start..(start + per_row).min(source.bytes.len())).filter(|b| !b.is_empty())
        else {
            break;
        };
        let y = area.y + 1 + line as u16;
        put(buf, area.x + 1, y, 5, &format!("{start:04x}"), theme.faint);
        for (i, byte) in bytes.iter().enumerate() {
            let gap = u16::from(i >= per_row / 2 && per_row == 16);
            let x = area.x + 7 + i as u16 * 3 + gap;
            let text_x = area.x + 7 + per_row as u16 * 3 + 2 + i as u16;
            let mut style = if range.contains(&(start + i)) { theme.field } else { theme.text };
            if state.pane == Pane::Bytes && start + i == state.byte {
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

impl Screen for State {
    fn hints(&self) -> &'static [(Action, &'static str)] {
        &[
            (Action::NextPane, "pane"),
            (Action::Goto, "go to"),
            (Action::Mark, "mark"),
            (Action::Follow, "follow"),
            (Action::Sort, "sort"),
        ]
    }

    fn draw(&self, model: &Model, buf: &mut Buffer) {
        let [list, fields, bytes] = layout(self, model);
        draw_list(self, model, buf, list);
        if fields.height > 0 {
            draw_fields(self, model, buf, fields);
        }
        if bytes.height > 0 {
            draw_bytes(self, model, buf, bytes);
        }
        if list.width >= 150 && fields.height > 0 && bytes.height > 0 {
            for y in fields.y..fields.y + fields.height {
                put(buf, fields.x + fields.width, y, 1, "│", model.theme.faint);
            }
        }
    }

    fn act(&mut self, model: &Model, action: Action) -> Vec<Request> {
        match (action, self.pane) {
            (Action::NextPane, pane) => {
                self.pane = match pane {
                    Pane::List => Pane::Fields,
                    Pane::Fields => Pane::Bytes,
                    Pane::Bytes => Pane::List,
                }
            }
            (Action::PreviousPane, pane) => {
                self.pane = match pane {
                    Pane::List => Pane::Bytes,
                    Pane::Fields => Pane::List,
                    Pane::Bytes => Pane::Fields,
                }
            }
            (Action::Maximize, _) => {
                self.maximized = !self.maximized;
                let (len, page) = (model.row_count(), page(self, model));
                self.list.show(len, page);
            }
            (Action::Open, Pane::List) => self.pane = Pane::Fields,
            (Action::ExpandAll, _) => {
                let Some(detail) = &model.detail else { return Vec::new() };
                let parents: Vec<(u32, bool)> = (0..detail.tree.nodes.len())
                    .filter(|i| detail.tree.has_children(*i))
                    .map(|i| (detail.tree.nodes[i].def.id, is_open(self, &detail.tree.nodes[i])))
                    .collect();
                let close = parents.iter().all(|(_, open)| *open);
                let mut seen = HashSet::new();
                for (id, open) in parents {
                    if open == close && seen.insert(id) && !self.turned.remove(&id) {
                        self.turned.insert(id);
                    }
                }
                rebuild(self, model);
                let (len, page) = (self.rows.len(), fields_page(self, model));
                self.fields.show(len, page);
            }
            (Action::Sort, _) => {
                let all = sorts(model);
                let at = all.iter().position(|by| *by == model.sorting.by).unwrap_or(0);
                let by = all[(at + 1) % all.len()];
                return vec![Request::SortFrames(by, false)];
            }
            (Action::SortReverse, _) => return vec![Request::SortFrames(model.sorting.by, !model.sorting.down)],
            (_, Pane::List) => {
                let (len, page) = (model.row_count(), page(self, model));
                self.list.moved(action, len, page);
                return vec![Request::StayAtEnd(model.grows && self.list.at + 1 >= len)];
            }
            (Action::Open | Action::Left | Action::Right, Pane::Fields) => return turn(self, model, action),
            (_, Pane::Fields) => {
                let (len, page) = (self.rows.len(), fields_page(self, model));
                self.fields.moved(action, len, page);
                show_bytes(self, model);
            }
            (_, Pane::Bytes) => {
                let area = layout(self, model)[2];
                let row = per_row(area);
                let page = usize::from(area.height.saturating_sub(1)).max(1) * row;
                let Some(len) = source_len(self, model) else { return Vec::new() };
                let byte = self.byte;
                self.byte = match action {
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
                field_of_byte(self, model);
            }
        }
        Vec::new()
    }

    fn click(&mut self, model: &Model, x: u16, y: u16) -> Vec<Request> {
        let areas = layout(self, model);
        let Some(pane) = pane_at(self, model, x, y) else { return Vec::new() };
        self.pane = pane;
        match pane {
            // a head sorts by its column
            Pane::List if y == areas[0].y => {
                let columns = columns(model, areas[0], &rows(self, model, areas[0]));
                if let Some((by, ..)) = columns.into_iter().find(|(_, _, from, width)| *from <= x && x <= from + width)
                {
                    let down = model.sorting.by == by && !model.sorting.down;
                    return vec![Request::SortFrames(by, down)];
                }
            }
            Pane::List if y > areas[0].y => {
                let row = self.list.top + usize::from(y - areas[0].y - 1);
                if row < model.row_count() {
                    self.list.at = row;
                }
            }
            Pane::Fields if y > areas[1].y => {
                let row = self.fields.top + usize::from(y - areas[1].y - 1);
                if row < self.rows.len() {
                    let requests = if self.fields.at == row { turn(self, model, Action::Open) } else { Vec::new() };
                    self.fields.at = row.min(self.rows.len().saturating_sub(1));
                    show_bytes(self, model);
                    return requests;
                }
            }
            Pane::Bytes if y > areas[2].y => {
                let row = self.bytes_top + usize::from(y - areas[2].y - 1);
                let per_row = per_row(areas[2]);
                let column = usize::from(x.saturating_sub(areas[2].x + 7));
                let column = column.saturating_sub(usize::from(column > per_row * 3 / 2)) / 3;
                let byte = row * per_row + column;
                if column < per_row && source_len(self, model).is_some_and(|len| byte < len) {
                    self.byte = byte;
                    field_of_byte(self, model);
                }
            }
            _ => {}
        }
        Vec::new()
    }

    fn selected_frame(&self, model: &Model) -> Option<u64> {
        model.frame_at(self.list.at).map(|p| p as u64 + 1)
    }

    fn is_chosen(&self) -> bool {
        self.list.at > 0
    }

    fn frames_shown(&self, model: &Model) -> Vec<usize> {
        let top = self.list.top;
        (top..top + page(self, model)).filter_map(|row| model.frame_at(row)).collect()
    }

    fn sorts(&self, model: &Model) -> Vec<String> {
        sorts(model).iter().map(|by| by.name().to_owned()).collect()
    }

    fn sort_by(&mut self, model: &Model, column: usize) -> Vec<Request> {
        let Some(by) = sorts(model).get(column).copied() else { return Vec::new() };
        let down = by == model.sorting.by && !model.sorting.down;
        vec![Request::SortFrames(by, down)]
    }

    fn export(&self, _: &Model) -> Vec<Vec<String>> {
        Vec::new()
    }

    fn changed(&mut self, change: Change) {
        if change == Change::Restarted {
            self.list = Cursor::default();
        }
    }

    fn back(&mut self, model: &Model) -> Option<Vec<Request>> {
        if model.sorting.is_under_way() {
            return Some(vec![Request::SortFrames(By::Number, false), Request::Say("not sorted".to_owned())]);
        }
        std::mem::take(&mut self.maximized).then(Vec::new)
    }

    fn point(&mut self, model: &Model, x: u16, y: u16) {
        // the pane under the pointer is the one that turns
        if let Some(pane) = pane_at(self, model, x, y) {
            self.pane = pane;
        }
    }

    fn page(&self, model: &Model) -> usize {
        page(self, model)
    }

    fn lists_frames(&self) -> bool {
        true
    }

    fn detailed(&self, model: &Model) -> Option<usize> {
        model.frame_at(self.list.at)
    }

    fn marked(&mut self, model: &Model) {
        if self.pane == Pane::List {
            let (len, page) = (model.row_count(), page(self, model));
            self.list.moved(Action::Down, len, page);
        }
    }

    fn copied(&mut self, model: &Model, part: Part) -> Option<String> {
        copied(self, model, part)
    }
}
