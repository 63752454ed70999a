//! Errors of our end of a conversation: of the system, the peer, or the user.

use crate::stack::EndReason;
use crate::transport::OpError;
use rdmascope_dissector::wire::smb2::NtStatus;
use std::io;
use thiserror::Error;

/// An error of our end.
#[derive(Debug, Error)]
pub enum Error {
    /// The peer cannot be reached.
    #[error("cannot connect to {address}: {source}")]
    Connect {
        /// Address that was tried.
        address: String,
        /// The I/O error.
        source: io::Error,
    },
    /// The connection failed.
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
    /// The connection is over.
    #[error("the connection ended: {0}")]
    Ended(#[from] EndReason),
    /// The peer did not answer.
    #[error("no answer to {what} within {seconds} s")]
    Timeout {
        /// The request.
        what: &'static str,
        /// Time that we waited, in seconds.
        seconds: u64,
    },
    /// The request could not be sent: the peer grants no credits.
    #[error("{what} could not be sent whole within {seconds} s: the peer grants no SMB Direct credits")]
    Starved {
        /// The request.
        what: &'static str,
        /// Time that we waited, in seconds.
        seconds: u64,
    },
    /// The peer answered with a failure.
    #[error("{what} was answered with {}", status_name(*status))]
    Status {
        /// The request.
        what: &'static str,
        /// The answer.
        status: NtStatus,
    },
    /// The peer's answer cannot be understood.
    #[error("the answer to {what} {why}")]
    Answer {
        /// The request.
        what: &'static str,
        /// The problem with the answer.
        why: &'static str,
    },
    /// Our RDMA operation cannot be carried out.
    #[error("{0}")]
    Operation(#[from] OpError),
    /// There are too few SMB2 credits, and the server grants no more.
    #[error("the server grants too few SMB2 credits: {needed} are needed, {held} are available")]
    Credits {
        /// Credits that the request needs.
        needed: u32,
        /// Credits that we hold.
        held: u32,
    },
    /// No memory can be registered.
    #[error(
        "no more memory can be registered: too many regions, or, on a card, too little that may be locked (ulimit -l)"
    )]
    Memory,
    /// The system provides no random numbers.
    #[error(transparent)]
    Random(#[from] crate::random::Unavailable),
    /// The cipher or the signing algorithm takes no such key, nonce or length.
    #[error("a message or its data cannot be encrypted or signed")]
    Protect,
    /// There is no Kerberos session.
    #[cfg(feature = "kerberos")]
    #[error("Kerberos: {0}")]
    Kerberos(#[from] crate::kerberos::Error),
    /// A capture cannot be read or written.
    #[error(transparent)]
    Capture(#[from] rdmascope_capture::Error),
}

impl Error {
    /// The status of the peer's answer, if that is the error.
    pub fn status(&self) -> Option<NtStatus> {
        match self {
            Self::Status { status, .. } => Some(*status),
            _ => None,
        }
    }
}

/// Result with the [`enum@Error`] of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The name of an NTSTATUS, or its hexadecimal value if it has none.
pub fn status_name(status: NtStatus) -> String {
    status.name().map_or_else(|| format!("{:#010x}", status.0), str::to_owned)
}
