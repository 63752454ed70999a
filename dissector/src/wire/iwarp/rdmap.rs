//! RDMAP, Remote Direct Memory Access Protocol: RFC 5040; immediate data and atomics: RFC 7306. Big-endian. It has no
//! header of its own: its control byte and the STag to invalidate stand in what DDP reserves for it.
//!
//! | message | opcode | DDP | behind the header |
//! | --- | --- | --- | --- |
//! | Write | 0 | tagged, sink | data |
//! | Read Request | 1 | queue 1 | [`ReadRequest`] |
//! | Read Response | 2 | tagged, sink of the request | data |
//! | Send, with Invalidate, with Solicited Event, both | 3–6 | queue 0 | data |
//! | Terminate | 7 | queue 2 | [`Terminate`] |
//! | Immediate Data, with Solicited Event | 8, 9 | queue 0 | 8 bytes |
//! | Atomic Request, Response | 10, 11 | queues 1, 3 | [`AtomicRequest`], [`AtomicResponse`] |

use super::ddp::{self, Buffer, Ddp};
use crate::fault::PResult;
use crate::field::FieldSet;
use crate::leaf::read;
use crate::trace::{Trace, Value, scope};
use alloc::vec::Vec;
use core::fmt;

wire_enum! {
    /// Operation of a segment.
    pub enum Opcode: u8 {
        WRITE = 0x0, "Write";
        READ_REQUEST = 0x1, "Read Request";
        READ_RESPONSE = 0x2, "Read Response";
        SEND = 0x3, "Send";
        SEND_INVALIDATE = 0x4, "Send with Invalidate";
        SEND_SE = 0x5, "Send with SE";
        SEND_SE_INVALIDATE = 0x6, "Send with SE and Invalidate";
        TERMINATE = 0x7, "Terminate";
        IMMEDIATE = 0x8, "Immediate Data";
        IMMEDIATE_SE = 0x9, "Immediate Data with SE";
        ATOMIC_REQUEST = 0xa, "Atomic Request";
        ATOMIC_RESPONSE = 0xb, "Atomic Response";
    }
}

impl Opcode {
    /// True if DDP carries it tagged; `None` for an opcode that is not defined.
    pub const fn is_tagged(self) -> Option<bool> {
        match self.0 {
            0x0 | 0x2 => Some(true),
            0x1 | 0x3..=0xb => Some(false),
            _ => None,
        }
    }

    /// The DDP queue that carries it, where it is untagged.
    pub const fn queue(self) -> Option<u32> {
        match self.0 {
            0x3..=0x6 | 0x8 | 0x9 => Some(QUEUE_SEND),
            0x1 | 0xa => Some(QUEUE_READ_REQUEST),
            0x7 => Some(QUEUE_TERMINATE),
            0xb => Some(QUEUE_ATOMIC_RESPONSE),
            _ => None,
        }
    }

    /// True if it is one of the four Sends.
    pub const fn is_send(self) -> bool {
        matches!(self.0, 0x3..=0x6)
    }

    /// True if it wakes the receiver (solicited event).
    pub const fn is_solicited(self) -> bool {
        matches!(self.0, 0x5 | 0x6 | 0x9)
    }

    /// True if it names an STag to invalidate.
    pub const fn invalidates(self) -> bool {
        matches!(self.0, 0x4 | 0x6)
    }
}

/// The queue of Sends and of immediate data.
pub const QUEUE_SEND: u32 = 0;
/// The queue of Read and Atomic Requests.
pub const QUEUE_READ_REQUEST: u32 = 1;
/// The queue of the Terminate.
pub const QUEUE_TERMINATE: u32 = 2;
/// The queue of Atomic Responses.
pub const QUEUE_ATOMIC_RESPONSE: u32 = 3;

const OPCODES: crate::field::Values = Opcode::VALUES;

