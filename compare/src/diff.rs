//! Compares two profiles: before and after, two kernels, a good host and a bad one.
//!
//! A difference is reported if it is significant (the Mann-Whitney test, or a test of two rates, at 1 % over all tests)
//! and large enough to matter. The first sentence names the most important ones, causes before effects.

use crate::profile::{CLIENT, Histogram, Profile, Requests, SERVER};
use crate::schema::{list, object};
use crate::statistics::{Test, counts, holm, mann_whitney};
use rdmascope_analyzer::episodes::time::Owner;
use rdmascope_analyzer::finding::Severity;
use rdmascope_dissector::text::{Elapsed, Grouped, escaped};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Write;

/// Significance level of all differences together.
const LEVEL: f64 = 0.01;
/// The least effect that is reported (Cliff's delta; below 0.147 it is negligible: Romano and others, 2006).
const EFFECT: f64 = 0.147;
/// The least ratio of medians, or of 99th percentiles, that is reported.
const RATIO: f64 = 1.1;
/// The smallest ratio of rates that is reported.
const RATE: f64 = 2.0;
/// Differences that the first sentence names.
const NAMED: usize = 3;

/// Kind of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A negotiated value.
    Agreed,
    /// Outcomes of connections.
    Outcome,
    /// A counter, in relation to the number of occasions.
    Counter,
    /// The share of payload that went by RDMA.
    Share,
    /// The length from which on payload went by RDMA.
    Threshold,
    /// Round trips of requests.
    Trips,
    /// Latency of requests.
    Latency,
    /// Time of requests by owner.
    Time,
    /// A finding of only one of the two.
    Finding,
    /// A command of only one of the two.
    Operation,
}

impl Kind {
    /// In the order of the report.
    const ALL: [Self; 10] = [
        Self::Agreed,
        Self::Outcome,
        Self::Finding,
        Self::Latency,
        Self::Time,
        Self::Threshold,
        Self::Share,
        Self::Trips,
        Self::Counter,
        Self::Operation,
    ];

    /// Its name in JSON.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Agreed => "agreed",
            Self::Outcome => "outcome",
            Self::Counter => "counter",
            Self::Share => "rdma_share",
            Self::Threshold => "rdma_threshold",
            Self::Trips => "round_trips",
            Self::Latency => "latency",
            Self::Time => "time_by_owner",
            Self::Finding => "finding",
            Self::Operation => "operation",
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Self::Agreed => "What was agreed",
            Self::Outcome => "How connections ended",
            Self::Counter => "Counters",
            Self::Share => "Payload by RDMA",
            Self::Threshold => "Length from which payload goes by RDMA",
            Self::Trips => "Round trips of a request: its message, and RDMA Reads",
            Self::Latency => "Latency",
            Self::Time => "Time by owner",
            Self::Finding => "Findings",
            Self::Operation => "Commands",
        }
    }
}

/// A difference between two profiles.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Kind of difference.
    pub kind: Kind,
    /// The subject, for example `READ, 64 KiB to 1 MiB`.
    pub what: String,
    /// Value of the first.
    pub a: String,
    /// Value of the second.
    pub b: String,
    /// The change, as part of a sentence.
    pub sentence: String,
    /// p value and effect, if there was a test.
    pub test: Option<Test>,
    /// Rank: a greater one is more important.
    weight: u32,
}

/// All differences, the most important first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Diff {
    /// The differences.
    pub differences: Vec<Difference>,
}

/// Upper limits, in bytes, of the groups of sizes.
const SIZES: [(u32, &str); 4] =
    [(4096, "up to 4 KiB"), (65_536, "4 to 64 KiB"), (1 << 20, "64 KiB to 1 MiB"), (u32::MAX, "above 1 MiB")];

