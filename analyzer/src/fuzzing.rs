//! Entry points of the fuzz targets: arbitrary bytes in, no panic, bounded cost.

use crate::keys::Keyring;
use alloc::string::String;

/// The text of a key file.
pub fn fuzz_key_file(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Err(error) = Keyring::new().add_file(&text) {
        assert!(error.line >= 1 && error.line <= text.lines().count());
    }
}
