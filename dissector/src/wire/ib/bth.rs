//! The Base Transport Header, first in every InfiniBand transport packet. IBA volume 1, 9.2. Big-endian.
//!
//! The opcode determines the service, the operation, the packet's place in its message, and the extension headers that
//! follow: [`ROWS`] holds all that, one row an opcode.

use crate::field::Values;
use crate::trace::LayerText;
use core::fmt;

wire_enum! {
    /// The operation and its place in a message. The upper three bits are the service: RC 0, UC 1, RD 2, UD 3, XRC 5.
    pub enum Opcode: u8 {
        RC_SEND_FIRST = 0x00, "RC - SEND First";
        RC_SEND_MIDDLE = 0x01, "RC - SEND Middle";
        RC_SEND_LAST = 0x02, "RC - SEND Last";
        RC_SEND_LAST_IMMEDIATE = 0x03, "RC - SEND Last with Immediate";
        RC_SEND_ONLY = 0x04, "RC - SEND Only";
        RC_SEND_ONLY_IMMEDIATE = 0x05, "RC - SEND Only with Immediate";
        RC_RDMA_WRITE_FIRST = 0x06, "RC - RDMA WRITE First";
        RC_RDMA_WRITE_MIDDLE = 0x07, "RC - RDMA WRITE Middle";
        RC_RDMA_WRITE_LAST = 0x08, "RC - RDMA WRITE Last";
        RC_RDMA_WRITE_LAST_IMMEDIATE = 0x09, "RC - RDMA WRITE Last with Immediate";
        RC_RDMA_WRITE_ONLY = 0x0a, "RC - RDMA WRITE Only";
        RC_RDMA_WRITE_ONLY_IMMEDIATE = 0x0b, "RC - RDMA WRITE Only with Immediate";
        RC_RDMA_READ_REQUEST = 0x0c, "RC - RDMA READ Request";
        RC_RDMA_READ_RESPONSE_FIRST = 0x0d, "RC - RDMA READ response First";
        RC_RDMA_READ_RESPONSE_MIDDLE = 0x0e, "RC - RDMA READ response Middle";
        RC_RDMA_READ_RESPONSE_LAST = 0x0f, "RC - RDMA READ response Last";
        RC_RDMA_READ_RESPONSE_ONLY = 0x10, "RC - RDMA READ response Only";
        RC_ACKNOWLEDGE = 0x11, "RC - Acknowledge";
        RC_ATOMIC_ACKNOWLEDGE = 0x12, "RC - ATOMIC Acknowledge";
        RC_CMP_SWAP = 0x13, "RC - CmpSwap";
        RC_FETCH_ADD = 0x14, "RC - FetchAdd";
        RC_SEND_LAST_INVALIDATE = 0x16, "RC - SEND Last with Invalidate";
        RC_SEND_ONLY_INVALIDATE = 0x17, "RC - SEND Only with Invalidate";
        RC_FLUSH = 0x1c, "RC - FLUSH";
        RC_ATOMIC_WRITE = 0x1d, "RC - ATOMIC WRITE";
        UC_SEND_FIRST = 0x20, "UC - SEND First";
        UC_SEND_MIDDLE = 0x21, "UC - SEND Middle";
        UC_SEND_LAST = 0x22, "UC - SEND Last";
        UC_SEND_LAST_IMMEDIATE = 0x23, "UC - SEND Last with Immediate";
        UC_SEND_ONLY = 0x24, "UC - SEND Only";
        UC_SEND_ONLY_IMMEDIATE = 0x25, "UC - SEND Only with Immediate";
        UC_RDMA_WRITE_FIRST = 0x26, "UC - RDMA WRITE First";
        UC_RDMA_WRITE_MIDDLE = 0x27, "UC - RDMA WRITE Middle";
        UC_RDMA_WRITE_LAST = 0x28, "UC - RDMA WRITE Last";
        UC_RDMA_WRITE_LAST_IMMEDIATE = 0x29, "UC - RDMA WRITE Last with Immediate";
        UC_RDMA_WRITE_ONLY = 0x2a, "UC - RDMA WRITE Only";
        UC_RDMA_WRITE_ONLY_IMMEDIATE = 0x2b, "UC - RDMA WRITE Only with Immediate";
        RD_SEND_FIRST = 0x40, "RD - SEND First";
        RD_SEND_MIDDLE = 0x41, "RD - SEND Middle";
        RD_SEND_LAST = 0x42, "RD - SEND Last";
        RD_SEND_LAST_IMMEDIATE = 0x43, "RD - SEND Last with Immediate";
        RD_SEND_ONLY = 0x44, "RD - SEND Only";
        RD_SEND_ONLY_IMMEDIATE = 0x45, "RD - SEND Only with Immediate";
        RD_RDMA_WRITE_FIRST = 0x46, "RD - RDMA WRITE First";
        RD_RDMA_WRITE_MIDDLE = 0x47, "RD - RDMA WRITE Middle";
        RD_RDMA_WRITE_LAST = 0x48, "RD - RDMA WRITE Last";
        RD_RDMA_WRITE_LAST_IMMEDIATE = 0x49, "RD - RDMA WRITE Last with Immediate";
        RD_RDMA_WRITE_ONLY = 0x4a, "RD - RDMA WRITE Only";
        RD_RDMA_WRITE_ONLY_IMMEDIATE = 0x4b, "RD - RDMA WRITE Only with Immediate";
        RD_RDMA_READ_REQUEST = 0x4c, "RD - RDMA READ Request";
        RD_RDMA_READ_RESPONSE_FIRST = 0x4d, "RD - RDMA READ response First";
        RD_RDMA_READ_RESPONSE_MIDDLE = 0x4e, "RD - RDMA READ response Middle";
        RD_RDMA_READ_RESPONSE_LAST = 0x4f, "RD - RDMA READ response Last";
        RD_RDMA_READ_RESPONSE_ONLY = 0x50, "RD - RDMA READ response Only";
        RD_ACKNOWLEDGE = 0x51, "RD - Acknowledge";
        RD_ATOMIC_ACKNOWLEDGE = 0x52, "RD - ATOMIC Acknowledge";
        RD_CMP_SWAP = 0x53, "RD - CmpSwap";
        RD_FETCH_ADD = 0x54, "RD - FetchAdd";
        RD_RESYNC = 0x55, "RD - RESYNC";
        RD_FLUSH = 0x5c, "RD - FLUSH";
        RD_ATOMIC_WRITE = 0x5d, "RD - ATOMIC WRITE";
        UD_SEND_ONLY = 0x64, "UD - SEND only";
        UD_SEND_ONLY_IMMEDIATE = 0x65, "UD - SEND only with Immediate";
        CNP = 0x81, "CNP";
        XRC_SEND_FIRST = 0xa0, "XRC - SEND First";
        XRC_SEND_MIDDLE = 0xa1, "XRC - SEND Middle";
        XRC_SEND_LAST = 0xa2, "XRC - SEND Last";
        XRC_SEND_LAST_IMMEDIATE = 0xa3, "XRC - SEND Last with Immediate";
        XRC_SEND_ONLY = 0xa4, "XRC - SEND Only";
        XRC_SEND_ONLY_IMMEDIATE = 0xa5, "XRC - SEND Only with Immediate";
        XRC_RDMA_WRITE_FIRST = 0xa6, "XRC - RDMA WRITE First";
        XRC_RDMA_WRITE_MIDDLE = 0xa7, "XRC - RDMA WRITE Middle";
        XRC_RDMA_WRITE_LAST = 0xa8, "XRC - RDMA WRITE Last";
        XRC_RDMA_WRITE_LAST_IMMEDIATE = 0xa9, "XRC - RDMA WRITE Last with Immediate";
        XRC_RDMA_WRITE_ONLY = 0xaa, "XRC - RDMA WRITE Only";
        XRC_RDMA_WRITE_ONLY_IMMEDIATE = 0xab, "XRC - RDMA WRITE Only with Immediate";
        XRC_RDMA_READ_REQUEST = 0xac, "XRC - RDMA READ Request";
        XRC_RDMA_READ_RESPONSE_FIRST = 0xad, "XRC - RDMA READ response First";
        XRC_RDMA_READ_RESPONSE_MIDDLE = 0xae, "XRC - RDMA READ response Middle";
        XRC_RDMA_READ_RESPONSE_LAST = 0xaf, "XRC - RDMA READ response Last";
        XRC_RDMA_READ_RESPONSE_ONLY = 0xb0, "XRC - RDMA READ response Only";
        XRC_ACKNOWLEDGE = 0xb1, "XRC - Acknowledge";
        XRC_ATOMIC_ACKNOWLEDGE = 0xb2, "XRC - ATOMIC Acknowledge";
        XRC_CMP_SWAP = 0xb3, "XRC - CmpSwap";
        XRC_FETCH_ADD = 0xb4, "XRC - FetchAdd";
        XRC_SEND_LAST_INVALIDATE = 0xb6, "XRC - SEND Last with Invalidate";
        XRC_SEND_ONLY_INVALIDATE = 0xb7, "XRC - SEND Only with Invalidate";
        XRC_FLUSH = 0xbc, "XRC - FLUSH";
        XRC_ATOMIC_WRITE = 0xbd, "XRC - ATOMIC WRITE";
    }
}

