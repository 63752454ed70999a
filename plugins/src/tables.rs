//! Parquet tables of captures, for DuckDB, Spark and Polars: for data that does not fit into one report.
//!
//! ```text
//!  DIR/frames/capture=NAME/part-00000.parquet       a table is a folder, partitioned by capture
//!  DIR/exchanges/capture=NAME/part-00000.parquet    another capture into the same DIR adds a partition
//! ```
//!
//! Every table is declared once, in [`TABLES`]: the Parquet schema, the checks and the documentation (`plugins/parquet/README.md`)
//! come from there. Rows are kept until there are [`GROUP_ROWS`] of them, then written as a row group: memory does not grow with the
//! capture. Findings and connections are known at its end, and few.

use bytes::Bytes;
use parquet::basic::Compression;
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::{WriterProperties, WriterPropertiesPtr};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::TypePtr;
use rdmascope_analyzer::episodes::time::{Behind, Owner};
use rdmascope_analyzer::exchange::{Exchange, Status, Transfer};
use rdmascope_analyzer::op::{At, End, Placement, RdmaOp, Verb};
use rdmascope_analyzer::report::{Report, Sink};
use rdmascope_analyzer::roots;
use rdmascope_dissector::frame::Addr;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thiserror::Error;

/// Rows of a row group.
pub const GROUP_ROWS: usize = 65_536;
/// Rows of a file.
pub const FILE_ROWS: usize = 1 << 22;
/// Maximum number of messages that are open at the same time.
const OPEN_MAX: usize = 65_536;

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// A whole number; durations are in ns, sizes in bytes.
    Integer,
    /// A point in time: ns since the Unix epoch, UTC.
    Time,
    /// UTF-8.
    Text,
    /// True or false.
    Bool,
}

/// A column. One that may be unknown is null then.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Name of the column.
    pub name: &'static str,
    /// Type of the column.
    pub kind: Type,
    /// True if it may be null.
    pub optional: bool,
    /// Description for the documentation.
    pub says: &'static str,
}

/// A table.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// Its name, and its folder's.
    pub name: &'static str,
    /// Description of a row.
    pub row: &'static str,
    /// Columns in order.
    pub columns: &'static [Column],
}

macro_rules! tables {
    ($($table:literal $row:literal { $($name:literal $kind:ident $(? $optional:tt)? $says:literal;)+ })+) => {
        /// Every table.
        pub const TABLES: &[Table] = &[$(Table { name: $table, row: $row, columns: &[$(
            Column { name: $name, kind: Type::$kind, optional: tables!(@optional $($optional)?), says: $says },
        )+] },)+];
    };
    (@optional) => {false};
    (@optional $optional:tt) => {true};
}

