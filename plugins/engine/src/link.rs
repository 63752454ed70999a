//! Guesses the link type of a frame, because Wireshark does not pass it to Lua. The decision uses fields that must be
//! valid for each type: lengths, versions, existing types. If several fit, the type of the previous frame is taken.

use rdmascope_dissector::frame::LinkType;

const CANDIDATES: [LinkType; 6] = [
    LinkType::ETHERNET,
    LinkType::LINUX_SLL,
    LinkType::LINUX_SLL2,
    LinkType::RAW,
    LinkType::NULL,
    LinkType::INFINIBAND,
];

/// Link type of a frame, given that of the previous one.
pub(crate) fn guess(bytes: &[u8], wire_len: u32, before: LinkType) -> LinkType {
    if fits(before, bytes, wire_len) {
        return before;
    }
    CANDIDATES.into_iter().find(|link| fits(*link, bytes, wire_len)).unwrap_or(before)
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// True if an IP packet that fits into the frame may begin here.
fn is_ip(bytes: &[u8], at: usize, wire_len: u32) -> bool {
    let room = u64::from(wire_len).saturating_sub(at as u64);
    match bytes.get(at) {
        Some(0x45..=0x4f) => {
            let head = u64::from(bytes[at] & 15) * 4;
            // 0 if the sender's adapter was to segment it
            be16(bytes, at + 2).is_some_and(|n| n == 0 || (u64::from(n) >= head && u64::from(n) <= room))
        }
        Some(0x60..=0x6f) => be16(bytes, at + 4).is_some_and(|n| u64::from(n) + 40 <= room),
        _ => false,
    }
}

/// True if the payload for this EtherType may begin here.
fn is_of_type(kind: u16, bytes: &[u8], at: usize, wire_len: u32) -> bool {
    match kind {
        0x0800 => bytes.get(at).is_some_and(|b| b >> 4 == 4) && is_ip(bytes, at, wire_len),
        0x86dd => bytes.get(at).is_some_and(|b| b >> 4 == 6) && is_ip(bytes, at, wire_len),
        // ARP, VLAN tags, MPLS, PPPoE, EAPOL, flow control, RoCE, LLDP, PTP, MACsec, FCoE
        0x0806 | 0x8100 | 0x88a8 | 0x9100 | 0x8847 | 0x8848 | 0x8863 | 0x8864 | 0x888e | 0x8808 | 0x8809 | 0x8915
        | 0x88cc | 0x88f7 | 0x88e5 | 0x8906 | 0x8914 => true,
        _ => false,
    }
}

fn fits(link: LinkType, bytes: &[u8], wire_len: u32) -> bool {
    let kind = |at: usize| be16(bytes, at).unwrap_or(0);
    match link {
        LinkType::ETHERNET => {
            let length = kind(12);
            // a length (802.2)
            is_of_type(length, bytes, 14, wire_len)
                || (bytes.len() > 16
                    && (3..=1500).contains(&length)
                    && u32::from(length) + 14 <= wire_len
                    && !is_ip(bytes, 0, wire_len))
        }
        LinkType::LINUX_SLL => bytes.len() >= 16 && kind(0) <= 4 && is_of_type(kind(14), bytes, 16, wire_len),
        LinkType::LINUX_SLL2 => bytes.len() >= 20 && kind(2) == 0 && is_of_type(kind(0), bytes, 20, wire_len),
        LinkType::RAW => is_ip(bytes, 0, wire_len),
        LinkType::NULL => {
            matches!(bytes, [2 | 24 | 28 | 30, 0, 0, 0, ..] | [0, 0, 0, 2 | 24 | 28 | 30, ..])
                && is_ip(bytes, 4, wire_len)
        }
        LinkType::INFINIBAND => {
            // link version 0, next header IBA, the length in words of four bytes
            let words = u32::from(kind(4) & 0x7ff) * 4;
            bytes.len() >= 20
                && bytes[0] & 15 == 0
                && bytes[1] & 2 != 0
                && words >= 20
                && words <= wire_len
                && wire_len - words <= 4
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(length: u16) -> Vec<u8> {
        let mut packet = vec![0u8; usize::from(length)];
        packet[0] = 0x45;
        packet[2..4].copy_from_slice(&length.to_be_bytes());
        packet
    }

    #[test]
    fn frames_are_distinguished_by_what_has_to_be_right_in_them() {
        let behind = |head: &[u8]| [head, &ip(60)].concat();
        let cases = [
            (LinkType::ETHERNET, behind(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0])),
            (LinkType::LINUX_SLL, behind(&[0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0, 8, 0])),
            (LinkType::LINUX_SLL2, behind(&[8, 0, 0, 0, 0, 0, 0, 3, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0])),
            (LinkType::RAW, ip(60)),
            (LinkType::NULL, behind(&[2, 0, 0, 0])),
        ];
        for (link, bytes) in &cases {
            for before in [LinkType::ETHERNET, LinkType::RAW, LinkType::INFINIBAND] {
                assert_eq!(guess(bytes, bytes.len() as u32, before), *link);
            }
        }
        let mut lrh = vec![0u8; 36];
        (lrh[1], lrh[5]) = (2, 8);
        assert_eq!(guess(&lrh, 36, LinkType::ETHERNET), LinkType::INFINIBAND);
        assert_eq!(guess(&[], 0, LinkType::RAW), LinkType::RAW, "what fits nothing is what the one before was");
    }
}
