//! Drivers that move the bytes of a transport. With UDP port 4791 ([`super::roce`]), this is the only code of this
//! crate that waits.

mod completion;
mod tcp;

pub use completion::CompletionChannel;
pub use tcp::{Accepted, Passed, TcpAcceptor, TcpDriver};
