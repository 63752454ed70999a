//! Compressed SMB2 messages, \[MS-SMB2\] 2.2.42 and 3.1.5.3: a transform header and then the message, whole or in part,
//! in one of the algorithms of \[MS-XCA\] (LZNT1, Plain LZ77, LZ77+Huffman), as an LZ4 block, or as one byte repeated
//! (Pattern_V1).
//!
//! ```text
//! unchained   FC 'SMB'  original size  algorithm  flags 0  offset  │ offset bytes as they are │ compressed …
//! chained     FC 'SMB'  original size  │ algorithm  flags 1  length  [original size] │ payload │ algorithm  flags 0  length … │ …
//! ```
//!
//! Nine bytes of Plain LZ77 can stand for 4 GiB. So every decompressor has a limit of bytes that it may add, does work
//! in proportion to the bytes that it reads and adds, and never trusts a length that it reads. What could be
//! decompressed before an error is kept.

use crate::fault::{Fault, FaultKind};
use crate::field::Def;
use alloc::vec::Vec;
use core::fmt;

/// The first bytes of a compressed message.
pub const PROTOCOL_ID: [u8; 4] = [0xfc, b'S', b'M', b'B'];

/// Bytes that any one message may have when decompressed: twice the largest transaction that servers offer.
pub const LIMIT: usize = 16 << 20;

/// `SMB2_COMPRESSION_FLAG_CHAINED`: on the first payload header of a chain, which is laid out otherwise.
pub const FLAG_CHAINED: u16 = 0x0001;

/// Bytes of an `SMB2_COMPRESSION_TRANSFORM_HEADER_UNCHAINED`.
pub const UNCHAINED_HEADER_LEN: usize = 16;

wire_enum! {
    /// Compression algorithm of a payload (\[MS-SMB2\] 2.2.3.1.3).
    pub enum Algorithm: u16 {
        NONE = 0x0000, "None";
        LZNT1 = 0x0001, "LZNT1";
        LZ77 = 0x0002, "LZ77";
        LZ77_HUFFMAN = 0x0003, "LZ77+Huffman";
        PATTERN_V1 = 0x0004, "Pattern_V1";
        LZ4 = 0x0005, "LZ4";
    }
}

impl Algorithm {
    /// True if its payloads in a chain begin with their uncompressed size.
    pub const fn has_size(self) -> bool {
        matches!(self, Self::LZNT1 | Self::LZ77 | Self::LZ77_HUFFMAN | Self::LZ4)
    }
}

/// Reason that bytes could not be decompressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The compressed bytes end where more are needed.
    Short,
    /// A match reaches back before the first byte.
    Distance,
    /// The bytes stand for more than the header says.
    Long,
    /// The bytes stand for fewer than the header says.
    Size,
    /// The header claims more than is decompressed here.
    Limit,
    /// A length, a chunk header or a table of code lengths that no compressor writes.
    Value,
    /// An algorithm that is not known.
    Algorithm,
}

/// Compressed bytes that are not, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupt {
    /// Reason that it cannot be decompressed.
    pub reason: Reason,
    /// Offset from the start of the input.
    pub at: usize,
}

impl Corrupt {
    /// The same as the [`Fault`] of a field that begins `input`, the bytes that were to be decompressed.
    #[cold]
    pub fn fault(self, def: Def, input: &[u8]) -> Fault {
        let at = &input[self.at.min(input.len())..];
        match self.kind() {
            FaultKind::Short => Fault::short(Some(def), at, 0),
            FaultKind::Limit => Fault::limit(def, at),
            FaultKind::Length => Fault::length(def, at, 0),
            FaultKind::Value => Fault::value(def, at),
        }
    }

    /// Kind of the fault.
    pub const fn kind(self) -> FaultKind {
        match self.reason {
            Reason::Short => FaultKind::Short,
            Reason::Limit => FaultKind::Limit,
            Reason::Distance | Reason::Long | Reason::Size => FaultKind::Length,
            Reason::Value | Reason::Algorithm => FaultKind::Value,
        }
    }
}

impl fmt::Display for Corrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.reason {
            Reason::Short => "the compressed bytes end too early",
            Reason::Distance => "a match points before the first byte",
            Reason::Long => "decompresses to more bytes than its header says",
            Reason::Size => "decompresses to fewer bytes than its header says",
            Reason::Limit => "claims to decompress to more bytes than are followed",
            Reason::Value => "is not what this algorithm writes",
            Reason::Algorithm => "no such compression algorithm",
        })?;
        write!(f, " (at byte {})", self.at)
    }
}

/// Decompresses a message and appends it to `output`.
///
/// `message` is all of it, from the protocol identifier on. No more than `limit` bytes are appended, nor more than
/// [`LIMIT`], nor more than the header says.
///
/// # Errors
/// [`Corrupt`], with an offset in `message`; what could be decompressed before it has been appended.
pub fn decompress_message(message: &[u8], output: &mut Vec<u8>, limit: usize) -> Result<(), Corrupt> {
    let mut i = Input { bytes: message, at: 0 };
    if *i.array::<4>()? != PROTOCOL_ID {
        return Err(Corrupt { reason: Reason::Value, at: 0 });
    }
    let claim = i.le32()? as usize;
    if claim > limit.min(LIMIT) {
        return Err(Corrupt { reason: Reason::Limit, at: 4 });
    }
    let first = i.at;
    let algorithm = Algorithm(i.le16()?);
    let flags = i.le16()?;
    if flags & FLAG_CHAINED != 0 {
        i.at = first;
        return chain(&mut i, output, claim);
    }
    let offset = i.le32()? as usize;
    let plain = i.take(offset)?;
    if plain.len() + claim > limit.min(LIMIT) {
        return Err(Corrupt { reason: Reason::Limit, at: 12 });
    }
    output.extend_from_slice(plain);
    let at = i.at;
    if algorithm == Algorithm::NONE {
        // the specification allows this in a chain only
        return Err(Corrupt { reason: Reason::Algorithm, at: first });
    }
    exactly(algorithm, &message[at..], output, claim).map_err(|e| Corrupt { at: at + e.at, ..e })
}

