//! The limit of memory for all connections together.

use super::Pipeline;
use crate::op::At;
use crate::sink::Sink;

impl Pipeline<dyn Sink> {
    /// Counts the memory of a connection after a packet. If all connections together exceed the limit, the idlest give
    /// up theirs.
    #[inline]
    pub(super) fn count_memory(&mut self, at: At, slot: u32) {
        self.table.count_memory(slot);
        if self.table.held() > self.env.options.memory_max {
            self.relieve(at);
        }
    }

    /// Makes room: unfinished messages and payloads go first, of the connections that were idle longest; then those
    /// connections.
    #[cold]
    fn relieve(&mut self, at: At) {
        /// Bytes from which on it is worth it.
        const HEAVY: usize = 16 << 10;
        let enough = self.env.options.memory_max / 4 * 3;
        for slot in self.table.heavy(HEAVY) {
            if let Some(s) = self.table.get_mut(slot) {
                s.connection.count_payloads();
                self.table.count_memory(slot);
            }
        }
        for slot in self.table.heavy(HEAVY) {
            if self.table.held() <= enough {
                return;
            }
            if let Some(s) = self.table.get_mut(slot).filter(|s| s.connection.unfinished() >= HEAVY) {
                s.connection.release(&mut self.env, at, HEAVY);
                self.messages_forgotten += 1;
                self.table.count_memory(slot);
            }
        }
        while self.table.held() > enough && self.table.len() > 1 {
            let Some(idlest) = self.table.idlest() else { return };
            self.connections_evicted += 1;
            self.close(idlest, at);
        }
    }
}