tables! {
    "frames" "a frame of the capture" {
        "frame" Integer "number, from 1";
        "time" Time ?null "when it was captured";
        "interface" Integer "number of the interface";
        "wire_length" Integer "bytes on the wire";
        "captured_length" Integer "bytes captured";
        "protocol" Text "the highest layer that was understood";
        "source" Text "network address of the sender";
        "destination" Text "network address of the receiver";
        "connection" Integer ?null "the connection it belongs to";
        "end" Text ?null "which end of the connection sent it, a or b; `connections.client_end` says which is the client";
        "exchange" Integer ?null "the request it belongs to, as far as known when it came";
        "retransmission" Bool "whether it was sent before";
    }
    "messages" "an RDMA message: Send, Write, Read Request or Read Response, from its first packet to its last" {
        "connection" Integer "the connection";
        "first_frame" Integer "its first frame";
        "frame" Integer "its last frame";
        "time" Time "when the last frame was captured";
        "end" Text "which end sent it";
        "verb" Text "send, send_invalidate, write, read_request, read_response, atomic, terminate";
        "packets" Integer "packets or segments";
        "bytes" Integer "payload in them; of a Read Request the bytes asked for";
        "key" Integer ?null "remote key, where it uses one";
        "address" Text ?null "address or tagged offset, in hexadecimal";
        "invalidates" Integer ?null "remote key that it invalidates";
    }
    "exchanges" "a request and its outcome" {
        "exchange" Integer "number, from 1, in the order of the requests";
        "connection" Integer "the connection";
        "family" Text "smb2 or rpc";
        "command" Text "READ, CREATE, GETATTR, …";
        "message_id" Integer "MessageId or XID; a MessageId past 2^63 is negative";
        "frame_request" Integer "first frame of the request";
        "frame_reply" Integer ?null "last frame of the reply";
        "time" Time "when the request began";
        "status" Integer ?null "NTSTATUS or NFS status; null if there was no reply, or RPC refused the call";
        "failed" Bool "whether that is a failure";
        "file" Text ?null "name of the file, where known";
        "offset" Integer ?null "offset in the file";
        "length" Integer ?null "length asked for";
        "channel" Text "inline, rdma, rdma_invalidate, rdma_transform";
        "descriptors" Integer "pieces of memory advertised";
        "read_operations" Integer "RDMA Reads";
        "read_bytes" Integer "bytes they moved";
        "write_operations" Integer "RDMA Writes";
        "write_bytes" Integer "bytes they moved";
        "bytes_moved" Integer "payload bytes, by RDMA or inline";
        "latency" Integer ?null "from the first frame of the request to the last of the reply, in ns";
        "latency_wire" Integer ?null "of it, on the wire, and the way to the server and back; the ten parts add up to the latency";
        "latency_server" Integer ?null "of it, in the server";
        "latency_rdma" Integer ?null "of it, in RDMA";
        "latency_client" Integer ?null "of it, the client's between its own dependent parts";
        "latency_credit" Integer ?null "of it, waiting for credits or for the receive window";
        "latency_send_queue" Integer ?null "of it, in the sender's queue, or between that and the capture point";
        "latency_recovery" Integer ?null "of it, while packets went out again";
        "latency_rnr" Integer ?null "of it, waiting for a receiver that was not ready";
        "latency_pause" Integer ?null "of it, under pause frames";
        "latency_unknown" Integer ?null "of it, where the capture lost what would tell";
        "behind_episode" Integer ?null "the episode of the connection that it waited for longest: `episodes.episode`";
        "wait_for_credit" Integer "how long the request waited for a credit before it was sent, in ns";
        "retransmissions" Integer "packets of it that were sent again";
    }
    "episodes" "an interval in which a direction of a connection was held up" {
        "connection" Integer "number of the connection in the report: `connections.report`";
        "episode" Integer "its number on the connection";
        "kind" Text "recovery, rnr, credit, pause, zero_window, silence, nagle, held_up, idle, interrupted, gap";
        "cause" Text "why, as far as is known";
        "from" Text ?null "client or server: whose packets were held up";
        "begin" Time "when it began";
        "end" Time ?null "when it ended";
        "first_frame" Integer "the frame in which it began";
        "last_frame" Integer ?null "the frame in which it ended";
        "packets" Integer "packets that were lost, late or missing";
        "repeated" Integer "packets that went out again";
        "bytes" Integer "their bytes";
        "cost" Integer "requests' time that was spent in it, in ns";
        "requests" Integer "requests that waited";
    }
    "findings" "a rule that was broken, with all its occurrences on a connection by one side" {
        "finding" Text "id of the rule";
        "severity" Text "error, warn, note";
        "certainty" Text "certain, if_nothing_was_missed, guess";
        "connection" Integer ?null "number of the connection in the report: `connections.report`";
        "frame" Integer "the first frame";
        "time" Time "its time";
        "last_time" Time "the time of the last occurrence";
        "by" Text "client, server, network, capture, unknown";
        "text" Text "the first occurrence, as a sentence";
        "spec" Text "document and section";
        "count" Integer "occurrences";
    }
    "credits" "the credits of both ends of an SMB Direct connection after a message" {
        "connection" Integer "the connection";
        "frame" Integer "the frame of the message";
        "time" Time "its time";
        "end_a" Integer ?null "send credits that end a holds";
        "end_b" Integer ?null "send credits that end b holds";
    }
    "connections" "a connection, by the number in the other tables; one whose directions were paired late has two" {
        "connection" Integer "the number in the other tables";
        "report" Integer "the number in the report";
        "transport" Text "rocev2, infiniband, iwarp, tcp";
        "protocol" Text "smb_direct, rpcrdma, smb2, rpc, unknown";
        "handshake" Text "seen, inferred, pinned";
        "client" Text "network address of the client";
        "server" Text "network address of the server";
        "port" Integer "the service's port; 0 where unknown";
        "client_end" Text ?null "which end is the client, a or b";
        "client_qp" Integer ?null "queue pair";
        "server_qp" Integer ?null "queue pair";
        "first_frame" Integer "the first frame";
        "last_frame" Integer "the last frame";
    }
    "sessions" "a connection of an SMB session, an NFS session or an NFS mount; one with several sessions has a row of each" {
        "session" Text "its id in hexadecimal; empty for an NFS mount";
        "kind" Text "smb, nfs_session, nfs_mount";
        "connection" Integer "number of the connection in the report: `connections.report`";
        "role" Text "first, bound, member: how the connection came to the session";
        "requests" Integer "requests on the connection";
        "errors" Integer "of those, with a failing status";
        "unanswered" Integer "of those, without a reply";
        "opens" Integer "files opened";
        "locks" Integer "locks asked for";
        "bytes_read" Integer "bytes of files read";
        "bytes_written" Integer "bytes of files written";
        "bytes_by_rdma" Integer "bytes that RDMA moved";
        "latency_median" Integer ?null "ns from request to reply, the median";
        "retransmissions" Integer "packets or segments that went out again";
        "broke" Bool "whether it was ended otherwise than by the client's own orderly end";
    }
}

