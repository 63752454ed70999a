//! Encrypted messages: SMB2_TRANSFORM_HEADER, \[MS-SMB2\] 2.2.41, with AES-CCM (RFC 5084, nonces of 11 bytes) or
//! AES-GCM (12 bytes), and keys of 128 or 256 bits.
//!
//! ```text
//! FD 'SMB' │ signature 16 │ nonce 16 │ original size 4 │ reserved 2 │ flags 2 │ session id 8 │ ciphertext …
//!                         └─────────── authenticated with the ciphertext ────────────────┘
//! ```

use crate::keys::{CipherId, Key};
use aes::{Aes128, Aes256};
use aes_gcm::aead::{AeadCore, AeadInOut, Key as AeadKey, KeyInit, KeySizeUser};
use aes_gcm::aead::{Nonce, Tag};
use aes_gcm::{Aes128Gcm, Aes256Gcm};
use alloc::boxed::Box;
use alloc::vec::Vec;
use ccm::Ccm;
use ccm::consts::{U11, U16};
use core::fmt;

/// The first bytes of an encrypted message.
pub const PROTOCOL_ID: [u8; 4] = [0xfd, b'S', b'M', b'B'];

/// Bytes of an SMB2_TRANSFORM_HEADER.
pub const HEADER_LEN: usize = 52;

/// Offset of its nonce, in bytes; the authenticated part begins there, too.
const NONCE: usize = 20;

/// `Flags` of 3.1.1 (encrypted) and `EncryptionAlgorithm` of 3.0 (AES-128-CCM): the same number.
const ENCRYPTED: u16 = 0x0001;

/// Reason why an encrypted message stays encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sealed {
    /// No key for it is known.
    NoKey,
    /// The message is not whole: only a whole one can be authenticated.
    Short,
    /// No known key opens it: another session's, or the bytes were changed.
    Refused,
}

impl fmt::Display for Sealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoKey => "no key is known",
            Self::Short => "the message is not whole",
            Self::Refused => "the keys do not open it",
        })
    }
}

/// The session that an encrypted message belongs to, which its header says in the clear.
pub fn session_id(message: &[u8]) -> Option<u64> {
    let header = message.first_chunk::<HEADER_LEN>()?;
    header.starts_with(&PROTOCOL_ID).then(|| u64::from_le_bytes(*header.last_chunk().unwrap_or(&[0; 8])))
}

/// A key made ready for one of the ciphers.
#[derive(Clone)]
pub struct Cipher {
    id: CipherId,
    inner: Inner,
}

#[derive(Clone)]
enum Inner {
    Ccm128(Box<Ccm<Aes128, U16, U11>>),
    Ccm256(Box<Ccm<Aes256, U16, U11>>),
    Gcm128(Box<Aes128Gcm>),
    Gcm256(Box<Aes256Gcm>),
}

impl Cipher {
    /// `None` if there is no such cipher, or its keys have another length.
    pub fn new(id: CipherId, key: &Key) -> Option<Self> {
        fn ready<A: KeyInit + KeySizeUser>(key: &Key) -> Option<Box<A>> {
            <&AeadKey<A>>::try_from(key.bytes()).ok().map(|k| Box::new(A::new(k)))
        }
        let inner = match id {
            CipherId::AES_128_CCM => Inner::Ccm128(ready(key)?),
            CipherId::AES_256_CCM => Inner::Ccm256(ready(key)?),
            CipherId::AES_128_GCM => Inner::Gcm128(ready(key)?),
            CipherId::AES_256_GCM => Inner::Gcm256(ready(key)?),
            _ => return None,
        };
        Some(Self { id, inner })
    }

    /// Id of the cipher.
    pub fn id(&self) -> CipherId {
        self.id
    }

    /// Bytes of a nonce: 11 or 12.
    pub fn nonce_len(&self) -> usize {
        self.id.nonce_len()
    }

