//! For any number of threads, the report and the output of `dissect` are the same, byte for byte: for every sample, for
//! captures cut and merged at random, and for traffic made to fill tables.
//!
//! `CASES` sets the number of random captures, `SEED` the first of them, `CAPTURES` a folder with more captures.

use rdmascope_analyzer::env::Options;
use rdmascope_analyzer::keys::Keyring;
use rdmascope_capture::{CaptureFile, LinkType, PcapWriter, Record};
use rdmascope_dissector::extract::Extractor;
use rdmascope_dissector::filter::Filter;
use rdmascope_dissector::trace::{Line, Pair, Tree};
use rdmascope_report::analysis::{self, Analysis, Run};
use rdmascope_report::dissection::Dissection;
use rdmascope_report::fields::registry;
use rdmascope_report::input::open_all;
use rdmascope_report::output::ek::Ek;
use rdmascope_report::output::fields::{Fields, Options as Columns};
use rdmascope_report::output::json::{Json, What};
use rdmascope_report::output::lines::Lines;
use rdmascope_report::output::marks::Marks;
use rdmascope_report::output::pdml::Pdml;
use rdmascope_report::output::shape::Shape;
use rdmascope_report::output::times::Times;
use rdmascope_report::output::tree::Trees;
use rdmascope_report::report::words::Paint;
use rdmascope_report::report::{Collector, ReportData, Wanted, json, text};
use rdmascope_report::sheets::{self, Chosen, Form, Limits, Plan, Printer, Shared};
use rdmascope_report::texts;
use std::fs;
use std::io::IoSlice;
use std::path::{Path, PathBuf};

const THREADS: [usize; 3] = [2, 3, 7];

#[derive(Clone)]
struct Frame {
    time_ns: i64,
    wire_len: u32,
    bytes: Vec<u8>,
}

fn how(threads: usize, connections_max: usize) -> Run {
    let options = Options { payloads: true, connections_max, ..Options::default() };
    Run { options, threads, small: 0, filter: None }
}

fn rendered(analysis: Analysis<Collector>) -> String {
    let (data, error) = ReportData::new(analysis);
    let json = json::render(&data).expect("a report");
    format!("{}\n{json}\n{error:?}", text::render(&data, 120, Paint::new(false)))
}

/// The report of one thread and those of several: whether any of these shared the connections.
fn same(path: &Path, connections_max: usize) -> bool {
    let names = || vec![path.display().to_string()];
    let wanted = Wanted { exchanges: true, credits: true };
    let input = || open_all(&[path.to_owned()]).expect("a capture");
    let alone = rendered(analysis::run(input(), names(), how(1, connections_max), Collector::new(wanted)));
    let mut shared = false;
    for threads in THREADS {
        let file = CaptureFile::open(path).expect("a capture");
        let how = how(threads, connections_max);
        if let Some(analysis) = analysis::run_in_shards(&file, &names(), &how, &Collector::new(wanted)) {
            shared = true;
            differ(path, threads, &alone, &rendered(analysis));
        }
        // whichever way is chosen for it
        let chosen = analysis::run_in_parts(input(), names(), how, Collector::new(wanted));
        differ(path, threads, &alone, &rendered(chosen));
    }
    shared
}

fn differ(path: &Path, threads: usize, one: &str, other: &str) {
    if one != other {
        let (a, b) = one.lines().zip(other.lines()).find(|(a, b)| a != b).unwrap_or_default();
        let kept = std::env::temp_dir().join("rdmascope-threads-differ.pcap");
        let _ = fs::copy(path, &kept);
        panic!("{}: {threads} threads differ from one (kept as {})\n one: {a}\nthey: {b}", path.display(), kept.display());
    }
}

fn captures(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            captures(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "pcap" || extension == "pcapng") {
            found.push(path);
        }
    }
    found.sort();
}

fn samples() -> Vec<PathBuf> {
    let mut found = Vec::new();
    captures(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../samples"), &mut found);
    if let Some(folder) = std::env::var_os("CAPTURES") {
        captures(Path::new(&folder), &mut found);
    }
    found
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % n.max(1)
    }
}