/// The tables as a page of Markdown.
pub fn documentation() -> String {
    use fmt::Write;
    let mut out = String::new();
    for table in TABLES {
        let _ = write!(out, "### {}\nA row is {}.\n\n| column | type | |\n| --- | --- | --- |\n", table.name, table.row);
        for column in table.columns {
            let null = if column.optional { ", may be null" } else { "" };
            let _ = writeln!(out, "| `{}` | {}{null} | {} |", column.name, type_name(column.kind), column.says);
        }
        out.push('\n');
    }
    out
}

const fn type_name(kind: Type) -> &'static str {
    match kind {
        Type::Integer => "integer of 64 bits",
        Type::Time => "timestamp, ns, UTC",
        Type::Text => "text",
        Type::Bool => "boolean",
    }
}

impl Table {
    fn of(name: &str) -> &'static Self {
        TABLES.iter().find(|t| t.name == name).unwrap_or(&TABLES[0])
    }

    /// The schema as Parquet writes it.
    pub fn schema(&self) -> String {
        let mut out = format!("message {} {{\n", self.name);
        for column in self.columns {
            let kind = match column.kind {
                Type::Integer => format!("INT64 {}", column.name),
                Type::Time => format!("INT64 {} (TIMESTAMP(NANOS,true))", column.name),
                Type::Text => format!("BYTE_ARRAY {} (STRING)", column.name),
                Type::Bool => format!("BOOLEAN {}", column.name),
            };
            let repetition = if column.optional { "OPTIONAL" } else { "REQUIRED" };
            out.push_str(&format!("  {repetition} {kind};\n"));
        }
        out.push('}');
        out
    }
}

/// An error that prevents tables from being written.
#[derive(Debug, Error)]
pub enum Error {
    /// Something in or about the folder.
    #[error("{path} cannot be written: {error}")]
    Write {
        /// Path of the file or folder.
        path: PathBuf,
        /// The I/O error.
        error: io::Error,
    },
    /// There are tables of this capture already.
    #[error("{0} exists: tables of a capture are not overwritten; remove it, or name another folder")]
    Exists(PathBuf),
    /// Parquet itself.
    #[error("{path} cannot be written: {error}")]
    Parquet {
        /// Path of the file.
        path: PathBuf,
        /// Error of the Parquet library.
        error: ParquetError,
    },
}

/// A value of a row.
#[derive(Clone, Debug)]
enum Value {
    Null,
    Integer(i64),
    Text(ByteArray),
    Bool(bool),
}

impl From<i64> for Value {
    fn from(n: i64) -> Self {
        Self::Integer(n)
    }
}
impl From<u64> for Value {
    fn from(n: u64) -> Self {
        Self::Integer(n as i64)
    }
}
impl From<u32> for Value {
    fn from(n: u32) -> Self {
        Self::Integer(n.into())
    }
}
impl From<bool> for Value {
    fn from(b: bool) -> Self {
        Self::Bool(b)
    }
}
impl From<&'static str> for Value {
    fn from(text: &'static str) -> Self {
        Self::Text(Bytes::from_static(text.as_bytes()).into())
    }
}
impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text.into_bytes().into())
    }
}
impl From<ByteArray> for Value {
    fn from(text: ByteArray) -> Self {
        Self::Text(text)
    }
}
impl<T: Into<Self>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// A column of a row group.
#[derive(Debug)]
enum Cells {
    Integers(Vec<i64>, Vec<i16>),
    Texts(Vec<ByteArray>, Vec<i16>),
    Bools(Vec<bool>, Vec<i16>),
}

