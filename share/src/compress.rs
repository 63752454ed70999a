//! Compresses changed messages again to their previous length: \[MS-XCA\] 2.3 (Plain LZ77), 2.5 (LZNT1), the LZ4 block
//! format, Pattern_V1 and uncompressed payloads. No length around the message changes.
//!
//! The result is `None` if the changed message does not fit. LZ77+Huffman is not supported.

use rdmascope_dissector::wire::smb2::compression::{self, Algorithm};

/// Length of the header of an unchained message.
const UNCHAINED: usize = compression::UNCHAINED_HEADER_LEN;
/// Ends of the range for matches on either side of the best one that are tried to reach a length exactly.
const TRIES: usize = 8;
/// Beginnings of that range that are tried, from the first byte on: they have to lie where matches are, to differ.
const STARTS: usize = 16;

/// Compresses `plain` to the form and length of the compressed `message`.
pub(crate) fn again(message: &[u8], plain: &[u8]) -> Option<Vec<u8>> {
    let flags = le16(message, 10)?;
    let made = if flags & compression::FLAG_CHAINED != 0 { chain(message, plain)? } else { single(message, plain)? };
    // verify that it decompresses to `plain`
    let mut read = Vec::new();
    compression::decompress_message(&made, &mut read, plain.len()).ok()?;
    (made.len() == message.len() && read == plain).then_some(made)
}

fn single(message: &[u8], plain: &[u8]) -> Option<Vec<u8>> {
    let offset = le32(message, 12)? as usize;
    let (as_it_is, rest) = plain.split_at_checked(offset)?;
    let length = message.len().checked_sub(UNCHAINED.checked_add(offset)?)?;
    let mut made = message.get(..UNCHAINED)?.to_vec();
    made.extend_from_slice(as_it_is);
    made.extend(exact(Algorithm(le16(message, 8)?), rest, length)?);
    Some(made)
}

fn chain(message: &[u8], plain: &[u8]) -> Option<Vec<u8>> {
    let mut made = message.get(..8)?.to_vec();
    let (mut at, mut done) = (8, 0);
    while done < plain.len() {
        let algorithm = Algorithm(le16(message, at)?);
        let length = le32(message, at + 4)? as usize;
        let payload = message.get(at + 8..)?.get(..length)?;
        let (told, size) = match algorithm {
            Algorithm::NONE => (0, length),
            Algorithm::PATTERN_V1 => (0, le32(payload, 4)? as usize),
            _ => (4, le32(payload, 0)? as usize),
        };
        let part = plain.get(done..)?.get(..size)?;
        made.extend_from_slice(message.get(at..at + 8 + told)?);
        made.extend(exact(algorithm, part, length.checked_sub(told)?)?);
        (at, done) = (at + 8 + length, done + size);
    }
    Some(made)
}

/// Compresses `plain` to exactly `length` bytes.
fn exact(algorithm: Algorithm, plain: &[u8], length: usize) -> Option<Vec<u8>> {
    match algorithm {
        Algorithm::NONE => (plain.len() == length).then(|| plain.to_vec()),
        Algorithm::PATTERN_V1 => {
            let pattern = *plain.first().filter(|first| plain.iter().all(|b| b == *first))?;
            let mut made = vec![pattern, 0, 0, 0];
            made.extend_from_slice(&u32::try_from(plain.len()).ok()?.to_le_bytes());
            padded(made, length)
        }
        // a chunk header of zero ends it
        Algorithm::LZNT1 => padded(lznt1(plain), length),
        // decompression ignores bytes after the last one
        Algorithm::LZ77 => fitted(plain, length, lz77).or_else(|| padded(lz77(plain, 0, plain.len()), length)),
        Algorithm::LZ4 => fitted(plain, length, lz4),
        _ => None,
    }
}

/// Compresses `plain` to any length.
pub(crate) fn plainly(algorithm: Algorithm, plain: &[u8]) -> Vec<u8> {
    match algorithm {
        Algorithm::LZ77 => lz77(plain, 0, plain.len()),
        Algorithm::LZNT1 => lznt1(plain),
        Algorithm::LZ4 => lz4(plain, 0, plain.len()),
        _ => plain.to_vec(),
    }
}