    /// Encrypts `data` in place and returns the signature of it and of `aad`. Of `nonce` only the first
    /// [`Cipher::nonce_len`] bytes count. `None` if it has fewer, or `data` is longer than the cipher allows.
    pub fn seal(&self, nonce: &[u8], aad: &[u8], data: &mut [u8]) -> Option<[u8; 16]> {
        fn seal<A: AeadInOut<TagSize = U16>>(a: &A, nonce: &[u8], aad: &[u8], data: &mut [u8]) -> Option<[u8; 16]> {
            let nonce = <&Nonce<A>>::try_from(nonce).ok()?;
            a.encrypt_inout_detached(nonce, aad, data.into()).ok().map(Into::into)
        }
        let nonce = nonce.get(..self.nonce_len())?;
        match &self.inner {
            Inner::Ccm128(a) => seal(&**a, nonce, aad, data),
            Inner::Ccm256(a) => seal(&**a, nonce, aad, data),
            Inner::Gcm128(a) => seal(&**a, nonce, aad, data),
            Inner::Gcm256(a) => seal(&**a, nonce, aad, data),
        }
    }

    /// Decrypts `data` in place. False if the signature is not that of `data` and `aad` under this key: the content of
    /// `data` is undefined then.
    pub fn open(&self, nonce: &[u8], aad: &[u8], data: &mut [u8], signature: &[u8; 16]) -> bool {
        fn open<A: AeadInOut<TagSize = U16>>(
            a: &A,
            nonce: &[u8],
            aad: &[u8],
            data: &mut [u8],
            signature: &[u8; 16],
        ) -> bool {
            let tag: &Tag<A> = signature.into();
            <&Nonce<A>>::try_from(nonce)
                .is_ok_and(|nonce| a.decrypt_inout_detached(nonce, aad, data.into(), tag).is_ok())
        }
        let Some(nonce) = nonce.get(..self.nonce_len()) else { return false };
        match &self.inner {
            Inner::Ccm128(a) => open(&**a, nonce, aad, data, signature),
            Inner::Ccm256(a) => open(&**a, nonce, aad, data, signature),
            Inner::Gcm128(a) => open(&**a, nonce, aad, data, signature),
            Inner::Gcm256(a) => open(&**a, nonce, aad, data, signature),
        }
    }

    /// Decrypts a message, which begins with its SMB2_TRANSFORM_HEADER, into `output`, whose content is replaced (a
    /// buffer kept from message to message does not allocate). `output` is empty after an error.
    ///
    /// # Errors
    /// [`Sealed::Short`] if the message has fewer bytes than its header says, [`Sealed::Refused`] if it is not
    /// authentic.
    pub fn decrypt(&self, message: &[u8], output: &mut Vec<u8>) -> Result<(), Sealed> {
        output.clear();
        let (header, body) = message.split_first_chunk::<HEADER_LEN>().ok_or(Sealed::Short)?;
        let size = u32::from_le_bytes([header[36], header[37], header[38], header[39]]) as usize;
        let body = body.get(..size).ok_or(Sealed::Short)?;
        let (signature, aad) = (header[4..NONCE].first_chunk::<16>(), &header[NONCE..]);
        let Some(signature) = signature.filter(|_| header.starts_with(&PROTOCOL_ID)) else {
            return Err(Sealed::Refused);
        };
        output.extend_from_slice(body);
        if self.open(&header[NONCE..NONCE + 16], aad, output, signature) {
            return Ok(());
        }
        output.clear();
        Err(Sealed::Refused)
    }

    /// Encrypts `message` under a nonce of [`Cipher::nonce_len`] bytes that this key must never see again, and appends
    /// header and ciphertext to `output`. `None`, with nothing appended, if the nonce is too short or the message too
    /// long.
    pub fn encrypt(&self, nonce: &[u8], session_id: u64, message: &[u8], output: &mut Vec<u8>) -> Option<()> {
        let size = u32::try_from(message.len()).ok()?;
        let nonce = nonce.get(..self.nonce_len())?;
        let base = output.len();
        output.extend_from_slice(&PROTOCOL_ID);
        output.extend_from_slice(&[0; 16]);
        output.extend_from_slice(nonce);
        output.resize(base + NONCE + 16, 0);
        output.extend_from_slice(&size.to_le_bytes());
        output.extend_from_slice(&[0; 2]);
        output.extend_from_slice(&ENCRYPTED.to_le_bytes());
        output.extend_from_slice(&session_id.to_le_bytes());
        output.extend_from_slice(message);
        let (header, body) = output[base..].split_at_mut(HEADER_LEN);
        match self.seal(nonce, &header[NONCE..], body) {
            Some(signature) => {
                header[4..NONCE].copy_from_slice(&signature);
                Some(())
            }
            None => {
                output.truncate(base);
                None
            }
        }
    }
}

