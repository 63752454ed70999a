//! Packet sequence numbers: 24 bits, wrapping. IBA volume 1, 9.7.1.

/// All the bits a PSN has.
pub const MASK: u32 = 0x00ff_ffff;

/// Distance by which `a` is ahead of `b`, the shorter way around; negative if `a` is behind.
#[inline]
pub const fn ahead(a: u32, b: u32) -> i32 {
    // move the 24 bits to the top, so that the sign bit is the sign of the difference
    ((a.wrapping_sub(b) << 8) as i32) >> 8
}

/// `psn` moved on by `n`.
#[inline]
pub const fn add(psn: u32, n: u32) -> u32 {
    psn.wrapping_add(n) & MASK
}

/// True if `psn` is in the range from `from` on, before `to`.
#[inline]
pub const fn is_within(psn: u32, from: u32, to: u32) -> bool {
    ahead(psn, from) >= 0 && ahead(psn, to) < 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_wrap() {
        assert_eq!(ahead(1, MASK), 2);
        assert_eq!(ahead(MASK, 1), -2);
        assert_eq!(ahead(0x80_0000, 0), -0x80_0000);
        assert_eq!(add(MASK, 1), 0);
        assert_eq!([MASK - 1, MASK, 0, 1].map(|psn| is_within(psn, MASK, 1)), [false, true, true, false]);
    }
}
