//! Meaning of messages: SMB2, and ONC RPC with NFS. Requests and replies become exchanges, with the payload that RDMA
//! moved for them.

pub(crate) mod channel;
pub(crate) mod context;
pub(crate) mod ids;
pub(crate) mod kept;
pub(crate) mod payload;
pub(crate) mod rpc;
pub(crate) mod shape;
pub(crate) mod signing;
pub(crate) mod smb2;
pub(crate) mod unseal;

use crate::context::FrameContext;
use crate::exchange::{Exchange, Family};
use crate::memory::{Delivery, Fit, Memory};
use crate::messages::Message;
use crate::messages::known::Known;
use crate::messages::rpcrdma::has_message;
use crate::missed::Rests;
use crate::op::{At, End, RdmaOp, Verb};
use crate::stats::Commands;
use crate::summary::Smb;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use payload::PIECE;
use rdmascope_dissector::trace::Trace;
use rdmascope_dissector::wire::rpc::Memo;
use rdmascope_dissector::wire::smb2::RequestMemo;
use rpc::Rpc;
use smb2::Smb2;

/// ns after which a request without reply at the end of the capture counts as unanswered.
const UNANSWERED_AFTER: i64 = 1_000_000_000;
/// ns for which a reply waits for its request, which the capture may show behind it.
const EARLY: i64 = 10_000_000;

/// Exchanges of a connection, for a report.
#[derive(Clone, Debug, Default)]
pub(crate) struct Summary {
    /// The SMB layer; arrays by end are for end A and B.
    pub smb: Smb,
    /// The NFS layer.
    pub nfs: crate::session::Nfs,
    /// Messages by sender, end A and B.
    pub messages: [u64; 2],
    /// Exchanges by command.
    pub commands: Commands,
}

/// The newest answers of a connection, so that a copy of one can be shown with its request.
#[derive(Clone, Debug)]
pub(crate) struct Answers<K, M>(VecDeque<(K, M, u64)>);

impl<K, M> Default for Answers<K, M> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<K: PartialEq, M: Copy> Answers<K, M> {
    /// Answers remembered.
    const MAX: usize = 64;

    /// Adds an answer: the key by which its request is found, the facts about that, and the number of the exchange.
    fn add(&mut self, key: K, memo: M, exchange: u64) {
        if self.0.len() >= Self::MAX {
            self.0.pop_front();
        }
        self.0.push_back((key, memo, exchange));
    }

    fn find(&self, key: &K) -> Option<(M, u64)> {
        self.0.iter().rev().find(|(known, ..)| known == key).map(|(_, memo, exchange)| (*memo, *exchange))
    }
}

/// Exchanges that a message belongs to which is shown once more, the first few.
pub(crate) type ShownAgain = [Option<u64>; 8];

/// Lookup of requests while messages are shown once more.
#[derive(Debug)]
pub(crate) struct ShownExchanges<'u> {
    upper: &'u Upper,
    /// The exchanges that were met.
    pub exchanges: ShownAgain,
}

impl ShownExchanges<'_> {
    fn met(&mut self, exchange: u64) {
        if let Some(place) = self.exchanges.iter_mut().find(|place| place.is_none_or(|known| known == exchange)) {
            *place = Some(exchange);
        }
    }
}

impl Known for ShownExchanges<'_> {
    fn smb2(&mut self, message_id: u64) -> Option<RequestMemo> {
        let (memo, exchange) = self.upper.smb2.as_deref()?.known(message_id)?;
        self.met(exchange);
        Some(memo)
    }

    fn rpc(&mut self, xid: u32) -> Option<Memo> {
        let (memo, exchange) = self.upper.rpc.as_deref()?.known(xid)?;
        self.met(exchange);
        memo
    }
}

/// The upper layer of one connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Upper {
    smb2: Option<Box<Smb2>>,
    rpc: Option<Box<Rpc>>,
    /// Bytes of memory that payloads of open requests held when they were counted last, and that came since.
    payloads: (usize, usize),
}

/// Bytes of payload after which payloads are counted again, at least.
const UNCOUNTED_MAX: usize = 64 << 10;

impl Upper {
    /// Bytes of memory that open requests hold, with their payloads.
    pub(crate) fn held(&self) -> usize {
        self.smb2.as_ref().map_or(0, |smb2| smb2.held())
            + self.rpc.as_ref().map_or(0, |rpc| rpc.held())
            + self.payloads()
    }

