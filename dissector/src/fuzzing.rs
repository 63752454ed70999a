//! Entry points of the fuzz targets: arbitrary bytes in, no panic, bounded cost.

use crate::extract::Extractor;
use crate::filter::{Filter, complete};
use crate::frame::{self, LinkType};
use crate::registry::Registry;
use crate::trace::{Off, Tree};
use crate::wire::ib::cm;
use crate::wire::iwarp::{mpa, rdmap};
use crate::wire::nfs::Op;
use crate::wire::rpc::{self, Memo, Program};
use crate::wire::rpcrdma::RpcRdma;
use crate::wire::smb2::compression::{Algorithm, decompress, decompress_message};
use crate::wire::smb2::{self, Header, Pdu, RequestMemo, RequestParameters};
use crate::wire::smbd;
use crate::wire::xdr::Stream;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// The first byte chooses the algorithm, or a whole compressed message; the rest is its input.
pub fn fuzz_decompress(data: &[u8]) {
    const LIMIT: usize = 1 << 20;
    let Some((&choice, input)) = data.split_first() else { return };
    let mut output = Vec::new();
    let result = match choice % 8 {
        n @ 0..=5 => decompress(Algorithm(u16::from(n)), input, &mut output, LIMIT),
        _ => decompress_message(input, &mut output, LIMIT),
    };
    assert!(output.len() <= LIMIT);
    assert!(result.map_or_else(|e| e.at <= input.len(), |()| true));
}

/// Decodes `$bytes` without an observer and with a tree: both must come to the same, and the tree must stay inside of
/// the bytes.
macro_rules! same_with_and_without_a_tree {
    ($bytes:expr, |$t:ident| $decode:expr) => {{
        let without = {
            let $t = &mut Off;
            format!("{:?}", $decode)
        };
        let mut tree = Tree::new();
        tree.begin($bytes);
        let with = {
            let $t = &mut tree;
            format!("{:?}", $decode)
        };
        // Without an observer a header is read at once, so that its fault does not name the field that was short.
        assert_eq!(without.split("Fault {").next(), with.split("Fault {").next());
        check(&tree);
    }};
}

fn check(tree: &Tree) {
    for node in &tree.nodes {
        let end = node.offset as usize + node.len as usize;
        assert!(
            end <= tree.sources()[usize::from(node.source)].bytes.len(),
            "{} ends at {end}, outside of its source",
            node.def.name
        );
        let _ = (tree.value_bytes(node), tree.note(node));
    }
}

/// A frame, down to the transport, on one thread and on two that share the work. The first byte chooses the link type, whether the capture cut the frame, and whether
/// checksums are checked.
pub fn fuzz_frame(data: &[u8]) {
    const LINKS: [LinkType; 12] = [
        LinkType::ETHERNET,
        LinkType::NULL,
        LinkType::RAW_BSD,
        LinkType::RAW_OPENBSD,
        LinkType::RAW,
        LinkType::LOOP,
        LinkType::LINUX_SLL,
        LinkType::ERF,
        LinkType::IPV4,
        LinkType::IPV6,
        LinkType::INFINIBAND,
        LinkType::LINUX_SLL2,
    ];
    let Some((&choice, bytes)) = data.split_first() else { return };
    let link = LINKS.get(usize::from(choice & 0x0f)).copied().unwrap_or(LinkType(u16::MAX));
    let wire_len = bytes.len() as u32 + if choice & 0x80 == 0 { 0 } else { 100 };
    let options = frame::Options { check_crc: choice & 0x40 != 0, ..frame::Options::default() };
    same_with_and_without_a_tree!(bytes, |t| frame::decode(link, bytes, wire_len, &options, t));
    let mut packet = frame::decode(link, bytes, wire_len, &options, &mut Off);
    let checked = frame::Checked::of(&mut packet, &options);
    let shared = frame::decode_checked(link, bytes, wire_len, &options, checked);
    assert_eq!(format!("{shared:?}"), format!("{:?}", frame::decode_and_check(link, bytes, wire_len, &options)));
}

/// The payload of a packet to queue pair 0 or 1.
pub fn fuzz_mad(data: &[u8]) {
    same_with_and_without_a_tree!(data, |t| cm::parse_mad(data, t));
}

/// An RDMA Send that may be any message of SMB Direct.
pub fn fuzz_smbd(data: &[u8]) {
    same_with_and_without_a_tree!(data, |t| smbd::parse_negotiate_request(data, t));
    same_with_and_without_a_tree!(data, |t| smbd::parse_negotiate_response(data, t));
    let wire_length = data.len() as u32;
    same_with_and_without_a_tree!(data, |t| smbd::parse_data(data, wire_length, t));
}

/// A display filter, parsed, evaluated on a frame without fields, and completed at every tenth of its length. Any
/// result will do; checked are that parsing ends, and the place that an error points at.
pub fn fuzz_filter(data: &[u8]) {
    let Ok(text) = core::str::from_utf8(data) else { return };
    let registry = Registry::new();
    let mut extractor = Extractor::new();
    match Filter::parse(text, &registry) {
        Ok(mut filter) => {
            filter.bind(&mut extractor);
            extractor.begin();
            let _ = filter.matches(&extractor);
        }
        Err(e) => {
            assert!(e.span.start <= e.span.end && e.span.end <= text.len(), "an error outside of the text");
            assert!(
                text.is_char_boundary(e.span.start) && text.is_char_boundary(e.span.end),
                "an error inside of a character"
            );
            let _ = e.render(text);
        }
    }
    for tenth in 0..=10 {
        let mut cursor = text.len() * tenth / 10;
        while !text.is_char_boundary(cursor) {
            cursor -= 1;
        }
        for s in complete(text, cursor, &registry) {
            assert!(
                s.replace.start <= s.replace.end && s.replace.end <= text.len(),
                "a suggestion outside of the text"
            );
        }
    }
}

