//! Connection management matched: which REP, REJ and DREQ answers which REQ. IBA volume 1, 12.6 to 12.9.
//!
//! ```text
//!   client ── REQ: its communication id, queue pair, PSN ──▶ server
//!   client ◀── REP: both ids, its queue pair, PSN ────────── server      or REJ: both ids, a reason
//!   client ── RTU ─▶ …  ── DREQ: both ids ──▶ or ◀──
//! ```
//!
//! Nothing here knows connections: a REQ keeps the slot and the number that its connection was given.

use super::networks::Tag;
use crate::op::{At, End};
use crate::path::{Attempt, CmAnswer};
use crate::summary::Transport;
use alloc::collections::VecDeque;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use rdmascope_dissector::frame::Addr;
use rdmascope_dissector::wire::ib::cm::{ConnectReply, ConnectRequest, RejectHead, RejectReason, RpcRdmaPrivate};

/// REQs remembered at most.
const REQUESTS_MAX: usize = 4096;
/// Frames of one REQ that are remembered until its connection is there.
const EARLY_MAX: usize = 8;
/// ns after which a REQ without an answer has timed out.
const TIMEOUT: i64 = 20_000_000_000;
/// ns after a datagram within which a mirror shows it once more.
pub(super) const MIRRORED: i64 = 50_000_000;

/// A REQ that waits for its answer, and the values by which later messages are matched.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) at: At,
    pub(super) client: Addr,
    pub(super) server: Addr,
    /// Communication id of the client.
    comm_id: u32,
    /// Queue pair of the client.
    pub(super) qp: u32,
    /// The PSN that the server is to begin with.
    pub(super) psn: u32,
    /// Of the service asked for; 0 if the service has no IP port.
    pub(super) port: u16,
    pub(super) source_port: u16,
    /// IP addresses of both ends that the request names, the sender's first.
    hosts: Option<[Addr; 2]>,
    /// Reads that the client can answer at a time.
    pub(super) responder_resources: u8,
    pub(super) path_mtu: Option<u16>,
    /// Code of its local ACK timeout.
    pub(super) ack_timeout: u8,
    pub(super) rpc_rdma: Option<RpcRdmaPrivate>,
    /// True if the capture cut that off, if it was there.
    pub(super) is_private_cut: bool,
    /// Place of its connection in the table, while it is followed.
    slot: Option<u32>,
    /// The number under which its connection is followed.
    connection: Option<u32>,
    /// Frames of it from before there was a connection, with their senders.
    early: Vec<(u64, End)>,
    server_comm_id: Option<u32>,
    answered: bool,
    /// True if its server asked for patience (MRA).
    pub(super) is_put_off: bool,
    rejected: bool,
    /// True if the server refused it, and accepted a later one of the same client.
    made_good: bool,
    /// Number of times it was sent again.
    repeats: u32,
    transport: Transport,
    /// UDP port that it came from, of RoCE version 2.
    udp_port: Option<u16>,
    /// VLAN and overlay of it.
    pub(super) tag: Tag,
    /// Time of the REP.
    accepted: Option<At>,
    /// Its last REQ, and its last REP, that was sent again after the REP.
    last_again: [At; 2],
    /// Number of times that it was sent again after the REP, and number of times that the REP was.
    again: [u32; 2],
    /// Time and reason of its refusal; true if the server refused it, false if the client took it back.
    refused: Option<(At, String, bool)>,
    /// True if anything that its server sent was captured.
    pub(super) heard: bool,
    /// True if the capture has invariant CRCs of its client as they were sent.
    pub(super) is_sound: bool,
    /// The same of its server.
    is_server_sound: bool,
    /// True if its own invariant CRC is wrong: should that of others be right, its values are not known.
    pub(super) is_damaged: bool,
}

impl Request {
    /// True if it was unanswered for so long that no answer will come, or its client gave it up.
    pub(super) fn timed_out(&self, now: At) -> bool {
        self.is_given_up() || !self.answered && now.time.saturating_sub(self.at.time) >= TIMEOUT
    }

    /// True if its client gave it up without an answer.
    pub(super) fn is_given_up(&self) -> bool {
        !self.answered && self.refused.is_some()
    }

