//! Keys of one end of a session, as a logon makes them, and a counter that ensures that no nonce is used twice. Client
//! and server sign, encrypt, verify and decrypt with it.

use super::transform::Crypto;
use rdmascope_analyzer::keys::cipher::Cipher;
use rdmascope_analyzer::keys::derive::{PreauthHash, derive_keys};
use rdmascope_analyzer::keys::sign::Signer;
use rdmascope_analyzer::keys::{CipherId, Dialect, Key, SigningAlgorithm};

/// The keys of a session, \[MS-SMB2\] 3.1.4.2. There are none before a logon, and for guests.
#[derive(Clone, Debug, Default)]
pub(super) struct Protection {
    signer: Option<Signer>,
    /// Ciphers for sent and for received messages.
    ciphers: Option<(Cipher, Cipher)>,
    /// The last counter with which something was encrypted or signed.
    nonce: u64,
    is_server: bool,
}

impl Protection {
    /// Derives the keys from the session key of a logon. If no cipher was negotiated, nothing is encrypted.
    pub(super) fn new(
        is_server: bool,
        dialect: Dialect,
        cipher: Option<CipherId>,
        signing: Option<SigningAlgorithm>,
        key: &Key,
        hash: &PreauthHash,
    ) -> Self {
        let derived = derive_keys(dialect, cipher.unwrap_or(CipherId::AES_128_CCM), key.bytes(), hash);
        let algorithm = signing.unwrap_or_else(|| SigningAlgorithm::of_dialect(dialect));
        let (mine, theirs) = match is_server {
            true => (derived.server_to_client, derived.client_to_server),
            false => (derived.client_to_server, derived.server_to_client),
        };
        let ciphers = match (cipher, mine, theirs) {
            (Some(id), Some(mine), Some(theirs)) => Cipher::new(id, &mine).zip(Cipher::new(id, &theirs)),
            _ => None,
        };
        Self { signer: Signer::new(algorithm, &derived.signing), ciphers, nonce: 0, is_server }
    }

    /// The keys of another channel of a session: it signs with its own and encrypts with those of the `first` one.
    /// `number` keeps the nonces of the channels apart.
    pub(super) fn of_channel(self, first: Option<&Self>, number: u16) -> Self {
        Self { ciphers: first.and_then(|first| first.ciphers.clone()), nonce: u64::from(number) << 48, ..self }
    }

    /// The signer, if there is a key.
    pub(super) fn signer(&self) -> Option<&Signer> {
        self.signer.as_ref()
    }

    /// True if it can encrypt.
    pub(super) fn has_ciphers(&self) -> bool {
        self.ciphers.is_some()
    }

    /// Encrypts a message. `None` without keys, or if the message is too long for the cipher.
    pub(super) fn encrypt(&mut self, session_id: u64, message: &[u8]) -> Option<Vec<u8>> {
        let (cipher, _) = self.ciphers.as_ref()?;
        self.nonce += 1;
        let mut nonce = [0; 12];
        nonce[..8].copy_from_slice(&self.nonce.to_le_bytes());
        let mut out = Vec::new();
        cipher.encrypt(&nonce[..cipher.nonce_len()], session_id, message, &mut out)?;
        Some(out)
    }

    /// Decrypts a message of the other end. False if it is not authentic.
    pub(super) fn decrypt(&self, message: &[u8], plain: &mut Vec<u8>) -> bool {
        self.ciphers.as_ref().is_some_and(|(_, cipher)| cipher.decrypt(message, plain).is_ok())
    }

    /// Encrypts data that goes by RDMA.
    pub(super) fn seal_data(&mut self, data: &mut [u8]) -> Option<Crypto> {
        self.nonce += 1;
        self.ciphers.as_ref().and_then(|(cipher, _)| Crypto::seal(cipher, self.nonce, data))
    }

    /// Signs data that goes by RDMA.
    pub(super) fn sign_data(&mut self, data: &[u8]) -> Option<Crypto> {
        self.nonce += 1;
        self.signer.as_ref().and_then(|signer| Crypto::sign(signer, self.nonce, self.is_server, data))
    }

    /// Undoes the other end's transform of data that went by RDMA. False if it is not authentic.
    pub(super) fn open_data(&self, crypto: &Crypto, data: &mut [u8]) -> bool {
        crypto.open(self.ciphers.as_ref().map(|(_, cipher)| cipher), self.signer.as_ref(), data)
    }

    /// Bytes of a nonce; 0 without a cipher.
    pub(super) fn nonce_len(&self) -> usize {
        self.ciphers.as_ref().map_or(0, |(cipher, _)| cipher.nonce_len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(cipher: Option<CipherId>) -> [Protection; 2] {
        let key = Key::of([7; 16]);
        [false, true]
            .map(|is_server| Protection::new(is_server, Dialect::SMB_3_1_1, cipher, None, &key, &PreauthHash::START))
    }

    #[test]
    fn each_end_reads_what_the_other_one_encrypted_and_not_its_own() {
        let [mut client, mut server] = ends(Some(CipherId::AES_128_GCM));
        let (first, second) = (client.encrypt(1, b"a message").unwrap(), client.encrypt(1, b"a message").unwrap());
        assert_ne!(first, second, "a nonce is used once");
        let mut plain = Vec::new();
        assert!(server.decrypt(&first, &mut plain) && plain == b"a message");
        assert!(!client.decrypt(&first, &mut Vec::new()));
        let answer = server.encrypt(1, b"an answer").unwrap();
        assert!(client.decrypt(&answer, &mut plain) && plain.ends_with(b"an answer"));
    }

    #[test]
    fn without_a_cipher_nothing_is_encrypted_and_all_is_signed() {
        let [mut client, server] = ends(None);
        assert!(!client.has_ciphers() && client.nonce_len() == 0 && client.encrypt(1, b"x").is_none());
        let mut message = [0; 80];
        client.signer().unwrap().sign(&mut message);
        assert!(server.signer().unwrap().verify(&message));
    }
}
