//! Exchanges counted by command.

use crate::exchange::Exchange;
use crate::flow::waits::Waits;
use crate::latency::Latency;
use crate::op::{At, End};
use crate::report::Command;
use alloc::vec::Vec;

/// Commands of one connection, or of several, in the order in which they first came.
#[derive(Clone, Debug, Default)]
pub struct Commands {
    rows: Vec<Command>,
    /// Those that may have been slow: which were is known when the median is.
    long: Vec<Long>,
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

impl Commands {
    /// Counts an exchange that is complete, or never will be.
    pub fn add(&mut self, exchange: &Exchange) {
        let row = self.row(exchange.command);
        row.count += 1;
        row.errors += u64::from(exchange.failed);
        row.bytes += exchange.bytes_moved;
        match exchange.latency() {
            Some(latency) => row.latency.add(latency),
            None => row.unanswered += 1,
        }
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

    /// All rows.
    pub fn rows(&self) -> &[Command] {
        &self.rows
    }
}
