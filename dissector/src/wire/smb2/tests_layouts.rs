//! Every command, context, information class and FSCTL once, made from the layout that its specification draws.

use super::info::{FileClass, FsClass, InfoType};
use super::ioctl::ControlCode;
use super::tests::{decode, memo, message, reply, unhex};
use super::*;
use crate::trace::Tree;
use alloc::vec::Vec;

/// Writes little-endian.
#[derive(Default, Clone)]
struct W(Vec<u8>);

impl W {
    fn u8(mut self, v: u8) -> Self {
        self.0.push(v);
        self
    }
    fn u16(mut self, v: u16) -> Self {
        self.0.extend(v.to_le_bytes());
        self
    }
    fn u32(mut self, v: u32) -> Self {
        self.0.extend(v.to_le_bytes());
        self
    }
    fn u64(mut self, v: u64) -> Self {
        self.0.extend(v.to_le_bytes());
        self
    }
    fn put(mut self, v: &[u8]) -> Self {
        self.0.extend(v);
        self
    }
    fn text(mut self, v: &str) -> Self {
        self.0.extend(v.encode_utf16().flat_map(u16::to_le_bytes));
        self
    }
}

fn w() -> W {
    W::default()
}

const TIME: u64 = 0x01dd_798d_bf36_0000;
const EVERYONE: [u8; 12] = [1, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0];

/// Checks a message: no fault, nothing unknown, and these numbers; its prefixes end without a panic, and prefixes cut
/// within the fixed part end with a fault.
fn check(what: &str, bytes: &[u8], memos: &[RequestMemo], numbers: &[(&str, u64)]) -> Tree {
    let (pdus, tree) = decode(bytes, memos);
    assert!(pdus.iter().all(|p| p.body.is_ok()), "{what}: {:?}", pdus[0].body);
    assert!(tree.faults.is_empty(), "{what}: {:?}", tree.faults);
    for blob in ["smb2.unknown", "rdmascope.smb2.body.data"] {
        assert_eq!(
            tree.all(blob).count(),
            0,
            "{what} has a blob: {:x?}",
            tree.all(blob).map(|n| tree.covered(n)).collect::<Vec<_>>()
        );
    }
    for (name, value) in numbers {
        assert_eq!(tree.number(name), Some(*value), "{what}: {name}");
    }
    for n in (0..bytes.len()).step_by(1 + bytes.len() / 1000) {
        let (pdus, cut) = decode(&bytes[..n], memos);
        assert!(n >= 66 || !cut.faults.is_empty() && pdus.iter().all(|p| p.body.is_err()), "{what} cut to {n}");
    }
    tree
}

fn request(command: Command) -> Header {
    Header::request(command, 3)
}