/// \[MS-SMB2\] 2.2.42.2: payloads, each with a header of its own, that together are `claim` bytes.
fn chain(i: &mut Input<'_>, output: &mut Vec<u8>, claim: usize) -> Result<(), Corrupt> {
    let end = output.len() + claim;
    while output.len() < end {
        let header = i.at;
        let algorithm = Algorithm(i.le16()?);
        let _flags = i.le16()?;
        let length = i.le32()? as usize;
        let start = i.at;
        let payload = i.take(length)?;
        let room = end - output.len();
        let (skipped, size) = if algorithm.has_size() {
            let mut p = Input { bytes: payload, at: 0 };
            (4, p.le32().map_err(|e| Corrupt { at: start + e.at, ..e })? as usize)
        } else if algorithm == Algorithm::PATTERN_V1 {
            let mut p = Input { bytes: payload, at: payload.len().min(4) };
            (0, p.le32().map_err(|e| Corrupt { at: start + e.at, ..e })? as usize)
        } else {
            (0, length)
        };
        if size > room {
            return Err(Corrupt { reason: Reason::Long, at: header });
        }
        exactly(algorithm, &payload[skipped..], output, size)
            .map_err(|e| Corrupt { at: start + skipped + e.at, ..e })?;
    }
    if !i.is_empty() {
        return Err(Corrupt { reason: Reason::Long, at: i.at });
    }
    Ok(())
}

fn exactly(algorithm: Algorithm, input: &[u8], output: &mut Vec<u8>, size: usize) -> Result<(), Corrupt> {
    let base = output.len();
    decompress(algorithm, input, output, size)?;
    if output.len() - base < size {
        return Err(Corrupt { reason: Reason::Size, at: input.len() });
    }
    Ok(())
}

/// Decompresses `input` and appends at most `limit` bytes to `output`: the size in the header, which the bytes
/// themselves do not. Bytes that follow when `limit` is reached are not looked at.
///
/// # Errors
/// [`Corrupt`], with an offset in `input`; what could be decompressed before it has been appended.
pub fn decompress(algorithm: Algorithm, input: &[u8], output: &mut Vec<u8>, limit: usize) -> Result<(), Corrupt> {
    match algorithm {
        Algorithm::NONE => none(input, output, limit),
        Algorithm::LZNT1 => lznt1(input, output, limit),
        Algorithm::LZ77 => lz77(input, output, limit),
        Algorithm::LZ77_HUFFMAN => lz77_huffman(input, output, limit),
        Algorithm::PATTERN_V1 => pattern_v1(input, output, limit),
        Algorithm::LZ4 => lz4(input, output, limit),
        _ => Err(Corrupt { reason: Reason::Algorithm, at: 0 }),
    }
}

fn none(input: &[u8], output: &mut Vec<u8>, limit: usize) -> Result<(), Corrupt> {
    output.extend_from_slice(&input[..input.len().min(limit)]);
    if input.len() > limit { Err(Corrupt { reason: Reason::Long, at: limit }) } else { Ok(()) }
}

/// `SMB2_COMPRESSION_PATTERN_PAYLOAD_V1`, \[MS-SMB2\] 2.2.42.2.2: one byte and how often it is repeated.
fn pattern_v1(input: &[u8], output: &mut Vec<u8>, limit: usize) -> Result<(), Corrupt> {
    let mut i = Input { bytes: input, at: 0 };
    let pattern = i.u8()?;
    let _reserved: &[u8; 3] = i.array()?;
    let repetitions = i.le32()? as usize;
    output.resize(output.len() + repetitions.min(limit), pattern);
    if repetitions > limit { Err(Corrupt { reason: Reason::Long, at: 4 }) } else { Ok(()) }
}

/// A block of LZ4 without its frame.
fn lz4(input: &[u8], output: &mut Vec<u8>, limit: usize) -> Result<(), Corrupt> {
    // a byte of input stands for 255 of output at most, so that a large claim alone does not cost anything
    let room = input.len().saturating_mul(255).saturating_add(64).min(limit);
    let base = output.len();
    output.resize(base + room, 0);
    match lz4_flex::block::decompress_into(input, &mut output[base..]) {
        Ok(n) => {
            output.truncate(base + n);
            Ok(())
        }
        Err(e) => {
            output.truncate(base);
            let reason = match e {
                lz4_flex::block::DecompressError::OutputTooSmall { .. } => Reason::Long,
                lz4_flex::block::DecompressError::OffsetOutOfBounds => Reason::Distance,
                _ => Reason::Short,
            };
            Err(Corrupt { reason, at: 0 })
        }
    }
}

/// LZNT1, \[MS-XCA\] 2.5: chunks of up to 4096 bytes, each on its own.
fn lznt1(input: &[u8], output: &mut Vec<u8>, limit: usize) -> Result<(), Corrupt> {
    const CHUNK: usize = 4096;
    let end = output.len() + limit;
    let mut i = Input { bytes: input, at: 0 };
    while output.len() < end && !i.is_empty() {
        let at = i.at;
        let header = i.le16()?;
        if header == 0 {
            return Ok(());
        }
        if header & 0x7000 != 0x3000 {
            return Err(Corrupt { reason: Reason::Value, at });
        }
        let start = i.at;
        let chunk = i.take_most(usize::from(header & 0x0fff) + 1);
        let cut = chunk.len() <= usize::from(header & 0x0fff);
        let base = output.len();
        let chunk_end = end.min(base + CHUNK);
        if header & 0x8000 == 0 {
            output.extend_from_slice(&chunk[..chunk.len().min(chunk_end - base)]);
        } else {
            let mut c = Input { bytes: chunk, at: 0 };
            flag_groups(&mut c, output, base, chunk_end, end).map_err(|e| Corrupt { at: start + e.at, ..e })?;
        }
        if cut && output.len() < end {
            return Err(Corrupt { reason: Reason::Short, at: input.len() });
        }
    }
    Ok(())
}

