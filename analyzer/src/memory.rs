//! The remote memory of one connection: advertisements, accesses, their end, and the rules about them. \[MS-SMBD\]
//! 2.2.3.1 and 3.1.4.3–6, RFC 8166 3.4.
//!
//! ```text
//!   messages, upper ── advertise, invalidated, end ──▶ Memory ◀── RDMA Write, Read Request, Read Response ── flow
//!                                                        └── Delivery: which exchange the bytes are of ──▶ upper
//! ```
//!
//! A key is *live* from the message that advertises it until it is invalidated by the peer's Send, or the exchange that
//! advertised it ends. A later access is stale. Ended keys are remembered for a while, so that *stale* differs from
//! *unknown*.

use crate::context::FrameContext;
use crate::finding::{Certainty, Rule};
use crate::missed::{BEHIND_MAX, Rests};
use crate::notes::f;
use crate::op::{At, End, Placement, RdmaOp, Verb};
use crate::summary::{Protocol, Rdma};
use alloc::vec::Vec;
use hashbrown::HashMap;
use rdmascope_dissector::text::Elapsed;
use rdmascope_dissector::trace::{Trace, Value};

/// ns after a reply within which an RDMA Write for its exchange came too late, rather than for no reason.
const LATE: i64 = 1_000_000_000;
/// Keys in a row, each the last one plus the same number, that can be guessed. If only the eight low bits of a key were
/// random, this many would come about by chance once in 2^112 times.
const PREDICTABLE_RUN: u32 = 16;

/// Keys remembered per connection at most, live and ended together.
pub(crate) const REGIONS_MAX: usize = 4096;
/// Keys with more than one range that are remembered per connection at most, and ranges of each besides the last one.
const OTHERS_MAX: usize = 64;
const RANGES_MAX: usize = 64;

/// Rights of the peer to a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// RDMA Read it.
    Read,
    /// RDMA Write it.
    Write,
    /// The right is unknown.
    Any,
}

/// State of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Advertised, and the exchange goes on.
    Live,
    /// Invalidated by the peer's Send with Invalidate.
    Invalidated(At),
    /// The exchange ended.
    Ended(At),
}

/// A piece of memory that one end lets the other use.
#[derive(Clone, Copy, Debug)]
pub struct Region {
    /// Address or tagged offset of its first byte.
    pub address: u64,
    /// Length in bytes.
    pub length: u64,
    /// Rights of the peer.
    pub right: Right,
    /// The exchange that advertised it.
    pub exchange: u64,
    /// Its place among that exchange's descriptors or segments.
    pub index: u32,
    /// Offset of its bytes in the exchange's payload.
    pub payload_offset: u64,
    /// Time and frame of its advertisement.
    pub advertised: At,
    /// State of the region.
    pub state: State,
    /// Bytes read or written.
    pub used: u64,
    /// True if the exchange ended as if all of its bytes had come, and they had not.
    pub awaited: bool,
    /// True if the reply announced none of its bytes: no write is missing.
    pub is_void: bool,
}

impl Region {
    /// True if all of these bytes lie in it.
    pub fn holds(&self, address: u64, length: u64) -> bool {
        address.checked_sub(self.address).is_some_and(|offset| offset.saturating_add(length) <= self.length)
    }

    /// Relation of an access to it: `length` bytes at `address` are read or written (`wanted`).
    fn fit(&self, address: u64, length: u64, wanted: Right) -> Fit {
        if self.state != State::Live {
            Fit::Stale
        } else if self.right != Right::Any && self.right != wanted {
            Fit::Direction
        } else if !self.holds(address, length) {
            Fit::Outside
        } else {
            Fit::Inside
        }
    }

    /// Distance of an address from its beginning, in bytes; 0 for one before it.
    pub fn offset(&self, address: u64) -> u64 {
        address.saturating_sub(self.address)
    }
}

