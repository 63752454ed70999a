//! Conversations of NFS over RDMA: those that keep the rules although they look unusual, and how sure and whose what is
//! found in the others is.

#[path = "common/build.rs"]
mod build;
mod common;

use build::*;
use rdmascope_analyzer::episodes::time::Owner;
use rdmascope_analyzer::finding::{Blame, Certainty, Finding};
use rdmascope_analyzer::outcome::{Ending, Success};
use rdmascope_analyzer::report::Report;
use rdmascope_analyzer::rules::{Rule, Severity};
use rdmascope_dissector::wire::ib::bth::Opcode;
use rdmascope_dissector::wire::ib::ext::{self, aeth_bytes};
use rdmascope_dissector::wire::nfs::v4;

type Make = fn(&mut Conversation);

const OP_PUTFH: u32 = 22;
const OP_READ: u32 = 25;
const OP_WRITE: u32 = 38;

fn run(make: impl Fn(&mut Conversation)) -> Report {
    let mut conversation = Conversation::default();
    make(&mut conversation);
    common::analyze_frames(&conversation.frames).0
}

/// Rule, severity, side and text of what is found, notes about good practice aside.
fn found(make: impl Fn(&mut Conversation)) -> Vec<(&'static str, Severity, Blame, String)> {
    let shown = |f: &&Finding| {
        f.rule.id().starts_with("RPC") || f.rule.id().starts_with("BUG") || f.rule.id().starts_with("RDMA")
    };
    let text = |f: &Finding| (f.rule.id(), f.severity, f.by, f.text.clone());
    run(make).findings.iter().filter(shown).map(text).collect()
}

/// The same by rule and side alone.
fn broken(make: impl Fn(&mut Conversation)) -> Vec<(&'static str, Blame)> {
    found(make).into_iter().map(|(rule, _, by, _)| (rule, by)).collect()
}

/// The peer of `by` writes these bytes to the memory of a key.
fn write_bytes(c: &mut Conversation, by: usize, key: u32, bytes: &[u8]) {
    let reth = Conversation::reth(key, address(key), bytes.len() as u32);
    c.requested(by, Opcode::RC_RDMA_WRITE_ONLY, &reth, bytes);
}

/// `by` reads these bytes out of the memory of a key.
fn read_bytes(c: &mut Conversation, by: usize, key: u32, bytes: &[u8]) {
    let psn = c.read_request(by, key, bytes.len() as u32);
    let aeth = aeth_bytes(ext::ACK, 1);
    c.roce(1 - by, Opcode::RC_RDMA_READ_RESPONSE_ONLY.0, psn, &aeth, bytes);
}

/// The header of a call of NFS 4, and its compound of these operations behind PUTFH.
fn compound(xid: u32, operations: &[&[u32]]) -> Vec<u8> {
    let count = operations.len() as u32 + 1;
    let head = [xid, 0, 2, 100_003, 4, 1, 0, 0, 0, 0, 0, 0, count, OP_PUTFH, 4, 0x1234_5678];
    words(&[&head[..], &operations.concat()].concat())
}

/// The reply to it.
fn results(xid: u32, results: &[&[u32]]) -> Vec<u8> {
    let count = results.len() as u32 + 1;
    let head = [xid, 1, 0, 0, 0, 0, 0, 0, count, OP_PUTFH, 0];
    words(&[&head[..], &results.concat()].concat())
}

/// WRITE of this many bytes, up to its data.
fn write(count: u32) -> [u32; 9] {
    [OP_WRITE, 0, 0, 0, 0, 0, 0, 2, count]
}

fn written(count: u32) -> [u32; 6] {
    [OP_WRITE, 0, count, 2, 0, 0]
}

/// READ of this many bytes.
fn read(count: u32) -> [u32; 8] {
    [OP_READ, 0, 0, 0, 0, 0, 0, count]
}

/// The result of a READ of 8 bytes, with its data.
const WAS_READ: [u32; 6] = [OP_READ, 0, 1, 8, 1, 2];

/// Its result, up to its data.
fn was_read(count: u32) -> [u32; 4] {
    [OP_READ, 0, 1, count]
}

/// A call in a Position-Zero Read chunk with the data of a WRITE in another; true if that stands first in the list.
fn long_write(c: &mut Conversation, data_first: bool) {
    c.nfs();
    let call = compound(2, &[&write(512), &[OP_PUTFH, 4, 7]]);
    let position = call.len() as u32 - 12;
    let mut reads = vec![read_segment(0, 5, call.len() as u32), read_segment(position, 6, 512)];
    if data_first {
        reads.reverse();
    }
    c.send(C, &Rpc { proc: 1, reads, ..Rpc::msg(2, &[]) }.bytes());
    read_bytes(c, S, 5, &call);
    c.read(S, 6, 512);
    c.send(S, &Rpc::msg(2, &results(2, &[&written(512), &[OP_PUTFH, 0]])).bytes());
}

