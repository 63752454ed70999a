//! Portmap version 2 and rpcbind versions 3 and 4, RFC 1833: at which address a program listens.

use crate::trace::Trace;
use crate::wire::nfs::{ShownText, Visit, end};
use crate::wire::rpc::{self, Memo, Program};
use crate::wire::xdr::{Read, Xdr};

wire_enum! {
    /// Procedures of version 2 (RFC 1833 3.2).
    pub enum Procedure: u32 {
        NULL = 0, "NULL";
        SET = 1, "SET";
        UNSET = 2, "UNSET";
        GETPORT = 3, "GETPORT";
        DUMP = 4, "DUMP";
        CALLIT = 5, "CALLIT";
    }
}

wire_enum! {
    /// Procedures of versions 3 and 4 (RFC 1833 2.2.1).
    pub enum RpcbindProcedure: u32 {
        NULL = 0, "NULL";
        SET = 1, "SET";
        UNSET = 2, "UNSET";
        GETADDR = 3, "GETADDR";
        DUMP = 4, "DUMP";
        CALLIT = 5, "CALLIT";
        GETTIME = 6, "GETTIME";
        UADDR2TADDR = 7, "UADDR2TADDR";
        TADDR2UADDR = 8, "TADDR2UADDR";
        GETVERSADDR = 9, "GETVERSADDR";
        INDIRECT = 10, "INDIRECT";
        GETADDRLIST = 11, "GETADDRLIST";
        GETSTAT = 12, "GETSTAT";
    }
}

const PROTOCOLS: crate::field::Values = &[(6, "TCP"), (17, "UDP")];

fields! {
    /// Fields of all versions.
    pub mod f ["RFC 1833 2"] {
        PROTOCOL: Protocol = "portmap", "Portmap";
        PROCEDURE_V2: U32 = "portmap.procedure_v2", "V2 Procedure", dec, values Procedure::VALUES;
        PROCEDURE_V3: U32 = "portmap.procedure_v3", "V3 Procedure", dec, values RpcbindProcedure::VALUES;
        PROCEDURE_V4: U32 = "portmap.procedure_v4", "V4 Procedure", dec, values RpcbindProcedure::VALUES;
        PROG: U32 = "portmap.prog", "Program", dec, values Program::VALUES;
        VERSION: U32 = "portmap.version", "Version", dec;
        PROTO: U32 = "portmap.proto", "Protocol", dec, values PROTOCOLS;
        PORT: U32 = "portmap.port", "Port", dec;
        PROC: U32 = "portmap.proc", "Procedure", dec;
        ANSWER: Bool = "portmap.answer", "Answer";
        ARGS: Bytes = "portmap.args", "Arguments";
        RESULT: Bytes = "portmap.result", "Result";
        UADDR: Str = "portmap.uaddr", "Universal Address";
        MAP: None = "rdmascope.portmap.map", "Map Entry";
        RPCB: None = "portmap.rpcb", "RPCB";
        RPCB_PROG: U32 = "portmap.rpcb.prog", "Program", dec, values Program::VALUES;
        RPCB_VERSION: U32 = "portmap.rpcb.version", "Version", dec;
        RPCB_NETID: Str as Keep = "portmap.rpcb.netid", "Network Id";
        RPCB_ADDR: Str = "portmap.rpcb.addr", "Universal Address";
        RPCB_OWNER: Str = "portmap.rpcb.owner", "Owner of this Service";
        TIME: U32 = "rdmascope.portmap.time", "Time", dec;
        TADDR: None = "rdmascope.portmap.taddr", "Transport address";
        TADDR_MAXLEN: U32 = "rdmascope.portmap.taddr.maxlen", "Maximum length", dec;
        TADDR_BUF: Bytes = "rdmascope.portmap.taddr.buf", "Address";
        ENTRY: None = "rdmascope.portmap.entry", "Address Entry";
        MADDR: Str = "rdmascope.portmap.entry.maddr", "Universal Address";
        NC_NETID: Str as Keep = "rdmascope.portmap.entry.netid", "Network Id";
        NC_SEMANTICS: U32 = "rdmascope.portmap.entry.semantics", "Semantics", dec, values &[(1, "connectionless"), (2, "connection oriented"), (3, "connection oriented, orderly")];
        NC_PROTOFMLY: Str as Keep = "rdmascope.portmap.entry.family", "Protocol family";
        NC_PROTO: Str as Keep = "rdmascope.portmap.entry.protocol", "Protocol";
        STAT: None = "rdmascope.portmap.stat", "Statistics";
        STAT_CALLS: U32 = "rdmascope.portmap.stat.calls", "Calls of the procedure", dec;
        STAT_SETS: I32 = "rdmascope.portmap.stat.sets", "Successful SETs", dec;
        STAT_UNSETS: I32 = "rdmascope.portmap.stat.unsets", "Successful UNSETs", dec;
        STAT_SUCCESS: I32 = "rdmascope.portmap.stat.success", "Successes", dec;
        STAT_FAILURE: I32 = "rdmascope.portmap.stat.failure", "Failures", dec;
        STAT_INDIRECT: I32 = "rdmascope.portmap.stat.indirect", "Indirect", dec;
    }
}

