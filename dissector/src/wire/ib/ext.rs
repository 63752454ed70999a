//! The extension headers that follow the BTH, by opcode. IBA volume 1, 9.3; XRCETH annex A14, FETH annex A19.
//! Big-endian.

use super::bth::{Headers, h};
use crate::fault::PResult;
use crate::leaf::read;
use crate::trace::{Trace, Value, scope};
use core::fmt;

header! {
    /// RDMA Extended Transport Header: which remote memory, and how much of it.
    pub struct Reth [NODE: Bytes = "infiniband.reth", "RDMA Extended Transport Header", "IBA Vol 1, 9.3.3"] {
        virtual_address: be64 = "infiniband.reth.va", "Virtual Address", hex;
        r_key: be32 = "infiniband.reth.r_key", "Remote Key", hex;
        /// In bytes.
        dma_length: be32 = "infiniband.reth.dmalen", "DMA Length", dechex;
    }
}

header! {
    /// FLUSH Extended Transport Header: how far the memory that the RETH names is flushed.
    pub struct Feth [NODE: Bytes = "infiniband.feth", "FLUSH Extended Transport Header", "IBA Vol 1, A19"] {
        bits: be32 = "_", "Flags", hex, bits {
            reserved27: u32 & 0xffffffe0 = "infiniband.feth.reserved27", "Reserved (27bits)", dec;
            /// The range of the RETH, or the whole memory region.
            sel: u8 & 0x18 = "infiniband.feth.sel", "Selectivity Level", dec;
            /// A bit each: visible to all, persistent.
            plt: u8 & 0x07 = "infiniband.feth.plt", "Placement Type", dec;
        };
    }
}

header! {
    /// Atomic Extended Transport Header: which remote word, and what to do to it.
    pub struct AtomicEth [NODE: Bytes = "infiniband.atomiceth", "Atomic Extended Transport Header", "IBA Vol 1, 9.3.4"] {
        virtual_address: be64 = "infiniband.reth.va", "Virtual Address", hex;
        r_key: be32 = "infiniband.reth.r_key", "Remote Key", hex;
        /// The value to swap in, or to add.
        swap_data: be64 = "infiniband.atomiceth.swapdt", "Swap (Or Add) Data", dec;
        compare_data: be64 = "infiniband.atomiceth.cmpdt", "Compare Data", dec;
    }
}

fields! {
    /// Extension headers whose fields Wireshark types wider than they are, or names by their value.
    pub mod f ["IBA Vol 1, 9.3"] {
        RDETH: Bytes = "infiniband.rdeth", "Reliable Datagram Extended Transport Header";
        RESERVED: Bytes as Keep = "infiniband.reserved", "Reserved";
        EECNXT: U24 = "infiniband.rdeth.eecnxt", "E2E Context", dec;
        DETH: Bytes = "infiniband.deth", "Datagram Extended Transport Header";
        Q_KEY: U64 = "infiniband.deth.q_key", "Queue Key", hex;
        SRCQP: U32 = "infiniband.deth.srcqp", "Source Queue Pair", hex;
        XRCETH: Bytes = "rdmascope.infiniband.xrceth", "XRC Extended Transport Header";
        XRCSRQ: U24 = "rdmascope.infiniband.xrceth.xrcsrq", "XRC Shared Receive Queue", hex;
        AETH: Bytes = "infiniband.aeth", "ACK Extended Transport Header";
        SYNDROME: U8 = "infiniband.aeth.syndrome", "Syndrome", dec;
        SYNDROME_RESERVED: U8 & 0x80 / 8 = "infiniband.aeth.syndrome.reserved", "Reserved", dec;
        SYNDROME_OPCODE: U8 & 0x60 / 8 = "infiniband.aeth.syndrome.opcode", "OpCode", dec, values &[(0, "Ack"), (1, "RNR Nak"), (2, "Reserved"), (3, "Nak")];
        CREDIT_COUNT: U8 & 0x1f / 8 = "infiniband.aeth.syndrome.credit_count", "Credit Count", dec, values CREDITS;
        TIMER: U8 & 0x1f / 8 = "infiniband.aeth.syndrome.timer", "Timer", dec, values TIMERS;
        RESERVED_VALUE: U8 & 0x1f / 8 = "infiniband.aeth.syndrome.reserved_value", "Reserved", dec;
        ERROR_CODE: U8 & 0x1f / 8 = "infiniband.aeth.syndrome.error_code", "Error Code", dec, values NakCode::VALUES;
        MSN: U24 = "infiniband.aeth.msn", "Message Sequence Number", dec;
        ATOMICACKETH: Bytes = "infiniband.atomicacketh", "Atomic ACK Extended Transport Header";
        ORIGREMDT: U64 = "infiniband.atomicacketh.origremdt", "Original Remote Data", dec;
        IMMDT: Bytes as Keep = "infiniband.immdt", "Immediate Data";
        IETH: Bytes as Keep = "infiniband.ieth", "RKey";
        CNP: Bytes = "rdmascope.infiniband.cnp", "Congestion Notification (reserved bytes)";
    }
}

