//! Missing parts of a capture put no blame on an end: captures that begin late, end early, lose frames, have one
//! direction only or cut their frames short find no error against client or server, above a guess, that the complete
//! capture does not find. Nor do captures that only look different: seen twice, in another order, behind NAT, in a
//! tunnel, merged.

mod common;

use common::*;
use rdmascope_analyzer::finding::{Blame, Certainty, Finding, Rule};
use rdmascope_analyzer::outcome::{Outcome, Stage};
use rdmascope_analyzer::pipeline::FrameMeta;
use rdmascope_analyzer::report::Report;
use rdmascope_analyzer::rules::Severity;
use rdmascope_dissector::frame::{self, Addr, LinkType};
use rdmascope_dissector::trace::Off;
use rdmascope_dissector::wire::ib::icrc::{self, Cover};
use std::collections::{BTreeMap, BTreeSet};

/// Errors against a peer that are more than a guess.
fn blames(report: &Report) -> impl Iterator<Item = &Finding> {
    report.findings.iter().filter(|f| {
        f.severity == Severity::Error && f.certainty > Certainty::Guess && matches!(f.by, Blame::Client | Blame::Server)
    })
}

/// Probes that were made with errors which only a part of their frames shows: t6_err is nothing but errors; in the
/// others packets are missing from the beginning, and a credit is spent behind them without a visible grant.
const BROKEN: &[&str] = &["t6_err", "t2_cm", "i4_packed"];

