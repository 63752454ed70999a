//! The analysis of a live capture. It has no end, so ended connections are summed up and dropped. Lines report at an
//! interval, and metrics on request.

use crate::analysis::{Analysis, InputSummary, meta_of};
use crate::dissection::Past;
use crate::dissection::known_speeds;
use crate::known_bugs::Search;
use crate::live::endless::{Follower, IDLE_AFTER, endless, expire, mpa_port, now_ns};
use crate::live::workers::Workers;
use crate::live::{self, say};
use crate::report::words::{count, duration, grouped, size};
use crate::stdout::{Color, Out};
use anyhow::{Context, Result};
use rdmascope_analyzer::env::Options;
use rdmascope_analyzer::pipeline::{Pipeline, Standing};
use rdmascope_analyzer::report::{self, Connection, Parts};
use rdmascope_analyzer::rules::Rule;
use rdmascope_capture::live::LiveSource;
use rdmascope_capture::live::rdma::{self, Counter};
use rdmascope_capture::{Hardware, Interface, Record, Source};
use rdmascope_plugins::metrics::{self, Server, View};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// ns between two searches for connections to drop.
const EXPIRE_EVERY: Duration = Duration::from_secs(1);
/// Between two looks at the counters of RDMA devices.
pub const HARDWARE_EVERY: Duration = Duration::from_secs(1);
/// Frames between two looks at the clock.
const LOOK_EVERY: u32 = 256;
/// Milliseconds of waiting after frames were handed over.
const HANDED_OVER_MS: u32 = 2;
/// Commands in a line.
const COMMANDS: usize = 4;

/// An analysis that runs continuously.
pub struct Monitor<S> {
    engine: Engine<S>,
    summary: InputSummary,
    number: u64,
    time_ns: i64,
    expired: Instant,
    /// When the workers' hosts were looked through.
    aged: Instant,
    /// Interfaces whose speed is known to a single thread.
    interfaces: usize,
    past: Past,
    /// The port of a handshake that a single thread saw.
    port: Option<u16>,
}

enum Engine<S> {
    One(Box<Follower<S>>),
    Many(Box<Workers<S>>),
}

