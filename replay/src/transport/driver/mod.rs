//! What moves the bytes of a transport: the only code of this crate that waits.

mod completion;
mod tcp;
#[cfg(target_os = "linux")]
mod udp;

pub use completion::CompletionChannel;
pub use tcp::{Accepted, TcpAcceptor, TcpDriver};
#[cfg(target_os = "linux")]
pub use udp::UdpDriver;
#[cfg(target_os = "linux")]
pub(crate) use udp::{Mailbox, UdpPort, path_mtu};
