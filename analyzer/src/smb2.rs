//! SMB2 on one connection: requests and replies matched to exchanges, descriptors to the memory map, files to names, and
//! the rules of \[MS-SMB2\] that the RDMA channel adds.

use crate::connection::Connection;
use crate::env::Env;
use crate::exchange::{Channel, Descriptor, Exchange, Family};
use crate::finding::{Certainty, Rule};
use crate::keys::session::{Direction, Verdict};
use crate::memory::{Region, Right, State};
use crate::op::{At, End};
use crate::payload::Payload;
use crate::report::{Sink, Transport};
use crate::smbd::Upper;
use crate::smbd::link::{Judge, Milliseconds, Status};
use crate::stats::Commands;
use crate::unseal::Unseal;
use alloc::boxed::Box;
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;
use hashbrown::HashMap;
use rdmascope_dissector::trace::Trace;
use rdmascope_dissector::wire::smb2::compression;
use rdmascope_dissector::wire::smb2::rdma_channel::{RdmaTransform, TransformType};
use rdmascope_dissector::wire::smb2::{
    self, Body, BodyForm, ChannelInfo, Command, FileId, Framing, Header, NtStatus, Pdu, RequestMemo, Severity, Visitor,
};

/// Files whose names are remembered per connection at most.
const FILES_MAX: usize = 4096;
/// Keys of one request that are remembered to be ended with it.
const KEYS_MAX: usize = 64;
/// ns after which a request without reply at the end of the capture counts as unanswered.
pub const UNANSWERED_AFTER: i64 = 1_000_000_000;
/// Layers around a message: encryption, compression, and no more.
const LAYERS_MAX: usize = 2;
/// Dialect 3.1.1.
const DIALECT_311: u16 = 0x0311;
/// Dialect 3.0.2, the first with remote invalidation.
const DIALECT_302: u16 = 0x0302;

/// A request without its reply.
#[derive(Debug)]
struct Pending {
    exchange: Exchange,
    memo: RequestMemo,
    file_id: Option<FileId>,
    keys: KeyList,
    /// The key that the reply is to invalidate.
    invalidate: Option<u32>,
    payload: Option<Box<Payload>>,
    /// What a WRITE's data goes through, where that is put together.
    protection: Option<Protection>,
    by: End,
}

/// What data that RDMA moves goes through, \[MS-SMB2\] 2.2.43.1.
#[derive(Debug)]
struct Protection {
    encrypts: bool,
    signature: Box<[u8]>,
    nonce: Box<[u8]>,
}

impl Protection {
    fn of(transform: &RdmaTransform<'_>) -> Option<Self> {
        let first = transform.transforms().next()?;
        let encrypts = first.fixed.transform_type == TransformType::ENCRYPTION.0;
        Some(Self { encrypts, signature: first.signature.into(), nonce: first.nonce.into() })
    }
}

/// Keys, the common few without allocation.
#[derive(Clone, Debug, Default)]
struct KeyList {
    few: [u32; 4],
    count: usize,
    more: Vec<u32>,
}

impl KeyList {
    fn push(&mut self, key: u32) {
        match self.few.get_mut(self.count) {
            Some(slot) => *slot = key,
            None if self.more.len() < KEYS_MAX => self.more.push(key),
            None => {}
        }
        self.count += 1;
    }

    fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.few.iter().take(self.count).chain(&self.more).copied()
    }
}

/// The SMB2 side of a connection.
#[derive(Debug, Default)]
pub struct Smb2 {
    /// The dialect that was agreed.
    pub dialect: Option<u16>,
    /// Sessions seen.
    pub sessions: Vec<u64>,
    /// Whether messages were signed.
    pub signed: bool,
    /// Whether messages were encrypted.
    pub encrypted: bool,
    /// Encrypted messages by sender, and the last of each.
    pub sealed: [(u64, Option<At>); 2],
    /// Messages by sender.
    pub messages: [u64; 2],
    /// Exchanges by command.
    pub commands: Commands,
    pending: HashMap<u64, Pending>,
    by_exchange: HashMap<u64, u64>,
    files: HashMap<FileId, Arc<str>>,
    /// SMB2 credits the client has; `None` where the beginning was not seen.
    credits: Option<i64>,
    negotiated: bool,
    missed: bool,
    unseal: Unseal,
    /// Messages decrypted.
    pub decrypted: u64,
    /// Signatures that were right.
    pub verified: u64,
    /// Text of encrypted and compressed messages, one buffer a layer.
    clear: [Vec<u8>; LAYERS_MAX],
}

