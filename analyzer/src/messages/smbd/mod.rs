//! SMB Direct connections: the kind of message that a Send is, the rules ([`link`]), and fragments put together.

pub mod link;

use crate::finding::{Certainty, Rule};
use crate::messages::known::Known;
use crate::messages::receive::WholeSend;
use crate::messages::stream::Record;
use crate::op::{At, End};
use crate::pieces::Pieces;
use crate::summary::{Negotiated, SideReport};
use alloc::vec::Vec;
use link::{Link, Phase, RuleSink};
use rdmascope_dissector::trace::{Off, Trace};
use rdmascope_dissector::wire::smb2::header::Command;
use rdmascope_dissector::wire::smb2::{Header, RequestMemo, Visitor};
use rdmascope_dissector::wire::smbd::{self, Data, DataTransfer, NegotiateRequest, NegotiateResponse};

/// Bytes of one SMB2 message put together from fragments at most.
pub const REASSEMBLED_MAX: usize = 1 << 24;

/// A whole SMB2 message, put together.
#[derive(Clone, Copy, Debug)]
pub struct Smb2Message<'a> {
    /// Side that sent it.
    pub by: End,
    /// The frame of its first fragment.
    pub first: At,
    /// The frame of its last one.
    pub last: At,
    /// Bytes of the SMB2 message.
    pub bytes: &'a [u8],
    /// Its length on the wire; more than `bytes` if the capture cut it.
    pub wire_length: u32,
    /// The remote key that was invalidated on the way.
    pub invalidate: Option<u32>,
    /// True if the bytes lie in a buffer of their own.
    pub reassembled: bool,
    /// Fragments.
    pub fragments: u32,
    /// Frames of the fragments, if there were several.
    pub pieces: Option<&'a Pieces>,
    /// Time that its sender waited for credits to send it, in ns.
    pub waited: i64,
    /// Bytes of RDMA for one request, if SMB Direct agreed on a limit.
    pub max_read_write_size: Option<u32>,
    /// True if a packet of it may have been damaged.
    pub is_unchecked: bool,
}

impl<'a> Smb2Message<'a> {
    /// A record of a TCP stream.
    pub fn of_record(by: End, record: &Record<'a>) -> Self {
        Self {
            by,
            first: record.first,
            last: record.last,
            bytes: record.bytes,
            wire_length: record.wire_length,
            invalidate: None,
            reassembled: false,
            fragments: 1,
            pieces: None,
            waited: 0,
            max_read_write_size: None,
            is_unchecked: false,
        }
    }
}

/// Bytes of the header of an encrypted message (\[MS-SMB2\] 2.2.41).
const TRANSFORM_HEADER: u32 = 52;

/// Fragments of one direction.
#[derive(Clone, Debug, Default)]
struct Fragments {
    buffer: Vec<u8>,
    first: At,
    wire_length: u32,
    remaining: u32,
    pieces: Pieces,
    invalidate: Option<u32>,
    cut: bool,
    open: bool,
    waited: i64,
    is_unchecked: bool,
}

/// The SMB Direct side of a connection.
#[derive(Clone, Debug, Default)]
pub struct Smbd {
    /// The rules and the ledger.
    pub link: Link,
    fragments: [Fragments; 2],
    /// True if an SMB2 message was seen: other content is then wrong.
    carries_smb2: bool,
    /// True if an encrypted message was seen.
    is_sealed: bool,
    /// True if the capture cut a Send so short that nothing shows which message it carries.
    hides: bool,
}

/// The four bytes that an SMB2 message of any framing begins with.
fn begins_like_smb2(data: &[u8]) -> bool {
    data.first_chunk::<4>().is_some_and(|m| matches!(m, [0xfc..=0xfe, b'S', b'M', b'B']))
}

/// Recognizes a Send of SMB Direct: a Negotiate Request or Response, or data with an SMB2 message inside.
/// `Some(Certain)` by content, `Some(Guess)` for a message of credits alone.
pub fn looks_like(bytes: &[u8], wire_length: u32) -> Option<Certainty> {
    if is_negotiate_request(bytes, wire_length) || is_negotiate_response(bytes, wire_length) {
        return Some(Certainty::Certain);
    }
    let (_, data) = smbd::parse_data(bytes, wire_length, &mut Off).ok()?;
    if data.inside && begins_like_smb2(data.data) {
        return Some(Certainty::Certain);
    }
    (is_credits_alone(&data.header, wire_length) && (data.header.credits_granted > 0 || data.header.flags == 1))
        .then_some(Certainty::Guess)
}

/// True if a Send, or the first packet of it, may be a data transfer message.
pub fn may_be_data(bytes: &[u8], wire_length: u32, is_only: bool) -> bool {
    if (bytes.len() as u32) < wire_length.min(DataTransfer::LEN as u32) {
        return true;
    }
    smbd::parse_data(bytes, wire_length, &mut Off).is_ok_and(|(_, data)| data.inside || !is_only)
}

/// A data transfer message without data, in which nothing is out of order.
fn is_credits_alone(header: &DataTransfer, wire_length: u32) -> bool {
    wire_length == DataTransfer::LEN as u32
        && header.data_length == 0
        && header.data_offset == 0
        && header.remaining_data_length == 0
        && header.reserved == 0
        && header.flags <= 1
        && header.credits_requested > 0
}

