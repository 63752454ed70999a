//! A live capture on disk: one pcapng file, or a series of which the oldest go.
//!
//! Each file is complete: its section, its interfaces, its frames, and at its end the counters of the interfaces.

use anyhow::{Context, Result};
use rdmascope_capture::hardware::{self, Counter};
use rdmascope_capture::live::Counters;
use rdmascope_capture::{
    Error, Existing, Interface, InterfaceStatistics, Metadata, Output, PcapngWriter, Problem, Record, Section, fresh,
};
use rdmascope_dissector::calendar::DateTime;
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// When a file is full, and how many are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) bytes: Option<u64>,
    pub(crate) time: Option<Duration>,
    pub(crate) files: Option<usize>,
}

impl Limits {
    fn is_series(&self) -> bool {
        self.bytes.is_some() || self.time.is_some()
    }
}

/// Names tried for a file of a series.
const NAMES_TRIED: u32 = 100;
/// Room made at the end of a file on a full disk, for the counters of the interfaces, in bytes.
const ROOM: u64 = 1024;

/// Output of a capture, in one or more files.
pub(crate) struct Files {
    base: PathBuf,
    limits: Limits,
    section: Section,
    interfaces: Vec<Interface>,
    writer: Option<PcapngWriter<Output>>,
    path: PathBuf,
    /// Treatment of an existing file that has the name of the first.
    existing: Existing,
    /// Existing files of a series, oldest first.
    made: VecDeque<PathBuf>,
    number: u32,
    begun: Instant,
    begun_ns: i64,
    /// Counters of the interfaces when the file was begun.
    before: Vec<Counters>,
    /// Latest counters of RDMA devices.
    hardware: Vec<Counter>,
    /// Frames in the file.
    frames: u64,
    /// Frames in all files.
    pub(crate) written: u64,
}

/// Outcome of the frames on a full disk.
#[derive(Debug)]
pub(crate) struct SavedFrames {
    pub(crate) path: PathBuf,
    /// Number of complete frames in the last file.
    pub(crate) frames: u64,
    /// Frames that were written and found no room.
    pub(crate) lost: u64,
}

fn now_ns() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| i64::try_from(d.as_nanos()).unwrap_or(i64::MAX))
}

impl Files {
    /// Makes the first file; `-` is standard output. Files are for their owner alone.
    pub(crate) fn create(base: &Path, limits: Limits, metadata: &Metadata, existing: Existing) -> Result<Self> {
        let section = metadata.sections.first().cloned().unwrap_or_default();
        let interfaces: Vec<Interface> =
            metadata.interfaces.iter().map(|i| Interface { statistics: None, ..i.clone() }).collect();
        let mut files = Self {
            base: base.to_owned(),
            limits,
            section,
            before: vec![Counters::default(); interfaces.len()],
            interfaces,
            writer: None,
            path: base.to_owned(),
            existing,
            made: VecDeque::new(),
            number: 0,
            begun: Instant::now(),
            begun_ns: now_ns(),
            hardware: metadata.hardware.last(),
            frames: 0,
            written: 0,
        };
        files.next_file()?;
        Ok(files)
    }

    /// True if it goes to standard output.
    pub(crate) fn is_stdout(&self) -> bool {
        self.base == Path::new("-")
    }

    /// The current file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Number of files begun so far.
    pub(crate) fn begun(&self) -> u32 {
        self.number
    }

