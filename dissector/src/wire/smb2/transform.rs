//! The wrapping of a message: SMB2_TRANSFORM_HEADER, \[MS-SMB2\] 2.2.41, before an encrypted one, and the compression
//! transform headers, 2.2.42, before and inside of a compressed one. Only the wrapping is decoded here; the owner of
//! the key decrypts, and [`super::compression`] decompresses.
//!
//! ```text
//! FD 'SMB'  signature  nonce  original size  reserved  flags  session │ encrypted message
//! FC 'SMB'  original size  algorithm  flags 0  offset │ offset bytes as they are │ compressed
//! FC 'SMB'  original size │ algorithm  flags 1  length  [original size] │ payload │ algorithm  flags 0  length … │ …
//! ```

use super::compression::Algorithm;
use super::f as shared;
use crate::fault::{Fault, PResult};
use crate::leaf::read;
use crate::trace::{Trace, Value, scope};

fields! {
    /// Fields of the variable part.
    pub mod f ["[MS-SMB2] 2.2.42"] {
        ENCRYPTED: Bytes = "smb2.header.transform.enc_data", "Encrypted SMB3 data";
        HEADER: None = "rdmascope.smb2.header.comp_transform", "SMB2 Compression Transform Header";
        PROTOCOL_ID: U32 = "smb2.protocol_id", "ProtocolId", hex;
        ORIGINAL_SIZE: U32 = "smb2.header.comp_transform.original_size", "OriginalSize", dec;
        ALGORITHM: U16 = "smb2.header.comp_transform.comp_alg", "CompressionAlgorithm", hex, values Algorithm::VALUES;
        FLAGS: U16 = "smb2.header.comp_transform.flags", "Flags", hex, values &[(0, "None"), (1, "Chained")];
        OFFSET: U32 = "smb2.header.comp_transform.offset", "Offset", hex;
        LENGTH: U32 = "smb2.header.comp_transform.length", "Length", hex;
        PAYLOAD: None = "rdmascope.smb2.header.comp_transform.payload", "COMPRESSION_PAYLOAD";
        PAYLOAD_SIZE: U32 = "smb2.header.comp_transform.orig_payload_size", "OriginalPayloadSize", dec;
        DATA: Bytes = "smb2.header.comp_transform.data", "CompressedData";
        PLAIN: Bytes = "rdmascope.smb2.header.comp_transform.uncompressed", "Uncompressed data";
        PATTERN: U8 = "smb2.pattern_v1.pattern", "Pattern", hex;
        PATTERN_RESERVED1: U8 = "smb2.pattern_v1.reserved1", "Reserved1", hex;
        PATTERN_RESERVED2: U16 = "smb2.pattern_v1.reserved2", "Reserved2", hex;
        PATTERN_REPETITIONS: U32 = "smb2.pattern_v1.repetitions", "Repetitions", dec;
    }
}

header! {
    /// Before an encrypted message.
    pub struct TransformHeader [NODE = "rdmascope.smb2.header.transform", "SMB2 Transform Header", "[MS-SMB2] 2.2.41"] {
        /// `\xfdSMB`
        protocol_id: be32 = "smb2.protocol_id", "ProtocolId", hex;
        /// The authentication tag.
        signature: bytes[16] as Secret = "smb2.header.transform.signature", "Signature";
        /// CCM uses the first 11 bytes, GCM the first 12.
        nonce: bytes[16] as Id = "smb2.header.transform.nonce", "Nonce";
        /// Bytes of the message before encryption; the same behind it.
        original_message_size: le32 = "smb2.header.transform.msg_size", "Message size", dec;
        reserved: bytes[2] as Keep = "smb2.header.transform.reserved", "Reserved";
        /// In SMB 3.0 and 3.0.2 the encryption algorithm, always 1.
        flags: le16 = "smb2.header.transform.flags", "Flags", hex, bits {
            encrypted: bool & 0x0001 = "smb2.header.transform.flags.encrypted", "Encrypted";
        };
        session_id: le64 = "smb2.sesid", "Session Id", hex;
    }
}