impl<S: Parts + Send + 'static> Monitor<S> {
    /// Begins, on these interfaces, with so many threads that analyse. One has to do it alone if keys were given, which
    /// channels of a session share, or if bugs are searched for by the numbers of connections and requests.
    pub fn new(options: Options, sink: S, interfaces: &[String], threads: usize) -> Self {
        let options = endless(options);
        let is_separable = options.keyring.is_empty() && Search::new().is_none_or(|search| search.is_by_connection());
        let engine = if threads > 1 && is_separable {
            Engine::Many(Box::new(Workers::new(threads, &options, &sink)))
        } else {
            Engine::One(Box::new(Follower::new(Pipeline::with_sink(options, sink))))
        };
        Self {
            engine,
            summary: InputSummary { path: interfaces.join(" and "), ..InputSummary::default() },
            number: 0,
            time_ns: 0,
            expired: Instant::now(),
            aged: Instant::now(),
            interfaces: 0,
            past: Past::default(),
            port: None,
        }
    }

    /// Goes to the next frame of the source, as [`Source::advance`] does. What the workers do not have yet is handed to
    /// them before it waits.
    #[inline]
    pub fn advance(&mut self, source: &mut LiveSource) -> rdmascope_capture::Result<bool> {
        if matches!(&self.engine, Engine::Many(workers) if workers.has_waiting()) {
            if source.advance_within(0)? {
                return Ok(true);
            }
            self.hand_over();
            // for a moment only: the workers may see a port that is to be captured
            return source.advance_within(HANDED_OVER_MS);
        }
        source.advance()
    }

    /// Hands the frames that there are to the workers.
    pub fn hand_over(&mut self) {
        if let Engine::Many(workers) = &mut self.engine {
            workers.send();
        }
    }

    /// Takes a frame of a capture on these interfaces.
    #[inline]
    pub fn frame(&mut self, record: &Record<'_>, interfaces: &[Interface]) {
        self.number += 1;
        let meta = meta_of(record, self.number, &mut self.time_ns);
        self.summary.frame(&meta);
        let before = self.past.before(&meta);
        match &mut self.engine {
            Engine::One(one) => {
                if interfaces.len() != self.interfaces {
                    known_speeds(&mut one.pipeline, &mut self.interfaces, interfaces);
                }
                let packet = one.look.frame(&mut one.pipeline, &meta, record, interfaces, before);
                if let Some(port) = mpa_port(&packet.body) {
                    self.port = Some(port);
                }
            }
            Engine::Many(workers) => workers.frame(&meta, record, interfaces, before),
        }
    }

    /// A TCP port on which an MPA handshake was seen, and which was not told yet. To be asked before each
    /// [`Monitor::advance`].
    #[inline]
    pub fn port(&mut self) -> Option<u16> {
        match &self.engine {
            Engine::One(_) => self.port.take(),
            Engine::Many(workers) => workers.port(),
        }
    }

    /// How things stand at the last frame.
    pub fn standing(&mut self) -> Standing {
        match &mut self.engine {
            Engine::One(one) => one.pipeline.standing(),
            Engine::Many(workers) => workers.standing(),
        }
    }

    /// To be called a few times a second.
    pub fn expire(&mut self) {
        if self.expired.elapsed() >= EXPIRE_EVERY {
            self.expired = Instant::now();
            self.expire_at(now_ns());
        }
    }

    fn expire_at(&mut self, now: i64) {
        match &mut self.engine {
            Engine::One(one) => expire(&mut one.pipeline, now),
            Engine::Many(workers) => {
                let is_due = self.aged.elapsed() >= Duration::from_nanos(IDLE_AFTER.unsigned_abs());
                if is_due {
                    self.aged = Instant::now();
                }
                workers.expire(now, is_due);
            }
        }
    }

    /// The capture is over: it lost so many frames, and RDMA devices counted this meanwhile.
    pub fn end(
        self,
        lost_frames: u64,
        hardware: Hardware,
        error: Option<rdmascope_capture::Error>,
    ) -> Result<Analysis<S>> {
        let done = match self.engine {
            Engine::One(one) => Some(one.pipeline.finish()),
            Engine::Many(workers) => workers.finish(),
        };
        let (report, sink) = done.context("no thread analysed")?;
        let summary = InputSummary { error: error.as_ref().map(ToString::to_string), ..self.summary };
        Ok(Analysis { report, sink, inputs: vec![summary], lost_frames, hardware, selection: None, error })
    }
}

/// A server for metrics.
pub struct Metrics {
    server: Server,
    rdma_root: PathBuf,
}

impl Metrics {
    /// Listens.
    pub fn start(address: SocketAddr, rdma_root: &Path) -> Result<Self> {
        let server = Server::start(address).with_context(|| format!("{address} cannot be listened on"))?;
        let note = if address.ip().is_loopback() { "" } else { "; everybody who reaches that address can read them" };
        say(&format!("metrics at http://{}/metrics{note}", server.address()));
        Ok(Self { server, rdma_root: rdma_root.to_owned() })
    }

    /// Answers a request.
    #[inline]
    pub fn serve<S: Parts + Send + 'static>(&mut self, monitor: &mut Monitor<S>, source: &mut LiveSource) {
        while let Some(asked) = self.server.asked() {
            let counters = source.counters();
            let names = source.interfaces().iter().map(|i| i.name.clone().unwrap_or_default());
            let interfaces: Vec<_> = names.zip(counters).collect();
            let standing = monitor.standing();
            asked.answer(metrics::render(&View {
                started_ns: source.started_ns(),
                capture: &standing.capture,
                totals: &standing.totals,
                findings: &standing.findings,
                interfaces: &interfaces,
                hardware: &rdma::counters(&self.rdma_root),
            }));
        }
    }
}

/// `analyze -i`.
pub struct Watch {
    /// Time between two rounds of lines.
    pub every: Option<Duration>,
    /// True if the lines go to standard error.
    pub lines_aside: bool,
    /// Address on which metrics are served.
    pub metrics: Option<SocketAddr>,
    /// Duration after which it ends; `None` to run until it is stopped.
    pub until: Option<Duration>,
    /// Number of frames after which it ends.
    pub frames: Option<u64>,
    /// Path at which the kernel lists RDMA devices.
    pub rdma_root: PathBuf,
    /// Number of threads that analyse.
    pub threads: usize,
}

