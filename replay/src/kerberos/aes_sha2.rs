//! The encryption types aes128-cts-hmac-sha256-128 and aes256-cts-hmac-sha384-192, RFC 8009: AES in CBC mode with
//! ciphertext stealing, and an HMAC over the ciphertext.

use super::{Error, Result};
use crate::random::random;
use aes::{Aes128, Aes256};
use cts::{CbcCs3, Decrypt, Encrypt, KeyIvInit};
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Sha256, Sha384};

/// Length of the confounder before every text, in bytes.
const CONFOUNDER: usize = 16;
/// RFC 8009 4.
const ITERATIONS: u32 = 32_768;
/// Purpose of a derived key: the last byte of the label.
const FOR_CHECKSUM: u8 = 0x99;
const FOR_ENCRYPTION: u8 = 0xaa;
const FOR_INTEGRITY: u8 = 0x55;

/// One of the two encryption types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AesSha2 {
    Aes128,
    Aes256,
}

impl AesSha2 {
    pub(super) fn encryption_type(self) -> u8 {
        match self {
            Self::Aes128 => 19,
            Self::Aes256 => 20,
        }
    }

    /// Its name, RFC 8009 5, which is part of the salt of passwords.
    fn name(self) -> &'static str {
        match self {
            Self::Aes128 => "aes128-cts-hmac-sha256-128",
            Self::Aes256 => "aes256-cts-hmac-sha384-192",
        }
    }

    pub(super) fn key_len(self) -> usize {
        match self {
            Self::Aes128 => 16,
            Self::Aes256 => 32,
        }
    }

    /// Bytes of an HMAC that are sent, and of the keys that it is made with.
    fn mac_len(self) -> usize {
        match self {
            Self::Aes128 => 16,
            Self::Aes256 => 24,
        }
    }

    fn hmac(self, key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
        fn of<M: Mac + KeyInit>(key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
            let mut mac = <M as KeyInit>::new_from_slice(key).expect("HMAC takes keys of any length");
            parts.iter().for_each(|part| mac.update(part));
            mac.finalize().into_bytes().to_vec()
        }
        match self {
            Self::Aes128 => of::<Hmac<Sha256>>(key, parts),
            Self::Aes256 => of::<Hmac<Sha384>>(key, parts),
        }
    }

    /// KDF-HMAC-SHA2, RFC 8009 3, without a context: `len` bytes.
    fn derive(self, key: &[u8], label: &[u8], len: usize) -> Vec<u8> {
        let mut out = self.hmac(key, &[&1u32.to_be_bytes(), label, &[0], &(len as u32 * 8).to_be_bytes()]);
        out.truncate(len);
        out
    }

    fn derive_for(self, key: &[u8], usage: i32, purpose: u8) -> Vec<u8> {
        let [a, b, c, d] = usage.to_be_bytes();
        self.derive(
            key,
            &[a, b, c, d, purpose],
            if purpose == FOR_ENCRYPTION { self.key_len() } else { self.mac_len() },
        )
    }

    pub(super) fn of_password(self, password: &str, salt: &str) -> Vec<u8> {
        let salt = [self.name().as_bytes(), &[0], salt.as_bytes()].concat();
        let mut key = vec![0; self.key_len()];
        match self {
            Self::Aes128 => pbkdf2::pbkdf2_hmac::<Sha256>(password.as_bytes(), &salt, ITERATIONS, &mut key),
            Self::Aes256 => pbkdf2::pbkdf2_hmac::<Sha384>(password.as_bytes(), &salt, ITERATIONS, &mut key),
        }
        self.derive(&key, b"kerberos", self.key_len())
    }

    pub(super) fn encrypt(self, key: &[u8], usage: i32, plain: &[u8]) -> Result<Vec<u8>> {
        let confounder = random::<CONFOUNDER>().map_err(|_| Error::Random)?;
        let mut out = [&confounder, plain].concat();
        let (encryption, iv) = (self.derive_for(key, usage, FOR_ENCRYPTION), [0; 16]);
        let done = match self {
            Self::Aes128 => CbcCs3::<Aes128>::new_from_slices(&encryption, &iv).map(|cipher| cipher.encrypt(&mut out)),
            Self::Aes256 => CbcCs3::<Aes256>::new_from_slices(&encryption, &iv).map(|cipher| cipher.encrypt(&mut out)),
        };
        assert!(
            matches!(done, Ok(Ok(()))),
            "derived keys have the length of the cipher's, and the confounder is a block"
        );
        let mac = self.hmac(&self.derive_for(key, usage, FOR_INTEGRITY), &[&iv, &out]);
        out.extend_from_slice(&mac[..self.mac_len()]);
        Ok(out)
    }

    /// `None` if it was made with another key.
    pub(super) fn decrypt(self, key: &[u8], usage: i32, bytes: &[u8]) -> Option<Vec<u8>> {
        let (text, sent) =
            bytes.split_at_checked(bytes.len().checked_sub(self.mac_len()).filter(|n| *n >= CONFOUNDER)?)?;
        let iv = [0; 16];
        let mac = self.hmac(&self.derive_for(key, usage, FOR_INTEGRITY), &[&iv, text]);
        if mac[..self.mac_len()] != *sent {
            return None;
        }
        let mut out = text.to_vec();
        let encryption = self.derive_for(key, usage, FOR_ENCRYPTION);
        match self {
            Self::Aes128 => CbcCs3::<Aes128>::new_from_slices(&encryption, &iv).ok()?.decrypt(&mut out).ok()?,
            Self::Aes256 => CbcCs3::<Aes256>::new_from_slices(&encryption, &iv).ok()?.decrypt(&mut out).ok()?,
        }
        out.drain(..CONFOUNDER);
        Some(out)
    }

    pub(super) fn checksum(self, key: &[u8], usage: i32, message: &[u8]) -> Vec<u8> {
        let mut mac = self.hmac(&self.derive_for(key, usage, FOR_CHECKSUM), &[message]);
        mac.truncate(self.mac_len());
        mac
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_encrypted_is_decrypted_and_nothing_else_is(plain in prop::collection::vec(any::<u8>(), 0..80), usage in 1..30, flip in any::<prop::sample::Index>()) {
            for kind in [AesSha2::Aes128, AesSha2::Aes256] {
                let key = vec![0x5a; kind.key_len()];
                let mut sealed = kind.encrypt(&key, usage, &plain).unwrap();
                prop_assert_eq!(sealed.len(), CONFOUNDER + plain.len() + kind.mac_len());
                prop_assert_eq!(kind.decrypt(&key, usage, &sealed), Some(plain.clone()));
                prop_assert_eq!(kind.decrypt(&key, usage + 1, &sealed), None);
                let at = flip.index(sealed.len());
                sealed[at] ^= 1;
                prop_assert_eq!(kind.decrypt(&key, usage, &sealed), None);
                prop_assert_eq!(kind.decrypt(&key, usage, &sealed[..at]), None);
            }
        }
    }
}
