//! A captured session taken up again: what one connection of a capture did ([`Recording`]), what of it is to be done again ([`Plan`]), and
//! what became of it ([`run`]).
//!
//! Only what was asked for with the right to do so changes anything on the peer: a plan without `writes` opens files that are there, for
//! reading, and skips the rest.

use crate::error::{Error, Result};
use crate::smb2::client::{Client, Opened, access, disposition};
use rdmascope_analyzer::env::Options;
use rdmascope_analyzer::exchange::{Channel, Exchange, Family};
use rdmascope_analyzer::pipeline::{FrameMeta, Pipeline};
use rdmascope_analyzer::report::Sink;
use rdmascope_capture::Source;
use rdmascope_dissector::trace::Off;
use rdmascope_dissector::wire::smb2::NtStatus;
use rdmascope_dissector::wire::smb2::rdma_channel::Channel as RdmaChannel;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, Instant};

/// Exchanges taken from a capture at most.
const EXCHANGES_MAX: usize = 1 << 20;
/// Bytes of recorded WRITEs kept at most.
const PAYLOADS_MAX: usize = 256 << 20;
/// Bytes of the room for an answer to QUERY_INFO.
const INFO_ROOM: u32 = 4096;
const FILE_STANDARD_INFORMATION: u8 = 5;

/// What the connections of a capture did, by their numbers.
#[derive(Debug, Default)]
pub struct Recording {
    /// Exchanges of SMB2, in the order of their requests.
    pub connections: BTreeMap<u32, Vec<Exchange>>,
    /// What WRITEs wrote, by exchange, where all of it was captured.
    payloads: HashMap<u64, Vec<u8>>,
    kept: usize,
    /// Exchanges that there was no room for.
    pub dropped: u64,
}

impl Sink for Recording {
    fn exchange(&mut self, exchange: &Exchange) {
        if exchange.family != Family::Smb2 {
            return;
        }
        if self.connections.values().map(Vec::len).sum::<usize>() >= EXCHANGES_MAX {
            self.dropped += 1;
            return;
        }
        self.connections.entry(exchange.connection).or_default().push(exchange.clone());
    }

    fn payload(&mut self, exchange: &Exchange, offset: u64, bytes: &[u8]) {
        if exchange.command != "WRITE" || self.kept + bytes.len() > PAYLOADS_MAX {
            return;
        }
        let data = self.payloads.entry(exchange.id).or_default();
        // pieces come in order, and one that leaves a gap makes the whole useless
        if exchange.offset.unwrap_or(0) + data.len() as u64 == offset {
            self.kept += bytes.len();
            data.extend_from_slice(bytes);
        }
    }
}

impl Recording {
    /// Reads a capture to its end.
    ///
    /// # Errors
    /// Where it cannot be read.
    pub fn of(source: &mut impl Source) -> Result<Self> {
        let mut pipeline = Pipeline::with_sink(Options { payloads: true, ..Options::default() }, Self::default());
        let (mut number, mut last) = (0, 0);
        while let Some(record) = source.next()? {
            number += 1;
            if record.has_time() {
                last = record.time_ns;
            }
            let meta =
                FrameMeta { number, time_ns: last, link_type: record.link_type, wire_len: record.wire_len, interface: record.interface };
            pipeline.frame(&meta, record.bytes, &mut Off);
        }
        let (_, mut recording) = pipeline.finish();
        for exchanges in recording.connections.values_mut() {
            exchanges.sort_by_key(|e| e.id);
        }
        Ok(recording)
    }

    /// The connection that did most.
    pub fn busiest(&self) -> Option<u32> {
        self.connections.iter().max_by_key(|(id, exchanges)| (exchanges.len(), std::cmp::Reverse(**id))).map(|(id, _)| *id)
    }
}

/// One operation to do again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Open a file.
    Open {
        /// Whether it may be made, and will be written to.
        write: bool,
        /// Whether it is a folder that may have to be made.
        folder: bool,
    },
    /// Read.
    Read {
        /// In the file.
        offset: u64,
        /// Bytes.
        length: u32,
        /// Inline where 0.
        channel: u32,
    },
    /// Write.
    Write {
        /// In the file.
        offset: u64,
        /// What; zeros where the capture has it not whole.
        data: Vec<u8>,
        /// Inline where 0.
        channel: u32,
    },
    /// Flush.
    Flush,
    /// A page of a listing.
    List,
    /// Information on a file: which, the recording does not tell, so that its size is asked for.
    Info,
    /// Close.
    Close,
    /// A sign of life.
    Echo,
}

/// What becomes of a recorded exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Planned {
    /// It is done again.
    Do(Action),
    /// It is not, and why.
    Skip(&'static str),
}

