//! The report for people: the problems first, then each connection.

use super::words::{
    Align, Column, Paint, Table, Tone, columns, count, dates, duration, flow, frames, grouped, grouped_signed, limit,
    mirror, size, sparkline, times, when, wrap,
};
use super::{
    Detail, Entry, FEW, ReportData, came_to_nothing, ending, ends, handles, ladder, last_words, numbers, owners,
    requests, sessions, shown, side, stack,
};
use rdmascope_analyzer::devices::Spread;
use rdmascope_analyzer::episodes::time::Behind;
use rdmascope_analyzer::exchange::Exchange;
use rdmascope_analyzer::finding::{Certainty, Severity};
use rdmascope_analyzer::marking::Direction;
use rdmascope_analyzer::outcome::{Ending, Purpose, Stage};
use rdmascope_analyzer::path::{Path, State};
use rdmascope_analyzer::pauses::Paused;
use rdmascope_analyzer::report::{Capture, Connection, Protocol, Signed, Transport};
use rdmascope_analyzer::session::Session;
use rdmascope_dissector::frame::Addr;
use rdmascope_dissector::text::Elapsed;

/// Devices and classes shown of those that paused others.
const PAUSES_SHOWN: usize = 8;
/// Maximum number of findings shown in full; there are seldom that many notes.
const ENTRIES_MAX: usize = 24;
/// Connections shown in full.
const BLOCKS_MAX: usize = 16;
/// Connections shown as rows.
const ROWS_MAX: usize = 40;
/// Slow requests shown.
const SLOWEST_MAX: usize = 5;
/// Sessions on several connections shown.
const SESSIONS_SHOWN: usize = 8;
/// Paths to RDMA shown.
const LADDERS_MAX: usize = 4;
/// Counters of RDMA devices named.
const COUNTERS_SHOWN: usize = 8;
/// Characters of a credit curve.
const CURVE: usize = 20;

/// The whole report, in lines of at most `width` if possible.
pub fn render(data: &ReportData, width: usize, paint: Paint) -> String {
    let mut page = Page { out: String::new(), width: width.max(40), paint };
    let entries = data.entries();
    page.head(data);
    page.answer(data);
    page.headline(data, &entries);
    page.findings(data, &entries);
    page.ladders(data);
    page.sessions(data);
    page.connections(data);
    page.slowest(data);
    page.rest(data);
    page.out
}

struct Page {
    out: String,
    width: usize,
    paint: Paint,
}

impl Page {
    fn line(&mut self, text: &str) {
        self.out.push_str(text.trim_end());
        self.out.push('\n');
    }

    fn gap(&mut self) {
        if !self.out.ends_with("\n\n") {
            self.out.push('\n');
        }
    }

    /// Text on the left, wrapped after `first` and `rest`, and a tail on the right of its first line that has room for
    /// it.
    fn with_tail(&mut self, first: &str, rest: &str, tone: Tone, text: &str, tail: &str) {
        let indent = columns(first);
        let tail_width = if tail.is_empty() { 0 } else { columns(tail) + 2 };
        let is_short = indent + columns(text) + tail_width <= self.width;
        let room = if is_short || tail_width * 2 > self.width {
            self.width - indent
        } else {
            self.width - indent - tail_width
        };
        let lines = wrap(text, room);
        let last = lines.len().saturating_sub(1);
        let mut tail = Some(tail).filter(|t| !t.is_empty());
        for (i, line) in lines.iter().enumerate() {
            let lead = if i == 0 { first } else { rest };
            let mut out = format!("{lead}{}", self.paint.paint(tone, line));
            let used = indent + columns(line);
            if let Some(t) = tail
                && used + columns(t) + 2 <= self.width
            {
                out.push_str(&" ".repeat(self.width - used - columns(t)));
                out.push_str(&self.paint.paint(Tone::Faint, t));
                tail = None;
            }
            self.line(&out);
            if i == last
                && let Some(t) = tail
            {
                let before = self.width.saturating_sub(columns(t));
                let out = format!("{}{}", " ".repeat(before), self.paint.paint(Tone::Faint, t));
                self.line(&out);
            }
        }
    }

    // ── Head ────────────────────────────────────────────────────────────────────────────────────────────────────────

    fn head(&mut self, data: &ReportData) {
        let capture = &data.report.capture;
        let names: Vec<String> = data.inputs.iter().map(|i| shown(file_name(&i.path))).collect();
        let mut pieces = vec![match names.len() {
            0..=3 => names.join(", "),
            n => format!("{} and {} more files", names[0], n - 1),
        }];
        pieces.push([count(capture.frames, "frame"), size(capture.bytes), duration(data.length())].join(", "));
        pieces.push(data.kinds().join(", "));
        pieces.push(super::decoded(data).unwrap_or_default());
        for line in flow(&pieces, "   ", self.width) {
            let line = match line.strip_prefix(pieces[0].as_str()) {
                Some(rest) => format!("{}{rest}", self.paint.paint(Tone::Strong, &pieces[0])),
                None => line,
            };
            self.line(&line);
        }
        if capture.frames > 0 {
            let text = dates(data.start(), data.start().saturating_add(data.length()));
            let text = format!("Captured {text}");
            self.with_tail("", "  ", Tone::Faint, &text, "");
        }
        for input in &data.inputs {
            if let Some(error) = &input.error {
                self.with_tail("Read only in part: ", "  ", Tone::Warn, &shown(error), "");
            }
        }
        for text in super::filtered(data).into_iter().chain(super::ignored(data)) {
            self.with_tail("", "  ", Tone::Note, &text, "");
        }
        self.gap();
    }

