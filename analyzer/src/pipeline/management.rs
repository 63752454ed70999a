//! Datagrams of connection management: connections that they open, refuse and end. `cm` matches them.

use super::Pipeline;
use super::cm::{MIRRORED, Rejected, Request, is_private_cut};
use super::damaged::Fate;
use super::ib::{MTU_MAX, carrier};
use super::networks::Tag;
use super::table::{ConnectionEnd, Flow, QpKey};
use crate::connection::ConnectionState;
use crate::env::Layer;
use crate::episodes::{Cause, Episode, Kind, Trigger};
use crate::finding::{Blame, Certainty, Rule, Severity, Site};
use crate::flow::ib::IbFlow;
use crate::op::{At, End};
use crate::rejected;
use crate::roles::Source;
use crate::sink::Sink;
use crate::summary::{Handshake, Peer};
use alloc::boxed::Box;
use alloc::string::ToString;
use rdmascope_dissector::frame::{Addr, Carrier, Check, IbPacket, Packet};
use rdmascope_dissector::trace::Trace;
use rdmascope_dissector::wire::ib::cm::{self as wire, CmMessage, RejectReason};

/// The smallest path MTU, in bytes. Datagrams of connection management are as long as it.
const MTU_LEAST: u32 = 256;
/// Times that a message is sent again, from which on that is no accident.
const SEVERAL: u32 = 2;
/// ns by which a capture may have packets in another order than the ends.
const DISORDER: i64 = 1_000_000;

/// Cause of a request that its server put off, and never answered.
const PUT_OFF: &str =
    "The service has the request, and did not come to accept or to refuse it: it is busy, or waits itself";

impl Pipeline<dyn Sink> {
    pub(super) fn datagram<T: Trace>(&mut self, at: At, packet: &Packet<'_>, ib: &IbPacket<'_>, t: &mut T) {
        let length = ib.payload_length;
        let site = Site { connection: None, frame: at.frame, time_ns: at.time };
        if length > MTU_MAX && ib.icrc != Check::Bad {
            let text = format_args!("sent a datagram of {length} bytes; no path MTU is larger than {MTU_MAX}");
            self.env.report(Rule::BugCve202440992, Blame::Unknown, site, Certainty::Certain, text);
        } else if length > MTU_LEAST
            && ib.icrc != Check::Bad
            && let Some(mtu) = self.requests.path_mtu(packet.src, packet.dst).filter(|mtu| u32::from(*mtu) < length)
        {
            // connections may use less than the path allows
            let text =
                format_args!("sent a datagram of {length} bytes; the path MTU of the hosts' connections is {mtu}");
            self.env.report(Rule::BugCve202440992, Blame::Unknown, site, Certainty::Guess, text);
        }
        if ib.bth.dest_qp > 1 {
            return;
        }
        let parsed = wire::parse_mad(ib.payload, t);
        let hosts = (packet.src, packet.dst);
        if ib.icrc == Check::Bad {
            let is_known = self.requests.is_damaged(packet.src, packet.dst);
            self.damaged.add(at, hosts, ib.payload, is_known);
            if is_known {
                return self.requests.may_be_answered(packet.src, packet.dst);
            }
        }
        let Ok((_, Some(message))) = parsed else { return };
        self.env.layer(Layer::Cm);
        if packet.ecn == 3 {
            let site = Site { connection: None, frame: at.frame, time_ns: at.time };
            let text = format_args!("a datagram of connection management was marked congestion experienced");
            self.env.report(Rule::RcEcn, Blame::Network, site, Certainty::Certain, text);
        }
        match message {
            CmMessage::Request(request) => {
                let udp_port = if let Carrier::RoceV2 { src_port } = ib.carrier { Some(src_port) } else { None };
                let carrier = (carrier(ib), udp_port, Tag::of(packet));
                if let Some(oldest) = self.requests.request(at, hosts, carrier, &request, ib.icrc == Check::Bad) {
                    self.unanswered_request(at, &oldest);
                }
            }
            CmMessage::Reply(reply) => self.cm_reply(at, packet, ib, &reply),
            CmMessage::Reject(reject) => self.cm_reject(at, packet, &reject),
            CmMessage::ReadyToUse(head) => {
                self.cm_established(at, hosts, head.local_comm_id, head.remote_comm_id);
                self.cm_ready(at, packet, head.local_comm_id, head.remote_comm_id);
            }
            CmMessage::DisconnectRequest(head) => {
                self.cm_established(at, hosts, head.local_comm_id, head.remote_comm_id);
                self.cm_disconnect(at, packet, head.local_comm_id, head.remote_comm_id);
            }
            CmMessage::DisconnectReply(head) => self.cm_disconnected(packet, head.local_comm_id, head.remote_comm_id),
            CmMessage::MsgRcptAck(head) => self.requests.put_off(hosts, head.remote_comm_id),
            _ => {}
        }
        self.requests.heard(packet.src, packet.dst);
        if ib.icrc == Check::Good {
            self.requests.sound(packet.src, packet.dst);
            self.damaged.sound(packet.src, packet.dst);
            for slot in self.requests.doubtful(packet.src, packet.dst) {
                self.distrust(slot);
            }
        }
        if ib.icrc != Check::Bad && !self.damaged.is_empty() {
            let damaged = self.damaged.follow(at, hosts, ib.payload);
            self.damaged_datagrams(&damaged);
        }
        let place = self.requests.place(at.frame, packet.src, packet.dst, message.comm_ids());
        self.env.frame.place = self.env.frame.place.or(place);
    }