/// An encrypted message taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encrypted<'a> {
    /// SMB2 TRANSFORM_HEADER.
    pub header: TransformHeader,
    /// The bytes that the tag covers beside the message: the header from the nonce on.
    pub associated: &'a [u8],
    /// The message, encrypted: as many bytes as the header says, or those that were captured.
    pub message: &'a [u8],
}

/// A compressed message taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compressed<'a> {
    /// Bytes when decompressed: of the whole where chained, of the compressed part where not.
    pub original_size: u32,
    /// True if it is a chain of payloads.
    pub chained: bool,
    /// The first or only algorithm.
    pub algorithm: Algorithm,
    /// The whole message, header included: what [`super::compression::decompress_message`] takes.
    pub message: &'a [u8],
}

/// Decodes an encrypted message as far as that goes without a key.
pub fn encrypted<'a, T: Trace>(message: &'a [u8], t: &mut T) -> PResult<'a, Encrypted<'a>> {
    t.protocol("SMB2");
    scope(shared::PROTOCOL, message, t, |i, t| {
        let (i, header) = TransformHeader::parse(i, t)?;
        t.info(format_args!("Encrypted SMB3"));
        let length = (header.original_message_size as usize).min(i.len());
        let (rest, data) = read::bytes(f::ENCRYPTED, length, i, t)?;
        if length < header.original_message_size as usize {
            t.fault(&Fault::short(Some(f::ENCRYPTED), i, header.original_message_size as usize));
        }
        if !rest.is_empty() {
            t.field(shared::UNKNOWN, rest, rest.len(), Value::Bytes(rest));
        }
        Ok((&rest[rest.len()..], Encrypted { header, associated: &message[20..TransformHeader::LEN], message: data }))
    })
}

/// Decodes a compressed message as far as its headers.
pub fn compressed<'a, T: Trace>(message: &'a [u8], t: &mut T) -> PResult<'a, Compressed<'a>> {
    const FLAG_CHAINED: u64 = 1;
    t.protocol("SMB2");
    scope(shared::PROTOCOL, message, t, |i, t| {
        let chained = super::blob::number(message, 10, 2) & FLAG_CHAINED != 0;
        t.info(format_args!("Compressed SMB3"));
        let (i, original_size, algorithm) = {
            let (i, (size, algorithm)) = scope(f::HEADER, i, t, |i, t| {
                let (i, _) = read::be32(f::PROTOCOL_ID, i, t)?;
                let (i, size) = read::le32(f::ORIGINAL_SIZE, i, t)?;
                if chained {
                    return Ok((i, (size, super::blob::number(message, 8, 2) as u16)));
                }
                let (i, algorithm) = read::le16(f::ALGORITHM, i, t)?;
                let (i, _) = read::le16(f::FLAGS, i, t)?;
                let (i, offset) = read::le32(f::OFFSET, i, t)?;
                let plain = (offset as usize).min(i.len());
                let i = if plain > 0 { read::bytes(f::PLAIN, plain, i, t)?.0 } else { i };
                if plain < offset as usize {
                    return Fault::length(f::OFFSET, i, offset as usize).fail();
                }
                Ok((i, (size, algorithm)))
            })?;
            (i, size, Algorithm(algorithm))
        };
        let mut rest = i;
        if !chained && !rest.is_empty() {
            (rest, _) = read::bytes(f::DATA, rest.len(), rest, t)?;
        }
        // in a chain every payload has its header; eight bytes at least, so their number is bounded by the bytes
        while chained && T::ON && !rest.is_empty() {
            match scope(f::PAYLOAD, rest, t, payload) {
                Ok((next, ())) => rest = next,
                // reported; without an observer only the headers are read
                Err(_) => break,
            }
        }
        Ok((&message[message.len()..], Compressed { original_size, chained, algorithm, message }))
    })
}

