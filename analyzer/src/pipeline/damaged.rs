//! Datagrams of connection management whose invariant CRC is wrong: what became of each shows in the datagrams that
//! follow.

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

/// What became of a damaged datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It was sent again before anything answered it: its receiver had dropped it.
    Dropped,
    /// It was answered: its receiver had it undamaged.
    Taken,
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
    pub(super) fn follow(&mut self, (src, dst): (Addr, Addr), bytes: &[u8]) -> Vec<(At, Fate)> {
        for d in self.list.iter_mut().filter(|d| d.fate.is_none()) {
            if (d.src, d.dst) == (src, dst) && is_again(&d.bytes, bytes) {
                d.fate = Some(Fate::Dropped);
            } else if (d.src, d.dst) == (dst, src) && is_answer(&d.bytes, bytes) {
                d.fate = Some(Fate::Taken);
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

/// True if a datagram is a repetition of a damaged one.
fn is_again(damaged: &[u8], bytes: &[u8]) -> bool {
    damaged.len().min(bytes.len()) >= HEAD && damaged.iter().zip(bytes).filter(|(a, b)| a != b).count() <= DIFFERENT_MAX
}

/// True if a datagram answers a damaged one: by its kind, and by the transaction or the communication id, of which the
/// damage may have spoiled one.
fn is_answer(damaged: &[u8], bytes: &[u8]) -> bool {
    let (Some(asked), Some(answer)) = (damaged.first_chunk::<HEAD>(), bytes.first_chunk::<HEAD>()) else {
        return false;
    };
    let kind = |head: &[u8; HEAD]| Attribute(u16::from_be_bytes([head[16], head[17]]));
    let answers: &[Attribute] = match kind(asked) {
        Attribute::CONNECT_REQUEST => &[Attribute::CONNECT_REPLY, Attribute::CONNECT_REJECT, Attribute::MSG_RCPT_ACK],
        Attribute::CONNECT_REPLY => &[Attribute::READY_TO_USE, Attribute::MSG_RCPT_ACK, Attribute::DISCONNECT_REQUEST],
        Attribute::DISCONNECT_REQUEST => &[Attribute::DISCONNECT_REPLY],
        _ => &[],
    };
    answers.contains(&kind(answer)) && (asked[8..16] == answer[8..16] || asked[24..28] == answer[28..32])
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use rdmascope_dissector::wire::ib::cm;

    const HOSTS: (Addr, Addr) = (Addr::V4([10, 0, 0, 1]), Addr::V4([10, 0, 0, 2]));
    const BACK: (Addr, Addr) = (HOSTS.1, HOSTS.0);

    fn at(frame: u64) -> At {
        At { frame, time: 0 }
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
                let mut known: Vec<_> =
                    follow.iter().flat_map(|(hosts, bytes)| damaged.follow(*hosts, bytes)).collect();
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

    /// A REQ that is sent again is no answer to the REP.
    #[test]
    fn a_repetition_of_the_question_is_no_answer() {
        let mut damaged = Damaged::default();
        damaged.add(at(3), BACK, &datagram(Attribute::CONNECT_REPLY, 7, 80, 70, 1), true);
        assert_eq!(damaged.follow(HOSTS, &datagram(Attribute::CONNECT_REQUEST, 7, 70, 0, 1)), vec![]);
        assert_eq!(damaged.take_all(), vec![(at(3), Fate::Unknown)]);
    }

    /// Where all CRCs are wrong, they say nothing.
    #[test]
    fn a_datagram_is_damaged_only_where_others_are_right() {
        let request = datagram(Attribute::CONNECT_REQUEST, 7, 70, 0, 1);
        let reply = datagram(Attribute::CONNECT_REPLY, 7, 80, 70, 1);
        let mut damaged = Damaged::default();
        damaged.add(at(1), HOSTS, &request, false);
        assert_eq!(damaged.follow(BACK, &reply), vec![]);
        assert_eq!(damaged.clone().take_all(), vec![]);
        damaged.sound(HOSTS.0, HOSTS.1);
        assert_eq!(damaged.take_all(), vec![(at(1), Fate::Taken)]);
    }
}