    /// Reports datagrams of connection management whose invariant CRC is wrong, where others are right.
    #[cold]
    pub(super) fn damaged_datagrams(&mut self, damaged: &[(At, Fate)]) {
        for (at, fate) in damaged {
            let site = Site { connection: None, frame: at.frame, time_ns: at.time };
            let what = "a datagram of connection management was damaged";
            let warn = Rule::RcIcrc.row().severity;
            let (severity, by, certainty, how) = match fate {
                Fate::Dropped => (
                    warn,
                    Blame::Network,
                    Certainty::Certain,
                    " before the capture point; its receiver dropped it, and it was sent again",
                ),
                Fate::Taken => (
                    Severity::Note,
                    Blame::Capture,
                    Certainty::Certain,
                    " at the capture point; its receiver had it undamaged and answered it",
                ),
                Fate::Mirrored => (
                    Severity::Note,
                    Blame::Capture,
                    Certainty::Certain,
                    " on its way to the capture point alone; it is in the capture undamaged as well",
                ),
                Fate::NotMissed => (
                    Severity::Note,
                    Blame::Unknown,
                    Certainty::Guess,
                    "; its receiver had it undamaged, or went on without it",
                ),
                Fate::Unknown => {
                    (warn, Blame::Network, Certainty::Guess, "; whether its receiver had it undamaged was not captured")
                }
            };
            self.env.report_as(severity, Rule::RcIcrc, by, site, certainty, format_args!("{what}{how}"));
        }
    }

    /// A connection whose handshake turned out to be damaged is followed as one that began before the capture: its
    /// values are not known.
    #[cold]
    pub(super) fn distrust(&mut self, slot: u32) {
        let is_new = self.table.get(slot).is_some_and(|s| !s.connection.has_captured());
        if is_new {
            self.requests.disown(slot);
            self.table.remove(slot);
        } else if let Some(s) = self.table.get_mut(slot) {
            s.is_doubtful = [false; 2];
            self.env.weaken(s.connection.id);
        }
    }

    /// An RTU or a DREQ: the REQ was accepted.
    fn cm_established(&mut self, at: At, hosts: (Addr, Addr), local: u32, remote: u32) {
        if let Some(request) = self.requests.established(at, hosts, local, remote) {
            self.made_good(&request);
        }
    }

    /// A server accepted a REQ.
    fn made_good(&mut self, request: &Request) {
        if self.requests.make_good(request) {
            for by in [Blame::Server, Blame::Unknown] {
                let more = format_args!("; one to port {} was accepted after it", request.port);
                self.env.findings.lower(Rule::CmReject, None, by, Severity::Note, more);
            }
        }
    }

