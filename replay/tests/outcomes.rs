//! Analysis of connections whose server has a fault, from the captures of the client and of the server: the outcome,
//! and the rule and side of the first finding. Without a fault, or with a harmless one, there must be no warning.

use rdmascope_analyzer::env::Options as Analysis;
use rdmascope_analyzer::finding::Blame;
use rdmascope_analyzer::outcome::Success;
use rdmascope_analyzer::pipeline::{FrameMeta, Pipeline};
use rdmascope_analyzer::report::Report;
use rdmascope_analyzer::roots::roots;
use rdmascope_analyzer::rules::{Rule, Severity};
use rdmascope_capture::{OpenOptions, Source};
use rdmascope_dissector::trace::Off;
use rdmascope_dissector::wire::smb2::rdma_channel::Channel as RdmaChannel;
use rdmascope_replay::error::Result as Tried;
use rdmascope_replay::fault::{FAULTS, Fault};
use rdmascope_replay::iwarp::{self, Iwarp};
use rdmascope_replay::smb2::Credentials;
use rdmascope_replay::smb2::client::{Client, Options, access, disposition};
use rdmascope_replay::smb2::server::{Share, Users, serve};
use rdmascope_replay::smb2::storage::Storage;
use rdmascope_replay::smbd::SECOND;
use rdmascope_replay::stack::{Config, SmbDirect};
use rdmascope_replay::wire::Wire;
use std::fs::File;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Time limit for anything that must happen, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
const FILE: &[u8] = &[0x77; 100_000];

fn share() -> Arc<Share> {
    Arc::new(Share::new("share", Storage::memory([("file".to_owned(), FILE.to_vec())]), true, Users::Guests))
}

/// A server with a fault, or without one, that keeps its wire in a file.
fn peer(fault: Option<&'static Fault>, path: &Path) -> (SocketAddr, thread::JoinHandle<()>) {
    let wire = Wire::new(Box::new(File::create(path).unwrap()), "wire").unwrap();
    let config = Config { wire: Some(wire.clone()), ..Config::default() };
    let mut listener = config.transport.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.address();
    let serving = thread::spawn(move || {
        let request = listener.next(PATIENCE).unwrap().unwrap();
        // the client's going away is the end of it
        let _ = match fault {
            Some(fault) => fault.serve(request, share(), &config),
            None => serve(request, share(), &config),
        };
        wire.flush().unwrap();
    });
    (address, serving)
}

/// A session that reads or writes, kept in a file.
fn session(address: SocketAddr, fault: &str, reads: bool, path: &Path) {
    let mut config = Config::default();
    if fault == "silent" {
        config = Config::over(Iwarp(iwarp::Config { startup_timeout: 2 * SECOND, ..iwarp::Config::default() }));
    }
    config.wire = Some(Wire::new(Box::new(File::create(path).unwrap()), "wire").unwrap());
    if matches!(fault, "stall" | "deaf") {
        config.smbd.keepalive = SECOND;
    }
    let timeout = match fault {
        "no-negotiate" => Duration::from_secs(3),
        "refuse-credits" => Duration::from_secs(9),
        _ => PATIENCE,
    };
    let options = Options { timeout, ..Options::default() };
    let work = || -> Tried<()> {
        let channel = SmbDirect::connect(address, &config, PATIENCE)?;
        let mut client = Client::negotiate(channel, options)?;
        client.session_setup(&Credentials::Anonymous)?;
        client.tree_connect("127.0.0.1", "share")?;
        let file = client.create("file", access::READ | access::WRITE, disposition::OPEN, 0)?;
        if fault == "stall" {
            client.options_mut().timeout = Duration::from_secs(9);
        }
        if reads {
            client.read_rdma(file.id, 0, 50_000, RdmaChannel::RDMA_V1_INVALIDATE)?;
        } else {
            client.write_rdma(file.id, 0, vec![2; 50_000], RdmaChannel::RDMA_V1_INVALIDATE)?;
        }
        if fault == "stale-key" {
            client.echo()?;
        }
        Ok(())
    };
    let _ = work();
    if let Some(wire) = config.wire {
        wire.flush().unwrap();
    }
}

fn analyze(path: &Path) -> Report {
    let mut capture = rdmascope_capture::open(path.to_str().unwrap(), OpenOptions::default()).unwrap();
    let mut pipeline = Pipeline::new(Analysis::default());
    let mut number = 0;
    while let Some(record) = capture.next().unwrap() {
        number += 1;
        let meta = FrameMeta {
            number,
            time_ns: record.time_ns,
            link_type: record.link_type,
            wire_len: record.wire_len,
            interface: record.interface,
        };
        pipeline.frame(&meta, record.bytes, &mut Off);
    }
    pipeline.finish().0
}

