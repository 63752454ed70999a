//! The cryptographic state of a connection and of a session on it, as a witness can follow it: \[MS-SMB2\] 3.2.5.2 and
//! 3.2.5.3.
//!
//! ```text
//! ConnectionCrypto ── negotiate_request, negotiate_response ──▶ dialect, cipher, signing algorithm, hash
//!        │
//!        ▼
//! SessionCrypto ── request, response … ──▶ NTLM exchange, hash ── status 0 ──▶ keys ──▶ decrypt, verify
//! ```
//!
//! If the capture began late, or other keys were given than those that can be derived, there are several candidates:
//! each is tried, and the one that fits is the first to be tried from then on. Encryption proves its key; a signature
//! does so only once.

use crate::keys::cipher::{Cipher, Sealed};
use crate::keys::derive::{PreauthHash, derive_keys};
use crate::keys::sign::Signer;
use crate::keys::{CipherId, Dialect, Key, Keyring, Keys, SigningAlgorithm, ntlm};
use alloc::boxed::Box;
use alloc::vec::Vec;
use hashbrown::HashMap;
use rdmascope_dissector::wire::smb2::NtStatus;

const STATUS_SUCCESS: u32 = NtStatus::SUCCESS.0;
const STATUS_MORE_PROCESSING_REQUIRED: u32 = NtStatus::MORE_PROCESSING_REQUIRED.0;

/// Direction of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From client to server.
    ToServer,
    /// From server to client.
    ToClient,
}

/// The outcome of verifying a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignatureCheck {
    /// The signature is correct.
    Verified,
    /// It is wrong: this key is known to be the session's, since it verified another message or a password proved it.
    Failed,
    /// It is wrong, though made with the right key: over the message and a length before it that was not sent.
    WithLength,
    /// It is wrong, but so may be the key: no message of this session was verified yet.
    Unproven,
    /// No key is known.
    NoKey,
}

/// Negotiated algorithms of a connection.
#[derive(Clone, Debug, Default)]
pub struct ConnectionCrypto {
    dialect: Option<Dialect>,
    cipher: Option<CipherId>,
    signing: Option<SigningAlgorithm>,
    hash: Option<PreauthHash>,
}

impl ConnectionCrypto {
    /// For a connection whose NEGOTIATE has not been seen, or not yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// An SMB2 NEGOTIATE request, from its SMB2 header on. (One of SMB1 does not count: the SMB2 one that follows it
    /// does.)
    pub fn negotiate_request(&mut self, message: &[u8]) {
        let mut hash = PreauthHash::START;
        hash.add(message);
        *self = Self { hash: Some(hash), ..Self::default() };
    }

    /// Its reply, from its SMB2 header on, with the dialect that it chose and the values of its contexts: `cipher` and
    /// `signing` are `None` if there is no such context.
    pub fn negotiate_response(
        &mut self,
        message: &[u8],
        dialect: Dialect,
        cipher: Option<CipherId>,
        signing: Option<SigningAlgorithm>,
    ) {
        if let Some(hash) = &mut self.hash {
            hash.add(message);
        }
        self.dialect = Some(dialect);
        self.cipher = match dialect {
            Dialect::SMB_3_0 | Dialect::SMB_3_0_2 => Some(CipherId::AES_128_CCM),
            _ => cipher.filter(|c| c.0 != 0),
        };
        self.signing = Some(signing.unwrap_or_else(|| SigningAlgorithm::of_dialect(dialect)));
    }

    /// A message may have been missed: the hash, and the keys derived from it, are not known then.
    pub fn missed(&mut self) {
        self.hash = None;
    }

    /// The dialect, once it is known.
    pub fn dialect(&self) -> Option<Dialect> {
        self.dialect
    }

    /// The cipher, once one was chosen.
    pub fn cipher(&self) -> Option<CipherId> {
        self.cipher
    }

    /// Signing algorithm of messages, once it is known.
    pub fn signing(&self) -> Option<SigningAlgorithm> {
        self.signing
    }
}

