//! Loss, damage, reordering and silence of a connection, reported once when it ends or on request. One
//! finding a rule, both directions in it.

use super::{Many, way};
use crate::connection::ConnectionState;
use crate::episodes::cost::{cost_in, is_of_the_wire};
use crate::episodes::{Cause, Episode, Kind};
use crate::exchange::One;
use crate::finding::{Blame, Certainty, Finding, Rule, Severity, Site};
use crate::flow::losses::{ALL_CHANGED, LossView, Losses, Speaks, Tally, are_changed};
use crate::flow::sizes::{NeverCame, Stuck};
use crate::messages::smbd::link;
use crate::op::{At, End};
use crate::stats::{FarLonger, Long, Usual, wait_of_timer};
use crate::summary::Handshake;
use alloc::format;
use alloc::string::String;
use core::fmt::{self, Write};
use rdmascope_dissector::text::Elapsed as Milliseconds;

/// The rules that the two carriers have for the same losses.
struct Rules {
    unit: &'static str,
    lost: Rule,
    overtaken: Rule,
    needless: Rule,
    damaged: Rule,
}

const RC: Rules = Rules {
    unit: "packet",
    lost: Rule::RcRetransmit,
    overtaken: Rule::RcReorder,
    needless: Rule::RcSpurious,
    damaged: Rule::RcIcrc,
};
const TCP: Rules = Rules {
    unit: "segment",
    lost: Rule::TcpLoss,
    overtaken: Rule::TcpReorder,
    needless: Rule::TcpSpurious,
    damaged: Rule::TcpChecksum,
};

/// Tries that a link which loses packets may swallow by chance.
const CHANCE_MAX: u32 = 5;
/// ns by which packets of a capture may be out of order that were sent in order.
const NEIGHBOURS: i64 = 10_000;

/// From whom to whom.
struct Direction<'c>(&'c ConnectionState, End);

impl fmt::Display for Direction<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(connection, by) = self;
        match way(connection, *by) {
            Some(way) => f.write_str(way),
            None => {
                let [from, to] = [*by, by.peer()].map(|end| &connection.peers[end.index()].address);
                write!(f, "from {from} to {to}")
            }
        }
    }
}

/// Duration of a recovery in ns, as the end of a clause; empty if the clock of the capture shows no time.
struct RecoveryTime(i64);

impl fmt::Display for RecoveryTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 > 0 { write!(f, ", {} of recovery", Milliseconds(self.0)) } else { Ok(()) }
    }
}

/// The most by which packets came late, in ns, as the end of a clause; empty if the clock of the capture shows no time.
struct AtMost(i64);

impl fmt::Display for AtMost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 > 0 { write!(f, ", by {} at most", Milliseconds(self.0)) } else { Ok(()) }
    }
}

fn was(n: u64) -> &'static str {
    if n == 1 { "was" } else { "were" }
}

fn them(n: u64) -> &'static str {
    if n == 1 { "it" } else { "them" }
}

/// One finding of a rule for both directions.
struct Both<'c> {
    connection: &'c ConnectionState,
    text: String,
    tally: Tally,
    count: u64,
}

impl<'c> Both<'c> {
    fn new(connection: &'c ConnectionState) -> Self {
        Self { connection, text: String::new(), tally: Tally::default(), count: 0 }
    }

    /// Adds a clause about something that happened; both tallies are of the same event.
    fn add(&mut self, tally: &Tally, text: fmt::Arguments<'_>) {
        if !tally.any() {
            return;
        }
        if !self.text.is_empty() {
            self.text.push_str("; ");
        }
        // writing to a String cannot fail
        let _ = self.text.write_fmt(text);
        self.place(tally);
        self.count += tally.count;
    }

    fn place(&mut self, tally: &Tally) {
        if tally.any() && (self.tally.frames.is_empty() || tally.first < self.tally.first) {
            self.tally.first = tally.first;
        }
        self.tally.last = self.tally.last.max(tally.last);
        self.tally.frames.join(&tally.frames);
    }

    fn finish(self, rule: Rule, by: Blame, certainty: Certainty, emit: &mut impl FnMut(Finding)) {
        if self.count == 0 {
            return;
        }
        let At { frame, time } = self.tally.first;
        let site = Site { connection: Some(self.connection.id), frame, time_ns: time };
        let mut finding = Finding::new(rule, by, site, certainty, self.text);
        finding.count = self.count.max(self.tally.frames.len() as u64);
        finding.last_time_ns = self.tally.last.time.max(time);
        finding.frames = self.tally.frames;
        emit(finding);
    }
}

/// Reports the findings of a connection's losses.
pub fn add_losses(connection: &ConnectionState, flow: &LossView<'_>, emit: &mut impl FnMut(Finding)) {
    let rules = if flow.is_tcp { &TCP } else { &RC };
    let losses = || End::BOTH.into_iter().filter_map(|by| Some((by, flow.losses[by.index()]?)));
    let sums = connection.episodes.sums(connection.last.time);
    let answered = connection.is_answered();
    let far_longer = connection.far_longer();
    resent(connection, rules, &far_longer, emit);
    let emit = &mut |finding: Finding| {
        // a repair that cost no request anything is only a note
        let is_free = answered
            && is_of_the_wire(finding.rule)
            && finding.by != Blame::Capture
            && cost_in(&sums, finding.rule, None) == 0;
        emit(if is_free { finding.with_severity(Severity::Note) } else { finding });
    };
    let is_troubled =
        connection.health.is_troubled() || connection.missed.any() || losses().any(|(_, l)| is_disturbed(l));
    slow(connection, &far_longer, is_troubled, emit);
    late_responses(connection, is_troubled || losses().any(|(_, l)| l.damaged.any()), emit);
    if flow.copies_known != [false; 2] {
        mirrored(connection, flow.copies_known, emit);
    } else if flow.is_mirrored {
        damaged(connection, flow, losses(), rules, emit);
        // packets that a mirror shows twice were sent once
        losses().for_each(|(by, losses)| silent(connection, by, losses, rules, 2, emit));
        if let Some(thrice) = flow.thrice {
            sent_again(connection, thrice, rules, emit);
        }
        if flow.is_tcp {
            seem_lost(connection, losses(), rules, emit);
        }
        return mirrored(connection, [true; 2], emit);
    }
    let emit = &mut |finding: Finding| {
        // packets that appear again may be a mirror's
        let rests_on_copies = [rules.lost, rules.overtaken, rules.needless, Rule::PathMtu].contains(&finding.rule);
        let doubted = flow.may_be_mirrored
            && flow.copies_known == [false; 2]
            && rests_on_copies
            && finding.certainty == Certainty::IfNothingWasMissed;
        emit(if doubted { Finding { certainty: Certainty::Guess, ..finding } } else { finding });
    };
    lost(connection, losses(), rules, emit);
    overtaken(connection, losses(), rules, emit);
    misplaced(connection, flow, losses(), rules, emit);
    needless(connection, losses(), rules, emit);
    damaged(connection, flow, losses(), rules, emit);
    for (by, missing) in End::BOTH.into_iter().zip(flow.never_came) {
        if let Some(missing) = missing.filter(|_| connection.is_of_storage()) {
            never_came(connection, by, &missing, rules, emit);
        }
    }
    for (by, losses) in losses() {
        if !too_large(connection, by, flow.stuck[by.index()], rules, emit) {
            silent(connection, by, losses, rules, 1, emit);
        }
        nagle(connection, by, losses, emit);
    }
    held_up(connection, losses(), emit);
}

