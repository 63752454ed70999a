//! Truncation of frames to the part that analysis needs: whole messages, and bulk data without its bytes.
//!
//! The payload of RDMA Writes and Read Responses is cut off. The first packet of each keeps [`HEAD`] bytes of it, since
//! it may contain an RPC message (RFC 8166 section 3.5.2, long messages). Sends are kept whole: they carry the
//! messages. Over TCP, a segment that is exactly one FPDU with such a payload is cut; others carry message boundaries
//! and are kept whole.

use rdmascope_dissector::frame::{self, Addr, Body};
use rdmascope_dissector::trace::Off;
use rdmascope_dissector::wire::ib::bth::Opcode;

use crate::record::Record;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Bytes of bulk data kept of the first packet of an operation.
const HEAD: usize = 256;
/// MPA length, DDP and RDMAP control, steering tag, tagged offset.
const TAGGED: usize = 2 + 2 + 4 + 8;

/// The record with only those bytes that analysis needs. The CRCs at the ends of frames that are cut go too.
pub fn headers_only<'a>(record: Record<'a>) -> Record<'a> {
    let options = frame::Options { check_crc: false, ..frame::Options::default() };
    let mut packet = frame::decode(record.link_type, record.bytes, record.wire_len, &options, &mut Off);
    if is_local(packet.src) || packet.src == packet.dst {
        // within a host, one datagram may contain several packets: only their CRCs show this
        packet = frame::decode(record.link_type, record.bytes, record.wire_len, &frame::Options::default(), &mut Off);
    }
    let (payload, keep) = match &packet.body {
        Body::Ib(ib) if has_bulk(ib.bth.opcode) && ib.behind.is_empty() => {
            (ib.payload, if is_first(ib.bth.opcode) { HEAD } else { 0 })
        }
        Body::Tcp(segment) if is_tagged_fpdu(segment.payload, segment.payload_length) => {
            (segment.payload, TAGGED + HEAD)
        }
        _ => return record,
    };
    // the payload is a part of the frame
    let start = (payload.as_ptr() as usize).wrapping_sub(record.bytes.as_ptr() as usize);
    match start.checked_add(keep) {
        Some(len) if len < record.bytes.len() => record.cut(len),
        _ => record,
    }
}

/// Addresses of loopback.
fn is_local(address: Addr) -> bool {
    match address {
        Addr::V4(bytes) => Ipv4Addr::from(bytes).is_loopback(),
        Addr::V6(bytes) => Ipv6Addr::from(bytes).is_loopback(),
        Addr::Mac(_) | Addr::Lid(_) | Addr::None => false,
    }
}

/// RDMA WRITE and RDMA READ response of any service, but not their other packets.
fn has_bulk(opcode: u8) -> bool {
    Opcode(opcode).row().is_some_and(|_| matches!(opcode & 0x1f, 0x06..=0x0b | 0x0d..=0x10))
}

fn is_first(opcode: u8) -> bool {
    matches!(opcode & 0x1f, 0x06 | 0x0a | 0x0b | 0x0d | 0x10)
}

/// True if a segment is one whole FPDU of an RDMA Write or Read Response (RFC 5044 section 4, RFC 5041 section 4.2, RFC
/// 5040 section 4.1).
fn is_tagged_fpdu(payload: &[u8], length: u32) -> bool {
    let Some(head) = payload.first_chunk::<4>() else { return false };
    let ulpdu = u32::from(u16::from_be_bytes([head[0], head[1]]));
    // length field, ULPDU, padding to four bytes, CRC
    let whole = (2 + ulpdu).next_multiple_of(4) + 4;
    let (ddp, rdmap) = (head[2], head[3]);
    ulpdu as usize > TAGGED - 2
        && whole == length
        && ddp & 0x83 == 0x81
        && rdmap & 0xc0 == 0x40
        && matches!(rdmap & 0x0f, 0 | 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{OpenOptions, Source, open};
    use std::path::Path;

    fn sample(name: &str) -> crate::Capture {
        open(Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../samples/{name}/{name}.pcap")), OpenOptions::new())
            .unwrap()
    }

    #[test]
    fn bulk_data_is_cut_and_messages_are_not() {
        for name in ["smb-roce", "nfs-roce-v42", "smb-iwarp", "nfs-iwarp-v42"] {
            let mut capture = sample(name);
            let (mut cut, mut before, mut after) = (0u32, 0usize, 0usize);
            while let Some(record) = capture.next().unwrap() {
                let less = headers_only(record);
                before += record.bytes.len();
                after += less.bytes.len();
                assert_eq!((less.wire_len, less.time_ns), (record.wire_len, record.time_ns));
                cut += u32::from(less.bytes.len() < record.bytes.len());
            }
            assert!(cut > 0 && after < before, "{name}: {cut} frames, {before} to {after} bytes");
        }
    }

    #[test]
    fn a_segment_that_only_looks_similar_is_kept() {
        let mut fpdu = vec![0, 100, 0xc1, 0x40];
        fpdu.resize(108, 0);
        assert!(is_tagged_fpdu(&fpdu, 108));
        assert!(!is_tagged_fpdu(&fpdu, 112), "another FPDU follows");
        fpdu[2] = 0x41;
        assert!(!is_tagged_fpdu(&fpdu, 108), "untagged: a Send");
        assert!(!is_tagged_fpdu(&fpdu[..3], 3));
    }
}