wire_enum! {
    /// Reason of a refused request (IBA volume 1, 9.7.5.2.8).
    pub enum NakCode: u8 {
        PSN_SEQUENCE_ERROR = 0, "PSN Sequence Error";
        INVALID_REQUEST = 1, "Invalid Request";
        REMOTE_ACCESS_ERROR = 2, "Remote Access Error";
        REMOTE_OPERATIONAL_ERROR = 3, "Remote Operational Error";
        INVALID_RD_REQUEST = 4, "Invalid RD Request";
    }
}

/// Meaning of an AETH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syndrome {
    /// Positive; how many receive requests the responder has posted, `None` where it does not count them.
    Ack {
        /// End-to-end flow control credits.
        credits: Option<u16>,
    },
    /// The receiver was not ready: no receive request was posted. See [`rnr_timer`].
    RnrNak {
        /// The code of the time to wait.
        timer: u8,
    },
    /// Refused.
    Nak(NakCode),
    /// Reserved: the whole syndrome.
    Reserved(u8),
}

/// Credits for each code of a positive acknowledgment (IBA volume 1, table 47). Code 31 has none.
const CREDIT_CODES: [u16; 31] = [
    0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144,
    8192, 12288, 16384, 24576, 32768,
];

/// Time to wait after an RNR NAK, in microseconds, by code (IBA volume 1, table 45).
const TIMER_CODES: [u32; 32] = [
    655_360, 10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1280, 1920, 2560, 3840, 5120, 7680, 10_240,
    15_360, 20_480, 30_720, 40_960, 61_440, 81_920, 122_880, 163_840, 245_760, 327_680, 491_520,
];

#[rustfmt::skip]
const TIMERS: crate::field::Values = &[
    (0, "655.36 ms"), (1, "0.01 ms"), (2, "0.02 ms"), (3, "0.03 ms"), (4, "0.04 ms"), (5, "0.06 ms"), (6, "0.08 ms"), (7, "0.12 ms"),
    (8, "0.16 ms"), (9, "0.24 ms"), (10, "0.32 ms"), (11, "0.48 ms"), (12, "0.64 ms"), (13, "0.96 ms"), (14, "1.28 ms"), (15, "1.92 ms"),
    (16, "2.56 ms"), (17, "3.84 ms"), (18, "5.12 ms"), (19, "7.68 ms"), (20, "10.24 ms"), (21, "15.36 ms"), (22, "20.48 ms"), (23, "30.72 ms"),
    (24, "40.96 ms"), (25, "61.44 ms"), (26, "81.92 ms"), (27, "122.88 ms"), (28, "163.84 ms"), (29, "245.76 ms"), (30, "327.68 ms"), (31, "491.52 ms"),
];

