//! From a password to a session key: NTLM version 2, \[MS-NLMP\] 3.3.2 and 3.4.5, with the CHALLENGE and AUTHENTICATE messages that were
//! captured. Little-endian; offsets count from the start of each message.
//!
//! ```text
//! NT hash             MD4(password)
//! NTOWFv2             HMAC-MD5(NT hash, upper case user ‖ domain)
//! NTProofStr          HMAC-MD5(NTOWFv2, server challenge ‖ rest of the response)      must be what the client sent
//! session base key    HMAC-MD5(NTOWFv2, NTProofStr)
//! session key         RC4(session base key, EncryptedRandomSessionKey)                 or the base key itself
//! ```

use crate::keys::Key;
use alloc::vec::Vec;
use core::fmt;
use hmac::{Hmac, Mac};
use md4::Md4;
use md5::Md5;
use rc4::{KeyInit, Rc4, StreamCipher};
use sha2::Digest;

const SIGNATURE: &[u8; 8] = b"NTLMSSP\0";
const NEGOTIATE_UNICODE: u32 = 0x0000_0001;
const NEGOTIATE_KEY_EXCH: u32 = 0x4000_0000;

/// Why a captured exchange does not give its session key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No password is known, or none that is known is the one that was used.
    Password,
    /// NTLM version 1, which is not followed.
    Version1,
    /// The encrypted session key does not have 16 bytes.
    SessionKey,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Password => "no known password is the one that was used",
            Self::Version1 => "NTLM version 1",
            Self::SessionKey => "the encrypted session key is not one",
        })
    }
}

/// The first NTLMSSP message in a security buffer, bare or inside SPNEGO: its type, and the bytes from its start to the end of the
/// buffer (its offsets say how much of that it is).
pub fn find(token: &[u8]) -> Option<(u32, &[u8])> {
    let at = token.windows(SIGNATURE.len()).position(|w| w == SIGNATURE)?;
    let message = &token[at..];
    Some((le32(message, 8)?, message))
}

/// What is needed of a CHALLENGE_MESSAGE (\[MS-NLMP\] 2.2.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Challenge {
    /// NegotiateFlags.
    pub flags: u32,
    /// ServerChallenge.
    pub server_challenge: [u8; 8],
}

impl Challenge {
    /// `None` where `message` is none, or cut off.
    pub fn parse(message: &[u8]) -> Option<Self> {
        (message.starts_with(SIGNATURE) && le32(message, 8)? == 2).then_some(())?;
        Some(Self { flags: le32(message, 20)?, server_challenge: *message.get(24..)?.first_chunk()? })
    }
}

/// An AUTHENTICATE_MESSAGE (\[MS-NLMP\] 2.2.1.3).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Authenticate<'a> {
    /// NegotiateFlags.
    pub flags: u32,
    /// LmChallengeResponse.
    pub lm_response: &'a [u8],
    /// NtChallengeResponse: NTProofStr and the rest of an NTLMv2_RESPONSE.
    pub nt_response: &'a [u8],
    /// DomainName, in UTF-16 where `flags` say so.
    pub domain: &'a [u8],
    /// UserName.
    pub user: &'a [u8],
    /// Workstation.
    pub workstation: &'a [u8],
    /// EncryptedRandomSessionKey.
    pub encrypted_session_key: &'a [u8],
}

impl<'a> Authenticate<'a> {
    /// `None` where `message` is none, or a part of it lies outside.
    pub fn parse(message: &'a [u8]) -> Option<Self> {
        (message.starts_with(SIGNATURE) && le32(message, 8)? == 3).then_some(())?;
        let part = |at| {
            let len = u16::from_le_bytes(*message.get(at..)?.first_chunk()?);
            let start = le32(message, at + 4)? as usize;
            if len == 0 { Some(&[][..]) } else { message.get(start..start.checked_add(usize::from(len))?) }
        };
        Some(Self {
            lm_response: part(12)?,
            nt_response: part(20)?,
            domain: part(28)?,
            user: part(36)?,
            workstation: part(44)?,
            encrypted_session_key: part(52)?,
            flags: le32(message, 60)?,
        })
    }

    /// Whether nobody is authenticated.
    pub fn is_anonymous(&self) -> bool {
        self.user.is_empty() && self.nt_response.is_empty()
    }

    /// Whether this is the user, whatever the case of the letters.
    pub fn is_user(&self, name: &str) -> bool {
        upper(self.utf16(self.user)).eq(upper(name.encode_utf16()))
    }

