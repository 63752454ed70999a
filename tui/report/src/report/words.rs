//! Numbers, times and text in readable form; lines and tables that fit a width. Nothing here depends on a report.

use crate::zone::Zone;
use anstyle::{AnsiColor, Style};
use rdmascope_dissector::calendar::DateTime;
use rdmascope_dissector::text::{Bytes, Elapsed, Grouped, Times};
use std::sync::OnceLock;
use unicode_width::UnicodeWidthStr;

/// Colours that mean something, or none at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paint {
    on: bool,
}

/// Role of a piece of text, which decides its color.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// Normal text.
    Plain,
    /// No problem.
    Good,
    /// An error.
    Bad,
    /// A warning.
    Warn,
    /// A note.
    Note,
    /// A heading, or the most important text.
    Strong,
    /// Least important text.
    Faint,
}

impl Paint {
    /// Colours or not.
    pub const fn new(on: bool) -> Self {
        Self { on }
    }

    /// The text in the colour of its tone.
    pub fn paint(self, tone: Tone, text: &str) -> String {
        let style = match tone {
            Tone::Plain => return text.to_owned(),
            Tone::Good => AnsiColor::Green.on_default().bold(),
            Tone::Bad => AnsiColor::Red.on_default().bold(),
            Tone::Warn => AnsiColor::Yellow.on_default().bold(),
            Tone::Note => AnsiColor::Cyan.on_default(),
            Tone::Strong => Style::new().bold(),
            Tone::Faint => Style::new().dimmed(),
        };
        if !self.on || text.is_empty() {
            return text.to_owned();
        }
        format!("{style}{text}{style:#}")
    }
}

/// Columns that a text takes in a terminal.
pub fn columns(text: &str) -> usize {
    // most text is ASCII, which needs no tables
    if text.bytes().all(|b| matches!(b, b' '..=b'~')) { text.len() } else { UnicodeWidthStr::width(text) }
}

/// 1,234,567
pub fn grouped(n: u64) -> String {
    Grouped(n).to_string()
}

/// The same with a sign.
pub fn grouped_signed(n: i64) -> String {
    let sign = if n < 0 { "-" } else { "" };
    format!("{sign}{}", grouped(n.unsigned_abs()))
}

/// A count with its noun: "1 frame", "2 frames".
pub fn count(n: u64, noun: &str) -> String {
    let plural = match noun {
        "reply" => "replies".to_owned(),
        "retry" => "retries".to_owned(),
        _ => format!("{noun}s"),
    };
    if n == 1 { format!("1 {noun}") } else { format!("{} {plural}", grouped(n)) }
}

/// A mirror session or tunnel: "ERSPAN II session 17".
pub fn mirror(mirror: &rdmascope_analyzer::mirror::Mirror) -> String {
    let (kind, what) = (mirror.kind.name(), mirror.kind.id_name());
    if what.is_empty() { kind.to_owned() } else { format!("{kind} {what} {}", mirror.session) }
}

/// "once", "twice", "3 times"
pub fn times(n: u64) -> String {
    Times(n).to_string()
}

/// Bytes in about three digits: "16.8 kB".
pub fn size(bytes: u64) -> String {
    Bytes(bytes).to_string()
}

/// Bytes of a limit: powers of two by name, everything else exact: "1 MiB", "130,560".
pub fn limit(bytes: u64) -> String {
    const MIB: u64 = 1 << 20;
    if bytes >= MIB && bytes.is_multiple_of(MIB) { format!("{} MiB", grouped(bytes / MIB)) } else { grouped(bytes) }
}

/// A duration in ns, in the unit that fits: "0.41 ms".
pub fn duration(ns: i64) -> String {
    Elapsed(ns).to_string()
}

