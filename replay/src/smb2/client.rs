//! An SMB2 client session over SMB Direct, \[MS-SMB2\] 3.2: dialects 3.0, 3.0.2 and 3.1.1; NTLMv2, Kerberos or
//! anonymous; signed, and encrypted if the server or the user requires it. Data moved by RDMA is protected as well, if
//! both ends support that ([`super::transform`]).

use super::protection::Protection;
use super::transform::{self, Crypto};
use super::{Credentials, Writer, context, filetime, header, message, utf16};
use crate::error::{Error, Result};
#[cfg(feature = "kerberos")]
use crate::kerberos::{Credential, Initiator};
use crate::random::random;
use crate::smbd::Endpoint;
use crate::stack::{Event, SmbDirect};
use crate::transport::{Handle, Rights};
use rdmascope_analyzer::credits::{Fault, Ledger, charge_of as charge};
use rdmascope_analyzer::keys::derive::PreauthHash;
use rdmascope_analyzer::keys::ntlm::{self, Account};
use rdmascope_analyzer::keys::{CipherId, Dialect, Key, SigningAlgorithm};
use rdmascope_dissector::field::Fields;
use rdmascope_dissector::trace::Off;
use rdmascope_dissector::wire::smb2::header::{Header, Ids, flags};
use rdmascope_dissector::wire::smb2::negotiate::security_mode::{SIGNING_ENABLED, SIGNING_REQUIRED};
use rdmascope_dissector::wire::smb2::negotiate::{self, ContextType, RdmaTransformId, capabilities};
use rdmascope_dissector::wire::smb2::rdma_channel::{Channel as RdmaChannel, TransformType};
use rdmascope_dissector::wire::smb2::session::flags::{ENCRYPT_DATA, IS_GUEST, IS_NULL};
use rdmascope_dissector::wire::smb2::tree::TreeConnectResponse;
use rdmascope_dissector::wire::smb2::{Command, FileId, Framing, NtStatus, create, read_write, spnego};
use rdmascope_dissector::wire::smbd::BufferDescriptorV1;
use std::collections::HashMap;
#[cfg(feature = "kerberos")]
use std::time::SystemTime;
use std::time::{Duration, Instant};

/// Default time to wait for a reply.
pub const REPLY_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of replies that are kept: unsolicited ones and those out of order.
const INBOX_MAX: usize = 8192;
/// Maximum number of faults of replies that are kept.
const FAULTS_MAX: usize = 64;
/// SMB2 credits requested in each request.
const CREDITS: u16 = 256;
const SECURITY_MODE: u16 = SIGNING_ENABLED as u16;
const CAPABILITIES: u32 = capabilities::LARGE_MTU | capabilities::ENCRYPTION;
const SHARE_FLAG_ENCRYPT: u32 = <TreeConnectResponse as Fields>::Bits::encrypt_data.mask as u32;
const HASH_SHA512: u16 = 1;
const SESSION_SETUP: &str = "SESSION_SETUP";

/// Access mask of a CREATE.
pub mod access {
    use rdmascope_dissector::wire::smb2::access::rights;

    /// Read data, attributes and extended attributes; synchronize.
    pub const READ: u32 = rights::FILE_GENERIC_READ;
    /// Write and append data, write attributes and extended attributes, read attributes; synchronize.
    pub const WRITE: u32 = rights::FILE_GENERIC_WRITE | rights::READ_ATTRIBUTES;
    /// Delete.
    pub const DELETE: u32 = rights::DELETE;
    /// Attributes only.
    pub const ATTRIBUTES: u32 = rights::READ_ATTRIBUTES | rights::SYNCHRONIZE;
}

/// CreateDisposition: the action of a CREATE if the file exists or not, \[MS-SMB2\] 2.2.13.
pub mod disposition {
    use rdmascope_dissector::wire::smb2::create::CreateDisposition;

    /// Open; fail if it does not exist.
    pub const OPEN: u32 = CreateDisposition::OPEN.0;
    /// Create; fail if it exists.
    pub const CREATE: u32 = CreateDisposition::CREATE.0;
    /// Open, or create.
    pub const OPEN_IF: u32 = CreateDisposition::OPEN_IF.0;
    /// Overwrite, or create.
    pub const OVERWRITE_IF: u32 = CreateDisposition::OVERWRITE_IF.0;
}

/// A file that is open.
#[derive(Clone, Copy, Debug)]
pub struct Opened {
    /// FileId of the open file.
    pub id: FileId,
    /// Length of the file, in bytes.
    pub end_of_file: u64,
    /// FILE_ATTRIBUTE bits.
    pub attributes: u32,
}

/// Result of a READ.
#[derive(Clone, Debug)]
pub struct ReadData {
    /// The bytes.
    pub data: Vec<u8>,
    /// True if the reply invalidated our key.
    pub invalidated: bool,
    /// Transform that the server applied to the data that came by RDMA.
    pub transform: Option<TransformType>,
}

/// An entry of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Name in the directory.
    pub name: String,
    /// Length of the file, in bytes.
    pub end_of_file: u64,
    /// FILE_ATTRIBUTE bits.
    pub attributes: u32,
}

/// A reply.
#[derive(Clone, Debug)]
pub struct Reply {
    /// Header of the reply.
    pub header: Header,
    /// The whole message.
    pub bytes: Vec<u8>,
    /// Our key that it invalidated.
    pub invalidated: Option<u32>,
    /// Time of arrival.
    pub arrived: Instant,
    /// True if it was encrypted.
    pub sealed: bool,
}

/// An outstanding request. If it is dropped, its reply is never read, and its memory stays open to the server.
#[derive(Debug)]
#[must_use]
pub struct Pending {
    id: u64,
    what: &'static str,
    begun: Instant,
    memory: Option<Handle>,
    /// Bytes to be moved.
    length: u32,
}

impl Reply {
    /// NTSTATUS of the reply.
    pub fn status(&self) -> NtStatus {
        self.header.status()
    }
}

/// Numbers of signed replies, by the result of verifying them, \[MS-SMB2\] 3.1.5.1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Signatures {
    /// Those of the message.
    pub right: u64,
    /// Made with the right key, over the message and four bytes before it that were not sent: the length that the
    /// message would have on TCP. Linux's ksmbd (seen with 6.12) signs READ replies as two buffers, the reply and its
    /// data. If there is no data (it went by RDMA, or the READ failed) it signs the two buffers that end with the
    /// reply, and the first of these is that length.
    pub with_length: u64,
    /// Neither.
    pub wrong: u64,
}

impl std::fmt::Display for Signatures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "signatures: {} right", self.right)?;
        if self.with_length > 0 {
            write!(
                f,
                ", {} made over a length that was not sent as well (as ksmbd does for a READ without data)",
                self.with_length
            )?;
        }
        if self.wrong > 0 { write!(f, ", {} wrong", self.wrong) } else { Ok(()) }
    }
}

