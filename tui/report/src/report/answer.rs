//! The first sentences of a report: how long requests waited, for what, since when, and how long it would take without
//! that.

use super::words::{self, Clock, count, duration, grouped, share, times};
use rdmascope_analyzer::answer::{self, Answer, DelayCause, Grave};
use rdmascope_analyzer::episodes::time::{Owner, Time};
use rdmascope_analyzer::episodes::{Cause, Kind, Waiter};
use rdmascope_analyzer::finding::{Blame, Finding, Rule};
use rdmascope_analyzer::op::End;
use rdmascope_analyzer::put_off::put_off;
use rdmascope_analyzer::report::{Connection, Report, Transport};
use rdmascope_dissector::frame::Addr;

/// The answer as text, with the times of the command line; `None` if no request was answered.
pub fn text(report: &Report) -> Option<String> {
    text_by(words::the_clock(), report)
}

/// The same by another clock.
pub fn text_by(clock: &Clock, report: &Report) -> Option<String> {
    let answer = answer::answer(report)?;
    let unit = if report.connections.iter().any(|c| c.transport.is_some_and(Transport::is_packets)) {
        "packet"
    } else {
        "segment"
    };
    // a request that was on its way at the end is not worth a word
    let is_much = answer.open > 0 && answer.open.saturating_mul(20) >= answer.waited;
    let open = if is_much {
        format!(" ({} of it for replies that did not come)", duration(answer.open))
    } else {
        String::new()
    };
    let waited = format!("{}{open}", duration(answer.waited));
    // what held up those that were not answered, nobody knows
    let of_whom = if is_much { ", of those that were answered" } else { "" };
    let late = answer.late_clients().map_or(String::new(), |(n, mean)| {
        let packets = count(n, unit);
        format!(
            " By the client's clock, {packets} took {} on average to the capture point, in addition.",
            duration(mean)
        )
    });
    let put_off = put_off(&report.connections);
    let is_put_off = put_off > 0 && put_off.saturating_mul(2) >= answer.waited;
    let besides = if is_put_off {
        format!("{late} Besides, calls were put off for {}: see RPC-DELAYED.", duration(put_off))
    } else {
        late
    };
    let Some(main) = answer.main() else {
        let owners = owners(&answer.time);
        let by_owner = if is_much { format!(". By owner{of_whom}: {owners}") } else { format!(": {owners}") };
        return Some(format!("Requests waited {waited} in all{by_owner}.{}{besides}", way(&answer)));
    };
    let (cost, part) = (duration(main.cost), share(main.cost, answer.waited));
    // where as many packets came late, it may have been these that were sent again
    let is_late = |f: &Finding| {
        matches!(f.rule, Rule::RcReorder | Rule::TcpReorder)
            && f.by == Blame::Network
            && f.count.saturating_mul(2) >= main.packets
    };
    let lost = if report.findings.iter().any(is_late) { "lost or overtaken" } else { "lost" };
    let (what, when) = (what(main, unit, lost, report), when(main, report, clock));
    let mut text = format!("Requests waited {waited} in all; {cost} ({part}) of it {what}{when}.");
    // of several delays with one owner, none is what it would be without
    if let Some(relief) =
        answer.relief.filter(|_| main.cost.saturating_mul(10) >= answer.time.of(main.kind.owner()).saturating_mul(9))
    {
        let it = if main.packets.max(main.grave.count) > 1 { "them" } else { "it" };
        let (with, without) = (duration(relief.with), duration(relief.without));
        let which =
            if relief.is_p99 { format!("{} p99", relief.command) } else { format!("the longest {}", relief.command) };
        text.push_str(&format!(" Without {it} {which} would be {without}, not {with}."));
    }
    if main.cost.saturating_mul(20) < answer.waited {
        text.push_str(&format!(" By owner{of_whom}: {}.{}", owners(&answer.time), way(&answer)));
    } else if let Some((owner, part)) = answer.time.largest().filter(|(owner, _)| *owner != main.kind.owner()) {
        text.push_str(&format!(
            " Most of the time, {}, was {}.{}",
            share(part, answer.waited),
            whose(owner),
            way(&answer)
        ));
    }
    text.push_str(&besides);
    Some(text)
}

/// Shares of the time by owner, the largest first: "recovery 84 %, server 12 %, wire 4 %". Shares below one percent are
/// left out.
pub fn owners(time: &Time) -> String {
    let whole = time.sum();
    let mut parts: Vec<_> = time.parts().filter(|(_, part)| part.saturating_mul(100) >= whole).collect();
    parts.sort_by_key(|(_, part)| std::cmp::Reverse(*part));
    let words: Vec<String> =
        parts.into_iter().map(|(owner, part)| format!("{} {}", owner.name(), share(part, whole))).collect();
    words.join(", ")
}

