//! Expectations about a capture, as a TOML file, and the verdicts.
//!
//! ```toml
//! READ.p99 = "< 2ms"
//! "READ >= 64K".by_rdma = 1.0
//! findings.error = 0
//! agreed.signing = "signed"
//! transport.retransmissions = "<= 10"
//!
//! [[allow]]
//! rule = "RC-ECN"
//! by = "network"
//! ```

use crate::profile::{Profile, Requests};
use crate::schema::{list, object};
use rdmascope_analyzer::finding::{Rule, Severity};
use rdmascope_dissector::text::{Elapsed, escaped};
use serde_json::{Value as Json, json};
use std::fmt::{self, Write};
use toml::{Table, Value};

/// An error in a file of expectations.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It is not TOML.
    #[error("{0}")]
    Toml(String),
    /// An unknown name.
    #[error("{name}: {why}")]
    Name {
        /// The name.
        name: String,
        /// The known names.
        why: String,
    },
    /// A value of the wrong kind.
    #[error("{name} = {value}: {why}")]
    Value {
        /// The name.
        name: String,
        /// The value.
        value: String,
        /// The possible values.
        why: String,
    },
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Comparison {
    Less,
    AtMost,
    Equal,
    AtLeast,
    More,
    Not,
}

impl Comparison {
    const ALL: [(&'static str, Self); 6] = [
        ("<=", Self::AtMost),
        (">=", Self::AtLeast),
        ("!=", Self::Not),
        ("==", Self::Equal),
        ("<", Self::Less),
        (">", Self::More),
    ];

    fn of(text: &str) -> (Self, &str) {
        let found =
            Self::ALL.iter().find_map(|(sign, comparison)| Some((*comparison, text.strip_prefix(sign)?.trim())));
        found.unwrap_or((Self::Equal, text.strip_prefix('=').unwrap_or(text).trim()))
    }

    fn holds(self, is: f64, wanted: f64) -> bool {
        match self {
            Self::Less => is < wanted,
            Self::AtMost => is <= wanted,
            Self::Equal => (is - wanted).abs() < 1e-9,
            Self::AtLeast => is >= wanted,
            Self::More => is > wanted,
            Self::Not => (is - wanted).abs() >= 1e-9,
        }
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::ALL.iter().find(|(_, c)| c == self).map_or("", |(sign, _)| sign))
    }
}

/// Requests to which an expectation applies.
#[derive(Clone, Debug, PartialEq)]
struct Those {
    /// The command; `None` for all.
    command: Option<String>,
    length: Option<(Comparison, u32)>,
}

