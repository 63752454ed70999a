//! The display filters of `samples/filters.txt` against tshark: the same frames of the sample named above them pass.
//! Intended differences are listed beside the filter, with the reason.
//!
//! Debian's tshark lacks much of the language, so the newest one of `interop/newest-tshark` is used, if it is
//! available. Its sharkd answers for all filters of a sample at once. It reads a capture in two passes, as Wireshark's
//! window does; where it does not say what is expected, tshark is asked, which reads it in one.

mod common;

use rdmascope_analyzer::keys::Keyring;
use rdmascope_capture::{OpenOptions, Source, open};
use rdmascope_dissector::extract::Extractor;
use rdmascope_dissector::filter::Filter;
use rdmascope_report::dissection::Dissection;
use rdmascope_report::fields::registry;
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;

/// A line of the list.
struct Case {
    sample: String,
    filter: String,
    /// Reason for which other frames pass.
    reason: Option<String>,
    line: usize,
}

/// `[sample]` begins the filters of a sample, `#` a comment; the reason of a difference follows after two tabs.
fn cases() -> Vec<Case> {
    let path = common::samples().join("filters.txt");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let (mut cases, mut sample) = (Vec::new(), String::new());
    for (number, line) in text.lines().enumerate().filter(|(_, l)| !l.is_empty() && !l.starts_with('#')) {
        if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            sample = name.into();
            continue;
        }
        let (filter, reason) = match line.split_once("\t\t") {
            Some((filter, reason)) => (filter, Some(reason.to_owned())),
            None => (line, None),
        };
        assert!(reason.as_ref().is_none_or(|r| r.len() > 10), "line {}: a reason is expected", number + 1);
        cases.push(Case { sample: sample.clone(), filter: filter.into(), reason, line: number + 1 });
    }
    cases
}

/// The frames of a sample that pass each filter, in one pass over it, or the error in the filter.
fn ours(file: &Path, filters: &[&str]) -> Vec<Result<Vec<u64>, String>> {
    let registry = registry();
    let mut extractor = Extractor::new();
    let mut parsed: Vec<Result<Filter, String>> =
        filters.iter().map(|text| Filter::parse(text, &registry).map_err(|e| e.to_string())).collect();
    parsed.iter_mut().flatten().for_each(|f| f.bind(&mut extractor));
    let mut passed = vec![Vec::new(); filters.len()];
    let mut capture = open(file, OpenOptions::new()).expect("a sample");
    let mut dissection = Dissection::new(Keyring::new());
    while capture.advance().expect("a whole capture") {
        extractor.begin();
        let frame = dissection.frame(&capture.record(), capture.interfaces(), &mut extractor);
        for (filter, passed) in parsed.iter().zip(&mut passed) {
            if filter.as_ref().is_ok_and(|f| f.matches(&extractor)) {
                passed.push(frame.number);
            }
        }
    }
    parsed.into_iter().zip(passed).map(|(filter, passed)| filter.map(|_| passed)).collect()
}

/// The frames that pass each filter in sharkd, or its error message; `None` without an answer. The folder is for its
/// configuration.
fn in_sharkd(newest: &Path, folder: &Path, file: &Path, filters: &[&str]) -> Vec<Option<Result<Vec<u64>, String>>> {
    let configuration = folder.join("configuration");
    std::fs::create_dir_all(&configuration).expect("a folder");
    common::open_to_all(&configuration);
    let disabled = configuration.join("disabled_protos");
    // Artemis takes SMB Direct's port 5445 for its own
    std::fs::write(&disabled, "artemis\n").expect("a file");
    common::open_to_all(&disabled);
    let request = |id: usize, method: &str, params: Value| {
        format!("{}\n", json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
    };
    let mut requests = request(0, "load", json!({ "file": file }));
    for (n, filter) in filters.iter().enumerate() {
        requests += &request(n + 1, "frames", json!({"filter": filter, "column0": "frame.number:1"}));
    }
    let mut command = Command::new(newest);
    command.args(["--sharkd", "-"]).env("WIRESHARK_CONFIG_DIR", &configuration).env("TZ", "UTC");
    let mut sharkd =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("sharkd runs");
    let mut input = sharkd.stdin.take().expect("it is piped");
    let writer = std::thread::spawn(move || input.write_all(requests.as_bytes()));
    let output = sharkd.wait_with_output().expect("sharkd runs");
    writer.join().expect("no panic").expect("sharkd reads all requests");
    let answers: HashMap<u64, Value> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter_map(|answer| Some((answer["id"].as_u64()?, answer)))
        .collect();
    let passed = |answer: &Value| match answer["result"].as_array() {
        Some(frames) => Ok(frames.iter().filter_map(|frame| frame["num"].as_u64()).collect()),
        None => Err(answer["error"]["message"].to_string()),
    };
    (1..=filters.len() as u64).map(|n| answers.get(&n).map(passed)).collect()
}

/// True if the same frames pass, or if both refuse the filter.
fn agree(ours: &Result<Vec<u64>, String>, theirs: &Result<Vec<u64>, String>) -> bool {
    match (ours, theirs) {
        (Ok(ours), Ok(theirs)) => ours == theirs,
        (Err(_), Err(_)) => true,
        _ => false,
    }
}

/// The frames that pass in tshark, or its error message on the filter.
fn theirs(tshark: &Path, file: &Path, filter: &str) -> Result<Vec<u64>, String> {
    let output = Command::new(tshark)
        // Artemis takes SMB Direct's port 5445 for its own
        .args(["-n", "--disable-protocol", "artemis", "-T", "fields", "-e", "frame.number", "-r"])
        .arg(file)
        .args(["-Y", filter])
        .env("TZ", "UTC")
        .output()
        .expect("tshark runs");
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(text.lines().filter(|l| !l.starts_with("Running as")).take(1).collect());
    }
    Ok(String::from_utf8_lossy(&output.stdout).lines().filter_map(|l| l.parse().ok()).collect())
}

