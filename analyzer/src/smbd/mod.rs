//! SMB Direct connections: which of its messages a Send is, the rules ([`link`]), and fragments put together.

pub mod link;

use crate::finding::{Certainty, Rule};
use crate::op::{At, End};
use crate::receive::Send;
use alloc::vec::Vec;
use link::{Judge, Link, Phase};
use rdmascope_dissector::trace::Trace;
use rdmascope_dissector::wire::smbd::{self, Data, DataTransfer, NegotiateRequest, NegotiateResponse};

/// Bytes of one SMB2 message put together from fragments at most.
pub const REASSEMBLED_MAX: usize = 1 << 24;

/// A whole SMB2 message, put together.
#[derive(Clone, Copy, Debug)]
pub struct Upper<'a> {
    /// The frame of its first fragment.
    pub first: At,
    /// The frame of its last one.
    pub last: At,
    /// Its bytes.
    pub bytes: &'a [u8],
    /// Its length on the wire; more than `bytes` where the capture cut it.
    pub wire_length: u32,
    /// The remote key that was invalidated on the way.
    pub invalidate: Option<u32>,
    /// Whether the bytes lie in a buffer of their own.
    pub reassembled: bool,
    /// Fragments.
    pub fragments: u32,
    /// How long its sender waited for credits to send it, in ns.
    pub waited: i64,
}

impl<'a> Upper<'a> {
    /// A message that came over plain TCP.
    pub fn of_stream(message: &crate::stream::Message<'a>) -> Self {
        Self {
            first: message.first,
            last: message.last,
            bytes: message.bytes,
            wire_length: message.wire_length,
            invalidate: None,
            reassembled: false,
            fragments: 1,
            waited: 0,
        }
    }
}

/// Fragments of one direction.
#[derive(Clone, Debug, Default)]
struct Fragments {
    buffer: Vec<u8>,
    first: At,
    wire_length: u32,
    remaining: u32,
    count: u32,
    invalidate: Option<u32>,
    cut: bool,
    open: bool,
    waited: i64,
}

/// The SMB Direct side of a connection.
#[derive(Clone, Debug, Default)]
pub struct Smbd {
    /// The rules and the ledger.
    pub link: Link,
    fragments: [Fragments; 2],
}

/// Whether a Send can only be SMB Direct: a Negotiate Request or Response, or data with an SMB2 message inside.
/// `Some(Certain)` by content, `Some(Guess)` for a message of credits alone.
pub fn looks_like(bytes: &[u8], wire_length: u32) -> Option<Certainty> {
    if is_negotiate_request(bytes, wire_length) || is_negotiate_response(bytes, wire_length) {
        return Some(Certainty::Certain);
    }
    let (_, data) = smbd::parse_data(bytes, wire_length, &mut rdmascope_dissector::trace::Off).ok()?;
    let magic = data.data.first_chunk::<4>().is_some_and(|m| matches!(m, [0xfc..=0xfe, b'S', b'M', b'B']));
    if magic && data.inside {
        return Some(Certainty::Certain);
    }
    let header = data.header;
    let credits_only = wire_length == DataTransfer::LEN as u32
        && header.data_length == 0
        && header.data_offset == 0
        && header.remaining_data_length == 0
        && header.reserved == 0
        && header.flags <= 1
        && header.credits_requested > 0
        && (header.credits_granted > 0 || header.flags == 1);
    credits_only.then_some(Certainty::Guess)
}

fn is_negotiate_request(bytes: &[u8], wire_length: u32) -> bool {
    let Ok((_, request)) = NegotiateRequest::parse(bytes, &mut rdmascope_dissector::trace::Off) else { return false };
    let versions = request.min_version == 0x0100 && request.max_version >= 0x0100 && request.max_version < 0x1000 && request.reserved == 0;
    // read as data, the same bytes would point far outside of the message
    versions && u64::from(request.max_receive_size) + u64::from(request.max_fragmented_size) > u64::from(wire_length) && wire_length < 1024
}

