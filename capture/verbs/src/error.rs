//! Errors of RDMA devices. Each message includes advice.

use std::io;
use thiserror::Error;

/// Result with the [`enum@Error`] of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of an RDMA device or connection.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// A library is not installed.
    #[error(
        "no RDMA here: {library} cannot be loaded ({why}); on Debian and Ubuntu: apt install libibverbs1 librdmacm1 \
            ibverbs-providers"
    )]
    Missing {
        /// Its file.
        library: String,
        /// Message of the dynamic loader.
        why: String,
    },
    /// A library lacks a function.
    #[error("{library} has no {function}: it is not rdma-core's, or too old")]
    Function {
        /// Its file.
        library: String,
        /// The function.
        function: &'static str,
    },
    /// No device at all.
    #[error(
        "there is no RDMA device here: no driver has made one (rdma link shows them), or ib_uverbs is not loaded \
            (modprobe ib_uverbs)"
    )]
    NoDevices,
    /// The requested device does not exist.
    #[error("there is no RDMA device \"{name}\"; there is {}", known.join(", "))]
    NoDevice {
        /// The name that was requested.
        name: String,
        /// Those there are.
        known: Vec<String>,
    },
    /// The requested port does not exist.
    #[error("{device} has no port {port}; it has {ports}")]
    NoPort {
        /// The device.
        device: String,
        /// The port number that was requested.
        port: u8,
        /// Number of ports, which are counted from 1.
        ports: u8,
    },
    /// The device node cannot be opened.
    #[error("{device} cannot be opened: {source}; /dev/infiniband/{node} must be readable and writable for this user")]
    Open {
        /// The device.
        device: String,
        /// Its node.
        node: String,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A raw queue pair needs a capability.
    #[error(
        "{device}: needs CAP_NET_RAW to see what the card carries; run as root, or: setcap cap_net_raw+ep on the \
            rdmascope binary"
    )]
    NeedsNetRaw {
        /// The device.
        device: String,
    },
    /// The driver has no raw queue pairs.
    #[error("{device}: its driver has no RAW_PACKET queue pairs ({source}){}", instead(.interface.as_deref()))]
    NoRawPackets {
        /// The device.
        device: String,
        /// The network interface whose traffic it is.
        interface: Option<String>,
        /// Error of the driver.
        source: io::Error,
    },
    /// The driver has no sniffer flows.
    #[error("{device}: its driver refuses a sniffer flow ({source}){}", instead(.interface.as_deref()))]
    NoSnifferFlow {
        /// The device.
        device: String,
        /// The network interface of the port.
        interface: Option<String>,
        /// Error of the driver.
        source: io::Error,
    },
    /// A call failed.
    #[error("{device}: {call} failed: {source}")]
    Call {
        /// The device, or the address.
        device: String,
        /// The function.
        call: &'static str,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A receive failed in a way that ends a sniffer.
    #[error("{device}: receiving failed: {status}")]
    Receive {
        /// The device.
        device: String,
        /// In the words of the library.
        status: String,
    },
    /// The communication manager is not there.
    #[error(
        "the RDMA communication manager does not answer ({0}); modprobe rdma_ucm, and /dev/infiniband/rdma_cm must be \
            writable"
    )]
    NoManager(io::Error),
    /// No route over a device.
    #[error(
        "{address} is not reached over an RDMA device ({source}): the interface on the way to it must belong to one \
            (rdma link)"
    )]
    NoRoute {
        /// The peer.
        address: String,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The peer rejected the connection.
    #[error("{address} rejected the connection: {reason}")]
    Rejected {
        /// The peer.
        address: String,
        /// The reason, as text and as the number of the standard.
        reason: String,
    },
    /// The peer did not answer.
    #[error("{address} did not answer ({what})")]
    Unreachable {
        /// The peer.
        address: String,
        /// The step that the peer did not answer.
        what: &'static str,
    },
    /// Memory cannot be pinned.
    #[error("{device}: {bytes} bytes cannot be registered: {source}{}", locked(.source))]
    Register {
        /// The device.
        device: String,
        /// Number of bytes.
        bytes: usize,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The connection is over, or not yet there.
    #[error("the connection is not established")]
    NotEstablished,
    /// There is no region with this key, or it is too small.
    #[error("no region of ours has the key {0:#010x}, or it is too small")]
    Region(u32),
    /// A message does not fit.
    #[error("a message of {length} bytes is longer than the {limit} of a buffer")]
    TooLong {
        /// Its length.
        length: usize,
        /// Bytes of a buffer.
        limit: usize,
    },
}

impl Error {
    /// The message without the device or address at its beginning, for callers that have printed it already.
    pub fn without_device(&self) -> String {
        let text = self.to_string();
        match self {
            Self::NeedsNetRaw { device }
            | Self::NoRawPackets { device, .. }
            | Self::NoSnifferFlow { device, .. }
            | Self::Call { device, .. }
            | Self::Receive { device, .. }
            | Self::Register { device, .. } => {
                text.strip_prefix(&format!("{device}: ")).map_or(text.clone(), str::to_owned)
            }
            _ => text,
        }
    }
}

fn instead(interface: Option<&str>) -> String {
    match interface {
        Some(name) => {
            format!("; if its traffic passes through the host, as Soft-RoCE's and Soft-iWARP's does, capture on {name}")
        }
        None => String::new(),
    }
}

fn locked(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::ENOMEM | libc::EAGAIN) => "; raise the limit of locked memory (ulimit -l)",
        _ => "",
    }
}