    fn headline(&mut self, data: &ReportData, entries: &[Entry<'_>]) {
        let headline = super::headline(data, entries);
        self.marked(headline.mark, headline.tone, &headline.text);
        if let Some(text) = &headline.unjudged {
            self.with_tail("   ", "   ", Tone::Plain, text, "");
        }
        if let Some(text) = data.let_go() {
            self.with_tail("   ", "   ", Tone::Warn, &text, "");
        }
        self.gap();
    }

    /// Writes the answer: the time that requests waited, and for what.
    fn answer(&mut self, data: &ReportData) {
        if let Some(text) = super::answer::text(&data.report) {
            self.with_tail(" ", " ", Tone::Strong, &text, "");
            self.gap();
        }
    }

    fn marked(&mut self, mark: &str, tone: Tone, text: &str) {
        for (i, text) in wrap(text, self.width.saturating_sub(3)).into_iter().enumerate() {
            let lead = if i == 0 { self.paint.paint(tone, mark) } else { " ".to_owned() };
            self.line(&format!(" {lead} {}", self.paint.paint(Tone::Strong, &text)));
        }
    }

    // ── Findings ────────────────────────────────────────────────────────────────────────────────────────────────────

    fn findings(&mut self, data: &ReportData, entries: &[Entry<'_>]) {
        let shown = &entries[..entries.len().min(ENTRIES_MAX)];
        for entry in shown.iter().filter(|e| !e.is_free()) {
            if entry.severity == Severity::Note { self.note(data, entry) } else { self.entry(data, entry) }
        }
        let free: Vec<&Entry<'_>> = shown.iter().filter(|e| e.is_free()).collect();
        match free.len() {
            0 => {}
            1 => self.with_tail("   ", "   ", Tone::Faint, "This finding delayed no request:", ""),
            _ => self.with_tail("   ", "   ", Tone::Faint, "These findings delayed no request:", ""),
        }
        for entry in free {
            self.note(data, entry);
        }
        if entries.len() > ENTRIES_MAX {
            let text = format!(
                "… and {} more; --format json has all.",
                count((entries.len() - ENTRIES_MAX) as u64, "finding")
            );
            self.with_tail("   ", "   ", Tone::Faint, &text, "");
        }
        self.gap();
    }

    fn entry(&mut self, data: &ReportData, entry: &Entry<'_>) {
        let row = entry.rule.row();
        let (mark, tone) = if entry.severity == Severity::Error { ("✗", Tone::Bad) } else { ("!", Tone::Warn) };
        let title = entry.title(data.start());
        let mark = format!(" {} ", self.paint.paint(tone, mark));
        let tail = format!("{}, {}", frames(&entry.frames, entry.count, 3), when(entry.first.time, data.start()));
        self.marked_with_tail(&mark, &title, &tail);
        let sentence = shown(&super::sentence(entry, data));
        self.with_tail("   ", "   ", Tone::Plain, &sentence, row.spec);
        if let Some(text) = consequence(entry) {
            self.with_tail("   ", "   ", Tone::Plain, &text, "");
        }
        let mut more = extent(entry);
        for text in [
            super::answer::cost(entry, &data.report),
            super::certainty_text(entry.certainty).to_owned(),
            super::effects(entry),
        ] {
            if !text.is_empty() {
                more = format!("{more} {text}");
            }
        }
        if !more.trim().is_empty() {
            self.with_tail("   ", "   ", Tone::Plain, more.trim(), "");
        }
        let causes = if entry.severity == Severity::Error { 2 } else { 1 };
        for (i, cause) in entry.causes().iter().take(causes).enumerate() {
            let lead = if i == 0 { "   Cause: " } else { "      or: " };
            let lead = self.paint.paint(Tone::Strong, lead);
            self.lead(&lead, 10, &super::words::sentence(cause), "");
        }
        let lead = self.paint.paint(Tone::Strong, "   Do:    ");
        self.lead(&lead, 10, entry.cure(), row.id);
        if let Some(manual) = &data.manual {
            // not wrapped: a terminal recognizes a complete address as a link
            let lead = self.paint.paint(Tone::Strong, "   More:  ");
            self.out.push_str(&format!("{lead}{}\n", manual.page(entry.rule)));
        }
        self.gap();
    }

    /// As [`Page::with_tail`], after a lead of `indent` columns that may be coloured.
    fn lead(&mut self, lead: &str, indent: usize, text: &str, tail: &str) {
        let start = self.out.len();
        self.with_tail(&" ".repeat(indent), &" ".repeat(indent), Tone::Plain, text, tail);
        self.out.replace_range(start..start + indent, lead);
    }

    fn marked_with_tail(&mut self, mark: &str, text: &str, tail: &str) {
        let start = self.out.len();
        self.with_tail("   ", "   ", Tone::Strong, text, tail);
        self.out.replace_range(start..start + 3, mark);
    }

    fn note(&mut self, data: &ReportData, entry: &Entry<'_>) {
        let guess = if entry.certainty == Certainty::Guess { " A guess." } else { "" };
        let text = format!("{}{guess}", shown(&super::sentence(entry, data)));
        let many = if entry.count > 1 { format!(" ×{}", grouped(entry.count)) } else { String::new() };
        let tail = format!("{}{many}   {}", entry.rule.id(), frames(&entry.frames, entry.count, 1));
        let mark = format!(" {} ", self.paint.paint(Tone::Note, "·"));
        let start = self.out.len();
        self.with_tail("   ", "   ", Tone::Plain, &text, &tail);
        self.out.replace_range(start..start + 3, &mark);
    }

    // ── The path to RDMA ────────────────────────────────────────────────────────────────────────────────────────────

    fn ladders(&mut self, data: &ReportData) {
        let all: Vec<&Path> = ladder::asked_for(data).collect();
        for path in all.iter().take(LADDERS_MAX) {
            let lead = self.paint.paint(Tone::Strong, "Path to RDMA");
            self.line(&format!(" {lead}   {}", ladder::headline(path)));
            let mut silent: Vec<&str> = Vec::new();
            for rung in &path.rungs {
                if rung.text.is_empty() && matches!(rung.state, State::NotSeen | State::NotNeeded) {
                    silent.push(rung.step.name());
                    continue;
                }
                let tone = match rung.state {
                    State::Yes => Tone::Good,
                    State::No => Tone::Bad,
                    State::NotSeen | State::NotNeeded => Tone::Faint,
                };
                let frame = rung.at.map_or_else(String::new, |at| frames(&[at.frame], 1, 1));
                let lead = format!("   {} {:<22}", self.paint.paint(tone, ladder::mark(rung.state)), rung.step.name());
                let start = self.out.len();
                let blank = " ".repeat(27);
                self.with_tail(&blank, &blank, Tone::Plain, &ladder::detail(rung), &frame);
                self.out.replace_range(start..start + blank.len(), &lead);
            }
            if !silent.is_empty() {
                let text = format!("not seen or not needed: {}", silent.join(", "));
                self.with_tail("   ? ", "     ", Tone::Faint, &text, "");
            }
            self.gap();
        }
        if all.len() > LADDERS_MAX {
            self.line(&format!(" … and {}", count((all.len() - LADDERS_MAX) as u64, "more path")));
            self.gap();
        }
    }

    // ── Sessions ────────────────────────────────────────────────────────────────────────────────────────────────────

    fn sessions(&mut self, data: &ReportData) {
        let all: Vec<&Session> = sessions::asked_for(data).collect();
        for session in all.iter().take(SESSIONS_SHOWN) {
            self.with_tail(" ", "    ", Tone::Strong, &sessions::headline(session), "");
            self.with_tail("    ", "    ", Tone::Plain, &sessions::sums(session), "");
            let ranks = [0, 0, 1, 0, 4, 5, 0, 0, 2, 3, 3, 0];
            let heads: Vec<Column> = sessions::HEADS
                .iter()
                .zip(ranks)
                .enumerate()
                .map(
                    |(i, (head, rank))| {
                        if matches!(i, 1 | 2) { Column::left(head, rank) } else { Column::right(head, rank) }
                    },
                )
                .collect();
            let mut table = Table::new(&heads);
            for channel in &session.channels {
                table.row(sessions::row(session, channel).map(|text| (Tone::Plain, text)));
            }
            for line in table.lines(self.width, 4, self.paint) {
                self.line(&line);
            }
            for remark in &session.remarks {
                self.with_tail("    ", "    ", Tone::Warn, remark, "");
            }
            self.gap();
        }
        if all.len() > SESSIONS_SHOWN {
            self.line(&format!(" … and {}", count((all.len() - SESSIONS_SHOWN) as u64, "more session")));
            self.gap();
        }
    }

    // ── Connections ─────────────────────────────────────────────────────────────────────────────────────────────────

    fn connections(&mut self, data: &ReportData) {
        let (empty, busy): (Vec<_>, Vec<_>) = data.storage().partition(|(c, _)| came_to_nothing(c) || is_idle(c));
        let mut by_weight = busy.clone();
        by_weight.sort_by_key(|(c, _)| std::cmp::Reverse(weight(c)));
        // if all connections are small, one of them is shown in full
        let is_great = |c: &Connection| requests(c) > FEW || c.rdma.reads + c.rdma.writes > 0;
        let mut great: Vec<u32> =
            by_weight.iter().filter(|(c, _)| is_great(c)).take(BLOCKS_MAX).map(|(c, _)| c.id).collect();
        if great.is_empty() {
            great.extend(busy.first().map(|(c, _)| c.id));
        }
        if busy.len() <= 2 && busy.iter().all(|(c, _)| c.protocol != Protocol::Rpc) {
            great = busy.iter().map(|(c, _)| c.id).collect();
        }
        let shown = great;
        for (connection, detail) in busy.iter().filter(|(c, _)| shown.contains(&c.id)) {
            self.block(data, connection, detail);
        }
        let mut rows: Vec<_> = busy.into_iter().filter(|(c, _)| !shown.contains(&c.id)).chain(empty).collect();
        rows.sort_by_key(|(c, _)| c.id);
        if !rows.is_empty() {
            self.table(&rows);
        }
    }

    fn block(&mut self, data: &ReportData, c: &Connection, detail: &Detail) {
        let id = format!(" {:<3}", c.id);
        let facts = [
            ends(c),
            handles(c),
            stack(c),
            format!("handshake {}", c.handshake.key()),
            duration(c.last.time.saturating_sub(c.first.time)),
            ending(c),
        ];
        let mut lines = flow(
            &[
                facts[0].clone(),
                facts[2].clone(),
                facts[1].clone(),
                facts[3].clone(),
                facts[4].clone(),
                facts[5].clone(),
            ],
            "   ",
            self.width - 4,
        );
        if let Some(first) = lines.first_mut() {
            *first = first.replacen(facts[0].as_str(), &self.paint.paint(Tone::Strong, &facts[0]), 1);
        }
        for (i, line) in lines.iter().enumerate() {
            let lead = if i == 0 { self.paint.paint(Tone::Strong, &id) } else { "    ".to_owned() };
            self.line(&format!("{lead}{line}"));
        }
        for (label, pieces) in facts_painted(data, c, detail, self.paint) {
            self.fact(label, &pieces);
        }
        self.gap();
        self.commands(c);
    }

    fn fact(&mut self, label: &str, pieces: &[String]) {
        if pieces.iter().all(String::is_empty) {
            return;
        }
        let visible: Vec<String> = pieces.to_vec();
        let lines = flow_painted(&visible, "   ", self.width.saturating_sub(15));
        for (i, line) in lines.iter().enumerate() {
            let label = if i == 0 { self.paint.paint(Tone::Faint, &format!("{label:<9}")) } else { " ".repeat(9) };
            self.line(&format!("    {label}  {line}"));
        }
    }

    fn commands(&mut self, c: &Connection) {
        if c.commands.is_empty() {
            return;
        }
        let mut table = Table::new(&[
            Column::left("command", 0),
            Column::right("count", 0),
            Column::right("errors", 5),
            Column::right("unanswered", 6),
            Column::right("median", 0),
            Column::right("p99", 4),
            Column::right("max", 0),
            Column::right("bytes", 3),
            Column { heading: "whose time", align: Align::Left, rank: 2 },
        ]);
        let mut rows: Vec<_> = c.commands.iter().collect();
        rows.sort_by_key(|r| std::cmp::Reverse(r.latency.sum()));
        for row in rows {
            let time = |ns: Option<i64>| (Tone::Plain, ns.map_or("–".to_owned(), duration));
            let time_of_many = |ns: Option<i64>| (Tone::Plain, ns.map_or(String::new(), duration));
            let counted = |n: u64, tone| if n > 0 { (tone, grouped(n)) } else { (Tone::Plain, String::new()) };
            table.row([
                (Tone::Plain, row.name.to_owned()),
                (Tone::Plain, grouped(row.count)),
                counted(row.errors, Tone::Warn),
                counted(row.unanswered, Tone::Bad),
                time(row.latency.quantile(500)),
                time_of_many(row.latency.p99()),
                time(row.latency.max()),
                (Tone::Plain, if row.bytes > 0 { grouped(row.bytes) } else { String::new() }),
                (Tone::Plain, owners(&row.time)),
            ]);
        }
        for line in table.lines(self.width, 4, self.paint) {
            self.line(&line);
        }
        self.gap();
    }

    fn table(&mut self, rows: &[(&Connection, &Detail)]) {
        let mut table = Table::new(&[
            Column::right("#", 0),
            Column::left("connection", 0),
            Column::right("port", 2),
            Column::left("carries", 3),
            Column::right("messages", 4),
            Column::left("negotiated", 1),
            Column::left("last request", 1),
            Column::left("ended by", 0),
        ]);
        for (c, detail) in rows.iter().take(ROWS_MAX) {
            let [sent, received] = [c.sides[0].messages, c.sides[1].messages];
            let ended = match c.closed {
                Some((by, how, at)) => {
                    let after = duration(at.time.saturating_sub(c.first.time));
                    format!("{}{how} after {after}", by.map_or(String::new(), |end| format!("{}, ", c.name_of(end))))
                }
                None => ending(c),
            };
            let last = detail.last.as_ref().map_or(String::new(), |last| match (last.reply, last.status) {
                (None, _) => format!("{}, unanswered", last.command),
                (_, Some(code)) if last.failed => format!("{} {}", last.command, super::status(last.family, code)),
                _ => format!("{}, frame {}", last.command, grouped(last.request.frame)),
            });
            let last = match c.smb.sealed.iter().map(|(n, _)| n).sum::<u64>() {
                0 => last,
                n => {
                    format!("{}, then {} encrypted", detail.last.as_ref().map_or("nothing", |l| l.command), grouped(n))
                }
            };
            table.row([
                (Tone::Strong, c.id.to_string()),
                (Tone::Plain, format!("{}  {}", ends(c), handles(c))),
                // the port, if the connection has a queue pair too
                (
                    Tone::Plain,
                    if c.peers[1].port > 0 && c.peers[1].qp.is_some() {
                        c.peers[1].port.to_string()
                    } else {
                        String::new()
                    },
                ),
                (Tone::Plain, c.protocol.name().to_owned()),
                (Tone::Plain, format!("▸ {} ◂ {}", grouped(sent), grouped(received))),
                (Tone::Plain, negotiated(c)),
                (Tone::Plain, last),
                (Tone::Plain, ended),
            ]);
        }
        for line in table.lines(self.width, 1, self.paint) {
            self.line(&line);
        }
        if rows.len() > ROWS_MAX {
            self.line(&format!(" … and {}", count((rows.len() - ROWS_MAX) as u64, "more connection")));
        }
        self.gap();
    }

    // ── Consequences ────────────────────────────────────────────────────────────────────────────────────────────────

    fn slowest(&mut self, data: &ReportData) {
        let slow: Vec<_> = data.report.slowest.iter().take(SLOWEST_MAX).collect();
        if slow.is_empty() {
            return;
        }
        let mut table = Table::new(&[
            Column::left("slowest", 0),
            Column::left("file", 3),
            Column::right("at", 5),
            Column::right("bytes", 4),
            Column::right("took", 0),
            Column { heading: "whose time", align: Align::Left, rank: 2 },
            Column::left("frames", 0),
            Column::right("connection", 6),
            Column::left("", 1),
        ]);
        let several = data.storage().count() > 1;
        for e in slow {
            let last = e.reply_end.map_or(String::new(), |at| format!("–{}", grouped(at.frame)));
            let mut notes = Vec::new();
            if e.failed {
                notes.extend(e.status.map(|s| super::status(e.family, s)));
            }
            if e.compounded > 0 {
                notes.push(format!("and {} more in its compound", e.compounded));
            }
            if e.retransmissions > 0 {
                notes.push(format!("retransmitted {}", grouped(e.retransmissions.into())));
            }
            if e.pending {
                notes.push("pending".to_owned());
            }
            notes.extend(behind(data, e));
            table.row([
                (Tone::Plain, e.command.to_owned()),
                (Tone::Plain, e.shown_file()),
                (Tone::Plain, e.offset.map_or(String::new(), grouped)),
                (Tone::Plain, if e.bytes_moved > 0 { grouped(e.bytes_moved) } else { String::new() }),
                (Tone::Strong, e.latency().map_or(String::new(), duration)),
                (Tone::Plain, owners(&e.time)),
                (Tone::Plain, format!("{}{last}", grouped(e.request.frame))),
                (Tone::Plain, if several { e.connection.to_string() } else { String::new() }),
                (Tone::Warn, notes.join(", ")),
            ]);
        }
        for line in table.lines(self.width, 4, self.paint) {
            self.line(&line);
        }
        self.gap();
    }

    fn rest(&mut self, data: &ReportData) {
        for text in remarks(data) {
            self.with_tail("    ", "    ", Tone::Plain, &text, "");
        }
        while self.out.ends_with("\n\n") {
            self.out.pop();
        }
    }
}

/// Further remarks: other traffic, and frames that were lost, cut or left out.
pub(super) fn remarks(data: &ReportData) -> Vec<String> {
    let capture = &data.report.capture;
    let mut lines = Vec::new();
    match data.others() as u64 {
        0 => {}
        1 => lines.push("1 more TCP connection carried no storage traffic.".to_owned()),
        n => lines.push(format!("{} more TCP connections carried no storage traffic.", grouped(n))),
    }
    if capture.cut > 0 {
        lines.push(format!(
            "{} cut short by the capture; the rest of their contents is unknown.",
            count(capture.cut, "frame")
        ));
    }
    if capture.lost_by_capture > 0 {
        lines.push(format!(
            "The capture missed {}: sequence numbers show the gaps.",
            count(capture.lost_by_capture, "packet")
        ));
    }
    if data.lost_frames > 0 {
        lines.push(format!("The capturing machine reports {} dropped.", count(data.lost_frames, "frame")));
    }
    if capture.tunnelled > 0 {
        let through: Vec<String> =
            capture.mirrors.list().iter().take(8).map(|m| format!("{} ({})", mirror(m), grouped(m.frames))).collect();
        let more = match capture.mirrors.list().len().saturating_sub(8) {
            0 => String::new(),
            n => format!(" and {n} more"),
        };
        lines.push(format!(
            "{} arrived through a mirror or tunnel: {}{more}.",
            count(capture.tunnelled, "frame"),
            through.join(", ")
        ));
    }
    let truncated: u64 = capture.mirrors.list().iter().map(|m| m.truncated).sum();
    if truncated > 0 {
        lines.push(format!(
            "{} of them were truncated by the mirror itself: a longer snap length would not help.",
            grouped(truncated)
        ));
    }
    let grown = data.hardware.grown();
    if !grown.is_empty() {
        let parts: Vec<String> = grown
            .iter()
            .take(COUNTERS_SHOWN)
            .map(|row| format!("{} +{}", row.counter, grouped(row.increase())))
            .collect();
        let more = match grown.len().saturating_sub(COUNTERS_SHOWN) {
            0 => String::new(),
            n => format!(" and {n} more"),
        };
        lines.push(format!("RDMA device counters that grew during the capture: {}{more}.", parts.join(", ")));
    }
    if capture.pauses > 0 {
        lines.push(format!("{} (priority flow control).", count(capture.pauses, "pause frame")));
        lines.extend(paused(capture));
    }
    if data.report.connections_dropped > 0 {
        lines.push(format!("{} not listed: the report is full.", count(data.report.connections_dropped, "connection")));
    }
    if data.report.folded.connections() > 0 {
        lines.push(format!(
            "{} ended earlier and are not listed one by one.",
            count(data.report.folded.connections(), "connection")
        ));
    }
    for (what, n) in
        capture.dropped.iter().filter(|(what, n)| !matches!(*what, "connections" | "unfinished messages") && *n > 0)
    {
        lines.push(format!("{} {what} were dropped to stay within limits.", grouped(*n)));
    }
    if data.details_dropped > 0 {
        lines.push(format!("{} left out: the lists were full.", count(data.details_dropped, "row")));
    }
    let sealed = super::unread(&data.report);
    if sealed > 0 {
        let text = "could not be read. --keys FILE decrypts them; FILE has the lines of smbinfo keys, or a user= and a \
            password=.";
        lines.push(format!("{} {text}", count(sealed, "encrypted message")));
    }
    lines
}

fn file_name(path: &str) -> &str {
    if path == "-" {
        return "standard input";
    }
    path.rsplit(['/', '\\']).next().filter(|n| !n.is_empty()).unwrap_or(path)
}

/// Consequence of an entry for connections that failed because of it.
pub(super) fn consequence(entry: &Entry<'_>) -> Option<String> {
    let fatal = entry.fatal.as_ref()?;
    let what = match fatal.outcome.purpose {
        Purpose::SmbDirect | Purpose::SmbTcp => "SMB",
        Purpose::NfsRdma => "NFS",
        Purpose::RpcTcp | Purpose::Rdma => "storage",
    };
    if fatal.outcome.reached >= Stage::Session
        || matches!(fatal.outcome.ending, Ending::HungUp { .. } | Ending::NoSession | Ending::NoMount)
    {
        return None;
    }
    Some(if fatal.ended == fatal.of {
        format!("No {what} request was ever answered: this is why the mount failed.")
    } else {
        format!("On {} of these no {what} request was ever answered.", count(fatal.ended, "connection"))
    })
}

/// Number of occurrences and connections; empty for a single occurrence.
fn extent(entry: &Entry<'_>) -> String {
    if entry.fatal.is_some() || entry.count < 2 {
        return String::new();
    }
    match entry.connections.len() {
        0 | 1 => format!("Seen {}.", times(entry.count)),
        _ => format!("Seen {}, on {}.", times(entry.count), numbers(&entry.connections)),
    }
}

/// The request that a request waited for longest. What else held it up is among its times.
fn behind(data: &ReportData, e: &Exchange) -> Option<String> {
    let Behind::Exchange(id) = e.behind? else { return None };
    let other = data.report.slowest.iter().find(|other| other.id == id);
    Some(other.map_or_else(
        || format!("behind request {}", grouped(id)),
        |other| format!("behind the {} of frame {}", other.command, grouped(other.request.frame)),
    ))
}

/// Sources of pauses, with class and duration; the longest first.
fn paused(capture: &Capture) -> Vec<String> {
    let end = capture.last.map_or(0, |at| at.time);
    let length = end.saturating_sub(capture.first.map_or(end, |at| at.time)).max(1);
    let mut rows = capture.paused.rows(end);
    rows.sort_by_key(|row| (std::cmp::Reverse(row.time), row.first));
    let more = rows.len().saturating_sub(PAUSES_SHOWN);
    let line = |row: &Paused| {
        let what = row.priority.map_or_else(|| "the whole link".to_owned(), |p| format!("class {p}"));
        let share = row.time as f64 * 100.0 / length as f64;
        let (mac, times) = (Addr::Mac(row.source), count(row.frames, "frame"));
        let (time, longest, note) = (Elapsed(row.time), Elapsed(row.longest), row.note());
        format!("  {mac} paused {what} for {time} ({share:.1} %) with {times}, {longest} at the longest{note}.")
    };
    let mut lines: Vec<String> = rows.iter().take(PAUSES_SHOWN).map(line).collect();
    if more > 0 {
        lines.push(format!("  {more} more devices and classes paused others."));
    }
    lines
}

/// Markings of packets; empty if no packet is marked.
fn network(c: &Connection) -> Vec<String> {
    let network = &c.network;
    let is_said = |d: &Direction| {
        let marked = d.dscp.rows().iter().chain(d.service_levels.rows()).any(|(v, _)| *v > 0);
        marked || !d.priority.rows().is_empty() || d.ecn[3] > 0 || d.cnps.count > 0
    };
    if !network.directions.iter().any(is_said) {
        return Vec::new();
    }
    let list = |values: &[(u16, u64)]| values.iter().map(|(v, _)| v.to_string()).collect::<Vec<_>>().join(", ");
    let one = |end: usize| {
        let d = &network.directions[end];
        let mut text = c.name_of(end).to_string();
        match d.service_levels.rows() {
            [] => text.push_str(&format!(" DSCP {}", list(d.dscp.rows()))),
            levels => text.push_str(&format!(" service level {}, virtual lane {}", list(levels), list(d.lanes.rows()))),
        }
        if !d.priority.rows().is_empty() {
            text.push_str(&format!(", priority {}", list(d.priority.rows())));
        }
        if d.service_levels.rows().is_empty() {
            text.push_str(if d.ecn[1] + d.ecn[2] + d.ecn[3] == 0 { ", not ECN-capable" } else { ", ECN-capable" });
        }
        if d.ecn[3] > 0 {
            text.push_str(&format!(", {} marked", grouped(d.ecn[3])));
        }
        if d.cnps.count > 0 {
            text.push_str(&format!(", {} with DSCP {}", count(d.cnps.count, "CNP"), list(d.cnps.dscp.rows())));
        }
        if let Some(reaction) = d.pace.reaction() {
            let rate = |bytes: u64| format!("{}/s", size(bytes));
            text.push_str(&format!(", {} before CNPs, {} during them", rate(reaction.before), rate(reaction.after)));
        }
        text
    };
    let mut pieces = vec![one(0), one(1)];
    pieces.extend(network.path_mtu().map(|mtu| format!("path MTU {}", grouped(mtu.into()))));
    pieces
}

/// True if the connection has no traffic to report.
fn is_idle(c: &Connection) -> bool {
    c.commands.is_empty()
        && c.sides.iter().all(|s| s.messages <= 2)
        && c.rdma.reads + c.rdma.writes == 0
        && !c.smb.encrypted
}

fn weight(c: &Connection) -> (u64, u64) {
    (requests(c) + c.sides.iter().map(|s| s.messages).sum::<u64>(), c.throughput.iter().map(|(_, a, b)| a + b).sum())
}

/// Facts about a connection, by subject.
pub(super) fn facts(data: &ReportData, c: &Connection, detail: &Detail) -> Vec<(&'static str, Vec<String>)> {
    facts_painted(data, c, detail, Paint::new(false))
}

fn facts_painted(data: &ReportData, c: &Connection, detail: &Detail, paint: Paint) -> Vec<(&'static str, Vec<String>)> {
    let used_rdma = c.rdma.keys_advertised > 0 || c.rdma.reads + c.rdma.writes > 0;
    let all = [
        ("agreed", agreed(c)),
        ("messages", messages(c)),
        ("credits", credits(c, paint)),
        ("rdma", if used_rdma { rdma(c, paint) } else { Vec::new() }),
        ("transport", transport(c, paint)),
        ("adapters", adapters(c)),
        ("network", network(c)),
        ("mirror", data.report.capture.mirrors.of(c.mirrors).map(mirror).collect()),
        ("smb", smb(data, c)),
        ("at last", last_words(c, detail).into_iter().collect()),
    ];
    all.into_iter().filter(|(_, pieces)| !pieces.is_empty()).collect()
}

fn credits(c: &Connection, paint: Paint) -> Vec<String> {
    let mut pieces = Vec::new();
    for end in 0..2 {
        let held = &c.sides[end];
        let data: Vec<i64> =
            c.credit_history.iter().map(|(_, client, server)| if end == 0 { *client } else { *server }).collect();
        // the history has only some of the values
        let most = held.held_max.into_iter().chain(data.iter().copied().max()).chain(held.held_last).max();
        let Some(least) = held.held_min.or_else(|| data.iter().copied().min()) else { continue };
        let most = most.unwrap_or(least).max(least);
        let range = if least == most {
            grouped_signed(least)
        } else {
            format!("{}…{}", grouped_signed(least), grouped_signed(most))
        };
        let curve = if c.protocol == Protocol::SmbDirect { sparkline(&data, CURVE, most) } else { String::new() };
        let tone = if least <= 0 { Tone::Warn } else { Tone::Good };
        pieces.push(format!("{} held {range}  {}", side(end), paint.paint(tone, &curve)).trim_end().to_owned());
    }
    if pieces.is_empty() {
        return pieces;
    }
    let stalls: Vec<String> = (0..2)
        .filter(|end| c.sides[*end].stalls > 0)
        .map(|end| {
            let s = &c.sides[end];
            format!(
                "{} {} ({}, longest {})",
                side(end),
                grouped(s.stalls),
                duration(s.stalled_time),
                duration(s.stall_longest)
            )
        })
        .collect();
    pieces.push(if stalls.is_empty() {
        "stalls 0".to_owned()
    } else {
        paint.paint(Tone::Warn, &format!("stalls: {}", stalls.join(", ")))
    });
    let overruns: u64 = c.sides.iter().map(|s| s.overruns).sum();
    if overruns > 0 {
        pieces.push(paint.paint(Tone::Bad, &format!("sent without credit {}", grouped(overruns))));
    }
    pieces
}

fn agreed(c: &Connection) -> Vec<String> {
    let n = &c.negotiated;
    let mut pieces = Vec::new();
    for end in 0..2 {
        let parts: Vec<String> = [
            ("send", n.max_send_size[end]),
            ("receive", n.max_receive_size[end]),
            ("fragmented", n.max_fragmented_size[end]),
        ]
        .into_iter()
        .filter_map(|(what, bytes)| Some(format!("{what} {}", limit(bytes?.into()))))
        .collect();
        if !parts.is_empty() {
            pieces.push(format!("{}: {}", side(end), parts.join(", ")));
        }
    }
    pieces.extend(n.max_read_write_size.map(|bytes| format!("read-write {}", limit(bytes.into()))));
    let [client, server] = [c.sides[0].requested_max, c.sides[1].requested_max];
    if client > 0 || server > 0 {
        pieces.push(match c.protocol {
            Protocol::RpcRdma => format!("credits asked {client}, granted {}", grouped(c.sides[0].granted_total)),
            _ => format!("credits asked {client} ⇄ {server}"),
        });
    }
    pieces
}

fn messages(c: &Connection) -> Vec<String> {
    let [client, server] = &c.sides;
    if client.messages + server.messages == 0 {
        return Vec::new();
    }
    let mut pieces = vec![format!("▸ {}", grouped(client.messages)), format!("◂ {}", grouped(server.messages))];
    if c.protocol == Protocol::SmbDirect {
        let fragments = match client.fragments + server.fragments {
            0 => String::new(),
            n => format!(" ({})", count(n, "fragment")),
        };
        pieces.push(format!("fragmented {}{fragments}", grouped(client.fragmented + server.fragmented)));
        pieces.push(format!("empty {}", grouped(client.empty + server.empty)));
        pieces.push(format!("keepalive {}", grouped(client.keepalives + server.keepalives)));
    }
    pieces
}

fn rdma(c: &Connection, paint: Paint) -> Vec<String> {
    let r = &c.rdma;
    let outside = format!("{} outside", grouped(r.outside_advertised));
    vec![
        format!("{}, {} B", count(r.reads, "read"), grouped(r.read_bytes)),
        format!("{}, {} B", count(r.writes, "write"), grouped(r.write_bytes)),
        format!(
            "{} advertised, {} invalidated remotely, {}",
            count(r.keys_advertised, "key"),
            grouped(r.keys_invalidated_remotely),
            if r.outside_advertised > 0 { paint.paint(Tone::Bad, &outside) } else { outside }
        ),
    ]
}

fn transport(c: &Connection, paint: Paint) -> Vec<String> {
    let h = &c.health;
    let is_ib = c.transport.is_some_and(Transport::is_packets);
    let is_iwarp = c.transport == Some(Transport::Iwarp);
    let mut pieces = Vec::new();
    let mut add = |shown: bool, what: &str, n: u64, tone: Tone| {
        if shown || n > 0 {
            let text = format!("{what} {}", grouped(n));
            pieces.push(if n > 0 { paint.paint(tone, &text) } else { text });
        }
    };
    add(true, "retransmitted", h.retransmissions, Tone::Warn);
    add(true, "gaps", h.sequence_gaps, Tone::Warn);
    add(is_ib, "NAK", h.naks, Tone::Bad);
    add(is_ib, "RNR", h.rnr_naks, Tone::Bad);
    add(false, "duplicates", h.duplicates, Tone::Note);
    add(is_ib, "ICRC bad", h.icrc_bad, Tone::Bad);
    add(is_iwarp, "CRC bad", h.crc_bad, Tone::Bad);
    add(is_ib, "ECN", h.ecn_marked, Tone::Warn);
    add(is_ib, "CNP", h.cnps, Tone::Warn);
    // either way: from the capture point to an end and back
    if let [Some(client), Some(server)] = c.round_trip {
        pieces.push(format!("round trip {}", duration(client.saturating_add(server))));
    }
    pieces
}

/// Reactions of the adapters to errors.
fn adapters(c: &Connection) -> Vec<String> {
    let mut pieces = Vec::new();
    for (end, device) in c.devices.iter().enumerate() {
        let side = c.name_of(end).to_string();
        let mean = |spread: &Spread| spread.mean().map(|mean| (duration(mean), grouped(spread.count)));
        if let Some((took, n)) = mean(&device.nak) {
            pieces.push(format!("{side} NAKs a gap after {took} (×{n})"));
        }
        if let Some((took, n)) = mean(&device.resend) {
            pieces.push(format!("{side} resends {took} after a NAK (×{n})"));
        }
        if let Some((took, n)) = mean(&device.timeout) {
            let fits = device.timeout_exponents().map_or(String::new(), |(a, b)| match a == b {
                true => format!(", 4.096 µs × 2^{a}"),
                false => format!(", 4.096 µs × 2^n, n {a} to {b}"),
            });
            pieces.push(format!("{side} resends without a NAK after {took} (×{n}{fits})"));
        }
        if let Some((took, n)) = mean(&device.rnr) {
            let early =
                if device.rnr_early > 0 { format!(", {} too early", grouped(device.rnr_early)) } else { String::new() };
            pieces.push(format!(
                "{side} resends {took} after an RNR NAK that asked for {} (×{n}{early})",
                duration(device.rnr_asked)
            ));
        }
        let marks = &c.network.directions[1 - end].answers;
        if let Some(took) = marks.mean() {
            pieces.push(format!(
                "{side} answers a congestion mark with a CNP after {} (×{})",
                duration(took),
                grouped(marks.count)
            ));
        }
        if device.is_known() && device.acks > 0 {
            pieces.push(format!("{side} ACKs {:.1} packets at a time", device.acked as f64 / device.acks as f64));
        }
    }
    pieces
}

fn smb(data: &ReportData, c: &Connection) -> Vec<String> {
    let mut pieces = Vec::new();
    let sessions: Vec<String> = c.smb.sessions.iter().take(3).map(|s| format!("{s:#x}")).collect();
    if !sessions.is_empty() {
        let more = if c.smb.sessions.len() > sessions.len() { " …" } else { "" };
        pieces.push(format!(
            "{} {}{more}",
            if sessions.len() == 1 { "session" } else { "sessions" },
            sessions.join(", ")
        ));
    }
    let signed = c.smb.signed();
    if signed != Signed::No {
        pieces.push(signed.name().to_owned());
    }
    if c.smb.encrypted {
        pieces.push("encrypted".to_owned());
    }
    let channels =
        data.report.sessions.iter().filter(|(_, ids)| ids.contains(&c.id) && ids.len() > 1).flat_map(|(_, ids)| ids);
    let mut others: Vec<u32> = channels.copied().filter(|id| *id != c.id).collect();
    others.sort_unstable();
    others.dedup();
    if !others.is_empty() {
        pieces.push(format!("also on {}", numbers(&others)));
    }
    pieces
}

fn negotiated(c: &Connection) -> String {
    if let Some(reason) = &c.rejected {
        return format!("rejected: {}", shown(reason));
    }
    match c.negotiated.status {
        Some(0) if came_to_nothing(c) => {
            let by = c.outcome.as_ref().filter(|o| o.failed()).and_then(|o| o.closed_by);
            by.map_or("agreed, then nothing".to_owned(), |by| format!("refused by the {}", side(by)))
        }
        Some(0) => "agreed".to_owned(),
        Some(code) => super::status(rdmascope_analyzer::exchange::Family::Smb2, code),
        None if c.protocol == Protocol::SmbDirect && c.progress.refused => "response too short".to_owned(),
        None if c.protocol == Protocol::SmbDirect => "no response".to_owned(),
        None => String::new(),
    }
}

/// As [`flow`], with pieces that may be coloured: their escape sequences have no width.
fn flow_painted(pieces: &[String], gap: &str, width: usize) -> Vec<String> {
    let plain: Vec<String> = pieces.iter().map(|p| without_colour(p)).collect();
    let mut lines: Vec<String> = Vec::new();
    let mut used = 0;
    for (piece, bare) in pieces.iter().zip(&plain).filter(|(_, bare)| !bare.is_empty()) {
        if columns(bare) > width {
            lines.extend(flow(std::slice::from_ref(bare), gap, width));
            used = width;
        } else if let Some(line) = lines.last_mut().filter(|_| used + columns(gap) + columns(bare) <= width) {
            line.push_str(gap);
            line.push_str(piece);
            used += columns(gap) + columns(bare);
        } else {
            lines.push(piece.clone());
            used = columns(bare);
        }
    }
    lines
}

/// Removes the escape sequences, so that the visible text is left.
fn without_colour(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c == '\u{1b}' {
            for c in chars.by_ref() {
                if c == 'm' {
                    break;
                }
            }
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_that_could_not_be_used_is_not_said_to_be_missing() {
        let told = |refused| {
            let mut c = Connection { protocol: Protocol::SmbDirect, ..Connection::default() };
            c.progress.refused = refused;
            negotiated(&c)
        };
        assert_eq!((told(true), told(false)), ("response too short".to_owned(), "no response".to_owned()));
    }
}
