//! Opening of captures. The format is determined by the first bytes, never by the suffix.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::error::{Error, Problem, Result};
use crate::mapped::{self, CaptureFile, MappedSource};
use crate::metadata::Metadata;
use crate::random_access::RandomAccess;
use crate::record::Record;
use crate::source::{Progress, Source};
use crate::stream::{Follow, StreamSource};
use crate::system;
use crate::walk::{DEFAULT_MAX_RECORD_LEN, Magic};

/// Upper limit of the longest captured frame, in bytes.
const GREATEST_MAX_RECORD_LEN: u32 = 1 << 30;

/// Options for opening a capture.
#[derive(Debug)]
#[non_exhaustive]
pub struct OpenOptions {
    /// At the end of a regular file, wait for more instead of ending. Such a file is read, not mapped, and opening it
    /// does not wait for its first bytes, so an unknown format is reported with the first record. Pipes wait anyway;
    /// for these only the latter holds.
    pub follow: Option<Follow>,
    /// True if regular files on local file systems may be mapped into memory. On by default.
    pub mmap: bool,
    /// Longest captured frame accepted, in bytes; a longer one is damage. 256 MiB by default, 1 GiB at most.
    pub max_record_len: u32,
    /// Keep up to this number of bytes of a compressed file or a pipe in an unnamed temporary file, so that records can
    /// be read again by offset.
    pub spool: Option<u64>,
    /// Ends standard input, and other inputs that are not regular files, once this is set: everything received before
    /// is still read.
    pub stop: Option<Arc<AtomicBool>>,
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions { follow: None, mmap: true, max_record_len: DEFAULT_MAX_RECORD_LEN, spool: None, stop: None }
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

    /// Sets [`OpenOptions::stop`].
    pub fn stop(mut self, stop: Arc<AtomicBool>) -> OpenOptions {
        self.stop = Some(stop);
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
/// Errors state the problem in one line: no such file, a directory, no permission, empty, not a capture, damaged at the
/// start.
pub fn open(path: impl AsRef<Path>, options: OpenOptions) -> Result<Capture> {
    let path = path.as_ref();
    let OpenOptions { follow, mmap, max_record_len, spool, stop } = options;
    let max_record_len = max_record_len.min(GREATEST_MAX_RECORD_LEN);
    let stream = if path == Path::new("-") {
        StreamSource::until(io::stdin(), path, stop)
    } else {
        let file = File::open(path).map_err(|e| Error::open(path, e))?;
        let meta = file.metadata().map_err(|e| Error::open(path, e))?;
        if meta.is_dir() {
            return Err(Error::new(path, Problem::IsDirectory));
        }
        // A file of length 0 may be a virtual file of the kernel, which has content when read.
        if mmap
            && follow.is_none()
            && meta.is_file()
            && meta.len() > 0
            && system::is_local(&file)
            && is_mappable(&file, path)?
        {
            // If mapping fails (no address space, no support in the file system), the file is read instead.
            if let Ok(map) = mapped::map(&file) {
                let file = CaptureFile::of_map(map, file, path, max_record_len)?;
                return Ok(Capture::Mapped(MappedSource::new(Arc::new(file))));
            }
        }
        if meta.is_file() { StreamSource::of_file(file, path) } else { StreamSource::until(file, path, stop) }
    };
    let at_once = follow.is_none();
    // A pipe waits by itself, and its end is final.
    let follow = follow.filter(|_| stream.is_regular_file());
    let mut stream = stream.with(follow, max_record_len, spool);
    if at_once {
        stream.begin_now()?;
    }
    Ok(Capture::Stream(stream))
}

/// True if the file begins like one that can be mapped. Leaves the read position at the start.
fn is_mappable(file: &File, path: &Path) -> Result<bool> {
    use std::io::{Read, Seek};
    let mut file = file;
    let mut magic = Vec::new();
    file.take(Magic::LEN as u64)
        .read_to_end(&mut magic)
        .and_then(|_| file.rewind())
        .map_err(|e| Error::open(path, e))?;
    Ok(matches!(Magic::of(&magic), Magic::Pcap | Magic::Pcapng))
}

impl Capture {
    /// Path of the file; `-` is standard input.
    pub fn path(&self) -> &Path {
        match self {
            Capture::Mapped(mapped) => mapped.file().path(),
            Capture::Stream(stream) => stream.path(),
        }
    }

    /// The file as a whole, if it is mapped.
    pub fn file(&self) -> Option<&Arc<CaptureFile>> {
        match self {
            Capture::Mapped(mapped) => Some(mapped.file()),
            Capture::Stream(_) => None,
        }
    }

    /// The frame that [`Source::advance`] went to, borrowed from its mapped file: see [`MappedSource::record_in`].
    #[inline]
    pub fn record_in<'f>(&self, file: &'f Arc<CaptureFile>) -> Record<'f> {
        match self {
            Capture::Mapped(mapped) => mapped.record_in(file),
            Capture::Stream(_) => Record::EMPTY,
        }
    }

