//! UDP port 4791 for RoCEv2 in user space. All connections of this process at one address share the port: the thread
//! that reads passes packets of other connections to their owners. Each connection sends from a source port of its own.
//!
//! The sockets forbid fragments and are not connected: Linux then gives all packets IP identification 0, which the
//! invariant CRC covers. This is tested once for each port, with a datagram to ourselves.

use super::packet::{Check, Outside, PORT, Path, destination, whole};
use super::{Addressed, Endpoint, Numbers, addressed};
use crate::transport::{Clock, Driver, Transport};
use nix::sys::socket::{self as nix_socket, ControlMessage, MsgFlags, MultiHeaders, SockaddrStorage};
use quinn_udp::{BATCH_SIZE, RecvMeta, UdpSockRef, UdpSocketState};
use rdmascope_dissector::wire::ib::bth::Opcode;
use rdmascope_dissector::wire::ib::cm::RejectReason;
use rdmascope_dissector::wire::ib::mad::QP1;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery};
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto};
use std::collections::{HashMap, VecDeque};
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Maximum number of bytes in a mailbox. Further datagrams are dropped, as a network would do.
const MAILBOX_MAX: usize = 8 << 20;
/// Size of the system's receive buffer that we request, in bytes.
const RECEIVE_BUFFER: usize = 8 << 20;
/// Number of bytes handed to the system at a time.
const BURST: usize = 1 << 17;
/// Maximum time to send the last messages of a connection.
const LEAVE_WITHIN: Duration = Duration::from_millis(1500);
/// The same if the connection was dropped without closing it.
const DROP_WITHIN: Duration = Duration::from_millis(300);

/// A received datagram.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(crate) remote: IpAddr,
    pub(crate) local: IpAddr,
    pub(crate) outside: Outside,
    pub(crate) bytes: Vec<u8>,
}

/// Datagrams for a connection whose thread was not reading.
#[derive(Debug)]
pub(crate) struct Mailbox {
    arrived: Mutex<(VecDeque<Arrived>, usize)>,
    bell: OwnedFd,
}

impl Mailbox {
    pub(crate) fn new() -> io::Result<Arc<Self>> {
        let bell = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Arc::new(Self { arrived: Mutex::default(), bell }))
    }

    fn put(&self, datagram: Arrived) {
        let mut arrived = lock(&self.arrived);
        if arrived.1 + datagram.bytes.len() <= MAILBOX_MAX {
            arrived.1 += datagram.bytes.len();
            arrived.0.push_back(datagram);
            // if it was not empty, it rings already
            if arrived.0.len() == 1 {
                let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
            }
        }
    }

    pub(crate) fn take(&self) -> Option<Arrived> {
        let mut arrived = lock(&self.arrived);
        let next = arrived.0.pop_front();
        match &next {
            Some(datagram) => arrived.1 -= datagram.bytes.len(),
            None => drop(rustix::io::read(&self.bell, &mut [0; 8])),
        }
        next
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // after a panic the entries are still whole
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The mailboxes, by destination of packets.
#[derive(Debug, Default)]
struct Routes {
    queue_pairs: HashMap<u32, Arc<Mailbox>>,
    comm_ids: HashMap<u32, Arc<Mailbox>>,
    services: HashMap<u16, Arc<Mailbox>>,
    /// By requester: requested connections; `None` until they are answered.
    requests: HashMap<(IpAddr, u32), Option<Arc<Mailbox>>>,
}

/// Buffers to read into.
struct Reader {
    buffers: Vec<Vec<u8>>,
    metas: Vec<RecvMeta>,
}

impl Reader {
    /// Reads once from a socket, many datagrams at a time. Returns true if there were any.
    fn fill(
        &mut self,
        state: &UdpSocketState,
        socket: UdpSockRef<'_>,
        mut each: impl FnMut(&RecvMeta, &[u8]),
    ) -> io::Result<bool> {
        let mut slices: Vec<IoSliceMut<'_>> = self.buffers.iter_mut().map(|buffer| IoSliceMut::new(buffer)).collect();
        let count = match state.recv(socket, &mut slices, &mut self.metas) {
            Ok(count) => count,
            // an ICMP error for one of our datagrams is ignored
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted | io::ErrorKind::ConnectionRefused
                ) =>
            {
                return Ok(false);
            }
            Err(e) => return Err(e),
        };
        for (meta, buffer) in self.metas.iter().zip(&self.buffers).take(count) {
            each(meta, &buffer[..meta.len.min(buffer.len())]);
        }
        Ok(count > 0)
    }
}

/// A raw socket, which shows IPv4 headers: with CAP_NET_RAW only.
struct Raw {
    socket: OwnedFd,
    state: UdpSocketState,
}