fields! {
    /// Fields that are not part of a fixed header.
    pub mod f ["RFC 5040 4"] {
        HEADER: None = "iwarp_rdma", "RDMAP header";
        RESERVED: Bytes as Keep = "iwarp_rdma.reserved", "Reserved";
        INVALIDATE_STAG: U32 = "iwarp_rdma.inval_stag", "Invalidate STag", dec;
        DATA: Bytes = "rdmascope.iwarp_rdma.data", "Data";
        IMMEDIATE: Bytes as Keep = "rdmascope.iwarp_rdma.immediate", "Immediate data";
        TERMINATE: None = "iwarp_rdma.terminate", "Terminate";
        TERM_CONTROL: None = "iwarp_rdma.term_ctrl", "Terminate Control";
        TERM_LAYER: U8 & 0xf0 / 8 = "iwarp_rdma.term_layer", "Layer", hex, values LAYERS;
        TERM_ETYPE_RDMA: U8 & 0x0f / 8 = "iwarp_rdma.term_etype_rdma", "Error Types for RDMA layer", hex, values TYPES_RDMAP;
        TERM_ETYPE_DDP: U8 & 0x0f / 8 = "iwarp_rdma.term_etype_ddp", "Error Types for DDP layer", hex, values TYPES_DDP;
        TERM_ETYPE_LLP: U8 & 0x0f / 8 = "iwarp_rdma.term_etype_llp", "Error Types for LLP layer", hex, values TYPES_LLP;
        TERM_ETYPE: U8 & 0x0f / 8 = "iwarp_rdma.term_etype", "Error Types", hex;
        TERM_CODE_RDMA: U8 = "iwarp_rdma.term_errcode_rdma", "Error Code for RDMA layer", hex, values CODES_RDMAP;
        TERM_CODE_DDP_TAGGED: U8 = "iwarp_rdma.term_errcode_ddp_tagged", "Error Code for DDP Tagged Buffer", hex, values CODES_TAGGED;
        TERM_CODE_DDP_UNTAGGED: U8 = "iwarp_rdma.term_errcode_ddp_untagged", "Error Code for DDP Untagged Buffer", hex, values CODES_UNTAGGED;
        TERM_CODE_LLP: U8 = "iwarp_rdma.term_errcode_llp", "Error Code for LLP layer", hex, values CODES_LLP;
        TERM_CODE: U8 = "iwarp_rdma.term_errcode", "Error Code", hex;
        TERM_SEGMENT_LENGTH: Bytes as Keep = "iwarp_rdma.term_ddp_seg_len", "DDP Segment Length";
        TERM_DDP: Bytes = "iwarp_rdma.term_ddp_h", "Terminated DDP Header";
        TERM_RDMAP: Bytes = "iwarp_rdma.term_rdma_h", "Terminated RDMA Header";
        TERM_OPCODE: U8 = "rdmascope.iwarp_rdma.term.opcode", "Terminated OpCode", hex, values OPCODES;
        TERM_STAG: U32 = "rdmascope.iwarp_rdma.term.stag", "Terminated Steering Tag", hex;
        TERM_OFFSET: U64 = "rdmascope.iwarp_rdma.term.tagged_offset", "Terminated Tagged offset", hex;
        TERM_QUEUE: U32 = "rdmascope.iwarp_rdma.term.qn", "Terminated Queue number", dec;
        TERM_MSN: U32 = "rdmascope.iwarp_rdma.term.msn", "Terminated Message sequence number", dec;
        TERM_MO: U32 = "rdmascope.iwarp_rdma.term.mo", "Terminated Message offset", dec;
        TERM_TRAILING: Bytes = "rdmascope.iwarp_rdma.term.trailing", "Bytes behind the message";
    }
}

const LAYERS: crate::field::Values = &[(0, "RDMA"), (1, "DDP"), (2, "LLP")];
const TYPES_RDMAP: crate::field::Values =
    &[(0, "Local Catastrophic Error"), (1, "Remote Protection Error"), (2, "Remote Operation Error")];
const TYPES_DDP: crate::field::Values = &[
    (0, "Local Catastrophic Error"),
    (1, "Tagged Buffer Error"),
    (2, "Untagged Buffer Error"),
    (3, "Reserved for the use by the LLP"),
];
const TYPES_LLP: crate::field::Values = &[(0, "MPA Error")];
const CODES_RDMAP: crate::field::Values = &[
    (0x00, "Invalid STag"),
    (0x01, "Base or bounds violation"),
    (0x02, "Access rights violation"),
    (0x03, "STag not associated with RDMAP Stream"),
    (0x04, "TO wrap"),
    (0x05, "Invalid RDMAP version"),
    (0x06, "Unexpected OpCode"),
    (0x07, "Catastrophic error, localized to RDMAP Stream"),
    (0x08, "Catastrophic error, global"),
    (0x09, "STag cannot be Invalidated"),
    (0xff, "Unspecific Error"),
];
const CODES_TAGGED: crate::field::Values = &[
    (0x00, "Invalid STag"),
    (0x01, "Base or bounds violation"),
    (0x02, "STag not associated with DDP Stream"),
    (0x03, "TO wrap"),
    (0x04, "Invalid DDP version"),
];
const CODES_UNTAGGED: crate::field::Values = &[
    (0x01, "Invalid QN"),
    (0x02, "Invalid MSN - no buffer available"),
    (0x03, "Invalid MSN - MSN range is not valid"),
    (0x04, "Invalid MO"),
    (0x05, "DDP Message too long for available buffer"),
    (0x06, "Invalid DDP version"),
];
// 5 to 7: RFC 6581 8
const CODES_LLP: crate::field::Values = &[
    (0x01, "TCP connection closed, terminated, or lost"),
    (0x02, "Received MPA CRC does not match the calculated value for the FPDU"),
    (0x03, "Received MPA FPDU marker and ULPDU Length field mismatch"),
    (0x04, "Invalid MPA Request Frame or MPA Response Frame"),
    (0x05, "Local Catastrophic Error"),
    (0x06, "Insufficient IRD resources"),
    (0x07, "No matching RTR option"),
];