#[test]
fn sessions_and_trees() {
    let token = b"NTLMSSP\0\x01\0\0\0\x07\x82\x08\xa2\0\0\0\0\x20\0\0\0\0\0\0\0\x20\0\0\0";
    let body = w().u16(25).u8(1).u8(2).u32(0x41).u32(0).u16(88).u16(32).u64(0x99).put(token);
    let tree = check(
        "session setup",
        &message(request(Command::SESSION_SETUP), &body.0),
        &[],
        &[
            ("smb2.ses_req_flags.session_binding", 1),
            ("smb2.sec_mode.sign_required", 1),
            ("smb2.previous_sesid", 0x99),
            ("ntlmssp.messagetype", 1),
        ],
    );
    assert_eq!(tree.info, "Session Setup Request, NTLMSSP_NEGOTIATE");
    check("logoff", &message(request(Command::LOGOFF), &[4, 0, 0, 0]), &[], &[("smb2.buffer_code", 4)]);
    check("logoff reply", &message(reply(Command::LOGOFF, NtStatus::SUCCESS), &[4, 0, 0, 0]), &[], &[]);
    let path = w().u16(9).u16(0).u16(72).u16(26).text("\\\\srv\\share$x");
    let tree = check("tree connect", &message(request(Command::TREE_CONNECT), &path.0), &[], &[("smb2.tc.flags", 0)]);
    assert_eq!(tree.info, "Tree Connect Request Tree: \\\\srv\\share$x");
    let extension = w().u16(9).u16(4).u16(88).u16(8).u32(32).u16(1).put(&[0; 10]).text("\\\\s\\").put(&[]);
    // the contexts begin 32 bytes into the body; one remoted identity with a user
    let identity = [28u16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
        .iter()
        .fold(w().u16(1).u16(44), |w, o| w.u16(*o))
        .u16(12)
        .put(&EVERYONE)
        .put(&[7, 0]);
    let extension = extension.u16(1).u16(identity.0.len() as u16).u32(0).put(&identity.0);
    let tree = check(
        "tree connect with an extension",
        &message(request(Command::TREE_CONNECT), &extension.0),
        &[],
        &[("rdmascope.smb2.tc.context.type", 1)],
    );
    assert_eq!(tree.all("nt.sid").count(), 1);
    let body = w().u16(16).u8(1).u8(0).u32(0x8030).u32(0x28).u32(0x001f_01ff);
    check(
        "tree connect reply",
        &message(reply(Command::TREE_CONNECT, NtStatus::SUCCESS), &body.0),
        &[],
        &[
            ("smb2.share_type", 1),
            ("smb2.share.caching", 0x30),
            ("smb2.share_flags.encrypt_data", 1),
            ("smb2.share_caps.scaleout", 1),
            ("smb.access.synchronize", 1),
        ],
    );
    for command in [Command::TREE_DISCONNECT, Command::ECHO] {
        check("four bytes", &message(request(command), &[4, 0, 0, 0]), &[], &[]);
        check("four bytes back", &message(reply(command, NtStatus::SUCCESS), &[4, 0, 0, 0]), &[], &[]);
    }
    let cancel = Header { flags: header::flags::ASYNC, ids: Ids::Async { async_id: 8 }, ..request(Command::CANCEL) };
    check("cancel", &message(cancel, &[4, 0, 0, 0]), &[], &[("smb2.aid", 8)]);
}

/// A count that lies is reported, and the contexts behind it are read all the same.
#[test]
fn a_negotiate_context_that_lies_hides_no_other() {
    let list = w().u16(2).u16(4).u32(0).u16(9).u16(2).put(&[0; 4]).u16(8).u16(4).u32(0).u16(1).u16(2);
    let head = w().u16(36).u16(1).u16(1).u16(0).u32(0x7f).put(&[9; 16]).u32(104).u16(2).u16(0).u16(0x311).u16(0);
    let bytes = message(request(Command::NEGOTIATE), &head.put(&list.0).0);
    let (_, tree) = decode(&bytes, &[]);
    assert_eq!(tree.number("smb2.negotiate_context.cipher_id"), Some(2));
    assert_eq!((tree.number("smb2.negotiate_context.signing_id"), tree.faults.len()), (Some(2), 1));
}

#[test]
fn negotiate_contexts_of_every_kind() {
    let contexts: [(u16, W, &str, u64); 8] = [
        (1, w().u16(1).u16(4).u16(1).put(&[1, 2, 3, 4]), "smb2.negotiate_context.salt_length", 4),
        (2, w().u16(1).u16(4), "smb2.negotiate_context.cipher_id", 4),
        (3, w().u16(2).u16(0).u32(1).u16(3).u16(5), "smb2.negotiate_context.comp_alg_flags.chained", 1),
        (5, w().text("srv"), "smb2.negotiate_context.type", 1),
        (6, w().u32(1), "smb2.negotiate_context.transport_flags", 1),
        (7, w().u16(2).u16(0).u32(0).u16(1).u16(2), "smb2.negotiate_context.rdma_transform_count", 2),
        (8, w().u16(1).u16(2), "smb2.negotiate_context.signing_id", 2),
        (0x100, w().put(create_context::POSIX), "smb2.negotiate_context.count", 8),
    ];
    let mut list = w();
    for (kind, data, _, _) in &contexts {
        list.0.resize(list.0.len().next_multiple_of(8), 0);
        list = list.u16(*kind).u16(data.0.len() as u16).u32(0).put(&data.0);
    }
    let body = w()
        .u16(36)
        .u16(2)
        .u16(1)
        .u16(0)
        .u32(0x7f)
        .put(&[9; 16])
        .u32(104)
        .u16(8)
        .u16(0)
        .u16(0x302)
        .u16(0x311)
        .put(&list.0);
    let bytes = message(request(Command::NEGOTIATE), &body.0);
    let numbers: Vec<_> = contexts.iter().map(|(_, _, name, value)| (*name, *value)).collect();
    let tree = check("negotiate", &bytes, &[], &numbers);
    assert_eq!(tree.all("smb2.negotiate_context.rdma_transform_id").count(), 2);
    let (pdus, _) = decode(&bytes, &[]);
    let Ok(Body::NegotiateRequest(request)) = &pdus[0].body else { panic!() };
    let ids: Vec<Vec<u16>> = request.contexts.map(|c| c.ids().collect()).collect();
    assert_eq!(ids, [&[1][..], &[4], &[3, 5], &[], &[], &[1, 2], &[2], &[]]);
    // before SMB 3.1.1 there is a time where the contexts are named
    let body = w().u16(36).u16(1).u16(1).u16(0).u32(0).put(&[9; 16]).u64(TIME).u16(0x302);
    let tree = check(
        "negotiate 3.0.2",
        &message(super::tests_layouts::request(Command::NEGOTIATE), &body.0),
        &[],
        &[("smb2.dialect", 0x302)],
    );
    assert_eq!(tree.all("rdmascope.smb2.client_start_time").count(), 1);
}

fn create(contexts: &[(&[u8], W)], response: bool) -> Vec<u8> {
    let mut list = w();
    for (n, (name, data)) in contexts.iter().enumerate() {
        let at = (16 + name.len()).next_multiple_of(8);
        let length = (at + data.0.len()).next_multiple_of(8);
        let next = if n + 1 == contexts.len() { 0 } else { length as u32 };
        let data_at = if data.0.is_empty() { 0 } else { at as u16 };
        let mut entry =
            w().u32(next).u16(16).u16(name.len() as u16).u16(0).u16(data_at).u32(data.0.len() as u32).put(name);
        entry.0.resize(at, 0);
        entry = entry.put(&data.0);
        if next > 0 {
            entry.0.resize(length, 0);
        }
        list = list.put(&entry.0);
    }
    let length = list.0.len() as u32;
    if response {
        let body = w()
            .u16(89)
            .u8(0xff)
            .u8(0)
            .u32(1)
            .u64(TIME)
            .u64(TIME)
            .u64(TIME)
            .u64(TIME)
            .u64(4096)
            .u64(6)
            .u32(0x20)
            .u32(0)
            .put(&[5; 16]);
        message(reply(Command::CREATE, NtStatus::SUCCESS), &body.u32(152).u32(length).put(&list.0).0)
    } else {
        let body = w().u16(57).u8(0).u8(0xff).u32(2).u64(0).u64(0).u32(0x0012_0089).u32(0).u32(7).u32(1).u32(0x40);
        message(
            request(Command::CREATE),
            &body.u16(120).u16(2).u32(128).u32(length).text("x").put(&[0; 6]).put(&list.0).0,
        )
    }
}

#[test]
fn create_contexts_of_every_kind_asked_for() {
    use create_context::*;
    let ea = w().u32(0).u8(0).u8(3).u16(2).put(b"abc\0").put(&[7, 8]);
    let sd = w().put(&[1, 0, 4, 0x80]).u32(0).u32(0).u32(0).u32(20).put(&[2, 0, 8, 0, 0, 0, 0, 0]);
    let svhdx = w()
        .u32(2)
        .u8(1)
        .put(&[0; 3])
        .put(&[4; 16])
        .u32(0)
        .u32(4)
        .u64(6)
        .u16(4)
        .text("hv")
        .put(&[0; 122])
        .u32(1)
        .u32(1)
        .u32(512)
        .u32(4096)
        .u64(9);
    let contexts: [(&[u8], W); 16] = [
        (EA_BUFFER, ea),
        (SD_BUFFER, sd),
        (DURABLE_HANDLE_REQUEST, w().put(&[0; 16])),
        (DURABLE_HANDLE_RECONNECT, w().put(&[1; 16])),
        (ALLOCATION_SIZE, w().u64(77)),
        (QUERY_MAXIMAL_ACCESS, w().u64(TIME)),
        (TIMEWARP_TOKEN, w().u64(TIME)),
        (QUERY_ON_DISK_ID, w()),
        (REQUEST_LEASE, w().put(&[2; 16]).u32(7).u32(4).u64(0).put(&[3; 16]).u16(5).u16(0)),
        (DURABLE_HANDLE_REQUEST_V2, w().u32(60).u32(2).u64(0).put(&[4; 16])),
        (DURABLE_HANDLE_RECONNECT_V2, w().put(&[5; 16]).put(&[6; 16]).u32(2)),
        (APP_INSTANCE_ID, w().u16(20).u16(0).put(&[7; 16])),
        (APP_INSTANCE_VERSION, w().u16(24).u16(0).u32(0).u64(1).u64(2)),
        (SVHDX_OPEN_DEVICE, svhdx),
        (POSIX, w().u32(0o755)),
        (AAPL, w().u32(1).u32(0).u64(7).u64(0xf)),
    ];
    let bytes = create(&contexts, false);
    let tree = check(
        "create",
        &bytes,
        &[],
        &[
            ("smb2.lease.lease_state", 7),
            ("smb2.lease.lease_oplock", 5),
            ("smb2.dh2x.timeout", 60),
            ("smb2.dh2x.flags.persistent_handle", 1),
            ("smb2.app_instance_version.version.low", 2),
            ("smb2.svhdx_open_device_context.virtual_sector_size", 512),
            ("smb2.svhdx_open_device_context.initiator_has_id", 1),
            ("smb2.posix_perms", 0o755),
            ("smb2.aapl.caps.unix_based", 1),
            ("smb2.ea.data_len", 2),
            ("nt.sec_desc.type.self_relative", 1),
        ],
    );
    assert_eq!(tree.all("rdmascope.smb2.create.chain_element").count(), 16);
    let (pdus, _) = decode(&bytes, &[]);
    let Ok(Body::CreateRequest(create)) = &pdus[0].body else { panic!() };
    assert_eq!(create.contexts().count(), 16);
    assert!(create.contexts().all(|c| c.long_name().is_some()));
    let lease = create.contexts().find_map(|c| c.lease()).unwrap();
    assert_eq!((lease.key, lease.state, lease.parent_and_epoch), ([2; 16], 7, Some(([3; 16], 5))));
}

#[test]
fn create_contexts_of_every_kind_granted() {
    use create_context::*;
    let posix = w().u32(2).u32(0).u32(0o644).put(&EVERYONE).put(&EVERYONE);
    let contexts: [(&[u8], W); 7] = [
        (DURABLE_HANDLE_REQUEST, w().u64(0)),
        (QUERY_MAXIMAL_ACCESS, w().u32(0).u32(0x001f_01ff)),
        (QUERY_ON_DISK_ID, w().u64(11).u64(22).put(&[0; 16])),
        (REQUEST_LEASE, w().put(&[2; 16]).u32(3).u32(0).u64(0)),
        (DURABLE_HANDLE_REQUEST_V2, w().u32(30).u32(2)),
        (POSIX, posix),
        (AAPL, w().u32(1).u32(0).u64(7).u64(5).u64(2).u32(0).u32(6).text("mac")),
    ];
    let tree = check(
        "create reply",
        &create(&contexts, true),
        &[],
        &[
            ("rdmascope.smb2.qfid.disk_file_id", 11),
            ("rdmascope.smb2.qfid.volume_id", 22),
            ("smb2.mxac_status", 0),
            ("smb2.lease.lease_state", 3),
            ("smb2.posix_perms", 0o644),
            ("smb2.nlinks", 2),
            ("smb2.aapl.volume_caps.case_sensitive", 1),
        ],
    );
    assert_eq!((tree.all("nt.sid").count(), tree.all("smb2.lease.parent_lease_key").count()), (2, 0));
    let resolve = create(&[(AAPL, w().u32(2).u32(0).u32(0).u32(4).text("ab"))], true);
    check("resolve id", &resolve, &[], &[("smb2.aapl.command_code", 2)]);
}

#[test]
fn locks_notifications_and_breaks() {
    let lock = w().u16(48).u16(2).u32(0x15).put(&[1; 16]).u64(5).u64(6).u32(1).u32(0).u64(7).u64(8).u32(0x12).u32(0);
    let bytes = message(request(Command::LOCK), &lock.0);
    let numbers = [
        ("smb2.lock_count", 2),
        ("smb2.lock_length", 6),
        ("smb2.lock_sequence_number", 5),
        ("smb2.lock_flags.shared", 1),
    ];
    let tree = check("lock", &bytes, &[], &numbers);
    assert_eq!(tree.all("smb2.lock_info").count(), 2);
    let (pdus, _) = decode(&bytes, &[]);
    let Ok(Body::LockRequest(lock)) = &pdus[0].body else { panic!() };
    assert_eq!(
        lock.elements().map(|e| (e.offset, e.exclusive(), e.fail_immediately())).collect::<Vec<_>>(),
        [(5, false, false), (7, true, true)]
    );

    let notify = w().u16(32).u16(1).u32(4096).put(&[1; 16]).u32(0x17).u32(0);
    check(
        "notify",
        &message(request(Command::CHANGE_NOTIFY), &notify.0),
        &[],
        &[("smb2.notify.watch_tree", 1), ("smb.nt.notify.last_write", 1)],
    );
    let entries = w().u32(16).u32(4).u32(2).text("a").put(&[0; 2]).u32(0).u32(5).u32(4).text("bc");
    let body = w().u16(9).u16(72).u32(entries.0.len() as u32).put(&entries.0);
    let tree = check(
        "notify reply",
        &message(reply(Command::CHANGE_NOTIFY, NtStatus::SUCCESS), &body.0),
        &[],
        &[("smb2.notify.action", 4)],
    );
    assert_eq!(tree.all("smb2.notify.info").count(), 2);

    let unasked = Header { message_id: u64::MAX, ..reply(Command::OPLOCK_BREAK, NtStatus::SUCCESS) };
    let oplock = w().u16(24).u8(1).u8(0).u32(0).put(&[1; 16]);
    let tree = check("oplock break", &message(unasked, &oplock.0), &[], &[("smb2.create.oplock", 1)]);
    assert_eq!(tree.info, "Oplock Break Notification");
    check("oplock break acknowledgment", &message(request(Command::OPLOCK_BREAK), &oplock.0), &[], &[]);
    let lease = w().u16(44).u16(3).u32(1).put(&[1; 16]).u32(7).u32(1).u32(0).u32(0).u32(0);
    let tree = check("lease break", &message(unasked, &lease.0), &[], &[("smb2.lease.lease_oplock", 3)]);
    assert_eq!((tree.all("smb2.lease.lease_state").count(), tree.info.as_str()), (2, "Lease Break Notification"));
    let lease = w().u16(36).u16(0).u32(0).put(&[1; 16]).u32(1).u64(0);
    check(
        "lease break acknowledgment",
        &message(request(Command::OPLOCK_BREAK), &lease.0),
        &[],
        &[("smb2.lease.lease_state", 1)],
    );
    let body = w().u16(4).u16(0).u32(0).u32(0);
    let closed = Header { command: Command::SERVER_TO_CLIENT_NOTIFICATION, ..unasked };
    let tree = check("server notification", &message(closed, &body.0), &[], &[("smb2.notification.type", 0)]);
    assert_eq!(tree.info, "Server to Client Notification");
}

fn error(status: u32, count: u8, data: &[u8]) -> Vec<u8> {
    message(reply(Command::CREATE, NtStatus(status)), &w().u16(9).u8(count).u8(0).u32(data.len() as u32).put(data).0)
}

#[test]
fn errors_with_their_contexts() {
    let names = w().u16(4).u16(4).u16(0).u16(4).u32(1).text("ab").text("cd");
    let symlink = w().u32(36).u32(0x4c4d_5953).u32(0xa000_000c).u16(20).u16(0).put(&names.0);
    let tree = check(
        "symlink",
        &error(0x8000_002d, 0, &symlink.0),
        &[],
        &[("smb2.symlink.flags", 1), ("smb2.reparse_tag", 0xa000_000c)],
    );
    let name = tree.all("smb2.symlink.print_name").next().unwrap();
    assert_eq!(tree.value_bytes(name), [b'a', 0, b'b', 0]);
    let context = w().u32(symlink.0.len() as u32).u32(0).put(&symlink.0);
    check(
        "symlink in a context",
        &error(0x8000_002d, 1, &context.0),
        &[],
        &[("smb2.error.context.id", 0), ("smb2.symlink.error_tag", 0x4c4d_5953)],
    );
    let redirect = w()
        .u32(60)
        .u32(3)
        .u32(48)
        .u32(6)
        .u16(0)
        .u16(0)
        .u32(1)
        .u32(1)
        .u32(0)
        .put(&[192, 0, 2, 1])
        .put(&[0; 12])
        .text("srv");
    let context = w().u32(redirect.0.len() as u32).u32(0x7264_5253).put(&redirect.0);
    let tree =
        check("share redirect", &error(0xc000_00cc, 1, &context.0), &[], &[("smb2.error.share_redirect.ip_count", 1)]);
    assert_eq!(tree.all("rdmascope.smb2.error.share_redirect.ip.v4").count(), 1);
    check("buffer too small", &error(0xc000_0023, 0, &[8, 0, 0, 0]), &[], &[("smb2.error.min_buf_length", 8)]);
}

fn get_info(info_type: InfoType, class: u8, data: &[u8], numbers: &[(&str, u64)]) -> Tree {
    let memos = [memo(Command::QUERY_INFO, RequestParameters::QueryInfo { info_type: info_type.0, class })];
    let body = w().u16(9).u16(72).u32(data.len() as u32).put(data);
    check(
        class_name(info_type, class),
        &message(reply(Command::QUERY_INFO, NtStatus::SUCCESS), &body.0),
        &memos,
        numbers,
    )
}

fn class_name(info_type: InfoType, class: u8) -> &'static str {
    info::class_name(info_type.0, class).unwrap_or("class")
}

