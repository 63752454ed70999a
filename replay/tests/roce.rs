//! Our client against our peer over RoCEv2 in user space, on the loopback network: everything that works over iWARP
//! works over it, and the analysis of the traffic has no findings.
#![cfg(target_os = "linux")]

mod tap;

use rdmascope_analyzer::env::Options as PipelineOptions;
use rdmascope_analyzer::keys::{Dialect, Keyring};
use rdmascope_analyzer::report::Handshake;
use rdmascope_dissector::wire::smb2::negotiate::RdmaTransformId;
use rdmascope_dissector::wire::smb2::rdma_channel::{Channel as RdmaChannel, TransformType};
use rdmascope_replay::probe::{Target, Verdict, matching};
use rdmascope_replay::roce::Roce;
use rdmascope_replay::smb2::Credentials;
use rdmascope_replay::smb2::client::{Client, Options, access, disposition};
use rdmascope_replay::smb2::server::{Share, Users};
use rdmascope_replay::smb2::storage::Storage;
use rdmascope_replay::stack::{Config, SmbDirect};
use sha2::{Digest, Sha256};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;
use tap::{analyze, kept, serving_over};

/// Time limit for anything that must happen, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn big() -> Vec<u8> {
    (1..=1_500_000u32).flat_map(|n| format!("{n}\n").into_bytes()).take(8 << 20).collect()
}

/// An address of the loopback network that no other test program has.
fn host(test: u8) -> String {
    let process = std::process::id();
    format!("127.{}.{}.{}", 64 | process >> 13 & 0x3f, process >> 5 & 0xff, (process & 0x1f) << 3 | u32::from(test))
}

fn peer(test: u8, password: Option<&str>, config: &Config) -> SocketAddr {
    let share = Share::new(
        "share",
        Storage::memory([("big.bin".to_owned(), big()), ("hello.txt".to_owned(), b"hello\n".to_vec())]),
        true,
        password.map_or(Users::Guests, |password| Users::Password(rdmascope_analyzer::keys::ntlm::nt_hash(password))),
    );
    serving_over(share, config, &host(test))
}

fn session(address: SocketAddr, config: &Config, dialect: Dialect, who: &Credentials, keep: Option<&Path>) -> Client {
    let config = Config { wire: keep.map(kept), ..config.clone() };
    let channel = SmbDirect::connect(address, &config, PATIENCE).unwrap();
    let mut client =
        Client::negotiate(channel, Options { dialects: vec![dialect], timeout: PATIENCE, ..Options::default() })
            .unwrap();
    client.session_setup(who).unwrap();
    client.tree_connect(&address.ip().to_string(), "share").unwrap();
    client
}

/// Reads and writes by RDMA and inline, every byte compared.
fn work(client: &mut Client) {
    let root = client.create("", access::READ, disposition::OPEN, 1).unwrap();
    let names: Vec<String> = client.list(root.id, "*").unwrap().into_iter().map(|e| e.name).collect();
    assert_eq!(names, [".", "..", "big.bin", "hello.txt"]);
    client.close(root.id).unwrap();
    let file = client.create("big.bin", access::READ, disposition::OPEN, 0).unwrap();
    let read = client.read_rdma(file.id, 0, 8 << 20, RdmaChannel::RDMA_V1_INVALIDATE).unwrap();
    assert!(read.data == big(), "8 MiB by RDMA");
    let read = client.read_rdma(file.id, 5, 100_000, RdmaChannel::RDMA_V1).unwrap();
    assert!(read.data == big()[5..100_005] && !read.invalidated);
    assert_eq!(client.read_inline(file.id, 7, 20_000).unwrap().data, big()[7..20_007], "in fragments");
    client.close(file.id).unwrap();
    let file = client.create("new.bin", access::READ | access::WRITE, disposition::OVERWRITE_IF, 0).unwrap();
    let data: Vec<u8> = (0..3_000_000u32).map(|n| (n / 3) as u8).collect();
    let (count, _) = client.write_rdma(file.id, 0, data.clone(), RdmaChannel::RDMA_V1_INVALIDATE).unwrap();
    assert_eq!(count, 3_000_000);
    let back = client.read_rdma(file.id, 0, 3_000_000, RdmaChannel::RDMA_V1_INVALIDATE).unwrap().data;
    assert!(back == data);
    client.close(file.id).unwrap();
    client.echo().unwrap();
    assert_eq!(client.channel().stack().smbd().unwrap().breaches(), []);
}

#[test]
fn a_session_does_all_that_it_can_and_a_tap_finds_nothing_to_say() {
    let folder = tempfile::tempdir().unwrap();
    let user = Credentials::new("user", "secret");
    for (n, mtu, dialect, who) in
        [(0, None, Dialect::SMB_3_1_1, &user), (1, Some(1024), Dialect::SMB_3_0, &Credentials::Anonymous)]
    {
        let config = Config::over(Roce { path_mtu: mtu, ..Roce::default() });
        let peers = Config::over(Roce::default());
        let password = matches!(who, Credentials::Password(_)).then_some("secret");
        let address = peer(n, password, &peers);
        let path = folder.path().join(format!("{n}.pcapng"));
        let mut client = session(address, &config, dialect, who, Some(&path));
        work(&mut client);
        client.leave().unwrap();
        let tap = analyze(&path, PipelineOptions::default());
        let [connection] = &tap.report.connections[..] else { panic!("{} connections", tap.report.connections.len()) };
        assert_eq!((connection.handshake, connection.health.icrc_bad), (Handshake::Seen, 0));
        let harmless = [
            "SMBD-FRAG-COST",
            "RC-DUPLICATE",
            "RC-RETRANSMIT",
            "RC-GAP",
            "RC-SPURIOUS",
            "RC-REORDER",
            "RC-NAK",
            "SMB2-SLOW",
            // it writes more at once than the server announces
            "SMB2-MAX-SIZE",
        ];
        assert_eq!(tap.said_but(&harmless), [""; 0]);
    }
}

