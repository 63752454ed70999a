//! VLAN tags: IEEE 802.1Q (0x8100, and 0x9100 and 0x9200 of old equipment) and 802.1ad (0x88a8). Big-endian.

use super::ETHERTYPES;
use crate::fault::PResult;
use crate::trace::Trace;

const PRIORITIES: crate::field::Values = &[
    (0, "Best Effort (default)"),
    (1, "Background"),
    (2, "Spare"),
    (3, "Excellent Effort"),
    (4, "Controlled Load"),
    (5, "Video, < 100ms latency and jitter"),
    (6, "Voice, < 10ms latency and jitter"),
    (7, "Network Control"),
];

header! {
    /// A customer tag.
    pub struct Vlan [NODE: Protocol = "vlan", "802.1Q Virtual LAN", "IEEE 802.1Q 9.6"] {
        tag: be16 = "_", "Tag", hex, bits {
            priority: u16 & 0xe000 = "vlan.priority", "Priority", dec, values PRIORITIES;
            dei: bool & 0x1000 = "vlan.dei", "DEI";
            id: u16 & 0x0fff = "vlan.id", "ID", dec;
        };
        ethertype: be16 = "vlan.etype", "Type", hex, values ETHERTYPES;
    }
}

header! {
    /// A provider's tag.
    pub struct Provider [NODE: Protocol = "ieee8021ad", "IEEE 802.1ad", "IEEE 802.1Q 9.6"] {
        tag: be16 = "_", "Tag", hex, bits {
            priority: u16 & 0xe000 = "ieee8021ad.priority", "Priority", dec, values PRIORITIES;
            dei: u16 & 0x1000 = "ieee8021ad.dei", "DEI", dec;
            id: u16 & 0x0fff = "ieee8021ad.id", "ID", dec;
        };
        ethertype: be16 = "ieee8021ah.etype", "Type", hex, values ETHERTYPES;
    }
}

/// True if a tag follows an ethertype.
#[inline]
pub const fn is_tag(ethertype: u16) -> bool {
    matches!(ethertype, 0x8100 | 0x88a8 | 0x9100 | 0x9200)
}

/// Decodes the tag behind `ethertype`: the VLAN identifier, the priority, and the ethertype (or length) behind the tag.
pub fn parse<'a, T: Trace>(ethertype: u16, i: &'a [u8], t: &mut T) -> PResult<'a, (u16, u8, u16)> {
    if ethertype == 0x88a8 {
        let (i, tag) = Provider::parse(i, t)?;
        return Ok((i, (tag.id(), tag.priority() as u8, tag.ethertype)));
    }
    let (i, tag) = Vlan::parse(i, t)?;
    Ok((i, (tag.id(), tag.priority() as u8, tag.ethertype)))
}
