//! Parquet tables of captures, for DuckDB, Spark and Polars: for data that does not fit into one report.
//!
//! ```text
//!  DIR/frames/capture=NAME/part-00000.parquet       a table is a folder, partitioned by capture
//!  DIR/exchanges/capture=NAME/part-00000.parquet    another capture into the same DIR adds a partition
//! ```
//!
//! Every table is declared once, in [`TABLES`]: the Parquet schema, the checks and the documentation
//! (`plugins/parquet/README.md`) come from there. Rows are kept until there are [`GROUP_ROWS`] of them, then written as
//! a row group, on a thread of its own if there may be several: memory does not grow with the capture. Findings and
//! connections are known at its end, and few.

use bytes::Bytes;
use hashbrown::HashMap;
use parquet::basic::{Compression, Encoding};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::SortingColumn;
use parquet::file::properties::{WriterProperties, WriterPropertiesPtr};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::{ColumnPath, TypePtr};
use rdmascope_analyzer::episodes::time::{Behind, Owner};
use rdmascope_analyzer::exchange::{Exchange, Family, Status, Transfer};
use rdmascope_analyzer::op::{At, End, Placement, RdmaOp, Verb};
use rdmascope_analyzer::report::{Report, Sink};
use rdmascope_analyzer::roots;
use rdmascope_analyzer::session::{self, Id};
use rdmascope_dissector::frame::Addr;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::{self, JoinHandle};
use thiserror::Error;

/// The table whose rows are in the order of its first column. Requests and messages are written as they end, not as
/// they began.
const IN_ORDER: &str = "frames";
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
    /// True if most rows have a value of their own, near that of the row before: differences are stored. Of the values
    /// of all other columns there are few, or they are alike: a dictionary is.
    pub differs: bool,
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
    ($($table:literal $row:literal { $($name:literal $kind:ident $(? $optional:tt)? $(~ $differs:tt)? $says:literal;)+ })+) => {
        /// Every table.
        pub const TABLES: &[Table] = &[$(Table { name: $table, row: $row, columns: &[$(
            Column {
                name: $name,
                kind: Type::$kind,
                optional: tables!(@is $($optional)?),
                differs: tables!(@is $($differs)?),
                says: $says,
            },
        )+] },)+];
    };
    (@is) => {false};
    (@is $mark:tt) => {true};
}