/// ns as seconds, for programs: "1.000000250".
pub fn seconds(ns: i64) -> String {
    let sign = if ns < 0 { "-" } else { "" };
    let ns = ns.unsigned_abs();
    format!("{sign}{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
}

/// Format in which a report shows the time of an event.
#[derive(Clone, Debug, Default)]
pub enum Clock {
    /// The time of day, UTC.
    #[default]
    Utc,
    /// The time of day in this zone.
    Local(Zone),
    /// Since the first frame.
    Relative,
    /// Seconds since 1970.
    Epoch,
}

impl Clock {
    /// As tshark's `-t` names them; `None` for another word.
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "u" | "ud" => Self::Utc,
            "a" | "ad" => Self::Local(Zone::local()),
            "r" => Self::Relative,
            "e" => Self::Epoch,
            _ => return None,
        })
    }

    /// When something happened, for a row that has little room: "22:08:09"; `start` is the time of the first frame.
    pub fn when(&self, ns: i64, start: i64) -> String {
        match self {
            Self::Relative => duration(ns.saturating_sub(start)),
            Self::Epoch => seconds(ns),
            Self::Utc | Self::Local(_) => self.time_of_day(ns),
        }
    }

    /// The same of an end, when it is surely over: a time of day in whole seconds is the next one.
    pub fn when_over(&self, ns: i64, start: i64) -> String {
        let ahead = if matches!(self, Self::Utc | Self::Local(_)) { 1_000_000_000 } else { 0 };
        self.when(ns.saturating_add(ahead), start)
    }

    /// Seconds that it is ahead of UTC.
    fn ahead(&self, ns: i64) -> i64 {
        match self {
            Self::Local(zone) => zone.offset(ns.div_euclid(1_000_000_000)).into(),
            Self::Utc | Self::Relative | Self::Epoch => 0,
        }
    }

    fn date_time(&self, ns: i64) -> DateTime {
        DateTime::of_unix_seconds(ns.div_euclid(1_000_000_000).saturating_add(self.ahead(ns)))
    }

    /// The time of the day: "22:08:09".
    fn time_of_day(&self, ns: i64) -> String {
        let DateTime { hour, minute, second, .. } = self.date_time(ns);
        format!("{hour:02}:{minute:02}:{second:02}")
    }
}

/// The clock of this process: a command line sets it.
static CLOCK: OnceLock<Clock> = OnceLock::new();

/// Tells all times by this clock from now on; the first that is set stays.
pub fn set_clock(clock: Clock) {
    let _ = CLOCK.set(clock);
}

/// The clock that was set, else that of UTC.
pub fn the_clock() -> &'static Clock {
    CLOCK.get().unwrap_or(&Clock::Utc)
}

/// "UTC", or how far local time is from it: "UTC+02:00".
fn zone(ns: i64) -> String {
    if !matches!(the_clock(), Clock::Local(_)) {
        return "UTC".to_owned();
    }
    let ahead = the_clock().ahead(ns);
    let (ahead, sign) = (ahead.unsigned_abs() / 60, if ahead < 0 { '-' } else { '+' });
    format!("UTC{sign}{:02}:{:02}", ahead / 60, ahead % 60)
}

/// When something happened, for a row that has little room: "22:08:09"; `start` is the time of the first frame.
pub fn when(ns: i64, start: i64) -> String {
    the_clock().when(ns, start)
}

/// A moment, in ns since 1970: "2026-11-21 22:08:09 UTC".
pub fn date(ns: i64) -> String {
    format!("{} {} {}", day(ns), clock(ns), zone(ns))
}

/// From one moment to another: "2026-11-21 22:08:09 to 22:08:31 UTC".
pub fn dates(from: i64, to: i64) -> String {
    match (day(from), day(to)) {
        (a, b) if a == b && clock(from) == clock(to) => date(from),
        (a, b) if a == b => format!("{a} {} to {} {}", clock(from), clock(to), zone(to)),
        (a, b) => format!("{a} {} to {b} {} {}", clock(from), clock(to), zone(to)),
    }
}

fn day(ns: i64) -> String {
    let DateTime { year, month, day, .. } = the_clock().date_time(ns);
    format!("{year:04}-{month:02}-{day:02}")
}

/// The time of the day: "22:08:09".
fn clock(ns: i64) -> String {
    the_clock().time_of_day(ns)
}

/// A part of a whole: "0", "<1 %", "92 %".
pub fn share(part: i64, whole: i64) -> String {
    if part <= 0 || whole <= 0 {
        return "0".to_owned();
    }
    let percent = part as f64 * 100.0 / whole as f64;
    if percent < 0.5 { "<1 %".to_owned() } else { format!("{percent:.0} %") }
}

/// The first frames of several: "frame 9", "frames 23, 41, 58 …".
pub fn frames(numbers: &[u64], all: u64, shown: usize) -> String {
    let list: Vec<String> = numbers.iter().take(shown).map(|n| grouped(*n)).collect();
    let more = if numbers.len() > shown || all > numbers.len() as u64 && numbers.len() > 1 { " …" } else { "" };
    match numbers.len() {
        0 => String::new(),
        1 => format!("frame {}", list[0]),
        _ => format!("frames {}{more}", list.join(", ")),
    }
}

/// A word or list joined as in a sentence: "a", "a and b", "a, b and c".
pub fn and(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [one] => one.clone(),
        [head @ .., last] => format!("{} and {last}", head.join(", ")),
    }
}

