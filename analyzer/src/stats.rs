//! Exchanges counted by command.

use crate::exchange::Exchange;
use crate::latency::Latency;
use crate::report::Command;
use alloc::vec::Vec;

/// Commands of one connection, or of several, in the order in which they first came.
#[derive(Clone, Debug, Default)]
pub struct Commands {
    rows: Vec<Command>,
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
            *sum += part;
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

    /// Latency and median, in ns, of an exchange that took far longer than those before it of the same command.
    pub fn slow(&self, exchange: &Exchange) -> Option<(i64, i64)> {
        const TIMES: i64 = 20;
        const LEAST: i64 = 20_000_000;
        const ENOUGH: u64 = 16;
        let latency = exchange.latency().filter(|l| *l > LEAST && !exchange.pending)?;
        let row = self.find(exchange.command).filter(|r| r.latency.count() >= ENOUGH)?;
        let median = row.latency.quantile(500).filter(|m| latency > m.saturating_mul(TIMES))?;
        Some((latency, median))
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