impl Cells {
    fn new(kind: Type) -> Self {
        match kind {
            Type::Integer | Type::Time => Self::Integers(Vec::new(), Vec::new()),
            Type::Text => Self::Texts(Vec::new(), Vec::new()),
            Type::Bool => Self::Bools(Vec::new(), Vec::new()),
        }
    }

    /// Appends a value. A value of another type, or a null in a required column, is a bug of the caller: it becomes 0
    /// or an empty text.
    fn push(&mut self, value: Value, optional: bool) {
        let there = !optional || !matches!(value, Value::Null);
        let levels = match self {
            Self::Integers(cells, levels) => {
                if there {
                    cells.push(if let Value::Integer(n) = value { n } else { 0 });
                }
                levels
            }
            Self::Texts(cells, levels) => {
                if there {
                    cells.push(if let Value::Text(text) = value { text } else { Bytes::new().into() });
                }
                levels
            }
            Self::Bools(cells, levels) => {
                if there {
                    cells.push(matches!(value, Value::Bool(true)));
                }
                levels
            }
        };
        if optional {
            levels.push(i16::from(there));
        }
    }

    fn write(&mut self, group: &mut SerializedRowGroupWriter<'_, File>, optional: bool) -> Result<(), ParquetError> {
        let Some(mut column) = group.next_column()? else { return Ok(()) };
        match self {
            Self::Integers(cells, levels) => {
                column.typed::<Int64Type>().write_batch(cells, optional.then_some(levels), None)?;
                cells.clear();
                levels.clear();
            }
            Self::Texts(cells, levels) => {
                column.typed::<ByteArrayType>().write_batch(cells, optional.then_some(levels), None)?;
                cells.clear();
                levels.clear();
            }
            Self::Bools(cells, levels) => {
                column.typed::<BoolType>().write_batch(cells, optional.then_some(levels), None)?;
                cells.clear();
                levels.clear();
            }
        }
        column.close()
    }
}

/// Writer of one table.
struct Writer {
    table: &'static Table,
    schema: TypePtr,
    properties: WriterPropertiesPtr,
    folder: PathBuf,
    file: Option<SerializedFileWriter<File>>,
    parts: u32,
    in_file: usize,
    cells: Vec<Cells>,
    waiting: usize,
    rows: u64,
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} rows of {}", self.rows, self.table.name)
    }
}

impl Writer {
    fn new(table: &'static Table, folder: &Path, capture: &str) -> Result<Self, Error> {
        let folder = folder.join(table.name).join(format!("capture={capture}"));
        if folder.exists() {
            return Err(Error::Exists(folder));
        }
        fs::create_dir_all(&folder).map_err(|error| Error::Write { path: folder.clone(), error })?;
        let schema = parse_message_type(&table.schema()).map_err(|error| Error::Parquet { path: folder.clone(), error })?;
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
        Ok(Self {
            table,
            schema: Arc::new(schema),
            properties: Arc::new(properties),
            folder,
            file: None,
            parts: 0,
            in_file: 0,
            cells: table.columns.iter().map(|c| Cells::new(c.kind)).collect(),
            waiting: 0,
            rows: 0,
        })
    }