    /// Counts a REQ, or a REP, that is sent again after the REP.
    fn sent_again(&mut self, at: At, by: End) {
        let last = self.last_again[by.index()];
        if self.accepted.is_some_and(|accepted| at.since(accepted.max(last)) > MIRRORED) {
            self.again[by.index()] = self.again[by.index()].saturating_add(1);
            self.last_again[by.index()] = at;
        }
    }

    /// True if it is certain that it was not answered: something of its server was captured, and the client sent it
    /// again, as one does that hears nothing, or the client gave it up.
    pub(super) fn is_surely_unanswered(&self) -> bool {
        self.is_given_up() || self.heard && self.repeats > 0
    }
}

/// A connection request that a REJ refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rejected {
    /// The port that the REQ asked for.
    pub(super) port: u16,
    /// True if the server refused; otherwise the client took its REQ back.
    pub(super) by_server: bool,
    /// The connection, if a REP had made one.
    pub(super) slot: Option<u32>,
}

/// The REQs of a capture.
#[derive(Clone, Debug, Default)]
pub(super) struct Requests {
    list: VecDeque<Request>,
}

impl Requests {
    /// Adds a REQ; `is_damaged` if its invariant CRC is wrong. Returns the oldest one if it takes its place.
    pub(super) fn request(
        &mut self,
        at: At,
        (src, dst): (Addr, Addr),
        carrier: (Transport, Option<u16>, Tag),
        message: &ConnectRequest<'_>,
        is_damaged: bool,
    ) -> Option<Request> {
        // a client that crashed begins again with the same ids, but not with the same PSN; of a damaged REQ, that may be
        // what is damaged
        let is_same = |r: &&mut Request| {
            (r.client, r.comm_id, r.qp) == (src, message.local_comm_id, message.head.local_qpn)
                && (r.psn == message.head.starting_psn || r.is_damaged || is_damaged)
        };
        if let Some(same) = self.list.iter_mut().rev().find(is_same) {
            same.repeats += 1;
            same.sent_again(at, End::A);
            if same.is_damaged && !is_damaged && !same.answered {
                // the values of this one count
                let early = core::mem::take(&mut same.early);
                let Request { at, repeats, heard, is_sound, is_server_sound, .. } = *same;
                let fresh = new_request(at, (src, dst), carrier, message, is_damaged);
                *same = Request { early, repeats, heard, is_sound, is_server_sound, ..fresh };
            }
            return None;
        }
        let oldest = if self.list.len() >= REQUESTS_MAX { self.list.pop_front() } else { None };
        self.list.push_back(new_request(at, (src, dst), carrier, message, is_damaged));
        oldest
    }

    /// A REP. Returns the REQ that it answers for the first time, and the frames that came before it.
    pub(super) fn reply(&mut self, at: At, dst: Addr, reply: &ConnectReply<'_>) -> Option<(Request, Vec<(u64, End)>)> {
        let rep = &reply.head;
        let request = self.list.iter_mut().rev().find(|r| r.client == dst && r.comm_id == rep.remote_comm_id)?;
        if request.answered && request.server_comm_id == Some(rep.local_comm_id) {
            request.sent_again(at, End::B);
            return None;
        }
        request.answered = true;
        request.accepted.get_or_insert(at);
        request.server_comm_id = Some(rep.local_comm_id);
        let early = core::mem::take(&mut request.early);
        Some((request.clone(), early))
    }

    /// A client was accepted by a server: that makes good earlier refusals by that server. Returns true if everything
    /// that any server refused is made good, and this was some of it. This looks at all hosts together, which matters
    /// if several analyses share them.
    pub(super) fn make_good(&mut self, accepted: &Request) -> bool {
        let mut some = false;
        for request in self.list.iter_mut().filter(|r| r.rejected && r.at < accepted.at) {
            let is_its = (request.client, request.server) == (accepted.client, accepted.server);
            some |= is_its && !request.made_good;
            request.made_good |= is_its;
        }
        some && self.list.iter().all(|r| !r.rejected || r.made_good)
    }

    /// The REQ of a client became a connection.
    pub(super) fn connected(&mut self, request: &Request, slot: u32, connection: u32) {
        let is_it = |r: &&mut Request| (r.client, r.comm_id, r.qp) == (request.client, request.comm_id, request.qp);
        if let Some(r) = self.list.iter_mut().rev().find(is_it) {
            r.slot = Some(slot);
            r.connection = Some(connection);
        }
    }

