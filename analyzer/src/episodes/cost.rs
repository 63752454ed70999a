//! The episodes that a rule is about, so that a finding can tell their cost.

use super::{Cause, Kind, Sum};
use crate::finding::Rule;
use crate::op::End;

/// True if a rule is about problems that the transport repairs: how bad they are depends on their cost.
pub const fn is_of_the_wire(rule: Rule) -> bool {
    matches!(
        rule,
        Rule::RcRetransmit
            | Rule::TcpLoss
            | Rule::RcReorder
            | Rule::TcpReorder
            | Rule::RcSpurious
            | Rule::TcpSpurious
            | Rule::RcIcrc
            | Rule::TcpChecksum
            | Rule::TcpHeld
            | Rule::TcpNagle
    )
}

/// Time of requests that the subject of a rule cost, in ns. `end` is the side to blame, by its end in the episodes; `None` for both.
pub fn cost_in(sums: &[Sum], rule: Rule, end: Option<End>) -> i64 {
    let sums = sums.iter().filter(|sum| {
        let sender = end.is_none() || sum.by.is_none() || sum.by == end;
        let receiver = end.is_none() || sum.by.is_none() || sum.by.map(End::peer) == end;
        match rule {
            Rule::RcRetransmit | Rule::TcpLoss => sum.kind == Kind::Recovery && (sum.cause.is_loss() || sum.cause == Cause::Unknown),
            Rule::RcReorder | Rule::TcpReorder => sum.kind == Kind::Recovery && sum.cause == Cause::Reordered,
            Rule::RcIcrc | Rule::TcpChecksum => sum.kind == Kind::Recovery && sum.cause == Cause::Damaged,
            Rule::RcRnr => sum.kind == Kind::Rnr && receiver,
            Rule::SmbdCreditStall => sum.kind == Kind::Credit && receiver,
            Rule::TcpZeroWindow => sum.kind == Kind::ZeroWindow && receiver,
            Rule::PeerSilent => sum.kind == Kind::Silence && receiver,
            Rule::TcpNagle => sum.kind == Kind::Nagle && sender,
            Rule::TcpHeld => sum.kind == Kind::HeldUp,
            Rule::RcPfc => sum.kind == Kind::Pause,
            _ => false,
        }
    });
    sums.map(|sum| sum.cost).fold(0, i64::saturating_add)
}