/// Two WRITEs in one compound, each with its data in a chunk; true if the second chunk stands first in the list.
fn two_writes(c: &mut Conversation, second_first: bool) {
    c.nfs();
    let call = compound(2, &[&write(512), &write(256)]);
    let first = call.len() as u32 - 36;
    let mut reads = vec![read_segment(first, 5, 512), read_segment(first + 512 + 36, 6, 256)];
    if second_first {
        reads.reverse();
    }
    c.send(C, &Rpc { reads, ..Rpc::msg(2, &call) }.bytes());
    c.read(S, 5, 512);
    c.read(S, 6, 256);
    c.send(S, &Rpc::msg(2, &results(2, &[&written(512), &written(256)])).bytes());
}

#[test]
fn a_read_list_may_reduce_a_long_call_and_has_no_order() {
    let legal: [Make; 4] =
        [|c| long_write(c, false), |c| long_write(c, true), |c| two_writes(c, false), |c| two_writes(c, true)];
    for (n, make) in legal.into_iter().enumerate() {
        assert_eq!(found(make), [], "{n}");
    }
}

/// In a long call too, chunks lie within the message and do not overlap.
#[test]
fn a_chunk_past_the_end_of_a_long_call_breaks_the_rule() {
    let past = |position| {
        move |c: &mut Conversation| {
            c.nfs();
            let call = compound(2, &[&write(512)]);
            let reads = vec![read_segment(0, 5, call.len() as u32), read_segment(position, 6, 512)];
            c.send(C, &Rpc { proc: 1, reads, ..Rpc::msg(2, &[]) }.bytes());
        }
    };
    assert_eq!(broken(past(100)), []);
    let blamed = [("RPCRDMA-POSITION", Blame::Client), ("BUG-CVE-2026-89526", Blame::Client)];
    assert_eq!(broken(past(104)), blamed);
}

/// A READ of NFS 4 whose data stands in the message, with one Write chunk of these segments.
fn read_in_the_message(c: &mut Conversation, offered: &[u32]) {
    c.nfs();
    let chunks = |length| vec![offered.iter().map(|key| segment(*key, length)).collect()];
    c.send(C, &Rpc { writes: chunks(512), ..Rpc::msg(2, &compound(2, &[&read(8)])) }.bytes());
    let reply = results(2, &[&WAS_READ]);
    c.send(S, &Rpc { writes: chunks(0), ..Rpc::msg(2, &reply) }.bytes());
}

/// An empty chunk asks for the result in the message.
#[test]
fn a_result_stands_in_the_message_if_its_chunk_has_no_segments() {
    let all = found(|c| read_in_the_message(c, &[]));
    let shown: Vec<_> = all.iter().map(|(rule, severity, ..)| (*rule, *severity)).collect();
    assert_eq!(shown, [("BUG-CVE-2026-89532", Severity::Note)]);
    assert_eq!(broken(|c| read_in_the_message(c, &[5])), [("RPCRDMA-DDP", Blame::Server)]);
}

/// A READ of NFS 3 for which `written` bytes are written twice, and whose reply says `count`.
fn read_twice(c: &mut Conversation, written: u32, count: u32) {
    c.nfs();
    let payload = words(&[2, 0, 2, 100_003, 3, 6, 0, 0, 0, 0, 4, 0x1234_5678, 0, 0, 1024]);
    c.send(C, &Rpc { writes: vec![vec![segment(5, 1024)]], ..Rpc::msg(2, &payload) }.bytes());
    (0..2).for_each(|_| c.write(S, 5, written));
    let payload = words(&[2, 1, 0, 0, 0, 0, 0, 0, count, 0, count]);
    c.send(S, &Rpc { writes: vec![vec![segment(5, count)]], ..Rpc::msg(2, &payload) }.bytes());
}

/// A chunk returns what belongs to the reply: how often it was written, and what more, is free. Padding is not.
#[test]
fn bytes_of_a_chunk_may_be_written_twice_and_not_be_returned() {
    for (written, count, expected) in [
        (512, 512, None),
        (1024, 512, None),
        (516, 512, None),
        (516, 509, None),
        (512, 509, Some("wrote 512 bytes into a chunk and says 509")),
        (510, 509, Some("wrote 510 bytes into a chunk and says 509")),
    ] {
        let texts: Vec<_> = found(|c| read_twice(c, written, count)).into_iter().map(|(.., text)| text).collect();
        assert_eq!(texts, Vec::from_iter(expected), "{written} {count}");
    }
}

