//! Tests over whole messages: real ones out of a capture, and ones made from the spec's layout.

use super::*;
use crate::trace::{Off, Tree};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;

/// A message of a real mount, by the name it has in `testdata/mount.txt`.
pub(super) fn real(name: &str) -> Vec<u8> {
    let line = REAL
        .lines()
        .find_map(|l| l.split_once('\t').filter(|(n, _)| *n == name))
        .unwrap_or_else(|| panic!("no message {name}"));
    unhex(line.1)
}

const REAL: &str = include_str!("testdata/mount.txt");

pub(super) fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|d| u8::from_str_radix(core::str::from_utf8(d).unwrap(), 16).unwrap()).collect()
}

/// A visitor that records its calls, and has one memo for all replies.
#[derive(Default)]
pub(super) struct Seen<'a> {
    pub(super) memos: Vec<RequestMemo>,
    pub(super) pdus: Vec<Pdu<'a>>,
}

impl<'a> Visitor<'a> for Seen<'a> {
    fn memo(&mut self, header: &Header) -> Option<RequestMemo> {
        self.memos.iter().find(|m| m.command == header.command).copied()
    }
    fn pdu(&mut self, pdu: &Pdu<'a>) {
        self.pdus.push(*pdu);
    }
}

/// Decodes without and with a tree.
pub(super) fn decode<'a>(message: &'a [u8], memos: &[RequestMemo]) -> (Vec<Pdu<'a>>, Tree) {
    let mut off = Seen { memos: memos.to_vec(), pdus: vec![] };
    let quiet = parse_message(message, &mut Off, &mut off).is_ok();
    let mut tree = Tree::new();
    tree.begin(message);
    let mut told = Seen { memos: memos.to_vec(), pdus: vec![] };
    let loud = parse_message(message, &mut tree, &mut told).is_ok();
    assert_eq!(quiet, loud, "read with an observer as without");
    assert_eq!(off.pdus.len(), told.pdus.len());
    for node in &tree.nodes {
        assert!((node.offset + node.len) as usize <= message.len(), "{} lies outside", node.def.name);
    }
    (told.pdus, tree)
}

pub(super) fn memo(command: Command, asked: RequestParameters) -> RequestMemo {
    RequestMemo { command, related: false, asked }
}

/// A message of one PDU: this header, this body.
pub(super) fn message(header: Header, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    header.emit(&mut bytes);
    bytes.extend_from_slice(body);
    bytes
}

pub(super) fn reply(command: Command, status: NtStatus) -> Header {
    Header { flags: header::flags::RESPONSE, status_or_channel_sequence: status.0, ..Header::request(command, 7) }
}

#[test]
fn a_read_over_rdma() {
    let bytes = real("read rdma");
    let (pdus, tree) = decode(&bytes, &[]);
    let Ok(Body::ReadRequest(read)) = &pdus[0].body else { panic!("{:?}", pdus[0].body) };
    assert_eq!(
        (read.fixed.length, read.fixed.offset, read.channel.channel),
        (1_048_576, 0, Channel::RDMA_V1_INVALIDATE)
    );
    assert_eq!((read.channel.blob.offset, read.channel.blob.length, read.channel.blob.inside), (112, 16, true));
    let descriptor = read.channel.descriptors().next().unwrap();
    assert_eq!(
        (descriptor.offset, descriptor.token, descriptor.length),
        (18_392_443_422_922_223_616, 0x445, 1_048_576)
    );
    assert_eq!((read.file().persistent(), read.file().volatile()), (11, 11));
    assert_eq!(
        pdus[0].memo().asked,
        RequestParameters::Read { channel: Channel::RDMA_V1_INVALIDATE, length: 1_048_576, offset: 0 }
    );
    assert_eq!(tree.number("smb2.buffer_descriptor.token"), Some(0x445));
    assert_eq!((tree.protocol, tree.info.as_str()), ("SMB2", "Read Request Len:1048576 Off:0"));
    assert!(tree.faults.is_empty());

    let bytes = real("read rdma reply");
    let (pdus, tree) = decode(&bytes, &[]);
    let Ok(Body::ReadResponse(read)) = &pdus[0].body else { panic!() };
    assert_eq!((read.fixed.data_remaining, read.data.length, read.data.bytes.len()), (6, 0, 0));
    assert_eq!(tree.number("smb2.read_remaining"), Some(6));
}

