//! Captured sessions of Linux peers, done again against the built-in peer; and the probe.

mod tap;

use rdmascope_analyzer::keys::Dialect;
use rdmascope_capture::{OpenOptions, open};
use rdmascope_dissector::wire::smb2::ioctl::ControlCode;
use rdmascope_dissector::wire::smb2::{FileId, NtStatus};
use rdmascope_replay::probe::{Case, Target, Verdict, matching};
use rdmascope_replay::script::{Action, Pace, Plan, Planned, Recording, Wanted, prepare, run};
use rdmascope_replay::smb2::Credentials;
use rdmascope_replay::smb2::client::{Client, Options, access, disposition};
use rdmascope_replay::smb2::server::{Share, Users};
use rdmascope_replay::smb2::storage::Storage;
use rdmascope_replay::stack::{Config, SmbDirect};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;
use tap::{analyze, kept, serving};

/// Time limit for anything that must happen, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn lines(to: u32) -> impl Iterator<Item = u8> {
    (1..=to).flat_map(|n| format!("{n}\n").into_bytes())
}

fn peer(writable: bool) -> SocketAddr {
    shared(writable, files())
}

fn files() -> Vec<(String, Vec<u8>)> {
    vec![
        ("hello.txt".to_owned(), b"hello\n".to_vec()),
        ("lines.txt".to_owned(), lines(20_000).collect()),
        ("big.bin".to_owned(), lines(1_500_000).take(8 << 20).collect()),
    ]
}

fn shared(writable: bool, files: Vec<(String, Vec<u8>)>) -> SocketAddr {
    serving(Share::new("share", Storage::memory(files), writable, Users::Guests))
}

/// A folder with the same files, shared to be written to.
fn folder() -> (tempfile::TempDir, SocketAddr) {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in files() {
        std::fs::write(folder.path().join(name), bytes).unwrap();
    }
    let storage = Storage::folder(folder.path()).unwrap();
    (folder, serving(Share::new("share", storage, true, Users::Guests)))
}

#[test]
fn captured_sessions_are_done_again_on_another_transport() {
    let address = peer(false);
    for sample in ["smb-iwarp/smb-iwarp.pcap", "smb-roce/smb-roce.pcap"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../samples").join(sample);
        let recording = Recording::of(&mut open(&path, OpenOptions::new()).unwrap()).unwrap();
        let plan = Plan::of(&recording, recording.busiest().unwrap(), Wanted::default()).unwrap();
        assert!(plan.steps.iter().all(|s| !matches!(
            s.planned,
            Planned::Do(Action::Write { .. } | Action::Open { disposition: 0 | 2.., .. })
        )));
        let channel = SmbDirect::connect(address, &Config::default(), PATIENCE).unwrap();
        let mut client = Client::negotiate(channel, Options::default()).unwrap();
        client.session_setup(&Credentials::Anonymous).unwrap();
        client.tree_connect("127.0.0.1", "share").unwrap();
        let (mut same, mut hashed, mut differ) = (0, 0, Vec::new());
        run(&plan, &mut client, Pace::Asap, |step, outcome| {
            let Some(_) = outcome.status else { return };
            match &outcome.differs {
                Some(how) => {
                    differ.push(format!("{} {} {:?}: {how}", step.recorded.id, step.recorded.command, step.file()))
                }
                None => same += 1,
            }
            hashed += usize::from(step.recorded.sha256.is_some() && step.recorded.sha256 == outcome.sha256);
        })
        .unwrap();
        assert!(client.channel().stack().smbd().unwrap().breaches().is_empty());
        client.leave().unwrap();
        assert!(differ.is_empty(), "{sample}: {same} the same, but {differ:#?}");
        assert!(same > 40 && hashed >= 4, "{sample}: {same} {hashed}");
    }
}

fn sample(name: &str) -> Recording {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../samples").join(name);
    Recording::of(&mut open(&path, OpenOptions::new()).unwrap()).unwrap()
}

fn client(address: SocketAddr, config: &Config, wire: Option<&Path>) -> Client {
    let config = Config { wire: wire.map(kept), ..config.clone() };
    let channel = SmbDirect::connect(address, &config, PATIENCE).unwrap();
    let mut client = Client::negotiate(channel, Options::default()).unwrap();
    client.session_setup(&Credentials::Anonymous).unwrap();
    client.tree_connect("127.0.0.1", "share").unwrap();
    client
}

