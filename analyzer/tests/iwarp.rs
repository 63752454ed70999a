//! The samples on iWARP: every FPDU framed, no connection undecided, every CRC right. The tests of the modules make
//! their own traffic.

use rdmascope_analyzer::flow::iwarp::{FlowFact, FlowSink, Options, StreamBytes, TcpFlow};
use rdmascope_analyzer::flow::mpa::{Evidence, Recognition};
use rdmascope_analyzer::op::{At, End, Part, Placement, RdmaOp, Verb};
use rdmascope_capture::{OpenOptions, Source, open};
use rdmascope_dissector::frame::{self, Addr, Body, LinkType};
use rdmascope_dissector::trace::{Off, Trace, Tree};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

/// The file of a sample.
fn sample(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../samples").join(name.trim_end_matches(".pcap")).join(name)
}

/// A frame: its time and bytes.
type Frames = Vec<(i64, Vec<u8>)>;

fn frames(path: &Path) -> Frames {
    let mut source = open(path, OpenOptions::new()).unwrap();
    let mut frames = Vec::new();
    while let Some(record) = source.next().unwrap() {
        assert_eq!(record.link_type, LinkType::ETHERNET);
        frames.push((record.time_ns, record.bytes.to_vec()));
    }
    frames
}

/// All results of a run, in counts and in text.
#[derive(Default)]
struct Seen {
    ops: BTreeMap<String, u32>,
    facts: BTreeMap<String, u32>,
    other_bytes: u64,
    /// Each operation as text, without its frame.
    list: Vec<String>,
    parts: HashMap<(usize, Verb), Part>,
    /// Frames are missing: so may be requests and parts.
    lossy: bool,
}

impl FlowSink for Seen {
    fn op<T: Trace>(&mut self, op: &RdmaOp<'_>, _: &mut T) {
        *self.ops.entry(format!("{:?}", op.verb)).or_default() += 1;
        assert!(op.bytes.len() <= op.length as usize);
        if op.verb == Verb::ReadResponse && !self.lossy {
            assert!(
                matches!(op.placement, Placement::Memory { .. }) && op.read > 0,
                "a Read Response without its request"
            );
        }
        // parts of a message follow one another
        let before = self.parts.insert((op.by.index(), op.verb), op.part);
        assert!(self.lossy || op.part.begins() || before.is_some_and(|p| !p.ends()), "{op:?}");
        let RdmaOp { by, verb, part, placement, message_length, invalidate, length, read, .. } = op;
        let sum: u64 = op.bytes.iter().map(|b| u64::from(*b)).sum();
        self.list.push(format!(
            "{by:?} {verb:?} {part:?} {placement:?} {message_length:?} {invalidate:?} {length} {read} {sum}"
        ));
    }

    fn fact(&mut self, _: At, _: End, fact: FlowFact<'_>) {
        let text = format!("{fact:?}");
        *self.facts.entry(text.split([' ', '(', '{']).next().unwrap_or("").to_owned()).or_default() += 1;
    }

    fn bytes<T: Trace>(&mut self, bytes: &StreamBytes<'_>, _: &mut T) {
        self.other_bytes += bytes.bytes.len() as u64;
    }
}

type Key = ((Addr, u16), (Addr, u16));

struct Run {
    told: Seen,
    flows: HashMap<Key, TcpFlow>,
}

impl Run {
    fn count(&self, fact: &str) -> u32 {
        self.told.facts.get(fact).copied().unwrap_or(0)
    }

    fn ops(&self, verb: &str) -> u32 {
        self.told.ops.get(verb).copied().unwrap_or(0)
    }
}

/// Runs the frames, their payloads cut to `snap` bytes of the frame; `each` sees the tree of every frame with TCP
/// payload.
fn run(frames: &Frames, snap: usize, each: impl FnMut(usize, &Tree)) -> Run {
    run_with(frames, snap, false, each)
}

