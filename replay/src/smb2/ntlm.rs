//! NTLM version 2, \[MS-NLMP\], in SPNEGO, RFC 4178: what a client and a server say. The cryptography behind it is the analyzer's.

use crate::error::{Result, random};
use hmac::{KeyInit, Mac};
use md5::Md5;
use rc4::StreamCipher;
use rdmascope_analyzer::keys::Key;
use rdmascope_analyzer::keys::ntlm::{Challenge, ntowf_v2};
use std::time::{SystemTime, UNIX_EPOCH};

const SIGNATURE: &[u8] = b"NTLMSSP\0";
/// Unicode, request target, sign, NTLM, always sign, extended session security, target info, version, 128 bits, key exchange, 56 bits.
const FLAGS: u32 = 0xe288_8215;
const ANONYMOUS: u32 = 0x0000_0800;
const KEY_EXCHANGE: u32 = 0x4000_0000;
const TARGET_TYPE_SERVER: u32 = 0x0002_0000;
/// ProductVersion 6.1, NTLM revision 15.
const VERSION: [u8; 8] = [6, 1, 0, 0, 0, 0, 0, 15];
const AV_TIMESTAMP: u16 = 7;

/// 1.3.6.1.5.5.2
const OID_SPNEGO: &[u8] = &[0x06, 0x06, 0x2b, 0x06, 0x01, 0x05, 0x05, 0x02];
/// 1.3.6.1.4.1.311.2.2.10
pub(crate) const OID_NTLMSSP: &[u8] = &[0x06, 0x0a, 0x2b, 0x06, 0x01, 0x04, 0x01, 0x82, 0x37, 0x02, 0x02, 0x0a];

/// An account and what is known of its password.
#[derive(Clone)]
pub struct Account {
    /// Its name.
    pub user: String,
    /// May be empty.
    pub domain: String,
    /// NT hash of the password; never the password itself.
    pub nt_hash: [u8; 16],
}

impl std::fmt::Debug for Account {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Account({}\\{})", self.domain, self.user)
    }
}

impl Account {
    /// A user, as `DOMAIN\user` or `user`, with a password.
    pub fn new(user: &str, password: &str) -> Self {
        let (domain, user) = user.split_once('\\').unwrap_or(("", user));
        Self { user: user.to_owned(), domain: domain.to_owned(), nt_hash: rdmascope_analyzer::keys::ntlm::nt_hash(password) }
    }
}

/// DER: tag, length, contents.
pub(crate) fn der(tag: u8, contents: &[&[u8]]) -> Vec<u8> {
    let length: usize = contents.iter().map(|c| c.len()).sum();
    let mut out = vec![tag];
    match length {
        0..=0x7f => out.push(length as u8),
        0x80..=0xff => out.extend_from_slice(&[0x81, length as u8]),
        _ => {
            out.push(0x82);
            out.extend_from_slice(&(length as u16).to_be_bytes());
        }
    }
    for part in contents {
        out.extend_from_slice(part);
    }
    out
}

/// The client's first token: NTLM is offered, and its first message is here.
pub fn spnego_init(message: &[u8]) -> Vec<u8> {
    spnego_init_of(&[OID_NTLMSSP], Some(message))
}

/// A NegTokenInit, with the message of the first mechanism.
pub(crate) fn spnego_init_of(mechanisms: &[&[u8]], message: Option<&[u8]>) -> Vec<u8> {
    let mechanisms = der(0xa0, &[&der(0x30, mechanisms)]);
    let token = message.map_or_else(Vec::new, |m| der(0xa2, &[&der(0x04, &[m])]));
    der(0x60, &[OID_SPNEGO, &der(0xa0, &[&der(0x30, &[&mechanisms, &token])])])
}

/// A token of NTLM that follows. State: 0 complete, 1 incomplete; a client says none.
pub fn spnego_response(state: Option<u8>, message: Option<&[u8]>) -> Vec<u8> {
    spnego_response_of(state, (state == Some(1)).then_some(OID_NTLMSSP), message)
}

