//! The rulebook: every finding that this crate can report, declared once.
//!
//! A rule is one row: stable id, severity, group, the section of the document it rests on, one sentence for the report,
//! the requirement of that section, the usual causes, and the cure. Reports, JSON, the terminal UI, the Wireshark
//! export and `rdmascope explain` all read these rows; none of them has words of its own. A new rule is one more row.
//!
//! Documents: [MS-SMBD] revision 13.0, [MS-SMB2], RFC 8166 (RPC-over-RDMA version 1) with RFC 8167 (its reverse
//! direction) and RFC 8267 (NFS bindings), RFC 5040, 5041, 5044 and 6581 (iWARP), the InfiniBand Architecture
//! Specification volume 1 ("IBTA") with annex A17 (RoCEv2). Sections 3.1.5.x without a document are those of [MS-SMBD].
//! The drafts of RFC 8166 number sections 3, 4, 6 and 8 of the RFC as 4, 5, 8 and 10.

use crate::stored::{Reader, Stored, Writer, stored_enum};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use once_cell::race::OnceBox;

/// Severity of a finding. Ordered: `Error` is the greatest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Worth knowing; nothing is broken.
    Note,
    /// A SHOULD was broken, or it costs performance, or it will break something later.
    Warn,
    /// A MUST was broken, or an operation or connection failed.
    Error,
}

impl Severity {
    /// All severities, the lowest first.
    pub const ALL: &[Severity] = &[Severity::Note, Severity::Warn, Severity::Error];

    /// Lower-case name, as in JSON and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Severity::Note => "note",
            Severity::Warn => "warn",
            Severity::Error => "error",
        }
    }

    /// The reverse of [`Severity::name`], in any case; `None` for another word.
    pub fn from_name(name: &str) -> Option<Severity> {
        Self::ALL.iter().copied().find(|severity| severity.name().eq_ignore_ascii_case(name))
    }
}

/// Part of the traffic that a rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Group {
    /// SMB Direct negotiation.
    Negotiate,
    /// SMB Direct credits.
    Credits,
    /// SMB Direct data transfer and fragmentation.
    Data,
    /// Remote keys and the memory behind them.
    Memory,
    /// SMB2 over RDMA.
    Smb2,
    /// RPC-over-RDMA and NFS.
    RpcRdma,
    /// InfiniBand, RoCEv2, iWARP and TCP below all of that.
    Transport,
    /// Setting up and ending a connection.
    Connection,
    /// Reasons why SMB or NFS does not use RDMA.
    Path,
    /// Problems of the capture itself.
    Capture,
    /// Published implementation bugs that a capture can name.
    KnownBug,
}

impl Group {
    /// All, in the order of a listing.
    pub const ALL: &[Group] = &[
        Group::Negotiate,
        Group::Data,
        Group::Credits,
        Group::Memory,
        Group::Smb2,
        Group::RpcRdma,
        Group::Path,
        Group::Connection,
        Group::Transport,
        Group::Capture,
        Group::KnownBug,
    ];

    /// Heading for a listing.
    pub const fn title(self) -> &'static str {
        match self {
            Group::Negotiate => "SMB Direct negotiation",
            Group::Credits => "SMB Direct credits",
            Group::Data => "SMB Direct data transfer",
            Group::Memory => "RDMA memory",
            Group::Smb2 => "SMB2 over RDMA",
            Group::RpcRdma => "RPC-over-RDMA and NFS",
            Group::Transport => "RDMA transport",
            Group::Connection => "Connections",
            Group::Path => "The path to RDMA",
            Group::Capture => "The capture itself",
            Group::KnownBug => "Known implementation bugs",
        }
    }
}

/// One rule, as declared.
#[derive(Debug, PartialEq, Eq)]
pub struct Row {
    /// Stable id: upper-case words joined by `-`.
    pub id: &'static str,
    /// Severity unless the circumstances of an occurrence change it.
    pub severity: Severity,
    /// Part of the traffic it is about.
    pub group: Group,
    /// Document and section.
    pub spec: &'static str,
    /// The fault, in one sentence.
    pub title: &'static str,
    /// The requirement of the document, in our words or a short quotation.
    pub says: &'static str,
    /// Usual causes, likeliest first.
    pub causes: &'static [&'static str],
    /// The remedy.
    pub cure: &'static str,
    /// Sources of the commands, files and names in the cure: document and section. Empty if the cure names none.
    pub documented: &'static [&'static str],
    /// For a known bug: the versions hit, and the fix. [`Hits::NONE`] for all others.
    pub hits: Hits,
}

/// The versions that have a known bug, and those that fix it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hits {
    /// The implementation that has the bug: `Linux ksmbd`. Empty for a rule that is not a known bug.
    pub product: &'static str,
    /// The first version that has the bug: `5.15`. Empty if not known.
    pub since: &'static str,
    /// The first fixed version of each series, oldest first: `6.1.154`, `6.17`.
    pub fixed: &'static [&'static str],
    /// The commit that fixes the bug. Empty if not known.
    pub commit: &'static str,
    /// More about the versions, as a sentence: all that is known if the version numbers are not.
    pub note: &'static str,
}

/// Result of the check of a version for a known bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hit {
    /// This version has the bug.
    Yes,
    /// The versions that fix it are not known.
    Unknown,
    /// This version is older than the bug, or has the fix.
    No,
}

/// Parses a version such as `6.12.49`; `None` if the text is not one.
pub fn version(text: &str) -> Option<[u32; 3]> {
    let mut numbers = [0; 3];
    let mut parts = text.split('.');
    for (place, number) in numbers.iter_mut().enumerate() {
        match parts.next() {
            Some(part) if !part.is_empty() && part.len() <= 6 && part.bytes().all(|b| b.is_ascii_digit()) => {
                *number = part.parse().ok()?
            }
            None if place == 2 => {}
            _ => return None,
        }
    }
    parts.next().is_none().then_some(numbers)
}

impl Hits {
    /// For a rule that is not a known bug.
    pub const NONE: Hits = Hits { product: "", since: "", fixed: &[], commit: "", note: "" };

    const fn of(product: &'static str, since: &'static str, fixed: &'static [&'static str]) -> Self {
        Self { product, since, fixed, ..Self::NONE }
    }

    const fn noted(product: &'static str, note: &'static str) -> Self {
        Self { product, note, ..Self::NONE }
    }

    const fn by(self, commit: &'static str) -> Self {
        Self { commit, ..self }
    }

    /// Checks if this version has the bug: it is not older than the first version with the bug, and the fix of its
    /// series came later. A series newer than the newest fixed version never had it.
    pub fn hit(&self, asked: [u32; 3]) -> Hit {
        if version(self.since).is_some_and(|since| asked < since) {
            return Hit::No;
        }
        let fixed = || self.fixed.iter().filter_map(|text| version(text));
        let Some(newest) = fixed().max() else { return Hit::Unknown };
        if asked >= newest || fixed().any(|f| f[..2] == asked[..2] && asked >= f) {
            return Hit::No;
        }
        if self.note.is_empty() { Hit::Yes } else { Hit::Unknown }
    }
}

impl fmt::Display for Hits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.since.is_empty() && self.fixed.is_empty() {
            return f.write_str(self.note);
        }
        f.write_str(self.product)?;
        if !self.since.is_empty() {
            write!(f, " {} and later", self.since)?;
        }
        f.write_str(".")?;
        if let [others @ .., last] = self.fixed {
            f.write_str(" Fixed in ")?;
            for (n, version) in others.iter().enumerate() {
                write!(f, "{}{version}", if n > 0 { ", " } else { "" })?;
            }
            write!(f, "{}{last}", if others.is_empty() { "" } else { " and " })?;
            if !self.commit.is_empty() {
                write!(f, " ({})", self.commit)?;
            }
            f.write_str(".")?;
        }
        if !self.note.is_empty() {
            write!(f, " {}", self.note)?;
        }
        Ok(())
    }
}

macro_rules! hits {
    () => {
        Hits::NONE
    };
    ($hits:expr) => {
        $hits
    };
}

/// Declares [`Rule`] and the table behind it from the same rows.
macro_rules! rules {
    ($($name:ident $id:literal $severity:ident $group:ident $spec:literal {
        title: $title:literal, says: $says:literal, causes: [$($cause:literal),+ $(,)?], cure: $cure:literal
        $(, documented: [$($document:literal),+ $(,)?])? $(, hits: $hits:expr)? $(,)?
    })+) => {
        /// Every rule. The variant's name is its id in camel case.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Rule {
            $(#[doc = $title] $name,)+
            /// A known bug that was added at run time ([`give`]), by its place among these.
            Given(u8),
        }

        enum Index { $($name,)+ Given }

        impl Rule {
            /// All rules that are built in, in the order of the table.
            pub const ALL: &[Rule] = &[$(Rule::$name),+];

            /// Its place in [`Rule::all`].
            pub const fn place(self) -> usize {
                match self {
                    $(Rule::$name => Index::$name as usize,)+
                    Rule::Given(n) => Index::Given as usize + n as usize,
                }
            }

            /// The built-in row of this rule.
            pub fn declared(self) -> &'static Row {
                match self {
                    Rule::Given(_) => &UNKNOWN,
                    $(Rule::$name => {
                        const ROW: Row = Row {
                            id: $id, severity: Severity::$severity, group: Group::$group, spec: $spec, title: $title, says: $says,
                            causes: &[$($cause),+], cure: $cure, documented: &[$($($document),+)?], hits: hits!($($hits)?),
                        };
                        &ROW
                    })+
                }
            }
        }
    };
}

/// The row of a known bug that was never added.
const UNKNOWN: Row = Row {
    id: "BUG-UNKNOWN",
    severity: Severity::Note,
    group: Group::KnownBug,
    spec: "",
    title: "A known bug that this program has no row for.",
    says: "",
    causes: &[],
    cure: "",
    documented: &[],
    hits: Hits::NONE,
};

/// The maximum number of known bugs that [`give`] adds.
pub const GIVEN_MAX: usize = 100;

/// Rows of known bugs that were added at run time.
struct Given {
    /// By place in [`Rule::all`].
    rows: Vec<Option<&'static Row>>,
    added: u8,
}

static GIVEN: OnceBox<Given> = OnceBox::new();

/// Replaces built-in known bugs by rows with the same id, and adds the other rows. Returns the rules of the rows, in
/// their order. To be called once, before anything is analysed: `None` after an earlier call, or if more than
/// [`GIVEN_MAX`] rows are new.
pub fn give(rows: &[&'static Row]) -> Option<Vec<Rule>> {
    let mut given = Given { rows: vec![None; Rule::ALL.len()], added: 0 };
    let mut rules = Vec::with_capacity(rows.len());
    for row in rows {
        let rule = match Rule::ALL.iter().copied().find(|rule| rule.declared().id == row.id) {
            Some(rule) => rule,
            None if usize::from(given.added) < GIVEN_MAX => {
                given.added += 1;
                given.rows.push(None);
                Rule::Given(given.added - 1)
            }
            None => return None,
        };
        given.rows[rule.place()] = Some(row);
        rules.push(rule);
    }
    GIVEN.set(Box::new(given)).ok().map(|()| rules)
}

impl Rule {
    /// The row of this rule: the one added at run time, else the built-in one.
    pub fn row(self) -> &'static Row {
        match GIVEN.get() {
            Some(given) => given.rows.get(self.place()).copied().flatten().unwrap_or_else(|| self.declared()),
            None => self.declared(),
        }
    }

    /// All rules, built in and added, in the order of their places.
    pub fn all() -> impl Iterator<Item = Rule> {
        let added = GIVEN.get().map_or(0, |given| given.added);
        Self::ALL.iter().copied().chain((0..added).map(Rule::Given))
    }

    /// The stable id.
    pub fn id(self) -> &'static str {
        self.row().id
    }

    /// The rule with this id, in any case; `None` if there is none.
    pub fn from_id(id: &str) -> Option<Rule> {
        Self::all().find(|rule| rule.id().eq_ignore_ascii_case(id))
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.id())
    }
}