impl Raw {
    /// A raw socket for packets from other hosts to this address. `None` without the privilege, and if it is not
    /// needed: on IPv6 no field that the invariant CRC covers is hidden, and within this host packets have no
    /// identification of their own.
    fn open(address: IpAddr) -> Option<Self> {
        let IpAddr::V4(address) = address else { return None };
        if address.is_loopback() {
            return None;
        }
        let socket =
            rustix::net::socket_with(AddressFamily::INET, SocketType::RAW, SocketFlags::CLOEXEC, Some(ipproto::UDP))
                .ok()?;
        rustix::net::bind(&socket, &SocketAddrV4::new(address, 0)).ok()?;
        receive_buffer(socket.as_fd());
        let state = UdpSocketState::new((&socket).into()).ok()?;
        Some(Self { socket, state })
    }
}

/// Makes the receive buffer as large as may be: more than the limit of the system takes root.
fn receive_buffer(socket: BorrowedFd<'_>) {
    if sockopt::set_socket_recv_buffer_size_force(socket, RECEIVE_BUFFER).is_err() {
        let _ = sockopt::set_socket_recv_buffer_size(socket, RECEIVE_BUFFER);
    }
}

/// UDP port 4791 of one address of this host, or of all.
pub(crate) struct UdpPort {
    address: IpAddr,
    socket: UdpSocket,
    /// `None` if everything is read from the raw socket.
    state: Option<UdpSocketState>,
    raw: Option<Raw>,
    reader: Mutex<Reader>,
    routes: Mutex<Routes>,
}

impl std::fmt::Debug for UdpPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "UdpPort({})", self.address)
    }
}

/// Those of this process that are open.
static PORTS: Mutex<Vec<(IpAddr, Weak<UdpPort>)>> = Mutex::new(Vec::new());

impl UdpPort {
    /// The port of this address; `0.0.0.0` and `::` mean all addresses.
    pub(crate) fn open(address: IpAddr) -> io::Result<Arc<Self>> {
        let mut ports = lock(&PORTS);
        ports.retain(|(_, port)| port.strong_count() > 0);
        let covers = |of: &IpAddr| *of == address || of.is_unspecified() && of.is_ipv4() == address.is_ipv4();
        if let Some(port) = ports.iter().find(|(of, _)| covers(of)).and_then(|(_, port)| port.upgrade()) {
            return Ok(port);
        }
        let port = Arc::new(Self::bind(address)?);
        ports.push((address, Arc::downgrade(&port)));
        Ok(port)
    }

    /// The port of the local address from which packets to `remote` leave. If that is `remote` itself, on IPv4, and the
    /// port is already in use, it is that of another address of this host's loopback network.
    pub(crate) fn towards(remote: IpAddr) -> io::Result<Arc<Self>> {
        let probe = UdpSocket::bind((unspecified(remote), 0))?;
        probe.connect((remote, PORT))?;
        let local = probe.local_addr()?.ip().to_canonical();
        match Self::open(local) {
            Err(e)
                if e.kind() == io::ErrorKind::AddrInUse
                    && local == remote
                    && local.is_ipv4()
                    && !driver_owns_port() =>
            {
                for _ in 0..16 {
                    let mut random = [0; 3];
                    getrandom::fill(&mut random).map_err(io::Error::other)?;
                    let [b, c, d] = random;
                    match Self::open(Ipv4Addr::new(127, b | 1, c, d | 1).into()) {
                        Err(e) if e.kind() == io::ErrorKind::AddrInUse => {}
                        other => return other,
                    }
                }
                Err(e)
            }
            other => other,
        }
    }

    fn bind(address: IpAddr) -> io::Result<Self> {
        let socket = UdpSocket::bind((address, PORT)).map_err(|e| match e.kind() {
            io::ErrorKind::AddrInUse => {
                let who = if driver_owns_port() {
                    "Soft-RoCE (the kernel's rdma_rxe) uses it: remove it (rmmod rdma_rxe), or use --transport verbs"
                } else {
                    "another program uses it, perhaps another rdmascope: give each its own address"
                };
                io::Error::new(e.kind(), format!("UDP port {PORT} of {address} is taken: {who}"))
            }
            _ => e,
        })?;
        let raw = Raw::open(address);
        let state = if raw.is_some() && !address.is_unspecified() {
            // it only keeps the port; packets are read from the other one
            let _ = sockopt::set_socket_recv_buffer_size(&socket, 0);
            None
        } else {
            let state = UdpSocketState::new((&socket).into())?;
            if raw.is_some() {
                // a raw socket does not report where packets joined by the system must be split
                let _ = nix_socket::setsockopt(&socket, nix_socket::sockopt::UdpGroSegment, &false);
            }
            receive_buffer(socket.as_fd());
            Some(state)
        };
        let reader =
            Reader { buffers: vec![vec![0; 65_536]; BATCH_SIZE], metas: vec![RecvMeta::default(); BATCH_SIZE] };
        let port = Self { address, socket, state, raw, reader: Mutex::new(reader), routes: Mutex::default() };
        port.try_identification()?;
        Ok(port)
    }

