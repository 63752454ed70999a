//! A keyed, stateless, one-to-one mapping of everything that could identify somebody.
//!
//! A value is split into digits of mixed radix (the letters of a name, the halves of its bytes). A Feistel network over
//! the digits, keyed by HMAC-SHA-256, maps it to another value of the same form (the idea of NIST SP 800-38G; more
//! rounds, one key). So equal values stay equal and different ones different. Values are cached only for speed.
//!
//! | what | kept | replaced |
//! | --- | --- | --- |
//! | MAC | group and local bits; group addresses, all zeros | the rest |
//! | IPv4 | private prefixes, special addresses; common prefixes of 8 bits and more stay common | the rest |
//! | IPv6, GID | prefixes that say what an address is for; common prefixes stay common | the rest |
//! | names | length in every encoding, case, separators, well-known names, known extensions | letters and digits |
//! | SID | what it is for, well-known ones | the machine's or domain's part, the account |
//! | ids, secrets | length, all zeros, all ones | the bytes |

use aes::Aes128;
use aes::cipher::BlockCipherEncrypt;
use ghash::GHash;
use ghash::universal_hash::UniversalHash;
use hashbrown::HashMap;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Rounds of the Feistel network.
const ROUNDS: u8 = 8;
/// Limit of cached values.
const REMEMBERED: usize = 1 << 16;
/// Length of the longest cached value.
const REMEMBERED_BYTES: usize = 256;
/// Secrets from this length on become pseudorandom bytes: collisions are practically impossible.
const SECRET: usize = 16;
/// Length of the longest value that is mapped one to one. Longer ones are mapped in parts of this length.
const LONGEST: usize = 1 << 12;

/// Kind of a value: equal bytes of different kinds have different replacements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
enum Domain {
    Mac = 1,
    V4,
    V6,
    Name,
    Id,
    Number,
    Stream,
    Memory,
    Name8,
    Name16,
}

impl Domain {
    /// Number of kinds, and one unused place.
    const COUNT: usize = Self::Name16 as usize + 1;
}

/// Derives pseudorandom bytes from data: the encrypted universal hash of the data is the first counter of AES in
/// counter mode. Equal data gives equal bytes; different data gives different bytes except with a probability of 2^-100
/// (the construction of AES-GCM-SIV, RFC 8452).
#[derive(Clone)]
pub(crate) struct Stream {
    hash: GHash,
    begin: Aes128,
    cipher: Aes128,
}

impl std::fmt::Debug for Stream {
    /// Does not show the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Stream")
    }
}

impl Stream {
    /// Blocks that are encrypted at once.
    const BLOCKS: usize = 8;

    fn new(key: impl Fn(u8) -> [u8; 16]) -> Self {
        Self {
            hash: GHash::new(&key(0).into()),
            begin: Aes128::new(&key(1).into()),
            cipher: Aes128::new(&key(2).into()),
        }
    }

    pub(crate) fn fill(&self, was: &[u8], to: &mut [u8]) {
        let mut hash = self.hash.clone();
        hash.update_padded(was);
        let mut length = [0; 16];
        length[..8].copy_from_slice(&(was.len() as u64).to_le_bytes());
        hash.update_padded(&length);
        let mut first = aes::Block::from(<[u8; 16]>::from(hash.finalize()));
        self.begin.encrypt_block(&mut first);
        let mut counter = u128::from_le_bytes(first.into());
        for piece in to.chunks_mut(16 * Self::BLOCKS) {
            let mut blocks = [aes::Block::default(); Self::BLOCKS];
            for block in &mut blocks {
                *block = counter.to_le_bytes().into();
                counter = counter.wrapping_add(1);
            }
            self.cipher.encrypt_blocks(&mut blocks);
            for (to, block) in piece.chunks_mut(16).zip(&blocks) {
                to.copy_from_slice(&block[..to.len()]);
            }
        }
    }
}

/// Values with their replacements.
type Known = HashMap<Box<[u8]>, Box<[u8]>>;