/// Options of a session.
#[derive(Clone, Debug)]
pub struct Options {
    /// Dialects to offer, in ascending order.
    pub dialects: Vec<Dialect>,
    /// Time to wait for a reply.
    pub timeout: Duration,
    /// Sign every request, not only those that must be signed.
    pub sign: bool,
    /// Encrypt every request if possible, even if the server does not require it.
    pub encrypt: bool,
    /// Ciphers to offer in dialect 3.1.1, the best first.
    pub ciphers: Vec<CipherId>,
    /// Signing algorithms to offer in dialect 3.1.1, the best first.
    pub signing: Vec<SigningAlgorithm>,
    /// RDMA transforms to offer in dialect 3.1.1: data is encrypted if requests are, else signed if they are.
    pub transforms: Vec<RdmaTransformId>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            dialects: vec![Dialect::SMB_3_0, Dialect::SMB_3_0_2, Dialect::SMB_3_1_1],
            timeout: REPLY_TIMEOUT,
            sign: true,
            encrypt: false,
            ciphers: vec![CipherId::AES_128_GCM, CipherId::AES_128_CCM, CipherId::AES_256_GCM, CipherId::AES_256_CCM],
            signing: vec![SigningAlgorithm::AES_GMAC, SigningAlgorithm::AES_CMAC],
            transforms: vec![RdmaTransformId::ENCRYPTION, RdmaTransformId::SIGNING],
        }
    }
}

/// Requests that are to go in one message, \[MS-SMB2\] 3.2.4.1.4.
#[derive(Debug)]
struct Compound {
    related: bool,
    requests: Vec<Vec<u8>>,
}

/// A client on one connection, with one session and one tree at a time.
#[derive(Debug)]
pub struct Client {
    channel: SmbDirect,
    options: Options,
    ledger: Ledger,
    inbox: HashMap<u64, Reply>,
    dialect: Dialect,
    cipher_id: Option<CipherId>,
    signing: Option<SigningAlgorithm>,
    transforms: Vec<RdmaTransformId>,
    guid: [u8; 16],
    /// The server's values for the validation of the negotiation.
    server: Vec<u8>,
    hash: PreauthHash,
    session_id: u64,
    tree_id: u32,
    protection: Protection,
    encrypt: bool,
    /// The server requires signatures.
    must_sign: bool,
    /// Largest READ of the server.
    pub max_read_size: u32,
    /// Largest WRITE of the server.
    pub max_write_size: u32,
    /// Results of verifying the signatures of replies.
    pub signatures: Signatures,
    /// Requests that are to go in one message.
    compound: Option<Compound>,
    /// Faults in the credits and message ids of replies.
    faults: Vec<Fault>,
    /// Duration of the last call.
    pub latency: Duration,
}

impl Client {
    /// Waits until SMB Direct is established, and negotiates a dialect.
    ///
    /// # Errors
    /// If the connection fails, or the server has no dialect in common with us.
    pub fn negotiate(mut channel: SmbDirect, options: Options) -> Result<Self> {
        let until = Instant::now() + options.timeout;
        loop {
            match channel.poll(until.saturating_duration_since(Instant::now()))? {
                Some(Event::Established) => break,
                Some(Event::Closed(why)) => return Err(why.into()),
                Some(_) => {}
                None => {
                    return Err(Error::Timeout {
                        what: "the SMB Direct negotiation",
                        seconds: options.timeout.as_secs(),
                    });
                }
            }
        }
        let mut client = Self {
            channel,
            ledger: Ledger::new(),
            inbox: HashMap::new(),
            dialect: Dialect::SMB_3_0,
            cipher_id: None,
            signing: None,
            transforms: Vec::new(),
            guid: random()?,
            server: Vec::new(),
            hash: PreauthHash::START,
            session_id: 0,
            tree_id: 0,
            protection: Protection::default(),
            encrypt: false,
            must_sign: false,
            max_read_size: 65_536,
            max_write_size: 65_536,
            signatures: Signatures::default(),
            compound: None,
            faults: Vec::new(),
            latency: Duration::ZERO,
            options,
        };
        client.negotiate_dialect()?;
        Ok(client)
    }

    fn negotiate_dialect(&mut self) -> Result<()> {
        const WHAT: &str = "NEGOTIATE";
        let dialects = self.options.dialects.clone();
        let newest = dialects.contains(&Dialect::SMB_3_1_1);
        let mut dialect_bytes = Vec::new();
        for dialect in &dialects {
            dialect_bytes.extend_from_slice(&dialect.0.to_le_bytes());
        }
        let contexts_at = (Header::LEN + 36 + dialect_bytes.len()).next_multiple_of(8);
        let body = Writer::default()
            .u16(36)
            .u16(dialects.len() as u16)
            .u16(SECURITY_MODE)
            .u16(0)
            .u32(CAPABILITIES)
            .bytes(&self.guid);
        let (mut contexts, mut count) = (Vec::new(), 0);
        if newest {
            let salt = random::<32>()?;
            context(&mut contexts, 1, &Writer::default().u16(1).u16(32).u16(HASH_SHA512).bytes(&salt).0);
            count = 1;
            let Options { ciphers, signing, transforms, .. } = &self.options;
            let lists: [(u16, usize, Vec<u16>); 3] = [
                (2, 0, ciphers.iter().map(|id| id.0).collect()),
                (8, 0, signing.iter().map(|id| id.0).collect()),
                // two reserved fields
                (7, 6, transforms.iter().map(|id| id.0).collect()),
            ];
            for (kind, reserved, ids) in lists.into_iter().filter(|(.., ids)| !ids.is_empty()) {
                let list = Writer::default().u16(ids.len() as u16).bytes(&[0; 6][..reserved]);
                context(&mut contexts, kind, &ids.into_iter().fold(list, Writer::u16).0);
                count += 1;
            }
        }
        let mut body =
            if newest { body.u32(contexts_at as u32).u16(count).u16(0) } else { body.u64(0) }.bytes(&dialect_bytes).0;
        if newest {
            body.resize(contexts_at - Header::LEN, 0);
            body.extend_from_slice(&contexts);
        }
        let (request, reply) = self.exchange(Command::NEGOTIATE, &body, 1, WHAT)?;
        self.hash.add(&request);
        self.hash.add(&reply.bytes);
        let Ok((_, response)) = negotiate::response(&reply.bytes, &mut Off) else {
            return Err(Error::Answer { what: WHAT, why: "cannot be read" });
        };
        let dialect = Dialect(response.fixed.dialect);
        if !dialects.contains(&dialect) {
            return Err(Error::Answer { what: WHAT, why: "chooses a dialect that was not offered" });
        }
        self.dialect = dialect;
        let fixed = &response.fixed;
        let server = Writer::default().u32(fixed.capabilities).bytes(&fixed.server_guid);
        self.server = server.u16(fixed.security_mode.into()).u16(dialect.0).0;
        self.must_sign = response.fixed.security_mode & SIGNING_REQUIRED != 0;
        self.max_read_size = response.fixed.max_read_size;
        self.max_write_size = response.fixed.max_write_size;
        if dialect == Dialect::SMB_3_1_1 {
            for c in response.contexts {
                match c.context_type {
                    ContextType::ENCRYPTION => self.cipher_id = c.ids().next().map(CipherId),
                    ContextType::SIGNING => self.signing = c.ids().next().map(SigningAlgorithm),
                    ContextType::RDMA_TRANSFORM => self.transforms = c.ids().map(RdmaTransformId).collect(),
                    _ => {}
                }
            }
            // transforms that were not offered are not used
            self.transforms.retain(|id| self.options.transforms.contains(id));
        } else if response.fixed.encryption() {
            self.cipher_id = Some(CipherId::AES_128_CCM);
        }
        Ok(())
    }

