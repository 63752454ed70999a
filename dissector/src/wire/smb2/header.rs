//! The SMB2 header, \[MS-SMB2\] 2.2.1: 64 bytes before every command, in two forms that differ in eight bytes:
//!
//! ```text
//! SYNC    … MessageId | Reserved (process id) | TreeId | SessionId …
//! ASYNC   … MessageId | AsyncId                        | SessionId …     FLAGS_ASYNC_COMMAND
//! ```
//!
//! Four bytes are the status in a reply, channel sequence and zeros in a request; credits are granted in the one and
//! asked for in the other. All little-endian.

use super::bits;
use super::ntstatus::NtStatus;
use crate::fault::PResult;
use crate::header::Vec;
use crate::leaf::read;
use crate::trace::{Trace, scope};

/// First bytes of every SMB2 message.
pub const PROTOCOL_ID: [u8; 4] = *b"\xfeSMB";

wire_enum! {
    /// The command of a message, \[MS-SMB2\] 2.2.1.
    pub enum Command: u16 {
        NEGOTIATE = 0x0000, "Negotiate Protocol";
        SESSION_SETUP = 0x0001, "Session Setup";
        LOGOFF = 0x0002, "Session Logoff";
        TREE_CONNECT = 0x0003, "Tree Connect";
        TREE_DISCONNECT = 0x0004, "Tree Disconnect";
        CREATE = 0x0005, "Create";
        CLOSE = 0x0006, "Close";
        FLUSH = 0x0007, "Flush";
        READ = 0x0008, "Read";
        WRITE = 0x0009, "Write";
        LOCK = 0x000a, "Lock";
        IOCTL = 0x000b, "Ioctl";
        CANCEL = 0x000c, "Cancel";
        ECHO = 0x000d, "KeepAlive";
        QUERY_DIRECTORY = 0x000e, "Find";
        CHANGE_NOTIFY = 0x000f, "Notify";
        QUERY_INFO = 0x0010, "GetInfo";
        SET_INFO = 0x0011, "SetInfo";
        OPLOCK_BREAK = 0x0012, "Break";
        SERVER_TO_CLIENT_NOTIFICATION = 0x0013, "Server to Client Notification";
    }
}

impl Command {
    /// StructureSize of the request's body; `None` if there are several or the command is not known.
    pub const fn request_size(self) -> Option<u16> {
        Some(match self {
            Self::NEGOTIATE => 36,
            Self::SESSION_SETUP => 25,
            Self::TREE_CONNECT => 9,
            Self::CREATE | Self::IOCTL => 57,
            Self::CLOSE | Self::FLUSH => 24,
            Self::READ | Self::WRITE => 49,
            Self::LOCK => 48,
            Self::QUERY_DIRECTORY | Self::SET_INFO => 33,
            Self::CHANGE_NOTIFY => 32,
            Self::QUERY_INFO => 41,
            Self::LOGOFF | Self::TREE_DISCONNECT | Self::CANCEL | Self::ECHO => 4,
            _ => return None,
        })
    }

    /// StructureSize of the reply's body, where the command succeeds.
    pub const fn reply_size(self) -> u16 {
        match self {
            Self::NEGOTIATE => 65,
            Self::TREE_CONNECT => 16,
            Self::CREATE => 89,
            Self::CLOSE => 60,
            Self::READ | Self::WRITE => 17,
            Self::IOCTL => 49,
            Self::SESSION_SETUP | Self::QUERY_DIRECTORY | Self::CHANGE_NOTIFY | Self::QUERY_INFO => 9,
            Self::SET_INFO => 2,
            // 36 or 44 for a lease
            Self::OPLOCK_BREAK => 24,
            _ => 4,
        }
    }
}