fn frames(path: &Path) -> Vec<Frame> {
    let file = CaptureFile::open(path).expect("a capture");
    let ethernet = file.records().map_while(Result::ok).filter(|r| r.link_type == LinkType::ETHERNET);
    ethernet.map(|r| Frame { time_ns: r.time_ns, wire_len: r.wire_len, bytes: r.bytes.to_vec() }).collect()
}

fn write(path: &Path, frames: &[Frame]) {
    let to = fs::File::create(path).expect("a file for the test");
    let mut writer = PcapWriter::new(to, path, LinkType::ETHERNET, 262_144, true).expect("a writer");
    for Frame { time_ns, wire_len, bytes } in frames {
        let mut record = Record::EMPTY;
        (record.time_ns, record.wire_len, record.bytes, record.link_type) = (*time_ns, *wire_len, bytes, LinkType::ETHERNET);
        writer.write(&record).expect("a frame is written");
    }
    writer.finish().expect("a capture");
}

/// Pieces of samples, by turns: some lost, some twice, some between other hosts, some cut, some damaged.
fn merged(samples: &[Vec<Frame>], random: &mut Random) -> Vec<Frame> {
    let mut pieces: Vec<(u8, std::iter::Cloned<std::slice::Iter<Frame>>)> = (0..1 + random.below(4))
        .map(|_| {
            let sample = &samples[random.below(samples.len() as u64) as usize];
            let start = random.below(sample.len() as u64) as usize * usize::from(random.below(3) > 0);
            let end = (start + random.below(400) as usize).min(sample.len());
            (random.below(4) as u8, sample[start..end].iter().cloned())
        })
        .collect();
    let (lost, twice, cut, damaged) = (random.below(40), random.below(40), random.below(60), random.below(60));
    let mut all = Vec::new();
    let mut time_ns = 1_700_000_000_000_000_000;
    while !pieces.is_empty() {
        let at = random.below(pieces.len() as u64) as usize;
        let (host, piece) = &mut pieces[at];
        for _ in 0..=random.below(20) {
            let Some(mut frame) = piece.next() else { break };
            time_ns += 1000 + random.below(100_000) as i64;
            frame.time_ns = time_ns;
            // another pair of hosts: checksums are wrong then, which is as good a case as any
            if *host > 0 && frame.bytes.len() > 34 && frame.bytes[12..14] == [8, 0] {
                frame.bytes[28] ^= *host;
                frame.bytes[32] ^= *host;
            }
            if lost > 0 && random.below(200) < lost / 10 {
                continue;
            }
            if cut > 50 && frame.bytes.len() > 80 {
                frame.bytes.truncate(80);
            }
            if damaged > 50 && random.below(50) == 0 {
                let at = random.below(frame.bytes.len() as u64) as usize;
                if let Some(byte) = frame.bytes.get_mut(at) {
                    *byte ^= 1 << random.below(8);
                }
            }
            if twice > 35 && random.below(30) == 0 {
                all.push(frame.clone());
            }
            all.push(frame);
        }
        if pieces[at].1.len() == 0 {
            drop(pieces.remove(at));
        }
    }
    all
}

#[test]
fn every_sample_has_one_report_whatever_the_threads() {
    for path in samples() {
        assert!(same(&path, 4096), "{}: its connections were not shared", path.display());
    }
}

#[test]
fn captures_cut_and_merged_at_random_have_one_report_whatever_the_threads() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("merged.pcap");
    let samples: Vec<Vec<Frame>> = samples().iter().map(|path| frames(path)).filter(|frames| !frames.is_empty()).collect();
    let (first, cases) = (number("SEED", 1), number("CASES", 24));
    let mut shared = 0;
    for seed in first..first + cases {
        let mut random = Random(seed);
        write(&path, &merged(&samples, &mut random));
        // a table that is nearly full, now and then
        let connections_max = if random.below(8) == 0 { 2 + random.below(4) as usize } else { 4096 };
        shared += u64::from(same(&path, connections_max));
    }
    assert!(shared * 2 > cases, "{shared} of {cases} were shared");
}