impl Those {
    fn of(&self, profile: &Profile) -> Requests {
        profile.those(self.command.as_deref(), |length| match (self.length, length) {
            (None, _) => true,
            (Some((comparison, wanted)), Some(is)) => comparison.holds(f64::from(is), f64::from(wanted)),
            (Some(_), None) => false,
        })
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Subject {
    Requests(Those, Metric),
    Severity(Severity),
    Rule(Rule),
    Counter(String),
    Connections,
    Frames,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Metric {
    Count,
    Errors,
    Unanswered,
    Bytes,
    ByRdma,
    Min,
    Max,
    Quantile(f64),
}

impl Metric {
    const NAMES: &'static str = "count, errors, unanswered, bytes, by_rdma, min, median, p90, p99, p999, max";

    fn of(name: &str) -> Option<Self> {
        Some(match name {
            "count" => Self::Count,
            "errors" => Self::Errors,
            "unanswered" => Self::Unanswered,
            "bytes" => Self::Bytes,
            "by_rdma" => Self::ByRdma,
            "min" => Self::Min,
            "max" => Self::Max,
            "median" | "p50" => Self::Quantile(0.5),
            "p90" => Self::Quantile(0.9),
            "p99" => Self::Quantile(0.99),
            "p999" => Self::Quantile(0.999),
            _ => return None,
        })
    }

    const fn is_time(self) -> bool {
        matches!(self, Self::Min | Self::Max | Self::Quantile(_))
    }

    fn read(self, r: &Requests) -> Option<f64> {
        let some = |ns: Option<i64>| ns.map(|ns| ns as f64);
        match self {
            Self::Count => Some(r.count as f64),
            Self::Errors => Some(r.errors as f64),
            Self::Unanswered => Some(r.unanswered as f64),
            Self::Bytes => Some(r.bytes as f64),
            Self::ByRdma => (r.count > 0).then(|| r.by_rdma as f64 / r.count as f64),
            Self::Min => some(r.latency.min()),
            Self::Max => some(r.latency.max()),
            Self::Quantile(part) => some(r.latency.quantile(part)),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Expected {
    Number(Subject, Comparison, f64),
    /// A negotiated value equals this.
    Agreed(String, Comparison, String),
}

/// Expectations, which [`Expectations::read`] reads from a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Expectations {
    rows: Vec<(String, Expected)>,
    /// Allowed findings, by rule and perhaps side.
    allowed: Vec<(Rule, Option<String>)>,
}

/// Result for one expectation.
#[derive(Clone, Debug, PartialEq)]
pub struct Checked {
    /// The expectation, as in the file.
    pub expected: String,
    /// The measured value.
    pub is: String,
    /// True if the expectation holds.
    pub holds: bool,
    /// The first frame of a finding that violates it.
    pub frame: Option<u64>,
}

impl Expectations {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// The text is not TOML, or contains an unknown name or a wrong value.
    pub fn read(text: &str) -> Result<Self, Error> {
        let table: Table =
            text.parse().map_err(|e: toml::de::Error| Error::Toml(e.to_string().trim_end().to_owned()))?;
        let mut all = Self::default();
        for (name, value) in &table {
            match (name.as_str(), value) {
                ("allow", Value::Array(rows)) => {
                    for row in rows {
                        all.allowed.push(allowed(row)?);
                    }
                }
                (name, Value::Table(metrics)) => all.table(name, metrics)?,
                (name, value) => {
                    let why = "a table is expected: READ.p99, findings.error, agreed.dialect".to_owned();
                    return Err(Error::Value { name: name.to_owned(), value: shown(value), why });
                }
            }
        }
        Ok(all)
    }

    fn table(&mut self, name: &str, metrics: &Table) -> Result<(), Error> {
        for (metric, value) in metrics {
            let full = format!("{} {metric}", if name.contains(' ') { format!("\"{name}\"") } else { name.to_owned() })
                .replace(' ', ".");
            let full = if name.contains(' ') { format!("\"{name}\".{metric}") } else { full };
            // credits.client.stalls
            if let Value::Table(deeper) = value {
                self.table(&format!("{name}.{metric}"), deeper)?;
                continue;
            }
            let bad = |why: &str| Error::Name { name: full.clone(), why: why.to_owned() };
            if name == "agreed" {
                let text = match value {
                    Value::String(text) => text.clone(),
                    other => shown(other),
                };
                let (comparison, wanted) = Comparison::of(&text);
                let known = metric.replace('_', " ");
                self.rows.push((
                    format!("{full} = {}", shown(value)),
                    Expected::Agreed(known, comparison, wanted.to_owned()),
                ));
                continue;
            }
            let subject = match (name, metric.as_str()) {
                ("findings", severity) if Severity::from_name(severity).is_some() => {
                    Severity::from_name(severity).map(Subject::Severity).ok_or_else(|| bad("no severity"))?
                }
                ("findings", id) => {
                    Subject::Rule(Rule::from_id(id).ok_or_else(|| bad("no such finding; rdmascope explain lists all"))?)
                }
                ("connections", "count") => Subject::Connections,
                ("capture", "frames") => Subject::Frames,
                (group, what) if COUNTERS.contains(&format!("{group}.{what}").as_str()) => {
                    Subject::Counter(format!("{group}.{what}"))
                }
                (group, _)
                    if matches!(
                        group.split('.').next(),
                        Some("transport" | "credits" | "messages" | "rdma" | "capture" | "connections")
                    ) =>
                {
                    return Err(bad(&format!("no such counter; there are {}", COUNTERS.join(", "))));
                }
                (those, metric) => {
                    let metric = Metric::of(metric)
                        .ok_or_else(|| bad(&format!("no such number; there are {}", Metric::NAMES)))?;
                    Subject::Requests(
                        requests(those)
                            .ok_or_else(|| bad("a command, or a command and a length, as in READ >= 64K"))?,
                        metric,
                    )
                }
            };
            let is_time = matches!(&subject, Subject::Requests(_, metric) if metric.is_time());
            let wrong = |why: &str| Error::Value { name: full.clone(), value: shown(value), why: why.to_owned() };
            let (comparison, wanted) = match value {
                Value::Integer(n) if !is_time => (Comparison::Equal, *n as f64),
                Value::Float(n) if !is_time => (Comparison::Equal, *n),
                Value::String(text) => {
                    let (comparison, rest) = Comparison::of(text.trim());
                    let number = if is_time { time(rest) } else { rest.parse().ok().or_else(|| size(rest)) };
                    let why = if is_time { "a time, as in \"< 2ms\"" } else { "a number, as in \"<= 10\"" };
                    (comparison, number.ok_or_else(|| wrong(why))?)
                }
                _ if is_time => return Err(wrong("a time, as in \"< 2ms\"")),
                _ => return Err(wrong("a number, or a comparison with one, as in \"<= 10\"")),
            };
            self.rows.push((format!("{full} = {}", shown(value)), Expected::Number(subject, comparison, wanted)));
        }
        Ok(())
    }

    /// Checks each expectation.
    pub fn check(&self, profile: &Profile) -> Vec<Checked> {
        self.rows.iter().map(|(text, expected)| self.one(profile, text, expected)).collect()
    }

    fn one(&self, profile: &Profile, text: &str, expected: &Expected) -> Checked {
        let counts = |(rule, by): &(Rule, &str)| {
            !self
                .allowed
                .iter()
                .any(|(allowed, whose)| allowed == rule && whose.as_deref().is_none_or(|whose| whose == *by))
        };
        let findings = |fits: &dyn Fn(Rule, Severity) -> bool| {
            let those = profile.findings.iter().filter(|(key, f)| counts(key) && fits(key.0, f.severity));
            let (mut count, mut names, mut frame) = (0, Vec::new(), None::<u64>);
            for ((rule, by), found) in those {
                count += 1;
                names.push(format!("{} by {by}", rule.id()));
                frame = Some(frame.map_or(found.frame, |f| f.min(found.frame)));
            }
            (
                count as f64,
                if names.is_empty() { "0".to_owned() } else { format!("{count}: {}", names.join(", ")) },
                frame,
            )
        };
        let plain = |n: f64| (Some(n), format!("{n}"), None);
        let (is, shown, frame) = match expected {
            Expected::Agreed(what, comparison, wanted) => {
                let values: Vec<&String> =
                    profile.agreed.get(what.as_str()).map(|v| v.keys().collect()).unwrap_or_default();
                let fits = |value: &String| match (comparison, value.parse::<f64>(), wanted.parse::<f64>()) {
                    (Comparison::Equal, ..) => value.eq_ignore_ascii_case(wanted),
                    (Comparison::Not, ..) => !value.eq_ignore_ascii_case(wanted),
                    (_, Ok(is), Ok(wanted)) => comparison.holds(is, wanted),
                    _ => false,
                };
                let holds = !values.is_empty() && values.iter().all(|v| fits(v));
                let is = if values.is_empty() {
                    "nothing".to_owned()
                } else {
                    values.into_iter().cloned().collect::<Vec<_>>().join(", ")
                };
                return Checked { expected: text.to_owned(), is, holds, frame: None };
            }
            Expected::Number(subject, ..) => match subject {
                Subject::Requests(those, metric) => {
                    let is = metric.read(&those.of(profile));
                    let shown = match is {
                        None => "no such request".to_owned(),
                        Some(ns) if metric.is_time() => Elapsed(ns as i64).to_string(),
                        // a share is never rounded up to a value that would meet the expectation
                        Some(n) if n.fract() != 0.0 => format!("{}", (n * 1e4 + 1e-6).floor() / 1e4),
                        Some(n) => format!("{n}"),
                    };
                    (is, shown, None)
                }
                Subject::Severity(severity) => {
                    let (n, shown, frame) = findings(&|_, s| s == *severity);
                    (Some(n), shown, frame)
                }
                Subject::Rule(rule) => {
                    let (n, shown, frame) = findings(&|r, _| r == *rule);
                    (Some(n), shown, frame)
                }
                Subject::Counter(what) => plain(profile.counters.get(what.as_str()).copied().unwrap_or(0) as f64),
                Subject::Connections => plain(profile.connections as f64),
                Subject::Frames => plain(profile.frames as f64),
            },
        };
        let Expected::Number(_, comparison, wanted) = expected else { unreachable!("told above") };
        // a missing value is neither less nor more than anything
        let holds = is.is_some_and(|is| comparison.holds(is, *wanted));
        Checked { expected: text.to_owned(), is: shown, holds, frame: frame.filter(|_| !holds) }
    }

    /// Expectations that a good capture meets with a margin, as a file.
    pub fn write(profile: &Profile) -> String {
        let mut out = String::from("# Written from a good capture. Limits of times are twice what was measured.\n");
        let _ = writeln!(out, "findings.error = 0");
        let warnings = profile.findings.values().filter(|f| f.severity == Severity::Warn).count();
        let _ = writeln!(out, "findings.warn = \"<= {warnings}\"");
        for (what, n) in &profile.counters {
            if what.starts_with("transport.") && *n == 0 {
                let _ = writeln!(out, "{what} = 0");
            }
        }
        for what in ["dialect", "signing", "encryption"] {
            if let Some(values) = profile.agreed.get(what).filter(|v| v.len() == 1) {
                let _ = values
                    .keys()
                    .next()
                    .map(|value| writeln!(out, "agreed.{what} = {}", shown(&Value::String(value.clone()))));
            }
        }
        let mut commands: Vec<&'static str> = profile.requests.keys().map(|(command, _)| *command).collect();
        commands.dedup();
        for command in commands {
            let all = profile.those(Some(command), |_| true);
            let name = if command.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
                command.to_owned()
            } else {
                format!("{:?}", command)
            };
            if let Some(p99) = all.latency.quantile(0.99) {
                let _ = writeln!(out, "{name}.p99 = \"<= {}us\"", (p99.saturating_mul(2) / 1000).max(1));
            }
            if all.unanswered == 0 {
                let _ = writeln!(out, "{name}.unanswered = 0");
            }
            if all.by_rdma > 0 && all.bytes > 0 {
                let part = all.by_rdma as f64 / all.count as f64;
                let _ = writeln!(out, "{name}.by_rdma = \">= {}\"", (part * 1000.0).floor() / 1000.0);
            }
        }
        for ((rule, by), found) in &profile.findings {
            if found.severity == Severity::Error {
                let _ = writeln!(out, "\n[[allow]]\nrule = {:?}\nby = {by:?}", rule.id());
            }
        }
        out
    }
}

/// Counters that can be used in a file.
const COUNTERS: &[&str] = &[
    "capture.lost",
    "capture.cut",
    "capture.pauses",
    "transport.retransmissions",
    "transport.naks",
    "transport.rnr_naks",
    "transport.sequence_gaps",
    "transport.duplicates",
    "transport.icrc_bad",
    "transport.crc_bad",
    "transport.ecn_marked",
    "transport.cnps",
    "credits.client.stalls",
    "credits.server.stalls",
    "credits.client.overruns",
    "credits.server.overruns",
    "messages.client",
    "messages.server",
    "messages.fragmented",
    "messages.keepalives",
    "rdma.reads",
    "rdma.writes",
    "rdma.outside_advertised",
];

fn allowed(row: &Value) -> Result<(Rule, Option<String>), Error> {
    let bad = |why: &str| Error::Value { name: "allow".to_owned(), value: shown(row), why: why.to_owned() };
    let table = row.as_table().ok_or_else(|| bad("rule = \"ID\", and perhaps by = \"client\""))?;
    if let Some(other) = table.keys().find(|key| !matches!(key.as_str(), "rule" | "by")) {
        return Err(bad(&format!("there is no {other}: only rule and by")));
    }
    let rule = table
        .get("rule")
        .and_then(Value::as_str)
        .and_then(Rule::from_id)
        .ok_or_else(|| bad("no such finding; rdmascope explain lists all"))?;
    let by = table.get("by").and_then(Value::as_str).map(str::to_ascii_lowercase);
    match by.as_deref() {
        None | Some("client" | "server" | "network" | "capture" | "unknown") => Ok((rule, by)),
        Some(_) => Err(bad("by is client, server, network, capture or unknown")),
    }
}

/// A value in the syntax of the file.
fn shown(value: &Value) -> String {
    match value {
        // strings have the same syntax in TOML and JSON
        Value::String(text) => json!(text).to_string(),
        Value::Integer(n) => n.to_string(),
        Value::Float(n) => n.to_string(),
        Value::Boolean(b) => b.to_string(),
        Value::Datetime(_) => "a date".to_owned(),
        Value::Array(_) => "an array".to_owned(),
        Value::Table(_) => "a table".to_owned(),
    }
}

/// `READ`, `READ >= 64K`, `*`.
fn requests(text: &str) -> Option<Those> {
    let at = text.find(['<', '>', '=', '!']).unwrap_or(text.len());
    let (command, length) = text.split_at(at);
    let command = command.trim();
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | ' ' | '/');
    if command.is_empty() || (command != "*" && !command.chars().all(fits)) {
        return None;
    }
    let length = match length.trim() {
        "" => None,
        text => {
            let (comparison, rest) = Comparison::of(text);
            let bytes = size(rest)?;
            Some((comparison, (bytes as u64).try_into().ok()?))
        }
    };
    Some(Those { command: (command != "*").then(|| command.to_owned()), length })
}

/// A number of bytes: `65536`, `64K`, `1M`, `1 MiB`.
fn size(text: &str) -> Option<f64> {
    let at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..at].parse().ok()?;
    let unit = match text[at..].trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "k" | "kib" => 1024.0,
        "m" | "mib" => 1_048_576.0,
        "g" | "gib" => 1_073_741_824.0,
        _ => return None,
    };
    Some(number * unit)
}

/// A time in ns: `2ms`, `15 us`, `1.5s`.
fn time(text: &str) -> Option<f64> {
    let at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..at].parse().ok()?;
    let unit = match text[at..].trim() {
        "ns" => 1.0,
        "us" | "µs" | "μs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return None,
    };
    Some(number * unit)
}