/// One message on its way through: what the decoder tells is judged here.
struct Walk<'w, 'u, S> {
    smb2: &'w mut Smb2,
    connection: &'w mut Connection,
    env: &'w mut Env<S>,
    upper: &'w Upper<'u>,
    by: End,
    /// The file of the request before, in a compound.
    file: Option<FileId>,
    name: Option<Arc<str>>,
    /// The key that this message's Send invalidated, until a reply that asked for it is found.
    invalidate: Option<u32>,
    replied: bool,
    /// Whether another message of the compound should follow the last one seen.
    goes_on: bool,
}

impl Smb2 {
    /// SMB2 credits that the client can still spend, where they are known.
    pub fn credits_left(&self) -> Option<i64> {
        self.credits
    }

    /// The row of an exchange that is not complete.
    pub fn open_exchange(&mut self, id: u64) -> Option<&mut Exchange> {
        let message_id = self.by_exchange.get(&id)?;
        self.pending.get_mut(message_id).map(|p| &mut p.exchange)
    }

    /// Requests without their reply, those left out that may wait for ever.
    pub fn outstanding(&self) -> usize {
        self.pending.values().filter(|p| !may_wait(&p.memo)).count()
    }

    /// Messages are missing.
    pub fn missed(&mut self) {
        self.missed = true;
        self.credits = None;
        self.unseal.missed();
    }

    /// Payload bytes of an exchange.
    pub fn payload(&mut self, exchange: u64, offset: u64, bytes: &[u8]) {
        let Some(pending) = self.by_exchange.get(&exchange).and_then(|id| self.pending.get_mut(id)) else { return };
        pending.payload.get_or_insert_default().put(offset, bytes);
    }

    /// A whole message, put together. Which end is the client is learnt from it.
    pub fn message<T: Trace, S: Sink>(&mut self, connection: &mut Connection, env: &mut Env<S>, by: End, upper: &Upper<'_>, t: &mut T) {
        self.messages[by.index()] += 1;
        if T::ON && upper.reassembled {
            t.source("Reassembled SMB Direct", upper.bytes);
        }
        self.layered(connection, env, by, upper, 0, t);
        if T::ON && upper.reassembled {
            t.end_source();
        }
    }

    /// A message that may be encrypted or compressed: opened as far as it can be.
    fn layered<T: Trace, S: Sink>(
        &mut self,
        connection: &mut Connection,
        env: &mut Env<S>,
        by: End,
        upper: &Upper<'_>,
        depth: usize,
        t: &mut T,
    ) {
        let framing = Framing::of(upper.bytes);
        let opaque = matches!(framing, Some(Framing::Encrypted | Framing::Compressed));
        // the key that comes invalidated is a matter of what is inside
        let outer = Upper { invalidate: upper.invalidate.filter(|_| !opaque), ..*upper };
        self.plain(connection, env, by, &outer, t);
        let whole = upper.bytes.len() as u64 >= u64::from(upper.wire_length);
        if framing == Some(Framing::Encrypted) {
            self.encrypted = true;
        }
        if depth >= LAYERS_MAX || !whole || !opaque {
            self.sealed(connection, env, by, framing, upper);
            return;
        }
        let mut clear = core::mem::take(&mut self.clear[depth]);
        clear.clear();
        let (name, opened) = if framing == Some(Framing::Encrypted) {
            let direction = if connection.client == Some(by.peer()) { Direction::ToClient } else { Direction::ToServer };
            let keyring = &env.options.keyring;
            let opened = !keyring.is_empty() && self.unseal.decrypt(upper.bytes, direction, keyring, &mut clear).is_some();
            self.decrypted += u64::from(opened);
            ("Decrypted SMB2", opened)
        } else {
            match compression::decompress_message(upper.bytes, &mut clear, compression::LIMIT) {
                Ok(()) => ("Decompressed SMB2", true),
                Err(why) => {
                    let mut court = connection.court(env, upper.last);
                    let text = format_args!("sent a compressed message that cannot be read: {why}");
                    court.judge(Rule::Smb2Malformed, by, Certainty::Certain, text);
                    ("", false)
                }
            }
        };
        if opened {
            if T::ON {
                t.source(name, &clear);
            }
            let inner = Upper { bytes: &clear, wire_length: clear.len() as u32, reassembled: true, ..*upper };
            self.layered(connection, env, by, &inner, depth + 1, t);
            if T::ON {
                t.end_source();
            }
        } else {
            self.sealed(connection, env, by, framing, upper);
        }
        self.clear[depth] = clear;
    }

    /// Remembers a message that nobody could look into.
    fn sealed<S: Sink>(&mut self, connection: &mut Connection, env: &mut Env<S>, by: End, framing: Option<Framing>, upper: &Upper<'_>) {
        if let (Some(Framing::Encrypted | Framing::Compressed), Some(key)) = (framing, upper.invalidate) {
            connection.invalidated(env, upper.last, by.peer(), key);
        }
        if framing == Some(Framing::Encrypted) {
            let (count, last) = &mut self.sealed[by.index()];
            *count += 1;
            *last = Some(upper.last);
        }
    }