    fn cm_reply(&mut self, at: At, packet: &Packet<'_>, ib: &IbPacket<'_>, reply: &wire::ConnectReply<'_>) {
        let rep = &reply.head;
        let Some((request, early)) = self.requests.reply(at, packet.dst, reply) else {
            return self.cm_replies_again(at, packet, rep.local_comm_id, rep.remote_comm_id);
        };
        self.env.frame.earlier = early;
        let network = self.networks.of(packet);
        let mut to_server = QpKey { src: packet.dst, dst: packet.src, qp: rep.local_qpn, network };
        let mut to_client = QpKey { src: packet.src, dst: packet.dst, qp: request.qp, network };
        let tags = [request.tag, Tag::of(packet)];
        let open = [to_server, to_client].iter().find_map(|key| {
            let place = self.table.find_qp(key)?;
            self.table.get(place.slot).filter(|s| s.connection.closed.is_none()).map(|s| s.tags)
        });
        if let Some(open) = open
            && let Some(other) = self.networks.begin((packet.dst, packet.src), tags, open)
        {
            (to_server.network, to_client.network) = (other, other);
        }
        // the same numbers may have been another connection's; but one that began just now is this one, whose packets
        // the capture has in another order than the ends
        let mut is_misplaced = false;
        for key in [to_server, to_client] {
            if let Some(place) = self.table.find_qp(&key) {
                if let Some(s) = self.table.get(place.slot)
                    && at.since(s.connection.first) <= DISORDER
                {
                    is_misplaced = true;
                    self.env.weaken(s.connection.id);
                }
                self.close(place.slot, at);
            }
        }
        let mut connection = ConnectionState::new(carrier(ib), request.at);
        connection.last = at;
        connection.opening.handshake = Handshake::Seen;
        connection.roles.learn(End::A, Source::Handshake);
        connection.opening.rdma_opened = Some(at);
        connection.peers = [
            Peer { address: packet.dst, port: request.source_port, qp: Some(request.qp) },
            Peer { address: packet.src, port: request.port, qp: Some(rep.local_qpn) },
        ];
        // a pause between this handshake and the first packets holds those up
        connection.asked(End::A, request.at);
        connection.carried(End::B, at, packet, &self.pauses);
        // the requester may have as many outstanding as the other side can answer
        connection.opening.read_depth =
            [Some(u32::from(rep.responder_resources)), Some(u32::from(request.responder_resources))]
                .map(|d| d.filter(|d| *d > 0));
        // 0 stands for no timer
        let timeout = Some(request.ack_timeout).filter(|code| *code > 0).map(wire::timeout_nanos);
        connection.opening.ack_timeout = timeout.and_then(|ns| i64::try_from(ns).ok());
        let mut flow = IbFlow::default();
        if !request.is_private_cut && !is_private_cut(reply.rpc_rdma, reply.private) {
            connection.rpc_rdma_private([request.rpc_rdma, reply.rpc_rdma]);
        }
        // each side says where the other one is to begin (12.6.5, 12.6.8)
        flow.starts_at(End::A, rep.starting_psn);
        flow.starts_at(End::B, request.psn);
        flow.sound([request.is_sound, ib.icrc == Check::Good]);
        connection.network.path_mtu_asked = request.path_mtu;
        if let Some(mtu) = request.path_mtu {
            flow.path_mtu(mtu.into());
        }
        let slot = self.insert(request.at, connection, Flow::Ib(Box::new(flow)));
        self.table.add_qp(to_server, ConnectionEnd { slot, end: End::A });
        self.table.add_qp(to_client, ConnectionEnd { slot, end: End::B });
        if let Some(s) = self.table.get_mut(slot) {
            s.is_doubtful = [request.is_damaged, ib.icrc == Check::Bad];
            s.tags = tags.map(Some);
            self.requests.connected(&request, slot, s.connection.id);
            if is_misplaced {
                self.env.weaken(s.connection.id);
            }
        }
        self.made_good(&request);
    }

