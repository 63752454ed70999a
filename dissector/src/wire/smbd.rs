//! SMB Direct, \[MS-SMBD\] (SMB2 RDMA Transport Protocol): the two negotiate messages, the data transfer message and
//! the buffer descriptor. All little-endian.
//!
//! ```text
//! initiator ── NegotiateRequest ──▶ acceptor      exactly once, first
//! initiator ◀── NegotiateResponse ─ acceptor
//! either    ── DataTransfer ──────▶ either        CreditsGranted, fragments of an SMB2 message
//! ```
//!
//! The state of the connection, not the bytes of a message, decides which of the three it is: the caller chooses, and a
//! message that breaks a rule is still decoded as the type it was meant to be.

use crate::fault::PResult;
use crate::leaf::read;
use crate::trace::{Trace, Value, scope};

/// The one version of the protocol, 1.0 (\[MS-SMBD\] 1.7).
pub const VERSION_1_0: u16 = 0x0100;

const VERSIONS: crate::field::Values = &[(0x0100, "SMB Direct 1.0")];

fields! {
    /// The protocol and what is variable in it.
    pub mod f ["[MS-SMBD] 2.2"] {
        PROTOCOL: Protocol = "smb_direct", "SMB-Direct (SMB RDMA Transport)";
        PADDING: Bytes as Keep = "rdmascope.smb_direct.padding", "Padding";
        DATA: Bytes = "rdmascope.smb_direct.data_message.data", "Data";
        TRAILING: Bytes = "rdmascope.smb_direct.trailing", "Bytes behind the message";
    }
}

header! {
    /// Opens every SMB Direct connection.
    pub struct NegotiateRequest [NODE = "smb_direct.negotiate_request", "NegotiateRequest", "[MS-SMBD] 2.2.1"] {
        min_version: le16 = "smb_direct.version.min", "MinVersion", hex, values VERSIONS;
        max_version: le16 = "smb_direct.version.max", "MaxVersion", hex, values VERSIONS;
        /// Should be 0.
        reserved: le16 = "rdmascope.smb_direct.reserved", "Reserved", hex;
        credits_requested: le16 = "smb_direct.credits.requested", "CreditsRequested", dec;
        /// Bytes the sender would like to send in one message.
        preferred_send_size: le32 = "smb_direct.preferred_send_size", "PreferredSendSize", dec;
        /// Bytes the sender can receive in one message.
        max_receive_size: le32 = "smb_direct.max_receive_size", "MaxReceiveSize", dec;
        /// Bytes the sender can reassemble from fragments.
        max_fragmented_size: le32 = "smb_direct.max_fragmented_size", "MaxFragmentedSize", dec;
    }
}

header! {
    /// Answers the request, or refuses it with a status.
    pub struct NegotiateResponse [NODE = "smb_direct.negotiate_response", "NegotiateResponse", "[MS-SMBD] 2.2.2"] {
        min_version: le16 = "smb_direct.version.min", "MinVersion", hex, values VERSIONS;
        max_version: le16 = "smb_direct.version.max", "MaxVersion", hex, values VERSIONS;
        negotiated_version: le16 = "smb_direct.version.negotiated", "NegotiatedVersion", hex, values VERSIONS;
        /// Should be 0.
        reserved: le16 = "rdmascope.smb_direct.reserved", "Reserved", hex;
        credits_requested: le16 = "smb_direct.credits.requested", "CreditsRequested", dec;
        credits_granted: le16 = "smb_direct.credits.granted", "CreditsGranted", dec;
        /// An NTSTATUS; 0 where the connection is accepted.
        status: le32 = "smb_direct.status", "Status", hex;
        /// Bytes one RDMA Read or Write sequence may move for one request.
        max_read_write_size: le32 = "smb_direct.max_read_write_size", "MaxReadWriteSize", dec;
        preferred_send_size: le32 = "smb_direct.preferred_send_size", "PreferredSendSize", dec;
        max_receive_size: le32 = "smb_direct.max_receive_size", "MaxReceiveSize", dec;
        max_fragmented_size: le32 = "smb_direct.max_fragmented_size", "MaxFragmentedSize", dec;
    }
}

