//! `rdmascope replay FILE --to HOST`: a captured session done again, and compared.

use crate::cli::{Color, Force, Replay};
use crate::stdout::Out;
use anyhow::{Context, Result, anyhow, bail};
use rdmascope_analyzer::exchange::escaped;
use rdmascope_analyzer::smbd::link::{Grouped, Milliseconds, Status};
use rdmascope_capture::{Access, OpenOptions, WholeFile, open};
use rdmascope_dissector::wire::smb2::create::CreateDisposition;
use rdmascope_dissector::wire::smb2::create::options::{DELETE_ON_CLOSE, DIRECTORY_FILE};
use rdmascope_dissector::wire::smb2::info::{InfoType, class_name};
use rdmascope_replay::script::{Action, Outcome, Plan, Planned, Recording, Step, Wanted, Whole, prepare, run as play};
use rdmascope_replay::smb2::client::{Client, Options, Signatures};
use rdmascope_replay::stack::{Config, SmbDirect};
use rdmascope_replay::wire::Wire;
use rdmascope_report::object;
use rdmascope_report::report::schema::{Seconds, Version, document};
use std::collections::BTreeMap;
use std::io::Write;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Something was not as recorded.
const DIFFERS: u8 = 1;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) fn run(args: &Replay, color: Color) -> Result<ExitCode> {
    let mut capture = open(&args.file, OpenOptions::new())?;
    let recording = Recording::of(&mut capture)?;
    let name = args.file.display();
    let connection =
        args.connection.or_else(|| recording.busiest()).ok_or_else(|| anyhow!("{name}: no SMB2 over RDMA in it"))?;
    let wanted = Wanted { writes: args.allow_writes, no_rdma: args.no_rdma };
    let Some(plan) = Plan::of(&recording, connection, wanted) else {
        let known: Vec<String> = recording.connections.keys().map(u32::to_string).collect();
        bail!("{name}: no SMB2 on connection {connection}; there is on {}", known.join(", "));
    };
    let mut out = Out::new(color);
    writeln!(
        out.buffer,
        "connection {connection} of {name}: {} exchanges, {} to be replayed",
        plan.steps.len(),
        plan.done()
    )?;
    if args.plan {
        for step in &plan.steps {
            writeln!(out.buffer, "{} {}", head(step), planned(&step.planned))?;
        }
        out.finish()?;
        return Ok(ExitCode::SUCCESS);
    }
    let to = args.to.as_deref().unwrap_or_default();
    let transport = args.transport.open(&args.class)?;
    let (host, address) = resolve(to, transport.kind().port)?;
    let who = args.logon.credentials(&host)?;
    let mut config = Config::patient(transport);
    if let Some(credits) = args.credits {
        config.smbd.send_credits = credits;
        config.smbd.receive_credits = credits;
    }
    if let Some(bytes) = args.max_send {
        config.smbd.max_send_size = bytes;
    }
    if let Some(bytes) = args.fragment {
        config.smbd.max_fragmented_size = bytes;
    }
    config.wire =
        args.keep.as_deref().map(|path| keep(path, std::slice::from_ref(&args.file), args.force)).transpose()?;
    let channel = SmbDirect::connect(address, &config, CONNECT_TIMEOUT)
        .with_context(|| format!("cannot connect to {address}"))?;
    let mut client =
        Client::negotiate(channel, Options { sign: args.sign, encrypt: args.encrypt, ..Options::default() })?;
    client.session_setup(&who)?;
    if args.encrypt && !client.is_encrypted() || args.sign && !client.is_signed() {
        bail!("{address} has no keys for the session: it accepts everybody as a guest, or does not encrypt");
    }
    client.tree_connect(&host, &args.share)?;
    if args.prepare {
        for made in prepare(&plan, &recording, &mut client)? {
            let what = match (&made.why_not, made.length) {
                (Some(why), _) => format!("not changed: {why}"),
                (None, None) => "folder made".to_owned(),
                (None, Some(length)) => {
                    format!("made, {} bytes, {} of them known", Grouped(length), Grouped(made.known))
                }
            };
            writeln!(out.buffer, "{:>6} {:<15} {:<24} {what}", "", "PREPARE", escaped(&made.file))?;
        }
    }
    let mut total = Total::default();
    let mut skipped: BTreeMap<&str, u64> = BTreeMap::new();
    let mut rows = Vec::new();
    let played = play(&plan, &mut client, args.pace, |step, outcome| {
        total.add(step, outcome);
        match (outcome.status, &step.planned) {
            _ if args.quiet && outcome.differs.is_none() => {}
            // skipped steps are summed up below
            (None, Planned::Skip(why)) => *skipped.entry(*why).or_insert(0u64) += 1,
            // writing to a vector cannot fail
            _ => drop(writeln!(out.buffer, "{} {}", head(step), came(step, outcome))),
        }
        if args.report.is_some() {
            rows.push(row(step, outcome));
        }
    });
    // the completed part is reported in any case
    let dialect = client.dialect();
    let breaches: Vec<String> = client
        .channel()
        .stack()
        .smbd()
        .map_or_else(Vec::new, |s| s.breaches().iter().map(ToString::to_string).collect());
    let signatures = client.signatures;
    let finished = client.leave();
    let whole = played.as_ref().copied().unwrap_or_default();
    for (why, count) in skipped {
        writeln!(out.buffer, "{count:>6} skipped: {why}")?;
    }
    total.write(&mut out.buffer, &whole)?;
    if signatures != Signatures::default() {
        writeln!(out.buffer, "{signatures}")?;
    }
    for breach in &breaches {
        writeln!(out.buffer, "{breach}")?;
    }
    out.finish()?;
    if let Some(path) = &args.report {
        let report = Report {
            schema: Version,
            rdmascope: env!("CARGO_PKG_VERSION"),
            input: name.to_string(),
            connection: u64::from(connection),
            to: address.to_string(),
            dialect: format!("{dialect:?}"),
            done: total.done,
            skipped: total.skipped,
            differ: total.differ,
            bytes: total.bytes,
            recorded_seconds: Seconds(total.recorded),
            live_seconds: Seconds(total.live),
            recorded_span: Seconds(whole.recorded),
            live_span: Seconds(whole.live),
            verdict: total.verdict(),
            most_recorded_at_once: whole.most_recorded as u64,
            most_live_at_once: whole.most_live as u64,
            differs_first_at: total.first.clone(),
            breaches,
            operations: rows,
        };
        let text = rdmascope_report::output::pretty_json(&report)? + "\n";
        let mut file = WholeFile::create(path, std::slice::from_ref(&args.file), args.force.existing(), Access::Umask)?;
        file.write_all(text.as_bytes()).with_context(|| format!("{} cannot be written", path.display()))?;
        file.finish()?;
    }
    played?;
    finished?;
    Ok(if total.differ > 0 { ExitCode::from(DIFFERS) } else { ExitCode::SUCCESS })
}

