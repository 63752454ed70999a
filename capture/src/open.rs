//! Opening: whatever the path leads to, by what it begins with and never by its suffix.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, Problem, Result};
use crate::mapped::{CaptureFile, MappedSource};
use crate::metadata::Metadata;
use crate::record::Record;
use crate::source::{Progress, Source};
use crate::spool::RandomAccess;
use crate::stream::{Follow, StreamSource};
use crate::walk::{DEFAULT_MAX_RECORD_LEN, Magic};

/// Longest captured frame that can be asked for, in bytes.
const GREATEST_MAX_RECORD_LEN: u32 = 1 << 30;

/// How to open a capture.
#[derive(Debug)]
#[non_exhaustive]
pub struct OpenOptions {
    /// At the end of the file, wait for more instead of ending. Such a file is read, not mapped.
    pub follow: Option<Follow>,
    /// Whether regular files on local file systems may be mapped into memory. On by default.
    pub mmap: bool,
    /// Longest captured frame accepted, in bytes; a longer one is damage. 256 MiB by default, 1 GiB at most.
    pub max_record_len: u32,
    /// Keep up to so many bytes of a compressed file or a pipe in an unnamed temporary file, so that records can be read again by offset.
    pub spool: Option<u64>,
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions { follow: None, mmap: true, max_record_len: DEFAULT_MAX_RECORD_LEN, spool: None }
    }
}

impl OpenOptions {
    /// The defaults.
    pub fn new() -> OpenOptions {
        OpenOptions::default()
    }

    /// Sets [`OpenOptions::follow`].
    pub fn follow(mut self, follow: Follow) -> OpenOptions {
        self.follow = Some(follow);
        self
    }

    /// Sets [`OpenOptions::mmap`].
    pub fn mmap(mut self, mmap: bool) -> OpenOptions {
        self.mmap = mmap;
        self
    }

    /// Sets [`OpenOptions::max_record_len`].
    pub fn max_record_len(mut self, bytes: u32) -> OpenOptions {
        self.max_record_len = bytes;
        self
    }

    /// Sets [`OpenOptions::spool`].
    pub fn spool(mut self, bytes: u64) -> OpenOptions {
        self.spool = Some(bytes);
        self
    }
}

/// An open capture file. An enum rather than a trait object, so that the hot path is inlined.
#[derive(Debug)]
pub enum Capture {
    /// The whole file at once.
    Mapped(MappedSource),
    /// In order, through a buffer.
    Stream(StreamSource),
}

/// Opens the capture file at `path`; `-` is standard input. Files inside gzip, zstd or lz4 are decompressed on the way.
///
/// Errors say in one line what is wrong: nothing there, a directory, no permission, empty, not a capture, damaged at the start.
pub fn open(path: impl AsRef<Path>, options: OpenOptions) -> Result<Capture> {
    let path = path.as_ref();
    let OpenOptions { follow, mmap, max_record_len, spool } = options;
    let max_record_len = max_record_len.min(GREATEST_MAX_RECORD_LEN);
    let stream = if path == Path::new("-") {
        StreamSource::new(io::stdin(), path)
    } else {
        let file = File::open(path).map_err(|e| Error::open(path, e))?;
        let meta = file.metadata().map_err(|e| Error::open(path, e))?;
        if meta.is_dir() {
            return Err(Error::new(path, Problem::IsDirectory));
        }
        // A length of 0 may be a file of the kernel's, which has more to say when read.
        if mmap && follow.is_none() && meta.is_file() && meta.len() > 0 && is_local(&file) && !is_compressed(&file, path)? {
            let file = CaptureFile::map(file, path, max_record_len)?;
            return Ok(Capture::Mapped(MappedSource::new(Arc::new(file))));
        }
        if meta.is_file() { StreamSource::of_file(file, path)? } else { StreamSource::new(file, path) }
    };
    let following = follow.is_some();
    let mut stream = stream.with(follow, max_record_len, spool);
    if !following {
        stream.begin_now()?;
    }
    Ok(Capture::Stream(stream))
}

/// Whether the file begins like a compressed one. Leaves the read position at the start.
fn is_compressed(file: &File, path: &Path) -> Result<bool> {
    use std::io::{Read, Seek};
    let mut file = file;
    let mut magic = Vec::new();
    file.take(Magic::LEN as u64).read_to_end(&mut magic).and_then(|_| file.rewind()).map_err(|e| Error::open(path, e))?;
    Ok(matches!(Magic::of(&magic), Magic::Gzip | Magic::Frames))
}

