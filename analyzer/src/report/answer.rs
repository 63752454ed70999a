//! The answer that a report begins with: the time that requests waited in all, the reasons, and the time that they
//! would take without them.
//!
//! ```text
//!   episodes of all connections ── kind, cause, direction ──▶ hindrances, by what they cost
//!   commands of all connections ── with the largest, without ▶ relief
//! ```

use crate::episodes::cost::{cost_in, is_of};
use crate::episodes::time::{Owner, Time};
use crate::episodes::{Cause, Episode, Kind, Sum, Waiter};
use crate::finding::{Blame, Rule};
use crate::op::{At, End};
use crate::report::{Connection, Report};
use crate::stats::Commands;
use alloc::vec::Vec;
use core::cmp::Reverse;

/// Requests of a command without which its p99 means nothing.
const ENOUGH: u64 = 100;

/// Something that held requests up, on all connections. Times in ns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DelayCause {
    /// Kind of delay.
    pub kind: Kind,
    /// Cause; all ways to lose packets are one.
    pub cause: Cause,
    /// Sender of the packets, if known: A is the client.
    pub from: Option<End>,
    /// Number of episodes.
    pub count: u64,
    /// Total duration, in ns.
    pub lasted: i64,
    /// Requests' time in it.
    pub cost: i64,
    /// Packets that were lost, late or missing.
    pub packets: u64,
    /// Of those, the ones that were lost themselves or whose acknowledgment was lost: the capture does not show which.
    pub unsure: u64,
    /// Of those, the ones that seem to be acknowledgments.
    pub acks: u64,
    /// Time at which it first began.
    pub first: At,
    /// Time at which it last began.
    pub last: At,
    /// Connections it was on.
    pub connections: u64,
    /// Those that have a hundredth of its cost or more.
    pub costly_on: Vec<u32>,
    /// The episodes that make up its cost.
    pub grave: Grave,
}

/// Episodes of one cause, without those that cost less than a hundredth of the costliest, as far as each is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grave {
    /// Number of episodes.
    pub count: u64,
    /// Beginning of the first.
    pub first: At,
    /// Time at which the last one ended, ns since the Unix epoch.
    pub until: i64,
}

/// Time that a command would take without the delays of one owner, in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WithoutDelays {
    /// The command.
    pub command: &'static str,
    /// True if the times are the p99; otherwise they are the longest, because there are too few requests.
    pub is_p99: bool,
    /// Latency as measured, in ns.
    pub with: i64,
    /// Latency as it would be, in ns.
    pub without: i64,
}

/// The answer. Times in ns.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Total time that requests waited, those without a reply too.
    pub waited: i64,
    /// The part of those without a reply, to the end of their connection or of the capture.
    pub open: i64,
    /// The waiting time by owner.
    pub time: Time,
    /// Their delays, the most expensive first; those without cost are included.
    pub hindrances: Vec<DelayCause>,
    /// The command that suffered most from the owner of the largest delay, without it.
    pub relief: Option<WithoutDelays>,
    /// The longest way to a server and back, of those that were measured.
    pub round_trip: Option<i64>,
}

impl Answer {
    /// The delay that cost requests most.
    pub fn main(&self) -> Option<&DelayCause> {
        // requests do not wait for an end that is late by a little now and then
        let is_told = |h: &DelayCause| h.kind != Kind::Idle || h.cost.saturating_mul(20) >= self.waited;
        // that packets were sent again without need may be known only after requests were found to wait for it
        let is_no_cause = |cause: Cause| matches!(cause, Cause::OtherPort | Cause::Needless);
        let is_known = |h: &DelayCause| !matches!(h.kind, Kind::Gap | Kind::Interrupted) && !is_no_cause(h.cause);
        self.hindrances.iter().find(|h| h.cost > 0 && is_told(h) && is_known(h))
    }

    /// Packets of clients that came late to the capture point, as far as their clocks show: their number, and the mean
    /// delay in ns.
    pub fn late_clients(&self) -> Option<(u64, i64)> {
        const ENOUGH: u64 = 10;
        const MUCH: i64 = 5_000_000;
        let held =
            self.hindrances.iter().find(|h| h.kind == Kind::HeldUp && h.from == Some(End::A) && h.count >= ENOUGH)?;
        let mean = held.lasted / i64::try_from(held.count).ok()?;
        (mean >= MUCH).then_some((held.count, mean))
    }
}

