//! Decryption of SMB sessions and verification of signatures: keys and passwords that the user gives, the keys derived
//! from them, and the ciphers and signatures themselves.
//!
//! | file | content |
//! | --- | --- |
//! | `file.rs` | the key file: output of the Linux client, ksmbd, `smbinfo` and Wireshark, and passwords |
//! | `ntlm.rs` | the messages of NTLM, read and written, and the session key that a password gives |
//! | `derive.rs` | from the session key to the keys that sign and encrypt; the preauthentication hash |
//! | `cipher.rs` | SMB2_TRANSFORM_HEADER: AES-CCM and AES-GCM |
//! | `sign.rs` | signatures: HMAC-SHA256, AES-CMAC, AES-GMAC |
//! | `session.rs` | the state of one connection and of one session: fed with messages, it decrypts and verifies |
//!
//! Kerberos is not part of it: the caller decrypts tickets, through [`Tickets`].
//!
//! Keys never show in `Debug`, and nothing here keeps a password: only its NT hash.

pub mod cipher;
pub mod derive;
pub mod file;
pub mod ntlm;
pub mod session;
pub mod sign;

pub use cipher::{Cipher, Sealed};
pub use derive::{Derived, PreauthHash, derive_keys};
pub use file::KeyFileError;
pub use session::{ConnectionCrypto, Direction, SessionCrypto, SignatureCheck};
pub use sign::Signer;

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use hashbrown::HashMap;
pub use rdmascope_dissector::wire::smb2::negotiate::{Cipher as CipherId, Dialect, SigningAlgorithm};

/// A secret of up to 32 bytes. `Debug` shows only its length.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Key {
    bytes: [u8; 32],
    len: u8,
}

impl Key {
    /// Bytes of the longest key.
    pub const LEN_MAX: usize = 32;

    /// A key of `N` bytes, 32 at most.
    pub const fn of<const N: usize>(bytes: [u8; N]) -> Self {
        const { assert!(N <= Self::LEN_MAX) }
        let mut all = [0; Self::LEN_MAX];
        let mut n = 0;
        while n < N {
            all[n] = bytes[n];
            n += 1;
        }
        Self { bytes: all, len: N as u8 }
    }

    /// The first 32 bytes of these.
    pub fn of_slice(bytes: &[u8]) -> Self {
        let len = bytes.len().min(Self::LEN_MAX);
        let mut all = [0; Self::LEN_MAX];
        all[..len].copy_from_slice(&bytes[..len]);
        Self { bytes: all, len: len as u8 }
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// True if all of it is zeros: tools print a missing key so.
    pub fn is_zero(&self) -> bool {
        self.bytes == [0; Self::LEN_MAX]
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({} bytes)", self.len)
    }
}

/// Keys given for one session. Any of them may be missing; the more there are, the less has to be captured: with the
/// session key alone dialect 3.1.1 needs NEGOTIATE and SESSION_SETUP as well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keys {
    /// Session key of the authentication.
    pub session_key: Option<Key>,
    /// Signs.
    pub signing: Option<Key>,
    /// Encrypts messages of the client. Programs do not agree on its name, so the two are tried in both directions.
    pub client_to_server: Option<Key>,
    /// Encrypts messages of the server.
    pub server_to_client: Option<Key>,
}

impl Keys {
    /// Takes over keys that `other` has and these have not. False, and nothing is changed, if the two contradict each
    /// other.
    fn join(&mut self, other: &Self) -> bool {
        let both = |a: Option<Key>, b: Option<Key>| match (a, b) {
            (Some(a), Some(b)) => (a == b).then_some(Some(a)),
            (a, b) => Some(a.or(b)),
        };
        let joined = || {
            Some(Self {
                session_key: both(self.session_key, other.session_key)?,
                signing: both(self.signing, other.signing)?,
                client_to_server: both(self.client_to_server, other.client_to_server)?,
                server_to_client: both(self.server_to_client, other.server_to_client)?,
            })
        };
        match joined() {
            Some(keys) => {
                *self = keys;
                true
            }
            None => false,
        }
    }
}

/// A password as its NT hash, and the user that it belongs to.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    /// The user it belongs to, without a domain; anyone's if that is not known.
    pub user: Option<String>,
    /// MD4 of the password in UTF-16 (\[MS-NLMP\] 3.3.2, NTOWF of version 1).
    pub nt_hash: [u8; 16],
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({})", self.user.as_deref().unwrap_or("any user"))
    }
}

/// Decrypts Kerberos tickets, with the keys of the servers that they are for. The analyzer has no Kerberos of its own.
pub trait Tickets: fmt::Debug + Send + Sync {
    /// The key of a session, out of the security buffers of its SESSION_SETUP: the client's, with its ticket, and the
    /// server's answer. `None` if there is no ticket in it, or no key for that.
    fn session_key(&self, request: &[u8], response: &[u8]) -> Option<Key>;
}

/// Everything that the user gave.
#[derive(Clone, Debug, Default)]
pub struct Keyring {
    sessions: HashMap<u64, Vec<Keys>>,
    secrets: Vec<Secret>,
    tickets: Option<Arc<dyn Tickets>>,
}

impl Keyring {
    /// Sets of keys that are kept for one session id: each channel of it may have been printed.
    pub const KEYS_PER_SESSION: usize = 8;

