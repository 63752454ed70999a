//! Loss, damage, reordering, silence and copies: the findings about each, and those that must not be. One event is one
//! finding.

#[path = "common/build.rs"]
mod build;
mod common;

use build::*;
use common::{Frame, analyze_frames, frames, ids};
use rdmascope_analyzer::finding::{Blame, Certainty, Finding, Severity};
use rdmascope_analyzer::pipeline::Pipeline;
use rdmascope_analyzer::report::Report;
use rdmascope_dissector::trace::Tree;

fn report(c: &Conversation) -> Report {
    analyze_frames(&c.frames).0
}

fn finding<'r>(report: &'r Report, id: &str) -> &'r Finding {
    report.findings.iter().find(|f| f.rule.id() == id).unwrap_or_else(|| panic!("{id} of {:?}", ids(report)))
}

/// Nobody at either end is said to have done anything wrong.
fn blames_nobody(report: &Report) {
    let blamed: Vec<_> = report
        .findings
        .iter()
        .filter(|f| matches!(f.by, Blame::Client | Blame::Server) && f.severity > Severity::Note)
        .map(|f| (f.rule.id(), f.text.clone()))
        .collect();
    assert_eq!(blamed, []);
}

/// Requests of the client that are not answered yet: their packets, taken off the conversation, and the PSN of the
/// first.
fn requests(
    c: &mut Conversation,
    count: usize,
) -> (Vec<Vec<u8>>, u32, Vec<rdmascope_dissector::wire::smb2::header::Header>) {
    let psn = c.psn[C];
    let mut packets = Vec::new();
    let headers = (0..count)
        .map(|_| {
            let header = c.echo_request();
            c.frames.pop();
            packets.push(c.frames.pop().expect("a request").bytes);
            header
        })
        .collect();
    (packets, psn, headers)
}

fn answers(c: &mut Conversation, headers: &[rdmascope_dissector::wire::smb2::header::Header]) {
    headers.iter().for_each(|h| c.reply(h, 0, &[4, 0, 0, 0]));
}

#[test]
fn a_lost_packet_its_nak_and_what_goes_out_again_are_one_finding() {
    let mut c = Conversation::default();
    c.smb();
    let (packets, psn, headers) = requests(&mut c, 5);
    for packet in [&packets[0], &packets[2], &packets[3], &packets[4]] {
        c.frame(packet.clone());
    }
    c.acknowledge(C, psn + 1, 0x60);
    c.wait(MILLISECOND);
    packets[1..].iter().for_each(|p| c.frame(p.clone()));
    c.acknowledge(C, psn + 4, 0x1f);
    answers(&mut c, &headers);
    c.echo();
    let report = report(&c);
    let lost = finding(&report, "RC-RETRANSMIT");
    assert_eq!((lost.count, lost.by, lost.severity), (1, Blame::Network, Severity::Warn), "{}", lost.text);
    assert!(
        lost.text.starts_with(
            "1 packet from the client to the server was lost before the capture point, 4 packets sent again"
        ),
        "{}",
        lost.text
    );
    for id in ["RC-NAK", "RC-GAP", "CAPTURE-LOSS", "RC-REORDER", "SMB2-SLOW"] {
        assert!(!ids(&report).iter().any(|(said, _)| *said == id), "{id}: {:?}", ids(&report));
    }
    blames_nobody(&report);
    assert_eq!(report.connections[0].health.naks, 1, "it is counted all the same");
}

#[test]
fn what_was_seen_and_asked_for_again_was_lost_behind_the_capture() {
    let mut c = Conversation::default();
    c.smb();
    let (packets, psn, headers) = requests(&mut c, 3);
    packets.iter().for_each(|p| c.frame(p.clone()));
    c.acknowledge(C, psn + 1, 0x60);
    c.wait(MILLISECOND);
    packets[1..].iter().for_each(|p| c.frame(p.clone()));
    c.acknowledge(C, psn + 2, 0x1f);
    answers(&mut c, &headers);
    let report = report(&c);
    let lost = finding(&report, "RC-RETRANSMIT");
    assert!(lost.text.contains("lost behind the capture point, 2 packets sent again"), "{}", lost.text);
    blames_nobody(&report);
}