rules! {
    // ---- SMB Direct negotiation -----------------------------------------------------------------------------------

    SmbdNegFirst "SMBD-NEG-FIRST" Error Negotiate "[MS-SMBD] 2.2, 3.1.5.2, 3.1.5.5" {
        title: "The connection does not begin with exactly one Negotiate Request and its response.",
        says: "The first message of a connection is the client's Negotiate Request, the second the server's Negotiate \
            Response; \
               after a successful negotiation every further message must be a Data Transfer message.",
        causes: [
            "A client or server that sends data, or an empty message granting credits, before the negotiation is \
                complete",
            "Something that does not speak SMB Direct connected to this port",
            "The capture began after the first message (the finding then says that it is not certain)",
        ],
        cure: "Compare the first three sends of the connection with a healthy one. If the server sends early, look for \
            a ksmbd update; if \
               the port is shared, check which service listens there.",
    }
    SmbdNegReqLength "SMBD-NEG-REQ-LENGTH" Error Negotiate "[MS-SMBD] 2.2.1, 3.1.5.6" {
        title: "The Negotiate Request is shorter than 20 bytes.",
        says: "The receiver must verify that the message is at least 20 bytes long, and must terminate the connection \
            if it is not.",
        causes: ["A client that is not SMB Direct (a port scanner, an NFS client on the wrong port)", "A broken or \
            fuzzed client"],
        cure: "Identify the client by its address. The server is right to close; nothing needs changing on it.",
    }
    SmbdNegReqVersion "SMBD-NEG-REQ-VERSION" Error Negotiate "[MS-SMBD] 2.2.1, 3.1.5.6" {
        title: "The Negotiate Request does not offer protocol version 1.0 (0x0100).",
        says: "MaxVersion must not be below MinVersion, and the range between them must include 0x0100; otherwise the \
            server answers \
               STATUS_NOT_SUPPORTED.",
        causes: [
            "A client that fills the version fields in the wrong byte order",
            "A client for a later version of the protocol that no longer offers 1.0 (none is published)",
        ],
        cure: "Fix or replace the client: 1.0 is the only version there is.",
    }
    SmbdNegReqCredits "SMBD-NEG-REQ-CREDITS" Error Negotiate "[MS-SMBD] 3.1.5.6" {
        title: "The Negotiate Request asks for no credits.",
        says: "CreditsRequested must be greater than 0; otherwise the server must terminate the connection.",
        causes: ["The client's send credit target is configured as 0"],
        cure: "On a Linux client set /proc/fs/cifs/smbd_send_credit_target to its default, 255, and mount again.",
    }
    SmbdNegReqRecvsize "SMBD-NEG-REQ-RECVSIZE" Error Negotiate "[MS-SMBD] 3.1.5.6" {
        title: "The Negotiate Request offers a MaxReceiveSize below 128 bytes.",
        says: "MaxReceiveSize must be at least 128; otherwise the server must terminate the connection.",
        causes: ["The client's receive size was tuned too low"],
        cure: "On a Linux client set /proc/fs/cifs/smbd_max_receive_size to its default, 1364 (8192 is what Windows \
            uses), and mount again.",
    }
    SmbdNegReqFragsize "SMBD-NEG-REQ-FRAGSIZE" Error Negotiate "[MS-SMBD] 3.1.5.6" {
        title: "The Negotiate Request offers a MaxFragmentedSize below 131,072 bytes.",
        says: "MaxFragmentedSize must be at least 131,072; otherwise the server must terminate the connection.",
        causes: [
            "The client computes it from receive size and credits, and one of the two was tuned down",
            "The client's own limit was tuned down",
        ],
        cure: "Raise the client's receive size or receive credits (Linux: smbd_max_receive_size, \
            smbd_receive_credit_max and \
               smbd_max_fragmented_recv_size under /proc/fs/cifs) and mount again.",
    }
    SmbdNegReqPreferred "SMBD-NEG-REQ-PREFERRED" Note Negotiate "[MS-SMBD] appendix B <5>" {
        title: "The client prefers to send more than 8,136 bytes in one message, which Windows Server refuses.",
        says: "Windows Server 2012 R2 and later fail the negotiation with STATUS_INSUFFICIENT_RESOURCES when \
            PreferredSendSize is \
               greater than 8136. The protocol itself sets no limit.",
        causes: ["The client's maximum send size was tuned up"],
        cure: "Keep the client's send size at or below 8136 (Linux: /proc/fs/cifs/smbd_max_send_size; its default is \
            1364).",
    }
    SmbdNegRspLength "SMBD-NEG-RSP-LENGTH" Error Negotiate "[MS-SMBD] 2.2.2, 3.1.5.7" {
        title: "The Negotiate Response is shorter than 32 bytes.",
        says: "The client must verify that the response is at least 32 bytes long, and must terminate the connection \
            if it is not.",
        causes: ["The server sent something else first, such as an empty message granting credits", "A broken server"],
        cure: "Look at the frame: if it decodes as a Data Transfer message, the server sent data before its response \
            (see SMBD-NEG-FIRST).",
    }
    SmbdNegRspVersion "SMBD-NEG-RSP-VERSION" Error Negotiate "[MS-SMBD] 2.2.2, 3.1.5.7" {
        title: "The server accepted, but chose another protocol version than 1.0 (0x0100).",
        says: "NegotiatedVersion must be 0x0100; otherwise the client must terminate the connection.",
        causes: ["A broken server, or one that fills the field in the wrong byte order"],
        cure: "Fix the server: 1.0 is the only version there is.",
    }
    SmbdNegRspRecvsize "SMBD-NEG-RSP-RECVSIZE" Error Negotiate "[MS-SMBD] 3.1.5.7" {
        title: "The server offers a MaxReceiveSize below 128 bytes.",
        says: "MaxReceiveSize must be at least 128; otherwise the client must terminate the connection. A server that \
            was asked for less \
               (PreferredSendSize) must still offer 128.",
        causes: [
            "The client asked for a PreferredSendSize below 128 and the server took it as it was",
            "The server's receive size was tuned too low",
        ],
        cure: "Raise the client's send size (Linux: /proc/fs/cifs/smbd_max_send_size) or the server's receive size.",
    }
    SmbdNegRspFragsize "SMBD-NEG-RSP-FRAGSIZE" Error Negotiate "[MS-SMBD] 3.1.5.7" {
        title: "The server offers a MaxFragmentedSize below 131,072 bytes.",
        says: "MaxFragmentedSize must be at least 131,072; otherwise the client must terminate the connection.",
        causes: [
            "ksmbd derives it from its receive size and receive credits (half their product), and adopts the client's \
                send size as its \
            receive size: 255 credits of 1024 bytes make 130,560",
            "The server's own limit was tuned down",
        ],
        cure: "Raise the client's send size (Linux: /proc/fs/cifs/smbd_max_send_size, default 1364) or the server's \
            receive credits, then \
               connect again.",
    }
    SmbdNegRspGranted "SMBD-NEG-RSP-GRANTED" Error Negotiate "[MS-SMBD] 3.1.5.3, 3.1.5.7" {
        title: "The server accepted without granting a single credit.",
        says: "CreditsGranted must be greater than 0; otherwise the client must terminate the connection. A server \
            that cannot post a \
               receive has to refuse with an error status instead.",
        causes: ["The server is out of memory or of receive work requests", "The server's receive credit limit is \
            configured as 0"],
        cure: "Check the server's log for failed allocations or failed ib_post_recv, and its credit limit.",
    }
    SmbdNegRspRequested "SMBD-NEG-RSP-REQUESTED" Error Negotiate "[MS-SMBD] 3.1.5.7" {
        title: "The server asks for no credits.",
        says: "CreditsRequested must be greater than 0; otherwise the client must terminate the connection. Without \
            credits a server \
               cannot reply.",
        causes: ["The server's send credit target is configured as 0", "A broken server"],
        cure: "Restore the server's send credit target (255 in Windows and ksmbd).",
    }
    SmbdNegRspPreferred "SMBD-NEG-RSP-PREFERRED" Error Negotiate "[MS-SMBD] 2.2.2, 3.1.5.7" {
        title: "The server intends to send larger messages than the client can receive.",
        says: "PreferredSendSize of the response must be less than or equal to MaxReceiveSize of the request; \
            otherwise the client must \
               terminate the connection.",
        causes: ["The server ignores the client's MaxReceiveSize"],
        cure: "As a workaround raise the client's receive size to the server's send size; the fault is the server's.",
    }
    SmbdNegRspStatus "SMBD-NEG-RSP-STATUS" Error Negotiate "[MS-SMBD] 2.2.2, 3.1.5.3" {
        title: "The server refused the negotiation.",
        says: "Status is 0 when the negotiation succeeds. STATUS_NOT_SUPPORTED means that no common version was \
            offered; \
               STATUS_INSUFFICIENT_RESOURCES is what Windows answers to a PreferredSendSize over 8136 and to a lack of \
               receive buffers.",
        causes: ["The values in the request (see other findings on the same connection)", "The server is out of \
            resources for another connection"],
        cure: "Read the NTSTATUS in the finding. If the request breaks no rule, look at the server's log and its \
            number of connections.",
    }
    SmbdNegRspFailureFields "SMBD-NEG-RSP-FAILURE-FIELDS" Note Negotiate "[MS-SMBD] 3.1.5.3" {
        title: "A refusal carries values in fields that have to be zero.",
        says: "If Status is not 0, all fields other than MinVersion, MaxVersion and Status must be 0.",
        causes: ["The server fills in the response before it decides to refuse"],
        cure: "Harmless: the client discards them. Report it to the server's maintainers.",
    }
    SmbdNegRange "SMBD-NEG-RANGE" Warn Negotiate "[MS-SMBD] 2.2.1, 2.2.2, 3.1.5.2, 3.1.5.3" {
        title: "MinVersion or MaxVersion of a negotiation names a version that does not exist.",
        says: "Both fields must be 0x0100, in the request and in the response, a refusal included. A receiver checks \
            only that the range \
               includes 0x0100.",
        causes: ["A sender that fills the version fields in the wrong byte order or not at all", "A peer for a later \
            version of the protocol"],
        cure: "Harmless to most peers as long as the range includes 0x0100; Windows Server 2012 refuses any other range \
            with STATUS_NOT_SUPPORTED. Report it to the sender's maintainers.",
    }
    SmbdNegAccepted "SMBD-NEG-ACCEPTED" Error Negotiate "[MS-SMBD] 3.1.5.6, 3.1.5.7" {
        title: "A side accepted a negotiation that it must refuse.",
        says: "The receiver of a Negotiate Request or Response must check its fields and terminate the connection \
            where one is wrong; a \
               range of versions without 0x0100 must be answered with STATUS_NOT_SUPPORTED.",
        causes: ["A receiver that does not check what it is sent", "A receiver that answers with a status of its own \
            choice"],
        cure: "The peer's message is wrong in the first place: see the finding about it. Tell the maintainers of this \
            side that the check \
               is missing.",
    }
    SmbdNegTimeout "SMBD-NEG-TIMEOUT" Error Negotiate "[MS-SMBD] 3.1.4.1, 3.1.6.1, 3.1.7.2" {
        title: "The negotiation did not finish in time.",
        says: "A server waits 5 seconds for the Negotiate Request after it accepted the connection, a client 120 \
            seconds for its \
               connection and the response; then the connection should be terminated.",
        causes: [
            "The peer accepted the RDMA connection but its SMB service is stuck, or is not the one listening",
            "Sends are lost: path MTU or priority-flow-control mismatch lets small connection packets through and \
                drops others",
            "The answer was sent but the capture has only one direction",
        ],
        cure: "See whether the request is acknowledged at transport level. Acknowledged and unanswered: look at the \
            server's log. \
               Retransmitted: look at the network, with a ping of full MTU size and the switch's drop counters.",
    }
    SmbdNegReach "SMBD-NEG-REACH" Note Negotiate "derived from [MS-SMBD] 3.1.5.4, 3.1.5.9" {
        title: "The agreed sizes allow messages that the agreed credits cannot carry without a pause.",
        says: "A message may be as long as MaxFragmentedSize, in pieces of at most the send size less 24 bytes, one \
            credit each. With \
               fewer credits outstanding the sender must stop in the middle and wait for grants. An offer of 131,072 \
               bytes is exempt: it \
               is the least that the protocol allows.",
        causes: [
            "MaxFragmentedSize is a fixed number (1 MiB) while credits or receive size were tuned down",
            "Memory pressure keeps the receiver from posting all receives that were asked for",
        ],
        cure: "Raise credits or receive size, or lower MaxFragmentedSize to what credits times (receive size - 24) can \
            hold.",
    }
    SmbdReserved "SMBD-RESERVED" Note Negotiate "[MS-SMBD] 2.2.1, 2.2.2, 2.2.3" {
        title: "A reserved field or the padding is not zero.",
        says: "The sender should set reserved fields and padding to 0; the receiver must ignore them.",
        causes: ["Memory is sent without being cleared", "A sender that uses the bits for something of its own"],
        cure: "Harmless to the peer. Check whether the bytes repeat older traffic: if so, the sender leaks memory, and \
            its maintainers \
               should know.",
    }

    // ---- SMB Direct data transfer ---------------------------------------------------------------------------------

    SmbdDataLength "SMBD-DATA-LENGTH" Error Data "[MS-SMBD] 2.2.3, 3.1.5.8" {
        title: "A Data Transfer message is shorter than its header or than the data it announces.",
        says: "The message must be at least 20 bytes long, and DataOffset + DataLength must not exceed its length; \
            otherwise the receiver \
               must terminate the connection.",
        causes: ["A sender that computes lengths wrongly", "An attack: several kernels once trusted these fields"],
        cure: "The receiver should close the connection; one that does not is itself unsafe (see BUG-CVE-2025-39943). \
            Find out who the \
               sender is.",
    }
    SmbdDataAlign "SMBD-DATA-ALIGN" Error Data "[MS-SMBD] 2.2.3, 3.1.5.8" {
        title: "DataOffset points to a place where no payload can be.",
        says: "DataOffset must be a multiple of 8, lie behind the 20-byte header, and be 0 if there is no payload. A \
            receiver must \
               terminate the connection when it is not 8-byte aligned.",
        causes: ["A sender that puts the payload directly behind the header (offset 20) instead of at 24"],
        cure: "Fix the sender: 24 is the value the document recommends.",
    }
    SmbdDataTooBig "SMBD-DATA-TOO-BIG" Error Data "[MS-SMBD] 3.1.1.1, 3.1.5.4" {
        title: "A message is longer than the receiver can take.",
        says: "DataOffset + DataLength must not exceed the negotiated send size, which is at most the receiver's \
            MaxReceiveSize: the \
               receive buffers are that long and no longer.",
        causes: ["A sender that ignores the negotiated size", "The negotiation was missed and this size is an estimate"],
        cure: "The receiver's hardware ends the connection with a length error (a remote invalid request NAK, or an \
            RDMAP Terminate). Fix \
               the sender; as a workaround give the receiver larger buffers.",
    }
    SmbdDataCreditsRequested "SMBD-DATA-CREDITS-REQUESTED" Error Data "[MS-SMBD] 2.2.3, 3.1.5.8" {
        title: "A Data Transfer message asks for no credits.",
        says: "CreditsRequested is the total that the sender wants to hold and must be at least 1; otherwise the \
            receiver must terminate \
               the connection.",
        causes: ["A sender that takes the field for the number of additional credits", "A send credit target \
            configured as 0"],
        cure: "Fix the sender: every message carries its whole credit target.",
    }
    SmbdFragTooBig "SMBD-FRAG-TOO-BIG" Error Data "[MS-SMBD] 3.1.4.2, 3.1.5.8" {
        title: "A fragmented message is longer than the receiver said it can reassemble.",
        says: "DataLength + RemainingDataLength must not exceed the receiver's MaxFragmentedSize; otherwise the \
            receiver must terminate \
               the connection.",
        causes: [
            "A large SMB2 message without the RDMA channel, towards a peer with a small limit",
            "A receiver that checks against its own default instead of what it advertised (the reverse error: it \
                closes for no reason)",
        ],
        cure: "Let large I/O use the RDMA channel, or raise the receiver's MaxFragmentedSize.",
    }
    SmbdFragRemaining "SMBD-FRAG-REMAINING" Error Data "[MS-SMBD] 3.1.5.4, 3.1.5.8" {
        title: "The fragments of a message do not add up.",
        says: "RemainingDataLength is the number of bytes still to come: it falls by DataLength from fragment to \
            fragment and is 0 in the \
               last. Fragments of one message are sent in strict order with nothing between them.",
        causes: [
            "Two threads of the sender interleave their messages, or it gave up in the middle of one",
            "A fragment is missing from the capture (the finding then says that it is not certain)",
        ],
        cure: "If the capture is complete, the receiver will reassemble garbage or close: update the sender. See \
               BUG-SMBDIRECT-BATCH-INTERLEAVE.",
    }
    SmbdFlags "SMBD-FLAGS" Warn Data "[MS-SMBD] 2.2.3" {
        title: "Undefined flag bits are set in a Data Transfer message.",
        says: "Flags is 0 or SMB_DIRECT_RESPONSE_REQUESTED (0x0001); no other value is defined.",
        causes: ["Memory is sent without being cleared", "A message that is not SMB Direct was taken for it"],
        cure: "Look at the payload: if it does not begin with an SMB2 header, this connection probably carries another \
            protocol.",
    }
    SmbdKeepalive "SMBD-KEEPALIVE" Error Data "[MS-SMBD] 3.1.2.2, 3.1.5.8, 3.1.6.2" {
        title: "A request for a prompt response was not answered in time.",
        says: "A message with SMB_DIRECT_RESPONSE_REQUESTED must be answered promptly with any Data Transfer message. \
            If the idle timer \
               expires again (Windows: after 5 seconds) the connection should be terminated.",
        causes: [
            "The peer is hung, was powered off, or its RDMA device stopped",
            "The peer holds no credit and so may not answer",
            "Loss in the network: see the retransmissions of the same connection",
        ],
        cure: "Check which side was silent last at transport level. Acknowledged but unanswered is the peer's \
            software; unacknowledged is \
               the network or its device.",
    }
    SmbdFragCost "SMBD-FRAG-COST" Note Data "[MS-SMBD] 1.3; [MS-SMB2] 2.2.19, 2.2.21" {
        title: "READ or WRITE data travelled in fragments that RDMA could have carried directly.",
        says: "Data of a READ or WRITE may be placed by RDMA into the memory that the request describes (Channel \
            SMB2_CHANNEL_RDMA_V1 or \
               _INVALIDATE); then it costs no credits, no copies and no reassembly.",
        causes: [
            "The I/O is below the client's threshold (Linux: rdma_readwrite_threshold, default 4096 bytes)",
            "The session is signed or encrypted and the two sides did not negotiate RDMA transforms, so the client \
                sends the data inline",
            "The client fell back after a failed memory registration",
        ],
        cure: "Use larger I/O; check whether signing or encryption is really wanted on this network; look for \
            registration errors on the \
               client.",
    }

    // ---- SMB Direct credits ---------------------------------------------------------------------------------------

    SmbdCreditOverrun "SMBD-CREDIT-OVERRUN" Error Credits "[MS-SMBD] 3.1.5.1" {
        title: "A message was sent without a credit.",
        says: "A sender without credits (Connection.SendCredits is 0) must not send: each send uses one credit, and \
            each credit stands for \
               one receive that the peer has posted.",
        causes: [
            "The sender counts wrongly, or counts credits twice when messages cross",
            "A grant is missing from the capture (the finding then says that it is not certain)",
        ],
        cure: "Look for RNR NAKs after this frame: they confirm that the receiver had no buffer. Then update the \
            sender. Without RNR NAKs, \
               suspect the capture first.",
    }
    SmbdCreditLast "SMBD-CREDIT-LAST" Warn Credits "[MS-SMBD] 3.1.5.1" {
        title: "The last credit was spent on a message that grants none.",
        says: "If only one credit is left and the message would grant none, the sender must wait: the last credit is \
            kept for a message \
               that hands credits to the peer, or both sides can end up unable to speak.",
        causes: [
            "An implementation without this rule (the smbdirect code of Linux before its repair in 2026)",
            "Very few credits agreed, so that the case occurs at all",
        ],
        cure: "Raise the number of credits; update the sender. If the connection hung afterwards see \
            SMBD-CREDIT-DEADLOCK.",
    }
    SmbdCreditStall "SMBD-CREDIT-STALL" Warn Credits "[MS-SMBD] 3.1.5.1, 3.1.5.9" {
        title: "A sender with something to send had to wait for credits.",
        says: "A sender without credits must wait until the peer grants some.",
        causes: [
            "The peer grants late: it posts receives only when it has a message of its own to send, or its CPU is busy",
            "Too few credits for the round-trip time and message rate",
            "Large data goes inline in fragments, one credit each (see SMBD-FRAG-COST)",
        ],
        cure: "Raise the receiver's credit limit (Windows and Linux default to 255), move large data to the RDMA \
            channel, and check what \
               the receiver did during the wait.",
    }
    SmbdCreditStarved "SMBD-CREDIT-STARVED" Warn Credits "[MS-SMBD] 3.1.5.9" {
        title: "The receiver keeps granting less than it was asked for.",
        says: "While the peer's credit target is above what it holds, and the receiver is below its own limit, the \
            receiver should post \
               more receives and grant them. The limit is not on the wire: the rule looks for a peer that never held a \
               quarter of its \
               target over 64 messages.",
        causes: [
            "The receiver's limit is lower than the sender's target: the credits held stay at it from the beginning",
            "Credits leak: receives are not posted again after some path (errors, keepalives, empty messages), and the \
                credits held fall \
             step by step",
            "Memory pressure on the receiver",
        ],
        cure: "Watch the credits held over time: a staircase downwards is a leak (update the receiver), a flat line is \
            a limit (raise it).",
    }
    SmbdCreditExhausted "SMBD-CREDIT-EXHAUSTED" Error Credits "[MS-SMBD] 3.1.5.1, 3.1.5.8, 3.1.5.9" {
        title: "A side ran out of credits and was granted none before the connection ended.",
        says: "A receiver posts receives and grants credits for them as messages come in; with one credit left a \
            sender may only send a \
               message that grants some itself.",
        causes: [
            "The receiver's software is stuck, or posts no more receives",
            "A receiver that grants credits when it negotiates and never again",
            "Grants are missing from the capture",
        ],
        cure: "Look at the host that should have granted: its log, its memory, and whether it still acknowledges at \
            transport level.",
    }
    SmbdCreditOverflow "SMBD-CREDIT-OVERFLOW" Warn Credits "[MS-SMBD] 2.2.3, 3.1.5.9" {
        title: "A side was granted more credits than a credit field can count.",
        says: "CreditsGranted and CreditsRequested have 16 bits; a receiver posts no more receives than it is asked \
            for, so nobody can \
               hold more than 65,535.",
        causes: ["Credits granted again for receives that were already counted", "A peer that tests what happens"],
        cure: "Update the side that grants too much. The other side may run into receiver-not-ready errors, because no \
            receives stand \
               behind the grants.",
    }
    SmbdCreditDeadlock "SMBD-CREDIT-DEADLOCK" Error Credits "[MS-SMBD] 3.1.5.1, 3.1.5.9" {
        title: "Both sides are out of credits and silent.",
        says: "The rules keep one credit back for a message that grants; if both sides spend their last credit without \
            granting, neither \
               may send again and only a timeout ends it.",
        causes: ["One side spent its last credit without granting (see SMBD-CREDIT-LAST)", "Credits leaked until none \
            were left (see SMBD-CREDIT-STARVED)"],
        cure: "Reconnect to recover. Raise credits on both sides and update the side that broke SMBD-CREDIT-LAST first.",
    }

    // ---- RDMA memory ----------------------------------------------------------------------------------------------

    RdmaKeyUnknown "RDMA-KEY-UNKNOWN" Error Memory "[MS-SMBD] 2.2.3.1, 3.1.4.5, 3.1.4.6; RFC 8166 3.4.3" {
        title: "An RDMA Read or Write uses a key that was never advertised.",
        says: "RDMA may only go to buffers that the peer has described in a request on this connection: key, offset \
            and length.",
        causes: [
            "The request that advertised it is missing from the capture or was encrypted (the finding then says that \
                it is not certain)",
            "The key was taken from another connection, or byte-swapped",
            "An attack on remote memory",
        ],
        cure: "Look for a remote access error in reply: the device refused. If it was accepted, an unadvertised region \
            is open: find out \
               who registered it.",
    }
    RdmaKeyBounds "RDMA-KEY-BOUNDS" Error Memory "[MS-SMBD] 2.2.3.1, 3.1.4.5, 3.1.4.6; RFC 8166 3.4.3" {
        title: "An RDMA Read or Write goes outside the advertised range.",
        says: "The transfer must stay between Offset and Offset + Length of the descriptor, or segment, that \
            advertised the key.",
        causes: ["A responder that moves more than was asked for", "Rounding up to a page or to four bytes", "An attack on remote memory"],
        cure: "Compare range and access in the finding. A few bytes over is rounding; more is a bug of the side that \
            drove the transfer.",
    }
    RdmaKeyStale "RDMA-KEY-STALE" Error Memory "[MS-SMBD] 3.1.4.4; RFC 8166 8.1.3" {
        title: "An RDMA Read or Write uses a key after its operation ended.",
        says: "Once a buffer is deregistered or its key invalidated, no remote access may be possible; a key lives as \
            long as the \
               operation that advertised it.",
        causes: [
            "The responder replied before its RDMA was finished (see RDMA-ORDER)",
            "A late retransmission that was taken for a new operation",
            "The operation was cancelled and the server went on",
        ],
        cure: "If the device refused it the connection is gone; if not, memory that may already hold something else \
            was read or \
               overwritten: treat the data as suspect.",
    }
    RdmaKeyDirection "RDMA-KEY-DIRECTION" Error Memory "[MS-SMBD] 3.1.4.3, 3.1.4.5, 3.1.4.6; RFC 8166 3.4.5, 3.4.6" {
        title: "An RDMA operation goes the wrong way for the buffer it uses.",
        says: "A buffer is registered for the one access it is meant for: remote write for the data of a READ, remote \
            read for the data of \
               a WRITE; the same holds for Write and Read chunks.",
        causes: ["A responder that mixes up two requests", "An attack on remote memory"],
        cure: "Expect a remote access error. If none came, the requester registers its memory too permissively.",
    }
    RdmaLength "RDMA-LENGTH" Error Memory "[MS-SMBD] 2.2.2, 3.1.4.5, 3.1.4.6; [MS-SMB2] 2.2.20, 2.2.22; RFC 8166 3.4.5" {
        title: "The bytes moved by RDMA differ from what request and reply say.",
        says: "A READ reply states how much was written to the client, a WRITE reply how much was taken; one request \
            moves at most \
               MaxReadWriteSize bytes.",
        causes: [
            "RDMA packets are missing from the capture (the finding then says that it is not certain)",
            "A short read or write whose reply still reports the full length",
        ],
        cure: "If the capture is complete, data was lost or invented: compare file contents with a checksum and report \
            the server.",
    }
    RdmaOrder "RDMA-ORDER" Error Memory "[MS-SMBD] 4.5; RFC 8166 3.5.2" {
        title: "The reply was sent before the last RDMA Write of its data.",
        says: "The data is placed first and the reply sent after it: RDMA Writes and the Send on the same queue pair \
            arrive in order, and \
               that order is what tells the client that its data is there.",
        causes: ["A server that writes and replies on different queue pairs or threads", "Packets reordered by the \
            capture, not by the network"],
        cure: "If sequence numbers confirm the order, the client may have read memory that was not yet filled: update \
            the server.",
    }
    RdmaKeyLeak "RDMA-KEY-LEAK" Note Memory "[MS-SMBD] 3.1.4.4; RFC 8166 8.1.3" {
        title: "Advertised keys were never seen invalidated.",
        says: "Remote access should end as soon as the operation is complete.",
        causes: [
            "The client invalidates locally, which no capture shows: normal for Channel SMB2_CHANNEL_RDMA_V1 and for \
                NFS without remote \
            invalidation",
            "The operation never finished",
        ],
        cure: "Only of interest when the number grows with unfinished operations. Dialect 3.0.2 and later can use \
            remote invalidation.",
    }
    RdmaKeyReuse "RDMA-KEY-REUSE" Warn Memory "[MS-SMBD] 3.1.4.3; RFC 5042 6.1.1" {
        title: "A key was advertised again while an earlier advertisement of it was still in use.",
        says: "A key names one registered range at a time. Two open operations behind one key cannot be told apart by \
            the device that \
               guards it.",
        causes: [
            "The client uses one registration for many requests (an all-memory or long-lived key)",
            "The earlier operation's end is missing from the capture",
        ],
        cure: "Check whether both ranges are inside one registration. A long-lived key that covers much memory is a \
            security risk.",
    }
    RdmaKeyPredictable "RDMA-KEY-PREDICTABLE" Note Memory "RFC 8166 8.1.2; RFC 5042 6.1.1" {
        title: "Keys follow a sequence that can be guessed.",
        says: "Handles advertised to a peer should be hard to predict: an attacker who guesses one can reach the \
            memory behind it on the \
               same connection. The rule asks for 16 keys in a row, each the last one plus the same number.",
        causes: ["The RDMA device or its driver counts keys up, as software RDMA and several adapters do"],
        cure: "Nothing to do on a trusted network. Otherwise keep RDMA traffic on its own, and prefer short-lived \
            registrations.",
    }
    RdmaInvalidate "RDMA-INVALIDATE" Error Memory "[MS-SMB2] 2.2.19, 2.2.21, 3.3.5.12, 3.3.5.13; [MS-SMBD] 3.1.4.2; \
        RFC 8797 4.1" {
        title: "Remote invalidation differs from what the request asked for.",
        says: "With Channel SMB2_CHANNEL_RDMA_V1_INVALIDATE (dialect 3.0.2 and later) the server is asked to \
            invalidate the first \
               descriptor's key with the reply's Send; without it no key may be invalidated by the reply. With NFS the \
               client must have \
               announced support for it in the private data of the handshake, and the key must belong to the call.",
        causes: [
            "An error path that replies with a plain Send",
            "The device cannot send with invalidate: the request may then be ignored",
            "The wrong key, of another request, was invalidated",
        ],
        cure: "If no key was invalidated, the client must do it itself: harmless if it checks. If the wrong key was \
            invalidated, or one \
               without being asked, running I/O loses its memory: update the server.",
    }
    RdmaReadSlow "RDMA-READ-SLOW" Warn Memory "derived from the capture's own latencies" {
        title: "One end took long to answer RDMA Reads of the other.",
        says: "No document sets a limit. An adapter answers an RDMA Read by itself, without the program: within \
            microseconds, and in \
               software within the time of a busy processor.",
        causes: [
            "A host that was suspended, or that had no processor for software RDMA (siw, rxe)",
            "An adapter that waits for memory that must be paged in first (on-demand paging)",
            "A delay between the capture point and that end that left no trace",
        ],
        cure: "Look at the end that answers: processor, interrupts, page faults of its adapter, virtual machines that \
            are not scheduled.",
    }
    RdmaReadDepth "RDMA-READ-DEPTH" Error Memory "[MS-SMBD] 6; RFC 6581 9.1; IBTA Vol 1 9.4.4, 12.6.5" {
        title: "More RDMA Reads were outstanding than agreed.",
        says: "The initiator may have as many Reads outstanding as the responder can take: ORD of one side must not \
            exceed IRD of the \
               other.",
        causes: ["The values exchanged at connection time were ignored or cut down on one side only", "The exchange \
            was misread (see MPA-IRDORD)"],
        cure: "Expect an invalid request NAK or a Terminate. Compare the depths in the connection messages; update the \
            side that reads.",
    }

    // ---- SMB2 over RDMA -------------------------------------------------------------------------------------------

    Smb2Channel "SMB2-CHANNEL" Error Smb2 "[MS-SMB2] 2.2.19, 2.2.21, 3.3.5.12, 3.3.5.13" {
        title: "The RDMA channel information of a READ or WRITE is inconsistent.",
        says: "Channel must have a defined value. Offset and length of the channel information must lie inside the \
            request and hold whole \
               16-byte buffer descriptors, which do not wrap around and whose lengths cover the I/O; with \
               SMB2_CHANNEL_NONE there must be \
               no channel information. A channel needs dialect 3.0 or later. (Channel information on a TCP connection \
               is \
               BUG-KSMBD-CHANNEL-INFO.)",
        causes: ["A client that computes the offset from the wrong origin", "A compound request with the offset of its \
            first member"],
        cure: "A server should fail this with STATUS_INVALID_PARAMETER. If the server crashed or went on, see \
            BUG-KSMBD-CHANNEL-INFO.",
    }
    Smb2TransformDialect "SMB2-TRANSFORM-DIALECT" Error Smb2 "[MS-SMB2] 2.2.43, 2.2.3.1.6" {
        title: "An RDMA transform is used on a connection that did not negotiate it.",
        says: "SMB2_RDMA_TRANSFORM is only valid for dialect 3.1.1 when both sides agreed on encryption, or signing, \
            of RDMA data in their \
               negotiate contexts.",
        causes: ["A client that ignores what the server's negotiate context left out", "The SMB2 NEGOTIATE is missing \
            from the capture"],
        cure: "Check the SMB2_RDMA_TRANSFORM_CAPABILITIES context of the NEGOTIATE response.",
    }
    Smb2TransformType "SMB2-TRANSFORM-TYPE" Error Smb2 "[MS-SMB2] 2.2.43, 2.2.43.1" {
        title: "An RDMA transform has a Channel or a TransformType that does not exist.",
        says: "Channel must be SMB2_CHANNEL_NONE, _RDMA_V1 or _RDMA_V1_INVALIDATE: one transform does not hold \
            another. TransformType is \
               encryption (0x0001) or signing (0x0002).",
        causes: ["A sender that repeats the request's own Channel", "Offsets counted from the wrong place, so that \
            other bytes are read"],
        cure: "Fix the sender. The receiver fails the request.",
    }
    Smb2TransformCount "SMB2-TRANSFORM-COUNT" Error Smb2 "[MS-SMB2] 2.2.43" {
        title: "TransformCount is 0, or differs from the number of RDMA transforms that follow.",
        says: "TransformCount must be greater than 0 and is the number of transforms behind the structure.",
        causes: ["A sender that counts wrongly"],
        cure: "The data cannot be decrypted or verified reliably. Fix the sender.",
    }
    Smb2TransformReserved "SMB2-TRANSFORM-RESERVED" Note Smb2 "[MS-SMB2] 2.2.43" {
        title: "A reserved field of the RDMA transform is not zero.",
        says: "The sender must set reserved fields to 0, and the receiver must ignore them.",
        causes: ["Memory is sent without being cleared"],
        cure: "Harmless to the peer; report it to the sender's maintainers.",
    }
    Smb2TransformBounds "SMB2-TRANSFORM-BOUNDS" Error Smb2 "[MS-SMB2] 2.2.43" {
        title: "Descriptors or transforms lie outside the RDMA transform.",
        says: "RdmaDescriptorOffset, counted from the beginning of the structure, and RdmaDescriptorLength enclose the \
            descriptors; both \
               are 0 with Channel SMB2_CHANNEL_NONE.",
        causes: ["Offsets counted from the SMB2 header instead of from the structure"],
        cure: "Fix the sender. A receiver that used them anyway has read outside the message.",
    }
    Smb2TransformLengths "SMB2-TRANSFORM-LENGTHS" Error Smb2 "[MS-SMB2] 2.2.43.1" {
        title: "The nonce or signature of an RDMA transform has the wrong length for its type.",
        says: "Each transform has a signature of 16 bytes. A transform that encrypts also has a nonce: 11 bytes for \
            AES-CCM, 12 for \
               AES-GCM. Data is either encrypted or signed.",
        causes: ["The sender uses another cipher than was negotiated", "Both types are listed for one payload"],
        cure: "Compare with the cipher in the NEGOTIATE response. The peer will fail the request.",
    }
    Smb2MaxSize "SMB2-MAX-SIZE" Error Smb2 "[MS-SMB2] 2.2.4, 3.2.4.6, 3.2.4.7, 3.3.5.12, 3.3.5.13" {
        title: "A READ or WRITE is larger than the server accepts.",
        says: "MaxReadSize and MaxWriteSize of the NEGOTIATE response are the most that the server takes in one request; \
            a client splits what is \
               larger. The server answers STATUS_INVALID_PARAMETER.",
        causes: [
            "A client whose size of READs or WRITEs (rsize, wsize) is set above what this server accepts",
            "A client that keeps the sizes of another server, or of another channel",
        ],
        cure: "Lower rsize and wsize of the mount, or leave them out: the client then takes the server's own.",
    }
    Smb2Credit "SMB2-CREDIT" Error Smb2 "[MS-SMB2] 3.1.5.2, 3.2.4.1.2, 3.2.4.1.5, 3.3.1.2, 3.3.5.2.5" {
        title: "SMB2 credits (not those of SMB Direct) are overdrawn, charged too low, or withheld until none are left.",
        says: "A client holds a credit for each message id that it uses. READ, WRITE, IOCTL, QUERY_DIRECTORY, \
            QUERY_INFO, SET_INFO and \
               CHANGE_NOTIFY must charge one credit per 64 KiB, or part of it, that they send or ask for; CreditCharge \
               0 pays for 64 KiB. \
               A server must not leave a client without credits.",
        causes: [
            "CreditCharge left at 0 or 1 for I/O over 64 KiB",
            "A client that counts its credits wrongly, or a server that forgets to grant",
            "A grant is missing from the capture",
        ],
        cure: "Overdrawn: the server ends the connection. Charged too low: it answers STATUS_INVALID_PARAMETER. Update \
            the client; if no \
               credit is left, update the server.",
    }
    Smb2MessageId "SMB2-MESSAGE-ID" Error Smb2 "[MS-SMB2] 3.2.4.1.3, 3.3.1.1, 3.3.5.2.3" {
        title: "A request has a message id that was used before, or that was not granted.",
        says: "Each id may be used once, and only within the window that the server has granted; a request takes as \
            many ids as it charges \
               credits. A server must end the connection when it gets any other id. CANCEL repeats the id of the \
               request that it cancels.",
        causes: ["A client that gives two requests the same id, or ignores CreditCharge when it counts", "A request \
            that was sent again unchanged"],
        cure: "Update the client. A server that goes on does not check, and may answer the wrong request.",
    }
    Smb2Reply "SMB2-REPLY" Error Smb2 "[MS-SMB2] 3.2.5.1.2, 3.3.4.1" {
        title: "A reply does not fit its request: there is none, it was answered before, or it has another command.",
        says: "A reply carries the MessageId and the command of its request. Each request gets one final reply; an \
            interim reply \
               (STATUS_PENDING) may come before it. Notifications of the server have the id 0xffffffffffffffff.",
        causes: ["A server that answers twice, for example once when a request is canceled and again when it ends", "The request is missing from the capture"],
        cure: "A client discards it or ends the connection. If the capture is complete, update the server.",
    }
    Smb2Dialect "SMB2-DIALECT" Error Smb2 "[MS-SMB2] 3.2.5.2, 3.3.5.4" {
        title: "The server chose a dialect that the client had not offered.",
        says: "DialectRevision of the NEGOTIATE reply is the greatest dialect that both sides have. A client that gets \
            another one ends \
               the connection.",
        causes: ["A broken or fuzzed server", "A middlebox, or an attack, that changed the reply"],
        cure: "Update the server. If it is sound, look for what changes the messages on their way: before dialect \
            3.1.1 nothing but the \
               client's own check protects them.",
    }
    Smb2SessionId "SMB2-SESSION-ID" Error Smb2 "[MS-SMB2] 2.2.1.2, 3.2.5.1.3, 3.3.5.2.9, 3.3.5.2.11" {
        title: "A request names a session or tree connect that was not set up, or its reply names another one.",
        says: "SessionId is the one that SESSION_SETUP gave on this connection, TreeId the one that TREE_CONNECT gave \
            in the session; the \
               server refuses any other with STATUS_USER_SESSION_DELETED or STATUS_NETWORK_NAME_DELETED. A reply has \
               the SessionId of \
               its request. Requests related to the one before them may have all ones.",
        causes: [
            "A client that goes on after its SESSION_SETUP was refused, or that uses the session of another connection \
                without binding it",
            "A server that mixes up the replies of several sessions",
            "SESSION_SETUP or TREE_CONNECT is missing from the capture",
        ],
        cure: "If the capture is complete, update the side that sent it. A server that accepts such a request does not \
            check the session.",
    }
    Smb2Unsigned "SMB2-UNSIGNED" Error Smb2 "[MS-SMB2] 3.2.4.1.1, 3.2.5.1.3, 3.3.4.1.1, 3.3.5.2.4, 3.3.5.7" {
        title: "A message is not signed where it must be.",
        says: "Where either side requires signing, every message of a session with a user must be signed or encrypted; \
            so must a \
               TREE_CONNECT in dialect 3.1.1, and the reply to a signed request. Exempt are NEGOTIATE, SESSION_SETUP, \
               CANCEL, interim \
               replies, notifications, and error replies for a session that the server does not know.",
        causes: ["A code path of the sender that skips signing", "A middlebox that answers for the server, or an attack"],
        cure: "The receiver must refuse it. Update the side that sent it; on a network that is not trusted look where \
            the message came \
               from.",
    }
    Smb2Unanswered "SMB2-UNANSWERED" Error Smb2 "[MS-SMB2] 3.2.6.1, 3.3.4.1" {
        title: "A request was never answered.",
        says: "Every request gets a reply, except CANCEL; a long one may get an interim reply with STATUS_PENDING first.",
        causes: [
            "The connection ended before the reply: look at how it ended",
            "The server hangs in its file system",
            "The reply is missing from the capture, or lies after its end",
            "The server had no SMB Direct credit to send the reply with",
        ],
        cure: "Check whether the server acknowledged the request and went silent (server), or never acknowledged it \
            (network).",
    }
    Smb2Session "SMB2-SESSION" Error Smb2 "[MS-SMB2] 3.2.5.3, 3.3.5.5" {
        title: "No session was set up: the server refused every SESSION_SETUP.",
        says: "A client that gets an error for SESSION_SETUP, other than STATUS_MORE_PROCESSING_REQUIRED, has no \
            session and can do \
               nothing else.",
        causes: [
            "A wrong user name or password, or an account that is locked",
            "The server accepts no guests, or only Kerberos",
            "The server's limit of sessions is reached",
        ],
        cure: "Read the status of the SESSION_SETUP replies; check user, password, domain and time on both hosts.",
    }
    Smb2Slow "SMB2-SLOW" Warn Smb2 "derived from the capture's own latencies" {
        title: "A request took very long.",
        says: "No document sets a limit. The comparison is with the median of the same command on the same connection, \
            or, where there are \
               few of that command, of all commands on it; then only a second or more of the server's own time counts. \
               Three requests of a command for each of which the server alone took a second or more are told whatever \
               the median is.",
        causes: [
            "The server or its storage was slow: most of the time passed between request and first byte of data or \
                reply, and nothing \
            below explains it",
            "A delay before the capture point that left no trace: a device or queue of the server's host",
        ],
        cure: "Compare with the server's own latencies. Time lost to packet loss, credits, silence or the network is \
            not counted here: \
               other findings report it.",
    }
    Smb2BreakKept "SMB2-BREAK-KEPT" Warn Smb2 "[MS-SMB2] 3.2.5.19, 3.3.2.1, 3.3.6.1" {
        title: "A client kept an oplock or a lease that the server had asked for.",
        says: "A client that is told that its oplock or lease ends acknowledges that with OPLOCK_BREAK, or closes the \
            file. Requests of others for the file wait for it; after some time, mostly 35 s, the server takes the oplock \
            or lease away. Told from one second on. The time that the server takes for requests of the client for \
            this file, which writes what it has cached first, does not count.",
        causes: [
            "The client hangs, was put to sleep, or lost its network",
            "The client has much cached data to write",
            "The acknowledgment went over another connection of the session",
        ],
        cure: "Look at what the client did from this frame on. Where several hosts share such files, turn leases or \
            oplocks off for the share.",
    }
    Smb2Error "SMB2-ERROR" Note Smb2 "[MS-SMB2] 2.2.1, 2.2.2; [MS-ERREF] 2.3.1" {
        title: "Requests failed with an error status.",
        says: "The Status of a reply is an NTSTATUS. Many values are part of normal work: a file that does not exist, \
            no more entries, \
               buffer overflow.",
        causes: ["Depends on the status: permissions, missing names, locks and leases, quota or full disk"],
        cure: "Compare how often each status occurs. Unusual ones are STATUS_INSUFFICIENT_RESOURCES, \
            STATUS_IO_TIMEOUT, \
               STATUS_NETWORK_NAME_DELETED, STATUS_USER_SESSION_DELETED and STATUS_INVALID_PARAMETER on READ or WRITE.",
    }
    Smb2IoError "SMB2-IO-ERROR" Warn Smb2 "[MS-SMB2] 2.2.2; [MS-ERREF] 2.3.1" {
        title: "The server could not read or write data: its storage failed, is full, or is gone.",
        says: "STATUS_IO_DEVICE_ERROR, STATUS_DATA_ERROR, STATUS_CRC_ERROR, STATUS_DISK_FULL and the like are no part \
            of normal work: the \
               data was not read or written. The same holds for a WRITE or a FLUSH that the server could not execute, \
               whatever its status.",
        causes: ["A disk, controller or file system of the server failed", "The volume is full", "The server maps an \
            error of its own to such a status"],
        cure: "Read the server's kernel log and the state of its storage at the time of the reply. Data that was to be \
            written is lost \
               unless the client writes it again. A quota that is used up is no damage: raise it, or remove files.",
    }
    Smb2ErrorBody "SMB2-ERROR-BODY" Note Smb2 "[MS-SMB2] 2.2.2" {
        title: "The status of a reply does not fit its body.",
        says: "A failing status comes with an ERROR body (StructureSize 9), a succeeding one with the body of the \
            command. The document \
               lists the exceptions, among them STATUS_MORE_PROCESSING_REQUIRED and STATUS_BUFFER_OVERFLOW.",
        causes: ["ksmbd answers QUERY_INFO for extended attributes with STATUS_NO_EAS_ON_FILE and a body of its own"],
        cure: "Clients ignore the body. Other decoders may lose what follows it in a compound reply. Report it to the \
            server's maintainers.",
    }
    Smb2Signature "SMB2-SIGNATURE" Error Smb2 "[MS-SMB2] 3.1.4.1, 3.1.5.1" {
        title: "A signed message fails verification.",
        says: "If the signature computed with the session's key differs from that in the header, the message must be \
            discarded.",
        causes: [
            "The key given for verification belongs to another session or channel",
            "The message was altered on its way: compare with transport checksums",
            "A sender that signs before its last change to the message",
            "ksmbd of Linux 6.12 includes four bytes of length in the signature of READ replies without data; the \
                Linux client accepts \
            them",
        ],
        cure: "If all messages fail, the key is wrong. If a few fail, look at what they have in common.",
    }
    Smb2Malformed "SMB2-MALFORMED" Error Smb2 "[MS-SMB2] 2.2" {
        title: "An SMB2 message contradicts itself.",
        says: "StructureSize is fixed for the header and for each request; offsets and lengths lie inside the message; \
            NextCommand is a \
               multiple of 8, and the first request of a compound is not related to one before it.",
        causes: ["A broken sender", "Fragments put together wrongly (see SMBD-FRAG-REMAINING)", "The payload is \
            encrypted or not SMB2"],
        cure: "Look at the field named in the finding. If neighbouring messages are fine, report the sender.",
    }

    // ---- RPC-over-RDMA --------------------------------------------------------------------------------------------

    RpcrdmaVersion "RPCRDMA-VERSION" Error RpcRdma "RFC 8166 4.2.2, 4.5.1" {
        title: "The RPC-over-RDMA version is not 1.",
        says: "rdma_vers is 1. A receiver that does not support the version must answer RDMA_ERROR with ERR_VERS and \
            the range that it \
               does support.",
        causes: ["A peer that tries version 2", "Another protocol on this port"],
        cure: "A peer that steps down to version 1 after the error is behaving well. Otherwise check who listens on \
            the port.",
    }
    RpcrdmaProc "RPCRDMA-PROC" Error RpcRdma "RFC 8166 4.2.4, 4.6" {
        title: "An RPC-over-RDMA procedure is unknown or no longer allowed.",
        says: "RDMA_MSG, RDMA_NOMSG and RDMA_ERROR are in use. Senders must not send RDMA_MSGP or RDMA_DONE.",
        causes: ["A very old peer written to RFC 5666", "A broken or fuzzed sender"],
        cure: "Update the sender.",
    }
    RpcrdmaMalformed "RPCRDMA-MALFORMED" Error RpcRdma "RFC 8166 4.1, 4.5.2" {
        title: "An RPC-over-RDMA header cannot be decoded.",
        says: "A header that cannot be parsed is answered with RDMA_ERROR, ERR_CHUNK (called ERR_BADHEADER in drafts).",
        causes: ["A broken or fuzzed sender", "Another protocol on this port"],
        cure: "Look at the field named in the finding, and whether the receiver answered with an error or closed.",
    }
    RpcrdmaError "RPCRDMA-ERROR" Error RpcRdma "RFC 8166 4.5" {
        title: "The peer answered RDMA_ERROR: it could not process the header or its chunks.",
        says: "RDMA_ERROR is a permanent error for the transaction: ERR_VERS with the supported range, or ERR_CHUNK \
            for a header or chunk \
               that could not be used.",
        causes: [
            "A Reply chunk that is too small for the reply",
            "A reply that its receiver cannot use",
            "A memory segment that is no longer registered",
            "Chunks that the upper layer does not allow (see RPCRDMA-DDP)",
        ],
        cure: "Find the call with the same XID. The application sees EIO or a retry; look for the size the reply would \
            have had.",
    }
    RpcrdmaCreditZero "RPCRDMA-CREDIT-ZERO" Error RpcRdma "RFC 8166 3.3.1; RFC 8167 4.1" {
        title: "A reply grants zero credits.",
        says: "The granted value must not be zero, since such a value would result in deadlock. The same holds in the \
            reverse direction. \
               (A call may ask for nothing.)",
        causes: ["A broken sender", "A responder that is closing down"],
        cure: "Most peers treat it as 1. Update the sender.",
    }
    RpcrdmaCreditOverrun "RPCRDMA-CREDIT-OVERRUN" Error RpcRdma "RFC 8166 3.3.1; RFC 8167 4.1" {
        title: "More calls are outstanding than credits were granted.",
        says: "The requester must not send unacknowledged requests in excess of the granted limit. Forward and reverse \
            direction are \
               counted separately.",
        causes: ["The grant was lowered while calls were under way", "A reply is missing from the capture", "A requester that counts wrongly"],
        cure: "Look for RNR NAKs or a closed connection after it. On Linux the limit is the RPC slot table and the \
            server's threads.",
    }
    RpcrdmaCreditFirst "RPCRDMA-CREDIT-FIRST" Error RpcRdma "RFC 8166 3.3.3" {
        title: "A second call was sent before the first reply granted credits.",
        says: "On a new connection a requester must not assume more than one credit, and must receive a valid reply \
            before its next \
               request.",
        causes: ["A requester that keeps the credits of the previous connection after a reconnect"],
        cure: "Servers usually post more than one receive, so it rarely hurts. Update the client if it comes with RNR \
            NAKs.",
    }
    RpcrdmaXid "RPCRDMA-XID" Error RpcRdma "RFC 8166 4.2.1; RFC 8167 2.4" {
        title: "An XID does not match: header against RPC message, reply against call, or a call that reuses one in use.",
        says: "rdma_xid must be the same as the XID of the RPC message. Calls of the two directions have XID spaces of \
            their own.",
        causes: ["The call is missing from the capture", "A call of NFS 4 sent again on the same connection", "A broken \
            sender"],
        cure: "If the capture is complete, a reply to nothing is a server bug, and a reused XID can pair the wrong \
            reply with a call.",
    }
    RpcrdmaNomsg "RPCRDMA-NOMSG" Error RpcRdma "RFC 8166 3.5.3, 4.5.2" {
        title: "RDMA_NOMSG carries no message.",
        says: "With RDMA_NOMSG the RPC message itself is in a chunk: a Read chunk at position zero for a call, a Reply \
            chunk with a length \
               for a reply.",
        causes: ["A broken sender"],
        cure: "The receiver answers ERR_CHUNK. Update the sender.",
    }
    RpcrdmaPosition "RPCRDMA-POSITION" Error RpcRdma "RFC 8166 3.4.5" {
        title: "A Read chunk stands at an impossible position.",
        says: "The position must be a multiple of four, count from the beginning of the unreduced RPC message, and lie \
            within it; chunks \
               do not overlap. Their order in the list does not matter.",
        causes: ["A client that rounds or counts positions wrongly", "An attack on the server's reassembly (see \
            BUG-CVE-2026-89526)"],
        cure: "Update the client; check that the server answers with an error.",
    }
    RpcrdmaWriteShape "RPCRDMA-WRITE-SHAPE" Error RpcRdma "RFC 8166 3.4.6" {
        title: "The responder returned the Write list or Reply chunk in a different shape.",
        says: "A reply returns the Write list as it was offered: the same chunks and segments, the same handles and \
            offsets. Lengths \
               shrink to what was written, segments are filled from the first on, and those of an unused chunk have \
               length zero.",
        causes: ["A server that leaves out unused segments", "A server that leaves lengths untouched when it sent the \
            data inline"],
        cure: "The client may take garbage for data: update the server.",
    }
    RpcrdmaChunkLength "RPCRDMA-CHUNK-LENGTH" Error RpcRdma "RFC 8166 3.4.4, 3.4.6" {
        title: "The bytes in a chunk differ from what the RPC message or the returned chunk says.",
        says: "The count of a READ or WRITE that is left in the payload must match the sum of the segment lengths; a \
            Read chunk may hold \
               the XDR padding as well. The lengths in a reply must be those that were written: a responder writes no \
               padding into a Write \
               chunk.",
        causes: ["A short read whose chunk lengths were not shortened", "Padding counted as data"],
        cure: "Compare the lengths in the finding. A difference of one to three bytes is padding; more is wrong data.",
    }
    RpcrdmaInline "RPCRDMA-INLINE" Error RpcRdma "RFC 8166 3.3.2, 3.3.3; RFC 8797 4.2, 5.1" {
        title: "A message is longer than the receiver's inline threshold.",
        says: "Without other knowledge senders must assume 1024 bytes; RFC 8797 private data of the connection may \
            state more.",
        causes: [
            "Both sides are configured for more than they announce (Linux: 4096 by default), and it works",
            "Only one side was configured",
        ],
        cure: "If the connection goes on, only the announcement is missing. If a length error ends it, configure the \
            same threshold on \
               both sides.",
    }
    RpcrdmaBackward "RPCRDMA-BACKWARD" Error RpcRdma "RFC 8167 5.3; RFC 8267 6.5" {
        title: "A call of the reverse direction offers chunks for data.",
        says: "Callbacks of NFS 4 have no data that may be moved in a chunk of its own. (Long calls and replies of the \
            reverse direction, \
               which lie in a chunk as a whole, are allowed.)",
        causes: ["A server that offers chunks with every call"],
        cure: "Update the sender. A client without support for chunks answers RDMA_ERROR with ERR_CHUNK.",
    }
    RpcrdmaDdp "RPCRDMA-DDP" Error RpcRdma "RFC 8166 6.1, 8.2.2.3; RFC 8267 4, 5, 6.1, 6.4.1" {
        title: "A chunk carries a data item that may not be moved so, or a result is not in the chunk offered for it.",
        says: "Only what the upper-layer binding lists may be reduced: for NFS the data of READ and WRITE, link \
            targets of SYMLINK and \
               READLINK; nothing of MOUNT, NLM, NSM and NFSACL. Nothing may be reduced when RPCSEC_GSS integrity or \
               privacy is used. \
               A result for which a Write chunk was offered must be moved there.",
        causes: ["A sender that reduces any large item", "krb5i or krb5p with a peer that still sends chunks"],
        cure: "The receiver must refuse it. Update the side that the finding names.",
    }
    RpcMalformed "RPC-MALFORMED" Error RpcRdma "RFC 5531 9; RFC 1813 3; RFC 8881 2.3, 16.2" {
        title: "An RPC message is not what it should be: it cannot be read, or ends too early.",
        says: "A call has all arguments of its procedure, a successful reply all results. The results of a compound are \
            those of its operations, \
               in their order. Data may be missing from the message only if it is in a chunk.",
        causes: ["A broken sender", "A chunk that was filled with something else", "A result that is in neither the \
            message nor a chunk"],
        cure: "Look at where decoding of the message ends, and compare it with one of its kind that is whole.",
    }
    RpcUnanswered "RPC-UNANSWERED" Error RpcRdma "RFC 5531 4; RFC 8166 4.5" {
        title: "A call was never answered.",
        says: "A server answers each call or ends the connection, so that the client knows that the reply is lost.",
        causes: ["The connection ended first", "The server hangs in its file system", "The reply is missing from the \
            capture, or lies after its end"],
        cure: "Check whether the call was acknowledged at transport level, and what the server did next.",
    }
    RpcRetransmit "RPC-RETRANSMIT" Note RpcRdma "RFC 5531 4; RFC 8881 2.9.2" {
        title: "A call was sent again before it was answered.",
        says: "A client may send a call again, with the same XID, when it has waited long for the reply. Clients of NFS \
            4 must not do so on the \
               same connection.",
        causes: ["The server was silent for longer than the client's timeout", "A timeout that is shorter than the \
            server needs"],
        cure: "Find out why the server was silent: the time of the call counts from its first copy. On Linux, see timeo \
            of the mount.",
    }
    RpcSlow "RPC-SLOW" Warn RpcRdma "derived from the capture's own latencies" {
        title: "A call took very long.",
        says: "No document sets a limit. The comparison is with the median of the same procedure on the same \
            connection, or, where there are \
               few calls of that procedure, of all procedures on it; then only a second or more of the server's own \
               time counts. Three calls of a procedure for each of which the server alone took a second or more are \
               told whatever the median is.",
        causes: [
            "The side that replies, or its storage, was slow: nothing below explains the time. To callbacks the client \
                replies",
            "A delay before the capture point that left no trace: a device or queue of the replying host",
        ],
        cure: "Compare with that side's own latencies. Time lost to packet loss, credits, silence or the network is \
            not counted here: \
               other findings report it.",
    }
    RpcDelayed "RPC-DELAYED" Warn RpcRdma "RFC 8881 15.1.1.3, 8.4.2; RFC 1813 2.6" {
        title: "A call was put off again and again: the answer was to try later.",
        says: "A server that cannot serve a call yet answers at once that the client is to try again: with \
            NFS4ERR_DELAY (NFS3ERR_JUKEBOX), or with NFS4ERR_GRACE while it waits for clients to get back what they had \
            open before it restarted. No latency shows this wait. The time counts from the first request to another \
            answer, of one second or more in all. A lock that somebody else holds (NFS4ERR_DENIED) is a note.",
        causes: [
            "The server was restarted, and its grace period lasts (often 90 s)",
            "The server waits for another client to return a delegation",
            "Slow or archived storage behind the server, or too little memory or too few threads in it",
        ],
        cure: "For NFS4ERR_DELAY and NFS3ERR_JUKEBOX look at the server's log and storage at this time, and for clients \
            that keep delegations. A grace period (NFS4ERR_GRACE) ends by itself: on a Linux server \
            /proc/fs/nfsd/nfsv4gracetime is its length, and writing Y to /proc/fs/nfsd/v4_end_grace ends it.",
    }
    NfsStable "NFS-STABLE" Error RpcRdma "RFC 1813 3.3.7; RFC 8881 18.32.3" {
        title: "The server keeps written data less safely than it was asked to, and says so.",
        says: "A WRITE that asks for FILE_SYNC is answered with FILE_SYNC, one that asks for DATA_SYNC with DATA_SYNC or \
            FILE_SYNC: the data is then on stable storage. A client that asked for it sends no COMMIT, and loses the \
            data if the server is restarted.",
        causes: ["A server that does not wait for its storage", "A proxy or a file system below it that ignores what was asked"],
        cure: "Do not rely on this server for what must survive its restart. Update it, and look at how the file system \
            that it exports is mounted.",
    }
    NfsStateFlags "NFS-STATE-FLAGS" Note RpcRdma "RFC 8881 18.46.3" {
        title: "The server says that something about the client's state is wrong.",
        says: "Each reply to SEQUENCE has flags for the state of the client: whether callbacks reach it, whether opens, \
            locks or delegations were revoked, whether the server was restarted or a file system moved. The client has \
            to act on them. Revoked state is a warning.",
        causes: [
            "The server cannot call the client back: it grants no delegations then",
            "The client did not renew its lease in time, or an administrator revoked its state: it has lost locks",
            "The server was restarted, or a file system moved: the client has to reclaim its state",
        ],
        cure: "Callbacks of NFS 4.1 use the client's own connection: look at CB_ calls without a reply. For revoked \
            state look at the server's log, and for a client that was silent for longer than the lease.",
    }
    RpcError "RPC-ERROR" Note RpcRdma "RFC 5531 9; RFC 1813 2.6; RFC 8881 15" {
        title: "Calls failed with an RPC or NFS error.",
        says: "Many NFS errors are part of normal work: NFS4ERR_NOENT, NFS4ERR_DELAY, NFS4ERR_NOTSUPP.",
        causes: ["Depends on the status: permissions, missing names, stale handles, grace period after a server restart"],
        cure: "Compare how often each status occurs. Unusual ones are NFS4ERR_SERVERFAULT, NFS4ERR_BADXDR, NFS4ERR_IO, \
            NFS4ERR_STALE and \
               GARBAGE_ARGS.",
    }
    RpcIoError "RPC-IO-ERROR" Warn RpcRdma "RFC 5531 9; RFC 1813 2.6; RFC 8881 15.1" {
        title: "A call failed because storage failed or is full, or because the server could not read the call.",
        says: "NFS3ERR_IO, NFS4ERR_IO and their NOSPC, SERVERFAULT and BADXDR are no part of normal work; with \
            GARBAGE_ARGS, SYSTEM_ERR and \
               RPC_MISMATCH the call was not executed at all.",
        causes: [
            "A disk, controller or file system of the server failed, or is full",
            "A call that was damaged on its way or encoded wrongly: GARBAGE_ARGS, BADXDR, RPC_MISMATCH",
            "The server ran out of memory: SYSTEM_ERR",
        ],
        cure: "Read the server's kernel log and the state of its storage at the time of the reply. For a call that it \
            could not read, compare \
               the bytes of the call with others of its kind. A quota that is used up is no damage: raise it, or remove \
               files.",
    }

    // ---- Connections ----------------------------------------------------------------------------------------------

    CmReject "CM-REJECT" Warn Connection "IBTA Vol 1 12.6.7, annex A11" {
        title: "A connection request was rejected.",
        says: "A REJ carries a reason: 8 (invalid service id) means that nothing listens on that port, 28 (consumer \
            reject) that the \
               application refused. If the server accepted the same client afterwards, on another port or at another \
               attempt, this is a \
               note.",
        causes: [
            "Nothing listens on that RDMA port: Linux clients try SMB Direct on 5445 (meant for iWARP) before 445",
            "The server's RDMA service is not started, or is bound to another interface",
            "The application refused: private data, version, or no resources",
        ],
        cure: "Check the port and reason in the finding.",
    }
    CmTimeout "CM-TIMEOUT" Error Connection "IBTA Vol 1 12.9.8" {
        title: "A message of connection management got no reply.",
        says: "A REQ is answered with REP, REJ or MRA, a REP with RTU, and a DREQ with DREP; the sender repeats it a \
            few times and gives up. A message that \
               was not repeated may have been answered outside the capture: the finding is then a guess.",
        causes: [
            "The address is reachable by IP but its RDMA device is down, or a firewall drops UDP port 4791",
            "RoCE version 1 on one side and version 2 on the other, or different GID types",
            "The reply is missing from the capture",
        ],
        cure: "Test with rping between the two hosts; compare `rdma link` and the default RoCE mode on both; check the \
            firewall for UDP \
               4791.",
    }
    CmDisconnect "CM-DISCONNECT" Error Connection "IBTA Vol 1 12.6.10; RFC 9293 3.6" {
        title: "A side ended the connection before its work was done.",
        says: "A DREQ, or a FIN below iWARP, ends a connection in order: its sender has nothing more to send. Requests \
            that are still open \
               are lost.",
        causes: [
            "The side that hung up was stopped or restarted, or its process crashed and the kernel cleaned up",
            "It found a violation and says so only in its log",
            "It gave up waiting: see how long the requests were open",
        ],
        cure: "Look at the log of the side that hung up, at the time of this frame.",
    }
    AllFailed "ALL-FAILED" Warn Connection "[MS-SMB2] 2.2.2; [MS-ERREF] 2.3.1; RFC 1813 2.6; RFC 8881 15.1" {
        title: "Requests failed to the end: none of their kind succeeded after.",
        says: "Every request is answered, so no rule is broken; but a client whose every WRITE fails, that cannot open a \
            file, or whose session is no \
               longer known, did not get what it wanted. Requests of all connections between the two hosts are looked \
               at together. A status of \
               normal work, such as a name that does not exist or the end of a file, does not count.",
        causes: [
            "The user has no permission: of the share or export, or of the file",
            "The share or export is read-only, or the file is locked or open elsewhere",
            "The server lost its state: sessions, handles or file ids of before its restart",
        ],
        cure: "The status says why. For a refusal, look at the permissions of the share or export and of the file \
            system; for a session, a share or a handle that the server does not know any more, look into its log for a \
            restart, a failover or an expired session; for want of resources, look at its memory and limits.",
    }
    MpaStartup "MPA-STARTUP" Error Connection "RFC 5044 7.1" {
        title: "The iWARP connection was never established: there is no MPA Reply.",
        says: "The initiator sends an MPA Request and waits for the MPA Reply; it may give up when none comes. \
            Anything but an MPA Reply \
               ends the connection.",
        causes: [
            "Another service listens on this port (a web server, SMB over plain TCP)",
            "The server's iWARP stack is stuck: TCP acknowledges, but no reply comes",
        ],
        cure: "Check what listens on the port, and whether the server's RDMA device is up.",
    }
    TcpRefused "TCP-REFUSED" Error Connection "RFC 9293 3.5, 3.10.7.1" {
        title: "A TCP connection to a storage port was refused or not answered.",
        says: "A host answers a SYN to a port without a listener with a reset.",
        causes: ["The service is stopped or restarting", "The service listens on another port or address", "A firewall \
            drops or rejects it"],
        cure: "Check that the service runs on the server and listens on this port.",
    }
    MpaReject "MPA-REJECT" Error Connection "RFC 5044 7.1.1; RFC 6581 9.1" {
        title: "The iWARP connection was rejected by its MPA reply.",
        says: "A reply with the R bit set refuses the connection; the private data may say why.",
        causes: [
            "The application listens, and refused it: it has no resources left, or does not accept the address or \
                the private data",
            "Revision or read depths were not acceptable (see MPA-IRDORD)",
        ],
        cure: "Compare revision, flags and private data of request and reply.",
    }
    MpaIrdord "MPA-IRDORD" Warn Connection "RFC 6581 9.1; [MS-SMBD] 6.1, 6.2" {
        title: "The read depths (IRD and ORD) in the MPA private data are missing, zero, too large or in a different \
            form.",
        says: "At revision 2 a set S flag says that the private data begins with both depths. The side that accepts \
            answers a request with \
               depths with its own, and with an ORD that the peer's IRD allows. In the 8 bytes of private data of SMB \
               Direct's \
               providers both depths must be greater than zero; in the form of RFC 6581 one of them may be 0 on a side \
               that never reads, \
               or is never read from, but not both.",
        causes: ["A stack that writes the legacy form in little-endian", "One side at revision 1, the other at \
            revision 2"],
        cure: "If Reads fail afterwards (RDMA-READ-DEPTH, RDMAP-TERMINATE) update the side with the odd form; \
            otherwise no action.",
    }
    MpaRevision "MPA-REVISION" Error Connection "RFC 5044 7.1.1; RFC 6581 6, 10" {
        title: "The MPA revision does not exist, or is higher than that of the request.",
        says: "The revision is 1, or 2 for enhanced connection setup. A reply has the revision of its request, or a \
            lower one.",
        causes: ["A broken or very old iWARP stack", "Another protocol that happens to begin like MPA"],
        cure: "Update the side that the finding names; as a workaround set both stacks to revision 1.",
    }
    RdmapTerminate "RDMAP-TERMINATE" Error Connection "RFC 5040 4.8, 7" {
        title: "The connection was ended by a Terminate message.",
        says: "Terminate names the layer (RDMAP, DDP or the one below), the type and code of the error, and carries \
            the header that caused \
               it.",
        causes: [
            "Remote protection: key, bounds or access rights wrong",
            "Untagged buffer: no receive was posted, or it was too short: the sender had no credit or kept no size, or \
                the receiver posted less than it had promised",
            "Stream error below: CRC or framing, or TCP was lost",
        ],
        cure: "Read layer, type and code in the finding. It names a side only if the capture shows that this side made \
            the mistake; otherwise look in the logs of both, at that of the sender of the Terminate first.",
    }
    TcpReset "TCP-RESET" Error Connection "RFC 9293 3.5.2" {
        title: "The TCP connection was reset.",
        says: "A reset ends the stream immediately; everything in flight is lost.",
        causes: ["The peer closed with data unread, or crashed", "A firewall or load balancer in the path gave up", "Nothing listens on the port"],
        cure: "Look at who sent it: compare its TTL or hop limit with that side's other packets to see whether it came \
            from a middlebox.",
    }

    // ---- Transport ------------------------------------------------------------------------------------------------

    RcRetransmit "RC-RETRANSMIT" Warn Transport "IBTA Vol 1 9.7.1, 9.7.6" {
        title: "Packets, or their acknowledgments, were lost, and packets were sent again.",
        says: "Each packet of a reliable connection carries a sequence number (PSN). After a loss, the sender repeats \
            everything from the \
               first packet that was not acknowledged. The finding counts the packets that were lost, not those \
               repeated after them.",
        causes: [
            "Drops in a switch: lossless class not configured end to end, PFC or ECN missing",
            "A bad cable or optic: see symbol and CRC error counters",
            "If no NAK asked for it: the acknowledgment was lost instead, on its way back",
        ],
        cure: "RoCE throughput collapses under loss: one lost packet resends a whole window. Look on the side of the \
            capture point that \
               the finding names. Check PFC and ECN on every hop, and the priority (DSCP) that both hosts mark.",
    }
    RcSpurious "RC-SPURIOUS" Note Transport "IBTA Vol 1 9.7.5.1, 9.7.6" {
        title: "Packets were sent again although the receiver had them.",
        says: "A responder acknowledges a duplicate request again and does not execute it a second time (Reads and \
            Atomics aside).",
        causes: ["The acknowledgment was late or lost behind the capture point", "A local ACK timeout shorter than the \
            path's delay"],
        cure: "Look for loss in the opposite direction; raise the local ACK timeout if the path is long.",
    }
    RcGap "RC-GAP" Warn Transport "IBTA Vol 1 9.7.1; RFC 9293 3.4" {
        title: "Packets are missing that were neither sent again nor acknowledged.",
        says: "PSNs rise by one from packet to packet (by the number of response packets after an RDMA Read), TCP's \
            sequence numbers by \
               one from byte to byte. A packet lost on the wire is sent again; a packet that only the capture lost is \
               acknowledged \
               although the capture does not have it.",
        causes: [
            "The capture lacks them, and what acknowledges them",
            "Only one direction was captured",
            "The capture ended before the repair",
            "The connection broke",
        ],
        cure: "Use a larger buffer, a capture filter or a hardware tap, and see to it that both directions are captured.",
    }
    RcDuplicate "RC-DUPLICATE" Note Transport "RFC 6864; IBTA Vol 1 9.7.5.1" {
        title: "Packets are in the capture twice.",
        says: "A copy made by a mirror is the same datagram and follows soon; a host sends a packet again only after a \
            NAK or a timeout.",
        causes: ["A mirror port that shows both directions of a port, or two mirrors into one capture", "Captured on \
            two interfaces and merged"],
        cure: "Nothing is wrong on the wire. Mirror one direction, or remove the copies (editcap -d).",
    }
    RcReorder "RC-REORDER" Warn Transport "IBTA Vol 1 9.7.1" {
        title: "Packets arrived out of order.",
        says: "A reliable connection expects its packets in order; the receiver treats one that was overtaken as lost, \
            and asks for it \
               with a NAK.",
        causes: [
            "Multipath that splits one flow: packet spraying, or a link aggregate hashing on fields that vary",
            "Several receive queues of the capture merged without timestamps from hardware",
        ],
        cure: "If NAKs follow, fix the path: hash on the UDP source port and addresses. If none follow, only the \
            capture is out of order.",
    }
    RcNak "RC-NAK" Error Transport "IBTA Vol 1 9.7.5.2" {
        title: "The responder refused a request with a NAK.",
        says: "A NAK says why: invalid request and remote access error are the requester's doing, remote operational \
            error is the \
               responder's; all three end the connection. (A NAK for a sequence error asks for what was lost: see \
               RC-RETRANSMIT and \
               RC-REORDER.)",
        causes: [
            "Invalid request: a message longer than the receive buffer, too many Reads, or an opcode out of order",
            "Remote access error: key, bounds or rights wrong (see the RDMA-KEY findings)",
            "Remote operational error: the responder failed while it carried the request out",
        ],
        cure: "Look at the operation named in the finding: it is the one that was refused.",
    }
    RcPKey "RC-P-KEY" Error Transport "IBTA Vol 1 9.6.1.1.3, 10.9.3" {
        title: "A packet belongs to another partition than its connection.",
        says: "The partition key of each packet must match that of the queue pair; the membership bit (0x8000) is \
            ignored. A receiver \
               drops a packet whose key does not match, and its port counts a violation.",
        causes: ["A subnet manager that changed the partition table while the connection was open", "A broken or \
            hostile sender"],
        cure: "Compare the partition tables of both ports; on RoCE only the default partition (0xffff) is used.",
    }
    RcDestQp "RC-DEST-QP" Error Transport "IBTA Vol 1 9.6.1.1" {
        title: "A packet went to a queue pair that is not that of its connection.",
        says: "The destination queue pair of a packet is the one that was agreed on when the connection was made. A \
            receiver drops a packet to a queue pair that it does not have, and answers nothing: the sender has to find \
            out by itself.",
        causes: ["A broken sender: driver, firmware or software RoCE", "A bit that changed before the invariant CRC \
            was computed"],
        cure: "Update the sender's driver or firmware. No packet was lost here: the network needs no change.",
    }
    RcVersion "RC-VERSION" Error Transport "IBTA Vol 1 9.2.2, 9.6.1.1.1" {
        title: "A packet has a transport header version that does not exist.",
        says: "TVer must be 0; a receiver drops the packet.",
        causes: ["A broken or hostile sender"],
        cure: "Identify the sender by its address and update it.",
    }
    RcOpcode "RC-OPCODE" Error Transport "IBTA Vol 1 9.7.4.1.2, 9.9.3" {
        title: "The packets of a message do not follow each other as First, Middle, Last.",
        says: "A First is followed by Middles and a Last of the same operation, with nothing between; a responder \
            answers anything else \
               with a NAK for an invalid request, and the connection ends.",
        causes: ["A broken sender, or one that mixes two messages on one queue pair", "Packets missing from the \
            capture unnoticed"],
        cure: "Update the sender's driver or firmware.",
    }
    RcPsn "RC-PSN" Error Transport "IBTA Vol 1 9.7.2" {
        title: "A packet had a wrong sequence number: the same one came with the right number.",
        says: "The PSN of each request packet is one more than that of the one before it. A responder drops a packet \
            from further ahead, \
               and asks for those between.",
        causes: ["A broken sender: driver, firmware or software RoCE", "A bit that changed before the invariant CRC \
            was computed"],
        cure: "Update the sender's driver or firmware. No packet was lost here: the network needs no change.",
    }
    RcLength "RC-LENGTH" Error Transport "IBTA Vol 1 9.7.4.1.6, 9.7.5.1.6; RFC 5040 5.2.2" {
        title: "Packets have another length than they may, or together another one than was said.",
        says: "The payload of all packets of a Write adds up to the DMA length in the RETH of the first; the responder \
            answers anything else \
               with a NAK for an invalid request, and the connection ends. The responses to a Read add up to the length \
            in its request. No packet has more payload than the path MTU, which is 4096 bytes at most.",
        causes: ["A broken sender: driver, firmware or software RoCE", "A middlebox, or an attack, that changed the \
            first packet"],
        cure: "Update the sender. If the receiver took the data all the same, compare the file with a checksum, and \
            update it too.",
    }
    RcAckUnsent "RC-ACK-UNSENT" Error Transport "IBTA Vol 1 9.7.5.1.5, 9.7.6.1" {
        title: "A receiver acknowledged packets that its peer had not sent.",
        says: "An acknowledgment names a packet that was received. A requester ignores one for a packet that it never \
            sent, so that its own \
               packets stay unacknowledged: it sends them again until its retry count is used up.",
        causes: ["A broken receiver: driver, firmware or software RoCE", "The last packets of the other end are \
            missing from the capture"],
        cure: "If the capture is complete, update the receiver.",
    }
    RcRnr "RC-RNR" Error Transport "IBTA Vol 1 9.7.5.2" {
        title: "The receiver was not ready: mostly, it had no receive buffer posted for a Send.",
        says: "An RNR NAK asks the sender to wait for the given time and try again; after its retry count the \
            connection breaks. Under SMB \
               Direct and RPC-over-RDMA credits exist so that this never happens to a Send. An RDMA Write or Read takes \
               no receive: its receiver was not ready for another reason.",
        causes: [
            "The sender overran its credits (see SMBD-CREDIT-OVERRUN, RPCRDMA-CREDIT-OVERRUN)",
            "The receiver granted credits before it posted the receives (see BUG-CVE-2026-31538)",
        ],
        cure: "If the sender held a credit, the receiver is at fault. Raising the RNR retry count only hides it.",
    }
    RcIcrc "RC-ICRC" Warn Transport "IBTA Vol 1 7.8.1, annex A17.3" {
        title: "Packets were damaged: their invariant CRC is wrong.",
        says: "The ICRC covers everything that must not change from end to end; a receiver silently drops a packet \
            whose ICRC is wrong. \
               The analysis ignores its content too, and follows the copy that is sent again. One that was \
               acknowledged and never \
               sent again was damaged on its way to the capture only (a note).",
        causes: [
            "A bad cable, optic, or memory of a switch",
            "A middlebox changed a field that is covered",
            "If the receiver took them: a bad link to the capture point, a mirror port, or the capture itself",
            "If all packets of one host have it: they were captured before the adapter wrote the ICRC (a note)",
        ],
        cure: "Look at the error counters of the ports on the way, up to the capture point.",
    }
    RcCnp "RC-CNP" Note Transport "IBTA annex A17.9" {
        title: "Receivers asked senders to slow down (congestion notification packets).",
        says: "A receiver of packets marked by a switch tells the sender with a CNP, and the sender lowers its rate.",
        causes: ["More senders than a port can drain (incast)", "Marking thresholds that are set very low"],
        cure: "A few are normal. Compare their rate with throughput: if throughput is low, tune the switch's marking \
            thresholds before the \
               hosts.",
    }
    RcEcn "RC-ECN" Note Transport "RFC 3168; IBTA annex A17.9" {
        title: "Switches marked packets because of congestion.",
        says: "A switch whose queue grows over a threshold sets CE in the IP header instead of dropping packets.",
        causes: ["Congestion at a switch port", "RoCE traffic in the queue of other traffic: DSCP not trusted on some \
            hop"],
        cure: "Check that CNPs answer the marks: marks without CNPs mean that congestion control is off at the receiver.",
    }
    RcPfc "RC-PFC" Warn Transport "IEEE 802.1Qbb" {
        title: "Pause frames stopped a traffic class.",
        says: "Priority flow control pauses one class on a link for a given time, to avoid loss.",
        causes: ["A slow receiver: the host cannot drain its device", "Congestion that spreads backwards through the \
            network"],
        cure: "Find the port where pauses begin: the device behind it is slow. Make ECN act before PFC does.",
    }

    // ---- The lossless network ---------------------------------------------------------------------------------------

    RcMarking "RC-MARKING" Warn Transport "RFC 2474; IEEE 802.1Q 6.9; IBTA Vol 1 7.6.5" {
        title: "The two directions of a connection are marked differently.",
        says: "Both ends should mark their packets for the same class (DSCP, priority of the VLAN tag, service level). \
            Otherwise one \
               direction lacks the protection that the other has.",
        causes: ["One host was configured and the other was not", "A switch, a router or the mirror changes the marks"],
        cure: "Linux: set default_roce_tos of rdma_cm on both hosts to the same type of service, which is four times \
            the DSCP \
               (cma_roce_tos -d DEVICE -t TOS), then connect again. Windows: compare Get-NetQosPolicy of both hosts. \
               Then capture at both \
               hosts: the mark may be changed on the way.",
        documented: [
            "Linux Documentation/ABI/testing/configfs-rdma_cm, default_roce_tos",
            "mlnx-tools, cma_roce_tos -h",
            "Microsoft Learn, Get-NetQosPolicy",
        ],
    }
    RcClass "RC-CLASS" Warn Transport "IEEE 802.1Q 36; RFC 2474" {
        title: "RoCE runs in a class that flow control does not pause.",
        says: "Priority flow control protects the classes that it is enabled for. RoCE in any other class is dropped \
            when a queue is full. \
               The class is the priority of the VLAN tag; without a tag it is taken to be the upper three bits of the \
               DSCP.",
        causes: [
            "The hosts do not mark RoCE for the lossless class (DSCP 0)",
            "Flow control is enabled for another class than the hosts use",
            "The switch maps this DSCP to another class than the usual one: then nothing is wrong",
        ],
        cure: "Linux: dcb pfc show dev NETDEV shows the priorities with flow control, dcb app show dev NETDEV \
            dscp-prio the map from DSCP; \
               NVIDIA: mlnx_qos -i NETDEV shows both, --trust=dscp and --pfc 0,0,0,1,0,0,0,0 set priority 3. \
               default_roce_tos of rdma_cm \
               sets the mark. Windows: Get-NetQosFlowControl and Get-NetQosPolicy. Compare with the switch.",
        documented: [
            "dcb-pfc(8)",
            "dcb-app(8), dscp-prio",
            "mlnx-tools, mlnx_qos -h",
            "Linux Documentation/ABI/testing/configfs-rdma_cm, default_roce_tos",
            "Microsoft Learn, Get-NetQosFlowControl",
            "Microsoft Learn, Get-NetQosPolicy",
        ],
    }
    RcBestEffort "RC-BEST-EFFORT" Warn Transport "RFC 2474; IEEE 802.1Q 36" {
        title: "RoCE runs in the default class, while other RoCE has its own class.",
        says: "DSCP 0 without a VLAN priority is the class of all other traffic: it is not protected from loss, and it \
            waits behind TCP.",
        causes: ["This host, or this program, does not mark its packets", "A switch or the mirror removed the mark"],
        cure: "Linux: default_roce_tos of rdma_cm is the type of service that connections get (cma_roce_tos -d DEVICE \
            shows and sets \
               it). Windows: New-NetQosPolicy SMB -NetDirectPortMatchCondition 445 -PriorityValue8021Action 3 gives \
               SMB Direct a \
               priority.",
        documented: [
            "Linux Documentation/ABI/testing/configfs-rdma_cm, default_roce_tos",
            "mlnx-tools, cma_roce_tos -h",
            "Microsoft Learn, New-NetQosPolicy",
        ],
    }
    RcPfcIdle "RC-PFC-IDLE" Note Transport "IEEE 802.1Q 36" {
        title: "Flow control pauses a class that carries no traffic.",
        says: "Each class with priority flow control takes headroom from the buffers of every switch port. An unused \
            class with flow \
               control is a leftover, or a mistake in the map from DSCP to priority.",
        causes: ["Flow control is enabled for more priorities than are used", "The class is used, but its packets are \
            not in this capture"],
        cure: "Linux: dcb pfc show dev NETDEV, or mlnx_qos -i NETDEV, shows the priorities with flow control. Windows: \
               Get-NetQosFlowControl, Disable-NetQosFlowControl -Priority.",
        documented: [
            "dcb-pfc(8)",
            "mlnx-tools, mlnx_qos -h",
            "Microsoft Learn, Get-NetQosFlowControl",
            "Microsoft Learn, Disable-NetQosFlowControl",
        ],
    }
    RcEct "RC-ECT" Warn Transport "RFC 3168 5; IBTA annex A17.9" {
        title: "RoCE packets are not ECN-capable although switches signal congestion by marks.",
        says: "Switches mark only packets whose ECN field allows it, and drop others instead.",
        causes: ["ECN for RoCE is off at this sender, or its device has none", "A device on the way, or the mirror, \
            clears the ECN field"],
        cure: "Linux with NVIDIA's MLNX_OFED: /sys/class/net/NETDEV/ecn/roce_np/enable/PRIORITY and \
            roce_rp/enable/PRIORITY are 1 for \
               the priority of RoCE at both hosts.",
        documented: [
            "NVIDIA MLNX_OFED documentation, Explicit Congestion Notification (ECN)",
        ],
    }
    RcCnpMissing "RC-CNP-MISSING" Warn Transport "IBTA annex A17.9.3" {
        title: "Marked packets arrived, and the receiver did not answer with CNPs.",
        says: "A receiver with congestion control answers marked packets with congestion notification packets. The \
            rule expects one within \
               10 ms.",
        causes: [
            "The notification point is off at the receiver, or its device has none (Soft-RoCE)",
            "CNPs take another path than the one that was captured",
        ],
        cure: "Linux with NVIDIA's MLNX_OFED: /sys/class/net/NETDEV/ecn/roce_np/enable/PRIORITY is 1 at the receiver. \
            Its hw_counters \
               np_ecn_marked_roce_packets (marked packets that came) and np_cnp_sent rise together.",
        documented: [
            "NVIDIA MLNX_OFED documentation, Explicit Congestion Notification (ECN)",
            "Linux commit e1f24a79f424 (IB/mlx5: Support congestion related counters)",
        ],
    }
    RcCnpUnmarked "RC-CNP-UNMARKED" Note Transport "IBTA annex A17.9.3" {
        title: "CNPs came although no packet was marked at the capture point.",
        says: "CNPs answer marks. If the capture has no marks, they were set beyond the capture point.",
        causes: ["The switch that marks is between the capture point and the receiver"],
        cure: "Nothing is wrong. To find the congested port capture nearer to the receiver too: it is between the two \
            points.",
    }
    RcCnpClass "RC-CNP-CLASS" Note Transport "IBTA annex A17.9.3" {
        title: "CNPs travel in the same class as the data that they should slow down.",
        says: "A CNP must be fast to be useful. In the class of the data it waits in the same queues, and may be paused.",
        causes: ["No separate class was configured for CNPs"],
        cure: "Linux with NVIDIA's MLNX_OFED: cnp_dscp in /sys/class/net/NETDEV/ecn/roce_np is the DSCP of CNPs, \
            cnp_802p_prio the \
               priority of their tag. Give that class a strict priority on the switches.",
        documented: [
            "NVIDIA MLNX_OFED documentation, Explicit Congestion Notification (ECN)",
        ],
    }
    RcCnpPace "RC-CNP-PACE" Note Transport "IBTA annex A17.9.3" {
        title: "A receiver sends CNPs without a pause between them.",
        says: "One CNP per interval is enough, because a sender slows down once per interval. Adapters keep 4 \
            microseconds or more between \
               two CNPs of a flow.",
        causes: ["The pacing of CNPs is off, or set very low, at the receiver", "A receiver that sends a CNP for each \
            marked packet"],
        cure: "Linux with NVIDIA's MLNX_OFED: min_time_between_cnps in /sys/class/net/NETDEV/ecn/roce_np, in \
            microseconds.",
        documented: [
            "NVIDIA MLNX_OFED documentation, Explicit Congestion Notification (ECN)",
        ],
    }
    RcCnpIgnored "RC-CNP-IGNORED" Warn Transport "IBTA annex A17.9.3" {
        title: "A sender did not slow down after CNPs.",
        says: "A sender with congestion control lowers its rate for CNPs. The rule compares the rate before a burst of \
            CNPs with the rate \
               during it.",
        causes: [
            "The reaction point is off at the sender",
            "The sender is far below its limit, so a lower limit changes nothing: then nothing is wrong",
        ],
        cure: "Linux with NVIDIA's MLNX_OFED: /sys/class/net/NETDEV/ecn/roce_rp/enable/PRIORITY is 1 at the sender. \
            Its hw_counter \
               rp_cnp_handled rises, not rp_cnp_ignored.",
        documented: [
            "NVIDIA MLNX_OFED documentation, Explicit Congestion Notification (ECN)",
            "Linux commit e1f24a79f424 (IB/mlx5: Support congestion related counters)",
        ],
    }
    RcPauseStorm "RC-PAUSE-STORM" Warn Transport "IEEE 802.1Q 36" {
        title: "A device pauses a class for much of the time.",
        says: "Pauses are for short bursts. A device that pauses for long stops all senders of that class, and those \
            behind them. The rule \
               asks for a pause of 50 ms, or for ten pauses that take a tenth of the capture. A pause \
               that is not cancelled counts until its quanta run out, at the speed of the capture's interface, else at \
               the speed that SMB \
               servers list, else at 100 Gbit/s.",
        causes: ["A host that cannot drain its device: slow PCIe, a CPU or a disk that is busy", "A device or driver \
            that hangs"],
        cure: "Find the device by the address in the finding. Linux with NVIDIA: ethtool -S NETDEV counts pause frames \
            by priority \
               (tx_prio3_pause) and long ones (tx_pause_storm_warning_events). A watchdog for pause storms on the \
               switch keeps the \
               rest alive (SONiC: pfcwd).",
        documented: [
            "Linux Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst",
            "sonic-utilities, config pfcwd",
        ],
    }
    RcMtu "RC-MTU" Note Transport "IBTA Vol 1 12.6.5" {
        title: "RoCE uses a small path MTU although jumbo frames pass.",
        says: "The path MTU is 256, 512, 1024, 2048 or 4096 bytes: the largest that fits into the Ethernet MTU with \
            its headers. 1500 \
               gives 1024, 4200 gives 4096.",
        causes: ["The Ethernet MTU of one of the two RDMA interfaces is 1500"],
        cure: "Set an MTU of 4200 or more on both RDMA interfaces and on the switch ports (ip link set dev NETDEV mtu \
            9000), then \
               connect again: ibv_devinfo shows active_mtu.",
        documented: [
            "ip-link(8), mtu",
            "ibv_devinfo(1)",
        ],
    }
    RcEntropy "RC-ENTROPY" Note Transport "IBTA annex A17.9; RFC 7424 2.2" {
        title: "All RoCE connections of two hosts have the same UDP source port.",
        says: "Switches choose among equal paths by a hash, in which only the UDP source port differs between the \
            queue pairs of two \
               hosts. If all have the same port, all take the same path.",
        causes: ["A device or driver that does not vary the source port", "A gateway or a tunnel that writes its own \
            port"],
        cure: "Linux derives the port from the flow label of the connection, else from both queue pair numbers \
            (rdma_get_udp_sport): check \
               how the driver of this device uses it. A gateway or a tunnel on the way may write its own port: capture \
               at the host.",
        documented: [
            "Linux include/rdma/ib_verbs.h, rdma_get_udp_sport",
        ],
    }
    RcHops "RC-HOPS" Note Transport "RFC 791 3.2; RFC 8200 3" {
        title: "Packets of one direction took paths of different length.",
        says: "Each router lowers the TTL by one. Packets of one sender that arrive with several values took several \
            paths. RoCE treats a \
               packet that was overtaken as lost.",
        causes: ["A route that changed during the capture", "Packets of one flow spread over paths of different length"],
        cure: "Compare the times of the values with the log of the routers. Hash by flow, not by packet.",
    }
    RcGid "RC-GID" Note Transport "IBTA annex A16, A17" {
        title: "RoCE version 1 is used beside version 2.",
        says: "Version 1 has an Ethertype of its own and no IP header: it stays in its VLAN, has no DSCP and no ECN. \
            The GID that a \
               connection is opened with decides which one it uses.",
        causes: ["A host whose connection manager (rdma_cm) defaults to version 1", "A program that takes a GID by its \
            index"],
        cure: "Linux: /sys/class/infiniband/DEVICE/ports/1/gid_attrs/types/INDEX shows the version of each GID. \
            default_roce_mode of \
               rdma_cm is the version that connections get (cma_roce_mode -d DEVICE -p 1 -m 2 sets version 2).",
        documented: [
            "Linux Documentation/ABI/stable/sysfs-class-infiniband, gid_attrs/types",
            "Linux Documentation/ABI/testing/configfs-rdma_cm, default_roce_mode",
            "mlnx-tools, cma_roce_mode -h",
        ],
    }
    IwarpMss "IWARP-MSS" Note Transport "RFC 9293 3.7.1; RFC 5044 4.1" {
        title: "iWARP uses a small segment size although jumbo frames pass.",
        says: "Each FPDU fits into a segment: small segments mean more headers, more CRCs and more placements for the \
            same bytes.",
        causes: ["The Ethernet MTU of one of the two RDMA interfaces is 1500"],
        cure: "Set the same large MTU on both RDMA interfaces and on the switch ports (ip link set dev NETDEV mtu \
            9000), then connect \
               again.",
        documented: [
            "ip-link(8), mtu",
        ],
    }
    IwarpEcn "IWARP-ECN" Note Transport "RFC 3168 6.1.1" {
        title: "An iWARP connection runs without ECN although a switch marks packets.",
        says: "Hosts that did not agree on ECN in their SYNs learn of congestion only by loss.",
        causes: ["ECN is off at one of the hosts, or in the TCP of its adapter"],
        cure: "Linux, software iWARP: net.ipv4.tcp_ecn=1 asks for ECN and accepts it (2, the default, only accepts). \
            Windows Server: \
               Set-NetTCPSetting -SettingName NAME -EcnCapability Enabled. An adapter with a TCP of its own has its \
               own setting.",
        documented: [
            "Linux Documentation/networking/ip-sysctl.rst, tcp_ecn",
            "Microsoft Learn, Set-NetTCPSetting",
        ],
    }
    IwarpEce "IWARP-ECE" Warn Transport "RFC 3168 6.1.3" {
        title: "Marked segments arrived, and the receiver did not echo the marks.",
        says: "A receiver of marked segments sets ECE in its acknowledgments until the sender answers with CWR.",
        causes: ["A broken TCP at the receiver", "A device on the way that clears the flag"],
        cure: "Capture at the receiver: if the flag is there, the path clears it.",
    }
    IwarpWindow "IWARP-WINDOW" Note Transport "RFC 7323 2" {
        title: "TCP's window is not scaled: at most 65,535 bytes are in flight.",
        says: "Both SYNs must carry the window scale option. Without it a round trip of 100 microseconds allows no \
            more than 5 Gbit/s.",
        causes: ["Window scaling is off at one host", "A firewall removes the option"],
        cure: "Linux: net.ipv4.tcp_window_scaling=1. Capture the SYN at both hosts: if the option is lost on the way, \
            a firewall removed \
               it.",
        documented: [
            "Linux Documentation/networking/ip-sysctl.rst, tcp_window_scaling",
        ],
    }
    MpaCrc "MPA-CRC" Error Transport "RFC 5044 4.4, 8" {
        title: "The CRC of an FPDU is wrong.",
        says: "If CRCs are in use, an FPDU whose CRC does not match must not be delivered, and the connection is \
            ended. The analysis \
               ignores its content.",
        causes: ["Damaged in a middlebox or in memory; TCP's checksum did not notice", "TCP payload missing from the \
            capture", "CRC is off on the sender although agreed"],
        cure: "If every FPDU is affected, the sender does not compute the CRC. If only some are, look for faulty \
            hardware on the path.",
    }
    MpaMarker "MPA-MARKER" Error Transport "RFC 5044 4.2, 4.3" {
        title: "An MPA marker does not point to the beginning of its FPDU.",
        says: "When markers are in use one stands every 512 bytes of TCP sequence space, and points back to the FPDU's \
            beginning.",
        causes: ["Markers were agreed for the other direction only", "TCP payload missing from the capture"],
        cure: "Check the M bits in the MPA request and reply; each side asks for the markers that it wants to receive.",
    }
    MpaResync "MPA-RESYNC" Note Transport "RFC 5044 6" {
        title: "FPDU framing was lost and found again.",
        says: "A TCP stream has no framing: each FPDU's length says where the next one begins.",
        causes: ["The capture began in mid-connection or lost segments"],
        cure: "Nothing is wrong on the wire. The bytes in between are not analyzed.",
    }
    DdpMsn "DDP-MSN" Error Transport "RFC 5041 4.1, 4.3, 7.1; RFC 5040 4.1" {
        title: "Message sequence numbers have a gap or repeat, or a segment's headers are not defined.",
        says: "The MSN of each queue begins with 1 and rises by one from message to message. The versions of DDP and \
            RDMAP, the opcode and \
               the queue of a segment are defined and belong together.",
        causes: ["Segments missing from the capture", "A broken sender"],
        cure: "If the capture is complete, expect a Terminate (invalid MSN, queue, version or opcode). Update the \
            sender.",
    }
    DdpOverlap "DDP-OVERLAP" Error Transport "RFC 5041 4.1, 5.2" {
        title: "Segments of a DDP message overlap or leave holes.",
        says: "The segments of an untagged message follow one another by message offset; the last has the L flag.",
        causes: ["Segments missing from the capture", "A broken sender"],
        cure: "If the capture is complete, the message's content depends on the receiver. Update the sender.",
    }
    TcpLoss "TCP-LOSS" Warn Transport "RFC 9293 3.8.1; RFC 5681; RFC 2018" {
        title: "TCP segments were lost and sent again.",
        says: "TCP repeats segments that are not acknowledged, and slows down. The finding counts segments that the \
            receiver did not have; \
               for those that it had see TCP-SPURIOUS.",
        causes: ["Congestion or a bad link", "Buffers of a switch or host too small for the bursts that RDMA makes"],
        cure: "Look at drop counters on the side of the capture point that the finding names. TCP, and iWARP with it, \
            survives loss at the price of latency.",
    }
    TcpSpurious "TCP-SPURIOUS" Note Transport "RFC 2883; RFC 8985 7; RFC 6298" {
        title: "TCP segments were sent again although the receiver had them.",
        says: "A receiver that gets data twice says so with a D-SACK. A sender repeats too early when an \
            acknowledgment is late: at a \
               retransmission timeout, as a tail loss probe, or because segments were reordered.",
        causes: ["The receiver delays acknowledgments longer than the sender waits for them", "Reordering on the way", "Acknowledgments were lost"],
        cure: "Harmless where it is rare. If it is frequent, look at delayed acknowledgments of the receiver and at \
            reordering.",
    }
    TcpReorder "TCP-REORDER" Note Transport "RFC 9293 3.4; RFC 8985" {
        title: "TCP segments arrived out of order.",
        says: "A receiver keeps a segment that comes early and acknowledges it selectively; a sender that does not \
            allow for it repeats \
               needlessly.",
        causes: ["Multipath that splits one flow", "Several receive queues of the capture merged without timestamps \
            from hardware"],
        cure: "Find the hop that splits the flow: hash on addresses and ports.",
    }
    TcpChecksum "TCP-CHECKSUM" Warn Transport "RFC 9293 3.1" {
        title: "TCP segments were damaged: their checksum is wrong.",
        says: "A receiver drops a segment whose checksum is wrong, and the sender repeats it. The analysis ignores its \
            content too. \
               One that was acknowledged and never sent again was damaged on its way to the capture only (a note). \
               Segments captured before the adapter of their sender wrote the checksum (checksum offload) are not \
               counted. Two copies of \
               the same bytes that differ are a guess.",
        causes: [
            "A bad cable, optic, or memory of a switch",
            "A middlebox that changes packets wrongly",
            "If the receiver took them: a bad link to the capture point, a mirror port, or the capture itself",
        ],
        cure: "Look at the error counters of the ports on the way, up to the capture point.",
    }
    TcpNagle "TCP-NAGLE" Warn Transport "RFC 9293 3.7.4; RFC 1122 4.2.3.2" {
        title: "Nagle's algorithm waited for delayed acknowledgments.",
        says: "With Nagle's algorithm a sender holds a small segment back while data before it is not acknowledged; a \
            receiver may delay \
               the acknowledgment by up to 500 ms (40 ms and more is usual). Together they add that delay to each \
               request.",
        causes: ["TCP_NODELAY is not set on the sender's socket: siw of Linux leaves it to the user"],
        cure: "Set TCP_NODELAY on the sender (siw: module parameter or a kernel that sets it); or make the receiver \
            acknowledge quickly.",
    }
    TcpHeld "TCP-HELD" Note Transport "RFC 7323 3" {
        title: "TCP segments were held up between their sender and the capture point.",
        says: "The timestamps option says when the sender's TCP made a segment. One that passes the capture point much \
            later than its own \
               clock says, against others of the same sender, was held up below TCP or on the way; its program was not \
               slow.",
        causes: [
            "The sender's network device or its driver: a virtual adapter that is not woken, coalescing, a transmit \
                queue that stands still",
            "A queue on the way",
        ],
        cure: "Look at the device queue, interrupts and CPU of the sending host, then at queues on the way. Storage is \
            not the cause.",
    }
    PeerSilent "PEER-SILENT" Warn Transport "IBTA Vol 1 9.7.6.1; RFC 9293 3.8.3" {
        title: "One end acknowledged nothing while the other sent the same packet again and again.",
        says: "A sender repeats packets that are not acknowledged: on RC after its timeout until its retry count is \
            used up, on TCP at \
               growing intervals. A running host acknowledges even if the program on it hangs.",
        causes: ["A link that is down", "A host that is frozen, stopped or gone", "The other direction is not in the \
            capture", "One that sends packets itself is there: its adapter does not acknowledge, or packets to it are \
            lost on the way"],
        cure: "Look at that host and its link at the time that the finding gives: counters, console, suspend.",
    }
    PathMtu "PATH-MTU" Error Transport "RFC 2923 2.1; IBTA Vol 1 9.7.5.1" {
        title: "Large packets never arrive, and small ones do.",
        says: "Every packet of a message but the last is as long as the path MTU that the ends agreed on. A link that \
            takes only smaller ones drops it, on RoCE without a word. The sender repeats it until it gives up, while \
            short packets between the same hosts pass.",
        causes: ["The MTU of a switch port, VLAN or tunnel on the way is smaller than that of the hosts", "Jumbo frames \
            are on at one end only", "A firewall drops the ICMP messages that would tell TCP the right size"],
        cure: "From both hosts: ping -M do -s 8972 PEER (Windows: ping -f -l 8972 PEER), with smaller sizes until it \
            passes. Then set one MTU on all hosts, switches and tunnels; RoCE with a path MTU of 4096 wants 4200 bytes.",
    }
    TcpZeroWindow "TCP-ZERO-WINDOW" Warn Transport "RFC 9293 3.8.6" {
        title: "The receiver closed its TCP window.",
        says: "A window of zero stops the sender until the receiver has room.",
        causes: ["The receiving host or device cannot keep up", "Software iWARP (siw) starved of CPU"],
        cure: "Look at CPU and interrupts of the receiver; RDMA hardware should hardly ever do this.",
    }

    // ---- The capture ----------------------------------------------------------------------------------------------

    CaptureLoss "CAPTURE-LOSS" Warn Capture "derived from PSN, TCP and drop counters" {
        title: "The capture lost packets that the peers received.",
        says: "A packet that is acknowledged but not in the capture was lost by the capture. Findings that depend on \
            complete traffic then \
               say so. Where the packet numbers of a queue pair jump by more than 65,536, many packets are missing, or \
               another connection uses it: the finding is then a guess.",
        causes: ["Buffer too small or disk too slow", "A mirror port that carries more than its rate", "RDMA offload \
            past the capture point on a host"],
        cure: "Capture fewer bytes of each packet, filter on the peers, enlarge the buffer, or tap with hardware.",
    }
    CaptureClock "CAPTURE-CLOCK" Note Capture "derived from the capture's own times" {
        title: "The clock of the capture was set.",
        says: "The times of frames rise, apart from neighbours that a capture has in another order, and no faster than \
            the timestamps in TCP segments of both ends. Where they do not, latencies and other times across that point \
               are wrong.",
        causes: ["The clock of the capturing host was set, for example by NTP", "Captures of several clocks that were \
            merged"],
        cure: "Set the clock before the capture begins, and merge captures only if their clocks agree.",
    }
    CaptureCut "CAPTURE-CUT" Note Capture "derived from captured and wire lengths" {
        title: "Packets were cut short by the capture.",
        says: "If the snapshot length is below the length of the packet, payload is missing. Headers are still \
            checked; contents, CRCs and \
               signatures are not. RoCE packets that the host joined to one datagram, longer than any path MTU, are \
               followed one by one \
               if the datagram is whole; if it is cut, what is missing is not followed.",
        causes: [
            "A snapshot length was set on purpose, or by a device's default",
            "A mirror port or its switch cuts what it sends (ERSPAN's T bit)",
            "Packets of RoCE in user space were captured on loopback before the host cut them apart (segmentation \
                offload)",
        ],
        cure: "For contents capture whole packets. For credits, keys and timing 256 bytes are mostly enough.",
    }

    // ---- The path to RDMA -------------------------------------------------------------------------------------------

    SmbPathDialect "SMB-PATH-DIALECT" Note Path "[MS-SMB2] 3.2.4.1.7; [MS-SMBD] 1.5" {
        title: "SMB runs over TCP: the dialect is older than SMB 3.0.",
        says: "SMB Direct and multiple channels exist in the SMB 3 dialects only.",
        causes: [
            "The mount asks for an old dialect (Linux: vers=2.1 or older)",
            "The server is limited to an old dialect (server max protocol in ksmbd.conf or smb.conf)",
        ],
        cure: "Linux client: mount with vers=3.1.1, or without vers. ksmbd and Samba: set server max protocol to \
            SMB3_11 (its \
               default). Windows: Get-SmbConnection shows the dialect in use.",
        documented: [
            "mount.cifs(8), vers",
            "ksmbd.conf(5), server max protocol",
            "smb.conf(5), server max protocol",
            "Microsoft Learn, Get-SmbConnection",
        ],
    }
    SmbPathClient "SMB-PATH-CLIENT" Note Path "[MS-SMB2] 2.2.3, 3.2.5.2" {
        title: "SMB runs over TCP: the client does not announce multichannel, so it adds no RDMA channel.",
        says: "A client that can use several channels sets SMB2_GLOBAL_CAP_MULTI_CHANNEL. Only where both sides set it \
            does it add \
               channels, over RDMA or TCP.",
        causes: [
            "Linux: the mount has neither the option rdma nor multichannel",
            "Windows: EnableMultiChannel is off at the client",
        ],
        cure: "Linux: mount with the option rdma, which connects by SMB Direct at once; multichannel alone stays on \
            TCP. Windows: \
               Set-SmbClientConfiguration -EnableMultiChannel $true; without multichannel it has no SMB Direct.",
        documented: [
            "mount.cifs(8), rdma",
            "Linux fs/smb/client/sess.c, cifs_try_adding_channels",
            "Microsoft Learn, Set-SmbClientConfiguration",
            "Microsoft Learn, SMB Direct",
        ],
    }
    SmbPathServer "SMB-PATH-SERVER" Note Path "[MS-SMB2] 2.2.4, 3.2.5.2" {
        title: "SMB runs over TCP: the server does not offer multichannel.",
        says: "A server that can use several channels sets SMB2_GLOBAL_CAP_MULTI_CHANNEL. Without it a client adds no \
            channels, \
               over RDMA or TCP.",
        causes: [
            "ksmbd or Samba: server multi channel support is off",
            "Windows: EnableMultiChannel is off at the server",
            "The server does not support it",
        ],
        cure: "ksmbd.conf: server multi channel support = yes, then restart the server; the default is no, and \
            ksmbd.conf(5) warns \
               that it is experimental and may corrupt data. smb.conf: the same name, on by default from Samba 4.15. \
               Windows: \
               Set-SmbServerConfiguration -EnableMultiChannel $true. A Linux client with the mount option rdma needs \
               none of this.",
        documented: [
            "ksmbd.conf(5), server multi channel support",
            "smb.conf(5), server multi channel support",
            "mount.cifs(8), rdma",
            "Microsoft Learn, Set-SmbServerConfiguration",
        ],
    }
    SmbPathAsk "SMB-PATH-ASK" Note Path "[MS-SMB2] 3.2.4.20.10" {
        title: "SMB runs over TCP: the client never asked which interfaces the server has.",
        says: "A client learns of RDMA interfaces by FSCTL_QUERY_NETWORK_INTERFACE_INFO.",
        causes: [
            "The client found no interface of its own that is worth a second channel, or none with RDMA",
            "Windows: a constraint (New-SmbMultichannelConstraint) keeps it from other interfaces",
        ],
        cure: "Windows: Get-SmbClientNetworkInterface and Get-NetAdapterRdma say whether the client has an interface \
            with RDMA, \
               Get-SmbMultichannelConstraint which interfaces it may not use. Linux: mount with the option rdma.",
        documented: [
            "mount.cifs(8), rdma",
            "Microsoft Learn, Get-SmbClientNetworkInterface",
            "Microsoft Learn, Get-NetAdapterRdma",
            "Microsoft Learn, Get-SmbMultichannelConstraint",
        ],
    }
    SmbPathAnswer "SMB-PATH-ANSWER" Note Path "[MS-SMB2] 3.3.5.15.11" {
        title: "SMB runs over TCP: the server did not say which interfaces it has.",
        says: "A server that offers multichannel answers FSCTL_QUERY_NETWORK_INTERFACE_INFO with its interfaces.",
        causes: ["The server lists none of the interfaces that it serves on", "The server refuses the request"],
        cure: "ksmbd.conf and smb.conf: with bind interfaces only = yes, interfaces names those that are served. \
            Windows: \
               Get-SmbServerNetworkInterface.",
        documented: [
            "ksmbd.conf(5), interfaces",
            "smb.conf(5), interfaces",
            "Microsoft Learn, Get-SmbServerNetworkInterface",
        ],
    }
    SmbPathInterface "SMB-PATH-INTERFACE" Note Path "[MS-SMB2] 2.2.32.5" {
        title: "SMB runs over TCP: none of the interfaces that the server lists has RDMA.",
        says: "The server marks an interface with RDMA by RDMA_CAPABLE in its NETWORK_INTERFACE_INFO.",
        causes: [
            "The server serves an interface without RDMA: a bridge, a bond or a plain network card",
            "Linux: no RDMA device is there for that interface (rdma link), or ksmbd was built without \
                CONFIG_SMB_SERVER_SMBDIRECT",
            "Samba: it does not offer SMB Direct",
            "Windows: RDMA is disabled on the server's network card",
        ],
        cure: "Linux: rdma link must show an active device with the netdev that is served; with bind interfaces only = \
            yes in \
               ksmbd.conf, interfaces must name that netdev. Windows: Get-NetAdapterRdma, Enable-NetAdapterRdma and \
               Get-SmbServerNetworkInterface on the server.",
        documented: [
            "rdma-link(8)",
            "ksmbd.conf(5), interfaces",
            "Microsoft Learn, Get-NetAdapterRdma",
            "Microsoft Learn, Enable-NetAdapterRdma",
            "Microsoft Learn, Get-SmbServerNetworkInterface",
        ],
    }
    SmbPathAddress "SMB-PATH-ADDRESS" Note Path "[MS-SMB2] 2.2.32.5" {
        title: "SMB runs over TCP: the server lists RDMA only at an address that the client may not reach.",
        says: "A client connects to the addresses that the server lists. It cannot use RDMA at an address that it has \
            no route to.",
        causes: [
            "The interface with RDMA is in another subnet than the one the client came from",
            "The interface with RDMA has a link-local address only, or no link",
        ],
        cure: "Give client and server RDMA interfaces in one subnet, or a route between them. ksmbd.conf: with bind \
            interfaces only = \
               yes, interfaces names those that are served. Linux: ip route get ADDRESS on the client says whether it \
               has a route. \
               Windows: Get-SmbServerNetworkInterface.",
        documented: [
            "ksmbd.conf(5), interfaces",
            "ip-route(8), get",
            "Microsoft Learn, Get-SmbServerNetworkInterface",
        ],
    }
    SmbPathTry "SMB-PATH-TRY" Warn Path "[MS-SMB2] 3.2.4.1.7, 3.2.5.5" {
        title: "SMB runs over TCP although the server lists RDMA: the client never tried it.",
        says: "A client that has RDMA itself, and learns of an RDMA interface of the server, connects to it by SMB \
            Direct.",
        causes: [
            "Linux: the mount lacks the option rdma: cifs.ko does not move a mount from TCP to RDMA",
            "The client has no RDMA interface, or RDMA is disabled on it",
            "Windows: a constraint (New-SmbMultichannelConstraint) keeps it from that interface",
        ],
        cure: "Linux: mount with the option rdma; rdma link must show an active device on the client. Windows: \
               Get-SmbClientNetworkInterface must say RDMA Capable True, else Enable-NetAdapterRdma; then \
               Update-SmbMultichannelConnection.",
        documented: [
            "mount.cifs(8), rdma",
            "rdma-link(8)",
            "Microsoft Learn, Get-SmbClientNetworkInterface",
            "Microsoft Learn, Enable-NetAdapterRdma",
            "Microsoft Learn, Update-SmbMultichannelConnection",
        ],
    }
    SmbPathRefused "SMB-PATH-REFUSED" Warn Path "[MS-SMBD] 3.1.4.1; IBTA Vol 1 12.6.7" {
        title: "SMB does not use RDMA: the RDMA connection was refused.",
        says: "A server of SMB Direct listens on the RDMA port 445, and for iWARP on TCP port 5445.",
        causes: [
            "If TCP or the CM refused it, nothing on the server listens for SMB Direct: ksmbd built without \
                CONFIG_SMB_SERVER_SMBDIRECT, a server without SMB Direct. If an MPA Reply did, the service listens, \
                and refused this client: see MPA-REJECT",
            "Samba with capability=RDMA in its option interfaces announces RDMA, and has no SMB Direct",
            "The server's interface has RDMA, and the server is bound to another one",
            "A firewall rejects TCP port 5445 (iWARP) or UDP port 4791 (RoCEv2)",
        ],
        cure: "ksmbd: the kernel needs CONFIG_SMB_SERVER_SMBDIRECT; for iWARP the RDMA device must be there before \
            ksmbd starts, \
               which chooses its port by it. rdma resource show cm_id on the server lists who listens. Windows: \
               netstat -xan shows \
               the listener on port 445.",
        documented: [
            "Linux fs/smb/server/Kconfig",
            "Linux fs/smb/server/transport_rdma.c, smb_direct_ib_client_add",
            "rdma-resource(8), show cm_id",
            "NVIDIA WinOF-2 documentation, Storage Protocols",
        ],
    }
    SmbPathSilent "SMB-PATH-SILENT" Warn Path "[MS-SMBD] 3.1.4.1; IBTA Vol 1 12.9.7" {
        title: "SMB does not use RDMA: the client got no answer to its RDMA connection requests.",
        says: "A server accepts or rejects each RDMA connection request.",
        causes: [
            "A firewall drops UDP port 4791 (RoCEv2) or TCP port 5445 (iWARP)",
            "The server has no RDMA device on the interface with that address",
            "Client and server use different kinds of RDMA: RoCEv2 here, iWARP there",
        ],
        cure: "On the server, rdma link must show an active device whose netdev has the address asked for. Let UDP \
            port 4791 and TCP \
               port 5445 through the firewall (nft list ruleset; Windows with iWARP: Enable-NetFirewallRule \
               FPSSMBD-iWARP-In-TCP).",
        documented: [
            "rdma-link(8)",
            "nft(8), list ruleset",
            "Microsoft Learn, Enable-NetFirewallRule",
        ],
    }
    SmbPathBind "SMB-PATH-BIND" Warn Path "[MS-SMB2] 3.3.5.5.2" {
        title: "The RDMA connection is up, but the session could not be bound to it.",
        says: "A channel joins a session by SESSION_SETUP with SMB2_SESSION_FLAG_BINDING: same dialect, same client, \
            signed with the \
               session's key.",
        causes: [
            "The server does not allow several channels",
            "Dialect, signing or user differ between the channels",
        ],
        cure: "Look at the status in the finding. ksmbd.conf, smb.conf: server multi channel support = yes; \
            ksmbd.conf(5) calls that \
               experimental.",
        documented: [
            "ksmbd.conf(5), server multi channel support",
            "smb.conf(5), server multi channel support",
        ],
    }
    SmbPathInline "SMB-PATH-INLINE" Warn Path "[MS-SMB2] 3.2.4.6, 3.2.4.7" {
        title: "There is an RDMA connection, but READ and WRITE do not use RDMA: their data travels in messages.",
        says: "On a connection over SMB Direct a client may let the server move data by RDMA: Channel \
            SMB2_CHANNEL_RDMA_V1 in READ and \
               WRITE.",
        causes: [
            "The session is signed or encrypted: cifs.ko then sends data in messages",
            "The I/O is smaller than the client's threshold (Linux: /proc/fs/cifs/rdma_readwrite_threshold)",
        ],
        cure: "Linux: compare the size of the I/O with /proc/fs/cifs/rdma_readwrite_threshold; where the session is \
            signed or encrypted, mount without sign and seal, if that is allowed (ksmbd moves nothing signed or \
            encrypted by RDMA yet). Windows: encrypted sessions still use RDMA from Windows Server 2022 and Windows 11 \
            on.",
        documented: [
            "mount.cifs(8), sec and seal",
            "Linux Documentation/filesystems/smb/ksmbd.rst, Signing/Encryption over RDMA",
            "Linux fs/smb/client/smb2pdu.c, smb3_use_rdma_offload",
            "Microsoft Learn, SMB security enhancements",
        ],
    }
    SmbPathFallback "SMB-PATH-FALLBACK" Warn Path "[MS-SMB2] 3.2.5.5" {
        title: "SMB used RDMA and fell back to TCP.",
        says: "A client that loses its RDMA channels goes on over TCP, and returns when RDMA is there again.",
        causes: ["The RDMA connection broke: see how it ended", "The RDMA interface of one side went away"],
        cure: "Find why the RDMA connection ended. Windows: Update-SmbMultichannelConnection makes the client try RDMA \
            again. Linux: \
               mount again with the option rdma.",
        documented: [
            "mount.cifs(8), rdma",
            "Microsoft Learn, Update-SmbMultichannelConnection",
        ],
    }
    NfsPathRefused "NFS-PATH-REFUSED" Warn Path "RFC 8267 4.2, 6.3; IBTA Vol 1 12.6.7" {
        title: "NFS does not use RDMA: the RDMA connection was refused.",
        says: "An NFS 4 server listens for RPC-over-RDMA on port 20049. A server of NFS 2 or 3 may choose another port \
            and register it with \
               rpcbind.",
        causes: [
            "The NFS server does not listen for RDMA",
            "It listens on another port than the mount asks for",
            "A firewall rejects the port",
        ],
        cure: "Linux server: rdma=yes in the section [nfsd] of /etc/nfs.conf, or rpc.nfsd --rdma; \
            /proc/fs/nfsd/portlist must then \
               show rdma 20049. Client: mount with proto=rdma,port=20049.",
        documented: [
            "nfs.conf(5), nfsd",
            "rpc.nfsd(8), --rdma",
            "Linux Documentation/admin-guide/nfs/nfs-rdma.rst",
            "nfs(5), proto and port",
        ],
    }
    NfsPathSilent "NFS-PATH-SILENT" Warn Path "RFC 8267 6.3; IBTA Vol 1 12.9.7" {
        title: "NFS does not use RDMA: the client got no answer to its RDMA connection requests.",
        says: "A server accepts or rejects each RDMA connection request.",
        causes: [
            "A firewall drops UDP port 4791 (RoCEv2) or TCP port 20049 (iWARP)",
            "The server has no RDMA device on the interface with that address",
        ],
        cure: "On the server, rdma link must show an active device whose netdev has the address asked for. Let UDP \
            port 4791 and TCP \
               port 20049 through the firewall (nft list ruleset).",
        documented: [
            "rdma-link(8)",
            "nft(8), list ruleset",
        ],
    }
    NfsPathTcp "NFS-PATH-TCP" Note Path "RFC 8267 4.2, 6.3" {
        title: "NFS runs over TCP although its server offers RDMA.",
        says: "A client uses RDMA only if the mount asks for it. A server offers RDMA if it serves other clients over \
            RDMA, or if its \
               rpcbind lists it.",
        causes: ["Linux: the mount lacks proto=rdma", "The client has no RDMA interface"],
        cure: "Linux: mount with proto=rdma,port=20049 (or the option rdma, which is the same as proto=rdma); rdma \
            link must show an \
               active device.",
        documented: [
            "nfs(5), proto, rdma and port",
            "rdma-link(8)",
        ],
    }
    NfsPathFallback "NFS-PATH-FALLBACK" Warn Path "RFC 8267 6.7.2" {
        title: "NFS used RDMA and went on over TCP.",
        says: "A mount never changes its transport: the mount over TCP was made later, by a user or by an automounter.",
        causes: ["The RDMA connection broke, and the file system was mounted again without proto=rdma"],
        cure: "Find why the RDMA connection ended, then mount with proto=rdma,port=20049.",
        documented: [
            "nfs(5), proto and port",
        ],
    }

    // ---- Known bugs -----------------------------------------------------------------------------------------------

    BugCve202539943 "BUG-CVE-2025-39943" Error KnownBug "[MS-SMBD] 3.1.5.8; CVE-2025-39943" {
        title: "Data fields that point outside the message: an unfixed ksmbd reads out of bounds.",
        says: "DataOffset must be 8-byte aligned and DataOffset + DataLength must lie within the message. ksmbd used \
            both unchecked.",
        causes: ["An attack or a fuzzer on an SMB Direct server", "A broken client"],
        cure: "Update the server's kernel. If the connection went on after this frame, the server does not check.",
        hits: Hits::of("Linux ksmbd", "5.15", &["5.15.194", "6.1.154", "6.6.108", "6.12.49", "6.16.9", "6.17"]).by("5282491fc49d"),
    }
    BugCve202539942 "BUG-CVE-2025-39942" Error KnownBug "[MS-SMBD] 3.1.5.8; CVE-2025-39942" {
        title: "More data announced than MaxFragmentedSize: an unfixed ksmbd accepts it.",
        says: "DataLength + RemainingDataLength must not exceed the receiver's MaxFragmentedSize. ksmbd did not check \
            it.",
        causes: ["An attack or a fuzzer on an SMB Direct server", "A client that ignores the server's limit"],
        cure: "Update the server's kernel. If the connection went on after this frame, the server does not check.",
        hits: Hits::of("Linux ksmbd", "5.15", &["6.1.154", "6.6.108", "6.12.49", "6.16.9", "6.17"]).by("e1868ba37fd2"),
    }
    BugCve202643185 "BUG-CVE-2026-43185" Error KnownBug "[MS-SMBD] 2.2.1; CVE-2026-43185" {
        title: "PreferredSendSize of 0x80000000 or more: an unfixed ksmbd takes it for a negative number and overflows \
            its heap.",
        says: "PreferredSendSize is unsigned. ksmbd compared it as a signed number, and so used it as the limit for \
            the next message.",
        causes: ["An attack or a fuzzer on an SMB Direct server"],
        cure: "Update the server's kernel. Treat the sender as hostile unless it is your own test.",
        hits: Hits::of("Linux ksmbd", "5.15", &["6.18.16", "6.19.6", "7.0"]),
    }
    BugCve202631538 "BUG-CVE-2026-31538" Error KnownBug "[MS-SMBD] 3.1.5.9; CVE-2026-31538" {
        title: "The server granted credits for which it had posted no receive: an RNR NAK followed.",
        says: "Each credit stands for a receive that is posted. ksmbd of Linux 6.18 counted posted receives and \
            granted credits apart, and \
               could grant one too many while a message was arriving.",
        causes: ["ksmbd of an affected kernel under load"],
        cure: "Update the server's kernel.",
        hits: Hits::of("Linux ksmbd", "6.18", &["6.18.11", "6.19.1", "7.0"]),
    }
    BugCve202631539 "BUG-CVE-2026-31539" Error KnownBug "[MS-SMBD] 3.1.5.9; CVE-2026-31539" {
        title: "A Linux peer granted credits for which it had posted no receive: an RNR NAK followed.",
        says: "Each credit stands for a receive that is posted. The smbdirect code that client and server share in \
            Linux 6.18 had no \
               counter for receives not yet granted.",
        causes: ["A client or server with an affected kernel under load"],
        cure: "Update the kernel of the side that granted.",
        hits: Hits::of("Linux smbdirect", "6.18", &["6.18.11", "6.19.1", "7.0"]),
    }
    BugSmbdirectLastCredit "BUG-SMBDIRECT-LAST-CREDIT" Warn KnownBug "[MS-SMBD] 3.1.5.1" {
        title: "A Linux peer spent its last credit without granting any, as its smbdirect code did until 2026.",
        says: "The last credit is kept for a message that grants.",
        causes: ["Linux client or ksmbd from before the repair, with few credits agreed"],
        cure: "Raise the credits on both sides, or update the kernel.",
        hits: Hits::noted("Linux cifs.ko and ksmbd", "Linux cifs.ko and ksmbd before the smbdirect credit repairs of \
            2026."),
    }
    BugSmbdirectBatchInterleave "BUG-SMBDIRECT-BATCH-INTERLEAVE" Error KnownBug "[MS-SMBD] 3.1.5.4" {
        title: "Another message stands between the fragments of one, as in a Linux smbdirect bug of 2026.",
        says: "The fragments of a message are sent in strict order, with nothing between them.",
        causes: ["Two threads of the sender flushed their batches at the same time while one waited for credits"],
        cure: "Update the sender's kernel. Contents of the two messages are mixed at the receiver.",
        hits: Hits::noted("Linux smbdirect", "Linux smbdirect before its repair in 2026."),
    }
    BugKsmbdSealedLength "BUG-KSMBD-SEALED-LENGTH" Error KnownBug "[MS-SMBD] 3.1.5.4; [MS-SMB2] 2.2.41" {
        title: "Encrypted messages are announced 52 bytes longer than they are.",
        says: "DataLength and RemainingDataLength of the first fragment add up to the message: for an encrypted one \
            the 52-byte transform \
               header and OriginalMessageSize.",
        causes: ["ksmbd announces the transform header of an encrypted reply over SMB Direct and does not send it"],
        cure: "Update the server's kernel. Until then do not ask for encryption over SMB Direct: the client waits for \
            the missing bytes \
               and hangs up.",
        hits: Hits::noted("Linux ksmbd", "Linux ksmbd, seen with 6.12."),
    }
    BugCifsMaxFragmentedSize "BUG-CIFS-MAX-FRAGMENTED-SIZE" Warn KnownBug "[MS-SMBD] 2.2.1, 3.1.5.9" {
        title: "A Linux client offers to reassemble 1 MiB although its credits cannot carry that at once.",
        says: "MaxFragmentedSize should be what credits times receive size can hold: 255 credits of 1364 bytes give \
            347,820 bytes, and \
               half of that, 173,910, is what newer kernels use.",
        causes: ["cifs.ko with its old fixed default"],
        cure: "Lower /proc/fs/cifs/smbd_max_fragmented_recv_size to 173910, raise the receive size, or update the \
            client.",
        hits: Hits::noted("Linux cifs.ko", "Linux cifs.ko before its default became half of credits times receive size."),
    }
    BugKsmbdEarlyData "BUG-KSMBD-EARLY-DATA" Error KnownBug "[MS-SMBD] 3.1.5.2, 3.1.5.3" {
        title: "The server sent data or a grant before its Negotiate Response.",
        says: "The Negotiate Response is the second message of the connection and the first from the server.",
        causes: ["ksmbd starts granting credits while its negotiation is still being prepared"],
        cure: "Connect again; update the server's kernel.",
        hits: Hits::noted("Linux ksmbd", "Linux ksmbd; the exact versions are not known."),
    }
    BugKsmbdChannelInfo "BUG-KSMBD-CHANNEL-INFO" Error KnownBug "[MS-SMB2] 2.2.19, 2.2.21, 3.3.5.12, 3.3.5.13" {
        title: "Channel information that older ksmbd used unchecked: it lies outside the request, or asks for RDMA \
            over TCP.",
        says: "Offset, length and number of descriptors have to be checked, and a channel other than none is invalid \
            on a TCP connection.",
        causes: ["An attack or a fuzzer on the server", "A broken client"],
        cure: "Update the server's kernel. A checking server answers STATUS_INVALID_PARAMETER.",
        hits: Hits { note: "The checks came one by one with later stable kernels.", ..Hits::of("Linux ksmbd", "5.15", &[]) },
    }
    BugKsmbd2fd5dcb1c8ef "BUG-KSMBD-2FD5DCB1C8EF" Warn KnownBug "[MS-SMB2] 3.3.5.12, 3.3.5.13" {
        title: "Invalidation was asked for, and the error reply came as a plain Send.",
        says: "The key is to be invalidated with the reply whether the operation succeeded or failed.",
        causes: ["ksmbd forgot the key on its error paths"],
        cure: "Update the server's kernel. A client that relies on it keeps memory open to the server.",
        hits: Hits { note: "Backported to 5.15 and 5.16 stable.", ..Hits::of("Linux ksmbd", "5.15", &["5.17"]).by("2fd5dcb1c8ef") },
    }
    BugCve202689526 "BUG-CVE-2026-89526" Error KnownBug "RFC 8166 3.4.5; CVE-2026-89526" {
        title: "Read chunks that overlap or lie past the inline body: an unfixed NFS server reads out of bounds.",
        says: "Read chunks do not overlap and lie within the message. svcrdma rebuilt the message from positions \
            that it had not \
               checked.",
        causes: ["An attack or a fuzzer on an NFS/RDMA server"],
        cure: "Update the server's kernel (\"svcrdma: Validate Read chunk positions before reconstruction\").",
        hits: Hits::noted("Linux nfsd over RDMA", "Linux nfsd over RDMA before the svcrdma repairs of 2026; see the \
            CVE for the stable versions."),
    }
    BugCve202689528 "BUG-CVE-2026-89528" Note KnownBug "RFC 8166 3.4.5; CVE-2026-89528" {
        title: "Read segments add up to more than a Linux server's budget of 1 MiB and some slack.",
        says: "No document limits the sum. svcrdma had pages for its maximum request only, and did not check.",
        causes: ["A client with a larger maximum write size than the server's", "An attack or a fuzzer on an NFS/RDMA \
            server"],
        cure: "Update the server's kernel; check wsize on the client.",
        hits: Hits::noted("Linux nfsd over RDMA", "Linux nfsd over RDMA before the svcrdma repairs of 2026; see the \
            CVE for the stable versions."),
    }
    BugCve202689532 "BUG-CVE-2026-89532" Note KnownBug "RFC 8166 3.4.6; RFC 8267 6.4.1; CVE-2026-89532" {
        title: "A Write chunk has no segments: an unfixed NFS server mishandles it.",
        says: "A chunk is an array of one or more segments; an absent one is left out of the list. A client of NFS 4 \
            may yet use an empty one as the \
               place of a result that is to come in the message.",
        causes: ["A client that wants the result of this operation in the message", "An attack or a fuzzer on an \
            NFS/RDMA server"],
        cure: "Update the server's kernel (\"svcrdma: Reject Write/Reply chunks with segcount 0\").",
        hits: Hits::noted("Linux nfsd over RDMA", "Linux nfsd over RDMA before the svcrdma repairs of 2026; see the \
            CVE for the stable versions."),
    }
    BugCve202693228 "BUG-CVE-2026-93228" Error KnownBug "RFC 8166 3.4.6; CVE-2026-93228" {
        title: "A chunk without segments: an unfixed NFS server walks past the end of its list.",
        says: "A chunk is an array of one or more segments. svcrdma's loop over the segments of a chunk took for \
            granted that there is one.",
        causes: ["An attack or a fuzzer on an NFS/RDMA server"],
        cure: "Update the server's kernel.",
        hits: Hits::noted("Linux nfsd over RDMA", "Linux nfsd over RDMA before the svcrdma repairs of 2026; see the \
            CVE for the stable versions."),
    }
    BugCve202689533 "BUG-CVE-2026-89533" Error KnownBug "RFC 8166 3.4.3; CVE-2026-89533" {
        title: "Offset plus length of a segment wraps around.",
        says: "A segment is a contiguous range of memory, so that its end cannot lie before its beginning.",
        causes: ["An attack or a fuzzer on an NFS/RDMA server", "A broken client"],
        cure: "Update the server's kernel. Treat the sender as hostile unless it is your own test.",
        hits: Hits::noted("Linux nfsd over RDMA", "Linux nfsd over RDMA before the svcrdma repairs of 2026; see the \
            CVE for the stable versions."),
    }
    BugCve202664102 "BUG-CVE-2026-64102" Error KnownBug "RFC 5044 4.1, 8; CVE-2026-64102" {
        title: "An MPA length below its own DDP/RDMAP header: an unfixed siw copies gigabytes.",
        says: "The ULPDU length covers at least the header of the opcode that it carries. siw subtracted without \
            looking and went negative.",
        causes: ["An attack or a fuzzer on a software iWARP host"],
        cure: "Update the receiver's kernel. A fixed one answers with a Terminate (MPA, FPDU start).",
        hits: Hits::of("Linux siw", "5.3", &["5.10.258", "5.15.209", "6.1.175", "6.6.142", "6.12.92", "6.18.34", "7.0.11"]),
    }
    BugCve202664268 "BUG-CVE-2026-64268" Error KnownBug "RFC 5040 5.2.2; RFC 5041 7.1; CVE-2026-64268" {
        title: "A Read Response is longer than the Read Request asked for: an unfixed siw writes past its buffer.",
        says: "The response carries exactly as many bytes as were requested. siw compared the sum only at the last \
            segment.",
        causes: ["An attack or a fuzzer on a software iWARP host", "A broken responder"],
        cure: "Update the requester's kernel. A fixed one answers with a Terminate (DDP, base or bounds).",
        hits: Hits::of("Linux siw", "5.3", &["5.10.261", "5.15.212", "6.1.178", "6.6.145", "6.12.96", "6.18.39", "7.1.4"]),
    }
    BugCve202646043 "BUG-CVE-2026-46043" Error KnownBug "IBTA Vol 1 9.2; CVE-2026-46043" {
        title: "A packet is too short for its pad count and ICRC: an unfixed rxe computes a negative payload.",
        says: "Behind the headers come payload, 0 to 3 pad bytes and the 4-byte ICRC. rxe subtracted pad and ICRC \
            without looking.",
        causes: ["An attack or a fuzzer on a software RoCE host"],
        cure: "Update the receiver's kernel.",
        hits: Hits::of("Linux rxe", "4.8", &["5.10.258", "5.15.209", "6.1.175", "6.6.140", "6.12.86", "6.18.27", "7.0.4"]),
    }
    BugRxe4c6f86d "BUG-RXE-4C6F86D" Error KnownBug "IBTA Vol 1 9.2.1" {
        title: "A BTH opcode that is not assigned: an unfixed rxe looks it up past its checks.",
        says: "A receiver must drop a packet with an opcode outside the table before it uses any of its fields. The \
            finding is a guess: a newer specification may assign the opcode.",
        causes: [
            "An operation newer than this program",
            "An attack or a fuzzer on a software RoCE host",
            "A vendor's private opcode that reached the wrong host",
        ],
        cure: "Update the receiver's kernel.",
        hits: Hits::noted("Linux rxe", "Linux rxe before commit 4c6f86d; the exact stable versions are not known."),
    }
    BugCve202440992 "BUG-CVE-2024-40992" Error KnownBug "IBTA Vol 1 9.8.3; CVE-2024-40992" {
        title: "A datagram is longer than the path MTU: an unfixed rxe receives it.",
        says: "A UD request of invalid length is silently dropped by the responder. rxe checked too late. No path MTU \
            is larger than 4096 \
               bytes; the finding is a guess where only the connections of the two hosts show a smaller one.",
        causes: ["An attack or a fuzzer on a software RoCE host", "MTU settings that differ between the hosts"],
        cure: "Update the receiver's kernel; set the same MTU on both sides.",
        hits: Hits::of("Linux rxe", "6.2", &["6.6.36", "6.9.7", "6.10"]),
    }
}

