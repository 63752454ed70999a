//! Signatures of SMB2 messages, \[MS-SMB2\] 3.1.4.1: HMAC-SHA256 (dialects 2.x), AES-CMAC (RFC 4493; 3.x) or AES-GMAC
//! (3.1.1), 16 bytes, over one message of a compound, its padding included, with the signature itself as zeros.

use crate::keys::derive::hmac_sha256;
use crate::keys::{Key, SigningAlgorithm};
use aes::Aes128;
use aes::cipher::BlockCipherEncrypt;
use alloc::boxed::Box;
use cmac::Cmac;
use core::fmt;
use ghash::GHash;
use ghash::universal_hash::UniversalHash;
use hmac::{Hmac, KeyInit, Mac};
use rdmascope_dissector::wire::smb2::header::{Command, Header, flags};
use sha2::Sha256;

/// Bytes of an SMB2 header: none shorter can be signed.
const HEADER_LEN: usize = Header::LEN;
const COMMAND: usize = 12;
const FLAGS: usize = 16;
const MESSAGE_ID: usize = 24;
const SIGNATURE: usize = 48;

const COMMAND_CANCEL: u16 = Command::CANCEL.0;
const FLAG_SERVER_TO_REDIR: u8 = flags::RESPONSE as u8;

/// A key made ready for one of the algorithms.
#[derive(Clone)]
pub struct Signer {
    algorithm: SigningAlgorithm,
    inner: Box<Inner>,
}

#[derive(Clone)]
enum Inner {
    Hmac(Hmac<Sha256>),
    Cmac(Cmac<Aes128>),
    Gmac(Aes128, GHash),
}

impl Signer {
    /// `None` if there is no such algorithm, or its keys have another length.
    pub fn new(algorithm: SigningAlgorithm, key: &Key) -> Option<Self> {
        let key = key.bytes().first_chunk::<16>().filter(|k| k.len() == key.bytes().len())?;
        let inner = match algorithm {
            SigningAlgorithm::HMAC_SHA256 => Inner::Hmac(hmac_sha256(key)),
            SigningAlgorithm::AES_CMAC => Inner::Cmac(Cmac::new(key.into())),
            SigningAlgorithm::AES_GMAC => {
                let aes = Aes128::new(key.into());
                let mut h = [0; 16].into();
                aes.encrypt_block(&mut h);
                Inner::Gmac(aes, GHash::new(&h))
            }
            _ => return None,
        };
        Some(Self { algorithm, inner: Box::new(inner) })
    }

    /// The signing algorithm.
    pub fn algorithm(&self) -> SigningAlgorithm {
        self.algorithm
    }

    /// The signature that `message` should have, whatever it has. `None` if it is shorter than an SMB2 header.
    pub fn signature(&self, message: &[u8]) -> Option<[u8; 16]> {
        let (header, body) = message.split_first_chunk::<HEADER_LEN>()?;
        Some(self.over([&header[..SIGNATURE], &[0; 16], body], &nonce(header)))
    }

    /// The signature of data that RDMA moves, made for an SMB2_RDMA_CRYPTO_TRANSFORM (\[MS-SMB2\] 2.2.43.1), whose
    /// nonce AES-GMAC takes. `None` if that has fewer than 12 bytes.
    pub fn signature_of_data(&self, data: &[u8], nonce: &[u8]) -> Option<[u8; 16]> {
        let nonce = match *self.inner {
            Inner::Gmac(..) => nonce.first_chunk()?,
            Inner::Hmac(_) | Inner::Cmac(_) => &[0; 12],
        };
        Some(self.over([&[], &[], data], nonce))
    }

