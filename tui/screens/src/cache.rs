//! The index of a capture on disk, so that the next time it opens at once.
//!
//! ```text
//!   $XDG_CACHE_HOME/rdmascope/<name>.index    (~/.cache), mode 0600, written beside and renamed
//!
//!   magic 8 │ length 4, head: format, build of the program, path, size, time and ends of the capture, options
//!           │ frames 8, length of the rest 8
//!           │ frames: 32 bytes each ([`Entry`])
//!           │ rest: report, exchanges, credits ([`Stored`]), and where the capture describes itself
//!           │ CRC-64 of all before 8
//! ```
//!
//! It lies in the user's cache because captures lie on shared and read-only disks, and belong to others. It is never
//! needed: one that does not fit the capture and this build of the program to the byte, or is damaged, is as none, and
//! a folder that cannot be written stays as it is.

use super::credits_log::CreditsLog;
use super::digest::Digest;
use super::exchanges::{self, Exchanges};
use super::index::{CHUNK, ENTRY_BYTES, Entry, Index};
use crc_fast::CrcAlgorithm;
use rdmascope_analyzer::env::Options;
use rdmascope_analyzer::exchange::Exchange;
use rdmascope_analyzer::report::Report;
use rdmascope_analyzer::stored::{Reader, Stored, Writer};
use rdmascope_capture::{Access, Capture, Existing, WholeFile};
use rdmascope_report::report::Ignore;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const MAGIC: &[u8; 8] = b"rdmscpi\0";
/// Changes with the layout of the file; what is in it changes with the build of the program.
const FORMAT: u32 = 1;
/// Bytes at each end of a capture that must be the same.
const END: usize = 64 << 10;
/// A capture with fewer bytes loads in a blink.
pub(crate) const LEAST: u64 = 32 << 20;
/// Bytes of all indexes together.
pub(crate) const MOST: u64 = 4 << 30;
/// A capture that changed within this time may still be growing.
const SETTLED: Duration = Duration::from_secs(3);
/// A file being written that is older than this was given up.
const GIVEN_UP: Duration = Duration::from_secs(24 * 60 * 60);
/// Texts that are fixed in the program, and the bytes of one.
const NAMES_MAX: usize = 4096;
const NAME_MAX: usize = 1024;
const SUFFIX: &str = "index";

/// Everything that is kept of a capture.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) index: Index,
    pub(crate) report: Arc<Digest>,
    pub(crate) exchanges: Exchanges,
    pub(crate) exchanges_dropped: u64,
    pub(crate) credits: CreditsLog,
    /// The error that ended reading early.
    pub(crate) error: Option<String>,
    /// Offsets at which the capture describes itself, and the end of the part that was read.
    pub(crate) described_at: Vec<u64>,
    pub(crate) end: u64,
}

/// A capture as it was when it was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    head: Vec<u8>,
    /// The file of its index.
    file: PathBuf,
    capture: PathBuf,
    /// True if it had not changed for a while.
    is_settled: bool,
}

/// The folder of the indexes.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    pub(crate) folder: PathBuf,
    /// The build of the program.
    pub(crate) program: String,
    /// Bytes of the smallest capture that gets an index.
    pub(crate) least: u64,
    /// Bytes of all indexes together.
    pub(crate) most: u64,
}

impl Cache {
    /// The user's own, if there is one.
    pub(crate) fn of_user() -> Option<Self> {
        Some(Self {
            folder: super::config::base("XDG_CACHE_HOME", ".cache")?,
            program: build()?,
            least: LEAST,
            most: MOST,
        })
    }

    /// The identity of a capture. `None` if it gets no index: it is small or no file, or its analysis depends on keys
    /// or on options of the user.
    pub(crate) fn identity(&self, capture: &Capture, options: &Options, now: SystemTime) -> Option<Identity> {
        let bytes = capture.file()?.bytes();
        if (bytes.len() as u64) < self.least
            || !options.keyring.is_empty()
            || !options.pins.is_empty()
            || options.payloads
        {
            return None;
        }
        let path = capture.path().canonicalize().ok()?;
        let about = path.metadata().ok().filter(|about| about.is_file() && about.len() == bytes.len() as u64)?;
        let modified = about.modified().ok()?;
        let is_settled = now.duration_since(modified).is_ok_and(|age| age >= SETTLED);
        let modified = modified.duration_since(UNIX_EPOCH).ok()?;
        let ends = [&bytes[..END.min(bytes.len())], &bytes[bytes.len().saturating_sub(END)..]].map(crc);
        let name = path.to_str()?.to_owned();
        let mut head = Writer::default();
        (FORMAT, self.program.clone(), name.clone()).store(&mut head);
        (bytes.len() as u64, modified.as_secs(), modified.subsec_nanos(), ends).store(&mut head);
        format!("{options:?}").store(&mut head);
        let file = self.folder.join(format!("{:016x}.{SUFFIX}", crc(name.as_bytes())));
        Some(Identity { head: head.into_bytes(), file, capture: path, is_settled })
    }