    /// The exported session key, which is SMB's. `nt_hash` is that of the user's password; an anonymous session has one of zeros.
    ///
    /// # Errors
    /// [`Refusal::Password`] where the password is another one.
    pub fn session_key(&self, challenge: &Challenge, nt_hash: &[u8; 16]) -> Result<Key, Refusal> {
        let base = if self.is_anonymous() {
            [0; 16]
        } else {
            let (proof, rest) = self.nt_response.split_first_chunk::<16>().ok_or(Refusal::Password)?;
            if rest.len() <= 8 {
                return Err(Refusal::Version1);
            }
            let key = ntowf_v2(nt_hash, upper(self.utf16(self.user)).chain(self.utf16(self.domain)));
            if hmac_md5(&key, &[&challenge.server_challenge, rest]) != *proof {
                return Err(Refusal::Password);
            }
            hmac_md5(&key, &[proof])
        };
        if self.flags & NEGOTIATE_KEY_EXCH == 0 {
            return Ok(Key::of(base));
        }
        let mut key: [u8; 16] = self.encrypted_session_key.try_into().map_err(|_| Refusal::SessionKey)?;
        rc4(&base, &mut key);
        Ok(Key::of(key))
    }

    fn utf16(&self, name: &'a [u8]) -> impl Iterator<Item = u16> + Clone + 'a {
        let width = if self.flags & NEGOTIATE_UNICODE != 0 { 2 } else { 1 };
        // the other character set is the client's own; all of them begin with ASCII
        name.chunks_exact(width).map(|c| c.iter().rev().fold(0, |unit, b| unit << 8 | u16::from(*b)))
    }
}

impl fmt::Debug for Authenticate<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Authenticate({} bytes of response, flags {:#010x})", self.nt_response.len(), self.flags)
    }
}

/// NTOWF of version 1: MD4 of the password in UTF-16.
pub fn nt_hash(password: &str) -> [u8; 16] {
    let mut md4 = Md4::new();
    password.encode_utf16().for_each(|unit| md4.update(unit.to_le_bytes()));
    md4.finalize().into()
}

/// NTOWF of version 2. `name` is the user in upper case, then the domain as it is.
pub fn ntowf_v2(nt_hash: &[u8; 16], name: impl Iterator<Item = u16>) -> [u8; 16] {
    let bytes: Vec<u8> = name.flat_map(u16::to_le_bytes).collect();
    hmac_md5(nt_hash, &[&bytes])
}

/// Upper case, unit by unit as Windows has it: what would become several letters stays, and so does half a surrogate pair.
fn upper(units: impl Iterator<Item = u16>) -> impl Iterator<Item = u16> {
    units.map(|unit| {
        let Some(c) = char::from_u32(u32::from(unit)) else { return unit };
        let mut letters = c.to_uppercase();
        match (letters.next(), letters.next()) {
            (Some(letter), None) => u16::try_from(u32::from(letter)).unwrap_or(unit),
            _ => unit,
        }
    })
}

fn hmac_md5(key: &[u8; 16], parts: &[&[u8]]) -> [u8; 16] {
    let Ok(mut mac) = <Hmac<Md5> as hmac::KeyInit>::new_from_slice(key) else { unreachable!("HMAC takes keys of any length") };
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().into()
}

fn rc4(key: &[u8; 16], data: &mut [u8]) {
    let Ok(mut rc4) = Rc4::new_from_slice(key) else { unreachable!("RC4 takes keys of 1 to 256 bytes") };
    rc4.apply_keystream(data);
}

fn le32(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|b| u32::from_le_bytes(*b))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::keys::testing::hex;
    use crate::keys::{Keyring, Secret};
    use proptest::prelude::*;

    fn utf16(text: &str) -> Vec<u8> {
        text.encode_utf16().flat_map(u16::to_le_bytes).collect()
    }

    /// The CHALLENGE_MESSAGE of [MS-NLMP] 4.2.4, as far as it matters.
    pub(crate) fn challenge() -> Vec<u8> {
        let mut message = hex("4e544c4d53535000 02000000 0c000c00 38000000 33828ae2 0123456789abcdef 0000000000000000");
        message.resize(56, 0);
        message
    }

    /// The AUTHENTICATE_MESSAGE of [MS-NLMP] 4.2.4.
    pub(crate) fn authenticate() -> Vec<u8> {
        let mut nt = hex("68cd0ab851e51c96aabc927bebef6a1c 0101000000000000 0000000000000000 aaaaaaaaaaaaaaaa 00000000");
        for (id, name) in [(2, "Domain"), (1, "Server")] {
            nt.extend([id, 0, 12, 0]);
            nt.extend(utf16(name));
        }
        nt.extend([0; 8]);
        let parts = [
            hex("86c35097ac9cec102554764a57cccc19aaaaaaaaaaaaaaaa"),
            nt,
            utf16("Domain"),
            utf16("User"),
            utf16("COMPUTER"),
            hex("c5dad2544fc9799094ce1ce90bc9d03e"),
        ];
        let mut message = hex("4e544c4d53535000 03000000");
        let mut offset = 72;
        for part in &parts {
            message.extend((part.len() as u16).to_le_bytes());
            message.extend((part.len() as u16).to_le_bytes());
            message.extend(u32::try_from(offset).unwrap().to_le_bytes());
            offset += part.len();
        }
        message.extend(hex("358288e2 0501280a 0000000f"));
        message.extend(parts.concat());
        message
    }