header! {
    /// The first of the bytes that DDP reserves.
    pub struct Control [NODE = "iwarp_rdma.control_field", "RDMAP control field", "RFC 5040 4.1"] {
        bits: u8 = "_", "Control", hex, bits {
            /// 1; 0 in an earlier version of the protocol.
            version: u8 & 0xc0 = "iwarp_rdma.version", "Version", dec;
            reserved: u8 & 0x30 = "iwarp_rdma.rsv", "Reserved", hex;
            opcode: u8 & 0x0f = "iwarp_rdma.opcode", "OpCode", hex, values OPCODES;
        };
    }
}

header! {
    /// Asks for bytes of the receiver's memory.
    pub struct ReadRequest [NODE = "iwarp_rdma.rr", "Read request", "RFC 5040 4.4"] {
        /// Memory of the requester, where the Response is to put the bytes.
        sink_stag: be32 = "iwarp_rdma.sinkstag", "Data Sink STag", hex;
        sink_offset: be64 = "iwarp_rdma.sinkto", "Data Sink Tagged Offset", hex;
        /// In bytes.
        size: be32 = "iwarp_rdma.rdmardsz", "RDMA Read Message Size", dec;
        /// Memory of the responder, which is read.
        source_stag: be32 = "iwarp_rdma.srcstag", "Data Source STag", hex;
        source_offset: be64 = "iwarp_rdma.srcto", "Data Source Tagged Offset", hex;
    }
}

header! {
    /// Says what was wrong, in the first four bytes of a Terminate. Layer, type and code are reported one by one.
    pub struct HeaderControl [NODE = "iwarp_rdma.term_hdrct", "Header control bits", "RFC 5040 4.8"] {
        bits: be16 = "_", "Header control", hex, bits {
            reserved: u16 & 0x1fff = "iwarp_rdma.term_rsvd", "Reserved", hex;
        };
    }
}

fields! {
    /// The header control bits, which Wireshark reads from one byte.
    pub mod hdrct ["RFC 5040 4.8"] {
        M: Bool & 0x80 / 8 = "iwarp_rdma.term_hdrct_m", "M bit";
        D: Bool & 0x40 / 8 = "iwarp_rdma.hdrct_d", "D bit";
        R: Bool & 0x20 / 8 = "iwarp_rdma.hdrct_r", "R bit";
    }
}

wire_enum! {
    /// Operation of an Atomic Request.
    pub enum AtomicOpcode: u8 {
        FETCH_ADD = 0x0, "FetchAdd";
        COMPARE_SWAP = 0x2, "CmpSwap";
    }
}

const ATOMIC_OPCODES: crate::field::Values = AtomicOpcode::VALUES;

header! {
    /// First in an Atomic Request.
    pub struct AtomicHead [NODE = "rdmascope.iwarp_rdma.atomic", "Atomic Request", "RFC 7306 5.2.1"] {
        word: be32 = "_", "Atomic operation", hex, bits {
            reserved: u32 & 0xfffffff0 = "iwarp_rdma.atomic.reserved", "Reserved", dec;
            opcode: u32 & 0x0000000f = "iwarp_rdma.atomic.opcode", "OpCode", dec, values ATOMIC_OPCODES;
        };
        request_identifier: be32 = "iwarp_rdma.atomic.request_identifier", "Request Identifier", dec;
        remote_stag: be32 = "iwarp_rdma.atomic.remote_stag", "Remote STag", dec;
        remote_offset: be64 = "iwarp_rdma.atomic.remote_tagged_offset", "Remote Tagged Offset", dec;
    }
}

header! {
    /// The operands of a FetchAdd.
    pub struct AddOperands [NODE = "rdmascope.iwarp_rdma.atomic.add", "FetchAdd", "RFC 7306 5.2.1"] {
        data: be64 = "iwarp_rdma.atomic.add_data", "Add Data", dec;
        mask: be64 = "iwarp_rdma.atomic.add_mask", "Add Mask", hex;
    }
}

header! {
    /// The operands of a swap.
    pub struct SwapOperands [NODE = "rdmascope.iwarp_rdma.atomic.swap", "CmpSwap", "RFC 7306 5.2.1"] {
        data: be64 = "iwarp_rdma.atomic.swap_data", "Swap Data", dec;
        mask: be64 = "iwarp_rdma.atomic.swap_mask", "Swap Mask", hex;
    }
}

