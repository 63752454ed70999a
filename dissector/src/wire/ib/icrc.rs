//! The invariant CRC of every InfiniBand transport packet, and the variant CRC of native links.
//!
//! ICRC (IBA volume 1, 7.8.1; RoCEv2: annex A17.3.3): CRC-32 of Ethernet over everything from the first header to the
//! end of the padding, with what routers may change read as ones:
//!
//! | carrier | in front | read as ones |
//! | --- | --- | --- |
//! | RoCEv2 over IPv4 | 8 bytes of ones for the absent LRH | ToS, TTL, header checksum, UDP checksum, BTH resv8 |
//! | RoCEv2 over IPv6 | the same | traffic class, flow label, hop limit, UDP checksum, BTH resv8 |
//! | RoCE | the same | GRH traffic class, flow label, hop limit, BTH resv8 |
//! | InfiniBand | LRH | its virtual lane, and as above |
//!
//! VCRC (IBA volume 1, 7.8.2): 16 bits over the whole packet, ICRC included.
//!
//! Headers are copied to be masked, payloads are read once where they lie.

/// Bytes of the invariant CRC.
pub const LEN: usize = 4;

/// First headers of a packet, which decide the masked fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cover {
    /// IPv4 header of 20 bytes, UDP, BTH.
    Ipv4,
    /// IPv6 header of 40 bytes, UDP, BTH.
    Ipv6,
    /// GRH, BTH.
    Grh,
    /// LRH, BTH.
    Lrh,
    /// LRH, GRH, BTH.
    LrhGrh,
}

/// The ICRC of a packet that begins with the headers of `cover` and ends with its padding (without the ICRC itself). As
/// it stands on the wire when read little-endian. `None` where the headers are not all there.
#[inline]
pub fn invariant(cover: Cover, packet: &[u8]) -> Option<u32> {
    match cover {
        Cover::Ipv4 => {
            let (head, rest) = packet.split_first_chunk::<OVER_IPV4>()?;
            if is_one_run(OVER_IPV4, rest) {
                masked(AFTER_ONES, packet, mask_over_ipv4)
            } else {
                Some(crc32(over_ipv4(head), rest))
            }
        }
        Cover::Ipv6 => masked::<60>(AFTER_ONES, packet, mask_over_ipv6),
        Cover::Grh => masked::<52>(AFTER_ONES, packet, |head| {
            mask_ipv6(head, 0);
            head[44] = 0xff;
        }),
        Cover::Lrh => masked::<20>(0, packet, |head| {
            head[0] |= 0xf0;
            head[12] = 0xff;
        }),
        Cover::LrhGrh => masked::<60>(0, packet, |head| {
            head[0] |= 0xf0;
            mask_ipv6(head, 8);
            head[52] = 0xff;
        }),
    }
}

/// The ICRC of one of several RoCEv2 packets that lie end to end in one datagram, as a system has them that cuts them
/// later: it gets `headers` (IP and UDP) with its own lengths and an IPv4 identification that is `number` higher.
/// `packet` is it from its BTH to its padding. `None` for other carriers, and where it has no BTH.
pub fn of_piece(cover: Cover, headers: &[u8], packet: &[u8], number: u16) -> Option<u32> {
    const UDP: usize = 8;
    const BTH: usize = 12;
    let (bth, rest) = packet.split_first_chunk::<BTH>()?;
    let length = u16::try_from(UDP + packet.len() + 4).ok()?;
    let head = match cover {
        Cover::Ipv4 => {
            let mut head = [0; 40];
            head[..28].copy_from_slice(headers.first_chunk::<28>()?);
            head[28..].copy_from_slice(bth);
            head[2..4].copy_from_slice(&length.checked_add(20)?.to_be_bytes());
            let id = u16::from_be_bytes([head[4], head[5]]).wrapping_add(number);
            head[4..6].copy_from_slice(&id.to_be_bytes());
            head[24..26].copy_from_slice(&length.to_be_bytes());
            mask_over_ipv4(&mut head);
            short(AFTER_ONES, &head)
        }
        Cover::Ipv6 => {
            let mut head = [0; 60];
            head[..48].copy_from_slice(headers.first_chunk::<48>()?);
            head[48..].copy_from_slice(bth);
            head[4..6].copy_from_slice(&length.to_be_bytes());
            head[44..46].copy_from_slice(&length.to_be_bytes());
            mask_over_ipv6(&mut head);
            short(AFTER_ONES, &head)
        }
        Cover::Grh | Cover::Lrh | Cover::LrhGrh => return None,
    };
    Some(crc32(head, rest))
}