/// The answer to a capture; `None` if no request was answered in it.
pub fn answer(report: &Report) -> Option<Answer> {
    let mut time = Time::default();
    let mut hindrances: Vec<DelayCause> = Vec::new();
    let mut commands = Commands::default();
    for connection in &report.connections {
        time += &connection.time;
        connection.commands.iter().for_each(|command| commands.join(command));
        let mut here: Vec<usize> = Vec::new();
        for sum in &connection.episodes.sums {
            let place = add(&mut hindrances, sum, connection.client_known);
            if !here.contains(&place) {
                here.push(place);
                hindrances[place].connections += 1;
            }
        }
    }
    for hindrance in hindrances.iter_mut().filter(|h| h.cost > 0) {
        let DelayCause { kind, cause, from, cost, .. } = *hindrance;
        let is_costly = |c: &&Connection| {
            let is_its = |sum: &&Sum| sum.kind == kind && named(sum.cause, sum.by, c.client_known) == (cause, from);
            let on_it = c.episodes.sums.iter().filter(is_its).fold(0_i64, |all, sum| all.saturating_add(sum.cost));
            on_it.saturating_mul(100) >= cost
        };
        hindrance.costly_on = report.connections.iter().filter(is_costly).map(|c| c.id).collect();
    }
    if time.sum() <= 0 {
        return None;
    }
    let open = report.connections.iter().map(|c| open_time(c, report.capture.last)).fold(0, i64::saturating_add);
    let waited = time.sum().saturating_add(open);
    for cause in &mut hindrances {
        cause.grave = grave(cause, report);
    }
    hindrances.sort_by_key(|h| (Reverse(h.cost), h.first));
    let round_trip = report.connections.iter().filter_map(|c| c.round_trip[1]).max();
    let mut answer = Answer { waited, open, time, relief: None, hindrances, round_trip };
    answer.relief = answer.main().and_then(|main| relief(&commands, main.kind.owner()));
    Some(answer)
}

/// Time that requests without a reply waited, in ns. Where the capture missed something, it may have been the reply.
fn open_time(connection: &Connection, end: Option<At>) -> i64 {
    let Some(end) = connection.closed.map(|(.., at)| at).or(end).filter(|_| !connection.progress.missed) else {
        return 0;
    };
    connection.open.iter().map(|at| end.since(*at).max(0)).fold(0, i64::saturating_add)
}

/// Cause and sender as the answer names them: all ways to lose packets are one.
fn named(cause: Cause, by: Option<End>, client_known: bool) -> (Cause, Option<End>) {
    let from = by.filter(|_| client_known).map(|by| if cause.is_of_the_peer() { by.peer() } else { by });
    (if cause.is_loss() { Cause::LostBefore } else { cause }, from)
}

/// The episodes of a cause that make up its cost. All count if not all are kept, and of packets that were held up, which
/// are counted one by one.
fn grave(of: &DelayCause, report: &Report) -> Grave {
    let end = report.capture.last.map_or(of.last.time, |last| last.time);
    let episodes = || {
        report.connections.iter().flat_map(|c| {
            let is_its =
                move |e: &&Episode| e.kind == of.kind && named(e.cause, e.by, c.client_known) == (of.cause, of.from);
            c.episodes.list.iter().filter(is_its)
        })
    };
    let until = |e: &Episode| e.end.map_or(end, |at| at.time).max(e.begin.time);
    let most = if of.kind == Kind::HeldUp { 0 } else { episodes().map(|e| e.cost).max().unwrap_or(0) };
    let all = episodes().count() as u64 == of.count;
    let costly: Vec<&Episode> = episodes().filter(|e| !all || e.cost.saturating_mul(100) >= most).collect();
    Grave {
        count: if all { costly.len() as u64 } else { of.count },
        first: costly.iter().map(|e| e.begin).min().filter(|_| all).unwrap_or(of.first),
        until: costly.iter().map(|e| until(e)).max().unwrap_or(0).max(if all { 0 } else { of.last.time }),
    }
}

