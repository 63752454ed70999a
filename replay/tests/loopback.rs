//! The client against the built-in peer over loopback TCP: every dialect, signed and as a guest, and the analysis of
//! the captured traffic.

mod tap;

use rdmascope_analyzer::env::Options as PipelineOptions;
use rdmascope_analyzer::keys::{CipherId, Dialect, Keyring, SigningAlgorithm};
use rdmascope_dissector::wire::smb2::NtStatus;
use rdmascope_dissector::wire::smb2::negotiate::RdmaTransformId;
use rdmascope_dissector::wire::smb2::rdma_channel::{Channel as RdmaChannel, TransformType};
use rdmascope_replay::iwarp::{Carrier, Iwarp};
use rdmascope_replay::smb2::Credentials;
use rdmascope_replay::smb2::client::{Client, Options, access, disposition};
use rdmascope_replay::smb2::server::{Share, Users, serve};
use rdmascope_replay::smb2::storage::Storage;
use rdmascope_replay::stack::{Config, Event, SmbDirect};
use sha2::{Digest, Sha256};
use std::any::Any;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tap::{analyze, kept, serving, serving_over};

/// Time limit for anything that must happen, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn big() -> Vec<u8> {
    (1..=1_500_000u32).flat_map(|n| format!("{n}\n").into_bytes()).take(8 << 20).collect()
}

fn peer(password: Option<&str>, config: Config) -> SocketAddr {
    let share = Share::new(
        "share",
        Storage::memory([("big.bin".to_owned(), big()), ("hello.txt".to_owned(), b"hello\n".to_vec())]),
        true,
        password.map_or(Users::Guests, |password| Users::Password(rdmascope_analyzer::keys::ntlm::nt_hash(password))),
    );
    serving_over(share, &config, "127.0.0.1")
}

fn session(address: SocketAddr, config: &Config, dialect: Dialect, who: &Credentials, keep: Option<&Path>) -> Client {
    let config = Config { wire: keep.map(kept), ..config.clone() };
    let channel = SmbDirect::connect(address, &config, PATIENCE).unwrap();
    let mut client = Client::negotiate(
        channel,
        Options { dialects: vec![dialect], timeout: Duration::from_secs(60), ..Options::default() },
    )
    .unwrap();
    assert_eq!(client.dialect(), dialect);
    client.session_setup(who).unwrap();
    client.tree_connect("127.0.0.1", "share").unwrap();
    client
}

/// A peer that holds its first message back for the sake of software iWARP still sends the refusal.
#[test]
fn a_refusal_that_is_held_back_is_sent() {
    use rdmascope_replay::probe::{Target, Verdict, matching};
    let mut config = Config::default();
    config.smbd.settle = rdmascope_replay::smbd::SETTLE;
    let address = peer(None, config);
    let target = Target::new(address);
    let cases = matching("NegativeParameter_M*Version");
    assert_eq!(cases.len(), 2);
    for case in cases {
        assert_eq!(case.run(&target).unwrap().0, Verdict::Pass, "{}", case.name);
    }
}

/// A client that only holds a place loses it.
#[test]
fn a_client_that_does_not_log_on_in_time_is_disconnected() {
    let mut share = Share::new("share", Storage::memory([]), false, Users::Guests);
    share.limits.logon_within = Duration::from_millis(200);
    let mut channel = SmbDirect::connect(serving(share), &Config::default(), PATIENCE).unwrap();
    while !matches!(channel.poll(PATIENCE).unwrap().expect("it may stay"), Event::Closed(_)) {}
}