/// Relation of an operation to the memory that was advertised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// The access lies within the region.
    Inside,
    /// No such key was advertised.
    Unknown,
    /// The key is known; the bytes are not inside.
    Outside,
    /// The key is no longer to be used.
    Stale,
    /// A Write into memory that is to be read, or the reverse.
    Direction,
}

impl Fit {
    /// Name for reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Inside => "inside the advertised memory",
            Self::Unknown => "never advertised",
            Self::Outside => "outside the advertised memory",
            Self::Stale => "no longer valid",
            Self::Direction => "advertised for the other direction",
        }
    }
}

/// The memory that both ends advertised.
#[derive(Clone, Debug, Default)]
pub(crate) struct MemoryMap {
    /// By owner and key: the range that was advertised or used last.
    regions: HashMap<(End, u32), Region>,
    /// Other ranges behind the same keys: one registration may serve many descriptors, segments and requests.
    others: HashMap<(End, u32), Vec<Region>>,
    /// Regions advertised.
    pub advertised: u64,
    /// Regions invalidated by the peer.
    pub invalidated: u64,
    /// Regions forgotten because there were too many.
    pub dropped: u64,
    oldest_kept: u64,
    /// The last keys advertised by each end, to detect keys that can be guessed.
    recent: [Guess; 2],
}

#[derive(Clone, Copy, Debug, Default)]
struct Guess {
    last: u32,
    step: u32,
    /// Keys in a row.
    run: u32,
}

impl MemoryMap {
    /// A region is advertised by `owner`. Returns the region of the same key that was still live, if there was one.
    pub(crate) fn advertise(&mut self, owner: End, key: u32, region: Region) -> Option<Region> {
        self.advertised += 1;
        let guess = &mut self.recent[owner.index()];
        let step = key.wrapping_sub(guess.last);
        guess.run = match guess.run {
            0 => 1,
            _ if step == 0 => 1,
            1 => 2,
            run if step == guess.step => run.saturating_add(1),
            _ => 2,
        };
        guess.step = step;
        guess.last = key;
        if self.regions.len() >= REGIONS_MAX && !self.regions.contains_key(&(owner, key)) {
            self.forget();
        }
        let before = self.regions.insert((owner, key), region).filter(|r| r.state == State::Live);
        if let Some(before) =
            before.filter(|r| (r.address, r.length, r.right) != (region.address, region.length, region.right))
        {
            self.keep_other(owner, key, before);
        }
        before.filter(|r| r.exchange != region.exchange)
    }

    /// Keeps a range that is still in use beside the one that is advertised now.
    #[cold]
    fn keep_other(&mut self, owner: End, key: u32, region: Region) {
        if self.others.len() >= OTHERS_MAX && !self.others.contains_key(&(owner, key)) {
            self.dropped += self.others.drain().map(|(_, ranges)| ranges.len() as u64).sum::<u64>();
        }
        let ranges = self.others.entry((owner, key)).or_default();
        if ranges.len() >= RANGES_MAX {
            // one that is done, or else the oldest
            ranges.remove(ranges.iter().position(|r| r.state != State::Live).unwrap_or(0));
            self.dropped += 1;
        }
        ranges.push(region);
    }

    /// Number of keys in a row that are each the last one plus the same number, and that number.
    pub(crate) fn predictable(&self, owner: End) -> (u32, u32) {
        let guess = &self.recent[owner.index()];
        (guess.run, guess.step)
    }

    /// `length` bytes at `address` of `owner`'s memory are read or written (`wanted`).
    pub(crate) fn touch(
        &mut self,
        owner: End,
        key: u32,
        address: u64,
        length: u32,
        wanted: Right,
    ) -> (Fit, Option<&mut Region>) {
        let Some(region) = self.regions.get_mut(&(owner, key)) else { return (Fit::Unknown, None) };
        let mut verdict = region.fit(address, length.into(), wanted);
        if verdict != Fit::Inside
            && let Some(ranges) = self.others.get_mut(&(owner, key))
            && let Some(other) = ranges.iter_mut().rev().find(|r| r.fit(address, length.into(), wanted) == Fit::Inside)
        {
            core::mem::swap(region, other);
            verdict = Fit::Inside;
        }
        region.used += u64::from(length);
        (verdict, Some(region))
    }

