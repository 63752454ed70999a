//! Rules of TCP, MPA, DDP and RDMAP. RFC 9293, RFC 5040, RFC 5041, RFC 5044, RFC 6581.

use super::{Listener, way};
use crate::connection::Opening;
use crate::env::Layer;
use crate::episodes::{Cause, Episode, Kind, Trigger};
use crate::finding::{Blame, Certainty, Finding, Group, RESET_BETWEEN, Rule, Severity, Site};
use crate::flow::iwarp::{FlowFact, FlowSink};
use crate::flow::repair::Over;
use crate::messages::smbd::link::Link;
use crate::missed::Rests;
use crate::op::{At, End, RdmaOp, StreamBytes};
use crate::pieces::Assembly;
use crate::roles::Source;
use crate::series::Trouble;
use crate::summary::{Handshake, Transport};
use alloc::string::String;
use rdmascope_dissector::text::Elapsed as Milliseconds;
use rdmascope_dissector::trace::Trace;
use rdmascope_dissector::wire::iwarp::mpa::{Enhanced, Startup};
use rdmascope_dissector::wire::iwarp::rdmap::{Opcode, Terminate};

/// ns after which a receive window that is still closed when the connection ends is reported.
const NEVER_OPENED: i64 = 1_000_000_000;
/// The read depth that says that none is agreed on (RFC 6581 9.1).
const NO_DEPTH: u32 = 0x3fff;

/// What an end did if its peer ended the connection for it.
const CAUSED: &str = "sent the message that made its peer end the connection";
/// Why an access was refused that strayed from what was advertised.
const NOT_ADVERTISED: &str = "It used a key, an address or a direction that its peer had not advertised";

