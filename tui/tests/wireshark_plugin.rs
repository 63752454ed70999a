//! The Lua plugin in real Wiresharks: frame by frame it has the same results as we do, and Wireshark's own correct
//! results stay. Runs in the installed tshark, and in the newest one of `interop/newest-tshark`, in one pass and in
//! two. Without tshark, or without the newest one, the missing tests are named on stderr; with `CI` set that is a
//! failure. `RDMASCOPE_CAPTURES=FOLDER` uses the captures of a folder in place of the samples.

use rdmascope_dissector::wire::ib::icrc::{Cover, invariant};
use rdmascope_plugins::wireshark;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Fields that must be equal in every frame, and findings.
const FIELDS: [&str; 45] = [
    "frame.number",
    "rdmascope.connection",
    "rdmascope.credits.client",
    "rdmascope.credits.server",
    "rdmascope.stall",
    "rdmascope.exchange",
    "rdmascope.exchange.rdma_bytes",
    "rdmascope.exchange.request",
    "rdmascope.exchange.time",
    "rdmascope.exchange.command",
    "rdmascope.retransmission.of",
    "rdmascope.key.state",
    "rdmascope.mirror",
    "rdmascope.mirror.session",
    "rdmascope.mirror.truncated",
    "rdmascope.damaged",
    "rdmascope.early",
    "rdmascope.retransmission",
    "rdmascope.exchange.file",
    "rdmascope.icrc.calculated",
    "rdmascope.icrc.status",
    "rdmascope.reduced",
    "rdmascope.reduced.chunk",
    "rdmascope.reduced.handle",
    "rdmascope.reduced.length",
    "rdmascope.reduced.offset",
    "rdmascope.reduced.position",
    "rdmascope.rpc.procedure",
    "rdmascope.send.fragment",
    "rdmascope.send.fragment.count",
    "rdmascope.send.reassembled.length",
    "rdmascope.send.reassembled_in",
    "rdmascope.vcrc.status",
    "rdmascope.xdr.count",
    "rdmascope.xdr.undecoded",
    "rdmascope.finding.id",
    "rdmascope.finding.severity",
    "rdmascope.finding.by",
    "rdmascope.finding.certainty",
    "rdmascope.finding.text",
    "rdmascope.finding.section",
    "smb_direct",
    "smb2",
    "rdmascope.smb2.rdma_transform.channel",
    "iwarp_mpa.enhanced.ird",
];
const FINDINGS: usize = 35;

/// Layers of which the plugin loses no frame that we have: ours are in Wireshark's frames, too.
const LAYERS: usize = 41;

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn rdmascope() -> Command {
    Command::new(env!("CARGO_BIN_EXE_rdmascope"))
}

fn samples() -> Vec<PathBuf> {
    let mut found = Vec::new();
    // captures of one's own: RDMASCOPE_CAPTURES=FOLDER
    if let Some(folder) = std::env::var_os("RDMASCOPE_CAPTURES") {
        let files = fs::read_dir(folder).unwrap().flatten().map(|f| f.path());
        found.extend(files.filter(|f| f.extension().is_some_and(|e| e == "pcap" || e == "pcapng")));
        found.sort();
        return found;
    }
    for folder in fs::read_dir(workspace().join("samples")).unwrap().flatten().filter(|f| f.path().is_dir()) {
        found.extend(
            fs::read_dir(folder.path())
                .unwrap()
                .flatten()
                .map(|f| f.path())
                .filter(|f| f.extension().is_some_and(|e| e == "pcap")),
        );
    }
    found.sort();
    assert!(found.len() > 30, "{} samples", found.len());
    found
}

/// A tshark, by the arguments before its own.
#[derive(Clone)]
struct Tshark {
    name: &'static str,
    program: PathBuf,
    two_passes: bool,
}

