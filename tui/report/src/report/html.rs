//! The report as one HTML page. It opens offline, loads nothing, and has tables that sort and plots that zoom. Plots
//! are SVG made here; the script only moves their view. All data from the network goes through `text`.

use super::sessions::{HEADS, headline, row, sums};
use super::words::{Tone, and, count, duration, grouped, grouped_signed, size, times, when};
use super::{Detail, Entry, ReportData, ending, ends, handles, last_words, shown, stack};
use rdmascope_analyzer::episodes::time::{Owner, Time};
use rdmascope_analyzer::finding::{Blame, Severity};
use rdmascope_analyzer::path::State;
use rdmascope_analyzer::report::{self as analyzed, Connection};
use rdmascope_analyzer::timeline::{Point, Timeline};
use rdmascope_dissector::frame::Addr;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Connections with plots and tables of their own.
const ARTICLES_MAX: usize = 32;
/// Rows of a table that are markup from the beginning.
const ROWS_AT_ONCE: usize = 100;
/// Frames listed.
const FRAMES_MAX: usize = 5000;
/// Frames of a finding that are links.
const LINKS_MAX: usize = 12;
/// Counters of RDMA devices drawn for a connection.
const COUNTERS_MAX: usize = 4;
/// Findings listed.
const FINDINGS_MAX: usize = 500;
/// Stretches of time that the network is reported in.
const STRETCHES: usize = 200;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// The whole page.
pub fn render(data: &ReportData) -> String {
    let mut out = String::with_capacity(64 * 1024);
    let entries = data.entries();
    let names: Vec<String> = data.inputs.iter().map(|i| shown(&i.path)).collect();
    let title = names.join(", ");
    // nothing is loaded, and the policy enforces that in the browser
    let policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; \
        form-action 'none'";
    let _ = write!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
            content=\"width=device-width, \
        initial-scale=1\">\n<meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n<title>{} – \
        rdmascope</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n",
        text(&title)
    );
    let page = Page::of(data);
    head(&mut out, data, &title, &entries);
    out.push_str("<main>\n");
    findings(&mut out, data, &page, &entries);
    ladders(&mut out, data);
    sessions_shown(&mut out, data, &page);
    network(&mut out, data, &page);
    connections(&mut out, data, &page);
    slowest(&mut out, data, &page);
    frames_listed(&mut out, data, &page, &entries);
    rest(&mut out, data);
    let _ = write!(out, "</main>\n<footer>{}</footer>\n<script>\n{SCRIPT}</script>\n</body>\n</html>\n", text(&made()));
    out
}

/// Says when, on which host and by which version the page was made.
fn made() -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_nanos());
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = if host.trim().is_empty() { String::new() } else { format!(" on {}", host.trim()) };
    let now = super::words::date(i64::try_from(now).unwrap_or(i64::MAX));
    format!("Made by rdmascope {}{host}, {now}.", env!("CARGO_PKG_VERSION"))
}

/// Possible targets of links on the page.
struct Page {
    /// Connections with an article.
    articles: BTreeSet<u32>,
    /// Connections with a row.
    rows: BTreeSet<u32>,
}

impl Page {
    fn of(data: &ReportData) -> Self {
        let mut busy: Vec<_> = data
            .storage()
            .filter(|(c, _)| !c.commands.is_empty() || c.credit_history.len() > 2)
            .map(|(c, _)| c)
            .collect();
        busy.sort_by_key(|c| std::cmp::Reverse(super::requests(c)));
        let articles = busy.iter().take(ARTICLES_MAX).map(|c| c.id).collect();
        Self { articles, rows: data.storage().map(|(c, _)| c.id).collect() }
    }

    /// The number of a connection, as a link to its part of the page.
    fn connection(&self, id: u32) -> String {
        let place = if self.articles.contains(&id) { "connection" } else { "row" };
        if self.rows.contains(&id) { format!("<a href=\"#{place}-{id}\">{id}</a>") } else { id.to_string() }
    }

    fn connection_cell(&self, id: u32) -> Cell {
        Cell { html: self.connection(id), ..number(id.into()) }
    }
}

/// The number of a frame, as a link to its row.
fn frame_link(frame: u64) -> String {
    format!("<a href=\"#frame-{frame}\">{}</a>", grouped(frame))
}

fn frame_cell(frame: u64) -> Cell {
    Cell { html: frame_link(frame), ..number(frame) }
}

/// "frames 23, 41 …", as links.
fn frame_links(entry: &Entry<'_>) -> String {
    let links: Vec<String> = entry.frames.iter().take(LINKS_MAX).map(|f| frame_link(*f)).collect();
    let more = if entry.frames.len() > LINKS_MAX || entry.count > entry.frames.len() as u64 { " …" } else { "" };
    match links.len() {
        0 => String::new(),
        1 => format!("frame {}{more}", links[0]),
        _ => format!("frames {}{more}", links.join(", ")),
    }
}

/// The side or device to blame, with its address if it has one.
fn who(entry: &Entry<'_>, data: &ReportData) -> String {
    let end = match entry.findings.first().map(|f| f.by) {
        Some(Blame::Client) => 0,
        Some(Blame::Server) => 1,
        Some(Blame::Network) => return "the network".to_owned(),
        Some(Blame::Capture) => return "the capture".to_owned(),
        _ => return String::new(),
    };
    let mut addresses: Vec<String> = entry
        .connections
        .iter()
        .filter_map(|id| data.connection(*id))
        .map(|c| analyzed::address(&c.peers[end].address))
        .collect();
    addresses.sort_unstable();
    addresses.dedup();
    match addresses.as_slice() {
        [one] => format!("the {} {one}", super::side(end)),
        [] => format!("the {}", super::side(end)),
        several => format!("the {} on {}", super::side(end), count(several.len() as u64, "host")),
    }
}

