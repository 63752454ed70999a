//! Findings in the order for a reader: one cause is one root, its effects stand under it, and the most expensive comes
//! first.
//!
//! [`Findings`](crate::finding::Findings) keeps the findings of each connection. [`roots`] turns them into the list
//! that a report, a screen and a file for programs show: the same rule broken by the same side on several connections
//! is one [`Root`]; a finding that follows from another is one of its effects; connections that failed because of it
//! are counted. All views call this, so that all count alike.

use crate::answer;
use crate::episodes::Waiter;
use crate::episodes::cost::is_of_the_wire;
use crate::exchange::{Failures, Family};
use crate::finding::{Blame, Certainty, Finding, Rule, Severity, cure, sentence};
use crate::op::At;
use crate::outcome::{Ending, Outcome, layer};
use crate::report::{Connection, Report};
use crate::rules::Group;
use crate::smbd::link::Grouped;
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cmp::Reverse;
use hashbrown::HashMap;

/// Frames of a root that are kept.
pub const FRAMES_MAX: usize = 24;
/// Requests that waited which a root names.
const WAITED_SHOWN: usize = 3;
/// Failed requests named in one sentence.
const FAILURES_SHOWN: usize = 4;

/// Where an effect lies in relation to its cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    /// In the same frames.
    Same,
    /// On the same connection, not before it.
    After,
    /// In the same message, or soon after it; or later, but no more often than the cause.
    Next,
    /// On the same connection, where the effect is a request and the cause is in the answer of the side to blame.
    Answer,
    /// On the same connection, not before it, where the peer of the side to blame broke the first rule.
    OfPeer,
    /// The same, soon after it: what the peer made of a message that cannot be read.
    Reaction,
    /// On the same connection and by the same side, soon before it, and no more often: the cause is seen later.
    Ahead,
}

/// ns within which the packets of a message follow each other.
const MESSAGE: i64 = 10_000_000;
/// ns within which accesses to memory follow from the message that described it.
const ACCESS: i64 = 1_000_000_000;
/// ns within which a request is answered, and memory that a message described is accessed last.
const ANSWERED: i64 = 10_000_000_000;