tables! {
    "frames" "a frame of the capture" {
        "frame" Integer ~differs "number, from 1";
        "time" Time ?null ~differs "when it was captured";
        "interface" Integer ~differs "number of the interface";
        "wire_length" Integer ~differs "bytes on the wire";
        "captured_length" Integer ~differs "bytes captured";
        "protocol" Text "the highest layer that was understood";
        "source" Text "network address of the sender";
        "destination" Text "network address of the receiver";
        "connection" Integer ?null ~differs "the connection it belongs to";
        "end" Text ?null "which end of the connection sent it, a or b; `connections.client_end` says which is the client";
        "exchange" Integer ?null ~differs "the request it belongs to, as far as known when it came";
        "retransmission" Bool "whether it was sent before";
    }
    "messages" "an RDMA message: Send, Write, Read Request or Read Response, from its first packet to its last" {
        "connection" Integer ~differs "the connection";
        "first_frame" Integer ~differs "its first frame";
        "frame" Integer ~differs "its last frame";
        "time" Time ~differs "when the last frame was captured";
        "end" Text "which end sent it";
        "verb" Text "send, send_invalidate, write, read_request, read_response, atomic, terminate";
        "packets" Integer ~differs "packets or segments";
        "bytes" Integer "payload in them; of a Read Request the bytes asked for";
        "key" Integer ?null "remote key, where it uses one";
        "address" Text ?null ~differs "address or tagged offset, in hexadecimal";
        "invalidates" Integer ?null "remote key that it invalidates";
    }
    "exchanges" "a request and its outcome" {
        "exchange" Integer ~differs "number, from 1, in the order of the requests";
        "connection" Integer ~differs "the connection";
        "family" Text "smb2 or rpc";
        "command" Text "READ, CREATE, GETATTR, …";
        "message_id" Integer ~differs "MessageId or XID; a MessageId past 2^63 is negative";
        "session" Text ?null "session that it ran in: `sessions.session`";
        "frame_request" Integer ~differs "first frame of the request";
        "frame_reply" Integer ?null ~differs "last frame of the reply";
        "time" Time ~differs "when the request began";
        "status" Integer ?null "NTSTATUS or NFS status; null if there was no reply, or RPC refused the call";
        "failed" Bool "whether that is a failure";
        "file" Text ?null "name of the file, where known";
        "offset" Integer ?null ~differs "offset in the file";
        "length" Integer ?null "length asked for";
        "channel" Text "inline, rdma, rdma_invalidate, rdma_transform";
        "descriptors" Integer "pieces of memory advertised";
        "read_operations" Integer "RDMA Reads";
        "read_bytes" Integer "bytes they moved";
        "write_operations" Integer "RDMA Writes";
        "write_bytes" Integer "bytes they moved";
        "bytes_moved" Integer "payload bytes, by RDMA or inline";
        "latency" Integer ?null ~differs "from the first frame of the request to the last of the reply, in ns";
        "poll" Bool "whether it waits for something to happen, so that its latency says nothing of the server";
        "latency_wire" Integer ?null ~differs "of it, on the wire, and the way to the server and back; the ten parts \
            add up to the latency";
        "latency_server" Integer ?null ~differs "of it, in the server";
        "latency_rdma" Integer ?null ~differs "of it, in RDMA";
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
        "kind" Text "recovery, rnr, credit, pause, congestion, zero_window, silence, nagle, held_up, idle, interrupted, gap";
        "cause" Text "why, as far as is known";
        "from" Text ?null "client or server: whose packets were held up";
        "begin" Time ~differs "when it began";
        "end" Time ?null ~differs "when it ended";
        "first_frame" Integer ~differs "the frame in which it began";
        "last_frame" Integer ?null ~differs "the frame in which it ended";
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
        "frame" Integer ~differs "the first frame";
        "time" Time ~differs "its time";
        "last_time" Time ~differs "the time of the last occurrence";
        "by" Text "client, server, network, capture, unknown";
        "text" Text "the first occurrence, as a sentence";
        "spec" Text "document and section";
        "count" Integer "occurrences";
    }
    "credits" "the credits of both ends of an SMB Direct connection after a message" {
        "connection" Integer "the connection";
        "frame" Integer ~differs "the frame of the message";
        "time" Time ~differs "its time";
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
        "client_port" Integer "the client's port; 0 where unknown";
        "client_end" Text ?null "which end is the client, a or b";
        "client_qp" Integer ?null "queue pair";
        "server_qp" Integer ?null "queue pair";
        "first_frame" Integer ~differs "the first frame";
        "last_frame" Integer ~differs "the last frame";
    }
    "sessions" "a connection of an SMB session, an NFS session or an NFS mount; one with several sessions has a row of \
        each" {
        "number" Integer "number of the session in the capture, from 1: servers give an id again";
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
        let _ =
            write!(out, "### {}\nA row is {}.\n\n| column | type | |\n| --- | --- | --- |\n", table.name, table.row);
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

    /// How its columns are stored.
    fn properties(&self) -> WriterProperties {
        let sorted = (self.name == IN_ORDER)
            .then(|| vec![SortingColumn { column_idx: 0, descending: false, nulls_first: false }]);
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).set_sorting_columns(sorted);
        let different = self.columns.iter().filter(|column| column.differs);
        let properties = different.fold(properties, |properties, column| {
            let path = ColumnPath::from(column.name);
            let properties = properties.set_column_dictionary_enabled(path.clone(), false);
            match column.kind {
                // differences are packed already
                Type::Integer | Type::Time => properties
                    .set_column_encoding(path.clone(), Encoding::DELTA_BINARY_PACKED)
                    .set_column_compression(path, Compression::UNCOMPRESSED),
                Type::Text | Type::Bool => properties,
            }
        });
        properties.build()
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

/// A column of a row group.
#[derive(Debug)]
struct Cells {
    values: Values,
    /// If it may be null, of each row: 1 if it has a value.
    levels: Option<Vec<i16>>,
}

/// The values of a column, without those that are null.
#[derive(Debug)]
enum Values {
    Integers(Vec<i64>),
    Texts(Vec<ByteArray>),
    Bools(Vec<bool>),
}

impl Cells {
    fn new(column: &Column) -> Self {
        let values = match column.kind {
            Type::Integer | Type::Time => Values::Integers(Vec::new()),
            Type::Text => Values::Texts(Vec::new()),
            Type::Bool => Values::Bools(Vec::new()),
        };
        Self { values, levels: column.optional.then(Vec::new) }
    }

    /// Of each column of a table.
    fn of(table: &Table) -> Vec<Self> {
        table.columns.iter().map(Self::new).collect()
    }

    #[inline]
    fn there(&mut self) {
        if let Some(levels) = &mut self.levels {
            levels.push(1);
        }
    }

    /// Appends a null. In a column that has none, it is a bug of the caller, as is a value of another type: it becomes
    /// 0 or an empty text.
    #[inline]
    fn null(&mut self) {
        match &mut self.levels {
            Some(levels) => levels.push(0),
            None => self.values.none(),
        }
    }

    #[inline]
    fn integer(&mut self, n: i64) {
        self.there();
        match &mut self.values {
            Values::Integers(cells) => cells.push(n),
            other => other.none(),
        }
    }

    #[inline]
    fn text(&mut self, text: ByteArray) {
        self.there();
        match &mut self.values {
            Values::Texts(cells) => cells.push(text),
            other => other.none(),
        }
    }

    #[inline]
    fn bool(&mut self, b: bool) {
        self.there();
        match &mut self.values {
            Values::Bools(cells) => cells.push(b),
            other => other.none(),
        }
    }

    fn write(&mut self, group: &mut SerializedRowGroupWriter<'_, File>) -> Result<(), ParquetError> {
        let Some(mut column) = group.next_column()? else { return Ok(()) };
        let levels = self.levels.as_deref();
        match &self.values {
            Values::Integers(cells) => column.typed::<Int64Type>().write_batch(cells, levels, None)?,
            Values::Texts(cells) => column.typed::<ByteArrayType>().write_batch(cells, levels, None)?,
            Values::Bools(cells) => column.typed::<BoolType>().write_batch(cells, levels, None)?,
        };
        column.close()
    }

    fn clear(&mut self) {
        match &mut self.values {
            Values::Integers(cells) => cells.clear(),
            Values::Texts(cells) => cells.clear(),
            Values::Bools(cells) => cells.clear(),
        }
        if let Some(levels) = &mut self.levels {
            levels.clear();
        }
    }
}

impl Values {
    #[cold]
    fn none(&mut self) {
        match self {
            Self::Integers(cells) => cells.push(0),
            Self::Texts(cells) => cells.push(Bytes::new().into()),
            Self::Bools(cells) => cells.push(false),
        }
    }
}

/// A value of a row.
trait Value {
    /// Appends it to its column.
    fn put(self, cells: &mut Cells);
}

impl Value for i64 {
    #[inline]
    fn put(self, cells: &mut Cells) {
        cells.integer(self);
    }
}
impl Value for u64 {
    #[inline]
    fn put(self, cells: &mut Cells) {
        cells.integer(self as i64);
    }
}
impl Value for u32 {
    #[inline]
    fn put(self, cells: &mut Cells) {
        cells.integer(self.into());
    }
}
impl Value for bool {
    #[inline]
    fn put(self, cells: &mut Cells) {
        cells.bool(self);
    }
}
impl Value for &'static str {
    #[inline]
    fn put(self, cells: &mut Cells) {
        cells.text(Bytes::from_static(self.as_bytes()).into());
    }
}
impl Value for String {
    fn put(self, cells: &mut Cells) {
        cells.text(self.into_bytes().into());
    }
}
impl Value for ByteArray {
    #[inline]
    fn put(self, cells: &mut Cells) {
        cells.text(self);
    }
}
impl<T: Value> Value for Option<T> {
    #[inline]
    fn put(self, cells: &mut Cells) {
        match self {
            Some(value) => value.put(cells),
            None => cells.null(),
        }
    }
}

/// Appends a row to a table: a value for each of its columns, in order.
macro_rules! row {
    ($tables:ident . $table:ident, $($value:expr),+ $(,)?) => {{
        let mut cells = $tables.$table.cells.iter_mut();
        $(if let Some(cells) = cells.next() {
            Value::put($value, cells);
        })+
        debug_assert!(cells.next().is_none(), "{}", $tables.$table.table.name);
        if $tables.$table.appended() {
            $tables.files.write(&mut $tables.$table);
        }
    }};
}

/// Rows of one table that wait to be written.
struct Rows {
    table: &'static Table,
    /// Its place among the files.
    place: usize,
    cells: Vec<Cells>,
    waiting: usize,
    rows: u64,
}

impl fmt::Debug for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} rows of {}", self.rows, self.table.name)
    }
}

