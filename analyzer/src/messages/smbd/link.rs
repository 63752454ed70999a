//! The rules of one SMB Direct connection, \[MS-SMBD\] 3.1: one rulebook, two callers. The analyzer feeds it both
//! directions of a capture; an active endpoint feeds it the messages that it receives and those that it is about to
//! send.
//!
//! ```text
//!  Idle ── NegotiateRequest ──▶ Negotiating ── NegotiateResponse, status 0 ──▶ Established ── DataTransfer … ─┐
//!                                    └── status ≠ 0, or a value that must be refused ──▶ Refused             ◀┘
//! ```
//!
//! Pure: no clock, no I/O. An unknown value (the capture began late, or lost frames) is [`Seen::Unseen`], and a rule
//! over it stays silent.

pub use crate::finding::RuleSink;
use crate::finding::{Certainty, Rule};
use crate::op::{At, End};
use alloc::string::String;
pub use rdmascope_dissector::text::{Elapsed as Milliseconds, Grouped};
pub use rdmascope_dissector::wire::smb2::NtStatus as Status;
use rdmascope_dissector::wire::smbd::{DataTransfer, NegotiateRequest, NegotiateResponse, VERSION_1_0};

/// Smallest MaxReceiveSize, in bytes (\[MS-SMBD\] 3.1.5.6).
pub const MAX_RECEIVE_SIZE_LEAST: u32 = 128;
/// Smallest MaxFragmentedSize, in bytes (\[MS-SMBD\] 3.1.5.6).
pub const MAX_FRAGMENTED_SIZE_LEAST: u32 = 131_072;
/// Seconds the active side waits for the Negotiate Response (\[MS-SMBD\] 3.1.4.1).
pub const NEGOTIATE_RESPONSE_TIMEOUT: i64 = 120;
/// Seconds the passive side waits for the Negotiate Request (\[MS-SMBD\] 3.1.7.2).
pub const NEGOTIATE_REQUEST_TIMEOUT: i64 = 5;
/// Seconds after which an answer to a keepalive is not prompt.
const KEEPALIVE_PROMPT: i64 = 5;
/// ns for which a sender must have been without credit for the wait to be called a stall.
const STALL_LEAST: i64 = 50_000;
/// ns after a grant within which a sender that waited for it sends.
const STALL_RELEASE: i64 = 20_000_000;
/// The same between messages, where only the sender knows what it waited for, if the wait was no longer.
const STALL_PROMPT: i64 = 1_000_000;
/// Largest PreferredSendSize that Windows Server 2012 R2 and later accept (\[MS-SMBD\] appendix B <5>).
const PREFERRED_SEND_SIZE_WINDOWS: u32 = 8136;
/// Data messages after which the size of a peer's grants is judged.
const STARVED_MESSAGES: u64 = 64;
/// A rule over more than one message may be broken by none that was captured.
const HISTORY: Certainty = Certainty::IfNothingWasMissed;
const SECOND: i64 = 1_000_000_000;
/// MaxReceiveSize of Windows (\[MS-SMBD\] appendix B), whose other sizes are those of older Linux clients.
const WINDOWS_RECEIVE_SIZE: u32 = 8192;
/// ns within which a capture may have packets of the two directions in another order than the ends.
const DISORDER: i64 = 1_000_000;
/// ns without a message after which a sender in the middle of one is said to have stopped.
const STOPPED: i64 = SECOND;
/// ns without a Negotiate Response after which a client that hangs up does so because of that.
const NEGOTIATE_PATIENCE: i64 = SECOND;

/// First value of a Negotiate Request that the receiver must refuse (3.1.5.6).
fn refusable_request(request: &NegotiateRequest) -> Option<Refusable> {
    if !(request.min_version..=request.max_version).contains(&VERSION_1_0) {
        return Some(Refusable { field: "range of versions", status: Some(STATUS_NOT_SUPPORTED) });
    }
    let wrong = [
        (request.credits_requested == 0, "CreditsRequested"),
        (request.max_receive_size < MAX_RECEIVE_SIZE_LEAST, "MaxReceiveSize"),
        (request.max_fragmented_size < MAX_FRAGMENTED_SIZE_LEAST, "MaxFragmentedSize"),
    ];
    wrong.into_iter().find(|(is_wrong, _)| *is_wrong).map(|(_, field)| Refusable { field, status: None })
}

/// First value of a Negotiate Response that the receiver must refuse (3.1.5.7).
fn refusable_response(response: &NegotiateResponse, request: Option<NegotiateRequest>) -> Option<Refusable> {
    let wrong = [
        (response.status != 0, "Status"),
        (response.negotiated_version != VERSION_1_0, "NegotiatedVersion"),
        (response.max_receive_size < MAX_RECEIVE_SIZE_LEAST, "MaxReceiveSize"),
        (response.max_fragmented_size < MAX_FRAGMENTED_SIZE_LEAST, "MaxFragmentedSize"),
        (response.credits_granted == 0, "CreditsGranted"),
        (response.credits_requested == 0, "CreditsRequested"),
        (request.is_some_and(|r| response.preferred_send_size > r.max_receive_size), "PreferredSendSize"),
    ];
    wrong.into_iter().find(|(is_wrong, _)| *is_wrong).map(|(_, field)| Refusable { field, status: None })
}

/// A quantity that may be unknown because its beginning was not seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Seen<T> {
    /// Known.
    Known(T),
    /// Not seen in the capture.
    #[default]
    Unseen,
}

impl<T> Seen<T> {
    /// The value, if known.
    pub fn known(self) -> Option<T> {
        match self {
            Self::Known(v) => Some(v),
            Self::Unseen => None,
        }
    }
}

/// Message that the connection expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The Negotiate Request.
    Idle,
    /// The Negotiate Response.
    Negotiating,
    /// Data transfer messages.
    Established,
    /// Nothing more: negotiation failed.
    Refused,
}

/// State and counters of one side.
#[derive(Clone, Copy, Debug, Default)]
pub struct Side {
    /// Send credits held: granted by the peer, not yet spent.
    pub credits: Seen<i64>,
    /// The least it ever held after a send.
    pub held_min: Option<i64>,
    /// The most it ever held after a grant.
    pub held_max: Option<i64>,
    /// Most credits it asked for.
    pub requested_max: u16,
    /// Credits it asked for last.
    pub requested: u16,
    /// Credits granted to it.
    pub granted_total: u64,
    /// Messages that cost it a credit.
    pub spent_total: u64,
    /// Sends without a credit.
    pub overruns: u64,
    /// Times it had something to send and no credit to send it with.
    pub stalls: u64,
    /// Total time of the stalls, in ns.
    pub stalled_time: i64,
    /// Beginning of the last stall: the time at which it spent the last credit that it might.
    pub stall_since: At,
    /// Its end: the time of the grant.
    pub stall_until: At,
    /// Messages with data that it sent whole: the difference is what waits for an answer.
    whole: u64,
    /// True if something waited for its answer when it was granted credits.
    owed_before: bool,
    /// The longest stall, in ns, and the frame that ended it.
    pub stall_longest: (i64, u64),
    /// Data transfer messages.
    pub messages: u64,
    /// Messages without data.
    pub empty: u64,
    /// Those that asked for a response.
    pub keepalives: u64,
    /// SMB2 messages sent in fragments.
    pub fragmented: u64,
    /// Fragments of those.
    pub fragments: u64,
    /// Bytes one message to it may have (its MaxReceiveSize).
    pub max_receive_size: Option<u32>,
    /// Bytes it sends in one message (its PreferredSendSize, no more than the peer's MaxReceiveSize).
    pub max_send_size: Option<u32>,
    /// Bytes it reassembles (its MaxFragmentedSize).
    pub max_fragmented_size: Option<u32>,
    /// Bytes of the message in fragments still to come from it.
    pub remaining: Seen<u32>,
    /// Time of its last message of any kind.
    pub last_sent: Option<At>,
    /// Bytes that were left of a fragmented message when something else came in its place.
    interrupted: Option<u32>,
    /// Time since which it could not send.
    blocked_since: Option<At>,
    /// True if that was in the middle of a message, so that it had more to send.
    dry_inside: bool,
    /// Time at which it was granted credits after that.
    granted_since: Option<At>,
    /// An unanswered request for a response.
    keepalive_since: Option<At>,
    /// Most it held in the last stretch of messages.
    held_max_recent: i64,
    /// The most that it held before these messages; 0 at first.
    held_max_before: i64,
    starvation_reported: bool,
}

/// State of one SMB Direct connection, judged by its rules.
#[derive(Clone, Debug)]
pub struct Link {
    phase: Phase,
    initiator: Option<End>,
    sides: [Side; 2],
    certainty: Certainty,
    /// The NTSTATUS of the Negotiate Response.
    pub status: Option<u32>,
    /// MaxReadWriteSize of the Negotiate Response, in bytes.
    pub max_read_write_size: Option<u32>,
    /// Time of the Negotiate Request, and its values, if it was long enough to have them.
    asked: Option<At>,
    request: Option<NegotiateRequest>,
    /// Time of the Negotiate Response.
    response: Option<At>,
    /// True if it was too short to have values.
    is_short: bool,
    /// Values in the Negotiate Request, and in the response, that the receiver must refuse.
    refusable: [Option<Refusable>; 2],
    opened: Option<At>,
    /// The end that asked for the RDMA connection, if known.
    active: Option<End>,
    /// Data came before the negotiation, which may still follow.
    early: bool,
    /// Time at which the initiator first sent data before the negotiation was answered, and the number of these
    /// messages.
    premature: Option<At>,
    premature_sent: i64,
    /// Time of a Negotiate Response whose request was not seen.
    orphan: Option<At>,
    last: At,
}

/// A value that a receiver must refuse, by the name of its field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Refusable {
    field: &'static str,
    /// The status that the refusal must carry, if it is a message and not the end of the connection.
    status: Option<u32>,
}

/// What is refused if it is shorter than its fields.
const TOO_SHORT: Refusable = Refusable { field: "length", status: None };

/// Status that refuses a range of versions (\[MS-SMBD\] 3.1.5.6).
const STATUS_NOT_SUPPORTED: u32 = Status::NOT_SUPPORTED.0;

impl Side {
    /// True if its peer was found to let it hold few credits all the time.
    pub fn is_starved(&self) -> bool {
        self.starvation_reported
    }
}

impl Default for Link {
    fn default() -> Self {
        Self::new()
    }
}

impl Link {
    /// A connection seen from its beginning.
    pub fn new() -> Self {
        let side = Side { credits: Seen::Known(0), remaining: Seen::Known(0), ..Side::default() };
        Self {
            phase: Phase::Idle,
            initiator: None,
            sides: [side; 2],
            certainty: Certainty::Certain,
            status: None,
            max_read_write_size: None,
            asked: None,
            request: None,
            response: None,
            is_short: false,
            refusable: [None; 2],
            opened: None,
            active: None,
            early: false,
            premature: None,
            premature_sent: 0,
            orphan: None,
            last: At::default(),
        }
    }

    /// A connection of which the beginning was not seen.
    pub fn joined_late() -> Self {
        let mut link = Self::new();
        link.phase = Phase::Established;
        link.sides = [Side::default(); 2];
        link.certainty = Certainty::IfNothingWasMissed;
        link
    }

    /// Sets the time at which the RDMA connection was established, for the negotiation timer.
    pub fn opened(&mut self, at: At) {
        self.opened = Some(at);
    }

    /// Sets the end that asked for the RDMA connection: only that one may negotiate.
    pub fn connected_by(&mut self, active: End) {
        self.active = Some(active);
    }

    /// True if an end may not negotiate, because its peer asked for the RDMA connection: its first message is an
    /// answer.
    pub fn is_passive(&self, end: End) -> bool {
        self.active == Some(end.peer())
    }

    /// True if the Negotiate Request of an end may stand behind its response in the capture.
    pub fn owes_request(&self, end: End) -> bool {
        self.orphan.is_some() && self.initiator == Some(end)
    }

    /// True if what came as the Negotiate Request was too short to be any, and one may follow from either end.
    pub fn lacks_request(&self) -> bool {
        self.phase == Phase::Negotiating && self.request.is_none()
    }

