//! A session over a card, which is the stand-in of `capture/verbs/tests`: our client and our peer, with and without
//! memory windows.
#![cfg(target_os = "linux")]

#[path = "../../capture/verbs/tests/common/mod.rs"]
mod common;
mod tap;

use rdmascope_analyzer::env::Options as PipelineOptions;
use rdmascope_analyzer::exchange::Exchange;
use rdmascope_analyzer::keys::Keyring;
use rdmascope_analyzer::report::{Handshake, Health, SideReport};
use rdmascope_dissector::wire::smb2::FileId;
use rdmascope_dissector::wire::smb2::ioctl::ControlCode;
use rdmascope_dissector::wire::smb2::rdma_channel::Channel as RdmaChannel;
use rdmascope_replay::probe::{Target, Verdict, all};
use rdmascope_replay::smb2::Credentials;
use rdmascope_replay::smb2::client::{Client, Options, access, disposition};
use rdmascope_replay::smb2::server::{Share, Users, serve};
use rdmascope_replay::smb2::storage::Storage;
use rdmascope_replay::stack::{Config, EndReason, Event, SmbDirect};
use rdmascope_replay::transport::Why;
use rdmascope_replay::transport::verbs::{KIND, Verbs};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tap::{analyze, kept, serving_over};

/// Time limit for anything that must happen, even on a busy machine.
const WITHIN: Duration = Duration::from_secs(60);

fn big() -> Vec<u8> {
    (1..=300_000u32).flat_map(|n| format!("{n}\n").into_bytes()).collect()
}

fn config() -> Option<Config> {
    Some(Config::over(Verbs::from(rdmascope_verbs::Verbs::load_from(common::standin()?).unwrap())))
}

/// A peer that serves until the test ends.
fn peer(config: &Config, host: &str) -> SocketAddr {
    let share = Share::new(
        "share",
        Storage::memory([("big.bin".to_owned(), big())]),
        true,
        Users::Password(rdmascope_analyzer::keys::ntlm::nt_hash("secret")),
    );
    serving_over(share, config, host)
}

#[test]
fn a_session_reads_and_writes_by_rdma() {
    let Some(config) = config() else { return };
    for (host, windows) in [("127.0.0.1", true), ("127.0.0.2", false)] {
        let address = peer(&config, host);
        let channel = SmbDirect::connect(address, &config, WITHIN).unwrap();
        let mut client = Client::negotiate(channel, Options::default()).unwrap();
        client.session_setup(&Credentials::new("user", "secret")).unwrap();
        client.tree_connect(host, "share").unwrap();
        let file = client.create("big.bin", access::READ, disposition::OPEN, 0).unwrap();
        let length = file.end_of_file as u32;
        let read = client.read_rdma(file.id, 0, length, RdmaChannel::RDMA_V1_INVALIDATE).unwrap();
        assert!(read.data == big(), "{host}");
        // without windows the peer is not asked to invalidate, since a card would end the connection
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
        assert_eq!(
            client.ioctl(FileId::PREVIOUS, ControlCode::QUERY_NETWORK_INTERFACE_INFO.0, &[], 4096).unwrap(),
            [0; 0],
            "{host}"
        );
        assert_eq!(client.channel().stack().smbd().unwrap().breaches(), [], "{host}");
        client.leave().unwrap();
    }
}

