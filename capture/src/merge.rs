//! Several sources as one, in the order of time.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::mapped::CaptureFile;
use crate::metadata::Metadata;
use crate::open::Capture;
use crate::record::Record;
use crate::source::{Progress, Source};

/// Several sources merged by time; frames of equal time are in the order of the sources.
///
/// - Every source is taken to be in order of time. Where one steps back, the earlier frame comes right after the later.
/// - A frame without a time goes with the one before it in its source.
/// - Interfaces are renumbered; [`Interface::input`](crate::Interface::input) says which source one is of, and
///   [`Record::offset`] counts in that source.
/// - A damaged source ends; the others go on. Its error comes when they all are at their end.
/// - A source that is followed holds back all others while it waits. Merging is for files that are complete.
pub struct MergedSource<S = Capture> {
    inputs: Vec<Input<S>>,
    /// The sources that have a frame ready, except for the one whose frame is shown: time in nanoseconds, index.
    ready: BinaryHeap<Reverse<(i64, usize)>>,
    current: Option<usize>,
    begun: bool,
    metadata: Metadata,
    errors: VecDeque<Error>,
}

struct Input<S> {
    source: S,
    /// The last time seen in it.
    time_ns: i64,
    /// Revision of its metadata that was taken over.
    revision: Option<u64>,
    /// Its interfaces, sections in the numbers of the merged source.
    interfaces: Vec<u32>,
    sections: Vec<u32>,
    secrets: usize,
    not_kept: u64,
}

impl<S: Source> MergedSource<S> {
    /// Merges `sources`.
    pub fn new(sources: impl IntoIterator<Item = S>) -> MergedSource<S> {
        let input = |source| Input {
            source,
            time_ns: 0,
            revision: None,
            interfaces: Vec::new(),
            sections: Vec::new(),
            secrets: 0,
            not_kept: 0,
        };
        MergedSource {
            inputs: sources.into_iter().map(input).collect(),
            ready: BinaryHeap::new(),
            current: None,
            begun: false,
            metadata: Metadata::default(),
            errors: VecDeque::new(),
        }
    }

    /// The sources, in the order they were given.
    pub fn inputs(&self) -> impl ExactSizeIterator<Item = &S> {
        self.inputs.iter().map(|i| &i.source)
    }

    /// Number of the source of the current frame, counting from 0.
    pub fn current_input(&self) -> Option<usize> {
        self.current
    }

    /// Number that an interface of one source has here; for records of that source that were read again by offset.
    pub fn interface(&self, input: usize, interface: u32) -> Option<u32> {
        self.inputs.get(input)?.interfaces.get(interface as usize).copied()
    }

    /// Goes to the next frame of one source; returns its time if there is one.
    fn pull(&mut self, index: usize) -> Option<i64> {
        let input = &mut self.inputs[index];
        let advanced = input.source.advance();
        let ended = !matches!(advanced, Ok(true));
        if ended || input.revision != Some(input.source.metadata().revision) {
            take_over(index as u32, input, &mut self.metadata, ended);
        }
        match advanced {
            Ok(true) => {
                let record = input.source.record();
                if record.has_time() {
                    input.time_ns = record.time_ns;
                }
                Some(input.time_ns)
            }
            Ok(false) => None,
            Err(e) => {
                self.errors.push_back(e);
                None
            }
        }
    }
}

impl MergedSource<Capture> {
    /// The frame that [`Source::advance`] went to, borrowed from its mapped file: see [`Capture::record_in`]. `files`
    /// are those of the sources, in their order.
    #[inline]
    pub fn record_in<'f>(&self, files: &'f [Arc<CaptureFile>]) -> Record<'f> {
        let Some((input, file)) = self.current.and_then(|index| self.inputs.get(index).zip(files.get(index))) else {
            return Record::EMPTY;
        };
        let record = input.source.record_in(file);
        Record { interface: input.interfaces.get(record.interface as usize).copied().unwrap_or(0), ..record }
    }
}