    fn plain<T: Trace, S: Sink>(&mut self, connection: &mut Connection, env: &mut Env<S>, by: End, upper: &Upper<'_>, t: &mut T) {
        // what cannot be looked into is not malformed
        let opaque = matches!(Framing::of(upper.bytes), Some(Framing::Encrypted | Framing::Compressed));
        let mut walk = Walk {
            smb2: self,
            connection,
            env,
            upper,
            by,
            file: None,
            name: None,
            invalidate: upper.invalidate,
            replied: false,
            goes_on: true,
        };
        let result = smb2::parse_message(upper.bytes, t, &mut walk);
        let (invalidate, replied) = (walk.invalidate, walk.replied);
        let hides = walk.is_cut() && walk.goes_on;
        if hides {
            connection.hidden[by.index()] = Some(upper.last);
        }
        if result.is_err() && !opaque && upper.bytes.len() as u64 >= u64::from(upper.wire_length) {
            let fault = rdmascope_dissector::fault::fault_of(result.err().unwrap_or(nom_incomplete()));
            let mut court = connection.court(env, upper.last);
            court.judge(Rule::Smb2Malformed, by, Certainty::Certain, format_args!("sent an SMB2 message that cannot be read: {fault}"));
        }
        if let Some(key) = invalidate {
            if replied && !connection.cut[by.peer().index()] {
                // nothing in the message asked for it
                let certainty = connection.certainty();
                let mut court = connection.court(env, upper.last);
                court.judge(
                    Rule::RdmaInvalidate,
                    by,
                    certainty,
                    format_args!("invalidated key {key:#010x} though no request asked for it"),
                );
            }
            connection.invalidated(env, upper.last, by.peer(), key);
        }
    }

    /// The connection ends: what has no reply never will have.
    pub fn finish<S: Sink>(&mut self, connection: &mut Connection, env: &mut Env<S>, at: At) {
        let mut left: Vec<Pending> = self.pending.drain().map(|(_, p)| p).collect();
        left.sort_by_key(|p| p.exchange.id);
        self.by_exchange.clear();
        for mut pending in left {
            // what is still encrypted is no payload
            let encrypted = pending.protection.as_ref().is_some_and(|p| p.encrypts);
            if let Some(payload) = pending.payload.take().filter(|_| !encrypted) {
                let length = pending.exchange.length.unwrap_or(0);
                payload.seal(&mut pending.exchange, length.into(), env);
            }
            let exchange = &mut pending.exchange;
            let may_wait = may_wait(&pending.memo) || (exchange.pending && connection.closed.is_none());
            let waited = at.time.saturating_sub(exchange.request.time);
            let hidden = connection.may_be_hidden(pending.by.peer(), exchange.request);
            if !may_wait && !hidden && waited > UNANSWERED_AFTER {
                let (command, site) = (exchange.command, exchange.request_end);
                let certainty = if self.missed { Certainty::Guess } else { Certainty::IfNothingWasMissed };
                let waited = Milliseconds(waited);
                let mut court = connection.court(env, site);
                court.judge(Rule::Smb2Unanswered, pending.by.peer(), certainty, format_args!("did not answer a {command} in {waited}"));
            }
            exchange.close(connection.health.retransmissions);
            self.commands.add(exchange);
            env.complete(exchange);
        }
    }
}

/// Whether a request may be without reply for as long as the connection lives.
const fn may_wait(memo: &RequestMemo) -> bool {
    matches!(memo.command, Command::CHANGE_NOTIFY | Command::CANCEL | Command::OPLOCK_BREAK | Command::LOCK)
}

fn nom_incomplete() -> nom::Err<rdmascope_dissector::fault::Fault> {
    nom::Err::Incomplete(nom::Needed::Unknown)
}

impl<'a, S: Sink> Visitor<'a> for Walk<'_, '_, S> {
    fn memo(&mut self, header: &Header) -> Option<RequestMemo> {
        self.smb2.pending.get(&header.message_id).map(|p| p.memo)
    }

    fn pdu(&mut self, pdu: &Pdu<'a>) {
        let header = &pdu.header;
        self.goes_on = header.next_command != 0;
        self.smb2.signed |= header.is_signed();
        if header.session_id != 0 && !self.smb2.sessions.contains(&header.session_id) && self.smb2.sessions.len() < 64 {
            self.smb2.sessions.push(header.session_id);
            self.env.session(header.session_id, self.connection.id);
        }
        if !self.env.options.keyring.is_empty() {
            self.seal(pdu);
        }
        if header.is_response() { self.reply(pdu) } else { self.request(pdu) }
    }
}

