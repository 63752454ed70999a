//! What the packets of one point tell of each other: which of them were sent again, and which were acknowledged.
//!
//! The packets of a reliable queue pair and the segments of TCP are numbered. Their sender sends again what was not
//! acknowledged, and their receiver takes them in order.

use crate::packets::{Content, Flow, NAK_BITS, PSN_BITS, RNR, Seen, flow, hosts};
use rdmascope_dissector::frame::Addr;
use std::collections::{HashMap, HashSet};

/// What became of a packet that did not show at the point where it should arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It was lost.
    Lost,
    /// It was lost, if the capture missed nothing: it was sent again because of another one, too.
    PerhapsLost,
    /// It arrived, and the capture missed it.
    Missed,
    /// Either of these.
    Unknown,
}

/// No packet.
const NONE: u32 = u32::MAX;
/// Pieces by which a packet may come late.
const LATE: usize = 1 << 12;
/// Acknowledgments that leave a packet out: the connection went on, and the packet did not arrive.
const LEFT_OUT: usize = 3;

/// Numbers that are sent, and the packet that carried them last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) start: i64,
    pub(crate) end: i64,
    last: u32,
    /// How often they were sent.
    pub(crate) count: u32,
}

/// What one sender numbers: the requests or the responses to a queue pair, or the bytes of a TCP connection. Numbers
/// are continued beyond their bits.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stream {
    bits: u32,
    /// In the order of the numbers.
    pub(crate) pieces: Vec<Piece>,
    /// Behind the greatest one.
    reach: i64,
    /// The one that was sent last.
    newest: i64,
    /// Time of each acknowledgment, and the number up to which all are acknowledged by then.
    acknowledged: Vec<(i64, i64)>,
    /// Of the packets that arrived and were not sent again: time, and the greatest number of this and all later ones.
    proved: Vec<(i64, i64)>,
}

impl Stream {
    fn continued(&self, number: u32) -> i64 {
        self.reach + signed(i64::from(number) - self.reach, self.bits)
    }

    /// True if a number is too far away to be of the same connection.
    fn is_elsewhere(&self, number: i64) -> bool {
        (number - self.reach).abs() > 1 << (self.bits - 2)
    }

    /// Difference of the numbers of another point's stream to those of this one.
    pub(crate) fn shift(&self, other: &Self) -> i64 {
        let (here, there) = (self.pieces.first().map_or(0, |p| p.start), other.pieces.first().map_or(0, |p| p.start));
        here + signed(there - here, self.bits) - there
    }

    /// Splits the piece in which a number stands, before it.
    fn split(&mut self, at: i64) {
        let place = self.pieces.partition_point(|piece| piece.end <= at);
        if let Some(piece) = self.pieces.get_mut(place).filter(|piece| piece.start < at) {
            let before = Piece { end: at, ..*piece };
            piece.start = at;
            self.pieces.insert(place, before);
        }
    }

    /// Time at which everything before `end` is acknowledged.
    fn acknowledged_at(&self, end: i64) -> Option<i64> {
        let first = self.acknowledged.partition_point(|(_, all)| *all < end);
        self.acknowledged.get(first).map(|(time, _)| *time)
    }
}

/// The lower bits of a difference, with their sign.
fn signed(difference: i64, bits: u32) -> i64 {
    let above = i64::BITS - bits.max(1);
    difference << above >> above
}

/// The transmissions of one point.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    /// For each packet, the one that carried the same before.
    earlier: Vec<u32>,
    /// For each packet, the one that carried the same next.
    later: Vec<u32>,
    /// For each packet, its stream and the number behind its last one.
    positions: Vec<(u32, i64)>,
    /// Packets that were sent again because their receiver was not ready.
    asked: Vec<u32>,
    /// Packets with which a queue pair begins to repeat what it sent.
    steps: HashSet<u32>,
    streams: Vec<Stream>,
    of: HashMap<(Flow, bool), u32>,
}