/// Text for between tags and for attributes in double quotes.
fn text(raw: &str) -> String {
    let mut out = String::with_capacity(raw.len());
    for c in shown(raw).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

fn head(out: &mut String, data: &ReportData, title: &str, entries: &[Entry<'_>]) {
    let capture = &data.report.capture;
    let mut facts = vec![count(capture.frames, "frame"), size(capture.bytes), duration(data.length())];
    facts.extend(data.kinds().into_iter().map(str::to_owned));
    facts.extend(super::decoded(data));
    let dates = super::words::dates(data.start(), data.start().saturating_add(data.length()));
    let headline = super::headline(data, entries);
    let class = match headline.tone {
        Tone::Good => "good",
        Tone::Bad => "bad",
        Tone::Strong => "soft",
        _ => "",
    };
    let _ = write!(
        out,
        "<header>\n<h1>{}</h1>\n<p class=\"soft\">{}</p>\n<p class=\"soft\">{}</p>\n<p class=\"verdict {class}\">{} \
            {}</p>\n",
        text(title),
        text(&facts.join(" · ")),
        if capture.frames > 0 { text(&format!("Captured {dates}")) } else { String::new() },
        headline.mark,
        text(&headline.text),
    );
    if let Some(unjudged) = &headline.unjudged {
        let _ = writeln!(out, "<p>{}</p>", text(unjudged));
    }
    if let Some(answer) = super::answer::text(&data.report) {
        let _ = writeln!(out, "<p class=\"answer\">{}</p>", text(&answer));
    }
    for error in data.inputs.iter().filter_map(|i| i.error.as_deref()) {
        let _ = writeln!(out, "<p class=\"bad\">Read only in part: {}</p>", text(error));
    }
    if let Some(let_go) = data.let_go() {
        let _ = writeln!(out, "<p class=\"bad\">{}</p>", text(&let_go));
    }
    for line in super::filtered(data).into_iter().chain(super::ignored(data)) {
        let _ = writeln!(out, "<p>{}</p>", text(&line));
    }
    out.push_str("<nav aria-label=\"Sections\">");
    let sections = [
        ("findings", "Findings", true),
        ("path", "Path to RDMA", !data.report.paths.is_empty()),
        ("sessions", "Sessions", !data.sessions.is_empty()),
        ("network", "Network", data.storage().next().is_some()),
        ("connections", "Connections", true),
        ("slowest", "Slowest requests", true),
        ("frames", "Frames", true),
    ];
    for (id, name, _) in sections.into_iter().filter(|(.., is_there)| *is_there) {
        let _ = write!(out, "<a href=\"#{id}\">{name}</a>");
    }
    out.push_str(
        "<label class=\"search\">Search <input type=\"search\" id=\"search\" autocomplete=\"off\"></label><output \
            id=\"hits\" \
        class=\"soft\"></output></nav>\n</header>\n",
    );
}

fn findings(out: &mut String, data: &ReportData, page: &Page, entries: &[Entry<'_>]) {
    out.push_str("<section id=\"findings\">\n<h2>Findings</h2>\n");
    if entries.is_empty() {
        out.push_str("<p class=\"soft\">None.</p>\n");
    }
    for entry in entries.iter().take(FINDINGS_MAX) {
        let row = entry.rule.row();
        let (class, mark) = match entry.severity {
            Severity::Error => ("error", "✗"),
            Severity::Warn => ("warn", "!"),
            Severity::Note => ("note", "·"),
        };
        let open = if entry.severity >= Severity::Warn { " open" } else { "" };
        let by = who(entry, data);
        let by = if by.is_empty() { String::new() } else { format!(" <span class=\"who\">{}</span>", text(&by)) };
        let title = entry.title(data.start());
        let many = if entry.count > 1 { format!(" ×{}", grouped(entry.count)) } else { String::new() };
        let _ = write!(
            out,
            "<details class=\"finding {class}\"{open}>\n<summary><b>{mark}</b> {}{many}{by}</summary>\n<dl>\n",
            text(&title),
        );
        let mut pair = |term: &str, what: &str| {
            if !what.is_empty() {
                let _ = writeln!(out, "<dt>{term}</dt><dd>{}</dd>", text(what));
            }
        };
        pair("What", &super::sentence(entry, data));
        pair("Cost", &super::answer::cost(entry, &data.report));
        pair("Led to", &super::text::consequence(entry).unwrap_or_default());
        pair("With it", super::effects(entry).trim_start_matches("With it: "));
        let mut places = vec![frame_links(entry), when(entry.first.time, data.start())];
        match entry.connections.as_slice() {
            [] => {}
            [one] => places.push(format!("connection {}", page.connection(*one))),
            several => {
                let links: Vec<String> = several.iter().take(LINKS_MAX).map(|id| page.connection(*id)).collect();
                let more = if several.len() > LINKS_MAX {
                    format!(" and {} more", several.len() - LINKS_MAX)
                } else {
                    String::new()
                };
                places.push(format!("connections {}{more}", links.join(", ")));
            }
        }
        places.push(times(entry.count));
        places.retain(|p| !p.is_empty());
        let places = places.join("; ");
        let _ = writeln!(out, "<dt>Where</dt><dd>{places}</dd>");
        let mut pair = |term: &str, what: &str| {
            if !what.is_empty() {
                let _ = writeln!(out, "<dt>{term}</dt><dd>{}</dd>", text(what));
            }
        };
        pair("Certainty", super::certainty_text(entry.certainty));
        pair("Rule", &format!("{} ({})", row.says, row.spec));
        pair("Causes", &entry.causes().iter().map(|c| super::words::sentence(c)).collect::<Vec<_>>().join(" Or: "));
        pair("Do", entry.cure());
        let more = match &data.manual {
            Some(manual) => format!("; <a href=\"{}\">all about it</a>", text(&manual.page(entry.rule))),
            None => format!("; <code>rdmascope explain {}</code> tells all about it", row.id),
        };
        let _ = write!(out, "<dt>Id</dt><dd><code>{}</code>{more}</dd>\n</dl>\n</details>\n", row.id);
    }
    if entries.len() > FINDINGS_MAX {
        let _ = writeln!(out, "<p class=\"soft\">… and {} more.</p>", grouped((entries.len() - FINDINGS_MAX) as u64));
    }
    out.push_str("</section>\n");
}

/// Writes the section on the path to RDMA: the steps of each pair of hosts.
fn ladders(out: &mut String, data: &ReportData) {
    if data.report.paths.is_empty() {
        return;
    }
    let wanted: Vec<_> = super::ladder::asked_for(data).map(|p| (p.kind, p.client, p.server)).collect();
    out.push_str("<section id=\"path\">\n<h2>Path to RDMA</h2>\n");
    for path in data.report.paths.iter().take(ARTICLES_MAX) {
        let open = if wanted.contains(&(path.kind, path.client, path.server)) { " open" } else { "" };
        let _ = write!(
            out,
            "<details class=\"ladder\"{open}>\n<summary>{}</summary>\n<table>\n<tbody>\n",
            text(&super::ladder::headline(path))
        );
        for rung in &path.rungs {
            let frame = rung.at.map_or_else(String::new, |at| frame_link(at.frame));
            let class = match rung.state {
                State::Yes => "good",
                State::No => "bad",
                State::NotSeen | State::NotNeeded => "soft",
            };
            let _ = writeln!(
                out,
                "<tr><td class=\"{class}\">{}</td><th scope=\"row\">{}</th><td>{}</td><td>{frame}</td></tr>",
                super::ladder::mark(rung.state),
                rung.step.name(),
                text(&super::ladder::detail(rung))
            );
        }
        out.push_str("</tbody>\n</table>\n</details>\n");
    }
    out.push_str("</section>\n");
}

/// Sessions and mounts, with the traffic of each of their connections.
fn sessions_shown(out: &mut String, data: &ReportData, page: &Page) {
    if data.sessions.is_empty() {
        return;
    }
    out.push_str("<section id=\"sessions\">\n<h2>Sessions</h2>\n");
    for session in data.sessions.iter().take(ARTICLES_MAX) {
        let _ = writeln!(out, "<h3>{}</h3>\n<p class=\"soft\">{}</p>", text(&headline(session)), text(&sums(session)));
        for remark in &session.remarks {
            let _ = writeln!(out, "<p class=\"warned\">{}</p>", text(remark));
        }
        let heads: Vec<(&'static str, bool)> =
            HEADS.iter().enumerate().map(|(i, head)| (*head, matches!(i, 1 | 2))).collect();
        let mut table = Sortable::new(&heads);
        for channel in &session.channels {
            let mut cells: Vec<Cell> = row(session, channel).iter().map(|cell| plain(cell)).collect();
            let numbers = [channel.requests, channel.opens, channel.locks, channel.read, channel.written, channel.rdma];
            cells.splice(3..9, numbers.map(number));
            cells[0] = page.connection_cell(channel.connection);
            cells[9] = time(channel.latency.quantile(500));
            cells[10] = number(channel.retransmissions);
            cells[11] = Cell { html: format!("{} %", session.share(channel)), ..number(session.share(channel)) };
            table.row(cells);
        }
        table.write(out, "Connections of the session");
    }
    out.push_str("</section>\n");
}

fn connections(out: &mut String, data: &ReportData, page: &Page) {
    out.push_str("<section id=\"connections\">\n<h2>Connections</h2>\n");
    let all: Vec<_> = data.storage().collect();
    let mut table = Sortable::new(&[
        ("#", false),
        ("client → server", true),
        ("ends", true),
        ("carries", true),
        ("sent", false),
        ("received", false),
        ("requests", false),
        ("RDMA bytes", false),
        ("retransmitted", false),
        ("ended", true),
    ]);
    for (c, detail) in &all {
        let moved = c.rdma.read_bytes + c.rdma.write_bytes;
        table.row_of(
            format!("row-{}", c.id),
            vec![
                page.connection_cell(c.id),
                plain(&ends(c)),
                plain(&handles(c)),
                plain(&stack(c)),
                number(c.sides[0].messages),
                number(c.sides[1].messages),
                number(super::requests(c)),
                number(moved),
                number(c.health.retransmissions),
                plain(&last_words(c, detail).unwrap_or_else(|| ending(c))),
            ],
        );
    }
    table.write(out, "Connections");
    for (c, detail) in all.iter().filter(|(c, _)| page.articles.contains(&c.id)) {
        article(out, data, c, detail);
    }
    out.push_str("</section>\n");
}

fn article(out: &mut String, data: &ReportData, c: &Connection, detail: &Detail) {
    let _ = write!(
        out,
        "<article id=\"connection-{}\">\n<h3>Connection {} · {}</h3>\n<p class=\"soft\">{}</p>\n<dl class=\"facts\">\n",
        c.id,
        c.id,
        text(&ends(c)),
        text(&format!("{}, {}, handshake {}, {}", stack(c), handles(c), c.handshake.key(), ending(c)))
    );
    for (label, pieces) in super::text::facts(data, c, detail) {
        let _ = writeln!(out, "<dt>{label}</dt><dd>{}</dd>", text(&pieces.join(" · ")));
    }
    out.push_str("</dl>\n<div class=\"plots\">\n");
    plots(out, data, c);
    out.push_str("</div>\n");
    let mut table = Sortable::new(&[
        ("command", true),
        ("count", false),
        ("errors", false),
        ("unanswered", false),
        ("min", false),
        ("median", false),
        ("p99", false),
        ("max", false),
        ("bytes", false),
        ("whose time", true),
    ]);
    let mut rows: Vec<_> = c.commands.iter().collect();
    rows.sort_by_key(|r| std::cmp::Reverse(r.latency.sum()));
    for r in rows {
        table.row(vec![
            plain(r.name),
            number(r.count),
            Cell { class: if r.errors > 0 { "warned" } else { "" }, ..number(r.errors) },
            Cell { class: if r.unanswered > 0 { "failed" } else { "" }, ..number(r.unanswered) },
            time(r.latency.min()),
            time(r.latency.quantile(500)),
            time(r.latency.p99()),
            time(r.latency.max()),
            number(r.bytes),
            bar(&r.time),
        ]);
    }
    table.write(out, &format!("Requests of connection {}", c.id));
    out.push_str("<p class=\"key soft\">whose time:");
    for owner in Owner::ALL.into_iter().filter(|owner| c.commands.iter().any(|row| row.time.of(*owner) > 0)) {
        let _ = write!(out, " <i class=\"w{}\"></i>{}", owner as usize, owner.name());
    }
    out.push_str("</p>\n");
    episodes(out, data, c);
    out.push_str("</article>\n");
}

/// The delays of a connection.
fn episodes(out: &mut String, data: &ReportData, c: &Connection) {
    if c.episodes.list.is_empty() {
        return;
    }
    let start = data.start();
    let mut table = Sortable::new(&[
        ("delay", true),
        ("packets of", true),
        ("cause", true),
        ("began with", true),
        ("begins", false),
        ("lasts", false),
        ("frame", false),
        ("packets", false),
        ("sent again", false),
        ("cost", false),
        ("requests", false),
        ("waited longest", true),
    ]);
    for e in &c.episodes.list {
        let longest: Vec<String> = e.waiters().map(|w| format!("{} {}", w.command, duration(w.time))).collect();
        table.row(vec![
            plain(e.kind.name()),
            plain(&e.by.map_or_else(|| "both".to_owned(), |by| c.name_of(by.index()).to_string())),
            plain(&e.cause.key().replace('_', " ")),
            plain(e.trigger.name().unwrap_or_default()),
            time(Some(e.begin.time.saturating_sub(start))),
            time(e.end.map(|end| end.time.saturating_sub(e.begin.time))),
            // the list of events has no row for each
            number(e.begin.frame),
            number(e.packets.into()),
            number(e.repeated.into()),
            time(Some(e.cost)),
            number(e.requests.into()),
            plain(&longest.join(", ")),
        ]);
    }
    table.write(out, &format!("Delays of connection {}", c.id));
}

fn slowest(out: &mut String, data: &ReportData, page: &Page) {
    out.push_str("<section id=\"slowest\">\n<h2>Slowest requests</h2>\n");
    let mut table = Sortable::new(&[
        ("request", true),
        ("file", true),
        ("offset", false),
        ("bytes", false),
        ("took", false),
        ("whose time", true),
        ("status", true),
        ("frame", false),
        ("connection", false),
        ("retransmitted", false),
    ]);
    for e in &data.report.slowest {
        table.row(vec![
            plain(e.command),
            plain(e.file.as_deref().unwrap_or_default()),
            e.offset.map_or(Cell::default(), number),
            if e.bytes_moved > 0 { number(e.bytes_moved) } else { Cell::default() },
            time(e.latency()),
            bar(&e.time),
            Cell {
                class: if e.failed { "warned l" } else { "l" },
                // its words may be on lines of their own
                html: e.status.map_or(String::new(), |s| text(&super::status(e.family, s)).replace('_', "_<wbr>")),
                value: None,
            },
            frame_cell(e.request.frame),
            page.connection_cell(e.connection),
            number(e.retransmissions.into()),
        ]);
    }
    table.write(out, "Slowest requests");
    out.push_str("</section>\n");
}

/// Frames that findings and the slowest requests refer to, with a text for each.
fn frames_listed(out: &mut String, data: &ReportData, page: &Page, entries: &[Entry<'_>]) {
    struct Listed {
        time: Option<i64>,
        connection: Option<u32>,
        texts: Vec<String>,
    }
    let mut frames: BTreeMap<u64, Listed> = BTreeMap::new();
    let mut say = |frame: u64, time: Option<i64>, connection: Option<u32>, words: String| {
        if frames.len() >= FRAMES_MAX && !frames.contains_key(&frame) {
            return;
        }
        let listed = frames.entry(frame).or_insert(Listed { time: None, connection: None, texts: Vec::new() });
        listed.time = listed.time.or(time);
        listed.connection = listed.connection.or(connection);
        if !listed.texts.contains(&words) {
            listed.texts.push(words);
        }
    };
    for entry in entries.iter().take(FINDINGS_MAX) {
        for frame in entry.frames.iter().take(LINKS_MAX) {
            let finding = entry.findings.iter().find(|f| f.frames.contains(frame));
            let time = finding.and_then(|f| f.frames.time_of(*frame));
            say(
                *frame,
                time,
                finding.and_then(|f| f.connection),
                format!("{}: {}", entry.rule.id(), entry.title(data.start()).trim_end_matches('.')),
            );
        }
    }
    for e in &data.report.slowest {
        say(e.request.frame, Some(e.request.time), Some(e.connection), format!("{}, the request", e.command));
        if let Some(at) = e.reply {
            say(
                at.frame,
                Some(at.time),
                Some(e.connection),
                format!("{}, the reply to frame {}", e.command, grouped(e.request.frame)),
            );
        }
    }
    for rung in data.report.paths.iter().take(ARTICLES_MAX).flat_map(|path| &path.rungs) {
        if let Some(at) = rung.at {
            say(at.frame, Some(at.time), None, format!("Path to RDMA: {}", rung.step.name()));
        }
    }
    out.push_str("<section id=\"frames\">\n<h2>Frames referred to</h2>\n");
    if let Some(input) = data.inputs.first().filter(|_| !frames.is_empty()) {
        let command = format!("rdmascope dissect {} -V -Y 'frame.number == N'", shown(&input.path));
        let _ = writeln!(out, "<p class=\"soft\">All of frame N: <code>{}</code></p>", text(&command));
    }
    let mut table = Sortable::new(&[("frame", false), ("time", false), ("connection", false), ("what", true)]);
    for (frame, listed) in &frames {
        let since = listed.time.map(|t| t.saturating_sub(data.start()));
        table.row_of(
            format!("frame-{frame}"),
            vec![
                number(*frame),
                since.map_or(Cell::default(), |ns| Cell {
                    class: "",
                    value: Some(ns.into()),
                    html: super::words::seconds(ns),
                }),
                listed.connection.map_or(Cell::default(), |id| page.connection_cell(id)),
                plain(&listed.texts.join("; ")),
            ],
        );
    }
    table.write(out, "Frames referred to");
    out.push_str("</section>\n");
}

fn rest(out: &mut String, data: &ReportData) {
    let lines = super::text::remarks(data);
    if lines.is_empty() {
        return;
    }
    out.push_str("<section>\n<h2>Also seen</h2>\n<ul>\n");
    for line in lines {
        let _ = writeln!(out, "<li>{}</li>", text(&line));
    }
    out.push_str("</ul>\n</section>\n");
}

// ── Tables ──────────────────────────────────────────────────────────────────────────────────────────────────────────

#[derive(Clone, Debug, Default)]
struct Cell {
    class: &'static str,
    /// Sort key, if it is not the text.
    value: Option<i128>,
    html: String,
}

fn plain(raw: &str) -> Cell {
    Cell { class: "l", value: None, html: text(raw) }
}

fn number(n: u64) -> Cell {
    Cell { class: "", value: Some(n.into()), html: grouped(n) }
}

fn time(ns: Option<i64>) -> Cell {
    ns.map_or(Cell { html: "–".to_owned(), value: Some(-1), class: "" }, |ns| Cell {
        class: "",
        value: Some(ns.into()),
        html: text(&duration(ns)),
    })
}

/// A bar of the time by owner. Sorts by the total.
fn bar(time: &Time) -> Cell {
    let whole = time.sum();
    let mut html = String::new();
    if whole > 0 {
        let _ = write!(html, "<span class=\"waits\" title=\"{}\">", super::owners(time));
        for (owner, part) in time.parts() {
            let _ = write!(
                html,
                "<i class=\"w{}\" style=\"width:{:.1}%\"></i>",
                owner as usize,
                part as f64 * 100.0 / whole as f64
            );
        }
        html.push_str("</span>");
    }
    Cell { class: "l", value: Some(whole.into()), html }
}

/// A table whose headings sort it.
struct Sortable {
    head: Vec<(&'static str, bool)>,
    rows: Vec<(String, Vec<Cell>)>,
}

impl Sortable {
    /// Headings, and whether the column is left-aligned.
    fn new(head: &[(&'static str, bool)]) -> Self {
        Self { head: head.to_vec(), rows: Vec::new() }
    }

    fn row(&mut self, cells: Vec<Cell>) {
        self.row_of(String::new(), cells);
    }

    /// A row that links can lead to by this name.
    fn row_of(&mut self, id: String, cells: Vec<Cell>) {
        self.rows.push((id, cells));
    }

    fn write(&self, out: &mut String, caption: &str) {
        if self.rows.is_empty() {
            out.push_str("<p class=\"soft\">None.</p>\n");
            return;
        }
        let caption = text(caption);
        let _ = write!(
            out,
            "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{caption}\"><table \
            class=\"data\">\n<caption>{caption}</caption>\n<thead><tr>"
        );
        for (name, left) in &self.head {
            let class = if *left { " class=\"l\"" } else { "" };
            let _ = write!(out, "<th scope=\"col\"{class}><button type=\"button\">{name}</button></th>");
        }
        out.push_str("</tr></thead>\n<tbody>\n");
        for (id, row) in self.rows.iter().take(ROWS_AT_ONCE) {
            let id = if id.is_empty() { String::new() } else { format!(" id=\"{id}\"") };
            let _ = write!(out, "<tr{id}>");
            for cell in row {
                let class = if cell.class.is_empty() { String::new() } else { format!(" class=\"{}\"", cell.class) };
                let value = cell.value.map_or(String::new(), |v| format!(" data-v=\"{v}\""));
                let _ = write!(out, "<td{class}{value}>{}</td>", cell.html);
            }
            out.push_str("</tr>\n");
        }
        out.push_str("</tbody>\n</table>\n");
        if let Some(more) = self.rows.get(ROWS_AT_ONCE..).filter(|more| !more.is_empty()) {
            let rows: Vec<_> = more
                .iter()
                .map(|(id, row)| {
                    (id, row.iter().map(|c| (c.class, c.value.map(|v| v as f64), c.html.as_str())).collect::<Vec<_>>())
                })
                .collect();
            // no markup begins within a script: `<` is written as an escape
            let json = serde_json::to_string(&rows).unwrap_or_default().replace('<', "\\u003c");
            let _ = write!(
                out,
                "<script type=\"application/json\" class=\"more\">{json}</script>\n<p class=\"soft without-script\">… \
                    and {} more, for \
                which this page needs its script.</p>\n",
                grouped(more.len() as u64)
            );
        }
        out.push_str("</div>\n");
    }
}

// ── Plots ───────────────────────────────────────────────────────────────────────────────────────────────────────────

/// Style of a series.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Draw {
    /// A value holds until the next one.
    Steps,
    /// A stroke from the bottom for each value that is not 0.
    Bars,
}

/// Values over x. All series share their x.
struct Plot<'p> {
    title: &'p str,
    unit: &'static str,
    draw: Draw,
    /// Seconds at the left and the right edge.
    from: f64,
    to: f64,
    /// True if x is logarithmic.
    log: bool,
    /// In seconds, ascending.
    x: Vec<f64>,
    series: Vec<(&'static str, Vec<f64>)>,
}

/// Markings of packets, pauses by host, and events on the network over time.
fn network(out: &mut String, data: &ReportData, page: &Page) {
    if data.storage().next().is_none() {
        return;
    }
    out.push_str("<section id=\"network\">\n<h2>Network</h2>\n");
    if let Some(timeline) = Timeline::new(data.report.connections.iter(), &data.report.capture, STRETCHES) {
        over_time(out, data, &timeline);
    }
    let head = [
        ("connection", false),
        ("from", true),
        ("packets", false),
        ("DSCP", true),
        ("priority", true),
        ("ECN-capable", false),
        ("marked", false),
        ("CNPs", false),
        ("TTL", true),
        ("source ports", true),
        ("path MTU", false),
    ];
    let mut table = Sortable::new(&head);
    let list = |values: &[(u16, u64)]| values.iter().map(|(v, _)| v.to_string()).collect::<Vec<_>>().join(", ");
    for (c, _) in data.storage().take(ARTICLES_MAX) {
        for (end, d) in c.network.directions.iter().enumerate() {
            let capable = d.ecn[1] + d.ecn[2] + d.ecn[3];
            let path_mtu = c.network.path_mtu().map_or_else(Cell::default, |mtu| number(mtu.into()));
            table.row(vec![
                page.connection_cell(c.id),
                plain(&c.name_of(end).to_string()),
                number(d.packets),
                plain(&list(d.dscp.rows())),
                plain(&list(d.priority.rows())),
                number(capable),
                number(d.ecn[3]),
                number(d.cnps.count),
                plain(&list(d.ttl.rows())),
                plain(&list(d.ports.rows())),
                path_mtu,
            ]);
        }
    }
    table.write(out, "How packets are marked");
    let end = data.report.capture.last.map_or(0, |at| at.time);
    let rows = data.report.capture.paused.rows(end);
    if !rows.is_empty() {
        let head = [
            ("device", true),
            ("class", true),
            ("frames", false),
            ("paused", false),
            ("longest", false),
            ("quanta", false),
            ("link", true),
            ("first", false),
        ];
        let mut table = Sortable::new(&head);
        for row in &rows {
            table.row(vec![
                plain(&Addr::Mac(row.source).to_string()),
                plain(&row.priority.map_or_else(|| "all".to_owned(), |p| p.to_string())),
                number(row.frames),
                time(Some(row.time)),
                time(Some(row.longest)),
                number(row.quanta),
                plain(&row.speed.to_string()),
                number(row.first.frame),
            ]);
        }
        table.write(out, "Who paused whom");
    }
    out.push_str("</section>\n");
}

/// Rate, marks, CNPs, pauses and retransmissions of the whole capture, all on one axis.
fn over_time(out: &mut String, data: &ReportData, timeline: &Timeline) {
    if timeline.rows().next().is_none() {
        out.push_str("<p class=\"soft\">No marks, CNPs, pauses or retransmissions.</p>\n");
        return;
    }
    let start = data.start();
    let second = |ns: i64| (ns.saturating_sub(start)) as f64 / 1e9;
    let (from, to) = (second(timeline.begin), second(timeline.time(timeline.points.len())));
    let x: Vec<f64> = (0..timeline.points.len()).map(|place| second(timeline.time(place))).collect();
    let step = (timeline.step as f64 / 1e9).max(1e-9);
    let mut one = |title: &str, unit, draw, series: Vec<(&'static str, Vec<f64>)>| {
        plot(out, &Plot { title, unit, draw, from, to, log: false, x: x.clone(), series });
    };
    let rate = |end: usize| timeline.points.iter().map(|p| p.bytes[end] as f64 / step).collect();
    one("Rate of all connections", "B/s", Draw::Steps, vec![("clients", rate(0)), ("servers", rate(1))]);
    for (name, value) in timeline.rows() {
        if name == "paused" {
            let share = |p: &Point| p.paused as f64 * 100.0 / timeline.step as f64;
            one(
                "Time paused, of each device and class",
                "%",
                Draw::Bars,
                vec![(name, timeline.points.iter().map(share).collect())],
            );
        } else {
            one(
                &sentence_case(name),
                "",
                Draw::Bars,
                vec![(name, timeline.points.iter().map(|p| value(p) as f64).collect())],
            );
        }
    }
}

/// With its first letter large.
fn sentence_case(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

fn plots(out: &mut String, data: &ReportData, c: &Connection) {
    let start = data.start();
    let second = |ns: i64| (ns.saturating_sub(start)) as f64 / 1e9;
    let (from, to) = (second(c.first.time), second(c.last.time).max(second(c.first.time) + 1e-6));
    if c.credit_history.len() > 1 {
        let x = c.credit_history.iter().map(|(t, ..)| second(*t)).collect();
        let side =
            |end: usize| c.credit_history.iter().map(|(_, a, b)| if end == 0 { *a } else { *b } as f64).collect();
        plot(
            out,
            &Plot {
                title: "Credits held, the least at each moment",
                unit: "",
                draw: Draw::Steps,
                from,
                to,
                log: false,
                x,
                series: vec![("client", side(0)), ("server", side(1))],
            },
        );
    }
    if let [first, second_point, ..] = c.throughput.as_slice() {
        let step = ((second_point.0 - first.0) as f64 / 1e9).max(1e-9);
        let x = c.throughput.iter().map(|(t, ..)| second(*t)).collect();
        let of =
            |end: usize| c.throughput.iter().map(|(_, a, b)| if end == 0 { *a } else { *b } as f64 / step).collect();
        plot(
            out,
            &Plot {
                title: "Throughput",
                unit: "B/s",
                draw: Draw::Steps,
                from,
                to,
                log: false,
                x,
                series: vec![("client", of(0)), ("server", of(1))],
            },
        );
    }
    let mut buckets: BTreeMap<i64, u64> = BTreeMap::new();
    for command in &c.commands {
        for (upper, n) in command.latency.histogram() {
            *buckets.entry(upper.max(1)).or_default() += n;
        }
    }
    if let (Some((least, _)), Some((most, _))) = (buckets.first_key_value(), buckets.last_key_value()) {
        let (from, to) = (*least as f64 / 1e9 / 1.3, *most as f64 / 1e9 * 1.3);
        let x = buckets.keys().map(|ns| *ns as f64 / 1e9).collect();
        let y = buckets.values().map(|n| *n as f64).collect();
        plot(
            out,
            &Plot {
                title: "Latency, requests by how long they took",
                unit: "",
                draw: Draw::Bars,
                from,
                to,
                log: true,
                x,
                series: vec![("requests", y)],
            },
        );
    }
    if !c.trouble.is_empty() {
        let x = c.trouble.iter().map(|(t, _)| second(*t)).collect();
        let of = |i: usize| c.trouble.iter().map(|(_, trouble)| trouble.0[i] as f64).collect();
        let all = [("retransmissions", 0), ("NAKs", 1), ("congestion marks", 2), ("CNPs", 3)];
        let series = all.into_iter().filter(|(_, i)| c.trouble.iter().any(|(_, trouble)| trouble.0[*i] > 0));
        plot(
            out,
            &Plot {
                title: "Retransmissions and the like",
                unit: "",
                draw: Draw::Bars,
                from,
                to,
                log: false,
                x,
                series: series.map(|(name, i)| (name, of(i))).collect(),
            },
        );
    }
    hardware(out, data, from, to);
}

/// Counters of RDMA devices, on the axis of the connection.
fn hardware(out: &mut String, data: &ReportData, from: f64, to: f64) {
    let start = data.start();
    for row in data.hardware.grown().into_iter().take(COUNTERS_MAX) {
        let second = |ns: i64| (ns.saturating_sub(start)) as f64 / 1e9;
        let (x, y): (Vec<f64>, Vec<f64>) = data
            .hardware
            .steps(row)
            .map(|(t, n)| (second(t), n as f64))
            .filter(|(t, n)| *n > 0.0 && (from..=to).contains(t))
            .unzip();
        if x.is_empty() {
            continue;
        }
        let title = format!("{}, as the device counted", row.counter);
        plot(
            out,
            &Plot { title: &title, unit: "", draw: Draw::Bars, from, to, log: false, x, series: vec![("increase", y)] },
        );
    }
}

/// A number without a long tail.
fn short(v: f64) -> String {
    let text = format!("{v:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn seconds_shown(s: f64) -> String {
    duration((s * 1e9) as i64)
}

fn plot(out: &mut String, p: &Plot<'_>) {
    let top = p.series.iter().flat_map(|(_, y)| y).fold(0.0f64, |a, b| a.max(*b)).max(1.0);
    let bottom = p.series.iter().flat_map(|(_, y)| y).fold(0.0f64, |a, b| a.min(*b));
    let place = |x: f64| {
        let part = if p.log { (x / p.from).ln() / (p.to / p.from).ln() } else { (x - p.from) / (p.to - p.from) };
        (part * 1000.0).clamp(0.0, 1000.0)
    };
    let height = |y: f64| 98.0 - (y - bottom) / (top - bottom) * 96.0;
    let x: Vec<f64> = p.x.iter().map(|x| place(*x)).collect();
    let _ = write!(out, "<figure class=\"plot\">\n<figcaption>{}", text(p.title));
    for (i, (name, _)) in p.series.iter().enumerate() {
        let _ = write!(out, " <span class=\"legend s{i}\">{name}</span>");
    }
    out.push_str(
        "<span class=\"tools\"><button type=\"button\" data-zoom=\"in\" title=\"zoom in; or drag over the \
            plot\">+</button><button \
        type=\"button\" data-zoom=\"out\" title=\"zoom out\">−</button><button type=\"button\" data-zoom=\"all\" \
        title=\"everything\">all</button></span></figcaption>\n",
    );
    let label = |v: f64| match p.unit {
        "B/s" => format!("{}/s", size(v as u64)),
        "%" => format!("{v:.1} %"),
        _ => grouped_signed(v.round() as i64),
    };
    let _ = write!(
        out,
        "<div class=\"chart\"><div class=\"y\"><span>{}</span><span>{}</span><span>{}</span></div>\n<div \
            class=\"area\"><svg viewBox=\"0 0 \
        1000 100\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{}: {}\">\n<line x1=\"0\" x2=\"1000\" \
        y1=\"50\" y2=\"50\"/>\n",
        label(top),
        if top - bottom < 2.0 && p.unit.is_empty() { String::new() } else { label((top + bottom) / 2.0) },
        label(bottom),
        text(p.title),
        text(&and(&p.series.iter().map(|(n, _)| (*n).to_owned()).collect::<Vec<_>>()))
    );
    for (i, (_, y)) in p.series.iter().enumerate() {
        let mut path = String::new();
        for (x, y) in x.iter().zip(y) {
            let (x, h) = (short(*x), short(height(*y)));
            match p.draw {
                Draw::Bars if *y > 0.0 => drop(write!(path, "M{x} {}V{h}", short(height(0.0)))),
                Draw::Bars => {}
                Draw::Steps if path.is_empty() => drop(write!(path, "M{x} {h}")),
                Draw::Steps => drop(write!(path, "H{x}V{h}")),
            }
        }
        if p.draw == Draw::Steps && !path.is_empty() {
            path.push_str("H1000");
        }
        let class = if p.draw == Draw::Bars { " bar" } else { "" };
        let _ = writeln!(out, "<path class=\"s{i}{class}\" d=\"{path}\"/>");
    }
    out.push_str("</svg></div>\n<div class=\"x\">");
    for i in 0..5 {
        let part = f64::from(i) / 4.0;
        let at = if p.log { p.from * (p.to / p.from).powf(part) } else { p.from + (p.to - p.from) * part };
        let _ = write!(out, "<span>{}</span>", text(&seconds_shown(at)));
    }
    out.push_str(
        "</div><output class=\"read\"></output></div>\n<details class=\"values\"><summary>Values as a \
            table</summary></details>\n",
    );
    let list = |values: &[f64]| values.iter().map(|v| short(*v)).collect::<Vec<_>>().join(",");
    let series: Vec<String> = p.series.iter().map(|(_, y)| format!("[{}]", list(y))).collect();
    let names: Vec<String> = p.series.iter().map(|(n, _)| format!("\"{n}\"")).collect();
    let _ = write!(
        out,
        "<script \
        type=\"application/json\">{{\"from\":{},\"to\":{},\"log\":{},\"unit\":\"{}\",\"series\":[{}],\"x\":[{}],\"y\":[{}]}}</script>\n</figure>\n",
        p.from,
        p.to,
        p.log,
        p.unit,
        names.join(","),
        list(&x),
        series.join(",")
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_from_the_network_becomes_markup() {
        assert_eq!(
            text("<img src=x onerror='a(\"b\")'>&\u{1b}[2J\u{202e}"),
            "&lt;img src=x onerror=&#39;a(&quot;b&quot;)&#39;&gt;&amp;\\x1b[2J\\u{202e}"
        );
        let mut data = ReportData::default();
        data.inputs.push(crate::analysis::InputSummary {
            path: "</title><script>alert(1)</script>.pcap".to_owned(),
            ..Default::default()
        });
        let page = render(&data);
        assert!(!page.contains("alert(1)</script>"), "{page}");
        assert_eq!(page.matches("<script").count(), 1);
    }

    #[test]
    fn a_timeline_of_nothing_and_of_one_moment_can_be_drawn() {
        use rdmascope_analyzer::op::At;
        use rdmascope_analyzer::series::Trouble;
        let mut story = ReportData::default();
        let timeline =
            |story: &ReportData| Timeline::new(story.report.connections.iter(), &story.report.capture, STRETCHES);
        assert_eq!(timeline(&story), None);
        assert!(!render(&story).contains("id=\"network\""));
        let at = At { frame: 1, time: 5_000 };
        (story.report.capture.first, story.report.capture.last) = (Some(at), Some(at));
        let drawn = |story: &ReportData| {
            let mut out = String::new();
            over_time(&mut out, story, &timeline(story).expect("there is a frame"));
            out
        };
        assert!(drawn(&story).contains("No marks, CNPs, pauses or retransmissions."));
        let once = Connection {
            throughput: vec![(5_000, 100, 0)],
            trouble: vec![(5_000, Trouble([1, 0, 2, 0]))],
            ..Connection::default()
        };
        story.report.connections.push(once);
        let out = drawn(&story);
        assert!(
            ["Rate of all connections", "Marks", "Retransmissions"].iter().all(|title| out.contains(title)),
            "{out}"
        );
        assert!(!out.contains("NaN") && !out.contains("inf") && !out.contains("null"), "{out}");
    }

    #[test]
    fn rows_beyond_the_first_are_data_that_ends_no_script() {
        let mut table = Sortable::new(&[("file", true), ("n", false)]);
        for n in 0..ROWS_AT_ONCE as u64 + 2 {
            table.row_of(format!("row-{n}"), vec![plain("</script><b>&"), number(n)]);
        }
        let mut out = String::new();
        table.write(&mut out, "Things");
        assert_eq!(out.matches("<tr id=").count(), ROWS_AT_ONCE);
        let json = out.split("class=\"more\">").nth(1).and_then(|s| s.split("</script>").next()).unwrap();
        let rows: serde_json::Value = serde_json::from_str(json).unwrap();
        let last = &rows.as_array().unwrap()[1];
        assert_eq!((&last[0], &last[1][0][2]), (&"row-101".into(), &"&lt;/script&gt;&lt;b&gt;&amp;".into()));
        assert!(!json.contains('<') && out.contains("scope=\"col\"") && out.contains("<caption>Things</caption>"));
    }

    #[test]
    fn plots_stay_inside() {
        let mut out = String::new();
        let p = Plot {
            title: "t",
            unit: "",
            draw: Draw::Steps,
            from: 0.0,
            to: 2.0,
            log: false,
            x: vec![-1.0, 1.0, 5.0],
            series: vec![("s", vec![0.0, 10.0, 5.0])],
        };
        plot(&mut out, &p);
        assert!(out.contains("d=\"M0 98H500V2H1000V50H1000\""), "{out}");
        assert!(out.contains("\"x\":[0,500,1000],\"y\":[[0,10,5]]"), "{out}");
    }

    #[test]
    fn bars_have_a_foot_and_zeros_have_none() {
        let mut out = String::new();
        let p = Plot {
            title: "t",
            unit: "",
            draw: Draw::Bars,
            from: 0.001,
            to: 0.1,
            log: true,
            x: vec![0.001, 0.01],
            series: vec![("s", vec![0.0, 2.0])],
        };
        plot(&mut out, &p);
        assert!(out.contains("d=\"M500 98V2\""), "{out}");
    }

    #[test]
    fn wait_bars_add_up() {
        let cell = bar(&Time([0, 0, 0, 25, 0, 0, 0, 0, 75, 0]));
        assert_eq!(cell.value, Some(100));
        assert!(cell.html.contains("title=\"server 75 %, wire 25 %\""), "{}", cell.html);
        assert!(
            cell.html.contains("width:75.0%") && cell.html.contains("width:25.0%") && !cell.html.contains("w0"),
            "{}",
            cell.html
        );
        assert_eq!(bar(&Time::default()).html, "");
    }
}
