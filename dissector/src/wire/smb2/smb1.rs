//! SMB1, \[MS-CIFS\] 2.2.3.1, as far as it leads to SMB2: the multi-protocol negotiation, \[MS-SMB2\] 3.2.4.2.2.1.
//! Anything else of it is named and left.

use super::f as shared;
use crate::fault::PResult;
use crate::leaf::read;
use crate::trace::{Trace, Value, scope};

const NEGOTIATE: u8 = 0x72;

fields! {
    /// The dialects offered.
    pub mod f ["[MS-CIFS] 2.2.4.52"] {
        PROTOCOL: Protocol = "smb", "SMB (Server Message Block Protocol)";
        WORD_COUNT: U8 = "smb.wct", "Word Count (WCT)", dec;
        BYTE_COUNT: U16 = "smb.bcc", "Byte Count (BCC)", dec;
        BUFFER_FORMAT: U8 = "smb.buffer_format", "Buffer Format", dec;
        DIALECT: Str as Keep = "smb.dialect.name", "Name";
    }
}

header! {
    /// The SMB1 header.
    pub struct Smb1Header [NODE = "rdmascope.smb.header", "SMB Header", "[MS-CIFS] 2.2.3.1"] {
        /// `\xffSMB`
        protocol_id: bytes[4] as Keep = "rdmascope.smb.protocol_id", "Server Component";
        command: u8 = "smb.cmd", "SMB Command", hex, values &[(0x72, "Negotiate Protocol")];
        status: le32 = "smb.nt_status", "NT Status", hex;
        flags: u8 = "smb.flags", "Flags", hex, bits {
            is_response: bool & 0x80 = "smb.flags.response", "Request/Response";
        };
        flags2: le16 = "smb.flags2", "Flags2", hex;
        process_id_high: le16 = "smb.pid.high", "Process ID High", dec;
        signature: bytes[8] as Secret = "smb.signature", "Signature";
        reserved: bytes[2] as Keep = "smb.reserved", "Reserved";
        tree_id: le16 = "smb.tid", "Tree ID", dec;
        process_id: le16 = "smb.pid", "Process ID", dec;
        user_id: le16 = "smb.uid", "User ID", dec;
        multiplex_id: le16 = "smb.mid", "Multiplex ID", dec;
    }
}

/// Decodes an SMB1 message: the header, and of a NEGOTIATE request the dialects.
pub fn message<'a, T: Trace>(message: &'a [u8], t: &mut T) -> PResult<'a, Smb1Header> {
    t.protocol("SMB");
    scope(f::PROTOCOL, message, t, |i, t| {
        let (i, header) = Smb1Header::parse(i, t)?;
        let kind = if header.is_response() { "Response" } else { "Request" };
        if header.command != NEGOTIATE || header.is_response() {
            t.info(format_args!("SMB1 command {:#04x} {kind}", header.command));
            if !i.is_empty() {
                t.field(shared::UNKNOWN, i, i.len(), Value::Bytes(i));
            }
            return Ok((&i[i.len()..], header));
        }
        t.info(format_args!("Negotiate Protocol {kind}"));
        let (i, _) = read::u8(f::WORD_COUNT, i, t)?;
        let (mut i, _) = read::le16(f::BYTE_COUNT, i, t)?;
        while !i.is_empty() {
            (i, _) = read::u8(f::BUFFER_FORMAT, i, t)?;
            let length = i.iter().position(|b| *b == 0).unwrap_or(i.len());
            (i, _) = read::bytes(f::DIALECT, length, i, t)?;
            i = &i[1.min(i.len())..];
        }
        Ok((i, header))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Tree;

    #[test]
    fn a_multi_protocol_negotiation() {
        let mut bytes = b"\xffSMB\x72\0\0\0\0\x18\x53\xc8".to_vec();
        bytes.resize(32, 0);
        bytes.extend_from_slice(b"\0\x18\0\x02NT LM 0.12\0\x02SMB 2.???\0");
        let mut tree = Tree::new();
        tree.begin(&bytes);
        let (rest, header) = message(&bytes, &mut tree).unwrap();
        assert_eq!((rest.len(), header.command, header.flags2), (0, 0x72, 0xc853));
        let names: alloc::vec::Vec<_> = tree.all("smb.dialect.name").map(|n| tree.value_bytes(n)).collect();
        assert_eq!(names, [&b"NT LM 0.12"[..], b"SMB 2.???"]);
        for n in 0..bytes.len() {
            tree.begin(&bytes[..n]);
            let _ = message(&bytes[..n], &mut tree);
        }
    }
}