/// The capture of a connection over a card is constructed from the card's reports, at either end. The file says so, all
/// of its packets are correct, the analysis has no findings, and both ends show the same operations. Operations that
/// only the server's card knows are derived in the client's file.
#[test]
fn what_is_kept_of_a_card_is_clean_and_the_same_at_both_ends() {
    let Some(config) = config() else { return };
    let folder = tempfile::tempdir().unwrap();
    for (host, device, encrypt) in
        [("127.0.0.1", "card0", false), ("127.0.0.2", "plain0", false), ("127.0.0.1", "card0", true)]
    {
        let [ours, theirs] =
            ["client", "server"].map(|end| folder.path().join(format!("{end}-{device}-{encrypt}.pcapng")));
        let mut listener = config.transport.listen(format!("{host}:0").parse().unwrap()).unwrap();
        let address = listener.address();
        let served = Config { wire: Some(kept(&theirs)), ..config.clone() };
        let server = std::thread::spawn(move || {
            let share = Share::new(
                "share",
                Storage::memory([("big.bin".to_owned(), big())]),
                true,
                Users::Password(rdmascope_analyzer::keys::ntlm::nt_hash("secret")),
            );
            serve(listener.next(WITHIN).unwrap().unwrap(), Arc::new(share), &served).unwrap();
        });
        let config = Config { wire: Some(kept(&ours)), ..config.clone() };
        let channel = SmbDirect::connect(address, &config, WITHIN).unwrap();
        let mut client = Client::negotiate(channel, Options { encrypt, ..Options::default() }).unwrap();
        client.session_setup(&Credentials::new("user", "secret")).unwrap();
        client.tree_connect(host, "share").unwrap();
        let all = access::READ | access::WRITE;
        let file = client.create("big.bin", all, disposition::OPEN, 0).unwrap();
        assert!(
            client.read_rdma(file.id, 0, 900_001, RdmaChannel::RDMA_V1_INVALIDATE).unwrap().data == big()[..900_001]
        );
        assert!(client.read_inline(file.id, 7, 20_000).unwrap().data == big()[7..20_007]);
        // several at once, whose replies come together; the last one ends with the file
        let at = |n: u64| n * 130_000;
        let pending: Vec<_> =
            (0..17).map(|n| client.start_read(file.id, at(n), 130_000, RdmaChannel::RDMA_V1).unwrap()).collect();
        for (n, pending) in pending.into_iter().enumerate().rev() {
            let (from, to) = (at(n as u64) as usize, big().len().min(at(n as u64 + 1) as usize));
            match client.finish_read(pending) {
                Ok(read) => assert!(read.data == big()[from..to], "{n}"),
                Err(e) => assert!(from >= big().len(), "{n}: {e}"),
            }
        }
        let data: Vec<u8> = (0..300_003u32).map(|n| (n / 3) as u8).collect();
        assert_eq!(client.write_rdma(file.id, 5, data.clone(), RdmaChannel::RDMA_V1_INVALIDATE).unwrap().0, 300_003);
        assert_eq!(client.write_inline(file.id, 10, b"inline").unwrap(), 6);
        client.close(file.id).unwrap();
        client.leave().unwrap();
        server.join().unwrap();

        let taps = [&ours, &theirs].map(|path| {
            let mut keyring = Keyring::new();
            keyring.add_password(Some("user"), "secret");
            analyze(path, PipelineOptions { keyring, payloads: true, ..Default::default() })
        });
        for tap in &taps {
            // intended errors of the test, and delays of a busy machine
            assert_eq!(tap.said_but(&["SMB2-ERROR", "SMBD-FRAG-COST", "SMB2-SLOW"]), [""; 0], "{device} {encrypt}");
            let [connection] = &tap.report.connections[..] else {
                panic!("{} connections", tap.report.connections.len())
            };
            assert_eq!((connection.handshake, tap.report.capture.undecoded), (Handshake::Seen, 0));
            assert_eq!(connection.health, Health::default());
            assert_eq!(
                connection.closed.map(|(by, how, _)| (by, how)),
                Some((Some(0), "DREQ")),
                "{device}: the client left"
            );
            assert!(connection.peers.iter().all(|peer| peer.qp.is_some_and(|qp| qp > 0x10)));
            assert!(tap.descriptions[0].contains(&format!("RDMA card {device} reported")), "{:?}", tap.descriptions);
            assert!(tap.comments[0][0].starts_with("Made by rdmascope from what its RDMA card reported"));
            let hashes =
                tap.exchanges.iter().filter(|e| matches!(e.command, "READ" | "WRITE") && !e.failed).map(|e| e.sha256);
            assert!(hashes.clone().count() > 15 && hashes.clone().all(|hash| hash.is_some()), "{device} {encrypt}");
        }
        let worked_out =
            taps.each_ref().map(|tap| tap.comments.iter().flatten().filter(|c| c.starts_with("Worked out")).count());
        let by_rdma = taps[0].exchanges.iter().filter(|e| e.reads.operations + e.writes.operations > 0).count();
        assert_eq!(worked_out, [by_rdma, 0]);
        let rows = taps.each_ref().map(|tap| {
            let row = |e: &Exchange| {
                let memory = (
                    e.channel,
                    e.descriptors,
                    (e.reads.operations, e.reads.frames),
                    (e.writes.operations, e.writes.frames),
                );
                (
                    e.command,
                    e.message_id,
                    e.status,
                    e.file.clone(),
                    (e.offset, e.length, e.bytes_moved),
                    memory,
                    e.sha256,
                )
            };
            tap.exchanges.iter().map(row).collect::<Vec<_>>()
        });
        assert_eq!(rows[0], rows[1]);
        let ledger = taps.each_ref().map(|tap| {
            let c = &tap.report.connections[0];
            let side =
                |s: &SideReport| (s.messages, s.fragments, s.granted_total, s.spent_total, s.held_last, s.overruns);
            (c.sides.each_ref().map(side), c.rdma, c.negotiated)
        });
        assert_eq!(ledger[0], ledger[1]);
    }
}

