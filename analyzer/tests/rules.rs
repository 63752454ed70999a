//! For every rule a conversation that breaks it, and the same one without the violation.
//!
//! A rule is sampled by one row of [`CASES`]. If that cannot be done here, [`WITHOUT_SAMPLE`] says why; a rule that is
//! in neither list fails the test.

#[path = "common/build.rs"]
mod build;
mod common;

use build::*;
use rdmascope_analyzer::env::Options;
use rdmascope_analyzer::finding::{Blame, Certainty};
use rdmascope_analyzer::outcome::Success;
use rdmascope_analyzer::pipeline::Pipeline;
use rdmascope_analyzer::report::Report;
use rdmascope_analyzer::roots;
use rdmascope_analyzer::rules::{Group, Rule, Severity};
use rdmascope_dissector::trace::{Line, Off, Trace};
use rdmascope_dissector::wire::ib::bth::Opcode;
use rdmascope_dissector::wire::ib::ext::{self, aeth_bytes};
use rdmascope_dissector::wire::ib::icrc::{Cover, invariant};
use rdmascope_dissector::wire::iwarp::mpa::{self, Startup, emit_fpdu, emit_fpdu_with_markers};
use rdmascope_dissector::wire::iwarp::rdmap::{self, Terminate};
use rdmascope_dissector::wire::nfs::v3;
use rdmascope_dissector::wire::rpcrdma::Segment;
use rdmascope_dissector::wire::smb2::encode;
use rdmascope_dissector::wire::smb2::header::{Command, Header, Ids, flags};
use rdmascope_dissector::wire::smb2::rdma_channel::{CryptoTransformFixed, RdmaTransformFixed};
use rdmascope_dissector::wire::smb2::read_write::ReadRequestFixed;
use rdmascope_dissector::wire::smb2::session::SessionSetupRequestFixed;
use rdmascope_dissector::wire::smbd::{BufferDescriptorV1, DataTransfer, NegotiateRequest, NegotiateResponse};

type Make = fn(&mut Conversation);

/// Rules without a row in [`CASES`], and why.
const WITHOUT_SAMPLE: &[(Rule, &str)] = &[
    (Rule::Smb2Signature, "needs a session with keys: the tests of sealed traffic have one"),
    (Rule::SmbPathDialect, LADDER),
    (Rule::SmbPathClient, LADDER),
    (Rule::SmbPathServer, LADDER),
    (Rule::SmbPathAsk, LADDER),
    (Rule::SmbPathAnswer, LADDER),
    (Rule::SmbPathInterface, LADDER),
    (Rule::SmbPathAddress, LADDER),
    (Rule::SmbPathTry, LADDER),
    (Rule::SmbPathRefused, LADDER),
    (Rule::SmbPathSilent, LADDER),
    (Rule::SmbPathBind, LADDER),
    (Rule::SmbPathInline, LADDER),
    (Rule::SmbPathFallback, LADDER),
    (Rule::NfsPathRefused, LADDER),
    (Rule::NfsPathSilent, LADDER),
    (Rule::NfsPathTcp, LADDER),
    (Rule::NfsPathFallback, LADDER),
];

/// Reason why rules of the path to RDMA have no conversation here.
const LADDER: &str =
    "needs several connections: the tests of path.rs break and keep each, and samples/ has captures of most";

fn negotiate(c: &mut Conversation, request: NegotiateRequest) {
    c.negotiate(request, response());
}

/// An encrypted message of 100 bytes and its header, announced as the caller has it.
fn sealed(c: &mut Conversation, announced: usize) {
    c.smb();
    let mut message = [0xaa; 152];
    message[..4].copy_from_slice(b"\xfdSMB");
    message[36..40].copy_from_slice(&100u32.to_le_bytes());
    c.data(C, carrying(100, 100, announced - 100), &message[..100]);
    c.data(C, carrying(1, 52, announced - 152), &message[100..]);
    if announced > 152 {
        c.cm_disconnect(S);
    }
}

/// An ECHO in this session, where session 7 was set up.
fn echo_in_session(c: &mut Conversation, session_id: u64) {
    c.smb();
    let header = c.header(Command::SESSION_SETUP);
    c.message(C, &encode::session_setup(&header, SESSION_SETUP, &[0; 4]));
    c.reply(&Header { session_id: 7, ..header }, 0, &[9, 0, 0, 0, 72, 0, 0, 0]);
    let header = Header { session_id, ..c.header(Command::ECHO) };
    c.message(C, &encode::empty(&header));
    c.reply(&header, 0, &[4, 0, 0, 0]);
}