    /// A REP goes out again: if its receiver has begun to send, its RTU was lost. Until it comes, the server may not take
    /// what it is sent (IBA volume 1, 12.9.7.2).
    fn cm_replies_again(&mut self, at: At, packet: &Packet<'_>, local: u32, remote: u32) {
        let found = self.requests.connection_of(packet.src, packet.dst, local, remote);
        if let Some(s) = found.and_then(|(slot, _)| self.table.get_mut(slot)) {
            // the copy of a mirror comes sooner
            let is_late = s.connection.opening.rdma_opened.is_some_and(|opened| at.since(opened) > MIRRORED);
            let has_captured = s.connection.has_captured();
            s.connection.opening.replies_again += u32::from(is_late && has_captured);
            s.connection.opening.accepts_again += u32::from(is_late && !has_captured);
        }
    }

    /// An RTU: the connection can be used by both ends.
    fn cm_ready(&mut self, at: At, packet: &Packet<'_>, local: u32, remote: u32) {
        let found = self.requests.connection_of(packet.src, packet.dst, local, remote);
        let Some(s) = found.and_then(|(slot, _)| self.table.get_mut(slot)) else { return };
        let connection = &mut s.connection;
        let (repeated, opened) = (connection.opening.replies_again, connection.opening.rdma_opened);
        let was_seen = core::mem::replace(&mut connection.opening.is_ready, true);
        let Some(begin) = opened.filter(|_| repeated > 0) else { return };
        connection.opening.replies_again = 0;
        connection.episodes.add(Episode {
            kind: Kind::Recovery,
            cause: if was_seen { Cause::LostBehind } else { Cause::LostBefore },
            trigger: Trigger::Timeout,
            by: Some(End::A),
            begin,
            end: Some(at),
            packets: 1,
            repeated,
            ..Episode::default()
        });
    }

    fn cm_reject(&mut self, at: At, packet: &Packet<'_>, reject: &wire::ConnectReject<'_>) {
        let reason = reject.reason();
        let table = &self.table;
        let is_in_use = |slot: u32| table.get(slot).is_some_and(|s| s.connection.has_captured());
        let hosts = (packet.src, packet.dst);
        let rejected = self.requests.reject(at, hosts, &reject.head, reason, is_in_use);
        let Some(Rejected { port, by_server, slot }) = rejected else { return };
        let sender = if by_server { End::B } else { End::A };
        // one that waited in vain refuses nothing: what it waited for was lost, or its peer is gone
        let gave_up = reason == RejectReason::TIMEOUT;
        let connection = slot.and_then(|s| self.table.get_mut(s)).map(|s| {
            s.connection.opening.rejected = Some(reason.to_string());
            s.connection.closed.get_or_insert((Some(sender).filter(|_| !gave_up), "REJ", at));
            s.connection.id
        });
        let site = Site { connection, frame: at.frame, time_ns: at.time };
        if gave_up {
            // who gives up a request of its own rejects nothing; without a REP, the end tells that it had no answer
            let (rule, who, what) = match (by_server, connection) {
                (true, _) => (Rule::CmReject, "server", "; its REP or the RTU did not arrive, or its client was gone"),
                (false, Some(_)) => {
                    (Rule::CmTimeout, "client", ", though the server had sent a REP: that did not reach it")
                }
                (false, None) => return,
            };
            let text = format_args!("RDMA-CM REQ to port {port} was given up: the {who} waited in vain{what}");
            self.env.report(rule, Blame::Unknown, site, Certainty::Guess, text);
            let why = Some(rejected::why(reason, by_server));
            return self.env.findings.because(rule, connection, Blame::Unknown, why);
        }
        let blame = if by_server { Blame::Server } else { Blame::Client };
        self.env.report(
            Rule::CmReject,
            blame,
            site,
            Certainty::Certain,
            format_args!("RDMA-CM REQ to port {port} was rejected: {reason}"),
        );
        self.env.findings.because(Rule::CmReject, connection, blame, Some(rejected::why(reason, by_server)));
    }

