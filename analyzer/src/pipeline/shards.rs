//! Several analyses that share the connections of one capture, and the one report that they make: the same as that of a
//! single analysis, to the last byte.
//!
//! ```text
//!   frames ─▶ Router ─┬▶ Pipeline 0 ─┐
//!                     ├▶ Pipeline 1 ─┼▶ finish_all ─▶ one Pipeline ─▶ the end of all connections ─▶ report
//!                     └▶ Pipeline n ─┘
//! ```
//!
//! Each shard is told of pause frames ([`super::Route::pause`]): they stop traffic of all. Else, while frames come, a
//! shard needs nothing of another, but for three things, which are looked at in the end:
//!
//! - **Numbers.** Connections get numbers that no other shard gives; the report renumbers them anyway. Exchanges are
//!   numbered within their shard; each shard notes the frames, and exchanges in the report get the numbers of the
//!   whole.
//! - **Limits** of tables that all connections share. If all shards together come near one, they give up.
//! - **Loss**: findings about missing packets at the end of a connection are less certain if the capture lost packets
//!   of any. At the end of the capture that is known; if a connection ended earlier and another shard had lost
//!   something before, they give up.
//!
//! Giving up means that one analysis has to do it all again.
//!
//! The shards of a capture without an end ([`Pipeline::endless_shard`]) cannot give up. They are told of what the others
//! know at watermarks, frames that all of them have reached ([`Pipeline::watermark`]), and each follows its part of the
//! connections that all together may follow. [`finish_endless`] then joins whatever there is; it counts what was
//! forgotten, and exchanges between two watermarks are numbered shard by shard. [`Standing`] is what can be joined
//! meanwhile.

use super::{Pipeline, Router};
use crate::env::Options;
use crate::exchange::Exchange;
use crate::finding::Findings;
use crate::mirror::Mirrors;
use crate::op::At;
use crate::report::{self, Report};
use crate::sink::{Parts, Sink};
use crate::totals::Totals;
use alloc::vec::Vec;
use hashbrown::HashMap;

/// Exchanges of a shard are numbered from its own place times this.
pub(super) const EXCHANGES: u64 = 1 << 48;

/// Facts about one shard that the others need in the end.
#[derive(Clone, Debug)]
pub(super) struct Shard {
    /// Number of shards.
    of: u32,
    /// The next exchange, before the frame at hand.
    next_exchange: u64,
    /// Frames at which exchanges were numbered.
    numbered: Numbered,
    /// The first frame after which the capture had lost something.
    lost: Option<u64>,
    /// The last frame at which a connection ended while nothing was known to be lost.
    closed_in_trust: Option<u64>,
    /// The datagram that the fragment at hand completes.
    pub(super) datagram: Option<Vec<u8>>,
    /// The last frame of any shard at the last watermark.
    pub(super) last: At,
    /// Connections in the report of all shards at most.
    report_max: usize,
}

impl Shard {
    /// From one of its connections to the next.
    pub(super) fn step(&self) -> u32 {
        self.of
    }

    /// A frame is done.
    #[inline]
    pub(super) fn after(&mut self, frame: u64, next_exchange: u64, lost: u64) {
        if next_exchange != self.next_exchange {
            self.numbered.add(frame, next_exchange - self.next_exchange);
            self.next_exchange = next_exchange;
        }
        if lost > 0 && self.lost.is_none() {
            self.lost = Some(frame);
        }
    }

    /// A connection ends.
    pub(super) fn closes(&mut self, frame: u64, lost: u64) {
        if lost == 0 {
            self.closed_in_trust = Some(frame);
        }
    }
}

/// Frames in which exchanges were numbered, and the number of exchanges: a byte or two for each frame that has some.
#[derive(Clone, Debug, Default)]
struct Numbered {
    bytes: Vec<u8>,
    last: u64,
    /// What there was at the last watermark: bytes, and the frame.
    settled: (usize, u64),
    /// Exchanges since then.
    since: u64,
}

impl Numbered {
    /// Frames up to this one are told apart no longer, back to the last time: the exchanges in them count as of this
    /// one.
    fn settle(&mut self, frame: u64) {
        if self.since > 0 {
            let n = core::mem::take(&mut self.since);
            self.bytes.truncate(self.settled.0);
            self.last = self.settled.1;
            self.add(frame.max(self.last), n);
            self.since = 0;
            self.settled = (self.bytes.len(), self.last);
        }
    }