stored_enum!(Severity { Note, Warn, Error });

impl Stored for Rule {
    fn store(&self, out: &mut Writer) {
        self.place().store(out);
    }

    fn restore(from: &mut Reader<'_>) -> Option<Self> {
        let place = usize::restore(from)?;
        Self::all().nth(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::format;
    use alloc::string::String;

    #[test]
    fn ids_are_unique_and_well_formed() {
        let mut seen = BTreeSet::new();
        for rule in Rule::ALL {
            let id = rule.id();
            assert!(seen.insert(id), "{id} twice");
            assert!(id.contains('-') && id.len() <= 32, "{id}");
            for word in id.split('-') {
                assert!(!word.is_empty() && word.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit()), "{id}");
            }
        }
        assert!(seen.len() > 100);
    }

    #[test]
    fn versions_are_hit_from_the_first_to_the_repair_of_their_series() {
        let hits = Rule::BugCve202539943.declared().hits;
        let hit = |text: &str| hits.hit(version(text).unwrap());
        for (asked, expected) in [
            ("5.14.21", Hit::No),
            ("5.15", Hit::Yes),
            ("5.15.193", Hit::Yes),
            ("5.15.194", Hit::No),
            ("6.2.16", Hit::Yes),
            ("6.12.48", Hit::Yes),
            ("6.12.117", Hit::No),
            ("6.17", Hit::No),
            ("7.1.2", Hit::No),
        ] {
            assert_eq!(hit(asked), expected, "{asked}");
        }
        assert_eq!(Rule::BugKsmbdEarlyData.declared().hits.hit([6, 12, 0]), Hit::Unknown);
        assert_eq!(
            (version("6.1.999999"), version("6.1.1000000")),
            (Some([6, 1, 999_999]), None),
            "six digits at most"
        );
        assert_eq!(
            (version("6.12.0-rc1"), version("6"), version("6.1.2.3"), version("6..1"), version("")),
            (None, None, None, None, None)
        );
        let said = format!("{hits}");
        assert_eq!(
            said,
            "Linux ksmbd 5.15 and later. Fixed in 5.15.194, 6.1.154, 6.6.108, 6.12.49, 6.16.9 and 6.17 (5282491fc49d)."
        );
    }

    #[test]
    fn places_are_those_of_the_table() {
        assert!(Rule::ALL.iter().enumerate().all(|(n, rule)| rule.place() == n));
        assert_eq!(Rule::Given(3).place(), Rule::ALL.len() + 3);
        assert!(Rule::all().eq(Rule::ALL.iter().copied()), "nothing was given");
    }

    #[test]
    fn a_variant_is_its_id_in_camel_case() {
        for rule in Rule::ALL {
            let camel: String = rule
                .id()
                .split('-')
                .flat_map(|word| word.chars().enumerate().map(|(i, c)| if i == 0 { c } else { c.to_ascii_lowercase() }))
                .collect();
            assert_eq!(format!("{rule:?}"), camel);
        }
    }

    #[test]
    fn ids_lead_back_to_their_rule() {
        for &rule in Rule::ALL {
            assert_eq!(Rule::from_id(rule.id()), Some(rule));
            assert_eq!(Rule::from_id(&rule.id().to_ascii_lowercase()), Some(rule));
            assert_eq!(format!("{rule}"), rule.id());
        }
        assert_eq!(Rule::from_id("SMBD-NEG"), None);
        assert_eq!(Rule::from_id(""), None);
    }

    /// Prose is whole sentences, without the spaces that a continued string literal leaves when its backslash is
    /// forgotten.
    #[test]
    fn every_row_has_its_prose() {
        for rule in Rule::ALL {
            let row = rule.row();
            for text in [row.title, row.says, row.cure] {
                assert!(text.len() > 10 && text.ends_with(['.', ')']), "{}: {text:?}", row.id);
            }
            assert!(
                row.title.len() <= 130 && !row.title.trim_end_matches('.').contains(". "),
                "{}: title is one sentence",
                row.id
            );
            assert!(
                !row.causes.is_empty() && row.causes.iter().all(|cause| cause.len() > 10 && !cause.ends_with('.')),
                "{}",
                row.id
            );
            assert!(!row.spec.is_empty(), "{}", row.id);
            let hits = format!("{}", row.hits);
            for text in [row.title, row.says, row.cure, row.spec, &hits].iter().chain(row.causes) {
                assert!(
                    !text.contains("  ") && !text.contains('\n') && text.trim() == *text && text.is_ascii(),
                    "{}: {text:?}",
                    row.id
                );
            }
            assert_eq!(row.group == Group::KnownBug, row.id.starts_with("BUG-"), "{}", row.id);
            assert_eq!(row.group == Group::KnownBug, !row.hits.product.is_empty(), "{}", row.id);
            assert_eq!(row.group == Group::KnownBug, !hits.is_empty(), "{}", row.id);
            let versions: Vec<_> = row
                .hits
                .fixed
                .iter()
                .map(|text| version(text).unwrap_or_else(|| panic!("{}: {text}", row.id)))
                .collect();
            assert!(
                versions.is_sorted() && (row.hits.since.is_empty() || version(row.hits.since).is_some()),
                "{}",
                row.id
            );
        }
    }

    /// No cure of the path to RDMA and of the lossless network is invented.
    #[test]
    fn cures_name_the_documents_that_they_are_from() {
        let audited =
            |rule: &&Rule| rule.row().group == Group::Path || (Rule::RcMarking..=Rule::IwarpWindow).contains(*rule);
        let systems = ["Linux", "NVIDIA", "Windows", "ksmbd", "Samba", "rdma link", "ip link", "mount with", "ethtool"];
        let mut checked = 0;
        for rule in Rule::ALL.iter().filter(audited) {
            let row = rule.row();
            let documents = row.documented;
            let is_of_a_system = systems.iter().any(|name| row.cure.contains(name));
            assert_eq!(is_of_a_system, !documents.is_empty(), "{}", row.id);
            assert_eq!(
                row.cure.contains("Windows"),
                documents.iter().any(|d| d.starts_with("Microsoft Learn") || d.contains("WinOF")),
                "{}",
                row.id
            );
            for part in
                ["ksmbd.conf", "smb.conf", "rdma link", "mlnx_qos", "cma_roce_tos", "cma_roce_mode", "default_roce_tos"]
            {
                let page = part.replace("rdma link", "rdma-link").replace("-Priority", "");
                assert!(
                    !row.cure.contains(part) || documents.iter().any(|d| d.contains(&page)),
                    "{} names {part}",
                    row.id
                );
            }
            checked += documents.len();
        }
        assert!(checked > 60, "{checked}");
    }

    /// A rule that is named in another rule's prose exists.
    #[test]
    fn cross_references_lead_somewhere() {
        for rule in Rule::ALL {
            let row = rule.row();
            for text in [row.title, row.says, row.cure].iter().chain(row.causes) {
                for word in text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-')) {
                    let prefixes = [
                        "SMBD-",
                        "RDMA-",
                        "SMB2-",
                        "SMB-PATH-",
                        "NFS-PATH-",
                        "RPCRDMA-",
                        "RPC-",
                        "RC-",
                        "CM-",
                        "MPA-",
                        "DDP-",
                        "RDMAP-",
                        "TCP-",
                        "CAPTURE-",
                        "BUG-",
                    ];
                    let looks_like_one =
                        word.bytes().all(|b| !b.is_ascii_lowercase()) && prefixes.iter().any(|p| word.starts_with(p));
                    if looks_like_one && word != "RDMA-KEY" {
                        assert!(Rule::from_id(word).is_some(), "{} names {word}", row.id);
                    }
                }
            }
        }
    }

    #[test]
    fn every_group_is_listed_and_used() {
        for &group in Group::ALL {
            assert!(Rule::ALL.iter().any(|rule| rule.row().group == group), "{group:?}");
        }
        assert!(Rule::ALL.iter().all(|rule| Group::ALL.contains(&rule.row().group)));
    }

    #[test]
    fn severities_have_names_and_an_order() {
        assert!(Severity::Note < Severity::Warn && Severity::Warn < Severity::Error);
        for &severity in Severity::ALL {
            assert_eq!(Severity::from_name(severity.name()), Some(severity));
        }
        assert_eq!(Severity::from_name("ERROR"), Some(Severity::Error));
        assert_eq!(Severity::from_name("fatal"), None);
    }
}
