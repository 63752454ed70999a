//! A reliable connection over a card: set up by the communication manager (`rdma_cm(7)`), carried by an RC queue pair.
//!
//! Memory is granted to a peer by memory windows of type 2 if the device has them: the key covers exactly the granted
//! bytes and rights, its last eight bits are random, and the peer's Send with Invalidate ends it. Without them, the
//! region itself is registered with the rights, and [`Connection::can_be_invalidated`] says that no peer should be
//! asked to invalidate it.

#![allow(unsafe_code)]

use crate::buffer::Buffer;
use crate::device::{self, Abilities};
use crate::error::{Error, Result};
use crate::library::{RdmaCm, Verbs, status, text};
use crate::sys;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::mem::offset_of;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ptr::{null, null_mut};
use std::time::{Duration, Instant};
use thiserror::Error;

/// Access rights of a peer to a region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// RDMA Read.
    pub read: bool,
    /// RDMA Write.
    pub write: bool,
}

/// An advertised region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Remote key (R_Key).
    pub key: u32,
    /// Address of its first byte.
    pub offset: u64,
    /// Length in bytes.
    pub length: u32,
}

/// Options of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Receives that are always posted.
    pub receives: u32,
    /// Size of each receive buffer, in bytes.
    pub receive_size: u32,
    /// Maximum number of outstanding work requests.
    pub sends: u32,
    /// Maximum size of a Send, in bytes.
    pub send_size: u32,
    /// Maximum number of the peer's reads answered at a time.
    pub responder_resources: u8,
    /// Maximum number of our outstanding reads.
    pub initiator_depth: u8,
    /// On iWARP, send the read depths in the private data, according to \[MS-SMBD\] 6.1: both as big-endian 32-bit
    /// numbers.
    pub depths_in_private_data: bool,
    /// Reports every operation by [`Connection::poll_operation`]. Operations are kept until they are fetched there.
    pub watch: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            receives: 272,
            receive_size: 8192,
            sends: 256,
            send_size: 8192,
            responder_resources: 16,
            initiator_depth: 16,
            depths_in_private_data: true,
            watch: false,
        }
    }
}

/// Reason for which a connection ended.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Ended {
    /// The peer disconnected.
    #[error("the peer closed the connection")]
    ByPeer,
    /// We did.
    #[error("closed by us")]
    ByUs,
    /// One of our work requests failed.
    #[error("{operation} failed: {status}")]
    Failed {
        /// The operation that failed.
        operation: &'static str,
        /// In the words of the library.
        status: String,
    },
    /// The queue pair went into error without a reported reason. The peer broke a rule of RDMA, or accessed memory that
    /// it was not granted.
    #[error(
        "the card ended the connection without a reason: the peer broke a rule of RDMA, or used a key that it was not \
            given"
    )]
    Broken,
    /// The device was removed.
    #[error("the RDMA device was removed")]
    DeviceRemoved,
}

/// An event of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A Send arrived.
    Received {
        /// Its bytes.
        message: Vec<u8>,
        /// Our key that it invalidated.
        invalidated: Option<u32>,
    },
    /// One of our reads is complete.
    ReadDone {
        /// Result of [`Connection::read`].
        id: u64,
    },
    /// The connection is closed; no more events follow.
    Closed(Ended),
}

/// Numbers of an established connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// Our queue pair, 24 bits.
    pub qp: u32,
    /// The peer's.
    pub peer_qp: u32,
    /// The sequence number of our first packet, 24 bits.
    pub psn: u32,
    /// The peer's.
    pub peer_psn: u32,
    /// Maximum payload of a packet, in bytes.
    pub path_mtu: u32,
    /// True if the port is on Ethernet (RoCE), not on InfiniBand.
    pub ethernet: bool,
}

/// An operation on the wire, as far as the card reports it; see [`Options::watch`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// When it was posted, or its completion was fetched.
    pub at: Instant,
    /// Kind of operation.
    pub what: What,
}

/// Kind of an [`Operation`], with its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// We sent a message.
    Sent {
        /// Its bytes.
        message: Vec<u8>,
        /// The key of the peer that it ends.
        invalidate: Option<u32>,
        /// True if it wakes the peer.
        solicited: bool,
    },
    /// We wrote into the peer's memory.
    Wrote {
        /// Its key.
        key: u32,
        /// The address of the first byte.
        offset: u64,
        /// The data that was written.
        data: Vec<u8>,
    },
    /// We requested bytes of the peer's memory.
    Asked {
        /// Its key.
        key: u32,
        /// The address of the first byte.
        offset: u64,
        /// In bytes.
        length: u32,
    },
    /// The peer's card acknowledged or answered our oldest outstanding operation.
    Done {
        /// Data of a read; `None` for other operations, and if its sink was deregistered in the meantime.
        read: Option<Vec<u8>>,
    },
    /// The peer's card refused our oldest outstanding operation, with this NAK code (IBA volume 1, table 61).
    Refused(u8),
    /// A message of the peer arrived.
    Received {
        /// Its bytes.
        message: Vec<u8>,
        /// Our key that it invalidated.
        invalidated: Option<u32>,
    },
    /// The connection was taken down.
    Disconnected {
        /// True if the peer did it.
        by_peer: bool,
    },
}

/// A registered piece of memory.
struct Registered {
    buffer: Buffer,
    mr: *mut sys::ibv_mr,
    /// Null if the region itself carries the rights.
    mw: *mut sys::ibv_mw,
    lkey: u32,
    rights: Rights,
    /// True if the peer has invalidated it.
    invalidated: bool,
}

impl Registered {
    /// Offset in the buffer of the `length` bytes at address `at`; `None` if they are not all inside.
    fn place(&self, at: u64, length: u32) -> Option<usize> {
        let from = at.checked_sub(self.buffer.address())?;
        (from.checked_add(length.into())? <= self.buffer.len() as u64).then_some(from as usize)
    }
}

/// A work request to be posted.
enum Work {
    Send { message: Vec<u8>, invalidate: Option<u32>, solicited: bool },
    Write { key: u32, offset: u64, data: Vec<u8> },
    Read { id: u64, sink: u32, at: u64, source: u32, offset: u64, length: u32 },
    Bind { key: u32 },
}

/// A work request that was posted.
enum Posted {
    Send { slot: u32 },
    Write { buffer: Buffer, mr: *mut sys::ibv_mr },
    Read { id: u64, sink: u32, at: u64, length: u32 },
    Bind,
}

impl Posted {
    fn name(&self) -> &'static str {
        match self {
            Self::Send { .. } => "Send",
            Self::Write { .. } => "RDMA Write",
            Self::Read { .. } => "RDMA Read",
            Self::Bind => "binding a memory window",
        }
    }
}

