//! Frames of a network interface: a Linux packet socket whose frames the kernel puts into a ring that we share with it.
//!
//! Spec: packet(7), Linux `Documentation/networking/packet_mmap.rst`, version 3 of the ring.
//!
//! ```text
//!   ring   │ block │ block │ block │ …        each is the kernel's or ours, by one word at its beginning
//!   block  │ head: status, frames, offset of the first │ frame │ frame │ …
//!   frame  │ tpacket3_hdr │ sockaddr_ll │ room for a VLAN tag │ bytes
//! ```
//! All of a block is read, and then given back. Nothing is copied.

use std::io;
use std::mem::{offset_of, size_of};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU32, Ordering, fence};

use super::filter::{Begins, Filter, Instruction};
use super::interface::{self, Facts};
use super::{Counters, Event, Frame, Live, Options, Ready, spread};
use crate::error::{Error, Problem, Result};
use crate::metadata::{Clock, Interface};
use crate::{LinkType, record};

/// Bytes of a block. A frame has to fit into one.
const BLOCK: usize = 1 << 20;
/// ms after which the kernel hands over a block that is not full.
pub(super) const RETIRE_MS: u32 = 20;
/// Fewer blocks than these are no ring.
const BLOCKS_MIN: usize = 4;
/// Room before a frame for a VLAN tag that the kernel has taken out of it.
const TAG: usize = 4;
/// Maximum number of learnt TCP ports.
const PORTS_MAX: usize = 64;

const HEADER: usize = size_of::<libc::tpacket3_hdr>().next_multiple_of(16);

/// A packet socket with its ring.
pub struct PacketSocket {
    fd: OwnedFd,
    ring: Ring,
    name: String,
    index: u32,
    interface: Interface,
    link_type: LinkType,
    begins: Begins,
    /// True if every frame appears twice, outgoing and incoming.
    is_loopback: bool,
    options: Options,
    ports: Vec<u16>,
    state: State,
    /// True if it shares the interface with other sockets.
    is_shared: bool,
    /// A socket for an interface that exists instead of this one some day.
    spare: Option<OwnedFd>,
    /// The current block.
    held: Option<usize>,
    next_block: usize,
    /// Frames left in it, and the offset of the next one.
    left: u32,
    at: usize,
    current: Option<Span>,
    counters: Counters,
    /// Frames that the interface had dropped before the capture.
    dropped_before: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Up,
    Down,
    /// The interface does not exist any more; a new one of this name may appear.
    Gone,
}

#[derive(Clone, Copy, Debug)]
struct Span {
    start: usize,
    len: usize,
    wire_len: u32,
    time_ns: i64,
    outgoing: bool,
}

impl std::fmt::Debug for PacketSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PacketSocket").field("name", &self.name).field("state", &self.state).finish_non_exhaustive()
    }
}

impl PacketSocket {
    /// Opens the interface. With a `fanout` group, shares its frames with the other sockets of that group.
    pub(super) fn open(name: &str, options: &Options, fanout: Option<&mut Option<u16>>) -> Result<PacketSocket> {
        let Some(facts) = interface::facts(name) else {
            return Err(Error::new(name, Problem::NoSuchInterface(interface::names())));
        };
        let (link_type, begins) = match facts.link_type() {
            Some(known) => known,
            None => {
                return Err(Error::new(
                    name,
                    Problem::Unsupported(format!("interfaces of hardware type {}", facts.hardware)),
                ));
            }
        };
        let kind = if begins == Begins::Ethernet { libc::SOCK_RAW } else { libc::SOCK_DGRAM };
        let unbound = || {
            socket(kind).map_err(|e| match e.raw_os_error() {
                Some(libc::EPERM | libc::EACCES) => {
                    Error::new(name, Problem::NotPermitted { capability: "CAP_NET_RAW" })
                }
                _ => Error::new(name, Problem::Live { what: "a packet socket", source: e }),
            })
        };
        let mut socket = Self::of(unbound()?, name, options, (&facts, link_type, begins))?;
        if let Some(group) = fanout {
            socket.is_shared = true;
            // one that shares an interface is never bound to another
            socket.spare = if group.is_none() { Some(unbound()?) } else { None };
            socket.join(group).map_err(failed(name, "sharing the frames between sockets"))?;
        }
        Ok(socket)
    }

