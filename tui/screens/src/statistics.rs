//! Statistics: response times by command, sizes, throughput, the wire, and which protocols there were.
//!
//! ```text
//! ── response times ───────────────────────────────────────────────────────────────────────
//!  command      count  errors   median      p99      max       bytes  before  whose time
//!  READ             8       2  0.62 ms   3.10 ms  3.10 ms     137,072      –  server 51 %, RDMA 44 %, wire 5 %
//! ── throughput ────────────── ▁▂▃▇▅▂ … 1.2 MB/s
//! ── wire ──────────────────────────────────────────────────────────────────────────────────
//!  retransmitted 0   NAK 0   RNR 0   gaps 0   ICRC bad 0   ECN 0   CNP 0
//! ── protocols ─────────────────────────────────────────────────────────────────────────────
//!  SMB2                214   18.9 %  ▇▇▇▇
//! ```

use super::draw::{Line, Page};
use super::keys::Action;
use super::model::Model;
use super::screen::{Change, Request, Screen};
use super::time::{bytes, grouped, span, sparkline};
use ratatui::buffer::Buffer;
use ratatui::style::Style;
use rdmascope_analyzer::episodes::time::Owner;
use rdmascope_analyzer::report::Command;
use rdmascope_analyzer::timeline::Timeline;
use rdmascope_dissector::frame::Addr;
use rdmascope_report::report::owners;
use std::cmp::Reverse;

/// State of the view.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    page: Page,
    /// Column by which commands are sorted.
    sort: usize,
    ascending: bool,
}

/// Devices and classes shown of those that paused others.
const PAUSES_SHOWN: usize = 4;

const SORTS: [&str; 5] = ["count", "errors", "median", "longest", "bytes"];

/// The commands of all shown connections, sorted.
fn commands<'a>(state: &State, model: &'a Model) -> Vec<&'a Command> {
    let mut rows: Vec<&Command> = model.sums.commands.rows().iter().collect();
    match state.sort {
        1 => rows.sort_by_key(|r| Reverse(r.errors)),
        2 => rows.sort_by_key(|r| Reverse(r.latency.quantile(500))),
        3 => rows.sort_by_key(|r| Reverse(r.latency.max())),
        4 => rows.sort_by_key(|r| Reverse(r.bytes)),
        _ => rows.sort_by_key(|r| Reverse(r.count)),
    }
    if state.ascending {
        rows.reverse();
    }
    rows
}