/// A plan made of one READ of a sample: the file is opened at 0 ms, read once for each pair of `times` (begin and end
/// in ms), and closed in the end.
fn reads(recording: &Recording, times: &[(i64, i64)]) -> Plan {
    let whole = Plan::of(recording, recording.busiest().unwrap(), Wanted::default()).unwrap();
    let of = |command: &str| {
        let file = |s: &&rdmascope_replay::script::Step| {
            s.recorded.command == command && s.file() == Some("big.bin") && matches!(s.planned, Planned::Do(_))
        };
        whole.steps.iter().find(file).unwrap().clone()
    };
    let at = |mut step: rdmascope_replay::script::Step, from: i64, to: i64| {
        let end = step.recorded.reply_end.as_mut().unwrap();
        (step.recorded.request.time, end.time) = (from * 1_000_000, to * 1_000_000);
        step
    };
    let last = times.iter().map(|t| t.1).max().unwrap();
    let mut steps = vec![at(of("CREATE"), 0, 1)];
    steps.extend(times.iter().map(|(from, to)| at(of("READ"), *from, *to)));
    steps.push(at(of("CLOSE"), last + 1, last + 2));
    Plan { steps }
}

#[test]
fn concurrency_and_pace_are_those_of_the_recording() {
    let recording = sample("smb-iwarp/smb-iwarp.pcap");
    let address = peer(false);
    for (times, most) in [
        (&[(2, 9), (3, 9), (4, 9), (5, 10)][..], 4),
        (&[(2, 3), (3, 4), (4, 5), (5, 6)], 1),
        (&[(2, 5), (3, 4), (4, 9)], 2),
    ] {
        let plan = reads(&recording, times);
        let mut client = client(address, &Config::default(), None);
        let whole = run(&plan, &mut client, Pace::Asap, |_, outcome| assert_eq!(outcome.differs, None)).unwrap();
        assert_eq!((whole.most_recorded, whole.most_live), (most, most), "{times:?}");
        client.leave().unwrap();
    }
    let plan = reads(&recording, &[(100, 110), (200, 210)]);
    for (pace, least, most) in [(Pace::Times(1.0), 210, 2000), (Pace::Times(4.0), 52, 200)] {
        let mut client = client(address, &Config::default(), None);
        let whole = run(&plan, &mut client, pace, |_, outcome| assert_eq!(outcome.differs, None)).unwrap();
        assert!((least..most).contains(&(whole.live / 1_000_000)), "{pace:?} {whole:?}");
        client.leave().unwrap();
    }
}

#[test]
fn what_if_runs_are_clean_on_the_wire() {
    let recording = sample("smb-roce/smb-roce.pcap");
    let folder = tempfile::tempdir().unwrap();
    let address = peer(false);
    let mut few = Config::default();
    (few.smbd.send_credits, few.smbd.receive_credits, few.smbd.max_send_size) = (8, 8, 512);
    let mut small = Config::default();
    small.smbd.max_fragmented_size = 131_072;
    for (n, (config, no_rdma)) in [(&few, false), (&few, true), (&small, true)].into_iter().enumerate() {
        let wire = folder.path().join(format!("{n}.pcapng"));
        let plan = Plan::of(&recording, recording.busiest().unwrap(), Wanted { no_rdma, ..Wanted::default() }).unwrap();
        let mut client = client(address, config, Some(&wire));
        run(&plan, &mut client, Pace::Asap, |step, outcome| assert_eq!(outcome.differs, None, "{:?}", step.recorded))
            .unwrap();
        client.leave().unwrap();
        // requests that failed are in the recording, and few credits are the subject of this test
        let known = [
            "SMB2-ERROR",
            "SMB-PATH-INLINE",
            "SMBD-FRAG-COST",
            "SMBD-CREDIT-STALL",
            "SMBD-CREDIT-STARVED",
            "SMBD-NEG-REACH",
            "SMB2-SLOW",
        ];
        let tap = analyze(&wire, Default::default());
        assert_eq!(tap.report.connections.len(), 1);
        assert_eq!(tap.said_but(&known), [""; 0], "{n}");
    }
}

