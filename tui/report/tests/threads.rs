//! For any number of threads, the report and the output of `dissect` are the same, byte for byte: for every sample, for
//! captures cut and merged at random, and for traffic made to fill tables.
//!
//! `CASES` sets the number of random captures (CI tries 10,000 with an optimized build), `SEED` the first of them,
//! `CAPTURES` a folder with more captures. A case that fails prints its seed and the command that runs it alone.

use rdmascope_analyzer::env::Options;
use rdmascope_analyzer::episodes::time::Owner;
use rdmascope_analyzer::finding::Rule;
use rdmascope_analyzer::keys::Keyring;
use rdmascope_capture::{
    Capture, CaptureFile, Hardware, Interface, LinkType, MappedSource, MergedSource, PcapngWriter, Record, Section,
    Source,
};
use rdmascope_dissector::extract::Extractor;
use rdmascope_dissector::filter::Filter;
use rdmascope_dissector::frame;
use rdmascope_dissector::trace::{Detail, Line, Pair, Tree};
use rdmascope_dissector::wire::ib::icrc::{self, Cover};
use rdmascope_report::analysis::{self, Analysis, Run};
use rdmascope_report::dissection::Dissection;
use rdmascope_report::fields::registry;
use rdmascope_report::input::Input;
use rdmascope_report::live::monitor::Monitor;
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
use rdmascope_report::shards::{Board, GiveUpOnDrop, Next};
use rdmascope_report::sheets::{self, Chosen, Form, Limits, Plan, Printer, Shared};
use rdmascope_report::texts;
use std::collections::VecDeque;
use std::fs;
use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

const THREADS: [usize; 3] = [2, 3, 7];

#[derive(Clone)]
struct Frame {
    time_ns: i64,
    link_type: LinkType,
    wire_len: u32,
    bytes: Vec<u8>,
    /// Its interface: frames of a piece are on one, which frames of other pieces may share.
    interface: u8,
}

/// A capture, with the words that name it where threads differ.
struct Subject {
    name: String,
    /// The command that runs it alone.
    again: String,
    file: Arc<CaptureFile>,
}

impl Subject {
    fn of_file(path: &Path) -> Self {
        let file = Arc::new(CaptureFile::open(path).expect("a capture"));
        Self { name: path.display().to_string(), again: String::new(), file }
    }

    fn of_frames(name: &str, frames: &[Frame]) -> Self {
        Self::of_bytes(name.to_owned(), written_out(frames))
    }

    fn of_bytes(name: String, bytes: Vec<u8>) -> Self {
        let file = CaptureFile::from_bytes(bytes, name.as_str()).expect("a capture");
        Self { name, again: String::new(), file: Arc::new(file) }
    }

    fn input(&self) -> Input {
        Input::One(Capture::Mapped(MappedSource::new(self.file.clone())))
    }

    fn differ(&self, threads: usize, one: &str, they: &str) -> ! {
        let kept = std::env::temp_dir().join(format!("rdmascope-threads-differ-{}.pcapng", std::process::id()));
        let _ = fs::write(&kept, self.file.bytes());
        panic!(
            "{}: {threads} threads differ from one (kept as {})\n one: {one}\nthey: {they}\n{}",
            self.name,
            kept.display(),
            self.again
        );
    }
}

fn how(threads: usize, connections_max: usize) -> Run {
    let options = Options { payloads: true, connections_max, ..Options::default() };
    Run { options, threads, small: 0, filter: None, frames: u64::MAX }
}

fn rendered(analysis: Analysis<Collector>) -> String {
    let (data, error) = ReportData::new(analysis);
    let json = json::render(&data).expect("a report");
    format!("{}\n{json}\n{error:?}", text::render(&data, 120, Paint::new(false)))
}

