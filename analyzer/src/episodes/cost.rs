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

/// True if a rule is about a kind of delay, with its cause, of the packets of `by`. `end` is the side to blame, by its
/// end in the episodes; `None` for both.
pub fn is_of(rule: Rule, end: Option<End>, kind: Kind, cause: Cause, by: Option<End>) -> bool {
    let sender = end.is_none() || by.is_none() || by == end;
    let receiver = end.is_none() || by.is_none() || by.map(End::peer) == end;
    match rule {
        Rule::RcRetransmit | Rule::TcpLoss => kind == Kind::Recovery && (cause.is_loss() || cause == Cause::Unknown),
        Rule::RcReorder | Rule::TcpReorder => kind == Kind::Recovery && cause == Cause::Reordered,
        Rule::RcIcrc | Rule::TcpChecksum => kind == Kind::Recovery && cause == Cause::Damaged,
        Rule::RcDestQp => kind == Kind::Recovery && cause == Cause::Misaddressed && sender,
        Rule::RcRnr => kind == Kind::Rnr && receiver,
        Rule::SmbdCreditStall => kind == Kind::Credit && receiver,
        Rule::TcpZeroWindow => kind == Kind::ZeroWindow && receiver,
        Rule::PeerSilent => kind == Kind::Silence && receiver,
        Rule::RdmaReadSlow => kind == Kind::Idle && cause == Cause::ReadResponse && sender,
        Rule::TcpNagle => kind == Kind::Nagle && sender,
        Rule::TcpHeld => kind == Kind::HeldUp,
        Rule::RcCnp => kind == Kind::Congestion,
        Rule::RcPfc => kind == Kind::Pause && cause != Cause::OtherPort,
        _ => false,
    }
}

/// Time of requests that the subject of a rule cost, in ns. `end` is the side to blame, by its end in the episodes;
/// `None` for both.
pub fn cost_in(sums: &[Sum], rule: Rule, end: Option<End>) -> i64 {
    let sums = sums.iter().filter(|sum| is_of(rule, end, sum.kind, sum.cause, sum.by));
    sums.map(|sum| sum.cost).fold(0, i64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::At;
    use alloc::vec::Vec;

    fn sum(kind: Kind, cause: Cause, by: Option<End>, cost: i64) -> Sum {
        let (first, last) = (At::default(), At::default());
        Sum { kind, cause, by, count: 1, lasted: cost, cost, packets: 1, repeated: 0, first, last }
    }

    /// What episodes of A's packets (1 ns), of B's (10 ns) and of both (100 ns) cost in the findings of a rule about A,
    /// B, and both.
    fn costs(rule: Rule, kind: Kind, cause: Cause) -> [i64; 3] {
        let sums = [(Some(End::A), 1), (Some(End::B), 10), (None, 100)].map(|(by, cost)| sum(kind, cause, by, cost));
        [Some(End::A), Some(End::B), None].map(|end| cost_in(&sums, rule, end))
    }

    #[test]
    fn each_rule_has_the_cost_of_its_own_episodes() {
        /// Whoever is to blame.
        const ALL: [i64; 3] = [111, 111, 111];
        /// Of packets of the end that is to blame.
        const SENDER: [i64; 3] = [101, 110, 111];
        /// Of packets of its peer.
        const RECEIVER: [i64; 3] = [110, 101, 111];
        let any: &[Cause] = &Cause::ALL;
        let paused: Vec<Cause> = Cause::ALL.into_iter().filter(|cause| *cause != Cause::OtherPort).collect();
        let lost: &[Cause] = &[
            Cause::Unknown,
            Cause::LostBefore,
            Cause::LostBehind,
            Cause::Unacknowledged,
            Cause::AckLost,
            Cause::ResponseLost,
        ];
        type Row<'c> = (Rule, Option<Kind>, &'c [Cause], [i64; 3]);
        let rows: [Row<'_>; 17] = [
            (Rule::RcRetransmit, Some(Kind::Recovery), lost, ALL),
            (Rule::TcpLoss, Some(Kind::Recovery), lost, ALL),
            (Rule::RcReorder, Some(Kind::Recovery), &[Cause::Reordered], ALL),
            (Rule::TcpReorder, Some(Kind::Recovery), &[Cause::Reordered], ALL),
            (Rule::RcIcrc, Some(Kind::Recovery), &[Cause::Damaged], ALL),
            (Rule::TcpChecksum, Some(Kind::Recovery), &[Cause::Damaged], ALL),
            (Rule::RcRnr, Some(Kind::Rnr), any, RECEIVER),
            (Rule::SmbdCreditStall, Some(Kind::Credit), any, RECEIVER),
            (Rule::TcpZeroWindow, Some(Kind::ZeroWindow), any, RECEIVER),
            (Rule::PeerSilent, Some(Kind::Silence), any, RECEIVER),
            (Rule::RdmaReadSlow, Some(Kind::Idle), &[Cause::ReadResponse], SENDER),
            (Rule::TcpNagle, Some(Kind::Nagle), any, SENDER),
            (Rule::TcpHeld, Some(Kind::HeldUp), any, ALL),
            (Rule::RcPfc, Some(Kind::Pause), &paused, ALL),
            (Rule::RcSpurious, None, any, ALL),
            (Rule::TcpSpurious, None, any, ALL),
            (Rule::CaptureLoss, None, any, ALL),
        ];
        for (rule, of, causes, expected) in rows {
            for kind in Kind::ALL {
                for cause in Cause::ALL {
                    let expected = if of == Some(kind) && causes.contains(&cause) { expected } else { [0; 3] };
                    assert_eq!(costs(rule, kind, cause), expected, "{rule:?}, {kind:?}, {cause:?}");
                }
            }
        }
    }

    #[test]
    fn costs_that_do_not_fit_are_as_large_as_can_be() {
        let sums = [i64::MAX, 1].map(|cost| sum(Kind::Pause, Cause::Unknown, None, cost));
        assert_eq!(cost_in(&sums, Rule::RcPfc, None), i64::MAX);
        assert_eq!(cost_in(&[], Rule::RcPfc, None), 0);
    }
}
