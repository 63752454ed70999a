//! Kerberos 5 sessions, client and server: the AP exchange, RFC 4120 3.2, in GSS-API tokens, RFC 4121 4.1, in SPNEGO,
//! RFC 4178. The messages and their cryptography are `picky-krb`'s; the clock and the network are arguments.
//!
//! ```text
//! client                                                     server
//! credential cache, kdc ─▶ Initiator ── AP-REQ ────────────▶ Keytab::accept
//!                          finish   ◀── AP-REP, its subkey ──
//! ```
//!
//! Encryption types are AES with SHA-1, RFC 3962 (17 and 18), and with SHA-2, RFC 8009 (19 and 20).

mod aes_sha2;
pub mod credential_cache;
pub mod kdc;
pub mod keytab;

use crate::random::random;
use aes_sha2::AesSha2;
use picky_asn1::bit_string::BitString;
use picky_asn1::restricted_string::Ia5String;
use picky_asn1::wrapper::{
    Asn1SequenceOf, ExplicitContextTag0, ExplicitContextTag1, ExplicitContextTag2, ExplicitContextTag3,
    ExplicitContextTag4, ExplicitContextTag5, ExplicitContextTag6, ExplicitContextTag7, GeneralStringAsn1,
    GeneralizedTimeAsn1, IntegerAsn1, OctetStringAsn1, Optional,
};
use picky_krb::constants::key_usages;
use picky_krb::crypto::{ChecksumSuite, CipherSuite};
use picky_krb::data_types::{
    self as wire, Authenticator, AuthenticatorInner, Checksum, EncApRepPart, EncApRepPartInner, EncTicketPart, Ticket,
};
use picky_krb::messages::{ApRep, ApRepInner, ApReq, ApReqInner, KrbError};
use rdmascope_analyzer::keys::{Key, Tickets};
use rdmascope_dissector::text::{Escaped, escaped};
use rdmascope_dissector::wire::smb2::spnego::{self, NegState, kerberos_token};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use thiserror::Error;
use time::OffsetDateTime;

/// Mechanisms that SPNEGO lists if Kerberos is accepted.
pub(crate) const MECHANISMS: [&[u8]; 2] = [spnego::KERBEROS_MICROSOFT, spnego::KERBEROS];

/// Of GSS-API tokens, RFC 4121 4.1, in the byte order of the dissector.
mod token_id {
    pub(super) const AP_REQ: u16 = 1;
    pub(super) const AP_REP: u16 = 2;
    pub(super) const ERROR: u16 = 3;
}

const VERSION: u8 = 5;
const MESSAGE_AP_REQ: u8 = 14;
const MESSAGE_AP_REP: u8 = 15;
/// AES of 256 and of 128 bits, with SHA-1 and with SHA-2: the types offered to a KDC, in MIT's order.
pub const ENCRYPTION_TYPES: [u8; 4] = [18, 17, 20, 19];
/// The checksum that a GSS-API authenticator has, RFC 4121 4.1.1.
const CHECKSUM_GSS: [u8; 3] = [0x00, 0x80, 0x03];
/// Mutual authentication, replay and sequence detection, confidentiality, integrity.
const GSS_FLAGS: u32 = 0x02 | 0x04 | 0x08 | 0x10 | 0x20;
const GSS_FLAG_MUTUAL: u32 = 0x02;
/// AP-REQ: the server is to prove itself. The second bit of 32.
const OPTION_MUTUAL: [u8; 4] = [0x20, 0, 0, 0];
/// Maximum difference between two clocks, RFC 4120 1.6.
const SKEW: Duration = Duration::from_secs(300);

