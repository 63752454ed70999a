//! ONC RPC and NFS on one connection: calls and replies matched to exchanges, file handles to names, and the rules that
//! need both.

use super::payload::Payload;
use super::{Answers, EARLY, WAITS_FOR_DATA, has_answers, is_unanswered};
use crate::context::FrameContext;
use crate::covered::Covered;
use crate::exchange::{DataPath, Descriptor, Exchange, Family, One, Status};
use crate::finding::{Blame, Certainty, Rule, Severity};
use crate::messages::rpcrdma::{IMPATIENT, Kind, PADDING, RpcMessage, Said, other_xid};
use crate::missed::Rests;
use crate::notes::Layer;
use crate::op::{At, End};
use crate::recent::Recent;
use crate::roles::Source;
use crate::rpcbind::Registration;
use crate::stats::Commands;
use crate::summary::Transport;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use hashbrown::HashMap;
use rdmascope_dissector::fault::FaultKind;
use rdmascope_dissector::field::Def;
use rdmascope_dissector::text::Elapsed;
use rdmascope_dissector::trace::Trace;
use rdmascope_dissector::wire::nfs::v4::session;
use rdmascope_dissector::wire::nfs::{self, Op, Visit};
use rdmascope_dissector::wire::portmap::Mapping;
use rdmascope_dissector::wire::rpc::{self, AcceptState, GssService, Memo, Message, MessageType, Program};
use rdmascope_dissector::wire::rpcrdma::{Reads, RpcRdma as Header, Segment};
use rdmascope_dissector::wire::xdr::Stream;

/// Rows of a portmapper's answer that are looked at.
const MAPPINGS_MAX: usize = 256;
/// Characters of a product's name.
const PRODUCT_MAX: usize = 64;
/// File handles whose names are remembered at most.
const NAMES_MAX: usize = 4096;
/// Delegations that were asked for that are remembered.
const RECALLS_MAX: usize = 64;
/// Bytes of a file handle (RFC 8881 3.1: NFS4_FHSIZE).
const HANDLE_MAX: usize = 128;
/// ns after which a server may go on without a delegation that it asked for.
const GIVES_UP: i64 = 1_000_000_000;
/// Operations of one compound that are remembered.
const OPERATIONS_MAX: usize = 64;
/// READs and WRITEs of one compound that are looked at.
const TRANSFERS_MAX: usize = 64;
/// Replies to no call that are remembered: the call may have gone out again, and be seen then.
const UNASKED_MAX: usize = 256;

/// A call without its reply.
#[derive(Clone, Debug)]
struct Pending {
    exchange: Exchange,
    said: Option<Said>,
    memo: Option<Memo>,
    /// Facts about its file, learnt while it was decoded.
    names: Names,
    /// True if all of the call was decoded.
    is_whole: bool,
    payload: Option<Box<Payload>>,
    /// Bytes of the argument in read chunks, if there is one.
    argument: Option<u64>,
    /// Which of them the server fetched.
    fetched: Covered,
}

/// A READ or WRITE among the operations of a call or reply.
#[derive(Clone, Copy, Debug)]
struct Moved {
    is_write: bool,
    offset: u64,
    count: u32,
    /// Stability of a WRITE, requested or reached.
    stable: u32,
    /// True if its data is in a chunk.
    is_reduced: bool,
}

impl Moved {
    /// Facts about an operation; `None` if it is no READ or WRITE of any version.
    fn of(op: &Op<'_>) -> Option<Self> {
        // the procedures of NFS 3, whose numbers other operations with data do not have, and those of NFS 4
        let is_write = match op.code {
            _ if op.callback => return None,
            6 => false,
            7 => true,
            code if nfs::v4::Operation(code) == nfs::v4::Operation::READ => false,
            code if nfs::v4::Operation(code) == nfs::v4::Operation::WRITE => true,
            _ => return None,
        };
        op.io.map(|io| {
            let nfs::Io { offset, count, stable, reduced: is_reduced, .. } = io;
            Self { is_write, offset, count, stable, is_reduced }
        })
    }
}

/// A delegation that the server asked the client for (RFC 8881 10.4, 20.2).
#[derive(Clone, Debug)]
struct Recall {
    /// The delegation, without the count of its changes.
    state: [u8; 12],
    /// Its file.
    handle: Vec<u8>,
    /// Exchange of the callback.
    exchange: u64,
    asked: At,
    /// Time at which it was returned, or at which the client said that it does not have it.
    ended: Option<At>,
}

/// How a request stands to a delegation that was asked for meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Conflict {
    /// It is about another file, or cannot be in conflict.
    No,
    /// It is about a name, and the name of the recalled file is not known.
    Perhaps,
    /// It is about the same file.
    Yes,
}

/// Name of a file.
#[derive(Clone, Debug)]
struct Named {
    name: Arc<str>,
    /// Its directory and the name, as a number, if they are known.
    place: Option<u64>,
}

/// A number of some bytes and those before them. It differs for others, in all likelihood (FNV-1a, by words).
fn number_of(before: u64, bytes: &[u8]) -> u64 {
    let step = |number: u64, word: u64| (number ^ word).wrapping_mul(0x0100_0000_01b3).rotate_left(29);
    let words = bytes.chunks(8).map(|part| {
        let mut word = [0; 8];
        word[..part.len()].copy_from_slice(part);
        u64::from_be_bytes(word)
    });
    words.fold(step(before, bytes.len() as u64 + 1), step)
}

/// Facts about files in a decoded call or reply.
#[derive(Clone, Debug, Default)]
struct Names {
    /// The operation that gives a compound its name, and its rank.
    operation: Option<(&'static str, u8)>,
    handle: Option<Vec<u8>>,
    name: Option<String>,
    /// The directory of the name and the name, as a number, if it is known.
    place: Option<u64>,
    /// All file handles and names of the call, as a number.
    about: u64,
    got: Option<Vec<u8>>,
    offset: Option<u64>,
    count: Option<u32>,
    status: Option<u32>,
    /// READs and WRITEs.
    transfers: Vec<Moved>,
    /// Those of the call, while its reply is read.
    asked_for: Vec<Moved>,
    /// True if there are more than are kept, or other results that may be in a chunk.
    is_mixed: bool,
    /// Argument, result: true if an operation of the compound may have it in a chunk.
    eligible: [bool; 2],
    /// Operations of a compound, the first ones.
    operations: Vec<u32>,
    /// Those of the call, while its reply is read.
    asked_operations: Option<Vec<u32>>,
    /// True if the reply has the result of an operation that the call does not have there.
    is_of_another: bool,
    /// Status of the last result, and whether there are results behind one that failed.
    last: (Option<u32>, bool),
    /// What is wrong with the results of a compound as a whole.
    fault: Option<&'static str>,
    /// The delegation that CB_RECALL asks for, or that DELEGRETURN gives back, and its file.
    delegation: Option<([u8; 12], Vec<u8>)>,
    /// The session that a compound of NFS 4.1 runs in.
    session: Option<[u8; 16]>,
    /// Flags of the client's state in the reply.
    state_flags: u32,
    /// The product that EXCHANGE_ID names.
    implementation: Option<String>,
    /// Question to a portmapper, and the rows of its answer.
    asked: Option<Registration>,
    mappings: Vec<Registration>,
}

impl<'a> Visit<'a> for Names {
    #[inline]
    fn op(&mut self, op: &Op<'a>) {
        self.take(op);
    }

    fn answered(&mut self, status: u32) {
        self.status = Some(status).filter(|status| *status != 0);
    }

    /// RFC 8881 16.2.3, RFC 7530 15.2.3: evaluation ends with the first operation that fails, and its status is that of
    /// the compound.
    fn compound(&mut self, status: u32, results: u32) {
        let asked = self.asked_operations.as_ref().map_or(0, Vec::len);
        let (last, goes_on) = self.last;
        self.fault = if goes_on {
            Some("results behind that of an operation that failed")
        } else if last.is_some_and(|last| last != status) {
            Some("another status than that of its last operation")
        } else if status == 0 && (results as usize) < asked && asked < OPERATIONS_MAX {
            Some("status OK and fewer results than the call has operations")
        } else {
            None
        };
        self.status = self.status.or(Some(status)).filter(|status| *status != 0);
    }

    fn mapping(&mut self, mapping: &Mapping<'a>) {
        if self.mappings.len() < MAPPINGS_MAX {
            self.mappings.push(Registration::of(mapping));
        }
    }
}

impl Names {
    /// Forgets the facts from the call that the reply will repeat.
    fn begin_reply(&mut self) {
        let (operation, eligible) = (self.operation, self.eligible);
        let asked = self.asked.or(self.mappings.first().copied());
        *self = Self {
            asked_for: core::mem::take(&mut self.transfers),
            asked_operations: Some(core::mem::take(&mut self.operations)),
            is_mixed: self.is_mixed,
            handle: self.handle.take(),
            name: self.name.take(),
            place: self.place,
            about: self.about,
            operation,
            eligible,
            asked,
            ..Self::default()
        };
    }