#[test]
fn a_write_over_rdma_and_one_with_its_data() {
    let bytes = real("write rdma");
    let (pdus, tree) = decode(&bytes, &[]);
    let Ok(Body::WriteRequest(write)) = &pdus[0].body else { panic!() };
    assert_eq!((write.fixed.length, write.payload_length(), write.channel.described_length()), (0, 8192, 8192));
    assert_eq!(tree.info, "Write Request Len:8192 Off:0");
    assert!(write.data.is_empty() && write.data.inside);

    let fixed = read_write::WriteRequestFixed {
        structure_size: 49,
        data_offset: 112,
        length: 5,
        offset: 1 << 40,
        file_id: [1; 16],
        channel: 0,
        remaining_bytes: 0,
        channel_info_offset: 0,
        channel_info_length: 0,
        flags: 1,
    };
    let mut body = Vec::new();
    fixed.emit(&mut body);
    body.extend_from_slice(b"hello");
    let bytes = message(Header::request(Command::WRITE, 9), &body);
    let (pdus, tree) = decode(&bytes, &[]);
    let Ok(Body::WriteRequest(write)) = &pdus[0].body else { panic!() };
    assert_eq!((write.data.bytes, write.data.inside, write.fixed.write_through()), (&b"hello"[..], true, true));
    assert_eq!(tree.all("smb2.write_data").count(), 1);
    let cut = &bytes[..bytes.len() - 2];
    let (pdus, tree) = decode(cut, &[]);
    let Ok(Body::WriteRequest(write)) = &pdus[0].body else { panic!() };
    assert_eq!((write.data.bytes, write.data.inside), (&b"hel"[..], false));
    assert_eq!(tree.faults.len(), 1);
}

#[test]
fn a_read_reply_whose_data_went_through_a_transform() {
    let mut body = Vec::new();
    let flags = 1;
    read_write::ReadResponseFixed {
        structure_size: 17,
        data_offset: 80,
        reserved: [0],
        data_length: 43,
        data_remaining: 4096,
        flags,
    }
    .emit(&mut body);
    rdma_channel::RdmaTransformFixed {
        descriptor_offset: 0,
        descriptor_length: 0,
        channel: 0,
        transform_count: 1,
        reserved1: 0,
        reserved2: 0,
    }
    .emit(&mut body);
    rdma_channel::CryptoTransformFixed { transform_type: 2, signature_length: 16, nonce_length: 3, reserved: 0 }
        .emit(&mut body);
    body.extend_from_slice(&[9; 19]);
    let bytes = message(reply(Command::READ, NtStatus::SUCCESS), &body);
    let (pdus, tree) = decode(&bytes, &[]);
    let Ok(Body::ReadResponse(read)) = &pdus[0].body else { panic!() };
    let transforms: Vec<_> = read.transform().unwrap().transforms().collect();
    assert_eq!((transforms.len(), transforms[0].signature, transforms[0].nonce), (1, &[9; 16][..], &[9; 3][..]));
    assert_eq!((tree.number("rdmascope.smb2.rdma_crypto_transform.type"), tree.faults.len()), (Some(2), 0));
}

#[test]
fn ksmbd_s_query_info_body_under_an_error_and_the_rest_of_the_compound() {
    let bytes = real("compound full ea reply, no eas on file");
    let (pdus, tree) = decode(&bytes, &[]);
    let seen: Vec<_> = pdus.iter().map(|p| (p.header.command, p.header.status(), p.form)).collect();
    assert_eq!(
        seen,
        [
            (Command::CREATE, NtStatus::SUCCESS, BodyForm::Expected),
            (Command::QUERY_INFO, NtStatus::NO_EAS_ON_FILE, BodyForm::OwnUnderError),
            (Command::CLOSE, NtStatus::SUCCESS, BodyForm::Expected),
        ]
    );
    assert!(tree.faults.is_empty());
    assert_eq!(tree.info, "Create Response; GetInfo Response, Error: STATUS_NO_EAS_ON_FILE; Close Response");
}