const OPCODES: Values = Opcode::VALUES;

/// The partition that every port is a full member of unless it is configured otherwise (IBA volume 1, 10.9.1).
pub const DEFAULT_P_KEY: u16 = 0xffff;

/// Opcode, queue pair and sequence number for the frame's line.
pub(crate) fn write_line(header: &[u8; LayerText::LEN], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let [opcode, _, _, _, _, q2, q1, q0, _, p2, p1, p0, ..] = *header;
    match Opcode(opcode).row() {
        Some(row) => write!(f, "{row}")?,
        None => write!(f, "Unknown opcode {opcode:#04x}")?,
    }
    let [qp, psn] = [[0, q2, q1, q0], [0, p2, p1, p0]].map(u32::from_be_bytes);
    write!(f, " QP={qp:#08x} PSN={psn}")
}

header! {
    /// The Base Transport Header.
    pub struct Bth [NODE: Bytes = "infiniband.bth", "Base Transport Header", "IBA Vol 1, 9.2"] {
        opcode: u8 = "infiniband.bth.opcode", "Opcode", dec, values OPCODES;
        bits: u8 = "_", "Flags", hex, bits {
            se: bool & 0x80 = "infiniband.bth.se", "Solicited Event";
            m: bool & 0x40 = "infiniband.bth.m", "MigReq";
            padcnt: u8 & 0x30 = "infiniband.bth.padcnt", "Pad Count", dec;
            tver: u8 & 0x0f = "infiniband.bth.tver", "Header Version", dec;
        };
        p_key: be16 = "infiniband.bth.p_key", "Partition Key", dec;
        /// Not covered by the invariant CRC: forward and backward congestion notification are in it.
        resv8: u8 = "rdmascope.infiniband.bth.resv8", "Reserved", hex, bits {
            fecn: bool & 0x80 = "rdmascope.infiniband.bth.fecn", "Forward Congestion Notification";
            becn: bool & 0x40 = "rdmascope.infiniband.bth.becn", "Backward Congestion Notification";
        };
        /// 24 bits; 1 is the general services queue pair.
        dest_qp: be24 = "infiniband.bth.destqp", "Destination Queue Pair", hex;
        ack: u8 = "_", "Acknowledge", hex, bits {
            a: bool & 0x80 = "infiniband.bth.a", "Acknowledge Request";
            resv7: u8 & 0x7f = "infiniband.bth.reserved7", "Reserved (7 bits)", dec;
        };
        /// 24 bits, wraps.
        psn: be24 = "infiniband.bth.psn", "Packet Sequence Number", dec;
    }
}