fn set_info(class: FileClass, data: &[u8], numbers: &[(&str, u64)]) -> Tree {
    let body = w().u16(33).u8(1).u8(class.0).u32(data.len() as u32).u16(96).u16(0).u32(0).put(&[1; 16]).put(data);
    check(class_name(InfoType::FILE, class.0), &message(request(Command::SET_INFO), &body.0), &[], numbers)
}

#[test]
fn file_information_of_every_class() {
    use FileClass as C;
    let file = InfoType::FILE;
    let basic = w().u64(TIME).u64(TIME).u64(TIME).u64(TIME).u32(0x20).u32(0);
    let standard = w().u64(4096).u64(6).u32(2).u8(0).u8(1).u16(0);
    get_info(file, C::BASIC.0, &basic.0, &[("smb2.file_attribute.archive", 1)]);
    get_info(file, C::STANDARD.0, &standard.0, &[("smb2.nlinks", 2), ("smb2.is_directory", 1)]);
    get_info(file, C::INTERNAL.0, &w().u64(9).0, &[("smb2.file_id", 9)]);
    get_info(file, C::EA.0, &w().u32(9).0, &[("smb2.ea_size", 9)]);
    get_info(file, C::ACCESS.0, &w().u32(1).0, &[("smb.access.read", 1)]);
    get_info(file, C::POSITION.0, &w().u64(9).0, &[("smb2.position_info", 9)]);
    get_info(file, C::MODE.0, &w().u32(2).0, &[("smb2.mode.file_write_through", 1)]);
    get_info(file, C::ALIGNMENT.0, &w().u32(0x1ff).0, &[("smb2.alignment_info", 0x1ff)]);
    let all = basic.clone().put(&standard.0).u64(9).u32(0).u32(1).u64(0).u32(0).u32(0).u32(4).text("ab");
    get_info(file, C::ALL.0, &all.0, &[("smb2.file_id", 9), ("smb2.filename.len", 4)]);
    for class in [C::NAME, C::ALTERNATE_NAME, C::NORMALIZED_NAME, C::SHORT_NAME] {
        get_info(file, class.0, &w().u32(4).text("ab").0, &[("smb2.filename.len", 4)]);
    }
    let streams = w().u32(32).u32(6).u64(1).u64(2).text("::a").put(&[0; 2]).u32(0).u32(2).u64(3).u64(4).text("b");
    assert_eq!(get_info(file, C::STREAM.0, &streams.0, &[("smb.stream_size", 1)]).all("smb.stream_name").count(), 2);
    let eas = w().u32(16).u8(0).u8(2).u16(1).put(b"ab\0").u8(7).put(&[0; 4]).u32(0).u8(0x80).u8(1).u16(0).put(b"c\0");
    assert_eq!(get_info(file, C::FULL_EA.0, &eas.0, &[("smb2.ea.name_len", 2)]).all("rdmascope.smb2.ea").count(), 2);
    get_info(file, C::PIPE.0, &w().u32(1).u32(0).0, &[("rdmascope.smb2.pipe.read_mode", 1)]);
    get_info(file, C::PIPE_LOCAL.0, &(0..10).fold(w(), |w, n| w.u32(n)).0, &[("rdmascope.smb2.pipe.state", 8)]);
    get_info(file, C::PIPE_REMOTE.0, &w().u64(1).u32(2).0, &[("rdmascope.smb2.pipe.maximum_collection_count", 2)]);
    get_info(
        file,
        C::COMPRESSION.0,
        &w().u64(5).u16(2).u8(16).u8(12).u8(12).put(&[0; 3]).0,
        &[("smb.compressed.format", 2)],
    );
    get_info(file, C::OBJECT_ID.0, &[3; 64], &[]);
    get_info(file, C::REPARSE_POINT.0, &w().u64(1).u32(0xa000_000c).0, &[("smb2.reparse_tag", 0xa000_000c)]);
    let open = w().u64(TIME).u64(TIME).u64(TIME).u64(TIME).u64(4096).u64(6).u32(0x20).u32(0);
    get_info(file, C::NETWORK_OPEN.0, &open.0, &[("smb2.eof", 6)]);
    get_info(file, C::ATTRIBUTE_TAG.0, &w().u32(0x400).u32(0xa000_0003).0, &[("smb2.file_attribute.reparse", 1)]);
    let links = w().u32(100).u32(1).u32(0).u32(0).u64(5).u32(2).text("ab");
    get_info(file, C::HARD_LINK.0, &links.0, &[("rdmascope.smb2.hard_links.parent_file_id", 5)]);
    get_info(file, C::STANDARD_LINK.0, &w().u32(1).u32(2).u8(0).u8(0).0, &[("rdmascope.smb2.total_nlinks", 2)]);
    get_info(file, C::ID.0, &w().u64(1).put(&[2; 16]).0, &[("rdmascope.smb2.volume_serial", 1)]);
    get_info(file, C::CASE_SENSITIVE.0, &w().u32(1).0, &[("rdmascope.smb2.case_sensitive.flags", 1)]);
    let posix = w()
        .u64(TIME)
        .u64(TIME)
        .u64(TIME)
        .u64(TIME)
        .u64(6)
        .u64(4096)
        .u32(0x20)
        .u64(77)
        .u32(1)
        .u32(0)
        .u32(2)
        .u32(0)
        .u32(0o644);
    let tree = get_info(
        file,
        C::POSIX.0,
        &posix.put(&EVERYONE).put(&EVERYONE).0,
        &[("smb2.inode", 77), ("smb2.posix_perms", 0o644)],
    );
    assert_eq!(tree.all("nt.sid").count(), 2);

    set_info(C::END_OF_FILE, &w().u64(9).0, &[("smb.end_of_file", 9)]);
    set_info(C::ALLOCATION, &w().u64(9).0, &[("smb2.allocation_size", 9)]);
    set_info(C::DISPOSITION, &[1], &[("smb2.disposition.delete_on_close", 1)]);
    set_info(C::DISPOSITION_EX, &w().u32(3).0, &[("rdmascope.smb2.disposition.flags.posix_semantics", 1)]);
    set_info(C::VALID_DATA_LENGTH, &w().u64(9).0, &[("rdmascope.smb2.valid_data_length", 9)]);
    for class in [C::RENAME, C::LINK] {
        set_info(
            class,
            &w().u8(1).put(&[0; 7]).u64(0).u32(4).text("ab").0,
            &[("smb2.rename.replace_if", 1), ("smb2.filename.len", 4)],
        );
    }
    for class in [C::RENAME_EX, C::LINK_EX] {
        set_info(
            class,
            &w().u32(2).u32(0).u64(0).u32(4).text("ab").0,
            &[("rdmascope.smb2.rename.flags.posix_semantics", 1)],
        );
    }
    check(
        "set info reply",
        &message(reply(Command::SET_INFO, NtStatus::SUCCESS), &[2, 0]),
        &[],
        &[("smb2.buffer_code", 2)],
    );
}

