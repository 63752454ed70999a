//! Message sequence numbers tell a connection from another one on the same queue pairs.
//!
//! Spec: IBA volume 1, 9.7.7.1. A responder counts the messages that it has completed, from 0 for each connection, and
//! its acknowledgments carry that number (MSN). Each message takes one PSN at least: where the capture has a hole, the
//! MSN goes on by no more than the PSNs do. A host that started anew begins with other PSNs, and counts from 0 again.

use super::psn;
use crate::op::At;

/// PSNs by which an acknowledgment is away from the one before it, at least, to be in question.
pub const NEAR: i32 = 1024;
/// PSNs by which what goes out again is behind at most.
const BACK_MAX: i32 = 1 << 16;
/// Messages that may be counted beside the packets of an acknowledgment.
const SLACK: u32 = 64;
/// ns in which one connection does not carry so many packets that their number goes round: fifty million a second.
const PACKETS_ROUND: i64 = 300_000_000;
/// ns in which it does not carry half as many messages: half a million a second.
const MESSAGES_ROUND: i64 = 16_000_000_000;
/// Messages of a connection that began a while ago.
const FRESH: u32 = 4096;

/// Content of an acknowledgment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// The PSN that it acknowledges.
    pub psn: u32,
    /// Messages that its sender has completed.
    pub msn: u32,
    /// Its time, in ns.
    pub time: i64,
}

impl Told {
    /// Compares an acknowledgment with this one, which came before it, of the same receiver: true if it is of another
    /// connection, `None` if it is too near to tell.
    pub fn is_of_another(&self, at: At, number: u32, msn: u32) -> Option<bool> {
        let ahead = psn::ahead(number, self.psn);
        if (-NEAR..=NEAR).contains(&ahead) {
            return None;
        }
        if (-BACK_MAX..0).contains(&ahead) {
            // who is asked again for what it has done tells how far it is; or the capture shows it once more, late
            return Some(false);
        }
        let packets = number.wrapping_sub(self.psn) & psn::MASK;
        let messages = msn.wrapping_sub(self.msn) & psn::MASK;
        Some(match at.time.saturating_sub(self.time) {
            ..PACKETS_ROUND => messages > packets.saturating_add(SLACK),
            PACKETS_ROUND..MESSAGES_ROUND => psn::ahead(msn, self.msn) < 0,
            _ => msn < FRESH && msn < self.msn / 2,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    /// Whether an acknowledgment of a PSN with an MSN, so many ns later, is of another connection than one of PSN 50,000
    /// with MSN 300.
    fn verdict(psn: u32, msn: u32, took: i64) -> Option<bool> {
        let told = Told { psn: 50_000, msn: 300, time: 0 };
        told.is_of_another(At { frame: 9, time: took }, psn, msn)
    }

    #[test]
    fn a_count_of_messages_that_begins_again_is_of_another_connection() {
        assert_eq!(verdict(9_000_000, 1, SECOND), Some(true));
        assert_eq!(verdict(77_000, 1, 1000), Some(true), "hardly ahead");
        // a minute is enough for a million a second, but not to come back to so low a number
        assert_eq!(
            [verdict(9_000_000, 1, 60 * SECOND), verdict(9_000_000, 299, 60 * SECOND)],
            [Some(true), Some(false)]
        );
        // a thousand packets cannot carry ten thousand messages
        assert_eq!(verdict(51_500, 10_300, 1000), Some(true));
    }

    #[test]
    fn behind_a_hole_packets_and_messages_go_on() {
        assert_eq!([verdict(9_000_000, 300, SECOND), verdict(9_000_000, 100_000, SECOND)], [Some(false); 2]);
        assert_eq!([verdict(50_500, 1, SECOND), verdict(49_500, 1, SECOND)], [None; 2], "too near to tell");
        // in a second the number of packets goes round, and there are more messages than it shows
        assert_eq!(verdict(53_000, 65_848, SECOND), Some(false));
    }

    #[test]
    fn what_was_acknowledged_before_is_none_of_another_connection() {
        assert_eq!([verdict(45_000, 200, SECOND / 10), verdict(45_000, 200, 2 * SECOND)], [Some(false); 2]);
        assert_eq!(verdict(45_000, 300, 2 * SECOND), Some(false));
    }
}