    /// Opens a session.
    ///
    /// # Errors
    /// If the server refuses, [`Error::Status`].
    pub fn session_setup(&mut self, who: &Credentials) -> Result<()> {
        let (reply, key) = match who {
            Credentials::Anonymous => self.log_on_by_ntlm(None)?,
            Credentials::Password(account) => self.log_on_by_ntlm(Some(account))?,
            #[cfg(feature = "kerberos")]
            Credentials::Kerberos(ticket) => self.log_on_by_kerberos(ticket)?,
        };
        let session_flags = number(&reply.bytes, Header::LEN + 2, 2) as u16;
        if session_flags & (IS_GUEST | IS_NULL) != 0 || matches!(who, Credentials::Anonymous) {
            return Ok(());
        }
        self.protection = Protection::new(false, self.dialect, self.cipher_id, self.signing, &key, &self.hash);
        // the last reply is signed with the key that it makes: this proves that the server knows it
        if reply.header.is_signed() && self.protection.signer().is_some_and(|s| !s.verify(&reply.bytes)) {
            return Err(Error::Answer { what: SESSION_SETUP, why: "has a wrong signature" });
        }
        self.encrypt = session_flags & ENCRYPT_DATA != 0 || self.options.encrypt && self.protection.has_ciphers();
        Ok(())
    }

    /// One request of authentication and its reply. The hash includes the request, and the reply if more of them
    /// follow.
    fn authenticate(&mut self, token: &[u8]) -> Result<Reply> {
        let request = self.post(Command::SESSION_SETUP, &setup_body(token), 1)?;
        self.hash.add(&request.1);
        let reply = self.wait(request.0, SESSION_SETUP)?;
        match reply.status() {
            NtStatus::SUCCESS => {}
            NtStatus::MORE_PROCESSING_REQUIRED => self.hash.add(&reply.bytes),
            status => {
                self.session_id = 0;
                return Err(Error::Status { what: SESSION_SETUP, status });
            }
        }
        self.session_id = reply.header.session_id;
        Ok(reply)
    }

    /// NTLM, \[MS-NLMP\], with an account or anonymous: the last reply and the session key.
    fn log_on_by_ntlm(&mut self, account: Option<&Account>) -> Result<(Reply, Key)> {
        let reply = self.authenticate(&spnego::emit_init(&[spnego::NTLMSSP], Some(&ntlm::emit_negotiate())))?;
        let token = setup_token(&reply.bytes).unwrap_or_default();
        let Some((2, challenge)) = ntlm::find(token) else {
            return Err(Error::Answer { what: SESSION_SETUP, why: "has no NTLM challenge" });
        };
        let fresh = ntlm::Fresh { client_challenge: random()?, session_key: random()?, filetime: filetime() };
        let Some((message, key)) = ntlm::emit_authenticate(challenge, account, &fresh) else {
            return Err(Error::Answer { what: SESSION_SETUP, why: "has an invalid NTLM challenge" });
        };
        let reply = self.authenticate(&spnego::emit_response(None, None, Some(&message)))?;
        if reply.status() != NtStatus::SUCCESS {
            return Err(Error::Status { what: SESSION_SETUP, status: reply.status() });
        }
        Ok((reply, key))
    }

    /// Kerberos, with a ticket for the server: the reply and the session key.
    #[cfg(feature = "kerberos")]
    fn log_on_by_kerberos(&mut self, ticket: &Credential) -> Result<(Reply, Key)> {
        let (shown, token) = Initiator::begin(ticket, SystemTime::now())?;
        let reply = self.authenticate(&token)?;
        let key = shown.finish(setup_token(&reply.bytes).unwrap_or_default())?;
        if reply.status() != NtStatus::SUCCESS {
            return Err(Error::Status { what: SESSION_SETUP, status: reply.status() });
        }
        Ok((reply, key))
    }

    /// Connects to a share of the server.
    ///
    /// # Errors
    /// If the server refuses.
    pub fn tree_connect(&mut self, host: &str, share: &str) -> Result<()> {
        let path = utf16(&format!("\\\\{host}\\{share}"));
        let body = Writer::default().u16(9).u16(0).u16(72).u16(path.len() as u16).bytes(&path).0;
        let reply = self.call(Command::TREE_CONNECT, &body, "TREE_CONNECT")?;
        self.tree_id = reply.header.tree_id().unwrap_or(0);
        if number(&reply.bytes, Header::LEN + 4, 4) as u32 & SHARE_FLAG_ENCRYPT != 0 {
            self.encrypt = true;
        }
        Ok(())
    }

    // ---- requests, each in two halves: `start_…` sends it, `finish_…` waits for its reply; several may be outstanding

    /// Opens or creates a file; `options` are CREATE's CreateOptions. An empty name is the share itself.
    ///
    /// # Errors
    /// If the server refuses.
    pub fn create(&mut self, name: &str, access: u32, disposition: u32, options: u32) -> Result<Opened> {
        let pending = self.start_create(name, access, disposition, options)?;
        self.finish_create(pending)
    }

    /// The first half of [`Client::create`].
    ///
    /// # Errors
    /// If the connection fails.
    pub fn start_create(&mut self, name: &str, access: u32, disposition: u32, options: u32) -> Result<Pending> {
        let name = utf16(name.trim_matches('\\'));
        let mut body = Vec::new();
        create::CreateRequestFixed {
            structure_size: 57,
            security_flags: 0,
            oplock_level: 0,
            impersonation_level: 2,
            create_flags: 0,
            reserved: [0; 8],
            desired_access: access,
            file_attributes: 0,
            // read, write, delete
            share_access: 7,
            create_disposition: disposition,
            create_options: options,
            name_offset: 120,
            name_length: name.len() as u16,
            contexts_offset: 0,
            contexts_length: 0,
        }
        .emit(&mut body);
        // there is always one byte at least
        if name.is_empty() {
            body.push(0);
        }
        body.extend_from_slice(&name);
        self.start(Command::CREATE, &body, 1, "CREATE")
    }

    /// The second half of [`Client::create`].
    ///
    /// # Errors
    /// If the server refuses.
    pub fn finish_create(&mut self, pending: Pending) -> Result<Opened> {
        let reply = self.finish_success(pending)?;
        let Ok((_, response)) = create::response(&reply.bytes, &mut Off) else {
            return Err(Error::Answer { what: "CREATE", why: "cannot be read" });
        };
        Ok(Opened {
            id: response.file(),
            end_of_file: response.fixed.end_of_file,
            attributes: response.fixed.file_attributes,
        })
    }