/// The frames of a sample, and the findings in all of them.
struct Whole {
    name: String,
    frames: Vec<Frame>,
    found: BTreeSet<(&'static str, Blame)>,
}

impl Whole {
    fn all() -> impl Iterator<Item = Self> {
        let probes = PROBES.iter().filter(|name| !BROKEN.contains(name)).map(|name| format!("probes/{name}"));
        let mut all: Vec<String> =
            std::fs::read_dir(samples()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        all.retain(|name| path(name).exists());
        all.sort();
        assert!(all.len() >= 50, "{} samples", all.len());
        all.into_iter().chain(probes).map(|name| {
            let frames = frames(&name);
            let found = blames(&analyze_frames(&frames).0).map(|f| (f.rule.id(), f.by)).collect();
            Self { name, frames, found }
        })
    }

    /// Those of real traffic, in which each end acknowledges what it receives.
    fn real() -> impl Iterator<Item = Self> {
        Self::all().filter(|whole| !whole.name.starts_with("probes/"))
    }

    /// Findings of a part of the frames that the whole does not have.
    fn besides(&self, part: &[Frame], what: &str, wrong: &mut Vec<String>) {
        let (report, _) = analyze_frames(part);
        for finding in blames(&report).filter(|f| !self.found.contains(&(f.rule.id(), f.by))) {
            let (id, by, frame, text) = (finding.rule.id(), finding.by.name(), finding.frame, &finding.text);
            wrong.push(format!("{}, {what}: {id} by {by} in frame {frame}: {text}", self.name));
        }
    }
}

/// Address of the sender of a frame.
fn source(frame: &Frame) -> Addr {
    let Frame { meta, bytes } = frame;
    frame::decode(meta.link_type, bytes, meta.wire_len, &frame::Options::default(), &mut Off).src
}

fn nothing(wrong: &[String]) {
    assert!(wrong.is_empty(), "{} findings\n{}", wrong.len(), wrong.join("\n"));
}

/// A generator that gives the same numbers everywhere (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[test]
fn a_capture_that_begins_late_blames_nobody() {
    // every frame takes minutes: a stride that visits other frames in every sample, and all of them with CUTS=all
    let all = std::env::var_os("CUTS").is_some_and(|v| v == "all");
    let mut wrong = Vec::new();
    for (index, whole) in Whole::all().enumerate() {
        let step = if all { 1 } else { whole.frames.len() / 24 + 1 + index % 3 };
        for start in (1..whole.frames.len()).step_by(step) {
            whole.besides(&whole.frames[start..], &format!("begun with frame {}", start + 1), &mut wrong);
        }
    }
    nothing(&wrong);
}

#[test]
fn a_capture_that_ends_early_blames_nobody() {
    let all = std::env::var_os("CUTS").is_some_and(|v| v == "all");
    let mut wrong = Vec::new();
    for (index, mut whole) in Whole::all().enumerate() {
        // a refusal is an error until what follows makes up for it
        whole.found = analyze_frames(&whole.frames).0.findings.iter().map(|f| (f.rule.id(), f.by)).collect();
        let step = if all { 1 } else { whole.frames.len() / 16 + 1 + index % 5 };
        for end in (1..whole.frames.len()).step_by(step) {
            whole.besides(&whole.frames[..end], &format!("ended before frame {}", end + 1), &mut wrong);
        }
    }
    nothing(&wrong);
}

#[test]
fn a_capture_that_loses_frames_blames_nobody() {
    let mut wrong = Vec::new();
    for whole in Whole::all() {
        for (per_mille, seeds) in [(1, 2), (10, 4), (50, 4)] {
            for seed in 1..=seeds {
                let mut random = Random(seed * 1000 + per_mille);
                let kept: Vec<Frame> =
                    whole.frames.iter().filter(|_| random.next() % 1000 >= per_mille).cloned().collect();
                if kept.len() < whole.frames.len() {
                    whole.besides(&kept, &format!("{per_mille} of 1000 lost, seed {seed}"), &mut wrong);
                }
            }
        }
    }
    nothing(&wrong);
}

#[test]
fn a_capture_of_one_direction_blames_nobody() {
    let mut wrong = Vec::new();
    for whole in Whole::all() {
        let sources: Vec<Addr> = whole.frames.iter().map(source).collect();
        for one in sources.iter().copied().collect::<BTreeSet<Addr>>() {
            let of = whole.frames.iter().zip(&sources).filter(|(_, src)| **src == one).map(|(f, _)| f.clone());
            whole.besides(&of.collect::<Vec<_>>(), &format!("only what {one:?} sent"), &mut wrong);
        }
    }
    nothing(&wrong);
}

/// Errors and warnings against a peer that are more than a guess.
fn warned(frames: &[Frame]) -> Vec<Finding> {
    let (report, _) = analyze_frames(frames);
    let against = |f: &&Finding| f.severity >= Severity::Warn && matches!(f.by, Blame::Client | Blame::Server);
    report.findings.iter().filter(against).filter(|f| f.certainty > Certainty::Guess).cloned().collect()
}

/// As where a route changes, or one of two taps fails: warnings count here, too.
#[test]
fn a_direction_that_is_missing_for_a_while_blames_nobody() {
    let mut wrong = Vec::new();
    for whole in Whole::real() {
        let known: BTreeSet<_> = analyze_frames(&whole.frames).0.findings.iter().map(|f| f.rule).collect();
        let sources: Vec<Addr> = whole.frames.iter().map(source).collect();
        for one in sources.iter().copied().collect::<BTreeSet<Addr>>() {
            // tenths of the capture in which it is missing: up to its end, from its beginning, inside
            for (from, to) in [(2, 10), (5, 10), (7, 10), (0, 3), (0, 5), (0, 8), (2, 3), (3, 6), (7, 9)] {
                let missing = whole.frames.len() * from / 10..whole.frames.len() * to / 10;
                let kept: Vec<Frame> = (0..whole.frames.len())
                    .filter(|n| sources[*n] != one || !missing.contains(n))
                    .map(|n| whole.frames[n].clone())
                    .collect();
                // the first answer that shows why RDMA is not used is another one, but as true; and a server does send
                // such a message, of which the rest of the connection tells what it is
                let is_true = |f: &&Finding| {
                    f.rule == Rule::SmbPathRefused
                        || whole.name == "smb-iwarp-encryption-fails" && f.rule == Rule::Smb2Malformed
                };
                for f in warned(&kept).iter().filter(|f| !known.contains(&f.rule) && !is_true(f)) {
                    let (id, by, text) = (f.rule.id(), f.by.name(), &f.text);
                    wrong.push(format!("{}, without {one:?} in {missing:?}: {id} by {by}: {text}", whole.name));
                }
            }
        }
    }
    nothing(&wrong);
}

#[test]
fn a_capture_that_cuts_frames_short_blames_nobody() {
    let mut wrong = Vec::new();
    for whole in Whole::all() {
        for snap in [60, 80, 100, 128, 160, 192, 256, 512, 1024] {
            let cut =
                whole.frames.iter().map(|f| Frame { meta: f.meta, bytes: f.bytes[..f.bytes.len().min(snap)].to_vec() });
            whole.besides(&cut.collect::<Vec<_>>(), &format!("{snap} bytes of a frame"), &mut wrong);
        }
    }
    nothing(&wrong);
}

/// Over TCP, too, the beginning of a message tells which it is and what it answers, as long as its header was captured.
#[test]
fn requests_over_tcp_are_known_by_their_beginning() {
    let commands = |frames: &[Frame]| -> BTreeMap<&'static str, (u64, u64)> {
        let rows = analyze_frames(frames).0.connections.into_iter().flat_map(|c| c.commands);
        // of a compound only the first request is known
        let rows = rows.filter(|row| !matches!(row.name, "CLOSE" | "QUERY_INFO" | "QUERY_DIRECTORY" | "SET_INFO"));
        rows.map(|row| (row.name, (row.count, row.unanswered))).collect()
    };
    for name in ["smb-tcp-bridge", "smb-tcp-seal", "smb-tcp-no-multichannel"] {
        let frames = frames(name);
        let whole = commands(&frames);
        assert!(whole.len() >= 2, "{name}: {whole:?}");
        for snap in [136, 160, 200] {
            let cut: Vec<_> = frames
                .iter()
                .map(|f| Frame { meta: f.meta, bytes: f.bytes[..f.bytes.len().min(snap)].to_vec() })
                .collect();
            assert_eq!(commands(&cut), whole, "{name}, {snap} bytes of a frame");
        }
    }
}

/// As where the two directions were captured at two places, one of them with short frames.
#[test]
fn a_capture_that_cuts_the_frames_of_one_direction_short_blames_nobody() {
    let mut wrong = Vec::new();
    for whole in Whole::all() {
        let sources: Vec<Addr> = whole.frames.iter().map(source).collect();
        let known: BTreeSet<_> = analyze_frames(&whole.frames).0.findings.iter().map(|f| f.rule).collect();
        for one in sources.iter().copied().collect::<BTreeSet<Addr>>() {
            for snap in [48, 60, 64, 68, 72, 80, 96, 110, 128, 160, 200, 256] {
                let cut = whole.frames.iter().zip(&sources).map(|(f, src)| {
                    let length = if *src == one { f.bytes.len().min(snap) } else { f.bytes.len() };
                    Frame { meta: f.meta, bytes: f.bytes[..length].to_vec() }
                });
                let what = format!("{snap} bytes of a frame of {one:?}");
                // the first answer that shows why RDMA is not used is another one, but as true
                let is_new = |f: &&Finding| !known.contains(&f.rule) && f.rule != Rule::SmbPathRefused;
                for f in warned(&cut.collect::<Vec<_>>()).iter().filter(is_new) {
                    let (id, by, text) = (f.rule.id(), f.by.name(), &f.text);
                    wrong.push(format!("{}, {what}: {id} by {by}: {text}", whole.name));
                }
            }
        }
    }
    // its server does send such messages; why, only its other direction tells
    wrong.retain(|found| !(found.starts_with("smb-iwarp-encryption-fails,") && found.contains("SMB2-MALFORMED")));
    nothing(&wrong);
}

/// Client and server of a connection of NFS, whose handshake was not seen, are not exchanged: unknown facts are
/// reported as unknown.
#[test]
fn client_and_server_are_not_exchanged() {
    for name in ["nfs-roce-v42", "nfs-roce-v3", "smb-roce"] {
        let whole = frames(name);
        let client = analyze_frames(&whole).0.connections[0].peers[0].address;
        for start in (1..whole.len()).step_by(whole.len() / 60 + 1) {
            let (report, _) = analyze_frames(&whole[start..]);
            for connection in report.connections.iter().filter(|c| c.client_known) {
                assert_eq!(connection.peers[0].address, client, "{name}, begun with frame {}", start + 1);
            }
        }
    }
}

// ── Changes that are harmless: what the ends did is the same, and it is all there
// ───────────────────────────────────────

/// Further findings of a changed capture, in sentences.
fn shown(changed: &str, change: impl Fn(&[Frame]) -> Option<Vec<Frame>>) {
    let (mut wrong, mut tried) = (Vec::new(), 0);
    for whole in Whole::all() {
        if let Some(frames) = change(&whole.frames) {
            tried += 1;
            whole.besides(&frames, changed, &mut wrong);
        }
    }
    assert!(tried > 15, "{changed}: {tried} captures");
    nothing(&wrong);
}

/// Frames in the order of their times, numbered anew.
fn in_order(mut frames: Vec<Frame>) -> Vec<Frame> {
    frames.sort_by_key(|f| f.meta.time_ns);
    for (n, frame) in frames.iter_mut().enumerate() {
        frame.meta.number = n as u64 + 1;
    }
    frames
}

fn later(frame: &Frame, ns: i64) -> Frame {
    let mut frame = frame.clone();
    frame.meta.time_ns += ns;
    frame
}

/// IPv4 of an Ethernet frame without tags, whose header has 20 bytes and whose datagram is whole.
fn ipv4(bytes: &mut [u8]) -> Option<&mut [u8]> {
    let ip = bytes.get(12..14).is_some_and(|kind| kind == [8, 0]).then(|| &mut bytes[14..])?;
    (ip.len() >= 20 && ip[0] == 0x45 && ip[6] & 0x3f == 0 && ip[7] == 0).then_some(ip)
}

/// The checksum of RFC 1071 after some of its bytes changed from `old` to `new` (RFC 1624).
fn adjusted(sum: u16, old: &[u8], new: &[u8]) -> u16 {
    let words = |bytes: &[u8]| -> u32 { bytes.chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum() };
    let mut total =
        u32::from(!sum) + words(new) + old.chunks(2).map(|w| u32::from(!u16::from_be_bytes([w[0], w[1]]))).sum::<u32>();
    while total >> 16 != 0 {
        total = (total & 0xffff) + (total >> 16);
    }
    !(total as u16)
}

/// Rewrites the word at `at` of a checksum that covered `old` and covers `new` now.
fn adjust(bytes: &mut [u8], at: usize, old: &[u8], new: &[u8]) {
    let sum = adjusted(u16::from_be_bytes([bytes[at], bytes[at + 1]]), old, new);
    bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
}

/// Gives every IPv4 address another network, as NAT does, with all checksums and the invariant CRC right.
fn translated(frames: &[Frame]) -> Option<Vec<Frame>> {
    const ROCE: u16 = 4791;
    let (mut out, mut changed) = (frames.to_vec(), 0);
    for frame in &mut out {
        let whole = frame.bytes.len() as u32 == frame.meta.wire_len;
        let Some(ip) = ipv4(&mut frame.bytes) else { continue };
        let length = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
        // the quote in an ICMP message is not rewritten here
        if ip[9] == 1 || !whole || length > ip.len() {
            return None;
        }
        let old = ip[12..20].to_vec();
        // 198.18.0.0/15 is for tests of networks (RFC 2544)
        (ip[12], ip[13], ip[16], ip[17]) = (198, 18, 198, 18);
        let new = ip[12..20].to_vec();
        adjust(ip, 10, &old, &new);
        let port = |at: usize| u16::from_be_bytes([ip[at], ip[at + 1]]);
        match ip[9] {
            6 => adjust(ip, 36, &old, &new),
            17 if port(22) == ROCE => {
                if port(26) != 0 {
                    adjust(ip, 26, &old, &new);
                }
                let crc = icrc::invariant(Cover::Ipv4, &ip[..length - 4])?;
                ip[length - 4..length].copy_from_slice(&crc.to_le_bytes());
            }
            _ => {}
        }
        changed += 1;
    }
    (changed > 0).then_some(out)
}

/// Behind Ethernet, IPv4, UDP and VXLAN (RFC 7348), of a network with this identifier, of a tunnel's ends.
fn tunnelled(frames: &[Frame], network: u8) -> Option<Vec<Frame>> {
    let wrap = |frame: &Frame| {
        let inner = frame.bytes.len() as u16;
        let mut head = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
        let mut ip = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 198, 51, 100, 1, 198, 51, 100, 2];
        ip[2..4].copy_from_slice(&(inner + 36).to_be_bytes());
        let zeros = [0; 20];
        let sum = adjusted(0xffff, &zeros, &ip);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        head.extend_from_slice(&ip);
        [50_000u16, 4789, inner + 16, 0].into_iter().for_each(|word| head.extend_from_slice(&word.to_be_bytes()));
        head.extend_from_slice(&[8, 0, 0, 0, 0, 0, network, 0]);
        let wire_len = frame.meta.wire_len + head.len() as u32;
        head.extend_from_slice(&frame.bytes);
        Frame { meta: FrameMeta { wire_len, ..frame.meta }, bytes: head }
    };
    let is_ethernet = frames.iter().all(|f| f.meta.link_type == LinkType::ETHERNET);
    is_ethernet.then(|| frames.iter().map(wrap).collect())
}

