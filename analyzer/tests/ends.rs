//! Ends of connections: what was open then, and whose end it was.

#[path = "common/build.rs"]
mod build;
mod common;

use build::*;
use rdmascope_analyzer::finding::{Certainty, Rule};
use rdmascope_analyzer::outcome::{Ending, Success};
use rdmascope_analyzer::rules::Severity;
use rdmascope_dissector::wire::smb2::encode;
use rdmascope_dissector::wire::smb2::header::{Command, Header};

const SECOND: i64 = 1_000_000_000;
const FIN: u8 = 0x11;

/// A conversation that has agreed on SMB2.
fn negotiated() -> Conversation {
    let mut c = Conversation::default();
    c.smb_iwarp();
    c.smb2_negotiate();
    c
}

/// The ending of the connection that `make` builds after the negotiation of SMB2, the side that closed it, its success,
/// and the rules that explain a failure.
fn ending(make: impl FnOnce(&mut Conversation)) -> (Ending, Option<usize>, Success, Option<Rule>) {
    let mut c = negotiated();
    make(&mut c);
    ending_of(&c.frames)
}

fn ending_of(frames: &[common::Frame]) -> (Ending, Option<usize>, Success, Option<Rule>) {
    let (report, _) = common::analyze_frames(frames);
    let outcome = report.connections[0].outcome.clone().expect("it is of SMB Direct");
    (outcome.ending, outcome.closed_by, outcome.success, outcome.cause.map(|(rule, _)| rule))
}