/// A client tries version 2, is told to use another, and does so.
#[test]
fn a_client_that_steps_down_to_version_1_made_no_mistake() {
    for (after, severity) in [(1, Severity::Note), (2, Severity::Error)] {
        let all = found(|c| {
            c.nfs();
            c.send(C, &Rpc { version: 2, ..Rpc::msg(2, &null_call(2)) }.bytes());
            c.send(S, &words(&[2, 2, 32, 4, 1, 1, 1]));
            c.send(C, &Rpc { version: after, ..Rpc::msg(2, &null_call(2)) }.bytes());
            if after == 1 {
                c.send(S, &Rpc::msg(2, &null_reply(2)).bytes());
            }
        });
        let shown: Vec<_> = all.iter().map(|(rule, severity, ..)| (*rule, *severity)).collect();
        let expected = [("RPCRDMA-VERSION", severity), ("RPCRDMA-ERROR", severity)];
        assert!(expected.iter().all(|one| shown.contains(one)) && shown.len() == 2, "{after}: {all:?}");
    }
}

/// Both sides may answer with an error.
#[test]
fn a_client_may_refuse_a_reply() {
    for (xid, expected) in [(2, vec!["RPCRDMA-ERROR"]), (9, vec!["RPCRDMA-ERROR", "RPCRDMA-XID"])] {
        let report = run(|c| {
            c.nfs();
            c.null(2);
            c.send(C, &words(&[xid, 1, 32, 4, 2]));
            c.null(3);
        });
        let errors = report.findings.iter().filter(|f| f.severity == Severity::Error);
        let mut rules: Vec<_> = errors.clone().map(|f| f.rule.id()).collect();
        rules.sort_unstable();
        assert_eq!(rules, expected, "{xid}");
        if xid == 2 {
            let error = errors.clone().next().expect("an error");
            assert_eq!(error.text, "the reply to XID 0x00000002 was refused by the client: ERR_CHUNK");
            assert_eq!(error.why, Some("A reply that its receiver cannot use"));
        }
    }
}

/// A server says that it wrote what it did not read.
#[test]
fn a_server_reads_what_it_writes() {
    // the data is in two segments
    let write_of = |read: &'static [u32]| {
        move |c: &mut Conversation| {
            c.nfs();
            let call = compound(2, &[&write(512)]);
            let reads = [5, 6].map(|key| read_segment(call.len() as u32, key, 256)).to_vec();
            c.send(C, &Rpc { reads, ..Rpc::msg(2, &call) }.bytes());
            read.iter().for_each(|key| c.read(S, *key, 256));
            c.send(S, &Rpc::msg(2, &results(2, &[&written(512)])).bytes());
            c.null(3);
        }
    };
    let half = Some("says it wrote 512 bytes of a WRITE, but read 256 of them");
    let cases: [(&[u32], Option<&str>); 6] = [
        (&[5, 6], None),
        (&[6, 5], None),
        (&[5], half),
        (&[6], half),
        (&[5, 5], half),
        (&[], Some("says it wrote 512 bytes of a WRITE, but read none of them")),
    ];
    for (read, expected) in cases {
        let texts: Vec<_> = found(write_of(read)).into_iter().map(|(.., by, text)| (by, text)).collect();
        assert_eq!(texts, Vec::from_iter(expected.map(|text| (Blame::Server, text.to_owned()))), "{read:?}");
    }
    // a capture that lacks RDMA says nothing about it, and one that lacks responses knows what was asked for
    for (skipped, lacking) in [(0, 2), (2, 2), (0, 4), (1, 1), (3, 1)] {
        let mut c = Conversation::default();
        write_of(&[5, 6])(&mut c);
        let of_read = |frame: &common::Frame| frame.bytes.len() < 80 && frame.bytes[42] == 0x0c;
        let first = c.frames.iter().position(of_read).expect("a Read") + skipped;
        c.frames.drain(first..first + lacking);
        let report = common::analyze_frames(&c.frames).0;
        let ids = common::ids(&report);
        assert!(report.findings.iter().all(|f| f.rule.id() != "RDMA-LENGTH"), "{skipped} {lacking}: {ids:?}");
    }
}