impl FlowSink for Listener<'_> {
    fn op<T: Trace>(&mut self, op: &RdmaOp<'_>, t: &mut T) {
        self.env.layer(Layer::Rdma);
        self.connection.op(self.env, op, t);
    }

    fn fact(&mut self, at: At, by: End, fact: FlowFact<'_>) {
        let sure = Certainty::Certain;
        let blame = self.blame(by);
        let health = &mut self.connection.health;
        match fact {
            FlowFact::MpaRequest(startup) => self.startup(at, by, &startup),
            FlowFact::MpaReply(startup) => self.startup(at, by, &startup),
            FlowFact::CrcBad => {
                health.crc_bad += 1;
                let way = way(self.connection, by).unwrap_or("of one direction");
                // TCP found the segment undamaged: it was made wrong, or changed where TCP does not look. The receiver
                // says in its Request or Reply if there are markers: without it, bytes may be taken for an FPDU's.
                let certainty = if self.has_started(by.peer()) { sure } else { Certainty::Guess };
                let text = format_args!("the CRC of an FPDU {way} is wrong");
                self.wire(at, Rule::MpaCrc, Blame::Unknown, certainty, text);
            }
            FlowFact::MarkerBad { pointer, expected } => {
                self.wire(
                    at,
                    Rule::MpaMarker,
                    blame,
                    sure,
                    format_args!("sent a marker with pointer {pointer} instead of {expected}"),
                );
            }
            FlowFact::Resync { skipped, .. } => {
                if self.connection.transport != Some(Transport::Iwarp) {
                    // the TCP handshake may have been seen; that of MPA was not
                    self.connection.transport = Some(Transport::Iwarp);
                    self.connection.opening.handshake = Handshake::Inferred;
                    self.connection.missed.late();
                }
                // messages may have passed between the gap and here
                self.connection.gap(self.env, at, by);
                self.wire(
                    at,
                    Rule::MpaResync,
                    Blame::Capture,
                    Certainty::IfNothingWasMissed,
                    format_args!("MPA framing was found again after {skipped} bytes"),
                );
            }
            FlowFact::DdpShort { length } => {
                self.wire(
                    at,
                    Rule::BugCve202664102,
                    blame,
                    sure,
                    format_args!("sent an FPDU of {length} bytes, which is shorter than its headers"),
                );
            }
            FlowFact::Undefined { ddp, rdmap, queue } => {
                let (is_tagged, ddp_version, rdmap_version) = (ddp & 0x80 != 0, ddp & 3, rdmap >> 6);
                let opcode = Opcode(rdmap & 0xf);
                if ddp_version != 1 {
                    self.wire(
                        at,
                        Rule::DdpMsn,
                        blame,
                        sure,
                        format_args!("sent DDP version {ddp_version}; there is only 1"),
                    );
                } else if rdmap_version > 1 {
                    self.wire(
                        at,
                        Rule::DdpMsn,
                        blame,
                        sure,
                        format_args!("sent RDMAP version {rdmap_version}; there are only 0 and 1"),
                    );
                } else if opcode.is_tagged().is_none() {
                    self.wire(
                        at,
                        Rule::DdpMsn,
                        blame,
                        sure,
                        format_args!("sent RDMAP opcode {}, which is not defined", opcode.0),
                    );
                } else if is_tagged {
                    self.wire(
                        at,
                        Rule::DdpMsn,
                        blame,
                        sure,
                        format_args!("sent RDMAP opcode {} ({opcode}) in a tagged segment", opcode.0),
                    );
                } else {
                    let text = format_args!(
                        "sent RDMAP opcode {} ({opcode}) on queue {queue}, where it does not belong",
                        opcode.0
                    );
                    self.wire(at, Rule::DdpMsn, blame, sure, text);
                }
            }
            FlowFact::MsnGap { queue, expected, got } => {
                self.wire(
                    at,
                    Rule::DdpMsn,
                    blame,
                    Certainty::IfNothingWasMissed,
                    format_args!("sent message {got} on queue {queue}; {expected} comes next"),
                );
            }
            FlowFact::MsnRepeat { queue, expected, got } => {
                self.wire(
                    at,
                    Rule::DdpMsn,
                    blame,
                    sure,
                    format_args!("sent message {got} on queue {queue} again; {expected} comes next"),
                );
            }
            FlowFact::SegmentOverlap { expected, got } | FlowFact::SegmentHole { expected, got } if expected == got => {
                let text = format_args!("sent a segment for another STag before its message was whole");
                self.wire(at, Rule::DdpOverlap, blame, Certainty::IfNothingWasMissed, text);
            }
            FlowFact::SegmentOverlap { expected, got } | FlowFact::SegmentHole { expected, got } => {
                self.wire(
                    at,
                    Rule::DdpOverlap,
                    blame,
                    Certainty::IfNothingWasMissed,
                    format_args!("sent a segment at offset {got:#x}; {expected:#x} comes next"),
                );
            }
            FlowFact::ReadLonger { asked, sent, came } => {
                let rests = Rests::LEDGER.of(by.peer());
                let text = format_args!("answered a Read Request of {asked} bytes with {sent} bytes");
                if came == sent {
                    return self.connection.report(self.env, at, Rule::BugCve202664268, by, rests, text);
                }
                let text =
                    format_args!("answered a Read Request of {asked} bytes with {came} bytes that end at {sent}");
                self.connection.report(self.env, at, Rule::BugCve202664268, by, rests, text);
            }
            FlowFact::ReadShorter { asked, sent } => {
                let text = format_args!("answered a Read Request of {asked} bytes with {sent}");
                self.connection.report(self.env, at, Rule::RcLength, by, Rests::LEDGER.of(by.peer()), text);
            }
            FlowFact::ReadUnknown { stag, offset } => {
                let text =
                    format_args!("sent a Read Response to {stag:#010x} at {offset:#x} that no request asked for");
                self.connection.report(self.env, at, Rule::BugCve202664268, by, Rests::START.of(by.peer()), text);
            }
            FlowFact::Retransmission { of, .. } => {
                health.retransmissions += 1;
                self.connection.trouble.add(at.time, Trouble::RETRANSMISSION);
                self.env.frame.retransmission = true;
                self.env.frame.copy_of = of;
            }
            FlowFact::MayBeCopies => self.connection.before_copies = health.retransmissions,
            FlowFact::WereCopies => self.connection.were_copies(),
            FlowFact::Misplaced | FlowFact::Over(Over::Misplaced) => {
                self.env.frame.is_misplaced = true;
                self.connection.is_out_of_order = true;
                self.env.weaken(self.connection.id);
            }
            FlowFact::Found(bytes) => self.found(by, bytes),
            FlowFact::Damaged => self.env.frame.is_damaged = true,
            FlowFact::Mended { since, sequence, bytes } => {
                self.connection.episodes.add(Episode {
                    kind: Kind::Recovery,
                    cause: Cause::Damaged,
                    by: Some(by),
                    begin: since,
                    end: Some(at),
                    sequence: Some(sequence),
                    bytes: bytes.into(),
                    packets: 1,
                    repeated: 1,
                    ..Episode::default()
                });
            }
            FlowFact::AcceptsAgain => self.connection.opening.accepts_again += 1,
            FlowFact::Doubtful => self.connection.is_unchecked = true,
            FlowFact::Assembled(pieces) => self.env.sink.assembled(Assembly::Tcp, at.frame, pieces.frames()),
            FlowFact::BeganLate | FlowFact::Changed => {
                self.connection.opening.changed |= matches!(fact, FlowFact::Changed);
                self.connection.missed.gap(by, at);
                self.connection.unseen(by);
            }
            FlowFact::Dropped | FlowFact::Cut => self.connection.gap(self.env, at, by),
            FlowFact::Over(over) => self.over(by, over),
            FlowFact::RoundTrip(took) => self.connection.episodes.round_trip(by, took),
            FlowFact::OutOfOrder { .. } => {
                health.sequence_gaps += 1;
            }
            FlowFact::Conflict { bytes } => {
                let text =
                    format_args!("two copies of the same {bytes} bytes differ: one of them was damaged, or forged");
                self.wire(at, Rule::TcpChecksum, Blame::Unknown, Certainty::Guess, text);
            }
            FlowFact::ZeroWindow { since, is_open } => {
                let took = at.time.saturating_sub(since.time);
                let closed = Milliseconds(took);
                if is_open {
                    let (kind, by) = (Kind::ZeroWindow, Some(by.peer()));
                    self.connection.episodes.add(Episode {
                        kind,
                        by,
                        begin: since,
                        end: Some(at),
                        ..Episode::default()
                    });
                    self.wire(
                        at,
                        Rule::TcpZeroWindow,
                        blame,
                        sure,
                        format_args!("kept its receive window closed for {closed}"),
                    );
                } else {
                    self.connection.ends[by.index()].is_shut = true;
                }
                if !is_open && took >= NEVER_OPENED {
                    let text = format_args!(
                        "closed its receive window and did not open it again: {closed} to the last segment"
                    );
                    self.wire(since, Rule::TcpZeroWindow, blame, Certainty::IfNothingWasMissed, text);
                }
            }
            FlowFact::Reset => {
                let strange = self.connection.strange_ttl;
                let sure = if strange.is_some() { Certainty::Guess } else { sure };
                let strange = strange.filter(|(.., is_sure)| *is_sure);
                if self.connection.closed.is_none() {
                    self.connection.closed = Some((Some(by).filter(|_| strange.is_none()), "RST", at));
                    self.env.breaks().left(self.connection.id, at);
                }
                if let Some((ttl, usual, _)) = strange {
                    let text = format_args!(
                        "the reset came with a TTL (hop limit) of {ttl}, its sender's packets before with {usual}: a \
                         device between the two may have sent it"
                    );
                    if self.connection.is_of_storage() {
                        self.wire(at, Rule::TcpReset, Blame::Unknown, Certainty::Guess, text);
                        let id = Some(self.connection.id);
                        self.env.findings.because(Rule::TcpReset, id, Blame::Unknown, Some(RESET_BETWEEN));
                    }
                } else if self.connection.transport == Some(Transport::Iwarp) {
                    self.wire(at, Rule::TcpReset, blame, sure, format_args!("reset the connection"));
                    // something listens where a connection was established
                    let why = "Its sender closed with data unread or was stopped, or a firewall in the path gave up";
                    let why = Some(why).filter(|_| self.connection.opening.rdma_opened.is_some());
                    self.env.findings.because(Rule::TcpReset, Some(self.connection.id), blame, why);
                }
            }
            FlowFact::Resumed => {
                self.connection.closed = self.connection.closed.filter(|(_, how, _)| *how != "RST");
                let more = format_args!("; both ends went on: it was not taken");
                for by in [blame, Blame::Unknown] {
                    self.env.findings.lower(Rule::TcpReset, Some(self.connection.id), by, Severity::Note, more);
                }
            }
            FlowFact::Gap(gap) => {
                if self.connection.is_of_storage() {
                    self.lost(at, &gap, "byte");
                } else {
                    self.connection.missed.gap(by, at);
                }
            }
            FlowFact::ReadsOutstanding(count) => {
                let taken = self.connection.opening.read_depths[by.peer().index()].map(|(ird, _)| ird);
                let Some(limit) = taken.filter(|ird| (1..NO_DEPTH).contains(ird)) else { return };
                if count <= limit {
                    return self.connection.reads(by, at, count, limit);
                }
                let text = format_args!("has {count} RDMA Reads outstanding; its peer accepts {limit}");
                self.connection.report(self.env, at, Rule::RdmaReadDepth, by, Rests::LEDGER, text);
            }
            FlowFact::Terminate(terminate) => self.terminated(at, by, &terminate),
            FlowFact::Closed => {
                if self.connection.closed.is_none() {
                    self.connection.closed = Some((Some(by), "FIN", at));
                    self.env.breaks().left(self.connection.id, at);
                }
            }
            FlowFact::Reopened => {}
            FlowFact::Duplicate => health.duplicates += 1,
        }
    }

    #[inline]
    fn sequence(&mut self, by: End, sequence: u32) {
        self.connection.ends[by.index()].sequence = Some(sequence);
    }

    #[inline]
    fn acknowledged(&mut self, at: At, by: End, sequence: u32) {
        self.connection.acknowledged(self.env, at, by, sequence);
    }

    fn bytes<T: Trace>(&mut self, bytes: &StreamBytes<'_>, t: &mut T) {
        self.connection.stream(self.env, bytes, t);
    }
}

