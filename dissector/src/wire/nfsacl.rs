//! NFSACL, the side protocol for POSIX ACLs that runs beside NFS 2 and 3. It has no specification; the layout is what
//! Solaris published and Linux speaks.

use crate::field::Def;
use crate::trace::Trace;
use crate::wire::nfs::{Visit, end, handle, handle_v2, trace_handle, v3};
use crate::wire::rpc::{self, Memo};
use crate::wire::xdr::{self, Read, Xdr};

wire_enum! {
    /// Procedures. Version 3 has the first three.
    pub enum Procedure: u32 {
        NULL = 0, "NULL";
        GETACL = 1, "GETACL";
        SETACL = 2, "SETACL";
        GETATTR = 3, "GETATTR";
        ACCESS = 4, "ACCESS";
    }
}

wire_enum! {
    /// Type of an entry.
    pub enum EntryType: u32 {
        USER_OBJ = 0x01, "NFSACL_USER_OBJ";
        USER = 0x02, "NFSACL_USER";
        GROUP_OBJ = 0x04, "NFSACL_GROUP_OBJ";
        GROUP = 0x08, "NFSACL_GROUP";
        CLASS_OBJ = 0x10, "NFSACL_CLASS_OBJ";
        OTHER_OBJ = 0x20, "NFSACL_OTHER_OBJ";
        DEFAULT_USER_OBJ = 0x1001, "NFSACL_DEFAULT | NFSACL_USER_OBJ";
        DEFAULT_USER = 0x1002, "NFSACL_DEFAULT | NFSACL_USER";
        DEFAULT_GROUP_OBJ = 0x1004, "NFSACL_DEFAULT | NFSACL_GROUP_OBJ";
        DEFAULT_GROUP = 0x1008, "NFSACL_DEFAULT | NFSACL_GROUP";
        DEFAULT_CLASS_OBJ = 0x1010, "NFSACL_DEFAULT | NFSACL_CLASS_OBJ";
        DEFAULT_OTHER_OBJ = 0x1020, "NFSACL_DEFAULT | NFSACL_OTHER_OBJ";
    }
}

fields! {
    /// Fields of both versions.
    pub mod f ["NFSACL"] {
        PROTOCOL: Protocol = "nfsacl", "Network File System - ACL";
        PROCEDURE_V2: U32 = "nfsacl.procedure_v2", "V2 Procedure", dec, values Procedure::VALUES;
        PROCEDURE_V3: U32 = "nfsacl.procedure_v3", "V3 Procedure", dec, values Procedure::VALUES;
        FHANDLE: None = "rdmascope.nfsacl.fhandle", "fhandle";
        ATTRIBUTES: None = "rdmascope.nfsacl.attributes", "attr";
        ATTRIBUTES_V2: Bytes = "rdmascope.nfsacl.attributes_v2", "attributes of NFS version 2";
        ACCESS: U32 = "rdmascope.nfsacl.access", "access", hex;
        CREATE: Bool = "nfsacl.create", "create";
        MASK: U32 = "nfsacl.mask", "Mask", hex;
        MASK_ENTRY: Bool & 0x1 / 32 = "nfsacl.mask.acl_entry", "ACL entry";
        MASK_COUNT: Bool & 0x2 / 32 = "nfsacl.mask.acl_count", "ACL count";
        MASK_DEFAULT_ENTRY: Bool & 0x4 / 32 = "nfsacl.mask.default_acl_entry", "Default ACL entry";
        MASK_DEFAULT_COUNT: Bool & 0x8 / 32 = "nfsacl.mask.default_acl_count", "Default ACL count";
        ACL: None = "nfsacl.acl", "ACL";
        COUNT: U32 = "nfsacl.aclcnt", "ACL count", dec;
        DEFAULT_COUNT: U32 = "nfsacl.dfaclcnt", "Default ACL count", dec;
        ENTRIES: None = "rdmascope.nfsacl.entries", "ACL entries";
        DEFAULT_ENTRIES: None = "rdmascope.nfsacl.default_entries", "Default ACL entries";
        ENTRY: None = "nfsacl.aclent", "ACL Entry";
        ENTRY_TYPE: U32 = "nfsacl.aclent.type", "Type", dec, values EntryType::VALUES;
        ENTRY_UID: U32 as User = "nfsacl.aclent.uid", "UID", dec;
        ENTRY_PERM: U32 = "nfsacl.aclent.perm", "Permissions", dec;
        PERM_READ: Bool & 0x4 / 32 = "nfsacl.aclent.perm.read", "READ";
        PERM_WRITE: Bool & 0x2 / 32 = "nfsacl.aclent.perm.write", "WRITE";
        PERM_EXEC: Bool & 0x1 / 32 = "nfsacl.aclent.perm.exec", "EXEC";
    }
}

const MASK_BITS: &[Def] = &[f::MASK_ENTRY, f::MASK_COUNT, f::MASK_DEFAULT_ENTRY, f::MASK_DEFAULT_COUNT];
const PERM_BITS: &[Def] = &[f::PERM_READ, f::PERM_WRITE, f::PERM_EXEC];

