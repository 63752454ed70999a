//! Faults of an end below its messages: one row each. They are applied when packets leave, so that everything above
//! behaves correctly.

use super::packet::{self, ICRC, MASK_24, Packet, Path};
use crate::transport::Time;
use crate::transport::packet_fault::{FaultRow, PacketFault, Tally, When};
use rdmascope_dissector::wire::ib::bth::{Bth, Opcode, Verb};
use rdmascope_dissector::wire::ib::cm::RejectReason;
use rdmascope_dissector::wire::ib::ext::{NAK, NakCode, RNR_NAK};
use rdmascope_dissector::wire::ib::mad::QP1;
use std::collections::VecDeque;

/// A kind of fault: what is known of it, and what is done.
#[derive(Clone, Copy, Debug)]
struct Row {
    fault: FaultRow,
    kind: Kind,
    act: Act,
}

/// Packets to which a fault applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// All but those of the communication manager.
    Data,
    /// Acknowledgements.
    Acknowledge,
    /// Packets of an answer to a read.
    Response,
    /// Management datagrams.
    Management,
    /// The answer to the other end's REQ or REP: a REP, a REJ.
    Reply,
    /// Requests of the other end.
    Request,
    /// Once, when both ends agreed.
    Established,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Lose,
    Repeat,
    /// The packet is sent after the next one.
    Reorder,
    /// The packet is sent this number of ns later.
    Delay(i64),
    Psn(u32),
    Crc,
    PKey,
    QueuePair,
    /// In place of an answer.
    Refuse(u8),
    /// Bytes more or less of payload.
    Length(i8),
    Mark,
    Notify,
    Reject(RejectReason),
    CommId,
    Disconnect,
}

const fn row(name: &'static str, text: &'static str, expected: &'static str, kind: Kind, act: Act) -> Row {
    Row { fault: FaultRow { name, text, expected, when: usual(kind, act) }, kind, act }
}

/// For most, a packet in the middle; faults that make sense only once or always begin at the first.
const fn usual(kind: Kind, act: Act) -> When {
    match (kind, act) {
        (_, Act::Refuse(code)) if code & 0xe0 == RNR_NAK => When::From(5),
        (Kind::Acknowledge, _) => When::From(1),
        (_, Act::Mark | Act::Notify) => When::From(5),
        (Kind::Management | Kind::Reply | Kind::Established, _) => When::From(1),
        (Kind::Response, _) => When::Nth(2),
        _ => When::Nth(5),
    }
}

/// A row that refuses a connection: the part of its name after `cm-reject-`, the refused item, the reason, and an
/// alternative reaction of the other end, if it need not give up.
macro_rules! refuses {
    ($name:literal, $what:literal, $reason:ident $(, or $other:literal)?) => {
        row(
            concat!("cm-reject-", $name),
            concat!("refuses: ", $what),
            concat!("the connection is given up" $(, ", or ", $other)?),
            Kind::Reply,
            Act::Reject(RejectReason::$reason),
        )
    };
}