/// The flag groups of one chunk, which began at `base` of the output.
fn flag_groups(
    i: &mut Input<'_>,
    output: &mut Vec<u8>,
    base: usize,
    chunk_end: usize,
    end: usize,
) -> Result<(), Corrupt> {
    while !i.is_empty() {
        let mut flags = i.u8()?;
        for _ in 0..8 {
            if output.len() == end || i.is_empty() {
                return Ok(());
            }
            if output.len() == chunk_end {
                return Err(Corrupt { reason: Reason::Long, at: i.at });
            }
            if flags & 1 == 0 {
                output.push(i.u8()?);
            } else {
                let at = i.at;
                let word = usize::from(i.le16()?);
                // the farther into the chunk, the more bits does the displacement get: M is the largest of 4..=12 with
                // 2^(M-1) < U
                let written = output.len() - base;
                let displacement_bits = (usize::BITS - written.saturating_sub(1).leading_zeros()).clamp(4, 12);
                let length_bits = 16 - displacement_bits;
                let distance = (word >> length_bits) + 1;
                let length = (word & ((1 << length_bits) - 1)) + 3;
                copy_back(output, base, distance, length, chunk_end, at)?;
            }
            flags >>= 1;
        }
    }
    Ok(())
}

/// Plain LZ77, \[MS-XCA\] 2.4.
fn lz77(input: &[u8], output: &mut Vec<u8>, limit: usize) -> Result<(), Corrupt> {
    let base = output.len();
    let end = base + limit;
    let mut i = Input { bytes: input, at: 0 };
    // the byte whose low half was the length of the last long match: its high half is the length of the next one
    let mut half: Option<u8> = None;
    while output.len() < end && !i.is_empty() {
        let mut flags = i.le32()?;
        let mut left = 32;
        while left > 0 {
            let literals = flags.leading_zeros().min(left);
            if literals > 0 {
                let run = i.take_most((literals as usize).min(end - output.len()));
                output.extend_from_slice(run);
                if output.len() == end {
                    return Ok(());
                }
                if run.len() < literals as usize {
                    return Err(Corrupt { reason: Reason::Short, at: i.at });
                }
                left -= literals;
                flags = flags.checked_shl(literals).unwrap_or(0);
                continue;
            }
            if output.len() == end || i.is_empty() {
                return Ok(());
            }
            let at = i.at;
            let word = usize::from(i.le16()?);
            let mut length = word & 7;
            if length == 7 {
                length += match half.take() {
                    Some(byte) => usize::from(byte >> 4),
                    None => {
                        let byte = i.u8()?;
                        half = Some(byte);
                        usize::from(byte & 0x0f)
                    }
                };
                if length == 7 + 15 {
                    length = long_length(&mut i, 7 + 15)?;
                }
            }
            copy_back(output, base, (word >> 3) + 1, length.saturating_add(3), end, at)?;
            left -= 1;
            flags <<= 1;
        }
    }
    Ok(())
}

/// Continues a length whose short forms, `less` together, are full: one more byte or, if that is full as well, the
/// whole length in 16 or 32 bits.
fn long_length(i: &mut Input<'_>, less: usize) -> Result<usize, Corrupt> {
    let at = i.at;
    let byte = i.u8()?;
    if byte < 255 {
        return Ok(less + usize::from(byte));
    }
    let mut length = usize::from(i.le16()?);
    if length == 0 {
        length = i.le32()? as usize;
    }
    if length < less {
        return Err(Corrupt { reason: Reason::Value, at });
    }
    Ok(length)
}

/// LZ77+Huffman, \[MS-XCA\] 2.2: blocks of 64 KiB, each with the code lengths of its 512 symbols before it.
fn lz77_huffman(input: &[u8], output: &mut Vec<u8>, limit: usize) -> Result<(), Corrupt> {
    const BLOCK: usize = 1 << 16;
    let base = output.len();
    let end = base + limit;
    let mut i = Input { bytes: input, at: 0 };
    while output.len() < end {
        if i.is_empty() {
            return Ok(());
        }
        let at = i.at;
        let code = Code::new(i.array()?).ok_or(Corrupt { reason: Reason::Value, at })?;
        let mut bits = Bits::new(&mut i);
        let block_end = end.min(output.len() + BLOCK);
        while output.len() < block_end {
            let at = bits.input.at;
            let symbol = code.read(&mut bits)?;
            if symbol < 256 {
                output.push(symbol as u8);
                continue;
            }
            let mut length = usize::from(symbol & 0x0f);
            if length == 15 {
                length = long_length(bits.input, 15)?;
            }
            let offset_bits = u32::from(symbol >> 4) & 0x0f;
            let distance = (1 << offset_bits) + bits.read(offset_bits)? as usize;
            // a match may run over the end of its block
            copy_back(output, base, distance, length.saturating_add(3), end, at)?;
        }
    }
    Ok(())
}

/// Canonical Huffman codes of up to 15 bits.
struct Code {
    /// By the next 10 bits: symbol and length of the code, 0 where it is longer.
    short: [u16; 1 << Code::SHORT],
    /// Symbols in the order of their codes.
    symbols: [u16; 512],
    /// By length: symbols with shorter codes, and the first code behind those of this length, as the top bits of 15.
    first: [(u16, u32); 16],
}

