//! NTLM version 2, \[MS-NLMP\] 3.3.2 and 3.4.5: reads the CHALLENGE and AUTHENTICATE messages of a capture or of a
//! peer, writes those of our own client and server, and derives the session key from a password. Little-endian; offsets
//! count from the start of each message.
//!
//! ```text
//! NT hash             MD4(password)
//! NTOWFv2             HMAC-MD5(NT hash, upper case user ‖ domain)
//! NTProofStr          HMAC-MD5(NTOWFv2, server challenge ‖ rest of the response)      must be what the client sent
//! session base key    HMAC-MD5(NTOWFv2, NTProofStr)
//! session key         RC4(session base key, EncryptedRandomSessionKey)                 or the base key itself
//! ```

use crate::keys::Key;
use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use hmac::{Hmac, Mac};
use md4::Md4;
use md5::Md5;
use rc4::{KeyInit, Rc4, StreamCipher};
use rdmascope_dissector::wire::smb2::ntlmssp::f;
use sha2::Digest;

const SIGNATURE: &[u8; 8] = b"NTLMSSP\0";
const NEGOTIATE_UNICODE: u32 = f::FLAG_UNICODE.mask as u32;
const NEGOTIATE_KEY_EXCH: u32 = f::FLAG_KEY_EXCHANGE.mask as u32;
const NEGOTIATE_ANONYMOUS: u32 = f::FLAG_ANONYMOUS.mask as u32;
const TARGET_TYPE_SERVER: u32 = f::FLAG_TARGET_SERVER.mask as u32;
/// Flags that our own client and server negotiate.
const NEGOTIATE_OURS: u32 = NEGOTIATE_UNICODE
    | f::FLAG_REQUEST_TARGET.mask as u32
    | f::FLAG_SIGN.mask as u32
    | f::FLAG_NTLM.mask as u32
    | f::FLAG_ALWAYS_SIGN.mask as u32
    | f::FLAG_EXTENDED_SECURITY.mask as u32
    | f::FLAG_TARGET_INFO.mask as u32
    | f::FLAG_VERSION.mask as u32
    | f::FLAG_128.mask as u32
    | NEGOTIATE_KEY_EXCH
    | f::FLAG_56.mask as u32;
const _: () = assert!(NEGOTIATE_OURS == 0xe288_8215);
/// VERSION, 2.2.2.10: product 6.1, NTLM revision 15.
const VERSION: [u8; 8] = [6, 1, 0, 0, 0, 0, 0, 15];
/// AV_PAIR, 2.2.2.1.
const AV_EOL: u16 = 0;
const AV_NB_COMPUTER_NAME: u16 = 1;
const AV_NB_DOMAIN_NAME: u16 = 2;
const AV_DNS_COMPUTER_NAME: u16 = 3;
const AV_DNS_DOMAIN_NAME: u16 = 4;
const AV_TIMESTAMP: u16 = 7;

/// Reason why a captured exchange does not give its session key.
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
            Self::Password => "none of the known passwords was used",
            Self::Version1 => "NTLM version 1",
            Self::SessionKey => "the encrypted session key is invalid",
        })
    }
}

/// The first NTLMSSP message in a security buffer, bare or inside SPNEGO: its type, and the bytes from its start to the
/// end of the buffer (its offsets give its length).
pub fn find(token: &[u8]) -> Option<(u32, &[u8])> {
    let at = token.windows(SIGNATURE.len()).position(|w| w == SIGNATURE)?;
    let message = &token[at..];
    Some((le32(message, 8)?, message))
}

/// Required values of a CHALLENGE_MESSAGE (\[MS-NLMP\] 2.2.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Challenge {
    /// NegotiateFlags.
    pub flags: u32,
    /// ServerChallenge.
    pub server_challenge: [u8; 8],
}

impl Challenge {
    /// `None` if `message` is none, or cut off.
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
    /// DomainName, in UTF-16 if `flags` say so.
    pub domain: &'a [u8],
    /// UserName.
    pub user: &'a [u8],
    /// Workstation.
    pub workstation: &'a [u8],
    /// EncryptedRandomSessionKey.
    pub encrypted_session_key: &'a [u8],
}

impl<'a> Authenticate<'a> {
    /// `None` if `message` is none, or a part of it lies outside.
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

    /// True if the session is anonymous.
    pub fn is_anonymous(&self) -> bool {
        self.user.is_empty() && self.nt_response.is_empty()
    }

    /// True if this is the user, whatever the case of the letters.
    pub fn is_user(&self, name: &str) -> bool {
        upper(self.utf16(self.user)).eq(upper(name.encode_utf16()))
    }