#[test]
fn file_system_security_and_quota_information() {
    use FsClass as C;
    let fs = InfoType::FILESYSTEM;
    get_info(fs, C::VOLUME.0, &w().u64(TIME).u32(7).u32(4).u8(1).u8(0).text("ab").0, &[("smb.volume.serial", 7)]);
    get_info(fs, C::LABEL.0, &w().u32(4).text("ab").0, &[("smb.volume.label.len", 4)]);
    get_info(fs, C::SIZE.0, &w().u64(9).u64(8).u32(1).u32(512).0, &[("smb.free_alloc_units", 8)]);
    get_info(fs, C::DEVICE.0, &w().u32(7).u32(0x20).0, &[("smb.device.mounted", 1)]);
    get_info(fs, C::ATTRIBUTE.0, &w().u32(3).u32(255).u32(8).text("NTFS").0, &[("smb.fs_attr.cpn", 1)]);
    get_info(
        fs,
        C::CONTROL.0,
        &w().u64(1).u64(2).u64(3).u64(4).u64(5).u32(2).u32(0).0,
        &[("smb.quota.hard.default", 5)],
    );
    get_info(fs, C::FULL_SIZE.0, &w().u64(9).u64(8).u64(7).u32(1).u32(512).0, &[("smb.actual_free_alloc_units", 7)]);
    get_info(fs, C::OBJECT_ID.0, &[1; 64], &[]);
    let sectors = w().u32(512).u32(4096).u32(4096).u32(4096).u32(3).u32(0).u32(0);
    get_info(fs, C::SECTOR_SIZE.0, &sectors.0, &[("rdmascope.smb2.fs_sector_size_info.physical_atomicity", 4096)]);
    let posix = w().u32(1).u32(4096).u64(3).u64(4).u64(5).u64(6).u64(7).u64(8);
    get_info(fs, C::POSIX.0, &posix.0, &[("smb2.fs_posix_fs_identifier", 8)]);

    let owner = w().put(&[1, 0, 0, 0x80]).u32(20).u32(0).u32(0).u32(0).put(&EVERYONE);
    get_info(InfoType::SECURITY, 0, &owner.0, &[("nt.offset_to_owner_sid", 20), ("nt.sid.num_auth", 1)]);
    let quota = w().u32(0).u32(12).u64(TIME).u64(1).u64(2).u64(3).put(&EVERYONE);
    get_info(InfoType::QUOTA, 0, &quota.0, &[("smb.quota.used", 1)]);

    let query = |info_type: u8, class: u8, additional: u32, input: &[u8]| {
        let at = if input.is_empty() { 0 } else { 104 };
        let body =
            w().u16(41).u8(info_type).u8(class).u32(100).u16(at).u16(0).u32(input.len() as u32).u32(additional).u32(1);
        message(request(Command::QUERY_INFO), &body.put(&[1; 16]).put(input).0)
    };
    check(
        "query security",
        &query(3, 0, 7, &[]),
        &[],
        &[("smb2.getsetinfo_additional_secinfo.dacl", 1), ("smb2.query_info.flags.restart_scan", 1)],
    );
    let sids = w().u8(1).u8(0).u16(0).u32(20).u32(0).u32(0).u32(0).u32(12).put(&EVERYONE);
    check("query quota", &query(4, 0, 0, &sids.0), &[], &[("smb2.query_quota_info.single", 1), ("nt.sid.num_auth", 1)]);
    check(
        "query ea",
        &query(1, 15, 0, &w().u32(0).u8(2).put(b"ab\0").0),
        &[],
        &[("smb2.file_info.infolevel", 15), ("smb2.ea.name_len", 2)],
    );
    // the same bytes without the request are reported as data
    let body = w().u16(9).u16(72).u32(8).u64(9);
    let (_, tree) = decode(&message(reply(Command::QUERY_INFO, NtStatus::SUCCESS), &body.0), &[]);
    assert_eq!(
        (tree.all("rdmascope.smb2.body.data").count(), tree.info.as_str()),
        (1, "GetInfo Response, request not captured")
    );
}