    /// Sends a datagram to ourselves, and looks at the identification that it got.
    fn try_identification(&self) -> io::Result<()> {
        let to = if self.address.is_unspecified() && self.address.is_ipv4() {
            Ipv4Addr::LOCALHOST.into()
        } else {
            self.address
        };
        if !to.is_ipv4() {
            return Ok(());
        }
        let (socket, source_port) = flow(to, 0)?;
        let path = Path { local: to, remote: to, source_port };
        let mad = Endpoint::rejection(&path, &[], RejectReason::NO_RESOURCES);
        socket.send_to(&mad, (to, PORT))?;
        let until = Instant::now() + Duration::from_secs(1);
        let mut seen = None;
        while seen.is_none() && Instant::now() < until {
            poll_for(
                &mut self.sources().map(|source| PollFd::from_borrowed_fd(source, PollFlags::IN)).collect::<Vec<_>>(),
                Duration::from_millis(100),
            )?;
            self.read(&mut lock(&self.reader), |remote, local, outside, bytes| {
                if outside.source_port == source_port && bytes.len() == mad.len() {
                    seen = Some(Check::default().received(remote, local, source_port, bytes));
                }
            })?;
        }
        match seen.flatten() {
            Some(hidden) if hidden.identification == 0 && !hidden.fragmentable => Ok(()),
            Some(hidden) => Err(io::Error::new(
                io::ErrorKind::Unsupported,
                format!(
                    "this system numbers IP packets (identification {:#06x}) where Linux leaves 0: the invariant CRC \
                        of RoCEv2 covers that \
                    number, and cannot be computed here",
                    hidden.identification
                ),
            )),
            None => Err(io::Error::other(format!(
                "a datagram that we sent to ourselves (UDP port {PORT} of {to}) did not arrive: does a firewall drop it?"
            ))),
        }
    }

    /// The address; unspecified if it is all of them.
    pub(crate) fn address(&self) -> IpAddr {
        self.address
    }

    /// Hands the REQs for a service to a mailbox. False if another mailbox has them.
    pub(crate) fn listen(&self, service: u16, mailbox: &Arc<Mailbox>) -> bool {
        let mut routes = lock(&self.routes);
        if routes.services.contains_key(&service) {
            return false;
        }
        routes.services.insert(service, mailbox.clone());
        true
    }

    pub(crate) fn forget(&self, service: u16) {
        lock(&self.routes).services.remove(&service);
    }

    /// Begins handling a REQ. False if it was handled before.
    pub(crate) fn begin(&self, remote: IpAddr, comm_id: u32) -> bool {
        let mut routes = lock(&self.routes);
        if routes.requests.contains_key(&(remote, comm_id)) || routes.requests.len() >= REQUESTS_MAX {
            return false;
        }
        routes.requests.insert((remote, comm_id), None);
        true
    }

    /// A REQ is never to be answered.
    pub(crate) fn forsake(&self, remote: IpAddr, comm_id: u32) -> io::Result<()> {
        // packets to this mailbox are never read
        let nobody = Mailbox::new()?;
        lock(&self.routes).requests.insert((remote, comm_id), Some(nobody));
        Ok(())
    }

    /// A REQ was answered for good.
    pub(crate) fn end(&self, remote: IpAddr, comm_id: u32) {
        lock(&self.routes).requests.remove(&(remote, comm_id));
    }

    /// Reads once and distributes the datagrams. Returns true if there were any.
    pub(crate) fn receive(&self) -> io::Result<bool> {
        self.receive_for(None, |_, _, _| {})
    }

    /// The same for the owner of `mailbox`: passes on the datagrams in its mailbox, and then its own at once, in the
    /// order of their arrival. If another thread reads, passes on only those in the mailbox.
    fn receive_for(
        &self,
        mailbox: Option<&Arc<Mailbox>>,
        mut own: impl FnMut(IpAddr, &Outside, &[u8]),
    ) -> io::Result<bool> {
        // the reading thread puts packets of others into their mailboxes before it releases the reader: so whoever gets
        // the reader has all earlier packets
        let reader = self.reader.try_lock();
        let mut moved = false;
        let mut take = |own: &mut dyn FnMut(IpAddr, &Outside, &[u8])| {
            while let Some(arrived) = mailbox.and_then(|mailbox| mailbox.take()) {
                moved = true;
                own(arrived.remote, &arrived.outside, &arrived.bytes);
            }
        };
        take(&mut own);
        let Ok(mut reader) = reader else { return Ok(moved) };
        let mut last: Option<(u32, Arc<Mailbox>)> = None;
        let any = self.read(&mut reader, |remote, local, outside, bytes| {
            let Some((opcode, qp)) = destination(bytes) else { return };
            if qp == QP1 {
                self.manage(remote, local, outside, opcode, bytes);
                return take(&mut own);
            }
            if last.as_ref().is_none_or(|(of, _)| *of != qp) {
                let Some(found) = lock(&self.routes).queue_pairs.get(&qp).cloned() else { return };
                last = Some((qp, found));
            }
            let Some((_, to)) = &last else { return };
            if mailbox.is_some_and(|mailbox| Arc::ptr_eq(mailbox, to)) {
                own(remote, &outside, bytes);
            } else {
                to.put(Arrived { remote, local, outside, bytes: bytes.to_vec() });
            }
        })?;
        Ok(moved | any)
    }