    /// The exported session key, which is SMB's. `nt_hash` is that of the user's password; an anonymous session has one
    /// of zeros.
    ///
    /// # Errors
    /// [`Refusal::Password`] if the password is another one.
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

/// A user, and the hash of the password.
#[derive(Clone, PartialEq, Eq)]
pub struct Account {
    /// The name.
    pub user: String,
    /// May be empty.
    pub domain: String,
    /// NT hash of the password; never the password itself.
    pub nt_hash: [u8; 16],
}

impl Account {
    /// A user, as `DOMAIN\user` or `user`, with a password.
    pub fn new(user: &str, password: &str) -> Self {
        let (domain, user) = user.split_once('\\').unwrap_or(("", user));
        Self { user: user.to_owned(), domain: domain.to_owned(), nt_hash: nt_hash(password) }
    }
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Account({}\\{})", self.domain, self.user)
    }
}

/// Random bytes and the time, which an AUTHENTICATE_MESSAGE needs and this crate does not have.
#[derive(Clone, Copy)]
pub struct Fresh {
    /// ClientChallenge.
    pub client_challenge: [u8; 8],
    /// ExportedSessionKey.
    pub session_key: [u8; 16],
    /// Now, in units of 100 ns since 1601; used if the server did not send its own time.
    pub filetime: u64,
}

/// Writes a NEGOTIATE_MESSAGE (2.2.1.1).
pub fn emit_negotiate() -> Vec<u8> {
    let mut out = head(1);
    out.extend_from_slice(&NEGOTIATE_OURS.to_le_bytes());
    out.extend_from_slice(&[0; 16]);
    out.extend_from_slice(&VERSION);
    out
}

/// Writes the CHALLENGE_MESSAGE (2.2.1.2) of a server of this name. `filetime` is now, in units of 100 ns since 1601.
pub fn emit_challenge(server_challenge: [u8; 8], name: &str, filetime: u64) -> Vec<u8> {
    let name: Vec<u8> = name.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let mut info = Vec::new();
    for id in [AV_NB_DOMAIN_NAME, AV_NB_COMPUTER_NAME, AV_DNS_DOMAIN_NAME, AV_DNS_COMPUTER_NAME] {
        av_pair(&mut info, id, &name);
    }
    av_pair(&mut info, AV_TIMESTAMP, &filetime.to_le_bytes());
    av_pair(&mut info, AV_EOL, &[]);
    let mut out = head(2);
    payload_field(&mut out, name.len(), 56);
    out.extend_from_slice(&(NEGOTIATE_OURS | TARGET_TYPE_SERVER).to_le_bytes());
    out.extend_from_slice(&server_challenge);
    out.extend_from_slice(&[0; 8]);
    payload_field(&mut out, info.len(), 56 + name.len());
    out.extend_from_slice(&VERSION);
    out.extend_from_slice(&name);
    out.extend_from_slice(&info);
    out
}

/// Writes the AUTHENTICATE_MESSAGE (2.2.1.3) that answers `challenge_message`, and derives the session key; an
/// anonymous one without an account. `None` if `challenge_message` is no CHALLENGE_MESSAGE.
pub fn emit_authenticate(challenge_message: &[u8], account: Option<&Account>, fresh: &Fresh) -> Option<(Vec<u8>, Key)> {
    let challenge = Challenge::parse(challenge_message)?;
    let mut flags = NEGOTIATE_OURS & challenge.flags | NEGOTIATE_KEY_EXCH;
    let utf16 = |text: &str| -> Vec<u8> { text.encode_utf16().flat_map(u16::to_le_bytes).collect() };
    let (user, domain) = account.map_or_else(Default::default, |who| (utf16(&who.user), utf16(&who.domain)));
    let (lm, nt, base) = if let Some(who) = account {
        let info = target_info(challenge_message).unwrap_or_default();
        let key = ntowf_v2(&who.nt_hash, upper(who.user.encode_utf16()).chain(who.domain.encode_utf16()));
        let mut rest = vec![1, 1, 0, 0, 0, 0, 0, 0];
        rest.extend_from_slice(&timestamp(info).unwrap_or(fresh.filetime).to_le_bytes());
        rest.extend_from_slice(&fresh.client_challenge);
        rest.extend_from_slice(&[0; 4]);
        rest.extend_from_slice(info);
        rest.extend_from_slice(&[0; 4]);
        let proof = hmac_md5(&key, &[&challenge.server_challenge, &rest]);
        let base = hmac_md5(&key, &[&proof]);
        (vec![0; 24], [&proof[..], &rest].concat(), base)
    } else {
        flags |= NEGOTIATE_ANONYMOUS;
        (vec![0], Vec::new(), [0; 16])
    };
    let mut encrypted = fresh.session_key;
    rc4(&base, &mut encrypted);
    let mut out = head(3);
    let mut at = 72;
    for field in [&lm[..], &nt, &domain, &user, &[], &encrypted] {
        payload_field(&mut out, field.len(), at);
        at += field.len();
    }
    out.extend_from_slice(&flags.to_le_bytes());
    out.extend_from_slice(&VERSION);
    for field in [&lm[..], &nt, &domain, &user, &encrypted] {
        out.extend_from_slice(field);
    }
    Some((out, Key::of(fresh.session_key)))
}