/// A keyed mapping.
pub struct Mapping {
    key: Hmac<Sha256>,
    stream: Stream,
    /// Cached values with their replacements, by kind.
    known: [Known; Domain::COUNT],
}

impl std::fmt::Debug for Mapping {
    /// Does not show the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Mapping {{ known: {} }}", self.known.iter().map(Known::len).sum::<usize>())
    }
}

/// Names that are the same everywhere, in lower case.
const WELL_KNOWN: &[&str] = &[
    "ipc$",
    "admin$",
    "print$",
    "netlogon",
    "sysvol",
    "srvsvc",
    "wkssvc",
    "lsarpc",
    "samr",
    "netdfs",
    "spoolss",
    "svcctl",
    "winreg",
    "root",
    "nobody",
    "localhost",
    "cifs",
    "nfs",
    "smb",
    "everyone",
];

/// Extensions that only tell a file format, in lower case.
const EXTENSIONS: &[&str] = &[
    "7z", "accdb", "avi", "avhd", "avhdx", "bak", "bat", "bin", "bmp", "bz2", "c", "cab", "cfg", "cmd", "conf", "cpp",
    "csv", "dat", "db", "dll", "doc", "docx", "edb", "eps", "exe", "gif", "gz", "h", "hpp", "htm", "html", "ico",
    "img", "ini", "iso", "jar", "java", "jpeg", "jpg", "js", "json", "key", "ldb", "ldf", "lnk", "log", "lz4", "mdb",
    "mdf", "md", "mkv", "mov", "mp3", "mp4", "msi", "ndf", "o", "odt", "parquet", "pdf", "pl", "png", "ppt", "pptx",
    "ps1", "pst", "py", "qcow2", "raw", "rpm", "rs", "rtf", "sh", "so", "sql", "sqlite", "svg", "swp", "sys", "tar",
    "tgz", "tif", "tiff", "tmp", "txt", "vdi", "vhd", "vhdx", "vmcx", "vmdk", "vmem", "vmrs", "vmsn", "wav", "xls",
    "xlsx", "xml", "xz", "yaml", "yml", "zip", "zst",
];

