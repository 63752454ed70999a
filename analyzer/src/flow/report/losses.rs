//! Loss, damage, reordering and silence of a connection, reported once when it ends or on request. One
//! finding a rule, both directions in it.

use super::Many;
use crate::connection::ConnectionState;
use crate::episodes::cost::{cost_in, is_of_the_wire};
use crate::finding::{Blame, Certainty, Finding, Rule, Severity, Site};
use crate::flow::losses::{LossView, Losses, Tally};
use crate::messages::smbd::link;
use crate::op::{At, End};
use crate::stats::Long;
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

const RC: Rules =
    Rules { unit: "packet", lost: Rule::RcRetransmit, overtaken: Rule::RcReorder, needless: Rule::RcSpurious, damaged: Rule::RcIcrc };
const TCP: Rules =
    Rules { unit: "segment", lost: Rule::TcpLoss, overtaken: Rule::TcpReorder, needless: Rule::TcpSpurious, damaged: Rule::TcpChecksum };

/// Tries that a link which loses packets may swallow by chance.
const CHANCE_MAX: u32 = 5;
/// ns by which packets of a capture may be out of order that were sent in order.
const NEIGHBOURS: i64 = 10_000;
/// Parts of a retransmission timer by which a slow reply may differ from it and still be one that was lost and sent again.
const TIMER_PART: i64 = 32;

/// From whom to whom.
struct Direction<'c>(&'c ConnectionState, End);

impl fmt::Display for Direction<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(connection, by) = self;
        match connection.roles.sure_client() {
            Some(client) if client == *by => f.write_str("from the client to the server"),
            Some(_) => f.write_str("from the server to the client"),
            None => {
                f.write_str("from ")?;
                crate::summary::show_address(&connection.peers[by.index()].address, f)?;
                f.write_str(" to ")?;
                crate::summary::show_address(&connection.peers[by.peer().index()].address, f)
            }
        }
    }
}

/// How long recovery took, in ns, as the end of a clause; nothing where the clock of the capture shows no time.
struct RecoveryTime(i64);

impl fmt::Display for RecoveryTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 > 0 { write!(f, ", {} of recovery", Milliseconds(self.0)) } else { Ok(()) }
    }
}

fn was(n: u64) -> &'static str {
    if n == 1 { "was" } else { "were" }
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
        tally.frames.iter().for_each(|frame| self.tally.frames.push(*frame));
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
    let emit = &mut |finding: Finding| {
        // a repair that cost no request anything is only a note
        let is_free = answered && is_of_the_wire(finding.rule) && cost_in(&sums, finding.rule, None) == 0;
        emit(if is_free { finding.with_severity(Severity::Note) } else { finding });
    };
    let is_disturbed = |l: &Losses| l.overtaken.any() || l.unclear.any() || l.misplaced.any() || l.unacknowledged.any() || l.lost() > 0;
    let is_troubled = connection.health.is_troubled() || connection.missed.any() || losses().any(|(_, l)| is_disturbed(l));
    slow(connection, is_troubled, emit);
    if flow.are_copies_known {
        mirrored(connection, emit);
    } else if flow.is_mirrored {
        damaged(connection, flow, losses(), rules, emit);
        // packets that a mirror shows twice were sent once
        losses().for_each(|(by, losses)| silent(connection, by, losses, rules, 2, emit));
        if let Some(thrice) = flow.thrice {
            sent_again(connection, thrice, rules, emit);
        }
        return mirrored(connection, emit);
    }
    let emit = &mut |finding: Finding| {
        // packets that appear again may be a mirror's
        let rests_on_copies = [rules.lost, rules.overtaken, rules.needless].contains(&finding.rule);
        let doubted =
            flow.may_be_mirrored && !flow.are_copies_known && rests_on_copies && finding.certainty == Certainty::IfNothingWasMissed;
        emit(if doubted { Finding { certainty: Certainty::Guess, ..finding } } else { finding });
    };
    lost(connection, losses(), rules, emit);
    overtaken(connection, losses(), rules, emit);
    misplaced(connection, losses(), rules, emit);
    needless(connection, losses(), rules, emit);
    damaged(connection, flow, losses(), rules, emit);
    for (by, losses) in losses() {
        silent(connection, by, losses, rules, 1, emit);
        nagle(connection, by, losses, emit);
        held_up(connection, by, losses, emit);
    }
}

