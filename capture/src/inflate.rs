//! Decompression as a stream: gzip (RFC 1952, several members), zstd (RFC 8878) and lz4 (its frame format), frames one
//! after another.
//!
//! At most one window is held in memory: 32 KiB for gzip, up to 128 MiB for zstd as its frame header requires, up to 8
//! MiB for lz4.

use std::io::{self, BufRead, BufReader, Read};

use flate2::{Crc, Decompress, FlushDecompress, Status};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder as ZstdDecoder};

/// Source of compressed bytes.
pub(crate) type Input = Box<dyn Read + Send>;

const READ_BUFFER: usize = 256 << 10;
const LZ4_MAGIC: u32 = 0x184d_2204;
const LZ4_LEGACY_MAGIC: u32 = 0x184c_2102;
const ZSTD_MAGIC: u32 = 0xfd2f_b528;

/// Decompresses gzip, all members of it.
pub(crate) fn gzip(input: Input) -> Input {
    let input =
        Compressed { inner: BufReader::with_capacity(READ_BUFFER, input), pushed_back: Vec::new(), ended: false };
    let inflate = Decompress::new(false);
    Box::new(Gzip { input, inflate, sum: Crc::new(), inside: false, members: 0, failed: None })
}

/// When the decoders of `flate2` that implement `Read` meet damage, they discard the output of that call, which may be
/// a whole small file. This one returns it first.
struct Gzip {
    input: Compressed,
    inflate: Decompress,
    /// Checksum of the output of this member so far.
    sum: Crc,
    /// True if a member's header was passed and its trailer was not.
    inside: bool,
    members: u64,
    /// An error that occurred after the bytes returned last; the next read returns it.
    failed: Option<io::Error>,
}

impl Read for Gzip {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Some(e) = self.failed.take() {
            return Err(e);
        }
        loop {
            if buffer.is_empty() || (!self.inside && !self.next_member()?) {
                return Ok(0);
            }
            let input = self.input.inner.fill_buf()?;
            let is_end = input.is_empty();
            let (taken, given) = (self.inflate.total_in(), self.inflate.total_out());
            let status = self.inflate.decompress(input, buffer, FlushDecompress::None);
            let taken = (self.inflate.total_in() - taken) as usize;
            let given = (self.inflate.total_out() - given) as usize;
            self.input.inner.consume(taken);
            self.sum.update(&buffer[..given]);
            let failed = match status {
                Ok(Status::StreamEnd) => self.end_member().err(),
                Ok(_) if is_end && given == 0 => Some(damaged("gzip", ENDS_EARLY)),
                Ok(_) => None,
                Err(e) => Some(damaged("gzip", format!("is damaged: {e}"))),
            };
            match failed {
                Some(e) if given == 0 => return Err(e),
                failed => self.failed = failed,
            }
            if given > 0 {
                return Ok(given);
            }
        }
    }
}

impl Gzip {
    /// Reads the header of a member (RFC 1952, 2.3). `false` at the end; bytes after a member that are not a member are
    /// ignored, as gzip does.
    fn next_member(&mut self) -> io::Result<bool> {
        let mut header = [0; 10];
        let have = read_up_to(&mut self.input, &mut header)?;
        if self.members > 0 && (have < 2 || !header.starts_with(&[0x1f, 0x8b])) {
            return Ok(false);
        }
        if have < header.len() {
            return Err(damaged("gzip", ENDS_EARLY));
        }
        if header[2] != 8 {
            return Err(damaged("gzip", format!("has an unknown compression method {}", header[2])));
        }
        let flags = header[3];
        let mut skip = |bytes: &mut [u8]| self.input.read_exact(bytes).map_err(|e| io_error("gzip", e));
        if flags & 0x04 != 0 {
            let mut len = [0; 2];
            skip(&mut len)?;
            for _ in 0..u16::from_le_bytes(len) {
                skip(&mut [0])?;
            }
        }
        // name, comment: to a zero each
        for _ in 0..(flags >> 3 & 1) + (flags >> 4 & 1) {
            let mut byte = [1];
            while byte != [0] {
                skip(&mut byte)?;
            }
        }
        if flags & 0x02 != 0 {
            skip(&mut [0; 2])?;
        }
        self.inflate.reset(false);
        self.sum.reset();
        (self.inside, self.members) = (true, self.members + 1);
        Ok(true)
    }