fn prf(key: &Hmac<Sha256>, domain: Domain, parts: &[&[u8]]) -> [u8; 32] {
    let mut mac = key.clone();
    mac.update(&[domain as u8]);
    for part in parts {
        mac.update(&(part.len() as u32).to_le_bytes());
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

impl Mapping {
    /// The mapping of a key.
    pub fn new(key: &[u8]) -> Self {
        // HMAC accepts keys of any length
        let key = Hmac::new_from_slice(key).unwrap_or_else(|_| Hmac::new(&Default::default()));
        let part = |n: u8| {
            let made = prf(&key, Domain::Stream, &[&[n]]);
            made.first_chunk().copied().unwrap_or_default()
        };
        let stream = Stream::new(part);
        Self { key, stream, known: Default::default() }
    }

    fn prf(&self, domain: Domain, parts: &[&[u8]]) -> [u8; 32] {
        prf(&self.key, domain, parts)
    }

    /// Replaces digits one to one. `radix[i]` is the number of values of digit `i`, at most 65,536. Digits with a
    /// single value stay.
    fn shuffle(&self, domain: Domain, digits: &mut [u16], radix: &[u32]) {
        let tweak: Vec<u8> = radix.iter().flat_map(|r| (*r as u16).to_le_bytes()).collect();
        if let ([digit], [radix]) = (&mut *digits, radix) {
            // a single digit has no halves: a permutation of its values by rank
            *digit = self.permuted(domain, *digit, *radix);
            return;
        }
        let middle = digits.len() / 2;
        for round in 0..ROUNDS {
            let (left, right) = digits.split_at_mut(middle);
            let (change, by, radix) =
                if round % 2 == 0 { (left, right, &radix[..middle]) } else { (right, left, &radix[middle..]) };
            let by: Vec<u8> = by.iter().flat_map(|d| d.to_le_bytes()).collect();
            let mut block = [0; 32];
            for (i, (digit, radix)) in change.iter_mut().zip(radix).enumerate() {
                if i % 8 == 0 {
                    block = self.prf(domain, &[&tweak, &[round], &(i as u32).to_le_bytes(), &by]);
                }
                let at = i % 8 * 4;
                let add = u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]]);
                *digit = ((u64::from(*digit) + u64::from(add)) % u64::from((*radix).max(1))) as u16;
            }
        }
    }

    fn permuted(&self, domain: Domain, digit: u16, radix: u32) -> u16 {
        let order = |d: u32| self.prf(domain, &[&radix.to_le_bytes(), &d.to_le_bytes()]);
        // small radixes occur alone: letters, digits, bytes
        if radix > 1 << 10 {
            return digit;
        }
        let mine = order(u32::from(digit));
        (0..radix).filter(|d| order(*d) < mine).count() as u16
    }

    /// Replaces bytes by the result of `make`, of the same length, which is cached.
    fn remembered(&mut self, domain: Domain, bytes: &mut [u8], make: impl FnOnce(&mut Self, &mut [u8])) {
        if bytes.len() > REMEMBERED_BYTES {
            return make(self, bytes);
        }
        if let Some(known) = self.known[domain as usize].get(&*bytes) {
            bytes.copy_from_slice(known);
            return;
        }
        let was: Box<[u8]> = (&*bytes).into();
        make(self, bytes);
        let known = &mut self.known[domain as usize];
        if known.len() >= REMEMBERED {
            known.clear();
        }
        known.insert(was, (&*bytes).into());
    }

    /// An identifier. All zeros and all ones have a meaning and stay.
    pub fn id(&mut self, bytes: &mut [u8]) {
        for piece in bytes.chunks_mut(LONGEST) {
            if piece.iter().all(|b| *b == 0) || piece.iter().all(|b| *b == 0xff) {
                continue;
            }
            self.remembered(Domain::Id, piece, |map, piece| {
                let mut digits: Vec<u16> = piece.iter().map(|b| u16::from(*b)).collect();
                let radix = vec![256; digits.len()];
                // zeros and ones have a meaning: map them once more
                loop {
                    map.shuffle(Domain::Id, &mut digits, &radix);
                    if digits.iter().any(|d| *d != 0) && digits.iter().any(|d| *d != 0xff) {
                        break;
                    }
                }
                piece.iter_mut().zip(digits).for_each(|(byte, digit)| *byte = digit as u8);
            });
        }
    }

    /// A hash, a signature or a key: writes the replacement of `was` to `to`. Long ones rarely repeat and are not
    /// cached.
    pub fn secret(&mut self, was: &[u8], to: &mut [u8]) {
        let means_something = was.iter().all(|b| *b == 0) || was.iter().all(|b| *b == 0xff);
        if was.len() < SECRET || means_something {
            to.copy_from_slice(was);
            return self.id(to);
        }
        self.stream(was, to);
    }

    /// A hardware address: six bytes, or eight as an EUI-64.
    pub fn mac(&mut self, bytes: &mut [u8]) {
        if bytes.len() < 3 || bytes[0] & 1 == 1 || bytes.iter().all(|b| *b == 0) {
            return;
        }
        self.remembered(Domain::Mac, bytes, |map, bytes| {
            let bits = bytes[0] & 3;
            let mut digits = vec![u16::from(bytes[0] >> 2)];
            digits.extend(bytes[1..].iter().map(|b| u16::from(*b)));
            let mut radix = vec![256; digits.len()];
            radix[0] = 64;
            map.shuffle(Domain::Mac, &mut digits, &radix);
            bytes.iter_mut().zip(digits).for_each(|(byte, digit)| *byte = digit as u8);
            bytes[0] = bytes[0] << 2 | bits;
        });
    }

    /// A network address of four or sixteen bytes; any other length is mapped as an identifier.
    pub fn address(&mut self, bytes: &mut [u8]) {
        match bytes.len() {
            4 => self.remembered(Domain::V4, bytes, |map, bytes| {
                let made = map.v4([bytes[0], bytes[1], bytes[2], bytes[3]]);
                bytes.copy_from_slice(&made);
            }),
            16 => self.remembered(Domain::V6, bytes, |map, bytes| {
                let mut address = [0; 16];
                address.copy_from_slice(bytes);
                bytes.copy_from_slice(&map.v6(address));
            }),
            _ => self.id(bytes),
        }
    }

    fn v4(&self, address: [u8; 4]) -> [u8; 4] {
        // number of bits that tell the address's purpose
        let kept = match address {
            [0 | 127 | 224..=255, ..] => return address,
            [10, ..] => 8,
            [100, b, ..] if b & 0xc0 == 64 => 10,
            [172, b, ..] if b & 0xf0 == 16 => 12,
            [169, 254, ..] | [192, 168, ..] => 16,
            _ => 0,
        };
        if kept > 0 {
            let mut made = address;
            self.prefixes(Domain::V4, &mut made, kept);
            return made;
        }
        // a public address stays public: its first byte is permuted among those without a special purpose
        let public = |b: &u8| !matches!(b, 0 | 10 | 100 | 127 | 169 | 172 | 192 | 224..);
        let mut made = address;
        let is_plain = public(&address[0]);
        if is_plain {
            let ranks: Vec<u8> = (1..224).filter(public).collect();
            let rank = ranks.iter().position(|b| *b == address[0]).unwrap_or(0);
            made[0] = ranks[usize::from(self.permuted(Domain::V4, rank as u16, ranks.len() as u32))];
        }
        // the following bits depend on the original first bytes
        let mut rest = address;
        if !is_plain {
            // 100, 169, 172 and 192 have private ranges: other addresses stay outside of them
            let public = |b: &u8| !matches!((address[0], b), (100, 64..128) | (169, 254) | (172, 16..32) | (192, 168));
            let ranks: Vec<u8> = (0..=255).filter(public).collect();
            let rank = ranks.iter().position(|b| *b == address[1]).unwrap_or(0);
            made[1] = ranks[usize::from(self.permuted(Domain::V4, rank as u16, ranks.len() as u32))];
            self.prefixes(Domain::V4, &mut rest, 16);
            made[2..].copy_from_slice(&rest[2..]);
        } else {
            self.prefixes(Domain::V4, &mut rest, 8);
            made[1..].copy_from_slice(&rest[1..]);
        }
        made
    }

    fn v6(&self, address: [u8; 16]) -> [u8; 16] {
        let mut made = address;
        match address {
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, mapped @ (0 | 0xff), other, a, b, c, d] if mapped == other => {
                // ::, ::1, IPv4 in IPv6
                if mapped == 0 && [a, b, c] == [0; 3] {
                    return address;
                }
                made[12..].copy_from_slice(&self.v4([a, b, c, d]));
            }
            // solicited-node groups contain the end of an address
            [0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, ..] => {
                let mut digits = [u16::from(address[13]), u16::from(address[14]), u16::from(address[15])];
                self.shuffle(Domain::V6, &mut digits, &[256; 3]);
                for (byte, digit) in made[13..].iter_mut().zip(digits) {
                    *byte = digit as u8;
                }
            }
            // an IPv4 address in a group address of RoCE is itself a group: it stays
            [0xff, ..] => {}
            [0xfe, b, ..] if b & 0xc0 == 0x80 => self.prefixes(Domain::V6, &mut made, 64),
            [0xfc | 0xfd, ..] => self.prefixes(Domain::V6, &mut made, 8),
            [b, ..] if b & 0xe0 == 0x20 => self.prefixes(Domain::V6, &mut made, 3),
            _ => self.prefixes(Domain::V6, &mut made, 8),
        }
        made
    }

    /// Flips each bit depending on the bits before it: common prefixes keep their length (the idea of Crypto-PAn).
    fn prefixes(&self, domain: Domain, address: &mut [u8], kept: usize) {
        let before: Vec<u8> = address.to_vec();
        for bit in kept..address.len() * 8 {
            let mut prefix = before[..bit / 8].to_vec();
            prefix.push(before[bit / 8] & !(0xffu8 >> (bit % 8)));
            let turn = self.prf(domain, &[&(bit as u32).to_le_bytes(), &prefix])[0] & 1;
            address[bit / 8] ^= turn << (7 - bit % 8);
        }
    }

    /// A user or group number. 0 (root) and the highest numbers (nobody) stay.
    pub fn user(&mut self, bytes: &mut [u8], big_endian: bool) {
        let number = bytes.iter().enumerate().fold(0u64, |n, (i, b)| {
            let shift = if big_endian { bytes.len() - 1 - i } else { i };
            if shift < 8 { n | u64::from(*b) << (8 * shift) } else { n }
        });
        if bytes.len() <= 8 && (number == 0 || matches!(number, 65534 | 65535 | 0xffff_fffe | 0xffff_ffff)) {
            return;
        }
        self.number(bytes);
    }

    /// A remote key. 0 and all ones stay.
    pub fn remote_key(&self, key: u32) -> u32 {
        self.turned(b"key", key)
    }

    /// A memory address. Only its upper 32 bits change, so that a buffer stays contiguous.
    pub fn memory(&self, address: u64) -> u64 {
        u64::from(self.turned(b"address", (address >> 32) as u32)) << 32 | address & 0xffff_ffff
    }

    /// One to one. A value whose replacement would be 0 or all ones stays.
    fn turned(&self, what: &[u8], value: u32) -> u32 {
        let [a, b, c, d, ..] = self.prf(Domain::Memory, &[what]);
        let made = value ^ u32::from_le_bytes([a, b, c, d]);
        if matches!(value, 0 | u32::MAX) || matches!(made, 0 | u32::MAX) { value } else { made }
    }

    fn number(&mut self, bytes: &mut [u8]) {
        self.remembered(Domain::Number, bytes, |map, bytes| {
            let mut digits: Vec<u16> = bytes.iter().map(|b| u16::from(*b)).collect();
            map.shuffle(Domain::Number, &mut digits, &vec![256; bytes.len()]);
            bytes.iter_mut().zip(digits).for_each(|(byte, digit)| *byte = digit as u8);
        });
    }

    /// A SID in wire format, \[MS-DTYP\] 2.4.2.2.
    pub fn sid(&mut self, bytes: &mut [u8]) {
        let Some((head, subs)) = bytes.split_at_mut_checked(8) else { return };
        let authority = head[2..8].iter().fold(0u64, |n, b| n << 8 | u64::from(*b));
        let first = subs.first_chunk::<4>().map_or(0, |b| u32::from_le_bytes(*b));
        let count = subs.len() / 4;
        // a single subauthority tells only the purpose; S-1-5-32 are the builtin groups, S-1-5-80 services, S-1-16
        // integrity levels
        if count < 2 || (authority == 5 && matches!(first, 32 | 80)) || authority == 16 {
            return;
        }
        let is_domain = authority == 5 && first == 21;
        for (place, sub) in subs.chunks_exact_mut(4).enumerate().skip(1) {
            let value = u32::from_le_bytes([sub[0], sub[1], sub[2], sub[3]]);
            // accounts below 1000 are the same in every domain
            if is_domain && place + 1 == count && value < 1000 || value == 0 {
                continue;
            }
            loop {
                self.number(sub);
                if u32::from_le_bytes([sub[0], sub[1], sub[2], sub[3]]) >= 1000 {
                    break;
                }
            }
        }
    }

    /// A name or path in UTF-8, in place. Other bytes are mapped as an identifier.
    pub fn name8(&mut self, bytes: &mut [u8]) {
        self.remembered(Domain::Name8, bytes, |map, bytes| {
            let Ok(text) = std::str::from_utf8(bytes) else { return map.id(bytes) };
            let made = map.name(text);
            if made.len() == bytes.len() {
                bytes.copy_from_slice(made.as_bytes());
            } else {
                map.id(bytes);
            }
        });
    }

    /// A name or path in UTF-16, little-endian, in place.
    pub fn name16(&mut self, bytes: &mut [u8]) {
        self.remembered(Domain::Name16, bytes, |map, bytes| {
            let units: Vec<u16> = bytes.chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]])).collect();
            let Ok(text) = String::from_utf16(&units) else { return map.id(bytes) };
            let made: Vec<u16> = map.name(&text).encode_utf16().collect();
            if made.len() != units.len() {
                return map.id(bytes);
            }
            for (to, unit) in bytes.chunks_exact_mut(2).zip(made) {
                to.copy_from_slice(&unit.to_le_bytes());
            }
            if let [.., last] = bytes.chunks_exact_mut(2).into_remainder() {
                *last = 0;
            }
        });
    }

    /// A name or path. Separators stay; each part between them is mapped alone, regardless of case.
    pub fn name(&mut self, text: &str) -> String {
        let is_separator = |c: char| !c.is_alphanumeric() && c.is_ascii();
        let last_dot = text.rfind('.').filter(|dot| text[dot + 1..].chars().all(char::is_alphanumeric));
        let mut made = String::with_capacity(text.len());
        let (mut i, whole) = (0, text);
        while i < whole.len() {
            let rest = &whole[i..];
            let end = rest.find(is_separator).unwrap_or(rest.len());
            if end == 0 {
                // a separator; a `$` belongs to the part before it, where it was already considered
                let c = rest.chars().next().unwrap_or('.');
                made.push(c);
                i += c.len_utf8();
                continue;
            }
            let part = &rest[..end];
            let lower = part.to_lowercase();
            let with_dollar = rest[end..].starts_with('$') && WELL_KNOWN.contains(&format!("{lower}$").as_str());
            let is_extension =
                last_dot.is_some_and(|dot| dot + 1 == i && dot > 0) && EXTENSIONS.contains(&lower.as_str());
            let keep = with_dollar || is_extension || WELL_KNOWN.contains(&lower.as_str());
            if keep {
                made.push_str(part);
            } else {
                made.push_str(&self.part(part));
            }
            i += end;
        }
        made
    }

    fn part(&mut self, part: &str) -> String {
        let lower: String = part.chars().map(|c| c.to_ascii_lowercase()).collect();
        let mut mapped = lower.into_bytes();
        self.remembered(Domain::Name, &mut mapped, |map, bytes| {
            let lower = String::from_utf8_lossy(bytes).into_owned();
            let mut digits: Vec<u16> = Vec::with_capacity(lower.len());
            let mut classes: Vec<Class> = Vec::with_capacity(lower.len());
            for c in lower.chars() {
                let class = Class::of(c);
                classes.push(class);
                digits.push(((c as u32).saturating_sub(class.first()) % class.radix()) as u16);
            }
            let radix: Vec<u32> = classes.iter().map(|c| c.radix()).collect();
            for (digits, radix) in digits.chunks_mut(LONGEST).zip(radix.chunks(LONGEST)) {
                map.shuffle(Domain::Name, digits, radix);
            }
            let text: String = digits.iter().zip(&classes).map(|(d, class)| class.char(u32::from(*d))).collect();
            // characters keep their lengths
            if text.len() == bytes.len() {
                bytes.copy_from_slice(text.as_bytes());
            }
        });
        let mapped = String::from_utf8(mapped).unwrap_or_default();
        part.chars()
            .zip(mapped.chars())
            .map(|(was, is)| if was.is_ascii_uppercase() { is.to_ascii_uppercase() } else { is })
            .collect()
    }

    /// The generator of pseudorandom bytes.
    pub(crate) fn streams(&self) -> &Stream {
        &self.stream
    }

    /// Replaces bytes by pseudorandom ones that are equal for equal bytes.
    pub fn stream(&self, was: &[u8], to: &mut [u8]) {
        self.stream.fill(was, to);
    }
}

