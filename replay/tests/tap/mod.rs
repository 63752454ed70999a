//! Shared by the tests of our own ends: a peer, and the analysis of a capture.
// each test program has its own use for this
#![allow(dead_code)]

use rdmascope_analyzer::env::Options;
use rdmascope_analyzer::exchange::Exchange;
use rdmascope_analyzer::pipeline::{FrameMeta, Pipeline};
use rdmascope_analyzer::report::{Report, Sink};
use rdmascope_capture::{OpenOptions, Source, open};
use rdmascope_dissector::trace::Off;
use rdmascope_replay::smb2::server::{Share, serve};
use rdmascope_replay::stack::Config;
use rdmascope_replay::wire::Wire;
use std::fs::File;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A file for our own wire.
pub(crate) fn kept(path: &Path) -> Wire {
    Wire::new(Box::new(File::create(path).unwrap()), "wire").unwrap()
}

/// A peer over loopback that serves until the test ends.
pub(crate) fn serving(share: Share) -> SocketAddr {
    serving_over(share, &Config::default(), "127.0.0.1")
}

/// The same over any transport, on an address of this host.
pub(crate) fn serving_over(share: Share, config: &Config, host: &str) -> SocketAddr {
    let (share, config) = (Arc::new(share), config.clone());
    let mut listener = config.transport.listen(format!("{host}:0").parse().unwrap()).unwrap();
    let address = listener.address();
    std::thread::spawn(move || {
        loop {
            let Some(request) = listener.next(Duration::from_secs(60)).unwrap() else { continue };
            let (share, config) = (share.clone(), config.clone());
            std::thread::spawn(move || serve(request, share, &config));
        }
    });
    address
}

/// Result of analyzing a capture.
pub(crate) struct Tap {
    pub(crate) report: Report,
    /// In the order of their requests.
    pub(crate) exchanges: Vec<Exchange>,
    /// By frame.
    pub(crate) comments: Vec<Vec<String>>,
    /// Descriptions of its interfaces.
    pub(crate) descriptions: Vec<String>,
}

#[derive(Default)]
struct Exchanges(Vec<Exchange>);

impl Sink for Exchanges {
    fn exchange(&mut self, exchange: &Exchange) {
        self.0.push(exchange.clone());
    }
}

pub(crate) fn analyze(path: &Path, options: Options) -> Tap {
    let mut pipeline = Pipeline::with_sink(options, Exchanges::default());
    let mut capture = open(path, OpenOptions::new()).unwrap();
    let mut comments = Vec::new();
    while let Some(record) = capture.next().unwrap() {
        comments.push(record.comments().map(|c| c.to_string()).collect());
        let (time_ns, link_type, wire_len, interface) =
            (record.time_ns, record.link_type, record.wire_len, record.interface);
        let meta = FrameMeta { number: comments.len() as u64, time_ns, link_type, wire_len, interface };
        pipeline.frame(&meta, record.bytes, &mut Off);
    }
    let descriptions = capture.metadata().interfaces.iter().filter_map(|i| i.description.clone()).collect();
    let (report, mut kept) = pipeline.finish();
    kept.0.sort_by_key(|e| e.id);
    Tap { report, exchanges: kept.0, comments, descriptions }
}

impl Tap {
    /// The findings, but for those of these rules.
    pub(crate) fn said_but(&self, known: &[&str]) -> Vec<String> {
        let unknown = self.report.findings.iter().filter(|f| !known.contains(&f.rule.id()));
        unknown.map(|f| format!("{}: {f:?}", f.rule.id())).collect()
    }
}