/// MinVersion and MaxVersion of a negotiation: data transfer messages have credits there.
fn versions(bytes: &[u8]) -> Option<(u16, u16)> {
    let [a, b, c, d] = *bytes.first_chunk()?;
    Some((u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d])))
}

fn is_negotiate_request(bytes: &[u8], wire_length: u32) -> bool {
    // the first bytes leave nearly all data transfer messages out
    if !versions(bytes).is_some_and(|(min, max)| min == 0x0100 && (0x0100..0x1000).contains(&max))
        || wire_length >= 1024
    {
        return false;
    }
    let Ok((_, request)) = NegotiateRequest::parse(bytes, &mut Off) else { return false };
    // read as data, the same bytes would point far outside of the message
    request.reserved == 0
        && u64::from(request.max_receive_size) + u64::from(request.max_fragmented_size) > u64::from(wire_length)
}

fn is_negotiate_response(bytes: &[u8], wire_length: u32) -> bool {
    if versions(bytes) != Some((0x0100, 0x0100)) || wire_length >= 1024 {
        return false;
    }
    let Ok((_, response)) = NegotiateResponse::parse(bytes, &mut Off) else { return false };
    let refused = response.status & 0xc000_0000 == 0xc000_0000;
    response.reserved == 0 && (refused || (response.negotiated_version == 0x0100 && response.max_receive_size > 0))
}

impl Smbd {
    /// A connection of which the beginning was not seen.
    pub fn joined_late() -> Self {
        Self { link: Link::joined_late(), ..Self::default() }
    }

    /// True if a Send is a whole message by itself, and no part of one that `by` sends in fragments.
    pub fn is_whole(&self, by: End, bytes: &[u8]) -> bool {
        let data = smbd::parse_data(bytes, bytes.len() as u32, &mut Off);
        !self.fragments[by.index()].open && data.is_ok_and(|(_, data)| data.header.remaining_data_length == 0)
    }

    /// True if `by` is in the middle of a message that it sends in fragments.
    pub fn is_inside(&self, by: End) -> bool {
        self.fragments[by.index()].open
    }

    /// Bytes of memory that unfinished messages hold.
    pub fn held(&self) -> usize {
        self.fragments.iter().map(|fragments| fragments.buffer.capacity() + fragments.pieces.held()).sum()
    }

    /// Gives back the memory of messages that [`Smbd::missed`] forgot.
    pub fn release(&mut self) {
        self.fragments.iter_mut().filter(|fragments| !fragments.open).for_each(|fragments| {
            fragments.buffer = Vec::new();
            fragments.pieces.release();
        });
    }

    /// Sends of `by` were missed.
    pub fn missed(&mut self, by: End) {
        self.link.missed(by);
        let fragments = &mut self.fragments[by.index()];
        fragments.open = false;
        fragments.buffer.clear();
    }

    /// True if the last Send was cut so short that nothing shows which message it carries.
    pub fn hid_message(&mut self) -> bool {
        core::mem::take(&mut self.hides)
    }

    /// Negotiated values, and messages and credits by end A and B, for a report.
    pub fn summary(&self) -> (Negotiated, [SideReport; 2]) {
        let link = &self.link;
        let sides = End::BOTH.map(|end| *link.side(end));
        let negotiated = Negotiated {
            max_send_size: sides.map(|s| s.max_send_size),
            max_receive_size: sides.map(|s| s.max_receive_size),
            max_fragmented_size: sides.map(|s| s.max_fragmented_size),
            max_read_write_size: link.max_read_write_size,
            status: link.status,
        };
        let sides = sides.map(|side| SideReport {
            messages: side.messages,
            fragmented: side.fragmented,
            fragments: side.fragments,
            keepalives: side.keepalives,
            empty: side.empty,
            requested_max: side.requested_max.into(),
            granted_total: side.granted_total,
            spent_total: side.spent_total,
            held_min: side.held_min,
            held_max: side.held_max,
            held_last: side.credits.known(),
            stalls: side.stalls,
            stalled_time: side.stalled_time,
            stall_longest: side.stall_longest.0,
            overruns: side.overruns,
        });
        (negotiated, sides)
    }

    /// Swaps ends A and B.
    pub fn swap_ends(&mut self) {
        self.link.swap_ends();
        self.fragments.swap(0, 1);
    }

    /// Takes over the other half of a connection.
    pub fn adopt(&mut self, by: End, from: &mut Self, from_end: End) {
        self.link.adopt(by, &from.link, from_end);
        self.fragments[by.index()] = core::mem::take(&mut from.fragments[from_end.index()]);
    }

    /// True if a message of `by` that is not complete holds this key, which one of its fragments invalidated.
    pub fn holds(&self, by: End, key: u32) -> bool {
        let fragments = &self.fragments[by.index()];
        fragments.open && fragments.invalidate == Some(key)
    }

