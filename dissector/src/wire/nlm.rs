//! NLM, the network lock manager: version 4 (RFC 1813 appendix II) and 1 to 3 (X/Open XNFS), which have shorter
//! offsets.
//!
//! The `_MSG` procedures carry arguments and get no results; their results come as calls of the `_RES` procedures.

use crate::trace::Trace;
use crate::wire::nfs::{ShownText, end, handle};
use crate::wire::rpc::{self, Memo};
use crate::wire::xdr::{Read, Xdr};

wire_enum! {
    /// Procedures (RFC 1813 6.1.5).
    pub enum Procedure: u32 {
        NULL = 0, "NULL";
        TEST = 1, "TEST";
        LOCK = 2, "LOCK";
        CANCEL = 3, "CANCEL";
        UNLOCK = 4, "UNLOCK";
        GRANTED = 5, "GRANTED";
        TEST_MSG = 6, "TEST_MSG";
        LOCK_MSG = 7, "LOCK_MSG";
        CANCEL_MSG = 8, "CANCEL_MSG";
        UNLOCK_MSG = 9, "UNLOCK_MSG";
        GRANTED_MSG = 10, "GRANTED_MSG";
        TEST_RES = 11, "TEST_RES";
        LOCK_RES = 12, "LOCK_RES";
        CANCEL_RES = 13, "CANCEL_RES";
        UNLOCK_RES = 14, "UNLOCK_RES";
        GRANTED_RES = 15, "GRANTED_RES";
        SM_NOTIFY = 16, "SM_NOTIFY";
        SHARE = 20, "SHARE";
        UNSHARE = 21, "UNSHARE";
        NM_LOCK = 22, "NM_LOCK";
        FREE_ALL = 23, "FREE_ALL";
    }
}

wire_enum! {
    /// Result of a procedure (RFC 1813 6.1.4).
    pub enum Stat: u32 {
        GRANTED = 0, "NLM_GRANTED";
        DENIED = 1, "NLM_DENIED";
        DENIED_NOLOCKS = 2, "NLM_DENIED_NOLOCKS";
        BLOCKED = 3, "NLM_BLOCKED";
        DENIED_GRACE_PERIOD = 4, "NLM_DENIED_GRACE_PERIOD";
        DEADLCK = 5, "NLM_DEADLCK";
        ROFS = 6, "NLM_ROFS";
        STALE_FH = 7, "NLM_STALE_FH";
        FBIG = 8, "NLM_BIG";
        FAILED = 9, "NLM_FAILED";
    }
}

fields! {
    /// Fields of all versions.
    pub mod f ["RFC 1813 6"] {
        PROTOCOL: Protocol = "nlm", "Network Lock Manager Protocol";
        PROCEDURE_V1: U32 = "nlm.procedure_v1", "V1 Procedure", dec, values Procedure::VALUES;
        PROCEDURE_V2: U32 = "nlm.procedure_v2", "V2 Procedure", dec, values Procedure::VALUES;
        PROCEDURE_V3: U32 = "nlm.procedure_v3", "V3 Procedure", dec, values Procedure::VALUES;
        PROCEDURE_V4: U32 = "nlm.procedure_v4", "V4 Procedure", dec, values Procedure::VALUES;
        COOKIE: Bytes as Id = "nlm.cookie", "cookie";
        BLOCK: Bool = "nlm.block", "block";
        EXCLUSIVE: Bool = "nlm.exclusive", "exclusive";
        RECLAIM: Bool = "nlm.reclaim", "reclaim";
        STATE: U32 = "nlm.state", "state", dec;
        STAT: U32 = "nlm.stat", "stat", dec, values Stat::VALUES;
        TEST_STAT: None = "nlm.test_stat", "test_stat";
        TEST_STAT_STAT: U32 = "nlm.test_stat.stat", "stat", dec, values Stat::VALUES;
        HOLDER: None = "nlm.holder", "holder";
        LOCK: None = "nlm.lock", "lock";
        CALLER_NAME: Str = "nlm.lock.caller_name", "caller_name";
        FHANDLE: None = "rdmascope.nlm.lock.fh", "fh";
        OWNER: Bytes as Id = "nlm.lock.owner", "owner";
        SVID: U32 = "nlm.lock.svid", "svid", dec;
        L_OFFSET: U32 = "nlm.lock.l_offset", "l_offset", dec;
        L_LEN: U32 = "nlm.lock.l_len", "l_len", dec;
        L_OFFSET64: U64 = "nlm.lock.l_offset64", "l_offset", dec;
        L_LEN64: U64 = "nlm.lock.l_len64", "l_len", dec;
        SEQUENCE: I32 = "nlm.sequence", "sequence", dec;
        SHARE: None = "nlm.share", "share";
        SHARE_MODE: U32 = "nlm.share.mode", "mode", dec, values &[(0, "deny none"), (1, "deny read"), (2, "deny write"), (3, "deny read/write")];
        SHARE_ACCESS: U32 = "nlm.share.access", "access", dec, values &[(0, "none"), (1, "read"), (2, "write"), (3, "read/write")];
        SHARE_NAME: Str = "nlm.share.name", "name";
        NOTIFY_PRIVATE: Bytes = "rdmascope.nlm.notify.private", "private";
    }
}