    /// True if a Negotiate Response of an end may follow one that was too short to be any.
    pub fn owes_response(&self, end: End) -> bool {
        self.is_short && self.initiator == Some(end.peer())
    }

    /// True if its beginning was not seen so far, nor anything else of it.
    pub fn is_unbegun(&self) -> bool {
        let is_silent = self.sides.iter().all(|side| side.messages == 0 && side.last_sent.is_none());
        self.phase == Phase::Established && self.asked.is_none() && self.response.is_none() && is_silent
    }

    /// Times of the Negotiate Request and the Negotiate Response.
    pub fn negotiation(&self) -> [Option<At>; 2] {
        [self.asked, self.response]
    }

    /// Message that is expected next.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// True if the response must be refused, and no data of the initiator says that it was accepted all the same:
    /// credits may have been granted already ([MS-SMBD] 3.1.5.7).
    pub fn is_refused(&self) -> bool {
        self.phase == Phase::Refused && self.refusable[1].is_some()
    }

    /// The end that sent the Negotiate Request.
    pub fn initiator(&self) -> Option<End> {
        self.initiator
    }

    /// State and counters of one side.
    pub fn side(&self, end: End) -> &Side {
        &self.sides[end.index()]
    }

    /// Send credits an end holds.
    pub fn credits(&self, end: End) -> Seen<i64> {
        self.side(end).credits
    }

    /// Time at which an end that now has no credit to send with lost its last one.
    pub fn blocked_since(&self, end: End) -> Option<At> {
        self.side(end).blocked_since
    }

    /// Messages of `by` were missed: spent and granted credits are unknown from here on.
    pub fn missed(&mut self, by: End) {
        self.certainty = self.certainty.min(Certainty::IfNothingWasMissed);
        for side in &mut self.sides {
            side.credits = Seen::Unseen;
            side.blocked_since = None;
            side.granted_since = None;
        }
        self.sides[by.index()].remaining = Seen::Unseen;
        if self.phase != Phase::Refused {
            self.phase = Phase::Established;
        }
    }

    /// What was negotiated may be of another connection than what follows: nothing that rests on it is sure.
    pub fn distrust(&mut self) {
        self.certainty = self.certainty.min(Certainty::IfNothingWasMissed);
    }

    /// Takes over the other half of a connection whose directions were first taken for two.
    pub fn adopt(&mut self, by: End, from: &Self, from_end: End) {
        self.sides[by.index()] = from.sides[from_end.index()];
        self.missed(by);
        self.certainty = self.certainty.min(Certainty::IfNothingWasMissed);
    }

    /// Swaps ends A and B.
    pub fn swap_ends(&mut self) {
        self.sides.swap(0, 1);
        self.initiator = self.initiator.map(End::peer);
    }

    /// Negotiation begins. If data came first, and was judged, or nothing was seen, all is known from here on.
    fn begin(&mut self) {
        let is_unbegun = self.is_unbegun();
        if core::mem::take(&mut self.early) || is_unbegun {
            let (opened, active) = (self.opened, self.active);
            *self = Self { opened, active, ..Self::new() };
            self.certainty = if is_unbegun { HISTORY } else { self.certainty };
        }
    }

    /// Certainty that a message came after another that has to follow it. Two taps, or two queues of one adapter, may
    /// have messages so close together in either order: then grants may also stand behind the messages that they paid
    /// for.
    fn of_order(&mut self, at: At, before: At) -> Certainty {
        let is_sure = at.time.saturating_sub(before.time) > DISORDER;
        if !is_sure {
            self.certainty = Certainty::Guess;
        }
        self.certainty.min(HISTORY)
    }

    /// A Negotiate Request, `wire_length` bytes long.
    pub fn negotiate_request(&mut self, at: At, by: End, request: &NegotiateRequest, sink: &mut impl RuleSink) {
        self.begin();
        let sure = self.certainty;
        let (min, max) = (request.min_version, request.max_version);
        let has_1_0 = (min..=max).contains(&VERSION_1_0);
        if has_1_0 && (min, max) != (VERSION_1_0, VERSION_1_0) {
            let text = format_args!("offered versions {min:#06x} to {max:#06x}; only 0x0100 exists");
            sink.broken(Rule::SmbdNegRange, by, Certainty::Certain, text);
        }
        if let Some(answered) = self.orphan.take().filter(|_| self.initiator == Some(by)) {
            let sure = self.of_order(at, answered);
            sink.broken(
                Rule::SmbdNegFirst,
                by.peer(),
                sure,
                format_args!("sent a Negotiate Response that answers no request"),
            );
            (self.asked, self.request) = (Some(at), Some(*request));
            return;
        }
        if self.lacks_request() {
            // what came before it, and was too short to be a request, was none
            (self.phase, self.initiator) = (Phase::Idle, None);
        }
        if self.phase != Phase::Idle {
            sink.broken(
                Rule::SmbdNegFirst,
                by,
                sure.min(HISTORY),
                format_args!("sent a Negotiate Request after the negotiation"),
            );
            return;
        }
        if self.active == Some(by.peer()) {
            sink.broken(
                Rule::SmbdNegFirst,
                by,
                sure,
                format_args!("sent a Negotiate Request on a connection that its peer opened"),
            );
        }
        if let Some(opened) =
            self.opened.filter(|o| at.time.saturating_sub(o.time) > NEGOTIATE_REQUEST_TIMEOUT * SECOND)
        {
            let waited = Milliseconds(at.time.saturating_sub(opened.time));
            sink.broken(
                Rule::SmbdNegTimeout,
                by,
                // an earlier copy may not have been captured
                sure.min(HISTORY),
                format_args!("sent its Negotiate Request {waited} after the connection was accepted"),
            );
        }
        self.asks(at, by);
        self.request = Some(*request);
        self.refusable[0] = refusable_request(request);
        if request.reserved != 0 {
            sink.broken(
                Rule::SmbdReserved,
                by,
                sure,
                format_args!("set Reserved of the Negotiate Request to {:#06x}", request.reserved),
            );
        }
        if !has_1_0 {
            sink.broken(
                Rule::SmbdNegReqVersion,
                by,
                sure,
                format_args!("offered versions {min:#06x} to {max:#06x}, which leave out 0x0100"),
            );
        }
        if request.credits_requested == 0 {
            sink.broken(
                Rule::SmbdNegReqCredits,
                by,
                sure,
                format_args!("requested 0 credits in the Negotiate Request"),
            );
        }
        if request.max_receive_size < MAX_RECEIVE_SIZE_LEAST {
            let size = Grouped(request.max_receive_size.into());
            sink.broken(
                Rule::SmbdNegReqRecvsize,
                by,
                sure,
                format_args!("offered MaxReceiveSize {size}; at least 128 is required"),
            );
        }
        if request.max_fragmented_size < MAX_FRAGMENTED_SIZE_LEAST {
            let size = Grouped(request.max_fragmented_size.into());
            sink.broken(
                Rule::SmbdNegReqFragsize,
                by,
                sure,
                format_args!("offered MaxFragmentedSize {size}; at least 131,072 is required"),
            );
        }
        if request.preferred_send_size >= 0x8000_0000 {
            let size = request.preferred_send_size;
            sink.broken(Rule::BugCve202643185, by, sure, format_args!("asked for a PreferredSendSize of {size:#010x}"));
        } else if request.preferred_send_size > PREFERRED_SEND_SIZE_WINDOWS {
            let size = Grouped(request.preferred_send_size.into());
            sink.broken(
                Rule::SmbdNegReqPreferred,
                by,
                sure,
                format_args!("asked for a PreferredSendSize of {size}; Windows servers refuse more than 8,136"),
            );
        }
        let side = &mut self.sides[by.index()];
        side.requested = request.credits_requested;
        side.requested_max = request.credits_requested;
        side.max_receive_size = Some(request.max_receive_size);
        side.max_send_size = Some(request.preferred_send_size.max(MAX_RECEIVE_SIZE_LEAST));
        side.max_fragmented_size = Some(request.max_fragmented_size);
    }

    fn asks(&mut self, at: At, by: End) {
        self.initiator = Some(by);
        self.phase = Phase::Negotiating;
        self.asked = Some(at);
        self.last = at;
        self.sides[by.index()].last_sent = Some(at);
    }

    /// A Negotiate Request of `length` bytes, too short to have values: the receiver must end the connection (3.1.5.6).
    pub fn short_request(&mut self, at: At, by: End, length: u32, sink: &mut impl RuleSink) {
        let text = format_args!("sent a Negotiate Request of {length} bytes; it has 20");
        sink.broken(Rule::SmbdNegReqLength, by, Certainty::Certain, text);
        if self.phase == Phase::Idle && !self.is_passive(by) {
            self.asks(at, by);
            self.refusable[0] = Some(TOO_SHORT);
        }
    }

    /// A Negotiate Response of `length` bytes, too short to have values: the receiver must end the connection
    /// (3.1.5.7).
    pub fn short_response(&mut self, at: At, by: End, length: u32, sink: &mut impl RuleSink) {
        let text = format_args!("sent a Negotiate Response of {length} bytes; it has 32");
        sink.broken(Rule::SmbdNegRspLength, by, Certainty::Certain, text);
        if self.phase != Phase::Negotiating || self.initiator == Some(by) {
            return;
        }
        self.answers(at, by, sink);
        self.is_short = true;
        self.refusable[1] = Some(TOO_SHORT);
        self.phase = Phase::Refused;
        // what it grants is not known
        self.sides[by.peer().index()].credits = Seen::Unseen;
    }

    /// Something that answers the Negotiate Request.
    fn answers(&mut self, at: At, by: End, sink: &mut impl RuleSink) {
        if let Some(sent) = self.premature.take() {
            let sure = self.of_order(at, sent);
            sink.broken(
                Rule::SmbdNegFirst,
                by.peer(),
                sure,
                format_args!("sent data before the Negotiate Response came"),
            );
        }
        self.last = at;
        self.response = Some(at);
        self.sides[by.index()].last_sent = Some(at);
    }

