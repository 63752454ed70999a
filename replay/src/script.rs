//! Replay of a captured session: the operations of one connection of a capture ([`Recording`]), the ones to replay
//! ([`Plan`]), and the results ([`run`]).
//!
//! Changes on the peer need explicit permission: a plan without `writes` opens existing files for reading, and skips
//! the rest.

use crate::error::{Error, Result};
use crate::smb2::client::{Client, Opened, Pending, access, disposition, number};
use rdmascope_analyzer::env::Options;
use rdmascope_analyzer::exchange::{DataPath, Exchange, Family};
use rdmascope_analyzer::keys::Dialect;
use rdmascope_analyzer::pipeline::{FrameMeta, Pipeline};
use rdmascope_analyzer::report::Sink;
use rdmascope_capture::Source;
use rdmascope_dissector::trace::Off;
use rdmascope_dissector::wire::smb2::access::{file_attribute, rights};
use rdmascope_dissector::wire::smb2::create::options::{DELETE_ON_CLOSE, DIRECTORY_FILE, OPEN_BY_FILE_ID};
use rdmascope_dissector::wire::smb2::header::Header;
use rdmascope_dissector::wire::smb2::info::{FileClass, InfoType};
use rdmascope_dissector::wire::smb2::ioctl::ControlCode;
use rdmascope_dissector::wire::smb2::rdma_channel::Channel as RdmaChannel;
use rdmascope_dissector::wire::smb2::{Command, FileId, NtStatus, create};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::{Duration, Instant};

/// Maximum number of exchanges taken from a capture.
const EXCHANGES_MAX: usize = 1 << 20;
/// Maximum number of bytes of recorded READs and WRITEs that are kept.
const PAYLOADS_MAX: usize = 256 << 20;
/// Maximum output buffer length of a request, in bytes.
const ROOM_MAX: u32 = 1 << 20;

/// The file of a recorded request, and its place in a compound.
#[derive(Clone, Copy, Debug)]
struct FileOf {
    /// The FileId in the request; of a CREATE that succeeded, in its reply.
    file: Option<FileId>,
    /// It works on the file of the request before.
    related: bool,
    /// Another request follows in the same message.
    more: bool,
    created: Option<Created>,
}

/// The reply of a CREATE, \[MS-SMB2\] 2.2.14.
#[derive(Clone, Copy, Debug)]
struct Created {
    /// 0 superseded, 1 opened, 2 created, 3 overwritten.
    action: u32,
    /// Bytes of the file.
    length: u64,
    folder: bool,
}

const OPENED: u32 = 1;
const CREATED: u32 = 2;

/// Offset of the FileId in a request, counted from the beginning of its header.
fn file_id_at(command: Command) -> Option<usize> {
    match command {
        Command::CLOSE
        | Command::FLUSH
        | Command::LOCK
        | Command::IOCTL
        | Command::QUERY_DIRECTORY
        | Command::CHANGE_NOTIFY => Some(72),
        Command::READ | Command::WRITE | Command::SET_INFO => Some(80),
        Command::QUERY_INFO => Some(88),
        _ => None,
    }
}

/// Exchanges of the connections of a capture, by number.
#[derive(Debug, Default)]
pub struct Recording {
    /// Exchanges of SMB2, in the order of their requests.
    pub connections: BTreeMap<u32, Vec<Exchange>>,
    /// Payloads of READs and WRITEs, by exchange, if all of them was captured.
    payloads: HashMap<u64, Vec<u8>>,
    /// Requests of CREATE, QUERY_DIRECTORY, QUERY_INFO, SET_INFO and IOCTL, by exchange.
    requests: HashMap<u64, Vec<u8>>,
    /// File of each request, by exchange.
    files: HashMap<u64, FileOf>,
    /// Bytes of both.
    kept: usize,
    /// Exchanges of all connections.
    exchanges: usize,
    /// Exchanges that there was no room for.
    pub dropped: u64,
}

impl Sink for Recording {
    fn exchange(&mut self, exchange: &Exchange) {
        if exchange.family != Family::Smb2 {
            return;
        }
        if self.exchanges >= EXCHANGES_MAX {
            self.dropped += 1;
            return;
        }
        self.exchanges += 1;
        self.connections.entry(exchange.connection).or_default().push(exchange.clone());
    }

    fn request(&mut self, exchange: u64, message: &[u8]) {
        if self.files.len() >= EXCHANGES_MAX {
            return;
        }
        let Ok((_, header)) = Header::parse(message, &mut Off) else { return };
        let file = file_id_at(header.command).and_then(|at| Some(FileId(*message.get(at..)?.first_chunk()?)));
        self.files.insert(
            exchange,
            FileOf { file, related: header.is_related(), more: header.next_command != 0, created: None },
        );
        let asks = matches!(
            header.command,
            Command::CREATE | Command::QUERY_DIRECTORY | Command::SET_INFO | Command::QUERY_INFO | Command::IOCTL
        );
        if asks && self.kept + message.len() <= PAYLOADS_MAX {
            self.kept += message.len();
            self.requests.insert(exchange, message.to_vec());
        }
    }

    fn reply(&mut self, exchange: u64, message: &[u8]) {
        let (Some(of), Ok((_, header))) = (self.files.get_mut(&exchange), Header::parse(message, &mut Off)) else {
            return;
        };
        if header.command == Command::CREATE
            && header.status() == NtStatus::SUCCESS
            && let Ok((_, response)) = create::response(message, &mut Off)
        {
            let fixed = &response.fixed;
            of.file = Some(response.file());
            of.created = Some(Created {
                action: fixed.create_action,
                length: fixed.end_of_file,
                folder: fixed.file_attributes & file_attribute::DIRECTORY != 0,
            });
        }
    }