/// With a capital first letter and a full stop at its end.
pub use rdmascope_analyzer::finding::sentence;

/// A curve in `width` characters: the least of each stretch, from 0 at the bottom to `top`.
pub fn sparkline(values: &[i64], width: usize, top: i64) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let width = width.min(values.len());
    (0..width)
        .map(|i| {
            let (from, to) = (i * values.len() / width, (i + 1) * values.len() / width);
            let least = values[from..to.max(from + 1)].iter().copied().min().unwrap_or(0).clamp(0, top.max(1));
            BARS[(least * 7 / top.max(1)) as usize]
        })
        .collect()
}

/// Text broken between words so that no line is longer than `width`, if that can be.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    wrapped(text, width, false)
}

/// The same, but words longer than a line are broken: for screens, where nothing may extend beyond the edge.
pub fn wrap_hard(text: &str, width: usize) -> Vec<String> {
    wrapped(text, width, true)
}

fn wrapped(text: &str, width: usize, break_words: bool) -> Vec<String> {
    let words: Vec<&str> = text.split(' ').filter(|w| !w.is_empty()).collect();
    let options = textwrap::Options::new(width.max(1))
        .word_separator(textwrap::WordSeparator::AsciiSpace)
        .word_splitter(textwrap::WordSplitter::NoHyphenation)
        .wrap_algorithm(textwrap::WrapAlgorithm::FirstFit)
        .break_words(break_words);
    if words.is_empty() {
        Vec::new()
    } else {
        textwrap::wrap(&words.join(" "), options).into_iter().map(String::from).collect()
    }
}

/// Pieces that are not broken, joined with `gap` and wrapped between pieces.
pub fn flow(pieces: &[String], gap: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for piece in pieces.iter().filter(|p| !p.is_empty()) {
        if !line.is_empty() && columns(&line) + columns(gap) + columns(piece) > width {
            lines.push(std::mem::take(&mut line));
        }
        if columns(piece) > width {
            // one piece alone is too long: between words, then
            lines.extend(wrap(piece, width));
            continue;
        }
        if !line.is_empty() {
            line.push_str(gap);
        }
        line.push_str(piece);
    }
    if !line.is_empty() {
        lines.push(line);
    }
    lines
}

/// Cuts a text to a width, with "…" in place of the rest.
pub fn clipped(text: &str, width: usize) -> String {
    if columns(text) <= width {
        return text.to_owned();
    }
    let mut out = String::new();
    let mut used = 0;
    for c in text.chars() {
        let mut buffer = [0; 4];
        let wide = columns(c.encode_utf8(&mut buffer));
        if used + wide + 1 > width {
            break;
        }
        used += wide;
        out.push(c);
    }
    out.push('…');
    out
}

/// Alignment of a column's cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

/// A column: heading, alignment, and rank. If the width does not suffice, those with the highest rank are left out
/// first; rank 0 always stays.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Heading of the column.
    pub heading: &'static str,
    /// Alignment of its cells.
    pub align: Align,
    /// Rank: if space is short, columns of the highest rank are left out first.
    pub rank: u8,
}

impl Column {
    /// A column of text.
    pub const fn left(heading: &'static str, rank: u8) -> Self {
        Self { heading, align: Align::Left, rank }
    }

    /// A column of numbers.
    pub const fn right(heading: &'static str, rank: u8) -> Self {
        Self { heading, align: Align::Right, rank }
    }
}

/// Rows under headings.
#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<(Tone, String)>>,
}

/// Between two columns.
const GAP: usize = 2;
/// A flexible column keeps this much.
const LEAST: usize = 12;

