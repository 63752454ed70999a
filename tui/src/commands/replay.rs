//! `rdmascope replay FILE --to HOST`: a captured session done again, and compared.

use crate::cli::{Color, Replay};
use crate::stdout::Out;
use anyhow::{Context, Result, anyhow, bail};
use rdmascope_analyzer::smbd::link::{Grouped, Milliseconds, Status};
use rdmascope_capture::{OpenOptions, open};
use rdmascope_replay::channel::{Channel, Config};
use rdmascope_replay::script::{Action, Outcome, Plan, Planned, Recording, Step, Wanted, run as play};
use rdmascope_replay::smb2::client::{Client, Options};
use rdmascope_replay::smb2::ntlm::Credentials;
use rdmascope_replay::smbd::SETTLE;
use serde_json::{Value, json};
use std::fs::File;
use std::io::Write;
use std::net::{SocketAddr, ToSocketAddrs};
use std::process::ExitCode;
use std::time::Duration;

/// Something was not as recorded.
const DIFFERS: u8 = 1;
/// The port of SMB Direct on iWARP.
const PORT: u16 = 5445;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) fn run(args: &Replay, color: Color) -> Result<ExitCode> {
    let mut capture = open(&args.file, OpenOptions::new())?;
    let recording = Recording::of(&mut capture)?;
    let name = args.file.display();
    let connection = args.connection.or_else(|| recording.busiest()).ok_or_else(|| anyhow!("{name}: no SMB2 over RDMA in it"))?;
    let wanted = Wanted { writes: args.allow_writes, no_rdma: args.no_rdma };
    let Some(plan) = Plan::of(&recording, connection, wanted) else {
        let known: Vec<String> = recording.connections.keys().map(u32::to_string).collect();
        bail!("{name}: no SMB2 on connection {connection}; there is on {}", known.join(", "));
    };
    let mut out = Out::new(color);
    writeln!(out.buffer, "connection {connection} of {name}: {} exchanges, {} to be done again", plan.steps.len(), plan.done())?;
    if args.plan {
        for step in &plan.steps {
            writeln!(out.buffer, "{} {}", head(step), planned(&step.planned))?;
        }
        out.finish()?;
        return Ok(ExitCode::SUCCESS);
    }
    let to = args.to.as_deref().unwrap_or_default();
    let (host, address) = resolve(to)?;
    let mut config = Config::default();
    config.smbd.settle = SETTLE;
    if let Some(credits) = args.credits {
        config.smbd.send_credits = credits;
        config.smbd.receive_credits = credits;
    }
    if let Some(bytes) = args.max_send {
        config.smbd.max_send_size = bytes;
    }
    let mut channel = Channel::connect(address, &config, CONNECT_TIMEOUT).with_context(|| format!("cannot connect to {address}"))?;
    if let Some(path) = &args.keep {
        let file = File::create(path).with_context(|| format!("{} cannot be written", path.display()))?;
        channel.record(Box::new(file), &path.display().to_string())?;
    }
    let mut client = Client::negotiate(channel, Options { sign: false, ..Options::default() })?;
    let who = match &args.user {
        Some(user) => Credentials::new(user, &std::env::var("RDMASCOPE_PASSWORD").unwrap_or_default()),
        None => Credentials::anonymous(),
    };
    client.session_setup(&who)?;
    client.tree_connect(&host, &args.share)?;
    let mut total = Total::default();
    let mut rows = Vec::new();
    let played = play(&plan, &mut client, args.pace, |step, outcome| {
        total.add(step, outcome);
        // writing to a vector cannot fail
        let _ = writeln!(out.buffer, "{} {}", head(step), came(step, outcome));
        if args.report.is_some() {
            rows.push(row(step, outcome));
        }
    });
    // what was done is told whatever became of the rest
    let dialect = client.dialect();
    let breaches: Vec<String> =
        client.channel().lane().smbd().map_or_else(Vec::new, |s| s.breaches().iter().map(ToString::to_string).collect());
    let finished = client.finish();
    total.write(&mut out.buffer, &breaches)?;
    out.finish()?;
    if let Some(path) = &args.report {
        let report = json!({
            "rdmascope": env!("CARGO_PKG_VERSION"), "input": name.to_string(), "connection": connection, "to": address.to_string(),
            "dialect": format!("{dialect:?}"), "done": total.done, "skipped": total.skipped, "differ": total.differ,
            "bytes": total.bytes, "recorded_seconds": total.recorded as f64 / 1e9, "live_seconds": total.live as f64 / 1e9,
            "breaches": breaches, "operations": rows,
        });
        let text = serde_json::to_string_pretty(&report)? + "\n";
        std::fs::write(path, text).with_context(|| format!("{} cannot be written", path.display()))?;
    }
    played?;
    finished?;
    Ok(if total.differ > 0 { ExitCode::from(DIFFERS) } else { ExitCode::SUCCESS })
}

/// HOST, HOST:PORT, or an IPv6 address with or without brackets.
pub(super) fn resolve(text: &str) -> Result<(String, SocketAddr)> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => {
            (host, port.parse().map_err(|_| anyhow!("\"{text}\": {port} is not a port"))?)
        }
        _ => (text, PORT),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let mut addresses = (host, port).to_socket_addrs().map_err(|e| anyhow!("\"{host}\" is not known: {e}"))?;
    let address = addresses.next().ok_or_else(|| anyhow!("\"{host}\" has no address"))?;
    Ok((host.to_owned(), address))
}