/// A recorded exchange, and what becomes of it.
#[derive(Clone, Debug)]
pub struct Step {
    /// As it was.
    pub recorded: Exchange,
    /// As it will be.
    pub planned: Planned,
}

impl Step {
    /// The file, unescaped; the share itself is the empty name.
    pub fn file(&self) -> Option<&str> {
        self.recorded.file.as_deref()
    }
}

/// What is allowed and wanted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted {
    /// Do again what changes files.
    pub writes: bool,
    /// Read and write inside of the messages only.
    pub no_rdma: bool,
}

/// All steps, in order.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// In the order of the recorded requests.
    pub steps: Vec<Step>,
}

impl Plan {
    /// What of one connection is to be done again. `None` where the recording has no such connection.
    pub fn of(recording: &Recording, connection: u32, wanted: Wanted) -> Option<Self> {
        let exchanges = recording.connections.get(&connection)?;
        let known = Known::of(exchanges);
        let steps = exchanges.iter().map(|recorded| {
            let planned = Self::planned(recorded, &known, recording, wanted);
            Step { recorded: recorded.clone(), planned }
        });
        Some(Self { steps: steps.collect() })
    }

    fn planned(e: &Exchange, known: &Known<'_>, recording: &Recording, wanted: Wanted) -> Planned {
        let file = e.file.as_deref();
        let changes = file.is_some_and(|file| known.written.contains(file) || known.is_made(file));
        let channel = match e.channel {
            _ if wanted.no_rdma => RdmaChannel::NONE,
            Channel::Inline => RdmaChannel::NONE,
            Channel::Rdma | Channel::RdmaTransform => RdmaChannel::RDMA_V1,
            Channel::RdmaInvalidate => RdmaChannel::RDMA_V1_INVALIDATE,
        };
        match e.command {
            "NEGOTIATE" | "SESSION_SETUP" | "TREE_CONNECT" | "TREE_DISCONNECT" | "LOGOFF" => {
                return Planned::Skip("the session of the replay has its own");
            }
            "ECHO" => return Planned::Do(Action::Echo),
            "READ" | "WRITE" | "CREATE" | "CLOSE" | "FLUSH" | "QUERY_DIRECTORY" | "QUERY_INFO" => {}
            "SET_INFO" => return Planned::Skip("the recording does not tell what it set"),
            "IOCTL" => return Planned::Skip("the recording does not tell its control code"),
            "CANCEL" | "CHANGE_NOTIFY" | "LOCK" | "OPLOCK_BREAK" => return Planned::Skip("it has no meaning without its rivals"),
            _ => return Planned::Skip("it is not done again"),
        }
        if e.file.is_none() {
            return Planned::Skip("its file is not known");
        }
        if e.command == "WRITE" && !wanted.writes {
            return Planned::Skip("it changes data: allow it with --allow-writes");
        }
        if changes && e.command != "WRITE" && e.status == Some(0) && !wanted.writes {
            return Planned::Skip("the recording made or changed its file: allow that with --allow-writes");
        }
        if e.command == "QUERY_INFO" && e.status != Some(0) {
            return Planned::Skip("the recording does not tell what it asked for in vain");
        }
        Planned::Do(match e.command {
            "CREATE" => Action::Open {
                write: changes && wanted.writes && e.status == Some(0),
                folder: file.is_some_and(|file| known.folders.contains(file)),
            },
            "CLOSE" => Action::Close,
            "FLUSH" if !wanted.writes => return Planned::Skip("nothing was written"),
            "FLUSH" => Action::Flush,
            "QUERY_DIRECTORY" => Action::List,
            "QUERY_INFO" => Action::Info,
            "READ" => match (e.offset, e.length) {
                (Some(offset), Some(length)) if length <= 64 << 20 => Action::Read { offset, length, channel: channel.0 },
                _ => return Planned::Skip("its length is not known"),
            },
            _ => match (e.offset, e.length) {
                (Some(offset), Some(length)) if length <= 64 << 20 => {
                    let mut data = recording.payloads.get(&e.id).cloned().unwrap_or_default();
                    data.resize(length as usize, 0);
                    Action::Write { offset, data, channel: channel.0 }
                }
                _ => return Planned::Skip("its length is not known"),
            },
        })
    }

    /// How many steps are done.
    pub fn done(&self) -> usize {
        self.steps.iter().filter(|s| matches!(s.planned, Planned::Do(_))).count()
    }
}

/// What a recording tells of its files, by looking at all of it.
struct Known<'a> {
    /// They were written to.
    written: HashSet<&'a str>,
    /// They were not there at first, and then they were.
    made: HashSet<&'a str>,
    /// They hold others, or were listed.
    folders: HashSet<&'a str>,
}