impl Watch {
    /// Analyses until the source is over.
    pub fn run<S: Parts + Send + 'static>(
        self,
        mut source: LiveSource,
        options: Options,
        sink: S,
        color: Color,
    ) -> Result<Analysis<S>> {
        let names: Vec<String> = source.interfaces().iter().filter_map(|i| i.name.clone()).collect();
        let mut monitor = Monitor::new(options, sink, &names, self.threads);
        let mut metrics = self.metrics.map(|address| Metrics::start(address, &self.rdma_root)).transpose()?;
        let mut rounds = Rounds::new(source.metadata().hardware.last());
        let begun = Instant::now();
        let mut next = self.every.map(|every| begun + every);
        let (mut since, mut looked) = (0, Instant::now());
        let error = loop {
            if let Some(port) = monitor.port() {
                source.learn_tcp_port(port)?;
            }
            match monitor.advance(&mut source) {
                Ok(true) => {
                    monitor.frame(&source.record(), source.interfaces());
                    since += 1;
                    if self.frames.is_some_and(|n| monitor.number >= n) {
                        break None;
                    }
                    if since < LOOK_EVERY {
                        continue;
                    }
                }
                Ok(false) if source.is_over() => break None,
                Ok(false) => {}
                Err(e) => break Some(e),
            }
            since = 0;
            monitor.expire();
            if looked.elapsed() >= HARDWARE_EVERY {
                looked = Instant::now();
                source.sample_hardware(&self.rdma_root);
            }
            live::print_events(&mut source);
            if let Some(metrics) = &mut metrics {
                metrics.serve(&mut monitor, &mut source);
            }
            let now = Instant::now();
            if let (Some(at), Some(every)) = (next, self.every)
                && now >= at
            {
                next = Some((at + every).max(now));
                let counters = source.counters();
                let dropped = counters
                    .iter()
                    .map(|c| [c.dropped_by_kernel, c.dropped_by_interface])
                    .fold([0; 2], |a, b| [a[0] + b[0], a[1] + b[1]]);
                source.sample_hardware(&self.rdma_root);
                let hardware = source.metadata().hardware.last();
                let lines = rounds.lines(monitor.standing(), dropped, hardware, now_ns());
                if self.lines_aside {
                    eprint!("{lines}");
                } else {
                    let mut out = Out::new(color);
                    out.buffer.extend_from_slice(lines.as_bytes());
                    out.finish()?;
                }
            }
            if self.until.is_some_and(|t| begun.elapsed() >= t) {
                break None;
            }
        };
        source.sample_hardware(&self.rdma_root);
        live::print_events(&mut source);
        source.counters();
        let metadata = source.metadata();
        monitor.end(metadata.lost_frames(), metadata.hardware.clone(), error)
    }
}

/// Counters of a connection at the end of a round.
#[derive(Clone, Debug, Default)]
struct Had {
    bytes: u64,
    messages: [u64; 2],
    rdma: [u64; 2],
    stalls: u64,
    again: u64,
    naks: u64,
    congestion: u64,
    /// By command: number of requests, and the sum of their latencies.
    commands: BTreeMap<&'static str, (u64, i64)>,
}

impl Had {
    fn of(c: &Connection) -> Self {
        Self {
            bytes: c.throughput.iter().map(|(_, client, server)| client + server).sum(),
            messages: c.sides.map(|s| s.messages),
            rdma: [c.rdma.read_bytes, c.rdma.write_bytes],
            stalls: c.sides.iter().map(|s| s.stalls).sum(),
            again: c.health.retransmissions,
            naks: c.health.naks + c.health.rnr_naks,
            congestion: c.health.cnps + c.health.ecn_marked,
            commands: c.commands.iter().map(|k| (k.name, (k.count, k.latency.sum()))).collect(),
        }
    }
}

/// Lines, in rounds at an interval; each covers the time since the last round.
struct Rounds {
    had: HashMap<u32, Had>,
    /// Numbers of connections, in the order of their first frames, by those under which they are followed.
    numbers: HashMap<u32, u32>,
    /// The last of them.
    number: u32,
    findings: Vec<u64>,
    frames: u64,
    dropped: [u64; 2],
    hardware: Vec<Counter>,
}