    /// A REJ: it answers a REQ, takes a REP back, or gives up the sender's own REQ, which then has no answer.
    pub(super) fn reject(
        &mut self,
        at: At,
        (src, dst): (Addr, Addr),
        head: &RejectHead,
        reason: RejectReason,
        is_in_use: impl Fn(u32) -> bool,
    ) -> Option<Rejected> {
        let is_servers = |r: &Request, id: u32| r.server_comm_id.is_none_or(|known| known == id);
        let request = self.list.iter_mut().rev().find(|r| {
            (r.client == dst && r.comm_id == head.remote_comm_id && is_servers(r, head.local_comm_id))
                || (r.client == src && r.comm_id == head.local_comm_id && is_servers(r, head.remote_comm_id))
        })?;
        if request.slot.is_some_and(is_in_use) {
            // too late: both sides have taken it for established
            return None;
        }
        let by_server = request.client == dst;
        request.answered |= by_server || request.accepted.is_some() || reason != RejectReason::TIMEOUT;
        if core::mem::replace(&mut request.rejected, true) {
            // a copy of it, or sent again
            return None;
        }
        request.refused = Some((at, reason.to_string(), by_server));
        Some(Rejected { port: request.port, by_server, slot: request.slot })
    }

    /// The connection that a message with the ids of its sender and its receiver is about, and the sender.
    pub(super) fn connection_of(&self, src: Addr, dst: Addr, local: u32, remote: u32) -> Option<(u32, End)> {
        let found = self.list.iter().rev().find(|r| {
            (r.client == src && r.comm_id == local && r.server_comm_id == Some(remote))
                || (r.client == dst && r.comm_id == remote && r.server_comm_id == Some(local))
        })?;
        Some((found.slot?, if found.client == src { End::A } else { End::B }))
    }

    /// The connection that a message with these ids belongs to, and the sender of the frame. If there is none yet, the
    /// frame is remembered: [`Requests::reply`] returns it.
    pub(super) fn place(
        &mut self,
        frame: u64,
        src: Addr,
        dst: Addr,
        ids: (Option<u32>, Option<u32>),
    ) -> Option<(u32, End)> {
        let (Some(local), remote) = ids else { return None };
        let end = |r: &Request| {
            let is_servers = |id: u32| r.server_comm_id.is_none_or(|known| known == id);
            if r.client == src && r.comm_id == local && remote.is_none_or(is_servers) {
                Some(End::A)
            } else if r.client == dst && Some(r.comm_id) == remote && is_servers(local) {
                Some(End::B)
            } else {
                None
            }
        };
        let (request, end) = self.list.iter_mut().rev().find_map(|r| end(r).map(|end| (r, end)))?;
        if request.connection.is_none() && request.early.len() < EARLY_MAX {
            request.early.push((frame, end));
        }
        request.connection.map(|id| (id, end))
    }

    /// The number of REQs and of REPs for a connection that were sent again after its first REP.
    pub(super) fn sent_again(&self, slot: u32) -> [u32; 2] {
        self.list.iter().rev().find(|r| r.slot == Some(slot)).map_or([0; 2], |r| r.again)
    }

    /// A server has a request, and asks its client for patience.
    pub(super) fn put_off(&mut self, (src, dst): (Addr, Addr), remote: u32) {
        let request = self.list.iter_mut().rev().find(|r| (r.server, r.client, r.comm_id) == (src, dst, remote));
        if let Some(request) = request {
            request.is_put_off = true;
        }
    }

    /// A host sent something to another one.
    pub(super) fn heard(&mut self, src: Addr, dst: Addr) {
        for request in self.list.iter_mut().filter(|r| (r.server, r.client) == (src, dst)) {
            request.heard = true;
        }
    }

    /// A host sent another one a datagram whose invariant CRC is right.
    pub(super) fn sound(&mut self, src: Addr, dst: Addr) {
        for request in self.list.iter_mut() {
            if (request.client, request.server) == (src, dst) {
                request.is_sound = true;
            } else if (request.server, request.client) == (src, dst) {
                request.is_server_sound = true;
            }
        }
    }

    /// Connections of a client whose REQ turned out to be damaged.
    pub(super) fn doubtful(&self, src: Addr, dst: Addr) -> Vec<u32> {
        let is_it = |r: &&Request| (r.client, r.server) == (src, dst) && r.is_damaged && r.is_sound;
        self.list.iter().filter(is_it).filter_map(|r| r.slot).collect()
    }

