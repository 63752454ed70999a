//! One file per protocol, each readable alone: what it is and its spec, its fields, its decoder, its tests.
pub mod frame_fields;
pub mod ib;
pub mod ip;
pub mod link;
pub mod mount;
pub mod nfs;
pub mod nfsacl;
pub mod nlm;
pub mod portmap;
pub mod rpc;
pub mod rpcrdma;
pub mod smb2;
pub mod smbd;
pub mod tcp;
pub mod tunnel;
pub mod udp;
pub mod xdr;