    fn payload(&mut self, exchange: &Exchange, offset: u64, bytes: &[u8]) {
        if !matches!(exchange.command, "READ" | "WRITE") || self.kept + bytes.len() > PAYLOADS_MAX {
            return;
        }
        let data = self.payloads.entry(exchange.id).or_default();
        // pieces come in order, and a gap makes the payload useless
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
    /// If it cannot be read.
    pub fn of(source: &mut impl Source) -> Result<Self> {
        let mut pipeline = Pipeline::with_sink(Options { payloads: true, ..Options::default() }, Self::default());
        let (mut number, mut last) = (0, 0);
        while let Some(record) = source.next()? {
            number += 1;
            if record.has_time() {
                last = record.time_ns;
            }
            let meta = FrameMeta {
                number,
                time_ns: last,
                link_type: record.link_type,
                wire_len: record.wire_len,
                interface: record.interface,
            };
            pipeline.frame(&meta, record.bytes, &mut Off);
        }
        let (_, mut recording) = pipeline.finish();
        for exchanges in recording.connections.values_mut() {
            exchanges.sort_by_key(|e| e.id);
        }
        Ok(recording)
    }

    /// The request of a SET_INFO: type, class, AdditionalInformation and the information. `None` if it was not captured
    /// completely.
    fn set_info(&self, exchange: u64) -> Option<(u8, u8, u32, &[u8])> {
        let message = self.requests.get(&exchange)?;
        let (at, length) = (number(message, 72, 2) as usize, number(message, 68, 4) as usize);
        let info = message.get(at..at.checked_add(length)?)?;
        Some((number(message, 66, 1) as u8, number(message, 67, 1) as u8, number(message, 76, 4) as u32, info))
    }

    /// DesiredAccess, CreateDisposition and CreateOptions of a CREATE. `None` if it was not captured completely.
    fn asked(&self, exchange: u64) -> Option<(u32, u32, u32)> {
        let message = self.requests.get(&exchange).filter(|m| m.len() >= 120)?;
        let field = |at| number(message, at, 4) as u32;
        Some((field(88), field(100), field(104)))
    }

    fn created(&self, exchange: u64) -> Option<Created> {
        self.files.get(&exchange)?.created
    }

    /// The connection that did most.
    pub fn busiest(&self) -> Option<u32> {
        self.connections
            .iter()
            .max_by_key(|(id, exchanges)| (exchanges.len(), std::cmp::Reverse(**id)))
            .map(|(id, _)| *id)
    }
}

const NAME_NOT_FOUND: u32 = NtStatus::OBJECT_NAME_NOT_FOUND.0;

/// One operation to do again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Open a file, or make it.
    Open {
        /// DesiredAccess.
        access: u32,
        /// CreateDisposition.
        disposition: u32,
        /// CreateOptions.
        options: u32,
    },
    /// Read.
    Read {
        /// In the file.
        offset: u64,
        /// Bytes.
        length: u32,
        /// Inline if 0.
        channel: u32,
    },
    /// Write.
    Write {
        /// In the file.
        offset: u64,
        /// The data, as far as captured; the rest is zeros.
        data: Vec<u8>,
        /// Bytes.
        length: u32,
        /// Inline if 0.
        channel: u32,
    },
    /// Flush.
    Flush,
    /// A page of a listing.
    List {
        /// Search pattern for names.
        pattern: String,
        /// Flags, 2.2.33.
        flags: u8,
        /// Bytes that the answer may have.
        room: u32,
    },
    /// Information on a file, its file system or its security.
    Info {
        /// InfoType, 2.2.37.
        info_type: u8,
        /// FileInfoClass, 2.2.37.
        class: u8,
        /// Bytes that the answer may have.
        room: u32,
        /// AdditionalInformation, and Flags.
        more: (u32, u32),
        /// The input buffer.
        input: Vec<u8>,
    },
    /// Information to be set.
    SetInfo {
        /// InfoType, 2.2.39.
        info_type: u8,
        /// FileInfoClass, 2.2.39.
        class: u8,
        /// AdditionalInformation.
        additional: u32,
        /// The information.
        info: Vec<u8>,
    },
    /// A control code.
    Control {
        /// The control code.
        code: ControlCode,
        /// The input buffer. For VALIDATE_NEGOTIATE_INFO it is made by the replay itself.
        input: Vec<u8>,
        /// Bytes that the answer may have.
        room: u32,
    },
    /// Close.
    Close,
    /// Echo.
    Echo,
}

impl Action {
    /// True if it is about a file that has to be open.
    fn needs_file(&self) -> bool {
        match self {
            Self::Open { .. } | Self::Echo => false,
            Self::Control { code, .. } => !is_of_connection(*code),
            _ => true,
        }
    }

    /// True if it changes files.
    fn writes(&self) -> bool {
        match self {
            Self::Write { .. } | Self::Flush | Self::SetInfo { .. } => true,
            Self::Open { disposition, options, .. } => {
                *disposition != disposition::OPEN || options & DELETE_ON_CLOSE != 0
            }
            Self::Control { code, .. } => changes(*code),
            _ => false,
        }
    }
}

/// Control codes that are about no file.
fn is_of_connection(code: ControlCode) -> bool {
    matches!(code, ControlCode::VALIDATE_NEGOTIATE_INFO | ControlCode::QUERY_NETWORK_INTERFACE_INFO)
}

/// Control codes that change the file, and mean the same on another server.
fn changes(code: ControlCode) -> bool {
    matches!(
        code,
        ControlCode::SET_SPARSE
            | ControlCode::SET_ZERO_DATA
            | ControlCode::SET_COMPRESSION
            | ControlCode::SET_REPARSE_POINT
            | ControlCode::DELETE_REPARSE_POINT
            | ControlCode::FILE_LEVEL_TRIM
            | ControlCode::SET_INTEGRITY_INFORMATION
            | ControlCode::SET_OBJECT_ID
            | ControlCode::CREATE_OR_GET_OBJECT_ID
    )
}

/// Control codes that only read, and are replayed.
fn asks(code: ControlCode) -> bool {
    matches!(
        code,
        ControlCode::QUERY_ALLOCATED_RANGES
            | ControlCode::QUERY_FILE_REGIONS
            | ControlCode::GET_COMPRESSION
            | ControlCode::GET_REPARSE_POINT
            | ControlCode::GET_OBJECT_ID
            | ControlCode::GET_INTEGRITY_INFORMATION
            | ControlCode::SRV_ENUMERATE_SNAPSHOTS
            | ControlCode::QUERY_SHARED_VIRTUAL_DISK_SUPPORT
    )
}

/// Decision on a recorded exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Planned {
    /// It is replayed.
    Do(Action),
    /// It is skipped, for this reason.
    Skip(&'static str),
}