#[test]
fn what_the_recording_read_can_be_made_first() {
    let recording = sample("smb-iwarp/smb-iwarp.pcap");
    let plan = Plan::of(&recording, recording.busiest().unwrap(), Wanted::default()).unwrap();
    let mine = vec![("hello.txt".to_owned(), b"mine\n".to_vec())];
    let mut client = client(shared(true, mine), &Config::default(), None);
    let prepared = prepare(&plan, &recording, &mut client).unwrap();
    let made = |name: &str| prepared.iter().find(|p| p.file == name).unwrap_or_else(|| panic!("{name}: {prepared:#?}"));
    assert!(made("hello.txt").why_not.as_deref() == Some("STATUS_OBJECT_NAME_COLLISION"), "{prepared:?}");
    let big = made("big.bin");
    assert!(big.why_not.is_none() && big.length == Some(8 << 20) && big.known == 131_072, "{big:?}");
    let mut differ = Vec::new();
    run(&plan, &mut client, Pace::Asap, |step, outcome| {
        if outcome.differs.is_some() {
            differ.push(step.file().unwrap_or_default().to_owned());
        }
    })
    .unwrap();
    client.leave().unwrap();
    differ.dedup();
    assert_eq!(differ, ["hello.txt"], "a file that was there is left alone, and is another one");
}

#[test]
fn what_a_sample_set_and_asked_for_is_set_and_asked_for_again() {
    let recording = sample("smb-iwarp/smb-iwarp.pcap");
    let plan =
        |writes| Plan::of(&recording, recording.busiest().unwrap(), Wanted { writes, ..Wanted::default() }).unwrap();
    let count = |plan: &Plan, wanted: fn(&Action) -> bool| {
        plan.steps.iter().filter(|s| matches!(&s.planned, Planned::Do(a) if wanted(a))).count()
    };
    let sets = |a: &Action| matches!(a, Action::SetInfo { .. });
    let all_information = |a: &Action| matches!(a, Action::Info { info_type: 1, class: 18, .. });
    let interfaces = |a: &Action| matches!(a, Action::Control { code: ControlCode::QUERY_NETWORK_INTERFACE_INFO, .. });
    let (reading, writing) = (plan(false), plan(true));
    assert_eq!((count(&reading, sets), count(&reading, interfaces)), (0, 1));
    assert!(count(&writing, sets) >= 3 && count(&writing, all_information) > count(&reading, all_information));
    let (_kept, address) = folder();
    let mut client = client(address, &Config::default(), None);
    let (mut done, mut differ) = (0, Vec::new());
    run(&writing, &mut client, Pace::Asap, |step, outcome| {
        done += usize::from(step.recorded.command == "SET_INFO" && outcome.status == Some(NtStatus::SUCCESS));
        differ
            .extend(outcome.differs.as_ref().map(|how| format!("{} {:?}: {how}", step.recorded.command, step.file())));
    })
    .unwrap();
    client.leave().unwrap();
    assert!(done >= 3 && differ.is_empty(), "{done} {differ:#?}");
}