fn run_with(frames: &[(i64, Vec<u8>)], snap: usize, lossy: bool, mut each: impl FnMut(usize, &Tree)) -> Run {
    let mut flows: HashMap<Key, TcpFlow> = HashMap::new();
    let (mut told, mut tree) = (Seen { lossy, ..Seen::default() }, Tree::new());
    for (n, (time, bytes)) in frames.iter().enumerate() {
        let cut = &bytes[..bytes.len().min(snap)];
        let packet = frame::decode(LinkType::ETHERNET, cut, bytes.len() as u32, &frame::Options::default(), &mut Off);
        let Body::Tcp(segment) = packet.body else { continue };
        let (src, dst) = ((packet.src, segment.src_port), (packet.dst, segment.dst_port));
        let (key, by) = if flows.contains_key(&(dst, src)) { ((dst, src), End::B) } else { ((src, dst), End::A) };
        tree.begin(cut);
        tree.protocol("TCP");
        let at = At { frame: n as u64 + 1, time: *time };
        flows.entry(key).or_default().segment(at, by, &segment, &Options::default(), &mut tree, &mut told);
        if segment.payload_length > 0 {
            each(n, &tree);
        }
    }
    Run { told, flows }
}

const FILES: &[&str] = &[
    "smb-iwarp.pcap",
    "smb-iwarp-crc.pcap",
    "smb-iwarp-loss.pcap",
    "smb-iwarp-credits8.pcap",
    "smb-iwarp-negotiate-only.pcap",
    "smb-iwarp-encryption-fails.pcap",
    "nfs-iwarp-v42.pcap",
];

#[test]
fn every_connection_of_the_samples_is_framed_from_end_to_end() {
    for name in FILES {
        let frames = frames(&sample(name));
        let (mut undecoded, mut faults) = (Vec::new(), 0);
        let run = run(&frames, usize::MAX, |n, tree| {
            if tree.protocol == "TCP" && tree.info.is_empty() {
                undecoded.push(n + 1);
            }
            faults += tree.faults.len();
        });
        eprintln!("{name}: {:?} {:?}", run.told.ops, run.told.facts);
        let used: Vec<_> = run.flows.values().filter(|f| End::BOTH.iter().any(|e| f.counts(*e).bytes > 0)).collect();
        for flow in &used {
            assert_eq!(flow.verdict(), Recognition::Mpa, "{name}");
            assert_eq!(
                (flow.found(End::A), flow.found(End::B)),
                (Some(Evidence::Handshake), Some(Evidence::Handshake)),
                "{name}"
            );
            assert!(flow.memory() < 64 * 1024, "{name}: {}", flow.memory());
        }
        assert_eq!((undecoded, faults, run.told.other_bytes), (vec![], 0, 0), "{name}");
        for bad in [
            "CrcBad",
            "Resync",
            "Gap",
            "MsnGap",
            "MsnRepeat",
            "SegmentHole",
            "SegmentOverlap",
            "ReadUnknown",
            "Undefined",
            "Conflict",
        ] {
            assert_eq!(run.count(bad), 0, "{name}: {bad}");
        }
        assert_eq!((run.count("MpaRequest"), run.count("MpaReply")), (used.len() as u32, used.len() as u32), "{name}");
        assert!(run.ops("Send") + run.ops("SendInvalidate") >= 1, "{name}");
    }
}

#[test]
fn with_crc_on_every_crc_is_right_and_a_changed_byte_is_seen() {
    let mut frames = frames(&sample("smb-iwarp-crc.pcap"));
    let (mut good, mut unverified) = (0, 0);
    run(&frames, usize::MAX, |_, tree| {
        good += tree.all("rdmascope.iwarp_mpa.crc.status").filter(|n| tree_number(n) == 1).count();
        unverified += tree.all("iwarp_mpa.crc").count()
            + tree.all("rdmascope.iwarp_mpa.crc.status").filter(|n| tree_number(n) != 1).count();
    });
    assert!(good > 300, "{good}");
    assert_eq!(unverified, 0);
    // two bytes of the data in frame 34 change places: TCP's checksum does not see it, the CRC does
    assert_ne!(frames[33].1[120], frames[33].1[122]);
    frames[33].1.swap(120, 122);
    let run = run(&frames, usize::MAX, |_, _| {});
    assert_eq!((run.count("CrcBad"), run.count("Resync")), (1, 0));
}

fn tree_number(node: &rdmascope_dissector::trace::Node) -> u64 {
    match node.value {
        rdmascope_dissector::trace::NodeValue::U(v) => v,
        _ => u64::MAX,
    }
}