    /// Passes the trailer of a member and compares it.
    fn end_member(&mut self) -> io::Result<()> {
        self.inside = false;
        let mut trailer = [0; 8];
        self.input.read_exact(&mut trailer).map_err(|e| io_error("gzip", e))?;
        let [a, b, c, d, len @ ..] = trailer;
        if u32::from_le_bytes([a, b, c, d]) != self.sum.sum() || u32::from_le_bytes(len) != self.sum.amount() {
            return Err(damaged("gzip", "has a member whose checksum is wrong"));
        }
        Ok(())
    }
}

/// Decompresses zstd and lz4 frames. Skippable frames may precede both, so the format is known only later.
pub(crate) fn frames(input: Input) -> Input {
    let source =
        Compressed { inner: BufReader::with_capacity(READ_BUFFER, input), pushed_back: Vec::new(), ended: false };
    Box::new(Frames { state: State::Between(source) })
}

struct Frames {
    state: State,
}

enum State {
    Between(Compressed),
    Zstd(Box<ZstdDecoder>, Compressed),
    Lz4(Box<lz4_flex::frame::FrameDecoder<Compressed>>, bool),
    /// A decoder whose input broke, with the remaining output, and then the error.
    Broken(Box<ZstdDecoder>, io::Error),
    Done,
}

impl Read for Frames {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            match std::mem::replace(&mut self.state, State::Done) {
                State::Done => return Ok(0),
                State::Between(source) => match next_frame(source)? {
                    Some(state) => self.state = state,
                    None => return Ok(0),
                },
                State::Zstd(mut decoder, mut source) => {
                    if let Err(e) = decode_some(&mut decoder, &mut source) {
                        if !give_up_window(&mut decoder) {
                            return Err(e);
                        }
                        self.state = State::Broken(decoder, e);
                        continue;
                    }
                    let n = decoder.read(buffer)?;
                    if n > 0 {
                        self.state = State::Zstd(decoder, source);
                        return Ok(n);
                    }
                    if let (Some(found), Some(made)) =
                        (decoder.get_checksum_from_data(), decoder.get_calculated_checksum())
                        && found != made
                    {
                        return Err(damaged("zstd", "has a frame whose checksum is wrong"));
                    }
                    self.state = State::Between(source);
                }
                State::Broken(mut decoder, e) => {
                    let n = decoder.read(buffer)?;
                    if n == 0 {
                        return Err(e);
                    }
                    self.state = State::Broken(decoder, e);
                    return Ok(n);
                }
                State::Lz4(mut decoder, legacy) => {
                    let n = decoder.read(buffer).map_err(|e| io_error("lz4", e))?;
                    if n > 0 {
                        self.state = State::Lz4(decoder, legacy);
                        return Ok(n);
                    }
                    // The decoder takes an end of input between two blocks for the end of the frame. Only legacy frames
                    // end so.
                    let source = decoder.into_inner();
                    if source.ended && !legacy {
                        return Err(damaged("lz4", ENDS_EARLY));
                    }
                    self.state = State::Between(source);
                }
            }
        }
    }
}

/// Decodes until there is something to collect or the frame is finished.
fn decode_some(decoder: &mut ZstdDecoder, source: &mut Compressed) -> io::Result<()> {
    while decoder.can_collect() == 0 && !decoder.is_finished() {
        decoder.decode_blocks(&mut *source, BlockDecodingStrategy::UptoBlocks(1)).map_err(|e| zstd_error(e, source))?;
    }
    Ok(())
}

/// The decoder holds back a window for later blocks to refer to. An empty last block (and a checksum) makes it give
/// that up, so that everything before the damage is read. Says whether that worked.
fn give_up_window(decoder: &mut ZstdDecoder) -> bool {
    let last_block = [0x01u8, 0, 0, 0, 0, 0, 0];
    decoder.decode_blocks(&last_block[..], BlockDecodingStrategy::UptoBlocks(1)).is_ok() && decoder.is_finished()
}