/// An error that prevents a Kerberos session.
#[derive(Debug, Error)]
pub enum Error {
    /// A file cannot be read.
    #[error("{path} cannot be read: {source}")]
    File {
        /// Path of the file.
        path: String,
        /// The I/O error.
        source: std::io::Error,
    },
    /// A file has the wrong format.
    #[error("{path} {why}")]
    Format {
        /// Path of the file.
        path: String,
        /// The problem with it.
        why: &'static str,
    },
    /// A name that is none.
    #[error("\"{0}\" is not a Kerberos name; NAME@REALM is expected")]
    Name(String),
    /// There is no ticket to go on with.
    #[error("no ticket for {wanted} in {cache}: {advice}")]
    NoTicket {
        /// The server.
        wanted: String,
        /// Cache that was searched.
        cache: String,
        /// Advice to the user.
        advice: &'static str,
    },
    /// The realm's key distribution center is unknown.
    #[error("the KDC of {realm} is not known: {path} does not name it; give --kdc HOST")]
    NoKdc {
        /// The realm.
        realm: String,
        /// Configuration file that was searched.
        path: String,
    },
    /// It cannot be reached.
    #[error("the KDC {address}: {source}")]
    Kdc {
        /// Address of the KDC.
        address: String,
        /// The I/O error.
        source: std::io::Error,
    },
    /// The server or the KDC refuses.
    #[error("{from} says {}", error_name(*code))]
    Refused {
        /// The server or the KDC.
        from: &'static str,
        /// KRB-ERROR's error-code, RFC 4120 7.5.9.
        code: u32,
    },
    /// The bytes are not a message, or not one for us.
    #[error("{0}")]
    Message(&'static str),
    /// Decryption or a checksum failed.
    #[error("{0} was not made with the key that we have")]
    Key(&'static str),
    /// An encryption type that is not spoken here.
    #[error("encryption type {0} is not supported; AES (17 to 20) is")]
    EncryptionType(i64),
    /// No random numbers.
    #[error("the system provides no random numbers")]
    Random,
}

type Result<T, E = Error> = std::result::Result<T, E>;

/// Text of KRB-ERROR's codes that a session meets, RFC 4120 7.5.9.
fn error_name(code: u32) -> String {
    let text = match code {
        6 => "that it does not know the client (KDC_ERR_C_PRINCIPAL_UNKNOWN)",
        7 => "that it does not know the server (KDC_ERR_S_PRINCIPAL_UNKNOWN): is its name right? --spn gives another",
        14 => "that it has no encryption type in common with us (KDC_ERR_ETYPE_NOSUPP)",
        18 => "that the account is locked (KDC_ERR_CLIENT_REVOKED)",
        23 => "that the password has expired (KDC_ERR_KEY_EXPIRED)",
        24 => "that the password is wrong (KDC_ERR_PREAUTH_FAILED)",
        31 => "that it cannot decrypt (KRB_AP_ERR_BAD_INTEGRITY)",
        32 => "that the ticket has expired (KRB_AP_ERR_TKT_EXPIRED)",
        33 => "that the ticket is not valid yet (KRB_AP_ERR_TKT_NYV)",
        34 => "that it has seen this request before (KRB_AP_ERR_REPEAT)",
        35 => "that the ticket is for another server (KRB_AP_ERR_NOT_US)",
        37 => "that the clocks are too far apart (KRB_AP_ERR_SKEW)",
        41 => "that the message was changed, or its key is another (KRB_AP_ERR_MODIFIED)",
        44 => "that the ticket is for another version of its key (KRB_AP_ERR_BADKEYVER)",
        45 => "that it has no key for the ticket (KRB_AP_ERR_NOKEY)",
        _ => return format!("KRB-ERROR {code}"),
    };
    text.to_owned()
}

/// The principal of a ticket, RFC 4120 6.2: `NAME@REALM`, with `/` between the parts of the name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// NT_PRINCIPAL 1, NT_SRV_INST 2, NT_SRV_HST 3 …
    pub name_type: u32,
    /// The parts of the name.
    pub parts: Vec<String>,
    /// The realm.
    pub realm: String,
}

impl Principal {
    /// The file service of a host.
    pub fn cifs(host: &str, realm: &str) -> Self {
        Self { name_type: 2, parts: vec!["cifs".to_owned(), host.to_ascii_lowercase()], realm: realm.to_owned() }
    }

    /// The ticket-granting server of a realm.
    fn ticket_granter(realm: &str) -> Self {
        Self { name_type: 2, parts: vec!["krbtgt".to_owned(), realm.to_owned()], realm: realm.to_owned() }
    }

    /// True if the two have the same name and realm, regardless of their types.
    fn is(&self, other: &Self) -> bool {
        self.parts == other.parts && self.realm == other.realm
    }

    fn wire_name(&self) -> Result<wire::PrincipalName> {
        let parts = self.parts.iter().map(|part| text(part)).collect::<Result<Vec<_>>>()?;
        Ok(wire::PrincipalName {
            name_type: ExplicitContextTag0::from(integer(self.name_type)),
            name_string: ExplicitContextTag1::from(Asn1SequenceOf::from(parts)),
        })
    }

    fn of_wire(name: &wire::PrincipalName, realm: &wire::Realm) -> Self {
        Self {
            name_type: number(&name.name_type.0).and_then(|n| n.try_into().ok()).unwrap_or(0),
            parts: name.name_string.0.0.iter().map(|part| part.0.to_string()).collect(),
            realm: realm.0.to_string(),
        }
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, part) in self.parts.iter().enumerate() {
            write!(f, "{}{}", if n > 0 { "/" } else { "" }, Escaped(part))?;
        }
        write!(f, "@{}", Escaped(&self.realm))
    }
}

impl FromStr for Principal {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || Error::Name(escaped(text));
        let (name, realm) = text.rsplit_once('@').ok_or_else(wrong)?;
        let parts: Vec<String> = name.split('/').map(str::to_owned).collect();
        if realm.is_empty() || parts.iter().any(String::is_empty) {
            return Err(wrong());
        }
        Ok(Self { name_type: if parts.len() > 1 { 2 } else { 1 }, parts, realm: realm.to_owned() })
    }
}

/// An encryption type.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Sha1(CipherSuite),
    Sha2(AesSha2),
}

impl Kind {
    fn of(encryption_type: i64) -> Result<Self> {
        match encryption_type {
            17 => Ok(Self::Sha1(CipherSuite::Aes128CtsHmacSha196)),
            18 => Ok(Self::Sha1(CipherSuite::Aes256CtsHmacSha196)),
            19 => Ok(Self::Sha2(AesSha2::Aes128)),
            20 => Ok(Self::Sha2(AesSha2::Aes256)),
            other => Err(Error::EncryptionType(other)),
        }
    }

    fn key_len(&self) -> usize {
        match self {
            Self::Sha1(suite) => suite.cipher().key_size(),
            Self::Sha2(kind) => kind.key_len(),
        }
    }
}

/// A key of Kerberos, RFC 3961 2. `Debug` does not print it.
#[derive(Clone, PartialEq, Eq)]
pub struct EncryptionKey {
    kind: Kind,
    value: Vec<u8>,
}

impl fmt::Debug for EncryptionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EncryptionKey({:?})", self.kind)
    }
}

impl EncryptionKey {
    /// A key of this encryption type.
    ///
    /// # Errors
    /// [`Error::EncryptionType`]; [`Error::Message`] if keys of the type have another length.
    pub fn new(encryption_type: i64, value: Vec<u8>) -> Result<Self> {
        let kind = Kind::of(encryption_type)?;
        if kind.key_len() != value.len() {
            return Err(Error::Message("a key does not have the length of its type"));
        }
        Ok(Self { kind, value })
    }