impl Code {
    const SHORT: u32 = 10;
    const LONGEST: u32 = 15;

    /// From the code lengths of 512 symbols, two to a byte, the even symbol in the low half. `None` where they leave
    /// codes out or give one twice.
    fn new(lengths: &[u8; 256]) -> Option<Self> {
        let length = |symbol: usize| lengths[symbol / 2] >> (symbol % 2 * 4) & 0x0f;
        let mut count = [0_u16; 16];
        for symbol in 0..512 {
            count[usize::from(length(symbol))] += 1;
        }
        let mut code = Self { short: [0; 1 << Self::SHORT], symbols: [0; 512], first: [(0, 0); 16] };
        let mut place = [0_u16; 16];
        let (mut before, mut next) = (0_u16, 0_u32);
        for bits in 1..=15_usize {
            place[bits] = before;
            next += u32::from(count[bits]) << (Self::LONGEST as usize - bits);
            code.first[bits] = (before, next);
            before += count[bits];
        }
        if next != 1 << Self::LONGEST {
            return None;
        }
        for symbol in 0..512 {
            let at = &mut place[usize::from(length(symbol))];
            if length(symbol) > 0 {
                code.symbols[usize::from(*at)] = symbol as u16;
                *at += 1;
            }
        }
        let mut filled = 0;
        for bits in 1..=Self::SHORT {
            let (before, _) = code.first[bits as usize];
            for n in 0..count[bits as usize] {
                let entry = code.symbols[usize::from(before + n)] << 4 | bits as u16;
                let width = 1 << (Self::SHORT - bits);
                code.short[filled..filled + width].fill(entry);
                filled += width;
            }
        }
        Some(code)
    }

    fn read(&self, bits: &mut Bits<'_, '_>) -> Result<u16, Corrupt> {
        let next = bits.next >> (32 - Self::LONGEST);
        let entry = self.short[(next >> (Self::LONGEST - Self::SHORT)) as usize];
        if entry != 0 {
            bits.skip(u32::from(entry & 0x0f))?;
            return Ok(entry >> 4);
        }
        let mut below = self.first[Self::SHORT as usize].1;
        for length in Self::SHORT + 1..=Self::LONGEST {
            let (before, behind) = self.first[length as usize];
            if next < behind {
                bits.skip(length)?;
                let nth = (next - below) >> (Self::LONGEST - length);
                return Ok(self.symbols[usize::from(before) + nth as usize]);
            }
            below = behind;
        }
        // the codes are complete, so one of them was found
        Err(Corrupt { reason: Reason::Value, at: bits.input.at })
    }
}

/// Bits from the top of 16-bit little-endian words, of which one to two are read ahead, so that the bytes of long
/// lengths lie behind them (\[MS-XCA\] 2.2.4).
struct Bits<'i, 'a> {
    input: &'i mut Input<'a>,
    next: u32,
    /// Bits of `next` beyond its first 16.
    extra: i32,
    /// Words that were wanted and not there: zeros instead, which no code may reach into.
    missing: u8,
}

impl<'i, 'a> Bits<'i, 'a> {
    fn new(input: &'i mut Input<'a>) -> Self {
        let mut bits = Self { input, next: 0, extra: 16, missing: 0 };
        bits.next = bits.word() << 16;
        bits.next |= bits.word();
        bits
    }

    fn word(&mut self) -> u32 {
        match self.input.le16() {
            Ok(word) => u32::from(word),
            Err(_) => {
                // half a word is none, and no length either
                self.input.at = self.input.bytes.len();
                self.missing = self.missing.saturating_add(1);
                0
            }
        }
    }

    fn skip(&mut self, n: u32) -> Result<(), Corrupt> {
        self.next <<= n;
        self.extra -= n as i32;
        if self.extra < 0 {
            self.next |= self.word() << -self.extra;
            self.extra += 16;
        }
        if 16 + self.extra < 16 * i32::from(self.missing) {
            return Err(Corrupt { reason: Reason::Short, at: self.input.at });
        }
        Ok(())
    }

    fn read(&mut self, n: u32) -> Result<u32, Corrupt> {
        let value = if n == 0 { 0 } else { self.next >> (32 - n) };
        self.skip(n)?;
        Ok(value)
    }
}

/// Repeats `length` bytes that lie `distance` back, but never from before `base` nor beyond `end`. The bytes may
/// overlap: whole periods are copied, twice as many each time.
fn copy_back(
    output: &mut Vec<u8>,
    base: usize,
    distance: usize,
    length: usize,
    end: usize,
    at: usize,
) -> Result<(), Corrupt> {
    if distance > output.len() - base {
        return Err(Corrupt { reason: Reason::Distance, at });
    }
    let from = output.len() - distance;
    let room = end - output.len();
    let mut left = length.min(room);
    while left > 0 {
        let n = left.min(output.len() - from);
        output.extend_from_within(from..from + n);
        left -= n;
    }
    if length > room { Err(Corrupt { reason: Reason::Long, at }) } else { Ok(()) }
}

