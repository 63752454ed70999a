//! A session over a card, which is the stand-in of `capture/verbs/tests`: our client and our peer, with memory windows and without.
#![cfg(target_os = "linux")]

#[path = "../../capture/verbs/tests/common/mod.rs"]
mod common;

use rdmascope_dissector::wire::smb2::FileId;
use rdmascope_dissector::wire::smb2::ioctl::ControlCode;
use rdmascope_dissector::wire::smb2::rdma_channel::Channel as RdmaChannel;
use rdmascope_replay::channel::{Channel, Config, End, Event};
use rdmascope_replay::probe::{CASES, Target, Verdict};
use rdmascope_replay::smb2::Credentials;
use rdmascope_replay::smb2::client::{Client, Options, access, disposition};
use rdmascope_replay::smb2::server::{Share, Users, serve_card};
use rdmascope_replay::smb2::storage::Storage;
use rdmascope_replay::transport::Transport;
use rdmascope_verbs::{Ended, Listener, Verbs};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

const WITHIN: Duration = Duration::from_secs(10);

fn big() -> Vec<u8> {
    (1..=300_000u32).flat_map(|n| format!("{n}\n").into_bytes()).collect()
}

fn config() -> Option<(Verbs, Config)> {
    let verbs = Verbs::load_from(common::standin()?).unwrap();
    Some((verbs, Config { transport: Transport::Verbs(verbs), ..Config::default() }))
}

/// A peer that serves until the test ends.
fn peer(verbs: Verbs, config: &Config, host: &str) -> SocketAddr {
    let share = Arc::new(Share {
        name: "share".into(),
        storage: Storage::memory([("big.bin".to_owned(), big())]),
        writable: true,
        users: Users::Password(rdmascope_analyzer::keys::ntlm::nt_hash("secret")),
    });
    let mut listener = Listener::bind(verbs, format!("{host}:0").parse().unwrap()).unwrap();
    let address = listener.address();
    let config = config.clone();
    std::thread::spawn(move || {
        loop {
            let Some(request) = listener.next(WITHIN).unwrap() else { continue };
            let (share, config) = (share.clone(), config.clone());
            std::thread::spawn(move || serve_card(request, share, &config));
        }
    });
    address
}

#[test]
fn a_session_reads_and_writes_by_rdma() {
    let Some((verbs, config)) = config() else { return };
    for (host, windows) in [("127.0.0.1", true), ("127.0.0.2", false)] {
        let address = peer(verbs, &config, host);
        let channel = Channel::connect(address, &config, WITHIN).unwrap();
        assert!(channel.is_card());
        let mut client = Client::negotiate(channel, Options::default()).unwrap();
        client.session_setup(&Credentials::new("user", "secret")).unwrap();
        client.tree_connect(host, "share").unwrap();
        let file = client.create("big.bin", access::READ, disposition::OPEN, 0).unwrap();
        let length = file.end_of_file as u32;
        let read = client.read_rdma(file.id, 0, length, RdmaChannel::RDMA_V1_INVALIDATE).unwrap();
        assert!(read.data == big(), "{host}");
        // without windows the peer is not asked to, for a card would end the connection over it
        assert_eq!(read.invalidated, windows, "{host}");
        let read = client.read_rdma(file.id, 5, 100_000, RdmaChannel::RDMA_V1).unwrap();
        assert!(read.data == big()[5..100_005] && !read.invalidated, "{host}");
        assert!(client.read_inline(file.id, 7, 200_000).unwrap().data == big()[7..200_007], "{host}: in fragments");
        client.close(file.id).unwrap();
        let file = client.create("new.bin", access::READ | access::WRITE, disposition::OVERWRITE_IF, 0).unwrap();
        let data: Vec<u8> = (0..3_000_000u32).map(|n| (n / 3) as u8).collect();
        assert_eq!(client.write_rdma(file.id, 0, data.clone(), RdmaChannel::RDMA_V1_INVALIDATE).unwrap().0, 3_000_000);
        let back = client.read_rdma(file.id, 0, 3_000_000, RdmaChannel::RDMA_V1_INVALIDATE).unwrap().data;
        assert!(back == data, "{host}");
        client.close(file.id).unwrap();
        client.echo().unwrap();
        assert_eq!(client.ioctl(FileId::PREVIOUS, ControlCode::QUERY_NETWORK_INTERFACE_INFO.0, &[], 4096).unwrap(), [0; 0], "{host}");
        assert_eq!(client.channel().lane().smbd().unwrap().breaches(), [], "{host}");
        client.leave().unwrap();
    }
}

#[test]
fn what_a_card_sends_is_not_recorded() {
    let Some((verbs, config)) = config() else { return };
    let address = peer(verbs, &config, "127.0.0.1");
    let mut channel = Channel::connect(address, &config, WITHIN).unwrap();
    let e = channel.record(Box::new(Vec::new()), "wire").unwrap_err();
    assert!(e.to_string().contains("capture it on the wire"), "{e}");
}

