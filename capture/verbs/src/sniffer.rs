//! A sniffer: a queue pair for raw packets with a flow that copies to it all packets that a port sends and receives.
//! These include the traffic of the card's own RDMA engine, which the host's network stack never sees.
//! (`IBV_FLOW_ATTR_SNIFFER`, ibv_create_flow(3).)

#![allow(unsafe_code)]

use crate::buffer::Buffer;
use crate::device::Context;
use crate::error::{Error, Result};
use crate::library::{Verbs, extended, status};
use crate::sys;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::null_mut;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Options of a sniffer.
#[derive(Clone, Copy, Debug)]
pub struct SnifferOptions {
    /// The port, counted from 1.
    pub port: u8,
    /// Packets that the card may be ahead of us; the driver may allow fewer.
    pub packets: u32,
    /// Maximum size of a packet in bytes; longer ones are lost, and counted.
    pub packet_bytes: u32,
}

impl Default for SnifferOptions {
    fn default() -> Self {
        Self { port: 1, packets: 8192, packet_bytes: 9728 }
    }
}

/// Source of timestamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// The card, as time of day.
    Card,
    /// The card's counter, compared with the system's clock every second.
    CardCounter,
    /// The system, at the time when the packet was fetched.
    System,
}

/// A packet as it was on the wire, without its frame check sequence.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// ns since 1970, by [`Sniffer::clock`].
    pub time_ns: i64,
    /// Its bytes, from the Ethernet header on (local route header on InfiniBand).
    pub bytes: &'a [u8],
}

/// Outcome of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Handed out.
    pub received: u64,
    /// Lost as longer than a buffer.
    pub too_long: u64,
    /// Packets that the card lost for lack of a buffer, by the `out_of_buffer` counter of the port: the sum over all
    /// its queues, including ours. `None` if the driver does not count.
    pub out_of_buffer: Option<u64>,
}

/// A completion whose packet has not been handed out yet.
#[derive(Clone, Copy, Debug)]
struct Completed {
    slot: u32,
    len: u32,
    time_ns: i64,
}

/// Number of completions fetched at a time.
const BATCH: usize = 64;
/// Interval at which a counter is compared with the system's clock.
const CALIBRATE: Duration = Duration::from_secs(1);

/// Relates a counter of the card to the time of day.
#[derive(Debug)]
struct Calibration {
    mask: u64,
    khz: u64,
    ticks: u64,
    time_ns: i64,
    at: Instant,
}

impl Calibration {
    /// The time of a counter value close to the last comparison, before or after.
    fn time(&self, ticks: u64) -> i64 {
        let ahead = ticks.wrapping_sub(self.ticks) & self.mask;
        // a difference of more than half of the range means slightly earlier
        let behind = self.ticks.wrapping_sub(ticks) & self.mask;
        let ns = |ticks: u64| (u128::from(ticks) * 1_000_000 / u128::from(self.khz.max(1))) as i64;
        if ahead <= behind { self.time_ns.saturating_add(ns(ahead)) } else { self.time_ns.saturating_sub(ns(behind)) }
    }
}

/// A running sniffer. Its parts are ended in the order that the library requires.
pub struct Sniffer {
    flow: *mut sys::ibv_flow,
    qp: *mut sys::ibv_qp,
    /// Either form: an extended queue begins as a plain one does.
    cq: *mut sys::ibv_cq,
    clock: Clock,
    calibration: Option<Calibration>,
    mr: *mut sys::ibv_mr,
    pd: *mut sys::ibv_pd,
    channel: *mut sys::ibv_comp_channel,
    buffer: Buffer,
    slot_bytes: u32,
    context: Context,
    port: u8,
    ethernet: bool,
    ready: VecDeque<Completed>,
    /// The slot lent out with the last packet.
    lent: Option<u32>,
    events: u32,
    statistics: Statistics,
    out_of_buffer_before: Option<u64>,
}

// SAFETY: libibverbs lets any thread use its objects (ibv_create_qp(3) and others: "thread safe"); we hold ours alone.
unsafe impl Send for Sniffer {}

impl std::fmt::Debug for Sniffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sniffer({} port {}, {:?}, {:?})", self.context.device.name, self.port, self.clock, self.statistics)
    }
}