/// Text for people: a line each, failed expectations first.
pub fn text(verdicts: &[Checked]) -> String {
    let mut out = String::new();
    let failed = verdicts.iter().filter(|v| !v.holds).count();
    let _ = match (failed, verdicts.len()) {
        (0, all) => writeln!(out, "All {all} expectations hold."),
        (failed, all) => writeln!(out, "{failed} of {all} expectations do not hold."),
    };
    for v in verdicts.iter().filter(|v| !v.holds).chain(verdicts.iter().filter(|v| v.holds)) {
        let _ = write!(out, "  {} {}: {}", if v.holds { "✓" } else { "✗" }, escaped(&v.expected), escaped(&v.is));
        if let Some(frame) = v.frame {
            let _ = write!(out, " (first in frame {frame})");
        }
        out.push('\n');
    }
    out
}

/// The Test Anything Protocol, version 13.
pub fn tap(verdicts: &[Checked]) -> String {
    let mut out = format!("TAP version 13\n1..{}\n", verdicts.len());
    for (n, v) in verdicts.iter().enumerate() {
        let name = escaped(&v.expected).replace('#', "\\#");
        let _ = writeln!(out, "{} {} - {name}", if v.holds { "ok" } else { "not ok" }, n + 1);
        if !v.holds {
            let _ = writeln!(out, "  ---\n  is: {}\n  ...", json!(escaped(&v.is)));
        }
    }
    out
}

