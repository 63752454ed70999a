//! Entry points of the fuzz targets: arbitrary bytes in, no panic, bounded cost.

use crate::keys::cipher::{HEADER_LEN, session_id};
use crate::keys::{CipherId, ConnectionCrypto, Dialect, Direction, Key, Keyring, Keys, SessionCrypto, SigningAlgorithm, Verdict};
use alloc::string::String;
use alloc::vec::Vec;

/// The text of a key file.
pub fn fuzz_key_file(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Err(error) = Keyring::new().add_file(&text) {
        assert!(error.line >= 1 && error.line <= text.lines().count());
    }
}

/// A session whose negotiated values the first two bytes choose. Messages follow, each after a byte for its direction and a length of
/// 16 bits: SESSION_SETUP up to the first that is empty, then what the session encrypts or signs.
pub fn fuzz_smb_session(data: &[u8]) {
    const DIALECTS: [Dialect; 4] = [Dialect::SMB_2_1, Dialect::SMB_3_0, Dialect::SMB_3_0_2, Dialect::SMB_3_1_1];
    let Some((&[choice, algorithms], mut rest)) = data.split_first_chunk() else { return };
    let mut keyring = Keyring::new();
    keyring.add_password(None, "labpass");
    keyring.add_session(1, Keys { session_key: Some(Key::of([1; 16])), client_to_server: Some(Key::of([2; 32])), ..Keys::default() });
    let mut connection = ConnectionCrypto::new();
    if choice & 0x80 == 0 {
        let (cipher, signing) = (CipherId(u16::from(algorithms & 0x0f)), SigningAlgorithm(u16::from(algorithms >> 4)));
        connection.negotiate_request(&[]);
        connection.negotiate_response(&[], DIALECTS[usize::from(choice & 3)], Some(cipher), Some(signing));
    }
    let mut session = SessionCrypto::new(&connection);
    let mut output = Vec::new();
    while let Some((&[direction, low, high], after)) = rest.split_first_chunk() {
        let len = usize::from(u16::from_le_bytes([low, high])).min(after.len());
        let (message, after) = after.split_at(len);
        rest = after;
        match (session.is_established(), direction & 1) {
            (false, _) if message.is_empty() => session.establish(1, &keyring),
            (false, 0) => session.request(message, message, &keyring),
            (false, _) => session.response(message, if direction & 2 == 0 { 0xc000_0016 } else { 0 }, 1, message, &keyring),
            (true, _) => {
                let way = if direction & 1 == 0 { Direction::ToServer } else { Direction::ToClient };
                if session.decrypt(way, message, &mut output).is_ok() {
                    assert!(session_id(message).is_some() && output.len() <= message.len() - HEADER_LEN);
                } else {
                    assert!(output.is_empty());
                }
                assert!(session.verify(message) != Verdict::Verified || message.len() >= 64);
            }
        }
    }
}