#[test]
fn a_server_that_goes_away_ends_the_session() {
    let Some(config) = config() else { return };
    let mut listener = config.transport.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.address();
    let other = config.clone();
    let server = std::thread::spawn(move || {
        let request = listener.next(WITHIN).unwrap().unwrap();
        let mut channel = SmbDirect::accept(request, &other).unwrap();
        while channel.poll(WITHIN).unwrap() != Some(Event::Established) {}
    });
    let mut channel = SmbDirect::connect(address, &config, WITHIN).unwrap();
    let mut last = None;
    while let Some(event) = channel.poll(WITHIN).unwrap() {
        last = Some(event);
        if matches!(last, Some(Event::Closed(_))) {
            break;
        }
    }
    assert!(matches!(&last, Some(Event::Closed(EndReason::Transport(ended))) if ended.why == Why::ByPeer), "{last:?}");
    server.join().unwrap();
}

/// Faults of a peer above the segments work over a card too, and the client reports each clearly and in time.
#[test]
fn faults_above_the_transport_work_over_a_card() {
    let Some(config) = config() else { return };
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
        ("not-smb2", "is not an SMB2 message"),
        ("too-much", "reports more bytes written than were asked for"),
    ];
    let share = Arc::new(Share::new("share", Storage::memory([("big.bin".to_owned(), big())]), true, Users::Guests));
    for (name, expected) in verdicts {
        let fault = rdmascope_replay::fault::Fault::named(name).unwrap();
        assert!(fault.works_over(&KIND), "{name}");
        let mut listener = config.transport.listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.address();
        let (share, other) = (share.clone(), config.clone());
        let server = std::thread::spawn(move || {
            let request = listener.next(WITHIN).unwrap().unwrap();
            // the client's going away is the end of it
            let _ = fault.serve(request, share, &other);
        });
        let done = || -> rdmascope_replay::error::Result<usize> {
            let channel = SmbDirect::connect(address, &config, WITHIN)?;
            // only the step that gets no answer has a short time limit: all others may take longer
            let waits = |fault| if name == fault { Duration::from_secs(1) } else { WITHIN };
            let mut client =
                Client::negotiate(channel, Options { timeout: waits("no-negotiate"), ..Options::default() })?;
            client.session_setup(&Credentials::Anonymous)?;
            client.tree_connect("127.0.0.1", "share")?;
            let file = client.create("big.bin", access::READ, disposition::OPEN, 0)?;
            client.options_mut().timeout = waits("stall");
            Ok(client.read_rdma(file.id, 0, 50_000, RdmaChannel::RDMA_V1)?.data.len())
        };
        let said = done().map_or_else(|e| e.to_string(), |n| n.to_string());
        assert!(said.contains(expected), "{name}: {said}");
        server.join().unwrap();
    }
    assert!(
        ["silent", "die", "bad-crc"]
            .iter()
            .all(|name| !rdmascope_replay::fault::Fault::named(name).unwrap().works_over(&KIND))
    );
}

#[test]
fn a_missing_peer_is_reported_in_one_line() {
    let Some(config) = config() else { return };
    let e = SmbDirect::connect("127.0.0.1:9".parse().unwrap(), &config, WITHIN).unwrap_err().to_string();
    assert_eq!(e, "127.0.0.1:9 rejected the connection: invalid service ID: nothing listens on that RDMA port (8)");
}

/// The cases that take no waiting, put to our own peer.
#[test]
fn the_probe_runs_over_a_card() {
    let Some(config) = config() else { return };
    let address = peer(&config, "127.0.0.1");
    let target = Target { config, writes: true, ..Target::new(address) };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("wire.pcapng");
    let mut tried = 0;
    for case in all().filter(|c| !c.name.contains("Timer") && !c.slow) {
        let (verdict, wire) = case.run(&target).unwrap();
        assert!(!matches!(verdict, Verdict::Fail(_)), "{}: {verdict:?}", case.name);
        if case.name.starts_with("Iwarp_") || case.name.starts_with("Roce_") {
            assert!(wire.is_empty(), "{}", case.name);
            continue;
        }
        std::fs::write(&path, wire).unwrap();
        let tap = analyze(&path, PipelineOptions::default());
        assert!(
            tap.report.connections.iter().all(|c| c.health == Health::default() && c.handshake == Handshake::Seen),
            "{}",
            case.name
        );
        assert!(!tap.report.connections.is_empty() || matches!(verdict, Verdict::NotApplicable(_)), "{}", case.name);
        tried += 1;
    }
    assert!(tried > 20, "{tried}");
}
