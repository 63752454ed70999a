//! Entry points of the fuzz targets: arbitrary bytes in, no panic, bounded cost.

use crate::wire::smb2::compression::{Algorithm, decompress, decompress_message};
use alloc::vec::Vec;

/// The first byte chooses the algorithm, or a whole compressed message; the rest is its input.
pub fn fuzz_decompress(data: &[u8]) {
    const LIMIT: usize = 1 << 20;
    let Some((&choice, input)) = data.split_first() else { return };
    let mut output = Vec::new();
    let result = match choice % 8 {
        n @ 0..=5 => decompress(Algorithm(u16::from(n)), input, &mut output, LIMIT),
        _ => decompress_message(input, &mut output, LIMIT),
    };
    assert!(output.len() <= LIMIT);
    assert!(result.map_or_else(|e| e.at <= input.len(), |()| true));
}