    /// A Negotiate Response.
    pub fn negotiate_response(&mut self, at: At, by: End, response: &NegotiateResponse, sink: &mut impl RuleSink) {
        if self.is_unbegun() {
            self.begin();
        }
        let sure = self.certainty;
        if self.owes_response(by) {
            (self.phase, self.is_short) = (Phase::Negotiating, false);
        }
        if self.phase != Phase::Negotiating || self.initiator == Some(by) {
            if self.phase != Phase::Idle {
                self.response.get_or_insert(at);
                sink.broken(
                    Rule::SmbdNegFirst,
                    by,
                    sure.min(HISTORY),
                    format_args!("sent a Negotiate Response that answers no request"),
                );
                return;
            }
            // the request may stand behind it
            self.orphan = Some(at);
            self.initiator = Some(by.peer());
        }
        self.answers(at, by, sink);
        self.status = Some(response.status);
        let waited = |asked: At| at.time.saturating_sub(asked.time);
        if let Some(asked) = self.asked.filter(|asked| waited(*asked) > NEGOTIATE_RESPONSE_TIMEOUT * SECOND) {
            let waited = Milliseconds(waited(asked));
            sink.broken(
                Rule::SmbdNegTimeout,
                by,
                sure.min(HISTORY),
                format_args!("answered the Negotiate Request after {waited}"),
            );
        }
        if response.reserved != 0 {
            sink.broken(
                Rule::SmbdReserved,
                by,
                sure,
                format_args!("set Reserved of the Negotiate Response to {:#06x}", response.reserved),
            );
        }
        if (response.min_version, response.max_version) != (VERSION_1_0, VERSION_1_0) {
            let (min, max) = (response.min_version, response.max_version);
            sink.broken(
                Rule::SmbdNegRange,
                by,
                sure,
                format_args!("answered with versions {min:#06x} to {max:#06x}; both must be 0x0100"),
            );
        }
        match self.refusable[0] {
            Some(Refusable { field, .. }) if response.status == 0 => {
                sink.broken(
                    Rule::SmbdNegAccepted,
                    by,
                    sure,
                    format_args!("accepted a Negotiate Request although it must refuse its {field}"),
                );
            }
            Some(Refusable { field, status: Some(status) }) if response.status != status => {
                let (status, got) = (Status(status), Status(response.status));
                sink.broken(
                    Rule::SmbdNegAccepted,
                    by,
                    sure,
                    format_args!("refused the {field} of the Negotiate Request with {got}; {status} is required"),
                );
            }
            _ => {}
        }
        self.refusable[1] = refusable_response(response, self.request);
        // a refusal with this status is the fault of the request
        let must = self.refusable[0].is_some_and(|wrong| wrong.status == Some(response.status));
        if response.status != 0 {
            let status = Status(response.status);
            if !must {
                // a request that was not seen may have had to be refused
                let sure = if self.request.is_some() { sure } else { Certainty::Guess };
                sink.broken(Rule::SmbdNegRspStatus, by, sure, format_args!("refused the connection with {status}"));
            }
            let rest = [
                u32::from(response.negotiated_version),
                response.credits_requested.into(),
                response.credits_granted.into(),
                response.max_read_write_size,
                response.preferred_send_size,
                response.max_receive_size,
                response.max_fragmented_size,
            ];
            if rest.iter().any(|field| *field != 0) {
                sink.broken(
                    Rule::SmbdNegRspFailureFields,
                    by,
                    sure,
                    format_args!("set fields of a refusing Negotiate Response that must be zero"),
                );
            }
            self.phase = Phase::Refused;
            return;
        }
        let mut refused = false;
        if response.negotiated_version != VERSION_1_0 {
            refused = true;
            sink.broken(
                Rule::SmbdNegRspVersion,
                by,
                sure,
                format_args!("chose version {:#06x}; only 0x0100 exists", response.negotiated_version),
            );
        }
        if response.max_receive_size < MAX_RECEIVE_SIZE_LEAST {
            refused = true;
            let size = Grouped(response.max_receive_size.into());
            sink.broken(
                Rule::SmbdNegRspRecvsize,
                by,
                sure,
                format_args!("offered MaxReceiveSize {size}; at least 128 is required"),
            );
        }
        if response.max_fragmented_size < MAX_FRAGMENTED_SIZE_LEAST {
            refused = true;
            let size = Grouped(response.max_fragmented_size.into());
            sink.broken(
                Rule::SmbdNegRspFragsize,
                by,
                sure,
                format_args!("offered MaxFragmentedSize {size}; at least 131,072 is required"),
            );
        }
        if response.credits_granted == 0 {
            refused = true;
            sink.broken(
                Rule::SmbdNegRspGranted,
                by,
                sure,
                format_args!("granted no credits in the Negotiate Response"),
            );
        }
        if response.credits_requested == 0 {
            refused = true;
            sink.broken(
                Rule::SmbdNegRspRequested,
                by,
                sure,
                format_args!("requested no credits in the Negotiate Response"),
            );
        }
        let (asked_receive, asked_send) =
            self.request.map_or((None, None), |r| (Some(r.max_receive_size), Some(r.preferred_send_size)));
        if let Some(limit) = asked_receive.filter(|limit| response.preferred_send_size > *limit) {
            refused = true;
            let (size, limit) = (Grouped(response.preferred_send_size.into()), Grouped(limit.into()));
            sink.broken(
                Rule::SmbdNegRspPreferred,
                by,
                sure,
                format_args!("prefers to send {size} bytes; its peer receives {limit}"),
            );
        }
        // 3.1.5.7: each side's sizes shrink to the limits of the other
        let initiator = &mut self.sides[by.peer().index()];
        initiator.max_receive_size =
            asked_receive.map(|r| r.min(response.preferred_send_size).max(MAX_RECEIVE_SIZE_LEAST));
        // so many bytes any side receives (3.1.5.6)
        let sends = |asked: Option<u32>, limit: u32| asked.unwrap_or(u32::MAX).min(limit).max(MAX_RECEIVE_SIZE_LEAST);
        initiator.max_send_size = Some(sends(asked_send, response.max_receive_size));
        if let Seen::Known(credits) = &mut initiator.credits {
            *credits += i64::from(response.credits_granted) - self.premature_sent;
            initiator.held_max = initiator.held_max.max(Some(*credits));
        }
        initiator.granted_total += u64::from(response.credits_granted);
        initiator.held_max_recent = i64::from(response.credits_granted);
        let acceptor = &mut self.sides[by.index()];
        acceptor.requested = response.credits_requested;
        acceptor.requested_max = response.credits_requested;
        acceptor.max_receive_size = Some(response.max_receive_size);
        acceptor.max_send_size = Some(sends(asked_receive, response.preferred_send_size));
        acceptor.max_fragmented_size = Some(response.max_fragmented_size);
        self.max_read_write_size = Some(response.max_read_write_size);
        self.phase = if refused { Phase::Refused } else { Phase::Established };
        if !refused {
            self.reach(sink);
        }
    }

    /// Reports fragmented sizes that were agreed and cannot be reached with the credits there are (derived: a message
    /// of that size needs that many sends, and no sender may count on grants while it is sending).
    fn reach(&self, sink: &mut impl RuleSink) {
        let Some(request) = self.request else { return };
        for receiver in End::BOTH {
            let (to, from) = (self.side(receiver), self.side(receiver.peer()));
            let (Some(fragmented), Some(send)) = (to.max_fragmented_size, from.max_send_size) else { continue };
            let payload = send.saturating_sub(24).max(1);
            let needs = u64::from(fragmented).div_ceil(payload.into());
            let most = from.requested_max;
            if fragmented <= MAX_FRAGMENTED_SIZE_LEAST {
                // less is not allowed: the size is not the receiver's choice
                continue;
            }
            if fragmented >= 1 << 20
                && self.initiator == Some(receiver)
                && request.max_receive_size != WINDOWS_RECEIVE_SIZE
                && u64::from(most) * u64::from(send) < u64::from(fragmented)
            {
                let size = Grouped(fragmented.into());
                let text =
                    format_args!("offers to reassemble {size} bytes, more than {most} credits of {send} bytes carry");
                sink.broken(Rule::BugCifsMaxFragmentedSize, receiver, Certainty::Guess, text);
            }
            if needs > u64::from(most) {
                let (size, needs) = (Grouped(fragmented.into()), Grouped(needs));
                sink.broken(
                    Rule::SmbdNegReach,
                    receiver,
                    self.certainty.min(HISTORY),
                    format_args!(
                        "offers to reassemble {size} bytes, which take {needs} sends of {send} bytes; its peer asks \
                            for {most} credits"
                    ),
                );
            }
        }
    }

    /// A data transfer message, `wire_length` bytes long, whose data lies `inside` it.
    pub fn data(
        &mut self,
        at: At,
        by: End,
        data: &DataTransfer,
        wire_length: u32,
        inside: bool,
        sink: &mut impl RuleSink,
    ) {
        let sure = self.certainty.min(HISTORY);
        match self.phase {
            Phase::Idle => {
                sink.broken(Rule::SmbdNegFirst, by, sure, format_args!("sent data before the negotiation"));
                self.missed(by);
                self.early = true;
            }
            Phase::Negotiating if self.initiator != Some(by) => {
                // if the beginning of the connection was not seen, its first message may not have been either
                let sure = if self.opened.is_none() { Certainty::Guess } else { sure };
                sink.broken(
                    Rule::BugKsmbdEarlyData,
                    by,
                    sure,
                    format_args!("sent a data transfer message before its Negotiate Response"),
                );
                // the response is still to come; nothing of this message was agreed on, its grant least of all
                self.shape(by, data, wire_length, inside, sink);
                let [me, _] = self.both(by);
                me.messages += 1;
                me.last_sent = Some(at);
                self.last = at;
                return;
            }
            Phase::Negotiating => {
                // it spends credits that the response will grant
                self.shape(by, data, wire_length, inside, sink);
                self.premature.get_or_insert(at);
                self.premature_sent += 1;
                let [me, _] = self.both(by);
                me.messages += 1;
                me.last_sent = Some(at);
                self.grant(at, by, data, sink);
                self.last = at;
                return;
            }
            Phase::Refused => {
                // a grant may have been on its way already; data comes from a side that accepted
                let wrong = self.refusable[1].filter(|_| self.initiator == Some(by) && data.data_length > 0);
                if let Some(Refusable { field, .. }) = wrong {
                    self.refusable[1] = None;
                    sink.broken(
                        Rule::SmbdNegAccepted,
                        by,
                        sure,
                        format_args!("went on after a Negotiate Response although it must refuse its {field}"),
                    );
                }
            }
            Phase::Established => {}
        }
        self.shape(by, data, wire_length, inside, sink);
        self.fragment(by, data, sink);
        self.spend(at, by, data, sink);
        self.last = at;
    }

    fn shape(&self, by: End, data: &DataTransfer, wire_length: u32, inside: bool, sink: &mut impl RuleSink) {
        let sure = self.certainty;
        // a rule over one message alone is certain, whatever was missed before it
        let alone = Certainty::Certain;
        if data.credits_requested == 0 {
            sink.broken(
                Rule::SmbdDataCreditsRequested,
                by,
                alone,
                format_args!("requested 0 credits in a data transfer message"),
            );
        }
        if data.flags & !0x0001 != 0 {
            sink.broken(Rule::SmbdFlags, by, alone, format_args!("set undefined flags: {:#06x}", data.flags));
        }
        if data.reserved != 0 {
            sink.broken(
                Rule::SmbdReserved,
                by,
                alone,
                format_args!("set Reserved of a data transfer message to {:#06x}", data.reserved),
            );
        }
        let (offset, length) = (data.data_offset, data.data_length);
        if !inside && length > 0 && offset >= DataTransfer::LEN as u32 {
            sink.broken(
                Rule::SmbdDataLength,
                by,
                alone,
                format_args!(
                    "sent a message of {wire_length} bytes: its DataOffset + DataLength ({offset} + {length}) \
                    runs past the end"
                ),
            );
        }
        if offset % 8 != 0 {
            sink.broken(
                Rule::SmbdDataAlign,
                by,
                alone,
                format_args!("sent a message whose DataOffset {offset} is not a multiple of 8"),
            );
        } else if length > 0 && offset < DataTransfer::LEN as u32 {
            sink.broken(
                Rule::SmbdDataAlign,
                by,
                alone,
                format_args!("sent a message whose DataOffset {offset} lies inside the header"),
            );
        } else if length == 0 && offset != 0 {
            sink.broken(
                Rule::SmbdDataAlign,
                by,
                alone,
                format_args!("sent a message without data whose DataOffset is {offset}, not 0"),
            );
        }
        if (!inside || offset % 8 != 0) && length > 0 {
            sink.broken(
                Rule::BugCve202539943,
                by,
                alone,
                format_args!("sent DataOffset {offset}, DataLength {length} in a message of {wire_length} bytes"),
            );
        }
        if let Some(limit) = self.side(by.peer()).max_receive_size.filter(|limit| wire_length > *limit) {
            let (sent, limit) = (Grouped(wire_length.into()), Grouped(limit.into()));
            sink.broken(
                Rule::SmbdDataTooBig,
                by,
                sure,
                format_args!("sent {sent} bytes in one message; its peer receives {limit}"),
            );
        } else if let Some(limit) = self.side(by).max_send_size.filter(|limit| wire_length > *limit) {
            let (sent, limit) = (Grouped(wire_length.into()), Grouped(limit.into()));
            sink.broken(
                Rule::SmbdDataTooBig,
                by,
                sure,
                format_args!("sent {sent} bytes in one message; it agreed to send {limit}"),
            );
        }
        let whole = u64::from(length) + u64::from(data.remaining_data_length);
        if let Some(limit) = self.side(by.peer()).max_fragmented_size.filter(|limit| whole > u64::from(*limit)) {
            let (whole, limit) = (Grouped(whole), Grouped(limit.into()));
            sink.broken(
                Rule::SmbdFragTooBig,
                by,
                sure,
                format_args!("announced a message of {whole} bytes; its peer reassembles {limit}"),
            );
            sink.broken(
                Rule::BugCve202539942,
                by,
                sure,
                format_args!("DataLength + RemainingDataLength is {whole}, over the {limit} agreed"),
            );
        }
    }

    /// The next message of `by` begins something new: what was interrupted before does not go on with it, even if it
    /// has as many bytes.
    pub fn begins(&mut self, by: End, data: &DataTransfer) {
        let whole = u64::from(data.data_length) + u64::from(data.remaining_data_length);
        let side = &mut self.sides[by.index()];
        side.interrupted = side.interrupted.filter(|left| u64::from(*left) != whole);
    }

