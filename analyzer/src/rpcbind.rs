//! Answers of rpcbind (the portmapper) about NFS: the transports by which the server is reached, and their ports. RFC
//! 1833, RFC 5665, RFC 8166 5.5.
//!
//! ```text
//!   DUMP, GETADDRLIST ─▶ all transports: `rdma` and `rdma6` among them where the server registers them
//!   GETPORT, GETADDR  ─▶ one transport; in the versions with netids that is the one on which the question came, whatever it names
//! ```
//!
//! Linux does not register its RDMA listener: a list without `rdma` says nothing.

use crate::op::At;
use crate::stored::{stored, stored_enum};
use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use rdmascope_dissector::frame::Addr;
use rdmascope_dissector::trace::Off;
use rdmascope_dissector::wire::nfs::{Op, Visit};
use rdmascope_dissector::wire::portmap::{Mapping, Procedure, RpcbindProcedure};
use rdmascope_dissector::wire::rpc::{self, Memo, Message, Program};
use rdmascope_dissector::wire::xdr::Stream;

/// The port of rpcbind.
pub(crate) const PORT: u16 = 111;
/// Calls over UDP that wait for their reply, and pairs of hosts that asked, at most.
const KEPT_MAX: usize = 256;
/// Registrations that are kept of one server.
const ROWS_MAX: usize = 16;

/// Transport by which a program is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Netid {
    /// `tcp`, `tcp6`.
    Tcp,
    /// `udp`, `udp6`.
    Udp,
    /// `rdma`, `rdma6`.
    Rdma,
    /// Another one, or unknown.
    Other,
}

impl Netid {
    fn of(bytes: &[u8]) -> Self {
        match bytes {
            b"tcp" | b"tcp6" => Self::Tcp,
            b"udp" | b"udp6" => Self::Udp,
            b"rdma" | b"rdma6" => Self::Rdma,
            _ => Self::Other,
        }
    }

    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Rdma => "rdma",
            Self::Other => "other",
        }
    }
}

/// Calls to rpcbind about NFS, and its answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rpcbind {
    /// Time at which it was first asked.
    pub asked: Option<At>,
    /// Time at which it first answered.
    pub answered: Option<At>,
    /// True if it gave a list of all transports.
    pub listed: bool,
    /// Transports and ports of NFS, in order.
    pub nfs: Vec<(Netid, u16)>,
}

impl Rpcbind {
    /// The port at which NFS listens for RDMA.
    pub fn rdma(&self) -> Option<u16> {
        self.nfs.iter().find(|(netid, _)| *netid == Netid::Rdma).map(|(_, port)| *port)
    }

    /// True if no call to rpcbind was seen.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// "tcp 2049, rdma 20049".
    pub fn text(&self) -> String {
        let list: Vec<String> = self.nfs.iter().map(|(netid, port)| format!("{} {port}", netid.name())).collect();
        list.join(", ")
    }

    fn add(&mut self, netid: Netid, port: u16) {
        let row = (netid, port);
        if port == 0 || self.nfs.len() >= ROWS_MAX {
            return;
        }
        if let Err(place) = self.nfs.binary_search(&row) {
            self.nfs.insert(place, row);
        }
    }

    /// A call or a reply of rpcbind. `memo` and `asked` are those of the call.
    pub(crate) fn message(
        &mut self,
        at: At,
        is_call: bool,
        memo: &Memo,
        asked: Option<Registration>,
        listed: &[Registration],
    ) {
        if memo.program != Program::PORTMAP.0 || !is_of_nfs(memo, asked) {
            return;
        }
        if is_call {
            self.asked.get_or_insert(at);
            return;
        }
        self.asked.get_or_insert(at);
        self.answered.get_or_insert(at);
        if is_list(memo) {
            self.listed = true;
            listed.iter().filter(|row| row.is_nfs).for_each(|row| self.add(row.netid, row.port));
            return;
        }
        let (Some(asked), Some(listed)) = (asked, listed.first()) else { return };
        // asked over TCP, rpcbind returns the TCP port, whatever the question names
        if asked.netid != Netid::Rdma || listed.port != NFS_PORT {
            self.add(asked.netid, listed.port);
        }
    }

    /// Takes over the facts from others.
    pub(crate) fn join(&mut self, other: &Self) {
        self.asked = self.asked.into_iter().chain(other.asked).min();
        self.answered = self.answered.into_iter().chain(other.answered).min();
        self.listed |= other.listed;
        other.nfs.iter().for_each(|(netid, port)| self.add(*netid, *port));
    }
}

/// The port of NFS over TCP and UDP.
pub(crate) const NFS_PORT: u16 = 2049;

const fn is_list(memo: &Memo) -> bool {
    match memo.version {
        2 => memo.procedure == Procedure::DUMP.0,
        _ => memo.procedure == RpcbindProcedure::DUMP.0 || memo.procedure == RpcbindProcedure::GETADDRLIST.0,
    }
}

