//! SMB2 on one connection: requests and replies matched to exchanges, descriptors to the memory map, files to names,
//! and the rules of \[MS-SMB2\] that the RDMA channel adds.

use super::channel::{self, Agreed};
use super::context::{self, Context, Named};
use super::ids::{Early, Ids, MessageIdViolation};
use super::kept::KeptList;
use super::payload::Payload;
use super::shape;
use super::signing::{Setup, Signing};
use super::unseal::Unseal;
use super::{Answers, WAITS_FOR_DATA, has_answers, is_unanswered};
use crate::breaks::{self, Break, Freed, Held, RELEASED_WITHIN, SHARED_LEAST, Waited, Waiter};
use crate::context::FrameContext;
use crate::covered::Covered;
use crate::credits::{charge_of, payload_of};
use crate::env::Release;
use crate::episodes::time::Behind;
use crate::episodes::{Cause, Ceiling, not_before};
use crate::exchange::{self, DataPath, Descriptor, Exchange, Family, One};
use crate::finding::{Certainty, Rule};
use crate::keys::session::{Direction, SignatureCheck};
use crate::memory::{Delivery, Memory, Region, Right, State};
use crate::messages::smbd::Smb2Message;
use crate::messages::smbd::link::Status;
use crate::missed::Rests;
use crate::op::{At, End};
use crate::pieces::Assembly;
use crate::recent::Recent;
use crate::roles::Source;
use crate::smb_setup::Obliged;
use crate::stats::{self, Commands};
use crate::summary::{Smb, Transport};
use alloc::boxed::Box;
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use hashbrown::HashMap;
use rdmascope_dissector::fault::fault_of;
use rdmascope_dissector::frame::Addr;
use rdmascope_dissector::text::Elapsed as Milliseconds;
use rdmascope_dissector::trace::Trace;
use rdmascope_dissector::wire::smb2::compression;
use rdmascope_dissector::wire::smb2::create::OplockLevel;
use rdmascope_dissector::wire::smb2::ioctl::ControlCode;
use rdmascope_dissector::wire::smb2::lock::LockRequest;
use rdmascope_dissector::wire::smb2::negotiate::{Dialect, NegotiateRequest};
use rdmascope_dissector::wire::smb2::oplock;
use rdmascope_dissector::wire::smb2::rdma_channel::{RdmaTransform, TransformType};
use rdmascope_dissector::wire::smb2::smb1::Smb1Header;
use rdmascope_dissector::wire::smb2::tree::ShareType;
use rdmascope_dissector::wire::smb2::{
    self, Body, BodyForm, ChannelInfo, Command, FileId, Framing, Header, NtStatus, Pdu, RequestMemo, RequestParameters,
    Severity, Visitor,
};

/// Connections to named pipes that are remembered per connection at most.
const PIPES_MAX: usize = 256;
/// ns for which a request may wait for others, of what is no poll: as long as a server waits for an oplock to be given
/// back (\[MS-SMB2\] 3.3.2.1).
const PENDING_MAX: i64 = 35_000_000_000;
/// ns for which a request for data of a disk may wait for it after an interim reply: a disk that has to spin up needs
/// most of that.
const STORAGE_MAX: i64 = 15_000_000_000;
/// ns within which a client that ends its session closes the connection, whether that was answered or not.
const LEAVES_WITHIN: i64 = 5_000_000_000;
/// Cause of a request that the server told to wait, and did not answer.
const TOLD_TO_WAIT: &str = "The server told the client to wait (STATUS_PENDING), and never sent the final reply: its \
    storage hangs, it lost the request, or it waits for something that the capture does not show";
/// Leases whose files are remembered per connection at most.
const LEASES_MAX: usize = 1024;
/// Files whose names are remembered per connection at most.
const FILES_MAX: usize = 4096;
/// Keys of one request that are remembered to be ended with it.
const KEYS_MAX: usize = 64;
/// Sessions listed per connection at most.
const SESSIONS_MAX: usize = 64;
/// Files remembered by the CREATE that opened them at most: a compound's replies come together.
const CREATED_MAX: usize = 256;
/// Layers around a message: encryption, compression, and no more.
const LAYERS_MAX: usize = 2;

/// A request without its reply.
#[derive(Clone, Debug)]
struct Pending {
    exchange: Box<Exchange>,
    memo: RequestMemo,
    file_id: Option<FileId>,
    keys: KeyList,
    /// The key that the reply is to invalidate.
    invalidate: Option<u32>,
    payload: Option<Box<Payload>>,
    /// Protection of a WRITE's data, if that is put together.
    protection: Option<Protection>,
    by: End,
    /// True if it was signed, in the clear.
    signed: bool,
    /// Values for signing in a SESSION_SETUP.
    setup: Setup,
    /// MinimumCount of a READ.
    least: u32,
    /// Bytes that Read Requests asked for.
    asked: Covered,
    /// Bytes that came.
    came: Covered,
    /// The message id of the CREATE in its compound whose file it works on.
    created_by: Option<u64>,
    /// The session and the tree connect that it names.
    named: Named,
    /// The message id of the request behind it in its compound.
    next: Option<u64>,
    /// The key of the lease that a CREATE asks for.
    lease: Option<[u8; 16]>,
    /// The range that a LOCK asks for: from the first byte to the one behind the last of all its ranges.
    range: Option<(u64, u64)>,
}

/// Encryption or signature of data that RDMA moves, \[MS-SMB2\] 2.2.43.1.
#[derive(Clone, Debug)]
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

/// A request after which others that wait may go on.
#[derive(Clone, Debug)]
struct Released {
    exchange: u64,
    file: Option<Arc<str>>,
    id: Option<FileId>,
    freed: Freed,
    at: At,
}

/// Dialects offered in a NEGOTIATE.
#[derive(Clone, Copy, Debug, Default)]
struct Offered {
    dialects: [u16; Self::MAX],
    count: usize,
}

impl Offered {
    /// Dialects kept: there are fewer.
    const MAX: usize = 8;

    /// Those of a request that was not cut.
    fn of(request: &NegotiateRequest<'_>) -> Self {
        let mut offered = Self::default();
        for dialect in request.dialects() {
            if let Some(slot) = offered.dialects.get_mut(offered.count) {
                *slot = dialect.0;
            }
            offered.count += 1;
        }
        offered
    }

    /// True if this one is among them; `None` if they are not known.
    fn has(&self, dialect: Dialect) -> Option<bool> {
        let all = self.dialects.get(..self.count).filter(|all| !all.is_empty())?;
        Some(all.contains(&dialect.0))
    }
}

impl fmt::Display for Offered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, dialect) in self.dialects.iter().take(self.count).enumerate() {
            write!(f, "{}{dialect:#06x}", if place > 0 { ", " } else { "" })?;
        }
        Ok(())
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
#[derive(Clone, Debug, Default)]
pub(crate) struct Smb2 {
    /// Its part of a report; arrays by end are for end A and B.
    smb: Smb,
    /// Messages by sender.
    messages: [u64; 2],
    /// Exchanges by command.
    commands: Commands,
    /// By message id.
    pending: HashMap<u64, Pending>,
    /// Message ids by number of the exchange.
    by_exchange: HashMap<u64, u64>,
    /// The last exchange that was asked for by its number, and its message id: packets of one come in runs.
    last: (u64, u64),
    files: Recent<FileId, OpenFile>,
    /// By the key of a lease: its file.
    leases: Recent<[u8; 16], Arc<str>>,
    /// Session and tree id of connections to named pipes.
    pipes: Recent<(u64, u32), ()>,
    /// By the message id of a CREATE: the file that it opened, for those behind it in its compound.
    created: Recent<u64, FileId>,
    /// Message ids and credits.
    ids: Ids,
    /// Content of the NEGOTIATE reply.
    agreed: Agreed,
    /// Sessions and tree connects that were set up.
    context: Context,
    /// Dialects that the client offered in its last NEGOTIATE.
    offered: Offered,
    /// Rules about messages that must be signed.
    signing: Signing,
    negotiated: bool,
    missed: bool,
    answers: Answers<u64, RequestMemo>,
    unseal: Unseal,
    /// Time of the first reply to a request that was seen.
    first_reply: Option<At>,
    /// Detects that the client waits for credits.
    room: Ceiling,
    /// The last request after which others that wait may go on.
    released: Option<Released>,
    /// Oplocks and leases that its server asked for.
    kept: KeptList,
    /// Text of encrypted and compressed messages, one buffer a layer.
    clear: [Vec<u8>; LAYERS_MAX],
}

/// One message: the fields that the decoder reports are judged here.
struct Walk<'w, 'u, 'c> {
    smb2: &'w mut Smb2,
    memory: &'w mut Memory,
    cx: &'w mut FrameContext<'c>,
    message: &'w Smb2Message<'u>,
    by: End,
    /// The file of the request before, in a compound.
    file: Option<FileId>,
    name: Option<Arc<str>>,
    /// The message id of the CREATE before, in a compound.
    create: Option<u64>,
    /// The key that this message's Send invalidated, until a reply that asked for it is found.
    invalidate: Option<u32>,
    /// True if that was a key that a request of this compound asked for.
    invalidated: bool,
    replied: bool,
    /// True if it was encrypted on its way.
    sealed: bool,
    /// The message id of the request before it in the same message.
    before: Option<u64>,
    /// True if another message of the compound should follow the last one seen.
    goes_on: bool,
}

impl Smb2 {
    /// Bytes of memory that open requests and the text of sealed messages hold.
    pub(crate) fn held(&self) -> usize {
        self.pending.capacity() * (size_of::<(u64, Pending)>() + size_of::<Exchange>())
            + self.clear.iter().map(Vec::capacity).sum::<usize>()
    }

    /// SMB2 credits that the client can still spend, if known.
    pub(crate) fn credits_left(&self) -> Option<i64> {
        self.ids.held()
    }

    /// The row of an exchange that is not complete.
    pub(crate) fn open_exchange(&mut self, id: u64) -> Option<&mut Exchange> {
        self.open(id).map(|(exchange, _)| exchange)
    }

    /// The same, and which bytes came for it.
    #[inline]
    pub(crate) fn open(&mut self, id: u64) -> Option<(&mut Exchange, &mut Covered)> {
        if self.last.0 != id {
            self.last = (id, *self.by_exchange.get(&id)?);
        }
        // the message id may belong to another request by now
        let pending = self.pending.get_mut(&self.last.1).filter(|pending| pending.exchange.id == id)?;
        Some((&mut pending.exchange, &mut pending.came))
    }

    /// Messages are missing.
    pub(crate) fn missed(&mut self) {
        self.missed = true;
        self.ids.lost();
        self.unseal.missed();
    }

    /// The dialect, and what came with it, do not hold from here on.
    pub(crate) fn distrust(&mut self) {
        (self.agreed, self.offered) = (Agreed::default(), Offered::default());
    }

    /// Bytes of memory that payloads of open requests hold. It looks at all of them.
    pub(crate) fn payloads(&self) -> usize {
        self.pending.values().filter_map(|p| p.payload.as_ref()).map(|payload| payload.held()).sum()
    }

    /// Gives back the memory of the payloads of open requests.
    pub(crate) fn give_up_payloads(&mut self) {
        self.pending.values_mut().filter_map(|p| p.payload.as_mut()).for_each(|payload| payload.give_up());
    }

    /// Payload bytes of an exchange.
    pub(crate) fn payload(&mut self, exchange: u64, offset: u64, bytes: &[u8]) {
        let Some(pending) = self.by_exchange.get(&exchange).and_then(|id| self.pending.get_mut(id)) else { return };
        pending.payload.get_or_insert_default().put(offset, bytes);
    }

    /// An RDMA Read asks for bytes of an exchange.
    pub(crate) fn asked(&mut self, exchange: u64, delivery: &Delivery<'_>, length: Option<u32>) {
        let Some(pending) = self.by_exchange.get(&exchange).and_then(|id| self.pending.get_mut(id)) else { return };
        pending.asked.take(delivery, length);
    }