    /// Over parts of which all but the last are whole blocks of 16 bytes: AES-GMAC hashes each where it lies.
    fn over(&self, parts: [&[u8]; 3], nonce: &[u8; 12]) -> [u8; 16] {
        match &*self.inner {
            Inner::Hmac(mac) => {
                let mac = parts.iter().fold(mac.clone(), |mac, part| mac.chain_update(part));
                *mac.finalize().into_bytes().first_chunk().unwrap_or(&[0; 16])
            }
            Inner::Cmac(mac) => {
                parts.iter().fold(mac.clone(), |mac, part| mac.chain_update(part)).finalize().into_bytes().into()
            }
            Inner::Gmac(aes, hash) => {
                let mut hash = hash.clone();
                parts.iter().for_each(|part| hash.update_padded(part));
                let mut lengths = [0; 16];
                let len: usize = parts.iter().map(|part| part.len()).sum();
                lengths[..8].copy_from_slice(&(len as u64 * 8).to_be_bytes());
                hash.update_padded(&lengths);
                let mut counter = [0; 16];
                counter[..12].copy_from_slice(nonce);
                counter[15] = 1;
                let mut mask = counter.into();
                aes.encrypt_block(&mut mask);
                let mut signature: [u8; 16] = hash.finalize().into();
                signature.iter_mut().zip(mask).for_each(|(s, m)| *s ^= m);
                signature
            }
        }
    }

    /// True if `message` has the signature that it should have.
    pub fn verify(&self, message: &[u8]) -> bool {
        let claimed = message.get(SIGNATURE..HEADER_LEN);
        claimed.is_some() && self.signature(message).as_ref().map(|s| &s[..]) == claimed
    }

    /// True if the signature is that of the message behind the four bytes of length that it would have on TCP
    /// (\[MS-SMB2\] 2.1), which are not part of a signed message. ksmbd of Linux 6.12 does so with READ replies that
    /// carry no data.
    pub fn verify_with_length(&self, message: &[u8]) -> bool {
        let Some((header, body)) = message.split_first_chunk::<HEADER_LEN>() else { return false };
        // the parts of `over` are whole blocks, and these are not
        let data = [&(message.len() as u32).to_be_bytes()[..], &header[..SIGNATURE], &[0; 16], body].concat();
        self.over([&[], &[], &data], &nonce(header)) == header[SIGNATURE..]
    }

    /// Gives `message` the signature that it should have; the caller sets the flag that says it is signed. False if it
    /// is shorter than an SMB2 header.
    pub fn sign(&self, message: &mut [u8]) -> bool {
        let Some(signature) = self.signature(message) else { return false };
        message[SIGNATURE..HEADER_LEN].copy_from_slice(&signature);
        true
    }
}