/// Decodes arguments (of a call) or results in a protocol subtree of its own.
///
/// # Errors
/// The bytes cannot be decoded; the observer has been notified.
pub fn decode<'a, T: Trace, V: Visit<'a>>(
    x: &mut Xdr<'a, '_, T>,
    call: bool,
    memo: &Memo,
    visitor: &mut V,
) -> Read<()> {
    x.t.protocol("NFSACL");
    x.scope(f::PROTOCOL, |x| {
        let (procedure, v3) = (Procedure(memo.procedure), memo.version == 3);
        if T::ON {
            x.known(rpc::f::PROGRAMVERSION, memo.version);
            x.known(if v3 { f::PROCEDURE_V3 } else { f::PROCEDURE_V2 }, memo.procedure);
            x.t.info(format_args!("V{} {procedure} {}", memo.version, if call { "Call" } else { "Reply" }));
        }
        if procedure == Procedure::NULL || procedure.name().is_none() {
            return end(x);
        }
        if call {
            let handle = if v3 { handle(x, f::FHANDLE)? } else { handle_v2(x, f::FHANDLE)? };
            trace_handle(x, "FH", handle);
            match procedure {
                Procedure::GETACL => drop(x.flags(f::MASK, MASK_BITS)?),
                Procedure::SETACL => acl(x)?,
                Procedure::ACCESS => drop(x.u32(f::ACCESS)?),
                _ => {}
            }
            return end(x);
        }
        let status = v3::status(x)?.0;
        visitor.answered(status);
        // version 2 has attributes only with success, and in the form of NFS 2: 68 bytes
        if v3 {
            v3::post_op(x, f::ATTRIBUTES)?;
        } else if status == 0 {
            x.fixed(f::ATTRIBUTES_V2, 68)?;
        }
        match procedure {
            Procedure::GETACL if status == 0 => acl(x)?,
            Procedure::ACCESS if status == 0 => drop(x.u32(f::ACCESS)?),
            _ => {}
        }
        end(x)
    })
}

fn acl<T: Trace>(x: &mut Xdr<'_, '_, T>) -> Read<()> {
    x.scope(f::ACL, |x| {
        x.flags(f::MASK, MASK_BITS)?;
        for (count, entries) in [(f::COUNT, f::ENTRIES), (f::DEFAULT_COUNT, f::DEFAULT_ENTRIES)] {
            x.u32(count)?;
            x.scope(entries, |x| x.list(xdr::f::COUNT, |x, _| x.scope(f::ENTRY, entry)).map(drop))?;
        }
        Ok(())
    })
}

fn entry<T: Trace>(x: &mut Xdr<'_, '_, T>) -> Read<()> {
    x.u32(f::ENTRY_TYPE)?;
    x.u32(f::ENTRY_UID)?;
    x.flags(f::ENTRY_PERM, PERM_BITS).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::Vec;
    use crate::trace::{Off, Tree};
    use crate::wire::rpc::Program;
    use crate::wire::xdr::Stream;

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|w| w.to_be_bytes()).collect()
    }

    fn tree(version: u32, procedure: Procedure, call: bool, bytes: &[u8]) -> Tree {
        let memo = Memo::new(Program::NFSACL, version, procedure.0);
        let mut tree = Tree::new();
        tree.begin(bytes);
        decode(&mut Xdr::new(&Stream::whole(bytes), &mut tree), call, &memo, &mut ()).unwrap();
        assert!(tree.faults.is_empty());
        assert_eq!(tree.all(xdr::f::UNDECODED.name).count(), 0, "{procedure}");
        for n in 0..bytes.len() {
            assert!(
                decode(&mut Xdr::new(&Stream::whole(&bytes[..n]), &mut Off), call, &memo, &mut ()).is_err(),
                "{procedure} {n}"
            );
        }
        tree
    }

    /// mask, two entries, no default entries
    const ACL: [u32; 11] = [0xf, 2, 2, 1, 0, 7, 0x20, 0, 5, 0, 0];

    #[test]
    fn every_procedure_of_both_versions() {
        let acl = &ACL[..];
        let (v3, v2): (&[u32], &[u32]) = (&[8, 0x0100_0100, 0x0100_0000], &[7; 8]);
        for (version, handle) in [(3, v3), (2, v2)] {
            let t = tree(version, Procedure::GETACL, true, &words(&[handle, &[0xf]].concat()));
            assert_eq!(t.number("nfsacl.mask.default_acl_count"), Some(1));
            let t = tree(version, Procedure::SETACL, true, &words(&[handle, acl].concat()));
            assert_eq!((t.all("nfsacl.aclent").count(), t.number("nfsacl.aclcnt")), (2, Some(2)));
            let attributes: &[u32] = if version == 3 { &[0] } else { &[0; 17] };
            let t = tree(version, Procedure::GETACL, false, &words(&[&[0], attributes, acl].concat()));
            assert_eq!(t.number("nfsacl.aclent.perm.exec"), Some(1));
            tree(version, Procedure::SETACL, false, &words(&[&[0], attributes].concat()));
        }
        tree(2, Procedure::ACCESS, true, &words(&[v2, &[0x1f]].concat()));
        tree(2, Procedure::ACCESS, false, &words(&[&[0], &[0; 17][..], &[0x1f]].concat()));
        tree(2, Procedure::GETATTR, true, &words(v2));
        tree(3, Procedure::GETACL, false, &words(&[70, 0]));
        assert!(tree(2, Procedure::GETACL, false, &words(&[70])).info.ends_with("NFS3ERR_STALE"));
    }
}