    /// Makes it of a socket that is bound to nothing: protocol 0, so that nothing arrives before the filter is attached.
    fn of(
        fd: OwnedFd,
        name: &str,
        options: &Options,
        (facts, link_type, begins): (&Facts, LinkType, Begins),
    ) -> Result<PacketSocket> {
        let version = libc::tpacket_versions::TPACKET_V3 as libc::c_int;
        set(&fd, libc::PACKET_VERSION, &version).map_err(failed(name, "version 3 of the packet ring"))?;
        set(&fd, libc::PACKET_RESERVE, &(TAG as libc::c_uint)).map_err(failed(name, "room for VLAN tags"))?;
        let is_loopback = facts.is_loopback();
        let Some(program) = options.filter.program(begins, options.snap(), is_loopback) else {
            return Err(Error::new(
                name,
                Problem::Unsupported("a capture filter of more than 4096 instructions".to_owned()),
            ));
        };
        attach(&fd, &program).map_err(failed(name, "the capture filter"))?;
        let ring = Ring::new(&fd, options.ring_bytes).map_err(failed(name, "the packet ring"))?;
        let mut interface = Interface::new(link_type);
        interface.name = Some(name.to_owned());
        interface.clock = Clock::NANOSECONDS;
        interface.filter = Some(options.filter.to_string());
        interface.snap_len = options.snap_len;
        interface.speed = interface::speed(name);
        interface.comments = facts.remarks();
        let mut socket = PacketSocket {
            fd,
            ring,
            name: name.to_owned(),
            index: facts.index,
            interface,
            link_type,
            begins,
            is_loopback,
            options: options.clone(),
            ports: Vec::new(),
            state: State::Up,
            is_shared: false,
            spare: None,
            held: None,
            next_block: 0,
            left: 0,
            at: 0,
            current: None,
            counters: Counters::default(),
            dropped_before: interface::dropped(name),
        };
        socket.bind(facts).map_err(failed(name, "the interface"))?;
        if !facts.is_up() {
            socket.state = State::Down;
        }
        Ok(socket)
    }

    /// Goes over to an interface of the same name that exists instead of its own. Of several sockets, the first one gets
    /// all frames from then on: a group cannot be bound again, and the right to make another may have been given up.
    fn go_over(&mut self, facts: &Facts) -> std::result::Result<bool, String> {
        if !self.is_shared {
            return self.bind(facts).map(|()| true).map_err(|e| e.to_string());
        }
        // what it has got is read first
        let has_frames = self.held.is_some() || self.ring.status(self.next_block) & libc::TP_STATUS_USER != 0;
        let Some(fd) = self.spare.take_if(|_| !has_frames) else { return Ok(false) };
        let ports = std::mem::take(&mut self.ports);
        let options = Options { filter: self.options.filter.with_tcp_ports(&ports), ..self.options.clone() };
        let fresh = Self::of(fd, &self.name, &options, (facts, self.link_type, self.begins));
        let fresh = fresh.map_err(|e| e.to_string())?;
        let counters = self.counters();
        let options = std::mem::take(&mut self.options);
        *self = PacketSocket { counters, ports, options, ..fresh };
        Ok(true)
    }

    /// The bytes of memory that the kernel gave for the ring.
    pub fn ring_bytes(&self) -> usize {
        self.ring.len
    }

    fn bind(&mut self, facts: &Facts) -> io::Result<()> {
        bind(&self.fd, facts.index)?;
        self.index = facts.index;
        if self.options.promiscuous && !self.is_loopback {
            promiscuous(&self.fd, facts.index)?;
        }
        Ok(())
    }

