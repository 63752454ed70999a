//! Connections of the stand-in library: both roles, memory, failures.

mod common;

use rdmascope_verbs::{Connection, Ended, Error, Event, Listener, Options, Rights, Verbs, What};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Time limit for anything that must happen, even on a busy machine.
const WITHIN: Duration = Duration::from_secs(60);
const READ: Rights = Rights { read: true, write: false };
const WRITE: Rights = Rights { read: false, write: true };

fn verbs() -> Option<Verbs> {
    common::standin().map(|folder| Verbs::load_from(folder).unwrap())
}

/// A client and a server that are connected by way of `host`.
fn pair(verbs: Verbs, host: &str, options: Options) -> (Connection, Connection) {
    let mut listener = Listener::bind(verbs, format!("{host}:0").parse().unwrap()).unwrap();
    let address = listener.address();
    assert_ne!(address.port(), 0);
    let client = std::thread::spawn(move || Connection::connect(verbs, address, options, WITHIN));
    let request = listener.next(WITHIN).unwrap().expect("a request");
    let server = request.accept(options, WITHIN).unwrap();
    (client.join().unwrap().unwrap(), server)
}

/// The next event.
fn next(connection: &mut Connection) -> Event {
    let until = Instant::now() + WITHIN;
    loop {
        if let Some(event) = connection.poll_event() {
            return event;
        }
        if !connection.progress().unwrap() {
            connection.wait(Duration::from_millis(50)).unwrap();
        }
        assert!(Instant::now() < until, "nothing came");
    }
}

fn received(connection: &mut Connection) -> (Vec<u8>, Option<u32>) {
    match next(connection) {
        Event::Received { message, invalidated } => (message, invalidated),
        other => panic!("{other:?}"),
    }
}

#[test]
fn messages_go_both_ways_and_depths_are_agreed() {
    let Some(verbs) = verbs() else { return };
    let options = Options { receives: 16, sends: 4, ..Options::default() };
    let (mut client, mut server) = pair(verbs, "127.0.0.1", options);
    // the device answers 16 reads and has 8 outstanding
    assert_eq!(client.depths(), (16, 8));
    assert_eq!(server.depths(), (8, 8));
    assert_eq!(client.device(), "card0");
    // more than the send queue holds, fewer than the receives
    for n in 0..12u8 {
        client.send(&[n; 100], None, n % 2 == 0).unwrap();
    }
    for n in 0..12u8 {
        assert_eq!(received(&mut server), (vec![n; 100], None));
        client.progress().unwrap();
    }
    server.send(b"", None, false).unwrap();
    assert_eq!(received(&mut client), (Vec::new(), None));
    assert!(matches!(client.send(&[0; 8193], None, false), Err(Error::TooLong { length: 8193, limit: 8192 })));
    server.send(b"last", None, false).unwrap();
    server.close();
    assert_eq!(received(&mut client).0, b"last");
    // posted operations complete before the end
    assert_eq!(next(&mut server), Event::Closed(Ended::ByUs));
    assert_eq!(next(&mut client), Event::Closed(Ended::ByPeer));
    assert!(matches!(client.send(b"x", None, false), Err(Error::NotEstablished)));
}

#[test]
fn memory_is_reached_as_far_as_it_was_granted() {
    let Some(verbs) = verbs() else { return };
    let (mut client, mut server) = pair(verbs, "127.0.0.1", Options::default());
    assert!(client.can_be_invalidated());
    let sink = client.register(vec![0; 1000], WRITE).unwrap();
    let source = client.register((0..200).collect(), READ).unwrap();
    // the server learns keys from a message, which is sent after the windows are bound
    client.send(b"keys", None, false).unwrap();
    received(&mut server);
    server.write(sink.key, sink.offset + 10, vec![7; 90]).unwrap();
    let into = server.register(vec![0; 200], Rights::default()).unwrap();
    let id = server.read(into.key, into.offset, source.key, source.offset, 200).unwrap();
    assert_eq!(next(&mut server), Event::ReadDone { id });
    assert_eq!(server.deregister(into.key).unwrap(), (0..200).collect::<Vec<u8>>());
    assert!(matches!(server.read(into.key, into.offset, source.key, source.offset, 200), Err(Error::Region(_))));
    server.send(b"done", Some(sink.key), true).unwrap();
    assert_eq!(received(&mut client), (b"done".to_vec(), Some(sink.key)));
    assert!(client.is_invalidated(sink.key) && !client.is_invalidated(source.key));
    let data = client.deregister(sink.key).unwrap();
    assert!(data[10..100].iter().all(|b| *b == 7) && data[..10].iter().chain(&data[100..]).all(|b| *b == 0));
    assert_eq!(client.deregister(sink.key), None);
}