header! {
    /// Operand of a comparison; present but meaningless in a FetchAdd.
    pub struct CompareOperands [NODE = "rdmascope.iwarp_rdma.atomic.compare", "Compare", "RFC 7306 5.2.1"] {
        data: be64 = "iwarp_rdma.atomic.compare_data", "Compare Data", dec;
        mask: be64 = "iwarp_rdma.atomic.compare_mask", "Compare Mask", hex;
    }
}

header! {
    /// Answers an Atomic Request.
    pub struct AtomicResponse [NODE = "rdmascope.iwarp_rdma.atomic.response", "Atomic Response", "RFC 7306 5.2.2"] {
        request_identifier: be32 = "iwarp_rdma.atomic.original_request_identifier", "Original Request Identifier", dec;
        /// Previous value of the memory.
        value: be64 = "iwarp_rdma.atomic.original_remote_data_value", "Original Remote Data Value", dec;
    }
}

/// Changes eight bytes of the receiver's memory, and asks for their previous value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicRequest {
    /// Operation, identifier and memory.
    pub head: AtomicHead,
    /// The value to add or store.
    pub data: u64,
    /// Mask of the bits that count.
    pub mask: u64,
    /// The operand of the comparison in a swap.
    pub compare: CompareOperands,
}

impl AtomicRequest {
    /// Length on the wire.
    pub const LEN: usize = AtomicHead::LEN + SwapOperands::LEN + CompareOperands::LEN;

    /// Encodes the request at the end of `out`.
    pub fn emit(&self, out: &mut Vec<u8>) {
        self.head.emit(out);
        SwapOperands { data: self.data, mask: self.mask }.emit(out);
        self.compare.emit(out);
    }
}

/// The header of the segment that a Terminate complains about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quoted {
    /// DDP flags.
    pub control: ddp::Control,
    /// RDMAP opcode.
    pub opcode: Opcode,
    /// Buffer that the segment was for.
    pub buffer: Buffer,
}

/// The sender ends the connection, and says why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terminate {
    /// 0 RDMAP, 1 DDP, 2 LLP (MPA).
    pub layer: u8,
    /// Error type; its meaning depends on the layer.
    pub error_type: u8,
    /// By layer and type.
    pub code: u8,
    /// Length of the segment complained about (M bit).
    pub segment_length: Option<u16>,
    /// Its DDP header (D bit).
    pub ddp: Option<Quoted>,
    /// The RDMAP header of the terminated Read Request (R bit).
    pub read_request: Option<ReadRequest>,
}

impl Terminate {
    /// Name of the layer.
    pub fn layer_name(&self) -> Option<&'static str> {
        crate::field::name_of(LAYERS, self.layer.into())
    }

    /// Name of the error type.
    pub fn type_name(&self) -> Option<&'static str> {
        type_def(self.layer).value_name(self.error_type.into())
    }

    /// Name of the error code.
    pub fn code_name(&self) -> Option<&'static str> {
        code_def(self.layer, self.error_type).value_name(self.code.into())
    }

    /// Encodes the message (behind the DDP header) at the end of `out`.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let bit = |set: bool, mask: u8| if set { mask } else { 0 };
        out.push(self.layer << 4 | self.error_type & 0xf);
        out.push(self.code);
        out.push(
            bit(self.segment_length.is_some(), 0x80)
                | bit(self.ddp.is_some(), 0x40)
                | bit(self.read_request.is_some(), 0x20),
        );
        out.push(0);
        if let Some(length) = self.segment_length {
            out.extend_from_slice(&length.to_be_bytes());
        }
        if let Some(q) = self.ddp {
            Ddp { control: q.control, ulp: 0x40 | q.opcode.0, ulp_word: 0, buffer: q.buffer, payload: &[] }.emit(out);
        }
        if let Some(r) = self.read_request {
            r.emit(out);
        }
    }
}

impl fmt::Display for Terminate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = |f: &mut fmt::Formatter<'_>, name: Option<&str>, what: &str, number: u8| match name {
            Some(name) => f.write_str(name),
            None => write!(f, "{what} {number:#x}"),
        };
        part(f, self.layer_name(), "layer", self.layer)?;
        f.write_str(": ")?;
        part(f, self.type_name(), "type", self.error_type)?;
        f.write_str(": ")?;
        part(f, self.code_name(), "code", self.code)
    }
}

fn type_def(layer: u8) -> crate::field::Def {
    match layer {
        0 => f::TERM_ETYPE_RDMA,
        1 => f::TERM_ETYPE_DDP,
        2 => f::TERM_ETYPE_LLP,
        _ => f::TERM_ETYPE,
    }
}

fn code_def(layer: u8, error_type: u8) -> crate::field::Def {
    match (layer, error_type) {
        (0, _) => f::TERM_CODE_RDMA,
        (1, 1) => f::TERM_CODE_DDP_TAGGED,
        (1, 2) => f::TERM_CODE_DDP_UNTAGGED,
        (2, _) => f::TERM_CODE_LLP,
        _ => f::TERM_CODE,
    }
}