/// A file for our own wire, which never takes the place of an input.
pub(super) fn keep(path: &Path, inputs: &[PathBuf], force: Force) -> Result<Wire> {
    rdmascope_capture::stands_at(path, inputs)?;
    let file = rdmascope_capture::fresh(path, force.existing())?;
    let wire = Wire::new(Box::new(file), &path.display().to_string())?;
    // a file with nothing but its head is a capture without frames, an empty one is none
    wire.flush().with_context(|| format!("{} cannot be written", path.display()))?;
    Ok(wire)
}

/// Resolves HOST, HOST:PORT, or an IPv6 address with or without brackets; `port` is the default.
pub(super) fn resolve(text: &str, port: u16) -> Result<(String, SocketAddr)> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, given)) if !host.contains(':') || host.ends_with(']') => {
            (host, given.parse().map_err(|_| anyhow!("\"{text}\": {given} is not a port"))?)
        }
        _ => (text, port),
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
            Action::Open { disposition, options, .. } => opening(*disposition, *options),
            Action::Read { channel: 0, .. } => "read inline".to_owned(),
            Action::Read { .. } => "read over RDMA".to_owned(),
            Action::Write { channel: 0, .. } => "write inline".to_owned(),
            Action::Write { .. } => "write over RDMA".to_owned(),
            Action::Flush => "flush".to_owned(),
            Action::List { pattern, .. } => format!("list {}", escaped(pattern)),
            Action::Info { info_type, class, .. } => format!("ask for {}", information(*info_type, *class)),
            Action::SetInfo { info_type, class, .. } => format!("set {}", information(*info_type, *class)),
            Action::Control { code, .. } => {
                code.name().map_or_else(|| format!("control code {:#010x}", code.0), |name| format!("ask for {name}"))
            }
            Action::Close => "close".to_owned(),
            Action::Echo => "echo".to_owned(),
        },
    }
}