    /// A whole message. Which end is the client is learnt from it.
    pub(crate) fn message<T: Trace>(
        &mut self,
        cx: &mut FrameContext<'_>,
        memory: &mut Memory,
        message: &Smb2Message<'_>,
        t: &mut T,
    ) {
        self.messages[message.by.index()] += 1;
        if let Some(pieces) = message.pieces {
            cx.env.sink.assembled(Assembly::SmbDirect, cx.at.frame, pieces.frames());
            if T::ON {
                Assembly::SmbDirect.show(pieces, message.wire_length, t);
            }
        }
        if T::ON && message.reassembled {
            t.source("Reassembled SMB Direct", message.bytes);
        }
        self.layered(cx, memory, message, 0, false, t);
        if T::ON && message.reassembled {
            t.end_source();
        }
    }

    /// A message that may be encrypted or compressed: opened as far as it can be.
    fn layered<T: Trace>(
        &mut self,
        cx: &mut FrameContext<'_>,
        memory: &mut Memory,
        message: &Smb2Message<'_>,
        depth: usize,
        sealed: bool,
        t: &mut T,
    ) {
        let framing = Framing::of(message.bytes);
        let opaque = matches!(framing, Some(Framing::Encrypted | Framing::Compressed));
        // the invalidated key belongs to the message inside
        let outer = Smb2Message { invalidate: message.invalidate.filter(|_| !opaque), ..*message };
        self.plain(cx, memory, &outer, opaque, sealed, t);
        let whole = message.bytes.len() as u64 >= u64::from(message.wire_length);
        if framing == Some(Framing::Encrypted) {
            self.smb.encrypted = true;
        }
        if depth >= LAYERS_MAX || !whole || !opaque {
            self.unopened(cx, memory, framing, message);
            return;
        }
        let mut clear = core::mem::take(&mut self.clear[depth]);
        clear.clear();
        let (name, opened) = if framing == Some(Framing::Encrypted) {
            let direction =
                if cx.roles.client() == Some(message.by.peer()) { Direction::ToClient } else { Direction::ToServer };
            let keyring = &cx.env.options.keyring;
            let opened =
                !keyring.is_empty() && self.unseal.decrypt(message.bytes, direction, keyring, &mut clear).is_some();
            self.smb.decrypted += u64::from(opened);
            ("Decrypted SMB2", opened)
        } else {
            match compression::decompress_message(message.bytes, &mut clear, compression::LIMIT) {
                Ok(()) => ("Decompressed SMB2", true),
                Err(why) => {
                    let text = format_args!("sent a compressed message that cannot be read: {why}");
                    cx.report(Rule::Smb2Malformed, message.by, Rests::FRAME, text);
                    ("", false)
                }
            }
        };
        if opened {
            if T::ON {
                t.source(name, &clear);
            }
            let inner = Smb2Message { bytes: &clear, wire_length: clear.len() as u32, reassembled: true, ..*message };
            let sealed = sealed || framing == Some(Framing::Encrypted);
            self.layered(cx, memory, &inner, depth + 1, sealed, t);
            if T::ON {
                t.end_source();
            }
        } else {
            self.unopened(cx, memory, framing, message);
        }
        self.clear[depth] = clear;
    }

    /// Counts a message that could not be decrypted.
    fn unopened(
        &mut self,
        cx: &mut FrameContext<'_>,
        memory: &mut Memory,
        framing: Option<Framing>,
        message: &Smb2Message<'_>,
    ) {
        if !matches!(framing, Some(Framing::Encrypted | Framing::Compressed)) {
            return;
        }
        // its advertisements, requests and replies are not known
        self.ids.lost();
        cx.missed.encrypted(message.by, cx.at);
        if let Some(key) = message.invalidate {
            memory.invalidated(cx, message.by.peer(), key);
        }
        if framing == Some(Framing::Encrypted) {
            let (count, last) = &mut self.smb.sealed[message.by.index()];
            *count += 1;
            *last = Some(message.last);
        }
    }

    fn plain<T: Trace>(
        &mut self,
        cx: &mut FrameContext<'_>,
        memory: &mut Memory,
        message: &Smb2Message<'_>,
        opaque: bool,
        sealed: bool,
        t: &mut T,
    ) {
        let by = message.by;
        let mut walk = Walk {
            smb2: self,
            memory,
            cx,
            message,
            by,
            file: None,
            name: None,
            create: None,
            invalidate: message.invalidate,
            invalidated: false,
            replied: false,
            sealed,
            before: None,
            goes_on: true,
        };
        let result = smb2::parse_message(message.bytes, t, &mut walk);
        let (invalidate, replied) = (walk.invalidate, walk.replied);
        if walk.is_cut() && walk.goes_on {
            cx.missed.hidden(by, cx.at);
            self.ids.lost();
        }
        // an encrypted message is not malformed
        if let Err(error) = result
            && !opaque
            && message.bytes.len() as u64 >= u64::from(message.wire_length)
        {
            let fault = fault_of(error);
            cx.report(
                Rule::Smb2Malformed,
                by,
                Rests::FRAME,
                format_args!("sent an SMB2 message that cannot be read: {fault}"),
            );
        }
        match invalidate {
            Some(key) if replied => {
                // nothing in the message asked for it
                let text = format_args!("invalidated key {key:#010x} though no request asked for it");
                cx.report(Rule::RdmaInvalidate, by, Rests::START.of(by.peer()), text);
                memory.invalidated_wrongly(cx.at, by.peer(), key);
            }
            Some(key) => memory.invalidated(cx, by.peer(), key),
            None => {}
        }
    }

    /// The connection ends: requests without a reply will never have one.
    pub(crate) fn finish(&mut self, cx: &mut FrameContext<'_>, end: At, closed: Option<Option<End>>) {
        let mut left: Vec<Pending> = self.pending.drain().map(|(_, p)| p).collect();
        left.sort_by_key(|p| p.exchange.id);
        self.by_exchange.clear();
        if let Some(client) = cx.roles.client() {
            let mut found = Vec::new();
            self.ids.finish(|at, wrong| found.push((at, wrong)));
            found.into_iter().for_each(|(at, wrong)| broken(cx, client, at, wrong));
        }
        self.keeps(cx, end);
        // the request before, and whether it may wait
        let mut before = (0, false);
        for mut pending in left {
            // encrypted bytes are no payload
            let encrypted = pending.protection.as_ref().is_some_and(|p| p.encrypts);
            if let Some(payload) = pending.payload.take().filter(|_| !encrypted) {
                let length = pending.exchange.length.unwrap_or(0);
                payload.finish(&mut pending.exchange, length.into(), &mut cx.env.sink);
            }
            let exchange = &mut pending.exchange;
            let waited = end.since(exchange.request);
            let is_poll = exchange.is_poll();
            // who mounts waits for nobody else
            let is_mount = stats::MOUNTS.contains(&exchange.command) || stats::AROUND.contains(&exchange.command);
            // what a server closes, and says so, it works on no longer (3.3.5.6, 3.3.5.10)
            let file = pending.file_id.filter(|id| *id != FileId::PREVIOUS && exchange.file.is_some());
            let is_over = file.is_some_and(|id| self.files.get(&id).is_none());
            let is_patient = is_poll || !is_over && waited < most_wait(exchange, self.is_of_disk(&pending.named));
            // one that the server told to wait may wait for a long time; who closes meanwhile waits no longer
            exchange.is_withdrawn =
                exchange.pending && is_patient && (is_poll || !is_mount) && closed == Some(Some(pending.by));
            // who takes leave and then goes misses no reply
            let is_leave = matches!(exchange.command, "LOGOFF" | "TREE_DISCONNECT") && waited < LEAVES_WITHIN;
            exchange.is_withdrawn |= is_leave && closed == Some(Some(pending.by));
            let is_told = exchange.pending && is_patient && closed.is_none() || exchange.is_withdrawn;
            // in a compound each waits for the one before it, of which alone the interim reply is (3.3.4.2)
            let is_behind = exchange.is_related && exchange.turn.is_none() && before == (exchange.id - 1, true);
            exchange.is_withdrawn |= is_behind && closed == Some(Some(pending.by));
            let may_wait = may_wait(&pending.memo) || is_told || is_behind;
            before = (exchange.id, may_wait);
            let closer = closed.flatten().filter(|closer| *closer != pending.by);
            self.smb.setup.obliged = self.smb.setup.obliged.or(closer.and_then(|_| self.obliges(&pending.memo)));
            // a retransmitted request, of which the capture has nothing else, may have been answered before
            let is_answered = self.ids.is_answered(exchange.message_id);
            if !may_wait && !is_answered && is_unanswered(cx, exchange, pending.by, end) {
                let waits_for_data = exchange.reads.open > 0;
                // it may still come, until somebody gives up
                let is_early = waited < PENDING_MAX && closed.is_none_or(|closer| closer == Some(pending.by));
                let may_come = exchange.pending && (closed.is_none() && !is_over || is_early);
                let certainty = if waits_for_data || may_come {
                    Certainty::Guess
                } else {
                    cx.unanswered(exchange, pending.by, end)
                };
                let told = if exchange.pending { " after it had told the client to wait" } else { "" };
                let (command, waited) = (One(exchange.command), Milliseconds(waited));
                let text = format_args!("did not answer {command} in {waited}{told}");
                cx.report_as(exchange.request_end, Rule::Smb2Unanswered, pending.by.peer(), certainty, text);
                let told = exchange.pending.then_some(TOLD_TO_WAIT);
                let (blame, why) = (cx.blame(pending.by.peer()), waits_for_data.then_some(WAITS_FOR_DATA).or(told));
                cx.env.findings.because(Rule::Smb2Unanswered, Some(cx.about.id), blame, why);
            }
            exchange.close(cx.about.retransmissions);
            if !may_wait && !is_answered && has_answers(cx, exchange, pending.by) {
                self.commands.add_unanswered(exchange);
            } else {
                self.commands.add(exchange);
            }
            cx.env.complete(exchange);
        }
    }

    /// Tells which oplocks and leases the client never gave back, if it got the notifications. That is a guess: it may have
    /// done so over another connection of the session.
    fn keeps(&mut self, cx: &mut FrameContext<'_>, end: At) {
        let Some(client) = cx.roles.client() else { return };
        for kept in self.kept.overdue(end) {
            let is_there = |(_, acked)| kept.sequence.is_none_or(|mine| not_before(acked, mine));
            if !cx.about.acked[client.peer().index()].is_none_or(is_there) {
                continue;
            }
            let (held, lasted) = (kept.held, Milliseconds(kept.lasted(end)));
            let text = format_args!("did not give back {held}, which the server had asked for, within {lasted}");
            cx.report_as(kept.asked, Rule::Smb2BreakKept, client, Certainty::Guess, text);
        }
    }

    /// True if a request names a tree connect of which the capture shows that it is of files.
    fn is_of_disk(&mut self, named: &Named) -> bool {
        self.context.tree(named).is_some_and(|tree| self.pipes.get(&tree).is_none())
    }

    /// What makes a server close the connection, as it must, instead of an answer to this request.
    fn obliges(&self, memo: &RequestMemo) -> Option<Obliged> {
        let validates = RequestParameters::Ioctl { code: ControlCode::VALIDATE_NEGOTIATE_INFO.0 };
        // the answer to one of SMB1 asks for one of SMB2
        let is_agreed = self.smb.dialect.is_some_and(|dialect| dialect != Dialect::WILDCARD.0);
        let is_second = memo.command == Command::NEGOTIATE && is_agreed;
        is_second.then_some(Obliged::SecondNegotiate).or((memo.asked == validates).then_some(Obliged::Validation))
    }

    /// A request that was answered lately, or not yet, and the number of its exchange.
    pub(crate) fn known(&self, message_id: u64) -> Option<(RequestMemo, u64)> {
        let open = self.pending.get(&message_id).map(|pending| (pending.memo, pending.exchange.id));
        open.or_else(|| self.answers.find(&message_id))
    }

    /// Exchanges by command.
    pub(crate) fn commands(&self) -> &Commands {
        &self.commands
    }

    /// The same, to add to.
    pub(crate) fn commands_mut(&mut self) -> &mut Commands {
        &mut self.commands
    }

    /// Plain data for the report.
    pub(crate) fn summary(&self) -> super::Summary {
        let mut smb = self.smb.clone();
        // if something was missed, it may have been a CLOSE
        smb.open = self
            .files
            .values()
            .filter(|_| !self.missed)
            .map(|file| &file.name)
            .filter(|name| !name.is_empty())
            .cloned()
            .collect();
        smb.open.sort_unstable();
        smb.handles = if self.missed { 0 } else { self.files.values().count() as u64 };
        super::Summary { smb, messages: self.messages, commands: self.commands.clone(), ..super::Summary::default() }
    }