    // [MS-NLMP] 4.2.2.1.2 and 4.2.4
    #[test]
    fn the_spec_s_example_gives_its_session_key() {
        assert_eq!(nt_hash("Password")[..], hex("a4f49c406510bdcab6824ee7c30fd852"));
        let name = upper("User".encode_utf16()).chain("Domain".encode_utf16());
        assert_eq!(ntowf_v2(&nt_hash("Password"), name)[..], hex("0c868a403bfd7a93a3001ef22ef02e3f"));
        let (server, client) = (challenge(), authenticate());
        let challenge = Challenge::parse(&server).unwrap();
        let authenticate = Authenticate::parse(&client).unwrap();
        assert_eq!(authenticate.session_key(&challenge, &nt_hash("Password")), Ok(Key::of([0x55; 16])));
        let without = Authenticate { flags: authenticate.flags & !NEGOTIATE_KEY_EXCH, ..authenticate };
        let base = Key::of_slice(&hex("8de40ccadbc14a82f15cb0ad0de95ca3"));
        assert_eq!(without.session_key(&challenge, &nt_hash("Password")), Ok(base));

        assert_eq!(authenticate.session_key(&challenge, &nt_hash("password")), Err(Refusal::Password));
        let other = Challenge { server_challenge: [0; 8], ..challenge };
        assert_eq!(authenticate.session_key(&other, &nt_hash("Password")), Err(Refusal::Password));
        let cut = Authenticate { encrypted_session_key: &[1; 8], ..authenticate };
        assert_eq!(cut.session_key(&challenge, &nt_hash("Password")), Err(Refusal::SessionKey));
        let old = Authenticate { nt_response: &authenticate.nt_response[..24], ..authenticate };
        assert_eq!(old.session_key(&challenge, &nt_hash("Password")), Err(Refusal::Version1));
    }

    #[test]
    fn the_right_password_is_found_among_several() {
        let (server, client) = (challenge(), authenticate());
        let (challenge, authenticate) = (Challenge::parse(&server).unwrap(), Authenticate::parse(&client).unwrap());
        let mut ring = Keyring::new();
        assert_eq!(ring.ntlm(&challenge, &authenticate), Err(Refusal::Password));
        ring.add_password(Some("other"), "Password");
        ring.add_password(None, "wrong");
        assert_eq!(ring.ntlm(&challenge, &authenticate), Err(Refusal::Password));
        ring.add_secret(Secret { user: Some("uSER".into()), nt_hash: nt_hash("Password") });
        assert_eq!(ring.ntlm(&challenge, &authenticate), Ok(Key::of([0x55; 16])));
        // an anonymous session needs none
        let nobody = Authenticate { user: &[], nt_response: &[], flags: 0, ..authenticate };
        assert_eq!(Keyring::new().ntlm(&challenge, &nobody), Ok(Key::of([0; 16])));
    }

    #[test]
    fn messages_are_found_inside_other_tokens_and_cut_ones_are_none() {
        let (server, client) = (challenge(), authenticate());
        let token = [&[0xa1, 0x82, 1, 2], &client[..]].concat();
        assert_eq!(find(&token), Some((3, &client[..])));
        assert_eq!(find(&server).unwrap().0, 2);
        assert_eq!(find(&token[..14]), None);
        assert!(Challenge::parse(&client).is_none() && Authenticate::parse(&server).is_none());
        for n in 0..client.len() {
            assert!(Authenticate::parse(&client[..n]).is_none(), "{n}");
        }
        assert!((0..32).all(|n| Challenge::parse(&server[..n]).is_none()));
    }

    #[test]
    fn letters_keep_their_number() {
        let of = |text: &str| -> Vec<u16> { upper(text.encode_utf16()).collect() };
        assert_eq!(of("grüße"), "GRÜßE".encode_utf16().collect::<Vec<_>>());
        assert_eq!(upper([0xd800, u16::from(b'a')].into_iter()).collect::<Vec<_>>(), [0xd800, u16::from(b'A')]);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_survived(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), kind in 1_u8..5) {
            if bytes.len() >= 12 {
                bytes[..8].copy_from_slice(SIGNATURE);
                bytes[8..12].copy_from_slice(&[kind, 0, 0, 0]);
            }
            let challenge = Challenge { flags: 0, server_challenge: [0; 8] };
            if let Some(authenticate) = Authenticate::parse(&bytes) {
                let _ = authenticate.session_key(&challenge, &[0; 16]);
            }
            let _ = (Challenge::parse(&bytes), find(&bytes));
        }
    }
}