    fn take(&mut self, op: &Op<'_>) {
        let place = op.index as usize;
        match &self.asked_operations {
            // one that the server does not know may be named so
            Some(asked) if place < OPERATIONS_MAX && nfs::v4::Operation(op.code) != nfs::v4::Operation::ILLEGAL => {
                self.is_of_another |= !asked.is_empty() && asked.get(place) != Some(&op.code);
            }
            None if self.operations.len() < OPERATIONS_MAX => self.operations.push(op.code),
            _ => {}
        }
        let name =
            if op.callback { nfs::v4::CallbackOperation(op.code).name() } else { nfs::v4::Operation(op.code).name() };
        if let Some(name) = name {
            let rank = rank_of(name);
            if self.operation.is_none_or(|(_, r)| rank >= r) {
                self.operation = Some((name, rank));
            }
        }
        self.session = op.slot.map(|slot| slot.session).or(self.session);
        self.state_flags |= op.state_flags.unwrap_or(0);
        let is_recall = op.callback && nfs::v4::CallbackOperation(op.code) == nfs::v4::CallbackOperation::CB_RECALL;
        let is_return = !op.callback && nfs::v4::Operation(op.code) == nfs::v4::Operation::DELEGRETURN;
        if let Some(state) = op.stateid.filter(|_| is_recall || is_return) {
            let handle = op.handle.or(self.got.as_deref()).unwrap_or_default();
            self.delegation = Some((state.other, handle[..handle.len().min(HANDLE_MAX)].to_vec()));
        }
        if let Some(name) = op.implementation.filter(|name| !name.is_empty()) {
            self.implementation = Some(product(name));
        }
        if let Some(io) = op.io {
            self.offset = Some(io.offset);
            self.count = Some(io.count);
        }
        if let Some(moved) = Moved::of(op) {
            self.is_mixed |= self.transfers.len() >= TRANSFERS_MAX;
            if self.transfers.len() < TRANSFERS_MAX {
                self.transfers.push(moved);
            }
        }
        if !op.callback {
            let (argument, result) = v4_eligible(op.code);
            self.eligible = [self.eligible[0] | argument, self.eligible[1] | result];
            self.is_mixed |= result && nfs::v4::Operation(op.code) != nfs::v4::Operation::READ;
        }
        if self.asked_operations.is_none() {
            self.refers(op.handle, op.name);
        }
        if let Some(file) = op.name {
            self.name = Some(String::from_utf8_lossy(file).into_owned());
        }
        if let Some(handle) = op.handle {
            if self.handle.is_none() {
                self.handle = Some(handle.to_vec());
            }
            self.got = Some(handle.to_vec());
        }
        if self.asked_operations.is_some() {
            let (last, goes_on) = self.last;
            self.last = (op.status, goes_on || last.is_some_and(|last| last != 0));
        }
        if let Some(status) = op.status.filter(|s| *s != 0) {
            self.status = Some(status);
        }
    }

    /// An operation of the call has a file handle, or a name in the directory whose handle came last.
    fn refers(&mut self, handle: Option<&[u8]>, name: Option<&[u8]>) {
        if let Some(handle) = handle {
            self.about = number_of(self.about, handle);
        }
        if let Some(name) = name {
            // a second one may be in the directory of the first
            let directory = handle.or(self.got.as_deref()).filter(|_| self.name.is_none());
            self.place = directory.map(|directory| number_of(number_of(0, directory), name));
            self.about = number_of(self.about, name);
        }
    }

    /// How a request whose reply was read stands to a delegation of this file, whose name may be known. One of a name
    /// is in conflict with that of the file of this name in the same directory; any other with that of the file whose
    /// handle it sets.
    fn conflict(&self, handle: &[u8], known: Option<&Named>) -> Conflict {
        let has_two_names = self.operation.is_some_and(|(operation, _)| operation == "RENAME");
        let Some(mine) = &self.name else {
            let is_it = [&self.handle, &self.got].iter().any(|other| other.as_deref() == Some(handle));
            return if is_it { Conflict::Yes } else { Conflict::No };
        };
        match (self.got.as_deref(), known) {
            (Some(got), _) if got == handle => Conflict::Yes,
            (Some(_), _) => Conflict::No,
            (None, Some(known)) => {
                let is_same_name = *mine == *known.name;
                match self.place.zip(known.place).map(|(mine, its)| mine == its) {
                    Some(true) => Conflict::Yes,
                    None if is_same_name || has_two_names => Conflict::Perhaps,
                    Some(false) if has_two_names => Conflict::Perhaps,
                    Some(false) | None => Conflict::No,
                }
            }
            (None, None) => Conflict::Perhaps,
        }
    }

    /// READs, or WRITEs.
    fn all(transfers: &[Moved], is_write: bool) -> impl Iterator<Item = &Moved> + Clone {
        transfers.iter().filter(move |moved| moved.is_write == is_write)
    }

    /// READs or WRITEs of the call that were done, with their results.
    fn done(&self, is_write: bool) -> impl Iterator<Item = (&Moved, &Moved)> + Clone {
        Self::all(&self.asked_for, is_write).zip(Self::all(&self.transfers, is_write))
    }

    /// Only a part of the call or its reply was read: an operation that leads up to others is no name for it.
    fn are_of_a_part(&mut self) {
        self.operation = self.operation.filter(|(_, rank)| *rank == DOES_IT);
    }

    /// Name of the call: an operation if its procedure is a compound of them.
    fn command(&self, memo: &Memo) -> Option<&'static str> {
        let is_compound = memo.is_callback() || memo.version == 4;
        self.operation.filter(|_| is_compound).map(|(name, _)| name).or_else(|| memo.procedure_name())
    }
}

/// A product and its version, without its build information: `Linux 6.12.57 #1 SMP …`.
fn product(name: &[u8]) -> String {
    let name = String::from_utf8_lossy(name);
    let short = name.split(" #").next().unwrap_or_default();
    short.chars().take(PRODUCT_MAX).collect()
}

/// Rank of an operation as the name of its compound: one that does something ranks above those that lead up to it, and
/// above a GETATTR or GETFH, which clients put behind nearly everything.
fn rank_of(name: &str) -> u8 {
    match name {
        "SEQUENCE" | "CB_SEQUENCE" | "PUTFH" | "PUTROOTFH" | "PUTPUBFH" | "SAVEFH" | "RESTOREFH" => 0,
        "GETFH" | "GETATTR" | "VERIFY" | "NVERIFY" => 1,
        "ACCESS" => 2,
        "LOOKUP" | "LOOKUPP" => 3,
        _ => DOES_IT,
    }
}

/// Rank of an operation for whose sake a compound is sent.
const DOES_IT: u8 = 4;

/// The RPC side of one connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rpc {
    /// Messages by sender.
    messages: [u64; 2],
    commands: Commands,
    answers: Answers<u32, Option<Memo>>,
    /// The first reply to a call that is no NULL.
    first_reply: Option<At>,
    /// By the end that calls and transaction id.
    pending: HashMap<(End, u32), Box<Pending>>,
    /// Transaction ids by number of the exchange.
    by_exchange: HashMap<u64, (End, u32)>,
    /// The last delegations that the server asked for.
    recalls: VecDeque<Recall>,
    /// Flags of the client's state that the server has set, and the first reply with one of them that tells.
    state_flags: (u32, Option<At>),
    /// The last replies to calls that were not seen.
    unasked: VecDeque<(End, u32, At)>,
    /// Names of files by handle.
    handles: Recent<Vec<u8>, Named>,
    /// True if a call of NFS was executed.
    has_worked: bool,
    /// Plain data for the report.
    nfs: crate::session::Nfs,
}

impl Rpc {
    /// Bytes of memory that open calls hold.
    pub(crate) fn held(&self) -> usize {
        self.pending.len() * size_of::<Pending>()
    }

    /// The row of an exchange that is not complete.
    pub(crate) fn open_exchange(&mut self, id: u64) -> Option<&mut Exchange> {
        self.open(id).map(|(exchange, _)| exchange)
    }

    /// A call that waits for its reply, and what was fetched of its argument.
    pub(crate) fn open(&mut self, id: u64) -> Option<(&mut Exchange, &mut Covered)> {
        let key = self.by_exchange.get(&id)?;
        self.pending.get_mut(key).map(|pending| (&mut pending.exchange, &mut pending.fetched))
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
        let Some(pending) = self.by_exchange.get(&exchange).and_then(|key| self.pending.get_mut(key)) else { return };
        pending.payload.get_or_insert_default().put(offset, bytes);
    }

    /// A whole message.
    pub(crate) fn message<T: Trace>(&mut self, cx: &mut FrameContext<'_>, message: &RpcMessage<'_>, t: &mut T) {
        self.messages[message.by.index()] += 1;
        match message.kind {
            Kind::Call { exchange, said, message: stream } => {
                if !self.is_again(cx, message, exchange, said, stream, t) {
                    self.call(cx, message, exchange, said, stream, t);
                }
            }
            Kind::Reply { message: stream, is_long, call, is_attributed, is_of_either } => {
                self.reply(cx, message, &stream, (is_long, is_attributed, is_of_either), call, t);
            }
            Kind::Error => {
                if let Some(mut pending) = self.take(message.by.peer(), message.xid) {
                    pending.exchange.reply = Some(message.first);
                    pending.exchange.reply_end = Some(message.last);
                    pending.exchange.failed = true;
                    self.recall_refused(&pending.exchange, message.last);
                    Self::complete(cx, message.by.peer(), *pending);
                }
            }
        }
    }