    /// Shares frames by their hosts.
    fn join(&self, group: &mut Option<u16>) -> io::Result<()> {
        const BY_PROGRAM: u32 = 6;
        const UNIQUE: u32 = 0x2000;
        let argument = match *group {
            Some(id) => u32::from(id) | BY_PROGRAM << 16,
            // the kernel chooses an unused number
            None => (BY_PROGRAM | UNIQUE) << 16,
        };
        set(&self.fd, libc::PACKET_FANOUT, &(argument as libc::c_int))?;
        if group.is_none() {
            with_program(&spread::by_hosts(), |program| set(&self.fd, libc::PACKET_FANOUT_DATA, program))?;
        }
        let given: libc::c_int = get(&self.fd, libc::SOL_PACKET, libc::PACKET_FANOUT)?;
        *group = Some(given as u16);
        Ok(())
    }

    /// Takes the next block, if the kernel has filled it.
    fn take_block(&mut self) -> bool {
        if self.ring.status(self.next_block) & libc::TP_STATUS_USER == 0 {
            return false;
        }
        let block = self.next_block;
        self.next_block = (block + 1) % self.ring.blocks();
        self.held = Some(block);
        let bytes = self.ring.block(block);
        let word = |at: usize| u32_at(bytes, at);
        // struct tpacket_block_desc, then struct tpacket_hdr_v1: status, number of frames, offset of the first
        self.left = word(12);
        self.at = word(16) as usize;
        true
    }

    fn give_back(&mut self) {
        if let Some(block) = self.held.take() {
            self.ring.release(block);
        }
    }

    /// Goes to the next frame of the current block.
    fn step(&mut self) -> bool {
        while self.left > 0 {
            let Some(block) = self.held else { return false };
            let bytes = self.ring.block_mut(block);
            let at = self.at;
            let Some(header) = bytes.get(at..at + HEADER + size_of::<libc::sockaddr_ll>()) else {
                // the kernel would have to be wrong
                self.left = 0;
                return false;
            };
            let word = |field: usize| u32_at(header, field);
            let half = |field: usize| u16_at(header, field);
            let next = word(offset_of!(libc::tpacket3_hdr, tp_next_offset)) as usize;
            let status = word(offset_of!(libc::tpacket3_hdr, tp_status));
            let mac = half(offset_of!(libc::tpacket3_hdr, tp_mac));
            let net = half(offset_of!(libc::tpacket3_hdr, tp_net));
            let mut wire_len = word(offset_of!(libc::tpacket3_hdr, tp_len));
            let mut len = word(offset_of!(libc::tpacket3_hdr, tp_snaplen)) as usize;
            let seconds = word(offset_of!(libc::tpacket3_hdr, tp_sec));
            let nanoseconds = word(offset_of!(libc::tpacket3_hdr, tp_nsec));
            // union hv1: hash, tag, its ethertype
            let variant = offset_of!(libc::tpacket3_hdr, hv1);
            let (tci, tpid) = (word(variant + 4) as u16, half(variant + 8));
            let pkttype = header[HEADER + offset_of!(libc::sockaddr_ll, sll_pkttype)];
            self.left -= 1;
            self.at = at + next;
            let mut start = at + usize::from(if self.begins == Begins::Ethernet { mac } else { net });
            if status & libc::TP_STATUS_CSUMNOTREADY != 0 {
                self.counters.checksum_not_ready += 1;
            }
            if status & libc::TP_STATUS_VLAN_VALID != 0
                && self.begins == Begins::Ethernet
                && len >= 12
                && start >= at + HEADER + TAG
            {
                // the tag is put back to its place on the wire
                let tpid = if status & libc::TP_STATUS_VLAN_TPID_VALID != 0 { tpid } else { 0x8100 };
                bytes.copy_within(start..start + 12, start - TAG);
                start -= TAG;
                bytes[start + 12..start + 14].copy_from_slice(&tpid.to_be_bytes());
                bytes[start + 14..start + 16].copy_from_slice(&tci.to_be_bytes());
                len += TAG;
                wire_len += TAG as u32;
            }
            if bytes.get(start..start + len).is_none() {
                continue;
            }
            let outgoing = pkttype == libc::PACKET_OUTGOING;
            let time_ns = i64::from(seconds) * 1_000_000_000 + i64::from(nanoseconds);
            self.current = Some(Span { start, len, wire_len, time_ns, outgoing });
            self.counters.delivered += 1;
            self.counters.bytes += u64::from(wire_len);
            return true;
        }
        false
    }