#[test]
fn a_mirror_of_every_frame_blames_nobody() {
    for lag in [1_000, 50_000, 1_000_000, 10_000_000] {
        shown(&format!("every frame twice, {} µs apart", lag / 1000), |frames| {
            Some(in_order(frames.iter().flat_map(|f| [f.clone(), later(f, lag)]).collect()))
        });
    }
}

/// Behind a router: a hop less to live.
#[test]
fn a_mirror_behind_a_router_blames_nobody() {
    for lag in [50_000, 5_000_000] {
        shown(&format!("every frame twice, {} µs and a router apart", lag / 1000), |frames| {
            let hop = |f: &Frame| {
                let mut copy = later(f, lag);
                if let Some(ip) = ipv4(&mut copy.bytes) {
                    let old = [ip[8], ip[9]];
                    ip[8] = ip[8].saturating_sub(1);
                    let new = [ip[8], ip[9]];
                    adjust(ip, 10, &old, &new);
                }
                copy
            };
            Some(in_order(frames.iter().flat_map(|f| [f.clone(), hop(f)]).collect()))
        });
    }
}

#[test]
fn frames_in_another_order_blame_nobody() {
    for seed in 1..=3 {
        shown(&format!("50 µs of jitter, seed {seed}"), |frames| {
            let mut random = Random(seed);
            Some(in_order(frames.iter().map(|f| later(f, (random.next() % 50_000) as i64)).collect()))
        });
        shown(&format!("neighbours swapped, seed {seed}"), |frames| {
            let (mut random, mut out) = (Random(seed), frames.to_vec());
            for _ in 0..out.len() / 50 {
                let at = random.next() as usize % (out.len() - 1);
                let (before, after) = out.split_at_mut(at + 1);
                let (one, two) = (&mut before[at], &mut after[0]);
                std::mem::swap(&mut one.bytes, &mut two.bytes);
                std::mem::swap(&mut one.meta.wire_len, &mut two.meta.wire_len);
            }
            Some(out)
        });
    }
}