/// An owner of time, behind "was": "the server's own".
pub const fn whose(owner: Owner) -> &'static str {
    match owner {
        Owner::Client => "the client's",
        Owner::Credit => "waiting for credits",
        Owner::SendQueue => "in the sender's queue",
        Owner::Wire => "the wire's",
        Owner::Recovery => "recovery",
        Owner::Rnr => "waiting for a receiver that was not ready",
        Owner::Pause => "under pause frames",
        Owner::Rdma => "moving data by RDMA",
        Owner::Server => "the server's own",
        Owner::Unknown => "not attributable: the capture does not tell whose it was",
    }
}

/// A sentence with the round-trip time, if the wire accounts for a third of the time or more.
fn way(answer: &Answer) -> String {
    let is_much = answer.time.of(Owner::Wire).saturating_mul(3) >= answer.waited;
    match answer.round_trip.filter(|_| is_much) {
        Some(ns) => format!(" The way to the server and back takes {}.", duration(ns)),
        None => String::new(),
    }
}

/// A side of the connections that a cause of delay is on, and the article before it: the client; if there are several hosts
/// on that side, the client 192.0.2.2, or how many they are.
fn side(main: &DelayCause, end: End, report: &Report) -> (&'static str, String) {
    let of = |c: &Connection| c.peers[end.index()].address;
    let role = super::side(end.index());
    let mut hosts: Vec<Addr> = report.connections.iter().filter(|c| main.costly_on.contains(&c.id)).map(of).collect();
    hosts.sort_unstable();
    hosts.dedup();
    let has_others = |one: &Addr| report.connections.iter().any(|c| c.time.sum() > 0 && of(c) != *one);
    match hosts.as_slice() {
        [one] if has_others(one) => ("the ", format!("{role} {}", super::analyzed::address(one))),
        [] | [_] => ("the ", role.to_owned()),
        several => ("", count(several.len() as u64, role)),
    }
}

/// What requests waited for; `lost` is what happened to packets that were lost.
fn what(main: &DelayCause, unit: &str, lost: &str, report: &Report) -> String {
    let named = |end: End| side(main, end, report).1;
    let with_article = |end: End| {
        let (the, name) = side(main, end, report);
        format!("{the}{name}")
    };
    let way = main.from.map_or(String::new(), |from| format!(" from {} to {}", named(from), named(from.peer())));
    let sender = main.from.map_or("the sender".to_owned(), with_article);
    let receiver = main.from.map_or("the receiver".to_owned(), |from| with_article(from.peer()));
    let packets = count(main.packets.max(1), unit);
    let often = times(main.grave.count);
    match (main.kind, main.cause) {
        (Kind::Recovery, Cause::LostBefore) if main.unsure * 2 > main.packets => {
            let were = if main.packets > 1 { "were" } else { "was" };
            format!("recovering from {packets}{way} that {were} not acknowledged in time")
        }
        (Kind::Recovery, Cause::LostBefore) if main.acks > 0 && main.acks == main.packets => {
            // only the retransmissions were seen, not the lost packets
            let back =
                main.from.map_or(String::new(), |from| format!(" from {} to {}", named(from.peer()), named(from)));
            let (were, lost) = match main.packets {
                1 => ("was", "its acknowledgment seems"),
                _ => ("were", "their acknowledgments seem"),
            };
            format!("recovering from {packets}{back} that {were} not acknowledged in time: {lost} to have been lost")
        }
        (Kind::Recovery, Cause::LostBefore) => {
            let acks = match main.acks {
                0 => String::new(),
                1 => ", of which 1 seems to be an acknowledgment".to_owned(),
                n => format!(", of which {n} seem to be acknowledgments"),
            };
            format!("recovering from {packets} {lost}{way}{acks}")
        }
        (Kind::Recovery, Cause::Damaged) => format!("recovering from {packets} damaged{way}"),
        (Kind::Recovery, Cause::Misaddressed) => {
            format!("recovering from {packets} that {sender} had sent to a wrong queue pair")
        }
        (Kind::Recovery, Cause::Reordered) => {
            format!("because of {packets} overtaken{way}, which the receiver treated as lost")
        }
        (Kind::Recovery, _) => format!("while {unit}s{way} were sent again"),
        (Kind::Rnr, _) => format!("waiting for {receiver} to post a receive ({often})"),
        (Kind::Credit, Cause::ReadDepth) => {
            format!("in which {sender} had as many RDMA Reads outstanding as {receiver} accepts ({often})")
        }
        (Kind::Credit, _) => format!("in which {sender} waited for credits of {receiver} ({often})"),
        (Kind::Pause, Cause::OtherPort) => {
            format!("while pause frames of a device that is neither end stopped somebody ({often})")
        }
        (Kind::Pause, Cause::PriorityUnknown) => {
            format!("while pause frames seem to have stopped {sender}, whose packets carry no priority ({often})")
        }
        (Kind::Pause, _) => format!("while pause frames stopped {sender} ({often})"),
        (Kind::Congestion, _) => {
            format!("while {sender} sent more slowly, as notifications of congestion had asked it to ({often})")
        }
        (Kind::ZeroWindow, _) => format!("while {receiver} kept its receive window closed ({often})"),
        (Kind::Silence, _) => {
            format!("while {receiver} sent nothing, not even an acknowledgment ({often}, {})", duration(main.lasted))
        }
        (Kind::Nagle, _) => {
            format!("held back by {sender} until the delayed acknowledgment of {receiver} came ({often})")
        }
        (Kind::HeldUp, _) => {
            format!(
                "held up between {sender} and the capture point, by its own timestamps ({})",
                count(main.grave.count, unit)
            )
        }
        (Kind::Idle, Cause::ReadResponse) => format!("waiting for {sender} to answer RDMA Reads ({often})"),
        (Kind::Idle, Cause::SentLate) => {
            format!(
                "until {sender} sent again, long after the time for which {receiver} had asked it to wait ({often})"
            )
        }
        (Kind::Idle, _) => format!("waiting for {sender} to send the rest of a message ({often})"),
        (Kind::Interrupted, _) => format!("while {sender} had stopped in the middle of a message ({often})"),
        (Kind::Gap, _) => format!("in an unknown place: the capture lost {packets}{way}"),
    }
}