    /// `n` more in a frame, which comes after those before.
    fn add(&mut self, frame: u64, n: u64) {
        self.number((frame - self.last) << 1 | u64::from(n > 1));
        if n > 1 {
            self.number(n);
        }
        self.last = frame;
        self.since += n;
    }

    /// LEB128.
    fn number(&mut self, mut n: u64) {
        while n > 0x7f {
            self.bytes.push(n as u8 | 0x80);
            n >>= 7;
        }
        self.bytes.push(n as u8);
    }

    /// Frames, and the number of exchanges in each.
    fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let mut bytes = self.bytes.iter();
        let mut number = move || {
            let (mut n, mut shift) = (0, 0);
            loop {
                let byte = *bytes.next()?;
                n |= u64::from(byte & 0x7f) << shift;
                shift += 7;
                if byte < 0x80 {
                    return Some(n);
                }
            }
        };
        let mut frame = 0;
        core::iter::from_fn(move || {
            let head = number()?;
            frame += head >> 1;
            Some((frame, if head & 1 == 1 { number()? } else { 1 }))
        })
    }
}

/// The numbers of the whole for some exchanges, which are known by those of their shards. What was numbered after the
/// last frame comes after all others.
fn numbers(shards: &[Numbered], mut wanted: Vec<u64>) -> HashMap<u64, u64> {
    wanted.sort_unstable();
    wanted.dedup();
    let mut of = HashMap::with_capacity(wanted.len());
    // by shard: the wanted exchanges, the frames to come, the number of exchanges so far
    let mut left: Vec<_> = (0..shards.len() as u64)
        .map(|shard| {
            let of_shard = |end: u64| wanted.partition_point(|id| id / EXCHANGES < end);
            wanted[of_shard(shard)..of_shard(shard + 1)].iter().copied().peekable()
        })
        .collect();
    let mut frames: Vec<_> = shards.iter().map(|numbered| numbered.iter().peekable()).collect();
    let mut counts = alloc::vec![0; shards.len()];
    let mut total = 0;
    loop {
        let next = frames.iter_mut().enumerate().filter_map(|(shard, frames)| Some((frames.peek()?.0, shard))).min();
        let Some((_, shard)) = next else { break };
        let Some((_, n)) = frames[shard].next() else { break };
        let base = shard as u64 * EXCHANGES + counts[shard];
        while let Some(id) = left[shard].next_if(|id| *id <= base + n) {
            of.insert(id, total + id - base);
        }
        counts[shard] += n;
        total += n;
    }
    let last = shards.len() as u64 * EXCHANGES;
    for id in wanted.iter().filter(|id| **id > last) {
        of.insert(*id, total + id - last);
    }
    of
}

impl<S: Parts> Pipeline<S> {
    /// The analysis number `shard` of `of` that share a capture; it gets the frames that a [`Router`] gives it.
    pub fn shard(options: Options, sink: S, shard: usize, of: usize) -> Self {
        let mut pipeline = Self::with_sink(options, sink);
        let (shard, of) = (shard as u32, of.max(1) as u32);
        let report_max = pipeline.env.options.report_max;
        pipeline.next_id = shard + 1;
        pipeline.env.next_exchange = u64::from(shard) * EXCHANGES + 1;
        pipeline.shard = Some(Shard {
            of,
            next_exchange: pipeline.env.next_exchange,
            numbered: Numbered::default(),
            lost: None,
            closed_in_trust: None,
            datagram: None,
            last: At::default(),
            report_max,
        });
        pipeline
    }

    /// The same of a capture without an end. The limits are those of all shards together.
    pub fn endless_shard(options: Options, sink: S, shard: usize, of: usize) -> Self {
        let part = |limit: usize| limit.div_ceil(of.max(1));
        let (connections_max, memory_max) = (part(options.connections_max), part(options.memory_max));
        let mut pipeline = Self::shard(Options { connections_max, memory_max, ..options }, sink, shard, of);
        pipeline.env.options.report_max = part(pipeline.env.options.report_max);
        pipeline
    }

