//! Exchanges counted by command.

use crate::exchange::{Exchange, Family};
use crate::flow::waits::Waits;
use crate::latency::Latency;
use crate::op::{At, End};
use crate::report::Command;
use alloc::vec::Vec;

/// Whether a request may be without reply for as long as the connection lives.
pub fn may_wait(command: &str) -> bool {
    matches!(command, "CHANGE_NOTIFY" | "CANCEL" | "LOCK" | "OPLOCK_BREAK")
}

/// Commands of one connection, or of several, in the order in which they first came.
#[derive(Clone, Debug, Default)]
pub struct Commands {
    rows: Vec<Command>,
    /// Those that may have been slow: which were is known when the median is.
    long: Vec<Long>,
    /// Failed requests: command, protocol, status, how many.
    failures: Vec<(&'static str, Family, u32, u64)>,
    /// The first request of those that were not answered, and that must be.
    oldest_open: Option<At>,
}

/// An exchange that took long.
#[derive(Clone, Copy, Debug)]
pub struct Long {
    /// Name of the command.
    pub command: &'static str,
    /// From its request to its reply, in ns.
    pub latency: i64,
    /// Who was asked.
    pub replier: End,
    /// The last frame of its reply.
    pub reply: At,
    /// From the last frame of the request to the first of the reply: times in ns.
    pub between: (i64, i64),
    /// How much of that was not RDMA, in ns.
    pub server: i64,
}

/// Pairs of command and status that are counted apart at most.
const FAILURES_MAX: usize = 256;

impl Commands {
    /// Counts an exchange that is complete, or never will be.
    pub fn add(&mut self, exchange: &Exchange) {
        let row = self.row(exchange.command);
        row.count += 1;
        row.errors += u64::from(exchange.failed);
        if let Some(status) = exchange.status.filter(|_| exchange.failed) {
            self.fail(exchange.command, exchange.family, status, 1);
        }
        let row = self.row(exchange.command);
        row.bytes += exchange.bytes_moved;
        match exchange.latency() {
            Some(latency) => row.latency.add(latency),
            None => {
                row.unanswered += 1;
                if !may_wait(exchange.command) {
                    self.oldest_open = Some(self.oldest_open.map_or(exchange.request, |at| at.min(exchange.request)));
                }
            }
        }
        let row = self.row(exchange.command);
        let split = exchange.split();
        for (sum, part) in row.split.iter_mut().zip([split.credit, split.wire, split.server, split.rdma]) {
            *sum = sum.saturating_add(part);
        }
    }

    /// Adds what another connection counted of a command.
    pub fn join(&mut self, command: &Command) {
        let row = self.row(command.name);
        row.count += command.count;
        row.errors += command.errors;
        row.unanswered += command.unanswered;
        row.bytes += command.bytes;
        row.latency.join(&command.latency);
        for (sum, part) in row.split.iter_mut().zip(command.split) {
            *sum = sum.saturating_add(part);
        }
    }

    /// Adds what others counted: those of another layer, or of the other half of a connection.
    pub fn absorb(&mut self, other: &Self) {
        other.rows.iter().for_each(|row| self.join(row));
        for &(command, family, status, count) in &other.failures {
            self.fail(command, family, status, count);
        }
        self.oldest_open = [self.oldest_open, other.oldest_open].into_iter().flatten().min();
    }

    fn fail(&mut self, command: &'static str, family: Family, status: u32, count: u64) {
        match self.failures.iter().position(|(c, f, s, _)| (*c, *f, *s) == (command, family, status)) {
            Some(place) => self.failures[place].3 += count,
            None if self.failures.len() >= FAILURES_MAX => {}
            None => self.failures.push((command, family, status, count)),
        }
    }

    /// The row of a command, made where there is none.
    fn row(&mut self, name: &'static str) -> &mut Command {
        let index = self.rows.iter().position(|r| r.name == name).unwrap_or_else(|| {
            let (latency, split) = (Latency::default(), [0; 4]);
            self.rows.push(Command { name, count: 0, errors: 0, unanswered: 0, bytes: 0, latency, split });
            self.rows.len() - 1
        });
        &mut self.rows[index]
    }

    /// Remembers an exchange if it took long: whether that was far longer than others is known at the end ([`Commands::slow`]).
    pub fn watch(&mut self, exchange: &Exchange, replier: End) {
        const LEAST: i64 = 20_000_000;
        const LONG_MAX: usize = 1024;
        let Some(latency) = exchange.latency().filter(|l| *l > LEAST && !exchange.pending) else { return };
        let (Some(first), Some(reply)) = (exchange.reply, exchange.reply_end) else { return };
        let between = (exchange.request_end.time, first.time);
        let server = exchange.split().server;
        let long = Long { command: exchange.command, latency, replier, reply, between, server };
        if self.long.len() < LONG_MAX {
            self.long.push(long);
        } else if let Some(least) = self.long.iter_mut().min_by_key(|long| long.latency).filter(|least| least.latency < latency) {
            *least = long;
        }
    }

    /// Exchanges that took far longer than others of the same command, with the median of these in ns, where most of the time was the
    /// server's own: not recovery, silence or another wait of `waits`, nor the way there and back.
    pub fn slow<'s>(&'s self, waits: &'s Waits) -> impl Iterator<Item = (&'s Long, i64)> {
        const TIMES: i64 = 20;
        const ENOUGH: u64 = 16;
        self.long.iter().filter_map(move |long| {
            let row = self.find(long.command).filter(|r| r.latency.count() > ENOUGH)?;
            let median = row.latency.quantile(500).filter(|m| long.latency > m.saturating_mul(TIMES))?;
            let (from, to) = long.between;
            let way = waits.shortest_round_trip(long.replier).unwrap_or(0);
            let own = long.server.saturating_sub(waits.between(from, to)).saturating_sub(way);
            (own.saturating_mul(2) >= long.latency).then_some((long, median))
        })
    }

    /// The row of a command.
    pub fn find(&self, name: &str) -> Option<&Command> {
        self.rows.iter().find(|r| r.name == name)
    }

    /// The first request of those that were not answered, and that must be.
    pub fn oldest_open(&self) -> Option<At> {
        self.oldest_open
    }

    /// Failed requests: command, protocol, status, how many.
    pub fn failures(&self) -> &[(&'static str, Family, u32, u64)] {
        &self.failures
    }

    /// All rows.
    pub fn rows(&self) -> &[Command] {
        &self.rows
    }
}