    /// The bytes between the header and the data of a message.
    pub fn padding(by: End, padding: &[u8], sink: &mut impl RuleSink) {
        if padding.iter().any(|byte| *byte != 0) {
            sink.broken(
                Rule::SmbdReserved,
                by,
                Certainty::Certain,
                format_args!("sent padding before the data that is not zero"),
            );
        }
    }

    fn fragment(&mut self, by: End, data: &DataTransfer, sink: &mut impl RuleSink) {
        let sure = self.certainty.min(HISTORY);
        let side = &mut self.sides[by.index()];
        let (length, remaining) = (data.data_length, data.remaining_data_length);
        let whole = u64::from(length) + u64::from(remaining);
        match side.remaining {
            // credits and keepalives may pass between fragments
            Seen::Known(expected) if expected > 0 && length == 0 => return,
            Seen::Known(expected) if expected > 0 && whole == u64::from(expected) => side.fragments += 1,
            Seen::Known(expected) if length > 0 && side.interrupted.is_some_and(|left| u64::from(left) == whole) => {
                // the message that was interrupted goes on where it was left
                side.interrupted = (expected > 0).then_some(expected);
                side.fragments += 1;
                sink.broken(
                    Rule::BugSmbdirectBatchInterleave,
                    by,
                    sure,
                    format_args!("sent another message between the fragments of one"),
                );
            }
            Seen::Known(expected) if expected > 0 => {
                side.interrupted = Some(expected);
                side.fragments += 1;
                let left = Grouped(expected.into());
                if remaining == 0 {
                    sink.broken(
                        Rule::SmbdFragRemaining,
                        by,
                        sure,
                        format_args!("sent {length} bytes as the last fragment of a message; {left} bytes were left"),
                    );
                } else {
                    sink.broken(
                        Rule::SmbdFragRemaining,
                        by,
                        sure,
                        format_args!("sent {length} bytes and announced {remaining} more; {left} were left"),
                    );
                }
            }
            _ if remaining > 0 => {
                side.fragmented += 1;
                side.fragments += 1;
                if length == 0 {
                    sink.broken(
                        Rule::SmbdFragRemaining,
                        by,
                        sure,
                        format_args!("announced {remaining} bytes in a message without data"),
                    );
                }
            }
            _ => {}
        }
        if length > 0 {
            side.remaining = Seen::Known(remaining);
        }
    }

    fn spend(&mut self, at: At, by: End, data: &DataTransfer, sink: &mut impl RuleSink) {
        let sure = self.certainty.min(HISTORY);
        let [me, peer] = self.both(by);
        me.messages += 1;
        me.last_sent = Some(at);
        me.requested = data.credits_requested;
        me.requested_max = me.requested_max.max(data.credits_requested);
        me.spent_total += 1;
        if data.data_length == 0 {
            me.empty += 1;
        }
        if data.response_requested() {
            me.keepalives += 1;
            me.keepalive_since.get_or_insert(at);
        }
        // any message answers a keepalive
        if let Some(asked) = peer.keepalive_since.take() {
            // without a credit it could not
            let able = me.granted_since.filter(|_| me.blocked_since.is_some()).map_or(asked, |wet| wet.max(asked));
            let waited = at.time.saturating_sub(able.time);
            if waited > KEEPALIVE_PROMPT * SECOND {
                let waited = Milliseconds(waited);
                sink.broken(
                    Rule::SmbdKeepalive,
                    by,
                    sure,
                    format_args!("answered a request for a response after {waited}"),
                );
            }
        }
        if let (Some(dry), Some(wet)) = (me.blocked_since, me.granted_since) {
            // it waited for this grant if it sends data as soon as the grant is there
            let waited = wet.time.saturating_sub(dry.time);
            // with nothing open, it waited for the last answer, or had nothing to send; who answers had something to
            // answer before the grant came
            let is_busy = me.dry_inside || me.whole > peer.whole || me.owed_before;
            let release = if me.dry_inside { STALL_RELEASE } else { STALL_RELEASE.min(waited.max(STALL_PROMPT)) };
            let is_prompt = at.time.saturating_sub(wet.time) <= release;
            if is_busy && is_prompt && data.data_length > 0 && waited >= STALL_LEAST {
                me.stalls += 1;
                me.stalled_time = me.stalled_time.saturating_add(waited);
                (me.stall_since, me.stall_until) = (dry, wet);
                if waited > me.stall_longest.0 {
                    me.stall_longest = (waited, at.frame);
                }
                let waited = Milliseconds(waited);
                // between messages only the sender knows if it had anything to send
                let sure = if me.dry_inside { sure } else { Certainty::Guess };
                sink.broken(
                    Rule::SmbdCreditStall,
                    by.peer(),
                    sure,
                    format_args!("kept its peer waiting {waited} for credits"),
                );
            }
        }
        let [me, _] = self.both(by);
        me.whole += u64::from(data.data_length > 0 && data.remaining_data_length == 0);
        me.blocked_since = None;
        me.granted_since = None;
        if let Seen::Known(held) = me.credits {
            if held <= 0 {
                me.overruns += 1;
                sink.broken(Rule::SmbdCreditOverrun, by, sure, format_args!("sent a message with no credit left"));
            } else {
                if held == 1 && data.credits_granted == 0 {
                    sink.broken(
                        Rule::SmbdCreditLast,
                        by,
                        sure,
                        format_args!("spent its last credit on a message that grants none"),
                    );
                    sink.broken(
                        Rule::BugSmbdirectLastCredit,
                        by,
                        sure,
                        format_args!("spent the last credit with CreditsGranted 0"),
                    );
                }
                me.credits = Seen::Known(held - 1);
                me.held_min = Some(me.held_min.map_or(held - 1, |m| m.min(held - 1)));
                me.held_max_recent = me.held_max_recent.max(held);
                // with one credit left only a message that grants some may be sent (3.1.5.1)
                if held - 1 <= 1 {
                    me.blocked_since = Some(at);
                    me.dry_inside = data.remaining_data_length > 0;
                }
            }
            if me.messages % STARVED_MESSAGES == 0 {
                let asked = i64::from(me.requested);
                if !me.starvation_reported && me.held_max_recent * 4 < asked {
                    me.starvation_reported = true;
                    let most = me.held_max_recent;
                    // a limit does not change; what leaks was there before
                    let before = match me.held_max_before {
                        0 => String::new(),
                        before if before > most => alloc::format!(", and {before} before them"),
                        _ => String::from(", and no more before them"),
                    };
                    sink.broken(
                        Rule::SmbdCreditStarved,
                        by.peer(),
                        sure,
                        format_args!(
                            "let its peer hold {most} credit{} at most over {STARVED_MESSAGES} messages{before}; \
                                {asked} were asked for",
                            if most == 1 { "" } else { "s" }
                        ),
                    );
                }
                me.held_max_before = me.held_max_before.max(me.held_max_recent);
                me.held_max_recent = 0;
            }
        }
        self.grant(at, by, data, sink);
    }

    /// Takes the credits that a message of `by` grants its peer.
    fn grant(&mut self, at: At, by: End, data: &DataTransfer, sink: &mut impl RuleSink) {
        let sure = self.certainty.min(HISTORY);
        let [me, peer] = self.both(by);
        peer.granted_total += u64::from(data.credits_granted);
        if let Seen::Known(held) = &mut peer.credits {
            *held += i64::from(data.credits_granted);
            peer.held_max = peer.held_max.max(Some(*held));
            if *held > i64::from(u16::MAX) {
                let held = *held;
                sink.broken(
                    Rule::SmbdCreditOverflow,
                    by,
                    sure,
                    format_args!(
                        "granted credits until its peer held {held}; 65,535 is the most that a credit field can express"
                    ),
                );
            }
        }
        // one that was never given any
        if data.credits_granted == 0
            && peer.messages == 0
            && peer.credits == Seen::Known(0)
            && peer.blocked_since.is_none()
        {
            peer.blocked_since = Some(at);
            peer.dry_inside = false;
        }
        if data.credits_granted > 0 && peer.blocked_since.is_some() && peer.granted_since.is_none() {
            peer.granted_since = Some(at);
            let asked = u64::from(data.data_length > 0 && data.remaining_data_length == 0);
            peer.owed_before = me.whole.saturating_sub(asked) > peer.whole;
        }
    }

    /// The connection or the capture ended. `by` closed it, if a side did.
    pub fn closed(&mut self, at: At, by: Option<End>, sink: &mut impl RuleSink) {
        let sure = self.certainty.min(HISTORY);
        // without the beginning of the connection, its request may stand before what was seen
        let begins = self.opened.is_some() || self.active.is_some();
        if let (Some(_), Some(initiator)) = (self.orphan.filter(|_| begins), self.initiator) {
            sink.broken(
                Rule::SmbdNegFirst,
                initiator.peer(),
                sure,
                format_args!("sent a Negotiate Response that answers no request"),
            );
        }
        if self.phase == Phase::Negotiating
            && let (Some(asked), Some(initiator)) = (self.asked, self.initiator)
        {
            self.unanswered(at.time.saturating_sub(asked.time), by, initiator, sink);
            if self.premature.is_some() {
                // a side that sends data as if there were an answer may have one that the capture missed
                let text = format_args!("sent data, and no Negotiate Response was seen before it");
                sink.broken(Rule::SmbdNegFirst, initiator, Certainty::Guess, text);
            }
        }
        if self.phase != Phase::Established {
            return;
        }
        for end in End::BOTH {
            let side = &self.sides[end.index()];
            // an end that got no credits could not go on
            let held_up = matches!(side.credits, Seen::Known(credits) if credits <= 1);
            if let (Seen::Known(left), Some(by)) = (side.remaining, by)
                && left > 0
                && !held_up
            {
                let waited = side.last_sent.map_or(0, |last| at.time.saturating_sub(last.time));
                // an end whose peer hangs up while it sends is not to blame, and one that hangs up itself may have had
                // to
                let certainty = if by == end { Some(Certainty::Guess) } else { (waited >= STOPPED).then_some(sure) };
                if let Some(certainty) = certainty {
                    sink.broken(
                        Rule::SmbdFragRemaining,
                        end,
                        certainty,
                        format_args!("left {left} bytes of a fragmented message unsent when the connection ended"),
                    );
                }
            }
            if let Some(asked) = side.keepalive_since {
                let waited = at.time.saturating_sub(asked.time);
                // the answer takes a credit, which is for the one who asked to grant
                let is_dry = matches!(self.side(end.peer()).credits, Seen::Known(credits) if credits <= 0);
                if waited > KEEPALIVE_PROMPT * SECOND && !is_dry {
                    let waited = Milliseconds(waited);
                    sink.broken(
                        Rule::SmbdKeepalive,
                        end.peer(),
                        sure,
                        format_args!("did not answer a request for a response for {waited}"),
                    );
                }
            }
        }
        let dry = |s: &Side| matches!(s.credits, Seen::Known(c) if c <= 0);
        let silent = at.time.saturating_sub(self.last.time);
        if self.sides.iter().all(dry) && silent > SECOND {
            let silent = Milliseconds(silent);
            let by = self.initiator.unwrap_or(End::A);
            sink.broken(
                Rule::SmbdCreditDeadlock,
                by.peer(),
                sure,
                format_args!("both sides are out of credits and silent for {silent}"),
            );
        }
    }

    /// The connection ended, or the capture did, `waited` ns after a Negotiate Request that got no response.
    fn unanswered(&self, waited: i64, by: Option<End>, initiator: End, sink: &mut impl RuleSink) {
        // an end is not to blame for leaving a request unanswered that must not be answered
        if self.refusable[0].is_some_and(|wrong| wrong.status.is_none()) {
            return;
        }
        // a client that went on with data may have been answered: then the capture missed it
        let sure = if self.premature.is_some() { Certainty::Guess } else { self.certainty.min(HISTORY) };
        let (acceptor, took) = (initiator.peer(), Milliseconds(waited));
        if by == Some(acceptor) {
            sink.broken(
                Rule::SmbdNegTimeout,
                acceptor,
                sure,
                format_args!("closed the connection {took} after the Negotiate Request and did not answer it"),
            );
        } else if by == Some(initiator) && waited >= NEGOTIATE_PATIENCE {
            sink.broken(
                Rule::SmbdNegTimeout,
                acceptor,
                sure,
                format_args!("did not answer the Negotiate Request; its peer gave up after {took}"),
            );
        } else if by.is_none() && waited > NEGOTIATE_RESPONSE_TIMEOUT * SECOND {
            sink.broken(
                Rule::SmbdNegTimeout,
                acceptor,
                sure,
                format_args!("did not answer the Negotiate Request within {took}"),
            );
        }
    }

