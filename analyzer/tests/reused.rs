//! A host that starts anew gives its queue pairs the numbers of before, and the capture lacks the handshake: what was
//! known of the connection before says nothing about the next one.

#[path = "common/build.rs"]
mod build;
mod common;

use build::{C, Conversation, MILLISECOND, Rpc, SECOND, null_call, request, response};
use common::{Frame, analyze_frames, frames};
use rdmascope_analyzer::finding::{Blame, Certainty, Rule, Severity};
use rdmascope_analyzer::report::{Connection, Report, Transport};
use rdmascope_dissector::wire::ib::mad::QP1;

/// Samples between the same hosts, and queue pairs of the same numbers.
const SAMPLES: &[&str] =
    &["nfs-roce-v3", "nfs-roce-v42", "smb-roce", "smb-roce-credits4", "smb-roce-sign", "smb-roce-smb302"];

/// The first frames of one sample up to `end`, and after a silence those of another one from `begin` on, without
/// messages of connection management.
fn one_after_another(before: &[Frame], end: usize, after: &[Frame], begin: usize, silence: i64) -> Vec<Frame> {
    let mut frames = before[..end].to_vec();
    let shift = frames[end - 1].meta.time_ns + silence - after[begin].meta.time_ns;
    for frame in after[begin..].iter().filter(|frame| !is_management(&frame.bytes)) {
        let mut frame = frame.clone();
        frame.meta.time_ns += shift;
        frame.meta.number = frames.len() as u64 + 1;
        frames.push(frame);
    }
    frames
}

/// True for RoCE version 2 over Ethernet and IPv4 to queue pair 1.
fn is_management(frame: &[u8]) -> bool {
    let is_roce = frame.get(12..14) == Some(&[8, 0]) && frame.get(36..38) == Some(&4791_u16.to_be_bytes());
    is_roce && frame.get(47..50) == Some(&QP1.to_be_bytes()[1..])
}

/// Findings that blame somebody about RoCE: the rule, the side, how certain that is, and the text.
fn blamed(report: &Report) -> Vec<(Rule, Blame, Certainty, String)> {
    let of_the_capture = |rule: Rule| rule.id().starts_with("CAPTURE-") || rule == Rule::RcDuplicate;
    let is_roce = |id: u32| report.connections.iter().any(|c| c.id == id && c.transport == Some(Transport::RoceV2));
    report
        .findings
        .iter()
        .filter(|f| f.severity != Severity::Note || f.certainty == Certainty::Certain)
        .filter(|f| !of_the_capture(f.rule) && f.connection.is_none_or(is_roce))
        .map(|f| (f.rule, f.by, f.certainty, f.text.clone()))
        .collect()
}