type Class = (&'static str, Option<usize>);

fn class(command: &'static str, length: Option<u32>) -> Class {
    let sized = matches!(command, "READ" | "WRITE" | "READ_PLUS");
    (command, length.filter(|_| sized).map(|n| SIZES.iter().position(|(to, _)| n <= *to).unwrap_or(SIZES.len() - 1)))
}

fn named((command, size): Class) -> String {
    size.map_or_else(|| command.to_owned(), |size| format!("{command}, {}", SIZES[size].1))
}

fn of_class(profile: &Profile, wanted: Class) -> Requests {
    let mut all = Requests::default();
    for ((command, length), requests) in &profile.requests {
        if class(command, *length) == wanted {
            all.join(requests);
        }
    }
    all
}

impl Diff {
    /// Differences of `b` from `a`.
    pub fn new(a: &Profile, b: &Profile) -> Self {
        let mut diff = Self::default();
        diff.agreed(a, b);
        diff.outcomes(a, b);
        diff.operations(a, b);
        diff.thresholds(a, b);
        diff.tested(a, b);
        diff.findings(a, b);
        diff.differences.sort_by(|x, y| y.weight.cmp(&x.weight).then_with(|| x.what.cmp(&y.what)));
        diff
    }

    fn add(&mut self, kind: Kind, weight: u32, what: String, [a, b]: [String; 2], sentence: String) {
        self.differences.push(Difference { kind, what, a, b, sentence, test: None, weight });
    }

    fn agreed(&mut self, a: &Profile, b: &Profile) {
        let keys: BTreeSet<&'static str> = a.agreed.keys().chain(b.agreed.keys()).copied().collect();
        for what in keys {
            let values =
                |p: &Profile| p.agreed.get(what).map(|v| v.keys().cloned().collect::<Vec<_>>()).unwrap_or_default();
            let (was, is) = (values(a), values(b));
            // the outcome reports a stage that was never reached
            if was == is || was.is_empty() || is.is_empty() {
                continue;
            }
            let weight = match what {
                // other new findings may follow from it
                CLIENT | SERVER => 960,
                "signing" | "encryption" => 950,
                "version of NFS" => 945,
                "protocol" | "transport" | "dialect" => 940,
                _ if what.starts_with("credits") => 930,
                _ => 700,
            };
            let (was, is) = (was.join(" and "), is.join(" and "));
            let sentence = match what {
                "signing" => format!("messages are {is} (before: {was})"),
                "encryption" => format!("messages are {is} (before: {was})"),
                CLIENT | SERVER => format!("the {what} is {} (before: {})", escaped(&is), escaped(&was)),
                _ => format!("{what}: {is} instead of {was}"),
            };
            self.add(Kind::Agreed, weight, what.to_owned(), [was, is], sentence);
        }
    }

    fn outcomes(&mut self, a: &Profile, b: &Profile) {
        let keys: BTreeSet<&String> = a.outcomes.keys().chain(b.outcomes.keys()).collect();
        for what in keys {
            let count = |p: &Profile| p.outcomes.get(what).copied().unwrap_or(0);
            let (was, is) = (count(a), count(b));
            // a connection that is still open and one that was closed are both good
            if (was == 0) == (is == 0) || matches!(what.as_str(), "open" | "closed") {
                continue;
            }
            let words = what.replace('_', " ");
            let many = |n: u64| if n == 1 { "1 connection".to_owned() } else { format!("{n} connections") };
            let sentence = match was {
                0 => format!("{} ended in a way that none did before: {words}", many(is)),
                _ => format!("no connection ended any more as {} did before: {words}", many(was)),
            };
            self.add(
                Kind::Outcome,
                if was == 0 { 980 } else { 970 },
                words,
                [was.to_string(), is.to_string()],
                sentence,
            );
        }
    }

    fn operations(&mut self, a: &Profile, b: &Profile) {
        let commands = |p: &Profile| p.requests.keys().map(|(command, _)| *command).collect::<BTreeSet<_>>();
        let (was, is) = (commands(a), commands(b));
        if was.is_empty() || is.is_empty() {
            if was.is_empty() != is.is_empty() {
                let sentence =
                    if was.is_empty() { "there are requests at all" } else { "there are no requests any more" };
                let count = |p: &Profile| Grouped(p.all_requests()).to_string();
                self.add(Kind::Operation, 990, "requests".to_owned(), [count(a), count(b)], sentence.to_owned());
            }
            return;
        }
        for command in was.symmetric_difference(&is) {
            let count = |p: &Profile| p.those(Some(command), |_| true).count;
            let (n, m) = (count(a), count(b));
            let sentence = if n == 0 { format!("{command} is new") } else { format!("{command} is gone") };
            self.add(Kind::Operation, 300, (*command).to_owned(), [n.to_string(), m.to_string()], sentence);
        }
    }

    /// The length from which on payload goes by RDMA, if lengths between the two limits were seen.
    fn thresholds(&mut self, a: &Profile, b: &Profile) {
        for (command, paths) in &a.paths {
            let (Some(was), Some(is)) = (paths.threshold(), b.paths.get(command).and_then(|p| p.threshold())) else {
                continue;
            };
            if was.1 > is.0 && is.1 > was.0 {
                continue;
            }
            let shown = |(inline, rdma): (u32, u32)| {
                format!("from {} bytes, not {}", Grouped(rdma.into()), Grouped(inline.into()))
            };
            let [before, now] = [was, is].map(|(_, rdma)| Grouped(rdma.into()));
            let sentence = format!("{command} goes by RDMA from {now} bytes on (before: from {before})");
            self.add(Kind::Threshold, 925, (*command).to_owned(), [shown(was), shown(is)], sentence);
        }
    }

    /// Differences that are reported only if they are significant among all tests.
    fn tested(&mut self, a: &Profile, b: &Profile) {
        let mut asked: Vec<Difference> = Vec::new();
        let classes: BTreeSet<Class> = a.requests.keys().chain(b.requests.keys()).map(|(c, l)| class(c, *l)).collect();
        for class in classes {
            let (was, is) = (of_class(a, class), of_class(b, class));
            asked.extend(latency(class, &was, &is));
            asked.extend(share(class, &was, &is));
            asked.extend(trips(class, &was, &is));
            asked.extend(Owner::ALL.into_iter().filter_map(|owner| time(class, owner, &was, &is)));
        }
        let keys: BTreeSet<&'static str> = a.counters.keys().chain(b.counters.keys()).copied().collect();
        for what in keys {
            asked.extend(counter(what, a, b));
        }
        let sure = holm(&asked.iter().filter_map(|d| d.test).map(|t| t.p).collect::<Vec<_>>(), LEVEL);
        let large = |d: &Difference| d.weight > 0;
        self.differences.extend(asked.into_iter().zip(sure).filter(|(d, sure)| *sure && large(d)).map(|(d, _)| d));
    }

    fn findings(&mut self, a: &Profile, b: &Profile) {
        let keys: BTreeSet<_> = a.findings.keys().chain(b.findings.keys()).copied().collect();
        for (rule, by) in keys {
            let (was, is) = (a.findings.get(&(rule, by)), b.findings.get(&(rule, by)));
            let Some(found) = was.xor(is) else { continue };
            let weight = match found.severity {
                Severity::Error => 600,
                Severity::Warn => 400,
                _ => 100,
            };
            let count =
                |f: Option<&crate::profile::Found>| f.map_or("none".to_owned(), |f| Grouped(f.count).to_string());
            let title = rule.row().title.trim_end_matches('.');
            let state = if is.is_some() { "new" } else { "gone" };
            let what = format!("{} {} by {by}", found.severity.name(), rule.id());
            self.add(
                Kind::Finding,
                weight,
                what,
                [count(was), count(is)],
                format!("{} is {state} ({title})", rule.id()),
            );
        }
    }

    /// The change as a sentence.
    pub fn sentence(&self) -> String {
        if self.differences.is_empty() {
            return "No difference is certain and large enough to matter.".to_owned();
        }
        let named: Vec<&str> = self.differences.iter().take(NAMED).map(|d| d.sentence.as_str()).collect();
        let more = self.differences.len().saturating_sub(NAMED);
        let more = match more {
            0 => String::new(),
            1 => "; and 1 more difference".to_owned(),
            n => format!("; and {n} more differences"),
        };
        format!("In B, {}{more}.", named.join("; "))
    }

    /// Text for people; empty without differences.
    pub fn text(&self) -> String {
        if self.differences.is_empty() {
            return String::new();
        }
        let mut out = self.sentence();
        out.push('\n');
        for kind in Kind::ALL {
            let rows: Vec<&Difference> = self.differences.iter().filter(|d| d.kind == kind).collect();
            if rows.is_empty() {
                continue;
            }
            let _ = writeln!(out, "\n{}", kind.title());
            let width = |of: fn(&Difference) -> &str| rows.iter().map(|d| of(d).chars().count()).max().unwrap_or(0);
            let (first, second) = (width(|d| &d.what), width(|d| &d.a));
            for d in rows {
                let _ = write!(out, "  {:<first$}  {:>second$} → {}", escaped(&d.what), escaped(&d.a), escaped(&d.b));
                if let Some(test) = d.test {
                    let p = if test.p < 1e-6 { "p < 0.000001".to_owned() } else { format!("p = {:.6}", test.p) };
                    let _ = write!(out, "  ({p}");
                    if matches!(kind, Kind::Latency | Kind::Time) {
                        let _ = write!(out, ", effect {:+.2}", test.effect);
                    }
                    out.push(')');
                }
                out.push('\n');
            }
        }
        out
    }

    /// The differences as JSON.
    pub fn json(&self) -> Value {
        let row = |d: &Difference| {
            let mut row = json!({"kind": d.kind.key(), "what": d.what, "a": d.a, "b": d.b, "text": d.sentence});
            if let Some(test) = d.test {
                row["p"] = json!(test.p);
                row["effect"] = json!(test.effect);
            }
            row
        };
        json!({
            "rdmascope": env!("CARGO_PKG_VERSION"),
            "schema": 1,
            "differ": !self.differences.is_empty(),
            "sentence": self.sentence(),
            "differences": self.differences.iter().map(row).collect::<Vec<_>>(),
        })
    }
}

/// The JSON Schema of [`Diff::json`].
pub fn schema() -> Value {
    let (text, number) = (json!({"type": "string"}), json!({"type": "number"}));
    let difference = object(&[
        ("kind", &json!({"enum": Kind::ALL.map(Kind::key)}), "Kind of difference."),
        ("what", &text, "The compared thing: a command, a counter, a setting."),
        ("a", &text, "Its value in the first capture."),
        ("b", &text, "Its value in the second capture."),
        ("text", &text, "The difference as a sentence."),
        ("p?", &number, "The probability of such a difference if nothing changed."),
        ("effect?", &number, "From -1 to 1: Cliff's delta of latencies, the difference of rates or shares."),
    ]);
    let mut schema = object(&[
        ("rdmascope", &text, "Version of the program."),
        ("schema", &json!({"const": 1}), "Version of this format. Within a version, keys are only added."),
        ("differ", &json!({"type": "boolean"}), "Whether there is a difference."),
        ("sentence", &text, "The most important differences."),
        ("differences", &list(&difference), "Differences, the most important first."),
    ]);
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("rdmascope diff --format json");
    schema
}

fn latency(class: Class, was: &Requests, is: &Requests) -> Option<Difference> {
    let test = mann_whitney(&was.latency, &is.latency)?;
    let at = |r: &Requests, part: f64| r.latency.quantile(part).unwrap_or(0);
    let ratio = |part: f64| (at(is, part).max(1) as f64) / (at(was, part).max(1) as f64);
    let (median, tail) = (ratio(0.5), ratio(0.99));
    let far = |r: f64| r.max(1.0 / r) >= RATIO;
    let has_tail = was.latency.p99().is_some() && is.latency.p99().is_some();
    let large = test.effect.abs() >= EFFECT && (far(median) || has_tail && far(tail));
    let shown = |r: &Requests| format!("{} ({})", r.latency.in_short(), Grouped(r.latency.count()));
    let name = named(class);
    let sentence = match median {
        _ if !far(median) && tail >= 1.0 => format!("the slowest of {name} take {} times as long", two_digits(tail)),
        _ if !far(median) => format!("the slowest of {name} take {:.0} % less time", 100.0 * (1.0 - tail)),
        2.0.. => format!("{name} takes {} times as long", two_digits(median)),
        1.0.. => format!("{name} takes {:.0} % longer", 100.0 * (median - 1.0)),
        _ => format!("{name} takes {:.0} % less time", 100.0 * (1.0 - median)),
    };
    // the commands that take most of the time come first
    let weight = if large { 800 + (100.0 * test.effect.abs()) as u32 } else { 0 };
    Some(Difference {
        kind: Kind::Latency,
        what: name,
        a: shown(was),
        b: shown(is),
        sentence,
        test: Some(test),
        weight,
    })
}

/// Owners of request time whose share changed by at least a tenth of all time.
fn time(class: Class, owner: Owner, was: &Requests, is: &Requests) -> Option<Difference> {
    // of requests whose time counts
    let of = |r: &Requests| (r.owners[owner as usize].mean(), r.owners.iter().map(Histogram::mean).sum::<f64>());
    let ((a, all_a), (b, all_b)) = (of(was), of(is));
    if a == 0.0 && b == 0.0 {
        return None;
    }
    let test = mann_whitney(&was.owners[owner as usize], &is.owners[owner as usize])?;
    let change = (a - b).abs();
    // one outlier can change a mean: require that most, or the worst tenth, changed too
    let at = |r: &Requests, part: f64| r.owners[owner as usize].quantile(part).unwrap_or(0) as f64;
    let is_common = [0.5, 0.9].into_iter().any(|part| (at(was, part) - at(is, part)).abs() >= all_a.max(all_b) / 10.0);
    let large =
        test.effect.abs() >= EFFECT && is_common && change >= all_a.max(all_b) / 10.0 && a.max(b) >= RATIO * a.min(b);
    let shown = |mean: f64, all: f64| format!("{} each, {:.0} %", Elapsed(mean as i64), 100.0 * mean / all.max(1.0));
    let name = format!("{}: {}", named(class), owner.name());
    let [before, now] = [a, b].map(|ns| Elapsed(ns as i64));
    let sentence = format!("{} time of {} is {now} each (before: {before})", owner.name(), named(class));
    // the owner that changed most comes first; if it explains a latency, it follows that difference
    let weight = if large { 700 + (90.0 * change / all_a.max(all_b).max(1.0)).min(90.0) as u32 } else { 0 };
    Some(Difference {
        kind: Kind::Time,
        what: name,
        a: shown(a, all_a),
        b: shown(b, all_b),
        sentence,
        test: Some(test),
        weight,
    })
}

fn two_digits(x: f64) -> String {
    if x >= 10.0 { format!("{x:.0}") } else { format!("{x:.1}") }
}

fn share(class: Class, was: &Requests, is: &Requests) -> Option<Difference> {
    // only commands that move a payload can move it by RDMA
    if was.bytes == 0 || is.bytes == 0 {
        return None;
    }
    let part = |r: &Requests| r.by_rdma as f64 / r.count as f64;
    let (a, b) = (part(was), part(is));
    let p = counts(was.by_rdma, was.count, is.by_rdma, is.count).min(counts(
        was.count - was.by_rdma,
        was.count,
        is.count - is.by_rdma,
        is.count,
    ));
    let weight = if (a - b).abs() >= 0.05 { 920 } else { 0 };
    let name = named(class);
    let percent = |x: f64| format!("{:.0} %", x * 100.0);
    let sentence = format!("{} of {name} go by RDMA (before: {})", percent(b), percent(a));
    Some(Difference {
        kind: Kind::Share,
        what: name,
        a: percent(a),
        b: percent(b),
        sentence,
        test: Some(Test { p, effect: b - a }),
        weight,
    })
}

/// Round trips of requests: compounds, and RDMA Reads of their payload.
fn trips(class: Class, was: &Requests, is: &Requests) -> Option<Difference> {
    let (a, b) = (was.trips.mean(), is.trips.mean());
    if a == b {
        return None;
    }
    let test = mann_whitney(&was.trips, &is.trips)?;
    let large = test.effect.abs() >= EFFECT && a.max(b) >= RATIO * a.min(b);
    let name = named(class);
    let sentence = format!("{name} takes {b:.1} round trips each (before: {a:.1})");
    let shown = |mean: f64| format!("{mean:.1} each");
    let weight = if large { 690 } else { 0 };
    Some(Difference { kind: Kind::Trips, what: name, a: shown(a), b: shown(b), sentence, test: Some(test), weight })
}

fn counter(what: &'static str, a: &Profile, b: &Profile) -> Option<Difference> {
    let count = |p: &Profile| p.counters.get(what).copied().unwrap_or(0);
    let (was, is) = (count(a), count(b));
    // time by owner is reported with the latency that it changes; volumes follow from the requests
    if was == is
        || what.ends_with("_ns")
        || what.starts_with("messages.")
        || matches!(what, "rdma.reads" | "rdma.writes")
    {
        return None;
    }
    let p = counts(was, a.frames, is, b.frames);
    let rate = |n: u64, p: &Profile| n as f64 / p.frames.max(1) as f64;
    let (x, y) = (rate(was, a), rate(is, b));
    let large = was == 0 || is == 0 || (x / y).max(y / x) >= RATE;
    let words = what.rsplit('.').next().unwrap_or(what).replace('_', " ");
    let whose = what.split('.').nth(1).filter(|s| what.matches('.').count() > 1 && matches!(*s, "client" | "server"));
    let words = whose.map_or(words.clone(), |side| format!("{words} of the {side}"));
    let sentence = format!(
        "{} {words} in {} frames (before: {} in {})",
        Grouped(is),
        Grouped(b.frames),
        Grouped(was),
        Grouped(a.frames)
    );
    let weight = match what {
        _ if !large => 0,
        _ if what.starts_with("transport.retr") || what.starts_with("transport.sequence") => 910,
        _ if what.starts_with("credits") => 900,
        _ => 500,
    };
    let test = Test { p, effect: (y - x) / (x + y) };
    Some(Difference {
        kind: Kind::Counter,
        what: what.to_owned(),
        a: Grouped(was).to_string(),
        b: Grouped(is).to_string(),
        sentence,
        test: Some(test),
        weight,
    })
}