impl Tshark {
    fn output(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(&self.program);
        if self.two_passes {
            command.arg("-2");
        }
        let output = command.args(arguments).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {errors}", self.name);
        assert!(!errors.contains("Lua Error") && !errors.contains("lua:"), "{}: {errors}", self.name);
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

fn missing(what: &str) {
    assert!(std::env::var_os("CI").is_none(), "{what}");
    eprintln!("NOT TESTED: {what}");
}

fn tsharks() -> Vec<Tshark> {
    let mut found = Vec::new();
    let both = |name: [&'static str; 2], program: PathBuf| {
        [false, true].map(|two_passes| Tshark {
            name: name[usize::from(two_passes)],
            program: program.clone(),
            two_passes,
        })
    };
    if Command::new("tshark").arg("--version").output().is_ok_and(|o| o.status.success()) {
        found.extend(both(["tshark", "tshark -2"], "tshark".into()));
    } else {
        missing("tshark is not installed");
    }
    let newest = workspace().join("interop/newest-tshark");
    if Command::new(&newest).arg("--ready").status().is_ok_and(|s| s.success()) {
        found.extend(both(["newest tshark", "newest tshark -2"], newest));
    } else {
        missing("the newest tshark is not there: interop/newest-tshark --get");
    }
    found
}

/// The plugin, in a folder that everybody may read: the newest tshark does not run as root.
fn plugin() -> (tempfile::TempDir, String) {
    let folder = tempfile::Builder::new().prefix("rdmascope").tempdir_in("/tmp").unwrap();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let path = folder.path().join("rdmascope.lua");
    assert!(rdmascope().args(["export", "wireshark", "-o"]).arg(&path).output().unwrap().status.success());
    // the one in the target folder not everybody may read
    let engine = wireshark::engine_of(Path::new(env!("CARGO_BIN_EXE_rdmascope")))
        .expect("cargo builds the engine with these tests");
    fs::copy(engine, folder.path().join(wireshark::engine_file())).unwrap();
    let script = format!("lua_script:{}", path.display());
    (folder, script)
}

/// Captures of frames that were cut, and of frames that are in no sample: pause frames, packets shorter than their
/// padding.
fn made(folder: &Path) -> Vec<PathBuf> {
    let mut made = Vec::new();
    // complete frames: a file's header and its records
    let mut rewritten = |sample: &str, name: &str, change: &dyn Fn(&[u8], u32) -> Vec<u8>, is_cut: bool| {
        let whole = fs::read(workspace().join("samples").join(sample).join(sample).with_extension("pcap")).unwrap();
        let (mut out, mut at, mut number) = (whole[..24].to_vec(), 24, 0);
        while at < whole.len() {
            let captured = u32::from_le_bytes(whole[at + 8..at + 12].try_into().unwrap()) as usize;
            number += 1;
            let frame = change(&whole[at + 16..at + 16 + captured], number);
            let wire = if is_cut { captured } else { frame.len() };
            out.extend(
                [&whole[at..at + 8], &(frame.len() as u32).to_le_bytes(), &(wire as u32).to_le_bytes(), &frame]
                    .concat(),
            );
            at += 16 + captured;
        }
        made.push(folder.join(name));
        fs::write(made.last().unwrap(), out).unwrap();
    };
    for (sample, keep) in
        ["smb-roce", "smb-iwarp", "nfs-roce-v3"].into_iter().flat_map(|s| [(s, 70), (s, 90), (s, 120), (s, 300)])
    {
        // if segments with several FPDUs are cut, framing is not found again in the same frame
        if sample != "smb-iwarp" || keep < 100 {
            rewritten(
                sample,
                &format!("{sample}-{keep}.pcap"),
                &|frame, _| frame[..frame.len().min(keep)].to_vec(),
                true,
            );
        }
    }
    // by a mirroring switch: odd frames in session 17, even ones in session 18; the last one cuts the frames without
    // saying so
    for (name, protocol, keep) in [
        ("erspan1", 47, 9000),
        ("erspan2", 47, 9000),
        ("erspan3", 47, 9000),
        ("gre", 47, 9000),
        ("vxlan", 17, 9000),
        ("geneve", 17, 9000),
        ("erspan2", 47, 150),
    ] {
        let wrapped = |frame: &[u8], number: u32| {
            let inner = &frame[..frame.len().min(keep)];
            let session = 18 - (number % 2) as u8;
            let udp = |port: u16, rest: [u8; 8]| {
                let length = (16 + inner.len() as u16).to_be_bytes();
                [&[0xc3, 0x50][..], &port.to_be_bytes(), &length, &[0, 0], &rest].concat()
            };
            let head = match name {
                "erspan1" => vec![0, 0, 0x88, 0xbe],
                "erspan2" => vec![0x10, 0, 0x88, 0xbe, 0, 0, 0, 1, 0x10, 0, 0, session, 0, 0, 0, 0],
                "erspan3" => vec![0x10, 0, 0x22, 0xeb, 0, 0, 0, 1, 0x20, 0, 0, session, 0, 0, 0, 0, 0, 0, 0, 0],
                "gre" => vec![0x20, 0, 0x65, 0x58, 0, 0, 0, session],
                "vxlan" => udp(4789, [8, 0, 0, 0, 0, 0, session, 0]),
                _ => udp(6081, [0, 0, 0x65, 0x58, 0, 0, session, 0]),
            };
            let length = (20 + head.len() + inner.len()) as u16;
            let mut outer = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
            outer.extend(length.to_be_bytes());
            outer.extend([0, 0, 0, 0, 64, protocol, 0, 0, 198, 51, 100, 1, 198, 51, 100, 2]);
            [&outer[..], &head, inner].concat()
        };
        rewritten("smb-roce", &format!("{name}-{keep}.pcap"), &wrapped, false);
    }
    // randomly changed bytes
    for (sample, seed) in ["smb-roce", "smb-iwarp", "nfs-roce-v3"].into_iter().flat_map(|s| [(s, 1), (s, 2)]) {
        let mutated = |frame: &[u8], number: u32| {
            let mut frame = frame.to_vec();
            let mut random = (u64::from(number) << 8 | seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            for _ in 0..number % 4 {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                // the addresses stay, or nothing would be found
                let at = 34 + (random % 120) as usize;
                if let Some(byte) = frame.get_mut(at) {
                    *byte = (random >> 32) as u8;
                }
            }
            frame
        };
        rewritten(sample, &format!("{sample}-mutated-{seed}.pcap"), &mutated, false);
    }
    let ethernet = |kind: u16, body: &[u8]| {
        let mut frame = [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1][..], &kind.to_be_bytes(), body].concat();
        frame.resize(frame.len().max(60), 0);
        frame
    };
    // a server that says nothing any more, while something else goes on
    let silent = |frame: &[u8], number: u32| if number > 68 { ethernet(0x88cc, &[]) } else { frame.to_vec() };
    rewritten("smb-roce", "no-reply.pcap", &silent, false);
    // undamaged, but shorter than its padding
    let roce = |psn: u8, pad: u8, payload: usize| {
        let mut body =
            vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0xc0, 0, 0x12, 0xb7, 0, 0, 0, 0];
        body.extend([4, 0x40 | pad << 4, 0xff, 0xff, 0, 0, 0, 0x11, 0, 0, 0, psn]);
        body.resize(body.len() + payload, 0);
        let length = body.len() as u8 + 4;
        (body[3], body[25]) = (length, length - 20);
        let icrc = invariant(Cover::Ipv4, &body).unwrap();
        body.extend(icrc.to_le_bytes());
        ethernet(0x0800, &body)
    };
    let frames = [
        ethernet(0x8808, &[1, 1, 0, 8, 0, 0, 0, 0, 0, 0, 1, 0xf4]),
        ethernet(0x8808, &[0, 1, 0, 100]),
        ethernet(0x8808, &[0, 1, 0, 0]),
        roce(1, 3, 2),
        roce(2, 0, 0),
        roce(3, 3, 0),
    ];
    let mut out =
        [&0xa1b2_c3d4_u32.to_le_bytes()[..], &[2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 1, 0, 0, 0]]
            .concat();
    for (n, frame) in frames.iter().enumerate() {
        let length = (frame.len() as u32).to_le_bytes();
        out.extend([&1u32.to_le_bytes()[..], &(n as u32 * 1000).to_le_bytes(), &length, &length, frame].concat());
    }
    made.push(folder.join("odd.pcap"));
    fs::write(made.last().unwrap(), out).unwrap();
    #[cfg(unix)]
    for path in &made {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
    }
    made
}

fn rows(text: &str) -> Vec<Vec<String>> {
    // newer versions print booleans as words, and escape backslashes
    let value = |v: &str| match v {
        "True" => "1".to_owned(),
        "False" => "0".to_owned(),
        _ => v.replace("\\\\", "\\"),
    };
    text.lines()
        .map(|l| l.split('\t').map(value).chain(std::iter::repeat(String::new())).take(FIELDS.len()).collect())
        .collect()
}

/// Rule, severity, certainty and blame.
type Found = [String; 4];

/// Findings of a row.
fn findings(row: &[String]) -> BTreeSet<Found> {
    let list = |n: usize| row[FINDINGS + n].split(',').map(str::to_owned).collect::<Vec<_>>();
    let (ids, severities, by, certainty) = (list(0), list(1), list(2), list(3));
    let all = ids.into_iter().zip(severities).zip(certainty).zip(by).map(|(((a, b), c), d)| [a, b, c, d]);
    all.filter(|f| !f[0].is_empty()).collect()
}

/// The first frame of a finding, its rule, and its text.
type Sentence = (u64, String, String);

/// Output of `rdmascope analyze`: frames and findings, and the sentence of the first frame of each.
fn analyzed(path: &str) -> (BTreeMap<u64, BTreeSet<Found>>, Vec<Sentence>) {
    let output = rdmascope().args(["analyze", path, "--format", "json"]).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{path}: {e}"));
    let (mut frames, mut texts) = (BTreeMap::<u64, BTreeSet<Found>>::new(), Vec::new());
    for finding in report["findings"].as_array().unwrap() {
        assert_eq!(finding["frames_omitted"], 0, "{path}");
        let word = |key: &str| finding[key].as_str().unwrap_or("unknown").to_owned();
        for frame in finding["frames"].as_array().unwrap() {
            let row = ["id", "severity", "certainty", "by"].map(word);
            frames.entry(frame.as_u64().unwrap()).or_default().insert(row);
        }
        texts.push((finding["frame"].as_u64().unwrap(), word("id"), word("text")));
    }
    (frames, texts)
}

/// Result of a comparison.
#[derive(Default)]
struct Compared {
    values: usize,
    sentences: usize,
    seen: BTreeSet<String>,
    differ: Vec<String>,
}

/// One capture in each tshark; `is_whole`: no frame in it was cut or changed.
fn compare(path: &str, is_whole: bool, script: &str, tsharks: &[Tshark]) -> Compared {
    let fields: Vec<&str> = ["-T", "fields"].into_iter().chain(FIELDS.iter().flat_map(|f| ["-e", f])).collect();
    let output = rdmascope().args(["dissect", path]).args(&fields).output().unwrap();
    let ours = rows(&String::from_utf8(output.stdout).unwrap());
    let (report, texts) = analyzed(path);
    let Compared { mut values, mut sentences, mut seen, mut differ } = Compared::default();
    for tshark in tsharks {
        let arguments: Vec<&str> = ["-X", script, "-r", path].into_iter().chain(fields.iter().copied()).collect();
        let theirs = rows(&tshark.output(&arguments));
        assert_eq!(ours.len(), theirs.len(), "{path} in {}", tshark.name);
        for (a, b) in ours.iter().zip(&theirs) {
            let place = format!("{path} frame {} in {}", a[0], tshark.name);
            if a[..FINDINGS] != b[..FINDINGS] {
                differ.push(format!("{place}: {:?}, not {:?}", &b[..FINDINGS], &a[..FINDINGS]));
            }
            values += a[1..FINDINGS].iter().filter(|v| !v.is_empty()).count();
            let number: u64 = a[0].parse().unwrap();
            if tshark.two_passes {
                // the state at the end
                let expected = report.get(&number).cloned().unwrap_or_default();
                if findings(b) != expected {
                    differ.push(format!("{place}: {:?}, not {expected:?}", findings(b)));
                }
                // the report counts failed requests over the connection
                let is_counted = |id: &str| matches!(id, "SMB2-ERROR" | "RPC-ERROR");
                for (_, id, text) in texts.iter().filter(|(first, id, _)| *first == number && !is_counted(id)) {
                    // the plugin's sentence lacks the subject, and the words that make it a sentence
                    let side = text.strip_prefix("One of the two sides ");
                    let side = side
                        .or_else(|| text.strip_prefix("The ").and_then(|t| t.split_once(") ")).map(|(_, rest)| rest));
                    let said = side.unwrap_or(&text[1..]).trim_end_matches('.');
                    if !b[FINDINGS + 4].contains(said) {
                        differ.push(format!("{place}: {id} says {:?}, not {text:?}", b[FINDINGS + 4]));
                    }
                    sentences += 1;
                }
            } else if a[FINDINGS..LAYERS] != b[FINDINGS..LAYERS] {
                differ.push(format!("{place}: {:?}, not {:?}", &b[FINDINGS..LAYERS], &a[FINDINGS..LAYERS]));
            }
            // for incomplete messages Wireshark shows fewer fields
            for layer in if is_whole { LAYERS } else { FIELDS.len() }..FIELDS.len() {
                if !a[layer].is_empty() && b[layer].is_empty() {
                    differ.push(format!("{place}: no {}", FIELDS[layer]));
                }
            }
            seen.extend(findings(b).into_iter().map(|f| f[0].clone()));
        }
    }
    Compared { values, sentences, seen, differ }
}

/// Runs `job` for each capture, with as many threads as there are processors; the results are in the captures' order.
fn each<T: Send>(captures: &[PathBuf], job: impl Fn(usize, &Path) -> T + Sync) -> Vec<T> {
    let next = std::sync::atomic::AtomicUsize::new(0);
    let workers = std::thread::available_parallelism().map_or(1, |n| n.get());
    let mut done: Vec<(usize, T)> = std::thread::scope(|scope| {
        let work = || {
            let mut done = Vec::new();
            loop {
                let n = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                let Some(path) = captures.get(n) else { return done };
                done.push((n, job(n, path)));
            }
        };
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|w| w.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    done.sort_by_key(|(n, _)| *n);
    done.into_iter().map(|(_, result)| result).collect()
}

#[test]
fn the_plugin_says_of_every_frame_what_we_say() {
    let (folder, script) = plugin();
    let tsharks = tsharks();
    let mut all = samples();
    let whole = all.len();
    all.extend(made(folder.path()));
    let mut sum = Compared::default();
    for compared in each(&all, |n, path| compare(path.to_str().unwrap(), n < whole, &script, &tsharks)) {
        sum.values += compared.values;
        sum.sentences += compared.sentences;
        sum.seen.extend(compared.seen);
        sum.differ.extend(compared.differ);
    }
    let Compared { values, sentences, seen, differ } = sum;
    assert!(differ.is_empty(), "{} differ:\n{}", differ.len(), differ[..differ.len().min(200)].join("\n"));
    if !tsharks.is_empty() && std::env::var_os("RDMASCOPE_CAPTURES").is_none() {
        // for unusual packets, for whole connections, and for missing replies
        let odd = ["CAPTURE-CUT", "RC-PFC", "BUG-CVE-2026-46043", "SMB2-UNANSWERED", "RC-RETRANSMIT", "RDMA-KEY-LEAK"];
        assert!(odd.iter().all(|id| seen.contains(*id)), "{seen:?}");
        assert!(
            values > 20_000 && sentences > 500 && seen.len() > 50,
            "{values} values, {sentences} sentences, {} rules",
            seen.len()
        );
    }
}

/// Answers of sharkd to a series of requests. It keeps its captures open, as the window does.
#[cfg(unix)]
fn sharkd(program: &Path, before: &[&str], home: &Path, requests: &str) -> Vec<Value> {
    use std::io::Write;
    use std::os::unix::fs::MetadataExt;
    use std::process::Stdio;
    // Wireshark loads no Lua for root; the script of the newest one handles that
    let is_root = fs::metadata("/proc/self").is_ok_and(|m| m.uid() == 0) && before.is_empty();
    let mut command = Command::new(if is_root { Path::new("setpriv") } else { program });
    if is_root {
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(program);
    }
    command.args(before).arg("-").env("WIRESHARK_CONFIG_DIR", home);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let text = requests.to_owned();
    let writer = std::thread::spawn(move || input.write_all(text.as_bytes()));
    let output = child.wait_with_output().unwrap();
    let _ = writer.join();
    String::from_utf8_lossy(&output.stdout).lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// The filters of our fields in a tree of sharkd's.
#[cfg(unix)]
fn filters_of(tree: &Value, out: &mut Vec<String>) {
    for node in tree.as_array().into_iter().flatten() {
        out.extend(node["f"].as_str().filter(|f| f.starts_with("rdmascope.")).map(str::to_owned));
        filters_of(&node["n"], out);
    }
}

#[cfg(unix)]
#[test]
fn frames_asked_for_in_any_order_of_one_file_after_another_say_what_the_report_says() {
    let (folder, _) = plugin();
    let plugins = folder.path().join("plugins");
    fs::create_dir(&plugins).unwrap();
    for name in ["rdmascope.lua".to_owned(), wireshark::engine_file()] {
        fs::rename(folder.path().join(&name), plugins.join(&name)).unwrap();
    }
    let newest = workspace().join("interop/newest-tshark");
    let mut found: Vec<(&Path, &[&str])> = Vec::new();
    match Command::new("sharkd").arg("-h").output().is_ok() {
        true => found.push((Path::new("sharkd"), &[])),
        false => missing("sharkd is not installed"),
    }
    match Command::new(&newest).args(["--sharkd", "--ready"]).status().is_ok_and(|s| s.success()) {
        true => found.push((&newest, &["--sharkd"])),
        false => missing("the newest sharkd is not there"),
    }
    // the first file twice: a window loads it again on reload
    let files = [
        "smb-roce-loss/smb-roce-loss.pcap",
        "probes/c1_overrun.pcap",
        "smb-iwarp/smb-iwarp.pcap",
        "smb-roce-loss/smb-roce-loss.pcap",
    ];
    let paths = files.map(|f| workspace().join("samples").join(f).canonicalize().unwrap());
    let (mut requests, mut expected) = (String::new(), Vec::new());
    for path in &paths {
        let path = path.to_str().unwrap();
        let request =
            serde_json::json!({"jsonrpc": "2.0", "id": expected.len() + 1, "method": "load", "params": {"file": path}});
        requests += &format!("{request}\n");
        expected.push((path, 0, BTreeSet::new()));
        let (report, _) = analyzed(path);
        // backwards, then forwards
        let numbers: Vec<u64> = report.keys().copied().take(40).collect();
        for number in numbers.iter().rev().chain(&numbers) {
            let id = expected.len() + 1;
            let request = serde_json::json!({"jsonrpc": "2.0", "id": id, "method": "frame", "params": {"frame": number, "proto": true}});
            requests += &format!("{request}\n");
            let ids: BTreeSet<String> =
                report[number].iter().map(|f| format!("rdmascope.finding.id == \"{}\"", f[0])).collect();
            expected.push((path, *number, ids));
        }
    }
    for (program, before) in found {
        let answers = sharkd(program, before, folder.path(), &requests);
        assert_eq!(answers.len(), expected.len(), "{}", program.display());
        let mut said: BTreeMap<(&str, u64), Vec<String>> = BTreeMap::new();
        for (answer, (path, number, ids)) in answers.iter().zip(&expected).filter(|(_, (_, number, _))| *number > 0) {
            let mut all = Vec::new();
            filters_of(&answer["result"]["tree"], &mut all);
            let place = format!("{path} frame {number} in {}", program.display());
            let found: BTreeSet<String> =
                all.iter().filter(|f| f.starts_with("rdmascope.finding.id ")).cloned().collect();
            assert_eq!(found, *ids, "{place}");
            let before = said.entry((path, *number)).or_insert_with(|| all.clone());
            assert_eq!(*before, all, "{place} says something else when it is asked for again");
        }
        assert!(said.len() > 50, "{} frames", said.len());
    }
}

#[test]
fn keys_are_handed_to_the_engine_and_what_is_wrong_with_them_is_reported_once() {
    let (folder, script) = plugin();
    let sample = workspace().join("samples/smb-tcp-seal");
    let path = sample.join("smb-tcp-seal.pcap");
    let keys = sample.join("keys.txt");
    let bad = folder.path().join("bad.txt");
    fs::write(&bad, "nonsense\n").unwrap();
    let fields =
        ["-T", "fields", "-e", "frame.number", "-e", "rdmascope.exchange.command", "-e", "rdmascope.exchange.time"];
    let dissect = |more: &[&str]| {
        let output = rdmascope().arg("dissect").arg(&path).args(more).args(fields).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let (closed, opened) = (dissect(&[]), dissect(&["--keys", keys.to_str().unwrap()]));
    assert_ne!(closed, opened, "the sample shows what keys are good for");
    for tshark in tsharks().into_iter().filter(|t| !t.two_passes) {
        for (file, expected, said) in [(&keys, &opened, 0), (&bad, &closed, 1)] {
            let option = format!("rdmascope.keys:{}", file.display());
            let mut command = Command::new(&tshark.program);
            let output = command
                .args(["-X", &script, "-o", &option, "-r", path.to_str().unwrap()])
                .args(fields)
                .output()
                .unwrap();
            let errors = String::from_utf8_lossy(&output.stderr);
            assert_eq!(errors.matches("Keys are not used").count(), said, "{}: {errors}", tshark.name);
            assert!(!errors.contains("nonsense"), "{}: what stands in the file is not told: {errors}", tshark.name);
            assert_eq!(String::from_utf8_lossy(&output.stdout), *expected, "{} with {option}", tshark.name);
        }
    }
}

/// Of SMB2_RDMA_TRANSFORM.
const TRANSFORM: [&str; 9] = [
    "rdmascope.smb2.rdma_transform.channel",
    "rdmascope.smb2.rdma_transform.descriptor_offset",
    "rdmascope.smb2.rdma_transform.descriptor_length",
    "rdmascope.smb2.rdma_transform.transform_count",
    "rdmascope.smb2.rdma_crypto_transform.type",
    "rdmascope.smb2.rdma_crypto_transform.signature_length",
    "rdmascope.smb2.rdma_crypto_transform.signature",
    "rdmascope.smb2.rdma_crypto_transform.nonce",
    "smb2.buffer_descriptor.token",
];

/// Builds a library that answers like an engine of another version, if there is a C compiler.
fn engine_of_another_version(path: &Path) -> bool {
    if Command::new("cc").arg("--version").output().is_err() {
        missing("cc is not installed");
        return false;
    }
    let source = path.with_extension("c");
    let code = "#include <stddef.h>\nconst char *lua_pushlstring(void *, const char *, size_t);\n\
                int luaopen_rdmascope_engine(void *lua) { lua_pushlstring(lua, \"0.0.0-other\", 11); return 1; }\n";
    fs::write(&source, code).unwrap();
    let built = Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([path, &source]).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    true
}

#[test]
fn without_its_engine_the_plugin_says_so_once_and_still_decodes_what_needs_no_memory() {
    let (folder, script) = plugin();
    let (engine, lua) = (folder.path().join(wireshark::engine_file()), folder.path().join("rdmascope.lua"));
    // neither beside it nor at the path from when the plugin was made
    let text: String = fs::read_to_string(&lua)
        .unwrap()
        .lines()
        .filter(|l| !l.starts_with("R.engine"))
        .map(|l| l.to_owned() + "\n")
        .collect();
    fs::write(&lua, text).unwrap();
    let of_this_version = folder.path().join("kept");
    fs::rename(&engine, &of_this_version).unwrap();
    let tsharks = tsharks();
    // the transform of the sample claims to be longer than its data: here it is set to 4 and 4 bytes
    let whole = folder.path().join("transform.pcap");
    let mut bytes = fs::read(workspace().join("samples/probes/t14_transform.pcap")).unwrap();
    let lengths = [1, 0, 16, 0, 11, 0, 0, 0];
    let at = bytes.windows(8).position(|window| window == lengths).unwrap();
    (bytes[at + 2], bytes[at + 4]) = (4, 4);
    fs::write(&whole, bytes).unwrap();
    for (what, why) in [
        ("nothing", "was not found"),
        ("no library", "rdmascope_engine"),
        ("another version", "is of version 0.0.0-other"),
    ] {
        let _ = fs::remove_file(&engine);
        match what {
            "nothing" => {}
            "no library" => fs::write(&engine, what).unwrap(),
            _ if !engine_of_another_version(&engine) => continue,
            _ => {}
        }
        for tshark in &tsharks {
            let run = |sample: &str, rest: &[&str]| {
                let path = workspace().join("samples").join(sample);
                let output = Command::new(&tshark.program)
                    .args(["-X", &script, "-r", path.to_str().unwrap()])
                    .args(rest)
                    .output()
                    .unwrap();
                let errors = String::from_utf8_lossy(&output.stderr);
                assert_eq!(
                    errors.matches("rdmascope: no analysis here").count(),
                    1,
                    "{} with {what}: {errors}",
                    tshark.name
                );
                assert!(errors.contains(why) && output.status.success(), "{} with {what}: {errors}", tshark.name);
                assert!(
                    !errors.contains("Lua Error") && !errors.contains("lua:"),
                    "{} with {what}: {errors}",
                    tshark.name
                );
                String::from_utf8_lossy(&output.stdout).into_owned()
            };
            // port 5445, port 445, congestion notifications
            let mpa = run("smb-iwarp/smb-iwarp.pcap", &["-Y", "iwarp_mpa"]).lines().count();
            assert!(mpa > 100, "{} with {what}: {mpa} frames of MPA", tshark.name);
            let lines = run("probes/i1_445.pcap", &["-T", "fields", "-e", "frame.protocols"]);
            assert!(lines.contains(":iwarp_mpa"), "{} with {what}: {lines}", tshark.name);
            let lines = run("probes/cnp.pcap", &[]);
            assert!(lines.contains("CNP: slow down QP="), "{} with {what}: {lines}", tshark.name);
            // transforms of RDMA data in READ and WRITE: the sample as it is, and with complete transforms
            let fields =
                ["-T", "fields", "-e", "frame.number"].into_iter().chain(TRANSFORM.iter().flat_map(|f| ["-e", f]));
            let fields: Vec<&str> = fields.collect();
            for path in [workspace().join("samples/probes/t14_transform.pcap"), whole.clone()] {
                let ours = rdmascope().arg("dissect").arg(&path).args(&fields).output().unwrap();
                let ours = String::from_utf8_lossy(&ours.stdout).into_owned();
                let theirs = run(path.to_str().unwrap(), &fields);
                assert_eq!(theirs, ours, "{} with {what}, {}", tshark.name, path.display());
                assert!(ours.contains("0x00000001"), "{ours}");
            }
        }
    }
    // the right one again, and a plugin that is named without its folder
    fs::rename(&of_this_version, &engine).unwrap();
    for tshark in &tsharks {
        let path = workspace().join("samples/probes/c1_overrun.pcap").canonicalize().unwrap();
        let mut command = Command::new(tshark.program.canonicalize().unwrap_or(tshark.program.clone()));
        command.current_dir(folder.path()).args(["-X", "lua_script:rdmascope.lua", "-r", path.to_str().unwrap()]);
        let output = command.args(["-T", "fields", "-e", "rdmascope.connection"]).output().unwrap();
        assert!(
            String::from_utf8_lossy(&output.stdout).contains('1'),
            "{}: {}",
            tshark.name,
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

#[test]
fn frames_that_the_plugin_decodes_are_found_by_a_filter() {
    let (_folder, script) = plugin();
    for tshark in tsharks() {
        for sample in
            ["probes/c1_overrun", "probes/t14_transform", "probes/t5_hdr", "probes/i2_nompa", "smb-iwarp/smb-iwarp"]
        {
            let path = workspace().join("samples").join(sample).with_extension("pcap");
            let path = path.to_str().unwrap();
            for filter in
                ["smb_direct", "smb2", "rdmascope.finding.severity == \"error\"", "rdmascope.credits.client < 3"]
            {
                let filtered = ["-Y", filter, "-T", "fields", "-e", "frame.number"];
                let numbers = |text: String| text.lines().map(str::to_owned).collect::<BTreeSet<_>>();
                let ours = numbers(
                    String::from_utf8(rdmascope().args(["dissect", path]).args(filtered).output().unwrap().stdout)
                        .unwrap(),
                );
                let arguments: Vec<&str> = ["-X", &script, "-r", path].into_iter().chain(filtered).collect();
                let theirs = numbers(tshark.output(&arguments));
                let lost: Vec<&String> = ours.difference(&theirs).collect();
                assert!(lost.is_empty(), "{path} in {}: {filter} does not find frames {lost:?}", tshark.name);
            }
            // the frames of the protocol do not depend on the printed fields
            let numbers = |text: &str| {
                text.lines().map(|l| l.split_whitespace().next().unwrap_or("").to_owned()).collect::<Vec<_>>()
            };
            let plain = numbers(&tshark.output(&["-X", &script, "-r", path, "-Y", "rdmascope"]));
            let ours = rdmascope()
                .args(["dissect", path, "-Y", "rdmascope", "-T", "fields", "-e", "frame.number"])
                .output()
                .unwrap();
            let ours = numbers(&String::from_utf8_lossy(&ours.stdout));
            assert!(!plain.is_empty() && ours.iter().all(|number| plain.contains(number)), "{path} in {}", tshark.name);
            for field in ["smb2.cmd", "rdmascope.stall"] {
                let filtered =
                    ["-X", &script, "-r", path, "-Y", "rdmascope", "-T", "fields", "-e", "frame.number", "-e", field];
                assert_eq!(numbers(&tshark.output(&filtered)), plain, "{path} in {} with {field}", tshark.name);
            }
        }
    }
}

/// Typical requests for our fields: each alone, several of one request, with one of Wireshark's.
const ASKED: [&[&str]; 5] = [
    &["rdmascope.exchange"],
    &["rdmascope.finding.id"],
    &["rdmascope.exchange.time", "rdmascope.connection", "rdmascope.credits.client", "rdmascope.exchange.request"],
    &["rdmascope.icrc.calculated", "rdmascope.mirror.session", "rdmascope.early"],
    &["rdmascope.stall", "rdmascope.exchange", "smb2.cmd"],
];

#[test]
fn a_field_says_the_same_alone_in_a_filter_and_among_all_others() {
    let (folder, script) = plugin();
    let mut captures: Vec<PathBuf> = ["smb-roce-loss/smb-roce-loss", "smb-iwarp/smb-iwarp", "probes/t14_transform"]
        .map(|sample| workspace().join("samples").join(sample).with_extension("pcap"))
        .to_vec();
    captures.extend(made(folder.path()).into_iter().filter(|path| path.to_str().unwrap().contains("erspan2-9000")));
    let (tsharks, all): (_, BTreeSet<&str>) = (tsharks(), ASKED.concat().into_iter().collect());
    let values = each(&captures, |_, path| {
        let path = path.to_str().unwrap();
        let mut values = 0;
        for tshark in &tsharks {
            let table = |fields: &[&str], more: &[&str]| -> Vec<Vec<String>> {
                let columns = ["frame.number"].iter().chain(fields).flat_map(|field| ["-e", field]);
                let arguments: Vec<&str> =
                    ["-X", &script, "-r", path, "-T", "fields"].into_iter().chain(columns).collect();
                let text = tshark.output(&[&arguments, more].concat());
                text.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect()
            };
            // with an option that the plugin does not know, it reports everything
            let names: Vec<&str> = all.iter().copied().collect();
            let whole = table(&names, &["--log-level=warning"]);
            for fields in ASKED {
                let place = format!("{path} in {}: {fields:?}", tshark.name);
                let columns: Vec<usize> =
                    fields.iter().map(|field| names.iter().position(|name| name == field).unwrap() + 1).collect();
                let expected: Vec<Vec<String>> = whole
                    .iter()
                    .map(|row| std::iter::once(0).chain(columns.iter().copied()).map(|n| row[n].clone()).collect())
                    .collect();
                assert_eq!(table(fields, &[]), expected, "{place}");
                values += expected.iter().flat_map(|row| &row[1..]).filter(|value| !value.is_empty()).count();
                // frames that have the first of them, as lines, and as fields of others
                let with: Vec<&str> =
                    expected.iter().filter(|row| !row[1].is_empty()).map(|row| row[0].as_str()).collect();
                let lines = tshark.output(&["-X", &script, "-r", path, "-Y", fields[0]]);
                let lines: Vec<&str> = lines.lines().map(|line| line.split_whitespace().next().unwrap()).collect();
                assert_eq!(lines, with, "{place}, as a filter");
                let rows = table(&["smb2.cmd"], &["-Y", fields[0]]);
                assert_eq!(
                    rows.iter().map(|row| row[0].as_str()).collect::<Vec<_>>(),
                    with,
                    "{place}, as a filter with a field"
                );
            }
        }
        values
    });
    assert!(tsharks.is_empty() || values.iter().all(|&n| n > 20), "{values:?}");
}

/// Frames of a capture, each with the head of its record; and the head of the file.
fn records(path: &Path) -> (Vec<u8>, Vec<Vec<u8>>) {
    let whole = fs::read(path).unwrap();
    let (mut at, mut frames) = (24, Vec::new());
    while at < whole.len() {
        let end = at + 16 + u32::from_le_bytes(whole[at + 8..at + 12].try_into().unwrap()) as usize;
        frames.push(whole[at..end].to_vec());
        at = end;
    }
    (whole[..24].to_vec(), frames)
}

/// A connection on port 5445 that is Artemis's, with its SYN or without: three segments before, four packets. Times are
/// `like` another frame's.
fn of_artemis(with_syn: bool, like: &[u8]) -> Vec<Vec<u8>> {
    let segment = |up: bool, seq: u32, flags: u8, payload: &[u8]| {
        let (a, b) = (50_000u16.to_be_bytes(), 5445u16.to_be_bytes());
        let mut frame = vec![
            2,
            0,
            0,
            0,
            0,
            1,
            2,
            0,
            0,
            0,
            0,
            2,
            8,
            0,
            0x45,
            0,
            0,
            40 + payload.len() as u8,
            0,
            1,
            0,
            0,
            64,
            6,
            0,
            0,
        ];
        frame.extend(if up { [10, 7, 0, 1, 10, 7, 0, 2] } else { [10, 7, 0, 2, 10, 7, 0, 1] });
        frame.extend(if up { [a, b] } else { [b, a] }.concat());
        frame.extend(
            [&seq.to_be_bytes()[..], &1u32.to_be_bytes(), &[0x50, flags, 0x20, 0, 0, 0, 0, 0], payload].concat(),
        );
        let length = (frame.len() as u32).to_le_bytes();
        [&like[..8], &length, &length, &frame].concat()
    };
    let begin = [segment(true, 0, 2, &[]), segment(false, 0, 0x12, &[]), segment(true, 1, 0x10, &[])];
    let packets = (0..4).map(|n| segment(true, 1 + 13 * n, 0x18, &[0, 0, 0, 9, 10, 0, 0, 0, 0, 0, 0, 0, n as u8]));
    begin.into_iter().filter(|_| with_syn).chain(packets).collect()
}

#[test]
fn what_is_not_mpa_on_port_5445_is_artemis_wherever_it_stands() {
    let (folder, script) = plugin();
    let (head, frames) = records(&workspace().join("samples/smb-iwarp/smb-iwarp.pcap"));
    let half = frames.len() / 2;
    for tshark in tsharks() {
        for (place, with_syn) in [(0, true), (half, true), (half, false), (frames.len(), true), (frames.len(), false)] {
            let (before, behind) = frames.split_at(place);
            let mixed = [
                std::slice::from_ref(&head),
                before,
                &of_artemis(with_syn, &frames[place.min(frames.len() - 1)]),
                behind,
            ]
            .concat()
            .concat();
            let path = folder.path().join("mixed.pcap");
            fs::write(&path, mixed).unwrap();
            let fields = ["-T", "fields", "-e", "tcp.port", "-e", "frame.protocols"];
            let text = tshark.output(&[&["-X", &script, "-r", path.to_str().unwrap()][..], &fields].concat());
            let here = format!(
                "{}, behind {place} frames, {}",
                tshark.name,
                if with_syn { "with SYN" } else { "without SYN" }
            );
            let artemis = text.lines().filter(|l| l.contains("50000") && l.ends_with(":artemis")).count();
            // without a SYN, the connection is known only after the first segment
            let missed = usize::from(!with_syn && !tshark.two_passes);
            assert_eq!(artemis, 4 - missed, "{here}: {text}");
            let mpa = text.lines().filter(|l| l.contains(":iwarp_mpa")).count();
            assert!(mpa > 500, "{here}: {mpa} frames of MPA");
        }
    }
}

/// Lines of the detail tree by frame.
fn trees(text: &str) -> BTreeMap<u64, BTreeSet<&str>> {
    let mut frames = BTreeMap::new();
    let mut number = 0;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("Frame ") {
            number = rest.split([':', ' ']).next().unwrap_or("").parse().unwrap();
        }
        frames.entry(number).or_insert_with(BTreeSet::new).insert(line.trim());
    }
    frames
}

/// Lines without information on the packet, or lines caused by Wireshark's choice of another protocol.
fn is_about_wireshark(line: &str) -> bool {
    [
        "[Protocols in frame",
        "NetBIOS Session",
        "Artemis",
        "Continuation data",
        "[Time since",
        "[Epoch Time",
        "Message Type",
        "Length:",
        "[Length:",
        "Data (",
        "Data:",
    ]
    .iter()
    .any(|w| line.starts_with(w))
}

#[test]
fn mpa_on_the_port_of_smb_is_mpa_in_every_frame() {
    let (_folder, script) = plugin();
    let path = workspace().join("samples/probes/i1_445.pcap");
    for tshark in tsharks() {
        let arguments = [
            "-X",
            &script,
            "-r",
            path.to_str().unwrap(),
            "-T",
            "fields",
            "-e",
            "frame.number",
            "-e",
            "frame.protocols",
        ];
        let text = tshark.output(&arguments);
        let others: Vec<&str> =
            text.lines().skip(3).filter(|l| !l.contains(":iwarp_mpa") || l.contains("nbss")).collect();
        assert!(text.lines().count() == 9 && others.is_empty(), "{}: {others:?}", tshark.name);
    }
}

#[test]
fn what_wireshark_had_right_stays() {
    let (_folder, script) = plugin();
    let (tsharks, mut captures) = (tsharks(), samples());
    captures.retain(|s| !s.to_str().unwrap().contains("iwarp") && !s.to_str().unwrap().contains("/i"));
    each(&captures, |_, sample| {
        for tshark in &tsharks {
            let path = sample.to_str().unwrap();
            let (stock, with) = (tshark.output(&["-r", path, "-V"]), tshark.output(&["-X", &script, "-r", path, "-V"]));
            let (stock, with) = (trees(&stock), trees(&with));
            assert_eq!(stock.len(), with.len(), "{path}");
            for (number, lines) in &stock {
                // if Wireshark took the first of several fragments for the request, the reply now refers to the last of
                // them
                let elsewhere = |line: &str| {
                    let begins = ["[Response to: ", "[Time from request: "].into_iter().find(|b| line.starts_with(b));
                    begins.is_some_and(|b| with[number].iter().any(|l| l.starts_with(b)))
                };
                let lost: Vec<_> = lines
                    .iter()
                    .filter(|l| !is_about_wireshark(l) && !with[number].contains(*l) && !elsewhere(l))
                    .collect();
                assert!(lost.is_empty(), "{path} frame {number} in {}: {lost:#?}", tshark.name);
            }
        }
    });
}
