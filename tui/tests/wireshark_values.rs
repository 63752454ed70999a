//! The values of our JSON against those of `tshark -T json`, on every sample: frame by frame and field by field, the
//! same values the same number of times, if both have the protocol. Intended differences are listed in
//! `samples/wireshark-differences.txt`: `value` for a field, `layer` for a protocol that one of the two does not show.

mod common;

use rdmascope_dissector::field::Kind;
use rdmascope_dissector::registry::Registry;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::process::Command;

/// JSON in which a key may occur several times, as tshark writes it.
#[derive(Debug)]
enum Json {
    Text(String),
    List(Vec<Json>),
    Object(Vec<(String, Json)>),
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Json;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("JSON")
            }
            fn visit_str<E>(self, v: &str) -> Result<Json, E> {
                Ok(Json::Text(v.into()))
            }
            fn visit_bool<E>(self, v: bool) -> Result<Json, E> {
                Ok(Json::Text(v.to_string()))
            }
            fn visit_i64<E>(self, v: i64) -> Result<Json, E> {
                Ok(Json::Text(v.to_string()))
            }
            fn visit_u64<E>(self, v: u64) -> Result<Json, E> {
                Ok(Json::Text(v.to_string()))
            }
            fn visit_f64<E>(self, v: f64) -> Result<Json, E> {
                Ok(Json::Text(v.to_string()))
            }
            fn visit_unit<E>(self) -> Result<Json, E> {
                Ok(Json::Text(String::new()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Json, A::Error> {
                let mut list = Vec::new();
                while let Some(item) = seq.next_element()? {
                    list.push(item);
                }
                Ok(Json::List(list))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Json::Object(members))
            }
        }
        d.deserialize_any(Any)
    }
}

/// The values of one frame, and the protocols there are.
#[derive(Default)]
struct Frame {
    values: BTreeMap<String, Vec<String>>,
    protocols: BTreeSet<String>,
    malformed: bool,
}

fn protocol(name: &str) -> &str {
    name.split('.').next().unwrap_or(name)
}

fn walk(key: &str, json: &Json, registry: &Registry, frame: &mut Frame) {
    match json {
        Json::Object(members) => {
            frame.malformed |= key == "_ws.malformed";
            if registry.find(key).is_some_and(|d| d.kind == Kind::Protocol)
                && !key.contains('.')
                && common::wireshark_has(key)
            {
                frame.protocols.insert(key.into());
            }
            members.iter().for_each(|(k, v)| walk(k, v, registry, frame));
        }
        Json::List(items) => items.iter().for_each(|item| walk(key, item, registry, frame)),
        Json::Text(text) => {
            let Some(def) = registry.find(key) else { return };
            if matches!(def.kind, Kind::None | Kind::Protocol) {
                return;
            }
            let value = if def.kind == Kind::AbsTime { iso(text) } else { text.clone() };
            // an older version may have another name for it
            frame.values.entry(def.name.into()).or_default().push(value);
        }
    }
}

/// Older versions write times as `Nov 21, 2026 07:56:08.861934000 UTC`, some fields as seconds; both as ISO 8601.
fn iso(text: &str) -> String {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let words: Vec<&str> = text.split_whitespace().collect();
    if let [month, day, year, clock, "UTC"] = words[..]
        && let Some(month) = MONTHS.iter().position(|m| *m == month)
    {
        return format!("{year}-{:02}-{:0>2}T{clock}Z", month + 1, day.trim_end_matches(','));
    }
    text.into()
}

fn frames(text: &[u8], registry: &Registry, whose: &str) -> Vec<Frame> {
    let text = String::from_utf8_lossy(text);
    let Json::List(packets) = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{whose}: {e}")) else {
        panic!("{whose}: an array is expected")
    };
    let frame = |packet: &Json| {
        let mut frame = Frame::default();
        walk("", packet, registry, &mut frame);
        frame.values.values_mut().for_each(|v| v.sort());
        frame
    };
    packets.iter().map(frame).collect()
}

/// A field that every message of a protocol has once. If the two report different messages, nothing in them can be
/// compared: a message that was sent twice or in pieces is reported in the frame that completes it, and Wireshark does
/// not always choose the same one.
const ONCE: &[(&str, &str)] = &[
    ("iwarp_mpa", "iwarp_mpa.ulpdulength"),
    ("iwarp_ddp", "iwarp_ddp.dv"),
    ("iwarp_rdma", "iwarp_ddp.dv"),
    ("smb_direct", "smb_direct.credits.requested"),
    ("smb2", "smb2.msg_id"),
    ("smb", "smb2.msg_id"),
];

