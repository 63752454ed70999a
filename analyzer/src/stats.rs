//! Exchanges counted by command.

use crate::episodes::time::{Owner, Time};
use crate::exchange::{Exchange, Family};
use crate::op::{At, End};
use crate::stored::stored;
use crate::summary::Command;
use alloc::vec::Vec;

/// True if a request may be without reply for as long as the connection lives.
pub fn may_wait(command: &str) -> bool {
    matches!(command, "CHANGE_NOTIFY" | "CANCEL" | "LOCK" | "OPLOCK_BREAK")
}

/// Commands of one connection, or of several, in the order in which they first came.
#[derive(Clone, Debug, Default)]
pub struct Commands {
    rows: Vec<Command>,
    /// Those that may have been slow: decided when the median is known.
    long: Vec<Long>,
    /// Failed requests: command, protocol, status, number.
    failures: Vec<(&'static str, Family, u32, u64)>,
    /// The first request of those that were not answered, and that must be.
    oldest_open: Option<At>,
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
    /// Part of it that was the server's own, in ns.
    pub server: i64,
    /// True if nothing was acknowledged meanwhile.
    pub is_unheard: bool,
}

/// Pairs of command and status that are counted apart at most.
const FAILURES_MAX: usize = 256;

impl Commands {
    /// Counts an exchange that is complete, or never will be.
    pub fn add(&mut self, exchange: &Exchange) {
        if let Some(status) = exchange.status.filter(|_| exchange.failed) {
            self.fail(exchange.command, exchange.family, status, 1);
        }
        let place = self.place(exchange.command);
        let row = &mut self.rows[place];
        row.count += 1;
        row.errors += u64::from(exchange.failed);
        row.bytes += exchange.bytes_moved;
        row.waited = row.waited.saturating_add(exchange.wait_for_credit);
        match exchange.latency() {
            Some(latency) => {
                row.latency.add(latency);
                row.time += &exchange.time;
                row.calm.add(latency.saturating_sub(exchange.time.held_up()));
                if exchange.counts() {
                    self.time += &exchange.time;
                }
            }
            None => {
                row.unanswered += 1;
                if !may_wait(exchange.command) {
                    self.oldest_open = Some(self.oldest_open.map_or(exchange.request, |at| at.min(exchange.request)));
                }
            }
        }
    }

    /// Adds the counts of another connection for a command.
    pub fn join(&mut self, command: &Command) {
        let row = self.row(command.name);
        row.count += command.count;
        row.errors += command.errors;
        row.unanswered += command.unanswered;
        row.bytes += command.bytes;
        row.latency.join(&command.latency);
        row.calm.join(&command.calm);
        row.time += &command.time;
        row.waited = row.waited.saturating_add(command.waited);
    }

    /// Adds the counts of another layer, or of the other half of a connection.
    pub fn absorb(&mut self, other: &Self) {
        other.rows.iter().for_each(|row| self.join(row));
        for &(command, family, status, count) in &other.failures {
            self.fail(command, family, status, count);
        }
        self.time += &other.time;
        self.oldest_open = [self.oldest_open, other.oldest_open].into_iter().flatten().min();
    }

    fn fail(&mut self, command: &'static str, family: Family, status: u32, count: u64) {
        match self.failures.iter().position(|(c, f, s, _)| (*c, *f, *s) == (command, family, status)) {
            Some(place) => self.failures[place].3 += count,
            None if self.failures.len() >= FAILURES_MAX => {}
            None => self.failures.push((command, family, status, count)),
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

    /// Remembers an exchange if it took long: [`Commands::slow`] decides at the end if that was far longer than others.
    pub fn watch(&mut self, exchange: &Exchange, replier: End) {
        const LEAST: i64 = 20_000_000;
        const LONG_MAX: usize = 1024;
        let Some(latency) = exchange.latency().filter(|l| *l > LEAST && !exchange.pending) else { return };
        // it may have waited for retransmitted packets meanwhile
        if exchange.retransmissions > 0 {
            return;
        }
        let Some(reply) = exchange.reply_end else { return };
        let server = exchange.time.of(Owner::Server);
        let Exchange { command, is_unheard, .. } = *exchange;
        let long = Long { command, latency, replier, reply, server, is_unheard };
        if self.long.len() < LONG_MAX {
            self.long.push(long);
        } else if let Some(least) = self.long.iter_mut().min_by_key(|long| long.latency).filter(|least| least.latency < latency) {
            *least = long;
        }
    }

    /// Exchanges that took far longer than others of the same command and most of whose time was the server's own, with
    /// the median of the command in ns.
    pub fn slow(&self) -> impl Iterator<Item = (&Long, i64)> {
        const TIMES: i64 = 20;
        const ENOUGH: u64 = 16;
        let enough = |row: &&Command| row.latency.count() > ENOUGH && self.long.iter().any(|long| long.command == row.name);
        let medians: Vec<_> = self.rows.iter().filter(enough).filter_map(|row| Some((row.name, row.latency.quantile(500)?))).collect();
        self.long.iter().filter_map(move |long| {
            let median = medians.iter().find(|(command, _)| *command == long.command)?.1;
            (long.latency > median.saturating_mul(TIMES) && long.server.saturating_mul(2) >= long.latency).then_some((long, median))
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

    /// Failed requests: command, protocol, status, number.
    pub fn failures(&self) -> &[(&'static str, Family, u32, u64)] {
        &self.failures
    }

    /// The rows of all commands.
    pub fn rows(&self) -> &[Command] {
        &self.rows
    }
}

stored!(Commands { rows, long, failures, oldest_open, time });
stored!(Long { command, latency, replier, reply, server, is_unheard });