fn is_negotiate_response(bytes: &[u8], wire_length: u32) -> bool {
    let Ok((_, response)) = NegotiateResponse::parse(bytes, &mut rdmascope_dissector::trace::Off) else { return false };
    let versions = response.min_version == 0x0100 && response.max_version == 0x0100 && response.reserved == 0;
    let refused = response.status & 0xc000_0000 == 0xc000_0000;
    versions && (refused || (response.negotiated_version == 0x0100 && response.max_receive_size > 0)) && wire_length < 1024
}

impl Smbd {
    /// A connection of which the beginning was not seen.
    pub fn joined_late() -> Self {
        Self { link: Link::joined_late(), fragments: Default::default() }
    }

    /// Sends of `by` were missed.
    pub fn missed(&mut self, by: End) {
        self.link.missed(by);
        let fragments = &mut self.fragments[by.index()];
        fragments.open = false;
        fragments.buffer.clear();
    }

    /// Takes over the other half of a connection.
    pub fn adopt(&mut self, by: End, from: &mut Self, from_end: End) {
        self.link.adopt(by, &from.link, from_end);
        self.fragments[by.index()] = core::mem::take(&mut from.fragments[from_end.index()]);
    }

    /// A whole Send. Returns the SMB2 message that it completes, where it does.
    pub fn send<'a, T: Trace>(&'a mut self, by: End, send: &Send<'a>, t: &mut T, judge: &mut impl Judge) -> Option<Upper<'a>> {
        let (bytes, wire) = (send.bytes, send.wire_length);
        let negotiating = match self.link.phase() {
            Phase::Idle => !looks_like_data(bytes, wire),
            Phase::Negotiating => self.link.initiator() != Some(by) && !looks_like_data(bytes, wire),
            Phase::Established | Phase::Refused => false,
        };
        // a response without its request: the capture began between the two
        let unasked = self.link.phase() == Phase::Idle && is_negotiate_response(bytes, wire) && !is_negotiate_request(bytes, wire);
        if negotiating && (self.link.phase() == Phase::Negotiating || unasked) {
            self.response(by, send, t, judge);
            return None;
        }
        if negotiating || is_negotiate_request(bytes, wire) {
            self.request(by, send, t, judge);
            return None;
        }
        if self.link.phase() == Phase::Established && is_negotiate_response(bytes, wire) && !looks_like_data(bytes, wire) {
            self.response(by, send, t, judge);
            return None;
        }
        let Ok((_, data)) = smbd::parse_data(bytes, wire, t) else {
            if wire < DataTransfer::LEN as u32 {
                judge.judge(
                    Rule::SmbdDataLength,
                    by,
                    Certainty::Certain,
                    format_args!("sent a message of {wire} bytes; the header alone has 20"),
                );
            }
            return None;
        };
        let before = self.link.side(by).stalled_time;
        self.link.data(send.last, by, &data.header, wire, data.inside, judge);
        let waited = self.link.side(by).stalled_time - before;
        self.fragments[by.index()].take(send, &data, waited)
    }

    fn request<T: Trace>(&mut self, by: End, send: &Send<'_>, t: &mut T, judge: &mut impl Judge) {
        match smbd::parse_negotiate_request(send.bytes, t) {
            Ok((_, request)) => self.link.negotiate_request(send.last, by, &request, judge),
            Err(_) if send.wire_length < NegotiateRequest::LEN as u32 => {
                let length = send.wire_length;
                judge.judge(
                    Rule::SmbdNegReqLength,
                    by,
                    Certainty::Certain,
                    format_args!("sent a Negotiate Request of {length} bytes; it has 20"),
                );
            }
            Err(_) => self.link.missed(by),
        }
    }

    fn response<T: Trace>(&mut self, by: End, send: &Send<'_>, t: &mut T, judge: &mut impl Judge) {
        match smbd::parse_negotiate_response(send.bytes, t) {
            Ok((_, response)) => self.link.negotiate_response(send.last, by, &response, judge),
            Err(_) if send.wire_length < NegotiateResponse::LEN as u32 => {
                let length = send.wire_length;
                judge.judge(
                    Rule::SmbdNegRspLength,
                    by,
                    Certainty::Certain,
                    format_args!("sent a Negotiate Response of {length} bytes; it has 32"),
                );
            }
            Err(_) => self.link.missed(by),
        }
    }
}

