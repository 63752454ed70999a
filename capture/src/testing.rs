//! Small capture files made of bytes, and readers that collect everything, for the tests of this crate.

use crate::metadata::Metadata;
use crate::source::Source;
use crate::stream::StreamSource;
use crate::{CaptureFile, LinkType, MappedSource, Record};
use std::sync::Arc;

/// A record with its own bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Owned {
    pub(crate) time_ns: i64,
    pub(crate) has_time: bool,
    pub(crate) offset: u64,
    pub(crate) interface: u32,
    pub(crate) wire_len: u32,
    pub(crate) link_type: LinkType,
    pub(crate) bytes: Vec<u8>,
    pub(crate) comments: Vec<String>,
}

impl From<crate::Record<'_>> for Owned {
    fn from(r: crate::Record<'_>) -> Owned {
        Owned {
            time_ns: r.time_ns,
            has_time: r.has_time(),
            offset: r.offset,
            interface: r.interface,
            wire_len: r.wire_len,
            link_type: r.link_type,
            bytes: r.bytes.to_vec(),
            comments: r.comments().map(|c| c.into_owned()).collect(),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Everything {
    pub(crate) records: Vec<Owned>,
    pub(crate) error: Option<String>,
    pub(crate) metadata: Metadata,
}

/// Reads a source to its end.
pub(crate) fn drain(source: &mut impl Source) -> Everything {
    let mut records = Vec::new();
    let error = loop {
        match source.next() {
            Ok(Some(record)) => records.push(Owned::from(record)),
            Ok(None) => break None,
            Err(e) => break Some(e.to_string()),
        }
    };
    assert!(matches!(source.next(), Ok(None)), "nothing may follow after the end");
    Everything { records, error, metadata: source.metadata().clone() }
}

/// Reads a file in pieces of this size, chunk by chunk.
fn in_pieces(file: &CaptureFile, piece: usize, head: usize) -> (Vec<Owned>, Option<String>, u64) {
    let shared = file.shared_in(piece, head);
    let mut walk = shared.walk();
    let (mut records, mut error) = (Vec::new(), None);
    while let Some(first) = walk.next(&shared, true) {
        let mut next = Some(first);
        while let Some(found) = next {
            match found {
                Ok(place) => {
                    let record = walk.chunk().record(&place);
                    assert_eq!(record.bytes, walk.chunk().bytes(place.frame()));
                    records.push(Owned::from(record));
                }
                Err(e) => error = Some(e.to_string()),
            }
            next = walk.next(&shared, false);
        }
        if records.len() % 3 == 0 {
            shared.read_ahead();
        }
    }
    (records, error, walk.metadata().revision)
}

/// The same through a source, in runs.
fn in_runs(file: &Arc<CaptureFile>, piece: usize, head: usize) -> (Vec<Owned>, Option<String>, u64) {
    let mut source = MappedSource::in_pieces(file.clone(), piece, head);
    let (mut records, mut error) = (Vec::new(), None);
    loop {
        match source.next() {
            Ok(Some(record)) => records.push(Owned::from(record)),
            Ok(None) => break,
            Err(e) => error = Some(e.to_string()),
        }
        let (metadata, before) = (source.metadata().revision, records.len());
        source.run(&mut |record| {
            records.push(Owned::from(*record));
            true
        });
        assert!(records.len() == before || source.record() == Record::EMPTY, "no frame is handed out twice");
        assert!(error.is_none() || records.len() == before, "nothing follows an error");
        assert!(source.metadata().revision >= metadata);
    }
    (records, error, source.metadata().revision)
}

/// Reads a file as a stream, as a whole and in pieces, which must agree.
pub(crate) fn read_all(file: &[u8]) -> Everything {
    let streamed = drain(&mut StreamSource::of_bytes(file.to_vec(), "test"));
    let whole = match CaptureFile::from_bytes(file.to_vec(), "test") {
        Err(e) => (Vec::new(), Some(e.to_string())),
        Ok(whole) => {
            let whole = Arc::new(whole);
            let mut iter = whole.records();
            let mut records = Vec::new();
            let mut error = None;
            for record in iter.by_ref() {
                match record {
                    Ok(r) => records.push(r),
                    Err(e) => error = Some(e.to_string()),
                }
            }
            for r in &records {
                assert_eq!(whole.record_at(iter.metadata(), r.offset).unwrap(), *r, "by offset");
            }
            let records: Vec<Owned> = records.into_iter().map(Owned::from).collect();
            for (piece, head) in [(1, 0), (7, 3), (64, 128), (1 << 20, 0)] {
                let expected = (records.clone(), error.clone(), iter.metadata().revision);
                assert_eq!(in_pieces(&whole, piece, head), expected, "in pieces of {piece}");
                assert_eq!(in_runs(&whole, piece, head), expected, "in pieces of {piece}, in runs");
            }
            (records, error)
        }
    };
    assert_eq!((&streamed.records, &streamed.error), (&whole.0, &whole.1), "streamed and whole");
    streamed
}

/// A pcap file: records are (seconds, fraction, bytes, wire length).
pub(crate) fn pcap_file(
    magic: u32,
    big_endian: bool,
    snap_len: u32,
    network: u32,
    records: &[(u32, u32, &[u8], u32)],
) -> Vec<u8> {
    let word = |v: u32| if big_endian { v.to_be_bytes() } else { v.to_le_bytes() };
    let version = if big_endian { [0, 2, 0, 4] } else { [2, 0, 4, 0] };
    let mut file = [word(magic), version, [0; 4], [0; 4], word(snap_len), word(network)].concat();
    for (seconds, fraction, bytes, wire_len) in records {
        file.extend([word(*seconds), word(*fraction), word(bytes.len() as u32), word(*wire_len)].concat());
        if magic == crate::pcap::MAGIC_MODIFIED {
            file.extend([0; 8]);
        }
        file.extend_from_slice(bytes);
    }
    file
}

/// A pcapng block: type, length, `body` (a multiple of 4 bytes), length.
pub(crate) fn pcapng_block(big_endian: bool, kind: u32, body: &[u8]) -> Vec<u8> {
    let word = |v: u32| if big_endian { v.to_be_bytes() } else { v.to_le_bytes() };
    let len = word(body.len() as u32 + 12);
    [&word(kind)[..], &len, body, &len].concat()
}

/// A pcapng option, padded.
pub(crate) fn pcapng_option(big_endian: bool, code: u16, value: &[u8]) -> Vec<u8> {
    let half = |v: u16| if big_endian { v.to_be_bytes() } else { v.to_le_bytes() };
    let mut option = [&half(code)[..], &half(value.len() as u16), value].concat();
    option.resize(option.len().next_multiple_of(4), 0);
    option
}