/// Message behind the DDP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// Data: [`Ddp::payload`].
    Data,
    /// See [`ReadRequest`].
    ReadRequest(ReadRequest),
    /// See [`Terminate`].
    Terminate(Terminate),
    /// RFC 7306 6.
    Immediate(u64),
    /// See [`AtomicRequest`].
    AtomicRequest(AtomicRequest),
    /// See [`AtomicResponse`].
    AtomicResponse(AtomicResponse),
    /// It could not be read: cut by the capture, or too short.
    Cut,
}

/// An RDMAP message, or the part of it that one segment carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rdmap<'a> {
    /// The segment.
    pub ddp: Ddp<'a>,
    /// RDMAP version and opcode.
    pub control: Control,
    /// The opcode.
    pub opcode: Opcode,
    /// The STag that the receiver is to invalidate.
    pub invalidate: Option<u32>,
    /// Message behind the DDP header.
    pub body: Body,
}

/// Decodes a DDP segment and the RDMAP message in it, in a protocol subtree of their own. A Terminate or Read Request
/// that is too short still gives its segment, with [`Body::Cut`]; the observer is notified of the fault.
#[inline]
pub fn parse<'a, T: Trace>(ulpdu: &'a [u8], t: &mut T) -> PResult<'a, Rdmap<'a>> {
    t.protocol("DDP/RDMA");
    scope(ddp::f::PROTOCOL, ulpdu, t, |i, t| {
        let (rest, ddp) = ddp::parse(i, t)?;
        let control = Control { bits: ddp.ulp };
        let opcode = Opcode(control.opcode());
        let invalidate = (opcode.invalidates() && !ddp.control.tagged()).then_some(ddp.ulp_word);
        let mut rdmap = Rdmap { ddp, control, opcode, invalidate, body: Body::Data };
        if T::ON {
            trace_info(&rdmap, t);
        }
        // a Send or Write, whole on the fast path
        const SET: FieldSet = f::SET.and(Control::SET);
        if !t.wants(&SET) && matches!(opcode.0, 0x0 | 0x2..=0x6) {
            return Ok((&rest[rest.len()..], rdmap));
        }
        let (rest, body) = scope(f::HEADER, &ulpdu[1..], t, |i, t| {
            let (at, _) = Control::parse(i, t)?;
            if !ddp.control.tagged() {
                if invalidate.is_some() {
                    read::be32(f::INVALIDATE_STAG, at, t)?;
                } else {
                    read::bytes(f::RESERVED, 4, at, t)?;
                }
            }
            match parse_body(opcode, &ddp, rest, t) {
                Ok((i, body)) => Ok((i, body)),
                // the segment is good without it
                Err(_) => Ok((&rest[rest.len()..], Body::Cut)),
            }
        })?;
        rdmap.body = body;
        // the data of a Send is the upper layer's to tell
        if T::ON && !rest.is_empty() && ddp.control.tagged() {
            t.field(f::DATA, rest, rest.len(), Value::Bytes(rest));
        }
        Ok((&rest[rest.len()..], rdmap))
    })
}

#[cold]
fn trace_info<T: Trace>(m: &Rdmap<'_>, t: &mut T) {
    match (m.opcode, m.ddp.buffer) {
        (Opcode::WRITE | Opcode::READ_RESPONSE, Buffer::Tagged(b)) => {
            t.info(format_args!("{} stag={:#010x} to={:#x}", m.opcode, b.stag, b.offset));
        }
        (
            Opcode::READ_REQUEST | Opcode::TERMINATE | Opcode::ATOMIC_REQUEST | Opcode::ATOMIC_RESPONSE,
            Buffer::Untagged(b),
        ) => {
            t.info(format_args!("{} MSN={}", m.opcode, b.msn));
            return;
        }
        (_, Buffer::Untagged(b)) => {
            t.info(format_args!("{} QN={} MSN={}", m.opcode, b.queue, b.msn));
            if b.offset > 0 {
                t.info(format_args!("MO={}", b.offset));
            }
            if let Some(stag) = m.invalidate {
                t.info(format_args!("invalidates {stag:#010x}"));
            }
        }
        (_, Buffer::Tagged(b)) => t.info(format_args!("{} stag={:#010x} to={:#x}", m.opcode, b.stag, b.offset)),
    }
    t.info(format_args!("{}", if m.ddp.control.last() { "[last DDP segment]" } else { "[more DDP segments]" }));
}