    /// The part of it that payloads hold: at most this, since requests may have ended since they were counted.
    pub(crate) const fn payloads(&self) -> usize {
        self.payloads.0.saturating_add(self.payloads.1)
    }

    /// Counts the payloads of open requests.
    pub(crate) fn count_payloads(&mut self) {
        let held =
            self.smb2.as_ref().map_or(0, |smb2| smb2.payloads()) + self.rpc.as_ref().map_or(0, |rpc| rpc.payloads());
        self.payloads = (held, 0);
    }

    /// Gives back the memory of the payloads of open requests: they stay holes.
    pub(crate) fn give_up_payloads(&mut self) {
        if let Some(smb2) = self.smb2.as_mut() {
            smb2.give_up_payloads();
        }
        if let Some(rpc) = self.rpc.as_mut() {
            rpc.give_up_payloads();
        }
        self.payloads = (0, 0);
    }

    /// A whole message.
    pub(crate) fn message<T: Trace>(
        &mut self,
        cx: &mut FrameContext<'_>,
        memory: &mut Memory,
        message: &Message<'_>,
        t: &mut T,
    ) {
        match message {
            Message::Smb2(message) => {
                let smb2 = self.smb2.get_or_insert_default();
                smb2.message(cx, memory, message, t);
                cx.env.sink.upper_credits(cx.about.id, cx.at, smb2.credits_left());
            }
            Message::Rpc(message) => self.rpc.get_or_insert_default().message(cx, message, t),
        }
    }

    /// Bytes that an RDMA operation brought for an exchange.
    pub(crate) fn delivered(&mut self, cx: &mut FrameContext<'_>, delivery: &Delivery<'_>, op: &RdmaOp<'_>) {
        let id = delivery.region.exchange;
        let payloads = cx.env.options.payloads;
        let write = op.verb == Verb::Write;
        let (row, covered) = match (self.smb2.as_mut(), self.rpc.as_mut()) {
            (Some(smb2), _) => match smb2.open(id) {
                Some((row, covered)) => (row, Some(covered)),
                None => return cx.env.frame.belongs(id, 0),
            },
            (None, rpc) => match rpc.and_then(|rpc| rpc.open(id)) {
                Some((row, covered)) => (row, Some(covered).filter(|_| !write && !has_message(delivery.region))),
                None => return cx.env.frame.belongs(id, 0),
            },
        };
        if let Some(covered) = covered {
            covered.take(delivery, Some(op.length));
        }
        let offset = delivery.region.payload_offset.saturating_add(delivery.offset);
        if write && op.part.begins() {
            row.operation_begins(op.at);
        }
        let transfer = if write { &mut row.writes } else { &mut row.reads };
        transfer.open = match (write, op.part.ends()) {
            (true, ends) => u32::from(!ends),
            (false, true) => transfer.open.saturating_sub(1),
            (false, false) => transfer.open,
        };
        if transfer.frames == 0 {
            transfer.first = op.at;
        }
        transfer.last = op.at;
        transfer.frames += 1;
        transfer.bytes += u64::from(op.length);
        if write && op.part.begins() {
            transfer.operations += 1;
        }
        cx.env.frame.belongs(id, row.rdma_bytes());
        if payloads && delivery.verdict != Fit::Stale && !has_message(delivery.region) {
            if let Some(smb2) = self.smb2.as_mut() {
                smb2.payload(id, offset, op.bytes);
            }
            if let Some(rpc) = self.rpc.as_mut() {
                rpc.payload(id, offset, op.bytes);
            }
            self.payloads.1 += op.bytes.len() + PIECE;
            if self.payloads.1 > self.payloads.0.max(UNCOUNTED_MAX) {
                self.count_payloads();
            }
        }
    }

    /// An RDMA Read was asked for: its bytes will come.
    pub(crate) fn asked(&mut self, cx: &mut FrameContext<'_>, delivery: &Delivery<'_>, op: &RdmaOp<'_>) {
        let id = delivery.region.exchange;
        let mut moved = 0;
        if let Some(row) = self.open_exchange(id) {
            moved = row.rdma_bytes();
            if delivery.verdict == Fit::Inside {
                row.operation_begins(op.at);
                row.reads.open += 1;
                row.reads.operations += 1;
                if row.reads.frames == 0 {
                    row.reads.first = op.at;
                }
                row.reads.last = op.at;
                row.reads.frames += 1;
            }
        }
        if let Some(smb2) = self.smb2.as_mut() {
            smb2.asked(id, delivery, op.message_length);
        } else if let Some((_, fetched)) = self.rpc.as_mut().and_then(|rpc| rpc.open(id))
            && !has_message(delivery.region)
        {
            fetched.take(delivery, op.message_length);
        }
        cx.env.frame.belongs(id, moved);
    }