/// The server may have executed the first call of a connection before, and answer from its cache of replies (RFC 8881
/// 2.10.6.1.3).
#[test]
fn a_call_that_may_have_been_executed_before_needs_no_data() {
    let write_of = |c: &mut Conversation, xid: u32, keys: [u32; 2], is_read: bool| {
        let call = compound(xid, &[&write(512)]);
        let reads = keys.map(|key| read_segment(call.len() as u32, key, 256)).to_vec();
        c.send(C, &Rpc { reads, ..Rpc::msg(xid, &call) }.bytes());
        keys.iter().filter(|_| is_read).for_each(|key| c.read(S, *key, 256));
        c.send(S, &Rpc::msg(xid, &results(xid, &[&written(512)])).bytes());
    };
    for (has_worked, expected) in [(false, Certainty::Guess), (true, Certainty::IfNothingWasMissed)] {
        let mut c = Conversation::default();
        c.nfs();
        if has_worked {
            write_of(&mut c, 2, [7, 8], true);
        }
        write_of(&mut c, 3, [5, 6], false);
        c.null(4);
        let report = common::analyze_frames(&c.frames).0;
        let found: Vec<_> = report.findings.iter().map(|f| (f.rule, f.certainty, f.why.is_some())).collect();
        assert_eq!(found, [(Rule::RdmaLength, expected, !has_worked)]);
    }
}

/// Each READ and WRITE of a compound counts, and has a chunk of its own.
#[test]
fn a_compound_may_have_several_reads_and_writes() {
    let two_reads = |first: u32, second: u32| {
        move |c: &mut Conversation| {
            c.nfs();
            let chunks = |lengths: [u32; 2]| vec![vec![segment(5, lengths[0])], vec![segment(6, lengths[1])]];
            let call = compound(2, &[&read(512), &read(256)]);
            c.send(C, &Rpc { writes: chunks([512, 256]), ..Rpc::msg(2, &call) }.bytes());
            c.write(S, 5, 512);
            c.write(S, 6, 256);
            let reply = results(2, &[&was_read(first), &was_read(second)]);
            c.send(S, &Rpc { writes: chunks([512, 256]), ..Rpc::msg(2, &reply) }.bytes());
        }
    };
    let length = [("RPCRDMA-CHUNK-LENGTH", Blame::Server)];
    assert_eq!(broken(two_reads(512, 256)), []);
    assert_eq!(broken(two_reads(508, 256)), length);
    assert_eq!(broken(two_reads(512, 252)), length);
    let bytes = |report: Report, name: &str| {
        let row = report.connections[0].commands.iter().find(|row| row.name == name).expect("the row");
        row.bytes
    };
    assert_eq!(bytes(run(two_reads(512, 256)), "READ"), 768);
    assert_eq!(bytes(run(|c| two_writes(c, false)), "WRITE"), 768);
    let unequal = broken(|c| {
        c.nfs();
        let call = compound(2, &[&write(512), &write(256)]);
        let first = call.len() as u32 - 36;
        let reads = vec![read_segment(first, 5, 512), read_segment(first + 512 + 36, 6, 128)];
        c.send(C, &Rpc { reads, ..Rpc::msg(2, &call) }.bytes());
    });
    assert_eq!(unequal, [("RPCRDMA-CHUNK-LENGTH", Blame::Client)]);
}

/// A compound of a READ whose reply is in the Reply chunk, and what the server writes there.
fn long_reply(c: &mut Conversation, reply: &[u8]) {
    c.nfs();
    let call = Rpc { reply: Some(vec![segment(5, 512)]), ..Rpc::msg(2, &compound(2, &[&read(8)])) }.bytes();
    c.send(C, &call);
    write_bytes(c, S, 5, reply);
    let chunk = Some(vec![segment(5, reply.len() as u32)]);
    c.send(S, &Rpc { proc: 1, reply: chunk, ..Rpc::msg(2, &[]) }.bytes());
    c.null(3);
}

#[test]
fn a_reply_in_a_chunk_is_a_reply_to_its_call() {
    let good = results(2, &[&WAS_READ]);
    let cases: [(Vec<u8>, &[&str]); 6] = [
        (good.clone(), &[]),
        (vec![0; 200], &["RPC-MALFORMED", "RPCRDMA-XID"]),
        (results(9, &[&WAS_READ]), &["RPCRDMA-XID"]),
        (good[..good.len() - 8].to_vec(), &["RPC-MALFORMED"]),
        (results(2, &[&WAS_READ, &WAS_READ]), &["RPC-MALFORMED"]),
        (results(2, &[&written(8)]), &["RPC-MALFORMED"]),
    ];
    for (n, (reply, expected)) in cases.into_iter().enumerate() {
        let mut all: Vec<_> = broken(|c| long_reply(c, &reply));
        all.sort_unstable_by_key(|(rule, _)| *rule);
        let expected: Vec<_> = expected.iter().map(|rule| (*rule, Blame::Server)).collect();
        assert_eq!(all, expected, "{n}");
    }
}

