//! The engine says what the analysis says, in any order, and the same to Rust, C and Python.

use rdmascope_analyzer::env::Options as Analysis;
use rdmascope_analyzer::pipeline::{FrameMeta, Pipeline};
use rdmascope_analyzer::report::Report;
use rdmascope_capture::{LinkType, OpenOptions, Source, open};
use rdmascope_dissector::render::Stored;
use rdmascope_dissector::trace::Tree;
use rdmascope_engine::{Engine, Error, Frame, Options, facts};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn samples() -> Vec<PathBuf> {
    let mut found = Vec::new();
    for folder in std::fs::read_dir(workspace().join("samples")).unwrap().flatten().filter(|f| f.path().is_dir()) {
        let files = std::fs::read_dir(folder.path()).unwrap().flatten().map(|f| f.path());
        found.extend(files.filter(|f| f.extension().is_some_and(|e| e == "pcap")));
    }
    found.sort();
    assert!(found.len() > 30, "{} samples", found.len());
    found
}

struct CapturedFrame {
    time_ns: i64,
    link_type: LinkType,
    wire_len: u32,
    bytes: Vec<u8>,
}

fn frames(path: &Path) -> Vec<CapturedFrame> {
    let mut capture = open(path, OpenOptions::new()).expect("a sample");
    let mut frames = Vec::new();
    while capture.advance().expect("a whole capture") {
        let record = capture.record();
        let (time_ns, link_type, wire_len) = (record.time_ns, record.link_type, record.wire_len);
        frames.push(CapturedFrame { time_ns, link_type, wire_len, bytes: record.bytes.to_vec() });
    }
    frames
}

fn fed(engine: &mut Engine, number: u64, frame: &CapturedFrame, guess: bool) -> Vec<u8> {
    let link_type = (!guess).then_some(frame.link_type.0);
    let frame = Frame { number, time_ns: frame.time_ns, link_type, wire_len: frame.wire_len, bytes: &frame.bytes };
    engine.frame(&frame).unwrap().to_vec()
}

fn shown(item: &facts::Item<'_>) -> String {
    match item.kind {
        facts::UNSIGNED => format!(" {}", item.number()),
        facts::SIGNED => format!(" {}", item.number() as i64),
        facts::TIME => format!(" {}.{:09}", item.number() as i64, item.words().0),
        facts::TEXT => format!(" {}", item.text()),
        facts::BYTES => format!(" {} bytes", item.value.len()),
        facts::APART => format!(" message {}", item.words().0),
        _ => String::new(),
    }
}

/// Whether a field is the analysis', and not one of a protocol that Wireshark has not.
fn is_ours(name: &str) -> bool {
    let protocols = ["rdmascope.smb", "rdmascope.iwarp"];
    name.starts_with("rdmascope.")
        && !protocols.iter().any(|p| name.starts_with(p))
        && facts::fields().iter().any(|def| def.name == name)
}

/// Names and values of our own fields.
fn ours(said: &[u8]) -> Vec<String> {
    let names = facts::fields();
    let ours = facts::items(said).filter(|item| is_ours(names[usize::from(item.field)].name));
    ours.map(|item| names[usize::from(item.field)].name.to_owned() + &shown(&item))
        .filter(|l| !l.starts_with("rdmascope.cnp"))
        .collect()
}

/// The same of the tree that `rdmascope dissect` shows.
fn of_tree(tree: &Tree) -> Vec<String> {
    let mut lines = Vec::new();
    for node in tree.nodes.iter().filter(|n| is_ours(n.def.name)) {
        let value = match tree.stored(node) {
            Stored::None => String::new(),
            Stored::U(v) => format!(" {v}"),
            Stored::I(v) => format!(" {v}"),
            Stored::Time(s, n) => format!(" {s}.{n:09}"),
            Stored::Text(t) => format!(" {t}"),
            Stored::Bytes(b) => format!(" {} bytes", b.len()),
        };
        lines.push(node.def.name.to_owned() + &value);
    }
    lines
}

fn report(frames: &[CapturedFrame], check: &mut dyn FnMut(u64, Vec<String>)) -> Report {
    let mut pipeline = Pipeline::new(Analysis::default());
    let mut tree = Tree::new();
    for (n, frame) in frames.iter().enumerate() {
        let CapturedFrame { time_ns, link_type, wire_len, ref bytes } = *frame;
        tree.begin(bytes);
        let meta = FrameMeta { number: n as u64 + 1, time_ns, link_type, wire_len, interface: 0 };
        pipeline.frame(&meta, bytes, &mut tree);
        check(meta.number, of_tree(&tree));
    }
    pipeline.finish().0
}

