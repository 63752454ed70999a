//! Frames as they pass: one trait for all inputs, and one [`Source`] of several of them.
//!
//! ```text
//!   PacketSocket (AF_PACKET, a ring per socket) ─┐
//!   libpcap (feature `libpcap`)                 ─┼─ Live ─▶ LiveSource: by time ─▶ Source::advance
//!   Card (verbs sniffer)                        ─┘             └─ Window: the last frames, to be read again
//! ```
//! A loop over a live source never ends by itself: [`Source::advance`] gives `false` when nothing came for a while, so
//! that the caller can look at its clock, and [`LiveSource::is_over`] returns `true` after the stop flag was set.

#[doc(hidden)]
pub mod filter;
mod headers;
#[cfg(all(unix, feature = "libpcap"))]
mod libpcap;
pub mod rdma;
#[cfg(target_os = "linux")]
mod spread;
mod window;

// Systems differ in these two alone, which have the same names.
#[cfg(not(target_os = "linux"))]
mod elsewhere;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(target_os = "linux"))]
use elsewhere as system;
#[cfg(target_os = "linux")]
use linux as system;

use std::collections::VecDeque;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub use filter::{Filter, FilterError, NAMES};
pub use headers::headers_only;
#[cfg(target_os = "linux")]
pub use linux::{PacketSocket, send};
pub use system::{drop_privileges, list};
pub(crate) use window::Reader as WindowReader;

use crate::LinkType;
use crate::error::Result;
use crate::metadata::{Interface, InterfaceStatistics, Metadata, Section};
use crate::record::{Flags, Record};
use crate::source::{Progress, Source};
use window::Window;

/// Default number of bytes kept of a frame: all of it, even if segments were joined on reception.
pub const SNAP_LEN: u32 = 262_144;
/// Default size of a ring, in bytes.
pub const RING_BYTES: usize = 64 << 20;
/// Least size of one of several rings that share the memory of one, in bytes.
pub const RING_BYTES_MIN: usize = 16 << 20;
/// Maximum time that `advance` waits for a frame, in milliseconds.
const WAIT_MS: u32 = 50;
/// Number of frames that a paused source skips before it reports that none came.
const PASSED_MAX: u32 = 4096;
/// Between two looks at interfaces that are down.
const WATCH_EVERY: Duration = Duration::from_millis(200);
/// Maximum number of unread events; beyond it new ones are dropped.
const EVENTS_MAX: usize = 256;

/// Options of a live capture.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Capture filter; the kernel applies it.
    pub filter: Filter,
    /// Bytes kept of a frame; 0 for all.
    pub snap_len: u32,
    /// Size of the ring of each socket, in bytes. It is smaller if that is not available.
    pub ring_bytes: usize,
    /// Sockets per interface, among which the kernel spreads pairs of hosts.
    pub sockets: usize,
    /// True if an interface has no more sockets than receive queues. They then share the memory of one ring, as far as
    /// each has enough.
    pub by_queues: bool,
    /// True if interfaces are put into promiscuous mode, to get frames for other hosts.
    pub promiscuous: bool,
    /// True if libpcap is used, in builds that have it.
    pub libpcap: bool,
    /// Path of libibverbs, for tests; `None` for the system's.
    #[doc(hidden)]
    pub verbs: Option<std::path::PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            filter: Filter::default(),
            snap_len: 0,
            ring_bytes: RING_BYTES,
            sockets: 1,
            by_queues: false,
            promiscuous: true,
            libpcap: false,
            verbs: None,
        }
    }
}

impl Options {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    #[cfg_attr(not(target_os = "linux"), allow(dead_code))]
    fn snap(&self) -> u32 {
        if self.snap_len == 0 { SNAP_LEN } else { self.snap_len }
    }
}

/// A frame that was captured a moment ago.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Nanoseconds since 1970.
    pub time_ns: i64,
    /// Its length on the wire in bytes.
    pub wire_len: u32,
    /// Link type: the layer that `bytes` begins with.
    pub link_type: LinkType,
    /// The bytes that were kept of it.
    pub bytes: &'a [u8],
    /// pcapng options, little-endian: its direction.
    pub options: &'static [u8],
}