/// Whether a message that should be a negotiation is data instead: it carries an SMB2 message.
fn looks_like_data(bytes: &[u8], wire_length: u32) -> bool {
    smbd::parse_data(bytes, wire_length, &mut rdmascope_dissector::trace::Off)
        .is_ok_and(|(_, d)| d.inside && d.data.first_chunk::<4>().is_some_and(|m| matches!(m, [0xfc..=0xfe, b'S', b'M', b'B'])))
}

impl Fragments {
    fn take<'a>(&'a mut self, send: &Send<'a>, data: &Data<'a>, waited: i64) -> Option<Upper<'a>> {
        let header = &data.header;
        if header.data_length == 0 {
            return None;
        }
        let continues = self.open && u64::from(header.data_length) + u64::from(header.remaining_data_length) == u64::from(self.remaining);
        if !continues && header.remaining_data_length == 0 {
            // whole, or not of the message that is open: that one is lost, this one is not
            self.open = false;
            let begins = data.data.first_chunk::<4>().is_some_and(|m| matches!(m, [0xfc..=0xfe, b'S', b'M', b'B']));
            return begins.then_some(Upper {
                first: send.first,
                last: send.last,
                bytes: data.data,
                wire_length: header.data_length,
                invalidate: send.invalidate,
                reassembled: false,
                fragments: 1,
                waited,
            });
        }
        if !continues {
            self.buffer.clear();
            if self.buffer.capacity() > 1 << 20 {
                self.buffer.shrink_to(1 << 16);
            }
            self.first = send.first;
            self.wire_length = 0;
            self.count = 0;
            self.invalidate = None;
            self.waited = 0;
            self.cut = false;
            self.open = data.data.first_chunk::<4>().is_some_and(|m| matches!(m, [0xfc..=0xfe, b'S', b'M', b'B']));
            if !self.open {
                return None;
            }
        }
        self.count += 1;
        self.waited += waited;
        self.invalidate = send.invalidate.or(self.invalidate);
        self.wire_length = self.wire_length.saturating_add(header.data_length);
        if !self.cut {
            let room = REASSEMBLED_MAX.saturating_sub(self.buffer.len());
            let kept = data.data.len().min(room);
            self.buffer.extend_from_slice(&data.data[..kept]);
            self.cut = kept < header.data_length as usize;
        }
        self.remaining = header.remaining_data_length;
        if self.remaining > 0 {
            return None;
        }
        self.open = false;
        Some(Upper {
            first: self.first,
            last: send.last,
            bytes: &self.buffer,
            wire_length: self.wire_length,
            invalidate: self.invalidate,
            reassembled: true,
            fragments: self.count,
            waited: self.waited,
        })
    }
}

/// Whether a Send is what opens a connection.
pub fn begins_connection(bytes: &[u8], wire_length: u32) -> bool {
    is_negotiate_request(bytes, wire_length) || (wire_length < DataTransfer::LEN as u32 && !looks_like_data(bytes, wire_length))
}

/// Shows a Send without counting it.
pub fn show<T: Trace>(bytes: &[u8], t: &mut T) {
    let wire_length = bytes.len() as u32;
    if is_negotiate_request(bytes, wire_length) {
        let _ = smbd::parse_negotiate_request(bytes, t);
    } else if is_negotiate_response(bytes, wire_length) && !looks_like_data(bytes, wire_length) {
        let _ = smbd::parse_negotiate_response(bytes, t);
    } else if let Ok((_, data)) = smbd::parse_data(bytes, wire_length, t)
        && data.header.remaining_data_length == 0
        && data.data.first_chunk::<4>().is_some_and(|m| matches!(m, [0xfc..=0xfe, b'S', b'M', b'B']))
    {
        let _ = rdmascope_dissector::wire::smb2::parse_message(data.data, t, &mut ());
    }
}