    /// A whole Send. Returns the SMB2 message, if it completes one.
    pub fn send<'a, T: Trace>(
        &'a mut self,
        by: End,
        send: &WholeSend<'a>,
        t: &mut T,
        sink: &mut impl RuleSink,
    ) -> Option<Smb2Message<'a>> {
        let (bytes, wire) = (send.bytes, send.wire_length);
        let phase = self.link.phase();
        let answers = phase == Phase::Negotiating && self.link.initiator() != Some(by);
        let request = is_negotiate_request(bytes, wire);
        let response = is_negotiate_response(bytes, wire);
        // a message that could be nothing else, and one that is due and is not data
        let is_response = match phase {
            // without its request: the capture began between the two, has one direction only, or has them in another
            // order
            Phase::Idle => {
                response && (!request || wire == NegotiateResponse::LEN as u32)
                    || self.link.is_passive(by) && !request && !reads_as_data(bytes, wire)
            }
            Phase::Negotiating if request && self.link.lacks_request() => false,
            Phase::Negotiating => answers && (response || !reads_as_data(bytes, wire)),
            // one that stands behind something too short to be any
            Phase::Refused => response && self.link.owes_response(by) && !looks_like_data(bytes, wire),
            Phase::Established => {
                (response || self.is_first_response(by, bytes, wire)) && !looks_like_data(bytes, wire)
            }
        };
        if is_response {
            self.response(by, send, t, sink);
            return None;
        }
        // the first message of all that was seen, as long as a Negotiate Request: a late capture may have begun right
        // before it
        let is_first = wire == NegotiateRequest::LEN as u32 && self.link.is_unbegun() && !self.link.is_passive(by);
        let is_due = phase == Phase::Idle || self.link.owes_request(by) || is_first;
        if request || (is_due && !reads_as_data(bytes, wire)) {
            self.request(by, send, t, sink);
            return None;
        }
        let Ok((_, data)) = smbd::parse_data(bytes, wire, t) else {
            if wire < DataTransfer::LEN as u32 {
                sink.broken(
                    Rule::SmbdDataLength,
                    by,
                    Certainty::Certain,
                    format_args!("sent a message of {wire} bytes; the header alone has 20"),
                );
            } else {
                // its credits and its content were cut off
                self.missed(by);
                self.hides = true;
            }
            return None;
        };
        if let Some(padding) = bytes.get(DataTransfer::LEN..data.header.data_offset as usize) {
            Link::padding(by, padding, sink);
        }
        self.sealed_length(by, &data, sink);
        let before = self.link.side(by).stalled_time;
        let follows = self.link.side(by).remaining;
        let begins = begins_like_smb2(data.data);
        if begins {
            self.link.begins(by, &data.header);
        }
        self.link.data(send.last, by, &data.header, wire, data.inside, sink);
        let waited = self.link.side(by).stalled_time.saturating_sub(before);
        let is_new = follows == link::Seen::Known(0) && phase == Phase::Established;
        self.carries_smb2 |= begins;
        self.is_sealed |= data.data.starts_with(b"\xfdSMB");
        if is_new && self.carries_smb2 && !begins && data.inside && data.data.len() >= 4 {
            let (sent, more) = (data.header.data_length, data.header.remaining_data_length);
            if self.is_sealed && more == TRANSFORM_HEADER {
                let text = format_args!(
                    "sent {sent} bytes of an encrypted message without the transform header of {more} that it announced"
                );
                sink.broken(Rule::BugKsmbdSealedLength, by, Certainty::IfNothingWasMissed, text);
            } else {
                let text = format_args!("sent {sent} bytes that do not begin with an SMB2 header");
                sink.broken(Rule::Smb2Malformed, by, Certainty::IfNothingWasMissed, text);
            }
        }
        let is_cut_off = data.data.len() < 4.min(data.header.data_length as usize);
        self.hides |= is_cut_off && data.inside && !self.fragments[by.index()].open;
        let message = self.fragments[by.index()].take(by, send, &data, waited)?;
        Some(Smb2Message { max_read_write_size: self.link.max_read_write_size, ..message })
    }

    /// Checks the length of an encrypted message, which is given twice: in its first fragment, and in its own header
    /// (\[MS-SMB2\] 2.2.41).
    fn sealed_length(&self, by: End, data: &Data<'_>, sink: &mut impl RuleSink) {
        let begins = !self.fragments[by.index()].open && data.data.starts_with(b"\xfdSMB");
        let Some(original) = data.data.get(36..40).and_then(|b| b.first_chunk::<4>()).filter(|_| begins) else {
            return;
        };
        let is = u64::from(TRANSFORM_HEADER) + u64::from(u32::from_le_bytes(*original));
        let announced = u64::from(data.header.data_length) + u64::from(data.header.remaining_data_length);
        if let Some(more) = announced.checked_sub(is).filter(|more| *more > 0) {
            sink.broken(
                Rule::BugKsmbdSealedLength,
                by,
                Certainty::Certain,
                format_args!("announced an encrypted message of {announced} bytes, {more} more than its {is}"),
            );
        }
    }

    /// True if the first message of an end, of which the beginning was not seen, is a Negotiate Response that is too
    /// short, cut off, or chose a version that does not exist: its versions are 1.0, and as data it would lie inside
    /// its own header.
    fn is_first_response(&self, by: End, bytes: &[u8], wire_length: u32) -> bool {
        const LEAST: u32 = DataTransfer::LEN as u32;
        const MOST: u32 = NegotiateResponse::LEN as u32;
        let is_inside_header =
            |(_, data): (_, Data<'_>)| data.header.data_length > 0 && data.header.data_offset < LEAST;
        (LEAST + 1..=MOST).contains(&wire_length)
            && self.link.side(by).messages == 0
            && versions(bytes) == Some((0x0100, 0x0100))
            && smbd::parse_data(bytes, wire_length, &mut Off).is_ok_and(is_inside_header)
    }

    fn request<T: Trace>(&mut self, by: End, send: &WholeSend<'_>, t: &mut T, sink: &mut impl RuleSink) {
        match smbd::parse_negotiate_request(send.bytes, t) {
            Ok((_, request)) => self.link.negotiate_request(send.last, by, &request, sink),
            Err(_) if send.wire_length < NegotiateRequest::LEN as u32 => {
                self.link.short_request(send.last, by, send.wire_length, sink);
            }
            Err(_) => self.link.missed(by),
        }
    }

    fn response<T: Trace>(&mut self, by: End, send: &WholeSend<'_>, t: &mut T, sink: &mut impl RuleSink) {
        match smbd::parse_negotiate_response(send.bytes, t) {
            Ok((_, response)) => self.link.negotiate_response(send.last, by, &response, sink),
            Err(_) if send.wire_length < NegotiateResponse::LEN as u32 => {
                self.link.short_response(send.last, by, send.wire_length, sink);
            }
            Err(_) => self.link.missed(by),
        }
    }
}

