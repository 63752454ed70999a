//! What a flow has to say of its own layer, as findings and counters: the rules of RC queue pairs and of TCP, MPA, DDP and RDMAP.
//!
//! ```text
//!   IbFlow  ─ IbFact ───▶ ib.rs    ─┐
//!   TcpFlow ─ FlowFact ─▶ iwarp.rs ─┴▶ findings, Health, missed packets      operations go up as they are
//! ```

mod ib;
mod iwarp;

use crate::connection::Connection;
use crate::env::Env;
use crate::finding::{Blame, Certainty, Rule};
use crate::op::{At, Gap};
use crate::report::Sink;
use core::fmt;

pub use ib::icrc;

/// A connection and everything it reports to, as a flow sees them.
pub struct Listener<'c, S> {
    /// The connection.
    pub connection: &'c mut Connection,
    /// What it reports to.
    pub env: &'c mut Env<S>,
}

impl<S: Sink> Listener<'_, S> {
    pub(super) fn wire(&mut self, at: At, rule: Rule, by: Blame, certainty: Certainty, text: fmt::Arguments<'_>) {
        let mut court = self.connection.court(self.env, at);
        court.report(rule, by, certainty, text);
    }

    /// A stretch of the stream that will not come any more.
    pub fn lost(&mut self, gap: &Gap) {
        self.connection.gap(self.env, gap.at, gap.by);
        let count = gap.count;
        if gap.receiver_had_them {
            self.env.lost_by_capture += u64::from(count);
            self.wire(
                gap.at,
                Rule::CaptureLoss,
                Blame::Capture,
                Certainty::Certain,
                format_args!("lost packets that the receiver acknowledged: {count}"),
            );
        } else {
            self.wire(
                gap.at,
                Rule::CaptureLoss,
                Blame::Unknown,
                Certainty::Guess,
                format_args!("packets that never came again: {count}; lost by the capture, or by a network that nobody repaired"),
            );
        }
    }
}
