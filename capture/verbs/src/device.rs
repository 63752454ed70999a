//! The devices that libibverbs knows, and their capabilities.

#![allow(unsafe_code)]

use crate::error::{Error, Result};
use crate::library::{Verbs, extended, text};
use crate::sys;
use std::io;

/// A device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Name of the device in `/sys/class/infiniband`.
    pub name: String,
    /// Name of its node in `/dev/infiniband`.
    pub node: String,
    /// True if it uses iWARP.
    pub iwarp: bool,
    /// `/sys/class/infiniband/NAME`, according to the library.
    pub sysfs: String,
}

/// Capabilities of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Abilities {
    /// Ports, counted from 1.
    pub ports: u8,
    /// Memory windows of type 2: remote keys for exact ranges, which a Send with Invalidate ends.
    pub windows: bool,
    /// Number of the peer's reads that are answered at a time.
    pub responder_resources: u8,
    /// Maximum number of our outstanding reads.
    pub initiator_depth: u8,
    /// Work requests of a queue.
    pub queue: u32,
    /// Entries of a completion queue.
    pub completions: u32,
    /// Mask of the clock of completions; 0 if there is none.
    pub timestamp_mask: u64,
    /// Its frequency in kHz; 0 if it is not known.
    pub clock_khz: u64,
}

/// State of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortState {
    /// Up and configured.
    pub active: bool,
    /// Ethernet, as opposed to InfiniBand.
    pub ethernet: bool,
}

impl Device {
    /// The network interface of a port, by sysfs.
    pub fn interface(&self, port: u8) -> Option<String> {
        let path = format!("/sys/class/infiniband/{}/ports/{port}/gid_attrs/ndevs/0", self.name);
        let name = std::fs::read_to_string(path).ok()?;
        let name = name.trim();
        (!name.is_empty()).then(|| name.to_owned())
    }

    fn of(device: *mut sys::ibv_device) -> Self {
        // SAFETY: an entry of the list, which is still there; the arrays are filled by the library.
        let d = unsafe { &*device };
        Self {
            name: text(&d.name),
            node: text(&d.dev_name),
            iwarp: d.transport_type == sys::IBV_TRANSPORT_IWARP,
            sysfs: text(&d.ibdev_path),
        }
    }
}

/// The list of the library, freed in the end.
struct List {
    verbs: Verbs,
    list: *mut *mut sys::ibv_device,
    len: usize,
}

impl List {
    fn new(verbs: Verbs) -> Result<Self> {
        let mut len = 0;
        // SAFETY: writes the number of entries.
        let list = unsafe { (verbs.ib().get_device_list)(&mut len) };
        if list.is_null() {
            let source = io::Error::last_os_error();
            return match source.raw_os_error() {
                // the kernel has no uverbs
                Some(libc::ENOSYS | libc::ENODEV | libc::ENOENT | 0) => Err(Error::NoDevices),
                _ => Err(Error::Call { device: "RDMA devices".into(), call: "ibv_get_device_list", source }),
            };
        }
        Ok(Self { verbs, list, len: usize::try_from(len).unwrap_or(0) })
    }

    fn devices(&self) -> &[*mut sys::ibv_device] {
        // SAFETY: `len` entries, until the list is freed.
        unsafe { std::slice::from_raw_parts(self.list, self.len) }
    }
}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: came from ibv_get_device_list and is freed once; open devices keep a reference of their own.
        unsafe { (self.verbs.ib().free_device_list)(self.list) }
    }
}

impl Verbs {
    /// The devices that there are; possibly none.
    ///
    /// # Errors
    /// If the library cannot list them. A kernel without RDMA is not an error here.
    pub fn devices(self) -> Result<Vec<Device>> {
        match List::new(self) {
            Ok(list) => Ok(list.devices().iter().map(|d| Device::of(*d)).collect()),
            Err(Error::NoDevices) => Ok(Vec::new()),
            Err(e) => Err(e),
        }
    }

    /// Returns the capabilities of a device.
    ///
    /// # Errors
    /// If the device does not exist or cannot be opened.
    pub fn abilities(self, device: &str) -> Result<Abilities> {
        Context::open(self, device)?.abilities()
    }

    /// Returns the state of a port.
    ///
    /// # Errors
    /// If the device does not exist or cannot be opened.
    pub fn port(self, device: &str, port: u8) -> Result<PortState> {
        Context::open(self, device)?.port(port)
    }
}