/// Address of a program, as a portmapper is asked or answers. Parts that a message does not state are 0, or empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mapping<'a> {
    /// The program.
    pub program: u32,
    /// Version of the program.
    pub version: u32,
    /// The transport (RFC 5665): of version 2 the name of its protocol.
    pub netid: &'a [u8],
    /// The port.
    pub port: u16,
}

/// The port of a universal address (RFC 5665 5.2.3.3): the last two numbers of it.
fn port_of(address: &[u8]) -> u16 {
    let mut numbers = address.rsplit(|b| *b == b'.').map(|part| core::str::from_utf8(part).ok()?.parse::<u8>().ok());
    match (numbers.next().flatten(), numbers.next().flatten()) {
        (Some(low), Some(high)) => u16::from_be_bytes([high, low]),
        _ => 0,
    }
}

/// Decodes arguments (of a call) or results in a protocol subtree of its own. `visitor` is called with every mapping.
///
/// # Errors
/// The bytes cannot be decoded; the observer has been notified.
pub fn decode<'a, T: Trace, V: Visit<'a>>(
    x: &mut Xdr<'a, '_, T>,
    call: bool,
    memo: &Memo,
    visitor: &mut V,
) -> Read<()> {
    x.t.protocol("Portmap");
    x.scope(f::PROTOCOL, |x| {
        if T::ON {
            let def = match memo.version {
                2 => f::PROCEDURE_V2,
                3 => f::PROCEDURE_V3,
                _ => f::PROCEDURE_V4,
            };
            x.known(rpc::f::PROGRAMVERSION, memo.version);
            x.known(def, memo.procedure);
            let name = memo.procedure_name().unwrap_or("procedure");
            x.t.info(format_args!("V{} {name} {}", memo.version, if call { "Call" } else { "Reply" }));
        }
        if memo.version == 2 {
            version2(x, call, Procedure(memo.procedure), visitor)?
        } else {
            rpcbind(x, call, RpcbindProcedure(memo.procedure), visitor)?
        }
        end(x)
    })
}

fn version2<'a, T: Trace, V: Visit<'a>>(
    x: &mut Xdr<'a, '_, T>,
    call: bool,
    procedure: Procedure,
    visitor: &mut V,
) -> Read<()> {
    match (procedure, call) {
        (Procedure::SET | Procedure::UNSET | Procedure::GETPORT, true) => visitor.mapping(&mapping(x, true)?),
        (Procedure::SET | Procedure::UNSET, false) => drop(x.bool(f::ANSWER)?),
        (Procedure::GETPORT, false) => {
            let port = x.u32(f::PORT)?;
            visitor.mapping(&Mapping { port: u16::try_from(port).unwrap_or(0), ..Mapping::default() });
            if T::ON {
                x.t.info(format_args!("Port: {port}"));
            }
        }
        (Procedure::DUMP, false) => drop(x.chain(|x| {
            let mapping = x.scope(f::MAP, |x| mapping(x, false))?;
            visitor.mapping(&mapping);
            Ok(())
        })?),
        (Procedure::CALLIT, true) => {
            x.u32(f::PROG)?;
            x.u32(f::VERSION)?;
            x.u32(f::PROC)?;
            x.opaque(f::ARGS)?;
        }
        (Procedure::CALLIT, false) => {
            x.u32(f::PORT)?;
            x.opaque(f::RESULT)?;
        }
        _ => {}
    }
    Ok(())
}