/// The transport service of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Service {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Reliable datagram.
    Rd,
    /// Unreliable datagram.
    Ud,
    /// Extended reliable connection.
    Xrc,
    /// Congestion notification, of no queue pair's service.
    Congestion,
}

/// Operation of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Verb {
    Send,
    Write,
    ReadRequest,
    ReadResponse,
    Acknowledge,
    AtomicAck,
    CompareSwap,
    FetchAdd,
    /// Makes earlier Writes visible or durable (annex A19). Its answer is a Read Response without payload.
    Flush,
    /// Writes 8 bytes at once (annex A19). Its answer is a Read Response without payload.
    AtomicWrite,
    /// Reliable datagram only.
    Resync,
    /// Congestion notification packet (RoCEv2, annex A17.9).
    Cnp,
}

/// Place of a packet in its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Part {
    Only,
    First,
    Middle,
    Last,
}

/// The extension headers that follow the BTH: a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Headers(pub u16);

/// The members of [`Headers`].
#[allow(missing_docs)]
pub mod h {
    pub const NONE: u16 = 0;
    pub const RDETH: u16 = 0x0001;
    pub const DETH: u16 = 0x0002;
    pub const XRCETH: u16 = 0x0004;
    pub const RETH: u16 = 0x0008;
    pub const ATOMICETH: u16 = 0x0010;
    pub const AETH: u16 = 0x0020;
    pub const ATOMICACKETH: u16 = 0x0040;
    pub const IMMDT: u16 = 0x0080;
    pub const IETH: u16 = 0x0100;
    /// The 16 reserved bytes of a congestion notification packet.
    pub const CNP: u16 = 0x0200;
    /// Stands before the RETH.
    pub const FETH: u16 = 0x0400;
    /// Not a header: whether a payload may follow.
    pub const PAYLOAD: u16 = 0x8000;
}