fn xml(text: &str) -> String {
    let text = escaped(text);
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// JUnit's XML, as CI systems read it.
pub fn junit(verdicts: &[Checked]) -> String {
    let failed = verdicts.iter().filter(|v| !v.holds).count();
    let mut out = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n  <testsuite name=\"rdmascope\" tests=\"{}\" \
            failures=\"{failed}\" \
        errors=\"0\">\n",
        verdicts.len()
    );
    for v in verdicts {
        let _ = write!(out, "    <testcase classname=\"rdmascope.expect\" name=\"{}\"", xml(&v.expected));
        if v.holds {
            out.push_str("/>\n");
        } else {
            let _ = writeln!(out, "><failure message=\"it is {}\"/></testcase>", xml(&v.is));
        }
    }
    out.push_str("  </testsuite>\n</testsuites>\n");
    out
}

/// SARIF 2.1.0: a result for each expectation that does not hold.
pub fn sarif(verdicts: &[Checked], capture: &str) -> Json {
    let failed: Vec<Json> = verdicts
        .iter()
        .filter(|v| !v.holds)
        .map(|v| {
            let at = v.frame.map_or(String::new(), |frame| format!(" (first in frame {frame})"));
            json!({
                "ruleId": "expectation",
                "level": "error",
                "message": {"text": format!("expected {}; it is {}{at}", escaped(&v.expected), escaped(&v.is))},
                "locations": [{"physicalLocation": {"artifactLocation": {"uri": uri(capture)}}}],
            })
        })
        .collect();
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {
                "name": "rdmascope",
                "version": env!("CARGO_PKG_VERSION"),
                "rules": [{"id": "expectation", "shortDescription": {"text": "The capture is not as expected."}}],
            }},
            "results": failed,
        }],
    })
}

