//! Waits for connections.

#![allow(unsafe_code)]

use crate::connection::{Connection, Options, event_channel, private_data, sockaddr, socket_address};
use crate::error::{Error, Result};
use crate::library::{RdmaCm, Verbs};
use crate::sys;
use std::io;
use std::net::SocketAddr;
use std::ptr::{null, null_mut};
use std::time::Duration;

/// Maximum number of waiting requests.
const BACKLOG: libc::c_int = 64;

/// Listens on an address; on all devices if it is the unspecified one.
pub struct Listener {
    verbs: Verbs,
    cm: &'static RdmaCm,
    channel: *mut sys::rdma_event_channel,
    id: *mut sys::rdma_cm_id,
    address: SocketAddr,
}

// SAFETY: librdmacm lets any thread use its objects; we hold ours alone.
unsafe impl Send for Listener {}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Listener({})", self.address)
    }
}

impl Listener {
    /// Begins to listen.
    ///
    /// # Errors
    /// If the address is in use, or belongs to no device.
    pub fn bind(verbs: Verbs, address: SocketAddr) -> Result<Self> {
        let cm = verbs.cm()?;
        let channel = event_channel(cm)?;
        let mut listener = Self { verbs, cm, channel, id: null_mut(), address };
        let failed = |call| Error::Call { device: address.to_string(), call, source: io::Error::last_os_error() };
        // SAFETY: a channel of ours; the new identifier is written to the field.
        if unsafe { (cm.create_id)(channel, &mut listener.id, null_mut(), sys::RDMA_PS_TCP) } != 0 {
            return Err(failed("rdma_create_id"));
        }
        let mut at = sockaddr(address);
        // SAFETY: an identifier of ours; the address is copied.
        if unsafe { (cm.bind_addr)(listener.id, (&raw mut at).cast()) } != 0 {
            let source = io::Error::last_os_error();
            return Err(match source.raw_os_error() {
                Some(libc::ENODEV | libc::EADDRNOTAVAIL) => Error::NoRoute { address: address.to_string(), source },
                _ => Error::Call { device: address.to_string(), call: "rdma_bind_addr", source },
            });
        }
        // SAFETY: a bound identifier.
        if unsafe { (cm.listen)(listener.id, BACKLOG) } != 0 {
            return Err(failed("rdma_listen"));
        }
        // SAFETY: a bound identifier.
        listener.address.set_port(u16::from_be(unsafe { (cm.get_src_port)(listener.id) }));
        Ok(listener)
    }

    /// Address and port on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The next request; `None` if none came within `wait`.
    ///
    /// # Errors
    /// If the communication manager fails.
    pub fn next(&mut self, wait: Duration) -> Result<Option<Request>> {
        // SAFETY: the channel is ours and open.
        let mut polled = libc::pollfd { fd: unsafe { (*self.channel).fd }, events: libc::POLLIN, revents: 0 };
        let ms = libc::c_int::try_from(wait.as_millis()).unwrap_or(libc::c_int::MAX);
        // SAFETY: one entry, as said.
        if unsafe { libc::poll(&mut polled, 1, ms) } <= 0 {
            return Ok(None);
        }
        let mut event = null_mut();
        // SAFETY: a channel of ours, which does not block.
        if unsafe { (self.cm.get_cm_event)(self.channel, &mut event) } != 0 {
            let source = io::Error::last_os_error();
            return match source.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
                _ => Err(Error::Call { device: self.address.to_string(), call: "rdma_get_cm_event", source }),
            };
        }
        // SAFETY: an event of ours until it is acknowledged. A request brings a new identifier, which is ours from now
        // on.
        let request = unsafe {
            let e = &*event;
            (e.event == sys::RDMA_CM_EVENT_CONNECT_REQUEST).then(|| Request {
                verbs: self.verbs,
                cm: self.cm,
                id: e.id,
                peer: socket_address(&(*e.id).route.dst_addr).unwrap_or(self.address),
                asked: (e.conn.responder_resources, e.conn.initiator_depth),
                private_data: private_data(&e.conn),
            })
        };
        // SAFETY: acknowledged once, and not looked at afterwards.
        unsafe { (self.cm.ack_cm_event)(event) };
        Ok(request)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // SAFETY: made by the library, ended once, and all events were acknowledged.
        unsafe {
            if !self.id.is_null() {
                (self.cm.destroy_id)(self.id);
            }
            (self.cm.destroy_event_channel)(self.channel);
        }
    }
}

/// A connection request. Dropping it rejects it.
pub struct Request {
    verbs: Verbs,
    cm: &'static RdmaCm,
    id: *mut sys::rdma_cm_id,
    peer: SocketAddr,
    asked: (u8, u8),
    private_data: Vec<u8>,
}

// SAFETY: librdmacm lets any thread use its objects; we hold ours alone.
unsafe impl Send for Request {}

impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Request({}, {:?})", self.peer, self.asked)
    }
}

impl Request {
    /// Address of the client.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Private data of the request.
    pub fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    /// Takes the connection, which then has events of its own.
    ///
    /// # Errors
    /// If the device lacks a needed capability, or the peer went away.
    pub fn accept(mut self, options: Options, timeout: Duration) -> Result<Connection> {
        let channel = event_channel(self.cm)?;
        let mut connection = Connection::new(self.verbs, self.cm, channel, self.peer, options);
        // SAFETY: an identifier of ours whose events were all acknowledged; it moves to a channel of ours.
        if unsafe { (self.cm.migrate_id)(self.id, channel) } != 0 {
            let source = io::Error::last_os_error();
            return Err(Error::Call { device: self.peer.to_string(), call: "rdma_migrate_id", source });
        }
        connection.id = std::mem::replace(&mut self.id, null_mut());
        connection.accept(self.asked, std::mem::take(&mut self.private_data), timeout)
    }

    /// Says no.
    pub fn reject(self) {}
}

impl Drop for Request {
    fn drop(&mut self) {
        if self.id.is_null() {
            return;
        }
        // SAFETY: an identifier of ours that was neither accepted nor rejected; ended once.
        unsafe {
            (self.cm.reject)(self.id, null(), 0);
            (self.cm.destroy_id)(self.id);
        }
    }
}