    /// The region of a key.
    pub(crate) fn find(&self, owner: End, key: u32) -> Option<&Region> {
        self.regions.get(&(owner, key))
    }

    /// The peer's Send invalidated a key of `owner`. Returns the region, as it was before.
    pub(crate) fn invalidate(&mut self, at: At, owner: End, key: u32) -> Option<Region> {
        // whatever lay behind it
        for other in self.others.get_mut(&(owner, key)).into_iter().flatten().filter(|r| r.state == State::Live) {
            other.state = State::Invalidated(at);
        }
        let region = self.regions.get_mut(&(owner, key))?;
        let before = *region;
        if region.state == State::Live {
            region.state = State::Invalidated(at);
            self.invalidated += 1;
        }
        Some(before)
    }

    /// An exchange ended: its key is not to be used any more. Returns the region as it was before.
    pub(crate) fn end(&mut self, at: At, owner: End, key: u32, exchange: u64, is_void: bool) -> Option<Region> {
        let others = self.others.get_mut(&(owner, key)).into_iter().flatten();
        for other in others.filter(|r| r.exchange == exchange) {
            other.is_void = is_void;
            if other.state == State::Live {
                other.state = State::Ended(at);
            }
        }
        let region = self.regions.get_mut(&(owner, key)).filter(|r| r.exchange == exchange)?;
        let before = *region;
        region.is_void = is_void;
        if region.state == State::Live {
            region.state = State::Ended(at);
        }
        Some(before)
    }

    /// Every region, in no order.
    pub(crate) fn all(&self) -> impl Iterator<Item = (End, u32, &Region)> {
        self.regions.iter().map(|((owner, key), region)| (*owner, *key, region))
    }

    /// Takes over the regions of the other half of a connection.
    pub(crate) fn adopt(&mut self, by: End, from: &mut Self, from_end: End) {
        for ((owner, key), region) in from.regions.drain() {
            if owner == from_end {
                self.regions.insert((by, key), region);
            }
        }
        for ((owner, key), ranges) in from.others.drain() {
            if owner == from_end {
                self.others.insert((by, key), ranges);
            }
        }
        self.advertised += from.advertised;
        self.invalidated += from.invalidated;
        self.recent[by.index()] = from.recent[from_end.index()];
    }

    /// Makes room: the older half of the ended ones goes, then of all.
    #[cold]
    fn forget(&mut self) {
        let before = self.regions.len();
        let mut ids: alloc::vec::Vec<u64> = self.regions.values().map(|r| r.exchange).collect();
        ids.sort_unstable();
        let middle = ids[ids.len() / 2];
        self.oldest_kept = middle;
        self.regions.retain(|_, r| r.state == State::Live || r.exchange > middle);
        if self.regions.len() > REGIONS_MAX * 3 / 4 {
            self.regions.retain(|_, r| r.exchange > middle);
        }
        if self.regions.len() > REGIONS_MAX * 3 / 4 {
            self.regions.clear();
        }
        let Self { regions, others, .. } = self;
        others.retain(|key, _| regions.contains_key(key));
        self.dropped += (before - self.regions.len()) as u64;
    }
}

/// Bytes that an operation moved, or will move, for an exchange.
#[derive(Clone, Copy, Debug)]
pub struct Delivery<'m> {
    /// The memory.
    pub region: &'m Region,
    /// Offset in that memory, in bytes.
    pub offset: u64,
    /// Relation of the operation to the memory that was advertised.
    pub verdict: Fit,
}

/// The memory layer of one connection.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    map: MemoryMap,
    rdma: Rdma,
    /// Operations on memory that was not advertised then: the exchange that they are for is unknown.
    unattributed: u64,
    /// By the end that writes: the first packet of its RDMA Write was judged to be wrong, and is all that is said of it.
    is_told: [bool; 2],
}