/// Compares the reports of several threads with that of one. Returns true if any of them shared the connections.
fn same(subject: &Subject, connections_max: usize) -> bool {
    let names = || vec![subject.name.clone()];
    let wanted = Wanted { exchanges: true, credits: true };
    let alone = rendered(analysis::run(subject.input(), names(), how(1, connections_max), Collector::new(wanted)));
    let hold = |one: &str, threads: usize, they: &str| {
        if one != they {
            let (one, they) =
                one.lines().zip(they.lines()).find(|(one, they)| one != they).unwrap_or(("(longer)", "(shorter)"));
            subject.differ(threads, one, they);
        }
    };
    let mut shared = false;
    let is_full = connections_max < Options::default().connections_max;
    let endless = captured(subject, 1);
    for threads in THREADS {
        let how = how(threads, connections_max);
        if let Some(analysis) = analysis::run_in_shards(&subject.file, &names(), &how, &Collector::new(wanted)) {
            shared = true;
            hold(&alone, threads, &rendered(analysis));
            // each thread of a live capture has a part of the table
            if !is_full {
                hold(&endless, threads, &captured(subject, threads));
            }
        } else {
            captured(subject, threads);
        }
        // one thread follows, the others decode for it
        hold(&alone, threads, &rendered(analysis::run(subject.input(), names(), how, Collector::new(wanted))));
    }
    shared
}

/// The report of the same frames captured live, by so many threads.
fn captured(subject: &Subject, threads: usize) -> String {
    let options = Options { payloads: true, ..Options::default() };
    let wanted = Wanted { exchanges: true, credits: true };
    let mut monitor = Monitor::new(options, Collector::new(wanted), std::slice::from_ref(&subject.name), threads);
    let mut source = MappedSource::new(subject.file.clone());
    for n in 1.. {
        if !matches!(source.advance(), Ok(true)) {
            break;
        }
        monitor.frame(&source.record(), source.interfaces());
        // as if there were no more for now
        if n % 7 == 0 {
            monitor.hand_over();
        }
    }
    rendered(monitor.end(0, Hardware::default(), None).expect("a report"))
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
    let frame = |r: Record<'_>| {
        let Record { time_ns, link_type, wire_len, bytes, .. } = r;
        Frame { time_ns, link_type, wire_len, bytes: bytes.to_vec(), interface: 0 }
    };
    file.records().map_while(Result::ok).map(frame).collect()
}

/// The frames as a pcapng file, which describes an interface where its first frame comes.
fn written_out(frames: &[Frame]) -> Vec<u8> {
    let mut writer = PcapngWriter::new(Vec::new(), "a capture", &Section::default()).expect("a writer");
    let mut interfaces = Vec::new();
    for Frame { time_ns, link_type, wire_len, bytes, interface } in frames {
        let place = interfaces.iter().position(|known| *known == (*link_type, *interface)).unwrap_or_else(|| {
            interfaces.push((*link_type, *interface));
            let speed = (*interface == 1).then_some(10_000_000_000);
            writer.add_interface(&Interface { speed, ..Interface::new(*link_type) }).expect("an interface") as usize
        });
        writer.write(&Record::new(*time_ns, place as u32, *link_type, *wire_len, bytes)).expect("a frame is written");
    }
    writer.finish().expect("a capture")
}

/// The frame between other hosts, with checksums that are right again.
fn moved(frame: &mut Frame, host: u8) {
    const ETHERNET: usize = 14;
    const UDP: u8 = 17;
    let bytes = &mut frame.bytes;
    if host == 0
        || frame.link_type != LinkType::ETHERNET
        || bytes.len() < ETHERNET + 28
        || bytes[12..15] != [8, 0, 0x45]
    {
        return;
    }
    let ip = &mut bytes[ETHERNET..];
    ip[14] ^= host;
    ip[18] ^= host;
    ip[10..12].fill(0);
    let sum = ip[..20].chunks_exact(2).fold(0_u32, |sum, word| sum + u32::from(u16::from_be_bytes([word[0], word[1]])));
    let sum = (sum >> 16) + (sum & 0xffff);
    ip[10..12].copy_from_slice(&(!(sum as u16 + (sum >> 16) as u16)).to_be_bytes());
    let total = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
    if ip[9] == UDP && ip[22..24] == 4791_u16.to_be_bytes() && total <= ip.len() {
        ip[26..28].fill(0);
        if let Some(crc) = icrc::invariant(Cover::Ipv4, &ip[..total.saturating_sub(4)]) {
            ip[total - 4..total].copy_from_slice(&crc.to_le_bytes());
        }
    }
}

