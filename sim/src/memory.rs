//! Memory that an end offers to the other, and the content of files.

use std::rc::Rc;

/// Memory of an end that the other end may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Remote key.
    pub key: u32,
    /// Address of its first byte.
    pub address: u64,
    /// Its length in bytes.
    pub length: u32,
}

impl Memory {
    /// Memory of a client; `last` is the key that it made before.
    pub fn new(last: &mut u32, length: u32) -> Self {
        *last = last.wrapping_mul(0x41c6_4e6d).wrapping_add(0x3039);
        Self { key: *last, address: 0x7f00_0000_0000 + u64::from(*last) * 0x1000, length }
    }
}

/// The bytes of the file at an offset.
pub fn content(offset: u64, length: u32, salt: u64) -> Rc<[u8]> {
    (0..u64::from(length))
        .map(|n| ((offset + n).wrapping_mul(0x9e37_79b9).wrapping_add(salt * 77) >> 13) as u8)
        .collect()
}