fn parse_body<'a, T: Trace>(opcode: Opcode, ddp: &Ddp<'_>, i: &'a [u8], t: &mut T) -> PResult<'a, Body> {
    // only what DDP carries as it should has the headers of its opcode
    if opcode.is_tagged() != Some(ddp.control.tagged()) {
        return Ok((i, Body::Data));
    }
    match opcode {
        Opcode::READ_REQUEST => {
            let (i, r) = ReadRequest::parse(i, t)?;
            t.info(format_args!("{} bytes of stag={:#010x} to={:#x}", r.size, r.source_stag, r.source_offset));
            Ok((i, Body::ReadRequest(r)))
        }
        Opcode::TERMINATE => {
            let (i, terminate) = parse_terminate(i, t)?;
            t.info(format_args!("{terminate}"));
            Ok((i, Body::Terminate(terminate)))
        }
        Opcode::IMMEDIATE | Opcode::IMMEDIATE_SE => {
            let (i, bytes) = read::array::<8, T>(f::IMMEDIATE, i, t)?;
            Ok((i, Body::Immediate(u64::from_be_bytes(bytes))))
        }
        Opcode::ATOMIC_REQUEST => scope(AtomicHead::NODE, i, t, |i, t| {
            let (i, head) = AtomicHead::parse_flat(i, t)?;
            let (i, data, mask) = if head.opcode() == u32::from(AtomicOpcode::FETCH_ADD.0) {
                let (i, o) = AddOperands::parse_flat(i, t)?;
                (i, o.data, o.mask)
            } else {
                let (i, o) = SwapOperands::parse_flat(i, t)?;
                (i, o.data, o.mask)
            };
            let (i, compare) = CompareOperands::parse_flat(i, t)?;
            Ok((i, Body::AtomicRequest(AtomicRequest { head, data, mask, compare })))
        }),
        Opcode::ATOMIC_RESPONSE => {
            let (i, r) = AtomicResponse::parse(i, t)?;
            Ok((i, Body::AtomicResponse(r)))
        }
        _ => Ok((i, Body::Data)),
    }
}

/// Decodes a Terminate behind the DDP header.
pub fn parse_terminate<'a, T: Trace>(i: &'a [u8], t: &mut T) -> PResult<'a, Terminate> {
    scope(f::TERMINATE, i, t, |i, t| {
        let (i, (layer, error_type, code, bits)) = scope(f::TERM_CONTROL, i, t, |i, t| {
            let (rest, first) =
                crate::leaf::u8(i).or_else(|_| crate::fault::Fault::short(Some(f::TERM_LAYER), i, 1).fail())?;
            let (layer, error_type) = (first >> 4, first & 0xf);
            t.field(f::TERM_LAYER, i, 1, Value::U(layer.into()));
            t.field(type_def(layer), i, 1, Value::U(error_type.into()));
            let (i, code) = read::u8(code_def(layer, error_type), rest, t)?;
            let (i, bits) = scope(HeaderControl::NODE, i, t, |i, t| {
                if let (true, Some(b)) = (T::ON && i.len() >= 2, i.first()) {
                    t.field(hdrct::M, i, 1, Value::U((b >> 7).into()));
                    t.field(hdrct::D, i, 1, Value::U((b >> 6 & 1).into()));
                    t.field(hdrct::R, i, 1, Value::U((b >> 5 & 1).into()));
                }
                let (i, h) = HeaderControl::parse_flat(i, t)?;
                Ok((i, h.bits))
            })?;
            Ok((i, (layer, error_type, code, bits)))
        })?;
        let mut terminate = Terminate { layer, error_type, code, segment_length: None, ddp: None, read_request: None };
        let mut i = i;
        if bits & 0x8000 != 0 {
            let (rest, length) = read::array::<2, T>(f::TERM_SEGMENT_LENGTH, i, t)?;
            (i, terminate.segment_length) = (rest, Some(u16::from_be_bytes(length)));
        }
        if bits & 0x4000 != 0 {
            let length = if i.first().is_some_and(|b| b & 0x80 != 0) { Ddp::TAGGED_LEN } else { Ddp::UNTAGGED_LEN };
            let (rest, bytes) = read::bytes(f::TERM_DDP, length, i, t)?;
            // exactly the bytes that its first one calls for: it cannot fail
            if let Ok((_, ddp)) = ddp::parse(bytes, &mut crate::trace::Off) {
                let quoted = Quoted { control: ddp.control, opcode: Opcode(ddp.ulp & 0xf), buffer: ddp.buffer };
                if T::ON {
                    t.down();
                    trace_quoted(&quoted, bytes, t);
                    t.up();
                }
                terminate.ddp = Some(quoted);
            }
            i = rest;
        }
        if bits & 0x2000 != 0 {
            let (rest, bytes) = read::bytes(f::TERM_RDMAP, ReadRequest::LEN, i, t)?;
            (i, terminate.read_request) =
                (rest, ReadRequest::parse(bytes, &mut crate::trace::Off).ok().map(|(_, r)| r));
        }
        if !i.is_empty() {
            (i, _) = read::bytes(f::TERM_TRAILING, i.len(), i, t)?;
        }
        Ok((i, terminate))
    })
}