#[test]
fn the_last_bits_of_keys_are_not_to_be_guessed() {
    let Some(verbs) = verbs() else { return };
    let (mut client, _server) = pair(verbs, "127.0.0.1", Options::default());
    let tags: std::collections::HashSet<u32> =
        (0..64).map(|_| client.register(vec![0; 8], READ).unwrap().key & 0xff).collect();
    assert!(tags.len() > 32, "{} different of 64", tags.len());
}

/// Checks what an access beyond the granted memory does to both ends.
fn refused(access: impl FnOnce(&mut Connection, rdmascope_verbs::Region)) {
    let Some(verbs) = verbs() else { return };
    let (mut client, mut server) = pair(verbs, "127.0.0.1", Options::default());
    let region = client.register(vec![1; 64], READ).unwrap();
    client.send(b"key", None, false).unwrap();
    received(&mut server);
    access(&mut server, region);
    match next(&mut server) {
        Event::Closed(Ended::Failed { status, .. }) => assert!(status.contains("remote access error"), "{status}"),
        other => panic!("{other:?}"),
    }
    // the connection ends here too, without a reason
    assert!(matches!(next(&mut client), Event::Closed(_)));
}

#[test]
fn reaching_beyond_ends_the_connection() {
    refused(|server, region| server.write(region.key, region.offset, vec![0; 8]).unwrap());
    refused(|server, region| {
        let into = server.register(vec![0; 128], Rights::default()).unwrap();
        server.read(into.key, into.offset, region.key, region.offset, 65).unwrap();
    });
    refused(|server, region| {
        let into = server.register(vec![0; 128], Rights::default()).unwrap();
        server.read(into.key, into.offset, region.key ^ 1, region.offset, 8).unwrap();
    });
    refused(|server, region| server.send(b"x", Some(region.key ^ 1), false).unwrap());
}

#[test]
fn a_region_that_ended_is_out_of_reach() {
    let Some(verbs) = verbs() else { return };
    let (mut client, mut server) = pair(verbs, "127.0.0.1", Options::default());
    let region = client.register(vec![1; 64], WRITE).unwrap();
    client.send(b"key", None, false).unwrap();
    received(&mut server);
    assert_eq!(client.deregister(region.key).unwrap(), [1; 64]);
    server.write(region.key, region.offset, vec![9; 8]).unwrap();
    assert!(matches!(next(&mut server), Event::Closed(Ended::Failed { operation: "RDMA Write", .. })));
}

#[test]
fn without_windows_regions_carry_the_rights() {
    let Some(verbs) = verbs() else { return };
    let (mut client, mut server) = pair(verbs, "127.0.0.2", Options::default());
    assert_eq!(client.device(), "plain0");
    assert!(!client.can_be_invalidated());
    let sink = client.register(vec![0; 16], WRITE).unwrap();
    client.send(b"key", None, false).unwrap();
    received(&mut server);
    server.write(sink.key, sink.offset, vec![3; 16]).unwrap();
    server.send(b"done", None, false).unwrap();
    received(&mut client);
    assert_eq!(client.deregister(sink.key).unwrap(), [3; 16]);
}