impl<'a> Known<'a> {
    fn of(exchanges: &'a [Exchange]) -> Self {
        let (mut written, mut made, mut folders, mut missing) = (HashSet::new(), HashSet::new(), HashSet::new(), HashSet::new());
        for e in exchanges {
            let Some(file) = e.file.as_deref() else { continue };
            match (e.command, e.status) {
                ("WRITE", _) => drop(written.insert(file)),
                ("QUERY_DIRECTORY", _) => drop(folders.insert(file)),
                ("CREATE", Some(0)) if missing.contains(file) => drop(made.insert(file)),
                ("CREATE", Some(NAME_NOT_FOUND)) => drop(missing.insert(file)),
                _ => {}
            }
            if let Some((folder, _)) = file.rsplit_once('\\') {
                folders.insert(folder);
            }
        }
        Self { written, made, folders }
    }

    /// Whether the recording made it, or a folder that it lies in.
    fn is_made(&self, file: &str) -> bool {
        let mut at = Some(file);
        while let Some(path) = at {
            if self.made.contains(path) {
                return true;
            }
            at = path.rsplit_once('\\').map(|(folder, _)| folder);
        }
        false
    }
}

/// STATUS_OBJECT_NAME_NOT_FOUND
const NAME_NOT_FOUND: u32 = 0xc000_0034;

/// How fast.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// Each step when the one before it is done.
    Asap,
    /// At the recorded times, so many times as fast; not before the step before is done.
    Times(f64),
}

/// What a step came to.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The live status; `None` where the step was skipped.
    pub status: Option<NtStatus>,
    /// Bytes read or written.
    pub bytes: u64,
    /// From request to reply, in ns; of all requests where it took several.
    pub latency: i64,
    /// Of what was read.
    pub sha256: Option<[u8; 32]>,
    /// What is different from what was recorded.
    pub differs: Option<String>,
}