/// Findings that follow from others, on one connection: the effect, its place, its causes.
const FOLLOWS: &[(Rule, Relation, &[Rule])] = &[
    // a known bug names a rule that was broken in the same message
    (Rule::BugCve202539943, Relation::Same, &[Rule::SmbdDataLength, Rule::SmbdDataAlign]),
    (Rule::BugCve202539942, Relation::Same, &[Rule::SmbdFragTooBig]),
    (Rule::BugKsmbdChannelInfo, Relation::Same, &[Rule::Smb2Channel]),
    (Rule::BugSmbdirectLastCredit, Relation::Same, &[Rule::SmbdCreditLast]),
    (Rule::BugSmbdirectBatchInterleave, Relation::After, &[Rule::SmbdFragRemaining]),
    (Rule::BugCve202689526, Relation::Same, &[Rule::RpcrdmaPosition]),
    (Rule::BugCve202693228, Relation::Same, &[Rule::BugCve202689532]),
    (Rule::BugCve202631538, Relation::Same, &[Rule::RcRnr]),
    (Rule::BugCve202631539, Relation::Same, &[Rule::RcRnr]),
    (Rule::BugCifsMaxFragmentedSize, Relation::Same, &[Rule::SmbdNegReach]),
    // a packet that contradicts itself has no content
    (Rule::SmbdDataLength, Relation::Same, &[Rule::BugCve202646043]),
    // a wrong length is too great as well, and with a wrong offset data is taken for padding
    (Rule::SmbdFragTooBig, Relation::Same, &[Rule::SmbdDataLength]),
    (Rule::SmbdReserved, Relation::Same, &[Rule::SmbdDataLength, Rule::SmbdDataAlign]),
    (Rule::SmbdNegAccepted, Relation::After, NEGOTIATION),
    // what must be refused is refused, if not as it should be
    (
        Rule::SmbdNegRspStatus,
        Relation::OfPeer,
        &[
            Rule::SmbdNegReqLength,
            Rule::SmbdNegReqVersion,
            Rule::SmbdNegReqCredits,
            Rule::SmbdNegReqRecvsize,
            Rule::SmbdNegReqFragsize,
        ],
    ),
    (Rule::SmbdNegRspFailureFields, Relation::Same, &[Rule::SmbdNegRspStatus]),
    (Rule::SmbdNegFirst, Relation::After, &[Rule::BugKsmbdEarlyData]),
    (Rule::SmbdFragCost, Relation::After, &[Rule::SmbPathInline]),
    // the content of a message that its receiver refuses means nothing
    (
        Rule::Smb2Malformed,
        Relation::Next,
        &[Rule::SmbdDataAlign, Rule::SmbdDataTooBig, Rule::SmbdDataLength, Rule::SmbdFragRemaining],
    ),
    // an answer that cannot be matched leaves its request without one
    (
        Rule::Smb2Unanswered,
        Relation::Answer,
        &[
            Rule::Smb2Reply,
            Rule::Smb2MessageId,
            Rule::SmbdFragRemaining,
            Rule::SmbdDataLength,
            Rule::SmbdDataAlign,
            Rule::SmbdDataTooBig,
            Rule::Smb2Malformed,
            Rule::RcOpcode,
            Rule::BugRxe4c6f86d,
            Rule::DdpMsn,
            Rule::DdpOverlap,
        ],
    ),
    (
        Rule::RpcUnanswered,
        Relation::Answer,
        &[
            Rule::RpcrdmaXid,
            Rule::RpcrdmaVersion,
            Rule::RpcrdmaProc,
            Rule::RpcrdmaMalformed,
            Rule::RpcMalformed,
            Rule::RcOpcode,
            Rule::BugRxe4c6f86d,
            Rule::DdpMsn,
            Rule::DdpOverlap,
        ],
    ),
    // what the server makes of a request that cannot be read
    (
        Rule::Smb2Reply,
        Relation::Reaction,
        &[
            Rule::Smb2Malformed,
            Rule::SmbdDataAlign,
            Rule::SmbdDataLength,
            Rule::SmbdDataTooBig,
            Rule::SmbdFragRemaining,
            Rule::RcOpcode,
            Rule::DdpMsn,
            Rule::DdpOverlap,
        ],
    ),
    // nor does a number that stands for two requests tell which of them is answered
    (Rule::Smb2Reply, Relation::Reaction, &[Rule::Smb2MessageId]),
    (Rule::RpcrdmaXid, Relation::Reaction, UNREADABLE_CALLS),
    // what answers a Read Request that nobody can read answers none
    (Rule::BugCve202664268, Relation::Reaction, &[Rule::DdpMsn]),
    // a reply whose own fields contradict each other answers nothing
    (Rule::Smb2Reply, Relation::Same, &[Rule::Smb2Malformed]),
    // what is refused every time fails every time
    (
        Rule::AllFailed,
        Relation::After,
        &[Rule::Smb2MaxSize, Rule::BugKsmbdChannelInfo, Rule::Smb2Channel, Rule::Smb2SessionId, Rule::Smb2Malformed],
    ),
    // what is put off to the end fails to the end
    (Rule::AllFailed, Relation::Same, &[Rule::RpcDelayed]),
    // a client that was granted nothing has nothing to spend
    (Rule::Smb2Credit, Relation::OfPeer, &[Rule::Smb2Credit]),
    // without markers, where they were agreed on, nothing is found where it should be
    (Rule::MpaCrc, Relation::After, &[Rule::MpaMarker]),
    (Rule::Smb2Unanswered, Relation::After, &[Rule::MpaMarker]),
    (Rule::RpcUnanswered, Relation::After, &[Rule::MpaMarker]),
    // a host that acknowledges nothing answers nothing
    (Rule::Smb2Unanswered, Relation::Same, &[Rule::PeerSilent]),
    (Rule::Smb2BreakKept, Relation::Same, &[Rule::PeerSilent]),
    (Rule::RpcUnanswered, Relation::Same, &[Rule::PeerSilent]),
    // credits of a negotiation that failed
    (Rule::SmbdCreditOverrun, Relation::After, &[Rule::SmbdNegRspStatus, Rule::SmbdNegRspGranted]),
    (Rule::SmbdCreditStarved, Relation::After, &[Rule::SmbdNegRspStatus, Rule::SmbdNegRspGranted]),
    // a message that the receiver refuses is missing
    (Rule::BugKsmbdEarlyData, Relation::After, &[Rule::DdpMsn]),
    (Rule::SmbdNegTimeout, Relation::After, &[Rule::DdpMsn]),
    (Rule::SmbdFragRemaining, Relation::After, &[Rule::DdpMsn, Rule::DdpOverlap, Rule::RcOpcode]),
    // a limit below what is allowed cannot be kept
    (Rule::SmbdDataTooBig, Relation::OfPeer, &[Rule::SmbdNegReqRecvsize, Rule::SmbdNegRspRecvsize]),
    (Rule::SmbdFragTooBig, Relation::OfPeer, &[Rule::SmbdNegReqFragsize, Rule::SmbdNegRspFragsize]),
    (Rule::SmbdNegRspPreferred, Relation::OfPeer, &[Rule::SmbdNegReqRecvsize]),
    // memory that was described wrongly is accessed wrongly
    (Rule::RdmaKeyUnknown, Relation::Next, MISDESCRIBED),
    (Rule::RdmaKeyBounds, Relation::Next, MISDESCRIBED),
    (Rule::RdmaInvalidate, Relation::Next, MISDESCRIBED),
    (Rule::DdpOverlap, Relation::Same, &[Rule::RdmaKeyUnknown, Rule::RdmaKeyBounds]),
    // a reply that moved no bytes invalidates nothing, and a device refuses what is not allowed
    (Rule::RdmaInvalidate, Relation::Same, &[Rule::RdmaLength]),
    // who takes a wrong key for the access takes it for the invalidation
    (Rule::RdmaInvalidate, Relation::Next, &[Rule::RdmaKeyUnknown]),
    (Rule::RcNak, Relation::Next, REFUSED),
    // an announcement that does not come true
    (Rule::SmbdFragRemaining, Relation::After, &[Rule::BugKsmbdSealedLength, Rule::SmbdFragTooBig]),
    // bytes that went elsewhere are missing where they belong
    (Rule::RdmaLength, Relation::After, ELSEWHERE),
    (Rule::RdmaLength, Relation::After, &[Rule::BugCve202664268, Rule::RcLength]),
    (Rule::RdmaLength, Relation::Next, &[Rule::DdpMsn]),
    (Rule::RpcrdmaChunkLength, Relation::Next, &[Rule::DdpMsn]),
    // a reply that says how much it moved does not fit its chunks, nor what was asked for
    (Rule::RdmaLength, Relation::Same, &[Rule::RpcrdmaChunkLength]),
    // a Write that says another length than it has: one of the two lies outside of the memory
    (Rule::RdmaKeyBounds, Relation::Ahead, &[Rule::RcLength]),
    // what comes behind the reply is not there when the reply says so
    (Rule::RdmaLength, Relation::Ahead, &[Rule::RdmaOrder]),
    (Rule::RpcrdmaChunkLength, Relation::Ahead, &[Rule::RdmaOrder]),
    (Rule::RpcrdmaChunkLength, Relation::After, ELSEWHERE),
    (
        Rule::RdmaKeyLeak,
        Relation::After,
        &[Rule::RdmaInvalidate, Rule::BugKsmbd2fd5dcb1c8ef, Rule::Smb2Unanswered, Rule::RpcUnanswered],
    ),
    (Rule::RpcrdmaBackward, Relation::After, &[Rule::RpcrdmaXid]),
    (Rule::RpcError, Relation::Same, &[Rule::RpcrdmaError, Rule::RpcMalformed]),
    (Rule::RpcIoError, Relation::Same, &[Rule::RpcrdmaError]),
    // with a chunk in the wrong place, the rest of the message is not where it should be
    (Rule::RpcMalformed, Relation::Same, &[Rule::RpcrdmaPosition]),
    (Rule::RpcrdmaError, Relation::After, UNUSABLE),
    (Rule::SmbdCreditStall, Relation::After, &[Rule::SmbdCreditExhausted]),
    (Rule::SmbdCreditLast, Relation::After, &[Rule::SmbdCreditExhausted]),
    (Rule::SmbdCreditDeadlock, Relation::After, &[Rule::SmbdCreditLast]),
    // packets that a capture missed explain gaps in it
    (Rule::RcGap, Relation::After, &[Rule::CaptureLoss, Rule::RcRetransmit, Rule::RcReorder]),
    (Rule::RcNak, Relation::After, &[Rule::PathMtu, Rule::RcRetransmit, Rule::RcReorder]),
    (Rule::RcRetransmit, Relation::After, &[Rule::PathMtu]),
    (Rule::TcpLoss, Relation::After, &[Rule::PathMtu]),
    // a receiver drops it, so that it is sent again
    (Rule::RcRetransmit, Relation::After, &[Rule::RcPKey, Rule::RcVersion]),
    // a send without a credit finds no receive
    (Rule::RcRnr, Relation::After, &[Rule::SmbdCreditOverrun, Rule::RpcrdmaCreditOverrun, Rule::RpcrdmaCreditFirst]),
];

