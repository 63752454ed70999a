//! Layers between the wire and an SMB2 message: encryption, compression, signatures. With the keys, messages are
//! decrypted and verified; without them, encrypted messages are reported as such.

use crate::keys::session::{ChannelKeys, ConnectionCrypto, Direction, SessionCrypto, SignatureCheck};
use crate::keys::{CipherId, Dialect, Keyring, SigningAlgorithm, cipher};
use alloc::vec::Vec;
use hashbrown::HashMap;
use rdmascope_dissector::wire::smb2::negotiate::{ContextType, NegotiateResponse};
use rdmascope_dissector::wire::smb2::{Body, Pdu};

/// Sessions whose keys are kept per connection at most.
const SESSIONS_MAX: usize = 256;

/// The cryptographic side of one SMB2 connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unseal {
    connection: ConnectionCrypto,
    sessions: HashMap<u64, SessionCrypto>,
    /// Sessions whose id the server has not said yet, by the message id of their first request.
    setups: HashMap<u64, SessionCrypto>,
    /// Sessions that began on another connection, and that this one asks to be a channel of.
    bindings: Vec<u64>,
}

impl Unseal {
    /// Messages are missing: hashes over them cannot be known.
    pub(crate) fn missed(&mut self) {
        self.connection.missed();
        for session in self.sessions.values_mut().chain(self.setups.values_mut()) {
            session.missed();
        }
    }

    /// Takes over the sessions that the other half of a connection knew.
    pub(crate) fn adopt(&mut self, from: Self) {
        for (id, session) in from.sessions {
            self.sessions.entry(id).or_insert(session);
        }
    }