/// Of READ and WRITE: how the connection ended, and the rule and the side of the first finding.
fn expected(fault: &str) -> (&'static str, Rule, Blame) {
    use Blame::{Server, Unknown};
    match fault {
        "silent" | "not-mpa" => ("no_transport", Rule::MpaStartup, Server),
        "reject" => ("refused", Rule::MpaReject, Server),
        "no-negotiate" => ("no_negotiation", Rule::SmbdNegTimeout, Server),
        "refuse-negotiate" => ("no_negotiation", Rule::SmbdNegRspStatus, Server),
        "short-negotiate" => ("no_negotiation", Rule::SmbdNegRspLength, Server),
        "no-credits" => ("no_negotiation", Rule::SmbdNegRspGranted, Server),
        "small-fragments" => ("no_negotiation", Rule::SmbdNegRspFragsize, Server),
        "refuse-credits" => ("out_of_credits", Rule::SmbdCreditExhausted, Server),
        // its two grants of all credits are sent without a credit of its own
        "grant-too-much" => ("no_answer", Rule::SmbdCreditOverrun, Server),
        "stall" | "deaf" => ("hung_up", Rule::Smb2Unanswered, Server),
        "half-close" | "die" => ("hung_up", Rule::CmDisconnect, Server),
        // damage in transit and a wrong checksum look alike: nobody is blamed
        "bad-crc" => ("hung_up", Rule::MpaCrc, Unknown),
        "wrong-msn" => ("hung_up", Rule::DdpMsn, Server),
        "bad-lengths" => ("hung_up", Rule::SmbdDataLength, Server),
        "bad-offset" => ("hung_up", Rule::SmbdDataAlign, Server),
        "bad-remaining" => ("hung_up", Rule::SmbdFragRemaining, Server),
        "too-long" => ("hung_up", Rule::SmbdDataTooBig, Server),
        "not-smb2" => ("hung_up", Rule::Smb2Malformed, Server),
        "wrong-key" | "not-given" => ("hung_up", Rule::RdmaKeyUnknown, Server),
        "out-of-bounds" => ("hung_up", Rule::RdmaKeyBounds, Server),
        "wrong-rights" => ("hung_up", Rule::RdmaKeyDirection, Server),
        // the reply invalidated the key, which is used after that
        "stale-key" => ("aborted", Rule::RdmaKeyStale, Server),
        "wrong-invalidate" => ("aborted", Rule::RdmaInvalidate, Server),
        "lie" | "too-much" => ("closed", Rule::RdmaLength, Server),
        // the only READ, or WRITE, is refused
        "wrong-signature" => ("closed", Rule::AllFailed, Unknown),
        fault => panic!("nothing is expected of {fault}"),
    }
}

/// Compares the report with the expectation for a fault, or for none.
fn compare(fault: &str, report: &Report) -> Result<(), String> {
    let [connection] = &report.connections[..] else { return Err(format!("{} connections", report.connections.len())) };
    let outcome = connection.outcome.as_ref().ok_or("no outcome")?;
    let roots = roots(report);
    if matches!(fault, "none" | "byte-at-a-time") {
        let is_well = outcome.success == Success::Yes && roots.is_empty();
        // the criterion of `analyze --fail-on warn`
        let is_well = is_well && report.findings.worst() < Some(Severity::Warn);
        return if is_well { Ok(()) } else { Err(format!("is no fault: {outcome:?}, {roots:?}")) };
    }
    let first = roots.first().ok_or("nothing was found")?;
    let start = report.capture.first.map_or(0, |at| at.time);
    if report.findings.worst()
        < Some(first.severity.max(if outcome.failed() { Severity::Error } else { Severity::Warn }))
    {
        return Err(format!("the worst finding is {:?}", report.findings.worst()));
    }
    let said = format!("{}, {} {}: {}", outcome.ending.name(), first.by.name(), first.rule, first.title(start));
    if fault == "garbage" {
        // bytes that are not an FPDU are reported by their receiver
        return if outcome.failed() && first.rule == Rule::RdmapTerminate { Ok(()) } else { Err(said) };
    }
    if (outcome.ending.name(), first.rule, first.by) != expected(fault) {
        return Err(said);
    }
    let fails = outcome.ending.name() != "closed";
    if outcome.failed() != fails || fails && (first.severity != Severity::Error || first.fatal.is_none()) {
        return Err(format!("{said}, {:?}", first.severity));
    }
    Ok(())
}

#[test]
fn every_fault_is_named_with_its_outcome_its_rule_and_its_side() {
    let folder = tempfile::tempdir().unwrap();
    let runs: Vec<_> = FAULTS
        .iter()
        .map(Some)
        .chain([None])
        .flat_map(|fault| [(fault, true), (fault, false)])
        .map(|(fault, reads)| {
            let name = fault.map_or("none", |fault| fault.name);
            let paths = ["client", "server"].map(|end| folder.path().join(format!("{name}-{reads}-{end}.pcapng")));
            thread::spawn(move || {
                let (address, serving) = peer(fault, &paths[1]);
                session(address, name, reads, &paths[0]);
                serving.join().unwrap();
                (name, reads, paths.map(|path| analyze(&path)))
            })
        })
        .collect();
    let mut wrong = Vec::new();
    for run in runs {
        let (name, reads, reports) = run.join().unwrap();
        for (report, end) in reports.iter().zip(["client", "server"]) {
            if let Err(what) = compare(name, report) {
                wrong.push(format!("{name} {} at the {end}: {what}", if reads { "READ" } else { "WRITE" }));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
