//! `-z`: tables over all frames, from the results of the analysis: frames and bytes by time, by protocol and by host,
//! times of requests, findings.
//!
//! The names are tshark's. A tap processes every frame that is read, regardless of `-Y`; each may have a filter of its
//! own.

use crate::dissection::Dissected;
use crate::fields::filter;
use crate::output::follow::Follow;
use anyhow::{Result, bail};
use rdmascope_analyzer::report::Report;
use rdmascope_dissector::extract::{Extractor, Need, Slot};
use rdmascope_dissector::field::Def;
use rdmascope_dissector::filter::Filter;
use rdmascope_dissector::registry::Registry;
use rdmascope_dissector::render::{Stored, Style, show};
use rdmascope_dissector::text::escaped;
use rdmascope_dissector::wire::rpc::Program;
use std::collections::{BTreeMap, HashSet};
use std::io::Write;

/// Maximum number of rows of one table. Later ones are counted, and the count is printed.
const ROWS_MAX: usize = 100_000;

/// The requested tables.
#[derive(Default)]
pub struct Taps {
    taps: Vec<Tap>,
}

enum Tap {
    Intervals(Intervals),
    Hierarchy { protocols: Slot, filter: Option<Filter>, text: String, rows: BTreeMap<String, Sum> },
    Hosts(Hosts),
    Times(Times),
    Follow(Box<Follow>),
    Expert(Expert),
}

/// The findings of the finished analysis, as `analyze` has them, and the frames that cannot be decoded.
struct Expert {
    malformed: Slot,
    filter: Option<Filter>,
    /// The frames that the filter passes.
    passed: HashSet<u64>,
    /// The least severity, by place in [`SEVERITIES`].
    most: usize,
    rows: BTreeMap<(usize, String, String), u64>,
}

/// Severities by the words of `-z expert`, with the titles of their lists; the analysis has no finding of the last.
const SEVERITIES: [(&str, &str); 4] = [("error", "Errors"), ("warn", "Warns"), ("note", "Notes"), ("chat", "Chats")];

#[derive(Clone, Copy, Default)]
struct Sum {
    frames: u64,
    bytes: u64,
}

impl Sum {
    fn add(&mut self, d: &Dissected) {
        self.frames += 1;
        self.bytes += u64::from(d.wire_len);
    }
}

struct Intervals {
    /// ns; 0 for one interval over everything.
    every: i64,
    columns: Vec<(String, Option<Filter>)>,
    /// A row per interval that has frames, by its number.
    rows: BTreeMap<i64, Vec<Sum>>,
    last: i64,
}

struct Hosts {
    title: &'static str,
    endpoints: bool,
    /// Addresses, and ports if the kind has them.
    slots: [Slot; 2],
    ports: Option<[Slot; 2]>,
    filter: Option<Filter>,
    text: String,
    /// One end and the other; of endpoints, the end alone. There and back.
    rows: BTreeMap<(String, String), Row>,
    left_out: u64,
}

#[derive(Clone, Copy, Default)]
struct Row {
    there: Sum,
    back: Sum,
    first: i64,
    last: i64,
}

struct Times {
    title: &'static str,
    time: Slot,
    /// Fields that number the request; the first one that the frame has is used.
    numbers: Vec<Slot>,
    /// Of RPC, whose procedures have numbers of their own in each program: the program, and the request by name.
    named: Option<[Slot; 2]>,
    filter: Option<Filter>,
    text: String,
    /// Program, number and name.
    rows: BTreeMap<(u64, u64, String), Latency>,
}

#[derive(Clone, Copy, Default)]
struct Latency {
    calls: u64,
    least: f64,
    most: f64,
    sum: f64,
}

/// Taps of tshark for which another command or tap is used here.
const ELSEWHERE: [(&str, &str); 5] = [
    ("smb,srt", "SMB 1 is not decoded; -z smb2,srt is the table of SMB2"),
    ("nfs", "-z rpc,srt is the table of NFS"),
    ("flow", "rdmascope tui FILE draws the sequence of a request"),
    ("credits", "rdmascope analyze FILE --format json --credits lists them"),
    ("rpc,programs", "-z rpc,srt is the table of RPC"),
];