/// Reports requests that the server itself was slow to answer: those that no lower layer held up.
fn slow(connection: &ConnectionState, is_troubled: bool, emit: &mut impl FnMut(Finding)) {
    let (smb2, rpc) = connection.commands();
    let smb2 = smb2.map(|commands| (Rule::Smb2Slow, commands));
    let rpc = rpc.map(|commands| (Rule::RpcSlow, commands));
    for (rule, commands) in smb2.into_iter().chain(rpc) {
        for replier in End::BOTH {
            let (mut tally, mut longest) = (Tally::default(), None::<(&Long, i64)>);
            for (long, median) in commands.slow().filter(|(long, _)| long.replier == replier) {
                tally.add(long.reply, 1);
                if longest.is_none_or(|(known, _)| known.latency < long.latency) {
                    longest = Some((long, median));
                }
            }
            let Some((long, median)) = longest else { continue };
            let (took, usual, command) = (Milliseconds(long.latency), Milliseconds(median), long.command);
            let mut found = Both::new(connection);
            if tally.count == 1 {
                found.add(&tally, format_args!("took {took} for a {command}; the median is {usual}"));
            } else {
                found.add(&tally, format_args!("took up to {took} for a {command}; the median is {usual}"));
            }
            // with packets lost, its first packet may have been lost too, and no later one shows that
            let is_alike = tally.count <= 2 && is_like_a_timer(long.server);
            // a request that was acknowledged with the reply at the earliest may have been held up on its way to the
            // server; and a reply may have waited behind others for credits
            let is_short = |side: &link::Side| side.stalls > 0 || side.is_starved() || side.held_min.is_some_and(|held| held <= 1);
            let is_held_up = long.is_unheard || connection.smbd().is_some_and(|smbd| is_short(smbd.link.side(replier)));
            let certainty = if is_troubled || is_alike || is_held_up { Certainty::Guess } else { Certainty::IfNothingWasMissed };
            found.finish(rule, blame(connection, replier), certainty, emit);
        }
    }
}

