//! Delays of traffic, one conversation each: the interval, its cause and its sender.

#[path = "common/build.rs"]
mod build;
mod common;

use build::*;
use rdmascope_analyzer::episodes::time::{Behind, Owner};
use rdmascope_analyzer::episodes::{Cause, Episode, Kind};
use rdmascope_analyzer::op::End;
use rdmascope_dissector::wire::smb2::encode;
use rdmascope_dissector::wire::smb2::header::{Command, Header, flags};

const MS: i64 = 1_000_000;

/// Delays of one cause in the conversation that `make` builds, and its requests.
fn episodes_of(cause: Cause, make: impl FnOnce(&mut Conversation)) -> (Vec<Episode>, common::Collected) {
    let mut c = Conversation::default();
    make(&mut c);
    let (report, kept) = common::analyze_frames(&c.frames);
    let episodes = report.connections.iter().flat_map(|c| c.episodes.list.iter().copied());
    (episodes.filter(|e| e.cause == cause).collect(), kept)
}

/// The only one, which is a credit stall of an end.
fn stall(episodes: &[Episode], by: End) -> Episode {
    let [only] = episodes else { panic!("{episodes:?}") };
    assert_eq!((only.kind, only.by, only.packets), (Kind::Credit, Some(by), 0));
    *only
}

#[test]
fn a_client_without_credits_of_smb2_waits_for_a_reply() {
    // NEGOTIATE grants two
    let talk = |c: &mut Conversation, pause: i64| {
        c.smb2_credits = 2;
        c.smb();
        let headers = [c.echo_request(), c.echo_request()];
        c.wait(7 * MS);
        c.reply(&headers[0], 0, &[4, 0, 0, 0]);
        c.wait(pause);
        c.echo();
        c.reply(&headers[1], 0, &[4, 0, 0, 0]);
    };
    let (episodes, kept) = episodes_of(Cause::Smb2Credits, |c| talk(c, 0));
    let lasted = stall(&episodes, End::A).lasted(0);
    assert!((7 * MS..8 * MS).contains(&lasted), "{lasted}");
    assert!(kept.exchanges.iter().all(|e| e.time.of(Owner::Credit) == 0), "who was sent already did not wait for it");
    assert_eq!(episodes_of(Cause::Smb2Credits, |c| talk(c, 5 * MS)).0, [], "it had nothing to send");
}

#[test]
fn who_waits_longer_than_it_was_asked_to_is_late_itself() {
    let talk = |wait: i64| {
        episodes_of(Cause::SentLate, |c| {
            c.smb();
            c.echo();
            let (at, psn) = (c.frames.len(), c.psn[C]);
            let header = c.echo_request();
            let packet = c.frames[at].bytes.clone();
            c.frames.truncate(at + 1);
            // 1.28 ms
            c.acknowledge(C, psn, 0x2e);
            c.wait(wait);
            c.frame(packet);
            c.acknowledge(C, psn, 0x1f);
            c.reply(&header, 0, &[4, 0, 0, 0]);
        })
    };
    let (episodes, kept) = talk(300 * MS);
    let [late] = episodes[..] else { panic!("{episodes:?}") };
    assert!((298 * MS..300 * MS).contains(&late.lasted(0)), "{}", late.lasted(0));
    let echo = kept.exchanges.iter().filter(|e| e.command == "ECHO").max_by_key(|e| e.latency()).expect("two ECHOs");
    let of = |owner| echo.time.of(owner) / MS;
    assert_eq!((of(Owner::Client), of(Owner::Rnr)), (late.lasted(0) / MS, 1));
    assert_eq!(talk(20 * MS).0, [], "clocks are coarse");
    let (episodes, _) = talk(269 * MS);
    assert_eq!(
        episodes.iter().map(|e| e.kind).collect::<Vec<_>>(),
        [Kind::Recovery],
        "what it sent may have been lost"
    );
}

/// A server that may not send its reply is not slow: the client owes it a credit.
#[test]
fn a_server_without_credits_of_smb_direct_waits_for_the_client() {
    let talk = |granted: u16| {
        let mut c = Conversation::default();
        c.negotiate(request(), response());
        // one credit with each message of the client
        c.first_data = false;
        c.smb2_negotiate();
        (0..20).for_each(|_| c.echo());
        let header = c.header(Command::ECHO);
        let bytes = encode::empty(&header);
        c.data(C, carrying(granted, bytes.len(), 0), &bytes);
        c.wait(1000 * MS);
        c.data(C, empty(2), &[]);
        c.reply(&header, 0, &[4, 0, 0, 0]);
        let (report, kept) = common::analyze_frames(&c.frames);
        let last = kept.exchanges.last().expect("an ECHO").time;
        (
            last.of(Owner::Credit) / MS,
            last.of(Owner::Server) / MS,
            common::ids(&report).iter().any(|(id, _)| *id == "SMB2-SLOW"),
        )
    };
    let (credit, server, slow) = talk(0);
    assert!(credit >= 999 && server == 0 && !slow, "{credit} {server} {slow}");
    let (credit, server, slow) = talk(1);
    assert!(credit == 0 && server >= 999 && slow, "{credit} {server} {slow}");
}