/// Keys that the channels of a session share: the ciphers of its first channel. Several servers may give the same
/// number to their sessions: then there is more than one candidate.
#[derive(Clone, Debug, Default)]
pub struct ChannelKeys {
    /// To the server and to the client, by session.
    ciphers: HashMap<u64, [Vec<Cipher>; 2]>,
}

impl ChannelKeys {
    /// Sessions that are remembered at most.
    const SESSIONS_MAX: usize = 1024;

    /// A session was established by its first channel.
    pub fn keep(&mut self, session_id: u64, first: &SessionCrypto) {
        if first.to_server.is_empty() && first.to_client.is_empty() {
            return;
        }
        if self.ciphers.len() >= Self::SESSIONS_MAX && !self.ciphers.contains_key(&session_id) {
            self.ciphers.clear();
        }
        let known = self.ciphers.entry(session_id).or_default();
        for (known, new) in known.iter_mut().zip([&first.to_server, &first.to_client]) {
            // the newest first
            known.splice(..0, new.iter().cloned());
            known.truncate(SessionCrypto::CANDIDATES);
        }
    }

    /// Another connection became a channel of a session: its first one may have been seen.
    pub fn bind(&self, session_id: u64, channel: &mut SessionCrypto) {
        if let Some([to_server, to_client]) = self.ciphers.get(&session_id) {
            channel.bind_with(to_server, to_client);
        }
    }
}

/// A session on one connection: its own, or the channel of a session that began on another.
#[derive(Clone, Debug)]
pub struct SessionCrypto {
    connection: ConnectionCrypto,
    challenge: Option<ntlm::Challenge>,
    /// Security buffer of the client, with its ticket, until the server answers, if tickets can be decrypted.
    shown: Option<Box<[u8]>>,
    authenticated: Option<Result<Key, ntlm::Refusal>>,
    established: bool,
    proven: bool,
    signers: Vec<Signer>,
    to_server: Vec<Cipher>,
    to_client: Vec<Cipher>,
}

impl SessionCrypto {
    /// Candidates that are tried for one purpose.
    const CANDIDATES: usize = 8;

    /// A session that begins now, or began before the capture: then give [`ConnectionCrypto::new`], and call
    /// [`SessionCrypto::establish`].
    pub fn new(connection: &ConnectionCrypto) -> Self {
        Self {
            connection: connection.clone(),
            challenge: None,
            shown: None,
            authenticated: None,
            established: false,
            proven: false,
            signers: Vec::new(),
            to_server: Vec::new(),
            to_client: Vec::new(),
        }
    }

    /// A SESSION_SETUP request, from its SMB2 header on, and the security buffer in it. Does nothing once the session
    /// is established: authenticating again does not change its keys.
    pub fn request(&mut self, message: &[u8], token: &[u8], keyring: &Keyring) {
        if self.established {
            return;
        }
        if let Some(hash) = &mut self.connection.hash {
            hash.add(message);
        }
        if let (Some((3, found)), Some(challenge)) = (ntlm::find(token), &self.challenge) {
            self.authenticated = ntlm::Authenticate::parse(found).map(|a| keyring.ntlm(challenge, &a));
        } else if keyring.tickets().is_some() {
            self.shown = Some(token.into());
        }
    }

    /// The reply to it. The last one, with status 0, gives the session its keys.
    pub fn response(&mut self, message: &[u8], status: u32, session_id: u64, token: &[u8], keyring: &Keyring) {
        if self.established {
            return;
        }
        match status {
            STATUS_SUCCESS => {
                if let (Some(shown), Some(tickets)) = (self.shown.take(), keyring.tickets())
                    && let Some(key) = tickets.session_key(&shown, token)
                {
                    self.authenticated = Some(Ok(key));
                }
                self.establish(session_id, keyring);
            }
            STATUS_MORE_PROCESSING_REQUIRED => {
                if let Some(hash) = &mut self.connection.hash {
                    hash.add(message);
                }
                if let Some((2, found)) = ntlm::find(token) {
                    self.challenge = ntlm::Challenge::parse(found);
                }
            }
            _ => {}
        }
    }