impl Rounds {
    fn new(hardware: Vec<Counter>) -> Self {
        Self {
            had: HashMap::new(),
            numbers: HashMap::new(),
            number: 0,
            findings: vec![0; Rule::all().count()],
            frames: 0,
            dropped: [0; 2],
            hardware,
        }
    }

    fn lines(&mut self, standing: Standing, dropped: [u64; 2], hardware: Vec<Counter>, now: i64) -> String {
        let mut out = String::new();
        let clock = now.div_euclid(1_000_000_000).rem_euclid(86_400);
        let clock = format!("{:02}:{:02}:{:02}Z", clock / 3600, clock / 60 % 60, clock % 60);
        let Standing { capture, mut connections, findings, .. } = standing;
        connections.sort_by_key(|c| (c.first, c.id));
        let mut had = HashMap::with_capacity(connections.len());
        let mut numbers = HashMap::with_capacity(connections.len());
        let mut idle = 0u64;
        for c in &connections {
            // a number that does not change, whoever follows the connection
            let id = self.numbers.get(&c.id).copied().unwrap_or_else(|| {
                self.number += 1;
                self.number
            });
            numbers.insert(c.id, id);
            let now_has = Had::of(c);
            let before = self.had.get(&id).cloned().unwrap_or_default();
            if now_has.bytes == before.bytes {
                idle += u64::from(c.closed.is_none());
            } else {
                let _ = writeln!(out, "{clock} {}", line(c, id, &now_has, &before));
            }
            had.insert(id, now_has);
        }
        (self.had, self.numbers) = (had, numbers);
        let mut rest = format!(
            "{clock} all: {}, {} by the kernel and {} by the interface dropped",
            count(capture.frames - self.frames, "frame"),
            grouped(dropped[0] - self.dropped[0]),
            grouped(dropped[1] - self.dropped[1])
        );
        if idle > 0 {
            let _ = write!(rest, "; {} idle", count(idle, "connection"));
        }
        for (rule, before) in Rule::all().zip(&mut self.findings) {
            let n = findings.occurrences(rule);
            if n > *before {
                let _ = write!(rest, "; {} +{}", rule.id(), grouped(n - *before));
            }
            *before = n;
        }
        for counter in &hardware {
            let before = self.hardware.iter().find(|c| c.is_same(counter)).map_or(0, |c| c.value);
            if counter.value > before {
                let _ = write!(rest, "; {counter} +{}", grouped(counter.value - before));
            }
        }
        self.hardware = hardware;
        self.frames = capture.frames;
        self.dropped = dropped;
        out.push_str(&rest);
        out.push('\n');
        out
    }
}