fn mapping<'a, T: Trace>(x: &mut Xdr<'a, '_, T>, traced: bool) -> Read<Mapping<'a>> {
    let (program, version, protocol) = (x.u32(f::PROG)?, x.u32(f::VERSION)?, x.u32(f::PROTO)?);
    if T::ON && traced {
        let protocol = crate::field::name_of(PROTOCOLS, protocol.into()).unwrap_or("another protocol");
        x.t.info(format_args!("{}({program}) V:{version} {protocol}", rpc::Program(program)));
    }
    let port = u16::try_from(x.u32(f::PORT)?).unwrap_or(0);
    let netid: &[u8] = match protocol {
        6 => b"tcp",
        17 => b"udp",
        _ => b"",
    };
    Ok(Mapping { program, version, netid, port })
}

fn rpcbind<'a, T: Trace, V: Visit<'a>>(
    x: &mut Xdr<'a, '_, T>,
    call: bool,
    procedure: RpcbindProcedure,
    visitor: &mut V,
) -> Read<()> {
    use RpcbindProcedure as P;
    match (procedure, call) {
        (P::SET | P::UNSET | P::GETADDR | P::GETVERSADDR | P::GETADDRLIST, true) => visitor.mapping(&rpcb(x, true)?),
        (P::SET | P::UNSET, false) => drop(x.bool(f::ANSWER)?),
        (P::GETADDR | P::GETVERSADDR | P::TADDR2UADDR, false) | (P::UADDR2TADDR, true) => {
            let address = x.opaque(f::UADDR)?;
            if T::ON {
                x.t.info(format_args!("{}", ShownText(address)));
            }
            if !call {
                visitor.mapping(&Mapping { port: port_of(address), ..Mapping::default() });
            }
        }
        (P::DUMP, false) => drop(x.chain(|x| {
            visitor.mapping(&rpcb(x, false)?);
            Ok(())
        })?),
        (P::CALLIT | P::INDIRECT, true) => {
            x.u32(f::PROG)?;
            x.u32(f::VERSION)?;
            x.u32(f::PROC)?;
            x.opaque(f::ARGS)?;
        }
        (P::CALLIT | P::INDIRECT, false) => {
            x.opaque(f::UADDR)?;
            x.opaque(f::RESULT)?;
        }
        (P::GETTIME, false) => drop(x.u32(f::TIME)?),
        (P::UADDR2TADDR, false) | (P::TADDR2UADDR, true) => x.scope(f::TADDR, |x| {
            x.u32(f::TADDR_MAXLEN)?;
            x.opaque(f::TADDR_BUF).map(drop)
        })?,
        (P::GETADDRLIST, false) => drop(x.chain(|x| {
            x.scope(f::ENTRY, |x| {
                let address = x.opaque(f::MADDR)?;
                let netid = x.opaque(f::NC_NETID)?;
                visitor.mapping(&Mapping { netid, port: port_of(address), ..Mapping::default() });
                x.u32(f::NC_SEMANTICS)?;
                x.opaque(f::NC_PROTOFMLY)?;
                x.opaque(f::NC_PROTO).map(drop)
            })
        })?),
        // statistics of versions 2, 3 and 4, each with 13 counters and two lists
        (P::GETSTAT, false) => {
            for _ in 0..3 {
                x.scope(f::STAT, statistics)?;
            }
        }
        _ => {}
    }
    Ok(())
}

fn rpcb<'a, T: Trace>(x: &mut Xdr<'a, '_, T>, traced: bool) -> Read<Mapping<'a>> {
    x.scope(f::RPCB, |x| {
        let (program, version) = (x.u32(f::RPCB_PROG)?, x.u32(f::RPCB_VERSION)?);
        if T::ON && traced {
            x.t.info(format_args!("{}({program}) V:{version}", rpc::Program(program)));
        }
        let netid = x.opaque(f::RPCB_NETID)?;
        let port = port_of(x.opaque(f::RPCB_ADDR)?);
        x.opaque(f::RPCB_OWNER)?;
        Ok(Mapping { program, version, netid, port })
    })
}