    fn push<const N: usize>(&mut self, row: [Value; N]) -> Result<(), Error> {
        debug_assert_eq!(N, self.table.columns.len(), "{}", self.table.name);
        for ((value, cells), column) in row.into_iter().zip(&mut self.cells).zip(self.table.columns) {
            cells.push(value, column.optional);
        }
        self.waiting += 1;
        self.rows += 1;
        if self.waiting >= GROUP_ROWS { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), Error> {
        if self.file.is_none() {
            let path = self.folder.join(format!("part-{:05}.parquet", self.parts));
            let file = File::create_new(&path).map_err(|error| Error::Write { path, error })?;
            let writer = SerializedFileWriter::new(file, self.schema.clone(), self.properties.clone());
            self.file = Some(writer.map_err(|error| Error::Parquet { path: self.folder.clone(), error })?);
            self.parts += 1;
        }
        let failed = |error| Error::Parquet { path: self.folder.clone(), error };
        let Some(file) = self.file.as_mut() else { return Ok(()) };
        let mut group = file.next_row_group().map_err(failed)?;
        for (cells, column) in self.cells.iter_mut().zip(self.table.columns) {
            cells.write(&mut group, column.optional).map_err(failed)?;
        }
        group.close().map_err(failed)?;
        self.in_file += self.waiting;
        self.waiting = 0;
        if self.in_file >= FILE_ROWS { self.close_file() } else { Ok(()) }
    }

    fn close_file(&mut self) -> Result<(), Error> {
        self.in_file = 0;
        match self.file.take() {
            Some(file) => file.close().map(|_| ()).map_err(|error| Error::Parquet { path: self.folder.clone(), error }),
            None => Ok(()),
        }
    }

    fn finish(mut self) -> Result<(&'static str, u64), Error> {
        if self.waiting > 0 || self.parts == 0 {
            // a table without rows is a file all the same: queries find its columns
            self.flush()?;
        }
        self.close_file()?;
        Ok((self.table.name, self.rows))
    }
}

/// A frame, as its table has it.
#[derive(Clone, Debug)]
pub struct FrameRow {
    /// Number, from 1.
    pub frame: u64,
    /// ns since the Unix epoch.
    pub time_ns: Option<i64>,
    /// Number of the interface.
    pub interface: u32,
    /// Bytes on the wire.
    pub wire_length: u32,
    /// Bytes captured.
    pub captured_length: u32,
    /// The highest layer that was understood.
    pub protocol: &'static str,
    /// Sender and receiver.
    pub addresses: [Addr; 2],
    /// Connection, and the sender.
    pub place: Option<(u32, End)>,
    /// Exchange; 0 for none.
    pub exchange: u64,
    /// True if it is a retransmission.
    pub retransmission: bool,
}

#[derive(Debug)]
struct Open {
    first: u64,
    packets: u64,
    bytes: u64,
    key: Option<(u32, u64)>,
}

/// Receives an analysis and writes its tables.
#[derive(Debug)]
pub struct Tables {
    frames: Writer,
    messages: Writer,
    exchanges: Writer,
    episodes: Writer,
    findings: Writer,
    credits: Writer,
    connections: Writer,
    sessions: Writer,
    open: BTreeMap<(u32, usize, &'static str), Open>,
    addresses: Addresses,
    error: Option<Error>,
}

/// Texts of the addresses that occurred last: most frames have one of a few, and equal cells share their text.
#[derive(Debug, Default)]
struct Addresses {
    known: HashMap<Addr, ByteArray>,
}

impl Addresses {
    /// Maximum number of texts that are kept.
    const MAX: usize = 4096;