    /// A management datagram.
    fn manage(&self, remote: IpAddr, local: IpAddr, outside: Outside, opcode: Opcode, bytes: &[u8]) {
        let Some((to, mad)) = (opcode == Opcode::UD_SEND_ONLY).then(|| addressed(bytes)).flatten() else { return };
        let routes = lock(&self.routes);
        let mailbox = match to {
            Addressed::Service { port, comm_id, .. } => match routes.requests.get(&(remote, comm_id)) {
                Some(Some(answered)) => Some(answered.clone()),
                Some(None) => {
                    // it is looked at
                    let _ = answer(local, remote, |path| Endpoint::receipt(path, mad));
                    None
                }
                None => match port.and_then(|port| routes.services.get(&port)) {
                    Some(mailbox) => Some(mailbox.clone()),
                    None => {
                        // a lost answer is requested again
                        let reject =
                            |path: &Path| Some(Endpoint::rejection(path, mad, RejectReason::INVALID_SERVICE_ID));
                        let _ = answer(local, remote, reject);
                        None
                    }
                },
            },
            Addressed::Connection(id) => match routes.comm_ids.get(&id) {
                Some(mailbox) => Some(mailbox.clone()),
                None => {
                    let _ = answer(local, remote, |path| Endpoint::disconnect_reply(path, mad));
                    None
                }
            },
        };
        drop(routes);
        if let Some(mailbox) = mailbox {
            mailbox.put(Arrived { remote, local, outside, bytes: bytes.to_vec() });
        }
    }

    /// Reads once. Returns true if there was data.
    fn read(&self, reader: &mut Reader, mut each: impl FnMut(IpAddr, IpAddr, Outside, &[u8])) -> io::Result<bool> {
        let mut any = false;
        // if there are both, this one has the packets from this host
        let both = self.state.is_some() && self.raw.is_some();
        if let Some(state) = &self.state {
            any |= reader.fill(state, (&self.socket).into(), |meta, bytes| {
                let remote = meta.addr.ip().to_canonical();
                let local = meta.dst_ip.map_or(self.address, |ip| ip.to_canonical());
                if both && !remote.is_loopback() {
                    return;
                }
                let congested = meta.ecn == Some(quinn_udp::EcnCodepoint::Ce);
                let outside = Outside { source_port: meta.addr.port(), congested, header: None };
                for bytes in bytes.chunks(meta.stride.max(1)) {
                    each(remote, local, outside, bytes);
                }
            })?;
        }
        if let Some(Raw { socket, state }) = &self.raw {
            any |= reader.fill(state, socket.into(), |_, bytes| {
                if let Some((remote, local, outside, bytes)) = whole(bytes)
                    && !(both && remote.is_loopback())
                {
                    each(remote.into(), local.into(), outside, bytes);
                }
            })?;
        }
        Ok(any)
    }

    /// The sockets that are read.
    fn sources(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let udp = self.state.is_some().then(|| self.socket.as_fd());
        udp.into_iter().chain(self.raw.as_ref().map(|raw| raw.socket.as_fd()))
    }

    /// Waits until a packet arrives, for anybody, or in this mailbox; or until this socket, if given, can send.
    fn wait_also(&self, mailbox: &Mailbox, leaving: Option<&UdpSocket>, at_most: Duration) -> io::Result<()> {
        let sources =
            self.sources().chain([mailbox.bell.as_fd()]).map(|source| PollFd::from_borrowed_fd(source, PollFlags::IN));
        let mut fds: Vec<PollFd<'_>> = sources.chain(leaving.map(|flow| PollFd::new(flow, PollFlags::OUT))).collect();
        poll_for(&mut fds, at_most)
    }

    /// Waits until a packet arrives, for any connection, or in this mailbox.
    pub(crate) fn wait(&self, mailbox: &Mailbox, at_most: Duration) -> io::Result<()> {
        self.wait_also(mailbox, None, at_most)
    }
}

/// Maximum number of connection requests at a time.
const REQUESTS_MAX: usize = 4096;

