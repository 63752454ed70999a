//! The examples of \[MS-SMBD\] section 4, as bytes.
#![allow(missing_docs)]

use rdmascope_dissector::trace::{Off, Tree};
use rdmascope_dissector::wire::smbd::{self, BufferDescriptorV1, DataTransfer, NegotiateRequest, NegotiateResponse};

/// CreditsRequested 10, CreditsGranted as given, no flags; RemainingDataLength, DataOffset 24, DataLength, four bytes
/// of padding, data.
fn data(granted: u8, remaining: u32, length: u32) -> Vec<u8> {
    let mut bytes = vec![0x0a, 0x00, granted, 0x00, 0x00, 0x00, 0x00, 0x00];
    bytes.extend_from_slice(&remaining.to_le_bytes());
    bytes.extend_from_slice(&[0x18, 0x00, 0x00, 0x00]);
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(&[0x00; 4]);
    bytes.resize(24 + length as usize, 0x5a);
    bytes
}

/// Reads a data transfer message with and without an observer, and writes its header again.
fn read(bytes: &[u8]) -> DataTransfer {
    let mut tree = Tree::new();
    tree.begin(bytes);
    let (rest, seen) = smbd::parse_data(bytes, bytes.len() as u32, &mut tree).unwrap();
    let (_, quiet) = smbd::parse_data(bytes, bytes.len() as u32, &mut Off).unwrap();
    assert_eq!((rest.len(), seen.inside, seen.data, seen), (0, true, &bytes[24..], quiet));
    assert_eq!(tree.number("smb_direct.data_offset"), Some(24));
    let mut out = Vec::new();
    seen.header.emit(&mut out);
    assert_eq!(out, bytes[..20]);
    seen.header
}

#[test]
fn example_4_1_establishing_a_connection() {
    let request = [
        0x00, 0x01, 0x00, 0x01, 0x00, 0x00, 0x0a, 0x00, 0x00, 0x04, 0x00, 0x00, 0x00, 0x04, 0x00, 0x00, 0x00, 0x00,
        0x02, 0x00,
    ];
    let (_, message) = NegotiateRequest::parse(&request, &mut Off).unwrap();
    assert_eq!((message.min_version, message.max_version, message.credits_requested), (0x0100, 0x0100, 10));
    assert_eq!(
        (message.preferred_send_size, message.max_receive_size, message.max_fragmented_size),
        (1024, 1024, 131_072)
    );
    let response = [
        0x00, 0x01, 0x00, 0x01, 0x00, 0x01, 0x00, 0x00, 0x0a, 0x00, 0x0a, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x10, 0x00, 0x00, 0x04, 0x00, 0x00, 0x00, 0x04, 0x00, 0x00, 0x00, 0x00, 0x02, 0x00,
    ];
    let (_, message) = NegotiateResponse::parse(&response, &mut Off).unwrap();
    assert_eq!(
        (message.negotiated_version, message.credits_requested, message.credits_granted, message.status),
        (0x0100, 10, 10, 0)
    );
    assert_eq!((message.max_read_write_size, message.preferred_send_size), (1 << 20, 1024));
    assert_eq!((message.max_receive_size, message.max_fragmented_size), (1024, 131_072));
    let mut out = Vec::new();
    message.emit(&mut out);
    assert_eq!(out, response);
    // the first data transfer grants an initial limit of 10
    let first = read(&data(10, 0, 200));
    assert_eq!((first.credits_requested, first.credits_granted, first.flags, first.reserved), (10, 10, 0, 0));
}

#[test]
fn example_4_2_peer_transmits_500_bytes() {
    let header = read(&data(1, 0, 500));
    assert_eq!(
        (header.credits_requested, header.credits_granted, header.remaining_data_length, header.data_length),
        (10, 1, 0, 500)
    );
}

#[test]
fn example_4_3_peer_transmits_64_kib() {
    let mut left = 65_536_u32;
    let mut fragments = 0;
    while left > 0 {
        let length = left.min(1000);
        left -= length;
        fragments += 1;
        let header = read(&data(1, left, length));
        assert_eq!((header.remaining_data_length, header.data_length), (left, length));
    }
    // 65 of 1000 bytes, and a last one of 536
    assert_eq!((fragments, 65_536 - 65 * 1000), (66, 536));
}

#[test]
fn examples_4_4_and_4_5_describe_a_mebibyte() {
    let to_be_read = [0x12, 0xe0, 0xcd, 0xab, 0x00, 0x00, 0x00, 0x00, 0x56, 0xbc, 0x00, 0x1a, 0x00, 0x00, 0x10, 0x00];
    let to_be_written =
        [0x24, 0xa0, 0xcb, 0x0d, 0x00, 0x00, 0x00, 0x00, 0x57, 0xbc, 0x00, 0x1a, 0x00, 0x00, 0x10, 0x00];
    for (bytes, offset, token) in [(to_be_read, 0xabcd_e012, 0x1a00_bc56), (to_be_written, 0x0dcb_a024, 0x1a00_bc57)] {
        let (_, descriptor) = BufferDescriptorV1::parse(&bytes, &mut Off).unwrap();
        assert_eq!(descriptor, BufferDescriptorV1 { offset, token, length: 1 << 20 });
        let mut out = Vec::new();
        descriptor.emit(&mut out);
        assert_eq!(out, bytes);
        // it travels in an upper-layer message of 500 bytes
        let mut message = data(1, 0, 500);
        message[24 + 100..24 + 116].copy_from_slice(&bytes);
        assert_eq!(read(&message).data_length, 500);
    }
}