#[test]
fn a_session_over_ipv6_does_the_same() {
    // there is one loopback address only
    if let Err(e) = std::net::UdpSocket::bind("[::1]:4791") {
        eprintln!("not tried: UDP port 4791 of ::1: {e}");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let config = Config::over(Roce::default());
    let files = [("big.bin".to_owned(), big()), ("hello.txt".to_owned(), b"hello\n".to_vec())];
    let share = Share::new("share", Storage::memory(files), true, Users::Guests);
    let address = serving_over(share, &config, "[::1]");
    let path = folder.path().join("six.pcapng");
    let mut client = session(address, &config, Dialect::SMB_3_1_1, &Credentials::Anonymous, Some(&path));
    work(&mut client);
    client.leave().unwrap();
    let tap = analyze(&path, PipelineOptions::default());
    let [connection] = &tap.report.connections[..] else { panic!("{} connections", tap.report.connections.len()) };
    assert_eq!((connection.handshake, connection.health.icrc_bad), (Handshake::Seen, 0));
}

#[test]
fn what_rdma_moves_is_encrypted_or_signed_as_agreed() {
    let config = Config::over(Roce::default());
    let address = peer(5, Some("secret"), &config);
    let folder = tempfile::tempdir().unwrap();
    for (encrypt, expected) in [(true, TransformType::ENCRYPTION), (false, TransformType::SIGNING)] {
        let path = folder.path().join(format!("{encrypt}.pcapng"));
        let channel =
            SmbDirect::connect(address, &Config { wire: Some(kept(&path)), ..config.clone() }, PATIENCE).unwrap();
        let transforms = vec![RdmaTransformId::ENCRYPTION, RdmaTransformId::SIGNING];
        let options = Options { encrypt, transforms, timeout: PATIENCE, ..Options::default() };
        let mut client = Client::negotiate(channel, options).unwrap();
        client.session_setup(&Credentials::new("user", "secret")).unwrap();
        client.tree_connect(&address.ip().to_string(), "share").unwrap();
        assert_eq!(client.is_encrypted(), encrypt);
        let file = client.create("big.bin", access::READ, disposition::OPEN, 0).unwrap();
        let read = client.read_rdma(file.id, 3, 150_000, RdmaChannel::RDMA_V1_INVALIDATE).unwrap();
        assert!(read.data == big()[3..150_003] && read.transform == Some(expected), "{:?}", read.transform);
        client.close(file.id).unwrap();
        let file = client.create("new.bin", access::READ | access::WRITE, disposition::OVERWRITE_IF, 0).unwrap();
        let data: Vec<u8> = (0..200_000u32).map(|n| (n / 3) as u8).collect();
        assert_eq!(client.write_rdma(file.id, 0, data.clone(), RdmaChannel::RDMA_V1_INVALIDATE).unwrap().0, 200_000);
        assert!(client.read_inline(file.id, 0, 200_000).unwrap().data == data);
        client.close(file.id).unwrap();
        assert_eq!(client.signatures.wrong, 0);
        client.leave().unwrap();
        // a tap with the password sees the moved data, and one without sees no encrypted data
        let mut keyring = Keyring::new();
        keyring.add_password(Some("user"), "secret");
        for (keyring, sees) in [(keyring, true), (Keyring::new(), !encrypt)] {
            let tap = analyze(&path, PipelineOptions { keyring, payloads: true, ..Default::default() });
            let hash = <[u8; 32]>::from(Sha256::digest(&data));
            assert_eq!(tap.exchanges.iter().any(|e| e.command == "WRITE" && e.sha256 == Some(hash)), sees);
        }
    }
}

#[test]
fn a_port_that_nobody_listens_on_refuses() {
    let config = Config::over(Roce::default());
    let address = peer(2, None, &config);
    let other = SocketAddr::new(address.ip(), address.port() ^ 1);
    let refused = SmbDirect::connect(other, &config, PATIENCE).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused, "{refused}");
}

#[test]
fn clients_at_the_same_time_share_the_port() {
    let config = Config::over(Roce::default());
    let address = peer(3, None, &config);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut client = session(address, &config, Dialect::SMB_3_1_1, &Credentials::Anonymous, None);
                let file = client.create("big.bin", access::READ, disposition::OPEN, 0).unwrap();
                for n in 0..4 {
                    let at = n * 300_001;
                    let read = client.read_rdma(file.id, at, 1 << 20, RdmaChannel::RDMA_V1_INVALIDATE).unwrap();
                    assert!(read.data == big()[at as usize..at as usize + (1 << 20)]);
                }
                client.close(file.id).unwrap();
                client.leave().unwrap();
            });
        }
    });
}

#[test]
fn our_peer_gets_over_every_packet_fault_of_the_probe() {
    let config = Config::over(Roce::default());
    let share =
        Share::new("share", Storage::memory([("big.bin".to_owned(), vec![0x5a; 300_000])]), true, Users::Guests);
    let address = serving_over(share, &config, &host(4));
    let target = Target { config, writes: true, ..Target::new(address) };
    let cases = matching("Roce_");
    assert!(cases.len() > 50);
    for case in cases {
        let (verdict, wire) = case.run(&target).unwrap();
        assert_eq!((verdict, wire.len() > 100), (Verdict::Pass, true), "{}", case.name);
    }
}