    /// True if a call is one sent again that waits for its reply: that one goes on.
    fn is_again<T: Trace>(
        &mut self,
        cx: &mut FrameContext<'_>,
        message: &RpcMessage<'_>,
        id: u64,
        said: Option<Said>,
        stream: Option<Stream<'_>>,
        t: &mut T,
    ) -> bool {
        let Some(pending) = self.pending.get_mut(&(message.by, message.xid)) else { return false };
        // on TCP, this layer alone knows of it
        let is_known = message.header.is_none() && said.is_some();
        let is_it = pending.exchange.id == id || is_known && said == pending.said;
        if !is_it {
            return false;
        }
        let exchange = &mut pending.exchange;
        cx.env.frame.belongs(exchange.id, exchange.rdma_bytes());
        if let Some(header) = message.header {
            exchange.descriptor_count = 0;
            describe(exchange, header);
        }
        cx.layer(if pending.memo.is_some_and(|memo| memo.is_nfs()) { Layer::Nfs } else { Layer::Rpc });
        if let Some(stream) = stream.filter(|_| T::ON) {
            let _ = rpc::dissect(&stream, None, t, &mut ());
        }
        let (command, waited) = (One(exchange.command), Elapsed(message.last.since(exchange.request_end)));
        let rests = Rests::since(exchange.request).of(message.by.peer()).though_cut();
        let is_forbidden = said.is_some_and(|said| said.is_once_only());
        if !is_forbidden {
            let text = format_args!("sent {command} again after {waited} without a reply");
            cx.report(Rule::RpcRetransmit, message.by, rests, text);
        } else if message.header.is_none() {
            let text = format_args!("sent {command} again after {waited} without a reply, on the same connection");
            cx.report(Rule::RpcRetransmit, message.by, rests, text);
            cx.env.findings.because(Rule::RpcRetransmit, Some(cx.about.id), cx.blame(message.by), Some(IMPATIENT));
        }
        true
    }

    fn call<T: Trace>(
        &mut self,
        cx: &mut FrameContext<'_>,
        message: &RpcMessage<'_>,
        id: u64,
        said: Option<Said>,
        stream: Option<Stream<'_>>,
        t: &mut T,
    ) {
        cx.env.frame.belongs(id, 0);
        let exchange = Exchange {
            id,
            connection: cx.about.id,
            message_id: message.xid.into(),
            retransmissions: cx.about.retransmissions as u32,
            sequence: cx.about.sequence,
            ..Exchange::begun(Family::Rpc, "RPC", message.first, message.last)
        };
        let mut pending = Box::new(Pending {
            exchange,
            said,
            memo: None,
            names: Names::default(),
            is_whole: false,
            payload: None,
            argument: None,
            fetched: Covered::default(),
        });
        if let Some(header) = message.header {
            describe(&mut pending.exchange, header);
            pending.argument = next_position(&header.reads, 0)
                .filter(|first| next_position(&header.reads, *first).is_none())
                .map(|first| header.reads.at(first).map(|segment| u64::from(segment.length)).sum());
        }
        if let Some(stream) = stream {
            let read = decode(cx, &stream, MessageType::CALL, &mut pending, t);
            pending.is_whole = read.is_whole && message.is_whole;
            if !message.is_whole {
                pending.names.are_of_a_part();
            }
            pending.exchange.session = pending.names.session;
            self.learn(cx, message, &pending);
            if pending.memo.is_some() {
                same_xid(cx, message, message.by, Rests::FRAME, &stream);
            }
            self.name_call(&mut pending);
            if message.is_whole {
                malformed_call(cx, message.by, Rests::FRAME, &stream, &read, &pending);
            }
            if let Some(header) = message.header.filter(|_| pending.is_whole || is_protected(&pending)) {
                reduced_argument(cx, message.by, &header.reads, Rests::FRAME, &pending);
            }
        }
        self.name_call(&mut pending);
        cx.env.frame.asks(pending.exchange.id, pending.exchange.file.as_ref());
        self.recall(&pending);
        if let Some(reply) = self.answered_early(message) {
            (pending.exchange.reply, pending.exchange.reply_end) = (Some(reply), Some(reply));
            return Self::complete(cx, message.by, *pending);
        }
        self.remember(cx, message.by, message.xid, pending);
    }

    /// Keeps account of the delegations that a server asks for and that its client returns.
    fn recall(&mut self, call: &Pending) {
        let Some((state, handle)) = &call.names.delegation else { return };
        let open = self.recalls.iter_mut().find(|recall| recall.state == *state && recall.ended.is_none());
        if !call.memo.is_some_and(|memo| memo.is_callback()) {
            if let Some(recall) = open {
                recall.ended = Some(call.exchange.request);
            }
        } else if let Some(recall) = open {
            // it asks once more
            recall.exchange = call.exchange.id;
        } else {
            if self.recalls.len() >= RECALLS_MAX {
                self.recalls.pop_front();
            }
            let (handle, exchange, asked) = (handle.clone(), call.exchange.id, call.exchange.request_end);
            self.recalls.push_back(Recall { state: *state, handle, exchange, asked, ended: None });
        }
    }

    /// The client refused a callback: it has nothing to return, unless it asks for more time.
    fn recall_refused(&mut self, callback: &Exchange, at: At) {
        if callback.status.is_some_and(|status| nfs::v4::Status(status) == nfs::v4::Status::DELAY) {
            return;
        }
        let of_it = |recall: &&mut Recall| recall.exchange == callback.id && recall.ended.is_none();
        if let Some(recall) = self.recalls.iter_mut().find(of_it) {
            recall.ended = Some(at);
        }
    }

    /// ns for which the server had to wait for delegations between a call and its reply: of the file that the call is
    /// about, and of others that may be it.
    fn recalled(&mut self, names: &Names, exchange: &Exchange, reply: At) -> (i64, i64) {
        let Self { recalls, handles, .. } = self;
        let (mut of_it, mut perhaps) = (0, 0);
        for recall in recalls {
            let from = recall.asked.max(exchange.request);
            let lasted = recall.ended.unwrap_or(reply).min(reply).since(from);
            // a call that is answered at once while the client still has the delegation did not wait for it
            let has_waited = recall.ended.is_some_and(|ended| ended <= reply) || lasted >= GIVES_UP;
            if lasted > 0 && has_waited {
                match names.conflict(&recall.handle, handles.get(&recall.handle)) {
                    Conflict::Yes => of_it = lasted.max(of_it),
                    Conflict::Perhaps => perhaps = lasted.max(perhaps),
                    Conflict::No => {}
                }
            }
        }
        (of_it, perhaps)
    }

    /// The reply to a call, if the capture has it a little before the call.
    fn answered_early(&mut self, call: &RpcMessage<'_>) -> Option<At> {
        let is_it = |(caller, xid, at): &(End, u32, At)| {
            (*caller, *xid) == (call.by, call.xid) && call.last.since(*at) <= EARLY
        };
        let place = self.unasked.iter().position(is_it)?;
        self.unasked.remove(place).map(|(.., at)| at)
    }

    /// Learns which side is the client, by the program that is called.
    fn learn(&mut self, cx: &mut FrameContext<'_>, message: &RpcMessage<'_>, pending: &Pending) {
        self.nfs.is_made_by(0, pending.names.implementation.as_deref());
        if let Some(memo) = pending.memo {
            let (client, source) = match memo.is_callback() {
                // others may have programs with such numbers, but not with these operations
                true if pending.names.operation.is_some() => (message.by.peer(), Source::Callback),
                true => (message.by.peer(), Source::Message),
                false => (message.by, Source::Message),
            };
            cx.roles.learn(client, source);
            if memo.is_callback() {
                self.nfs.callbacks += 1;
            } else if memo.is_nfs() && self.nfs.version == 0 {
                self.nfs.version = memo.version;
            }
            if let Some(session) = pending.names.session {
                self.nfs.ran_in(session);
            }
            self.nfs.rpcbind.message(cx.at, true, &memo, pending.names.mappings.first().copied(), &[]);
        }
    }