#[test]
fn a_call_has_all_its_arguments_and_the_id_of_its_header() {
    let long = |call: Vec<u8>| {
        move |c: &mut Conversation| {
            c.nfs();
            c.send(C, &Rpc { proc: 1, reads: vec![read_segment(0, 5, call.len() as u32)], ..Rpc::msg(2, &[]) }.bytes());
            read_bytes(c, S, 5, &call);
            c.send(S, &Rpc::msg(2, &results(2, &[&WAS_READ])).bytes());
            c.null(3);
        }
    };
    let whole = compound(2, &[&read(8)]);
    assert_eq!(broken(long(whole.clone())), []);
    assert_eq!(broken(long(compound(9, &[&read(8)]))), [("RPCRDMA-XID", Blame::Client)]);
    assert_eq!(broken(long(whole[..whole.len() - 4].to_vec())), [("RPC-MALFORMED", Blame::Client)]);
    let inline = broken(|c| {
        c.nfs();
        c.send(C, &Rpc::msg(2, &whole[..whole.len() - 4]).bytes());
    });
    assert_eq!(inline, [("RPC-MALFORMED", Blame::Client)]);
}

/// Data in a chunk whose position is not that of the data.
#[test]
fn an_argument_begins_at_each_read_chunk() {
    let at = |back: u32| {
        broken(move |c| {
            c.nfs();
            let call = compound(2, &[&write(512)]);
            let reads = vec![read_segment(call.len() as u32 - back, 5, 512)];
            c.send(C, &Rpc { reads, ..Rpc::msg(2, &call) }.bytes());
        })
    };
    assert_eq!(at(0), []);
    assert_eq!(at(4), [("RPCRDMA-POSITION", Blame::Client)]);
    assert_eq!(at(8), [("RPCRDMA-POSITION", Blame::Client)]);
}

/// A call of the reverse direction: CB_COMPOUND with CB_RECALL.
fn recall(xid: u32) -> Vec<u8> {
    words(&[xid, 0, 2, 0x4000_0000, 1, 1, 0, 0, 0, 0, 0, 0, 0, 1, 4, 1, 1, 2, 3, 0, 4, 0x1234_5678])
}

/// The reply to it.
fn recalled(xid: u32) -> Vec<u8> {
    words(&[xid, 1, 0, 0, 0, 0, 0, 0, 1, 4, 0])
}

/// Time of a connection's requests, in ns.
fn owned(report: &Report) -> [i64; 2] {
    [Owner::Client, Owner::Server].map(|owner| report.connections[0].time.of(owner))
}

/// The client replies to callbacks: their time is its own.
#[test]
fn a_slow_answer_to_a_callback_is_the_client_s() {
    let make = |c: &mut Conversation| {
        c.nfs();
        for xid in 2..40 {
            c.send(S, &Rpc::msg(xid, &recall(xid)).bytes());
            c.wait(if xid == 39 { 3 * SECOND } else { 0 });
            c.send(C, &Rpc::msg(xid, &recalled(xid)).bytes());
        }
    };
    let report = run(make);
    let [client, server] = owned(&report);
    assert!(client >= 3 * SECOND && server < SECOND, "{client} {server}");
    assert_eq!(broken(make), [("RPC-SLOW", Blame::Client)]);
}

const OP_DELEGRETURN: u32 = 8;
const OP_LOOKUP: u32 = 15;
const OP_CREATE_SESSION: u32 = 43;

/// The delegation that [`recall`] asks for, and another one.
const DELEGATION: [u32; 4] = [1, 1, 2, 3];
const OTHER: [u32; 4] = [1, 9, 9, 9];

/// Many READs, and one during which the server asks for the delegation of `file`. The client answers the callback with
/// `status`, and returns a delegation after a second if there is one here. The READ is answered six seconds after that.
fn read_while_recalled(c: &mut Conversation, file: u32, status: u32, returned: Option<[u32; 4]>) {
    c.nfs();
    for xid in 2..40 {
        c.send(C, &Rpc::msg(xid, &compound(xid, &[&read(8)])).bytes());
        c.send(S, &Rpc::msg(xid, &results(xid, &[&WAS_READ])).bytes());
    }
    c.send(C, &Rpc::msg(90, &compound(90, &[&read(8)])).bytes());
    let mut call = recall(7);
    let at = call.len() - 4;
    call[at..].copy_from_slice(&file.to_be_bytes());
    c.send(S, &Rpc::msg(7, &call).bytes());
    c.send(C, &Rpc::msg(7, &words(&[7, 1, 0, 0, 0, 0, status, 0, 1, 4, status])).bytes());
    c.wait(SECOND);
    if let Some(delegation) = returned {
        c.send(C, &Rpc::msg(91, &compound(91, &[&[&[OP_DELEGRETURN][..], &delegation].concat()])).bytes());
        c.send(S, &Rpc::msg(91, &results(91, &[&[OP_DELEGRETURN, 0]])).bytes());
    }
    c.wait(6 * SECOND);
    c.send(S, &Rpc::msg(90, &results(90, &[&WAS_READ])).bytes());
}