/// IPv4, UDP and BTH.
#[inline(always)]
const fn mask_over_ipv4(head: &mut [u8; OVER_IPV4]) {
    head[1] = 0xff;
    head[8] = 0xff;
    head[10] = 0xff;
    head[11] = 0xff;
    head[26] = 0xff;
    head[27] = 0xff;
    head[32] = 0xff;
}

/// IPv6, UDP and BTH.
#[inline(always)]
fn mask_over_ipv6(head: &mut [u8; 60]) {
    mask_ipv6(head, 0);
    head[46] = 0xff;
    head[47] = 0xff;
    head[52] = 0xff;
}

/// Traffic class, flow label and hop limit: the GRH has them where IPv6 does.
#[inline(always)]
fn mask_ipv6<const N: usize>(head: &mut [u8; N], at: usize) {
    head[at] |= 0x0f;
    head[at + 1] = 0xff;
    head[at + 2] = 0xff;
    head[at + 3] = 0xff;
    head[at + 7] = 0xff;
}

#[inline(always)]
fn masked<const N: usize>(before: u32, packet: &[u8], mask: impl FnOnce(&mut [u8; N])) -> Option<u32> {
    let (head, rest) = packet.split_first_chunk::<N>()?;
    let mut head = *head;
    mask(&mut head);
    Some(if is_one_run(N, rest) { in_one_run(before, &head, rest) } else { crc32(short(before, &head), rest) })
}

/// True if headers of so many bytes and their payload are put together.
#[inline(always)]
fn is_one_run(headers: usize, rest: &[u8]) -> bool {
    rest.len() < SHORT && headers + rest.len() > TINY
}

/// Bytes of IPv4, UDP and BTH.
const OVER_IPV4: usize = 40;

/// The CRC of these headers, masked, behind eight bytes of ones. What each byte adds does not depend on the others, so
/// that none has to wait for those before it.
#[inline(always)]
fn over_ipv4(head: &[u8; OVER_IPV4]) -> u32 {
    /// What is masked, and zeros elsewhere.
    const MASK: [u8; OVER_IPV4] = {
        let mut head = [0; OVER_IPV4];
        mask_over_ipv4(&mut head);
        head
    };
    const OF_MASK: u32 = after(!AFTER_ONES, &MASK);
    macro_rules! added {
        ($($n:literal)+) => {
            $( if MASK[$n] == 0 { TABLE[OVER_IPV4 - 1 - $n][usize::from(head[$n])] } else { 0 } )^+
        };
    }
    let ip = added!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19);
    let udp = added!(20 21 22 23 24 25 26 27);
    let bth = added!(28 29 30 31 32 33 34 35 36 37 38 39);
    !(OF_MASK ^ ip ^ udp ^ bth)
}

/// Shorter runs than this are faster by table: crc32fast's folding needs longer ones, and below them it goes byte by
/// byte.
const SHORT: usize = 128;
/// Headers and payload together that are faster by table, too, in bytes.
const TINY: usize = 64;
/// What [`crc32`] folds without a rest.
const FOLD: usize = 16;

/// The CRC of headers with a short payload, put together behind so many zeros that folding leaves no rest: zeros in
/// front change nothing where the CRC register begins with zero, and what it begins with is part of the first word.
#[inline]
fn in_one_run<const N: usize>(before: u32, head: &[u8; N], rest: &[u8]) -> u32 {
    /// The longest headers, with the longest payload.
    const ROOM: usize = (60 + SHORT).next_multiple_of(FOLD);
    const { assert!(N >= 4 && N <= 60) };
    let mut run = [0; ROOM];
    let len = (N + rest.len()).max(SHORT).next_multiple_of(FOLD).min(ROOM);
    let (run, _) = run.split_at_mut(len);
    let (front, payload) = run.split_at_mut(len - rest.len());
    payload.copy_from_slice(rest);
    if let Some(headers) = front.last_chunk_mut::<N>() {
        *headers = *head;
        for (byte, state) in headers.iter_mut().zip((!before).to_le_bytes()) {
            *byte ^= state;
        }
    }
    crc32(!0, run)
}