impl Headers {
    /// True if `header`, of [`h`], is in the set.
    #[inline]
    pub const fn has(self, header: u16) -> bool {
        self.0 & header != 0
    }

    /// Length of all of them, in bytes.
    pub const fn length(self) -> usize {
        const LENGTHS: [usize; 11] = [4, 8, 4, 16, 28, 4, 8, 4, 4, 16, 4];
        let (mut sum, mut bit) = (0, 0);
        while bit < LENGTHS.len() {
            if self.0 >> bit & 1 != 0 {
                sum += LENGTHS[bit];
            }
            bit += 1;
        }
        sum
    }
}

/// Meaning of an opcode. Shown as `"RC RDMA Write Last with Immediate"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The opcode.
    pub opcode: Opcode,
    /// Transport service (RC, UC, RD, UD, XRC, CNP).
    pub service: Service,
    /// Operation that the packet belongs to.
    pub verb: Verb,
    /// Place in the message.
    pub part: Part,
    /// Extension headers behind the BTH.
    pub headers: Headers,
    /// Length of `headers`, in bytes.
    pub length: u8,
}

impl Row {
    /// True if the packet is the first of its message (or the only one).
    pub const fn is_first(&self) -> bool {
        matches!(self.part, Part::First | Part::Only)
    }

    /// True if the packet is the last of its message (or the only one).
    pub const fn is_last(&self) -> bool {
        matches!(self.part, Part::Last | Part::Only)
    }

    /// True if immediate data comes with it.
    pub const fn immediate(&self) -> bool {
        self.headers.has(h::IMMDT)
    }

    /// True if it invalidates a remote key.
    pub const fn invalidate(&self) -> bool {
        self.headers.has(h::IETH)
    }

    /// True if the requester sends it (the responder sends the others).
    pub const fn is_request(&self) -> bool {
        !matches!(self.verb, Verb::ReadResponse | Verb::Acknowledge | Verb::AtomicAck | Verb::Cnp)
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.service {
            Service::Rc => "RC ",
            Service::Uc => "UC ",
            Service::Rd => "RD ",
            Service::Ud => "UD ",
            Service::Xrc => "XRC ",
            Service::Congestion => "",
        })?;
        f.write_str(match self.verb {
            Verb::Send => "Send",
            Verb::Write => "RDMA Write",
            Verb::ReadRequest => "RDMA Read Request",
            Verb::ReadResponse => "RDMA Read Response",
            Verb::Acknowledge => "Acknowledge",
            Verb::AtomicAck => "Atomic Acknowledge",
            Verb::CompareSwap => "Compare and Swap",
            Verb::FetchAdd => "Fetch and Add",
            Verb::Flush => "Flush",
            Verb::AtomicWrite => "Atomic Write",
            Verb::Resync => "Resync",
            Verb::Cnp => "CNP",
        })?;
        if matches!(self.verb, Verb::Send | Verb::Write | Verb::ReadResponse) {
            f.write_str(match self.part {
                Part::Only => " Only",
                Part::First => " First",
                Part::Middle => " Middle",
                Part::Last => " Last",
            })?;
        }
        if self.immediate() {
            f.write_str(" with Immediate")?;
        }
        if self.invalidate() {
            f.write_str(" with Invalidate")?;
        }
        Ok(())
    }
}

const fn row(opcode: Opcode, service: Service, verb: Verb, part: Part, headers: u16) -> Row {
    let headers = Headers(headers);
    Row { opcode, service, verb, part, headers, length: headers.length() as u8 }
}