impl Default for Frame<'_> {
    fn default() -> Self {
        Self { time_ns: 0, wire_len: 0, link_type: LinkType::NULL, bytes: &[], options: &[] }
    }
}

/// Result of asking for a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ready {
    /// A frame is ready.
    Frame,
    /// No frame is ready now; more may come.
    NotYet,
}

/// A change of the state of an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The interface went down; the capture waits for it.
    Down,
    /// The interface does not exist any more; the capture waits for one of its name.
    Gone,
    /// Frames can come again.
    Up,
    /// The interface exists again but cannot be captured from, for this reason; this is tried again.
    Lost(String),
    /// An MPA handshake was seen on this TCP port, which is captured from now on.
    Port(u16),
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Down => f.write_str("the interface went down; waiting for it"),
            Self::Gone => f.write_str("the interface is gone; waiting for one of this name"),
            Self::Up => f.write_str("the interface is up; capturing again"),
            Self::Lost(why) => write!(f, "the interface is there again but cannot be captured from: {why}"),
            Self::Port(port) => write!(f, "an MPA handshake on TCP port {port}; that port is captured from now on"),
        }
    }
}

/// Counters of an input since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames that passed the filter, dropped ones among them.
    pub accepted: u64,
    /// Frames that were delivered to the program.
    pub delivered: u64,
    /// Bytes of those on the wire.
    pub bytes: u64,
    /// Frames dropped by the kernel because the ring was full.
    pub dropped_by_kernel: u64,
    /// Frames dropped before: by the interface, or by the kernel on its behalf. They may not have passed the filter.
    pub dropped_by_interface: u64,
    /// Times that the ring was full.
    pub freezes: u64,
    /// Frames whose checksum the hardware was yet to fill in.
    pub checksum_not_ready: u64,
}

impl Counters {
    fn add(&mut self, other: &Self) {
        self.accepted += other.accepted;
        self.delivered += other.delivered;
        self.bytes += other.bytes;
        self.dropped_by_kernel += other.dropped_by_kernel;
        // sockets of one interface all see the same
        self.dropped_by_interface = self.dropped_by_interface.max(other.dropped_by_interface);
        self.freezes += other.freezes;
        self.checksum_not_ready += other.checksum_not_ready;
    }

    /// Frames dropped, by the kernel and by the interface.
    pub fn dropped(&self) -> u64 {
        self.dropped_by_kernel + self.dropped_by_interface
    }
}

/// Rights that were given up after opening.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// Became this user.
    User(String),
    /// The process was not root, and had capabilities (of the file); they were dropped.
    Capabilities,
    /// There was nothing to give up.
    Nothing,
    /// Is the superuser, and no other user was named.
    KeptRoot,
}

/// A file descriptor for poll(2), which exists only on Unix.
pub type Descriptor = i32;

/// A live source of frames.
pub trait Live: Send {
    /// Its description for a capture file.
    fn interface(&self) -> &Interface;

    /// Goes to the next frame without waiting for one.
    fn advance(&mut self) -> Result<Ready>;

    /// The frame that [`Live::advance`] went to.
    fn frame(&self) -> Frame<'_>;

    /// The descriptor to wait on with poll(2); `None` if it has to be polled repeatedly.
    fn descriptor(&self) -> Option<Descriptor>;

    /// Called when the descriptor has an error, and from time to time: checks the state of the interface.
    fn watch(&mut self) -> Option<Event>;

    /// Maximum delay of a frame after its time, in milliseconds.
    fn latency_ms(&self) -> u32 {
        0
    }

    /// Returns its counters.
    fn counters(&mut self) -> Counters;

    /// Captures this TCP port too, if the filter looks for MPA. Returns true if that is new.
    fn learn_tcp_port(&mut self, _port: u16) -> Result<bool> {
        Ok(false)
    }
}

struct LiveInput {
    live: Box<dyn Live>,
    name: String,
    /// Its number in the metadata.
    interface: u32,
    /// Time of its frame, which waits for its turn.
    pending: Option<i64>,
    is_up: bool,
}