#[inline]
fn crc32(before: u32, bytes: &[u8]) -> u32 {
    if bytes.len() < SHORT {
        return short(before, bytes);
    }
    let mut hasher = crc32fast::Hasher::new_with_initial(before);
    hasher.update(bytes);
    hasher.finalize()
}

/// By number of zeros that follow it: what a byte adds to the CRC.
static TABLE: [[u32; 256]; OVER_IPV4] = {
    let mut tables = [[0u32; 256]; OVER_IPV4];
    let mut n = 0;
    while n < 256 {
        let (mut crc, mut bit) = (n as u32, 0);
        while bit < 8 {
            crc = if crc & 1 != 0 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
            bit += 1;
        }
        tables[0][n] = crc;
        n += 1;
    }
    let mut k = 1;
    while k < OVER_IPV4 {
        let mut n = 0;
        while n < 256 {
            let before = tables[k - 1][n];
            tables[k][n] = before >> 8 ^ tables[0][(before & 0xff) as usize];
            n += 1;
        }
        k += 1;
    }
    tables
};

/// The state of a CRC behind these bytes.
const fn after(mut state: u32, bytes: &[u8]) -> u32 {
    let mut n = 0;
    while n < bytes.len() {
        state = state >> 8 ^ TABLE[0][((state ^ bytes[n] as u32) & 0xff) as usize];
        n += 1;
    }
    state
}

/// The CRC of 8 bytes of ones.
const AFTER_ONES: u32 = !after(u32::MAX, &[0xff; 8]);

/// CRC-32, eight bytes a step; `before` is the CRC of what came before (0 for nothing).
#[inline]
fn short(before: u32, bytes: &[u8]) -> u32 {
    let mut crc = !before;
    let (chunks, rest) = bytes.as_chunks::<8>();
    for b in chunks {
        let low = u32::from_le_bytes([b[0], b[1], b[2], b[3]]) ^ crc;
        let t = &TABLE;
        crc = t[7][(low & 0xff) as usize]
            ^ t[6][(low >> 8 & 0xff) as usize]
            ^ t[5][(low >> 16 & 0xff) as usize]
            ^ t[4][(low >> 24) as usize]
            ^ t[3][usize::from(b[4])]
            ^ t[2][usize::from(b[5])]
            ^ t[1][usize::from(b[6])]
            ^ t[0][usize::from(b[7])];
    }
    // the parts of a packet are multiples of four bytes
    let (words, rest) = rest.as_chunks::<4>();
    for b in words {
        let low = u32::from_le_bytes(*b) ^ crc;
        crc = TABLE[3][(low & 0xff) as usize]
            ^ TABLE[2][(low >> 8 & 0xff) as usize]
            ^ TABLE[1][(low >> 16 & 0xff) as usize]
            ^ TABLE[0][(low >> 24) as usize];
    }
    for b in rest {
        crc = crc >> 8 ^ TABLE[0][((crc ^ u32::from(*b)) & 0xff) as usize];
    }
    !crc
}

static VARIANT: [u16; 256] = {
    let mut table = [0u16; 256];
    let mut n = 0;
    while n < 256 {
        let (mut crc, mut bit) = (n as u16, 0);
        while bit < 8 {
            // 0x100b, reflected
            crc = if crc & 1 != 0 { crc >> 1 ^ 0xd008 } else { crc >> 1 };
            bit += 1;
        }
        table[n] = crc;
        n += 1;
    }
    table
};