/// True if something took as long as a retransmission timer, or two or three times as long: 4.096 µs × 2^n on RC (IBTA
/// 9.7.6.1.3), 200 ms and its doubles on TCP. A reply that was lost before the capture point comes then.
fn is_like_a_timer(took: i64) -> bool {
    let is_near = |timer: i64| took >= timer && took - timer <= timer / TIMER_PART;
    let rc = (9..21).map(|n| 4096i64 << n);
    let tcp = (0..6).map(|n| 200_000_000i64 << n);
    rc.chain(tcp).any(|timer| (1..=3).any(|times| is_near(timer * times)))
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
        let mut both = if before == 0 { losses.lost_behind.clone() } else { losses.lost_before.clone() };
        if before > 0 {
            both.add(losses.lost_behind.first, behind);
        }
        let (count, were, way) = (Many(before + behind, rules.unit), was(before + behind), Direction(connection, by));
        let place = match (before, behind) {
            (_, 0) => "before the capture point",
            (0, _) => "behind the capture point",
            _ => "on both sides of the capture point",
        };
        let again = Many(losses.repeated.count.saturating_sub(losses.needless.count), rules.unit);
        let took = RecoveryTime(losses.recovery);
        // if the capture loses packets, unseen ones may have been there, unless their receiver asked for them
        let is_asked = losses.naks + losses.asked_again > 0;
        let is_sure = !is_held_up && is_asked && (before == 0 || rules.unit == "segment" || !connection.missed.any());
        let is_sure = is_sure || !is_held_up && rules.unit == "segment" && before == 0;
        let lost = if is_sure { &mut found } else { &mut unsure };
        lost.add(&both, format_args!("{count} {way} {were} lost {place}, {again} sent again{took}"));
        // the packets of an end that was not captured are unknown
        let is_heard = !connection.missed.is_absent(by.peer());
        let (late, slow) =
            if is_heard { (losses.unacknowledged.clone(), &losses.unheard) } else { (Tally::default(), &losses.unacknowledged) };
        let (count, were) = (Many(late.count, rules.unit), was(late.count));
        let acks = if late.count == 1 { "its acknowledgment seems" } else { "their acknowledgments seem" };
        match rules.unit {
            // of packets, only those after which the receiver went on are counted
            "packet" => found.add(
                &late,
                format_args!(
                    "{count} {way} {were} not acknowledged in time and sent again{took}: {acks} to have been lost \
                     before the capture point"
                ),
            ),
            _ => found.add(
                &late,
                format_args!(
                    "{count} {way} {were} not acknowledged in time and sent again{took}: lost behind the capture point, or \
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
                    "{count} {way} {were} not acknowledged in time and sent again{took}: lost behind the capture point, or \
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
        // neighbours change places in captures, too
        let is_far = rules.unit == "segment" || losses.delay >= NEIGHBOURS;
        let is_sure = noticed && is_far && losses.lost() == 0 && !connection.missed.any() && !connection.missed.is_absent(by.peer());
        let found = if is_sure { &mut sure } else { &mut unsure };
        let late = losses.overtaken.count;
        let (count, were, way) = (Many(late, rules.unit), was(late), Direction(connection, by));
        let delay = Milliseconds(losses.delay);
        if losses.naks > 0 && losses.lost() == 0 {
            let (naks, again) = (Many(losses.naks, "NAK"), Many(losses.repeated.count, rules.unit));
            found.add(
                &losses.overtaken,
                format_args!(
                    "{count} {way} {were} overtaken, by {delay} at most; the receiver answered with {naks}, and {again} were sent again \
                    needlessly"
                ),
            );
        } else {
            found.add(&losses.overtaken, format_args!("{count} {way} {were} overtaken, by {delay} at most"));
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
        let (count, went, way) = (Many(copies, rules.unit), if copies == 1 { "stands" } else { "stand" }, Direction(connection, by));
        found.add(
            tally,
            format_args!("{count} {way} {went} in the capture more than twice: lost and sent again, or sent again without need"),
        );
    }
    found.finish(rules.lost, Blame::Network, Certainty::Guess, emit);
}

fn mirrored(connection: &ConnectionState, emit: &mut impl FnMut(Finding)) {
    let At { frame, time } = connection.first;
    let site = Site { connection: Some(connection.id), frame, time_ns: time };
    let text = "every packet is in the capture twice: a mirror shows it on two ports, or there were two capture points";
    emit(Finding::new(Rule::RcDuplicate, Blame::Capture, site, Certainty::IfNothingWasMissed, text));
}

fn misplaced<'s>(
    connection: &ConnectionState,
    losses: impl Iterator<Item = (End, &'s Losses)>,
    rules: &Rules,
    emit: &mut impl FnMut(Finding),
) {
    let mut found = Both::new(connection);
    for (by, losses) in losses {
        let (count, way) = (Many(losses.misplaced.count, rules.unit), Direction(connection, by));
        let stand = if losses.misplaced.count == 1 { "stands" } else { "stand" };
        found.add(&losses.misplaced, format_args!("{count} {way} {stand} out of order in the capture; the receiver had them in order"));
    }
    found
        .finish(rules.overtaken, Blame::Capture, Certainty::IfNothingWasMissed, &mut |finding| emit(finding.with_severity(Severity::Note)));
}

fn needless<'s>(
    connection: &ConnectionState,
    losses: impl Iterator<Item = (End, &'s Losses)>,
    rules: &Rules,
    emit: &mut impl FnMut(Finding),
) {
    for (by, losses) in losses {
        let mut found = Both::new(connection);
        let count = Many(losses.needless.count, rules.unit);
        found.add(&losses.needless, format_args!("sent {count} again although its peer had them: nothing was lost"));
        // once may be a copy that the network made, or the acknowledgment stands too early in the capture
        let is_once = losses.needless.count < 2;
        let certainty = if is_once { Certainty::Guess } else { Certainty::IfNothingWasMissed };
        found.finish(rules.needless, blame(connection, by), certainty, emit);
    }
}

fn damaged<'s>(
    connection: &ConnectionState,
    flow: &LossView<'_>,
    losses: impl Iterator<Item = (End, &'s Losses)>,
    rules: &Rules,
    emit: &mut impl FnMut(Finding),
) {
    let mut found = Both::new(connection);
    let mut all = 0;
    for (by, losses) in losses {
        let bad = losses.damaged.count;
        all += bad;
        let (count, were, way) = (Many(bad + u64::from(flow.good[by.index()]), rules.unit), was(bad), Direction(connection, by));
        found.add(
            &losses.damaged,
            format_args!("{bad} of {count} {way} {were} damaged before the capture point; the receiver dropped them"),
        );
    }
    found.finish(rules.damaged, Blame::Network, Certainty::Certain, emit);
    // wrong CRCs of packets that were taken all the same
    let unfinished = connection.health.icrc_bad.saturating_sub(all);
    if let (false, 1.., Some(first)) = (flow.is_tcp, unfinished, connection.icrc_first_bad) {
        let site = Site { connection: Some(connection.id), frame: first.frame, time_ns: first.time };
        let count = Many(unfinished, rules.unit);
        let text = alloc::format!("the invariant CRC of {count} is wrong: captured before the adapter wrote it, or changed on the way");
        emit(Finding::new(rules.damaged, Blame::Capture, site, Certainty::Guess, text).with_severity(Severity::Note));
    }
}

fn silent(connection: &ConnectionState, by: End, losses: &Losses, rules: &Rules, copies: u32, emit: &mut impl FnMut(Finding)) {
    // an end of which nothing was captured may have sent a lot
    let Some(found) = losses.unanswered.filter(|_| !connection.missed.is_absent(by.peer())) else { return };
    // nor does one that had closed the connection answer any more
    let is_closed = |(closer, _, at): &(Option<End>, &str, At)| *closer == Some(by.peer()) && at.time <= found.to.time;
    if !found.answered && connection.closed.as_ref().is_some_and(is_closed) {
        return;
    }
    let site = Site { connection: Some(connection.id), frame: found.from.frame, time_ns: found.from.time };
    let (times, unit, lasted) = (found.times.div_ceil(copies), rules.unit, Milliseconds(found.lasted()));
    let (first, last) = (found.from.frame, found.to.frame);
    let farewells = connection.disconnects[by.index()];
    let (severity, how) = match (found.answered, farewells) {
        (true, _) => (Severity::Warn, String::from("then it answered")),
        (false, 0) => (Severity::Error, String::from("and never answered")),
        (false, 1) => (Severity::Error, String::from("it answered neither these nor the DREQ with which its peer gave up")),
        (false, n) => (Severity::Error, alloc::format!("it answered neither these nor the {n} DREQs with which its peer gave up")),
    };
    let text = alloc::format!(
        "sent nothing, not even an acknowledgment, for {lasted} (frames {first} to {last}), while its peer sent the same {unit} {times} \
        times; {how}"
    );
    // a side that closes the connection later, or answers the side that does, was alive: the packets that it sent
    // meanwhile were lost; and a few tries alone may all have been lost
    let is_heard = |closer: Option<End>| closer != Some(by) || farewells == 0;
    let is_there =
        !found.answered && connection.closed.as_ref().is_some_and(|(closer, _, at)| at.time > found.to.time && is_heard(*closer));
    let is_lossy = losses.lost() + losses.unacknowledged.count + losses.unheard.count > 0;
    let is_chance = found.answered && is_lossy && times <= CHANCE_MAX;
    // packets that the capture does not have may show the reason
    let is_unknown = !found.answered && connection.missed.anything();
    let certainty = if is_there || is_chance || is_unknown { Certainty::Guess } else { Certainty::IfNothingWasMissed };
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
        format_args!("held data back until its peer's delayed acknowledgment came, {times}, {took} in all: TCP_NODELAY is not set on it"),
    );
    // a timer of the same length, after a loss, looks the same
    let is_lossy = losses.lost() + losses.repeated.count > 0;
    let certainty = if is_lossy { Certainty::Guess } else { Certainty::IfNothingWasMissed };
    found.finish(Rule::TcpNagle, blame(connection, by), certainty, emit);
}

fn held_up(connection: &ConnectionState, by: End, losses: &Losses, emit: &mut impl FnMut(Finding)) {
    let mut found = Both::new(connection);
    let (count, way, took) = (Many(losses.held_up.count, "segment"), Direction(connection, by), Milliseconds(losses.held_up_time));
    found.add(
        &losses.held_up,
        format_args!("{count} {way} passed the capture point long after the sender's own timestamps, {took} in all: held up before it"),
    );
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