fn padded(mut made: Vec<u8>, length: usize) -> Option<Vec<u8>> {
    (made.len() <= length).then(|| {
        made.resize(length, 0);
        made
    })
}

/// Compresses less well until the length fits: `compress` searches for matches only between two offsets.
fn fitted(plain: &[u8], length: usize, compress: fn(&[u8], usize, usize) -> Vec<u8>) -> Option<Vec<u8>> {
    for from in (0..STARTS).map(|n| plain.len() * n / STARTS) {
        // a larger range for matches gives a shorter result
        let (mut low, mut high) = (from, plain.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if compress(plain, from, middle).len() <= length { high = middle } else { low = middle + 1 }
        }
        for to in low.saturating_sub(TRIES).max(from)..(low + TRIES).min(plain.len() + 1) {
            let made = compress(plain, from, to);
            if made.len() == length {
                return Some(made);
            }
        }
    }
    None
}

/// Matches at a distance of up to `farthest`; greedy, and only before `to`.
struct Matches<'a> {
    plain: &'a [u8],
    last: std::collections::HashMap<[u8; 3], usize>,
    farthest: usize,
    to: usize,
}

impl<'a> Matches<'a> {
    fn new(plain: &'a [u8], farthest: usize, to: usize) -> Self {
        Self { plain, last: std::collections::HashMap::new(), farthest, to }
    }

    fn note(&mut self, at: usize) {
        if let Some(start) = self.plain.get(at..).and_then(<[u8]>::first_chunk::<3>) {
            self.last.insert(*start, at);
        }
    }

    /// Distance and length of a match of at least `least` bytes.
    fn find(&self, at: usize, least: usize, most: usize) -> Option<(usize, usize)> {
        let start = self.plain.get(at..)?.first_chunk::<3>()?;
        let from = *self.last.get(start).filter(|from| at - **from <= self.farthest)?;
        let here = &self.plain[at..self.to.max(at).min(self.plain.len())];
        let length = here.iter().zip(&self.plain[from..]).take(most).take_while(|(a, b)| a == b).count();
        (length >= least).then_some((at - from, length))
    }
}

/// Plain LZ77: 32 flags precede their tokens, from the highest bit; two lengths share the halves of a byte.
fn lz77(plain: &[u8], from: usize, to: usize) -> Vec<u8> {
    let mut out = vec![0; 4];
    let (mut flags, mut count, mut place) = (0_u32, 0, 0);
    let mut half: Option<usize> = None;
    let mut matches = Matches::new(plain, 1 << 13, to);
    let mut at = 0;
    while at < plain.len() {
        let found = if at >= from && at < to { matches.find(at, 3, 1 << 20) } else { None };
        let step = match found {
            None => {
                out.push(plain[at]);
                1
            }
            Some((distance, length)) => {
                let less = length - 3;
                out.extend_from_slice(&(((distance - 1) << 3 | less.min(7)) as u16).to_le_bytes());
                if less >= 7 {
                    let nibble = (less - 7).min(15) as u8;
                    match half.take() {
                        Some(byte) => out[byte] |= nibble << 4,
                        None => {
                            half = Some(out.len());
                            out.push(nibble);
                        }
                    }
                    if less >= 7 + 15 {
                        match less - 22 {
                            n @ ..255 => out.push(n as u8),
                            _ if less < 1 << 16 => {
                                out.push(255);
                                out.extend_from_slice(&(less as u16).to_le_bytes());
                            }
                            _ => {
                                out.extend_from_slice(&[255, 0, 0]);
                                out.extend_from_slice(&(less as u32).to_le_bytes());
                            }
                        }
                    }
                }
                flags |= 1 << (31 - count);
                length
            }
        };
        (at..at + step).for_each(|n| matches.note(n));
        at += step;
        count += 1;
        if count == 32 {
            out[place..place + 4].copy_from_slice(&flags.to_le_bytes());
            (flags, count, place) = (0, 0, out.len());
            out.extend_from_slice(&[0; 4]);
        }
    }
    // a match at the end of the data ends it
    flags |= u32::MAX >> count;
    out[place..place + 4].copy_from_slice(&flags.to_le_bytes());
    out
}