/// Several inputs as one source, by time.
pub struct LiveSource {
    inputs: Vec<LiveInput>,
    metadata: Metadata,
    current: Option<usize>,
    stop: Arc<AtomicBool>,
    /// Frames up to here are given after a stop.
    until_ns: Option<i64>,
    over: bool,
    events: VecDeque<(String, Event)>,
    watched: Instant,
    started_ns: i64,
    /// ns that a frame is held back for older ones of other inputs.
    hold_ns: i64,
    /// Frames up to here were held back long enough.
    free_until_ns: i64,
    window: Option<Window>,
    /// True if frames are neither returned nor kept.
    is_paused: bool,
    offset: u64,
    bytes: u64,
}

impl fmt::Debug for LiveSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.inputs.iter().map(|p| p.name.as_str()).collect();
        f.debug_struct("LiveSource").field("inputs", &names).finish_non_exhaustive()
    }
}

/// ns since 1970.
fn now_ns() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| i64::try_from(d.as_nanos()).unwrap_or(i64::MAX))
}

/// Opens interfaces by name; `any` means all that are up. When `stop` becomes true, the source ends with the frames
/// that came before.
pub fn open(names: &[String], options: &Options, stop: Arc<AtomicBool>) -> Result<LiveSource> {
    let mut inputs = Vec::new();
    for name in system::expand(names) {
        inputs.extend(open_one(&name, options)?.into_iter().map(|live| (name.clone(), live)));
    }
    Ok(LiveSource::new(inputs, stop))
}

fn open_one(name: &str, options: &Options) -> Result<Vec<Box<dyn Live>>> {
    if options.libpcap {
        #[cfg(all(unix, feature = "libpcap"))]
        return Ok(vec![Box::new(libpcap::Handle::open(name, options)?)]);
        #[cfg(not(all(unix, feature = "libpcap")))]
        {
            use crate::error::{Error, Problem};
            return Err(Error::new(
                name,
                Problem::Unsupported("libpcap: built without the feature libpcap".to_owned()),
            ));
        }
    }
    system::open_one(name, options)
}

impl LiveSource {
    /// A source of inputs of your own.
    pub fn new(inputs: Vec<(String, Box<dyn Live>)>, stop: Arc<AtomicBool>) -> LiveSource {
        let mut metadata = Metadata { revision: 1, ..Metadata::default() };
        metadata.sections.push(Section {
            application: Some("rdmascope".to_owned()),
            os: system::release(),
            ..Section::default()
        });
        let mut all = Vec::new();
        for (name, live) in inputs {
            let number = match metadata.interfaces.iter().position(|i| i.name.as_deref() == Some(name.as_str())) {
                Some(number) => number,
                None => {
                    metadata.interfaces.push(live.interface().clone());
                    metadata.interfaces.len() - 1
                }
            };
            all.push(LiveInput { live, name, interface: number as u32, pending: None, is_up: true });
        }
        metadata.sections[0].interfaces = metadata.interfaces.len() as u32;
        let latency = all.iter().map(|p| p.live.latency_ms()).max().unwrap_or(0);
        let mut source = LiveSource {
            inputs: all,
            metadata,
            current: None,
            stop,
            until_ns: None,
            over: false,
            events: VecDeque::new(),
            watched: Instant::now(),
            started_ns: now_ns(),
            // blocks are handed over late, and clocks of cores differ by little
            hold_ns: i64::from(latency) * 2_500_000,
            free_until_ns: i64::MIN,
            window: None,
            is_paused: false,
            offset: 0,
            bytes: 0,
        };
        source.watch_all(true);
        source
    }

    /// Keeps the last frames in temporary files of up to `bytes`, so that they can be read again.
    pub fn keep(mut self, bytes: u64) -> LiveSource {
        self.window = Some(Window::new(bytes));
        self
    }

    /// While paused, frames are neither returned nor kept; they are not counted as dropped.
    pub fn pause(&mut self, paused: bool) {
        self.is_paused = paused;
    }

    /// The frames that are kept, and the metadata to read them with.
    pub(crate) fn kept(&self) -> Option<(WindowReader, &Metadata)> {
        Some((self.window.as_ref()?.reader(), &self.metadata))
    }

    /// True if the stop flag was seen and everything up to then was given.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// When it was opened: nanoseconds since 1970.
    pub fn started_ns(&self) -> i64 {
        self.started_ns
    }

    /// The oldest event since the last call: the name of the input, and the event.
    pub fn event(&mut self) -> Option<(String, Event)> {
        self.events.pop_front()
    }