struct Input<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Input<'a> {
    fn is_empty(&self) -> bool {
        self.at >= self.bytes.len()
    }

    fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.at..).unwrap_or(&[])
    }

    fn take(&mut self, n: usize) -> Result<&'a [u8], Corrupt> {
        let taken = self.rest().get(..n).ok_or(Corrupt { reason: Reason::Short, at: self.at })?;
        self.at += n;
        Ok(taken)
    }

    fn take_most(&mut self, n: usize) -> &'a [u8] {
        let rest = self.rest();
        let taken = &rest[..n.min(rest.len())];
        self.at += taken.len();
        taken
    }

    fn array<const N: usize>(&mut self) -> Result<&'a [u8; N], Corrupt> {
        let taken = self.rest().first_chunk().ok_or(Corrupt { reason: Reason::Short, at: self.at })?;
        self.at += N;
        Ok(taken)
    }

    fn u8(&mut self) -> Result<u8, Corrupt> {
        self.array::<1>().map(|b| b[0])
    }

    fn le16(&mut self) -> Result<u16, Corrupt> {
        self.array().map(|b| u16::from_le_bytes(*b))
    }

    fn le32(&mut self) -> Result<u32, Corrupt> {
        self.array().map(|b| u32::from_le_bytes(*b))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;
    use alloc::vec;
    use proptest::prelude::*;

    const ALL: [Algorithm; 6] = [
        Algorithm::NONE,
        Algorithm::LZNT1,
        Algorithm::LZ77,
        Algorithm::LZ77_HUFFMAN,
        Algorithm::PATTERN_V1,
        Algorithm::LZ4,
    ];

    fn hex(text: &str) -> Vec<u8> {
        let digits: String = text.split_whitespace().collect();
        (0..digits.len()).step_by(2).map(|n| u8::from_str_radix(&digits[n..n + 2], 16).unwrap()).collect()
    }

    fn whole(algorithm: Algorithm, input: &[u8], size: usize) -> Result<Vec<u8>, Corrupt> {
        // earlier output is neither touched nor reached
        let mut output = vec![0xee; 3];
        exactly(algorithm, input, &mut output, size)?;
        assert_eq!(output[..3], [0xee; 3]);
        Ok(output[3..].to_vec())
    }

    fn reason(algorithm: Algorithm, input: &[u8], size: usize) -> Reason {
        whole(algorithm, input, size).unwrap_err().reason
    }

    /// The code lengths of a block: every byte 0 but these.
    fn lengths(bytes: &[(usize, u8)]) -> Vec<u8> {
        let mut table = vec![0; 256];
        for (at, byte) in bytes {
            table[*at] = *byte;
        }
        table
    }

    fn alphabet_in_huffman() -> Vec<u8> {
        let mut bytes = lengths(&[(0x30, 0x50), (0x3b, 0x45), (0x3c, 0x44), (0x3d, 0x04), (0x80, 0x04)]);
        bytes[0x31..0x3b].fill(0x55);
        bytes.extend(hex("d8 52 3e d7 94 11 5b e9 19 5f f9 d6 7c df 8d 04 00 00 00 00"));
        bytes
    }

    fn abc_in_huffman() -> Vec<u8> {
        let mut bytes = lengths(&[(0x30, 0x30), (0x31, 0x23), (0x80, 0x02), (0x8f, 0x20)]);
        bytes.extend(hex("a8 dc 00 00 ff 26 01"));
        bytes
    }

    const MELODY: &[u8] = b"F# F# G A A G F# E D D E F# F# E E F# F# G A A G F# E D D E F# E D D E E F# D E F# G F# D \
        E F# G F# E D E A F# F# G A A G F# E D D E F# E D D\0";

    fn melody_in_lznt1() -> Vec<u8> {
        hex("38 b0 88 46 23 20 00 20 47 20 41 00 10 a2 47 01 a0 45 20 44 00 08 45 01 50 79 00 c0 45 20 05 24
             13 88 05 b4 02 4a 44 ef 03 58 02 8c 09 16 01 48 45 00 be 00 9e 00 04 01 18 90 00")
    }

    // [MS-XCA] 3.1
    #[test]
    fn the_spec_s_lz77_examples_read_back() {
        let alphabet = hex("3f 00 00 00 61 62 63 64 65 66 67 68 69 6a 6b 6c 6d 6e 6f 70 71 72 73 74 75 76 77 78 79 7a");
        assert_eq!(whole(Algorithm::LZ77, &alphabet, 26).unwrap(), b"abcdefghijklmnopqrstuvwxyz");
        let abc = hex("ff ff ff 1f 61 62 63 17 00 0f ff 26 01");
        assert_eq!(whole(Algorithm::LZ77, &abc, 300).unwrap(), b"abc".repeat(100));
        assert_eq!(reason(Algorithm::LZ77, &abc, 299), Reason::Long);
        assert_eq!(reason(Algorithm::LZ77, &abc, 301), Reason::Size);
        assert_eq!(reason(Algorithm::LZ77, &abc[..8], 300), Reason::Short);
    }

    // [MS-XCA] 3.2
    #[test]
    fn the_spec_s_huffman_examples_read_back() {
        assert_eq!(whole(Algorithm::LZ77_HUFFMAN, &alphabet_in_huffman(), 26).unwrap(), b"abcdefghijklmnopqrstuvwxyz");
        assert_eq!(whole(Algorithm::LZ77_HUFFMAN, &abc_in_huffman(), 300).unwrap(), b"abc".repeat(100));
        assert_eq!(reason(Algorithm::LZ77_HUFFMAN, &abc_in_huffman(), 299), Reason::Long);
        assert_eq!(reason(Algorithm::LZ77_HUFFMAN, &abc_in_huffman()[..255], 300), Reason::Short);
        let mut incomplete = abc_in_huffman();
        incomplete[0x80] = 3;
        assert_eq!(reason(Algorithm::LZ77_HUFFMAN, &incomplete, 300), Reason::Value);
    }

    // [MS-XCA] 3.3
    #[test]
    fn the_spec_s_lznt1_example_reads_back() {
        assert_eq!(MELODY.len(), 142);
        assert_eq!(whole(Algorithm::LZNT1, &melody_in_lznt1(), 142).unwrap(), MELODY);
        // a chunk header of 0 ends the data
        let mut ended = melody_in_lznt1();
        ended.extend([0, 0, 1, 2, 3]);
        assert_eq!(reason(Algorithm::LZNT1, &ended, 143), Reason::Size);
        // one literal and a match that fills the chunk to its last byte; then a chunk that is not compressed
        let mut filled = vec![0x03, 0xb0, 0x02, b'A', 0xfc, 0x0f];
        filled.extend(hex("02 30 78 79 7a"));
        let mut expected = vec![b'A'; 4096];
        expected.extend(b"xyz");
        assert_eq!(whole(Algorithm::LZNT1, &filled, 4099).unwrap(), expected);
        // the same match one byte longer leaves its chunk
        assert_eq!(reason(Algorithm::LZNT1, &[0x03, 0xb0, 0x02, b'A', 0xfd, 0x0f], 9000), Reason::Long);
        assert_eq!(reason(Algorithm::LZNT1, &[0x03, 0xb0, 0x02, b'A', 0x00, 0x10], 9000), Reason::Distance);
        assert_eq!(reason(Algorithm::LZNT1, &[0x03, 0x90, 0x02, b'A', 0xfc, 0x0f], 9000), Reason::Value);
    }

    #[test]
    fn every_prefix_gives_its_bytes_and_an_error() {
        let cases = [
            (Algorithm::LZNT1, melody_in_lznt1(), MELODY.to_vec()),
            (Algorithm::LZ77, hex("ff ff ff 1f 61 62 63 17 00 0f ff 26 01"), b"abc".repeat(100)),
            (Algorithm::LZ77_HUFFMAN, abc_in_huffman(), b"abc".repeat(100)),
            (Algorithm::LZ4, lz4_flex::block::compress(MELODY), MELODY.to_vec()),
            (Algorithm::PATTERN_V1, hex("aa 00 00 00 05 00 00 00"), vec![0xaa; 5]),
        ];
        for (algorithm, input, expected) in cases {
            assert_eq!(whole(algorithm, &input, expected.len()).as_ref(), Ok(&expected), "{algorithm}");
            for n in 0..input.len() {
                let mut output = Vec::new();
                let error = exactly(algorithm, &input[..n], &mut output, expected.len()).unwrap_err();
                assert!(error.at <= n, "{algorithm}");
                assert!(expected.starts_with(&output), "{algorithm} {n}");
            }
        }
    }

    #[test]
    fn a_chain_of_every_algorithm_reads_back() {
        let mut message = hex("fc 53 4d 42 00 00 00 00");
        let mut expected = Vec::new();
        let payloads = [
            (Algorithm::NONE, b"header".to_vec(), b"header".to_vec()),
            (Algorithm::LZNT1, melody_in_lznt1(), MELODY.to_vec()),
            (Algorithm::LZ77, hex("ff ff ff 1f 61 62 63 17 00 0f ff 26 01"), b"abc".repeat(100)),
            (Algorithm::PATTERN_V1, hex("aa 00 00 00 00 01 00 00"), vec![0xaa; 256]),
            (Algorithm::LZ77_HUFFMAN, abc_in_huffman(), b"abc".repeat(100)),
            (Algorithm::LZ4, lz4_flex::block::compress(MELODY), MELODY.to_vec()),
        ];
        for (n, (algorithm, input, plain)) in payloads.iter().enumerate() {
            let told = if algorithm.has_size() { 4 } else { 0 };
            message.extend(algorithm.0.to_le_bytes());
            message.extend([u8::from(n == 0), 0]);
            message.extend((input.len() as u32 + told).to_le_bytes());
            if told > 0 {
                message.extend((plain.len() as u32).to_le_bytes());
            }
            message.extend(input);
            expected.extend(plain);
        }
        message[4..8].copy_from_slice(&(expected.len() as u32).to_le_bytes());
        let mut output = Vec::new();
        decompress_message(&message, &mut output, LIMIT).unwrap();
        assert_eq!(output, expected);
        for n in 0..message.len() {
            output.clear();
            let error = decompress_message(&message[..n], &mut output, LIMIT).unwrap_err();
            assert!(error.at <= n && expected.starts_with(&output), "{n}: {error}");
        }
        // limits hold before anything is decompressed
        output.clear();
        let error = decompress_message(&message, &mut output, expected.len() - 1).unwrap_err();
        assert_eq!((error.reason, output.len()), (Reason::Limit, 0));
        message.push(0);
        assert_eq!(decompress_message(&message, &mut output, LIMIT).unwrap_err().reason, Reason::Long);
    }

    #[test]
    fn an_unchained_message_keeps_what_lies_before_its_offset() {
        let mut message = hex("fc 53 4d 42 2c 01 00 00 02 00 00 00 03 00 00 00");
        message.extend(b"xyz");
        message.extend(hex("ff ff ff 1f 61 62 63 17 00 0f ff 26 01"));
        let mut output = Vec::new();
        decompress_message(&message, &mut output, LIMIT).unwrap();
        assert_eq!((&output[..3], &output[3..]), (&b"xyz"[..], &b"abc".repeat(100)[..]));
        // an offset that would overflow with the header's length
        message[12..16].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(decompress_message(&message, &mut output, LIMIT), Err(Corrupt { reason: Reason::Short, at: 16 }));
        message[12..16].fill(0);
        message[8] = 0;
        assert_eq!(decompress_message(&message, &mut output, LIMIT).unwrap_err().reason, Reason::Algorithm);
    }

    #[test]
    fn a_bomb_gives_no_more_than_it_claims() {
        // a literal, and matches of 65535 + 3 bytes from 5 or 6 bytes each
        let mut input = Vec::new();
        while input.len() < 900 {
            let first = input.is_empty();
            let mut block = if first { vec![0xff, 0xff, 0xff, 0x7f, b'A'] } else { vec![0xff; 4] };
            for n in 0..32 - usize::from(first) {
                block.extend([7, 0]);
                if n % 2 == 0 {
                    block.push(0xff);
                }
                block.extend([0xff, 0xff, 0xff]);
            }
            input.extend(block);
        }
        let mut output = Vec::new();
        let error = decompress(Algorithm::LZ77, &input, &mut output, 1 << 20).unwrap_err();
        assert_eq!(error.reason, Reason::Long);
        assert_eq!(output, vec![b'A'; 1 << 20]);
        // 4 GiB in one match
        let one = hex("ff ff ff 7f 41 07 00 0f ff 00 00 ff ff ff ff");
        output.clear();
        assert_eq!(decompress(Algorithm::LZ77, &one, &mut output, 1000).unwrap_err().reason, Reason::Long);
        assert_eq!(output.len(), 1000);
        // a claim alone costs nothing
        let mut small = Vec::new();
        assert_eq!(exactly(Algorithm::LZ4, &[0], &mut small, LIMIT).unwrap_err().reason, Reason::Size);
        assert!(small.capacity() < 1024);
    }

    // Compressors for the round trips: greedy, over every earlier place that begins with the same three bytes.

    enum Token {
        Literal(u8),
        Match(usize, usize),
    }

    fn tokens(input: &[u8], window: usize, longest: usize) -> Vec<Token> {
        let mut last = std::collections::HashMap::new();
        let (mut at, mut tokens) = (0, Vec::new());
        while at < input.len() {
            let key = input.get(at..at + 3);
            let found = key.and_then(|k| last.get(k).copied()).filter(|&from: &usize| at - from <= window);
            let step = match found {
                Some(from) => {
                    let length = (3..longest.min(input.len() - at)).find(|&n| input[from + n] != input[at + n]);
                    let length = length.unwrap_or(longest.min(input.len() - at));
                    tokens.push(Token::Match(at - from, length));
                    length
                }
                None => {
                    tokens.push(Token::Literal(input[at]));
                    1
                }
            };
            for n in at..at + step {
                if let Some(key) = input.get(n..n + 3) {
                    last.insert(key, n);
                }
            }
            at += step;
        }
        tokens
    }

    fn compress_lz77(input: &[u8]) -> Vec<u8> {
        let mut out = vec![0; 4];
        let (mut flags, mut count, mut flags_at, mut half) = (0_u32, 0, 0, 0);
        for token in tokens(input, 8192, usize::MAX) {
            let bit = match token {
                Token::Literal(byte) => {
                    out.push(byte);
                    0
                }
                Token::Match(distance, length) => {
                    let short = (length - 3).min(7);
                    out.extend((((distance - 1) << 3 | short) as u16).to_le_bytes());
                    if short == 7 {
                        let nibble = (length - 10).min(15) as u8;
                        if half == 0 {
                            half = out.len();
                            out.push(nibble);
                        } else {
                            out[half] |= nibble << 4;
                            half = 0;
                        }
                        if nibble == 15 {
                            extend_length(&mut out, length - 3, 22);
                        }
                    }
                    1
                }
            };
            flags = flags << 1 | bit;
            count += 1;
            if count == 32 {
                out[flags_at..flags_at + 4].copy_from_slice(&flags.to_le_bytes());
                (flags, count, flags_at) = (0, 0, out.len());
                out.extend([0; 4]);
            }
        }
        let flags = (u64::from(flags) << (32 - count) | ((1 << (32 - count)) - 1)) as u32;
        out[flags_at..flags_at + 4].copy_from_slice(&flags.to_le_bytes());
        out
    }

    fn extend_length(out: &mut Vec<u8>, length: usize, less: usize) {
        if length - less < 255 {
            out.push((length - less) as u8);
        } else if length < 1 << 16 {
            out.push(255);
            out.extend((length as u16).to_le_bytes());
        } else {
            out.extend([255, 0, 0]);
            out.extend((length as u32).to_le_bytes());
        }
    }

    /// Code lengths: all 9 bits or, with few literals, from 1 to 15 bits.
    fn code_lengths(skewed: bool) -> [u8; 512] {
        let mut lengths = [9_u8; 512];
        if skewed {
            // 1 bit for 'a' to 6 bits for 'f' leave 512 of the 2^15 codes of 15 bits to the other 506 symbols …
            lengths = [15; 512];
            for (n, symbol) in (b'a'..=b'f').enumerate() {
                lengths[usize::from(symbol)] = n as u8 + 1;
            }
            // … two of which take four each
            lengths[0] = 13;
            lengths[256] = 13;
        }
        lengths
    }

    fn compress_huffman(input: &[u8], skewed: bool) -> Vec<u8> {
        let lengths = code_lengths(skewed);
        let mut order: Vec<usize> = (0..512).collect();
        order.sort_by_key(|&s| (lengths[s], s));
        let (mut codes, mut next) = ([0_u32; 512], 0_u32);
        for &symbol in &order {
            codes[symbol] = next >> (15 - lengths[symbol]);
            next += 1 << (15 - lengths[symbol]);
        }
        assert_eq!(next, 1 << 15);

        let mut out: Vec<u8> = Vec::new();
        let (mut words, mut current, mut free, mut written) = ([0_usize; 2], 0_u32, 16_u32, usize::MAX);
        fn put(out: &mut Vec<u8>, words: &mut [usize; 2], current: &mut u32, free: &mut u32, code: u32, n: u32) {
            if *free >= n {
                *current = *current << n | code;
                *free -= n;
                return;
            }
            let rest = n - *free;
            let word = (*current << *free | code >> rest) as u16;
            out[words[0]..words[0] + 2].copy_from_slice(&word.to_le_bytes());
            words[0] = words[1];
            words[1] = out.len();
            out.extend([0; 2]);
            *current = code & ((1 << rest) - 1);
            *free = 16 - rest;
        }
        fn flush(out: &mut [u8], words: [usize; 2], current: u32, free: u32) {
            let word = (current << free) as u16;
            out[words[0]..words[0] + 2].copy_from_slice(&word.to_le_bytes());
        }
        let mut in_block = 0;
        for token in tokens(input, 65535, usize::MAX) {
            if written >= 1 << 16 {
                if written != usize::MAX {
                    flush(&mut out, words, current, free);
                }
                out.extend((0..256).map(|n| lengths[2 * n] | lengths[2 * n + 1] << 4));
                words = [out.len(), out.len() + 2];
                out.extend([0; 4]);
                (current, free, in_block) = (0, 16, 0);
            }
            match token {
                Token::Literal(byte) => {
                    let symbol = usize::from(byte);
                    put(&mut out, &mut words, &mut current, &mut free, codes[symbol], u32::from(lengths[symbol]));
                    in_block += 1;
                }
                Token::Match(distance, length) => {
                    let offset_bits = distance.ilog2();
                    let short = (length - 3).min(15);
                    let symbol = 256 + ((offset_bits as usize) << 4 | short);
                    put(&mut out, &mut words, &mut current, &mut free, codes[symbol], u32::from(lengths[symbol]));
                    if short == 15 {
                        extend_length(&mut out, length - 3, 15);
                    }
                    put(
                        &mut out,
                        &mut words,
                        &mut current,
                        &mut free,
                        distance as u32 - (1 << offset_bits),
                        offset_bits,
                    );
                    in_block += length;
                }
            }
            written = in_block;
        }
        flush(&mut out, words, current, free);
        out
    }

    fn compress_lznt1(input: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        for chunk in input.chunks(4096) {
            let (mut body, mut flags_at, mut count, mut at) = (Vec::new(), 0, 8, 0);
            // matches short enough for the narrowest length field
            for token in tokens(chunk, 4096, 18) {
                if count == 8 {
                    flags_at = body.len();
                    body.push(0_u8);
                    count = 0;
                }
                let bits = (4..=12).rev().find(|m| 1_usize << (m - 1) < at).unwrap_or(4);
                match token {
                    Token::Match(distance, length) => {
                        body[flags_at] |= 1 << count;
                        body.extend((((distance - 1) << (16 - bits) | (length - 3)) as u16).to_le_bytes());
                        at += length;
                    }
                    Token::Literal(byte) => {
                        body.push(byte);
                        at += 1;
                    }
                }
                count += 1;
            }
            let (header, body) = if body.len() < chunk.len() { (0xb000, &body[..]) } else { (0x3000, chunk) };
            out.extend((header | (body.len() - 1) as u16).to_le_bytes());
            out.extend(body);
        }
        out
    }

    #[track_caller]
    fn round_trips(input: &[u8]) {
        let size = input.len();
        assert!(whole(Algorithm::LZ77, &compress_lz77(input), size).unwrap() == input);
        assert!(whole(Algorithm::LZNT1, &compress_lznt1(input), size).unwrap() == input);
        assert!(whole(Algorithm::LZ77_HUFFMAN, &compress_huffman(input, false), size).unwrap() == input);
        assert!(whole(Algorithm::LZ77_HUFFMAN, &compress_huffman(input, true), size).unwrap() == input);
        assert!(whole(Algorithm::LZ4, &lz4_flex::block::compress(input), size).unwrap() == input);
    }

    #[test]
    fn long_inputs_read_back() {
        round_trips(&vec![7; 300_000]);
        // letters that seldom repeat over several blocks, then a stretch that does, over the end of a block
        let mut state = 1_u32;
        let mut noise = |n: usize| -> Vec<u8> {
            (0..n)
                .map(|_| {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (state >> 24) as u8
                })
                .collect()
        };
        let mut input = noise(100_000);
        input.extend(MELODY.repeat(500));
        input.extend(noise(70_000));
        round_trips(&input);
        round_trips(&input.iter().map(|b| b'a' + b % 6).collect::<Vec<u8>>());
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

        #[test]
        fn what_was_compressed_reads_back(words in proptest::collection::vec(proptest::collection::vec(b'a'..=b'h', 1..9), 0..8),
                                          order in proptest::collection::vec(0_usize..8, 0..200)) {
            let input: Vec<u8> = order.iter().filter_map(|n| words.get(*n)).flatten().copied().collect();
            if !input.is_empty() {
                round_trips(&input);
            }
        }

        #[test]
        fn arbitrary_bytes_stay_in_bounds(mut bytes in proptest::collection::vec(any::<u8>(), 0..600), table in any::<bool>(), limit in 0_usize..5000) {
            if table && bytes.len() > 256 {
                bytes[..256].fill(0x99);
            }
            for algorithm in ALL {
                let mut output = vec![1, 2];
                let result = decompress(algorithm, &bytes, &mut output, limit);
                prop_assert!(output.len() <= 2 + limit);
                prop_assert!(result.map_or_else(|e| e.at <= bytes.len(), |()| true));
            }
        }

        #[test]
        fn arbitrary_messages_stay_in_bounds(algorithm in 0_u16..7, flags in 0_u16..2, claim in 0_u32..6000, next in 0_u32..40, rest in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut message = PROTOCOL_ID.to_vec();
            message.extend(claim.to_le_bytes());
            message.extend(algorithm.to_le_bytes());
            message.extend(flags.to_le_bytes());
            message.extend(next.to_le_bytes());
            message.extend(&rest);
            let mut output = Vec::new();
            let result = decompress_message(&message, &mut output, 5000);
            prop_assert!(output.len() <= 5000);
            prop_assert!(result.map_or_else(|e| e.at <= message.len(), |()| true));
        }
    }
}