/// Set in the identifiers of receives.
const RECEIVE: u64 = 1 << 63;
/// Number of completions fetched at a time.
const BATCH: usize = 64;
/// Maximum time that a queue pair in error waits for the reason.
const REASON_WITHIN: Duration = Duration::from_secs(1);
/// Maximum duration of one step of the kernel's communication manager, in milliseconds.
const RESOLVE_MS: libc::c_int = 5000;
/// Maximum number of operations that wait.
const WAITING_MAX: usize = 1 << 16;

/// One end of a connection.
pub struct Connection {
    pub(crate) verbs: Verbs,
    pub(crate) cm: &'static RdmaCm,
    pub(crate) id: *mut sys::rdma_cm_id,
    pub(crate) channel: *mut sys::rdma_event_channel,
    options: Options,
    peer: SocketAddr,
    device: String,
    iwarp: bool,
    abilities: Abilities,
    pd: *mut sys::ibv_pd,
    completions: *mut sys::ibv_comp_channel,
    cq: *mut sys::ibv_cq,
    cq_events: u32,
    receive: Option<(Buffer, *mut sys::ibv_mr)>,
    send: Option<(Buffer, *mut sys::ibv_mr)>,
    free: Vec<u32>,
    waiting: VecDeque<Work>,
    posted: VecDeque<(u64, Posted)>,
    next_work: u64,
    next_read: u64,
    regions: HashMap<u32, Registered>,
    events: VecDeque<Event>,
    established: bool,
    closing: bool,
    over: bool,
    /// Time at which the queue pair went into error.
    broken: Option<Instant>,
    private_data: Vec<u8>,
    depths: (u8, u8),
    /// Responder resources and initiator depth that the peer sent.
    peer_depths: (u8, u8),
    numbers: Option<Numbers>,
    /// Queue of reported operations.
    operations: Option<VecDeque<Operation>>,
}

// SAFETY: libibverbs and librdmacm let any thread use their objects; we hold ours alone, and memory that the card
// reaches is owned here.
unsafe impl Send for Connection {}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Connection({} over {}, {} regions)", self.peer, self.device, self.regions.len())
    }
}

impl Connection {
    /// Connects, within `timeout`.
    ///
    /// # Errors
    /// If no device has a route to the peer, or the peer refuses.
    pub fn connect(verbs: Verbs, peer: SocketAddr, options: Options, timeout: Duration) -> Result<Self> {
        let cm = verbs.cm()?;
        let until = Instant::now() + timeout;
        let channel = event_channel(cm)?;
        let mut c = Self::new(verbs, cm, channel, peer, options);
        let name = peer.to_string();
        // SAFETY: a channel of ours; the new identifier is written to the field.
        let rc = unsafe { (cm.create_id)(channel, &mut c.id, null_mut(), sys::RDMA_PS_TCP) };
        c.zero(rc, "rdma_create_id")?;
        let mut to = sockaddr(peer);
        let no_route = |source| Error::NoRoute { address: name.clone(), source };
        // SAFETY: an identifier of ours; the address is copied.
        let rc = unsafe { (cm.resolve_addr)(c.id, null_mut(), (&raw mut to).cast(), RESOLVE_MS) };
        if rc != 0 {
            return Err(no_route(io::Error::last_os_error()));
        }
        match c.expect(until, "the resolution of its address")? {
            (sys::RDMA_CM_EVENT_ADDR_RESOLVED, _) => {}
            (_, status) => return Err(no_route(io::Error::from_raw_os_error(status.abs()))),
        }
        // SAFETY: an identifier that is bound to a device.
        let rc = unsafe { (cm.resolve_route)(c.id, RESOLVE_MS) };
        c.zero(rc, "rdma_resolve_route")?;
        match c.expect(until, "the resolution of the route")? {
            (sys::RDMA_CM_EVENT_ROUTE_RESOLVED, _) => {}
            (_, status) => return Err(no_route(io::Error::from_raw_os_error(status.abs()))),
        }
        c.prepare()?;
        let own = c.own_private_data();
        let mut param = c.parameters(&own);
        // SAFETY: an identifier with a queue pair; the parameters and private data are copied.
        let rc = unsafe { (cm.connect)(c.id, &mut param) };
        c.zero(rc, "rdma_connect")?;
        match c.expect(until, "the connection request")? {
            (sys::RDMA_CM_EVENT_ESTABLISHED, _) => {
                c.established = true;
                c.numbers = c.query();
            }
            (sys::RDMA_CM_EVENT_REJECTED, status) => {
                return Err(Error::Rejected { address: name, reason: rejection(status, c.iwarp) });
            }
            (sys::RDMA_CM_EVENT_UNREACHABLE | sys::RDMA_CM_EVENT_CONNECT_ERROR, _) => {
                return Err(Error::Unreachable { address: name, what: "the connection request" });
            }
            (_, status) => {
                let source = io::Error::from_raw_os_error(status.abs());
                return Err(Error::Call { device: name, call: "rdma_connect", source });
            }
        }
        Ok(c)
    }

    pub(crate) fn new(
        verbs: Verbs,
        cm: &'static RdmaCm,
        channel: *mut sys::rdma_event_channel,
        peer: SocketAddr,
        options: Options,
    ) -> Self {
        Self {
            verbs,
            cm,
            id: null_mut(),
            channel,
            options,
            peer,
            device: String::new(),
            iwarp: false,
            abilities: Abilities::default(),
            pd: null_mut(),
            completions: null_mut(),
            cq: null_mut(),
            cq_events: 0,
            receive: None,
            send: None,
            free: Vec::new(),
            waiting: VecDeque::new(),
            posted: VecDeque::new(),
            next_work: 0,
            next_read: 1,
            regions: HashMap::new(),
            events: VecDeque::new(),
            established: false,
            closing: false,
            over: false,
            broken: None,
            private_data: Vec::new(),
            depths: (0, 0),
            peer_depths: (0, 0),
            numbers: None,
            operations: options.watch.then(VecDeque::new),
        }
    }