/// A server that needs a delegation of its client cannot go on before it has it.
#[test]
fn the_client_is_waited_for_until_it_returns_a_delegation() {
    const FILE: u32 = 0x1234_5678;
    let waited = |file: u32, status: u32, returned: Option<[u32; 4]>| {
        let make = move |c: &mut Conversation| read_while_recalled(c, file, status, returned);
        let slow = broken(make).contains(&("RPC-SLOW", Blame::Server));
        let [client, server] = owned(&run(make)).map(|time| time / SECOND);
        (client, server, slow)
    };
    assert_eq!(waited(FILE, 0, Some(DELEGATION)), (1, 6, true), "the server had it back then");
    assert_eq!(waited(FILE, 0, None), (7, 0, false), "it never had it back");
    assert_eq!(waited(FILE, 0, Some(OTHER)), (7, 0, false), "that was another one");
    assert_eq!(waited(7, 0, Some(DELEGATION)), (0, 7, true), "that is another file");
    assert_eq!(waited(FILE, v4::Status::BADHANDLE.0, None), (0, 7, true), "the client has nothing to return");
    assert_eq!(waited(FILE, v4::Status::DELAY.0, None), (7, 0, false), "it asks for more time");
}

/// A call for a name may be about the file whose delegation the client still has, or not.
#[test]
fn where_it_is_not_known_whose_delegation_was_asked_for_nobody_is_blamed_for_sure() {
    let report = run(|c| {
        c.nfs();
        for xid in 2..40 {
            c.send(C, &Rpc::msg(xid, &compound(xid, &[&read(8)])).bytes());
            c.send(S, &Rpc::msg(xid, &results(xid, &[&WAS_READ])).bytes());
        }
        c.send(C, &Rpc::msg(90, &compound(90, &[&[OP_LOOKUP, 4, 0x6461_7461]])).bytes());
        c.send(S, &Rpc::msg(7, &recall(7)).bytes());
        c.send(C, &Rpc::msg(7, &recalled(7)).bytes());
        c.wait(9 * SECOND);
        c.send(S, &Rpc::msg(90, &results(90, &[&[OP_LOOKUP, 0]])).bytes());
    });
    assert_eq!(owned(&report).map(|time| time / SECOND), [0, 0]);
    let told = report.findings.iter().find(|f| f.rule.id() == "RPC-SLOW").expect("it took long");
    assert!(told.certainty == Certainty::Guess && told.why.is_some_and(|why| why.contains("CB_RECALL")));
}

const OP_GETFH: u32 = 10;
/// The name "data".
const NAME: [u32; 3] = [OP_LOOKUP, 4, 0x6461_7461];

/// The call of a compound for a file in a directory, by the handle of that.
fn in_directory(xid: u32, directory: u32, operations: &[&[u32]]) -> Vec<u8> {
    let mut call = compound(xid, operations);
    call[15 * 4..16 * 4].copy_from_slice(&directory.to_be_bytes());
    call
}

/// Files of one name in two directories are two files: the delegation of one holds up no call for the other.
#[test]
fn the_delegation_of_a_file_is_not_that_of_its_namesake() {
    let waited = |directory: u32| {
        let report = run(|c| {
            c.nfs();
            // the handle that is recalled is that of the file in directory 1
            c.send(C, &Rpc::msg(2, &in_directory(2, 1, &[&NAME, &[OP_GETFH]])).bytes());
            c.send(S, &Rpc::msg(2, &results(2, &[&[OP_LOOKUP, 0], &[OP_GETFH, 0, 4, 0x1234_5678]])).bytes());
            c.send(C, &Rpc::msg(90, &in_directory(90, directory, &[&NAME])).bytes());
            c.send(S, &Rpc::msg(7, &recall(7)).bytes());
            c.send(C, &Rpc::msg(7, &recalled(7)).bytes());
            c.wait(9 * SECOND);
            c.send(S, &Rpc::msg(90, &results(90, &[&[OP_LOOKUP, 0]])).bytes());
        });
        owned(&report).map(|time| time / SECOND)
    };
    assert_eq!([waited(1), waited(2)], [[9, 0], [0, 9]]);
}