impl Rows {
    /// Counts a row. Returns true if there are as many as a row group has.
    #[inline]
    fn appended(&mut self) -> bool {
        self.waiting += 1;
        self.rows += 1;
        self.waiting >= GROUP_ROWS
    }
}

/// The files of all tables.
enum Files {
    /// They are written at once.
    Here(Written),
    /// Another thread writes them.
    There(Away),
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if matches!(self, Self::Here(_)) { "here" } else { "on another thread" })
    }
}

/// The thread that writes row groups, in the order in which they become full.
struct Away {
    full: SyncSender<Group>,
    empty: Receiver<Group>,
    thread: JoinHandle<Written>,
}

/// A row group.
struct Group {
    place: usize,
    rows: usize,
    cells: Vec<Cells>,
}

impl Files {
    fn new(writers: Vec<Writer>, threads: usize) -> Self {
        let mut written = Written { writers, error: None };
        if threads < 2 {
            return Self::Here(written);
        }
        // nobody waits in between: one group is written while the next is filled
        let (full, filled) = sync_channel::<Group>(0);
        let (emptied, empty): (Sender<Group>, _) = channel();
        let thread = thread::spawn(move || {
            for mut group in filled {
                written.write(group.place, &mut group.cells, group.rows);
                // at the end nobody takes it back
                let _ = emptied.send(group);
            }
            written
        });
        Self::There(Away { full, empty, thread })
    }

