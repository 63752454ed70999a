//! Errors of reading and writing capture files. Each message is one line that says which file, at which byte, what was
//! expected and found, and what to do.

use rdmascope_dissector::text::Escaped;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The result of everything in this crate that touches a file.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A problem with a capture file. `Display` gives one line that begins with the path.
///
/// It is one pointer wide, so that results on the hot path stay small.
pub struct Error(Box<Report>);

struct Report {
    path: PathBuf,
    problem: Problem,
}

impl Error {
    /// An error about the file at `path` (`-` is standard input).
    #[cold]
    pub fn new(path: impl Into<PathBuf>, problem: Problem) -> Error {
        Error(Box::new(Report { path: path.into(), problem }))
    }

    /// The file this is about; `-` is standard input.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// The kind of problem, without the path.
    pub fn problem(&self) -> &Problem {
        &self.0.problem
    }

    /// The byte at which reading or writing stopped, if there is one. For a compressed file it counts decompressed
    /// bytes.
    pub fn offset(&self) -> Option<u64> {
        match &self.0.problem {
            Problem::Damaged { offset, .. } | Problem::Read { offset, .. } | Problem::Write { offset, .. } => {
                Some(*offset)
            }
            _ => None,
        }
    }

    /// An error that the operating system gave when opening or creating `path`.
    #[cold]
    pub(crate) fn open(path: &Path, source: io::Error) -> Error {
        let problem = match source.kind() {
            io::ErrorKind::NotFound => Problem::NotFound,
            io::ErrorKind::PermissionDenied => Problem::PermissionDenied,
            io::ErrorKind::IsADirectory => Problem::IsDirectory,
            _ => Problem::Open(source),
        };
        Error::new(path, problem)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path().to_str() {
            Some("-") => write!(f, "standard input: {}", self.0.problem),
            // Escaped, because a file name may hold bytes that a terminal obeys.
            _ => write!(f, "{}: {}", Escaped(&self.path().to_string_lossy()), self.0.problem),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error").field("path", &self.0.path).field("problem", &self.0.problem).finish()
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&self.0.problem)
    }
}

