//! MOUNT versions 1 to 3, RFC 1813 appendix I (1 and 2: RFC 1094 appendix A): file handles of exported directories by
//! path.

use crate::field::Def;
use crate::trace::Trace;
use crate::wire::nfs::{ShownText, Visit, end, handle, handle_v2};
use crate::wire::rpc::{self, Memo};
use crate::wire::xdr::{Read, Xdr};

wire_enum! {
    /// Procedures (RFC 1813 5.2). Version 3 ends with EXPORT.
    pub enum Procedure: u32 {
        NULL = 0, "NULL";
        MNT = 1, "MNT";
        DUMP = 2, "DUMP";
        UMNT = 3, "UMNT";
        UMNTALL = 4, "UMNTALL";
        EXPORT = 5, "EXPORT";
        EXPORTALL = 6, "EXPORTALL";
        PATHCONF = 7, "PATHCONF";
    }
}

wire_enum! {
    /// Result of MNT (RFC 1813 5.1.5, `mountstat3`).
    pub enum Status: u32 {
        OK = 0, "OK";
        PERM = 1, "ERR_PERM";
        NOENT = 2, "ERR_NOENT";
        IO = 5, "ERR_IO";
        ACCES = 13, "ERR_ACCESS";
        NOTDIR = 20, "ERR_NOTDIR";
        INVAL = 22, "ERR_INVAL";
        NAMETOOLONG = 63, "ERR_NAMETOOLONG";
        NOTSUPP = 10004, "ERR_NOTSUPP";
        SERVERFAULT = 10006, "ERR_SERVERFAULT";
    }
}