/// Characters that may replace each other: they have the same length in UTF-8 and UTF-16.
#[derive(Clone, Copy)]
enum Class {
    Letter,
    Digit,
    /// Two bytes of UTF-8: replaced by Cyrillic small letters.
    Two,
    /// Three bytes of UTF-8: replaced by CJK ideographs.
    Three,
    /// Four bytes of UTF-8, two units of UTF-16.
    Four,
}

impl Class {
    fn of(c: char) -> Self {
        match c {
            'a'..='z' => Self::Letter,
            '0'..='9' => Self::Digit,
            c if c.len_utf8() == 2 => Self::Two,
            c if c.len_utf8() == 3 => Self::Three,
            c if c.len_utf8() == 4 => Self::Four,
            _ => Self::Letter,
        }
    }

    const fn first(self) -> u32 {
        match self {
            Self::Letter => 'a' as u32,
            Self::Digit => '0' as u32,
            Self::Two => 0x80,
            Self::Three => 0x800,
            Self::Four => 0x1_0000,
        }
    }

    /// Number of characters that stay distinct. No name mixes more scripts than that.
    const fn radix(self) -> u32 {
        match self {
            Self::Letter => 26,
            Self::Digit => 10,
            Self::Two => 0x780,
            Self::Three => 0x5000,
            Self::Four => 0xa000,
        }
    }