fields! {
    /// Fields of the header.
    pub mod f ["[MS-SMB2] 2.2.1"] {
        HEADER: None = "rdmascope.smb2.header", "SMB2 Header";
        PROTOCOL_ID: U32 = "smb2.protocol_id", "ProtocolId", hex;
        HEADER_LENGTH: U16 = "smb2.header_len", "Header Length", dec;
        CREDIT_CHARGE: U16 = "smb2.credit.charge", "Credit Charge", dec;
        NT_STATUS: U32 = "smb2.nt_status", "NT Status", hex, values NtStatus::VALUES;
        CHANNEL_SEQUENCE: U16 = "smb2.channel_sequence", "Channel Sequence", dec;
        RESERVED: Bytes as Keep = "smb2.reserved", "Reserved";
        COMMAND: U16 = "smb2.cmd", "Command", dec, values Command::VALUES;
        CREDITS_REQUESTED: U16 = "smb2.credits.requested", "Credits requested", dec;
        CREDITS_GRANTED: U16 = "smb2.credits.granted", "Credits granted", dec;
        FLAGS: U32 = "smb2.flags", "Flags", hex;
        FLAG_RESPONSE: Bool & 0x1 / 32 = "smb2.flags.response", "Response";
        FLAG_ASYNC: Bool & 0x2 / 32 = "smb2.flags.async", "Async command";
        FLAG_CHAINED: Bool & 0x4 / 32 = "smb2.flags.chained", "Chained";
        FLAG_SIGNED: Bool & 0x8 / 32 = "smb2.flags.signature", "Signing";
        FLAG_PRIORITY: Bool & 0x70 / 32 = "smb2.flags.priority_mask", "Priority";
        FLAG_DFS: Bool & 0x10000000 / 32 = "smb2.flags.dfs", "DFS operation";
        FLAG_REPLAY: Bool & 0x20000000 / 32 = "smb2.flags.replay", "Replay operation";
        NEXT_COMMAND: U32 = "smb2.chain_offset", "Chain Offset", hex;
        MESSAGE_ID: U64 = "smb2.msg_id", "Message ID", dec;
        PROCESS_ID: U32 = "smb2.header_reserved", "Process Id", hex;
        TREE_ID: U32 = "smb2.tid", "Tree Id", hex;
        ASYNC_ID: U64 = "smb2.aid", "Async Id", hex;
        SESSION_ID: U64 = "smb2.sesid", "Session Id", hex;
        SIGNATURE: Bytes as Secret = "smb2.signature", "Signature";
    }
}

/// The bits of [`Header::flags`].
pub mod flags {
    use super::f;

    /// A reply, or a notification of the server.
    pub const RESPONSE: u32 = f::FLAG_RESPONSE.mask as u32;
    /// The header has an async id in place of the process and tree ids.
    pub const ASYNC: u32 = f::FLAG_ASYNC.mask as u32;
    /// Refers to the session, tree and file of the request before it in the compound.
    pub const RELATED: u32 = f::FLAG_CHAINED.mask as u32;
    /// The signature is to be verified.
    pub const SIGNED: u32 = f::FLAG_SIGNED.mask as u32;
    /// Three bits of priority, SMB 3.1.1.
    pub const PRIORITY: u32 = f::FLAG_PRIORITY.mask as u32;
    /// The path is a DFS path.
    pub const DFS: u32 = f::FLAG_DFS.mask as u32;
}

/// The eight bytes in which the forms of the header differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ids {
    /// The form of requests and of most replies.
    Sync {
        /// Reserved by the spec; a process id by custom.
        process_id: u32,
        /// The tree connect.
        tree_id: u32,
    },
    /// The form of interim and late replies, and of the CANCEL of such a request.
    Async {
        /// Chosen by the server in the interim reply.
        async_id: u64,
    },
}

/// The header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// `StructureSize`: 64.
    pub header_length: u16,
    /// Credits that the request takes, in units of 64 KiB of payload; 0 in SMB 2.0.2.
    pub credit_charge: u16,
    /// The status of a reply; in a request the channel sequence in the low 16 bits. See [`Header::status`].
    pub status_or_channel_sequence: u32,
    /// Command.
    pub command: Command,
    /// Asked for in a request, granted in a reply.
    pub credits: u16,
    /// Bits of [`flags`].
    pub flags: u32,
    /// Bytes from here to the header of the next message of the compound; 0 in the last.
    pub next_command: u32,
    /// Ties a reply to its request; all ones in unsolicited messages of a server.
    pub message_id: u64,
    /// Sync or async.
    pub ids: Ids,
    /// SessionId; 0 without a session.
    pub session_id: u64,
    /// Zeros where not signed.
    pub signature: [u8; 16],
}

impl Header {
    /// Length on the wire, in bytes.
    pub const LEN: usize = 64;

    /// True if it is a reply or a notification of the server.
    pub const fn is_response(&self) -> bool {
        self.flags & flags::RESPONSE != 0
    }

    /// True if it has an async id.
    pub const fn is_async(&self) -> bool {
        self.flags & flags::ASYNC != 0
    }

    /// True if it refers to the session, tree and file of the message before it in the compound.
    pub const fn is_related(&self) -> bool {
        self.flags & flags::RELATED != 0
    }