#[test]
fn a_capture_that_begins_late_is_framed_again() {
    for name in ["smb-iwarp.pcap", "smb-iwarp-crc.pcap", "nfs-iwarp-v42.pcap"] {
        let frames = frames(&sample(name));
        let whole = run(&frames, usize::MAX, |_, _| {}).told.list;
        for start in (40..frames.len() - 60).step_by(7) {
            let run = run_with(&frames[start..], usize::MAX, true, |_, _| {});
            let flow = run.flows.values().next().unwrap();
            assert_eq!((run.flows.len(), flow.verdict()), (1, Recognition::Mpa), "{name} from {start}");
            assert_eq!((run.told.other_bytes, run.count("CrcBad")), (0, 0), "{name} from {start}");
            assert_eq!(run.told.list.last().map(|l| l.len()), whole.last().map(|l| l.len()), "{name} from {start}");
            for end in End::BOTH {
                assert_eq!(flow.found(end) == Some(Evidence::Crc), name.contains("crc"), "{name} from {start}");
            }
        }
    }
}

#[test]
fn frames_lost_doubled_and_swapped_lose_only_what_they_must() {
    let frames = frames(&sample("smb-iwarp.pcap"));
    let whole = run(&frames, usize::MAX, |_, _| {}).told.list;
    for n in (17..frames.len() - 10).step_by(5) {
        let mut doubled = frames.clone();
        doubled.insert(n, frames[n].clone());
        assert_eq!(run(&doubled, usize::MAX, |_, _| {}).told.list, whole, "{n} doubled");
        let mut lost = frames.clone();
        lost.remove(n);
        let run = run_with(&lost, usize::MAX, true, |_, _| {});
        assert!(run.told.list.len() + 60 >= whole.len(), "{n} lost: {} of {}", run.told.list.len(), whole.len());
        assert!(run.flows.values().all(|f| f.verdict() == Recognition::Mpa), "{n} lost");
        for certain in ["CrcBad", "MsnGap", "MsnRepeat", "SegmentOverlap", "Undefined", "Conflict", "Reopened"] {
            assert_eq!(run.count(certain), 0, "{n} lost: {certain}");
        }
    }
}

#[test]
fn cut_frames_keep_their_operations() {
    for name in ["smb-iwarp.pcap", "nfs-iwarp-v42.pcap"] {
        let frames = frames(&sample(name));
        let whole = run(&frames, usize::MAX, |_, _| {});
        let cut = run_with(&frames, 160, true, |_, _| {});
        eprintln!("{name}: {:?} {:?}", cut.told.ops, cut.told.facts);
        assert_eq!(
            cut.ops("Send") + cut.ops("SendInvalidate"),
            whole.ops("Send") + whole.ops("SendInvalidate"),
            "{name}"
        );
    }
}

#[test]
fn the_probes_come_out_right() {
    let probe = |name: &str| {
        run(&frames(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../samples/probes").join(name)), usize::MAX, |_, _| {})
    };
    for (name, sends) in [
        ("i1_445.pcap", 4),
        ("i1_5445.pcap", 4),
        ("i1_9000.pcap", 4),
        ("i2_nompa.pcap", 4),
        ("i3_v2.pcap", 4),
        ("i4_packed.pcap", 5),
        ("i5_split.pcap", 4),
        ("i6_ddpseg.pcap", 4),
        ("i7_legacy_ird.pcap", 4),
    ] {
        let run = probe(name);
        assert_eq!(run.ops("Send"), sends, "{name}: {:?}", run.told.facts);
        let flow = run.flows.values().next().unwrap();
        let found = if name == "i2_nompa.pcap" { Evidence::Crc } else { Evidence::Handshake };
        assert_eq!(
            (flow.verdict(), flow.found(End::A), flow.found(End::B)),
            (Recognition::Mpa, Some(found), Some(found)),
            "{name}"
        );
        assert_eq!((run.count("CrcBad"), run.told.other_bytes), (0, 0), "{name}");
    }
    let split = probe("i6_ddpseg.pcap");
    assert!(split.told.list.iter().any(|l| l.starts_with("A Send First Queue { offset: 0 }")));
    assert!(split.told.list.iter().any(|l| l.starts_with("A Send Last Queue { offset: 1000 }")));
}