    /// Counters of each interface, by its number in the metadata. Also updates the statistics in the metadata.
    pub fn counters(&mut self) -> Vec<Counters> {
        let mut all = vec![Counters::default(); self.metadata.interfaces.len()];
        for input in &mut self.inputs {
            if let Some(sum) = all.get_mut(input.interface as usize) {
                sum.add(&input.live.counters());
            }
        }
        let now = now_ns();
        for (interface, counters) in self.metadata.interfaces.iter_mut().zip(&all) {
            interface.statistics = Some(InterfaceStatistics {
                time_ns: now,
                start_ns: Some(self.started_ns),
                end_ns: Some(now),
                received: Some(counters.accepted),
                dropped_by_interface: Some(counters.dropped_by_interface),
                accepted_by_filter: Some(counters.accepted),
                dropped_by_os: Some(counters.dropped_by_kernel),
                delivered: Some(counters.delivered),
            });
        }
        all
    }

    /// Counters of each input, in the order in which they were opened: those of the sockets of an interface, one by one.
    pub fn counters_of_inputs(&mut self) -> Vec<(String, Counters)> {
        self.inputs.iter_mut().map(|input| (input.name.clone(), input.live.counters())).collect()
    }

    /// Looks at the counters of RDMA devices; to be called about once a second. Returns those that changed since the
    /// last look.
    pub fn sample_hardware(&mut self, rdma_root: &Path) -> Vec<rdma::Counter> {
        let counters = rdma::counters(rdma_root);
        let hardware = &mut self.metadata.hardware;
        let is_new = |c: &&rdma::Counter| !hardware.has(c);
        let changed = counters.iter().filter(is_new).cloned().collect();
        hardware.sample(now_ns(), &counters);
        changed
    }

    /// Captures this TCP port, on which an MPA handshake was seen, from now on if the filter looks for MPA.
    pub fn learn_tcp_port(&mut self, port: u16) -> Result<()> {
        let mut is_new = false;
        for input in &mut self.inputs {
            is_new |= input.live.learn_tcp_port(port)?;
        }
        if is_new {
            let name = self.inputs.first().map_or_else(String::new, |p| p.name.clone());
            self.push_event(name, Event::Port(port));
        }
        Ok(())
    }

    fn push_event(&mut self, name: String, event: Event) {
        if self.events.len() < EVENTS_MAX {
            self.events.push_back((name, event));
        }
    }

    /// Looks at interfaces that are down, or at all of them.
    fn watch_all(&mut self, all: bool) {
        self.watched = Instant::now();
        for at in 0..self.inputs.len() {
            if all || !self.inputs[at].is_up {
                self.watch(at);
            }
        }
    }

    fn watch(&mut self, at: usize) {
        let input = &mut self.inputs[at];
        let Some(event) = input.live.watch() else { return };
        input.is_up = event == Event::Up;
        // of several sockets on one interface only the first reports events
        if self.inputs[..at].iter().any(|p| p.interface == self.inputs[at].interface) {
            return;
        }
        let name = self.inputs[at].name.clone();
        self.push_event(name, event);
    }

    /// Waits for frames of inputs that have none.
    fn wait(&mut self, milliseconds: u32) {
        // one whose frame waits for its turn would end the wait at once
        let idle = || self.inputs.iter().enumerate().filter(|(_, input)| input.pending.is_none());
        let descriptors: Vec<(usize, Descriptor)> =
            idle().filter_map(|(at, p)| Some((at, p.live.descriptor()?))).collect();
        // inputs without a descriptor are polled repeatedly
        let milliseconds = if descriptors.len() < idle().count() { milliseconds.min(2) } else { milliseconds };
        let all: Vec<Descriptor> = descriptors.iter().map(|d| d.1).collect();
        let errors = system::poll(&all, milliseconds);
        for ((at, _), _) in descriptors.iter().zip(&errors).filter(|(_, e)| **e) {
            self.watch(*at);
        }
        // an interface that is down makes poll return at once
        if errors.iter().any(|e| *e) {
            std::thread::sleep(Duration::from_millis(5));
        }
        if self.watched.elapsed() > WATCH_EVERY {
            self.watch_all(false);
        }
    }