#[test]
fn a_packet_that_comes_late_by_itself_was_overtaken_whatever_the_receiver_made_of_it() {
    for delay in [50_000, 4 * MILLISECOND, 300 * MILLISECOND] {
        for asked in [false, true] {
            let mut c = Conversation::default();
            c.smb();
            let (packets, psn, headers) = requests(&mut c, 4);
            c.frame(packets[0].clone());
            c.frame(packets[2].clone());
            c.wait(delay);
            c.frame(packets[1].clone());
            c.frame(packets[3].clone());
            if asked {
                c.acknowledge(C, psn + 1, 0x60);
                c.wait(MILLISECOND);
                packets[1..].iter().for_each(|p| c.frame(p.clone()));
            }
            c.acknowledge(C, psn + 3, 0x1f);
            answers(&mut c, &headers);
            c.echo();
            let report = report(&c);
            let late = finding(&report, "RC-REORDER");
            assert_eq!(late.count, 1, "{}", late.text);
            assert!(
                !ids(&report).iter().any(|(id, _)| *id == "RC-RETRANSMIT" && !asked),
                "{delay} {asked}: {:?}",
                ids(&report)
            );
            blames_nobody(&report);
        }
    }
}

#[test]
fn what_was_damaged_is_not_followed_and_its_good_copy_is() {
    let mut c = Conversation::default();
    c.smb();
    let (packets, psn, headers) = requests(&mut c, 2);
    let mut bad = packets[0].clone();
    // a bit of the SMB Direct header: its flags
    bad[14 + 20 + 8 + 12 + 4] ^= 0x40;
    c.frame(bad);
    c.frame(packets[1].clone());
    c.acknowledge(C, psn, 0x60);
    c.wait(MILLISECOND);
    packets.iter().for_each(|p| c.frame(p.clone()));
    c.acknowledge(C, psn + 1, 0x1f);
    answers(&mut c, &headers);
    let report = report(&c);
    assert!(
        finding(&report, "RC-ICRC").text.contains("from the client to the server was damaged before the capture point")
    );
    assert!(!ids(&report).iter().any(|(id, _)| id.starts_with("SMBD-")), "{:?}", ids(&report));
    blames_nobody(&report);
}

/// Changes a bit of the last byte before the end of every so many packets of a sample that carry data, as a capture
/// point with a fault does: the peers have them as they were sent.
fn damaged_at_the_tap(name: &str, every: usize, first: usize) -> (Vec<Frame>, usize) {
    /// Bytes from the end: in front of an invariant CRC, inside of the payload.
    const FROM_END: usize = 9;
    let mut all = frames(name);
    let carry = all.iter_mut().filter(|f| f.bytes.len() > 120 && f.bytes.len() == f.meta.wire_len as usize);
    // those at the beginning show that checksums mean something
    let damaged = carry.skip(24 + first).step_by(every).map(|frame| {
        let at = frame.bytes.len() - FROM_END;
        frame.bytes[at] ^= 0x10;
    });
    let count = damaged.count();
    (all, count)
}