    /// Without any key.
    pub fn new() -> Self {
        Self::default()
    }

    /// True if there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty() && self.secrets.is_empty() && self.tickets.is_none()
    }

    /// Adds the entries of a key file (see [`mod@file`]) and returns the number of sessions and passwords in it.
    ///
    /// # Errors
    /// The first line that is not understood; nothing has been added then.
    pub fn add_file(&mut self, text: &str) -> Result<usize, KeyFileError> {
        let entries = file::parse(text)?;
        let count = entries.len();
        for entry in entries {
            match entry {
                file::Entry::Session(id, keys) => self.add_session(id, keys),
                file::Entry::Secret(secret) => self.add_secret(secret),
            }
        }
        Ok(count)
    }

    /// Adds keys of a session. `session_id` is the number in the SMB2 header.
    pub fn add_session(&mut self, session_id: u64, keys: Keys) {
        let known = self.sessions.entry(session_id).or_default();
        if !known.iter_mut().any(|k| k.join(&keys)) && known.len() < Self::KEYS_PER_SESSION {
            known.push(keys);
        }
    }

    /// Adds a password.
    pub fn add_secret(&mut self, secret: Secret) {
        if !self.secrets.contains(&secret) {
            self.secrets.push(secret);
        }
    }

    /// Adds a password in the clear, of one user or of any.
    pub fn add_password(&mut self, user: Option<&str>, password: &str) {
        self.add_secret(Secret { user: user.map(Into::into), nt_hash: ntlm::nt_hash(password) });
    }

    /// Gives the keys of servers, in place of those that were given before.
    pub fn set_tickets(&mut self, tickets: Arc<dyn Tickets>) {
        self.tickets = Some(tickets);
    }

    /// Decrypts Kerberos tickets, if keys for that were given.
    pub fn tickets(&self) -> Option<&dyn Tickets> {
        self.tickets.as_deref()
    }

    /// The keys that were given for a session: the first set, if there are several.
    pub fn session(&self, session_id: u64) -> Option<Keys> {
        self.sessions(session_id).first().copied()
    }

    /// Every set of keys that was given for a session.
    pub fn sessions(&self, session_id: u64) -> &[Keys] {
        self.sessions.get(&session_id).map_or(&[], Vec::as_slice)
    }

    /// The session key of a captured NTLM exchange, if one of the passwords is the one it was made with.
    pub fn ntlm(
        &self,
        challenge: &ntlm::Challenge,
        authenticate: &ntlm::Authenticate<'_>,
    ) -> Result<Key, ntlm::Refusal> {
        if authenticate.is_anonymous() {
            return authenticate.session_key(challenge, &[0; 16]);
        }
        let fits = |s: &&Secret| s.user.as_ref().is_none_or(|user| authenticate.is_user(user));
        let mut refusal = ntlm::Refusal::Password;
        for secret in self.secrets.iter().filter(fits) {
            match authenticate.session_key(challenge, &secret.nt_hash) {
                Err(e) => refusal = e,
                key => return key,
            }
        }
        Err(refusal)
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use alloc::string::String;
    use alloc::vec::Vec;

    pub(crate) fn hex(text: &str) -> Vec<u8> {
        let digits: String = text.split_whitespace().collect();
        (0..digits.len()).step_by(2).map(|n| u8::from_str_radix(&digits[n..n + 2], 16).unwrap()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn secrets_do_not_show() {
        let mut ring = Keyring::new();
        ring.add_session(0x77, Keys { session_key: Some(Key::of([0xab; 16])), ..Keys::default() });
        ring.add_password(Some("alice"), "secret");
        let shown = format!("{ring:?}");
        assert!(!shown.contains("171") && !shown.contains("ab") && !shown.contains("secret,"), "{shown}");
        assert!(shown.contains("Key(16 bytes)") && shown.contains("Secret(alice)"), "{shown}");
    }

    #[test]
    fn sets_of_keys_are_bounded_and_reported_once() {
        let mut ring = Keyring::new();
        assert!(ring.is_empty());
        for n in 0..20 {
            for _ in 0..2 {
                ring.add_session(1, Keys { signing: Some(Key::of([n; 16])), ..Keys::default() });
            }
        }
        assert_eq!(ring.sessions(1).len(), Keyring::KEYS_PER_SESSION);
        assert_eq!(ring.session(1).unwrap().signing, Some(Key::of([0; 16])));
        assert_eq!((ring.session(2), ring.is_empty()), (None, false));
        // keys that different programs know of one session come together
        ring.add_session(2, Keys { signing: Some(Key::of([1; 16])), ..Keys::default() });
        ring.add_session(2, Keys { session_key: Some(Key::of([2; 16])), ..Keys::default() });
        let both = Keys { signing: Some(Key::of([1; 16])), session_key: Some(Key::of([2; 16])), ..Keys::default() };
        assert_eq!(ring.sessions(2), [both]);
    }

    #[test]
    fn a_key_keeps_its_length() {
        assert_eq!((Key::of([3; 16]).bytes(), Key::of_slice(&[4; 40]).bytes()), (&[3; 16][..], &[4; 32][..]));
        assert_ne!(Key::of([0; 16]), Key::of([0; 32]));
        assert!(Key::of([0; 32]).is_zero() && !Key::of([1]).is_zero());
    }
}