#[test]
fn every_frame_has_the_facts_of_the_analysis_first_and_again_and_whatever_was_asked_between() {
    let mut lines = 0;
    for path in samples() {
        let frames = frames(&path);
        let mut engine = Engine::new(Options::default()).unwrap();
        let mut expected = Vec::new();
        report(&frames, &mut |_, facts| expected.push(facts));
        for (n, frame) in frames.iter().enumerate() {
            let number = n as u64 + 1;
            let said = fed(&mut engine, number, frame, true);
            assert_eq!(ours(&said), expected[n], "{} frame {number}", path.display());
            lines += expected[n].len();
            if n % 7 == 0 {
                // what is settled on the way changes nothing of what comes
                engine.settle(n % 2 == 0);
            }
        }
        // a new engine, so that nothing is settled
        let mut engine = Engine::new(Options::default()).unwrap();
        for (n, frame) in frames.iter().enumerate() {
            fed(&mut engine, n as u64 + 1, frame, false);
        }
        for n in (0..frames.len()).rev() {
            let again: Vec<String> = ours(engine.facts(n as u64 + 1).unwrap());
            let later = ["rdmascope.exchange.reply ", "rdmascope.exchange.owner"];
            let again: Vec<String> = again.into_iter().filter(|l| !later.iter().any(|p| l.starts_with(p))).collect();
            assert_eq!(sorted(again), sorted(expected[n].clone()), "{} frame {} again", path.display(), n + 1);
        }
    }
    assert!(lines > 10_000, "{lines} facts compared");
}

fn sorted(mut lines: Vec<String>) -> Vec<String> {
    lines.sort();
    lines
}

/// Rule, severity, certainty and blame of the findings of a frame.
fn findings(said: &[u8]) -> BTreeSet<[String; 4]> {
    let mut found = BTreeSet::new();
    let names = facts::fields();
    let mut part = [const { String::new() }; 4];
    for item in facts::items(said) {
        match names[usize::from(item.field)].name {
            "rdmascope.finding.id" => part[0] = item.text().into(),
            "rdmascope.finding.severity" => part[1] = item.text().into(),
            "rdmascope.finding.by" => part[3] = item.text().into(),
            "rdmascope.finding.certainty" => part[2] = item.text().into(),
            "rdmascope.finding.text" => {
                assert!(!item.text().is_empty());
                found.insert(part.clone());
            }
            _ => {}
        }
    }
    found
}

#[test]
fn at_the_end_the_frames_have_the_findings_of_the_report_and_no_others() {
    let (mut seen, mut late) = (BTreeSet::new(), 0);
    for path in samples() {
        let frames = frames(&path);
        let mut engine = Engine::new(Options::default()).unwrap();
        let mut then = Vec::new();
        for (n, frame) in frames.iter().enumerate() {
            then.push(findings(&fed(&mut engine, n as u64 + 1, frame, false)));
        }
        engine.settle(true);
        let report = report(&frames, &mut |_, _| {});
        let mut expected = vec![BTreeSet::new(); frames.len()];
        for finding in report.findings.iter() {
            let row = [finding.rule.id(), finding.severity.name(), finding.certainty.name(), finding.by.name()]
                .map(str::to_owned);
            assert!(engine.report().contains(&report.sentence(finding)), "{}", engine.report());
            seen.insert(finding.rule);
            for number in finding.frames.iter() {
                expected[*number as usize - 1].insert(row.clone());
            }
        }
        for n in 0..frames.len() {
            let said = findings(engine.facts(n as u64 + 1).unwrap());
            let missing: Vec<_> = expected[n].difference(&said).collect();
            assert!(missing.is_empty(), "{} frame {}: {missing:?}", path.display(), n + 1);
            // what did not hold is gone, but where a finding has more frames than are listed
            let more: BTreeSet<_> =
                report.findings.iter().filter(|f| f.frames.omitted() > 0).map(|f| f.rule.id()).collect();
            let spare: Vec<_> = said.difference(&expected[n]).filter(|f| !more.contains(&*f[0])).collect();
            assert!(spare.is_empty(), "{} frame {}: {spare:?}", path.display(), n + 1);
            late += said.difference(&then[n]).count();
        }
    }
    assert!(seen.len() > 40 && late > 100, "{} rules, {late} findings known later", seen.len());
}