fn payload<'a, T: Trace>(i: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    let (i, algorithm) = read::le16(f::ALGORITHM, i, t)?;
    let algorithm = Algorithm(algorithm);
    t.label(format_args!(": {algorithm}"));
    let (i, _) = read::le16(f::FLAGS, i, t)?;
    let (i, length) = read::le32(f::LENGTH, i, t)?;
    let Some((mut data, rest)) = i.split_at_checked(length as usize) else {
        return Fault::short(Some(f::LENGTH), i, length as usize).fail();
    };
    if algorithm == Algorithm::PATTERN_V1 {
        let (i, _) = read::u8(f::PATTERN, data, t)?;
        let (i, _) = read::u8(f::PATTERN_RESERVED1, i, t)?;
        let (i, _) = read::le16(f::PATTERN_RESERVED2, i, t)?;
        let (_, _) = read::le32(f::PATTERN_REPETITIONS, i, t)?;
        return Ok((rest, ()));
    }
    if algorithm.has_size() {
        (data, _) = read::le32(f::PAYLOAD_SIZE, data, t)?;
    }
    if !data.is_empty() {
        t.field(if algorithm == Algorithm::NONE { f::PLAIN } else { f::DATA }, data, data.len(), Value::Bytes(data));
    }
    Ok((rest, ()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Off, Tree};
    use alloc::vec::Vec;

    #[test]
    fn an_encrypted_message() {
        let mut bytes = Vec::new();
        let header = TransformHeader {
            protocol_id: u32::from_be_bytes(*b"\xfdSMB"),
            signature: [1; 16],
            nonce: [2; 16],
            original_message_size: 5,
            reserved: [0; 2],
            flags: 1,
            session_id: 77,
        };
        header.emit(&mut bytes);
        assert_eq!(bytes.len(), 52);
        bytes.extend_from_slice(b"hello");
        let (_, message) = encrypted(&bytes, &mut Off).unwrap();
        assert_eq!((message.header, message.message, message.associated.len()), (header, &b"hello"[..], 32));
        for n in 0..bytes.len() {
            let mut tree = Tree::new();
            tree.begin(&bytes[..n]);
            assert!(encrypted(&bytes[..n], &mut tree).is_err() || !tree.faults.is_empty());
        }
    }

    #[test]
    fn compressed_messages_of_both_forms() {
        let unchained = [&b"\xfcSMB"[..], &[64, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0], b"abc", b"rest"].concat();
        let mut tree = Tree::new();
        tree.begin(&unchained);
        let (_, message) = compressed(&unchained, &mut tree).unwrap();
        assert_eq!((message.chained, message.algorithm, message.original_size), (false, Algorithm::LZ77, 64));
        assert_eq!((tree.number("smb2.header.comp_transform.offset"), tree.faults.len()), (Some(3), 0));

        let mut chained = [&b"\xfcSMB"[..], &[72, 0, 0, 0]].concat();
        chained.extend_from_slice(&[4, 0, 1, 0, 8, 0, 0, 0, b'x', 0, 0, 0, 64, 0, 0, 0]);
        chained.extend_from_slice(&[1, 0, 0, 0, 7, 0, 0, 0, 8, 0, 0, 0, 1, 2, 3]);
        chained.extend_from_slice(&[0, 0, 0, 0, 2, 0, 0, 0, 5, 6]);
        tree.begin(&chained);
        let (_, message) = compressed(&chained, &mut tree).unwrap();
        assert_eq!((message.chained, message.algorithm), (true, Algorithm::PATTERN_V1));
        assert_eq!(tree.number("smb2.pattern_v1.repetitions"), Some(64));
        assert_eq!(tree.all("rdmascope.smb2.header.comp_transform.payload").count(), 3);
        assert_eq!((tree.number("smb2.header.comp_transform.orig_payload_size"), tree.faults.len()), (Some(8), 0));
        for n in 0..chained.len() {
            tree.begin(&chained[..n]);
            let _ = compressed(&chained[..n], &mut tree);
        }
    }
}