/// The specification's name of a command.
pub const fn command_name(command: Command) -> &'static str {
    match command {
        Command::NEGOTIATE => "NEGOTIATE",
        Command::SESSION_SETUP => "SESSION_SETUP",
        Command::LOGOFF => "LOGOFF",
        Command::TREE_CONNECT => "TREE_CONNECT",
        Command::TREE_DISCONNECT => "TREE_DISCONNECT",
        Command::CREATE => "CREATE",
        Command::CLOSE => "CLOSE",
        Command::FLUSH => "FLUSH",
        Command::READ => "READ",
        Command::WRITE => "WRITE",
        Command::LOCK => "LOCK",
        Command::IOCTL => "IOCTL",
        Command::CANCEL => "CANCEL",
        Command::ECHO => "ECHO",
        Command::QUERY_DIRECTORY => "QUERY_DIRECTORY",
        Command::CHANGE_NOTIFY => "CHANGE_NOTIFY",
        Command::QUERY_INFO => "QUERY_INFO",
        Command::SET_INFO => "SET_INFO",
        Command::OPLOCK_BREAK => "OPLOCK_BREAK",
        Command::SERVER_TO_CLIENT_NOTIFICATION => "SERVER_TO_CLIENT_NOTIFICATION",
        _ => "UNKNOWN",
    }
}

impl<S: Sink> Walk<'_, '_, S> {
    fn judge(&mut self, rule: Rule, by: End, certainty: Certainty, text: core::fmt::Arguments<'_>) {
        let mut court = self.connection.court(self.env, self.upper.last);
        court.judge(rule, by, certainty, text);
    }

    /// Whether the capture cut the message.
    fn is_cut(&self) -> bool {
        (self.upper.bytes.len() as u64) < u64::from(self.upper.wire_length)
    }

    /// Keys are learnt, and signatures looked at.
    fn seal(&mut self, pdu: &Pdu<'_>) {
        self.smb2.unseal.learn(pdu, &self.env.options.keyring);
        let header = &pdu.header;
        // an interim reply has a signature of zeros
        if !header.is_signed() || self.is_cut() || header.is_interim() {
            return;
        }
        match self.smb2.unseal.verify(pdu, &self.env.options.keyring) {
            Verdict::Verified => self.smb2.verified += 1,
            verdict @ (Verdict::Failed | Verdict::WithLength) => {
                let command = command_name(header.command);
                let kind = if header.is_response() { "reply" } else { "request" };
                let how = match verdict {
                    Verdict::WithLength => {
                        "signed over its length as well, which is no part of it and was not sent (ksmbd of Linux 6.12 does this)"
                    }
                    _ => "whose signature is wrong",
                };
                self.judge(Rule::Smb2Signature, self.by, Certainty::Certain, format_args!("sent a {command} {kind} {how}"));
            }
            Verdict::Unproven | Verdict::NoKey => {}
        }
    }

    fn certainty(&self) -> Certainty {
        self.connection.certainty()
    }

    fn request(&mut self, pdu: &Pdu<'_>) {
        let header = &pdu.header;
        // a server's requests (oplock breaks) are replies in form, so whoever sends a request is the client
        if self.connection.client.is_none() {
            self.connection.client = Some(self.by);
        }
        if header.command == Command::NEGOTIATE && !self.smb2.negotiated && !self.smb2.missed {
            self.smb2.credits = Some(1);
        }
        self.spend(pdu);
        if header.command == Command::CANCEL {
            return;
        }
        let id = self.env.number_exchange();
        self.env.exchange_of_frame = id;
        self.env.sink.request(id, pdu.bytes);
        self.env.moved_of_frame = 0;
        let mut pending = Pending {
            exchange: self.row(id, header),
            memo: pdu.memo(),
            file_id: None,
            keys: KeyList::default(),
            invalidate: None,
            payload: None,
            protection: None,
            by: self.by,
        };
        match &pdu.body {
            Ok(Body::ReadRequest(read)) => {
                pending.exchange.offset = Some(read.fixed.offset);
                pending.exchange.length = Some(read.fixed.length);
                pending.file_id = Some(read.file());
                self.channel(pdu, &read.channel, read.fixed.length, Right::Write, &mut pending);
            }
            Ok(Body::WriteRequest(write)) => {
                pending.exchange.offset = Some(write.fixed.offset);
                pending.exchange.length = Some(write.payload_length());
                pending.file_id = Some(write.file());
                if self.env.options.payloads && !write.data.bytes.is_empty() {
                    let payload = pending.payload.get_or_insert_default();
                    payload.put(0, write.data.bytes);
                }
                let inline = write.channel.channel == smb2::Channel::NONE;
                if inline && self.upper.fragments > 1 && self.connection.transport != Some(Transport::Tcp) {
                    let (bytes, fragments) = (write.data.length, self.upper.fragments);
                    let text = format_args!("sent {bytes} bytes of a WRITE in {fragments} fragments that RDMA could have carried");
                    let mut court = self.connection.court(self.env, self.upper.last);
                    court.judge(Rule::SmbdFragCost, self.by, Certainty::Certain, text);
                }
                if self.env.options.payloads {
                    pending.protection = write.channel.transform().and_then(|t| Protection::of(&t));
                }
                self.channel(pdu, &write.channel, write.payload_length(), Right::Read, &mut pending);
            }
            Ok(Body::CreateRequest(create)) => {
                let name: Arc<str> = Arc::from(create.name().to_string().as_str());
                pending.exchange.file = Some(name.clone());
                self.name = Some(name);
                self.file = None;
            }
            Ok(body) => pending.file_id = body.file(),
            Err(_) => {}
        }
        if let Some(file) = pending.file_id.filter(|f| *f != FileId::PREVIOUS) {
            self.file = Some(file);
            pending.exchange.file = self.smb2.files.get(&file).cloned();
        } else if header.is_related() && pending.exchange.file.is_none() {
            pending.exchange.file = self.name.clone().or_else(|| self.file.and_then(|f| self.smb2.files.get(&f).cloned()));
        }
        let limit = self.env.options.requests_max;
        if self.smb2.pending.len() >= limit {
            self.forget();
        }
        self.smb2.by_exchange.insert(id, header.message_id);
        if let Some(old) = self.smb2.pending.insert(header.message_id, pending) {
            self.smb2.by_exchange.remove(&old.exchange.id);
        }
    }