    /// Writes the rows of a table as a row group.
    fn write(&mut self, rows: &mut Rows) {
        let count = mem::take(&mut rows.waiting);
        match self {
            Self::Here(written) => written.write(rows.place, &mut rows.cells, count),
            Self::There(away) => {
                let used = away.empty.try_iter().filter(|group| group.place == rows.place).last();
                let cells = used.map_or_else(|| Cells::of(rows.table), |group| group.cells);
                let cells = mem::replace(&mut rows.cells, cells);
                // a thread that panicked is found at the end
                let _ = away.full.send(Group { place: rows.place, rows: count, cells });
            }
        }
    }

    /// Everything is written.
    fn end(self) -> Written {
        match self {
            Self::Here(written) => written,
            Self::There(Away { full, thread, .. }) => {
                drop(full);
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            }
        }
    }
}

/// Files as far as they are written.
struct Written {
    writers: Vec<Writer>,
    /// The first error. Nothing is written after it.
    error: Option<Error>,
}

impl Written {
    fn write(&mut self, place: usize, cells: &mut [Cells], rows: usize) {
        if let (Some(writer), None) = (self.writers.get_mut(place), &self.error) {
            self.error = writer.write(cells, rows).err();
        }
        cells.iter_mut().for_each(Cells::clear);
    }
}

/// Writer of one table.
struct Writer {
    schema: TypePtr,
    properties: WriterPropertiesPtr,
    folder: PathBuf,
    file: Option<SerializedFileWriter<File>>,
    parts: u32,
    in_file: usize,
}

impl Writer {
    fn new(table: &'static Table, folder: &Path, capture: &str) -> Result<Self, Error> {
        let folder = folder.join(table.name).join(format!("capture={capture}"));
        if folder.exists() {
            return Err(Error::Exists(folder));
        }
        fs::create_dir_all(&folder).map_err(|error| Error::Write { path: folder.clone(), error })?;
        let schema =
            parse_message_type(&table.schema()).map_err(|error| Error::Parquet { path: folder.clone(), error })?;
        Ok(Self {
            schema: Arc::new(schema),
            properties: Arc::new(table.properties()),
            folder,
            file: None,
            parts: 0,
            in_file: 0,
        })
    }

    /// Writes a row group.
    fn write(&mut self, cells: &mut [Cells], rows: usize) -> Result<(), Error> {
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
        for cells in cells {
            cells.write(&mut group).map_err(failed)?;
        }
        group.close().map_err(failed)?;
        self.in_file += rows;
        if self.in_file >= FILE_ROWS { self.close_file() } else { Ok(()) }
    }