    /// All shards have reached the frame `last` of the capture.
    pub fn watermark(&mut self, last: At) {
        if let Some(shard) = &mut self.shard {
            shard.last = last;
            shard.numbered.settle(last.frame);
        }
    }

    /// Sets the number of packets that the capture lost of connections that other shards follow, as far as is known.
    pub fn lost_elsewhere(&mut self, packets: u64) {
        self.env.lost_elsewhere = packets;
    }

    /// The next frame is the last fragment of this IP datagram: [`super::Route::datagram`].
    pub fn whole(&mut self, datagram: Option<Vec<u8>>) {
        if let Some(shard) = &mut self.shard {
            shard.datagram = datagram;
        }
    }

    /// The most connections that were followed at one time, to check the limits of several analyses together.
    pub fn most_connections(&self) -> usize {
        self.table.peak()
    }

    /// Takes in another one, which had other connections. Returns true if both together are the same as one that had
    /// them all.
    fn join(&mut self, part: Self) -> bool {
        let Pipeline {
            env,
            decode: _,
            tcp: _,
            table,
            next_id: _,
            halves: _,
            networks,
            requests,
            unreachable,
            datagrams: _,
            rpcbind,
            joined,
            done,
            done_dropped,
            folded,
            capture,
            pauses: _,
            layers,
            connections_evicted,
            messages_forgotten,
            shard: _,
            damaged,
        } = part;
        let is_known = self.networks.join(&networks);
        let is_known = self.damaged.join(damaged) && is_known;
        self.table.join(table);
        self.joined.join(joined);
        self.done.extend(done);
        self.rpcbind.join(rpcbind);
        for (layer, n) in self.layers.iter_mut().zip(layers) {
            *layer += n;
        }
        join_capture(&mut self.capture, capture);
        self.unreachable.extend(unreachable);
        self.unreachable.sort_by_key(|(at, ..)| at.frame);
        self.unreachable.truncate(super::UNREACHABLE_MAX);
        self.done_dropped += done_dropped;
        self.connections_evicted += connections_evicted;
        self.messages_forgotten += messages_forgotten;
        self.folded.join(&folded);
        let has_all_requests = self.requests.join(requests);
        self.env.join(env)
            && has_all_requests
            && is_known
            && done_dropped == 0
            && connections_evicted == 0
            && messages_forgotten == 0
    }

    /// Gives the mirror sessions of all connections their places in another list.
    fn move_mirrors(&mut self, places: &[u8]) {
        for slot in self.table.iter_mut() {
            slot.connection.mirrors = slot.connection.mirrors.moved(places);
        }
        for connection in &mut self.done {
            connection.mirrors = connection.mirrors.moved(places);
        }
    }
}

/// The capture is over: the report of all shards, and the joined sinks. `None` if they had to know of each other: then
/// one analysis has to do it again.
pub fn finish_all<S: Parts>(shards: Vec<Pipeline<S>>, router: &Router) -> Option<(Report, S)> {
    let Options { connections_max, report_max, memory_max, .. } = shards.first()?.env.options;
    let held: usize = shards.iter().map(|shard| shard.table.held_most()).fold(0, usize::saturating_add);
    let most: usize = shards.iter().map(Pipeline::most_connections).sum();
    let ended: usize = shards.iter().map(|shard| shard.done.len()).sum();
    let first = shards.first()?;
    if !router.is_separable()
        || most > connections_max.max(2)
        || held > memory_max
        || ended > report_max
        || lost_unknown(&shards)
        || first.done_dropped > 0
        || first.connections_evicted > 0
        || first.messages_forgotten > 0
        || first.env.findings.dropped() > 0
    {
        return None;
    }
    let (report, sink, is_whole) = finish_joined(shards, router)?;
    (is_whole && report.findings.dropped() == 0).then_some((report, sink))
}

/// The same of a capture without an end, of whatever there is. `None` if there is no shard.
pub fn finish_endless<S: Parts>(shards: Vec<Pipeline<S>>, router: &Router) -> Option<(Report, S)> {
    finish_joined(shards, router).map(|(report, sink, _)| (report, sink))
}