    fn reply<T: Trace>(
        &mut self,
        cx: &mut FrameContext<'_>,
        message: &RpcMessage<'_>,
        stream: &Stream<'_>,
        (is_long, is_attributed, is_of_either): (bool, bool, bool),
        call: Option<Stream<'_>>,
        t: &mut T,
    ) {
        let caller = message.by.peer();
        let Some(mut pending) = self.take(caller, message.xid) else {
            if self.unasked.len() >= UNASKED_MAX {
                self.unasked.pop_front();
            }
            self.unasked.push_back((caller, message.xid, message.last));
            if !is_long {
                let _ = rpc::dissect(stream, None, t, &mut ());
            }
            return cx.layer(Layer::Rpc);
        };
        cx.env.frame.belongs(pending.exchange.id, pending.exchange.rdma_bytes());
        // a long message rests on the RDMA that moved it
        let rests = Rests::since(pending.exchange.request);
        if !is_long {
            same_xid(cx, message, message.by, Rests::FRAME, stream);
        } else if message.is_whole {
            same_xid(cx, message, message.by, rests, stream);
        }
        if let Some(call) = call.filter(|_| pending.memo.is_none()) {
            if T::ON {
                t.source("Reassembled call", call.bytes);
            }
            let read = decode(cx, &call, MessageType::CALL, &mut pending, t);
            pending.is_whole = read.is_whole;
            if T::ON {
                t.end_source();
            }
            self.name_call(&mut pending);
            same_xid(cx, message, caller, rests, &call);
            malformed_call(cx, caller, rests, &call, &read, &pending);
            if pending.is_whole || is_protected(&pending) {
                reduced_argument(cx, caller, &call.reads, rests, &pending);
            }
        }
        pending.names.begin_reply();
        if is_long && T::ON {
            t.source("Reply chunk", stream.bytes);
        }
        let read = decode(cx, stream, MessageType::REPLY, &mut pending, t);
        if pending.exchange.command == "COMPOUND" {
            // the reply has the operations of a call that was cut
            if !message.is_whole {
                pending.names.are_of_a_part();
            }
            self.name_call(&mut pending);
        }
        let is_whole = read.is_whole && message.is_whole && pending.is_whole;
        if is_long && T::ON {
            t.end_source();
        }
        // data that was written and not announced belongs into the message: the list of chunks is what is wrong
        let is_listed = |header: &Header<'_>| header.writes.iter().chain(header.reply).any(|chunk| chunk.length() > 0);
        // that a Reply chunk holds nothing is told already
        let is_there = !is_long || !stream.bytes.is_empty();
        let is_judged = message.is_whole && is_there && !is_of_either;
        let written = pending.exchange.writes.bytes;
        if is_judged && (written == 0 || message.header.is_some_and(is_listed)) {
            malformed_reply(cx, message.by, rests, &read, &pending);
        } else if is_judged
            && read.is_short
            && pending.is_whole
            && is_known(&pending)
            && message.header.is_some_and(|header| header.writes.iter().next().is_some())
        {
            let text = format_args!("wrote {written} bytes for results that are not in its reply; its chunks say 0");
            cx.report(Rule::RpcrdmaChunkLength, message.by, rests, text);
        }
        if let Some(header) = message.header.filter(|_| !is_of_either) {
            announced(cx, message.by, header, &pending, is_whole);
            // a call that was executed before is answered from a cache of replies
            let is_again = self.answers.find(&message.xid).is_some_and(|(memo, _)| memo == pending.memo);
            if is_whole && !is_again {
                let is_among_first = self.first_reply.is_none_or(|at| pending.exchange.request.frame <= at.frame);
                read_for(cx, message.by, &pending, is_attributed, is_among_first);
            }
        }
        if let (Some(name), Some(got)) = (&pending.names.name, &pending.names.got) {
            let named = Named { name: Arc::from(name.as_str()), place: pending.names.place };
            self.handles.insert(got.clone(), named, NAMES_MAX);
        }
        self.nfs.is_made_by(1, pending.names.implementation.as_deref());
        // a server that refuses a version does not speak it
        let is_refused = pending.exchange.status.is_some_and(|status| Status(Family::Rpc, status).number().is_none());
        if let Some(memo) = pending.memo.filter(|memo| memo.is_nfs() && !memo.is_callback()) {
            match is_refused {
                false => self.nfs.version = memo.version,
                true if self.nfs.version == memo.version && !self.has_worked => self.nfs.version = 0,
                true => {}
            }
            self.has_worked |= !is_refused;
        }
        if let Some(memo) = pending.memo.filter(|_| !pending.exchange.failed) {
            self.nfs.rpcbind.message(cx.at, false, &memo, pending.names.asked, &pending.names.mappings);
        }
        if pending.names.state_flags & !self.state_flags.0 & STATE_FLAGS > 0 {
            self.state_flags.0 |= pending.names.state_flags;
            self.state_flags.1.get_or_insert(message.first);
        }
        let (of_it, perhaps) = self.recalled(&pending.names, &pending.exchange, message.first);
        self.nfs.perhaps_recalled |= perhaps.saturating_sub(of_it) >= GIVES_UP;
        let exchange = &mut pending.exchange;
        (exchange.recalled, exchange.perhaps_recalled) = (of_it, perhaps);
        exchange.reply = Some(message.first);
        exchange.reply_end = Some(message.last);
        // those of NFSACL are NFS's
        let has_its_status = |memo: &Memo| memo.is_nfs() || Program(memo.program) == Program::NFSACL;
        let version = pending.memo.filter(has_its_status).map_or(0, |memo| memo.version);
        let code = Status::of_nfs(version, pending.names.status.unwrap_or(0));
        exchange.status = exchange.status.or(Some(code));
        exchange.failed |= pending.names.status.is_some();
        exchange.bytes_moved = match exchange.command {
            "READ" | "WRITE" => {
                let done = pending.names.done(exchange.command == "WRITE");
                if exchange.command == "WRITE" && is_whole && !exchange.failed {
                    stability(cx, message.by, exchange.request, done.clone());
                }
                for (asked, count) in done.clone().map(|(asked, done)| (asked.count, done.count)) {
                    if count > asked && is_whole {
                        let command = exchange.command;
                        let text = format_args!("says it moved {count} bytes of a {command} of {asked}");
                        cx.report(Rule::RdmaLength, message.by, Rests::since(exchange.request).of(message.by), text);
                        let (blame, why) = (cx.blame(message.by), Some("A server that counts wrongly"));
                        cx.env.findings.because(Rule::RdmaLength, Some(cx.about.id), blame, why);
                    }
                    if count == 0 && asked > 0 && exchange.command == "WRITE" && is_whole && !exchange.failed {
                        // fewer bytes are allowed; with none at all the client gets nowhere
                        let text =
                            format_args!("answered a WRITE of {asked} bytes with success, and wrote none of them");
                        cx.guess(Rule::RdmaLength, message.by, text);
                        let (blame, why) = (cx.blame(message.by), Some(NOTHING_WRITTEN));
                        cx.env.findings.because(Rule::RdmaLength, Some(cx.about.id), blame, why);
                    }
                }
                // no more than was asked for
                if done.clone().next().is_some() {
                    done.map(|(asked, done)| u64::from(asked.count.min(done.count))).sum()
                } else if exchange.failed {
                    0
                } else {
                    let (count, asked) = (pending.names.count.or(exchange.length).unwrap_or(0), exchange.length);
                    asked.map_or(count, |asked| asked.min(count)).into()
                }
            }
            _ => exchange.reads.bytes + exchange.writes.bytes,
        };
        cx.env.frame.answers(exchange, cx.at);
        if exchange.failed {
            let (command, status) = (exchange.command, Status(exchange.family, exchange.status.unwrap_or(0)));
            let rule = if status.is_damage() { Rule::RpcIoError } else { Rule::RpcError };
            if status.is_of_the_call() {
                // which of the two reads or writes it wrongly, the status does not say
                let who = if caller == cx.roles.client_or_first() { "server" } else { "client" };
                let text = format_args!("The {who} answered {command} with {status}");
                cx.env.report(rule, Blame::Unknown, cx.site(cx.at), Certainty::Certain, text);
                cx.env.findings.because(rule, Some(cx.about.id), Blame::Unknown, Some(UNREADABLE));
            } else {
                cx.report(rule, message.by, Rests::FRAME, format_args!("answered {command} with {status}"));
                let (id, blame) = (Some(cx.about.id), cx.blame(message.by));
                cx.env.findings.because(rule, id, blame, why_failed(status));
            }
        }
        if pending.exchange.failed && pending.memo.is_some_and(|memo| memo.is_callback()) {
            self.recall_refused(&pending.exchange, message.last);
        }
        self.answers.add(message.xid, pending.memo, pending.exchange.id);
        if pending.memo.is_none_or(|memo| memo.procedure != 0) {
            self.first_reply.get_or_insert(message.first);
        }
        Self::complete(cx, caller, *pending);
    }

    fn take(&mut self, caller: End, xid: u32) -> Option<Box<Pending>> {
        let pending = self.pending.remove(&(caller, xid))?;
        self.by_exchange.remove(&pending.exchange.id);
        Some(pending)
    }

    /// Keeps a call until its reply comes. If there are too many, the older half goes.
    fn remember(&mut self, cx: &mut FrameContext<'_>, by: End, xid: u32, mut pending: Box<Pending>) {
        // of two calls with one id, none can be told to be what a reply answers
        pending.is_whole &= !self.pending.contains_key(&(by, xid));
        if self.pending.len() >= cx.env.options.requests_max {
            let mut ids: Vec<u64> = self.pending.values().map(|p| p.exchange.id).collect();
            ids.sort_unstable();
            let middle = ids.get(ids.len() / 2).copied().unwrap_or(0);
            let before = self.pending.len();
            self.pending.retain(|_, p| p.exchange.id > middle);
            self.by_exchange.retain(|id, _| *id > middle);
            cx.env.requests_dropped += (before - self.pending.len()) as u64;
        }
        self.by_exchange.insert(pending.exchange.id, (by, xid));
        if let Some(mut old) = self.pending.insert((by, xid), pending) {
            self.by_exchange.remove(&old.exchange.id);
            old.exchange.close(cx.about.retransmissions);
            // its client gave its id away: what is answered is one of the two
            old.exchange.is_withdrawn = true;
            self.commands.add(&old.exchange);
            cx.env.complete(&old.exchange);
        }
    }