/// The VCRC of a packet from its LRH to its ICRC. As it stands on the wire when read little-endian.
pub fn variant(packet: &[u8]) -> u16 {
    !packet.iter().fold(0xffff, |crc: u16, b| crc >> 8 ^ VARIANT[usize::from((crc ^ u16::from(*b)) & 0xff)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// The definition, bit by bit.
    fn slow(bytes: &[u8]) -> u32 {
        let mut crc = 0xffff_ffff_u32;
        for b in bytes {
            crc ^= u32::from(*b);
            for _ in 0..8 {
                crc = if crc & 1 != 0 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
            }
        }
        !crc
    }

    #[test]
    fn is_the_crc_of_the_definition() {
        assert_eq!(slow(b"123456789"), 0xcbf4_3926);
        assert_eq!(AFTER_ONES, slow(&[0xff; 8]));
        let bytes: Vec<u8> = (0..600u32).map(|n| (n * 7 % 251) as u8).collect();
        for n in 0..bytes.len() {
            assert_eq!(crc32(0, &bytes[..n]), slow(&bytes[..n]), "{n} bytes");
            assert_eq!(crc32(short(0, &bytes[..40.min(n)]), &bytes[40.min(n)..n]), slow(&bytes[..n]));
        }
    }

    /// Cover, length of its headers in bytes, true if ones stand for a local route header, and the masked bits.
    type Case = (Cover, usize, bool, Vec<(usize, u8)>);

    fn cases() -> [Case; 5] {
        let ipv6 = |at: usize| Vec::from([(at, 0x0f), (at + 1, 0xff), (at + 2, 0xff), (at + 3, 0xff), (at + 7, 0xff)]);
        [
            (
                Cover::Ipv4,
                40,
                true,
                Vec::from([(1, 0xff), (8, 0xff), (10, 0xff), (11, 0xff), (26, 0xff), (27, 0xff), (32, 0xff)]),
            ),
            (Cover::Ipv6, 60, true, [ipv6(0), Vec::from([(46, 0xff), (47, 0xff), (52, 0xff)])].concat()),
            (Cover::Grh, 52, true, [ipv6(0), Vec::from([(44, 0xff)])].concat()),
            (Cover::Lrh, 20, false, Vec::from([(0, 0xf0), (12, 0xff)])),
            (Cover::LrhGrh, 60, false, [Vec::from([(0, 0xf0)]), ipv6(8), Vec::from([(52, 0xff)])].concat()),
        ]
    }

    /// What the definition says of a packet.
    fn defined((_, _, ones, masks): &Case, packet: &[u8]) -> u32 {
        let mut whole = if *ones { Vec::from([0xff; 8]) } else { Vec::new() };
        let skip = whole.len();
        whole.extend_from_slice(packet);
        masks.iter().for_each(|(at, mask)| whole[skip + at] |= mask);
        slow(&whole)
    }

    /// By table, in one run, and folded.
    #[test]
    fn is_that_of_the_definition_at_every_length() {
        let bytes: Vec<u8> = (0..400u32).map(|n| (n * 13 % 249) as u8).collect();
        for case in cases() {
            let (cover, head, ..) = case;
            for packet in (head..bytes.len()).map(|n| &bytes[..n]) {
                assert_eq!(invariant(cover, packet), Some(defined(&case, packet)), "{cover:?}, {} bytes", packet.len());
            }
        }
    }

    #[test]
    fn masks_what_routers_change_and_nothing_else() {
        let packet: Vec<u8> = (0..200u8).map(|n| n.wrapping_mul(31)).collect();
        for case in cases() {
            let (cover, head, _, masks) = &case;
            assert_eq!(invariant(*cover, &packet), Some(defined(&case, &packet)), "{cover:?}");
            assert_eq!(invariant(*cover, &packet[..head - 1]), None);
            for i in 0..packet.len() {
                let mut changed = packet.clone();
                changed[i] ^= 0x11;
                let ignored = masks.iter().any(|(at, m)| *at == i && m & 0x11 == 0x11);
                assert_eq!(invariant(*cover, &changed) == invariant(*cover, &packet), ignored, "{cover:?} byte {i}");
            }
        }
    }

    #[test]
    fn variant_crc_is_that_of_a_published_packet() {
        // computed with the definition, bit by bit
        let mut crc = 0xffff_u16;
        let bytes: Vec<u8> = (0..100).collect();
        for b in &bytes {
            crc ^= u16::from(*b);
            for _ in 0..8 {
                crc = if crc & 1 != 0 { crc >> 1 ^ 0xd008 } else { crc >> 1 };
            }
        }
        assert_eq!(variant(&bytes), !crc);
    }
}