/// Rules about accesses to memory that went elsewhere than they should.
const ELSEWHERE: &[Rule] = &[Rule::RdmaKeyUnknown, Rule::RdmaKeyBounds, Rule::RdmaKeyDirection, Rule::RdmaKeyStale];

/// Rules about headers of RPC-over-RDMA, and about chunks, that their receiver refuses.
const UNUSABLE: &[Rule] = &[
    Rule::RpcrdmaVersion,
    Rule::RpcrdmaProc,
    Rule::RpcrdmaMalformed,
    Rule::RpcrdmaNomsg,
    Rule::RpcrdmaPosition,
    Rule::RpcrdmaChunkLength,
    Rule::RpcrdmaDdp,
];

/// Rules about requests that a queue pair refuses.
const REFUSED: &[Rule] = &[
    Rule::RdmaKeyUnknown,
    Rule::RdmaKeyBounds,
    Rule::RdmaKeyDirection,
    Rule::RdmaKeyStale,
    Rule::RdmaInvalidate,
    Rule::RcOpcode,
    Rule::RcLength,
    Rule::SmbdDataTooBig,
    Rule::RpcrdmaInline,
];

/// Rules about descriptions of memory that cannot be read.
const MISDESCRIBED: &[Rule] = &[
    Rule::Smb2Channel,
    Rule::Smb2TransformDialect,
    Rule::Smb2TransformType,
    Rule::Smb2TransformCount,
    Rule::Smb2TransformBounds,
    Rule::Smb2TransformLengths,
    Rule::Smb2Malformed,
    Rule::SmbdDataAlign,
    Rule::SmbdDataLength,
    Rule::SmbdDataTooBig,
    Rule::SmbdFragRemaining,
    Rule::RpcrdmaMalformed,
    Rule::RpcrdmaVersion,
    Rule::RpcrdmaProc,
    Rule::RpcrdmaXid,
    Rule::RpcrdmaChunkLength,
    Rule::RcOpcode,
    Rule::DdpMsn,
    Rule::DdpOverlap,
    Rule::BugCve202689533,
];

/// Rules about calls that cannot be read, or not under the number that they have.
const UNREADABLE_CALLS: &[Rule] = &[
    Rule::RpcrdmaXid,
    Rule::RpcrdmaVersion,
    Rule::RpcrdmaProc,
    Rule::RpcrdmaMalformed,
    Rule::RcOpcode,
    Rule::DdpMsn,
    Rule::DdpOverlap,
];

/// Rules about the fields of a negotiation.
const NEGOTIATION: &[Rule] = &[
    Rule::SmbdNegReqLength,
    Rule::SmbdNegRspLength,
    Rule::SmbdNegReqVersion,
    Rule::SmbdNegReqCredits,
    Rule::SmbdNegReqRecvsize,
    Rule::SmbdNegReqFragsize,
    Rule::SmbdNegRspVersion,
    Rule::SmbdNegRspRecvsize,
    Rule::SmbdNegRspFragsize,
    Rule::SmbdNegRspGranted,
    Rule::SmbdNegRspRequested,
    Rule::SmbdNegRspPreferred,
    Rule::SmbdNegRspStatus,
];

/// Rules about the end of a connection: if it failed, they follow from the cause of the failure.
const ENDS: &[Rule] = &[
    Rule::CmDisconnect,
    Rule::TcpReset,
    Rule::RdmapTerminate,
    Rule::RdmaKeyLeak,
    Rule::Smb2Unanswered,
    Rule::RpcUnanswered,
    Rule::SmbdKeepalive,
    Rule::SmbdCreditDeadlock,
    Rule::SmbdNegTimeout,
];

/// Rules about an attempt to connect by RDMA: if none succeeded, they are part of the reason why the path to RDMA
/// ended.
const TRIES: &[Rule] = &[
    Rule::CmReject,
    Rule::CmTimeout,
    Rule::MpaReject,
    Rule::MpaStartup,
    Rule::TcpRefused,
    Rule::TcpReset,
    Rule::CmDisconnect,
    Rule::SmbdNegTimeout,
];

/// Rules of the transport: a receiver drops packets that break them, so that their content means nothing.
const UNREADABLE: &[Rule] = &[Rule::DdpMsn, Rule::DdpOverlap, Rule::MpaCrc, Rule::RcIcrc, Rule::BugCve202646043];

/// True if this is a harmless habit of a known server: it comes last.
pub const fn is_quirk(rule: Rule) -> bool {
    matches!(rule, Rule::Smb2ErrorBody | Rule::SmbdNegRspFailureFields)
}

/// Connections that failed because of a root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fatal {
    /// The outcome of the first of them.
    pub outcome: Outcome,
    /// Number of connections that it ended.
    pub ended: u64,
    /// Number of connections that were for the same.
    pub of: u64,
    /// True if all of them were closed by the same side.
    pub same_side: bool,
}

/// One cause: the same rule broken by the same side, on one connection or on several, with its effects.
#[derive(Clone, Debug)]
pub struct Root<'r> {
    /// The rule that was broken.
    pub rule: Rule,
    /// Side that broke it.
    pub by: Blame,
    /// The greatest of its findings.
    pub severity: Severity,
    /// The greatest of its findings.
    pub certainty: Certainty,
    /// Occurrences.
    pub count: u64,
    /// Frames of the first few, in order.
    pub frames: Vec<u64>,
    /// The first of them.
    pub first: At,
    /// Connections it happened on, in order.
    pub connections: Vec<u32>,
    /// Findings of each connection, the most severe first.
    pub findings: Vec<&'r Finding>,
    /// Connections that failed because of it.
    pub fatal: Option<Fatal>,
    /// Its effects.
    pub effects: Vec<Root<'r>>,
    /// Requests' time that it cost, in ns, if known.
    pub cost: i64,
    /// Requests that waited longest because of it, the longest first, as far as they are known.
    pub waited: Vec<Waiter>,
    /// True if others waited, too.
    pub others: bool,
    /// Failed requests by command and status, the most frequent first: of rules that count those.
    failures: Vec<(&'static str, String, u64)>,
}