    /// Lets the server write `length` bytes of a file into our memory. The reply may invalidate the key if `channel`
    /// allows it.
    ///
    /// # Errors
    /// If the server refuses, also at the end of the file.
    pub fn read_rdma(&mut self, file: FileId, offset: u64, length: u32, channel: RdmaChannel) -> Result<ReadData> {
        let pending = self.start_read(file, offset, length, channel)?;
        self.finish_read(pending)
    }

    /// Reads inside of the messages.
    ///
    /// # Errors
    /// If the server refuses, also at the end of the file.
    pub fn read_inline(&mut self, file: FileId, offset: u64, length: u32) -> Result<ReadData> {
        self.read_rdma(file, offset, length, RdmaChannel::NONE)
    }

    /// The first half of a READ, over RDMA or inline.
    ///
    /// # Errors
    /// If the connection fails.
    pub fn start_read(&mut self, file: FileId, offset: u64, length: u32, channel: RdmaChannel) -> Result<Pending> {
        let channel = self.understood(channel);
        if channel == RdmaChannel::NONE {
            return self.start_read_with(file, offset, length, channel, &[]);
        }
        let memory =
            self.channel.stack().register(vec![0; length as usize], Rights::REMOTE_WRITE).ok_or(Error::Memory)?;
        match self.start_read_with(file, offset, length, channel, &descriptor(memory)) {
            Ok(pending) => Ok(Pending { memory: Some(memory), ..self.granted(pending, &[memory]) }),
            Err(e) => {
                self.channel.stack().deregister(memory.key);
                Err(e)
            }
        }
    }

    /// For the recording of a card's connection: a request grants the server access to this memory.
    pub(crate) fn granted(&mut self, pending: Pending, memory: &[Handle]) -> Pending {
        self.channel.granted(pending.id, memory);
        pending
    }

    /// The second half of a READ.
    ///
    /// # Errors
    /// If the server refuses, also at the end of the file.
    pub fn finish_read(&mut self, pending: Pending) -> Result<ReadData> {
        let (memory, length) = (pending.memory, pending.length);
        let result = self.finish_success(pending);
        let Some(memory) = memory else {
            let reply = result?;
            return match read_write::read_response(&reply.bytes, &mut Off) {
                Ok((_, response)) => {
                    Ok(ReadData { data: response.data.bytes.to_vec(), invalidated: false, transform: None })
                }
                Err(_) => Err(Error::Answer { what: "READ", why: "cannot be read" }),
            };
        };
        let written = self.channel.stack().transport().written(memory.key);
        // in any case the memory is ours again
        let mut data = self.channel.stack().deregister(memory.key).unwrap_or_default();
        let reply = result?;
        let Ok((_, fixed)) = read_write::ReadResponseFixed::parse(&reply.bytes[Header::LEN..], &mut Off) else {
            return Err(Error::Answer { what: "READ", why: "cannot be read" });
        };
        if fixed.data_remaining > length {
            return Err(Error::Answer { what: "READ", why: "reports more bytes written than were asked for" });
        }
        if written.is_some_and(|written| written != u64::from(fixed.data_remaining)) {
            return Err(Error::Answer { what: "READ", why: "does not say how many bytes RDMA wrote" });
        }
        data.truncate(fixed.data_remaining as usize);
        let transform = self.undo(&reply, &mut data)?;
        Ok(ReadData { data, invalidated: reply.invalidated == Some(memory.key), transform })
    }

    /// Undoes the server's transform of the data that it wrote by RDMA, \[MS-SMB2\] 3.2.5.11.
    fn undo(&self, reply: &Reply, data: &mut [u8]) -> Result<Option<TransformType>> {
        let wrong = |why| Err(Error::Answer { what: "READ", why });
        let transform = read_write::read_response(&reply.bytes, &mut Off).ok().and_then(|(_, r)| r.transform());
        let Some(transform) = transform else {
            return match reply.sealed && !data.is_empty() && self.has_transform(RdmaTransformId::ENCRYPTION) {
                true => wrong("is encrypted, and its data went over RDMA in the clear"),
                false => Ok(None),
            };
        };
        let Some(crypto) =
            transform::only(&transform, self.protection.nonce_len()).filter(|c| self.has_transform(c.needs()))
        else {
            return wrong("has an RDMA transform that was not agreed on, or that is invalid");
        };
        if (crypto.kind == TransformType::ENCRYPTION) != reply.sealed {
            return wrong("has an RDMA transform that differs from that of the message");
        }
        if self.protection.open_data(&crypto, data) {
            Ok(Some(crypto.kind))
        } else {
            wrong("came with RDMA data whose signature or tag is wrong")
        }
    }

    /// Applies the transform for data of our request that goes by RDMA: encrypts or signs it in memory, where the
    /// server fetches it. `None` if no transform is needed.
    ///
    /// # Errors
    /// If it cannot be encrypted or signed.
    pub fn protect(&mut self, data: &mut [u8]) -> Result<Option<Crypto>> {
        let crypto = if self.encrypt && self.has_transform(RdmaTransformId::ENCRYPTION) {
            self.seal(data)
        } else if !self.encrypt && self.signs() && self.has_transform(RdmaTransformId::SIGNING) {
            self.sign(data)
        } else {
            return Ok(None);
        };
        crypto.ok_or(Error::Protect).map(Some)
    }

    /// Encrypts data as [`Client::protect`] does, even if that was not negotiated.
    pub fn seal(&mut self, data: &mut [u8]) -> Option<Crypto> {
        self.protection.seal_data(data)
    }

    /// Signs data as [`Client::protect`] does, even if that was not negotiated.
    pub fn sign(&mut self, data: &[u8]) -> Option<Crypto> {
        self.protection.sign_data(data)
    }

    /// True if this transform was negotiated for data that goes by RDMA.
    pub fn has_transform(&self, id: RdmaTransformId) -> bool {
        self.transforms.contains(&id)
    }