    /// Accepts the peer's request. `asked` has the reads that we answer at a time and the reads that we may have
    /// outstanding, as the peer requests them; `private_data` is the peer's.
    pub(crate) fn accept(mut self, asked: (u8, u8), private_data: Vec<u8>, timeout: Duration) -> Result<Self> {
        let until = Instant::now() + timeout;
        self.options.responder_resources = self.options.responder_resources.min(asked.0);
        self.options.initiator_depth = self.options.initiator_depth.min(asked.1);
        self.peer_depths = (asked.1, asked.0);
        self.prepare()?;
        self.private_data = private_data;
        let own = self.own_private_data();
        let mut param = self.parameters(&own);
        // SAFETY: an identifier with a queue pair; the parameters and private data are copied.
        let rc = unsafe { (self.cm.accept)(self.id, &mut param) };
        self.zero(rc, "rdma_accept")?;
        self.numbers = self.query();
        // messages of the peer may arrive before the event that it is ready
        while !self.established && !self.over {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Error::Unreachable { address: self.peer.to_string(), what: "our acceptance" });
            }
            self.wait(left)?;
            self.progress()?;
        }
        Ok(self)
    }

    /// All that a connection needs on a device; the identifier is bound to one.
    fn prepare(&mut self) -> Result<()> {
        let ib = self.verbs.ib();
        // SAFETY: an identifier that is bound to a device has an open context, which librdmacm keeps.
        let context = unsafe { (*self.id).verbs };
        if context.is_null() {
            let source = io::Error::from_raw_os_error(libc::ENODEV);
            return Err(Error::NoRoute { address: self.peer.to_string(), source });
        }
        // SAFETY: as before; the device lives as long as the context.
        let raw = unsafe { &*(*context).device };
        self.device = text(&raw.name);
        self.iwarp = raw.transport_type == sys::IBV_TRANSPORT_IWARP;
        self.abilities = device::abilities(self.verbs, context, &self.device)?;
        // the device limits the receive queue; credits limit the rest
        let queue = self.abilities.queue.max(16);
        self.options.receives = self.options.receives.clamp(2, queue);
        self.options.sends = self.options.sends.clamp(4, queue);
        self.options.responder_resources = self.options.responder_resources.min(self.abilities.responder_resources);
        self.options.initiator_depth = self.options.initiator_depth.min(self.abilities.initiator_depth);
        let o = self.options;
        // SAFETY: an open context.
        self.pd = unsafe { (ib.alloc_pd)(context) };
        self.made(self.pd.is_null(), "ibv_alloc_pd")?;
        // SAFETY: an open context.
        self.completions = unsafe { (ib.create_comp_channel)(context) };
        self.made(self.completions.is_null(), "ibv_create_comp_channel")?;
        // SAFETY: the channel was just made.
        nonblocking(unsafe { (*self.completions).fd }).map_err(|source| self.call("fcntl", source))?;
        let cqe = libc::c_int::try_from(o.receives + o.sends + 1).unwrap_or(libc::c_int::MAX);
        // SAFETY: an open context and a channel of it.
        self.cq = unsafe { (ib.create_cq)(context, cqe, null_mut(), self.completions, 0) };
        self.made(self.cq.is_null(), "ibv_create_cq")?;
        self.notify()?;
        let mut attr = sys::ibv_qp_init_attr {
            qp_context: null_mut(),
            send_cq: self.cq,
            recv_cq: self.cq,
            srq: null_mut(),
            cap: sys::ibv_qp_cap {
                max_send_wr: o.sends,
                max_recv_wr: o.receives,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: 0,
            },
            qp_type: sys::IBV_QPT_RC,
            sq_sig_all: 0,
        };
        // SAFETY: domain and queue are of the identifier's device.
        let rc = unsafe { (self.cm.create_qp)(self.id, self.pd, &mut attr) };
        self.zero(rc, "rdma_create_qp")?;
        let receive = Buffer::zeroed(o.receives as usize * o.receive_size as usize);
        let mr = self.reg_mr(&receive, sys::IBV_ACCESS_LOCAL_WRITE)?;
        self.receive = Some((receive, mr));
        let send = Buffer::zeroed(o.sends as usize * o.send_size as usize);
        let mr = self.reg_mr(&send, 0)?;
        self.send = Some((send, mr));
        self.free = (0..o.sends).rev().collect();
        for slot in 0..o.receives {
            self.post_receive(slot)?;
        }
        Ok(())
    }

    /// Queries the numbers of the queue pair. Must be called before anything is sent.
    fn query(&self) -> Option<Numbers> {
        // SAFETY: all zeroes is a value of these plain structs: null pointers and numbers.
        let (mut attr, mut init): (sys::ibv_qp_attr, sys::ibv_qp_init_attr) = unsafe { std::mem::zeroed() };
        let mask = sys::IBV_QP_PATH_MTU | sys::IBV_QP_RQ_PSN | sys::IBV_QP_SQ_PSN | sys::IBV_QP_DEST_QPN;
        // SAFETY: rdma_create_qp has put a queue pair there.
        let (qp, port, context) = unsafe { ((*self.id).qp, (*self.id).port_num, (*self.id).verbs) };
        // SAFETY: both structs are whole, and written to.
        if unsafe { (self.verbs.ib().query_qp)(qp, &mut attr, mask, &mut init) } != 0 {
            return None;
        }
        // for a port without a number, the library's data are those of the first one
        let port = device::port(self.verbs, context, &self.device, port.max(1)).ok();
        Some(Numbers {
            // SAFETY: as before.
            qp: unsafe { (*qp).qp_num } & 0xff_ffff,
            peer_qp: attr.dest_qp_num & 0xff_ffff,
            psn: attr.sq_psn & 0xff_ffff,
            peer_psn: attr.rq_psn & 0xff_ffff,
            path_mtu: match attr.path_mtu {
                code @ 1..=5 => 128 << code,
                _ => 1024,
            },
            ethernet: port.is_none_or(|p| p.ethernet),
        })
    }

    fn own_private_data(&self) -> Vec<u8> {
        if !self.iwarp || !self.options.depths_in_private_data {
            return Vec::new();
        }
        let depths = [self.options.responder_resources, self.options.initiator_depth];
        depths.iter().flat_map(|d| u32::from(*d).to_be_bytes()).collect()
    }

    fn parameters(&mut self, private_data: &[u8]) -> sys::rdma_conn_param {
        self.depths = (self.options.responder_resources, self.options.initiator_depth);
        sys::rdma_conn_param {
            private_data: if private_data.is_empty() { null() } else { private_data.as_ptr().cast() },
            private_data_len: private_data.len() as u8,
            responder_resources: self.options.responder_resources,
            initiator_depth: self.options.initiator_depth,
            flow_control: 1,
            retry_count: 7,
            // a peer that holds our credits finds a receive; a few retries are for one that is faster than our setup
            rnr_retry_count: 6,
            srq: 0,
            qp_num: 0,
        }
    }

    // ---- properties

    /// Address of the peer.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Our address, if the communication manager knows it.
    pub fn local(&self) -> Option<SocketAddr> {
        // SAFETY: the identifier is ours, and its route holds addresses or zeroes.
        socket_address(unsafe { &(*self.id).route.src_addr })
    }

    /// The device that carries it.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// True if the device uses iWARP.
    pub fn is_iwarp(&self) -> bool {
        self.iwarp
    }

    /// Number of the peer's reads that are answered at a time, and maximum number of our outstanding reads.
    pub fn depths(&self) -> (u8, u8) {
        self.depths
    }

    /// The same of the peer, as it sent them when the connection was set up; 0 if it sent none.
    pub fn peer_depths(&self) -> (u8, u8) {
        self.peer_depths
    }

    /// Queue pairs, sequence numbers and path MTU at the beginning of the connection; `None` if the driver does not
    /// report them.
    pub fn numbers(&self) -> Option<Numbers> {
        self.numbers
    }

    /// Private data of the peer.
    pub fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    /// The next operation, in the order in which they were posted and completed; `None` if [`Options::watch`] is not
    /// set. Accesses of the peer to our memory are not among them, because our card does not report them.
    pub fn poll_operation(&mut self) -> Option<Operation> {
        self.operations.as_mut()?.pop_front()
    }

    fn record(&mut self, what: impl FnOnce() -> What) {
        if let Some(operations) = &mut self.operations {
            operations.push_back(Operation { at: Instant::now(), what: what() });
        }
    }

    /// True if operations can be posted.
    pub fn is_established(&self) -> bool {
        self.established && !self.over && !self.closing
    }

    /// True if it is over.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// True if a peer may invalidate regions by Send with Invalidate: the device supports it for memory windows, not
    /// for plain regions.
    pub fn can_be_invalidated(&self) -> bool {
        self.abilities.windows
    }

    /// Bytes of Sends and RDMA Writes that wait to be posted, and of RDMA Writes that were posted and not completed.
    pub fn unsent(&self) -> usize {
        let waiting = self.waiting.iter().map(|work| match work {
            Work::Send { message, .. } => message.len(),
            Work::Write { data, .. } => data.len(),
            Work::Read { .. } | Work::Bind { .. } => 0,
        });
        let posted = self.posted.iter().map(|(_, posted)| match posted {
            Posted::Write { buffer, .. } => buffer.len(),
            _ => 0,
        });
        waiting.chain(posted).sum()
    }

    /// True if operations have not come to their end yet.
    pub fn is_busy(&self) -> bool {
        !self.over && (!self.waiting.is_empty() || !self.posted.is_empty())
    }

    // ---- memory

    /// Registers `data` and grants `rights` to the peer; without rights, only we may use it.
    ///
    /// # Errors
    /// If it cannot be pinned, or no window can be allocated.
    pub fn register(&mut self, data: Vec<u8>, rights: Rights) -> Result<Region> {
        let length =
            u32::try_from(data.len()).map_err(|_| Error::TooLong { length: data.len(), limit: u32::MAX as usize })?;
        let buffer = Buffer::new(if data.is_empty() { vec![0] } else { data });
        let offset = buffer.address();
        let granted = rights != Rights::default();
        let windows = granted && self.abilities.windows;
        let mut access = 0;
        if rights.write || !granted {
            access |= sys::IBV_ACCESS_LOCAL_WRITE;
        }
        if windows {
            access |= sys::IBV_ACCESS_MW_BIND;
        } else {
            access |= remote(rights);
        }
        if !granted && self.iwarp {
            // an iWARP read names its sink to the peer, whose response is a write to it
            access |= sys::IBV_ACCESS_REMOTE_WRITE;
        }
        let mr = self.reg_mr(&buffer, access)?;
        // SAFETY: just registered.
        let (lkey, rkey) = unsafe { ((*mr).lkey, (*mr).rkey) };
        let mut registered = Registered { buffer, mr, mw: null_mut(), lkey, rights, invalidated: false };
        let mut key = if granted { rkey } else { lkey };
        if windows {
            // SAFETY: an open context.
            let alloc = unsafe { (*(*self.pd).context).ops.alloc_mw };
            // SAFETY: a protection domain of ours.
            registered.mw = alloc.map_or(null_mut(), |alloc| unsafe { alloc(self.pd, sys::IBV_MW_TYPE_2) });
            if registered.mw.is_null() {
                let error = self.call("ibv_alloc_mw", io::Error::last_os_error());
                self.end_region(registered);
                return Err(error);
            }
            // SAFETY: just made.
            let first = unsafe { (*registered.mw).rkey };
            // any tag but the one it has
            let step = 1 + RandomState::new().build_hasher().finish() % 255;
            key = first & !0xff | u32::from((first as u8).wrapping_add(step as u8));
        }
        let clash = self.regions.contains_key(&key);
        if clash || !self.is_established() {
            self.end_region(registered);
            return Err(if clash { Error::Region(key) } else { Error::NotEstablished });
        }
        self.regions.insert(key, registered);
        if windows {
            self.queue(Work::Bind { key })?;
        }
        Ok(Region { key, offset, length })
    }

    /// Ends a region and returns its bytes: after that, the peer cannot access them. `None` if no region has this key,
    /// or the driver does not release it.
    pub fn deregister(&mut self, key: u32) -> Option<Vec<u8>> {
        let region = self.regions.remove(&key)?;
        self.waiting.retain(|work| !matches!(work, Work::Bind { key: bound } if *bound == key));
        self.end_region(region)
    }

    /// A copy of the first `length` bytes of a registered region, or fewer if it is shorter.
    pub fn peek(&self, key: u32, length: u32) -> Option<Vec<u8>> {
        let buffer = &self.regions.get(&key)?.buffer;
        Some(buffer.copy(0, buffer.len().min(length as usize)))
    }

    fn end_region(&self, region: Registered) -> Option<Vec<u8>> {
        if !region.mw.is_null() {
            // SAFETY: an open context, and a window that is freed once. Freeing ends its binding.
            unsafe {
                if let Some(dealloc) = (*(*region.mw).context).ops.dealloc_mw {
                    dealloc(region.mw);
                }
            }
        }
        // SAFETY: registered by us, and ended once.
        if unsafe { (self.verbs.ib().dereg_mr)(region.mr) } != 0 {
            // the card may still reach it: better lost than reused
            std::mem::forget(region.buffer);
            return None;
        }
        Some(region.buffer.into_vec())
    }

    fn reg_mr(&self, buffer: &Buffer, access: libc::c_int) -> Result<*mut sys::ibv_mr> {
        // SAFETY: the bytes do not move until after the registration has ended; no reference to them is held meanwhile.
        let mr = unsafe { (self.verbs.ib().reg_mr)(self.pd, buffer.pointer().cast(), buffer.len(), access) };
        if mr.is_null() {
            let source = io::Error::last_os_error();
            return Err(Error::Register { device: self.device.clone(), bytes: buffer.len(), source });
        }
        Ok(mr)
    }

    // ---- operations

    /// Sends a message. With `invalidate` the peer's region of that key ends; with `solicited` the peer is woken if it
    /// requested that.
    ///
    /// # Errors
    /// If it is longer than our buffers, or the connection is not established.
    pub fn send(&mut self, message: &[u8], invalidate: Option<u32>, solicited: bool) -> Result<()> {
        let limit = self.options.send_size as usize;
        if message.len() > limit {
            return Err(Error::TooLong { length: message.len(), limit });
        }
        self.queue(Work::Send { message: message.to_vec(), invalidate, solicited })
    }

    /// Writes into the peer's memory.
    ///
    /// # Errors
    /// If the connection is not established.
    pub fn write(&mut self, key: u32, offset: u64, data: Vec<u8>) -> Result<()> {
        self.queue(Work::Write { key, offset, data })
    }

    /// Reads the peer's memory into one of our regions, from `at` on. The returned number comes back in
    /// [`Event::ReadDone`].
    ///
    /// # Errors
    /// If the region has no room, or the connection is not established.
    pub fn read(&mut self, sink: u32, at: u64, source: u32, offset: u64, length: u32) -> Result<u64> {
        let region = self.regions.get(&sink).ok_or(Error::Region(sink))?;
        if region.place(at, length).is_none() {
            return Err(Error::Region(sink));
        }
        let id = self.next_read;
        self.next_read += 1;
        self.queue(Work::Read { id, sink, at, source, offset, length })?;
        Ok(id)
    }

    /// Disconnects when all posted operations are done.
    pub fn close(&mut self) {
        self.closing = true;
        if !self.is_busy() {
            self.end(Ended::ByUs);
        }
    }

    /// The next event, oldest first; `None` if there is none.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Fetches completions and posts waiting work. Returns true if anything moved. To be called in turn with
    /// [`Connection::wait`].
    ///
    /// # Errors
    /// If the driver fails.
    pub fn progress(&mut self) -> Result<bool> {
        if self.over {
            return Ok(false);
        }
        let mut moved = self.fetch()?;
        moved |= self.pump()?;
        if self.closing && !self.is_busy() {
            self.end(Ended::ByUs);
        }
        if self.broken.is_some_and(|at| at.elapsed() >= REASON_WITHIN) {
            self.end(Ended::Broken);
        }
        Ok(moved)
    }

    /// Sleeps until something may have happened, or `at_most` has passed.
    ///
    /// # Errors
    /// Errors of poll(2), and of the communication manager.
    pub fn wait(&mut self, at_most: Duration) -> Result<()> {
        if self.over {
            return Ok(());
        }
        let at_most = if self.broken.is_some() { at_most.min(REASON_WITHIN) } else { at_most };
        // SAFETY: both channels are ours and open.
        let fds = unsafe { [(*self.channel).fd, (*self.completions).fd] };
        let mut polled = fds.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
        let ms = libc::c_int::try_from(at_most.as_micros().div_ceil(1000)).unwrap_or(libc::c_int::MAX);
        // SAFETY: two entries, as said.
        if unsafe { libc::poll(polled.as_mut_ptr(), 2, ms) } < 0 {
            let source = io::Error::last_os_error();
            return if source.kind() == io::ErrorKind::Interrupted { Ok(()) } else { Err(self.call("poll", source)) };
        }
        if polled[1].revents != 0 {
            let (mut cq, mut data) = (null_mut(), null_mut());
            // SAFETY: a channel of ours, which does not block.
            if unsafe { (self.verbs.ib().get_cq_event)(self.completions, &mut cq, &mut data) } == 0 {
                self.cq_events += 1;
                self.notify()?;
            }
        }
        if polled[0].revents != 0 {
            self.manage()?;
        }
        Ok(())
    }

    // ---- queues

    fn queue(&mut self, work: Work) -> Result<()> {
        if !self.is_established() || self.waiting.len() >= WAITING_MAX {
            return Err(Error::NotEstablished);
        }
        self.waiting.push_back(work);
        self.pump()?;
        Ok(())
    }

    /// Posts waiting work, in order, as far as the queue has room.
    fn pump(&mut self) -> Result<bool> {
        let mut moved = false;
        while self.broken.is_none() && !self.over && (self.posted.len() as u32) < self.options.sends {
            let Some(work) = self.waiting.pop_front() else { break };
            self.post(work)?;
            moved = true;
        }
        Ok(moved)
    }

    fn post(&mut self, work: Work) -> Result<()> {
        // SAFETY: all zeroes is a value of this plain struct: null pointers and numbers.
        let mut wr: sys::ibv_send_wr = unsafe { std::mem::zeroed() };
        let mut sge = sys::ibv_sge { addr: 0, length: 0, lkey: 0 };
        wr.send_flags = sys::IBV_SEND_SIGNALED;
        let watched = self.operations.is_some();
        let mut record = None;
        let posted = match work {
            Work::Send { message, invalidate, solicited } => {
                let Some(slot) = self.free.pop() else { return Err(self.lacks("a send buffer")) };
                let at = slot as usize * self.options.send_size as usize;
                let Some((buffer, mr)) = &mut self.send else { return Err(Error::NotEstablished) };
                buffer.put(at, &message);
                // SAFETY: the registration is there as long as the connection.
                let lkey = unsafe { (**mr).lkey };
                sge = sys::ibv_sge { addr: buffer.address() + at as u64, length: message.len() as u32, lkey };
                wr.opcode = if invalidate.is_some() { sys::IBV_WR_SEND_WITH_INV } else { sys::IBV_WR_SEND };
                wr.invalidate_rkey = invalidate.unwrap_or(0);
                if solicited {
                    wr.send_flags |= sys::IBV_SEND_SOLICITED;
                }
                record = watched.then_some(What::Sent { message, invalidate, solicited });
                Posted::Send { slot }
            }
            Work::Write { key, offset, data } => {
                let length = data.len() as u32;
                record = watched.then(|| What::Wrote { key, offset, data: data.clone() });
                let buffer = Buffer::new(if data.is_empty() { vec![0] } else { data });
                let mr = self.reg_mr(&buffer, 0)?;
                // SAFETY: just registered.
                sge = sys::ibv_sge { addr: buffer.address(), length, lkey: unsafe { (*mr).lkey } };
                wr.opcode = sys::IBV_WR_RDMA_WRITE;
                wr.wr = sys::ibv_send_wr_wr { rdma: sys::ibv_send_wr_rdma { remote_addr: offset, rkey: key } };
                Posted::Write { buffer, mr }
            }
            Work::Read { id, sink, at, source, offset, length } => {
                // ended in the meantime: then there is nothing to read to
                let Some(region) = self.regions.get(&sink) else { return Ok(()) };
                sge = sys::ibv_sge { addr: at, length, lkey: region.lkey };
                wr.opcode = sys::IBV_WR_RDMA_READ;
                wr.wr = sys::ibv_send_wr_wr { rdma: sys::ibv_send_wr_rdma { remote_addr: offset, rkey: source } };
                record = watched.then_some(What::Asked { key: source, offset, length });
                Posted::Read { id, sink, at, length }
            }
            Work::Bind { key } => {
                let Some(region) = self.regions.get(&key) else { return Ok(()) };
                wr.opcode = sys::IBV_WR_BIND_MW;
                wr.bind_mw = sys::ibv_send_wr_bind_mw {
                    mw: region.mw,
                    rkey: key,
                    bind_info: sys::ibv_mw_bind_info {
                        mr: region.mr,
                        addr: region.buffer.address(),
                        length: region.buffer.len() as u64,
                        mw_access_flags: remote(region.rights) as libc::c_uint,
                    },
                };
                Posted::Bind
            }
        };
        if !matches!(posted, Posted::Bind) {
            wr.sg_list = &mut sge;
            wr.num_sge = 1;
        }
        wr.wr_id = self.next_work;
        self.next_work += 1;
        let id = wr.wr_id;
        let mut bad = null_mut();
        // SAFETY: the context is open as long as the identifier.
        let post = unsafe { (*(*self.pd).context).ops.post_send };
        // SAFETY: rdma_create_qp has put a queue pair there.
        let qp = unsafe { (*self.id).qp };
        let rc = match post {
            // SAFETY: the request and its list are copied during the call. The memory they refer to is registered and
            // stays so: it is kept in `posted` until the completion says that the card is done with it.
            Some(post) => unsafe { post(qp, &mut wr, &mut bad) },
            None => libc::EOPNOTSUPP,
        };
        self.posted.push_back((id, posted));
        if rc != 0 {
            let (_, failed) = self.posted.pop_back().unwrap_or((id, Posted::Bind));
            let name = failed.name();
            self.done(failed);
            let source = io::Error::from_raw_os_error(rc.abs());
            self.end(Ended::Failed { operation: name, status: source.to_string() });
        } else if let Some(what) = record {
            self.record(|| what);
        }
        Ok(())
    }

    fn post_receive(&mut self, slot: u32) -> Result<()> {
        let Some((buffer, mr)) = &self.receive else { return Err(Error::NotEstablished) };
        let size = self.options.receive_size;
        // SAFETY: the registration is there as long as the connection.
        let lkey = unsafe { (**mr).lkey };
        let mut sge = sys::ibv_sge { addr: buffer.address() + u64::from(slot) * u64::from(size), length: size, lkey };
        let mut wr =
            sys::ibv_recv_wr { wr_id: RECEIVE | u64::from(slot), next: null_mut(), sg_list: &mut sge, num_sge: 1 };
        let mut bad = null_mut();
        // SAFETY: the context is open as long as the identifier, and the queue pair is there.
        let (post, qp) = unsafe { ((*(*self.pd).context).ops.post_recv, (*self.id).qp) };
        let rc = match post {
            // SAFETY: request and list are copied during the call; the slot is registered, and its last message was
            // taken out of it.
            Some(post) => unsafe { post(qp, &mut wr, &mut bad) },
            None => libc::EOPNOTSUPP,
        };
        self.zero(rc, "ibv_post_recv")
    }

    fn notify(&self) -> Result<()> {
        // SAFETY: the context is open as long as the identifier.
        let notify =
            unsafe { (*(*self.pd).context).ops.req_notify_cq }.ok_or_else(|| self.lacks("ibv_req_notify_cq"))?;
        // SAFETY: a completion queue of ours.
        let rc = unsafe { notify(self.cq, 0) };
        self.zero(rc, "ibv_req_notify_cq")
    }

    fn fetch(&mut self) -> Result<bool> {
        // SAFETY: all zeroes is a value of this plain struct.
        let mut completions: [sys::ibv_wc; BATCH] = unsafe { std::mem::zeroed() };
        // SAFETY: the context is open as long as the identifier.
        let poll = unsafe { (*(*self.pd).context).ops.poll_cq }.ok_or_else(|| self.lacks("ibv_poll_cq"))?;
        // SAFETY: a completion queue of ours, and room for so many.
        let n = unsafe { poll(self.cq, BATCH as libc::c_int, completions.as_mut_ptr()) };
        let n = usize::try_from(n).map_err(|_| self.call("ibv_poll_cq", io::Error::last_os_error()))?.min(BATCH);
        for wc in &completions[..n] {
            self.completed(wc)?;
        }
        Ok(n > 0)
    }

    fn completed(&mut self, wc: &sys::ibv_wc) -> Result<()> {
        if wc.status != sys::IBV_WC_SUCCESS {
            return self.broke(wc);
        }
        if wc.wr_id & RECEIVE != 0 {
            let slot = (wc.wr_id & !RECEIVE) as u32;
            let Some((buffer, _)) = &self.receive else { return Ok(()) };
            let size = self.options.receive_size as usize;
            let message = buffer.piece(slot as usize * size, (wc.byte_len as usize).min(size)).to_vec();
            let invalidated = self.invalidated(wc);
            // a queue pair that has just gone into error rejects it: its flushed requests report the error
            let _ = self.post_receive(slot);
            self.established = true;
            self.record(|| What::Received { message: message.clone(), invalidated });
            self.events.push_back(Event::Received { message, invalidated });
            return Ok(());
        }
        while let Some((id, posted)) = self.posted.pop_front() {
            let last = id == wc.wr_id;
            if self.operations.is_some() && !matches!(posted, Posted::Bind) {
                let read = match posted {
                    Posted::Read { sink, at, length, .. } => self
                        .regions
                        .get(&sink)
                        .and_then(|region| Some(region.buffer.copy(region.place(at, length)?, length as usize))),
                    _ => None,
                };
                self.record(|| What::Done { read });
            }
            // requests of one queue end in order: those before it are done too
            self.done(posted);
            if last {
                break;
            }
        }
        Ok(())
    }

    /// Our key that a message invalidated.
    fn invalidated(&mut self, wc: &sys::ibv_wc) -> Option<u32> {
        // Soft-RoCE hands out the kernel's flag, 1 << 2, which means a good IP checksum here: connections do not report
        // that
        const KERNEL_WITH_INVALIDATE: libc::c_uint = 1 << 2;
        if wc.wc_flags & (sys::IBV_WC_WITH_INV | KERNEL_WITH_INVALIDATE) == 0 {
            return None;
        }
        let region = self.regions.get_mut(&wc.invalidated_rkey).filter(|r| r.rights != Rights::default())?;
        region.invalidated = true;
        Some(wc.invalidated_rkey)
    }

    /// True if the peer has ended a region.
    pub fn is_invalidated(&self, key: u32) -> bool {
        self.regions.get(&key).is_some_and(|r| r.invalidated)
    }

    fn done(&mut self, posted: Posted) {
        match posted {
            Posted::Send { slot } => self.free.push(slot),
            Posted::Write { buffer, mr } => self.release(buffer, mr),
            Posted::Read { id, .. } => self.events.push_back(Event::ReadDone { id }),
            Posted::Bind => {}
        }
    }

    fn release(&self, buffer: Buffer, mr: *mut sys::ibv_mr) {
        // SAFETY: registered by us, and ended once.
        if unsafe { (self.verbs.ib().dereg_mr)(mr) } != 0 {
            std::mem::forget(buffer);
        }
    }

    /// The queue pair is in error. Flushed requests carry no other information.
    fn broke(&mut self, wc: &sys::ibv_wc) -> Result<()> {
        self.broken.get_or_insert_with(Instant::now);
        if wc.status == sys::IBV_WC_WR_FLUSH_ERR {
            return Ok(());
        }
        let operation = match self.posted.iter().find(|(id, _)| *id == wc.wr_id) {
            _ if wc.wr_id & RECEIVE != 0 => "receiving",
            Some((_, posted)) => posted.name(),
            None => "an operation",
        };
        let nak = match wc.status {
            sys::IBV_WC_REM_INV_REQ_ERR => Some(1),
            sys::IBV_WC_REM_ACCESS_ERR => Some(2),
            sys::IBV_WC_REM_OP_ERR => Some(3),
            _ => None,
        };
        if let Some(code) = nak.filter(|_| wc.wr_id & RECEIVE == 0) {
            self.record(|| What::Refused(code));
        }
        let mut words = status(self.verbs, wc.status);
        match wc.status {
            sys::IBV_WC_REM_ACCESS_ERR => words += ": the peer's card does not grant that memory",
            sys::IBV_WC_RETRY_EXC_ERR => words += ": the peer does not acknowledge",
            sys::IBV_WC_RNR_RETRY_EXC_ERR => words += ": the peer has no receive posted",
            _ => {}
        }
        self.end(Ended::Failed { operation, status: words });
        Ok(())
    }

    fn end(&mut self, why: Ended) {
        if self.over {
            return;
        }
        self.over = true;
        self.record(|| What::Disconnected { by_peer: why == Ended::ByPeer });
        self.events.push_back(Event::Closed(why));
        // SAFETY: an identifier of ours. It does not matter if the peer was faster.
        unsafe { (self.cm.disconnect)(self.id) };
    }

    // ---- the communication manager

    /// Waits for the next event and returns its type and status.
    fn expect(&mut self, until: Instant, what: &'static str) -> Result<(sys::c_enum, libc::c_int)> {
        loop {
            if let Some((event, status)) = self.next_cm_event()? {
                return Ok((event, status));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Error::Unreachable { address: self.peer.to_string(), what });
            }
            // SAFETY: the channel is ours and open.
            let mut polled = libc::pollfd { fd: unsafe { (*self.channel).fd }, events: libc::POLLIN, revents: 0 };
            let ms = libc::c_int::try_from(left.as_micros().div_ceil(1000)).unwrap_or(libc::c_int::MAX);
            // SAFETY: one entry, as said.
            unsafe { libc::poll(&mut polled, 1, ms) };
        }
    }

    fn next_cm_event(&mut self) -> Result<Option<(sys::c_enum, libc::c_int)>> {
        let mut event = null_mut();
        // SAFETY: a channel of ours, which does not block.
        if unsafe { (self.cm.get_cm_event)(self.channel, &mut event) } != 0 {
            let source = io::Error::last_os_error();
            return match source.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
                _ => Err(self.call("rdma_get_cm_event", source)),
            };
        }
        // SAFETY: an event of ours until it is acknowledged; the private data lies in it.
        let (kind, status, private_data, depths) = unsafe {
            let e = &*event;
            // an event has ours as the peer's, and the other way round
            (e.event, e.status, private_data(&e.conn), (e.conn.initiator_depth, e.conn.responder_resources))
        };
        if kind == sys::RDMA_CM_EVENT_ESTABLISHED && !private_data.is_empty() {
            self.private_data = private_data;
        }
        if kind == sys::RDMA_CM_EVENT_ESTABLISHED && depths != (0, 0) {
            self.peer_depths = depths;
        }
        // SAFETY: acknowledged once, and not looked at afterwards.
        unsafe { (self.cm.ack_cm_event)(event) };
        Ok(Some((kind, status)))
    }

    fn manage(&mut self) -> Result<()> {
        while let Some((event, status)) = self.next_cm_event()? {
            match event {
                sys::RDMA_CM_EVENT_ESTABLISHED => self.established = true,
                sys::RDMA_CM_EVENT_DISCONNECTED | sys::RDMA_CM_EVENT_TIMEWAIT_EXIT => {
                    // operations before it are still in the queue
                    while !self.over && self.fetch()? {}
                    self.end(Ended::ByPeer);
                }
                sys::RDMA_CM_EVENT_DEVICE_REMOVAL => self.end(Ended::DeviceRemoved),
                sys::RDMA_CM_EVENT_REJECTED | sys::RDMA_CM_EVENT_UNREACHABLE | sys::RDMA_CM_EVENT_CONNECT_ERROR => {
                    self.end(Ended::Failed {
                        operation: "setting up the connection",
                        status: rejection(status, self.iwarp),
                    });
                }
                _ => {}
            }
        }
        Ok(())
    }

    // ---- errors

    fn call(&self, call: &'static str, source: io::Error) -> Error {
        let device = if self.device.is_empty() { self.peer.to_string() } else { self.device.clone() };
        Error::Call { device, call, source }
    }

    fn lacks(&self, call: &'static str) -> Error {
        self.call(call, io::Error::from_raw_os_error(libc::EOPNOTSUPP))
    }

    fn made(&self, null: bool, call: &'static str) -> Result<()> {
        if null { Err(self.call(call, io::Error::last_os_error())) } else { Ok(()) }
    }

    fn zero(&self, rc: libc::c_int, call: &'static str) -> Result<()> {
        match rc {
            0 => Ok(()),
            // verbs return the number, the communication manager returns -1 and sets errno
            rc if rc > 0 => Err(self.call(call, io::Error::from_raw_os_error(rc))),
            _ => Err(self.call(call, io::Error::last_os_error())),
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let ib = self.verbs.ib();
        // SAFETY: each object was made by its library, is ended once, and after everything that uses it; memory is
        // freed after its registration.
        unsafe {
            if !self.id.is_null() {
                if !self.over && self.established {
                    (self.cm.disconnect)(self.id);
                }
                if !(*self.id).qp.is_null() {
                    (self.cm.destroy_qp)(self.id);
                }
            }
            if !self.cq.is_null() {
                (ib.ack_cq_events)(self.cq, self.cq_events);
                (ib.destroy_cq)(self.cq);
            }
            if !self.completions.is_null() {
                (ib.destroy_comp_channel)(self.completions);
            }
        }
        for (_, posted) in std::mem::take(&mut self.posted) {
            if let Posted::Write { buffer, mr } = posted {
                self.release(buffer, mr);
            }
        }
        for (_, region) in std::mem::take(&mut self.regions) {
            self.end_region(region);
        }
        for (buffer, mr) in [self.receive.take(), self.send.take()].into_iter().flatten() {
            self.release(buffer, mr);
        }
        // SAFETY: as before.
        unsafe {
            if !self.pd.is_null() {
                (ib.dealloc_pd)(self.pd);
            }
            if !self.id.is_null() {
                (self.cm.destroy_id)(self.id);
            }
            (self.cm.destroy_event_channel)(self.channel);
        }
    }
}