/// A recorded exchange, and how it is replayed.
#[derive(Clone, Debug)]
pub struct Step {
    /// The exchange in the capture.
    pub recorded: Exchange,
    /// As it will be.
    pub planned: Planned,
    /// The handle that it makes or uses, by the recording's FileId; `None` if it has none.
    pub handle: Option<u32>,
    /// The compound to which it belonged. Steps of one compound are adjacent.
    pub compound: Option<u32>,
}

impl Step {
    /// The file, unescaped; the share itself is the empty name.
    pub fn file(&self) -> Option<&str> {
        self.recorded.file.as_deref()
    }
}

/// Options of a plan.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted {
    /// True if steps that change files are replayed.
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
    /// Makes the plan for one connection. `None` if the recording has no such connection.
    pub fn of(recording: &Recording, connection: u32, wanted: Wanted) -> Option<Self> {
        let exchanges = recording.connections.get(&connection)?;
        let known = Known::of(exchanges, recording);
        let places = places(exchanges, recording);
        let steps = exchanges.iter().zip(places).map(|(recorded, (handle, compound))| {
            let planned = Self::planned(recorded, &known, recording, wanted);
            Step { recorded: recorded.clone(), planned, handle, compound }
        });
        let mut steps: Vec<Step> = steps.collect();
        // operations on a handle that is not made again cannot be replayed
        let made = steps
            .iter()
            .filter(|s| s.recorded.command == "CREATE" && !s.recorded.failed && matches!(s.planned, Planned::Skip(_)));
        let missing: HashSet<u32> = made.filter_map(|step| step.handle).collect();
        for step in &mut steps {
            let gone = step.handle.is_some_and(|handle| missing.contains(&handle));
            if gone && matches!(&step.planned, Planned::Do(action) if action.needs_file()) {
                step.planned = Planned::Skip("its CREATE is not repeated");
            }
        }
        Some(Self { steps })
    }

    fn planned(e: &Exchange, known: &Known<'_>, recording: &Recording, wanted: Wanted) -> Planned {
        let file = e.file.as_deref();
        let changes = file.is_some_and(|file| known.written.contains(file) || known.is_made(file));
        let channel = match e.channel {
            _ if wanted.no_rdma => RdmaChannel::NONE,
            DataPath::Inline => RdmaChannel::NONE,
            DataPath::Rdma | DataPath::RdmaTransform => RdmaChannel::RDMA_V1,
            DataPath::RdmaInvalidate => RdmaChannel::RDMA_V1_INVALIDATE,
        };
        match e.command {
            "NEGOTIATE" | "SESSION_SETUP" | "TREE_CONNECT" | "TREE_DISCONNECT" | "LOGOFF" => {
                return Planned::Skip("the replay sets up a session of its own");
            }
            "ECHO" => return Planned::Do(Action::Echo),
            "IOCTL" => return Self::control(e, recording, wanted, changes),
            "READ" | "WRITE" | "CREATE" | "CLOSE" | "FLUSH" | "QUERY_DIRECTORY" | "QUERY_INFO" | "SET_INFO" => {}
            "CANCEL" | "CHANGE_NOTIFY" | "LOCK" | "OPLOCK_BREAK" => {
                return Planned::Skip("it makes no sense without the other clients");
            }
            _ => return Planned::Skip("it is not repeated"),
        }
        if e.file.is_none() {
            return Planned::Skip("its file is not known");
        }
        if matches!(e.command, "WRITE" | "SET_INFO") && !wanted.writes {
            return Planned::Skip("it changes data: allow it with --allow-writes");
        }
        if changes && e.command != "WRITE" && (e.status == Some(0) || e.command == "QUERY_INFO") && !wanted.writes {
            return Planned::Skip("the recording made or changed its file: allow that with --allow-writes");
        }
        Planned::Do(match e.command {
            "CREATE" => match Self::open(e, recording, wanted) {
                Ok(action) => action,
                Err(why) => return Planned::Skip(why),
            },
            "CLOSE" => Action::Close,
            "FLUSH" if !wanted.writes => return Planned::Skip("nothing was written"),
            "FLUSH" => Action::Flush,
            "QUERY_DIRECTORY" => {
                let Some(message) = recording.requests.get(&e.id) else { return Planned::Skip(NOT_CAPTURED) };
                let (at, length) = (number(message, 88, 2) as usize, number(message, 90, 2) as usize);
                let Some(pattern) = message.get(at..at + length) else { return Planned::Skip(NOT_CAPTURED) };
                let units: Vec<u16> = pattern.chunks_exact(2).map(|c| u16::from_le_bytes([c[0], c[1]])).collect();
                Action::List {
                    pattern: String::from_utf16_lossy(&units),
                    flags: number(message, 67, 1) as u8,
                    room: (number(message, 92, 4) as u32).min(ROOM_MAX),
                }
            }
            "QUERY_INFO" => {
                let Some(message) = recording.requests.get(&e.id) else { return Planned::Skip(NOT_CAPTURED) };
                let field = |at, n| number(message, at, n) as u32;
                let (at, length) = (field(72, 2) as usize, field(76, 4) as usize);
                let input = if length == 0 { Some(&[][..]) } else { message.get(at..at.saturating_add(length)) };
                let (Some(input), true) = (input, message.len() >= 104) else { return Planned::Skip(NOT_CAPTURED) };
                let (info_type, class) = (field(66, 1) as u8, field(67, 1) as u8);
                Action::Info {
                    info_type,
                    class,
                    room: field(68, 4).min(ROOM_MAX),
                    more: (field(80, 4), field(84, 4)),
                    input: input.to_vec(),
                }
            }
            "SET_INFO" => {
                let Some((info_type, class, additional, info)) = recording.set_info(e.id) else {
                    return Planned::Skip(NOT_CAPTURED);
                };
                Action::SetInfo { info_type, class, additional, info: info.to_vec() }
            }
            "READ" => match (e.offset, e.length) {
                (Some(offset), Some(length)) if length <= 64 << 20 => {
                    Action::Read { offset, length, channel: channel.0 }
                }
                _ => return Planned::Skip("its length is not known"),
            },
            _ => match (e.offset, e.length) {
                (Some(offset), Some(length)) if length <= 64 << 20 => {
                    let mut data = recording.payloads.get(&e.id).cloned().unwrap_or_default();
                    data.truncate(length as usize);
                    Action::Write { offset, data, length, channel: channel.0 }
                }
                _ => return Planned::Skip("its length is not known"),
            },
        })
    }

    /// A recorded CREATE. Without permission to write, it only opens an existing file.
    fn open(e: &Exchange, recording: &Recording, wanted: Wanted) -> Result<Action, &'static str> {
        let folder = recording.created(e.id).is_some_and(|c| c.folder);
        let Some((access, disposition, options)) = recording.asked(e.id) else {
            let options = if folder { DIRECTORY_FILE } else { 0 };
            return Ok(Action::Open { access: access::READ, disposition: disposition::OPEN, options });
        };
        if options & OPEN_BY_FILE_ID != 0 {
            return Err("it names its file by a number of the recorded server");
        }
        if wanted.writes {
            // that right takes a privilege, which the replay need not have
            return Ok(Action::Open { access: access & !rights::SYSTEM_SECURITY, disposition, options });
        }
        let made = recording.created(e.id).is_some_and(|c| c.action != OPENED);
        match disposition {
            disposition::OPEN | disposition::OPEN_IF if !made => Ok(Action::Open {
                access: access::READ,
                disposition: disposition::OPEN,
                options: options & !DELETE_ON_CLOSE,
            }),
            _ => Err("it makes or empties a file: allow that with --allow-writes"),
        }
    }

    /// A control code. Keys of resumption, tokens and leases that it would need are those of the recorded session.
    fn control(e: &Exchange, recording: &Recording, wanted: Wanted, changed: bool) -> Planned {
        let Some(message) = recording.requests.get(&e.id).filter(|m| m.len() >= 120) else {
            return Planned::Skip(NOT_CAPTURED);
        };
        let code = ControlCode(number(message, 68, 4) as u32);
        let (at, length) = (number(message, 88, 4) as usize, number(message, 92, 4) as usize);
        let input = if length == 0 { Some(&[][..]) } else { message.get(at..at.saturating_add(length)) };
        let Some(input) = input else { return Planned::Skip(NOT_CAPTURED) };
        match code {
            ControlCode::DFS_GET_REFERRALS | ControlCode::DFS_GET_REFERRALS_EX => {
                return Planned::Skip("it asks for the referrals of the recorded server's name");
            }
            code if is_of_connection(code) => {}
            code if !asks(code) && !changes(code) => {
                return Planned::Skip("it depends on the recorded session, or belongs to a pipe");
            }
            _ if e.file.is_none() => return Planned::Skip("its file is not known"),
            code if changes(code) && !wanted.writes => {
                return Planned::Skip("it changes data: allow it with --allow-writes");
            }
            _ if changed && !wanted.writes => {
                return Planned::Skip("the recording made or changed its file: allow that with --allow-writes");
            }
            _ => {}
        }
        Planned::Do(Action::Control {
            code,
            input: input.to_vec(),
            room: (number(message, 108, 4) as u32).min(ROOM_MAX),
        })
    }

    /// Number of steps that are replayed.
    pub fn done(&self) -> usize {
        self.steps.iter().filter(|s| matches!(s.planned, Planned::Do(_))).count()
    }
}