    /// Gives the session every key that is given for it or can be derived. [`SessionCrypto::response`] calls it; it is
    /// called directly where the capture began later.
    pub fn establish(&mut self, session_id: u64, keyring: &Keyring) {
        self.established = true;
        let mut keys = Candidates {
            connection: &self.connection,
            signers: Vec::new(),
            to_server: Vec::new(),
            to_client: Vec::new(),
        };
        if let Some(Ok(key)) = self.authenticated {
            keys.of_session_key(&key);
            // the password's proof holds for the signing key as well, if that could be derived
            self.proven = self.connection.dialect.is_some() && !keys.signers.is_empty();
        }
        for given in keyring.sessions(session_id) {
            keys.of_given(given);
        }
        let Candidates { signers, to_server, to_client, .. } = keys;
        self.signers = signers.iter().filter_map(|(id, key)| Signer::new(*id, key)).take(Self::CANDIDATES).collect();
        let ready = |list: &[(CipherId, Key)]| {
            list.iter().filter_map(|(id, key)| Cipher::new(*id, key)).take(Self::CANDIDATES).collect()
        };
        self.to_server = ready(&to_server);
        self.to_client = ready(&to_client);
    }

    /// Makes this session a channel of `first` (SMB2_SESSION_FLAG_BINDING), after it was established: it encrypts with
    /// the keys of that one and signs with its own.
    pub fn bind(&mut self, first: &Self) {
        self.bind_with(&first.to_server, &first.to_client);
    }

    fn bind_with(&mut self, to_server: &[Cipher], to_client: &[Cipher]) {
        for (own, first) in [(&mut self.to_server, to_server), (&mut self.to_client, to_client)] {
            // the keys given for this session may be those of this channel only
            own.splice(..0, first.iter().cloned());
            own.truncate(Self::CANDIDATES);
        }
        let own = matches!(self.authenticated, Some(Ok(_)));
        self.proven &= own;
    }

    /// A message of SESSION_SETUP may have been missed before the session was established: the hash is not known then.
    pub fn missed(&mut self) {
        self.connection.missed();
    }

    /// Reason why the NTLM exchange did not give a session key, if there was one.
    pub fn refusal(&self) -> Option<ntlm::Refusal> {
        self.authenticated.and_then(Result::err)
    }

    /// True if authentication has ended, or the keys were given without it.
    pub fn is_established(&self) -> bool {
        self.established
    }

    /// Cipher for messages in a direction, to encrypt with.
    pub fn cipher(&self, direction: Direction) -> Option<&Cipher> {
        match direction {
            Direction::ToServer => self.to_server.first(),
            Direction::ToClient => self.to_client.first(),
        }
    }

    /// Signing algorithm and key, to sign with.
    pub fn signer(&self) -> Option<&Signer> {
        self.signers.first()
    }

    /// Decrypts a message, which begins with its SMB2_TRANSFORM_HEADER, into `output`, whose content is replaced.
    ///
    /// # Errors
    /// See [`Sealed`]; `output` is empty then.
    pub fn decrypt(&mut self, direction: Direction, message: &[u8], output: &mut Vec<u8>) -> Result<(), Sealed> {
        output.clear();
        let (expected, other) = match direction {
            Direction::ToServer => (&mut self.to_server, &mut self.to_client),
            Direction::ToClient => (&mut self.to_client, &mut self.to_server),
        };
        let mut refused = Err(Sealed::NoKey);
        for n in 0..expected.len() {
            refused = expected[n].decrypt(message, output);
            match refused {
                Ok(()) => {
                    expected.swap(0, n);
                    return Ok(());
                }
                Err(Sealed::Short) => return refused,
                Err(_) => {}
            }
        }
        for n in 0..other.len() {
            refused = other[n].decrypt(message, output);
            if refused.is_ok() {
                // the keys were given the wrong way round
                core::mem::swap(expected, other);
                expected.swap(0, n);
                return Ok(());
            }
        }
        refused
    }