/// Takes the news in one source's metadata over into that of all.
#[cold]
fn take_over<S: Source>(index: u32, input: &mut Input<S>, all: &mut Metadata, ended: bool) {
    let from = input.source.metadata();
    let first = all.sections.is_empty();
    for section in from.sections.iter().skip(input.sections.len()) {
        input.sections.push(all.sections.len() as u32);
        all.sections.push(crate::Section {
            input: index,
            first_interface: all.interfaces.len() as u32,
            interfaces: 0,
            ..section.clone()
        });
    }
    for interface in from.interfaces.iter().skip(input.interfaces.len()) {
        let section = input.sections.get(interface.section as usize).copied().unwrap_or(0);
        if let Some(section) = all.sections.get_mut(section as usize) {
            section.interfaces += 1;
        }
        input.interfaces.push(all.interfaces.len() as u32);
        all.interfaces.push(crate::Interface { input: index, section, ..interface.clone() });
    }
    // With very many interfaces, statistics are merged only at the end of the source; otherwise a file with statistics
    // between its frames would take very long.
    if ended || input.interfaces.len() <= 64 {
        for (interface, &number) in from.interfaces.iter().zip(&input.interfaces) {
            all.interfaces[number as usize].statistics = interface.statistics;
        }
    }
    if ended {
        all.hardware.add(&from.hardware, 0);
    }
    all.secrets.extend(from.secrets.iter().skip(input.secrets).cloned());
    all.not_kept += from.not_kept - input.not_kept;
    all.format = if first || all.format == from.format { from.format } else { None };
    all.revision += 1;
    (input.secrets, input.not_kept, input.revision) = (from.secrets.len(), from.not_kept, Some(from.revision));
}

impl<S: Source> Source for MergedSource<S> {
    fn fetch_ahead(&mut self) {
        self.inputs.iter_mut().for_each(|input| input.source.fetch_ahead());
    }

    fn advance(&mut self) -> Result<bool> {
        if !self.begun {
            self.begun = true;
            for index in 0..self.inputs.len() {
                if let Some(time) = self.pull(index) {
                    self.ready.push(Reverse((time, index)));
                }
            }
        } else if let Some(index) = self.current.take()
            && let Some(time) = self.pull(index)
        {
            // Mostly several frames in a row come from one source.
            if self.ready.peek().is_none_or(|Reverse(other)| (time, index) < *other) {
                self.current = Some(index);
                return Ok(true);
            }
            self.ready.push(Reverse((time, index)));
        }
        self.current = self.ready.pop().map(|Reverse((_, index))| index);
        match (self.current, self.errors.is_empty()) {
            (Some(_), _) => Ok(true),
            (None, true) => Ok(false),
            (None, false) => self.errors.pop_front().map_or(Ok(false), Err),
        }
    }