const NOT_CAPTURED: &str = "the capture does not have all of its request";

/// The handle and the compound of each exchange of a connection.
fn places(exchanges: &[Exchange], recording: &Recording) -> Vec<(Option<u32>, Option<u32>)> {
    let (mut open, mut named): (HashMap<FileId, u32>, HashMap<&str, u32>) = (HashMap::new(), HashMap::new());
    let (mut handles, mut compounds) = (0, 0);
    let (mut previous, mut inside) = (None, None);
    let mut places = Vec::with_capacity(exchanges.len());
    for e in exchanges {
        let of = recording.files.get(&e.id);
        if !of.is_some_and(|of| of.related) {
            previous = None;
        }
        let new = |handles: &mut u32| {
            *handles += 1;
            *handles
        };
        let handle = match (e.command, of.and_then(|of| of.file)) {
            ("CREATE", file) => {
                let handle = new(&mut handles);
                if let Some(file) = file {
                    open.insert(file, handle);
                }
                Some(handle)
            }
            (_, Some(FileId::PREVIOUS)) if previous.is_some() => previous,
            // of nothing in particular
            (_, Some(FileId::PREVIOUS)) => None,
            // an unknown handle was opened before the recording
            (_, Some(file)) => Some(*open.entry(file).or_insert_with(|| new(&mut handles))),
            // its request was not captured: the file has the name alone
            (_, None) => e.file.as_deref().map(|name| *named.entry(name).or_insert_with(|| new(&mut handles))),
        };
        if let (Some(handle), Some(name)) = (handle, e.file.as_deref()) {
            named.insert(name, handle);
        }
        if let ("CLOSE", Some(file)) = (e.command, of.and_then(|of| of.file)) {
            open.remove(&file);
        }
        previous = handle.or(previous);
        let more = of.is_some_and(|of| of.more);
        let compound = inside.or_else(|| more.then(|| new(&mut compounds)));
        inside = compound.filter(|_| more);
        places.push((handle, compound));
    }
    places
}

/// Facts about the files of the recording.
struct Known<'a> {
    /// Files that were written to, truncated, renamed or deleted.
    written: HashSet<&'a str>,
    /// Names that were given to files.
    named: HashSet<String>,
    /// Files that did not exist at first and were created later.
    made: HashSet<&'a str>,
    /// Folders: names that have others below them, or were listed.
    folders: HashSet<&'a str>,
    /// State of files at their first use in the recording: their length, or `None` if they did not exist.
    first: HashMap<&'a str, Option<u64>>,
}