#[test]
fn a_failed_connect_reports_the_reason() {
    let Some(verbs) = verbs() else { return };
    let connect = |to: &str| {
        let to: SocketAddr = to.parse().unwrap();
        Connection::connect(verbs, to, Options::default(), WITHIN).unwrap_err().to_string()
    };
    let e = connect("192.0.2.1:445");
    assert!(e.starts_with("192.0.2.1:445 is not reached over an RDMA device (No such device"), "{e}");
    let e = connect("127.0.0.1:9");
    assert_eq!(e, "127.0.0.1:9 rejected the connection: invalid service ID: nothing listens on that RDMA port (8)");
    let mut listener = Listener::bind(verbs, "127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.address();
    let client = std::thread::spawn(move || Connection::connect(verbs, address, Options::default(), WITHIN));
    let request = listener.next(WITHIN).unwrap().unwrap();
    assert!(request.private_data().is_empty());
    request.reject();
    let e = client.join().unwrap().unwrap_err().to_string();
    assert_eq!(e, format!("{address} rejected the connection: consumer reject (28)"));
    let e = Connection::connect(verbs, address, Options::default(), Duration::from_secs(2)).unwrap_err().to_string();
    assert_eq!(e, format!("{address} did not answer (the connection request)"));
    let e = Listener::bind(verbs, "192.0.2.9:445".parse().unwrap()).unwrap_err().to_string();
    assert!(e.contains("is not reached over an RDMA device"), "{e}");
}

#[test]
fn a_peer_without_receives_and_a_message_too_long() {
    let Some(verbs) = verbs() else { return };
    let small = Options { receives: 2, receive_size: 64, ..Options::default() };
    let (mut client, mut server) = pair(verbs, "127.0.0.1", small);
    client.send(&[0; 65], None, false).unwrap();
    assert!(matches!(next(&mut client), Event::Closed(Ended::Failed { operation: "Send", .. })));
    assert!(matches!(next(&mut server), Event::Closed(Ended::Failed { operation: "receiving", .. })));
    let (mut client, _server) = pair(verbs, "127.0.0.1", small);
    for _ in 0..3 {
        client.send(b"x", None, false).unwrap();
    }
    match next(&mut client) {
        Event::Closed(Ended::Failed { status, .. }) => {
            assert!(status.ends_with("the peer has no receive posted"), "{status}")
        }
        other => panic!("{other:?}"),
    }
}

/// Checks the operations that both ends are told to record.
#[test]
fn operations_are_reported_as_they_were_posted_and_completed() {
    let Some(verbs) = verbs() else { return };
    let (mut client, mut server) = pair(verbs, "127.0.0.1", Options { watch: true, ..Options::default() });
    let (ours, theirs) = (client.numbers().unwrap(), server.numbers().unwrap());
    assert_eq!(
        (ours.qp, ours.peer_qp, ours.psn, ours.peer_psn),
        (theirs.peer_qp, theirs.qp, theirs.peer_psn, theirs.psn)
    );
    assert_eq!((ours.path_mtu, ours.ethernet), (1024, true));
    assert_eq!((client.peer_depths(), server.peer_depths()), ((8, 8), (16, 8)));
    let sink = client.register(vec![0; 1000], WRITE).unwrap();
    let source = client.register((0..200).collect(), READ).unwrap();
    client.send(b"keys", None, true).unwrap();
    received(&mut server);
    server.write(sink.key, sink.offset, vec![7; 90]).unwrap();
    let into = server.register(vec![0; 200], Rights::default()).unwrap();
    let id = server.read(into.key, into.offset + 3, source.key, source.offset, 100).unwrap();
    server.send(b"done", Some(sink.key), false).unwrap();
    assert_eq!(next(&mut server), Event::ReadDone { id });
    assert_eq!(client.peek(sink.key, 90).unwrap(), [7; 90]);
    received(&mut client);
    client.close();
    while client.is_busy() {
        client.progress().unwrap();
    }
    let done = |read| What::Done { read };
    let sent = |message: &[u8], invalidate, solicited| What::Sent { message: message.into(), invalidate, solicited };
    let told = |c: &mut Connection| std::iter::from_fn(|| c.poll_operation().map(|o| o.what)).collect::<Vec<_>>();
    assert_eq!(
        told(&mut client),
        [
            sent(b"keys", None, true),
            done(None),
            What::Received { message: b"done".into(), invalidated: Some(sink.key) },
            What::Disconnected { by_peer: false },
        ]
    );
    assert_eq!(next(&mut server), Event::Closed(Ended::ByPeer));
    assert_eq!(
        told(&mut server),
        [
            What::Received { message: b"keys".into(), invalidated: None },
            What::Wrote { key: sink.key, offset: sink.offset, data: vec![7; 90] },
            What::Asked { key: source.key, offset: source.offset, length: 100 },
            sent(b"done", Some(sink.key), false),
            done(None),
            done(Some((0..100).collect())),
            done(None),
            What::Disconnected { by_peer: true },
        ]
    );
    // without `watch`, nothing is reported
    let (mut client, _server) = pair(verbs, "127.0.0.1", Options::default());
    client.send(b"x", None, false).unwrap();
    assert_eq!(client.poll_operation(), None);
}