fn trace_quoted<T: Trace>(q: &Quoted, at: &[u8], t: &mut T) {
    t.field(f::TERM_OPCODE, &at[1..], 1, Value::U(q.opcode.0.into()));
    match q.buffer {
        Buffer::Tagged(b) => {
            t.field(f::TERM_STAG, &at[2..], 4, Value::U(b.stag.into()));
            t.field(f::TERM_OFFSET, &at[6..], 8, Value::U(b.offset));
        }
        Buffer::Untagged(b) => {
            t.field(f::TERM_QUEUE, &at[6..], 4, Value::U(b.queue.into()));
            t.field(f::TERM_MSN, &at[10..], 4, Value::U(b.msn.into()));
            t.field(f::TERM_MO, &at[14..], 4, Value::U(b.offset.into()));
        }
    }
}

/// The header of an untagged segment of this opcode, DDP and RDMAP version 1.
pub fn untagged<'a>(opcode: Opcode, last: bool, msn: u32, offset: u32, invalidate: u32, payload: &'a [u8]) -> Ddp<'a> {
    Ddp {
        control: ddp::Control { flags: 0x01 | if last { 0x40 } else { 0 } },
        ulp: 0x40 | opcode.0,
        ulp_word: invalidate,
        buffer: Buffer::Untagged(ddp::Untagged { queue: opcode.queue().unwrap_or(QUEUE_SEND), msn, offset }),
        payload,
    }
}