#[test]
fn directories_of_every_class() {
    use FileClass as C;
    let query = w().u16(33).u8(37).u8(1).u32(0).put(&[1; 16]).u16(96).u16(2).u32(65536).text("*");
    let tree = check(
        "find",
        &message(request(Command::QUERY_DIRECTORY), &query.0),
        &[],
        &[("smb2.find.infolevel", 37), ("smb2.find.restart_scans", 1)],
    );
    assert_eq!(tree.info, "Find Request FileIdBothDirectoryInformation Pattern: *");
    let common = |name: u32| w().u64(TIME).u64(TIME).u64(TIME).u64(TIME).u64(6).u64(4096).u32(0x20).u32(name);
    let short = |w: W| w.u8(4).u8(0).text("ab").put(&[0; 20]);
    let posix = w()
        .u64(TIME)
        .u64(TIME)
        .u64(TIME)
        .u64(TIME)
        .u64(6)
        .u64(4096)
        .u32(0x20)
        .u64(77)
        .u32(1)
        .u32(0)
        .u32(2)
        .u32(0)
        .u32(0o644);
    let layouts = [
        (C::DIRECTORY, common(4)),
        (C::FULL_DIRECTORY, common(4).u32(1)),
        (C::ID_FULL_DIRECTORY, common(4).u32(1).u32(0).u64(9)),
        (C::BOTH_DIRECTORY, short(common(4).u32(1))),
        (C::ID_BOTH_DIRECTORY, short(common(4).u32(1)).u16(0).u64(9)),
        (C::NAMES, w().u32(4)),
        (C::ID_GLOBAL_TX_DIRECTORY, common(4).u64(9).put(&[1; 16]).u32(1)),
        (C::ID_EXTD_DIRECTORY, common(4).u32(1).u32(0).put(&[1; 16])),
        (C::ID_64_EXTD_DIRECTORY, common(4).u32(1).u32(0).u64(9)),
        (C::ID_64_EXTD_BOTH_DIRECTORY, short(common(4).u32(1).u32(0).u64(9))),
        (C::ID_ALL_EXTD_DIRECTORY, common(4).u32(1).u32(0).u64(9).put(&[1; 16])),
        (C::ID_ALL_EXTD_BOTH_DIRECTORY, short(common(4).u32(1).u32(0).u64(9).put(&[1; 16]))),
        (C::POSIX, posix.put(&EVERYONE).put(&EVERYONE).u32(4)),
    ];
    for (class, entry) in layouts {
        let entry = entry.text("ab");
        let next = (8 + entry.0.len()).next_multiple_of(8);
        let mut list = w().u32(next as u32).u32(1).put(&entry.0);
        list.0.resize(next, 0);
        let list = list.u32(0).u32(2).put(&entry.0);
        let body = w().u16(9).u16(72).u32(list.0.len() as u32).put(&list.0);
        let memos = [memo(Command::QUERY_DIRECTORY, RequestParameters::QueryDirectory { class: class.0 })];
        let bytes = message(reply(Command::QUERY_DIRECTORY, NtStatus::SUCCESS), &body.0);
        let tree = check(class.name().unwrap(), &bytes, &memos, &[("smb2.filename.len", 4), ("smb2.file_index", 1)]);
        let names: Vec<_> = tree.all("smb2.filename").map(|n| tree.value_bytes(n)).collect();
        assert_eq!(names, [[b'a', 0, b'b', 0]; 2], "{class}");
    }
}

