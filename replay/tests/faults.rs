//! A client against every fault of a peer: a clear verdict, in time, and no writes to wrong places.

use rdmascope_dissector::wire::smb2::rdma_channel::Channel as RdmaChannel;
use rdmascope_replay::error::{Error, Result};
use rdmascope_replay::fault::{FAULTS, Fault};
use rdmascope_replay::iwarp::{self, Iwarp};
use rdmascope_replay::smb2::Credentials;
use rdmascope_replay::smb2::client::{Client, Options, access, disposition};
use rdmascope_replay::smb2::server::{Share, Users};
use rdmascope_replay::smb2::storage::Storage;
use rdmascope_replay::smbd::SECOND;
use rdmascope_replay::stack::{Config, SmbDirect};
use rdmascope_replay::transport::Rights;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Time limit for anything that must happen, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
const FILE: &[u8] = &[0x77; 100_000];

fn peer(fault: &'static Fault, config: Config, address: &str) -> SocketAddr {
    let share =
        Arc::new(Share::new("share", Storage::memory([("file".to_owned(), FILE.to_vec())]), true, Users::Guests));
    let mut listener = config.transport.listen(address.parse().unwrap()).unwrap();
    let address = listener.address();
    thread::spawn(move || {
        let request = listener.next(PATIENCE).unwrap().unwrap();
        // the client's going away is the end of it
        let _ = fault.serve(request, share, &config);
    });
    address
}

/// Reads if `reads`, else writes. Returns the result, and whether memory that the peer does not know is unchanged.
fn session(address: SocketAddr, mut config: Config, fault: &str, reads: bool) -> (Result<usize>, bool) {
    // only the step that gets no answer has a short time limit: on a busy machine all others may take longer
    if fault == "silent" {
        config = Config::over(Iwarp(iwarp::Config { startup_timeout: 2 * SECOND, ..iwarp::Config::default() }));
    }
    if matches!(fault, "stall" | "deaf") {
        // the verdict on a keepalive comes after 1 + 5 s
        config.smbd.keepalive = SECOND;
    }
    let timeout = match fault {
        "no-negotiate" => Duration::from_secs(3),
        "refuse-credits" => Duration::from_secs(9),
        _ => PATIENCE,
    };
    let options = Options { timeout, ..Options::default() };
    let mut canary = None;
    let mut done = || -> Result<usize> {
        let channel = SmbDirect::connect(address, &config, PATIENCE)?;
        let mut client = Client::negotiate(channel, options.clone())?;
        client.session_setup(&Credentials::Anonymous)?;
        client.tree_connect("127.0.0.1", "share")?;
        let file = client.create("file", access::READ | access::WRITE, disposition::OPEN, 0)?;
        let region = client.channel().stack().register(vec![1; 4096], Rights::REMOTE_WRITE).ok_or(Error::Memory)?;
        if fault == "stall" {
            client.options_mut().timeout = Duration::from_secs(9);
        }
        let result = if reads {
            client.read_rdma(file.id, 0, 50_000, RdmaChannel::RDMA_V1_INVALIDATE).and_then(|read| {
                if read.data == FILE[..read.data.len()] {
                    Ok(read.data.len())
                } else {
                    Err(Error::Answer { what: "READ", why: "has other contents" })
                }
            })
        } else {
            client
                .write_rdma(file.id, 0, vec![2; 50_000], RdmaChannel::RDMA_V1_INVALIDATE)
                .map(|(count, _)| count as usize)
        };
        canary = client.channel().stack().deregister(region.key);
        let wrong = client.signatures.wrong;
        // the next request shows an error that follows a correct answer
        let result = result.and_then(|n| if fault == "stale-key" { client.echo().map(|()| n) } else { Ok(n) });
        result.and_then(|n| {
            if wrong > 0 { Err(Error::Answer { what: "READ", why: "has a wrong signature" }) } else { Ok(n) }
        })
    };
    let result = done();
    (result, canary.is_none_or(|bytes| bytes.iter().all(|b| *b == 1)))
}

