//! Entry points for fuzzers: any bytes in, no panic out, in bounded time and memory.

use crate::{CaptureFile, Source, StreamSource};

/// Decompressed bytes after which a bomb is believed to be one.
const MOST_BYTES: u64 = 64 << 20;

/// Reads `data` as a capture file to its end: as a stream, as a whole, forwards and by offset, and in pieces. All must
/// give the same result.
pub fn fuzz_capture_file(data: &[u8]) {
    let mut stream = StreamSource::of_bytes(data.to_vec(), "fuzz");
    let mut whole_file = CaptureFile::from_bytes(data.to_vec(), "fuzz").ok();
    if let Some(file) = &mut whole_file {
        let mut records = file.records();
        let shared = file.shared_in(64, 16);
        let mut walk = shared.walk();
        loop {
            let whole = records.next();
            match (walk.next(&shared, true), &whole) {
                (Some(Ok(place)), Some(Ok(record))) => assert_eq!(walk.chunk().record(&place), *record),
                (Some(Err(a)), Some(Err(b))) => assert_eq!(a.to_string(), b.to_string()),
                (a, b) => assert!(a.is_none() && b.is_none(), "pieces and whole disagree: {b:?}"),
            }
            match (stream.next(), &whole) {
                (Ok(Some(a)), Some(Ok(b))) => {
                    assert_eq!(a, *b);
                    let (comments, options) = (a.comments().count(), a.options().count());
                    assert!(comments <= options);
                    if let Some((inner, _)) = crate::decapsulate(b) {
                        assert!(inner.bytes.len() <= b.bytes.len());
                    }
                    assert_eq!(file.record_at(records.metadata(), b.offset).ok(), Some(*b));
                }
                (Ok(None), None) => break,
                (Err(a), Some(Err(b))) => assert_eq!(a.to_string(), b.to_string()),
                (a, b) => panic!("stream and whole disagree: {a:?}, {b:?}"),
            }
        }
        return;
    }
    while let Ok(Some(record)) = stream.next() {
        let _ = (record.comments().count(), record.packet_flags());
        if stream.position() > MOST_BYTES {
            break;
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn small_inputs_pass() {
        for data in [
            &b""[..],
            b"\x0a\x0d\x0d\x0a",
            b"\xd4\xc3\xb2\xa1",
            b"\x1f\x8b",
            b"\x28\xb5\x2f\xfd",
            b"\x04\x22\x4d\x18",
            b"text",
        ] {
            super::fuzz_capture_file(data);
        }
    }
}
