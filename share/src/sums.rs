//! Recomputes checksums and CRCs of changed frames. Each is changed by the difference that the new bytes make: a
//! correct one stays correct, and a wrong one stays wrong.

use rdmascope_dissector::wire::ib::icrc::{self, Cover};
use rdmascope_dissector::wire::iwarp::mpa;

/// A checksum to recompute in a frame. Offsets are bytes from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fix {
    /// The checksum of the IPv4 header at `start`.
    Ip { start: usize },
    /// The checksum at `at` of TCP, UDP or ICMP, whose header begins at `start`, in the IP datagram at `ip`.
    Transport { ip: Ip, start: usize, at: usize, protocol: u8 },
    /// The invariant CRC at `at`, and whether it was verified. The BTH at `bth` follows the headers, or other packets
    /// in the same datagram.
    Icrc { cover: Cover, start: usize, bth: usize, at: usize, is_good: bool },
    /// The variant CRC at `at`, which covers the bytes from the LRH at `start` on.
    Vcrc { start: usize, at: usize },
}

/// An IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ip {
    pub(crate) start: usize,
    pub(crate) is_v6: bool,
}

impl Fix {
    /// Order of recomputation: a checksum that covers others comes later.
    fn turn(self) -> u8 {
        match self {
            Self::Icrc { .. } => 0,
            Self::Vcrc { .. } => 1,
            Self::Ip { .. } | Self::Transport { .. } => 2,
        }
    }
}

/// Recomputes all checksums, inner ones first. `fixes` are in the order of their headers.
pub(crate) fn mend(fixes: &[Fix], old: &[u8], new: &mut [u8]) {
    for turn in 0..3 {
        for fix in fixes.iter().rev().filter(|fix| fix.turn() == turn) {
            // a checksum over missing bytes cannot be verified by anybody
            let _ = one(*fix, old, new);
        }
    }
}

fn one(fix: Fix, old: &[u8], new: &mut [u8]) -> Option<()> {
    match fix {
        Fix::Ip { start } => {
            let length = usize::from(old.get(start)? & 0x0f) * 4;
            let end = start.checked_add(length)?;
            let (was, is) = (old.get(start..end)?, new.get(start..end)?);
            let stated = be16(was.get(10..)?)?;
            put16(new, start + 10, changed(stated, sum(was, 10), sum(is, 10)))
        }
        Fix::Transport { ip, start, at, protocol } => {
            let end = ip_end(ip, old)?.min(old.len());
            let (was, is) = (old.get(start..end)?, new.get(start..end)?);
            let field = at.checked_sub(start)?;
            let stated = be16(was.get(field..)?)?;
            if stated == 0 && protocol == 17 {
                // no checksum was sent
                return put16(new, at, 0);
            }
            let (pseudo_was, pseudo_is) = match protocol {
                1 => (0, 0),
                _ => (pseudo(ip, old, was.len(), protocol)?, pseudo(ip, new, is.len(), protocol)?),
            };
            if protocol != 1 && fold(pseudo_was) == stated {
                // left to the adapter: the field contains the sum of the pseudo-header
                return put16(new, at, fold(pseudo_is));
            }
            let made = changed(stated, pseudo_was + sum(was, field), pseudo_is + sum(is, field));
            put16(new, at, if made == 0 && protocol == 17 { 0xffff } else { made })
        }
        Fix::Icrc { cover, start, bth, at, is_good } => {
            let made = |bytes: &[u8]| match is_alone(cover, start, bth, at, bytes) {
                true => icrc::invariant(cover, bytes.get(start..at)?),
                // lengths and numbers are unchanged: the difference is that of addresses and payload
                false => icrc::of_piece(cover, bytes.get(start..)?, bytes.get(bth..at)?, 0),
            };
            if is_good && is_alone(cover, start, bth, at, new) {
                let made = made(new)?;
                return put(new, at, &made.to_le_bytes());
            }
            let stated = u32::from_le_bytes(*old.get(at..)?.first_chunk()?);
            let difference = made(old)? ^ made(new)?;
            put(new, at, &(stated ^ difference).to_le_bytes())
        }
        Fix::Vcrc { start, at } => {
            let stated = u16::from_le_bytes(*old.get(at..)?.first_chunk()?);
            let difference = icrc::variant(old.get(start..at)?) ^ icrc::variant(new.get(start..at)?);
            put(new, at, &(stated ^ difference).to_le_bytes())
        }
    }
}

/// True if the packet with this BTH and ICRC is the only one in the datagram that begins at `start`.
fn is_alone(cover: Cover, start: usize, bth: usize, at: usize, bytes: &[u8]) -> bool {
    let (is_v6, headers) = match cover {
        Cover::Ipv4 => (false, 28),
        Cover::Ipv6 => (true, 48),
        Cover::Grh | Cover::Lrh | Cover::LrhGrh => return true,
    };
    bth == start + headers && ip_end(Ip { start, is_v6 }, bytes).is_none_or(|end| end <= at + 4)
}

/// The MPA CRC of `new`, if that of `old` was `stated`.
pub(crate) fn mpa(stated: [u8; 4], old: &[u8], new: &[u8]) -> [u8; 4] {
    let difference = mpa::crc(old) ^ mpa::crc(new);
    // a wrong CRC of 0: CRCs are not in use
    if stated == [0; 4] && mpa::crc(old) != 0 {
        return stated;
    }
    (u32::from_le_bytes(stated) ^ difference).to_le_bytes()
}