#[test]
fn a_caller_with_as_many_calls_as_credits_of_rpc_over_rdma_waits_for_a_reply() {
    let talk = |c: &mut Conversation, calls: u32| {
        c.nfs();
        (2..2 + calls).for_each(|xid| c.send(C, &Rpc::msg(xid, &null_call(xid)).bytes()));
        c.wait(3 * MS);
        c.send(S, &Rpc::msg(2, &null_reply(2)).bytes());
        c.send(C, &Rpc::msg(90, &null_call(90)).bytes());
    };
    let (episodes, _) = episodes_of(Cause::RpcRdmaCredits, |c| talk(c, 32));
    let lasted = stall(&episodes, End::A).lasted(0);
    assert!((3 * MS..4 * MS).contains(&lasted), "{lasted}");
    assert_eq!(episodes_of(Cause::RpcRdmaCredits, |c| talk(c, 31)).0, [], "there was room for one");
}

#[test]
fn a_server_with_as_many_reads_as_its_peer_answers_waits_for_the_first() {
    let talk = |c: &mut Conversation, depth: u8| {
        c.responder_resources = depth;
        c.smb();
        let header = c.smb2_write(1024, &[descriptor(5, 512), descriptor(6, 512)]);
        let first = c.read_request(S, 5, 512);
        c.wait(2 * MS);
        c.read_response(C, first, 512);
        c.read(S, 6, 512);
        c.reply(&header, 0, &Conversation::write_body(1024));
    };
    let (episodes, _) = episodes_of(Cause::ReadDepth, |c| talk(c, 1));
    let lasted = stall(&episodes, End::B).lasted(0);
    assert!((2 * MS..3 * MS).contains(&lasted), "{lasted}");
    assert_eq!(episodes_of(Cause::ReadDepth, |c| talk(c, 2)).0, [], "it might have asked at once");
}

/// LOCK of nine bytes: 2 for an exclusive lock, 4 to unlock.
fn lock(c: &mut Conversation, file: u8, offset: u8, flags: u8) -> Header {
    let header = c.header(Command::LOCK);
    let mut bytes = Vec::new();
    header.emit(&mut bytes);
    bytes.extend([48, 0, 1, 0, 0, 0, 0, 0]);
    bytes.extend([file; 16]);
    bytes.extend([[offset, 0, 0, 0, 0, 0, 0, 0], [9, 0, 0, 0, 0, 0, 0, 0], [flags, 0, 0, 0, 0, 0, 0, 0]].concat());
    c.message(C, &bytes);
    header
}

#[test]
fn a_lock_waits_behind_the_unlock_that_let_it_through() {
    const DONE: &[u8] = &[4, 0, 0, 0];
    for (file, offset, is_its) in [(7, 0, true), (7, 8, true), (7, 9, false), (8, 0, false)] {
        let (_, kept) = episodes_of(Cause::Unknown, |c| {
            c.smb2_credits = 20;
            c.smb();
            let waits = lock(c, 7, 0, 2);
            // STATUS_PENDING
            let interim = Header {
                status_or_channel_sequence: 0x103,
                flags: flags::RESPONSE | flags::ASYNC,
                credits: 1,
                ..waits
            };
            let mut bytes = Vec::new();
            interim.emit(&mut bytes);
            bytes.extend(Conversation::error_body());
            c.message(S, &bytes);
            c.wait(40 * MS);
            let unlock = lock(c, file, offset, 4);
            c.reply(&unlock, 0, DONE);
            c.reply(&waits, 0, DONE);
        });
        let locks: Vec<_> = kept.exchanges.iter().filter(|e| e.command == "LOCK").collect();
        let [unlock, waited] = locks[..] else { panic!("{locks:?}") };
        let expected = is_its.then_some(Behind::Exchange(unlock.id));
        assert_eq!((waited.pending, waited.behind, unlock.behind), (true, expected, None), "{file} {offset}");
    }
}