#[test]
fn what_the_capture_point_damages_is_no_loss_and_nobodys_fault() {
    for (name, id) in [
        ("smb-roce", "RC-ICRC"),
        ("nfs-roce-v42", "RC-ICRC"),
        ("nfs-roce-v3", "RC-ICRC"),
        ("smb-iwarp", "TCP-CHECKSUM"),
        ("smb-iwarp-crc", "TCP-CHECKSUM"),
    ] {
        let before = analyze_frames(&frames(name)).0;
        for (every, first) in [(40, 0), (40, 7), (9, 1), (100, 30)] {
            let (all, count) = damaged_at_the_tap(name, every, first);
            let report = analyze_frames(&all).0;
            let told = || {
                let all: Vec<_> =
                    report.findings.iter().map(|f| (f.rule.id(), f.by, f.certainty, f.text.clone())).collect();
                format!("{name} {every} {first}: {count} damaged: {all:#?}")
            };
            assert!(count > 0, "{name}");
            assert!(!ids(&report).iter().any(|(said, _)| *said == "CAPTURE-LOSS"), "{}", told());
            // some may be acknowledgments, or the last of the capture
            // an answer shows the fate of a datagram of connection management
            let is_data = |f: &&Finding| f.rule.id() == id && !f.text.contains("connection management");
            assert!(report.findings.iter().filter(is_data).all(|f| f.certainty != Certainty::Certain), "{}", told());
            assert!(
                report.findings.iter().any(|f| f.rule.id() == id && f.text.contains("on the way to the capture only")),
                "{}",
                told()
            );
            // nothing worse is found than in the undamaged capture
            let is_new = |f: &&Finding| !before.findings.iter().any(|known| known.rule == f.rule);
            let worse = report
                .findings
                .iter()
                .filter(is_new)
                .filter(|f| f.severity > Severity::Note && f.certainty != Certainty::Guess);
            assert_eq!(worse.map(|f| f.rule.id()).collect::<Vec<_>>(), Vec::<&str>::new(), "{}", told());
        }
    }
}

#[test]
fn damage_before_the_capture_point_and_at_it_are_told_apart() {
    let mut c = Conversation::default();
    c.smb();
    (0..10).for_each(|_| c.echo());
    let mut damaged = 0;
    let mut bad = |packet: &Vec<u8>| {
        damaged += 1;
        let mut bad = packet.clone();
        let at = bad.len() - 5 - damaged % 3;
        bad[at] ^= 0x40;
        bad
    };
    // at the capture point: acknowledged, and not sent again
    for _ in 0..2 {
        let (packets, psn, headers) = requests(&mut c, 2);
        c.frame(bad(&packets[0]));
        c.frame(packets[1].clone());
        c.acknowledge(C, psn + 1, 0x1f);
        answers(&mut c, &headers);
    }
    // before it: asked for, and sent again
    let (packets, psn, headers) = requests(&mut c, 2);
    c.frame(bad(&packets[0]));
    c.frame(packets[1].clone());
    c.acknowledge(C, psn, 0x60);
    c.wait(MILLISECOND);
    packets.iter().for_each(|p| c.frame(p.clone()));
    c.acknowledge(C, psn + 1, 0x1f);
    answers(&mut c, &headers);
    // nothing shows: the capture is over
    let (packets, ..) = requests(&mut c, 1);
    c.frame(bad(&packets[0]));
    let report = report(&c);
    let found: Vec<_> = report.findings.iter().filter(|f| f.rule.id() == "RC-ICRC").collect();
    let by: Vec<_> = [Blame::Network, Blame::Capture, Blame::Unknown]
        .map(|by| found.iter().find(|f| f.by == by))
        .into_iter()
        .collect();
    let [Some(before), Some(at), Some(open)] = by[..] else { panic!("{found:#?}") };
    assert_eq!((before.count, at.count, open.count), (1, 2, 1), "{found:#?}");
    assert!(
        before.text.contains("1 of ") && before.text.contains("before the capture point; the receiver dropped it"),
        "{}",
        before.text
    );
    assert!(at.text.contains("on the way to the capture only; the receiver took them undamaged"), "{}", at.text);
    assert!(open.text.contains("does not show if the receiver dropped it"), "{}", open.text);
    assert_eq!([before, at, open].map(|f| f.certainty == Certainty::Certain), [false; 3]);
    assert!(!ids(&report).iter().any(|(said, _)| *said == "CAPTURE-LOSS"), "{:?}", ids(&report));
    blames_nobody(&report);
}

#[test]
fn packets_whose_crc_is_never_finished_are_followed() {
    let mut c = Conversation::default();
    c.smb();
    c.echo();
    for frame in &mut c.frames {
        let end = frame.bytes.len();
        if frame.bytes[14 + 9] == 17 {
            frame.bytes[end - 4..].fill(0);
        }
    }
    let report = report(&c);
    assert!(report.connections[0].commands.iter().any(|row| row.name == "ECHO"), "{:?}", ids(&report));
    blames_nobody(&report);
}