/// Differences by field: how many frames, and one of them.
#[derive(Default)]
struct Wrong {
    frames: usize,
    example: String,
}

/// `seen` collects the fields that differ and may.
fn compare(
    folder: &Path,
    registry: &Registry,
    wrong: &mut BTreeMap<String, Wrong>,
    seen: &mut BTreeSet<String>,
) -> Option<usize> {
    let name = folder.file_name().expect("a folder has a name").to_string_lossy().into_owned();
    let file = format!("{name}.pcap");
    // Artemis takes SMB Direct's port 5445 for its own
    let theirs = common::tshark(folder, &["-n", "-r", &file, "-T", "json", "--disable-protocol", "artemis"])?;
    let ours = Command::new(env!("CARGO_BIN_EXE_rdmascope"))
        .args(["dissect", &file, "-T", "json"])
        .current_dir(folder)
        .output()
        .expect("the binary runs");
    assert!(ours.status.success(), "{name}: {}", String::from_utf8_lossy(&ours.stderr));
    let (theirs, ours) = (frames(&theirs.stdout, registry, "tshark"), frames(&ours.stdout, registry, "rdmascope"));
    assert_eq!(theirs.len(), ours.len(), "{name}: frames");
    let known = common::differences();
    let listed = |name: &str, what: &str| known.contains_key(&(name.to_owned(), what.to_owned()));
    let mut compared = 0;
    let mut note = |what: String, example: String| {
        let w = wrong.entry(what).or_default();
        w.frames += 1;
        if w.example.is_empty() {
            w.example = example;
        }
    };
    let mut misread = 0;
    for (number, (theirs, ours)) in theirs.iter().zip(&ours).enumerate() {
        let at = format!("{name} frame {}", number + 1);
        // Wireshark misreads a message from the point that it calls malformed: a compound with a body under an error
        // status
        if theirs.malformed && !ours.malformed {
            misread += 1;
            continue;
        }
        // of a packet quoted by ICMP we read only the basic fields, and Wireshark all of them
        if ours.protocols.contains("icmp") {
            continue;
        }
        // Wireshark dissects a reply with chunks twice: before and after it put it together
        let count = |f: &Frame, name: &str| f.values.get(name).map_or(0, Vec::len);
        let twice = count(theirs, "rpc.xid") == 2 * count(ours, "rpc.xid") && count(ours, "rpc.xid") > 0;
        for p in theirs.protocols.symmetric_difference(&ours.protocols).filter(|p| !listed(p, "layer")) {
            let who = if ours.protocols.contains(p) { "we alone have it" } else { "Wireshark alone has it" };
            note(format!("{p}\tlayer"), format!("{at}: {who}"));
        }
        let uneven: BTreeSet<&str> = ONCE
            .iter()
            .filter(|(_, field)| theirs.values.get(*field) != ours.values.get(*field))
            .map(|(p, _)| *p)
            .collect();
        for p in uneven.iter().filter(|p| !listed(p, "layer")) {
            note(format!("{p}\tlayer"), format!("{at}: other messages in this frame"));
        }
        let both = |name: &str| {
            let p = protocol(name);
            if uneven.contains(p) {
                return false;
            }
            let is_protocol = registry.find(p).is_some_and(|d| d.kind == Kind::Protocol);
            !is_protocol || (theirs.protocols.contains(p) && ours.protocols.contains(p))
        };
        let names: BTreeSet<&String> = theirs.values.keys().chain(ours.values.keys()).filter(|n| both(n)).collect();
        for field in names {
            let empty = Vec::new();
            let (t, o) = (theirs.values.get(field).unwrap_or(&empty), ours.values.get(field).unwrap_or(&empty));
            // only our program has our own names
            if t.is_empty() && !common::wireshark_has(field) {
                continue;
            }
            compared += 1;
            if twice && t.len() == 2 * o.len() && t.chunks(2).zip(o).all(|(t, o)| t.iter().all(|t| t == o)) {
                continue;
            }
            if t != o && listed(field, "value") {
                seen.insert(field.clone());
            } else if t != o {
                let short = |v: &Vec<String>| v.join(" | ").chars().take(120).collect::<String>();
                note(format!("{field}\tvalue"), format!("{at}: ours [{}], Wireshark's [{}]", short(o), short(t)));
            }
        }
    }
    eprintln!("{name}: {compared} values compared; {misread} frames left out that Wireshark alone calls malformed");
    assert!(misread * 10 < ours.len(), "{name}: too many frames are left out");
    Some(compared)
}