header! {
    /// Carries a fragment of an SMB2 message, or only credits, or a keepalive.
    pub struct DataTransfer [NODE = "smb_direct.data_message", "DataMessage", "[MS-SMBD] 2.2.3"] {
        /// The total number of credits the sender would like to hold.
        credits_requested: le16 = "smb_direct.credits.requested", "CreditsRequested", dec;
        /// Credits given to the receiver on top of what it holds.
        credits_granted: le16 = "smb_direct.credits.granted", "CreditsGranted", dec;
        flags: le16 = "smb_direct.flags", "Flags", hex, bits {
            response_requested: bool & 0x0001 = "smb_direct.flags.response_requested", "ResponseRequested";
        };
        /// Should be 0.
        reserved: le16 = "rdmascope.smb_direct.reserved", "Reserved", hex;
        /// Bytes of the SMB2 message still to come after this fragment.
        remaining_data_length: le32 = "smb_direct.remaining_length", "RemainingLength", dec;
        /// Bytes from the start of this header to the data; 0 without data, else a multiple of 8.
        data_offset: le32 = "smb_direct.data_offset", "DataOffset", dec;
        data_length: le32 = "smb_direct.data_length", "DataLength", dec;
    }
}

header! {
    /// A piece of registered memory that the sender lets the receiver read or write.
    pub struct BufferDescriptorV1 [NODE = "rdmascope.smb2.rdma_v1_descriptor", "RDMA V1 buffer descriptor", "[MS-SMBD] \
        2.2.3.1"] {
        offset: le64 = "smb2.buffer_descriptor.offset", "Offset", dec;
        /// The remote key (InfiniBand R_Key, iWARP STag).
        token: le32 = "smb2.buffer_descriptor.token", "Token", hex;
        /// In bytes.
        length: le32 = "smb2.buffer_descriptor.length", "Length", dec;
    }
}

/// A data transfer message taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data<'a> {
    /// Header of the message.
    pub header: DataTransfer,
    /// The part of its data inside the message: shorter than `data_length` if that points outside.
    pub data: &'a [u8],
    /// True if `data_offset` and `data_length` lie inside the message (`message_length` bytes of it on the wire).
    pub inside: bool,
}

/// Decodes a Negotiate Request in a protocol subtree of its own. `message` is a whole RDMA Send.
pub fn parse_negotiate_request<'a, T: Trace>(message: &'a [u8], t: &mut T) -> PResult<'a, NegotiateRequest> {
    t.protocol("SMB-Direct");
    scope(f::PROTOCOL, message, t, |i, t| {
        let (i, header) = NegotiateRequest::parse(i, t)?;
        t.info(format_args!("NegotiateRequest"));
        let (i, ()) = trailing(i, t)?;
        Ok((i, header))
    })
}

/// Decodes a Negotiate Response in a protocol subtree of its own. `message` is a whole RDMA Send.
pub fn parse_negotiate_response<'a, T: Trace>(message: &'a [u8], t: &mut T) -> PResult<'a, NegotiateResponse> {
    t.protocol("SMB-Direct");
    scope(f::PROTOCOL, message, t, |i, t| {
        let (i, header) = NegotiateResponse::parse(i, t)?;
        t.info(format_args!("NegotiateResponse"));
        if header.status != 0 {
            t.info(format_args!("Status {:#010x}", header.status));
        }
        let (i, ()) = trailing(i, t)?;
        Ok((i, header))
    })
}