impl<'a> Known<'a> {
    fn of(exchanges: &'a [Exchange], recording: &Recording) -> Self {
        let (mut written, mut made, mut folders, mut missing) =
            (HashSet::new(), HashSet::new(), HashSet::new(), HashSet::new());
        let mut named: HashSet<String> = HashSet::new();
        let mut first = HashMap::new();
        for e in exchanges {
            let Some(file) = e.file.as_deref() else { continue };
            let created = recording.created(e.id);
            if !first.contains_key(file) && !named.contains(file) {
                match (e.command, e.status) {
                    ("CREATE", Some(0)) => {
                        // an overwritten file existed, with unknown length
                        let length = created.map_or(Some(0), |c| match c.action {
                            OPENED => Some(c.length),
                            CREATED => None,
                            _ => Some(0),
                        });
                        first.insert(file, length);
                    }
                    ("CREATE", Some(NAME_NOT_FOUND)) => drop(first.insert(file, None)),
                    ("CREATE", _) => {}
                    // it was opened before the recording
                    _ => drop(first.insert(file, Some(0))),
                }
            }
            if created.is_some_and(|c| c.folder) {
                folders.insert(file);
            }
            if e.status == Some(0) && recording.asked(e.id).is_some_and(|(.., options)| options & DELETE_ON_CLOSE != 0)
            {
                written.insert(file);
            }
            match created.map(|c| c.action) {
                None | Some(OPENED) => {}
                Some(CREATED) => drop(made.insert(file)),
                Some(_) => drop(written.insert(file)),
            }
            match (e.command, e.status) {
                ("WRITE", _) => drop(written.insert(file)),
                ("SET_INFO", _) => {
                    let Some((info_type, class, _, info)) = recording.set_info(e.id) else { continue };
                    let class = FileClass(class);
                    if info_type != InfoType::FILE.0 || class == FileClass::BASIC {
                        continue;
                    }
                    written.insert(file);
                    if e.status == Some(0) && matches!(class, FileClass::RENAME | FileClass::LINK) {
                        named.extend(new_name(info));
                    }
                }
                ("IOCTL", _) => {
                    let code = recording.requests.get(&e.id).map(|message| ControlCode(number(message, 68, 4) as u32));
                    if code.is_some_and(changes) {
                        written.insert(file);
                    }
                }
                ("QUERY_DIRECTORY", _) => drop(folders.insert(file)),
                ("CREATE", Some(0)) if missing.contains(file) => drop(made.insert(file)),
                ("CREATE", Some(NAME_NOT_FOUND)) => drop(missing.insert(file)),
                _ => {}
            }
            if let Some((folder, _)) = file.rsplit_once('\\') {
                folders.insert(folder);
            }
        }
        Self { written, named, made, folders, first }
    }

    /// True if the recording made it, or a folder that contains it.
    fn is_made(&self, file: &str) -> bool {
        let mut at = Some(file);
        while let Some(path) = at {
            if self.made.contains(path) || self.named.contains(path) {
                return true;
            }
            at = path.rsplit_once('\\').map(|(folder, _)| folder);
        }
        false
    }
}

/// The name in a FileRenameInformation or FileLinkInformation, \[MS-FSCC\] 2.4.43, as file names are reported.
fn new_name(info: &[u8]) -> Option<String> {
    let length = number(info, 16, 4) as usize;
    let units: Vec<u16> =
        info.get(20..20usize.checked_add(length)?)?.chunks_exact(2).map(|c| u16::from_le_bytes([c[0], c[1]])).collect();
    Some(String::from_utf16_lossy(&units).trim_matches('\\').to_owned())
}

/// The pace of a replay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// Each step as soon as those are done that were done before it in the recording.
    Asap,
    /// At the recorded times, divided by this factor, and never earlier.
    Times(f64),
}

/// Result of a step.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The live status; `None` if the step was skipped.
    pub status: Option<NtStatus>,
    /// Bytes read or written.
    pub bytes: u64,
    /// From request to reply, in ns; the sum if several requests were needed.
    pub latency: i64,
    /// Hash of the data read.
    pub sha256: Option<[u8; 32]>,
    /// Difference from the recording.
    pub differs: Option<String>,
    /// Reason for which it was skipped although it was planned.
    pub skipped: Option<&'static str>,
}

/// Totals of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Whole {
    /// From the first request to the last reply of the steps that were done, as recorded, in ns.
    pub recorded: i64,
    /// The same for the replay, in ns.
    pub live: i64,
    /// Maximum number of outstanding requests, as recorded.
    pub most_recorded: usize,
    /// The same for the replay.
    pub most_live: usize,
}

/// Maximum number of outstanding requests.
const JOBS_MAX: usize = 512;

