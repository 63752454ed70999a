//! BSD loopback: the address family of the packet behind it, in the byte order of the host that captured
//! (LINKTYPE_NULL) or big-endian (LINKTYPE_LOOP).

use crate::fault::PResult;
use crate::leaf;
use crate::trace::{Trace, Value, scope};

fields! {
    /// The family.
    pub mod f ["LINKTYPE_NULL"] {
        PROTOCOL: Protocol = "null", "Null/Loopback";
        FAMILY: U32 = "null.family", "Family", dec, values &[(2, "IP"), (10, "IPv6 (Linux)"), (24, "IPv6 (NetBSD, \
            OpenBSD)"), (28, "IPv6 (FreeBSD)"), (30, "IPv6 (Darwin)")];
    }
}

/// Decodes the family. Families are small numbers, and so the byte order shows.
pub fn parse<'a, T: Trace>(i: &'a [u8], t: &mut T) -> PResult<'a, u32> {
    t.protocol("Null/Loopback");
    scope(f::PROTOCOL, i, t, |i, t| {
        let Ok((rest, family)) = leaf::le32(i) else { return crate::fault::Fault::short(Some(f::FAMILY), i, 4).fail() };
        let family = if family > 0xffff { family.swap_bytes() } else { family };
        t.field(f::FAMILY, i, 4, Value::U(u64::from(family)));
        Ok((rest, family))
    })
}