    fn record(&self) -> Record<'_> {
        let Some(input) = self.current.map(|index| &self.inputs[index]) else { return Record::EMPTY };
        let record = input.source.record();
        Record { interface: input.interfaces.get(record.interface as usize).copied().unwrap_or(0), ..record }
    }

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    fn progress(&self) -> Progress {
        let each = || self.inputs.iter().map(|i| i.source.progress());
        Progress { done: each().map(|p| p.done).sum(), total: each().map(|p| p.total).sum() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pcap::{MAGIC_MICROSECONDS, MAGIC_NANOSECONDS};
    use crate::testing::{drain, pcap_file};
    use crate::{LinkType, StreamSource};

    fn source(magic: u32, link_type: u32, times: &[u32]) -> StreamSource {
        let bytes: Vec<_> = times.iter().map(|t| [*t as u8]).collect();
        let records: Vec<_> = times.iter().zip(&bytes).map(|(t, b)| (*t, 0, &b[..], 1)).collect();
        StreamSource::new(std::io::Cursor::new(pcap_file(magic, false, 65535, link_type, &records)), "test")
    }

    #[test]
    fn frames_come_by_time_and_equal_times_in_the_order_given() {
        let mut merged = MergedSource::new([
            source(MAGIC_MICROSECONDS, 1, &[1, 4, 4, 9]),
            source(MAGIC_NANOSECONDS, 101, &[2, 4, 5]),
            source(MAGIC_MICROSECONDS, 1, &[]),
        ]);
        let read = drain(&mut merged);
        let order: Vec<_> = read.records.iter().map(|r| (r.bytes[0], r.interface)).collect();
        assert_eq!(order, [(1, 0), (2, 1), (4, 0), (4, 0), (4, 1), (5, 1), (9, 0)]);
        assert_eq!(read.metadata.interfaces.len(), 3);
        assert_eq!((read.metadata.interfaces[1].link_type, read.metadata.interfaces[1].input), (LinkType::RAW, 1));
        assert_eq!(read.metadata.format, None);
        assert_eq!((merged.interface(1, 0), merged.interface(1, 1)), (Some(1), None));
        assert_eq!(merged.progress().total, None);
    }

    #[test]
    fn statistics_and_secrets_of_all_sources_are_there_at_the_end() {
        let file = |lost| {
            let mut w = crate::PcapngWriter::new(Vec::new(), "written", &crate::Section::default()).unwrap();
            w.add_interface(&crate::Interface::new(LinkType::ETHERNET)).unwrap();
            w.write_secrets(1, &[lost]).unwrap();
            w.write(&Record::new(i64::from(lost), 0, LinkType::ETHERNET, 0, b"")).unwrap();
            let statistics = crate::InterfaceStatistics { dropped_by_os: Some(u64::from(lost)), ..Default::default() };
            w.write_statistics(0, &statistics).unwrap();
            StreamSource::new(std::io::Cursor::new(w.finish().unwrap()), "written")
        };
        let sources: [Box<dyn Source>; 2] = [Box::new(file(3)), Box::new(file(4))];
        let read = drain(&mut MergedSource::new(sources));
        assert_eq!((read.error, read.metadata.lost_frames()), (None, 7));
        assert_eq!(read.metadata.secrets.iter().map(|s| s.data[0]).collect::<Vec<_>>(), [3, 4]);
        assert_eq!(
            read.metadata.sections.iter().map(|s| (s.input, s.interfaces)).collect::<Vec<_>>(),
            [(0, 1), (1, 1)]
        );
    }

    #[test]
    fn time_that_steps_back_in_a_file_is_tolerated() {
        let read = drain(&mut MergedSource::new([
            source(MAGIC_MICROSECONDS, 1, &[5, 3, 6]),
            source(MAGIC_MICROSECONDS, 1, &[4, 7]),
        ]));
        let order: Vec<_> = read.records.iter().map(|r| r.bytes[0]).collect();
        assert_eq!(order, [4, 5, 3, 6, 7]);
    }

    #[test]
    fn a_damaged_source_ends_and_the_others_go_on_before_its_error_is_reported() {
        let mut cut = pcap_file(MAGIC_MICROSECONDS, false, 65535, 1, &[(1, 0, b"a", 1), (3, 0, b"b", 1)]);
        cut.pop();
        let cut = StreamSource::new(std::io::Cursor::new(cut), "cut");
        let read = drain(&mut MergedSource::new([cut, source(MAGIC_MICROSECONDS, 1, &[2, 4])]));
        assert_eq!(read.records.len(), 3);
        assert_eq!(
            read.error.unwrap(),
            "cut: damaged at byte 41: the file ends inside a packet record: 17 bytes needed, 16 left"
        );
    }

    #[test]
    fn records_of_mapped_files_stay_when_the_source_goes_on() {
        use crate::mapped::MappedSource;
        let file = |times: &[u32]| {
            let bytes: Vec<_> = times.iter().map(|t| [*t as u8]).collect();
            let records: Vec<_> = times.iter().zip(&bytes).map(|(t, b)| (*t, 0, &b[..], 1)).collect();
            Arc::new(CaptureFile::from_bytes(pcap_file(MAGIC_MICROSECONDS, false, 65535, 1, &records), "test").unwrap())
        };
        let files = [file(&[1, 4]), file(&[2, 3])];
        let mut merged = MergedSource::new(files.iter().map(|file| Capture::Mapped(MappedSource::new(file.clone()))));
        assert_eq!(merged.record_in(&files), Record::EMPTY);
        let mut records = Vec::new();
        while merged.advance().unwrap() {
            assert_eq!(merged.record_in(&files), merged.record());
            records.push(merged.record_in(&files));
        }
        let order: Vec<_> = records.iter().map(|r| (r.bytes[0], r.interface)).collect();
        assert_eq!(order, [(1, 0), (2, 1), (3, 1), (4, 0)]);
        // of other files there is none
        let mut merged = MergedSource::new([Capture::Mapped(MappedSource::new(files[0].clone()))]);
        assert!(merged.advance().unwrap());
        assert_eq!(merged.record_in(&files[1..]), Record::EMPTY);
    }
}