    /// Learns from the messages that keys are made of; `channels` are the keys that connections share.
    pub(crate) fn learn(&mut self, pdu: &Pdu<'_>, keyring: &Keyring, channels: &mut ChannelKeys) {
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
                let id = header.session_id;
                if request.fixed.binding() && !self.bindings.contains(&id) && self.bindings.len() < SESSIONS_MAX {
                    self.bindings.push(id);
                }
            }
            Ok(Body::SessionSetupResponse(response)) => {
                if let Some(session) = self.setups.remove(&header.message_id) {
                    self.sessions.insert(header.session_id, session);
                }
                let id = header.session_id;
                let Some(session) = self.sessions.get_mut(&id).filter(|session| !session.is_established()) else {
                    return;
                };
                session.response(pdu.bytes, header.status().0, id, response.security.bytes, keyring);
                if session.is_established() {
                    match self.bindings.contains(&id) {
                        true => channels.bind(id, session),
                        false => channels.keep(id, session),
                    }
                }
            }
            _ => {}
        }
    }

    /// Decrypts a message that begins with its transform header. `None` without a key that fits.
    pub(crate) fn decrypt(
        &mut self,
        message: &[u8],
        direction: Direction,
        keyring: &Keyring,
        output: &mut alloc::vec::Vec<u8>,
    ) -> Option<()> {
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
    pub(crate) fn decrypt_rdma(
        &self,
        session: u64,
        direction: Direction,
        nonce: &[u8],
        signature: &[u8],
        data: &mut alloc::vec::Vec<u8>,
    ) -> bool {
        let Some(session) = self.sessions.get(&session) else { return false };
        let mut output = alloc::vec::Vec::new();
        let opened = session.decrypt_rdma(direction, nonce, signature, data, &mut output).is_ok();
        if opened {
            *data = output;
        }
        opened
    }

    /// Outcome of verifying the signature of data that RDMA moved.
    pub(crate) fn verify_rdma(&self, session: u64, nonce: &[u8], signature: &[u8], data: &[u8]) -> SignatureCheck {
        self.sessions.get(&session).map_or(SignatureCheck::NoKey, |session| session.verify_rdma(nonce, signature, data))
    }

    /// Outcome of verifying a signed message's signature.
    pub(crate) fn verify(&mut self, pdu: &Pdu<'_>, keyring: &Keyring) -> SignatureCheck {
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
    let first =
        |kind: ContextType| response.contexts.into_iter().find(|c| c.context_type == kind).and_then(|c| c.ids().next());
    (first(ContextType::ENCRYPTION).map(CipherId), first(ContextType::SIGNING).map(SigningAlgorithm))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::ntlm::tests::{authenticate, challenge};
    use crate::keys::sign::Signer;
    use crate::keys::{Key, Keys};
    use alloc::vec;
    use rdmascope_dissector::trace::Off;
    use rdmascope_dissector::wire::smb2::header::{Header, flags};
    use rdmascope_dissector::wire::smb2::{self, Command, Each, NtStatus};

    const ID: u64 = 0x1100;

    /// A SESSION_SETUP (\[MS-SMB2\] 2.2.5) of the session with this number (0: a new one), binding or not.
    fn request(message_id: u64, session_id: u64, binds: bool, token: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        Header { session_id, ..Header::request(Command::SESSION_SETUP, message_id) }.emit(&mut out);
        out.extend([25, 0, u8::from(binds), 1]);
        out.extend([0; 8]);
        out.extend([88, 0, token.len() as u8, (token.len() >> 8) as u8]);
        out.extend([0; 8]);
        out.extend(token);
        out
    }

    /// Its reply (2.2.6).
    fn reply(message_id: u64, status: NtStatus, token: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let asked = Header { session_id: ID, ..Header::request(Command::SESSION_SETUP, message_id) };
        Header { flags: flags::RESPONSE, status_or_channel_sequence: status.0, ..asked }.emit(&mut out);
        out.extend([9, 0, 0, 0, 72, 0, token.len() as u8, (token.len() >> 8) as u8]);
        out.extend(token);
        out
    }

    /// A connection of dialect 3.1.1, whose keys depend on all messages before them.
    fn connection(salt: u8) -> Unseal {
        let mut connection = ConnectionCrypto::new();
        connection.negotiate_request(&[salt; 64]);
        connection.negotiate_response(
            &[0; 64],
            Dialect::SMB_3_1_1,
            Some(CipherId::AES_128_GCM),
            Some(SigningAlgorithm::AES_CMAC),
        );
        Unseal { connection, ..Unseal::default() }
    }

    /// Logs on with the password of \[MS-NLMP\] 4.2.4.
    fn log_on(unseal: &mut Unseal, session_id: u64, channels: &mut ChannelKeys) {
        let mut keyring = Keyring::new();
        keyring.add_password(None, "Password");
        let binds = session_id != 0;
        for message in [
            request(1, session_id, binds, b""),
            reply(1, NtStatus::MORE_PROCESSING_REQUIRED, &challenge()),
            request(2, ID, binds, &authenticate()),
            reply(2, NtStatus::SUCCESS, b""),
        ] {
            smb2::parse_message(&message, &mut Off, &mut Each(|pdu: &Pdu<'_>| unseal.learn(pdu, &keyring, channels)))
                .expect("a message");
        }
    }

    #[test]
    fn channels_of_a_sealed_session_are_opened_with_the_keys_of_its_first() {
        let mut channels = ChannelKeys::default();
        let (mut first, mut second, mut alone) = (connection(1), connection(2), connection(2));
        log_on(&mut first, 0, &mut channels);
        log_on(&mut second, ID, &mut channels);
        log_on(&mut alone, ID, &mut ChannelKeys::default());
        let (mut sealed, mut clear) = (Vec::new(), Vec::new());
        let cipher = first.sessions[&ID].cipher(Direction::ToServer).expect("the password gives it").clone();
        cipher.encrypt(&[7; 12], ID, &[0x42; 80], &mut sealed).expect("encrypted");
        let keyring = Keyring::new();
        assert_eq!(second.decrypt(&sealed, Direction::ToServer, &keyring, &mut clear), Some(()));
        assert_eq!(clear, [0x42; 80]);
        assert_eq!(
            alone.decrypt(&sealed, Direction::ToServer, &keyring, &mut clear),
            None,
            "its first channel was not seen"
        );
        // what RDMA moves on the second
        let mut data = vec![0x77; 256];
        let tag = cipher.seal(&[9; 12], &[], &mut data).expect("encrypted");
        assert!(second.decrypt_rdma(ID, Direction::ToServer, &[9; 12], &tag, &mut data));
        assert_eq!(data, [0x77; 256]);
    }

    /// Keys as a user gives them.
    fn given() -> Keys {
        let key = |byte| Some(Key::of([byte; 16]));
        Keys { signing: key(1), client_to_server: key(2), server_to_client: key(3), ..Keys::default() }
    }

    /// An SMB2 message that is signed with the given key.
    fn signed(session_id: u64) -> Vec<u8> {
        let mut message = Vec::new();
        Header { flags: flags::SIGNED, session_id, ..Header::request(Command::ECHO, 5) }.emit(&mut message);
        message.extend([4, 0, 0, 0]);
        let signer = Signer::new(SigningAlgorithm::AES_CMAC, &Key::of([1; 16])).expect("16 bytes");
        assert!(signer.sign(&mut message));
        message
    }

    fn verify(unseal: &mut Unseal, message: &[u8], keyring: &Keyring) -> Option<SignatureCheck> {
        let mut result = None;
        smb2::parse_message(message, &mut Off, &mut Each(|pdu: &Pdu<'_>| result = Some(unseal.verify(pdu, keyring))))
            .ok()?;
        result
    }

    #[test]
    fn a_wrong_signature_is_held_against_nobody_until_the_key_has_proved_itself() {
        let mut keyring = Keyring::new();
        keyring.add_session(ID, given());
        let mut unseal = Unseal::default();
        let right = signed(ID);
        let mut wrong = right.clone();
        *wrong.last_mut().expect("a reserved byte") ^= 1;
        assert_eq!(verify(&mut unseal, &right, &Keyring::new()), Some(SignatureCheck::NoKey));
        assert_eq!(verify(&mut unseal, &wrong, &keyring), Some(SignatureCheck::Unproven));
        assert_eq!(verify(&mut unseal, &right, &keyring), Some(SignatureCheck::Verified));
        assert_eq!(verify(&mut unseal, &wrong, &keyring), Some(SignatureCheck::Failed));
        assert_eq!(verify(&mut unseal, &signed(ID + 1), &keyring), Some(SignatureCheck::NoKey), "another session");
    }

    #[test]
    fn messages_that_were_missed_leave_a_hash_that_gives_no_keys() {
        let mut channels = ChannelKeys::default();
        let mut unseal = connection(1);
        unseal.missed();
        log_on(&mut unseal, 0, &mut channels);
        assert!(
            unseal.sessions[&ID].cipher(Direction::ToServer).is_none(),
            "3.1.1 derives keys from all messages before"
        );
        let mut whole = connection(1);
        log_on(&mut whole, 0, &mut channels);
        assert!(whole.sessions[&ID].cipher(Direction::ToServer).is_some());
        // once established, nothing that is missed takes the keys away
        whole.missed();
        assert!(whole.sessions[&ID].cipher(Direction::ToServer).is_some());
    }

    #[test]
    fn a_connection_that_is_paired_late_brings_the_sessions_of_its_other_half() {
        let mut keyring = Keyring::new();
        keyring.add_session(ID, given());
        let (mut one, mut other) = (Unseal::default(), Unseal::default());
        assert_eq!(verify(&mut other, &signed(ID), &keyring), Some(SignatureCheck::Verified));
        one.adopt(other);
        assert_eq!(verify(&mut one, &signed(ID), &Keyring::new()), Some(SignatureCheck::Verified));
    }
}