#[rustfmt::skip]
const ROWS: &[Row] = &[
    row("lose", "loses a packet", "a NAK or a timeout; the packet is sent again", Kind::Data, Act::Lose),
    row("repeat", "sends a packet twice", "acknowledges the copy again, and ignores it", Kind::Data, Act::Repeat),
    row("reorder", "sends a packet after the next one", "a NAK; all packets from there on are repeated", Kind::Data, Act::Reorder),
    row("delay", "sends a packet 50 ms late", "a NAK or a timeout; all packets from there on are repeated", Kind::Data, Act::Delay(50_000_000)),
    row("wrong-psn", "sends a packet with a number that is 1000 ahead", "a NAK for the number expected", Kind::Data, Act::Psn(1000)),
    row("wrong-icrc", "sends a packet with a wrong invariant CRC", "drops it silently", Kind::Data, Act::Crc),
    row("wrong-pkey", "sends a packet of another partition", "drops it silently", Kind::Data, Act::PKey),
    row("wrong-qp", "sends a packet to a queue pair that does not exist", "drops it silently", Kind::Data, Act::QueuePair),
    row("nak-sequence", "reports a packet as missing that it received", "all packets from there on are repeated", Kind::Request, Act::Refuse(NAK | NakCode::PSN_SEQUENCE_ERROR.0)),
    row("nak-invalid", "refuses a request as invalid", "the queue pair ends", Kind::Request, Act::Refuse(NAK | NakCode::INVALID_REQUEST.0)),
    row("nak-access", "refuses a request with a remote access error", "the queue pair ends", Kind::Request, Act::Refuse(NAK | NakCode::REMOTE_ACCESS_ERROR.0)),
    row("nak-operation", "refuses a request with a remote operational error", "the queue pair ends", Kind::Request, Act::Refuse(NAK | NakCode::REMOTE_OPERATIONAL_ERROR.0)),
    row("nak-rd", "refuses a request as an invalid reliable-datagram request", "the queue pair ends", Kind::Request, Act::Refuse(NAK | NakCode::INVALID_RD_REQUEST.0)),
    row("rnr", "has no receive posted", "waits and tries again, as often as agreed", Kind::Request, Act::Refuse(RNR_NAK | 14)),
    row("no-ack", "does not acknowledge", "sends again as often as agreed, then gives up", Kind::Acknowledge, Act::Lose),
    row("ack-unsent", "acknowledges a packet that was never sent", "ignores the acknowledgement", Kind::Acknowledge, Act::Psn(1000)),
    row("short-response", "answers an RDMA Read with 4 bytes too few in a packet", "the queue pair ends", Kind::Response, Act::Length(-4)),
    row("long-response", "answers an RDMA Read with 4 bytes too many in a packet", "the queue pair ends", Kind::Response, Act::Length(4)),
    row("reorder-response", "answers an RDMA Read with two packets in the wrong order", "requests the missing part again", Kind::Response, Act::Reorder),
    row("lose-response", "loses a packet of an RDMA Read response", "requests the missing part again", Kind::Response, Act::Lose),
    row("congested", "sends packets with a congestion mark", "CNPs, at most one per 50 µs", Kind::Data, Act::Mark),
    row("cnp-flood", "sends a CNP before every packet", "sends more slowly, and goes on", Kind::Data, Act::Notify),
    row("cm-silent", "does not answer a message of the communication manager", "the message is sent again as often as \
        agreed", Kind::Management, Act::Lose),
    row("cm-wrong-id", "answers for another connection", "ignores the answer", Kind::Reply, Act::CommId),
    row("cm-disconnect", "disconnects as soon as it is connected", "a DREP", Kind::Established, Act::Disconnect),
    refuses!("no-qp", "no queue pair", NO_QP),
    refuses!("no-eec", "no end-to-end context", NO_EEC),
    refuses!("resources", "no resources", NO_RESOURCES),
    refuses!("timeout", "too late", TIMEOUT),
    refuses!("unsupported", "a request that it does not know", UNSUPPORTED),
    refuses!("comm-id", "an unknown communication identifier", INVALID_COMM_ID),
    refuses!("comm-instance", "an unknown communication instance", INVALID_COMM_INSTANCE),
    refuses!("service", "no such service", INVALID_SERVICE_ID),
    refuses!("transport", "the transport service type", INVALID_TRANSPORT_TYPE),
    refuses!("stale", "the queue pair is known from before", STALE_CONNECTION, or "retried with another queue pair"),
    refuses!("rdc", "no such reliable datagram channel", RDC_NOT_EXIST),
    refuses!("gid", "the primary path's GID", PRIMARY_GID, or "retried over the path that is named"),
    refuses!("lid", "the primary path's LID", PRIMARY_LID),
    refuses!("sl", "the primary path's service level", PRIMARY_SL),
    refuses!("traffic-class", "the primary path's traffic class", PRIMARY_TRAFFIC_CLASS),
    refuses!("hop-limit", "the primary path's hop limit", PRIMARY_HOP_LIMIT),
    refuses!("packet-rate", "the primary path's packet rate", PRIMARY_PACKET_RATE),
    refuses!("alternate-gid", "the alternate path's GID", ALTERNATE_GID),
    refuses!("alternate-lid", "the alternate path's LID", ALTERNATE_LID),
    refuses!("alternate-sl", "the alternate path's service level", ALTERNATE_SL),
    refuses!("alternate-traffic-class", "the alternate path's traffic class", ALTERNATE_TRAFFIC_CLASS),
    refuses!("alternate-hop-limit", "the alternate path's hop limit", ALTERNATE_HOP_LIMIT),
    refuses!("alternate-packet-rate", "the alternate path's packet rate", ALTERNATE_PACKET_RATE),
    refuses!("port-and-cm-redirect", "another port and manager are to be asked", PORT_AND_CM_REDIRECT, or "retried there"),
    refuses!("port-redirect", "another port is to be asked", PORT_REDIRECT, or "retried there"),
    refuses!("mtu", "the path MTU", PATH_MTU, or "retried with another path MTU"),
    refuses!("responder-resources", "too few responder resources", INSUFFICIENT_RESPONDER_RESOURCES),
    refuses!("consumer", "the program does not want it", CONSUMER),
    refuses!("rnr-retry", "the RNR retry count", RNR_RETRY_COUNT),
    refuses!("duplicate-comm-id", "the communication identifier is in use", DUPLICATE_COMM_ID),
    refuses!("class-version", "the version of the class", CLASS_VERSION),
    refuses!("flow-label", "the primary path's flow label", PRIMARY_FLOW_LABEL),
    refuses!("alternate-flow-label", "the alternate path's flow label", ALTERNATE_FLOW_LABEL),
    refuses!("vendor", "an option of a vendor", VENDOR_OPTION),
];