/// OPLOCK_BREAK of a client: it gives up its oplock of a file, which the server asked it for.
fn breaks(c: &mut Conversation, is_asked: bool) {
    let header = c.header(Command::OPLOCK_BREAK);
    let body = [&[24, 0, 1, 0, 0, 0, 0, 0][..], &[9; 16]].concat();
    let mut bytes = Vec::new();
    if is_asked {
        let notice = Header { message_id: u64::MAX, flags: flags::RESPONSE, credits: 0, ..header };
        notice.emit(&mut bytes);
        bytes.extend(&body);
        c.message(S, &bytes);
        bytes.clear();
    }
    header.emit(&mut bytes);
    bytes.extend(&body);
    c.message(C, &bytes);
    c.reply(&header, 0, &body);
}

#[test]
fn what_the_client_of_another_connection_gives_up_is_what_a_reply_waited_for() {
    for (late, is_asked, is_behind) in [(MS, true, true), (60 * MS, true, false), (MS, false, false)] {
        let (_, kept) = episodes_of(Cause::Unknown, |c| {
            c.smb2_credits = 20;
            c.smb();
            let waits = lock(c, 7, 0, 2);
            let interim = Header {
                status_or_channel_sequence: 0x103,
                flags: flags::RESPONSE | flags::ASYNC,
                credits: 1,
                ..waits
            };
            let mut bytes = Vec::new();
            interim.emit(&mut bytes);
            bytes.extend(Conversation::error_body());
            c.message(S, &bytes);
            c.beside(|other| {
                other.smb2_credits = 20;
                other.smb();
                breaks(other, is_asked);
            });
            c.wait(late);
            c.reply(&waits, 0, &[4, 0, 0, 0]);
        });
        let of = |command: &str| kept.exchanges.iter().find(|e| e.command == command).unwrap();
        let (waited, broke) = (of("LOCK"), of("OPLOCK_BREAK"));
        assert_ne!(waited.connection, broke.connection);
        assert_eq!(waited.behind, is_behind.then_some(Behind::Exchange(broke.id)), "{late} {is_asked}");
    }
}

/// A client that was told of congestion waits for its rate: it is not late, unless no rate explains the wait.
#[test]
fn an_answer_that_waits_for_a_rate_is_not_late() {
    let waited = |told: Option<i64>, wait: i64| {
        let (episodes, kept) = episodes_of(Cause::ReadResponse, |c| {
            c.smb();
            let header = c.smb2_write(1024, &[descriptor(5, 1024)]);
            if let Some(ago) = told {
                // a notification of the server
                c.roce(S, 0x81, 0, &[0; 16], &[]);
                c.wait(ago);
            }
            let psn = c.read_request(S, 5, 1024);
            c.wait(wait);
            c.read_response(C, psn, 1024);
            c.reply(&header, 0, &Conversation::write_body(1024));
        });
        let kinds: Vec<_> = episodes.iter().map(|e| (e.kind, e.by)).collect();
        let time = kept.exchanges.last().map(|e| (e.time.of(Owner::Client) > 0, e.time.of(Owner::SendQueue) > 0));
        (kinds, time)
    };
    let late = (vec![(Kind::Idle, Some(End::A))], Some((true, false)));
    let slowed = (vec![(Kind::Congestion, Some(End::A))], Some((false, true)));
    assert_eq!(waited(None, 5 * MS), late);
    assert_eq!(waited(Some(0), 5 * MS), slowed);
    assert_eq!(waited(Some(900 * MS), 5 * MS), slowed);
    assert_eq!(waited(Some(1000 * MS), 5 * MS), late, "the rate is back");
    assert_eq!(waited(Some(0), 50 * MS).0, [], "more than a rate explains, and not sure");
    assert_eq!(waited(Some(0), 200 * MS), late, "no rate explains this");
}

/// Until a lost RTU is sent again, because the REP came again, the server may not take what it is sent.
#[test]
fn a_lost_rtu_holds_up_the_first_request() {
    let waited = |again: bool, wait: i64| {
        let (episodes, kept) = episodes_of(Cause::LostBefore, |c| {
            c.connect(445);
            c.smbd_request(request());
            c.wait(wait);
            if again {
                c.cm_reply();
                c.cm_ready(C);
            }
            c.smbd_response(response());
        });
        assert!(kept.exchanges.is_empty());
        episodes.iter().map(|e| (e.kind, e.by, e.packets, e.repeated)).collect::<Vec<_>>()
    };
    assert_eq!(waited(true, 400 * MS), [(Kind::Recovery, Some(End::A), 1, 1)]);
    assert_eq!((waited(false, 400 * MS), waited(true, 20 * MS)), (vec![], vec![]), "none, or the copies of a mirror");
}