/// A pause of all priorities, by a sender of Ethernet frames.
fn pause(by: &Frame, time_ns: i64, quanta: u16) -> Frame {
    let mut bytes = vec![0x01, 0x80, 0xc2, 0, 0, 1];
    bytes.extend_from_slice(&by.bytes[6..12]);
    bytes.extend([0x88, 0x08, 0x01, 0x01, 0, 0xff]);
    (0..8).for_each(|_| bytes.extend(quanta.to_be_bytes()));
    bytes.resize(60, 0);
    Frame { time_ns, wire_len: 60, bytes, ..by.clone() }
}

/// Pauses between the frames, by their senders.
fn with_pauses(frames: Vec<Frame>, random: &mut Random) -> Vec<Frame> {
    let mut all = Vec::with_capacity(frames.len());
    for frame in frames {
        let by = (frame.link_type == LinkType::ETHERNET && frame.bytes.len() >= 14 && random.below(8) == 0)
            .then(|| pause(&frame, frame.time_ns, [0, 100, 0xffff][random.below(3) as usize]));
        all.push(frame);
        all.extend(by);
    }
    all
}

/// Pieces of samples, merged by time or by turns: some frames lost, twice or in the wrong order, some between other
/// hosts, some cut, some damaged.
fn cut_and_merged(samples: &[Vec<Frame>], random: &mut Random) -> Vec<Frame> {
    // most are small; some are of several batches
    let most = if random.below(32) == 0 { 400 } else { 40 };
    let mut pieces: Vec<VecDeque<Frame>> = (0..1 + random.below(4))
        .map(|_| {
            let sample = &samples[random.below(samples.len() as u64) as usize];
            let start = random.below(sample.len() as u64) as usize * usize::from(random.below(3) > 0);
            let end = (start + 1 + random.below(most) as usize).min(sample.len());
            let (host, interface) = (random.below(4) as u8, random.below(3) as u8);
            let mut piece: VecDeque<Frame> = sample[start..end].iter().cloned().collect();
            for frame in &mut piece {
                moved(frame, host);
                frame.interface = interface;
            }
            piece
        })
        .collect();
    const BEGUN: i64 = 1_700_000_000_000_000_000;
    let mut all = Vec::new();
    if random.below(2) == 0 {
        for piece in &pieces {
            let first = piece.iter().map(|frame| frame.time_ns).min().unwrap_or(0);
            let later = random.below(50_000_000) as i64;
            all.extend(
                piece.iter().map(|frame| Frame { time_ns: BEGUN + later + (frame.time_ns - first), ..frame.clone() }),
            );
        }
        all.sort_by_key(|frame| frame.time_ns);
    } else {
        let mut time_ns = BEGUN;
        while !pieces.is_empty() {
            let at = random.below(pieces.len() as u64) as usize;
            for _ in 0..=random.below(20) {
                let Some(frame) = pieces[at].pop_front() else { break };
                // frames may have the same time
                time_ns += random.below(100_000) as i64 * i64::from(random.below(8) > 0);
                all.push(Frame { time_ns, ..frame });
            }
            if pieces[at].is_empty() {
                drop(pieces.remove(at));
            }
        }
    }
    // each in some captures, and there in one of so many frames; 0 is never
    let mut one_in = |most: u64| if random.below(3) == 0 { 1 + random.below(most) } else { 0 };
    let (lost, twice, swapped, damaged) = (one_in(60), one_in(60), one_in(60), one_in(60));
    let snap = if one_in(4) > 0 { 14 + random.below(200) as usize } else { usize::MAX };
    let mut happens = |one_in: u64| one_in > 0 && random.below(one_in) == 0;
    let mut made: Vec<Frame> = Vec::with_capacity(all.len());
    for mut frame in all {
        if happens(lost) {
            continue;
        }
        frame.bytes.truncate(snap);
        if happens(twice) {
            made.push(frame.clone());
        }
        made.push(frame);
        let end = made.len();
        if end > 1 && happens(swapped) {
            // the times stay: a capture may have them in the wrong order
            made.swap(end - 2, end - 1);
        }
    }
    for frame in &mut made {
        if damaged > 0 && random.below(damaged) == 0 && !frame.bytes.is_empty() {
            let at = random.below(frame.bytes.len() as u64) as usize;
            frame.bytes[at] ^= 1 << random.below(8);
        }
    }
    if random.below(4) == 0 { with_pauses(made, random) } else { made }
}

