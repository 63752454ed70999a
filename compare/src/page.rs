//! A comparison as one HTML page: delay over time with losses, and the facts of the text. It works offline and has no
//! external references.

use crate::points::{Agreement, Comparison, DirectionResult, Mark, alike_findings};
use crate::profile::Histogram;
use rdmascope_dissector::text::{Elapsed, Grouped, escaped};
use std::fmt::Write;

/// Width and height of a plot in pixels, and the part for its axes.
const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 240.0;
const LEFT: f64 = 90.0;
const BOTTOM: f64 = 36.0;
/// Limit of requests in the list.
const SLOWEST_SHOWN: usize = 20;
/// Lines of an axis.
const LINES: i64 = 4;

const STYLE: &str = "\
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #667; --line: #d5d9de; --dot: #2563eb; --lost: #c2410c; \
--page: #fff }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --soft: #9aa4af; --line: #39414b; --dot: #7aa5ff; \
--lost: #ff8a5c; --page: #14181d } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page); max-width: 62rem; margin: \
2rem auto; padding: 0 1rem }
h1 { font-size: 1.4rem } h2 { font-size: 1.1rem; margin-top: 2rem }
table { border-collapse: collapse } td, th { text-align: left; padding: .15rem 1rem .15rem 0; vertical-align: top; \
border-bottom: 1px solid var(--line) }
svg { width: 100%; height: auto } svg text { font-size: 12px; fill: var(--soft) } svg .line { stroke: var(--line) }
svg .dot { fill: var(--dot) } svg .lost { stroke: var(--lost); stroke-width: 2 } svg .other { stroke: var(--soft); \
stroke-dasharray: 2 2 }
.soft, footer { color: var(--soft) }
";