    /// True if a wrong invariant CRC in a datagram from one host to another means that it is damaged.
    pub(super) fn is_damaged(&self, src: Addr, dst: Addr) -> bool {
        let known = |r: &Request| {
            (r.client, r.server) == (src, dst) && r.is_sound || (r.server, r.client) == (src, dst) && r.is_server_sound
        };
        self.list.iter().any(known)
    }

    /// A datagram of a server to its client was damaged: it may have been the answer to any of its REQs.
    pub(super) fn may_be_answered(&mut self, src: Addr, dst: Addr) {
        for request in self.list.iter_mut().filter(|r| (r.server, r.client) == (src, dst)) {
            request.answered = true;
        }
    }

    /// A message with both ids that is only sent on a connection: the REQ was accepted, even if its REP was not seen.
    /// Returns it then.
    pub(super) fn established(&mut self, at: At, (src, dst): (Addr, Addr), local: u32, remote: u32) -> Option<Request> {
        let is_it = |r: &&mut Request| {
            (r.client, r.server, r.comm_id) == (src, dst, local)
                || (r.server, r.client, r.comm_id) == (src, dst, remote)
        };
        let request = self.list.iter_mut().rev().find(is_it).filter(|r| r.accepted.is_none() && r.refused.is_none())?;
        request.answered = true;
        request.accepted = Some(at);
        Some(request.clone())
    }

    /// False for a REQ that is in the capture by damage alone: nothing answered it, its CRC is wrong, and that of
    /// others of its client is right. Whom it asked for what is not known.
    fn is_real(&self, request: &Request) -> bool {
        let is_sound = || self.list.iter().any(|r| r.client == request.client && r.is_sound);
        !(request.is_damaged && request.accepted.is_none() && request.refused.is_none() && is_sound())
    }

    /// The largest path MTU, in bytes, of connections that two hosts opened, if known: paths may differ.
    pub(super) fn path_mtu(&self, one: Addr, other: Addr) -> Option<u16> {
        let is_theirs =
            |r: &&Request| [(r.client, r.server), (r.server, r.client)].contains(&(one, other)) && r.accepted.is_some();
        self.list.iter().filter(is_theirs).filter_map(|r| r.path_mtu).max()
    }

    /// A connection is not followed any more.
    pub(super) fn forget(&mut self, slot: u32) {
        for request in self.list.iter_mut().filter(|r| r.slot == Some(slot)) {
            request.slot = None;
        }
    }

    /// The same of one that turned out to rest on damaged values: its frames belong to none.
    pub(super) fn disown(&mut self, slot: u32) {
        for request in self.list.iter_mut().filter(|r| r.slot == Some(slot)) {
            (request.slot, request.connection) = (None, None);
        }
    }

    /// Takes in the REQs between other hosts, of another part of the capture that has ended. Returns true if all of
    /// them are remembered.
    pub(super) fn join(&mut self, part: Requests) -> bool {
        self.list.extend(part.list);
        self.list.make_contiguous().sort_by_key(|r| r.at.frame);
        self.list.len() < REQUESTS_MAX
    }

    /// Outcome of each, if the capture tells.
    pub(super) fn attempts(&self) -> impl Iterator<Item = Attempt> + '_ {
        let is_unclear = |r: &Request| (r.answered || r.is_put_off) && r.accepted.is_none() && r.refused.is_none();
        self.list.iter().filter(move |r| !is_unclear(r) && self.is_real(r)).map(|r| Attempt {
            at: r.at,
            client: r.client,
            server: r.server,
            hosts: r.hosts,
            port: r.port,
            transport: r.transport,
            udp_port: r.udp_port,
            sent: r.repeats.saturating_add(1),
            heard: r.heard,
            answer: match (&r.refused, r.accepted) {
                // a server that waited in vain refused nothing
                (Some((at, reason, true)), _) if *reason != RejectReason::TIMEOUT.to_string() => {
                    CmAnswer::Rejected(*at, reason.clone())
                }
                (_, Some(at)) => CmAnswer::Accepted(at),
                (Some((.., true)), None) => CmAnswer::GivenUp,
                (Some((at, ..)), None) => CmAnswer::TakenBack(*at),
                (None, None) => CmAnswer::None,
            },
        })
    }

    /// All of them, oldest first: the capture is over.
    pub(super) fn take_all(&mut self) -> Vec<Request> {
        let all = core::mem::take(self);
        all.list.iter().filter(|r| all.is_real(r)).cloned().collect()
    }
}

