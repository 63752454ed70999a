//! Reads every sample and some runs of the simulator with tshark before and after anonymization: each frame has the
//! same fields and the same length.

mod common;

use common::{Record, anonymized, samples, seeds, simulated};
use rdmascope_capture::{Interface, PcapngWriter, Section};
use rdmascope_dissector::frame::LinkType;
use rdmascope_share::Options;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Seeds of the simulator; the environment variable SEEDS gives others.
const SEEDS: std::ops::Range<u64> = 0..24;

/// Fields that tshark derives from the contents of other bytes, each with the reason. A name that ends with `.` covers
/// all fields below it.
const FOLLOW: &[(&str, &str)] = &[
    ("eth.addr.oui_resolved", "the maker of an adapter goes with its address"),
    ("eth.src.oui_resolved", "the same"),
    ("eth.dst.oui_resolved", "the same"),
    ("icmp.data_time", "what a ping carries is blanked"),
    ("icmp.data_time_relative", "the same"),
    ("data", "what no decoder knows is blanked, and tshark shows runs of zeros otherwise"),
    ("data.", "the same"),
    ("fake-field-wrapper", "the same"),
    ("rpcordma.fragment", "contents that became zeros look to it like pieces of RPC messages in Sends of SMB Direct"),
    ("rpcordma.fragments", "the same"),
    ("rpcordma.fragment.", "the same"),
    ("rpcordma.reassembled.", "the same"),
];

/// Samples that tshark reads differently, with the reason.
const OTHER: &[(&str, &str)] = &[
    (
        "nfs-tcp-rpcbind-rdma.pcap",
        "calls from port 995 are TLS to tshark, whose records it finds in whatever bytes are there",
    ),
    ("smb-roce-firewall-reject.pcap", "of a RoCE packet that ICMP quotes what is behind the UDP header is blanked"),
    ("infiniband-sample.erf.pcap", "IP over InfiniBand is not decoded, and blanked"),
    ("t4c_lost.pcap", "made by hand: a fragment of which the beginning is lost"),
];

/// Writes the frames to pcapng, unchanged and anonymized, with the same metadata.
fn written(records: &[Record], folder: &Path) -> [PathBuf; 2] {
    let files = [folder.join("before.pcapng"), folder.join("after.pcapng")];
    let interfaces = records.iter().map(|r| r.interface + 1).max().unwrap_or(0);
    for (file, records) in files.iter().zip([records, &anonymized(records, Options::default()).0]) {
        let mut writer = PcapngWriter::create(file, &Section::default()).unwrap();
        for interface in 0..interfaces {
            let link_type =
                records.iter().find(|r| r.interface == interface).map_or(LinkType::ETHERNET, |r| r.link_type);
            writer.add_interface(&Interface::new(link_type)).unwrap();
        }
        for r in records {
            writer
                .write(&rdmascope_capture::Record::new(r.time_ns, r.interface, r.link_type, r.wire_len, &r.bytes))
                .unwrap();
        }
        writer.finish().unwrap();
    }
    files
}

/// Number of occurrences of each field in a frame, and the frame's length.
type Fields = BTreeMap<String, u32>;

fn read(file: &Path) -> Vec<Fields> {
    let command = std::env::var("RDMASCOPE_TSHARK").unwrap_or_else(|_| "tshark".into());
    let mut words = command.split_whitespace();
    let mut tshark = Command::new(words.next().expect("RDMASCOPE_TSHARK is empty"))
        .args(words)
        .args(["-n", "-T", "pdml", "-r"])
        .arg(file)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("tshark runs");
    let mut frames: Vec<Fields> = Vec::new();
    for line in BufReader::new(tshark.stdout.take().unwrap()).split(b'\n') {
        let line = String::from_utf8_lossy(&line.unwrap()).into_owned();
        let line = line.trim_start();
        if line.starts_with("<packet") {
            frames.push(Fields::new());
        }
        let value = |key: &str| {
            line.split_once(key).and_then(|(_, rest)| rest.split_once('"')).map(|(value, _)| value.to_owned())
        };
        let (Some(frame), true) = (frames.last_mut(), line.starts_with("<field") || line.starts_with("<proto")) else {
            continue;
        };
        let Some(name) = value("name=\"") else { continue };
        let is_meant = |known: &str| name == known || known.ends_with('.') && name.starts_with(known);
        if name == "frame.len" {
            *frame.entry(format!("frame.len {}", value("show=\"").unwrap_or_default())).or_default() += 1;
        } else if !FOLLOW.iter().any(|(known, _)| is_meant(known)) {
            *frame.entry(name).or_default() += 1;
        }
    }
    assert!(tshark.wait().unwrap().success());
    frames
}

/// True if tshark runs. In CI it must.
fn is_there() -> bool {
    let command = std::env::var("RDMASCOPE_TSHARK").unwrap_or_else(|_| "tshark".into());
    let is_there =
        Command::new(command.split_whitespace().next().unwrap_or("tshark")).arg("--version").output().is_ok();
    if !is_there {
        assert!(std::env::var_os("CI").is_none_or(|v| v != "true"), "tshark is in Debian's package tshark");
        eprintln!("NOT TESTED: {command} does not run; it is in Debian's package tshark");
    }
    is_there
}

/// Differences that tshark finds after anonymization.
fn differences(shown: &str, records: &[Record], folder: &Path) -> Vec<String> {
    let [before, after] = written(records, folder).map(|file| read(&file));
    assert!(!before.is_empty() && before.len() == after.len(), "{shown}");
    let differ = before.iter().zip(&after).enumerate().filter_map(|(n, (was, is))| {
        let names = was.keys().chain(is.keys()).find(|name| was.get(*name) != is.get(*name))?;
        Some(format!("{shown} frame {}: {names} {:?} became {:?}", n + 1, was.get(names), is.get(names)))
    });
    differ.take(3).collect()
}

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("rdmascope-share-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

// CAPTURES=FOLDER reads the captures in a folder instead
#[test]
fn tshark_finds_the_same_fields_before_and_after() {
    if !is_there() {
        return;
    }
    let folder = folder("samples");
    let mut wrong = Vec::new();
    for path in samples() {
        let shown = path.file_name().unwrap().to_string_lossy().into_owned();
        if !OTHER.iter().any(|(name, _)| shown == *name) {
            wrong.extend(differences(&shown, &common::read(&path), &folder));
        }
    }
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn tshark_finds_the_same_fields_of_simulated_captures() {
    if !is_there() {
        return;
    }
    let folder = folder("simulated");
    let wrong: Vec<String> =
        seeds(SEEDS).flat_map(|seed| differences(&format!("seed {seed}"), &simulated(seed), &folder)).collect();
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