    fn open_exchange(&mut self, id: u64) -> Option<&mut Exchange> {
        match (self.smb2.as_mut(), self.rpc.as_mut()) {
            (Some(smb2), _) => smb2.open_exchange(id),
            (None, rpc) => rpc?.open_exchange(id),
        }
    }

    /// Messages are missing.
    pub(crate) fn missed(&mut self) {
        if let Some(smb2) = self.smb2.as_mut() {
            smb2.missed();
        }
    }

    /// What the ends agreed upon does not hold from here on: they may be others.
    #[cold]
    pub(crate) fn distrust(&mut self) {
        if let Some(smb2) = self.smb2.as_mut() {
            smb2.distrust();
        }
    }

    /// The connection or the capture ends: requests without a reply stay so. `closed` if a side ended the connection,
    /// with that side if it is known.
    pub(crate) fn finish(&mut self, cx: &mut FrameContext<'_>, end: At, closed: Option<Option<End>>) {
        if let Some(smb2) = self.smb2.as_mut() {
            smb2.finish(cx, end, closed);
        }
        if let Some(rpc) = self.rpc.as_mut() {
            rpc.finish(cx, end);
        }
    }

    /// Lookup of requests while messages are shown once more.
    pub(crate) fn shown(&self) -> ShownExchanges<'_> {
        ShownExchanges { upper: self, exchanges: ShownAgain::default() }
    }

    /// An exchange is done: it was answered by `replier`, and the answer arrived.
    pub(crate) fn settled(&mut self, exchange: &Exchange, replier: End) {
        let commands = match exchange.family {
            Family::Smb2 => self.smb2.as_deref_mut().map(Smb2::commands_mut),
            Family::Rpc => self.rpc.as_deref_mut().map(Rpc::commands_mut),
        };
        let Some(commands) = commands else { return };
        commands.watch(exchange, replier);
        commands.add(exchange);
    }

    /// SMB2's exchanges by command, and RPC's.
    pub(crate) fn commands(&self) -> (Option<&Commands>, Option<&Commands>) {
        (self.smb2.as_deref().map(Smb2::commands), self.rpc.as_deref().map(Rpc::commands))
    }

    /// Plain data for the report.
    pub(crate) fn summary(&self) -> Summary {
        let mut summary = Summary::default();
        if let Some(smb2) = self.smb2.as_deref() {
            summary = smb2.summary();
        }
        if let Some(rpc) = self.rpc.as_deref() {
            rpc.summary(&mut summary);
        }
        summary
    }

    /// Takes over the other half of a connection whose directions were first taken for two.
    pub(crate) fn adopt(&mut self, by: End, from: &mut Self, from_end: End) {
        let swapped = by != from_end;
        match (self.smb2.as_mut(), from.smb2.take()) {
            (Some(mine), Some(theirs)) => mine.adopt(*theirs, swapped),
            (None, Some(mut theirs)) => {
                if swapped {
                    theirs.swap_ends();
                }
                self.smb2 = Some(theirs);
            }
            (_, None) => {}
        }
        match (self.rpc.as_mut(), from.rpc.take()) {
            (Some(mine), Some(theirs)) => mine.adopt(*theirs, swapped),
            (None, Some(mut theirs)) => {
                if swapped {
                    theirs.swap_ends();
                }
                self.rpc = Some(theirs);
            }
            (_, None) => {}
        }
    }
}

/// Cause of a request that is not answered while an RDMA Read for it is under way.
const WAITS_FOR_DATA: &str =
    "The server asked for data by RDMA Read, and the capture does not have all of it: it may wait for the rest";

/// True if a request without reply will not be answered any more: it was sent long ago, and nothing of the other
/// direction was missed.
fn is_unanswered(cx: &FrameContext<'_>, exchange: &Exchange, by: End, end: At) -> bool {
    end.since(exchange.request) > UNANSWERED_AFTER && has_answers(cx, exchange, by)
}