/// LZNT1: chunks of 4096 bytes, each compressed if that is shorter.
fn lznt1(plain: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for chunk in plain.chunks(4096) {
        let mut made = Vec::new();
        let mut matches = Matches::new(chunk, 4096, chunk.len());
        let (mut at, mut count, mut place) = (0, 8, 0);
        while at < chunk.len() {
            if count == 8 {
                (count, place) = (0, made.len());
                made.push(0);
            }
            let displacement = (usize::BITS - at.saturating_sub(1).leading_zeros()).clamp(4, 12);
            let length_bits = 16 - displacement;
            let step = match matches.find(at, 3, (1 << length_bits) + 2) {
                Some((distance, length)) => {
                    made.extend_from_slice(&(((distance - 1) << length_bits | (length - 3)) as u16).to_le_bytes());
                    made[place] |= 1 << count;
                    length
                }
                None => {
                    made.push(chunk[at]);
                    1
                }
            };
            (at..at + step).for_each(|n| matches.note(n));
            (at, count) = (at + step, count + 1);
        }
        let (is_compressed, body) = if made.len() < chunk.len() { (0x8000, &made[..]) } else { (0, chunk) };
        out.extend_from_slice(&(is_compressed | 0x3000 | (body.len() - 1) as u16).to_le_bytes());
        out.extend_from_slice(body);
    }
    out
}

/// An LZ4 block: alternating literals and matches. The last five bytes are literals, and no match begins in the last
/// twelve.
fn lz4(plain: &[u8], from: usize, to: usize) -> Vec<u8> {
    fn long(mut n: usize, out: &mut Vec<u8>) {
        while n >= 255 {
            out.push(255);
            n -= 255;
        }
        out.push(n as u8);
    }
    let mut out = Vec::new();
    let mut sequence = |literals: &[u8], found: Option<(usize, usize)>| {
        let more = found.map_or(0, |(_, length)| length - 4);
        out.push((literals.len().min(15) << 4 | more.min(15)) as u8);
        if literals.len() >= 15 {
            long(literals.len() - 15, &mut out);
        }
        out.extend_from_slice(literals);
        if let Some((distance, _)) = found {
            out.extend_from_slice(&(distance as u16).to_le_bytes());
            if more >= 15 {
                long(more - 15, &mut out);
            }
        }
    };
    let mut matches = Matches::new(plain, 0xffff, to.min(plain.len().saturating_sub(5)));
    let (mut at, mut begun) = (0, 0);
    while at < plain.len() {
        let may = at >= from && at < to && at + 12 <= plain.len();
        let step = match if may { matches.find(at, 4, usize::MAX) } else { None } {
            Some((distance, length)) => {
                sequence(&plain[begun..at], Some((distance, length)));
                begun = at + length;
                length
            }
            None => 1,
        };
        (at..at + step).for_each(|n| matches.note(n));
        at += step;
    }
    sequence(&plain[begun..], None);
    out
}

fn le16(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|b| u16::from_le_bytes(*b))
}