#[test]
fn error_bodies_are_distinguished_from_the_command_s_own() {
    // an honest ERROR with the same StructureSize
    let error = [9, 0, 0, 0, 0, 0, 0, 0, 0];
    let status = NtStatus::NO_EAS_ON_FILE;
    let form = |command, status, body: &[u8]| {
        let bytes = message(reply(command, status), body);
        let (pdus, _) = decode(&bytes, &[]);
        (pdus[0].form, matches!(pdus[0].body, Ok(Body::Error(_))))
    };
    assert_eq!(form(Command::QUERY_INFO, status, &error), (BodyForm::Expected, true));
    assert_eq!(form(Command::QUERY_INFO, status, &[9, 0, 72, 0, 0, 0, 0, 0]), (BodyForm::OwnUnderError, false));
    assert_eq!(
        form(Command::QUERY_INFO, NtStatus::BUFFER_OVERFLOW, &[9, 0, 72, 0, 2, 0, 0, 0, 1, 2]),
        (BodyForm::Expected, false)
    );
    assert_eq!(form(Command::READ, NtStatus::SUCCESS, &error), (BodyForm::ErrorUnderSuccess, true));
    assert_eq!(form(Command::READ, NtStatus::END_OF_FILE, &error), (BodyForm::Expected, true));
    assert_eq!(form(Command::READ, NtStatus::PENDING, &error), (BodyForm::Expected, true));
    assert_eq!(
        form(Command::WRITE, NtStatus::ACCESS_DENIED, &[17, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        (BodyForm::OwnUnderError, false)
    );
    assert_eq!(
        form(Command::CHANGE_NOTIFY, NtStatus::NOTIFY_ENUM_DIR, &[9, 0, 72, 0, 0, 0, 0, 0]),
        (BodyForm::Expected, false)
    );
    assert_eq!(form(Command::CHANGE_NOTIFY, NtStatus::NOTIFY_CLEANUP, &error), (BodyForm::Expected, true));
    let mut copychunk = vec![49, 0, 0, 0];
    copychunk.extend_from_slice(&0x1440f2u32.to_le_bytes());
    copychunk.resize(48, 0);
    assert_eq!(form(Command::IOCTL, NtStatus::INVALID_PARAMETER, &copychunk), (BodyForm::Expected, false));
    assert_eq!(form(Command::IOCTL, NtStatus::ACCESS_DENIED, &copychunk), (BodyForm::OwnUnderError, false));
    assert_eq!(form(Command::CREATE, NtStatus::ACCESS_DENIED, &[4, 0, 0, 0, 0, 0, 0, 0, 0]).0, BodyForm::Neither);
}

#[test]
fn negotiation_with_its_contexts() {
    let bytes = real("negotiate");
    let (pdus, tree) = decode(&bytes, &[]);
    let Ok(Body::NegotiateRequest(request)) = &pdus[0].body else { panic!() };
    assert_eq!(request.dialects().collect::<Vec<_>>(), [negotiate::Dialect::SMB_3_1_1]);
    let contexts: Vec<_> = request.contexts.collect();
    use negotiate::ContextType as C;
    assert_eq!(
        contexts.iter().map(|c| c.context_type).collect::<Vec<_>>(),
        [C::PREAUTH_INTEGRITY, C::ENCRYPTION, C::NETNAME, C::POSIX]
    );
    assert_eq!(contexts[0].ids().collect::<Vec<_>>(), [1]);
    assert_eq!(contexts[1].ids().collect::<Vec<_>>(), [2, 4, 1]);
    assert_eq!((tree.number("smb2.negotiate_context.salt_length"), tree.faults.len()), (Some(32), 0));

    let bytes = real("negotiate reply");
    let (pdus, tree) = decode(&bytes, &[]);
    let Ok(Body::NegotiateResponse(response)) = &pdus[0].body else { panic!() };
    assert_eq!((response.dialect(), response.fixed.max_read_size), (negotiate::Dialect::SMB_3_1_1, 4_194_304));
    assert_eq!((response.contexts.count(), response.security.length, tree.faults.len()), (3, 74, 0));
}

#[test]
fn create_names_and_files() {
    let bytes = real("create durable");
    let (pdus, tree) = decode(&bytes, &[]);
    let Ok(Body::CreateRequest(create)) = &pdus[0].body else { panic!() };
    assert_eq!(alloc::format!("{}", create.name()), "w1.bin");
    assert_eq!(create.contexts().map(|c| c.name).collect::<Vec<_>>(), [b"DHnQ", b"QFid"]);
    assert_eq!(tree.info, "Create Request File: w1.bin");
    assert!(create.fixed.generic_write() && create.fixed.non_directory_file());
    let bytes = real("create durable reply");
    let (pdus, _) = decode(&bytes, &[]);
    let Ok(Body::CreateResponse(create)) = &pdus[0].body else { panic!() };
    assert_ne!(create.file(), FileId::default());
}

#[test]
fn a_chain_offset_that_lies_ends_the_compound() {
    let mut bytes = real("compound create query close");
    let (pdus, _) = decode(&bytes, &[]);
    assert_eq!(pdus.len(), 3);
    assert_eq!((pdus[0].offset, pdus[1].offset), (0, pdus[0].header.next_command as usize));
    for next in [1u32, 63, 90, 0x7fff_ffff, u32::MAX] {
        bytes[20..24].copy_from_slice(&next.to_le_bytes());
        let (pdus, tree) = decode(&bytes, &[]);
        assert_eq!(pdus.len(), 1, "{next}");
        assert!(!tree.faults.is_empty());
    }
}

#[test]
fn real_messages_decode_without_a_fault_and_their_prefixes_without_a_panic() {
    let mut seen = 0;
    for line in REAL.lines().filter(|l| !l.starts_with('#')) {
        let (name, hex) = line.split_once('\t').unwrap();
        let bytes = unhex(hex);
        let (pdus, tree) = decode(&bytes, &[]);
        assert!(tree.faults.is_empty(), "{name}: {:?}", tree.faults);
        assert!(pdus.iter().all(|p| p.body.is_ok()));
        for n in 0..bytes.len() {
            let (pdus, tree) = decode(&bytes[..n], &[]);
            assert!(n < 64 || !pdus.is_empty());
            assert!(!tree.info.is_empty() || n < 4, "{name} {n}");
        }
        seen += 1;
    }
    assert!(seen > 40);
}

proptest! {
    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300), command in 0u16..21, flags in 0u32..8, status in 0usize..8) {
        let status = [0, 0x103, 0xc000_0016, 0x8000_0005, 0xc000_0052, 0x8000_002d, 0xc000_0023, 0xc000_00cc][status];
        let header = Header { flags, status_or_channel_sequence: status, ..Header::request(Command(command), 1) };
        decode(&message(header, &bytes), &[]);
        decode(&bytes, &[]);
    }

    #[test]
    fn damaged_real_messages_do_not_panic(line in 1usize..44, at in 0usize..400, value: u8, at2 in 0usize..400, value2: u8) {
        let Some((_, hex)) = REAL.lines().nth(line).and_then(|l| l.split_once('\t')) else { return Ok(()) };
        let mut bytes = unhex(hex);
        for (at, value) in [(at, value), (at2, value2)] {
            let len = bytes.len();
            bytes[at % len] = value;
        }
        decode(&bytes, &[]);
    }
}

#[allow(dead_code)]
pub(super) fn lines(tree: &Tree) -> String {
    use core::fmt::Write;
    let mut out = String::new();
    for node in &tree.nodes {
        let _ = writeln!(out, "{:depth$}{} {:?}", "", node.def.name, node.value, depth = 2 * usize::from(node.depth));
    }
    out
}