#[rustfmt::skip]
const CREDITS: crate::field::Values = &[
    (0, "0 credits"), (1, "1 credit"), (2, "2 credits"), (3, "3 credits"), (4, "4 credits"), (5, "6 credits"), (6, "8 credits"), (7, "12 credits"),
    (8, "16 credits"), (9, "24 credits"), (10, "32 credits"), (11, "48 credits"), (12, "64 credits"), (13, "96 credits"), (14, "128 credits"),
    (15, "192 credits"), (16, "256 credits"), (17, "384 credits"), (18, "512 credits"), (19, "768 credits"), (20, "1024 credits"), (21, "1536 credits"),
    (22, "2048 credits"), (23, "3072 credits"), (24, "4096 credits"), (25, "6144 credits"), (26, "8192 credits"), (27, "12288 credits"),
    (28, "16384 credits"), (29, "24576 credits"), (30, "32768 credits"), (31, "not counted"),
];

/// Wait of a requester after an RNR NAK, in microseconds. `timer` is the code of 5 bits.
pub const fn rnr_timer(timer: u8) -> u32 {
    TIMER_CODES[(timer & 0x1f) as usize]
}

impl Syndrome {
    /// Takes the byte apart (IBA volume 1, 9.3.5).
    pub fn of(syndrome: u8) -> Self {
        let value = syndrome & 0x1f;
        match syndrome >> 5 & 0x03 {
            0 => Self::Ack { credits: CREDIT_CODES.get(usize::from(value)).copied() },
            1 => Self::RnrNak { timer: value },
            3 => Self::Nak(NakCode(value)),
            _ => Self::Reserved(syndrome),
        }
    }

    /// True if it is a positive acknowledgment.
    pub const fn is_ack(self) -> bool {
        matches!(self, Self::Ack { .. })
    }
}

impl fmt::Display for Syndrome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Ack { credits: Some(n) } => write!(f, "ACK {n} credits"),
            Self::Ack { credits: None } => f.write_str("ACK"),
            Self::RnrNak { timer } => {
                let us = rnr_timer(timer);
                write!(f, "RNR NAK, wait {}.{:02} ms", us / 1000, us % 1000 / 10)
            }
            Self::Nak(code) => match code.name() {
                Some(name) => write!(f, "NAK {name}"),
                None => write!(f, "NAK code {}", code.0),
            },
            Self::Reserved(v) => write!(f, "reserved syndrome {v:#04x}"),
        }
    }
}

/// The extension headers of one packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extensions {
    /// Of RDMA Writes and Read Requests, Flush and Atomic Write.
    pub reth: Option<Reth>,
    /// ACK extended transport header: syndrome in the upper 8 bits, MSN in the lower 24. See [`Extensions::syndrome`].
    pub aeth: Option<u32>,
    /// Immediate data.
    pub immediate: Option<u32>,
    /// The R_Key to invalidate.
    pub invalidate: Option<u32>,
    /// Datagram: Q_Key and source queue pair.
    pub datagram: Option<(u32, u32)>,
    /// XRC: the shared receive queue.
    pub xrc_srq: Option<u32>,
    /// Reliable datagram: the end-to-end context.
    pub ee_context: Option<u32>,
    /// Of Compare and Swap, Fetch and Add.
    pub atomic: Option<AtomicEth>,
    /// Previous value of the remote word, in an atomic acknowledgment.
    pub atomic_ack: Option<u64>,
}

impl Extensions {
    /// Syndrome of the AETH, if there is one.
    pub fn syndrome(&self) -> Option<Syndrome> {
        self.aeth.map(|aeth| Syndrome::of((aeth >> 24) as u8))
    }

    /// The message sequence number of the AETH, where there is one.
    pub fn msn(&self) -> Option<u32> {
        self.aeth.map(|aeth| aeth & 0x00ff_ffff)
    }
}