/// End of the datagram according to its header.
fn ip_end(ip: Ip, bytes: &[u8]) -> Option<usize> {
    let header = bytes.get(ip.start..)?;
    let (stated, fixed) = if ip.is_v6 { (be16(header.get(4..)?)?, 40) } else { (be16(header.get(2..)?)?, 0) };
    // segmentation offload leaves 0 there
    if stated == 0 { Some(bytes.len()) } else { ip.start.checked_add(fixed + usize::from(stated)) }
}

fn pseudo(ip: Ip, bytes: &[u8], length: usize, protocol: u8) -> Option<u64> {
    let header = bytes.get(ip.start..)?;
    let addresses = if ip.is_v6 { header.get(8..40)? } else { header.get(12..20)? };
    let length = length as u64;
    Some(sum(addresses, usize::MAX) + (length >> 16) + (length & 0xffff) + u64::from(protocol))
}

/// Sum of 16-bit words without the one at `except`, folded if necessary.
fn sum(bytes: &[u8], except: usize) -> u64 {
    // the sum of byte-swapped words is the byte-swapped sum (RFC 1071 section 2), and several words may be added at a
    // time
    let (words, rest) = bytes.as_chunks::<8>();
    let mut all = 0_u64;
    for word in words {
        let word = u64::from_le_bytes(*word);
        all += (word & 0xffff_ffff) + (word >> 32);
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let word = u64::from_le_bytes(last);
    all += (word & 0xffff_ffff) + (word >> 32);
    let all = u64::from(fold(all).swap_bytes());
    match bytes.get(except..).filter(|_| except.is_multiple_of(2)).and_then(be16) {
        // the subtracted word may be larger than the folded sum
        Some(without) => all + u64::from(!without),
        None => all,
    }
}

fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    sum as u16
}

/// RFC 1624, equation 3.
fn changed(stated: u16, was: u64, is: u64) -> u16 {
    !fold(u64::from(!stated) + u64::from(!fold(was)) + u64::from(fold(is)))
}

fn be16(bytes: &[u8]) -> Option<u16> {
    bytes.first_chunk().map(|b| u16::from_be_bytes(*b))
}

fn put16(new: &mut [u8], at: usize, value: u16) -> Option<()> {
    put(new, at, &value.to_be_bytes())
}

fn put(new: &mut [u8], at: usize, value: &[u8]) -> Option<()> {
    new.get_mut(at..)?.get_mut(..value.len())?.copy_from_slice(value);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An IPv4 header and a TCP segment whose sums are right.
    fn segment() -> Vec<u8> {
        let mut bytes = vec![0x45, 0, 0, 45, 0, 1, 0, 0, 64, 6, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2];
        bytes.extend([0x30, 0x39, 0x15, 0x45, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x18, 1, 0, 0, 0, 0, 0]);
        bytes.extend(b"hello");
        let header = !fold(sum(&bytes[..20], 10));
        bytes[10..12].copy_from_slice(&header.to_be_bytes());
        let ip = Ip { start: 0, is_v6: false };
        let tcp = !fold(pseudo(ip, &bytes, 25, 6).unwrap() + sum(&bytes[20..], 16));
        bytes[36..38].copy_from_slice(&tcp.to_be_bytes());
        bytes
    }

    fn good(bytes: &[u8]) -> (bool, bool) {
        let ip = Ip { start: 0, is_v6: false };
        let tcp = pseudo(ip, bytes, bytes.len() - 20, 6).unwrap() + sum(&bytes[20..], usize::MAX);
        (fold(sum(&bytes[..20], usize::MAX)) == 0xffff, fold(tcp) == 0xffff)
    }

    #[test]
    fn right_sums_are_right_again_and_wrong_ones_stay_wrong() {
        let old = segment();
        assert_eq!(good(&old), (true, true));
        let fixes = [
            Fix::Ip { start: 0 },
            Fix::Transport { ip: Ip { start: 0, is_v6: false }, start: 20, at: 36, protocol: 6 },
        ];
        let mut new = old.clone();
        new[12] = 203;
        new[44] = b'x';
        mend(&fixes, &old, &mut new);
        assert_eq!(good(&new), (true, true));
        let mut wrong = old.clone();
        (wrong[11], wrong[37]) = (wrong[11] ^ 1, wrong[37] ^ 1);
        let mut new = wrong.clone();
        new[12] = 203;
        new[44] = b'x';
        mend(&fixes, &wrong, &mut new);
        assert_eq!(good(&new), (false, false));
    }

    #[test]
    fn crcs_follow_their_bytes() {
        let (old, new) = (b"what was there".to_vec(), b"something else".to_vec());
        let right = mpa::crc(&old).to_le_bytes();
        assert_eq!(mpa(right, &old, &new), mpa::crc(&new).to_le_bytes());
        assert_ne!(mpa([1, 2, 3, 4], &old, &new), mpa::crc(&new).to_le_bytes());
        assert_eq!(mpa([0; 4], &old, &new), [0; 4]);
    }

    #[test]
    fn sums_of_what_is_cut_do_no_harm() {
        let old = segment();
        let fixes = [
            Fix::Ip { start: 40 },
            Fix::Transport { ip: Ip { start: 30, is_v6: true }, start: 90, at: 44, protocol: 17 },
            Fix::Icrc { cover: Cover::Ipv4, start: 0, bth: 28, at: 44, is_good: false },
            Fix::Icrc { cover: Cover::Ipv4, start: 0, bth: 28, at: 44, is_good: true },
            Fix::Vcrc { start: 50, at: 3 },
        ];
        let mut new = old.clone();
        mend(&fixes, &old, &mut new);
        assert_eq!(new.len(), old.len());
    }
}