/// Runs the plan, in the recorded order and with the recorded concurrency: a step waits for all requests that had been
/// answered before it was sent, and for no others. Each step's outcome is passed to `told`, in order.
///
/// # Errors
/// If the connection fails. A refusal by the server is an outcome.
pub fn run(plan: &Plan, client: &mut Client, pace: Pace, mut told: impl FnMut(&Step, &Outcome)) -> Result<Whole> {
    let mut runner = Runner { plan, client, open: HashMap::new(), failed: HashSet::new() };
    let mut outcomes: Vec<Option<Outcome>> = vec![None; plan.steps.len()];
    let (mut next, mut tell) = (0, 0);
    let mut jobs: Vec<Job> = Vec::new();
    let mut whole = Whole::default();
    let begun = Instant::now();
    let first = plan.steps.first().map_or(0, |s| s.recorded.request.time);
    let due = |step: &Step| match pace {
        Pace::Asap => Duration::ZERO,
        // an hour is longer than anybody waits for one step
        Pace::Times(factor) => Duration::from_nanos(
            (step.recorded.request.time.saturating_sub(first).max(0) as f64 / factor.max(0.001)) as u64,
        )
        .min(Duration::from_secs(3600)),
    };
    let mut heard = Instant::now();
    loop {
        let mut at = 0;
        while at < jobs.len() {
            if !runner.client.is_ready(&jobs[at].pending) {
                at += 1;
                continue;
            }
            let (step, result) = runner.advance(jobs.remove(at))?;
            match result {
                Advanced::More(job) => jobs.insert(at, job),
                Advanced::Done(outcome) => {
                    outcomes[step] = Some(outcome);
                    whole.live = begun.elapsed().as_nanos() as i64;
                }
            }
        }
        let mut wait = runner.client.options_mut().timeout;
        while let Some(step) = plan.steps.get(next) {
            if jobs.len() >= JOBS_MAX || jobs.iter().any(|job| runner.waits(step, &plan.steps[job.step])) {
                break;
            }
            let planned = !matches!(step.planned, Planned::Skip(_));
            let left = due(step).saturating_sub(begun.elapsed());
            if planned && !left.is_zero() {
                wait = wait.min(left);
                break;
            }
            if let Some(end) = runner.compound(next) {
                if plan.steps[next..end]
                    .iter()
                    .any(|step| jobs.iter().any(|job| runner.waits(step, &plan.steps[job.step])))
                {
                    break;
                }
                jobs.extend(runner.begin_compound(next, end)?);
                whole.most_live = whole.most_live.max(jobs.len());
                heard = Instant::now();
                next = end;
                continue;
            }
            match runner.begin(next)? {
                Begun::Job(job) => jobs.push(job),
                Begun::Skipped(why) => outcomes[next] = Some(Outcome { skipped: Some(why), ..Outcome::default() }),
                Begun::Nothing => outcomes[next] = Some(Outcome::default()),
            }
            whole.most_live = whole.most_live.max(jobs.len());
            heard = Instant::now();
            next += 1;
        }
        while let Some(Some(outcome)) = outcomes.get(tell) {
            told(&plan.steps[tell], outcome);
            tell += 1;
        }
        if tell == plan.steps.len() {
            break;
        }
        if jobs.iter().any(|job| runner.client.is_ready(&job.pending)) {
            continue;
        }
        if runner.client.pump(wait)? {
            heard = Instant::now();
        } else if !jobs.is_empty() && heard.elapsed() >= runner.client.options_mut().timeout {
            return Err(Error::Timeout { what: "a request", seconds: heard.elapsed().as_secs() });
        }
    }
    let done: Vec<&Exchange> = plan
        .steps
        .iter()
        .zip(&outcomes)
        .filter(|(_, o)| o.as_ref().is_some_and(|o| o.status.is_some()))
        .map(|(s, _)| &s.recorded)
        .collect();
    let (begin, end) =
        (done.iter().map(|e| e.request.time).min(), done.iter().filter_map(|e| Some(e.reply_end?.time)).max());
    whole.recorded = end.zip(begin).map_or(0, |(end, begin)| end.saturating_sub(begin));
    whole.most_recorded = at_once(&done);
    for opened in runner.open.into_values() {
        // a file that the recording left open
        match runner.client.close(opened.id) {
            Ok(()) | Err(Error::Status { .. }) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(whole)
}

/// Maximum number of exchanges in progress at one time.
fn at_once(exchanges: &[&Exchange]) -> usize {
    let mut edges: Vec<(i64, i32)> =
        exchanges.iter().filter_map(|e| Some([(e.request.time, 1), (e.reply_end?.time, -1)])).flatten().collect();
    // at the same time, one that ends makes room for one that begins
    edges.sort_unstable();
    let (mut now, mut most) = (0i32, 0);
    for (_, change) in edges {
        now += change;
        most = most.max(now);
    }
    usize::try_from(most).unwrap_or(0)
}

/// A step in progress.
struct Job {
    step: usize,
    begun: Instant,
    pending: Pending,
    /// True while a CREATE that the capture does not have is outstanding; the step itself comes after it.
    opening: bool,
    /// Bytes read so far; `count` is the number of bytes written so far.
    data: Vec<u8>,
    count: u64,
    /// True if it was sent in one message with others: then no further requests follow.
    compound: bool,
}

enum Begun {
    Job(Job),
    Skipped(&'static str),
    Nothing,
}

enum Advanced {
    More(Job),
    Done(Outcome),
}

struct Runner<'a> {
    plan: &'a Plan,
    client: &'a mut Client,
    /// Files open on the peer, by the recording's handle.
    open: HashMap<u32, Opened>,
    failed: HashSet<u32>,
}

impl Runner<'_> {
    /// True if `step` has to wait for the end of `other`, which is in progress.
    fn waits(&self, step: &Step, other: &Step) -> bool {
        let Planned::Do(action) = &step.planned else { return false };
        if other.recorded.reply_end.is_some_and(|end| end.time <= step.recorded.request.time) {
            return true;
        }
        // the handles of a file come and go in order, as do the pages of a listing
        let turns = |action: &Action| matches!(action, Action::Open { .. } | Action::Close);
        let both_list = matches!((action, &other.planned), (Action::List { .. }, Planned::Do(Action::List { .. })));
        let same_handle = step.handle.is_some() && step.handle == other.handle;
        step.file() == other.file() && (turns(action) || matches!(&other.planned, Planned::Do(other) if turns(other)))
            || same_handle && (both_list || step.handle.is_some_and(|handle| !self.open.contains_key(&handle)))
    }

    /// Reason for which a planned step is skipped after all.
    fn skipped(&self, step: &Step, action: &Action) -> Option<&'static str> {
        let validates = matches!(action, Action::Control { code: ControlCode::VALIDATE_NEGOTIATE_INFO, .. });
        if validates && self.client.dialect() == Dialect::SMB_3_1_1 {
            return Some("dialect 3.1.1 proves its negotiation by itself");
        }
        let handle = step.handle.unwrap_or_default();
        // operations after a CREATE that failed have no file
        let gone = self.failed.contains(&handle) || matches!(action, Action::Close) && !self.open.contains_key(&handle);
        (action.needs_file() && gone).then_some("its file is not open")
    }

    /// Sends the first request of a step, if it has something to work on.
    fn begin(&mut self, index: usize) -> Result<Begun> {
        let step = &self.plan.steps[index];
        let Planned::Do(action) = &step.planned else { return Ok(Begun::Nothing) };
        if let Some(why) = self.skipped(step, action) {
            return Ok(Begun::Skipped(why));
        }
        let begun = Instant::now();
        let open = step.handle.and_then(|handle| self.open.get(&handle)).map(|opened| opened.id);
        let opening = open.is_none() && action.needs_file();
        let name = step.file().unwrap_or_default();
        let pending = if opening {
            // the capture began after the file was opened
            let access = if action.writes() { access::READ | access::WRITE | access::DELETE } else { access::READ };
            self.client.start_create(name, access, disposition::OPEN, 0)?
        } else {
            self.request(action, name, open.unwrap_or(FileId::PREVIOUS), 0)?
        };
        Ok(Begun::Job(Job { step: index, begun, pending, opening, data: Vec::new(), count: 0, compound: false }))
    }

    /// The end of the steps that were sent in one message with this one, if they can be sent in one message again.
    fn compound(&self, index: usize) -> Option<usize> {
        /// Steps of a compound, and credits that they may take together.
        const STEPS_MAX: usize = 16;
        const CREDITS: u32 = 64;
        let steps = &self.plan.steps;
        let group = steps[index].compound?;
        let length = steps[index..].iter().take_while(|step| step.compound == Some(group)).count();
        let made = steps[index].handle.filter(|_| matches!(steps[index].planned, Planned::Do(Action::Open { .. })));
        let fits = |step: &Step| match &step.planned {
            Planned::Do(Action::Read { length, .. } | Action::Write { length, .. }) if *length > INLINE_MAX => false,
            Planned::Do(action) => {
                let open = step.handle.is_some_and(|handle| self.open.contains_key(&handle) || made == Some(handle));
                !action.needs_file() || open
            }
            Planned::Skip(_) => false,
        };
        let whole = (2..=STEPS_MAX).contains(&length) && steps[index..index + length].iter().all(fits);
        (whole && self.client.credits() >= CREDITS).then_some(index + length)
    }

    /// Sends the requests of steps in one message.
    fn begin_compound(&mut self, first: usize, end: usize) -> Result<Vec<Job>> {
        let plan = self.plan;
        let steps = &plan.steps[first..end];
        let made = steps[0].handle.filter(|_| matches!(steps[0].planned, Planned::Do(Action::Open { .. })));
        let begun = Instant::now();
        self.client.begin_compound(made.is_some());
        let mut jobs = Vec::new();
        for (n, step) in steps.iter().enumerate() {
            let Planned::Do(action) = &step.planned else { continue };
            let id = step
                .handle
                .filter(|handle| made != Some(*handle))
                .and_then(|handle| self.open.get(&handle))
                .map(|opened| opened.id);
            let pending = self.request(action, step.file().unwrap_or_default(), id.unwrap_or(FileId::PREVIOUS), 0)?;
            jobs.push(Job {
                step: first + n,
                begun,
                pending,
                opening: false,
                data: Vec::new(),
                count: 0,
                compound: true,
            });
        }
        self.client.end_compound()?;
        Ok(jobs)
    }

    /// The request of a step on the open file `id`, after `done` bytes were moved.
    fn request(&mut self, action: &Action, name: &str, id: FileId, done: u64) -> Result<Pending> {
        let room = |client: &mut Client, channel: u32, most: u32| {
            let room = if client.understood(RdmaChannel(channel)) == RdmaChannel::NONE {
                INLINE_MAX
            } else {
                client.channel().stack().smbd().map_or(1 << 20, |s| s.max_read_write_size())
            };
            room.min(most).max(1)
        };
        match action {
            Action::Echo => self.client.start_echo(),
            Action::Open { access, disposition, options } => {
                self.client.start_create(name, *access, *disposition, *options)
            }
            Action::Control { code: ControlCode::VALIDATE_NEGOTIATE_INFO, room, .. } => {
                let input = self.client.negotiated();
                self.client.start_ioctl(FileId::PREVIOUS, ControlCode::VALIDATE_NEGOTIATE_INFO.0, &input, *room)
            }
            Action::Control { code, input, room } if is_of_connection(*code) => {
                self.client.start_ioctl(FileId::PREVIOUS, code.0, input, *room)
            }
            Action::Read { offset, length, channel } => {
                let most = self.client.max_read_size;
                let piece = (*length - done as u32).min(room(self.client, *channel, most));
                self.client.start_read(id, offset.saturating_add(done), piece, RdmaChannel(*channel))
            }
            Action::Write { offset, data, length, channel } => {
                let most = self.client.max_write_size;
                let size = (*length - done as u32).min(room(self.client, *channel, most)) as usize;
                let rest = data.get(done as usize..).unwrap_or_default();
                let mut piece = rest[..rest.len().min(size)].to_vec();
                piece.resize(size, 0);
                self.client.start_write(id, offset.saturating_add(done), piece, RdmaChannel(*channel))
            }
            Action::Flush => self.client.start_flush(id),
            Action::List { pattern, flags, room } => self.client.start_list_with(id, pattern, *flags, *room),
            Action::Info { info_type, class, room, more, input } => {
                self.client.start_query_info_with(id, *info_type, *class, *room, *more, input)
            }
            Action::SetInfo { info_type, class, additional, info } => {
                self.client.start_set_info(id, *info_type, *class, *additional, info)
            }
            Action::Control { code, input, room } => self.client.start_ioctl(id, code.0, input, *room),
            Action::Close => self.client.start_close(id),
        }
    }

    /// Takes the reply, and sends the next request of the step if there is one.
    fn advance(&mut self, job: Job) -> Result<(usize, Advanced)> {
        let index = job.step;
        let begun = job.begun;
        let step = &self.plan.steps[index];
        // after a CREATE that failed, the status of requests related to it differs between servers
        let behind =
            job.compound && step.recorded.failed && step.handle.is_some_and(|handle| self.failed.contains(&handle));
        let mut outcome = Outcome::default();
        let result = match self.advanced(job, &mut outcome) {
            Ok(Some(job)) => return Ok((index, Advanced::More(job))),
            Ok(None) => Ok(()),
            Err(Error::Status { status, .. }) => Err(status),
            Err(e) => return Err(e),
        };
        outcome.status = Some(result.err().unwrap_or(NtStatus::SUCCESS));
        outcome.latency = begun.elapsed().as_nanos() as i64;
        outcome.differs = differs(step, &outcome).filter(|_| !behind || result.is_ok());
        Ok((index, Advanced::Done(outcome)))
    }

    fn advanced(&mut self, mut job: Job, outcome: &mut Outcome) -> Result<Option<Job>> {
        let step = &self.plan.steps[job.step];
        let Planned::Do(action) = &step.planned else { return Ok(None) };
        let name = step.file().unwrap_or_default();
        let handle = step.handle.unwrap_or_default();
        if job.opening || matches!(action, Action::Open { .. }) {
            let opened = match self.client.finish_create(job.pending) {
                Ok(opened) => opened,
                Err(e) => {
                    self.failed.insert(handle);
                    return Err(e);
                }
            };
            self.failed.remove(&handle);
            self.open.insert(handle, opened);
            if !job.opening {
                return Ok(None);
            }
            return Ok(Some(Job { pending: self.request(action, name, opened.id, 0)?, opening: false, ..job }));
        }
        let id = self.open.get(&handle).map_or(FileId::PREVIOUS, |opened| opened.id);
        match action {
            Action::Read { length, .. } => {
                let piece = match self.client.finish_read(job.pending) {
                    // the end of the file was reached
                    Err(Error::Status { status: NtStatus::END_OF_FILE, .. }) if !job.data.is_empty() => Vec::new(),
                    piece => piece?.data,
                };
                job.data.extend_from_slice(&piece);
                if !job.compound && !piece.is_empty() && job.data.len() < *length as usize {
                    let done = job.data.len() as u64;
                    return Ok(Some(Job { pending: self.request(action, name, id, done)?, ..job }));
                }
                outcome.bytes = job.data.len() as u64;
                outcome.sha256 = Some(Sha256::digest(&job.data).into());
            }
            Action::Write { length, .. } => {
                let (count, _) = self.client.finish_write(job.pending)?;
                job.count += u64::from(count);
                if !job.compound && count > 0 && job.count < u64::from(*length) {
                    let done = job.count;
                    return Ok(Some(Job { pending: self.request(action, name, id, done)?, ..job }));
                }
                outcome.bytes = job.count;
            }
            Action::List { .. } => {
                if self.client.finish_list(job.pending)?.is_none() {
                    return Err(Error::Status { what: "QUERY_DIRECTORY", status: NtStatus::NO_MORE_FILES });
                }
            }
            Action::Close => {
                self.open.remove(&handle);
                self.client.finish_success(job.pending)?;
            }
            Action::Control { code, .. } => {
                let output = self.client.finish_ioctl(job.pending)?;
                if *code == ControlCode::VALIDATE_NEGOTIATE_INFO && !self.client.is_negotiated(&output) {
                    return Err(Error::Answer { what: "VALIDATE_NEGOTIATE_INFO", why: "is not what was negotiated" });
                }
            }
            Action::Flush | Action::Info { .. } | Action::SetInfo { .. } | Action::Echo | Action::Open { .. } => {
                drop(self.client.finish_success(job.pending)?);
            }
        }
        Ok(None)
    }
}