/// Adds the delays of one kind on a connection. Returns their index.
fn add(hindrances: &mut Vec<DelayCause>, sum: &Sum, client_known: bool) -> usize {
    let (cause, from) = named(sum.cause, sum.by, client_known);
    let place =
        hindrances.iter().position(|h| (h.kind, h.cause, h.from) == (sum.kind, cause, from)).unwrap_or_else(|| {
            let Sum { kind, first, last, .. } = *sum;
            hindrances.push(DelayCause {
                kind,
                cause,
                from,
                count: 0,
                lasted: 0,
                cost: 0,
                packets: 0,
                unsure: 0,
                acks: 0,
                first,
                last,
                connections: 0,
                costly_on: Vec::new(),
                grave: Grave::default(),
            });
            hindrances.len() - 1
        });
    let found = &mut hindrances[place];
    found.count = found.count.saturating_add(sum.count);
    found.lasted = found.lasted.saturating_add(sum.lasted);
    found.cost = found.cost.saturating_add(sum.cost);
    found.packets = found.packets.saturating_add(sum.packets);
    found.unsure = found.unsure.saturating_add(if sum.cause == Cause::Unacknowledged { sum.packets } else { 0 });
    found.acks = found.acks.saturating_add(if sum.cause == Cause::AckLost { sum.packets } else { 0 });
    found.first = found.first.min(sum.first);
    found.last = found.last.max(sum.last);
    place
}

/// Latency without the delays of an owner, of the command that they held up longest.
fn relief(commands: &Commands, owner: Owner) -> Option<WithoutDelays> {
    let most = commands.rows().iter().max_by_key(|row| row.time.of(owner))?;
    let (_, calm) = most.without.iter().find(|(of, _)| *of == owner)?;
    let is_p99 = most.latency.count() >= ENOUGH;
    let of = |latency: &crate::latency::Latency| if is_p99 { latency.quantile(990) } else { latency.max() };
    let (with, without) = (of(&most.latency)?, of(calm)?);
    // less than a fifth is not worth a word
    (without.saturating_mul(6) < with.saturating_mul(5)).then_some(WithoutDelays {
        command: most.name,
        is_p99,
        with,
        without,
    })
}

/// The connections whose requests a finding may have cost time: its own, or of pauses, which belong to none, all.
pub fn concerned(report: &Report, rule: Rule, connection: Option<u32>) -> impl Iterator<Item = &Connection> {
    let all = connection.is_none() && rule == Rule::RcPfc;
    report.connections.iter().filter(move |c| all || connection == Some(c.id))
}

/// True if all that a finding seems to have cost rests on packets that do not say what they belong to: pauses of a
/// priority, and packets that carry none.
pub fn is_perhaps(report: &Report, rule: Rule) -> bool {
    let sums = concerned(report, rule, None).flat_map(|c| &c.episodes.sums).filter(|sum| sum.cost > 0);
    let mut causes = sums.filter(|sum| is_of(rule, None, sum.kind, sum.cause, sum.by)).map(|sum| sum.cause).peekable();
    rule == Rule::RcPfc && causes.peek().is_some() && causes.all(|cause| cause == Cause::PriorityUnknown)
}

/// The end to which a finding belongs, by role.
const fn end_of(by: Blame) -> Option<End> {
    match by {
        Blame::Client => Some(End::A),
        Blame::Server => Some(End::B),
        _ => None,
    }
}

/// Requests of a connection that waited longest because of a finding, as far as they are known.
pub fn waited(connection: &Connection, rule: Rule, by: Blame) -> impl Iterator<Item = &Waiter> {
    let of = move |e: &&Episode| is_of(rule, end_of(by), e.kind, e.cause, e.by);
    connection.episodes.list.iter().filter(of).flat_map(Episode::waiters)
}