impl Memory {
    /// Bytes of memory that it holds.
    pub fn held(&self) -> usize {
        let others: usize = self.map.others.values().map(Vec::capacity).sum();
        self.map.regions.capacity() * size_of::<((End, u32), Region)>() + others * size_of::<Region>()
    }

    /// The region of a key.
    pub fn find(&self, owner: End, key: u32) -> Option<&Region> {
        self.map.find(owner, key)
    }

    /// Number of operations with keys whose purpose is unknown.
    pub fn unattributed(&self) -> u64 {
        self.unattributed
    }

    /// Plain data for the report.
    pub fn summary(&self) -> Rdma {
        self.rdma
    }

    /// A message advertises a region of its sender.
    pub fn advertise(&mut self, cx: &mut FrameContext<'_>, owner: End, key: u32, region: Region) {
        self.rdma.keys_advertised += 1;
        if let Some(before) = self.map.advertise(owner, key, region) {
            let text = format_args!("advertised key {key:#010x} again while it was live");
            cx.report(Rule::RdmaKeyReuse, owner, Rests::since(before.advertised), text);
        }
        let (run, step) = self.map.predictable(owner);
        if run == PREDICTABLE_RUN {
            let text = format_args!("advertised {run} keys in a row each {step:#x} after the last");
            cx.report(Rule::RdmaKeyPredictable, owner, Rests::FRAME, text);
        }
    }

    /// A reply ended the exchange that advertised a key.
    pub fn end(&mut self, at: At, owner: End, key: u32, exchange: u64, is_void: bool) {
        self.map.end(at, owner, key, exchange, is_void);
    }

    /// A peer's Send invalidated a key of `owner`, as it was asked to.
    pub fn invalidated_as_asked(&mut self, cx: &mut FrameContext<'_>, owner: End, key: u32) {
        self.rdma.keys_invalidated_remotely += 1;
        self.invalidated(cx, owner, key);
    }

    /// A peer's Send invalidated a key of `owner` that it must not, which was reported.
    pub fn invalidated_wrongly(&mut self, at: At, owner: End, key: u32) {
        self.rdma.keys_invalidated_remotely += 1;
        self.map.invalidate(at, owner, key);
    }

    /// A peer's Send invalidated a key of `owner`.
    pub fn invalidated(&mut self, cx: &mut FrameContext<'_>, owner: End, key: u32) {
        match self.map.invalidate(cx.at, owner, key) {
            Some(region) if region.state == State::Live => {}
            Some(region) => {
                let text = format_args!("invalidated key {key:#010x} a second time, or after its exchange");
                cx.report(Rule::RdmaInvalidate, owner.peer(), Rests::since(region.advertised), text);
            }
            None => {
                let text = format_args!("invalidated key {key:#010x}, which its peer never advertised");
                cx.report(Rule::RdmaInvalidate, owner.peer(), Rests::START.of(owner), text);
            }
        }
    }