/// For each finding the finding that it follows from, as indices of the list from
/// [`Findings::ranked`](crate::finding::Findings::ranked).
pub fn causes(report: &Report, ranked: &[&Finding]) -> Vec<Option<usize>> {
    let mut on: HashMap<Option<u32>, Vec<usize>> = HashMap::new();
    for (place, finding) in ranked.iter().enumerate() {
        on.entry(finding.connection).or_default().push(place);
    }
    let failed: HashMap<u32, (Rule, Blame)> = report
        .connections
        .iter()
        .filter_map(|c| Some((c.id, c.outcome.as_ref().filter(|o| o.failed())?.cause?)))
        .collect();
    // findings about the path to RDMA, with the connections that were tried in vain
    let paths: Vec<(usize, &[u32])> = report
        .paths
        .iter()
        .filter_map(|p| p.verdict.as_ref().filter(|v| !v.reported))
        .filter_map(|v| {
            let is_it = |f: &&Finding| (f.rule, f.by, f.connection) == (v.rule, v.by, v.connection);
            Some((ranked.iter().position(is_it)?, &v.requests[..]))
        })
        .collect();
    let direct = |place: usize| -> Option<usize> {
        let effect = ranked[place];
        if TRIES.contains(&effect.rule)
            && let Some((path, _)) = paths.iter().find(|(path, tries)| {
                let is_there = effect.frames.iter().any(|frame| ranked[*path].frames.contains(frame));
                is_there || effect.connection.is_some_and(|id| tries.contains(&id))
            })
        {
            return Some(*path);
        }
        let here = on.get(&effect.connection)?;
        if ENDS.contains(&effect.rule)
            && let Some((rule, by)) = effect.connection.and_then(|id| failed.get(&id))
            && (effect.rule, effect.by) != (*rule, *by)
        {
            return here.iter().copied().find(|other| (ranked[*other].rule, ranked[*other].by) == (*rule, *by));
        }
        if layer(effect.rule) > 0
            && let Some(below) = here.iter().copied().find(|other| {
                let cause = ranked[*other];
                UNREADABLE.contains(&cause.rule) && effect.frames.iter().all(|frame| cause.frames.contains(frame))
            })
        {
            return Some(below);
        }
        FOLLOWS.iter().filter(|(rule, ..)| *rule == effect.rule).find_map(|(_, lies, rules)| {
            here.iter().copied().find(|other| {
                let cause = ranked[*other];
                let is_there = match lies {
                    Relation::Same => {
                        effect.frames.iter().any(|frame| cause.frames.contains(frame)) && effect.count <= cause.count
                    }
                    Relation::After => {
                        cause.frame <= effect.frame
                            || cause.time_ns <= effect.last_time_ns && effect.count <= cause.count
                    }
                    Relation::Next => {
                        let is_before = cause.time_ns.saturating_sub(effect.time_ns) <= MESSAGE;
                        let is_its = cause.frame <= effect.frame || cause.by == effect.by;
                        is_before && is_its && comes_soon(cause, effect)
                            || is_seen_late(cause, effect) && comes_soon(cause, effect)
                    }
                    Relation::Answer => {
                        let mut asked: Vec<u64> = effect.frames.iter().copied().collect();
                        asked.dedup();
                        // what one message leaves unanswered are all requests of a compound
                        let is_one = effect.frames.omitted() == 0 && asked.len() as u64 <= cause.count;
                        let is_soon = cause.time_ns.saturating_sub(effect.time_ns) <= ANSWERED;
                        // a request that is itself unreadable is not answered
                        let is_it = effect.frames.iter().all(|frame| cause.frames.contains(frame));
                        let is_its = cause.by == effect.by || cause.by == Blame::Unknown;
                        let is_answer = is_its && cause.frame >= effect.frame && is_soon;
                        is_it || is_answer && (is_one || effect.count <= cause.count)
                    }
                    Relation::OfPeer => cause.by != effect.by && cause.frame <= effect.frame,
                    Relation::Reaction => {
                        let is_its = cause.frame <= effect.frame || is_seen_late(cause, effect);
                        cause.by != effect.by && is_its && comes_soon(cause, effect)
                    }
                    Relation::Ahead => {
                        let is_soon = (0..=ACCESS).contains(&cause.time_ns.saturating_sub(effect.time_ns));
                        is_soon && cause.by == effect.by && effect.count <= cause.count
                    }
                };
                rules.contains(&cause.rule) && is_there && !is_apart(cause, effect)
            })
        })
    };
    let mut causes: Vec<Option<usize>> = (0..ranked.len()).map(direct).collect();
    // to the root of it; a circle would be its own cause
    for place in 0..causes.len() {
        let mut steps = 0;
        while let Some(next) = causes[place].and_then(|at| causes[at]) {
            steps += 1;
            causes[place] = if next == place || steps > 8 { None } else { Some(next) };
        }
    }
    causes
}

/// True if one finding does not follow from another though its rule may: an error from a note; a request that was refused
/// from packets that were lost, which a NAK only asks for again; data that is missing from what went elsewhere long before.
fn is_apart(cause: &Finding, effect: &Finding) -> bool {
    let is_error = effect.severity == Severity::Error;
    let is_refused = effect.rule == Rule::RcNak && is_error && matches!(effect.by, Blame::Client | Blame::Server);
    let of_data = matches!(effect.rule, Rule::RdmaLength | Rule::RpcrdmaChunkLength);
    let is_late = of_data && effect.time_ns.saturating_sub(cause.last_time_ns) > ANSWERED;
    // a wrong key is of no message that moved nothing: its finding has a cause of its own
    let is_wrong_key = (effect.rule, cause.rule) == (Rule::RdmaInvalidate, Rule::RdmaLength) && effect.why.is_some();
    is_error && cause.severity == Severity::Note || is_refused && is_of_the_wire(cause.rule) || is_late || is_wrong_key
}