    /// Size of the current file in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.writer.as_ref().map_or(0, PcapngWriter::written)
    }

    /// True if the current file has reached its maximum size or age.
    pub(crate) fn is_full(&self) -> bool {
        self.limits.bytes.is_some_and(|b| self.bytes() >= b)
            || self.limits.time.is_some_and(|t| self.begun.elapsed() >= t)
    }

    /// Appends a frame.
    pub(crate) fn write(&mut self, record: &Record<'_>) -> rdmascope_capture::Result<()> {
        if let Some(writer) = &mut self.writer {
            writer.write(record)?;
            self.frames += 1;
            self.written += 1;
        }
        Ok(())
    }

    /// Describes those of `interfaces` that are new, in this file and in those to come.
    pub(crate) fn catch_up(&mut self, interfaces: &[Interface]) -> rdmascope_capture::Result<()> {
        for interface in interfaces.get(self.interfaces.len()..).unwrap_or(&[]) {
            let interface = Interface { statistics: None, ..interface.clone() };
            if let Some(writer) = &mut self.writer {
                writer.add_interface(&interface)?;
            }
            self.interfaces.push(interface);
        }
        Ok(())
    }

    /// Passes buffered data to the system, so that others can follow.
    pub(crate) fn flush(&mut self) -> rdmascope_capture::Result<()> {
        self.writer.as_mut().map_or(Ok(()), PcapngWriter::flush)
    }

    /// Ends the current file and begins another. Standard output is only flushed.
    pub(crate) fn rotate(&mut self, counters: &[Counters]) -> Result<()> {
        if self.is_stdout() {
            return Ok(self.flush()?);
        }
        self.finish(counters)?;
        self.next_file()
    }

    /// Ends the current file, with the counters of the interfaces since it was begun.
    pub(crate) fn finish(&mut self, counters: &[Counters]) -> rdmascope_capture::Result<()> {
        let Some(mut writer) = self.writer.take() else { return Ok(()) };
        for (number, statistics) in self.statistics(counters).iter().enumerate() {
            writer.write_statistics(number as u32, statistics)?;
        }
        writer.finish()?;
        self.before = counters.to_vec();
        Ok(())
    }

    /// Writes the values of RDMA device counters: those of `all` that are in `changed`.
    pub(crate) fn hardware(
        &mut self,
        changed: &[Counter],
        all: Vec<Counter>,
        counters: &[Counters],
    ) -> rdmascope_capture::Result<()> {
        self.hardware = all;
        let statistics = self.statistics(counters);
        self.write_hardware(changed, statistics.first().copied().unwrap_or_default())
    }

    fn write_hardware(
        &mut self,
        counters: &[Counter],
        statistics: InterfaceStatistics,
    ) -> rdmascope_capture::Result<()> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        let comments = hardware::comments(counters);
        if comments.is_empty() || self.interfaces.is_empty() {
            return Ok(());
        }
        writer.write_statistics_with_comments(0, &statistics, &comments)
    }

    fn statistics(&self, counters: &[Counters]) -> Vec<InterfaceStatistics> {
        let now = now_ns();
        counters
            .iter()
            .zip(&self.before)
            .map(|(now_counted, before)| InterfaceStatistics {
                time_ns: now,
                start_ns: Some(self.begun_ns),
                end_ns: Some(now),
                received: Some(now_counted.accepted - before.accepted),
                dropped_by_interface: Some(now_counted.dropped_by_interface - before.dropped_by_interface),
                accepted_by_filter: Some(now_counted.accepted - before.accepted),
                dropped_by_os: Some(now_counted.dropped_by_kernel - before.dropped_by_kernel),
                delivered: Some(now_counted.delivered - before.delivered),
            })
            .collect()
    }

    fn next_file(&mut self) -> Result<()> {
        self.number += 1;
        self.path = if self.is_stdout() {
            self.base.clone()
        } else if self.limits.is_series() {
            numbered(&self.base, self.number)
        } else if self.number > 1 && self.base.exists() {
            // asked to reopen the file, which was not moved away
            numbered(&self.base, self.number)
        } else {
            self.base.clone()
        };
        let mut writer = PcapngWriter::new(self.make()?, &self.path, &self.section)?;
        for interface in &self.interfaces {
            writer.add_interface(interface)?;
        }
        self.writer = Some(writer);
        self.begun = Instant::now();
        self.begun_ns = now_ns();
        self.frames = 0;
        let all = self.hardware.clone();
        self.write_hardware(&all, InterfaceStatistics { time_ns: self.begun_ns, ..InterfaceStatistics::default() })?;
        // a follower sees the header at once
        self.flush()?;
        if self.limits.is_series() && !self.is_stdout() {
            self.made.push_back(self.path.clone());
            while self.limits.files.is_some_and(|most| self.made.len() > most) {
                if let Some(oldest) = self.made.pop_front() {
                    std::fs::remove_file(&oldest).with_context(|| format!("{} cannot be removed", oldest.display()))?;
                }
            }
        }
        Ok(())
    }

    /// Makes the current file. The names of a series are predictable, so no existing file is overwritten: if a name is
    /// taken, it gets a number.
    fn make(&mut self) -> Result<Output> {
        if self.is_stdout() {
            return Ok(Box::new(io::stdout()));
        }
        if self.number == 1 && !self.limits.is_series() {
            return Ok(Box::new(fresh(&self.path, self.existing)?));
        }
        let wanted = self.path.clone();
        for n in 2.. {
            match fresh(&self.path, Existing::Keep) {
                Err(e) if matches!(e.problem(), Problem::Exists) && n <= NAMES_TRIED => {
                    let stem = wanted.file_stem().unwrap_or_default().to_string_lossy();
                    let extension =
                        wanted.extension().map_or_else(String::new, |e| format!(".{}", e.to_string_lossy()));
                    self.path = wanted.with_file_name(format!("{stem}_{n}{extension}"));
                }
                file => return Ok(Box::new(file?)),
            }
        }
        unreachable!("the last name tried gives a file or an error")
    }

    /// After a write that failed for lack of space: cuts the file after its last whole frame and appends the counters.
    pub(crate) fn rescue(&mut self, counters: &[Counters]) -> Result<SavedFrames> {
        // buffered data is written as far as there is room
        self.writer = None;
        let statistics = self.statistics(counters);
        let mut file = OpenOptions::new().read(true).write(true).open(&self.path)?;
        let (end, frames) = last_whole(&mut file, ROOM)?;
        file.set_len(end)?;
        file.seek(SeekFrom::Start(end))?;
        // without room even for that, the frames are still there
        let _ = file.write_all(&blocks(&self.interfaces, &statistics)?);
        if file.metadata()?.len() % 4 != 0 {
            file.set_len(end)?;
        }
        Ok(SavedFrames { path: self.path.clone(), frames, lost: self.frames.saturating_sub(frames) })
    }
}