fields! {
    /// Fields of all versions.
    pub mod f ["RFC 1813 5"] {
        PROTOCOL: Protocol = "mount", "Mount Service";
        PROCEDURE_V1: U32 = "mount.procedure_v1", "V1 Procedure", dec, values Procedure::VALUES;
        PROCEDURE_V2: U32 = "mount.procedure_v2", "V2 Procedure", dec, values Procedure::VALUES;
        PROCEDURE_V3: U32 = "mount.procedure_v3", "V3 Procedure", dec, values Procedure::VALUES;
        STATUS: U32 = "mount.status", "Status", dec, values Status::VALUES;
        PATH: Str = "mount.path", "Path";
        FHANDLE: None = "rdmascope.mount.fhandle", "fhandle";
        FLAVORS: U32 = "mount.flavors", "Flavors", dec;
        FLAVOR: U32 = "mount.flavor", "Flavor", dec, values rpc::Flavor::VALUES;
        DUMP_ENTRY: None = "mount.dump.entry", "Mount List Entry";
        DUMP_HOSTNAME: Str = "mount.dump.hostname", "Hostname";
        DUMP_DIRECTORY: Str = "mount.dump.directory", "Directory";
        EXPORT_ENTRY: None = "mount.export.entry", "Export List Entry";
        EXPORT_DIRECTORY: Str = "mount.export.directory", "Directory";
        EXPORT_GROUPS: None = "mount.export.groups", "Groups";
        EXPORT_GROUP: Str = "mount.export.group", "Group";
        LINK_MAX: U32 = "mount.pathconf.link_max", "Maximum number of links to a file", dec;
        MAX_CANON: U16 = "mount.pathconf.max_canon", "Maximum terminal input line length", dec;
        MAX_INPUT: U16 = "mount.pathconf.max_input", "Terminal input buffer size", dec;
        NAME_MAX: U16 = "mount.pathconf.name_max", "Maximum file name length", dec;
        PATH_MAX: U16 = "mount.pathconf.path_max", "Maximum path name length", dec;
        PIPE_BUF: U16 = "mount.pathconf.pipe_buf", "Pipe buffer size", dec;
        VDISABLE: U8 = "mount.pathconf.vdisable_char", "VDISABLE character", hex;
        MASK: U16 = "mount.pathconf.mask", "Reply error/status bits", hex;
    }
}

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
    x.t.protocol("MOUNT");
    x.scope(f::PROTOCOL, |x| {
        let procedure = Procedure(memo.procedure);
        if T::ON {
            let def: Def = match memo.version {
                1 => f::PROCEDURE_V1,
                2 => f::PROCEDURE_V2,
                _ => f::PROCEDURE_V3,
            };
            x.known(rpc::f::PROGRAMVERSION, memo.version);
            x.known(def, memo.procedure);
            x.t.info(format_args!("V{} {procedure} {}", memo.version, if call { "Call" } else { "Reply" }));
        }
        match (procedure, call) {
            (Procedure::MNT | Procedure::UMNT | Procedure::PATHCONF, true) => {
                let path = x.opaque(f::PATH)?;
                if T::ON {
                    x.t.info(format_args!("{}", ShownText(path)));
                }
            }
            (Procedure::MNT, false) => {
                let status = Status(x.u32(f::STATUS)?);
                visitor.answered(status.0);
                if T::ON && status != Status::OK {
                    x.t.info(format_args!("Error: {status}"));
                }
                if status == Status::OK && memo.version < 3 {
                    handle_v2(x, f::FHANDLE)?;
                } else if status == Status::OK {
                    handle(x, f::FHANDLE)?;
                    x.list(f::FLAVORS, |x, _| x.u32(f::FLAVOR).map(drop))?;
                }
            }
            (Procedure::DUMP, false) => {
                x.chain(|x| {
                    x.scope(f::DUMP_ENTRY, |x| {
                        x.opaque(f::DUMP_HOSTNAME)?;
                        x.opaque(f::DUMP_DIRECTORY).map(drop)
                    })
                })?;
            }
            (Procedure::EXPORT | Procedure::EXPORTALL, false) => {
                x.chain(|x| {
                    x.scope(f::EXPORT_ENTRY, |x| {
                        x.opaque(f::EXPORT_DIRECTORY)?;
                        x.scope(f::EXPORT_GROUPS, |x| x.chain(|x| x.opaque(f::EXPORT_GROUP).map(drop)).map(drop))
                    })
                })?;
            }
            (Procedure::PATHCONF, false) => {
                for def in [
                    f::LINK_MAX,
                    f::MAX_CANON,
                    f::MAX_INPUT,
                    f::NAME_MAX,
                    f::PATH_MAX,
                    f::PIPE_BUF,
                    f::VDISABLE,
                    f::MASK,
                ] {
                    x.u32(def)?;
                }
                x.undecoded();
            }
            _ => {}
        }
        end(x)
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

    fn tree(version: u32, procedure: u32, call: bool, bytes: &[u8]) -> Tree {
        let memo = Memo::new(Program::MOUNT, version, procedure);
        let mut tree = Tree::new();
        tree.begin(bytes);
        decode(&mut Xdr::new(&Stream::whole(bytes), &mut tree), call, &memo, &mut ()).unwrap();
        assert!(tree.faults.is_empty());
        assert_eq!(tree.all(xdr::f::UNDECODED.name).count(), 0);
        for n in 0..bytes.len() {
            let mut tree = Tree::new();
            tree.begin(&bytes[..n]);
            assert!(decode(&mut Xdr::new(&Stream::whole(&bytes[..n]), &mut tree), call, &memo, &mut ()).is_err());
            assert_eq!(tree.faults.len(), 1);
            assert!(decode(&mut Xdr::new(&Stream::whole(&bytes[..n]), &mut Off), call, &memo, &mut ()).is_err());
        }
        tree
    }

    #[test]
    fn mnt_gives_a_handle_and_flavors() {
        let mut path = words(&[4]);
        path.extend(b"/srv");
        let t = tree(3, 1, true, &path);
        assert_eq!((t.protocol, t.info.as_str()), ("MOUNT", "V3 MNT Call, /srv"));
        let t = tree(3, 1, false, &words(&[0, 8, 0x0100_0100, 0x0100_0000, 2, 1, 390_003]));
        assert_eq!((t.number("nfs.fh.hash"), t.all("mount.flavor").count()), (Some(0xda68_6b37), 2));
        let t = tree(3, 1, false, &words(&[13]));
        assert_eq!(t.info, "V3 MNT Reply, Error: ERR_ACCESS");
        let t = tree(1, 1, false, &words(&[0, 1, 2, 3, 4, 5, 6, 7, 8]));
        assert_eq!(t.all("nfs.fhandle").next().unwrap().len, 32);
    }

    #[test]
    fn dump_and_export_list() {
        let t = tree(3, 2, false, &words(&[1, 1, 0x6100_0000, 1, 0x2f00_0000, 1, 1, 0x6200_0000, 1, 0x2f00_0000, 0]));
        assert_eq!(t.all("mount.dump.entry").count(), 2);
        let t = tree(3, 5, false, &words(&[1, 1, 0x2f00_0000, 1, 1, 0x2a00_0000, 1, 1, 0x2b00_0000, 0, 0]));
        assert_eq!((t.all("mount.export.entry").count(), t.all("mount.export.group").count()), (1, 2));
        let t = tree(2, 7, false, &words(&[1, 2, 3, 4, 5, 6, 7, 0]));
        assert_eq!(t.number("mount.pathconf.pipe_buf"), Some(6));
        tree(3, 3, true, &words(&[1, 0x2f00_0000]));
    }
}