/// A client that receives nothing does not hold what it asked for in memory.
#[test]
fn a_client_that_takes_no_replies_is_disconnected() {
    let mut share = Share::new("share", Storage::memory([("big.bin".to_owned(), big())]), false, Users::Guests);
    share.limits.stuck_within = Duration::from_millis(200);
    share.limits.connection_bytes = 32 << 20;
    let mut listener = Config::default().transport.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.address();
    let (end, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let request = listener.next(PATIENCE).unwrap().expect("a client");
        end.send(serve(request, Arc::new(share), &Config::default()).is_ok())
    });
    let mut client = session(address, &Config::default(), Dialect::SMB_3_0_2, &Credentials::Anonymous, None);
    let file = client.create("big.bin", access::READ, disposition::OPEN, 0).unwrap().id;
    // half of what a connection may hold, and more than the buffers of two sockets
    assert!(client.credits() >= 4 * 128, "{} credits", client.credits());
    let asked: Vec<_> = (0..4).map(|_| client.start_read(file, 0, 8 << 20, RdmaChannel::RDMA_V1).unwrap()).collect();
    // the requests go out; after that it reads nothing
    client.pump(Duration::ZERO).unwrap();
    ended.recv_timeout(PATIENCE).expect("the server gives the client up");
    assert!(asked.into_iter().any(|read| client.finish_read(read).is_err()));
}

#[test]
fn a_session_does_all_that_it_can_and_a_tap_finds_nothing_to_say() {
    let folder = tempfile::tempdir().unwrap();
    let user = Credentials::new("user", "secret");
    let crc_off =
        Config::over(Iwarp(rdmascope_replay::iwarp::Config { crc: false, revision: 1, ..Default::default() }));
    let cases = [
        (Dialect::SMB_3_1_1, Some("secret"), &user, Config::default()),
        (Dialect::SMB_3_0_2, Some("secret"), &user, crc_off),
        (Dialect::SMB_3_0, None, &user, Config::default()),
        (Dialect::SMB_3_1_1, None, &Credentials::Anonymous, Config::default()),
    ];
    for (n, (dialect, password, who, config)) in cases.into_iter().enumerate() {
        let address = peer(password, config.clone());
        let path = folder.path().join(format!("{n}.pcapng"));
        let mut client = session(address, &config, dialect, who, Some(&path));
        assert_eq!(client.is_signed(), password.is_some());
        let root = client.create("", access::READ, disposition::OPEN, 1).unwrap();
        let names: Vec<String> = client.list(root.id, "*").unwrap().into_iter().map(|e| e.name).collect();
        assert_eq!(names, [".", "..", "big.bin", "hello.txt"]);
        client.close(root.id).unwrap();

        let file = client.create("big.bin", access::READ, disposition::OPEN, 0).unwrap();
        assert_eq!(file.end_of_file, 8 << 20);
        let read = client.read_rdma(file.id, 0, 8 << 20, RdmaChannel::RDMA_V1_INVALIDATE).unwrap();
        assert!(read.data == big(), "8 MiB by RDMA");
        assert_eq!(read.invalidated, dialect != Dialect::SMB_3_0);
        let read = client.read_rdma(file.id, 5, 100_000, RdmaChannel::RDMA_V1).unwrap();
        assert!(read.data == big()[5..100_005] && !read.invalidated);
        assert_eq!(client.read_inline(file.id, 7, 200_000).unwrap().data, big()[7..200_007], "in fragments");
        let end = client.read_inline(file.id, 8 << 20, 10).unwrap_err();
        assert_eq!(end.status(), Some(NtStatus::END_OF_FILE));
        assert_eq!(client.query_info(file.id, 1, 5, 24).unwrap()[8..16], (8u64 << 20).to_le_bytes());
        client.close(file.id).unwrap();

        let file = client.create("new.bin", access::READ | access::WRITE, disposition::OVERWRITE_IF, 0).unwrap();
        let data: Vec<u8> = (0..3_000_000u32).map(|n| (n / 3) as u8).collect();
        let (count, _) = client.write_rdma(file.id, 0, data.clone(), RdmaChannel::RDMA_V1_INVALIDATE).unwrap();
        assert_eq!(count, 3_000_000);
        assert_eq!(client.write_inline(file.id, 10, b"inline").unwrap(), 6);
        client.flush(file.id).unwrap();
        let back = client.read_rdma(file.id, 0, 3_000_000, RdmaChannel::RDMA_V1_INVALIDATE).unwrap().data;
        assert!(back[..10] == data[..10] && &back[10..16] == b"inline" && back[16..] == data[16..]);
        client.close(file.id).unwrap();
        client.echo().unwrap();
        assert_eq!(client.credit_faults(), [], "credits and message ids of the replies");
        let missing = client.create("missing", access::READ, disposition::OPEN, 0).unwrap_err();
        assert_eq!(missing.status(), Some(NtStatus(0xc000_0034)));
        let breaches = client.channel().stack().smbd().unwrap().breaches().to_vec();
        assert_eq!(breaches, []);
        client.leave().unwrap();

        let tap = analyze(&path, PipelineOptions::default());
        assert_eq!(tap.report.connections.len(), 1);
        // intended errors of the test: a missing file, a large read without RDMA, and a WRITE above the server's limit
        assert_eq!(tap.said_but(&["SMB2-ERROR", "SMBD-FRAG-COST", "SMB2-MAX-SIZE"]), [""; 0]);
    }
}