    /// Checks the state of the interface after the socket reported a change.
    fn look(&mut self) -> Option<Event> {
        let facts = interface::facts(&self.name);
        match (self.state, facts) {
            (State::Up, Some(facts)) if facts.index == self.index && facts.is_up() => None,
            (State::Up, Some(facts)) if facts.index == self.index => {
                self.state = State::Down;
                Some(Event::Down)
            }
            (State::Up | State::Down, None) => {
                self.state = State::Gone;
                Some(Event::Gone)
            }
            (_, Some(facts)) if facts.index != self.index => {
                match self.go_over(&facts) {
                    Ok(true) => {}
                    Ok(false) => return None,
                    Err(why) => return Some(Event::Lost(why)),
                }
                self.dropped_before = 0;
                self.state = if facts.is_up() { State::Up } else { State::Down };
                facts.is_up().then_some(Event::Up)
            }
            (State::Down | State::Gone, Some(facts)) if facts.is_up() => {
                self.state = State::Up;
                Some(Event::Up)
            }
            _ => None,
        }
    }
}

impl Live for PacketSocket {
    fn interface(&self) -> &Interface {
        &self.interface
    }

    #[inline]
    fn advance(&mut self) -> Result<Ready> {
        loop {
            if self.step() {
                return Ok(Ready::Frame);
            }
            self.current = None;
            self.give_back();
            if !self.take_block() {
                return Ok(Ready::NotYet);
            }
        }
    }

    #[inline]
    fn frame(&self) -> Frame<'_> {
        let (Some(block), Some(span)) = (self.held, self.current) else { return Frame::default() };
        let bytes = self.ring.block(block).get(span.start..span.start + span.len).unwrap_or(&[]);
        Frame {
            time_ns: span.time_ns,
            wire_len: span.wire_len,
            link_type: self.link_type,
            bytes,
            options: if span.outgoing { record::OUTBOUND } else { record::INBOUND },
        }
    }

    fn watch(&mut self) -> Option<Event> {
        // clears the error that poll reports
        let _: io::Result<libc::c_int> = get(&self.fd, libc::SOL_SOCKET, libc::SO_ERROR);
        self.look()
    }

    fn descriptor(&self) -> Option<RawFd> {
        Some(self.fd.as_raw_fd())
    }

    fn latency_ms(&self) -> u32 {
        RETIRE_MS
    }

    fn counters(&mut self) -> Counters {
        // reading resets
        if let Ok(stats) = get::<libc::tpacket_stats_v3>(&self.fd, libc::SOL_PACKET, libc::PACKET_STATISTICS) {
            let dropped = u64::from(stats.tp_drops);
            self.counters.accepted += u64::from(stats.tp_packets);
            self.counters.dropped_by_kernel += dropped;
            self.counters.freezes += u64::from(stats.tp_freeze_q_cnt);
        }
        let now = interface::dropped(&self.name);
        self.counters.dropped_by_interface += now.saturating_sub(self.dropped_before);
        self.dropped_before = now.max(self.dropped_before);
        self.counters
    }

    fn learn_tcp_port(&mut self, port: u16) -> Result<bool> {
        if self.ports.contains(&port) || self.ports.len() >= PORTS_MAX || !self.options.filter.finds_mpa() {
            return Ok(false);
        }
        self.ports.push(port);
        let filter: Filter = self.options.filter.with_tcp_ports(&self.ports);
        let Some(program) = filter.program(self.begins, self.options.snap(), self.is_loopback) else {
            return Ok(false);
        };
        attach(&self.fd, &program)
            .map_err(|e| Error::new(&self.name, Problem::Live { what: "a wider capture filter", source: e }))?;
        Ok(true)
    }
}