fn ioctl(code: ControlCode, input: &[u8], numbers: &[(&str, u64)]) -> Tree {
    let body = w()
        .u16(57)
        .u16(0)
        .u32(code.0)
        .put(&[0xff; 16])
        .u32(120)
        .u32(input.len() as u32)
        .u32(0)
        .u32(0)
        .u32(0)
        .u32(1024)
        .u32(1)
        .u32(0);
    check(code.name().unwrap(), &message(request(Command::IOCTL), &body.put(input).0), &[], numbers)
}

fn ioctl_reply(code: ControlCode, output: &[u8], numbers: &[(&str, u64)]) -> Tree {
    let body =
        w().u16(49).u16(0).u32(code.0).put(&[0xff; 16]).u32(112).u32(0).u32(112).u32(output.len() as u32).u32(0).u32(0);
    check(code.name().unwrap(), &message(reply(Command::IOCTL, NtStatus::SUCCESS), &body.put(output).0), &[], numbers)
}

#[test]
fn control_codes_with_their_buffers() {
    use ControlCode as C;
    ioctl(
        C::VALIDATE_NEGOTIATE_INFO,
        &w().u32(0x7f).put(&[1; 16]).u16(1).u16(2).u16(0x300).u16(0x302).0,
        &[("smb2.dialect_count", 2)],
    );
    ioctl_reply(
        C::VALIDATE_NEGOTIATE_INFO,
        &w().u32(0x7f).put(&[1; 16]).u16(1).u16(0x302).0,
        &[("smb2.dialect", 0x302)],
    );
    let interface =
        w().u32(152).u32(2).u32(2).u32(4).u64(100_000_000_000).u16(2).u16(0).put(&[192, 0, 2, 1]).put(&[0; 120]);
    let interface =
        interface.u32(0).u32(3).u32(3).u32(0).u64(1).u16(23).u16(0).u32(0).put(&[0xfe; 16]).u32(0).put(&[0; 100]);
    let numbers = [
        ("smb2.ioctl.network_interfaces.capabilities.rdma", 1),
        ("smb2.ioctl.network_interfaces.link_speed", 100_000_000_000),
    ];
    let tree = ioctl_reply(C::QUERY_NETWORK_INTERFACE_INFO, &interface.0, &numbers);
    assert_eq!(
        (tree.all("smb2.windows.sockaddr.in.addr").count(), tree.all("smb2.windows.sockaddr.in6.addr").count()),
        (1, 1)
    );
    let key = [7; 24];
    ioctl_reply(
        C::SRV_REQUEST_RESUME_KEY,
        &w().put(&key).u32(0).u32(0).0,
        &[("rdmascope.smb2.fsctl.cchunk.context_length", 0)],
    );
    for code in [C::SRV_COPYCHUNK, C::SRV_COPYCHUNK_WRITE] {
        ioctl(code, &w().put(&key).u32(1).u32(0).u64(1).u64(2).u32(3).u32(0).0, &[("smb2.fsctl.cchunk.dst_offset", 2)]);
        ioctl_reply(code, &w().u32(1).u32(0).u32(3).0, &[("smb2.fsctl.cchunk.total_written", 3)]);
    }
    let snapshots = w().u32(2).u32(2).u32(12).text("@a\0@b\0\0");
    assert_eq!(
        ioctl_reply(C::SRV_ENUMERATE_SNAPSHOTS, &snapshots.0, &[])
            .all("smb2.ioctl.enumerate_snapshots.snapshot")
            .count(),
        2
    );
    ioctl(C::SRV_READ_HASH, &w().u32(1).u32(1).u32(1).u32(4).u64(5).0, &[("rdmascope.smb2.ioctl.hash.offset", 5)]);
    ioctl(C::LMR_REQUEST_RESILIENCY, &w().u32(9).u32(0).0, &[("smb2.ioctl.resiliency.timeout", 9)]);
    ioctl(
        C::PIPE_WAIT,
        &w().u64(5).u32(2).u8(1).u8(0).text("p").0,
        &[("rdmascope.smb2.fsctl.wait.timeout_specified", 1)],
    );
    ioctl_reply(C::PIPE_PEEK, &w().u32(3).u32(4).u32(1).u32(4).put(b"data").0, &[("rdmascope.smb2.pipe.state", 3)]);
    ioctl(C::PIPE_TRANSCEIVE, b"data", &[]);
    ioctl_reply(C::PIPE_TRANSCEIVE, b"data", &[]);
    let link = w().u32(0xa000_000c).u16(16).u16(0).u16(2).u16(2).u16(0).u16(2).u32(1).text("ab");
    ioctl(C::SET_REPARSE_POINT, &link.0, &[("smb2.symlink.flags", 1)]);
    ioctl_reply(C::GET_REPARSE_POINT, &link.0, &[("smb2.reparse_tag", 0xa000_000c)]);
    let mount = w().u32(0xa000_0003).u16(12).u16(0).u16(0).u16(2).u16(2).u16(2).text("ab");
    ioctl_reply(C::GET_REPARSE_POINT, &mount.0, &[("smb2.reparse_tag", 0xa000_0003)]);
    let device = w().u32(0x8000_0014).u16(16).u16(0).u64(0x0052_4843).u32(1).u32(3);
    ioctl_reply(C::GET_REPARSE_POINT, &device.0, &[("smb2.nfs.char.minor", 3)]);
    let device = w().u32(0x8000_0014).u16(16).u16(0).u64(0x004b_4c42).u32(1).u32(3);
    ioctl_reply(C::GET_REPARSE_POINT, &device.0, &[("smb2.nfs.block.major", 1)]);
    // [MS-FSCC] 2.3
    assert_eq!(
        [0x0009_0194, 0x0009_0270, 0x0009_0380, 0x0009_0440, 0x0009_8134].map(|code| C(code).name()),
        [
            Some("FSCTL_SET_ZERO_ON_DEALLOCATION"),
            Some("FSCTL_SET_PURGE_FAILURE_MODE"),
            Some("FSCTL_SET_INTEGRITY_INFORMATION_EX"),
            Some("FSCTL_REFS_STREAM_SNAPSHOT_MANAGEMENT"),
            Some("FSCTL_SET_DEFECT_MANAGEMENT"),
        ]
    );
    ioctl(C::DELETE_REPARSE_POINT, &w().u32(0xa000_000c).u16(0).u16(0).0, &[("smb2.reparse_data_length", 0)]);
    ioctl(C::SET_ZERO_DATA, &w().u64(1).u64(2).0, &[("rdmascope.smb2.fsctl.zero_data.beyond_final_zero", 2)]);
    ioctl(C::QUERY_ALLOCATED_RANGES, &w().u64(1).u64(2).0, &[("smb2.fsctl.range_length", 2)]);
    assert_eq!(
        ioctl_reply(C::QUERY_ALLOCATED_RANGES, &w().u64(1).u64(2).u64(3).u64(4).0, &[])
            .all("rdmascope.smb2.fsctl.range")
            .count(),
        2
    );
    ioctl(C::SET_SPARSE, &[1], &[("smb2.fsctl.set_sparse", 1)]);
    ioctl(C::SET_COMPRESSION, &w().u16(2).0, &[("smb2.compression_format", 2)]);
    ioctl_reply(C::GET_COMPRESSION, &w().u16(2).0, &[("smb2.compression_format", 2)]);
    ioctl_reply(
        C::GET_INTEGRITY_INFORMATION,
        &w().u16(2).u16(0).u32(1).u32(65536).u32(4096).0,
        &[("smb2.integrity_flags_enforcement", 1)],
    );
    ioctl(C::SET_INTEGRITY_INFORMATION, &w().u16(2).u16(0).u32(1).0, &[("smb2.checksum_algorithm", 2)]);
    ioctl(C::QUERY_FILE_REGIONS, &w().u64(1).u64(2).u32(1).u32(0).0, &[("smb2.qfr_length", 2)]);
    ioctl_reply(
        C::QUERY_FILE_REGIONS,
        &w().u32(0).u32(1).u32(1).u32(0).u64(1).u64(2).u32(1).u32(0).0,
        &[("smb2.qfr_usage", 1)],
    );
    ioctl_reply(C::CREATE_OR_GET_OBJECT_ID, &[4; 64], &[]);
    let token = w().put(&[0xff, 0xff, 0, 1, 0, 0, 1, 0xf8]).put(&[9; 504]);
    ioctl(C::OFFLOAD_READ, &w().u32(32).u32(0).u32(5).u32(0).u64(6).u64(7).0, &[("smb2.fsctl.odx.token_ttl", 5)]);
    ioctl_reply(C::OFFLOAD_READ, &w().u32(528).u32(0).u64(7).put(&token.0).0, &[("smb2.fsctl.odx.token.idlen", 504)]);
    ioctl(
        C::OFFLOAD_WRITE,
        &w().u32(544).u32(0).u64(1).u64(2).u64(3).put(&token.0).0,
        &[("smb2.fsctl.odx.token_offset", 3)],
    );
    ioctl_reply(C::OFFLOAD_WRITE, &w().u32(16).u32(0).u64(7).0, &[("smb2.fsctl.odx.xfer_length", 7)]);
    ioctl(C::FILE_LEVEL_TRIM, &w().u32(0).u32(1).u64(1).u64(2).0, &[("rdmascope.smb2.fsctl.trim.count", 1)]);
    ioctl_reply(C::FILE_LEVEL_TRIM, &w().u32(1).0, &[("rdmascope.smb2.fsctl.trim.count", 1)]);
    ioctl(C::DUPLICATE_EXTENTS, &w().put(&[1; 16]).u64(1).u64(2).u64(3).0, &[("smb2.fsctl.dupext.byte_count", 3)]);
    ioctl(
        C::DUPLICATE_EXTENTS_EX,
        &w().u64(48).put(&[1; 16]).u64(1).u64(2).u64(3).u32(1).u32(0).0,
        &[("rdmascope.smb2.fsctl.duplicate_extents.flags", 1)],
    );
    ioctl_reply(
        C::QUERY_SHARED_VIRTUAL_DISK_SUPPORT,
        &w().u32(1).u32(3).0,
        &[("smb2.ioctl.shared_virtual_disk.handle_state", 3)],
    );
    let flow = w().u16(0x101).u16(0).u32(0x18).put(&[1; 16]).put(&[2; 16]).put(&[3; 16]);
    let names = flow
        .clone()
        .u64(10)
        .u64(5)
        .u16(128)
        .u16(4)
        .u16(132)
        .u16(2)
        .u64(1)
        .u64(2)
        .u64(3)
        .u64(4)
        .u64(5)
        .u64(6)
        .text("ab")
        .text("c");
    ioctl(C::STORAGE_QOS_CONTROL, &names.0, &[("smb2.ioctl.sqos.kilobyte_count_increment", 6)]);
    ioctl_reply(
        C::STORAGE_QOS_CONTROL,
        &flow.u32(4000).u32(0).u64(1).u64(2).u32(8192).u32(0).u64(3).0,
        &[("smb2.ioctl.sqos.maximum_bandwidth", 3)],
    );
    ioctl(C::DFS_GET_REFERRALS, &w().u16(4).text("\\s\\d\0").0, &[("smb.max_referral_level", 4)]);
    ioctl(
        C::DFS_GET_REFERRALS_EX,
        &w().u16(4).u16(1).u32(10).u16(4).text("\\s").u16(2).text("x").0,
        &[("rdmascope.smb.dfs.request.flags", 1)],
    );
}