#[test]
fn memory_is_bounded_and_frames_without_room_are_reported_once() {
    let frames = frames(&workspace().join("samples/smb-roce/smb-roce.pcap"));
    let mut engine = Engine::new(Options { memory_max: 8192, messages_max: 1000, ..Options::default() }).unwrap();
    let whole: Vec<Vec<u8>> =
        frames.iter().enumerate().map(|(n, frame)| fed(&mut engine, n as u64 + 1, frame, false)).collect();
    let status = engine.status();
    assert_eq!(status.frames, frames.len() as u64);
    assert!(status.not_kept > 0 && status.memory < 8192 + 16 * status.frames + 1000, "{status:?}");
    assert!(whole.iter().any(|said| facts::items(said).count() > 2));
    assert_eq!(engine.facts(frames.len() as u64), Err(Error::NotKept));
    assert!(engine.facts(1).is_ok());
    assert_eq!(engine.facts(0), Err(Error::Unknown));
    assert_eq!(engine.facts(frames.len() as u64 + 1), Err(Error::Unknown));
}

/// The library that C loads: beside the programs that are tested.
fn library() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let deps = program.parent().unwrap();
    let name = format!("{}rdmascope_engine{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    [deps.join(&name), deps.parent().unwrap().join(&name)]
        .into_iter()
        .find(|p| p.is_file())
        .expect("cargo builds it with these tests")
}

fn output(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[cfg(target_os = "linux")]
#[test]
fn before_the_end_nothing_reported_for_a_frame_is_withdrawn() {
    let names = |said: &[u8]| -> BTreeSet<String> { findings(said).into_iter().map(|row| row[0].clone()).collect() };
    let mut told = 0;
    for path in samples() {
        let frames = frames(&path);
        for at_end in [false, true] {
            let mut engine = Engine::new(Options::default()).unwrap();
            let mut then: Vec<BTreeSet<String>> = Vec::new();
            for (n, frame) in frames.iter().enumerate() {
                then.push(names(&fed(&mut engine, n as u64 + 1, frame, false)));
                if n + 1 == frames.len() / 2 {
                    engine.settle(at_end);
                }
            }
            // of an end that was none, what came behind it; otherwise of every frame
            let from = if at_end { frames.len() / 2 } else { 0 };
            for (n, before) in then.iter().enumerate().skip(from) {
                let now = names(engine.facts(n as u64 + 1).unwrap());
                assert!(now.is_superset(before), "{} frame {}: {now:?}, and {before:?} before", path.display(), n + 1);
                told += before.len();
            }
        }
    }
    assert!(told > 100, "{told} findings");
}

#[test]
fn c_and_python_hear_what_rust_hears() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().unwrap();
    let (library, program) = (library(), folder.path().join("facts"));
    let has = |name: &str| Command::new(name).arg("--version").output().is_ok_and(|o| o.status.success());
    for needed in ["cc", "python3"] {
        assert!(has(needed) || std::env::var_os("CI").is_none(), "{needed} is missing");
    }
    if has("cc") {
        let mut cc = Command::new("cc");
        cc.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-I"])
            .arg(here.join("include"))
            .arg(here.join("examples/facts.c"));
        output(
            cc.arg(&library).arg(format!("-Wl,-rpath,{}", library.parent().unwrap().display())).arg("-o").arg(&program),
        );
    }
    for sample in [
        "smb-roce/smb-roce.pcap",
        "smb-iwarp/smb-iwarp.pcap",
        "probes/t14_transform.pcap",
        "probes/c1_overrun.pcap",
        "probes/cnp.pcap",
    ] {
        let path = workspace().join("samples").join(sample);
        let frames = frames(&path);
        let mut engine = Engine::new(Options::default()).unwrap();
        for (n, frame) in frames.iter().enumerate() {
            fed(&mut engine, n as u64 + 1, frame, false);
        }
        engine.settle(true);
        let mut expected = String::new();
        for number in (1..=frames.len()).rev() {
            for item in facts::items(engine.facts(number as u64).unwrap()) {
                expected.push_str(&format!(
                    "{number} {}{}\n",
                    facts::fields()[usize::from(item.field)].name,
                    shown(&item)
                ));
            }
        }
        assert!(expected.lines().count() > 3, "{sample}: {expected}");
        if has("cc") {
            assert_eq!(output(Command::new(&program).arg(&path)), expected, "{sample} in C");
        }
        if has("python3") {
            let text = output(Command::new("python3").arg(here.join("examples/facts.py")).arg(&library).arg(&path));
            assert_eq!(text, expected, "{sample} in Python");
        }
    }
}