    /// Offsets of the blocks of a mapped file that described it so far, for [`Capture::skip`].
    pub fn described_at(&self) -> Option<&[u64]> {
        match self {
            Capture::Mapped(mapped) => mapped.described_at(),
            Capture::Stream(_) => None,
        }
    }

    /// Goes to byte `end` of a mapped file without reading its records: see [`MappedSource::skip`].
    pub fn skip(&mut self, described_at: &[u64], end: u64) -> bool {
        match self {
            Capture::Mapped(mapped) => mapped.skip(described_at, end),
            Capture::Stream(_) => false,
        }
    }

    /// Access to records by offset, with the metadata known so far. `None` for pipes and compressed files unless
    /// [`OpenOptions::spool`] was set, and before the first record of a followed file.
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

    #[inline]
    fn run(&mut self, each: &mut impl FnMut(&Record<'_>) -> bool) {
        if let Capture::Mapped(source) = self {
            source.run(each);
        }
    }

    fn fetch_ahead(&mut self) {
        match self {
            Capture::Mapped(source) => source.fetch_ahead(),
            Capture::Stream(source) => source.fetch_ahead(),
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

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::path::PathBuf;
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;
    use crate::pcap::MAGIC_MICROSECONDS;
    use crate::testing::{Owned, drain, pcap_file};

    /// A file of these bytes, deleted with its folder.
    fn file(bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a file");
        std::fs::write(&path, bytes).unwrap();
        (dir, path)
    }

    fn sample() -> Vec<u8> {
        let frames: Vec<Vec<u8>> = (0..3000u32).map(|i| vec![i as u8; (i % 1500) as usize]).collect();
        let records: Vec<_> = frames.iter().zip(0..).map(|(f, i)| (i, 0, &f[..], f.len() as u32)).collect();
        pcap_file(MAGIC_MICROSECONDS, false, 65535, 1, &records)
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut w = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        w.write_all(bytes).unwrap();
        w.finish().unwrap()
    }

    fn message(bytes: &[u8]) -> String {
        let (_dir, path) = file(bytes);
        let message = open(&path, OpenOptions::new()).unwrap_err().to_string();
        let read = open(&path, OpenOptions::new().mmap(false)).unwrap_err().to_string();
        assert_eq!(message, read, "mapped and read");
        message.strip_prefix(&format!("{}: ", path.display())).unwrap().to_owned()
    }

    #[test]
    fn other_files_are_reported_in_distinct_lines() {
        let dir = tempfile::tempdir().unwrap();
        let of = |path: &Path| open(path, OpenOptions::new()).unwrap_err().to_string();
        assert!(of(dir.path()).ends_with(": is a directory; give the capture files in it"));
        assert!(of(&dir.path().join("none")).ends_with(": no such file"));
        assert!(of(&dir.path().join("none\x1b[2J")).contains("none\\x1b[2J: no such file"));
        assert_eq!(message(b""), "is empty; nothing was captured, or it was not written yet");
        let hint = "; pcap, pcapng, ERF, snoop and Network Monitor are read, also inside gzip, zstd or lz4";
        assert_eq!(
            message(b"hello\nworld"),
            format!("not a capture file: begins with the text \"hello\\nworld\"{hint}")
        );
        assert_eq!(
            message(b"\x00\x01\xff\x7f\x02"),
            format!("not a capture file: begins with the bytes 00 01 ff 7f 02{hint}")
        );
        assert!(message(b"\xfd7zXZ\0\0").contains("xz-compressed; decompress it with xz -d"));
        assert!(message(&gzip(b"some text")).contains("begins with the text \"some text\""));
        assert!(message(&gzip(&gzip(b"some text"))).contains("not supported: compressed twice"));
        assert!(message(&gzip(b"")).contains("the compressed file is empty"));
        assert_eq!(
            message(&sample()[..23]),
            "damaged at byte 0: the file ends inside a pcap file header: 24 bytes needed, 23 left"
        );
    }

    #[test]
    #[cfg(unix)]
    fn a_file_without_permission_is_reported_unless_one_may_read_everything() {
        use std::os::unix::fs::PermissionsExt;
        let (_dir, path) = file(&sample());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o000)).unwrap();
        match open(&path, OpenOptions::new()) {
            Err(e) => assert!(e.to_string().contains("permission denied")),
            Ok(_) => eprintln!("not tried: this user may read everything"),
        }
    }

    #[test]
    fn mapped_read_and_compressed_give_the_same_and_by_offset_too() {
        let sample = sample();
        let mut lz4 = lz4_flex::frame::FrameEncoder::new(Vec::new());
        lz4.write_all(&sample).unwrap();
        let half = sample.len() / 2;
        let forms = [
            ("plain", sample.clone()),
            ("gzip", gzip(&sample)),
            ("gzip of two members", [gzip(&sample[..half]), gzip(&sample[half..])].concat()),
            ("zstd", ruzstd::encoding::compress_to_vec(&sample[..], ruzstd::encoding::CompressionLevel::Fastest)),
            ("lz4", lz4.finish().unwrap()),
        ];
        let expected = drain(&mut StreamSource::new(io::Cursor::new(sample.clone()), "test")).records;
        assert_eq!(expected.len(), 3000);
        for (name, bytes) in forms {
            for mmap in [true, false] {
                let (_dir, path) = file(&bytes);
                let mut capture = open(&path, OpenOptions::new().mmap(mmap).spool(1 << 30)).unwrap();
                assert_eq!(capture.file().is_some(), mmap && name == "plain", "{name}");
                let read = drain(&mut capture);
                assert_eq!((read.error, &read.records), (None, &expected), "{name}");
                assert_eq!(
                    capture.progress(),
                    Progress { done: bytes.len() as u64, total: Some(bytes.len() as u64) },
                    "{name}"
                );
                let mut again = capture.random_access().unwrap();
                for record in expected.iter().rev().step_by(7) {
                    assert_eq!(&Owned::from(again.record_at(record.offset).unwrap()), record, "{name}");
                }
                assert!(again.record_at(sample.len() as u64).is_err());
            }
        }
    }

    #[test]
    fn without_a_spool_a_compressed_file_is_only_read_in_order_and_a_full_one_says_so() {
        let (_dir, path) = file(&gzip(&sample()));
        let mut capture = open(&path, OpenOptions::new()).unwrap();
        let read = drain(&mut capture);
        assert!(capture.random_access().is_none());

        let mut capture = open(&path, OpenOptions::new().spool(1_200_000)).unwrap();
        drain(&mut capture);
        let mut again = capture.random_access().unwrap();
        assert!(again.record_at(read.records[0].offset).is_ok());
        let last = read.records[2999].offset;
        assert!(
            again
                .record_at(last)
                .unwrap_err()
                .to_string()
                .ends_with(&format!(": the record at byte {last} is not in the temporary copy, which is full"))
        );
    }

    #[test]
    fn a_cut_gzip_file_gives_what_came_before_and_says_the_offset_in_decompressed_bytes() {
        let whole = gzip(&sample());
        let (_dir, path) = file(&whole[..whole.len() - 9]);
        let read = drain(&mut open(&path, OpenOptions::new()).unwrap());
        assert!(read.records.len() > 2000);
        let message = read.error.unwrap();
        assert!(message.contains(" of the decompressed data: the gzip data "), "{message}");
    }

    #[test]
    fn a_bomb_is_streamed() {
        // 200 MB of zero-length frames in 200 kB; the buffer does not grow.
        let header = pcap_file(MAGIC_MICROSECONDS, false, 65535, 1, &[]);
        let mut w = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        w.write_all(&header).unwrap();
        for _ in 0..200 {
            w.write_all(&[0; 1 << 20]).unwrap();
        }
        let (_dir, path) = file(&w.finish().unwrap());
        let mut capture = open(&path, OpenOptions::new()).unwrap();
        let mut count = 0;
        while capture.advance().unwrap() {
            count += 1;
        }
        assert_eq!(count, 200 << 16);
        let Capture::Stream(stream) = capture else { panic!("compressed") };
        assert!(stream.buffer_len() <= 1 << 20);
    }

    #[test]
    fn a_record_longer_than_the_buffer_is_read_and_one_that_lies_takes_no_memory() {
        let long = vec![9; 3 << 20];
        let mut bytes = pcap_file(MAGIC_MICROSECONDS, false, 0, 1, &[(0, 0, &long, 0), (0, 0, &long, 0)]);
        bytes.extend([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0]);
        let mut stream = StreamSource::new(io::Cursor::new(bytes), "test");
        let read = drain(&mut stream);
        assert_eq!((read.records.len(), read.records[1].bytes.len()), (2, 3 << 20));
        assert!(read.error.unwrap().ends_with("the file ends inside a packet record: 268435472 bytes needed, 16 left"));
        assert!(stream.buffer_len() <= 8 << 20);
    }

    #[test]
    fn a_growing_file_is_followed_without_losing_a_partial_record() {
        let sample = pcap_file(MAGIC_MICROSECONDS, false, 65535, 1, &[(1, 0, b"abc", 3), (2, 0, b"def", 3)]);
        let (_dir, path) = file(b"");
        let (ask, asked) = mpsc::channel();
        let wait = move || ask.send(()).is_err();
        let mut capture = open(&path, OpenOptions::new().follow(Follow::Wait(Box::new(wait)))).unwrap();
        let mut out = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
        assert!(!capture.advance().unwrap());
        let mut seen = Vec::new();
        for byte in &sample {
            out.write_all(&[*byte]).unwrap();
            while let Some(r) = capture.next().unwrap() {
                seen.push(r.bytes.to_vec());
            }
        }
        assert_eq!(seen, [b"abc", b"def"]);
        assert!(asked.try_iter().count() > sample.len(), "it asked each time there was no more");
        assert_eq!(capture.random_access().unwrap().record_at(24).unwrap().bytes, b"abc");

        out.set_len(30).unwrap();
        let message = capture.advance().unwrap_err().to_string();
        assert!(
            message.ends_with("damaged at byte 62: the file shrank from 62 to 30 bytes while it was read"),
            "{message}"
        );
    }

    #[test]
    fn following_by_polling_sleeps_until_more_comes() {
        let sample = pcap_file(MAGIC_MICROSECONDS, false, 65535, 1, &[(1, 0, b"abc", 3)]);
        let (_dir, path) = file(&sample[..30]);
        let mut capture = open(&path, OpenOptions::new().follow(Follow::Poll(Duration::from_millis(2)))).unwrap();
        let writer = std::thread::spawn(move || {
            let mut out = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
            std::thread::sleep(Duration::from_millis(20));
            out.write_all(&sample[30..]).unwrap();
        });
        assert_eq!(capture.next().unwrap().unwrap().bytes, b"abc");
        writer.join().unwrap();
    }

    #[test]
    fn a_pipe_gives_each_record_as_it_comes() {
        let sample = pcap_file(MAGIC_MICROSECONDS, false, 65535, 1, &[(1, 0, b"abc", 3), (2, 0, b"def", 3)]);
        let (reader, mut writer) = io::pipe().unwrap();
        let mut stream = StreamSource::new(reader, "-");
        writer.write_all(&sample[..43]).unwrap();
        // This would hang if it waited for more before it returned the available record.
        assert_eq!(stream.next().unwrap().unwrap().bytes, b"abc");
        writer.write_all(&sample[43..60]).unwrap();
        drop(writer);
        let message = stream.advance().unwrap_err().to_string();
        assert_eq!(
            message,
            "standard input: damaged at byte 43: the file ends inside a packet record: 19 bytes needed, 17 left"
        );
    }

    #[test]
    fn a_pipe_ends_at_its_limit_with_the_frames_read_so_far() {
        let sample = pcap_file(MAGIC_MICROSECONDS, false, 65535, 1, &[(1, 0, b"abc", 3), (2, 0, b"def", 3)]);
        let (reader, mut writer) = io::pipe().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let mut stream = StreamSource::until(reader, Path::new("-"), Some(stop.clone()));
        // the second record is incomplete
        writer.write_all(&sample[..sample.len() - 1]).unwrap();
        assert_eq!(stream.next().unwrap().unwrap().bytes, b"abc");
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(!stream.advance().unwrap());
        drop(writer);

        // the same without the option
        let (reader, mut writer) = io::pipe().unwrap();
        let mut stream = StreamSource::until(reader, Path::new("-"), Some(Arc::default()));
        writer.write_all(&sample).unwrap();
        drop(writer);
        let read = drain(&mut stream);
        assert_eq!((read.records.len(), read.error), (2, None));
    }

    #[test]
    fn a_file_truncated_while_mapped_is_noticed_at_the_next_look() {
        let frame = vec![1; 60_000];
        let records: Vec<_> = (0..600).map(|i| (i, 0, &frame[..], 60_000)).collect();
        let (_dir, path) = file(&pcap_file(MAGIC_MICROSECONDS, false, 65535, 1, &records));
        let Capture::Mapped(mut mapped) = open(&path, OpenOptions::new()).unwrap() else { return };
        assert!(mapped.advance().unwrap());
        // Cut between this look and the end: the records up to the next look are still there.
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(20 << 20).unwrap();
        let mut read = 1;
        let e = loop {
            match mapped.advance() {
                Ok(true) => read += 1,
                Ok(false) => panic!("the end was never there"),
                Err(e) => break e.to_string(),
            }
        };
        assert!(read > 130 && e.contains("the file shrank from 36009624 to 20971520 bytes"), "{read} {e}");
    }
}
