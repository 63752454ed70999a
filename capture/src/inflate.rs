//! Decompression as a stream: gzip (RFC 1952, several members), zstd (RFC 8878) and lz4 (its frame format), frames one after another.
//!
//! Never more than a window is held in memory: 32 KiB for gzip, up to 128 MiB for zstd as its frame header asks, up to 8 MiB for lz4.

use std::io::{self, BufReader, Read};

use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder as ZstdDecoder};

/// Where compressed bytes come from.
pub(crate) type Input = Box<dyn Read + Send>;

const READ_BUFFER: usize = 256 << 10;
const LZ4_MAGIC: u32 = 0x184d_2204;
const LZ4_LEGACY_MAGIC: u32 = 0x184c_2102;
const ZSTD_MAGIC: u32 = 0xfd2f_b528;

/// Decompresses gzip.
pub(crate) fn gzip(input: Input) -> Input {
    Box::new(Gzip(flate2::bufread::MultiGzDecoder::new(BufReader::with_capacity(READ_BUFFER, input))))
}

struct Gzip(flate2::bufread::MultiGzDecoder<BufReader<Input>>);

impl Read for Gzip {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer).map_err(|e| io_error("gzip", e))
    }
}

/// Decompresses zstd and lz4 frames; both may stand between skippable frames, so which it is shows only later.
pub(crate) fn frames(input: Input) -> Input {
    let source = Compressed { inner: BufReader::with_capacity(READ_BUFFER, input), pushed_back: Vec::new(), ended: false };
    Box::new(Frames { state: State::Between(source) })
}

struct Frames {
    state: State,
}

enum State {
    Between(Compressed),
    Zstd(Box<ZstdDecoder>, Compressed),
    Lz4(Box<lz4_flex::frame::FrameDecoder<Compressed>>, bool),
    /// What the decoder had left when its input broke, then the error.
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
                    if let (Some(found), Some(made)) = (decoder.get_checksum_from_data(), decoder.get_calculated_checksum())
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
                    // The decoder takes an end of input between two blocks for the end of the frame. Only legacy frames end so.
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

/// The decoder holds back a window for later blocks to refer to. An empty last block (and a checksum) makes it give that
/// up, so that everything before the damage is read. Says whether that worked.
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

/// An error of a decoder that speaks `io::Error`; those of the operating system stay what they are.
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

/// The error of a decompressor, inside the [`io::Error`] that `Read` wants.
#[derive(Debug, thiserror::Error)]
#[error("{method}: {reason}")]
pub(crate) struct Undecodable {
    pub(crate) method: &'static str,
    pub(crate) reason: String,
}

/// Compressed input that can take back bytes and knows whether its end was met.
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
        assert!(text.len() - out.len() <= 128 << 10, "only the last block may be lost, {} of {} bytes are here", out.len(), text.len());
    }

    #[test]
    fn lz4_blocks_cut_between_them_are_noticed() {
        let mut w = lz4_flex::frame::FrameEncoder::new(Vec::new());
        w.write_all(b"abc").unwrap();
        w.flush().unwrap();
        let (out, e) = all(w.get_ref().clone());
        assert_eq!((&out[..], e.as_deref()), (&b"abc"[..], Some("lz4: ends too early")));
    }
}