/// A READ of 1024 bytes in a session and with a MinimumCount, answered in a session with so many bytes. Session 7 and
/// its tree connect 1 were set up.
fn read_of_disk(c: &mut Conversation, asked: (u64, u32), answered: (u64, usize)) {
    let of = |header: Header, session_id| Header { session_id, ids: Ids::Sync { process_id: 0, tree_id: 1 }, ..header };
    // a TREE_CONNECT of 3.1.1 would have to be signed
    c.dialect = 0x0302;
    echo_in_session(c, 7);
    let header = Header { session_id: 7, ..c.header(Command::TREE_CONNECT) };
    c.message(C, &encode::tree_connect(&header, r"\\server\share"));
    c.reply(&of(header, 7), 0, &[16, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let header = c.header(Command::READ);
    let fixed = ReadRequestFixed {
        structure_size: 49,
        padding: 80,
        flags: 0,
        length: 1024,
        offset: 0,
        file_id: [7; 16],
        minimum_count: asked.1,
        channel: 0,
        remaining_bytes: 0,
        channel_info_offset: 0,
        channel_info_length: 0,
    };
    c.message(C, &encode::read(&of(header, asked.0), fixed, &[]));
    let mut body = vec![17, 0, 80, 0];
    body.extend((answered.1 as u32).to_le_bytes());
    body.resize(16 + answered.1, 0);
    c.reply(&of(header, answered.0), 0, &body);
}

/// A WRITE whose data the client lets the server wait for.
fn fetched_after(c: &mut Conversation, wait: i64) {
    c.smb();
    let header = c.smb2_write(1024, &[descriptor(5, 1024)]);
    let psn = c.read_request(S, 5, 1024);
    c.wait(wait);
    c.read_response(C, psn, 1024);
    c.reply(&header, 0, &Conversation::write_body(1024));
}

/// A READ that the server does not carry out any more: STATUS_CANCELLED.
fn cancelled(c: &mut Conversation) {
    c.smb();
    let header = c.smb2_read(2, 1024, &[descriptor(5, 1024)]);
    let reply = Conversation::reply_bytes(&header, 0xc000_0120, 1, &Conversation::error_body());
    c.message_invalidating(S, &reply, 5);
}

/// An ECHO of the client, in a Send of SMB Direct.
fn echo_message(c: &mut Conversation) -> (Header, Vec<u8>) {
    let header = c.header(Command::ECHO);
    let request = encode::empty(&header);
    let mut message = Vec::new();
    carrying(1, request.len(), 0).emit(&mut message);
    message.resize(24, 0);
    message.extend(request);
    (header, message)
}

/// A queue pair of which nothing else is known gets a packet with the PSN that is next on a connection: the ECHO that is
/// sent there a second later, or another message.
fn misaddressed(c: &mut Conversation, is_same: bool) {
    c.smb();
    c.echo();
    let (header, message) = echo_message(c);
    let mut stray = message.clone();
    if !is_same {
        stray[40] ^= 1;
    }
    let frame = c.packet(C, Opcode::RC_SEND_ONLY.0, 0x99, c.psn[C], &[], &stray);
    c.frame(frame);
    c.wait(SECOND);
    c.requested(C, Opcode::RC_SEND_ONLY, &[], &message);
    c.reply(&header, 0, &[4, 0, 0, 0]);
    c.echo();
}

/// An ECHO that is sent twice, at first with a number so far ahead.
fn misnumbered(c: &mut Conversation, ahead: u32) {
    c.smb();
    c.echo();
    let (header, message) = echo_message(c);
    let psn = c.psn[C];
    if ahead > 0 {
        c.roce(C, Opcode::RC_SEND_ONLY.0, psn + ahead, &[], &message);
    }
    c.requested(C, Opcode::RC_SEND_ONLY, &[], &message);
    c.reply(&header, 0, &[4, 0, 0, 0]);
    c.echo();
}

/// A WRITE whose data the server reads, the answer having this opcode.
fn read_ended_by(c: &mut Conversation, opcode: u8) {
    c.smb();
    let header = c.smb2_write(1024, &[descriptor(5, 1024)]);
    let psn = c.read_request(S, 5, 1024);
    c.roce(C, opcode, psn, &aeth_bytes(ext::ACK, 1), &[0; 1024]);
    c.reply(&header, 0, &Conversation::write_body(1024));
}

/// A READ whose RDMA Write of 1024 bytes has another length in its RETH.
fn write_of(c: &mut Conversation, said: u32) {
    c.smb();
    let header = c.smb2_read(1, 1024, &[descriptor(5, 1024)]);
    c.requested(S, Opcode::RC_RDMA_WRITE_ONLY, &Conversation::reth(5, address(5), said), &[0; 1024]);
    c.reply(&header, 0, &Conversation::read_body(1024));
}

/// A server that acknowledges packets so far beyond what the client sent.
fn acknowledges(c: &mut Conversation, beyond: u32) {
    c.smb();
    for _ in 0..5 {
        let header = c.echo_request();
        c.acknowledge(C, c.psn[C].wrapping_sub(1).wrapping_add(beyond), 0x1f);
        c.reply(&header, 0, &[4, 0, 0, 0]);
    }
}

/// A client that grants and is granted nothing for a while, and then goes away.
fn exhausted(c: &mut Conversation, granted: u16) {
    c.negotiate(request(), NegotiateResponse { credits_granted: 2, ..response() });
    c.data(C, empty(10), &[]);
    c.data(S, empty(granted), &[]);
    c.wait(30 * SECOND);
    c.cm_disconnect(C);
}

/// The fixed part of a SESSION_SETUP with a token of 4 bytes.
const SESSION_SETUP: SessionSetupRequestFixed = SessionSetupRequestFixed {
    structure_size: 25,
    flags: 0,
    security_mode: 1,
    capabilities: 0,
    channel: 0,
    security_buffer_offset: 88,
    security_buffer_length: 4,
    previous_session_id: 0,
};

/// A logon that the server answers with a status.
fn logon(c: &mut Conversation, status: u32) {
    c.smb();
    let header = c.header(Command::SESSION_SETUP);
    c.message(C, &encode::session_setup(&header, SESSION_SETUP, &[0; 4]));
    let body = if status == 0 { vec![9, 0, 0, 0, 72, 0, 0, 0] } else { Conversation::error_body() };
    c.reply(&header, status, &body);
    c.cm_disconnect(C);
}

/// A server that acknowledges the MPA Request and says nothing until the client closes.
fn silent(c: &mut Conversation) {
    c.tcp_open();
    c.mpa(Conversation::startup(false));
    c.tcp_ack(S, 0xffff);
    c.wait(5 * SECOND);
    let seq = c.seq[C];
    c.segment(C, seq, 0x11, 0xffff, &[]);
}

/// A SYN that is answered with a reset.
fn refused(c: &mut Conversation) {
    c.iwarp = true;
    let seq = c.seq[C];
    c.segment(C, seq, 0x02, 0xffff, &[]);
    c.seq[C] += 1;
    c.segment(S, 0, 0x14, 0, &[]);
}

/// A client with 16 credits of 8136 bytes, whose server reassembles `max_fragmented_size` bytes.
fn reach(c: &mut Conversation, max_fragmented_size: u32) {
    c.negotiate(
        NegotiateRequest { credits_requested: 16, ..request() },
        NegotiateResponse { max_fragmented_size, ..response() },
    );
}

fn answer(c: &mut Conversation, response: NegotiateResponse) {
    c.negotiate(request(), response);
}

/// A negotiation, and one data transfer message of the client that grants some.
fn first_data(c: &mut Conversation, header: DataTransfer, data: &[u8]) {
    c.negotiate(request(), response());
    c.data(C, DataTransfer { credits_granted: 10, ..header }, data);
}

/// 64 bytes that begin like an SMB2 message.
fn smb2() -> Vec<u8> {
    let mut message = vec![0; 64];
    message[..4].copy_from_slice(b"\xfeSMB");
    message
}

/// An SMB2 message of 3000 bytes.
fn long_echo() -> Vec<u8> {
    let mut message = encode::empty(&Header::request(Command::ECHO, 0));
    message.resize(3000, 0);
    message
}

/// A message of 3000 bytes in three pieces, something else between the first and the second.
fn between_fragments(c: &mut Conversation, other: fn(&mut Conversation)) {
    let message = long_echo();
    c.negotiate(request(), response());
    c.data(C, carrying(10, 1000, 2000), &message[..1000]);
    other(c);
    c.data(C, carrying(1, 1000, 1000), &message[1000..2000]);
    c.data(C, carrying(1, 1000, 0), &message[2000..]);
}

/// A message of 3000 bytes announced, its second piece as the caller has it.
fn second_fragment(c: &mut Conversation, length: usize, remaining: usize) {
    let message = long_echo();
    c.negotiate(request(), response());
    c.data(C, carrying(10, 1000, 2000), &message[..1000]);
    c.data(C, carrying(1, length, remaining), &vec![0; length]);
    if length as u32 == 1000 && remaining == 1000 {
        c.data(C, carrying(1, 1000, 0), &[0; 1000]);
    }
}

/// The client has two credits; after the first is spent, the server takes its time to grant more.
fn credit_wait(c: &mut Conversation, wait: i64) {
    c.negotiate(request(), NegotiateResponse { credits_granted: 2, ..response() });
    c.data(C, carrying(10, 64, 0), &[0; 64]);
    c.wait(wait);
    c.data(S, empty(5), &[]);
    c.data(C, carrying(1, 64, 0), &[0; 64]);
}

/// The client has two credits and sends three messages; true if it is granted more between.
fn three_of_two(c: &mut Conversation, granted: bool) {
    c.negotiate(request(), NegotiateResponse { credits_granted: 2, ..response() });
    c.data(C, empty(10), &[]);
    if granted {
        c.data(S, empty(10), &[]);
    }
    c.data(C, empty(1), &[]);
    c.data(C, empty(1), &[]);
}

fn last_credit(c: &mut Conversation, granting: u16) {
    c.negotiate(request(), NegotiateResponse { credits_granted: 2, ..response() });
    c.data(C, empty(10), &[]);
    c.data(C, empty(granting), &[]);
}

/// 70 messages and their answers, the client holding `held` credits.
fn many(c: &mut Conversation, held: u16) {
    c.negotiate(request(), NegotiateResponse { credits_granted: held, ..response() });
    c.data(C, empty(100), &[]);
    c.data(S, empty(1), &[]);
    for _ in 0..70 {
        c.data(C, empty(1), &[]);
        c.data(S, empty(1), &[]);
    }
}

/// Both ends spend their last credit; the second message grants `granted`.
fn both_dry(c: &mut Conversation, granted: u16) {
    c.negotiate(request(), NegotiateResponse { credits_granted: 1, ..response() });
    c.data(C, empty(1), &[]);
    c.data(S, empty(granted), &[]);
    c.wait(3 * SECOND);
    let psn = c.psn[S] - 1;
    c.acknowledge(S, psn, 0x1f);
}

fn keepalive(c: &mut Conversation, wait: i64) {
    first_data(c, DataTransfer { flags: 1, ..empty(10) }, &[]);
    c.wait(wait);
    c.data(S, empty(1), &[]);
}

/// A READ over RDMA with the key 5, 4096 bytes long, whose Write is the caller's.
fn read_with(c: &mut Conversation, write: fn(&mut Conversation)) {
    c.smb();
    let header = c.smb2_read(1, 4096, &[descriptor(5, 4096)]);
    write(c);
    c.reply(&header, 0, &Conversation::read_body(4096));
}

/// A READ that asks for its key to be invalidated, and its reply; with success or without, invalidating or not.
fn invalidating(c: &mut Conversation, status: u32, key: Option<u32>) {
    c.smb();
    let header = c.smb2_read(2, 1024, &[descriptor(5, 1024)]);
    let body = if status == 0 {
        c.write(S, 5, 1024);
        Conversation::read_body(1024)
    } else {
        Conversation::error_body()
    };
    let reply = Conversation::reply_bytes(&header, status, 1, &body);
    match key {
        Some(key) => c.message_invalidating(S, &reply, key),
        None => c.message(S, &reply),
    }
}

/// READs with these keys, one after the other.
fn reads(c: &mut Conversation, keys: impl Iterator<Item = u32>) {
    c.smb();
    keys.for_each(|key| c.rdma_read(key));
}

/// Two READs at once with these keys.
fn two_reads(c: &mut Conversation, keys: [u32; 2]) {
    c.smb();
    let headers = keys.map(|key| c.smb2_read(1, 1024, &[descriptor(key, 1024)]));
    for (header, key) in headers.iter().zip(keys) {
        c.write(S, key, 1024);
        c.reply(header, 0, &Conversation::read_body(1024));
    }
}

/// A WRITE of which the server fetches both halves, by two Reads at once or by one after the other.
fn two_fetches(c: &mut Conversation, at_once: bool) {
    c.responder_resources = 1;
    c.smb();
    let header = c.smb2_write(1024, &[descriptor(5, 512), descriptor(6, 512)]);
    if at_once {
        let psns = [5, 6].map(|key| c.read_request(S, key, 512));
        psns.iter().for_each(|psn| c.read_response(C, *psn, 512));
    } else {
        c.read(S, 5, 512);
        c.read(S, 6, 512);
    }
    c.reply(&header, 0, &Conversation::write_body(1024));
}

/// The same over iWARP, whose client answers `ird` Reads at a time.
fn two_fetches_iwarp(c: &mut Conversation, ird: u8) {
    c.tcp_open();
    c.mpa(enhanced(&[0, ird, 0, 2], false));
    c.mpa(enhanced(&[0, 2, 0, ird], true));
    c.smbd_request(request());
    c.smbd_response(response());
    c.smb2_negotiate();
    let header = c.smb2_write(16, &[descriptor(0x52, 8), descriptor(0x53, 8)]);
    for (n, source_stag) in [0x52, 0x53].into_iter().enumerate() {
        let (mut request, sink_offset) = (Vec::new(), n as u64 * 8);
        rdmap::ReadRequest { sink_stag: 0x51, sink_offset, size: 8, source_stag, source_offset: address(source_stag) }
            .emit(&mut request);
        c.fpdu(S, &Conversation::untagged(rdmap::Opcode::READ_REQUEST, true, 1, 1 + n as u32, 0, &request));
    }
    (0..2).for_each(|n| c.fpdu(C, &Conversation::tagged(rdmap::Opcode::READ_RESPONSE, 0x51, n * 8, b"response")));
    c.reply(&header, 0, &Conversation::write_body(16));
}

/// A READ of 1024 bytes that are written in two pieces, to these places in its memory.
fn read_in_pieces(c: &mut Conversation, places: [u64; 2]) {
    c.smb();
    let header = c.smb2_read(1, 1024, &[descriptor(5, 1024)]);
    places.iter().for_each(|place| write_to(c, 5, address(5) + place, 512));
    c.reply(&header, 0, &Conversation::read_body(1024));
}

/// An RDMA Write of the server in one packet.
fn write_to(c: &mut Conversation, key: u32, address: u64, length: u32) {
    let reth = Conversation::reth(key, address, length);
    c.requested(S, Opcode::RC_RDMA_WRITE_ONLY, &reth, &vec![b'w'; length as usize]);
}

/// A READ of 1024 bytes into memory for 4096 that is answered with so many.
fn read_longer(c: &mut Conversation, length: u32) {
    c.smb();
    let header = c.smb2_read(1, 1024, &[descriptor(5, 4096)]);
    c.write(S, 5, length);
    c.reply(&header, 0, &Conversation::read_body(length));
}

/// A WRITE whose data comes so many ns after the reply that confirms it, or before it.
fn confirmed(c: &mut Conversation, early: Option<i64>) {
    c.smb();
    let header = c.smb2_write(1024, &[descriptor(5, 1024)]);
    let psn = c.read_request(S, 5, 1024);
    if early.is_none() {
        c.read_response(C, psn, 1024);
    }
    c.reply(&header, 0, &Conversation::write_body(1024));
    if let Some(early) = early {
        c.wait(early);
        c.read_response(C, psn, 1024);
    }
    c.echo();
}

/// A READ whose reply comes in pieces of 40 bytes, the Send of one of which invalidates its key.
fn invalidated_with_piece(c: &mut Conversation, piece: usize) {
    c.smb();
    let header = c.smb2_read(2, 1024, &[descriptor(5, 1024)]);
    c.write(S, 5, 1024);
    let reply = Conversation::reply_bytes(&header, 0, 1, &Conversation::read_body(1024));
    let mut left = reply.len();
    for (n, part) in reply.chunks(40).enumerate() {
        left -= part.len();
        if n == piece {
            let message = Conversation::framed(carrying(1, part.len(), left), part);
            c.send_invalidate(S, &message, 5);
        } else {
            c.data(S, carrying(1, part.len(), left), part);
        }
    }
    c.echo();
}

/// Two READs at once with one key, each of its own range.
fn one_key_for_two(c: &mut Conversation) {
    c.smb();
    let range = |n: u64| BufferDescriptorV1 { offset: address(5) + n * 8192, ..descriptor(5, 1024) };
    let headers = [0, 1].map(|n| c.smb2_read(1, 1024, &[range(n)]));
    for (header, n) in headers.iter().zip([0, 1]) {
        write_to(c, 5, range(n).offset, 1024);
        c.reply(header, 0, &Conversation::read_body(1024));
    }
}

/// A READ whose descriptors are two ranges of one registration.
fn one_key_twice(c: &mut Conversation) {
    c.smb();
    let ranges = [0, 8192].map(|n| BufferDescriptorV1 { offset: address(5) + n, ..descriptor(5, 512) });
    let header = c.smb2_read(1, 1024, &ranges);
    ranges.iter().for_each(|range| write_to(c, 5, range.offset, 512));
    c.reply(&header, 0, &Conversation::read_body(1024));
}

/// A WRITE of which the server fetches all and writes less.
fn short_write(c: &mut Conversation) {
    c.smb();
    let header = c.smb2_write(1024, &[descriptor(5, 1024)]);
    c.read(S, 5, 1024);
    c.reply(&header, 0, &Conversation::write_body(512));
}

/// A READ into the last bytes of the address space.
fn read_to_the_end(c: &mut Conversation) {
    c.smb();
    let range = BufferDescriptorV1 { offset: u64::MAX - 1023, ..descriptor(5, 1024) };
    let header = c.smb2_read(1, 1024, &[range]);
    write_to(c, 5, range.offset, 1024);
    c.reply(&header, 0, &Conversation::read_body(1024));
}

/// An ECHO whose first fragment has so many bytes.
fn echo_in_pieces(c: &mut Conversation, first: usize) {
    c.smb();
    let header = c.header(Command::ECHO);
    let message = encode::empty(&header);
    c.data(C, carrying(1, first, message.len() - first), &message[..first]);
    c.data(C, carrying(1, message.len() - first, 0), &message[first..]);
    c.reply(&header, 0, &[4, 0, 0, 0]);
}

/// A READ whose descriptor has room for this many bytes.
fn read_into(c: &mut Conversation, room: u32) {
    c.smb();
    let header = c.smb2_read(1, 4096, &[descriptor(5, room)]);
    c.write(S, 5, 4096.min(room));
    c.reply(&header, 0, &Conversation::read_body(4096.min(room)));
}

/// An RDMA transform that encrypts, and one descriptor.
fn transform(fixed: impl Fn(&mut RdmaTransformFixed), crypto: impl Fn(&mut CryptoTransformFixed)) -> Vec<u8> {
    let mut out = Vec::new();
    let mut head = RdmaTransformFixed {
        descriptor_offset: 56,
        descriptor_length: 16,
        channel: 1,
        transform_count: 1,
        reserved1: 0,
        reserved2: 0,
    };
    fixed(&mut head);
    head.emit(&mut out);
    let mut one = CryptoTransformFixed { transform_type: 1, signature_length: 16, nonce_length: 11, reserved: 0 };
    crypto(&mut one);
    one.emit(&mut out);
    out.resize(56, 0xaa);
    descriptor(5, 1024).emit(&mut out);
    out
}

/// A WRITE with this transform.
fn transformed(c: &mut Conversation, transform: &[u8]) {
    c.smb();
    let header = c.smb2_write_transform(transform);
    c.read(S, 5, 1024);
    c.reply(&header, 0, &Conversation::write_body(1024));
}

fn transform_well(c: &mut Conversation) {
    transformed(c, &transform(|_| (), |_| ()));
}

/// A server asks for an oplock, and the client gives it back after some time, in ns.
fn oplock_kept(c: &mut Conversation, after: i64) {
    create(c, 57, 120);
    let header = c.header(Command::OPLOCK_BREAK);
    let notice = Header { message_id: u64::MAX, flags: flags::RESPONSE, credits: 0, ..header };
    let of = |header: Header| {
        let mut bytes = Vec::new();
        header.emit(&mut bytes);
        [&bytes[..], &[24, 0, 1, 0, 0, 0, 0, 0], &[0; 16]].concat()
    };
    c.message(S, &of(notice));
    c.wait(after);
    c.message(C, &of(header));
    c.reply(&header, 0, &of(header)[64..]);
}

/// A client that closes the connection some ns behind a last request, to which no reply came.
fn leaves(c: &mut Conversation, last: Command, after: i64) {
    c.smb();
    let header = c.header(last);
    c.message(C, &encode::empty(&header));
    c.wait(after);
    c.cm_disconnect(C);
}

/// The same, which the client closes the file for just before the server asks, or logs off behind that.
fn oplock_crossed(c: &mut Conversation, by: Command) {
    create(c, 57, 120);
    let notice = Header { message_id: u64::MAX, flags: flags::RESPONSE, credits: 0, ..c.header(Command::OPLOCK_BREAK) };
    let mut bytes = Vec::new();
    notice.emit(&mut bytes);
    bytes.extend([&[24, 0, 1, 0, 0, 0, 0, 0][..], &[0; 16]].concat());
    let last = c.header(by);
    let mut request = Vec::new();
    last.emit(&mut request);
    request.extend(if by == Command::CLOSE {
        [&[24, 0, 0, 0, 0, 0, 0, 0][..], &[0; 16]].concat()
    } else {
        vec![4, 0, 0, 0]
    });
    let reply = if by == Command::CLOSE { [&[60, 0][..], &[0; 58]].concat() } else { vec![4, 0, 0, 0] };
    let (first, second) = if by == Command::CLOSE { (C, S) } else { (S, C) };
    let of = |end: usize| if end == C { &request } else { &bytes };
    [first, second].into_iter().for_each(|end| c.message(end, of(end)));
    c.reply(&last, 0, &reply);
    c.wait(60 * SECOND);
    c.data(S, empty(1), &[]);
}

/// An ECHO that is answered after `wait`, after some that were at once.
fn slow_echo(c: &mut Conversation, wait: i64) {
    c.smb();
    (0..20).for_each(|_| c.echo());
    let header = c.echo_request();
    c.wait(wait);
    c.reply(&header, 0, &[4, 0, 0, 0]);
}

/// Two ECHOs at once, with this many credits.
fn two_echoes(c: &mut Conversation, credits: u16) {
    c.smb2_credits = credits;
    c.smb();
    let headers = [c.echo_request(), c.echo_request()];
    c.wait(MILLISECOND);
    headers.iter().for_each(|h| c.reply(h, 0, &[4, 0, 0, 0]));
}

/// A request of `command` whose body, from its StructureSize on, is the caller's, with its reply.
fn asked(c: &mut Conversation, command: Command, charge: u16, body: &[u8], answer: &[u8]) {
    c.smb();
    let header = Header { credit_charge: charge, ..c.header(command) };
    let mut message = Vec::new();
    header.emit(&mut message);
    message.extend_from_slice(body);
    c.message(C, &message);
    c.reply(&header, 0, answer);
}

/// A QUERY_INFO for this many bytes.
fn query_info(c: &mut Conversation, charge: u16, room: u32) {
    let mut body = vec![41, 0, 1, 5];
    body.extend(room.to_le_bytes());
    body.resize(40, 0);
    asked(c, Command::QUERY_INFO, charge, &body, &[9, 0, 72, 0, 0, 0, 0, 0]);
}

/// A CREATE with a name of 8 bytes at this offset.
fn create(c: &mut Conversation, structure_size: u8, offset: u16) {
    let mut body = vec![structure_size, 0];
    body.resize(44, 0);
    body.extend(offset.to_le_bytes());
    body.extend([8, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    body.extend(b"n\0a\0m\0e\0");
    let mut answer = vec![89, 0];
    answer.resize(88, 0);
    asked(c, Command::CREATE, 1, &body, &answer);
}

/// An ECHO with these changes to its header, and its reply.
fn echo_with(c: &mut Conversation, change: impl Fn(&mut Header)) {
    c.smb();
    c.echo();
    let mut header = c.header(Command::ECHO);
    change(&mut header);
    c.message(C, &encode::empty(&header));
    c.reply(&Header { flags: 0, ..header }, 0, &[4, 0, 0, 0]);
}

/// A signed ECHO and its reply with these flags and this status.
fn signed_echo(c: &mut Conversation, more: u32, status: u32) {
    c.smb();
    let header = Header { flags: flags::SIGNED, ..c.header(Command::ECHO) };
    c.message(C, &encode::empty(&header));
    let mut reply = Vec::new();
    Header { status_or_channel_sequence: status, flags: flags::RESPONSE | more, credits: 1, ..header }.emit(&mut reply);
    reply.extend(if status == 0 { vec![4, 0, 0, 0] } else { Conversation::error_body() });
    c.message(S, &reply);
}

/// A logon to a server that requires signing (2) or does not, as a guest (1) or not, and a TREE_CONNECT with these
/// flags, answered likewise.
fn tree_connect(c: &mut Conversation, security_mode: u8, session_flags: u8, more: u32) {
    c.security_mode = security_mode;
    c.smb();
    let setup = Header { session_id: 9, ..c.header(Command::SESSION_SETUP) };
    let mut message = Vec::new();
    setup.emit(&mut message);
    message.extend([25, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 88, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4]);
    c.message(C, &message);
    c.reply(&setup, 0, &[9, 0, session_flags, 0, 72, 0, 0, 0]);
    let header = Header { session_id: 9, flags: more, ..c.header(Command::TREE_CONNECT) };
    c.message(C, &encode::tree_connect(&header, r"\\server\share"));
    let mut reply = Vec::new();
    Header { flags: flags::RESPONSE | more, credits: 1, ..header }.emit(&mut reply);
    reply.extend([16, 0, 1, 0]);
    reply.extend([0; 12]);
    c.message(S, &reply);
}

/// A READ over RDMA whose reply announces 1024 written bytes, after one that was right; true if they were written.
fn read_of_nothing(c: &mut Conversation, written: bool) {
    c.smb();
    c.rdma_read(5);
    let header = c.smb2_read(1, 1024, &[descriptor(6, 1024)]);
    if written {
        c.write(S, 6, 1024);
    }
    c.reply(&header, 0, &Conversation::read_body(1024));
}

fn read_answered(c: &mut Conversation, status: u32, body: &[u8]) {
    c.smb();
    let header = c.smb2_read(1, 1024, &[descriptor(5, 1024)]);
    if status == 0 {
        c.write(S, 5, 1024);
    }
    c.reply(&header, status, body);
}

/// The head of a WRITE of NFS 3 of this many bytes, up to its data: 68 bytes.
fn write_call(xid: u32, count: u32) -> Vec<u8> {
    words(&[xid, 0, 2, 100_003, 3, 7, 0, 0, 0, 0, 4, 0x1234_5678, 0, 0, count, 2, count])
}

/// NFS, then a WRITE of this many bytes, its chunks as the caller has them, and its reply. The server reads the data, or
/// refuses to write what is more than one packet.
fn write_with(c: &mut Conversation, count: u32, change: impl Fn(&mut Rpc<'_>)) {
    const JUKEBOX: u32 = 10_008;
    c.nfs();
    let head = write_call(2, count);
    let whole = [&head[..], &vec![0; count as usize]].concat();
    let mut call = Rpc::msg(2, &head);
    change(&mut call);
    if call.reads.is_empty() {
        call.payload = &whole;
    }
    c.send(C, &call.bytes());
    let is_short = count <= 1024;
    for segment in call.reads.iter().filter(|segment| is_short && segment.offset == address(segment.handle)) {
        c.read(S, segment.handle, segment.length);
    }
    let payload = match is_short {
        true => words(&[2, 1, 0, 0, 0, 0, 0, 0, 0, count, 2, 0, 0]),
        false => words(&[2, 1, 0, 0, 0, 0, JUKEBOX, 0, 0]),
    };
    // segments that were offered and not used come back empty
    let empty = |chunk: &Vec<Segment>| chunk.iter().map(|s| Segment { length: 0, ..*s }).collect();
    c.send(S, &Rpc { writes: call.writes.iter().map(empty).collect(), ..Rpc::msg(2, &payload) }.bytes());
}

/// NFS, then an inline WRITE of 4 bytes that asks for FILE_SYNC, and its reply with this stability.
fn write_kept(c: &mut Conversation, committed: u32) {
    c.nfs();
    let call = [write_call(2, 4), vec![0; 4]].concat();
    c.send(C, &Rpc::msg(2, &call).bytes());
    c.send(S, &Rpc::msg(2, &words(&[2, 1, 0, 0, 0, 0, 0, 0, 0, 4, committed, 0, 0])).bytes());
}

/// The same of 64 bytes.
fn call_with(c: &mut Conversation, change: impl Fn(&mut Rpc<'_>)) {
    write_with(c, 64, change);
}

/// NFS, then a READ with a write chunk of two segments, and a reply with 512 bytes in the first one, which is the
/// caller's.
fn write_chunk(c: &mut Conversation, change: impl Fn(&mut Rpc<'_>)) {
    read_chunk(c, 512, 512, change);
}

/// The same, with numbers of bytes written and of bytes that the message counts.
fn read_chunk(c: &mut Conversation, written: u32, count: u32, change: impl Fn(&mut Rpc<'_>)) {
    c.nfs();
    let payload = words(&[2, 0, 2, 100_003, 3, 6, 0, 0, 0, 0, 4, 0x1234_5678, 0, 0, 1024]);
    c.send(C, &Rpc { writes: vec![vec![segment(5, 512), segment(6, 512)]], ..Rpc::msg(2, &payload) }.bytes());
    c.write(S, 5, written);
    let payload = words(&[2, 1, 0, 0, 0, 0, 0, 0, count, 0, count]);
    let mut reply = Rpc { writes: vec![vec![segment(5, 512), segment(6, 0)]], ..Rpc::msg(2, &payload) };
    change(&mut reply);
    c.send(S, &reply.bytes());
}

/// A READ of 512 bytes into a Write chunk of two segments of 256, written in pieces: key, where, and how many bytes.
fn read_written(c: &mut Conversation, pieces: &[(u32, u64, u32)]) {
    c.nfs();
    let chunk = || vec![vec![segment(5, 256), segment(6, 256)]];
    let payload = words(&[2, 0, 2, 100_003, 3, 6, 0, 0, 0, 0, 4, 0x1234_5678, 0, 0, 512]);
    c.send(C, &Rpc { writes: chunk(), ..Rpc::msg(2, &payload) }.bytes());
    written_in_pieces(c, pieces);
    let payload = words(&[2, 1, 0, 0, 0, 0, 0, 0, 512, 0, 512]);
    c.send(S, &Rpc { writes: chunk(), ..Rpc::msg(2, &payload) }.bytes());
}

/// RDMA Writes of a server: key, where, and how many bytes.
fn written_in_pieces(c: &mut Conversation, pieces: &[(u32, u64, u32)]) {
    for &(key, offset, length) in pieces {
        let reth = Conversation::reth(key, address(key) + offset, length);
        c.requested(S, Opcode::RC_RDMA_WRITE_ONLY, &reth, &vec![0; length as usize]);
    }
}

/// A call of NULL whose reply of 24 bytes goes into a Reply chunk, at this place of it.
fn long_reply_at(c: &mut Conversation, offset: u64) {
    c.nfs();
    c.send(C, &Rpc { reply: Some(vec![segment(5, 64)]), ..Rpc::msg(2, &null_call(2)) }.bytes());
    let reth = Conversation::reth(5, address(5) + offset, 24);
    c.requested(S, Opcode::RC_RDMA_WRITE_ONLY, &reth, &null_reply(2));
    c.send(S, &Rpc { reply: Some(vec![segment(5, 24)]), proc: 1, ..Rpc::msg(2, &[]) }.bytes());
}

/// A call of NULL whose reply is the caller's.
fn null_answered(c: &mut Conversation, change: impl Fn(&mut Rpc<'_>)) {
    c.nfs();
    c.send(C, &Rpc { reply: Some(vec![segment(5, 64)]), ..Rpc::msg(2, &null_call(2)) }.bytes());
    let payload = null_reply(2);
    let mut reply = Rpc::msg(2, &payload);
    change(&mut reply);
    c.send(S, &reply.bytes());
}

/// A call of NULL with a reply chunk at this address.
fn null_answered_with(c: &mut Conversation, offset: u64) {
    c.nfs();
    c.send(C, &Rpc { reply: Some(vec![Segment { offset, ..segment(5, 64) }]), ..Rpc::msg(2, &null_call(2)) }.bytes());
    c.send(S, &Rpc::msg(2, &null_reply(2)).bytes());
}

/// READs of NFS, each with a Write chunk of its own, whose keys rise by the same number.
fn nfs_reads(c: &mut Conversation, keys: u32) {
    c.nfs();
    for (xid, key) in (1..=keys).map(|n| (1 + n, n * 0x100)) {
        let payload = words(&[xid, 0, 2, 100_003, 3, 6, 0, 0, 0, 0, 4, 0x1234_5678, 0, 0, 512]);
        c.send(C, &Rpc { writes: vec![vec![segment(key, 512)]], ..Rpc::msg(xid, &payload) }.bytes());
        c.write(S, key, 512);
        let payload = words(&[xid, 1, 0, 0, 0, 0, 0, 0, 512, 0, 512]);
        c.send(S, &Rpc { writes: vec![vec![segment(key, 512)]], ..Rpc::msg(xid, &payload) }.bytes());
    }
}

/// A READ of NFS whose 8 bytes are in the message; true if a Write chunk was offered for them.
fn read_inline(c: &mut Conversation, offered: bool) {
    c.nfs();
    let chunks = |length| if offered { vec![vec![segment(5, length)]] } else { Vec::new() };
    let payload = words(&[2, 0, 2, 100_003, 3, 6, 0, 0, 0, 0, 4, 0x1234_5678, 0, 0, 512]);
    c.send(C, &Rpc { writes: chunks(512), ..Rpc::msg(2, &payload) }.bytes());
    let payload = words(&[2, 1, 0, 0, 0, 0, 0, 0, 8, 0, 8, 1, 2]);
    c.send(S, &Rpc { writes: chunks(0), ..Rpc::msg(2, &payload) }.bytes());
}

/// A READ of NFS that fails: NFS3ERR_IO.
fn read_refused(c: &mut Conversation) {
    c.nfs();
    let payload = words(&[2, 0, 2, 100_003, 3, 6, 0, 0, 0, 0, 4, 0x1234_5678, 0, 0, 512]);
    c.send(C, &Rpc { writes: vec![vec![segment(5, 512)]], ..Rpc::msg(2, &payload) }.bytes());
    let payload = words(&[2, 1, 0, 0, 0, 0, 5, 0]);
    c.send(S, &Rpc { writes: vec![vec![segment(5, 0)]], ..Rpc::msg(2, &payload) }.bytes());
}

/// A WRITE of NFS of 4 bytes in the message, and the words of its reply behind the XID.
fn write_answered(c: &mut Conversation, reply: &[u32]) {
    c.nfs();
    c.send(C, &Rpc::msg(2, &[&write_call(2, 4)[..], &[0; 4]].concat()).bytes());
    c.send(S, &Rpc::msg(2, &words(&[&[2], reply].concat())).bytes());
    c.null(3);
}

/// A READ of NFS that is answered with 8 bytes, of which the message has these words.
fn read_of_nothing_inline(c: &mut Conversation, data: &[u32]) {
    read_inline_with(c, 0, data);
}

/// A READ of NFS to the end of a file, which is marked with this word.
fn read_at_end(c: &mut Conversation, eof: u32) {
    read_inline_with(c, eof, &[1, 2]);
}

fn read_inline_with(c: &mut Conversation, eof: u32, data: &[u32]) {
    c.nfs();
    let payload = words(&[2, 0, 2, 100_003, 3, 6, 0, 0, 0, 0, 4, 0x1234_5678, 0, 0, 512]);
    c.send(C, &Rpc::msg(2, &payload).bytes());
    c.send(S, &Rpc::msg(2, &words(&[&[2, 1, 0, 0, 0, 0, 0, 0, 8, eof, 8], data].concat())).bytes());
    c.null(3);
}

/// MNT of the protocol MOUNT, the path of which is in a Read chunk or in the message.
fn mount(c: &mut Conversation, reduced: bool) {
    c.nfs();
    let mut payload = words(&[2, 0, 2, 100_005, 3, 1, 0, 0, 0, 0, 8]);
    let reads = if reduced { vec![read_segment(payload.len() as u32, 5, 8)] } else { Vec::new() };
    payload.extend(if reduced { &b""[..] } else { b"/export/" });
    c.send(C, &Rpc { reads, ..Rpc::msg(2, &payload) }.bytes());
    if reduced {
        c.read(S, 5, 8);
    }
    c.send(S, &Rpc::msg(2, &words(&[2, 1, 0, 0, 0, 0, 0, 4, 0x1234_5678, 0])).bytes());
}

/// A WRITE of NFS 3 with a credential of RPCSEC_GSS of this service, whose data, or all protected bytes, are in a Read
/// chunk.
fn gss_write(c: &mut Conversation, service: u32) {
    c.nfs();
    let mut payload = words(&[2, 0, 2, 100_003, 3, 7, 6, 24, 1, 0, 1, service, 4, 0x1234, 0, 0]);
    payload.extend(if service > 1 { words(&[64]) } else { words(&[4, 0x1234_5678, 0, 0, 64, 2, 64]) });
    let reads = vec![read_segment(payload.len() as u32, 5, 64)];
    c.send(C, &Rpc { reads, ..Rpc::msg(2, &payload) }.bytes());
    c.read(S, 5, 64);
    c.send(S, &Rpc::msg(2, &words(&[2, 1, 0, 0, 0, 0, 0, 0, 0, 64, 2, 0, 0])).bytes());
}

/// A READ of NFS whose reply invalidates this key.
fn nfs_invalidating(c: &mut Conversation, key: Option<u32>) {
    c.nfs();
    let payload = words(&[2, 0, 2, 100_003, 3, 6, 0, 0, 0, 0, 4, 0x1234_5678, 0, 0, 512]);
    c.send(C, &Rpc { writes: vec![vec![segment(5, 512)]], ..Rpc::msg(2, &payload) }.bytes());
    c.write(S, 5, 512);
    let payload = words(&[2, 1, 0, 0, 0, 0, 0, 0, 512, 0, 512]);
    let reply = Rpc { writes: vec![vec![segment(5, 512)]], ..Rpc::msg(2, &payload) }.bytes();
    match key {
        Some(key) => c.send_invalidate(S, &reply, key),
        None => c.send(S, &reply),
    }
}

/// A call under RPCSEC_GSS with a service, whose reply has 512 bytes in its write chunk.
fn gss(c: &mut Conversation, service: u32) {
    c.nfs();
    let head = [2, 0, 2, 100_003, 3, 6, 6, 24, 1, 0, 1, service, 4, 0x1234, 0, 0];
    let call = words(&[&head[..], &[4, 0x1234_5678, 0, 0, 1024]].concat());
    c.send(C, &Rpc { writes: vec![vec![segment(5, 1024)]], ..Rpc::msg(2, &call) }.bytes());
    c.write(S, 5, 512);
    let reply = words(&[2, 1, 0, 0, 0, 0, 0, 0, 512, 0, 512]);
    c.send(S, &Rpc { writes: vec![vec![segment(5, 512)]], ..Rpc::msg(2, &reply) }.bytes());
}

/// GETATTR, answered with a status.
fn getattr(c: &mut Conversation, status: u32) {
    c.nfs();
    getattr_of(c, 2, status);
}

/// The same with a transaction id, on a connection that is there.
fn getattr_of(c: &mut Conversation, xid: u32, status: u32) {
    c.send(C, &Rpc::msg(xid, &words(&[xid, 0, 2, 100_003, 3, 1, 0, 0, 0, 0, 4, 0x1234_5678])).bytes());
    let mut reply = words(&[xid, 1, 0, 0, 0, 0, status]);
    if status == 0 {
        reply.extend(words(&[1]));
        reply.extend([0; 80]);
    }
    c.send(S, &Rpc::msg(xid, &reply).bytes());
}

/// GETATTR that is put off twice, each time for so long.
fn put_off(c: &mut Conversation, wait: i64) {
    c.nfs();
    for (xid, status) in [(2, v3::Status::JUKEBOX.0), (3, v3::Status::JUKEBOX.0), (4, 0)] {
        getattr_of(c, xid, status);
        c.wait(wait);
    }
}

/// A compound of SEQUENCE, in whose reply these flags of the client's state are set.
fn sequence(c: &mut Conversation, flags: u32) {
    const SEQUENCE: u32 = 53;
    let session = [1, 2, 3, 4];
    c.nfs();
    let call = [&[2, 0, 2, 100_003, 4, 1, 0, 0, 0, 0, 0, 1, 1, SEQUENCE], &session[..], &[1, 0, 0, 0]].concat();
    c.send(C, &Rpc::msg(2, &words(&call)).bytes());
    let reply = [&[2, 1, 0, 0, 0, 0, 0, 0, 1, SEQUENCE, 0], &session[..], &[1, 0, 0, 0, flags]].concat();
    c.send(S, &Rpc::msg(2, &words(&reply)).bytes());
}

/// A reply that is longer than what its receiver takes, which refuses it.
fn inline_refused(c: &mut Conversation) {
    c.nfs();
    c.send(C, &Rpc::msg(2, &null_call(2)).bytes());
    let mut payload = null_reply(2);
    payload.resize(1000, 0);
    c.send(S, &Rpc::msg(2, &payload).bytes());
    c.frames.pop();
    let psn = c.psn[S] - 1;
    c.acknowledge(S, psn, 0x61);
}

fn slow_null(c: &mut Conversation, wait: i64) {
    c.nfs();
    (2..22).for_each(|xid| c.null(xid));
    c.send(C, &Rpc::msg(99, &null_call(99)).bytes());
    c.wait(wait);
    c.send(S, &Rpc::msg(99, &null_reply(99)).bytes());
}

/// A call of the server to the client, and its answer.
fn backward(c: &mut Conversation, change: impl Fn(&mut Rpc<'_>)) {
    c.nfs();
    let payload = callback();
    let mut call = Rpc::msg(7, &payload);
    change(&mut call);
    c.send(S, &call.bytes());
    c.send(C, &Rpc::msg(7, &null_reply(7)).bytes());
}

/// A callback of NFS 4: NULL.
fn callback() -> Vec<u8> {
    words(&[7, 0, 2, 0x4000_0000, 1, 0, 0, 0, 0, 0])
}

/// A callback that asks for credits, and its reply, which grants some.
fn backward_answered(c: &mut Conversation, asked: u32, granted: u32) {
    c.nfs();
    c.send(S, &Rpc { credits: asked, ..Rpc::msg(7, &callback()) }.bytes());
    c.send(C, &Rpc { credits: granted, ..Rpc::msg(7, &null_reply(7)) }.bytes());
}

/// Two ECHOs, the packet of the second's request dealt with by the caller.
fn with_packet(c: &mut Conversation, change: fn(&mut Conversation, Vec<u8>)) {
    c.smb();
    c.echo();
    let (at, psn) = (c.frames.len(), c.psn[C]);
    let header = c.echo_request();
    let packet = c.frames[at].bytes.clone();
    c.frames.truncate(at);
    change(c, packet);
    c.acknowledge(C, psn, 0x1f);
    c.reply(&header, 0, &[4, 0, 0, 0]);
}

/// A packet with another BTH and the invariant CRC of it.
fn with_bth(mut packet: Vec<u8>, change: impl Fn(&mut [u8])) -> Vec<u8> {
    let (ip, bth) = (14, 14 + 20 + 8);
    change(&mut packet[bth..]);
    let end = packet.len() - 4;
    let icrc = invariant(Cover::Ipv4, &packet[ip..end]).expect("the headers are all there");
    packet[end..].copy_from_slice(&icrc.to_le_bytes());
    packet
}

/// A packet of a session that says that it has three bytes of padding, without room for them. Its invariant CRC is not
/// that of its bytes.
fn without_room(c: &mut Conversation) -> Vec<u8> {
    c.smb();
    let mut packet = c.packet(C, 0x04, 0x12, 0, &[], &[1]);
    packet.truncate(14 + 20 + 8 + 12 + 4);
    let length = (packet.len() - 14) as u16;
    packet[16..18].copy_from_slice(&length.to_be_bytes());
    packet[38..40].copy_from_slice(&(length - 20).to_be_bytes());
    packet
}

/// A packet whose invariant CRC is wrong, and the answers of its receiver and sender.
fn damaged_then_good(c: &mut Conversation, packet: Vec<u8>) {
    let mut bad = packet.clone();
    let at = bad.len() - 5;
    bad[at] ^= 1;
    c.frame(bad);
    let psn = c.psn[C] - 1;
    c.acknowledge(C, psn, 0x60);
    c.frame(packet);
}

/// A server whose Write of 1,024 bytes goes out again and again: its client asks for it each time, because the reply
/// behind it arrives. In the end it is acknowledged, if `arrives`.
fn large_write(c: &mut Conversation, arrives: bool) {
    c.smb();
    c.echo();
    let header = c.smb2_read(1, 1024, &[descriptor(5, 1024)]);
    let (at, psn) = (c.frames.len(), c.psn[S]);
    c.requested(S, Opcode::RC_RDMA_WRITE_ONLY, &Conversation::reth(5, address(5), 1024), &[0; 1024]);
    let write = c.frames[at].bytes.clone();
    c.frames.truncate(at + 1);
    let behind = c.frames.len();
    c.reply(&header, 0, &Conversation::read_body(1024));
    let reply = c.frames[behind].bytes.clone();
    c.frames.truncate(behind + 1);
    for _ in 0..6 {
        c.acknowledge(S, psn, 0x60);
        c.wait(500 * MILLISECOND);
        c.frame(write.clone());
        c.frame(reply.clone());
    }
    if arrives {
        c.acknowledge(S, psn + 1, 0x1f);
    } else {
        c.cm_disconnect(C);
    }
}

/// The other end has no receive posted for the last Send of `by`, and asks for patience.
fn not_ready(c: &mut Conversation, by: usize) {
    let psn = c.psn[by] - 1;
    c.acknowledge(by, psn, 0x2e);
    c.wait(MILLISECOND);
}

/// The same of the last Send of `by`, which goes out again.
fn not_ready_for_last(c: &mut Conversation, by: usize) {
    let at = c.frames.len() - 2;
    let packet = c.frames[at].bytes.clone();
    c.frames.pop();
    not_ready(c, by);
    c.frame(packet);
    let psn = c.psn[by] - 1;
    c.acknowledge(by, psn, 0x1f);
}

/// Two Sends in one order or the other.
fn two_packets(c: &mut Conversation, swapped: bool) {
    c.smb();
    let at = c.frames.len();
    let headers = [c.echo_request(), c.echo_request()];
    let mut packets = [c.frames[at].bytes.clone(), c.frames[at + 2].bytes.clone()];
    c.frames.truncate(at);
    if swapped {
        packets.reverse();
    }
    packets.into_iter().for_each(|p| c.frame(p));
    headers.iter().for_each(|h| c.reply(h, 0, &[4, 0, 0, 0]));
}

struct Resent {
    /// The receiver says that it is missing.
    reported: bool,
    /// The receiver says that it came twice.
    twice: bool,
}

/// A segment of the client that goes out again, and the answer of the server.
fn resent(c: &mut Conversation, how: &Resent) {
    c.smb_iwarp();
    let first = c.next_seq(C);
    c.data(C, empty(1), &[]);
    // the server's acknowledgment comes later
    c.frames.pop();
    let segment = c.frames.last().expect("a segment").bytes.clone();
    let second = c.next_seq(C);
    c.data(C, empty(1), &[]);
    c.frames.pop();
    let end = c.next_seq(C);
    if how.reported {
        c.tcp_sack(S, first, &[(second, end)]);
    }
    c.wait(5 * MILLISECOND);
    c.frame(segment);
    if how.twice {
        c.tcp_sack(S, end, &[(first, second)]);
    } else {
        c.tcp_ack(S, 0xffff);
    }
    c.data(C, empty(1), &[]);
}

/// Two segments of the client in one order or the other.
fn tcp_swapped(c: &mut Conversation, swapped: bool) {
    c.smb_iwarp();
    c.data(C, empty(1), &[]);
    c.frames.pop();
    c.data(C, empty(1), &[]);
    let last = c.frames.len() - 2;
    if swapped {
        let (a, b) = (c.frames[last - 1].bytes.clone(), c.frames[last].bytes.clone());
        (c.frames[last - 1].bytes, c.frames[last].bytes) = (b, a);
    }
    c.data(C, empty(1), &[]);
}

/// A segment of the client with a byte changed on the way, which goes out again.
fn tcp_damaged(c: &mut Conversation, damaged: bool) {
    c.smb_iwarp();
    c.data(C, empty(1), &[]);
    c.data(C, empty(1), &[]);
    let ack = c.frames.pop().expect("an acknowledgment");
    let segment = c.frames.last().expect("a segment").bytes.clone();
    if damaged {
        let at = segment.len() - 10;
        c.frames.last_mut().expect("a segment").bytes[at] ^= 4;
        c.wait(5 * MILLISECOND);
        c.frame(segment);
    }
    c.frame(ack.bytes);
    c.data(C, empty(1), &[]);
}

/// The server's second message leaves when the client has acknowledged its first, so long after it.
fn waits_for_acknowledgment(c: &mut Conversation, delay: i64) {
    c.smb_iwarp();
    c.data(C, empty(10), &[]);
    for _ in 0..4 {
        c.data(S, empty(1), &[]);
        let ack = c.frames.pop().expect("an acknowledgment").bytes;
        c.wait(delay);
        c.frame(ack);
        c.data(S, empty(1), &[]);
        c.data(C, empty(4), &[]);
    }
}

/// Messages of the server with timestamps in ms; one of them passes this many ms later than it was made.
fn held_up(c: &mut Conversation, by: i64) {
    c.smb_iwarp();
    c.data(C, empty(10), &[]);
    for n in 0..20_u32 {
        c.wait(50 * MILLISECOND);
        let made = (c.now / MILLISECOND) as u32;
        if n == 15 {
            c.wait(by * MILLISECOND);
        }
        c.timestamps = Some((made, 7));
        c.data(S, empty(10), &[]);
        // the client acknowledges it by its own clock
        c.frames.pop();
        c.timestamps = Some(((c.now / MILLISECOND) as u32, 7));
        c.tcp_ack(C, 0xffff);
        c.timestamps = None;
        c.data(C, empty(10), &[]);
    }
}

/// iWARP, then pieces of a message of the client.
fn iwarp_pieces(c: &mut Conversation, pieces: &[(bool, u32, u32, usize)]) {
    c.smb_iwarp();
    for (last, msn, offset, length) in pieces {
        let mut payload = vec![0; *length];
        if *offset == 0 {
            payload = Vec::new();
            empty(1).emit(&mut payload);
            payload.resize(*length, 0);
        }
        c.fpdu(C, &Conversation::untagged(rdmap::Opcode::SEND, *last, 0, *msn, *offset, &payload));
    }
}

/// MPA Request and Reply that are the caller's, then a negotiation.
fn mpa(c: &mut Conversation, request_: Startup<'_>, reply: Startup<'_>) {
    c.tcp_open();
    c.mpa(request_);
    c.mpa(reply);
    if !reply.reject {
        c.smbd_request(request());
        c.smbd_response(response());
    }
}

/// Five messages over iWARP, the bytes of the first FPDU changed.
fn changed_fpdu(c: &mut Conversation, change: fn(&mut Vec<u8>)) {
    c.smb_iwarp();
    for n in 0..5 {
        let mut payload = Vec::new();
        empty(1).emit(&mut payload);
        payload.resize(60, 0);
        let mut out = Vec::new();
        emit_fpdu(&Conversation::untagged(rdmap::Opcode::SEND, true, 0, 2 + n, 0, &payload), true, &mut out);
        if n == 0 {
            change(&mut out);
        }
        c.bytes(C, &out);
    }
}

/// A WRITE over iWARP that the server fetches; true if it asks for as much as it is sent.
fn iwarp_read(c: &mut Conversation, asked: bool) {
    iwarp_read_of(c, if asked { 8 } else { 0 }, 0);
}

/// The same, of so many bytes, the response standing so far behind its place.
fn iwarp_read_of(c: &mut Conversation, size: u32, displaced: u64) {
    c.smb_iwarp();
    c.smb2_negotiate();
    let header = c.smb2_write(8, &[descriptor(0x52, size.max(8))]);
    if size > 0 {
        let mut request = Vec::new();
        let (sink_stag, source_stag) = (0x51, 0x52);
        rdmap::ReadRequest { sink_stag, sink_offset: 0, size, source_stag, source_offset: address(source_stag) }
            .emit(&mut request);
        c.fpdu(S, &Conversation::untagged(rdmap::Opcode::READ_REQUEST, true, 1, 1, 0, &request));
    }
    c.fpdu(C, &Conversation::tagged(rdmap::Opcode::READ_RESPONSE, 0x51, displaced, b"response"));
    c.reply(&header, 0, &Conversation::write_body(8));
}

/// A Send of the server of 1200 bytes with markers; true if one of them is wrong.
fn markers(c: &mut Conversation, wrong: bool) {
    c.tcp_open();
    c.mpa(Startup { markers: true, ..Conversation::startup(false) });
    c.mpa(Conversation::startup(true));
    c.smbd_request(request());
    let mut payload = Vec::new();
    response().emit(&mut payload);
    payload.resize(1200, 0);
    let mut out = Vec::new();
    emit_fpdu_with_markers(&Conversation::untagged(rdmap::Opcode::SEND, true, 0, 1, 0, &payload), true, 0, &mut out);
    if wrong {
        out[512 + 3] ^= 0x10;
        let end = out.len() - 4;
        let crc = mpa::crc(&out[..end]);
        out[end..].copy_from_slice(&crc.to_le_bytes());
    }
    c.bytes(S, &out);
}

/// Priority flow control for priority 3.
fn pause(c: &mut Conversation, quanta: u16) {
    c.smb();
    pause_only(c, 3, quanta);
}

fn pause_only(c: &mut Conversation, priority: u16, quanta: u16) {
    let mut frame = vec![1, 0x80, 0xc2, 0, 0, 1, 2, 0, 0, 0, 0, 1, 0x88, 0x08, 1, 1, 0, 1 << priority];
    (0..8).for_each(|n| frame.extend((if n == priority { quanta } else { 0 }).to_be_bytes()));
    frame.resize(60, 0);
    c.frame(frame);
}

/// Forty requests and their replies.
fn busy(c: &mut Conversation) {
    c.smb();
    (0..40).for_each(|_| c.echo());
}

/// Changes a byte of the IPv4 header of all packets that `by` has sent so far: 1 the type of service, 8 the TTL. No
/// invariant CRC covers these two.
fn change_ip(c: &mut Conversation, by: usize, byte: usize, change: impl Fn(usize, u8) -> u8) {
    let of_sender = c.frames.iter_mut().filter(|f| f.bytes[12..14] == [8, 0] && f.bytes[11] == 1 + by as u8);
    for (n, frame) in of_sender.enumerate() {
        frame.bytes[14 + byte] = change(n, frame.bytes[14 + byte]);
    }
}

/// These ends in DSCP 26, class 3.
fn dscp26(c: &mut Conversation, ends: &[usize]) {
    ends.iter().for_each(|by| change_ip(c, *by, 1, |_, tos| tos & 3 | 26 << 2));
}

/// CNPs in DSCP 48.
fn cnp48(c: &mut Conversation) {
    for frame in c.frames.iter_mut().filter(|f| f.bytes[12..14] == [8, 0] && f.bytes[42] == 0x81) {
        frame.bytes[15] = 48 << 2;
    }
}

/// A congestion notification of `by`.
fn cnp(c: &mut Conversation, by: usize) {
    c.roce(by, 0x81, 0, &[0; 16], &[]);
}

/// Requests that meet congestion, CNPs of these ends, and a while later one more.
fn congested(c: &mut Conversation, answering: &[usize]) {
    if c.frames.is_empty() {
        busy(c);
    }
    c.marked = true;
    (0..8).for_each(|_| c.echo());
    c.marked = false;
    answering.iter().for_each(|by| cnp(c, *by));
    c.wait(20 * MILLISECOND);
    c.echo();
}

/// Congestion that only the server's packets meet; the client's are not ECN-capable.
fn not_capable(c: &mut Conversation) {
    congested(c, &[C]);
    change_ip(c, C, 1, |_, tos| tos & !3);
}

/// Congestion, and as many CNPs of the server, so far apart.
fn many_cnps(c: &mut Conversation, apart: i64) {
    congested(c, &[C, S]);
    for _ in 0..40 {
        // a frame comes 10 microseconds after the one before
        c.wait(apart - 10_000);
        cnp(c, S);
    }
}

/// A request each millisecond, all of them marked, then a CNP to the client each millisecond, while it sends `many` in
/// `of` of them.
fn congestion_notified(c: &mut Conversation, many: usize, of: usize) {
    c.smb();
    (0..30).for_each(|_| {
        c.wait(MILLISECOND);
        c.echo();
    });
    for n in 0..40 {
        c.wait(MILLISECOND);
        cnp(c, S);
        if n % of == 0 {
            (0..many).for_each(|_| c.echo());
        }
    }
    change_ip(c, C, 1, |n, tos| if n > 40 { tos | 3 } else { tos });
}

/// Forty pauses of the longest kind, so far apart.
fn pauses(c: &mut Conversation, apart: i64) {
    for _ in 0..40 {
        pause_only(c, 3, 0xffff);
        c.wait(apart);
    }
}

/// iWARP with ECN that meets congestion; true if the receivers echo that.
fn iwarp_congested(c: &mut Conversation, echoed: bool) {
    c.ecn = true;
    c.smb_iwarp();
    congested(c, &[]);
    if echoed {
        for by in [C, S] {
            let seq = c.seq[by];
            c.segment(by, seq, 0x50, 0xffff, &[]);
        }
    }
}

/// Four connections between two hosts, the last one with this UDP source port.
fn four(c: &mut Conversation, port: u16) {
    busy(c);
    (1..4).for_each(|_| {
        c.beside(|other| {
            other.port = if other.number == 3 { port } else { other.port };
            busy(other);
        })
    });
}

/// WRITEs whose messages take several packets of 1024 bytes, on two connections, the second one with this path MTU.
fn path_mtus(c: &mut Conversation, second: usize) {
    let writes = |c: &mut Conversation| {
        busy(c);
        (0..4).for_each(|_| c.smb2_write_inline(3000, 4000));
    };
    writes(c);
    c.beside(|other| {
        other.mtu = second;
        writes(other);
    });
}

/// Two connections of iWARP with these segment sizes, which the second one fills.
fn segment_sizes(c: &mut Conversation, sizes: [u16; 2]) {
    c.mss = Some(sizes[0]);
    iwarp_busy(c);
    c.beside(|other| {
        other.mss = Some(sizes[1]);
        iwarp_busy(other);
        other.smb2_write_inline(usize::from(sizes[1]) - 200, 8000);
    });
}

/// An SMB session over iWARP, with forty requests and their replies.
fn iwarp_busy(c: &mut Conversation) {
    c.smb_iwarp();
    c.smb2_negotiate();
    (0..40).for_each(|_| c.echo());
}

/// More than a mebibyte to the server; whose SYNs scale the window.
fn much(c: &mut Conversation, scales: [Option<u8>; 2]) {
    c.scales = scales;
    iwarp_busy(c);
    (0..140).for_each(|_| c.smb2_write_inline(7900, 8100));
}

/// A datagram of this many bytes for a queue pair that does not exist.
fn datagram(c: &mut Conversation, length: usize) {
    let packet = c.packet(C, UD_SEND, 0x99, 1, &[0, 0, 0, 1, 0, 0, 0, 1], &vec![0; length]);
    c.frame(packet);
}

/// With the read depths of RFC 6581 (IRD, ORD) in its private data.
fn enhanced(private_data: &[u8], reply: bool) -> Startup<'_> {
    Startup { private_data, reserved: 0x10, revision: 2, ..Conversation::startup(reply) }
}

#[rustfmt::skip]
const CASES: &[(Rule, Make, Make)] = &[
    // ── SMB Direct negotiation ──────────────────────────────────────────────────────────────────────────────────────
    (Rule::SmbdNegFirst, |c| { c.connect(445); c.data(C, carrying(1, 64, 0), &smb2()); }, |c| first_data(c, empty(1), &[])),
    (Rule::SmbdNegReqLength, |c| { c.connect(445); c.send(C, &[0, 1, 0, 1, 0, 0, 255, 0]); }, |c| negotiate(c, request())),
    (Rule::SmbdNegReqVersion, |c| negotiate(c, NegotiateRequest { min_version: 0x0200, max_version: 0x0200, ..request() }), |c| negotiate(c, request())),
    (Rule::SmbdNegReqCredits, |c| negotiate(c, NegotiateRequest { credits_requested: 0, ..request() }), |c| negotiate(c, NegotiateRequest { credits_requested: 20, ..request() })),
    (Rule::SmbdNegReqRecvsize, |c| negotiate(c, NegotiateRequest { max_receive_size: 127, ..request() }), |c| c.negotiate(NegotiateRequest { max_receive_size: 128, ..request() }, NegotiateResponse { preferred_send_size: 128, ..response() })),
    (Rule::SmbdNegReqFragsize, |c| negotiate(c, NegotiateRequest { max_fragmented_size: 131_071, ..request() }), |c| negotiate(c, request())),
    (Rule::SmbdNegReqPreferred, |c| negotiate(c, NegotiateRequest { preferred_send_size: 8137, ..request() }), |c| negotiate(c, request())),
    (Rule::SmbdNegRspLength, |c| { c.connect(445); c.smbd_request(request()); c.send(S, &[0, 1, 0, 1, 0, 1, 0, 0, 255, 0, 255, 0]); }, |c| answer(c, response())),
    (Rule::SmbdNegRspVersion, |c| answer(c, NegotiateResponse { negotiated_version: 0x0200, ..response() }), |c| answer(c, response())),
    (Rule::SmbdNegRspRecvsize, |c| answer(c, NegotiateResponse { max_receive_size: 127, ..response() }), |c| answer(c, NegotiateResponse { max_receive_size: 1024, ..response() })),
    (Rule::SmbdNegRspFragsize, |c| answer(c, NegotiateResponse { max_fragmented_size: 130_560, ..response() }), |c| answer(c, response())),
    (Rule::SmbdNegRspGranted, |c| answer(c, NegotiateResponse { credits_granted: 0, ..response() }), |c| answer(c, NegotiateResponse { credits_granted: 1, ..response() })),
    (Rule::SmbdNegRspRequested, |c| answer(c, NegotiateResponse { credits_requested: 0, ..response() }), |c| answer(c, NegotiateResponse { credits_requested: 20, ..response() })),
    (Rule::SmbdNegRspPreferred, |c| answer(c, NegotiateResponse { preferred_send_size: 8137, ..response() }), |c| answer(c, response())),
    (Rule::SmbdNegRspStatus, |c| answer(c, NegotiateResponse { status: 0xc000_00bb, ..response() }), |c| answer(c, response())),
    (Rule::SmbdNegRspFailureFields, |c| answer(c, NegotiateResponse { status: 0xc000_00bb, ..response() }), |c| answer(c, response())),
    (Rule::SmbdNegRange, |c| answer(c, NegotiateResponse { max_version: 0x0200, ..response() }), |c| answer(c, response())),
    (Rule::SmbdNegAccepted, |c| c.negotiate(NegotiateRequest { max_receive_size: 127, ..request() }, NegotiateResponse { preferred_send_size: 127, ..response() }), |c| answer(c, response())),
    (Rule::SmbdNegTimeout, |c| { c.connect(445); c.smbd_request(request()); c.wait(121 * SECOND); c.smbd_response(response()); }, |c| { c.connect(445); c.smbd_request(request()); c.wait(SECOND); c.smbd_response(response()); }),
    (Rule::SmbdNegReach, |c| reach(c, 131_080), |c| reach(c, 131_072)),
    (Rule::SmbdReserved, |c| first_data(c, DataTransfer { reserved: 1, ..empty(1) }, &[]), |c| first_data(c, empty(1), &[])),
    // ── SMB Direct data transfer ────────────────────────────────────────────────────────────────────────────────────
    (Rule::SmbdDataLength, |c| first_data(c, DataTransfer { data_length: 65, ..carrying(1, 64, 0) }, &[0; 64]), |c| first_data(c, carrying(1, 64, 0), &[0; 64])),
    (Rule::SmbdDataAlign, |c| first_data(c, DataTransfer { data_offset: 28, ..carrying(1, 60, 0) }, &[0; 64]), |c| first_data(c, carrying(1, 60, 0), &[0; 64])),
    (Rule::SmbdDataTooBig, |c| first_data(c, carrying(1, 8113, 0), &[0; 8113]), |c| first_data(c, carrying(1, 8112, 0), &[0; 8112])),
    (Rule::SmbdDataCreditsRequested, |c| first_data(c, DataTransfer { credits_requested: 0, ..empty(1) }, &[]), |c| first_data(c, empty(1), &[])),
    (Rule::SmbdFragTooBig, |c| first_data(c, carrying(1, 64, 131_072 - 63), &[0; 64]), |c| first_data(c, carrying(1, 64, 131_072 - 64), &[0; 64])),
    (Rule::SmbdFragRemaining, |c| second_fragment(c, 1000, 999), |c| second_fragment(c, 1000, 1000)),
    (Rule::SmbdFlags, |c| first_data(c, DataTransfer { flags: 0x0100, ..empty(1) }, &[]), |c| first_data(c, DataTransfer { flags: 0x0001, ..empty(1) }, &[])),
    (Rule::SmbdKeepalive, |c| keepalive(c, 6 * SECOND), |c| keepalive(c, MILLISECOND)),
    (Rule::SmbdFragCost, |c| { c.smb(); c.smb2_write_inline(3000, 1000); }, |c| { c.smb(); c.smb2_write_inline(3000, 8000); }),
    // ── SMB Direct credits ──────────────────────────────────────────────────────────────────────────────────────────
    (Rule::SmbdCreditOverrun, |c| three_of_two(c, false), |c| three_of_two(c, true)),
    (Rule::SmbdCreditLast, |c| last_credit(c, 0), |c| last_credit(c, 1)),
    (Rule::SmbdCreditStall, |c| credit_wait(c, MILLISECOND), |c| credit_wait(c, 0)),
    (Rule::SmbdCreditStarved, |c| many(c, 10), |c| many(c, 255)),
    (Rule::SmbdCreditExhausted, |c| exhausted(c, 0), |c| exhausted(c, 5)),
    (Rule::SmbdCreditOverflow, |c| { first_data(c, empty(10), &[]); c.data(S, empty(65_535), &[]); }, |c| { first_data(c, empty(10), &[]); c.data(S, empty(255), &[]); }),
    (Rule::SmbdCreditDeadlock, |c| both_dry(c, 0), |c| both_dry(c, 1)),
    // ── RDMA memory ─────────────────────────────────────────────────────────────────────────────────────────────────
    (Rule::RdmaKeyUnknown, |c| read_with(c, |c| { c.write(S, 6, 4096); c.write(S, 5, 4096); }), |c| read_with(c, |c| c.write(S, 5, 4096))),
    (Rule::RdmaKeyBounds, |c| read_with(c, |c| c.write(S, 5, 4100)), |c| read_with(c, |c| c.write(S, 5, 4096))),
    (Rule::RdmaKeyStale, |c| { invalidating(c, 0, Some(5)); c.write(S, 5, 1024); }, |c| invalidating(c, 0, Some(5))),
    (Rule::RdmaKeyDirection, |c| read_with(c, |c| { c.read(S, 5, 1024); c.write(S, 5, 4096); }), |c| read_with(c, |c| c.write(S, 5, 4096))),
    (Rule::RdmaLength, |c| read_with(c, |c| c.write(S, 5, 2048)), |c| read_with(c, |c| c.write(S, 5, 4096))),
    (Rule::RdmaOrder, |c| { reads(c, [5].into_iter()); c.write(S, 5, 1024); }, |c| reads(c, [5].into_iter())),
    (Rule::RdmaKeyLeak, |c| { c.smb(); c.smb2_read(1, 1024, &[descriptor(5, 1024)]); c.wait(2 * SECOND); c.echo(); }, |c| { c.smb(); c.rdma_read(5); c.wait(2 * SECOND); c.echo(); }),
    (Rule::RdmaKeyReuse, |c| two_reads(c, [5, 5]), |c| two_reads(c, [5, 6])),
    (Rule::RdmaKeyPredictable, |c| reads(c, (1..21).map(|n| n * 0x100)), |c| reads(c, (1..21u32).map(|n| n.wrapping_mul(n).wrapping_mul(0x0123_4567) >> 4))),
    (Rule::RdmaInvalidate, |c| invalidating(c, 0, None), |c| invalidating(c, 0, Some(5))),
    (Rule::RdmaReadSlow, |c| fetched_after(c, SECOND), |c| fetched_after(c, MILLISECOND)),
    (Rule::RdmaReadDepth, |c| two_fetches(c, true), |c| two_fetches(c, false)),
    // ── SMB2 ────────────────────────────────────────────────────────────────────────────────────────────────────────
    (Rule::Smb2Channel, |c| read_into(c, 4095), |c| read_into(c, 4096)),
    (Rule::Smb2TransformDialect, |c| { c.dialect = 0x0302; transform_well(c); }, transform_well),
    (Rule::Smb2TransformCount, |c| transformed(c, &transform(|t| t.transform_count = 0, |_| ())), transform_well),
    (Rule::Smb2TransformReserved, |c| transformed(c, &transform(|t| t.reserved1 = 1, |_| ())), transform_well),
    (Rule::Smb2TransformBounds, |c| transformed(c, &transform(|t| t.descriptor_offset = 64, |_| ())), transform_well),
    (Rule::Smb2TransformLengths, |c| transformed(c, &transform(|_| (), |k| k.nonce_length = 10)), transform_well),
    (Rule::Smb2MaxSize, |c| { c.smb(); c.smb2_read(0, (1 << 20) + 1, &[]); }, |c| { c.smb(); c.smb2_read(0, 1 << 20, &[]); }),
    (Rule::Smb2Credit, |c| two_echoes(c, 1), |c| two_echoes(c, 2)),
    (Rule::Smb2MessageId, |c| echo_with(c, |h| h.message_id = 1), |c| echo_with(c, |_| ())),
    (Rule::Smb2Reply, |c| { c.smb(); let h = c.echo_request(); (0..2).for_each(|_| c.reply(&h, 0, &[4, 0, 0, 0])); }, |c| { c.smb(); c.echo(); }),
    (Rule::Smb2Unsigned, |c| signed_echo(c, 0, 0), |c| signed_echo(c, flags::SIGNED, 0)),
    (Rule::Smb2TransformType, |c| transformed(c, &transform(|_| (), |k| k.transform_type = 7)), transform_well),
    (Rule::Smb2Unanswered, |c| { c.smb(); c.echo_request(); c.wait(2 * SECOND); c.data(S, empty(1), &[]); }, |c| { c.smb(); c.echo(); c.wait(2 * SECOND); c.data(S, empty(1), &[]); }),
    (Rule::Smb2Session, |c| logon(c, 0xc000_006d), |c| logon(c, 0)),
    (Rule::Smb2Slow, |c| slow_echo(c, SECOND), |c| slow_echo(c, 0)),
    (Rule::Smb2BreakKept, |c| oplock_kept(c, SECOND), |c| oplock_kept(c, SECOND / 2)),
    (Rule::Smb2Dialect, |c| { c.dialect = 0x0299; c.smb(); }, |c| c.smb()),
    (Rule::Smb2SessionId, |c| echo_in_session(c, 8), |c| echo_in_session(c, 7)),
    (Rule::Smb2IoError, |c| read_answered(c, 0xc000_0185, &Conversation::error_body()), |c| read_answered(c, 0xc000_0011, &Conversation::error_body())),
    (Rule::Smb2Error, |c| read_answered(c, 0xc000_0011, &Conversation::error_body()), |c| read_answered(c, 0, &Conversation::read_body(1024))),
    (Rule::Smb2ErrorBody, |c| read_answered(c, 0xc000_0011, &Conversation::read_body(1024)), |c| read_answered(c, 0xc000_0011, &Conversation::error_body())),
    (Rule::Smb2Malformed, |c| { c.smb(); let h = c.header(Command::ECHO); c.message(C, &encode::empty(&h)[..40]); }, |c| { c.smb(); c.echo(); }),
    // ── RPC-over-RDMA ───────────────────────────────────────────────────────────────────────────────────────────────
    (Rule::RpcrdmaVersion, |c| call_with(c, |r| r.version = 2), |c| call_with(c, |_| ())),
    (Rule::RpcrdmaProc, |c| call_with(c, |r| r.proc = 2), |c| call_with(c, |_| ())),
    (Rule::RpcrdmaMalformed, |c| { c.nfs(); c.send(C, &words(&[2, 1, 32, 0, 1, 0])); }, |c| { c.nfs(); c.null(2); }),
    (Rule::RpcrdmaError, |c| { c.nfs(); c.send(C, &Rpc::msg(2, &null_call(2)).bytes()); c.send(S, &words(&[2, 1, 32, 4, 2])); }, |c| { c.nfs(); c.null(2); }),
    (Rule::RpcrdmaCreditZero, |c| { c.nfs(); c.send(C, &Rpc::msg(2, &null_call(2)).bytes()); c.send(S, &Rpc { credits: 0, ..Rpc::msg(2, &null_reply(2)) }.bytes()); }, |c| { c.nfs(); c.null(2); }),
    (Rule::RpcrdmaCreditOverrun, |c| { c.nfs(); (2..35).for_each(|x| c.send(C, &Rpc::msg(x, &null_call(x)).bytes())); }, |c| { c.nfs(); (2..34).for_each(|x| c.send(C, &Rpc::msg(x, &null_call(x)).bytes())); }),
    (Rule::RpcrdmaCreditFirst, |c| { c.connect(20049); (1..3).for_each(|x| c.send(C, &Rpc::msg(x, &null_call(x)).bytes())); }, |c| { c.connect(20049); (1..3).for_each(|x| c.null(x)); }),
    (Rule::RpcrdmaXid, |c| { c.nfs(); [4, 3].iter().for_each(|version| c.send(C, &Rpc::msg(2, &words(&[2, 0, 2, 100_003, *version, 0, 0, 0, 0, 0])).bytes())); }, |c| { c.nfs(); (0..2).for_each(|_| c.null(2)); }),
    (Rule::RpcMalformed, |c| read_of_nothing_inline(c, &[]), |c| read_of_nothing_inline(c, &[1, 2])),
    (Rule::RpcRetransmit, |c| { c.nfs(); (0..2).for_each(|_| c.send(C, &Rpc::msg(2, &null_call(2)).bytes())); c.send(S, &Rpc::msg(2, &null_reply(2)).bytes()); }, |c| { c.nfs(); (0..2).for_each(|_| c.null(2)); }),
    (Rule::RpcrdmaNomsg, |c| { c.nfs(); c.send(C, &Rpc { proc: 1, ..Rpc::msg(2, &[]) }.bytes()); }, |c| { c.nfs(); c.send(C, &Rpc { proc: 1, reads: vec![read_segment(0, 5, 40)], ..Rpc::msg(2, &[]) }.bytes()); }),
    (Rule::RpcrdmaPosition, |c| call_with(c, |r| r.reads = vec![read_segment(66, 5, 64)]), |c| call_with(c, |r| r.reads = vec![read_segment(68, 5, 64)])),
    (Rule::RpcrdmaWriteShape, |c| write_chunk(c, |r| r.writes = vec![vec![segment(5, 512)]]), |c| write_chunk(c, |_| ())),
    (Rule::RpcrdmaChunkLength, |c| write_chunk(c, |r| r.writes = vec![vec![segment(5, 512), segment(6, 4)]]), |c| write_chunk(c, |_| ())),
    (Rule::RpcrdmaInline, |c| { c.nfs(); let mut p = null_call(2); p.resize(1000, 0); c.send(C, &Rpc::msg(2, &p).bytes()); }, |c| { c.nfs(); let mut p = null_call(2); p.resize(996, 0); c.send(C, &Rpc::msg(2, &p).bytes()); }),
    (Rule::RpcrdmaBackward, |c| backward(c, |r| r.writes = vec![vec![segment(5, 64)]]), |c| backward(c, |r| r.reply = Some(vec![segment(5, 64)]))),
    (Rule::RpcrdmaDdp, |c| gss(c, 2), |c| gss(c, 1)),
    (Rule::RpcUnanswered, |c| { c.nfs(); c.send(C, &Rpc::msg(2, &null_call(2)).bytes()); c.wait(2 * SECOND); c.null(3); }, |c| { c.nfs(); c.null(2); c.wait(2 * SECOND); c.null(3); }),
    (Rule::RpcSlow, |c| slow_null(c, SECOND), |c| slow_null(c, 0)),
    (Rule::RpcDelayed, |c| put_off(c, SECOND), |c| put_off(c, SECOND / 10)),
    (Rule::NfsStable, |c| write_kept(c, 0), |c| write_kept(c, 2)),
    (Rule::NfsStateFlags, |c| sequence(c, 1), |c| sequence(c, 0x800)),
    (Rule::RpcIoError, |c| getattr(c, 5), |c| getattr(c, 70)),
    (Rule::RpcError, |c| getattr(c, 70), |c| getattr(c, 0)),
    // ── Connections ─────────────────────────────────────────────────────────────────────────────────────────────────
    (Rule::CmReject, |c| { c.cm_request(445); c.cm_reject(); }, |c| c.connect(445)),
    (Rule::CmTimeout, |c| { c.cm_request(445); c.wait(25 * SECOND); datagram(c, 64); }, |c| { c.smb(); c.wait(25 * SECOND); datagram(c, 64); }),
    (Rule::CmDisconnect, |c| { c.smb(); c.echo_request(); c.cm_disconnect(C); }, |c| { c.smb(); c.echo(); c.cm_disconnect(C); }),
    (Rule::AllFailed, |c| read_answered(c, 0xc000_0022, &Conversation::error_body()), |c| read_answered(c, 0xc000_0011, &Conversation::error_body())),
    (Rule::MpaStartup, silent, |c| mpa(c, Conversation::startup(false), Conversation::startup(true))),
    (Rule::TcpRefused, refused, |c| c.tcp_open()),
    (Rule::MpaReject, |c| mpa(c, Conversation::startup(false), Startup { reject: true, ..Conversation::startup(true) }), |c| mpa(c, Conversation::startup(false), Conversation::startup(true))),
    (Rule::MpaIrdord, |c| mpa(c, enhanced(&[0, 1, 0, 1], false), enhanced(&[0, 1, 0, 16], true)), |c| mpa(c, enhanced(&[0, 1, 0, 1], false), enhanced(&[0, 1, 0, 1], true))),
    (Rule::MpaRevision, |c| mpa(c, Conversation::startup(false), Startup { revision: 2, ..Conversation::startup(true) }), |c| mpa(c, Conversation::startup(false), Conversation::startup(true))),
    (Rule::RdmapTerminate, |c| {
        c.smb_iwarp();
        let mut out = Vec::new();
        Terminate { layer: 0, error_type: 1, code: 0, segment_length: None, ddp: None, read_request: None }.emit(&mut out);
        c.fpdu(S, &Conversation::untagged(rdmap::Opcode::TERMINATE, true, 2, 1, 0, &out));
    }, |c| c.smb_iwarp()),
    (Rule::TcpReset, |c| { c.smb_iwarp(); c.tcp_reset(S); }, |c| c.smb_iwarp()),
    // ── Transport ───────────────────────────────────────────────────────────────────────────────────────────────────
    (Rule::RcRetransmit, |c| with_packet(c, |c, p| { c.frame(p.clone()); c.wait(MILLISECOND); c.frame(p); }), |c| with_packet(c, |c, p| c.frame(p))),
    (Rule::RcGap, |c| { c.smb(); let psn = c.psn[C]; c.echo(); c.roce(C, 4, psn + 3, &[], &[0; 20]); }, |c| { c.smb(); c.echo(); c.echo_request(); }),
    (Rule::RcDuplicate, |c| with_packet(c, |c, p| { c.frame(p); c.again(); }), |c| with_packet(c, |c, p| c.frame(p))),
    (Rule::RcReorder, |c| two_packets(c, true), |c| two_packets(c, false)),
    (Rule::RcSpurious, |c| with_packet(c, |c, p| { let psn = c.psn[C] - 1; c.frame(p.clone()); c.acknowledge(C, psn, 0x1f); c.wait(MILLISECOND); c.frame(p); }), |c| with_packet(c, |c, p| c.frame(p))),
    (Rule::PathMtu, |c| large_write(c, false), |c| large_write(c, true)),
    (Rule::PeerSilent, |c| with_packet(c, |c, p| (0..5).for_each(|_| { c.frame(p.clone()); c.wait(SECOND); })), |c| with_packet(c, |c, p| c.frame(p))),
    (Rule::RcNak, |c| { c.smb(); let psn = c.psn[C]; c.acknowledge(C, psn, 0x61); c.echo(); }, |c| { c.smb(); let psn = c.psn[C]; c.acknowledge(C, psn, 0x60); c.echo(); }),
    (Rule::RcPKey, |c| with_packet(c, |c, p| { let p = with_bth(p, |bth| bth[2] = 0x7e); c.frame(p); }), |c| with_packet(c, |c, p| { let p = with_bth(p, |bth| bth[2] = 0x7f); c.frame(p); })),
    (Rule::RcVersion, |c| with_packet(c, |c, p| { let p = with_bth(p, |bth| bth[1] |= 1); c.frame(p); }), |c| with_packet(c, |c, p| c.frame(p))),
    (Rule::RcOpcode, |c| with_packet(c, |c, p| { let p = with_bth(p, |bth| bth[0] = 1); c.frame(p); }), |c| with_packet(c, |c, p| c.frame(p))),
    (Rule::RcPsn, |c| misnumbered(c, 1000), |c| misnumbered(c, 0)),
    (Rule::RcDestQp, |c| misaddressed(c, true), |c| misaddressed(c, false)),
    (Rule::RcLength, |c| write_of(c, 1000), |c| write_of(c, 1024)),
    (Rule::RcAckUnsent, |c| acknowledges(c, 1000), |c| acknowledges(c, 0)),
    (Rule::RcRnr, |c| with_packet(c, |c, p| { c.frame(p.clone()); not_ready(c, C); c.frame(p); }), |c| with_packet(c, |c, p| c.frame(p))),
    (Rule::RcIcrc, |c| with_packet(c, damaged_then_good), |c| with_packet(c, |c, p| c.frame(p))),
    (Rule::RcCnp, |c| { c.smb(); c.roce(S, 0x81, 0, &[0; 16], &[]); }, |c| c.smb()),
    (Rule::RcEcn, |c| { c.smb(); c.marked = true; c.echo(); }, |c| { c.smb(); c.echo(); }),
    (Rule::RcPfc, |c| pause(c, 100), |c| pause(c, 0)),
    (Rule::RcMarking, |c| { busy(c); dscp26(c, &[S]); }, |c| { busy(c); dscp26(c, &[C, S]); }),
    (Rule::RcClass, |c| { busy(c); pause_only(c, 3, 100); }, |c| { busy(c); dscp26(c, &[C, S]); pause_only(c, 3, 100); }),
    (Rule::RcPfcIdle, |c| { busy(c); dscp26(c, &[C, S]); [3, 5].iter().for_each(|p| pause_only(c, *p, 100)); }, |c| { busy(c); dscp26(c, &[C, S]); pause_only(c, 3, 100); }),
    (Rule::RcEct, not_capable, |c| congested(c, &[C, S])),
    (Rule::RcCnpMissing, |c| congested(c, &[]), |c| congested(c, &[C, S])),
    (Rule::RcCnpUnmarked, |c| { busy(c); cnp(c, S); }, busy),
    (Rule::RcCnpClass, |c| { congested(c, &[C, S]); dscp26(c, &[C, S]); }, |c| { congested(c, &[C, S]); dscp26(c, &[C, S]); cnp48(c); }),
    (Rule::RcCnpPace, |c| many_cnps(c, 1_000), |c| many_cnps(c, 50_000)),
    (Rule::RcCnpIgnored, |c| congestion_notified(c, 2, 1), |c| congestion_notified(c, 1, 4)),
    (Rule::RcPauseStorm, |c| pauses(c, 3_000_000), |c| pauses(c, 10_000_000)),
    (Rule::RcHops, |c| { busy(c); change_ip(c, S, 8, |n, ttl| if n > 40 { ttl - 1 } else { ttl }); }, busy),
    (Rule::IwarpEce, |c| iwarp_congested(c, false), |c| iwarp_congested(c, true)),
    (Rule::RcBestEffort, |c| { busy(c); dscp26(c, &[C, S]); c.beside(busy); }, |c| { busy(c); c.beside(busy); dscp26(c, &[C, S]); }),
    (Rule::RcMtu, |c| path_mtus(c, 4096), |c| path_mtus(c, 1024)),
    (Rule::RcEntropy, |c| four(c, 0xc001), |c| four(c, 0xc002)),
    (Rule::RcGid, |c| { c.version1 = true; busy(c); c.beside(busy); }, |c| { busy(c); c.beside(busy); }),
    (Rule::IwarpMss, |c| segment_sizes(c, [1460, 8960]), |c| segment_sizes(c, [8960, 8960])),
    (Rule::IwarpEcn, |c| { iwarp_congested(c, true); c.beside(iwarp_busy); }, |c| { iwarp_congested(c, true); c.beside(|other| { other.ecn = true; iwarp_busy(other); }); }),
    (Rule::IwarpWindow, |c| much(c, [Some(7), None]), |c| much(c, [Some(7), Some(7)])),
    (Rule::MpaCrc, |c| changed_fpdu(c, |f| { let at = f.len() - 1; f[at] ^= 1; }), |c| changed_fpdu(c, |_| ())),
    (Rule::MpaMarker, |c| markers(c, true), |c| markers(c, false)),
    (Rule::MpaResync, |c| changed_fpdu(c, |f| f[1] += 8), |c| changed_fpdu(c, |_| ())),
    (Rule::DdpMsn, |c| iwarp_pieces(c, &[(true, 2, 0, 20), (true, 4, 0, 20)]), |c| iwarp_pieces(c, &[(true, 2, 0, 20), (true, 3, 0, 20)])),
    (Rule::DdpOverlap, |c| iwarp_pieces(c, &[(false, 2, 0, 24), (true, 2, 20, 20)]), |c| iwarp_pieces(c, &[(false, 2, 0, 24), (true, 2, 24, 20)])),
    (Rule::TcpLoss, |c| resent(c, &Resent { reported: true, twice: false }), |c| resent(c, &Resent { reported: false, twice: true })),
    (Rule::TcpSpurious, |c| resent(c, &Resent { reported: false, twice: true }), |c| resent(c, &Resent { reported: true, twice: false })),
    (Rule::TcpReorder, |c| tcp_swapped(c, true), |c| tcp_swapped(c, false)),
    (Rule::TcpChecksum, |c| tcp_damaged(c, true), |c| tcp_damaged(c, false)),
    (Rule::TcpHeld, |c| held_up(c, 40), |c| held_up(c, 0)),
    (Rule::TcpNagle, |c| waits_for_acknowledgment(c, 42 * MILLISECOND), |c| waits_for_acknowledgment(c, 0)),
    (Rule::TcpZeroWindow, |c| { c.smb_iwarp(); c.tcp_ack(S, 0); c.wait(MILLISECOND); c.tcp_ack(S, 100); }, |c| { c.smb_iwarp(); c.tcp_ack(S, 1); c.wait(MILLISECOND); c.tcp_ack(S, 100); }),
    // ── The capture itself ──────────────────────────────────────────────────────────────────────────────────────────
    (Rule::CaptureLoss, |c| { c.smb(); c.psn[C] += 1; c.echo(); }, |c| { c.smb(); c.echo(); }),
    (Rule::CaptureClock, |c| { c.smb(); c.wait(-SECOND); c.echo(); }, |c| { c.smb(); c.wait(-MILLISECOND); c.echo(); }),
    (Rule::CaptureCut, |c| { c.smb(); c.echo(); let f = c.frames.last_mut().unwrap(); f.bytes.truncate(58); }, |c| { c.smb(); c.echo(); }),
    // ── Known bugs ──────────────────────────────────────────────────────────────────────────────────────────────────
    (Rule::BugCve202539943, |c| first_data(c, DataTransfer { data_length: 900, ..carrying(1, 64, 0) }, &[0; 64]), |c| first_data(c, carrying(1, 64, 0), &[0; 64])),
    (Rule::BugCve202539942, |c| first_data(c, carrying(1, 64, 1 << 30), &[0; 64]), |c| first_data(c, carrying(1, 64, 1000), &[0; 64])),
    (Rule::BugCve202643185, |c| negotiate(c, NegotiateRequest { preferred_send_size: 0x8000_0000, ..request() }), |c| negotiate(c, request())),
    (Rule::BugCve202631538, |c| with_packet(c, |c, p| { c.frame(p.clone()); not_ready(c, C); c.frame(p); }), |c| with_packet(c, |c, p| c.frame(p))),
    (Rule::BugCve202631539, |c| { c.smb(); c.echo(); c.data(S, empty(1), &[]); not_ready_for_last(c, S); }, |c| { c.smb(); c.echo(); c.data(S, empty(1), &[]); }),
    (Rule::BugSmbdirectLastCredit, |c| last_credit(c, 0), |c| last_credit(c, 1)),
    (Rule::BugSmbdirectBatchInterleave, |c| between_fragments(c, |c| c.data(C, carrying(1, 64, 0), &smb2())), |c| between_fragments(c, |c| c.data(C, empty(1), &[]))),
    (Rule::BugKsmbdSealedLength, |c| sealed(c, 204), |c| sealed(c, 152)),
    (Rule::BugCifsMaxFragmentedSize, |c| c.negotiate(NegotiateRequest { max_receive_size: 1364, max_fragmented_size: 1 << 20, ..request() }, NegotiateResponse { preferred_send_size: 1364, ..response() }), |c| c.negotiate(NegotiateRequest { max_receive_size: 1364, max_fragmented_size: 173_910, ..request() }, NegotiateResponse { preferred_send_size: 1364, ..response() })),
    (Rule::BugKsmbdEarlyData, |c| { c.connect(445); c.smbd_request(request()); c.data(S, empty(1), &[]); c.smbd_response(response()); }, |c| answer(c, response())),
    (Rule::BugKsmbdChannelInfo, |c| read_into(c, 4095), |c| read_into(c, 4096)),
    (Rule::BugKsmbd2fd5dcb1c8ef, |c| invalidating(c, 0xc000_0011, None), |c| invalidating(c, 0xc000_0011, Some(5))),
    (Rule::BugCve202689526, |c| call_with(c, |r| r.reads = vec![read_segment(72, 5, 64)]), |c| call_with(c, |r| r.reads = vec![read_segment(68, 5, 64)])),
    (Rule::BugCve202689528, |c| write_with(c, 3 << 20, |r| r.reads = vec![read_segment(68, 5, 3 << 20)]), |c| write_with(c, 1 << 19, |r| r.reads = vec![read_segment(68, 5, 1 << 19)])),
    (Rule::BugCve202689532, |c| call_with(c, |r| r.writes = vec![vec![]]), |c| call_with(c, |r| r.writes = vec![vec![segment(5, 64)]])),
    (Rule::BugCve202693228, |c| call_with(c, |r| r.reply = Some(vec![])), |c| call_with(c, |r| r.reply = Some(vec![segment(5, 64)]))),
    (Rule::BugCve202689533, |c| call_with(c, |r| { r.reads = vec![read_segment(68, 5, 64)]; r.reads[0].offset = u64::MAX - 8; }), |c| call_with(c, |r| r.reads = vec![read_segment(68, 5, 64)])),
    (Rule::BugCve202664102, |c| { c.smb_iwarp(); c.fpdu(C, &[0x41, 0x43, 0, 0, 0, 0]); }, |c| iwarp_pieces(c, &[(true, 2, 0, 20)])),
    (Rule::BugCve202664268, |c| iwarp_read(c, false), |c| iwarp_read(c, true)),
    (Rule::BugCve202646043, |c| { let p = without_room(c); c.frame(with_bth(p, |_| ())); }, |c| { let p = without_room(c); c.frame(p); }),
    (Rule::BugRxe4c6f86d, |c| { c.smb(); c.roce(C, 0x1f, 0, &[], &[0; 4]); }, |c| { c.smb(); let mut p = c.packet(C, 0x04, 0x12, 0, &[], &[0; 4]); p[14 + 20 + 8] = 0x1f; c.frame(p); }),
    (Rule::BugCve202440992, |c| datagram(c, 4100), |c| datagram(c, 4096)),
];

/// More ways to break a rule, and to keep it, than the one of [`CASES`].
#[rustfmt::skip]
const MORE: &[(Rule, Make, Make)] = &[
    (Rule::Smb2Credit, |c| query_info(c, 1, 65_537), |c| query_info(c, 2, 65_537)),
    (Rule::Smb2Credit, |c| query_info(c, 0, 65_537), |c| query_info(c, 0, 65_536)),
    (Rule::Smb2Credit, |c| { c.smb2_credits = 0; c.smb(); }, |c| { c.smb2_credits = 1; c.smb(); }),
    (Rule::Smb2MessageId, |c| echo_with(c, |h| h.message_id = 500), |c| echo_with(c, |h| h.message_id = 20)),
    (Rule::Smb2Reply, |c| { c.smb(); let h = c.echo_request(); c.reply(&Header { command: Command::LOGOFF, ..h }, 0, &[4, 0, 0, 0]); }, |c| { c.smb(); c.echo(); }),
    (Rule::Smb2Reply, |c| { c.smb(); c.echo(); let h = Header::request(Command::ECHO, 40); c.reply(&h, 0, &[4, 0, 0, 0]); c.wait(MILLISECOND); c.echo(); }, |c| { c.smb(); c.echo(); c.reply(&Header { flags: 0, ..Header::request(Command::OPLOCK_BREAK, u64::MAX) }, 0, &[[24, 0].as_slice(), &[0; 22]].concat()); c.wait(MILLISECOND); c.echo(); }),
    (Rule::Smb2Unsigned, |c| tree_connect(c, 3, 0, 0), |c| tree_connect(c, 3, 0, flags::SIGNED)),
    (Rule::Smb2Unsigned, |c| tree_connect(c, 1, 0, 0), |c| tree_connect(c, 3, 1, 0)),
    (Rule::Smb2Unsigned, |c| signed_echo(c, 0, 0xc000_0034), |c| signed_echo(c, 0, 0xc000_0203)),
    (Rule::Smb2TransformDialect, |c| { c.transforms = &[]; transform_well(c); }, transform_well),
    (Rule::Smb2TransformDialect, |c| { c.transforms = &[2]; transform_well(c); }, |c| { c.transforms = &[1]; transform_well(c); }),
    (Rule::Smb2TransformLengths, |c| transformed(c, &transform(|_| (), |k| k.signature_length = 8)), transform_well),
    (Rule::Smb2TransformType, |c| transformed(c, &transform(|t| t.channel = 3, |_| ())), transform_well),
    (Rule::Smb2TransformBounds, |c| transformed(c, &transform(|t| t.channel = 0, |_| ())), transform_well),
    (Rule::Smb2Channel, |c| { c.smb(); let h = c.smb2_read(1, 1024, &[BufferDescriptorV1 { offset: u64::MAX - 8, ..descriptor(5, 1024) }]); c.reply(&h, 0xc000_000d, &Conversation::error_body()); }, |c| { c.smb(); c.rdma_read(5); }),
    (Rule::Smb2Channel, |c| { c.dialect = 0x0210; c.smb(); c.rdma_read(5); }, |c| { c.dialect = 0x0300; c.smb(); c.rdma_read(5); }),
    (Rule::Smb2Malformed, |c| create(c, 56, 120), |c| create(c, 57, 120)),
    (Rule::Smb2Malformed, |c| create(c, 57, 400), |c| create(c, 57, 120)),
    (Rule::Smb2Malformed, |c| echo_with(c, |h| h.flags = flags::RELATED), |c| echo_with(c, |_| ())),
    (Rule::RdmaLength, |c| read_of_nothing(c, false), |c| read_of_nothing(c, true)),
    (Rule::Smb2SessionId, |c| read_of_disk(c, (0, 0), (0, 8)), |c| read_of_disk(c, (7, 0), (7, 8))),
    (Rule::Smb2SessionId, |c| read_of_disk(c, (7, 0), (0, 8)), |c| read_of_disk(c, (7, 0), (7, 8))),
    (Rule::Smb2Reply, |c| read_of_disk(c, (7, 8), (7, 7)), |c| read_of_disk(c, (7, 8), (7, 8))),
    (Rule::RdmaLength, |c| write_answered(c, &[1, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0]), |c| write_answered(c, &[1, 0, 0, 0, 0, 0, 0, 0, 4, 2, 0, 0])),
    (Rule::RpcMalformed, |c| write_answered(c, &[1, 0, 0, 0, 0, 0, 0, 0, 4, 3, 0, 0]), |c| write_answered(c, &[1, 0, 0, 0, 0, 0, 0, 0, 4, 2, 0, 0])),
    (Rule::RpcMalformed, |c| write_answered(c, &[1, 2, 0, 0, 0, 0, 0, 0, 4, 2, 0, 0]), |c| write_answered(c, &[1, 0, 0, 0, 0, 0, 0, 0, 4, 2, 0, 0])),
    (Rule::RpcMalformed, |c| null_answered(c, |r| r.payload = &[0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 9]), |c| null_answered(c, |_| ())),
    (Rule::RpcMalformed, |c| read_at_end(c, 2), |c| read_at_end(c, 1)),
    (Rule::RdmaOrder, |c| confirmed(c, Some(20_000_000)), |c| confirmed(c, None)),
    (Rule::RdmaLength, |c| read_in_pieces(c, [0, 0]), |c| read_in_pieces(c, [0, 512])),
    (Rule::RdmaLength, |c| read_in_pieces(c, [0, 256]), |c| read_in_pieces(c, [512, 0])),
    (Rule::RdmaLength, |c| read_longer(c, 2048), |c| read_longer(c, 512)),
    // the reply announced none of the bytes
    (Rule::RdmaKeyStale, |c| { cancelled(c); c.write(S, 5, 1024); }, cancelled),
    (Rule::RdmaKeyStale, |c| { read_refused(c); c.write(S, 5, 512); }, read_refused),
    (Rule::RdmaOrder, |c| { c.smb(); let h = c.smb2_read(2, 1024, &[descriptor(5, 1024)]); c.message_invalidating(S, &Conversation::reply_bytes(&h, 0, 1, &Conversation::read_body(1024)), 5); c.write(S, 5, 1024); }, |c| invalidating(c, 0, Some(5))),
    (Rule::RdmaInvalidate, |c| nfs_invalidating(c, Some(5)), |c| nfs_invalidating(c, None)),
    (Rule::RdmaKeyPredictable, |c| reads(c, (1..17).map(|n| n * 0x100)), |c| reads(c, (1..16).map(|n| n * 0x100))),
    (Rule::RdmaKeyPredictable, |c| nfs_reads(c, 16), |c| nfs_reads(c, 15)),
    (Rule::RcLength, |c| iwarp_read_of(c, 9, 0), |c| iwarp_read_of(c, 8, 0)),
    (Rule::RcOpcode, |c| read_ended_by(c, 0x0d), |c| read_ended_by(c, 0x10)),
    (Rule::BugCve202664268, |c| iwarp_read_of(c, 7, 0), |c| iwarp_read_of(c, 8, 0)),
    (Rule::BugCve202664268, |c| iwarp_read_of(c, 8, 1), |c| iwarp_read_of(c, 8, 0)),
    (Rule::MpaIrdord, |c| mpa(c, enhanced(&[0, 1], false), enhanced(&[0, 1, 0, 1], true)), |c| mpa(c, enhanced(&[0, 1, 0, 1], false), enhanced(&[0, 1, 0, 1], true))),
    (Rule::MpaIrdord, |c| mpa(c, enhanced(&[0, 1, 0, 1], false), enhanced(&[], true)), |c| mpa(c, enhanced(&[0, 1, 0, 1], false), enhanced(&[0, 1, 0, 0], true))),
    (Rule::MpaIrdord, |c| mpa(c, enhanced(&[0, 1, 0, 1], false), Startup { revision: 2, ..Conversation::startup(true) }), |c| mpa(c, enhanced(&[0, 1, 0, 1], false), Conversation::startup(true))),
    (Rule::BugCve202440992, |c| { c.connect(445); datagram(c, 1025); }, |c| { c.connect(445); datagram(c, 1024); }),
    (Rule::RpcrdmaBackward, |c| backward(c, |r| r.reads = vec![read_segment(40, 5, 64)]), |c| backward(c, |r| { r.proc = 1; r.payload = &[]; r.reads = vec![read_segment(0, 5, 40)]; })),
    (Rule::RpcrdmaCreditZero, |c| backward_answered(c, 32, 0), |c| backward_answered(c, 0, 32)),
    (Rule::RpcrdmaDdp, |c| gss_write(c, 2), |c| gss_write(c, 1)),
    (Rule::RpcrdmaDdp, |c| gss_write(c, 3), |c| gss_write(c, 1)),
    (Rule::RpcrdmaDdp, |c| mount(c, true), |c| mount(c, false)),
    (Rule::RpcrdmaDdp, |c| read_inline(c, true), |c| read_inline(c, false)),
    (Rule::RpcrdmaXid, |c| { c.nfs(); c.send(C, &Rpc::msg(2, &null_call(2)).bytes()); c.send(S, &Rpc::msg(2, &null_reply(7)).bytes()); }, |c| { c.nfs(); c.null(2); }),
    (Rule::RpcrdmaNomsg, |c| null_answered(c, |r| { r.proc = 1; r.payload = &[]; }), |c| null_answered(c, |_| ())),
    (Rule::RpcrdmaWriteShape, |c| write_chunk(c, |r| r.writes.clear()), |c| write_chunk(c, |_| ())),
    (Rule::RpcrdmaWriteShape, |c| write_chunk(c, |r| r.writes[0][0].handle = 9), |c| write_chunk(c, |_| ())),
    (Rule::RpcrdmaWriteShape, |c| write_chunk(c, |r| r.writes = vec![vec![segment(5, 500), segment(6, 12)]]), |c| write_chunk(c, |_| ())),
    (Rule::RpcrdmaChunkLength, |c| read_chunk(c, 512, 509, |_| ()), |c| read_chunk(c, 512, 512, |_| ())),
    (Rule::RpcrdmaChunkLength, |c| read_chunk(c, 512, 509, |r| r.writes[0][0].length = 509), |c| read_chunk(c, 509, 509, |r| r.writes[0][0].length = 509)),
    // what was closed is held no more; what is never given back is told in the end
    (Rule::Smb2BreakKept, |c| oplock_crossed(c, Command::ECHO), |c| oplock_crossed(c, Command::CLOSE)),
    (Rule::Smb2BreakKept, |c| oplock_crossed(c, Command::ECHO), |c| oplock_crossed(c, Command::LOGOFF)),
    // who logs off and goes misses no reply; who waits long for it does
    (Rule::CmDisconnect, |c| leaves(c, Command::ECHO, 0), |c| leaves(c, Command::LOGOFF, 0)),
    (Rule::Smb2Unanswered, |c| leaves(c, Command::LOGOFF, 20 * SECOND), |c| leaves(c, Command::TREE_DISCONNECT, SECOND)),
    // what is written twice leaves a hole elsewhere
    (Rule::RpcrdmaChunkLength, |c| read_written(c, &[(5, 0, 256), (6, 0, 128), (6, 0, 128)]), |c| read_written(c, &[(6, 128, 128), (5, 0, 256), (6, 0, 128)])),
    (Rule::RpcrdmaChunkLength, |c| read_written(c, &[(5, 0, 256), (6, 0, 255)]), |c| read_written(c, &[(5, 0, 256), (6, 0, 128), (6, 100, 156)])),
    (Rule::RpcrdmaChunkLength, |c| long_reply_at(c, 4), |c| long_reply_at(c, 0)),
    (Rule::RpcrdmaChunkLength, |c| write_with(c, 62, |r| r.reads = vec![read_segment(68, 5, 60)]), |c| write_with(c, 62, |r| r.reads = vec![read_segment(68, 5, 64)])),
    (Rule::RpcrdmaDdp, |c| { c.nfs(); c.send(C, &Rpc { reads: vec![read_segment(40, 5, 64)], ..Rpc::msg(2, &null_call(2)) }.bytes()); c.send(S, &Rpc::msg(2, &null_reply(2)).bytes()); }, |c| call_with(c, |r| r.reads = vec![read_segment(68, 5, 64)])),
    (Rule::BugCve202689526, |c| write_with(c, 128, |r| r.reads = vec![read_segment(68, 5, 64), read_segment(100, 6, 64)]), |c| write_with(c, 128, |r| r.reads = vec![read_segment(68, 5, 64), read_segment(68, 6, 64)])),
    (Rule::SmbdNegTimeout, |c| { c.connect(445); c.wait(6 * SECOND); c.smbd_request(request()); c.smbd_response(response()); }, |c| { c.connect(445); c.wait(4 * SECOND); c.smbd_request(request()); c.smbd_response(response()); }),
    (Rule::MpaRevision, |c| mpa(c, Startup { revision: 3, ..Conversation::startup(false) }, Conversation::startup(true)), |c| mpa(c, enhanced(&[0, 1, 0, 1], false), Conversation::startup(true))),
    (Rule::BugCve202689533, |c| null_answered_with(c, u64::MAX - 8), |c| null_answered_with(c, 0x1000)),
];

fn run(make: Make) -> Report {
    let mut conversation = Conversation::default();
    make(&mut conversation);
    common::analyze_frames(&conversation.frames).0
}

#[test]
fn each_rule_finds_its_violation_and_nothing_where_there_is_none() {
    let mut wrong = Vec::new();
    for (rule, bad, good) in CASES.iter().chain(MORE) {
        let (bad, good) = (run(*bad), run(*good));
        let fires = |report: &Report| report.findings.iter().any(|f| f.rule == *rule);
        if !fires(&bad) {
            wrong.push(format!("{rule} is not found in its bad sample: {:?}", common::ids(&bad)));
        }
        if fires(&good) {
            wrong.push(format!("{rule} is found in its good sample: {:?}", common::ids(&good)));
        }
        // nothing else is wrong than the violation made on purpose
        let errors: Vec<_> = good.findings.iter().filter(|f| f.severity == Severity::Error).map(|f| &f.text).collect();
        if !errors.is_empty() {
            wrong.push(format!("{rule}: its good sample is not good: {errors:?}"));
        }
        if good.capture.undecoded > 0 {
            wrong.push(format!("{rule}: {} Sends of its good sample are not understood", good.capture.undecoded));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn what_is_allowed_is_held_against_nobody() {
    let cases: [(&str, Make); 11] = [
        ("a READ whose descriptors share a key", one_key_twice),
        ("two READs at once that share a key", one_key_for_two),
        ("a server that fetches more than it writes", short_write),
        ("a range that ends with the address space", read_to_the_end),
        ("a key that is invalidated with the first fragment", |c| invalidated_with_piece(c, 0)),
        ("a key that is invalidated with a fragment in the middle", |c| invalidated_with_piece(c, 1)),
        ("a key that is invalidated with the last fragment", |c| invalidated_with_piece(c, 2)),
        ("a first fragment of one byte", |c| echo_in_pieces(c, 1)),
        ("a first fragment of three bytes", |c| echo_in_pieces(c, 3)),
        ("a Write of nothing", |c| {
            c.smb();
            write_to(c, 0, 0, 0);
            c.echo();
        }),
        ("data that stands behind the reply in the capture", |c| confirmed(c, Some(500_000))),
    ];
    for (what, make) in cases {
        let mut conversation = Conversation::default();
        make(&mut conversation);
        let (report, collected) = common::analyze_frames(&conversation.frames);
        // one registration for many requests is worth a word to the client, and no rule is broken by it
        let findings = report.findings.iter().filter(|f| f.rule != Rule::RdmaKeyReuse && f.severity > Severity::Note);
        let texts: Vec<_> = findings.map(|f| format!("{}: {}", f.rule, f.text)).collect();
        assert!(texts.is_empty(), "{what}: {texts:?}");
        let answered = collected.exchanges.iter().filter(|exchange| exchange.reply_end.is_some()).count();
        assert!(answered > 1 && answered == collected.exchanges.len(), "{what}: {answered} requests were answered");
    }
}

/// Frames that a page shows of a conversation.
const FRAMES_SHOWN: usize = 4;

/// The finding of each broken conversation, for the pages of the findings that no capture shows: a line with the rule,
/// the certainty, the frames and the sentence, and under it a line for each of the first frames, with tabs between.
#[test]
fn the_findings_of_broken_conversations_are_written_down() {
    use std::fmt::Write;
    let mut page = String::new();
    for (rule, bad, _) in CASES {
        let mut conversation = Conversation::default();
        bad(&mut conversation);
        let mut pipeline = Pipeline::new(Options::default());
        let mut line = Line::default();
        let mut lines = Vec::new();
        for frame in &conversation.frames {
            line.begin();
            pipeline.frame(&frame.meta, &frame.bytes, &mut line);
            line.end();
            lines.push(format!("\t{}\t{}\t{}\n", frame.meta.number, line.protocol, line.info));
        }
        let report = pipeline.finish().0;
        let finding = report.findings.iter().find(|f| f.rule == *rule).unwrap_or_else(|| panic!("{rule} is not found"));
        let frames: Vec<u64> = finding.frames.to_vec();
        let numbers: Vec<String> = frames.iter().take(FRAMES_SHOWN).map(u64::to_string).collect();
        let more = if frames.len() > FRAMES_SHOWN || finding.frames.omitted() > 0 { " …" } else { "" };
        let certainty = finding.certainty.name();
        let _ = writeln!(
            page,
            "{rule}\t{certainty}\t{}{more}\t{}",
            numbers.join(", "),
            rdmascope_analyzer::roots::text(&report, finding)
        );
        for frame in frames.iter().take(FRAMES_SHOWN) {
            page.extend(usize::try_from(*frame).ok().and_then(|n| lines.get(n.checked_sub(1)?)).map(String::as_str));
        }
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/broken.txt");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, &page).unwrap();
    }
    let there = std::fs::read_to_string(path).unwrap_or_default();
    assert!(there == page, "UPDATE=1 cargo test -p rdmascope-analyzer --test rules writes tests/broken.txt anew");
}

/// The rules of the audit.
const AUDIT: std::ops::RangeInclusive<Rule> = Rule::RcMarking..=Rule::IwarpWindow;

#[test]
fn a_network_with_one_fault_breaks_one_rule_of_the_audit_and_nothing_of_it_is_certain() {
    let mut broken = 0;
    for (rule, bad, good) in CASES.iter().filter(|(rule, ..)| AUDIT.contains(rule)) {
        broken += 1;
        let bad = run(*bad);
        let found: Vec<_> = bad.findings.iter().filter(|f| AUDIT.contains(&f.rule)).collect();
        assert!(found.iter().all(|f| f.rule == *rule), "{rule}: {found:?}");
        assert!(found.iter().all(|f| f.certainty < Certainty::Certain), "{rule}: {found:?}");
        let good = run(*good);
        assert!(good.findings.iter().all(|f| !AUDIT.contains(&f.rule)), "{rule}: {:?}", common::ids(&good));
    }
    assert_eq!(broken, Rule::ALL.iter().filter(|rule| AUDIT.contains(rule)).count(), "each of them");
}

/// Captures with the faults that were made on purpose. All other samples have none.
const NETWORKS: &[(&str, &[Rule])] = &[
    // crafted: a CNP without a mark
    ("probes/t6_err", &[Rule::RcEct, Rule::RcCnpUnmarked]),
    // rxe and siw, with tc
    ("roce-dscp-one-way", &[Rule::RcMarking]),
    ("roce-two-classes", &[Rule::RcBestEffort]),
    // no mark can be answered there
    ("roce-not-ecn-capable", &[Rule::RcEct, Rule::RcCnpMissing]),
    ("roce-marks-unanswered", &[Rule::RcCnpMissing]),
    ("roce-small-mtu", &[Rule::RcMtu]),
    ("roce-two-paths", &[Rule::RcHops]),
    ("iwarp-small-mss", &[Rule::IwarpMss]),
    ("iwarp-without-ecn", &[Rule::IwarpEcn]),
];

#[test]
fn the_audit_finds_in_captures_what_was_made_on_purpose_and_is_silent_on_all_others() {
    let mut names: Vec<String> = Vec::new();
    for folder in std::fs::read_dir(common::samples()).expect("samples").flatten() {
        let name = folder.file_name().into_string().expect("a name");
        let files = std::fs::read_dir(folder.path()).into_iter().flatten().flatten();
        let captures =
            files.filter_map(|file| file.file_name().into_string().ok()?.strip_suffix(".pcap").map(str::to_owned));
        names.extend(captures.map(|capture| if capture == name { capture } else { format!("{name}/{capture}") }));
    }
    assert!(names.len() > 60, "{}", names.len());
    assert!(NETWORKS.iter().all(|(name, _)| names.iter().any(|n| n == name)));
    for name in names {
        let report = common::analyze_frames(&common::frames(&name)).0;
        let mut found: Vec<Rule> = report.findings.iter().map(|f| f.rule).filter(|rule| AUDIT.contains(rule)).collect();
        found.sort_unstable();
        found.dedup();
        let expected = NETWORKS.iter().find(|(of, _)| *of == name).map_or(&[][..], |(_, rules)| rules);
        assert_eq!(found, expected, "{name}");
    }
}

/// A message that is no SMB2, with data at this offset.
fn refused_content(c: &mut Conversation, data_offset: u32) {
    c.smb();
    c.data(S, DataTransfer { data_offset, ..carrying(1, 60, 0) }, &[7; 64]);
}

/// A request whose reply has another MessageId.
fn misnumbered_reply(c: &mut Conversation) {
    c.smb();
    let mut header = c.echo_request();
    header.message_id += 5000;
    c.reply(&header, 0, &[4, 0, 0, 0]);
    c.wait(5 * SECOND);
    (0..3).for_each(|_| c.echo());
}

/// A client that receives fewer bytes than the least, and a server that sends more.
fn below_the_least(c: &mut Conversation) {
    c.negotiate(NegotiateRequest { max_receive_size: 100, ..request() }, response());
    c.data(C, empty(10), &[]);
    c.data(S, carrying(1, 200, 0), &smb2().repeat(4)[..200]);
}

/// So many calls of NFS after the first grant, or two before it, of which the last one finds no receive; all are
/// answered in the end.
fn call_too_many(c: &mut Conversation, calls: u32) {
    let first = if calls == 0 { 1 } else { 2 };
    if calls == 0 {
        c.connect(20049)
    } else {
        c.nfs()
    }
    let calls = first..first + calls.max(2);
    calls.clone().for_each(|xid| c.send(C, &Rpc::msg(xid, &null_call(xid)).bytes()));
    not_ready_for_last(c, C);
    calls.for_each(|xid| c.send(S, &Rpc::msg(xid, &null_reply(xid)).bytes()));
}

/// RFC 8166 3.3.1: a server posts as many receives as it granted credits.
#[test]
fn a_server_is_not_to_blame_that_has_no_receive_for_a_call_without_credit() {
    let told = |calls| {
        let mut c = Conversation::default();
        call_too_many(&mut c, calls);
        let report = common::analyze_frames(&c.frames).0;
        let all = report.findings.iter().filter(|f| f.rule == Rule::RcRnr).map(|f| (f.by, f.certainty));
        all.collect::<Vec<_>>()
    };
    assert_eq!(told(33), [(Blame::Unknown, Certainty::Guess)]);
    assert_eq!(told(0), [(Blame::Unknown, Certainty::Guess)]);
    assert_eq!(told(32), [(Blame::Server, Certainty::Certain)], "it had granted that many");
}

/// A READ whose descriptors are cut short, and what is written all the same.
fn misdescribed(c: &mut Conversation) {
    read_into(c, 4095);
    c.write(S, 77, 512);
}

/// A READ that is answered as if bytes had been written, without any, and without the invalidation that it asked for.
fn says_it_wrote(c: &mut Conversation) {
    c.smb();
    let header = c.smb2_read(2, 1024, &[descriptor(5, 1024)]);
    c.reply(&header, 0, &Conversation::read_body(1024));
    c.echo();
}

/// Pairs of rules that one violation breaks: the first is the root, and the other stands under it.
#[test]
fn what_follows_from_a_violation_stands_under_it() {
    let cases: [(Make, Rule, Rule); 14] = [
        (
            |c| first_data(c, DataTransfer { data_offset: 28, ..carrying(1, 60, 0) }, &[0; 64]),
            Rule::SmbdDataAlign,
            Rule::BugCve202539943,
        ),
        (|c| read_into(c, 4095), Rule::Smb2Channel, Rule::BugKsmbdChannelInfo),
        (|c| last_credit(c, 0), Rule::SmbdCreditLast, Rule::BugSmbdirectLastCredit),
        (
            |c| {
                three_of_two(c, false);
                not_ready_for_last(c, C);
            },
            Rule::SmbdCreditOverrun,
            Rule::RcRnr,
        ),
        (inline_refused, Rule::RpcrdmaInline, Rule::RcNak),
        (|c| call_too_many(c, 33), Rule::RpcrdmaCreditOverrun, Rule::RcRnr),
        (|c| call_too_many(c, 0), Rule::RpcrdmaCreditFirst, Rule::RcRnr),
        (|c| call_with(c, |r| r.reads = vec![read_segment(72, 5, 64)]), Rule::RpcrdmaPosition, Rule::BugCve202689526),
        // a message that its receiver refuses has no content
        (|c| refused_content(c, 28), Rule::SmbdDataAlign, Rule::Smb2Malformed),
        (|c| misnumbered_reply(c), Rule::Smb2Reply, Rule::Smb2Unanswered),
        // the limit that is too low is the client's, the message that exceeds it the server's
        (|c| below_the_least(c), Rule::SmbdNegReqRecvsize, Rule::SmbdDataTooBig),
        // a description of memory that is cut short, and what is written there
        (|c| misdescribed(c), Rule::Smb2Channel, Rule::RdmaKeyUnknown),
        (|c| says_it_wrote(c), Rule::RdmaLength, Rule::RdmaInvalidate),
        (|c| write_answered(c, &[1, 2, 0, 0, 0, 0, 0, 0, 4, 2, 0, 0]), Rule::RpcMalformed, Rule::RpcError),
    ];
    for (make, root, effect) in cases {
        let report = run(make);
        assert!(report.findings.iter().any(|f| f.rule == effect), "{root}: {:?}", common::ids(&report));
        let roots: Vec<Rule> = rdmascope_analyzer::roots::roots(&report).iter().map(|r| r.rule).collect();
        assert!(roots.contains(&root) && !roots.contains(&effect), "{root}: {roots:?}");
    }
}

#[test]
fn a_version_that_is_refused_is_reported_with_its_range() {
    let mut c = Conversation::default();
    c.nfs();
    c.send(C, &Rpc { version: 2, ..Rpc::msg(2, &null_call(2)) }.bytes());
    c.send(S, &words(&[2, 2, 32, 4, 1, 1, 1]));
    let report = common::analyze_frames(&c.frames).0;
    let texts = |rule| report.findings.iter().filter(|f| f.rule == rule).map(|f| f.text.clone()).collect::<Vec<_>>();
    assert_eq!(texts(Rule::RpcrdmaVersion), ["sent RPC-over-RDMA version 2"]);
    let told = "XID 0x00000002 was refused by the server: ERR_VERS, the responder speaks versions 1 to 1";
    assert_eq!(texts(Rule::RpcrdmaError), [told]);
    assert!(report.findings.iter().any(|f| f.severity == Severity::Error));
}

#[test]
fn a_reply_that_came_before_is_told_as_a_second_one() {
    let texts = |xids: [u32; 2]| {
        let mut c = Conversation::default();
        c.nfs();
        c.null(2);
        xids.iter().for_each(|xid| c.send(S, &Rpc::msg(*xid, &null_reply(*xid)).bytes()));
        let report = common::analyze_frames(&c.frames).0;
        let of_xid = report.findings.iter().filter(|f| f.rule == Rule::RpcrdmaXid);
        of_xid.map(|f| (f.text.clone(), f.count)).collect::<Vec<_>>()
    };
    assert_eq!(texts([2, 2]), [("answered XID 0x00000002 a second time".to_owned(), 2)]);
    assert_eq!(texts([7, 7]), [("answered XID 0x00000007, but there is no such call".to_owned(), 2)]);
}

#[test]
fn a_refusal_that_is_made_good_is_a_note() {
    for (port, severity) in [(None, Severity::Warn), (Some(445), Severity::Note)] {
        let mut c = Conversation::default();
        c.cm_request(5445);
        c.cm_reject();
        if let Some(port) = port {
            c.comm += 1;
            c.connect(port);
            c.smbd_request(request());
            c.smbd_response(response());
        }
        let report = common::analyze_frames(&c.frames).0;
        let found: Vec<_> = report.findings.iter().filter(|f| f.rule == Rule::CmReject).collect();
        assert_eq!(found.iter().map(|f| f.severity).collect::<Vec<_>>(), [severity]);
        assert_eq!(found[0].text.contains("one to port 445 was accepted"), port.is_some(), "{}", found[0].text);
    }
}

/// An attempt to connect over iWARP, refused by a reset or by an MPA Reply.
fn refused_mpa(c: &mut Conversation) {
    c.tcp_open();
    c.mpa(Conversation::startup(false));
    c.mpa(Startup { reject: true, ..Conversation::startup(true) });
    c.tcp_reset(C);
}

#[test]
fn an_iwarp_connection_that_was_refused_and_then_taken_is_a_note_and_no_failure() {
    for again in [false, true] {
        let mut c = Conversation::default();
        refused_mpa(&mut c);
        if again {
            c.wait(SECOND);
            c.client_port += 1;
            c.smb_iwarp();
            c.smb2_negotiate();
            (0..3).for_each(|_| c.echo());
        }
        let report = common::analyze_frames(&c.frames).0;
        let found: Vec<_> = report.findings.iter().filter(|f| f.rule == Rule::MpaReject).collect();
        let severity = if again { Severity::Note } else { Severity::Error };
        assert_eq!(found.iter().map(|f| f.severity).collect::<Vec<_>>(), [severity]);
        assert!(found[0].text.contains("to port 5445"), "{}", found[0].text);
        assert_eq!(found[0].text.contains("; one was accepted 1.0"), again, "{}", found[0].text);
        let success: Vec<_> = report.connections.iter().filter_map(|c| Some(c.outcome.as_ref()?.success)).collect();
        assert_eq!(success.first(), Some(if again { &Success::Replaced } else { &Success::No }));
    }
}

/// A capture may have the MPA Reply before its Request, or not at all: the server answered all the same, and what it
/// sends behind that is no other answer.
#[test]
fn an_mpa_reply_that_is_misplaced_or_lost_by_the_capture_is_an_answer() {
    for (answered, swapped, captured) in
        [(true, false, true), (true, true, true), (true, false, false), (false, false, true)]
    {
        let mut c = Conversation::default();
        c.tcp_open();
        c.mpa(Conversation::startup(false));
        if answered {
            c.mpa(Conversation::startup(true));
        }
        let place =
            |key: &[u8]| c.frames.iter().position(|f| f.bytes.windows(10).any(|w| w == key)).expect("a startup frame");
        if !captured {
            c.frames.remove(place(b"MPA ID Rep"));
        } else if swapped {
            let (request, reply) = (place(b"MPA ID Req"), place(b"MPA ID Rep"));
            let bytes = c.frames[request].bytes.clone();
            c.frames[request].bytes = std::mem::replace(&mut c.frames[reply].bytes, bytes);
        }
        c.bytes(S, b"HTTP/1.1 400 Bad Request\r\n\r\n");
        c.tcp_reset(C);
        let report = common::analyze_frames(&c.frames).0;
        let blamed = report.findings.iter().any(|f| f.text.contains("other than an MPA Reply"));
        assert_eq!(
            blamed, !answered,
            "answered {answered}, swapped {swapped}, captured {captured}: {:?}",
            report.findings
        );
    }
}

#[test]
fn a_server_that_went_away_says_how_the_client_came_back() {
    let mut c = Conversation::default();
    c.smb_iwarp();
    c.smb2_negotiate();
    (0..3).for_each(|_| c.echo());
    c.echo_request();
    c.tcp_reset(S);
    for _ in 0..2 {
        c.wait(SECOND);
        c.client_port += 1;
        refused(&mut c);
    }
    c.wait(SECOND);
    c.client_port += 1;
    c.again_iwarp();
    c.smb2_negotiate();
    (0..3).for_each(|_| c.echo());
    let report = common::analyze_frames(&c.frames).0;
    let (rule, by) = report.connections[0].outcome.as_ref().and_then(|o| o.cause).expect("why it failed");
    let found =
        report.findings.iter().find(|f| (f.rule, f.by, f.connection) == (rule, by, Some(report.connections[0].id)));
    let text = &found.expect("the finding").text;
    assert_eq!(by, Blame::Server);
    assert!(text.ends_with("2 attempts to connect again failed, then one succeeded 3.00 s later"), "{text}");
    let refusals: Vec<_> =
        report.findings.iter().filter(|f| f.rule == Rule::TcpRefused).map(|f| (f.severity, &f.text)).collect();
    assert!(
        refusals.len() == 2 && refusals.iter().all(|(s, t)| *s == Severity::Note && t.contains("one was accepted")),
        "{refusals:?}"
    );
    let failed = report.connections.iter().filter(|c| c.outcome.as_ref().is_some_and(|o| o.failed())).count();
    assert_eq!(failed, 1, "the one that broke");
}

/// A remote operational error is the responder's doing. Other refusals are the requester's only where its fault was
/// seen.
/// The server ends the connection for an untagged message of the client, with this code of DDP.
fn refuses(c: &mut Conversation, code: u8) {
    c.smb_iwarp();
    c.echo_request();
    let mut out = Vec::new();
    Terminate { layer: 1, error_type: 2, code, segment_length: None, ddp: None, read_request: None }.emit(&mut out);
    c.fpdu(S, &Conversation::untagged(rdmap::Opcode::TERMINATE, true, 2, 1, 0, &out));
}

#[test]
fn who_ends_a_connection_for_a_message_that_was_agreed_on_is_at_fault() {
    let told = |make: Make| {
        let report = run(make);
        let found = report.findings.iter().find(|f| f.rule == Rule::RdmapTerminate);
        found.map(|f| (f.by, f.certainty, f.causes()[0]))
    };
    let own = |why: &'static str| Some((Blame::Server, Certainty::IfNothingWasMissed, why));
    // no receive for it, although the client had credits; a receive that is too short
    assert_eq!(
        told(|c| refuses(c, 2)),
        own("It granted credits for which it had posted no receives ([MS-SMBD] 3.1.5.9)")
    );
    assert_eq!(
        told(|c| refuses(c, 5)),
        own("It posted receives that are shorter than the MaxReceiveSize that it sent")
    );
    // its number, which the capture shows to be right
    let open = told(|c| refuses(c, 3)).map(|(by, certainty, _)| (by, certainty));
    assert_eq!(open, Some((Blame::Unknown, Certainty::Guess)));
}

#[test]
fn a_nak_is_held_against_whose_doing_it_is() {
    for (syndrome, by) in
        [(0x61, Blame::Unknown), (0x62, Blame::Unknown), (0x63, Blame::Server), (0x64, Blame::Unknown)]
    {
        let mut c = Conversation::default();
        c.smb();
        let psn = c.psn[C];
        c.acknowledge(C, psn, syndrome);
        c.echo();
        let report = common::analyze_frames(&c.frames).0;
        let found: Vec<_> = report.findings.iter().filter(|f| f.rule == Rule::RcNak).map(|f| f.by).collect();
        assert_eq!(found, [by], "{syndrome:#x}");
    }
}

#[test]
fn what_a_rejection_comes_from_goes_by_its_reason() {
    for (reason, word) in [(8, "Nothing listens"), (28, "refused this client"), (10, "earlier connection")] {
        let mut c = Conversation::default();
        c.cm_request(445);
        c.cm_reject_for(reason);
        let report = common::analyze_frames(&c.frames).0;
        let found = report.findings.iter().find(|f| f.rule == Rule::CmReject).expect("it is told");
        assert!(
            found.text.contains("port 445") && found.causes().len() == 1 && found.causes()[0].contains(word),
            "{found:?}"
        );
    }
}

/// A REQ and a REP, so many times.
fn handshakes(c: &mut Conversation, times: usize) {
    for _ in 0..times {
        c.connect(445);
        c.wait(4 * SECOND);
    }
}

/// Who gave up waiting refused nothing, and who rejects is the one who refused.
#[test]
fn a_rejection_is_held_against_its_sender_unless_that_waited_in_vain() {
    const TIMEOUT: u16 = 4;
    for (end, reason, rule, by, certainty) in [
        (C, 28, Rule::CmReject, Blame::Client, Certainty::Certain),
        (S, 28, Rule::CmReject, Blame::Server, Certainty::Certain),
        (C, TIMEOUT, Rule::CmTimeout, Blame::Unknown, Certainty::Guess),
        (S, TIMEOUT, Rule::CmReject, Blame::Unknown, Certainty::Guess),
    ] {
        let mut c = Conversation::default();
        handshakes(&mut c, 3);
        c.cm_reject_by(end, reason);
        let report = common::analyze_frames(&c.frames).0;
        let is_it = |f: &&rdmascope_analyzer::finding::Finding| matches!(f.rule, Rule::CmReject | Rule::CmTimeout);
        let found: Vec<_> = report.findings.iter().filter(is_it).map(|f| (f.rule, f.by, f.certainty)).collect();
        assert_eq!(found, [(rule, by, certainty)], "{end} {reason}");
        let outcome = report.connections[0].outcome.as_ref().expect("it failed");
        assert_eq!((outcome.blame(), outcome.cause), (by, Some((rule, by))), "{end} {reason}");
    }
}

/// A client that gives up its own request was refused nothing: the request had no answer.
#[test]
fn a_request_that_its_client_gives_up_was_not_answered() {
    let mut c = Conversation::default();
    c.cm_request(445);
    c.wait(5 * SECOND);
    c.cm_reject_by(C, 4);
    let report = common::analyze_frames(&c.frames).0;
    let of = report.findings.iter().filter(|f| f.rule.row().group != Group::Path);
    let found: Vec<_> = of.map(|f| (f.rule, f.severity, f.by, f.certainty)).collect();
    let told = (Rule::CmTimeout, Severity::Warn, Blame::Unknown, Certainty::IfNothingWasMissed);
    assert_eq!(found, [told], "{:?}", report.findings);
}

#[test]
fn messages_of_connection_management_that_nobody_answers_are_told() {
    let told = |make: &dyn Fn(&mut Conversation)| {
        let mut c = Conversation::default();
        make(&mut c);
        let report = common::analyze_frames(&c.frames).0;
        let is_it = |f: &&rdmascope_analyzer::finding::Finding| f.rule == Rule::CmTimeout;
        let found = report.findings.iter().find(is_it);
        found.map(|f| (f.severity, f.certainty, f.text.clone()))
    };
    let (severity, certainty, text) = told(&|c| handshakes(c, 5)).expect("no RTU came");
    assert_eq!((severity, certainty), (Severity::Error, Certainty::Guess));
    assert!(text.contains("REP 5 times; the client went on asking"), "{text}");
    assert_eq!(told(&|c| handshakes(c, 1)), None);
    let with_rtu = |c: &mut Conversation| {
        handshakes(c, 5);
        c.cm_ready(C);
    };
    assert_eq!(told(&with_rtu), None);
    let farewells = |c: &mut Conversation, times: usize| {
        c.smb();
        c.echo();
        for _ in 0..times {
            c.cm_disconnect(C);
            c.wait(4 * SECOND);
        }
    };
    let (severity, _, text) = told(&|c| farewells(c, 8)).expect("no DREP came");
    assert!(severity == Severity::Warn && text.starts_with("8 DREQs had no answer"), "{text}");
    assert_eq!(told(&|c| farewells(c, 1)), None);
}

#[test]
fn a_second_channel_that_is_refused_leaves_the_session_without_multichannel() {
    let mut c = Conversation::default();
    c.smb();
    (0..3).for_each(|_| c.echo());
    c.wait(SECOND);
    c.comm += 1;
    c.cm_request(445);
    c.cm_reject();
    (0..3).for_each(|_| c.echo());
    let report = common::analyze_frames(&c.frames).0;
    let found = report.findings.iter().find(|f| f.rule == Rule::CmReject).expect("it is told");
    assert!(found.text.ends_with("multichannel was not established"), "{}", found.text);
    assert_eq!(report.findings.iter().filter(|f| f.rule.row().group == Group::Path).count(), 0);
}

#[test]
fn a_peer_that_is_gone_left_packets_and_dreqs_unanswered() {
    let mut c = Conversation::default();
    c.smb();
    c.echo();
    let at = c.frames.len();
    c.echo_request();
    // the bytes that the server would have acknowledged
    c.frames.truncate(at + 1);
    let packet = c.frames[at].bytes.clone();
    for _ in 0..7 {
        c.wait(SECOND / 2);
        c.frame(packet.clone());
    }
    for _ in 0..4 {
        c.wait(4 * SECOND);
        c.cm_disconnect(C);
    }
    let report = common::analyze_frames(&c.frames).0;
    let found: Vec<_> = report.findings.iter().map(|f| (f.rule, f.by, &f.text)).collect();
    let gone = report
        .findings
        .iter()
        .find(|f| f.rule == Rule::PeerSilent)
        .unwrap_or_else(|| panic!("the server is gone: {found:?}"));
    assert_eq!((gone.by, gone.severity), (Blame::Server, Severity::Error));
    assert!(gone.text.contains("8 times") && gone.text.contains("the 4 DREQs"), "{}", gone.text);
    let outcome = report.connections[0].outcome.as_ref().expect("it failed");
    assert_eq!((outcome.failed(), outcome.cause), (true, Some((Rule::PeerSilent, Blame::Server))));
}

#[test]
fn a_server_that_disconnects_before_its_first_packet_ended_the_negotiation() {
    for answered in [false, true] {
        let mut c = Conversation::default();
        c.connect(445);
        c.smbd_request(request());
        // the acknowledgment
        c.frames.pop();
        if answered {
            // the capture has nothing of the server, but the client acknowledges its response
            c.smbd_response(response());
            let acknowledgment = c.frames.pop().expect("it is acknowledged");
            c.frames.pop();
            c.frames.push(acknowledgment);
        }
        c.cm_disconnect(S);
        let report = common::analyze_frames(&c.frames).0;
        let outcome = report.connections[0].outcome.as_ref().expect("it is for storage");
        assert_eq!(outcome.failed(), !answered, "{outcome:?}");
        let told: Vec<_> = report.findings.iter().map(|f| (f.rule, f.by, f.text.as_str())).collect();
        match (answered, &told[..]) {
            (true, told) => assert_eq!(told.iter().filter(|(rule, ..)| *rule == Rule::CmDisconnect).count(), 0),
            (false, [(Rule::CmDisconnect, Blame::Server, text)]) => {
                assert!(
                    text.starts_with("hung up (DREQ) ")
                        && text.ends_with(" after the Negotiate Request, without an answer"),
                    "{text}"
                );
            }
            (false, _) => panic!("{told:?}"),
        }
    }
}

#[test]
fn a_nak_that_ends_a_connection_ends_it_whoever_disconnects_then() {
    for by in [C, S] {
        let mut c = Conversation::default();
        c.smb();
        c.echo();
        c.echo_request();
        c.frames.pop();
        let psn = c.psn[C] - 1;
        c.acknowledge(C, psn, 0x61);
        c.cm_disconnect(by);
        let report = common::analyze_frames(&c.frames).0;
        let outcome = report.connections[0].outcome.as_ref().expect("it is for storage");
        assert_eq!((outcome.failed(), outcome.closed_by), (true, Some(1)), "{outcome:?}");
        assert_eq!(outcome.sentence(0), "The server broke off the connection with 1 request open");
    }
}

#[test]
fn a_capture_that_ends_while_a_request_is_open_says_so() {
    for (wait, success) in [(MILLISECOND, Success::Yes), (3 * SECOND, Success::Unknown)] {
        let mut c = Conversation::default();
        c.smb();
        c.echo();
        c.echo_request();
        c.wait(wait);
        let psn = c.psn[C] - 1;
        c.acknowledge(C, psn, 0x1f);
        let report = common::analyze_frames(&c.frames).0;
        assert_eq!(report.connections[0].outcome.as_ref().map(|o| o.success), Some(success), "{wait}");
    }
}

#[test]
fn reads_beyond_what_mpa_agreed_are_reported_on_iwarp() {
    for (ird, is_told) in [(1, true), (2, false)] {
        let mut c = Conversation::default();
        two_fetches_iwarp(&mut c, ird);
        let report = common::analyze_frames(&c.frames).0;
        let found: Vec<_> =
            report.findings.iter().filter(|f| f.rule == Rule::RdmaReadDepth).map(|f| (f.by, f.certainty)).collect();
        let expected: &[_] = if is_told { &[(Blame::Server, Certainty::IfNothingWasMissed)] } else { &[] };
        assert_eq!(
            found,
            expected,
            "{ird}: {:?}",
            report.findings.iter().map(|f| (f.rule, &f.text)).collect::<Vec<_>>()
        );
    }
}

#[test]
fn connections_share_one_budget_of_memory_and_its_cost_is_reported() {
    let mut c = Conversation::default();
    for n in 0..12 {
        c.client_port = 40_000 + n;
        c.tcp_open();
        // a message of 8 MiB of which the beginning comes
        let mut bytes = vec![0, 0x80, 0, 0];
        encode::empty(&c.header(Command::ECHO)).iter().for_each(|byte| bytes.push(*byte));
        bytes.resize(8000, 0);
        c.bytes(C, &bytes);
        (0..25).for_each(|_| c.bytes(C, &[0; 8000]));
    }
    let dropped = |memory_max: usize| {
        let mut pipeline = Pipeline::new(Options { memory_max, ..Options::default() });
        c.frames.iter().for_each(|frame| pipeline.frame(&frame.meta, &frame.bytes, &mut Off));
        let report = pipeline.finish().0;
        assert_eq!(report.connections.len(), 12);
        assert_eq!(
            report
                .findings
                .iter()
                .filter(|f| f.severity == Severity::Error && f.certainty == Certainty::Certain)
                .count(),
            0
        );
        report.capture.dropped.iter().map(|(what, n)| (*what, *n > 0)).collect::<Vec<_>>()
    };
    assert_eq!(dropped(512 << 20), []);
    assert_eq!(dropped(1 << 20), [("unfinished messages", true)]);
}

/// Payloads of requests that are not answered share the same budget. Those of requests that are answered leave it.
#[test]
fn payloads_share_the_budget_of_memory() {
    let options = |memory_max: usize| Options { memory_max, payloads: true, ..Options::default() };
    let dropped = |answered: bool, options: Options| {
        let mut c = Conversation::default();
        c.smb();
        for key in 1..40 {
            let header = c.smb2_read(1, 65_536, &[descriptor(key, 65_536)]);
            c.write(S, key, 65_536);
            if answered {
                c.reply(&header, 0, &Conversation::read_body(65_536));
            }
        }
        let mut pipeline = Pipeline::with_sink(options, common::Collected::default());
        c.frames.iter().for_each(|frame| pipeline.frame(&frame.meta, &frame.bytes, &mut Off));
        let (report, kept) = pipeline.finish();
        assert_eq!(
            report
                .findings
                .iter()
                .filter(|f| f.severity == Severity::Error && f.certainty == Certainty::Certain)
                .count(),
            0
        );
        let whole = kept.exchanges.iter().filter(|e| e.sha256.is_some()).count();
        (report.capture.dropped.iter().any(|(_, n)| *n > 0), whole)
    };
    assert_eq!(dropped(false, options(512 << 20)), (false, 39));
    assert!(matches!(dropped(false, options(1 << 20)), (true, 1..39)));
    assert_eq!(dropped(true, options(1 << 20)), (false, 39), "one at a time");
}

#[test]
fn a_status_has_the_name_of_its_version_of_nfs() {
    let mut c = Conversation::default();
    put_off(&mut c, SECOND);
    let report = common::analyze_frames(&c.frames).0;
    let error = report.findings.iter().find(|f| f.rule == Rule::RpcError).expect("it failed");
    assert_eq!(error.text, "answered GETATTR with ERR_JUKEBOX");
    assert_eq!(roots::text(&report, error), "Requests failed: GETATTR ERR_JUKEBOX ×2.");
}

#[test]
fn every_rule_has_a_sample_or_a_reason() {
    for &rule in Rule::ALL {
        let samples = CASES.iter().filter(|(r, ..)| *r == rule).count();
        let reasons = WITHOUT_SAMPLE.iter().filter(|(r, why)| *r == rule && why.len() > 10).count();
        assert_eq!(samples + reasons, 1, "{rule} has {samples} samples and {reasons} reasons for having none");
    }
}
