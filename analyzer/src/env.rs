//! What all connections of an analysis share: options, findings, counters, and who listens.

use crate::exchange::Exchange;
use crate::finding::{Blame, Certainty, Findings, Rule, Severity, Site};
use crate::keys::Keyring;
use crate::notes::{Broken, FrameNotes};
use crate::sink::Sink;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::fmt;

/// How to analyze.
#[derive(Clone, Debug)]
pub struct Options {
    /// Verify the invariant CRC of every packet and the CRC of every FPDU.
    pub check_crc: bool,
    /// Put payloads together and hash them.
    pub payloads: bool,
    /// Connections followed at the same time at most.
    pub connections_max: usize,
    /// Connections that ended in the report at most.
    pub report_max: usize,
    /// Whether those beyond that are added up, the oldest first, rather than left out: for an analysis that has no end.
    pub fold: bool,
    /// Unanswered requests remembered per connection at most.
    pub requests_max: usize,
    /// Exchanges in the list of the slowest.
    pub slowest_max: usize,
    /// Queue pairs that the user says belong together.
    pub pins: Vec<(u32, u32)>,
    /// Keys and passwords to decrypt and verify with; empty for none.
    pub keyring: Keyring,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            check_crc: true,
            payloads: false,
            connections_max: 4096,
            report_max: 10_000,
            fold: false,
            requests_max: 16_384,
            slowest_max: 10,
            pins: Vec::new(),
            keyring: Keyring::new(),
        }
    }
}

pub use crate::notes::Layer;

/// Shared by all connections of an analysis.
#[derive(Debug)]
pub struct Env<S> {
    /// How to analyze.
    pub options: Options,
    /// Broken rules.
    pub findings: Findings,
    /// Who listens.
    pub sink: S,
    /// What is made of the frame at hand.
    pub frame: FrameNotes,
    /// The number that the next exchange gets.
    pub next_exchange: u64,
    /// Packets that the capture lost.
    pub lost_by_capture: u64,
    /// Frames of followed connections that could not be decoded.
    pub undecoded: u64,
    /// Requests forgotten because there were too many.
    pub requests_dropped: u64,
    /// SMB sessions by id and the connections that carry them.
    pub sessions: Vec<(u64, Vec<u32>)>,
    /// The slowest exchanges.
    pub slowest: Vec<Exchange>,
}

impl<S: Sink> Env<S> {
    /// Before the first frame.
    pub fn new(options: Options, sink: S) -> Self {
        Self {
            options,
            findings: Findings::default(),
            sink,
            frame: FrameNotes::default(),
            next_exchange: 1,
            lost_by_capture: 0,
            undecoded: 0,
            requests_dropped: 0,
            sessions: Vec::new(),
            slowest: Vec::new(),
        }
    }

    /// The frame at hand was understood up to `layer`.
    #[inline]
    pub fn layer(&mut self, layer: Layer) {
        self.frame.understood(layer);
    }

    /// A rule was found broken.
    pub fn report(&mut self, rule: Rule, by: Blame, site: Site, certainty: Certainty, text: fmt::Arguments<'_>) {
        self.report_as(rule.row().severity, rule, by, site, certainty, text);
    }

    /// The same, with a severity of its own.
    pub fn report_as(&mut self, severity: Severity, rule: Rule, by: Blame, site: Site, certainty: Certainty, text: fmt::Arguments<'_>) {
        if self.frame.is_observed(site.frame) {
            self.frame.broken(Broken { rule, severity, by, certainty, text: text.to_string() });
        }
        self.report_later(severity, rule, by, site, certainty, text);
    }

    /// The same for a rule that was broken in an earlier frame, which was told of it then.
    pub fn report_later(&mut self, severity: Severity, rule: Rule, by: Blame, site: Site, certainty: Certainty, text: fmt::Arguments<'_>) {
        if let Some(first) = self.findings.report_as(severity, rule, by, site, certainty, text) {
            self.sink.finding(first);
        }
    }

    /// The number for a new exchange.
    pub fn number_exchange(&mut self) -> u64 {
        let id = self.next_exchange;
        self.next_exchange += 1;
        id
    }

    /// An SMB session was seen on a connection.
    pub fn session(&mut self, session: u64, connection: u32) {
        const SESSIONS_MAX: usize = 1024;
        if let Some((_, connections)) = self.sessions.iter_mut().find(|(s, _)| *s == session) {
            if !connections.contains(&connection) && connections.len() < 64 {
                connections.push(connection);
            }
        } else if self.sessions.len() < SESSIONS_MAX {
            self.sessions.push((session, alloc::vec![connection]));
        }
    }

    /// An exchange is complete: kept if it is among the slowest.
    pub fn complete(&mut self, exchange: &Exchange) {
        self.sink.exchange(exchange);
        let Some(latency) = exchange.latency() else { return };
        let max = self.options.slowest_max;
        let is_among = self.slowest.len() < max || self.slowest.last().and_then(Exchange::latency).is_none_or(|least| least < latency);
        if max == 0 || !is_among {
            return;
        }
        let place = self.slowest.partition_point(|e| e.latency().unwrap_or(0) >= latency);
        self.slowest.insert(place, exchange.clone());
        self.slowest.truncate(max);
    }
}