#[test]
fn every_frame_twice_is_a_mirror_and_no_loss() {
    for distance in [1_000, 50_000, 600_000, 5 * MILLISECOND, 10 * MILLISECOND] {
        let mut c = Conversation::default();
        c.smb();
        (0..10).for_each(|_| c.echo());
        c.rdma_read(7);
        let mut twice: Vec<Frame> = Vec::new();
        for frame in &c.frames {
            let mut copy = frame.clone();
            copy.meta.time_ns += distance;
            twice.extend([frame.clone(), copy]);
        }
        twice.sort_by_key(|f| f.meta.time_ns);
        twice.iter_mut().enumerate().for_each(|(n, f)| f.meta.number = n as u64 + 1);
        let report = analyze_frames(&twice).0;
        for id in ["RC-RETRANSMIT", "RC-SPURIOUS", "RC-REORDER", "RC-NAK", "PEER-SILENT"] {
            assert!(!ids(&report).iter().any(|(said, _)| *said == id), "{distance} {id}: {:?}", ids(&report));
        }
        blames_nobody(&report);
    }
}

#[test]
fn a_message_that_a_late_packet_completes_is_shown_in_the_frame_that_completes_it() {
    let mut c = Conversation::default();
    c.smb();
    let psn = c.psn[C];
    c.smb2_write_inline(3000, 1000);
    // the second packet of the client comes last
    let place = c
        .frames
        .iter()
        .rposition(|f| f.bytes[14 + 20 + 8] <= 4 && f.bytes[14 + 20 + 8 + 11] == (psn + 1) as u8)
        .expect("a fragment");
    let late = c.frames.remove(place);
    let end = c
        .frames
        .iter()
        .position(|f| f.bytes[14 + 15] == 2 && f.meta.number > late.meta.number && f.bytes[14 + 20 + 8] <= 4);
    let end = end.unwrap_or(c.frames.len());
    c.frames.retain(|f| f.bytes[14 + 20 + 8] != ACK || f.meta.number < late.meta.number);
    let at = end.min(c.frames.len());
    c.frames.insert(at, late);
    let mut last = c.frames[0].meta.time_ns;
    for (n, frame) in c.frames.iter_mut().enumerate() {
        frame.meta.number = n as u64 + 1;
        last = last.max(frame.meta.time_ns) + 1;
        frame.meta.time_ns = last;
    }
    let mut pipeline = Pipeline::default();
    let (mut tree, mut shown) = (Tree::new(), Vec::new());
    for frame in &c.frames {
        tree.begin(&frame.bytes);
        pipeline.frame(&frame.meta, &frame.bytes, &mut tree);
        if tree.all("smb2.write_length").next().is_some() {
            shown.push(frame.meta.number);
        }
    }
    assert!(!shown.is_empty(), "the WRITE stands in a frame");
    let (seen, unseen) = (pipeline.finish().0, report(&c));
    assert_eq!(seen.findings.ranked(), unseen.findings.ranked(), "observing changes nothing");
}

#[test]
fn a_request_that_waited_for_recovery_is_not_the_servers_to_explain() {
    let slow = |lost: bool| {
        let mut c = Conversation::default();
        c.smb();
        (0..30).for_each(|_| c.echo());
        let (packets, psn, headers) = requests(&mut c, 1);
        c.frame(packets[0].clone());
        if lost {
            c.wait(SECOND);
            c.frame(packets[0].clone());
        }
        c.acknowledge(C, psn, 0x1f);
        if !lost {
            c.wait(SECOND);
        }
        answers(&mut c, &headers);
        ids(&report(&c)).iter().any(|(id, _)| *id == "SMB2-SLOW")
    };
    assert!(slow(false), "the server acknowledged it and took its time");
    assert!(!slow(true), "the packet was lost");
}

/// If only one direction was captured, no peer was silent: the other direction is not there.
#[test]
fn a_capture_of_one_direction_has_no_silent_peer() {
    let mut c = Conversation::default();
    c.smb();
    let (packets, ..) = requests(&mut c, 1);
    (0..6).for_each(|_| {
        c.frame(packets[0].clone());
        c.wait(SECOND);
    });
    let silent = |frames: &[Frame]| ids(&analyze_frames(frames).0).iter().any(|(id, _)| *id == "PEER-SILENT");
    assert!(silent(&c.frames));
    let one: Vec<Frame> =
        c.frames.iter().filter(|f| f.bytes[14 + 15] == 1 && f.bytes[14 + 20 + 8] != 0x64).cloned().collect();
    assert!(one.len() > 6 && !silent(&one), "{}", one.len());
}