/// All faults of packets, as others see them.
pub static FAULTS: [FaultRow; ROWS.len()] = {
    let mut rows = [ROWS[0].fault; ROWS.len()];
    let mut n = 0;
    while n < ROWS.len() {
        rows[n] = ROWS[n].fault;
        n += 1;
    }
    rows
};

fn row_of(fault: PacketFault) -> Option<&'static Row> {
    ROWS.iter().find(|row| row.fault.name == fault.row.name)
}

/// True if a fault is one of these.
#[cfg(target_os = "linux")]
pub(super) fn is_ours(fault: PacketFault) -> bool {
    row_of(fault).is_some()
}

/// A fault at work on one connection.
#[derive(Clone, Debug)]
pub(super) struct Faults {
    row: &'static Row,
    when: When,
    random: u64,
    seen: u64,
    /// Packets that are sent later: time, type of service, bytes.
    held: VecDeque<(Time, u8, Vec<u8>)>,
    /// Number of times that the fault was applied.
    pub(super) done: u64,
    /// The same, over all connections.
    acted: Tally,
}

/// Treatment of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is sent, with this type of service.
    Sent(u8),
    /// It is dropped or held back.
    Withheld,
}

impl Faults {
    /// `None` if the fault is not one of [`FAULTS`].
    pub(super) fn new(fault: PacketFault, seed: u64) -> Option<Self> {
        let row = row_of(fault)?;
        Some(Self {
            row,
            when: fault.when,
            random: seed | 1,
            seen: 0,
            held: VecDeque::new(),
            done: 0,
            acted: Tally::default(),
        })
    }

    /// Counts what it does here too.
    pub(super) fn counted_by(self, acted: &Tally) -> Self {
        Self { acted: acted.clone(), ..self }
    }

    /// Counts a packet. Returns true if the fault applies to it.
    fn hits(&mut self) -> bool {
        self.seen += 1;
        let hit = match self.when {
            When::Nth(n) => self.seen == n,
            When::From(n) => self.seen >= n,
            When::OneIn(n) => {
                // xorshift64
                self.random ^= self.random << 13;
                self.random ^= self.random >> 7;
                self.random ^= self.random << 17;
                self.random.is_multiple_of(n)
            }
        };
        if hit {
            self.done += 1;
            self.acted.add();
        }
        hit
    }

    /// Called when the connection is established. Returns true if it is to be ended at once.
    pub(super) fn established(&mut self) -> bool {
        self.row.kind == Kind::Established && self.hits()
    }

    /// Called for a request of the other end. Returns the syndrome with which it is refused, if any.
    pub(super) fn requested(&mut self) -> Option<u8> {
        match self.row.act {
            Act::Refuse(syndrome) if self.row.kind == Kind::Request => self.hits().then_some(syndrome),
            _ => None,
        }
    }

    /// Called for a REQ or REP. Returns the reason for which it is refused, if any.
    pub(super) fn rejects(&mut self) -> Option<RejectReason> {
        match self.row.act {
            Act::Reject(reason) => self.hits().then_some(reason),
            _ => None,
        }
    }

    /// The next packet that was held back and is due now.
    pub(super) fn due(&mut self, now: Time) -> Option<(u8, Vec<u8>)> {
        let (at, ..) = self.held.front()?;
        if now < *at {
            return None;
        }
        self.held.pop_front().map(|(_, tos, bytes)| (tos, bytes))
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.held.front().map(|(at, ..)| *at)
    }