/// True if what a message announces wrongly shows only with a later one, and this may have followed from it before.
fn is_seen_late(cause: &Finding, effect: &Finding) -> bool {
    cause.rule == Rule::SmbdFragRemaining && (0..=ACCESS).contains(&cause.time_ns.saturating_sub(effect.time_ns))
}

/// True if each occurrence of an effect comes soon after one of the cause, as far as they are remembered; or later, but
/// no more often.
fn comes_soon(cause: &Finding, effect: &Finding) -> bool {
    let within = if effect.count <= cause.count { ANSWERED } else { ACCESS };
    let is_after = |at: At| {
        let is_soon = |of: At| (-ACCESS..=within).contains(&at.since(of));
        cause.frames.omitted() > 0 || cause.frames.at().any(is_soon)
    };
    effect.frames.at().all(is_after) && effect.last_time_ns.saturating_sub(cause.last_time_ns) <= within
}

/// Findings by cause, the most important first.
pub fn roots(report: &Report) -> Vec<Root<'_>> {
    of(report, &report.findings.ranked())
}

/// The same of some findings, in the order of [`Findings::ranked`](crate::finding::Findings::ranked).
pub fn of<'r>(report: &'r Report, ranked: &[&'r Finding]) -> Vec<Root<'r>> {
    let causes = causes(report, ranked);
    let mut roots: Vec<Root<'r>> = Vec::new();
    let mut places: HashMap<(Rule, Blame), usize> = HashMap::new();
    for (finding, _) in ranked.iter().zip(&causes).filter(|(_, cause)| cause.is_none()) {
        let place = *places.entry((finding.rule, finding.by)).or_insert(roots.len());
        if place == roots.len() {
            roots.push(Root::new(finding));
        }
        roots[place].add(finding);
    }
    for (finding, cause) in ranked.iter().zip(&causes) {
        let Some(cause) = cause.map(|place| ranked[place]) else { continue };
        let Some(root) = places.get(&(cause.rule, cause.by)).and_then(|place| roots.get_mut(*place)) else { continue };
        match root.effects.iter_mut().find(|e| (e.rule, e.by) == (finding.rule, finding.by)) {
            Some(effect) => effect.add(finding),
            None => {
                let mut effect = Root::new(finding);
                effect.add(finding);
                root.effects.push(effect);
            }
        }
    }
    let connections: HashMap<u32, &Connection> = report.connections.iter().map(|c| (c.id, c)).collect();
    for root in &mut roots {
        root.finish(report, &connections);
        for effect in &mut root.effects {
            effect.finish(report, &connections);
            effect.fatal = None;
        }
        root.effects.sort_by_key(|e| (Reverse(e.severity), e.first));
    }
    let waited = report.connections.iter().map(|c| c.time.sum()).fold(0, i64::saturating_add);
    let is_grave = roots.iter().any(|r| r.severity > Severity::Note);
    roots.sort_by_key(|r| {
        // a root that cost a hundredth of all requests' time comes first, by cost, whatever its severity; then the
        // rules that were broken; then notes
        let costly = if r.cost.saturating_mul(100) >= waited { r.cost } else { 0 };
        let last = r.severity == Severity::Note && (is_quirk(r.rule) || r.is_free());
        // the reason why there is no RDMA comes before everything else
        let is_path = r.rule.row().group == Group::Path && (r.severity > Severity::Note || !is_grave);
        let first = (Reverse(r.fatal.is_some()), Reverse(is_path), Reverse(costly));
        let weight = (first, Reverse(r.severity), last, Reverse(r.certainty));
        (weight, Reverse(r.cost), Reverse(r.count), r.first, r.rule)
    });
    roots
}

impl<'r> Root<'r> {
    fn new(finding: &Finding) -> Self {
        Self {
            rule: finding.rule,
            by: finding.by,
            severity: finding.severity,
            certainty: finding.certainty,
            count: 0,
            frames: Vec::new(),
            first: At { frame: finding.frame, time: finding.time_ns },
            connections: Vec::new(),
            findings: Vec::new(),
            fatal: None,
            effects: Vec::new(),
            cost: 0,
            waited: Vec::new(),
            others: false,
            failures: Vec::new(),
        }
    }

    /// Advice to whoever looks into it.
    pub fn cure(&self) -> &'static str {
        self.findings.first().map_or_else(|| cure(self.rule, self.by), |first| first.cure())
    }

    /// Possible causes: of this occurrence, or the usual ones of the rule.
    pub fn causes(&self) -> Vec<&'static str> {
        self.findings.first().map_or_else(|| self.rule.row().causes.to_vec(), |first| first.causes())
    }

    fn add(&mut self, finding: &'r Finding) {
        self.severity = self.severity.max(finding.severity);
        self.certainty = self.certainty.max(finding.certainty);
        self.count = self.count.saturating_add(finding.count);
        self.first = self.first.min(At { frame: finding.frame, time: finding.time_ns });
        self.frames.extend_from_slice(&finding.frames);
        self.connections.extend(finding.connection);
        self.findings.push(finding);
    }

    fn finish(&mut self, report: &Report, connections: &HashMap<u32, &Connection>) {
        self.frames.sort_unstable();
        self.frames.dedup();
        self.frames.truncate(FRAMES_MAX);
        self.connections.sort_unstable();
        self.connections.dedup();
        self.findings.sort_by_key(|f| (Reverse(f.severity), f.frame));
        let here = || self.connections.iter().filter_map(|id| connections.get(id)).copied();
        // an outcome names the finding that explains it best, which may itself be an effect
        let is_effect = |c: &Connection, cause| {
            self.effects.iter().any(|e| (e.rule, e.by) == cause && e.connections.contains(&c.id))
        };
        let explains = |c: &Connection, cause| cause == (self.rule, self.by) || is_effect(c, cause);
        let mine = |c: &&Connection| {
            c.outcome.as_ref().is_some_and(|o| o.failed() && o.cause.is_some_and(|cause| explains(c, cause)))
        };
        if let Some(first) = here().find(mine).and_then(|c| c.outcome.clone()) {
            let ended = here().filter(mine).count() as u64;
            let same_side =
                here().filter(mine).all(|c| c.outcome.as_ref().is_some_and(|o| o.closed_by == first.closed_by));
            let of = report
                .connections
                .iter()
                .filter(|c| c.outcome.as_ref().is_some_and(|o| o.purpose == first.purpose))
                .count() as u64;
            self.fatal = Some(Fatal { outcome: first, ended, of, same_side });
        }
        let concerned: Vec<&Connection> = if self.connections.is_empty() {
            answer::concerned(report, self.rule, None).collect()
        } else {
            here().collect()
        };
        self.cost = concerned.iter().map(|c| answer::cost(c, self.rule, self.by)).fold(0, i64::saturating_add);
        let waited = concerned.iter().flat_map(|c| answer::waited(c, self.rule, self.by));
        self.waited = waited.copied().collect();
        self.waited.sort_by_key(|w| (Reverse(w.time), w.first));
        self.others = self.waited.len() > WAITED_SHOWN;
        self.waited.truncate(WAITED_SHOWN);
        if let Some((family, is_damage)) = failures_of(self.rule) {
            let mut sums: Vec<(&'static str, String, u64)> = Vec::new();
            let is_of_rule = |f: &&Failures| f.status.0 == family && f.status.is_damage_of(f.command) == is_damage;
            for failures in here().flat_map(|c| &c.failures).filter(is_of_rule) {
                let (command, status, count) = (failures.command, failures.status.to_string(), failures.count);
                match sums.iter_mut().find(|(c, s, _)| *c == command && *s == status) {
                    Some((.., sum)) => *sum += count,
                    None => sums.push((command, status, count)),
                }
            }
            sums.sort_by(|a, b| b.2.cmp(&a.2).then_with(|| (a.0, &a.1).cmp(&(b.0, &b.1))));
            self.failures = sums;
        }
    }

    /// True if it is trouble of the lower layers that cost no request anything.
    pub fn is_free(&self) -> bool {
        self.severity == Severity::Note && self.cost == 0 && self.fatal.is_none() && is_of_the_wire(self.rule)
    }

    /// The problem in one sentence: if connections failed by it, that. `start` is the time of the first frame of the
    /// capture.
    pub fn title(&self, start: i64) -> String {
        let Some(fatal) = &self.fatal else { return self.rule.row().title.to_owned() };
        let outcome = &fatal.outcome;
        if fatal.of == 1 {
            return format!("{}.", outcome.sentence(start));
        }
        let headline = match outcome.ending {
            _ if fatal.same_side => outcome.headline(),
            Ending::NoNegotiation => "Connections ended during SMB Direct negotiation".to_owned(),
            _ => "Connections ended before their work was done".to_owned(),
        };
        let (ended, of) = (Grouped(fatal.ended), Grouped(fatal.of));
        if fatal.ended == fatal.of {
            format!("{headline}: {ended} of {of} connections.")
        } else {
            format!("{headline}: {ended} of the {of} connections.")
        }
    }

    /// The text of the first occurrence; for failed requests, their commands and counts.
    pub fn text(&self) -> String {
        if self.failures.is_empty() {
            return self.findings.first().map(|f| f.text.clone()).unwrap_or_default();
        }
        let list = self.failures.iter().take(FAILURES_SHOWN).map(|(command, status, n)| match n {
            1 => format!("{command} {status}"),
            n => format!("{command} {status} ×{}", Grouped(*n)),
        });
        let list: Vec<String> = list.collect();
        let more = if self.failures.len() > FAILURES_SHOWN { " and others" } else { "" };
        let what = if self.count == 1 { "A request failed" } else { "Requests failed" };
        format!("{what}: {}{more}", join(&list))
    }

    /// True if its text is about failed requests, and so names no side.
    pub fn counts_failures(&self) -> bool {
        !self.failures.is_empty()
    }
}