/// Every opcode there is, ascending: IBA volume 1, table 38; annexes A7, A14, A17, A19.
#[rustfmt::skip]
pub const ROWS: &[Row] = &[
    row(Opcode::RC_SEND_FIRST, Service::Rc, Verb::Send, Part::First, h::PAYLOAD),
    row(Opcode::RC_SEND_MIDDLE, Service::Rc, Verb::Send, Part::Middle, h::PAYLOAD),
    row(Opcode::RC_SEND_LAST, Service::Rc, Verb::Send, Part::Last, h::PAYLOAD),
    row(Opcode::RC_SEND_LAST_IMMEDIATE, Service::Rc, Verb::Send, Part::Last, h::IMMDT | h::PAYLOAD),
    row(Opcode::RC_SEND_ONLY, Service::Rc, Verb::Send, Part::Only, h::PAYLOAD),
    row(Opcode::RC_SEND_ONLY_IMMEDIATE, Service::Rc, Verb::Send, Part::Only, h::IMMDT | h::PAYLOAD),
    row(Opcode::RC_RDMA_WRITE_FIRST, Service::Rc, Verb::Write, Part::First, h::RETH | h::PAYLOAD),
    row(Opcode::RC_RDMA_WRITE_MIDDLE, Service::Rc, Verb::Write, Part::Middle, h::PAYLOAD),
    row(Opcode::RC_RDMA_WRITE_LAST, Service::Rc, Verb::Write, Part::Last, h::PAYLOAD),
    row(Opcode::RC_RDMA_WRITE_LAST_IMMEDIATE, Service::Rc, Verb::Write, Part::Last, h::IMMDT | h::PAYLOAD),
    row(Opcode::RC_RDMA_WRITE_ONLY, Service::Rc, Verb::Write, Part::Only, h::RETH | h::PAYLOAD),
    row(Opcode::RC_RDMA_WRITE_ONLY_IMMEDIATE, Service::Rc, Verb::Write, Part::Only, h::RETH | h::IMMDT | h::PAYLOAD),
    row(Opcode::RC_RDMA_READ_REQUEST, Service::Rc, Verb::ReadRequest, Part::Only, h::RETH),
    row(Opcode::RC_RDMA_READ_RESPONSE_FIRST, Service::Rc, Verb::ReadResponse, Part::First, h::AETH | h::PAYLOAD),
    row(Opcode::RC_RDMA_READ_RESPONSE_MIDDLE, Service::Rc, Verb::ReadResponse, Part::Middle, h::PAYLOAD),
    row(Opcode::RC_RDMA_READ_RESPONSE_LAST, Service::Rc, Verb::ReadResponse, Part::Last, h::AETH | h::PAYLOAD),
    row(Opcode::RC_RDMA_READ_RESPONSE_ONLY, Service::Rc, Verb::ReadResponse, Part::Only, h::AETH | h::PAYLOAD),
    row(Opcode::RC_ACKNOWLEDGE, Service::Rc, Verb::Acknowledge, Part::Only, h::AETH),
    row(Opcode::RC_ATOMIC_ACKNOWLEDGE, Service::Rc, Verb::AtomicAck, Part::Only, h::AETH | h::ATOMICACKETH),
    row(Opcode::RC_CMP_SWAP, Service::Rc, Verb::CompareSwap, Part::Only, h::ATOMICETH),
    row(Opcode::RC_FETCH_ADD, Service::Rc, Verb::FetchAdd, Part::Only, h::ATOMICETH),
    row(Opcode::RC_SEND_LAST_INVALIDATE, Service::Rc, Verb::Send, Part::Last, h::IETH | h::PAYLOAD),
    row(Opcode::RC_SEND_ONLY_INVALIDATE, Service::Rc, Verb::Send, Part::Only, h::IETH | h::PAYLOAD),
    row(Opcode::RC_FLUSH, Service::Rc, Verb::Flush, Part::Only, h::FETH | h::RETH),
    row(Opcode::RC_ATOMIC_WRITE, Service::Rc, Verb::AtomicWrite, Part::Only, h::RETH | h::PAYLOAD),
    row(Opcode::UC_SEND_FIRST, Service::Uc, Verb::Send, Part::First, h::PAYLOAD),
    row(Opcode::UC_SEND_MIDDLE, Service::Uc, Verb::Send, Part::Middle, h::PAYLOAD),
    row(Opcode::UC_SEND_LAST, Service::Uc, Verb::Send, Part::Last, h::PAYLOAD),
    row(Opcode::UC_SEND_LAST_IMMEDIATE, Service::Uc, Verb::Send, Part::Last, h::IMMDT | h::PAYLOAD),
    row(Opcode::UC_SEND_ONLY, Service::Uc, Verb::Send, Part::Only, h::PAYLOAD),
    row(Opcode::UC_SEND_ONLY_IMMEDIATE, Service::Uc, Verb::Send, Part::Only, h::IMMDT | h::PAYLOAD),
    row(Opcode::UC_RDMA_WRITE_FIRST, Service::Uc, Verb::Write, Part::First, h::RETH | h::PAYLOAD),
    row(Opcode::UC_RDMA_WRITE_MIDDLE, Service::Uc, Verb::Write, Part::Middle, h::PAYLOAD),
    row(Opcode::UC_RDMA_WRITE_LAST, Service::Uc, Verb::Write, Part::Last, h::PAYLOAD),
    row(Opcode::UC_RDMA_WRITE_LAST_IMMEDIATE, Service::Uc, Verb::Write, Part::Last, h::IMMDT | h::PAYLOAD),
    row(Opcode::UC_RDMA_WRITE_ONLY, Service::Uc, Verb::Write, Part::Only, h::RETH | h::PAYLOAD),
    row(Opcode::UC_RDMA_WRITE_ONLY_IMMEDIATE, Service::Uc, Verb::Write, Part::Only, h::RETH | h::IMMDT | h::PAYLOAD),
    row(Opcode::RD_SEND_FIRST, Service::Rd, Verb::Send, Part::First, h::RDETH | h::DETH | h::PAYLOAD),
    row(Opcode::RD_SEND_MIDDLE, Service::Rd, Verb::Send, Part::Middle, h::RDETH | h::DETH | h::PAYLOAD),
    row(Opcode::RD_SEND_LAST, Service::Rd, Verb::Send, Part::Last, h::RDETH | h::DETH | h::PAYLOAD),
    row(Opcode::RD_SEND_LAST_IMMEDIATE, Service::Rd, Verb::Send, Part::Last, h::RDETH | h::DETH | h::IMMDT | h::PAYLOAD),
    row(Opcode::RD_SEND_ONLY, Service::Rd, Verb::Send, Part::Only, h::RDETH | h::DETH | h::PAYLOAD),
    row(Opcode::RD_SEND_ONLY_IMMEDIATE, Service::Rd, Verb::Send, Part::Only, h::RDETH | h::DETH | h::IMMDT | h::PAYLOAD),
    row(Opcode::RD_RDMA_WRITE_FIRST, Service::Rd, Verb::Write, Part::First, h::RDETH | h::DETH | h::RETH | h::PAYLOAD),
    row(Opcode::RD_RDMA_WRITE_MIDDLE, Service::Rd, Verb::Write, Part::Middle, h::RDETH | h::DETH | h::PAYLOAD),
    row(Opcode::RD_RDMA_WRITE_LAST, Service::Rd, Verb::Write, Part::Last, h::RDETH | h::DETH | h::PAYLOAD),
    row(Opcode::RD_RDMA_WRITE_LAST_IMMEDIATE, Service::Rd, Verb::Write, Part::Last, h::RDETH | h::DETH | h::IMMDT | h::PAYLOAD),
    row(Opcode::RD_RDMA_WRITE_ONLY, Service::Rd, Verb::Write, Part::Only, h::RDETH | h::DETH | h::RETH | h::PAYLOAD),
    row(Opcode::RD_RDMA_WRITE_ONLY_IMMEDIATE, Service::Rd, Verb::Write, Part::Only, h::RDETH | h::DETH | h::RETH | h::IMMDT | h::PAYLOAD),
    row(Opcode::RD_RDMA_READ_REQUEST, Service::Rd, Verb::ReadRequest, Part::Only, h::RDETH | h::DETH | h::RETH),
    row(Opcode::RD_RDMA_READ_RESPONSE_FIRST, Service::Rd, Verb::ReadResponse, Part::First, h::RDETH | h::AETH | h::PAYLOAD),
    row(Opcode::RD_RDMA_READ_RESPONSE_MIDDLE, Service::Rd, Verb::ReadResponse, Part::Middle, h::RDETH | h::PAYLOAD),
    row(Opcode::RD_RDMA_READ_RESPONSE_LAST, Service::Rd, Verb::ReadResponse, Part::Last, h::RDETH | h::AETH | h::PAYLOAD),
    row(Opcode::RD_RDMA_READ_RESPONSE_ONLY, Service::Rd, Verb::ReadResponse, Part::Only, h::RDETH | h::AETH | h::PAYLOAD),
    row(Opcode::RD_ACKNOWLEDGE, Service::Rd, Verb::Acknowledge, Part::Only, h::RDETH | h::AETH),
    row(Opcode::RD_ATOMIC_ACKNOWLEDGE, Service::Rd, Verb::AtomicAck, Part::Only, h::RDETH | h::AETH | h::ATOMICACKETH),
    row(Opcode::RD_CMP_SWAP, Service::Rd, Verb::CompareSwap, Part::Only, h::RDETH | h::DETH | h::ATOMICETH),
    row(Opcode::RD_FETCH_ADD, Service::Rd, Verb::FetchAdd, Part::Only, h::RDETH | h::DETH | h::ATOMICETH),
    row(Opcode::RD_RESYNC, Service::Rd, Verb::Resync, Part::Only, h::RDETH | h::DETH),
    row(Opcode::RD_FLUSH, Service::Rd, Verb::Flush, Part::Only, h::RDETH | h::DETH | h::FETH | h::RETH),
    row(Opcode::RD_ATOMIC_WRITE, Service::Rd, Verb::AtomicWrite, Part::Only, h::RDETH | h::DETH | h::RETH | h::PAYLOAD),
    row(Opcode::UD_SEND_ONLY, Service::Ud, Verb::Send, Part::Only, h::DETH | h::PAYLOAD),
    row(Opcode::UD_SEND_ONLY_IMMEDIATE, Service::Ud, Verb::Send, Part::Only, h::DETH | h::IMMDT | h::PAYLOAD),
    row(Opcode::CNP, Service::Congestion, Verb::Cnp, Part::Only, h::CNP),
    row(Opcode::XRC_SEND_FIRST, Service::Xrc, Verb::Send, Part::First, h::XRCETH | h::PAYLOAD),
    row(Opcode::XRC_SEND_MIDDLE, Service::Xrc, Verb::Send, Part::Middle, h::XRCETH | h::PAYLOAD),
    row(Opcode::XRC_SEND_LAST, Service::Xrc, Verb::Send, Part::Last, h::XRCETH | h::PAYLOAD),
    row(Opcode::XRC_SEND_LAST_IMMEDIATE, Service::Xrc, Verb::Send, Part::Last, h::XRCETH | h::IMMDT | h::PAYLOAD),
    row(Opcode::XRC_SEND_ONLY, Service::Xrc, Verb::Send, Part::Only, h::XRCETH | h::PAYLOAD),
    row(Opcode::XRC_SEND_ONLY_IMMEDIATE, Service::Xrc, Verb::Send, Part::Only, h::XRCETH | h::IMMDT | h::PAYLOAD),
    row(Opcode::XRC_RDMA_WRITE_FIRST, Service::Xrc, Verb::Write, Part::First, h::XRCETH | h::RETH | h::PAYLOAD),
    row(Opcode::XRC_RDMA_WRITE_MIDDLE, Service::Xrc, Verb::Write, Part::Middle, h::XRCETH | h::PAYLOAD),
    row(Opcode::XRC_RDMA_WRITE_LAST, Service::Xrc, Verb::Write, Part::Last, h::XRCETH | h::PAYLOAD),
    row(Opcode::XRC_RDMA_WRITE_LAST_IMMEDIATE, Service::Xrc, Verb::Write, Part::Last, h::XRCETH | h::IMMDT | h::PAYLOAD),
    row(Opcode::XRC_RDMA_WRITE_ONLY, Service::Xrc, Verb::Write, Part::Only, h::XRCETH | h::RETH | h::PAYLOAD),
    row(Opcode::XRC_RDMA_WRITE_ONLY_IMMEDIATE, Service::Xrc, Verb::Write, Part::Only, h::XRCETH | h::RETH | h::IMMDT | h::PAYLOAD),
    row(Opcode::XRC_RDMA_READ_REQUEST, Service::Xrc, Verb::ReadRequest, Part::Only, h::XRCETH | h::RETH),
    row(Opcode::XRC_RDMA_READ_RESPONSE_FIRST, Service::Xrc, Verb::ReadResponse, Part::First, h::AETH | h::PAYLOAD),
    row(Opcode::XRC_RDMA_READ_RESPONSE_MIDDLE, Service::Xrc, Verb::ReadResponse, Part::Middle, h::PAYLOAD),
    row(Opcode::XRC_RDMA_READ_RESPONSE_LAST, Service::Xrc, Verb::ReadResponse, Part::Last, h::AETH | h::PAYLOAD),
    row(Opcode::XRC_RDMA_READ_RESPONSE_ONLY, Service::Xrc, Verb::ReadResponse, Part::Only, h::AETH | h::PAYLOAD),
    row(Opcode::XRC_ACKNOWLEDGE, Service::Xrc, Verb::Acknowledge, Part::Only, h::AETH),
    row(Opcode::XRC_ATOMIC_ACKNOWLEDGE, Service::Xrc, Verb::AtomicAck, Part::Only, h::AETH | h::ATOMICACKETH),
    row(Opcode::XRC_CMP_SWAP, Service::Xrc, Verb::CompareSwap, Part::Only, h::XRCETH | h::ATOMICETH),
    row(Opcode::XRC_FETCH_ADD, Service::Xrc, Verb::FetchAdd, Part::Only, h::XRCETH | h::ATOMICETH),
    row(Opcode::XRC_SEND_LAST_INVALIDATE, Service::Xrc, Verb::Send, Part::Last, h::XRCETH | h::IETH | h::PAYLOAD),
    row(Opcode::XRC_SEND_ONLY_INVALIDATE, Service::Xrc, Verb::Send, Part::Only, h::XRCETH | h::IETH | h::PAYLOAD),
    row(Opcode::XRC_FLUSH, Service::Xrc, Verb::Flush, Part::Only, h::XRCETH | h::FETH | h::RETH),
    row(Opcode::XRC_ATOMIC_WRITE, Service::Xrc, Verb::AtomicWrite, Part::Only, h::XRCETH | h::RETH | h::PAYLOAD),
];