/// A session of our own, of which nothing is left out, recorded, and done again elsewhere: files end up as they did.
#[test]
fn names_ends_and_deletions_come_out_as_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let wire = folder.path().join("wire.pcapng");
    let old = Options { dialects: vec![Dialect::SMB_3_0_2], ..Options::default() };
    let connect = |address, wire: Option<&Path>| {
        let config = Config { wire: wire.map(kept), ..Config::default() };
        let channel = SmbDirect::connect(address, &config, PATIENCE).unwrap();
        let mut client = Client::negotiate(channel, old.clone()).unwrap();
        client.session_setup(&Credentials::Anonymous).unwrap();
        client.tree_connect("127.0.0.1", "share").unwrap();
        client
    };
    let (_kept, address) = self::folder();
    let mut client = connect(address, Some(&wire));
    let validate = client.negotiated();
    let output = client.ioctl(FileId::PREVIOUS, ControlCode::VALIDATE_NEGOTIATE_INFO.0, &validate, 24).unwrap();
    assert!(client.is_negotiated(&output));
    let all = access::READ | access::WRITE | access::DELETE;
    let file = client.create("a.txt", all, disposition::OPEN_IF, 0).unwrap().id;
    client.write_inline(file, 0, b"hello world").unwrap();
    client.set_info(file, 1, 20, &5u64.to_le_bytes()).unwrap();
    let ranges = client
        .ioctl(file, ControlCode::QUERY_ALLOCATED_RANGES.0, &[[0; 8], [0xff, 0, 0, 0, 0, 0, 0, 0]].concat(), 1024)
        .unwrap();
    assert_eq!(ranges, [[0u8; 8], 5u64.to_le_bytes()].concat());
    let name: Vec<u8> = "b.txt".encode_utf16().flat_map(u16::to_le_bytes).collect();
    client.set_info(file, 1, 10, &[&[0; 16][..], &10u32.to_le_bytes(), &name].concat()).unwrap();
    client.close(file).unwrap();
    let file = client.create("b.txt", access::READ, disposition::OPEN, 0).unwrap().id;
    assert_eq!(client.read_inline(file, 0, 100).unwrap().data, b"hello");
    client.close(file).unwrap();
    let file = client.create("c.txt", all, disposition::OPEN_IF, 0).unwrap().id;
    client.set_info(file, 1, 13, &[1]).unwrap();
    client.close(file).unwrap();
    client.leave().unwrap();

    let recording = Recording::of(&mut open(&wire, OpenOptions::new()).unwrap()).unwrap();
    let plan = Plan::of(&recording, 1, Wanted::default()).unwrap();
    let done: Vec<&str> =
        plan.steps.iter().filter(|s| matches!(s.planned, Planned::Do(_))).map(|s| s.recorded.command).collect();
    assert_eq!(done, ["IOCTL"], "all else is about files that were changed");
    let plan = Plan::of(&recording, 1, Wanted { writes: true, ..Wanted::default() }).unwrap();
    let (_kept, address) = self::folder();
    let mut client = connect(address, None);
    let (mut commands, mut differ) = (Vec::new(), Vec::new());
    run(&plan, &mut client, Pace::Asap, |step, outcome| {
        if outcome.status.is_some() {
            commands.push(step.recorded.command);
        }
        differ
            .extend(outcome.differs.as_ref().map(|how| format!("{} {:?}: {how}", step.recorded.command, step.file())));
    })
    .unwrap();
    assert!(differ.is_empty(), "{differ:#?}");
    let expected = "IOCTL CREATE WRITE SET_INFO IOCTL SET_INFO CLOSE CREATE READ CLOSE CREATE SET_INFO CLOSE";
    assert_eq!(commands.join(" "), expected);
    let file = client.create("b.txt", access::READ, disposition::OPEN, 0).unwrap().id;
    assert_eq!(client.read_inline(file, 0, 100).unwrap().data, b"hello");
    client.close(file).unwrap();
    for gone in ["a.txt", "c.txt"] {
        assert!(client.create(gone, access::READ, disposition::OPEN, 0).is_err(), "{gone}");
    }
    // 3.1.1 does not prove its negotiation in this way
    let mut newest = self::client(address, &Config::default(), None);
    let mut skipped = Vec::new();
    run(&plan, &mut newest, Pace::Asap, |_, outcome| skipped.extend(outcome.skipped)).unwrap();
    assert_eq!(skipped, ["dialect 3.1.1 proves its negotiation by itself"]);
}

#[test]
fn the_built_in_peer_passes_the_quick_cases_of_the_probe() {
    // a user has keys, which the cases of encryption and signing need
    let users = Users::Password(rdmascope_analyzer::keys::ntlm::nt_hash("secret"));
    let address = serving(Share::new("share", Storage::memory(files()), true, users));
    let target = Target { writes: true, who: Credentials::new("user", "secret"), ..Target::new(address) };
    let mut bad = Vec::new();
    // those of RoCEv2 are in the tests of that
    let quick = |c: &Case| !c.name.contains("NegotiationTimer") && !c.name.starts_with("Roce_") && !c.slow;
    for case in matching("").into_iter().filter(quick) {
        let (verdict, wire) = case.run(&target).unwrap();
        assert!(wire.len() > 100, "{}", case.name);
        if verdict != Verdict::Pass {
            bad.push(format!("{}: {verdict:?}", case.name));
        }
    }
    assert!(bad.is_empty(), "{bad:#?}");
    let nobody = Target { who: Credentials::Anonymous, ..Target::new(peer(true)) };
    let case = matching("Signing_ReadLargeFile_AES_GMAC")[0];
    assert_eq!(
        case.run(&nobody).unwrap().0,
        Verdict::NotApplicable("an anonymous session has no keys: name a user with --user".into())
    );
    let reader = Target { writes: false, share: "other".into(), ..target };
    for name in ["BVT_Smb2OverRdmaChannel_WriteLargeFile", "BVT_Smb2OverRdmaChannel_ReadLargeFile"] {
        assert!(matches!(matching(name)[0].run(&reader).unwrap().0, Verdict::NotApplicable(_)), "{name}");
    }
}

/// The files of a folder and their contents.
fn tree(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<(String, Vec<u8>)> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            (entry.as_ref().unwrap().file_name().into_string().unwrap(), std::fs::read(entry.unwrap().path()).unwrap())
        })
        .collect();
    files.sort();
    files
}