/// The header of a tagged segment of this opcode, DDP and RDMAP version 1.
pub fn tagged<'a>(opcode: Opcode, last: bool, stag: u32, offset: u64, payload: &'a [u8]) -> Ddp<'a> {
    Ddp {
        control: ddp::Control { flags: 0x81 | if last { 0x40 } else { 0 } },
        ulp: 0x40 | opcode.0,
        ulp_word: 0,
        buffer: Buffer::Tagged(ddp::Tagged { stag, offset }),
        payload,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Off, Tree};
    use alloc::vec;
    use proptest::prelude::*;

    fn bytes_of(ddp: &Ddp<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        ddp.emit(&mut out);
        out
    }

    fn tree_of(bytes: &[u8]) -> Tree {
        let mut tree = Tree::new();
        tree.begin(bytes);
        let _ = parse(bytes, &mut tree);
        tree
    }

    #[test]
    fn sends_say_what_they_invalidate_and_wake() {
        for (opcode, invalidate, solicited) in [
            (Opcode::SEND, None, false),
            (Opcode::SEND_INVALIDATE, Some(0x1234), false),
            (Opcode::SEND_SE, None, true),
            (Opcode::SEND_SE_INVALIDATE, Some(0x1234), true),
        ] {
            let bytes = bytes_of(&untagged(opcode, true, 5, 0, invalidate.unwrap_or(0), b"hello"));
            let (rest, m) = parse(&bytes, &mut Off).unwrap();
            assert!(rest.is_empty() && m.ddp.control.last());
            assert_eq!(
                (m.opcode, m.invalidate, m.opcode.is_solicited(), m.ddp.payload),
                (opcode, invalidate, solicited, &b"hello"[..])
            );
            let tree = tree_of(&bytes);
            assert_eq!(tree.number("iwarp_rdma.inval_stag"), invalidate.map(u64::from));
            assert_eq!(tree.number("iwarp_ddp.msn"), Some(5));
            assert_eq!(bytes_of(&m.ddp), bytes);
        }
        let tree = tree_of(&bytes_of(&untagged(Opcode::SEND, true, 5, 0, 0, b"hello")));
        assert_eq!((tree.protocol, tree.info.as_str()), ("DDP/RDMA", "Send QN=0 MSN=5, [last DDP segment]"));
    }

    #[test]
    fn a_read_request_names_both_memories() {
        let request =
            ReadRequest { sink_stag: 1, sink_offset: 0x1000, size: 65536, source_stag: 2, source_offset: 0x2000 };
        let mut payload = Vec::new();
        request.emit(&mut payload);
        let bytes = bytes_of(&untagged(Opcode::READ_REQUEST, true, 1, 0, 0, &payload));
        let (_, m) = parse(&bytes, &mut Off).unwrap();
        assert_eq!(m.body, Body::ReadRequest(request));
        assert_eq!(tree_of(&bytes).number("iwarp_rdma.rdmardsz"), Some(65536));
        let (_, cut) = parse(&bytes[..40], &mut Off).unwrap();
        assert_eq!(cut.body, Body::Cut);
        assert_eq!(tree_of(&bytes[..40]).faults.len(), 1);
    }

    #[test]
    fn a_terminate_names_its_reason_and_the_header_it_quotes() {
        let quoted = Quoted {
            control: ddp::Control { flags: 0xc1 },
            opcode: Opcode::WRITE,
            buffer: Buffer::Tagged(ddp::Tagged { stag: 0xdead, offset: 0x10 }),
        };
        let terminate = Terminate {
            layer: 1,
            error_type: 1,
            code: 1,
            segment_length: Some(1014),
            ddp: Some(quoted),
            read_request: None,
        };
        let mut payload = Vec::new();
        terminate.emit(&mut payload);
        let bytes = bytes_of(&untagged(Opcode::TERMINATE, true, 1, 0, 0, &payload));
        let (_, m) = parse(&bytes, &mut Off).unwrap();
        assert_eq!(m.body, Body::Terminate(terminate));
        let tree = tree_of(&bytes);
        assert!(tree.info.ends_with("DDP: Tagged Buffer Error: Base or bounds violation"), "{}", tree.info);
        assert_eq!(
            (tree.number("rdmascope.iwarp_rdma.term.stag"), tree.number("iwarp_rdma.term_hdrct_m")),
            (Some(0xdead), Some(1))
        );
        assert_eq!(tree.number("iwarp_rdma.hdrct_r"), Some(0));

        let request = ReadRequest { sink_stag: 1, sink_offset: 2, size: 3, source_stag: 4, source_offset: 5 };
        let quoted = Quoted {
            control: ddp::Control { flags: 0x41 },
            opcode: Opcode::READ_REQUEST,
            buffer: Buffer::Untagged(ddp::Untagged { queue: 1, msn: 9, offset: 0 }),
        };
        let protection = Terminate {
            layer: 0,
            error_type: 1,
            code: 2,
            segment_length: Some(46),
            ddp: Some(quoted),
            read_request: Some(request),
        };
        let mut payload = Vec::new();
        protection.emit(&mut payload);
        let (rest, read) = parse_terminate(&payload, &mut Off).unwrap();
        assert!(rest.is_empty());
        assert_eq!((read, read.code_name()), (protection, Some("Access rights violation")));
        for n in 0..payload.len() {
            let mut tree = Tree::new();
            tree.begin(&payload[..n]);
            assert!(parse_terminate(&payload[..n], &mut tree).is_err());
            assert_eq!(tree.faults.len(), 1);
            assert!(tree.nodes.iter().all(|node| (node.offset + node.len) as usize <= n));
        }
    }

    #[test]
    fn atomics_and_immediate_data_read_back() {
        let head = AtomicHead { word: 2, request_identifier: 7, remote_stag: 8, remote_offset: 9 };
        let request = AtomicRequest { head, data: 1, mask: u64::MAX, compare: CompareOperands { data: 2, mask: 3 } };
        let mut payload = Vec::new();
        request.emit(&mut payload);
        assert_eq!(payload.len(), AtomicRequest::LEN);
        let bytes = bytes_of(&untagged(Opcode::ATOMIC_REQUEST, true, 1, 0, 0, &payload));
        assert_eq!(parse(&bytes, &mut Off).unwrap().1.body, Body::AtomicRequest(request));
        assert_eq!(tree_of(&bytes).number("iwarp_rdma.atomic.compare_data"), Some(2));
        let response = AtomicResponse { request_identifier: 7, value: 42 };
        let mut payload = Vec::new();
        response.emit(&mut payload);
        let bytes = bytes_of(&untagged(Opcode::ATOMIC_RESPONSE, true, 1, 0, 0, &payload));
        assert_eq!(parse(&bytes, &mut Off).unwrap().1.body, Body::AtomicResponse(response));
        let bytes = bytes_of(&untagged(Opcode::IMMEDIATE_SE, true, 1, 0, 0, &77_u64.to_be_bytes()));
        assert_eq!(parse(&bytes, &mut Off).unwrap().1.body, Body::Immediate(77));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic_and_observing_changes_nothing(mut bytes in proptest::collection::vec(any::<u8>(), 0..120), valid: bool) {
            if let (true, Some(b)) = (valid, bytes.get_mut(1)) {
                *b = 0x40 | (*b % 12);
                bytes[0] = if matches!(bytes[1] & 0xf, 0 | 2) { 0xc1 } else { 0x41 };
            }
            let mut tree = Tree::new();
            tree.begin(&bytes);
            let traced = parse(&bytes, &mut tree).map(|(_, m)| m).ok();
            prop_assert_eq!(traced, parse(&bytes, &mut Off).map(|(_, m)| m).ok());
            prop_assert!(tree.nodes.iter().all(|node| (node.offset + node.len) as usize <= bytes.len()));
            if let Some(m) = traced {
                prop_assert_eq!(bytes_of(&m.ddp), bytes);
            } else {
                prop_assert!(!vec![&tree.faults].is_empty() && tree.faults.len() == 1);
            }
        }
    }
}