fn failed(name: &str, what: &'static str) -> impl Fn(io::Error) -> Error {
    move |source| Error::new(name, Problem::Live { what, source })
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |b| u32::from_ne_bytes(*b))
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |b| u16::from_ne_bytes(*b))
}

// ── The ring
// ────────────────────────────────────────────────────────────────────────────────────────────────────────────

/// Memory shared with the kernel.
struct Ring {
    memory: *mut u8,
    len: usize,
}

// SAFETY: the memory belongs to this value alone; nothing in it is tied to a thread.
#[allow(unsafe_code)]
unsafe impl Send for Ring {}

impl Ring {
    /// Requests `bytes`, and less if that is not available.
    fn new(fd: &OwnedFd, bytes: usize) -> io::Result<Ring> {
        const FRAME: usize = 2048;
        let mut blocks = (bytes / BLOCK).max(BLOCKS_MIN);
        let len = loop {
            let request = libc::tpacket_req3 {
                tp_block_size: BLOCK as u32,
                tp_block_nr: blocks as u32,
                tp_frame_size: FRAME as u32,
                tp_frame_nr: (BLOCK / FRAME * blocks) as u32,
                tp_retire_blk_tov: RETIRE_MS,
                tp_sizeof_priv: 0,
                tp_feature_req_word: 0,
            };
            match set(fd, libc::PACKET_RX_RING, &request) {
                Ok(()) => break blocks * BLOCK,
                Err(e) if e.raw_os_error() == Some(libc::ENOMEM) && blocks > BLOCKS_MIN => {
                    blocks = (blocks / 2).max(BLOCKS_MIN)
                }
                Err(e) => return Err(e),
            }
        };
        // SAFETY: a new mapping of `len` bytes of the ring that the call above made; none of our memory is touched.
        #[allow(unsafe_code)]
        let memory = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                0,
            )
        };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Ring { memory: memory.cast(), len })
    }

    fn blocks(&self) -> usize {
        self.len / BLOCK
    }

    fn status_word(&self, block: usize) -> &AtomicU32 {
        assert!(block < self.blocks());
        // SAFETY: within the mapping by the line above, aligned to a page plus 8, and shared with the kernel, hence
        // atomic.
        #[allow(unsafe_code)]
        unsafe {
            AtomicU32::from_ptr(self.memory.add(block * BLOCK + 8).cast())
        }
    }

    /// The owner of the block: `TP_STATUS_USER` is set if it is ours.
    fn status(&self, block: usize) -> u32 {
        self.status_word(block).load(Ordering::Acquire)
    }

    fn release(&self, block: usize) {
        fence(Ordering::Release);
        self.status_word(block).store(libc::TP_STATUS_KERNEL, Ordering::Release);
    }

    /// The bytes of a block that is ours: [`PacketSocket::held`].
    fn block(&self, block: usize) -> &[u8] {
        assert!(block < self.blocks());
        // SAFETY: within the mapping by the line above. The kernel does not write to a block from the moment when its
        // status says that it is ours, which was checked before it became `held`, until `release`. The caller of that
        // has the socket exclusively, so nobody else borrows from it then.
        #[allow(unsafe_code)]
        unsafe {
            std::slice::from_raw_parts(self.memory.add(block * BLOCK), BLOCK)
        }
    }

    fn block_mut(&mut self, block: usize) -> &mut [u8] {
        assert!(block < self.blocks());
        // SAFETY: as above; and nobody else has a reference, since this one borrows the ring exclusively.
        #[allow(unsafe_code)]
        unsafe {
            std::slice::from_raw_parts_mut(self.memory.add(block * BLOCK), BLOCK)
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping that `new` made; nothing refers to it any more.
        #[allow(unsafe_code)]
        unsafe {
            libc::munmap(self.memory.cast(), self.len);
        }
    }
}