    /// Decrypts data that RDMA moved, as an SMB2_RDMA_CRYPTO_TRANSFORM (\[MS-SMB2\] 2.2.43.1) with this nonce and
    /// signature says, into `output`, whose content is replaced. The specification names no other authenticated data:
    /// there is none.
    ///
    /// # Errors
    /// See [`Sealed`]; `output` is empty then.
    pub fn decrypt_rdma(
        &self,
        direction: Direction,
        nonce: &[u8],
        signature: &[u8],
        data: &[u8],
        output: &mut Vec<u8>,
    ) -> Result<(), Sealed> {
        output.clear();
        let ciphers = match direction {
            Direction::ToServer => &self.to_server,
            Direction::ToClient => &self.to_client,
        };
        let signature: &[u8; 16] = signature.try_into().map_err(|_| Sealed::Refused)?;
        for cipher in ciphers {
            output.extend_from_slice(data);
            if cipher.open(nonce, &[], output, signature) {
                return Ok(());
            }
            output.clear();
        }
        Err(if ciphers.is_empty() { Sealed::NoKey } else { Sealed::Refused })
    }

    /// Verifies the signature of data that RDMA moved, as an SMB2_RDMA_CRYPTO_TRANSFORM with this nonce says.
    pub fn verify_rdma(&self, nonce: &[u8], signature: &[u8], data: &[u8]) -> SignatureCheck {
        let right = |s: &Signer| s.signature_of_data(data, nonce).is_some_and(|own| own == signature);
        match self.signers.iter().any(right) {
            true => SignatureCheck::Verified,
            false if self.signers.is_empty() => SignatureCheck::NoKey,
            false if self.proven => SignatureCheck::Failed,
            false => SignatureCheck::Unproven,
        }
    }

    /// Verifies the signature of one message of a compound, from its SMB2 header to the next one's.
    pub fn verify(&mut self, message: &[u8]) -> SignatureCheck {
        match self.signers.iter().position(|s| s.verify(message)) {
            Some(n) => {
                self.signers.swap(0, n);
                self.signers.truncate(1);
                self.proven = true;
                SignatureCheck::Verified
            }
            None if self.signers.is_empty() => SignatureCheck::NoKey,
            None if self.signers.iter().any(|s| s.verify_with_length(message)) => SignatureCheck::WithLength,
            None if self.proven => SignatureCheck::Failed,
            None => SignatureCheck::Unproven,
        }
    }
}

/// Possible keys of a session, each once.
struct Candidates<'a> {
    connection: &'a ConnectionCrypto,
    signers: Vec<(SigningAlgorithm, Key)>,
    to_server: Vec<(CipherId, Key)>,
    to_client: Vec<(CipherId, Key)>,
}

impl Candidates<'_> {
    fn of_given(&mut self, keys: &Keys) {
        if let Some(key) = &keys.signing {
            match self.connection.signing {
                Some(algorithm) => add(&mut self.signers, algorithm, key),
                None => SigningAlgorithm::ALL.iter().for_each(|a| add(&mut self.signers, *a, key)),
            }
        }
        for (key, list) in
            [(&keys.client_to_server, &mut self.to_server), (&keys.server_to_client, &mut self.to_client)]
        {
            let Some(key) = key else { continue };
            // if no cipher was seen negotiated, every one that takes such a key; 32 bytes may be 16 with zeros behind
            // them
            let ids = CipherId::ALL.into_iter().filter(|id| self.connection.cipher.is_none_or(|c| c == *id));
            ids.for_each(|id| add(list, id, &Key::of_slice(key.bytes().get(..id.key_len()).unwrap_or(&[]))));
        }
        if let Some(key) = &keys.session_key {
            self.of_session_key(key);
        }
    }

    fn of_session_key(&mut self, key: &Key) {
        match (self.connection.dialect, self.connection.hash) {
            // if the hash is missing, the keys that depend on it cannot be derived
            (Some(Dialect::SMB_3_1_1), None) => {}
            (Some(dialect), hash) => self.derive(dialect, key, &hash.unwrap_or_default()),
            (None, _) => {
                self.derive(Dialect::SMB_2_1, key, &PreauthHash::START);
                self.derive(Dialect::SMB_3_0, key, &PreauthHash::START);
            }
        }
    }

    fn derive(&mut self, dialect: Dialect, key: &Key, hash: &PreauthHash) {
        let cipher = self.connection.cipher.unwrap_or(CipherId::AES_128_CCM);
        let derived = derive_keys(dialect, cipher, key.bytes(), hash);
        add(
            &mut self.signers,
            self.connection.signing.unwrap_or_else(|| SigningAlgorithm::of_dialect(dialect)),
            &derived.signing,
        );
        if self.connection.dialect.is_some() && self.connection.cipher.is_none() {
            return;
        }
        if let (Some(c2s), Some(s2c)) = (&derived.client_to_server, &derived.server_to_client) {
            add(&mut self.to_server, cipher, c2s);
            add(&mut self.to_client, cipher, s2c);
        }
    }
}