    /// The key of a password, with the default number of iterations of RFC 3962 4 and RFC 8009 4.
    fn of_password(encryption_type: i64, password: &str, salt: &str) -> Result<Self> {
        let kind = Kind::of(encryption_type)?;
        let value = match &kind {
            Kind::Sha1(suite) => suite
                .cipher()
                .generate_key_from_password(password.as_bytes(), salt.as_bytes())
                .map_err(|_| Error::Key("a password"))?,
            Kind::Sha2(kind) => kind.of_password(password, salt),
        };
        Ok(Self { kind, value })
    }

    /// A fresh key of the same type.
    fn fresh(&self) -> Result<Self> {
        let bytes = random::<32>().map_err(|_| Error::Random)?;
        Ok(Self { kind: self.kind.clone(), value: bytes[..self.value.len()].to_vec() })
    }

    fn encryption_type(&self) -> u8 {
        match &self.kind {
            Kind::Sha1(suite) => suite.into(),
            Kind::Sha2(kind) => kind.encryption_type(),
        }
    }

    fn encrypt(&self, usage: i32, plain: &[u8]) -> Result<wire::EncryptedData> {
        let cipher = match &self.kind {
            Kind::Sha1(suite) => suite.cipher().encrypt(&self.value, usage, plain).map_err(|_| Error::Random)?,
            Kind::Sha2(kind) => kind.encrypt(&self.value, usage, plain)?,
        };
        Ok(wire::EncryptedData {
            etype: ExplicitContextTag0::from(integer(self.encryption_type())),
            kvno: Optional::from(None),
            cipher: ExplicitContextTag2::from(OctetStringAsn1::from(cipher)),
        })
    }

    fn decrypt(&self, usage: i32, data: &wire::EncryptedData, what: &'static str) -> Result<Vec<u8>> {
        if number(&data.etype.0) != Some(self.encryption_type().into()) {
            return Err(Error::Key(what));
        }
        let bytes = &data.cipher.0.0;
        let plain = match &self.kind {
            Kind::Sha1(suite) => suite.cipher().decrypt(&self.value, usage, bytes).ok(),
            Kind::Sha2(kind) => kind.decrypt(&self.value, usage, bytes),
        };
        plain.ok_or(Error::Key(what))
    }

    /// A checksum of a message, RFC 3961 4.
    fn checksum(&self, usage: i32, message: &[u8]) -> Result<Checksum> {
        let (kind, sum) = match &self.kind {
            Kind::Sha1(suite) => {
                let suite = if *suite == CipherSuite::Aes128CtsHmacSha196 {
                    ChecksumSuite::HmacSha196Aes128
                } else {
                    ChecksumSuite::HmacSha196Aes256
                };
                let sum = suite.hasher().checksum(&self.value, usage, message);
                (u8::from(suite), sum.map_err(|_| Error::Message("a checksum cannot be made"))?)
            }
            // RFC 8009 7: numbered as the encryption types
            Kind::Sha2(kind) => (kind.encryption_type(), kind.checksum(&self.value, usage, message)),
        };
        Ok(Checksum {
            cksumtype: ExplicitContextTag0::from(integer(kind)),
            checksum: ExplicitContextTag1::from(OctetStringAsn1::from(sum)),
        })
    }

    fn to_wire(&self) -> wire::EncryptionKey {
        wire::EncryptionKey {
            key_type: ExplicitContextTag0::from(integer(self.encryption_type())),
            key_value: ExplicitContextTag1::from(OctetStringAsn1::from(self.value.clone())),
        }
    }

    fn of_wire(key: &wire::EncryptionKey) -> Result<Self> {
        Self::new(number(&key.key_type.0).unwrap_or(0), key.key_value.0.0.clone())
    }

    /// The key as SMB2 takes it.
    fn session_key(&self) -> Key {
        Key::of_slice(&self.value)
    }
}

/// A ticket, and the key that it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    /// Client principal.
    pub client: Principal,
    /// Server principal.
    pub server: Principal,
    /// Of the session between the two.
    pub key: EncryptionKey,
    /// As the client shows it.
    pub ticket: Ticket,
    /// End of its lifetime.
    pub end: SystemTime,
}

impl Credential {
    /// A ticket for `host`'s file service, or for the named service: from the credential cache, from the KDC by a
    /// ticket in the cache, or by the password.
    ///
    /// # Errors
    /// If there is no ticket and no way to get one.
    pub fn find(wanted: &Wanted, now: SystemTime) -> Result<Self> {
        if let Some((user, password)) = &wanted.password {
            let server = wanted.server(&user.realm)?;
            let kdc = wanted.kdc_of(&user.realm)?;
            let granter = kdc.initial(user, password, now)?;
            return kdc.ticket(&granter, &server, now);
        }
        let cache = credential_cache::CredentialCache::named(&wanted.cache)?;
        let server = wanted.server(&cache.client.realm)?;
        let valid = |name: &Principal| cache.credentials.iter().find(|c| c.server.is(name) && c.end > now);
        if let Some(found) = valid(&server) {
            return Ok(found.clone());
        }
        let Some(granter) = valid(&Principal::ticket_granter(&server.realm)) else {
            let (wanted, cache) = (server.to_string(), cache.path.clone());
            return Err(Error::NoTicket { wanted, cache, advice: "nor a valid ticket to get it with: run kinit" });
        };
        wanted.kdc_of(&server.realm)?.ticket(granter, &server, now)
    }
}

/// Search criteria for a ticket.
#[derive(Clone)]
pub struct Wanted {
    /// The host of the server.
    pub host: String,
    /// The name of its service if that is not `cifs/HOST`, with or without a realm.
    pub service: Option<String>,
    /// Address of the KDC, as HOST or HOST:PORT; `None` to take it from the configuration.
    pub kdc: Option<String>,
    /// The client and its password; without a password the cache has tickets.
    pub password: Option<(Principal, String)>,
    /// The cache, as `KRB5CCNAME` names it.
    pub cache: String,
    /// Paths of the configuration, with colons between, as `KRB5_CONFIG` names them.
    pub configuration: String,
}