/// True if a message that should be a negotiation is data instead: its data is an SMB2 message, or fills it to the last
/// byte, or it has none and says so in every field.
fn reads_as_data(bytes: &[u8], wire_length: u32) -> bool {
    let Ok((_, data)) = smbd::parse_data(bytes, wire_length, &mut Off) else { return false };
    let header = data.header;
    let is_plain = header.reserved == 0 && header.flags <= 1 && header.credits_requested > 0;
    let fills = header.data_length > 0
        && header.data_offset >= DataTransfer::LEN as u32
        && header.data_offset % 8 == 0
        && u64::from(header.data_offset) + u64::from(header.data_length) == u64::from(wire_length);
    // as credits, the versions 1.0 to 1.0 of a Negotiate Request would be two unlikely numbers, requested and granted
    // at once
    let versions = header.credits_requested == 0x0100 && header.credits_granted == 0x0100;
    let is_empty = wire_length == DataTransfer::LEN as u32
        && header.data_length == 0
        && header.data_offset == 0
        && header.remaining_data_length == 0;
    if is_empty && versions {
        return false;
    }
    looks_like_data(bytes, wire_length) || is_plain && (fills || is_empty)
}

/// True if a message that should be a negotiation is data instead: it carries an SMB2 message, or credits and nothing
/// else, which as a negotiation would offer sizes of 0.
fn looks_like_data(bytes: &[u8], wire_length: u32) -> bool {
    smbd::parse_data(bytes, wire_length, &mut Off)
        .is_ok_and(|(_, d)| d.inside && begins_like_smb2(d.data) || is_credits_alone(&d.header, wire_length))
}

impl Fragments {
    fn take<'a>(&'a mut self, by: End, send: &WholeSend<'a>, data: &Data<'a>, waited: i64) -> Option<Smb2Message<'a>> {
        let header = &data.header;
        if header.data_length == 0 {
            return None;
        }
        let continues = self.open
            && u64::from(header.data_length) + u64::from(header.remaining_data_length) == u64::from(self.remaining);
        if !continues && header.remaining_data_length == 0 {
            // whole, or not of the message that is open: that one is lost, this one is not
            self.open = false;
            let begins = begins_like_smb2(data.data);
            return begins.then_some(Smb2Message {
                by,
                first: send.first,
                last: send.last,
                bytes: data.data,
                wire_length: header.data_length,
                invalidate: send.invalidate,
                reassembled: false,
                fragments: 1,
                pieces: None,
                waited,
                max_read_write_size: None,
                is_unchecked: send.is_unchecked,
            });
        }
        if !continues {
            self.buffer.clear();
            if self.buffer.capacity() > 1 << 20 {
                self.buffer.shrink_to(1 << 16);
            }
            self.first = send.first;
            self.wire_length = 0;
            self.pieces.clear();
            self.invalidate = None;
            self.waited = 0;
            self.is_unchecked = false;
            self.cut = false;
            self.open = may_begin_smb2(data.data, header.data_length);
            if !self.open {
                return None;
            }
        }
        self.pieces.add(send.last.frame);
        self.waited = self.waited.saturating_add(waited);
        self.is_unchecked |= send.is_unchecked;
        self.invalidate = send.invalidate.or(self.invalidate);
        self.wire_length = self.wire_length.saturating_add(header.data_length);
        if !self.cut {
            let room = REASSEMBLED_MAX.saturating_sub(self.buffer.len());
            let kept = data.data.len().min(room);
            self.buffer.extend_from_slice(&data.data[..kept]);
            self.cut = kept < header.data_length as usize;
        }
        self.remaining = header.remaining_data_length;
        if (self.buffer.len() >= 4 || self.remaining == 0) && !begins_like_smb2(&self.buffer) {
            // its first fragment was too short to tell
            self.open = false;
            return None;
        }
        if self.remaining > 0 {
            return None;
        }
        self.open = false;
        Some(Smb2Message {
            by,
            first: self.first,
            last: send.last,
            bytes: &self.buffer,
            wire_length: self.wire_length,
            invalidate: self.invalidate,
            reassembled: true,
            fragments: self.pieces.count(),
            pieces: Some(&self.pieces),
            waited: self.waited,
            max_read_write_size: None,
            is_unchecked: self.is_unchecked,
        })
    }
}