    fn text(&mut self, addr: Addr) -> ByteArray {
        if self.known.len() >= Self::MAX {
            self.known.clear();
        }
        self.known.entry(addr).or_insert_with(|| addr.to_string().into_bytes().into()).clone()
    }
}

impl Tables {
    /// Prepares to write into `folder`, which is made if missing; the partition is named after `capture`.
    ///
    /// # Errors
    /// See [`enum@Error`].
    pub fn new(folder: &Path, capture: &str) -> Result<Self, Error> {
        let safe: String = capture.chars().map(|c| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' }).collect();
        let writer = |name: &str| Writer::new(Table::of(name), folder, &safe);
        Ok(Self {
            frames: writer("frames")?,
            messages: writer("messages")?,
            exchanges: writer("exchanges")?,
            episodes: writer("episodes")?,
            findings: writer("findings")?,
            credits: writer("credits")?,
            connections: writer("connections")?,
            sessions: writer("sessions")?,
            open: BTreeMap::new(),
            addresses: Addresses::default(),
            error: None,
        })
    }

    /// The next frame.
    pub fn frame(&mut self, f: FrameRow) {
        let [source, destination] = f.addresses.map(|addr| self.addresses.text(addr));
        let row = [
            f.frame.into(),
            f.time_ns.into(),
            f.interface.into(),
            f.wire_length.into(),
            f.captured_length.into(),
            f.protocol.into(),
            source.into(),
            destination.into(),
            f.place.map(|p| p.0).into(),
            f.place.map(|p| end_name(p.1)).into(),
            Some(f.exchange).filter(|e| *e > 0).into(),
            f.retransmission.into(),
        ];
        let done = self.frames.push(row);
        self.keep(done);
    }

    /// Writes the rows that are known only at the end. Returns the number of rows of each table.
    ///
    /// # Errors
    /// The first thing that could not be written.
    pub fn finish(mut self, report: &Report) -> Result<Vec<(&'static str, u64)>, Error> {
        for connection in &report.connections {
            let mut numbers = connection.followed_as.clone();
            if !numbers.contains(&connection.id) && numbers.is_empty() {
                numbers.push(connection.id);
            }
            for number in numbers {
                let [client, server] = &connection.peers;
                let done = self.connections.push([
                    number.into(),
                    connection.id.into(),
                    connection.transport.map_or("", |t| t.key()).into(),
                    connection.protocol.key().into(),
                    connection.handshake.key().into(),
                    client.address.to_string().into(),
                    server.address.to_string().into(),
                    u32::from(server.port).into(),
                    connection.client_end.map(end_name).into(),
                    client.qp.into(),
                    server.qp.into(),
                    connection.first.frame.into(),
                    connection.last.frame.into(),
                ]);
                self.keep(done);
            }
        }
        for connection in &report.connections {
            for e in &connection.episodes.list {
                let done = self.episodes.push([
                    connection.id.into(),
                    e.id.into(),
                    e.kind.key().into(),
                    e.cause.key().into(),
                    e.by.map(|by| ["client", "server"][by.index()]).into(),
                    e.begin.time.into(),
                    e.end.map(|at| at.time).into(),
                    e.begin.frame.into(),
                    e.end.map(|at| at.frame).into(),
                    e.packets.into(),
                    e.repeated.into(),
                    e.bytes.into(),
                    e.cost.into(),
                    e.requests.into(),
                ]);
                self.keep(done);
            }
        }
        for finding in report.findings.ranked() {
            let done = self.findings.push([
                finding.rule.id().into(),
                finding.severity.name().into(),
                finding.certainty.name().into(),
                finding.connection.into(),
                finding.frame.into(),
                finding.time_ns.into(),
                finding.last_time_ns.into(),
                finding.by.name().into(),
                roots::text(report, finding).into(),
                finding.rule.row().spec.into(),
                finding.count.into(),
            ]);
            self.keep(done);
        }
        for session in rdmascope_analyzer::session::sessions(report) {
            for channel in &session.channels {
                let done = self.sessions.push([
                    session.id.text().into(),
                    session.id.kind().into(),
                    channel.connection.into(),
                    channel.role.key().into(),
                    channel.requests.into(),
                    channel.errors.into(),
                    channel.unanswered.into(),
                    channel.opens.into(),
                    channel.locks.into(),
                    channel.read.into(),
                    channel.written.into(),
                    channel.rdma.into(),
                    channel.latency.quantile(500).into(),
                    channel.retransmissions.into(),
                    channel.broke.into(),
                ]);
                self.keep(done);
            }
        }
        if let Some(error) = self.error {
            return Err(error);
        }
        [self.frames, self.messages, self.exchanges, self.episodes, self.findings, self.credits, self.connections, self.sessions]
            .into_iter()
            .map(Writer::finish)
            .collect()
    }

    fn keep(&mut self, done: Result<(), Error>) {
        if let (Err(error), None) = (done, &self.error) {
            self.error = Some(error);
        }
    }
}

const fn end_name(end: End) -> &'static str {
    match end {
        End::A => "a",
        End::B => "b",
    }
}

const fn verb_name(verb: Verb) -> &'static str {
    match verb {
        Verb::Send => "send",
        Verb::SendInvalidate => "send_invalidate",
        Verb::Write => "write",
        Verb::ReadRequest => "read_request",
        Verb::ReadResponse => "read_response",
        Verb::Atomic => "atomic",
        Verb::Terminate => "terminate",
    }
}

impl Sink for Tables {
    fn op(&mut self, connection: u32, op: &RdmaOp<'_>) {
        // the last packet of a Send may be one that invalidates
        let kind = if op.verb == Verb::SendInvalidate { "send" } else { verb_name(op.verb) };
        let slot = (connection, op.by.index(), kind);
        let key = if let Placement::Memory { key, address } = op.placement { Some((key, address)) } else { None };
        let bytes = if op.verb == Verb::ReadRequest { op.message_length.unwrap_or(0) } else { op.length };
        if op.part.begins() {
            self.open.remove(&slot);
        }
        if !op.part.ends() && self.open.len() >= OPEN_MAX {
            self.open.clear();
        }
        let mut open = self.open.remove(&slot).unwrap_or(Open { first: op.at.frame, packets: 0, bytes: 0, key });
        open.packets += 1;
        open.bytes += u64::from(bytes);
        if !op.part.ends() {
            self.open.insert(slot, open);
            return;
        }
        let done = self.messages.push([
            connection.into(),
            open.first.into(),
            op.at.frame.into(),
            op.at.time.into(),
            end_name(op.by).into(),
            verb_name(op.verb).into(),
            open.packets.into(),
            open.bytes.into(),
            open.key.map(|k| k.0).into(),
            open.key.map(|k| format!("{:#018x}", k.1)).into(),
            op.invalidate.into(),
        ]);
        self.keep(done);
    }