impl Wanted {
    /// A ticket for a host's file service, with cache and configuration from the environment, or from their default
    /// places.
    pub fn of_environment(host: &str) -> Self {
        let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        Self {
            host: host.to_owned(),
            service: None,
            kdc: None,
            password: None,
            cache: variable("KRB5CCNAME").unwrap_or_else(credential_cache::default_name),
            configuration: variable("KRB5_CONFIG").unwrap_or_else(|| "/etc/krb5.conf".to_owned()),
        }
    }

    /// The same with a password. If the user name has no realm, the configuration's is used.
    ///
    /// # Errors
    /// If that has none.
    pub fn with_password(mut self, user: &str, password: &str) -> Result<Self> {
        let user = match kdc::default_realm(&kdc::read_configuration(&self.configuration)) {
            Some(realm) if !user.contains('@') => format!("{user}@{realm}"),
            _ => user.to_owned(),
        };
        self.password = Some((user.parse()?, password.to_owned()));
        Ok(self)
    }

    fn server(&self, realm: &str) -> Result<Principal> {
        match &self.service {
            None => Ok(Principal::cifs(&self.host, realm)),
            Some(name) if name.contains('@') => name.parse(),
            Some(name) => format!("{name}@{realm}").parse(),
        }
    }

    fn kdc_of(&self, realm: &str) -> Result<kdc::Kdc> {
        kdc::Kdc::of_realm(realm, self.kdc.as_deref(), &self.configuration)
    }
}

impl fmt::Debug for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = self.password.as_ref().map(|(user, _)| user);
        f.debug_struct("Wanted")
            .field("host", &self.host)
            .field("service", &self.service)
            .field("user", &user)
            .finish_non_exhaustive()
    }
}

/// A client that has shown its ticket.
#[derive(Debug)]
pub struct Initiator {
    key: EncryptionKey,
    subkey: EncryptionKey,
    time: (GeneralizedTimeAsn1, IntegerAsn1),
}

impl Initiator {
    /// Sends a ticket: returns a NegTokenInit with an AP-REQ.
    ///
    /// # Errors
    /// If the system provides no random numbers.
    pub fn begin(credential: &Credential, now: SystemTime) -> Result<(Self, Vec<u8>)> {
        let subkey = credential.key.fresh()?;
        let time = stamp(now);
        // Lgth, Bnd (no channel is bound), Flags, RFC 4121 4.1.1
        let mut checksum = vec![16, 0, 0, 0];
        checksum.resize(20, 0);
        checksum.extend_from_slice(&GSS_FLAGS.to_le_bytes());
        let checksum = Checksum {
            cksumtype: ExplicitContextTag0::from(IntegerAsn1::from(CHECKSUM_GSS.to_vec())),
            checksum: ExplicitContextTag1::from(OctetStringAsn1::from(checksum)),
        };
        let request = ap_request(credential, &time, Some(checksum), Some(&subkey), key_usages::AP_REQ_AUTHENTICATOR)?;
        let message = gss_token(1, &encode(&request)?);
        Ok((Self { key: credential.key.clone(), subkey, time }, spnego::emit_init(&[spnego::KERBEROS], Some(&message))))
    }

    /// Checks the server's answer: that the server knows the ticket's key, and which key the session has. A server
    /// without mutual authentication sends no proof, and the session has our key.
    ///
    /// # Errors
    /// If the server refuses, or is not the one that the ticket is for.
    pub fn finish(&self, blob: &[u8]) -> Result<Key> {
        let Some(token) = kerberos_token(blob) else {
            return Err(Error::Message("the server's answer has no Kerberos token in it"));
        };
        match token.id {
            token_id::AP_REP => {}
            token_id::ERROR => return Err(refusal(token.message, "the server")),
            _ => return Err(Error::Message("the server's answer is not an AP-REP")),
        }
        let (part, subkey) = answered_key(&self.key, token.message)?;
        // RFC 4120 3.2.5: it is our time that proves it
        if (&part.ctime.0, &part.cusec.0) != (&self.time.0, &self.time.1) {
            return Err(Error::Message("the server's AP-REP answers another request"));
        }
        Ok(subkey.as_ref().unwrap_or(&self.subkey).session_key())
    }
}

/// A client that was let in.
#[derive(Debug)]
pub struct Accepted {
    /// Client principal of the ticket.
    pub client: Principal,
    /// The key of the session.
    pub key: Key,
    /// The answer for it.
    pub token: Vec<u8>,
}

impl keytab::Keytab {
    /// Checks a client's first token: identifies the client, by a ticket for one of our keys. `None` if it is not a
    /// Kerberos token. Repeated requests are not detected: an attacker who repeats one does not have its key.
    ///
    /// # Errors
    /// If the ticket or the authenticator is not valid.
    pub fn accept(&self, blob: &[u8], now: SystemTime) -> Option<Result<Accepted>> {
        let token = kerberos_token(blob).filter(|token| token.id == token_id::AP_REQ)?;
        Some(self.accept_request(token.message, token.mechanism, now))
    }