/// A finding as a whole sentence, for tables and programs. One about failed requests lists the commands and statuses of
/// its connection with their counts; for others, see [`Report::sentence`].
pub fn text(report: &Report, finding: &Finding) -> String {
    failures(report, finding).map_or_else(|| report.sentence(finding), |text| sentence(&text))
}

/// The failed requests that a rule counts: of which protocol, and if their status means damage.
const fn failures_of(rule: Rule) -> Option<(Family, bool)> {
    match rule {
        Rule::Smb2Error => Some((Family::Smb2, false)),
        Rule::Smb2IoError => Some((Family::Smb2, true)),
        Rule::RpcError => Some((Family::Rpc, false)),
        Rule::RpcIoError => Some((Family::Rpc, true)),
        _ => None,
    }
}

/// Commands and statuses of failed requests; `None` for a finding that is not about them.
fn failures(report: &Report, finding: &Finding) -> Option<String> {
    failures_of(finding.rule)?;
    let connection = report.connections.iter().find(|c| Some(c.id) == finding.connection)?;
    let mut root = Root::new(finding);
    root.add(finding);
    root.finish(report, &[(connection.id, connection)].into_iter().collect());
    root.counts_failures().then(|| root.text())
}

fn join(list: &[String]) -> String {
    let mut out = String::new();
    for (i, piece) in list.iter().enumerate() {
        if i > 0 {
            out.push_str(", ");
        }
        out.push_str(piece);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::Status;
    use crate::finding::Site;
    use crate::outcome::{Closing, Purpose, Stage, Success};
    use alloc::vec;

    const SECOND: i64 = 1_000_000_000;

    fn on(connection: u32, rule: Rule, by: Blame, frame: u64, seconds: i64) -> Finding {
        let site = Site { connection: Some(connection), frame, time_ns: seconds * SECOND };
        Finding::new(rule, by, site, Certainty::Certain, rule.id())
    }

    fn report(findings: impl IntoIterator<Item = Finding>) -> Report {
        let mut report = Report::default();
        let findings: Vec<Finding> = findings.into_iter().collect();
        for id in findings.iter().filter_map(|f| f.connection) {
            if report.connections.iter().all(|c| c.id != id) {
                report.connections.push(Connection { id, ..Connection::default() });
            }
        }
        findings.into_iter().for_each(|finding| report.findings.add(finding));
        report
    }

    /// Rules of the roots, each with those of its effects.
    fn shape(report: &Report) -> Vec<(Rule, Vec<Rule>)> {
        roots(report).iter().map(|root| (root.rule, root.effects.iter().map(|e| e.rule).collect())).collect()
    }

    /// Whether the second finding is told as an effect of the first.
    fn follows(cause: Finding, effect: Finding) -> bool {
        let (rule, of) = (effect.rule, cause.rule);
        let shape = shape(&report([cause, effect]));
        let is_effect = shape.iter().any(|(root, effects)| *root == of && effects.contains(&rule));
        assert_eq!(shape.len(), if is_effect { 1 } else { 2 }, "{shape:?}");
        is_effect
    }

    #[test]
    fn what_is_graver_than_its_cause_or_far_from_it_stands_alone() {
        use Blame::{Network, Server};
        let at = |rule, by, frame, seconds| on(1, rule, by, frame, seconds);
        let with = |finding: Finding, severity| Finding { severity, ..finding };
        let nak = |by, severity| with(at(Rule::RcNak, by, 9, 2), severity);
        let lost = at(Rule::RcRetransmit, Network, 5, 1);
        assert!(follows(lost.clone(), nak(Network, Severity::Warn)));
        assert!(!follows(lost.clone(), nak(Server, Severity::Error)), "it was refused");
        assert!(!follows(with(lost, Severity::Note), nak(Network, Severity::Error)), "a note");
        let elsewhere = || at(Rule::RdmaKeyBounds, Server, 5, 1);
        assert!(follows(elsewhere(), at(Rule::RdmaLength, Server, 9, 2)));
        assert!(!follows(elsewhere(), at(Rule::RdmaLength, Server, 9, 62)), "of another request");
    }

    #[test]
    fn an_effect_lies_where_its_row_says() {
        use Blame::{Client, Server};
        let at = |rule, by, frame, seconds| on(1, rule, by, frame, seconds);
        let many = |finding: Finding, count| Finding { count, ..finding };
        // in the same frames, and no more often
        let (cause, effect) = (Rule::SmbdFragTooBig, Rule::BugCve202539942);
        assert!(follows(at(cause, Client, 5, 1), at(effect, Client, 5, 1)));
        assert!(!follows(at(cause, Client, 5, 1), at(effect, Client, 6, 1)));
        assert!(!follows(at(cause, Client, 5, 1), many(at(effect, Client, 5, 1), 2)));
        // not before it
        let (cause, effect) = (Rule::SmbdNegReqVersion, Rule::SmbdNegAccepted);
        assert!(follows(at(cause, Client, 5, 1), at(effect, Server, 9, 9)));
        assert!(!follows(at(cause, Client, 9, 9), at(effect, Server, 5, 1)));
        // soon after it; later only if it is no more frequent; a capture may swap the packets of one message
        let (cause, effect) = (Rule::Smb2Channel, Rule::RdmaKeyUnknown);
        assert!(follows(at(cause, Client, 5, 1), many(at(effect, Server, 6, 2), 3)));
        assert!(!follows(at(cause, Client, 5, 1), many(at(effect, Server, 6, 3), 3)));
        assert!(follows(at(cause, Client, 5, 1), at(effect, Server, 6, 3)));
        assert!(!follows(at(cause, Client, 5, 1), at(effect, Server, 4, 1)), "the other side, before");
        assert!(follows(at(cause, Client, 5, 1), at(effect, Client, 4, 1)), "of one side");
        // the cause is in the answer
        let (cause, effect) = (Rule::RpcrdmaXid, Rule::RpcUnanswered);
        assert!(follows(at(cause, Server, 9, 2), at(effect, Server, 5, 1)));
        assert!(!follows(at(cause, Server, 5, 1), at(effect, Server, 9, 2)));
        // the peer of the side to blame broke the first rule
        let (cause, effect) = (Rule::Smb2Malformed, Rule::Smb2Reply);
        assert!(follows(at(cause, Client, 5, 1), at(effect, Server, 9, 2)));
        assert!(!follows(at(cause, Server, 5, 1), at(effect, Server, 9, 2)));
        // and nothing follows from another connection
        assert!(!follows(on(1, cause, Client, 5, 1), on(2, effect, Server, 9, 2)));
    }

    #[test]
    fn one_cause_is_one_root() {
        use Blame::{Client, Server};
        let at = |rule, by, frame| on(1, rule, by, frame, 1);
        // what the peer makes of it
        assert!(follows(at(Rule::Smb2MessageId, Client, 5), Finding { count: 2, ..at(Rule::Smb2Reply, Server, 6) }));
        assert!(!follows(at(Rule::Smb2MessageId, Server, 5), at(Rule::Smb2Reply, Server, 6)));
        assert!(follows(at(Rule::DdpMsn, Server, 5), at(Rule::BugCve202664268, Client, 6)));
        assert!(!follows(at(Rule::DdpMsn, Client, 5), at(Rule::BugCve202664268, Client, 6)));
        assert!(follows(at(Rule::Smb2TransformDialect, Client, 5), at(Rule::RdmaKeyUnknown, Server, 6)));
        assert!(follows(at(Rule::SmbdNegReqLength, Client, 5), at(Rule::SmbdNegRspStatus, Server, 6)));
        assert!(follows(at(Rule::SmbdNegReqLength, Client, 5), at(Rule::SmbdNegAccepted, Server, 6)));
        // two views of one message
        for (cause, effect) in [
            (Rule::SmbdDataLength, Rule::SmbdFragTooBig),
            (Rule::SmbdDataLength, Rule::SmbdReserved),
            (Rule::SmbdDataAlign, Rule::SmbdReserved),
            (Rule::RpcrdmaChunkLength, Rule::RdmaLength),
            (Rule::RpcrdmaPosition, Rule::RpcMalformed),
            (Rule::RpcMalformed, Rule::RpcError),
        ] {
            assert!(follows(at(cause, Client, 5), at(effect, Client, 5)), "{}", effect.id());
            assert!(!follows(at(cause, Client, 5), at(effect, Client, 6)), "{}", effect.id());
        }
        assert!(follows(at(Rule::RcLength, Server, 9), at(Rule::RdmaKeyBounds, Server, 5)));
        assert!(!follows(at(Rule::RcLength, Client, 9), at(Rule::RdmaKeyBounds, Server, 5)));
        assert!(follows(at(Rule::DdpMsn, Server, 5), at(Rule::RpcrdmaChunkLength, Server, 6)));
        assert!(follows(at(Rule::DdpMsn, Server, 5), at(Rule::RdmaLength, Server, 6)));
    }

    #[test]
    fn the_effect_of_an_effect_stands_under_the_root() {
        let chain = [Rule::SmbdCreditExhausted, Rule::SmbdCreditLast, Rule::SmbdCreditDeadlock];
        let findings = chain.iter().zip(5..).map(|(rule, frame)| on(1, *rule, Blame::Server, frame, 1));
        assert_eq!(shape(&report(findings)), [(chain[0], vec![chain[2], chain[1]])], "the most severe effect first");
    }

    #[test]
    fn what_cannot_be_read_explains_what_was_read_of_it() {
        let damaged = on(1, Rule::MpaCrc, Blame::Network, 5, 1);
        assert!(follows(damaged.clone(), on(1, Rule::SmbdDataLength, Blame::Client, 5, 1)));
        assert!(!follows(damaged, on(1, Rule::SmbdDataLength, Blame::Client, 6, 1)));
    }

    #[test]
    fn one_rule_broken_by_one_side_is_one_root_with_its_connections() {
        let rule = Rule::SmbdNegReqCredits;
        let findings = (1..=30).map(|id| on(id, rule, Blame::Client, u64::from(100 - id), 1));
        let report = report(findings.chain([on(7, rule, Blame::Server, 3, 1)]));
        let roots = roots(&report);
        assert_eq!(roots.len(), 2, "sides are apart");
        let root = roots.iter().find(|root| root.by == Blame::Client).unwrap();
        assert_eq!((root.count, root.connections.len(), root.findings.len()), (30, 30, 30));
        assert_eq!(root.first, At { frame: 70, time: SECOND });
        assert_eq!((root.frames.len(), root.frames[0]), (FRAMES_MAX, 70), "the first few, in order");
        assert!(root.connections.is_sorted() && root.frames.is_sorted());
    }

    fn failed(purpose: Purpose, cause: Option<(Rule, Blame)>, closed_by: usize) -> Option<Outcome> {
        Some(Outcome {
            purpose,
            reached: Stage::Connected,
            ending: Ending::NoNegotiation,
            success: if cause.is_some() { Success::No } else { Success::Yes },
            by: cause.map(|_| 0),
            closed_by: Some(closed_by),
            closing: Closing::Closed,
            at: At { frame: 9, time: SECOND },
            waited: 0,
            certainty: Certainty::Certain,
            cause,
        })
    }

    #[test]
    fn what_ended_connections_comes_first_with_their_number() {
        let cause = (Rule::SmbdNegReqCredits, Blame::Client);
        let mut report = report([
            on(1, Rule::RdmaKeyUnknown, Blame::Server, 2, 1),
            on(2, cause.0, cause.1, 4, 1),
            on(2, Rule::CmDisconnect, Blame::Server, 9, 1),
            on(3, cause.0, cause.1, 14, 1),
        ]);
        for connection in &mut report.connections {
            let of_it = (connection.id > 1).then_some(cause);
            connection.outcome = failed(Purpose::SmbDirect, of_it, usize::from(connection.id == 3));
        }
        report.connections.push(Connection {
            id: 4,
            outcome: failed(Purpose::NfsRdma, None, 0),
            ..Connection::default()
        });
        let roots = roots(&report);
        let shape: Vec<Rule> = roots.iter().map(|root| root.rule).collect();
        assert_eq!(shape, [cause.0, Rule::RdmaKeyUnknown], "the end of the connection follows from its cause");
        assert_eq!(roots[0].effects[0].rule, Rule::CmDisconnect);
        let fatal = roots[0].fatal.as_ref().unwrap();
        assert_eq!((fatal.ended, fatal.of, fatal.same_side), (2, 3, false));
        assert_eq!(roots[0].title(0), "Connections ended during SMB Direct negotiation: 2 of the 3 connections.");
        assert_eq!(roots[1].title(0), Rule::RdmaKeyUnknown.row().title);
    }

    #[test]
    fn without_a_failure_the_order_is_cost_severity_certainty() {
        let guess = |finding: Finding| Finding { certainty: Certainty::Guess, ..finding };
        let mut report = report([
            on(1, Rule::Smb2ErrorBody, Blame::Server, 1, 1),
            on(1, Rule::SmbdFragCost, Blame::Client, 2, 1),
            guess(on(1, Rule::RdmaReadDepth, Blame::Client, 3, 1)),
            on(1, Rule::RdmaKeyUnknown, Blame::Server, 4, 1),
            on(1, Rule::Smb2Slow, Blame::Server, 5, 1),
        ]);
        let order = |report: &Report| roots(report).iter().map(|root| root.rule).collect::<Vec<_>>();
        let free = order(&report);
        assert_eq!(free[0], Rule::RdmaKeyUnknown);
        assert_eq!(free.last(), Some(&Rule::Smb2ErrorBody), "a habit of a known server is last");
        report.connections[0].slow_time = [0, SECOND];
        assert_eq!(order(&report)[0], Rule::Smb2Slow, "time that requests waited comes before severity");
    }

    #[test]
    fn failed_requests_are_told_by_command_and_status() {
        let mut report = report([on(1, Rule::Smb2Error, Blame::Server, 3, 1)]);
        let denied = 0xc000_0022;
        let failed = |command, status, count| Failures { command, status, count };
        report.connections[0].failures = vec![
            failed("CREATE", Status(Family::Smb2, denied), 1200),
            failed("READ", Status(Family::Smb2, denied), 1),
            failed("CREATE", Status(Family::Rpc, 5), 9),
        ];
        let finding = report.findings.iter().next().unwrap().clone();
        let one = "A request failed: CREATE STATUS_ACCESS_DENIED ×1,200, READ STATUS_ACCESS_DENIED";
        assert_eq!(roots(&report)[0].text(), one);
        assert_eq!(text(&report, &finding), alloc::format!("{one}."));
        assert!(roots(&report)[0].counts_failures());
        let other = on(1, Rule::RdmaKeyUnknown, Blame::Server, 3, 1);
        assert_eq!(text(&report, &other), report.sentence(&other));
    }

    #[test]
    fn no_row_of_effects_names_itself_or_a_cause_twice() {
        for (effect, relation, rules) in FOLLOWS {
            let is_of_peer = matches!(relation, Relation::OfPeer | Relation::Reaction);
            assert!(is_of_peer || !rules.contains(effect), "{}", effect.id());
            let mut unique = rules.to_vec();
            unique.sort_unstable();
            unique.dedup();
            assert_eq!(unique.len(), rules.len(), "{}", effect.id());
        }
    }
}
