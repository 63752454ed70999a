//! Network addresses.

use crate::text::HEX_PAIRS;
use core::fmt::{self, Display, Formatter, Write};
use core::net::{Ipv4Addr, Ipv6Addr};

/// A network address. Without IP, the LID (InfiniBand without GRH) or the MAC address (bare Ethernet) takes its place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Addr {
    /// Unknown address.
    #[default]
    None,
    /// IPv4, in the order of the wire.
    V4([u8; 4]),
    /// IPv6, or an InfiniBand GID.
    V6([u8; 16]),
    /// InfiniBand local identifier.
    Lid(u16),
    /// Ethernet.
    Mac([u8; 6]),
}

impl Addr {
    /// The address that a GID stands for: the IPv4 address where it is mapped into IPv6, as RoCE does (IBTA annex A16
    /// and A17.4.1).
    pub const fn of_gid(gid: [u8; 16]) -> Self {
        match gid {
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d] => Self::V4([a, b, c, d]),
            _ => Self::V6(gid),
        }
    }
}

/// As people write it: `192.0.2.1`, `fe80::1`, `LID 7`, `52:54:00:00:00:01`; `?` where it is not known.
impl Display for Addr {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_char('?'),
            Self::V4(a) => Display::fmt(&Ipv4Addr::from(*a), f),
            Self::V6(a) => Display::fmt(&Ipv6Addr::from(*a), f),
            Self::Lid(lid) => write!(f, "LID {lid}"),
            Self::Mac([a, b, c, d, e, g]) => write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}"),
        }
    }
}

/// Hands on the text of a MAC address, in one piece.
#[inline]
pub(crate) fn with_colons<T>(address: [u8; 6], take: impl FnOnce(&[u8]) -> T) -> T {
    let mut text = [b':'; 17];
    for (digits, byte) in text.chunks_mut(3).zip(address) {
        digits[..2].copy_from_slice(&HEX_PAIRS[usize::from(byte)]);
    }
    take(&text)
}

/// Hands on the text of an IPv4 address in one piece.
#[inline]
pub(crate) fn dotted<T>(address: [u8; 4], take: impl FnOnce(&[u8]) -> T) -> T {
    let (text, len) = dotted_text(address);
    take(&text[..len])
}

/// The text of an IPv4 address, and how long it is.
#[inline]
pub(crate) fn dotted_text(address: [u8; 4]) -> ([u8; 16], usize) {
    // each byte's digits, a dot, and how many characters they are without it
    static BYTES: [([u8; 4], u8); 256] = {
        let (mut bytes, mut byte) = ([(*b"0...", 1); 256], 1);
        while byte < 256 {
            let [a, b, c] = [byte / 100, byte / 10 % 10, byte % 10];
            let [a, b, c] = [b'0' + a as u8, b'0' + b as u8, b'0' + c as u8];
            bytes[byte] = match byte {
                100.. => ([a, b, c, b'.'], 3),
                10.. => ([b, c, b'.', b'.'], 2),
                _ => ([c, b'.', b'.', b'.'], 1),
            };
            byte += 1;
        }
        bytes
    };
    let (mut text, mut len) = ([b'.'; 16], 0);
    for byte in address {
        let (digits, count) = &BYTES[usize::from(byte)];
        text[len..len + 4].copy_from_slice(digits);
        len += usize::from(*count) + 1;
    }
    // no dot behind the last
    (text, len - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn addresses_are_written_as_people_write_them() {
        let mut link_local = [0; 16];
        (link_local[0], link_local[1], link_local[15]) = (0xfe, 0x80, 1);
        let all = [
            Addr::None,
            Addr::V4([192, 0, 2, 1]),
            Addr::V6(link_local),
            Addr::Lid(7),
            Addr::Mac([0x52, 0x54, 0, 0, 0, 1]),
        ];
        assert_eq!(all.map(|a| a.to_string()), ["?", "192.0.2.1", "fe80::1", "LID 7", "52:54:00:00:00:01"]);
    }

    #[test]
    fn an_ipv4_address_is_written_as_it_is_everywhere() {
        for byte in 0..=u8::MAX {
            let address = [byte, byte.wrapping_mul(7), 255 - byte, byte / 3];
            let expected = Ipv4Addr::from(address).to_string();
            assert_eq!(dotted(address, |text| alloc::vec::Vec::from(text)), expected.as_bytes());
        }
    }
}