    /// True if it is signed.
    pub const fn is_signed(&self) -> bool {
        self.flags & flags::SIGNED != 0
    }

    /// 0 to 7.
    pub const fn priority(&self) -> u8 {
        ((self.flags & flags::PRIORITY) >> 4) as u8
    }

    /// The status of a reply; success in a request.
    pub const fn status(&self) -> NtStatus {
        if self.is_response() { NtStatus(self.status_or_channel_sequence) } else { NtStatus::SUCCESS }
    }

    /// Number of times that the client has lost a channel of the session, in a request of SMB 3.
    pub const fn channel_sequence(&self) -> Option<u16> {
        if self.is_response() { None } else { Some(self.status_or_channel_sequence as u16) }
    }

    /// The tree, in the sync form.
    pub const fn tree_id(&self) -> Option<u32> {
        match self.ids {
            Ids::Sync { tree_id, .. } => Some(tree_id),
            Ids::Async { .. } => None,
        }
    }

    /// The async id, in the async form.
    pub const fn async_id(&self) -> Option<u64> {
        match self.ids {
            Ids::Sync { .. } => None,
            Ids::Async { async_id } => Some(async_id),
        }
    }

    /// True if it is the interim reply: the command goes on and a second reply will come.
    pub fn is_interim(&self) -> bool {
        self.is_response() && self.is_async() && self.status() == NtStatus::PENDING
    }