/// Decodes arguments (of a call) or results in a protocol subtree of its own.
///
/// # Errors
/// The bytes cannot be decoded; the observer has been notified.
pub fn decode<T: Trace>(x: &mut Xdr<'_, '_, T>, call: bool, memo: &Memo) -> Read<()> {
    use Procedure as P;
    x.t.protocol("NLM");
    x.scope(f::PROTOCOL, |x| {
        let (procedure, long) = (P(memo.procedure), memo.version == 4);
        if T::ON {
            let def = [f::PROCEDURE_V1, f::PROCEDURE_V2, f::PROCEDURE_V3, f::PROCEDURE_V4]
                [memo.version.clamp(1, 4) as usize - 1];
            x.known(rpc::f::PROGRAMVERSION, memo.version);
            x.known(def, memo.procedure);
            x.t.info(format_args!("V{} {procedure} {}", memo.version, if call { "Call" } else { "Reply" }));
        }
        match (procedure, call) {
            (P::TEST | P::TEST_MSG | P::GRANTED | P::GRANTED_MSG, true) => {
                x.opaque(f::COOKIE)?;
                x.bool(f::EXCLUSIVE)?;
                lock(x, long)?;
            }
            (P::LOCK | P::LOCK_MSG | P::NM_LOCK, true) => {
                x.opaque(f::COOKIE)?;
                x.bool(f::BLOCK)?;
                x.bool(f::EXCLUSIVE)?;
                lock(x, long)?;
                x.bool(f::RECLAIM)?;
                x.u32(f::STATE)?;
            }
            (P::CANCEL | P::CANCEL_MSG, true) => {
                x.opaque(f::COOKIE)?;
                x.bool(f::BLOCK)?;
                x.bool(f::EXCLUSIVE)?;
                lock(x, long)?;
            }
            (P::UNLOCK | P::UNLOCK_MSG, true) => {
                x.opaque(f::COOKIE)?;
                lock(x, long)?;
            }
            (P::TEST, false) | (P::TEST_RES, true) => {
                x.opaque(f::COOKIE)?;
                test_stat(x, long)?;
            }
            (P::LOCK | P::CANCEL | P::UNLOCK | P::GRANTED | P::NM_LOCK, false)
            | (P::LOCK_RES | P::CANCEL_RES | P::UNLOCK_RES | P::GRANTED_RES, true) => {
                x.opaque(f::COOKIE)?;
                stat(x)?;
            }
            (P::SHARE | P::UNSHARE, true) => {
                x.opaque(f::COOKIE)?;
                x.scope(f::SHARE, |x| {
                    x.opaque(f::SHARE_NAME)?;
                    handle(x, f::FHANDLE)?;
                    x.opaque(f::OWNER)?;
                    x.u32(f::SHARE_MODE)?;
                    x.u32(f::SHARE_ACCESS).map(drop)
                })?;
                x.bool(f::RECLAIM)?;
            }
            (P::SHARE | P::UNSHARE, false) => {
                x.opaque(f::COOKIE)?;
                stat(x)?;
                x.i32(f::SEQUENCE)?;
            }
            (P::FREE_ALL, true) => {
                x.opaque(f::SHARE_NAME)?;
                x.u32(f::STATE)?;
            }
            (P::SM_NOTIFY, true) => {
                x.opaque(f::CALLER_NAME)?;
                x.u32(f::STATE)?;
                x.fixed(f::NOTIFY_PRIVATE, 16)?;
            }
            _ => {}
        }
        end(x)
    })
}

fn stat<T: Trace>(x: &mut Xdr<'_, '_, T>) -> Read<()> {
    let stat = Stat(x.u32(f::STAT)?);
    if T::ON {
        x.t.info(format_args!("{stat}"));
    }
    Ok(())
}

fn range<T: Trace>(x: &mut Xdr<'_, '_, T>, long: bool) -> Read<()> {
    if long {
        x.u64(f::L_OFFSET64)?;
        x.u64(f::L_LEN64).map(drop)
    } else {
        x.u32(f::L_OFFSET)?;
        x.u32(f::L_LEN).map(drop)
    }
}

fn lock<T: Trace>(x: &mut Xdr<'_, '_, T>, long: bool) -> Read<()> {
    x.scope(f::LOCK, |x| {
        let caller = x.opaque(f::CALLER_NAME)?;
        if T::ON {
            x.t.label(format_args!(": {}", ShownText(caller)));
        }
        let handle = handle(x, f::FHANDLE)?;
        crate::wire::nfs::trace_handle(x, "FH", handle);
        x.opaque(f::OWNER)?;
        x.u32(f::SVID)?;
        range(x, long)
    })
}

