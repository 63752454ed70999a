//! Facts about the path to RDMA in the messages of one SMB2 connection: capabilities, interfaces, binding, and the path
//! of its data. \[MS-SMB2\] 2.2.3, 2.2.4, 2.2.31.4, 2.2.32.5.

use crate::exchange::{DataPath, Exchange};
use crate::op::At;
use crate::stored::{stored, stored_enum};
use alloc::vec::Vec;
use rdmascope_dissector::wire::smb2::ioctl::{IoctlResponse, NetworkInterface};
use rdmascope_dissector::wire::smb2::negotiate::capabilities::MULTI_CHANNEL;
use rdmascope_dissector::wire::smb2::negotiate::{ContextType, Dialect, NegotiateRequest, NegotiateResponse};

/// Interfaces of one server that are kept.
const INTERFACES_MAX: usize = 64;

/// Data that READs or WRITEs of one connection moved, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Requests whose data RDMA moved.
    pub by_rdma: u64,
    /// Payload bytes of these.
    pub rdma_bytes: u64,
    /// The smallest of them.
    pub rdma_least: Option<u32>,
    /// Requests with the data in the message.
    pub inline: u64,
    /// Payload bytes of these.
    pub inline_bytes: u64,
    /// The largest of them.
    pub inline_most: u32,
    /// Of these, signed requests.
    pub inline_signed: u64,
    /// Times at which the first and the last were answered.
    pub span: Option<(At, At)>,
}

/// Facts about the path to RDMA in the messages of one SMB2 connection. Pairs are `[client, server]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SmbSetup {
    /// The highest dialect that the client offered, and its frame.
    pub offered: Option<(At, u16)>,
    /// Capabilities of the NEGOTIATE messages.
    pub capabilities: [Option<u32>; 2],
    /// ClientGuid and ServerGuid.
    pub guids: [Option<[u8; 16]>; 2],
    /// Time at which the server chose a dialect.
    pub agreed: Option<At>,
    /// True if both may encrypt or sign data that RDMA moves.
    pub transforms: bool,
    /// Time at which a session was set up.
    pub set_up: Option<At>,
    /// Time at which one was refused, and the reason (NTSTATUS).
    pub refused: Option<(At, u32)>,
    /// True if the server's last word is that an authentication is to go on.
    pub is_begun: bool,
    /// Time at which the client asked to bind this connection to a session as a channel, and the server's NTSTATUS.
    pub binding: Option<(At, Option<u32>)>,
    /// The session that the client had before, and asked the server to end.
    pub previous: Option<u64>,
    /// Time at which the client asked for the interfaces of the server.
    pub asked: Option<At>,
    /// Time at which the server answered that, and its NTSTATUS.
    pub answered: Option<(At, u32)>,
    /// Network interfaces that the server listed.
    pub interfaces: Vec<NetworkInterface>,
    /// True if the list goes on behind what was captured of it.
    pub is_list_cut: bool,
    /// READ and WRITE.
    pub moved: [Moved; 2],
    /// Why the server had to close the connection, if it had to.
    pub obliged: Option<Obliged>,
}

/// A request after which a server has to close the connection instead of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obliged {
    /// A NEGOTIATE on a connection that has a dialect (\[MS-SMB2\] 3.3.5.4).
    SecondNegotiate,
    /// An FSCTL_VALIDATE_NEGOTIATE_INFO, if it says something else than the NEGOTIATE (3.3.5.15.12).
    Validation,
}

impl SmbSetup {
    pub(crate) fn offer(&mut self, request: &NegotiateRequest<'_>, at: At) {
        // the wildcard 0x02ff is of SMB1's negotiation
        let highest = request.dialects().map(|d| d.0).max().unwrap_or(0);
        self.offered = Some((at, highest));
        self.capabilities[0] = Some(request.fixed.capabilities);
        self.guids[0] = Some(request.fixed.client_guid);
    }

    pub(crate) fn agree(&mut self, at: At, response: &NegotiateResponse<'_>) {
        self.agreed = Some(at);
        self.capabilities[1] = Some(response.fixed.capabilities);
        self.guids[1] = Some(response.fixed.server_guid);
        self.transforms = response.dialect() == Dialect::SMB_3_1_1
            && response
                .contexts
                .into_iter()
                .any(|c| c.context_type == ContextType::RDMA_TRANSFORM && c.ids().any(|id| id != 0));
    }