fn poll_for(fds: &mut [PollFd<'_>], at_most: Duration) -> io::Result<()> {
    let timeout = Timespec { tv_sec: at_most.as_secs().min(3600) as i64, tv_nsec: i64::from(at_most.subsec_nanos()) };
    match poll(fds, Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

fn unspecified(like: IpAddr) -> IpAddr {
    if like.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() }
}

/// True if the kernel's Soft-RoCE is loaded, which occupies the port.
fn driver_owns_port() -> bool {
    std::path::Path::new("/sys/module/rdma_rxe").exists()
}

/// Sends one datagram from a port of its own.
pub(crate) fn answer(local: IpAddr, remote: IpAddr, datagram: impl FnOnce(&Path) -> Option<Vec<u8>>) -> io::Result<()> {
    let (socket, source_port) = flow(local, 0)?;
    match datagram(&Path { local, remote, source_port }) {
        Some(bytes) => socket.send_to(&bytes, (remote, PORT)).map(drop),
        None => Ok(()),
    }
}

/// A socket to send from: at this address, on a free port among those for RoCEv2, starting from one that depends on
/// `wish` and chance.
fn flow(local: IpAddr, wish: u16) -> io::Result<(UdpSocket, u16)> {
    let mut random = [0; 2];
    getrandom::fill(&mut random).map_err(io::Error::other)?;
    let mut last = io::Error::from(io::ErrorKind::AddrInUse);
    for n in 0..256 {
        let port = 0xc000 | wish.wrapping_add(u16::from_le_bytes(random)).wrapping_add(n) & 0x3fff;
        match UdpSocket::bind((local, port)) {
            Ok(socket) => {
                match local {
                    IpAddr::V4(_) => sockopt::set_ip_mtu_discover(&socket, Ipv4PathMtuDiscovery::DO)?,
                    IpAddr::V6(_) => sockopt::set_ipv6_mtu_discover(&socket, Ipv6PathMtuDiscovery::DO)?,
                }
                socket.set_nonblocking(true)?;
                let _ = sockopt::set_socket_send_buffer_size(&socket, RECEIVE_BUFFER);
                return Ok((socket, port));
            }
            Err(e) if e.kind() == io::ErrorKind::AddrInUse => last = e,
            Err(e) => return Err(e),
        }
    }
    Err(last)
}

/// The largest path MTU that the interface from `local` to `remote` has room for: 4096 bytes on jumbo frames and within
/// this host, 1024 on 1500.
pub(crate) fn path_mtu(local: IpAddr, remote: IpAddr) -> u16 {
    // headers: IP, UDP, BTH, the longest extension, padding and CRC
    const HEADERS: usize = 40 + 8 + 12 + 28 + 4;
    let room =
        if local == remote || remote.is_loopback() { usize::MAX } else { interface_mtu(local, remote).unwrap_or(1500) };
    [4096u16, 2048, 1024, 512].into_iter().find(|mtu| usize::from(*mtu) + HEADERS <= room).unwrap_or(256)
}

/// The MTU of the interface that leads to `remote`, by the system's tables.
fn interface_mtu(local: IpAddr, remote: IpAddr) -> Option<usize> {
    let interface = match (local, remote) {
        (_, IpAddr::V4(remote)) => {
            let table = std::fs::read_to_string("/proc/net/route").ok()?;
            // interface, destination, gateway, flags, …, the mask the eighth; numbers as they lie in memory
            let rows = table.lines().skip(1).filter_map(|line| {
                let words: Vec<&str> = line.split_whitespace().collect();
                let number = |n: usize| u32::from_str_radix(words.get(n)?, 16).ok().map(u32::from_be);
                let (to, mask) = (number(1)?, number(7)?);
                (u32::from(remote) & mask == to).then(|| (mask, (*words.first().unwrap_or(&"")).to_owned()))
            });
            rows.max_by_key(|(mask, _)| *mask)?.1
        }
        (IpAddr::V6(local), _) => {
            let table = std::fs::read_to_string("/proc/net/if_inet6").ok()?;
            let address: String = local.octets().iter().map(|b| format!("{b:02x}")).collect();
            table.lines().find(|line| line.starts_with(&address))?.split_whitespace().last()?.to_owned()
        }
        _ => return None,
    };
    if interface.contains(['/', '.']) && !interface.chars().all(|c| c.is_ascii_alphanumeric() || ".-_".contains(c)) {
        return None;
    }
    std::fs::read_to_string(format!("/sys/class/net/{interface}/mtu")).ok()?.trim().parse().ok()
}

/// Moves one connection.
#[derive(Debug)]
pub struct UdpDriver {
    port: Arc<UdpPort>,
    mailbox: Arc<Mailbox>,
    flow: UdpSocket,
    source_port: u16,
    remote: SocketAddr,
    numbers: Numbers,
    /// The REQ that it answers.
    request: Option<(IpAddr, u32)>,
    /// Made, and not taken by the system yet: bytes, and for each datagram its end and type of service.
    out: Vec<u8>,
    leaving: VecDeque<(usize, u8)>,
    /// Offset of the first of them.
    done: usize,
    tos: u8,
    /// True if the system may cut one piece into several datagrams (GSO). It then also sets their identification: if
    /// that matters, each datagram is sent by itself.
    segmentation: bool,
    /// Our address, as a stream would have one.
    address: Option<SocketAddr>,
    /// True if nothing more is sent.
    silent: bool,
    left: bool,
}

impl UdpDriver {
    /// For the connection of these numbers, which must be unused at this port.
    pub(crate) fn new(port: Arc<UdpPort>, local: IpAddr, remote: IpAddr, numbers: Numbers) -> io::Result<Self> {
        let local = if local.is_unspecified() { route(remote)? } else { local };
        let (flow, source_port) = flow(local, Path::source_port(numbers.qp, 0))?;
        let mailbox = Mailbox::new()?;
        let mut routes = lock(&port.routes);
        if routes.queue_pairs.contains_key(&numbers.qp) || routes.comm_ids.contains_key(&numbers.comm_id) {
            return Err(io::Error::other("no queue pair is free"));
        }
        routes.queue_pairs.insert(numbers.qp, mailbox.clone());
        routes.comm_ids.insert(numbers.comm_id, mailbox.clone());
        drop(routes);
        Ok(Self {
            port,
            mailbox,
            flow,
            source_port,
            remote: SocketAddr::new(remote, PORT),
            numbers,
            request: None,
            out: Vec::new(),
            leaving: VecDeque::new(),
            done: 0,
            tos: 0,
            segmentation: remote.is_loopback() || remote.is_ipv6(),
            address: None,
            silent: false,
            left: false,
        })
    }

    /// The port that our packets leave from.
    pub(crate) fn source_port(&self) -> u16 {
        self.source_port
    }

    pub(crate) fn set_addresses(&mut self, local: SocketAddr, _remote: SocketAddr) {
        self.address = Some(local);
    }

    /// The connection answers this REQ, also when the REQ is repeated.
    pub(crate) fn answers(&mut self, remote: IpAddr, comm_id: u32) {
        lock(&self.port.routes).requests.insert((remote, comm_id), Some(self.mailbox.clone()));
        self.request = Some((remote, comm_id));
    }

    /// Handles timers, moves data, and waits; for use without another thread.
    pub(crate) fn round(&mut self, clock: &Clock, transport: &mut dyn Transport, at_most: Duration) -> io::Result<()> {
        let now = clock.now();
        if transport.poll_timeout().is_some_and(|at| now >= at) {
            transport.handle_timeout(now);
        }
        if !self.drive(clock, transport)? {
            let timer =
                transport.poll_timeout().map(|at| Duration::from_nanos(at.saturating_sub(clock.now()).max(0) as u64));
            self.wait(transport, timer.map_or(at_most, |timer| timer.min(at_most)))?;
        }
        Ok(())
    }

    fn receive(&mut self, clock: &Clock, transport: &mut dyn Transport) -> io::Result<bool> {
        let Some(end) = transport.datagrams() else { return Ok(false) };
        let remote = self.remote.ip();
        self.port.receive_for(Some(&self.mailbox), |from, outside, bytes| {
            if from == remote {
                // the time at which it is here, not that at which it was waited for
                end.handle_datagram(clock.now(), outside, bytes);
            }
        })
    }

    /// Sends all output. Returns true if anything left.
    fn transmit(&mut self, clock: &Clock, transport: &mut dyn Transport) -> io::Result<bool> {
        let Some(end) = transport.datagrams() else { return Ok(false) };
        let mut moved = false;
        loop {
            if self.leaving.is_empty() {
                self.out.clear();
                self.done = 0;
                let now = clock.now();
                while self.out.len() < BURST
                    && let Some(leaving) = end.poll_datagram(now, &mut self.out)
                {
                    self.leaving.push_back((self.out.len(), leaving.tos));
                    debug_assert!(leaving.length > 0);
                }
                if self.leaving.is_empty() {
                    return Ok(moved);
                }
            }
            while let Some((_, tos)) = self.leaving.front().copied() {
                if tos != self.tos {
                    match self.remote {
                        SocketAddr::V4(_) => sockopt::set_ip_tos(&self.flow, tos)?,
                        SocketAddr::V6(_) => sockopt::set_ipv6_tclass(&self.flow, tos.into())?,
                    }
                    self.tos = tos;
                }
                let batch = Batch::of(&self.leaving, self.done, self.segmentation);
                // before it is sent: the peer may have it before this thread goes on
                let now = clock.now();
                let sent = if self.silent { Ok(batch.count) } else { batch.send(&self.flow, &self.out, self.remote) };
                let (count, told) = match sent {
                    Ok(count) => (count.clamp(1, batch.count), true),
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(moved),
                    Err(_) if batch.segment.is_some() => {
                        // not on this way: each by itself
                        self.segmentation = false;
                        continue;
                    }
                    Err(e) if e.raw_os_error() == Some(rustix::io::Errno::MSGSIZE.raw_os_error()) => {
                        let text = format!(
                            "a packet of {} bytes is too long for the path to {}",
                            batch.first().len(),
                            self.remote.ip()
                        );
                        return Err(io::Error::new(e.kind(), text));
                    }
                    // treated as lost
                    Err(_) => (1, false),
                };
                for (to, tos) in self.leaving.drain(..count) {
                    if told {
                        end.datagram_sent(now, tos, &self.out[self.done..to]);
                    }
                    self.done = to;
                }
                moved = true;
            }
        }
    }

    fn last_words(&mut self, clock: &Clock, transport: &mut dyn Transport, within: Duration) {
        if std::mem::replace(&mut self.left, true) {
            return;
        }
        transport.close();
        let until = Instant::now() + within;
        while transport.datagrams().is_some_and(|end| !end.is_over()) && !self.silent {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || self.round(clock, transport, left).is_err() {
                break;
            }
        }
        // an answer to the peer's last words
        let _ = self.transmit(clock, transport);
    }
}

/// Maximum number of datagrams handed to the system at a time, and into which it splits one piece.
const BATCH: usize = 64;
/// Maximum size of a piece that the system splits, in bytes.
const PIECE: usize = 65_000;

/// Datagrams that leave in one system call: consecutive ones of one class.
struct Batch {
    /// The range of each in the output.
    ends: Vec<std::ops::Range<usize>>,
    count: usize,
    /// The system is to cut them: the length of all but the last, which may be shorter.
    segment: Option<u16>,
}

impl Batch {
    /// Takes datagrams from the front of the output.
    fn of(leaving: &VecDeque<(usize, u8)>, mut at: usize, segmentation: bool) -> Self {
        let class = leaving.front().map_or(0, |(_, tos)| *tos);
        let mut ends = Vec::with_capacity(leaving.len().min(BATCH));
        for (to, tos) in leaving.iter().take(BATCH) {
            if *tos != class {
                break;
            }
            ends.push(at..*to);
            at = *to;
        }
        let size = ends.first().map_or(0, |first| first.len());
        let mut equal = ends.iter().take_while(|range| range.len() == size).count();
        if ends.get(equal).is_some_and(|next| next.len() < size) {
            equal += 1;
        }
        let cut = equal.min(PIECE / size.max(1));
        match u16::try_from(size) {
            Ok(size) if segmentation && cut > 1 => Self { ends, count: cut, segment: Some(size) },
            // the first one has another length, and some that can be split follow
            _ if segmentation => {
                let follows = ends.get(1..3).is_some_and(|two| two[0].len() == two[1].len());
                let count = if follows { 1 } else { ends.len() };
                Self { ends, count, segment: None }
            }
            _ => Self { count: ends.len(), ends, segment: None },
        }
    }

    /// The range of the first one.
    fn first(&self) -> std::ops::Range<usize> {
        self.ends.first().cloned().unwrap_or_default()
    }

    /// Sends the batch. Returns the number of datagrams sent.
    fn send(&self, flow: &UdpSocket, out: &[u8], to: SocketAddr) -> io::Result<usize> {
        if let Some(segment) = &self.segment {
            let piece = &out[self.first().start..self.ends.get(self.count - 1).map_or(0, |last| last.end)];
            let address = SockaddrStorage::from(to);
            let cut = [ControlMessage::UdpGsoSegments(segment)];
            nix_socket::sendmsg(flow.as_raw_fd(), &[IoSlice::new(piece)], &cut, MsgFlags::empty(), Some(&address))?;
            return Ok(self.count);
        }
        if self.count == 1 {
            return flow.send_to(&out[self.first()], to).map(|_| 1);
        }
        let slices: Vec<[IoSlice<'_>; 1]> =
            self.ends[..self.count].iter().map(|range| [IoSlice::new(&out[range.clone()])]).collect();
        let addresses = vec![Some(SockaddrStorage::from(to)); self.count];
        let mut headers = MultiHeaders::preallocate(self.count, None);
        let none: [ControlMessage<'_>; 0] = [];
        let sent = nix_socket::sendmmsg(flow.as_raw_fd(), &mut headers, &slices, &addresses, none, MsgFlags::empty())?;
        Ok(sent.count())
    }
}

fn route(remote: IpAddr) -> io::Result<IpAddr> {
    let probe = UdpSocket::bind((unspecified(remote), 0))?;
    probe.connect((remote, PORT))?;
    Ok(probe.local_addr()?.ip().to_canonical())
}

impl Drop for UdpDriver {
    fn drop(&mut self) {
        let mut routes = lock(&self.port.routes);
        routes.queue_pairs.remove(&self.numbers.qp);
        routes.comm_ids.remove(&self.numbers.comm_id);
        if let Some(request) = &self.request {
            routes.requests.remove(request);
        }
    }
}

impl Driver for UdpDriver {
    fn drive(&mut self, clock: &Clock, transport: &mut dyn Transport) -> io::Result<bool> {
        let sent = self.transmit(clock, transport)?;
        let received = self.receive(clock, transport)?;
        // acknowledgements do not wait for the user
        Ok(received && {
            self.transmit(clock, transport)?;
            true
        } || sent)
    }

    fn wait(&mut self, _transport: &mut dyn Transport, at_most: Duration) -> io::Result<()> {
        self.port.wait_also(&self.mailbox, (!self.leaving.is_empty()).then_some(&self.flow), at_most)
    }

    fn flush(&mut self, clock: &Clock, transport: &mut dyn Transport) {
        self.last_words(clock, transport, LEAVE_WITHIN);
    }

    fn half_close(&mut self, clock: &Clock, transport: &mut dyn Transport) -> io::Result<()> {
        self.last_words(clock, transport, LEAVE_WITHIN);
        Ok(())
    }

    fn unsent(&self) -> usize {
        self.out.len() - self.done
    }

    fn ignore(&mut self) {
        self.silent = true;
        // there is no way to know when a silent peer has gone
        let until = Instant::now() + Duration::from_secs(60);
        while Instant::now() < until {
            while self.mailbox.take().is_some() {}
            let _ = self.port.receive_for(Some(&self.mailbox), |_, _, _| {});
            let _ = self.port.wait(&self.mailbox, Duration::from_millis(100));
        }
    }

    fn abort(&mut self) {
        self.silent = true;
    }

    fn leave(&mut self, clock: &Clock, transport: &mut dyn Transport) {
        self.last_words(clock, transport, DROP_WITHIN);
    }

    fn local_address(&self) -> Option<SocketAddr> {
        self.address
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes output: datagrams of these lengths and classes, each with different bytes.
    fn leaving(rows: &[(usize, u8)]) -> (Vec<u8>, VecDeque<(usize, u8)>) {
        let (mut out, mut ends) = (Vec::new(), VecDeque::new());
        for (n, (length, tos)) in rows.iter().enumerate() {
            out.resize(out.len() + length, n as u8 + 1);
            ends.push_back((out.len(), *tos));
        }
        (out, ends)
    }

    #[test]
    fn datagrams_of_one_length_and_class_are_one_piece() {
        let of = |rows: &[(usize, u8)], segmentation| {
            let batch = Batch::of(&leaving(rows).1, 0, segmentation);
            (batch.count, batch.segment)
        };
        let rows = [(100, 1), (100, 1), (100, 1), (60, 1), (100, 1), (100, 2)];
        assert_eq!(of(&rows, true), (4, Some(100)), "the last may be shorter");
        assert_eq!(of(&rows, false), (5, None), "of one class");
        assert_eq!(of(&rows[3..], true), (2, None));
        assert_eq!(of(&[(104, 1), (100, 1), (100, 1)], true), (2, Some(104)));
        assert_eq!(of(&[(100, 1), (104, 1), (104, 1)], true), (1, None), "those behind the first are a piece");
        assert_eq!(of(&[(4112, 1); 40], true), (15, Some(4112)), "64 KiB at most");
        assert_eq!(of(&[(16, 1); 100], true), (BATCH, Some(16)));
        assert_eq!(of(&[(16, 1); 100], false), (BATCH, None));
        assert_eq!(of(&[(16, 1)], true), (1, None));
    }

    #[test]
    fn what_is_handed_over_in_batches_arrives_as_it_was() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        receiver.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = receiver.local_addr().unwrap();
        let rows: Vec<(usize, u8)> =
            [vec![(1060, 0)], vec![(1040, 0); 9], vec![(500, 0), (20, 0), (20, 0), (1044, 0), (16, 0)]].concat();
        for segmentation in [true, false] {
            let (out, mut ends) = leaving(&rows);
            let mut at = 0;
            while !ends.is_empty() {
                let count = Batch::of(&ends, at, segmentation).send(&sender, &out, to).unwrap();
                assert!(count > 0);
                for (end, _) in ends.drain(..count) {
                    let mut buffer = [0; 2048];
                    let length = receiver.recv(&mut buffer).unwrap();
                    assert_eq!(buffer[..length], out[at..end], "{segmentation}");
                    at = end;
                }
            }
        }
    }
    #[test]
    fn datagrams_are_taken_in_the_order_in_which_they_came_whoever_read_them() {
        use super::super::{cm, packet};
        use rdmascope_dissector::wire::ib::bth::Bth;
        use rdmascope_dissector::wire::ib::ext::aeth_bytes;
        let process = std::process::id();
        let address =
            Ipv4Addr::new(127, 32 | (process >> 16) as u8 & 0x1f, (process >> 8) as u8, process as u8 | 1).into();
        let (port, mailbox) = (UdpPort::open(address).unwrap(), Mailbox::new().unwrap());
        lock(&port.routes).queue_pairs.insert(0x11, mailbox.clone());
        lock(&port.routes).comm_ids.insert(0x22, mailbox.clone());
        let path = Path { local: address, remote: address, source_port: 0xc000 };
        let datagram = |number: u32| {
            let mut out = Vec::new();
            let managed = number.is_multiple_of(2);
            let (opcode, dest_qp) = if managed { (Opcode::UD_SEND_ONLY, QP1) } else { (Opcode::RC_ACKNOWLEDGE, 0x11) };
            let head = Bth::new(opcode, dest_qp, number);
            match managed {
                true => packet::emit(&path, head, &packet::DETH, &cm::ready(0x33, 0x22, 0), &mut out),
                false => packet::emit(&path, head, &aeth_bytes(0, 0), &[], &mut out),
            }
            out
        };
        let sender = UdpSocket::bind((address, 0)).unwrap();
        let mut taken = Vec::new();
        for number in 0..8 {
            sender.send_to(&datagram(number), (address, PORT)).unwrap();
            if number == 3 {
                // another thread reads these
                while lock(&mailbox.arrived).0.len() < 4 {
                    port.receive().unwrap();
                }
            }
        }
        while taken.len() < 8 {
            port.receive_for(Some(&mailbox), |_, _, bytes| taken.push(bytes.to_vec())).unwrap();
        }
        assert_eq!(taken, (0..8).map(datagram).collect::<Vec<_>>());
    }
}
