//! Exchanges counted by command.

use crate::delays::{Delayed, Delays};
use crate::episodes::time::{Owner, Time};
use crate::exchange::{Exchange, Failures, Status};
use crate::latency::Latency;
use crate::op::{At, End};
use crate::stored::stored;
use crate::summary::Command;
use alloc::vec::Vec;

/// True if a request may be without reply for as long as the connection lives.
pub fn may_wait(command: &str) -> bool {
    matches!(command, "CHANGE_NOTIFY" | "CANCEL" | "LOCK" | "OPLOCK_BREAK")
}

/// True if the server sent a request to the client: the client replies to it.
pub fn is_callback(command: &str) -> bool {
    command.starts_with("CB_")
}

/// True if a request may take very long although nothing is wrong: how long depends on the data, or on others, such as
/// those who authenticate the user.
fn may_be_long(command: &str) -> bool {
    let is_of_data = matches!(
        command,
        "FLUSH" | "IOCTL" | "SET_INFO" | "COMMIT" | "COPY" | "CLONE" | "ALLOCATE" | "DEALLOCATE" | "SETATTR"
    );
    let is_of_others = matches!(command, "SESSION_SETUP" | "EXCHANGE_ID" | "CREATE_SESSION" | "SETCLIENTID" | "MNT");
    // what a call is whose contents were not captured is not known
    let is_of_any_kind = matches!(command, "RPC" | "COMPOUND");
    may_wait(command) || is_of_data || is_of_others || is_of_any_kind
}

/// True if a request takes as long as the server's storage needs for what was written before.
fn is_of_storage(command: &str) -> bool {
    matches!(command, "FLUSH" | "COMMIT")
}

/// True if requests of a command of the client take about as long on all connections of a host.
pub fn is_comparable(command: &str) -> bool {
    !may_be_long(command) && !is_callback(command)
}

/// ns of the server's own time that are long for any command.
const LONG_FOR_ANY: i64 = 1_000_000_000;
/// The same where there are very few others to compare with, and for what was written before.
const LONG_AMONG_FEW: i64 = 10_000_000_000;

/// Median latency that a request is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usual {
    /// In ns.
    pub median: i64,
    /// True if it is of all commands of the connection, not of the request's own.
    pub of_all: bool,
}

impl Usual {
    /// Time by which a request took longer than that whose server took this many ns. Where the usual is long itself,
    /// all of it.
    fn exceeded(&self, server: i64) -> i64 {
        if self.median < LONG_FOR_ANY { server.saturating_sub(self.median) } else { server }
    }
}

impl Long {
    /// True if it took far longer than this many ns, most of it in the server; also if the clock ticked once more
    /// between its request and its reply than between those of others.
    fn is_far_above(&self, median: i64, tick: i64) -> bool {
        const TIMES: i64 = 20;
        let median = median.saturating_add(tick);
        self.latency.saturating_sub(tick) > median.saturating_mul(TIMES) && self.is_of_the_server()
    }

    /// True if most of it was the own time of the side that replies.
    fn is_of_the_server(&self) -> bool {
        self.server.saturating_mul(2) >= self.latency
    }
}

/// Commands of one connection, or of several, in the order in which they first came.
#[derive(Clone, Debug, Default)]
pub struct Commands {
    rows: Vec<Command>,
    /// Those that may have been slow: decided when the median is known.
    long: Vec<Long>,
    failures: Vec<Failures>,
    /// Those that the other side puts off.
    delays: Delays,
    /// The first request of the client of those that were not answered, and that must be.
    oldest_open: Option<At>,
    /// Number of those of which the capture shows that they were not answered, and the first.
    left: (u64, Option<At>),
    /// Those that count, the first of them.
    open: Vec<At>,
    time: Time,
}

/// An exchange that took long.
#[derive(Clone, Copy, Debug)]
pub struct Long {
    /// Name of the command.
    pub command: &'static str,
    /// From its request to its reply, in ns.
    pub latency: i64,
    /// Side that replies.
    pub replier: End,
    /// The last frame of its reply.
    pub reply: At,
    /// Part of it that was the own time of the side that replies, in ns.
    pub server: i64,
    /// True if nothing was acknowledged meanwhile, or if the server may have waited for the client.
    pub is_unheard: bool,
    /// True if its time counts: that of a compound is the time of one of its requests.
    pub counts: bool,
    /// True if it failed.
    pub failed: bool,
}