/// The verdict for READ, and for WRITE if it differs.
fn verdict(name: &str) -> (&'static str, &'static str) {
    match name {
        "silent" => ("sent no MPA frame in time", ""),
        "reject" => ("refused the connection in its MPA Reply", ""),
        "not-mpa" => ("does not speak MPA", ""),
        "no-negotiate" => ("no answer to the SMB Direct negotiation within 3 s", ""),
        "refuse-negotiate" => ("refused SMB Direct with status 0xc00000bb", ""),
        "short-negotiate" => ("a message of 31 bytes, which is shorter than its header", ""),
        "no-credits" => ("SMBD-NEG-RSP-GRANTED", ""),
        "small-fragments" => ("SMBD-NEG-RSP-FRAGSIZE", ""),
        "byte-at-a-time" => ("50000", ""),
        "refuse-credits" => ("the peer grants no SMB Direct credits", ""),
        "grant-too-much" => ("SMBD-CREDIT-OVERFLOW", ""),
        "stall" => ("no answer to READ within 9 s", "no answer to WRITE within 9 s"),
        "deaf" => ("did not answer a keepalive within 5 s", ""),
        "half-close" => ("the peer closed the connection", ""),
        "die" => ("closed the connection in the middle of a message", ""),
        "garbage" | "bad-crc" => ("MPA CRC does not match", ""),
        "wrong-msn" => ("Invalid MSN", ""),
        "bad-lengths" => ("SMBD-DATA-LENGTH", ""),
        "bad-offset" => ("SMBD-DATA-ALIGN", ""),
        "bad-remaining" => ("SMBD-FRAG-REMAINING", ""),
        "too-long" => ("SMBD-DATA-TOO-BIG", ""),
        "not-smb2" => ("is not an SMB2 message", ""),
        "wrong-signature" => ("STATUS_ACCESS_DENIED", ""),
        "wrong-key" => ("DDP: Tagged Buffer Error: Invalid STag", ""),
        "out-of-bounds" => (
            "DDP: Tagged Buffer Error: Base or bounds violation",
            "RDMA: Remote Protection Error: Base or bounds violation",
        ),
        "wrong-rights" => ("RDMA: Remote Protection Error: Access rights violation", ""),
        "not-given" => ("RDMA: Remote Protection Error: Invalid STag", ""),
        "stale-key" => ("DDP: Tagged Buffer Error: Invalid STag", ""),
        "wrong-invalidate" => ("RDMA: Remote Protection Error: STag cannot be Invalidated", ""),
        "lie" => ("does not say how many bytes RDMA wrote", "50000"),
        "too-much" => ("reports more bytes written than were asked for", "reports more bytes than were written"),
        _ => ("no verdict", ""),
    }
}

#[test]
fn every_fault_has_a_clear_verdict_in_time() {
    all(FAULTS.iter(), &Config::default(), |_| "127.0.0.1:0".to_owned(), verdict);
}

/// SMB Direct and above only: faults of packets are tested in `roce.rs`.
#[test]
#[cfg(target_os = "linux")]
fn every_fault_above_packets_has_the_same_verdict_over_roce() {
    let config = Config::over(rdmascope_replay::roce::Roce::default());
    // a port for each: a process that has them all takes turns at one
    let process = std::process::id();
    let host = |n: usize| format!("127.{}.{}.{}:0", 16 + n, process >> 8 & 0xff, process & 0xff | 1);
    let faults = FAULTS.iter().filter(|fault| fault.works_over(config.transport.kind()));
    assert!(faults.clone().count() > 15);
    all(faults, &config, host, |name| match name {
        "wrong-key" | "out-of-bounds" | "wrong-rights" | "not-given" | "stale-key" | "wrong-invalidate" => {
            ("Remote Access Error", "")
        }
        name => verdict(name),
    });
}

fn all(
    faults: impl Iterator<Item = &'static Fault>,
    config: &Config,
    address: impl Fn(usize) -> String,
    verdict: impl Fn(&str) -> (&'static str, &'static str),
) {
    let runs: Vec<_> = faults
        .flat_map(|fault| [(fault, true), (fault, false)])
        .enumerate()
        .map(|(n, (fault, reads))| {
            let (config, address) = (config.clone(), address(n));
            thread::spawn(move || {
                let begun = Instant::now();
                let (result, untouched) = session(peer(fault, config.clone(), &address), config, fault.name, reads);
                (fault.name, reads, result, untouched, begun.elapsed())
            })
        })
        .collect();
    let mut bad = Vec::new();
    for run in runs {
        let (name, reads, result, untouched, took) = run.join().unwrap();
        let (read, write) = verdict(name);
        let expected = if reads || write.is_empty() { read } else { write };
        let said = match result {
            Ok(bytes) => bytes.to_string(),
            Err(e) => e.to_string(),
        };
        if !said.contains(expected) || !untouched || took > PATIENCE {
            bad.push(format!(
                "{name} {}: {said}, untouched {untouched}, {took:?}",
                if reads { "READ" } else { "WRITE" }
            ));
        }
    }
    assert!(bad.is_empty(), "{bad:#?}");
}