    /// Handles the packet at the end of `out`, from `start` on, which is about to leave.
    pub(super) fn leaving(&mut self, now: Time, path: &Path, start: usize, tos: u8, out: &mut Vec<u8>) -> Fate {
        let Some(packet) = Packet::parse(&out[start..]) else { return Fate::Sent(tos) };
        let bth = packet.bth;
        let counts = match self.row.kind {
            Kind::Data => bth.dest_qp != QP1,
            Kind::Acknowledge => packet.row.verb == Verb::Acknowledge,
            Kind::Response => packet.row.verb == Verb::ReadResponse,
            Kind::Management => bth.dest_qp == QP1,
            Kind::Reply => bth.dest_qp == QP1 && self.row.act == Act::CommId,
            Kind::Request | Kind::Established => false,
        };
        if !counts || !self.hits() {
            // a held packet is sent after its successor
            if let Some((at, ..)) = self.held.front_mut()
                && self.row.act == Act::Reorder
            {
                *at = now;
            }
            return Fate::Sent(tos);
        }
        let (extensions, payload) = (usize::from(packet.row.length), packet.payload.len());
        let headers = start + Bth::LEN + extensions;
        match self.row.act {
            Act::Lose => {
                out.truncate(start);
                return Fate::Withheld;
            }
            Act::Repeat => self.held.push_back((now, tos, out[start..].to_vec())),
            Act::Reorder => {
                // a packet without a successor is sent a while later
                self.held.push_back((now.saturating_add(2_000_000), tos, out.split_off(start)));
                return Fate::Withheld;
            }
            Act::Delay(nanos) => {
                self.held.push_back((now.saturating_add(nanos), tos, out.split_off(start)));
                return Fate::Withheld;
            }
            Act::Psn(ahead) => rewrite(path, start, out, |head| Bth { psn: (head.psn + ahead) & MASK_24, ..head }, bth),
            Act::PKey => rewrite(path, start, out, |head| Bth { p_key: head.p_key ^ 0x0123, ..head }, bth),
            Act::QueuePair => {
                rewrite(path, start, out, |head| Bth { dest_qp: (head.dest_qp ^ 0x5a_5a5a) | 2, ..head }, bth)
            }
            Act::Crc => {
                if let Some(last) = out.last_mut() {
                    *last ^= 0xa5;
                }
            }
            Act::Length(more) => {
                let mut body = out[headers..headers + payload].to_vec();
                body.resize(payload.saturating_add_signed(isize::from(more)), 0x55);
                let head = out[start + Bth::LEN..headers].to_vec();
                out.truncate(start);
                packet::emit(path, bth, &head, &body, out);
            }
            Act::Mark => return Fate::Sent(tos | 3),
            Act::Notify => {
                let mut cnp = Vec::new();
                let head = Bth { opcode: Opcode::CNP.0, bits: 0, resv8: 0x40, ack: 0, psn: 0, ..bth };
                packet::emit(path, head, &[0; 16], &[], &mut cnp);
                self.held.push_back((now, tos, cnp));
            }
            Act::CommId => {
                // the remote communication identifier: in every answer, the second word after the common header
                let at = headers + 24 + 4;
                if let Some(byte) = out.get_mut(at + 3) {
                    *byte ^= 0x5a;
                }
                out.truncate(out.len() - ICRC);
                packet::finish(path, start, out);
            }
            Act::Refuse(_) | Act::Reject(_) | Act::Disconnect => {}
        }
        Fate::Sent(tos)
    }
}

/// Changes the header of the packet at the end of `out`, and recomputes its CRC.
fn rewrite(path: &Path, start: usize, out: &mut Vec<u8>, change: impl FnOnce(Bth) -> Bth, bth: Bth) {
    let mut head = Vec::with_capacity(Bth::LEN);
    change(bth).emit(&mut head);
    out[start..start + Bth::LEN].copy_from_slice(&head);
    out.truncate(out.len() - ICRC);
    packet::finish(path, start, out);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn docs_say_of_each_what_the_other_end_is_asked_for_and_what_it_did() {
        let docs = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/roce.md")).unwrap();
        let table: Vec<Vec<&str>> = docs.lines().map(|line| line.split('|').map(str::trim).collect()).collect();
        for row in &FAULTS {
            let name = format!("`{}`", row.name);
            let cells = table
                .iter()
                .find(|cells| cells.get(1) == Some(&&*name))
                .unwrap_or_else(|| panic!("{name} has no line"));
            assert_eq!(cells[2..4], [row.text, row.expected], "{name}");
            assert!(cells.len() == 7 && cells[4..6].iter().all(|cell| !cell.is_empty()), "{name} has an empty cell");
        }
    }
}