/// A call that is put off is not served by a call for another file of that name.
#[test]
fn a_call_is_put_off_until_the_same_file_is_served() {
    let told = |served: u32| {
        let report = run(|c| {
            c.nfs();
            for (xid, directory, status) in [(2, 1, v4::Status::DELAY.0), (3, 1, v4::Status::DELAY.0), (4, served, 0)] {
                c.send(C, &Rpc::msg(xid, &in_directory(xid, directory, &[&NAME])).bytes());
                let mut reply = results(xid, &[&[OP_LOOKUP, status]]);
                reply[6 * 4..7 * 4].copy_from_slice(&status.to_be_bytes());
                c.send(S, &Rpc::msg(xid, &reply).bytes());
                c.wait(2 * SECOND);
            }
        });
        let delayed = report.findings.iter().find(|f| f.rule.id() == "RPC-DELAYED").expect("it was put off");
        delayed.text.rsplit_once(", ").expect("a comma").1.to_owned()
    };
    assert_eq!([told(1), told(2)], ["until another answer came", "and no other answer came"]);
}

/// While the client still has a delegation, what the server answers at once did not wait for it.
#[test]
fn what_is_answered_before_a_delegation_is_returned_did_not_wait() {
    let [client, _] = owned(&run(|c| {
        c.nfs();
        c.send(S, &Rpc::msg(7, &recall(7)).bytes());
        c.send(C, &Rpc::msg(7, &recalled(7)).bytes());
        c.send(C, &Rpc::msg(90, &compound(90, &[&read(8)])).bytes());
        c.wait(SECOND / 2);
        c.send(S, &Rpc::msg(90, &results(90, &[&WAS_READ])).bytes());
        c.wait(9 * SECOND);
        c.null(91);
    }));
    assert!(client < SECOND / 4, "{client}");
}

/// A client need not answer what its server asks when it unmounts.
#[test]
fn a_callback_that_crosses_an_unmount_is_no_failure() {
    let report = run(|c| {
        c.nfs();
        c.send(S, &Rpc::msg(7, &recall(7)).bytes());
        c.cm_disconnect(C);
    });
    let outcome = report.connections[0].outcome.as_ref().expect("an outcome");
    assert_eq!((outcome.ending, outcome.success), (Ending::Closed, Success::Yes));
}

/// The text of the finding that explains why nothing was mounted.
fn unmounted(make: impl Fn(&mut Conversation)) -> Option<(String, Certainty, Option<&'static str>)> {
    let report = run(make);
    let outcome = report.connections[0].outcome.as_ref().expect("an outcome");
    let is_it = |f: &&Finding| Some((f.rule, f.by)) == outcome.cause;
    let why = report.findings.iter().find(is_it).filter(|_| outcome.ending == Ending::NoMount);
    why.map(|f| (f.text.clone(), f.certainty, f.why))
}

/// A client of NFS 3 whose first call is answered with this, and which then leaves.
fn first_call(answer: &'static [u32]) -> impl Fn(&mut Conversation) {
    move |c| {
        c.connect(20049);
        c.send(C, &Rpc::msg(1, &null_call(1)).bytes());
        c.send(S, &Rpc::msg(1, &words(&[&[1, 1], answer].concat())).bytes());
        c.cm_disconnect(C);
    }
}

#[test]
fn a_client_whose_first_call_is_refused_has_mounted_nothing() {
    // accepted, with PROG_UNAVAIL and PROG_MISMATCH; denied, with AUTH_TOOWEAK
    for (answer, name) in
        [(&[0, 0, 0, 1][..], "PROG_UNAVAIL"), (&[0, 0, 0, 2, 4, 4], "PROG_MISMATCH"), (&[1, 1, 5], "AUTH_TOOWEAK")]
    {
        let (text, certainty, why) = unmounted(first_call(answer)).expect("it was refused");
        assert_eq!(text, format!("The server answered NULL with {name}"));
        assert!(certainty == Certainty::Guess && why.is_some(), "or a tool asked");
    }
    assert_eq!(unmounted(first_call(&[0, 0, 0, 0])), None, "it was not refused");
}

