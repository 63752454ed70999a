//! What went over our own connection, kept as a capture: the bytes of the stream in TCP segments made up around them.

use rdmascope_capture::{Interface, PcapngWriter, Record, Section};
use rdmascope_dissector::frame::LinkType;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Bytes of the stream in one frame at most.
const SEGMENT: usize = 16_384;
const FLAG_FIN: u8 = 0x01;
const FLAG_SYN: u8 = 0x02;
const FLAG_PSH: u8 = 0x08;
const FLAG_ACK: u8 = 0x10;

/// Writes one connection as pcapng.
pub struct Recorder {
    writer: PcapngWriter<Box<dyn Write + Send>>,
    /// Ours and the peer's.
    addresses: [([u8; 4], u16); 2],
    sequence: [u32; 2],
    failed: Option<rdmascope_capture::Error>,
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Recorder({:?})", self.addresses)
    }
}

/// IPv6 is told by its last four bytes: the frames are made up anyway.
fn v4(address: SocketAddr) -> ([u8; 4], u16) {
    let ip = match address.ip() {
        IpAddr::V4(ip) => ip,
        IpAddr::V6(ip) => ip.to_ipv4().unwrap_or_else(|| {
            let o = ip.octets();
            Ipv4Addr::new(10, o[13], o[14], o[15])
        }),
    };
    (ip.octets(), address.port())
}

impl Recorder {
    /// A capture of a connection between us and the peer, with the three frames that open it at `now` (ns since 1970). `we_connected`
    /// says who began.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn new(
        output: Box<dyn Write + Send>,
        name: &str,
        us: SocketAddr,
        peer: SocketAddr,
        we_connected: bool,
        now: i64,
    ) -> Result<Self, rdmascope_capture::Error> {
        let section = Section { application: Some("rdmascope".into()), ..Section::default() };
        let mut writer = PcapngWriter::new(output, name, &section)?;
        writer.add_interface(&Interface::new(LinkType::ETHERNET))?;
        let mut recorder = Self { writer, addresses: [v4(us), v4(peer)], sequence: [1000, 2000], failed: None };
        let client = usize::from(!we_connected);
        recorder.frame(now, client, FLAG_SYN, &[]);
        recorder.sequence[client] += 1;
        recorder.frame(now, 1 - client, FLAG_SYN | FLAG_ACK, &[]);
        recorder.sequence[1 - client] += 1;
        recorder.frame(now, client, FLAG_ACK, &[]);
        Ok(recorder)
    }

    /// Bytes that we sent.
    pub fn sent(&mut self, now: i64, bytes: &[u8]) {
        self.stream(now, 0, bytes);
    }

    /// Bytes that came.
    pub fn received(&mut self, now: i64, bytes: &[u8]) {
        self.stream(now, 1, bytes);
    }

    /// One end (ours or the peer's) closed its direction.
    pub fn closed(&mut self, now: i64, by_us: bool) {
        self.frame(now, usize::from(!by_us), FLAG_FIN | FLAG_ACK, &[]);
    }

    /// Writes what is buffered.
    ///
    /// # Errors
    /// The first that happened while writing.
    pub fn finish(self) -> Result<(), rdmascope_capture::Error> {
        match self.failed {
            Some(e) => Err(e),
            None => self.writer.finish().map(|_| ()),
        }
    }

    fn stream(&mut self, now: i64, from: usize, bytes: &[u8]) {
        for piece in bytes.chunks(SEGMENT) {
            self.frame(now, from, FLAG_PSH | FLAG_ACK, piece);
            self.sequence[from] = self.sequence[from].wrapping_add(piece.len() as u32);
        }
    }

    fn frame(&mut self, now: i64, from: usize, flags: u8, payload: &[u8]) {
        let ((src, src_port), (dst, dst_port)) = (self.addresses[from], self.addresses[1 - from]);
        let mut tcp = Vec::with_capacity(20 + payload.len());
        tcp.extend_from_slice(&src_port.to_be_bytes());
        tcp.extend_from_slice(&dst_port.to_be_bytes());
        tcp.extend_from_slice(&self.sequence[from].to_be_bytes());
        let ack = if flags & FLAG_ACK == 0 { 0 } else { self.sequence[1 - from] };
        tcp.extend_from_slice(&ack.to_be_bytes());
        tcp.extend_from_slice(&[0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
        tcp.extend_from_slice(payload);
        let pseudo = [&src[..], &dst, &[0, 6], &(tcp.len() as u16).to_be_bytes()].concat();
        let sum = checksum(&[&pseudo, &tcp]);
        tcp[16..18].copy_from_slice(&sum.to_be_bytes());
        let mut frame = Vec::with_capacity(34 + tcp.len());
        let mac = |end: usize| [2, 0, 0, 0, 0, end as u8 + 1];
        frame.extend_from_slice(&mac(1 - from));
        frame.extend_from_slice(&mac(from));
        frame.extend_from_slice(&[8, 0]);
        let mut ip = [0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        ip[2..4].copy_from_slice(&((20 + tcp.len()) as u16).to_be_bytes());
        ip[12..16].copy_from_slice(&src);
        ip[16..20].copy_from_slice(&dst);
        let sum = checksum(&[&ip]);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        frame.extend_from_slice(&ip);
        frame.extend_from_slice(&tcp);
        let record = Record::new(now, 0, LinkType::ETHERNET, frame.len() as u32, &frame);
        if self.failed.is_none()
            && let Err(e) = self.writer.write(&record)
        {
            self.failed = Some(e);
        }
    }
}

/// RFC 1071; the parts are of even length, but for the last.
fn checksum(parts: &[&[u8]]) -> u16 {
    let mut sum = 0u32;
    for part in parts {
        for pair in part.chunks(2) {
            sum += u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |b| u32::from(*b));
        }
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