#[test]
fn fragments_and_tunnels_have_one_report_whatever_the_threads() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("wrapped.pcap");
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../samples/smb-roce/smb-roce.pcap");
    let mut random = Random(5);
    let mut all = Vec::new();
    for (n, frame) in frames(&sample).into_iter().take(700).enumerate() {
        // between other hosts now and then
        let host = random.below(3) as u8;
        let mut frame = frame;
        if frame.bytes.len() > 34 && frame.bytes[12..14] == [8, 0] {
            frame.bytes[29] ^= host;
            frame.bytes[33] ^= host;
        }
        match n % 3 {
            0 => all.push(frame),
            1 => all.extend(fragments(&frame, n as u16)),
            _ => all.push(erspan(&frame, (n / 50) as u16)),
        }
    }
    write(&path, &all);
    assert!(same(&path, 4096));
}

/// The datagram of a frame in two fragments.
fn fragments(frame: &Frame, id: u16) -> Vec<Frame> {
    const HEADERS: usize = 34;
    let payload = &frame.bytes[HEADERS.min(frame.bytes.len())..];
    let half = (payload.len() / 2) & !7;
    if half == 0 {
        return vec![frame.clone()];
    }
    [(&payload[..half], 0, true), (&payload[half..], half, false)]
        .into_iter()
        .map(|(part, offset, more)| {
            let mut bytes = frame.bytes[..HEADERS].to_vec();
            bytes[16..18].copy_from_slice(&(20 + part.len() as u16).to_be_bytes());
            bytes[18..20].copy_from_slice(&id.to_be_bytes());
            bytes[20..22].copy_from_slice(&(u16::from(more) << 13 | (offset / 8) as u16).to_be_bytes());
            bytes.extend_from_slice(part);
            Frame { time_ns: frame.time_ns, wire_len: bytes.len() as u32, bytes }
        })
        .collect()
}

/// A frame of a mirror session.
fn erspan(frame: &Frame, session: u16) -> Frame {
    let mut bytes = vec![2, 0, 0, 0, 9, 1, 2, 0, 0, 0, 9, 2, 8, 0];
    let total = 20 + 8 + 8 + frame.bytes.len() as u16;
    bytes.extend([0x45, 0]);
    bytes.extend(total.to_be_bytes());
    bytes.extend([0, 1, 0, 0, 64, 47, 0, 0, 192, 168, 0, 1, 192, 168, 0, 2]);
    // GRE with a sequence number, then ERSPAN II
    bytes.extend([0x10, 0, 0x88, 0xbe, 0, 0, 0, 1]);
    bytes.extend([0x10, 0]);
    bytes.extend((session & 0x3ff).to_be_bytes());
    bytes.extend([0, 0, 0, 0]);
    bytes.extend_from_slice(&frame.bytes);
    Frame { time_ns: frame.time_ns, wire_len: bytes.len() as u32, bytes }
}

/// SMB Direct between many hosts, and nothing that answers: tables fill, findings come by the thousand.
#[test]
fn full_tables_have_one_report_whatever_the_threads() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("full.pcap");
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../samples/smb-roce/smb-roce.pcap");
    let sample: Vec<Frame> = frames(&sample).into_iter().filter(|f| f.bytes.len() > 60 && f.bytes[12..14] == [8, 0]).take(40).collect();
    let mut all = Vec::new();
    for n in 0..1500_u32 {
        let mut frame = sample[n as usize % sample.len()].clone();
        let [.., a, b] = (n / 2).to_be_bytes();
        (frame.bytes[28], frame.bytes[29]) = (a, b);
        frame.time_ns += i64::from(n) * 1000;
        all.push(frame);
    }
    write(&path, &all);
    for connections_max in [4096, 700, 100] {
        same(&path, connections_max);
    }
}