/// A kind of problem, without the path.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The path leads nowhere.
    #[error("no such file")]
    NotFound,
    /// The path is a directory.
    #[error("is a directory; give the capture files in it")]
    IsDirectory,
    /// The operating system refused.
    #[error("permission denied; check the owner and mode of the file")]
    PermissionDenied,
    /// There is not one byte in it.
    #[error("is empty; nothing was captured, or it was not written yet")]
    Empty,
    /// It does not begin like a capture file.
    #[error(
        "not a capture file: {0}; pcap, pcapng, ERF, snoop and Network Monitor are read, also inside gzip, zstd or lz4"
    )]
    NotCapture(String),
    /// It is something known that this crate does not read.
    #[error("not supported: {0}")]
    Unsupported(String),
    /// It began well and then broke. Everything before `offset` was read.
    #[error("damaged at byte {offset}{}: {damage}", if *.decompressed { " of the decompressed data" } else { "" })]
    Damaged {
        /// Offset of the damaged record or block, in bytes from the start of the (decompressed) file.
        offset: u64,
        /// True if `offset` counts decompressed bytes.
        decompressed: bool,
        /// The kind of damage.
        damage: Damage,
    },
    /// The operating system failed while opening.
    #[error("cannot be opened: {0}")]
    Open(#[source] io::Error),
    /// The operating system failed while reading.
    #[error("cannot be read at byte {offset}: {source}")]
    Read {
        /// Bytes read so far.
        offset: u64,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The operating system failed while writing.
    #[error("cannot be written at byte {offset}: {source}{}", advice(.source))]
    Write {
        /// Bytes written so far.
        offset: u64,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
    /// A file to be written cannot be made.
    #[error("cannot be written: {0}")]
    Create(#[source] io::Error),
    /// A file to be written is one of those that are read.
    #[error("is an input; give the output another name")]
    IsInput,
    /// A file to be written exists already and must be kept.
    #[error("exists already; --force replaces it")]
    Exists,
    /// The data to write does not fit the file format.
    #[error("cannot be written: {0}")]
    DoesNotFit(String),
    /// There is no interface of this name; contains the existing names.
    #[error("no such interface; there are {}", .0.join(", "))]
    NoSuchInterface(Vec<String>),
    /// The operating system does not let us capture.
    #[error("capturing needs {capability}: run as root, or grant it once: sudo setcap {}+ep {}", capability.to_lowercase(), program())]
    NotPermitted {
        /// The missing capability.
        capability: &'static str,
    },
    /// The operating system failed while opening an interface, or while capturing from it.
    #[error("{what}: {source}")]
    Live {
        /// The operation that failed.
        what: &'static str,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
    /// libpcap's own error text.
    #[error("libpcap: {0}")]
    Libpcap(String),
    /// An RDMA card cannot be captured from.
    #[cfg(target_os = "linux")]
    #[error("{}", .0.without_device())]
    Verbs(rdmascope_verbs::Error),
    /// A frame of a live capture was requested by offset and is no longer kept.
    #[error("the frame is no longer kept: a live capture keeps only the last frames")]
    NoLongerKept,
    /// A record was requested by offset, and none begins there.
    #[error("no record begins at byte {0}")]
    NoRecordAt(u64),
    /// A record was requested by offset that was not kept; see [`OpenOptions::spool`](crate::OpenOptions::spool).
    #[error("the record at byte {0} is not in the temporary copy, which is full")]
    NotKept(u64),
}

/// The path of this program, as a shell can be given it.
fn program() -> String {
    std::env::current_exe().map_or_else(|_| "rdmascope".to_owned(), |p| p.display().to_string())
}

fn advice(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "; free some space or write elsewhere",
        io::ErrorKind::BrokenPipe => "; the program that read this output has ended",
        _ => "",
    }
}

/// The article of a word.
fn article(word: &str) -> &'static str {
    if word.starts_with(['A', 'E', 'I', 'O', 'a', 'e', 'i', 'o']) { "an" } else { "a" }
}

/// A kind of damage to a capture file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Damage {
    /// The file ends too early.
    #[error("the file ends inside a {what}: {needed} bytes needed, {left} left")]
    CutShort {
        /// Part of the file that was being read.
        what: &'static str,
        /// Its length in bytes, if known.
        needed: u64,
        /// Number of these bytes that are there.
        left: u64,
    },
    /// A packet record claims an impossible length.
    #[error("a packet record claims {found} captured bytes, the limit is {limit}")]
    RecordTooLong {
        /// The length claimed, in bytes.
        found: u32,
        /// The longest length accepted here, in bytes.
        limit: u32,
    },
    /// A record of another tool's format claims an impossible length.
    #[error("{} {what} record claims a length of {found} bytes, expected at least {least}", article(.what))]
    RecordLength {
        /// The format.
        what: &'static str,
        /// The length claimed, in bytes.
        found: u32,
        /// The shortest length possible.
        least: u32,
    },
    /// A file of another tool's format has frames of a kind that are not read there.
    #[error("{format} link type {found} is not read; only Ethernet is")]
    LinkType {
        /// The format.
        format: &'static str,
        /// The link type, as that format numbers it.
        found: u32,
    },
    /// A pcapng block claims an impossible length.
    #[error(
        "a block of type {kind:#x} claims a length of {found} bytes, expected a multiple of 4 from {least} to {limit}"
    )]
    BlockLength {
        /// The block type.
        kind: u32,
        /// The length claimed, in bytes.
        found: u32,
        /// The shortest length possible.
        least: u32,
        /// The longest length accepted.
        limit: u32,
    },
    /// The two lengths of a pcapng block contradict each other.
    #[error("a block of type {kind:#x} begins with length {first} and ends with length {last}")]
    BlockLengthsDiffer {
        /// The block type.
        kind: u32,
        /// The length at its beginning, in bytes.
        first: u32,
        /// The length at its end, in bytes.
        last: u32,
    },
    /// A packet claims more bytes than its block has.
    #[error("a packet claims {found} captured bytes in a block with room for {room}")]
    CapturedBeyondBlock {
        /// The length claimed, in bytes.
        found: u32,
        /// Maximum number of captured bytes that fit into the block.
        room: u32,
    },
    /// A block refers to an interface that was not described.
    #[error("a block refers to interface {found}; interfaces described in this section: {known}")]
    UnknownInterface {
        /// The interface named, counting from 0 in this section.
        found: u32,
        /// Number of interfaces described so far.
        known: u32,
    },
    /// A pcapng section header without a byte-order magic.
    #[error("a section header has byte-order magic {0:#010x}, expected 0x1a2b3c4d in either byte order")]
    ByteOrderMagic(u32),
    /// A version that is not known.
    #[error("{format} version {major}.{minor} is not known")]
    Version {
        /// `pcap` or `pcapng`.
        format: &'static str,
        /// Major version found.
        major: u16,
        /// Minor version found.
        minor: u16,
    },
    /// More of something than is sane.
    #[error("more than {limit} {what}")]
    TooMany {
        /// The items that are too many.
        what: &'static str,
        /// Maximum number accepted.
        limit: usize,
    },
    /// The compressed data cannot be decompressed.
    #[error("the {method} data {reason}")]
    Compression {
        /// `gzip`, `zstd` or `lz4`.
        method: &'static str,
        /// The problem, as a verb and its object.
        reason: String,
    },
    /// The file became shorter while it was being read.
    #[error("the file shrank from {was} to {now} bytes while it was read")]
    Shrank {
        /// Bytes it had.
        was: u64,
        /// Bytes it has.
        now: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_each_beginning_with_the_path() {
        let e = Error::new(
            "a\nb.pcap",
            Problem::Damaged {
                offset: 40,
                decompressed: true,
                damage: Damage::RecordTooLong { found: 0x1000_0001, limit: 0x1000_0000 },
            },
        );
        assert_eq!(
            e.to_string(),
            "a\\nb.pcap: damaged at byte 40 of the decompressed data: a packet record claims 268435457 captured bytes, \
                the limit is \
            268435456"
        );
        assert_eq!(e.offset(), Some(40));
        assert_eq!(
            Error::new("-", Problem::Empty).to_string(),
            "standard input: is empty; nothing was captured, or it was not written yet"
        );
        let full = Problem::Write { offset: 7, source: io::ErrorKind::StorageFull.into() };
        assert!(Error::new("x", full).to_string().ends_with("; free some space or write elsewhere"));
    }

    #[test]
    fn a_result_is_one_pointer_wide() {
        assert_eq!(size_of::<Result<()>>(), size_of::<usize>());
    }
}