#[test]
fn coarse_times_blame_nobody() {
    for (what, tick) in [("times of 1 ms", 1_000_000), ("times of 1 s", 1_000_000_000)] {
        shown(what, |frames| Some(frames.iter().map(|f| later(f, -f.meta.time_ns.rem_euclid(tick))).collect()));
    }
}

/// Two captures of one direction each, as one: their clocks differ. Nobody failed for that.
#[test]
fn two_taps_with_different_clocks_blame_nobody() {
    for by in [-5_000_000, -500_000, 500_000, 5_000_000] {
        let mut wrong = Vec::new();
        for whole in Whole::real() {
            let first = source(&whole.frames[0]);
            let shifted = in_order(
                whole.frames.iter().map(|f| if source(f) == first { later(f, by) } else { f.clone() }).collect(),
            );
            let failed = |frames: &[Frame]| {
                let (report, _) = analyze_frames(frames);
                let is_sure =
                    |o: &&Outcome| o.failed() && o.certainty > Certainty::Guess && o.reached >= Stage::Session;
                report.connections.iter().filter_map(|c| c.outcome.as_ref()).filter(is_sure).count()
            };
            if failed(&shifted) > failed(&whole.frames) {
                wrong.push(format!("{}, by {by} ns: a connection failed", whole.name));
            }
            whole.besides(&shifted, &format!("one direction by {by} ns"), &mut wrong);
        }
        nothing(&wrong);
    }
}