/// Syndrome of an acknowledgment that counts no credits.
pub const ACK: u8 = 0x1f;
/// Syndrome of an RNR NAK; the lower 5 bits are the code of its [time to wait](rnr_timer).
pub const RNR_NAK: u8 = 0x20;
/// Syndrome of a NAK; the lower 5 bits are its [`NakCode`].
pub const NAK: u8 = 0x60;

/// Bytes of an ACK extended transport header. The message sequence number has 24 bits.
pub const fn aeth_bytes(syndrome: u8, msn: u32) -> [u8; 4] {
    ((syndrome as u32) << 24 | msn & 0x00ff_ffff).to_be_bytes()
}

/// Bytes of a datagram extended transport header. The queue pair has 24 bits.
pub const fn deth_bytes(q_key: u32, source_qp: u32) -> [u8; 8] {
    ((q_key as u64) << 32 | (source_qp & 0x00ff_ffff) as u64).to_be_bytes()
}

/// Decodes the extension headers in `headers`, in the order in which they follow one another.
#[inline]
pub fn parse<'a, T: Trace>(headers: Headers, mut i: &'a [u8], t: &mut T, ext: &mut Extensions) -> PResult<'a, ()> {
    if headers.0 & !h::PAYLOAD == 0 {
        return Ok((i, ()));
    }
    if headers.0 & (h::RDETH | h::DETH | h::XRCETH | h::FETH) != 0 {
        (i, ()) = parse_first(headers, i, t, ext)?;
    }
    if headers.has(h::RETH) {
        (i, ext.reth) = Reth::parse(i, t).map(some)?;
    }
    if headers.has(h::ATOMICETH) {
        (i, ext.atomic) = AtomicEth::parse(i, t).map(some)?;
    }
    if headers.has(h::AETH) {
        (i, ext.aeth) = scope(f::AETH, i, t, aeth).map(some)?;
    }
    if headers.0 & (h::ATOMICACKETH | h::IMMDT | h::IETH | h::CNP) != 0 {
        (i, ()) = parse_last(headers, i, t, ext)?;
    }
    Ok((i, ()))
}

/// The rare ones that stand before all others.
fn parse_first<'a, T: Trace>(headers: Headers, mut i: &'a [u8], t: &mut T, ext: &mut Extensions) -> PResult<'a, ()> {
    if headers.has(h::RDETH) {
        (i, ext.ee_context) = scope(f::RDETH, i, t, |i, t| reserved_and_24(f::EECNXT, i, t)).map(some)?;
    }
    if headers.has(h::DETH) {
        (i, ext.datagram) = scope(f::DETH, i, t, |i, t| {
            let (i, q_key) = read::be32(f::Q_KEY, i, t)?;
            let (i, qp) = reserved_and_24(f::SRCQP, i, t)?;
            Ok((i, (q_key, qp)))
        })
        .map(some)?;
    }
    if headers.has(h::XRCETH) {
        (i, ext.xrc_srq) = scope(f::XRCETH, i, t, |i, t| reserved_and_24(f::XRCSRQ, i, t)).map(some)?;
    }
    if headers.has(h::FETH) {
        (i, _) = Feth::parse(i, t)?;
    }
    Ok((i, ()))
}

/// The rare ones that stand behind all others.
fn parse_last<'a, T: Trace>(headers: Headers, mut i: &'a [u8], t: &mut T, ext: &mut Extensions) -> PResult<'a, ()> {
    if headers.has(h::ATOMICACKETH) {
        (i, ext.atomic_ack) = scope(f::ATOMICACKETH, i, t, |i, t| read::be64(f::ORIGREMDT, i, t)).map(some)?;
    }
    if headers.has(h::IMMDT) {
        (i, ext.immediate) = read::array::<4, T>(f::IMMDT, i, t).map(|(i, v)| (i, Some(u32::from_be_bytes(v))))?;
    }
    if headers.has(h::IETH) {
        (i, ext.invalidate) = read::array::<4, T>(f::IETH, i, t).map(|(i, v)| (i, Some(u32::from_be_bytes(v))))?;
    }
    if headers.has(h::CNP) {
        (i, _) = read::array::<16, T>(f::CNP, i, t)?;
    }
    Ok((i, ()))
}