fn head(step: &Step) -> String {
    let e = &step.recorded;
    let place = match (e.offset, e.length) {
        (Some(offset), Some(length)) => format!("{length} at {offset}"),
        _ => String::new(),
    };
    format!("{:>6} {:<15} {:<24} {:<20}", e.id, e.command, e.shown_file(), place)
}

fn planned(planned: &Planned) -> String {
    match planned {
        Planned::Skip(why) => format!("skipped: {why}"),
        Planned::Do(action) => match action {
            Action::Open { write: true, folder: true } => "open, or make, the folder".to_owned(),
            Action::Open { write: true, .. } => "open, or make, to write".to_owned(),
            Action::Open { write: false, .. } => "open to read".to_owned(),
            Action::Read { channel: 0, .. } => "read inline".to_owned(),
            Action::Read { .. } => "read over RDMA".to_owned(),
            Action::Write { channel: 0, .. } => "write inline".to_owned(),
            Action::Write { .. } => "write over RDMA".to_owned(),
            Action::Flush => "flush".to_owned(),
            Action::List => "list".to_owned(),
            Action::Info => "ask for its size".to_owned(),
            Action::Close => "close".to_owned(),
            Action::Echo => "echo".to_owned(),
        },
    }
}

fn came(step: &Step, outcome: &Outcome) -> String {
    let Some(status) = outcome.status else {
        return match &step.planned {
            Planned::Do(_) => "skipped: its file is not open".to_owned(),
            skipped => planned(skipped),
        };
    };
    let was = step.recorded.latency().map_or_else(|| "no reply".to_owned(), |l| Milliseconds(l).to_string());
    let verdict = match &outcome.differs {
        Some(how) => format!("DIFFERS: {how}"),
        None if step.recorded.sha256.is_some() && outcome.sha256.is_some() => "same, contents too".to_owned(),
        None => "same".to_owned(),
    };
    format!("{was} -> {} {} {verdict}", Milliseconds(outcome.latency), Status(status.0))
}

fn row(step: &Step, outcome: &Outcome) -> Value {
    let hex = |hash: Option<[u8; 32]>| hash.map(|h| h.iter().map(|b| format!("{b:02x}")).collect::<String>());
    let e = &step.recorded;
    json!({
        "id": e.id, "command": e.command, "file": e.file.as_deref(), "offset": e.offset, "length": e.length,
        "skipped": match &step.planned {
            Planned::Skip(why) => Some(*why),
            Planned::Do(_) if outcome.status.is_none() => Some("its file is not open"),
            Planned::Do(_) => None,
        },
        "recorded": {"status": e.status, "bytes": e.bytes_moved, "latency": e.latency().map(|l| l as f64 / 1e9), "sha256": hex(e.sha256)},
        "live": outcome.status.map(|status| json!({
            "status": status.0, "bytes": outcome.bytes, "latency": outcome.latency as f64 / 1e9, "sha256": hex(outcome.sha256),
        })),
        "differs": outcome.differs,
    })
}

/// All steps together.
#[derive(Default)]
struct Total {
    done: u64,
    skipped: u64,
    differ: u64,
    bytes: u64,
    hashed: u64,
    /// ns of the requests that were done both times.
    recorded: i64,
    live: i64,
    first: Option<String>,
}

impl Total {
    fn add(&mut self, step: &Step, outcome: &Outcome) {
        if outcome.status.is_none() {
            self.skipped += 1;
            return;
        }
        self.done += 1;
        self.bytes += outcome.bytes;
        if let Some(latency) = step.recorded.latency() {
            self.recorded += latency;
            self.live += outcome.latency;
        }
        if let (Some(was), Some(is)) = (step.recorded.sha256, outcome.sha256) {
            self.hashed += u64::from(was == is);
        }
        if let Some(how) = &outcome.differs {
            self.differ += 1;
            self.first.get_or_insert_with(|| format!("{} {}: {how}", step.recorded.id, step.recorded.command));
        }
    }

    fn write(&self, out: &mut Vec<u8>, breaches: &[String]) -> std::io::Result<()> {
        writeln!(out)?;
        writeln!(
            out,
            "{} done, {} skipped; {} as recorded, {} differ; {} bytes moved, {} payloads with the recorded hash",
            self.done,
            self.skipped,
            self.done - self.differ,
            self.differ,
            Grouped(self.bytes),
            self.hashed
        )?;
        if self.recorded > 0 && self.live > 0 {
            let (was, is) = (self.recorded as f64, self.live as f64);
            let (factor, word) = if was >= is { (was / is, "faster") } else { (is / was, "slower") };
            writeln!(out, "{} recorded, {} live: {factor:.1} times {word}", Milliseconds(self.recorded), Milliseconds(self.live))?;
        }
        if let Some(first) = &self.first {
            writeln!(out, "differs first at {first}")?;
        }
        for breach in breaches {
            writeln!(out, "{breach}")?;
        }
        Ok(())
    }
}