    /// Makes room: the older half of the unanswered requests goes.
    #[cold]
    fn forget(&mut self) {
        let mut ids: Vec<u64> = self.smb2.pending.values().map(|p| p.exchange.id).collect();
        ids.sort_unstable();
        let middle = ids[ids.len() / 2];
        let before = self.smb2.pending.len();
        self.smb2.pending.retain(|_, p| p.exchange.id > middle);
        self.smb2.by_exchange.retain(|id, _| *id > middle);
        self.env.requests_dropped += (before - self.smb2.pending.len()) as u64;
    }

    fn row(&self, id: u64, header: &Header) -> Exchange {
        Exchange {
            id,
            connection: self.connection.id,
            message_id: header.message_id,
            retransmissions: self.connection.health.retransmissions as u32,
            wait_for_credit: self.upper.waited,
            ..Exchange::begun(Family::Smb2, command_name(header.command), self.upper.first, self.upper.last)
        }
    }

    /// SMB2's own credits, \[MS-SMB2\] 3.2.4.1.5.
    fn spend(&mut self, pdu: &Pdu<'_>) {
        let header = &pdu.header;
        if header.command == Command::CANCEL {
            return;
        }
        let charge = i64::from(header.credit_charge.max(1));
        if let Some(credits) = self.smb2.credits.as_mut() {
            *credits -= charge;
            if *credits < 0 {
                let command = command_name(header.command);
                *credits = 0;
                let certainty = self.certainty();
                self.judge(
                    Rule::Smb2Credit,
                    self.by,
                    certainty,
                    format_args!("sent {command} (charge {charge}) without the SMB2 credits for it"),
                );
            }
        }
        let size = match &pdu.body {
            Ok(Body::ReadRequest(r)) => r.fixed.length,
            Ok(Body::WriteRequest(w)) => w.payload_length(),
            _ => return,
        };
        // one credit for each 64 KiB begun (3.1.5.2); dialect 2.0.2 has no charge
        let needed = i64::from(size.saturating_sub(1) / 65_536 + 1);
        if header.credit_charge > 0 && charge < needed {
            let command = header.command;
            self.judge(
                Rule::Smb2Credit,
                self.by,
                Certainty::Certain,
                format_args!("sent a {command} of {size} bytes with CreditCharge {charge}; it needs {needed}"),
            );
        }
    }