/// A CREATE of the file "a" and its reply.
fn create(c: &mut Conversation) {
    let header = c.header(Command::CREATE);
    let mut request = Vec::new();
    header.emit(&mut request);
    // \[MS-SMB2\] 2.2.13
    request.extend([57, 0, 0, 0, 2, 0, 0, 0]);
    request.extend([0; 16]);
    request.extend([1, 0, 0, 0, 0x80, 0, 0, 0, 7, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    request.extend([120, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, b'a', 0]);
    c.message(C, &request);
    // 2.2.14
    let mut reply = vec![89, 0, 0, 0, 1, 0, 0, 0];
    reply.extend([0; 48]);
    reply.extend([0x80, 0, 0, 0, 0, 0, 0, 0]);
    reply.extend([7; 16]);
    reply.extend([0; 8]);
    c.reply(&header, 0, &reply);
}

/// A CLOSE of that file, answered with this status.
fn close(c: &mut Conversation, status: u32) {
    let header = c.header(Command::CLOSE);
    let mut request = Vec::new();
    header.emit(&mut request);
    request.extend([24, 0, 0, 0, 0, 0, 0, 0]);
    request.extend([7; 16]);
    c.message(C, &request);
    let mut body = vec![60, 0];
    body.resize(60, 0);
    c.reply(&header, status, if status == 0 { &body } else { &[9, 0, 0, 0, 0, 0, 0, 0, 0] });
}

/// A request without parameters, and its reply.
fn simple(c: &mut Conversation, command: Command) {
    let header = c.header(command);
    c.message(C, &encode::empty(&header));
    c.reply(&header, 0, &[4, 0, 0, 0]);
}

fn fin(c: &mut Conversation, by: usize) {
    let seq = c.next_seq(by);
    c.segment(by, seq, FIN, 0xffff, &[]);
}

#[test]
fn a_server_that_hangs_up_on_an_open_file_broke_off() {
    let closed = |by: usize, before: fn(&mut Conversation)| {
        ending(|c| {
            create(c);
            before(c);
            fin(c, by);
        })
    };
    assert_eq!(closed(S, |_| ()), (Ending::Aborted, Some(S), Success::No, Some(Rule::CmDisconnect)));
    let in_order = |by: usize| (Ending::Closed, Some(by), Success::Yes, None);
    assert_eq!(closed(C, |_| ()), in_order(C), "a client may leave");
    // \[MS-SMB2\] 3.3.5.6, 3.3.5.8, 3.3.5.10
    assert_eq!(closed(S, |c| close(c, 0)), in_order(S));
    assert_eq!(closed(S, |c| close(c, 0xc000_0128)), in_order(S), "STATUS_FILE_CLOSED: it is not open");
    assert_eq!(closed(S, |c| close(c, 0xc000_0203)), in_order(S), "STATUS_USER_SESSION_DELETED");
    assert_eq!(closed(S, |c| simple(c, Command::TREE_DISCONNECT)), in_order(S));
    assert_eq!(closed(S, |c| simple(c, Command::LOGOFF)), in_order(S));
    assert_eq!(closed(S, |c| c.wait(900 * SECOND)), in_order(S), "an idle client");
}

#[test]
fn half_a_request_is_open() {
    let cut = |wait: i64| {
        ending(|c| {
            c.echo();
            let header: Header = c.header(Command::ECHO);
            let whole = encode::empty(&header);
            c.data(C, carrying(8, 40, whole.len() - 40), &whole[..40]);
            c.wait(wait);
            fin(c, S);
        })
    };
    assert_eq!(cut(0).0, Ending::HungUp { requests: 1 });
    assert_eq!(cut(0).1, Some(S));
}

#[test]
fn who_hangs_up_before_the_negotiation_began() {
    // what the client does after 5 s without a Reply, and the server right after its own
    let of = |make: fn(&mut Conversation)| {
        let mut c = Conversation::default();
        c.tcp_open();
        c.mpa(Conversation::startup(false));
        make(&mut c);
        let (report, _) = common::analyze_frames(&c.frames);
        report.connections[0].outcome.clone().map(|outcome| (outcome.ending, outcome.by))
    };
    let gives_up = |c: &mut Conversation| {
        c.wait(5 * SECOND);
        fin(c, C);
        c.mpa(Conversation::startup(true));
    };
    assert_eq!(of(gives_up), Some((Ending::NoTransport, Some(S))));
    let hangs_up = |c: &mut Conversation| {
        c.mpa(Conversation::startup(true));
        fin(c, S);
    };
    assert_eq!(of(hangs_up), Some((Ending::NoNegotiation, Some(S))));
}

#[test]
fn an_end_of_which_nothing_more_is_captured_was_lost_by_the_capture() {
    let lost = |from: usize| {
        let mut c = negotiated();
        for _ in 0..20 {
            c.wait(SECOND);
            c.echo();
        }
        let is_servers = |frame: &common::Frame| frame.bytes[..6] == c.frames[1].bytes[..6];
        let mut place = 0;
        let kept: Vec<common::Frame> = c
            .frames
            .iter()
            .filter(|frame| {
                place += 1;
                place < from || !is_servers(frame)
            })
            .map(|frame| common::Frame { meta: frame.meta, bytes: frame.bytes.clone() })
            .collect();
        let (report, _) = common::analyze_frames(&kept);
        report.findings.iter().filter(|f| f.rule == Rule::CaptureLoss).count()
    };
    assert_eq!([lost(40), lost(usize::MAX)], [1, 0]);
}

#[test]
fn an_end_that_its_acknowledgment_shows_counts() {
    // the client's FIN is not in the capture, the one of the server acknowledges it
    let of = |lost: bool| {
        let mut c = negotiated();
        c.echo();
        fin(&mut c, C);
        if lost {
            c.frames.pop();
        }
        c.seq[C] += 1;
        fin(&mut c, S);
        ending_of(&c.frames)
    };
    assert_eq!([of(false).1, of(true).1], [Some(C); 2]);
}

/// Warnings and errors of a connection that its client ends behind an ECHO, whose reply the capture lost.
fn told_without_the_last_reply(end: impl FnOnce(&mut Conversation)) -> Vec<(Rule, Certainty)> {
    let mut c = negotiated();
    c.echo();
    // with its acknowledgment
    c.frames.truncate(c.frames.len() - 2);
    c.wait(SECOND);
    end(&mut c);
    told(&c)
}

fn told(c: &Conversation) -> Vec<(Rule, Certainty)> {
    let (report, _) = common::analyze_frames(&c.frames);
    report.findings.iter().filter(|f| f.severity > Severity::Note).map(|f| (f.rule, f.certainty)).collect()
}

#[test]
fn a_fin_ahead_of_what_was_captured_shows_that_the_capture_lost_the_reply() {
    let lost = vec![(Rule::CaptureLoss, Certainty::Certain)];
    let told = |is_seen: bool, is_acknowledged: bool| {
        told_without_the_last_reply(|c| {
            fin(c, C);
            if !is_seen {
                c.frames.pop();
            }
            c.seq[C] += 1;
            fin(c, S);
            c.seq[S] += 1;
            if is_acknowledged {
                c.tcp_ack(C, 0xffff);
            }
        })
    };
    assert_eq!([told(true, true), told(true, false)], [lost.clone(), lost.clone()]);
    // the FIN of the client shows in its acknowledgment alone
    assert_eq!([told(false, true), told(false, false)], [lost.clone(), lost]);
}

#[test]
fn a_fin_behind_bytes_of_which_nobody_knows_blames_nobody() {
    let only = |end: fn(&mut Conversation)| told_without_the_last_reply(end);
    assert_eq!(only(|c| fin(c, S)), [], "FIN");
    // the server goes on behind them, and nobody acknowledges that
    let goes_on = |c: &mut Conversation| {
        c.data(S, empty(1), &[]);
        c.frames.pop();
        c.tcp_reset(S);
    };
    assert_eq!(only(goes_on), [(Rule::TcpReset, Certainty::Certain)]);
}

#[test]
fn acknowledgments_count_though_all_checksums_are_wrong() {
    // the capture lost the Negotiate Request, and ends soon after; data is acknowledged by other data only
    let mut c = Conversation::default();
    c.iwarp();
    c.smbd_request(request());
    c.frames.truncate(c.frames.len() - 2);
    c.smbd_response(response());
    c.smb2_negotiate();
    c.echo();
    let with_data = |frame: &common::Frame| frame.bytes[47] & 2 != 0 || frame.bytes.len() > 54;
    c.frames.retain(with_data);
    c.frames.truncate(8);
    for frame in &mut c.frames {
        frame.bytes[50..52].copy_from_slice(&[0, 0]);
    }
    assert_eq!(told(&c), [(Rule::CaptureLoss, Certainty::Certain)]);
}