/// The JSON Schema of [`sarif`]: the part of SARIF 2.1.0 that it writes.
pub fn sarif_schema() -> Json {
    let text = json!({"type": "string"});
    let message = object(&[("text", &text, "A sentence.")]);
    let artifact = object(&[("uri", &text, "The capture, as a URI reference.")]);
    let location =
        object(&[("physicalLocation", &object(&[("artifactLocation", &artifact, "The file.")]), "Where it is.")]);
    let result = object(&[
        ("ruleId", &json!({"const": "expectation"}), "Always the same rule."),
        ("level", &json!({"const": "error"}), "Always an error."),
        ("message", &message, "The expectation, and what is there instead."),
        ("locations", &list(&location), "The capture."),
    ]);
    let rule = object(&[
        ("id", &json!({"const": "expectation"}), "Name of the rule."),
        ("shortDescription", &message, "What the rule says."),
    ]);
    let driver = object(&[
        ("name", &json!({"const": "rdmascope"}), "The program."),
        ("version", &text, "Version of the program."),
        ("rules", &list(&rule), "The rules that results name."),
    ]);
    let run = object(&[
        ("tool", &object(&[("driver", &driver, "The program and its rules.")]), "Who says so."),
        ("results", &list(&result), "Expectations that do not hold."),
    ]);
    let mut schema = object(&[
        ("$schema", &text, "Address of the schema of SARIF."),
        ("version", &json!({"const": "2.1.0"}), "Version of SARIF."),
        ("runs", &list(&run), "One run."),
    ]);
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("rdmascope analyze --verdicts sarif");
    schema
}