/// Time that the problem of a finding cost requests on a connection, in ns.
pub fn cost(connection: &Connection, rule: Rule, by: Blame) -> i64 {
    let end = end_of(by);
    let cost = cost_in(&connection.episodes.sums, rule, end);
    match rule {
        Rule::Smb2Slow | Rule::RpcSlow => match end {
            Some(end) => connection.slow_time[end.index()],
            None => connection.slow_time[0].saturating_add(connection.slow_time[1]),
        },
        // a side that waits before it asks does not see that in its latency
        Rule::SmbdCreditStall => cost.max(connection.sides[if by == Blame::Server { 0 } else { 1 }].stalled_time),
        _ => cost,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection(cost: i64) -> Connection {
        let mut connection = Connection { client_known: true, ..Connection::default() };
        let at = At { frame: 1, time: 5 };
        let sum = |kind, cause, by, cost| Sum {
            kind,
            cause,
            by: Some(by),
            count: 1,
            lasted: 9,
            cost,
            packets: 2,
            repeated: 3,
            first: at,
            last: at,
        };
        connection.episodes.sums.push(sum(Kind::Recovery, Cause::LostBefore, End::A, cost));
        connection.episodes.sums.push(sum(Kind::Recovery, Cause::Unacknowledged, End::A, 1));
        connection.episodes.sums.push(sum(Kind::Recovery, Cause::LostBefore, End::B, 0));
        connection.time.0[4] = cost + 1;
        connection.time.0[8] = 100;
        connection
    }

    #[test]
    fn the_largest_delay_is_the_main_one_and_relief_is_without_it_alone() {
        let at = At { frame: 1, time: 5 };
        let sum = |kind, cost| Sum {
            kind,
            cause: Cause::Unknown,
            by: Some(End::A),
            count: 1,
            lasted: 9,
            cost,
            packets: 0,
            repeated: 0,
            first: at,
            last: at,
        };
        let mut connection = Connection { client_known: true, ..Connection::default() };
        connection.episodes.sums.extend([sum(Kind::Recovery, 20), sum(Kind::HeldUp, 900), sum(Kind::Gap, 5000)]);
        let mut read = crate::summary::Command { name: "READ", ..Default::default() };
        // 5 ns without a delay; 500 held up, and another 20 of recovery; held up
        for (latency, held, recovery) in [(5, 0, 0), (525, 500, 20), (405, 400, 0)] {
            let mut time = Time::default();
            time.0[Owner::SendQueue as usize] = held;
            time.0[Owner::Recovery as usize] = recovery;
            time.0[Owner::Server as usize] = latency - held - recovery;
            read.answered(latency, &time);
        }
        connection.time = read.time;
        let commands = |rows: &[crate::summary::Command]| {
            let mut commands = Commands::default();
            rows.iter().for_each(|row| commands.join(row));
            commands
        };
        // of another connection: no delay
        let mut other = crate::summary::Command { name: "READ", ..Default::default() };
        other.answered(30, &Time::default());
        let without = WithoutDelays { command: "READ", is_p99: false, with: 525, without: 30 };
        for rows in [[read.clone(), other.clone()], [other, read.clone()]] {
            assert_eq!(relief(&commands(&rows), Owner::SendQueue), Some(without));
        }
        connection.commands.push(read);
        let report = Report { connections: alloc::vec![connection], ..Report::default() };
        let answer = answer(&report).unwrap();
        assert_eq!(answer.main().map(|main| (main.kind, main.cost)), Some((Kind::HeldUp, 900)));
        assert_eq!(answer.relief, Some(WithoutDelays { without: 25, ..without }));
    }

    #[test]
    fn requests_without_a_reply_waited_too() {
        let mut late = connection(50);
        late.open = alloc::vec![At { frame: 3, time: 100 }, At { frame: 4, time: 110 }];
        let mut report = Report { connections: alloc::vec![late], ..Report::default() };
        report.capture.last = Some(At { frame: 9, time: 200 });
        let waited = |report: &Report| answer(report).map(|answer| (answer.waited, answer.open)).unwrap();
        assert_eq!(waited(&report), (151 + 190, 190));
        report.connections[0].closed = Some((Some(0), "FIN", At { frame: 8, time: 120 }));
        assert_eq!(waited(&report), (151 + 30, 30));
        report.connections[0].progress.missed = true;
        assert_eq!(waited(&report), (151, 0), "the capture may lack their replies");
    }

    #[test]
    fn losses_of_a_direction_are_one_hindrance_on_all_connections() {
        let mut report = Report::default();
        assert!(answer(&report).is_none(), "nobody asked for anything");
        report.connections = alloc::vec![connection(50), connection(70)];
        let answer = answer(&report).unwrap();
        assert_eq!((answer.waited, answer.hindrances.len()), (322, 2));
        let main = answer.main().unwrap();
        assert_eq!((main.from, main.cost, main.packets, main.connections), (Some(End::A), 122, 8, 2));
        assert_eq!(main.costly_on.len(), 2);
        assert_eq!(cost(&report.connections[0], Rule::RcRetransmit, Blame::Network), 51);
        assert_eq!(cost(&report.connections[0], Rule::RcRnr, Blame::Server), 0);
        report.connections[0].slow_time = [3, 5];
        let slow = |by| cost(&report.connections[0], Rule::RpcSlow, by);
        assert_eq!([Blame::Client, Blame::Server, Blame::Unknown].map(slow), [3, 5, 8], "each has its own");
    }
}