fn add<T: Copy + PartialEq>(list: &mut Vec<(T, Key)>, id: T, key: &Key) {
    if !key.bytes().is_empty() && !list.contains(&(id, *key)) {
        list.push((id, *key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::ntlm::tests::{authenticate, challenge};

    const ID: u64 = 0x1100;

    fn message(command: u8, text: &str) -> Vec<u8> {
        let mut bytes = alloc::vec![0; 64];
        bytes[..6].copy_from_slice(b"\xfeSMB\x40\0");
        bytes[12] = command;
        bytes.extend(text.as_bytes());
        bytes
    }

    fn negotiated(dialect: Dialect, cipher: CipherId, signing: SigningAlgorithm) -> ConnectionCrypto {
        let mut connection = ConnectionCrypto::new();
        connection.negotiate_request(&message(0, "negotiate"));
        connection.negotiate_response(&message(0, "agreed"), dialect, Some(cipher), Some(signing));
        connection
    }

    /// A session whose user has the password of [MS-NLMP] 4.2.4, and so the session key 55…55.
    fn set_up(connection: &ConnectionCrypto, keyring: &Keyring) -> SessionCrypto {
        let mut session = SessionCrypto::new(connection);
        session.request(&message(1, "negotiate"), b"", keyring);
        session.response(&message(1, "challenge"), STATUS_MORE_PROCESSING_REQUIRED, ID, &challenge(), keyring);
        session.request(&message(1, "authenticate"), &authenticate(), keyring);
        session.response(&message(1, "done"), STATUS_SUCCESS, ID, b"", keyring);
        session
    }

    fn hash_of(texts: &[(u8, &str)]) -> PreauthHash {
        let mut hash = PreauthHash::START;
        texts.iter().for_each(|(command, text)| hash.add(&message(*command, text)));
        hash
    }

    fn with_password() -> Keyring {
        let mut keyring = Keyring::new();
        keyring.add_password(None, "Password");
        keyring
    }

    #[test]
    fn a_password_opens_a_session_of_3_1_1() {
        let connection = negotiated(Dialect::SMB_3_1_1, CipherId::AES_256_GCM, SigningAlgorithm::AES_GMAC);
        let mut session = set_up(&connection, &with_password());
        assert!(session.is_established() && session.refusal().is_none());
        let hash = hash_of(&[(0, "negotiate"), (0, "agreed"), (1, "negotiate"), (1, "challenge"), (1, "authenticate")]);
        let keys = derive_keys(Dialect::SMB_3_1_1, CipherId::AES_256_GCM, &[0x55; 16], &hash);

        let (mut sealed, mut output) = (Vec::new(), Vec::new());
        for (direction, key) in
            [(Direction::ToServer, keys.client_to_server), (Direction::ToClient, keys.server_to_client)]
        {
            sealed.clear();
            let cipher = Cipher::new(CipherId::AES_256_GCM, &key.unwrap()).unwrap();
            cipher.encrypt(&[1; 12], ID, &message(5, "create"), &mut sealed).unwrap();
            session.decrypt(direction, &sealed, &mut output).unwrap();
            assert_eq!(output, message(5, "create"));
            // what the talking side would use is the same
            let mut ours = Vec::new();
            session.cipher(direction).unwrap().encrypt(&[1; 12], ID, &message(5, "create"), &mut ours).unwrap();
            assert_eq!(ours, sealed);
        }
        let mut signed = message(8, "read");
        // the password proves the key before any signature does
        assert_eq!(session.verify(&signed), SignatureCheck::Failed);
        Signer::new(SigningAlgorithm::AES_GMAC, &keys.signing).unwrap().sign(&mut signed);
        assert_eq!(session.verify(&signed), SignatureCheck::Verified);
        assert!(session.signer().unwrap().verify(&signed));

        // what RDMA moves on the side
        let mut data = alloc::vec![0x77; 4096];
        let signature = session.signer().unwrap().signature_of_data(&data, &[5; 12]).unwrap();
        assert_eq!(session.verify_rdma(&[5; 12], &signature, &data), SignatureCheck::Verified);
        assert_eq!(session.verify_rdma(&[6; 12], &signature, &data), SignatureCheck::Failed);
        let tag = session.cipher(Direction::ToServer).unwrap().seal(&[5; 12], &[], &mut data).unwrap();
        session.decrypt_rdma(Direction::ToServer, &[5; 12], &tag, &data, &mut output).unwrap();
        assert_eq!(output, [0x77; 4096]);
        assert_eq!(session.decrypt_rdma(Direction::ToClient, &[5; 12], &tag, &data, &mut output), Err(Sealed::Refused));
        assert_eq!(
            session.decrypt_rdma(Direction::ToServer, &[5; 12], &tag[..15], &data, &mut output),
            Err(Sealed::Refused)
        );
        assert!(output.is_empty());

        // authenticating again changes nothing
        session.request(&message(1, "again"), &authenticate(), &Keyring::new());
        session.response(&message(1, "done"), STATUS_SUCCESS, ID, b"", &Keyring::new());
        assert_eq!(session.verify(&signed), SignatureCheck::Verified);
    }

    #[test]
    fn without_a_key_nothing_is_claimed() {
        let connection = negotiated(Dialect::SMB_3_0, CipherId(0), SigningAlgorithm::AES_CMAC);
        assert_eq!(connection.cipher(), Some(CipherId::AES_128_CCM));
        let mut session = set_up(&connection, &Keyring::new());
        assert_eq!(session.refusal(), Some(ntlm::Refusal::Password));
        assert_eq!(session.verify(&message(8, "read")), SignatureCheck::NoKey);
        assert_eq!(session.decrypt(Direction::ToServer, &[0; 100], &mut Vec::new()), Err(Sealed::NoKey));
        assert!(session.cipher(Direction::ToServer).is_none() && session.signer().is_none());
    }

    #[test]
    fn given_keys_open_what_was_negotiated_before_the_capture() {
        let c2s = Cipher::new(CipherId::AES_128_GCM, &Key::of([1; 16])).unwrap();
        let s2c = Cipher::new(CipherId::AES_128_GCM, &Key::of([2; 16])).unwrap();
        let (mut there, mut back, mut output) = (Vec::new(), Vec::new(), Vec::new());
        c2s.encrypt(&[3; 12], ID, &message(8, "read"), &mut there).unwrap();
        s2c.encrypt(&[4; 12], ID, &message(8, "data"), &mut back).unwrap();
        // also the wrong way round
        for swapped in [false, true] {
            let (to_server, to_client) = if swapped { (2, 1) } else { (1, 2) };
            let mut keyring = Keyring::new();
            let keys = Keys {
                client_to_server: Some(Key::of([to_server; 16])),
                server_to_client: Some(Key::of([to_client; 16])),
                ..Keys::default()
            };
            keyring.add_session(ID, keys);
            let mut session = SessionCrypto::new(&ConnectionCrypto::new());
            session.establish(ID, &keyring);
            for _ in 0..2 {
                session.decrypt(Direction::ToClient, &back, &mut output).unwrap();
                assert_eq!(output, message(8, "data"));
                session.decrypt(Direction::ToServer, &there, &mut output).unwrap();
                assert_eq!(output, message(8, "read"));
            }
            assert_eq!(session.decrypt(Direction::ToServer, &there[..90], &mut output), Err(Sealed::Short));
            there[60] ^= 1;
            assert_eq!(session.decrypt(Direction::ToServer, &there, &mut output), Err(Sealed::Refused));
            there[60] ^= 1;
        }
    }

    #[test]
    fn a_given_session_key_needs_no_negotiate_below_3_1_1() {
        for (dialect, algorithm) in
            [(Dialect::SMB_2_1, SigningAlgorithm::HMAC_SHA256), (Dialect::SMB_3_0_2, SigningAlgorithm::AES_CMAC)]
        {
            let keys = derive_keys(dialect, CipherId::AES_128_CCM, &[7; 16], &PreauthHash::START);
            let mut keyring = Keyring::new();
            keyring.add_session(ID, Keys { session_key: Some(Key::of([7; 16])), ..Keys::default() });
            let mut session = SessionCrypto::new(&ConnectionCrypto::new());
            session.establish(ID, &keyring);
            let mut signed = message(8, "read");
            // the key may be wrong until it has verified a message
            assert_eq!(session.verify(&signed), SignatureCheck::Unproven);
            assert!(Signer::new(algorithm, &keys.signing).unwrap().sign(&mut signed));
            assert_eq!(session.verify(&signed), SignatureCheck::Verified);
            signed[66] ^= 1;
            assert_eq!(session.verify(&signed), SignatureCheck::Failed);
            if let Some(key) = keys.client_to_server {
                let (mut sealed, mut output) = (Vec::new(), Vec::new());
                Cipher::new(CipherId::AES_128_CCM, &key).unwrap().encrypt(&[1; 11], ID, b"plain", &mut sealed).unwrap();
                session.decrypt(Direction::ToServer, &sealed, &mut output).unwrap();
                assert_eq!(output, b"plain");
            }
        }
        // 3.1.1 does need it
        let mut late = ConnectionCrypto::new();
        late.negotiate_response(&message(0, "agreed"), Dialect::SMB_3_1_1, Some(CipherId::AES_128_GCM), None);
        let mut keyring = Keyring::new();
        keyring.add_session(ID, Keys { session_key: Some(Key::of([7; 16])), ..Keys::default() });
        let mut session = SessionCrypto::new(&late);
        session.establish(ID, &keyring);
        assert_eq!(session.verify(&message(8, "read")), SignatureCheck::NoKey);
    }

    #[test]
    fn a_missed_message_makes_keys_unknown_rather_than_wrong() {
        let keyring = with_password();
        let mut connection = negotiated(Dialect::SMB_3_1_1, CipherId::AES_128_GCM, SigningAlgorithm::AES_CMAC);
        connection.missed();
        assert_eq!(set_up(&connection, &keyring).verify(&message(8, "read")), SignatureCheck::NoKey);
        // without NEGOTIATE it may be any dialect
        assert_eq!(set_up(&ConnectionCrypto::new(), &keyring).verify(&message(8, "read")), SignatureCheck::Unproven);
        let mut older = negotiated(Dialect::SMB_3_0_2, CipherId(0), SigningAlgorithm::AES_CMAC);
        older.missed();
        assert_eq!(set_up(&older, &keyring).verify(&message(8, "read")), SignatureCheck::Failed);
    }

    #[test]
    fn a_channel_encrypts_with_the_first_one_s_keys_and_signs_with_its_own() {
        let keyring = with_password();
        let first =
            set_up(&negotiated(Dialect::SMB_3_1_1, CipherId::AES_128_GCM, SigningAlgorithm::AES_CMAC), &keyring);
        let mut other = ConnectionCrypto::new();
        other.negotiate_request(&message(0, "second connection"));
        other.negotiate_response(&message(0, "agreed"), Dialect::SMB_3_1_1, Some(CipherId::AES_128_GCM), None);
        let mut channel = set_up(&other, &keyring);
        let (mut sealed, mut output) = (Vec::new(), Vec::new());
        first.cipher(Direction::ToServer).unwrap().encrypt(&[1; 12], ID, b"plain", &mut sealed).unwrap();
        assert_eq!(channel.decrypt(Direction::ToServer, &sealed, &mut output), Err(Sealed::Refused));
        channel.bind(&first);
        channel.decrypt(Direction::ToServer, &sealed, &mut output).unwrap();
        let mut signed = message(8, "read");
        first.signer().unwrap().sign(&mut signed);
        assert_eq!(channel.verify(&signed), SignatureCheck::Failed);
        assert!(channel.signer().unwrap().clone().sign(&mut signed));
        assert_eq!(channel.verify(&signed), SignatureCheck::Verified);
    }

    /// A test data file: the messages of a conversation, with true for those of the server.
    fn conversation(text: &str) -> Vec<(bool, Vec<u8>)> {
        let lines = text.lines().filter(|l| !l.starts_with('#'));
        lines.map(|l| (l.starts_with('<'), crate::keys::testing::hex(&l[2..]))).collect()
    }

    /// NEGOTIATE and SESSION_SETUP of a captured conversation, whose last message is the sixth.
    fn witness(messages: &[(bool, Vec<u8>)], dialect: Dialect, cipher: CipherId, keyring: &Keyring) -> SessionCrypto {
        let mut connection = ConnectionCrypto::new();
        connection.negotiate_request(&messages[0].1);
        let agreed = &messages[1].1;
        assert_eq!(agreed[68..70], dialect.0.to_le_bytes());
        connection.negotiate_response(agreed, dialect, Some(cipher), None);
        let mut session = SessionCrypto::new(&connection);
        for (from_server, message) in &messages[2..6] {
            if *from_server {
                let status = u32::from_le_bytes(message[8..12].try_into().unwrap());
                session.response(
                    message,
                    status,
                    u64::from_le_bytes(message[40..48].try_into().unwrap()),
                    &message[64..],
                    keyring,
                );
            } else {
                session.request(message, &message[64..], keyring);
            }
        }
        session
    }

    #[test]
    fn a_real_signed_session_verifies_with_its_password() {
        let captures = [
            (include_str!("testdata/signed-3.1.1.txt"), Dialect::SMB_3_1_1),
            (include_str!("testdata/signed-3.0.2.txt"), Dialect::SMB_3_0_2),
        ];
        for (text, dialect) in captures {
            let messages = conversation(text);
            let mut keyring = Keyring::new();
            keyring.add_file("user=labuser password=labpass").unwrap();
            let mut session = witness(&messages, dialect, CipherId::AES_128_GCM, &keyring);
            assert!(messages.len() > 7);
            for (_, message) in &messages[5..] {
                assert_eq!(message[16] & 0x08, 0x08, "signed");
                assert_eq!(session.verify(message), SignatureCheck::Verified, "{dialect}");
                let mut changed = message.clone();
                changed[64] ^= 1;
                assert_eq!(session.verify(&changed), SignatureCheck::Failed);
            }
            let mut wrong = Keyring::new();
            wrong.add_password(None, "labpas");
            let mut session = witness(&messages, dialect, CipherId::AES_128_GCM, &wrong);
            assert_eq!(
                (session.refusal(), session.verify(&messages[5].1)),
                (Some(ntlm::Refusal::Password), SignatureCheck::NoKey)
            );
        }
    }

    #[test]
    fn a_real_encrypted_session_opens_with_its_password() {
        let messages = conversation(include_str!("testdata/encrypted-3.1.1.txt"));
        let mut keyring = Keyring::new();
        keyring.add_password(None, "labpass");
        let mut session = witness(&messages, Dialect::SMB_3_1_1, CipherId::AES_128_GCM, &keyring);
        assert_eq!(session.verify(&messages[5].1), SignatureCheck::Verified);
        let mut output = Vec::new();
        session.decrypt(Direction::ToServer, &messages[6].1, &mut output).unwrap();
        // a TREE_CONNECT, whose path is UTF-16
        assert_eq!((&output[..4], output[12]), (&b"\xfeSMB"[..], 3));
        let path: Vec<u8> = "\\\\192.0.2.1\\".encode_utf16().flat_map(u16::to_le_bytes).collect();
        assert!(output.windows(path.len()).any(|w| w == path));
    }
}
