//! Queue pairs that are in use again, by a connection whose handshake the capture lacks: a host started anew, and gives
//! its queue pairs the numbers of before.
//!
//! The PSNs of the new connection begin anywhere, so that they are far from those of the one before, in all likelihood.
//! But behind a long hole in the capture they are so, too. What tells one from the other:
//!
//! - the connection was closed;
//! - the packet begins a connection, or an upper layer: a Negotiate Request of SMB Direct, SMB2 NEGOTIATE (the NULL call
//!   with which a client of NFS begins is none: each further mount of the same connection has one);
//! - it begins a message of another protocol;
//! - its sender counts messages anew: their number (MSN) goes back, or on by more than the PSNs do;
//! - it answers what another queue pair sent.
//!
//! While none of that shows, the connection goes on without what it knew: see `IbFact::Jumped`.

use super::Pipeline;
use super::table::{ConnectionEnd, Flow, QpKey, Slot};
use crate::connection::facts::{JUMPED, Listener};
use crate::finding::Rule;
use crate::messages::is_of_another;
use crate::messages::smbd::{begins_connection, begins_smb2};
use crate::op::{At, End};
use crate::sink::Sink;
use crate::summary::Protocol;
use rdmascope_dissector::frame::IbPacket;
use rdmascope_dissector::wire::ib::bth;
use rdmascope_dissector::wire::smbd::NegotiateRequest;

impl Pipeline<dyn Sink> {
    /// True if a packet of a connection whose PSNs went far away is of another one.
    #[cold]
    pub(super) fn is_reused(
        &self,
        at: At,
        place: ConnectionEnd,
        key: &QpKey,
        ib: &IbPacket<'_>,
        row: &bth::Row,
    ) -> bool {
        let Some(slot) = self.table.get(place.slot) else { return false };
        let Flow::Ib(flow) = &slot.flow else { return false };
        if row.is_request() {
            return is_foreign(slot, place.end, row, ib);
        }
        let is_far = flow.is_far(place.end, false, ib.bth.psn);
        let answers_another =
            || is_far && self.halves.partner(&self.table, &self.env.options.pins, key, ib, row, false).is_some();
        is_far && slot.connection.closed.is_some() || flow.counts_anew(at, place.end, ib) || answers_another()
    }

    /// Another connection has the queue pairs of one from here on: what it sent is not missing from that one.
    #[cold]
    pub(super) fn end_reused(&mut self, slot: u32, at: At) {
        let Some(Slot { connection, flow: Flow::Ib(flow), .. }) = self.table.get_mut(slot) else { return };
        let id = Some(connection.id);
        flow.is_over(at, &mut Listener { connection, env: &mut self.env });
        self.env.findings.retain(|f| f.connection != id || f.rule != Rule::CaptureLoss || !f.text.starts_with(JUMPED));
    }
}

/// True if a request is none of its connection.
fn is_foreign(slot: &Slot, by: End, row: &bth::Row, ib: &IbPacket<'_>) -> bool {
    let Flow::Ib(flow) = &slot.flow else { return false };
    let connection = &slot.connection;
    let is_off = flow.is_off(by, ib.bth.psn);
    let begins = || connection.has_captured() && begins(connection.protocol(), row, ib);
    is_off && (connection.closed.is_some() && flow.is_far(by, true, ib.bth.psn) || begins())
        || (is_off || flow.has_jumped(by)) && changes_protocol(connection.protocol(), row, ib)
}

/// True if a packet begins a message of another protocol than that of its connection.
fn changes_protocol(protocol: Protocol, row: &bth::Row, ib: &IbPacket<'_>) -> bool {
    let is_only = row.part == bth::Part::Only;
    row.verb == bth::Verb::Send && row.is_first() && is_of_another(protocol, ib.payload, ib.payload_length, is_only)
}

/// True if a packet is a message with which a connection begins, or its upper layer.
fn begins(protocol: Protocol, row: &bth::Row, ib: &IbPacket<'_>) -> bool {
    if row.verb != bth::Verb::Send || row.part != bth::Part::Only {
        return false;
    }
    let is_upper = protocol == Protocol::SmbDirect && begins_smb2(ib.payload, ib.payload_length);
    is_upper || ib.payload_length >= NegotiateRequest::LEN as u32 && begins_connection(ib.payload, ib.payload_length)
}