    /// Decrypts a client's ticket and authenticator.
    fn open(&self, message: &[u8]) -> Result<Opened> {
        let request: ApReq = decode(message, "an AP-REQ cannot be read")?;
        let ticket = &request.0.ticket.0.0;
        let server = Principal::of_wire(&ticket.sname.0, &ticket.realm.0);
        let kind = number(&ticket.enc_part.0.etype.0).unwrap_or(0);
        let keys =
            || self.entries.iter().filter(|entry| entry.key.encryption_type() == u8::try_from(kind).unwrap_or(0));
        if keys().next().is_none() {
            return Err(Error::EncryptionType(kind));
        }
        // a keytab has several versions of a key; the right one decrypts
        let part = keys().filter(|entry| entry.principal.is(&server));
        let mut parts =
            part.map(|entry| entry.key.decrypt(key_usages::TICKET_REP, &ticket.enc_part.0, "the client's ticket"));
        let part = parts.find(Result::is_ok).unwrap_or(Err(Error::Key("the client's ticket")))?;
        let part: EncTicketPart = decode(&part, "a ticket cannot be read")?;
        let key = EncryptionKey::of_wire(&part.0.key.0)?;
        let authenticator =
            key.decrypt(key_usages::AP_REQ_AUTHENTICATOR, &request.0.authenticator.0, "the client's authenticator")?;
        let authenticator: Authenticator = decode(&authenticator, "an authenticator cannot be read")?;
        let subkey = authenticator
            .0
            .subkey
            .0
            .as_ref()
            .map(|key| EncryptionKey::of_wire(&key.0))
            .transpose()?
            .unwrap_or_else(|| key.clone());
        Ok(Opened {
            ticket: part.0,
            authenticator: authenticator.0,
            asks_for_proof: request.0.ap_options.0.0.is_set(2),
            key,
            subkey,
        })
    }

    fn accept_request(&self, message: &[u8], mechanism: Option<&[u8]>, now: SystemTime) -> Result<Accepted> {
        let Opened { ticket, authenticator, asks_for_proof, key, subkey } = self.open(message)?;
        if time_of(&ticket.endtime.0)? + SKEW < now {
            return Err(Error::Message("the client's ticket has expired"));
        }
        // RFC 4120 5.3: without a start it is valid from when the client proved itself
        let start = ticket.starttime.0.as_ref().map_or(&ticket.auth_time.0, |start| &start.0);
        if time_of(start)? > now + SKEW {
            return Err(Error::Message("the client's ticket is not valid yet"));
        }
        let client = Principal::of_wire(&ticket.cname.0, &ticket.crealm.0);
        if !client.is(&Principal::of_wire(&authenticator.cname.0, &authenticator.crealm.0)) {
            return Err(Error::Message("the client's ticket belongs to somebody else"));
        }
        let sent = time_of(&authenticator.ctime.0)?;
        if sent > now + SKEW || sent + SKEW < now {
            return Err(Error::Message("the client's clock is too far from ours"));
        }
        let checksum = authenticator.cksum.0.as_ref().map_or(&[][..], |sum| &sum.0.checksum.0.0);
        let flags = checksum.get(20..24).map_or(0, |flags| u32::from_le_bytes(flags.try_into().unwrap_or_default()));
        let mutual = flags & GSS_FLAG_MUTUAL != 0 || asks_for_proof;
        // a client that does not request mutual authentication uses its own key
        let (key, message) = if mutual {
            let fresh = subkey.fresh()?;
            let part = EncApRepPart::from(EncApRepPartInner {
                ctime: ExplicitContextTag0::from(authenticator.ctime.0),
                cusec: ExplicitContextTag1::from(authenticator.cusec.0),
                subkey: Optional::from(Some(ExplicitContextTag2::from(fresh.to_wire()))),
                seq_number: Optional::from(Some(ExplicitContextTag3::from(sequence_number()?))),
            });
            let reply = ApRep::from(ApRepInner {
                pvno: ExplicitContextTag0::from(integer(VERSION)),
                msg_type: ExplicitContextTag1::from(integer(MESSAGE_AP_REP)),
                enc_part: ExplicitContextTag2::from(key.encrypt(key_usages::AP_REP_ENC, &encode(&part)?)?),
            });
            (fresh, Some(gss_token(2, &encode(&reply)?)))
        } else {
            (subkey, None)
        };
        let token = match (mechanism, message) {
            (Some(mechanism), message) => {
                spnego::emit_response(Some(NegState::AcceptCompleted), Some(mechanism), message.as_deref())
            }
            (None, message) => message.unwrap_or_default(),
        };
        Ok(Accepted { client, key: key.session_key(), token })
    }
}

/// A client's AP-REQ, decrypted.
struct Opened {
    ticket: wire::EncTicketPartInner,
    authenticator: AuthenticatorInner,
    /// AP-REQ's own flag for mutual authentication.
    asks_for_proof: bool,
    /// The ticket's.
    key: EncryptionKey,
    /// The client's own subkey, or the ticket's key if it has none.
    subkey: EncryptionKey,
}

/// Decrypts captured sessions with the keys of their servers. Does not check whether a ticket was valid then.
impl Tickets for keytab::Keytab {
    fn session_key(&self, request: &[u8], response: &[u8]) -> Option<Key> {
        let shown = kerberos_token(request).filter(|token| token.id == token_id::AP_REQ)?;
        let Opened { key, subkey, .. } = self.open(shown.message).ok()?;
        match kerberos_token(response).filter(|token| token.id == token_id::AP_REP) {
            Some(answer) => Some(answered_key(&key, answer.message).ok()?.1.unwrap_or(subkey).session_key()),
            None => Some(subkey.session_key()),
        }
    }
}

/// Decrypts a server's AP-REP. Returns it with the key that it gives the session, if any.
fn answered_key(key: &EncryptionKey, message: &[u8]) -> Result<(EncApRepPartInner, Option<EncryptionKey>)> {
    let reply: ApRep = decode(message, "the server's AP-REP cannot be read")?;
    let part = key.decrypt(key_usages::AP_REP_ENC, &reply.0.enc_part.0, "the server's AP-REP")?;
    let part: EncApRepPart = decode(&part, "the server's AP-REP cannot be read")?;
    let subkey = part.0.subkey.0.as_ref().map(|subkey| EncryptionKey::of_wire(&subkey.0)).transpose()?;
    Ok((part.0, subkey))
}

