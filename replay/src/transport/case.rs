//! Cases of the conformance probe that one transport alone can run, because they need packets that others never send: a
//! column of its row. They are data; the probe runs them.

use super::{Fabric, Transport};
use std::sync::Arc;

/// A case of one transport.
#[derive(Clone, Copy, Debug)]
pub struct OwnCase {
    /// Its name, which begins with that of the transport.
    pub name: &'static str,
    /// The section of \[MS-SMBD\], or of the specification that it names.
    pub section: &'static str,
    /// Description of the case and of the required behaviour of the server.
    pub text: &'static str,
    /// It leaves the server a connection that ends in the middle of negotiation.
    pub dies_negotiating: bool,
    /// Actions of the probe.
    pub steps: Steps,
}

/// Actions of the probe, and the result that it requires.
#[derive(Clone, Copy, Debug)]
pub enum Steps {
    /// Negotiates over the transport with other options.
    Negotiates {
        /// Changes the options.
        options: fn(&dyn Fabric) -> Arc<dyn Fabric>,
        /// The verdict's text if the server rejects the connection for them, which it may.
        rejected: &'static str,
    },
    /// Negotiates, with this number of bytes at a time.
    Trickles(usize),
    /// Closes its direction after a negotiation. The server must serve on.
    HalfCloses,
    /// Breaks a rule after a negotiation, with checksums if they are an option. The connection must end, and the server
    /// must serve on.
    Breaks(fn(&mut dyn Transport)),
    /// Reads in a session with this fault of packets: every reply and every byte must arrive.
    Reads(&'static str),
    /// Writes in a session with this fault of packets: every byte must arrive.
    Writes(&'static str),
    /// Negotiates with this fault of packets: the connection may end in any way, and the server must serve on.
    FailsToNegotiate(&'static str),
    /// Writes in a session with this fault of packets: the WRITE must fail, in any way, and the server must serve on.
    FailsToWrite(&'static str),
}