/// A path as a URI reference (RFC 3986 2.1).
fn uri(path: &str) -> String {
    let mut out = String::new();
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~' | b'/') {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile() -> Profile {
        let mut profile = Profile { frames: 100, connections: 1, ..Profile::default() };
        let mut small = Requests { count: 10, bytes: 40_960, ..Requests::default() };
        let mut large = Requests { count: 30, bytes: 30 << 20, by_rdma: 30, ..Requests::default() };
        (0..10).for_each(|n| small.latency.add(100_000 + n));
        (0..30).for_each(|n| large.latency.add(1_000_000 + n * 10_000));
        profile.requests.insert(("READ", Some(4096)), small);
        profile.requests.insert(("READ", Some(1 << 20)), large);
        profile.agreed.entry("signing").or_default().insert("signed".to_owned(), 1);
        profile.counters.insert("transport.retransmissions", 3);
        let found = crate::profile::Found {
            severity: Severity::Error,
            certainty: rdmascope_analyzer::finding::Certainty::Certain,
            count: 2,
            frame: 17,
        };
        profile.findings.insert((Rule::ALL[0], "client"), found);
        profile
    }

    fn judged(text: &str) -> Vec<bool> {
        Expectations::read(text).unwrap().check(&profile()).iter().map(|v| v.holds).collect()
    }

    #[test]
    fn what_holds_holds() {
        assert_eq!(
            judged("READ.p99 = \"< 2ms\"\n\"READ >= 64K\".by_rdma = 1.0\n\"READ < 64K\".by_rdma = 0"),
            [true, true, true]
        );
        assert_eq!(
            judged("READ.median = \"> 5ms\"\nWRITE.p99 = \"< 1s\""),
            [false, false],
            "what is not there is not fast"
        );
        assert_eq!(
            judged("findings.error = 0\nagreed.signing = \"signed\"\ntransport.retransmissions = \"<= 3\""),
            [true, false, true],
            "in the order of names"
        );
        let allow = format!("findings.error = 0\n[[allow]]\nrule = {:?}\nby = \"client\"", Rule::ALL[0].id());
        assert_eq!(judged(&allow), [true]);
        assert_eq!(judged(&allow.replace("client", "server")), [false]);
        assert_eq!(judged("\"*\".count = 40\ncredits.client.stalls = 0\nconnections.count = 1"), [true, true, true]);
    }

    #[test]
    fn a_share_is_short_and_never_rounded_up() {
        let mut profile = profile();
        profile.requests.insert(("WRITE", Some(8192)), Requests { count: 3, by_rdma: 2, ..Requests::default() });
        let checked = Expectations::read("WRITE.by_rdma = \">= 0.6667\"\nREAD.by_rdma = 0.75").unwrap().check(&profile);
        let told: Vec<_> = checked.iter().map(|c| (c.is.as_str(), c.holds)).collect();
        assert_eq!(told, [("0.75", true), ("0.6666", false)], "in the order of names");
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for wrong in [
            "READ.p99 = 2",
            "READ.p99 = \"< 2 parsecs\"",
            "READ.speed = 1",
            "findings.NOT-A-RULE = 0",
            "transport.speed = 1",
            "findings = 3",
            "[[allow]]\nrule = \"X\"",
            "= =",
            "\"READ >= lots\".count = 1",
        ] {
            assert!(Expectations::read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_file_written_from_a_capture_holds_for_it() {
        let mut profile = profile();
        profile.findings.clear();
        let written = Expectations::write(&profile);
        let verdicts = Expectations::read(&written).unwrap().check(&profile);
        assert!(!verdicts.is_empty() && verdicts.iter().all(|v| v.holds), "{written}\n{verdicts:?}");
    }

    #[test]
    fn every_form_says_what_does_not_hold() {
        let verdicts = Expectations::read("findings.error = 0\nREAD.count = 40").unwrap().check(&profile());
        assert!(text(&verdicts).starts_with("1 of 2 expectations do not hold."));
        assert!(text(&verdicts).contains("frame 17"));
        assert!(tap(&verdicts).starts_with("TAP version 13\n1..2\n"));
        assert_eq!(tap(&verdicts).matches("not ok").count(), 1);
        assert!(junit(&verdicts).contains("failures=\"1\""));
        let sarif = sarif(&verdicts, "a capture.pcap");
        assert_eq!(sarif["runs"][0]["results"].as_array().unwrap().len(), 1);
        assert_eq!(
            sarif["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"],
            "a%20capture.pcap"
        );
    }
}