/// An open device.
pub(crate) struct Context {
    pub(crate) verbs: Verbs,
    pub(crate) device: Device,
    pub(crate) raw: *mut sys::ibv_context,
}

impl Context {
    pub(crate) fn open(verbs: Verbs, name: &str) -> Result<Self> {
        let list = List::new(verbs)?;
        if list.devices().is_empty() {
            return Err(Error::NoDevices);
        }
        let Some((raw, device)) = list.devices().iter().map(|d| (*d, Device::of(*d))).find(|(_, d)| d.name == name)
        else {
            let known = list.devices().iter().map(|d| Device::of(*d).name).collect();
            return Err(Error::NoDevice { name: name.to_owned(), known });
        };
        // SAFETY: an entry of the list, which is still there.
        let context = unsafe { (verbs.ib().open_device)(raw) };
        if context.is_null() {
            let source = io::Error::last_os_error();
            return Err(Error::Open { device: device.name, node: device.node, source });
        }
        Ok(Self { verbs, device, raw: context })
    }

    pub(crate) fn abilities(&self) -> Result<Abilities> {
        abilities(self.verbs, self.raw, &self.device.name)
    }

    pub(crate) fn port(&self, port: u8) -> Result<PortState> {
        self::port(self.verbs, self.raw, &self.device.name, port)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: it came from ibv_open_device; objects made from it are freed before it, by the order of fields of its
        // owners.
        unsafe { (self.verbs.ib().close_device)(self.raw) };
    }
}

/// Asks the driver of an open device.
pub(crate) fn port(verbs: Verbs, context: *mut sys::ibv_context, name: &str, port: u8) -> Result<PortState> {
    // SAFETY: all zeroes is a value of this plain struct.
    let mut attr: sys::ibv_port_attr = unsafe { std::mem::zeroed() };
    let rc = match extended!(context, query_port) {
        // SAFETY: an open context, and room as long as it says.
        Some(query) => unsafe { query(context, port, &mut attr, size_of::<sys::ibv_port_attr>()) },
        // SAFETY: an open context; the function fills in a part of the struct.
        None => unsafe { (verbs.ib().query_port)(context, port, &mut attr) },
    };
    if rc != 0 {
        let source = io::Error::from_raw_os_error(rc);
        return Err(Error::Call { device: name.to_owned(), call: "ibv_query_port", source });
    }
    Ok(PortState {
        active: attr.state == sys::IBV_PORT_ACTIVE,
        ethernet: attr.link_layer == sys::IBV_LINK_LAYER_ETHERNET,
    })
}

/// Queries the driver; the clock only if the library supports that.
pub(crate) fn abilities(verbs: Verbs, context: *mut sys::ibv_context, name: &str) -> Result<Abilities> {
    // SAFETY: all zeroes is a value of this plain struct.
    let mut attr: sys::ibv_device_attr_ex = unsafe { std::mem::zeroed() };
    let asked = extended!(context, query_device_ex).is_some_and(|query| {
        // SAFETY: an open context, no input, and room as long as it says.
        unsafe { query(context, std::ptr::null(), &mut attr, size_of::<sys::ibv_device_attr_ex>()) == 0 }
    });
    if !asked {
        // SAFETY: an open context, and a whole struct to write to.
        let rc = unsafe { (verbs.ib().query_device)(context, &mut attr.orig_attr) };
        if rc != 0 {
            let source = io::Error::from_raw_os_error(rc);
            return Err(Error::Call { device: name.to_owned(), call: "ibv_query_device", source });
        }
    }
    let a = &attr.orig_attr;
    let small = |n: libc::c_int| u8::try_from(n.clamp(0, 255)).unwrap_or(0);
    let positive = |n: libc::c_int| u32::try_from(n).unwrap_or(0);
    let windows = sys::IBV_DEVICE_MEM_WINDOW_TYPE_2A | sys::IBV_DEVICE_MEM_WINDOW_TYPE_2B;
    // SAFETY: an open context.
    let ops = unsafe { &(*context).ops };
    Ok(Abilities {
        ports: a.phys_port_cnt,
        windows: a.device_cap_flags & windows != 0 && ops.alloc_mw.is_some() && ops.dealloc_mw.is_some(),
        responder_resources: small(a.max_qp_rd_atom),
        initiator_depth: small(a.max_qp_init_rd_atom),
        queue: positive(a.max_qp_wr),
        completions: positive(a.max_cqe),
        timestamp_mask: attr.completion_timestamp_mask,
        clock_khz: attr.hca_core_clock,
    })
}