/// Makes an AP-REQ: the client sends its ticket, and proves that it knows its key.
fn ap_request(
    credential: &Credential,
    (ctime, cusec): &(GeneralizedTimeAsn1, IntegerAsn1),
    checksum: Option<Checksum>,
    subkey: Option<&EncryptionKey>,
    usage: i32,
) -> Result<ApReq> {
    let authenticator = Authenticator::from(AuthenticatorInner {
        authenticator_vno: ExplicitContextTag0::from(integer(VERSION)),
        crealm: ExplicitContextTag1::from(text(&credential.client.realm)?),
        cname: ExplicitContextTag2::from(credential.client.wire_name()?),
        cksum: Optional::from(checksum.map(ExplicitContextTag3::from)),
        cusec: ExplicitContextTag4::from(cusec.clone()),
        ctime: ExplicitContextTag5::from(ctime.clone()),
        subkey: Optional::from(subkey.map(|key| ExplicitContextTag6::from(key.to_wire()))),
        seq_number: Optional::from(Some(ExplicitContextTag7::from(sequence_number()?))),
        authorization_data: Optional::from(None),
    });
    let options = if subkey.is_some() { OPTION_MUTUAL } else { [0; 4] };
    Ok(ApReq::from(ApReqInner {
        pvno: ExplicitContextTag0::from(integer(VERSION)),
        msg_type: ExplicitContextTag1::from(integer(MESSAGE_AP_REQ)),
        ap_options: ExplicitContextTag2::from(flags(options)),
        ticket: ExplicitContextTag3::from(credential.ticket.clone()),
        authenticator: ExplicitContextTag4::from(credential.key.encrypt(usage, &encode(&authenticator)?)?),
    }))
}

/// A Kerberos message as a token, RFC 4121 4.1.
fn gss_token(id: u16, message: &[u8]) -> Vec<u8> {
    spnego::emit_gss_token(spnego::KERBEROS, id, message)
}

fn refusal(message: &[u8], from: &'static str) -> Error {
    match decode::<KrbError>(message, "") {
        Ok(error) => Error::Refused { from, code: error.0.error_code.0 },
        Err(_) => Error::Message("an answer cannot be read"),
    }
}

fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>> {
    picky_asn1_der::to_vec(message).map_err(|_| Error::Message("our own message cannot be written"))
}

fn decode<T: DeserializeOwned>(bytes: &[u8], wrong: &'static str) -> Result<T> {
    // picky-asn1-der (0.5) adds up lengths, and allocates memory for them, before it checks that there are so many
    // bytes; and it counts bits that do not exist
    if !is_der(bytes, NESTED_MAX) {
        return Err(Error::Message(wrong));
    }
    picky_asn1_der::from_bytes(bytes).map_err(|_| Error::Message(wrong))
}

/// Maximum nesting of elements in a message; a ticket with all its authorization data has about ten levels.
const NESTED_MAX: u32 = 32;

/// True if these bytes are a sequence of DER elements, X.690: tags of one byte, definite lengths, contents of these
/// lengths, and bit strings with a valid number of bits.
fn is_der(mut i: &[u8], nested_max: u32) -> bool {
    while let Some((tag, rest)) = i.split_first() {
        let Some((first, rest)) = rest.split_first() else { return false };
        let (length, rest) = match first {
            0..=0x7f => (usize::from(*first), rest),
            0x81..=0x83 => {
                let Some((bytes, rest)) = rest.split_at_checked(usize::from(first & 0x7f)) else { return false };
                (bytes.iter().fold(0, |n, byte| n << 8 | usize::from(*byte)), rest)
            }
            _ => return false,
        };
        let Some((contents, rest)) = rest.split_at_checked(length) else { return false };
        let (constructed, long_tag) = (tag & 0x20 != 0, tag & 0x1f == 0x1f);
        // the first byte of a BIT STRING is the number of unused bits in the last one
        let bits = *tag != 0x03 || matches!(contents, [0] | [0..8, _, ..]);
        if long_tag || !bits || constructed && (nested_max == 0 || !is_der(contents, nested_max - 1)) {
            return false;
        }
        i = rest;
    }
    true
}

/// Bytes as everything that is read here: files, tokens, and messages as they are once decrypted.
pub(crate) fn fuzz(bytes: &[u8]) {
    let _ = credential_cache::CredentialCache::parse(bytes, "");
    let _ = keytab::Keytab::parse(bytes);
    let _ = decode::<ApReq>(bytes, "").map(|request| request.0.ap_options.0.0.is_set(2));
    let _ = (decode::<ApRep>(bytes, ""), refusal(bytes, ""));
    let _ = (decode::<Authenticator>(bytes, ""), decode::<EncApRepPart>(bytes, ""));
    if let Ok(part) = decode::<EncTicketPart>(bytes, "") {
        let _ = (
            Principal::of_wire(&part.0.cname.0, &part.0.crealm.0).to_string(),
            time_of(&part.0.endtime.0),
            EncryptionKey::of_wire(&part.0.key.0),
        );
    }
    kdc::fuzz(bytes);
}

fn integer(value: impl Into<u32>) -> IntegerAsn1 {
    IntegerAsn1::from_bytes_be_unsigned(value.into().to_be_bytes().to_vec())
}

/// The value of an INTEGER of up to 8 bytes.
fn number(integer: &IntegerAsn1) -> Option<i64> {
    let bytes = integer.as_signed_bytes_be();
    let sign = if bytes.first()? & 0x80 != 0 { -1 } else { 0 };
    (bytes.len() <= 8).then(|| bytes.iter().fold(sign, |n, byte| n << 8 | i64::from(*byte)))
}