    /// True if the session may have further channels: nobody said that it knows none.
    pub(crate) fn may_have_channels(&self) -> bool {
        self.capabilities.iter().all(|known| known.is_none_or(|known| known & MULTI_CHANNEL != 0))
    }

    pub(crate) fn set_up(&mut self, at: At, status: u32) {
        self.is_begun = false;
        match self.binding.as_mut() {
            Some((_, answer @ None)) => *answer = Some(status),
            _ if status == 0 => {}
            _ => self.refused = Some((at, status)),
        }
        if status == 0 {
            self.set_up.get_or_insert(at);
        }
    }

    pub(crate) fn answer(&mut self, at: At, status: u32, reply: Option<&IoctlResponse<'_>>) {
        self.answered = Some((at, status));
        // of a reply that could not be read, only its status is known
        let is_whole = |reply: &IoctlResponse<'_>| reply.output.bytes.len() >= reply.output.length as usize;
        self.is_list_cut = status == 0 && !reply.is_some_and(is_whole);
        if let Some(reply) = reply {
            self.interfaces = reply.network_interfaces().take(INTERFACES_MAX).collect();
        }
    }

    /// Counts an answered READ or WRITE; `is_signed` is of the request.
    pub(crate) fn moved(&mut self, exchange: &Exchange, is_signed: bool) {
        let Some(moved) = self.moved.get_mut(usize::from(exchange.command == "WRITE")) else { return };
        let size = exchange.length.unwrap_or(0);
        let at = exchange.reply_end.unwrap_or(exchange.request);
        if exchange.channel == DataPath::Inline {
            moved.inline += 1;
            moved.inline_signed += u64::from(is_signed);
            moved.inline_bytes = moved.inline_bytes.saturating_add(exchange.bytes_moved);
            moved.inline_most = moved.inline_most.max(u32::try_from(exchange.bytes_moved).unwrap_or(u32::MAX));
        } else {
            moved.by_rdma += 1;
            moved.rdma_bytes = moved.rdma_bytes.saturating_add(exchange.bytes_moved);
            moved.rdma_least = Some(moved.rdma_least.map_or(size, |least| least.min(size)));
        }
        moved.span = Some(moved.span.map_or((at, at), |(first, last)| (first.min(at), last.max(at))));
    }

    /// Takes over the facts from the other half of the connection.
    pub(crate) fn join(&mut self, other: Self) {
        self.offered = self.offered.or(other.offered);
        for end in 0..2 {
            self.capabilities[end] = self.capabilities[end].or(other.capabilities[end]);
            self.guids[end] = self.guids[end].or(other.guids[end]);
        }
        self.agreed = self.agreed.or(other.agreed);
        self.transforms |= other.transforms;
        self.set_up = self.set_up.or(other.set_up);
        self.refused = self.refused.or(other.refused);
        self.binding = self.binding.or(other.binding);
        self.previous = self.previous.or(other.previous);
        self.asked = self.asked.or(other.asked);
        self.answered = self.answered.or(other.answered);
        self.obliged = self.obliged.or(other.obliged);
        if self.interfaces.is_empty() {
            self.interfaces = other.interfaces;
            self.is_list_cut |= other.is_list_cut;
        }
        for (mine, theirs) in self.moved.iter_mut().zip(other.moved) {
            mine.join(&theirs);
        }
    }
}

impl Moved {
    /// Adds the counts of another connection.
    pub fn join(&mut self, other: &Self) {
        self.by_rdma += other.by_rdma;
        self.rdma_bytes = self.rdma_bytes.saturating_add(other.rdma_bytes);
        self.rdma_least = self.rdma_least.into_iter().chain(other.rdma_least).min();
        self.inline += other.inline;
        self.inline_signed += other.inline_signed;
        self.inline_bytes = self.inline_bytes.saturating_add(other.inline_bytes);
        self.inline_most = self.inline_most.max(other.inline_most);
        self.span = match (self.span, other.span) {
            (Some((a, b)), Some((c, d))) => Some((a.min(c), b.max(d))),
            (mine, theirs) => mine.or(theirs),
        };
    }
}

stored!(Moved { by_rdma, rdma_bytes, rdma_least, inline, inline_bytes, inline_most, inline_signed, span });
stored!(SmbSetup {
    offered,
    capabilities,
    guids,
    agreed,
    transforms,
    set_up,
    refused,
    is_begun,
    binding,
    previous,
    asked,
    answered,
    interfaces,
    is_list_cut,
    moved,
    obliged
});
stored_enum!(Obliged { SecondNegotiate, Validation });