fn is_of_nfs(memo: &Memo, asked: Option<Registration>) -> bool {
    let is_question = match memo.version {
        2 => memo.procedure == Procedure::GETPORT.0,
        _ => {
            let p = RpcbindProcedure(memo.procedure);
            p == RpcbindProcedure::GETADDR || p == RpcbindProcedure::GETVERSADDR || p == RpcbindProcedure::GETADDRLIST
        }
    };
    if is_question { asked.is_some_and(|row| row.is_nfs) } else { is_list(memo) }
}

/// A row of a question or of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Registration {
    is_nfs: bool,
    netid: Netid,
    port: u16,
}

impl Registration {
    pub(crate) fn of(mapping: &Mapping<'_>) -> Self {
        Self { is_nfs: mapping.program == Program::NFS.0, netid: Netid::of(mapping.netid), port: mapping.port }
    }
}

/// Takes the rows of one message.
#[derive(Default)]
struct Rows(Vec<Registration>);

impl<'a> Visit<'a> for Rows {
    fn op(&mut self, _: &Op<'a>) {}

    fn mapping(&mut self, mapping: &Mapping<'a>) {
        if self.0.len() < KEPT_MAX {
            self.0.push(Registration::of(mapping));
        }
    }
}

/// Answers of a server's rpcbind to a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registrations {
    /// The requester.
    pub client: Addr,
    /// Whom.
    pub server: Addr,
    /// Answers of rpcbind.
    pub rpcbind: Rpcbind,
}

/// A call over UDP that was not answered yet: its client and transaction id.
#[derive(Clone, Debug)]
struct Waiting {
    client: Addr,
    server: Addr,
    xid: u32,
    memo: Memo,
    asked: Option<Registration>,
}

/// Rpcbind over UDP.
#[derive(Clone, Debug, Default)]
pub(crate) struct Datagrams {
    waiting: VecDeque<Waiting>,
    registrations: Vec<Registrations>,
}

impl Datagrams {
    /// A datagram from or to port 111, as far as it was captured.
    pub(crate) fn take(&mut self, at: At, src: Addr, dst: Addr, payload: &[u8]) {
        let mut rows = Rows::default();
        // a reply is decoded with the facts about its call
        let known = payload.first_chunk::<4>().map(|b| u32::from_be_bytes(*b));
        let place = self.waiting.iter().position(|w| (w.client, w.server) == (dst, src) && Some(w.xid) == known);
        let memo = place.map(|place| self.waiting[place].memo);
        let Ok((_, message)) = rpc::dissect(&Stream::whole(payload), memo, &mut Off, &mut rows) else { return };
        match (message, place) {
            (Message::Call(call), _) if call.memo.program == Program::PORTMAP.0 => {
                let asked = rows.0.first().copied();
                self.pair(src, dst, |rpcbind| rpcbind.message(at, true, &call.memo, asked, &[]));
                if self.waiting.len() >= KEPT_MAX {
                    self.waiting.pop_front();
                }
                self.waiting.push_back(Waiting {
                    client: src,
                    server: dst,
                    xid: call.header.xid,
                    memo: call.memo,
                    asked,
                });
            }
            (Message::Reply(reply), Some(place)) if reply.outcome == rpc::Outcome::Success => {
                if let Some(call) = self.waiting.remove(place) {
                    self.pair(dst, src, |rpcbind| rpcbind.message(at, false, &call.memo, call.asked, &rows.0));
                }
            }
            _ => {}
        }
    }

    fn pair(&mut self, client: Addr, server: Addr, update: impl FnOnce(&mut Rpcbind)) {
        match self.registrations.iter().position(|h| (h.client, h.server) == (client, server)) {
            Some(place) => update(&mut self.registrations[place].rpcbind),
            None if self.registrations.len() < KEPT_MAX => {
                let mut rpcbind = Rpcbind::default();
                update(&mut rpcbind);
                if !rpcbind.is_empty() {
                    self.registrations.push(Registrations { client, server, rpcbind });
                }
            }
            None => {}
        }
    }

    /// Registrations that were seen, by pair of hosts.
    pub(crate) fn registrations(&self) -> &[Registrations] {
        &self.registrations
    }

    /// Takes over the registrations of another part of the capture.
    pub(crate) fn join(&mut self, other: Self) {
        for known in other.registrations {
            self.pair(known.client, known.server, |rpcbind| rpcbind.join(&known.rpcbind));
        }
    }
}