/// A NegTokenResp.
pub(crate) fn spnego_response_of(state: Option<u8>, mechanism: Option<&[u8]>, message: Option<&[u8]>) -> Vec<u8> {
    let state = state.map_or_else(Vec::new, |s| der(0xa0, &[&der(0x0a, &[&[s]])]));
    let mechanism = mechanism.map_or_else(Vec::new, |m| der(0xa1, &[m]));
    let token = message.map_or_else(Vec::new, |m| der(0xa2, &[&der(0x04, &[m])]));
    der(0xa1, &[&der(0x30, &[&state, &mechanism, &token])])
}

/// NEGOTIATE_MESSAGE, \[MS-NLMP\] 2.2.1.1.
pub fn negotiate() -> Vec<u8> {
    let mut out = SIGNATURE.to_vec();
    out.extend_from_slice(&1u32.to_le_bytes());
    out.extend_from_slice(&FLAGS.to_le_bytes());
    out.extend_from_slice(&[0; 16]);
    out.extend_from_slice(&VERSION);
    out
}

/// CHALLENGE_MESSAGE, \[MS-NLMP\] 2.2.1.2, of a server of this name.
pub fn challenge(server_challenge: [u8; 8], name: &str) -> Vec<u8> {
    let name = utf16(name);
    let mut info = Vec::new();
    // NetBIOS domain and computer, DNS domain and computer
    for id in [2u16, 1, 4, 3] {
        info.extend_from_slice(&id.to_le_bytes());
        info.extend_from_slice(&(name.len() as u16).to_le_bytes());
        info.extend_from_slice(&name);
    }
    info.extend_from_slice(&AV_TIMESTAMP.to_le_bytes());
    info.extend_from_slice(&8u16.to_le_bytes());
    info.extend_from_slice(&filetime().to_le_bytes());
    info.extend_from_slice(&[0; 4]);
    let mut out = SIGNATURE.to_vec();
    out.extend_from_slice(&2u32.to_le_bytes());
    part(&mut out, name.len(), 56);
    out.extend_from_slice(&(FLAGS | TARGET_TYPE_SERVER).to_le_bytes());
    out.extend_from_slice(&server_challenge);
    out.extend_from_slice(&[0; 8]);
    part(&mut out, info.len(), 56 + name.len());
    out.extend_from_slice(&VERSION);
    out.extend_from_slice(&name);
    out.extend_from_slice(&info);
    out
}

/// AUTHENTICATE_MESSAGE, \[MS-NLMP\] 2.2.1.3, in answer to a challenge, and the session key; of nobody where there is no account. `None` where the
/// challenge is none.
///
/// # Errors
/// Where the system gives no random numbers.
pub fn authenticate(challenge_message: &[u8], who: Option<&Account>) -> Result<Option<(Vec<u8>, Key)>> {
    let Some(challenge) = Challenge::parse(challenge_message) else { return Ok(None) };
    let flags = FLAGS & challenge.flags | KEY_EXCHANGE;
    let info = target_info(challenge_message).unwrap_or_default();
    let (user, domain) = who.map_or_else(Default::default, |who| (utf16(&who.user), utf16(&who.domain)));
    let (lm, nt, base, flags) = if let Some(who) = who {
        let upper = who.user.to_uppercase();
        let key = ntowf_v2(&who.nt_hash, upper.encode_utf16().chain(who.domain.encode_utf16()));
        let mut rest = vec![1, 1, 0, 0, 0, 0, 0, 0];
        rest.extend_from_slice(&timestamp(info).unwrap_or_else(filetime).to_le_bytes());
        rest.extend_from_slice(&random::<8>()?);
        rest.extend_from_slice(&[0; 4]);
        rest.extend_from_slice(info);
        rest.extend_from_slice(&[0; 4]);
        let proof = hmac_md5(&key, &[&challenge.server_challenge, &rest]);
        let base = hmac_md5(&key, &[&proof]);
        (vec![0; 24], [&proof[..], &rest].concat(), base, flags)
    } else {
        (vec![0], Vec::new(), [0; 16], flags | ANONYMOUS)
    };
    let session_key = random::<16>()?;
    let mut encrypted = session_key;
    if let Ok(mut cipher) = rc4::Rc4::new_from_slice(&base) {
        cipher.apply_keystream(&mut encrypted);
    }
    let mut out = SIGNATURE.to_vec();
    out.extend_from_slice(&3u32.to_le_bytes());
    let mut at = 72;
    for field in [&lm[..], &nt, &domain, &user, &[], &encrypted] {
        part(&mut out, field.len(), at);
        at += field.len();
    }
    out.extend_from_slice(&flags.to_le_bytes());
    out.extend_from_slice(&VERSION);
    for field in [&lm[..], &nt, &domain, &user, &encrypted] {
        out.extend_from_slice(field);
    }
    Ok(Some((out, Key::of(session_key))))
}