    fn name_call(&mut self, pending: &mut Pending) {
        let names = &pending.names;
        if let Some(command) = pending.memo.and_then(|memo| names.command(&memo)) {
            pending.exchange.command = command;
        }
        let mut moved = Names::all(&names.transfers, pending.exchange.command == "WRITE").peekable();
        let is_of_data = matches!(pending.exchange.command, "READ" | "WRITE");
        if let Some(first) = moved.peek().copied().filter(|_| is_of_data) {
            pending.exchange.offset = Some(first.offset);
            pending.exchange.length = Some(moved.fold(0, |sum: u32, moved| sum.saturating_add(moved.count)));
        } else {
            pending.exchange.offset = names.offset;
            pending.exchange.length = names.count;
        }
        pending.exchange.file = match &names.name {
            Some(name) => Some(Arc::from(name.as_str())),
            None => names.handle.as_deref().and_then(|handle| self.handles.get(handle)).map(|named| named.name.clone()),
        };
        pending.exchange.about = names.about;
    }

    /// A call was answered.
    fn complete(cx: &mut FrameContext<'_>, caller: End, mut pending: Pending) {
        if let Some(payload) = pending.payload.take() {
            let length = pending.exchange.bytes_moved;
            payload.finish(&mut pending.exchange, length, &mut cx.env.sink);
        }
        pending.exchange.close(cx.about.retransmissions);
        let exchange = cx.env.keep_exchange(pending.exchange);
        cx.answered(exchange, caller.peer());
    }

    /// The connection ends: calls without a reply will never have one.
    pub(crate) fn finish(&mut self, cx: &mut FrameContext<'_>, end: At) {
        let mut left: Vec<_> = self.pending.drain().collect();
        left.sort_by_key(|(_, p)| p.exchange.id);
        self.by_exchange.clear();
        self.tell_flags(cx);
        for ((caller, _), mut pending) in left {
            let exchange = &mut pending.exchange;
            // if its own header was cut off, the reply to a call that was cut off too may have been taken for one
            let is_call = pending.memo.is_some() || cx.roles.client() == Some(caller);
            // a retransmitted call, of which the capture has nothing else, may have been answered before
            let is_answered = u32::try_from(exchange.message_id)
                .is_ok_and(|of| self.unasked.iter().any(|(by, xid, _)| (*by, *xid) == (caller, of)));
            if is_call && !is_answered && is_unanswered(cx, exchange, caller, end) {
                let command = One(exchange.command);
                let waits_for_data = exchange.reads.open > 0;
                let certainty = if waits_for_data { Certainty::Guess } else { cx.unanswered(exchange, caller, end) };
                let text = format_args!("never answered {command}");
                cx.report_as(exchange.request_end, Rule::RpcUnanswered, caller.peer(), certainty, text);
                let is_callback = pending.memo.is_some_and(|memo| memo.is_callback());
                let why = is_callback.then_some(CALLBACKS_STUCK).or(waits_for_data.then_some(WAITS_FOR_DATA));
                cx.env.findings.because(Rule::RpcUnanswered, Some(cx.about.id), cx.blame(caller.peer()), why);
            }
            exchange.close(cx.about.retransmissions);
            if is_call && !is_answered && has_answers(cx, exchange, caller) {
                self.commands.add_unanswered(exchange);
            } else {
                self.commands.add(exchange);
            }
            cx.env.complete(exchange);
        }
    }

    /// Reports the flags with which the server said that something about the client's state is wrong.
    fn tell_flags(&self, cx: &mut FrameContext<'_>) {
        let (flags, Some(at)) = self.state_flags else { return };
        let is_set = |bits: &[Def]| bits.iter().any(|bit| u64::from(flags) & bit.mask > 0);
        let is_told = |bit: &&Def| u64::from(STATE_FLAGS & flags) & bit.mask > 0;
        let names: Vec<&str> = session::SEQUENCE_BITS.iter().filter(is_told).map(|bit| bit.label).collect();
        let (severity, why) = match (is_set(REVOKED), is_set(TO_RECLAIM)) {
            (true, _) => (Severity::Warn, STATE_REVOKED),
            (false, true) => (Severity::Note, STATE_TO_RECLAIM),
            (false, false) => (Severity::Note, NO_CALLBACKS),
        };
        let by = cx.blame(cx.roles.client_or_first().peer());
        let text = format_args!("set {} in replies to SEQUENCE", names.join(", "));
        cx.env.findings.report_as(severity, Rule::NfsStateFlags, by, cx.site(at), Certainty::Certain, text);
        cx.env.findings.because(Rule::NfsStateFlags, Some(cx.about.id), by, Some(why));
    }

    /// Known facts about a call that was answered lately, or not yet; and the number of its exchange.
    pub(crate) fn known(&self, xid: u32) -> Option<(Option<Memo>, u64)> {
        let open = End::BOTH.iter().find_map(|by| self.pending.get(&(*by, xid)));
        open.map(|pending| (pending.memo, pending.exchange.id)).or_else(|| self.answers.find(&xid))
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
    pub(crate) fn summary(&self, summary: &mut super::Summary) {
        summary.messages = self.messages;
        summary.nfs = self.nfs.clone();
        summary.commands.absorb(&self.commands);
    }

    /// Swaps ends A and B.
    pub(crate) fn swap_ends(&mut self) {
        self.messages.swap(0, 1);
        self.pending = self.pending.drain().map(|((caller, xid), pending)| ((caller.peer(), xid), pending)).collect();
        self.by_exchange =
            self.by_exchange.drain().map(|(exchange, (caller, xid))| (exchange, (caller.peer(), xid))).collect();
    }

    /// Takes over the other half of a connection whose directions were first taken for two; `swapped` if their ends
    /// have other names.
    pub(crate) fn adopt(&mut self, mut from: Self, swapped: bool) {
        if swapped {
            from.swap_ends();
        }
        self.messages = [self.messages[0] + from.messages[0], self.messages[1] + from.messages[1]];
        self.commands.absorb(&from.commands);
        self.nfs.join(&from.nfs);
        self.has_worked |= from.has_worked;
        self.state_flags.0 |= from.state_flags.0;
        self.state_flags.1 = self.state_flags.1.into_iter().chain(from.state_flags.1).min();
        self.pending.extend(from.pending);
        self.by_exchange.extend(from.by_exchange);
    }
}

/// The chunks of a call that carry data, into its row.
fn describe(exchange: &mut Exchange, header: &Header<'_>) {
    let reads = header.reads.iter().filter(|segment| segment.position > 0).map(|segment| segment.segment());
    let writes = header.writes.iter().flat_map(|chunk| chunk.segments());
    for Segment { handle, length, offset } in reads.chain(writes) {
        if let Some(slot) = exchange.descriptors.get_mut(exchange.descriptor_count as usize) {
            *slot = Descriptor { offset, token: handle, length };
        }
        exchange.descriptor_count += 1;
        exchange.channel = DataPath::Rdma;
    }
}

/// Argument, result: true if an operation of NFS 4 may have it in a chunk (RFC 8267 6.1, and what later minor versions
/// may add to it).
const fn v4_eligible(code: u32) -> (bool, bool) {
    use nfs::v4::Operation as Op;
    match Op(code) {
        // CREATE for the target of a link
        Op::WRITE | Op::CREATE => (true, false),
        Op::READ | Op::READLINK => (false, true),
        // WRITE_SAME, SETXATTR; READ_PLUS, GETXATTR and all that came after
        Op(70 | 73) => (true, false),
        Op(68 | 72..) => (true, true),
        _ => (false, false),
    }
}

/// Argument, result: true if a call may have it in a chunk; `None` if that is not known.
fn eligible(pending: &Pending) -> Option<[bool; 2]> {
    let memo = pending.memo?;
    if matches!(Program(memo.program), Program::MOUNT | Program::NLM | Program::STATUS | Program::NFSACL) {
        // the programs beside NFS 2 and 3 have nothing that may be (RFC 8267 5)
        return Some([false; 2]);
    }
    let memo = Some(memo).filter(Memo::is_nfs)?;
    match memo.version {
        // WRITE and SYMLINK; READ and READLINK (RFC 8267 4)
        2 => Some([matches!(memo.procedure, 8 | 13), matches!(memo.procedure, 5 | 6)]),
        3 => Some([matches!(memo.procedure, 7 | 10), matches!(memo.procedure, 5 | 6)]),
        4 => Some(pending.names.eligible),
        _ => None,
    }
}

/// Checks that the XID is the same in the header of RPC-over-RDMA and in the message, which `by` sent.
fn same_xid(cx: &mut FrameContext<'_>, message: &RpcMessage<'_>, by: End, rests: Rests, stream: &Stream<'_>) {
    let (xid, inner) = (message.xid, stream.bytes.first_chunk::<4>().map(|b| u32::from_be_bytes(*b)));
    if let (Some(inner), true) = (inner.filter(|inner| *inner != xid), message.header.is_some()) {
        other_xid(cx, by, rests, xid, inner);
    }
}

/// Flags of the client's state that say that opens, locks or delegations were revoked.
const REVOKED: &[Def] = &[
    session::f::FLAG_ALL_REVOKED,
    session::f::FLAG_SOME_REVOKED,
    session::f::FLAG_ADMIN_REVOKED,
    session::f::FLAG_RECALLABLE_REVOKED,
];
/// Those that say that the client has to get its state back.
const TO_RECLAIM: &[Def] = &[session::f::FLAG_RESTART_RECLAIM, session::f::FLAG_LEASE_MOVED];
/// Those that say that callbacks do not reach the client.
const CALLBACKS_DOWN: &[Def] = &[
    session::f::FLAG_CB_PATH_DOWN,
    session::f::FLAG_CB_PATH_DOWN_SESSION,
    session::f::FLAG_BACKCHANNEL_FAULT,
    session::f::FLAG_GSS_EXPIRED,
];
/// All of these: the others are part of normal work.
const STATE_FLAGS: u32 = masks(REVOKED) | masks(TO_RECLAIM) | masks(CALLBACKS_DOWN);

const fn masks(bits: &[Def]) -> u32 {
    let (mut all, mut at) = (0, 0);
    while at < bits.len() {
        all |= bits[at].mask as u32;
        at += 1;
    }
    all
}

/// Cause of state that was revoked.
const STATE_REVOKED: &str = "The client's lease ran out, an administrator revoked its state, or it did not return a \
    delegation in time: what it had open or locked is lost";

/// Cause of state that is to be reclaimed.
const STATE_TO_RECLAIM: &str = "The server was restarted, or a file system moved: the client has to reclaim its state";

/// Cause of callbacks that do not reach the client.
const NO_CALLBACKS: &str =
    "The server cannot call the client back, or not in this session: it cannot ask for delegations, and grants none";

/// Cause of a WRITE that is confirmed, and wrote nothing.
const NOTHING_WRITTEN: &str = "The server failed, for want of room or otherwise, and does not say so: a client takes it \
    for an I/O error, or sends the data again and again";

/// Cause of a WRITE that is confirmed without its data.
const EXECUTED_BEFORE: &str = "The client had sent the call before, over a connection that was lost; the server executed \
    it then, and answers from its cache of replies (RFC 8881 2.10.6.1.3)";

/// Cause of callbacks that are not answered.
const CALLBACKS_STUCK: &str = "The client's callback service is stuck, or is gone";

/// Cause of a status that says that the server could not read a call.
const UNREADABLE: &str =
    "The client encoded the call wrongly, it was damaged on its way, or the server reads it wrongly: decode the call";

/// Cause of SYSTEM_ERR.
const SYSTEM_ERROR: &str = "The server ran out of memory, or failed otherwise before it could execute the call";

/// Cause of a failure whose status says more than its rule (RFC 1813 2.6, RFC 8881 15.1).
const fn why_failed(status: Status) -> Option<&'static str> {
    use nfs::v4::Status as S;
    let Some(code) = status.number() else {
        return if status.is_system_error() { Some(SYSTEM_ERROR) } else { None };
    };
    match S(code) {
        S::NOSPC => Some("The file system is full"),
        S::DQUOT => Some("The user's quota is used up: nothing is damaged"),
        S::SERVERFAULT => Some("The server failed in a way for which NFS has no other status: its log says more"),
        _ => None,
    }
}