#[test]
fn without_a_nak_a_packet_that_goes_out_again_or_its_acknowledgment_was_lost() {
    let mut c = Conversation::default();
    c.smb();
    let (packets, psn, headers) = requests(&mut c, 1);
    c.frame(packets[0].clone());
    c.wait(500 * MILLISECOND);
    c.frame(packets[0].clone());
    c.acknowledge(C, psn, 0x1f);
    answers(&mut c, &headers);
    let report = report(&c);
    let lost = finding(&report, "RC-RETRANSMIT");
    assert!(
        lost.text.contains("lost behind the capture point, or the acknowledgment was lost before it"),
        "{}",
        lost.text
    );
}

/// Neighbours that a capture swapped: the receiver had them in order, and the network did nothing.
#[test]
fn what_the_receiver_had_in_order_is_out_of_order_in_the_capture_only() {
    let mut c = Conversation::default();
    c.smb();
    let (packets, psn, headers) = requests(&mut c, 4);
    for n in [0, 2, 1, 3] {
        c.frame(packets[n].clone());
    }
    c.acknowledge(C, psn + 3, 0x1f);
    answers(&mut c, &headers);
    c.echo();
    let report = report(&c);
    assert_eq!(finding(&report, "RC-REORDER").by, Blame::Capture);
    blames_nobody(&report);
}

/// A packet that comes behind its acknowledgment makes the order of the capture doubtful: findings that rest on it are
/// guesses.
#[test]
fn behind_its_acknowledgment_a_packet_is_misplaced_by_the_capture() {
    let mut c = Conversation::default();
    c.smb();
    let (packets, psn, headers) = requests(&mut c, 2);
    c.frame(packets[0].clone());
    c.acknowledge(C, psn + 1, 0x1f);
    c.frame(packets[1].clone());
    answers(&mut c, &headers);
    c.echo();
    let report = report(&c);
    let likely: Vec<_> =
        report.findings.iter().filter(|f| f.by != Blame::Capture).filter(|f| f.certainty > Certainty::Guess).collect();
    assert!(likely.is_empty(), "{likely:?}");
}

#[test]
fn what_goes_out_again_because_the_receiver_was_not_ready_was_not_lost() {
    let mut c = Conversation::default();
    c.smb();
    let (packets, psn, headers) = requests(&mut c, 3);
    packets[..2].iter().for_each(|p| c.frame(p.clone()));
    c.acknowledge(C, psn, 0x2e);
    c.frame(packets[2].clone());
    c.wait(2 * MILLISECOND);
    packets.iter().for_each(|p| c.frame(p.clone()));
    c.acknowledge(C, psn + 2, 0x1f);
    answers(&mut c, &headers);
    let report = report(&c);
    for id in ["RC-RETRANSMIT", "RC-SPURIOUS"] {
        assert!(!ids(&report).iter().any(|(said, _)| *said == id), "{id}: {:?}", ids(&report));
    }
}

/// The reply of a server as it was sent, to the queue pair `qp`, and its acknowledgment.
fn reply_to(c: &mut Conversation, header: &rdmascope_dissector::wire::smb2::header::Header, qp: u32) -> [Vec<u8>; 2] {
    c.reply(header, 0, &[4, 0, 0, 0]);
    let acknowledgment = c.frames.pop().expect("an acknowledgment").bytes;
    let reply = c.frames.pop().expect("a reply").bytes;
    let mut stray = reply.clone();
    let bth = 14 + 20 + 8;
    stray[bth + 5..bth + 8].copy_from_slice(&qp.to_be_bytes()[1..]);
    let end = stray.len() - 4;
    let cover = rdmascope_dissector::wire::ib::icrc::Cover::Ipv4;
    let icrc = rdmascope_dissector::wire::ib::icrc::invariant(cover, &stray[14..end]).expect("whole headers");
    stray[end..].copy_from_slice(&icrc.to_le_bytes());
    c.frame(stray);
    [reply, acknowledgment]
}