/// Exchanges that took far longer than others, each with what is usual.
#[derive(Clone, Debug, Default)]
pub struct FarLonger<'c> {
    /// Those that the server itself was slow to answer: nothing else explains them.
    pub slow: Vec<(&'c Long, Usual)>,
    /// Those whose reply may have been lost before the capture point and sent again: all of them took as long as the
    /// same retransmission timer. A server that is slow takes now this long and now that.
    pub resent: Vec<(&'c Long, Usual)>,
}

impl FarLonger<'_> {
    /// Time by which the slow ones that an end answered took longer than usual, in ns. A compound counts once.
    pub fn slow_time(&self, replier: End) -> i64 {
        let slow = self.slow.iter().filter(|(long, _)| long.counts && long.replier == replier);
        slow.fold(0, |sum: i64, (long, usual)| sum.saturating_add(usual.exceeded(long.server)))
    }
}

/// The wait in ns that a time of so many ns shows, if that is as long as a retransmission timer, or two or three times
/// as long: 4.096 µs × 2^n on RC (IBTA 9.7.6.1.3), 200 ms and its doubles on TCP. A reply that was lost before the
/// capture point comes then.
pub fn wait_of_timer(took: i64, is_tcp: bool) -> Option<i64> {
    let (least, range) = if is_tcp { (200_000_000i64, 0..6) } else { (4096, 9..21) };
    let waits = range.map(|n| least << n).flat_map(|timer| (1..=3).map(move |times| timer * times));
    waits.filter(|wait| took >= *wait && took - wait <= wait / PART).max()
}

/// Parts of a timer by which a reply may come later.
const PART: i64 = 32;

/// Commands of which a mount consists that the server may refuse.
pub const MOUNTS: [&str; 6] =
    ["TREE_CONNECT", "EXCHANGE_ID", "CREATE_SESSION", "SETCLIENTID", "SETCLIENTID_CONFIRM", "MNT"];

/// Commands of which a mount consists besides.
pub const AROUND: [&str; 13] = [
    "NEGOTIATE",
    "SESSION_SETUP",
    "LOGOFF",
    "TREE_DISCONNECT",
    "IOCTL",
    "ECHO",
    "NULL",
    "DESTROY_SESSION",
    "DESTROY_CLIENTID",
    "GETPORT",
    "GETADDR",
    "EXPORT",
    "UMNT",
];

/// Requests without a reply that are remembered.
const OPEN_MAX: usize = 1024;
/// Pairs of command and status that are counted apart at most.
const FAILURES_MAX: usize = 256;

impl Commands {
    /// Counts an exchange that is complete, or never will be.
    pub fn add(&mut self, exchange: &Exchange) {
        if let Some(status) = exchange.status.filter(|_| exchange.failed) {
            let status = Status(exchange.family, status);
            self.fail(Failures { command: exchange.command, status, count: 1 });
        }
        self.delays.take(exchange);
        let place = self.place(exchange.command);
        let row = &mut self.rows[place];
        row.count += 1;
        row.errors += u64::from(exchange.failed);
        // of a compound, the first part that fails takes those behind it along
        if let Some(reply) = exchange.reply.filter(|_| !(exchange.is_related && exchange.failed)) {
            let status = exchange.status.filter(|_| exchange.failed).map(|status| Status(exchange.family, status));
            row.ended(reply, status);
            row.last = Some((reply, status));
        }
        row.bytes += exchange.bytes_moved;
        row.waited = row.waited.saturating_add(exchange.wait_for_credit);
        match exchange.latency() {
            // however long something takes to happen says nothing about the server
            Some(_) if exchange.is_poll() => {}
            Some(latency) => {
                row.answers(latency, exchange.failed);
                row.answered(latency, &exchange.time);
                if exchange.counts() {
                    self.time += &exchange.time;
                }
            }
            None => {
                row.unanswered += 1;
                row.withdrawn += u64::from(exchange.is_withdrawn);
                if !may_wait(exchange.command) && !exchange.is_withdrawn {
                    if !is_callback(exchange.command) {
                        let oldest = self.oldest_open.map_or(exchange.request, |at| at.min(exchange.request));
                        self.oldest_open = Some(oldest);
                    }
                    if exchange.counts() && self.open.len() < OPEN_MAX {
                        self.open.push(exchange.request);
                    }
                }
            }
        }
    }