fn statistics<T: Trace>(x: &mut Xdr<'_, '_, T>) -> Read<()> {
    for _ in 0..13 {
        x.u32(f::STAT_CALLS)?;
    }
    x.i32(f::STAT_SETS)?;
    x.i32(f::STAT_UNSETS)?;
    x.chain(|x| {
        x.scope(f::ENTRY, |x| {
            x.u32(f::RPCB_PROG)?;
            x.u32(f::RPCB_VERSION)?;
            x.i32(f::STAT_SUCCESS)?;
            x.i32(f::STAT_FAILURE)?;
            x.opaque(f::RPCB_NETID).map(drop)
        })
    })?;
    x.chain(|x| {
        x.scope(f::ENTRY, |x| {
            x.u32(f::RPCB_PROG)?;
            x.u32(f::RPCB_VERSION)?;
            x.u32(f::PROC)?;
            x.i32(f::STAT_SUCCESS)?;
            x.i32(f::STAT_FAILURE)?;
            x.i32(f::STAT_INDIRECT)?;
            x.opaque(f::RPCB_NETID).map(drop)
        })
    })
    .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::Vec;
    use crate::trace::{Off, Tree};
    use crate::wire::xdr::{self, Stream};
    use alloc::vec;

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|w| w.to_be_bytes()).collect()
    }

    fn tree(version: u32, procedure: u32, call: bool, bytes: &[u8]) -> Tree {
        let memo = Memo::new(Program::PORTMAP, version, procedure);
        let mut tree = Tree::new();
        tree.begin(bytes);
        decode(&mut Xdr::new(&Stream::whole(bytes), &mut tree), call, &memo, &mut ()).unwrap();
        assert!(tree.faults.is_empty());
        assert_eq!(tree.all(xdr::f::UNDECODED.name).count(), 0);
        for n in 0..bytes.len() {
            assert!(decode(&mut Xdr::new(&Stream::whole(&bytes[..n]), &mut Off), call, &memo, &mut ()).is_err());
        }
        tree
    }

    #[test]
    fn ports_of_universal_addresses() {
        assert_eq!([port_of(b"192.0.2.1.78.81"), port_of(b"::.8.1"), port_of(b"0.0.0.0.0.111")], [20049, 2049, 111]);
        assert_eq!([port_of(b""), port_of(b"81"), port_of(b"1.300"), port_of(b"a.b"), port_of(b".")], [0; 5]);
    }

    #[test]
    fn every_procedure_of_version_2() {
        let t = tree(2, 3, true, &words(&[100_005, 3, 6, 0]));
        assert_eq!((t.protocol, t.info.as_str()), ("Portmap", "V2 GETPORT Call, MOUNT(100005) V:3 TCP"));
        let t = tree(2, 3, false, &words(&[44405]));
        assert_eq!((t.number("portmap.port"), t.info.as_str()), (Some(44405), "V2 GETPORT Reply, Port: 44405"));
        tree(2, 1, true, &words(&[100_005, 3, 6, 111]));
        assert_eq!(tree(2, 2, false, &words(&[1])).number("portmap.answer"), Some(1));
        let t = tree(2, 4, false, &words(&[1, 100_000, 2, 6, 111, 1, 100_003, 3, 6, 2049, 0]));
        assert_eq!(t.all("rdmascope.portmap.map").count(), 2);
        tree(2, 5, true, &words(&[100_003, 3, 0, 4, 0]));
        tree(2, 5, false, &words(&[2049, 0]));
        tree(2, 0, true, &[]);
    }

    #[test]
    fn every_procedure_of_rpcbind() {
        let rpcb = words(&[100_003, 3, 3, 0x7463_7000, 0, 1, 0x3000_0000]);
        for procedure in [1, 2, 3, 9, 11] {
            assert_eq!(tree(4, procedure, true, &rpcb).number("portmap.rpcb.prog"), Some(100_003));
        }
        let address = words(&[3, 0x302e_3000]);
        for (procedure, call) in [(3, false), (9, false), (8, false), (7, true)] {
            assert!(tree(3, procedure, call, &address).info.ends_with("0.0"));
        }
        let mut list = words(&[1]);
        list.extend(&rpcb);
        list.extend(words(&[0]));
        assert_eq!(tree(3, 4, false, &list).all("portmap.rpcb").count(), 1);
        assert_eq!(tree(4, 6, false, &words(&[77])).number("rdmascope.portmap.time"), Some(77));
        tree(4, 7, false, &words(&[16, 4, 1]));
        tree(4, 8, true, &words(&[16, 4, 1]));
        tree(4, 10, true, &words(&[100_003, 3, 0, 4, 0]));
        tree(4, 5, false, &words(&[1, 0x3000_0000, 4, 9]));
        tree(4, 11, false, &words(&[1, 1, 0x3000_0000, 3, 0x7463_7000, 3, 4, 0x696e_6574, 3, 0x7463_7000, 0]));
        let mut statistics = words(&[0; 13]);
        statistics.extend(words(&[1, 2, 1, 100_003, 3, 5, 6, 0, 0, 1, 100_003, 3, 4, 7, 8, 9, 0, 0]));
        let three = vec![statistics; 3].concat();
        assert_eq!(tree(4, 12, false, &three).all("rdmascope.portmap.stat").count(), 3);
    }
}