/// A file that the recording needs and that was made, or why it was not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prepared {
    /// Path in the share.
    pub file: String,
    /// Its length; `None` for a folder.
    pub length: Option<u64>,
    /// Bytes of it that the recording read and that are as they were; all others are zeros.
    pub known: u64,
    /// Reason for which it failed.
    pub why_not: Option<String>,
}

/// Makes the files and folders that existed when the recording used them first, with the contents that the recording
/// read from them, as far as captured. Existing files are not changed.
///
/// # Errors
/// If the connection fails. A refusal by the server is reported in the result.
pub fn prepare(plan: &Plan, recording: &Recording, client: &mut Client) -> Result<Vec<Prepared>> {
    let owned: Vec<Exchange> = plan.steps.iter().map(|s| s.recorded.clone()).collect();
    let known = Known::of(&owned, recording);
    let opens = |step: &&Step| {
        matches!(step.planned, Planned::Do(Action::Open { .. } | Action::Read { .. } | Action::List { .. }))
    };
    // folders come before their contents, as their names are shorter; and contents read after a write are not the
    // original ones
    let mut wanted: BTreeMap<(usize, &str), (u64, Vec<&Step>)> = BTreeMap::new();
    // contents read after a write are not the original ones
    let mut changed: HashSet<&str> = HashSet::new();
    for step in &plan.steps {
        let Some(file) = step.file().filter(|file| !file.is_empty()) else { continue };
        if matches!(step.recorded.command, "WRITE" | "SET_INFO") && known.written.contains(file) {
            changed.insert(file);
        }
        let Some(Some(length)) = known.first.get(file).filter(|_| opens(&step)) else { continue };
        let entry = wanted.entry((file.matches('\\').count(), file)).or_insert((*length, Vec::new()));
        if let Planned::Do(Action::Read { offset, .. }) = &step.planned
            && !step.recorded.failed
            && !changed.contains(file)
        {
            entry.0 = entry.0.max(offset.saturating_add(step.recorded.bytes_moved));
            entry.1.push(step);
        }
    }
    let mut all = Vec::new();
    for ((_, file), (length, reads)) in wanted {
        let folder = known.folders.contains(file);
        let mut prepared =
            Prepared { file: file.to_owned(), length: (!folder).then_some(length), known: 0, why_not: None };
        match prepare_one(file, folder, length, &reads, recording, client) {
            Ok(known) => prepared.known = known,
            Err(Error::Status { status, .. }) => prepared.why_not = Some(crate::error::status_name(status)),
            Err(e) => return Err(e),
        }
        all.push(prepared);
    }
    let missing: BTreeSet<&str> = plan
        .steps
        .iter()
        .filter(opens)
        .filter_map(Step::file)
        .filter(|file| !file.is_empty() && known.first.get(file) == Some(&None))
        .collect();
    for file in missing {
        match client.create(file, access::ATTRIBUTES, disposition::OPEN, 0) {
            Ok(opened) => {
                client.close(opened.id)?;
                let why_not =
                    Some("it exists already, but did not during the recording: the replay will differ".to_owned());
                all.push(Prepared { file: file.to_owned(), length: None, known: 0, why_not });
            }
            Err(Error::Status { .. }) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(all)
}

fn prepare_one(
    file: &str,
    folder: bool,
    length: u64,
    reads: &[&Step],
    recording: &Recording,
    client: &mut Client,
) -> Result<u64> {
    const END_OF_FILE: u8 = 20;
    let access = if folder { access::READ } else { access::READ | access::WRITE };
    let opened = client.create(file, access, disposition::CREATE, if folder { 1 } else { 0 })?;
    let mut known = 0;
    if !folder {
        client.set_info(opened.id, 1, END_OF_FILE, &length.to_le_bytes())?;
        for step in reads {
            let (Some(offset), Some(data)) = (step.recorded.offset, recording.payloads.get(&step.recorded.id)) else {
                continue;
            };
            let room = client.max_write_size.min(1 << 20) as usize;
            for (n, piece) in data.chunks(room).enumerate() {
                known += u64::from(
                    client
                        .write_rdma(
                            opened.id,
                            offset.saturating_add((n * room) as u64),
                            piece.to_vec(),
                            RdmaChannel::RDMA_V1_INVALIDATE,
                        )?
                        .0,
                );
            }
        }
    }
    client.close(opened.id)?;
    Ok(known)
}

/// Maximum size of one inline READ or WRITE, in bytes: with its headers it must fit into the messages that every peer
/// can reassemble.
const INLINE_MAX: u32 = 65_536;

/// Difference of an outcome from the recording.
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