#[test]
fn filters_pass_the_frames_that_they_pass_in_wireshark() {
    let newest = common::root().join("interop/newest-tshark");
    if !Command::new(&newest).arg("--ready").status().is_ok_and(|s| s.success()) {
        let message = "NOT TESTED: the newest tshark is not there: interop/newest-tshark --get";
        assert!(std::env::var_os("CI").is_none_or(|v| v != "true"), "{message}");
        eprintln!("{message}");
        return;
    }
    // under root, the newest tshark runs as user nobody, who must be able to read the samples
    let folder = tempfile::tempdir().expect("a folder");
    let cases = cases();
    let (mut samples, mut asked, wrong) = (Vec::new(), 0, Mutex::new(Vec::new()));
    for case in &cases {
        if !samples.contains(&case.sample) {
            samples.push(case.sample.clone());
        }
    }
    common::open_to_all(folder.path());
    for sample in samples {
        let file = folder.path().join(sample.replace('/', "-"));
        std::fs::copy(common::samples().join(&sample), &file).unwrap_or_else(|e| panic!("{sample}: {e}"));
        common::open_to_all(&file);
        let cases: Vec<&Case> = cases.iter().filter(|c| c.sample == sample).collect();
        let filters: Vec<&str> = cases.iter().map(|c| &*c.filter).collect();
        let ours = ours(&file, &filters);
        let quick = in_sharkd(&newest, folder.path(), &file, &filters);
        let unsettled: Vec<_> = cases
            .iter()
            .zip(&ours)
            .zip(&quick)
            .filter(|((case, ours), quick)| {
                quick.as_ref().is_none_or(|quick| agree(ours, quick) == case.reason.is_some())
            })
            .map(|((case, ours), _)| (case, ours))
            .collect();
        asked += unsettled.len();
        let next = Mutex::new(unsettled.into_iter());
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    loop {
                        let Some((case, ours)) = next.lock().unwrap().next() else { return };
                        let theirs = theirs(&newest, &file, &case.filter);
                        let same = agree(ours, &theirs);
                        if same != case.reason.is_some() {
                            continue;
                        }
                        let text = match (ours, &theirs) {
                            _ if same => "no longer differs".into(),
                            (Ok(ours), Ok(theirs)) => {
                                let only = |a: &[u64], b: &[u64]| a.iter().find(|f| !b.contains(f)).copied();
                                let (us, them) = (only(ours, theirs), only(theirs, ours));
                                format!(
                                    "{} frames, Wireshark {}; only ours {us:?}, only Wireshark's {them:?}",
                                    ours.len(),
                                    theirs.len()
                                )
                            }
                            (Ok(ours), Err(e)) => format!("{} frames, Wireshark refuses: {e}", ours.len()),
                            (Err(e), _) => format!("Wireshark takes it, and we refuse: {e}"),
                        };
                        wrong.lock().unwrap().push((case.line, format!("{} {}: {text}", case.line, case.filter)));
                    }
                });
            }
        });
    }
    let mut wrong = wrong.into_inner().unwrap();
    wrong.sort();
    let lines: Vec<String> = wrong.into_iter().map(|(_, text)| text).collect();
    eprintln!("{} filters compared, {asked} of them with tshark", cases.len());
    assert!(lines.is_empty(), "{} filters differ:\n{}", lines.len(), lines.join("\n"));
}

/// `dissector/src/wireshark-names.txt` lists the names that only Wireshark has. `UPDATE=1` writes it anew.
#[test]
fn names_that_only_wireshark_has_are_known() {
    let newest = common::root().join("interop/newest-tshark");
    if !Command::new(&newest).arg("--ready").status().is_ok_and(|s| s.success()) {
        return;
    }
    let output = Command::new(newest).args(["-G", "fields"]).output().expect("tshark runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let registry = registry();
    let first = |name: &str| name.split('.').next().unwrap_or(name).to_owned();
    let ours: HashSet<&str> = registry.all().iter().map(|d| d.name).collect();
    let mut known: HashSet<String> = registry.all().iter().map(|d| first(d.name)).collect();
    // of these a field or two is read, of hundreds
    ["erf", "smb"].iter().for_each(|p| {
        known.remove(*p);
    });
    let mut lines = BTreeSet::new();
    for name in text.lines().filter(|l| l.starts_with(['P', 'F'])).filter_map(|l| l.split('\t').nth(2)) {
        if ours.contains(name) {
            continue;
        }
        lines.insert(if known.contains(&first(name)) || !name.contains('.') {
            name.to_owned()
        } else {
            format!("{}.*", first(name))
        });
    }
    let made: String = lines.into_iter().map(|l| l + "\n").collect();
    let path = common::root().join("dissector/src/wireshark-names.txt");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &made).expect("the list is written");
    }
    let listed = std::fs::read_to_string(&path).expect("the list");
    let all: HashSet<&str> = listed.lines().collect();
    let missing: Vec<&str> = made.lines().filter(|l| !all.contains(l)).take(20).collect();
    let spare: Vec<&str> = listed.lines().filter(|l| ours.contains(l)).take(20).collect();
    assert!(
        missing.is_empty() && spare.is_empty(),
        "missing {missing:?}, decoded by now {spare:?}: UPDATE=1 makes the list anew"
    );
}