fn lines(state: &State, model: &Model) -> Vec<Line> {
    let theme = &model.theme;
    let wide = model.size.0 >= 100;
    let mut out = Vec::new();
    if model.filter.is_on() {
        let of = match model.connection_count() {
            1 => "the connection".to_owned(),
            n => format!("the {} connections", grouped(n as u64)),
        };
        let text = format!(
            "All frames of {of} with a frame that passes the filter: the filter chooses connections here, not frames."
        );
        out.push(Line::Pieces(vec![(text, theme.warn)]));
    }
    out.push(Line::Head("response times".to_owned()));
    let mut head = format!(
        "{:<16}{:>8}{:>8}{:>10}{:>10}{:>10}{:>14}",
        "command", "count", "errors", "median", "p99", "longest", "bytes"
    );
    if wide {
        head.push_str("   before  whose time");
    }
    out.push(Line::Pieces(vec![(head, theme.faint)]));
    let rows = commands(state, model);
    if rows.is_empty() {
        out.push(Line::Pieces(vec![("no request was seen".to_owned(), theme.faint)]));
    }
    let time = |v: Option<i64>| v.map_or_else(|| "–".to_owned(), span);
    for r in rows {
        let bad = r.errors + r.unanswered;
        let mut pieces = vec![
            (format!("{:<16}{:>8}", r.name, grouped(r.count)), theme.text),
            (format!("{:>8}", grouped(bad)), if bad > 0 { theme.error } else { theme.faint }),
            (
                format!(
                    "{:>10}{:>10}{:>10}{:>14}",
                    time(r.latency.quantile(500)),
                    time(r.latency.p99()),
                    time(r.latency.max()),
                    grouped(r.bytes)
                ),
                theme.text,
            ),
        ];
        if wide {
            // for a credit, before the request
            let waited = if r.waited > 0 { span(r.waited) } else { "–".to_owned() };
            pieces.push((format!("{waited:>9}  "), if r.waited > 0 { theme.warn } else { theme.faint }));
            pieces.push((owners(&r.time), theme.client));
        }
        out.push(Line::Pieces(pieces));
    }
    out.push(Line::Head("sizes and throughput".to_owned()));
    for c in model.connections().take(50) {
        let volume: Vec<u64> = c.throughput.iter().map(|(_, a, b)| a + b).collect();
        let all: [u64; 2] = c.throughput.iter().fold([0; 2], |s, (_, a, b)| [s[0] + a, s[1] + b]);
        let lasted = c.last.time.saturating_sub(c.first.time).max(1);
        let rate = (u128::from(all[0] + all[1]) * 1_000_000_000 / lasted as u128) as u64;
        let messages = c.sides[0].messages + c.sides[1].messages;
        out.push(Line::Pieces(vec![
            (format!("{:>3} ", c.id), theme.text),
            (format!("▸ {} ", bytes(all[0])), theme.client),
            (format!("◂ {} ", bytes(all[1])), theme.server),
            (format!("{}/s in {}   ", bytes(rate), span(lasted)), theme.text),
            (sparkline(&volume, if wide { 60 } else { 20 }), theme.server),
        ]));
        let fragmented: u64 = c.sides.iter().map(|s| s.fragmented).sum();
        out.push(Line::Pieces(vec![(
            format!(
                "    {} messages, {} in fragments; {} RDMA Reads with {}, {} RDMA Writes with {}",
                grouped(messages),
                grouped(fragmented),
                grouped(c.rdma.reads),
                bytes(c.rdma.read_bytes),
                grouped(c.rdma.writes),
                bytes(c.rdma.write_bytes)
            ),
            theme.faint,
        )]));
    }
    out.push(Line::Head("the wire".to_owned()));
    let health = &model.sums.health;
    let mut pieces = Vec::new();
    for (name, n) in [
        ("sent again", health.retransmissions),
        ("NAK", health.naks),
        ("RNR NAK", health.rnr_naks),
        ("gaps", health.sequence_gaps),
        ("copies", health.duplicates),
        ("ICRC bad", health.icrc_bad),
        ("CRC bad", health.crc_bad),
        ("ECN", health.ecn_marked),
        ("CNP", health.cnps),
    ] {
        pieces.push((format!("{name} "), theme.faint));
        pieces.push((format!("{}   ", grouped(n)), if n > 0 { theme.warn } else { theme.text }));
        if pieces.len() == 10 && !wide {
            out.push(Line::Pieces(std::mem::take(&mut pieces)));
        }
    }
    out.push(Line::Pieces(pieces));
    over_time(model, wide, &mut out);
    let capture = &model.report.capture;
    let dropped: Vec<String> = capture.dropped.iter().map(|(what, n)| format!("{what} {}", grouped(*n))).collect();
    let mut about = format!(
        "lost by the capture {}   cut {}   not decoded {}",
        grouped(capture.lost_by_capture),
        grouped(capture.cut),
        grouped(capture.undecoded)
    );
    if !dropped.is_empty() {
        about.push_str(&format!("   dropped to stay within limits: {}", dropped.join(", ")));
    }
    out.push(Line::Pieces(vec![(about, theme.faint)]));
    let counted = model.live.as_ref().map_or(&model.hardware[..], |live| &live.hardware[..]);
    if let (false, Some(first), Some(last)) = (counted.is_empty(), capture.first, capture.last) {
        let columns = if wide { 60 } else { 20 };
        let long = last.time.saturating_sub(first.time).max(1);
        let place = |time: i64| {
            (i128::from(time.saturating_sub(first.time)).max(0) * columns as i128 / i128::from(long))
                .min(columns as i128 - 1) as usize
        };
        out.push(Line::Head(format!("counters of RDMA devices, over {}", span(long))));
        // the volume, on the same axis
        let mut volume = vec![0; columns];
        for (time, a, b) in model.connections().flat_map(|c| &c.throughput) {
            volume[place(*time)] += a + b;
        }
        out.push(Line::Pieces(vec![
            (format!("{:<44}{:>14}  ", "bytes", ""), theme.faint),
            (sparkline(&volume, columns), theme.server),
        ]));
        for counter in counted {
            let mut steps = vec![0; columns];
            counter.steps.iter().for_each(|(time, n)| steps[place(*time)] += n);
            out.push(Line::Pieces(vec![
                (format!("{:<44}{:>14}  ", counter.name, grouped(counter.increase)), theme.text),
                (sparkline(&steps, columns), theme.warn),
            ]));
        }
    }
    out.push(Line::Head("protocols, by the highest in each frame".to_owned()));
    let mut layers = capture.dissected.clone();
    layers.sort_by_key(|(_, n)| Reverse(*n));
    for (name, n) in layers {
        let share = n as f64 * 100.0 / capture.frames.max(1) as f64;
        let bar = "▇".repeat((share / 2.5).ceil() as usize);
        out.push(Line::Pieces(vec![
            (format!("{name:<16}{:>12}{share:>8.1} %  ", grouped(n)), theme.text),
            (bar, theme.client),
        ]));
    }
    let index = model.index.bytes();
    out.push(Line::Head("this program".to_owned()));
    let text = format!(
        "index {} ({:.1} B a frame), {} exchanges kept",
        bytes(index as u64),
        index as f64 / model.index.len().max(1) as f64,
        grouped(model.exchanges.len() as u64)
    );
    out.push(Line::Pieces(vec![(text, theme.faint)]));
    out
}

