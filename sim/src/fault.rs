//! Faults of an end, by name, with the rules by which an analysis may report them. One row each.

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the rows say what each is")]
pub enum Act {
    NoNegotiate,
    RefuseNegotiate,
    ShortNegotiate,
    NoCredits,
    SmallFragments,
    SmallReceive,
    Version,
    RefuseCredits,
    GrantTooMuch,
    Stall,
    Deaf,
    HalfClose,
    Die,
    Garbage,
    BadCrc,
    WrongMsn,
    BadLengths,
    BadOffset,
    BadRemaining,
    TooLong,
    RequestZero,
    NotSmb2,
    WrongSignature,
    WrongKey,
    OutOfBounds,
    WrongRights,
    NotGiven,
    StaleKey,
    WrongInvalidate,
    Lie,
    TooMuch,
    Refuse,
    Overrun,
    CreditFirst,
    CreditZero,
    UnknownProc,
    CutHeader,
    SameXid,
    OtherXid,
    InnerXid,
    Nomsg,
    BadPosition,
    ShortChunk,
    OtherShape,
    LongInline,
    Reduced,
    RefuseCall,
    Status,
}

impl Act {
    /// True if it happens at a READ or WRITE.
    pub fn is_transfer(self) -> bool {
        !matches!(
            self,
            Self::NoNegotiate
                | Self::RefuseNegotiate
                | Self::ShortNegotiate
                | Self::NoCredits
                | Self::SmallFragments
                | Self::SmallReceive
                | Self::Version
                | Self::RefuseCredits
                | Self::GrantTooMuch
        )
    }

    /// True if everything else is correct, also after the fault.
    pub fn goes_on(self) -> bool {
        matches!(
            self,
            Self::Lie
                | Self::TooMuch
                | Self::WrongInvalidate
                | Self::Overrun
                | Self::CreditFirst
                | Self::CreditZero
                | Self::SameXid
                | Self::OtherXid
                | Self::InnerXid
                | Self::OtherShape
                | Self::LongInline
                | Self::Reduced
                | Self::RefuseCall
                | Self::Status
        )
    }

    /// True if it needs a request with memory.
    pub fn needs_memory(self) -> bool {
        matches!(
            self,
            Self::WrongKey
                | Self::OutOfBounds
                | Self::WrongRights
                | Self::NotGiven
                | Self::StaleKey
                | Self::WrongInvalidate
                | Self::Lie
                | Self::TooMuch
                | Self::Refuse
        )
    }
}

/// Ends that can have a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// The server.
    Server,
    /// The client.
    Client,
    /// Either.
    Both,
}

/// A row of the table of faults.
#[derive(Debug)]
pub struct Fault {
    /// Its name.
    pub name: &'static str,
    /// The kind of fault.
    pub act: Act,
    /// The ends that can have it.
    pub who: Who,
    /// True if it needs a byte stream.
    pub stream: bool,
    /// Rules, one of which must report it, with the same side.
    pub named: &'static [&'static str],
    /// Rules that may be reported as consequences, with either side.
    pub besides: &'static [&'static str],
}

const fn row(
    name: &'static str,
    act: Act,
    who: Who,
    stream: bool,
    named: &'static [&'static str],
    besides: &'static [&'static str],
) -> Fault {
    Fault { name, act, who, stream, named, besides }
}

use Who::{Both, Client, Server};

/// Rules by which the owner of the memory reports a wrong access.
const KEY: &[&str] = &["RC-NAK", "RDMAP-TERMINATE"];
/// The same, if the capture may have the access before the message with the key.
const PLACE: &[&str] = &["RC-NAK", "RDMAP-TERMINATE", "RDMA-KEY-UNKNOWN"];