    /// Swaps ends A and B.
    pub(crate) fn swap_ends(&mut self) {
        self.smb.sealed.swap(0, 1);
        self.messages.swap(0, 1);
        self.pending.values_mut().for_each(|pending| pending.by = pending.by.peer());
    }

    /// Takes over the other half of a connection whose directions were first taken for two; `swapped` if their ends
    /// have other names.
    pub(crate) fn adopt(&mut self, mut from: Self, swapped: bool) {
        if swapped {
            from.swap_ends();
        }
        let (mine, theirs) = (&mut self.smb, from.smb);
        mine.dialect = mine.dialect.or(theirs.dialect);
        mine.signatures.iter_mut().zip(theirs.signatures).for_each(|(mine, theirs)| *mine += theirs);
        mine.encrypted |= theirs.encrypted;
        mine.decrypted += theirs.decrypted;
        mine.verified += theirs.verified;
        mine.setup.join(theirs.setup);
        for name in theirs.opened {
            if mine.opened.len() < Smb::OPENED_MAX && !mine.opened.contains(&name) {
                mine.opened.push(name);
            }
        }
        for session in theirs.sessions {
            if !mine.sessions.contains(&session) {
                mine.sessions.push(session);
            }
        }
        for (mine, theirs) in mine.sealed.iter_mut().zip(theirs.sealed) {
            *mine = (mine.0 + theirs.0, mine.1.max(theirs.1));
        }
        self.messages = [self.messages[0] + from.messages[0], self.messages[1] + from.messages[1]];
        self.commands.absorb(&from.commands);
        self.pending.extend(from.pending);
        self.by_exchange.extend(from.by_exchange);
        self.files.extend(from.files, FILES_MAX);
        self.leases.extend(from.leases, LEASES_MAX);
        self.pipes.extend(from.pipes, PIPES_MAX);
        self.negotiated |= from.negotiated;
        if self.agreed == Agreed::default() {
            self.agreed = from.agreed;
        }
        self.context.lost();
        self.unseal.adopt(from.unseal);
        self.missed();
    }
}

/// Reports a violation of the rules of ids and credits as a finding.
fn broken(cx: &mut FrameContext<'_>, client: End, at: At, wrong: MessageIdViolation) {
    let server = client.peer();
    match wrong {
        MessageIdViolation::Reused { id } => {
            let text = format_args!("sent a request with MessageId {id}, which was used before");
            cx.report_at(at, Rule::Smb2MessageId, client, Rests::START.of(client), text);
        }
        MessageIdViolation::Outside { command, id, end } => {
            let command = command_name(command);
            let text = format_args!("sent {command} with MessageId {id}; ids below {end} were granted");
            cx.report_at(at, Rule::Smb2MessageId, client, Rests::START.of(server), text);
        }
        MessageIdViolation::Overdrawn { command, charge, held } => {
            let (command, charge) = (command_name(command), charge.max(1));
            let text = format_args!("sent {command} (charge {charge}) without the SMB2 credits for it: it held {held}");
            cx.report_at(at, Rule::Smb2Credit, client, Rests::START.of(server), text);
        }
        MessageIdViolation::Unasked { command, id } => {
            let command = One(command_name(command));
            let text = format_args!("sent {command} reply with MessageId {id}, but there is no such request");
            cx.report_at(at, Rule::Smb2Reply, server, Rests::START.of(client), text);
        }
        MessageIdViolation::Again { command, id, first } => {
            let (command, frame) = (command_name(command), first.frame);
            let text =
                format_args!("answered the {command} with MessageId {id} a second time (first in frame {frame})");
            cx.report_at(at, Rule::Smb2Reply, server, Rests::since(first).of(server), text);
        }
        MessageIdViolation::Dry => {
            let text =
                format_args!("left the client without an SMB2 credit and without a request that could bring one");
            cx.report_at(at, Rule::Smb2Credit, server, Rests::START, text);
        }
    }
}

/// Cause of a failure that is about room (\[MS-ERREF\] 2.3.1).
/// Cause of a reply that invalidates another key than its request asked for.
const WRONG_KEY: &str = "The server took the key of another request, or of another descriptor of the same one";

fn of_space(status: NtStatus) -> Option<&'static str> {
    match status.name() {
        Some("STATUS_DISK_FULL") => Some("The volume is full"),
        Some("STATUS_QUOTA_EXCEEDED") => Some("The user's quota is used up"),
        _ => None,
    }
}

/// A file that is open.
#[derive(Clone, Debug)]
struct OpenFile {
    name: Arc<str>,
    session: u64,
    /// `None` if the reply does not say.
    tree: Option<u32>,
    /// The key of the lease with which it was opened.
    lease: Option<[u8; 16]>,
    /// True if its client has to acknowledge that its oplock ends: it may hold data that it has not written
    /// (\[MS-SMB2\] 3.3.4.6).
    is_exclusive: bool,
}

/// ns for which a request may wait after an interim reply (\[MS-SMB2\] 3.3.4.2), if it does not wait for an event: one
/// for data of a disk waits for the disk alone, any other one may wait until others have given back what they hold.
fn most_wait(exchange: &Exchange, is_of_disk: bool) -> i64 {
    match exchange.command {
        // a pipe that was connected to before the capture began, or over another channel, has an answer when its writer has
        "READ" | "WRITE" | "FLUSH" if exchange.channel == DataPath::Inline && !is_of_disk => i64::MAX,
        "READ" | "WRITE" | "FLUSH" => STORAGE_MAX,
        _ => PENDING_MAX,
    }
}

/// True if the server may have to ask others for their oplocks or leases before it carries out a command.
const fn may_wait_for_holders(command: Command) -> bool {
    matches!(
        command,
        Command::CREATE | Command::READ | Command::WRITE | Command::LOCK | Command::SET_INFO | Command::IOCTL
    )
}

/// From the first byte of all ranges that a LOCK unlocks, or locks, to the one behind the last; `None` if there is none.
fn range_of(lock: &LockRequest<'_>, unlocks: bool) -> Option<(u64, u64)> {
    let elements = lock.elements().filter(|element| element.unlock() == unlocks);
    let ranges = elements.map(|element| (element.offset, element.offset.saturating_add(element.length.max(1))));
    ranges.reduce(|(from, to), (begin, end)| (from.min(begin), to.max(end)))
}

/// True if a request may be without reply for as long as the connection lives.
fn may_wait(memo: &RequestMemo) -> bool {
    stats::may_wait(command_name(memo.command))
}

impl<'a> Visitor<'a> for Walk<'_, '_, '_> {
    fn memo(&mut self, header: &Header) -> Option<RequestMemo> {
        self.smb2.pending.get(&header.message_id).map(|p| p.memo)
    }

    fn pdu(&mut self, pdu: &Pdu<'a>) {
        let header = &pdu.header;
        self.goes_on = header.next_command != 0;
        let smb = &mut self.smb2.smb;
        if let Some(count) = Signing::counted(header).filter(|_| !self.sealed) {
            smb.signatures[count] += 1;
        }
        if session_of(header).is_some()
            && !smb.sessions.contains(&header.session_id)
            && smb.sessions.len() < SESSIONS_MAX
        {
            smb.sessions.push(header.session_id);
            self.cx.env.session(header.session_id, self.cx.about.id);
        }
        if !self.cx.env.options.keyring.is_empty() {
            self.verify(pdu);
        }
        if !self.is_cut() {
            let (by, command) = (self.by, One(command_name(header.command)));
            let kind = if header.is_response() { "reply" } else { "request" };
            shape::check(pdu, |wrong| {
                // the fragment before it may be missing
                let rests = if wrong == shape::ShapeViolation::Related { Rests::START.of(by) } else { Rests::FRAME };
                self.cx.report(Rule::Smb2Malformed, by, rests, format_args!("sent {command} {kind} {wrong}"));
            });
        }
        if header.is_response() { self.reply(pdu) } else { self.request(pdu) }
    }

    fn smb1(&mut self, header: &Smb1Header) {
        // the negotiation of several protocols takes the first id, 3.3.5.3.1
        if !header.is_response() && !self.smb2.negotiated && !self.smb2.missed && !self.smb2.ids.is_known() {
            let first = Header::request(Command::NEGOTIATE, 0);
            self.smb2.ids.begin();
            self.smb2.ids.request(&first, self.message.last, usize::MAX, |_, _| {});
        }
    }
}

/// The session of a message, as [`Exchange::session`] has it: none before it is set up, and the one of the message
/// before in a compound, \[MS-SMB2\] 3.2.4.1.4.
fn session_of(header: &Header) -> Option<[u8; 16]> {
    let id = header.session_id;
    (id != 0 && id != u64::MAX).then(|| u128::from(id).to_be_bytes())
}

/// The specification's name of a command.
pub(crate) const fn command_name(command: Command) -> &'static str {
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