#[test]
fn dfs_referrals_of_every_version() {
    let head = |n| w().u16(4).u16(n).u16(3).u16(0);
    let reply = |body: W, numbers: &[(&str, u64)]| ioctl_reply(ControlCode::DFS_GET_REFERRALS, &body.0, numbers);
    reply(
        head(1).u16(1).u16(14).u16(1).u16(0).text("\\s\0"),
        &[("smb.dfs.referral.version", 1), ("smb.dfs.flags.fielding", 1)],
    );
    let two = head(1).u16(2).u16(22).u16(0).u16(0).u32(1).u32(300).u16(22).u16(22).u16(26).text("p\0").text("n\0");
    reply(two, &[("smb.dfs.referral.ttl", 300), ("smb.dfs.referral.node_offset", 26)]);
    let four =
        head(1).u16(4).u16(34).u16(0).u16(4).u32(300).u16(34).u16(34).u16(38).put(&[0; 16]).text("p\0").text("n\0");
    let tree = reply(four, &[("smb.dfs.referral.flags.target_set_boundary", 1)]);
    let node = tree.all("smb.dfs.referral.node").next().unwrap();
    assert_eq!(tree.value_bytes(node), [b'n', 0]);
    let list = head(1).u16(3).u16(18).u16(0).u16(2).u32(300).u16(18).u16(2).u16(22).text("d\0").text("x\0").text("y\0");
    assert_eq!(reply(list, &[]).all("smb.dfs.referral.expname").count(), 2);
    // a thousand referrals that share one long name cost no more than a few times its length
    let mut many = head(1000);
    for n in 0..1000u16 {
        many = many.u16(2).u16(22).u16(0).u16(0).u32(0).u32(0).u16(22 * (1000 - n)).u16(0).u16(0);
    }
    let tree = reply(many.text(&"n".repeat(20000)), &[]);
    let told: usize = tree.all("smb.dfs.referral.path").map(|n| n.len as usize).sum();
    assert!(told <= 4 * 65536 * 2);
}