#[test]
fn nothing_rests_on_the_connection_before() {
    let samples: Vec<Vec<Frame>> = SAMPLES.iter().map(|name| frames(name)).collect();
    let mut wrong = Vec::new();
    let mut seed = 9_u32;
    let mut random = |least: usize, below: usize| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        least + (seed >> 8) as usize % (below - least)
    };
    for (x, before) in samples.iter().enumerate() {
        for (y, after) in samples.iter().enumerate().filter(|(y, _)| x != *y) {
            for silence in [MILLISECOND, SECOND, 20 * SECOND].repeat(2) {
                let (end, begin) = (random(60, before.len()), random(30, after.len() - 100));
                let both = one_after_another(before, end, after, begin, silence);
                let own =
                    [&before[..], &before[..end], after, &both[end..]].map(|part| blamed(&analyze_frames(part).0));
                for (rule, by, certainty, text) in blamed(&analyze_frames(&both).0) {
                    if !own.iter().flatten().any(|(r, b, c, _)| (*r, *b) == (rule, by) && *c >= certainty) {
                        let (id, x, y) = (rule.id(), SAMPLES[x], SAMPLES[y]);
                        wrong.push(format!("{x}[..{end}] {y}[{begin}..] {silence}: {id} {by:?} {certainty:?}: {text}"));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_was_agreed_before_does_not_hold() {
    let (marks, nfs) = (frames("roce-marks-unanswered"), frames("nfs-roce-v42"));
    // its server invalidates keys, which the client of the one before did not allow, and reads twice at a time
    let report = analyze_frames(&one_after_another(&marks, 81, &nfs, 362, MILLISECOND)).0;
    let told: Vec<Rule> = report.findings.iter().map(|f| f.rule).collect();
    assert!(!told.contains(&Rule::RdmaInvalidate) && !told.contains(&Rule::RdmaReadDepth), "{told:?}");
}

/// First and last frame of each connection of queue pairs.
fn connections(frames: &[Frame]) -> Vec<(u64, u64)> {
    let report = analyze_frames(frames).0;
    let is_roce = |c: &&Connection| c.transport == Some(Transport::RoceV2);
    report.connections.iter().filter(is_roce).map(|c| (c.first.frame, c.last.frame)).collect()
}

#[test]
fn the_next_connection_is_one_of_its_own() {
    let (nfs3, nfs, smb) = (frames("nfs-roce-v3"), frames("nfs-roce-v42"), frames("smb-roce"));
    for silence in [MILLISECOND, 30 * SECOND] {
        let of = |before, end, after, begin| connections(&one_after_another(before, end, after, begin, silence));
        // counts messages anew; the first packet is seen before that, and a few more where the silence was long
        assert_eq!(of(&nfs, 500, &nfs3, 300), [(24, 501), (502, 729)]);
        let [end, last] = if silence > SECOND { [367, 904] } else { [366, 900] };
        assert_eq!(of(&nfs3, 366, &smb, 226), [(45, end), (end + 1, 1217)]);
        // other queue pairs at one end
        assert_eq!(of(&smb, 900, &nfs, 450), [(21, last), (last + 1, 1355)]);
        // more messages than before, as behind a hole
        assert_eq!(of(&nfs3, 400, &nfs, 600), [(45, 705)]);
    }
}

#[test]
fn a_packet_that_begins_a_connection_tells_however_near_it_is() {
    let begun = |psn: [u32; 2], begin: fn(&mut Conversation)| {
        let mut c = Conversation::default();
        c.connect(5445);
        c.smb();
        (0..8).for_each(|_| c.echo());
        c.wait(30 * SECOND);
        c.psn = psn;
        begin(&mut c);
        connections(&c.frames).len()
    };
    let negotiates = |c: &mut Conversation| c.negotiate(request(), response());
    let begins_smb2 = |c: &mut Conversation| c.smb2_negotiate();
    let goes_on = |c: &mut Conversation| (0..8).for_each(|_| c.echo());
    for psn in [[5000, 9000], [0xff_f000, 0xff_e000], [0x50_0000, 0x60_0000]] {
        assert_eq!([negotiates, begins_smb2, goes_on].map(|begin| begun(psn, begin)), [2, 2, 1], "{psn:x?}");
    }
}

#[test]
fn a_hole_makes_no_connection_of_its_own() {
    let frames_behind = |hole: u32, behind: fn(&mut Conversation)| {
        let mut c = Conversation::default();
        c.nfs();
        (7..20).for_each(|xid| c.null(xid));
        c.wait(SECOND);
        c.psn = c.psn.map(|psn| (psn + hole) & 0xff_ffff);
        behind(&mut c);
        c.frames
    };
    // as a client calls that mounts another export through the same connection
    let mounts = |c: &mut Conversation| (30..36).for_each(|xid| c.null(xid));
    let looks = |c: &mut Conversation| {
        let mut call = null_call(38);
        call[20..24].copy_from_slice(&1_u32.to_be_bytes());
        c.send(C, &Rpc::msg(38, &call).bytes());
    };
    for hole in [1100, 40_000, 100_000, 0xff_0000] {
        for behind in [mounts, looks] {
            assert_eq!(connections(&frames_behind(hole, behind)).len(), 1, "{hole}");
        }
    }
}
