//! What moves the bytes of a transport: with UDP port 4791 ([`super::roce`]), the only code of this crate that waits.

mod completion;
mod tcp;

pub use completion::CompletionChannel;
pub use tcp::{Accepted, Passed, TcpAcceptor, TcpDriver};
