//! Network addresses.

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
}