    /// The same for one of which the capture shows that it was not answered: it has all that the peer sent since.
    pub fn add_unanswered(&mut self, exchange: &Exchange) {
        self.add(exchange);
        if !may_wait(exchange.command) && !is_callback(exchange.command) && !exchange.is_withdrawn {
            self.left.0 += 1;
            self.left.1 = Some(self.left.1.map_or(exchange.request, |at| at.min(exchange.request)));
        }
    }

    /// Adds the counts of another connection for a command.
    pub fn join(&mut self, command: &Command) {
        let row = self.row(command.name);
        row.count += command.count;
        row.errors += command.errors;
        row.unanswered += command.unanswered;
        row.withdrawn += command.withdrawn;
        row.bytes += command.bytes;
        row.join_times(command);
        row.join_ends(command);
        row.waited = row.waited.saturating_add(command.waited);
    }

    /// Adds the counts of another layer, or of the other half of a connection.
    pub fn absorb(&mut self, other: &Self) {
        other.rows.iter().for_each(|row| self.join(row));
        other.failures.iter().for_each(|failures| self.fail(*failures));
        self.delays.absorb(&other.delays);
        self.time += &other.time;
        self.oldest_open = [self.oldest_open, other.oldest_open].into_iter().flatten().min();
        self.left = (self.left.0 + other.left.0, [self.left.1, other.left.1].into_iter().flatten().min());
        let room = OPEN_MAX.saturating_sub(self.open.len());
        self.open.extend(other.open.iter().take(room));
    }

    fn fail(&mut self, new: Failures) {
        let is_same = |known: &&mut Failures| (known.command, known.status) == (new.command, new.status);
        if let Some(known) = self.failures.iter_mut().find(is_same) {
            known.count += new.count;
        } else if self.failures.len() < FAILURES_MAX {
            self.failures.push(new);
        }
    }

    /// The row of a command, made if there is none.
    fn row(&mut self, name: &'static str) -> &mut Command {
        let place = self.place(name);
        &mut self.rows[place]
    }

    /// Index of the row of a command. Names are mostly the very same text: they are compared only if none is.
    fn place(&mut self, name: &'static str) -> usize {
        let same = |row: &Command| core::ptr::eq(row.name, name);
        self.rows.iter().position(same).or_else(|| self.rows.iter().position(|r| r.name == name)).unwrap_or_else(|| {
            self.rows.push(Command { name, ..Command::default() });
            self.rows.len() - 1
        })
    }

    /// Remembers an exchange if it took long: [`Commands::far_longer`] decides at the end if that was far longer than
    /// others.
    pub fn watch(&mut self, exchange: &Exchange, replier: End) {
        const LEAST: i64 = 20_000_000;
        const LONG_MAX: usize = 1024;
        // an interim reply says that it takes longer; where others or an event are waited for, that is nobody's storage
        let works = matches!(exchange.command, "READ" | "WRITE" | "FLUSH" | "QUERY_INFO" | "QUERY_DIRECTORY" | "CLOSE");
        let waits = exchange.pending && !works;
        // of a compound, each request begins when the one before it is done
        let Some(latency) = exchange.own_latency().filter(|l| *l > LEAST && !waits) else { return };
        // a pipe has an answer when its writer has
        if exchange.is_of_a_pipe {
            return;
        }
        let Some(reply) = exchange.reply_end else { return };
        let server = exchange.time.of(if is_callback(exchange.command) { Owner::Client } else { Owner::Server });
        let server = server.min(latency);
        // it may have waited for a delegation that the client kept, or not
        let perhaps = exchange.perhaps_recalled.saturating_sub(exchange.recalled).max(0);
        let server = server.saturating_add(perhaps.min(exchange.time.of(Owner::Unknown)));
        // it may have waited for retransmitted packets meanwhile
        if exchange.retransmissions > 0 && server < LONG_FOR_ANY {
            return;
        }
        let Exchange { command, failed, .. } = *exchange;
        let is_unheard = exchange.is_unheard || perhaps > 0;
        let long = Long { command, latency, replier, reply, server, is_unheard, counts: exchange.counts(), failed };
        if self.long.len() < LONG_MAX {
            self.long.push(long);
        } else if let Some(least) =
            self.long.iter_mut().min_by_key(|long| long.latency).filter(|least| least.latency < latency)
        {
            *least = long;
        }
    }

