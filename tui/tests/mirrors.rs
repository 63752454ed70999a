//! Mirrored traffic: frames encapsulated by a switch are analysed like the original ones, and bytes cut by the mirror
//! are not blamed on anybody.

use rdmascope_capture::{LinkType, OpenOptions, PcapWriter, Record, Source, open};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Encapsulations: name in the report, whether it has a session, and the bytes between the outer IPv4 header and the
/// frame.
const KINDS: [(&str, u8, bool); 5] =
    [("erspan1", 47, false), ("erspan2", 47, true), ("erspan3", 47, true), ("gre", 47, true), ("vxlan", 17, true)];

fn header(kind: &str, number: u32, session: u32, truncated: bool, len: usize) -> Vec<u8> {
    let cut = u16::from(truncated) << 10;
    let gre = |flags: u16, protocol: u16| [flags.to_be_bytes(), protocol.to_be_bytes()].concat();
    let word = (cut | session as u16).to_be_bytes();
    match kind {
        "erspan1" => gre(0, 0x88be),
        "erspan2" => [
            gre(0x1000, 0x88be),
            number.to_be_bytes().to_vec(),
            0x1000u16.to_be_bytes().to_vec(),
            word.to_vec(),
            vec![0; 4],
        ]
        .concat(),
        "erspan3" => [
            gre(0x1000, 0x22eb),
            number.to_be_bytes().to_vec(),
            0x2000u16.to_be_bytes().to_vec(),
            word.to_vec(),
            vec![0; 8],
        ]
        .concat(),
        "gre" => [gre(0x2000, 0x6558), session.to_be_bytes().to_vec()].concat(),
        _ => {
            let udp = [50_000u16, 4789, 16 + len as u16, 0].map(u16::to_be_bytes).concat();
            [udp, 0x0800_0000u32.to_be_bytes().to_vec(), (session << 8).to_be_bytes().to_vec()].concat()
        }
    }
}

/// The sample's frames after Ethernet, IPv4 and the mirror's header; odd frames in session 17, even ones in session 18.
fn wrapped(kind: &str, protocol: u8, longest: usize, says_so: bool, out: &Path) -> u64 {
    let mut capture = open(sample(), OpenOptions::new()).unwrap();
    let mut writer = PcapWriter::create(out, LinkType::ETHERNET, 0, true).unwrap();
    let (mut number, mut cut) = (0, 0);
    while let Some(record) = capture.next().unwrap() {
        number += 1;
        let inner = &record.bytes[..record.bytes.len().min(longest)];
        let is_cut = inner.len() < record.bytes.len();
        cut += u64::from(is_cut);
        let head = header(kind, number, if number % 2 == 1 { 17 } else { 18 }, is_cut && says_so, inner.len());
        let total = (20 + head.len() + inner.len()) as u16;
        let mut ip = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0, 198, 51, 100, 1, 198, 51, 100, 2];
        ip[2..4].copy_from_slice(&total.to_be_bytes());
        let sum = ip.chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum::<u32>();
        let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        let frame = [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0], &ip[..], &head, inner].concat();
        writer.write(&Record::new(record.time_ns, 0, LinkType::ETHERNET, frame.len() as u32, &frame)).unwrap();
    }
    writer.finish().unwrap();
    cut
}

fn sample() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../samples/smb-roce/smb-roce.pcap")
}

fn report(path: &Path) -> Value {
    let output =
        Command::new(env!("CARGO_BIN_EXE_rdmascope")).args(["analyze", "--format", "json"]).arg(path).output().unwrap();
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn what_a_mirror_wrapped_analyses_as_what_came_off_the_wire() {
    let folder = tempfile::tempdir().unwrap();
    let plain = report(&sample());
    for (kind, protocol, has_session) in KINDS {
        let path = folder.path().join(format!("{kind}.pcap"));
        wrapped(kind, protocol, usize::MAX, true, &path);
        let mut mirrored = report(&path);
        let sessions: Vec<u64> = if has_session { vec![17, 18] } else { vec![0] };
        let told: Vec<u64> =
            mirrored["capture"]["mirrors"].as_array().unwrap().iter().map(|m| m["session"].as_u64().unwrap()).collect();
        assert_eq!(told, sessions, "{kind}");
        assert_eq!(mirrored["capture"]["mirrors"][0]["kind"], kind);
        let frames: u64 =
            mirrored["capture"]["mirrors"].as_array().unwrap().iter().map(|m| m["frames"].as_u64().unwrap()).sum();
        assert_eq!(mirrored["capture"]["tunnelled"], frames, "{kind}: every frame came through a mirror");
        let through = std::mem::replace(&mut mirrored["connections"][0]["mirrors"], Value::Array(Vec::new()));
        assert_eq!(through.as_array().unwrap().len(), sessions.len(), "{kind}");
        // the only difference is the size of frames, by the encapsulation
        assert_eq!(mirrored["connections"], plain["connections"], "{kind}");
        assert_eq!(mirrored["findings"], plain["findings"], "{kind}");
    }
}

#[test]
fn what_a_mirror_cut_off_is_nobodys_fault() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut.pcap");
    for (kind, protocol, says_so) in
        [("erspan2", 47, true), ("erspan3", 47, true), ("erspan2", 47, false), ("vxlan", 17, false)]
    {
        for longest in [60, 90, 120, 150, 200, 256, 300, 500, 1000] {
            let cut = wrapped(kind, protocol, longest, says_so, &path);
            let mirrored = report(&path);
            let truncated: u64 = mirrored["capture"]["mirrors"]
                .as_array()
                .unwrap()
                .iter()
                .map(|m| m["truncated"].as_u64().unwrap())
                .sum();
            assert_eq!((truncated, cut > 0), (cut, true), "{kind} {longest}");
            let errors: Vec<&Value> =
                mirrored["findings"].as_array().unwrap().iter().filter(|f| f["severity"] == "error").collect();
            assert!(errors.is_empty(), "{kind} {longest}: {errors:?}");
        }
    }
}