fn line(c: &Connection, id: u32, now: &Had, before: &Had) -> String {
    let mut line = format!(
        "connection {id} {} → {} {}{}: {}, messages ▸ {} ◂ {}",
        report::address(&c.peers[0].address),
        report::address(&c.peers[1].address),
        c.protocol.name(),
        c.transport.map_or_else(String::new, |t| format!(" over {}", t.name())),
        size(now.bytes - before.bytes),
        grouped(now.messages[0] - before.messages[0]),
        grouped(now.messages[1] - before.messages[1]),
    );
    let mut commands: Vec<(&str, u64, i64)> = now
        .commands
        .iter()
        .map(|(name, (n, sum))| {
            let (n_before, sum_before) = before.commands.get(name).copied().unwrap_or_default();
            (*name, n - n_before, sum - sum_before)
        })
        .filter(|(_, n, _)| *n > 0)
        .collect();
    commands.sort_by_key(|(name, n, _)| (std::cmp::Reverse(*n), *name));
    for (name, n, sum) in commands.iter().take(COMMANDS) {
        let _ = write!(line, ", {name} {} of {}", grouped(*n), duration(sum / (*n).max(1) as i64));
    }
    if commands.len() > COMMANDS {
        let _ = write!(line, ", {} other requests", grouped(commands[COMMANDS..].iter().map(|c| c.1).sum()));
    }
    let rdma = [now.rdma[0] - before.rdma[0], now.rdma[1] - before.rdma[1]];
    if rdma != [0; 2] {
        let _ = write!(line, ", RDMA {} read {} written", size(rdma[0]), size(rdma[1]));
    }
    if let [Some(client), Some(server)] = c.sides.map(|s| s.held_last) {
        let _ = write!(line, ", credits {client}/{server}");
    }
    for (what, n) in [
        ("stalls", now.stalls - before.stalls),
        ("retransmitted", now.again - before.again),
        ("NAK", now.naks - before.naks),
        ("congestion", now.congestion - before.congestion),
    ] {
        if n > 0 {
            let _ = write!(line, ", {what} {}", grouped(n));
        }
    }
    if let Some((_, how, _)) = c.closed {
        let _ = write!(line, ", ended ({how})");
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::endless::{CLOSED_AFTER, ENDED_MAX};
    use rdmascope_analyzer::report::{Protocol, Quiet, Transport};
    use rdmascope_capture::{OpenOptions, open};

    #[test]
    fn a_round_tells_of_the_time_since_the_last() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../samples/smb-roce/smb-roce.pcap");
        let mut capture = open(path, OpenOptions::new()).unwrap();
        let mut monitor = Monitor::new(Options::default(), Quiet, &["eth0".to_owned()], 1);
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("mlx5_0/ports/1/hw_counters");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("out_of_sequence"), "5").unwrap();
        let mut rounds = Rounds::new(rdma::counters(root.path()));
        let mut n = 0;
        while capture.advance().unwrap() && n < 100 {
            n += 1;
            monitor.frame(&capture.record(), &[]);
            assert_eq!(monitor.port(), None);
        }
        let first = rounds.lines(monitor.standing(), [3, 0], rdma::counters(root.path()), 45_000_000_000);
        assert!(first.starts_with("00:00:45Z connection "), "{first}");
        assert!(first.contains("192.0.2.2 → 192.0.2.1 SMB Direct over RoCEv2: "), "{first}");
        assert!(first.contains(" all: 100 frames, 3 by the kernel and 0 by the interface dropped; "), "{first}");
        assert!(first.contains("; CM-REJECT +1"), "{first}");
        std::fs::write(folder.join("out_of_sequence"), "7").unwrap();
        let second = rounds.lines(monitor.standing(), [3, 1], rdma::counters(root.path()), 55_000_000_000);
        assert_eq!(
            second,
            "00:00:55Z all: 0 frames, 0 by the kernel and 1 by the interface dropped; 1 connection idle; mlx5_0/1 \
                out_of_sequence +2\n"
        );
    }

    #[test]
    fn connections_that_come_and_go_are_added_up() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../samples/smb-roce/smb-roce.pcap");
        let mut capture = open(path, OpenOptions::new()).unwrap();
        let mut frames = Vec::new();
        while let Some(record) = capture.next().unwrap() {
            frames.push((record.bytes.to_vec(), record.wire_len, record.link_type));
        }
        let mut monitor = Monitor::new(Options { check_crc: false, ..Options::default() }, Quiet, &[], 1);
        let (mut time, rounds) = (0i64, 700u16);
        for round in 0..rounds {
            for (bytes, wire_len, link_type) in &mut frames {
                // other addresses each time
                bytes[27..29].copy_from_slice(&round.to_be_bytes());
                bytes[31..33].copy_from_slice(&round.to_be_bytes());
                time += 1_000_000;
                monitor.frame(&Record::new(time, 0, *link_type, *wire_len, bytes), &[]);
            }
            monitor.expire_at(time + CLOSED_AFTER + 1);
        }
        let Standing { connections, totals, findings, .. } = monitor.standing();
        let row = totals
            .rows()
            .iter()
            .find(|r| (r.transport, r.protocol) == (Transport::RoceV2, Protocol::SmbDirect))
            .unwrap();
        assert_eq!((row.connections, row.open), (u64::from(rounds), 0));
        let reads = row.commands.find("READ").unwrap();
        assert_eq!(reads.count % u64::from(rounds), 0);
        assert_eq!(reads.latency.count() + reads.unanswered, reads.count);
        assert!(connections.len() < ENDED_MAX + 64 && totals.connections() > 300 + ENDED_MAX as u64);
        // the same rules were broken each time; findings of dropped connections stay, merged
        assert!(findings.len() < 4096 && findings.dropped() == 0);
        assert_eq!(findings.occurrences(Rule::CmReject), u64::from(rounds));
    }
}