    fn close_file(&mut self) -> Result<(), Error> {
        self.in_file = 0;
        match self.file.take() {
            Some(file) => file.close().map(|_| ()).map_err(|error| Error::Parquet { path: self.folder.clone(), error }),
            None => Ok(()),
        }
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
    frames: Rows,
    messages: Rows,
    exchanges: Rows,
    episodes: Rows,
    findings: Rows,
    credits: Rows,
    connections: Rows,
    sessions: Rows,
    files: Files,
    /// Messages whose last packet has not come: by connection, sender and verb.
    open: HashMap<(u32, End, Verb), Open>,
    addresses: Addresses,
    /// The file that the last exchange named.
    file: Option<(Arc<str>, ByteArray)>,
    /// The session that the last exchange named.
    session: Option<(Family, [u8; 16], ByteArray)>,
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
    /// Prepares to write into `folder`, which is made if missing; the partition is named after `capture`. With several
    /// `threads`, one of them writes.
    ///
    /// # Errors
    /// See [`enum@Error`].
    pub fn new(folder: &Path, capture: &str, threads: usize) -> Result<Self, Error> {
        let safe: String =
            capture.chars().map(|c| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' }).collect();
        let writers = TABLES.iter().map(|table| Writer::new(table, folder, &safe)).collect::<Result<_, _>>()?;
        let rows = |name: &str| {
            let place = TABLES.iter().position(|table| table.name == name).unwrap_or(0);
            Rows { table: &TABLES[place], place, cells: Cells::of(&TABLES[place]), waiting: 0, rows: 0 }
        };
        Ok(Self {
            frames: rows("frames"),
            messages: rows("messages"),
            exchanges: rows("exchanges"),
            episodes: rows("episodes"),
            findings: rows("findings"),
            credits: rows("credits"),
            connections: rows("connections"),
            sessions: rows("sessions"),
            files: Files::new(writers, threads),
            open: HashMap::new(),
            addresses: Addresses::default(),
            file: None,
            session: None,
        })
    }

    /// The next frame.
    pub fn frame(&mut self, f: FrameRow) {
        let [source, destination] = f.addresses.map(|addr| self.addresses.text(addr));
        row!(
            self.frames,
            f.frame,
            f.time_ns,
            f.interface,
            f.wire_length,
            f.captured_length,
            f.protocol,
            source,
            destination,
            f.place.map(|p| p.0),
            f.place.map(|p| end_name(p.1)),
            Some(f.exchange).filter(|e| *e > 0),
            f.retransmission,
        );
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
                row!(
                    self.connections,
                    number,
                    connection.id,
                    connection.transport.map_or("", |t| t.key()),
                    connection.protocol.key(),
                    connection.handshake.key(),
                    client.address.to_string(),
                    server.address.to_string(),
                    u32::from(server.port),
                    u32::from(client.port),
                    connection.client_end.map(end_name),
                    client.qp,
                    server.qp,
                    connection.first.frame,
                    connection.last.frame,
                );
            }
        }
        for connection in &report.connections {
            for e in &connection.episodes.list {
                row!(
                    self.episodes,
                    connection.id,
                    e.id,
                    e.kind.key(),
                    e.cause.key(),
                    e.by.map(|by| ["client", "server"][by.index()]),
                    e.begin.time,
                    e.end.map(|at| at.time),
                    e.begin.frame,
                    e.end.map(|at| at.frame),
                    e.packets,
                    e.repeated,
                    e.bytes,
                    e.cost,
                    e.requests,
                );
            }
        }
        for finding in report.findings.ranked() {
            row!(
                self.findings,
                finding.rule.id(),
                finding.severity.name(),
                finding.certainty.name(),
                finding.connection,
                finding.frame,
                finding.time_ns,
                finding.last_time_ns,
                finding.by.name(),
                roots::text(report, finding),
                finding.rule.row().spec,
                finding.count,
            );
        }
        for (number, session) in (1_u64..).zip(session::sessions(report)) {
            for channel in &session.channels {
                row!(
                    self.sessions,
                    number,
                    session.id.text(),
                    session.id.kind(),
                    channel.connection,
                    channel.role.key(),
                    channel.requests,
                    channel.errors,
                    channel.unanswered,
                    channel.opens,
                    channel.locks,
                    channel.read,
                    channel.written,
                    channel.rdma,
                    channel.latency.quantile(500),
                    channel.retransmissions,
                    channel.broke,
                );
            }
        }
        let Self { frames, messages, exchanges, episodes, findings, credits, connections, sessions, mut files, .. } =
            self;
        let tables = [frames, messages, exchanges, episodes, findings, credits, connections, sessions];
        let mut counts = Vec::with_capacity(tables.len());
        for mut table in tables {
            if table.waiting > 0 || table.rows == 0 {
                // a table without rows is a file all the same: queries find its columns
                files.write(&mut table);
            }
            counts.push((table.table.name, table.rows));
        }
        let Written { writers, error } = files.end();
        match error {
            Some(error) => Err(error),
            None => writers.into_iter().try_for_each(|mut writer| writer.close_file()).map(|()| counts),
        }
    }
}