/// Every form in which `dissect` writes frames by several threads, with a filter or without.
fn plans(threads: usize) -> Vec<Plan> {
    let registry = registry();
    let plan = |form: Form, extractor: Extractor, filter: Option<&str>| {
        let mut extractor = extractor;
        let filter = filter.map(|text| {
            let mut filter = Filter::parse(text, &registry).expect("a filter");
            filter.bind(&mut extractor);
            filter
        });
        let (chosen, keyring) = (Chosen::default(), Keyring::new());
        Plan { form, extractor, filter, quiet: false, short: threads == 3, chosen, keyring, roce_port: 0, threads }
    };
    let print = Form::Print;
    let mut counted = Extractor::new();
    let names = ["frame.number", "tcp.stream", "rdmascope.connection", "rdmascope.exchange", "smb2.cmd", "_ws.col.info", "_ws.col.def_src"];
    let fields = Fields::new(Columns::csv(), &names, &registry, &mut counted, false, Times::default()).expect("fields");
    let lines = Lines::new(false);
    vec![
        Plan { quiet: true, ..plan(print(Printer::Json(Json::new(false, What::Values))), Extractor::new(), None) },
        plan(print(Printer::Tree(Trees::default(), true, false)), Extractor::new(), None),
        plan(Form::Lines(lines.clone()), Extractor::new(), None),
        plan(print(Printer::Pdml(Pdml::default())), Extractor::new(), Some("rdmascope.connection == 1 or tcp.stream == 1")),
        plan(Form::Fields(fields), counted, Some("rdmascope.exchange or tcp.stream or infiniband.bth.opcode == 17")),
        plan(Form::Lines(lines), Extractor::new(), Some("rdmascope.connection == 2 or smb2.cmd == 5")),
        plan(print(Printer::Ek(Ek::new())), Extractor::new(), None),
        plan(print(Printer::Json(Json::new(true, What::Both))), Extractor::new(), Some("rdmascope.exchange > 3")),
    ]
}

/// Output of one thread for each frame, and whether the frame is shown.
fn written(file: &CaptureFile, mut plan: Plan) -> Vec<(Vec<u8>, bool)> {
    let mut dissection = Dissection::new(Keyring::new());
    let (mut tree, mut line) = (Tree::new(), Line::default());
    tree.quiet = plan.quiet;
    let mut shape = Shape::new(plan.short);
    let mut records = file.records();
    let mut all = Vec::new();
    while let Some(Ok(record)) = records.next() {
        let interfaces = &records.metadata().interfaces;
        let mut text = Vec::new();
        let Plan { form, extractor, filter, .. } = &mut plan;
        let passes = |extractor: &Extractor| filter.as_ref().is_none_or(|filter| filter.matches(extractor));
        extractor.begin();
        let shown = match form {
            Form::Print(printer) => {
                tree.begin(record.bytes);
                let d = dissection.frame(&record, interfaces, &mut tree);
                extractor.load(&tree);
                let shown = passes(extractor);
                if shown {
                    shape.apply(&mut tree);
                    printer.frame(&mut text, &d, &tree, &shape, &mut Marks::default());
                }
                shown
            }
            Form::Fields(fields) => {
                let d = dissection.frame(&record, interfaces, extractor);
                let shown = passes(extractor);
                if shown {
                    fields.frame(&mut text, &d, extractor, &mut Marks::default());
                }
                shown
            }
            Form::Lines(lines) => {
                line.begin();
                let d = dissection.frame(&record, interfaces, &mut Pair(&mut *extractor, &mut line));
                let shown = passes(extractor);
                if shown {
                    lines.frame(&mut text, &d, line.protocol, &line.info, line.faults > 0);
                }
                shown
            }
        };
        all.push((text, shown));
    }
    all
}

