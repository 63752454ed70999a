//! Recording of our own connections in a capture: the file, and the frames that transports construct from their data.
//! The description of each interface in the file says which parts are constructed.

use rdmascope_capture::{Error, Interface, PcapngWriter, Record, Section};
use rdmascope_dissector::frame::LinkType;
use rdmascope_dissector::wire::ip::{UDP, checksum};
use std::fmt;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A capture file that connections write to, several at a time if there are several. Copies refer to the same file.
#[derive(Clone)]
pub struct Wire(Arc<Mutex<File>>);

struct File {
    writer: PcapngWriter<Box<dyn Write + Send>>,
    /// The names of those that were described.
    interfaces: Vec<String>,
    connections: u32,
    /// The first that happened while writing.
    failed: Option<Error>,
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Wire({} connections)", self.lock().connections)
    }
}

impl Wire {
    /// Begins a file of this name.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn new(output: Box<dyn Write + Send>, name: &str) -> Result<Self, Error> {
        let section = Section { application: Some("rdmascope".into()), ..Section::default() };
        let writer = PcapngWriter::new(output, name, &section)?;
        Ok(Self(Arc::new(Mutex::new(File { writer, interfaces: Vec::new(), connections: 0, failed: None }))))
    }

    /// Hands all that there is to the operating system.
    ///
    /// # Errors
    /// The first that happened since this was called last.
    pub fn flush(&self) -> io::Result<()> {
        let file = &mut *self.lock();
        match file.failed.take() {
            Some(e) => Err(io::Error::other(e)),
            None => file.writer.flush().map_err(io::Error::other),
        }
    }

    /// The same without a report.
    pub(crate) fn push(&self) {
        let file = &mut *self.lock();
        let done = file.writer.flush();
        file.note(done);
    }

    /// The interface of this name, which is described if it is new; and the number of a new connection on it.
    pub(crate) fn open(&self, name: &str, description: &str) -> (u32, u32) {
        let file = &mut *self.lock();
        file.connections += 1;
        let known = file.interfaces.iter().position(|known| known == name);
        let index = known.unwrap_or_else(|| {
            let (name, description) = (Some(name.to_owned()), Some(description.to_owned()));
            let done = file.writer.add_interface(&Interface {
                name: name.clone(),
                description,
                ..Interface::new(LinkType::ETHERNET)
            });
            file.note(done);
            file.interfaces.extend(name);
            file.interfaces.len() - 1
        });
        (index as u32, file.connections)
    }

    /// A frame at `now`, in ns since 1970.
    pub(crate) fn frame(&self, interface: u32, now: i64, bytes: &[u8], comments: &[&str]) {
        let file = &mut *self.lock();
        let record = Record::new(now, interface, LinkType::ETHERNET, bytes.len() as u32, bytes);
        let done = file.writer.write_with_comments(&record, comments);
        file.note(done);
    }

    fn lock(&self) -> MutexGuard<'_, File> {
        // a thread that panicked left only whole blocks: each is written at once
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl File {
    fn note<T>(&mut self, done: Result<T, Error>) {
        if let Err(e) = done {
            self.failed.get_or_insert(e);
        }
    }
}

/// Ours and the peer's address, both of one family.
pub(crate) fn addresses(us: SocketAddr, peer: SocketAddr) -> [(IpAddr, u16); 2] {
    let ends = [us, peer].map(|end| (end.ip().to_canonical(), end.port()));
    if ends[0].0.is_ipv4() == ends[1].0.is_ipv4() {
        return ends;
    }
    ends.map(|(ip, port)| match ip {
        IpAddr::V4(ip) => (ip.to_ipv6_mapped().into(), port),
        v6 => (v6, port),
    })
}

/// Bytes of Ethernet before the IP header.
pub(crate) const ETHERNET: usize = 14;

/// Fields of an IP header besides addresses and protocol.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ip {
    /// Identification, of IPv4.
    pub(crate) id: u16,
    /// Type of service, or traffic class.
    pub(crate) tos: u8,
    /// Time to live, or hop limit.
    pub(crate) ttl: u8,
    /// Routers may fragment the packet, of IPv4.
    pub(crate) fragmentable: bool,
}

impl Default for Ip {
    fn default() -> Self {
        Self { id: 0, tos: 0, ttl: 64, fragmentable: false }
    }
}

/// An Ethernet frame with an IP packet of `protocol`; `from` is 0 for us and 1 for the peer, whose addresses have one
/// family. The addresses of Ethernet are made up.
pub(crate) fn frame(ends: &[(IpAddr, u16); 2], from: usize, protocol: u8, id: u16, payload: &[u8]) -> Vec<u8> {
    frame_with(ends, from, protocol, Ip { id, ..Ip::default() }, payload)
}

/// The same with more of the IP header.
pub(crate) fn frame_with(ends: &[(IpAddr, u16); 2], from: usize, protocol: u8, ip: Ip, payload: &[u8]) -> Vec<u8> {
    let Ip { id, tos, ttl, fragmentable } = ip;
    let mut frame = Vec::with_capacity(ETHERNET + 40 + payload.len());
    let mac = |end: usize| [2, 0, 0, 0, 0, end as u8 + 1];
    frame.extend_from_slice(&mac(1 - from));
    frame.extend_from_slice(&mac(from));
    match (ends[from].0, ends[1 - from].0) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let [length_high, length_low] = ((20 + payload.len()) as u16).to_be_bytes();
            let [id_high, id_low] = id.to_be_bytes();
            let flags = if fragmentable { 0 } else { 0x40 };
            let mut ip = [
                0x45,
                tos,
                length_high,
                length_low,
                id_high,
                id_low,
                flags,
                0,
                ttl,
                protocol,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
            ];
            ip[12..16].copy_from_slice(&src.octets());
            ip[16..20].copy_from_slice(&dst.octets());
            let sum = checksum(&[&ip]);
            ip[10..12].copy_from_slice(&sum);
            frame.extend_from_slice(&[8, 0]);
            frame.extend_from_slice(&ip);
        }
        (src, dst) => {
            frame.extend_from_slice(&[0x86, 0xdd, 0x60 | tos >> 4, tos << 4, 0, 0]);
            frame.extend_from_slice(&(payload.len() as u16).to_be_bytes());
            frame.extend_from_slice(&[protocol, ttl]);
            frame.extend_from_slice(&octets(src));
            frame.extend_from_slice(&octets(dst));
        }
    }
    frame.extend_from_slice(payload);
    frame
}

/// As IPv6 has it; an IPv4 address is mapped.
pub(crate) fn octets(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

/// The checksum of a segment or datagram of `protocol`, with the pseudo header of its family.
pub(crate) fn transport_checksum(ends: &[(IpAddr, u16); 2], from: usize, protocol: u8, segment: &[u8]) -> [u8; 2] {
    let length = (segment.len() as u32).to_be_bytes();
    let tail = [&length[..], &[0, 0, 0, protocol]].concat();
    match (ends[from].0, ends[1 - from].0) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => checksum(&[&src.octets(), &dst.octets(), &tail, segment]),
        (src, dst) => checksum(&[&octets(src), &octets(dst), &tail, segment]),
    }
}

/// The checksum of a UDP datagram; one of 0 is sent as 0xffff, as 0 means none.
pub(crate) fn udp_checksum(ends: &[(IpAddr, u16); 2], from: usize, datagram: &[u8]) -> [u8; 2] {
    match transport_checksum(ends, from, UDP, datagram) {
        [0, 0] => [0xff; 2],
        sum => sum,
    }
}