    /// The index of a capture, if there is one that fits.
    pub(crate) fn read(&self, identity: &Identity, ignore: &[Ignore], now: SystemTime) -> Option<Kept> {
        let mut file = File::open(&identity.file).ok()?;
        let about = file.metadata().ok().filter(fs::Metadata::is_file)?;
        if !is_own(&about, &fs::metadata(&self.folder).ok()?) {
            return None;
        }
        let mut digest = crc_fast::Digest::new(CrcAlgorithm::Crc64Nvme);
        let mut part = |buffer: &mut [u8]| -> Option<()> {
            file.read_exact(buffer).ok()?;
            digest.update(buffer);
            Some(())
        };
        let (mut magic, mut length) = ([0; MAGIC.len()], [0; 4]);
        part(&mut magic)?;
        part(&mut length)?;
        let mut head = vec![0; identity.head.len()];
        if magic != *MAGIC || u32::from_le_bytes(length) as usize != head.len() {
            return None;
        }
        part(&mut head)?;
        if head != identity.head {
            return None;
        }
        let mut lengths = [[0; 8]; 2];
        part(lengths.as_flattened_mut())?;
        let [frames, rest] = lengths.map(u64::from_le_bytes);
        let before = (magic.len() + length.len() + head.len() + 16) as u64;
        let whole = frames.checked_mul(ENTRY_BYTES as u64)?.checked_add(rest)?.checked_add(before + 8)?;
        if whole != about.len() || u32::try_from(frames).is_err() {
            return None;
        }
        let mut left = frames as usize;
        let mut buffer = vec![0; CHUNK * ENTRY_BYTES];
        let mut chunks: Vec<Arc<[Entry]>> = Vec::with_capacity(left.div_ceil(CHUNK));
        while left > 0 {
            let count = left.min(CHUNK);
            let rows = &mut buffer[..count * ENTRY_BYTES];
            part(rows)?;
            chunks.push(rows.as_chunks::<ENTRY_BYTES>().0.iter().map(Entry::from_bytes).collect());
            left -= count;
        }
        let mut bytes = vec![0; usize::try_from(rest).ok()?];
        part(&mut bytes)?;
        let mut sum = [0; 8];
        file.read_exact(&mut sum).ok()?;
        if u64::from_le_bytes(sum) != digest.finalize() {
            return None;
        }
        let kept = restored(Index::of_chunks(chunks)?, &bytes, ignore)?;
        // the oldest are removed first, and this one is new again
        let _ = file.set_modified(now);
        Some(kept)
    }

    /// Keeps an index. Nothing is written if the capture has changed meanwhile, or may still grow, or if `stop` is set;
    /// errors are ignored.
    pub(crate) fn write(
        &self,
        identity: &Identity,
        capture: &Capture,
        options: &Options,
        kept: &Kept,
        stop: &AtomicBool,
        now: SystemTime,
    ) {
        // what keys unsealed stays out of it
        let is_unsealed = kept.report.connections.iter().any(|c| c.smb.decrypted > 0);
        let is_same = self.identity(capture, options, now).is_some_and(|is| is.head == identity.head);
        if identity.is_settled && is_same && !is_unsealed {
            let _ = self.try_write(identity, kept, stop, now);
        }
    }

    fn try_write(&self, identity: &Identity, kept: &Kept, stop: &AtomicBool, now: SystemTime) -> Option<()> {
        let rest = stored(kept);
        let head = &identity.head;
        let rows = (kept.index.len() * ENTRY_BYTES) as u64;
        let bytes = rows + (rest.len() + head.len() + MAGIC.len() + 4 + 16 + 8) as u64;
        if bytes > self.most / 2 {
            return None;
        }
        make_folder(&self.folder).ok()?;
        self.make_room(&identity.file, bytes, now);
        let inputs = [identity.capture.clone()];
        let file = WholeFile::create(&identity.file, &inputs, Existing::Replace, Access::Private).ok()?;
        let mut out = BufWriter::with_capacity(1 << 20, file);
        let mut digest = crc_fast::Digest::new(CrcAlgorithm::Crc64Nvme);
        let mut part = |bytes: &[u8]| -> Option<()> {
            if stop.load(Ordering::Relaxed) {
                return None;
            }
            digest.update(bytes);
            out.write_all(bytes).ok()
        };
        part(MAGIC)?;
        part(&u32::try_from(head.len()).ok()?.to_le_bytes())?;
        part(head)?;
        part([kept.index.len() as u64, rest.len() as u64].map(u64::to_le_bytes).as_flattened())?;
        let mut buffer = Vec::with_capacity(CHUNK * ENTRY_BYTES);
        for chunk in kept.index.chunks() {
            buffer.clear();
            chunk.iter().for_each(|entry| buffer.extend_from_slice(&entry.to_bytes()));
            part(&buffer)?;
        }
        part(&rest)?;
        let sum = digest.finalize();
        out.write_all(&sum.to_le_bytes()).ok()?;
        out.into_inner().ok()?.finish().ok()
    }