impl Table {
    /// Without rows.
    pub fn new(columns: &[Column]) -> Self {
        Self { columns: columns.to_vec(), rows: Vec::new() }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = (Tone, String)>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Lines of at most `width`, each after `indent` spaces. Columns that are empty everywhere are left out.
    pub fn lines(&self, width: usize, indent: usize, paint: Paint) -> Vec<String> {
        let wide = |c: usize| {
            let cells = self.rows.iter().filter_map(|r| r.get(c)).map(|(_, text)| columns(text));
            cells.chain([columns(self.columns[c].heading)]).max().unwrap_or(0)
        };
        let is_empty = |c: usize| self.rows.iter().all(|r| r.get(c).is_none_or(|(_, text)| text.is_empty()));
        let mut shown: Vec<usize> = (0..self.columns.len()).filter(|c| !is_empty(*c)).collect();
        let mut widths: Vec<usize> = (0..self.columns.len()).map(wide).collect();
        let total = |shown: &[usize], widths: &[usize]| {
            indent + shown.iter().map(|c| widths[*c] + GAP).sum::<usize>().saturating_sub(GAP)
        };
        // first the widest left column is narrowed, as far as it stays useful; then columns are left out
        while total(&shown, &widths) > width {
            let over = total(&shown, &widths) - width;
            let left = shown.iter().copied().filter(|c| self.columns[*c].align == Align::Left);
            if let Some(c) = left
                .max_by_key(|c| widths[*c])
                .filter(|c| widths[*c] >= over + LEAST.max(columns(self.columns[*c].heading)))
            {
                widths[c] -= over;
                break;
            }
            let dear = shown
                .iter()
                .copied()
                .enumerate()
                .filter(|(_, c)| self.columns[*c].rank > 0)
                .max_by_key(|(_, c)| self.columns[*c].rank);
            match dear {
                Some((place, _)) => drop(shown.remove(place)),
                None => break,
            }
        }
        let line = |cells: &mut dyn Iterator<Item = (usize, Tone, String)>| {
            let mut out = " ".repeat(indent);
            let mut pending = 0;
            for (c, tone, text) in cells {
                let text = clipped(&text, widths[c]);
                let blank = widths[c] - columns(&text);
                let before = if self.columns[c].align == Align::Right { blank } else { 0 };
                out.push_str(&" ".repeat(pending + before));
                out.push_str(&paint.paint(tone, &text));
                pending = GAP + blank - before;
            }
            out
        };
        let head = line(&mut shown.iter().map(|c| (*c, Tone::Faint, self.columns[*c].heading.to_owned())));
        let rows = self.rows.iter().map(|row| {
            line(&mut shown.iter().map(|c| {
                let (tone, text) = row.get(*c).cloned().unwrap_or((Tone::Plain, String::new()));
                (*c, tone, text)
            }))
        });
        std::iter::once(head).chain(rows).map(|l| l.trim_end().to_owned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_of_the_zone_that_is_asked_for_or_counted() {
        for (key, is_there) in [("u", true), ("ad", true), ("r", true), ("e", true), ("d", false), ("", false)] {
            assert_eq!(Clock::parse(key).is_some(), is_there, "{key}");
        }
        let at = 1_700_000_000_000_000_000;
        assert_eq!(when(at, at - 5), "22:13:20");
        // a time of day is rounded up where something must be over
        let over = |clock: &Clock| clock.when_over(at + 500_000_000, at);
        assert_eq!((over(&Clock::Utc), over(&Clock::Relative)), ("22:13:21".to_owned(), "500 ms".to_owned()));
    }

    #[test]
    fn numbers_are_grouped() {
        assert_eq!(
            [0, 12, 999, 1000, 130_560, 1_234_567].map(grouped),
            ["0", "12", "999", "1,000", "130,560", "1,234,567"]
        );
        assert_eq!(grouped(u64::MAX), "18,446,744,073,709,551,615");
        assert_eq!([-1500, 7].map(grouped_signed), ["-1,500", "7"]);
        assert_eq!(grouped_signed(i64::MIN), "-9,223,372,036,854,775,808");
        assert_eq!(
            [count(0, "frame"), count(1, "frame"), count(1234, "frame"), count(2, "reply")],
            ["0 frames", "1 frame", "1,234 frames", "2 replies"]
        );
        assert_eq!([1, 2, 6].map(times), ["once", "twice", "6 times"]);
    }

    #[test]
    fn limits_are_powers_of_two_or_exact() {
        assert_eq!(
            [1364, 130_560, 1 << 20, 8 << 20, (1 << 20) + 1].map(limit),
            ["1,364", "130,560", "1 MiB", "8 MiB", "1,048,577"]
        );
    }

    #[test]
    fn dates_say_their_day_once() {
        let at = 1_700_000_000_000_000_000;
        assert_eq!(date(at), "2023-11-14 22:13:20 UTC");
        assert_eq!(dates(at, at + 999), "2023-11-14 22:13:20 UTC");
        assert_eq!(dates(at, at + 60_000_000_000), "2023-11-14 22:13:20 to 22:14:20 UTC");
        assert_eq!(dates(at, at + 7_200_000_000_000), "2023-11-14 22:13:20 to 2023-11-15 00:13:20 UTC");
    }

    #[test]
    fn seconds_are_exact() {
        assert_eq!(
            [0, 1, 1_000_000_250, -5_000_000].map(seconds),
            ["0.000000000", "0.000000001", "1.000000250", "-0.005000000"]
        );
        assert_eq!(seconds(i64::MIN), "-9223372036.854775808");
    }

    #[test]
    fn shares_are_of_a_whole() {
        assert_eq!(
            [(0, 10), (1, 1000), (92, 100), (10, 10), (5, 0)].map(|(p, w)| share(p, w)),
            ["0", "<1 %", "92 %", "100 %", "0"]
        );
    }

    #[test]
    fn frame_lists_say_when_there_are_more() {
        assert_eq!(frames(&[9], 1, 3), "frame 9");
        assert_eq!(frames(&[9], 4, 3), "frame 9");
        assert_eq!(frames(&[23, 41], 2, 3), "frames 23, 41");
        assert_eq!(frames(&[23, 41, 58, 1070], 6, 3), "frames 23, 41, 58 …");
        assert_eq!(frames(&[23, 41], 20, 3), "frames 23, 41 …");
        assert_eq!(frames(&[], 0, 3), "");
    }

    #[test]
    fn sentences_begin_and_end() {
        assert_eq!(sentence("offered 1 byte"), "Offered 1 byte.");
        assert_eq!(sentence("Really?"), "Really?");
        assert_eq!(sentence("ksmbd did it"), "ksmbd did it.");
        assert_eq!(sentence(""), "");
        assert_eq!(and(&["a".into(), "b".into(), "c".into()]), "a, b and c");
        assert_eq!(and(&["a".into()]), "a");
    }

    #[test]
    fn a_sparkline_shows_the_least() {
        assert_eq!(sparkline(&[0, 100, 50, 100], 4, 100), "▁█▄█");
        assert_eq!(sparkline(&[100, 0, 100, 100], 2, 100), "▁█");
        assert_eq!(sparkline(&[-5, 500], 8, 100), "▁█");
        assert_eq!(sparkline(&[], 8, 100), "");
        assert_eq!(sparkline(&[1, 2], 8, 0), "██");
    }

    #[test]
    fn text_is_broken_between_words() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("incomprehensible word", 5), ["incomprehensible", "word"]);
        assert!(wrap("", 5).is_empty() && wrap_hard("  ", 5).is_empty());
        assert_eq!(wrap_hard("文件文件 abcdefgh", 6), ["文件文", "件", "abcdef", "gh"]);
        assert_eq!(wrap("a well-known one", 7), ["a", "well-known", "one"]);
        assert_eq!(flow(&["a b".into(), String::new(), "c d".into(), "e f".into()], "   ", 9), ["a b   c d", "e f"]);
        assert_eq!(flow(&["x".into(), "a long piece".into()], "  ", 6), ["x", "a long", "piece"]);
        assert_eq!(clipped("abcdef", 4), "abc…");
        assert_eq!(clipped("文件文件", 5), "文件…");
        assert_eq!(clipped("abc", 3), "abc");
    }

    #[test]
    fn tables_fit() {
        let mut table = Table::new(&[
            Column::left("command", 0),
            Column::right("count", 0),
            Column::left("empty", 0),
            Column::right("p99", 2),
        ]);
        table.row([
            (Tone::Plain, "CREATE".into()),
            (Tone::Plain, "64".into()),
            (Tone::Plain, String::new()),
            (Tone::Plain, "1.2 ms".into()),
        ]);
        table.row([(Tone::Plain, "READ".into()), (Tone::Plain, "8".into())]);
        let plain = Paint::new(false);
        assert_eq!(
            table.lines(80, 1, plain),
            [" command  count     p99", " CREATE      64  1.2 ms", " READ         8"]
        );
        assert_eq!(table.lines(20, 1, plain), [" command  count", " CREATE      64", " READ         8"]);
        let mut names = Table::new(&[Column::left("file", 0), Column::right("n", 0)]);
        names.row([(Tone::Plain, "a-very-long-file-name.bin".into()), (Tone::Plain, "1".into())]);
        assert_eq!(names.lines(20, 0, plain), ["file               n", "a-very-long-file…  1"]);
    }

    #[test]
    fn colours_are_only_where_they_are_wanted() {
        assert_eq!(Paint::new(false).paint(Tone::Bad, "x"), "x");
        assert_eq!(Paint::new(true).paint(Tone::Plain, "x"), "x");
        let red = Paint::new(true).paint(Tone::Bad, "x");
        assert!(red.starts_with('\u{1b}') && red.ends_with("\u{1b}[0m"), "{red:?}");
    }
}