    /// The input whose frame is next, if there is one that no older frame can come before.
    #[inline]
    fn choose(&mut self, now: impl Fn() -> i64) -> Result<Option<usize>> {
        if let [input] = &mut self.inputs[..] {
            return Ok(match input.live.advance()? {
                Ready::Frame => Some(0),
                Ready::NotYet => None,
            });
        }
        let mut oldest: Option<(i64, usize)> = None;
        let mut all = true;
        for (at, input) in self.inputs.iter_mut().enumerate() {
            if input.pending.is_none() && input.live.advance()? == Ready::Frame {
                input.pending = Some(input.live.frame().time_ns);
            }
            match input.pending {
                Some(time) if oldest.is_none_or(|(t, _)| time < t) => oldest = Some((time, at)),
                Some(_) => {}
                None => all = false,
            }
        }
        let Some((time, at)) = oldest else { return Ok(None) };
        if !all && time > self.free_until_ns {
            self.free_until_ns = now().saturating_sub(self.hold_ns);
            if time > self.free_until_ns {
                return Ok(None);
            }
        }
        self.inputs[at].pending = None;
        Ok(Some(at))
    }

    /// Goes to the next frame, as [`Source::advance`] does, and waits for so many milliseconds at most.
    pub fn advance_within(&mut self, milliseconds: u32) -> Result<bool> {
        self.current = None;
        if self.over { Ok(false) } else { self.step(milliseconds.min(WAIT_MS)) }
    }

    fn step(&mut self, wait_ms: u32) -> Result<bool> {
        let (mut waited, mut passed) = (0, 0);
        loop {
            if let Some(at) = self.choose(now_ns)? {
                let frame = self.inputs[at].live.frame();
                if self.until_ns.is_some_and(|until| frame.time_ns > until) {
                    self.over = true;
                    return Ok(false);
                }
                if self.is_paused && !self.stop.load(Ordering::Relaxed) {
                    passed += 1;
                    if passed >= PASSED_MAX {
                        return Ok(false);
                    }
                    continue;
                }
                self.current = Some(at);
                self.bytes += frame.bytes.len() as u64;
                if let Some(window) = &mut self.window {
                    self.offset = window.keep(&frame, self.inputs[at].interface);
                }
                if self.until_ns.is_none() && self.stop.load(Ordering::Relaxed) {
                    self.until_ns = Some(now_ns());
                }
                return Ok(true);
            }
            if wait_ms == 0 {
                return Ok(false);
            }
            if self.stop.load(Ordering::Relaxed) {
                let until = *self.until_ns.get_or_insert_with(now_ns);
                let late = self.inputs.iter().map(|p| p.live.latency_ms()).max().unwrap_or(0);
                if now_ns().saturating_sub(until) > i64::from(late) * 2_000_000 + self.hold_ns {
                    self.over = true;
                    return Ok(false);
                }
            } else if waited >= wait_ms {
                return Ok(false);
            }
            // if frames of another input wait, the time is short
            let step =
                if self.inputs.iter().any(|p| p.pending.is_some()) { 2 } else { wait_ms.saturating_sub(waited).max(1) };
            let begun = Instant::now();
            self.wait(step);
            waited += (begun.elapsed().as_millis() as u32).max(1);
        }
    }
}

impl Source for LiveSource {
    #[inline]
    fn advance(&mut self) -> Result<bool> {
        self.advance_within(WAIT_MS)
    }

    #[inline]
    fn record(&self) -> Record<'_> {
        let Some(input) = self.current.and_then(|at| self.inputs.get(at)) else { return Record::EMPTY };
        let frame = input.live.frame();
        Record {
            time_ns: frame.time_ns,
            offset: self.offset,
            interface: input.interface,
            wire_len: frame.wire_len,
            link_type: frame.link_type,
            flags: Flags(0),
            bytes: frame.bytes,
            options: frame.options,
        }
    }

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    fn progress(&self) -> Progress {
        Progress { done: self.bytes, total: None }
    }
}

// ── Listing ──────────────────────────────────────────────────────────────────────────────────────────────────────────

