//! Encoders of whole requests, for our own client. The fixed part of each message is the struct that its parser
//! returns; the encoder fills in offsets and lengths and puts the variable part behind it. Nothing is checked, so that
//! a message may be wrong on purpose: change its fields, or its bytes.

use super::create::CreateRequestFixed;
use super::file::CloseRequest;
use super::header::{Command, Header};
use super::negotiate::{Dialect, NegotiateRequestFixed};
use super::read_write::{ReadRequestFixed, WriteRequestFixed};
use super::session::{Empty, SessionSetupRequestFixed};
use super::tree::TreeConnectRequestFixed;
use crate::header::Vec;
use crate::wire::smbd::BufferDescriptorV1;

const BODY: usize = Header::LEN;

/// UTF-16, little-endian.
pub fn utf16(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

fn with_header(header: &Header) -> Vec<u8> {
    let mut out = Vec::new();
    header.emit(&mut out);
    out
}

fn pad(out: &mut Vec<u8>) {
    out.resize(out.len().next_multiple_of(8), 0);
}

/// NEGOTIATE: `fixed` with its dialect count and place of contexts filled in, the dialects, and with SMB 3.1.1 among
/// them the contexts, each a type and its data.
pub fn negotiate(
    header: &Header,
    fixed: NegotiateRequestFixed,
    dialects: &[Dialect],
    contexts: &[(u16, &[u8])],
) -> Vec<u8> {
    let mut out = with_header(header);
    let first = (BODY + NegotiateRequestFixed::LEN + 2 * dialects.len()).next_multiple_of(8);
    let place =
        if contexts.is_empty() { fixed.contexts_or_start_time } else { first as u64 | (contexts.len() as u64) << 32 };
    NegotiateRequestFixed { dialect_count: dialects.len() as u16, contexts_or_start_time: place, ..fixed }
        .emit(&mut out);
    dialects.iter().for_each(|d| out.extend_from_slice(&d.0.to_le_bytes()));
    for (kind, data) in contexts {
        pad(&mut out);
        out.extend_from_slice(&kind.to_le_bytes());
        out.extend_from_slice(&(data.len() as u16).to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(data);
    }
    out
}

/// SESSION_SETUP with its token.
pub fn session_setup(header: &Header, fixed: SessionSetupRequestFixed, token: &[u8]) -> Vec<u8> {
    let mut out = with_header(header);
    let security_buffer_offset = (BODY + SessionSetupRequestFixed::LEN) as u16;
    SessionSetupRequestFixed { security_buffer_offset, security_buffer_length: token.len() as u16, ..fixed }
        .emit(&mut out);
    out.extend_from_slice(token);
    out
}

/// TREE_CONNECT to `\\server\share`.
pub fn tree_connect(header: &Header, path: &str) -> Vec<u8> {
    let (mut out, path) = (with_header(header), utf16(path));
    let path_offset = (BODY + TreeConnectRequestFixed::LEN) as u16;
    TreeConnectRequestFixed { structure_size: 9, flags: 0, path_offset, path_length: path.len() as u16 }.emit(&mut out);
    out.extend_from_slice(&path);
    out
}

/// CREATE of a name, relative to the share, with create contexts, each a name and its data.
pub fn create(header: &Header, fixed: CreateRequestFixed, name: &str, contexts: &[(&[u8], &[u8])]) -> Vec<u8> {
    const END: usize = BODY + CreateRequestFixed::LEN;
    let (name, mut list) = (utf16(name), Vec::new());
    for (n, (name, data)) in contexts.iter().enumerate() {
        let data_at = (16 + name.len()).next_multiple_of(8);
        let next = if n + 1 == contexts.len() { 0 } else { (data_at + data.len()).next_multiple_of(8) };
        let start = list.len();
        list.extend_from_slice(&(next as u32).to_le_bytes());
        for field in [16, name.len() as u16, 0, if data.is_empty() { 0 } else { data_at as u16 }] {
            list.extend_from_slice(&field.to_le_bytes());
        }
        list.extend_from_slice(&(data.len() as u32).to_le_bytes());
        list.extend_from_slice(name);
        list.resize(start + data_at, 0);
        list.extend_from_slice(data);
        if next > 0 {
            pad(&mut list);
        }
    }
    let contexts_offset = if list.is_empty() { 0 } else { (END + name.len()).next_multiple_of(8) as u32 };
    let contexts_length = list.len() as u32;
    let mut out = with_header(header);
    CreateRequestFixed {
        name_offset: END as u16,
        name_length: name.len() as u16,
        contexts_offset,
        contexts_length,
        ..fixed
    }
    .emit(&mut out);
    out.extend_from_slice(&name);
    // the buffer is at least one byte long
    if name.is_empty() && list.is_empty() {
        out.push(0);
    }
    if !list.is_empty() {
        pad(&mut out);
        out.extend_from_slice(&list);
    }
    out
}

/// READ, over RDMA where there are descriptors.
pub fn read(header: &Header, fixed: ReadRequestFixed, descriptors: &[BufferDescriptorV1]) -> Vec<u8> {
    let mut out = with_header(header);
    let (channel_info_offset, channel_info_length) = place(BODY + ReadRequestFixed::LEN, descriptors);
    ReadRequestFixed { channel_info_offset, channel_info_length, ..fixed }.emit(&mut out);
    descriptors.iter().for_each(|d| d.emit(&mut out));
    // the buffer is at least one byte long
    if descriptors.is_empty() {
        out.push(0);
    }
    out
}

/// WRITE of these data, or of the memory in the descriptors: then `fixed.remaining_bytes` is the length.
pub fn write(header: &Header, fixed: WriteRequestFixed, descriptors: &[BufferDescriptorV1], data: &[u8]) -> Vec<u8> {
    const END: usize = BODY + WriteRequestFixed::LEN;
    let mut out = with_header(header);
    let (channel_info_offset, channel_info_length) = place(END, descriptors);
    // without data the offset is whatever the caller gave: over RDMA a client sends 0
    let data_offset = if data.is_empty() { fixed.data_offset } else { (END + usize::from(channel_info_length)) as u16 };
    WriteRequestFixed { channel_info_offset, channel_info_length, data_offset, length: data.len() as u32, ..fixed }
        .emit(&mut out);
    descriptors.iter().for_each(|d| d.emit(&mut out));
    out.extend_from_slice(data);
    out
}

/// CLOSE.
pub fn close(header: &Header, fixed: CloseRequest) -> Vec<u8> {
    let mut out = with_header(header);
    fixed.emit(&mut out);
    out
}

/// A request without parameters: LOGOFF, TREE_DISCONNECT, ECHO, CANCEL.
pub fn empty(header: &Header) -> Vec<u8> {
    let mut out = with_header(header);
    Empty { structure_size: 4, reserved: [0; 2] }.emit(&mut out);
    out
}

/// Chains messages to a compound: each is padded to a multiple of 8, and its NextCommand set.
pub fn compound(messages: &[Vec<u8>]) -> Vec<u8> {
    const NEXT_COMMAND: core::ops::Range<usize> = 20..24;
    let mut out = Vec::new();
    for (n, message) in messages.iter().enumerate() {
        let start = out.len();
        out.extend_from_slice(message);
        if n + 1 < messages.len() {
            pad(&mut out);
            let length = (out.len() - start) as u32;
            if let Some(next) = out.get_mut(start..).and_then(|m| m.get_mut(NEXT_COMMAND)) {
                next.copy_from_slice(&length.to_le_bytes());
            }
        }
    }
    out
}

fn place(end: usize, descriptors: &[BufferDescriptorV1]) -> (u16, u16) {
    if descriptors.is_empty() { (0, 0) } else { (end as u16, (BufferDescriptorV1::LEN * descriptors.len()) as u16) }
}

/// The header of a request with the credits that a payload of this many bytes takes, \[MS-SMB2\] 3.1.5.2.
pub fn header_for(command: Command, message_id: u64, payload: u32) -> Header {
    let credit_charge = (payload.max(1) - 1) / 65536 + 1;
    Header { credit_charge: credit_charge.min(u16::MAX.into()) as u16, ..Header::request(command, message_id) }
}

#[cfg(test)]
mod tests {
    use super::super::Body;
    use super::super::tests::{decode, real};
    use super::*;

    /// Encoding a parsed request gives the captured bytes again.
    #[test]
    fn real_requests_are_written_again() {
        for name in ["negotiate", "session setup", "tree connect", "create durable", "close", "read rdma", "write rdma"]
        {
            let bytes = real(name);
            let (pdus, _) = decode(&bytes, &[]);
            let h = &pdus[0].header;
            let again = match pdus[0].body.unwrap() {
                Body::NegotiateRequest(b) => {
                    let dialects: Vec<_> = b.dialects().collect();
                    let contexts: Vec<_> = b.contexts.map(|c| (c.context_type.0, c.data)).collect();
                    negotiate(h, b.fixed, &dialects, &contexts)
                }
                Body::SessionSetupRequest(b) => session_setup(h, b.fixed, b.security.bytes),
                Body::TreeConnectRequest(b) => tree_connect(h, &alloc::format!("{}", b.path())),
                Body::CreateRequest(b) => {
                    let contexts: Vec<_> = b.contexts().map(|c| (c.name, c.data)).collect();
                    create(h, b.fixed, &alloc::format!("{}", b.name()), &contexts)
                }
                Body::CloseRequest(b) => close(h, b),
                Body::ReadRequest(b) => read(h, b.fixed, &b.channel.descriptors().collect::<Vec<_>>()),
                Body::WriteRequest(b) => write(h, b.fixed, &b.channel.descriptors().collect::<Vec<_>>(), b.data.bytes),
                _ => unreachable!("no encoder for {name}"),
            };
            let (pdus, tree) = decode(&again, &[]);
            assert!(pdus[0].body.is_ok() && tree.faults.is_empty(), "{name}");
            // clients pad: compare up to the shorter end, and no less than the fixed part
            let n = bytes.len().min(again.len());
            assert!(n > 80 && bytes.len().abs_diff(again.len()) <= 8);
            assert_eq!(bytes[..n], again[..n], "{name}");
        }
    }

    #[test]
    fn a_compound_and_its_credits() {
        let fixed = CloseRequest { structure_size: 24, flags: 0, reserved: [0; 4], file_id: [7; 16] };
        let bytes =
            compound(&[close(&Header::request(Command::CLOSE, 1), fixed), empty(&Header::request(Command::ECHO, 2))]);
        let (pdus, tree) = decode(&bytes, &[]);
        assert_eq!(
            (pdus.len(), pdus[0].header.next_command, tree.info.as_str()),
            (2, 88, "Close Request; KeepAlive Request")
        );
        let charge = |payload| header_for(Command::READ, 1, payload).credit_charge;
        assert_eq!((charge(0), charge(65536), charge(65537), charge(1 << 20)), (1, 1, 2, 16));
    }
}