    /// Exchanges that took far longer than others, by what explains it. The clock has this tick, in ns; 0 if it is
    /// fine. On RC no timer is shorter than `timeout` ns, if the handshake said so.
    pub fn far_longer(&self, is_tcp: bool, tick: i64, timeout: Option<i64>) -> FarLonger<'_> {
        /// Replies that make chance unlikely.
        const ALIKE: usize = 3;
        /// Times as many of them as of those that took a little less or more: for a timer, they stand out.
        const OUTSTANDING: usize = 4;
        let all: Vec<_> = self.far_above(tick).collect();
        // replies in one frame are one
        let is_possible = |wait: &i64| is_tcp || timeout.is_none_or(|least| *wait >= least);
        let wait = |long: &Long| wait_of_timer(long.server, is_tcp).filter(is_possible);
        let mut times: Vec<_> = all.iter().map(|(long, _)| (long.reply.frame, wait(long), long.server)).collect();
        times.sort_unstable();
        times.dedup_by_key(|(frame, wait, _)| (*frame, *wait));
        let is_timer = |timer: i64| {
            let part = timer / PART;
            let near = timer - 2 * part..=timer + 3 * part;
            let hits = times.iter().filter(|(_, wait, _)| *wait == Some(timer)).count();
            let misses = times.iter().filter(|(_, wait, took)| *wait != Some(timer) && near.contains(took)).count();
            hits >= ALIKE && hits >= misses * OUTSTANDING
        };
        let (resent, slow) = all.into_iter().partition(|(long, _)| wait(long).is_some_and(is_timer));
        FarLonger { slow, resent }
    }

    /// Exchanges that took far longer than others and most of whose time was the server's own, with what they are
    /// compared with: others of the same command, or, if there are few, all of the connection. Of those, the ones that
    /// worked count: how fast something is refused says nothing about how long it takes. Where several of a command took
    /// very long, each of them did, whatever is usual.
    fn far_above(&self, tick: i64) -> impl Iterator<Item = (&Long, Usual)> {
        /// Requests of a command whose median is its own.
        const ENOUGH: u64 = 16;
        /// Requests of a command that took very long, from which on it is no matter of chance.
        const AT_LEAST: usize = 3;
        /// Requests of a command that show at least if one of them stands out.
        const SEVERAL: u64 = 4;
        // a median is no less than the shortest: for most commands nothing has to be sorted
        let may_stand_out = |row: &Command, long: &Long| {
            long.command == row.name
                && (long.server >= LONG_FOR_ANY
                    || row.latency.min().is_none_or(|shortest| long.is_far_above(shortest, tick)))
        };
        let is_very_long = move |long: &Long| {
            let server = long.server.saturating_sub(tick);
            long.is_of_the_server() && server >= LONG_FOR_ANY && !may_be_long(long.command)
        };
        let very_long = |name: &str| self.long.iter().filter(|long| long.command == name && is_very_long(long)).count();
        let named = |row: &&Command| self.long.iter().any(|long| may_stand_out(row, long));
        let median = |latency: &Latency| (latency.count(), latency.quantile(500).unwrap_or(0));
        let of_command = |row: &Command| {
            (row.name, median(row.worked_latency()), median(&row.latency), very_long(row.name) >= AT_LEAST)
        };
        let medians: Vec<_> = self.rows.iter().filter(named).map(of_command).collect();
        let of_all = medians.iter().any(|(_, (worked, _), (all, _), _)| *worked.min(all) <= ENOUGH).then(|| {
            let mut all = Latency::default();
            self.rows.iter().for_each(|row| all.join(row.worked_latency()));
            median(&all)
        });
        self.long.iter().filter_map(move |long| {
            let &(command, worked, all, are_very_long) =
                medians.iter().find(|(command, ..)| *command == long.command)?;
            let (count, median) = if long.failed { all } else { worked };
            let own = Usual { median, of_all: false };
            let is_long = |usual: &Usual| long.is_far_above(usual.median, tick);
            let is_one_of_them = are_very_long && is_very_long(long);
            if count > ENOUGH || is_one_of_them {
                return (is_one_of_them || is_long(&own)).then_some((long, own));
            }
            if long.server < LONG_FOR_ANY {
                return None;
            }
            let own = Some(own).filter(|usual| count > SEVERAL && is_long(usual));
            let is_hang = is_of_storage(command) && long.server >= LONG_AMONG_FEW;
            let is_enough = |count: u64| match count {
                0 => false,
                1..=ENOUGH => long.server >= LONG_AMONG_FEW,
                _ => true,
            };
            let all = of_all
                .filter(|(count, _)| is_enough(*count))
                .map(|(_, median)| Usual { median, of_all: true })
                .filter(|usual| (!may_be_long(command) || is_hang) && is_long(usual));
            own.or(all).map(|usual| (long, usual))
        })
    }

    /// Time of all requests by owner. A compound counts once; a request that waits for something to happen does not
    /// count.
    pub fn time(&self) -> &Time {
        &self.time
    }

    /// The row of a command.
    pub fn find(&self, name: &str) -> Option<&Command> {
        self.rows.iter().find(|r| r.name == name)
    }

    /// The first request of those that were not answered, and that must be.
    pub fn oldest_open(&self) -> Option<At> {
        self.oldest_open
    }

    /// Number of those of which the capture shows that they were not answered, and the first.
    pub fn left(&self) -> (u64, Option<At>) {
        self.left
    }

    /// Requests that were not answered, and that must be. A compound counts once.
    pub fn open(&self) -> &[At] {
        &self.open
    }

    /// Failed requests.
    pub fn failures(&self) -> &[Failures] {
        &self.failures
    }

    /// Those that the other side put off.
    pub fn delayed(&self) -> Vec<Delayed> {
        self.delays.calls()
    }

    /// The rows of all commands.
    pub fn rows(&self) -> &[Command] {
        &self.rows
    }
}