fn new_request(
    at: At,
    (src, dst): (Addr, Addr),
    (transport, udp_port, tag): (Transport, Option<u16>, Tag),
    message: &ConnectRequest<'_>,
    is_damaged: bool,
) -> Request {
    Request {
        at,
        client: src,
        server: dst,
        comm_id: message.local_comm_id,
        qp: message.head.local_qpn,
        psn: message.head.starting_psn,
        port: message.service_id.port().map_or(0, |(_, port)| port),
        source_port: message.addresses.map_or(0, |a| a.source_port),
        hosts: message.addresses.map(|a| [a.src, a.dst]),
        responder_resources: message.head.responder_resources,
        path_mtu: message.path_mtu(),
        ack_timeout: message.primary.local_ack_timeout(),
        rpc_rdma: message.rpc_rdma,
        is_private_cut: is_private_cut(message.rpc_rdma, message.private),
        slot: None,
        connection: None,
        early: Vec::new(),
        server_comm_id: None,
        answered: false,
        is_put_off: false,
        rejected: false,
        made_good: false,
        repeats: 0,
        transport,
        udp_port,
        tag,
        accepted: None,
        last_again: [At::default(); 2],
        again: [0; 2],
        refused: None,
        heard: false,
        is_sound: false,
        is_server_sound: false,
        is_damaged,
    }
}