    /// RDMA Write bytes.
    pub fn write<T: Trace>(&mut self, cx: &mut FrameContext<'_>, op: &RdmaOp<'_>, t: &mut T) -> Option<Delivery<'_>> {
        self.rdma.write_bytes += u64::from(op.length);
        if op.part.begins() {
            self.rdma.writes += 1;
        }
        let Placement::Memory { key, address } = op.placement else { return None };
        let (verdict, region) = self.map.touch(op.by.peer(), key, address, op.length, Right::Write);
        let region = region.map(|region| &*region);
        trace_key(verdict, t);
        // a Write is judged by its first packet; its length there is the whole message's
        if op.part.begins() {
            let length = op.message_length.unwrap_or(op.length);
            let all_inside = region.is_none_or(|r| r.holds(address, length.into()));
            let verdict = if verdict == Fit::Inside && !all_inside { Fit::Outside } else { verdict };
            self.is_told[op.by.index()] = verdict != Fit::Inside;
            check((&mut self.rdma, &mut self.unattributed), cx, op, (verdict, region), length);
        } else if verdict != Fit::Inside && op.part.ends() && !self.is_told[op.by.index()] {
            check((&mut self.rdma, &mut self.unattributed), cx, op, (verdict, region), op.length);
        }
        delivery(verdict, region, address)
    }

    /// An RDMA Read is asked for: where its bytes will come from.
    pub fn read_request<T: Trace>(
        &mut self,
        cx: &mut FrameContext<'_>,
        op: &RdmaOp<'_>,
        t: &mut T,
    ) -> Option<Delivery<'_>> {
        self.rdma.reads += 1;
        let Placement::Memory { key, address } = op.placement else { return None };
        let length = op.message_length.unwrap_or(0);
        let (verdict, region) = self.map.touch(op.by.peer(), key, address, length, Right::Read);
        trace_key(verdict, t);
        let region = region.map(|region| {
            // counted again, byte by byte, when the bytes come
            region.used = region.used.saturating_sub(length.into());
            &*region
        });
        check((&mut self.rdma, &mut self.unattributed), cx, op, (verdict, region), length);
        region.map(|region| Delivery { region, offset: region.offset(address), verdict })
    }

    /// The bytes of an RDMA Read, which its request was judged for.
    pub fn read_response(&mut self, cx: &mut FrameContext<'_>, op: &RdmaOp<'_>) -> Option<Delivery<'_>> {
        self.rdma.read_bytes += u64::from(op.length);
        let Placement::Memory { key, address } = op.placement else { return None };
        let (verdict, region) = self.map.touch(op.by, key, address, op.length, Right::Read);
        let region = region.map(|region| {
            let state = region.state;
            if let State::Ended(end) | State::Invalidated(end) = state
                && region.awaited
                && !cx.env.frame.is_misplaced
                && op.at.since(end) > BEHIND_MAX
            {
                region.awaited = false;
                let text = format_args!(
                    "confirmed a WRITE before its data had come: bytes with key {key:#010x} came {} after the reply",
                    Elapsed(op.at.since(end))
                );
                cx.report(Rule::RdmaOrder, op.by.peer(), Rests::since(region.advertised).of(op.by), text);
            }
            &*region
        });
        delivery(verdict, region, address)
    }

    /// The reply of an exchange says that all of its bytes came, which they did not: they may still come.
    pub fn awaits(&mut self, owner: End, key: u32, exchange: u64) {
        let others = self.map.others.get_mut(&(owner, key)).into_iter().flatten();
        for region in self.map.regions.get_mut(&(owner, key)).into_iter().chain(others) {
            region.awaited |= region.exchange == exchange;
        }
    }

    /// The connection ends at `end`: memory that is still advertised.
    pub fn finish(&mut self, cx: &mut FrameContext<'_>, end: At) {
        for owner in End::BOTH {
            let live = || {
                self.map
                    .all()
                    .filter(|(o, _, region)| *o == owner && region.state == State::Live)
                    .map(|(.., r)| r.advertised)
            };
            let (left, Some(first)) = (live().count(), live().min()) else { continue };
            if end.since(first) <= LATE || cx.missed.is_absent(owner.peer()) {
                continue;
            }
            // the keys do not show if the owner forgot them or its peer never answered
            let text = format_args!(
                "left {left} {} advertised whose exchange never ended",
                if left == 1 { "key" } else { "keys" }
            );
            cx.report_as(first, Rule::RdmaKeyLeak, owner, Certainty::Guess, text);
        }
    }

    /// Takes over the other half of a connection whose directions were first taken for two.
    pub fn adopt(&mut self, by: End, from: &mut Self, from_end: End) {
        self.map.adopt(by, &mut from.map, from_end);
        self.rdma.join(&from.rdma);
    }
}

