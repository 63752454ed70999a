//! The built-in peer: an SMB2 server over SMB Direct, \[MS-SMB2\] 3.3, sufficient for a client to mount, list, read and
//! write. Dialects 3.0 to 3.1.1; NTLMv2, Kerberos, guests and anonymous users; signing, encryption and RDMA transforms
//! as the client requests them; several channels per session; no leases; one share.

use super::client::{access, disposition, number};
use super::guard::{Limits, LogonDeadline, Range, Shared};
use super::protection::Protection;
use super::storage::{File, Stat, Storage, Times};
use super::transform::{self, Crypto};
use super::{ERROR_BODY, Writer, context, filetime, filetime_of, message, reply_header, unix_ns_of, utf16};
use crate::error::Error;
use crate::random::random;
use crate::stack::{Config, Event, SmbDirect, Stack};
use crate::transport::{Handle, Request as Incoming, Rights, Time};
use rdmascope_analyzer::credits::{Ledger, charge_of, payload_of};
use rdmascope_analyzer::keys::cipher;
use rdmascope_analyzer::keys::derive::PreauthHash;
use rdmascope_analyzer::keys::ntlm::{Authenticate, Challenge, emit_challenge, find};
use rdmascope_analyzer::keys::sign::Signer;
use rdmascope_analyzer::keys::{CipherId, Dialect, Key, SigningAlgorithm};
use rdmascope_dissector::field::Fields;
use rdmascope_dissector::text::escaped;
use rdmascope_dissector::trace::Off;
use rdmascope_dissector::wire::smb2::access::{file_attribute, rights};
use rdmascope_dissector::wire::smb2::header::{Header, Ids, flags};
use rdmascope_dissector::wire::smb2::ioctl::ControlCode;
use rdmascope_dissector::wire::smb2::negotiate::security_mode::{SIGNING_ENABLED, SIGNING_REQUIRED};
use rdmascope_dissector::wire::smb2::negotiate::{self, ContextType, RdmaTransformId, capabilities};
use rdmascope_dissector::wire::smb2::rdma_channel::{Channel as RdmaChannel, TransformType};
use rdmascope_dissector::wire::smb2::read_write::ReadResponseFixed;
use rdmascope_dissector::wire::smb2::session::flags::BINDING;
use rdmascope_dissector::wire::smb2::spnego::NegState;
use rdmascope_dissector::wire::smb2::{
    ChannelInfo, Command, FileId, Framing, NtStatus, create, file, read_write, spnego,
};
use std::collections::{HashMap, HashSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Bytes that one READ or WRITE may move.
const TRANSFER_MAX: u32 = 8 << 20;
const OPENS_MAX: usize = 4096;
/// Maximum number of WRITEs whose data is being fetched.
const FETCHES_MAX: usize = 1024;
/// Wrong passwords after which a connection ends.
const LOGONS_MAX: u32 = 3;
/// Maximum size of a message besides its data, in bytes: header, body and a transform.
const OVERHEAD: u32 = 1024;
/// Channels that a session may have had: their number is part of the nonces.
const CHANNELS_MAX: u16 = 32_768;
const TREE_IPC: u32 = 1;
const TREE_SHARE: u32 = 2;
/// Rights that change the share.
const ACCESS_WRITES: u32 = rights::GENERIC_ALL
    | rights::GENERIC_WRITE
    | rights::WRITE_DATA
    | rights::APPEND_DATA
    | rights::WRITE_EA
    | rights::DELETE;
/// SMB2_READFLAG_RESPONSE_RDMA_TRANSFORM
const READ_FLAG_TRANSFORM: u32 = <ReadResponseFixed as Fields>::Bits::rdma_transform.mask as u32;

/// A share of the peer, and its users.
#[derive(Debug)]
pub struct Share {
    /// Its name; clients may also call it by any case.
    pub name: String,
    /// Storage of its files.
    pub storage: Storage,
    /// True if clients may change them.
    pub writable: bool,
    /// Users that may have a session.
    pub users: Users,
    /// True if requests of a session with keys must be signed or encrypted.
    pub require_signing: bool,
    /// Limits for clients.
    pub limits: Limits,
    /// Called with a sentence for each logon, each refusal, and each end of a connection.
    pub log: fn(&str),
    /// Other addresses that clients may connect to: listed to them for further channels.
    pub addresses: Vec<IpAddr>,
    /// Connections are closed in order once this is true.
    pub stop: Arc<AtomicBool>,
    shared: Shared,
    sessions: Sessions,
    /// The server's name for itself, the same on every connection.
    guid: OnceLock<[u8; 16]>,
}

impl Share {
    /// With signing required, the usual limits, and no observer.
    pub fn new(name: &str, storage: Storage, writable: bool, users: Users) -> Self {
        Self {
            name: name.to_owned(),
            storage,
            writable,
            users,
            require_signing: true,
            limits: Limits::default(),
            log: |_| (),
            addresses: Vec::new(),
            stop: Arc::default(),
            shared: Shared::default(),
            sessions: Sessions::default(),
            guid: OnceLock::new(),
        }
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Addresses of this host at which clients may connect if a server listens on all of them: those of interfaces that are
/// up, except for loopback and link-local ones. Empty on systems other than Linux.
pub fn addresses_of_host() -> Vec<IpAddr> {
    #[cfg(target_os = "linux")]
    {
        use nix::net::if_::InterfaceFlags;
        let mut found: Vec<IpAddr> = Vec::new();
        for interface in nix::ifaddrs::getifaddrs().into_iter().flatten() {
            let ip = interface.address.and_then(|a| {
                a.as_sockaddr_in()
                    .map(|v4| IpAddr::V4(v4.ip()))
                    .or_else(|| a.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
            });
            let serves = |ip: &IpAddr| match ip {
                IpAddr::V4(ip) => !ip.is_link_local(),
                IpAddr::V6(ip) => !ip.is_unicast_link_local(),
            };
            let up = interface.flags.contains(InterfaceFlags::IFF_UP)
                && !interface.flags.contains(InterfaceFlags::IFF_LOOPBACK);
            found.extend(ip.filter(|ip| up && serves(ip) && !found.contains(ip)));
        }
        found
    }
    #[cfg(not(target_os = "linux"))]
    Vec::new()
}

/// Users that may have a session.
#[derive(Clone, Debug, Default)]
pub enum Users {
    /// Everybody, as a guest.
    #[default]
    Guests,
    /// Any user with the password of this NT hash.
    Password([u8; 16]),
    /// Any user with a ticket for one of these keys.
    #[cfg(feature = "kerberos")]
    Kerberos(crate::kerberos::keytab::Keytab),
}

/// A session as one connection has it: a channel of it, \[MS-SMB2\] 3.3.1.14.
#[derive(Debug)]
struct Session {
    common: Arc<Common>,
    hash: PreauthHash,
    challenge: Option<Vec<u8>>,
    /// Signs with the key of this channel, and encrypts with those of the session.
    protection: Protection,
    /// True if authentication succeeded on this connection.
    established: bool,
    /// True if it joins a session that another connection began.
    binding: bool,
}

impl Session {
    fn is_valid(&self) -> bool {
        self.established && self.common.valid.load(Ordering::Acquire)
    }

    /// The current signer. While a channel is being bound, that is the session's own key (3.3.4.1.1).
    fn signer(&self) -> Option<&Signer> {
        match (self.established, self.binding) {
            (true, _) => self.protection.signer(),
            (false, true) => self.common.protection.get().and_then(Protection::signer),
            (false, false) => None,
        }
    }
}

/// State shared by all channels of a session, 3.3.1.8.
#[derive(Debug)]
struct Common {
    id: u64,
    /// Results of the negotiation on its first connection.
    agreed: Agreed,
    /// The user, and the keys of the session. Without keys, no channel can be bound.
    user: OnceLock<String>,
    protection: OnceLock<Protection>,
    valid: AtomicBool,
    /// Channels there ever were: no two of them use a nonce twice.
    channels: AtomicU16,
    state: Mutex<State>,
}

/// Results of a negotiation. They must be the same on every channel of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Agreed {
    dialect: Option<Dialect>,
    client: [u8; 16],
    signing: Option<SigningAlgorithm>,
    cipher: Option<CipherId>,
}

#[derive(Debug, Default)]
struct State {
    /// Channels that are open.
    channels: u32,
    trees: HashSet<u32>,
    opens: HashMap<u64, Open>,
    last_open: u64,
}

impl Common {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The sessions of all connections to a share that have keys, by number: a channel may be bound to each.
#[derive(Debug, Default)]
struct Sessions(Mutex<HashMap<u64, Arc<Common>>>);

impl Sessions {
    fn all(&self) -> MutexGuard<'_, HashMap<u64, Arc<Common>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request, with its protection.
#[derive(Clone, Copy, Debug)]
struct Request<'a> {
    header: &'a Header,
    pdu: &'a [u8],
    /// Encrypted.
    sealed: bool,
}

#[derive(Debug)]
struct Open {
    path: String,
    file: Arc<File>,
    /// The number of the file, and ours.
    id: u64,
    owner: u64,
    folder: bool,
    may_write: bool,
    delete: bool,
    locked: bool,
    /// Names that are still to be listed.
    listing: Option<std::vec::IntoIter<String>>,
}

/// A WRITE whose data is being read from the client.
#[derive(Debug)]
struct Fetch {
    header: Header,
    sink: Handle,
    reads: HashSet<u64>,
    file: Arc<File>,
    offset: u64,
    /// Invalidated with the reply.
    key: Option<u32>,
    /// True if the request was encrypted.
    sealed: bool,
    /// Transform that the client applied to the data.
    crypto: Option<Crypto>,
}

/// The answer to a request.
struct Answer {
    status: NtStatus,
    body: Vec<u8>,
    invalidate: Option<u32>,
}

impl Answer {
    fn ok(body: Vec<u8>) -> Option<Self> {
        Some(Self { status: NtStatus::SUCCESS, body, invalidate: None })
    }

    fn status(status: NtStatus) -> Option<Self> {
        Some(Self { status, body: ERROR_BODY.to_vec(), invalidate: None })
    }
}

/// The server's side of one connection; it has no socket and no clock of its own.
#[derive(Debug)]
pub struct ServerConnection {
    share: Arc<Share>,
    guid: [u8; 16],
    agreed: Agreed,
    /// Of our NEGOTIATE response.
    capabilities: u32,
    transforms: Vec<RdmaTransformId>,
    hash: PreauthHash,
    session: Option<Session>,
    next_session: u64,
    fetches: Vec<Fetch>,
    ledger: Ledger,
    /// MessageId, credits and command of replies that are made and not sent: the client has these credits when it has
    /// the replies.
    grants: Vec<(u64, u16, u16)>,
    /// Bytes of replies of a compound that are made.
    replying: usize,
    /// Bytes that we hold, as last reported to the share.
    accounted: usize,
    wrong_passwords: u32,
    /// Session and file of the request before, in a compound.
    previous: Option<FileId>,
    /// The status of a failed CREATE in a compound, which related requests get too.
    failed: Option<NtStatus>,
    broken: bool,
    /// Our address, to which the client connected.
    address: Option<SocketAddr>,
    /// Address of the client.
    peer: Option<IpAddr>,
    /// The error that prevented a logon.
    refused: Option<Error>,
}

impl Users {
    /// The logon mechanisms that a client is offered.
    fn hint(&self) -> Vec<u8> {
        match self {
            Self::Guests | Self::Password(_) => spnego::emit_init(&[spnego::NTLMSSP], None),
            #[cfg(feature = "kerberos")]
            Self::Kerberos(_) => spnego::emit_init(&crate::kerberos::MECHANISMS, None),
        }
    }
}

impl ServerConnection {
    /// A connection that has just begun.
    ///
    /// # Errors
    /// If the system provides no random numbers.
    pub fn new(share: Arc<Share>) -> Result<Self, Error> {
        let guid = random()?;
        let guid = *share.guid.get_or_init(|| guid);
        Ok(Self {
            share,
            guid,
            agreed: Agreed::default(),
            capabilities: 0,
            transforms: Vec::new(),
            hash: PreauthHash::START,
            session: None,
            next_session: u64::from_le_bytes(random()?) >> 16 | 1,
            fetches: Vec::new(),
            ledger: Ledger::new(),
            grants: Vec::new(),
            replying: 0,
            accounted: 0,
            wrong_passwords: 0,
            previous: None,
            failed: None,
            broken: false,
            address: None,
            peer: None,
            refused: None,
        })
    }

    /// Sets our address, to which the client connected: it may query it.
    pub fn set_address(&mut self, address: SocketAddr) {
        self.address = Some(address);
    }

    /// Sets the client's address: wrong passwords are counted by address.
    pub fn set_peer(&mut self, peer: Option<SocketAddr>) {
        self.peer = peer.map(|peer| peer.ip());
    }

    /// True if any session exists.
    pub fn is_logged_on(&self) -> bool {
        self.session.as_ref().is_some_and(Session::is_valid)
    }

    /// Time before the client's next message is processed, after a wrong password from its address.
    pub fn penalty(&self) -> Duration {
        let wait = |peer| self.share.shared.logons.wait(peer, Instant::now());
        if self.is_logged_on() { Duration::ZERO } else { self.peer.map_or(Duration::ZERO, wait) }
    }

    fn log(&self, what: &str) {
        let peer = self.peer.map_or_else(|| "a client".to_owned(), |peer| peer.to_string());
        (self.share.log)(&format!("{peer}: {what}"));
    }

    /// Marks the connection to be closed, with the reason.
    fn end(&mut self, why: &str) {
        if !self.broken {
            self.log(why);
        }
        self.broken = true;
    }

    /// Bytes that we hold for the client: `unsent` ones, and those that we are reading from it.
    fn holds(&self, unsent: usize) -> usize {
        unsent + self.replying + self.fetches.iter().map(|fetch| fetch.sink.length as usize).sum::<usize>()
    }

    /// Tells the share how many bytes we hold, including `unsent`.
    pub fn account(&mut self, unsent: usize) {
        let now = self.holds(unsent);
        let bytes = &self.share.shared.bytes;
        if now >= self.accounted {
            bytes.fetch_add(now - self.accounted, Ordering::Relaxed);
        } else {
            bytes.fetch_sub(self.accounted - now, Ordering::Relaxed);
        }
        self.accounted = now;
    }

    /// True if there is room for `more` bytes.
    fn has_room(&self, stack: &Stack, more: usize) -> bool {
        let (limits, holds) = (&self.share.limits, self.holds(stack.unsent()));
        let others = self.share.shared.bytes.load(Ordering::Relaxed).saturating_sub(self.accounted);
        holds + more <= limits.connection_bytes && others + holds + more <= limits.total_bytes
    }

    /// True if the client sent something that cannot be answered: the connection must be closed.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Takes an SMB2 message, and answers on `stack`.
    pub fn handle_message(&mut self, now: Time, bytes: &[u8], stack: &mut Stack) {
        let mut plain = Vec::new();
        let (bytes, sealed) = match Framing::of(bytes) {
            Some(Framing::Plain) => (bytes, false),
            // 3.3.5.2.1.1: a message that cannot be decrypted ends the connection
            Some(Framing::Encrypted) if self.open(bytes, &mut plain) => (&plain[..], true),
            _ => {
                self.broken = true;
                return;
            }
        };
        // whether it is signed, and whether the session's keys depend on it
        let mut replies: Vec<(Vec<u8>, bool, bool)> = Vec::new();
        let (mut rest, mut invalidate) = (bytes, None);
        (self.previous, self.failed) = (None, None);
        while !rest.is_empty() && !self.broken {
            let Ok((_, header)) = Header::parse(rest, &mut Off) else {
                self.broken = true;
                break;
            };
            let next = header.next_command as usize;
            if header.is_response() || next != 0 && (next < Header::LEN || next > rest.len() || !next.is_multiple_of(8))
            {
                self.broken = true;
                break;
            }
            let pdu = if next == 0 { rest } else { &rest[..next] };
            rest = if next == 0 { &[] } else { &rest[next..] };
            if header.command == Command::CANCEL {
                continue;
            }
            // 3.3.5.2.3: a MessageId that was not granted, or used before, ends the connection
            if let Err(fault) = self.ledger.request(header.message_id, header.credit_charge, header.command.0) {
                self.end(&format!("connection closed: {fault}"));
                break;
            }
            // 3.3.5.2.7.2: there is no file to work on
            let answer = match self.failed {
                Some(status) if header.is_related() => Answer::status(status),
                _ => self.answer(Request { header: &header, pdu, sealed }, stack),
            };
            let Some(answer) = answer else { continue };
            if header.command == Command::CREATE {
                self.failed = (answer.status != NtStatus::SUCCESS).then_some(answer.status);
            }
            invalidate = invalidate.or(answer.invalidate);
            let reply = self.reply(&header, answer.status, &answer.body);
            if header.command == Command::NEGOTIATE {
                self.hash.add(pdu);
                self.hash.add(&reply);
            }
            let ends = header.command == Command::LOGOFF;
            let sign = !sealed
                && self.session.as_ref().is_some_and(|s| s.signer().is_some() && (s.is_valid() || s.binding || ends))
                && (header.is_signed() || header.command == Command::SESSION_SETUP);
            self.replying += reply.len();
            let hashed =
                header.command == Command::SESSION_SETUP && answer.status == NtStatus::MORE_PROCESSING_REQUIRED;
            replies.push((reply, sign, hashed));
        }
        self.replying = 0;
        let mut out = Vec::new();
        let count = replies.len();
        for (n, (mut reply, sign, hashed)) in replies.into_iter().enumerate() {
            if n + 1 < count {
                reply.resize(reply.len().next_multiple_of(8), 0);
                let next = reply.len() as u32;
                reply[20..24].copy_from_slice(&next.to_le_bytes());
            }
            self.sign(&mut reply, sign);
            // as on the wire: with its signature, if a channel is bound
            if let (true, Some(session)) = (hashed, &mut self.session) {
                session.hash.add(&reply);
            }
            out.extend_from_slice(&reply);
        }
        self.transmit(now, out, sealed, invalidate, stack);
        self.account(stack.unsent());
    }

    /// Decrypts a message of the client into `plain`.
    fn open(&self, bytes: &[u8], plain: &mut Vec<u8>) -> bool {
        let session = self.session.as_ref().filter(|s| s.is_valid() && cipher::session_id(bytes) == Some(s.common.id));
        session.is_some_and(|s| s.protection.decrypt(bytes, plain))
    }

    /// One of our RDMA Reads is complete.
    pub fn handle_read_done(&mut self, now: Time, id: u64, stack: &mut Stack) {
        let Some(at) = self.fetches.iter_mut().position(|f| f.reads.remove(&id) && f.reads.is_empty()) else { return };
        let fetch = self.fetches.swap_remove(at);
        let mut data = stack.deregister(fetch.sink.key).unwrap_or_default();
        let (status, body) = match self
            .undo(fetch.crypto.as_ref(), &mut data)
            .map(|()| self.share.storage.write(&fetch.file, fetch.offset, &data))
        {
            Ok(Ok(())) => (NtStatus::SUCCESS, write_body(data.len() as u32)),
            Ok(Err(e)) => (status_of(&e), ERROR_BODY.to_vec()),
            Err(status) => (status, ERROR_BODY.to_vec()),
        };
        let mut reply = self.reply(&fetch.header, status, &body);
        self.sign(&mut reply, fetch.header.is_signed() && !fetch.sealed);
        self.transmit(now, reply, fetch.sealed, fetch.key, stack);
        self.account(stack.unsent());
    }

    /// Undoes the client's transform of the data of a WRITE. Returns the status if it is not authentic.
    fn undo(&self, crypto: Option<&Crypto>, data: &mut [u8]) -> Result<(), NtStatus> {
        let Some(crypto) = crypto else { return Ok(()) };
        match self.session.as_ref().is_some_and(|s| s.protection.open_data(crypto, data)) {
            true => Ok(()),
            false if crypto.kind == TransformType::SIGNING => Err(NtStatus::INVALID_SIGNATURE),
            false => Err(NtStatus::DECRYPTION_FAILED),
        }
    }

    /// Applies the transform to the data of a READ, if the request's protection and the negotiation require one.
    fn protect(&mut self, request: Request<'_>, data: &mut [u8]) -> Result<Option<Crypto>, ()> {
        let Some(session) = &mut self.session else { return Ok(None) };
        let protection = &mut session.protection;
        let crypto =
            if request.sealed && protection.has_ciphers() && self.transforms.contains(&RdmaTransformId::ENCRYPTION) {
                protection.seal_data(data)
            } else if !request.sealed
                && request.header.is_signed()
                && protection.signer().is_some()
                && self.transforms.contains(&RdmaTransformId::SIGNING)
            {
                protection.sign_data(data)
            } else {
                return Ok(None);
            };
        crypto.ok_or(()).map(Some)
    }

    fn transmit(&mut self, now: Time, mut bytes: Vec<u8>, seal: bool, invalidate: Option<u32>, stack: &mut Stack) {
        for (id, grant, command) in self.grants.drain(..) {
            // a reply always belongs to a request, so this cannot fail
            let _ = self.ledger.reply(id, grant, command, false);
        }
        if let (true, false, Some(session)) = (seal, bytes.is_empty(), &mut self.session)
            && session.protection.has_ciphers()
        {
            let Some(sealed) = session.protection.encrypt(session.common.id, &bytes) else {
                self.broken = true;
                return;
            };
            bytes = sealed;
        }
        if !bytes.is_empty() && stack.send(now, bytes, invalidate).is_err() {
            self.broken = true;
        }
    }

    fn sign(&self, reply: &mut [u8], wanted: bool) {
        if let (true, Some(signer)) = (wanted, self.session.as_ref().and_then(Session::signer)) {
            reply[16] |= flags::SIGNED as u8;
            signer.sign(reply);
        }
    }

    fn reply(&mut self, request: &Header, status: NtStatus, body: &[u8]) -> Vec<u8> {
        let granting: u32 = self.grants.iter().map(|(_, grant, _)| u32::from(*grant)).sum();
        let max = self.share.limits.credits.saturating_sub(granting);
        let grant = self.ledger.grant(request.credits, request.credit_charge, max);
        self.grants.push((request.message_id, grant, request.command.0));
        let mut header = Header { credits: grant, ..reply_header(request, status) };
        if (request.command == Command::SESSION_SETUP && request.session_id == 0 || request.is_related())
            && let Some(session) = &self.session
        {
            header.session_id = session.common.id;
        }
        if let (Command::TREE_CONNECT, NtStatus::SUCCESS) = (request.command, status) {
            // passed on in the first byte of the reserved word of its body; see tree_connect
            header.ids =
                Ids::Sync { process_id: 0xfeff, tree_id: if body.get(2) == Some(&2) { TREE_IPC } else { TREE_SHARE } };
        }
        message(&header, body)
    }

    fn answer(&mut self, request: Request<'_>, stack: &mut Stack) -> Option<Answer> {
        let Request { header, pdu, sealed } = request;
        match header.command {
            Command::NEGOTIATE => return self.negotiate(pdu, stack),
            _ if self.agreed.dialect.is_none() => {
                self.broken = true;
                return None;
            }
            Command::SESSION_SETUP => return self.session_setup(header, pdu),
            Command::ECHO => return Answer::ok(vec![4, 0, 0, 0]),
            _ => {}
        }
        let Some(session) =
            self.session.as_ref().filter(|s| s.is_valid() && (s.common.id == header.session_id || header.is_related()))
        else {
            return Answer::status(NtStatus::USER_SESSION_DELETED);
        };
        let common = session.common.clone();
        if let Some(signer) = session.protection.signer().filter(|_| !sealed) {
            match header.is_signed() {
                true if signer.verify(pdu) => {}
                // 3.3.5.7: in dialect 3.1.1 the signed TREE_CONNECT proves that nobody changed the negotiation
                false if header.command == Command::TREE_CONNECT && self.agreed.dialect == Some(Dialect::SMB_3_1_1) => {
                    self.end("connection closed: its TREE_CONNECT is not signed");
                    return None;
                }
                false if !self.share.require_signing => {}
                _ => return Answer::status(NtStatus::ACCESS_DENIED),
            }
        }
        // 3.3.5.2.5
        if charge_of(payload_of(header.command, pdu)) > header.credit_charge.max(1) {
            return Answer::status(NtStatus::INVALID_PARAMETER);
        }
        match header.command {
            Command::LOGOFF => {
                self.share.end_session(&common);
                return Answer::ok(vec![4, 0, 0, 0]);
            }
            Command::TREE_CONNECT => return self.tree_connect(&common, pdu),
            _ => {}
        }
        let tree = header.tree_id().unwrap_or(0);
        if !common.state().trees.contains(&tree) && !header.is_related() {
            return Answer::status(NtStatus::NETWORK_NAME_DELETED);
        }
        match header.command {
            Command::TREE_DISCONNECT => {
                common.state().trees.remove(&tree);
                Answer::ok(vec![4, 0, 0, 0])
            }
            Command::IOCTL => self.ioctl(pdu),
            _ if tree == TREE_IPC => Answer::status(NtStatus::ACCESS_DENIED),
            Command::CREATE => self.create(pdu),
            Command::CLOSE => self.close(pdu),
            Command::FLUSH => self.with_open(pdu, 8, |_, open| match open.file.sync() {
                Ok(()) => Answer::ok(vec![4, 0, 0, 0]),
                Err(e) => Answer::status(status_of(&e)),
            }),
            Command::LOCK => self.lock(pdu),
            Command::READ | Command::WRITE => {
                let answer = if header.command == Command::READ {
                    self.read(request, stack)
                } else {
                    self.write(request, stack)
                };
                // an error reply invalidates as a success does (3.3.5.12, 3.3.5.13)
                answer.map(|a| {
                    if a.status == NtStatus::SUCCESS {
                        a
                    } else {
                        Answer { invalidate: self.asked_key(header, pdu), ..a }
                    }
                })
            }
            Command::QUERY_DIRECTORY => self.query_directory(pdu),
            Command::QUERY_INFO => self.query_info(pdu),
            Command::SET_INFO => self.set_info(pdu),
            _ => Answer::status(NtStatus::NOT_SUPPORTED),
        }
    }

    fn negotiate(&mut self, pdu: &[u8], stack: &Stack) -> Option<Answer> {
        let Ok((_, request)) = negotiate::request(pdu, &mut Off) else {
            return Answer::status(NtStatus::INVALID_PARAMETER);
        };
        if self.agreed.dialect.is_some() {
            // a second one ends the connection, 3.3.5.3.1
            self.broken = true;
            return None;
        }
        let known = [Dialect::SMB_3_1_1, Dialect::SMB_3_0_2, Dialect::SMB_3_0];
        let Some(dialect) = known.into_iter().find(|d| request.dialects().any(|offered| offered.0 == d.0)) else {
            return Answer::status(NtStatus::NOT_SUPPORTED);
        };
        let mut contexts = Vec::new();
        let mut count = 0;
        if dialect == Dialect::SMB_3_1_1 {
            let salt = random::<32>().unwrap_or([0; 32]);
            context(&mut contexts, 1, &Writer::default().u16(1).u16(32).u16(1).bytes(&salt).0);
            count = 1;
            let ours = [SigningAlgorithm::AES_GMAC, SigningAlgorithm::AES_CMAC];
            let offered = request.contexts.filter(|c| c.context_type == ContextType::SIGNING);
            if let Some(chosen) = offered.flat_map(|c| c.ids()).map(SigningAlgorithm).find(|id| ours.contains(id)) {
                context(&mut contexts, 8, &Writer::default().u16(1).u16(chosen.0).0);
                self.agreed.signing = Some(chosen);
                count += 1;
            }
            let offered = request.contexts.filter(|c| c.context_type == ContextType::ENCRYPTION);
            if let Some(chosen) = offered.flat_map(|c| c.ids()).map(CipherId).find(|id| CipherId::ALL.contains(id)) {
                context(&mut contexts, 2, &Writer::default().u16(1).u16(chosen.0).0);
                self.agreed.cipher = Some(chosen);
                count += 1;
            }
            let offered = request.contexts.filter(|c| c.context_type == ContextType::RDMA_TRANSFORM);
            for id in offered.flat_map(|c| c.ids()).map(RdmaTransformId) {
                let known = matches!(id, RdmaTransformId::ENCRYPTION | RdmaTransformId::SIGNING);
                if known && !self.transforms.contains(&id) {
                    self.transforms.push(id);
                }
            }
            if !self.transforms.is_empty() {
                let list = Writer::default().u16(self.transforms.len() as u16).bytes(&[0; 6]);
                context(&mut contexts, 7, &self.transforms.iter().fold(list, |list, id| list.u16(id.0)).0);
                count += 1;
            }
        } else if request.fixed.encryption() {
            self.agreed.cipher = Some(CipherId::AES_128_CCM);
        }
        (self.agreed.dialect, self.agreed.client) = (Some(dialect), request.fixed.client_guid);
        // 3.1.1 negotiates encryption by a context
        let encryption = self.agreed.cipher.is_some() && dialect != Dialect::SMB_3_1_1;
        self.capabilities = capabilities::LARGE_MTU
            | if encryption { capabilities::ENCRYPTION } else { 0 }
            | if request.fixed.multi_channel() && self.share.has_keys() { capabilities::MULTI_CHANNEL } else { 0 };
        let token = self.share.users.hint();
        let contexts_at = (128 + token.len()).next_multiple_of(8);
        let mut body = Vec::new();
        negotiate::NegotiateResponseFixed {
            structure_size: 65,
            security_mode: self.share.security_mode(),
            security_mode_high: [0],
            dialect: dialect.0,
            context_count: count,
            server_guid: self.guid,
            capabilities: self.capabilities,
            max_transact_size: 1 << 20,
            max_read_size: TRANSFER_MAX,
            max_write_size: self.write_max(stack),
            system_time: filetime(),
            server_start_time: 0,
            security_buffer_offset: 128,
            security_buffer_length: token.len() as u16,
            context_offset: if count > 0 { contexts_at as u32 } else { 0 },
        }
        .emit(&mut body);
        body.extend_from_slice(&token);
        if count > 0 {
            body.resize(contexts_at - Header::LEN, 0);
            body.extend_from_slice(&contexts);
        }
        Answer::ok(body)
    }

    /// Maximum size of a WRITE, in bytes. Without an RDMA transform for encryption, encrypted data comes in the
    /// message, which is reassembled from fragments: then a client must not send more than we can reassemble.
    fn write_max(&self, stack: &Stack) -> u32 {
        let inline = self.agreed.cipher.is_some() && !self.transforms.contains(&RdmaTransformId::ENCRYPTION);
        let fragmented = stack.smbd().and_then(|s| s.link().side(s.end()).max_fragmented_size).filter(|_| inline);
        fragmented.map_or(TRANSFER_MAX, |bytes| bytes.saturating_sub(OVERHEAD).min(TRANSFER_MAX))
    }

    /// A logon failed: it is reported, and costs time.
    fn refuse_logon(&mut self, user: &str, why: &str) -> Option<Answer> {
        self.log(&format!("logon of \"{}\" refused: {why}", escaped(user)));
        self.wrong_passwords += 1;
        if let Some(peer) = self.peer {
            self.share.shared.logons.failed(peer, Instant::now());
        }
        if self.wrong_passwords >= LOGONS_MAX {
            self.end("connection closed: too many wrong passwords");
        }
        Answer::status(NtStatus::LOGON_FAILURE)
    }

    fn session_setup(&mut self, header: &Header, pdu: &[u8]) -> Option<Answer> {
        let (at, length) = (number(pdu, 76, 2) as usize, number(pdu, 78, 2) as usize);
        let Some(token) = pdu.get(at..at + length) else { return Answer::status(NtStatus::INVALID_PARAMETER) };
        let binds = number(pdu, 66, 1) & u64::from(BINDING) != 0;
        let first = match binds.then(|| self.bindable(header, pdu)) {
            Some(Err(status)) => {
                self.log(&format!("channel refused: {status}"));
                return Answer::status(status);
            }
            Some(Ok(common)) => Some(common),
            None => None,
        };
        let answer = |status, flags: u16, token: &[u8]| {
            let body = Writer::default().u16(9).u16(flags).u16(72).u16(token.len() as u16).bytes(token).0;
            Some(Answer { status, body, invalidate: None })
        };
        #[cfg(feature = "kerberos")]
        if let Users::Kerberos(keytab) = &self.share.users {
            let accepted = match keytab.accept(token, std::time::SystemTime::now()) {
                Some(Ok(accepted)) => accepted,
                // the reason for which a ticket is refused is only for the operator
                Some(Err(e)) => {
                    self.refused = Some(e.into());
                    return Answer::status(NtStatus::LOGON_FAILURE);
                }
                None => return Answer::status(NtStatus::LOGON_FAILURE),
            };
            self.begin_session(pdu, None, first);
            if !self.establish(Some(&accepted.key), &accepted.client.to_string()) {
                return Answer::status(NtStatus::ACCESS_DENIED);
            }
            return answer(NtStatus::SUCCESS, 0, &accepted.token);
        }
        // Linux sends NTLM without SPNEGO, and gets the same back
        let bare = token.starts_with(b"NTLMSSP\0");
        match find(token) {
            Some((1, _)) => {
                let Ok(challenge) = random::<8>() else { return Answer::status(NtStatus::INSUFFICIENT_RESOURCES) };
                let challenge = emit_challenge(challenge, "RDMASCOPE", filetime());
                let token = if bare {
                    challenge.clone()
                } else {
                    spnego::emit_response(Some(NegState::AcceptIncomplete), Some(spnego::NTLMSSP), Some(&challenge))
                };
                self.begin_session(pdu, Some(challenge), first);
                answer(NtStatus::MORE_PROCESSING_REQUIRED, 0, &token)
            }
            Some((3, message)) => {
                let Some(session) = self
                    .session
                    .as_mut()
                    .filter(|s| s.common.id == header.session_id && s.binding == binds && !s.established)
                else {
                    return Answer::status(NtStatus::USER_SESSION_DELETED);
                };
                let (Some(challenge), Some(authenticate)) =
                    (session.challenge.take().and_then(|c| Challenge::parse(&c)), Authenticate::parse(message))
                else {
                    return Answer::status(NtStatus::INVALID_PARAMETER);
                };
                session.hash.add(pdu);
                let user = text(authenticate.user);
                let key: Option<Key> = match self.share.users {
                    Users::Password(hash) if !authenticate.is_anonymous() => {
                        match authenticate.session_key(&challenge, &hash) {
                            Ok(key) => Some(key),
                            Err(why) => return self.refuse_logon(&user, &why.to_string()),
                        }
                    }
                    Users::Guests => None,
                    // an anonymous logon is not a password guess
                    _ => {
                        self.log("logon without a user refused");
                        return Answer::status(NtStatus::LOGON_FAILURE);
                    }
                };
                if let Some(peer) = self.peer {
                    self.share.shared.logons.succeeded(peer);
                }
                if !self.establish(key.as_ref(), &user) {
                    self.log(&format!("channel refused: the session is not one of \"{}\"", escaped(&user)));
                    return Answer::status(NtStatus::ACCESS_DENIED);
                }
                self.log(&match &key {
                    Some(_) if binds => format!("\"{}\" bound another channel to the session", escaped(&user)),
                    Some(_) => format!("\"{}\" logged on", escaped(&user)),
                    None => "a guest logged on".to_owned(),
                });
                // anonymous, or a guest
                let flags = if key.is_some() { 0 } else { if authenticate.is_anonymous() { 2 } else { 1 } };
                let token =
                    if bare { Vec::new() } else { spnego::emit_response(Some(NegState::AcceptCompleted), None, None) };
                answer(NtStatus::SUCCESS, flags, &token)
            }
            _ => Answer::status(NtStatus::INVALID_PARAMETER),
        }
    }

    /// The session that a connection may join as another channel (3.3.5.5.2), or why it may not.
    fn bindable(&self, header: &Header, pdu: &[u8]) -> Result<Arc<Common>, NtStatus> {
        // a session is bound to a connection once; the second request of a binding comes here too
        if self.session.as_ref().is_some_and(|s| s.established || !s.binding) {
            return Err(NtStatus::REQUEST_NOT_ACCEPTED);
        }
        if !header.is_signed() {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        let Some(common) = self.share.sessions.all().get(&header.session_id).cloned() else {
            return Err(NtStatus::USER_SESSION_DELETED);
        };
        if common.agreed.dialect != self.agreed.dialect {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        if common.agreed.client != self.agreed.client {
            return Err(NtStatus::USER_SESSION_DELETED);
        }
        if common.agreed.signing != self.agreed.signing {
            return Err(NtStatus::REQUEST_OUT_OF_SEQUENCE);
        }
        if common.agreed.cipher != self.agreed.cipher {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        match common.protection.get().and_then(Protection::signer) {
            Some(signer) if signer.verify(pdu) => Ok(common),
            _ => Err(NtStatus::ACCESS_DENIED),
        }
    }

    /// A session that begins with this request, in place of the one before; or another channel of `first`.
    fn begin_session(&mut self, pdu: &[u8], challenge: Option<Vec<u8>>, first: Option<Arc<Common>>) {
        let mut hash = self.hash;
        hash.add(pdu);
        self.leave();
        let binding = first.is_some();
        let common = first.unwrap_or_else(|| {
            let id = self.next_session;
            self.next_session += 1;
            Arc::new(Common {
                id,
                agreed: self.agreed,
                user: OnceLock::new(),
                protection: OnceLock::new(),
                valid: AtomicBool::new(true),
                channels: AtomicU16::new(0),
                state: Mutex::default(),
            })
        });
        self.session =
            Some(Session { common, hash, challenge, protection: Protection::default(), established: false, binding });
    }

    /// Called when authentication succeeded, with this key; a guest has none. False if the user of a channel is not
    /// that of the session.
    fn establish(&mut self, key: Option<&Key>, user: &str) -> bool {
        let (share, agreed) = (self.share.clone(), self.agreed);
        let Some(session) = &mut self.session else { return false };
        let dialect = agreed.dialect.unwrap_or(Dialect::SMB_3_0);
        let own = key.map(|key| Protection::new(true, dialect, agreed.cipher, agreed.signing, key, &session.hash));
        let common = &session.common;
        let number = common.channels.fetch_add(1, Ordering::Relaxed);
        session.protection = match (session.binding, own) {
            (false, None) => Protection::default(),
            (false, Some(own)) => {
                let (_, _) = (common.user.set(user.to_owned()), common.protection.set(own.clone()));
                share.sessions.all().insert(common.id, common.clone());
                own
            }
            // signed with a key of its own, encrypted with those of the session (3.3.5.5.3)
            (true, Some(own)) if common.user.get().is_some_and(|first| first == user) && number < CHANNELS_MAX => {
                own.of_channel(common.protection.get(), number)
            }
            (true, _) => {
                self.session = None;
                return false;
            }
        };
        common.state().channels += 1;
        session.established = true;
        true
    }

    fn tree_connect(&self, common: &Common, pdu: &[u8]) -> Option<Answer> {
        let (at, length) = (number(pdu, 68, 2) as usize, number(pdu, 70, 2) as usize);
        let path = text(pdu.get(at..at + length).unwrap_or_default());
        let name = path.rsplit('\\').next().unwrap_or_default();
        let (kind, tree) = if name.eq_ignore_ascii_case("IPC$") {
            (2, TREE_IPC)
        } else if name.eq_ignore_ascii_case(&self.share.name) {
            (1, TREE_SHARE)
        } else {
            return Answer::status(NtStatus::BAD_NETWORK_NAME);
        };
        common.state().trees.insert(tree);
        let may = if self.share.writable {
            rights::FILE_ALL_ACCESS
        } else {
            rights::FILE_GENERIC_READ | rights::FILE_GENERIC_EXECUTE
        };
        Answer::ok(Writer::default().u16(16).u8(kind).u8(0).u32(0).u32(0).u32(may).0)
    }

    fn ioctl(&mut self, pdu: &[u8]) -> Option<Answer> {
        let code = ControlCode(number(pdu, 68, 4) as u32);
        let answer = |file: &[u8], output: &[u8]| {
            let body = Writer::default()
                .u16(49)
                .u16(0)
                .u32(code.0)
                .bytes(file)
                .u32(112)
                .u32(0)
                .u32(112)
                .u32(output.len() as u32);
            Answer::ok(body.u32(0).u32(0).bytes(output).0)
        };
        match code {
            ControlCode::VALIDATE_NEGOTIATE_INFO => {}
            ControlCode::QUERY_NETWORK_INTERFACE_INFO => {
                return answer(&[0xff; 16], &self.interfaces());
            }
            ControlCode::QUERY_ALLOCATED_RANGES => {
                let at = number(pdu, 88, 4) as usize;
                let (from, length) = (number(pdu, at, 8), number(pdu, at.saturating_add(8), 8));
                return self.with_open(pdu, 8, |_, open| match open.file.stat() {
                    Ok(stat) => {
                        let inside = stat.length.saturating_sub(from).min(length);
                        let range = Writer::default().u64(from).u64(inside).0;
                        answer(&pdu[72..88], if inside > 0 { &range } else { &[] })
                    }
                    Err(e) => Answer::status(status_of(&e)),
                });
            }
            _ => return Answer::status(NtStatus::NOT_SUPPORTED),
        }
        let output = Writer::default().u32(self.capabilities).bytes(&self.guid).u16(self.share.security_mode().into());
        answer(&[0xff; 16], &output.u16(self.agreed.dialect.map_or(0, |d| d.0)).0)
    }

    /// NETWORK_INTERFACE_INFO, \[MS-SMB2\] 2.2.32.5, of the address to which the client connected, followed by those of
    /// our other addresses.
    fn interfaces(&self) -> Vec<u8> {
        const RSS_CAPABLE: u32 = 1;
        const RDMA_CAPABLE: u32 = 2;
        const LINK_SPEED: u64 = 10_000_000_000;
        const LEN: usize = 152;
        // several connections to one address serve a client as well as those to several
        let capability =
            RDMA_CAPABLE | if self.capabilities & capabilities::MULTI_CHANNEL != 0 { RSS_CAPABLE } else { 0 };
        // over a card our address is not known
        let Some(found) = self.address.map(|address| address.ip()) else { return Vec::new() };
        let others = self.share.addresses.iter().filter(|other| **other != found && other.is_ipv4() == found.is_ipv4());
        let all: Vec<IpAddr> = std::iter::once(found).chain(others.copied()).collect();
        let mut out = Vec::with_capacity(all.len() * LEN);
        for (n, ip) in all.iter().enumerate() {
            let next = if n + 1 < all.len() { LEN as u32 } else { 0 };
            let head = Writer::default().u32(next).u32(n as u32 + 1).u32(capability).u32(0).u64(LINK_SPEED);
            let one = match ip {
                IpAddr::V4(ip) => head.u16(2).u16(0).bytes(&ip.octets()),
                IpAddr::V6(ip) => head.u16(0x17).u16(0).u32(0).bytes(&ip.octets()),
            };
            out.extend_from_slice(&one.0);
            // a SOCKADDR_STORAGE has 128 bytes
            out.resize((n + 1) * LEN, 0);
        }
        out
    }

    fn create(&mut self, pdu: &[u8]) -> Option<Answer> {
        let Ok((_, request)) = create::request(pdu, &mut Off) else {
            return Answer::status(NtStatus::INVALID_PARAMETER);
        };
        let fixed = request.fixed;
        let path = request.name().chars().collect::<String>().replace('\\', "/");
        let path = path.trim_matches('/').to_owned();
        let (want_folder, want_file) = (fixed.directory_file(), fixed.non_directory_file());
        let changes = fixed.desired_access & ACCESS_WRITES != 0;
        let tries = fixed.maximum_allowed() && self.share.writable;
        let delete = fixed.delete_on_close();
        let Some(common) = self.session.as_ref().map(|s| s.common.clone()) else {
            return Answer::status(NtStatus::USER_SESSION_DELETED);
        };
        if common.state().opens.len() >= OPENS_MAX {
            return Answer::status(NtStatus::INSUFFICIENT_RESOURCES);
        }
        let share = self.share.clone();
        let storage = &share.storage;
        let (file, stat, action, may_write) = match (storage.stat(&path), fixed.create_disposition) {
            (Ok(_), disposition::CREATE) => return Answer::status(NtStatus::OBJECT_NAME_COLLISION),
            (Ok(stat), 0..=disposition::OVERWRITE_IF) => {
                if want_folder && !stat.folder {
                    return Answer::status(NtStatus::NOT_A_DIRECTORY);
                }
                if want_file && stat.folder {
                    return Answer::status(NtStatus::FILE_IS_A_DIRECTORY);
                }
                let empties = !matches!(fixed.create_disposition, disposition::OPEN | disposition::OPEN_IF);
                if (changes || delete || empties) && !share.writable
                    || empties && stat.folder
                    || delete && path.is_empty()
                {
                    return Answer::status(NtStatus::ACCESS_DENIED);
                }
                let write = (changes || tries || empties) && !stat.folder;
                let (file, write) = match storage.open(&path, write) {
                    // as much as is allowed, which is to read
                    Err(e) if e.kind() == io::ErrorKind::PermissionDenied && write && !changes && !empties => {
                        (storage.open(&path, false), false)
                    }
                    opened => (opened, write),
                };
                let file = match file
                    .and_then(|file| if empties { storage.set_length(&file, 0).map(|()| file) } else { Ok(file) })
                {
                    Ok(file) => file,
                    Err(e) => return Answer::status(status_of(&e)),
                };
                if delete && stat.folder && storage.list(&file).is_ok_and(|names| !names.is_empty()) {
                    return Answer::status(NtStatus::DIRECTORY_NOT_EMPTY);
                }
                let action = match fixed.create_disposition {
                    0 => 0,
                    _ if empties => 3,
                    _ => 1,
                };
                (file, if empties { Stat { length: 0, ..stat } } else { stat }, action, write)
            }
            (Err(e), 0 | disposition::CREATE | disposition::OPEN_IF | disposition::OVERWRITE_IF)
                if e.kind() == io::ErrorKind::NotFound =>
            {
                if !share.writable {
                    return Answer::status(NtStatus::ACCESS_DENIED);
                }
                match storage.create(&path, want_folder).and_then(|file| file.stat().map(|stat| (file, stat))) {
                    Ok((file, stat)) => (file, stat, 2, (changes || tries) && !stat.folder),
                    Err(e) => return Answer::status(status_of(&e)),
                }
            }
            (Err(e), _) => return Answer::status(status_of(&e)),
            _ => return Answer::status(NtStatus::INVALID_PARAMETER),
        };
        let open = Open {
            path,
            file: Arc::new(file),
            id: stat.id,
            owner: share.shared.new_owner(),
            folder: stat.folder,
            may_write,
            delete,
            locked: false,
            listing: None,
        };
        let id = {
            let mut state = common.state();
            state.last_open += 1;
            let id = state.last_open;
            state.opens.insert(id, open);
            id
        };
        let mut file_id = [0; 16];
        file_id[..8].copy_from_slice(&id.to_le_bytes());
        file_id[8..].copy_from_slice(&id.to_le_bytes());
        self.previous = Some(FileId(file_id));
        let time = filetime_of(stat.modified);
        let mut body = Vec::new();
        create::CreateResponseFixed {
            structure_size: 89,
            oplock_level: 0,
            flags: 0,
            create_action: action,
            creation_time: time,
            last_access_time: time,
            last_write_time: time,
            change_time: time,
            allocation_size: stat.length.next_multiple_of(4096),
            end_of_file: stat.length,
            file_attributes: attributes(&stat),
            reserved: [0; 4],
            file_id,
            contexts_offset: 0,
            contexts_length: 0,
        }
        .emit(&mut body);
        Answer::ok(body)
    }

    /// The open that the file id at `at` of the body means.
    fn open_id(&mut self, state: &State, pdu: &[u8], at: usize) -> Option<u64> {
        let id = FileId(*pdu.get(Header::LEN + at..)?.first_chunk()?);
        let id = if id == FileId::PREVIOUS { self.previous? } else { id };
        self.previous = Some(id);
        (id.persistent() == id.volatile() && state.opens.contains_key(&id.volatile())).then_some(id.volatile())
    }

    fn with_open(
        &mut self,
        pdu: &[u8],
        at: usize,
        then: impl FnOnce(&Share, &mut Open) -> Option<Answer>,
    ) -> Option<Answer> {
        let Some(common) = self.session.as_ref().map(|s| s.common.clone()) else {
            return Answer::status(NtStatus::FILE_CLOSED);
        };
        let mut state = common.state();
        match self.open_id(&state, pdu, at).and_then(|id| state.opens.get_mut(&id)) {
            Some(open) => then(&self.share, open),
            None => Answer::status(NtStatus::FILE_CLOSED),
        }
    }

    fn close(&mut self, pdu: &[u8]) -> Option<Answer> {
        let Some(common) = self.session.as_ref().map(|s| s.common.clone()) else {
            return Answer::status(NtStatus::FILE_CLOSED);
        };
        let open = {
            let mut state = common.state();
            self.open_id(&state, pdu, 8).and_then(|id| state.opens.remove(&id))
        };
        let Some(open) = open else { return Answer::status(NtStatus::FILE_CLOSED) };
        let stat = open.file.stat().ok();
        self.share.closed(&open);
        let wanted = stat.filter(|_| number(pdu, 66, 2) & 1 != 0);
        let time = wanted.map_or(0, |s| filetime_of(s.modified));
        let mut body = Vec::new();
        file::CloseResponse {
            structure_size: 60,
            flags: wanted.is_some().into(),
            reserved: [0; 4],
            creation_time: time,
            last_access_time: time,
            last_write_time: time,
            change_time: time,
            allocation_size: wanted.map_or(0, |s| s.length.next_multiple_of(4096)),
            end_of_file: wanted.map_or(0, |s| s.length),
            file_attributes: wanted.map_or(0, |s| attributes(&s)),
        }
        .emit(&mut body);
        Answer::ok(body)
    }

    /// The connection leaves its session; with the last channel, the session ends.
    fn leave(&mut self) {
        let Some(session) = self.session.take().filter(|s| s.established) else { return };
        let left = {
            let mut state = session.common.state();
            state.channels = state.channels.saturating_sub(1);
            state.channels
        };
        if left == 0 {
            self.share.end_session(&session.common);
        }
    }

    /// LOCK, 3.3.5.14. A lock that is not available is refused at once, even if the client would wait for it.
    fn lock(&mut self, pdu: &[u8]) -> Option<Answer> {
        const SHARED: u64 = 1;
        const EXCLUSIVE: u64 = 2;
        const UNLOCK: u64 = 4;
        const FAIL_IMMEDIATELY: u64 = 0x10;
        const ELEMENT: usize = 24;
        let count = number(pdu, 66, 2) as usize;
        let Some(elements) =
            pdu.get(88..).and_then(|rest| rest.get(..count.checked_mul(ELEMENT)?)).filter(|_| count > 0)
        else {
            return Answer::status(NtStatus::INVALID_PARAMETER);
        };
        self.with_open(pdu, 8, |share, open| {
            let locks = &share.shared.locks;
            let mut taken = Vec::new();
            for element in elements.chunks_exact(ELEMENT) {
                let (offset, length, flags) = (number(element, 0, 8), number(element, 8, 8), number(element, 16, 4));
                let status = match flags & !FAIL_IMMEDIATELY {
                    UNLOCK if locks.unlock(open.id, offset, length, open.owner) => continue,
                    UNLOCK => NtStatus::RANGE_NOT_LOCKED,
                    kind @ (SHARED | EXCLUSIVE) => {
                        let range = Range { offset, length, exclusive: kind == EXCLUSIVE, owner: open.owner };
                        if locks.lock(open.id, range) {
                            open.locked = true;
                            taken.push(range);
                            continue;
                        }
                        NtStatus::LOCK_NOT_GRANTED
                    }
                    _ => NtStatus::INVALID_PARAMETER,
                };
                // all or none of them
                for range in taken {
                    locks.unlock(open.id, range.offset, range.length, open.owner);
                }
                return Answer::status(status);
            }
            Answer::ok(vec![4, 0, 0, 0])
        })
    }

    fn read(&mut self, asked: Request<'_>, stack: &mut Stack) -> Option<Answer> {
        let pdu = asked.pdu;
        let Ok((_, request)) = read_write::read_request(pdu, &mut Off) else {
            return Answer::status(NtStatus::INVALID_PARAMETER);
        };
        if request.fixed.length > TRANSFER_MAX {
            return Answer::status(NtStatus::INVALID_PARAMETER);
        }
        let room = stack.smbd().and_then(|s| s.link().side(s.end().peer()).max_fragmented_size).unwrap_or(65_536);
        let inline = request.channel.channel.0 == 0;
        let room = room.saturating_sub(OVERHEAD).saturating_sub(u32::try_from(self.replying).unwrap_or(u32::MAX));
        let length = if inline { request.fixed.length.min(room) } else { request.fixed.length };
        if !self.has_room(stack, length as usize) || inline && room == 0 {
            return Answer::status(NtStatus::INSUFFICIENT_RESOURCES);
        }
        let (offset, least) = (request.fixed.offset, request.fixed.minimum_count);
        let mut file = None;
        let found = self.with_open(pdu, 16, |share, open| {
            if open.folder {
                return Answer::status(NtStatus::INVALID_DEVICE_REQUEST);
            }
            if !share.shared.locks.allow(open.id, offset, length.into(), open.owner, false) {
                return Answer::status(NtStatus::FILE_LOCK_CONFLICT);
            }
            file = Some(open.file.clone());
            Answer::ok(Vec::new())
        })?;
        // other channels of the session need not wait for the disk
        let Some(file) = file else { return Some(found) };
        let mut data = match file.read(offset, length) {
            Ok(data) if data.is_empty() && length > 0 || (data.len() as u32) < least => {
                return Answer::status(NtStatus::END_OF_FILE);
            }
            Ok(data) => data,
            Err(e) => return Answer::status(status_of(&e)),
        };
        let fixed = |in_message: u32, remaining: u32, flags: u32| {
            let mut body = Vec::with_capacity(16 + in_message as usize);
            let fixed = read_write::ReadResponseFixed {
                structure_size: 17,
                data_offset: 80,
                reserved: [0],
                data_length: in_message,
                data_remaining: remaining,
                flags,
            };
            fixed.emit(&mut body);
            body
        };
        if inline {
            let mut body = fixed(data.len() as u32, 0, 0);
            body.extend_from_slice(&data);
            return Answer::ok(body);
        }
        if !request.channel.is_whole()
            || !request.channel.blob.inside
            || request.channel.described_length() < data.len() as u64
        {
            return Answer::status(NtStatus::INVALID_PARAMETER);
        }
        let Ok(crypto) = self.protect(asked, &mut data) else { return Answer::status(NtStatus::IO_DEVICE_ERROR) };
        let mut rest = &data[..];
        for d in request.channel.descriptors() {
            let (piece, more) = rest.split_at(rest.len().min(d.length as usize));
            if !piece.is_empty() && stack.write(d.token, d.offset, piece).is_err() {
                self.broken = true;
                return None;
            }
            rest = more;
        }
        // No byte of padding for the empty buffer: cifs.ko reads the fixed part, cannot skip further bytes on SMB
        // Direct, and takes them for the beginning of the next reply.
        let body = match crypto {
            None => fixed(0, data.len() as u32, 0),
            Some(crypto) => {
                let transform = transform::emit(RdmaChannel::NONE, &[crypto], &[]);
                let mut body = fixed(transform.len() as u32, data.len() as u32, READ_FLAG_TRANSFORM);
                body.extend_from_slice(&transform);
                body
            }
        };
        let invalidate = self.invalidates(&request.channel);
        Some(Answer { status: NtStatus::SUCCESS, body, invalidate })
    }

    /// From dialect 3.0.2 on, the first descriptor's token (\[MS-SMB2\] 3.3.4.4).
    fn invalidates(&self, channel: &ChannelInfo<'_>) -> Option<u32> {
        let asked = channel.asks_for_invalidation() && self.agreed.dialect.is_some_and(|d| d != Dialect::SMB_3_0);
        channel.descriptors().next().filter(|_| asked).map(|d| d.token)
    }

    /// The key that a READ or WRITE asks to invalidate.
    fn asked_key(&self, header: &Header, pdu: &[u8]) -> Option<u32> {
        if header.command == Command::READ {
            read_write::read_request(pdu, &mut Off).ok().and_then(|(_, r)| self.invalidates(&r.channel))
        } else {
            read_write::write_request(pdu, &mut Off).ok().and_then(|(_, w)| self.invalidates(&w.channel))
        }
    }

    fn write(&mut self, asked: Request<'_>, stack: &mut Stack) -> Option<Answer> {
        let Request { header, pdu, sealed } = asked;
        let Ok((_, request)) = read_write::write_request(pdu, &mut Off) else {
            return Answer::status(NtStatus::INVALID_PARAMETER);
        };
        let channel = request.channel;
        let Ok(crypto) = self.agreed(asked, &channel) else { return Answer::status(NtStatus::INVALID_PARAMETER) };
        let offset = request.fixed.offset;
        let data = request.data.bytes;
        let inline = channel.channel.0 == 0;
        if inline && !request.data.inside {
            return Answer::status(NtStatus::INVALID_PARAMETER);
        }
        let length = request.fixed.remaining_bytes;
        let mut file = None;
        let checked = self.with_open(pdu, 16, |share, open| {
            if !open.may_write || !share.writable {
                return Answer::status(NtStatus::ACCESS_DENIED);
            }
            let bytes = if inline { data.len() as u64 } else { length.into() };
            if !share.shared.locks.allow(open.id, offset, bytes, open.owner, true) {
                return Answer::status(NtStatus::FILE_LOCK_CONFLICT);
            }
            file = Some(open.file.clone());
            Answer::ok(Vec::new())
        })?;
        let Some(file) = file else { return Some(checked) };
        if inline {
            return match self.share.storage.write(&file, offset, data) {
                Ok(()) => Answer::ok(write_body(data.len() as u32)),
                Err(e) => Answer::status(status_of(&e)),
            };
        }
        if length > TRANSFER_MAX
            || length == 0
            || !channel.is_whole()
            || !channel.blob.inside
            || channel.described_length() < length.into()
        {
            return Answer::status(NtStatus::INVALID_PARAMETER);
        }
        if self.fetches.len() >= FETCHES_MAX || !self.has_room(stack, length as usize) {
            return Answer::status(NtStatus::INSUFFICIENT_RESOURCES);
        }
        let Some(sink) = stack.register(vec![0; length as usize], Rights::LOCAL) else {
            return Answer::status(NtStatus::INSUFFICIENT_RESOURCES);
        };
        let (mut reads, mut at) = (HashSet::new(), 0);
        for d in channel.descriptors() {
            let piece = d.length.min(length - at);
            if piece == 0 {
                continue;
            }
            match stack.read(sink, at.into(), d.token, d.offset, piece) {
                Ok(id) => reads.insert(id),
                Err(_) => {
                    self.broken = true;
                    return None;
                }
            };
            at += piece;
        }
        let key = self.invalidates(&channel);
        self.fetches.push(Fetch { header: *header, sink, reads, file, offset, key, sealed, crypto });
        None
    }

    /// The transform of a WRITE; an error if the session did not negotiate it or the request does not allow it
    /// (3.3.5.13).
    fn agreed(&self, request: Request<'_>, channel: &ChannelInfo<'_>) -> Result<Option<Crypto>, ()> {
        if channel.channel != RdmaChannel::RDMA_TRANSFORM {
            return Ok(None);
        }
        let transform = channel.transform().ok_or(())?;
        let inner = RdmaChannel(transform.fixed.channel);
        let crypto = transform::only(&transform, self.agreed.cipher.map_or(0, CipherId::nonce_len)).ok_or(())?;
        let fits = match crypto.kind {
            TransformType::ENCRYPTION => request.sealed,
            TransformType::SIGNING => !request.sealed && request.header.is_signed(),
            _ => false,
        };
        let known = matches!(inner, RdmaChannel::RDMA_V1 | RdmaChannel::RDMA_V1_INVALIDATE);
        if fits && known && self.transforms.contains(&crypto.needs()) { Ok(Some(crypto)) } else { Err(()) }
    }

    fn query_directory(&mut self, pdu: &[u8]) -> Option<Answer> {
        let class = number(pdu, 66, 1) as u8;
        let fresh = number(pdu, 67, 1) & 0x11 != 0;
        let single = number(pdu, 67, 1) & 0x02 != 0;
        let (at, length) = (number(pdu, 88, 2) as usize, number(pdu, 90, 2) as usize);
        let room = (number(pdu, 92, 4) as usize).min(1 << 20);
        let pattern = text(pdu.get(at..at + length).unwrap_or_default());
        self.with_open(pdu, 8, |share, open| {
            if !open.folder {
                return Answer::status(NtStatus::INVALID_PARAMETER);
            }
            let first = fresh || open.listing.is_none();
            if first {
                let names = match share.storage.list(&open.file) {
                    Ok(names) => names,
                    Err(e) => return Answer::status(status_of(&e)),
                };
                let mut all = vec![".".to_owned(), "..".to_owned()];
                all.extend(names);
                all.retain(|name| matches(&pattern, name));
                open.listing = Some(all.into_iter());
            }
            let (mut out, mut last) = (Vec::new(), None);
            let Some(listing) = &mut open.listing else { return Answer::status(NtStatus::NO_MORE_FILES) };
            while let Some(name) = listing.as_slice().first() {
                let path = match &name[..] {
                    "." | ".." => open.path.clone(),
                    name if open.path.is_empty() => name.to_owned(),
                    name => format!("{}/{name}", open.path),
                };
                // an entry that cannot be accessed (a link that leads out) is not listed
                if let Ok(stat) = share.storage.stat(&path) {
                    let Some(entry) = entry(class, name, &stat) else {
                        return Answer::status(NtStatus::INVALID_PARAMETER);
                    };
                    let start = out.len().next_multiple_of(8);
                    if start + entry.len() > room {
                        break;
                    }
                    out.resize(start, 0);
                    if let Some(last) = last {
                        let next = (start - last) as u32;
                        out[last..last + 4].copy_from_slice(&next.to_le_bytes());
                    }
                    last = Some(start);
                    out.extend_from_slice(&entry);
                }
                listing.next();
                if single {
                    break;
                }
            }
            if out.is_empty() {
                return Answer::status(if first { NtStatus::NO_SUCH_FILE } else { NtStatus::NO_MORE_FILES });
            }
            Answer::ok(Writer::default().u16(9).u16(72).u32(out.len() as u32).bytes(&out).0)
        })
    }

    fn query_info(&mut self, pdu: &[u8]) -> Option<Answer> {
        let (info_type, class) = (number(pdu, 66, 1) as u8, number(pdu, 67, 1) as u8);
        let room = number(pdu, 68, 4) as usize;
        self.with_open(pdu, 24, |share, open| {
            if (info_type, class) == (1, 15) {
                return Answer::status(NtStatus::NO_EAS_ON_FILE);
            }
            let stat = match open.file.stat() {
                Ok(stat) => stat,
                Err(e) => return Answer::status(status_of(&e)),
            };
            let Some(info) = info(info_type, class, &stat, open, &share.name) else {
                return Answer::status(NtStatus::NOT_SUPPORTED);
            };
            // fixed-length information that does not fit is an error, and all of these are short
            if info.len() > room {
                return Answer::status(NtStatus::INFO_LENGTH_MISMATCH);
            }
            Answer::ok(Writer::default().u16(9).u16(72).u32(info.len() as u32).bytes(&info).0)
        })
    }

    /// FileRenameInformation and FileLinkInformation, \[MS-FSCC\] 2.4.42 and 2.4.27, which have the same form: a new
    /// name for the file, or an additional one. Open handles stay valid.
    fn rename(&mut self, pdu: &[u8], at: usize, keeps_name: bool) -> Option<Answer> {
        let replace = number(pdu, at, 1) != 0;
        let length = number(pdu, at + 16, 4) as usize;
        let to = text(pdu.get(at + 20..).and_then(|b| b.get(..length)).unwrap_or_default()).replace('\\', "/");
        let to = to.trim_matches('/');
        let Some(common) = self.session.as_ref().map(|s| s.common.clone()) else {
            return Answer::status(NtStatus::FILE_CLOSED);
        };
        let mut state = common.state();
        let Some(from) =
            self.open_id(&state, pdu, 16).and_then(|id| state.opens.get(&id)).map(|open| open.path.clone())
        else {
            return Answer::status(NtStatus::FILE_CLOSED);
        };
        if !self.share.writable || from.is_empty() {
            return Answer::status(NtStatus::ACCESS_DENIED);
        }
        let storage = &self.share.storage;
        let done = if keeps_name { storage.link(&from, to, replace) } else { storage.rename(&from, to, replace) };
        if let Err(e) = done {
            return Answer::status(status_of(&e));
        }
        if keeps_name {
            return Answer::ok(vec![2, 0]);
        }
        for open in state.opens.values_mut() {
            if open.path == from {
                to.clone_into(&mut open.path);
            } else if let Some(inside) = open.path.strip_prefix(&from).filter(|rest| rest.starts_with('/')) {
                open.path = format!("{to}{inside}");
            }
        }
        Answer::ok(vec![2, 0])
    }

    fn set_info(&mut self, pdu: &[u8]) -> Option<Answer> {
        const BASIC: u64 = 4;
        const RENAME: u64 = 10;
        const LINK: u64 = 11;
        const DISPOSITION: u64 = 13;
        const SECURITY: u64 = 3;
        const ALLOCATION: u64 = 19;
        const END_OF_FILE: u64 = 20;
        const DISPOSITION_EX: u64 = 64;
        let (info_type, class) = (number(pdu, 66, 1), number(pdu, 67, 1));
        let at = number(pdu, 72, 2) as usize;
        if info_type == 1 && matches!(class, RENAME | LINK) {
            return self.rename(pdu, at, class == LINK);
        }
        self.with_open(pdu, 16, |share, open| {
            if !share.writable {
                return Answer::status(NtStatus::ACCESS_DENIED);
            }
            let done = Answer::ok(vec![2, 0]);
            match (info_type, class) {
                // attributes, allocation, and security are accepted and ignored
                (1, ALLOCATION) | (SECURITY, _) => done,
                (1, BASIC) => {
                    // 0, -1 and -2 keep the time ([MS-FSCC] 2.4.7); times before 1970 are ignored
                    let time = |at| Some(number(pdu, at, 8)).filter(|t| *t < 1 << 63).and_then(unix_ns_of);
                    match open.file.set_times(Times { accessed: time(at + 8), modified: time(at + 16) }) {
                        Ok(()) => done,
                        Err(e) => Answer::status(status_of(&e)),
                    }
                }
                (1, DISPOSITION | DISPOSITION_EX) => {
                    let delete = number(pdu, at, 1) & 1 != 0;
                    if delete && open.path.is_empty() {
                        return Answer::status(NtStatus::CANNOT_DELETE);
                    }
                    if delete && open.folder && share.storage.list(&open.file).is_ok_and(|names| !names.is_empty()) {
                        return Answer::status(NtStatus::DIRECTORY_NOT_EMPTY);
                    }
                    open.delete = delete;
                    done
                }
                (1, END_OF_FILE) if !open.may_write => Answer::status(NtStatus::ACCESS_DENIED),
                (1, END_OF_FILE) => match share.storage.set_length(&open.file, number(pdu, at, 8)) {
                    Ok(()) => done,
                    Err(e) => Answer::status(status_of(&e)),
                },
                _ => Answer::status(NtStatus::NOT_SUPPORTED),
            }
        })
    }
}

impl Share {
    /// Cleans up after an open is closed.
    fn closed(&self, open: &Open) {
        if open.locked {
            self.shared.locks.release(open.id, open.owner);
        }
        if open.delete && self.writable {
            // a file that was removed already counts as closed
            let _ = self.storage.remove(&open.path, &open.file);
        }
    }

    /// Ends a session on all of its channels.
    fn end_session(&self, common: &Arc<Common>) {
        common.valid.store(false, Ordering::Release);
        {
            let mut all = self.sessions.all();
            if all.get(&common.id).is_some_and(|known| Arc::ptr_eq(known, common)) {
                all.remove(&common.id);
            }
        }
        let opens = std::mem::take(&mut common.state().opens);
        for open in opens.values() {
            self.closed(open);
        }
    }

    /// True if the session of every user has a key.
    fn has_keys(&self) -> bool {
        !matches!(self.users, Users::Guests)
    }

    /// True if sessions have keys, and requests must be signed with them.
    fn signs(&self) -> bool {
        self.require_signing && self.has_keys()
    }

    /// SecurityMode of its connections.
    fn security_mode(&self) -> u8 {
        if self.signs() { SIGNING_ENABLED | SIGNING_REQUIRED } else { SIGNING_ENABLED }
    }
}

impl Drop for ServerConnection {
    fn drop(&mut self) {
        self.leave();
        self.share.shared.bytes.fetch_sub(self.accounted, Ordering::Relaxed);
    }
}

fn write_body(count: u32) -> Vec<u8> {
    let mut body = Vec::new();
    read_write::WriteResponseFixed {
        structure_size: 17,
        reserved: [0; 2],
        count,
        remaining: 0,
        channel_info_offset: 0,
        channel_info_length: 0,
    }
    .emit(&mut body);
    body
}

fn attributes(stat: &Stat) -> u32 {
    if stat.folder { file_attribute::DIRECTORY } else { file_attribute::NORMAL }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf16_lossy(&bytes.chunks_exact(2).map(|c| u16::from_le_bytes([c[0], c[1]])).collect::<Vec<_>>())
}

/// `*` and `?`, without regard to case. The cost is at most the product of the lengths.
fn matches(pattern: &str, name: &str) -> bool {
    let p: Vec<char> = pattern.to_lowercase().chars().collect();
    let n: Vec<char> = name.to_lowercase().chars().collect();
    let (mut i, mut j, mut star) = (0, 0, None);
    while j < n.len() {
        match p.get(i) {
            Some('*') => {
                star = Some((i, j));
                i += 1;
            }
            Some(c) if *c == '?' || *c == n[j] => {
                i += 1;
                j += 1;
            }
            _ => match star {
                Some((at, from)) => {
                    star = Some((at, from + 1));
                    i = at + 1;
                    j = from + 1;
                }
                None => return false,
            },
        }
    }
    p[i..].iter().all(|c| *c == '*')
}

fn status_of(e: &io::Error) -> NtStatus {
    match e.kind() {
        io::ErrorKind::NotFound => NtStatus::OBJECT_NAME_NOT_FOUND,
        io::ErrorKind::PermissionDenied => NtStatus::ACCESS_DENIED,
        io::ErrorKind::AlreadyExists => NtStatus::OBJECT_NAME_COLLISION,
        io::ErrorKind::StorageFull => NtStatus::DISK_FULL,
        io::ErrorKind::NotADirectory => NtStatus::NOT_A_DIRECTORY,
        io::ErrorKind::IsADirectory => NtStatus::FILE_IS_A_DIRECTORY,
        io::ErrorKind::DirectoryNotEmpty => NtStatus::DIRECTORY_NOT_EMPTY,
        io::ErrorKind::Unsupported => NtStatus::NOT_SUPPORTED,
        _ => NtStatus::IO_DEVICE_ERROR,
    }
}

/// An entry of a folder, \[MS-FSCC\] 2.4; `None` for an unknown class.
fn entry(class: u8, name: &str, stat: &Stat) -> Option<Vec<u8>> {
    let name = utf16(name);
    let head = Writer::default().u32(0).u32(0);
    if class == 12 {
        return Some(head.u32(name.len() as u32).bytes(&name).0);
    }
    let time = filetime_of(stat.modified);
    let head = head.u64(time).u64(time).u64(time).u64(time).u64(stat.length).u64(stat.length.next_multiple_of(4096));
    let head = head.u32(attributes(stat)).u32(name.len() as u32);
    Some(
        match class {
            1 => head,
            2 => head.u32(0),
            // extended attributes, short name
            3 => head.u32(0).bytes(&[0; 26]),
            37 => head.u32(0).bytes(&[0; 28]).u64(stat.id),
            38 => head.u32(0).u32(0).u64(stat.id),
            _ => return None,
        }
        .bytes(&name)
        .0,
    )
}

/// Information on a file, its file system or its security; `None` if it is not supported.
fn info(info_type: u8, class: u8, stat: &Stat, open: &Open, label: &str) -> Option<Vec<u8>> {
    let time = filetime_of(stat.modified);
    let allocated = stat.length.next_multiple_of(4096);
    let w = Writer::default;
    let basic = |w: Writer| w.u64(time).u64(time).u64(time).u64(time).u32(attributes(stat)).u32(0);
    let standard =
        |w: Writer| w.u64(allocated).u64(stat.length).u32(1).u8(open.delete.into()).u8(stat.folder.into()).u16(0);
    let name = utf16(&format!("\\{}", open.path.replace('/', "\\")));
    const BLOCKS: u64 = 1 << 28;
    Some(match (info_type, class) {
        (1, 4) => basic(w()).0,
        (1, 5) => standard(w()).0,
        (1, 6) => w().u64(stat.id).0,
        (1, 7) => w().u32(0).0,
        (1, 8) => w().u32(access::READ).0,
        (1, 14) => w().u64(0).0,
        (1, 16 | 17) => w().u32(0).0,
        (1, 18) => {
            standard(basic(w()))
                .u64(stat.id)
                .u32(0)
                .u32(if open.may_write { access::READ | access::WRITE } else { access::READ })
                .u64(0)
                .u32(0)
                .u32(0)
                .u32(name.len() as u32)
                .bytes(&name)
                .0
        }
        (1, 22) => {
            let stream = utf16("::$DATA");
            if stat.folder {
                Vec::new()
            } else {
                w().u32(0).u32(stream.len() as u32).u64(stat.length).u64(allocated).bytes(&stream).0
            }
        }
        (1, 34) => {
            w().u64(time).u64(time).u64(time).u64(time).u64(allocated).u64(stat.length).u32(attributes(stat)).u32(0).0
        }
        (1, 35) => w().u32(attributes(stat)).u32(0).0,
        (2, 1) => {
            let label = utf16(label);
            w().u64(0).u32(1).u32(label.len() as u32).u8(0).u8(0).bytes(&label).0
        }
        (2, 3) => w().u64(BLOCKS).u64(BLOCKS / 2).u32(1).u32(4096).0,
        // a disk, mounted
        (2, 4) => w().u32(7).u32(0x20).0,
        // case preserved and sensitive, Unicode
        (2, 5) => {
            let kind = utf16("NTFS");
            w().u32(7).u32(255).u32(kind.len() as u32).bytes(&kind).0
        }
        (2, 7) => w().u64(BLOCKS).u64(BLOCKS / 2).u64(BLOCKS / 2).u32(1).u32(4096).0,
        (2, 11) => w().u32(512).u32(4096).u32(4096).u32(4096).u32(3).u32(0).u32(0).0,
        // a self-relative security descriptor without owner, group or lists
        (3, _) => w().u8(1).u8(0).u16(0x8000).u32(0).u32(0).u32(0).u32(0).0,
        _ => return None,
    })
}

/// Serves one connection until it ends.
///
/// # Errors
/// Errors of the network.
pub fn serve(request: Box<dyn Incoming>, share: Arc<Share>, config: &Config) -> Result<(), Error> {
    let peer = request.peer();
    let mut channel = SmbDirect::accept(request, config)?;
    serve_channel(&mut channel, share, peer)?;
    channel.finish()?;
    Ok(())
}

/// Time between two looks at whether the server is to stop.
pub(crate) const STOP_WITHIN: Duration = Duration::from_millis(250);

/// The same on a channel of the caller, which stays open for inspection. `peer` is the client's address.
///
/// # Errors
/// Errors of the network; if no logon succeeded, the reason.
pub fn serve_channel(channel: &mut SmbDirect, share: Arc<Share>, peer: Option<SocketAddr>) -> Result<(), Error> {
    let limits = share.limits;
    let mut connection = ServerConnection::new(share.clone())?;
    if let Some(address) = channel.local_address() {
        connection.set_address(address);
    }
    connection.set_peer(peer);
    let (half, quarter) = (limits.connection_bytes / 2, limits.connection_bytes / 4);
    channel.set_unsent_max(half);
    let mut deadline = LogonDeadline::new(Instant::now(), limits.logon_within);
    while !connection.is_broken() && !share.is_stopping() {
        let left = deadline.left(Instant::now());
        if left == Some(Duration::ZERO) {
            connection.end(&format!("connection closed: no session within {} s", limits.logon_within.as_secs()));
            break;
        }
        // a client that does not take its replies gets no more of them
        if channel.unsent() > half {
            let drained = channel.drain(quarter.max(1), limits.stuck_within)?;
            connection.account(channel.unsent());
            if !drained {
                connection.end(&format!(
                    "connection closed: it receives nothing of {} bytes that it asked for",
                    channel.unsent()
                ));
                break;
            }
        }
        let penalty = connection.penalty();
        if left.is_some_and(|left| penalty > left) {
            connection.end("connection closed: too many wrong passwords from its address");
            break;
        }
        std::thread::sleep(penalty);
        let event = channel.poll(left.unwrap_or(STOP_WITHIN).min(STOP_WITHIN))?;
        let now = channel.now();
        match event {
            Some(Event::Message { bytes, .. }) => connection.handle_message(now, &bytes, channel.stack()),
            Some(Event::ReadDone { id }) => connection.handle_read_done(now, id, channel.stack()),
            Some(Event::Closed(_)) => break,
            Some(Event::Connected | Event::Established | Event::Raw(_)) | None => {}
        }
        deadline.note(Instant::now(), connection.is_logged_on());
        connection.account(channel.unsent());
    }
    connection.refused.take().map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdmascope_dissector::wire::smb2::create::options::DELETE_ON_CLOSE;
    use rdmascope_dissector::wire::smbd::BufferDescriptorV1;

    #[test]
    fn patterns_match_names() {
        for (pattern, name, fits) in [
            ("*", "a", true),
            ("*.TXT", "a.txt", true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("*b*b", "abab", true),
            ("b*", "ab", false),
        ] {
            assert_eq!(matches(pattern, name), fits, "{pattern} {name}");
        }
    }

    /// A client without a socket that sends arbitrary messages, and the server.
    struct Pair {
        client: Stack,
        stack: Stack,
        server: ServerConnection,
        replies: Vec<Vec<u8>>,
        /// MessageId of the next request.
        next: u64,
        session: u64,
        tree: u32,
        dialect: Dialect,
        nt_hash: Option<[u8; 16]>,
        /// Of the last logon.
        key: Option<Key>,
        /// SMB2_SESSION_FLAG_BINDING in SESSION_SETUP.
        binds: bool,
        /// Signs requests.
        signer: Option<Signer>,
        hash: PreauthHash,
    }

    impl Pair {
        fn new(share: Share, dialect: Dialect) -> Self {
            Self::on(&Arc::new(share), dialect)
        }

        /// Another connection to a share.
        fn on(share: &Arc<Share>, dialect: Dialect) -> Self {
            use crate::transport::iwarp::{self, Carrier};
            let config = iwarp::Config { crc: false, ..iwarp::Config::default() };
            let carrier = |c| Box::new(Carrier::new(c));
            let smbd = crate::smbd::Config { receive_credits: 255, ..crate::smbd::Config::default() };
            let nt_hash = match share.users {
                Users::Password(hash) => Some(hash),
                _ => None,
            };
            let mut pair = Self {
                client: Stack::new(smbd, carrier(iwarp::Endpoint::initiator(0, config.clone())), true),
                stack: Stack::new(smbd, carrier(iwarp::Endpoint::responder(0, config)), false),
                server: ServerConnection::new(share.clone()).unwrap(),
                replies: Vec::new(),
                next: 0,
                session: 0,
                tree: 0,
                dialect,
                nt_hash,
                key: None,
                binds: false,
                signer: None,
                hash: PreauthHash::START,
            };
            pair.pump(true);
            pair
        }

        /// Moves all output to the server, and back if the client reads.
        fn pump(&mut self, reads: bool) {
            loop {
                let mut moved = false;
                while let Some(bytes) = self.client.poll_transmit(0) {
                    self.stack.handle_bytes(0, &bytes);
                    moved = true;
                }
                while let Some(event) = self.stack.poll_event() {
                    match event {
                        Event::Message { bytes, .. } => self.server.handle_message(0, &bytes, &mut self.stack),
                        Event::ReadDone { id } => self.server.handle_read_done(0, id, &mut self.stack),
                        _ => {}
                    }
                }
                while reads && let Some(bytes) = self.stack.poll_transmit(0) {
                    self.client.handle_bytes(0, &bytes);
                    moved = true;
                }
                while let Some(event) = self.client.poll_event() {
                    if let Event::Message { bytes, .. } = event {
                        self.replies.push(bytes);
                    }
                }
                if !moved {
                    return;
                }
            }
        }

        fn request(&mut self, command: Command, charge: u16, body: &[u8]) -> Vec<u8> {
            let head = Header {
                credit_charge: charge,
                credits: 1024,
                ids: Ids::Sync { process_id: 0, tree_id: self.tree },
                session_id: self.session,
                ..super::super::header(command, self.next)
            };
            self.next += u64::from(charge.max(1));
            message(&head, body)
        }

        /// The status and the bytes of the last reply.
        fn call(&mut self, command: Command, body: &[u8]) -> (NtStatus, Vec<u8>) {
            let mut request = self.request(command, 1, body);
            if let Some(signer) = &self.signer {
                request[16] |= flags::SIGNED as u8;
                signer.sign(&mut request);
            }
            let is_hashed = matches!(command, Command::NEGOTIATE | Command::SESSION_SETUP);
            if is_hashed {
                self.hash.add(&request);
            }
            self.client.send(0, request, None).unwrap();
            self.pump(true);
            let reply = self.replies.pop().unwrap_or_default();
            let status = Header::parse(&reply, &mut Off).map_or(NtStatus(u32::MAX), |(_, h)| h.status());
            if is_hashed && (command == Command::NEGOTIATE || status == NtStatus::MORE_PROCESSING_REQUIRED) {
                self.hash.add(&reply);
            }
            (status, reply)
        }

        fn negotiate(&mut self) {
            let body = Writer::default()
                .u16(36)
                .u16(1)
                .u16(1)
                .u16(0)
                .u32(capabilities::LARGE_MTU | capabilities::MULTI_CHANNEL)
                .bytes(&[0; 16])
                .u64(0)
                .u16(self.dialect.0)
                .0;
            assert_eq!(self.call(Command::NEGOTIATE, &body).0, NtStatus::SUCCESS);
        }

        fn log_on(&mut self, password: Option<&str>) -> NtStatus {
            use rdmascope_analyzer::keys::ntlm::{Account, Fresh, emit_authenticate, emit_negotiate};
            let binds = u8::from(self.binds);
            let setup = |token: &[u8]| {
                Writer::default()
                    .u16(25)
                    .u8(binds)
                    .u8(1)
                    .u32(0)
                    .u32(0)
                    .u16(88)
                    .u16(token.len() as u16)
                    .u64(0)
                    .bytes(token)
                    .0
            };
            if !self.binds {
                self.session = 0;
            }
            let (status, reply) = self.call(Command::SESSION_SETUP, &setup(&emit_negotiate()));
            if self.binds && status != NtStatus::MORE_PROCESSING_REQUIRED {
                return status;
            }
            assert_eq!(status, NtStatus::MORE_PROCESSING_REQUIRED);
            self.session = Header::parse(&reply, &mut Off).unwrap().1.session_id;
            let account = password.map(|password| Account::new("user", password));
            let fresh = Fresh { client_challenge: [1; 8], session_key: [2 + binds; 16], filetime: 1 };
            let (token, key) = emit_authenticate(find(&reply).unwrap().1, account.as_ref(), &fresh).unwrap();
            self.key = Some(key);
            self.call(Command::SESSION_SETUP, &setup(&token)).0
        }

        fn tree_connect(&mut self) -> NtStatus {
            let path = utf16("\\\\server\\share");
            let body = Writer::default().u16(9).u16(0).u16(72).u16(path.len() as u16).bytes(&path).0;
            let (status, reply) = self.call(Command::TREE_CONNECT, &body);
            self.tree = Header::parse(&reply, &mut Off).map_or(0, |(_, h)| h.tree_id().unwrap_or(0));
            status
        }

        /// A guest on the share, with a file open.
        fn open(share: Share, name: &str) -> (Self, FileId) {
            Self::open_on(&Arc::new(share), name)
        }

        fn open_on(share: &Arc<Share>, name: &str) -> (Self, FileId) {
            let mut pair = Self::on(share, Dialect::SMB_3_0_2);
            pair.negotiate();
            assert_eq!((pair.log_on(None), pair.tree_connect()), (NtStatus::SUCCESS, NtStatus::SUCCESS));
            let (status, id) = pair.create(name, access::READ | access::WRITE, disposition::OPEN, 0);
            assert_eq!(status, NtStatus::SUCCESS);
            (pair, id)
        }

        fn create(&mut self, name: &str, access: u32, disposition: u32, options: u32) -> (NtStatus, FileId) {
            let name = utf16(name);
            let body = Writer::default()
                .u16(57)
                .u16(0)
                .u32(2)
                .u64(0)
                .u64(0)
                .u32(access)
                .u32(0)
                .u32(7)
                .u32(disposition)
                .u32(options);
            let body = body.u16(120).u16(name.len() as u16).u64(0).bytes(if name.is_empty() { &[0] } else { &name }).0;
            let (status, reply) = self.call(Command::CREATE, &body);
            (status, FileId(reply.get(128..144).map_or([0; 16], |b| b.try_into().unwrap())))
        }

        fn set_info(&mut self, file: FileId, class: u8, info: &[u8]) -> NtStatus {
            let body = Writer::default()
                .u16(33)
                .u8(1)
                .u8(class)
                .u32(info.len() as u32)
                .u16(96)
                .u16(0)
                .u32(0)
                .bytes(&file.0)
                .bytes(info)
                .0;
            self.call(Command::SET_INFO, &body).0
        }

        fn read(&mut self, file: FileId, offset: u64, length: u32) -> (NtStatus, Vec<u8>) {
            let (status, reply) = self.call(Command::READ, &read_body(file, offset, length, &[]));
            (status, reply.get(80..).unwrap_or_default().to_vec())
        }

        fn lock(&mut self, file: FileId, offset: u64, length: u64, flags: u32) -> NtStatus {
            let body =
                Writer::default().u16(48).u16(1).u32(0).bytes(&file.0).u64(offset).u64(length).u32(flags).u32(0).0;
            self.call(Command::LOCK, &body).0
        }

        fn close(&mut self, file: FileId) -> NtStatus {
            self.call(Command::CLOSE, &Writer::default().u16(24).u16(0).u32(0).bytes(&file.0).0).0
        }
    }

    /// A READ, over RDMA into the memory that `info` describes.
    fn read_body(file: FileId, offset: u64, length: u32, info: &[u8]) -> Vec<u8> {
        let channel = u32::from(!info.is_empty());
        let body =
            Writer::default().u16(49).u8(0x50).u8(0).u32(length).u64(offset).bytes(&file.0).u32(0).u32(channel).u32(0);
        body.u16(if info.is_empty() { 0 } else { 112 })
            .u16(info.len() as u16)
            .bytes(if info.is_empty() { &[0] } else { info })
            .0
    }

    fn big(users: Users) -> Share {
        Share::new("share", Storage::memory([("big".to_owned(), vec![7; 8 << 20])]), true, users)
    }

    /// Requests in one message.
    fn compound(requests: Vec<Vec<u8>>) -> Vec<u8> {
        let (mut out, last) = (Vec::new(), requests.len() - 1);
        for (n, mut request) in requests.into_iter().enumerate() {
            if n < last {
                request.resize(request.len().next_multiple_of(8), 0);
                let next = request.len() as u32;
                request[20..24].copy_from_slice(&next.to_le_bytes());
            }
            out.extend_from_slice(&request);
        }
        out
    }

    #[test]
    fn one_compound_of_many_reads_does_not_fill_our_memory() {
        for charge in [1, 128] {
            let (mut pair, file) = Pair::open(big(Users::Guests), "big");
            let info = BufferDescriptorV1 { offset: 0, token: 0x1234, length: 8 << 20 };
            let mut described = Vec::new();
            info.emit(&mut described);
            let reads = (0..2000)
                .map(|_| pair.request(Command::READ, charge, &read_body(file, 0, 8 << 20, &described)))
                .collect();
            let bytes = compound(reads);
            pair.server.handle_message(0, &bytes, &mut pair.stack);
            assert!(
                pair.stack.unsent() <= Limits::default().connection_bytes,
                "{charge}: {} bytes wait",
                pair.stack.unsent()
            );
            // 3.3.5.2.3: they are more than the credits granted
            assert!(pair.server.is_broken(), "{charge}");
        }
    }

    #[test]
    fn a_client_that_does_not_read_gets_no_more_than_its_share_of_memory() {
        let mut share = big(Users::Guests);
        share.limits = Limits { credits: 4096, connection_bytes: 20 << 20, total_bytes: 30 << 20, ..Limits::default() };
        let (mut pair, file) = Pair::open(share, "big");
        let mut described = Vec::new();
        BufferDescriptorV1 { offset: 0, token: 0x1234, length: 8 << 20 }.emit(&mut described);
        let reads =
            (0..4).map(|_| pair.request(Command::READ, 128, &read_body(file, 0, 8 << 20, &described))).collect();
        pair.client.send(0, compound(reads), None).unwrap();
        pair.pump(false);
        assert!((16 << 20..20 << 20).contains(&pair.stack.unsent()), "two of four: {}", pair.stack.unsent());
        assert_eq!(pair.server.share.shared.bytes.load(Ordering::Relaxed), pair.stack.unsent());
        assert!(!pair.server.is_broken());
        // waiting requests end, and those without room get an error
        pair.stack.transport().poll_transmit();
        pair.server.account(pair.stack.unsent());
        assert!(pair.server.share.shared.bytes.load(Ordering::Relaxed) < 1 << 20);
        let share = pair.server.share.clone();
        drop(pair);
        assert_eq!(share.shared.bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn clients_that_do_not_read_get_no_more_than_their_share_of_memory_together() {
        let mut share = big(Users::Guests);
        share.limits = Limits { credits: 4096, connection_bytes: 20 << 20, total_bytes: 30 << 20, ..Limits::default() };
        let share = Arc::new(share);
        let mut described = Vec::new();
        BufferDescriptorV1 { offset: 0, token: 0x1234, length: 8 << 20 }.emit(&mut described);
        let mut asked: Vec<Pair> = Vec::new();
        for _ in 0..4 {
            let (mut pair, file) = Pair::open_on(&share, "big");
            let reads =
                (0..2).map(|_| pair.request(Command::READ, 128, &read_body(file, 0, 8 << 20, &described))).collect();
            pair.client.send(0, compound(reads), None).unwrap();
            pair.pump(false);
            pair.server.account(pair.stack.unsent());
            asked.push(pair);
        }
        let held: Vec<usize> = asked.iter().map(|pair| pair.stack.unsent() >> 20).collect();
        assert_eq!(held, [16, 8, 0, 0], "mebibytes");
        assert!(share.shared.bytes.load(Ordering::Relaxed) <= 30 << 20);
        assert!(!asked.iter().any(|pair| pair.server.is_broken()), "the others get an error");
    }

    #[test]
    fn a_request_that_takes_too_few_credits_is_refused() {
        let (mut pair, file) = Pair::open(big(Users::Guests), "big");
        assert_eq!(pair.read(file, 0, 65_536).0, NtStatus::SUCCESS);
        assert_eq!(pair.read(file, 0, 65_537).0, NtStatus::INVALID_PARAMETER);
        pair.next -= 1;
        assert_eq!(pair.read(file, 0, 1).0, NtStatus(u32::MAX), "no answer to a MessageId that was used");
        assert!(pair.server.is_broken());
    }

    #[test]
    fn requests_without_a_signature_are_refused_in_a_session_with_keys() {
        let password = || Users::Password(rdmascope_analyzer::keys::ntlm::nt_hash("secret"));
        for (dialect, require, expected) in [
            (Dialect::SMB_3_0_2, true, NtStatus::ACCESS_DENIED),
            (Dialect::SMB_3_0_2, false, NtStatus::SUCCESS),
            // no answer: 3.3.5.7
            (Dialect::SMB_3_1_1, false, NtStatus(u32::MAX)),
        ] {
            let share = Share { require_signing: require, ..big(password()) };
            let mut pair = Pair::new(share, dialect);
            pair.negotiate();
            assert!(pair.nt_hash.is_some());
            assert_eq!(pair.log_on(Some("secret")), NtStatus::SUCCESS);
            assert_eq!(pair.tree_connect(), expected, "{dialect:?} {require}");
            assert_eq!(pair.server.is_broken(), dialect == Dialect::SMB_3_1_1);
        }
    }

    #[test]
    fn wrong_passwords_cost_time_and_then_the_connection() {
        let mut pair =
            Pair::new(big(Users::Password(rdmascope_analyzer::keys::ntlm::nt_hash("secret"))), Dialect::SMB_3_0);
        pair.server.set_peer(Some("192.0.2.1:1".parse().unwrap()));
        pair.negotiate();
        for _ in 0..2 {
            assert_eq!(pair.log_on(Some("guess")), NtStatus::LOGON_FAILURE);
        }
        assert!(pair.server.penalty() > Duration::ZERO && !pair.server.is_logged_on());
        assert_eq!(pair.log_on(Some("secret")), NtStatus::SUCCESS);
        assert_eq!(pair.server.penalty(), Duration::ZERO);
        assert_eq!(
            (pair.log_on(None), pair.server.penalty()),
            (NtStatus::LOGON_FAILURE, Duration::ZERO),
            "nobody guesses"
        );
        assert_eq!((pair.log_on(Some("guess")), pair.server.is_broken()), (NtStatus::LOGON_FAILURE, true));
    }

    #[test]
    fn folders_files_and_locks_are_as_a_client_expects() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("d")).unwrap();
        std::fs::write(folder.path().join("d/f"), "hello").unwrap();
        let share = Share::new("share", Storage::folder(folder.path()).unwrap(), true, Users::Guests);
        let (mut pair, file) = Pair::open(share, "d\\f");
        let all = access::READ | access::WRITE | access::DELETE;
        let (_, d) = pair.create("d", all, disposition::OPEN, 1);
        assert_eq!(pair.set_info(d, 13, &[1]), NtStatus::DIRECTORY_NOT_EMPTY);
        assert_eq!(pair.create("d", all, disposition::OPEN, DELETE_ON_CLOSE).0, NtStatus::DIRECTORY_NOT_EMPTY);
        let (_, root) = pair.create("", all, disposition::OPEN, 1);
        assert_eq!(pair.set_info(root, 13, &[1]), NtStatus::CANNOT_DELETE, "the share itself");
        assert_eq!(pair.create("", all, disposition::OPEN, DELETE_ON_CLOSE).0, NtStatus::ACCESS_DENIED);
        // times
        let time = filetime_of(1_600_000_000_000_000_000);
        let basic = Writer::default().u64(0).u64(u64::MAX).u64(time).u64(0).u32(0).u32(0).0;
        assert_eq!(pair.set_info(file, 4, &basic), NtStatus::SUCCESS);
        let modified = std::fs::metadata(folder.path().join("d/f")).unwrap().modified().unwrap();
        assert_eq!(modified.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs(), 1_600_000_000);
        // locks, between two opens of one file
        let (_, other) = pair.create("d\\f", all, disposition::OPEN, 0);
        assert_eq!(pair.lock(file, 0, 3, 2 | 0x10), NtStatus::SUCCESS);
        assert_eq!(pair.lock(other, 2, 5, 1 | 0x10), NtStatus::LOCK_NOT_GRANTED);
        assert_eq!(pair.read(other, 0, 5).0, NtStatus::FILE_LOCK_CONFLICT);
        assert_eq!(pair.read(other, 3, 2), (NtStatus::SUCCESS, b"lo".to_vec()));
        assert_eq!(pair.lock(file, 0, 2, 4), NtStatus::RANGE_NOT_LOCKED);
        assert_eq!(pair.lock(file, 0, 3, 4), NtStatus::SUCCESS);
        assert_eq!(pair.read(other, 0, 5).0, NtStatus::SUCCESS);
        // a second name, by the first
        let name = utf16("d\\g");
        let link = Writer::default().u64(0).u64(0).u32(name.len() as u32).bytes(&name).0;
        assert_eq!(pair.set_info(file, 11, &link), NtStatus::SUCCESS);
        assert_eq!(std::fs::read(folder.path().join("d/g")).unwrap(), b"hello");
        assert_eq!(pair.set_info(file, 11, &link), NtStatus::OBJECT_NAME_COLLISION);
        std::fs::remove_file(folder.path().join("d/g")).unwrap();
        // a file that was removed can still be read through an open handle
        assert_eq!((pair.set_info(file, 13, &[1]), pair.close(file)), (NtStatus::SUCCESS, NtStatus::SUCCESS));
        assert!(!folder.path().join("d/f").exists());
        assert_eq!(pair.read(other, 0, 5), (NtStatus::SUCCESS, b"hello".to_vec()));
        assert_eq!((pair.set_info(d, 13, &[1]), pair.close(d)), (NtStatus::SUCCESS, NtStatus::SUCCESS));
        assert!(!folder.path().join("d").exists() && folder.path().exists());
    }

    /// Encrypted data comes in a message, in fragments: it has to fit.
    #[test]
    fn a_client_that_encrypts_may_write_no_more_than_a_message_holds() {
        let (mut pair, _) = Pair::open(big(Users::Guests), "big");
        let smbd = pair.stack.smbd().unwrap();
        let message = smbd.link().side(smbd.end()).max_fragmented_size.unwrap();
        assert_eq!(pair.server.write_max(&pair.stack), TRANSFER_MAX);
        pair.server.agreed.cipher = Some(CipherId::AES_128_GCM);
        let most = pair.server.write_max(&pair.stack);
        assert!(most > message / 2 && most < message && message < TRANSFER_MAX, "{most} {message}");
        pair.server.transforms = vec![RdmaTransformId::ENCRYPTION];
        assert_eq!(pair.server.write_max(&pair.stack), TRANSFER_MAX);
    }

    /// The client's signer after its logon.
    fn signer_of(pair: &Pair) -> Option<Signer> {
        Protection::new(false, pair.dialect, None, None, pair.key.as_ref()?, &pair.hash).signer().cloned()
    }

    #[test]
    fn a_second_connection_is_another_channel_of_the_session() {
        let share = Arc::new(Share {
            addresses: vec![[192, 0, 2, 9].into(), [192, 0, 2, 1].into()],
            ..big(Users::Password(rdmascope_analyzer::keys::ntlm::nt_hash("secret")))
        });
        let mut first = Pair::on(&share, Dialect::SMB_3_0_2);
        first.server.set_address("192.0.2.1:5445".parse().unwrap());
        first.negotiate();
        assert_eq!(first.log_on(Some("secret")), NtStatus::SUCCESS);
        first.signer = signer_of(&first);
        assert_eq!(first.tree_connect(), NtStatus::SUCCESS);
        let (status, file) = first.create("big", access::READ | access::WRITE, disposition::OPEN, 0);
        assert_eq!(status, NtStatus::SUCCESS);
        // the interfaces that the client may come to
        let body = Writer::default().u16(57).u16(0).u32(ControlCode::QUERY_NETWORK_INTERFACE_INFO.0).bytes(&[0xff; 16]);
        let (status, reply) =
            first.call(Command::IOCTL, &body.u32(120).u32(0).u32(0).u32(120).u32(0).u32(4096).u32(1).u32(0).0);
        let list = reply.get(112..).unwrap_or_default();
        assert_eq!((status, list.len(), number(list, 0, 4), number(list, 152, 4)), (NtStatus::SUCCESS, 304, 152, 0));
        assert_eq!((number(list, 8, 4), &list[28..32], &list[180..184]), (3, &[192, 0, 2, 1][..], &[192, 0, 2, 9][..]));
        // 3.3.5.15.12: the values of the NEGOTIATE reply, signing that is required among them
        let body = Writer::default().u16(57).u16(0).u32(ControlCode::VALIDATE_NEGOTIATE_INFO.0).bytes(&[0xff; 16]);
        let (status, reply) =
            first.call(Command::IOCTL, &body.u32(120).u32(0).u32(0).u32(120).u32(0).u32(24).u32(1).u32(0).0);
        let mode = u64::from(SIGNING_ENABLED | SIGNING_REQUIRED);
        assert_eq!((status, number(&reply, 132, 2), number(&reply, 134, 2)), (NtStatus::SUCCESS, mode, 0x0302));

        let second = || {
            let mut pair = Pair::on(&share, Dialect::SMB_3_0_2);
            pair.negotiate();
            (pair.binds, pair.session, pair.tree, pair.signer) =
                (true, first.session, first.tree, first.signer.clone());
            pair
        };
        // 3.3.5.5.2: requests that are refused
        let refused = |change: fn(&mut Pair)| {
            let mut pair = second();
            change(&mut pair);
            pair.log_on(Some("secret"))
        };
        assert_eq!(refused(|pair| pair.signer = None), NtStatus::INVALID_PARAMETER, "not signed");
        assert_eq!(refused(|pair| pair.session += 1), NtStatus::USER_SESSION_DELETED, "there is no such session");
        let other = Protection::new(false, Dialect::SMB_3_0_2, None, None, &Key::of([7; 16]), &PreauthHash::START);
        let mut pair = second();
        pair.signer = other.signer().cloned();
        assert_eq!(pair.log_on(Some("secret")), NtStatus::ACCESS_DENIED, "signed by somebody else");
        let mut pair = Pair::on(&share, Dialect::SMB_3_0);
        pair.negotiate();
        (pair.binds, pair.session, pair.signer) = (true, first.session, first.signer.clone());
        assert_eq!(pair.log_on(Some("secret")), NtStatus::INVALID_PARAMETER, "another dialect");
        assert_eq!(second().log_on(Some("guess")), NtStatus::LOGON_FAILURE);

        let mut pair = second();
        assert_eq!(pair.log_on(Some("secret")), NtStatus::SUCCESS);
        let wrong = pair.read(file, 0, 1).0;
        assert_eq!(wrong, NtStatus::ACCESS_DENIED, "a channel has a key of its own");
        pair.signer = signer_of(&pair);
        let (status, reply) = pair.call(Command::READ, &read_body(file, 5, 3, &[]));
        assert_eq!((status, &reply[80..]), (NtStatus::SUCCESS, &[7; 3][..]), "files and trees are the session's");
        assert!(signer_of(&pair).unwrap().verify(&reply));
        assert_eq!(pair.log_on(Some("secret")), NtStatus::REQUEST_NOT_ACCEPTED, "bound already");
        // the session outlives the connection that began it
        let session = first.session;
        drop(first);
        assert_eq!(pair.read(file, 0, 3), (NtStatus::SUCCESS, vec![7; 3]));
        let signer = signer_of(&pair).unwrap();
        let (status, reply) = pair.call(Command::LOGOFF, &[4, 0, 0, 0]);
        assert!(status == NtStatus::SUCCESS && signer.verify(&reply), "the last reply of a session is signed too");
        assert_eq!(pair.read(file, 0, 3).0, NtStatus::USER_SESSION_DELETED);
        assert!(!share.sessions.all().contains_key(&session));
    }

    #[test]
    fn a_logoff_ends_the_session_on_all_of_its_channels_and_the_last_connection_closes_its_files() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("f"), "hello").unwrap();
        let users = Users::Password(rdmascope_analyzer::keys::ntlm::nt_hash("secret"));
        let share = Arc::new(Share::new("share", Storage::folder(folder.path()).unwrap(), true, users));
        let logged_on = |first: Option<&Pair>| {
            // whose keys depend on every message before them
            let mut pair = Pair::on(&share, Dialect::SMB_3_1_1);
            pair.negotiate();
            if let Some(first) = first {
                (pair.binds, pair.session, pair.tree, pair.signer) =
                    (true, first.session, first.tree, first.signer.clone());
            }
            assert_eq!(pair.log_on(Some("secret")), NtStatus::SUCCESS);
            pair.signer = signer_of(&pair);
            pair
        };
        let mut first = logged_on(None);
        assert_eq!(first.tree_connect(), NtStatus::SUCCESS);
        let mut second = logged_on(Some(&first));
        let (status, file) =
            first.create("f", access::READ | access::WRITE | access::DELETE, disposition::OPEN, DELETE_ON_CLOSE);
        assert_eq!((status, second.read(file, 0, 5)), (NtStatus::SUCCESS, (NtStatus::SUCCESS, b"hello".to_vec())));
        drop(first);
        assert!(folder.path().join("f").exists(), "one channel is left");
        drop(second);
        assert!(!folder.path().join("f").exists() && share.sessions.all().is_empty());
        let (mut first, mut second);
        first = logged_on(None);
        second = logged_on(Some(&first));
        assert_eq!(first.call(Command::LOGOFF, &[4, 0, 0, 0]).0, NtStatus::SUCCESS);
        assert_eq!(second.tree_connect(), NtStatus::USER_SESSION_DELETED);
        assert!(!second.server.is_logged_on());
    }

    #[test]
    fn no_session_of_a_guest_takes_another_channel() {
        let share = Arc::new(big(Users::Guests));
        let mut first = Pair::on(&share, Dialect::SMB_3_0);
        first.negotiate();
        assert_eq!(
            (first.log_on(None), first.server.capabilities & capabilities::MULTI_CHANNEL),
            (NtStatus::SUCCESS, 0)
        );
        let other = Protection::new(false, Dialect::SMB_3_0, None, None, &Key::of([7; 16]), &PreauthHash::START);
        let mut second = Pair::on(&share, Dialect::SMB_3_0);
        second.negotiate();
        (second.binds, second.session, second.signer) = (true, first.session, other.signer().cloned());
        assert_eq!(second.log_on(None), NtStatus::USER_SESSION_DELETED);
    }
}