fn text(text: &str) -> Result<GeneralStringAsn1> {
    Ia5String::new(text).map(GeneralStringAsn1::from).map_err(|_| Error::Name(escaped(text)))
}

fn flags(bits: [u8; 4]) -> wire::KerberosFlags {
    BitString::with_bytes(bits.to_vec()).into()
}

/// A number to begin with that fits into 31 bits: some take it for signed.
fn sequence_number() -> Result<IntegerAsn1> {
    let bytes = random::<4>().map_err(|_| Error::Random)?;
    Ok(integer(u32::from_be_bytes(bytes) >> 2))
}

/// Seconds, and microseconds of the second.
fn stamp(now: SystemTime) -> (GeneralizedTimeAsn1, IntegerAsn1) {
    let micros = now.duration_since(UNIX_EPOCH).map_or(0, |d| d.subsec_micros());
    (kerberos_time(now), integer(micros))
}

fn kerberos_time(time: SystemTime) -> GeneralizedTimeAsn1 {
    picky_asn1::date::GeneralizedTime::from(OffsetDateTime::from(time)).into()
}

fn time_of(time: &GeneralizedTimeAsn1) -> Result<SystemTime> {
    let time = OffsetDateTime::try_from(time.0.clone()).map_err(|_| Error::Message("a time cannot be read"))?;
    Ok(time.into())
}

#[cfg(test)]
mod tests {
    use super::credential_cache::CredentialCache;
    use super::keytab::Keytab;
    use super::*;
    use proptest::prelude::*;