    /// Channel information of a READ or WRITE: the memory it advertises, and whether it makes sense.
    fn channel(&mut self, pdu: &Pdu<'_>, info: &ChannelInfo<'_>, length: u32, right: Right, pending: &mut Pending) {
        let sure = Certainty::Certain;
        let by = self.by;
        let command = command_name(pdu.header.command);
        if info.channel == smb2::Channel::NONE {
            if info.blob.length > 0 {
                let bytes = info.blob.length;
                self.judge(
                    Rule::Smb2Channel,
                    by,
                    sure,
                    format_args!("sent {bytes} bytes of channel information in a {command} without a channel"),
                );
            }
            return;
        }
        pending.exchange.channel = match info.channel {
            smb2::Channel::RDMA_V1 => Channel::Rdma,
            smb2::Channel::RDMA_V1_INVALIDATE => Channel::RdmaInvalidate,
            _ => Channel::RdmaTransform,
        };
        let (offset, size) = (info.blob.offset, info.blob.length);
        let mut bad = true;
        if self.connection.transport == Some(Transport::Tcp) {
            self.judge(Rule::BugKsmbdChannelInfo, by, sure, format_args!("asked for the RDMA channel in a {command} on a TCP connection"));
        } else if self.is_cut() && (!info.blob.inside || !info.is_whole()) {
            // the descriptors are among what was cut off
            bad = false;
        } else if !info.blob.inside {
            self.judge(
                Rule::Smb2Channel,
                by,
                sure,
                format_args!("points to {size} bytes of channel information at {offset}, outside of the {command}"),
            );
        } else if !info.is_whole() || size == 0 {
            self.judge(Rule::Smb2Channel, by, sure, format_args!("sent {size} bytes of buffer descriptors in a {command}; each has 16"));
        } else if info.described_length() < u64::from(length) && info.channel != smb2::Channel::RDMA_TRANSFORM {
            let room = info.described_length();
            self.judge(Rule::Smb2Channel, by, sure, format_args!("described {room} bytes of memory for a {command} of {length}"));
        } else {
            bad = false;
        }
        if bad && self.connection.transport != Some(Transport::Tcp) {
            self.judge(Rule::BugKsmbdChannelInfo, by, sure, format_args!("sent a {command} with channel information that does not fit"));
        }
        if info.channel == smb2::Channel::RDMA_TRANSFORM {
            self.transform(info);
        }
        if info.asks_for_invalidation() && self.smb2.dialect.is_some_and(|d| d < DIALECT_302) {
            let dialect = self.smb2.dialect.unwrap_or(0);
            self.judge(
                Rule::RdmaInvalidate,
                by,
                sure,
                format_args!("asked for remote invalidation in dialect {dialect:#06x}; it came with 0x0302"),
            );
        }
        if let Some(limit) = self.connection.smbd_read_write_size().filter(|limit| length > *limit) {
            self.judge(Rule::RdmaLength, by, sure, format_args!("asked for {length} bytes in a {command}; MaxReadWriteSize is {limit}"));
        }
        let mut payload_offset = 0;
        for (index, descriptor) in info.descriptors().enumerate() {
            if index == 0 && info.asks_for_invalidation() {
                pending.invalidate = Some(descriptor.token);
            }
            let region = Region {
                address: descriptor.offset,
                length: descriptor.length.into(),
                right,
                exchange: pending.exchange.id,
                index: index as u32,
                payload_offset,
                advertised: self.upper.last,
                state: State::Live,
                used: 0,
            };
            payload_offset += u64::from(descriptor.length);
            let key = descriptor.token;
            if self.connection.memory.advertise(by, key, region).is_some() {
                let certainty = self.certainty();
                self.judge(Rule::RdmaKeyReuse, by, certainty, format_args!("advertised key {key:#010x} again while it was live"));
            }
            self.connection.rdma.keys_advertised += 1;
            pending.keys.push(key);
            if let Some(slot) = pending.exchange.descriptors.get_mut(index) {
                *slot = Descriptor { offset: descriptor.offset, token: key, length: descriptor.length };
            }
            pending.exchange.descriptor_count += 1;
        }
        let (run, step) = self.connection.memory.predictable(by);
        const RUN: u32 = 16;
        if run == RUN {
            self.judge(
                Rule::RdmaKeyPredictable,
                by,
                Certainty::Guess,
                format_args!("advertised {RUN} keys in a row each {step:#x} after the last"),
            );
        }
    }