/// Causes of a chunk that does not have as many bytes as the message says: of an argument, and of a result.
const UNFIT: &str = "The client's chunk does not fit the argument that is in it";
const NOT_SHORTENED: &str = "A short read whose chunk lengths were not shortened";
const NO_ROOM: &str = "The data does not fit into the chunk, and was counted before it was cut";

/// Cause of a chunk of `length` bytes for data of `count` bytes, if it is not `other`.
const fn why_length(count: u64, length: u64, other: &'static str) -> &'static str {
    let is_padding = length > count && length - count < 4 && length.is_multiple_of(4);
    if is_padding { PADDING } else { other }
}

/// Text of the finding about data in a chunk that GSS-API protects.
const UNDER_GSS: &str = "reduced a data item under RPCSEC_GSS integrity or privacy";

/// True if GSS-API protects the data of a call and its reply: then nothing may be reduced (RFC 8166 8.2.2).
fn is_protected(pending: &Pending) -> bool {
    pending.memo.is_some_and(|memo| memo.gss_service.0 >= GssService::INTEGRITY.0)
}

/// Checks the argument of a call in read chunks: it must be allowed there, and the count in the stream must be that of
/// the chunk.
fn reduced_argument(cx: &mut FrameContext<'_>, by: End, reads: &Reads<'_>, rests: Rests, pending: &Pending) {
    let at = pending.exchange.request_end;
    let first = next_position(reads, 0);
    if first.is_none() {
        return;
    }
    if is_protected(pending) {
        cx.report_at(at, Rule::RpcrdmaDdp, by, rests, format_args!("{UNDER_GSS}"));
    } else if let Some([false, _]) = eligible(pending) {
        let command = pending.memo.and_then(|memo| pending.names.command(&memo)).unwrap_or("the call");
        let text = format_args!("has an argument of {command} in a read chunk that must not be there");
        cx.report_at(at, Rule::RpcrdmaDdp, by, rests, text);
    }
    let positions = core::iter::successors(first, |position| next_position(reads, *position));
    let counts = Names::all(&pending.names.transfers, true).filter(|moved| moved.is_reduced);
    // if there are other items in chunks, it is not known which is whose
    if positions.clone().take(TRANSFERS_MAX).count() != counts.clone().count() {
        return;
    }
    for (position, count) in positions.zip(counts.map(|moved| u64::from(moved.count))) {
        let length: u64 = reads.at(position).map(|segment| u64::from(segment.length)).sum();
        // the round-up bytes may be there or not
        if length < count || length > count.next_multiple_of(4) {
            let text = format_args!("writes {count} bytes, but the read chunk has {length}");
            cx.report_at(at, Rule::RpcrdmaChunkLength, by, rests, text);
            let (blame, id) = (cx.blame(by), Some(cx.about.id));
            cx.env.findings.because(Rule::RpcrdmaChunkLength, id, blame, Some(why_length(count, length, UNFIT)));
        }
    }
}

/// The lowest position of a read chunk behind this one.
fn next_position(reads: &Reads<'_>, behind: u32) -> Option<u32> {
    reads.iter().map(|segment| segment.position).filter(|position| *position > behind).min()
}

/// Checks that the server read the data that it says it wrote, as far as it is known what it asked for: responses to
/// RDMA Reads may be missing in the capture. `is_attributed` if it is known what all RDMA of the connection was for;
/// `is_among_first` if nothing was answered on the connection before the call: the client may have sent it before, over
/// a connection that was lost.
fn read_for(cx: &mut FrameContext<'_>, by: End, pending: &Pending, is_attributed: bool, is_among_first: bool) {
    let exchange = &pending.exchange;
    let reduced = pending.names.done(true).filter(|(asked, _)| asked.is_reduced);
    let says: u64 = reduced.map(|(_, done)| u64::from(done.count)).sum();
    // sequence numbers show that the capture missed no Read
    let is_counted = cx.about.transport.is_some_and(Transport::is_rdma);
    let is_seen = is_counted && cx.about.opening_seen && is_attributed;
    if says == 0 || !is_seen || pending.names.status.is_some() {
        return;
    }
    // the bytes of several arguments are not told apart, and what a chunk lacks is its client's fault
    let there = pending.argument.map(|length| length.min(says));
    let fetched = there.and_then(|there| Some((pending.fetched.of(there)?.1, there)));
    let rests = Rests::since(exchange.request);
    match fetched {
        _ if exchange.reads.frames == 0 => {
            let text = format_args!("says it wrote {says} bytes of a WRITE, but read none of them");
            if !is_among_first {
                cx.report(Rule::RdmaLength, by, rests, text);
            } else if cx.missed.is_whole(rests) {
                cx.guess(Rule::RdmaLength, by, text);
                let (blame, id) = (cx.blame(by), Some(cx.about.id));
                cx.env.findings.because(Rule::RdmaLength, id, blame, Some(EXECUTED_BEFORE));
            }
        }
        Some((first, there)) if first < there => {
            let text = format_args!("says it wrote {says} bytes of a WRITE, but read {first} of them");
            cx.report(Rule::RdmaLength, by, rests, text);
        }
        _ => {}
    }
}

/// The greatest value of `stable_how` (RFC 1813 3.3.7, RFC 8881 18.32.1).
const STABLE_MAX: u32 = nfs::v3::Stable::FILE_SYNC.0;

/// Checks that the data of WRITEs, asked for and done, is as safe as was asked.
fn stability<'m>(
    cx: &mut FrameContext<'_>,
    by: End,
    request: At,
    mut done: impl Iterator<Item = (&'m Moved, &'m Moved)> + Clone,
) {
    use nfs::v3::Stable;
    if let Some((_, got)) = done.clone().find(|(_, got)| got.stable > STABLE_MAX) {
        let text = format_args!("answered a WRITE with committed {}, which is not defined", got.stable);
        cx.report(Rule::RpcMalformed, by, Rests::FRAME, text);
    }
    let is_less = |asked: &Moved, got: &Moved| got.stable < asked.stable && asked.stable <= STABLE_MAX;
    if let Some((asked, got)) = done.find(|(asked, got)| is_less(asked, got) && got.count > 0) {
        let [asked, got] = [asked, got].map(|moved| Stable(moved.stable));
        cx.report(
            Rule::NfsStable,
            by,
            Rests::since(request),
            format_args!("answered a WRITE that asked for {asked} with {got}"),
        );
    }
}