/// Encrypted and signed with every algorithm, including RDMA data.
#[test]
fn what_rdma_moves_is_encrypted_or_signed_as_agreed() {
    let all = [RdmaTransformId::ENCRYPTION, RdmaTransformId::SIGNING];
    let address = peer(Some("secret"), Config::default());
    let ciphers = CipherId::ALL.map(|id| Options {
        encrypt: true,
        ciphers: vec![id],
        transforms: all.into(),
        ..Options::default()
    });
    let signing = [SigningAlgorithm::AES_GMAC, SigningAlgorithm::AES_CMAC].map(|id| Options {
        signing: vec![id],
        transforms: all.into(),
        ..Options::default()
    });
    // without transforms, an encrypted session moves nothing in the clear, and a signed one moves data unprotected
    let without = [true, false].map(|encrypt| Options { encrypt, transforms: Vec::new(), ..Options::default() });
    // 3.0 has encryption, and no transforms
    let old = Options { encrypt: true, dialects: vec![Dialect::SMB_3_0], ..Options::default() };
    let folder = tempfile::tempdir().unwrap();
    for (n, options) in ciphers.into_iter().chain(signing).chain(without).chain([old]).enumerate() {
        let transforms = options.transforms.clone();
        let (encrypts, offers) =
            (options.encrypt, !transforms.is_empty() && options.dialects.contains(&Dialect::SMB_3_1_1));
        let expected = match (encrypts, offers) {
            (_, false) => None,
            (true, true) => Some(TransformType::ENCRYPTION),
            (false, true) => Some(TransformType::SIGNING),
        };
        let path = folder.path().join(format!("{n}.pcapng"));
        let config = Config { wire: Some(kept(&path)), ..Config::default() };
        let channel = SmbDirect::connect(address, &config, PATIENCE).unwrap();
        let mut client = Client::negotiate(channel, options).unwrap();
        client.session_setup(&Credentials::new("user", "secret")).unwrap();
        client.tree_connect("127.0.0.1", "share").unwrap();
        assert_eq!((client.is_encrypted(), client.has_transform(RdmaTransformId::SIGNING)), (encrypts, offers));
        let file = client.create("big.bin", access::READ, disposition::OPEN, 0).unwrap();
        for channel in [RdmaChannel::RDMA_V1_INVALIDATE, RdmaChannel::RDMA_V1] {
            let read = client.read_rdma(file.id, 3, 150_000, channel).unwrap();
            assert!(read.data == big()[3..150_003] && read.transform == expected, "{n}: {:?}", read.transform);
        }
        client.close(file.id).unwrap();
        let file =
            client.create(&format!("new-{n}"), access::READ | access::WRITE, disposition::OVERWRITE_IF, 0).unwrap();
        let data: Vec<u8> = (0..200_000u32).map(|n| (n / 3) as u8).collect();
        assert_eq!(client.write_rdma(file.id, 0, data.clone(), RdmaChannel::RDMA_V1_INVALIDATE).unwrap().0, 200_000);
        assert!(
            client.read_inline(file.id, 0, 200_000).unwrap().data == data,
            "{n}: what lies there is what was written"
        );
        client.close(file.id).unwrap();
        assert_eq!(client.signatures.wrong, 0);
        client.leave().unwrap();
        // a tap with the password sees everything, and has no findings
        let mut keyring = Keyring::new();
        keyring.add_password(Some("user"), "secret");
        let tap = analyze(&path, PipelineOptions { keyring, payloads: true, ..Default::default() });
        assert_eq!(tap.said_but(&["SMBD-FRAG-COST", "SMB-PATH-INLINE"]), [""; 0], "{n}");
        let hash = |bytes: &[u8]| <[u8; 32]>::from(Sha256::digest(bytes));
        let of = |command| tap.exchanges.iter().filter(move |e| e.command == command);
        assert_eq!((of("READ").count(), of("WRITE").count()), (3, 1), "{n}");
        assert!(of("READ").take(2).all(|e| e.sha256 == Some(hash(&big()[3..150_003]))), "{n}");
        assert!(of("WRITE").all(|e| e.sha256 == Some(hash(&data))), "{n}");
        // and one without sees no encrypted contents
        let blind = analyze(&path, PipelineOptions { payloads: true, ..Default::default() });
        assert_eq!(blind.exchanges.iter().all(|e| e.sha256.is_none()), encrypts, "{n}");
    }
}