/// A random case: whether threads shared its connections, and how many outputs they wrote whole.
fn case(seed: u64, samples: &[Vec<Frame>], plans: &[Vec<Plan>]) -> (bool, u64) {
    let mut random = Random(seed);
    let mut bytes = written_out(&cut_and_merged(samples, &mut random));
    if bytes.len() > 400 && random.below(16) == 0 {
        // the file ends within a frame
        let left = bytes.len() - random.below(bytes.len() as u64 / 2) as usize;
        bytes.truncate(left);
    }
    let mut subject = Subject::of_bytes(format!("seed {seed}"), bytes);
    subject.again = format!("again: SEED={seed} CASES=1 cargo test -p rdmascope-report --test threads cut_and_merged");
    // a table that is nearly full, now and then
    let connections_max = if random.below(8) == 0 { 2 + random.below(4) as usize } else { 4096 };
    let shared = same(&subject, connections_max);
    // one form of each kind, on one number of threads each
    let turn = random.below(3) as usize;
    let whole = plans.iter().enumerate().filter(|(place, plans)| {
        let kind = FORMS[(place + turn) % 3];
        let plan = &plans[kind[random.below(kind.len() as u64) as usize]];
        same_text(&subject, plan, ALL, &written(&subject.file, plan.clone()))
    });
    (shared, whole.count() as u64)
}

#[test]
fn every_sample_has_one_report_whatever_the_threads() {
    for path in samples() {
        let shared = same(&Subject::of_file(&path), 4096);
        // captures of others may have more connections than are followed
        assert!(
            shared || !path.starts_with(env!("CARGO_MANIFEST_DIR")),
            "{}: its connections were not shared",
            path.display()
        );
    }
}

/// Rotated captures and those of several interfaces: the frames of a sample in three files that overlap in time.
#[test]
fn several_files_have_one_report_whatever_the_threads() {
    for path in samples().iter().step_by(3) {
        let frames = frames(path);
        let every_third = |n: usize| frames.iter().skip(n).step_by(3).cloned().collect::<Vec<_>>();
        let files: Vec<Subject> =
            (0..3).map(|n| Subject::of_frames(&format!("{n} of {}", path.display()), &every_third(n))).collect();
        let report = |threads| {
            let captures = files.iter().map(|subject| Capture::Mapped(MappedSource::new(subject.file.clone())));
            let names = files.iter().map(|subject| subject.name.clone()).collect();
            let collector = Collector::new(Wanted { exchanges: true, credits: true });
            rendered(analysis::run(Input::Many(MergedSource::new(captures)), names, how(threads, 4096), collector))
        };
        let alone = report(1);
        for threads in THREADS {
            assert!(report(threads) == alone, "{}: {threads} threads differ from one", path.display());
        }
    }
}