/// `trace_00003_20261121124500.pcapng`, as dumpcap names files of a series.
fn numbered(base: &Path, number: u32) -> PathBuf {
    let stem = base.file_stem().map_or_else(String::new, |s| s.to_string_lossy().into_owned());
    let extension = base.extension().map_or_else(String::new, |e| format!(".{}", e.to_string_lossy()));
    base.with_file_name(format!("{stem}_{number:05}_{}{extension}", stamp(now_ns() / 1_000_000_000)))
}

/// A time as YYYYMMDDhhmmss, UTC.
fn stamp(seconds: i64) -> String {
    let t = DateTime::of_unix_seconds(seconds);
    format!("{:04}{:02}{:02}{:02}{:02}{:02}", t.year, t.month, t.day, t.hour, t.minute, t.second)
}

/// The statistics blocks by themselves.
fn blocks(interfaces: &[Interface], statistics: &[InterfaceStatistics]) -> Result<Vec<u8>> {
    let mut writer = PcapngWriter::new(Vec::new(), "statistics", &Section::default())?;
    for interface in interfaces {
        writer.add_interface(interface)?;
    }
    let head = writer.written() as usize;
    for (number, statistics) in statistics.iter().enumerate() {
        writer.write_statistics(number as u32, statistics)?;
    }
    Ok(writer.finish()?.split_off(head))
}

/// End of the last whole block that leaves `room` bytes free in the file, and the number of frames up to there.
fn last_whole(file: &mut File, room: u64) -> io::Result<(u64, u64)> {
    const ENHANCED_PACKET: u32 = 6;
    let len = file.metadata()?.len();
    let (mut at, mut frames) = (0, 0);
    let mut reader = io::BufReader::with_capacity(1 << 16, file);
    loop {
        let mut head = [0; 8];
        if reader.read_exact(&mut head).is_err() {
            return Ok((at, frames));
        }
        let word = |b: usize| u32::from_le_bytes([head[b], head[b + 1], head[b + 2], head[b + 3]]);
        let end = at + u64::from(word(4)).max(12);
        let is_frame = word(0) == ENHANCED_PACKET;
        // blocks that describe the file are kept in any case
        if end > len || (is_frame && end + room > len) {
            return Ok((at, frames));
        }
        frames += u64::from(is_frame);
        reader.seek_relative((end - at) as i64 - 8)?;
        at = end;
    }
}