    /// True if requests are encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.encrypt
    }

    /// The cipher agreed on.
    pub fn cipher(&self) -> Option<CipherId> {
        self.cipher_id
    }

    /// The signing algorithm agreed on.
    pub fn signing(&self) -> SigningAlgorithm {
        self.signing.unwrap_or_else(|| SigningAlgorithm::of_dialect(self.dialect))
    }

    fn signs(&self) -> bool {
        self.protection.signer().is_some() && (self.options.sign || self.must_sign)
    }

    /// The channel that the connection and the session allow in place of `channel`. Remote invalidation came with
    /// dialect 3.0.2, and cards can end regions in this way only if they have memory windows. Data of an encrypted
    /// session does not go over RDMA in the clear.
    pub fn understood(&self, channel: RdmaChannel) -> RdmaChannel {
        if self.encrypt && !self.has_transform(RdmaTransformId::ENCRYPTION) {
            return RdmaChannel::NONE;
        }
        let cannot = self.dialect == Dialect::SMB_3_0 || !self.channel.can_be_invalidated();
        if channel == RdmaChannel::RDMA_V1_INVALIDATE && cannot { RdmaChannel::RDMA_V1 } else { channel }
    }

    /// A READ with any channel information; [`Client::finish`] returns its reply.
    ///
    /// # Errors
    /// If the connection fails.
    pub fn start_read_with(
        &mut self,
        file: FileId,
        offset: u64,
        length: u32,
        channel: RdmaChannel,
        info: &[u8],
    ) -> Result<Pending> {
        let mut body = Vec::new();
        read_write::ReadRequestFixed {
            structure_size: 49,
            padding: 0x50,
            flags: 0,
            length,
            offset,
            file_id: file.0,
            minimum_count: 0,
            channel: channel.0,
            remaining_bytes: 0,
            channel_info_offset: if info.is_empty() { 0 } else { 112 },
            channel_info_length: info.len() as u16,
        }
        .emit(&mut body);
        body.extend_from_slice(if info.is_empty() { &[0] } else { info });
        let pending = self.start(Command::READ, &body, charge(length), "READ")?;
        Ok(Pending { length, ..pending })
    }

    /// Lets the server read `data` from our memory into a file. Returns the number of bytes that it read, and whether
    /// the reply invalidated the key.
    ///
    /// # Errors
    /// If the server refuses.
    pub fn write_rdma(
        &mut self,
        file: FileId,
        offset: u64,
        data: Vec<u8>,
        channel: RdmaChannel,
    ) -> Result<(u32, bool)> {
        let pending = self.start_write(file, offset, data, channel)?;
        self.finish_write(pending)
    }

    /// Writes inside of the message; how many bytes the server took.
    ///
    /// # Errors
    /// If the server refuses.
    pub fn write_inline(&mut self, file: FileId, offset: u64, data: &[u8]) -> Result<u32> {
        let pending = self.start_write_with(file, offset, data, 0, RdmaChannel::NONE, &[])?;
        self.finish_write(pending).map(|(count, _)| count)
    }

    /// The first half of a WRITE, over RDMA or inline.
    ///
    /// # Errors
    /// If the connection fails.
    pub fn start_write(
        &mut self,
        file: FileId,
        offset: u64,
        mut data: Vec<u8>,
        channel: RdmaChannel,
    ) -> Result<Pending> {
        let channel = self.understood(channel);
        if channel == RdmaChannel::NONE {
            return self.start_write_with(file, offset, &data, 0, channel, &[]);
        }
        let length = data.len() as u32;
        let crypto = self.protect(&mut data)?;
        let memory = self.channel.stack().register(data, Rights::REMOTE_READ).ok_or(Error::Memory)?;
        let (channel, info) = match crypto {
            Some(crypto) => (RdmaChannel::RDMA_TRANSFORM, transform::emit(channel, &[crypto], &descriptor(memory))),
            None => (channel, descriptor(memory)),
        };
        match self.start_write_with(file, offset, &[], length, channel, &info) {
            Ok(pending) => Ok(Pending { memory: Some(memory), ..self.granted(pending, &[memory]) }),
            Err(e) => {
                self.channel.stack().deregister(memory.key);
                Err(e)
            }
        }
    }

    /// The second half of a WRITE: the number of bytes that the server took, and whether the reply invalidated the key.
    ///
    /// # Errors
    /// If the server refuses.
    pub fn finish_write(&mut self, pending: Pending) -> Result<(u32, bool)> {
        let (memory, length) = (pending.memory, pending.length);
        let result = self.finish_success(pending);
        if let Some(memory) = memory {
            self.channel.stack().deregister(memory.key);
        }
        let reply = result?;
        let count = number(&reply.bytes, Header::LEN + 4, 4) as u32;
        if count > length {
            return Err(Error::Answer { what: "WRITE", why: "reports more bytes than were written" });
        }
        Ok((count, memory.is_some_and(|m| reply.invalidated == Some(m.key))))
    }

    /// A WRITE with any channel information, which describes where the `remaining` bytes are; [`Client::finish`]
    /// returns its reply.
    ///
    /// # Errors
    /// If the connection fails.
    pub fn start_write_with(
        &mut self,
        file: FileId,
        offset: u64,
        data: &[u8],
        remaining: u32,
        channel: RdmaChannel,
        info: &[u8],
    ) -> Result<Pending> {
        let mut body = Vec::with_capacity(48 + data.len() + info.len() + 1);
        read_write::WriteRequestFixed {
            structure_size: 49,
            data_offset: if data.is_empty() { 0 } else { 112 },
            length: data.len() as u32,
            offset,
            file_id: file.0,
            channel: channel.0,
            remaining_bytes: remaining,
            channel_info_offset: if info.is_empty() { 0 } else { 112 },
            channel_info_length: info.len() as u16,
            flags: 0,
        }
        .emit(&mut body);
        body.extend_from_slice(data);
        body.extend_from_slice(info);
        if data.is_empty() && info.is_empty() {
            body.push(0);
        }
        let length = remaining.max(data.len() as u32);
        let pending = self.start(Command::WRITE, &body, charge(length), "WRITE")?;
        Ok(Pending { length, ..pending })
    }

    /// Closes a file.
    ///
    /// # Errors
    /// If the server refuses.
    pub fn close(&mut self, file: FileId) -> Result<()> {
        let pending = self.start_close(file)?;
        self.finish_success(pending).map(drop)
    }

    /// The first half of [`Client::close`]; [`Client::finish_success`] is the second.
    ///
    /// # Errors
    /// If the connection fails.
    pub fn start_close(&mut self, file: FileId) -> Result<Pending> {
        let body = Writer::default().u16(24).u16(0).u32(0).bytes(&file.0).0;
        self.start(Command::CLOSE, &body, 1, "CLOSE")
    }

    /// Flushes a file.
    ///
    /// # Errors
    /// If the server refuses.
    pub fn flush(&mut self, file: FileId) -> Result<()> {
        let pending = self.start_flush(file)?;
        self.finish_success(pending).map(drop)
    }

    /// The first half of [`Client::flush`]; [`Client::finish_success`] is the second.
    ///
    /// # Errors
    /// If the connection fails.
    pub fn start_flush(&mut self, file: FileId) -> Result<Pending> {
        let body = Writer::default().u16(24).u16(0).u32(0).bytes(&file.0).0;
        self.start(Command::FLUSH, &body, 1, "FLUSH")
    }

    /// All entries of an open folder that match a pattern.
    ///
    /// # Errors
    /// If the server refuses.
    pub fn list(&mut self, folder: FileId, pattern: &str) -> Result<Vec<Entry>> {
        const ENTRIES_MAX: usize = 1 << 20;
        let mut entries = Vec::new();
        while entries.len() < ENTRIES_MAX {
            match self.list_page(folder, pattern, entries.is_empty())? {
                Some(page) if !page.is_empty() => entries.extend(page),
                _ => break,
            }
        }
        Ok(entries)
    }

    /// The next entries of an open folder; the first ones with `restart`. `None` if there are no more.
    ///
    /// # Errors
    /// If the server refuses.
    pub fn list_page(&mut self, folder: FileId, pattern: &str, restart: bool) -> Result<Option<Vec<Entry>>> {
        let pending = self.start_list(folder, pattern, restart)?;
        self.finish_list(pending)
    }

    /// The first half of [`Client::list_page`].
    ///
    /// # Errors
    /// If the connection fails.
    pub fn start_list(&mut self, folder: FileId, pattern: &str, restart: bool) -> Result<Pending> {
        self.start_list_with(folder, pattern, restart.into(), 65_536)
    }

    /// The same with any flags (2.2.33), and this output buffer length.
    ///
    /// # Errors
    /// If the connection fails.
    pub fn start_list_with(&mut self, folder: FileId, pattern: &str, flags: u8, room: u32) -> Result<Pending> {
        const FILE_ID_BOTH_DIRECTORY: u8 = 37;
        let pattern = utf16(pattern);
        let body = Writer::default()
            .u16(33)
            .u8(FILE_ID_BOTH_DIRECTORY)
            .u8(flags)
            .u32(0)
            .bytes(&folder.0)
            .u16(96)
            .u16(pattern.len() as u16)
            .u32(room)
            .bytes(&pattern)
            .0;
        self.start(Command::QUERY_DIRECTORY, &body, charge(room), "QUERY_DIRECTORY")
    }

    /// The second half of [`Client::list_page`].
    ///
    /// # Errors
    /// If the server refuses.
    pub fn finish_list(&mut self, pending: Pending) -> Result<Option<Vec<Entry>>> {
        let reply = self.finish(pending)?;
        match reply.status() {
            NtStatus::SUCCESS => {}
            NtStatus::NO_MORE_FILES => return Ok(None),
            status => return Err(Error::Status { what: "QUERY_DIRECTORY", status }),
        }
        let mut entries = Vec::new();
        let mut rest = described(&reply.bytes);
        while rest.len() >= 104 {
            let name_length = number(rest, 60, 4) as usize;
            let name = rest.get(104..).map_or(&[][..], |b| &b[..name_length.min(b.len())]);
            entries.push(Entry {
                name: String::from_utf16_lossy(
                    &name.chunks_exact(2).map(|c| u16::from_le_bytes([c[0], c[1]])).collect::<Vec<_>>(),
                ),
                end_of_file: number(rest, 40, 8),
                attributes: number(rest, 56, 4) as u32,
            });
            match number(rest, 0, 4) as usize {
                0 => break,
                next => rest = rest.get(next..).unwrap_or_default(),
            }
        }
        Ok(Some(entries))
    }

    /// Information on an open file: type (1 file, 2 file system, 3 security) and class.
    ///
    /// # Errors
    /// If the server refuses.
    pub fn query_info(&mut self, file: FileId, info_type: u8, class: u8, room: u32) -> Result<Vec<u8>> {
        let pending = self.start_query_info(file, info_type, class, room)?;
        let reply = self.finish_success(pending)?;
        Ok(described(&reply.bytes).to_vec())
    }

    /// The first half of [`Client::query_info`]; [`Client::finish_success`] returns the reply.
    ///
    /// # Errors
    /// If the connection fails.
    pub fn start_query_info(&mut self, file: FileId, info_type: u8, class: u8, room: u32) -> Result<Pending> {
        self.start_query_info_with(file, info_type, class, room, (0, 0), &[])
    }

    /// The same with AdditionalInformation, Flags, and an input buffer (names of extended attributes, for example).
    ///
    /// # Errors
    /// If the connection fails.
    pub fn start_query_info_with(
        &mut self,
        file: FileId,
        info_type: u8,
        class: u8,
        room: u32,
        (additional, flags): (u32, u32),
        input: &[u8],
    ) -> Result<Pending> {
        let at = if input.is_empty() { 0 } else { 104 };
        let body = Writer::default()
            .u16(41)
            .u8(info_type)
            .u8(class)
            .u32(room)
            .u16(at)
            .u16(0)
            .u32(input.len() as u32)
            .u32(additional);
        let body = body.u32(flags).bytes(&file.0).bytes(if input.is_empty() { &[0] } else { input }).0;
        self.start(Command::QUERY_INFO, &body, charge(room.max(input.len() as u32)), "QUERY_INFO")
    }

    /// Sets information on an open file: type and class as in [`Client::query_info`].
    ///
    /// # Errors
    /// If the server refuses.
    pub fn set_info(&mut self, file: FileId, info_type: u8, class: u8, info: &[u8]) -> Result<()> {
        let pending = self.start_set_info(file, info_type, class, 0, info)?;
        self.finish_success(pending).map(drop)
    }

    /// The first half of [`Client::set_info`]; [`Client::finish_success`] is the second. `additional` is
    /// AdditionalInformation.
    ///
    /// # Errors
    /// If the connection fails.
    pub fn start_set_info(
        &mut self,
        file: FileId,
        info_type: u8,
        class: u8,
        additional: u32,
        info: &[u8],
    ) -> Result<Pending> {
        let head = Writer::default()
            .u16(33)
            .u8(info_type)
            .u8(class)
            .u32(info.len() as u32)
            .u16(96)
            .u16(0)
            .u32(additional)
            .bytes(&file.0);
        self.start(Command::SET_INFO, &head.bytes(info).0, charge(info.len() as u32), "SET_INFO")
    }

    /// Sends a control code to an open file, and returns the output.
    ///
    /// # Errors
    /// If the server refuses.
    pub fn ioctl(&mut self, file: FileId, code: u32, input: &[u8], room: u32) -> Result<Vec<u8>> {
        let pending = self.start_ioctl(file, code, input, room)?;
        self.finish_ioctl(pending)
    }

    /// The first half of [`Client::ioctl`]. Requests without a file use [`FileId::PREVIOUS`], all ones.
    ///
    /// # Errors
    /// If the connection fails.
    pub fn start_ioctl(&mut self, file: FileId, code: u32, input: &[u8], room: u32) -> Result<Pending> {
        let at = if input.is_empty() { 0 } else { 120 };
        let body = Writer::default().u16(57).u16(0).u32(code).bytes(&file.0).u32(at).u32(input.len() as u32).u32(0);
        // a file system control
        let body = body.u32(0).u32(0).u32(room).u32(1).u32(0).bytes(input).0;
        self.start(Command::IOCTL, &body, charge(room.max(input.len() as u32)), "IOCTL")
    }

    /// The second half of [`Client::ioctl`].
    ///
    /// # Errors
    /// If the server refuses.
    pub fn finish_ioctl(&mut self, pending: Pending) -> Result<Vec<u8>> {
        let reply = self.finish_success(pending)?;
        let (at, length) =
            (number(&reply.bytes, Header::LEN + 32, 4) as usize, number(&reply.bytes, Header::LEN + 36, 4) as usize);
        Ok(reply.bytes.get(at..).map_or(&[][..], |b| &b[..length.min(b.len())]).to_vec())
    }

    /// The input of FSCTL_VALIDATE_NEGOTIATE_INFO for this connection, \[MS-SMB2\] 2.2.31.4.
    pub fn negotiated(&self) -> Vec<u8> {
        let dialects = &self.options.dialects;
        let head = Writer::default().u32(CAPABILITIES).bytes(&self.guid).u16(SECURITY_MODE).u16(dialects.len() as u16);
        dialects.iter().fold(head, |body, dialect| body.u16(dialect.0)).0
    }

    /// True if an answer to it, 2.2.32.6, confirms the negotiated values.
    pub fn is_negotiated(&self, output: &[u8]) -> bool {
        output == self.server
    }

    /// Checks that the server answers.
    ///
    /// # Errors
    /// If the echo fails.
    pub fn echo(&mut self) -> Result<()> {
        let pending = self.start_echo()?;
        self.finish_success(pending).map(drop)
    }

    /// The first half of [`Client::echo`]; [`Client::finish_success`] is the second.
    ///
    /// # Errors
    /// If the connection fails.
    pub fn start_echo(&mut self) -> Result<Pending> {
        self.start(Command::ECHO, &[4, 0, 0, 0], 1, "ECHO")
    }

    /// Leaves the share, ends the session and closes the connection.
    ///
    /// # Errors
    /// If the record of the connection cannot be written. Errors of the server are ignored here.
    pub fn leave(mut self) -> Result<()> {
        if self.tree_id != 0 {
            let _ = self.call(Command::TREE_DISCONNECT, &[4, 0, 0, 0], "TREE_DISCONNECT");
        }
        if self.session_id != 0 {
            self.tree_id = 0;
            let _ = self.call(Command::LOGOFF, &[4, 0, 0, 0], "LOGOFF");
        }
        self.channel.finish()?;
        Ok(())
    }

    // ---- properties

    /// The dialect agreed.
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// True if requests are signed.
    pub fn is_signed(&self) -> bool {
        self.protection.signer().is_some()
    }

    /// The requested options of the session.
    pub fn wanted(&self) -> &Options {
        &self.options
    }

    /// The options of the session, to be changed: the time to wait for replies, and whether requests are signed.
    pub fn options_mut(&mut self) -> &mut Options {
        &mut self.options
    }

    /// Violations of the rules of credits and message ids in replies so far.
    pub fn credit_faults(&self) -> &[Fault] {
        &self.faults
    }

    /// The connection below.
    pub fn channel(&mut self) -> &mut SmbDirect {
        &mut self.channel
    }

    // ---- requests and replies

    /// Sends a request and waits for its reply, which must be a success.
    ///
    /// # Errors
    /// [`Error::Status`] if it is not a success.
    pub fn call(&mut self, command: Command, body: &[u8], what: &'static str) -> Result<Reply> {
        let (_, reply) = self.exchange(command, body, 1, what)?;
        if reply.status() == NtStatus::SUCCESS {
            Ok(reply)
        } else {
            Err(Error::Status { what, status: reply.status() })
        }
    }

    /// Sends a request and waits for its reply. The request's bytes, and the reply.
    ///
    /// # Errors
    /// If the connection fails, or there is no reply in time.
    pub fn exchange(
        &mut self,
        command: Command,
        body: &[u8],
        charge: u16,
        what: &'static str,
    ) -> Result<(Vec<u8>, Reply)> {
        let begun = Instant::now();
        let (id, request) = self.post(command, body, charge)?;
        let reply = self.wait(id, what)?;
        self.latency = begun.elapsed();
        Ok((request, reply))
    }

    /// Sends a request.
    ///
    /// # Errors
    /// If the connection fails, or the server grants no credits.
    pub fn start(&mut self, command: Command, body: &[u8], charge: u16, what: &'static str) -> Result<Pending> {
        let begun = Instant::now();
        let (id, _) = self.post(command, body, charge)?;
        Ok(Pending { id, what, begun, memory: None, length: 0 })
    }

    /// Waits for a reply, whatever its status.
    ///
    /// # Errors
    /// If the connection fails, or there is no reply in time.
    pub fn finish(&mut self, pending: Pending) -> Result<Reply> {
        let reply = self.wait(pending.id, pending.what)?;
        self.latency = reply.arrived.saturating_duration_since(pending.begun);
        Ok(reply)
    }

    /// Waits for a reply, which must be a success.
    ///
    /// # Errors
    /// [`Error::Status`] if it is not a success.
    pub fn finish_success(&mut self, pending: Pending) -> Result<Reply> {
        let what = pending.what;
        let reply = self.finish(pending)?;
        if reply.status() == NtStatus::SUCCESS {
            Ok(reply)
        } else {
            Err(Error::Status { what, status: reply.status() })
        }
    }

    /// True if the reply is here, so that finishing it takes no time.
    pub fn is_ready(&self, pending: &Pending) -> bool {
        self.inbox.contains_key(&pending.id)
    }

    /// Moves bytes until a reply comes, at most for `wait`. Returns true if one came.
    ///
    /// # Errors
    /// If the connection fails.
    pub fn pump(&mut self, wait: Duration) -> Result<bool> {
        let until = Instant::now() + wait;
        loop {
            match self.channel.poll(until.saturating_duration_since(Instant::now()))? {
                Some(Event::Message { bytes, invalidated }) => {
                    self.take(bytes, invalidated, "a request")?;
                    return Ok(true);
                }
                Some(Event::Closed(why)) => return Err(why.into()),
                Some(_) => {}
                None => return Ok(false),
            }
        }
    }

    /// Sends a request: its message id, and its bytes before encryption.
    fn post(&mut self, command: Command, body: &[u8], charge: u16) -> Result<(u64, Vec<u8>)> {
        let until = Instant::now() + self.options.timeout;
        while self.ledger.next(charge).is_none()
            && self.ledger.open() > 0
            && self.pump(until.saturating_duration_since(Instant::now()))?
        {}
        // an ECHO costs one credit and brings many
        for _ in 0..8 {
            if self.compound.is_some() || self.ledger.next(charge).is_some() || self.ledger.held() == 0 {
                break;
            }
            let (id, _) = self.transmit(Command::ECHO, 0, &[4, 0, 0, 0], 1)?;
            self.wait(id, "ECHO")?;
        }
        self.transmit(command, self.tree_id, body, charge)
    }

    /// SMB2 credits that we hold.
    pub fn credits(&self) -> u32 {
        self.ledger.held()
    }

    /// Requests that are begun from now on go in one message, when [`Client::end_compound`] is called. `related` ones
    /// work on the file of the CREATE among them, which is [`FileId::PREVIOUS`] to them. There must be credits for all
    /// of them.
    pub fn begin_compound(&mut self, related: bool) {
        self.compound = Some(Compound { related, requests: Vec::new() });
    }

    /// Sends the requests begun since [`Client::begin_compound`].
    ///
    /// # Errors
    /// If the connection fails.
    pub fn end_compound(&mut self) -> Result<()> {
        let Some(Compound { mut requests, .. }) = self.compound.take() else { return Ok(()) };
        let last = requests.len().saturating_sub(1);
        for (n, request) in requests.iter_mut().enumerate() {
            if n < last {
                request.resize(request.len().next_multiple_of(8), 0);
                let next = request.len() as u32;
                request[20..24].copy_from_slice(&next.to_le_bytes());
            }
            if let Some(signer) = self.protection.signer().filter(|_| request[16] & flags::SIGNED as u8 != 0) {
                signer.sign(request);
            }
        }
        if requests.is_empty() { Ok(()) } else { self.put(&requests.concat()) }
    }

    fn transmit(&mut self, command: Command, tree_id: u32, body: &[u8], charge: u16) -> Result<(u64, Vec<u8>)> {
        let lacking = Error::Credits { needed: charge.into(), held: self.ledger.held() };
        let Some(id) = self.ledger.next(charge) else { return Err(lacking) };
        self.ledger.request(id, charge, command.0).map_err(|_| lacking)?;
        // dialect 3.1.1 requires a signed TREE_CONNECT in any case (3.2.4.1.1)
        let must = self.options.sign || self.must_sign || command == Command::TREE_CONNECT;
        let signed = self.protection.signer().is_some() && !self.encrypt && must;
        let related = self.compound.as_ref().is_some_and(|c| c.related && !c.requests.is_empty());
        let mut bytes = message(
            &Header {
                credit_charge: charge,
                credits: CREDITS.max(charge),
                flags: if signed { flags::SIGNED } else { 0 } | if related { flags::RELATED } else { 0 },
                ids: Ids::Sync { process_id: 0xfeff, tree_id },
                session_id: self.session_id,
                ..header(command, id)
            },
            body,
        );
        if let Some(compound) = &mut self.compound {
            compound.requests.push(bytes.clone());
            return Ok((id, bytes));
        }
        if let Some(signer) = self.protection.signer().filter(|_| signed) {
            signer.sign(&mut bytes);
        }
        self.put(&bytes)?;
        Ok((id, bytes))
    }

    /// Sends a message, encrypted if the session is.
    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        // a session is set up in the clear
        let wire = match self.encrypt && self.protection.has_ciphers() {
            true => self.protection.encrypt(self.session_id, bytes).ok_or(Error::Protect)?,
            false => bytes.to_vec(),
        };
        Ok(self.channel.send(wire, None)?)
    }

    fn wait(&mut self, id: u64, what: &'static str) -> Result<Reply> {
        let until = Instant::now() + self.options.timeout;
        loop {
            if let Some(reply) = self.inbox.remove(&id) {
                return Ok(reply);
            }
            let left = until.saturating_duration_since(Instant::now());
            match self.channel.poll(left)? {
                Some(Event::Message { bytes, invalidated }) => self.take(bytes, invalidated, what)?,
                Some(Event::Closed(why)) => return Err(why.into()),
                Some(_) => {}
                None if self.channel.stack().smbd().is_some_and(Endpoint::is_waiting) => {
                    return Err(Error::Starved { what, seconds: self.options.timeout.as_secs() });
                }
                None => return Err(Error::Timeout { what, seconds: self.options.timeout.as_secs() }),
            }
            // other messages without end are no answer
            if left.is_zero() && !self.inbox.contains_key(&id) {
                return Err(Error::Timeout { what, seconds: self.options.timeout.as_secs() });
            }
        }
    }

    fn take(&mut self, bytes: Vec<u8>, invalidated: Option<u32>, what: &'static str) -> Result<()> {
        let arrived = Instant::now();
        let mut plain = Vec::new();
        let (mut bytes, sealed) = match Framing::of(&bytes) {
            Some(Framing::Encrypted) if self.protection.has_ciphers() => {
                match self.protection.decrypt(&bytes, &mut plain) {
                    true => (plain, true),
                    false => return Err(Error::Answer { what, why: "cannot be decrypted" }),
                }
            }
            Some(Framing::Plain) => (bytes, false),
            _ => return Err(Error::Answer { what, why: "is not an SMB2 message" }),
        };
        // a compound is split
        while !bytes.is_empty() {
            let Ok((_, header)) = Header::parse(&bytes, &mut Off) else {
                return Err(Error::Answer { what, why: "is shorter than a header" });
            };
            let next = header.next_command as usize;
            let rest = if next >= Header::LEN && next < bytes.len() { bytes.split_off(next) } else { Vec::new() };
            if header.is_response()
                && let Err(fault) =
                    self.ledger.reply(header.message_id, header.credits, header.command.0, header.is_interim())
            {
                // counted and not died of: a diagnosis has to go on
                if self.faults.len() < FAULTS_MAX {
                    self.faults.push(fault);
                }
            }
            // session setup proves its own signature: its key is not there before
            if let Some(signer) = self.protection.signer().filter(|_| !sealed && header.is_signed()) {
                // counted and not died of: a diagnosis has to go on
                match () {
                    () if signer.verify(&bytes) => self.signatures.right += 1,
                    () if signer.verify_with_length(&bytes) => self.signatures.with_length += 1,
                    () => self.signatures.wrong += 1,
                }
            }
            if header.is_response() && !header.is_interim() && self.inbox.len() < INBOX_MAX {
                self.channel.answered(&bytes);
                self.inbox.insert(header.message_id, Reply { header, bytes, invalidated, arrived, sealed });
            }
            bytes = rest;
        }
        Ok(())
    }
}