/// Reports requests that the server itself was slow to answer: those that no lower layer held up.
fn slow(
    connection: &ConnectionState,
    far_longer: &[FarLonger<'_>; 2],
    is_troubled: bool,
    emit: &mut impl FnMut(Finding),
) {
    for (rule, far_longer) in [Rule::Smb2Slow, Rule::RpcSlow].into_iter().zip(far_longer) {
        for replier in End::BOTH {
            let all = far_longer.slow.iter().copied().filter(|(long, _)| long.replier == replier);
            slow_of(connection, rule, replier, all, is_troubled, emit);
        }
    }
}

/// The same for one side: requests that took long, each with what is usual.
fn slow_of<'l>(
    connection: &ConnectionState,
    rule: Rule,
    replier: End,
    all: impl Iterator<Item = (&'l Long, Usual)>,
    is_troubled: bool,
    emit: &mut impl FnMut(Finding),
) {
    let (mut tally, mut longest) = (Tally::default(), None::<(&Long, Usual)>);
    for (long, usual) in all {
        tally.add(long.reply, 1);
        if longest.is_none_or(|(known, _)| known.latency < long.latency) {
            longest = Some((long, usual));
        }
    }
    let Some((long, usual)) = longest else { return };
    let (took, command) = (Milliseconds(long.latency), One(long.command));
    let (of, usual) = (if usual.of_all { " of all commands" } else { "" }, Milliseconds(usual.median));
    let mut found = Both::new(connection);
    if tally.count == 1 {
        found.add(&tally, format_args!("took {took} for {command}; the median{of} is {usual}"));
    } else {
        found.add(&tally, format_args!("took up to {took} for {command}; the median{of} is {usual}"));
    }
    // with packets lost, its first packet may have been lost too, and no later one shows that
    let is_alike = tally.count <= 2 && is_like_a_timer(long.server);
    // a request that was acknowledged with the reply at the earliest may have been held up on its way to the server;
    // and a reply may have waited behind others for credits
    let is_held_up = long.is_unheard || connection.smbd().is_some_and(|smbd| is_short(smbd.link.side(replier)));
    let certainty =
        if is_troubled || is_alike || is_held_up { Certainty::Guess } else { Certainty::IfNothingWasMissed };
    found.finish(rule, blame(connection, replier), certainty, emit);
}

/// Reports ends that took long to answer RDMA Reads of the other. Where packets were lost or damaged (`is_troubled`),
/// the first answer may have been.
fn late_responses(connection: &ConnectionState, is_troubled: bool, emit: &mut impl FnMut(Finding)) {
    /// ns within which a host that is only busy answers.
    const LATE: i64 = 500_000_000;
    /// The same of one that is late again and again, how often, and ns in all.
    const OFTEN: (i64, usize, i64) = (100_000_000, 3, 1_000_000_000);
    for by in End::BOTH {
        let (mut tally, mut longest) = (Tally::default(), 0);
        let is_late = |e: &&Episode| e.kind == Kind::Idle && e.cause == Cause::ReadResponse && e.by == Some(by);
        let ended = connection.episodes.iter().filter(is_late).filter_map(|e| Some((e.begin, e.end?)));
        let waits = ended.map(|(begin, end)| (end, end.since(begin)));
        let often = waits.clone().map(|(_, took)| took).filter(|took| *took >= OFTEN.0 && !is_like_a_timer(*took));
        let is_often = often.clone().count() >= OFTEN.1 && often.fold(0_i64, i64::saturating_add) >= OFTEN.2;
        for (end, took) in waits.filter(|(_, took)| *took >= if is_often { OFTEN.0 } else { LATE }) {
            tally.add(end, 1);
            longest = took.max(longest);
        }
        let (up_to, took) = (if tally.count > 1 { "up to " } else { "" }, Milliseconds(longest));
        let reads = if tally.count > 1 { "RDMA Reads" } else { "an RDMA Read" };
        // a response that was lost before the capture point comes with a timer
        let is_alike = tally.count <= 2 && is_like_a_timer(longest);
        let certainty = if is_alike || is_troubled { Certainty::Guess } else { Certainty::IfNothingWasMissed };
        let mut found = Both::new(connection);
        found.add(&tally, format_args!("took {up_to}{took} to answer {reads} of its peer"));
        found.finish(Rule::RdmaReadSlow, blame(connection, by), certainty, emit);
    }
}

/// True if replies may have waited for credits.
fn is_short(side: &link::Side) -> bool {
    side.stalls > 0 || side.is_starved() || side.held_min.is_some_and(|held| held <= 1)
}

/// True if packets of a direction were lost or late, so that others may have been.
fn is_disturbed(l: &Losses) -> bool {
    l.overtaken.any() || l.unclear.any() || l.misplaced.any() || l.unacknowledged.any() || l.lost() > 0
}

/// True if something took as long as a retransmission timer.
fn is_like_a_timer(took: i64) -> bool {
    [false, true].into_iter().any(|is_tcp| wait_of_timer(took, is_tcp).is_some())
}

/// Reports replies that all took as long as one retransmission timer: their first copies may have been lost. Requests
/// that were acknowledged had arrived.
fn resent(
    connection: &ConnectionState,
    rules: &Rules,
    far_longer: &[FarLonger<'_>; 2],
    emit: &mut impl FnMut(Finding),
) {
    let (mut tally, mut shortest, mut longest) = (Tally::default(), i64::MAX, 0);
    let mut is_unheard = false;
    for (long, _) in far_longer.iter().flat_map(|all| &all.resent) {
        is_unheard |= long.is_unheard;
        // replies in one frame are one
        if !tally.frames.contains(&long.reply.frame) {
            tally.add(long.reply, 1);
        }
        (shortest, longest) = (shortest.min(long.server), longest.max(long.server));
    }
    let (count, from, to) = (tally.count, Milliseconds(shortest), Milliseconds(longest));
    let they = if is_unheard { "they, or their requests," } else { "they" };
    let mut found = Both::new(connection);
    found.add(
        &tally,
        format_args!(
            "{count} replies came {from} to {to} after their requests, as long as one retransmission timer: {they} \
             seem to have been lost before the capture point and sent again, or the server took so long"
        ),
    );
    found.finish(rules.lost, Blame::Network, Certainty::Guess, emit);
}

fn lost<'s>(
    connection: &ConnectionState,
    losses: impl Iterator<Item = (End, &'s Losses)> + Clone,
    rules: &Rules,
    emit: &mut impl FnMut(Finding),
) {
    // with packets held up, requested ones may have been on their way; and delays in one direction make the other send
    // again
    let is_held_up = losses.clone().any(|(_, l)| l.overtaken.any() || l.unclear.any() || l.misplaced.any());
    let mut found = Both::new(connection);
    let mut unsure = Both::new(connection);
    for (by, losses) in losses {
        let (before, behind) = (losses.lost_before.count, losses.lost_behind.count);
        let both = losses.lost_anywhere();
        let (count, were, way) = (Many(before + behind, rules.unit), was(before + behind), Direction(connection, by));
        let place = match (before, behind) {
            (_, 0) => "before the capture point",
            (0, _) => "behind the capture point",
            _ => "on both sides of the capture point",
        };
        let again =
            Many(losses.repeated.count.saturating_sub(losses.needless.count + losses.ack_late.count), rules.unit);
        let took = RecoveryTime(losses.recovery);
        // if the capture loses packets, unseen ones may have been there, unless their receiver asked for them
        let is_asked = losses.naks + losses.asked_again > 0;
        let is_sure = !is_held_up && is_asked && (before == 0 || rules.unit == "segment" || !connection.missed.any());
        let is_sure = is_sure || !is_held_up && rules.unit == "segment" && before == 0;
        let lost = if is_sure { &mut found } else { &mut unsure };
        lost.add(&both, format_args!("{count} {way} {were} lost {place}, {again} sent again{took}"));
        // the packets of an end that was not captured are unknown
        let is_heard = !connection.missed.is_absent(by.peer());
        let (late, slow) = if is_heard {
            (losses.unacknowledged.clone(), &losses.unheard)
        } else {
            (Tally::default(), &losses.unacknowledged)
        };
        let (count, were) = (Many(late.count, rules.unit), was(late.count));
        let acks = if late.count == 1 { "its acknowledgment seems" } else { "their acknowledgments seem" };
        // an acknowledgment may be among what the capture misses of the receiver
        let is_open = connection.missed.is_missing(by.peer(), late.first, late.last);
        let late_of = if is_open { &mut unsure } else { &mut found };
        match rules.unit {
            // of packets, only those after which the receiver went on are counted
            "packet" => late_of.add(
                &late,
                format_args!(
                    "{count} {way} {were} not acknowledged in time and sent again{took}: {acks} to have been lost \
                     before the capture point"
                ),
            ),
            _ => late_of.add(
                &late,
                format_args!(
                    "{count} {way} {were} not acknowledged in time and sent again{took}: lost behind the capture \
                        point, or \
                     the acknowledgment was lost before it"
                ),
            ),
        }
        unsure.add(
            &losses.unclear,
            format_args!(
                "{} {way} came behind later ones: overtaken, or lost before the capture point and sent again",
                Many(losses.unclear.count, rules.unit)
            ),
        );
        unsure.add(
            &losses.went_by,
            format_args!(
                "{} {way} went by the capture point and {} asked for again: lost behind it, or overtaken there",
                Many(losses.went_by.count, rules.unit),
                was(losses.went_by.count)
            ),
        );
        for slow in [slow, &losses.unheard].into_iter().take(1 + usize::from(!is_heard)) {
            let (count, were) = (Many(slow.count, rules.unit), was(slow.count));
            unsure.add(
                slow,
                format_args!(
                    "{count} {way} {were} not acknowledged in time and sent again{took}: lost behind the capture \
                        point, or \
                    the acknowledgment was lost before it, or the receiver was slow"
                ),
            );
        }
    }
    if found.count > 0 {
        found.finish(rules.lost, Blame::Network, Certainty::IfNothingWasMissed, emit);
    } else {
        unsure.finish(rules.lost, Blame::Network, Certainty::Guess, emit);
    }
}

fn overtaken<'s>(
    connection: &ConnectionState,
    losses: impl Iterator<Item = (End, &'s Losses)>,
    rules: &Rules,
    emit: &mut impl FnMut(Finding),
) {
    let (mut sure, mut unsure) = (Both::new(connection), Both::new(connection));
    for (by, losses) in losses {
        // an end that did not report them missing may have had them in order; and packets that a capture misses look
        // late when they go again
        let noticed = rules.unit == "segment" || losses.naks > 0;
        // a sender goes back when it is asked to: if nothing else came again, what came late was the answer to that
        let is_answered = losses.naks == 0 || losses.repeated.any();
        // neighbours change places in captures, too
        let is_far = rules.unit == "segment" || losses.delay >= NEIGHBOURS;
        let is_sure = noticed
            && is_answered
            && is_far
            && losses.lost() == 0
            && !connection.missed.any()
            && !connection.missed.is_absent(by.peer());
        let found = if is_sure { &mut sure } else { &mut unsure };
        let late = losses.overtaken.count;
        let (count, were, way) = (Many(late, rules.unit), was(late), Direction(connection, by));
        let delay = AtMost(losses.delay);
        if losses.naks > 0 && losses.lost() == 0 && is_answered {
            let (naks, again) = (Many(losses.naks, "NAK"), Many(losses.repeated.count, rules.unit));
            found.add(
                &losses.overtaken,
                format_args!(
                    "{count} {way} {were} overtaken{delay}; the receiver answered with {naks}, and \
                        {again} were sent again \
                    needlessly"
                ),
            );
        } else {
            found.add(&losses.overtaken, format_args!("{count} {way} {were} overtaken{delay}"));
        }
    }
    if sure.count > 0 {
        sure.finish(rules.overtaken, Blame::Network, Certainty::IfNothingWasMissed, emit);
    } else {
        unsure.finish(rules.overtaken, Blame::Network, Certainty::Guess, emit);
    }
}

/// Reports retransmitted packets although a mirror shows everything twice: they appear more often.
fn sent_again(connection: &ConnectionState, thrice: &[Tally; 2], rules: &Rules, emit: &mut impl FnMut(Finding)) {
    let mut found = Both::new(connection);
    for by in End::BOTH {
        let tally = &thrice[by.index()];
        let copies = tally.count.div_ceil(2);
        let (count, went, way) =
            (Many(copies, rules.unit), if copies == 1 { "stands" } else { "stand" }, Direction(connection, by));
        found.add(
            tally,
            format_args!(
                "{count} {way} {went} in the capture more than twice: lost and sent again, or sent again without need"
            ),
        );
    }
    found.finish(rules.lost, Blame::Network, Certainty::Guess, emit);
}

/// Reports segments that seem to have been lost, of a connection whose segments a mirror shows twice. Copies of a mirror
/// neither fill a hole nor answer the report of one; what else goes by again may be one.
fn seem_lost<'s>(
    connection: &ConnectionState,
    losses: impl Iterator<Item = (End, &'s Losses)>,
    rules: &Rules,
    emit: &mut impl FnMut(Finding),
) {
    let mut found = Both::new(connection);
    for (by, losses) in losses {
        let lost = losses.lost_anywhere();
        let (count, way) = (Many(losses.lost(), rules.unit), Direction(connection, by));
        let (seem, took) = (if losses.lost() == 1 { "seems" } else { "seem" }, RecoveryTime(losses.recovery));
        found.add(
            &lost,
            format_args!(
                "{count} {way} {seem} to have been lost and sent again{took}, as far as a mirror's copies show"
            ),
        );
    }
    found.finish(rules.lost, Blame::Network, Certainty::Guess, emit);
}

/// Reports ends of which the capture has nothing from a packet on, though their peers acknowledged more (`unseen`): `at`
/// is the end of the capture.
pub fn add_vanished(connection: &ConnectionState, unseen: [bool; 2], at: At, emit: &mut impl FnMut(Finding)) {
    /// ns without a packet at the end that are worth telling.
    const VANISHED: i64 = 1_000_000_000;
    let end = connection.closed.map_or(at, |(.., at)| at);
    for by in End::BOTH.into_iter().filter(|by| unseen[by.index()]) {
        let last = connection.ends[by.index()].port.last();
        if last == At::default() || end.since(last) < VANISHED {
            continue;
        }
        let site = Site { connection: Some(connection.id), frame: last.frame, time_ns: last.time };
        let way = Direction(connection, by);
        let text = format!("packets {way} were acknowledged, and none after frame {} was captured", last.frame);
        emit(Finding::new(Rule::CaptureLoss, Blame::Capture, site, Certainty::Certain, text));
    }
}

/// Reports that all packets of these ends are in the capture twice.
fn mirrored(connection: &ConnectionState, ends: [bool; 2], emit: &mut impl FnMut(Finding)) {
    let At { frame, time } = connection.first;
    let site = Site { connection: Some(connection.id), frame, time_ns: time };
    let way = match ends {
        [true, false] => format!(" {}", Direction(connection, End::A)),
        [false, true] => format!(" {}", Direction(connection, End::B)),
        _ => String::new(),
    };
    let text = format!(
        "every packet{way} is in the capture twice: a mirror shows it on two ports, or there were two capture points"
    );
    emit(Finding::new(Rule::RcDuplicate, Blame::Capture, site, Certainty::IfNothingWasMissed, text));
}

/// Cause of packets that are out of order in the capture alone.
const TWO_CLOCKS: &str = "The capture was made at several points, or by several queues of one interface, and joined by \
    clocks that differ";

/// Packets of a connection by sender.
pub fn packets(connection: &ConnectionState) -> [u64; 2] {
    connection.network.directions.each_ref().map(|direction| direction.packets)
}

fn misplaced<'s>(
    connection: &ConnectionState,
    flow: &LossView<'_>,
    losses: impl Iterator<Item = (End, &'s Losses)>,
    rules: &Rules,
    emit: &mut impl FnMut(Finding),
) {
    let mut found = Both::new(connection);
    for (by, losses) in losses {
        let (count, way) = (Many(losses.misplaced.count, rules.unit), Direction(connection, by));
        let stand = if losses.misplaced.count == 1 { "stands" } else { "stand" };
        found.add(
            &losses.misplaced,
            format_args!("{count} {way} {stand} out of order in the capture; the receiver had all in order"),
        );
    }
    let is_out_of_order = flow.is_out_of_order(packets(connection));
    if is_out_of_order {
        found.text.push_str(
            ". So the order and the times of the capture are not those of the wire: what depends on them is not judged",
        );
    }
    found.finish(rules.overtaken, Blame::Capture, Certainty::IfNothingWasMissed, &mut |finding| {
        let finding = finding.with_why(Some(TWO_CLOCKS));
        emit(finding.with_severity(if is_out_of_order { Severity::Warn } else { Severity::Note }))
    });
}

fn needless<'s>(
    connection: &ConnectionState,
    losses: impl Iterator<Item = (End, &'s Losses)>,
    rules: &Rules,
    emit: &mut impl FnMut(Finding),
) {
    let mut late = Both::new(connection);
    for (by, losses) in losses {
        let (count, were, way) =
            (Many(losses.ack_late.count, rules.unit), was(losses.ack_late.count), Direction(connection, by));
        let acks = if losses.ack_late.count == 1 { "the acknowledgment" } else { "the acknowledgments" };
        late.add(
            &losses.ack_late,
            format_args!(
                "{count} {way} {were} sent again although the receiver had {}: {acks} came late, or {were} lost",
                them(losses.ack_late.count)
            ),
        );
        let mut found = Both::new(connection);
        let count = Many(losses.needless.count, rules.unit);
        let them = them(losses.needless.count);
        found.add(&losses.needless, format_args!("sent {count} again although its peer had acknowledged {them}"));
        // once may be a copy that the network made, or the acknowledgment stands too early in the capture
        let is_once = losses.needless.count < 2;
        let certainty = if is_once { Certainty::Guess } else { Certainty::IfNothingWasMissed };
        found.finish(rules.needless, blame(connection, by), certainty, emit);
    }
    late.finish(rules.needless, Blame::Unknown, Certainty::Guess, emit);
}

fn damaged<'s>(
    connection: &ConnectionState,
    flow: &LossView<'_>,
    losses: impl Iterator<Item = (End, &'s Losses)>,
    rules: &Rules,
    emit: &mut impl FnMut(Finding),
) {
    let [mut before, mut behind, mut changed, mut open] = [(); 4].map(|()| Both::new(connection));
    let (mut all, mut is_sure) = (0, true);
    for (by, losses) in losses {
        let bad = losses.damaged.count;
        all += bad;
        let (count, way) = (Many(bad + u64::from(flow.good[by.index()]), rules.unit), Direction(connection, by));
        if are_changed(bad, flow.good[by.index()], flow.is_tcp) {
            let (unit, checksum) = if flow.is_tcp { ("data segment", "checksum") } else { (rules.unit, "CRC") };
            let count = Many(bad, unit);
            changed.add(
                &losses.damaged,
                format_args!(
                    "all {count} {way} have a wrong {checksum}: they were changed after they had been captured"
                ),
            );
            continue;
        }
        let (mut dropped, taken) = (losses.damaged_dropped.clone(), &losses.damaged_taken);
        if dropped.any() && !taken.any() {
            dropped.join(&losses.damaged_again);
        }
        // where that many were changed in the capture, so were those that seem to have been dropped
        let is_changed = taken.count >= ALL_CHANGED && dropped.count <= taken.count / 4;
        if is_changed {
            dropped = Tally::default();
        }
        // one that was damaged on the way to the capture may have been lost behind it besides
        is_sure &= !dropped.any() || !taken.any();
        let (n, were, them) = (dropped.count, was(dropped.count), them(dropped.count));
        before.add(
            &dropped,
            format_args!("{n} of {count} {way} {were} damaged before the capture point; the receiver dropped {them}"),
        );
        let (n, were, them) = (taken.count, was(taken.count), self::them(taken.count));
        behind.add(
            taken,
            format_args!(
                "{n} of {count} {way} {were} damaged on the way to the capture only; the receiver took {them} undamaged"
            ),
        );
        let left = losses.damaged.without(&[&dropped, taken]);
        if is_changed {
            let (n, have) = (left.count, if left.count == 1 { "has" } else { "have" });
            changed.add(
                &left,
                format_args!(
                    "{n} more of {count} {way} {have} a wrong checksum: changed in the capture, too, as it seems"
                ),
            );
            continue;
        }
        let (n, were, them) = (left.count, was(left.count), self::them(left.count));
        open.add(
            &left,
            format_args!(
                "{n} of {count} {way} {were} damaged; the capture does not show if the receiver dropped {them}"
            ),
        );
    }
    let certainty = if is_sure { Certainty::Certain } else { Certainty::IfNothingWasMissed };
    before.finish(rules.damaged, Blame::Network, certainty, emit);
    let as_note = &mut |finding: Finding| emit(finding.with_severity(Severity::Note));
    behind.finish(rules.damaged, Blame::Capture, Certainty::IfNothingWasMissed, as_note);
    changed.finish(rules.damaged, Blame::Capture, Certainty::Guess, as_note);
    open.finish(rules.damaged, Blame::Unknown, Certainty::Guess, emit);
    // wrong CRCs of packets that were taken all the same
    let unfinished = connection.health.icrc_bad.saturating_sub(all);
    if let (false, 1.., Some(first)) = (flow.is_tcp, unfinished, connection.icrc_first_bad) {
        let site = Site { connection: Some(connection.id), frame: first.frame, time_ns: first.time };
        let count = Many(unfinished, rules.unit);
        let text = alloc::format!(
            "the invariant CRC of {count} is wrong: captured before the adapter wrote it, or changed on the way"
        );
        emit(Finding::new(rules.damaged, Blame::Capture, site, Certainty::Guess, text).with_severity(Severity::Note));
    }
}

/// Reports packets that never came by, and that their receiver asked for in vain.
fn never_came(
    connection: &ConnectionState,
    by: End,
    missing: &NeverCame,
    rules: &Rules,
    emit: &mut impl FnMut(Finding),
) {
    /// Cause where packets of any size had come.
    const BROKEN: &str = "The way to the receiver drops them, or their sender does not send them again: a capture at the \
        sender shows which";
    let site = Site { connection: Some(connection.id), frame: missing.at.frame, time_ns: missing.at.time };
    let unit = if rules.unit == "segment" { "byte" } else { rules.unit };
    let (count, way) = (Many(missing.count.into(), unit), Direction(connection, by));
    let them = if missing.count == 1 { "it" } else { "them" };
    let never = format!("{count} {way} never came, and the receiver asked for {them} in vain");
    if missing.is_small {
        let arrived = missing.arrived;
        let text = format!("{never}; nothing that arrived has more than {arrived} bytes of payload");
        return emit(Finding::new(Rule::PathMtu, Blame::Network, site, Certainty::Guess, text));
    }
    let text = format!("{never}: lost before the capture point");
    let finding = Finding::new(Rule::RcGap, Blame::Network, site, Certainty::IfNothingWasMissed, text);
    emit(Finding { why: Some(BROKEN), ..finding });
}

/// Reports a packet that does not arrive however often it is sent, where it is larger than all that do, and its receiver
/// asks for it. Returns true if it did.
fn too_large(
    connection: &ConnectionState,
    by: End,
    stuck: Option<Stuck>,
    rules: &Rules,
    emit: &mut impl FnMut(Finding),
) -> bool {
    /// Bytes of payload that pass every network.
    const SMALL: u32 = 512;
    /// Times that a link which loses packets does not explain.
    const CERTAIN: u32 = 5;
    /// Times that a small packet behind it arrives, and it is lost, where a link that loses packets does not explain that.
    const OFTEN: u32 = 4;
    // one that asks for nothing may be gone
    let is_it = |stuck: &Stuck| stuck.length >= SMALL && stuck.arrived > 0 && stuck.asked > 0;
    let Some(stuck) = stuck.filter(|stuck| is_it(stuck) && connection.is_of_storage()) else { return false };
    if connection.missed.is_missing(by.peer(), stuck.first, stuck.last) {
        return false;
    }
    let is_new = stuck.length > stuck.arrived;
    let is_clear = is_new && stuck.is_small_behind && stuck.asked >= OFTEN && stuck.again >= CERTAIN;
    let is_sure = is_clear && !connection.missed.anything();
    let certainty = if is_sure { Certainty::IfNothingWasMissed } else { Certainty::Guess };
    let (way, unit, times) = (Direction(connection, by), rules.unit, stuck.again.saturating_add(1));
    let (arrived, length, last) = (stuck.arrived, stuck.length, stuck.last.frame);
    let before = if is_new {
        format!("no {unit} {way} with more than {arrived} bytes of payload arrived")
    } else {
        format!("{unit}s {way} with {length} bytes of payload no longer arrive")
    };
    let text = format!(
        "{before}: one with {length} was sent {times} times (the last in frame {last}), and its receiver asked for it"
    );
    let site = Site { connection: Some(connection.id), frame: stuck.first.frame, time_ns: stuck.first.time };
    let mut finding = Finding::new(Rule::PathMtu, Blame::Network, site, certainty, text);
    finding.last_time_ns = stuck.last.time;
    finding.frames.push(stuck.last);
    emit(finding);
    true
}

fn silent(
    connection: &ConnectionState,
    by: End,
    losses: &Losses,
    rules: &Rules,
    copies: u32,
    emit: &mut impl FnMut(Finding),
) {
    let Some(found) = losses.unanswered else { return };
    // an end of which nothing was captured may have sent a lot, and so may one that was captured from later on only; on
    // packets, connection management shows that both are in the capture
    let is_begun = !connection.is_over_tcp() && connection.opening.handshake == Handshake::Seen;
    if !is_begun && connection.missed.is_absent(by.peer()) {
        return;
    }
    let is_late = !is_begun && connection.missed.begins_after(by.peer(), found.from);
    if is_late || connection.missed.is_missing(by.peer(), found.from, found.to) {
        return;
    }
    // nor does one that had closed the connection answer any more
    let is_closed = |(closer, _, at): &(Option<End>, &str, At)| *closer == Some(by.peer()) && at.time <= found.to.time;
    if !found.answered && connection.closed.as_ref().is_some_and(is_closed) {
        return;
    }
    let site = Site { connection: Some(connection.id), frame: found.from.frame, time_ns: found.from.time };
    let (times, unit, lasted) = (found.times.div_ceil(copies), rules.unit, Milliseconds(found.lasted()));
    let (first, last) = (found.from.frame, found.to.frame);
    let farewells = connection.ends[by.index()].disconnects;
    let (severity, how) = match (found.answered, farewells) {
        (true, _) => (Severity::Warn, String::from("then it answered")),
        (false, 0) => (Severity::Error, String::from("and never answered")),
        (false, 1) => {
            (Severity::Error, String::from("it answered neither these nor the DREQ with which its peer gave up"))
        }
        (false, n) => {
            (Severity::Error, alloc::format!("it answered neither these nor the {n} DREQs with which its peer gave up"))
        }
    };
    let text = match found.speaks {
        Speaks::Not => alloc::format!(
            "sent nothing, not even an acknowledgment, for {lasted} (frames {first} to {last}), while its peer sent \
                the same {unit} {times} times; {how}"
        ),
        Speaks::Meanwhile => alloc::format!(
            "acknowledged nothing for {lasted} (frames {first} to {last}), while its peer sent the same {unit} \
                {times} times; it sent {unit}s of its own meanwhile; {how}"
        ),
        Speaks::Always => alloc::format!(
            "acknowledged nothing on this connection, although it sent {unit}s of its own; its peer sent the same \
                {unit} {times} times in {lasted} (frames {first} to {last})"
        ),
    };
    // a side that closes the connection later, or answers the side that does, was alive: the packets that it sent
    // meanwhile were lost; and a few tries alone may all have been lost
    let is_heard = |closer: Option<End>| closer != Some(by) || farewells == 0;
    let is_there = !found.answered
        && connection.closed.as_ref().is_some_and(|(closer, _, at)| at.time > found.to.time && is_heard(*closer));
    let is_lossy = losses.lost() + losses.unacknowledged.count + losses.unheard.count > 0;
    let is_chance = found.answered && is_lossy && times <= CHANCE_MAX;
    // packets that the capture does not have may show the reason
    let is_unknown = !found.answered && connection.missed.anything();
    // one that sends is there: what its peer sent may have been lost, or its acknowledgments
    let is_guess = match found.speaks {
        Speaks::Not => is_there || is_chance || is_unknown,
        Speaks::Meanwhile => true,
        Speaks::Always => is_unknown,
    };
    let certainty = if is_guess { Certainty::Guess } else { Certainty::IfNothingWasMissed };
    let mut finding = Finding::new(Rule::PeerSilent, blame(connection, by.peer()), site, certainty, text);
    finding = finding.with_severity(severity);
    finding.last_time_ns = found.to.time;
    emit(finding);
}

fn nagle(connection: &ConnectionState, by: End, losses: &Losses, emit: &mut impl FnMut(Finding)) {
    if losses.nagle.count < 2 {
        // once may be chance
        return;
    }
    let mut found = Both::new(connection);
    let (times, took) = (Many(losses.nagle.count, "time"), Milliseconds(losses.nagle_time));
    found.add(
        &losses.nagle,
        format_args!(
            "held data back until its peer's delayed acknowledgment came, {times}, {took} in all: TCP_NODELAY \
            is not set on it"
        ),
    );
    // a timer of the same length, after a loss, looks the same; and so does what was held up on its way
    let is_lossy = losses.lost() + losses.repeated.count > 0;
    let certainty = if is_lossy || losses.nagle_unproven { Certainty::Guess } else { Certainty::IfNothingWasMissed };
    found.finish(Rule::TcpNagle, blame(connection, by), certainty, emit);
}

fn held_up<'s>(
    connection: &ConnectionState,
    losses: impl Iterator<Item = (End, &'s Losses)>,
    emit: &mut impl FnMut(Finding),
) {
    let mut found = Both::new(connection);
    for (by, losses) in losses {
        let (count, way, took) =
            (Many(losses.held_up.count, "segment"), Direction(connection, by), Milliseconds(losses.held_up_time));
        found.add(
            &losses.held_up,
            format_args!(
                "{count} {way} passed the capture point later than the sender's own timestamps say, {took} in all: \
                a delay before the capture point"
            ),
        );
    }
    // two clocks are compared, the sender's and that of the capture: neither is certain
    found.finish(Rule::TcpHeld, Blame::Network, Certainty::Guess, emit);
}

fn blame(connection: &ConnectionState, end: End) -> Blame {
    match connection.roles.sure_client() {
        Some(client) if client == end => Blame::Client,
        Some(_) => Blame::Server,
        None => Blame::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::losses::Unanswered;
    use crate::flow::sizes::Sizes;
    use crate::roles::Source;
    use crate::summary::Transport;
    use alloc::string::ToString;
    use alloc::vec;
    use alloc::vec::Vec;

    const MS: i64 = 1_000_000;
    const SURE: Certainty = Certainty::IfNothingWasMissed;
    const GUESS: Certainty = Certainty::Guess;

    fn at(frame: u64) -> At {
        At { frame, time: frame as i64 * MS }
    }

    /// Something that happened so often.
    fn times(n: u64) -> Tally {
        let mut tally = Tally::default();
        tally.add(at(3), n);
        tally
    }

    type Change<'c> = &'c dyn Fn(&mut ConnectionState, &mut [Losses; 2], &mut LossView<'_>);

    /// Findings of a connection of which all was captured; end A is its client.
    fn findings(is_tcp: bool, change: Change<'_>) -> Vec<Finding> {
        let (mut connection, mut losses) = (ConnectionState::default(), [Losses::default(), Losses::default()]);
        End::BOTH.into_iter().for_each(|end| connection.missed.captured(end, At::default()));
        connection.transport = Some(if is_tcp { Transport::Iwarp } else { Transport::RoceV2 });
        connection.roles.learn(End::A, Source::Port);
        let mut view = LossView { is_tcp, ..LossView::default() };
        change(&mut connection, &mut losses, &mut view);
        let view = LossView { losses: [Some(&losses[0]), Some(&losses[1])], ..view };
        let mut found = Vec::new();
        add_losses(&connection, &view, &mut |finding| found.push(finding));
        found
    }

    fn told(is_tcp: bool, change: Change<'_>) -> Vec<(Rule, Certainty, String)> {
        findings(is_tcp, change).into_iter().map(|f| (f.rule, f.certainty, f.text)).collect()
    }

    /// Rules and certainty of what the losses of the client's packets give.
    fn rules(is_tcp: bool, change: impl Fn(&mut Losses)) -> Vec<(Rule, Certainty)> {
        told(is_tcp, &|_, losses, _| change(&mut losses[0]))
            .into_iter()
            .map(|(rule, certainty, _)| (rule, certainty))
            .collect()
    }

    #[test]
    fn where_packets_were_lost() {
        let text = |before: u64, behind: u64, repeated: u64, needless: u64, recovery: i64| {
            let found = told(false, &|_, losses, _| {
                let l = &mut losses[0];
                (l.lost_before, l.lost_behind, l.repeated, l.recovery, l.naks) =
                    (times(before), times(behind), times(repeated), recovery, 1);
                l.needless.count = needless;
            });
            found.first().map(|(rule, certainty, text)| (*rule, *certainty, text.clone()))
        };
        let lost = |text: &str| Some((Rule::RcRetransmit, SURE, text.to_string()));
        assert_eq!(text(0, 0, 1, 0, 1), None);
        let one = "1 packet from the client to the server was lost before the capture point, 1 packet sent again";
        assert_eq!(text(1, 0, 1, 0, 0), lost(one));
        let two = "2 packets from the client to the server were lost behind the capture point, 3 packets sent again, \
            2.0 ms of recovery";
        assert_eq!(text(0, 2, 5, 2, 2 * MS), lost(two));
        let both = "3 packets from the client to the server were lost on both sides of the capture point, 0 packets \
            sent again, 1.0 ms of recovery";
        assert_eq!(text(1, 2, 0, 0, MS), lost(both));
        // of both directions in one finding, the first of them first
        let found = findings(false, &|_, losses, _| {
            for (losses, frame) in losses.iter_mut().zip([9, 4]) {
                losses.lost_behind.add(at(frame), 2);
                losses.naks = 1;
            }
        });
        assert_eq!((found.len(), found[0].count, found[0].frame, found[0].last_time_ns), (1, 4, 4, 9 * MS));
        assert!(found[0].text.contains("; 2 packets from the server to the client were lost behind"));
    }

    #[test]
    fn how_sure_a_loss_is() {
        let lost = |is_tcp: bool, change: Change<'_>| {
            let found = told(is_tcp, change);
            assert!(found.iter().all(|(rule, ..)| {
                [Rule::RcRetransmit, Rule::TcpLoss, Rule::RcReorder, Rule::TcpReorder].contains(rule)
            }));
            found[0].1
        };
        // before the capture point: the receiver asked for it
        let before = |naks: u64, again: u64| {
            [false, true].map(|is_tcp| {
                lost(is_tcp, &|_, losses, _| {
                    (losses[0].lost_before, losses[0].naks, losses[0].asked_again) = (times(1), naks, again)
                })
            })
        };
        assert_eq!([before(0, 0), before(1, 0), before(0, 1)], [[GUESS; 2], [SURE; 2], [SURE; 2]]);
        // behind it: TCP's sender had a reason
        let behind = |naks: u64| {
            [false, true]
                .map(|is_tcp| lost(is_tcp, &|_, losses, _| (losses[0].lost_behind, losses[0].naks) = (times(1), naks)))
        };
        assert_eq!([behind(0), behind(1)], [[GUESS, SURE], [SURE; 2]]);
        // where the capture misses packets, those may have been there
        let missed = |is_tcp: bool, before: bool| {
            lost(is_tcp, &|connection, losses, _| {
                connection.missed.gap(End::B, at(1));
                let tally = if before { &mut losses[0].lost_before } else { &mut losses[0].lost_behind };
                (*tally, losses[0].naks) = (times(1), 1);
            })
        };
        assert_eq!(
            [missed(false, true), missed(false, false), missed(true, true), missed(true, false)],
            [GUESS, SURE, SURE, SURE]
        );
        // where packets are held up, requested ones may have been on their way
        for held_up in [
            |losses: &mut Losses| losses.overtaken = times(1),
            |losses: &mut Losses| losses.unclear = times(1),
            |losses: &mut Losses| losses.misplaced = times(1),
        ] {
            for is_tcp in [false, true] {
                let certainty = lost(is_tcp, &|_, losses, _| {
                    (losses[0].lost_behind, losses[0].naks) = (times(1), 1);
                    held_up(&mut losses[0]);
                });
                assert_eq!(certainty, GUESS);
            }
        }
        // a mirror may show what seems to be sent again
        let mirrored = lost(false, &|_, losses, view| {
            (losses[0].lost_behind, losses[0].naks) = (times(1), 1);
            view.may_be_mirrored = true;
        });
        assert_eq!(mirrored, GUESS);
    }

    #[test]
    fn what_was_not_acknowledged_in_time() {
        let text = |is_tcp: bool, is_heard: bool, count: u64| {
            let found = told(is_tcp, &|connection, losses, _| {
                if !is_heard {
                    connection.missed = crate::missed::Missed::default();
                    connection.missed.captured(End::A, At::default());
                }
                losses[0].unacknowledged = times(count);
            });
            found.into_iter().map(|(_, certainty, text)| (certainty, text)).next()
        };
        let packets = |n: &str, acks: &str| {
            Some((
                SURE,
                alloc::format!(
                    "{n} not acknowledged in time and sent again: {acks} to have been lost before the capture point"
                ),
            ))
        };
        assert_eq!(text(false, true, 0), None);
        assert_eq!(
            text(false, true, 1),
            packets("1 packet from the client to the server was", "its acknowledgment seems")
        );
        assert_eq!(
            text(false, true, 2),
            packets("2 packets from the client to the server were", "their acknowledgments seem")
        );
        let segments = "2 segments from the client to the server were not acknowledged in time and sent again: lost \
            behind the capture point, or the \
                        acknowledgment was lost before it";
        assert_eq!(text(true, true, 2), Some((SURE, segments.to_string())));
        assert_eq!(text(true, false, 2), Some((GUESS, alloc::format!("{segments}, or the receiver was slow"))));
        assert_eq!(rules(false, |losses| losses.unheard = times(1)), [(Rule::RcRetransmit, GUESS)]);
        assert_eq!(rules(false, |losses| losses.went_by = times(1)), [(Rule::RcRetransmit, GUESS)]);
    }

    #[test]
    fn how_sure_reordering_is() {
        let of = |is_tcp: bool, naks: u64, delay: i64, lost: u64, repeated: u64| {
            let found = told(is_tcp, &|_, losses, _| {
                (losses[0].overtaken, losses[0].naks, losses[0].delay) = (times(1), naks, delay);
                losses[0].repeated = times(repeated);
                losses[0].lost_before.count = lost;
            });
            let row = found.into_iter().find(|(rule, ..)| [Rule::RcReorder, Rule::TcpReorder].contains(rule));
            row.map(|(_, certainty, text)| (certainty, text.contains("the receiver answered with")))
        };
        let found = |is_tcp: bool, naks: u64, delay: i64, lost: u64| of(is_tcp, naks, delay, lost, naks);
        assert_eq!(found(false, 1, NEIGHBOURS, 0), Some((SURE, true)));
        assert_eq!(of(false, 1, NEIGHBOURS, 0, 0), Some((GUESS, false)), "it may be what was asked for");
        assert_eq!(found(false, 1, NEIGHBOURS - 1, 0), Some((GUESS, true)));
        assert_eq!(found(false, 0, NEIGHBOURS, 0), Some((GUESS, false)));
        assert_eq!(found(false, 1, NEIGHBOURS, 1), Some((GUESS, false)));
        assert_eq!(found(true, 0, 0, 0), Some((SURE, false)));
        assert_eq!(found(true, 0, 0, 1), Some((GUESS, false)));
        let absent = told(true, &|connection, losses, _| {
            connection.missed = crate::missed::Missed::default();
            connection.missed.captured(End::A, At::default());
            losses[0].overtaken = times(1);
        });
        assert_eq!(absent[0].1, GUESS);
        // out of order in the capture alone
        let stand = |count: u64| told(false, &|_, losses, _| losses[0].misplaced = times(count))[0].2.clone();
        assert!(stand(1).starts_with("1 packet from the client to the server stands out"));
        assert!(stand(2).starts_with("2 packets from the client to the server stand out"));
    }

    #[test]
    fn once_may_be_chance() {
        assert_eq!(rules(false, |losses| losses.needless = times(1)), [(Rule::RcSpurious, GUESS)]);
        assert_eq!(rules(false, |losses| losses.needless = times(2)), [(Rule::RcSpurious, SURE)]);
        assert_eq!(rules(true, |losses| losses.nagle = times(1)), []);
        assert_eq!(rules(true, |losses| losses.nagle = times(2)), [(Rule::TcpNagle, SURE)]);
        // a timer after a loss looks the same
        let lossy = |change: fn(&mut Losses)| {
            let found = rules(true, |losses| {
                losses.nagle = times(2);
                change(losses);
            });
            found.into_iter().find(|(rule, _)| *rule == Rule::TcpNagle)
        };
        assert_eq!(lossy(|losses| losses.repeated = times(1)), Some((Rule::TcpNagle, GUESS)));
        assert_eq!(lossy(|losses| losses.lost_before = times(1)), Some((Rule::TcpNagle, GUESS)));
        assert_eq!(rules(true, |losses| losses.held_up = times(1)), [(Rule::TcpHeld, GUESS)]);
        // both directions in one finding, each with its own number
        let held_up = findings(true, &|_, losses, _| {
            for (losses, (n, ms)) in losses.iter_mut().zip([(5, 100), (112, 900)]) {
                (losses.held_up, losses.held_up_time) = (times(n), ms * MS);
            }
        });
        let [found] = &held_up[..] else { panic!("{held_up:?}") };
        assert_eq!((found.rule, found.count), (Rule::TcpHeld, 117));
        assert!(
            found.text.starts_with("5 segments from the client to the server passed")
                && found.text.contains("; 112 segments from the server to the client passed"),
            "{}",
            found.text
        );
        let by = [0, 1].map(|end: usize| findings(false, &|_, losses, _| losses[end].needless = times(2))[0].by);
        assert_eq!(by, [Blame::Client, Blame::Server]);
        let unknown = findings(false, &|connection, losses, _| {
            connection.roles = crate::roles::Roles::default();
            losses[0].needless = times(2);
        });
        assert_eq!(unknown[0].by, Blame::Unknown);
    }

    /// A silence of the server, until frame 9.
    fn silence(times: u32, answered: bool) -> Option<Unanswered> {
        Some(Unanswered { from: at(4), to: at(9), times, answered, speaks: Speaks::Not })
    }

    #[test]
    fn how_sure_silence_is() {
        let silent = |tries: u32, change: fn(&mut Losses)| {
            let found = rules(false, |losses| {
                losses.unanswered = silence(tries, true);
                change(losses);
            });
            found.into_iter().find(|(rule, _)| *rule == Rule::PeerSilent).map(|(_, certainty)| certainty)
        };
        assert_eq!(silent(CHANCE_MAX, |_| {}), Some(SURE));
        let lossy: [fn(&mut Losses); 4] = [
            |losses| losses.lost_before = times(1),
            |losses| losses.lost_behind = times(1),
            |losses| losses.unacknowledged = times(1),
            |losses| losses.unheard = times(1),
        ];
        for lossy in lossy {
            assert_eq!([silent(CHANCE_MAX, lossy), silent(CHANCE_MAX + 1, lossy)], [Some(GUESS), Some(SURE)]);
        }
        // a mirror shows each of them twice
        let text = |is_mirrored: bool| {
            let found = told(false, &|_, losses, view| {
                losses[0].unanswered = silence(7, true);
                view.is_mirrored = is_mirrored;
            });
            found.into_iter().find(|(rule, ..)| *rule == Rule::PeerSilent).map(|(.., text)| text).unwrap_or_default()
        };
        assert!(
            text(false)
                .ends_with("for 5.0 ms (frames 4 to 9), while its peer sent the same packet 7 times; then it answered"),
            "{}",
            text(false)
        );
        assert!(text(true).ends_with("while its peer sent the same packet 4 times; then it answered"));
    }

    #[test]
    fn a_late_answer_to_a_read_may_be_one_that_was_lost_first() {
        let told = |change: fn(&mut Losses)| {
            let found = findings(true, &|connection, losses, _| {
                let (begin, end) = (at(1), Some(At { frame: 9, time: 901 * MS }));
                let (kind, cause, by) = (Kind::Idle, Cause::ReadResponse, Some(End::B));
                connection.episodes.add(Episode { kind, cause, by, begin, end, ..Episode::default() });
                change(&mut losses[1]);
            });
            let late = found.into_iter().find(|f| f.rule == Rule::RdmaReadSlow);
            late.map(|f| (f.by, f.certainty, f.text)).unwrap()
        };
        let text = "took 900 ms to answer an RDMA Read of its peer";
        assert_eq!(told(|_| {}), (Blame::Server, SURE, text.to_string()));
        assert_eq!(told(|losses| losses.lost_before = times(1)).1, GUESS);
        assert_eq!(told(|losses| losses.damaged = times(1)).1, GUESS);
    }

    #[test]
    fn who_answers_reads_late_again_and_again_is_late() {
        let told = |count: i64, took: i64| {
            let found = findings(true, &|connection, _, _| {
                for n in 0..count {
                    let begin = At { frame: 9, time: n * 1000 * MS };
                    let end = Some(At { frame: 9, time: begin.time + took * MS });
                    let (kind, cause, by) = (Kind::Idle, Cause::ReadResponse, Some(End::B));
                    connection.episodes.add(Episode { kind, cause, by, begin, end, ..Episode::default() });
                }
            });
            found.iter().filter(|f| f.rule == Rule::RdmaReadSlow).count()
        };
        assert_eq!([told(12, 300), told(4, 300), told(3, 300), told(2, 490), told(20, 90)], [1, 1, 0, 0, 0]);
        assert_eq!(told(12, 269), 0, "as long as a timer");
    }

    #[test]
    fn one_that_sends_packets_itself_is_not_silent() {
        let told = |speaks: Speaks, answered: bool, change: fn(&mut ConnectionState)| {
            let found = findings(false, &|connection, losses, _| {
                losses[0].unanswered = silence(8, answered).map(|found| Unanswered { speaks, ..found });
                change(connection);
            });
            found.into_iter().next().map(|f| (f.by, f.certainty, f.text)).unwrap()
        };
        let meanwhile = "acknowledged nothing for 5.0 ms (frames 4 to 9), while its peer sent the same packet 8 times; \
            it sent packets of its own meanwhile; and never answered";
        assert_eq!(told(Speaks::Meanwhile, false, |_| {}), (Blame::Server, GUESS, meanwhile.to_string()));
        let (_, certainty, text) = told(Speaks::Meanwhile, true, |_| {});
        assert_eq!((certainty, text.ends_with("meanwhile; then it answered")), (GUESS, true), "{text}");
        let always = "acknowledged nothing on this connection, although it sent packets of its own; its peer sent the \
            same packet 8 times in 5.0 ms (frames 4 to 9)";
        assert_eq!(told(Speaks::Always, false, |_| {}), (Blame::Server, SURE, always.to_string()));
        let missed = told(Speaks::Always, false, |connection| connection.missed.gap(End::A, at(1)));
        assert_eq!(missed.1, GUESS, "an acknowledgment may be among what the capture missed");
    }

    #[test]
    fn silence_for_good() {
        let silent = |closed: Option<(Option<End>, u64)>, farewells: u32, change: fn(&mut ConnectionState)| {
            let found = findings(false, &|connection, losses, _| {
                losses[0].unanswered = silence(7, false);
                connection.closed = closed.map(|(by, frame)| (by, "DREQ", at(frame)));
                connection.ends[0].disconnects = farewells;
                change(connection);
            });
            found.into_iter().next().map(|f| (f.by, f.severity, f.certainty))
        };
        let never = |certainty| Some((Blame::Server, Severity::Error, certainty));
        assert_eq!(silent(None, 0, |_| {}), never(SURE));
        // who had closed the connection answers no more
        assert_eq!(silent(Some((Some(End::B), 9)), 0, |_| {}), None);
        // who closes it later was alive, and so was who answers that
        assert_eq!(silent(Some((Some(End::B), 10)), 0, |_| {}), never(GUESS));
        assert_eq!(silent(Some((Some(End::A), 10)), 0, |_| {}), never(GUESS));
        assert_eq!(silent(Some((Some(End::A), 10)), 1, |_| {}), never(SURE), "no answer to that, either");
        assert_eq!(silent(Some((Some(End::A), 9)), 0, |_| {}), never(SURE), "while it was silent");
        // packets that the capture does not have may show why
        assert_eq!(silent(None, 0, |connection| connection.missed.gap(End::A, at(1))), never(GUESS));
        let absent = |connection: &mut ConnectionState| connection.missed = crate::missed::Missed::default();
        assert_eq!(silent(None, 0, absent), None);
        let how = |farewells: u32| {
            let found = told(false, &|connection, losses, _| {
                losses[0].unanswered = silence(7, false);
                connection.ends[0].disconnects = farewells;
            });
            found[0].2.split("; ").last().unwrap_or_default().to_string()
        };
        assert_eq!(how(0), "and never answered");
        assert_eq!(how(1), "it answered neither these nor the DREQ with which its peer gave up");
        assert_eq!(how(2), "it answered neither these nor the 2 DREQs with which its peer gave up");
    }

    /// A packet with so many bytes that goes out again so often, after one with 100 arrived and before another; its
    /// receiver asks for it so often.
    fn stuck(length: u32, again: u64, asked: u32) -> Option<Stuck> {
        let mut sizes = Sizes::default();
        sizes.sent((1, 1), 100);
        sizes.arrived(1);
        sizes.sent((2, 2), length);
        sizes.sent((3, 3), 50);
        for n in 0..again {
            sizes.again(at(10 + n), (2, 2), length);
            if n < u64::from(asked) {
                sizes.asked(2);
            }
        }
        sizes.stuck()
    }

    #[test]
    fn a_packet_that_never_arrives_is_too_large_where_its_receiver_asks_for_it() {
        let found = |packet: Option<Stuck>| {
            told(false, &|_, losses, view| (view.stuck[0], losses[0].unanswered) = (packet, silence(7, false)))
        };
        let rules = |packet: Option<Stuck>| {
            found(packet).into_iter().map(|(rule, certainty, _)| (rule, certainty)).collect::<Vec<_>>()
        };
        let (large, silent) = (|certainty| vec![(Rule::PathMtu, certainty)], vec![(Rule::PeerSilent, SURE)]);
        assert_eq!(rules(stuck(4096, 5, 4)), large(SURE));
        assert_eq!([rules(stuck(4096, 4, 4)), rules(stuck(4096, 5, 3))], [large(GUESS), large(GUESS)], "chance");
        assert_eq!(rules(stuck(511, 5, 4)), silent, "that passes everywhere");
        assert_eq!(rules(stuck(4096, 5, 0)), silent, "it may be gone");
        assert_eq!(
            found(stuck(4096, 5, 4))[0].2,
            "no packet from the client to the server with more than 100 bytes of payload arrived: one with 4096 was \
             sent 6 times (the last in frame 14), and its receiver asked for it"
        );
        let before = stuck(4096, 5, 4).map(|stuck| Stuck { arrived: 4096, ..stuck });
        assert_eq!(rules(before), large(GUESS));
        assert!(
            found(before)[0]
                .2
                .starts_with("packets from the client to the server with 4096 bytes of payload no longer")
        );
    }

    #[test]
    fn packets_that_never_came_by() {
        let found = |is_tcp: bool, count: u32, is_small: bool| {
            let never = NeverCame { at: at(9), count, arrived: 100, is_small };
            let found = findings(is_tcp, &|_, _, view| view.never_came[1] = Some(never));
            found.into_iter().map(|f| (f.rule, f.by, f.certainty, f.text)).collect::<Vec<_>>()
        };
        let text = "16 packets from the server to the client never came, and the receiver asked for them in vain";
        assert_eq!(
            found(false, 16, false),
            [(Rule::RcGap, Blame::Network, SURE, format!("{text}: lost before the capture point"))]
        );
        let small = "; nothing that arrived has more than 100 bytes of payload";
        assert_eq!(found(false, 16, true), [(Rule::PathMtu, Blame::Network, GUESS, format!("{text}{small}"))]);
        assert!(found(true, 1, false)[0].3.starts_with("1 byte from the server to the client never came"));
        let other = findings(true, &|connection, _, view| {
            connection.transport = Some(Transport::Tcp);
            view.never_came[1] = Some(NeverCame { at: at(9), count: 16, arrived: 100, is_small: true });
        });
        assert_eq!(other.len(), 0, "a TCP connection without storage");
    }

    #[test]
    fn damage_is_counted_once() {
        let found = |damaged: u64, all: u64, is_tcp: bool| {
            told(is_tcp, &|connection, losses, view| {
                (losses[0].damaged, losses[0].damaged_dropped) = (times(damaged), times(damaged));
                (connection.health.icrc_bad, connection.icrc_first_bad) = (all, Some(at(2)));
                view.good = [8, 0];
            })
        };
        let two = "2 of 10 packets from the client to the server were damaged before the capture point; the receiver \
            dropped them";
        let two = two.to_string();
        assert_eq!(found(2, 2, false), [(Rule::RcIcrc, Certainty::Certain, two.clone())]);
        let one = "1 of 9 packets from the client to the server was damaged before the capture point; the receiver \
            dropped it";
        assert_eq!(found(1, 1, false)[0].2, one);
        // others that the receiver took all the same
        let taken =
            "the invariant CRC of 1 packet is wrong: captured before the adapter wrote it, or changed on the way";
        assert_eq!(
            found(2, 3, false),
            [(Rule::RcIcrc, Certainty::Certain, two), (Rule::RcIcrc, GUESS, taken.to_string())]
        );
        assert_eq!(found(0, 1, false), [(Rule::RcIcrc, GUESS, taken.to_string())]);
        assert_eq!(found(0, 0, false), []);
        assert_eq!(found(0, 1, true), []);
    }

    #[test]
    fn where_damage_happened() {
        let found = |counts: [u64; 4]| {
            let found = findings(false, &|connection, losses, view| {
                let [all, dropped, again, taken] = counts.map(times);
                (losses[0].damaged, losses[0].damaged_dropped) = (all, dropped);
                (losses[0].damaged_again, losses[0].damaged_taken) = (again, taken);
                connection.health.icrc_bad = counts[0];
                view.good = [8, 0];
            });
            found.into_iter().map(|f| (f.by, f.severity, f.certainty, f.text)).collect::<Vec<_>>()
        };
        let told = |by: Blame, severity: Severity, certainty: Certainty, text: &str| {
            (by, severity, certainty, text.to_string())
        };
        let before = |certainty: Certainty, text: &str| told(Blame::Network, Severity::Warn, certainty, text);
        let open = |text: &str| told(Blame::Unknown, Severity::Warn, GUESS, text);
        let certain = Certainty::Certain;
        assert_eq!(found([0; 4]), []);
        let two = "2 of 10 packets from the client to the server were damaged on the way to the capture only; the \
            receiver took them undamaged";
        assert_eq!(found([2, 0, 0, 2]), [told(Blame::Capture, Severity::Note, SURE, two)]);
        let one = "1 of 9 packets from the client to the server was damaged; the capture does not show if the receiver \
            dropped it";
        assert_eq!([found([1, 0, 0, 0]), found([1, 0, 1, 0])], [[open(one)], [open(one)]]);
        // with one that the receiver dropped, those that went again with it are no others
        let three = "3 of 11 packets from the client to the server were damaged before the capture point; the receiver \
            dropped them";
        assert_eq!(found([3, 1, 2, 0]), [before(certain, three)]);
        // both, and some of which nothing shows
        let all: Vec<Blame> = found([6, 1, 2, 2]).into_iter().map(|(by, ..)| by).collect();
        assert_eq!(all, [Blame::Network, Blame::Capture, Blame::Unknown]);
        assert_eq!(found([6, 1, 2, 2])[0].2, SURE);
        let three = "3 of 14 packets from the client to the server were damaged; the capture does not show if the \
            receiver dropped them";
        assert_eq!(found([6, 1, 2, 2])[2].3, three);
    }

    #[test]
    fn contents_that_were_changed_in_the_capture_are_no_damage() {
        let found = |counts: [u64; 3], good: u32, is_tcp: bool| {
            let found = findings(is_tcp, &|_, losses, view| {
                let [all, dropped, taken] = counts.map(times);
                (losses[0].damaged, losses[0].damaged_dropped, losses[0].damaged_taken) = (all, dropped, taken);
                view.good = [good, 0];
            });
            found.into_iter().map(|f| (f.by, f.severity, f.text)).collect::<Vec<_>>()
        };
        let note = |text: &str| (Blame::Capture, Severity::Note, text.to_string());
        let all = "all 9 packets from the client to the server have a wrong CRC: they were changed after they had been \
            captured";
        assert_eq!(found([9, 2, 3], 0, false), [note(all)]);
        let segments = "all 9 data segments from the client to the server have a wrong checksum: they were changed after \
            they had been captured";
        assert_eq!(found([9, 2, 3], 2, true), [note(segments)], "SYN and FIN have no contents");
        let sides = |counts, good| found(counts, good, false).into_iter().map(|(by, ..)| by).collect::<Vec<_>>();
        assert_eq!(sides([7, 2, 3], 0), [Blame::Network, Blame::Capture, Blame::Unknown], "too few to tell");
        // not all of them are wrong, but many were taken
        assert_eq!(sides([11, 2, 8], 5), [Blame::Capture, Blame::Capture]);
        assert_eq!(sides([12, 3, 8], 5), [Blame::Network, Blame::Capture, Blame::Unknown]);
    }

    #[test]
    fn losses_among_the_copies_of_a_mirror_are_a_guess() {
        let told = |before: u64, behind: u64, needless: u64, is_tcp: bool| {
            let found = findings(is_tcp, &|_, losses, view| {
                (losses[0].lost_before, losses[0].lost_behind) = (times(before), times(behind));
                losses[0].needless = times(needless);
                view.is_mirrored = true;
            });
            let is_loss = |f: &&Finding| [Rule::TcpLoss, Rule::RcRetransmit].contains(&f.rule);
            let loss = found.iter().find(is_loss).map(|f| (f.by, f.certainty, f.count, f.text.clone()));
            (found.iter().any(|f| f.rule == Rule::RcDuplicate), loss)
        };
        let loss = |count: u64, text: &str| {
            let text = alloc::format!("{text} to have been lost and sent again, as far as a mirror's copies show");
            (true, Some((Blame::Network, GUESS, count, text)))
        };
        assert_eq!(told(1, 0, 9, true), loss(1, "1 segment from the client to the server seems"));
        assert_eq!(told(0, 2, 9, true), loss(2, "2 segments from the client to the server seem"));
        assert_eq!(told(1, 2, 9, true), loss(3, "3 segments from the client to the server seem"));
        assert_eq!([told(0, 0, 9, true), told(1, 2, 9, false)], [(true, None), (true, None)]);
    }

    #[test]
    fn packets_that_a_mirror_shows_more_than_twice() {
        let text = |count: u64| {
            let thrice = [times(count), Tally::default()];
            let (mut found, mut connection) = (Vec::new(), ConnectionState::default());
            connection.roles.learn(End::A, Source::Port);
            let view = LossView { is_mirrored: true, thrice: Some(&thrice), ..LossView::default() };
            add_losses(&connection, &view, &mut |finding| found.push((finding.rule, finding.text)));
            assert_eq!(found.pop().map(|(rule, _)| rule), Some(Rule::RcDuplicate));
            found.into_iter().next().map(|(_, text)| text)
        };
        let again = |n: &str| {
            Some(alloc::format!("{n} in the capture more than twice: lost and sent again, or sent again without need"))
        };
        let (one, two) =
            ("1 packet from the client to the server stands", "2 packets from the client to the server stand");
        assert_eq!([0, 1, 2, 3].map(text), [None, again(one), again(one), again(two)]);
    }

    #[test]
    fn times_that_a_timer_takes() {
        // 4.096 µs × 2^20, and the part by which it may be late
        let longest = 4096i64 << 20;
        let part = longest / 32;
        assert_eq!(
            [longest - 1, longest, longest + part, longest + part + 1].map(is_like_a_timer),
            [false, true, true, false]
        );
        // twice and three times as long
        assert_eq!(
            [2 * longest - 1, 2 * longest, 3 * longest, 4 * longest].map(is_like_a_timer),
            [false, true, true, false]
        );
        // 200 ms of TCP, and its doubles
        let ms = |ms: i64| ms * MS;
        assert_eq!([ms(200), ms(400), ms(600), ms(6400), ms(19_200)].map(is_like_a_timer), [true; 5]);
        assert_eq!([ms(199), ms(210), ms(1000), ms(26_000)].map(is_like_a_timer), [false; 4]);
        assert_eq!([2_097_151, 2_097_152].map(is_like_a_timer), [false, true], "4.096 µs × 2^9");
    }

    #[test]
    fn how_a_slow_server_is_told() {
        // how long each request took, and its command; all of the time was the server's
        let slow = |all: &[(i64, &'static str)], is_troubled: bool| {
            let mut connection = ConnectionState::default();
            connection.roles.learn(End::A, Source::Port);
            let long = |(frame, (ms, command)): (u64, &(i64, &'static str))| {
                let latency = ms * MS;
                Long {
                    command,
                    latency,
                    replier: End::B,
                    reply: at(frame),
                    server: latency,
                    is_unheard: false,
                    counts: true,
                    failed: false,
                }
            };
            let all: Vec<Long> = (3..).zip(all).map(long).collect();
            let mut found = Vec::new();
            let with_medians = all.iter().map(|long| (long, Usual { median: MS, of_all: false }));
            slow_of(&connection, Rule::Smb2Slow, End::B, with_medians, is_troubled, &mut |f| {
                found.push((f.by, f.certainty, f.text))
            });
            found.into_iter().next()
        };
        let told =
            |certainty, text: &str| Some((Blame::Server, certainty, alloc::format!("{text}; the median is 1.0 ms")));
        assert_eq!(slow(&[], false), None);
        assert_eq!(slow(&[(50, "READ")], false), told(SURE, "took 50 ms for a READ"));
        assert_eq!(
            slow(&[(50, "READ"), (60, "WRITE"), (55, "READ")], false),
            told(SURE, "took up to 60 ms for a WRITE")
        );
        assert_eq!(
            slow(&[(60, "READ"), (60, "WRITE")], false),
            told(SURE, "took up to 60 ms for a READ"),
            "the first of them"
        );
        assert_eq!(slow(&[(50, "READ")], true), told(GUESS, "took 50 ms for a READ"));
        // one or two that took as long as a timer may have been lost and sent again; of more, `Commands::slow` knows
        let read = (200, "READ");
        assert_eq!(slow(&[read], false), told(GUESS, "took 200 ms for a READ"));
        assert_eq!(slow(&[read; 2], false), told(GUESS, "took up to 200 ms for a READ"));
        assert_eq!(slow(&[read; 3], false), told(SURE, "took up to 200 ms for a READ"));
    }

    #[test]
    fn what_makes_a_slow_server_doubtful() {
        let credits = |stalls: u64, held_min: Option<i64>| {
            let mut side = link::Side::default();
            (side.stalls, side.held_min) = (stalls, held_min);
            is_short(&side)
        };
        assert_eq!([credits(0, None), credits(1, None)], [false, true]);
        assert_eq!([0, 1, 2].map(|held| credits(0, Some(held))), [true, true, false]);
        let disturbed = |change: fn(&mut Losses)| {
            let mut losses = Losses::default();
            change(&mut losses);
            is_disturbed(&losses)
        };
        assert!(!disturbed(|_| {}) && !disturbed(|l| l.repeated = times(1)));
        let causes: [fn(&mut Losses); 6] = [
            |l| l.overtaken = times(1),
            |l| l.unclear = times(1),
            |l| l.misplaced = times(1),
            |l| l.unacknowledged = times(1),
            |l| l.lost_before = times(1),
            |l| l.lost_behind = times(1),
        ];
        assert_eq!(causes.map(disturbed), [true; 6]);
    }

    #[test]
    fn words_for_numbers() {
        assert_eq!([0, 1, 2].map(was), ["were", "was", "were"]);
        assert_eq!([0, 1, 2].map(them), ["them", "it", "them"]);
        assert_eq!([0, 1, 2].map(|n| Many(n, "packet").to_string()), ["0 packets", "1 packet", "2 packets"]);
        assert_eq!(
            (RecoveryTime(0).to_string(), RecoveryTime(MS).to_string()),
            (String::new(), ", 1.0 ms of recovery".to_string())
        );
        assert_ne!(RecoveryTime(1).to_string(), "");
        let way = |end: End| {
            let mut connection = ConnectionState::default();
            connection.roles.learn(end, Source::Port);
            End::BOTH.map(|by| Direction(&connection, by).to_string())
        };
        assert_eq!(way(End::A), ["from the client to the server", "from the server to the client"]);
        assert_eq!(way(End::B), ["from the server to the client", "from the client to the server"]);
    }
}
