//! The side of rdmascope that talks, from the wire up. Every protocol here is a state machine without a socket and
//! without a clock; the crate's README has the loop that drives them.
//!
//! | layer | module |
//! | --- | --- |
//! | carries SMB Direct: iWARP and RoCEv2 in user space, RDMA adapters | [`transport`], one folder and one row each |
//! | SMB Direct, around the analyzer's rulebook | [`smbd`] |
//! | both stacked, with a driver | [`stack`] |
//! | SMB2: client, server, sessions; tickets (feature `kerberos`) | [`smb2`], `kerberos` |
//! | built on a client: replay of a captured session, a conformance test | [`script`], [`probe`] |
//! | built on the server: faults of a peer | [`fault`] |
//! | recording of our own connections | [`wire`] |
//! | random numbers of the system | [`random`] |
#![forbid(unsafe_code)]

pub mod error;
pub mod fault;
pub mod fuzzing;
#[cfg(feature = "kerberos")]
pub mod kerberos;
pub mod probe;
pub mod random;
pub mod script;
pub mod smb2;
pub mod smbd;
pub mod stack;
pub mod transport;
pub mod wire;

pub use transport::{iwarp, roce};
