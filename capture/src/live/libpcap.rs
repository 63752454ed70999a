//! Capturing through libpcap, on systems without packet rings (macOS, BSD), or for interfaces that only libpcap
//! supports.
//!
//! Its read timeout does not fire on an idle Linux interface, so the handle never blocks and is polled. In nanosecond
//! mode, the field for microseconds holds nanoseconds. Frames are copied: the crate lends them for as long as the
//! handle is borrowed.

use std::os::fd::{AsRawFd, RawFd};

use pcap::{Active, Capture, Precision};

use super::filter::Filter;
use super::{Counters, Event, Frame, Live, Options, Ready};
use crate::LinkType;
use crate::error::{Error, Problem, Result};
use crate::metadata::{Clock, Interface};

/// Time after which the system hands over captured frames, in ms.
const TIMEOUT_MS: u32 = 20;
/// Maximum number of learnt TCP ports.
const PORTS_MAX: usize = 64;

/// An interface, open in libpcap.
pub(super) struct Handle {
    name: String,
    handle: Capture<Active>,
    interface: Interface,
    filter: Filter,
    ports: Vec<u16>,
    is_nano: bool,
    frame: Vec<u8>,
    wire_len: u32,
    time_ns: i64,
    counters: Counters,
    is_up: bool,
}

impl Handle {
    pub(super) fn open(name: &str, options: &Options) -> Result<Handle> {
        let failed = |e: pcap::Error| Error::new(name, Problem::Libpcap(e.to_string()));
        let inactive = || {
            Ok::<_, pcap::Error>(
                Capture::from_device(name)?
                    .promisc(options.promiscuous)
                    .snaplen(options.snap() as i32)
                    .buffer_size(i32::try_from(options.ring_bytes).unwrap_or(i32::MAX))
                    .timeout(TIMEOUT_MS as i32),
            )
        };
        // not every system has nanoseconds
        let (opened, is_nano) = match inactive().map_err(failed)?.precision(Precision::Nano).open() {
            Ok(handle) => (handle, true),
            Err(_) => (inactive().map_err(failed)?.open().map_err(failed)?, false),
        };
        let mut handle = opened.setnonblock().map_err(failed)?;
        let Some(text) = options.filter.libpcap() else {
            return Err(Error::new(name, Problem::Unsupported("vlan in a capture filter with libpcap".to_owned())));
        };
        handle.filter(&text, true).map_err(failed)?;
        let link_type = LinkType(u16::try_from(handle.get_datalink().0).unwrap_or(u16::MAX));
        // DLT_RAW is 12 here; files have 101
        let link_type = if link_type == LinkType::RAW_BSD { LinkType::RAW } else { link_type };
        let mut interface = Interface::new(link_type);
        interface.name = Some(name.to_owned());
        interface.clock = Clock::NANOSECONDS;
        interface.filter = Some(options.filter.to_string());
        interface.snap_len = options.snap_len;
        interface.comments.push(format!("{name}: through libpcap{}", if is_nano { "" } else { ", in microseconds" }));
        Ok(Handle {
            name: name.to_owned(),
            handle,
            interface,
            filter: options.filter.clone(),
            ports: Vec::new(),
            is_nano,
            frame: Vec::new(),
            wire_len: 0,
            time_ns: 0,
            counters: Counters::default(),
            is_up: true,
        })
    }
}

impl Live for Handle {
    fn interface(&self) -> &Interface {
        &self.interface
    }

    fn advance(&mut self) -> Result<Ready> {
        match self.handle.next_packet() {
            Ok(packet) => {
                let unit = if self.is_nano { 1 } else { 1000 };
                self.time_ns = packet.header.ts.tv_sec as i64 * 1_000_000_000 + packet.header.ts.tv_usec as i64 * unit;
                self.wire_len = packet.header.len;
                self.frame.clear();
                self.frame.extend_from_slice(packet.data);
                self.is_up = true;
                self.counters.delivered += 1;
                self.counters.bytes += u64::from(self.wire_len);
                Ok(Ready::Frame)
            }
            Err(pcap::Error::TimeoutExpired | pcap::Error::NoMorePackets) => Ok(Ready::NotYet),
            // an interface that goes down is not the end: libpcap reports it once for each read
            Err(pcap::Error::PcapError(text)) if text.contains("went down") || text.contains("is down") => {
                self.is_up = false;
                Ok(Ready::NotYet)
            }
            Err(e) => Err(Error::new(&self.name, Problem::Libpcap(e.to_string()))),
        }
    }

    fn frame(&self) -> Frame<'_> {
        Frame {
            time_ns: self.time_ns,
            wire_len: self.wire_len,
            link_type: self.interface.link_type,
            bytes: &self.frame,
            options: &[],
        }
    }

    fn descriptor(&self) -> Option<RawFd> {
        // not every system can poll it
        cfg!(target_os = "linux").then(|| self.handle.as_raw_fd())
    }

    fn watch(&mut self) -> Option<Event> {
        (!self.is_up).then_some(Event::Down)
    }

    fn latency_ms(&self) -> u32 {
        TIMEOUT_MS
    }

    fn counters(&mut self) -> Counters {
        if let Ok(stats) = self.handle.stats() {
            // counters of 32 bits that wrap: add the increase since the last read
            let add = |total: u64, now: u32| total + u64::from(now.wrapping_sub(total as u32));
            self.counters.dropped_by_kernel = add(self.counters.dropped_by_kernel, stats.dropped);
            self.counters.dropped_by_interface = add(self.counters.dropped_by_interface, stats.if_dropped);
            self.counters.accepted = self.counters.delivered + self.counters.dropped_by_kernel;
        }
        self.counters
    }

    fn learn_tcp_port(&mut self, port: u16) -> Result<bool> {
        if self.ports.contains(&port) || self.ports.len() >= PORTS_MAX || !self.filter.finds_mpa() {
            return Ok(false);
        }
        self.ports.push(port);
        let Some(text) = self.filter.with_tcp_ports(&self.ports).libpcap() else { return Ok(false) };
        self.handle.filter(&text, true).map_err(|e| Error::new(&self.name, Problem::Libpcap(e.to_string())))?;
        Ok(true)
    }
}