const fn end_name(end: End) -> &'static str {
    match end {
        End::A => "a",
        End::B => "b",
    }
}

/// A session as the table `sessions` names it.
fn session_name(family: Family, id: [u8; 16]) -> String {
    match family {
        Family::Smb2 => Id::Smb(u128::from_be_bytes(id) as u64),
        Family::Rpc => Id::Nfs(id),
    }
    .text()
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
        let verb = if op.verb == Verb::SendInvalidate { Verb::Send } else { op.verb };
        let slot = (connection, op.by, verb);
        let key = if let Placement::Memory { key, address } = op.placement { Some((key, address)) } else { None };
        let bytes = if op.verb == Verb::ReadRequest { op.message_length.unwrap_or(0) } else { op.length };
        let new = Open { first: op.at.frame, packets: 0, bytes: 0, key };
        // most messages are one packet
        let mut open = match self.open.is_empty() {
            true => new,
            false if op.part.begins() => {
                self.open.remove(&slot);
                new
            }
            false if op.part.ends() => self.open.remove(&slot).unwrap_or(new),
            false => match self.open.get_mut(&slot) {
                Some(open) => {
                    open.packets += 1;
                    open.bytes += u64::from(bytes);
                    return;
                }
                None => new,
            },
        };
        open.packets += 1;
        open.bytes += u64::from(bytes);
        if !op.part.ends() {
            if self.open.len() >= OPEN_MAX {
                self.open.clear();
            }
            self.open.insert(slot, open);
            return;
        }
        row!(
            self.messages,
            connection,
            open.first,
            op.at.frame,
            op.at.time,
            end_name(op.by),
            verb_name(op.verb),
            open.packets,
            open.bytes,
            open.key.map(|k| k.0),
            open.key.map(|k| format!("{:#018x}", k.1)),
            op.invalidate,
        );
    }

    fn exchange(&mut self, e: &Exchange) {
        let part = |owner: Owner| e.reply_end.map(|_| e.time.of(owner));
        let episode = e.behind.and_then(|behind| if let Behind::Episode(id) = behind { Some(id) } else { None });
        let operations = |t: &Transfer| t.operations;
        let family = match e.family {
            Family::Smb2 => "smb2",
            Family::Rpc => "rpc",
        };
        let session = e.session.map(|id| match &self.session {
            Some((family, same, text)) if (*family, *same) == (e.family, id) => text.clone(),
            _ => {
                let text = ByteArray::from(session_name(e.family, id).into_bytes());
                self.session = Some((e.family, id, text.clone()));
                text
            }
        });
        let file = e.file.as_ref().map(|file| match &self.file {
            Some((same, text)) if Arc::ptr_eq(same, file) => text.clone(),
            _ => {
                let text = ByteArray::from(file.as_bytes().to_vec());
                self.file = Some((file.clone(), text.clone()));
                text
            }
        });
        row!(
            self.exchanges,
            e.id,
            e.connection,
            family,
            e.command,
            e.message_id,
            session,
            e.request.frame,
            e.reply_end.map(|at| at.frame),
            e.request.time,
            e.status.and_then(|code| Status(e.family, code).number()),
            e.failed,
            file,
            e.offset,
            e.length,
            e.channel.name(),
            e.descriptor_count,
            operations(&e.reads),
            e.reads.bytes,
            operations(&e.writes),
            e.writes.bytes,
            e.bytes_moved,
            e.latency(),
            e.is_poll(),
            part(Owner::Wire),
            part(Owner::Server),
            part(Owner::Rdma),
            part(Owner::Client),
            part(Owner::Credit),
            part(Owner::SendQueue),
            part(Owner::Recovery),
            part(Owner::Rnr),
            part(Owner::Pause),
            part(Owner::Unknown),
            episode,
            e.wait_for_credit,
            e.retransmissions,
        );
    }

    fn credits(&mut self, connection: u32, at: At, held: [Option<i64>; 2]) {
        row!(self.credits, connection, at.frame, at.time, held[0], held[1]);
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
            assert_eq!(
                after,
                documentation(),
                "UPDATE=1 cargo test -p rdmascope-plugins --features parquet writes it anew"
            );
        }
    }

    #[test]
    fn a_partition_is_not_written_over_and_its_name_leads_nowhere() {
        let folder = tempfile::tempdir().unwrap();
        let tables = Tables::new(folder.path(), "../a b=c", 1).unwrap();
        let rows = tables.finish(&Report::default()).unwrap();
        assert_eq!(rows.iter().map(|r| r.1).sum::<u64>(), 0);
        assert!(folder.path().join("frames/capture=.._a_b_c/part-00000.parquet").exists());
        assert!(matches!(Tables::new(folder.path(), "../a b=c", 1), Err(Error::Exists(_))));
    }

    /// More frames than a row group has, between two pairs of hosts.
    fn written(folder: &Path, threads: usize) -> Vec<(&'static str, u64)> {
        let mut tables = Tables::new(folder, "a", threads).unwrap();
        for frame in 1..=GROUP_ROWS as u64 + 1000 {
            let host = |n: u64| Addr::V4([192, 0, 2, n as u8]);
            tables.frame(FrameRow {
                frame,
                time_ns: (frame % 7 > 0).then_some(1_700_000_000_000_000_000 + 1000 * frame as i64),
                interface: 0,
                wire_length: 100 + (frame % 5) as u32,
                captured_length: 100,
                protocol: "smb2",
                addresses: [host(frame % 4), host(9)],
                place: (frame % 3 > 0).then_some((frame as u32 % 4, End::A)),
                exchange: frame / 8,
                retransmission: frame % 100 == 0,
            });
        }
        tables.finish(&Report::default()).unwrap()
    }

    #[test]
    fn a_thread_that_writes_changes_nothing() {
        let folders = [1, 2].map(|threads| {
            let folder = tempfile::tempdir().unwrap();
            (written(folder.path(), threads), folder)
        });
        let [(one, here), (other, there)] = &folders;
        assert_eq!(one, other);
        assert_eq!(one[0], ("frames", GROUP_ROWS as u64 + 1000));
        for table in TABLES {
            let path = format!("{}/capture=a/part-00000.parquet", table.name);
            assert!(
                fs::read(here.path().join(&path)).unwrap() == fs::read(there.path().join(&path)).unwrap(),
                "{path}"
            );
        }
    }

    #[test]
    fn columns_whose_values_differ_have_no_dictionary_and_come_back() {
        use parquet::file::reader::{FileReader, SerializedFileReader};
        use parquet::record::RowAccessor;
        let folder = tempfile::tempdir().unwrap();
        written(folder.path(), 1);
        let file = File::open(folder.path().join("frames/capture=a/part-00000.parquet")).unwrap();
        let reader = SerializedFileReader::new(file).unwrap();
        let group = reader.metadata().row_group(0);
        for (column, declared) in group.columns().iter().zip(TABLES[0].columns) {
            let may_have = matches!(declared.kind, Type::Text | Type::Integer) && !declared.differs;
            assert_eq!(column.dictionary_page_offset().is_some(), may_have, "{}", declared.name);
        }
        for (n, row) in (1_i64..).zip(reader.get_row_iter(None).unwrap()) {
            let row = row.unwrap();
            assert_eq!((row.get_long(0).unwrap(), row.get_long(3).unwrap()), (n, 100 + n % 5));
            assert_eq!(row.get_string(6).unwrap(), &format!("192.0.2.{}", n % 4));
            assert_eq!(row.get_long(8).ok(), (n % 3 > 0).then_some(n % 4));
            assert_eq!(row.get_bool(11).unwrap(), n % 100 == 0);
        }
    }
}