/// True if an error says that there is no space left.
pub(crate) fn is_full_disk(e: &Error) -> bool {
    matches!(e.problem(), Problem::Write { source, .. } if matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded))
}

/// True if an error says that the reader of a pipe has gone.
pub(crate) fn is_broken_pipe(e: &Error) -> bool {
    matches!(e.problem(), Problem::Write { source, .. } if source.kind() == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdmascope_capture::{CaptureFile, LinkType, OpenOptions as Open, Source, open};

    fn metadata() -> Metadata {
        let mut metadata = Metadata::default();
        metadata.interfaces.push(Interface { name: Some("veth0".to_owned()), ..Interface::new(LinkType::ETHERNET) });
        metadata
    }

    fn counted(accepted: u64, dropped: u64) -> Vec<Counters> {
        vec![Counters { accepted, dropped_by_kernel: dropped, delivered: accepted - dropped, ..Counters::default() }]
    }

    fn frames(path: &Path) -> (usize, Option<InterfaceStatistics>) {
        let mut capture = open(path, Open::new()).unwrap();
        let mut n = 0;
        while capture.advance().unwrap() {
            n += 1;
        }
        (n, capture.metadata().interfaces[0].statistics)
    }

    #[test]
    fn a_series_keeps_the_newest_files_each_with_its_own_counts() {
        let folder = tempfile::tempdir().unwrap();
        let limits = Limits { bytes: Some(10_000), files: Some(2), time: None };
        let mut files = Files::create(&folder.path().join("t.pcapng"), limits, &metadata(), Existing::Keep).unwrap();
        let record = Record::new(1, 0, LinkType::ETHERNET, 1000, &[0; 1000]);
        for n in 0..35u64 {
            if files.is_full() {
                files.rotate(&counted(n + n / 10, n / 10)).unwrap();
            }
            files.write(&record).unwrap();
        }
        files.finish(&counted(38, 3)).unwrap();
        assert_eq!((files.begun(), files.written), (4, 35));
        let mut left: Vec<PathBuf> = std::fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().path()).collect();
        left.sort();
        assert_eq!(left.len(), 2);
        assert!(left[0].file_name().unwrap().to_str().unwrap().starts_with("t_00003_20"));
        let (third, fourth) = (frames(&left[0]), frames(&left[1]));
        assert_eq!((third.0, fourth.0), (10, 5));
        assert_eq!((third.1.unwrap().dropped_by_os, fourth.1.unwrap().received), (Some(1), Some(5)));
    }

    #[test]
    fn a_file_on_a_full_disk_is_cut_behind_its_last_whole_frame() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.pcapng");
        let mut files = Files::create(&path, Limits::default(), &metadata(), Existing::Keep).unwrap();
        for _ in 0..100 {
            files.write(&Record::new(1, 0, LinkType::ETHERNET, 1000, &[0; 1000])).unwrap();
        }
        files.flush().unwrap();
        // as a disk leaves it that is full in the middle of a frame
        let len = std::fs::metadata(&path).unwrap().len();
        OpenOptions::new().write(true).open(&path).unwrap().set_len(len - 500).unwrap();
        let rescued = files.rescue(&counted(105, 5)).unwrap();
        assert_eq!((rescued.frames, rescued.lost), (98, 2));
        let (n, statistics) = frames(&path);
        assert_eq!((n, statistics.unwrap().dropped_by_os), (98, Some(5)));
        assert!(std::fs::metadata(&path).unwrap().len() <= len - 500);
        assert_eq!(CaptureFile::open(&path).unwrap().records().count(), 98);
    }

    #[test]
    fn a_new_file_takes_the_name_where_the_old_one_was_moved_away() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.pcapng");
        let mut files = Files::create(&path, Limits::default(), &metadata(), Existing::Keep).unwrap();
        std::fs::rename(&path, folder.path().join("t.1")).unwrap();
        files.rotate(&counted(0, 0)).unwrap();
        assert_eq!(files.path(), path);
        files.rotate(&counted(0, 0)).unwrap();
        assert!(files.path() != path && files.path().to_str().unwrap().contains("t_00003_"));
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        assert_eq!(stamp(0), "19700101000000");
        assert_eq!(stamp(1_709_210_096), "20240229123456");
        assert_eq!(stamp(1_795_264_245), "20261121123045");
    }
}