stored!(Commands { rows, long, failures, delays, oldest_open, left, open, time });
stored!(Long { command, latency, replier, reply, server, is_unheard, counts, failed });

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::Family;

    fn answered(command: &'static str, latency: i64, pending: bool) -> Exchange {
        let at = |time| At { frame: 1, time };
        let mut e = Exchange::begun(Family::Smb2, command, at(0), at(0));
        (e.reply, e.reply_end, e.pending) = (Some(at(latency)), Some(at(latency)), pending);
        e.time.0[Owner::Server as usize] = latency;
        e
    }

    #[test]
    fn requests_that_wait_for_something_to_happen_are_counted_without_their_time() {
        let mut commands = Commands::default();
        let mut waits = answered("READ", 900, true);
        waits.is_of_a_pipe = true;
        let all = [
            answered("CHANGE_NOTIFY", 700, true),
            answered("LOCK", 800, true),
            answered("LOCK", 3, false),
            // a disk may be slow; a pipe has nothing to say yet
            answered("READ", 5, true),
            waits,
        ];
        all.iter().for_each(|e| commands.add(e));
        let rows: Vec<_> = commands
            .rows()
            .iter()
            .map(|r| (r.name, r.count, r.unanswered, r.latency.max(), r.calm.max(), r.time.sum()))
            .collect();
        assert_eq!(
            rows,
            [
                ("CHANGE_NOTIFY", 1, 0, None, None, 0),
                ("LOCK", 2, 0, Some(3), Some(3), 3),
                ("READ", 2, 0, Some(5), Some(5), 5)
            ]
        );
        assert_eq!(commands.time().sum(), 8);
    }

    /// \[MS-SMB2\] 3.3.5.2.7.2: each request of a compound begins when the one before it is done.
    #[test]
    fn who_waited_for_the_request_before_it_was_not_slow() {
        let watched = |turn: Option<i64>| {
            let mut commands = Commands::default();
            let mut e = answered("QUERY_INFO", 5000 * MS, false);
            (e.is_related, e.turn) = (true, turn.map(|ms| At { frame: 1, time: ms * MS }));
            commands.watch(&e, End::B);
            commands.long.iter().map(|long| (long.latency / MS, long.server / MS)).collect::<Vec<_>>()
        };
        assert_eq!(watched(None), [(5000, 5000)]);
        assert_eq!(watched(Some(2000)), [(3000, 3000)]);
        assert_eq!(watched(Some(5000)), []);
    }

    const MS: i64 = 1_000_000;

    /// Commands with many short requests and these long ones: how long the server took in ms, and the frame of the
    /// reply.
    fn with(long: &[(i64, u64)]) -> Commands {
        let mut commands = Commands::default();
        let row = commands.row("READ");
        (0..100).for_each(|_| row.latency.add(50_000));
        commands.long = long
            .iter()
            .map(|(ms, frame)| Long {
                command: "READ",
                latency: ms * MS,
                replier: End::B,
                reply: At { frame: *frame, time: 0 },
                server: ms * MS,
                is_unheard: false,
                counts: true,
                failed: false,
            })
            .collect();
        commands
    }

    /// Requests that took long, in ms: of many short ones of another command, and of a few of their own.
    fn slow_among(command: &'static str, own: &[i64], long: &[i64]) -> Vec<Usual> {
        let mut commands = Commands::default();
        let many = commands.row("CREATE");
        (0..100).for_each(|_| many.latency.add(42 * MS));
        let row = commands.row(command);
        own.iter().chain(long).for_each(|ms| row.latency.add(ms * MS));
        commands.long = with(&long.iter().map(|ms| (*ms, 1)).collect::<Vec<_>>()).long;
        commands.long.iter_mut().for_each(|long| long.command = command);
        commands.far_longer(false, 0, None).slow.into_iter().map(|(_, usual)| usual).collect()
    }

    #[test]
    fn one_of_few_is_compared_with_all_commands() {
        let all = [Usual { median: 42 * MS, of_all: true }];
        assert_eq!(slow_among("READ", &[42], &[3_000]), all);
        assert_eq!(slow_among("TREE_CONNECT", &[], &[3_000]), all);
        assert_eq!(slow_among("READ", &[42], &[900]), [], "less than a second");
        // with several of its own, these count
        assert_eq!(slow_among("READ", &[40; 5], &[3_000]), [Usual { median: 40 * MS, of_all: false }]);
        assert_eq!(slow_among("READ", &[300; 5], &[3_000]), all);
        // these may take long
        assert_eq!(slow_among("FLUSH", &[42], &[3_000]), []);
        assert_eq!(slow_among("FLUSH", &[42], &[30_000]), all, "but not that long");
        assert_eq!(slow_among("COPY", &[42], &[30_000]), []);
        assert_eq!(slow_among("FLUSH", &[40; 5], &[3_000]), [Usual { median: 40 * MS, of_all: false }]);
        assert_eq!(slow_among("CHANGE_NOTIFY", &[], &[3_000]), []);
        assert_eq!(slow_among("SESSION_SETUP", &[], &[3_000]), []);
        // few requests of any kind
        let mut few = with(&[(3_000, 1)]);
        few.rows.clear();
        few.row("READ").latency.add(3_000 * MS);
        assert_eq!(few.far_longer(false, 0, None).slow.len(), 0);
    }

    #[test]
    fn a_server_that_is_always_slow_is_slow() {
        let usual = |ms| Usual { median: ms * MS, of_all: false };
        assert_eq!(slow_among("READ", &[], &[2_000; 5]), [usual(2_000); 5]);
        assert_eq!(slow_among("READ", &[300; 40], &[2_000; 3]), [usual(300); 3]);
        assert_eq!(slow_among("READ", &[300; 40], &[2_000; 2]), []);
        assert_eq!(slow_among("LOCK", &[], &[2_000; 5]), []);
        assert_eq!(slow_among("SESSION_SETUP", &[], &[2_000; 5]), []);
        assert_eq!([usual(2_000), usual(300)].map(|usual| usual.exceeded(5_000 * MS) / MS), [5_000, 4_700]);
    }

    #[test]
    fn where_few_are_to_compare_with_a_hang_stands_out() {
        let slow = |others: usize, ms: i64| {
            let mut few = with(&[(ms, 1)]);
            few.rows.clear();
            few.row("READ").latency.add(ms * MS);
            (0..others).for_each(|_| few.row("GETATTR").latency.add(MS));
            few.far_longer(false, 0, None).slow.len()
        };
        assert_eq!([0, 1, 5, 12].map(|others| slow(others, 60_000)), [0, 1, 1, 1]);
        assert_eq!([1, 5, 12, 20].map(|others| slow(others, 3_000)), [0, 0, 0, 1], "no hang");
    }

    #[test]
    fn what_worked_is_compared_with_what_worked() {
        let slow = |status: u32| {
            let mut commands = Commands::default();
            let reply = |command, latency, status: u32| {
                let e = answered(command, latency, false);
                Exchange { status: Some(status), failed: status != 0, ..e }
            };
            for _ in 0..60 {
                commands.add(&reply("READ", MS / 10, 0xc000_0043));
            }
            for _ in 0..20 {
                let long = reply("READ", 40 * MS, status);
                commands.watch(&long, End::B);
                commands.add(&long);
            }
            commands.far_longer(false, 0, None).slow.len()
        };
        assert_eq!(slow(0), 0, "all that worked took as long");
        assert_eq!(slow(0xc000_0043), 20, "others were refused at once");
    }

    #[test]
    fn a_tick_of_a_coarse_clock_is_no_long_time() {
        let mut commands = with(&[(1_000, 1)]);
        let row = commands.row("READ");
        (0..100).for_each(|_| row.latency.add(0));
        commands.long[0].command = "READ";
        assert_eq!([0, 45 * MS, 1_000 * MS].map(|tick| commands.far_longer(false, tick, None).slow.len()), [1, 1, 0]);
    }

    #[test]
    fn replies_that_all_took_as_long_as_one_timer_were_sent_again() {
        let parts = |long: &[(i64, u64)], is_tcp: bool| {
            let commands = with(long);
            let far_longer = commands.far_longer(is_tcp, 0, None);
            (far_longer.resent.len(), far_longer.slow.len())
        };
        // 4.096 µs × 2^17 is 537 ms
        assert_eq!(parts(&[(538, 1), (540, 2), (545, 3)], false), (3, 0));
        assert_eq!(parts(&[(538, 1), (540, 2), (545, 3), (700, 4)], false), (3, 1), "the other one was slow");
        assert_eq!(parts(&[(538, 1), (540, 2)], false), (0, 2), "two may be chance");
        assert_eq!(parts(&[(538, 1), (540, 1), (545, 1)], false), (0, 3), "one compound");
        assert_eq!(parts(&[(538, 1), (1080, 2), (270, 3)], false), (0, 3), "each another timer");
        assert_eq!(parts(&[(538, 1), (540, 2), (545, 3)], true), (0, 3), "no timer of TCP");
        assert_eq!(parts(&[(201, 1), (202, 2), (203, 3)], true), (3, 0));
        // 4.096 µs × 2^14 × 3 is 201 ms
        assert_eq!(parts(&[(202, 1), (203, 2), (204, 3), (205, 4)], false), (4, 0));
        assert_eq!(parts(&[(202, 1), (203, 2), (204, 3), (209, 4)], false), (0, 4), "these do not stand out");
    }

    #[test]
    fn no_timer_is_shorter_than_the_handshake_said() {
        let commands = with(&[(202, 1), (203, 2), (204, 3), (538, 4), (539, 5), (540, 6)]);
        let parts = |timeout| {
            let far_longer = commands.far_longer(false, 0, timeout);
            (far_longer.resent.len(), far_longer.slow.len())
        };
        assert_eq!([None, Some(4096 << 14), Some(4096 << 17)].map(parts), [(6, 0), (6, 0), (3, 3)]);
        assert_eq!(parts(Some(4096 << 20)), (0, 6));
    }
}