// ── System calls
// ────────────────────────────────────────────────────────────────────────────────────────────────────────

fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// A packet socket that is bound to nothing.
pub(super) fn socket(kind: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: no memory is passed.
    #[allow(unsafe_code)]
    let fd = checked(unsafe { libc::socket(libc::AF_PACKET, kind | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0) })?;
    // SAFETY: a descriptor that the kernel just made, so nobody else has it.
    #[allow(unsafe_code)]
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sets an option of the packet layer.
pub(super) fn set<T>(fd: &OwnedFd, option: libc::c_int, value: &T) -> io::Result<()> {
    set_at(fd, libc::SOL_PACKET, option, value)
}

pub(super) fn set_at<T>(fd: &OwnedFd, level: libc::c_int, option: libc::c_int, value: &T) -> io::Result<()> {
    // SAFETY: the kernel reads as many bytes as `value` has. Anything they point to (a filter program) lives until the
    // call returns.
    #[allow(unsafe_code)]
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            option,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    checked(result).map(drop)
}

/// Numbers without pointers, for which all zeros are a value.
trait Plain: Copy {}
impl Plain for libc::c_int {}
impl Plain for libc::tpacket_stats_v3 {}

fn get<T: Plain>(fd: &OwnedFd, level: libc::c_int, option: libc::c_int) -> io::Result<T> {
    // SAFETY: `Plain` guarantees that zeros are a value.
    #[allow(unsafe_code)]
    let mut value: T = unsafe { std::mem::zeroed() };
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes, which `value` has; any bytes are a value of it.
    #[allow(unsafe_code)]
    let result =
        unsafe { libc::getsockopt(fd.as_raw_fd(), level, option, std::ptr::from_mut(&mut value).cast(), &raw mut len) };
    checked(result)?;
    Ok(value)
}

/// Makes the socket accept only the frames that pass the program.
fn attach(fd: &OwnedFd, program: &[Instruction]) -> io::Result<()> {
    with_program(program, |program| set_at(fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, program))
}

/// Calls with a program as the kernel reads it.
fn with_program<T>(program: &[Instruction], call: impl FnOnce(&libc::sock_fprog) -> T) -> T {
    let mut filter: Vec<libc::sock_filter> =
        program.iter().map(|i| libc::sock_filter { code: i.code, jt: i.jt, jf: i.jf, k: i.k }).collect();
    call(&libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() })
}

/// Ties a socket to an interface, and to all of its frames.
pub(super) fn bind(fd: &OwnedFd, index: u32) -> io::Result<()> {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
        sll_ifindex: index as libc::c_int,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the kernel reads `len` bytes of `address`, which it has.
    #[allow(unsafe_code)]
    checked(unsafe { libc::bind(fd.as_raw_fd(), std::ptr::from_ref(&address).cast(), len) }).map(drop)
}

fn promiscuous(fd: &OwnedFd, index: u32) -> io::Result<()> {
    let request = libc::packet_mreq {
        mr_ifindex: index as libc::c_int,
        mr_type: libc::PACKET_MR_PROMISC as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set(fd, libc::PACKET_ADD_MEMBERSHIP, &request)
}

/// Waits until one of the descriptors has something, or `milliseconds` are over. A signal ends the wait too. Says which
/// of them have an error.
pub(in crate::live) fn poll(descriptors: &[RawFd], milliseconds: u32) -> Vec<bool> {
    let mut all: Vec<libc::pollfd> =
        descriptors.iter().map(|fd| libc::pollfd { fd: *fd, events: libc::POLLIN, revents: 0 }).collect();
    // SAFETY: the kernel reads and writes as many entries as there are.
    #[allow(unsafe_code)]
    let result = unsafe { libc::poll(all.as_mut_ptr(), all.len() as libc::nfds_t, milliseconds as libc::c_int) };
    if result < 0 {
        return vec![false; all.len()];
    }
    all.iter().map(|p| p.revents & (libc::POLLERR | libc::POLLHUP | libc::POLLNVAL) != 0).collect()
}