/// Something to capture from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The name that `-i` accepts.
    pub name: String,
    /// `Ethernet`, `loopback`, `RDMA device`, …
    pub kind: String,
    /// True if frames can come.
    pub is_up: bool,
    /// Traffic that can be captured there.
    pub sees: String,
    /// Reason for which it cannot be captured from, at all or by this user.
    pub cannot: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An input with frames of given times; `None` is a gap.
    struct Script {
        interface: Interface,
        times: VecDeque<Option<i64>>,
        now: i64,
    }

    impl Live for Script {
        fn interface(&self) -> &Interface {
            &self.interface
        }
        fn advance(&mut self) -> Result<Ready> {
            Ok(match self.times.pop_front() {
                Some(Some(time)) => {
                    self.now = time;
                    Ready::Frame
                }
                _ => Ready::NotYet,
            })
        }
        fn frame(&self) -> Frame<'_> {
            Frame { time_ns: self.now, wire_len: 5, link_type: LinkType::ETHERNET, bytes: b"frame", options: &[] }
        }
        fn descriptor(&self) -> Option<Descriptor> {
            None
        }
        fn watch(&mut self) -> Option<Event> {
            None
        }
        fn latency_ms(&self) -> u32 {
            10
        }
        fn counters(&mut self) -> Counters {
            Counters { accepted: 2, dropped_by_kernel: 1, dropped_by_interface: 4, ..Counters::default() }
        }
    }

    fn source(scripts: &[(&str, &[Option<i64>])]) -> LiveSource {
        let inputs = scripts
            .iter()
            .map(|(name, times)| {
                let mut interface = Interface::new(LinkType::ETHERNET);
                interface.name = Some((*name).to_owned());
                let script = Script { interface, times: times.iter().copied().collect(), now: 0 };
                ((*name).to_owned(), Box::new(script) as Box<dyn Live>)
            })
            .collect();
        LiveSource::new(inputs, Arc::new(AtomicBool::new(false)))
    }

    #[test]
    fn several_places_are_one_by_time() {
        let mut source = source(&[
            ("a", &[Some(1), Some(5), None, Some(6)]),
            ("b", &[Some(2), Some(3), Some(9)]),
            ("a", &[Some(4)]),
        ]);
        let mut seen = Vec::new();
        for _ in 0..20 {
            if source.advance().unwrap() {
                let record = source.record();
                seen.push((record.time_ns, record.interface));
            } else if seen.len() == 7 {
                break;
            }
        }
        // the gap of "a" is waited for, but not for ever: its frames are long past
        assert_eq!(seen[..5], [(1, 0), (2, 1), (3, 1), (4, 0), (5, 0)]);
        assert_eq!(seen.len(), 7);
        let counters = source.counters();
        assert_eq!((counters.len(), counters[0].accepted, counters[0].dropped(), counters[1].dropped()), (2, 4, 6, 5));
        assert_eq!(source.metadata().lost_frames(), 11);
    }

    #[test]
    fn a_stop_gives_what_came_before_and_ends() {
        let future = now_ns() + 3_600_000_000_000;
        let mut source = source(&[("a", &[Some(1), Some(2), Some(future), Some(future)])]);
        assert!(source.advance().unwrap());
        source.stop.store(true, Ordering::Relaxed);
        assert!(source.advance().unwrap() && !source.is_over());
        assert!(!source.advance().unwrap() && source.is_over());
        assert!(!source.advance().unwrap());
        let mut idle = self::source(&[("a", &[])]);
        assert!(!idle.advance().unwrap() && !idle.is_over());
        idle.stop.store(true, Ordering::Relaxed);
        assert!(!idle.advance().unwrap() && idle.is_over());
    }

    #[test]
    fn the_last_frames_can_be_read_again() {
        let times: Vec<Option<i64>> = (1..=1000).map(Some).collect();
        let mut source = source(&[("a", &times)]).keep(1 << 20);
        let mut offsets = Vec::new();
        while source.advance().unwrap() {
            offsets.push(source.record().offset);
        }
        let mut again = source.random_access().unwrap();
        for (index, offset) in offsets.iter().enumerate() {
            let record = again.record_at(*offset).unwrap();
            assert_eq!((record.time_ns, record.bytes), (index as i64 + 1, &b"frame"[..]));
        }
        assert!(again.record_at(1 << 40).is_err());
    }
}