    fn char(self, digit: u32) -> char {
        let code = match self {
            Self::Letter | Self::Digit => self.first() + digit,
            Self::Two => 0x80 + digit,
            Self::Three => 0x4e00 + digit % 0x5000,
            Self::Four => 0x2_0000 + digit % 0xa000,
        };
        char::from_u32(code).unwrap_or('x')
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn mapping() -> Mapping {
        Mapping::new(b"a key")
    }

    #[test]
    fn names_keep_their_shape_and_are_distinguished() {
        let mut map = mapping();
        let made = map.name(r"\\Fileserver7\Finance$\Budget 2024\Übersicht.XLSX");
        assert_eq!(made.len(), r"\\Fileserver7\Finance$\Budget 2024\Übersicht.XLSX".len());
        assert!(made.starts_with(r"\\") && made.ends_with(".XLSX") && made.contains('$'), "{made}");
        for secret in ["Fileserver", "Finance", "Budget", "bersicht"] {
            assert!(!made.to_lowercase().contains(&secret.to_lowercase()), "{made}");
        }
        assert_eq!(map.name(r"\\HOST\IPC$").split('\\').nth(3), Some("IPC$"));
        assert_eq!(map.name("AbCd").to_lowercase(), map.name("aBcD").to_lowercase());
        let all: HashSet<String> = ('a'..='z').map(|c| map.name(&c.to_string())).collect();
        assert_eq!(all.len(), 26);
        let all: HashSet<String> = (0..1000).map(|n| map.name(&format!("f{n:03}"))).collect();
        assert_eq!(all.len(), 1000);
        assert_ne!(map.name("john.doe"), "john.doe");
        assert!(!map.name("john.doe").ends_with("doe"), "what is no known extension goes");
    }

    #[test]
    fn a_name_is_the_same_in_both_encodings() {
        let mut map = mapping();
        for text in ["share", "Größe", "ファイル", "a𝄞b", "x"] {
            let mut eight = text.as_bytes().to_vec();
            map.name8(&mut eight);
            let mut sixteen: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
            map.name16(&mut sixteen);
            let units: Vec<u16> = sixteen.chunks(2).map(|b| u16::from_le_bytes([b[0], b[1]])).collect();
            assert_eq!(String::from_utf16(&units).unwrap(), String::from_utf8(eight).unwrap(), "{text}");
        }
    }

    #[test]
    fn addresses_keep_common_prefixes() {
        let mut map = mapping();
        let mut of = |a: [u8; 4]| {
            let mut made = a;
            map.address(&mut made);
            made
        };
        let (a, b, c) = (of([198, 51, 100, 7]), of([198, 51, 100, 8]), of([198, 51, 7, 7]));
        assert_eq!(a[..3], b[..3]);
        assert_eq!(a[..2], c[..2]);
        assert!(a[3] != b[3] && a[2] != c[2] && a != [198, 51, 100, 7]);
        assert_eq!(of([127, 0, 0, 1]), [127, 0, 0, 1]);
        assert_eq!(of([255; 4]), [255; 4]);
        assert_eq!(of([10, 0, 0, 1])[0], 10);
        assert!(!matches!(a[0], 0 | 127 | 224..), "{a:?}");
        let mut six = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1];
        let mut other = six;
        other[15] = 2;
        map.address(&mut six);
        map.address(&mut other);
        assert_eq!(six[..15], other[..15]);
        assert!(six[15] != other[15] && six[0] & 0xe0 == 0x20);
        let mut mapped = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 198, 51, 100, 7];
        map.address(&mut mapped);
        assert_eq!(mapped[12..], a, "an IPv4 address is the same in IPv6");
    }

    #[test]
    fn what_means_something_stays() {
        let mut map = mapping();
        for kept in [[0u8; 16], [0xff; 16]] {
            let mut made = kept;
            map.id(&mut made);
            assert_eq!(made, kept);
        }
        let mut group = [0x01, 0, 0x5e, 0, 0, 1];
        map.mac(&mut group);
        assert_eq!(group, [0x01, 0, 0x5e, 0, 0, 1]);
        let mut host = [0x52, 0x54, 0, 1, 2, 3];
        map.mac(&mut host);
        assert_eq!(host[0] & 3, 2);
        assert_ne!(host, [0x52, 0x54, 0, 1, 2, 3]);
        // S-1-5-32-544, S-1-1-0, and an administrator of a domain
        let sid = |subs: &[u32]| {
            [
                &[1, subs.len() as u8, 0, 0, 0, 0, 0, 5][..],
                &subs.iter().flat_map(|s| s.to_le_bytes()).collect::<Vec<_>>(),
            ]
            .concat()
        };
        let mut builtin = sid(&[32, 544]);
        map.sid(&mut builtin);
        assert_eq!(builtin, sid(&[32, 544]));
        let mut admin = sid(&[21, 1111, 2222, 3333, 500]);
        map.sid(&mut admin);
        assert_eq!((&admin[8..12], &admin[24..28]), (&21u32.to_le_bytes()[..], &500u32.to_le_bytes()[..]));
        assert_ne!(admin[12..24], sid(&[21, 1111, 2222, 3333, 500])[12..24]);
    }

    #[test]
    fn memory_is_exchanged_one_for_one_and_stays_in_one_piece() {
        let map = mapping();
        let all: HashSet<u32> =
            (0..10_000).chain(u32::MAX - 10_000..=u32::MAX).map(|key| map.remote_key(key)).collect();
        assert_eq!(all.len(), 20_001);
        assert_eq!((map.remote_key(0), map.remote_key(u32::MAX), map.memory(0x1000)), (0, u32::MAX, 0x1000));
        assert_ne!(map.remote_key(0x1234), 0x1234);
        let begin = 0xffff_8881_0123_4000;
        assert_eq!(map.memory(begin + 0x2000) - map.memory(begin), 0x2000);
        assert_ne!(map.memory(begin), begin);
    }

    #[test]
    fn secrets_are_replaced_alike_and_stay_where_they_mean_nothing() {
        let mut map = mapping();
        let mut made = |was: &[u8]| {
            let mut to = vec![0; was.len()];
            map.secret(was, &mut to);
            to
        };
        let signature: Vec<u8> = (1..17).collect();
        assert!(
            made(&signature) != signature
                && made(&signature) == made(&signature)
                && made(&signature[..8]) != signature[..8]
        );
        assert_eq!((made(&[0; 16]), made(&[0xff; 24])), (vec![0; 16], vec![0xff; 24]));
    }

    #[test]
    fn another_key_makes_other_names() {
        let (mut a, mut b) = (Mapping::new(b"one"), Mapping::new(b"two"));
        assert_ne!(a.name("fileserver"), b.name("fileserver"));
        assert_eq!(a.name("fileserver"), Mapping::new(b"one").name("fileserver"));
    }
}
