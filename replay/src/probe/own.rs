//! Runs the cases that one transport alone can run.

use super::{Run, Verdict, accepted_on, closed, encoded, negotiated_on, next, request};
use crate::error::{Error, Result};
use crate::stack::{self, EndReason};
use crate::transport::case::Steps;
use crate::transport::packet_fault::PacketFault;
use crate::transport::{Fabric, Transport, Why};
use std::sync::Arc;
use std::time::Duration;

/// Seed of random decisions.
const SEED: u64 = 0x5eed;

pub(super) fn run(r: &mut Run<'_>, steps: Steps) -> Result<Verdict> {
    match steps {
        Steps::Negotiates { options, rejected } => negotiates(r, options, rejected),
        Steps::Trickles(bytes) => {
            let mut channel = r.connect()?;
            channel.trickle(bytes);
            accepted_on(channel, &encoded(&request()))
        }
        Steps::HalfCloses => {
            let (mut channel, _) = r.negotiated(request())?;
            channel.half_close()?;
            let _ = next(&mut channel, Duration::from_secs(1))?;
            drop(channel);
            r.serves_on()
        }
        Steps::Breaks(spoil) => breaks(r, spoil),
        Steps::Reads(fault) => match faulty(r, fault) {
            Ok(transport) => r.over(transport, |r| r.reads_large()),
            Err(verdict) => Ok(verdict),
        },
        Steps::Writes(fault) => match faulty(r, fault) {
            Ok(transport) => r.over(transport, |r| r.writes_large()),
            Err(verdict) => Ok(verdict),
        },
        Steps::FailsToNegotiate(fault) => fails_to_negotiate(r, fault),
        Steps::FailsToWrite(fault) => fails_to_write(r, fault),
    }
}

/// A connection over a transport with other options; a rejection is an answer as well.
fn negotiates(r: &mut Run<'_>, options: fn(&dyn Fabric) -> Arc<dyn Fabric>, rejected: &str) -> Result<Verdict> {
    let target = &r.target.config;
    let config = stack::Config { transport: options(&*target.transport), ..target.clone() };
    match r.connect_with(&config) {
        Ok(channel) => accepted_on(channel, &encoded(&request())),
        Err(Error::Ended(EndReason::Transport(ended))) if ended.why == Why::Rejected => {
            Ok(Verdict::NotApplicable(rejected.into()))
        }
        Err(e) => Err(e),
    }
}

/// Breaks a rule of the transport after a negotiation: the connection must end, and the server must continue to serve.
fn breaks(r: &mut Run<'_>, spoil: fn(&mut dyn Transport)) -> Result<Verdict> {
    let mut config = r.target.config.clone();
    config.transport = config.transport.with_checksums().unwrap_or(config.transport);
    let channel = r.connect_with(&config)?;
    let (mut channel, _) = negotiated_on(channel, request())?;
    spoil(channel.stack().transport());
    match closed(&mut channel)? {
        Verdict::Pass => r.serves_on(),
        other => Ok(other),
    }
}

/// The transport with a fault of packets.
fn faulty(r: &Run<'_>, fault: &str) -> std::result::Result<Arc<dyn Fabric>, Verdict> {
    let fault = fault.parse::<PacketFault>().map_err(|e| Verdict::Fail(e.to_string()))?;
    let transport = r.target.config.transport.with_packet_fault(fault, SEED);
    transport.ok_or_else(|| Verdict::NotApplicable("the transport does not make this fault".into()))
}

/// A session whose WRITE fails, and another client's, which must not be affected.
fn fails_to_write(r: &mut Run<'_>, fault: &str) -> Result<Verdict> {
    let transport = match faulty(r, fault) {
        Ok(transport) => transport,
        Err(verdict) => return Ok(verdict),
    };
    match r.over(transport, |r| r.writes_large()) {
        Ok(Verdict::Pass) => return Ok(Verdict::Fail("answered with success".into())),
        Ok(verdict @ Verdict::NotApplicable(_)) => return Ok(verdict),
        // the server may end it in any way
        Ok(_) | Err(_) => {}
    }
    r.serves_on()
}

/// A negotiation that fails, and another client's, which must not be affected.
fn fails_to_negotiate(r: &mut Run<'_>, fault: &str) -> Result<Verdict> {
    let config = match faulty(r, fault) {
        Ok(transport) => stack::Config { transport, ..r.target.config.clone() },
        Err(verdict) => return Ok(verdict),
    };
    match r.connect_with(&config) {
        Ok(mut channel) => {
            let now = channel.now();
            channel.stack().send_raw(now, encoded(&request()));
            // the server may end it in any way
            let _ = closed(&mut channel)?;
        }
        Err(Error::Ended(_)) => {}
        Err(e) => return Err(e),
    }
    r.serves_on()
}