/// The same, by as much as hosts without a common clock differ: not even as a guess, where the capture shows it.
#[test]
fn two_taps_whose_clocks_differ_by_milliseconds_accuse_nobody() {
    let accused = |frames: &[Frame]| -> BTreeSet<(&'static str, Blame)> {
        let (report, _) = analyze_frames(frames);
        let is_one = |f: &&Finding| f.severity == Severity::Error && matches!(f.by, Blame::Client | Blame::Server);
        report.findings.iter().filter(is_one).map(|f| (f.rule.id(), f.by)).collect()
    };
    let mut wrong = Vec::new();
    for whole in Whole::real() {
        let (first, before) = (source(&whole.frames[0]), accused(&whole.frames));
        for by in [-30, -3, -2, 2, 3, 30].map(|ms: i64| ms * 1_000_000) {
            let shifted = in_order(
                whole.frames.iter().map(|f| if source(f) == first { later(f, by) } else { f.clone() }).collect(),
            );
            // an answer of connection management that stands before its request is not known as one
            let is_known = |found: &&(&str, Blame)| before.contains(found) || found.0 == "CM-TIMEOUT";
            let more: Vec<_> = accused(&shifted).into_iter().filter(|found| !is_known(&found)).collect();
            if !more.is_empty() {
                wrong.push(format!("{}, by {by} ns: {more:?}", whole.name));
            }
        }
    }
    nothing(&wrong);
}

