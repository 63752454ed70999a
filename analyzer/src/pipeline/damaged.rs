//! Datagrams of connection management whose invariant CRC is wrong: what became of each shows in the datagrams that
//! follow.

use super::cm::MIRRORED;
use crate::op::At;
use alloc::vec::Vec;
use rdmascope_dissector::frame::Addr;
use rdmascope_dissector::wire::ib::cm::Attribute;

/// Datagrams whose fate is not known, at most.
const DATAGRAMS_MAX: usize = 1024;
/// Bytes in which a damaged datagram and its repetition may differ. Datagrams of two connections differ in more.
const DIFFERENT_MAX: usize = 4;
/// Bytes of the common header and of both communication ids.
const HEAD: usize = 32;
/// Bytes of the common header that say what kind of message it is.
const KIND: core::ops::Range<usize> = 16..18;
/// ns within which a datagram is sent again.
const AGAIN_MAX: i64 = 20_000_000_000;

/// What became of a damaged datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It was sent again before anything answered it: its receiver had dropped it.
    Dropped,
    /// It was answered: its receiver had it undamaged.
    Taken,
    /// A mirror shows it undamaged as well.
    Mirrored,
    /// Its receiver went on as if it had come: it had it undamaged, or packets of the connection told it the same.
    NotMissed,
    /// The capture has neither.
    Unknown,
}

#[derive(Clone, Debug)]
struct Datagram {
    at: At,
    src: Addr,
    dst: Addr,
    bytes: Vec<u8>,
    /// True if a wrong CRC of its sender says that it is damaged.
    is_known: bool,
    fate: Option<Fate>,
}

/// The damaged datagrams of a capture.
#[derive(Clone, Debug, Default)]
pub(super) struct Damaged {
    list: Vec<Datagram>,
    /// Most of them at one time.
    most: usize,
}

impl Damaged {
    /// Adds a datagram. `is_known`: other datagrams of its sender have a right CRC.
    pub(super) fn add(&mut self, at: At, (src, dst): (Addr, Addr), bytes: &[u8], is_known: bool) {
        if self.list.len() < DATAGRAMS_MAX {
            self.list.push(Datagram { at, src, dst, bytes: bytes.to_vec(), is_known, fate: None });
            self.most = self.most.max(self.list.len());
        }
    }

    /// A host sent another one a datagram whose CRC is right.
    pub(super) fn sound(&mut self, src: Addr, dst: Addr) {
        self.list.iter_mut().filter(|d| (d.src, d.dst) == (src, dst)).for_each(|d| d.is_known = true);
    }

    /// A datagram that is not damaged shows what became of others. Returns those of which it is known.
    pub(super) fn follow(&mut self, at: At, (src, dst): (Addr, Addr), bytes: &[u8]) -> Vec<(At, Fate)> {
        for d in self.list.iter_mut().filter(|d| d.fate.is_none()) {
            let after = at.since(d.at);
            if (d.src, d.dst) == (src, dst) && after <= AGAIN_MAX && is_again(&d.bytes, bytes) {
                // no sender gives up waiting so soon
                d.fate = Some(if after <= MIRRORED { Fate::Mirrored } else { Fate::Dropped });
            } else if (d.src, d.dst) == (dst, src) && is_answer(&d.bytes, bytes) {
                let is_ready = kind(&d.bytes) == Some(Attribute::READY_TO_USE);
                d.fate = Some(if is_ready { Fate::NotMissed } else { Fate::Taken });
            }
        }
        let decided = |d: &Datagram| d.fate.filter(|_| d.is_known);
        let known = self.list.iter().filter_map(|d| Some((d.at, decided(d)?))).collect();
        self.list.retain(|d| decided(d).is_none());
        known
    }

    /// True if none is remembered.
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// All that are left: nothing follows any more.
    pub(super) fn take_all(&mut self) -> Vec<(At, Fate)> {
        let mut left = core::mem::take(&mut self.list);
        left.sort_by_key(|d| d.at.frame);
        left.iter().filter(|d| d.is_known).map(|d| (d.at, d.fate.unwrap_or(Fate::Unknown))).collect()
    }