    fn both(&mut self, by: End) -> [&mut Side; 2] {
        let [a, b] = &mut self.sides;
        match by {
            End::A => [a, b],
            End::B => [b, a],
        }
    }
}

/// The rulebook alone: messages go in as structures, not as bytes of a capture.
#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use core::fmt;
    use proptest::prelude::*;

    const CLIENT: End = End::A;
    const SERVER: End = End::B;

    #[derive(Default)]
    struct Judged(Vec<(Rule, End, Certainty)>);

    impl RuleSink for Judged {
        fn broken(&mut self, rule: Rule, by: End, certainty: Certainty, _text: fmt::Arguments<'_>) {
            self.0.push((rule, by, certainty));
        }
    }

    impl Judged {
        fn rules(&self) -> Vec<(Rule, End)> {
            self.0.iter().map(|(rule, by, _)| (*rule, *by)).collect()
        }
    }

    /// Frame `frame`, one microsecond after the one before it.
    fn at(frame: u64) -> At {
        At { frame, time: frame as i64 * 1000 }
    }

    fn request() -> NegotiateRequest {
        NegotiateRequest {
            min_version: VERSION_1_0,
            max_version: VERSION_1_0,
            reserved: 0,
            credits_requested: 10,
            preferred_send_size: 1024,
            max_receive_size: 1024,
            max_fragmented_size: MAX_FRAGMENTED_SIZE_LEAST,
        }
    }

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
            max_fragmented_size: MAX_FRAGMENTED_SIZE_LEAST,
        }
    }

    /// A message with `length` bytes of data, of which `remaining` more follow, that grants `granted` credits.
    fn data(length: u32, remaining: u32, granted: u16) -> DataTransfer {
        DataTransfer {
            credits_requested: 10,
            credits_granted: granted,
            flags: 0,
            reserved: 0,
            remaining_data_length: remaining,
            data_offset: if length > 0 { 24 } else { 0 },
            data_length: length,
        }
    }

    /// A connection whose negotiation is complete: the client holds ten credits, the server none.
    fn established() -> (Link, Judged) {
        let (mut link, mut judged) = (Link::new(), Judged::default());
        link.opened(at(1));
        link.negotiate_request(at(2), CLIENT, &request(), &mut judged);
        link.negotiate_response(at(3), SERVER, &response(), &mut judged);
        assert_eq!((judged.rules(), link.phase(), link.initiator()), (Vec::new(), Phase::Established, Some(CLIENT)));
        assert_eq!((link.credits(CLIENT), link.credits(SERVER)), (Seen::Known(10), Seen::Known(0)));
        (link, judged)
    }

    fn send(link: &mut Link, judged: &mut Judged, frame: u64, by: End, message: DataTransfer) {
        link.data(at(frame), by, &message, message.data_offset.max(20) + message.data_length, true, judged);
    }

    proptest! {
        /// Each side holds what it was granted without what it spent, and a send without a credit is the sender's
        /// violation.
        #[test]
        fn credits_are_those_granted_without_those_spent(sends in proptest::collection::vec((any::<bool>(), 0_u16..4), 0..60)) {
            let (mut link, mut judged) = established();
            let (mut held, mut overruns, mut granted_total) = ([10_i64, 0], [0, 0], [10_u64, 0]);
            for (n, (is_client, granted)) in sends.into_iter().enumerate() {
                let by = if is_client { CLIENT } else { SERVER };
                send(&mut link, &mut judged, 4 + n as u64, by, data(0, 0, granted));
                if held[by.index()] > 0 {
                    held[by.index()] -= 1;
                } else {
                    overruns[by.index()] += 1;
                }
                held[by.peer().index()] += i64::from(granted);
                granted_total[by.peer().index()] += u64::from(granted);
            }
            for end in End::BOTH {
                let side = link.side(end);
                prop_assert_eq!(side.credits, Seen::Known(held[end.index()]));
                prop_assert_eq!((side.overruns, side.granted_total), (overruns[end.index()], granted_total[end.index()]));
                let reported = judged.0.iter().filter(|(rule, by, _)| *rule == Rule::SmbdCreditOverrun && *by == end).count() as u64;
                prop_assert_eq!(reported, overruns[end.index()]);
            }
        }
    }

    #[test]
    fn credits_that_leak_were_there_before() {
        struct Texts(Vec<String>);
        impl RuleSink for Texts {
            fn broken(&mut self, rule: Rule, by: End, _: Certainty, text: fmt::Arguments<'_>) {
                if (rule, by) == (Rule::SmbdCreditStarved, SERVER) {
                    self.0.push(alloc::format!("{text}"));
                }
            }
        }
        let mut texts = Texts(Vec::new());
        let (mut link, _) = established();
        let mut echo = |link: &mut Link, n: u64, granted: u16| {
            link.data(at(2 * n), CLIENT, &data(0, 0, 1), 20, true, &mut texts);
            link.data(at(2 * n + 1), SERVER, &data(0, 0, granted), 20, true, &mut texts);
        };
        // ten credits for 64 messages; then eight of them leak
        (2..66).for_each(|n| echo(&mut link, n, 1));
        (66..74).for_each(|n| echo(&mut link, n, 0));
        (74..200).for_each(|n| echo(&mut link, n, 1));
        assert_eq!(
            texts.0,
            ["let its peer hold 2 credits at most over 64 messages, and 10 before them; 10 were asked for"]
        );
    }

    #[test]
    fn a_limit_of_credits_was_there_before() {
        let mut texts = Texts(Rule::SmbdCreditStarved, Vec::new());
        let (mut link, _) = established();
        for n in 0..2 * STARVED_MESSAGES {
            // it holds ten all the time; a quarter of what it asks for at first
            let asked = if n < STARVED_MESSAGES { 40 } else { 41 };
            link.data(
                at(4 + 2 * n),
                CLIENT,
                &DataTransfer { credits_requested: asked, ..data(8, 0, 1) },
                32,
                true,
                &mut texts,
            );
            link.data(
                at(5 + 2 * n),
                SERVER,
                &DataTransfer { credits_requested: 1, ..data(0, 0, 1) },
                20,
                true,
                &mut texts,
            );
        }
        assert_eq!(
            texts.1,
            ["let its peer hold 10 credits at most over 64 messages, and no more before them; 41 were asked for"]
        );
    }

    /// What was said of a rule.
    struct Texts(Rule, Vec<String>);

    impl RuleSink for Texts {
        fn broken(&mut self, rule: Rule, _: End, _: Certainty, text: fmt::Arguments<'_>) {
            if rule == self.0 {
                self.1.push(alloc::format!("{text}"));
            }
        }
    }

    #[test]
    fn what_is_wrong_with_a_fragment() {
        let text = |length: u32, remaining: u32| {
            let (mut link, _) = established();
            let mut texts = Texts(Rule::SmbdFragRemaining, Vec::new());
            for (frame, message) in [(4, data(500, 700, 1)), (5, data(length, remaining, 1))] {
                link.data(at(frame), CLIENT, &message, 24 + message.data_length, true, &mut texts);
            }
            texts.1.pop()
        };
        assert_eq!(text(500, 200), None);
        assert_eq!(
            text(500, 0).as_deref(),
            Some("sent 500 bytes as the last fragment of a message; 700 bytes were left")
        );
        assert_eq!(text(500, 300).as_deref(), Some("sent 500 bytes and announced 300 more; 700 were left"));
    }

    #[test]
    fn a_message_without_data_is_no_fragment() {
        // it announces more, and nothing follows
        let (mut link, mut judged) = established();
        send(&mut link, &mut judged, 4, CLIENT, data(0, 500, 1));
        assert_eq!(
            (judged.rules(), link.side(CLIENT).remaining),
            ([(Rule::SmbdFragRemaining, CLIENT)].into(), Seen::Known(0))
        );
        send(&mut link, &mut judged, 5, CLIENT, data(500, 0, 1));
        assert_eq!(judged.rules().len(), 1);
        assert_eq!((link.side(CLIENT).empty, link.side(CLIENT).messages), (1, 2));
        send(&mut link, &mut judged, 6, CLIENT, data(500, 0, 1));
        assert_eq!((link.side(CLIENT).empty, link.side(CLIENT).messages), (1, 3));
        // nor does it go on with a message that was interrupted
        let (mut link, mut judged) = established();
        for (frame, (length, remaining)) in [(4, (500, 700)), (5, (100, 0)), (6, (0, 700))] {
            send(&mut link, &mut judged, frame, CLIENT, data(length, remaining, 1));
        }
        assert_eq!(judged.rules(), [(Rule::SmbdFragRemaining, CLIENT); 2]);
    }

    #[test]
    fn a_side_waits_until_credits_are_granted() {
        let (mut link, mut judged) = established();
        (4..13).for_each(|frame| send(&mut link, &mut judged, frame, CLIENT, data(100, 0, 1)));
        let dry = at(12).time;
        let later = |frame: u64, after: i64| At { frame, time: dry + after };
        let wait = 50 * SECOND / 1000;
        // a message that grants none comes first
        link.data(later(13, wait / 2), SERVER, &data(0, 0, 0), 20, true, &mut judged);
        link.data(later(14, wait), SERVER, &data(0, 0, 5), 20, true, &mut judged);
        link.data(later(15, wait + 1000), CLIENT, &data(100, 0, 1), 124, true, &mut judged);
        let side = link.side(CLIENT);
        assert_eq!((side.stalls, side.stalled_time, side.stall_longest), (1, wait, (wait, 15)));
    }

    #[test]
    fn what_goes_on_behind_missed_messages() {
        let phase = |phase: Phase| {
            let mut link = Link { phase, ..Link::new() };
            link.missed(SERVER);
            link.phase()
        };
        assert_eq!([Phase::Idle, Phase::Negotiating, Phase::Established].map(phase), [Phase::Established; 3]);
        assert_eq!(phase(Phase::Refused), Phase::Refused);
    }

    #[test]
    fn the_last_credit_must_grant_one() {
        let (mut link, mut judged) = established();
        for frame in 4..13 {
            send(&mut link, &mut judged, frame, CLIENT, data(8, 0, 1));
        }
        assert_eq!((link.credits(CLIENT), judged.rules()), (Seen::Known(1), Vec::new()));
        send(&mut link, &mut judged, 13, CLIENT, data(8, 0, 0));
        assert_eq!(judged.rules(), [(Rule::SmbdCreditLast, CLIENT), (Rule::BugSmbdirectLastCredit, CLIENT)]);
        assert_eq!(link.blocked_since(CLIENT), Some(at(13)));
    }

    #[test]
    fn after_a_gap_credits_are_unknown_and_nobody_overruns() {
        let (mut link, mut judged) = established();
        link.missed(CLIENT);
        assert_eq!((link.credits(CLIENT), link.credits(SERVER)), (Seen::Unseen, Seen::Unseen));
        for frame in 4..40 {
            send(&mut link, &mut judged, frame, SERVER, data(8, 0, 0));
        }
        assert_eq!(judged.rules(), []);
        // a message too long for its receiver is still reported, but no longer as certain
        send(&mut link, &mut judged, 40, SERVER, data(2000, 0, 0));
        assert_eq!(judged.0, [(Rule::SmbdDataTooBig, SERVER, Certainty::IfNothingWasMissed)]);
    }

    #[test]
    fn fragments_must_count_down_to_zero() {
        let (mut link, mut judged) = established();
        for (frame, (length, remaining)) in [(4, (500, 700)), (5, (500, 200)), (6, (200, 0))] {
            send(&mut link, &mut judged, frame, CLIENT, data(length, remaining, 1));
        }
        assert_eq!((judged.rules(), link.side(CLIENT).remaining), (Vec::new(), Seen::Known(0)));
        assert_eq!((link.side(CLIENT).fragmented, link.side(CLIENT).fragments), (1, 3));
        send(&mut link, &mut judged, 7, CLIENT, data(500, 700, 1));
        send(&mut link, &mut judged, 8, CLIENT, data(500, 300, 1));
        assert_eq!(judged.rules(), [(Rule::SmbdFragRemaining, CLIENT)]);
    }

    #[test]
    fn a_request_without_a_response_is_blamed_on_the_side_that_hangs_up() {
        let ended = |by: Option<End>, after: i64| {
            let (mut link, mut judged) = (Link::new(), Judged::default());
            link.opened(at(1));
            link.negotiate_request(at(2), CLIENT, &request(), &mut judged);
            link.closed(At { frame: 3, time: at(2).time + after }, by, &mut judged);
            judged.rules()
        };
        assert_eq!(ended(Some(SERVER), 1000), [(Rule::SmbdNegTimeout, SERVER)]);
        assert_eq!(ended(Some(CLIENT), 1000), []);
        assert_eq!(ended(None, SECOND), []);
        assert_eq!(ended(None, (NEGOTIATE_RESPONSE_TIMEOUT + 1) * SECOND), [(Rule::SmbdNegTimeout, SERVER)]);
    }

    #[test]
    fn ends_can_be_swapped() {
        let (mut link, _) = established();
        link.swap_ends();
        assert_eq!(
            (link.initiator(), link.credits(SERVER), link.credits(CLIENT)),
            (Some(SERVER), Seen::Known(10), Seen::Known(0))
        );
    }

    #[test]
    fn a_half_that_was_followed_apart_brings_its_counters() {
        let (mut whole, _) = established();
        let (mut half, mut judged) = (Link::joined_late(), Judged::default());
        for frame in 4..9 {
            send(&mut half, &mut judged, frame, CLIENT, data(8, 0, 2));
        }
        whole.adopt(SERVER, &half, CLIENT);
        assert_eq!((whole.side(SERVER).messages, whole.side(SERVER).spent_total), (5, 5));
        assert_eq!((whole.credits(CLIENT), whole.credits(SERVER)), (Seen::Unseen, Seen::Unseen));
    }

    fn time(time: i64) -> At {
        At { frame: 99, time }
    }

    /// Rules that a Negotiate Request breaks, `waited` ns after the connection was opened.
    fn requested(waited: i64, request: NegotiateRequest) -> Vec<(Rule, End)> {
        let (mut link, mut judged) = (Link::new(), Judged::default());
        link.opened(time(0));
        link.negotiate_request(time(waited), CLIENT, &request, &mut judged);
        judged.rules()
    }

    #[test]
    fn requests_at_each_limit() {
        let least = NegotiateRequest {
            credits_requested: 1,
            preferred_send_size: PREFERRED_SEND_SIZE_WINDOWS,
            max_receive_size: MAX_RECEIVE_SIZE_LEAST,
            ..request()
        };
        assert_eq!(requested(NEGOTIATE_REQUEST_TIMEOUT * SECOND, least), []);
        assert_eq!(requested(NEGOTIATE_REQUEST_TIMEOUT * SECOND + 1, least), [(Rule::SmbdNegTimeout, CLIENT)]);
        let broken = |request| requested(0, request).into_iter().map(|(rule, _)| rule).collect::<Vec<_>>();
        assert_eq!(broken(NegotiateRequest { credits_requested: 0, ..least }), [Rule::SmbdNegReqCredits]);
        assert_eq!(
            broken(NegotiateRequest { max_receive_size: MAX_RECEIVE_SIZE_LEAST - 1, ..least }),
            [Rule::SmbdNegReqRecvsize]
        );
        assert_eq!(
            broken(NegotiateRequest { max_fragmented_size: MAX_FRAGMENTED_SIZE_LEAST - 1, ..least }),
            [Rule::SmbdNegReqFragsize]
        );
        assert_eq!(
            broken(NegotiateRequest { preferred_send_size: PREFERRED_SEND_SIZE_WINDOWS + 1, ..least }),
            [Rule::SmbdNegReqPreferred]
        );
        assert_eq!(broken(NegotiateRequest { preferred_send_size: 0x7fff_ffff, ..least }), [Rule::SmbdNegReqPreferred]);
        assert_eq!(broken(NegotiateRequest { preferred_send_size: 0x8000_0000, ..least }), [Rule::BugCve202643185]);
        assert_eq!(broken(NegotiateRequest { reserved: 1, ..least }), [Rule::SmbdReserved]);
        assert_eq!(broken(NegotiateRequest { max_version: 0x0101, ..least }), [Rule::SmbdNegRange]);
        assert_eq!(broken(NegotiateRequest { min_version: 0x00ff, ..least }), [Rule::SmbdNegRange]);
        assert_eq!(
            broken(NegotiateRequest { min_version: 0x0101, max_version: 0x0200, ..least }),
            [Rule::SmbdNegReqVersion]
        );
    }

    #[test]
    fn what_a_receiver_must_refuse() {
        let of_request =
            |request: NegotiateRequest| refusable_request(&request).map(|wrong| (wrong.field, wrong.status.is_some()));
        let least = NegotiateRequest { credits_requested: 1, max_receive_size: MAX_RECEIVE_SIZE_LEAST, ..request() };
        assert_eq!(of_request(least), None);
        assert_eq!(of_request(NegotiateRequest { credits_requested: 0, ..least }), Some(("CreditsRequested", false)));
        assert_eq!(
            of_request(NegotiateRequest { max_receive_size: MAX_RECEIVE_SIZE_LEAST - 1, ..least }),
            Some(("MaxReceiveSize", false))
        );
        let small = NegotiateRequest { max_fragmented_size: MAX_FRAGMENTED_SIZE_LEAST - 1, ..least };
        assert_eq!(of_request(small), Some(("MaxFragmentedSize", false)));
        assert_eq!(
            of_request(NegotiateRequest { max_version: 0x0099, min_version: 0x0099, ..least }),
            Some(("range of versions", true))
        );
        let of_response =
            |response: NegotiateResponse| refusable_response(&response, Some(request())).map(|wrong| wrong.field);
        let least = NegotiateResponse {
            credits_requested: 1,
            credits_granted: 1,
            max_receive_size: MAX_RECEIVE_SIZE_LEAST,
            ..response()
        };
        assert_eq!(of_response(least), None);
        assert_eq!(of_response(NegotiateResponse { status: 1, ..least }), Some("Status"));
        assert_eq!(of_response(NegotiateResponse { negotiated_version: 0x0101, ..least }), Some("NegotiatedVersion"));
        assert_eq!(
            of_response(NegotiateResponse { max_receive_size: MAX_RECEIVE_SIZE_LEAST - 1, ..least }),
            Some("MaxReceiveSize")
        );
        assert_eq!(
            of_response(NegotiateResponse { max_fragmented_size: MAX_FRAGMENTED_SIZE_LEAST - 1, ..least }),
            Some("MaxFragmentedSize")
        );
        assert_eq!(of_response(NegotiateResponse { credits_granted: 0, ..least }), Some("CreditsGranted"));
        assert_eq!(of_response(NegotiateResponse { credits_requested: 0, ..least }), Some("CreditsRequested"));
        let more = NegotiateResponse { preferred_send_size: request().max_receive_size + 1, ..least };
        assert_eq!(of_response(more), Some("PreferredSendSize"));
        assert_eq!(refusable_response(&more, None), None);
    }

    /// Rules that a Negotiate Response breaks, `waited` ns after its request.
    fn answered(waited: i64, request: NegotiateRequest, response: NegotiateResponse) -> (Link, Vec<(Rule, End)>) {
        let (mut link, mut judged) = (Link::new(), Judged::default());
        link.opened(time(0));
        link.negotiate_request(time(0), CLIENT, &request, &mut Judged::default());
        link.negotiate_response(time(waited), SERVER, &response, &mut judged);
        (link, judged.rules())
    }

    #[test]
    fn responses_at_each_limit() {
        let least = NegotiateResponse {
            credits_requested: 1,
            credits_granted: 1,
            max_receive_size: MAX_RECEIVE_SIZE_LEAST,
            ..response()
        };
        let broken =
            |response| answered(0, request(), response).1.into_iter().map(|(rule, _)| rule).collect::<Vec<_>>();
        assert_eq!(answered(NEGOTIATE_RESPONSE_TIMEOUT * SECOND, request(), least).1, []);
        assert_eq!(
            answered(NEGOTIATE_RESPONSE_TIMEOUT * SECOND + 1, request(), least).1,
            [(Rule::SmbdNegTimeout, SERVER)]
        );
        assert_eq!(broken(NegotiateResponse { reserved: 1, ..least }), [Rule::SmbdReserved]);
        assert_eq!(broken(NegotiateResponse { max_version: 0x0101, ..least }), [Rule::SmbdNegRange]);
        assert_eq!(broken(NegotiateResponse { min_version: 0, ..least }), [Rule::SmbdNegRange]);
        let refused = |response| {
            let (link, broken) = answered(0, request(), response);
            assert_eq!(link.phase(), Phase::Refused);
            broken.into_iter().map(|(rule, _)| rule).collect::<Vec<_>>()
        };
        assert_eq!(refused(NegotiateResponse { negotiated_version: 0x0101, ..least }), [Rule::SmbdNegRspVersion]);
        assert_eq!(
            refused(NegotiateResponse { max_receive_size: MAX_RECEIVE_SIZE_LEAST - 1, ..least }),
            [Rule::SmbdNegRspRecvsize]
        );
        assert_eq!(
            refused(NegotiateResponse { max_fragmented_size: MAX_FRAGMENTED_SIZE_LEAST - 1, ..least }),
            [Rule::SmbdNegRspFragsize]
        );
        assert_eq!(refused(NegotiateResponse { credits_granted: 0, ..least }), [Rule::SmbdNegRspGranted]);
        assert_eq!(refused(NegotiateResponse { credits_requested: 0, ..least }), [Rule::SmbdNegRspRequested]);
        assert_eq!(refused(NegotiateResponse { preferred_send_size: 1025, ..least }), [Rule::SmbdNegRspPreferred]);
    }

    #[test]
    fn refusals() {
        let refusal = NegotiateResponse {
            negotiated_version: 0,
            credits_requested: 0,
            credits_granted: 0,
            status: STATUS_NOT_SUPPORTED,
            max_read_write_size: 0,
            preferred_send_size: 0,
            max_receive_size: 0,
            max_fragmented_size: 0,
            ..response()
        };
        let of =
            |request, response| answered(0, request, response).1.into_iter().map(|(rule, _)| rule).collect::<Vec<_>>();
        let other = NegotiateRequest { min_version: 0x0200, max_version: 0x0200, ..request() };
        let none = NegotiateRequest { credits_requested: 0, ..request() };
        assert_eq!(of(other, refusal), []);
        assert_eq!(of(request(), refusal), [Rule::SmbdNegRspStatus]);
        assert_eq!(
            of(other, NegotiateResponse { status: 0xc000_0001, ..refusal }),
            [Rule::SmbdNegAccepted, Rule::SmbdNegRspStatus]
        );
        assert_eq!(of(none, NegotiateResponse { status: 0xc000_0001, ..refusal }), [Rule::SmbdNegRspStatus]);
        assert_eq!(of(none, response()), [Rule::SmbdNegAccepted]);
        assert_eq!(of(other, response()), [Rule::SmbdNegAccepted]);
        for set in [
            NegotiateResponse { negotiated_version: 1, ..refusal },
            NegotiateResponse { credits_granted: 1, ..refusal },
            NegotiateResponse { max_fragmented_size: 1, ..refusal },
        ] {
            assert_eq!(of(other, set), [Rule::SmbdNegRspFailureFields]);
        }
    }

    #[test]
    fn data_shows_that_a_response_was_accepted_that_must_be_refused() {
        let (mut link, _) = answered(0, request(), NegotiateResponse { credits_requested: 0, ..response() });
        let mut judged = Judged::default();
        // a grant may have been on its way
        send(&mut link, &mut judged, 4, CLIENT, data(0, 0, 1));
        assert_eq!(judged.rules(), []);
        send(&mut link, &mut judged, 5, CLIENT, data(1, 0, 1));
        send(&mut link, &mut judged, 6, CLIENT, data(1, 0, 1));
        assert_eq!(judged.rules(), [(Rule::SmbdNegAccepted, CLIENT)], "told once");
    }

    #[test]
    fn what_is_close_together_may_be_in_another_order() {
        let orphan = |apart| {
            let (mut link, mut judged) = (Link::new(), Judged::default());
            link.negotiate_response(time(0), SERVER, &response(), &mut judged);
            assert!(link.owes_request(CLIENT) && !link.owes_request(SERVER));
            link.negotiate_request(time(apart), CLIENT, &request(), &mut judged);
            assert!(!link.owes_request(CLIENT));
            // a grant may stand behind it
            link.data(time(apart + 1), SERVER, &data(8, 0, 1), 32, true, &mut judged);
            judged.0
        };
        for (apart, sure) in [(DISORDER, Certainty::Guess), (DISORDER + 1, HISTORY)] {
            assert_eq!(orphan(apart), [(Rule::SmbdNegFirst, SERVER, sure), (Rule::SmbdCreditOverrun, SERVER, sure)]);
        }
        let premature = |apart| {
            let (mut link, mut judged) = (Link::new(), Judged::default());
            link.negotiate_request(time(0), CLIENT, &request(), &mut judged);
            link.data(time(5), CLIENT, &data(8, 0, 1), 32, true, &mut judged);
            link.data(time(6), CLIENT, &data(8, 0, 1), 32, true, &mut judged);
            link.negotiate_response(time(5 + apart), SERVER, &response(), &mut judged);
            assert_eq!(
                (link.credits(CLIENT), link.side(CLIENT).messages),
                (Seen::Known(8), 2),
                "they cost credits of the response"
            );
            judged.0
        };
        assert_eq!(premature(DISORDER), [(Rule::SmbdNegFirst, CLIENT, Certainty::Guess)]);
        assert_eq!(premature(DISORDER + 1), [(Rule::SmbdNegFirst, CLIENT, HISTORY)]);
    }

    #[test]
    fn sizes_that_cannot_be_reached() {
        // 1,000 bytes of data a message, and ten credits
        let reach = |fragmented| {
            let asked = NegotiateRequest {
                max_fragmented_size: fragmented,
                preferred_send_size: 200_024,
                max_receive_size: 200_024,
                ..request()
            };
            let got = NegotiateResponse { max_receive_size: 200_024, preferred_send_size: 200_024, ..response() };
            answered(0, asked, got).1
        };
        // 200,000 bytes of data a message, and ten messages
        assert_eq!(reach(2_000_000), []);
        assert_eq!(reach(2_000_001), [(Rule::SmbdNegReach, CLIENT)]);
        assert_eq!(reach(2_000_240), [(Rule::SmbdNegReach, CLIENT)]);
        assert_eq!(reach(2_000_241), [(Rule::BugCifsMaxFragmentedSize, CLIENT), (Rule::SmbdNegReach, CLIENT)]);
        // what Windows asks for is what older Linux clients ask for, but for one size
        let as_windows = |max_receive_size| {
            let asked = NegotiateRequest {
                credits_requested: 255,
                preferred_send_size: 1364,
                max_receive_size,
                max_fragmented_size: 1 << 20,
                ..request()
            };
            let got = NegotiateResponse {
                max_receive_size: 1364,
                preferred_send_size: 1364,
                credits_requested: 255,
                ..response()
            };
            let broken = answered(0, asked, got).1;
            broken.into_iter().filter(|(rule, _)| *rule == Rule::BugCifsMaxFragmentedSize).count()
        };
        assert_eq!((as_windows(WINDOWS_RECEIVE_SIZE), as_windows(1364)), (0, 1));
        // the least is the receiver's duty, whatever its peer can send
        let small = |fragmented, send| {
            let asked = NegotiateRequest { max_fragmented_size: fragmented, preferred_send_size: send, ..request() };
            answered(0, asked, NegotiateResponse { credits_requested: 1, ..response() }).1
        };
        assert_eq!(small(MAX_FRAGMENTED_SIZE_LEAST, 128), []);
        assert_eq!(small(MAX_FRAGMENTED_SIZE_LEAST + 1, 128), [(Rule::SmbdNegReach, CLIENT)]);
        // the defect is a client's, with sizes of a mebibyte and more
        assert_eq!(small(1 << 20, 128), [(Rule::BugCifsMaxFragmentedSize, CLIENT), (Rule::SmbdNegReach, CLIENT)]);
        assert_eq!(small((1 << 20) - 1, 128), [(Rule::SmbdNegReach, CLIENT)]);
        let server = answered(0, request(), NegotiateResponse { max_fragmented_size: 1 << 20, ..response() }).1;
        assert_eq!(server, [(Rule::SmbdNegReach, SERVER)]);
    }

    /// Rules that one message of the client breaks.
    fn alone(message: DataTransfer, wire_length: u32, inside: bool) -> Vec<Rule> {
        let (mut link, mut judged) = established();
        link.data(at(4), CLIENT, &message, wire_length, inside, &mut judged);
        judged.rules().into_iter().map(|(rule, _)| rule).collect()
    }

    #[test]
    fn shapes_of_a_message() {
        let plain = data(8, 0, 1);
        assert_eq!(alone(plain, 32, true), []);
        assert_eq!(alone(DataTransfer { credits_requested: 0, ..plain }, 32, true), [Rule::SmbdDataCreditsRequested]);
        assert_eq!(alone(DataTransfer { flags: 1, ..plain }, 32, true), []);
        assert_eq!(alone(DataTransfer { flags: 2, ..plain }, 32, true), [Rule::SmbdFlags]);
        assert_eq!(alone(DataTransfer { reserved: 1, ..plain }, 32, true), [Rule::SmbdReserved]);
        assert_eq!(
            alone(DataTransfer { data_offset: 28, ..plain }, 36, true),
            [Rule::SmbdDataAlign, Rule::BugCve202539943]
        );
        assert_eq!(alone(DataTransfer { data_offset: 16, ..plain }, 32, true), [Rule::SmbdDataAlign]);
        assert_eq!(alone(DataTransfer { data_offset: 32, ..data(0, 0, 1) }, 40, true), [Rule::SmbdDataAlign]);
        assert_eq!(alone(plain, 31, false), [Rule::SmbdDataLength, Rule::BugCve202539943]);
        assert_eq!(
            alone(DataTransfer { data_offset: 16, ..plain }, 20, false),
            [Rule::SmbdDataAlign, Rule::BugCve202539943]
        );
        let behind = [Rule::SmbdDataLength, Rule::SmbdDataAlign, Rule::BugCve202539943];
        assert_eq!(alone(DataTransfer { data_offset: 20, ..plain }, 20, false), behind);
        let empty = DataTransfer { data_offset: 64, ..data(0, 0, 1) };
        assert_eq!(alone(empty, 20, false), [Rule::SmbdDataAlign], "whatever it points to");
        // a byte more than the peer receives
        assert_eq!(alone(data(1000, 0, 1), 1024, true), []);
        assert_eq!(alone(data(1001, 0, 1), 1025, true), [Rule::SmbdDataTooBig]);
        // a byte more than it reassembles
        assert_eq!(alone(data(8, MAX_FRAGMENTED_SIZE_LEAST - 8, 1), 32, true), []);
        assert_eq!(
            alone(data(8, MAX_FRAGMENTED_SIZE_LEAST - 7, 1), 32, true),
            [Rule::SmbdFragTooBig, Rule::BugCve202539942]
        );
        let mut judged = Judged::default();
        Link::padding(CLIENT, &[0, 0], &mut judged);
        assert_eq!(judged.rules(), []);
        Link::padding(CLIENT, &[0, 1], &mut judged);
        assert_eq!(judged.rules(), [(Rule::SmbdReserved, CLIENT)]);
    }

    #[test]
    fn a_message_that_is_longer_than_its_sender_agreed_to() {
        let (mut link, mut judged) = (Link::new(), Judged::default());
        link.negotiate_request(at(2), CLIENT, &NegotiateRequest { preferred_send_size: 512, ..request() }, &mut judged);
        link.negotiate_response(at(3), SERVER, &response(), &mut judged);
        send(&mut link, &mut judged, 4, CLIENT, data(488, 0, 1));
        assert_eq!(judged.rules(), []);
        send(&mut link, &mut judged, 5, CLIENT, data(489, 0, 1));
        assert_eq!(judged.rules(), [(Rule::SmbdDataTooBig, CLIENT)]);
    }

    #[test]
    fn fragments_that_do_not_count_down() {
        let of = |messages: &[(u32, u32)]| {
            let (mut link, mut judged) = established();
            for (n, (length, remaining)) in messages.iter().enumerate() {
                send(&mut link, &mut judged, 4 + n as u64, CLIENT, data(*length, *remaining, 1));
            }
            (
                judged.rules().into_iter().map(|(rule, _)| rule).collect::<Vec<_>>(),
                link.side(CLIENT).fragmented,
                link.side(CLIENT).fragments,
            )
        };
        assert_eq!(of(&[(100, 0), (100, 0)]), (Vec::new(), 0, 0));
        assert_eq!(of(&[(100, 1), (1, 0)]), (Vec::new(), 1, 2));
        // credits pass between them
        assert_eq!(of(&[(100, 100), (0, 0), (100, 0)]), (Vec::new(), 1, 2));
        assert_eq!(of(&[(100, 100), (99, 0)]), (alloc::vec![Rule::SmbdFragRemaining], 1, 2));
        assert_eq!(of(&[(100, 100), (50, 49)]), (alloc::vec![Rule::SmbdFragRemaining], 1, 2));
        assert_eq!(of(&[(0, 100)]), (alloc::vec![Rule::SmbdFragRemaining], 1, 1));
        // another message in between, and the first one goes on
        let between = alloc::vec![Rule::SmbdFragRemaining, Rule::BugSmbdirectBatchInterleave];
        assert_eq!(of(&[(100, 100), (50, 0), (100, 0)]), (between.clone(), 1, 3));
        assert_eq!(of(&[(100, 100), (50, 0), (100, 0), (50, 0)]), (between.clone(), 1, 3));
        assert_eq!(of(&[(100, 100), (50, 30), (60, 40), (30, 0)]).0[..2], between);
    }

    #[test]
    fn answers_that_are_not_prompt() {
        let asked = DataTransfer { flags: 1, ..data(0, 0, 1) };
        let answered = |after| {
            let (mut link, mut judged) = established();
            link.data(time(0), CLIENT, &asked, 20, true, &mut judged);
            link.data(time(after), SERVER, &data(0, 0, 1), 20, true, &mut judged);
            // answered once
            link.data(time(after + 100 * SECOND), SERVER, &data(0, 0, 1), 20, true, &mut judged);
            judged.rules().into_iter().filter(|(rule, _)| *rule == Rule::SmbdKeepalive).collect::<Vec<_>>()
        };
        assert_eq!(answered(KEEPALIVE_PROMPT * SECOND), []);
        assert_eq!(answered(KEEPALIVE_PROMPT * SECOND + 1), [(Rule::SmbdKeepalive, SERVER)]);
        let never = |after| {
            let (mut link, mut judged) = established();
            link.data(time(0), CLIENT, &asked, 20, true, &mut judged);
            link.closed(time(after), None, &mut judged);
            judged.rules()
        };
        assert_eq!(never(KEEPALIVE_PROMPT * SECOND), []);
        assert_eq!(never(KEEPALIVE_PROMPT * SECOND + 1), [(Rule::SmbdKeepalive, SERVER)]);
        // one that has no credit to answer with cannot, and has not to until it is granted one
        let dry = |granted| {
            let (mut link, mut judged) = established();
            while link.credits(SERVER).known().is_some_and(|credits| credits > 0) {
                link.data(time(0), SERVER, &data(0, 0, 1), 20, true, &mut Judged::default());
            }
            link.data(time(0), CLIENT, &DataTransfer { credits_granted: 0, ..asked }, 20, true, &mut Judged::default());
            if granted {
                link.data(time(60 * SECOND), CLIENT, &data(1, 0, 1), 20, true, &mut judged);
                link.data(time(60 * SECOND + 1), SERVER, &data(0, 0, 1), 20, true, &mut judged);
            }
            link.closed(time(90 * SECOND), None, &mut judged);
            judged.rules().into_iter().filter(|(rule, _)| *rule == Rule::SmbdKeepalive).collect::<Vec<_>>()
        };
        assert_eq!((dry(false), dry(true)), (Vec::new(), Vec::new()));
    }

    #[test]
    fn waits_for_credits() {
        // the client spends nine of its ten credits, and goes on `released` ns after a grant that came `waited` ns
        // later
        let waits = |left: usize, inside: bool, waited, released, message: DataTransfer| {
            let (mut link, mut judged) = established();
            for n in 0..10 - left {
                let last = n + 1 == 10 - left;
                let remaining = if last && inside { 8 } else { 0 };
                link.data(time(0), CLIENT, &data(8, remaining, 9), 32, true, &mut judged);
            }
            assert_eq!(link.blocked_since(CLIENT).is_some(), left <= 1);
            link.data(time(waited), SERVER, &data(0, 0, 5), 20, true, &mut judged);
            link.data(time(waited + released), CLIENT, &message, 32, true, &mut judged);
            let side = link.side(CLIENT);
            let stalled = (side.stalls, side.stalled_time, side.stall_longest);
            assert_eq!(stalled, if judged.0.is_empty() { (0, 0, (0, 0)) } else { (1, waited, (waited, 99)) });
            judged.0
        };
        let more = data(8, 0, 1);
        let stall = |sure| alloc::vec![(Rule::SmbdCreditStall, SERVER, sure)];
        assert_eq!(waits(1, true, STALL_LEAST, STALL_RELEASE, more), stall(HISTORY));
        assert_eq!(waits(1, false, STALL_LEAST, 0, more), stall(Certainty::Guess));
        assert_eq!(waits(1, true, STALL_LEAST - 1, 0, more), []);
        assert_eq!(waits(1, true, STALL_LEAST, STALL_RELEASE + 1, more), []);
        assert_eq!(waits(1, true, STALL_LEAST, 0, data(0, 0, 1)), []);
        assert_eq!(waits(2, true, STALL_LEAST, 0, more), []);
    }

    /// A client that waits for each answer waits for no credits, whatever it holds; nor does a server that works.
    #[test]
    fn who_waits_for_an_answer_does_not_wait_for_credits() {
        let stalls = |queued: u32, period: i64, works: i64| {
            let (mut link, mut judged) = (Link::new(), Judged::default());
            link.negotiate_request(time(0), CLIENT, &request(), &mut judged);
            let response = NegotiateResponse { credits_granted: 2, ..response() };
            link.negotiate_response(time(0), SERVER, &response, &mut judged);
            (0..queued).for_each(|_| link.data(time(0), CLIENT, &data(8, 0, 9), 32, true, &mut judged));
            for n in 1..5 {
                link.data(time(n * period), SERVER, &data(8, 0, 1), 32, true, &mut judged);
                link.data(time(n * period + works), CLIENT, &data(8, 0, 9), 32, true, &mut judged);
            }
            link.side(CLIENT).stalls
        };
        assert_eq!([stalls(1, STALL_RELEASE, 10), stalls(2, STALL_RELEASE, 10)], [0, 4]);
        assert_eq!(stalls(2, STALL_RELEASE, STALL_RELEASE - 2 * STALL_LEAST), 1, "all but the first wait are short");
        // a server that the next request brings credits had nothing to send before it; one with an older request had
        let answers = |asked_before: bool| {
            let (mut link, mut judged) = established();
            (0..10).for_each(|_| link.data(time(0), CLIENT, &data(8, 0, 1), 32, true, &mut judged));
            (0..9).for_each(|_| link.data(time(1), SERVER, &data(8, 0, 9), 32, true, &mut judged));
            if !asked_before {
                link.data(time(1), SERVER, &data(8, 0, 9), 32, true, &mut judged);
            }
            let held = link.side(SERVER).blocked_since;
            link.data(time(STALL_RELEASE), CLIENT, &data(8, 0, 1), 32, true, &mut judged);
            link.data(time(STALL_RELEASE + 10), SERVER, &data(8, 0, 9), 32, true, &mut judged);
            (held.is_some(), link.side(SERVER).stalls)
        };
        assert_eq!([answers(false), answers(true)], [(true, 0), (true, 1)]);
    }

    #[test]
    fn the_longest_wait_is_kept() {
        let (mut link, mut judged) = (Link::new(), Judged::default());
        link.negotiate_request(time(0), CLIENT, &request(), &mut judged);
        link.negotiate_response(time(0), SERVER, &NegotiateResponse { credits_granted: 2, ..response() }, &mut judged);
        let mut now = 0;
        for (frame, waited) in [(5, 2 * STALL_LEAST), (6, 3 * STALL_LEAST), (7, 3 * STALL_LEAST), (8, STALL_LEAST)] {
            link.data(At { frame, time: now }, CLIENT, &data(8, 0, 9), 32, true, &mut judged);
            now += waited;
            link.data(At { frame, time: now }, SERVER, &data(0, 0, 1), 20, true, &mut judged);
        }
        link.data(At { frame: 9, time: now }, CLIENT, &data(8, 0, 9), 32, true, &mut judged);
        let side = link.side(CLIENT);
        assert_eq!((side.stalls, side.stalled_time, side.stall_longest), (4, 9 * STALL_LEAST, (3 * STALL_LEAST, 7)));
    }

    #[test]
    fn an_end_that_was_never_given_credits_waits_from_the_first_message() {
        let (mut link, mut judged) = established();
        assert_eq!(link.blocked_since(SERVER), None);
        send(&mut link, &mut judged, 4, CLIENT, data(8, 0, 0));
        send(&mut link, &mut judged, 5, CLIENT, data(8, 0, 0));
        assert_eq!(link.blocked_since(SERVER), Some(at(4)));
    }

    #[test]
    fn more_credits_than_a_field_can_say() {
        let granted = |first| {
            let (mut link, mut judged) = established();
            send(&mut link, &mut judged, 4, CLIENT, data(8, 0, first));
            send(&mut link, &mut judged, 5, CLIENT, data(8, 0, 1));
            (judged.rules(), link.side(SERVER).granted_total)
        };
        assert_eq!(granted(u16::MAX - 1), (Vec::new(), 65_535));
        assert_eq!(granted(u16::MAX), (alloc::vec![(Rule::SmbdCreditOverflow, CLIENT)], 65_536));
    }

    #[test]
    fn few_credits_all_the_time() {
        let starved = |asked, messages| {
            let (mut link, mut judged) = established();
            for n in 0..messages {
                // it holds ten, spends one, and gets one
                let message = DataTransfer { credits_requested: asked, ..data(8, 0, 1) };
                send(&mut link, &mut judged, 4 + 2 * n, CLIENT, message);
                send(&mut link, &mut judged, 5 + 2 * n, SERVER, DataTransfer { credits_requested: 1, ..data(0, 0, 1) });
            }
            (judged.rules(), link.side(CLIENT).is_starved())
        };
        assert_eq!(starved(41, STARVED_MESSAGES), (alloc::vec![(Rule::SmbdCreditStarved, SERVER)], true));
        assert_eq!(
            starved(41, 3 * STARVED_MESSAGES),
            (alloc::vec![(Rule::SmbdCreditStarved, SERVER)], true),
            "told once"
        );
        assert_eq!(starved(41, STARVED_MESSAGES - 1), (Vec::new(), false));
        assert_eq!(starved(40, STARVED_MESSAGES), (Vec::new(), false));
    }

    #[test]
    fn connections_that_end_in_the_middle() {
        let ended = |by, after, credits: u16| {
            let (mut link, mut judged) = (Link::new(), Judged::default());
            link.negotiate_request(time(0), CLIENT, &request(), &mut judged);
            link.negotiate_response(
                time(0),
                SERVER,
                &NegotiateResponse { credits_granted: credits, ..response() },
                &mut judged,
            );
            link.data(time(0), CLIENT, &data(8, 8, 1), 32, true, &mut judged);
            link.closed(time(after), by, &mut judged);
            judged.0
        };
        let left = |sure| alloc::vec![(Rule::SmbdFragRemaining, CLIENT, sure)];
        assert_eq!(ended(Some(SERVER), STOPPED, 3), left(HISTORY));
        assert_eq!(ended(Some(SERVER), STOPPED - 1, 3), []);
        assert_eq!(ended(Some(CLIENT), 0, 3), left(Certainty::Guess));
        assert_eq!(ended(None, 9 * STOPPED, 3), []);
        // with one credit left, it could not go on
        assert_eq!(ended(Some(SERVER), STOPPED, 2), []);
        assert_eq!(ended(Some(CLIENT), STOPPED, 2), []);
    }

    #[test]
    fn both_out_of_credits() {
        let silent = |after, granted| {
            let (mut link, mut judged) = established();
            (0..10).for_each(|_| link.data(time(0), CLIENT, &data(8, 0, 0), 32, true, &mut Judged::default()));
            if granted {
                link.data(time(0), SERVER, &data(0, 0, 1), 20, true, &mut Judged::default());
            }
            link.closed(time(after), None, &mut judged);
            judged.rules()
        };
        assert_eq!(silent(SECOND + 1, false), [(Rule::SmbdCreditDeadlock, SERVER)]);
        assert_eq!(silent(SECOND, false), []);
        assert_eq!(silent(SECOND + 1, true), []);
    }

    #[test]
    fn a_request_that_nobody_answers() {
        let ended = |by: Option<End>, after: i64, request: NegotiateRequest, early: bool| {
            let (mut link, mut judged) = (Link::new(), Judged::default());
            link.negotiate_request(time(0), CLIENT, &request, &mut Judged::default());
            if early {
                link.data(time(0), CLIENT, &data(8, 0, 1), 32, true, &mut Judged::default());
            }
            link.closed(time(after), by, &mut judged);
            judged.0
        };
        let timeout = |sure| alloc::vec![(Rule::SmbdNegTimeout, SERVER, sure)];
        assert_eq!(ended(Some(CLIENT), NEGOTIATE_PATIENCE, request(), false), timeout(HISTORY));
        assert_eq!(ended(Some(CLIENT), NEGOTIATE_PATIENCE - 1, request(), false), []);
        assert_eq!(ended(None, NEGOTIATE_RESPONSE_TIMEOUT * SECOND, request(), false), []);
        assert_eq!(ended(None, NEGOTIATE_RESPONSE_TIMEOUT * SECOND + 1, request(), false), timeout(HISTORY));
        // which must not be answered
        let none = NegotiateRequest { credits_requested: 0, ..request() };
        assert_eq!(ended(Some(SERVER), 0, none, false), []);
        // a refusal of the versions is an answer
        let other = NegotiateRequest { min_version: 2, max_version: 2, ..request() };
        assert_eq!(ended(Some(SERVER), 0, other, false), timeout(HISTORY));
        let early = alloc::vec![
            (Rule::SmbdNegTimeout, SERVER, Certainty::Guess),
            (Rule::SmbdNegFirst, CLIENT, Certainty::Guess)
        ];
        assert_eq!(ended(Some(SERVER), 0, request(), true), early);
    }

    #[test]
    fn the_first_message_says_who_may_negotiate() {
        let (mut link, mut judged) = (Link::new(), Judged::default());
        link.connected_by(SERVER);
        assert!(link.is_passive(CLIENT) && !link.is_passive(SERVER));
        link.negotiate_request(at(2), CLIENT, &request(), &mut judged);
        assert_eq!(judged.rules(), [(Rule::SmbdNegFirst, CLIENT)]);
        link.negotiate_request(at(3), CLIENT, &request(), &mut judged);
        assert_eq!(judged.rules().len(), 2, "after the negotiation");
        // an answer of the end that asked
        link.negotiate_response(at(4), CLIENT, &response(), &mut judged);
        assert_eq!(judged.rules()[2..], [(Rule::SmbdNegFirst, CLIENT)]);
        let mut late = Link::joined_late();
        assert!(late.is_unbegun() && !established().0.is_unbegun());
        send(&mut late, &mut judged, 5, CLIENT, data(8, 0, 1));
        assert!(!late.is_unbegun());
    }
}