#[test]
fn translated_addresses_blame_nobody() {
    shown("behind NAT", translated);
}

#[test]
fn a_tunnel_blames_nobody() {
    shown("in a tunnel", |frames| tunnelled(frames, 17));
}

/// Two captures as one: each has the findings that it had alone.
#[test]
fn captures_merged_blame_nobody() {
    let mut wrong = Vec::new();
    // a capture that ends in silence is silent for longer if another one goes on
    let all: Vec<Whole> = Whole::all().filter(|whole| !whole.name.starts_with("probes/")).collect();
    for pair in all.windows(2) {
        let [one, two] = pair else { unreachable!("windows of two") };
        // addresses and queue pairs are often the same: the second has addresses of its own, and begins while the first
        // goes on
        let Some(other) = translated(&two.frames) else { continue };
        let shift = one.frames[one.frames.len() / 3].meta.time_ns - other[0].meta.time_ns;
        let merged = in_order(one.frames.iter().cloned().chain(other.iter().map(|f| later(f, shift))).collect());
        let found = one.found.union(&two.found).copied().collect();
        let both = Whole { name: format!("{} and {}", one.name, two.name), frames: Vec::new(), found };
        both.besides(&merged, "merged", &mut wrong);
    }
    nothing(&wrong);
}

/// Two tenants of a cloud whose addresses and queue pairs are the same: each has the findings that it had alone.
#[test]
fn tenants_with_the_same_addresses_blame_nobody() {
    let mut wrong = Vec::new();
    let all: Vec<Whole> = Whole::all().filter(|whole| !whole.name.starts_with("probes/")).collect();
    for pair in all.windows(2) {
        let [one, two] = pair else { unreachable!("windows of two") };
        let (Some(first), Some(second)) = (tunnelled(&one.frames, 17), tunnelled(&two.frames, 18)) else { continue };
        let shift = first[first.len() / 3].meta.time_ns - second[0].meta.time_ns;
        let merged = in_order(first.into_iter().chain(second.iter().map(|f| later(f, shift))).collect());
        // what one tenant's server did not answer is a guess until something of the other's is in the capture
        let guesses = [one, two].into_iter().flat_map(|whole| {
            analyze_frames(&whole.frames).0.findings.iter().map(|f| (f.rule.id(), f.by)).collect::<Vec<_>>()
        });
        let both =
            Whole { name: format!("{} and {}", one.name, two.name), frames: Vec::new(), found: guesses.collect() };
        both.besides(&merged, "of two tenants", &mut wrong);
    }
    nothing(&wrong);
}

