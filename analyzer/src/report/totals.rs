//! Sums of connections: kept for those that a live analysis no longer keeps one by one, and used for metrics.

use crate::report::{Connection, Health, Protocol, Rdma, Transport};
use crate::stats::Commands;
use crate::stored::stored;
use alloc::vec::Vec;

/// All connections of one carrier and content.
#[derive(Clone, Debug)]
pub struct Total {
    /// Carrier.
    pub transport: Transport,
    /// Content.
    pub protocol: Protocol,
    /// Number of connections.
    pub connections: u64,
    /// Of those, the open ones.
    pub open: u64,
    /// Bytes in frames: from clients, from servers.
    pub bytes: [u64; 2],
    /// Counters of clients and servers.
    pub sides: [SideTotal; 2],
    /// RDMA.
    pub rdma: Rdma,
    /// The wire.
    pub health: Health,
    /// Exchanges by command.
    pub commands: Commands,
}

/// Messages and credits of the same end of several connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SideTotal {
    /// Messages it sent.
    pub messages: u64,
    /// Of those, in fragments.
    pub fragmented: u64,
    /// Requests for a response.
    pub keepalives: u64,
    /// Credits granted to it.
    pub granted: u64,
    /// Credits it spent.
    pub spent: u64,
    /// Times it waited for credits.
    pub stalls: u64,
    /// Total time that it waited for credits, in ns.
    pub stalled_time: i64,
    /// Sends without credit.
    pub overruns: u64,
    /// Least that an open connection holds now, if known.
    pub held_least: Option<i64>,
}

impl SideTotal {
    /// Adds that of other connections.
    fn join(&mut self, other: &Self) {
        self.messages += other.messages;
        self.fragmented += other.fragmented;
        self.keepalives += other.keepalives;
        self.granted += other.granted;
        self.spent += other.spent;
        self.stalls += other.stalls;
        self.stalled_time = self.stalled_time.saturating_add(other.stalled_time);
        self.overruns += other.overruns;
        self.held_least = [self.held_least, other.held_least].into_iter().flatten().min();
    }
}

/// Connections by carrier and content.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    rows: Vec<Total>,
}

impl Totals {
    /// A row for each carrier and content there was.
    pub fn rows(&self) -> &[Total] {
        &self.rows
    }

    /// Connections in all.
    pub fn connections(&self) -> u64 {
        self.rows.iter().map(|r| r.connections).sum()
    }

    /// The row of a carrier and a content.
    fn row(&mut self, transport: Transport, protocol: Protocol) -> &mut Total {
        let at = match self.rows.iter().position(|r| (r.transport, r.protocol) == (transport, protocol)) {
            Some(at) => at,
            None => {
                self.rows.push(Total {
                    transport,
                    protocol,
                    connections: 0,
                    open: 0,
                    bytes: [0; 2],
                    sides: [SideTotal::default(); 2],
                    rdma: Rdma::default(),
                    health: Health::default(),
                    commands: Commands::default(),
                });
                self.rows.len() - 1
            }
        };
        &mut self.rows[at]
    }

    /// Adds those of other connections.
    pub fn join(&mut self, other: &Self) {
        for more in &other.rows {
            let row = self.row(more.transport, more.protocol);
            row.connections += more.connections;
            row.open += more.open;
            row.bytes.iter_mut().zip(more.bytes).for_each(|(sum, n)| *sum += n);
            row.sides.iter_mut().zip(&more.sides).for_each(|(sum, side)| sum.join(side));
            row.rdma.join(&more.rdma);
            row.health.join(&more.health);
            more.commands.rows().iter().for_each(|command| row.commands.join(command));
        }
    }

    /// Adds a connection; of an open one also the credits that its sides hold.
    pub fn add(&mut self, c: &Connection, is_open: bool) {
        let row = self.row(c.transport.unwrap_or(Transport::Tcp), c.protocol);
        row.connections += 1;
        row.open += u64::from(is_open);
        for (_, client, server) in &c.throughput {
            row.bytes[0] += client;
            row.bytes[1] += server;
        }
        for (sum, side) in row.sides.iter_mut().zip(&c.sides) {
            sum.join(&SideTotal {
                messages: side.messages,
                fragmented: side.fragmented,
                keepalives: side.keepalives,
                granted: side.granted_total,
                spent: side.spent_total,
                stalls: side.stalls,
                stalled_time: side.stalled_time,
                overruns: side.overruns,
                held_least: side.held_last.filter(|_| is_open),
            });
        }
        row.rdma.join(&c.rdma);
        row.health.join(&c.health);
        c.commands.iter().for_each(|command| row.commands.join(command));
    }
}

stored!(Total { transport, protocol, connections, open, bytes, sides, rdma, health, commands });
stored!(SideTotal { messages, fragmented, keepalives, granted, spent, stalls, stalled_time, overruns, held_least });
stored!(Totals { rows });

#[cfg(test)]
mod tests {
    use super::*;
    use crate::episodes::time::Time;
    use crate::latency::Latency;
    use crate::report::{Command, SideReport};
    use alloc::vec;

    #[test]
    fn connections_of_one_kind_are_one_row() {
        let mut latency = Latency::default();
        latency.add(1000);
        let time = Time([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
        let command = Command { name: "READ", count: 1, bytes: 7, latency, time, ..Command::default() };
        let side =
            |held| SideReport { messages: 3, stalls: 1, stalled_time: 50, held_last: held, ..SideReport::default() };
        let connection = |held| Connection {
            transport: Some(Transport::RoceV2),
            protocol: Protocol::SmbDirect,
            sides: [side(held), side(None)],
            commands: vec![command.clone()],
            throughput: vec![(0, 10, 20), (5, 1, 2)],
            ..Connection::default()
        };
        let mut totals = Totals::default();
        totals.add(&connection(Some(4)), false);
        totals.add(&connection(Some(9)), true);
        totals.add(&connection(Some(7)), true);
        totals.add(&Connection { transport: Some(Transport::Iwarp), ..Connection::default() }, true);
        assert_eq!((totals.rows().len(), totals.connections()), (2, 4));
        let row = &totals.rows()[0];
        assert_eq!((row.connections, row.open, row.bytes), (3, 2, [33, 66]));
        assert_eq!(
            (row.sides[0].messages, row.sides[0].stalled_time, row.sides[0].held_least, row.sides[1].held_least),
            (9, 150, Some(7), None)
        );
        let reads = &row.commands.rows()[0];
        assert_eq!((reads.count, reads.bytes, reads.latency.count(), reads.time.sum()), (3, 21, 3, 165));
    }
}