#[inline(always)]
fn delivery(verdict: Fit, region: Option<&Region>, address: u64) -> Option<Delivery<'_>> {
    let region = region.filter(|_| !matches!(verdict, Fit::Outside | Fit::Unknown))?;
    Some(Delivery { region, offset: region.offset(address), verdict })
}

/// Judges an access of `length` bytes by its relation to the memory of its key, and counts it.
fn check(
    (rdma, unattributed): (&mut Rdma, &mut u64),
    cx: &mut FrameContext<'_>,
    op: &RdmaOp<'_>,
    (verdict, region): (Fit, Option<&Region>),
    length: u32,
) {
    let Placement::Memory { key, address } = op.placement else { return };
    if length == 0 {
        // no memory is accessed, and no adapter looks at the key
        return;
    }
    let (by, owner) = (op.by, op.by.peer());
    let (what, purpose) = if op.verb == Verb::Write { ("wrote", "reading") } else { ("read", "writing") };
    // the purpose of a key may be known only later, if the capture has frames in another order
    *unattributed += u64::from(verdict != Fit::Inside);
    let Some(region) = region else {
        // if the messages are not understood, the memory that they advertise is unknown
        if cx.about.protocol != Protocol::Unknown && cx.missed.is_whole(Rests::START.of(owner)) {
            rdma.outside_advertised += 1;
            let text = format_args!("{what} {length} bytes with key {key:#010x}, which its peer never advertised");
            cx.report(Rule::RdmaKeyUnknown, by, Rests::START.of(owner), text);
        }
        return;
    };
    // the bytes that an invalidated key was for may be those that come now; then they are late, and not new
    let is_missing = |region: &Region| {
        let may_be = matches!(region.state, State::Ended(_)) || region.used <= region.length;
        may_be && !region.is_void && region.holds(address, length.into())
    };
    // a message that was missed may have advertised the key again
    let rests = Rests::since(region.advertised);
    match verdict {
        Fit::Inside => return,
        Fit::Unknown => {}
        Fit::Outside => {
            let (from, size) = (region.address, region.length);
            let text = format_args!(
                "{what} {length} bytes at {address:#x} with key {key:#010x}, which covers {size} bytes at {from:#x}"
            );
            cx.report(Rule::RdmaKeyBounds, by, rests, text);
        }
        Fit::Stale => match region.state {
            State::Ended(end) | State::Invalidated(end)
                if op.verb == Verb::Write && op.at.since(end) < LATE && is_missing(region) =>
            {
                if cx.env.frame.is_misplaced {
                    return;
                }
                let text =
                    format_args!("wrote {length} bytes with key {key:#010x} after the reply that announces them");
                cx.report(Rule::RdmaOrder, by, rests, text);
            }
            _ => {
                let text = format_args!(
                    "{what} {length} bytes with key {key:#010x} after it was invalidated or its exchange had ended"
                );
                cx.report(Rule::RdmaKeyStale, by, rests, text);
            }
        },
        Fit::Direction => {
            let text = format_args!("{what} {length} bytes with key {key:#010x}, advertised for {purpose} only");
            cx.report(Rule::RdmaKeyDirection, by, rests, text);
        }
    }
    rdma.outside_advertised += 1;
}