/// One descriptor that covers a region.
pub fn descriptor(handle: Handle) -> Vec<u8> {
    let mut out = Vec::new();
    BufferDescriptorV1 { offset: handle.offset, token: handle.key, length: handle.length }.emit(&mut out);
    out
}

/// The buffer of a reply to QUERY_DIRECTORY or QUERY_INFO.
fn described(reply: &[u8]) -> &[u8] {
    let at = number(reply, Header::LEN + 2, 2) as usize;
    let length = number(reply, Header::LEN + 4, 4) as usize;
    reply.get(at..).map_or(&[][..], |b| &b[..length.min(b.len())])
}

fn setup_body(token: &[u8]) -> Vec<u8> {
    // signing enabled
    Writer::default().u16(25).u8(0).u8(1).u32(0).u32(0).u16(88).u16(token.len() as u16).u64(0).bytes(token).0
}

fn setup_token(reply: &[u8]) -> Option<&[u8]> {
    let at = number(reply, Header::LEN + 4, 2) as usize;
    let length = number(reply, Header::LEN + 6, 2) as usize;
    reply.get(at..at.checked_add(length)?)
}

/// A little-endian number of `n` bytes at `at`; 0 if the message is too short.
pub(crate) fn number(bytes: &[u8], at: usize, n: usize) -> u64 {
    bytes.get(at..at + n).map_or(0, |b| b.iter().rev().fold(0, |v, b| v << 8 | u64::from(*b)))
}