    fn exchange(&mut self, e: &Exchange) {
        let part = |owner: Owner| e.reply_end.map(|_| e.time.of(owner));
        let episode = e.behind.and_then(|behind| if let Behind::Episode(id) = behind { Some(id) } else { None });
        let operations = |t: &Transfer| t.operations;
        let family = match e.family {
            rdmascope_analyzer::exchange::Family::Smb2 => "smb2",
            rdmascope_analyzer::exchange::Family::Rpc => "rpc",
        };
        let done = self.exchanges.push([
            e.id.into(),
            e.connection.into(),
            family.into(),
            e.command.into(),
            e.message_id.into(),
            e.request.frame.into(),
            e.reply_end.map(|at| at.frame).into(),
            e.request.time.into(),
            e.status.and_then(|code| Status(e.family, code).number()).into(),
            e.failed.into(),
            e.file.as_deref().map(str::to_owned).into(),
            e.offset.into(),
            e.length.into(),
            e.channel.name().into(),
            e.descriptor_count.into(),
            operations(&e.reads).into(),
            e.reads.bytes.into(),
            operations(&e.writes).into(),
            e.writes.bytes.into(),
            e.bytes_moved.into(),
            e.latency().into(),
            part(Owner::Wire).into(),
            part(Owner::Server).into(),
            part(Owner::Rdma).into(),
            part(Owner::Client).into(),
            part(Owner::Credit).into(),
            part(Owner::SendQueue).into(),
            part(Owner::Recovery).into(),
            part(Owner::Rnr).into(),
            part(Owner::Pause).into(),
            part(Owner::Unknown).into(),
            episode.into(),
            e.wait_for_credit.into(),
            e.retransmissions.into(),
        ]);
        self.keep(done);
    }

    fn credits(&mut self, connection: u32, at: At, held: [Option<i64>; 2]) {
        let done = self.credits.push([connection.into(), at.frame.into(), at.time.into(), held[0].into(), held[1].into()]);
        self.keep(done);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_schema_is_one() {
        for table in TABLES {
            let schema = parse_message_type(&table.schema()).unwrap();
            assert_eq!(schema.get_fields().len(), table.columns.len());
        }
    }

    #[test]
    fn the_documentation_is_the_declaration() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("parquet/README.md");
        let text = fs::read_to_string(&page).unwrap();
        let (before, after) = text.split_once("## Tables\n").unwrap();
        if std::env::var_os("UPDATE").is_some() {
            fs::write(&page, format!("{before}## Tables\n{}", documentation())).unwrap();
        } else {
            assert_eq!(after, documentation(), "UPDATE=1 cargo test -p rdmascope-plugins --features parquet writes it anew");
        }
    }

    #[test]
    fn a_partition_is_not_written_over_and_its_name_leads_nowhere() {
        let folder = tempfile::tempdir().unwrap();
        let tables = Tables::new(folder.path(), "../a b=c").unwrap();
        let rows = tables.finish(&Report::default()).unwrap();
        assert_eq!(rows.iter().map(|r| r.1).sum::<u64>(), 0);
        assert!(folder.path().join("frames/capture=.._a_b_c/part-00000.parquet").exists());
        assert!(matches!(Tables::new(folder.path(), "../a b=c"), Err(Error::Exists(_))));
    }
}