/// Queue pairs and ports that are used again after their connection ended, by one whose handshake was not captured.
#[test]
fn numbers_used_again_blame_nobody() {
    let mut wrong = Vec::new();
    let all: Vec<Whole> = Whole::all().filter(|whole| !whole.name.starts_with("probes/")).collect();
    for pair in all.windows(2) {
        let [one, two] = pair else { unreachable!("windows of two") };
        let is_handshake = |f: &Frame| {
            let packet =
                frame::decode(f.meta.link_type, &f.bytes, f.meta.wire_len, &frame::Options::default(), &mut Off);
            match packet.body {
                frame::Body::Ib(ib) => ib.bth.dest_qp <= 1,
                frame::Body::Tcp(segment) => segment.flags & 2 != 0,
                _ => false,
            }
        };
        let rest: Vec<Frame> = two.frames.iter().filter(|f| !is_handshake(f)).cloned().collect();
        let is_over = analyze_frames(&one.frames).0.connections.iter().all(|c| c.closed.is_some());
        let Some(first) = rest.first().filter(|_| is_over) else { continue };
        let shift = one.frames[one.frames.len() - 1].meta.time_ns + 1_000_000_000 - first.meta.time_ns;
        let both: Vec<Frame> = one.frames.iter().cloned().chain(rest.iter().map(|f| later(f, shift))).collect();
        let found = one.found.union(&two.found).copied().collect();
        let whole = Whole { name: format!("{} and {}", one.name, two.name), frames: Vec::new(), found };
        whole.besides(&both, "one after the other", &mut wrong);
    }
    nothing(&wrong);
}

/// The numbers of a frame's sender and of its peer, moved on: sequence numbers of TCP by what `by` says for the address
/// it came from, PSNs by a quarter of their range. Other frames stay as they are; `None` if one cannot be rewritten.
fn renumbered(frame: &Frame, by: &mut impl FnMut(&[u8]) -> [u32; 2]) -> Option<Frame> {
    let mut frame = frame.clone();
    let ip = ipv4(&mut frame.bytes)?;
    let length = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
    match ip[9] {
        6 => {
            let old = ip[24..32].to_vec();
            for (at, add) in [24, 28].into_iter().zip(by(&ip[12..16])) {
                let number = u32::from_be_bytes(ip[at..at + 4].try_into().unwrap()).wrapping_add(add);
                ip[at..at + 4].copy_from_slice(&number.to_be_bytes());
            }
            let new = ip[24..32].to_vec();
            adjust(ip, 36, &old, &new);
        }
        17 if ip[22..24] == 4791u16.to_be_bytes() && length <= ip.len() && ip[33..36] > [0, 0, 1][..] => {
            ip[37] = ip[37].wrapping_add(0x40);
            ip[26..28].fill(0);
            let crc = icrc::invariant(Cover::Ipv4, &ip[..length - 4])?;
            ip[length - 4..length].copy_from_slice(&crc.to_le_bytes());
        }
        _ => {}
    }
    Some(frame)
}