/// All faults of SMB Direct and SMB2, in the order of a connection's life.
pub static FAULTS: &[Fault] = &[
    row("no-negotiate", Act::NoNegotiate, Both, false, &["SMBD-NEG-TIMEOUT"], &[]),
    row(
        "refuse-negotiate",
        Act::RefuseNegotiate,
        Server,
        false,
        &["SMBD-NEG-RSP-STATUS"],
        &["SMBD-NEG-RSP-FAILURE-FIELDS"],
    ),
    row(
        "short-negotiate",
        Act::ShortNegotiate,
        Both,
        false,
        &["SMBD-NEG-REQ-LENGTH", "SMBD-NEG-RSP-LENGTH"],
        &["SMBD-NEG-TIMEOUT"],
    ),
    row(
        "no-credits",
        Act::NoCredits,
        Both,
        false,
        &["SMBD-NEG-REQ-CREDITS", "SMBD-NEG-RSP-GRANTED"],
        &["SMBD-NEG-ACCEPTED"],
    ),
    row("small-fragments", Act::SmallFragments, Both, false, &["SMBD-NEG-REQ-FRAGSIZE", "SMBD-NEG-RSP-FRAGSIZE"], &[]),
    row("small-receive", Act::SmallReceive, Both, false, &["SMBD-NEG-REQ-RECVSIZE", "SMBD-NEG-RSP-RECVSIZE"], &[]),
    row("version", Act::Version, Both, false, &["SMBD-NEG-REQ-VERSION", "SMBD-NEG-RSP-VERSION"], &[]),
    row(
        "refuse-credits",
        Act::RefuseCredits,
        Both,
        false,
        &["SMBD-CREDIT-EXHAUSTED", "SMBD-CREDIT-DEADLOCK"],
        // it also spends its own last credit without granting any, and disconnects in the end; its peer, left without
        // credits, grants it none either
        &["SMBD-CREDIT-LAST", "BUG-SMBDIRECT-LAST-CREDIT", "CM-DISCONNECT", "SMB2-UNANSWERED", "SMBD-FRAG-REMAINING"],
    ),
    row("grant-too-much", Act::GrantTooMuch, Both, false, &["SMBD-CREDIT-OVERFLOW"], &[]),
    row("stall", Act::Stall, Server, false, &["SMB2-UNANSWERED"], &[]),
    row("deaf", Act::Deaf, Both, false, &["PEER-SILENT", "SMB2-UNANSWERED"], &[]),
    // in the middle of a reply, the last rule applies
    row("half-close", Act::HalfClose, Server, false, &["SMB2-UNANSWERED", "CM-DISCONNECT", "SMBD-FRAG-REMAINING"], &[]),
    row("die", Act::Die, Both, true, &["TCP-RESET", "SMB2-UNANSWERED"], &[]),
    row("garbage", Act::Garbage, Both, true, &["MPA-CRC", "MPA-RESYNC", "RDMAP-TERMINATE"], &[]),
    // if the capture lacks bytes needed for the CRC, the damaged content is reported
    row("bad-crc", Act::BadCrc, Both, true, &["MPA-CRC"], &["RDMAP-TERMINATE", "DDP-MSN"]),
    row(
        "wrong-msn",
        Act::WrongMsn,
        Both,
        true,
        &["DDP-MSN"],
        &["RDMAP-TERMINATE", "SMB2-MALFORMED", "SMBD-FRAG-REMAINING", "BUG-SMBDIRECT-BATCH-INTERLEAVE"],
    ),
    row(
        "bad-lengths",
        Act::BadLengths,
        Both,
        false,
        &["SMBD-DATA-LENGTH", "BUG-CVE-2025-39943"],
        &["SMB2-MALFORMED", "SMBD-FRAG-REMAINING", "BUG-SMBDIRECT-BATCH-INTERLEAVE"],
    ),
    row(
        "bad-offset",
        Act::BadOffset,
        Both,
        false,
        &["SMBD-DATA-ALIGN"],
        &["BUG-CVE-2025-39943", "SMB2-MALFORMED", "SMBD-FRAG-REMAINING", "BUG-SMBDIRECT-BATCH-INTERLEAVE"],
    ),
    row("bad-remaining", Act::BadRemaining, Both, false, &["SMBD-FRAG-REMAINING"], &["SMB2-MALFORMED"]),
    row(
        "too-long",
        Act::TooLong,
        Both,
        false,
        &["SMBD-DATA-TOO-BIG"],
        &["SMB2-MALFORMED", "SMBD-FRAG-REMAINING", "BUG-SMBDIRECT-BATCH-INTERLEAVE"],
    ),
    row(
        "request-zero",
        Act::RequestZero,
        Both,
        false,
        &["SMBD-DATA-CREDITS-REQUESTED"],
        &["SMBD-FRAG-REMAINING", "BUG-SMBDIRECT-BATCH-INTERLEAVE"],
    ),
    // in the middle of another message it is taken for a part of that
    row(
        "not-smb2",
        Act::NotSmb2,
        Both,
        false,
        &["SMB2-MALFORMED", "SMBD-FRAG-REMAINING"],
        &["BUG-SMBDIRECT-BATCH-INTERLEAVE"],
    ),
    row(
        "wrong-signature",
        Act::WrongSignature,
        Server,
        false,
        &["SMB2-SIGNATURE", "SMB2-ERROR"],
        &["BUG-KSMBD-2FD5DCB1C8EF"],
    ),
    row("wrong-key", Act::WrongKey, Server, false, &["RDMA-KEY-UNKNOWN"], KEY),
    row("out-of-bounds", Act::OutOfBounds, Server, false, &["RDMA-KEY-BOUNDS"], PLACE),
    row("wrong-rights", Act::WrongRights, Server, false, &["RDMA-KEY-DIRECTION"], PLACE),
    row("not-given", Act::NotGiven, Server, false, &["RDMA-KEY-UNKNOWN"], KEY),
    row(
        "stale-key",
        Act::StaleKey,
        Server,
        false,
        // if the reply could not go before it, for lack of credits, only its refusal shows the fault
        &["RDMA-KEY-STALE", "RDMA-ORDER", "RC-NAK", "RDMAP-TERMINATE"],
        // the key of a WRITE was for reading only, and its reply says that nothing was written
        &["RDMA-LENGTH", "RDMA-INVALIDATE", "RDMA-KEY-DIRECTION", "SMB2-REPLY"],
    ),
    row("wrong-invalidate", Act::WrongInvalidate, Server, false, &["RDMA-INVALIDATE"], &["RDMA-LENGTH"]),
    row("lie", Act::Lie, Server, false, &["RDMA-LENGTH"], &[]),
    row("too-much", Act::TooMuch, Server, false, &["RDMA-LENGTH"], &[]),
];