/// Passes over skippable frames to the next that has data; `None` at the end.
fn next_frame(mut source: Compressed) -> io::Result<Option<State>> {
    loop {
        let mut magic = [0; 4];
        let have = read_up_to(&mut source, &mut magic)?;
        if have == 0 {
            return Ok(None);
        }
        match (have, u32::from_le_bytes(magic)) {
            (4, 0x184d_2a50..=0x184d_2a5f) => {
                let mut len = [0; 4];
                source.read_exact(&mut len).map_err(|e| io_error("zstd or lz4", e))?;
                let len = u64::from(u32::from_le_bytes(len));
                if io::copy(&mut (&mut source).take(len), &mut io::sink())? < len {
                    return Err(damaged("zstd or lz4", ENDS_EARLY));
                }
            }
            (4, ZSTD_MAGIC) => {
                source.pushed_back = magic.to_vec();
                let mut decoder = Box::new(ZstdDecoder::new());
                decoder.init(&mut source).map_err(|e| zstd_error(e, &source))?;
                return Ok(Some(State::Zstd(decoder, source)));
            }
            (4, found @ (LZ4_MAGIC | LZ4_LEGACY_MAGIC)) => {
                source.pushed_back = magic.to_vec();
                let decoder = lz4_flex::frame::FrameDecoder::new(source);
                return Ok(Some(State::Lz4(Box::new(decoder), found == LZ4_LEGACY_MAGIC)));
            }
            _ => return Err(damaged("zstd or lz4", "has something else after a frame")),
        }
    }
}