    /// Decodes the header in a subtree of its own. The first four bytes are not judged.
    #[inline]
    pub fn parse<'a, T: Trace>(i: &'a [u8], t: &mut T) -> PResult<'a, Self> {
        scope(f::HEADER, i, t, |i, t| match i.split_first_chunk::<{ Self::LEN }>() {
            Some((head, rest)) => Ok((rest, Self::fields(head, t)?.1)),
            None => Self::fields(i, t),
        })
    }

    #[inline(always)]
    fn fields<'a, T: Trace>(i: &'a [u8], t: &mut T) -> PResult<'a, Self> {
        let start = i;
        let (i, _) = read::be32(f::PROTOCOL_ID, i, t)?;
        let (i, header_length) = read::le16(f::HEADER_LENGTH, i, t)?;
        let (i, credit_charge) = read::le16(f::CREDIT_CHARGE, i, t)?;
        // only the flags, 8 bytes on, say which of its two meanings the next field has; cut before them, it is a
        // request's
        let response = start.get(16).is_some_and(|b| u32::from(*b) & flags::RESPONSE != 0);
        let (i, status_or_channel_sequence) = if response {
            read::le32(f::NT_STATUS, i, t)?
        } else {
            let (i, sequence) = read::le16(f::CHANNEL_SEQUENCE, i, t)?;
            let (i, reserved) = read::array::<2, T>(f::RESERVED, i, t)?;
            (i, u32::from(sequence) | u32::from(u16::from_le_bytes(reserved)) << 16)
        };
        let (i, command) = read::le16(f::COMMAND, i, t)?;
        let (i, credits) = read::le16(if response { f::CREDITS_GRANTED } else { f::CREDITS_REQUESTED }, i, t)?;
        let at = i;
        let (i, flags) = read::le32(f::FLAGS, i, t)?;
        bits(
            at,
            4,
            flags.into(),
            &[
                f::FLAG_RESPONSE,
                f::FLAG_ASYNC,
                f::FLAG_CHAINED,
                f::FLAG_SIGNED,
                f::FLAG_PRIORITY,
                f::FLAG_DFS,
                f::FLAG_REPLAY,
            ],
            t,
        );
        let (i, next_command) = read::le32(f::NEXT_COMMAND, i, t)?;
        let (i, message_id) = read::le64(f::MESSAGE_ID, i, t)?;
        let (i, ids) = if flags & self::flags::ASYNC != 0 {
            let (i, async_id) = read::le64(f::ASYNC_ID, i, t)?;
            (i, Ids::Async { async_id })
        } else {
            let (i, process_id) = read::le32(f::PROCESS_ID, i, t)?;
            let (i, tree_id) = read::le32(f::TREE_ID, i, t)?;
            (i, Ids::Sync { process_id, tree_id })
        };
        let (i, session_id) = read::le64(f::SESSION_ID, i, t)?;
        let (i, signature) = read::array::<16, T>(f::SIGNATURE, i, t)?;
        let command = Command(command);
        Ok((
            i,
            Self {
                header_length,
                credit_charge,
                status_or_channel_sequence,
                command,
                credits,
                flags,
                next_command,
                message_id,
                ids,
                session_id,
                signature,
            },
        ))
    }

    /// Encodes the header at the end of `out`.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&PROTOCOL_ID);
        out.extend_from_slice(&self.header_length.to_le_bytes());
        out.extend_from_slice(&self.credit_charge.to_le_bytes());
        out.extend_from_slice(&self.status_or_channel_sequence.to_le_bytes());
        out.extend_from_slice(&self.command.0.to_le_bytes());
        out.extend_from_slice(&self.credits.to_le_bytes());
        out.extend_from_slice(&self.flags.to_le_bytes());
        out.extend_from_slice(&self.next_command.to_le_bytes());
        out.extend_from_slice(&self.message_id.to_le_bytes());
        match self.ids {
            Ids::Sync { process_id, tree_id } => {
                out.extend_from_slice(&process_id.to_le_bytes());
                out.extend_from_slice(&tree_id.to_le_bytes());
            }
            Ids::Async { async_id } => out.extend_from_slice(&async_id.to_le_bytes()),
        }
        out.extend_from_slice(&self.session_id.to_le_bytes());
        out.extend_from_slice(&self.signature);
    }

    /// The header of a request as a client sends it: everything else 0.
    pub const fn request(command: Command, message_id: u64) -> Self {
        Self {
            header_length: Self::LEN as u16,
            credit_charge: 1,
            status_or_channel_sequence: 0,
            command,
            credits: 1,
            flags: 0,
            next_command: 0,
            message_id,
            ids: Ids::Sync { process_id: 0, tree_id: 0 },
            session_id: 0,
            signature: [0; 16],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::fault_of;
    use crate::trace::{Off, Tree};

    fn example() -> Header {
        Header {
            credit_charge: 16,
            status_or_channel_sequence: 0xc000_0011,
            credits: 24,
            flags: flags::RESPONSE | flags::SIGNED | 0x30,
            ids: Ids::Sync { process_id: 0xfeff, tree_id: 2 },
            session_id: 0x1122_3344_5566_7788,
            signature: [7; 16],
            ..Header::request(Command::READ, 40)
        }
    }

    #[test]
    fn both_forms_read_back() {
        for header in [
            example(),
            Header { flags: 3, ids: Ids::Async { async_id: 9 }, status_or_channel_sequence: 0x103, ..example() },
        ] {
            let mut bytes = Vec::new();
            header.emit(&mut bytes);
            assert_eq!(bytes.len(), Header::LEN);
            let (rest, read) = Header::parse(&bytes, &mut Off).unwrap();
            assert_eq!((rest.len(), read), (0, header));
        }
        let header = example();
        assert_eq!((header.status(), header.priority(), header.tree_id()), (NtStatus::END_OF_FILE, 3, Some(2)));
        assert!(header.is_signed() && !header.is_interim() && header.channel_sequence().is_none());
    }

    #[test]
    fn the_tree_tells_a_request_from_a_reply() {
        let mut bytes = Vec::new();
        example().emit(&mut bytes);
        let mut tree = Tree::new();
        tree.begin(&bytes);
        Header::parse(&bytes, &mut tree).unwrap();
        assert_eq!(tree.number("smb2.protocol_id"), Some(0xfe53_4d42));
        assert_eq!((tree.number("smb2.nt_status"), tree.number("smb2.credits.granted")), (Some(0xc000_0011), Some(24)));
        assert_eq!((tree.number("smb2.flags.priority_mask"), tree.number("smb2.channel_sequence")), (Some(1), None));
        bytes[16] = 0;
        tree.begin(&bytes);
        Header::parse(&bytes, &mut tree).unwrap();
        assert_eq!(
            (tree.number("smb2.channel_sequence"), tree.number("smb2.credits.requested")),
            (Some(0x11), Some(24))
        );
    }

    #[test]
    fn every_prefix_gives_its_fields_and_a_fault() {
        let mut bytes = Vec::new();
        example().emit(&mut bytes);
        for n in 0..bytes.len() {
            let mut tree = Tree::new();
            tree.begin(&bytes[..n]);
            let fault = fault_of(Header::parse(&bytes[..n], &mut tree).unwrap_err());
            assert!(fault.offset_in(&bytes[..n]).is_some());
            assert_eq!(tree.number("smb2.cmd").is_some(), n >= 14);
            assert!(tree.nodes.iter().all(|node| (node.offset + node.len) as usize <= n));
        }
    }
}