fn target_info(message: &[u8]) -> Option<&[u8]> {
    let length = u16::from_le_bytes(*message.get(40..)?.first_chunk()?);
    let offset = u32::from_le_bytes(*message.get(44..)?.first_chunk()?) as usize;
    message.get(offset..offset.checked_add(usize::from(length))?)
}

fn timestamp(mut info: &[u8]) -> Option<u64> {
    loop {
        let (id, rest) = info.split_first_chunk::<2>()?;
        let (length, rest) = rest.split_first_chunk::<2>()?;
        let (value, rest) = rest.split_at_checked(u16::from_le_bytes(*length).into())?;
        match u16::from_le_bytes(*id) {
            0 => return None,
            AV_TIMESTAMP => return value.first_chunk().map(|v| u64::from_le_bytes(*v)),
            _ => info = rest,
        }
    }
}

fn part(out: &mut Vec<u8>, length: usize, offset: usize) {
    out.extend_from_slice(&(length as u16).to_le_bytes());
    out.extend_from_slice(&(length as u16).to_le_bytes());
    out.extend_from_slice(&(offset as u32).to_le_bytes());
}

/// Text as SMB2 has it.
pub fn utf16(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

/// Now, in units of 100 ns since 1601.
pub fn filetime() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| filetime_of(d.as_nanos() as u64))
}

/// A time in ns since 1970 as units of 100 ns since 1601.
pub fn filetime_of(unix_ns: u64) -> u64 {
    unix_ns / 100 + 116_444_736_000_000_000
}

fn hmac_md5(key: &[u8; 16], parts: &[&[u8]]) -> [u8; 16] {
    let mut mac = <hmac::Hmac<Md5> as KeyInit>::new_from_slice(key).expect("HMAC takes keys of any length");
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdmascope_analyzer::keys::ntlm::{Authenticate, Refusal, find};

    #[test]
    fn what_the_client_says_is_what_the_analyzer_proves() {
        let who = Account::new("WORK\\Ünal", "secret");
        let challenge = challenge(*b"01234567", "SERVER");
        let token = spnego_response(Some(1), Some(&challenge));
        let (kind, found) = find(&token).unwrap();
        assert_eq!((kind, found), (2, &challenge[..]));
        let (message, key) = authenticate(found, Some(&who)).unwrap().unwrap();
        let parsed = Authenticate::parse(&message).unwrap();
        let parsed_challenge = Challenge::parse(&challenge).unwrap();
        assert!(parsed.is_user("ünal"));
        assert_eq!(parsed.session_key(&parsed_challenge, &who.nt_hash), Ok(key));
        assert_eq!(parsed.session_key(&parsed_challenge, &[0; 16]), Err(Refusal::Password));
        let (message, key) = authenticate(found, None).unwrap().unwrap();
        let parsed = Authenticate::parse(&message).unwrap();
        assert_eq!(parsed.session_key(&parsed_challenge, &[0; 16]), Ok(key));
        assert_eq!(find(&spnego_init(&negotiate())).unwrap().0, 1);
    }
}