/// Faults of a client where a server would do something else. They were added later and are drawn separately, so that
/// each seed keeps its meaning.
pub static MIRRORS: &[Fault] = &[
    // the mirror of an access that is wrong: one that is right is refused
    row(
        "refuse-access",
        Act::Refuse,
        Client,
        false,
        &["RC-NAK", "RDMAP-TERMINATE"],
        &["SMB2-UNANSWERED", "CM-DISCONNECT", "SMBD-FRAG-REMAINING"],
    ),
];

/// The same of NFS over RPC-over-RDMA.
pub static NFS: &[Fault] = &[
    row("version", Act::Version, Client, false, &["RPCRDMA-VERSION"], &[]),
    row("credit-first", Act::CreditFirst, Client, false, &["RPCRDMA-CREDIT-FIRST"], &[]),
    row("credit-overrun", Act::Overrun, Client, false, &["RPCRDMA-CREDIT-OVERRUN"], &[]),
    // it answers at once, before it has read the data of a WRITE; so do some of those below
    row("credit-zero", Act::CreditZero, Server, false, &["RPCRDMA-CREDIT-ZERO"], &["RDMA-LENGTH"]),
    row("unknown-proc", Act::UnknownProc, Client, false, &["RPCRDMA-PROC"], &[]),
    row("cut-header", Act::CutHeader, Client, false, &["RPCRDMA-MALFORMED"], &[]),
    row(
        "same-xid",
        Act::SameXid,
        Client,
        false,
        &["RPCRDMA-XID"],
        &["RPCRDMA-CREDIT-OVERRUN", "RPCRDMA-CREDIT-FIRST", "RDMA-KEY-REUSE"],
    ),
    row("other-xid", Act::OtherXid, Server, false, &["RPCRDMA-XID"], &["RPC-UNANSWERED"]),
    row("inner-xid", Act::InnerXid, Server, false, &["RPCRDMA-XID"], &[]),
    row("nomsg", Act::Nomsg, Both, false, &["RPCRDMA-NOMSG"], &[]),
    row("bad-position", Act::BadPosition, Client, false, &["RPCRDMA-POSITION"], &[]),
    row("short-chunk", Act::ShortChunk, Client, false, &["RPCRDMA-CHUNK-LENGTH"], &[]),
    row("other-shape", Act::OtherShape, Server, false, &["RPCRDMA-WRITE-SHAPE"], &[]),
    row("lie", Act::Lie, Server, false, &["RPCRDMA-CHUNK-LENGTH"], &[]),
    row("long-inline", Act::LongInline, Both, false, &["RPCRDMA-INLINE"], &[]),
    row("reduced", Act::Reduced, Both, false, &["RPCRDMA-DDP"], &[]),
    row("refuse-call", Act::RefuseCall, Server, false, &["RPCRDMA-ERROR"], &[]),
    row("status", Act::Status, Server, false, &["RPC-IO-ERROR"], &[]),
    row("stall", Act::Stall, Server, false, &["RPC-UNANSWERED"], &[]),
    row("deaf", Act::Deaf, Both, false, &["PEER-SILENT", "RPC-UNANSWERED"], &[]),
    row("half-close", Act::HalfClose, Server, false, &["RPC-UNANSWERED", "CM-DISCONNECT"], &[]),
    row("die", Act::Die, Both, true, &["TCP-RESET", "RPC-UNANSWERED"], &[]),
    row("garbage", Act::Garbage, Both, true, &["MPA-CRC", "MPA-RESYNC", "RDMAP-TERMINATE"], &[]),
    row("bad-crc", Act::BadCrc, Both, true, &["MPA-CRC"], &["RDMAP-TERMINATE", "DDP-MSN"]),
    row("wrong-msn", Act::WrongMsn, Both, true, &["DDP-MSN"], &["RDMAP-TERMINATE", "RPCRDMA-XID"]),
    row("wrong-key", Act::WrongKey, Server, false, &["RDMA-KEY-UNKNOWN"], KEY),
    row("out-of-bounds", Act::OutOfBounds, Server, false, &["RDMA-KEY-BOUNDS"], PLACE),
    row("wrong-rights", Act::WrongRights, Server, false, &["RDMA-KEY-DIRECTION"], PLACE),
    row("not-given", Act::NotGiven, Server, false, &["RDMA-KEY-UNKNOWN"], KEY),
    // the key of a WRITE was for reading only
    row(
        "stale-key",
        Act::StaleKey,
        Server,
        false,
        &["RDMA-KEY-STALE", "RDMA-ORDER", "RC-NAK", "RDMAP-TERMINATE"],
        &["RDMA-KEY-DIRECTION", "RDMA-LENGTH"],
    ),
    row("wrong-invalidate", Act::WrongInvalidate, Server, false, &["RDMA-INVALIDATE"], &["RDMA-LENGTH"]),
    row(
        "refuse-access",
        Act::Refuse,
        Client,
        false,
        &["RC-NAK", "RDMAP-TERMINATE"],
        &["RPC-UNANSWERED", "CM-DISCONNECT"],
    ),
];

/// The fault of this name.
pub fn named(faults: &'static [Fault], name: &str) -> Option<&'static Fault> {
    faults.iter().find(|f| f.name == name)
}