/// Decodes a data transfer message in a protocol subtree of its own. `message` is a whole RDMA Send, or the captured
/// part of one that was `wire_length` bytes long. The data itself is left to the caller, which knows whether it is
/// complete.
pub fn parse_data<'a, T: Trace>(message: &'a [u8], wire_length: u32, t: &mut T) -> PResult<'a, Data<'a>> {
    t.protocol("SMB-Direct");
    scope(f::PROTOCOL, message, t, |i, t| {
        let (rest, header) = DataTransfer::parse(i, t)?;
        let (offset, length) = (header.data_offset as usize, header.data_length as usize);
        let end = u64::from(header.data_offset) + u64::from(header.data_length);
        let inside = end <= u64::from(wire_length) && (length == 0 || offset >= DataTransfer::LEN);
        let start = if length == 0 { DataTransfer::LEN } else { offset.clamp(DataTransfer::LEN, message.len()) };
        let data = if length == 0 {
            &message[DataTransfer::LEN..DataTransfer::LEN]
        } else {
            &message[start..start.saturating_add(length).min(message.len())]
        };
        if T::ON {
            if start > DataTransfer::LEN {
                t.field(f::PADDING, rest, start - DataTransfer::LEN, Value::Bytes(&rest[..start - DataTransfer::LEN]));
            }
            if !data.is_empty() {
                t.field(f::DATA, data, data.len(), Value::Bytes(data));
            }
            t.info(format_args!("DataMessage"));
            if header.remaining_data_length > 0 {
                t.info(format_args!("{} bytes remain", header.remaining_data_length));
            }
        }
        let after = &message[(start + data.len()).min(message.len())..];
        let (rest, ()) = trailing(after, t)?;
        Ok((rest, Data { header, data, inside }))
    })
}

fn trailing<'a, T: Trace>(i: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    let (i, _) = if i.is_empty() { (i, i) } else { read::bytes(f::TRAILING, i.len(), i, t)? };
    Ok((i, ()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Off, Tree};
    use alloc::vec::Vec;

    // [MS-SMBD] 4.1
    const REQUEST: [u8; 20] = [0, 1, 0, 1, 0, 0, 10, 0, 0, 4, 0, 0, 0, 4, 0, 0, 0, 0, 2, 0];

    #[test]
    fn the_spec_s_negotiate_request_reads_back() {
        let (rest, request) = NegotiateRequest::parse(&REQUEST, &mut Off).unwrap();
        assert!(rest.is_empty());
        let expected = NegotiateRequest {
            min_version: VERSION_1_0,
            max_version: VERSION_1_0,
            reserved: 0,
            credits_requested: 10,
            preferred_send_size: 1024,
            max_receive_size: 1024,
            max_fragmented_size: 131_072,
        };
        assert_eq!(request, expected);
        let mut out = Vec::new();
        request.emit(&mut out);
        assert_eq!(out, REQUEST);
    }

    #[test]
    fn every_prefix_gives_its_fields_and_a_fault() {
        for n in 0..REQUEST.len() {
            let mut tree = Tree::new();
            tree.begin(&REQUEST[..n]);
            let fault = crate::fault::fault_of(parse_negotiate_request(&REQUEST[..n], &mut tree).unwrap_err());
            assert_eq!(tree.faults.len(), 1, "told once");
            assert!(fault.offset_in(&REQUEST[..n]).is_some_and(|o| o <= n));
            assert!(tree.nodes.iter().all(|node| (node.offset + node.len) as usize <= n));
            assert_eq!(tree.number("smb_direct.version.max").is_some(), n >= 4);
        }
    }

    #[test]
    fn a_data_length_that_lies_still_gives_the_message() {
        let header = DataTransfer {
            credits_requested: 1,
            credits_granted: 0,
            flags: 1,
            reserved: 0,
            remaining_data_length: 0,
            data_offset: 24,
            data_length: 900,
        };
        let mut bytes = Vec::new();
        header.emit(&mut bytes);
        bytes.extend_from_slice(&[0, 0, 0, 0, 1, 2, 3, 4]);
        let mut tree = Tree::new();
        tree.begin(&bytes);
        let (_, data) = parse_data(&bytes, bytes.len() as u32, &mut tree).unwrap();
        assert_eq!((data.inside, data.data), (false, &[1, 2, 3, 4][..]));
        assert!(data.header.response_requested());
        assert_eq!(tree.number("smb_direct.flags.response_requested"), Some(1));
    }
}