impl Listener<'_> {
    /// Something that held `by` up is over.
    #[cold]
    fn over(&mut self, by: End, over: Over) {
        let episodes = &mut self.connection.episodes;
        let held = |kind: Kind, since: At, until: At| Episode {
            kind,
            by: Some(by),
            begin: since,
            end: Some(until),
            ..Episode::default()
        };
        match over {
            Over::Recovery { since, until, sequence, bytes, copy, is_filled, is_reported } => {
                let cause = match (is_filled, is_reported) {
                    (true, _) => Cause::LostBefore,
                    (false, true) => Cause::LostBehind,
                    (false, false) => Cause::Unacknowledged,
                };
                let trigger = match (is_reported, is_filled) {
                    (true, _) => Trigger::FastRetransmit,
                    (false, false) => Trigger::Rto,
                    // the report may not have been captured, as the segment was not
                    (false, true) => Trigger::Unknown,
                };
                let (sequence, bytes, packets) = (Some(sequence), bytes.into(), 1);
                let found = Episode {
                    cause,
                    trigger,
                    sequence,
                    bytes,
                    packets,
                    repeated: 1,
                    ..held(Kind::Recovery, since, until)
                };
                episodes.add(found);
                // bytes behind a hole are taken when that is filled
                let sequence = found.sequence.unwrap_or(0);
                self.connection.again(by, copy, sequence, true, true, is_filled);
            }
            Over::Nagle { since, until } => {
                episodes.add(held(Kind::Nagle, since, until));
            }
            Over::HeldUp { since, until } => {
                episodes.add(held(Kind::HeldUp, since, until));
            }
            Over::ClockStep { since, until, is_told } => {
                episodes.clock_set(by, since, until);
                if is_told {
                    self.clock_set(since, until);
                }
            }
            Over::ClockSet { since, until } => self.clock_set(since, until),
            Over::RoundTrip(took) => episodes.round_trip(by.peer(), took),
            Over::Silence(found) => self.silence(by, &found),
            Over::Misplaced => {}
        }
    }

    /// The clock of the capture was set.
    fn clock_set(&mut self, since: At, until: At) {
        let step = Milliseconds(until.since(since));
        let text = format_args!("the times jump ahead by {step}, and the timestamps of neither end do");
        self.wire(until, Rule::CaptureClock, Blame::Capture, Certainty::IfNothingWasMissed, text);
    }

    /// `by` ends the connection and says why: for its own error, for what the capture shows that its peer did, or for
    /// what nothing explains.
    fn terminated(&mut self, at: At, by: End, terminate: &Terminate) {
        const LLP: u8 = 2;
        const DDP: u8 = 1;
        /// Of RDMAP and DDP.
        const LOCAL_CATASTROPHIC: u8 = 0;
        /// Of RDMAP, a remote protection error; of DDP, one of a tagged buffer.
        const PROTECTION: u8 = 1;
        /// Of DDP.
        const UNTAGGED: u8 = 2;
        /// Of a tagged buffer of DDP; the codes before it are about memory.
        const TAGGED_VERSION: u8 = 4;
        const NO_BUFFER: u8 = 2;
        const TOO_LONG: u8 = 5;
        const TCP_CLOSED: u8 = 1;
        const MPA_CRC: u8 = 2;
        const MPA_LOCAL: u8 = 5;
        let (own, peers) = (self.blame(by), self.blame(by.peer()));
        self.connection.broke_off(by, at);
        let likely = Certainty::IfNothingWasMissed;
        let is_access = |t: &Terminate| t.error_type == PROTECTION && (t.layer != DDP || t.code != TAGGED_VERSION);
        let (blame, certainty, what, why) = match (terminate.layer, terminate.error_type, terminate.code) {
            (LLP, _, MPA_CRC) => (
                Blame::Unknown,
                likely,
                "an FPDU arrived damaged, and its receiver ended the connection",
                "Bytes changed where TCP does not look: in an adapter, a host, or a device that makes checksums anew",
            ),
            (LLP, _, TCP_CLOSED) => (
                Blame::Unknown,
                likely,
                "the connection was ended because TCP was closed or lost below it",
                "The TCP connection failed: packets were lost for too long, or one side closed it",
            ),
            (0 | DDP, LOCAL_CATASTROPHIC, _) | (LLP, _, MPA_LOCAL) => (
                own,
                Certainty::Certain,
                "ended the connection because of its own error",
                "An error inside the host or the adapter of that side: see its logs",
            ),
            (0 | DDP, ..) if is_access(terminate) && self.connection.is_stray(by.peer()) => {
                (peers, self.broke(peers).unwrap_or(likely), CAUSED, NOT_ADVERTISED)
            }
            // only its receiver knows the reason
            (0 | DDP, ..) if is_access(terminate) => (
                Blame::Unknown,
                Certainty::Guess,
                "an access was refused, though all seem to lie in memory that was advertised",
                "A key, bounds or access rights that are not as advertised, or memory that was taken back too early",
            ),
            (layer, error_type, code) => match (self.broke(peers), layer, error_type, code) {
                (Some(certainty), ..) => (peers, certainty, CAUSED, "The side that the finding names broke a rule"),
                (None, DDP, UNTAGGED, NO_BUFFER) if self.had_credits(by.peer()) => (
                    own,
                    likely,
                    "ended the connection because it had no receive for a message that its peer had a credit for",
                    "It granted credits for which it had posted no receives ([MS-SMBD] 3.1.5.9)",
                ),
                (None, DDP, UNTAGGED, TOO_LONG) if self.kept_size(by.peer()) => (
                    own,
                    likely,
                    "ended the connection because a message no longer than agreed on was too long for its receive",
                    "It posted receives that are shorter than the MaxReceiveSize that it sent",
                ),
                (None, DDP, UNTAGGED, NO_BUFFER) => (
                    Blame::Unknown,
                    Certainty::Guess,
                    "ended the connection because it had no receive for a message",
                    "Messages without credits, or credits for which no receives were posted",
                ),
                (None, DDP, UNTAGGED, TOO_LONG) => (
                    Blame::Unknown,
                    Certainty::Guess,
                    "ended the connection because a message was too long for its receive",
                    "A message longer than agreed on, or receives that are shorter",
                ),
                _ => (
                    Blame::Unknown,
                    Certainty::Guess,
                    "ended the connection for an error that the capture does not show",
                    "An adapter that sends, or reads, headers otherwise than the specification says",
                ),
            },
        };
        self.wire(at, Rule::RdmapTerminate, blame, certainty, format_args!("{what}: {terminate}"));
        self.env.findings.because(Rule::RdmapTerminate, Some(self.connection.id), blame, Some(why));
    }

    /// How certain it is that a side broke a rule, if it seems so: of what was found, the most certain.
    fn broke(&self, side: Blame) -> Option<Certainty> {
        use Group::{Credits, Data, KnownBug, Memory, Negotiate, Transport};
        // an adapter looks no higher
        let is_below =
            |rule: Rule| matches!(rule.row().group, Negotiate | Data | Credits | Memory | Transport | KnownBug);
        let id = Some(self.connection.id);
        let is_its =
            |f: &&Finding| f.connection == id && f.by == side && f.severity == Severity::Error && is_below(f.rule);
        let found = self.env.findings.iter().filter(is_its).map(|f| f.certainty).max();
        found.filter(|_| side != Blame::Unknown)
    }

    /// True if an end of SMB Direct had a credit for all that it sent.
    fn had_credits(&self, by: End) -> bool {
        let is_within =
            |link: &Link| link.side(by).overruns == 0 && link.credits(by).known().is_some_and(|held| held >= 0);
        !self.connection.missed.anything() && self.connection.smbd().is_some_and(|smbd| is_within(&smbd.link))
    }

    /// True if an end of SMB Direct was told how long its messages may be: a longer one would have been reported.
    fn kept_size(&self, by: End) -> bool {
        let is_known = |link: &Link| link.side(by.peer()).max_receive_size.is_some();
        !self.connection.missed.anything() && self.connection.smbd().is_some_and(|smbd| is_known(&smbd.link))
    }

    /// True if the MPA Request or Reply of an end was captured.
    fn has_started(&self, end: End) -> bool {
        let Opening { mpa_revision, rdma_opened, .. } = &self.connection.opening;
        match self.connection.roles.sure_client() {
            Some(client) if client == end => mpa_revision.is_some(),
            Some(_) => rdma_opened.is_some(),
            None => false,
        }
    }

    /// An MPA Request or Reply.
    fn startup(&mut self, at: At, by: End, startup: &Startup<'_>) {
        self.env.layer(Layer::Mpa);
        let connection = &mut *self.connection;
        connection.transport = Some(Transport::Iwarp);
        connection.opening.handshake = Handshake::Seen;
        connection.missed.begun();
        if !startup.reply {
            connection.roles.learn(by, Source::Handshake);
            connection.opening.round_trip = connection.opening.tcp_opened.map(|opened| at.since(opened));
        } else if !startup.reject && connection.closed.is_none_or(|(closer, ..)| closer != Some(by.peer())) {
            // who hung up before does not take it
            connection.opening.rdma_opened = Some(at);
        }
        self.connection.mpa_private(by, startup.reply, startup.rpc_rdma);
        self.depths(at, by, startup);
    }

    /// Rejections, and read depths that cannot work (RFC 6581 9, \[MS-SMBD\] 6.2).
    fn depths(&mut self, at: At, by: End, startup: &Startup<'_>) {
        let blame = self.blame(by);
        let sure = Certainty::Certain;
        if startup.reply && startup.reject {
            self.connection.opening.rejected = Some(String::from("MPA reply with the reject bit"));
            let port = self.connection.peers[by.index()].port;
            let text = format_args!("rejected the iWARP connection to port {port} (reject bit of the MPA Reply)");
            self.wire(at, Rule::MpaReject, blame, sure, text);
        }
        if startup.legacy.is_some_and(|l| l.little_endian) {
            // peers that read either form lose nothing by it; if Reads fail because of it, that is reported by itself
            let site = Site { connection: Some(self.connection.id), frame: at.frame, time_ns: at.time };
            self.env.report_as(
                Severity::Note,
                Rule::MpaIrdord,
                blame,
                site,
                sure,
                format_args!("sent its read depths in little-endian"),
            );
        }
        // a client that only answers Reads may offer an ORD of 0 in the form of RFC 6581; that of SMB Direct's
        // providers wants both (6.1)
        if let Some((ird, ord)) = startup.depths()
            && ((ird == 0 && ord == 0) || (startup.legacy.is_some() && (ird == 0 || ord == 0)))
        {
            self.wire(
                at,
                Rule::MpaIrdord,
                blame,
                sure,
                format_args!("offered read depths of 0 (IRD {ird}, ORD {ord})"),
            );
        }
        let revision = startup.revision;
        let is_enhanced = startup.is_enhanced();
        if is_enhanced && startup.enhanced.is_none() {
            let length = startup.private_data_length;
            let text = format_args!(
                "says that read depths follow (S flag), with {length} bytes of private data; they take {}",
                Enhanced::LEN
            );
            self.wire(at, Rule::MpaIrdord, blame, sure, text);
        } else if revision == 2
            && (startup.reply && !startup.reject)
            && startup.depths().is_none()
            && self.connection.opening.read_depths[by.peer().index()].is_some()
        {
            // the other side goes on with its own offer
            let text = format_args!("answered read depths with none, at revision 2");
            let site = Site { connection: Some(self.connection.id), frame: at.frame, time_ns: at.time };
            self.env.report_as(Severity::Note, Rule::MpaIrdord, blame, site, sure, text);
        }
        if !(1..=2).contains(&revision) {
            self.wire(
                at,
                Rule::MpaRevision,
                blame,
                sure,
                format_args!("uses MPA revision {revision}; only 1 and 2 exist"),
            );
        } else if let Some(asked) =
            self.connection.opening.mpa_revision.filter(|asked| startup.reply && revision > *asked)
        {
            self.wire(
                at,
                Rule::MpaRevision,
                blame,
                sure,
                format_args!("answered an MPA Request of revision {asked} with revision {revision}"),
            );
        }
        if !startup.reply {
            self.connection.opening.mpa_revision = Some(revision);
        }
        let asked = self.connection.opening.read_depths[by.peer().index()];
        if let (true, Some((_, ord)), Some((ird, _))) = (startup.reply, startup.depths(), asked)
            && ord > ird
        {
            self.wire(
                at,
                Rule::MpaIrdord,
                blame,
                sure,
                format_args!("announced up to {ord} Reads outstanding; its peer accepts {ird}"),
            );
        }
        self.connection.opening.read_depths[by.index()] = startup.depths();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::ConnectionState;
    use crate::context::alone;
    use crate::env::{Env, Options};
    use crate::op::Gap;
    use alloc::vec;
    use alloc::vec::Vec;
    use rdmascope_dissector::trace::Off;
    use rdmascope_dissector::wire::iwarp::mpa;

    fn at(frame: u64) -> At {
        At { frame, time: frame as i64 * 1_000_000 }
    }

    /// Facts of a connection, and the findings. End A is its client.
    fn told(transport: Transport, facts: &[(At, End, FlowFact<'_>)]) -> (ConnectionState, Vec<Rule>) {
        let mut connection = ConnectionState::new(transport, at(1));
        connection.opening.handshake = Handshake::Seen;
        connection.roles.learn(End::A, Source::Port);
        End::BOTH.into_iter().for_each(|end| connection.missed.captured(end, At::default()));
        let mut env = Env::new(Options::default(), alone::Listener::default());
        for (at, by, fact) in facts {
            Listener { connection: &mut connection, env: &mut env }.fact(*at, *by, *fact);
        }
        Listener { connection: &mut connection, env: &mut env }.settle(i64::MAX);
        let mut found: Vec<Rule> = env.findings.iter().map(|f| f.rule).collect();
        connection.missed.finish(|evidence| found.push(evidence.rule));
        (connection, found)
    }

    #[test]
    fn a_window_that_was_never_opened_again() {
        let closed = |ns: i64| {
            let now = At { frame: 9, time: at(1).time + ns };
            told(Transport::Iwarp, &[(now, End::B, FlowFact::ZeroWindow { since: at(1), is_open: false })]).1
        };
        assert_eq!([closed(NEVER_OPENED - 1), closed(NEVER_OPENED)], [vec![], vec![Rule::TcpZeroWindow]]);
        let open = told(Transport::Iwarp, &[(at(2), End::B, FlowFact::ZeroWindow { since: at(1), is_open: true })]);
        assert_eq!(open.1, [Rule::TcpZeroWindow]);
    }

    #[test]
    fn a_reset_with_another_time_to_live_is_nobody_s() {
        let reset = |strange_ttl: Option<(u16, u16, bool)>| {
            let mut connection = ConnectionState::new(Transport::Iwarp, at(1));
            connection.roles.learn(End::A, Source::Port);
            connection.strange_ttl = strange_ttl;
            let mut env = Env::new(Options::default(), alone::Listener::default());
            Listener { connection: &mut connection, env: &mut env }.fact(at(2), End::B, FlowFact::Reset);
            let found = env.findings.iter().map(|f| (f.rule, f.by, f.certainty)).collect::<Vec<_>>();
            (connection.closed.map(|(by, ..)| by), found)
        };
        let told = |by: Blame, certainty: Certainty| vec![(Rule::TcpReset, by, certainty)];
        assert_eq!(reset(None), (Some(Some(End::B)), told(Blame::Server, Certainty::Certain)));
        let few = reset(Some((250, 64, false)));
        assert_eq!(few, (Some(Some(End::B)), told(Blame::Server, Certainty::Guess)), "too few packets to know");
        assert_eq!(reset(Some((250, 64, true))), (Some(None), told(Blame::Unknown, Certainty::Guess)));
    }

    #[test]
    fn what_is_told_of_iwarp_alone() {
        let gap = FlowFact::Gap(Gap { at: at(5), by: End::B, count: 1, receiver_had_them: true, is_asked: false });
        let rules = |transport: Transport, fact: FlowFact<'_>| told(transport, &[(at(5), End::B, fact)]).1;
        assert_eq!(
            [rules(Transport::Iwarp, FlowFact::Reset), rules(Transport::Tcp, FlowFact::Reset)],
            [vec![Rule::TcpReset], vec![]]
        );
        assert_eq!([rules(Transport::Iwarp, gap), rules(Transport::Tcp, gap)], [vec![Rule::CaptureLoss], vec![]]);
        // the handshake of MPA was not seen
        let found = FlowFact::Resync { skipped: 3, found: crate::flow::mpa::Evidence::Crc };
        let late = |transport: Transport| {
            let (connection, rules) = told(transport, &[(at(5), End::B, found)]);
            assert_eq!((rules, connection.transport), (vec![Rule::MpaResync], Some(Transport::Iwarp)));
            connection.opening.handshake == Handshake::Inferred
        };
        assert_eq!([late(Transport::Tcp), late(Transport::Iwarp)], [true, false]);
    }

    /// The bytes of a Request or Reply with the read depths of RFC 6581.
    fn startup(reply: bool, revision: u8, depths: Option<(u16, u16)>) -> Vec<u8> {
        let mut bytes = if reply { mpa::REPLY_KEY } else { mpa::REQUEST_KEY }.to_vec();
        let private: Vec<u8> =
            depths.map_or_else(Vec::new, |(ird, ord)| [ird.to_be_bytes(), ord.to_be_bytes()].concat());
        bytes.extend([if depths.is_some() { 0x10 } else { 0 }, revision, 0, private.len() as u8]);
        bytes.extend(private);
        bytes
    }

    /// What a Request and its Reply break.
    fn opened(request: (u8, Option<(u16, u16)>), reply: (u8, Option<(u16, u16)>)) -> Vec<Rule> {
        let (request, reply) = (startup(false, request.0, request.1), startup(true, reply.0, reply.1));
        let parse = |bytes| mpa::parse_startup(bytes, &mut Off).expect("it is whole").1;
        let facts = [
            (at(2), End::A, FlowFact::MpaRequest(parse(&request))),
            (at(3), End::B, FlowFact::MpaReply(parse(&reply))),
        ];
        told(Transport::Iwarp, &facts).1
    }

    #[test]
    fn read_depths_that_cannot_work() {
        let depths = |request, reply| opened((2, Some(request)), (2, Some(reply)));
        assert_eq!([depths((8, 8), (8, 8)), depths((8, 8), (8, 9))], [vec![], vec![Rule::MpaIrdord]]);
        // a client may answer Reads only, and ask for none; or neither
        assert_eq!([depths((8, 0), (0, 8)), depths((0, 8), (8, 0))], [vec![], vec![]]);
        assert_eq!(depths((0, 0), (8, 0)), [Rule::MpaIrdord]);
        // a Reply of revision 2 answers them
        assert_eq!(opened((2, Some((8, 8))), (2, None)), [Rule::MpaIrdord]);
        assert_eq!(opened((2, Some((8, 8))), (1, None)), []);
        assert_eq!(opened((2, None), (2, None)), []);
    }

    #[test]
    fn read_depths_in_the_form_of_smb_direct_are_wanted_both() {
        let broken = |ird: u32, ord: u32| {
            let mut bytes = mpa::REQUEST_KEY.to_vec();
            bytes.extend([0, 1, 0, 8]);
            bytes.extend([ird.to_be_bytes(), ord.to_be_bytes()].concat());
            let (_, request) = mpa::parse_startup(&bytes, &mut Off).expect("it is whole");
            told(Transport::Iwarp, &[(at(2), End::A, FlowFact::MpaRequest(request))]).1
        };
        assert_eq!([broken(1, 1), broken(8, 8)], [vec![], vec![]]);
        assert_eq!(
            [broken(0, 8), broken(8, 0), broken(0, 0)],
            [vec![Rule::MpaIrdord], vec![Rule::MpaIrdord], vec![Rule::MpaIrdord]]
        );
    }

    #[test]
    fn a_terminate_is_certain_after_an_error_that_was_seen() {
        const ID: u32 = 3;
        // the server ends the connection after a finding
        let certainty = |by: Blame, severity: Severity, certainty: Certainty, of: u32| {
            let mut connection = ConnectionState::new(Transport::Iwarp, at(1));
            connection.id = ID;
            connection.roles.learn(End::A, Source::Handshake);
            let env: &mut Env = &mut Env::new(Options::default(), alone::Listener::default());
            let site = Site { connection: Some(of), frame: 2, time_ns: at(2).time };
            env.report_as(severity, Rule::DdpMsn, by, site, certainty, format_args!("broke a rule"));
            let terminate =
                Terminate { layer: 1, error_type: 2, code: 1, segment_length: None, ddp: None, read_request: None };
            Listener { connection: &mut connection, env }.fact(at(3), End::B, FlowFact::Terminate(terminate));
            env.findings.iter().find(|f| f.rule == Rule::RdmapTerminate).map(|f| (f.by, f.certainty))
        };
        let open = Some((Blame::Unknown, Certainty::Guess));
        for known in [Certainty::Certain, Certainty::IfNothingWasMissed, Certainty::Guess] {
            assert_eq!(certainty(Blame::Client, Severity::Error, known, ID), Some((Blame::Client, known)));
        }
        assert_eq!(certainty(Blame::Server, Severity::Error, Certainty::Certain, ID), open, "its own");
        assert_eq!(certainty(Blame::Client, Severity::Warn, Certainty::Certain, ID), open, "no error");
        assert_eq!(certainty(Blame::Client, Severity::Error, Certainty::Certain, ID + 1), open, "another connection");
    }

    #[test]
    fn whose_fault_a_terminate_is_without_an_error_that_was_seen() {
        let ended = |layer: u8, error_type: u8, code: u8| {
            let mut connection = ConnectionState::new(Transport::Iwarp, at(1));
            connection.roles.learn(End::A, Source::Handshake);
            let env: &mut Env = &mut Env::new(Options::default(), alone::Listener::default());
            let terminate = Terminate { layer, error_type, code, segment_length: None, ddp: None, read_request: None };
            Listener { connection: &mut connection, env }.fact(at(3), End::B, FlowFact::Terminate(terminate));
            let found = env.findings.iter().map(|f| (f.by, f.certainty, f.why.is_some())).collect::<Vec<_>>();
            assert_eq!((found.len(), found[0].2), (1, true));
            (found[0].0, found[0].1)
        };
        let open = (Blame::Unknown, Certainty::Guess);
        let likely = (Blame::Unknown, Certainty::IfNothingWasMissed);
        let own = (Blame::Server, Certainty::Certain);
        // its own errors; TCP, and damage
        assert_eq!([ended(0, 0, 0), ended(1, 0, 0), ended(2, 0, 5)], [own; 3]);
        assert_eq!([ended(2, 0, 1), ended(2, 0, 2)], [likely; 2]);
        // memory, headers, and receives without credits that are known
        let unseen =
            [(0, 1, 0), (1, 1, 1), (1, 1, 4), (0, 2, 5), (1, 2, 1), (1, 2, 2), (1, 2, 3), (1, 2, 4), (1, 2, 5)];
        assert_eq!(unseen.map(|(layer, kind, code)| ended(layer, kind, code)), [open; 9]);
        assert_eq!([ended(2, 0, 3), ended(2, 0, 6), ended(3, 0, 0)], [open; 3]);
    }

    #[test]
    fn a_wrong_crc_is_certain_if_its_receiver_said_that_there_are_no_markers() {
        let (request, reply) = (startup(false, 1, None), startup(true, 1, None));
        let parse = |bytes| mpa::parse_startup(bytes, &mut Off).expect("it is whole").1;
        let certainty = |asked: bool, answered: bool, by: End| {
            let mut connection = ConnectionState::new(Transport::Iwarp, at(1));
            connection.roles.learn(End::A, Source::Port);
            let env: &mut Env = &mut Env::new(Options::default(), alone::Listener::default());
            let mut listener = Listener { connection: &mut connection, env };
            if asked {
                listener.fact(at(2), End::A, FlowFact::MpaRequest(parse(&request)));
            }
            if answered {
                listener.fact(at(3), End::B, FlowFact::MpaReply(parse(&reply)));
            }
            listener.fact(at(4), by, FlowFact::CrcBad);
            listener.env.findings.iter().find(|f| f.rule == Rule::MpaCrc).map(|f| f.certainty)
        };
        let [sure, guess] = [Some(Certainty::Certain), Some(Certainty::Guess)];
        let both = |asked, answered| End::BOTH.map(|by| certainty(asked, answered, by));
        assert_eq!(both(true, true), [sure, sure]);
        assert_eq!([both(true, false), both(false, true)], [[guess, sure], [sure, guess]]);
        assert_eq!(both(false, false), [guess, guess]);
    }

    #[test]
    fn revisions_that_exist_and_were_asked_for() {
        let revisions = |request: u8, reply: u8| opened((request, None), (reply, None));
        assert_eq!([revisions(1, 1), revisions(2, 1), revisions(2, 2)], [vec![], vec![], vec![]]);
        let broken = || vec![Rule::MpaRevision];
        assert_eq!(
            [revisions(1, 2), revisions(1, 3), revisions(1, 0), revisions(3, 1)],
            [broken(), broken(), broken(), broken()]
        );
    }

    #[test]
    fn reads_up_to_the_agreed_depth_and_beyond() {
        let outstanding = |ird: u16, count: u32| {
            let (request, reply) = (startup(false, 2, Some((8, 8))), startup(true, 2, Some((ird, 8))));
            let parse = |bytes| mpa::parse_startup(bytes, &mut Off).expect("it is whole").1;
            let facts = [
                (at(2), End::A, FlowFact::MpaRequest(parse(&request))),
                (at(3), End::B, FlowFact::MpaReply(parse(&reply))),
                (at(4), End::A, FlowFact::ReadsOutstanding(count)),
            ];
            let (connection, rules) = told(Transport::Iwarp, &facts);
            let mut ceiling = connection.ends[0].reads;
            ceiling.free(at(5));
            (rules, ceiling.used(at(6)).is_some())
        };
        assert_eq!([outstanding(4, 3), outstanding(4, 4)], [(vec![], false), (vec![], true)]);
        assert_eq!(outstanding(4, 5), (vec![Rule::RdmaReadDepth], false));
        // none is agreed on
        assert_eq!(
            [outstanding(0x3fff, 0x4000), outstanding(0x3ffe, 0x3fff)],
            [(vec![], false), (vec![Rule::RdmaReadDepth], false)]
        );
    }
}