fn now_ns() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| i64::try_from(d.as_nanos()).unwrap_or(i64::MAX))
}

impl Sniffer {
    /// Starts a sniffer on a port of a device. CAP_NET_RAW is needed only during this call.
    ///
    /// # Errors
    /// A missing device, capability, or support of the driver, with advice.
    pub fn open(verbs: Verbs, device: &str, options: SnifferOptions) -> Result<Self> {
        let context = Context::open(verbs, device)?;
        let abilities = context.abilities()?;
        if options.port == 0 || options.port > abilities.ports {
            return Err(Error::NoPort { device: device.to_owned(), port: options.port, ports: abilities.ports });
        }
        let ethernet = context.port(options.port)?.ethernet;
        let packets = options.packets.clamp(1, abilities.queue.min(abilities.completions).max(1));
        let slot_bytes = options.packet_bytes.clamp(64, 1 << 20).next_multiple_of(64);
        let counter = out_of_buffer(device, options.port);
        let mut sniffer = Self {
            flow: null_mut(),
            qp: null_mut(),
            cq: null_mut(),
            clock: Clock::System,
            calibration: None,
            mr: null_mut(),
            pd: null_mut(),
            channel: null_mut(),
            buffer: Buffer::zeroed(packets as usize * slot_bytes as usize),
            slot_bytes,
            context,
            port: options.port,
            ethernet,
            ready: VecDeque::with_capacity(BATCH),
            lent: None,
            events: 0,
            statistics: Statistics { out_of_buffer: counter.map(|_| 0), ..Statistics::default() },
            out_of_buffer_before: counter,
        };
        sniffer.start(packets, abilities.timestamp_mask, abilities.clock_khz)?;
        Ok(sniffer)
    }