fn head(message_type: u32) -> Vec<u8> {
    [&SIGNATURE[..], &message_type.to_le_bytes()].concat()
}

/// Length, the same as MaxLen, and offset of a field of the payload.
fn payload_field(out: &mut Vec<u8>, length: usize, offset: usize) {
    out.extend_from_slice(&(length as u16).to_le_bytes());
    out.extend_from_slice(&(length as u16).to_le_bytes());
    out.extend_from_slice(&(offset as u32).to_le_bytes());
}

fn av_pair(out: &mut Vec<u8>, id: u16, value: &[u8]) {
    out.extend_from_slice(&id.to_le_bytes());
    out.extend_from_slice(&(value.len() as u16).to_le_bytes());
    out.extend_from_slice(value);
}

/// TargetInfo of a CHALLENGE_MESSAGE.
fn target_info(message: &[u8]) -> Option<&[u8]> {
    let length = u16::from_le_bytes(*message.get(40..)?.first_chunk()?);
    let offset = le32(message, 44)? as usize;
    message.get(offset..offset.checked_add(usize::from(length))?)
}

/// MsvAvTimestamp of a TargetInfo.
fn timestamp(mut info: &[u8]) -> Option<u64> {
    loop {
        let (id, rest) = info.split_first_chunk::<2>()?;
        let (length, rest) = rest.split_first_chunk::<2>()?;
        let (value, rest) = rest.split_at_checked(u16::from_le_bytes(*length).into())?;
        match u16::from_le_bytes(*id) {
            AV_EOL => return None,
            AV_TIMESTAMP => return value.first_chunk().map(|v| u64::from_le_bytes(*v)),
            _ => info = rest,
        }
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

/// Upper case, unit by unit as Windows has it: a letter that would become several stays, and so does half a surrogate
/// pair.
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
    let Ok(mut mac) = <Hmac<Md5> as hmac::KeyInit>::new_from_slice(key) else {
        unreachable!("HMAC takes keys of any length")
    };
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
        let mut nt =
            hex("68cd0ab851e51c96aabc927bebef6a1c 0101000000000000 0000000000000000 aaaaaaaaaaaaaaaa 00000000");
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
    fn a_client_proves_itself_to_a_server_whatever_the_letters_of_the_name() {
        let fresh = Fresh { client_challenge: [7; 8], session_key: [9; 16], filetime: 1 };
        let server = emit_challenge(*b"01234567", "SERVER", 133_000_000_000_000_000);
        let parsed = Challenge::parse(&server).unwrap();
        assert_eq!(timestamp(target_info(&server).unwrap()), Some(133_000_000_000_000_000));
        // Windows maps the case of a name unit by unit: ß has no capital of one unit and stays
        for (user, other) in [("WORK\\Ünal", "ünal"), ("grüße", "GRÜßE"), ("𐐨user", "𐐨USER")] {
            let account = Account::new(user, "secret");
            let (message, key) = emit_authenticate(&server, Some(&account), &fresh).unwrap();
            let authenticate = Authenticate::parse(&message).unwrap();
            assert!(authenticate.is_user(other), "{user}");
            let same = ntowf_v2(&account.nt_hash, other.encode_utf16().chain(account.domain.encode_utf16()));
            if other.chars().all(|c| !c.is_lowercase() || c == 'ß' || !c.is_ascii() && u32::from(c) > 0xffff) {
                let (proof, rest) = authenticate.nt_response.split_at(16);
                assert_eq!(hmac_md5(&same, &[b"01234567", rest]), proof, "{user}");
            }
            assert_eq!(
                (authenticate.session_key(&parsed, &account.nt_hash), key),
                (Ok(key), Key::of([9; 16])),
                "{user}"
            );
            assert_eq!(authenticate.session_key(&parsed, &[0; 16]), Err(Refusal::Password), "{user}");
        }
        let (message, key) = emit_authenticate(&server, None, &fresh).unwrap();
        let authenticate = Authenticate::parse(&message).unwrap();
        assert!(authenticate.is_anonymous());
        assert_eq!(authenticate.session_key(&parsed, &[0; 16]), Ok(key));
        assert_eq!(find(&emit_negotiate()).unwrap().0, 1);
        assert_eq!(emit_authenticate(&message, None, &fresh), None);
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
