//! Cuts every connection out of every sample: an analysis of the cut gives the same result for it.

mod common;

use common::{Rows, samples};
use rdmascope_analyzer::exchange::Exchange;
use rdmascope_analyzer::finding::{Finding, Rule};
use rdmascope_analyzer::pipeline::{FrameMeta, Pipeline};
use rdmascope_analyzer::report::Report;
use rdmascope_capture::{OpenOptions, Source, open};
use rdmascope_dissector::trace::Off;
use rdmascope_share::cut::{Choice, Cuts, Cutter, Wanted, is_joint};
use std::path::Path;

/// The frames for which `passes` is true, numbered anew.
fn frames(path: &Path, mut passes: impl FnMut(u64) -> bool, mut each: impl FnMut(&FrameMeta, &[u8])) {
    let mut source = open(path, OpenOptions::new()).unwrap();
    let (mut n, mut number) = (0, 0);
    while matches!(source.advance(), Ok(true)) {
        let r = source.record();
        n += 1;
        if passes(n) {
            number += 1;
            let meta = FrameMeta {
                number,
                time_ns: r.time_ns,
                link_type: r.link_type,
                wire_len: r.wire_len,
                interface: r.interface,
            };
            each(&meta, r.bytes);
        }
    }
}

/// An analysed capture: its report, its requests, the cutter's result, and the time of each frame.
fn followed(path: &Path) -> (Report, Vec<Exchange>, Cuts, Vec<i64>) {
    let (mut cutter, mut whole) = (Cutter::new(), Pipeline::with_sink(Default::default(), Rows::default()));
    let mut times = Vec::new();
    frames(
        path,
        |_| true,
        |meta, bytes| {
            cutter.frame(meta, bytes, &mut Off);
            whole.frame(meta, bytes, &mut Off);
            times.push(meta.time_ns);
        },
    );
    let (report, rows) = whole.finish();
    (report, rows.0, cutter.finish(), times)
}

/// The analysis of the cut.
fn of_part(path: &Path, choice: &Choice) -> (Report, Vec<Exchange>) {
    let mut part = Pipeline::with_sink(Default::default(), Rows::default());
    frames(path, |n| choice.has(n), |meta, bytes| part.frame(meta, bytes, &mut Off));
    let (report, rows) = part.finish();
    (report, rows.0)
}

/// Results for these connections, without the numbers of frames, connections and requests.
fn said(report: &Report, rows: &[Exchange], wanted: impl Fn(u32) -> bool) -> Vec<String> {
    let mut lines = Vec::new();
    let followed: Vec<u32> =
        report.connections.iter().filter(|c| wanted(c.id)).flat_map(|c| c.followed_as.clone()).collect();
    for c in report.connections.iter().filter(|c| wanted(c.id)) {
        let mut c = c.clone();
        (c.id, c.followed_as) = (0, Vec::new());
        // an unanswered attempt to connect lasts until the capture ends, and a cut ends sooner
        c.outcome = None;
        for waiter in c.episodes.list.iter_mut().flat_map(|e| &mut e.longest) {
            (waiter.exchange, waiter.first, waiter.last) = (0, 0, 0);
        }
        lines.push(format!("{c:#?}"));
    }
    let is_own = |f: &&Finding| !is_joint(f.rule) && f.connection.is_some_and(&wanted);
    for f in report.findings.iter().filter(is_own) {
        lines.push(format!(
            "{:?} {:?} {:?} {:?} {} {} {}",
            f.rule, f.severity, f.certainty, f.by, f.time_ns, f.count, f.text
        ));
    }
    for row in rows.iter().filter(|r| followed.contains(&r.connection)) {
        let mut row = row.clone();
        (row.id, row.connection) = (0, 0);
        lines.push(format!("{row:#?}"));
    }
    let numbered = |line: &&str| {
        !line.trim_start().starts_with("frame:") && !line.contains(" frame ") && !line.contains("frames ")
    };
    lines.join("\n").lines().filter(numbered).map(str::to_owned).collect()
}

#[test]
fn a_connection_that_was_cut_out_analyses_as_before() {
    for path in samples() {
        let (report, rows, cuts, _) = followed(&path);
        for connection in report.connections.iter().map(|c| c.id) {
            let choice = cuts.choose(&Wanted { connections: vec![connection], ..Wanted::default() });
            assert!(choice.connections.contains(&connection) && choice.frames > 0);
            let (part, part_rows) = of_part(&path, &choice);
            assert_eq!(part.connections.len(), choice.connections.len(), "{}", path.display());
            let was = said(&report, &rows, |id| choice.connections.contains(&id));
            let is = said(&part, &part_rows, |_| true);
            for (a, b) in was.iter().zip(&is) {
                assert_eq!(a, b, "{} connection {connection}", path.display());
            }
            assert_eq!(was.len(), is.len(), "{} connection {connection}", path.display());
        }
    }
}