#[test]
fn spnego_and_ntlmssp() {
    // negTokenInit2 of a Windows server: three mechanisms and the hint
    let init = unhex(
        "605e06062b0601050502a0543052a024302206092a864882f71201020206092a864886f712010202060a2b06010401823702020a\
         a32a3028a0261b246e6f745f646566696e65645f696e5f5246433431373840706c656173655f69676e6f7265",
    );
    let body = w().u16(65).u16(1).u16(0x302).u16(0).put(&[1; 16]).u32(0x2f).u32(1).u32(2).u32(3).u64(TIME).u64(0);
    let body = body.u16(128).u16(init.len() as u16).u32(0).put(&init);
    let tree = check(
        "negotiate reply",
        &message(reply(Command::NEGOTIATE, NtStatus::SUCCESS), &body.0),
        &[],
        &[("spnego.mechTypes", 3)],
    );
    let mechanisms: Vec<_> =
        tree.all("spnego.MechType").map(|n| core::str::from_utf8(tree.value_bytes(n)).unwrap()).collect();
    assert_eq!((mechanisms[0], mechanisms[2]), ("1.2.840.48018.1.2.2", "1.3.6.1.4.1.311.2.2.10"));
    let mut label = alloc::string::String::new();
    let last = tree.nodes.iter().rposition(|n| n.def.name == "spnego.MechType").unwrap();
    crate::render::label(&mut label, &tree, last);
    assert!(label.contains("NTLMSSP"), "{label}");
    assert_eq!(tree.all("spnego.hintName").count(), 1);

    let pairs = w()
        .u16(1)
        .u16(2)
        .text("s")
        .u16(6)
        .u16(4)
        .u32(2)
        .u16(7)
        .u16(8)
        .u64(TIME)
        .u16(9)
        .u16(2)
        .text("t")
        .u16(10)
        .u16(2)
        .put(&[1, 2])
        .u16(0)
        .u16(0);
    let info = pairs.0.len() as u16;
    let challenge = w()
        .put(b"NTLMSSP\0")
        .u32(2)
        .u16(4)
        .u16(4)
        .u32(56)
        .u32(0xe28a_8235)
        .put(&[8; 8])
        .u64(0)
        .u16(info)
        .u16(info)
        .u32(60);
    let challenge = challenge.put(&[10, 0, 0x5d, 0x58, 0, 0, 0, 15]).text("AB").put(&pairs.0);
    let length = challenge.0.len();
    // responseToken within negTokenResp
    let der =
        |tag: u8, contents: &[u8]| w().u8(tag).u8(0x82).put(&(contents.len() as u16).to_be_bytes()).put(contents).0;
    let token = [
        der(0xa0, &[10, 1, 1]),
        der(0xa1, &unhex("060a2b06010401823702020a")),
        der(0xa2, &der(4, &challenge.0)),
        der(0xa3, &der(4, &[1, 2, 3])),
    ]
    .concat();
    let token = der(0xa1, &der(0x30, &token));
    let body = w().u16(9).u16(0).u16(72).u16(token.len() as u16).put(&token);
    let bytes = message(reply(Command::SESSION_SETUP, NtStatus::MORE_PROCESSING_REQUIRED), &body.0);
    let numbers = [
        ("spnego.negResult", 1),
        ("ntlmssp.messagetype", 2),
        ("ntlmssp.challenge.target_info.flags", 2),
        ("ntlmssp.version.build_number", 0x585d),
    ];
    let tree = check("challenge", &bytes, &[], &numbers);
    assert_eq!(tree.info, "Session Setup Response, Error: STATUS_MORE_PROCESSING_REQUIRED, NTLMSSP_CHALLENGE");
    assert_eq!(tree.all("spnego.mechListMIC").count(), 1);
    assert_eq!(spnego::mechanism_token(&token).map(<[u8]>::len), Some(length));
    let Some(ntlmssp::Message::Challenge { server_challenge, target_name, .. }) = ntlmssp::Message::parse(&challenge.0)
    else {
        panic!()
    };
    assert_eq!((server_challenge, alloc::format!("{target_name}").as_str()), ([8; 8], "AB"));
    // the version stands in the fixed part, whatever the list of attributes says of itself
    let mut lying = bytes.clone();
    let list = bytes.windows(pairs.0.len()).position(|at| at == pairs.0).unwrap();
    lying[list + 2..list + 4].fill(0xff);
    let (_, tree) = decode(&lying, &[]);
    assert_eq!((tree.number("ntlmssp.version.build_number"), tree.faults.len()), (Some(0x585d), 1));

    let response = w().put(&[1; 16]).u8(1).u8(1).put(&[0; 6]).u64(TIME).put(&[2; 8]).u32(0).put(&pairs.0).u32(0);
    let nt = response.0.len() as u16;
    let at = |n: u32| 88 + n;
    let auth = w().put(b"NTLMSSP\0").u32(3).u16(24).u16(24).u32(at(0)).u16(nt).u16(nt).u32(at(24));
    let rest = at(24) + u32::from(nt);
    let auth = auth
        .u16(2)
        .u16(2)
        .u32(rest)
        .u16(2)
        .u16(2)
        .u32(rest + 2)
        .u16(2)
        .u16(2)
        .u32(rest + 4)
        .u16(16)
        .u16(16)
        .u32(rest + 6);
    let auth = auth
        .u32(0xe28a_8235)
        .put(&[10, 0, 0, 0, 0, 0, 0, 15])
        .put(&[5; 16])
        .put(&[3; 24])
        .put(&response.0)
        .text("D")
        .text("U")
        .text("H")
        .put(&[6; 16]);
    let body = w().u16(25).u8(0).u8(1).u32(1).u32(0).u16(88).u16(auth.0.len() as u16).u64(0).put(&auth.0);
    let tree = check(
        "authenticate",
        &message(request(Command::SESSION_SETUP), &body.0),
        &[],
        &[("ntlmssp.messagetype", 3), ("ntlmssp.ntlmv2_response.flags", 2)],
    );
    assert_eq!(tree.info, "Session Setup Request, NTLMSSP_AUTH, User: D\\U");
    assert_eq!((tree.all("ntlmssp.authenticate.mic").count(), tree.all("ntlmssp.ntlmclientchallenge").count()), (1, 1));

    let kerberos = unhex("600f06092a864886f7120102020100aabb");
    let body = w().u16(25).u8(0).u8(1).u32(1).u32(0).u16(88).u16(kerberos.len() as u16).u64(0).put(&kerberos);
    check("kerberos", &message(request(Command::SESSION_SETUP), &body.0), &[], &[("spnego.krb5.tok_id", 1)]);
}
