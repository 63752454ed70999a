//! The only part of rdmascope that talks: a userspace iWARP stack, SMB Direct endpoints, SMB2 sessions, and what is built of them. See
//! the crate's README for the three inputs, three outputs and one loop that everything here is driven by.
#![forbid(unsafe_code)]

pub mod channel;
pub mod error;
pub mod fault;
pub mod fuzzing;
pub mod probe;
pub mod script;
pub mod smb2;
pub mod smbd;
pub mod transport;
pub mod wire;

pub use transport::iwarp;