fn test_stat<T: Trace>(x: &mut Xdr<'_, '_, T>, long: bool) -> Read<()> {
    x.scope(f::TEST_STAT, |x| {
        let stat = Stat(x.u32(f::TEST_STAT_STAT)?);
        if T::ON {
            x.t.info(format_args!("{stat}"));
        }
        if stat != Stat::DENIED {
            return Ok(());
        }
        x.scope(f::HOLDER, |x| {
            x.bool(f::EXCLUSIVE)?;
            x.u32(f::SVID)?;
            x.opaque(f::OWNER)?;
            range(x, long)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::Vec;
    use crate::trace::{Off, Tree};
    use crate::wire::rpc::Program;
    use crate::wire::xdr::{self, Stream};

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|w| w.to_be_bytes()).collect()
    }

    fn tree(version: u32, procedure: Procedure, call: bool, bytes: &[u8]) -> Tree {
        let memo = Memo::new(Program::NLM, version, procedure.0);
        let mut tree = Tree::new();
        tree.begin(bytes);
        decode(&mut Xdr::new(&Stream::whole(bytes), &mut tree), call, &memo).unwrap();
        assert!(tree.faults.is_empty());
        assert_eq!(tree.all(xdr::f::UNDECODED.name).count(), 0, "{procedure}");
        for n in 0..bytes.len() {
            assert!(
                decode(&mut Xdr::new(&Stream::whole(&bytes[..n]), &mut Off), call, &memo).is_err(),
                "{procedure} {n}"
            );
        }
        tree
    }

    /// caller "a", handle, owner, svid, then the range
    const LOCK: [u32; 9] = [1, 0x6100_0000, 8, 0x0100_0100, 0x0100_0000, 4, 0x1122_3344, 77, 0];

    #[test]
    fn every_procedure() {
        use Procedure as P;
        let long = [&LOCK[..], &[4096, 0, 100]].concat();
        let short = [&LOCK[..], &[100]].concat();
        let cookie: &[u32] = &[4, 0xaabb_ccdd];
        for version in 1..=4 {
            let lock = if version == 4 { &long } else { &short };
            for procedure in [P::TEST, P::TEST_MSG, P::GRANTED, P::GRANTED_MSG] {
                let t = tree(version, procedure, true, &words(&[cookie, &[1], lock].concat()));
                assert_eq!((t.number("nlm.lock.svid"), t.number("nlm.exclusive")), (Some(77), Some(1)));
            }
            for procedure in [P::LOCK, P::LOCK_MSG, P::NM_LOCK] {
                let t = tree(version, procedure, true, &words(&[cookie, &[1, 1], lock, &[1, 3]].concat()));
                assert_eq!(
                    (t.number("nlm.state"), t.number("nlm.lock.l_offset64")),
                    (Some(3), (version == 4).then_some(4096))
                );
            }
            for procedure in [P::CANCEL, P::CANCEL_MSG] {
                tree(version, procedure, true, &words(&[cookie, &[1, 1], lock].concat()));
            }
            for procedure in [P::UNLOCK, P::UNLOCK_MSG] {
                tree(version, procedure, true, &words(&[cookie, lock].concat()));
            }
            for (procedure, call) in
                [(P::LOCK, false), (P::UNLOCK, false), (P::GRANTED, false), (P::LOCK_RES, true), (P::GRANTED_RES, true)]
            {
                assert!(tree(version, procedure, call, &words(&[cookie, &[3]].concat())).info.ends_with("NLM_BLOCKED"));
            }
            let holder: &[u32] = if version == 4 { &[1, 1, 77, 0, 0, 5, 0, 6] } else { &[1, 1, 77, 0, 5, 6] };
            for (procedure, call) in [(P::TEST, false), (P::TEST_RES, true)] {
                let t = tree(version, procedure, call, &words(&[cookie, holder].concat()));
                assert_eq!(t.all("nlm.holder").count(), 1);
                tree(version, procedure, call, &words(&[cookie, &[0]].concat()));
            }
        }
        for procedure in [P::SHARE, P::UNSHARE] {
            let t = tree(4, procedure, true, &words(&[cookie, &[1, 0x6100_0000, 4, 9, 0, 1, 2, 0]].concat()));
            assert_eq!((t.number("nlm.share.mode"), t.number("nlm.share.access")), (Some(1), Some(2)));
            tree(4, procedure, false, &words(&[cookie, &[0, 5]].concat()));
        }
        tree(4, P::FREE_ALL, true, &words(&[1, 0x6100_0000, 7]));
        tree(4, P::SM_NOTIFY, true, &words(&[1, 0x6100_0000, 7, 0, 0, 0, 0]));
        tree(4, P::NULL, false, &[]);
    }
}