#[test]
fn a_connection_that_is_over_says_so_again_and_again() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut channel = SmbDirect::connect(listener.local_addr().unwrap(), &Config::default(), PATIENCE).unwrap();
    drop(listener.accept().unwrap());
    for _ in 0..3 {
        assert!(matches!(channel.poll(PATIENCE).unwrap(), Some(Event::Closed(_))));
    }
    assert!(channel.send(vec![0; 64], None).is_err());
}

#[test]
fn a_wrong_password_is_refused() {
    let address = peer(Some("secret"), Config::default());
    for who in [Credentials::new("user", "other"), Credentials::Anonymous] {
        let channel = SmbDirect::connect(address, &Config::default(), PATIENCE).unwrap();
        let mut client = Client::negotiate(channel, Options::default()).unwrap();
        assert_eq!(client.session_setup(&who).unwrap_err().status(), Some(NtStatus(0xc000_006d)));
    }
}

#[test]
fn few_credits_and_small_messages_are_enough() {
    let mut config = Config::default();
    config.smbd.send_credits = 4;
    config.smbd.receive_credits = 4;
    config.smbd.max_receive_size = 512;
    config.smbd.max_send_size = 256;
    let address = peer(None, config.clone());
    let mut client = session(address, &config, Dialect::SMB_3_1_1, &Credentials::Anonymous, None);
    let file = client.create("big.bin", access::READ, disposition::OPEN, 0).unwrap();
    assert_eq!(client.read_inline(file.id, 0, 60_000).unwrap().data, big()[..60_000]);
    client.close(file.id).unwrap();
    client.leave().unwrap();
}

/// The time limit holds even if the peer sends useless data all the time.
#[test]
fn a_peer_that_sends_nothing_for_ever_is_not_listened_to_for_ever() {
    let config = Config::default();
    let mut listener = config.transport.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.address();
    let server = std::thread::spawn(move || {
        let request = listener.next(PATIENCE).unwrap().unwrap();
        let mut channel = SmbDirect::accept_raw(request, &Config::default()).unwrap();
        while channel.poll(PATIENCE).unwrap() != Some(Event::Connected) {}
        // FPDUs without a segment, until the client has had enough
        loop {
            match channel.poll(Duration::ZERO) {
                Ok(Some(Event::Closed(_))) | Err(_) => return,
                // no more at a time than the client reads
                Ok(_) if channel.unsent() > 0 => {}
                Ok(_) => {
                    let carrier = (channel.stack().transport() as &mut dyn Any).downcast_mut::<Carrier>().unwrap();
                    (0..1000).for_each(|_| carrier.connection().transmit_segment(&[]));
                }
            }
        }
    });
    let channel = SmbDirect::connect(address, &Config::default(), PATIENCE).unwrap();
    let options = Options { timeout: Duration::from_secs(1), ..Options::default() };
    let e = Client::negotiate(channel, options).unwrap_err().to_string();
    assert!(e.contains("no answer to the SMB Direct negotiation"), "{e}");
    server.join().unwrap();
}