#[inline(always)]
fn some<O>((i, v): (&[u8], O)) -> (&[u8], Option<O>) {
    (i, Some(v))
}

#[inline]
fn reserved_and_24<'a, T: Trace>(def: crate::field::Def, i: &'a [u8], t: &mut T) -> PResult<'a, u32> {
    let (i, _) = read::array::<1, T>(f::RESERVED, i, t)?;
    read::be24(def, i, t)
}

#[inline]
fn aeth<'a, T: Trace>(i: &'a [u8], t: &mut T) -> PResult<'a, u32> {
    let (rest, syndrome) = read::u8(f::SYNDROME, i, t)?;
    if T::ON {
        t.down();
        t.field(f::SYNDROME_RESERVED, i, 1, Value::U(u64::from(syndrome >> 7)));
        t.field(f::SYNDROME_OPCODE, i, 1, Value::U(u64::from(syndrome >> 5 & 3)));
        let by_code = [f::CREDIT_COUNT, f::TIMER, f::RESERVED_VALUE, f::ERROR_CODE];
        t.field(by_code[usize::from(syndrome >> 5 & 3)], i, 1, Value::U(u64::from(syndrome & 0x1f)));
        t.up();
    }
    let (rest, msn) = read::be24(f::MSN, rest, t)?;
    if T::ON {
        t.label(format_args!(" ({})", Syndrome::of(syndrome)));
    }
    Ok((rest, u32::from(syndrome) << 24 | msn))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Off, Tree};
    use crate::wire::ib::bth::{Opcode, ROWS};
    use alloc::string::ToString;
    use alloc::vec::Vec;

    #[test]
    fn every_opcode_s_headers_decode_and_every_prefix_faults() {
        let bytes: Vec<u8> = (1..=80).collect();
        for row in ROWS {
            let mut ext = Extensions::default();
            let (rest, ()) = parse(row.headers, &bytes, &mut Off, &mut ext).unwrap();
            assert_eq!(bytes.len() - rest.len(), usize::from(row.length), "{row}");
            assert_eq!(row.headers.length(), usize::from(row.length));
            for n in 0..usize::from(row.length) {
                let mut tree = Tree::new();
                tree.begin(&bytes[..n]);
                let mut ext = Extensions::default();
                assert!(parse(row.headers, &bytes[..n], &mut tree, &mut ext).is_err(), "{row} of {n} bytes");
                assert!(tree.nodes.iter().all(|node| (node.offset + node.len) as usize <= n));
            }
        }
    }

    #[test]
    fn headers_stand_in_the_order_of_the_specification() {
        let bytes: Vec<u8> = (1..=80).collect();
        let mut ext = Extensions::default();
        parse(Opcode::RD_CMP_SWAP.row().unwrap().headers, &bytes, &mut Off, &mut ext).unwrap();
        assert_eq!(ext.ee_context, Some(0x020304));
        assert_eq!(ext.datagram, Some((0x05060708, 0x0a0b0c)));
        let atomic = ext.atomic.unwrap();
        assert_eq!((atomic.virtual_address, atomic.r_key), (0x0d0e0f1011121314, 0x15161718));
        assert_eq!((atomic.swap_data, atomic.compare_data), (0x191a1b1c1d1e1f20, 0x2122232425262728));

        let mut ext = Extensions::default();
        parse(Opcode::XRC_RDMA_WRITE_ONLY_IMMEDIATE.row().unwrap().headers, &bytes, &mut Off, &mut ext).unwrap();
        assert_eq!(ext.xrc_srq, Some(0x020304));
        assert_eq!(
            ext.reth,
            Some(Reth { virtual_address: 0x05060708090a0b0c, r_key: 0x0d0e0f10, dma_length: 0x11121314 })
        );
        assert_eq!(ext.immediate, Some(0x15161718));

        let mut ext = Extensions::default();
        parse(Opcode::RC_ATOMIC_ACKNOWLEDGE.row().unwrap().headers, &bytes, &mut Off, &mut ext).unwrap();
        assert_eq!((ext.aeth, ext.atomic_ack, ext.msn()), (Some(0x01020304), Some(0x05060708090a0b0c), Some(0x020304)));
    }

    #[test]
    fn a_flush_has_its_header_before_the_memory() {
        let bytes = [[0, 0, 0, 0x0a].as_slice(), &[1; 8], &[2; 4], &[3; 4]].concat();
        let (mut ext, mut tree) = (Extensions::default(), Tree::new());
        tree.begin(&bytes);
        parse(Opcode::RC_FLUSH.row().unwrap().headers, &bytes, &mut tree, &mut ext).unwrap();
        assert_eq!(ext.reth.map(|reth| (reth.r_key, reth.dma_length)), Some((0x0202_0202, 0x0303_0303)));
        let number = |name| tree.number(name);
        assert_eq!((number("infiniband.feth.sel"), number("infiniband.feth.plt")), (Some(1), Some(2)));
    }

    #[test]
    fn what_is_encoded_decodes() {
        let mut ext = Extensions::default();
        parse(Headers(h::AETH), &aeth_bytes(NAK | NakCode::REMOTE_ACCESS_ERROR.0, 0x0102_0304), &mut Off, &mut ext)
            .unwrap();
        assert_eq!((ext.syndrome(), ext.msn()), (Some(Syndrome::Nak(NakCode::REMOTE_ACCESS_ERROR)), Some(0x02_0304)));
        parse(Headers(h::DETH), &deth_bytes(0x8001_0000, 0x0102_0304), &mut Off, &mut ext).unwrap();
        assert_eq!(ext.datagram, Some((0x8001_0000, 0x02_0304)));
        assert_eq!(Syndrome::of(ACK), Syndrome::Ack { credits: None });
        assert_eq!(Syndrome::of(RNR_NAK | 14), Syndrome::RnrNak { timer: 14 });
    }

    #[test]
    fn syndromes_have_their_meaning() {
        assert_eq!(Syndrome::of(0x1f), Syndrome::Ack { credits: None });
        assert_eq!(Syndrome::of(0x05), Syndrome::Ack { credits: Some(6) });
        assert_eq!(Syndrome::of(0x1e), Syndrome::Ack { credits: Some(32768) });
        assert_eq!(Syndrome::of(0x60), Syndrome::Nak(NakCode::PSN_SEQUENCE_ERROR));
        assert_eq!(Syndrome::of(0x62).to_string(), "NAK Remote Access Error");
        assert_eq!(Syndrome::of(0x7f).to_string(), "NAK code 31");
        assert_eq!(Syndrome::of(0x2e).to_string(), "RNR NAK, wait 1.28 ms");
        assert_eq!(Syndrome::of(0x20).to_string(), "RNR NAK, wait 655.36 ms");
        assert_eq!(Syndrome::of(0x40), Syndrome::Reserved(0x40));
        for code in 0..32u8 {
            let us = rnr_timer(code);
            let text = std::format!("{}.{:02} ms", us / 1000, us % 1000 / 10);
            assert_eq!(f::TIMER.value_name(u64::from(code)), Some(text.as_str()));
            if let Syndrome::Ack { credits: Some(n) } = Syndrome::of(code) {
                let text = f::CREDIT_COUNT.value_name(u64::from(code)).unwrap();
                assert_eq!(text.split(' ').next(), Some(n.to_string().as_str()));
            }
        }
    }
}