/// The direction back, on TCP.
pub(crate) fn back((way, src, dst, ports): Flow) -> Flow {
    (way, dst, src, (ports.1, ports.0))
}

impl History {
    /// The history of all packets except copies. `reverse` has the direction back of those on queue pairs.
    pub(crate) fn new(packets: &[Seen], is_copy: &[bool], reverse: &HashMap<Flow, Flow>) -> Self {
        let mut this = Self {
            earlier: vec![NONE; packets.len()],
            later: vec![NONE; packets.len()],
            positions: vec![(NONE, 0); packets.len()],
            ..Self::default()
        };
        let mut not_ready: HashMap<((Addr, Addr), u32), i64> = HashMap::new();
        for (place, packet) in packets.iter().enumerate().filter(|(place, _)| !is_copy[*place]) {
            let flow = flow(packet);
            if let Some(number) = packet.content.acknowledged() {
                let is_tcp = matches!(packet.content, Content::Segment { .. });
                let forth = if is_tcp { Some(back(flow)) } else { reverse.get(&flow).copied() };
                this.acknowledge(forth, number, packet.time);
            }
            if let Content::Acknowledgment(psn, syndrome) = packet.content
                && syndrome & NAK_BITS == RNR
            {
                not_ready.insert((hosts(&flow), psn), packet.time);
            }
            this.send(place, flow, packet.content);
            let before = this.earlier[place];
            if let (Content::Request(psn), true) = (packet.content, before != NONE)
                && not_ready.get(&(hosts(&flow), psn)).is_some_and(|at| *at >= packets[before as usize].time)
            {
                this.asked.push(place as u32);
            }
        }
        this
    }

    fn acknowledge(&mut self, flow: Option<Flow>, number: u32, time: i64) {
        let Some(id) = flow.and_then(|flow| self.of.get(&(flow, false))) else { return };
        let stream = &mut self.streams[*id as usize];
        let all = stream.continued(number);
        if !stream.is_elsewhere(all) {
            let before = stream.acknowledged.last().map_or(all, |(_, all)| *all);
            stream.acknowledged.push((time, all.max(before)));
        }
    }

    fn send(&mut self, place: usize, flow: Flow, content: Content) {
        let Some((number, count, bits)) = content.numbers() else { return };
        let id = *self.of.entry((flow, matches!(content, Content::Response(_)))).or_insert_with(|| {
            self.streams.push(Stream { bits, reach: i64::from(number), ..Stream::default() });
            self.streams.len() as u32 - 1
        });
        let stream = &mut self.streams[id as usize];
        let start = stream.continued(number);
        let end = start + i64::from(count);
        let first = if start < stream.reach && !stream.pieces.is_empty() {
            stream.split(start);
            stream.split(end);
            stream.pieces.partition_point(|piece| piece.end <= start)
        } else {
            stream.pieces.len()
        };
        let again = stream.pieces[first..].iter().take_while(|piece| piece.start < end).count();
        // another connection with the same numbers of queue pair or ports
        if (again == 0 && stream.pieces.len() - first > LATE) || stream.is_elsewhere(start) {
            self.of.remove(&(flow, matches!(content, Content::Response(_))));
            return self.send(place, flow, content);
        }
        self.positions[place] = (id, end);
        if again > 0 && start <= stream.newest {
            self.steps.insert(place as u32);
        }
        stream.newest = start;
        let now = place as u32;
        if let Some(before) = stream.pieces[first..first + again].first() {
            self.earlier[place] = before.last;
        }
        for piece in &mut stream.pieces[first..first + again] {
            let later = &mut self.later[piece.last as usize];
            if *later == NONE {
                *later = now;
            }
            (piece.last, piece.count) = (now, piece.count + 1);
        }
        if again == 0 {
            stream.pieces.insert(first, Piece { start, end, last: now, count: 1 });
        } else if end > stream.reach {
            stream.pieces.push(Piece { start: stream.reach, end, last: now, count: 1 });
        }
        stream.reach = stream.reach.max(end);
    }