/// True if a message may be SMB2's of which `data` was captured at the beginning, of a first fragment of `length` bytes:
/// one may be shorter than the protocol's name.
fn may_begin_smb2(data: &[u8], length: u32) -> bool {
    begins_like_smb2(data)
        || data.len() == length as usize && (0xfc..=0xfe).any(|id| [id, b'S', b'M', b'B'].starts_with(data))
}

/// True if a Send opens a connection.
pub fn begins_connection(bytes: &[u8], wire_length: u32) -> bool {
    is_negotiate_request(bytes, wire_length)
        || (wire_length < DataTransfer::LEN as u32 && !looks_like_data(bytes, wire_length))
}

/// True if a Send carries the first request of SMB2.
pub fn begins_smb2(bytes: &[u8], wire_length: u32) -> bool {
    let Ok((_, data)) = smbd::parse_data(bytes, wire_length, &mut Off) else { return false };
    let Ok((_, header)) = Header::parse(data.data, &mut Off) else { return false };
    data.inside && begins_like_smb2(data.data) && header.command == Command::NEGOTIATE && !header.is_response()
}

/// Shows a Send without counting it.
pub fn show<T: Trace>(bytes: &[u8], known: &mut dyn Known, t: &mut T) {
    let wire_length = bytes.len() as u32;
    if is_negotiate_request(bytes, wire_length) {
        let _ = smbd::parse_negotiate_request(bytes, t);
    } else if is_negotiate_response(bytes, wire_length) && !looks_like_data(bytes, wire_length) {
        let _ = smbd::parse_negotiate_response(bytes, t);
    } else if let Ok((_, data)) = smbd::parse_data(bytes, wire_length, t)
        && data.header.remaining_data_length == 0
        && begins_like_smb2(data.data)
    {
        let _ = rdmascope_dissector::wire::smb2::parse_message(data.data, t, &mut Again(known));
    }
}

/// Replies that are shown once more.
struct Again<'k>(&'k mut dyn Known);