    /// Removes the oldest indexes until there is room for `bytes` more, and files that were given up.
    fn make_room(&self, but: &Path, bytes: u64, now: SystemTime) {
        let Ok(entries) = fs::read_dir(&self.folder) else { return };
        let mut all: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
        for entry in entries.flatten() {
            let path = entry.path();
            let Some(about) = entry.metadata().ok().filter(fs::Metadata::is_file) else { continue };
            let modified = about.modified().unwrap_or(UNIX_EPOCH);
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let is_beside = name.starts_with('.') && name.contains(&format!(".{SUFFIX}."));
            if is_beside && now.duration_since(modified).is_ok_and(|age| age > GIVEN_UP) {
                let _ = fs::remove_file(path);
            } else if path != but && path.extension().is_some_and(|e| e == SUFFIX) {
                all.push((modified, about.len(), path));
            }
        }
        all.sort();
        let mut sum = all.iter().fold(bytes, |sum, (_, len, _)| sum.saturating_add(*len));
        for (_, len, path) in all {
            if sum <= self.most {
                break;
            }
            if fs::remove_file(path).is_ok() {
                sum = sum.saturating_sub(len);
            }
        }
    }
}

/// Identity of this build of the program; `None` if it cannot be known.
fn build() -> Option<String> {
    let about = std::env::current_exe().ok()?.metadata().ok()?;
    let built = about.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(format!("{} {} {}", env!("CARGO_PKG_VERSION"), about.len(), built.as_nanos()))
}

fn crc(bytes: &[u8]) -> u64 {
    crc_fast::checksum(CrcAlgorithm::Crc64Nvme, bytes)
}

fn make_folder(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// True if nobody but the owner of the folder can have written the file.
#[cfg(unix)]
fn is_own(file: &fs::Metadata, folder: &fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    const BY_OTHERS: u32 = 0o022;
    file.uid() == folder.uid() && (file.mode() | folder.mode()) & BY_OTHERS == 0
}

#[cfg(not(unix))]
fn is_own(_: &fs::Metadata, _: &fs::Metadata) -> bool {
    true
}

/// A text that stays, for a name that the program once had. It takes memory once for each.
fn fixed(name: &str) -> Option<&'static str> {
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut names = NAMES.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some(known) = names.get(name).copied() {
        return Some(known);
    }
    if names.len() >= NAMES_MAX || name.len() > NAME_MAX {
        return None;
    }
    let name: &'static str = Box::leak(name.into());
    names.insert(name);
    Some(name)
}

/// All but the frames, as bytes.
fn stored(kept: &Kept) -> Vec<u8> {
    let mut out = Writer::default();
    Report::store(kept.report.whole(), &mut out);
    kept.exchanges.len().store(&mut out);
    kept.exchanges.iter().for_each(|(_, exchange)| exchange.store(&mut out));
    kept.exchanges_dropped.store(&mut out);
    kept.credits.store(&mut out);
    kept.error.store(&mut out);
    kept.described_at.store(&mut out);
    kept.end.store(&mut out);
    out.into_bytes()
}

fn restored(index: Index, bytes: &[u8], ignore: &[Ignore]) -> Option<Kept> {
    let mut name = fixed;
    let mut from = Reader::new(bytes, &mut name);
    let report = Report::restore(&mut from)?;
    let mut exchanges = exchanges::Builder::default();
    for _ in 0..usize::restore(&mut from)? {
        exchanges.push(Exchange::restore(&mut from)?);
    }
    let kept = Kept {
        index,
        report: Arc::new(Digest::new(report, ignore)),
        exchanges: exchanges.exchanges(),
        exchanges_dropped: Stored::restore(&mut from)?,
        credits: Stored::restore(&mut from)?,
        error: Stored::restore(&mut from)?,
        described_at: Stored::restore(&mut from)?,
        end: Stored::restore(&mut from)?,
    };
    from.is_empty().then_some(kept)
}