    /// SMB2_RDMA_TRANSFORM, \[MS-SMB2\] 2.2.43.
    fn transform(&mut self, info: &ChannelInfo<'_>) {
        let (by, sure) = (self.by, Certainty::Certain);
        if let Some(dialect) = self.smb2.dialect.filter(|d| *d != DIALECT_311) {
            self.judge(Rule::Smb2TransformDialect, by, sure, format_args!("sent an RDMA transform in dialect {dialect:#06x}"));
        }
        if self.is_cut() {
            return;
        }
        let Some(transform) = info.transform() else {
            self.judge(Rule::Smb2TransformBounds, by, sure, format_args!("sent an RDMA transform that is too short"));
            return;
        };
        let count = transform.fixed.transform_count;
        let (mut seen, mut encrypts, mut signs) = (0u16, false, false);
        for crypto in transform.transforms() {
            seen = seen.saturating_add(1);
            let (kind, signature, nonce) = (crypto.fixed.transform_type, crypto.fixed.signature_length, crypto.fixed.nonce_length);
            encrypts |= kind == TransformType::ENCRYPTION.0;
            signs |= kind == TransformType::SIGNING.0;
            if signature > 16 || (kind == TransformType::ENCRYPTION.0 && !matches!(nonce, 11 | 12)) {
                self.judge(
                    Rule::Smb2TransformLengths,
                    by,
                    sure,
                    format_args!("sent an RDMA transform with SignatureLength {signature} and NonceLength {nonce}"),
                );
            }
            if crypto.fixed.reserved != 0 {
                let reserved = crypto.fixed.reserved;
                self.judge(Rule::Smb2TransformReserved, by, sure, format_args!("set Reserved of a crypto transform to {reserved:#06x}"));
            }
        }
        if encrypts && signs {
            self.judge(Rule::Smb2TransformLengths, by, sure, format_args!("asked for encryption and signing at once"));
        }
        if count == 0 || seen != count {
            self.judge(Rule::Smb2TransformCount, by, sure, format_args!("announced {count} transforms; {seen} follow"));
        }
        if transform.fixed.reserved1 != 0 || transform.fixed.reserved2 != 0 {
            self.judge(Rule::Smb2TransformReserved, by, sure, format_args!("set a reserved field of an RDMA transform"));
        }
        if !transform.descriptors.inside || transform.descriptors.length == 0 {
            let (offset, length) = (transform.descriptors.offset, transform.descriptors.length);
            self.judge(
                Rule::Smb2TransformBounds,
                by,
                sure,
                format_args!("points to {length} bytes of descriptors at {offset}, outside of the RDMA transform"),
            );
        }
    }

    fn reply(&mut self, pdu: &Pdu<'_>) {
        let header = &pdu.header;
        self.replied = true;
        if self.connection.client.is_none() {
            self.connection.client = Some(self.by.peer());
        }
        if let Some(credits) = self.smb2.credits.as_mut() {
            *credits += i64::from(header.credits);
        }
        if pdu.form != BodyForm::Expected {
            let (command, status) = (command_name(header.command), Status(header.status().0));
            let what = match pdu.form {
                BodyForm::OwnUnderError => "the command's own body, where an ERROR body belongs",
                BodyForm::ErrorUnderSuccess => "an ERROR body, where the command's own belongs",
                _ => "a body that is neither its own nor an ERROR",
            };
            self.judge(Rule::Smb2ErrorBody, self.by, Certainty::Certain, format_args!("answered {command} with {status} and {what}"));
        }
        if let Ok(Body::NegotiateResponse(negotiate)) = &pdu.body {
            self.smb2.dialect = Some(negotiate.dialect().0);
            self.smb2.negotiated = true;
        }
        if header.is_interim() {
            if let Some(pending) = self.smb2.pending.get_mut(&header.message_id) {
                pending.exchange.pending = true;
                self.env.exchange_of_frame = pending.exchange.id;
            }
            return;
        }
        let Some(mut pending) = self.smb2.pending.remove(&header.message_id) else { return };
        self.smb2.by_exchange.remove(&pending.exchange.id);
        self.env.sink.reply(pending.exchange.id, pdu.bytes);
        self.env.answered(&pending.exchange, self.upper.last);
        let status = header.status();
        let exchange = &mut pending.exchange;
        exchange.reply = Some(self.upper.first);
        exchange.reply_end = Some(self.upper.last);
        exchange.status = Some(status.0);
        let more = status == NtStatus::MORE_PROCESSING_REQUIRED;
        exchange.failed = status.severity() == Severity::Error && !more;
        let failed = exchange.failed;
        let command = command_name(header.command);
        match &pdu.body {
            Ok(Body::CreateResponse(create)) => {
                let file = create.file();
                if let Some(name) = exchange.file.clone() {
                    if self.smb2.files.len() >= FILES_MAX {
                        self.smb2.files.clear();
                    }
                    self.smb2.files.insert(file, name);
                }
            }
            Ok(Body::ReadResponse(read)) => {
                let inline = exchange.channel == Channel::Inline;
                exchange.bytes_moved = u64::from(if inline {
                    read.data.length
                } else {
                    read.fixed.data_remaining.max(if read.fixed.rdma_transform() { 0 } else { read.data.length })
                });
                if inline && self.env.options.payloads {
                    let payload = pending.payload.get_or_insert_default();
                    payload.put(0, read.data.bytes);
                }
                if inline && self.upper.fragments > 1 && self.connection.transport != Some(Transport::Tcp) {
                    let (bytes, fragments) = (read.data.length, self.upper.fragments);
                    let mut court = self.connection.court(self.env, self.upper.last);
                    let text = format_args!("asked for {bytes} bytes in a READ without RDMA: they came in {fragments} fragments");
                    court.judge(Rule::SmbdFragCost, self.by.peer(), Certainty::Certain, text);
                }
                let (moved, seen) = (pending.exchange.bytes_moved, pending.exchange.writes.bytes);
                if !inline && !failed && moved != seen && pending.exchange.writes.frames > 0 && !self.connection.missed {
                    let certainty = self.certainty().min(Certainty::IfNothingWasMissed);
                    self.judge(
                        Rule::RdmaLength,
                        self.by,
                        certainty,
                        format_args!("says it wrote {moved} bytes for a READ; {seen} were seen"),
                    );
                }
            }
            Ok(Body::WriteResponse(write)) => {
                exchange.bytes_moved = u64::from(write.count);
                let (moved, seen) = (exchange.bytes_moved, exchange.reads.bytes);
                let rdma = exchange.channel != Channel::Inline;
                if rdma && !failed && moved != seen && exchange.reads.frames > 0 && !self.connection.missed {
                    let certainty = self.certainty().min(Certainty::IfNothingWasMissed);
                    self.judge(
                        Rule::RdmaLength,
                        self.by,
                        certainty,
                        format_args!("says it wrote {moved} bytes of a WRITE; {seen} were fetched by RDMA Read"),
                    );
                }
            }
            Ok(Body::CloseResponse(_)) => {
                if let Some(file) = pending.file_id {
                    self.smb2.files.remove(&file);
                }
            }
            _ => {}
        }
        self.invalidation(&pending, failed);
        for key in pending.keys.iter() {
            self.connection.memory.end(self.upper.last, pending.by, key, pending.exchange.id);
        }
        if failed {
            let status = Status(status.0);
            self.judge(Rule::Smb2Error, self.by, Certainty::Certain, format_args!("{command} failed: {status}"));
        }
        if let Some(mut payload) = pending.payload.take() {
            let length = pending.exchange.bytes_moved;
            let protection = match &pdu.body {
                Ok(Body::ReadResponse(read)) => read.transform().and_then(|t| Protection::of(&t)),
                _ => pending.protection.take(),
            };
            if protection.is_none_or(|p| self.undo(header, &p, pending.by, length, &mut payload)) {
                payload.seal(&mut pending.exchange, length, self.env);
            } else if length > 0 {
                pending.exchange.payload_holes = Some(length);
            }
        }
        pending.exchange.close(self.connection.health.retransmissions);
        self.smb2.commands.watch(&pending.exchange, pending.by.peer());
        self.smb2.commands.add(&pending.exchange);
        self.env.complete(&pending.exchange);
    }