/// Fields of both ends.
type Ends = [&'static str; 2];

/// Kinds of conversations: title, fields of addresses, fields of ports.
const KINDS: [(&str, &str, Ends, Option<Ends>); 6] = [
    ("eth", "Ethernet", ["eth.src", "eth.dst"], None),
    ("ip", "IPv4", ["ip.src", "ip.dst"], None),
    ("ipv6", "IPv6", ["ipv6.src", "ipv6.dst"], None),
    ("tcp", "TCP", ["ip.src", "ip.dst"], Some(["tcp.srcport", "tcp.dstport"])),
    ("udp", "UDP", ["ip.src", "ip.dst"], Some(["udp.srcport", "udp.dstport"])),
    ("infiniband", "InfiniBand", ["ip.src", "ip.dst"], Some(["infiniband.bth.destqp", "infiniband.bth.destqp"])),
];

impl Taps {
    /// Reads the arguments of `-z` and makes `extractor` extract the fields they need.
    pub fn new(arguments: &[String], registry: &Registry, extractor: &mut Extractor) -> Result<Self> {
        let mut taps = Vec::new();
        for argument in arguments {
            taps.push(tap(argument, registry, extractor)?);
        }
        Ok(Self { taps })
    }

    /// True if no tap was requested.
    pub fn is_empty(&self) -> bool {
        self.taps.is_empty()
    }

    /// Takes in a frame, of which the extractor has the values.
    pub fn frame(&mut self, d: &Dissected, extractor: &Extractor) {
        self.taps.iter_mut().for_each(|tap| tap.frame(d, extractor));
    }

    /// True if a table needs the findings of the finished analysis.
    pub fn wants_report(&self) -> bool {
        self.taps.iter().any(|tap| matches!(tap, Tap::Expert(_)))
    }

    /// Takes in the analysis of all frames.
    pub fn report(&mut self, report: &Report) {
        for tap in &mut self.taps {
            if let Tap::Expert(expert) = tap {
                expert.report(report);
            }
        }
    }

    /// Writes the tables.
    pub fn end(&mut self, out: &mut Vec<u8>) {
        self.taps.iter_mut().for_each(|tap| tap.end(out));
    }
}

fn tap(argument: &str, registry: &Registry, extractor: &mut Extractor) -> Result<Tap> {
    if let Some((_, instead)) = ELSEWHERE.iter().find(|(name, _)| argument.starts_with(name)) {
        bail!("-z {} is not supported: {instead}", escaped(argument));
    }
    let want = |name: &str, extractor: &mut Extractor| -> Slot {
        let def: Def = registry.find(name).expect("a field of ours");
        extractor.want(def, Need::Value)
    };
    let bound = |text: &str, extractor: &mut Extractor| -> Result<Option<Filter>> {
        let mut filter = filter(Some(text).filter(|t| !t.trim().is_empty()), registry)?;
        if let Some(filter) = &mut filter {
            filter.bind(extractor);
        }
        Ok(filter)
    };
    let parts: Vec<&str> = argument.splitn(3, ',').collect();
    Ok(match parts[..] {
        ["io", "phs", ..] => {
            let text = parts.get(2).copied().unwrap_or("");
            Tap::Hierarchy {
                protocols: want("frame.protocols", extractor),
                filter: bound(text, extractor)?,
                text: text.into(),
                rows: BTreeMap::new(),
            }
        }
        ["io", "stat", rest] => {
            let mut columns = rest.split(',');
            let every = columns.next().unwrap_or("");
            let Ok(seconds) = every.parse::<f64>() else {
                bail!("-z io,stat needs seconds, not \"{}\"", escaped(every))
            };
            let every = if seconds.is_finite() && seconds > 0.0 { (seconds * 1e9) as i64 } else { 0 };
            let mut named = Vec::new();
            for column in columns {
                if column.contains('(')
                    && ["COUNT", "SUM", "MIN", "MAX", "AVG", "LOAD"].iter().any(|f| column.starts_with(f))
                {
                    bail!(
                        "-z io,stat counts frames and bytes; {} is not supported: use -T fields -e FIELD",
                        escaped(column)
                    );
                }
                named.push((column.to_owned(), bound(column, extractor)?));
            }
            if named.is_empty() {
                named.push((String::new(), None));
            }
            Tap::Intervals(Intervals { every, columns: named, rows: BTreeMap::new(), last: 0 })
        }
        ["conv" | "endpoints" | "host" | "hosts", ..] => {
            let endpoints = parts[0] != "conv";
            let kind = parts.get(1).copied().unwrap_or("ip");
            let Some((_, title, addresses, ports)) = KINDS.iter().find(|(name, ..)| *name == kind) else {
                let kinds: Vec<&str> = KINDS.iter().map(|(name, ..)| *name).collect();
                bail!("-z {} supports {}, not \"{}\"", parts[0], kinds.join(", "), escaped(kind));
            };
            let text = parts.get(2).copied().unwrap_or("");
            Tap::Hosts(Hosts {
                title,
                endpoints,
                slots: addresses.map(|name| want(name, extractor)),
                ports: ports.map(|names| names.map(|name| want(name, extractor))),
                filter: bound(text, extractor)?,
                text: text.into(),
                rows: BTreeMap::new(),
                left_out: 0,
            })
        }
        ["smb2" | "rpc", "srt", ..] => {
            let is_smb = parts[0] == "smb2";
            let text = parts.get(2).copied().unwrap_or("");
            let (condition, text) = if is_smb { (text.to_owned(), text) } else { of_program(text) };
            let names: &[&str] =
                if is_smb { &["smb2.cmd"] } else { &["nfs.main_opcode", "nfs.procedure_v3", "rpc.procedure"] };
            Tap::Times(Times {
                title: if is_smb { "SMB2" } else { "RPC" },
                time: want(if is_smb { "smb2.time" } else { "rpc.time" }, extractor),
                named: (!is_smb)
                    .then(|| ["rpc.program", "rdmascope.exchange.command"].map(|name| want(name, extractor))),
                numbers: names
                    .iter()
                    .filter(|name| registry.find(name).is_some())
                    .map(|name| want(name, extractor))
                    .collect(),
                filter: bound(&condition, extractor)?,
                text: text.into(),
                rows: BTreeMap::new(),
            })
        }
        ["follow", ..] => {
            let rest = argument.split_once(',').map_or("", |(_, rest)| rest);
            Tap::Follow(Box::new(Follow::new(rest, registry, extractor)?))
        }
        ["expert", ..] => {
            let rest = argument.split_once(',').map_or("", |(_, rest)| rest);
            let (word, behind) = rest.split_once(',').unwrap_or((rest, ""));
            let least = SEVERITIES.iter().position(|(name, _)| *name == word);
            let text = if least.is_some() || word == "comment" { behind } else { rest };
            Tap::Expert(Expert {
                malformed: want("_ws.malformed", extractor),
                filter: bound(text, extractor)?,
                passed: HashSet::new(),
                most: least.unwrap_or(SEVERITIES.len()),
                rows: BTreeMap::new(),
            })
        }
        _ => bail!(
            "-z knows io,stat,SECONDS[,FILTER]… io,phs conv,KIND endpoints,KIND smb2,srt rpc,srt expert \
                follow,tcp,ascii,N, not \"{}\"; \
            analyze says more",
            escaped(argument)
        ),
    })
}

/// The argument of `rpc,srt`, where tshark has program and version in front of the filter: a filter for all of them, and
/// the one that was given.
fn of_program(mut text: &str) -> (String, &str) {
    let mut all = Vec::new();
    for field in ["rpc.program", "rpc.programversion"] {
        let (number, rest) = text.split_once(',').unwrap_or((text, ""));
        if number.is_empty() || !number.bytes().all(|b| b.is_ascii_digit()) {
            break;
        }
        all.push(format!("{field} == {number}"));
        text = rest;
    }
    if !text.is_empty() {
        all.push(format!("({text})"));
    }
    (all.join(" && "), text)
}

fn first(extractor: &Extractor, slot: Slot) -> Option<String> {
    extractor.values(slot).next().map(|(def, v)| show(def, v, Style::Fields))
}

fn passes(filter: &Option<Filter>, extractor: &Extractor) -> bool {
    filter.as_ref().is_none_or(|f| f.matches(extractor))
}

impl Tap {
    fn frame(&mut self, d: &Dissected, extractor: &Extractor) {
        match self {
            Self::Intervals(t) => {
                let row = if t.every == 0 { 0 } else { d.relative_ns.div_euclid(t.every) };
                t.last = t.last.max(d.relative_ns);
                if t.rows.len() >= ROWS_MAX && !t.rows.contains_key(&row) {
                    return;
                }
                let sums = t.rows.entry(row).or_insert_with(|| vec![Sum::default(); t.columns.len()]);
                for ((_, filter), sum) in t.columns.iter().zip(sums) {
                    if passes(filter, extractor) {
                        sum.add(d);
                    }
                }
            }
            Self::Hierarchy { protocols, filter, rows, .. } => {
                if !passes(filter, extractor) {
                    return;
                }
                let Some(path) = first(extractor, *protocols) else { return };
                let path = if path.is_empty() { "frame".into() } else { format!("frame:{path}") };
                for end in path.match_indices(':').map(|(at, _)| at).chain([path.len()]) {
                    if rows.len() < ROWS_MAX || rows.contains_key(&path[..end]) {
                        rows.entry(path[..end].to_owned()).or_default().add(d);
                    }
                }
            }
            Self::Hosts(t) => t.frame(d, extractor),
            Self::Times(t) => t.frame(extractor),
            Self::Follow(t) => t.frame(d, extractor),
            Self::Expert(t) => t.frame(d, extractor),
        }
    }

    fn end(&mut self, out: &mut Vec<u8>) {
        // writing to a vector cannot fail
        let _ = match self {
            Self::Intervals(t) => t.end(out),
            Self::Hierarchy { rows, text, .. } => hierarchy(out, rows, text),
            Self::Hosts(t) => t.end(out),
            Self::Times(t) => t.end(out),
            Self::Follow(t) => t.end(out),
            Self::Expert(t) => t.end(out),
        };
    }
}

const LINE: &str = "===================================================================";

fn hierarchy(out: &mut Vec<u8>, rows: &BTreeMap<String, Sum>, text: &str) -> std::io::Result<()> {
    writeln!(out, "\n{LINE}\nProtocol Hierarchy Statistics\nFilter: {}\n", escaped(text))?;
    // in the order of a tree: a colon sorts before all characters of names but the dash and the dot
    let mut paths: Vec<(Vec<&str>, &Sum)> = rows.iter().map(|(path, sum)| (path.split(':').collect(), sum)).collect();
    paths.sort_by(|a, b| a.0.cmp(&b.0));
    for (path, sum) in paths {
        let depth = path.len() - 1;
        let name = path.last().copied().unwrap_or("");
        let width = 40_usize.saturating_sub(2 * depth + 1);
        writeln!(out, "{:indent$}{name:<width$}frames:{} bytes:{}", "", sum.frames, sum.bytes, indent = 2 * depth)?;
    }
    writeln!(out, "{LINE}")
}

impl Expert {
    fn frame(&mut self, d: &Dissected, extractor: &Extractor) {
        if self.filter.is_some() {
            if !passes(&self.filter, extractor) {
                return;
            }
            self.passed.insert(d.number);
        }
        if let Some(text) = first(extractor, self.malformed) {
            self.add((0, "Malformed".into(), text), 1);
        }
    }

    fn add(&mut self, row: (usize, String, String), n: u64) {
        if row.0 <= self.most && (self.rows.len() < ROWS_MAX || self.rows.contains_key(&row)) {
            *self.rows.entry(row).or_default() += n;
        }
    }

    /// Takes in the findings of the analysis: those with a frame that the filter passes.
    fn report(&mut self, report: &Report) {
        for finding in report.findings.iter() {
            let n = match self.filter {
                None => finding.count,
                // a frame may have several
                Some(_) => match finding.frames.iter().filter(|frame| self.passed.contains(frame)).count() {
                    passed if passed == finding.frames.len() => finding.count,
                    passed => passed as u64,
                },
            };
            let rank = SEVERITIES.iter().position(|(name, _)| *name == finding.severity.name());
            if n > 0 {
                let id = finding.rule.id().to_owned();
                self.add((rank.unwrap_or(SEVERITIES.len() - 1), id, report.sentence(finding)), n);
            }
        }
    }

    fn end(&self, out: &mut Vec<u8>) -> std::io::Result<()> {
        for (rank, (_, title)) in SEVERITIES.into_iter().enumerate() {
            let rows: Vec<_> = self.rows.iter().filter(|((r, ..), _)| *r == rank).collect();
            if rows.is_empty() {
                continue;
            }
            let sum: u64 = rows.iter().map(|(_, n)| **n).sum();
            writeln!(out, "\n{title} ({sum})\n=============\n   Frequency  Rule                      Summary")?;
            for ((_, id, text), n) in rows {
                writeln!(out, "{n:>12}  {id:<24}  {}", escaped(text))?;
            }
        }
        Ok(())
    }
}

impl Intervals {
    fn end(&self, out: &mut Vec<u8>) -> std::io::Result<()> {
        let duration = self.last as f64 / 1e9;
        writeln!(out, "\n{LINE}\nIO Statistics\nDuration: {duration:.6} secs")?;
        for (n, (text, _)) in self.columns.iter().enumerate() {
            writeln!(
                out,
                "Col {:>2}: {}",
                n + 1,
                if text.is_empty() { "Frames and bytes".into() } else { escaped(text) }
            )?;
        }
        write!(out, "{:<24}", "Interval")?;
        self.columns
            .iter()
            .enumerate()
            .try_for_each(|(n, _)| write!(out, "|{:>10} {:>14}", format!("{} Frames", n + 1), "Bytes"))?;
        writeln!(out)?;
        let last = self.rows.last_key_value().map_or(0, |(row, _)| *row);
        let none = vec![Sum::default(); self.columns.len()];
        let from = self.rows.first_key_value().map_or(0, |(row, _)| *row).min(0);
        // intervals without a frame are rows too, unless there would be too many of them
        let all: Vec<i64> = if last.saturating_sub(from) < ROWS_MAX as i64 {
            (from..=last).collect()
        } else {
            self.rows.keys().copied().collect()
        };
        for row in all {
            let seconds = |n: i64| n.saturating_mul(self.every) as f64 / 1e9;
            let (start, end) = (seconds(row), if row == last { duration } else { seconds(row + 1) });
            write!(out, "{:<24}", format!("{start:.3} <> {end:.3}"))?;
            for sum in self.rows.get(&row).unwrap_or(&none) {
                write!(out, "|{:>10} {:>14}", sum.frames, sum.bytes)?;
            }
            writeln!(out)?;
        }
        writeln!(out, "{LINE}")
    }
}

impl Hosts {
    fn frame(&mut self, d: &Dissected, extractor: &Extractor) {
        if !passes(&self.filter, extractor) {
            return;
        }
        let ends = [0, 1].map(|side| {
            let address = first(extractor, self.slots[side])?;
            match self.ports {
                Some(ports) => Some(format!("{address}:{}", first(extractor, ports[side])?)),
                None => Some(address),
            }
        });
        let [Some(src), Some(dst)] = ends else { return };
        let mut add = |key: (String, String), back: bool| {
            if self.rows.len() >= ROWS_MAX && !self.rows.contains_key(&key) {
                self.left_out += 1;
                return;
            }
            let row = self.rows.entry(key).or_insert(Row { first: d.relative_ns, ..Row::default() });
            if back { &mut row.back } else { &mut row.there }.add(d);
            row.last = d.relative_ns;
        };
        if self.endpoints {
            add((src, String::new()), false);
            add((dst, String::new()), true);
        } else if src <= dst {
            add((src, dst), false);
        } else {
            add((dst, src), true);
        }
    }

    fn end(&self, out: &mut Vec<u8>) -> std::io::Result<()> {
        let what = if self.endpoints { "Endpoints" } else { "Conversations" };
        writeln!(
            out,
            "{LINE}\n{} {what}\nFilter:{}",
            self.title,
            if self.text.is_empty() { "<No Filter>".into() } else { escaped(&self.text) }
        )?;
        let mut rows: Vec<_> = self.rows.iter().collect();
        rows.sort_by_key(|(_, row)| std::cmp::Reverse(row.there.bytes + row.back.bytes));
        if self.endpoints {
            writeln!(
                out,
                "{:<46} {:>10} {:>14} {:>10} {:>14} {:>10} {:>14}",
                "", "Packets", "Bytes", "Tx Packets", "Tx Bytes", "Rx Packets", "Rx Bytes"
            )?;
            for ((end, _), Row { there, back, .. }) in rows {
                let (frames, bytes) = (there.frames + back.frames, there.bytes + back.bytes);
                writeln!(
                    out,
                    "{end:<46} {frames:>10} {bytes:>14} {:>10} {:>14} {:>10} {:>14}",
                    there.frames, there.bytes, back.frames, back.bytes
                )?;
            }
        } else {
            let head = ["<- Frames", "Bytes", "-> Frames", "Bytes", "Frames", "Bytes", "Start", "Duration"];
            write!(out, "{:<64}", "")?;
            head.iter().try_for_each(|h| write!(out, " {h:>12}"))?;
            writeln!(out)?;
            for ((a, b), Row { there, back, first, last }) in rows {
                let (frames, bytes) = (there.frames + back.frames, there.bytes + back.bytes);
                let seconds = |ns: i64| ns as f64 / 1e9;
                write!(out, "{:<64}", format!("{a} <-> {b}"))?;
                [back.frames, back.bytes, there.frames, there.bytes, frames, bytes]
                    .iter()
                    .try_for_each(|n| write!(out, " {n:>12}"))?;
                writeln!(out, " {:>12.6} {:>12.4}", seconds(*first), seconds(last.saturating_sub(*first)))?;
            }
        }
        if self.left_out > 0 {
            writeln!(out, "{} more frames belong to ends that are not listed: the table is full", self.left_out)?;
        }
        writeln!(out, "{LINE}")
    }
}

impl Times {
    fn frame(&mut self, extractor: &Extractor) {
        if !passes(&self.filter, extractor) {
            return;
        }
        let Some(numbers) = self.numbers.iter().find(|slot| extractor.has(**slot)) else { return };
        let named = |slot: Slot| {
            extractor.values(slot).filter_map(|(def, v)| match v {
                Stored::U(n) => Some((n, def.value_name(n).map_or_else(|| n.to_string(), ToOwned::to_owned))),
                _ => None,
            })
        };
        let mut names: Vec<(u64, u64, String)> = named(*numbers).map(|(n, name)| (0, n, name)).collect();
        if let Some([program, command]) = self.named {
            let commands: Vec<String> = extractor.values(command).map(|(def, v)| show(def, v, Style::Fields)).collect();
            let program = named(program).last().filter(|(number, _)| Program(*number as u32) != Program::NFS);
            for ((of, _, name), command) in names.iter_mut().rev().zip(commands.iter().rev()) {
                name.clone_from(command);
                // the programs that come with NFS have procedures of the same names
                if let Some((number, program)) = &program {
                    (*of, *name) = (*number, format!("{program} {name}"));
                }
            }
        }
        let times: Vec<f64> = extractor
            .values(self.time)
            .filter_map(|(_, v)| match v {
                Stored::Time(seconds, nanos) => Some(seconds as f64 + f64::from(nanos) / 1e9),
                _ => None,
            })
            .collect();
        // a compound has a command for each of its replies; if only some are reported, they are the last
        for (name, time) in names.iter().rev().zip(times.iter().rev()) {
            let row = self.rows.entry(name.clone()).or_insert(Latency { least: f64::INFINITY, ..Latency::default() });
            row.calls += 1;
            row.least = row.least.min(*time);
            row.most = row.most.max(*time);
            row.sum += time;
        }
    }

    fn end(&self, out: &mut Vec<u8>) -> std::io::Result<()> {
        writeln!(out, "\n{LINE}\n{} SRT Statistics:\nFilter: {}", self.title, escaped(&self.text))?;
        writeln!(
            out,
            "{:>5}  {:<22} {:>6} {:>10} {:>10} {:>10} {:>10}",
            "Index", "Procedure", "Calls", "Min SRT", "Max SRT", "Avg SRT", "Sum SRT"
        )?;
        for ((_, index, name), Latency { calls, least, most, sum }) in &self.rows {
            let mean = sum / (*calls).max(1) as f64;
            writeln!(out, "{index:>5}  {name:<22} {calls:>6} {least:>10.6} {most:>10.6} {mean:>10.6} {sum:>10.6}")?;
        }
        writeln!(out, "{LINE}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_and_its_version_are_part_of_the_filter() {
        for (text, filter, shown) in [
            ("", "", ""),
            ("100003,3", "rpc.program == 100003 && rpc.programversion == 3", ""),
            ("100003", "rpc.program == 100003", ""),
            (
                "100003,4,ip.addr == 192.0.2.1",
                "rpc.program == 100003 && rpc.programversion == 4 && (ip.addr == 192.0.2.1)",
                "ip.addr == 192.0.2.1",
            ),
            ("nfs || rpc", "(nfs || rpc)", "nfs || rpc"),
        ] {
            assert_eq!(of_program(text), (filter.to_owned(), shown));
        }
    }
}
