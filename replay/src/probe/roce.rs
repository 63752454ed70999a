//! Cases of the probe that need RoCEv2 in user space: what a card never sends. Each is a fault of [`crate::transport::roce::fault`], and what is to come of it.

use super::{Case, Run, Verdict, closed, encoded, request};
use crate::channel;
use crate::error::{Error, Result};
use crate::transport::Fabric;
use crate::transport::roce::fault::PacketFault;
use std::sync::Arc;

/// A fault that the server has to get over: everything comes to what was asked for.
macro_rules! goes_on {
    ($name:literal, $section:literal, $text:literal, $fault:literal) => {
        Case { name: $name, section: $section, text: $text, slow: false, dies_negotiating: false, run: |r| session(r, $fault) }
    };
}

/// One that ends the connection: the server serves on.
macro_rules! ends {
    ($name:literal, $section:literal, $text:literal, $fault:literal) => {
        Case { name: $name, section: $section, text: $text, slow: false, dies_negotiating: true, run: |r| broken(r, $fault) }
    };
}

#[rustfmt::skip]
pub(super) const CASES: &[Case] = &[
    goes_on!("Roce_Plain", "[IBA 1] 9.7", "a connection without a fault", "lose@1000000"),
    goes_on!("Roce_LostPackets", "[IBA 1] 9.7.5.2", "one packet in 20 is lost: a NAK or a timeout, and it is sent again", "lose@1/20"),
    goes_on!("Roce_RepeatedPackets", "[IBA 1] 9.7.1", "every packet comes twice: the copy does nothing", "repeat@1-"),
    goes_on!("Roce_ReorderedPackets", "[IBA 1] 9.7.5.2.8", "one packet in 10 comes behind the next", "reorder@1/10"),
    goes_on!("Roce_LatePacket", "[IBA 1] 9.7.5.2.8", "a packet comes 50 ms late", "delay@4"),
    goes_on!("Roce_WrongPsn", "[IBA 1] 9.7.5.2.8", "a packet number that is 1000 ahead is answered with a NAK for the number expected", "wrong-psn@3"),
    goes_on!("Roce_WrongIcrc", "[IBA 1] 7.8.1", "a packet with a wrong invariant CRC is dropped", "wrong-icrc@3"),
    goes_on!("Roce_WrongPKey", "[IBA 1] 9.6.1.1.3", "a packet of another partition is dropped", "wrong-pkey@3"),
    goes_on!("Roce_WrongQueuePair", "[IBA 1] 9.6.1.1.1", "a packet to a queue pair that is not there is dropped", "wrong-qp@3"),
    goes_on!("Roce_SequenceNak", "[IBA 1] 9.7.5.2.8", "after a NAK for a missing packet all from there on comes again", "nak-sequence@3"),
    goes_on!("Roce_AckOfUnsent", "[IBA 1] 9.7.5.1", "an acknowledgement of what was not sent is nothing", "ack-unsent@2"),
    goes_on!("Roce_LostReadResponse", "[IBA 1] 9.7.5.1.6", "what is missing of an answer to an RDMA Read is asked for again", "lose-response@2"),
    goes_on!("Roce_ReorderedReadResponse", "[IBA 1] 9.7.5.1.6", "packets of an answer to an RDMA Read in the wrong order", "reorder-response@2"),
    goes_on!("Roce_Congestion", "[IBA 1] A17.9", "packets with the mark of congestion are taken", "congested@1-"),
    goes_on!("Roce_CnpFlood", "[IBA 1] A17.9", "a notification of congestion before every packet", "cnp-flood@1-"),
    ends!("Roce_InvalidRequestNak", "[IBA 1] 9.7.5.2.8", "a NAK of an invalid request ends the connection, and the server serves on", "nak-invalid@2"),
    ends!("Roce_AccessNak", "[IBA 1] 9.7.5.2.8", "a NAK of remote access ends the connection, and the server serves on", "nak-access@2"),
    ends!("Roce_NeverReady", "[IBA 1] 9.7.5.2.8", "a client that never has a receive does not stop the server", "rnr@2-"),
    ends!("Roce_NeverAcknowledges", "[IBA 1] 9.7.6.1.3", "a client that never acknowledges does not stop the server", "no-ack@2-"),
    ends!("Roce_DisconnectsAtOnce", "[IBA 1] 12.9.8", "a client that disconnects as soon as it is connected does not stop the server", "cm-disconnect"),
];

fn faulty(r: &Run<'_>, fault: &str) -> std::result::Result<Arc<dyn Fabric>, Verdict> {
    let fault = fault.parse::<PacketFault>().map_err(|e| Verdict::Fail(e.to_string()))?;
    let transport = r.target.config.transport.with_packet_fault(fault, 0x5eed);
    transport.ok_or_else(|| Verdict::NotApplicable("it needs --transport roce".into()))
}

/// A session that reads over RDMA: every reply comes, and every byte.
fn session(r: &mut Run<'_>, fault: &str) -> Result<Verdict> {
    match faulty(r, fault) {
        Ok(transport) => r.over(transport, |r| r.reads_large()),
        Err(verdict) => Ok(verdict),
    }
}

/// A negotiation that comes to nothing, and another client's that does not suffer.
fn broken(r: &mut Run<'_>, fault: &str) -> Result<Verdict> {
    let config = match faulty(r, fault) {
        Ok(transport) => channel::Config { transport, ..r.target.config.clone() },
        Err(verdict) => return Ok(verdict),
    };
    match r.connect_with(&config) {
        Ok(mut channel) => {
            let now = channel.now();
            channel.stack().send_raw(now, encoded(&request()));
            // how it ends is the server's affair
            let _ = closed(&mut channel)?;
        }
        Err(Error::Ended(_)) => {}
        Err(e) => return Err(e),
    }
    r.serves_on()
}