/// CreateDisposition, and the CreateOptions that change something (\[MS-SMB2\] 2.2.13).
fn opening(disposition: u32, options: u32) -> String {
    let how = match CreateDisposition(disposition) {
        CreateDisposition::SUPERSEDE => "open, and put a new one in its place",
        CreateDisposition::OPEN => "open",
        CreateDisposition::CREATE => "make",
        CreateDisposition::OPEN_IF => "open, or make",
        CreateDisposition::OVERWRITE => "open, and empty",
        CreateDisposition::OVERWRITE_IF => "open, and empty, or make",
        _ => "open in an unknown way",
    };
    let folder = if options & DIRECTORY_FILE != 0 { ", a folder" } else { "" };
    let delete = if options & DELETE_ON_CLOSE != 0 { ", to be deleted when it is closed" } else { "" };
    format!("{how}{folder}{delete}")
}

fn information(info_type: u8, class: u8) -> String {
    match (class_name(info_type, class), InfoType(info_type).name()) {
        (Some(name), _) => name.to_owned(),
        (None, Some(kind)) => format!("{kind} {class}"),
        (None, None) => format!("information {info_type}/{class}"),
    }
}

fn came(step: &Step, outcome: &Outcome) -> String {
    let Some(status) = outcome.status else {
        return match (outcome.skipped, &step.planned) {
            (Some(why), _) => format!("skipped: {why}"),
            (None, other) => planned(other),
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

/// Version of the JSON; within one, keys are only ever added.
const VERSION: u32 = 1;

/// The JSON Schema of `--report`.
pub(super) fn schema() -> serde_json::Value {
    document::<Report>("rdmascope replay")
}

object! {
    /// Outcome of a captured session that was done again.
    struct Report {
        /// Version of this format. Within a version, keys are only added.
        schema: Version<VERSION>,
        /// Version of the program.
        rdmascope: &'static str,
        /// The capture.
        input: String,
        /// Number of the connection in it.
        connection: u64,
        /// Address and port of the server.
        to: String,
        /// The dialect of SMB that was agreed on.
        dialect: String,
        /// Operations that were done.
        done: u64,
        /// Operations that were left out.
        skipped: u64,
        /// Operations that came to another end than recorded.
        differ: u64,
        /// Payload bytes that were moved.
        bytes: u64,
        /// Latencies of all operations that were done, as recorded, added up, in seconds.
        recorded_seconds: Seconds,
        /// The same of this run.
        live_seconds: Seconds,
        /// From the first operation to the end of the last, as recorded, in seconds.
        recorded_span: Seconds,
        /// The same of this run.
        live_span: Seconds,
        /// faster, slower, or differs.
        verdict: &'static str,
        /// Operations under way at a time, as recorded.
        most_recorded_at_once: u64,
        /// The same of this run.
        most_live_at_once: u64,
        /// The first operation that differs, and how.
        differs_first_at: Option<String>,
        /// Rules of SMB Direct that the server broke.
        breaches: Vec<String>,
        /// Every operation, in the order of the capture.
        operations: Vec<Operation>,
    }
}

object! {
    /// An operation.
    struct Operation {
        /// Its number among the requests of the connection.
        id: u64,
        /// CREATE, READ, …
        command: String,
        /// The name of its file.
        file: Option<String>,
        /// Offset in it.
        offset: Option<u64>,
        /// Length asked for.
        length: Option<u64>,
        /// Reason why it was skipped.
        skipped: Option<String>,
        /// The recorded result.
        recorded: Came,
        /// The result of the replay; null if the operation was skipped.
        live: Option<Came>,
        /// The difference.
        differs: Option<String>,
        /// skipped, differs, slower or faster.
        verdict: &'static str,
    }
}

object! {
    /// The result of an operation.
    struct Came {
        /// NTSTATUS; null without a reply.
        status: Option<u32>,
        /// Payload bytes.
        bytes: u64,
        /// From request to reply, in seconds; null without a reply.
        latency: Option<Seconds>,
        /// SHA-256 of the payload, if it is complete.
        sha256: Option<String>,
    }
}

fn row(step: &Step, outcome: &Outcome) -> Operation {
    let hex = |hash: Option<[u8; 32]>| hash.map(|h| h.iter().map(|b| format!("{b:02x}")).collect::<String>());
    let e = &step.recorded;
    Operation {
        id: e.id,
        command: e.command.to_string(),
        file: e.file.as_deref().map(ToString::to_string),
        offset: e.offset,
        length: e.length.map(u64::from),
        skipped: match &step.planned {
            Planned::Skip(why) => Some(why.to_string()),
            Planned::Do(_) => outcome.skipped.map(|why| why.to_string()),
        },
        recorded: Came {
            status: e.status,
            bytes: e.bytes_moved,
            latency: e.latency().map(Seconds),
            sha256: hex(e.sha256),
        },
        live: outcome.status.map(|status| Came {
            status: Some(status.0),
            bytes: outcome.bytes,
            latency: Some(Seconds(outcome.latency)),
            sha256: hex(outcome.sha256),
        }),
        differs: outcome.differs.as_ref().map(ToString::to_string),
        verdict: match (outcome.status, &outcome.differs, e.latency()) {
            (None, ..) => "skipped",
            (_, Some(_), _) => "differs",
            (_, None, Some(was)) if outcome.latency > was => "slower",
            _ => "faster",
        },
    }
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
    /// The compound of the step before: its messages took their time once.
    compound: Option<u32>,
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
        let again = step.compound.is_some() && step.compound == self.compound;
        self.compound = step.compound;
        if let Some(latency) = step.recorded.latency().filter(|_| !again) {
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

    /// `faster`, `slower`, or `differs` if anything does.
    fn verdict(&self) -> &'static str {
        match () {
            () if self.differ > 0 => "differs",
            () if self.live <= self.recorded => "faster",
            () => "slower",
        }
    }

    fn write(&self, out: &mut Vec<u8>, whole: &Whole) -> std::io::Result<()> {
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
            writeln!(
                out,
                "latencies: {} recorded, {} live: {}",
                Milliseconds(self.recorded),
                Milliseconds(self.live),
                times(self.recorded, self.live)
            )?;
        }
        if whole.recorded > 0 && whole.live > 0 {
            writeln!(
                out,
                "whole: {} recorded, with up to {} at once; {} live, with up to {}: {}",
                Milliseconds(whole.recorded),
                whole.most_recorded,
                Milliseconds(whole.live),
                whole.most_live,
                times(whole.recorded, whole.live)
            )?;
        }
        if let Some(first) = &self.first {
            writeln!(out, "differs first at {first}")?;
        }
        Ok(())
    }
}

fn times(was: i64, is: i64) -> String {
    let (was, is) = (was as f64, is as f64);
    let (factor, word) = if was >= is { (was / is, "faster") } else { (is / was, "slower") };
    format!("{factor:.1} times {word}")
}