stored_enum!(Netid { Tcp, Udp, Rdma, Other });
stored!(Rpcbind { asked, answered, listed, nfs });
stored!(Registrations { client, server, rpcbind });

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    const CLIENT: Addr = Addr::V4([192, 0, 2, 2]);
    const SERVER: Addr = Addr::V4([192, 0, 2, 1]);

    fn at(frame: u64) -> At {
        At { frame, time: frame as i64 }
    }

    fn words(list: &[u32]) -> Vec<u8> {
        list.iter().flat_map(|w| w.to_be_bytes()).collect()
    }

    fn text(out: &mut Vec<u8>, text: &str) {
        out.extend((text.len() as u32).to_be_bytes());
        out.extend(text.as_bytes());
        out.resize(out.len().next_multiple_of(4), 0);
    }

    fn call(xid: u32, version: u32, procedure: u32, arguments: &[u8]) -> Vec<u8> {
        [words(&[xid, 0, 2, 100_000, version, procedure, 0, 0, 0, 0]), arguments.to_vec()].concat()
    }

    fn reply(xid: u32, results: &[u8]) -> Vec<u8> {
        [words(&[xid, 1, 0, 0, 0, 0]), results.to_vec()].concat()
    }

    fn rpcb(program: u32, netid: &str, address: &str) -> Vec<u8> {
        let mut out = words(&[program, 3]);
        [netid, address, "superuser"].iter().for_each(|part| text(&mut out, part));
        out
    }

    fn asked(messages: &[(bool, Vec<u8>)]) -> Rpcbind {
        let mut datagrams = Datagrams::default();
        for (n, (is_call, bytes)) in messages.iter().enumerate() {
            let (src, dst) = if *is_call { (CLIENT, SERVER) } else { (SERVER, CLIENT) };
            for length in 0..bytes.len() {
                // a cut datagram says nothing, and does no harm
                datagrams.clone().take(at(9), src, dst, &bytes[..length]);
            }
            datagrams.take(at(n as u64 + 1), src, dst, bytes);
        }
        let whole = datagrams.registrations().first().map(|h| h.rpcbind.clone()).unwrap_or_default();
        let mut joined = Datagrams::default();
        joined.join(datagrams);
        assert_eq!(joined.registrations().first().map(|h| h.rpcbind.clone()).unwrap_or_default(), whole);
        whole
    }

    #[test]
    fn a_list_tells_of_rdma() {
        let mut list = Vec::new();
        for row in [
            rpcb(100_003, "tcp", "0.0.0.0.8.1"),
            rpcb(100_003, "rdma", "0.0.0.0.78.81"),
            rpcb(100_005, "tcp", "0.0.0.0.1.2"),
        ] {
            list.extend(words(&[1]));
            list.extend(row);
        }
        list.extend(words(&[0]));
        let heard = asked(&[(true, call(7, 4, 4, &[])), (false, reply(7, &list))]);
        assert_eq!((heard.rdma(), heard.text().as_str(), heard.listed), (Some(20049), "tcp 2049, rdma 20049", true));
        assert_eq!((heard.asked, heard.answered), (Some(at(1)), Some(at(2))));
        let six = [words(&[1]), rpcb(100_003, "rdma6", "::.78.81"), words(&[0])].concat();
        assert_eq!(asked(&[(true, call(7, 3, 4, &[])), (false, reply(7, &six))]).rdma(), Some(20049));
        let map = words(&[1, 100_003, 3, 6, 2049, 1, 100_003, 3, 17, 2049, 0]);
        assert_eq!(asked(&[(true, call(7, 2, 4, &[])), (false, reply(7, &map))]).text(), "tcp 2049, udp 2049");
    }

    #[test]
    fn a_question_tells_of_its_own_transport_only() {
        let getport = |program, port: u32| {
            asked(&[(true, call(1, 2, 3, &words(&[program, 3, 6, 0]))), (false, reply(1, &words(&[port])))])
        };
        assert_eq!(getport(100_003, 2049).nfs, vec![(Netid::Tcp, 2049)]);
        assert_eq!(getport(100_003, 0).nfs, vec![]);
        assert!(getport(100_005, 635).is_empty(), "that is of another program");
        let getaddr = |netid, address| {
            let mut answer = Vec::new();
            text(&mut answer, address);
            asked(&[(true, call(1, 4, 3, &rpcb(100_003, netid, ""))), (false, reply(1, &answer))]).rdma()
        };
        assert_eq!(getaddr("rdma", "192.0.2.1.78.81"), Some(20049));
        assert_eq!(getaddr("rdma", "192.0.2.1.8.1"), None, "the port of TCP, on which it was asked");
        assert_eq!(getaddr("tcp", "192.0.2.1.8.1"), None);
        assert_eq!(getaddr("rdma", ""), None);
    }

    #[test]
    fn no_reply_is_taken_for_that_of_another_call() {
        let call = call(1, 2, 3, &words(&[100_003, 3, 6, 0]));
        let heard = asked(&[(true, call.clone()), (false, reply(2, &words(&[2049])))]);
        assert_eq!((heard.asked, heard.answered, heard.nfs.len()), (Some(at(1)), None, 0));
        assert!(asked(&[(false, reply(1, &words(&[2049])))]).is_empty());
        let mut many = Datagrams::default();
        for n in 0..10_000u32 {
            many.take(at(1), Addr::V4(n.to_be_bytes()), SERVER, &call);
        }
        assert!(many.waiting.len() <= KEPT_MAX && many.registrations.len() <= KEPT_MAX);
    }
}