    fn cm_disconnect(&mut self, at: At, packet: &Packet<'_>, local: u32, remote: u32) {
        let Some((slot, by)) = self.requests.connection_of(packet.src, packet.dst, local, remote) else { return };
        let Some(s) = self.table.get_mut(slot) else { return };
        let end = &mut s.connection.ends[by.index()];
        if end.disconnects == 0 || at.since(end.disconnected) > MIRRORED {
            end.disconnects = end.disconnects.saturating_add(1);
            end.disconnected = at;
        }
        if s.connection.closed.is_none() {
            s.connection.closed = Some((Some(by), "DREQ", at));
            self.env.breaks().left(s.connection.id, at);
            s.connection.last = at;
        }
    }

    /// A DREP: the DREQs of its receiver are answered.
    fn cm_disconnected(&mut self, packet: &Packet<'_>, local: u32, remote: u32) {
        let Some((slot, by)) = self.requests.connection_of(packet.src, packet.dst, local, remote) else { return };
        if let Some(s) = self.table.get_mut(slot) {
            s.connection.ends[by.peer().index()].disconnects = 0;
        }
    }

    /// A connection ends: reports what connection management sent again and again for it without an answer. `again`:
    /// REQs and REPs that were sent again after the first REP.
    #[cold]
    pub(super) fn unanswered_management(&mut self, connection: &ConnectionState, again: [u32; 2]) {
        let opening = &connection.opening;
        let site = |at: At| Site { connection: Some(connection.id), frame: at.frame, time_ns: at.time };
        let is_ready = opening.is_ready || connection.has_captured() || opening.rejected.is_some();
        let [asked, replied] = again;
        if let Some(opened) = opening.rdma_opened.filter(|_| !is_ready && replied >= SEVERAL) {
            let replies = replied.saturating_add(1);
            let how = if asked > 0 {
                "the client went on asking, so that they did not reach it"
            } else {
                "no RTU came, and no packet"
            };
            let text = format_args!("the server answered an RDMA-CM REQ with REP {replies} times; {how}");
            self.env.report(Rule::CmTimeout, Blame::Unknown, site(opened), Certainty::Guess, text);
        }
        let mut findings = self.env.findings.iter();
        let is_told = findings.any(|f| f.connection == Some(connection.id) && f.rule == Rule::PeerSilent);
        for by in End::BOTH.into_iter().filter(|_| !is_told) {
            // who asks for the end as well has no need to answer
            let [mine, theirs] = [by, by.peer()].map(|end| &connection.ends[end.index()]);
            if mine.disconnects <= SEVERAL || theirs.disconnects > 0 {
                continue;
            }
            let text = format_args!(
                "{} DREQs had no answer: they, or the DREPs, did not arrive, or the peer was gone",
                mine.disconnects
            );
            let at = mine.disconnected;
            self.env.report_as(Severity::Warn, Rule::CmTimeout, Blame::Unknown, site(at), Certainty::Guess, text);
        }
    }

    pub(super) fn unanswered_request(&mut self, at: At, request: &Request) {
        if !request.timed_out(at) {
            return;
        }
        let site = Site { connection: None, frame: request.at.frame, time_ns: request.at.time };
        let (server, port) = (request.server, request.port);
        // a server of which nothing was captured may have answered all the same: perhaps one direction only was
        // captured
        let certainty = if request.is_surely_unanswered() { Certainty::IfNothingWasMissed } else { Certainty::Guess };
        if request.is_put_off {
            // it was there, and may still be at work
            let text = format_args!("RDMA-CM REQ to {server} port {port} was put off (MRA), and never answered");
            self.env.report(Rule::CmTimeout, Blame::Server, site, Certainty::Guess, text);
            return self.env.findings.because(Rule::CmTimeout, None, Blame::Server, Some(PUT_OFF));
        }
        let text = format_args!("RDMA-CM REQ to {server} port {port} was never answered");
        if request.is_given_up() {
            // its client says so: what it asked for may not even be there
            let severity = Severity::Warn;
            return self.env.report_as(severity, Rule::CmTimeout, Blame::Unknown, site, certainty, text);
        }
        self.env.report(Rule::CmTimeout, Blame::Server, site, certainty, text);
    }
}