    /// Each step stores its result at once: if one fails, `drop` ends the parts that were begun.
    fn start(&mut self, packets: u32, mask: u64, khz: u64) -> Result<()> {
        let (verbs, context) = (self.context.verbs, self.context.raw);
        let ib = verbs.ib();
        // SAFETY: an open context.
        self.pd = unsafe { (ib.alloc_pd)(context) };
        self.made(self.pd.is_null(), "ibv_alloc_pd")?;
        // SAFETY: an open context.
        self.channel = unsafe { (ib.create_comp_channel)(context) };
        self.made(self.channel.is_null(), "ibv_create_comp_channel")?;
        // SAFETY: the channel was just made; its descriptor is open.
        let fd = unsafe { (*self.channel).fd };
        // SAFETY: takes a descriptor and flags only.
        if unsafe { libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK) } != 0 {
            return Err(self.failed("fcntl"));
        }
        self.create_cq(packets, mask, khz)?;
        self.create_qp(packets)?;
        // SAFETY: the buffer lives until after the registration has ended; the card alone writes, where we post.
        self.mr = unsafe {
            (ib.reg_mr)(self.pd, self.buffer.pointer().cast(), self.buffer.len(), sys::IBV_ACCESS_LOCAL_WRITE)
        };
        if self.mr.is_null() {
            let (device, source) = (self.context.device.name.clone(), io::Error::last_os_error());
            return Err(Error::Register { device, bytes: self.buffer.len(), source });
        }
        self.modify(sys::IBV_QPS_INIT, sys::IBV_QP_STATE | sys::IBV_QP_PORT)?;
        for slot in 0..packets {
            self.post(slot)?;
        }
        self.modify(sys::IBV_QPS_RTR, sys::IBV_QP_STATE)?;
        self.notify()?;
        let mut attr = sys::ibv_flow_attr {
            comp_mask: 0,
            kind: sys::IBV_FLOW_ATTR_SNIFFER,
            size: size_of::<sys::ibv_flow_attr>() as u16,
            priority: 0,
            num_of_specs: 0,
            port: self.port,
            flags: 0,
        };
        let refused = |source| {
            let device = &self.context.device;
            Error::NoSnifferFlow { device: device.name.clone(), interface: device.interface(self.port), source }
        };
        let create = extended!(context, ibv_create_flow)
            .ok_or_else(|| refused(io::Error::from_raw_os_error(libc::EOPNOTSUPP)))?;
        // SAFETY: the queue pair is ours and ready; the attribute has its own size.
        let flow = unsafe { create(self.qp, &mut attr) };
        if flow.is_null() {
            let source = io::Error::last_os_error();
            return Err(match source.raw_os_error() {
                Some(libc::EPERM | libc::EACCES) => Error::NeedsNetRaw { device: self.context.device.name.clone() },
                _ => refused(source),
            });
        }
        self.flow = flow;
        Ok(())
    }

    /// Creates a completion queue with the best clock that the driver supports.
    fn create_cq(&mut self, packets: u32, mask: u64, khz: u64) -> Result<()> {
        let context = self.context.raw;
        if let Some(create) = extended!(context, create_cq_ex) {
            let mut attr = sys::ibv_cq_init_attr_ex {
                cqe: packets,
                cq_context: null_mut(),
                channel: self.channel,
                comp_vector: 0,
                wc_flags: 0,
                comp_mask: 0,
                flags: 0,
                parent_domain: null_mut(),
            };
            let counts = mask != 0 && khz != 0;
            let clocks = [
                (Clock::Card, sys::IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK, true),
                (Clock::CardCounter, sys::IBV_WC_EX_WITH_COMPLETION_TIMESTAMP, counts),
            ];
            for (clock, flag, _) in clocks.into_iter().filter(|(_, _, possible)| *possible) {
                attr.wc_flags = sys::IBV_WC_EX_WITH_BYTE_LEN | flag;
                // SAFETY: an open context, a channel of it, and an attribute with no optional part.
                let cq = unsafe { create(context, &mut attr) };
                if cq.is_null() {
                    continue;
                }
                self.cq = cq.cast();
                self.clock = clock;
                if clock == Clock::CardCounter {
                    self.calibration = self.calibrate(mask, khz);
                    if self.calibration.is_none() {
                        // SAFETY: made just now, and nothing uses it yet.
                        unsafe { (self.context.verbs.ib().destroy_cq)(self.cq) };
                        self.cq = null_mut();
                        self.clock = Clock::System;
                        continue;
                    }
                }
                return Ok(());
            }
        }
        let cqe = libc::c_int::try_from(packets).unwrap_or(libc::c_int::MAX);
        // SAFETY: an open context and a channel of it.
        self.cq = unsafe { (self.context.verbs.ib().create_cq)(context, cqe, null_mut(), self.channel, 0) };
        self.made(self.cq.is_null(), "ibv_create_cq")
    }

    fn create_qp(&mut self, packets: u32) -> Result<()> {
        let mut attr = sys::ibv_qp_init_attr {
            qp_context: null_mut(),
            send_cq: self.cq,
            recv_cq: self.cq,
            srq: null_mut(),
            cap: sys::ibv_qp_cap {
                max_send_wr: 0,
                max_recv_wr: packets,
                max_send_sge: 0,
                max_recv_sge: 1,
                max_inline_data: 0,
            },
            qp_type: sys::IBV_QPT_RAW_PACKET,
            sq_sig_all: 0,
        };
        // SAFETY: the domain and the queue are of this context.
        self.qp = unsafe { (self.context.verbs.ib().create_qp)(self.pd, &mut attr) };
        if !self.qp.is_null() {
            return Ok(());
        }
        let source = io::Error::last_os_error();
        let device = self.context.device.name.clone();
        Err(match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Error::NeedsNetRaw { device },
            Some(libc::EOPNOTSUPP | libc::EINVAL | libc::ENOSYS) => {
                Error::NoRawPackets { device, interface: self.context.device.interface(self.port), source }
            }
            _ => Error::Call { device, call: "ibv_create_qp", source },
        })
    }

    fn modify(&mut self, state: sys::c_enum, mask: libc::c_int) -> Result<()> {
        // SAFETY: all zeroes is a value of this plain struct.
        let mut attr: sys::ibv_qp_attr = unsafe { std::mem::zeroed() };
        attr.qp_state = state;
        attr.port_num = self.port;
        // SAFETY: a queue pair of ours; of the attribute only what the mask names is read.
        let rc = unsafe { (self.context.verbs.ib().modify_qp)(self.qp, &mut attr, mask) };
        self.zero(rc, "ibv_modify_qp")
    }

    /// Posts a slot to the card.
    fn post(&mut self, slot: u32) -> Result<()> {
        let at = u64::from(slot) * u64::from(self.slot_bytes);
        // SAFETY: the registration is there as long as the queue pair.
        let lkey = unsafe { (*self.mr).lkey };
        let mut sge = sys::ibv_sge { addr: self.buffer.address() + at, length: self.slot_bytes, lkey };
        let mut wr = sys::ibv_recv_wr { wr_id: slot.into(), next: null_mut(), sg_list: &mut sge, num_sge: 1 };
        let mut bad = null_mut();
        // SAFETY: a queue pair of ours in an open context.
        let post = unsafe { (*self.context.raw).ops.post_recv }.ok_or_else(|| self.lacks("ibv_post_recv"))?;
        // SAFETY: the request and its list are copied during the call; the slot lies inside the registered buffer and
        // is not lent out.
        let rc = unsafe { post(self.qp, &mut wr, &mut bad) };
        self.zero(rc, "ibv_post_recv")
    }

    /// Asks for one event at the next completion.
    fn notify(&mut self) -> Result<()> {
        // SAFETY: an open context.
        let notify = unsafe { (*self.context.raw).ops.req_notify_cq }.ok_or_else(|| self.lacks("ibv_req_notify_cq"))?;
        // SAFETY: a completion queue of ours.
        let rc = unsafe { notify(self.cq, 0) };
        self.zero(rc, "ibv_req_notify_cq")
    }

    // ---- properties

    /// Source of timestamps.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// True if packets begin with an Ethernet header; with InfiniBand's local route header otherwise.
    pub fn is_ethernet(&self) -> bool {
        self.ethernet
    }

    /// The device.
    pub fn device(&self) -> &str {
        &self.context.device.name
    }

    /// Counters of packets so far.
    pub fn statistics(&mut self) -> Statistics {
        if let Some(before) = self.out_of_buffer_before
            && let Some(now) = out_of_buffer(&self.context.device.name, self.port)
        {
            self.statistics.out_of_buffer = Some(now.saturating_sub(before));
        }
        self.statistics
    }

    // ---- packets

    /// The next packet; `None` if none came within `wait`. It is valid until the next call. After `None` the descriptor
    /// becomes readable with the next packet.
    ///
    /// # Errors
    /// If the card was removed, or the driver failed.
    pub fn next(&mut self, wait: Duration) -> Result<Option<Packet<'_>>> {
        if let Some(slot) = self.lent.take() {
            self.post(slot)?;
        }
        let until = Instant::now() + wait;
        while self.ready.is_empty() {
            self.fetch()?;
            // an event is requested, then earlier completions are polled: from then on the descriptor signals new ones
            if self.ready.is_empty() && self.take_event()? {
                self.fetch()?;
            }
            if !self.ready.is_empty() {
                break;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.wait(left)?;
        }
        let Some(next) = self.ready.pop_front() else { return Ok(None) };
        self.lent = Some(next.slot);
        self.statistics.received += 1;
        let at = next.slot as usize * self.slot_bytes as usize;
        Ok(Some(Packet { time_ns: next.time_ns, bytes: self.buffer.piece(at, next.len as usize) }))
    }

    fn wait(&mut self, at_most: Duration) -> Result<()> {
        let mut poll = libc::pollfd { fd: self.fd(), events: libc::POLLIN, revents: 0 };
        // at least a millisecond, or the last of the wait would be spun away
        let ms = libc::c_int::try_from(at_most.as_millis()).unwrap_or(libc::c_int::MAX).max(1);
        // SAFETY: one entry, as said.
        if unsafe { libc::poll(&mut poll, 1, ms) } < 0 {
            let source = io::Error::last_os_error();
            if source.kind() != io::ErrorKind::Interrupted {
                return Err(Error::Call { device: self.context.device.name.clone(), call: "poll", source });
            }
        }
        Ok(())
    }

    /// Takes an event if there is one, and requests the next. Returns true if there was one.
    fn take_event(&mut self) -> Result<bool> {
        let (mut cq, mut data) = (null_mut(), null_mut());
        // SAFETY: a channel of ours, which does not block.
        let taken = unsafe { (self.context.verbs.ib().get_cq_event)(self.channel, &mut cq, &mut data) } == 0;
        if taken {
            self.events += 1;
            self.notify()?;
        }
        Ok(taken)
    }

    fn fd(&self) -> libc::c_int {
        // SAFETY: the channel is there as long as the sniffer.
        unsafe { (*self.channel).fd }
    }

    fn fetch(&mut self) -> Result<()> {
        if self.calibration.as_ref().is_some_and(|c| c.at.elapsed() >= CALIBRATE)
            && let Some((mask, khz)) = self.calibration.as_ref().map(|c| (c.mask, c.khz))
            && let Some(anew) = self.calibrate(mask, khz)
        {
            self.calibration = Some(anew);
        }
        if self.clock == Clock::System { self.fetch_plain() } else { self.fetch_extended() }
    }

    fn fetch_plain(&mut self) -> Result<()> {
        // SAFETY: all zeroes is a value of this plain struct.
        let mut completions: [sys::ibv_wc; BATCH] = unsafe { std::mem::zeroed() };
        // SAFETY: an open context.
        let poll = unsafe { (*self.context.raw).ops.poll_cq }.ok_or_else(|| self.lacks("ibv_poll_cq"))?;
        // SAFETY: a completion queue of ours, and room for so many.
        let n = unsafe { poll(self.cq, BATCH as libc::c_int, completions.as_mut_ptr()) };
        let n = usize::try_from(n).map_err(|_| self.failed("ibv_poll_cq"))?;
        let time_ns = if n > 0 { now_ns() } else { 0 };
        for c in &completions[..n.min(BATCH)] {
            self.completed(c.wr_id, c.status, c.byte_len, time_ns)?;
        }
        Ok(())
    }

    fn fetch_extended(&mut self) -> Result<()> {
        let cq: *mut sys::ibv_cq_ex = self.cq.cast();
        let mut attr = sys::ibv_poll_cq_attr { comp_mask: 0 };
        // SAFETY: made by create_cq_ex; the flags that it was made with promise these functions (ibv_create_cq_ex(3)).
        let (start, next, end, len, ticks, wall) = unsafe {
            let q = &*cq;
            (
                q.start_poll,
                q.next_poll,
                q.end_poll,
                q.read_byte_len,
                q.read_completion_ts,
                q.read_completion_wallclock_ns,
            )
        };
        let (Some(start), Some(next), Some(end), Some(len)) = (start, next, end, len) else {
            return Err(self.lacks("ibv_start_poll"));
        };
        let Some(time) = (if self.clock == Clock::Card { wall } else { ticks }) else {
            return Err(self.lacks("ibv_wc_read_completion_ts"));
        };
        // SAFETY: the queue is ours, and no poll of it is begun.
        let mut rc = unsafe { start(cq, &mut attr) };
        if rc == libc::ENOENT {
            return Ok(());
        }
        self.zero(rc, "ibv_start_poll")?;
        let mut result = Ok(());
        for _ in 0..BATCH {
            // SAFETY: between start_poll and end_poll there is a current completion, and these functions read it.
            // Length and time are only valid if it is a success.
            let (slot, status, bytes, stamp) = unsafe {
                let ok = (*cq).status == sys::IBV_WC_SUCCESS;
                ((*cq).wr_id, (*cq).status, if ok { len(cq) } else { 0 }, if ok { time(cq) } else { 0 })
            };
            let time_ns = match &self.calibration {
                Some(calibration) => calibration.time(stamp),
                None => i64::try_from(stamp).unwrap_or(i64::MAX),
            };
            result = self.completed(slot, status, bytes, time_ns);
            if result.is_err() {
                break;
            }
            // SAFETY: as before.
            rc = unsafe { next(cq) };
            if rc != 0 {
                break;
            }
        }
        // SAFETY: start_poll succeeded, and this is the one call that ends it.
        unsafe { end(cq) };
        result
    }

    fn completed(&mut self, slot: u64, code: sys::c_enum, len: u32, time_ns: i64) -> Result<()> {
        let Ok(slot) = u32::try_from(slot) else { return Ok(()) };
        match code {
            sys::IBV_WC_SUCCESS => self.ready.push_back(Completed { slot, len: len.min(self.slot_bytes), time_ns }),
            sys::IBV_WC_LOC_LEN_ERR => {
                self.statistics.too_long += 1;
                self.post(slot)?;
            }
            _ => {
                let device = self.context.device.name.clone();
                return Err(Error::Receive { device, status: status(self.context.verbs, code) });
            }
        }
        Ok(())
    }

    fn calibrate(&self, mask: u64, khz: u64) -> Option<Calibration> {
        let query = extended!(self.context.raw, query_rt_values)?;
        let mut values = sys::ibv_values_ex {
            comp_mask: sys::IBV_VALUES_MASK_RAW_CLOCK,
            raw_clock: libc::timespec { tv_sec: 0, tv_nsec: 0 },
        };
        let before = now_ns();
        // SAFETY: an open context, and a struct that names the requested values.
        if unsafe { query(self.context.raw, &mut values) } != 0
            || values.comp_mask & sys::IBV_VALUES_MASK_RAW_CLOCK == 0
        {
            return None;
        }
        let after = now_ns();
        // drivers put the whole counter into tv_nsec
        let ticks = values.raw_clock.tv_nsec as u64 & mask;
        Some(Calibration { mask, khz, ticks, time_ns: before + (after - before) / 2, at: Instant::now() })
    }

    // ---- errors

    fn failed(&self, call: &'static str) -> Error {
        Error::Call { device: self.context.device.name.clone(), call, source: io::Error::last_os_error() }
    }

    fn lacks(&self, call: &'static str) -> Error {
        let source = io::Error::from_raw_os_error(libc::EOPNOTSUPP);
        Error::Call { device: self.context.device.name.clone(), call, source }
    }

    fn made(&self, null: bool, call: &'static str) -> Result<()> {
        if null { Err(self.failed(call)) } else { Ok(()) }
    }

    fn zero(&self, rc: libc::c_int, call: &'static str) -> Result<()> {
        match rc {
            0 => Ok(()),
            // some providers return -1 and set errno, others the number
            rc if rc > 0 => {
                let source = io::Error::from_raw_os_error(rc);
                Err(Error::Call { device: self.context.device.name.clone(), call, source })
            }
            _ => Err(self.failed(call)),
        }
    }
}