#[test]
fn a_server_that_goes_away_ends_the_session() {
    let Some((verbs, config)) = config() else { return };
    let mut listener = Listener::bind(verbs, "127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.address();
    let other = config.clone();
    let server = std::thread::spawn(move || {
        let request = listener.next(WITHIN).unwrap().unwrap();
        let mut channel = Channel::accept_card(request, &other, WITHIN).unwrap();
        while channel.poll(WITHIN).unwrap() != Some(Event::Established) {}
    });
    let mut channel = Channel::connect(address, &config, WITHIN).unwrap();
    let mut last = None;
    while let Some(event) = channel.poll(WITHIN).unwrap() {
        last = Some(event);
        if matches!(last, Some(Event::Closed(_))) {
            break;
        }
    }
    assert_eq!(last, Some(Event::Closed(End::Card(Ended::ByPeer))));
    server.join().unwrap();
}

/// What a peer can do wrong above the segments it does over a card too, and the client has a clear verdict in time.
#[test]
fn faults_above_the_transport_work_over_a_card() {
    let Some((verbs, config)) = config() else { return };
    let verdicts = [
        ("no-negotiate", "no answer to the SMB Direct negotiation"),
        ("refuse-negotiate", "refused SMB Direct with status 0xc00000bb"),
        ("short-negotiate", "a message of 31 bytes"),
        ("no-credits", "SMBD-NEG-RSP-GRANTED"),
        ("small-fragments", "SMBD-NEG-RSP-FRAGSIZE"),
        ("grant-too-much", "SMBD-CREDIT-OVERFLOW"),
        ("stall", "no answer to READ"),
        ("bad-lengths", "SMBD-DATA-LENGTH"),
        ("bad-offset", "SMBD-DATA-ALIGN"),
        ("bad-remaining", "SMBD-FRAG-REMAINING"),
        ("not-smb2", "is no SMB2 message"),
        ("too-much", "more was written than was asked for"),
    ];
    let share = Arc::new(Share {
        name: "share".into(),
        storage: Storage::memory([("big.bin".to_owned(), big())]),
        writable: true,
        users: Users::Guests,
    });
    for (name, expected) in verdicts {
        let fault = rdmascope_replay::fault::Fault::named(name).unwrap();
        assert!(fault.works_over_cards(), "{name}");
        let mut listener = Listener::bind(verbs, "127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.address();
        let (share, other) = (share.clone(), config.clone());
        let server = std::thread::spawn(move || {
            let request = listener.next(WITHIN).unwrap().unwrap();
            // the client's going away is the end of it
            let _ = fault.serve_card(request, share, &other);
        });
        let done = || -> rdmascope_replay::error::Result<usize> {
            let channel = Channel::connect(address, &config, WITHIN)?;
            // where nothing comes the test waits for so long; elsewhere a busy machine has its time
            let timeout = if matches!(name, "stall" | "no-negotiate") { Duration::from_secs(4) } else { WITHIN };
            let mut client = Client::negotiate(channel, Options { timeout, ..Options::default() })?;
            client.session_setup(&Credentials::Anonymous)?;
            client.tree_connect("127.0.0.1", "share")?;
            let file = client.create("big.bin", access::READ, disposition::OPEN, 0)?;
            Ok(client.read_rdma(file.id, 0, 50_000, RdmaChannel::RDMA_V1)?.data.len())
        };
        let said = done().map_or_else(|e| e.to_string(), |n| n.to_string());
        assert!(said.contains(expected), "{name}: {said}");
        server.join().unwrap();
    }
    assert!(["silent", "die", "bad-crc"].iter().all(|name| !rdmascope_replay::fault::Fault::named(name).unwrap().works_over_cards()));
}

#[test]
fn nobody_there_is_said_in_one_line() {
    let Some((_, config)) = config() else { return };
    let e = Channel::connect("127.0.0.1:9".parse().unwrap(), &config, WITHIN).unwrap_err().to_string();
    assert_eq!(e, "127.0.0.1:9 rejected the connection: invalid service ID: nothing listens on that RDMA port (8)");
}

/// The cases that take no waiting, put to our own peer.
#[test]
fn the_probe_runs_over_a_card() {
    let Some((verbs, config)) = config() else { return };
    let address = peer(verbs, &config, "127.0.0.1");
    let target = Target { config, ..Target::new(address) };
    let mut tried = 0;
    for case in CASES.iter().filter(|c| !c.name.contains("Timer") && !c.is_slow()) {
        let (verdict, wire) = case.run(&target).unwrap();
        assert!(!matches!(verdict, Verdict::Fail(_)), "{}: {verdict:?}", case.name);
        assert!(wire.is_empty(), "{}", case.name);
        tried += 1;
    }
    assert!(tried > 20, "{tried}");
}