    /// Notes which packets of queue pairs prove that those before them arrived: receivers take them in order.
    pub(crate) fn prove(&mut self, packets: &[Seen], arrived: impl Fn(usize) -> bool) {
        for stream in self.streams.iter_mut().filter(|stream| stream.bits == PSN_BITS) {
            let last = stream.pieces.iter().filter(|piece| arrived(piece.last as usize));
            stream.proved = last.map(|piece| (packets[piece.last as usize].time, piece.end)).collect();
            stream.proved.sort_unstable();
            let mut greatest = i64::MIN;
            for (_, end) in stream.proved.iter_mut().rev() {
                greatest = greatest.max(*end);
                *end = greatest;
            }
        }
    }

    /// The stream of a direction: its requests, or its responses.
    pub(crate) fn stream(&self, flow: &Flow, is_response: bool) -> Option<&Stream> {
        self.of.get(&(*flow, is_response)).map(|id| &self.streams[*id as usize])
    }

    /// The packet that carried the same before.
    pub(crate) fn earlier(&self, place: usize) -> Option<usize> {
        Some(self.earlier[place]).filter(|place| *place != NONE).map(|place| place as usize)
    }

    fn later(&self, place: usize) -> Option<usize> {
        Some(self.later[place]).filter(|place| *place != NONE).map(|place| place as usize)
    }

    /// What became of a packet that did not show where it should arrive. `wait` is the time after which it would have
    /// been sent again.
    pub(crate) fn fate(&self, packets: &[Seen], place: usize, arrived: impl Fn(usize) -> bool, wait: i64) -> Fate {
        let (id, end) = self.positions[place];
        let Some(stream) = self.streams.get(id as usize) else { return Fate::Unknown };
        let time = packets[place].time;
        let (acknowledged, later) = (stream.acknowledged_at(end), self.later(place));
        if let Some(later) = later.filter(|later| acknowledged.is_none_or(|at| at > packets[*later].time)) {
            // a queue pair repeats everything behind the first one
            let is_first = stream.bits != PSN_BITS || self.steps.contains(&(later as u32));
            return if is_first { Fate::Lost } else { Fate::PerhapsLost };
        }
        // what a transmission before it may have brought about tells nothing of this one
        let mut before = std::iter::successors(self.earlier(place), |place| self.earlier(*place));
        if before.any(&arrived) || acknowledged.is_some_and(|at| at < time) {
            return Fate::Unknown;
        }
        let (soon, after) =
            (time.saturating_add(wait), |all: &[(i64, i64)], time| all.partition_point(|(at, _)| *at < time));
        let proved = stream.proved.get(after(&stream.proved, soon)).is_some_and(|(_, all)| *all >= end);
        if acknowledged.is_some() || proved {
            return Fate::Missed;
        }
        let left_out = stream.acknowledged.len() - after(&stream.acknowledged, soon);
        // tried to the end, or left out by all that was said later
        if self.earlier(place).is_some() || left_out >= LEFT_OUT { Fate::Lost } else { Fate::Unknown }
    }