/// Begin or end, if that is worth reporting.
fn when(main: &DelayCause, report: &Report, clock: &Clock) -> String {
    let (Some(first), Some(last)) = (report.capture.first, report.capture.last) else { return String::new() };
    let length = last.time.saturating_sub(first.time);
    // clocks are reported in seconds
    if length < 8_000_000_000 {
        return String::new();
    }
    let Grave { count, first: begin, until } = main.grave;
    let (from, to) = (begin.time.saturating_sub(first.time), until.saturating_sub(first.time));
    let all = if count > 1 { "all " } else { "" };
    let since = clock.when(begin.time, first.time);
    let over = clock.when_over(until, first.time);
    if count == 1 {
        format!(", at {since}")
    } else if from > length / 4 && to > length / 4 * 3 {
        format!(", {all}after {since}")
    } else if from <= length / 4 && to < length / 4 * 3 {
        format!(", {all}before {over}")
    } else if from > length / 4 {
        format!(", {all}between {since} and {over}")
    } else {
        String::new()
    }
}

/// The cost of an entry and the requests that waited longest, as text; empty if it cost nothing.
pub fn cost(entry: &super::Entry<'_>, report: &Report) -> String {
    if entry.cost <= 0 {
        return String::new();
    }
    let one =
        |w: &Waiter| format!("{} {} (frames {}–{})", w.command, duration(w.time), grouped(w.first), grouped(w.last));
    let waited: Vec<String> = entry.waited.iter().map(one).collect();
    let others = if entry.others { " and others" } else { "" };
    let which = if waited.is_empty() { String::new() } else { format!(": {}{others}", waited.join(", ")) };
    let it = if answer::is_perhaps(report, entry.rule) { "It seems to have cost" } else { "It cost" };
    format!("{it} requests {}{which}.", duration(entry.cost))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdmascope_analyzer::episodes::Sum;
    use rdmascope_analyzer::latency::Latency;
    use rdmascope_analyzer::op::At;
    use rdmascope_analyzer::report::{Command, Connection};

    const MS: i64 = 1_000_000;
    const S: i64 = 1000 * MS;

    fn report(kind: Kind, cause: Cause, cost: i64) -> Report {
        let at = |time| At { frame: 1, time };
        let mut read = Command { name: "READ", count: 200, ..Command::default() };
        let mut time = Time::default();
        (time.0[Owner::Server as usize], time.0[kind.owner() as usize]) = (200 * MS, cost);
        let mut without = Latency::default();
        for n in 0..200 {
            let held = if n < 10 { cost / 10 } else { 0 };
            read.latency.add(MS + held);
            read.calm.add(MS);
            without.add(MS);
        }
        read.time = time;
        read.without.push((kind.owner(), without));
        let mut c = Connection {
            transport: Some(Transport::RoceV2),
            client_known: true,
            time,
            commands: vec![read],
            ..Connection::default()
        };
        let (by, first, last) = (Some(End::A), at(30 * S), at(55 * S));
        c.episodes.sums.push(Sum {
            kind,
            cause,
            by,
            count: 4,
            lasted: S,
            cost,
            packets: 37,
            repeated: 90,
            first,
            last,
        });
        let mut report = Report { connections: vec![c], ..Report::default() };
        (report.capture.first, report.capture.last) = (Some(at(0)), Some(at(60 * S)));
        report
    }

    #[test]
    fn the_answer_says_how_long_what_for_since_when_and_what_it_would_be_without() {
        let lost = report(Kind::Recovery, Cause::LostBehind, 8600 * MS);
        assert_eq!(
            text(&lost).unwrap(),
            "Requests waited 8.80 s in all; 8.60 s (98 %) of it recovering from 37 packets lost from client to server, \
                all after 00:00:30. \
             Without them READ p99 would be 1.0 ms, not 861 ms."
        );
        let credits = report(Kind::Credit, Cause::SmbDirectCredits, 50 * MS);
        assert_eq!(
            text(&credits).unwrap(),
            "Requests waited 250 ms in all; 50 ms (20 %) of it in which the client waited for credits of the server (4 \
                times), all after \
             00:00:30. Without them READ p99 would be 1.0 ms, not 6.0 ms. Most of the time, 80 %, was the server's own."
        );
    }

    #[test]
    fn of_several_hosts_the_one_that_it_is_about_is_named() {
        let mut rnr = report(Kind::Rnr, Cause::Unknown, 900 * MS);
        let told = |report: &Report| text(report).unwrap();
        assert!(told(&rnr).contains("waiting for the server to post a receive"), "{}", told(&rnr));
        let mut other = rnr.connections[0].clone();
        (other.id, other.episodes.sums) = (2, Vec::new());
        rnr.connections[0].peers[1].address = Addr::V4([192, 0, 2, 1]);
        other.peers[1].address = Addr::V4([192, 0, 2, 2]);
        rnr.connections.push(other);
        assert!(told(&rnr).contains("waiting for the server 192.0.2.1 to post a receive"), "{}", told(&rnr));
        rnr.connections[1].episodes.sums = rnr.connections[0].episodes.sums.clone();
        assert!(told(&rnr).contains("waiting for 2 servers to post a receive"), "{}", told(&rnr));
    }

    #[test]
    fn a_long_wait_among_short_ones_is_counted_and_timed_alone() {
        use rdmascope_analyzer::episodes::Episode;
        let mut idle = report(Kind::Idle, Cause::Unknown, 8000 * MS);
        let wait = |begin: i64, took: i64| Episode {
            kind: Kind::Idle,
            cause: Cause::Unknown,
            by: Some(End::A),
            begin: At { frame: 1, time: begin },
            end: Some(At { frame: 2, time: begin + took }),
            cost: took,
            ..Episode::default()
        };
        let list = [wait(20 * S, MS), wait(25 * S, MS), wait(30 * S, 8 * S), wait(31 * S, MS)];
        idle.connections[0].episodes.list.extend(list);
        let told = text(&idle).unwrap();
        assert!(told.contains("the rest of a message (once), at 00:00:30."), "{told}");
        // two of them: the time ends where the last ends, not where it begins
        idle.connections[0].episodes.list[1] = wait(22 * S, 8 * S);
        let told = text(&idle).unwrap();
        assert!(told.contains("(twice), all between 00:00:22 and 00:00:39."), "{told}");
        assert!(text_by(&Clock::Relative, &idle).unwrap().contains("all between 22.0 s and 38.0 s."));
    }

    #[test]
    fn what_was_lost_unseen_is_told_by_what_went_out_again() {
        let of = |cause: Cause, packets: u64| {
            let mut lost = report(Kind::Recovery, cause, 8600 * MS);
            lost.connections[0].episodes.sums[0].packets = packets;
            text(&lost).unwrap()
        };
        let acks = "recovering from 37 packets from client to server that were not acknowledged in time: their \
            acknowledgments seem to have \
                    been lost, all after 00:00:30.";
        assert!(of(Cause::AckLost, 37).contains(acks), "{}", of(Cause::AckLost, 37));
        let one = "recovering from 1 packet from client to server that was not acknowledged in time: its \
            acknowledgment seems to have been lost";
        assert!(of(Cause::AckLost, 1).contains(one), "{}", of(Cause::AckLost, 1));
        let unsure = "recovering from 37 packets from client to server that were not acknowledged in time, all";
        assert!(of(Cause::Unacknowledged, 37).contains(unsure), "{}", of(Cause::Unacknowledged, 37));
    }

    #[test]
    fn where_nothing_held_requests_up_it_says_whose_time_it_was() {
        assert_eq!(
            text(&report(Kind::Recovery, Cause::Needless, 0)).unwrap(),
            "Requests waited 200 ms in all: server 100 %."
        );
        assert_eq!(text(&Report::default()), None);
    }
}