/// Runs the plan, and hands each step's outcome to `told`.
///
/// # Errors
/// Where the connection fails; what the server refuses is an outcome.
pub fn run(plan: &Plan, client: &mut Client, pace: Pace, mut told: impl FnMut(&Step, &Outcome)) -> Result<()> {
    let begun = Instant::now();
    let first = plan.steps.first().map_or(0, |s| s.recorded.request.time);
    let mut open: HashMap<String, Vec<(Opened, bool)>> = HashMap::new();
    let mut failed: HashSet<String> = HashSet::new();
    for step in &plan.steps {
        let Planned::Do(action) = &step.planned else {
            told(step, &Outcome::default());
            continue;
        };
        // what follows a CREATE that failed has nothing to work on
        if !matches!(action, Action::Open { .. } | Action::Echo) && step.file().is_some_and(|file| failed.contains(file)) {
            told(step, &Outcome::default());
            continue;
        }
        if matches!(action, Action::Close) && step.file().is_none_or(|file| open.get(file).is_none_or(Vec::is_empty)) {
            told(step, &Outcome::default());
            continue;
        }
        if let Pace::Times(factor) = pace {
            let after = (step.recorded.request.time - first).max(0) as f64 / factor.max(0.001);
            // an hour is longer than anybody waits for one step
            let at = Duration::from_nanos(after as u64);
            let left = at.saturating_sub(begun.elapsed()).min(Duration::from_secs(3600));
            idle(client, left)?;
        }
        let mut outcome = Outcome::default();
        let before = Instant::now();
        let result = act(action, step, client, &mut open, &mut outcome);
        outcome.latency = before.elapsed().as_nanos() as i64;
        outcome.status = Some(match result {
            Ok(()) => NtStatus::SUCCESS,
            Err(Error::Status { status, .. }) => status,
            Err(e) => return Err(e),
        });
        if let (Action::Open { .. }, Some(file)) = (action, step.file()) {
            if outcome.status == Some(NtStatus::SUCCESS) {
                failed.remove(file);
            } else {
                failed.insert(file.to_owned());
            }
        }
        outcome.differs = differs(step, &outcome);
        told(step, &outcome);
    }
    for (opened, _) in open.into_values().flatten() {
        // a file that the recording left open
        match client.close(opened.id) {
            Ok(()) | Err(Error::Status { .. }) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Waits, and answers keepalives meanwhile.
fn idle(client: &mut Client, left: Duration) -> Result<()> {
    let until = Instant::now() + left;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        if let Some(crate::channel::Event::Closed(why)) = client.channel().poll(left)? {
            return Err(why.into());
        }
    }
}

fn act(
    action: &Action,
    step: &Step,
    client: &mut Client,
    open: &mut HashMap<String, Vec<(Opened, bool)>>,
    outcome: &mut Outcome,
) -> Result<()> {
    let name = step.file().unwrap_or_default();
    match action {
        Action::Echo => return client.echo(),
        Action::Open { write: true, folder: true } => {
            let opened = client.create(name, access::READ, disposition::OPEN_IF, 1)?;
            open.entry(name.to_owned()).or_default().push((opened, false));
            return Ok(());
        }
        Action::Open { write, .. } => {
            let (access, disposition) =
                if *write { (access::READ | access::WRITE, disposition::OPEN_IF) } else { (access::READ, disposition::OPEN) };
            let opened = client.create(name, access, disposition, 0)?;
            open.entry(name.to_owned()).or_default().push((opened, false));
            return Ok(());
        }
        Action::Close => {
            let Some((opened, _)) = open.get_mut(name).and_then(Vec::pop) else {
                // its CREATE failed, here or there
                return Ok(());
            };
            return client.close(opened.id);
        }
        _ => {}
    }
    // the capture may have begun after the file was opened
    if open.get(name).is_none_or(Vec::is_empty) {
        let write = matches!(action, Action::Write { .. } | Action::Flush);
        let (access, disposition) =
            if write { (access::READ | access::WRITE, disposition::OPEN_IF) } else { (access::READ, disposition::OPEN) };
        let opened = client.create(name, access, disposition, 0)?;
        open.entry(name.to_owned()).or_default().push((opened, false));
    }
    let Some((opened, listed)) = open.get_mut(name).and_then(|all| all.last_mut()) else { return Ok(()) };
    let id = opened.id;
    match action {
        Action::Read { offset, length, channel } => {
            let mut all = Vec::with_capacity((*length).min(1 << 23) as usize);
            loop {
                let left = *length - all.len() as u32;
                let at = offset + all.len() as u64;
                let piece = if *channel == 0 {
                    client.read_inline(id, at, left.min(client.max_read_size).min(INLINE_MAX))
                } else {
                    let room = client.channel().lane().smbd().map_or(1 << 20, |s| s.max_read_write_size());
                    client.read_rdma(id, at, left.min(client.max_read_size).min(room), RdmaChannel(*channel))
                };
                let piece = match piece {
                    // the end of the file behind what there was
                    Err(Error::Status { status: NtStatus::END_OF_FILE, .. }) if !all.is_empty() => break,
                    piece => piece?.data,
                };
                let short = piece.is_empty();
                all.extend_from_slice(&piece);
                if short || all.len() as u32 >= *length {
                    break;
                }
            }
            outcome.bytes = all.len() as u64;
            outcome.sha256 = Some(Sha256::digest(&all).into());
        }
        Action::Write { offset, data, channel } => {
            let room = if *channel == 0 { INLINE_MAX } else { client.channel().lane().smbd().map_or(1 << 20, |s| s.max_read_write_size()) };
            for (n, piece) in data.chunks(room.min(client.max_write_size).max(1) as usize).enumerate() {
                let at = offset + n as u64 * u64::from(room.min(client.max_write_size).max(1));
                outcome.bytes += u64::from(if *channel == 0 {
                    client.write_inline(id, at, piece)?
                } else {
                    client.write_rdma(id, at, piece.to_vec(), RdmaChannel(*channel))?.0
                });
            }
        }
        Action::Flush => client.flush(id)?,
        Action::List => {
            let restart = !*listed;
            *listed = true;
            if client.list_page(id, "*", restart)?.is_none() {
                return Err(Error::Status { what: "QUERY_DIRECTORY", status: NtStatus::NO_MORE_FILES });
            }
        }
        Action::Info => drop(client.query_info(id, 1, FILE_STANDARD_INFORMATION, INFO_ROOM)?),
        Action::Echo | Action::Open { .. } | Action::Close => {}
    }
    Ok(())
}

/// Bytes of one inline READ or WRITE at most: with its headers it is to fit into what every peer puts together.
const INLINE_MAX: u32 = 65_536;

/// What of an outcome is not as it was recorded.
fn differs(step: &Step, outcome: &Outcome) -> Option<String> {
    let recorded = &step.recorded;
    let live = outcome.status?;
    if let Some(status) = recorded.status
        && status != live.0
    {
        let name = |s| crate::error::status_name(NtStatus(s));
        return Some(format!("status {} instead of {}", name(live.0), name(status)));
    }
    if live != NtStatus::SUCCESS || recorded.reply.is_none() || !matches!(recorded.command, "READ" | "WRITE") {
        return None;
    }
    if recorded.bytes_moved != outcome.bytes {
        return Some(format!("{} bytes instead of {}", outcome.bytes, recorded.bytes_moved));
    }
    match (recorded.sha256, outcome.sha256) {
        (Some(was), Some(is)) if was != is => Some("other contents".to_owned()),
        _ => None,
    }
}