/// Snapshot lengths of all samples: a cut capture has no findings that the whole one does not have.
#[test]
fn a_snapshot_length_makes_no_errors() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut.pcapng");
    let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../samples");
    let mut looked = 0;
    for entry in std::fs::read_dir(samples).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../samples/{name}/{name}.pcap"));
        if !sample.exists() {
            continue;
        }
        let errors = |path: &Path| -> Vec<String> {
            let report = report(path);
            let errors = report["findings"].as_array().unwrap().iter().filter(|f| f["severity"] == "error");
            errors.map(|f| f["id"].as_str().unwrap().to_owned()).collect()
        };
        let whole = errors(&sample);
        for longest in [60, 90, 96, 120, 128, 150, 200, 256, 300, 500, 1000] {
            let mut capture = open(&sample, OpenOptions::new()).unwrap();
            let mut writer = PcapWriter::create(&path, LinkType::ETHERNET, longest as u32, true).unwrap();
            while let Some(record) = capture.next().unwrap() {
                let bytes = &record.bytes[..record.bytes.len().min(longest)];
                writer.write(&Record::new(record.time_ns, 0, LinkType::ETHERNET, record.wire_len, bytes)).unwrap();
            }
            writer.finish().unwrap();
            let made: Vec<String> = errors(&path).into_iter().filter(|id| !whole.contains(id)).collect();
            assert!(made.is_empty(), "{name} at {longest}: {made:?}");
        }
        looked += 1;
    }
    assert!(looked >= 15, "{looked} samples");
}

#[test]
fn the_session_is_a_field_that_filters_and_columns_can_use() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.pcap");
    wrapped("erspan2", 47, 120, true, &path);
    let rows = |filter: &str| {
        let fields = [
            "-T",
            "fields",
            "-e",
            "rdmascope.mirror",
            "-e",
            "rdmascope.mirror.session",
            "-e",
            "rdmascope.mirror.truncated",
        ];
        let output = Command::new(env!("CARGO_BIN_EXE_rdmascope"))
            .arg("dissect")
            .arg(&path)
            .args(["-Y", filter])
            .args(fields)
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let (odd, even) = (rows("rdmascope.mirror.session == 17"), rows("rdmascope.mirror.session == 18"));
    assert_eq!((odd.lines().count(), even.lines().count()), (540, 539));
    assert!(odd.lines().all(|l| l.starts_with("ERSPAN II\t17\t")), "{odd}");
    assert!(rows("rdmascope.mirror.truncated == true").lines().count() > 100);
}

/// A mirror of both directions shows every packet twice. That is not a retransmission, and lost packets are still
/// found.
#[test]
fn what_was_captured_twice_was_not_sent_twice() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("twice.pcap");
    for name in ["smb-roce", "smb-roce-loss", "smb-iwarp", "nfs-iwarp-v42"] {
        let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../samples/{name}/{name}.pcap"));
        let health = |path: &Path| -> (u64, u64) {
            let report = report(path);
            let all = report["connections"]
                .as_array()
                .unwrap()
                .iter()
                .map(|c| c["transport_health"].clone())
                .collect::<Vec<_>>();
            let sum = |key: &str| all.iter().map(|h| h[key].as_u64().unwrap()).sum();
            (sum("retransmissions"), sum("duplicates"))
        };
        let (again, copies) = health(&sample);
        assert_eq!((again > 0, copies), (name != "smb-roce", 0), "{name}");
        for lag in [0, 5_000, 40_000] {
            let mut capture = open(&sample, OpenOptions::new()).unwrap();
            let mut frames = Vec::new();
            while let Some(record) = capture.next().unwrap() {
                let number = frames.len();
                frames.push((record.time_ns, number, record.bytes.to_vec()));
                frames.push((record.time_ns + lag, number + 1, record.bytes.to_vec()));
            }
            frames.sort();
            let mut writer = PcapWriter::create(&path, LinkType::ETHERNET, 0, true).unwrap();
            for (time, _, bytes) in &frames {
                writer.write(&Record::new(*time, 0, LinkType::ETHERNET, bytes.len() as u32, bytes)).unwrap();
            }
            writer.finish().unwrap();
            let (twice, copies) = health(&path);
            assert_eq!(twice, again, "{name}, {lag} ns later");
            assert!(copies > 300, "{name}: {copies}");
        }
    }
}