/// Whether the file system is of this machine, so that nobody else can truncate the file unseen. Unknown ones count as local.
#[cfg(target_os = "linux")]
fn is_local(file: &File) -> bool {
    /// NFS, SMB (three generations), FUSE, AFS, Ceph, 9P, Lustre: linux/magic.h and the clients' own headers.
    const REMOTE: [u32; 9] = [0x6969, 0x517b, 0xff53_4d42, 0xfe53_4d42, 0x6573_5546, 0x5346_414f, 0x00c3_6400, 0x0102_1997, 0x0bd0_0bd0];
    rustix::fs::fstatfs(file).is_ok_and(|s| !REMOTE.contains(&(s.f_type as u32)))
}

#[cfg(not(target_os = "linux"))]
fn is_local(_: &File) -> bool {
    true
}

/// Says what a file is that begins with `bytes` and is no capture.
#[cold]
pub(crate) fn not_capture(bytes: &[u8]) -> Problem {
    /// Formats that may well be given by mistake, and what to do about them.
    const KNOWN: [(&[u8], &str); 10] = [
        (b"\xfd7zXZ\0", "xz-compressed; decompress it with xz -d"),
        (b"BZh", "bzip2-compressed; decompress it with bzip2 -d"),
        (b"PK\x03\x04", "a zip archive; unpack it first"),
        (b"7z\xbc\xaf\x27\x1c", "a 7z archive; unpack it first"),
        (b"snoop\0\0\0", "a snoop capture; convert it with editcap -F pcapng"),
        (b"GMBU", "a Network Monitor capture; convert it with editcap -F pcapng"),
        (b"RTSS", "a Network Monitor capture; convert it with editcap -F pcapng"),
        (b"\x7fELF", "a program"),
        (b"%PDF-", "a PDF document"),
        (b"\0\0\0\0", "begins with zeros, as a file does that was never written to"),
    ];
    if bytes.is_empty() {
        return Problem::Empty;
    }
    if let Some((_, what)) = KNOWN.iter().find(|(magic, _)| bytes.starts_with(magic)) {
        return Problem::NotCapture((*what).to_owned());
    }
    let head = &bytes[..bytes.len().min(24)];
    let printable = |b: &u8| matches!(b, b'\t' | b'\n' | b'\r' | b' '..=b'~');
    if head.iter().all(printable) {
        return Problem::NotCapture(format!("begins with the text \"{}\"", head.escape_ascii()));
    }
    let hex: Vec<String> = head.iter().take(8).map(|b| format!("{b:02x}")).collect();
    Problem::NotCapture(format!("begins with the bytes {}", hex.join(" ")))
}

impl Capture {
    /// Where the file is; `-` is standard input.
    pub fn path(&self) -> &Path {
        match self {
            Capture::Mapped(mapped) => mapped.file().path(),
            Capture::Stream(stream) => stream.path(),
        }
    }

    /// The file as a whole, where it is mapped.
    pub fn file(&self) -> Option<&Arc<CaptureFile>> {
        match self {
            Capture::Mapped(mapped) => Some(mapped.file()),
            Capture::Stream(_) => None,
        }
    }

    /// A way to read records again by offset, with the metadata known by now. `None` for pipes and compressed files unless
    /// [`OpenOptions::spool`] was set, and before the first record of a file that is followed.
    pub fn random_access(&self) -> Option<RandomAccess> {
        match self {
            Capture::Mapped(mapped) => Some(RandomAccess::mapped(mapped.file().clone(), mapped.metadata().clone())),
            Capture::Stream(stream) => {
                let (stored, format) = stream.stored()?;
                let metadata = stream.metadata().clone();
                Some(RandomAccess::stored(stream.path().to_owned(), stored, format, stream.max_record_len(), metadata))
            }
        }
    }
}

impl Source for Capture {
    #[inline]
    fn advance(&mut self) -> Result<bool> {
        match self {
            Capture::Mapped(source) => source.advance(),
            Capture::Stream(source) => source.advance(),
        }
    }

    #[inline]
    fn record(&self) -> Record<'_> {
        match self {
            Capture::Mapped(source) => source.record(),
            Capture::Stream(source) => source.record(),
        }
    }

    fn metadata(&self) -> &Metadata {
        match self {
            Capture::Mapped(source) => source.metadata(),
            Capture::Stream(source) => source.metadata(),
        }
    }

    fn progress(&self) -> Progress {
        match self {
            Capture::Mapped(source) => source.progress(),
            Capture::Stream(source) => source.progress(),
        }
    }
}