fn trace_key<T: Trace>(verdict: Fit, t: &mut T) {
    if T::ON {
        t.field(f::KEY_STATE, &[], 0, Value::Str(verdict.name()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(exchange: u64) -> Region {
        Region {
            address: 0x1000,
            length: 4096,
            right: Right::Write,
            exchange,
            index: 0,
            payload_offset: 0,
            advertised: At::default(),
            state: State::Live,
            used: 0,
            awaited: false,
            is_void: false,
        }
    }

    #[test]
    fn verdicts() {
        let mut map = MemoryMap::default();
        map.advertise(End::A, 7, region(1));
        assert_eq!(map.touch(End::A, 7, 0x1000, 4096, Right::Write).0, Fit::Inside);
        assert_eq!(map.touch(End::A, 7, 0x1001, 4096, Right::Write).0, Fit::Outside);
        assert_eq!(map.touch(End::A, 7, u64::MAX, 4096, Right::Write).0, Fit::Outside);
        assert_eq!(map.touch(End::A, 7, 0xfff, 1, Right::Write).0, Fit::Outside);
        assert_eq!(map.touch(End::A, 7, 0x1000, 1, Right::Read).0, Fit::Direction);
        assert_eq!(map.touch(End::B, 7, 0x1000, 1, Right::Write).0, Fit::Unknown);
        map.invalidate(At::default(), End::A, 7);
        assert_eq!(map.touch(End::A, 7, 0x1000, 1, Right::Write).0, Fit::Stale);
    }

    #[test]
    fn a_key_advertised_twice_while_live_is_reported() {
        let mut map = MemoryMap::default();
        assert!(map.advertise(End::A, 7, region(1)).is_none());
        assert!(map.advertise(End::A, 7, region(2)).is_some());
        map.end(At::default(), End::A, 7, 2, false);
        assert!(map.advertise(End::A, 7, region(3)).is_none());
    }

    #[test]
    fn ranges_that_share_a_key_are_told_apart() {
        let mut map = MemoryMap::default();
        let other = |exchange, address| Region { address, ..region(exchange) };
        map.advertise(End::A, 7, region(1));
        map.advertise(End::A, 7, other(1, 0x9000));
        assert!(map.advertise(End::A, 7, other(2, 0x20_0000)).is_some(), "of another exchange");
        let mut exchange = |address| {
            let (fit, region) = map.touch(End::A, 7, address, 4096, Right::Write);
            (fit, region.map(|r| (r.exchange, r.address)))
        };
        for _ in 0..2 {
            assert_eq!(exchange(0x1000), (Fit::Inside, Some((1, 0x1000))));
            assert_eq!(exchange(0x9000), (Fit::Inside, Some((1, 0x9000))));
            assert_eq!(exchange(0x20_0000), (Fit::Inside, Some((2, 0x20_0000))));
        }
        assert_eq!(exchange(0x5000).0, Fit::Outside);
        map.end(At::default(), End::A, 7, 1, false);
        assert_eq!(map.touch(End::A, 7, 0x20_0000, 4096, Right::Write).0, Fit::Inside);
        assert_ne!(map.touch(End::A, 7, 0x9000, 4096, Right::Write).0, Fit::Inside);
        map.invalidate(At::default(), End::A, 7);
        assert_eq!(map.touch(End::A, 7, 0x20_0000, 4096, Right::Write).0, Fit::Stale);
        // not without end
        for exchange in 0..100_000 {
            map.advertise(End::A, 7, other(exchange, exchange << 16));
        }
        assert!(map.others.values().all(|ranges| ranges.len() <= RANGES_MAX) && map.dropped > 0);
        for key in 0..100_000 {
            map.advertise(End::A, key, region(1));
            map.advertise(End::A, key, other(1, 0x9000));
        }
        assert!(map.others.len() <= OTHERS_MAX);
    }

    #[test]
    fn keys_in_a_row_are_counted() {
        let mut map = MemoryMap::default();
        let mut run = |keys: &[u32]| {
            for key in keys {
                map.advertise(End::A, *key, region(1));
            }
            map.predictable(End::A).0
        };
        assert_eq!(run(&[7]), 1);
        assert_eq!(run(&[0x107, 0x207]), 3);
        assert_eq!(run(&[0x207]), 1, "the same key again tells nothing of the next one");
        assert_eq!(run(&[5, 9, 13]), 3);
        assert_eq!(run(&[2]), 2);
    }

    #[test]
    fn stays_bounded() {
        let mut map = MemoryMap::default();
        for key in 0..100_000 {
            map.advertise(End::A, key, region(u64::from(key)));
        }
        assert!(map.all().count() <= REGIONS_MAX && map.dropped > 0);
        assert_eq!(map.predictable(End::A), (100_000, 1));
    }
}