/// The nonce of AES-GMAC: the message id, and 32 bits with flags: from the server (1), CANCEL (2).
fn nonce(header: &[u8; HEADER_LEN]) -> [u8; 12] {
    let mut nonce = [0; 12];
    nonce[..8].copy_from_slice(&header[MESSAGE_ID..MESSAGE_ID + 8]);
    let cancel = u16::from_le_bytes([header[COMMAND], header[COMMAND + 1]]) == COMMAND_CANCEL;
    nonce[8] = header[FLAGS] & FLAG_SERVER_TO_REDIR | u8::from(cancel) << 1;
    nonce
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Signer({})", self.algorithm)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::testing::hex;
    use aes_gcm::Aes128Gcm;
    use aes_gcm::aead::AeadInOut;
    use alloc::vec::Vec;

    // Microsoft's "SMB 3.1.1 Encryption in Windows 10": the reply that ends authentication
    #[test]
    fn the_published_signature_of_dialect_3_1_1() {
        let message = hex("FE534D4240000100000000000100800009000000000000000200000000000000FFFE000000000000
                           25000000001000006B85A4519A0F3EEA35BA946DD3AFE6B80900000048001D00A11B3019A0030A01
                           00A3120410010000003932A87523AB660100000000");
        let signer =
            Signer::new(SigningAlgorithm::AES_CMAC, &Key::of_slice(&hex("8765949DFEAEE105CE9118B45BE988F0"))).unwrap();
        assert!(signer.verify(&message));
        let mut ours = message.clone();
        ours[48..64].fill(0xee);
        assert!(signer.sign(&mut ours));
        assert_eq!(ours, message);
    }

    #[test]
    fn gmac_is_gcm_without_a_message() {
        let key = [0x24; 16];
        let signer = Signer::new(SigningAlgorithm::AES_GMAC, &Key::of(key)).unwrap();
        let gcm = Aes128Gcm::new(&key.into());
        for (len, command, flags, role) in
            [(64, 8, 0, 0), (65, 8, 1, 1), (80, 12, 8, 2), (200, 12, 9, 3), (1000, 0, 0, 0)]
        {
            let mut message: Vec<u8> = (0..=255).cycle().take(len).collect();
            message[12..14].copy_from_slice(&[command, 0]);
            message[16] = flags;
            message[48..64].fill(0);
            let mut nonce = [0; 12];
            nonce[..8].copy_from_slice(&message[24..32]);
            nonce[8] = role;
            let expected = gcm.encrypt_inout_detached(&nonce.into(), &message, (&mut [][..]).into()).unwrap();
            assert_eq!(signer.signature(&message).unwrap()[..], expected[..], "{len}");
            assert_eq!(signer.signature_of_data(&message, &nonce).unwrap()[..], expected[..], "{len}");
        }
    }

    // RFC 4493 4, example 4: 64 bytes, which as a message would be a header whose signature is not zero
    #[test]
    fn cmac_covers_everything_but_the_signature() {
        let text = hex("6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51
                        30c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710");
        let key = Key::of_slice(&hex("2b7e151628aed2a6abf7158809cf4f3c"));
        let mac = Cmac::<Aes128>::new_from_slice(key.bytes()).unwrap();
        assert_eq!(
            mac.clone().chain_update(&text).finalize().into_bytes()[..],
            hex("51f0bebf7e3b9d92fc49741779363cfe")
        );
        let signer = Signer::new(SigningAlgorithm::AES_CMAC, &key).unwrap();
        assert_eq!(signer.signature_of_data(&text, &[]).unwrap()[..], hex("51f0bebf7e3b9d92fc49741779363cfe"));
        let mut zeroed = text.clone();
        zeroed[48..].fill(0);
        let expected: [u8; 16] = mac.chain_update(&zeroed).finalize().into_bytes().into();
        assert_eq!(signer.signature(&text), Some(expected));
    }

    #[test]
    fn every_algorithm_verifies_what_it_signed_and_nothing_else() {
        for algorithm in SigningAlgorithm::ALL {
            let signer = Signer::new(algorithm, &Key::of([0x11; 16])).unwrap();
            let mut message: Vec<u8> = (0..=255).cycle().take(333).collect();
            assert!(!signer.verify(&message));
            assert!(signer.sign(&mut message) && signer.verify(&message));
            for at in (0..message.len()).step_by(7).chain([48, 63, 64, 332]) {
                message[at] ^= 4;
                assert!(!signer.verify(&message), "{algorithm} {at}");
                message[at] ^= 4;
            }
            for n in [0, 63, 64, 332] {
                assert!(!signer.verify(&message[..n]));
            }
            assert!(!signer.sign(&mut message[..63]));
            assert!(!Signer::new(algorithm, &Key::of([0x12; 16])).unwrap().verify(&message));
            assert!(Signer::new(algorithm, &Key::of([0x11; 32])).is_none());
        }
        assert!(Signer::new(SigningAlgorithm(3), &Key::of([0; 16])).is_none());
    }

    // RFC 4231 would need a key of another length: HMAC-SHA256 over a header of zeros, from another implementation
    #[test]
    fn hmac_keeps_the_first_half() {
        let signer = Signer::new(SigningAlgorithm::HMAC_SHA256, &Key::of([0x0b; 16])).unwrap();
        assert_eq!(signer.signature(&[0; 64]).unwrap()[..], hex("e6868900313dee9b6fa6272f0f88a606"));
    }

    #[test]
    fn signatures_over_a_length_that_was_not_sent_are_distinguished_from_wrong_ones() {
        for algorithm in SigningAlgorithm::ALL {
            let signer = Signer::new(algorithm, &Key::of_slice(&[7; 16])).unwrap();
            let mut reply = Vec::from([0; 80]);
            reply[..4].copy_from_slice(b"\xfeSMB");
            reply[64] = 17;
            let data = [&[0, 0, 0, 80], &reply[..]].concat();
            let signature = signer.over([&[], &[], &data], &nonce(reply.first_chunk().unwrap()));
            reply[SIGNATURE..HEADER_LEN].copy_from_slice(&signature);
            assert!(signer.verify_with_length(&reply) && !signer.verify(&reply), "{algorithm}");
            reply[70] ^= 1;
            assert!(!signer.verify_with_length(&reply), "{algorithm}");
            assert!(
                signer.sign(&mut reply) && signer.verify(&reply) && !signer.verify_with_length(&reply),
                "{algorithm}"
            );
        }
    }
}