#[test]
fn a_request_that_was_cut_out_is_the_same_request() {
    let path = samples().into_iter().find(|p| p.ends_with("smb-roce.pcap")).unwrap();
    let (_, rows, cuts, _) = followed(&path);
    let row = rows.iter().filter(|r| r.command == "READ").nth(1).expect("a READ that is not the first");
    let choice = cuts.choose(&Wanted { requests: vec![row.id], ..Wanted::default() });
    let all = cuts.choose(&Wanted::default()).frames;
    assert!(choice.has(row.reply_end.unwrap().frame) && choice.frames < all, "{} of {all} frames", choice.frames);
    let part = of_part(&path, &choice).1;
    let same =
        part.iter().find(|r| r.message_id == row.message_id && r.command == row.command).expect("the request is there");
    assert_eq!(
        (same.latency(), same.bytes_moved, &same.file, same.offset),
        (row.latency(), row.bytes_moved, &row.file, row.offset)
    );
    assert!(
        !cuts.has_request(u64::MAX)
            && cuts.choose(&Wanted { requests: vec![u64::MAX], ..Wanted::default() }).frames == 0
    );
}

#[test]
fn nothing_wanted_is_every_connection_and_a_span_ends_it() {
    let path = samples().into_iter().find(|p| p.ends_with("smb-roce.pcap")).unwrap();
    let (_, _, cuts, times) = followed(&path);
    assert_eq!(cuts.choose(&Wanted::default()).connections.len(), cuts.report.connections.len());
    let middle = times[times.len() / 2];
    let half = cuts.choose(&Wanted { span: Some((times[0], middle)), ..Wanted::default() });
    let last = (1..=times.len() as u64).filter(|n| half.has(*n)).max().unwrap();
    assert!(half.frames > 0 && times[last as usize - 1] <= middle);
    assert!(cuts.choose(&Wanted { connections: vec![9999], ..Wanted::default() }).frames == 0);
}

/// Findings without a connection, of this rule or of any.
fn of_none(report: &Report, rule: Option<Rule>) -> Vec<String> {
    let found = report
        .findings
        .iter()
        .filter(|f| rule.is_none_or(|rule| f.rule == rule) && !is_joint(f.rule) && f.connection.is_none());
    found
        .map(|f| format!("{:?} {:?} {:?} {:?} {} {}", f.rule, f.severity, f.certainty, f.by, f.count, f.text))
        .collect()
}

#[test]
fn what_a_finding_a_filter_or_a_span_chooses_analyses_as_before() {
    let mut joint = 0;
    for path in samples() {
        let shown = path.display();
        let (report, rows, cuts, times) = followed(&path);
        let analyzed = |wanted: &Wanted| {
            let choice = cuts.choose(wanted);
            let part = of_part(&path, &choice);
            (choice, part)
        };
        let said_before = |chosen: &std::collections::BTreeSet<u32>| said(&report, &rows, |id| chosen.contains(&id));
        // by finding: the cut has the same finding again, and everything else of its connections
        let mut rules: Vec<_> = report.findings.iter().map(|f| f.rule).collect();
        rules.sort_unstable();
        rules.dedup();
        for rule in rules {
            let (choice, (part, part_rows)) = analyzed(&Wanted { findings: vec![rule], ..Wanted::default() });
            assert!(choice.frames > 0, "{shown} {}", rule.id());
            if is_joint(rule) {
                // the connections that it compares are part of the cut, so that it is found again
                assert!(part.findings.iter().any(|f| f.rule == rule), "{shown} {}", rule.id());
                joint += 1;
                continue;
            }
            assert_eq!(said_before(&choice.connections), said(&part, &part_rows, |_| true), "{shown} {}", rule.id());
            // findings without a connection, such as failed attempts to connect
            assert_eq!(of_none(&report, Some(rule)), of_none(&part, Some(rule)), "{shown} {}", rule.id());
        }
        // a frame that a filter passes selects its whole connection
        let middle = times.len() as u64 / 2 + 1;
        let (choice, (part, part_rows)) = analyzed(&Wanted { frames: Some([middle].into()), ..Wanted::default() });
        if !choice.connections.is_empty() {
            assert!(choice.has(middle));
            assert_eq!(said_before(&choice.connections), said(&part, &part_rows, |_| true), "{shown} frame {middle}");
        }
        // the whole time span selects everything
        let (first, last) = (times.iter().min().copied().unwrap(), times.iter().max().copied().unwrap());
        let (choice, (part, part_rows)) = analyzed(&Wanted { span: Some((first, last)), ..Wanted::default() });
        assert_eq!(choice.connections.len(), report.connections.len(), "{shown}");
        assert_eq!(said_before(&choice.connections), said(&part, &part_rows, |_| true), "{shown}");
        assert_eq!(of_none(&report, None), of_none(&part, None), "{shown}");
    }
    assert!(joint > 5, "{joint} findings that hold connections against each other");
}