/// True if the capture has all that the other end sent since a request of `by`.
fn has_answers(cx: &FrameContext<'_>, exchange: &Exchange, by: End) -> bool {
    let rests = Rests::since(exchange.request).of(by.peer()).though_cut();
    cx.missed.is_whole(rests) && !cx.missed.is_absent(by.peer())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::alone::Alone;
    use crate::messages::smbd::Smb2Message;
    use crate::messages::stream::Record;
    use alloc::vec::Vec;
    use rdmascope_dissector::trace::Off;

    const RESPONSE: u32 = rdmascope_dissector::wire::smb2::header::flags::RESPONSE;

    /// An ECHO of SMB2 (\[MS-SMB2\] 2.2.28, 2.2.29), behind its header (2.2.1).
    fn echo(flags: u32, message_id: u64) -> Vec<u8> {
        let mut out = b"\xfeSMB".to_vec();
        out.extend([64, 0, 1, 0, 0, 0, 0, 0, 13, 0, 1, 0]);
        out.extend(flags.to_le_bytes());
        out.extend([0; 4]);
        out.extend(message_id.to_le_bytes());
        out.extend([0; 32]);
        out.extend([4, 0, 0, 0]);
        out
    }

    struct Layer {
        alone: Alone,
        memory: Memory,
        upper: Upper,
    }

    impl Layer {
        fn new() -> Self {
            Self { alone: Alone::new(), memory: Memory::default(), upper: Upper::default() }
        }

        fn message(&mut self, by: End, bytes: &[u8]) -> &mut Self {
            let mut cx = self.alone.frame(by);
            let (at, wire_length) = (cx.at, bytes.len() as u32);
            let record = Record { first: at, last: at, bytes, wire_length, in_frame: true, pieces: None };
            let message = Message::Smb2(Smb2Message::of_record(by, &record));
            self.upper.message(&mut cx, &mut self.memory, &message, &mut Off);
            self
        }
    }

    #[test]
    fn the_newest_answers_are_found() {
        let mut answers = Answers::default();
        for key in 0..=Answers::<u64, u8>::MAX as u64 {
            answers.add(key, 1_u8, 100 + key);
        }
        assert_eq!((answers.find(&0), answers.find(&1)), (None, Some((1, 101))), "the oldest has gone");
        answers.add(1, 2, 900);
        assert_eq!(answers.find(&1), Some((2, 900)), "an id that is used again has its newest answer");
    }

    #[test]
    fn what_is_shown_again_names_its_exchanges_once() {
        let mut layer = Layer::new();
        layer.message(End::A, &echo(0, 3)).message(End::A, &echo(0, 4)).message(End::B, &echo(RESPONSE, 3));
        let mut shown = layer.upper.shown();
        assert!(shown.smb2(9).is_none() && shown.rpc(1).is_none());
        for id in [4, 3, 4, 3] {
            assert!(shown.smb2(id).is_some(), "open, or answered");
        }
        assert_eq!(shown.exchanges.iter().flatten().count(), 2);
        for exchange in 100..200 {
            shown.met(exchange);
        }
        assert!(shown.exchanges.iter().all(Option::is_some), "the first few are kept");
    }

    #[test]
    fn a_payload_of_open_requests_is_counted_and_given_back() {
        let mut layer = Layer::new();
        layer.message(End::A, &echo(0, 3));
        assert!(layer.upper.held() > 0);
        layer.upper.payloads = (100, 20);
        let held = layer.upper.held();
        layer.upper.count_payloads();
        assert_eq!((layer.upper.payloads(), layer.upper.held()), (0, held - 120));
        layer.upper.payloads = (100, 20);
        layer.upper.give_up_payloads();
        assert_eq!(layer.upper.payloads(), 0);
    }

    /// Two halves of a connection were taken for two: requests in one, their replies in the other, whose ends have other
    /// names.
    #[test]
    fn the_other_half_is_taken_over_with_its_ends() {
        let (mut mine, mut other) = (Layer::new(), Layer::new());
        mine.message(End::A, &echo(0, 3)).message(End::A, &echo(0, 4));
        other.message(End::A, &echo(RESPONSE, 3));
        let mut nothing = Upper::default();
        mine.upper.adopt(End::B, &mut other.upper, End::A);
        assert!(other.upper.smb2.is_none());
        assert_eq!(mine.upper.summary().messages, [2, 1]);
        nothing.adopt(End::B, &mut mine.upper, End::A);
        assert_eq!(nothing.summary().messages, [1, 2], "a half that had nothing yet");
        assert_eq!((nothing.commands().0.is_some(), nothing.commands().1.is_some()), (true, false));
    }
}