impl Visitor<'_> for Again<'_> {
    fn memo(&mut self, header: &Header) -> Option<RequestMemo> {
        self.0.smb2(header.message_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::{String, ToString};
    use alloc::vec;
    use core::fmt;
    use link::Seen;
    use rdmascope_dissector::trace::Off;
    use rdmascope_dissector::wire::smbd::VERSION_1_0;

    const SECOND: i64 = 1_000_000_000;
    const CLIENT: End = End::A;
    const SERVER: End = End::B;

    /// A connection seen from its beginning, and the findings on it: rule, side, certainty, text.
    #[derive(Default)]
    struct Talk {
        smbd: Smbd,
        judged: Broken,
        now: At,
    }

    #[derive(Default)]
    struct Broken(Vec<(Rule, End, Certainty, String)>);

    impl RuleSink for Broken {
        fn broken(&mut self, rule: Rule, by: End, certainty: Certainty, text: fmt::Arguments<'_>) {
            self.0.push((rule, by, certainty, text.to_string()));
        }
    }

    impl Talk {
        fn wait(&mut self, ns: i64) {
            self.now.time += ns;
        }

        fn send(&mut self, by: End, bytes: &[u8]) {
            self.now.frame += 1;
            self.now.time += 1000;
            let send = WholeSend {
                first: self.now,
                last: self.now,
                bytes,
                wire_length: bytes.len() as u32,
                invalidate: None,
                in_frame: true,
                pieces: None,
                is_unchecked: false,
            };
            let _ = self.smbd.send(by, &send, &mut Off, &mut self.judged);
        }

        fn request(&mut self, request: NegotiateRequest) {
            let mut out = Vec::new();
            request.emit(&mut out);
            self.send(CLIENT, &out);
        }

        fn response(&mut self, response: NegotiateResponse) {
            let mut out = Vec::new();
            response.emit(&mut out);
            self.send(SERVER, &out);
        }

        /// The data behind padding up to `data_offset`.
        fn data(&mut self, by: End, header: DataTransfer, data: &[u8]) {
            let mut out = Vec::new();
            header.emit(&mut out);
            out.resize((header.data_offset as usize).max(out.len()), 0);
            out.extend_from_slice(data);
            self.send(by, &out);
        }

        fn close(&mut self, by: Option<End>) {
            self.now.frame += 1;
            self.smbd.link.closed(self.now, by, &mut self.judged);
        }

        fn rules(&self) -> Vec<(Rule, End)> {
            self.judged.0.iter().map(|(rule, by, ..)| (*rule, *by)).collect()
        }
    }

    /// The request of the document's own example, \[MS-SMBD\] 4.1.
    fn request() -> NegotiateRequest {
        NegotiateRequest {
            min_version: VERSION_1_0,
            max_version: VERSION_1_0,
            reserved: 0,
            credits_requested: 10,
            preferred_send_size: 1024,
            max_receive_size: 1024,
            max_fragmented_size: 131_072,
        }
    }

    /// Its response.
    fn response() -> NegotiateResponse {
        NegotiateResponse {
            min_version: VERSION_1_0,
            max_version: VERSION_1_0,
            negotiated_version: VERSION_1_0,
            reserved: 0,
            credits_requested: 10,
            credits_granted: 10,
            status: 0,
            max_read_write_size: 1 << 20,
            preferred_send_size: 1024,
            max_receive_size: 1024,
            max_fragmented_size: 131_072,
        }
    }

    fn empty(credits_granted: u16) -> DataTransfer {
        DataTransfer {
            credits_requested: 10,
            credits_granted,
            flags: 0,
            reserved: 0,
            remaining_data_length: 0,
            data_offset: 0,
            data_length: 0,
        }
    }

    fn carrying(data_length: u32, remaining_data_length: u32) -> DataTransfer {
        DataTransfer { data_offset: 24, data_length, remaining_data_length, ..empty(10) }
    }

    #[test]
    fn the_documents_own_example_breaks_no_rule() {
        let mut talk = Talk::default();
        talk.request(request());
        talk.response(response());
        talk.data(CLIENT, carrying(500, 0), &[0; 500]);
        assert_eq!(talk.rules(), []);
        assert_eq!(talk.smbd.link.credits(CLIENT), Seen::Known(9));
    }

    #[test]
    fn a_grant_before_the_response_leaves_the_response_due() {
        let mut talk = Talk::default();
        talk.request(request());
        talk.data(SERVER, empty(10), &[]);
        assert_eq!(talk.rules(), [(Rule::BugKsmbdEarlyData, SERVER)]);
        talk.response(response());
        talk.data(CLIENT, empty(10), &[]);
        assert_eq!(talk.rules().len(), 1, "{:?}", talk.judged.0);
        assert_eq!((talk.smbd.link.phase(), talk.smbd.link.credits(CLIENT)), (Phase::Established, Seen::Known(9)));
    }

    #[test]
    fn data_before_the_negotiation_is_read_as_data() {
        let whole = [0x55; 50];
        for (header, data) in [(empty(1), &[][..]), (empty(255), &[][..]), (carrying(50, 0), &whole[..])] {
            let mut talk = Talk::default();
            talk.data(CLIENT, DataTransfer { credits_requested: 255, ..header }, data);
            assert_eq!(talk.rules(), [(Rule::SmbdNegFirst, CLIENT)], "{header:?}");
            // and later messages are judged by its agreement
            talk.request(request());
            talk.response(response());
            for _ in 0..3 {
                talk.data(CLIENT, carrying(500, 0), &[0; 500]);
                talk.data(SERVER, carrying(500, 0), &[0; 500]);
            }
            assert_eq!(talk.rules().len(), 1, "{:?}", talk.judged.0);
        }
    }

    #[test]
    fn a_request_of_another_version_that_stands_behind_its_refusal_is_no_data() {
        let zero = NegotiateResponse {
            negotiated_version: 0,
            credits_requested: 0,
            credits_granted: 0,
            max_read_write_size: 0,
            ..response()
        };
        let refusal = NegotiateResponse {
            status: 0xc000_00bb,
            preferred_send_size: 0,
            max_receive_size: 0,
            max_fragmented_size: 0,
            ..zero
        };
        for smbd in [Smbd::joined_late(), Smbd::default()] {
            let mut talk = Talk { smbd, ..Talk::default() };
            talk.response(refusal);
            talk.request(NegotiateRequest { min_version: 0x0200, max_version: 0x0200, ..request() });
            assert!(
                talk.judged.0.iter().all(|(_, by, sure, _)| *by == SERVER && *sure == Certainty::Guess),
                "{:?}",
                talk.judged.0
            );
            assert_eq!(talk.smbd.link.side(CLIENT).messages, 0);
        }
    }

    #[test]
    fn a_request_for_no_credits_and_no_sizes_is_still_a_request() {
        let mut talk = Talk::default();
        let none = NegotiateRequest {
            credits_requested: 0,
            preferred_send_size: 0,
            max_receive_size: 0,
            max_fragmented_size: 0,
            ..request()
        };
        talk.request(none);
        let rules = [Rule::SmbdNegReqCredits, Rule::SmbdNegReqRecvsize, Rule::SmbdNegReqFragsize];
        assert_eq!(talk.rules(), rules.map(|rule| (rule, CLIENT)));
    }

    #[test]
    fn only_who_opened_the_connection_negotiates() {
        for (active, wrong) in [(CLIENT, vec![]), (SERVER, vec![(Rule::SmbdNegFirst, CLIENT)])] {
            let mut talk = Talk::default();
            talk.smbd.link.connected_by(active);
            talk.request(request());
            talk.response(response());
            assert_eq!(talk.rules(), wrong);
        }
    }

    #[test]
    fn versions_that_do_not_exist_are_named() {
        let talk = |request: NegotiateRequest, response: NegotiateResponse| {
            let mut talk = Talk::default();
            talk.request(request);
            talk.response(response);
            talk.rules()
        };
        assert_eq!(
            talk(NegotiateRequest { min_version: 0x00ff, ..request() }, response()),
            [(Rule::SmbdNegRange, CLIENT)]
        );
        assert_eq!(
            talk(request(), NegotiateResponse { max_version: 0x0200, ..response() }),
            [(Rule::SmbdNegRange, SERVER)]
        );
        let refused = NegotiateResponse {
            min_version: 0,
            status: 0xc000_009a,
            ..NegotiateResponse { credits_granted: 0, ..response() }
        };
        assert!(talk(request(), refused).contains(&(Rule::SmbdNegRange, SERVER)));
    }

    #[test]
    fn who_accepts_what_must_be_refused_is_named() {
        let accepted = |request: NegotiateRequest, response: NegotiateResponse| {
            let mut talk = Talk::default();
            talk.request(request);
            talk.response(response);
            talk.data(CLIENT, carrying(64, 0), &[0; 64]);
            talk.rules()
                .into_iter()
                .filter(|(rule, _)| *rule == Rule::SmbdNegAccepted)
                .map(|(_, by)| by)
                .collect::<Vec<_>>()
        };
        assert_eq!(accepted(request(), response()), []);
        assert_eq!(accepted(NegotiateRequest { max_fragmented_size: 131_071, ..request() }, response()), [SERVER]);
        assert_eq!(accepted(request(), NegotiateResponse { max_fragmented_size: 131_071, ..response() }), [CLIENT]);
        // a range without version 1.0 has a status of its own
        let range = NegotiateRequest { min_version: 0x0200, max_version: 0x0200, ..request() };
        let refusal = |status| NegotiateResponse {
            status,
            negotiated_version: 0,
            credits_requested: 0,
            credits_granted: 0,
            max_read_write_size: 0,
            preferred_send_size: 0,
            max_receive_size: 0,
            max_fragmented_size: 0,
            ..response()
        };
        let judged = |status| {
            let mut talk = Talk::default();
            talk.request(range);
            talk.response(refusal(status));
            talk.rules().contains(&(Rule::SmbdNegAccepted, SERVER))
        };
        assert_eq!((judged(0xc000_00bb), judged(0xc000_009a)), (false, true));
    }

    #[test]
    fn a_response_that_is_too_short_is_one_all_the_same() {
        use Rule::{SmbdNegAccepted, SmbdNegRspLength};
        let mut whole = Vec::new();
        response().emit(&mut whole);
        for length in [31, 28, 20, 8] {
            let mut talk = Talk::default();
            talk.smbd.link.opened(At { frame: 1, time: 0 });
            talk.request(request());
            talk.send(SERVER, &whole[..length]);
            let short = [(SmbdNegRspLength, SERVER)];
            assert_eq!((talk.rules(), talk.smbd.link.is_refused()), (short.to_vec(), true), "{length}");
            assert!(talk.smbd.link.negotiation()[1].is_some());
            let mut gone = Talk { smbd: talk.smbd.clone(), ..Talk::default() };
            (gone.now, gone.judged.0) = (talk.now, Vec::new());
            gone.wait(9 * SECOND);
            gone.close(Some(CLIENT));
            assert_eq!(gone.rules(), [], "{length}");
            for _ in 0..3 {
                talk.data(CLIENT, carrying(64, 0), &[0; 64]);
                talk.data(SERVER, carrying(64, 0), &[0; 64]);
            }
            talk.wait(9 * SECOND);
            talk.close(Some(CLIENT));
            assert_eq!(talk.rules(), [(SmbdNegRspLength, SERVER), (SmbdNegAccepted, CLIENT)], "{length}");
        }
        // what came before the response was none
        let mut talk = Talk::default();
        talk.request(request());
        talk.send(SERVER, &whole[..8]);
        talk.response(response());
        talk.data(CLIENT, carrying(64, 0), &[0; 64]);
        assert_eq!((talk.rules(), talk.smbd.link.phase()), (vec![(SmbdNegRspLength, SERVER)], Phase::Established));
    }

    #[test]
    fn a_request_that_is_too_short_is_one_all_the_same() {
        use Rule::{SmbdNegAccepted, SmbdNegReqLength};
        let mut whole = Vec::new();
        request().emit(&mut whole);
        for length in [19, 18, 16, 4] {
            let mut talk = Talk::default();
            talk.smbd.link.opened(At { frame: 1, time: 0 });
            talk.send(CLIENT, &whole[..length]);
            let mut gone = Talk { smbd: talk.smbd.clone(), ..Talk::default() };
            gone.now = talk.now;
            gone.close(Some(SERVER));
            assert_eq!(gone.rules(), [], "{length}");
            talk.response(response());
            talk.data(CLIENT, carrying(64, 0), &[0; 64]);
            talk.data(SERVER, carrying(64, 0), &[0; 64]);
            talk.close(Some(CLIENT));
            assert_eq!(talk.rules(), [(SmbdNegReqLength, CLIENT), (SmbdNegAccepted, SERVER)], "{length}");
        }
        // what came before the request was none, whoever sent it
        for by in End::BOTH {
            let mut talk = Talk::default();
            talk.send(by, &whole[..8]);
            talk.request(request());
            talk.response(response());
            talk.data(CLIENT, carrying(64, 0), &[0; 64]);
            assert_eq!(talk.rules(), [(SmbdNegReqLength, by)]);
        }
    }

    #[test]
    fn a_negotiation_that_is_late_or_never_comes_is_reported_with_its_side() {
        let begun = || {
            let mut talk = Talk::default();
            talk.smbd.link.opened(At { frame: 1, time: 0 });
            talk
        };
        let mut late = begun();
        late.wait(6 * SECOND);
        late.request(request());
        assert_eq!(late.rules(), [(Rule::SmbdNegTimeout, CLIENT)]);
        let told = |waited: i64, by: Option<End>, request_: NegotiateRequest| {
            let mut talk = begun();
            talk.request(request_);
            talk.wait(waited);
            talk.close(by);
            talk.rules()
                .into_iter()
                .filter(|(rule, _)| *rule == Rule::SmbdNegTimeout)
                .map(|(_, by)| by)
                .collect::<Vec<_>>()
        };
        assert_eq!(told(3 * SECOND, Some(CLIENT), request()), [SERVER]);
        assert_eq!(told(SECOND / 1000, Some(SERVER), request()), [SERVER]);
        assert_eq!(told(121 * SECOND, None, request()), [SERVER]);
        // a client that goes away at once, a capture that ends, and a server that must hang up
        assert_eq!(told(SECOND / 1000, Some(CLIENT), request()), []);
        assert_eq!(told(3 * SECOND, None, request()), []);
        assert_eq!(told(SECOND / 1000, Some(SERVER), NegotiateRequest { max_receive_size: 1, ..request() }), []);
    }

    #[test]
    fn interleaving_takes_fragments_that_go_on() {
        const FRAGMENTS: Rule = Rule::SmbdFragRemaining;
        const INTERLEAVED: Rule = Rule::BugSmbdirectBatchInterleave;
        let judged = |pieces: &[(u32, u32)]| {
            let mut talk = Talk::default();
            talk.request(request());
            talk.response(response());
            for (length, remaining) in pieces {
                talk.data(CLIENT, carrying(*length, *remaining), &vec![0; *length as usize]);
            }
            talk.rules().into_iter().map(|(rule, _)| rule).collect::<Vec<_>>()
        };
        assert_eq!(judged(&[(900, 900), (900, 0)]), []);
        // a short message, and a message in fragments, between the fragments of one
        assert_eq!(judged(&[(900, 900), (64, 0), (900, 0)]), [FRAGMENTS, INTERLEAVED]);
        assert_eq!(judged(&[(900, 900), (500, 500), (900, 0), (500, 0)]), [FRAGMENTS, INTERLEAVED, INTERLEAVED]);
        // a length that does not add up, and a message that is abandoned
        assert_eq!(judged(&[(900, 900), (900, 1)]), [FRAGMENTS]);
        assert_eq!(judged(&[(900, 900), (64, 0), (64, 0)]), [FRAGMENTS]);
    }

    #[test]
    fn nothing_is_interleaved_with_a_message_that_has_as_many_bytes() {
        // the first fragment announces 8 bytes more than follow; later a message has as many as those that were left
        let mut message = vec![0; 208];
        message[..4].copy_from_slice(b"\xfeSMB");
        let judged = |last: &[u8]| {
            let mut talk = Talk::default();
            talk.request(request());
            talk.response(response());
            talk.data(CLIENT, carrying(100, 208), &message[..100]);
            talk.data(CLIENT, carrying(200, 0), &message[8..]);
            talk.data(CLIENT, carrying(208, 0), last);
            talk.rules()
                .into_iter()
                .map(|(rule, _)| rule)
                .filter(|rule| *rule != Rule::Smb2Malformed)
                .collect::<Vec<_>>()
        };
        assert_eq!(judged(&message), [Rule::SmbdFragRemaining]);
        assert_eq!(judged(&[0; 208]), [Rule::SmbdFragRemaining, Rule::BugSmbdirectBatchInterleave]);
    }

    #[test]
    fn padding_is_zero() {
        let mut talk = Talk::default();
        talk.request(request());
        talk.response(response());
        let mut bytes = Vec::new();
        carrying(8, 0).emit(&mut bytes);
        bytes.extend([0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
        talk.send(CLIENT, &bytes);
        assert_eq!(talk.rules(), [(Rule::SmbdReserved, CLIENT)]);
    }

    #[test]
    fn a_message_is_no_longer_than_its_sender_agreed_to_send() {
        let mut talk = Talk::default();
        talk.request(NegotiateRequest { preferred_send_size: 512, ..request() });
        talk.response(response());
        talk.data(CLIENT, carrying(488, 0), &[0; 488]);
        assert_eq!(talk.rules(), []);
        talk.data(CLIENT, carrying(489, 0), &[0; 489]);
        assert_eq!(talk.rules(), [(Rule::SmbdDataTooBig, CLIENT)]);
    }

    #[test]
    fn times_of_any_size_are_borne() {
        for time in [i64::MIN, i64::MAX] {
            let mut talk = Talk::default();
            talk.smbd.link.opened(At { frame: 1, time });
            talk.request(request());
            talk.now.time = time.saturating_sub(1000);
            talk.response(response());
            talk.now.time = -1 - time;
            talk.smbd.link.closed(talk.now, None, &mut talk.judged);
        }
    }
}