/// Compares the bytes that the chunks of a reply announce with those that the message announces. `is_whole` if all of it
/// and of its call could be read.
fn announced(cx: &mut FrameContext<'_>, by: End, header: &Header<'_>, pending: &Pending, is_whole: bool) {
    let listed: u64 = header.writes.iter().map(|c| c.length()).sum();
    let rests = Rests::since(pending.exchange.request).of(by).though_cut();
    // each READ has a chunk of its own, unless other results may have one too
    let reads = Names::all(&pending.names.transfers, false).filter(|_| !pending.names.is_mixed);
    for (Moved { count, is_reduced, .. }, chunk) in reads.zip(header.writes.iter()) {
        let length = chunk.length();
        if *is_reduced && u64::from(*count) != length {
            let text = format_args!("answers with {count} bytes, but the write chunk has {length}");
            cx.report(Rule::RpcrdmaChunkLength, by, Rests::FRAME, text);
            let why = if u64::from(*count) < length { NOT_SHORTENED } else { NO_ROOM };
            let (blame, id) = (cx.blame(by), Some(cx.about.id));
            let why = Some(why_length(u64::from(*count), length, why));
            cx.env.findings.because(Rule::RpcrdmaChunkLength, id, blame, why);
        }
        // if a chunk was offered for it, a result is moved there (RFC 8166 6.1); one without segments has no room
        let is_inline = !is_reduced && *count > 0 && !header.is_long();
        if is_inline && length == 0 && !chunk.is_empty() && is_whole && !is_protected(pending) {
            let text = format_args!(
                "answered a READ with {count} bytes in the message, although a write chunk was offered for them"
            );
            cx.report(Rule::RpcrdmaDdp, by, rests, text);
        }
    }
    if listed == 0 {
        return;
    }
    if is_protected(pending) {
        cx.report(Rule::RpcrdmaDdp, by, Rests::FRAME, format_args!("{UNDER_GSS}"));
    } else if let (Some([_, false]), true) = (eligible(pending), is_whole) {
        let command = pending.exchange.command;
        let text = format_args!("has a result of {command} in a write chunk that must not be there");
        cx.report(Rule::RpcrdmaDdp, by, rests, text);
    }
}