/// Two connections between other hosts, whose servers' replies wait for 30 ms while their clients pause them.
#[test]
fn a_pause_holds_up_the_connections_of_every_thread() {
    const LASTS: i64 = 30_000_000;
    let sample = frames(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../samples/smb-roce/smb-roce.pcap"));
    let is_of = |frame: &Frame, host: u8| frame.bytes.get(26..30) == Some(&[192, 0, 2, host]);
    // a reply that follows at once
    let is_reply = |n: &usize| {
        let (before, frame) = (&sample[*n - 1], &sample[*n]);
        is_of(frame, 1) && frame.bytes.get(42) == Some(&4) && frame.time_ns - before.time_ns < 100_000
    };
    let stop = (500..sample.len()).find(is_reply).expect("a reply");
    let client = sample.iter().find(|frame| is_of(frame, 2)).expect("a client");
    let since = sample[stop - 1].time_ns;
    let mut all: Vec<Frame> = Vec::new();
    for (n, frame) in sample.iter().enumerate() {
        let time_ns = frame.time_ns + if n >= stop { LASTS } else { 0 };
        // a refusal on both would tie them together
        let is_managed = frame.bytes.get(47..50) == Some(&[0, 0, 1]);
        for host in [0, 4].into_iter().filter(|host| *host == 0 || !is_managed) {
            let mut frame = Frame { time_ns, ..frame.clone() };
            moved(&mut frame, host);
            all.push(frame);
        }
    }
    all.extend((1000..LASTS - 500_000).step_by(300_000).map(|after| pause(client, since + after, 0xffff)));
    all.push(pause(client, since + LASTS - 100_000, 0));
    all.sort_by_key(|frame| frame.time_ns);
    let subject = Subject::of_frames("two connections and a pause", &all);
    assert!(same(&subject, 4096), "their connections were not shared");
    let analysis = analysis::run(
        subject.input(),
        vec![subject.name.clone()],
        how(1, 4096),
        Collector::new(Wanted { exchanges: true, credits: true }),
    );
    let times = || analysis.report.connections.iter().map(|c| c.time);
    let paused: Vec<i64> = times().map(|time| time.of(Owner::Pause)).filter(|time| *time > 0).collect();
    assert!(paused.len() == 2 && paused.iter().all(|time| *time > LASTS / 2), "{:?}", times().collect::<Vec<_>>());
    let (data, _) = ReportData::new(analysis);
    let text = text::render(&data, 120, Paint::new(false));
    assert!(text.contains("while pause frames"), "{text}");
    let root = rdmascope_analyzer::roots::roots(&data.report)
        .into_iter()
        .find(|root| root.rule == Rule::RcPfc)
        .expect("RC-PFC");
    assert!(root.cost >= LASTS, "{}", root.cost);
}

#[test]
fn captures_cut_and_merged_at_random_are_alike_whatever_the_threads() {
    let samples: Vec<Vec<Frame>> =
        samples().iter().map(|path| frames(path)).filter(|frames| !frames.is_empty()).collect();
    let plans = THREADS.map(plans);
    let (first, cases) = (number("SEED", 1), number("CASES", 300));
    let next = AtomicU64::new(first);
    let work = || {
        let mut done = (0, 0);
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + cases {
                return done;
            }
            let (shared, whole) = case(seed, &samples, &plans);
            done = (done.0 + u64::from(shared), done.1 + whole);
        }
    };
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let done = thread::scope(|scope| {
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        workers
            .into_iter()
            .map(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect::<Vec<_>>()
    });
    let (shared, whole) = done.into_iter().fold((0, 0), |sum, done| (sum.0 + done.0, sum.1 + done.1));
    eprintln!(
        "{cases} captures: {shared} shared by connections, {whole} of {} outputs written whole by several threads",
        cases * 3
    );
    assert!(
        cases < 20 || (shared * 2 > cases && whole * 2 > cases * 3),
        "{shared} of {cases} were shared, {whole} of {} written",
        cases * 3
    );
}

#[test]
fn fragments_and_tunnels_have_one_report_whatever_the_threads() {
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
    assert!(same(&Subject::of_frames("fragments and tunnels", &all), 4096));
}

/// Packets to queue pairs that nobody has, before they go to the right ones: each is one of its connection, which only
/// the shard of its hosts knows. Some are damaged.
#[test]
fn packets_to_wrong_queue_pairs_have_one_report_whatever_the_threads() {
    const BTH: usize = 14 + 20 + 8;
    /// RC Send Only, and with Invalidate.
    const SENDS: [u8; 2] = [0x04, 0x17];
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../samples/smb-roce/smb-roce.pcap");
    // an attempt that was refused is told of with those of all hosts, and so is none here
    let is_management = |frame: &Frame| frame.bytes.get(BTH + 5..BTH + 8) == Some(&[0, 0, 1]);
    let sample: Vec<Frame> = frames(&sample).into_iter().filter(|frame| !is_management(frame)).collect();
    for damaged in [false, true] {
        let (mut all, mut strays) = (Vec::new(), 0);
        for (n, frame) in sample.iter().enumerate() {
            for host in [0, 4, 8, 12] {
                let mut frame = frame.clone();
                moved(&mut frame, host);
                let is_send = frame.bytes.len() > 160 && SENDS.contains(&frame.bytes[BTH]);
                if is_send && (n + usize::from(host)).is_multiple_of(37) {
                    let mut stray = frame.clone();
                    stray.bytes[BTH + 5] ^= 0x55;
                    stray.bytes[BTH + 6] ^= n as u8;
                    // its checksum and CRC are made anew
                    (0..2).for_each(|_| moved(&mut stray, 1));
                    stray.bytes[BTH + 7] ^= u8::from(damaged);
                    strays += 1;
                    all.push(stray);
                }
                all.push(frame);
            }
        }
        let subject = Subject::of_frames("packets to wrong queue pairs", &all);
        assert!(same(&subject, 4096), "the connections are shared");
        let names = vec![subject.name.clone()];
        let alone = analysis::run(subject.input(), names, how(1, 4096), Collector::new(Wanted::default()));
        let rule = if damaged { Rule::RcIcrc } else { Rule::RcDestQp };
        let told = alone.report.findings.iter().filter(|f| f.rule == rule).map(|f| f.count).sum::<u64>();
        assert!(
            told > 10 && alone.report.connections.len() == 4,
            "{told} of {strays}, {:?}",
            alone.report.connections.len()
        );
    }
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
            Frame { wire_len: bytes.len() as u32, bytes, ..frame.clone() }
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
    Frame { wire_len: bytes.len() as u32, bytes, ..frame.clone() }
}

/// SMB Direct between many hosts, and nothing that answers: tables fill, findings come by the thousand.
#[test]
fn full_tables_have_one_report_whatever_the_threads() {
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../samples/smb-roce/smb-roce.pcap");
    let sample: Vec<Frame> =
        frames(&sample).into_iter().filter(|f| f.bytes.len() > 60 && f.bytes[12..14] == [8, 0]).take(40).collect();
    let mut all = Vec::new();
    for n in 0..1500_u32 {
        let mut frame = sample[n as usize % sample.len()].clone();
        let [.., a, b] = (n / 2).to_be_bytes();
        (frame.bytes[28], frame.bytes[29]) = (a, b);
        frame.time_ns += i64::from(n) * 1000;
        all.push(frame);
    }
    let subject = Subject::of_frames("full tables", &all);
    for connections_max in [4096, 700, 100] {
        same(&subject, connections_max);
    }
}

/// Places in [`plans`]: JSON, EK and PDML; lines; fields and trees.
const FORMS: [&[usize]; 3] = [&[0, 3, 6, 7], &[2, 5], &[1, 4]];

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
        Plan {
            form,
            extractor,
            filter,
            detail: Detail::Line,
            short: threads == 3,
            chosen,
            keyring,
            roce_port: 0,
            threads,
            held_max: sheets::HELD_MAX,
        }
    };
    let print = Form::Print;
    let mut counted = Extractor::new();
    let names = [
        "frame.number",
        "tcp.stream",
        "rdmascope.connection",
        "rdmascope.exchange",
        "smb2.cmd",
        "_ws.col.info",
        "_ws.col.def_src",
    ];
    let fields = Fields::new(Columns::csv(), &names, &registry, &mut counted, false, Times::default()).expect("fields");
    let lines = Lines::new(false);
    vec![
        Plan {
            detail: Detail::Fields,
            ..plan(print(Printer::Json(Json::new(false, What::Values))), Extractor::new(), None)
        },
        plan(print(Printer::Tree(Trees::default(), true, false)), Extractor::new(), None),
        plan(Form::Lines(lines.clone()), Extractor::new(), None),
        plan(
            print(Printer::Pdml(Pdml::default())),
            Extractor::new(),
            Some("rdmascope.connection == 1 or tcp.stream == 1"),
        ),
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
    tree.detail = plan.detail;
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
fn same_text(subject: &Subject, plan: &Plan, limits: Limits, alone: &[(Vec<u8>, bool)]) -> bool {
    let file = &*subject.file;
    let mut text = Vec::new();
    let out = |piece: &[u8]| {
        text.extend_from_slice(piece);
        Ok(())
    };
    let ended = sheets::run(plan, file, limits, out).expect("nothing fails");
    let is_all = holds(subject, plan, limits, alone, &text, &ended);
    if texts::is_possible(plan) {
        text.clear();
        let out = |pieces: &mut [IoSlice<'_>]| {
            pieces.iter().for_each(|piece| text.extend_from_slice(piece));
            Ok(())
        };
        let ended = texts::run(plan, file, limits, out).expect("nothing fails");
        assert_eq!(holds(subject, plan, limits, alone, &text, &ended), is_all, "{}", subject.name);
    }
    is_all
}

fn holds(
    subject: &Subject,
    plan: &Plan,
    limits: Limits,
    alone: &[(Vec<u8>, bool)],
    text: &[u8],
    ended: &Shared,
) -> bool {
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
            String::from_utf8_lossy(&text[place.saturating_sub(200).min(text.len())..(place + 100).min(text.len())])
                .into_owned()
        };
        subject.differ(plan.threads, &near(&expected), &near(text));
    }
    is_all
}