/// A server sends a reply to a queue pair that its client does not have, and finds out by its timer.
#[test]
fn a_packet_to_a_wrong_queue_pair_is_its_senders_fault_and_no_connection() {
    use rdmascope_analyzer::episodes::time::Owner;
    for (other, marked) in [(0x99, false), (0x10_0000, true)] {
        let mut c = Conversation::default();
        c.smb();
        (0..20).for_each(|_| c.echo());
        let header = c.echo_request();
        let [reply, acknowledgment] = reply_to(&mut c, &header, other);
        c.wait(500 * MILLISECOND);
        c.frame(reply);
        if marked {
            // what a mirror shows twice is one packet still
            let again = c.frames.last().expect("a frame").bytes.clone();
            c.frame(again);
        }
        c.frame(acknowledgment);
        (0..5).for_each(|_| c.echo());
        let report = report(&c);
        let found = finding(&report, "RC-DEST-QP");
        assert_eq!((found.count, found.by, found.certainty), (1, Blame::Server, Certainty::IfNothingWasMissed));
        assert!(
            found.text.contains(&format!("to queue pair {other:#x}, and then the same one to 0x11")),
            "{}",
            found.text
        );
        let other_rules: Vec<_> =
            ids(&report).into_iter().filter(|(id, _)| !matches!(*id, "RC-DEST-QP" | "RC-DUPLICATE")).collect();
        assert!(other_rules.is_empty(), "{other_rules:?}");
        let [connection] = &report.connections[..] else { panic!("{} connections", report.connections.len()) };
        let recovery = connection.time.of(Owner::Recovery);
        assert!((499 * MILLISECOND..501 * MILLISECOND).contains(&recovery), "{:?}", connection.time);
        assert!(connection.time.of(Owner::Server) < 10 * MILLISECOND, "{:?}", connection.time);
    }
}

/// The same, with packets behind it, which the receiver refuses until it has the first.
#[test]
fn packets_behind_one_to_a_wrong_queue_pair_were_not_lost() {
    let mut c = Conversation::default();
    c.smb();
    let (packets, psn, headers) = requests(&mut c, 4);
    let stray = c.packet(C, 4, 0x99, psn, &[], &packets[0][14 + 20 + 8 + 12..packets[0].len() - 4]);
    c.frame(stray);
    packets[1..].iter().for_each(|p| c.frame(p.clone()));
    c.acknowledge(C, psn, 0x60);
    packets.iter().for_each(|p| c.frame(p.clone()));
    c.acknowledge(C, psn + 3, 0x1f);
    answers(&mut c, &headers);
    c.echo();
    let report = report(&c);
    assert_eq!((finding(&report, "RC-DEST-QP").by, report.connections.len()), (Blame::Client, 1));
    assert_eq!(ids(&report), [("RC-DEST-QP", 1)]);
}

/// Damage changed the queue pair's number: a damaged packet of its connection, and no other connection.
#[test]
fn a_damaged_number_of_a_queue_pair_is_damage() {
    let mut c = Conversation::default();
    c.smb();
    (0..3).for_each(|_| c.echo());
    let (packets, psn, headers) = requests(&mut c, 2);
    let mut damaged = packets[0].clone();
    damaged[14 + 20 + 8 + 6] ^= 0x20;
    c.frame(damaged);
    c.frame(packets[1].clone());
    c.acknowledge(C, psn, 0x60);
    packets.iter().for_each(|p| c.frame(p.clone()));
    c.acknowledge(C, psn + 1, 0x1f);
    answers(&mut c, &headers);
    c.echo();
    let report = report(&c);
    let found = finding(&report, "RC-ICRC");
    assert_eq!((found.count, found.by, report.connections.len()), (1, Blame::Network, 1), "{}", found.text);
    assert!(found.text.contains("the receiver dropped it"), "{}", found.text);
    blames_nobody(&report);
}