/// A connection whose numbers are suddenly far away: much of it was not captured, or its queue pairs and ports are those
/// of another one now, whose handshake was not captured, nor the end of the one before.
#[test]
fn numbers_that_jump_blame_nobody() {
    const FAR: u32 = 50 << 20;
    let mut wrong = Vec::new();
    let (mut tried, mut kinds) = (0, BTreeSet::new());
    for whole in Whole::real() {
        for (what, [ahead, behind]) in [
            ("both ahead", [FAR, FAR + (10 << 20)]),
            ("both behind", [FAR.wrapping_neg(), (FAR + (10 << 20)).wrapping_neg()]),
            ("one ahead, one behind", [FAR, FAR.wrapping_neg()]),
            ("one behind, one ahead", [FAR.wrapping_neg(), FAR]),
        ] {
            let cut = whole.frames.len() * 3 / 5;
            let mut of_one = None;
            let mut by = |source: &[u8]| {
                let first = of_one.get_or_insert_with(|| source.to_vec());
                if source == first.as_slice() { [ahead, behind] } else { [behind, ahead] }
            };
            let rest = whole.frames.iter().skip(cut + 20);
            let Some(rest) = rest.map(|frame| renumbered(frame, &mut by)).collect::<Option<Vec<Frame>>>() else {
                continue;
            };
            tried += 1;
            kinds.insert(what);
            let both: Vec<Frame> = whole.frames[..cut].iter().cloned().chain(rest).collect();
            whole.besides(&both, what, &mut wrong);
            let guesses = |frames: &[Frame]| {
                let found = analyze_frames(frames).0.findings;
                let errors = found.iter().filter(|f| f.severity == Severity::Error && f.by != Blame::Unknown);
                errors.map(|f| (f.rule.id(), f.by)).collect::<BTreeSet<_>>()
            };
            let more: Vec<_> = guesses(&both).difference(&guesses(&whole.frames)).copied().collect();
            if !more.is_empty() {
                wrong.push(format!("{}, {what}: {more:?}", whole.name));
            }
        }
    }
    assert!(tried > 100 && kinds.len() == 4, "{tried}");
    nothing(&wrong);
}

/// The queue pairs of a connection carry another protocol: they are those of another connection now.
#[test]
fn queue_pairs_with_another_protocol_are_of_another_connection() {
    let (smb, nfs) = (frames("smb-roce"), frames("nfs-roce-v42"));
    // the queue pair of each host
    let pairs = |frames: &[Frame]| {
        let mut found = BTreeMap::new();
        for frame in frames {
            let Frame { meta, bytes } = frame;
            let packet = frame::decode(meta.link_type, bytes, meta.wire_len, &frame::Options::default(), &mut Off);
            if let (frame::Body::Ib(ib), Addr::V4(host)) = (&packet.body, packet.dst)
                && ib.bth.dest_qp > 1
            {
                found.entry(host).or_insert(ib.bth.dest_qp);
            }
        }
        assert_eq!(found.len(), 2);
        found
    };
    for (one, two) in [(&smb, &nfs), (&nfs, &smb)] {
        let own = pairs(one);
        let shift = one[one.len() - 1].meta.time_ns + 60_000_000_000 - two[0].meta.time_ns;
        // begun in the middle, with the queue pairs of the first, and PSNs far from its own
        let moved = two.iter().skip(two.len() / 2).filter_map(|frame| {
            let mut frame = renumbered(&later(frame, shift), &mut |_| [0, 0])?;
            let ip = ipv4(&mut frame.bytes)?;
            let length = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
            let host: [u8; 4] = ip[16..20].try_into().unwrap();
            let is_data = ip[9] == 17 && ip[33..36] > [0, 0, 1][..];
            ip[33..36].copy_from_slice(&own.get(&host).filter(|_| is_data)?.to_be_bytes()[1..]);
            let crc = icrc::invariant(Cover::Ipv4, &ip[..length - 4])?;
            ip[length - 4..length].copy_from_slice(&crc.to_le_bytes());
            Some(frame)
        });
        let begun = one.len() * 4 / 5;
        let both: Vec<Frame> = one[..begun].iter().cloned().chain(moved).collect();
        assert!(both.len() > begun + 100);
        let (report, _) = analyze_frames(&both);
        let found: Vec<_> = blames(&report).map(|f| (f.rule.id(), f.by, f.frame)).collect();
        assert_eq!(found, []);
        let protocols: BTreeSet<_> = report.connections.iter().map(|c| c.protocol.name()).collect();
        assert_eq!(protocols, BTreeSet::from(["SMB Direct", "NFS/RDMA"]));
    }
}