/// The report of all shards and the joined sinks. True if they are those of one analysis.
fn finish_joined<S: Parts>(mut shards: Vec<Pipeline<S>>, router: &Router) -> Option<(Report, S, bool)> {
    let lists: Vec<&Mirrors> = shards.iter().map(|shard| &shard.capture.mirrors).collect();
    let (mirrors, places, mut is_whole) = Mirrors::join(&lists);
    for (shard, places) in shards.iter_mut().zip(&places) {
        shard.move_mirrors(places);
    }
    let numbered: Vec<Numbered> = shards
        .iter_mut()
        .map(|pipeline| pipeline.shard.as_mut().map(|s| core::mem::take(&mut s.numbered)).unwrap_or_default())
        .collect();
    let mut shards = shards.into_iter();
    let mut whole = shards.next()?;
    for part in shards {
        is_whole &= whole.join(part);
    }
    whole.capture.mirrors = mirrors;
    whole.datagrams.dropped = router.dropped();
    if let Some(shard) = whole.shard.take() {
        whole.env.options.report_max = shard.report_max;
    }
    whole.env.next_exchange = numbered.len() as u64 * EXCHANGES + 1;
    whole.inner().fold_joined();
    let (mut report, mut sink) = whole.finish();
    let mut wanted: Vec<u64> = report.slowest.iter_mut().flat_map(Exchange::numbers).map(|id| *id).collect();
    wanted.extend(waiters(&mut report).map(|id| *id));
    sink.exchange_numbers(&mut |id| wanted.push(*id));
    let numbers = numbers(&numbered, wanted);
    let renumber = |id: &mut u64| *id = numbers.get(id).copied().unwrap_or(*id);
    report.slowest.iter_mut().flat_map(Exchange::numbers).for_each(renumber);
    waiters(&mut report).for_each(renumber);
    sink.exchange_numbers(&mut |id| renumber(id));
    Some((report, sink, is_whole))
}

/// What an analysis without an end has come to, or several that share its connections: the part of a report that can
/// be added up.
#[derive(Clone, Debug, Default)]
pub struct Standing {
    /// Frames so far, without the counts by protocol.
    pub capture: report::Capture,
    /// The connections that are kept one by one, by the numbers under which they are followed.
    pub connections: Vec<report::Connection>,
    /// All connections there were, added up.
    pub totals: Totals,
    /// Broken rules.
    pub findings: Findings,
}

impl Standing {
    /// Adds that of another shard.
    pub fn join(&mut self, part: Standing) {
        let Standing { capture, connections, totals, findings } = part;
        self.capture.lost_by_capture += capture.lost_by_capture;
        self.capture.undecoded += capture.undecoded;
        for (what, n) in &capture.dropped {
            match self.capture.dropped.iter_mut().find(|(known, _)| known == what) {
                Some((_, sum)) => *sum += n,
                None => self.capture.dropped.push((what, *n)),
            }
        }
        let (mirrors, _, _) = Mirrors::join(&[&self.capture.mirrors, &capture.mirrors]);
        self.capture.mirrors = mirrors;
        join_capture(&mut self.capture, capture);
        self.connections.extend(connections);
        self.totals.join(&totals);
        self.findings.join(findings);
    }
}

impl<S: Sink> Pipeline<S> {
    /// What it has come to. Costs as much as there are connections that are open or in the report.
    pub fn standing(&self) -> Standing {
        self.shown().standing_so_far()
    }

    /// Packets that the capture lost, as far as this analysis knows.
    pub fn lost(&self) -> u64 {
        self.env.lost_by_capture
    }
}

impl Pipeline<dyn Sink> {
    fn standing_so_far(&self) -> Standing {
        let mut totals = self.folded.clone();
        let mut connections = self.done.clone();
        connections.iter().for_each(|connection| totals.add(connection, false));
        for slot in self.table.iter() {
            let summary = slot.connection.summary();
            let is_open = slot.connection.closed.is_none() && slot.connection.opening.rejected.is_none();
            totals.add(&summary, is_open);
            connections.push(summary);
        }
        Standing { capture: self.counted(), connections, totals, findings: self.env.findings.clone() }
    }
}

/// The numbers of the requests that episodes name.
fn waiters(report: &mut Report) -> impl Iterator<Item = &mut u64> {
    let episodes = report.connections.iter_mut().flat_map(|connection| &mut connection.episodes.list);
    episodes
        .flat_map(|episode| &mut episode.longest)
        .filter(|waiter| waiter.time > 0)
        .map(|waiter| &mut waiter.exchange)
}