/// An RPC-over-RDMA header, its lists walked, and written again.
pub fn fuzz_rpcrdma(data: &[u8]) {
    same_with_and_without_a_tree!(data, |t| RpcRdma::parse(data, t));
    let Ok((_, header)) = RpcRdma::parse(data, &mut Off) else { return };
    let bytes = header.reads.iter().map(|read| u64::from(read.segment().length)).sum::<u64>();
    assert_eq!(bytes, header.reads.length());
    let mut again = Vec::new();
    header.emit(&mut again);
    assert_eq!(RpcRdma::parse(&again, &mut Off).ok().map(|(_, header)| header.fixed), Some(header.fixed));
}

/// An RPC message with its arguments or results. The first byte chooses the call that a reply answers: program and
/// version; the second its procedure.
pub fn fuzz_rpc_nfs(data: &[u8]) {
    const CALLS: [(Program, u32); 8] = [
        (Program::NFS, 3),
        (Program::NFS, 4),
        (Program::NFS, 2),
        (Program::NFS_CALLBACK, 1),
        (Program::MOUNT, 3),
        (Program::NLM, 4),
        (Program::PORTMAP, 4),
        (Program::NFSACL, 3),
    ];
    let Some((&[choice, procedure], message)) = data.split_first_chunk() else { return };
    let (program, version) = CALLS[usize::from(choice) % CALLS.len()];
    let memo = (choice & 0x80 == 0)
        .then(|| Memo { minor: u32::from(choice >> 5 & 3), ..Memo::new(program, version, procedure.into()) });
    let stream = Stream::whole(message);
    same_with_and_without_a_tree!(message, |t| {
        let mut ops = String::new();
        let result = rpc::dissect(&stream, memo, t, &mut |op: &Op<'_>| ops.push_str(&format!("{op:?}")));
        (ops, result)
    });
}

struct Pdus {
    seen: String,
    memo: Option<RequestMemo>,
}

impl<'a> smb2::Visitor<'a> for Pdus {
    fn memo(&mut self, header: &Header) -> Option<RequestMemo> {
        self.memo.map(|memo| RequestMemo { command: header.command, ..memo })
    }

    fn pdu(&mut self, pdu: &Pdu<'a>) {
        self.seen.push_str(&format!("{:?}", pdu.header));
    }
}

/// An SMB2 message. The first byte chooses what replies answer, the second and third which class of information that
/// asked for.
pub fn fuzz_smb2(data: &[u8]) {
    let Some((&[choice, info_type, class], message)) = data.split_first_chunk() else { return };
    let asked = match choice % 8 {
        1 => RequestParameters::QueryInfo { info_type, class },
        2 => RequestParameters::SetInfo { info_type, class },
        3 => RequestParameters::QueryDirectory { class },
        4 => RequestParameters::Ioctl { code: 0x0014_0000 | u32::from(info_type) << 8 | u32::from(class) },
        5 => RequestParameters::Ioctl { code: 0x0009_0000 | u32::from(info_type) << 8 | u32::from(class) },
        _ => RequestParameters::Nothing,
    };
    let memo = (choice & 0x80 == 0).then(|| RequestMemo { asked, ..RequestMemo::default() });
    same_with_and_without_a_tree!(message, |t| {
        let mut pdus = Pdus { seen: String::new(), memo };
        let result = smb2::parse_message(message, t, &mut pdus);
        (pdus.seen, result.is_ok())
    });
}

/// A list of create contexts. The first byte says whether of a request or of its reply.
pub fn fuzz_create_contexts(data: &[u8]) {
    let Some((&choice, list)) = data.split_first() else { return };
    same_with_and_without_a_tree!(list, |t| smb2::create_context::parse_list(
        smb2::create::f::EXTRA_INFO,
        list,
        choice & 1 != 0,
        t
    ));
}

/// The security blob of a NEGOTIATE or SESSION_SETUP: SPNEGO, NTLMSSP or Kerberos.
pub fn fuzz_spnego(data: &[u8]) {
    same_with_and_without_a_tree!(data, |t| smb2::spnego::parse_blob(smb2::negotiate::f::SECURITY_BLOB, data, t));
}

/// Units of an iWARP TCP stream: an MPA startup frame, an FPDU (the first byte says whether CRCs are in use), a ULPDU.
pub fn fuzz_iwarp(data: &[u8]) {
    same_with_and_without_a_tree!(data, |t| mpa::parse_startup(data, t));
    let Some((&choice, bytes)) = data.split_first() else { return };
    let crc = if choice & 1 == 0 { mpa::Crc::Unused } else { mpa::Crc::Used(mpa::check(bytes)) };
    same_with_and_without_a_tree!(bytes, |t| mpa::parse_fpdu(bytes, crc, t));
    same_with_and_without_a_tree!(bytes, |t| rdmap::parse(bytes, t));
    let _ = mpa::opening(bytes);
}