fn text(out: &mut String, text: &str) {
    for c in escaped(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
}

fn heading(out: &mut String, words: &str) {
    out.push_str("<h2>");
    text(out, words);
    out.push_str("</h2>\n");
}

fn row(out: &mut String, cells: &[String]) {
    out.push_str("<tr>");
    for cell in cells {
        out.push_str("<td>");
        text(out, cell);
        out.push_str("</td>");
    }
    out.push_str("</tr>\n");
}

fn table(out: &mut String, heads: &[&str], rows: impl IntoIterator<Item = Vec<String>>) {
    out.push_str("<table>\n<thead><tr>");
    for head in heads {
        out.push_str("<th scope=\"col\">");
        text(out, head);
        out.push_str("</th>");
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for cells in rows {
        row(out, &cells);
    }
    out.push_str("</tbody>\n</table>\n");
}

fn quantiles(h: &Histogram) -> String {
    h.in_short()
}

/// One page of comparisons with the first capture, each with the names of the two captures.
pub fn html(comparisons: &[(&Comparison, [&str; 2])]) -> String {
    let mut out = String::new();
    let title = comparisons.first().map_or(String::new(), |(_, [first, _])| {
        let others: Vec<&str> = comparisons.iter().map(|(_, [_, other])| *other).collect();
        format!("{first} and {}", others.join(", "))
    });
    out.push_str(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
        content=\"width=device-width, initial-scale=1\">\n",
    );
    out.push_str(
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src \
        'unsafe-inline'; base-uri 'none'; form-action 'none'\">\n<title>",
    );
    text(&mut out, &title);
    let _ = write!(out, " – rdmascope compare</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n");
    for (comparison, names) in comparisons {
        out.push_str("<h1>");
        text(&mut out, &format!("{} and {}", names[0], names[1]));
        out.push_str("</h1>\n");
        one(&mut out, comparison, *names);
    }
    let _ = write!(out, "<footer>rdmascope {}</footer>\n</body>\n</html>\n", env!("CARGO_PKG_VERSION"));
    out
}

fn one(out: &mut String, c: &Comparison, names: [&str; 2]) {
    // the text up to the first empty line: common packets, and the clocks
    let summary = c.text(names);
    for paragraph in summary.split("\n\n").take(if c.clock.is_some() { 2 } else { 1 }) {
        out.push_str("<p>");
        for (n, line) in paragraph.lines().filter(|line| *line != "Clocks").enumerate() {
            out.push_str(if n > 0 { "<br>" } else { "" });
            text(out, line.trim());
        }
        out.push_str("</p>\n");
    }
    let times = || c.ways.iter().flat_map(|w| w.delays.iter().map(|(t, _)| *t).chain(w.marks.iter().map(|(t, ..)| *t)));
    let span = times().min().zip(times().max());
    for (n, way) in c.ways.iter().enumerate() {
        let assumed = if way.is_assumed { " (direction assumed)" } else { "" };
        heading(out, &format!("{} → {}: {} packets{assumed}", names[n], names[1 - n], Grouped(way.matched)));
        if let Some(span) = span {
            plot(out, way, span);
        }
        let rows = way.lists(n, names).into_iter().map(|((count, frames), what, whose)| {
            let list: Vec<String> = frames.iter().take(24).map(u64::to_string).collect();
            let more = if *count > list.len() as u64 { ", …" } else { "" };
            vec![what, Grouped(*count).to_string(), format!("frames of {whose}: {}{more}", list.join(", "))]
        });
        let delay = (way.delay.count() > 0).then(|| {
            let longest = Elapsed(way.delay.max().unwrap_or(0));
            let shortest = Elapsed(way.delay.min().unwrap_or(0));
            vec!["one-way delay".to_owned(), quantiles(&way.delay), format!("shortest {shortest}, longest {longest}")]
        });
        table(out, &["what", "how much", "where"], delay.into_iter().chain(rows));
    }
    if !c.alone.is_empty() {
        heading(out, "Seen at one point only");
        let rows = c.alone.iter().map(|alone| {
            let (count, frames) = &alone.packets;
            let first = frames.first().unwrap_or(&0);
            let place = format!("{} from frame {first}: {}", names[alone.at], alone.words(names));
            vec![alone.direction(), Grouped(*count).to_string(), place]
        });
        table(out, &["direction", "packets", "where"], rows);
    }
    if c.resized > 0 {
        let _ = writeln!(
            out,
            "<p>{} TCP segments were split or joined by an adapter between the points.</p>",
            Grouped(c.resized)
        );
    }
    if !c.changes.is_empty() {
        heading(out, "Changed on the way");
        let rows = c.changes.iter().map(|(change, n)| {
            let meaning = change.meaning().unwrap_or_default().to_owned();
            let way = format!("{} → {}", names[change.way], names[1 - change.way]);
            vec![way, change.what.to_owned(), change.was.clone(), change.is.clone(), meaning, Grouped(*n).to_string()]
        });
        table(out, &["direction", "what", "from", "to", "meaning", "packets"], rows);
    }
    let seen = names.map(|name| format!("at {name}"));
    let times = [&*seen[0], &*seen[1], "between", "client's own", "server's own"];
    if !c.times.is_empty() {
        heading(out, "Requests");
        let rows = c.times.iter().map(|(command, t)| {
            let of = [&t.first, &t.second, &t.between, &t.client, &t.server].map(quantiles);
            [vec![(*command).to_owned(), Grouped(t.first.count()).to_string()], of.to_vec()].concat()
        });
        table(out, &[&["command", "requests"][..], &times[..]].concat(), rows);
    }
    if !c.slowest.is_empty() {
        heading(out, "The slowest requests");
        let rows = c.slowest.iter().take(SLOWEST_SHOWN).map(|t| {
            let took = [t.first, t.second, t.between(), t.client, t.server].map(|ns| Elapsed(ns).to_string());
            [vec![t.command.to_owned(), format!("{} and {}", t.frames[0], t.frames[1])], took.to_vec()].concat()
        });
        table(out, &[&["command", "frames"][..], &times[..]].concat(), rows);
    }
    if !c.findings.is_empty() {
        heading(out, "Findings");
        let rows = alike_findings(&c.findings).into_iter().map(|(t, count)| {
            let withdrawn = if matches!(t.verdict, Agreement::Withdrawn(_)) { "withdrawn: " } else { "" };
            let all = if count > 1 { format!(" ({count} connections)") } else { String::new() };
            let verdict = format!("{withdrawn}{}{all}", t.words(names));
            vec![t.rule.id().to_owned(), t.by.to_owned(), verdict, t.rule.row().title.to_owned()]
        });
        table(out, &["finding", "by", "what the two captures show together", "title"], rows);
    }
}

/// Delay over time, with losses below it.
fn plot(out: &mut String, way: &DirectionResult, (first, last): (i64, i64)) {
    let most = way.delays.iter().map(|(_, d)| *d).max().unwrap_or(0).max(1) as f64 * 1.05;
    let length = last.saturating_sub(first).max(1) as f64;
    let x = |time: i64| LEFT + time.saturating_sub(first) as f64 / length * (WIDTH - LEFT - 12.0);
    let y = |delay: f64| (HEIGHT - BOTTOM) * (1.0 - delay.max(0.0) / most) + 6.0;
    let _ = writeln!(
        out,
        "<svg viewBox=\"0 0 {WIDTH} {}\" role=\"img\" aria-label=\"one-way delay over time\">",
        HEIGHT + 12.0
    );
    for line in 0..=LINES {
        let part = line as f64 / LINES as f64;
        let (at, delay) = (y(part * most), Elapsed((part * most) as i64));
        let _ = write!(out, "<line class=\"line\" x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>");
        let _ = writeln!(out, "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{delay}</text>", LEFT - 8.0, at + 4.0);
        let time = (part * length) as i64;
        let anchor = ["start", "middle", "end"][if line == 0 { 0 } else { 1 + usize::from(line == LINES) }];
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"{anchor}\">{}</text>",
            x(first.saturating_add(time)),
            HEIGHT + 4.0,
            Elapsed(time)
        );
    }
    for (time, delay) in &way.delays {
        let _ = write!(out, "<circle class=\"dot\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"1.8\"/>", x(*time), y(*delay as f64));
    }
    for (time, mark, frame) in &way.marks {
        let (class, words) = match mark {
            Mark::Lost => ("lost", "lost"),
            Mark::Undecided => ("other", "lost or not captured"),
            Mark::SentAgain => ("other", "arrived and sent again"),
            Mark::Overtaken => ("other", "overtaken"),
        };
        let (at, from, to) = (x(*time), y(0.0) - if *mark == Mark::Lost { 22.0 } else { 10.0 }, y(0.0));
        let since = Elapsed(time.saturating_sub(first));
        let _ = writeln!(
            out,
            "<line class=\"{class}\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{from:.1}\" y2=\"{to:.1}\"><title>frame \
                {frame}, {since}: \
            {words}</title></line>"
        );
    }
    out.push_str(
        "</svg>\n<p class=\"soft\">Dots: the longest delay of each stretch of time. Marks: packets that were \
        lost, and (dashed) perhaps lost, sent again, or overtaken.</p>\n",
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_shows_delays_and_losses_and_refers_to_nothing() {
        let clock = crate::clock::clock(&[(0, 10), (1000, 20)], &[(5, -10), (900, -12)]);
        let mut c = Comparison { clock, ..Comparison::default() };
        c.ways[0].delays = vec![(0, 10_000), (1_000_000, 20_000)];
        c.ways[0].marks = vec![(500_000, Mark::Lost, 17)];
        c.ways[0].lost = (1, vec![17]);
        c.changes.insert(crate::points::Change { way: 0, what: "DSCP", was: "26".to_owned(), is: "0".to_owned() }, 3);
        let page = html(&[(&c, ["<client>.pcap", "server\u{1b}.pcap"])]);
        assert!(
            page.contains("<title>frame 17, 0.50 ms: lost</title>") && page.contains("&lt;client&gt;.pcap"),
            "{page}"
        );
        assert!(
            !page.contains('\u{1b}')
                && !page.contains("<client>")
                && !page.contains("http://")
                && !page.contains("https://")
        );
        assert_eq!(page.matches("<circle").count(), 2);
        assert!(page.contains("lost between the points") && page.contains("DSCP"));
        assert_eq!(
            (page.matches("<svg").count(), page.matches("</svg>").count(), page.matches("<table").count()),
            (2, 2, 3)
        );
    }

    #[test]
    fn captures_with_nothing_in_common_make_a_page_too() {
        let page = html(&[(&Comparison::default(), ["a", "b"])]);
        assert!(page.contains("nothing in common") && page.ends_with("</html>\n"));
    }
}