impl fmt::Debug for Cipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cipher({})", self.id)
    }
}

// every one of them has the nonce that `CipherId::nonce_len` says
const _: fn() = || {
    fn nonces<A: AeadCore<NonceSize = N>, N>() {}
    nonces::<Ccm<Aes128, U16, U11>, U11>();
    nonces::<Aes128Gcm, ccm::consts::U12>();
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::testing::hex;
    use alloc::vec;

    fn cipher(id: CipherId, key: &str) -> Cipher {
        Cipher::new(id, &Key::of_slice(&hex(key))).unwrap()
    }

    // Microsoft's "Encryption in SMB 3.0: A protocol perspective"
    #[test]
    fn the_published_messages_of_dialect_3_0() {
        let plain = hex("FE534D4240000100000000000900400008000000000000000400000000000000
                         FFFE0000010000001100001400E4080000000000000000000000000000000000
                         3100700017000000000000000000000015010000390000020100000039020000
                         00000000000000007000000000000000536D623320656E6372797074696F6E20
                         74657374696E67");
        let encrypted = hex("FD534D4281A286535415445DAE393921E44FA42E66E69A111892584FB5ED524A
                             744DA3EE87000000000001001100001400E4080025C8FEE16605A437832D1CD5
                             2DA9F4645333482A175FE5384563F45FCDAFAEF38BC62BA4D5C62897996625A4
                             4C29BE5658DE2E6117585779E7B59FFD971278D08580D7FA899E410E910EABF5
                             AA1DB43050B33B49182637759AC15D84BFCDF5B6B238993C0F4CF4D6012023F6
                             C627297075D84B7803912D0A9639634453595EF3E33FFE4E7AC2AB");
        let c = cipher(CipherId::AES_128_CCM, "261B72350558F2E9DCF613070383EDBF");
        let mut output = vec![1];
        c.decrypt(&encrypted, &mut output).unwrap();
        assert_eq!(output, plain);
        assert_eq!(session_id(&encrypted), Some(0x8_e400_1400_0011));
        // the example fills all 16 bytes of the nonce field, though 11 of them count: not what `encrypt` writes
        let mut body = plain.clone();
        let signature = c.seal(&encrypted[20..31], &encrypted[20..52], &mut body).unwrap();
        assert_eq!((&signature[..], &body[..]), (&encrypted[4..20], &encrypted[52..]));

        let reply = hex("FD534D42A6015530A18F6D9AFFE22AFAE8E66484860000000000000011000014
                         00E4080050000000000001001100001400E40800DBF46435C5F14169293CE079
                         E344479BF670227E49873F458672C3098DAC467DD5809F369D67409166515787
                         1483E01F7BECD02064EAC3E235F913668BBC2F097980D4B378F1993EFF6E60D1
                         77309E5B");
        cipher(CipherId::AES_128_CCM, "8FE2B57EC34D2DB5B1A9727F526BBDB5").decrypt(&reply, &mut output).unwrap();
        assert_eq!(
            output,
            hex("FE534D4240000100000000000900210009000000000000000400000000000000
                                FFFE0000010000001100001400E4080000000000000000000000000000000000
                                11000000170000000000000000000000")
        );
    }

    // Microsoft's "SMB 3.1.1 Encryption in Windows 10"
    #[test]
    fn the_published_messages_of_dialect_3_1_1() {
        let plain = hex("FE534D4240000100000000000900010008000000000000000500000000000000FFFE000001000000
                         25000000001000000000000000000000000000000000000031007000170000000000000000000000
                         0600000004000000010000000400000000000000000000007000000000000000536D623320656E63
                         72797074696F6E2074657374696E67");
        let encrypted = hex("FD534D42BD73D97D2BC9001BCAFAC0FDFF5FEEBCC7D6822D269CAF48904C664C0000000087000000
                             0000010025000000001000006ECDD2A7AFC7B47763057A041B8FD4DAFFE990B70C9E09D36C084E02
                             D14EF247F8BDE38ACF6256F8B1D3B56F77FBDEB312FEA5E92CBCC1ED8FB2EBBFAA75E49A4A394BB4
                             4576545567C24D4C014D47C9FBDFDAFD2C4F9B72F8D256452620A299F48E29E53D6B61D1C13A19E9
                             1AF013F00D17E3ABC2FC3D36C8C1B6B93973253852DBD442E46EE8");
        let c = cipher(CipherId::AES_128_GCM, "A2F5E80E5D59103034F32E52F698E5EC");
        let mut output = Vec::new();
        c.decrypt(&encrypted, &mut output).unwrap();
        assert_eq!(output, plain);
        let mut ours = Vec::new();
        c.encrypt(&hex("C7D6822D269CAF48904C664C"), 0x1000_0000_0025, &plain, &mut ours).unwrap();
        assert_eq!(ours, encrypted);

        let reply = hex("FD534D42ACBE1CB7ED343ADF1725EF144D90D4B0E06831DD2E8EB7B4000000000000000050000000
                         00000100250000000010000026BBBF949983A6C1C796559D0F2C510CB651D1F7B6AC8DED32A2A0B8
                         F2D793A815C6F6B848D69767A215841A42D400AE6DDB5F0B44173A014973321FDD7950DA6179159B
                         82E03C9E18A050FF0EA1C967");
        cipher(CipherId::AES_128_GCM, "748C50868C90F302962A5C35F5F9A8BF").decrypt(&reply, &mut output).unwrap();
        assert_eq!(
            output,
            hex("FE534D4240000100000000000900010001000000000000000500000000000000FFFE000001000000
                                25000000001000000000000000000000000000000000000011000000170000000000000000000000")
        );
    }

    // The Galois/Counter Mode of Operation (GCM), McGrew and Viega, test cases 2 and 14
    #[test]
    fn the_vectors_of_gcm() {
        let mut block = [0; 16];
        let tag =
            cipher(CipherId::AES_128_GCM, "00000000000000000000000000000000").seal(&[0; 12], &[], &mut block).unwrap();
        assert_eq!(
            (&block[..], &tag[..]),
            (&hex("0388dace60b6a392f328c2b971b2fe78")[..], &hex("ab6e47d42cec13bdf53a67b21257bddf")[..])
        );
        let mut block = [0; 16];
        let c = cipher(CipherId::AES_256_GCM, "0000000000000000000000000000000000000000000000000000000000000000");
        let tag = c.seal(&[0; 12], &[], &mut block).unwrap();
        assert_eq!(
            (&block[..], &tag[..]),
            (&hex("cea7403d4d606b6e074ec5d3baf39d18")[..], &hex("d0d1c8a799996bf0265b98b5d48ab919")[..])
        );
    }

    #[test]
    fn every_cipher_reads_back_what_it_wrote_and_nothing_else() {
        for id in CipherId::ALL {
            let key = Key::of_slice(&vec![0x42; id.key_len()]);
            let c = Cipher::new(id, &key).unwrap();
            let message: Vec<u8> = (0..=255).cycle().take(700).collect();
            let mut sealed = vec![9, 9];
            c.encrypt(&[7; 12], 0x1122, &message, &mut sealed).unwrap();
            let sealed = &sealed[2..];
            assert_eq!(sealed[20 + c.nonce_len()..36], [0; 16][c.nonce_len()..]);
            let mut output = Vec::new();
            // bytes behind the message are not its own
            c.decrypt(&[sealed, &[1, 2, 3]].concat(), &mut output).unwrap();
            assert_eq!(output, message);
            for n in 0..sealed.len() {
                assert_eq!(c.decrypt(&sealed[..n], &mut output), Err(Sealed::Short));
            }
            for at in [0, 4, 19, 20, 30, 42, 44, 51, 52, 751] {
                let mut changed = sealed.to_vec();
                changed[at] ^= 0x10;
                assert_eq!(c.decrypt(&changed, &mut output), Err(Sealed::Refused), "{id} {at}");
                assert!(output.is_empty());
            }
            let wrong = Cipher::new(id, &Key::of_slice(&vec![0x43; id.key_len()])).unwrap();
            assert_eq!(wrong.decrypt(sealed, &mut output), Err(Sealed::Refused));
            assert!(Cipher::new(id, &Key::of([0; 24])).is_none());
            assert!(c.encrypt(&[7; 10], 1, &message, &mut output).is_none() && output.is_empty());
        }
        assert!(Cipher::new(CipherId(9), &Key::of([0; 16])).is_none());
    }
}