#[test]
fn values_are_wiresharks() {
    let registry = Registry::new();
    let mut folders: Vec<_> =
        std::fs::read_dir(common::samples()).expect("samples").flatten().map(|e| e.path()).collect();
    folders.retain(|f| f.file_name().is_some_and(|n| f.join(n).with_extension("pcap").exists()));
    folders.sort();
    assert!(!folders.is_empty(), "there are no samples");
    let (mut wrong, mut seen) = (BTreeMap::new(), BTreeSet::new());
    for folder in folders {
        let Some(compared) = compare(&folder, &registry, &mut wrong, &mut seen) else { return };
        assert!(compared > 500, "{}: only {compared} values were compared", folder.display());
    }
    for line in common::differences().into_values().filter(|d| d.what == "value" && !seen.contains(&d.name)) {
        eprintln!("no longer needed: {} {} {}", line.name, line.what, line.reason);
    }
    let lines: Vec<String> =
        wrong.iter().map(|(what, w)| format!("{what}\t{} frames, first {}", w.frames, w.example)).collect();
    assert!(lines.is_empty(), "{} differences that no one gave a reason for:\n{}", lines.len(), lines.join("\n"));
}

#[test]
fn times_of_older_versions_are_read() {
    assert_eq!(iso("Nov 21, 2026 07:56:08.861934000 UTC"), "2026-11-21T07:56:08.861934000Z");
    assert_eq!(iso("Jan  1, 1970 00:00:00.000000000 UTC"), "1970-01-01T00:00:00.000000000Z");
    assert_eq!(iso("2026-11-21T07:56:08.861934000Z"), "2026-11-21T07:56:08.861934000Z");
}

/// Paths of values (names of layers, subtrees and the field) and how often each occurs.
fn paths(value: &Json, path: &mut Vec<String>, out: &mut BTreeMap<Vec<String>, usize>) {
    match value {
        Json::Object(members) => {
            for (name, member) in members {
                path.push(name.clone());
                paths(member, path, out);
                path.pop();
            }
        }
        Json::List(items) => items.iter().for_each(|item| paths(item, path, out)),
        Json::Text(_) => *out.entry(path.clone()).or_default() += 1,
    }
}

fn paths_of(command: &mut Command) -> BTreeMap<Vec<String>, usize> {
    let output = command.output().expect("it runs");
    let frames: Json = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let mut out = BTreeMap::new();
    paths(&frames, &mut Vec::new(), &mut out);
    out
}

/// Scripts written for tshark find each field at the same path. Keys that are texts differ if Wireshark puts values
/// into them, such as file sizes or the names of handles that it remembers.
#[test]
fn json_has_the_paths_of_the_newest_tshark() {
    let newest = common::root().join("interop/newest-tshark");
    if !Command::new(&newest).arg("--ready").status().is_ok_and(|s| s.success()) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    common::open_to_all(folder.path());
    for (sample, percent) in
        [("smb-roce", 98), ("smb-iwarp", 99), ("nfs-roce-v42", 96), ("nfs-roce-v3", 89), ("smb-tcp-bridge", 95)]
    {
        let file = folder.path().join(format!("{sample}.pcap"));
        std::fs::copy(common::samples().join(sample).join(format!("{sample}.pcap")), &file).expect("a sample");
        common::open_to_all(&file);
        let ours =
            paths_of(Command::new(env!("CARGO_BIN_EXE_rdmascope")).arg("dissect").arg(&file).args(["-T", "json"]));
        let theirs = paths_of(Command::new(&newest).arg("-r").arg(&file).args(["-T", "json"]));
        let names: BTreeSet<&String> = theirs.keys().filter_map(|path| path.last()).collect();
        let (mut common, mut same) = (0, 0);
        for (path, count) in ours.iter().filter(|(path, _)| path.last().is_some_and(|name| names.contains(name))) {
            common += count;
            same += if theirs.contains_key(path) { *count } else { 0 };
        }
        eprintln!("{sample}: {same} of {common} values are where tshark has them");
        assert!(common > 5000 && same * 100 >= common * percent, "{sample}: {same} of {common}");
    }
}