/// Handles by the recording's FileId, CreateOptions and CreateDisposition as recorded, compounds as compounds: the
/// share ends up as in the recording.
#[test]
fn a_replay_leaves_the_files_that_the_recording_left() {
    let wires = tempfile::tempdir().unwrap();
    let [wire, again] = ["wire.pcapng", "again.pcapng"].map(|name| wires.path().join(name));
    let (recorded, address) = folder();
    let mut client = client(address, &Config::default(), Some(&wire));
    let all = access::READ | access::WRITE | access::DELETE;
    // deleted when it is closed
    let file = client.create("t.tmp", all, 2, 0x1000).unwrap().id;
    client.write_inline(file, 0, b"temporary").unwrap();
    client.close(file).unwrap();
    // emptied, and written anew
    let file = client.create("lines.txt", all, disposition::OVERWRITE_IF, 0).unwrap().id;
    client.write_inline(file, 0, b"new").unwrap();
    client.close(file).unwrap();
    let file = client.create("made.txt", all, disposition::OPEN_IF, 0).unwrap().id;
    client.write_inline(file, 0, b"made").unwrap();
    // two handles of one folder, of which the one that was opened last is closed first
    let [one, other] = [0, 1].map(|_| client.create("", access::READ, disposition::OPEN, 1).unwrap().id);
    client.list(other, "*").unwrap();
    client.close(other).unwrap();
    assert_eq!(client.list(one, "*.txt").unwrap().len(), 3);
    client.close(one).unwrap();
    client.close(file).unwrap();
    // the requests with which cifs.ko opens a file
    client.begin_compound(true);
    let opened = client.start_create("hello.txt", access::READ, disposition::OPEN, 0).unwrap();
    let asked = client.start_query_info(FileId::PREVIOUS, 1, 5, 24).unwrap();
    let closed = client.start_close(FileId::PREVIOUS).unwrap();
    client.end_compound().unwrap();
    assert_eq!(client.finish_create(opened).unwrap().end_of_file, 6);
    assert!(client.finish_success(asked).is_ok() && client.finish_success(closed).is_ok());
    client.leave().unwrap();

    let recording = Recording::of(&mut open(&wire, OpenOptions::new()).unwrap()).unwrap();
    let plan = Plan::of(&recording, 1, Wanted { writes: true, ..Wanted::default() }).unwrap();
    let compounds = |plan: &Plan| {
        plan.steps.iter().filter(|s| s.compound.is_some()).map(|s| s.recorded.command).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(compounds(&plan), "CREATE QUERY_INFO CLOSE");
    let (live, address) = folder();
    let mut client = self::client(address, &Config::default(), Some(&again));
    let mut differ = Vec::new();
    run(&plan, &mut client, Pace::Asap, |step, outcome| {
        differ
            .extend(outcome.differs.as_ref().map(|how| format!("{} {:?}: {how}", step.recorded.command, step.file())));
    })
    .unwrap();
    client.leave().unwrap();
    assert!(differ.is_empty(), "{differ:#?}");
    assert_eq!(tree(live.path()), tree(recorded.path()));
    let second = Recording::of(&mut open(&again, OpenOptions::new()).unwrap()).unwrap();
    assert_eq!(
        compounds(&Plan::of(&second, 1, Wanted::default()).unwrap()),
        "CREATE QUERY_INFO CLOSE",
        "in one message again"
    );

    // without the right to change anything, nothing is made, emptied or deleted
    let reading = Plan::of(&recording, 1, Wanted::default()).unwrap();
    let (live, address) = folder();
    let mut client = self::client(address, &Config::default(), None);
    run(&reading, &mut client, Pace::Asap, |_, _| ()).unwrap();
    client.leave().unwrap();
    let before = tree(self::folder().0.path());
    assert_eq!(tree(live.path()), before);

    // only files that existed before the recording are made for it, with their original length
    let empty = tempfile::tempdir().unwrap();
    std::fs::write(empty.path().join("t.tmp"), "in the way").unwrap();
    let storage = Storage::folder(empty.path()).unwrap();
    let address = serving(Share::new("share", storage, true, Users::Guests));
    let mut client = self::client(address, &Config::default(), None);
    let prepared = prepare(&plan, &recording, &mut client).unwrap();
    let names: Vec<(&str, Option<u64>)> = prepared.iter().map(|p| (p.file.as_str(), p.length)).collect();
    assert_eq!(names, [("hello.txt", Some(6)), ("lines.txt", Some(0)), ("t.tmp", None)]);
    assert!(
        prepared[2].why_not.as_deref().is_some_and(|why| why.contains("did not during the recording")),
        "{prepared:?}"
    );
    client.leave().unwrap();
}