impl AsFd for Sniffer {
    /// Readable when packets may have come since [`Sniffer::next`] gave none.
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: open as long as the channel, which the sniffer owns.
        unsafe { BorrowedFd::borrow_raw(self.fd()) }
    }
}

impl Drop for Sniffer {
    fn drop(&mut self) {
        let ib = self.context.verbs.ib();
        let destroy = extended!(self.context.raw, ibv_destroy_flow);
        // SAFETY: each object was made by the library, is ended once, and after everything that uses it. The buffer is
        // freed after its registration.
        unsafe {
            if !self.flow.is_null()
                && let Some(destroy) = destroy
            {
                destroy(self.flow);
            }
            if !self.qp.is_null() {
                (ib.destroy_qp)(self.qp);
            }
            if !self.cq.is_null() {
                (ib.ack_cq_events)(self.cq, self.events);
                (ib.destroy_cq)(self.cq);
            }
            if !self.mr.is_null() {
                (ib.dereg_mr)(self.mr);
            }
            if !self.channel.is_null() {
                (ib.destroy_comp_channel)(self.channel);
            }
            if !self.pd.is_null() {
                (ib.dealloc_pd)(self.pd);
            }
        }
    }
}

/// The counter of packets that found no buffer, if the driver has one.
fn out_of_buffer(device: &str, port: u8) -> Option<u64> {
    let path = format!("/sys/class/infiniband/{device}/ports/{port}/hw_counters/out_of_buffer");
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_wraps_and_may_be_a_little_behind() {
        let c = Calibration { mask: 0xffff_ffff, khz: 500_000, ticks: 100, time_ns: 1_000_000, at: Instant::now() };
        assert_eq!(c.time(100), 1_000_000);
        assert_eq!(c.time(600), 1_001_000);
        assert_eq!(c.time(50), 999_900);
        assert_eq!(c.time(0xffff_fff0), 1_000_000 - 116 * 2);
        let whole = Calibration { mask: u64::MAX, khz: 1_000_000, ticks: u64::MAX, ..c };
        assert_eq!(whole.time(4), 1_000_005);
    }
}