    /// Five minutes after kinit, by which all tickets of the cache are valid.
    fn now() -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_795_288_817)
    }

    fn keytab() -> Keytab {
        Keytab::parse(include_bytes!("testdata/keytab")).unwrap()
    }

    /// alice's ticket for cifs/server.lab.example.
    fn credential() -> Credential {
        CredentialCache::parse(include_bytes!("testdata/credential_cache"), "cache").unwrap().credentials.remove(1)
    }

    #[test]
    fn both_ends_come_to_one_key() {
        let (client, token) = Initiator::begin(&credential(), now()).unwrap();
        let accepted = keytab().accept(&token, now()).unwrap().unwrap();
        assert_eq!(accepted.client.to_string(), "alice@LAB.EXAMPLE");
        assert_eq!(client.finish(&accepted.token).unwrap(), accepted.key);
        assert_eq!(accepted.key.bytes().len(), 32);
        // another session, another key
        let (other, token) = Initiator::begin(&credential(), now() + Duration::from_micros(1)).unwrap();
        assert_ne!(keytab().accept(&token, now()).unwrap().unwrap().key, accepted.key);
        // and the answer to one is none to the other
        let refusal = other.finish(&accepted.token).unwrap_err().to_string();
        assert!(refusal == "the server's AP-REP answers another request", "{refusal}");
    }

    #[test]
    fn a_client_that_wants_no_proof_gets_none() {
        let credential = credential();
        let subkey = credential.key.fresh().unwrap();
        let usage = key_usages::AP_REQ_AUTHENTICATOR;
        let mut request = ap_request(&credential, &stamp(now()), None, Some(&subkey), usage).unwrap();
        request.0.ap_options = ExplicitContextTag2::from(flags([0; 4]));
        let token = spnego::emit_init(&[spnego::KERBEROS_MICROSOFT], Some(&gss_token(1, &encode(&request).unwrap())));
        let accepted = keytab().accept(&token, now()).unwrap().unwrap();
        assert_eq!(accepted.key, subkey.session_key());
        assert_eq!(kerberos_token(&accepted.token), None);
        // under the name that the client used
        assert!(accepted.token.windows(spnego::KERBEROS_MICROSOFT.len()).any(|w| w == spnego::KERBEROS_MICROSOFT));
    }

    #[test]
    fn errors_are_named() {
        let minutes = |n: u64| Duration::from_secs(60 * n);
        let (_, token) = Initiator::begin(&credential(), now()).unwrap();
        let refusal = |keytab: &Keytab, token: &[u8], now| keytab.accept(token, now).unwrap().unwrap_err().to_string();
        assert_eq!(refusal(&keytab(), &token, now() + minutes(6)), "the client's clock is too far from ours");
        assert_eq!(refusal(&keytab(), &token, now() - minutes(6)), "the client's clock is too far from ours");
        assert_eq!(refusal(&keytab(), &token, now() + minutes(700)), "the client's ticket has expired");
        assert_eq!(refusal(&keytab(), &token, now() - minutes(20)), "the client's ticket is not valid yet");
        let mut other = keytab();
        other.entries.iter_mut().for_each(|entry| entry.principal.parts[1] = "other.lab.example".to_owned());
        assert_eq!(refusal(&other, &token, now()), "the client's ticket was not made with the key that we have");
        let mut other = keytab();
        other.entries.iter_mut().for_each(|entry| entry.key.value[0] ^= 1);
        assert_eq!(refusal(&other, &token, now()), "the client's ticket was not made with the key that we have");
        let mut other = keytab();
        other.entries.remove(0);
        assert!(refusal(&other, &token, now()).starts_with("encryption type 18 is not supported"));
        // somebody else's name in front of alice's ticket
        let mut bob = credential();
        bob.client.parts[0] = "bob".to_owned();
        let (_, token) = Initiator::begin(&bob, now()).unwrap();
        assert_eq!(refusal(&keytab(), &token, now()), "the client's ticket belongs to somebody else");
        // no key for it
        let mut thief = credential();
        thief.key.value[0] ^= 1;
        let (_, token) = Initiator::begin(&thief, now()).unwrap();
        assert_eq!(
            refusal(&keytab(), &token, now()),
            "the client's authenticator was not made with the key that we have"
        );
        assert!(keytab().accept(&spnego::emit_init(&[spnego::NTLMSSP], Some(b"NTLMSSP\0")), now()).is_none());
    }

    #[test]
    fn a_server_without_the_key_is_found_out() {
        let (client, _) = Initiator::begin(&credential(), now()).unwrap();
        let mut wrong = credential().key;
        wrong.value[0] ^= 1;
        let part = EncApRepPart::from(EncApRepPartInner {
            ctime: ExplicitContextTag0::from(client.time.0.clone()),
            cusec: ExplicitContextTag1::from(client.time.1.clone()),
            subkey: Optional::from(None),
            seq_number: Optional::from(None),
        });
        let answer = |key: &EncryptionKey| {
            let reply = ApRep::from(ApRepInner {
                pvno: ExplicitContextTag0::from(integer(VERSION)),
                msg_type: ExplicitContextTag1::from(integer(MESSAGE_AP_REP)),
                enc_part: ExplicitContextTag2::from(
                    key.encrypt(key_usages::AP_REP_ENC, &encode(&part).unwrap()).unwrap(),
                ),
            });
            spnego::emit_response(
                Some(NegState::AcceptCompleted),
                Some(spnego::KERBEROS),
                Some(&gss_token(2, &encode(&reply).unwrap())),
            )
        };
        assert_eq!(
            client.finish(&answer(&wrong)).unwrap_err().to_string(),
            "the server's AP-REP was not made with the key that we have"
        );
        // without a key of its own, the server takes the client's
        assert_eq!(client.finish(&answer(&credential().key)).unwrap(), client.subkey.session_key());
        assert_eq!(client.finish(&[]).unwrap_err().to_string(), "the server's answer has no Kerberos token in it");
    }

    #[test]
    fn der_is_as_long_as_it_says() {
        for (bytes, is) in [
            (&[0x30, 0x03, 0x02, 0x01, 0x05][..], true),
            (&[0x30, 0x81, 0x03, 0x02, 0x01, 0x05], true),
            (&[0x30, 0x04, 0x02, 0x01, 0x05], false),
            (&[0x30, 0x03, 0x02, 0x02, 0x05], false),
            (&[0x30, 0x80, 0x02, 0x01, 0x05, 0, 0], false),
            (&[0x24, 0x88, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], false),
            (&[0x1f, 0x81, 0x01, 0x00], false),
            (&[0x30], false),
            (&[0x30, 0x82, 0x01], false),
            (&[0x03, 0x02, 0x07, 0x80], true),
            (&[0x03, 0x02, 0x08, 0x80], false),
            (&[0x03, 0x01, 0x00], true),
            (&[0x03, 0x01, 0x01], false),
            (&[0x03, 0x00], false),
        ] {
            assert_eq!(is_der(bytes, NESTED_MAX), is, "{bytes:02x?}");
        }
        let nested = (0..64).fold(vec![], |inner: Vec<u8>, _| [vec![0x30, inner.len() as u8], inner].concat());
        assert!(is_der(&nested, 64) && !is_der(&nested, NESTED_MAX));
    }

    #[test]
    fn names_are_written_and_read() {
        for text in ["alice@LAB.EXAMPLE", "cifs/server.lab.example@LAB.EXAMPLE"] {
            assert_eq!(text.parse::<Principal>().unwrap().to_string(), text);
        }
        for text in ["alice", "alice@", "@LAB", "cifs/@LAB", ""] {
            assert!(text.parse::<Principal>().is_err(), "{text}");
        }
        assert_eq!(
            Principal::cifs("Server.Lab.Example", "LAB.EXAMPLE"),
            "cifs/server.lab.example@LAB.EXAMPLE".parse().unwrap()
        );
        // a name from a ticket cannot paint a terminal
        let bad = Principal { name_type: 1, parts: vec!["a\x1b[31m".to_owned()], realm: "R".to_owned() };
        assert_eq!(bad.to_string(), "a\\x1b[31m@R");
        for n in [0u32, 1, 127, 128, 255, 256, 0x7fff_ffff, 0x8000_0000, u32::MAX] {
            assert_eq!(number(&integer(n)), Some(n.into()));
        }
        assert_eq!(number(&IntegerAsn1::from(vec![0xff, 0x73])), Some(-141));
    }

    proptest! {
        #[test]
        fn a_changed_request_is_refused_or_alices(at in 0..1_000usize, byte: u8) {
            let (_, mut token) = Initiator::begin(&credential(), now()).unwrap();
            let at = at % token.len();
            token[at] = byte;
            if let Some(Ok(accepted)) = keytab().accept(&token, now()) {
                prop_assert_eq!(accepted.client.to_string(), "alice@LAB.EXAMPLE");
            }
        }

        #[test]
        fn a_changed_answer_is_refused_or_has_the_key(at in 0..1_000usize, byte: u8) {
            let (client, token) = Initiator::begin(&credential(), now()).unwrap();
            let mut accepted = keytab().accept(&token, now()).unwrap().unwrap();
            let at = at % accepted.token.len();
            accepted.token[at] = byte;
            if let Ok(key) = client.finish(&accepted.token) {
                prop_assert_eq!(key, accepted.key);
            }
        }

        #[test]
        fn any_message_does(bytes in prop::collection::vec(any::<u8>(), 0..300), id in 1..4u8) {
            let blob = spnego::emit_init(&[spnego::KERBEROS], Some(&gss_token(id.into(), &bytes)));
            let (client, _) = Initiator::begin(&credential(), now()).unwrap();
            prop_assert!(client.finish(&blob).is_err());
            prop_assert!(!matches!(keytab().accept(&blob, now()), Some(Ok(_))));
        }
    }
}
