//! Captured sessions of Linux peers, done again against the built-in peer; and the probe.

use rdmascope_capture::{OpenOptions, open};
use rdmascope_replay::channel::{Channel, Config};
use rdmascope_replay::probe::{Target, Verdict, matching};
use rdmascope_replay::script::{Action, Pace, Plan, Planned, Recording, Wanted, run};
use rdmascope_replay::smb2::client::{Client, Options};
use rdmascope_replay::smb2::ntlm::Credentials;
use rdmascope_replay::smb2::server::{Share, serve};
use rdmascope_replay::smb2::storage::Storage;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

fn lines(to: u32) -> impl Iterator<Item = u8> {
    (1..=to).flat_map(|n| format!("{n}\n").into_bytes())
}

fn peer() -> SocketAddr {
    let files = [
        ("hello.txt".to_owned(), b"hello\n".to_vec()),
        ("lines.txt".to_owned(), lines(20_000).collect()),
        ("big.bin".to_owned(), lines(1_500_000).take(8 << 20).collect()),
    ];
    let share = Arc::new(Share { name: "share".into(), storage: Storage::memory(files), writable: false, nt_hash: None });
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let share = share.clone();
            std::thread::spawn(move || serve(stream.unwrap(), share, &Config::default()));
        }
    });
    address
}

#[test]
fn captured_sessions_are_done_again_on_another_transport() {
    let address = peer();
    for sample in ["smb-iwarp/smb-iwarp.pcap", "smb-roce/smb-roce.pcap"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../samples").join(sample);
        let recording = Recording::of(&mut open(&path, OpenOptions::new()).unwrap()).unwrap();
        let plan = Plan::of(&recording, recording.busiest().unwrap(), Wanted::default()).unwrap();
        assert!(plan.steps.iter().all(|s| !matches!(s.planned, Planned::Do(Action::Write { .. } | Action::Open { write: true, .. }))));
        let channel = Channel::connect(address, &Config::default(), Duration::from_secs(5)).unwrap();
        let mut client = Client::negotiate(channel, Options::default()).unwrap();
        client.session_setup(&Credentials::anonymous()).unwrap();
        client.tree_connect("127.0.0.1", "share").unwrap();
        let (mut same, mut hashed, mut differ) = (0, 0, Vec::new());
        run(&plan, &mut client, Pace::Asap, |step, outcome| {
            let Some(_) = outcome.status else { return };
            match &outcome.differs {
                Some(how) => differ.push(format!("{} {} {:?}: {how}", step.recorded.id, step.recorded.command, step.file())),
                None => same += 1,
            }
            hashed += usize::from(step.recorded.sha256.is_some() && step.recorded.sha256 == outcome.sha256);
        })
        .unwrap();
        assert!(client.channel().lane().smbd().unwrap().breaches().is_empty());
        client.leave().unwrap();
        assert!(differ.is_empty(), "{sample}: {same} the same, but {differ:#?}");
        assert!(same > 40 && hashed >= 4, "{sample}: {same} {hashed}");
    }
}

#[test]
fn the_built_in_peer_passes_the_quick_cases_of_the_probe() {
    let target = Target { address: peer(), config: Config::default(), settle: Duration::ZERO };
    for case in matching("").into_iter().filter(|c| !c.name.contains("NegotiationTimer")) {
        let (verdict, wire) = case.run(&target).unwrap();
        assert_eq!(verdict, Verdict::Pass, "{}", case.name);
        assert!(wire.len() > 100, "{}", case.name);
    }
}