static BY_OPCODE: [Option<Row>; 256] = {
    let mut table = [None; 256];
    let mut i = 0;
    while i < ROWS.len() {
        table[ROWS[i].opcode.0 as usize] = Some(ROWS[i]);
        i += 1;
    }
    table
};

impl Opcode {
    /// True if its upper three bits are of a connection, whose requests are numbered: also of an opcode without a row.
    pub const fn is_connected(self) -> bool {
        matches!(self.0 >> 5, 0 | 1 | 5)
    }

    /// Meaning of the opcode; `None` if it is reserved or vendor-specific.
    #[inline]
    pub fn row(self) -> Option<&'static Row> {
        BY_OPCODE[usize::from(self.0)].as_ref()
    }
}

impl Bth {
    /// A header in the default partition, without flags and padding. Queue pair and PSN have 24 bits.
    pub const fn new(opcode: Opcode, dest_qp: u32, psn: u32) -> Self {
        Self { opcode: opcode.0, bits: 0, p_key: DEFAULT_P_KEY, resv8: 0, dest_qp, ack: 0, psn }
    }

    /// The same header with the pad count that this payload needs: it fills up to a multiple of four bytes.
    #[must_use]
    pub const fn padded(self, payload: usize) -> Self {
        let pad = payload.next_multiple_of(4) - payload;
        Self { bits: self.bits & !0x30 | (pad as u8) << 4, ..self }
    }