/// Rate, marks, CNPs, pauses and retransmissions on one axis, if there was more than a rate.
fn over_time(model: &Model, wide: bool, out: &mut Vec<Line>) {
    let theme = &model.theme;
    let columns = if wide { 60 } else { 30 };
    let capture = &model.report.capture;
    let Some(timeline) = Timeline::new(model.connections(), capture, columns) else { return };
    if timeline.rows().next().is_none() {
        return;
    }
    let length = timeline.step.saturating_mul(columns as i64);
    out.push(Line::Head(format!("the network over time, {} of {} each", grouped(columns as u64), span(timeline.step))));
    let mut row = |name: &str, sum: String, values: &[u64], style: Style| {
        out.push(Line::Pieces(vec![
            (format!("{name:<16}{sum:>14}  "), theme.text),
            (sparkline(values, columns), style),
        ]));
    };
    let rates: Vec<u64> = timeline.points.iter().map(|p| timeline.rate(p)).collect();
    row("rate, most", format!("{}/s", bytes(rates.iter().copied().max().unwrap_or(0))), &rates, theme.server);
    for (name, value) in timeline.rows() {
        let values: Vec<u64> = timeline.points.iter().map(value).collect();
        let sum: u64 = values.iter().fold(0, |sum, n| sum.saturating_add(*n));
        let sum = if name == "paused" { span(i64::try_from(sum).unwrap_or(i64::MAX)) } else { grouped(sum) };
        row(name, sum, &values, theme.warn);
    }
    let end = capture.last.map_or(0, |at| at.time);
    let mut rows = capture.paused.rows(end);
    rows.sort_by_key(|row| Reverse(row.time));
    for row in rows.iter().take(PAUSES_SHOWN) {
        let what = row.priority.map_or_else(|| "the whole link".to_owned(), |p| format!("class {p}"));
        let share = row.time as f64 * 100.0 / length.max(1) as f64;
        let (mac, time, longest) = (Addr::Mac(row.source), span(row.time), span(row.longest));
        let text = format!("{mac} paused {what} for {time} ({share:.1} %), {longest} at the longest{}", row.note());
        out.push(Line::Pieces(vec![(text, theme.faint)]));
    }
}

impl Screen for State {
    fn hints(&self) -> &'static [(Action, &'static str)] {
        &[(Action::Sort, "sort")]
    }

    /// Makes the page, if it is out of date.
    fn prepare(&mut self, model: &Model) {
        if self.page.is_outdated() {
            let lines = lines(self, model);
            self.page.set(lines);
        }
    }

    fn draw(&self, model: &Model, buf: &mut Buffer) {
        self.page.draw(buf, model.body(), &model.theme);
    }

    fn act(&mut self, model: &Model, action: Action) -> Vec<Request> {
        if matches!(action, Action::Sort | Action::SortReverse) {
            self.page.outdated();
        }
        match action {
            Action::Sort => {
                self.sort = (self.sort + 1) % SORTS.len();
                return vec![Request::Say(format!("sorted by {}", SORTS[self.sort]))];
            }
            Action::SortReverse => self.ascending = !self.ascending,
            _ => {
                let height = model.body().height;
                self.page.turn(action, height);
            }
        }
        Vec::new()
    }

    fn selected_connection(&self, model: &Model) -> Option<u32> {
        model.subject().and_then(|c| c.followed_as.first().copied())
    }

    /// For an export: heads, then rows.
    fn export(&self, model: &Model) -> Vec<Vec<String>> {
        let heads = ["command", "count", "errors", "unanswered", "bytes", "median_ns", "p99_ns", "max_ns", "before_ns"];
        let owners = Owner::ALL.iter().map(|owner| format!("{}_ns", owner.key()));
        let mut out = vec![heads.iter().map(|head| (*head).to_owned()).chain(owners).collect::<Vec<_>>()];
        for r in commands(self, model) {
            let optional = |v: Option<i64>| v.map_or_else(String::new, |v| v.to_string());
            let mut row = vec![
                r.name.to_owned(),
                r.count.to_string(),
                r.errors.to_string(),
                r.unanswered.to_string(),
                r.bytes.to_string(),
                optional(r.latency.quantile(500)),
                optional(r.latency.quantile(990)),
                optional(r.latency.max()),
            ];
            row.push(r.waited.to_string());
            row.extend(r.time.0.iter().map(i64::to_string));
            out.push(row);
        }
        out
    }

    fn changed(&mut self, _change: Change) {
        self.page.outdated();
    }
}