    /// Takes in those between other hosts, of another part of the capture. Returns true if one analysis of both would
    /// have had room for all of them.
    pub(super) fn join(&mut self, part: Damaged) -> bool {
        self.most += part.most;
        self.list.extend(part.list);
        self.most <= DATAGRAMS_MAX
    }
}

/// True if a datagram is a repetition of a damaged one. If its kind is another, nothing but that is damaged.
fn is_again(damaged: &[u8], bytes: &[u8]) -> bool {
    let differs = |range: core::ops::Range<usize>| {
        let pairs = damaged.iter().zip(bytes).enumerate().filter(|(n, _)| range.contains(n));
        pairs.filter(|(_, (a, b))| a != b).count()
    };
    let (all, kind) = (differs(0..damaged.len()), differs(KIND));
    damaged.len().min(bytes.len()) >= HEAD && all <= DIFFERENT_MAX && (kind == 0 || all == 1)
}

/// The kind of a datagram.
fn kind(bytes: &[u8]) -> Option<Attribute> {
    let [high, low] = *bytes.get(KIND)?.first_chunk()?;
    Some(Attribute(u16::from_be_bytes([high, low])))
}

/// True if a datagram answers a damaged one: by its kind, and by the transaction or the communication id, of which the
/// damage may have spoiled one.
fn is_answer(damaged: &[u8], bytes: &[u8]) -> bool {
    let (Some(asked), Some(answer)) = (damaged.first_chunk::<HEAD>(), bytes.first_chunk::<HEAD>()) else {
        return false;
    };
    let answers: &[Attribute] = match kind(asked) {
        Some(Attribute::CONNECT_REQUEST) => {
            &[Attribute::CONNECT_REPLY, Attribute::CONNECT_REJECT, Attribute::MSG_RCPT_ACK]
        }
        Some(Attribute::CONNECT_REPLY) => {
            &[Attribute::READY_TO_USE, Attribute::MSG_RCPT_ACK, Attribute::DISCONNECT_REQUEST]
        }
        // a server that closes the connection, or confirms that, had it
        Some(Attribute::READY_TO_USE) => &[Attribute::DISCONNECT_REQUEST, Attribute::DISCONNECT_REPLY],
        Some(Attribute::DISCONNECT_REQUEST) => &[Attribute::DISCONNECT_REPLY],
        _ => &[],
    };
    kind(answer).is_some_and(|kind| answers.contains(&kind))
        && (asked[8..16] == answer[8..16] || asked[24..28] == answer[28..32])
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use rdmascope_dissector::wire::ib::cm;

    const HOSTS: (Addr, Addr) = (Addr::V4([10, 0, 0, 1]), Addr::V4([10, 0, 0, 2]));
    const BACK: (Addr, Addr) = (HOSTS.1, HOSTS.0);

    /// Datagrams are 1 s apart.
    fn at(frame: u64) -> At {
        At { frame, time: frame as i64 * 1_000_000_000 }
    }

    /// A datagram with a transaction, the ids of both ends, and a content.
    fn datagram(attribute: Attribute, transaction: u64, local: u32, remote: u32, content: u8) -> Vec<u8> {
        let ids = [&local.to_be_bytes()[..], &remote.to_be_bytes(), &[content; 64]].concat();
        cm::datagram(attribute, transaction, &ids)
    }

    /// One bit of any byte is wrong: the fate of a REP shows all the same.
    #[test]
    fn what_became_of_a_damaged_datagram_shows_in_what_follows() {
        let reply = datagram(Attribute::CONNECT_REPLY, 7, 80, 70, 1);
        let ready = datagram(Attribute::READY_TO_USE, 7, 70, 80, 0);
        let other = datagram(Attribute::CONNECT_REPLY, 9, 91, 71, 2);
        for n in 0..reply.len() {
            let mut bytes = reply.clone();
            bytes[n] ^= 4;
            let fate = |follow: &[((Addr, Addr), &[u8])]| {
                let mut damaged = Damaged::default();
                damaged.add(at(3), BACK, &bytes, true);
                let mut known: Vec<_> = follow
                    .iter()
                    .zip(4..)
                    .flat_map(|((hosts, bytes), n)| damaged.follow(at(n), *hosts, bytes))
                    .collect();
                known.extend(damaged.take_all());
                assert!(damaged.is_empty());
                known
            };
            assert_eq!(fate(&[(BACK, &reply), (HOSTS, &ready)]), vec![(at(3), Fate::Dropped)], "{n}");
            assert_eq!(fate(&[(BACK, &other)]), vec![(at(3), Fate::Unknown)], "{n}");
            // its kind may be what is damaged
            let taken = if n == 16 || n == 17 { Fate::Unknown } else { Fate::Taken };
            assert_eq!(
                fate(&[(HOSTS, &ready), (BACK, &reply)])[0],
                (at(3), if taken == Fate::Taken { taken } else { Fate::Dropped }),
                "{n}"
            );
            assert_eq!(fate(&[(HOSTS, &ready)]), vec![(at(3), taken)], "{n}");
        }
    }

    /// A DREQ has nearly all bytes of the RTU, and is no repetition of it. Nothing but the end of the connection answers
    /// an RTU.
    #[test]
    fn a_damaged_rtu_is_not_sent_again_by_a_dreq() {
        let ready = datagram(Attribute::READY_TO_USE, 7, 70, 80, 0);
        let mut end = datagram(Attribute::DISCONNECT_REQUEST, 7, 70, 80, 0);
        end[33] = 5;
        let ended = datagram(Attribute::DISCONNECT_REPLY, 7, 80, 70, 0);
        let mut bytes = ready.clone();
        bytes[60] ^= 1;
        let fate = |follow: &[(i64, (Addr, Addr), &[u8])]| {
            let mut damaged = Damaged::default();
            damaged.add(At { frame: 3, time: 0 }, HOSTS, &bytes, true);
            let mut known = Vec::new();
            for (time, hosts, bytes) in follow {
                known.extend(damaged.follow(At { frame: 4, time: *time }, *hosts, bytes));
            }
            known.extend(damaged.take_all());
            known.iter().map(|(_, fate)| *fate).collect::<Vec<_>>()
        };
        let second = 1_000_000_000;
        assert_eq!(fate(&[(second, HOSTS, &end)]), [Fate::Unknown]);
        assert_eq!(fate(&[(second, HOSTS, &end), (2 * second, BACK, &ended)]), [Fate::NotMissed]);
        assert_eq!(fate(&[(second, HOSTS, &ready), (2 * second, BACK, &ended)]), [Fate::Dropped]);
        // the same datagram, from another mirror
        assert_eq!(fate(&[(3_000, HOSTS, &ready), (2 * second, BACK, &ended)]), [Fate::Mirrored]);
        assert_eq!(fate(&[(AGAIN_MAX + 1, HOSTS, &ready)]), [Fate::Unknown], "another connection's");
    }

    /// A REQ that is sent again is no answer to the REP.
    #[test]
    fn a_repetition_of_the_question_is_no_answer() {
        let mut damaged = Damaged::default();
        damaged.add(at(3), BACK, &datagram(Attribute::CONNECT_REPLY, 7, 80, 70, 1), true);
        assert_eq!(damaged.follow(at(4), HOSTS, &datagram(Attribute::CONNECT_REQUEST, 7, 70, 0, 1)), vec![]);
        assert_eq!(damaged.take_all(), vec![(at(3), Fate::Unknown)]);
    }

    /// Where all CRCs are wrong, they say nothing.
    #[test]
    fn a_datagram_is_damaged_only_where_others_are_right() {
        let request = datagram(Attribute::CONNECT_REQUEST, 7, 70, 0, 1);
        let reply = datagram(Attribute::CONNECT_REPLY, 7, 80, 70, 1);
        let mut damaged = Damaged::default();
        damaged.add(at(1), HOSTS, &request, false);
        assert_eq!(damaged.follow(at(4), BACK, &reply), vec![]);
        assert_eq!(damaged.clone().take_all(), vec![]);
        damaged.sound(HOSTS.0, HOSTS.1);
        assert_eq!(damaged.take_all(), vec![(at(1), Fate::Taken)]);
    }
}