impl Walk<'_, '_, '_> {
    /// Reports a rule broken in this message, or together with the evidence that it rests on.
    fn report(&mut self, rule: Rule, by: End, rests: Rests, text: core::fmt::Arguments<'_>) {
        self.cx.report(rule, by, rests, text);
    }

    /// True if the capture cut the message.
    fn is_cut(&self) -> bool {
        (self.message.bytes.len() as u64) < u64::from(self.message.wire_length)
    }

    /// Learns keys, and checks signatures.
    fn verify(&mut self, pdu: &Pdu<'_>) {
        let env = &mut *self.cx.env;
        self.smb2.unseal.learn(pdu, &env.options.keyring, &mut env.channels);
        let header = &pdu.header;
        // an interim reply has a signature of zeros
        if !header.is_signed() || self.is_cut() || header.is_interim() {
            return;
        }
        match self.smb2.unseal.verify(pdu, &self.cx.env.options.keyring) {
            SignatureCheck::Verified => self.smb2.smb.verified += 1,
            verdict @ (SignatureCheck::Failed | SignatureCheck::WithLength) => {
                let command = One(command_name(header.command));
                let kind = if header.is_response() { "reply" } else { "request" };
                let how = match verdict {
                    SignatureCheck::WithLength => {
                        "whose signature includes its length, which is not part of the message (ksmbd of Linux 6.12 \
                            does this)"
                    }
                    _ => "whose signature is wrong",
                };
                self.report(Rule::Smb2Signature, self.by, Rests::FRAME, format_args!("sent {command} {kind} {how}"));
            }
            SignatureCheck::Unproven | SignatureCheck::NoKey => {}
        }
    }

    fn request(&mut self, pdu: &Pdu<'_>) {
        let header = &pdu.header;
        // a server's requests (oplock breaks) are replies in form, so the sender of a request is the client
        self.cx.roles.learn(self.by, Source::Message);
        let first = header.command == Command::NEGOTIATE && header.message_id == 0;
        if first && !self.smb2.negotiated && !self.smb2.missed && !self.smb2.ids.is_known() {
            self.smb2.ids.begin();
        }
        if header.command == Command::CANCEL {
            return;
        }
        let early = self.spend(pdu);
        if let Some(why) = self.smb2.signing.request(header).filter(|_| !self.sealed) {
            let command = One(command_name(header.command));
            let text = format_args!("sent {command} {why} without a signature");
            self.report(Rule::Smb2Unsigned, self.by, Rests::START.of(self.by.peer()), text);
        }
        let id = self.cx.env.number_exchange();
        self.cx.env.frame.belongs(id, 0);
        self.cx.env.sink.request(id, pdu.bytes);
        let exchange = self.row(id, header);
        let exchange = self.cx.env.keep_exchange(exchange);
        let before = self.before.replace(header.message_id);
        let mut pending = Pending {
            exchange,
            memo: pdu.memo(),
            file_id: None,
            keys: KeyList::default(),
            invalidate: None,
            payload: None,
            protection: None,
            by: self.by,
            signed: header.is_signed() && !self.sealed,
            setup: pdu.body.as_ref().map(Setup::of).unwrap_or_default(),
            asked: Covered::default(),
            came: Covered::default(),
            created_by: None,
            named: Named::of(header),
            least: 0,
            next: None,
            lease: None,
            range: None,
        };
        match &pdu.body {
            Ok(Body::ReadRequest(read)) => {
                pending.exchange.is_of_a_pipe = self.is_of_a_pipe(header);
                pending.exchange.offset = Some(read.fixed.offset);
                pending.exchange.length = Some(read.fixed.length);
                pending.least = read.fixed.minimum_count;
                pending.file_id = Some(read.file());
                self.channel(pdu, &read.channel, read.fixed.length, Right::Write, &mut pending);
            }
            Ok(Body::WriteRequest(write)) => {
                pending.exchange.is_of_a_pipe = self.is_of_a_pipe(header);
                pending.exchange.offset = Some(write.fixed.offset);
                pending.exchange.length = Some(write.payload_length());
                pending.file_id = Some(write.file());
                if self.cx.env.options.payloads && !write.data.bytes.is_empty() {
                    let payload = pending.payload.get_or_insert_default();
                    payload.put(0, write.data.bytes);
                }
                let inline = write.channel.channel == smb2::Channel::NONE;
                if inline && self.message.fragments > 1 && self.cx.about.transport != Some(Transport::Tcp) {
                    let (bytes, fragments) = (write.data.length, self.message.fragments);
                    let text = format_args!(
                        "sent {bytes} bytes of a WRITE in {fragments} fragments; RDMA could have carried them"
                    );
                    self.report(Rule::SmbdFragCost, self.by, Rests::FRAME, text);
                }
                if self.cx.env.options.payloads {
                    pending.protection = write.channel.transform().and_then(|t| Protection::of(&t));
                }
                self.channel(pdu, &write.channel, write.payload_length(), Right::Read, &mut pending);
            }
            Ok(Body::NegotiateRequest(negotiate)) => {
                self.smb2.smb.setup.offer(negotiate, self.message.first);
                self.smb2.offered = if self.is_cut() { Offered::default() } else { Offered::of(negotiate) };
            }
            // the server is to end that session, with all that it has open (3.3.5.5.3)
            Ok(Body::SessionSetupRequest(setup)) if setup.fixed.previous_session_id != 0 => {
                self.smb2.files.retain(|open| open.session != setup.fixed.previous_session_id);
                self.smb2.smb.setup.previous = Some(setup.fixed.previous_session_id);
            }
            Ok(Body::SessionSetupRequest(setup)) if setup.fixed.binding() => {
                self.smb2.context.shared();
                self.smb2.smb.setup.binding = Some((self.message.first, None));
            }
            Ok(Body::IoctlRequest(ioctl)) if ioctl.code() == ControlCode::QUERY_NETWORK_INTERFACE_INFO => {
                // further channels of the session may follow, with tree connects of their own
                self.smb2.context.shared();
                self.smb2.smb.setup.asked.get_or_insert(self.message.first);
            }
            Ok(Body::CreateRequest(create)) => {
                let name: Arc<str> = Arc::from(create.name().to_string().as_str());
                pending.lease = create.contexts().find_map(|context| context.lease()).map(|lease| lease.key);
                if let Some(key) = pending.lease {
                    self.smb2.leases.insert(key, name.clone(), LEASES_MAX);
                }
                pending.exchange.file = Some(name.clone());
                self.name = Some(name);
                self.file = None;
                self.create = Some(header.message_id);
            }
            Ok(body) => {
                pending.file_id = body.file();
                pending.exchange.is_of_a_pipe = header.command == Command::FLUSH && self.is_of_a_pipe(header);
                if let Body::LockRequest(lock) = body {
                    pending.range = range_of(lock, false);
                }
            }
            Err(_) => {}
        }
        if let Some(file) = pending.file_id.filter(|f| *f != FileId::PREVIOUS) {
            self.file = Some(file);
            self.create = None;
            pending.exchange.file = self.smb2.files.get(&file).map(|open| open.name.clone());
        } else if header.is_related() && pending.exchange.file.is_none() {
            pending.exchange.file = self
                .name
                .clone()
                .or_else(|| self.file.and_then(|f| self.smb2.files.get(&f).map(|open| open.name.clone())));
        }
        if pending.file_id == Some(FileId::PREVIOUS) {
            pending.created_by = self.create;
            pending.file_id = self.file.or(pending.file_id);
        }
        self.cx.env.frame.asks(id, pending.exchange.file.as_ref());
        if let Some(early) = early {
            let exchange = &mut pending.exchange;
            (exchange.reply, exchange.reply_end, exchange.status) =
                (Some(early.at), Some(early.at), Some(early.status));
            exchange.close(self.cx.about.retransmissions);
            return self.cx.settling.push(pending.exchange, self.by.peer(), None);
        }
        self.releases(pdu, &pending);
        let limit = self.cx.env.options.requests_max;
        if self.smb2.pending.len() >= limit {
            self.forget();
        }
        if let Some(before) = before.and_then(|before| self.smb2.pending.get_mut(&before)) {
            before.next = Some(header.message_id);
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
        self.cx.env.requests_dropped += (before - self.smb2.pending.len()) as u64;
    }

    /// True if a request is about a named pipe.
    fn is_of_a_pipe(&mut self, header: &Header) -> bool {
        let tree = header.tree_id().filter(|_| !self.smb2.pipes.is_empty());
        tree.is_some_and(|tree| self.smb2.pipes.get(&(header.session_id, tree)).is_some())
    }

    fn row(&self, id: u64, header: &Header) -> Exchange {
        Exchange {
            id,
            connection: self.cx.about.id,
            message_id: header.message_id,
            session: session_of(header),
            retransmissions: self.cx.about.retransmissions as u32,
            wait_for_credit: self.message.waited,
            is_related: self.before.is_some(),
            sequence: self.cx.about.sequence,
            ..Exchange::begun(Family::Smb2, command_name(header.command), self.message.first, self.message.last)
        }
    }

    /// Takes SMB2's own credits and ids, \[MS-SMB2\] 3.2.4.1.5 and 3.3.5.2.5. Returns the reply, if it was captured
    /// before.
    fn spend(&mut self, pdu: &Pdu<'_>) -> Option<Early> {
        let header = &pdu.header;
        let (limit, client) = (self.cx.env.options.requests_max, self.by);
        let Self { smb2, cx, message, .. } = self;
        if let Some((begin, end)) = smb2.room.used(message.first) {
            cx.episodes.stalled(client, Cause::Smb2Credits, begin, end);
        }
        let early = smb2.ids.request(header, message.last, limit, |at, wrong| broken(cx, client, at, wrong));
        // later requests depend on their replies
        if smb2.ids.held() == Some(0) && !matches!(header.command, Command::NEGOTIATE | Command::SESSION_SETUP) {
            smb2.room.full(message.last);
        }
        let (size, charge) = (payload_of(header.command, pdu.bytes), header.credit_charge);
        let needed = charge_of(size);
        // without multiple credits the field is reserved
        let counts =
            if charge > 0 { smb2.agreed.multi_credit != Some(false) } else { smb2.agreed.multi_credit == Some(true) };
        if charge < needed && needed > 1 && counts {
            let command = command_name(header.command);
            let text = format_args!("sent {command} for {size} bytes with CreditCharge {charge}; it needs {needed}");
            cx.report(Rule::Smb2Credit, client, Rests::FRAME, text);
        }
        early
    }

    /// Takes the channel information of a READ or WRITE: checks it, and adds the memory that it advertises.
    fn channel(&mut self, pdu: &Pdu<'_>, info: &ChannelInfo<'_>, length: u32, right: Right, pending: &mut Pending) {
        let sure = Rests::FRAME;
        let by = self.by;
        let command = command_name(pdu.header.command);
        let (is_cut, agreed) = (self.is_cut(), self.smb2.agreed);
        let is_tcp = self.cx.about.transport == Some(Transport::Tcp);
        let cx = &mut *self.cx;
        let mut emit = |rule: Rule, text: core::fmt::Arguments<'_>| cx.report(rule, by, sure, text);
        let is_read = pdu.header.command == Command::READ;
        let (name, place) = if is_read { ("MaxReadSize", 0) } else { ("MaxWriteSize", 1) };
        if let Some(most) = agreed.most.map(|most| most[place]).filter(|most| length > *most) {
            let text = format_args!("sent a {command} of {length} bytes; the server's {name} is {most}");
            emit(Rule::Smb2MaxSize, text);
        }
        if is_tcp && info.channel != smb2::Channel::NONE {
            emit(
                Rule::BugKsmbdChannelInfo,
                format_args!("asked for the RDMA channel in a {command} on a TCP connection"),
            );
            // there are no keys that anybody could use or invalidate
            return;
        } else if channel::check(info, length, command, &agreed, is_cut, &mut emit) {
            emit(
                Rule::BugKsmbdChannelInfo,
                format_args!("sent a {command} with channel information that does not fit"),
            );
        }
        if info.channel == smb2::Channel::NONE {
            return;
        }
        if info.channel == smb2::Channel::RDMA_TRANSFORM && !is_cut {
            channel::check_transform(info.transform().as_ref(), &agreed, &mut emit);
        }
        pending.exchange.channel = match info.channel {
            smb2::Channel::RDMA_V1 => DataPath::Rdma,
            smb2::Channel::RDMA_V1_INVALIDATE => DataPath::RdmaInvalidate,
            _ => DataPath::RdmaTransform,
        };
        if let Some(dialect) = agreed.dialect.filter(|d| info.asks_for_invalidation() && *d < Dialect::SMB_3_0_2.0) {
            self.report(
                Rule::RdmaInvalidate,
                by,
                sure,
                format_args!("asked for remote invalidation in dialect {dialect:#06x}; it exists from 0x0302 on"),
            );
        }
        if let Some(limit) = self.message.max_read_write_size.filter(|limit| length > *limit) {
            self.report(
                Rule::RdmaLength,
                by,
                sure,
                format_args!("asked for {length} bytes in a {command}; MaxReadWriteSize is {limit}"),
            );
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
                advertised: self.message.last,
                state: State::Live,
                used: 0,
                awaited: false,
                is_void: false,
            };
            payload_offset += u64::from(descriptor.length);
            let key = descriptor.token;
            self.memory.advertise(self.cx, by, key, region);
            pending.keys.push(key);
            if let Some(slot) = pending.exchange.descriptors.get_mut(index) {
                *slot = Descriptor { offset: descriptor.offset, token: key, length: descriptor.length };
            }
            pending.exchange.descriptor_count += 1;
        }
    }

    fn reply(&mut self, pdu: &Pdu<'_>) {
        let header = &pdu.header;
        self.replied = true;
        self.cx.roles.learn(self.by.peer(), Source::Message);
        let is_notice = header.message_id == u64::MAX;
        if let Ok(Body::Break(broken)) = &pdu.body
            && is_notice
        {
            self.asks_back(broken);
        }
        if !is_notice {
            let (client, Self { smb2, cx, message, .. }) = (self.by.peer(), &mut *self);
            smb2.ids.reply(header, message.last, |at, wrong| broken(cx, client, at, wrong));
            if smb2.ids.held() != Some(0) {
                smb2.room.free(message.last);
            }
        }
        if pdu.form != BodyForm::Expected {
            let (command, status) = (command_name(header.command), Status(header.status().0));
            let what = match pdu.form {
                BodyForm::OwnUnderError => "the command's own body, where an ERROR body belongs",
                BodyForm::ErrorUnderSuccess => "an ERROR body, where the command's own belongs",
                _ => "a body that is neither its own nor an ERROR",
            };
            let is_neither = !matches!(pdu.form, BodyForm::OwnUnderError | BodyForm::ErrorUnderSuccess);
            // a client reads none of such a reply
            let rule = if is_neither { Rule::Smb2Malformed } else { Rule::Smb2ErrorBody };
            self.report(rule, self.by, Rests::FRAME, format_args!("answered {command} with {status} and {what}"));
        }
        if let Ok(Body::NegotiateResponse(negotiate)) = &pdu.body {
            self.smb2.smb.dialect = Some(negotiate.dialect().0);
            self.smb2.smb.setup.agree(self.message.first, negotiate);
            self.smb2.negotiated = true;
            if negotiate.dialect() != Dialect::WILDCARD {
                self.smb2.agreed = Agreed::of(negotiate, !self.is_cut());
            }
            self.chosen(header, negotiate.dialect());
        }
        if header.is_interim() {
            if let Some(pending) = self.smb2.pending.get_mut(&header.message_id) {
                pending.exchange.pending = true;
                self.cx.env.frame.belongs(pending.exchange.id, pending.exchange.rdma_bytes());
                let (client, id) = (pending.by, header.message_id);
                if let Some(key) = pending.invalidate.take_if(|key| self.invalidate == Some(*key)) {
                    self.invalidate = None;
                    let rests = Rests::since(pending.exchange.request).of(self.by);
                    let text = format_args!(
                        "invalidated key {key:#010x} with its interim reply to the request with MessageId {id}, before that \
                            was done"
                    );
                    self.report(Rule::RdmaInvalidate, self.by, rests, text);
                    self.memory.invalidated_wrongly(self.cx.at, client, key);
                }
            }
            return;
        }
        let Some(mut pending) = self.smb2.pending.remove(&header.message_id) else {
            // its request is not known, or comes behind it in the capture
            if matches!(header.command, Command::SESSION_SETUP | Command::TREE_CONNECT) {
                self.smb2.context.lost();
            }
            return;
        };
        self.smb2.by_exchange.remove(&pending.exchange.id);
        self.smb2.first_reply.get_or_insert(self.message.first);
        if !matches!(&pdu.body, Ok(Body::NegotiateResponse(_))) || self.smb2.agreed.dialect.is_some() {
            self.smb2.signing.learn(pdu, pending.setup);
        }
        self.answers(pdu, &pending);
        self.names(header, &pending);
        if pending.exchange.pending {
            self.waited_behind(header.command, &mut pending);
        }
        let asked = pending.exchange.request;
        let is_of_a_file = pending.exchange.file.is_some() || pending.file_id.is_some();
        let is_work = is_of_a_file && header.command != Command::CREATE && !pending.exchange.is_poll();
        if is_work && self.cx.env.breaks().may_hold_up(asked) {
            self.smb2.kept.answered(pending.exchange.file.as_deref(), asked, self.message.last);
        }
        if may_wait_for_holders(header.command) {
            let is_long = self.message.first.since(asked) >= SHARED_LEAST;
            let server = if is_long { self.host_of(self.by) } else { None };
            if self.cx.env.may_have_waited(asked, self.message.last, server) {
                self.waited_for_holders(&mut pending);
            }
        }
        if let Some(next) = pending.next.and_then(|next| self.smb2.pending.get_mut(&next)) {
            // it waited for whatever this one waited for
            let (exchange, next) = (&pending.exchange, &mut next.exchange);
            next.turn = Some(self.message.last);
            (next.recalled, next.perhaps_recalled) = (exchange.recalled, exchange.perhaps_recalled);
        }
        self.cx.env.sink.reply(pending.exchange.id, pdu.bytes);
        let status = header.status();
        let exchange = &mut pending.exchange;
        exchange.reply = Some(self.message.first);
        exchange.reply_end = Some(self.message.last);
        exchange.status = Some(status.0);
        exchange.session = exchange.session.or(session_of(header));
        let more = status == NtStatus::MORE_PROCESSING_REQUIRED;
        exchange.failed = status.severity() == Severity::Error && !more;
        let failed = exchange.failed;
        self.cx.env.frame.answers(exchange, self.message.last);
        let command = command_name(header.command);
        let answer = self.message.first;
        match (header.command, &mut self.smb2.smb.setup) {
            (Command::SESSION_SETUP, heard) if !more => heard.set_up(answer, status.0),
            (Command::SESSION_SETUP, heard) => heard.is_begun = true,
            // it closes all that the session had open (3.3.5.6), or had open through the tree connect (3.3.5.8)
            (Command::LOGOFF, _) if !failed => self.smb2.files.retain(|open| open.session != header.session_id),
            (Command::TREE_DISCONNECT, _) if !failed => {
                let gone = (header.session_id, header.tree_id());
                self.smb2.files.retain(|open| (open.session, open.tree) != gone && open.tree.is_some());
            }
            // what the server does not know is not open
            (Command::CLOSE, _) if status == NtStatus::FILE_CLOSED => {
                pending.file_id.iter().for_each(|file| self.smb2.files.remove(file));
            }
            (Command::IOCTL, heard) if pending.memo.asks_for_interfaces() => {
                heard.answer(
                    answer,
                    status.0,
                    if let Ok(Body::IoctlResponse(ioctl)) = &pdu.body { Some(ioctl) } else { None },
                );
            }
            _ => {}
        }
        if status == NtStatus::USER_SESSION_DELETED {
            self.smb2.files.retain(|open| open.session != header.session_id);
        }
        match &pdu.body {
            Ok(Body::CreateResponse(create)) => {
                let file = create.file();
                if let Some(name) = exchange.file.clone() {
                    let opened = &mut self.smb2.smb.opened;
                    if !name.is_empty() && opened.len() < Smb::OPENED_MAX && !opened.contains(&name) {
                        opened.push(name.clone());
                    }
                    let is_exclusive =
                        matches!(OplockLevel(create.fixed.oplock_level), OplockLevel::EXCLUSIVE | OplockLevel::BATCH);
                    let (session, tree, lease) = (header.session_id, header.tree_id(), pending.lease);
                    let open = OpenFile { name, session, tree, lease, is_exclusive };
                    self.smb2.files.insert(file, open, FILES_MAX);
                    self.smb2.created.insert(header.message_id, file, CREATED_MAX);
                }
            }
            Ok(Body::ReadResponse(read)) => {
                let inline = exchange.channel == DataPath::Inline;
                exchange.bytes_moved = u64::from(if inline {
                    read.data.length
                } else {
                    read.fixed.data_remaining.max(if read.fixed.rdma_transform() { 0 } else { read.data.length })
                });
                if inline && self.cx.env.options.payloads {
                    let payload = pending.payload.get_or_insert_default();
                    payload.put(0, read.data.bytes);
                }
                if inline && self.message.fragments > 1 && self.cx.about.transport != Some(Transport::Tcp) {
                    let (bytes, fragments) = (read.data.length, self.message.fragments);
                    let text = format_args!(
                        "asked for {bytes} bytes in a READ without RDMA: they came in {fragments} fragments"
                    );
                    self.report(Rule::SmbdFragCost, self.by.peer(), Rests::FRAME, text);
                }
                let moved = pending.exchange.bytes_moved;
                if !read.fixed.rdma_transform() {
                    self.counts(moved, &pending);
                }
                let writes = pending.exchange.writes;
                let (seen, first) = pending.came.of(moved).unwrap_or((writes.bytes, moved));
                // the bytes are where those of a READ without a channel are (3.3.5.12)
                let is_inline = pending.exchange.channel != DataPath::Inline
                    && (seen, read.fixed.data_remaining) == (0, 0)
                    && moved > 0
                    && read.data.bytes.len() as u64 == moved;
                if is_inline && !failed {
                    let rests = Rests::since(pending.exchange.request).of(self.by);
                    let text = format_args!(
                        "sent {moved} bytes of a READ in its reply; the client had asked for them by RDMA Write"
                    );
                    self.report(Rule::RdmaLength, self.by, rests, text);
                    let (blame, why) = (self.cx.blame(self.by), Some("A server that does not use the client's memory"));
                    self.cx.env.findings.because(Rule::RdmaLength, Some(self.cx.about.id), blame, why);
                } else if let Some(rests) = self.moved(&pending, writes.frames, self.memory.summary().write_bytes)
                    && !failed
                {
                    if moved != seen {
                        let text = format_args!("says it wrote {moved} bytes for a READ; {seen} were seen");
                        self.report(Rule::RdmaLength, self.by, rests, text);
                    } else if first < moved {
                        let behind = moved - first;
                        let text = format_args!(
                            "says it wrote {moved} bytes for a READ; {behind} of them went behind the first {moved} bytes of \
                                its memory"
                        );
                        self.report(Rule::RdmaLength, self.by, rests, text);
                    }
                }
            }
            Ok(Body::WriteResponse(write)) => {
                // no more than was to be written
                exchange.bytes_moved = u64::from(exchange.length.map_or(write.count, |length| length.min(write.count)));
                self.counts(write.count.into(), &pending);
                let (moved, length) = (pending.exchange.bytes_moved, pending.exchange.length);
                // what was asked for: some of the responses may not have been captured
                let (fetched, first) = pending.asked.of(moved).unwrap_or((moved, moved));
                if let Some(rests) = self.moved(&pending, pending.exchange.reads.frames, self.memory.summary().reads)
                    && !failed
                {
                    let length = u64::from(length.unwrap_or(u32::MAX));
                    if first < moved {
                        let text =
                            format_args!("says it wrote {moved} bytes of a WRITE; {first} were fetched by RDMA Read");
                        self.report(Rule::RdmaLength, self.by, rests, text);
                    } else if fetched > length {
                        // it may write less than it fetched, but there is no more to fetch
                        let text = format_args!("asked for {fetched} bytes by RDMA Read for a WRITE of {length}");
                        self.report(Rule::RdmaLength, self.by, rests, text);
                    } else if pending.came.of(moved).is_some_and(|(_, came)| came < moved) {
                        for key in pending.keys.iter() {
                            self.memory.awaits(pending.by, key, pending.exchange.id);
                        }
                    }
                }
            }
            Ok(Body::TreeConnectResponse(tree)) if tree.share_type == ShareType::PIPE.0 => {
                if let Some(id) = header.tree_id() {
                    self.smb2.pipes.insert((header.session_id, id), (), PIPES_MAX);
                }
            }
            Ok(Body::CloseResponse(_)) => {
                let created = pending.created_by.and_then(|id| self.smb2.created.get(&id).copied());
                if let Some(file) = created.or(pending.file_id) {
                    self.smb2.files.remove(&file);
                }
            }
            _ => {}
        }
        self.invalidation(&pending, failed);
        let is_read = matches!(&pdu.body, Ok(Body::ReadResponse(_) | Body::Error(_)));
        // nothing is written into the memory of a WRITE at all
        let is_void = header.command == Command::WRITE || is_read && (failed || pending.exchange.bytes_moved == 0);
        for key in pending.keys.iter() {
            self.memory.end(self.message.last, pending.by, key, pending.exchange.id, is_void);
        }
        if failed {
            let is_damage = exchange::Status(Family::Smb2, status.0).is_damage_of(command_name(header.command));
            let (rule, named) = (if is_damage { Rule::Smb2IoError } else { Rule::Smb2Error }, Status(status.0));
            self.report(rule, self.by, Rests::FRAME, format_args!("{command} failed: {named}"));
            if is_damage {
                let (blame, why) = (self.cx.blame(self.by), of_space(status));
                self.cx.env.findings.because(rule, Some(self.cx.about.id), blame, why);
            }
        }
        if let Some(mut payload) = pending.payload.take() {
            let length = pending.exchange.bytes_moved;
            let protection = match &pdu.body {
                Ok(Body::ReadResponse(read)) => read.transform().and_then(|t| Protection::of(&t)),
                _ => pending.protection.take(),
            };
            if protection.is_none_or(|p| self.undo(header, &p, pending.by, length, &mut payload)) {
                payload.finish(&mut pending.exchange, length, &mut self.cx.env.sink);
            } else if length > 0 {
                pending.exchange.payload_holes = Some(length);
            }
        }
        if matches!(header.command, Command::READ | Command::WRITE) && !failed {
            self.smb2.smb.setup.moved(&pending.exchange, pending.signed);
        }
        pending.exchange.close(self.cx.about.retransmissions);
        self.smb2.answers.add(header.message_id, pending.memo, pending.exchange.id);
        self.cx.answered(pending.exchange, pending.by.peer());
    }

    /// A request after which others may go on that wait: an unlock, a CLOSE, the acknowledgment of an oplock or lease
    /// break.
    #[inline]
    fn releases(&mut self, pdu: &Pdu<'_>, pending: &Pending) {
        match &pdu.body {
            Ok(Body::LockRequest(lock)) => {
                if let Some((from, to)) = range_of(lock, true) {
                    self.gives_back(pending, pending.exchange.file.clone(), Freed::Range(from, to));
                }
            }
            Ok(Body::CloseRequest(_)) => {
                if self.cx.env.breaks().may_hold_up(pending.exchange.request) {
                    self.closes(pending);
                }
                self.gives_back(pending, pending.exchange.file.clone(), Freed::Handle);
            }
            Ok(Body::Break(broken)) => self.acknowledges(broken, pending),
            // what was open is closed with it (3.3.5.6, 3.3.5.8)
            _ if matches!(pending.memo.command, Command::TREE_DISCONNECT | Command::LOGOFF) => self.smb2.kept.clear(),
            _ => {}
        }
    }

    /// Takes note of what a request gives back.
    fn gives_back(&mut self, pending: &Pending, file: Option<Arc<str>>, freed: Freed) {
        let exchange = &pending.exchange;
        let (id, at) = (exchange.id, exchange.request);
        let is_known = file.is_some() || matches!(freed, Freed::Cache(Some(_)));
        if let Some(server) = self.host_of(self.by.peer()).filter(|_| is_known) {
            let connection = self.cx.about.id;
            self.cx.env.release(Release { exchange: id, connection, server, file: file.clone(), freed, at });
        }
        self.smb2.released = Some(Released { exchange: id, file, id: pending.file_id, freed, at });
    }

    /// The server asks for an oplock or a lease (\[MS-SMB2\] 3.3.4.6, 3.3.4.7).
    #[cold]
    fn asks_back(&mut self, broken: &oplock::Break) {
        let (held, file, is_sure) = match broken {
            oplock::Break::Oplock(oplock) => {
                let open = self.smb2.files.get(&oplock.file());
                let is_sure =
                    OplockLevel(oplock.oplock_level) != OplockLevel::NONE || open.is_some_and(|open| open.is_exclusive);
                (Held::Oplock(oplock.file_id), open.map(|open| open.name.clone()), is_sure)
            }
            oplock::Break::LeaseNotification(lease) if lease.ack_required() => {
                (Held::Lease(lease.lease_key), self.smb2.leases.get(&lease.lease_key).cloned(), true)
            }
            _ => return,
        };
        let (connection, server, asked) = (self.cx.about.id, self.host_of(self.by), self.message.last);
        // a CLOSE or an acknowledgment that crosses it ends it, and one that cannot be read may
        let crosses = |p: &Pending| matches!(p.memo.command, Command::CLOSE | Command::OPLOCK_BREAK);
        let is_readable = !self.sealed && self.smb2.smb.sealed.iter().all(|(count, _)| *count == 0);
        if is_sure && file.is_some() && is_readable && !self.smb2.pending.values().any(crosses) {
            self.smb2.kept.ask(held, file.clone(), asked, self.cx.about.sequence);
        }
        self.cx.env.ask_back(Break { connection, server, held, file, is_sure, asked, ended: None, by: None });
    }

    /// The client acknowledges that an oplock or a lease ends.
    #[cold]
    fn acknowledges(&mut self, broken: &oplock::Break, pending: &Pending) {
        let held = match broken {
            oplock::Break::Oplock(oplock) => Held::Oplock(oplock.file_id),
            oplock::Break::Lease(lease) => Held::Lease(lease.lease_key),
            oplock::Break::LeaseNotification(_) => return,
        };
        if let oplock::Break::Oplock(oplock) = broken {
            self.smb2.files.change(&oplock.file(), |open| open.is_exclusive = false);
        }
        let own = match held {
            Held::Lease(key) => self.smb2.leases.get(&key).cloned(),
            Held::Oplock(_) => pending.exchange.file.clone(),
        };
        let (asked, file) = self.ends(held, pending).unzip();
        self.gives_back(pending, own.or(file.flatten()), Freed::Cache(asked));
    }

    /// A CLOSE ends the oplock of its handle, and what its lease was asked for.
    #[cold]
    fn closes(&mut self, pending: &Pending) {
        let Some(file) = pending.file_id else { return };
        self.ends(Held::Oplock(file.0), pending);
        if let Some(key) = self.smb2.files.get(&file).and_then(|open| open.lease) {
            self.ends(Held::Lease(key), pending);
        }
    }

    /// A request ends a break. Returns when that was sent, and its file.
    fn ends(&mut self, held: Held, pending: &Pending) -> Option<(At, Option<Arc<str>>)> {
        if let Some(kept) = self.smb2.kept.end(held, pending.exchange.request) {
            let lasted = Milliseconds(kept.lasted(pending.exchange.request));
            let text = format_args!("gave back {held} {lasted} after the server had asked for it");
            if self.cx.about.retransmissions > 0 {
                // the notification may have been sent again before it arrived
                self.cx.guess(Rule::Smb2BreakKept, self.by, text);
            } else {
                self.cx.report(Rule::Smb2BreakKept, self.by, Rests::since(kept.asked).of(self.by), text);
            }
        }
        let (connection, server) = (self.cx.about.id, self.host_of(self.by.peer()));
        let by = (pending.exchange.request, pending.exchange.id);
        let ended = self.cx.env.breaks().end(connection, server, held, by)?;
        Some((ended.asked, ended.file.clone()))
    }

    /// Takes an answer while oplocks or leases were asked for: the time until they were given back is their holders'.
    #[cold]
    fn waited_for_holders(&mut self, pending: &mut Pending) {
        let handle = pending.file_id.filter(|_| pending.memo.command != Command::CREATE);
        let open = handle.and_then(|handle| self.smb2.files.get(&handle));
        let lease = pending.lease.or(open.and_then(|open| open.lease));
        let waiter = Waiter { handle: handle.map(|handle| handle.0), lease, ..self.waiter(pending) };
        let Waited { of_it, perhaps, behind } = self.cx.env.held_up(&waiter, self.message.first);
        let exchange = &mut pending.exchange;
        exchange.recalled = exchange.recalled.max(of_it);
        exchange.perhaps_recalled = exchange.perhaps_recalled.max(perhaps);
        let is_most = of_it >= self.message.first.since(exchange.request) / 2;
        exchange.behind = behind.filter(|_| is_most).map(Behind::Exchange).or(exchange.behind);
        self.smb2.smb.perhaps_recalled |= perhaps > of_it;
    }

    /// A request as one that waits for another.
    fn waiter<'p>(&self, pending: &'p Pending) -> Waiter<'p> {
        Waiter {
            connection: self.cx.about.id,
            server: self.host_of(pending.by.peer()),
            command: pending.exchange.command,
            file: pending.exchange.file.as_deref(),
            handle: None,
            lease: None,
            asked: pending.exchange.request,
        }
    }

    /// The address of an end, if the current frame shows it.
    fn host_of(&self, end: End) -> Option<Addr> {
        let (from, to) = self.cx.env.frame.hosts?;
        Some(if self.cx.sender? == end { from } else { to })
    }

    /// Takes the last answer to a request that the server had put off, and finds the request of the client that it
    /// waited for, if any.
    #[cold]
    fn waited_behind(&mut self, command: Command, pending: &mut Pending) {
        if !matches!(command, Command::LOCK | Command::CREATE) {
            return;
        }
        let (waiter, range, reply) = (self.waiter(pending), pending.range, self.message.first);
        let is_own = |released: &&Released| {
            let is_handle = released.id.is_some() && released.id == pending.file_id;
            let is_same = Some(true).filter(|_| is_handle);
            let is_same = is_same.or_else(|| breaks::is_same(released.file.as_deref(), waiter.file));
            released.freed.lets(is_same, waiter.asked, range)
                && released.at > waiter.asked
                && reply.since(released.at) <= RELEASED_WITHIN
        };
        let own = self.smb2.released.as_ref().filter(is_own).map(|released| released.exchange);
        let other = || self.cx.env.released(&waiter, range, reply).filter(|_| waiter.server.is_some());
        let behind = own.or_else(other);
        let exchange = &mut pending.exchange;
        exchange.behind = behind.map(Behind::Exchange).or(exchange.behind);
    }

    /// Evidence that a request moved as many bytes as were seen, in `frames` frames of its own and `of_connection`
    /// frames of the whole connection; `None` if they cannot be known.
    fn moved(&self, pending: &Pending, frames: u32, of_connection: u64) -> Option<Rests> {
        let since = Rests::since(pending.exchange.request);
        match frames {
            _ if pending.exchange.channel == DataPath::Inline => None,
            // nothing at all: sequence numbers show that none was missed, or some Write of the connection was captured;
            // and the purpose of all Writes must be known
            0 => {
                let is_counted = self.cx.about.transport.is_some_and(Transport::is_rdma);
                // if the capture began late, it may have been answered before, and the request be one that went out
                // again
                let is_first = self.smb2.first_reply.is_none_or(|first| pending.exchange.request < first);
                let is_seen = (is_counted || of_connection > 0)
                    && (self.cx.about.opening_seen || !is_first && self.cx.about.retransmissions == 0);
                (is_seen && self.memory.unattributed() == 0 && pending.exchange.descriptor_count > 0).then_some(since)
            }
            _ => Some(since.of(self.by).though_cut()),
        }
    }

    /// Checks that the server chose a dialect that the client had offered. From any other, nothing follows for the
    /// client.
    fn chosen(&mut self, header: &Header, dialect: Dialect) {
        let request = self.smb2.pending.get(&header.message_id).filter(|p| p.memo.command == Command::NEGOTIATE);
        let is_offered = self.smb2.offered.has(dialect);
        if let Some(request) = request.map(|p| p.exchange.request).filter(|_| is_offered == Some(false)) {
            let rests = Rests::since(request).of(self.by);
            let (dialect, offered) = (dialect.0, self.smb2.offered);
            let text = format_args!("chose dialect {dialect:#06x}; the client had offered {offered}");
            self.report(Rule::Smb2Dialect, self.by, rests, text);
        }
        if is_offered == Some(false) || dialect.name().is_none() {
            self.smb2.agreed = Agreed::default();
        }
    }

    /// Checks how many bytes the reply to a READ or WRITE says were moved.
    fn counts(&mut self, count: u64, pending: &Pending) {
        let rests = Rests::since(pending.exchange.request).of(self.by);
        let is_write = pending.memo.command == Command::WRITE && !pending.exchange.is_of_a_pipe;
        if let Some(length) = pending.exchange.length.filter(|length| count == 0 && *length > 0 && is_write) {
            if !pending.exchange.failed {
                let text = format_args!("answered a WRITE of {length} bytes with success, and wrote none of them");
                self.report(Rule::Smb2Reply, self.by, rests, text);
            }
            return;
        }
        // it may be less: the client asks for the rest, or sends it, once more
        let too_much = |length: &u32| count > u64::from(*length) && !pending.exchange.failed;
        let Some(length) = pending.exchange.length.filter(too_much) else {
            let is_short = pending.memo.command == Command::READ && count < pending.least.into();
            if is_short && pending.exchange.status == Some(NtStatus::SUCCESS.0) && self.smb2.is_of_disk(&pending.named)
            {
                let least = pending.least;
                let text = format_args!(
                    "answered a READ with success and {count} bytes; its MinimumCount is {least}, and fewer must be \
                        answered with STATUS_END_OF_FILE"
                );
                self.report(Rule::Smb2Reply, self.by, rests, text);
            }
            return;
        };
        if pending.memo.command == Command::WRITE {
            let text = format_args!("says it wrote {count} bytes of a WRITE of {length}");
            self.report(Rule::RdmaLength, self.by, rests, text);
        } else {
            let rule = if pending.exchange.channel == DataPath::Inline { Rule::Smb2Reply } else { Rule::RdmaLength };
            self.report(rule, self.by, rests, format_args!("answered a READ of {length} bytes with {count}"));
        }
    }

    /// Checks that a request named a session and a tree connect that were set up, and that its reply names the same.
    fn names(&mut self, header: &Header, pending: &Pending) {
        let (context, client) = (&mut self.smb2.context, pending.by);
        let command = One(command_name(pending.memo.command));
        let named = Named::of_reply(header);
        let wrong = context.wrong(&pending.named, &named, pending.memo.command);
        let meant = context.meant(&pending.named, &named);
        context.learn(header, &pending.named, pending.memo.command);
        match wrong {
            None => {}
            // channels share the tree connects of a session, and this one may not have seen the others: the server knew it
            Some(context::UnfitId::Tree(_)) if !pending.exchange.failed && self.smb2.smb.setup.may_have_channels() => {}
            // a capture that begins behind the negotiation lacks what was set up
            Some(context::UnfitId::Session(_) | context::UnfitId::Tree(_)) if !self.smb2.negotiated => {}
            Some(wrong @ (context::UnfitId::Session(_) | context::UnfitId::Tree(_))) => {
                let text = format_args!("sent {command} with {wrong}, which was not set up on this connection");
                self.cx.report_at(pending.exchange.request_end, Rule::Smb2SessionId, client, Rests::START, text);
            }
            Some(wrong) => {
                let rests = Rests::since(pending.exchange.request).of(self.by);
                self.report(Rule::Smb2SessionId, self.by, rests, format_args!("answered {command} with {wrong}"));
                if let Some(meant) = meant.filter(|_| matches!(wrong, context::UnfitId::OtherTree(..))) {
                    // another channel of the session may have set it up
                    let text = format_args!("sent {command} with {meant}, which was not set up on this connection");
                    self.cx.guess(Rule::Smb2SessionId, client, text);
                }
            }
        }
    }

    /// Checks that a reply fits its request.
    fn answers(&mut self, pdu: &Pdu<'_>, pending: &Pending) {
        let header = &pdu.header;
        let (rests, command) = (Rests::since(pending.exchange.request).of(self.by), command_name(header.command));
        if pending.memo.command != header.command {
            let (asked, id, command) = (command_name(pending.memo.command), header.message_id, One(command));
            let text = format_args!("answered the {asked} with MessageId {id} as if it were {command}");
            self.report(Rule::Smb2Reply, self.by, rests, text);
        }
        if pending.signed && !self.sealed && Signing::reply(header) {
            let text = format_args!("answered a signed {command} without a signature");
            self.report(Rule::Smb2Unsigned, self.by, rests, text);
        }
        if let Ok(Body::ReadResponse(read)) = &pdu.body
            && read.fixed.rdma_transform()
            && !self.is_cut()
        {
            let (by, agreed) = (self.by, self.smb2.agreed);
            let cx = &mut *self.cx;
            channel::check_transform(read.transform().as_ref(), &agreed, &mut |rule, text| {
                cx.report(rule, by, Rests::FRAME, text)
            });
        }
    }

    /// Removes the protection of data that RDMA moved. False if it stays encrypted.
    fn undo(
        &mut self,
        header: &Header,
        protection: &Protection,
        client: End,
        length: u64,
        payload: &mut Payload,
    ) -> bool {
        let Protection { encrypts, signature, nonce } = protection;
        let unseal = &self.smb2.unseal;
        let reads = header.command == Command::READ;
        if *encrypts {
            let direction = if reads { Direction::ToClient } else { Direction::ToServer };
            return payload
                .change(length, |data| unseal.decrypt_rdma(header.session_id, direction, nonce, signature, data))
                == Some(true);
        }
        let verdict = payload.change(length, |data| unseal.verify_rdma(header.session_id, nonce, signature, data));
        match verdict {
            Some(SignatureCheck::Verified) => self.smb2.smb.verified += 1,
            Some(SignatureCheck::Failed) => {
                let (by, command) = if reads { (client.peer(), "READ") } else { (client, "WRITE") };
                let rests = Rests::since(self.cx.at).of(self.by).though_cut();
                self.report(
                    Rule::Smb2Signature,
                    by,
                    rests,
                    format_args!("moved data of a {command} over RDMA whose signature is wrong"),
                );
            }
            _ => {}
        }
        true
    }

    /// Checks that the reply invalidated the key that the request asked for.
    fn invalidation(&mut self, pending: &Pending, failed: bool) {
        let rests = Rests::since(self.cx.at).of(self.by).though_cut();
        match (pending.invalidate, self.invalidate) {
            (Some(asked), Some(done)) if asked == done => {
                (self.invalidate, self.invalidated) = (None, true);
                self.memory.invalidated_as_asked(self.cx, pending.by, done);
            }
            // a later reply of the compound may be that of the request which asked for it
            (Some(_), Some(done)) if self.goes_on && self.smb2.pending.values().any(|p| p.invalidate == Some(done)) => {
                self.invalidated = true;
            }
            (Some(asked), Some(done)) => {
                self.invalidate = None;
                let text = format_args!("invalidated key {done:#010x} where {asked:#010x} was asked for");
                self.report(Rule::RdmaInvalidate, self.by, rests, text);
                let (id, blame) = (Some(self.cx.about.id), self.cx.blame(self.by));
                self.cx.env.findings.because(Rule::RdmaInvalidate, id, blame, Some(WRONG_KEY));
                self.memory.invalidated_wrongly(self.cx.at, pending.by, done);
            }
            // a Send takes one key, and the replies of a compound are one
            (Some(_), None) if self.invalidated => {}
            (Some(asked), None) if failed => {
                let text = format_args!("did not invalidate key {asked:#010x} with its error reply");
                self.report(Rule::BugKsmbd2fd5dcb1c8ef, self.by, rests, text);
            }
            (Some(asked), None) => {
                let text = format_args!("did not invalidate key {asked:#010x}, as it was asked to");
                self.report(Rule::RdmaInvalidate, self.by, rests, text);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::alone::Alone;
    use crate::finding::Blame;
    use crate::messages::stream::Record;
    use rdmascope_dissector::trace::Off;
    use rdmascope_dissector::wire::smb2::header::flags::{ASYNC, RESPONSE};

    const ECHO: u16 = Command::ECHO.0;
    const STATUS_PENDING: u32 = NtStatus::PENDING.0;

    /// A header of SMB2 (\[MS-SMB2\] 2.2.1) and the body of ECHO.
    fn echo(flags: u32, status: u32, message_id: u64, credits: u16) -> Vec<u8> {
        let mut out = b"\xfeSMB".to_vec();
        out.extend(64_u16.to_le_bytes());
        out.extend(1_u16.to_le_bytes());
        out.extend(status.to_le_bytes());
        out.extend(ECHO.to_le_bytes());
        out.extend(credits.to_le_bytes());
        out.extend(flags.to_le_bytes());
        out.extend(0_u32.to_le_bytes());
        out.extend(message_id.to_le_bytes());
        out.extend(if flags & ASYNC != 0 { 9_u64 } else { 0 }.to_le_bytes());
        out.extend([0; 24]);
        // of an error the body of its response, else that of ECHO: both have no data
        out.extend_from_slice(if status == 0 { &[4, 0, 0, 0] } else { &[9, 0, 0, 0, 0, 0, 0, 0, 0] });
        out
    }

    /// The SMB2 layer alone.
    struct Layer {
        alone: Alone,
        memory: Memory,
        smb2: Smb2,
    }

    impl Layer {
        fn new() -> Self {
            Self { alone: Alone::new(), memory: Memory::default(), smb2: Smb2::default() }
        }

        fn message(&mut self, by: End, bytes: &[u8]) -> &mut Self {
            let mut cx = self.alone.frame(by);
            let (at, wire_length) = (cx.at, bytes.len() as u32);
            let record = Record { first: at, last: at, bytes, wire_length, in_frame: true, pieces: None };
            let message = Smb2Message::of_record(by, &record);
            self.smb2.message(&mut cx, &mut self.memory, &message, &mut Off);
            self
        }
    }

    const READ: u16 = Command::READ.0;
    const CREATE: u16 = Command::CREATE.0;
    const ERROR: &[u8] = &[9, 0, 0, 0, 0, 0, 0, 0, 0];
    const FILE: [u8; 16] = [3; 16];

    /// A message of session 7 and tree connect 5, its header (\[MS-SMB2\] 2.2.1) and this body.
    fn pdu(command: u16, flags: u32, status: u32, message_id: u64, body: &[u8]) -> Vec<u8> {
        let mut out = echo(flags, status, message_id, 1);
        out.truncate(64);
        out[12..14].copy_from_slice(&command.to_le_bytes());
        if flags & ASYNC == 0 {
            out[36] = 5;
        }
        out[40] = 7;
        out.extend(body);
        out
    }

    /// CREATE of a file (\[MS-SMB2\] 2.2.13), and its reply with an oplock (2.2.14).
    fn create(name: u8) -> Vec<u8> {
        let mut body = [0; 58];
        (body[0], body[44], body[46], body[56]) = (57, 120, 2, name);
        body.to_vec()
    }

    fn created(level: u8, file: [u8; 16]) -> Vec<u8> {
        let mut body = [0; 88];
        (body[0], body[2]) = (89, level);
        body[64..80].copy_from_slice(&file);
        body.to_vec()
    }

    /// A body that has a FileId behind its first `before` bytes, and is so long.
    fn of_file(size: u8, before: usize, length: usize, file: [u8; 16]) -> Vec<u8> {
        let mut body = alloc::vec![0; length];
        body[0] = size;
        body[before..before + 16].copy_from_slice(&file);
        body
    }

    fn read() -> Vec<u8> {
        of_file(49, 16, 49, FILE)
    }

    impl Layer {
        fn connected(mut self) -> Self {
            self.message(End::A, &pdu(Command::TREE_CONNECT.0, 0, 0, 90, &[9, 0, 0, 0, 72, 0, 0, 0]));
            let mut tree = [0; 16];
            (tree[0], tree[2]) = (16, ShareType::DISK.0);
            self.message(End::B, &pdu(Command::TREE_CONNECT.0, RESPONSE, 0, 90, &tree));
            self
        }

        /// The certainty with which a request is told as unanswered when the connection ends, so many seconds later.
        fn ended(&mut self, seconds: i64, closed: Option<Option<End>>) -> Option<Certainty> {
            let at = self.alone.at;
            End::BOTH.into_iter().for_each(|end| self.alone.missed.captured(end, At::default()));
            let mut cx = self.alone.frame(End::B);
            self.smb2.finish(&mut cx, At { time: at.time + seconds * 1_000_000_000, ..at }, closed);
            cx.env.findings.iter().find(|f| f.rule == Rule::Smb2Unanswered).map(|f| f.certainty)
        }
    }

    /// \[MS-SMB2\] 3.3.4.2: an interim reply puts the final one off.
    #[test]
    fn who_was_told_to_wait_does_not_wait_for_ever() {
        const CLIENT: Option<Option<End>> = Some(Some(End::A));
        const LOCK: u16 = Command::LOCK.0;
        let (maybe, likely) = (Some(Certainty::Guess), Some(Certainty::IfNothingWasMissed));
        let lock = of_file(48, 8, 48, FILE);
        for (command, body, is_known, seconds, closed, expected) in [
            (READ, read(), true, 12, None, None),
            (READ, read(), true, 16, None, maybe),
            (READ, read(), true, 600, None, maybe),
            (READ, read(), true, 5, CLIENT, None),
            (READ, read(), true, 20, CLIENT, maybe),
            (READ, read(), true, 58, CLIENT, likely),
            (READ, read(), true, 5, Some(Some(End::B)), likely),
            // it may be of a pipe
            (READ, read(), false, 600, None, None),
            (CREATE, create(b'f'), true, 34, None, None),
            (CREATE, create(b'f'), true, 36, None, maybe),
            (LOCK, lock, true, 600, None, None),
        ] {
            let mut layer = if is_known { Layer::new().connected() } else { Layer::new() };
            layer.message(End::A, &pdu(command, 0, 0, 1, &body));
            layer.message(End::B, &pdu(command, RESPONSE | ASYNC, STATUS_PENDING, 1, ERROR));
            assert_eq!(layer.ended(seconds, closed), expected, "{command} {is_known} {seconds} {closed:?}");
        }
    }

    /// \[MS-SMB2\] 3.3.5.10: what the server has closed, it works on no longer.
    #[test]
    fn a_request_of_a_file_that_was_closed_waits_for_nothing() {
        const CLOSE: u16 = Command::CLOSE.0;
        for (closes, expected) in [(true, Some(Certainty::Guess)), (false, None)] {
            let mut layer = Layer::new().connected();
            layer.message(End::A, &pdu(CREATE, 0, 0, 1, &create(b'f')));
            layer.message(End::B, &pdu(CREATE, RESPONSE, 0, 1, &created(0, FILE)));
            layer.message(End::A, &pdu(READ, 0, 0, 2, &read()));
            layer.message(End::B, &pdu(READ, RESPONSE | ASYNC, STATUS_PENDING, 2, ERROR));
            if closes {
                layer.message(End::A, &pdu(CLOSE, 0, 0, 3, &of_file(24, 8, 24, FILE)));
                layer.message(End::B, &pdu(CLOSE, RESPONSE, 0, 3, &of_file(60, 40, 60, [0; 16])));
            }
            assert_eq!(layer.ended(3, Some(Some(End::A))), expected, "{closes}");
        }
    }

    /// READ of 8 bytes into memory with key 9, which its reply is to invalidate (\[MS-SMB2\] 2.2.19).
    fn read_by_rdma() -> Vec<u8> {
        let mut body = read();
        body.resize(64, 0);
        (body[4], body[36], body[44], body[46], body[56], body[60]) = (8, 2, 112, 16, 9, 8);
        body
    }

    impl Layer {
        /// A message in a Send with Invalidate of key 9.
        fn invalidating(&mut self, by: End, bytes: &[u8]) {
            let mut cx = self.alone.frame(by);
            cx.about.transport = Some(Transport::RoceV2);
            let (at, wire_length) = (cx.at, bytes.len() as u32);
            let record = Record { first: at, last: at, bytes, wire_length, in_frame: true, pieces: None };
            let message = Smb2Message { invalidate: Some(9), ..Smb2Message::of_record(by, &record) };
            self.smb2.message(&mut cx, &mut self.memory, &message, &mut Off);
        }

        fn texts(&mut self) -> Vec<(Rule, alloc::string::String)> {
            let cx = self.alone.frame(End::B);
            cx.env.findings.iter().map(|f| (f.rule, f.text.clone())).collect()
        }
    }

    #[test]
    fn an_interim_reply_invalidates_no_key() {
        let mut layer = Layer::new();
        layer.message(End::A, &pdu(READ, 0, 0, 1, &read_by_rdma()));
        layer.invalidating(End::B, &pdu(READ, RESPONSE | ASYNC, STATUS_PENDING, 1, ERROR));
        layer.message(End::B, &pdu(READ, RESPONSE | ASYNC, NtStatus::ACCESS_DENIED.0, 1, ERROR));
        let text =
            "invalidated key 0x00000009 with its interim reply to the request with MessageId 1, before that was done";
        let told = layer.texts();
        assert!(told.iter().any(|told| *told == (Rule::RdmaInvalidate, text.into())), "{told:?}");
        assert!(told.iter().all(|(rule, _)| *rule != Rule::BugKsmbd2fd5dcb1c8ef), "{told:?}");
    }

    #[test]
    fn data_in_the_reply_where_rdma_was_asked_for_is_named() {
        let mut layer = Layer::new();
        layer.message(End::A, &pdu(READ, 0, 0, 1, &read_by_rdma()));
        let mut reply = [0; 24];
        (reply[0], reply[2], reply[4]) = (17, 80, 8);
        layer.invalidating(End::B, &pdu(READ, RESPONSE, 0, 1, &reply));
        let text = "sent 8 bytes of a READ in its reply; the client had asked for them by RDMA Write";
        assert_eq!(layer.texts(), [(Rule::RdmaLength, text.into())]);
    }

    /// Two messages of ECHO in one.
    fn compound(flags: u32, ids: [u64; 2]) -> Vec<u8> {
        let mut first = echo(flags, 0, ids[0], 1);
        first.resize(72, 0);
        first[20] = 72;
        [first, echo(flags, 0, ids[1], 1)].concat()
    }

    #[test]
    fn who_waits_for_the_request_before_it_in_a_compound_was_told_to_wait_with_that() {
        for (told, expected) in [(1, None), (2, Some(Certainty::IfNothingWasMissed))] {
            let mut layer = Layer::new();
            layer.message(End::A, &compound(0, [1, 2]));
            layer.message(End::B, &echo(RESPONSE | ASYNC, STATUS_PENDING, told, 1));
            assert_eq!(layer.ended(12, None), expected, "{told}");
        }
    }

    #[test]
    fn a_request_of_a_compound_has_its_turn_when_the_one_before_it_is_done() {
        for is_in_turn in [true, false] {
            let mut layer = Layer::new();
            layer.message(End::A, &compound(0, [1, 2]));
            let replies = if is_in_turn { [1, 2] } else { [2, 1] };
            layer.message(End::B, &echo(RESPONSE, 0, replies[0], 1)).message(End::B, &echo(RESPONSE, 0, replies[1], 1));
            let answered = layer.alone.answered(End::B);
            let turns: Vec<_> = answered.iter().map(|e| (e.message_id, e.turn.map(|at| at.frame))).collect();
            assert_eq!(turns, if is_in_turn { [(1, None), (2, Some(2))] } else { [(2, None), (1, None)] });
        }
    }

    /// \[MS-SMB2\] 3.3.4.6: an oplock is given back before somebody else opens the file.
    #[test]
    fn who_opens_a_file_waits_for_its_oplock() {
        const BREAK: u16 = Command::OPLOCK_BREAK.0;
        let oplock = of_file(24, 8, 24, FILE);
        for (name, level, expected) in [(b'f', 9, (5, 5)), (b'F', 9, (5, 5)), (b'g', 9, (0, 0)), (b'f', 1, (0, 5))] {
            let mut layer = Layer::new();
            layer.message(End::A, &pdu(CREATE, 0, 0, 1, &create(b'f')));
            layer.message(End::B, &pdu(CREATE, RESPONSE, 0, 1, &created(level, FILE)));
            layer.message(End::A, &pdu(CREATE, 0, 0, 2, &create(name)));
            layer.message(End::B, &pdu(BREAK, RESPONSE, 0, u64::MAX, &oplock));
            layer.alone.at.time += 4_000_000;
            layer.message(End::A, &pdu(BREAK, 0, 0, 3, &oplock));
            layer.message(End::B, &pdu(CREATE, RESPONSE, 0, 2, &created(0, [4; 16])));
            let opened = layer.alone.answered(End::B).pop().expect("it was answered");
            let waited = (opened.recalled / 1_000_000, opened.perhaps_recalled / 1_000_000);
            let is_behind = opened.behind.is_some();
            assert_eq!((waited, is_behind), (expected, expected.0 > 0), "{name} {level}");
        }
    }

    #[test]
    fn what_waits_behind_an_open_in_its_compound_waits_for_the_oplock_too() {
        const BREAK: u16 = Command::OPLOCK_BREAK.0;
        let oplock = of_file(24, 8, 24, FILE);
        let compound = |flags: u32, create: &[u8]| {
            let mut first = pdu(CREATE, flags, 0, 2, create);
            first.resize(first.len().next_multiple_of(8), 0);
            first[20] = first.len() as u8;
            [first, echo(flags, 0, 3, 1)].concat()
        };
        let mut layer = Layer::new();
        layer.message(End::A, &pdu(CREATE, 0, 0, 1, &create(b'f')));
        layer.message(End::B, &pdu(CREATE, RESPONSE, 0, 1, &created(9, FILE)));
        layer.message(End::A, &compound(0, &create(b'f')));
        layer.message(End::B, &pdu(BREAK, RESPONSE, 0, u64::MAX, &oplock));
        layer.message(End::A, &pdu(BREAK, 0, 0, 4, &oplock));
        layer.message(End::B, &compound(RESPONSE, &created(0, [4; 16])));
        let answered = layer.alone.answered(End::B);
        let waited: Vec<_> = answered.iter().map(|e| (e.command, e.recalled / 1_000_000)).collect();
        assert_eq!(waited, [("CREATE", 0), ("CREATE", 1), ("ECHO", 1)]);
    }

    /// \[MS-SMB2\] 2.2.23.2: a lease is told by its key, which the CREATE has.
    #[test]
    fn who_opens_a_file_waits_for_its_lease() {
        const BREAK: u16 = Command::OPLOCK_BREAK.0;
        const CLOSE: u16 = Command::CLOSE.0;
        const KEY: [u8; 16] = [8; 16];
        let mut leased = create(b'f');
        leased.resize(64, 0);
        (leased[48], leased[52]) = (128, 56);
        // one create context: name at 16, data at 24
        let mut context = [0; 56];
        (context[4], context[6], context[10], context[12]) = (16, 4, 24, 32);
        context[16..20].copy_from_slice(b"RqLs");
        context[24..40].copy_from_slice(&KEY);
        leased.extend(context);
        for (flags, by_close, expected) in [(1, false, 3), (1, true, 3), (0, false, 0)] {
            let mut notice = of_file(44, 8, 44, KEY);
            notice[4] = flags;
            let mut layer = Layer::new();
            layer.message(End::A, &pdu(CREATE, 0, 0, 1, &leased));
            layer.message(End::B, &pdu(CREATE, RESPONSE, 0, 1, &created(0xff, FILE)));
            layer.message(End::A, &pdu(CREATE, 0, 0, 2, &create(b'f')));
            layer.message(End::B, &pdu(BREAK, RESPONSE, 0, u64::MAX, &notice));
            layer.alone.at.time += 2_000_000;
            if by_close {
                layer.message(End::A, &pdu(CLOSE, 0, 0, 3, &of_file(24, 8, 24, FILE)));
            } else {
                layer.message(End::A, &pdu(BREAK, 0, 0, 3, &of_file(36, 8, 36, KEY)));
            }
            layer.message(End::B, &pdu(CREATE, RESPONSE, 0, 2, &created(0, [4; 16])));
            let opened = layer.alone.answered(End::B).pop().expect("it was answered");
            assert_eq!(opened.recalled / 1_000_000, expected, "{flags} {by_close}");
        }
    }

    #[test]
    fn a_reply_is_tied_to_its_request_by_the_message_id() {
        let mut layer = Layer::new();
        layer.message(End::A, &echo(0, 0, 1, 2)).message(End::A, &echo(0, 0, 2, 1));
        layer.message(End::B, &echo(RESPONSE, 0, 2, 1)).message(End::B, &echo(RESPONSE, 0, 1, 2));
        let answered = layer.alone.answered(End::B);
        let shown: Vec<_> =
            answered.iter().map(|e| (e.command, e.message_id, e.request.frame, e.reply.map(|at| at.frame))).collect();
        assert_eq!(shown, [("ECHO", 2, 2, Some(3)), ("ECHO", 1, 1, Some(4))]);
    }

    #[test]
    fn an_interim_reply_leaves_the_request_open() {
        let mut layer = Layer::new();
        layer.message(End::A, &echo(0, 0, 1, 1)).message(End::B, &echo(RESPONSE | ASYNC, STATUS_PENDING, 1, 1));
        assert!(layer.alone.answered(End::B).is_empty());
        layer.message(End::B, &echo(RESPONSE | ASYNC, 0, 1, 0));
        let answered = layer.alone.answered(End::B);
        assert_eq!(
            answered.iter().map(|e| (e.pending, e.reply.map(|at| at.frame))).collect::<Vec<_>>(),
            [(true, Some(3))]
        );
    }

    #[test]
    fn a_reply_of_another_command_is_named_only_where_nothing_was_missed() {
        let mut logoff = echo(RESPONSE, 0, 1, 1);
        logoff[12] = 2;
        let mut layer = Layer::new();
        layer.message(End::A, &echo(0, 0, 1, 1)).message(End::B, &logoff);
        assert_eq!(layer.alone.broken(), [(Rule::Smb2Reply, Blame::Server)]);
        let mut late = Layer::new();
        late.message(End::A, &echo(0, 0, 1, 1));
        late.alone.missed.gap(End::B, late.alone.at);
        late.message(End::B, &logoff);
        assert!(late.alone.broken().is_empty());
    }

    /// The capture began between a request and its copy, which was retransmitted when the reply was under way.
    #[test]
    fn a_request_whose_reply_went_by_before_it_is_not_unanswered() {
        for (replied, expected) in [(true, 0), (false, 1)] {
            let mut layer = Layer::new();
            if replied {
                layer.message(End::B, &echo(RESPONSE, 0, 7, 1));
            }
            layer
                .message(End::A, &echo(0, 0, 7, 1))
                .message(End::A, &echo(0, 0, 8, 1))
                .message(End::B, &echo(RESPONSE, 0, 8, 1));
            let at = layer.alone.at;
            End::BOTH.into_iter().for_each(|end| layer.alone.missed.captured(end, At::default()));
            let mut cx = layer.alone.frame(End::B);
            layer.smb2.finish(&mut cx, At { time: at.time + 60_000_000_000, ..at }, Some(None));
            let unanswered = layer.alone.broken().iter().filter(|(rule, _)| *rule == Rule::Smb2Unanswered).count();
            assert_eq!(unanswered, expected, "{replied}");
        }
    }

    #[test]
    fn bytes_of_any_kind_are_borne() {
        let mut layer = Layer::new();
        let whole = echo(0, 0, 1, 1);
        for cut in 0..whole.len() {
            layer.message(End::A, &whole[..cut]).message(End::B, &whole[..cut]);
        }
        layer.message(End::A, &[0xff; 200]).message(End::B, b"\xfeSMB");
        assert!(layer.alone.answered(End::B).is_empty());
    }
}