    /// Undoes what data that RDMA moved went through. False where it stays encrypted.
    fn undo(&mut self, header: &Header, protection: &Protection, client: End, length: u64, payload: &mut Payload) -> bool {
        let Protection { encrypts, signature, nonce } = protection;
        let unseal = &self.smb2.unseal;
        let reads = header.command == Command::READ;
        if *encrypts {
            let direction = if reads { Direction::ToClient } else { Direction::ToServer };
            return payload.change(length, |data| unseal.decrypt_rdma(header.session_id, direction, nonce, signature, data)) == Some(true);
        }
        let verdict = payload.change(length, |data| unseal.verify_rdma(header.session_id, nonce, signature, data));
        match verdict {
            Some(Verdict::Verified) => self.smb2.verified += 1,
            Some(Verdict::Failed) => {
                let (by, command) = if reads { (client.peer(), "READ") } else { (client, "WRITE") };
                let certainty = self.certainty().min(Certainty::IfNothingWasMissed);
                self.judge(
                    Rule::Smb2Signature,
                    by,
                    certainty,
                    format_args!("moved data of a {command} over RDMA whose signature is wrong"),
                );
            }
            _ => {}
        }
        true
    }

    /// Whether the reply invalidated what the request asked it to.
    fn invalidation(&mut self, pending: &Pending, failed: bool) {
        match (pending.invalidate, self.invalidate) {
            (Some(asked), Some(done)) if asked == done => {
                self.invalidate = None;
                self.connection.rdma.keys_invalidated_remotely += 1;
                let at = self.upper.last;
                self.connection.invalidated(self.env, at, pending.by, done);
            }
            (Some(asked), Some(done)) => {
                self.invalidate = None;
                self.judge(
                    Rule::RdmaInvalidate,
                    self.by,
                    self.certainty(),
                    format_args!("invalidated key {done:#010x} where {asked:#010x} was asked for"),
                );
                let at = self.upper.last;
                self.connection.invalidated(self.env, at, pending.by, done);
            }
            (Some(asked), None) if failed => {
                self.judge(
                    Rule::BugKsmbd2fd5dcb1c8ef,
                    self.by,
                    self.certainty(),
                    format_args!("did not invalidate key {asked:#010x} with its error reply"),
                );
            }
            (Some(asked), None) => {
                self.judge(
                    Rule::RdmaInvalidate,
                    self.by,
                    self.certainty(),
                    format_args!("did not invalidate key {asked:#010x}, as it was asked to"),
                );
            }
            _ => {}
        }
    }
}