const ALL: Limits = Limits { read: u64::MAX, shown: u64::MAX };

#[test]
fn every_sample_is_written_alike_whatever_the_threads() {
    let mut written_by_all = 0;
    let samples = samples();
    for (number, path) in samples.iter().enumerate() {
        let subject = Subject::of_file(path);
        for (turn, threads) in THREADS.into_iter().enumerate() {
            let plans = plans(threads);
            let plan = &plans[(number + turn * 3) % plans.len()];
            let alone = written(&subject.file, plan.clone());
            written_by_all += u64::from(same_text(&subject, plan, ALL, &alone));
            same_text(&subject, plan, Limits { read: 40, shown: 7 }, &alone);
        }
    }
    assert!(
        written_by_all > samples.len() as u64 * 2,
        "{written_by_all} of {} were written by several threads",
        samples.len() * 3
    );
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

/// The others end, whatever they wait for. `handover.rs` runs the same in many orders, and without a panic.
#[test]
fn a_worker_that_panics_leaves_nobody_waiting() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../samples/smb-roce/smb-roce.pcap");
    let mut all = frames(&path);
    all.iter_mut().enumerate().for_each(|(n, frame)| moved(frame, (n % 3) as u8));
    let subject = Subject::of_frames("three pairs of hosts", &all);
    let board = Board::<_, _, ()>::new(&subject.file, 3, frame::Options::default(), 4096, |_, _, _| ()).with_batches(1);
    let fallen: Vec<bool> = thread::scope(|scope| {
        let workers = [0, 1, 2].map(|worker| {
            let board = &board;
            scope.spawn(move || {
                let _panics = GiveUpOnDrop(board);
                let mut parts = 0;
                loop {
                    let heard = board.heard();
                    match board.next(worker) {
                        Next::Part(part) => {
                            parts += 1;
                            assert!(worker != 1 || parts < 40, "a panic that the test wants");
                            board.done(worker, part, 1);
                        }
                        Next::Full => board.nap(heard),
                        Next::End => return,
                    }
                }
            })
        });
        workers.into_iter().map(|worker| worker.join().is_err()).collect()
    });
    assert_eq!((fallen, board.is_given_up()), (vec![false, true, false], true));
}