fn le32(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|b| u32::from_le_bytes(*b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn message(algorithm: Algorithm, offset: usize, plain: &[u8], body: &[u8]) -> Vec<u8> {
        let mut made = compression::PROTOCOL_ID.to_vec();
        made.extend_from_slice(&((plain.len() - offset) as u32).to_le_bytes());
        made.extend_from_slice(&algorithm.0.to_le_bytes());
        made.extend_from_slice(&[0; 2]);
        made.extend_from_slice(&(offset as u32).to_le_bytes());
        made.extend_from_slice(&plain[..offset]);
        made.extend_from_slice(body);
        made
    }

    /// True if a message in which one name was replaced by another of its length, and the contents by zeros, can be
    /// compressed to its previous length: the zeros leave the room that the other name may need.
    fn fits(algorithm: Algorithm, name: &str, other: &str, zeros: usize, offset: usize) -> bool {
        let say = |name: &str| {
            let mut plain: Vec<u8> = (0..64u8).collect();
            for _ in 0..3 {
                plain.extend(name.encode_utf16().flat_map(u16::to_le_bytes));
                plain.extend_from_slice(b"\\\0");
            }
            plain
        };
        let contents: Vec<u8> = (0..zeros).map(|n| (n * n / 3) as u8).collect();
        let was = [say(name), contents].concat();
        let is = [say(other), vec![0; zeros]].concat();
        let old = message(algorithm, offset, &was, &plainly(algorithm, &was[offset..]));
        again(&old, &is).is_some_and(|made| made.len() == old.len())
    }

    const ALL: [Algorithm; 3] = [Algorithm::LZ77, Algorithm::LZNT1, Algorithm::LZ4];

    proptest! {
        #[test]
        fn what_is_compressed_reads_back(parts in proptest::collection::vec((any::<u8>(), 1..600usize, any::<bool>()), 1..20), long in any::<bool>()) {
            let mut plain: Vec<u8> = Vec::new();
            for (byte, length, is_run) in parts {
                let before = plain.len();
                let next = |n: usize| if is_run || before == 0 { byte } else { plain[(n * 7 + usize::from(byte)) % before] };
                let part: Vec<u8> = (0..length).map(next).collect();
                plain.extend(part);
            }
            if long {
                plain.extend(vec![0; 70_000]);
            }
            for algorithm in ALL {
                let made = plainly(algorithm, &plain);
                let mut read = Vec::new();
                prop_assert!(compression::decompress(algorithm, &made, &mut read, plain.len()).is_ok(), "{}", algorithm);
                prop_assert_eq!(&read, &plain, "{}", algorithm);
            }
        }

        #[test]
        fn names_that_were_replaced_fit_where_the_old_ones_were(name in "[a-z]{8,30}", other in "[a-z]{30}", zeros in 64..5000usize, offset in 0..60usize) {
            for algorithm in ALL {
                prop_assert!(fits(algorithm, &name, &other[..name.len()], zeros, offset), "{}", algorithm);
            }
        }
    }

    /// One match more makes the block too short, and one less too long: the range has to begin elsewhere.
    #[test]
    fn a_length_that_the_last_match_cannot_make_is_made_by_another() {
        assert!(fits(Algorithm::LZ4, "aabacadaeabbcbdbebfaf", "aiyiaajcabbcyibdbacbe", 269, 0));
    }

    #[test]
    fn a_chain_keeps_its_links() {
        let (name, zeros) = (b"secretsecretsecret!!".to_vec(), vec![7; 300]);
        let lz = lz77(&zeros, 0, 300);
        let mut old = compression::PROTOCOL_ID.to_vec();
        old.extend_from_slice(&(20 + 300 + 50_u32).to_le_bytes());
        for (n, (algorithm, told, body)) in [
            (Algorithm::NONE, None, name),
            (Algorithm::LZ77, Some(300_u32), lz),
            (Algorithm::PATTERN_V1, None, vec![9, 0, 0, 0, 50, 0, 0, 0]),
        ]
        .into_iter()
        .enumerate()
        {
            old.extend_from_slice(&algorithm.0.to_le_bytes());
            old.extend_from_slice(&[u8::from(n == 0), 0]);
            old.extend_from_slice(&(body.len() as u32 + told.map_or(0, |_| 4)).to_le_bytes());
            old.extend(told.map(u32::to_le_bytes).into_iter().flatten());
            old.extend_from_slice(&body);
        }
        let is = [b"abcdefabcdefabcdef!!".to_vec(), vec![0; 300], vec![0; 50]].concat();
        let made = again(&old, &is).unwrap();
        assert_eq!((made.len(), &made[..16]), (old.len(), &old[..16]));
        let mut uneven = is;
        uneven[340] = 1;
        assert_eq!(again(&old, &uneven), None, "a pattern has one byte");
        assert_eq!(again(&old[..20], &[]), None);
        assert_eq!(again(b"", b""), None);
    }
}