    /// Packets that had arrived and were sent again, not as a consequence of a loss before they arrived, nor because
    /// their receiver asked for it.
    pub(crate) fn sent_again(&self, packets: &[Seen], arrived: impl Fn(usize) -> bool) -> Vec<usize> {
        /// A loss before the point: the first number, and the times of that packet and of its repetition.
        #[derive(Clone, Copy)]
        struct Recovery {
            start: i64,
            lost: i64,
            repeated: i64,
        }
        let mut recoveries: Vec<Option<Recovery>> = vec![None; self.streams.len()];
        let mut found = Vec::new();
        for (place, packet) in packets.iter().enumerate() {
            let (id, end) = self.positions[place];
            let Some(stream) = self.streams.get(id as usize) else { continue };
            let recovery = &mut recoveries[id as usize];
            let start = end - packet.content.numbers().map_or(0, |(_, count, _)| i64::from(count));
            let Some(before) = self.earlier(place) else { continue };
            let sent = packets[before].time;
            if !arrived(before) {
                let new = Recovery { start, lost: sent, repeated: packet.time };
                let known = recovery.filter(|known| known.repeated > sent);
                *recovery = Some(known.map_or(new, |known| Recovery {
                    start: known.start.min(start),
                    lost: known.lost.min(sent),
                    repeated: packet.time,
                }));
                continue;
            }
            let is_consequence = recovery.is_some_and(|r| start > r.start && sent > r.lost && sent < r.repeated);
            let is_follower = stream.bits == PSN_BITS && !self.steps.contains(&(place as u32));
            let is_acknowledged = stream.acknowledged_at(end).is_some_and(|at| at < packet.time);
            if !is_consequence && !is_follower && !is_acknowledged && self.asked.binary_search(&(place as u32)).is_err()
            {
                found.push(place);
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packets::packet;
    use rdmascope_dissector::wire::tcp::flags;

    const MS: i64 = 1_000_000;

    fn sent(time: i64, content: Content) -> Seen {
        packet(time, content, (0, 0))
    }

    /// What became of each packet that did not arrive, where `arrived` tells which did.
    fn fates(packets: &[Seen], arrived: &[bool]) -> Vec<(usize, Fate)> {
        // requests and acknowledgments of the same flow, for brevity
        let reverse = packets.iter().map(|packet| (flow(packet), flow(packet))).collect();
        let mut history = History::new(packets, &vec![false; packets.len()], &reverse);
        history.prove(packets, |place| arrived[place]);
        let gone = (0..packets.len()).filter(|place| !arrived[*place]);
        gone.map(|place| (place, history.fate(packets, place, |place| arrived[place], MS))).collect()
    }

    fn again(packets: &[Seen], arrived: &[bool]) -> Vec<usize> {
        let reverse = packets.iter().map(|packet| (flow(packet), flow(packet))).collect();
        History::new(packets, &vec![false; packets.len()], &reverse).sent_again(packets, |place| arrived[place])
    }

    fn requests(psns: &[u32]) -> Vec<Seen> {
        psns.iter().zip(0..).map(|(psn, n)| sent(n * 2 * MS, Content::Request(*psn))).collect()
    }

    #[test]
    fn what_is_sent_again_was_lost_and_what_is_followed_was_not() {
        // 2 is lost, and everything behind it is repeated; the capture missed 5
        let packets = requests(&[1, 2, 3, 4, 2, 3, 4, 5, 6, 7]);
        let arrived = [true, false, true, true, true, true, true, false, true, true];
        assert_eq!(fates(&packets, &arrived), [(1, Fate::Lost), (7, Fate::Missed)]);
        assert_eq!(again(&packets, &arrived), [0; 0], "a consequence of the loss");
        // nothing follows
        assert_eq!(fates(&packets[..8], &arrived[..8]), [(1, Fate::Lost), (7, Fate::Unknown)]);
        // across the end of the numbers
        let packets = requests(&[0x00ff_fffe, 0x00ff_ffff, 0, 1]);
        assert_eq!(fates(&packets, &[true, false, true, true]), [(1, Fate::Missed)]);
    }

    #[test]
    fn what_is_tried_to_the_end_was_lost() {
        let arrived = [true, false, false, false];
        assert_eq!(fates(&requests(&[1, 2, 2, 2]), &arrived), [(1, Fate::Lost), (2, Fate::Lost), (3, Fate::Lost)]);
        // of what arrived before, nothing tells whether it arrived once more
        assert_eq!(fates(&requests(&[1, 2, 2]), &[true, true, false]), [(2, Fate::Unknown)]);
    }

    #[test]
    fn acknowledgments_tell_what_arrived() {
        let acknowledged = |psn, syndrome| sent(100 * MS, Content::Acknowledgment(psn, syndrome));
        let gone = |ack| {
            let mut packets = requests(&[1, 2]);
            packets.push(ack);
            fates(&packets, &[true, false, true])
        };
        assert_eq!(gone(acknowledged(2, 31)), [(1, Fate::Missed)]);
        assert_eq!(gone(acknowledged(1, 31)), [(1, Fate::Unknown)]);
        assert_eq!(gone(acknowledged(2, 0x60)), [(1, Fate::Unknown)], "a NAK acknowledges what is before it");
        assert_eq!(gone(sent(100 * MS, Content::Response(2))), [(1, Fate::Missed)]);
        assert_eq!(gone(sent(100 * MS, Content::Unnumbered)), [(1, Fate::Unknown)]);
    }

    #[test]
    fn a_queue_pair_that_repeats_everything_lost_one_packet() {
        // 2 was lost behind the point
        assert_eq!(again(&requests(&[1, 2, 3, 4, 2, 3, 4, 5]), &[true; 8]), [4]);
        // its receiver was not ready
        let mut packets = requests(&[1, 2]);
        packets.push(sent(3 * MS, Content::Acknowledgment(2, RNR | 12)));
        packets.push(sent(4 * MS, Content::Request(2)));
        packets.push(sent(9 * MS, Content::Request(2)));
        assert_eq!(again(&packets, &[true; 5]), [4], "it was asked for once");
    }

    #[test]
    fn the_numbers_of_another_connection_are_not_the_same() {
        let packets = requests(&[5, 6, 0x0070_0000, 0x0070_0001, 5]);
        assert_eq!(again(&packets, &[true; 5]), [0; 0]);
        // one that comes late is no repetition
        assert_eq!(again(&requests(&[1, 3, 2, 4]), &[true; 4]), [0; 0]);
    }

    fn segment(time: i64, seq: u32, length: u32) -> Seen {
        let content = Content::Segment { seq, flags: flags::ACK, length, ack: 1 };
        packet(time, content, (1, 2))
    }

    fn reply(time: i64, ack: u32) -> Seen {
        let content = Content::Segment { seq: 1, flags: flags::ACK, length: 0, ack };
        packet(time, content, (2, 1))
    }

    #[test]
    fn tcp_acknowledges_and_sends_again_by_bytes() {
        // 100 bytes that were acknowledged, and 100 that are sent again in two segments
        let packets = [
            segment(0, 0, 100),
            reply(MS, 100),
            segment(2 * MS, 100, 100),
            segment(4 * MS, 100, 50),
            segment(5 * MS, 150, 50),
            reply(6 * MS, 200),
        ];
        let arrived = [false, true, false, true, true, true];
        assert_eq!(fates(&packets, &arrived), [(0, Fate::Missed), (2, Fate::Lost)]);
        assert_eq!(again(&packets, &arrived), [0; 0]);
        // acknowledged all along, but not this far
        let packets =
            [segment(0, 0, 100), segment(MS, 100, 100), reply(3 * MS, 100), reply(4 * MS, 100), reply(5 * MS, 100)];
        assert_eq!(fates(&packets, &[true, false, true, true, true]), [(1, Fate::Lost)]);
    }

    #[test]
    fn what_is_no_data_is_not_sent_again() {
        // a keepalive of no bytes, one of a byte that is acknowledged, duplicate acknowledgments
        let packets = [
            segment(0, 0, 100),
            reply(MS, 100),
            segment(2 * MS, 99, 0),
            segment(3 * MS, 99, 1),
            reply(4 * MS, 100),
            reply(5 * MS, 100),
        ];
        assert_eq!(again(&packets, &[true; 6]), [0; 0]);
        let packets = [segment(0, 0, 100), segment(MS, 0, 100), reply(2 * MS, 100)];
        assert_eq!(again(&packets, &[true; 3]), [1]);
    }
}
