//! What stands between the wire and an SMB2 message: encryption, compression, signatures. A witness with the keys opens
//! them; without, what is encrypted is said to be.

use crate::keys::session::{ConnectionCrypto, Direction, SessionCrypto, SignatureCheck};
use crate::keys::{CipherId, Dialect, Keyring, SigningAlgorithm, cipher};
use hashbrown::HashMap;
use rdmascope_dissector::wire::smb2::negotiate::{ContextType, NegotiateResponse};
use rdmascope_dissector::wire::smb2::{Body, Pdu};

/// Sessions whose keys are kept per connection at most.
const SESSIONS_MAX: usize = 256;

/// The cryptographic side of one SMB2 connection.
#[derive(Clone, Debug, Default)]
pub struct Unseal {
    connection: ConnectionCrypto,
    sessions: HashMap<u64, SessionCrypto>,
    /// Sessions whose id the server has not said yet, by the message id of their first request.
    setups: HashMap<u64, SessionCrypto>,
}

impl Unseal {
    /// Messages are missing: hashes over them cannot be known.
    pub fn missed(&mut self) {
        self.connection.missed();
        for session in self.sessions.values_mut().chain(self.setups.values_mut()) {
            session.missed();
        }
    }

    /// Takes over the sessions that the other half of a connection knew.
    pub fn adopt(&mut self, from: Self) {
        for (id, session) in from.sessions {
            self.sessions.entry(id).or_insert(session);
        }
    }

    /// Learns from the messages that keys are made of.
    pub fn learn(&mut self, pdu: &Pdu<'_>, keyring: &Keyring) {
        let header = &pdu.header;
        match &pdu.body {
            Ok(Body::NegotiateRequest(_)) => self.connection.negotiate_request(pdu.bytes),
            Ok(Body::NegotiateResponse(response)) => {
                let (cipher, signing) = chosen(response);
                self.connection.negotiate_response(pdu.bytes, Dialect(response.dialect().0), cipher, signing);
            }
            Ok(Body::SessionSetupRequest(request)) => {
                if self.sessions.len() + self.setups.len() >= SESSIONS_MAX {
                    self.setups.clear();
                    self.sessions.clear();
                }
                let session = match header.session_id {
                    0 => self.setups.entry(header.message_id).or_insert_with(|| SessionCrypto::new(&self.connection)),
                    id => self.sessions.entry(id).or_insert_with(|| SessionCrypto::new(&self.connection)),
                };
                session.request(pdu.bytes, request.security.bytes, keyring);
            }
            Ok(Body::SessionSetupResponse(response)) => {
                if let Some(session) = self.setups.remove(&header.message_id) {
                    self.sessions.insert(header.session_id, session);
                }
                if let Some(session) = self.sessions.get_mut(&header.session_id) {
                    session.response(pdu.bytes, header.status().0, header.session_id, response.security.bytes, keyring);
                }
            }
            _ => {}
        }
    }

    /// Decrypts a message that begins with its transform header. `None` without a key that fits.
    pub fn decrypt(&mut self, message: &[u8], direction: Direction, keyring: &Keyring, output: &mut alloc::vec::Vec<u8>) -> Option<()> {
        let id = cipher::session_id(message)?;
        if self.sessions.len() >= SESSIONS_MAX && !self.sessions.contains_key(&id) {
            return None;
        }
        let session = self.sessions.entry(id).or_insert_with(|| SessionCrypto::new(&self.connection));
        if !session.is_established() {
            // the capture began after its set-up: only given keys can help
            session.establish(id, keyring);
        }
        session.decrypt(direction, message, output).ok()
    }

    /// Decrypts data that RDMA moved: `data` is the plain text then. False without a key that fits.
    pub fn decrypt_rdma(&self, session: u64, direction: Direction, nonce: &[u8], signature: &[u8], data: &mut alloc::vec::Vec<u8>) -> bool {
        let Some(session) = self.sessions.get(&session) else { return false };
        let mut output = alloc::vec::Vec::new();
        let opened = session.decrypt_rdma(direction, nonce, signature, data, &mut output).is_ok();
        if opened {
            *data = output;
        }
        opened
    }

    /// Outcome of verifying the signature of data that RDMA moved.
    pub fn verify_rdma(&self, session: u64, nonce: &[u8], signature: &[u8], data: &[u8]) -> SignatureCheck {
        self.sessions.get(&session).map_or(SignatureCheck::NoKey, |session| session.verify_rdma(nonce, signature, data))
    }

    /// Outcome of verifying a signed message's signature.
    pub fn verify(&mut self, pdu: &Pdu<'_>, keyring: &Keyring) -> SignatureCheck {
        let id = pdu.header.session_id;
        if !self.sessions.contains_key(&id) && keyring.session(id).is_some() && self.sessions.len() < SESSIONS_MAX {
            let mut session = SessionCrypto::new(&self.connection);
            session.establish(id, keyring);
            self.sessions.insert(id, session);
        }
        match self.sessions.get_mut(&id) {
            Some(session) if session.is_established() => session.verify(pdu.bytes),
            _ => SignatureCheck::NoKey,
        }
    }
}

/// Cipher and signing algorithm that the server chose.
fn chosen(response: &NegotiateResponse<'_>) -> (Option<CipherId>, Option<SigningAlgorithm>) {
    let first = |kind: ContextType| response.contexts.into_iter().find(|c| c.context_type == kind).and_then(|c| c.ids().next());
    (first(ContextType::ENCRYPTION).map(CipherId), first(ContextType::SIGNING).map(SigningAlgorithm))
}