/// True if a capture may have cut off what NFS says of itself in the private data: their first 8 bytes (RFC 8797 4.1).
pub(super) const fn is_private_cut(found: Option<RpcRdmaPrivate>, private: &[u8]) -> bool {
    found.is_none() && private.len() < 8
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdmascope_dissector::trace::Off;
    use rdmascope_dissector::wire::ib::cm::{AlternatePath, PrimaryPath, ReplyHead, RequestHead, ServiceId};

    const CLIENT: Addr = Addr::V4([10, 0, 0, 1]);
    const SERVER: Addr = Addr::V4([10, 0, 0, 2]);

    /// Bytes from which a header of zeros is read.
    const ZEROS: &[u8] = &[0; 256];

    fn at(frame: u64, seconds: i64) -> At {
        At { frame, time: seconds * 1_000_000_000 }
    }

    fn request(comm_id: u32, qp: u32) -> ConnectRequest<'static> {
        let head = RequestHead { local_qpn: qp, starting_psn: 500, ..RequestHead::parse(ZEROS, &mut Off).unwrap().1 };
        ConnectRequest {
            local_comm_id: comm_id,
            service_id: ServiceId(1 << 24 | 6 << 16 | 5445),
            head,
            local_gid: [0; 16],
            remote_gid: [0; 16],
            primary: PrimaryPath::parse(ZEROS, &mut Off).unwrap().1,
            alternate: AlternatePath::parse(ZEROS, &mut Off).unwrap().1,
            addresses: None,
            rpc_rdma: None,
            private: &[],
        }
    }

    fn reply(comm_id: u32, of: u32) -> ConnectReply<'static> {
        let head = ReplyHead::parse(ZEROS, &mut Off).unwrap().1;
        ConnectReply {
            head: ReplyHead { local_comm_id: comm_id, remote_comm_id: of, ..head },
            rpc_rdma: None,
            private: &[],
        }
    }

    #[test]
    fn a_reply_is_matched_once_and_brings_the_frames_before_it() {
        let mut requests = Requests::default();
        assert!(
            requests
                .request(at(1, 0), (CLIENT, SERVER), (Transport::RoceV2, None, Tag::default()), &request(70, 3), false)
                .is_none()
        );
        assert_eq!(requests.place(1, CLIENT, SERVER, (Some(70), None)), None);
        // the same REQ again
        requests.request(at(2, 1), (CLIENT, SERVER), (Transport::RoceV2, None, Tag::default()), &request(70, 3), false);
        assert_eq!(requests.place(2, CLIENT, SERVER, (Some(70), None)), None);
        assert!(requests.reply(at(3, 0), CLIENT, &reply(80, 71)).is_none(), "another id");
        assert!(requests.reply(at(3, 0), SERVER, &reply(80, 70)).is_none(), "another receiver");
        let (matched, early) = requests.reply(at(3, 0), CLIENT, &reply(80, 70)).expect("its REP");
        assert_eq!(
            (matched.at.frame, matched.qp, matched.psn, early),
            (1, 3, 500, alloc::vec![(1, End::A), (2, End::A)])
        );
        requests.connected(&matched, 5, 1);
        assert!(requests.reply(at(3, 0), CLIENT, &reply(80, 70)).is_none(), "the same REP again");
        assert_eq!(requests.place(3, SERVER, CLIENT, (Some(80), Some(70))), Some((1, End::B)));
        assert_eq!(requests.place(4, CLIENT, SERVER, (Some(70), Some(80))), Some((1, End::A)));
    }

    #[test]
    fn the_same_ids_with_another_psn_are_another_request() {
        let mut requests = Requests::default();
        let mut ask = |frame: u64, psn: u32| {
            let asked = request(70, 3);
            let asked = ConnectRequest { head: RequestHead { starting_psn: psn, ..asked.head }, ..asked };
            requests.request(at(frame, 0), (CLIENT, SERVER), (Transport::RoceV2, None, Tag::default()), &asked, false);
            requests.reply(at(frame, 0), CLIENT, &reply(80, 70)).map(|(matched, _)| matched.psn)
        };
        assert_eq!([ask(1, 500), ask(2, 500), ask(3, 9000)], [Some(500), None, Some(9000)]);
        assert_eq!(requests.list.iter().map(|r| r.repeats).collect::<Vec<_>>(), [1, 0]);
    }

    #[test]
    fn a_disconnect_ends_the_connection_of_both_ids() {
        let mut requests = Requests::default();
        requests.request(at(1, 0), (CLIENT, SERVER), (Transport::RoceV2, None, Tag::default()), &request(70, 3), false);
        let (matched, _) = requests.reply(at(3, 0), CLIENT, &reply(80, 70)).expect("its REP");
        requests.connected(&matched, 5, 1);
        assert_eq!(requests.connection_of(SERVER, CLIENT, 80, 70), Some((5, End::B)));
        assert_eq!(requests.connection_of(CLIENT, SERVER, 70, 80), Some((5, End::A)));
        assert_eq!(requests.connection_of(CLIENT, SERVER, 70, 81), None);
        requests.forget(5);
        assert_eq!(requests.connection_of(CLIENT, SERVER, 70, 80), None, "it is not followed any more");
    }

    #[test]
    fn a_request_times_out_unless_somebody_answers() {
        let mut requests = Requests::default();
        for id in [1, 2, 3] {
            requests.request(
                at(u64::from(id), 0),
                (CLIENT, SERVER),
                (Transport::RoceV2, None, Tag::default()),
                &request(id, id),
                false,
            );
        }
        requests.reply(at(3, 0), CLIENT, &reply(80, 1));
        let head = RejectHead { local_comm_id: 0, remote_comm_id: 2, ..RejectHead::parse(ZEROS, &mut Off).unwrap().1 };
        let rejected = requests.reject(at(4, 0), (SERVER, CLIENT), &head, RejectReason::INVALID_SERVICE_ID, |_| false);
        assert_eq!(rejected, Some(Rejected { port: 5445, by_server: true, slot: None }));
        // the first was accepted under another id
        let other = RejectHead { local_comm_id: 81, remote_comm_id: 1, ..head };
        assert_eq!(
            requests.reject(at(4, 0), (SERVER, CLIENT), &other, RejectReason::INVALID_SERVICE_ID, |_| false),
            None
        );
        let answers: Vec<CmAnswer> = requests.attempts().map(|a| a.answer).collect();
        assert_eq!(
            answers,
            [
                CmAnswer::Accepted(at(3, 0)),
                CmAnswer::Rejected(at(4, 0), RejectReason::INVALID_SERVICE_ID.to_string()),
                CmAnswer::None
            ]
        );
        assert!(requests.list.iter().all(|r| !r.is_surely_unanswered()), "none was sent again");
        requests.heard(SERVER, CLIENT);
        requests.request(at(4, 1), (CLIENT, SERVER), (Transport::RoceV2, None, Tag::default()), &request(3, 3), false);
        assert_eq!(requests.list.iter().filter(|r| r.is_surely_unanswered()).count(), 1);
        let silent = |now| requests.list.iter().filter(|r| r.timed_out(now)).map(|r| r.comm_id).collect::<Vec<_>>();
        assert_eq!((silent(at(9, 19)), silent(at(9, 20))), (alloc::vec![], alloc::vec![3]));
    }

    #[test]
    fn what_a_server_refused_is_made_good_when_it_accepts_the_client() {
        let mut requests = Requests::default();
        for id in [1, 2, 3] {
            requests.request(
                at(u64::from(id), 0),
                (CLIENT, SERVER),
                (Transport::RoceV2, None, Tag::default()),
                &request(id, id),
                false,
            );
        }
        for id in [1, 2] {
            let head =
                RejectHead { local_comm_id: 0, remote_comm_id: id, ..RejectHead::parse(ZEROS, &mut Off).unwrap().1 };
            requests
                .reject(at(4, 0), (SERVER, CLIENT), &head, RejectReason::INVALID_SERVICE_ID, |_| false)
                .expect("it was asked for");
        }
        let (accepted, _) = requests.reply(at(5, 0), CLIENT, &reply(80, 3)).expect("its REP");
        assert!(!requests.make_good(&Request { at: at(1, 0), ..accepted.clone() }), "it was before");
        assert!(requests.make_good(&accepted));
        assert!(!requests.make_good(&accepted), "once");
    }

    #[test]
    fn a_damaged_request_gives_way_to_one_that_is_not() {
        let mut requests = Requests::default();
        let wrong = ConnectRequest { head: RequestHead { starting_psn: 7, ..request(70, 3).head }, ..request(70, 3) };
        requests.request(at(1, 0), (CLIENT, SERVER), (Transport::RoceV2, None, Tag::default()), &wrong, true);
        requests.request(at(2, 1), (CLIENT, SERVER), (Transport::RoceV2, None, Tag::default()), &request(70, 3), false);
        let values = requests.list.iter().map(|r| (r.at.frame, r.psn, r.repeats)).collect::<Vec<_>>();
        assert_eq!(values, [(1, 500, 1)]);
        // one whose id is damaged is known once others of its client are right
        requests.request(at(3, 1), (CLIENT, SERVER), (Transport::RoceV2, None, Tag::default()), &request(71, 3), true);
        assert_eq!(requests.attempts().count(), 2);
        requests.sound(CLIENT, SERVER);
        assert!(requests.is_damaged(CLIENT, SERVER) && !requests.is_damaged(SERVER, CLIENT));
        assert_eq!((requests.attempts().count(), requests.take_all().len()), (1, 1));
    }

    /// An RTU shows that there was a REP, and a damaged datagram may have been the answer.
    #[test]
    fn a_request_whose_answer_was_not_captured_whole_is_not_unanswered() {
        let ask = || {
            let mut requests = Requests::default();
            requests.request(
                at(1, 0),
                (CLIENT, SERVER),
                (Transport::RoceV2, None, Tag::default()),
                &request(70, 3),
                false,
            );
            requests
        };
        let mut requests = ask();
        assert!(requests.established(at(2, 1), (CLIENT, SERVER), 70, 80).is_some());
        assert!(requests.established(at(3, 1), (SERVER, CLIENT), 80, 70).is_none(), "once");
        assert_eq!(requests.attempts().map(|a| a.answer).collect::<Vec<_>>(), [CmAnswer::Accepted(at(2, 1))]);
        assert!(
            requests.reply(at(3, 1), CLIENT, &reply(80, 70)).is_some(),
            "a REP that comes late in the capture still counts"
        );
        let mut requests = ask();
        requests.may_be_answered(SERVER, CLIENT);
        assert!(!requests.list[0].timed_out(at(9, 60)));
        assert_eq!(requests.attempts().count(), 0);
    }

    #[test]
    fn the_oldest_gives_way_when_there_are_too_many() {
        let mut requests = Requests::default();
        let gone: Vec<u32> = (0..REQUESTS_MAX as u32 + 2)
            .filter_map(|id| {
                requests
                    .request(
                        at(1, 0),
                        (CLIENT, SERVER),
                        (Transport::RoceV2, None, Tag::default()),
                        &request(id, id),
                        false,
                    )
                    .map(|r| r.comm_id)
            })
            .collect();
        assert_eq!((gone, requests.list.len()), (alloc::vec![0, 1], REQUESTS_MAX));
    }
}