fn remote(rights: Rights) -> libc::c_int {
    let mut access = 0;
    if rights.read {
        access |= sys::IBV_ACCESS_REMOTE_READ;
    }
    if rights.write {
        access |= sys::IBV_ACCESS_REMOTE_WRITE;
    }
    access
}

/// A channel for events that does not block.
pub(crate) fn event_channel(cm: &'static RdmaCm) -> Result<*mut sys::rdma_event_channel> {
    // SAFETY: takes nothing.
    let channel = unsafe { (cm.create_event_channel)() };
    if channel.is_null() {
        return Err(Error::NoManager(io::Error::last_os_error()));
    }
    // SAFETY: just made, and destroyed here if it cannot be used.
    unsafe {
        if let Err(e) = nonblocking((*channel).fd) {
            (cm.destroy_event_channel)(channel);
            return Err(Error::NoManager(e));
        }
    }
    Ok(channel)
}

fn nonblocking(fd: libc::c_int) -> io::Result<()> {
    // SAFETY: takes a descriptor and flags only.
    if unsafe { libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// The private data of an event.
///
/// # Safety
/// The parameters lie in an event that was not acknowledged yet.
pub(crate) unsafe fn private_data(conn: &sys::rdma_conn_param) -> Vec<u8> {
    if conn.private_data.is_null() {
        return Vec::new();
    }
    // SAFETY: by the caller; the library copied `private_data_len` bytes there.
    unsafe { std::slice::from_raw_parts(conn.private_data.cast::<u8>(), conn.private_data_len.into()) }.to_vec()
}

/// Text for the reason of a rejection: on InfiniBand and RoCE a reason of the standard, on iWARP an error of the
/// system.
fn rejection(status: libc::c_int, iwarp: bool) -> String {
    if iwarp || status < 0 {
        return io::Error::from_raw_os_error(status.abs()).to_string();
    }
    let words = match status {
        1 => "no queue pair available",
        3 => "no resources available",
        4 => "timeout",
        5 => "unsupported request",
        8 => "invalid service ID: nothing listens on that RDMA port",
        10 => "stale connection",
        28 => "consumer reject",
        _ => "reason",
    };
    format!("{words} ({status})")
}

/// As C has it.
pub(crate) fn sockaddr(address: SocketAddr) -> libc::sockaddr_storage {
    // SAFETY: all zeroes is a value of these plain structs; the longer one has room for the shorter ones, and an
    // alignment that suits them.
    unsafe {
        let mut storage: libc::sockaddr_storage = std::mem::zeroed();
        match address {
            SocketAddr::V4(a) => {
                let v4 = &mut *(&raw mut storage).cast::<libc::sockaddr_in>();
                v4.sin_family = libc::AF_INET as libc::sa_family_t;
                v4.sin_port = a.port().to_be();
                v4.sin_addr.s_addr = u32::from_ne_bytes(a.ip().octets());
            }
            SocketAddr::V6(a) => {
                let v6 = &mut *(&raw mut storage).cast::<libc::sockaddr_in6>();
                v6.sin6_family = libc::AF_INET6 as libc::sa_family_t;
                v6.sin6_port = a.port().to_be();
                v6.sin6_addr.s6_addr = a.ip().octets();
                v6.sin6_scope_id = a.scope_id();
            }
        }
        storage
    }
}

/// Converts an address; `None` if it is neither IPv4 nor IPv6.
pub(crate) fn socket_address(storage: &libc::sockaddr_storage) -> Option<SocketAddr> {
    let storage: *const libc::sockaddr_storage = storage;
    // SAFETY: the family determines which of the two it holds; both are shorter than the storage.
    unsafe {
        match libc::c_int::from((*storage).ss_family) {
            libc::AF_INET => {
                let v4 = &*storage.cast::<libc::sockaddr_in>();
                let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
                Some(SocketAddr::new(IpAddr::V4(ip), u16::from_be(v4.sin_port)))
            }
            libc::AF_INET6 => {
                let v6 = &*storage.cast::<libc::sockaddr_in6>();
                Some(SocketAddr::new(IpAddr::V6(Ipv6Addr::from(v6.sin6_addr.s6_addr)), u16::from_be(v6.sin6_port)))
            }
            _ => None,
        }
    }
}

// `conn` is read for every type of event: it must not extend beyond the library's smallest allocation.
const _: () = assert!(offset_of!(sys::rdma_cm_event, conn) == 24);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_go_there_and_back() {
        for text in ["192.0.2.1:445", "[2001:db8::1]:5445"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(socket_address(&sockaddr(address)), Some(address));
        }
        // SAFETY: all zeroes is a value of this plain struct.
        assert_eq!(socket_address(&unsafe { std::mem::zeroed() }), None);
    }

    #[test]
    fn rejections_have_words() {
        assert_eq!(rejection(8, false), "invalid service ID: nothing listens on that RDMA port (8)");
        assert!(rejection(-libc::ECONNREFUSED, true).contains("refused"));
    }
}