fn read_up_to(source: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut have = 0;
    while have < buffer.len() {
        match source.read(&mut buffer[have..]) {
            Ok(0) => break,
            Ok(n) => have += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(have)
}

const ENDS_EARLY: &str = "ends too early";

#[cold]
fn zstd_error(e: impl std::fmt::Display, source: &Compressed) -> io::Error {
    if source.ended { damaged("zstd", ENDS_EARLY) } else { damaged("zstd", format!("is damaged: {e}")) }
}

/// An error of a decoder that returns `io::Error`; errors of the operating system are unchanged.
#[cold]
pub(crate) fn io_error(method: &'static str, e: io::Error) -> io::Error {
    match e.kind() {
        _ if e.raw_os_error().is_some() => e,
        io::ErrorKind::UnexpectedEof => damaged(method, ENDS_EARLY),
        _ => damaged(method, format!("is damaged: {e}")),
    }
}

#[cold]
fn damaged(method: &'static str, reason: impl ToString) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, Undecodable { method, reason: reason.to_string() })
}

/// The error of a decompressor, as the content of the [`io::Error`] that `Read` returns.
#[derive(Debug, thiserror::Error)]
#[error("{method}: {reason}")]
pub(crate) struct Undecodable {
    pub(crate) method: &'static str,
    pub(crate) reason: String,
}

/// Compressed input that can take back bytes and knows whether its end was reached.
struct Compressed {
    inner: BufReader<Input>,
    pushed_back: Vec<u8>,
    ended: bool,
}

impl Read for Compressed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if !self.pushed_back.is_empty() {
            let n = self.pushed_back.len().min(buffer.len());
            buffer[..n].copy_from_slice(&self.pushed_back[..n]);
            self.pushed_back.drain(..n);
            return Ok(n);
        }
        let n = self.inner.read(buffer)?;
        self.ended |= n == 0 && !buffer.is_empty();
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn text() -> Vec<u8> {
        (0..200_000u32).flat_map(|i| (i / 7).to_le_bytes()).collect()
    }

    fn lz4(data: &[u8]) -> Vec<u8> {
        let mut w = lz4_flex::frame::FrameEncoder::new(Vec::new());
        w.write_all(data).unwrap();
        w.finish().unwrap()
    }

    fn zstd(data: &[u8]) -> Vec<u8> {
        ruzstd::encoding::compress_to_vec(data, ruzstd::encoding::CompressionLevel::Fastest)
    }

    fn all(bytes: Vec<u8>) -> (Vec<u8>, Option<String>) {
        let (mut reader, mut out) = (frames(Box::new(io::Cursor::new(bytes))), Vec::new());
        let e = reader.read_to_end(&mut out).err();
        (out, e.map(|e| e.to_string()))
    }

    #[test]
    fn frames_of_both_kinds_one_after_another_with_skippable_ones_between() {
        let mut bytes = vec![0x5f, 0x2a, 0x4d, 0x18, 2, 0, 0, 0, 9, 9];
        bytes.extend(lz4(b"ab"));
        bytes.extend(zstd(b"cd"));
        bytes.extend([0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0]);
        bytes.extend(lz4(b"ef"));
        assert_eq!(all(bytes), (b"abcdef".to_vec(), None));
    }

    #[test]
    fn every_cut_is_noticed_and_what_came_before_it_is_given() {
        let text = text();
        for whole in [lz4(&text), zstd(&text)] {
            assert_eq!(all(whole.clone()), (text.clone(), None));
            for cut in [whole.len() - 1, whole.len() - 4, whole.len() / 2, 20, 4, 1] {
                let (out, e) = all(whole[..cut].to_vec());
                assert!(text.starts_with(&out));
                assert!(e.is_some(), "cut at {cut} of {}", whole.len());
            }
        }
    }

    #[test]
    fn a_cut_zstd_stream_gives_its_window_too() {
        let text = text();
        let whole = zstd(&text);
        let (out, e) = all(whole[..whole.len() - 5].to_vec());
        assert_eq!(e.as_deref(), Some("zstd: ends too early"));
        assert!(
            text.len() - out.len() <= 128 << 10,
            "only the last block may be lost, {} of {} bytes are here",
            out.len(),
            text.len()
        );
    }

    #[test]
    fn lz4_blocks_cut_between_them_are_noticed() {
        let mut w = lz4_flex::frame::FrameEncoder::new(Vec::new());
        w.write_all(b"abc").unwrap();
        w.flush().unwrap();
        let (out, e) = all(w.get_ref().clone());
        assert_eq!((&out[..], e.as_deref()), (&b"abc"[..], Some("lz4: ends too early")));
    }

    fn gzipped(data: &[u8], level: u32) -> Vec<u8> {
        let mut w = flate2::GzBuilder::new()
            .filename("name")
            .comment("comment")
            .extra(b"extra".to_vec())
            .write(Vec::new(), flate2::Compression::new(level));
        w.write_all(data).unwrap();
        w.finish().unwrap()
    }

    fn all_of_gzip(bytes: Vec<u8>) -> (Vec<u8>, Option<String>) {
        let (mut reader, mut out, mut buffer) = (gzip(Box::new(io::Cursor::new(bytes))), Vec::new(), vec![0; 1 << 20]);
        loop {
            match reader.read(&mut buffer) {
                Ok(0) => return (out, None),
                Ok(n) => out.extend_from_slice(&buffer[..n]),
                Err(e) => return (out, Some(e.to_string())),
            }
        }
    }

    #[test]
    fn members_of_gzip_follow_one_another_and_what_else_follows_is_passed_over() {
        let both = [gzipped(b"ab", 9), gzipped(b"", 1), gzipped(b"cd", 0), vec![0; 512]].concat();
        assert_eq!(all_of_gzip(both), (b"abcd".to_vec(), None));
    }

    #[test]
    fn damaged_gzip_gives_what_stands_before_the_damage() {
        // Stored blocks, so that the bytes before the damage are known; and one of compressed data.
        let text = text();
        let whole = gzipped(&text, 0);
        let block = whole.windows(16).position(|w| w == &text[4000..4016]).unwrap() - 4000 - 5;
        let len = usize::from(u16::from_le_bytes([whole[block + 1], whole[block + 2]]));
        let mut damaged = whole.clone();
        damaged[block + 5 + len + 2] ^= 0x55;
        let (out, e) = all_of_gzip(damaged);
        assert!(out == text[..len], "{} bytes instead of {len}", out.len());
        assert!(e.as_ref().is_some_and(|e| e.starts_with("gzip: is damaged: ")), "{e:?}");

        let whole = gzipped(&text, 6);
        for at in (40..whole.len()).step_by(whole.len() / 23) {
            let mut damaged = whole.clone();
            damaged[at] ^= 0xff;
            let (out, e) = all_of_gzip(damaged);
            assert!(e.is_some(), "byte {at}");
            let same = out.iter().zip(&text).take_while(|(a, b)| a == b).count();
            // without the head of the first block nothing can be decoded
            assert!(
                at < whole.len() / 4 || same * 3 > text.len() * at / whole.len(),
                "{same} bytes are right where byte {at} of {} is not",
                whole.len()
            );
        }
        for cut in [whole.len() - 1, whole.len() - 9, whole.len() / 2, 30, 11, 3] {
            let (out, e) = all_of_gzip(whole[..cut].to_vec());
            assert!(text.starts_with(&out) && e.as_deref() == Some("gzip: ends too early"), "cut at {cut}: {e:?}");
        }
    }
}
