//! Causes of failures by their status of NFS (RFC 8881 15.1, RFC 1813 2.6), for findings of several kinds.

use crate::exchange::{Family, Status};
use rdmascope_dissector::wire::nfs::v4;

/// Cause of failures with a status of NFS (RFC 8881 15.1; the numbers that version 3 has too mean the same).
pub(crate) const fn cause_of_nfs(status: v4::Status) -> Option<&'static str> {
    use v4::Status as S;
    Some(match status {
        S::GRACE => GRACE,
        S::DELAY => DELAY,
        S::SHARE_DENIED | S::LOCKED => {
            "Somebody else has the file open, or a part of it locked, so that nobody else may"
        }
        S::WRONGSEC => "The export wants another security flavor (sec=) than the client uses",
        S::OLD_STATEID | S::BAD_SEQID | S::SEQ_MISORDERED | S::SEQ_FALSE_RETRY | S::BADSLOT | S::BAD_HIGH_SLOT => {
            "Client and server do not agree on the order of the client's requests, or on the slots of the session"
        }
        S::RETRY_UNCACHED_REP => {
            "The client sent a request again whose reply the server did not keep: if it was executed is not known"
        }
        S::CONN_NOT_BOUND_TO_SESSION => "The client did not bind this connection to its session before it used it",
        S::EXPIRED => "The client's lease ran out: the server dropped what it had open and locked",
        S::ADMIN_REVOKED => "An administrator of the server revoked what the client had open or locked",
        S::DELEG_REVOKED => "The client did not return a delegation in time: the server revoked it",
        S::ROFS => "The file system or its export is read-only",
        S::PERM | S::ACCESS => DENIED,
        S::MOVED => "The file system is on another server now",
        S::NOTSUPP | S::ATTRNOTSUPP => NOT_SUPPORTED,
        _ => return None,
    })
}

/// Cause of a mount that the server refused with a status, to the last command of it.
pub(crate) fn why_unmounted(status: Status) -> Option<&'static str> {
    use v4::Status as S;
    if status.0 != Family::Rpc {
        return None;
    }
    Some(match status.number().map(v4::Status) {
        _ if status == Status::JUKEBOX => JUKEBOX,
        None if status.is_unauthenticated() => {
            "The server refuses the credential: another security flavor, or a port above 1023"
        }
        None => "The server does not serve this program, or this version of it, over this transport",
        Some(S::NOENT) => "The server has no such path, or does not export it: compare it with the list of exports",
        Some(S::NOTDIR) => "The path that was to be mounted is no directory",
        Some(S::PERM | S::ACCESS) => {
            "The export does not allow this client: its address, its port (above 1023), or its security flavor"
        }
        Some(S::STALE) => {
            "The server does not know the file handle of the export: it was changed or unmounted meanwhile"
        }
        Some(S::SERVERFAULT | S::IO) => "The server failed while it looked for the path: its log says more",
        Some(S::DELAY) => DELAY,
        Some(S::CLID_INUSE) => "Another client uses the same name: give each its own (nfs4_unique_id)",
        Some(S::MINOR_VERS_MISMATCH) => "The server does not speak this minor version of NFS 4 (vers=)",
        Some(status) => return cause_of_nfs(status),
    })
}

/// Cause of requests that a server cannot do.
pub(crate) const NOT_SUPPORTED: &str = "The server, or the file system behind it, cannot do what is asked for";

/// Cause of a refused access.
pub(crate) const DENIED: &str = "The user has no permission: of the share or export, or of the file";

/// Cause of ERR_GRACE (RFC 8881 8.4.2).
pub(crate) const GRACE: &str = "The server's NFS service was restarted, or the file system moved to it: in its grace \
    period, often 90 s, clients only get back what they had open before";

/// Cause of ERR_DELAY (RFC 8881 15.1.1.3).
pub(crate) const DELAY: &str = "The server waits for another client to return a delegation, for slow or archived storage, \
    or for means of its own";

/// Cause of ERR_JUKEBOX (RFC 1813 2.6).
pub(crate) const JUKEBOX: &str = "The server waits for slow or archived storage, or for means of its own";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_of_a_refused_mount_follows_its_status() {
        let unmounted = |status: v4::Status| why_unmounted(Status(Family::Rpc, status.0)).unwrap_or_default();
        assert!(unmounted(v4::Status::NOENT).contains("path") && unmounted(v4::Status::ACCESS).contains("export"));
        assert_eq!(unmounted(v4::Status::DELAY), DELAY);
        assert_eq!(why_unmounted(Status::JUKEBOX), Some(JUKEBOX));
        assert_eq!(why_unmounted(Status(Family::Smb2, 13)), None);
    }
}