/// True if a connection ended after another shard had lost packets that this one did not know of.
fn lost_unknown<S>(shards: &[Pipeline<S>]) -> bool {
    let closed = |shard: &Pipeline<S>| shard.shard.as_ref().and_then(|s| s.closed_in_trust);
    let lost = |shard: &Pipeline<S>| shard.shard.as_ref().and_then(|s| s.lost);
    let first = shards.iter().filter_map(lost).min();
    first.is_some_and(|first| shards.iter().filter_map(closed).any(|closed| first < closed))
}

fn join_capture(whole: &mut report::Capture, part: report::Capture) {
    let report::Capture {
        frames,
        bytes,
        first,
        last,
        dissected: _,
        undecoded: _,
        unknown_link,
        cut,
        lost_by_capture: _,
        tunnelled,
        mirrors: _,
        pauses,
        paused,
        classes,
        dropped: _,
    } = part;
    whole.frames += frames;
    whole.bytes += bytes;
    whole.first = [whole.first, first].into_iter().flatten().min_by_key(|at| at.frame);
    whole.last = [whole.last, last].into_iter().flatten().max_by_key(|at| at.frame);
    let unknown: Vec<(u16, u64)> = whole.unknown_link.into_iter().chain(unknown_link).collect();
    whole.unknown_link = unknown.into_iter().reduce(|(link, n), (_, more)| (link, n + more));
    whole.cut += cut;
    whole.tunnelled += tunnelled;
    whole.pauses += pauses;
    // one has all pause frames; the others were only told of them
    if whole.paused.is_empty() {
        whole.paused = paused;
    }
    whole.classes.iter_mut().zip(classes).for_each(|(sum, n)| *sum += n);
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn exchanges_of_shards_get_the_numbers_of_the_whole() {
        let mut shards = [Numbered::default(), Numbered::default()];
        // frame 1: one of shard 0; frame 3: two of shard 1; frame 1000: three of shard 0; frame 1001: one of shard 1
        shards[0].add(1, 1);
        shards[1].add(3, 2);
        shards[0].add(1000, 3);
        shards[1].add(1001, 1);
        assert_eq!(shards[0].iter().collect::<Vec<_>>(), [(1, 1), (1000, 3)]);
        let wanted =
            vec![1, 2, 3, 4, EXCHANGES + 1, EXCHANGES + 2, EXCHANGES + 3, 2 * EXCHANGES + 1, 2 * EXCHANGES + 2];
        let numbers = numbers(&shards, wanted.clone());
        assert_eq!(wanted.iter().map(|id| numbers[id]).collect::<Vec<_>>(), [1, 4, 5, 6, 2, 3, 7, 8, 9]);
    }

    /// What is kept of the numbers does not grow with frames, and exchanges stay in the order of the watermarks.
    #[test]
    fn exchanges_between_watermarks_are_numbered_shard_by_shard() {
        let mut shards = [Numbered::default(), Numbered::default()];
        for frame in 1..=1000 {
            shards[frame as usize % 2].add(frame, 1);
        }
        shards.iter_mut().for_each(|shard| shard.settle(1000));
        // nothing new
        shards.iter_mut().for_each(|shard| shard.settle(1500));
        shards[1].add(2000, 2);
        shards[0].add(2001, 1);
        assert_eq!(shards[0].iter().collect::<Vec<_>>(), [(1000, 500), (2001, 1)]);
        assert_eq!(shards[1].iter().collect::<Vec<_>>(), [(1000, 500), (2000, 2)]);
        shards.iter_mut().for_each(|shard| shard.settle(3000));
        assert!(shards.iter().all(|shard| shard.bytes.len() <= 8 && shard.iter().count() == 2));
        let (first, other) = (1, EXCHANGES + 1);
        let wanted = vec![first, first + 500, other, other + 499, other + 501];
        let numbers = numbers(&shards, wanted.clone());
        assert_eq!(wanted.iter().map(|id| numbers[id]).collect::<Vec<_>>(), [1, 1001, 501, 1000, 1003]);
    }
}