/// How far a message could be read.
#[derive(Clone, Copy, Debug, Default)]
struct Extent {
    /// True if all of it could be.
    is_whole: bool,
    /// True if its header cannot be that of such a message.
    is_other: bool,
    /// True if it ends within its arguments or results.
    is_short: bool,
    /// Position of a read chunk at which no item begins.
    unread: Option<u32>,
    /// Name and value of a boolean that is neither 0 nor 1.
    odd: Option<(&'static str, u32)>,
}

/// Decodes an RPC message that belongs to a pending call.
fn decode<T: Trace>(
    cx: &mut FrameContext<'_>,
    stream: &Stream<'_>,
    expected: MessageType,
    pending: &mut Pending,
    t: &mut T,
) -> Extent {
    let mut extent = Extent { is_other: true, ..Extent::default() };
    if let Ok(decoded) = rpc::decode(stream, pending.memo, t, &mut pending.names) {
        extent = Extent {
            is_whole: decoded.fault.is_none(),
            is_other: false,
            // what is in a chunk that belongs to no known item is not known
            is_short: decoded.fault.is_some_and(|fault| fault.kind == FaultKind::Short) && !decoded.is_unmatched,
            unread: decoded.unread,
            odd: decoded.odd.map(|(def, value)| (def.label, value)),
        };
        match (decoded.message, expected) {
            (Message::Call(call), MessageType::CALL) => pending.memo = Some(call.memo),
            (Message::Reply(reply), MessageType::REPLY) => {
                let undefined = match reply.outcome {
                    rpc::Outcome::Failed(AcceptState(state)) if state > AcceptState::SYSTEM_ERR.0 => {
                        Some(("accept_stat", state))
                    }
                    rpc::Outcome::Denied(state) => Some(("reject_stat", state)),
                    rpc::Outcome::Unknown(state) => Some(("reply_stat", state)),
                    _ => None,
                };
                if let Some(((name, state), by)) = undefined.zip(cx.sender) {
                    let command = One(pending.exchange.command);
                    let text = format_args!("answered {command} with {name} {state}, which is not defined");
                    cx.report(Rule::RpcMalformed, by, Rests::FRAME, text);
                }
                if let Some(refused) = Status::of_refusal(reply.outcome) {
                    (pending.exchange.failed, pending.exchange.status) = (true, Some(refused));
                }
            }
            _ => extent = Extent { is_other: true, ..Extent::default() },
        }
    }
    cx.layer(if pending.memo.is_some_and(|m| m.is_nfs()) { Layer::Nfs } else { Layer::Rpc });
    extent
}

/// True if a call is of a program whose messages are known to their end. Others than callbacks may have their numbers:
/// they do not have their operations (RFC 5531 8.2).
fn is_known(pending: &Pending) -> bool {
    let is_its = |memo: Memo| match memo.is_callback() {
        true => pending.names.operation.is_some(),
        false => memo.is_nfs() && memo.version >= 3,
    };
    pending.memo.is_some_and(is_its) && !is_protected(pending)
}

/// Checks that a call, which was captured whole, has all of its arguments, and that one begins at each read chunk.
fn malformed_call(
    cx: &mut FrameContext<'_>,
    by: End,
    rests: Rests,
    stream: &Stream<'_>,
    read: &Extent,
    pending: &Pending,
) {
    let (at, command) = (pending.exchange.request_end, One(pending.exchange.command));
    if read.is_other {
        return cx.report_at(
            at,
            Rule::RpcMalformed,
            by,
            rests,
            format_args!("sent a call whose header cannot be read"),
        );
    }
    if !is_known(pending) {
        return;
    }
    match read.unread {
        // chunks past the end, and at odd positions, break the rule already
        Some(position) if position % 4 == 0 && position as usize <= stream.bytes.len() => {
            if let Some([true, _]) = eligible(pending) {
                let text = format_args!("has a read chunk at position {position}, where no data of {command} begins");
                cx.report_at(at, Rule::RpcrdmaPosition, by, rests, text);
            }
        }
        None if read.is_short => {
            let text = format_args!("sent {command} that ends within its arguments");
            cx.report_at(at, Rule::RpcMalformed, by, rests, text);
        }
        _ => {}
    }
    if let Some((name, value)) = read.odd.filter(|_| read.is_whole) {
        let text = format_args!("sent {command} in which a boolean ({name}) is {value}; it is 0 or 1");
        cx.report_at(at, Rule::RpcMalformed, by, rests, text);
    }
    let stable = Names::all(&pending.names.transfers, true).map(|moved| moved.stable);
    if let Some(stable) = stable.into_iter().find(|stable| *stable > STABLE_MAX).filter(|_| read.is_whole) {
        let text = format_args!("sent {command} that asks for stable_how {stable}, which is not defined");
        cx.report_at(at, Rule::RpcMalformed, by, rests, text);
    }
}

/// Checks that a reply, which was captured whole, is one, and has the results of the call's operations.
fn malformed_reply(cx: &mut FrameContext<'_>, by: End, rests: Rests, read: &Extent, pending: &Pending) {
    let command = One(pending.exchange.command);
    if read.is_other {
        cx.report(Rule::RpcMalformed, by, rests, format_args!("answered {command} with something that is no reply"));
    } else if is_known(pending) && pending.names.is_of_another && pending.is_whole {
        let text = format_args!("answered {command} with the results of other operations");
        cx.report(Rule::RpcMalformed, by, rests, text);
    } else if let Some(fault) = pending.names.fault.filter(|_| is_known(pending) && pending.is_whole) {
        cx.report(Rule::RpcMalformed, by, rests, format_args!("answered {command} with {fault}"));
    } else if is_known(pending) && read.is_short && pending.is_whole {
        let text = format_args!("answered {command} with a reply that ends within its results");
        cx.report(Rule::RpcMalformed, by, rests, text);
    } else if let Some((name, value)) = read.odd.filter(|_| is_known(pending) && read.is_whole && pending.is_whole) {
        let text = format_args!("answered {command} with a boolean ({name}) that is {value}; it is 0 or 1");
        cx.report(Rule::RpcMalformed, by, rests, text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::alone::Alone;
    use crate::messages::rpcrdma::RpcMessage;
    use crate::messages::stream::Record;
    use rdmascope_dissector::trace::Off;

    #[test]
    fn what_leads_up_to_an_operation_or_comes_behind_it_does_not_name_the_compound() {
        let named = |operations: &[&'static str]| {
            operations.iter().copied().reduce(|a, b| if rank_of(b) >= rank_of(a) { b } else { a })
        };
        assert_eq!(named(&["SEQUENCE", "PUTFH", "ACCESS", "GETATTR"]), Some("ACCESS"));
        assert_eq!(named(&["SEQUENCE", "PUTFH", "LOOKUP", "GETFH", "GETATTR"]), Some("LOOKUP"));
        assert_eq!(named(&["SEQUENCE", "PUTFH", "OPEN", "GETFH", "ACCESS", "GETATTR"]), Some("OPEN"));
        assert_eq!(named(&["SEQUENCE", "PUTROOTFH", "GETFH", "GETATTR"]), Some("GETATTR"));
    }

    /// The RPC layer alone, over TCP.
    struct Layer {
        alone: Alone,
        rpc: Rpc,
    }

    impl Layer {
        fn new() -> Self {
            Self { alone: Alone::new(), rpc: Rpc::default() }
        }

        fn message(&mut self, by: End, words: &[u32]) -> &mut Self {
            let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_be_bytes()).collect();
            let mut cx = self.alone.frame(by);
            let record = Record {
                first: cx.at,
                last: cx.at,
                bytes: &bytes,
                wire_length: bytes.len() as u32,
                in_frame: true,
                pieces: None,
            };
            let message = RpcMessage::of_record(&mut cx, by, &record).expect("an RPC header");
            self.rpc.message(&mut cx, &message, &mut Off);
            self
        }
    }

    /// NFS version 3, NULL.
    fn call(xid: u32) -> [u32; 10] {
        [xid, 0, 2, 100_003, 3, 0, 0, 0, 0, 0]
    }

    fn reply(xid: u32, accept_state: u32) -> [u32; 6] {
        [xid, 1, 0, 0, 0, accept_state]
    }

    #[test]
    fn a_reply_is_tied_to_its_call_by_the_transaction_id() {
        let mut layer = Layer::new();
        layer
            .message(End::A, &call(1))
            .message(End::A, &call(2))
            .message(End::B, &reply(2, 0))
            .message(End::B, &reply(1, 0));
        let shown: Vec<_> =
            layer.alone.answered(End::B).iter().map(|e| (e.command, e.message_id, e.request.frame, e.failed)).collect();
        assert_eq!(shown, [("NULL", 2, 2, false), ("NULL", 1, 1, false)]);
    }

    #[test]
    fn both_ends_may_call_with_the_same_transaction_id() {
        let mut layer = Layer::new();
        layer
            .message(End::A, &call(7))
            .message(End::B, &call(7))
            .message(End::A, &reply(7, 0))
            .message(End::B, &reply(7, 0));
        assert_eq!((layer.alone.answered(End::A).len(), layer.alone.answered(End::B).len()), (1, 1));
    }

    #[test]
    fn a_call_that_the_server_could_not_take_has_failed() {
        let mut layer = Layer::new();
        // SYSTEM_ERR (RFC 5531, 9)
        layer.message(End::A, &call(1)).message(End::B, &reply(1, 5));
        let shown: Vec<_> = layer
            .alone
            .answered(End::B)
            .iter()
            .map(|e| (e.failed, e.status.map(|code| Status(e.family, code))))
            .collect();
        assert_eq!(shown.len(), 1);
        assert!(matches!(shown[0], (true, Some(status)) if alloc::format!("{status}") == "SYSTEM_ERR"), "{shown:?}");
    }

    /// A server of NFS 4.0 opens a connection of its own for them (RFC 7530 16.33.5): who opened it is not the client.
    #[test]
    fn who_sends_callbacks_is_the_server() {
        let null = [1, 0, 2, 0x4000_0000, 1, 0, 0, 0, 0, 0];
        let recall = [2, 0, 2, 0x4000_0000, 1, 1, 0, 0, 0, 0, 0, 0, 7, 1, 4, 1, 2, 3, 4, 0, 4, 9];
        let mut layer = Layer::new();
        layer.alone.frame(End::A).roles.learn(End::A, Source::Handshake);
        layer.message(End::A, &null).message(End::B, &reply(1, 0));
        assert_eq!(layer.alone.frame(End::A).roles.client(), Some(End::A), "a program of any kind");
        layer.message(End::A, &recall);
        assert_eq!(layer.alone.frame(End::A).roles.client(), Some(End::B));
    }

    /// GETACL of NFSACL, with a file handle of four bytes and a mask; without attributes in its reply.
    #[test]
    fn a_list_of_access_rights_that_the_server_does_not_give_has_failed() {
        for (version, status, shown) in [(3, 10_008, "ERR_JUKEBOX"), (3, 5, "ERR_IO"), (2, 70, "ERR_STALE")] {
            let mut layer = Layer::new();
            let handle: &[u32] = if version == 3 { &[4, 1] } else { &[1; 8] };
            let call = [&[1, 0, 2, 100_227, version, 1, 0, 0, 0, 0][..], handle, &[1]].concat();
            let attributes: &[u32] = if version == 3 { &[0] } else { &[] };
            let reply = [&reply(1, 0)[..], &[status], attributes].concat();
            layer.message(End::A, &call).message(End::B, &reply);
            let answered = layer.alone.answered(End::B);
            let [one] = answered.as_slice() else { panic!("{answered:?}") };
            let status = Status(one.family, one.status.unwrap_or(0));
            assert_eq!((one.command, one.failed, alloc::format!("{status}").as_str()), ("GETACL", true, shown));
        }
    }

    /// The capture began between a call and its copy, which was retransmitted when the reply was under way.
    #[test]
    fn a_call_whose_reply_went_by_before_it_is_not_unanswered() {
        for (replied, expected) in [(true, 0), (false, 1)] {
            let mut layer = Layer::new();
            if replied {
                layer.message(End::B, &reply(1, 0));
            }
            layer.message(End::A, &call(1)).message(End::A, &call(2)).message(End::B, &reply(2, 0));
            let Layer { alone, rpc } = &mut layer;
            End::BOTH.into_iter().for_each(|end| alone.missed.captured(end, At::default()));
            let mut cx = alone.frame(End::B);
            let end = At { time: cx.at.time + 60_000_000_000, ..cx.at };
            rpc.finish(&mut cx, end);
            assert_eq!(
                alone.broken().iter().filter(|(rule, _)| *rule == Rule::RpcUnanswered).count(),
                expected,
                "{replied}"
            );
        }
    }

    /// A server that was silent for long made the client ask again: it waited since its first call.
    #[test]
    fn a_call_that_is_sent_again_has_waited_since_the_first() {
        let mut layer = Layer::new();
        layer.message(End::A, &call(1)).message(End::A, &call(2)).message(End::A, &call(1));
        layer.message(End::B, &reply(1, 0)).message(End::B, &reply(2, 0));
        let shown: Vec<_> = layer
            .alone
            .answered(End::B)
            .iter()
            .map(|e| (e.message_id, e.request.frame, e.reply.unwrap().frame))
            .collect();
        assert_eq!(shown, [(1, 1, 4), (2, 2, 5)]);
        assert_eq!(layer.alone.broken(), []);
        assert_eq!(layer.rpc.commands.rows().len(), 0, "answered requests are counted once they are settled");
    }

    #[test]
    fn a_call_whose_id_is_taken_by_another_is_counted() {
        let mut other = call(1);
        other[5] = 1;
        let mut layer = Layer::new();
        layer.message(End::A, &call(1)).message(End::A, &other).message(End::B, &reply(1, 0));
        let rows: Vec<_> = layer.rpc.commands.rows().iter().map(|row| row.unanswered).collect();
        assert_eq!(rows, [1]);
        assert_eq!(layer.alone.answered(End::B).len(), 1);
    }

    /// RFC 8881 2.9.2 forbids it, and the reply answers it all the same.
    #[test]
    fn a_call_of_nfs_4_that_is_sent_again_is_one_call() {
        let mut four = call(1);
        four[4] = 4;
        let mut layer = Layer::new();
        layer.message(End::A, &four).message(End::A, &four).message(End::B, &reply(1, 0)).message(End::B, &reply(1, 0));
        assert_eq!(layer.rpc.commands.rows().len(), 0, "none is left open");
        assert_eq!(layer.alone.answered(End::B).len(), 1);
        assert_eq!(layer.alone.broken(), [], "the layer below tells of it");
    }

    #[test]
    fn a_reply_to_nothing_closes_nothing() {
        let mut layer = Layer::new();
        layer.message(End::A, &call(1)).message(End::B, &reply(9, 0));
        assert!(layer.alone.answered(End::B).is_empty());
    }
}