    /// The opcode as its type.
    #[inline]
    pub const fn operation(&self) -> Opcode {
        Opcode(self.opcode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn every_named_opcode_has_one_row() {
        let rows: alloc::vec::Vec<u64> = ROWS.iter().map(|r| u64::from(r.opcode.0)).collect();
        let names: alloc::vec::Vec<u64> = Opcode::VALUES.iter().map(|v| v.0).collect();
        assert_eq!(rows, names);
        for row in ROWS {
            assert_eq!(row.opcode.row(), Some(row));
            let service = match row.service {
                Service::Rc => 0,
                Service::Uc => 1,
                Service::Rd => 2,
                Service::Ud => 3,
                Service::Congestion => 4,
                Service::Xrc => 5,
            };
            assert_eq!(row.opcode.0 >> 5, service, "{row}");
            assert_eq!(row.opcode.is_connected(), matches!(row.service, Service::Rc | Service::Uc | Service::Xrc));
        }
        assert!(Opcode(0x15).row().is_none() && Opcode(0xff).row().is_none());
    }

    #[test]
    fn a_header_has_the_padding_of_its_payload() {
        let mut out = alloc::vec::Vec::new();
        Bth { ack: 0x80, ..Bth::new(Opcode::RC_SEND_ONLY, 0x12, 0x0012_3456) }.padded(5).emit(&mut out);
        assert_eq!(out, [4, 0x30, 0xff, 0xff, 0, 0, 0, 0x12, 0x80, 0x12, 0x34, 0x56]);
        assert_eq!(
            [0, 1, 2, 3, 4].map(|n| Bth { bits: 0x60, ..Bth::new(Opcode::CNP, 0, 0) }.padded(n).bits),
            [0x40, 0x70, 0x60, 0x50, 0x40]
        );
    }

    #[test]
    fn rows_read_as_words() {
        assert_eq!(Opcode::RC_RDMA_WRITE_FIRST.row().unwrap().to_string(), "RC RDMA Write First");
        assert_eq!(Opcode::XRC_SEND_ONLY_INVALIDATE.row().unwrap().to_string(), "XRC Send Only with Invalidate");
        assert_eq!(Opcode::RC_ACKNOWLEDGE.row().unwrap().to_string(), "RC Acknowledge");
        assert_eq!(Opcode::CNP.row().unwrap().to_string(), "CNP");
        assert_eq!(Opcode::RC_FLUSH.row().unwrap().to_string(), "RC Flush");
        assert_eq!(Opcode::XRC_ATOMIC_WRITE.row().unwrap().to_string(), "XRC Atomic Write");
        assert_eq!(Opcode::RD_CMP_SWAP.row().unwrap().length, 4 + 8 + 28);
        assert_eq!(Opcode::RD_FLUSH.row().unwrap().length, 4 + 8 + 4 + 16);
        assert_eq!(Opcode::XRC_RDMA_READ_RESPONSE_ONLY.row().unwrap().length, 4);
    }
}