#[test]
fn an_export_whose_facts_are_refused_is_not_mounted() {
    const FSINFO: u32 = 19;
    let make = |status: u32, goes_on: bool| {
        move |c: &mut Conversation| {
            c.nfs();
            c.send(C, &Rpc::msg(2, &words(&[2, 0, 2, 100_003, 3, FSINFO, 0, 0, 0, 0, 4, 0x1234_5678])).bytes());
            c.send(S, &Rpc::msg(2, &words(&[2, 1, 0, 0, 0, 0, status, 0])).bytes());
            if goes_on {
                c.send(C, &Rpc::msg(3, &words(&[3, 0, 2, 100_003, 3, 3, 0, 0, 0, 0, 4, 0x1234_5678, 1, 0])).bytes());
                c.send(S, &Rpc::msg(3, &words(&[3, 1, 0, 0, 0, 0, 2, 0])).bytes());
            }
            c.cm_disconnect(C);
        }
    };
    let text = unmounted(make(v4::Status::ACCESS.0, false)).map(|(text, ..)| text);
    assert_eq!(text.as_deref(), Some("The server answered FSINFO with ERR_ACCESS"));
    assert_eq!(unmounted(make(v4::Status::ACCESS.0, true)), None, "the client went on");
}

/// A client of NFS 4 that sets up a session, looks for a path `times` times, and leaves after a while.
#[test]
fn a_path_that_is_refused_is_not_mounted() {
    let make = |status: u32, times: u32, stays: i64| {
        move |c: &mut Conversation| {
            c.nfs();
            let channel = [0, 1 << 20, 1 << 20, 4096, 16, 64, 0];
            let head = |xid: u32| [xid, 0, 2, 100_003, 4, 1, 0, 0, 0, 0, 0, 1, 1];
            let done = |xid: u32, status: u32| [xid, 1, 0, 0, 0, 0, status, 0, 1];
            let create = [&head(2)[..], &[OP_CREATE_SESSION, 1, 2, 1, 0], &channel, &channel, &[0x4000_0000, 1, 0]];
            c.send(C, &Rpc::msg(2, &words(&create.concat())).bytes());
            let created = [&done(2, 0)[..], &[OP_CREATE_SESSION, 0, 1, 2, 3, 4, 1, 0], &channel, &channel];
            c.send(S, &Rpc::msg(2, &words(&created.concat())).bytes());
            for xid in 3..3 + times {
                c.send(C, &Rpc::msg(xid, &compound(xid, &[&[OP_LOOKUP, 4, 0x6461_7461]])).bytes());
                let refused = [xid, 1, 0, 0, 0, 0, status, 0, 2, OP_PUTFH, 0, OP_LOOKUP, status];
                c.send(S, &Rpc::msg(xid, &words(&refused)).bytes());
            }
            c.wait(stays);
            c.cm_disconnect(C);
        }
    };
    let (text, certainty, _) = unmounted(make(v4::Status::NOENT.0, 1, 0)).expect("it was refused");
    assert_eq!((text.as_str(), certainty), ("The server answered LOOKUP with ERR_NOENT", Certainty::Guess));
    assert_eq!(unmounted(make(0, 1, 0)), None, "it is there");
    assert_eq!(
        unmounted(make(v4::Status::NOENT.0, 1, 5 * SECOND)),
        None,
        "the client stayed: a user looked for a name"
    );
    assert_eq!(unmounted(make(v4::Status::NOENT.0, 20, 0)), None, "a user looked for many");
}

/// A server that waits for many seconds says so at once.
#[test]
fn a_call_that_is_put_off_is_told_with_its_time() {
    let make = |last: u32| {
        move |c: &mut Conversation| {
            c.nfs();
            for (xid, status) in [(2, v4::Status::GRACE.0), (3, v4::Status::GRACE.0), (4, last)] {
                c.send(C, &Rpc::msg(xid, &compound(xid, &[&read(8)])).bytes());
                if status == 0 {
                    c.send(S, &Rpc::msg(xid, &results(xid, &[&WAS_READ])).bytes());
                } else {
                    let refused = [xid, 1, 0, 0, 0, 0, status, 0, 2, OP_PUTFH, 0, OP_READ, status];
                    c.send(S, &Rpc::msg(xid, &words(&refused)).bytes());
                }
                c.wait(5 * SECOND);
            }
        }
    };
    for (last, tries, end) in
        [(0, "twice", "until another answer came"), (v4::Status::GRACE.0, "3 times", "and no other answer came")]
    {
        let all = found(make(last));
        let told: Vec<_> = all.iter().filter(|(rule, ..)| *rule == "RPC-DELAYED").collect();
        let [(_, severity, by, text)] = told[..] else { panic!("{all:?}") };
        assert_eq!((*severity, *by), (Severity::Warn, Blame::Server));
        let begins = format!("answered READ {tries} with ERR_GRACE: to be tried again, for 10.0 s in all");
        assert!(text.starts_with(&begins) && text.ends_with(end), "{text}");
    }
}