/// Compares the output of several threads, in each of their ways of working, with that of one thread. Returns true if
/// they wrote all of it.
fn same_text(path: &Path, plan: &Plan, limits: Limits, alone: &[(Vec<u8>, bool)]) -> bool {
    let file = CaptureFile::open(path).expect("a capture");
    let mut text = Vec::new();
    let out = |piece: &[u8]| {
        text.extend_from_slice(piece);
        Ok(())
    };
    let ended = sheets::run(plan, &file, limits, out).expect("nothing fails");
    let is_all = holds(path, plan, limits, alone, &text, &ended);
    if texts::is_possible(plan) {
        text.clear();
        let out = |pieces: &mut [IoSlice<'_>]| {
            pieces.iter().for_each(|piece| text.extend_from_slice(piece));
            Ok(())
        };
        let ended = texts::run(plan, &file, limits, out).expect("nothing fails");
        assert_eq!(holds(path, plan, limits, alone, &text, &ended), is_all, "{}", path.display());
    }
    is_all
}

fn holds(path: &Path, plan: &Plan, limits: Limits, alone: &[(Vec<u8>, bool)], text: &[u8], ended: &Shared) -> bool {
    let (frames, is_all) = match ended {
        Shared::First(frames, _) => (*frames, false),
        Shared::All(..) => (u64::MAX, true),
    };
    let (mut read, mut left) = (limits.read.min(frames), limits.shown);
    let mut expected = Vec::new();
    for (piece, shown) in alone {
        if read == 0 || left == 0 {
            break;
        }
        read -= 1;
        left -= u64::from(*shown);
        expected.extend_from_slice(piece);
    }
    let place = text.iter().zip(&expected).position(|(a, b)| a != b).unwrap_or(text.len().min(expected.len()));
    if text != expected {
        let near = |text: &[u8]| {
            String::from_utf8_lossy(&text[place.saturating_sub(200).min(text.len())..(place + 100).min(text.len())]).into_owned()
        };
        panic!("{}: {} threads differ from one\n one: {}\nthey: {}", path.display(), plan.threads, near(&expected), near(text));
    }
    is_all
}

const ALL: Limits = Limits { read: u64::MAX, shown: u64::MAX };

#[test]
fn every_sample_is_written_alike_whatever_the_threads() {
    let mut written_by_all = 0;
    let samples = samples();
    for (number, path) in samples.iter().enumerate() {
        let file = CaptureFile::open(path).expect("a capture");
        for (turn, threads) in THREADS.into_iter().enumerate() {
            let plans = plans(threads);
            let plan = &plans[(number + turn * 3) % plans.len()];
            let alone = written(&file, plan.clone());
            written_by_all += u64::from(same_text(path, plan, ALL, &alone));
            same_text(path, plan, Limits { read: 40, shown: 7 }, &alone);
        }
    }
    assert!(written_by_all > samples.len() as u64 * 2, "{written_by_all} of {} were written by several threads", samples.len() * 3);
}

#[test]
fn captures_cut_and_merged_at_random_are_written_alike_whatever_the_threads() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("merged.pcap");
    let samples: Vec<Vec<Frame>> = samples().iter().map(|path| frames(path)).filter(|frames| !frames.is_empty()).collect();
    let (first, cases) = (number("SEED", 1), number("CASES", 24));
    for seed in first..first + cases {
        let mut random = Random(seed);
        write(&path, &merged(&samples, &mut random));
        let file = CaptureFile::open(&path).expect("a capture");
        let plans = plans(THREADS[random.below(3) as usize]);
        let plan = &plans[random.below(plans.len() as u64) as usize];
        same_text(&path, plan, ALL, &written(&file, plan.clone()));
    }
}

#[test]
fn who_stops_reading_ends_it_at_once() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../samples/smb-roce/smb-roce.pcap");
    let file = CaptureFile::open(&path).expect("a capture");
    for plan in plans(3) {
        let mut pieces = 0;
        let ended = sheets::run(&plan, &file, ALL, |_| {
            pieces += 1;
            anyhow::bail!("nobody reads")
        });
        assert_eq!((ended.is_err(), pieces), (true, 1));
    }
}
